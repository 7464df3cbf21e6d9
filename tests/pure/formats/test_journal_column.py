"""Journal records as columns are what the decoder of single records reads, whatever they are."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.engine.formats import journal, record_batch, record_batch_columns
from rota.engine.formats.buffer import ByteBuffer
from rota.engine.model.journal_entry import (
    JournalEntry,
    OffsetCommitEntry,
    OffsetCommitTombstone,
    UnparsedEntry,
)
from rota.errors import FormatError
from tests.support.examples import examples
from tests.support.journal_entries import (
    damaged_records,
    entries,
    foreign,
    ids,
    integers,
    noise,
    offsets,
    read_commit_row,
    text,
)
from tests.support.transactions import encode_end_transaction_marker

Record = tuple[bytes, bytes | None]

#: Key and value of an offset in version 3, in which only the metadata has a length.
OFFSET = (
    struct.pack(">hh1sh1si", 1, 1, b"g", 1, b"t", 0),
    struct.pack(">hqih4sq", 3, 7, 2, 4, b"note", 1_700_000_000_000),
)


@st.composite
def versioned_records(draw: st.DrawFn) -> Record:
    """An offset in any version that ever was."""
    entry = draw(offsets)
    key, _ = journal.encode_entry(entry)
    version = draw(st.integers(0, 4))
    metadata = draw(text).encode()
    value = struct.pack(">hq", version, entry.offset)
    if version >= 3:
        value += struct.pack(">i", draw(integers(32)))
    if version == 4:
        size = len(metadata) + 1
        value += bytes([size & 127 | 128, size >> 7] if size > 127 else [size]) + metadata
        tags = [b"\0", b"\1\0\x10" + draw(ids), b"\1\0\x10" + bytes(16), b"\1\5\2xx"]
        value += struct.pack(">q", entry.commit_timestamp) + draw(st.sampled_from(tags))
    else:
        value += struct.pack(">h", len(metadata)) + metadata
        value += struct.pack(">q", entry.commit_timestamp)
        value += struct.pack(">q", draw(integers(64))) if version == 1 else b""
    return bytes([0, draw(st.integers(0, 1))]) + key[2:], value


keys = st.binary(max_size=12) | st.integers(0, 30).map(lambda kind: bytes([0, kind]))
sound: st.SearchStrategy[Record] = st.one_of(
    offsets.map(journal.encode_entry),
    versioned_records(),
    (entries | foreign).map(journal.encode_entry),
)
records = st.one_of(
    sound, sound, damaged_records(), noise, st.tuples(keys, st.none() | st.binary(max_size=30))
)


def decode_columns(case: Sequence[Record]) -> journal.EntryColumns:
    """Keys and values as two columns of bytes, one behind the other."""
    pieces = [[key for key, _ in case], [value or b"" for _, value in case]]
    joined = [b"".join(each) for each in pieces]
    sizes = [np.array([len(piece) for piece in each], dtype=np.int64) for each in pieces]
    starts = [np.cumsum(each) - each for each in sizes]
    null = np.array([value is None for _, value in case], dtype=np.bool_)
    return journal.decode_entries(
        ByteBuffer(joined),
        journal.Slices(starts[0], sizes[0]),
        journal.Slices(starts[1] + len(joined[0]), np.where(null, -1, sizes[1])),
    )


def decode_single(record: Record) -> JournalEntry | None:
    try:
        return journal.decode_record(*record)
    except FormatError:
        return None


def check_columns(case: Sequence[Record], found: journal.EntryColumns) -> None:
    """Every record is an offset, left to the other decoder, or one whose group at most is told."""
    assert len(found) == len(case)
    commits = {row: read_commit_row(found, at) for at, row in enumerate(found.commits.row.tolist())}
    left = set(found.undecoded_rows.tolist())
    assert not left & commits.keys()
    for row, record in enumerate(case):
        entry = decode_single(record)
        if row in commits:
            assert commits[row] == entry
        elif row not in left:
            check_other(record, entry, found, row)


def check_other(
    record: Record, entry: JournalEntry | None, found: journal.EntryColumns, row: int
) -> None:
    key, _ = record
    assert not isinstance(entry, OffsetCommitEntry | OffsetCommitTombstone)
    assert found.type[row] == int.from_bytes(key[:2], signed=True)
    group = found.group[row]
    if isinstance(entry, UnparsedEntry):
        told = key[4 : 4 + int.from_bytes(key[2:4])]
        assert group == journal.NO_GROUP or found.groups[group].encode() == told
    elif entry is not None:
        assert found.groups[group] == entry.group


@pytest.mark.parametrize("kind", [0, 1], ids=["before 0.9", "today"])
@pytest.mark.parametrize(
    "wrong", [lambda value: b"", lambda value: value + b"x"], ids=["empty", "a byte too many"]
)
def test_an_offset_whose_value_does_not_follow_the_format_is_left(
    kind: int, wrong: Callable[[bytes], bytes]
) -> None:
    """Neither a tombstone, nor a commit: the other decoder says what is wrong with it."""
    key, value = OFFSET
    good = bytes([0, kind]) + key[2:]
    case: list[Record] = [(good, value), (good, wrong(value)), (good, None)]
    found = decode_columns(case)
    assert found.undecoded_rows.tolist() == [1]
    assert found.commits.row.tolist() == [0, 2]
    assert found.commits.tombstone.tolist() == [False, True]
    check_columns(case, found)


@examples(quick=25)
@given(st.lists(records, max_size=30))
@settings(max_examples=500)
def test_any_records_are_read_as_one_by_one(case: list[Record]) -> None:
    check_columns(case, decode_columns(case))


@examples(quick=25)
@given(st.lists(offsets.map(journal.encode_entry), max_size=30))
def test_offsets_as_kafka_writes_them_are_never_left(case: list[Record]) -> None:
    found = decode_columns(case)
    assert found.commits.row.tolist() == list(range(len(case)))
    assert len(found.undecoded_rows) == 0


@examples(quick=25)
@given(st.lists(sound, min_size=1, max_size=8), st.sampled_from(record_batch.CompressionType))
def test_records_of_batches_are_read_and_markers_are_not(
    case: list[Record], codec: record_batch.CompressionType
) -> None:
    marker = encode_end_transaction_marker(
        record_batch.ControlRecordType.COMMIT,
        offset=0,
        timestamp=0,
        producer_id=1,
        producer_epoch=0,
    )
    written = [record_batch.BatchRecord(at, 0, *record) for at, record in enumerate(case)]
    columns = record_batch_columns.decode_batches(
        marker + record_batch.encode_batch(written, codec=codec) + marker
    )
    found = journal.decode_batch_entries(columns)
    assert found.type[[0, -1]].tolist() == [journal.NO_TYPE] * 2
    assert not {0, len(columns) - 1} & set(found.undecoded_rows.tolist())
    assert not {0, len(columns) - 1} & set(found.commits.row.tolist())
    alone = decode_columns(case)
    assert (found.commits.row - 1).tolist() == alone.commits.row.tolist()
    assert [read_commit_row(found, at) for at in range(len(found.commits))] == [
        read_commit_row(alone, at) for at in range(len(alone.commits))
    ]


def test_a_record_without_a_key_is_left() -> None:
    columns = record_batch_columns.decode_batches(
        record_batch.encode_batch([record_batch.BatchRecord(0, 0, None, b"value")])
    )
    found = journal.decode_batch_entries(columns)
    assert (found.undecoded_rows.tolist(), found.type.tolist()) == ([0], [journal.NO_TYPE])


def test_no_records_are_no_entries() -> None:
    found = decode_columns([])
    assert (len(found), len(found.commits), found.groups, found.topics) == (0, 0, (), ())
