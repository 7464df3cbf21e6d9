"""A partition's answer to a Fetch: which of its records a consumer gets, and where it reads on."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rota.client import arrow
from rota.client.fetch import (
    MAX_UNPACK_COUNT,
    MIN_RUN_LENGTH,
    Batch,
    BytesColumn,
    FetchedPartition,
    _find_runs,
    read_batches,
    slice_buffer,
)
from rota.consumer.buffer import RecordFactory
from rota.consumer.records import ConsumerRecord
from rota.engine.formats import record_batch
from rota.engine.formats.buffer import ByteBuffer, allocate_padded
from rota.engine.formats.record_batch import BatchRecord, CompressionType, ControlRecordType
from rota.engine.model.topic import TopicPartition
from rota.errors import InputError, RecordError
from tests.support.transactions import encode_end_transaction_marker

NOW = 1_790_000_000_000
SOURCE = TopicPartition("orders", 3)


def encode_records(first: int, count: int, **options: object) -> bytes:
    """A batch of records from an offset on; their values are their offsets."""
    made = [
        BatchRecord(each, NOW + each, None, b"%d" % each) for each in range(first, first + count)
    ]
    return record_batch.encode_batch(made, **options)  # type: ignore[arg-type]


def abort_marker(producer: int, offset: int) -> bytes:
    return encode_end_transaction_marker(
        ControlRecordType.ABORT,
        offset=offset,
        timestamp=NOW,
        producer_id=producer,
        producer_epoch=0,
    )


def commit_marker(producer: int, offset: int) -> bytes:
    return encode_end_transaction_marker(
        ControlRecordType.COMMIT,
        offset=offset,
        timestamp=NOW,
        producer_id=producer,
        producer_epoch=0,
    )


def fetched_partition(
    data: bytes, offset: int = 0, aborts: tuple[tuple[int, int], ...] = ()
) -> FetchedPartition:
    return FetchedPartition(SOURCE, 0, offset, memoryview(data), 100, 100, 0, aborts)


def read_offsets(
    answer: FetchedPartition, *, committed_only: bool = False
) -> tuple[list[int], int]:
    """Of the records, and where to read on."""
    found: list[int] = []
    behind = answer.fetch_offset
    for each in read_batches(answer, committed_only=committed_only):
        found += each.offsets.tolist()
        behind = each.next_offset
    return found, behind


def read_one_batch(data: bytes) -> Batch:
    (found,) = read_batches(fetched_partition(data))
    return found


def read_until_error(answer: FetchedPartition) -> tuple[list[int], RecordError]:
    """The records before what is wrong, and what is."""
    found: list[int] = []
    try:
        for each in read_batches(answer):
            found += each.offsets.tolist()
    except RecordError as error:
        return found, error
    pytest.fail("nothing was said to be wrong")


def test_a_fetch_may_start_in_the_middle_of_a_batch() -> None:
    assert read_offsets(
        fetched_partition(encode_records(5, 4) + encode_records(9, 2), offset=7)
    ) == ([7, 8, 9, 10], 11)


def test_a_batch_without_records_is_progress() -> None:
    gone = record_batch.encode_batch([], base_offset=5, last_offset=40)
    assert read_offsets(fetched_partition(gone, offset=5)) == ([], 41)


def test_markers_are_not_handed_out_but_read_past() -> None:
    data = encode_records(0, 2, producer_id=7, transactional=True) + commit_marker(7, 2)
    assert read_offsets(fetched_partition(data)) == ([0, 1], 3)


def test_aborted_transactions_are_left_out_of_what_is_committed() -> None:
    data = b"".join(
        [
            encode_records(0, 2, producer_id=7, transactional=True),
            encode_records(2, 1, producer_id=8, transactional=True),
            encode_records(3, 1),
            abort_marker(7, 4),
            encode_records(5, 1, producer_id=7, transactional=True),
            commit_marker(8, 6),
            commit_marker(7, 7),
        ]
    )
    answer = fetched_partition(data, aborts=((7, 0),))
    assert read_offsets(answer, committed_only=True) == ([2, 3, 5], 8)
    assert read_offsets(answer) == ([0, 1, 2, 3, 5], 8)


def test_a_batch_cut_at_the_end_is_left_for_the_next_fetch() -> None:
    first, second = encode_records(0, 3), encode_records(3, 3)
    assert not any(second[:7])  # an offset begins with zeros, which are no damage
    for size in range(len(second)):
        assert read_offsets(fetched_partition(first + second[:size])) == ([0, 1, 2], 3), size


def test_zeros_where_a_batch_should_be_are_told() -> None:
    for size in (12, 100):
        found, error = read_until_error(fetched_partition(encode_records(0, 3) + bytes(size)))
        assert (found, error.offset) == ([0, 1, 2], 3)
        assert "zeros" in str(error)


def test_nothing_but_a_cut_batch_is_told() -> None:
    found, error = read_until_error(fetched_partition(encode_records(4, 3)[:-1], offset=4))
    assert (found, error.offset) == ([], 4)
    assert "max.partition.fetch.bytes" in str(error)


def test_records_before_the_damage_come_first_then_the_error_with_where_to_go_on() -> None:
    broken = bytearray(encode_records(3, 5))
    broken[-1] ^= 1
    found, error = read_until_error(
        fetched_partition(encode_records(0, 3) + bytes(broken) + encode_records(8, 1))
    )
    assert found == [0, 1, 2]
    assert (error.topic, error.partition, error.offset, error.next_offset) == ("orders", 3, 3, 8)
    assert "checksum" in str(error)


def test_large_answers_come_in_portions() -> None:
    data = b"".join(
        encode_records(first, 10, codec=CompressionType.ZSTD) for first in range(0, 100, 10)
    )
    portions = list(read_batches(fetched_partition(data, offset=3), portion=300))
    assert len(portions) > 2
    assert [each for part in portions for each in part.offsets.tolist()] == list(range(3, 100))
    assert [part.next_offset for part in portions][-1] == 100


def test_a_slice_says_where_to_read_on() -> None:
    whole = read_one_batch(
        encode_records(0, 3) + record_batch.encode_batch([], base_offset=3, last_offset=9)
    )
    assert (len(whole[:2]), whole[:2].next_offset) == (2, 2)
    assert (whole[2:].offsets.tolist(), whole[2:].next_offset) == ([2], 10)
    assert (len(whole[1:1]), whole[1:1].next_offset) == (0, 1)


def test_records_are_made_of_columns() -> None:
    raw = BatchRecord(4, NOW, b"k", None, ((b"trace", b"1"), (b"\xff", None)))
    records, error = RecordFactory(
        read_one_batch(record_batch.encode_batch([raw], append_time=NOW + 9, leader_epoch=6))
    ).make_records(0, 1)
    headers = (("trace", b"1"), ("�", None))
    assert records == [
        ConsumerRecord("orders", 3, 4, NOW + 9, 1, b"k", None, headers, 6),
    ]
    assert error is None


def test_what_a_deserializer_does_not_understand_is_told_after_the_records_before_it() -> None:
    made = [
        BatchRecord(each, NOW, None, value) for each, value in enumerate((b"1", b"2", b"x", b"4"))
    ]
    making = RecordFactory(read_one_batch(record_batch.encode_batch(made)), value=int)
    for first, before in ((0, [1, 2]), (1, [2]), (2, [])):
        records, error = making.make_records(first, 100)
        assert [each.value for each in records] == before
        assert error is not None
        assert (error.offset, error.next_offset) == (2, 3)
        assert isinstance(error.__cause__, ValueError)


def test_records_are_made_some_at_a_time_of_batches_that_were_written_otherwise() -> None:
    """With another epoch, another kind of time, other sizes."""
    whole = read_one_batch(
        encode_records(0, 300, leader_epoch=4)
        + encode_records(300, 1, leader_epoch=5)
        + encode_records(301, 400, leader_epoch=5, append_time=NOW)
        + encode_records(10_000, 300, leader_epoch=-1)
    )
    making = RecordFactory(whole)
    every = making.make_records(0, len(whole))[0]
    assert [each.offset for each in every] == whole.offsets.tolist()
    assert [each.value for each in every] == [b"%d" % each for each in whole.offsets.tolist()]
    assert [each.timestamp for each in every] == whole.timestamps.tolist()
    assert [each.timestamp_type for each in every] == [0] * 301 + [1] * 400 + [0] * 300
    assert [each.leader_epoch for each in every] == [4] * 300 + [5] * 401 + [None] * 300
    for rows in (1, 7, 299, 500):
        found = [making.make_records(row, row + rows)[0] for row in range(0, len(whole), rows)]
        assert [each for some in found for each in some] == every


# Pieces of a buffer


def place_values(
    sizes: list[int], gaps: list[int] | None = None
) -> tuple[list[int], list[bytes | None]]:
    """Where pieces of these sizes are in ``NUMBERS``, and what they are."""
    starts, found = [], []
    at = 3
    for number, size in enumerate(sizes):
        starts.append(at)
        found.append(NUMBERS[at : at + size] if size >= 0 else None)
        at += max(size, 0) + (2 if gaps is None else gaps[number % len(gaps)])
    assert at <= len(NUMBERS)
    return starts, found


NUMBERS = random.Random(1).randbytes(100_000)


@pytest.mark.parametrize(
    ("sizes", "together"),
    [
        ([7] * 200, True),
        ([0] * 200, True),
        ([7] * (2 * MAX_UNPACK_COUNT + 1) + [8] * MAX_UNPACK_COUNT, True),
        ([7] * 100 + [8] * 100 + [0] * 200, True),
        ([7] * 400 + [9] + [7] * 400, True),
        ([7] * (2 * MIN_RUN_LENGTH), True),
        ([7] * (2 * MIN_RUN_LENGTH - 1), False),
        ([7] * 10, False),
        ([7], False),
        ([7, 8] * 100, False),
        ([-1] * 100, False),
        ([7] * 99 + [-1], False),
        ([-1] + [0] * 99, False),
        ([], False),
    ],
)
@pytest.mark.parametrize("gaps", [[2], [0], [11], [2] * 50 + [70]])
def test_pieces_of_a_buffer_are_cut_out_together_or_each_alone(
    sizes: list[int], together: bool, gaps: list[int]
) -> None:
    starts, expected = place_values(sizes, gaps)
    start, size = np.array(starts, dtype=np.int64), np.array(sizes, dtype=np.int64)
    frame = allocate_padded(len(NUMBERS))
    frame[:] = NUMBERS
    for buffer in (ByteBuffer([NUMBERS]), ByteBuffer([frame])):
        assert slice_buffer(buffer, start, size) == expected
        some = BytesColumn(buffer, start, size)
        for first, behind in ((0, 1), (3, 199), (99, 101), (399, 402), (600, 1_300)):
            assert some.slice_rows(first, min(behind, len(sizes))) == expected[first:behind]
        if min(sizes, default=-1) >= 0 and len(gaps) == 1:
            assert bool(_find_runs(start, size)) == together


def test_the_last_piece_may_end_where_the_buffer_does() -> None:
    size = np.full(200, 10)
    for behind in (0, 5):
        data = NUMBERS[: 2400 - 2 + behind]
        start = np.arange(200) * 12
        frame = allocate_padded(len(data) + 50)
        frame[: len(data)] = data
        for buffer in (ByteBuffer([data]), ByteBuffer([frame[: len(data)]])):
            found = slice_buffer(buffer, start, size)
            assert _find_runs(start, size)
            assert found == [data[at : at + 10] for at in start.tolist()]


@pytest.mark.parametrize("step", [6, 1, 0, -9])
def test_pieces_that_overlap_or_go_backwards_are_cut_out_all_the_same(step: int) -> None:
    start = 5_000 + step * np.arange(100)
    size = np.full(100, 7)
    buffer = ByteBuffer([NUMBERS])
    assert slice_buffer(buffer, start, size) == [NUMBERS[at : at + 7] for at in start.tolist()]
    turns = np.concatenate([start, 2_000 + 9 * np.arange(200)])  # then others, further ahead
    expected = [NUMBERS[at : at + 7] for at in turns.tolist()]
    assert slice_buffer(buffer, turns, np.full(300, 7)) == expected


def test_pieces_of_two_sizes_may_be_equally_far_apart() -> None:
    start = 20 * np.arange(300)
    for sizes in ([9, 5, 7], [5, 9, 5], [0, 20, 0]):
        size = np.repeat(sizes, 100)
        expected = [
            NUMBERS[at : at + each] for at, each in zip(start.tolist(), size.tolist(), strict=True)
        ]
        assert slice_buffer(ByteBuffer([NUMBERS]), start, size) == expected


def test_rows_of_a_slice_are_those_of_the_whole() -> None:
    made = [BatchRecord(each, NOW, b"%04d" % each, b"v%06d" % each) for each in range(500)]
    whole = read_one_batch(record_batch.encode_batch(made))
    assert whole[100:300].values() == [each.value for each in made[100:300]]
    assert whole[499:].keys() == [b"0499"]


def test_a_table_has_the_columns_of_its_rows() -> None:
    pytest.importorskip("pyarrow")
    fields: list[tuple[int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]] = [
        (NOW, b"k", None, ()),
        (-1, None, b"", ((b"a", None), (b"\xff", b"2"))),
        (NOW + 1, b"", b"v", ()),
    ]
    whole = read_one_batch(
        record_batch.encode_batch([BatchRecord(4 + n, *each) for n, each in enumerate(fields * 5)])
    )
    for rows in (slice(0, 15), slice(1, 2), slice(2, 12), slice(3, 3)):
        table = whole[rows].to_arrow()
        table.validate(full=True)
        expected = [
            {
                "key": key,
                "value": value,
                "topic": "orders",
                "partition": 3,
                "offset": 4 + number,
                "timestampType": 0,
                "headers": [
                    {"key": str(name, "utf-8", "replace"), "value": each} for name, each in pairs
                ]
                or None,
            }
            for number, (_, key, value, pairs) in list(enumerate(fields * 5))[rows]
        ]
        assert table.drop_columns("timestamp").to_pylist() == expected
        times = table.column("timestamp").cast("int64").to_pylist()
        given = [at for at, *_ in (fields * 5)[rows]]
        assert times == [None if at < 0 else at * 1000 for at in given]


def test_more_rows_than_arrow_can_count_the_bytes_of_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (found,) = read_batches(fetched_partition(encode_records(0, 3)))
    name = len(found.topic)
    monkeypatch.setattr(arrow, "MAX_COLUMN_BYTES", 3 * name)
    assert found.to_arrow().num_rows == 3
    monkeypatch.setattr(arrow, "MAX_COLUMN_BYTES", 3 * name - 1)
    with pytest.raises(InputError, match="3 rows are too many"):
        found.to_arrow()
    assert found[:2].to_arrow().num_rows == 2
