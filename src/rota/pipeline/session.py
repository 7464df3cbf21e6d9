"""One Spark session for a run: on this machine, on a cluster, or over Spark Connect."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import rota
from rota.errors import Unreachable
from rota.pipeline import java

LOCAL = "local[*]"
FOLDER = "rota-spark-"
"""How a session's folder for temporary files begins; the number of its process follows."""
CONNECT = "sc://"
CONNECT_PORT = 15002
PATIENCE = 10.0
"""Seconds to wait for a server to answer the phone."""
HEAP = "2g"
"""Of the one JVM of a local session: shuffles beyond it go to disk."""
CODE = "240m"
"""Room for compiled code, Java's own default with all its compilers. With the quick one alone it
takes 48 MiB, which a session that goes on, as a follower's does, fills: then queries fail."""

SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "32m",
    "spark.sql.parquet.compression.codec": "zstd",
    # else INT96, which only Spark reads well
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""What a session can be told at any time, over Spark Connect too."""

DEBUG = "ROTA_DEBUG"
"""Set it to see Spark's own warnings."""

COMPLAINTS = "complaints.txt"

# without an appender Spark brings its own settings, and without a level of the gateway its own
# level; both are said
_LOGGING = """\
status = error
appender.screen.type = Console
appender.screen.name = screen
appender.screen.target = SYSTEM_ERR
rootLogger.level = warn
rootLogger.appenderRef.screen.ref = screen
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = warn
"""


@contextmanager
def session(master: str = LOCAL, *, large: bool = False) -> Iterator[SparkSession]:
    """A session that ends, with all of its files, when the block does.

    :param large: there is so much to do that Java's slower, better compiler pays; without it a
        small run is half as long

    :raises Unreachable: no Java, or nothing answers at the address
    """
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-"))
    try:
        with _opened(master, folder, large=large) as spark:
            for name, value in SETTINGS.items():
                spark.conf.set(name, value)
            yield spark
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    """Removes what runs that were killed have left behind: their shuffles may be large."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*-*"):
        process = folder.name.removeprefix(FOLDER).partition("-")[0]
        if process.isdecimal() and not _lives(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # somebody else's
    return True


def _opened(master: str, folder: Path, *, large: bool) -> AbstractContextManager[SparkSession]:
    if master.startswith(CONNECT):
        return _connected(master)
    return _started(master, folder, large=large)


@contextmanager
def _connected(address: str) -> Iterator[SparkSession]:
    _reach(address)
    try:
        spark = SparkSession.builder.remote(address).getOrCreate()
        spark.range(1).count()
    except ImportError as error:
        raise Unreachable(
            f"Spark Connect needs more packages: pip install 'rota[connect]' ({error})"
        ) from error
    except PySparkException as error:
        raise Unreachable(f"{address}: Spark Connect does not answer: {_line(error)}") from error
    with tempfile.TemporaryDirectory(prefix="rota-code-") as folder:
        spark.addArtifacts(str(_packed(Path(folder))), pyfile=True)
        try:
            yield spark
        finally:
            with suppress(PySparkException):
                spark.stop()


def _reach(address: str) -> None:
    """Whether anybody is there at all: Spark's client would try for minutes before it says."""
    try:
        place = urlsplit(address)
        where = (place.hostname or "", place.port or CONNECT_PORT)
        socket.create_connection(where, timeout=PATIENCE).close()
    except (OSError, ValueError) as error:
        raise Unreachable(f"{address}: Spark Connect cannot be reached: {error}") from error


@contextmanager
def _started(master: str, folder: Path, *, large: bool) -> Iterator[SparkSession]:
    builder = SparkSession.builder.appName("rota").master(master)
    for name, value in _start_settings(master, folder, large=large).items():
        builder = builder.config(name, value)
    with _environment(folder, local=master.startswith("local")):
        try:
            spark = builder.getOrCreate()
        except (PySparkException, Py4JJavaError) as error:
            complaint = _last_line(folder / COMPLAINTS) or _line(error)
            raise Unreachable(f"Spark did not start on {master}: {complaint}") from error
        try:
            yield spark
        finally:
            spark.stop()


def _start_settings(master: str, folder: Path, *, large: bool) -> dict[str, str]:
    logging = folder / "log4j2.properties"
    logging.write_text(_LOGGING)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # a run's folder is nobody's but the run's until all of it is there
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        # a task's last small write over TCP can wait 40 ms for an answer
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{logging} "
        f"-XX:TieredStopAtLevel={4 if large else 1} -XX:ReservedCodeCacheSize={CODE}",
    }
    if not master.startswith("local"):
        return settings | {"spark.submit.pyFiles": str(_packed(folder))}
    return settings | {
        "spark.driver.memory": HEAP,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    }


@contextmanager
def _environment(folder: Path, *, local: bool) -> Iterator[None]:
    """What Spark's launcher and its Python workers are to find, as long as the session lasts."""
    python = str(Path(rota.__file__).parents[1])
    complaints = None if os.environ.get(DEBUG) else folder / COMPLAINTS
    wanted = {
        "JAVA_HOME": str(java.home(folder / "java", java.find(), complaints)),
        # workers of this machine find Rota where this process does
        "PYTHONPATH": os.pathsep.join(filter(None, (python, os.environ.get("PYTHONPATH")))),
    }
    if local:
        wanted |= {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _packed(folder: Path) -> Path:
    """Rota as a file that Spark brings to workers of other machines."""
    here = Path(rota.__file__).parent
    name = shutil.make_archive(str(folder / "rota"), "zip", here.parent, here.name)
    return Path(name)


def _line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _last_line(file: Path) -> str:
    with suppress(OSError):
        lines = [line.strip() for line in file.read_text(errors="replace").splitlines()]
        # the last that says something: lines of a stack tell where, not what
        said = (line for line in reversed(lines) if line and not line.startswith("at "))
        return next(said, "")
    return ""
