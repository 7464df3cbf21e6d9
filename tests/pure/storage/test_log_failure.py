"""A disk that refuses, is full, or forgets: nothing half-written, nothing promised is lost."""

from __future__ import annotations

import errno

import pytest

from rota.broker.storage.log import Log
from rota.engine.model.config import TopicConfig
from rota.errors import Code, DiskError, Refused
from tests.support.faulty_disk import FaultyDisk, Stopped
from tests.support.partition_log import (
    NOW,
    ReportedEvents,
    create_log,
    log_files,
    producer_batch,
    read_batches,
    read_values,
    reopen_log,
)

BATCH = producer_batch(b"a", b"b")


def test_a_short_write_is_taken_back_at_every_byte() -> None:
    for size in range(len(BATCH) + 1):
        disk = FaultyDisk()
        log = create_log(disk)
        log.append(BATCH, NOW)
        disk.refuse("append", "*.log", partly=size)
        with pytest.raises(DiskError, match=r"0\.log: Input/output error"):
            log.append(BATCH, NOW)
        assert (log.log_end_offset, log.failed) == (2, None)
        assert len(disk.content(log_files(disk)[0])) == len(BATCH) == log.size
        assert log.append(BATCH, NOW).base_offset == 2
        assert [offset for offset, _ in read_values(log)] == [0, 1, 2, 3]


def test_a_full_disk_refuses_and_takes_again_when_there_is_room() -> None:
    disk = FaultyDisk()
    log = create_log(disk)
    disk.room(2 * len(BATCH) + 5)
    log.append(BATCH, NOW)
    log.append(BATCH, NOW)
    with pytest.raises(DiskError) as error:
        log.append(BATCH, NOW)
    assert error.value.full
    assert "t-0/" in str(error.value)
    disk.room(None)
    assert log.append(BATCH, NOW).base_offset == 4
    assert read_values(reopen_log(disk.kill())) == read_values(log)


def log_that_cannot_truncate(disk: FaultyDisk, told: ReportedEvents) -> Log:
    log = create_log(disk, told)
    log.append(BATCH, NOW)
    disk.refuse("append", "*.log", partly=9)
    disk.refuse("truncate", "*.log")
    with pytest.raises(DiskError):
        log.append(BATCH, NOW)
    return log


def test_what_cannot_be_taken_back_ends_the_log_until_it_is_opened_anew() -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    log = log_that_cannot_truncate(disk, told)
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            log.append(BATCH, NOW)
        assert refused.value.code is Code.KAFKA_STORAGE_ERROR
        assert "t-0" in str(refused.value)
    with pytest.raises(Refused):
        log.append_records([(b"k", b"v")], NOW)
    assert [line for line in told if "until it is reopened" in line] == told != []
    assert read_values(log) == [(0, b"a"), (1, b"b")]
    log.close()
    again = reopen_log(disk, told)
    assert read_values(again) == [(0, b"a"), (1, b"b")]
    assert "9 bytes removed" in told[-1]
    assert again.append(BATCH, NOW).base_offset == 2


@pytest.mark.parametrize("path", ["*.log", "*.index", "*.timeindex", "*.snapshot", "t-0"])
@pytest.mark.parametrize("operation", ["append", "sync", "replace"])
def test_a_segment_that_cannot_be_begun_leaves_the_old_one_as_it_is(
    operation: str, path: str
) -> None:
    disk = FaultyDisk()
    log = create_log(disk, segment_bytes=300)
    for row in range(2):
        log.append(producer_batch(bytes(60), at=NOW + row), NOW)
    before = read_batches(log)
    disk.refuse(operation, path)
    try:
        log.append(producer_batch(bytes(60)), NOW)
    except DiskError:
        assert read_batches(log) == before
        if log.failed is None:
            assert log.append(producer_batch(bytes(60)), NOW).base_offset == 2
            assert len(log.segments) == 2
    else:
        disk.allow()
        assert log.log_end_offset == 3
    again = reopen_log(disk.kill())
    assert read_batches(again) == read_batches(log)
    for _ in range(5):
        again.append(producer_batch(bytes(60)), NOW)
    assert [offset for offset, _ in read_values(again)] == list(range(again.log_end_offset))


