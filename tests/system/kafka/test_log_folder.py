"""Kafka's own tool reads a log folder that Rota has written: batches, both indexes, and entries."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rota.broker.storage.disk import RealDisk
from rota.broker.storage.log import Log
from rota.engine.formats import journal
from rota.engine.formats.record_batch import CompressionType
from rota.engine.model.config import TopicConfig
from rota.engine.model.journal_entry import GroupMetadataTombstone, OffsetCommitEntry
from tests.support import kafka as broker
from tests.support import partition_log as partition
from tests.support.process import run_command
from tests.system.kafka.oracle import PATIENCE

COMMITS = 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("logs")
    name = "__consumer_offsets-7"
    with Log.create(
        RealDisk(data), name, bytes(range(16)), TopicConfig(), segment_bytes=20_000
    ) as log:
        for n in range(COMMITS):
            entries = [
                OffsetCommitEntry(
                    group="g", topic="t", partition=part, offset=n, commit_timestamp=1_000 + n
                )
                for part in range(n % 3 + 1)
            ]
            log.append_records([journal.encode_entry(entry) for entry in entries], 1_000 + n)
        log.append_records([journal.encode_entry(GroupMetadataTombstone(group="g"))], 9_000)
    return data / name


def dump_segment(*args: str) -> str:
    broker.install_kafka()
    command = broker.kafka_command("org.apache.kafka.tools.DumpLogSegments", *args)
    done = run_command(*command, seconds=PATIENCE).checked()
    return done.out + done.err


def test_kafka_reads_every_entry(folder: Path) -> None:
    logs = sorted(folder.glob("*.log"))
    assert len(logs) > 2
    printed = dump_segment("--offsets-decoder", "--files", ",".join(map(str, logs)))
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", printed, re.MULTILINE)]
    assert offsets == list(range(len(offsets)))
    assert len(offsets) == sum(n % 3 + 1 for n in range(COMMITS)) + 1
    assert "isvalid: false" not in printed
    assert '"group":"g","topic":"t","partition":2' in printed


def test_kafka_finds_both_indexes_sound(folder: Path) -> None:
    indexes = sorted([*folder.glob("*.index"), *folder.glob("*.timeindex")])
    assert any(path.stat().st_size for path in indexes if path.suffix == ".index")
    files = ",".join(map(str, indexes))
    assert dump_segment("--index-sanity-check", "--files", files).count(
        "passed sanity check"
    ) == len(indexes)
    # without a flag the tool compares each entry with the log
    verified = dump_segment("--verify-index-only", "--files", files)
    assert "mismatch" not in verified.lower(), verified
    assert "not found" not in verified.lower(), verified


@pytest.fixture(scope="module")
def produced_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic of many segments: every codec, an idempotent producer, and a crash in between."""
    disk = RealDisk(tmp_path_factory.mktemp("produced"))
    log = partition.create_log(disk, segment_bytes=15_000)
    sequence = 0
    for row in range(300):
        values = [b"%d" % row, bytes(row), b"x" * (row * 7 % 900)]
        codec = list(CompressionType)[row % len(CompressionType)]
        fields: dict[str, int] = {}
        if row % 2:
            fields = {"producer_id": 5, "producer_epoch": 1, "base_sequence": sequence}
            sequence += len(values)
        at = partition.NOW + row * 31 % 200
        log.append(partition.producer_batch(*values, at=at, codec=codec, **fields), partition.NOW)
        if row == 170:  # nobody closes it
            log = partition.reopen_log(disk, recovery_point=0, segment_bytes=15_000)
    log.close()
    disk.close()
    return disk.root / partition.FOLDER


def test_kafka_reads_every_record_of_a_topic(produced_folder: Path) -> None:
    logs = sorted(produced_folder.glob("*.log"))
    assert len(logs) > 4
    printed = dump_segment(
        "--deep-iteration", "--print-data-log", "--files", ",".join(map(str, logs))
    )
    found = re.findall(
        r"^\| offset: (\d+) CreateTime: (\d+) .* payload: (.*)$", printed, re.MULTILINE
    )
    assert [int(offset) for offset, _, _ in found] == list(range(900))
    assert [value for _, _, value in found[::3]] == [str(row) for row in range(300)]
    assert [int(at) - partition.NOW for _, at, _ in found[::3]] == [
        row * 31 % 200 for row in range(300)
    ]
    batches = re.findall(r"^baseOffset: .*", printed, re.MULTILINE)
    assert len(batches) == 300
    assert all("isvalid: true" in batch for batch in batches)
    assert sum("producerId: 5 producerEpoch: 1" in batch for batch in batches) == 150
    for codec in CompressionType:
        assert sum(f"compresscodec: {codec.name.lower()}" in batch for batch in batches) == 60


def test_kafka_finds_the_indexes_of_a_topic_sound(produced_folder: Path) -> None:
    indexes = sorted([*produced_folder.glob("*.index"), *produced_folder.glob("*.timeindex")])
    files = ",".join(map(str, indexes))
    sound = dump_segment("--index-sanity-check", "--files", files)
    assert sound.count("passed sanity check") == len(indexes)
    verified = dump_segment("--deep-iteration", "--verify-index-only", "--files", files)
    assert "mismatch" not in verified.lower(), verified
    assert "not found" not in verified.lower(), verified


def test_kafka_reads_what_is_known_of_producers(produced_folder: Path) -> None:
    snapshots = sorted(produced_folder.glob("*.snapshot"))
    assert len(snapshots) == len(list(produced_folder.glob("*.log")))
    printed = dump_segment("--files", str(snapshots[-1]))
    assert "producerId: 5 producerEpoch: 1" in printed
    assert "lastSequence: 449" in printed
