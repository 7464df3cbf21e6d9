"""What a session of Rota's own gives Spark."""

from __future__ import annotations

from pyspark.sql import SparkSession


def test_compiled_code_has_as_much_room_as_with_all_compilers(spark: SparkSession) -> None:
    """A session that goes on fills the 48 MiB that Java takes for its quick compiler alone; a
    query then fails with "Out of space in CodeCache"."""
    java = spark.sparkContext._jvm
    assert java is not None
    pools = java.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    of_code = [pool for pool in pools if "Code" in pool.getName()]
    assert sum(pool.getUsage().getMax() for pool in of_code) >= 240 << 20
