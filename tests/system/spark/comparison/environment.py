"""A PySpark of the version that Spark's own Kafka source exists for, and that source's jars.

Made once: the Python environment in ``.clients/``, the jars in ``.java/``. Where they cannot be
had, :class:`~tests.support.missing_tool.Unavailable` says why.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

from tests.support.clients.driver_process import Driver
from tests.support.java.launcher import (
    CACHE,
    HERE,
    fetch_jars,
    lock_folder,
    require_commands,
    run_fetch_command,
)
from tests.support.missing_tool import cache_outcome
from tests.support.paths import ROOT

PYSPARK = "4.2.0"
LIBS = CACHE / "spark-kafka"
FOLDER = ROOT / ".clients" / f"pyspark-{PYSPARK}-{sys.version_info[0]}.{sys.version_info[1]}"
WORKER = "tests.system.spark.comparison.worker"


def requirements() -> list[str]:
    """What ``rota[spark]`` needs, with the one PySpark of these tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    others = [each for each in wanted if re.split(r"[^\w-]", each)[0] != "pyspark"]
    return [f"pyspark=={PYSPARK}", *others]


@cache_outcome
def install_python() -> Path:
    """The Python that has all of it, and nothing else."""
    program = FOLDER / "bin" / "python"
    stamp = FOLDER / "needed.txt"
    wanted = "".join(f"{each}\n" for each in requirements())
    with lock_folder(FOLDER):
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
            shutil.rmtree(FOLDER, ignore_errors=True)
            make = (sys.executable, "-m", "venv", FOLDER)
            run_fetch_command(*make, what="a virtual environment", env=os.environ)
            install = (program, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            run_fetch_command(*install, *requirements(), what=f"PySpark {PYSPARK}", env=os.environ)
            stamp.write_text(wanted, encoding="utf-8")
    return program


@cache_outcome
def fetch_connector_jars() -> list[Path]:
    """Of Spark's own source."""
    require_commands("java", "mvn")
    fetch_jars(HERE / "spark-kafka-pom.xml", LIBS)
    return sorted(LIBS.glob("*.jar"))


def start_worker() -> Driver:
    """A process with a Spark that knows both sources."""
    own = ",".join(map(str, fetch_connector_jars()))
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return Driver([str(install_python()), "-m", WORKER, own], path)
