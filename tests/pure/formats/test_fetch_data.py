"""What is read out of a frame, where it lies, is what was written; whatever lies around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.client.fetch import Batch, FetchedPartition, read_batches
from rota.engine.formats import record_batch, record_batch_columns
from rota.engine.formats.buffer import allocate_padded
from rota.engine.formats.record_batch import HEADER, BatchRecord, CompressionType
from rota.engine.model.topic import TopicPartition
from rota.errors import RecordError
from tests.pure.formats.test_batch_properties import edits, encode_with_crc, with_changes
from tests.support.examples import examples

NOW = 1_790_000_000_000
SOURCE = TopicPartition("orders", 3)
#: Bytes from which on a value is not repeated that often.
LONG = 1_000

fills = st.sampled_from([b"\0", b"\2", b"\x0c", b"\x7f", b"\x80", b"\xff"])
sizes = st.one_of(
    st.integers(0, 12), st.integers(44, 70), st.integers(500, 530), st.integers(8_170, 8_200)
)
contents = st.none() | st.builds(lambda fill, size: fill * size, fills, sizes)
names = st.sampled_from([b"", b"trace", b"\xff\xfe", "größe".encode()])
headers = st.just(()) | st.lists(st.tuples(names, contents), max_size=3).map(tuple)
deltas = st.sampled_from([0, 1, 63, 64, 8191, 8192, 1 << 20, 1 << 27, 1 << 34, (1 << 40) + 5])
timestamps = st.builds(lambda delta, sign: NOW + sign * delta, deltas, st.sampled_from([1, 1, -1]))
Shape = tuple[int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]
shapes = st.tuples(timestamps, contents, contents, headers)


@dataclass(frozen=True)
class WrittenLog:
    """A batch, and what it is made of."""

    data: bytes
    records: list[BatchRecord]
    #: The offset behind it.
    end: int


def count_records(shape: Shape) -> int:
    _, key, value, pairs = shape
    return len(key or b"") + len(value or b"") + sum(len(each or b"") for _, each in pairs)


@st.composite
def logs(draw: st.DrawFn) -> list[WrittenLog]:
    """Batches, of few or many records: runs of one size, and others between them."""
    offset = draw(st.integers(0, 2**40))
    found = []
    for _ in range(draw(st.sampled_from([1, 1, 2, 3, 20]))):
        made: list[BatchRecord] = []
        base = offset
        for shape in draw(st.lists(shapes, max_size=4)):
            step = draw(st.sampled_from([1, 1, 1, 2, 70, 9_000]))
            times = draw(st.sampled_from([1, 1, 2, 5, 35, 70, 300]))
            for _ in range(times if count_records(shape) < LONG else min(times, 70)):
                made.append(BatchRecord(offset, *shape))
                offset += step
        offset += draw(st.integers(0, 2))
        data = record_batch.encode_batch(
            made, base_offset=base, last_offset=offset, codec=draw(st.sampled_from(CompressionType))
        )
        offset += 1
        found.append(WrittenLog(data, made, offset))
    return found


def copy_into_frame(data: bytes, before: bytes, behind: bytes, room: bytes) -> memoryview:
    """The data in the middle of an answer that the socket was read into."""
    frame = allocate_padded(len(before) + len(data) + len(behind))
    frame[:] = before + data + behind
    whole = frame.obj
    assert isinstance(whole, np.ndarray)
    left = len(whole) - len(frame)
    whole[len(frame) :] = np.frombuffer((room * left)[:left], np.uint8)
    return frame[len(before) : len(before) + len(data)]


def read_fetch_data(
    records: memoryview, offset: int, portion: int
) -> tuple[list[Batch], str | None]:
    """The batches, and what is said to be wrong behind them."""
    answer = FetchedPartition(SOURCE, 0, offset, records, 2**62, 2**62, 0, ())
    found: list[Batch] = []
    try:
        found += read_batches(answer, portion=portion)
    except RecordError as error:
        return found, str(error)
    return found, None


def columns_of(each: Batch) -> list[BatchRecord]:
    """By the columns' own ways."""
    pairs = [
        tuple((name.encode(), value) for name, value in some) for some in map(list, each.headers())
    ]
    lists = (each.offsets.tolist(), each.timestamps.tolist(), each.keys(), each.values(), pairs)
    return [BatchRecord(*fields) for fields in zip(*lists, strict=True)]


