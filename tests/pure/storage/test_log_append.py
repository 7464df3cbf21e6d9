"""What a log takes from producers, what it makes of it, and when it begins a new segment."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from rota.broker.storage.log import Log
from rota.engine.formats.record_batch import (
    BatchHeader,
    BatchRecord,
    CompressionType,
    compute_crc32c,
    encode_batch,
    read_batch_header,
)
from rota.engine.formats.record_batch_columns import decode_batches, iterate_records
from rota.engine.model.config import TopicConfig
from rota.errors import Code, Refused
from tests.support.faulty_disk import FaultyDisk
from tests.support.partition_log import (
    NOW,
    batch_of_size,
    create_log,
    log_files,
    producer_batch,
    read_batches,
    read_values,
)

DAY = 86_400_000


def with_field(batch: bytes, position: int, layout: str, value: int) -> bytes:
    """A batch with a field changed, and the checksum right again."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    struct.pack_into(">I", changed, 17, compute_crc32c(memoryview(changed)[21:]))
    return bytes(changed)


def refused_code(log: Log, batch: bytes, now: int = NOW) -> Code:
    with pytest.raises(Refused) as refused:
        log.append(batch, now)
    assert str(refused.value)
    assert (log.log_end_offset, log.size) == (0, 0)
    return refused.value.code


def test_a_batch_gets_the_next_offset_and_nothing_else_of_it_changes() -> None:
    log = create_log(FaultyDisk())
    first, second = producer_batch(b"a", b"b"), producer_batch(b"c", codec=CompressionType.ZSTD)
    assert log.append(first, NOW).base_offset == 0
    appended = log.append(memoryview(second), NOW)
    assert (appended.base_offset, appended.append_time, appended.duplicate) == (2, -1, False)
    assert log.log_end_offset == log.last_stable_offset == 3
    stored = read_batches(log)
    assert stored[0] == first
    assert stored[1] == (2).to_bytes(8) + second[8:]
    assert read_values(log) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_with_log_append_time_the_brokers_time_counts() -> None:
    log = create_log(FaultyDisk(), config=TopicConfig(timestamp_type="LogAppendTime"))
    assert log.append(producer_batch(b"a", b"b", at=5), NOW).append_time == NOW
    (stored,) = read_batches(log)
    found = decode_batches(stored)
    assert not found.problems
    assert [record.timestamp for record in iterate_records(found)] == [NOW, NOW]
    assert log.find_timestamp(NOW) == (0, NOW)


def test_records_of_the_brokers_own_are_one_batch() -> None:
    log = create_log(FaultyDisk())
    log.append_records([(b"k", b"v"), (b"k", None)], NOW)
    assert read_values(log) == [(0, b"v"), (1, None)]
    assert len(read_batches(log)) == 1
    with pytest.raises(Refused) as refused:
        log.append_records([(b"k", bytes(2_000_000))], NOW)
    assert refused.value.code is Code.MESSAGE_TOO_LARGE


GOOD = producer_batch(b"a", b"b")


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (b"", Code.CORRUPT_MESSAGE),
        (GOOD[:60], Code.CORRUPT_MESSAGE),
        (GOOD[:-1], Code.CORRUPT_MESSAGE),
        (GOOD + GOOD, Code.INVALID_RECORD),
        (GOOD[:16] + b"\1" + GOOD[17:], Code.INVALID_RECORD),
        (GOOD[:-1] + b"x", Code.CORRUPT_MESSAGE),
        (with_field(GOOD, 0, ">q", 7), Code.INVALID_RECORD),
        (with_field(GOOD, 21, ">h", 6), Code.UNSUPPORTED_COMPRESSION_TYPE),
        (with_field(GOOD, 21, ">h", 0x20), Code.INVALID_RECORD),
        (with_field(GOOD, 21, ">h", 0x08), Code.INVALID_TIMESTAMP),
        (with_field(GOOD, 57, ">i", 3), Code.INVALID_RECORD),
        (with_field(GOOD, 57, ">i", 0), Code.INVALID_RECORD),
        (with_field(with_field(GOOD, 57, ">i", 50), 23, ">i", 49), Code.INVALID_RECORD),
        (with_field(GOOD, 23, ">i", -1), Code.INVALID_RECORD),
        (producer_batch(b"a", producer_id=4, producer_epoch=0), Code.INVALID_RECORD),
        (producer_batch(b"a", at=NOW + 3_600_001), Code.INVALID_TIMESTAMP),
        (batch_of_size(1_048_588), Code.MESSAGE_TOO_LARGE),
        (
            producer_batch(
                b"a", producer_id=4, producer_epoch=0, base_sequence=0, transactional=True
            ),
            Code.INVALID_TXN_STATE,
        ),
    ],
)
def test_what_no_topic_takes(batch: bytes, code: Code) -> None:
    assert refused_code(create_log(FaultyDisk()), batch) is code


