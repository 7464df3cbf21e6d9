"""Compaction by Rota and by a real Kafka of the same log, batch by batch; and what Kafka's own tool
says of the files that Rota writes beside a log."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from rota.broker.storage.disk import RealDisk
from rota.broker.storage.log import Log
from rota.broker.storage.log_directory import DirectoryLock
from rota.engine.formats.record_batch import (
    BatchRecord,
    ControlRecordType,
    read_batch_header,
)
from rota.engine.formats.record_batch_columns import decode_batches, iterate_records
from rota.engine.formats.record_batch_scan import find_batches
from rota.engine.model.config import DAY, TopicConfig
from rota.errors import Unreachable
from tests.support import kafka as broker
from tests.support.compacted_log import batch, run_compaction
from tests.support.kafka import KafkaBroker
from tests.support.process import run_command
from tests.support.transactions import encode_end_transaction_marker
from tests.support.waiting import wait_until
from tests.system.kafka.oracle import PATIENCE

TOPIC = "compacted"
#: Milliseconds between rounds of records; after half of it a segment is full.
STEP = 2_000
WAIT = 60
CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": str(STEP // 2),
    "min.cleanable.dirty.ratio": "0.0",
    "delete.retention.ms": "0",
    "min.compaction.lag.ms": str(DAY),
}
SAME = TopicConfig(
    cleanup_policy="compact", segment_ms=STEP // 2, min_cleanable_ratio=0.0, delete_retention=0
)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaBroker, Path]]:
    folder = tmp_path_factory.mktemp("compacting")
    settings = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "100"}
    running = KafkaBroker(folder, settings)
    yield running, folder / "data"
    running.stop()


def dump_segments(*files: Path, options: tuple[str, ...] = ()) -> str:
    broker.install_kafka()
    names = ",".join(map(str, files))
    command = broker.kafka_command(
        "org.apache.kafka.tools.DumpLogSegments", *options, "--files", names
    )
    done = run_command(*command, seconds=PATIENCE).checked()
    return done.out + done.err


class Writers:
    """Producers of each kind, whose records are of the time they are told."""

    def __init__(self, port: int, admin: AdminClient) -> None:
        self._admin = admin
        servers = {"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 50}
        self.plain = Producer({**servers, "compression.type": "gzip"})
        self.idempotent = Producer({**servers, "enable.idempotence": True})
        self.transactional = Producer({**servers, "transactional.id": "t"})
        self.transactional.init_transactions()

    def send(self, producer: Producer, at: int, **values: str | None) -> None:
        for key, value in values.items():
            producer.produce(TOPIC, key=key, value=value, timestamp=at)
        producer.flush()

    def round(self, number: int, at: int) -> None:
        """Some of everything: superseded, deleted, committed, aborted."""
        text = str(number)
        self.send(self.idempotent, at, a=text, b=text, **{f"k{number}": text})
        self.transactional.begin_transaction()
        self.send(self.transactional, at + STEP, a="aborted", **{f"x{number}": "aborted"})
        self.transactional.abort_transaction()
        self.transactional.begin_transaction()
        self.send(self.transactional, at + 2 * STEP, c=text, **{f"k{number - 1}": None})
        self.transactional.commit_transaction()
        wait_until("the markers of transactions", lambda: are_transactions_over(self._admin))
        self.send(self.plain, at + 3 * STEP, d=text, e=text, b=None)
        self.send(self.plain, at + 4 * STEP, d="again", f=text)


def set_lag(admin: AdminClient, lag: int) -> None:
    entry = ConfigEntry(
        "min.compaction.lag.ms", str(lag), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(WAIT)


def are_transactions_over(admin: AdminClient) -> bool:
    """Whether their markers are in the log: that may be a while after the producer is told so."""
    asked = {TopicPartition(TOPIC, 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
    stable, last = (
        next(iter(admin.list_offsets(asked, isolation_level=level).values())).result(WAIT).offset
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    )
    return bool(stable == last)


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def cleaned_offset(data: Path) -> int:
    lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    points = {line.split()[0]: int(line.split()[2]) for line in lines}
    return points.get(TOPIC, 0)


def read_batches(folder: Path) -> list[tuple[Any, ...]]:
    """All that is told apart, but for compressed bytes and the time that tombstones have left."""
    found = []
    for path in segments(folder):
        data = path.read_bytes()
        for position, size in find_batches(data):
            head = read_batch_header(data, position)
            inside: list[BatchRecord] = list(
                iterate_records(decode_batches(data[position : position + size]))
            )
            found.append(
                (
                    *(head.base_offset, head.last_offset, head.record_count, hex(head.attributes)),
                    *(head.producer_id, head.producer_epoch, head.base_sequence),
                    *(head.max_timestamp, head.leader_epoch, inside),
                )
            )
    return found


def test_rota_keeps_what_a_real_kafka_keeps(
    kafka: tuple[KafkaBroker, Path], tmp_path: Path
) -> None:
    running, data = kafka
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{running.port}"})
    for made in admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)]).values():
        made.result(WAIT)
    writers = Writers(running.port, admin)
    folder = data / f"{TOPIC}-0"
    now = int(time.time() * 1_000)
    for number in range(1, 4):
        # ahead of the markers, which are of now: so each batch of data begins a segment
        at = now + 10 * number * STEP
        writers.round(number, at)
        writers.send(writers.plain, at + 6 * STEP, last=str(number))
        copied = tmp_path / str(number)
        # Kafka deletes such files a minute after a compaction
        shutil.copytree(folder, copied / folder.name, ignore=shutil.ignore_patterns("*.deleted"))
        active = int(segments(folder)[-1].stem)
        set_lag(admin, 0)
        wait_until("Kafka's compaction", lambda upto=active: cleaned_offset(data) >= upto)  # type: ignore[misc]
        set_lag(admin, DAY)
        log = Log.open(
            RealDisk(copied),
            folder.name,
            SAME,
            recovery_point=0,
            clean=False,
            report=pytest.fail,
            now=now,
        )
        before = len(read_batches(copied / folder.name))
        assert run_compaction(log, int(time.time() * 1_000)) == active
        log.close()
        assert read_batches(copied / folder.name) == read_batches(folder)
        assert len(read_batches(folder)) < before
        assert "isvalid: false" not in dump_segments(
            *segments(copied / folder.name), options=("--deep-iteration",)
        )


def test_a_running_kafkas_folder_is_not_touched(kafka: tuple[KafkaBroker, Path]) -> None:
    _, data = kafka
    with pytest.raises(Unreachable, match=r"the folder .*data is in use by another process"):
        DirectoryLock(data)


def test_kafkas_tool_reads_snapshots_and_indexes_of_transactions(tmp_path: Path) -> None:
    log = tmp_path / "t-0"
    log.mkdir()
    (log / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    fields: dict[str, Any] = {"producer_epoch": 2, "transactional": True, "base_sequence": 10}
    pieces = [
        batch(0, [("a", "1"), ("b", "1")], producer_id=7, **fields),
        batch(2, [("c", "1")], producer_id=9, **fields),
        encode_end_transaction_marker(
            ControlRecordType.ABORT, offset=3, timestamp=99, producer_id=7, producer_epoch=2
        ),
    ]
    (log / f"{0:020}.log").write_bytes(b"".join(pieces))
    now = int(time.time() * 1_000)
    opened = Log.open(
        RealDisk(tmp_path),
        "t-0",
        TopicConfig(),
        recovery_point=0,
        clean=False,
        report=lambda text: None,
        now=now,
    )
    opened.roll(now)
    opened.close()
    (snapshot,) = log.glob("*.snapshot")
    printed = dump_segments(snapshot)
    found = re.findall(
        r"producerId: (\d+) producerEpoch: (\d+) .*?currentTxnFirstOffset: (\S+)", printed
    )
    assert sorted(found) == [("7", "2", "OptionalLong.empty"), ("9", "2", "OptionalLong[2]")], (
        printed
    )
    printed = dump_segments(log / f"{0:020}.txnindex")
    assert re.search(r"producerId: 7 firstOffset: 0 lastOffset: 3 lastStableOffset: 2", printed), (
        printed
    )
