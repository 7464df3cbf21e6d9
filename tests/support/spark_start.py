"""How tests start Spark: with an archive of its Java classes, and set up for a few rows."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from rota.errors import Unreachable
from rota.pipeline import session
from tests.support.java.launcher import CACHE, lock_folder
from tests.support.process import environment, run_command, run_python

# Java's second compiler, its collectors for large heaps, and code that Spark generates and compiles
# for each query cost more than they save in tables of a few rows.
FEW_ROWS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dspark.sql.codegen.wholeStage=false",
    "-Dspark.sql.codegen.factoryMode=NO_CODEGEN",
    "-Dspark.sql.shuffle.partitions=2",
    "-Dspark.ui.enabled=false",
)

#: How long it may take to make the archive.
SECONDS = 600.0

RUN = """
import sys
from pyspark import SparkContext
from rota.pipeline.session import open_session

with open_session("local[2]") as spark:
    ids = spark.range(100).mapInArrow(lambda batches: batches, "id long")
    ids.write.parquet(sys.argv[1])
    spark.read.parquet(sys.argv[1]).groupBy("id").count().collect()
started = SparkContext._gateway.proc
SparkContext._gateway.shutdown()
started.stdin.close()  # its Java ends then, and writes the archive
sys.exit(started.wait())
"""


def spark_variables(*options: str) -> dict[str, str]:
    """The environment of a process that starts Spark with these options for its Java.

    Its Java uses the archive if there is one. A ``SPARK_CONF_DIR`` of the machine is left out: its
    settings are not those that tests expect, and Java refuses the archive when a folder with files
    is on its class path.
    """
    found = archive()
    if found is not None and found.exists() and found.stat().st_size > 0:
        options = (*options, f'"-XX:SharedArchiveFile={found}"', "-Xlog:cds*=off")
    return {"SPARK_SUBMIT_OPTS": " ".join(options), "SPARK_CONF_DIR": ""}


def archive() -> Path | None:
    """The file with the classes that Spark uses, as Java keeps them in memory (CDS).

    With it, the smallest ``rota run`` takes two thirds of the CPU time. It is for one Java and for
    one folder of jars: with others Java ignores it.
    """
    try:
        said = run_command(session.find_java(), "-version").err
    except Unreachable:
        return None
    spark = find_spec("pyspark")
    assert spark is not None, "tests of Spark are skipped without pyspark"
    jars = Path(str(spark.origin)).parent / "jars"
    made_for = f"{said} {jars} {jars.stat().st_mtime_ns}"
    return CACHE / f"spark-{sha256(made_for.encode()).hexdigest()[:12]}.jsa"


def make_archive() -> None:
    """Run a small Spark; its Java writes the archive when it ends.

    Where no archive can be made (the Java from PyPI cannot), the file stays empty: Sparks start
    without it, and nobody tries again.
    """
    wanted = archive()
    if wanted is None:
        return
    with lock_folder(wanted):
        if wanted.exists():
            return
        for old in (*CACHE.glob("spark-*.jsa"), *CACHE.glob("spark-*.part")):
            old.unlink()
        made = wanted.with_suffix(".part")
        variables = spark_variables(*FEW_ROWS, f'"-XX:ArchiveClassesAtExit={made}"')
        with tempfile.TemporaryDirectory() as folder, suppress(subprocess.TimeoutExpired):
            run_python(RUN, Path(folder, "ids"), env=environment(**variables), seconds=SECONDS)
        made.touch()
        made.rename(wanted)
