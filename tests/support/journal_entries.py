"""Any entry of the journal, made from the model's own types."""

from __future__ import annotations

from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from rota.engine.formats import journal
from rota.engine.formats.journal_modern import RECORD_TYPES
from rota.engine.formats.primitive import UUID_SIZE
from rota.engine.model.journal_entry import (
    ClassicEntry,
    JournalEntry,
    OffsetCommitEntry,
    OffsetCommitTombstone,
    UnparsedEntry,
)

#: Fields of 64 bits, and those whose names end in one of these; all others have 32, states 8.
WIDE = {"offset", "metadata_hash", "version", "timestamp"}
#: Every class of entries that is read.
ENTRY_TYPES = (
    *get_args(ClassicEntry),
    *(kind for record in RECORD_TYPES for kind in (record.saved, record.forgotten)),
)


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


text = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    ["x" * 126, "x" * 127, "ü" * 64, "x" * 300]  # lengths of one byte and of two
)
ids = st.binary(min_size=16, max_size=16).filter(any)


def field_values(kind: Any, field: str) -> st.SearchStrategy[Any]:
    """Values of a type, as wide as the field allows."""
    if isinstance(kind, UnionType):
        return st.one_of(*(field_values(option, field) for option in get_args(kind)))
    if get_origin(kind) is tuple:
        return st.lists(field_values(get_args(kind)[0], field), max_size=3).map(tuple)
    if kind is int:
        if field == "port":
            return st.integers(0, 2**16 - 1)
        wide = field in WIDE or field.endswith("_timestamp")
        narrow = field == "replication_factor" or field.endswith("_places")
        return integers(64 if wide else 8 if field == "state" else 16 if narrow else 32)
    if kind is bytes:
        return ids if field == "topic_id" else st.binary(max_size=20)
    plain = {str: text, type(None): st.none()}
    return plain[kind] if kind in plain else entries_of_type(kind)


def entries_of_type(kind: type, **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Instances of a class, field by field."""
    fields = {field: field_values(hint, field) for field, hint in get_type_hints(kind).items()}
    return st.builds(kind, **(fields | fixed))


lasting = entries_of_type(OffsetCommitEntry, expire_timestamp=st.just(-1))
expiring = entries_of_type(
    OffsetCommitEntry,
    expire_timestamp=integers(64).filter(lambda timestamp: timestamp != -1),
    leader_epoch=st.just(-1),
    topic_id=st.none(),
)
#: An offset that expires has room neither for an epoch nor for a topic's id.
offsets: st.SearchStrategy[OffsetCommitEntry] = lasting | expiring
others = [entries_of_type(kind) for kind in ENTRY_TYPES if kind is not OffsetCommitEntry]
#: Every kind that is read, each as often as any other.
entries: st.SearchStrategy[JournalEntry] = st.one_of(offsets, *others)
foreign = st.builds(
    lambda number, rest, value: UnparsedEntry(
        type=number, key=number.to_bytes(2, "big") + rest, value=value
    ),
    st.integers(24, 2**15 - 1),
    st.binary(max_size=20),
    st.none() | st.binary(max_size=20),
)

Record = tuple[bytes, bytes | None]
records: st.SearchStrategy[Record] = entries.map(journal.encode_entry)
values_only = records.filter(lambda record: record[1] is not None)


@st.composite
def damaged_records(draw: st.DrawFn) -> Record:
    """A record with a few bytes changed, put in or taken out."""
    pieces = [bytearray(piece or b"") for piece in draw(values_only)]
    for _ in range(draw(st.integers(1, 3))):
        piece = pieces[draw(st.integers(0, 1))]
        at = draw(st.integers(0, len(piece)))
        new = draw(st.sampled_from([b"", b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff"]))
        piece[at : at + draw(st.integers(0, 2))] = new
    return bytes(pieces[0]), bytes(pieces[1])


numbers = st.integers(0, 24).map(lambda n: n.to_bytes(2, "big"))
bits = st.sampled_from([b"\0\0", b"\0\1", b"\0\4", b"\x7f\xff\xff\xff", b"\xff" * 4, b"\x80" * 5])
nasty = st.lists(bits | st.binary(max_size=6), max_size=12).map(b"".join)
noise = st.tuples(st.builds(lambda head, rest: head + rest, numbers, nasty), st.none() | nasty)


def read_commit_row(
    entries: journal.EntryColumns, at: int
) -> OffsetCommitEntry | OffsetCommitTombstone:
    """Returns a row of ``entries.commits`` as an entry."""
    commits, data = entries.commits, entries.buffer.data
    group = entries.groups[int(commits.group[at])]
    topic = entries.topics[int(commits.topic[at])]
    partition = int(commits.partition[at])
    if commits.tombstone[at]:
        return OffsetCommitTombstone(group=group, topic=topic, partition=partition)
    metadata, topic_id = int(commits.metadata_start[at]), int(commits.topic_id_start[at])
    return OffsetCommitEntry(
        group=group,
        topic=topic,
        partition=partition,
        offset=int(commits.offset[at]),
        leader_epoch=int(commits.leader_epoch[at]),
        metadata=data[metadata : metadata + int(commits.metadata_size[at])].decode(),
        commit_timestamp=int(commits.commit_timestamp[at]),
        expire_timestamp=int(commits.expire_timestamp[at]),
        topic_id=None if topic_id < 0 else data[topic_id : topic_id + UUID_SIZE],
    )
