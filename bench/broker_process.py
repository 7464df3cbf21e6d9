"""The brokers that are measured: Rota's as a process of its own, and a real Kafka."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support import kafka as java_broker
from tests.support.missing_tool import Unavailable

from bench.peer import KAFKA
from bench.run import Run

ROTA = "Rota"
READY = re.compile(r"127\.0\.0\.1:(\d+)")
#: Seconds that a broker may take to start.
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker process that is measured."""

    name: str
    port: int
    #: Of the process that is the broker.
    pid: int

    @property
    def address(self) -> str:
        """For clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def resident(self) -> int:
        """Its memory, in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"^VmRSS:\s+(\d+)", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def create(self, topic: str, partitions: int = 1) -> None:
        """Makes a topic, and waits until it is there."""
        admin = AdminClient({"bootstrap.servers": self.address})
        for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            made.result()


def process_environment() -> dict[str, str]:
    """As a user has it, whose Python keeps the modules that it has compiled."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


@contextlib.contextmanager
def start_rota(folder: Path) -> Iterator[RunningBroker]:
    """``rota broker`` on a folder; its last words are thrown away, for nobody reads them."""
    command = [sys.executable, "-m", "rota", "broker", "--data-dir", str(folder), "--port", "0"]
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            command, stdout=printed, stderr=subprocess.STDOUT, env=process_environment()
        )
        try:
            yield RunningBroker(ROTA, _port(process, printed.fileno()), process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _port(process: subprocess.Popen[bytes], printed: int) -> int:
    end = time.monotonic() + PATIENCE
    while True:
        text = os.pread(printed, 10_000, 0).decode()
        if found := READY.search(text):
            return int(found[1])
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            raise RuntimeError(f"rota broker did not start: {text}")
        time.sleep(0.002)


@contextlib.contextmanager
def start_kafka(folder: Path) -> Iterator[RunningBroker]:
    """A real Kafka as its own start script runs it, but for what a single node needs."""
    settings = {
        "offsets.topic.num.partitions": "50",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.dedupe.buffer.size": "134217728",
        "num.network.threads": "3",
        "num.io.threads": "8",
    }
    folder.mkdir(parents=True, exist_ok=True)
    broker = java_broker.KafkaBroker(folder, settings, flags=java_broker.KAFKAS)
    try:
        yield RunningBroker(KAFKA, broker.port, broker.java_pid)
    finally:
        broker.stop()


@contextlib.contextmanager
def start_both(bench: Run) -> Iterator[list[RunningBroker]]:
    """Rota and, where it can run, Kafka; prints once why Kafka cannot run."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(start_rota(bench.folder / "rota"))]
        try:
            found.append(stack.enter_context(start_kafka(bench.folder / "kafka")))
        except Unavailable as error:
            bench.missing[KAFKA] = str(error)
            bench.print_progress(f"!! {KAFKA} is LEFT OUT: {error}")
        yield found
