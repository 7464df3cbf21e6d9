"""What holds of the journal's format for any entry and any bytes."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.engine.formats import journal
from rota.engine.model.journal_entry import JournalEntry, OffsetCommitEntry
from rota.errors import FormatError
from tests.support.examples import examples
from tests.support.journal_entries import (
    Record,
    damaged_records,
    entries,
    foreign,
    noise,
    offsets,
    records,
)


@examples(quick=25)
@settings(max_examples=1_000)
@given(entries | foreign)
def test_round_trip(entry: JournalEntry) -> None:
    assert journal.decode_record(*journal.encode_entry(entry)) == entry


@examples(quick=25)
@settings(max_examples=300)
@given(records)
def test_cut_anywhere_is_refused(record: Record) -> None:
    key, value = record
    for end in range(len(key)):
        with pytest.raises(FormatError):
            journal.decode_record(key[:end], value)
    for end in range(len(value or b"")):
        with pytest.raises(FormatError):
            journal.decode_record(key, (value or b"")[:end])


@given(records, st.binary(min_size=1, max_size=5))
def test_bytes_behind_the_end_are_refused(record: Record, tail: bytes) -> None:
    key, value = record
    with pytest.raises(FormatError):
        journal.decode_record(key + tail, value)
    if value is not None:
        with pytest.raises(FormatError):
            journal.decode_record(key, value + tail)


def decode_anything(record: Record) -> None:
    """Refused with the right error, or read as something that is written and read again."""
    try:
        entry = journal.decode_record(*record)
    except FormatError:
        return
    again = journal.decode_record(*journal.encode_entry(entry))
    if isinstance(entry, OffsetCommitEntry) and entry.expire_timestamp != -1:
        assert isinstance(again, OffsetCommitEntry)
        assert again.expire_timestamp == entry.expire_timestamp
    else:
        assert again == entry


@examples(quick=25)
@settings(max_examples=2_000)
@given(damaged_records() | noise | st.tuples(st.binary(max_size=40), st.binary(max_size=60)))
def test_no_bytes_raise_anything_but_format_error(record: Record) -> None:
    decode_anything(record)


@pytest.mark.nightly
@settings(max_examples=50_000, deadline=None)
@given(damaged_records() | noise | st.tuples(st.binary(max_size=40), st.binary(max_size=200)))
def test_no_bytes_raise_anything_but_format_error_long(record: Record) -> None:
    decode_anything(record)


tags = st.lists(st.tuples(st.integers(1, 2**28), st.binary(max_size=200)), min_size=1, max_size=3)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


@examples(quick=25)
@given(offsets.filter(lambda entry: entry.expire_timestamp == -1), tags)
def test_unknown_tags_of_an_offset_change_nothing(
    entry: OffsetCommitEntry, unknown: list[tuple[int, bytes]]
) -> None:
    key, value = journal.encode_entry(entry)
    assert value
    known = 0 if entry.topic_id is None else 1
    at = len(value) - 1 - 18 * known
    more = b"".join(varint(tag) + varint(len(field)) + field for tag, field in unknown)
    count = bytes((known + len(unknown),))
    assert journal.decode_record(key, value[:at] + count + value[at + 1 :] + more) == entry
    assert journal.decode_record(key, value[:at] + count + more + value[at + 1 :]) == entry


@pytest.mark.parametrize("number", [*range(9), 16])
@pytest.mark.parametrize("count", [10**6, 2**28 - 1, 2**31 - 1, 2**32 - 1])
def test_huge_counts_allocate_nothing(number: int, count: int) -> None:
    key = bytes((0, number)) + b"\0\1g\0\1m"
    keys = [key[:5], key, key + bytes(4)]
    fronts = [bytes(2) + bytes(filler) for filler in range(16)] + [b"\0\4" + bytes(8), b"\0\3"]
    fields = [count.to_bytes(4, "big") * 5, varint(count) * 5, b"\1" + varint(count) * 5]
    tracemalloc.start()
    for record in [(k, front + field) for k in keys for front in fronts for field in fields]:
        with pytest.raises(FormatError):
            journal.decode_record(*record)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000
