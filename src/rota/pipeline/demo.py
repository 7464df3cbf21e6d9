"""The demo's input: a simulated day, written to disk in the formats of Kafka's brokers.

The pipeline reads it like any other input: a journal that the embedded broker serves from a real
log folder, a broker's log, and samples of log ends (the topics have no records whose ends could be
looked up). No other part of the pipeline depends on the simulation.
"""

from __future__ import annotations

import fnmatch
import json
import secrets
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from urllib.parse import urlsplit

from rota.broker.storage.disk import RealDisk
from rota.broker.storage.log import KeyValue, Log
from rota.engine.coordinator.coordinator import DEFAULT_JOURNAL_PARTITIONS
from rota.engine.formats import journal
from rota.engine.model.config import TopicConfig
from rota.engine.model.text import suggest_or_list_names
from rota.engine.simulator.day import (
    DAY,
    GROUP_PLANS,
    GroupDay,
    GroupPlan,
    broker_of_partition,
    sample_offsets,
    simulate_day,
)
from rota.engine.simulator.seeded_random import mix_numbers
from rota.engine.simulator.trace import SimulatedLogLine
from rota.errors import InputError
from rota.pipeline.cluster import JOURNAL_TOPIC, LiveCluster

START_MS = 1_767_571_200_000  # monday, 2026-01-05, 00:00 UTC: the demo is always the same
SEGMENT_BYTES = 512 * 1024
JOURNAL_CONFIG = TopicConfig(cleanup_policy="compact")

#: Settings of a broker that neither expires offsets nor compacts the journal.
READ_ONLY_BROKER = {
    "offsets.retention.check.interval.ms": str(2**62),
    "log.cleaner.backoff.ms": str(2**62),
}

LOOPBACK = "127.0.0.1"
DEMO_USER = "demo"
KAFKA_LOGGER = "org.apache.kafka.coordinator.group.GroupMetadataManager"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoDay:
    segments: Path  # folder that contains the ``__consumer_offsets-N`` folders
    server_log: Path  # lines about groups in log4j's format; times are UTC
    ends: Path  # JSON lines with ``t``, ``topic``, ``partition``, ``beginning`` and ``end``
    start_ms: int
    end_ms: int
    groups: int
    records: int


def check_demo_groups(globs: Sequence[str]) -> None:
    """Raises InputError if no group of the day matches."""
    names = [plan.group for plan in GROUP_PLANS]
    if globs and not any(fnmatch.filter(names, glob) for glob in globs):
        near = suggest_or_list_names(globs, names)
        raise InputError(f"--group {' '.join(globs)}: the demo has no such group{near}")


def write_day(
    folder: Path,
    *,
    seed: int = 0,
    start_ms: int = START_MS,
    plans: Sequence[GroupPlan] = GROUP_PLANS,
    progress: Callable[[float], None] = lambda _: None,
) -> DemoDay:
    """Simulates the day from a midnight on, and writes its files to a new folder."""
    segments, server_log = folder / "kafka-logs", folder / "server.log"
    samples = folder / "ends.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    records = _JournalWriter()
    lines: list[tuple[int, str]] = []
    for number, group in enumerate(simulate_day(seed=seed, start=start_ms, plans=plans), start=1):
        records.add_group(group)
        lines += [(line.at, _format_log_line(line, group.partition)) for line in group.log]
        progress(0.95 * number / len(plans))
    count = records.write(segments, seed)
    lines.sort(key=itemgetter(0))
    server_log.write_text("".join(line for _, line in lines), encoding="utf-8")
    names = ("t", "topic", "partition", "beginning", "end")
    with samples.open("w", encoding="utf-8") as file:
        for sample in sample_offsets(seed=seed, start=start_ms):
            file.write(json.dumps(dict(zip(names, sample, strict=True))) + "\n")
    progress(1.0)
    return DemoDay(
        segments=segments,
        server_log=server_log,
        ends=samples,
        start_ms=start_ms,
        end_ms=start_ms + DAY,
        groups=len(plans),
        records=count,
    )


@contextmanager
def serve_day(day: DemoDay, master: str = "local") -> Iterator[LiveCluster]:
    """Serves the day's journal; to Spark on other machines with a random password."""
    # tasks of Spark import this package, and must not load a broker
    from rota.broker.embedded import Broker  # noqa: PLC0415

    host = _host_for_master(master)
    password = secrets.token_hex(16)
    users = None if host == LOOPBACK else {DEMO_USER: password}
    with Broker(
        day.segments, host=host, users=users, config=READ_ONLY_BROKER, adopt=True
    ) as broker:
        broker.clock.freeze()  # otherwise the sessions of its members expire
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        if users is not None:
            login = "org.apache.kafka.common.security.scram.ScramLoginModule"
            settings |= {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": f'{login} required username="{DEMO_USER}" '
                f'password="{password}";',
            }
        yield LiveCluster(settings=settings)


def _host_for_master(master: str) -> str:
    address = urlsplit(master)
    if not address.hostname:
        return LOOPBACK
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address.hostname, address.port or 1))  # UDP: sends nothing
        except OSError:
            return LOOPBACK
        return str(probe.getsockname()[0])


class _JournalWriter:
    def __init__(self) -> None:
        self._batches: dict[int, list[tuple[int, list[KeyValue]]]] = defaultdict(list)

    def add_group(self, group: GroupDay) -> None:
        own = self._batches[group.partition]
        for at, entries in groupby(group.journal, key=itemgetter(0)):
            own.append((at, [journal.encode_entry(entry) for _, entry in entries]))

    def write(self, folder: Path, seed: int) -> int:
        topic_id = mix_numbers(seed, 1).to_bytes(8, "big") + mix_numbers(seed, 2).to_bytes(8, "big")
        count = 0
        folder.mkdir(parents=True)
        disk = RealDisk(folder)
        for partition in range(DEFAULT_JOURNAL_PARTITIONS):
            name = f"{JOURNAL_TOPIC}-{partition}"
            log = Log.create(disk, name, topic_id, JOURNAL_CONFIG, segment_bytes=SEGMENT_BYTES)
            with log:
                for at, pairs in sorted(self._batches.get(partition, ()), key=itemgetter(0)):
                    log.append_records(pairs, at)
                count += log.log_end_offset
        disk.close()
        return count


def _format_log_line(line: SimulatedLogLine, partition: int) -> str:
    time = datetime.fromtimestamp(line.at // 1000, UTC)
    return (
        f"[{time:%Y-%m-%d %H:%M:%S},{line.at % 1000:03}] INFO [GroupCoordinator id="
        f"{broker_of_partition(partition)} topic={JOURNAL_TOPIC} partition={partition}] "
        f"{line.text} ({KAFKA_LOGGER})\n"
    )
