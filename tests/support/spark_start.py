"""How tests start Spark: with Java's classes from an archive, and set up for a few rows."""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from pathlib import Path

from rota.pipeline import java
from tests.support.java.launcher import CACHE, making
from tests.support.process import environment, run_python

OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable with options for the Java of each Spark that a process starts."""

# Java's compiler and collectors for large heaps, and code that Spark generates and compiles for
# each query, cost more than they save in tables of a few rows.
FEW_ROWS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dspark.sql.codegen.wholeStage=false",
    "-Dspark.sql.codegen.factoryMode=NO_CODEGEN",
    "-Dspark.sql.shuffle.partitions=2",
    "-Dspark.ui.enabled=false",
)

SECONDS = 600.0
"""How long the making of an archive may take."""

RUN = """
import sys
from pyspark import SparkContext
from rota.pipeline.session import session

with session("local[2]") as spark:
    ids = spark.range(100).mapInArrow(lambda batches: batches, "id long")
    ids.write.parquet(sys.argv[1])
    spark.read.parquet(sys.argv[1]).groupBy("id").count().collect()
started = SparkContext._gateway.proc
SparkContext._gateway.shutdown()
started.stdin.close()  # its Java ends then, and writes the archive
sys.exit(started.wait())
"""


def java_options(*options: str) -> str:
    """These options, and the archive if there is one."""
    found = archive()
    shared = (f'"-XX:SharedArchiveFile={found}"', "-Xlog:cds*=off") if found.exists() else ()
    return " ".join((*options, *shared))


def archive() -> Path:
    """The file with the classes that Spark uses, as Java keeps them in memory.

    A Spark that starts with it needs half the CPU time until its first job has ended.
    """
    return CACHE / f"spark-{version('pyspark')}-java-{java.version(java.find())}.jsa"


def make_archive() -> None:
    """Run a small Spark; its Java writes the archive when it ends.

    Where that fails, each Spark only starts more slowly.
    """
    wanted = archive()
    with making(wanted), tempfile.TemporaryDirectory(dir=CACHE) as folder:
        if wanted.exists():
            return
        made = Path(folder, wanted.name)
        options = (*FEW_ROWS, f'"-XX:ArchiveClassesAtExit={made}"', "-Xlog:cds*=off")
        env = environment(**{OPTIONS: " ".join(options)})
        done = run_python(RUN, Path(folder, "ids"), env=env, seconds=SECONDS)
        if done.code == 0 and made.exists():
            made.rename(wanted)
