"""Folders that Kafka wrote, and what compaction and transactions leave in a log."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from rota.broker.storage import index
from rota.broker.storage.disk import RealDisk
from rota.broker.storage.log import Log
from rota.engine.formats.record_batch import (
    BatchRecord,
    ControlRecordType,
    encode_batch,
    read_batch_header,
)
from rota.engine.model.config import TopicConfig
from rota.errors import Refused
from tests.support.faulty_disk import FaultyDisk
from tests.support.partition_log import (
    NOW,
    ReportedEvents,
    create_log,
    log_files,
    producer_batch,
    read_batches,
    reopen_log,
    split_batches,
)
from tests.support.paths import FIXTURES
from tests.support.transactions import encode_end_transaction_marker

CAPTURE = FIXTURES / "kafka-4.3.1" / "segments.tar.gz"
COMPACTED = TopicConfig(cleanup_policy="compact")


@pytest.fixture(scope="module")
def recorded_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("captured")
    with tarfile.open(CAPTURE) as archive:
        archive.extractall(target, filter="data")
    return target


def read_files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def open_log(root: Path, folder: str, events: ReportedEvents, *, clean: bool) -> Log:
    return Log.open(
        RealDisk(root), folder, COMPACTED, recovery_point=0, clean=clean, report=events, now=NOW
    )


@pytest.mark.parametrize("clean", [True, False])
def test_every_folder_is_read_and_left_as_it_is(recorded_folder: Path, clean: bool) -> None:
    before, events = read_files(recorded_folder), ReportedEvents()
    folders = sorted(path for path in recorded_folder.iterdir() if path.is_dir())
    assert len(folders) > 25
    for folder in folders:
        log = open_log(recorded_folder, folder.name, events, clean=clean)
        whole = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
        assert b"".join(read_batches(log, budget=1_000)) == whole, folder
        for batch in split_batches(whole):
            head = read_batch_header(batch)
            for offset in (head.base_offset, head.last_offset):
                assert log.read(offset, 1) == batch
        assert log.last_stable_offset == log.log_end_offset
        log.close()
    assert read_files(recorded_folder) == before
    assert not events


@pytest.mark.parametrize("clean", [True, False])
def test_aborted_transactions_are_those_that_kafka_has_noted(
    recorded_folder: Path, clean: bool
) -> None:
    noted = 0
    for path in sorted(recorded_folder.glob("*/*.txnindex")):
        rows = index.TRANSACTION_ENTRY.iter_unpack(path.read_bytes())
        entries = [index.AbortedTransaction(*row) for _, *row in rows]
        noted += len(entries)
        log = open_log(recorded_folder, path.parent.name, ReportedEvents(), clean=clean)
        expected = [(each.producer_id, each.first_offset) for each in entries]
        assert log.aborted_transactions(log.log_start_offset, log.log_end_offset) == expected
        for each in entries:
            found = log.aborted_transactions(each.first_offset, each.first_offset + 1)
            assert (each.producer_id, each.first_offset) in found
    assert noted > 10


def write_transactions(disk: FaultyDisk, events: ReportedEvents) -> Log:
    """Two producers; one aborts in the second segment what it began in the first."""
    mine: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    other: dict[str, Any] = {"producer_id": 2, "producer_epoch": 0, "transactional": True}
    ends = {"timestamp": NOW, "producer_epoch": 0}
    first = [
        encode_batch([BatchRecord(0, NOW, b"k", b"a")], base_sequence=0, **mine),
        encode_batch([BatchRecord(1, NOW, b"k", b"b")], base_sequence=0, **other),
        encode_end_transaction_marker(ControlRecordType.COMMIT, offset=2, producer_id=2, **ends),
    ]
    second = [
        encode_batch([BatchRecord(3, NOW, b"k", b"c")], base_sequence=1, **other),
        encode_end_transaction_marker(ControlRecordType.ABORT, offset=4, producer_id=1, **ends),
        encode_batch([BatchRecord(5, NOW, b"k", b"d")], base_sequence=1, **mine),
        encode_end_transaction_marker(ControlRecordType.ABORT, offset=6, producer_id=2, **ends),
    ]
    create_log(disk)
    disk.put("t-0/00000000000000000000.log", b"".join(first))
    disk.put("t-0/00000000000000000003.log", b"".join(second))
    return reopen_log(disk, events)


def test_what_is_not_decided_is_not_stable() -> None:
    disk, events = FaultyDisk(), ReportedEvents()
    log = write_transactions(disk, events)
    assert (log.log_end_offset, log.last_stable_offset) == (7, 5)
    assert log.aborted_transactions(0, 5) == [(1, 0), (2, 3)]
    assert log.aborted_transactions(4, 7) == [(1, 0), (2, 3)]
    assert log.aborted_transactions(0, 3) == [(1, 0)]
    assert len(split_batches(log.read(0, 1 << 20, to=log.last_stable_offset))) == 5
    assert not events
    log.close()
    again = reopen_log(disk, events, clean=True, recovery_point=7)
    assert (again.log_end_offset, again.last_stable_offset, events) == (7, 5, [])
    assert again.aborted_transactions(0, 5) == [(1, 0), (2, 3)]


def test_no_flipped_bit_hides_an_aborted_transaction() -> None:
    whole = FaultyDisk()
    write_transactions(whole, ReportedEvents()).close()
    path = "t-0/00000000000000000003.txnindex"
    good = whole.content(path)
    for bit in range(8 * len(good)):
        disk, events = whole.kill(), ReportedEvents()
        disk.flip(path, bit)
        log = reopen_log(disk, events, clean=True, recovery_point=7)
        assert log.aborted_transactions(0, 7) == [(1, 0), (2, 3)], bit
        assert path in events[0]
        assert disk.content(path) == good


def compacted_segments(disk: FaultyDisk) -> list[bytes]:
    """Two segments of which compaction has left little, and one that is written to."""
    kept = [
        encode_batch([BatchRecord(3, NOW, b"k", b"a")], base_offset=0, last_offset=5),
        encode_batch([BatchRecord(9, NOW + 5, b"k", b"b")]),
        encode_batch([], base_offset=14, last_offset=14),
    ]
    later = [encode_batch([BatchRecord(40, NOW + 9, b"k", b"c")], base_offset=38, last_offset=41)]
    create_log(disk, config=COMPACTED)
    disk.put("t-0/00000000000000000000.log", b"".join(kept))
    disk.put("t-0/00000000000000000030.log", b"".join(later))
    disk.put("t-0/00000000000000000050.log", encode_batch([BatchRecord(50, NOW + 10, b"k", b"d")]))
    return [*kept, *later, encode_batch([BatchRecord(50, NOW + 10, b"k", b"d")])]


@pytest.mark.parametrize("clean", [True, False])
def test_gaps_are_passed_over(clean: bool) -> None:
    disk, events = FaultyDisk(), ReportedEvents()
    kept = compacted_segments(disk)
    log = reopen_log(disk, events, config=COMPACTED, clean=clean, recovery_point=51 if clean else 0)
    assert (log.log_start_offset, log.log_end_offset) == (0, 51)
    assert read_batches(log) == kept
    for offset in range(51):
        expected = [each for each in kept if read_batch_header(each).last_offset >= offset]
        assert read_batches(log, offset) == expected, offset
    assert log.find_timestamp(NOW + 1) == (9, NOW + 5)
    assert log.find_timestamp(NOW + 6) == (40, NOW + 9)
    log.append(producer_batch(b"e"), NOW)
    assert read_batches(reopen_log(disk.kill(), config=COMPACTED))[:-1] == kept


def test_an_offset_that_is_wrong_beside_a_gap_is_found_by_what_follows() -> None:
    """Only a batch with room on both sides can be moved without anybody knowing."""
    whole = FaultyDisk()
    kept = compacted_segments(whole)
    reopen_log(whole, config=COMPACTED).close()
    path = log_files(whole)[0]
    at = len(kept[0])
    for bit in range(8 * at, 8 * (at + 8)):
        disk = whole.kill()
        disk.flip(path, bit)
        moved = int.from_bytes(disk.content(path)[at : at + 8], signed=True)
        log = reopen_log(disk, clean=True, recovery_point=51, config=COMPACTED)
        found = split_batches(log.read(2, 1 << 20))
        if 5 < moved < 14:
            assert found[0] == kept[0]
        else:
            assert found == kept[:1], bit
            with pytest.raises(Refused, match=path):
                log.read(6, 1)