def test_with_flush_messages_every_answer_is_durable() -> None:
    disk = FaultyDisk()
    log = create_log(disk, config=TopicConfig(flush_messages=1), segment_bytes=300)
    for row in range(9):
        log.append(producer_batch(b"%d" % row, bytes(40)), NOW)
        assert log.recovery_point == log.log_end_offset
        after = disk.crash(least=True)
        assert read_values(reopen_log(after, recovery_point=log.recovery_point)) == read_values(log)


@pytest.mark.parametrize(("most", "flushed"), [(4, [0, 4, 4, 8, 8]), (5, [0, 0, 6, 6, 6])])
def test_flush_messages_counts_records(most: int, flushed: list[int]) -> None:
    log = create_log(FaultyDisk(), config=TopicConfig(flush_messages=most))
    points = []
    for _ in range(5):
        log.append(BATCH, NOW)
        points.append(log.recovery_point)
    assert points == flushed


def test_after_a_sync_that_failed_nothing_more_is_promised() -> None:
    """The machine may have dropped what it could not write, and say next time that all is well."""
    disk, told = FaultyDisk(), ReportedEvents()
    log = create_log(disk, told, config=TopicConfig(flush_messages=1))
    log.append(BATCH, NOW)
    disk.refuse("sync", "*.log")
    with pytest.raises(DiskError):
        log.append(BATCH, NOW)
    assert (log.log_end_offset, log.recovery_point) == (2, 2)
    with pytest.raises(Refused) as refused:
        log.append(BATCH, NOW)
    assert refused.value.code is Code.KAFKA_STORAGE_ERROR
    assert "not synced" in told[0]


def test_a_folder_that_cannot_be_read_is_told_of() -> None:
    disk = FaultyDisk()
    create_log(disk).append(BATCH, NOW)
    disk.refuse("read", "*.log", code=errno.EIO)
    with pytest.raises(DiskError, match=r"\.log: Input/output error"):
        reopen_log(disk)


def write_and_delete_segments(
    disk: FaultyDisk, acknowledged: list[tuple[int, bytes]], promised: list[int]
) -> None:
    """A life of a log: some appends, segments, flushes, and old segments that go."""
    config = TopicConfig(retention_bytes=1_000, index_interval=100)
    log = create_log(disk, config=config, segment_bytes=400)
    for row in range(14):
        batch = producer_batch(b"%02d" % row, bytes(40), at=NOW + row)
        base = log.append(batch, NOW).base_offset
        acknowledged.append((base, base.to_bytes(8) + batch[8:]))
        if row % 5 == 3:
            log.flush()
        promised[:] = [log.recovery_point]
        if row == 10:
            log.delete_old_segments(NOW)
    log.close()
    promised[:] = [log.recovery_point]


def test_a_crash_at_any_moment_leaves_what_was_promised_in_order_and_once() -> None:
    whole = FaultyDisk()
    write_and_delete_segments(whole, [], [])
    assert whole.changes > 60
    for power in (False, True):
        for change in range(whole.changes):
            for seed in range(3 if power else 1):
                disk = FaultyDisk(seed)
                acknowledged: list[tuple[int, bytes]] = []
                promised = [0]
                disk.stop_at(change)
                with pytest.raises(Stopped):
                    write_and_delete_segments(disk, acknowledged, promised)
                after = disk.crash() if power else disk.kill()
                _check(after, acknowledged, promised[0], power, (change, seed))


def _check(
    disk: FaultyDisk,
    acknowledged: list[tuple[int, bytes]],
    promised: int,
    power: bool,
    case: tuple[int, int],
) -> None:
    told = ReportedEvents()
    log = reopen_log(disk, told, recovery_point=promised, config=TopicConfig(index_interval=100))
    found = read_batches(log)
    stored = dict(acknowledged)
    bases = [int.from_bytes(each[:8]) for each in found]
    assert bases == list(range(log.log_start_offset, log.log_end_offset, 2)), case
    for base, each in zip(bases, found, strict=True):
        # the one that was being written may be there, though nobody was told
        assert stored.get(base, each) == each, case
    end = acknowledged[-1][0] + 2 if acknowledged else 0
    assert log.log_end_offset >= (promised if power else end), case
    assert log.log_end_offset <= end + 2, case
    assert (
        log.append(producer_batch(b"next"), NOW).base_offset == bases[-1] + 2 if bases else True
    ), case
