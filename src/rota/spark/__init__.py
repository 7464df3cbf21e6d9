"""Kafka in Spark: ``format("rota")``, and groups that see what a query has read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rota import wire
from rota.errors import MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rota.spark.commit.committer import Committer, commit_to_group

__all__ = ["Committer", "commit_to_group", "register"]


def register(spark: SparkSession) -> None:
    """Makes ``spark.read.format("rota")`` and ``spark.readStream.format("rota")`` known.

    ::

        rota.spark.register(spark)
        rows = (
            spark.read.format("rota")
            .option("kafka.bootstrap.servers", "host:9092")
            .option("subscribe", "orders")
            .load()
        )

    To call it again does no harm. Rota must be installed wherever Spark starts Python workers: see
    ``docs/how-to/spark.md``.

    :raises MissingExtra: a package is missing that ``rota[spark]`` brings
    """
    with _complete():
        from rota.spark.parallelism import parallelism  # noqa: PLC0415 (loads pyspark)
        from rota.spark.source import sized  # noqa: PLC0415 as above
    spark.dataSource.register(sized(parallelism(spark)))


@contextmanager
def _complete() -> Iterator[None]:
    """What is loaded in it says how to get what is missing."""
    if problem := wire.missing("Spark source", "spark"):
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
        with _complete():
            from rota.spark.commit import committer  # noqa: PLC0415 as above
        return getattr(committer, name)

    def __dir__() -> list[str]:
        return sorted(__all__)
