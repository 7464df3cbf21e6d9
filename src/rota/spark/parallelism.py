"""How many tasks a session runs at a time: over so many a query's partitions are spread."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn


def parallelism(spark: SparkSession) -> int:
    """How many there are now, or, if more, how many the settings let expect: right after the start
    of a session not all executors are there yet.
    """
    return max(_now(spark), _expected(spark))


def _now(spark: SparkSession) -> int:
    if isinstance(spark, SparkSession):
        return int(spark.sparkContext.defaultParallelism)
    # over Spark Connect there is no context to ask; a range has a partition for each
    every = spark.range(1 << 20)
    numbers = every.select(fn.spark_partition_id().alias("number"))
    return int(numbers.agg(fn.max("number")).collect()[0][0]) + 1


def _expected(spark: SparkSession) -> int:
    cores = _setting(spark, "spark.executor.cores") or 1
    if (spark.conf.get("spark.dynamicAllocation.enabled", "false") or "").lower() == "true":
        executors = _setting(spark, "spark.dynamicAllocation.maxExecutors")
    else:
        executors = _setting(spark, "spark.executor.instances")
    return executors * cores or _setting(spark, "spark.cores.max")


def _setting(spark: SparkSession, name: str) -> int:
    text = spark.conf.get(name, "0") or ""
    found = int(text) if text.isascii() and text.isdecimal() else 0
    return found if found < 2**31 - 1 else 0  # the default of maxExecutors is no number to plan by