def arrow_of(each: Batch) -> list[BatchRecord]:
    """The same by way of Arrow."""
    made = each.to_arrow()
    made.validate(full=True)
    assert made.column("topic").to_pylist() == [SOURCE.topic] * len(each)
    assert made.column("partition").to_pylist() == [SOURCE.partition] * len(each)
    assert made.column("timestampType").to_pylist() == [0] * len(each)
    pairs = [
        tuple((pair["key"].encode(), pair["value"]) for pair in some or ())
        for some in made.column("headers").to_pylist()
    ]
    lists: list[list[Any]] = [
        made.column("offset").to_pylist(),
        [at // 1_000 for at in made.column("timestamp").cast("int64").to_pylist()],
        made.column("key").to_pylist(),
        made.column("value").to_pylist(),
        pairs,
    ]
    return [BatchRecord(*fields) for fields in zip(*lists, strict=True)]


def readable(record: BatchRecord) -> BatchRecord:
    """With names as they come out of a text."""
    pairs = [(str(name, "utf-8", "replace").encode(), value) for name, value in record.headers]
    return record._replace(headers=tuple(pairs))


@examples(quick=25)
@given(
    logs(),
    st.floats(0, 1) | st.just(1.0),
    st.integers(0, 90),
    st.binary(max_size=40),
    st.binary(min_size=1, max_size=16),
    st.sampled_from([1 << 20, 1 << 20, 3_000]),
)
@settings(max_examples=100, deadline=None)
def test_an_answer_anywhere_in_a_frame_gives_the_records_of_its_whole_batches(
    log: list[WrittenLog], place: float, before: int, behind: bytes, room: bytes, portion: int
) -> None:
    whole = b"".join(each.data for each in log)
    data = whole[: int(place * len(whole))]
    fits = [
        each
        for number, each in enumerate(log)
        if sum(len(one.data) for one in log[: number + 1]) <= len(data)
    ]
    first = int.from_bytes(log[0].data[:8], "big")
    expected = [readable(record) for each in fits for record in each.records]
    views = [
        copy_into_frame(data, b"\x55" * before, behind, room),
        copy_into_frame(
            data, bytes(before), whole[len(data) :], b"\xff"
        ),  # as if it had not been cut
        memoryview(data),
    ]
    for view in views:
        batches, problem = read_fetch_data(view, first, portion)
        assert (problem is None) == bool(fits or not data)
        raw = [
            record
            for each in batches
            for record in record_batch_columns.iterate_records(each.columns)
        ]
        assert list(map(readable, raw)) == expected
        assert [record for each in batches for record in columns_of(each)] == expected
        assert [record for each in batches for record in arrow_of(each)] == expected
        assert [each.next_offset for each in batches][-1:] == [each.end for each in fits][-1:]
        if batches and not any(record_batch.read_batch_header(each.data).codec for each in fits):
            in_place = {each.columns.buffer.view.obj is view.obj for each in batches}
            assert in_place == {view is not views[-1]}


@examples(quick=25)
@given(
    st.lists(st.integers(6, 40), min_size=1, max_size=5),
    st.integers(1, 60),
    edits,
    st.integers(0, 400),
    st.binary(min_size=1, max_size=24),
)
@settings(max_examples=300, deadline=None)
def test_what_is_wrong_with_records_is_told_the_same_whatever_lies_behind_them(
    lengths: list[int],
    times: int,
    changes: list[tuple[float, int, bytes]],
    count: int,
    behind: bytes,
) -> None:
    made = [BatchRecord(each, NOW, None, bytes(size)) for each, size in enumerate(lengths * times)]
    body = with_changes(record_batch.encode_batch(made)[HEADER.size :], changes)
    data = encode_with_crc(body, min(count, len(made)) or len(made), 0)
    alone, problem = read_fetch_data(memoryview(data), 0, 1 << 20)
    expected = [record for each in alone for record in columns_of(each)]
    for view in (
        copy_into_frame(data, b"", b"", behind),
        copy_into_frame(data, b"\0", 2 * behind, b"\xff"),
    ):
        batches, told = read_fetch_data(view, 0, 1 << 20)
        assert told == problem
        assert [record for each in batches for record in columns_of(each)] == expected
