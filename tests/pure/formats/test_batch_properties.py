"""What holds of record batches for any records and any bytes."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.engine.formats import record_batch, record_batch_columns
from rota.engine.formats.record_batch import (
    HEADER,
    BatchProblemKind,
    BatchRecord,
    CompressionType,
    RecordReader,
    compute_crc32c,
)
from rota.errors import FormatError
from tests.support.examples import examples

NOW = 1_790_000_000_000
#: So many batches go step by step, few one by one.
CROWD = 200
small = st.none() | st.binary(max_size=12)
long = st.integers(60, 70).map(bytes) | st.integers(8_180, 8_200).map(bytes)
contents = st.one_of(small, small, long)
headers = st.lists(st.tuples(st.binary(max_size=5), contents), max_size=3).map(tuple)
timestamps = st.integers(NOW - 10_000, NOW + 10_000) | st.integers(-1, 2**62)


@st.composite
def record_lists(draw: st.DrawFn, most: int = 12) -> list[BatchRecord]:
    """Records with ascending offsets, gaps among them."""
    offset = draw(st.integers(0, 2**40))
    found = []
    for step in draw(st.lists(st.integers(1, 3) | st.integers(1, 2**20), max_size=most)):
        offset += step
        fields = draw(st.tuples(timestamps, contents, contents, headers))
        found.append(BatchRecord(offset, *fields))
    return found


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[BatchRecord], dict[str, Any]]:
    """Records, and how their batch is written."""
    made = draw(record_lists())
    first, last = (made[0].offset, made[-1].offset) if made else (5, 5)
    options = {
        "base_offset": first - draw(st.integers(0, 5)),
        "last_offset": last + draw(st.integers(0, 5)),
        "codec": draw(st.sampled_from(CompressionType)),
        "append_time": draw(st.none() | st.integers(0, 2**62)),
        "leader_epoch": draw(st.integers(-1, 2**31 - 1)),
        "producer_id": draw(st.integers(-1, 2**63 - 1)),
        "producer_epoch": draw(st.integers(-1, 2**15 - 1)),
        "base_sequence": draw(st.integers(-1, 2**31 - 1)),
        "transactional": draw(st.booleans()),
    }
    return made, options


def expected_records(made: list[BatchRecord], append_time: int | None) -> list[BatchRecord]:
    if append_time is None:
        return made
    return [record._replace(timestamp=append_time) for record in made]


@examples(quick=25)
@given(st.lists(batches(), max_size=6), st.integers(0, 2**40))
def test_round_trip(cases: list[tuple[list[BatchRecord], dict[str, Any]]], at: int) -> None:
    written = [record_batch.encode_batch(made, **options) for made, options in cases]
    columns = record_batch_columns.decode_batches(b"".join(written), at=at)
    assert columns.problems == ()
    expected = [expected_records(made, options["append_time"]) for made, options in cases]
    assert list(record_batch_columns.iterate_records(columns)) == [
        record for made in expected for record in made
    ]
    found = columns.batches
    assert found.size.tolist() == list(map(len, written))
    assert found.position.tolist() == [at + sum(map(len, written[:n])) for n in range(len(written))]
    assert found.count.tolist() == [len(made) for made, _ in cases]
    names = ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch")
    for name in (*names, "base_sequence", "transactional"):
        assert getattr(found, name).tolist() == [options[name] for _, options in cases]
    assert not found.control.any()


@examples(quick=25)
@given(st.lists(record_lists(most=4), max_size=4))
@settings(max_examples=50)
def test_many_batches_are_read_as_each_alone(cases: list[list[BatchRecord]]) -> None:
    """So many that they are read together."""
    written = [
        record_batch.encode_batch(made, base_offset=made[0].offset) for made in cases if made
    ]
    columns = record_batch_columns.decode_batches(b"".join(written * CROWD))
    alone = [
        record
        for raw in written
        for record in record_batch_columns.iterate_records(record_batch_columns.decode_batches(raw))
    ]
    assert columns.problems == ()
    assert list(record_batch_columns.iterate_records(columns)) == alone * CROWD


@given(record_lists(most=4), st.sampled_from(CompressionType))
@settings(max_examples=20)
def test_a_batch_cut_anywhere_is_one_problem(
    made: list[BatchRecord], codec: CompressionType
) -> None:
    raw = record_batch.encode_batch(made, base_offset=made[0].offset if made else 0, codec=codec)
    for end in range(1, len(raw), 1 + len(raw) // 200):
        columns = record_batch_columns.decode_batches(raw + raw[:end])
        (problem,) = columns.problems
        assert (problem.position, problem.size) == (len(raw), end)
        assert problem.kind in {BatchProblemKind.CUT, BatchProblemKind.ZEROS}
        assert len(columns) == len(made)


# Damage

edits = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 3),
        st.sampled_from([b"", b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff", b"\xff" * 5])
        | st.binary(max_size=3),
    ),
    min_size=1,
    max_size=4,
)


def with_changes(data: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    out = bytearray(data)
    for place, gone, new in changes:
        at = int(place * len(out))
        out[at : at + gone] = new
    return bytes(out)


def encode_with_crc(records: bytes, count: int, codec: int) -> bytes:
    """Any bytes as the records of a batch that is sound otherwise."""
    fields = (0, HEADER.size - 12 + len(records), 0, 2, 0, codec, 9, NOW, NOW, -1, -1, -1, count)
    raw = HEADER.pack(*fields) + records
    return raw[:17] + struct.pack(">I", compute_crc32c(raw[21:])) + raw[21:]


def check_problems(data: bytes, columns: record_batch_columns.RecordColumns) -> None:
    """Batches and problems lie side by side from the first byte to the last."""
    parts = [(each.position, each.size) for each in columns.problems]
    found = columns.batches
    parts += zip(found.position.tolist(), found.size.tolist(), strict=True)
    at = 0
    for position, size in sorted(parts):
        assert (position, size > 0) == (at, True)
        at += size
    assert at == len(data)
    assert (
        int(found.count.sum())
        == len(columns)
        == len(list(record_batch_columns.iterate_records(columns)))
    )


@examples(quick=25)
@given(st.lists(batches(), min_size=1, max_size=3), edits, st.booleans())
@settings(max_examples=400)
def test_damage_is_told_and_nothing_else_happens(
    cases: list[tuple[list[BatchRecord], dict[str, Any]]],
    changes: list[tuple[float, int, bytes]],
    check: bool,
) -> None:
    written = b"".join(record_batch.encode_batch(made, **options) for made, options in cases)
    data = with_changes(written, changes)
    check_problems(
        data, record_batch_columns.decode_batches(data, check=check, max_batch_bytes=1 << 20)
    )


@examples(quick=25)
@given(record_lists(), edits, st.integers(-1, 14), st.sampled_from([0, CROWD]))
@settings(max_examples=500)
def test_damaged_records_are_read_as_one_by_one_or_refused(
    made: list[BatchRecord], changes: list[tuple[float, int, bytes]], count: int, crowd: int
) -> None:
    """In a crowd of good batches too."""
    base = made[0].offset if made else 0
    body = with_changes(record_batch.encode_batch(made, base_offset=base)[HEADER.size :], changes)
    raw = encode_with_crc(body, count, CompressionType.NONE)
    good = record_batch.encode_batch([BatchRecord(3, NOW, b"k", b"v", ((b"h", None),))])
    columns = record_batch_columns.decode_batches(good * crowd + raw)
    assert len(columns.batches) + len(columns.problems) == crowd + 1
    expected = decode_one_by_one(body, count)
    if isinstance(expected, str):
        (problem,) = columns.problems
        assert (problem.kind, problem.text) == (BatchProblemKind.RECORDS, expected)
    else:
        assert list(record_batch_columns.iterate_records(columns))[crowd:] == expected


patterns = st.lists(st.tuples(timestamps, contents, contents, headers), min_size=1, max_size=8)


@examples(quick=25)
@given(patterns, st.integers(300, 900), st.integers(1, 70), edits | st.just([]))
@settings(max_examples=100)
def test_large_batches_are_read_as_one_by_one_or_refused(
    pattern: list[Any], count: int, step: int, changes: list[tuple[float, int, bytes]]
) -> None:
    """Their records are looked for at several places at once."""
    fields = pattern * (count // len(pattern) + 1)
    made = [BatchRecord(place * step, *fields[place]) for place in range(count)]
    body = with_changes(record_batch.encode_batch(made)[HEADER.size :], changes)
    columns = record_batch_columns.decode_batches(
        encode_with_crc(body, count, CompressionType.NONE)
    )
    expected = decode_one_by_one(body, count)
    if isinstance(expected, str):
        (problem,) = columns.problems
        assert (problem.kind, problem.text) == (BatchProblemKind.RECORDS, expected)
    else:
        assert list(record_batch_columns.iterate_records(columns)) == expected


def decode_one_by_one(body: bytes, count: int) -> list[BatchRecord] | str:
    """The records, or what is wrong with them."""
    if count == 0:  # then nobody looks at what is there instead
        return []
    try:
        return RecordReader(body).read_records(count, 0, NOW)
    except FormatError as error:
        return str(error)


nasty = st.sampled_from([b"\0", b"\2", b"\x7f\xff\xff\xff", b"\xff" * 9, b"\x80" * 10, b"\x10\0"])


@examples(quick=25)
@given(
    st.lists(nasty | st.binary(max_size=8), max_size=40).map(b"".join),
    st.integers(0, 7),
    st.sampled_from([0, 1, 2, 3, 1_000, 2**31 - 1, -1]),
)
@settings(max_examples=1_000)
def test_any_bytes_as_records_are_read_or_told(records: bytes, codec: int, count: int) -> None:
    data = encode_with_crc(records, count, codec)
    check_problems(data, record_batch_columns.decode_batches(data, max_batch_bytes=1 << 20))


@examples(quick=25)
@given(st.lists(nasty | st.binary(max_size=80), max_size=30).map(b"".join))
@settings(max_examples=1_000)
def test_any_bytes_are_told(data: bytes) -> None:
    check_problems(data, record_batch_columns.decode_batches(data, max_batch_bytes=1 << 20))


def test_what_a_few_bytes_can_make_of_memory_is_bounded() -> None:
    bombs = b"".join(
        record_batch.encode_batch([BatchRecord(0, NOW, None, bytes(1 << 22))], codec=codec)
        for codec in CompressionType
    )
    head = encode_with_crc(b"\0" * 10, 2**31 - 1, CompressionType.NONE)
    tracemalloc.start()
    try:
        columns = record_batch_columns.decode_batches(
            bombs[: len(bombs) // 2] + head, max_batch_bytes=1 << 20
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert columns.problems
    assert peak < 4 * len(bombs) + (8 << 20)