@pytest.mark.parametrize(
    ("settings", "batch", "code"),
    [
        ({"timestamp_before_max": 10}, producer_batch(b"a", at=NOW - 11), Code.INVALID_TIMESTAMP),
        ({"timestamp_after_max": 10}, producer_batch(b"a", at=NOW + 11), Code.INVALID_TIMESTAMP),
        (
            {"cleanup_policy": "compact"},
            encode_batch([BatchRecord(0, NOW, None, b"v")]),
            Code.INVALID_RECORD,
        ),
        (
            {"cleanup_policy": "compact"},
            encode_batch(
                [BatchRecord(0, NOW, b"k", b""), BatchRecord(1, NOW, None, b"")],
                codec=CompressionType.GZIP,
            ),
            Code.INVALID_RECORD,
        ),
        (
            {"cleanup_policy": "compact"},
            with_field(producer_batch(b"a"), 61, "b", 99),
            Code.CORRUPT_MESSAGE,
        ),
        ({"max_message_bytes": 80}, batch_of_size(100), Code.MESSAGE_TOO_LARGE),
        (
            {"max_message_bytes": 3 << 20, "segment_bytes": 1 << 20},
            batch_of_size(1 << 20),
            Code.RECORD_LIST_TOO_LARGE,
        ),
    ],
)
def test_what_a_topic_s_settings_refuse(settings: dict[str, Any], batch: bytes, code: Code) -> None:
    assert refused_code(create_log(FaultyDisk(), config=TopicConfig(**settings)), batch) is code


def test_a_record_without_a_time_is_taken() -> None:
    log = create_log(FaultyDisk(), config=TopicConfig(timestamp_before_max=10))
    log.append(producer_batch(b"a", at=-1), NOW)
    assert log.log_end_offset == 1


def test_a_retry_is_answered_with_the_offsets_of_the_first_try() -> None:
    log = create_log(FaultyDisk())
    fields = {"producer_id": 9, "producer_epoch": 0}
    log.append(producer_batch(b"x"), NOW)
    first = log.append(producer_batch(b"a", b"b", base_sequence=0, **fields), NOW)
    again = log.append(producer_batch(b"a", b"b", base_sequence=0, **fields), NOW + 1)
    assert (again.base_offset, again.duplicate) == (first.base_offset, True)
    assert log.log_end_offset == 3
    with pytest.raises(Refused) as refused:
        log.append(producer_batch(b"z", base_sequence=5, **fields), NOW)
    assert refused.value.code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(producer_batch(b"c", base_sequence=2, **fields), NOW).base_offset == 3


def header(log: Log, offset: int) -> BatchHeader:
    return read_batch_header(log.read(offset, 1))


def test_a_segment_is_no_larger_than_the_topic_wants() -> None:
    disk = FaultyDisk()
    log = create_log(disk, segment_bytes=1_000)
    for _ in range(10):
        log.append(batch_of_size(300), NOW)
    sizes = [each.size for each in log.segments]
    assert len(sizes) == 5
    assert max(sizes) <= 1_000
    assert [int(path[-24:-4]) for path in log_files(disk)] == [0, 2, 4, 6, 8]
    assert [offset for offset, _ in read_values(log)] == list(range(10))


def test_a_segment_ends_when_a_batch_is_so_much_newer_than_its_first() -> None:
    log = create_log(FaultyDisk(), config=TopicConfig(segment_ms=DAY))
    log.append(producer_batch(b"a", at=NOW), NOW)
    log.append(producer_batch(b"b", at=NOW + DAY), NOW + DAY)
    assert len(log.segments) == 1
    log.append(producer_batch(b"c", at=NOW + DAY + 1), NOW + DAY)
    assert [each.base_offset for each in log.segments] == [0, 2]


def test_a_compacted_segment_ends_before_it_would_be_compacted_too_late() -> None:
    config = TopicConfig(cleanup_policy="compact", max_compaction_lag=DAY // 2)
    log = create_log(FaultyDisk(), config=config)
    log.append(producer_batch(b"a", at=NOW), NOW)
    log.append(producer_batch(b"b", at=NOW + DAY // 2 + 1), NOW + DAY)
    assert len(log.segments) == 2


def test_without_timestamps_a_segment_ends_by_the_clock() -> None:
    log = create_log(FaultyDisk(), config=TopicConfig(segment_ms=DAY))
    for now in (NOW, NOW + DAY, NOW + DAY + 1):
        log.append(producer_batch(b"a", at=-1), now)
    assert [each.base_offset for each in log.segments] == [0, 2]


def test_a_segment_ends_where_an_index_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.broker.storage.index.MAX_INDEX_BYTES", 40)
    log = create_log(FaultyDisk(), config=TopicConfig(index_interval=0))
    for row in range(10):
        log.append(producer_batch(b"a", at=NOW + row), NOW)
    assert len(log.segments) > 1
    assert all(12 * len(each.time_index) <= 40 for each in log.segments)


def test_a_segment_has_no_offsets_that_its_index_cannot_say() -> None:
    log = create_log(FaultyDisk())
    log.append(producer_batch(b"a"), NOW)
    log.segments[-1].end_offset = (1 << 31) - 1  # as if two thousand million records were there
    log.append(producer_batch(b"b"), NOW)
    log.append(producer_batch(b"c"), NOW)
    log.append(producer_batch(b"d"), NOW)
    assert [each.base_offset for each in log.segments] == [0, 1 << 31]


def test_rolling_an_empty_segment_does_nothing() -> None:
    log = create_log(FaultyDisk())
    log.roll(NOW)
    log.append(producer_batch(b"a"), NOW)
    log.roll(NOW)
    log.roll(NOW)
    assert [each.base_offset for each in log.segments] == [0, 1]
    assert log.recovery_point == 1
