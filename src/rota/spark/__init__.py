"""Kafka in Spark: ``format("rota")``, and ``commit_to_group`` for the offsets of streaming queries.

On the driver, :mod:`.source` plans the tasks of queries: :mod:`.option` reads its options,
:mod:`.query` holds them, :mod:`.plan` finds and divides partitions and offsets. On an executor,
:mod:`.task` reads the ranges of one task as Arrow; it loads no pyspark. :mod:`.commit` commits to a
consumer group what :mod:`.progress` says that queries have finished.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rota import protocol
from rota.errors import MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rota.spark.commit import Committer, commit_to_group

__all__ = ["Committer", "commit_to_group", "register"]


def register(spark: SparkSession) -> None:
    """Registers ``spark.read.format("rota")`` and ``spark.readStream.format("rota")``.

    ::

        rota.spark.register(spark)
        rows = (
            spark.read.format("rota")
            .option("kafka.bootstrap.servers", "host:9092")
            .option("subscribe", "orders")
            .load()
        )

    Calling it again has no effect. Rota must be installed wherever Spark starts Python workers: see
    ``docs/how-to/spark.md``.

    :raises MissingExtra: a package is missing that ``rota[spark]`` brings
    """
    with _require_spark_extra():
        from rota.spark.source import (  # noqa: PLC0415 (loads pyspark)
            make_source_class,
            session_parallelism,
        )
    spark.dataSource.register(make_source_class(session_parallelism(spark)))


@contextmanager
def _require_spark_extra() -> Iterator[None]:
    """Raises MissingExtra, with the command that installs it, if an import of the block fails."""
    if problem := protocol.explain_missing_packages("Spark source", "spark"):
        raise MissingExtra(problem)
    try:
        yield
    except ImportError as error:
        raise MissingExtra(
            f"Rota's Spark source needs PySpark 4.2 or newer, and pyarrow: pip install "
            f"'rota[spark]' ('.[spark]' in a clone): {error}"
        ) from error


if not TYPE_CHECKING:  # a type checker knows the names above, and no others

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'rota.spark' has no attribute {name!r}")
        with _require_spark_extra():
            from rota.spark import commit  # noqa: PLC0415 as above
        return getattr(commit, name)

    def __dir__() -> list[str]:
        return sorted(__all__)
