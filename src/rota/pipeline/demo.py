"""The demo's evidence: a simulated day, written to disk as Kafka's brokers would leave it.

The pipeline reads it like any other evidence: a journal that the embedded broker serves from a real
log folder, a broker's log, and samples of log ends (the topics have no records whose ends could be
looked up). Nothing in the pipeline knows that the day was simulated.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from rota.engine.simulator.day import (
    DAY,
    GROUP_PLANS,
    GroupDay,
    GroupPlan,
    OffsetSample,
    broker_of_partition,
    sample_offsets,
    simulate_day,
)
from rota.engine.simulator.seeded_random import mix_numbers
from rota.engine.simulator.trace import SimulatedLogLine
from rota.pipeline.cluster import LiveCluster

JOURNAL_TOPIC = "__consumer_offsets"

#: Monday, 2026-01-05, 00:00 UTC: the demo is the same whenever it is run.
START_MS = 1_767_571_200_000

SEGMENT_BYTES = 512 * 1024

JOURNAL_CONFIG = TopicConfig(cleanup_policy="compact")

#: A broker that changes nothing of what it serves: what is old to it was yesterday to the day.
READ_ONLY_BROKER = {
    "offsets.retention.check.interval.ms": str(2**62),
    "log.cleaner.backoff.ms": str(2**62),
}

LOOPBACK = "127.0.0.1"

DEMO_USER = "demo"

KAFKA_LOGGER = "org.apache.kafka.coordinator.group.GroupMetadataManager"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoDay:
    """The files of the simulated day."""

    #: The folder that has the ``__consumer_offsets-N`` folders.
    segments: Path
    #: The brokers' lines about groups, as log4j writes them; times are UTC.
    server_log: Path
    #: JSON lines: when (``t``), ``topic``, ``partition``, ``beginning`` and ``end``.
    ends: Path
    start_ms: int
    end_ms: int
    groups: int
    #: How many records the journal has.
    records: int


def write_day(
    folder: Path,
    *,
    seed: int = 0,
    start_ms: int = START_MS,
    plans: Sequence[GroupPlan] = GROUP_PLANS,
    progress: Callable[[float], None] | None = None,
) -> DemoDay:
    """Plays the day and writes it down in a new folder.

    :param start_ms: a midnight, in milliseconds since 1970
    :param plans: the groups that there are
    :param progress: is told what share of the work is done
    """
    segments, server_log = folder / "kafka-logs", folder / "server.log"
    samples = folder / "ends.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    records = _JournalWriter()
    said: list[tuple[int, str]] = []
    for number, group in enumerate(simulate_day(seed=seed, start=start_ms, plans=plans), start=1):
        records.take(group)
        said += [(line.at, _format_log_line(line, group.partition)) for line in group.log()]
        if progress is not None:
            progress(0.95 * number / len(plans))
    count = records.write(segments, seed)
    said.sort(key=itemgetter(0))
    server_log.write_text("".join(line for _, line in said), encoding="utf-8")
    _write_ends(samples, sample_offsets(seed=seed, start=start_ms))
    if progress is not None:
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
    """The day's journal, served over the wire by the embedded broker, as long as the block lasts.

    :param master: Spark's; where it is on another machine, the broker listens to other machines,
        too, but only serves those who know a password made for it
    """
    # tasks of Spark import this package, and must not load a broker
    from rota.broker.embedded import Broker  # noqa: PLC0415

    host = _host_for_master(master)
    password = secrets.token_hex(16)
    users = None if host == LOOPBACK else {DEMO_USER: password}
    with Broker(
        day.segments, host=host, users=users, config=READ_ONLY_BROKER, adopt=True
    ) as broker:
        broker.clock.freeze()  # else its members would miss their heartbeats
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
    """The address of this machine at which Spark's machines find it."""
    place = urlsplit(master)
    if not place.hostname:
        return LOOPBACK
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((place.hostname, place.port or 1))  # nothing is sent
        except OSError:
            return LOOPBACK
        return str(probe.getsockname()[0])


class _JournalWriter:
    """The journal entries of all groups, by partition of the journal."""

    def __init__(self) -> None:
        self._batches: dict[int, list[tuple[int, list[KeyValue]]]] = defaultdict(list)

    def take(self, group: GroupDay) -> None:
        """Entries that were written at the same moment are one batch."""
        own = self._batches[group.partition]
        for at, entries in groupby(group.journal(), key=itemgetter(0)):
            own.append((at, [journal.encode_entry(entry) for _, entry in entries]))

    def write(self, folder: Path, seed: int) -> int:
        """Writes a folder for each partition, and tells how many records there are."""
        topic_id = mix_numbers(seed, 1).to_bytes(8, "big") + mix_numbers(seed, 2).to_bytes(8, "big")
        count = 0
        folder.mkdir(parents=True)
        disk = RealDisk(folder)
        for partition in range(DEFAULT_JOURNAL_PARTITIONS):
            name = f"{JOURNAL_TOPIC}-{partition}"
            with Log.create(
                disk, name, topic_id, JOURNAL_CONFIG, segment_bytes=SEGMENT_BYTES
            ) as log:
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


def _write_ends(path: Path, samples: Iterable[OffsetSample]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for at, topic, partition, beginning, end in samples:
            row = {
                "t": at,
                "topic": topic,
                "partition": partition,
                "beginning": beginning,
                "end": end,
            }
            file.write(json.dumps(row) + "\n")
