"""The peers of Rota: programs that read a case file and print what each step took."""

from __future__ import annotations

import functools
import importlib.metadata
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests.support import kafka as broker
from tests.support.java import launcher
from tests.support.missing_tool import Unavailable
from tests.system.spark.comparison.environment import PYSPARK

from bench.measure import Measurement

HERE = Path(__file__).parent
ROOT = HERE.parent
JAVA, FRANZ_GO, KAFKA_PYTHON, KAFKA = "Java", "franz-go", "kafka-python", "Kafka"
AIOKAFKA, CONFLUENT = "aiokafka", "confluent-kafka"
CONFLUENT_ASYNC = "confluent-kafka, asyncio"
SPARK, SPARK_TUNED = "Spark's own", "Spark's own, tuned"
HEAP = "4g"
#: Seconds after which a peer that does not stop by itself is ended.
HANGS = 3_600


@dataclass(frozen=True, slots=True)
class Peer:
    """A program that plays cases, and what it is."""

    name: str
    version: str
    command: tuple[str, ...]

    def run_case(
        self, file: Path, work: str, *, limit: float, budget: float
    ) -> dict[str, Measurement]:
        """What each timed step took."""
        done = subprocess.run(
            [*self.command, str(file), work, str(limit), str(budget)],
            capture_output=True,
            text=True,
            timeout=HANGS,
            check=False,
            cwd=ROOT,
        )
        taken = parse_output(done.stdout)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise Unavailable(f"{self.name} failed: {lines[0]}")
        return taken


def parse_output(printed: str) -> dict[str, Measurement]:
    """The lines that a peer prints: ``run``, ``over`` and ``result``, each with its step."""
    runs: dict[str, list[float]] = {}
    taken: dict[str, Measurement] = {}
    for kind, step, *words in map(str.split, printed.splitlines()):
        if kind == "run":
            runs.setdefault(step, []).append(float(words[0]))
        elif kind == "over":
            taken[step] = Measurement(seconds=float(words[0]), over=True)
        elif kind == "result":
            taken[step] = Measurement(
                seconds=min(runs[step]),
                loads=(int(words[0]), int(words[1])),
                moved=None if words[2] == "-" else int(words[2]),
            )
    return taken


def java_peer() -> Peer:
    """Kafka's own classes."""
    command = launcher.java_command("AssignBench", heap=HEAP)
    (jar,) = launcher.LIBS.glob("kafka-clients-*.jar")
    return Peer(JAVA, jar.stem.replace("clients-", "clients "), tuple(command))


def go_command() -> str:
    """Go's own command: on the path, or where Go's installation guide puts it."""
    found = shutil.which("go")
    if found is None:
        raise Unavailable("no go on the path")
    return found


def franz_go_peer() -> Peer:
    """franz-go, built on the spot into ``.go/``."""
    program = ROOT / ".go" / "franzbench"
    program.parent.mkdir(exist_ok=True)
    done = subprocess.run(
        [go_command(), "build", "-o", str(program), "."],
        cwd=HERE / "go",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Unavailable(f"franz-go could not be built: {done.stderr.strip()[-300:]}")
    found = re.search(r"twmb/franz-go v(\S+)", (HERE / "go" / "go.mod").read_text())
    return Peer(FRANZ_GO, f"franz-go {found[1] if found else '?'}", (str(program),))


def kafka_python_peer() -> Peer:
    """kafka-python, in a process of its own so that it can be stopped."""
    try:
        version = importlib.metadata.version("kafka-python")
    except importlib.metadata.PackageNotFoundError as error:
        raise Unavailable("kafka-python is not installed") from error
    return Peer(
        KAFKA_PYTHON, f"kafka-python {version}", (sys.executable, "-m", "bench.kafka_python")
    )


def client_peer(name: str, library: str) -> Peer:
    """A client of Python's; :mod:`bench.consuming` runs it."""
    try:
        return Peer(name, f"{library} {importlib.metadata.version(library)}", ())
    except importlib.metadata.PackageNotFoundError as error:
        raise Unavailable(f"{library} is not installed") from error


def kafka_peer() -> Peer:
    """A real broker; :mod:`bench.broker_process` runs it."""
    broker.install_kafka()
    (jar,) = broker.LIBS.glob("kafka_2*.jar")
    return Peer(KAFKA, f"broker {jar.stem}", ())


def spark_peer(name: str) -> Peer:
    """Spark's own Kafka source; it runs in Spark, not as a program."""
    version = f"spark-sql-kafka-0-10 {PYSPARK}"
    return Peer(name, version, ())


PEERS: Mapping[str, Callable[[], Peer]] = MappingProxyType(
    {
        JAVA: functools.cache(java_peer),
        FRANZ_GO: functools.cache(franz_go_peer),
        KAFKA_PYTHON: functools.cache(kafka_python_peer),
        AIOKAFKA: functools.partial(client_peer, AIOKAFKA, "aiokafka"),
        CONFLUENT: functools.partial(client_peer, CONFLUENT, "confluent-kafka"),
        CONFLUENT_ASYNC: functools.partial(client_peer, CONFLUENT_ASYNC, "confluent-kafka"),
        KAFKA: functools.cache(kafka_peer),
        SPARK: functools.partial(spark_peer, SPARK),
        SPARK_TUNED: functools.partial(spark_peer, SPARK_TUNED),
    }
)
