"""Plays ``story`` with real clients on a real broker, and writes the fixture.

    python -m tests.system.kafka.recording FOLDER

It takes three and a half minutes. What was done is in ``expected.jsonl``, with the causes of the
rebalances that it led to; the broker's own lines are in ``coordinator.log.gz``, and the folders of
``__consumer_offsets`` in ``segments.tar.gz``.
"""

# mypy: disable-error-code="no-untyped-call"
# (kafka-python has no types)
from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewPartitions, NewTopic  # type: ignore[attr-defined]

from tests.support.java import launcher
from tests.support.kafka import KafkaBroker
from tests.support.recording_scenario import (
    END,
    GROUPS,
    STORY,
    TOPICS,
    TRAFFIC,
    ActionKind,
    ScriptedAction,
)

SETTINGS = {"offsets.topic.num.partitions": "10", "group.initial.rebalance.delay.ms": "3000"}
PRODUCE_EVERY = 0.1
COORDINATOR = re.compile(rb"\(org\.apache\.kafka\.coordinator\.group\.[\w.]+\)$")


class ClientProcesses:
    """All client processes."""

    def __init__(self, port: int) -> None:
        self.told: list[str] = []
        self._port = port
        self._fleet = self._java()
        #: Members that have a process to themselves.
        self._own: dict[str, subprocess.Popen[str]] = {}

    def start(self, group: str, name: str) -> None:
        plan = GROUPS[group]
        settings = {
            "bootstrap.servers": f"127.0.0.1:{self._port}",
            "group.id": group,
            **plan.settings,
        }
        if plan.static:
            settings["group.instance.id"] = name
        pairs = [f"{key}={value}" for key, value in settings.items()]
        if plan.library != "java":
            command = [
                sys.executable,
                "-m",
                "tests.system.kafka.recording.member",
                plan.library,
                name,
            ]
            self._own[name] = self._run([*command, *pairs])
        elif name in plan.alone:
            self._own[name] = self._java()
            send_command(self._own[name], "start", name, *pairs)
        else:
            send_command(self._fleet, "start", name, *pairs)

    def order(self, group: str, name: str, *words: str) -> None:
        if GROUPS[group].library != "java":
            send_command(self._own[name], *words)
        else:
            send_command(self._own.get(name, self._fleet), words[0], name, *words[1:])

    def kill(self, name: str) -> None:
        self._own.pop(name).kill()

    def freeze(self, name: str, seconds: float) -> None:
        process = self._own[name]
        process.send_signal(signal.SIGSTOP)
        threading.Timer(seconds, process.send_signal, (signal.SIGCONT,)).start()

    def end(self) -> None:
        for process in (self._fleet, *self._own.values()):
            process.kill()

    def _java(self) -> subprocess.Popen[str]:
        return self._run(launcher.java_command("GroupFleet", heap="128m"))

    def _run(self, command: list[str]) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return process

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.told.append(line)


def send_command(process: subprocess.Popen[str], *words: str) -> None:
    assert process.stdin is not None
    process.stdin.write(" ".join(words) + "\n")
    process.stdin.flush()


@contextlib.contextmanager
def keep_producing(bootstrap: str) -> Iterator[None]:
    """Records keep coming, but for the topics that stay still."""
    over = threading.Event()

    def produce() -> None:
        producer = KafkaProducer(bootstrap_servers=bootstrap)
        while not over.wait(PRODUCE_EVERY):
            for topic in TRAFFIC:
                producer.send(topic, b"record")
        producer.close()

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def run_scenario(port: int) -> tuple[list[dict[str, object]], list[str]]:
    """Runs the scenario's actions at their times."""
    bootstrap = f"127.0.0.1:{port}"
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()])
    drivers = ClientProcesses(port)
    expected: list[dict[str, object]] = []
    try:
        with keep_producing(bootstrap):
            began = time.time()
            for action in sorted(STORY, key=lambda action: action.at):
                time.sleep(max(began + action.at - time.time(), 0))
                expected.append(action_record(action))
                run_action(action, drivers, admin)
            time.sleep(max(began + END - time.time(), 0))
    finally:
        drivers.end()
    expected.append({"t": int(time.time() * 1000), "group": None, "event": "end"})
    return expected, drivers.told


def action_record(action: ScriptedAction) -> dict[str, object]:
    return {
        "t": int(time.time() * 1000),
        "group": action.group,
        "event": action.do.value,
        "who": list(action.who),
        "causes": [cause.value for cause in action.causes],
    }


def run_action(action: ScriptedAction, drivers: ClientProcesses, admin: KafkaAdminClient) -> None:
    for name in action.who:
        run_action_on(name, action, drivers)
    if action.do is ActionKind.GROW:
        topic, _, count = action.what.partition("=")
        admin.create_partitions({topic: NewPartitions(int(count))})
    elif action.do is ActionKind.MAKE:
        admin.create_topics([NewTopic(action.what, 2, 1)])


def run_action_on(name: str, action: ScriptedAction, drivers: ClientProcesses) -> None:
    match action.do:
        case ActionKind.START:
            drivers.start(action.group, name)
        case ActionKind.KILL:
            drivers.kill(name)
        case ActionKind.FREEZE:
            drivers.freeze(name, float(action.what))
        case _:
            drivers.order(
                action.group, name, action.do.value, *([action.what] if action.what else [])
            )


def pack_journal(data: Path) -> bytes:
    """The folders of the journal that hold anything, without a name of this machine."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for folder in sorted(data.glob("__consumer_offsets-*")):
            if not any(path.stat().st_size for path in folder.glob("*.log")):
                continue
            for path in sorted(folder.iterdir()):
                entry = tarfile.TarInfo(f"{folder.name}/{path.name}")
                entry.size = path.stat().st_size
                archive.addfile(entry, io.BytesIO(path.read_bytes()))
    return out.getvalue()


def main() -> None:
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        broker = KafkaBroker(folder, SETTINGS)
        try:
            expected, events = run_scenario(broker.port)
            broker.shut_down()
            kept = [
                line
                for line in (folder / "server.log").read_bytes().splitlines(keepends=True)
                if COORDINATOR.search(line.rstrip())
            ]
            (target / "segments.tar.gz").write_bytes(pack_journal(folder / "data"))
        finally:
            broker.stop()
    with gzip.open(target / "coordinator.log.gz", "wb") as log:
        log.writelines(kept)
    with gzip.open(target / "truth.jsonl.gz", "wt") as lines:
        lines.writelines(json.dumps(one) + "\n" for one in expected)
    with gzip.open(target / "clients.txt.gz", "wt") as lines:
        lines.writelines(sorted(events))


if __name__ == "__main__":
    main()
