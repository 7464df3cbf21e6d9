"""Kafka in Spark: ``format("rota")``, and groups that see what a query has read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rota.spark.committer import Committer, commit_to_group

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
    """
    from rota.spark.source import Source  # noqa: PLC0415 (pyspark is loaded on first use)

    found = type("Source", (Source,), {"parallelism": _parallelism(spark)})
    spark.dataSource.register(found)


def _parallelism(spark: SparkSession) -> int:
    """How many tasks the session runs at a time."""
    from pyspark.sql import functions as fn  # noqa: PLC0415 as above
    from pyspark.sql.classic.dataframe import DataFrame  # noqa: PLC0415 as above

    every = spark.range(1 << 20)
    if isinstance(every, DataFrame):
        return int(spark.sparkContext.defaultParallelism)
    # over Spark Connect there is no context to ask; a range has a partition for each
    return int(every.select(fn.max(fn.spark_partition_id())).collect()[0][0]) + 1


if not TYPE_CHECKING:  # a type checker knows the names above, and no others

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'rota.spark' has no attribute {name!r}")
        from rota.spark import committer  # noqa: PLC0415 as above

        return getattr(committer, name)
