"""The clients of the matrix: how each is fetched and started, and what it has."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import kafka as java_broker
from tests.support.clients.driver_process import Driver, News
from tests.support.java.launcher import (
    CACHE,
    HERE,
    compile_java,
    fetch_jars,
    lock_folder,
    require_commands,
    run_fetch_command,
)
from tests.support.missing_tool import Unavailable, cache_outcome
from tests.support.paths import ROOT
from tests.support.process import run_command

OLD_CONFLUENT = "1.9.2"
OLD_PYTHONS = ("3.10", "3.9")
FETCHED = ROOT / ".clients"
CLIENT_SOURCES = HERE / "client"


@dataclass(frozen=True, slots=True, eq=False)
class Client:
    """A client library, or a version of it that behaves differently."""

    name: str
    #: Starts a driver; :class:`Unavailable` says why it cannot.
    start: Callable[[], Driver]
    strategies: tuple[str, ...]
    #: Cases for which it has nothing to call, and why.
    lacks: dict[str, str] = field(default_factory=dict)
    #: A static member that led its group asks for a rebalance when it is back.
    leader_rejoins: bool = False
    #: The version of the command-line tools that come with it.
    tools: str | None = None


def python_driver(module: str, news: News | None = None, *, closes: bool = False) -> Driver:
    """A driver in the Python of these tests."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return Driver([sys.executable, "-m", module], path, news, closes=closes)


def _python(module: str) -> Driver:
    return python_driver(f"tests.support.clients.driver.{module}")


@cache_outcome
def old_python() -> str:
    """A Python that the old wheel is for."""
    pyenv = shutil.which("pyenv")
    root = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    for version in OLD_PYTHONS:
        places = [shutil.which(f"python{version}")]
        if pyenv is not None:
            places += map(str, sorted(Path(root).glob(f"versions/{version}.*/bin/python")))
        for place in places:
            if place is None:
                continue
            if run_command(place, "-c", "", env=os.environ).code == 0:
                return place
    raise Unavailable(
        f"confluent-kafka {OLD_CONFLUENT} has wheels up to Python {OLD_PYTHONS[0]}: none found"
    )


@cache_outcome
def old_confluent() -> Path:
    """confluent-kafka with librdkafka 1.9, in a folder of its own."""
    python = old_python()
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    (version,) = run_command(python, "-c", asked, env=os.environ).checked().lines
    folder = FETCHED / f"confluent-kafka-{OLD_CONFLUENT}-{version}"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--only-binary", ":all:", "--python-version", version),
            *("--target", str(partial), f"confluent-kafka=={OLD_CONFLUENT}"),
        ]
        run_fetch_command(*command, what=f"confluent-kafka {OLD_CONFLUENT}", env=os.environ)
        partial.rename(folder)
    return folder


def _old_confluent() -> Driver:
    path = os.pathsep.join([str(old_confluent()), str(ROOT)])
    return Driver([old_python(), "-m", "tests.support.clients.driver.confluent"], path)


@functools.cache
def java_classes(version: str) -> tuple[Path, Path]:
    """The jars of a Kafka, and the driver compiled against them."""
    require_commands("java", "javac", "mvn")
    if version == "4.3":
        libs = java_broker.LIBS
        java_broker.install_kafka()
    else:
        libs = CACHE / f"kafka-{version}"
        fetch_jars(HERE / f"kafka-{version}-pom.xml", libs)
    classes = CACHE / f"client-{version}"
    compile_java(CLIENT_SOURCES, libs, classes)
    return libs, classes


def java_driver(version: str, news: News | None = None) -> Driver:
    """A driver of the Java client of this version."""
    libs, classes = java_classes(version)
    flags = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    path = os.pathsep.join([str(classes), f"{libs}/*"])
    return Driver(["java", *flags, "-cp", path, "ClientDriver"], news=news)


@cache_outcome
def _franz_program() -> Path:
    go = shutil.which("go")
    if go is None:
        raise Unavailable("no go on the path")
    program = ROOT / ".go" / "franzdriver"
    program.parent.mkdir(exist_ok=True)
    source = Path(__file__).parent / "driver" / "go"
    with lock_folder(program):
        run_fetch_command(go, "build", "-o", program, ".", what="franz-go", folder=source)
    return program


def _franz() -> Driver:
    return Driver([str(_franz_program())])


ALL = ("range", "roundrobin", "sticky", "cooperative-sticky")
NO_CALL = "the library has no method for it"

KAFKA_PYTHON = Client(
    "kafka-python",
    functools.partial(_python, "kafka_python"),
    ALL,
    {"a header without a value": "the library refuses to send one"},
)
AIOKAFKA = Client(
    "aiokafka",
    functools.partial(_python, "aiokafka"),
    ("range", "roundrobin", "sticky"),
    {
        "commit, asynchronous": "`commit` is a coroutine; the library has no other commit",
        "delete a group": NO_CALL,
        "alter offsets": NO_CALL,
        "delete offsets": NO_CALL,
    },
)
CONFLUENT = Client(
    "confluent-kafka",
    functools.partial(_python, "confluent"),
    ("range", "roundrobin", "cooperative-sticky"),
    {"delete offsets": NO_CALL},
)
REPEATED_NONCE = (
    "librdkafka before 2.6.1 repeats its nonce (librdkafka#4895); Kafka 4 refuses that too"
)
OLD = Client(
    "confluent-kafka 1.9",
    _old_confluent,
    ("range", "roundrobin", "cooperative-sticky"),
    {
        "delete a group": NO_CALL,
        "list offsets of a group": NO_CALL,
        "alter offsets": NO_CALL,
        "delete offsets": NO_CALL,
        "delete records": NO_CALL,
        "describe the cluster": NO_CALL,
        "offsets of a log": NO_CALL,
        "SASL SCRAM-SHA-256": REPEATED_NONCE,
        "SASL SCRAM-SHA-512": REPEATED_NONCE,
        "SASL SCRAM over TLS": REPEATED_NONCE,
    },
)
JAVA_3 = Client("Java 3.9", functools.partial(java_driver, "3.9"), ALL, tools="3.9")
JAVA_4 = Client("Java 4.3", functools.partial(java_driver, "4.3"), ALL, tools="4.3")
FRANZ = Client("franz-go", _franz, ALL, leader_rejoins=True)

CLIENTS = (KAFKA_PYTHON, AIOKAFKA, CONFLUENT, OLD, JAVA_3, JAVA_4, FRANZ)
