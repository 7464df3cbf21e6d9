"""What a log answers to readers: whole batches, in order, none that is damaged."""

from __future__ import annotations

from contextlib import suppress

import pytest

from rota.broker.storage.log import Log
from rota.engine.formats.record_batch import CompressionType, read_batch_header
from rota.engine.model.config import TopicConfig
from rota.errors import Code, DiskError, Refused
from tests.support.faulty_disk import FaultyDisk
from tests.support.partition_log import (
    NOW,
    ReportedEvents,
    base_offsets,
    batch_of_size,
    create_log,
    log_files,
    producer_batch,
    read_batches,
    read_values,
    reopen_log,
)

SIZE = len(batch_of_size(100))
SHORT = len(producer_batch(b"5", bytes(20), bytes(30)))


def create_filled_log(
    disk: FaultyDisk, told: ReportedEvents | None = None, count: int = 20, segment: int = 700
) -> Log:
    """Batches of three records each, a segment has five of them."""
    log = create_log(disk, told, segment_bytes=segment, config=TopicConfig(index_interval=200))
    for row in range(count):
        log.append(producer_batch(b"%d" % row, bytes(20), bytes(30), at=NOW + 10 * row), NOW)
    return log


@pytest.mark.parametrize("offset", range(61))
def test_every_offset_gives_the_batch_that_has_it_and_those_behind_it(offset: int) -> None:
    log = create_filled_log(FaultyDisk())
    assert len(log.segments) > 3
    found = [read_batch_header(each).base_offset for each in read_batches(log, offset)]
    assert found == list(range(offset // 3 * 3, 60, 3))


@pytest.mark.parametrize("offset", [-1, 61, 1 << 40])
def test_outside_the_log_there_is_nothing_to_read(offset: int) -> None:
    with pytest.raises(Refused) as refused:
        create_filled_log(FaultyDisk()).read(offset, 1_000)
    assert refused.value.code is Code.OFFSET_OUT_OF_RANGE
    assert "0 to 60" in str(refused.value)


def test_an_answer_is_no_larger_than_asked_for_but_for_one_batch() -> None:
    log = create_log(FaultyDisk())
    for _ in range(5):
        log.append(batch_of_size(100), NOW)
    assert base_offsets(log.read(1, 3 * SIZE)) == [1, 2, 3]
    assert base_offsets(log.read(1, 3 * SIZE - 1)) == [1, 2]
    assert base_offsets(log.read(1, 1)) == [1]
    assert base_offsets(log.read(1, 0)) == [1]
    assert log.read(1, SIZE - 1, at_least_one=False) == b""
    assert base_offsets(log.read(1, SIZE, at_least_one=False)) == [1]


def test_an_answer_goes_on_in_the_next_segment() -> None:
    log = create_filled_log(FaultyDisk())
    assert base_offsets(log.read(0, 1 << 20)) == list(range(0, 60, 3))
    size = len(log.read(57, 1))
    assert len(base_offsets(log.read(0, 12 * size))) == 12


def test_nothing_is_read_from_the_limit_on() -> None:
    log = create_filled_log(FaultyDisk())
    for to in (27, 30):  # inside a segment, and where one begins
        assert base_offsets(log.read(0, 1 << 20, to=to)) == list(range(0, to, 3))
    assert log.read(30, 1 << 20, to=30) == b""
    assert log.read(33, 1 << 20, to=30) == b""
    assert log.read(60, 1 << 20) == b""


def test_a_batch_larger_than_any_window_is_read_whole() -> None:
    log = create_log(FaultyDisk())
    for codec in CompressionType:
        log.append(batch_of_size(900_000, codec=codec), NOW)
    assert len(read_batches(log, budget=1)) == 5
    assert len(log.read(0, 1)) > 900_000


def flip_bit(disk: FaultyDisk, path: str, position: int, bit: int = 0) -> None:
    disk.flip(path, position * 8 + bit)


@pytest.mark.parametrize("behind", [False, True])
def test_what_is_before_damage_is_read_and_what_is_behind_it_too(behind: bool) -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    log = create_filled_log(disk, told)
    if not behind:
        log.close()
        log = reopen_log(disk, told, clean=True, recovery_point=60)
    second = log_files(disk)[1]
    base = int(second[-24:-4])
    flip_bit(disk, second, 400)
    position = 400 // SHORT * SHORT
    bad = base + position // SHORT * 3
    assert base_offsets(log.read(0, 1 << 20)) == list(range(0, bad, 3))
    with pytest.raises(Refused) as refused:
        log.read(bad, 1 << 20)
    assert refused.value.code is Code.CORRUPT_MESSAGE
    later = log.segments[2].base_offset
    assert base_offsets(log.read(later, 1 << 20)) == list(range(later, 60, 3))
    (line,) = told
    assert second in line
    assert f"byte {position}:" in line


def test_no_flipped_bit_is_ever_served() -> None:
    """Whichever bit of the log: either all batches come as they were, or fewer."""
    for bit in range(0, 8 * 600, 7):
        disk, told = FaultyDisk(), ReportedEvents()
        log = create_filled_log(disk, told, count=8, segment=600)
        good = read_batches(log)
        path = log_files(disk)[0]
        fresh = reopen_log(disk, told, clean=True, recovery_point=24) if bit % 2 else log
        told.clear()
        disk.flip(path, bit % (8 * len(disk.content(path))))
        for offset in range(24):
            expected = [each for each in good if read_batch_header(each).last_offset >= offset]
            with suppress(Refused):
                found = read_batches(fresh, offset)
                assert found == expected[: len(found)], bit
        assert path in "".join(told), bit


def test_a_batch_that_begins_inside_the_one_before_is_not_served() -> None:
    """No checksum covers a batch's offset: here it is the last one of the batch before."""
    disk, told = FaultyDisk(), ReportedEvents()
    create_filled_log(disk, count=5, segment=10_000).close()
    (path,) = log_files(disk)
    content = bytearray(disk.content(path))
    content[SHORT + 7] = 2
    disk.put(path, bytes(content))
    log = reopen_log(
        disk, told, clean=True, recovery_point=15, config=TopicConfig(index_interval=200)
    )
    assert base_offsets(log.read(0, 1 << 20)) == [0]
    assert f"{path}: byte {SHORT}: offset 2 after 2" in "".join(told)


def test_a_read_that_the_machine_refuses_is_told_with_the_file() -> None:
    disk = FaultyDisk()
    log = create_filled_log(disk)
    disk.refuse("read", "*.log")
    with pytest.raises(DiskError, match=r"t-0/0+\.log: Input/output error"):
        log.read(0, 100)
    assert base_offsets(log.read(0, 1)) == [0]


def test_times_are_found_to_the_record() -> None:
    log = create_filled_log(FaultyDisk())
    assert log.find_timestamp(NOW) == (0, NOW)
    assert log.find_timestamp(NOW - 5_000) == (0, NOW)
    assert log.find_timestamp(NOW + 41) == (13, NOW + 41)
    assert log.find_timestamp(NOW + 43) == (15, NOW + 50)
    assert log.find_timestamp(NOW + 192) == (59, NOW + 192)
    assert log.find_timestamp(NOW + 193) is None
    assert log.find_newest_record() == (59, NOW + 192)


def test_the_first_record_of_the_newest_time_counts() -> None:
    log = create_log(FaultyDisk())
    assert log.find_newest_record() is None
    assert log.find_timestamp(0) is None
    for at in (NOW, NOW + 90, NOW + 50, NOW + 90):
        log.append(producer_batch(b"a", at=at), NOW)
        log.roll(NOW)
    assert log.find_newest_record() == (1, NOW + 90)
    assert log.find_timestamp(NOW + 1) == (1, NOW + 90)
    log.advance_log_start(2)
    assert log.find_timestamp(NOW + 1) == (2, NOW + 50)


def test_records_without_times_have_no_newest() -> None:
    log = create_log(FaultyDisk())
    log.append(producer_batch(b"a", at=-1), NOW)
    assert log.find_newest_record() is None
    assert log.find_timestamp(0) is None


def test_the_end_of_an_epoch_is_the_end_of_the_log() -> None:
    log = create_filled_log(FaultyDisk())
    assert log.end_offset_for_epoch(0) == (0, 60)
    assert log.end_offset_for_epoch(1) is None


def test_nothing_before_the_start_is_served() -> None:
    log = create_filled_log(FaultyDisk())
    log.advance_log_start(31)
    assert log.log_start_offset == 31
    with pytest.raises(Refused) as refused:
        log.read(30, 100)
    assert refused.value.code is Code.OFFSET_OUT_OF_RANGE
    assert read_values(log)[0][0] == 30  # its batch is whole, a reader passes over the first
    log.advance_log_start(10)
    assert log.log_start_offset == 31
    with pytest.raises(Refused):
        log.advance_log_start(61)
