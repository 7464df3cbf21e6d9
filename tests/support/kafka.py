"""A real Apache Kafka broker of one node, out of its jars from Maven Central."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

from rota.broker.storage.catalog import read_catalog_copies
from rota.broker.storage.disk import RealDisk
from rota.engine.formats.primitive import uuid_to_text
from tests.support.java.launcher import CACHE, HERE, fetch_jars, lock_folder, require_commands
from tests.support.missing_tool import cache_outcome
from tests.support.process import run_command

LIBS = CACHE / "broker"
#: The broker's classes as the JVM keeps them in memory: a start with them costs half as much.
ARCHIVE = CACHE / "broker.jsa"
START_TIMEOUT = 300
PORTS = range(15_000, 32_000)
STARTED = "Kafka Server started"
STOPPED = ".kafka_cleanshutdown"

# The broker ends with this process, however that ends: the watcher's pipe is closed then.
WATCHED = """
exec 3<&0
"$@" </dev/null &
broker=$!
( cat <&3 >/dev/null; kill -9 $broker 2>/dev/null ) &
wait $broker
"""

#: The first compiler alone, for a quick start.
QUICK = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
#: What Kafka's own start script gives a broker.
KAFKAS = (
    *("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Djava.awt.headless=true",
)

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "auto.create.topics.enable": "false",
    "broker.session.timeout.ms": "3000",  # else one that was killed is kept out for long
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.dedupe.buffer.size": "8388608",  # the default, 128 MB, would rule the heap
    "num.network.threads": "2",
    "num.io.threads": "4",
}


class KafkaBroker:
    """A broker that runs until it is stopped, or until this process ends."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        *,
        flags: Sequence[str] = QUICK,
        taken: Path | None = None,
        new: bool = False,
    ) -> None:
        """Formats a new folder, and starts.

        :param flags: of the JVM
        :param taken: a data folder of Rota's; the broker serves a copy of it
        :param new: its jars were just fetched, and their classes are not archived yet
        """
        if not new:
            install_kafka()
        self._flags = flags
        self._folder = folder
        self._log = folder / "server.log"
        self.port, controller = free_ports(2)
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}"
        own = {
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(folder / "data"),
        }
        if taken is not None:
            own["metadata.log.dir"] = str(folder / "metadata")
        lines = [f"{key}={value}\n" for key, value in {**SETTINGS, **own, **settings}.items()]
        self._config = folder / "server.properties"
        self._config.write_text("".join(lines))
        if taken is None:
            self._format()
        else:
            self._take(taken)
        self._process = self._start()
        atexit.register(self.stop)
        self._wait()

    def _format(self, cluster: str | None = None) -> None:
        # "A" in front: an id that starts with a minus would be taken for an option
        cluster = cluster or ("A" + urlsafe_b64encode(uuid.uuid4().bytes).decode())[:22]
        command = kafka_command("kafka.tools.StorageTool", "format", "--cluster-id", cluster)
        command += ["--ignore-formatted", "--config", str(self._config)]
        done = run_command(*command, seconds=START_TIMEOUT)
        if done.code != 0:
            raise RuntimeError(f"the log folder was not formatted: {done.out}{done.err}")

    def _take(self, data: Path) -> None:
        """Copies a folder, and has the broker begin with the topics of its catalogue."""
        shutil.copytree(data, self._folder / "data")
        catalog = read_catalog_copies(RealDisk(data)).content
        assert catalog is not None
        self._format(catalog.identity.cluster_id)
        topics = [
            (
                each.name,
                uuid_to_text(each.id),
                str(each.partitions),
                ";".join(f"{key}={value}" for key, value in each.overrides.items()),
            )
            for each in catalog.topics.values()
        ]
        program = HERE / "topics" / "BootstrapTopics.java"
        arguments = [str(self._folder / "metadata"), catalog.identity.directory_id]
        command = kafka_command(
            str(program), *arguments, *(text for topic in topics for text in topic)
        )
        run_command(*command, seconds=START_TIMEOUT).checked()

    def _start(self) -> subprocess.Popen[bytes]:
        run = kafka_command("kafka.Kafka", str(self._config), flags=self._flags)
        command = ["sh", "-c", WATCHED, "sh", *run]
        with self._log.open("wb") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait(self) -> None:
        end = time.monotonic() + START_TIMEOUT
        while STARTED not in self._log.read_text(errors="replace"):
            if self._process.poll() is not None or time.monotonic() > end:
                tail = self._log.read_text(errors="replace")[-2_000:]
                self.stop()
                raise RuntimeError(f"the broker did not start: {tail}")
            time.sleep(0.05)

    @property
    def java_pid(self) -> int:
        """The broker's own process: the watcher's first child."""
        watcher = self._process.pid
        listed = Path(f"/proc/{watcher}/task/{watcher}/children").read_text(encoding="ascii")
        return int(listed.split()[0])

    def restart(self) -> None:
        """End the broker without a word, and start it again on what it has written."""
        self.kill()
        self._process = self._start()
        self._wait()

    def shut_down(self) -> None:
        """End the broker in good order, and wait until it has ended: its folder is whole."""
        os.kill(self.java_pid, signal.SIGTERM)
        self._process.wait(START_TIMEOUT)
        if not (self._folder / "data" / STOPPED).exists():
            raise RuntimeError("the broker did not stop in good order")

    def stop(self) -> None:
        """End the broker at once; its data is of no more use."""
        self.kill()
        shutil.rmtree(self._folder / "data", ignore_errors=True)
        atexit.unregister(self.stop)

    def kill(self) -> None:
        """End the broker without a word."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


@cache_outcome
def install_kafka() -> None:
    """The broker's jars and their archive of classes, made where they are missing."""
    require_commands("java", "mvn", "sh")
    fetch_jars(HERE / "broker-pom.xml", LIBS)
    with lock_folder(ARCHIVE):
        if not ARCHIVE.exists() or ARCHIVE.stat().st_mtime < (LIBS / "pom.xml").stat().st_mtime:
            with tempfile.TemporaryDirectory() as folder:
                _archive(Path(folder))


def _archive(folder: Path) -> None:
    """Class data sharing: run a broker once, which writes the classes it used when it ends."""
    made = folder / ARCHIVE.name
    broker = KafkaBroker(folder, {}, flags=(*QUICK, f"-XX:ArchiveClassesAtExit={made}"), new=True)
    # Without an archive brokers only start more slowly.
    with contextlib.suppress(OSError, RuntimeError, subprocess.TimeoutExpired):
        broker.shut_down()
        shutil.move(made, ARCHIVE)
    broker.stop()


def kafka_command(main: str, *args: str, flags: Sequence[str] = QUICK) -> list[str]:
    """The command line of one of Kafka's programs."""
    log = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
    shared = [f"-XX:SharedArchiveFile={ARCHIVE}", "-Xlog:cds*=off"] if ARCHIVE.exists() else []
    if any("ArchiveClassesAtExit" in flag for flag in flags):
        shared = []
    return ["java", *flags, *shared, log, "-cp", f"{LIBS}/*", main, *args]


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now.

    They are below those that the system gives to connections: until the broker listens, seconds
    later, a connection of another test would take one of those now and then.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("127.0.0.1", port))
            found.append(port)
    return found
