"""A journal, replayed: the same entries as one by one, whatever else is in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.broker.groups import replay_journal
from rota.engine.coordinator.coordinator import Coordinator
from rota.engine.coordinator.events import JournalLoadStarted
from rota.engine.formats import journal, record_batch
from rota.engine.formats.record_batch import BatchRecord, ControlRecordType
from rota.engine.model.config import GroupConfig
from rota.engine.model.consumer_group_entry import ConsumerGroupMetadataEntry
from rota.engine.model.journal_entry import (
    ClassicEntry,
    GroupMetadataEntry,
    GroupMetadataMember,
    GroupMetadataTombstone,
    JournalEntry,
    OffsetCommitEntry,
    OffsetCommitTombstone,
    UnparsedEntry,
)
from rota.engine.model.share_streams_entry import ShareGroupMetadataEntry
from tests.support.examples import examples
from tests.support.transactions import encode_end_transaction_marker

NOW = 1_750_000_000_000


class PagedLog:
    """A log of batches, given out a few at a time."""

    def __init__(self, batches: Iterable[bytes], *, at_once: int = 1_000) -> None:
        self._batches = list(batches)
        self._at_once = at_once
        heads = [record_batch.read_batch_header(each) for each in self._batches]
        self._ends = [head.last_offset + 1 for head in heads]
        self.log_start_offset = heads[0].base_offset if heads else 0
        self.log_end_offset = self._ends[-1] if heads else 0

    def read(self, offset: int, max_bytes: int) -> bytes:
        first = next(at for at, end in enumerate(self._ends) if end > offset)
        return b"".join(self._batches[first : first + self._at_once])


def journal_log(*entries: JournalEntry) -> PagedLog:
    return PagedLog(encode_batches(entries))


def encode_batches(
    entries: Sequence[JournalEntry], *, per_batch: int = 3, base: int = 0
) -> list[bytes]:
    pairs = [journal.encode_entry(entry) for entry in entries]
    return [
        record_batch.encode_batch(
            [
                BatchRecord(base + offset, NOW, *pairs[offset])
                for offset in range(first, min(first + per_batch, len(pairs)))
            ]
        )
        for first in range(0, len(pairs), per_batch)
    ]


def commit_entry(offset: int, partition: int = 0, group: str = "g") -> OffsetCommitEntry:
    return OffsetCommitEntry(
        group=group, topic="t", partition=partition, offset=offset, commit_timestamp=NOW
    )


def commit_tombstone(partition: int = 0, group: str = "g") -> OffsetCommitTombstone:
    return OffsetCommitTombstone(group=group, topic="t", partition=partition)


def group_entry(generation: int, group: str = "g", members: int = 1) -> GroupMetadataEntry:
    return GroupMetadataEntry(
        group=group,
        protocol_type="consumer",
        generation=generation,
        protocol="range",
        leader="m0",
        members=tuple(
            GroupMetadataMember(
                member_id=f"m{number}",
                group_instance_id=None,
                client_id="c",
                client_host="/h",
                rebalance_timeout=1,
                session_timeout=1,
                subscription=b"",
                assignment=b"",
            )
            for number in range(members)
        ),
    )


def test_commits_that_another_follows_are_left_out() -> None:
    found: list[JournalEntry] = []
    replay_journal(
        journal_log(commit_entry(1), commit_entry(2), commit_entry(5, 1), commit_entry(3)),
        found.append,
    )
    assert found == [commit_entry(5, 1), commit_entry(3)]


def test_what_a_tombstone_ends_is_not_left_out() -> None:
    gone = GroupMetadataTombstone(group="g")
    found: list[JournalEntry] = []
    replay_journal(
        journal_log(commit_entry(1), commit_tombstone(), gone, commit_entry(2), commit_entry(3)),
        found.append,
    )
    assert found == [commit_entry(1), commit_tombstone(), gone, commit_entry(3)]


ENTRIES = st.lists(
    st.one_of(
        st.builds(commit_entry, st.integers(0, 9), st.integers(0, 1), st.sampled_from(("g", "h"))),
        st.builds(commit_tombstone, st.integers(0, 1), st.sampled_from(("g", "h"))),
        st.builds(group_entry, st.integers(0, 9), st.sampled_from(("g", "h")), st.integers(0, 2)),
        st.builds(GroupMetadataTombstone, group=st.sampled_from(("g", "h"))),
    ),
    max_size=24,
)


def replay_state(entries: Iterable[JournalEntry]) -> list[ClassicEntry]:
    coordinator = Coordinator(GroupConfig(), lambda: "id")
    coordinator.handle(JournalLoadStarted(), NOW)
    for entry in entries:
        coordinator.replay(entry)
    return list(coordinator.make_journal_snapshot())


@examples(quick=25)
@given(entries=ENTRIES, per_batch=st.integers(1, 5), at_once=st.integers(1, 4))
def test_what_comes_of_it_is_the_same_as_one_by_one(
    entries: list[ClassicEntry], per_batch: int, at_once: int
) -> None:
    found: list[JournalEntry] = []
    replay_journal(
        PagedLog(encode_batches(entries, per_batch=per_batch), at_once=at_once), found.append
    )
    assert replay_state(found) == replay_state(entries)


def test_other_groups_are_counted_by_their_kind() -> None:
    others: list[JournalEntry] = [
        ConsumerGroupMetadataEntry(group="new", epoch=2),
        ConsumerGroupMetadataEntry(group="new", epoch=3),
        ShareGroupMetadataEntry(group="", epoch=1, metadata_hash=0),
        UnparsedEntry(type=99, key=b"\0\x63\0\0", value=None),
    ]
    found: list[JournalEntry] = []
    told = replay_journal(journal_log(commit_entry(1), *others, group_entry(1)), found.append)
    assert found == [commit_entry(1), group_entry(1)]
    assert told.skipped_types == Counter(ConsumerGroupMetadata=2, ShareGroupMetadata=1, unknown=1)
    assert told.errors == []
    assert told.records == 6


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\0\1", b"\0\4"), (b"", b""), (b"\0\2\0\1g", b"\0\x63"), (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0")],
)
def test_records_that_cannot_be_read_are_told_of(key: bytes, value: bytes) -> None:
    good = [BatchRecord(at, NOW, *journal.encode_entry(commit_entry(at, at))) for at in range(2)]
    data = record_batch.encode_batch([good[0], BatchRecord(1, NOW, key, value)._replace(offset=1)])
    found: list[JournalEntry] = []
    told = replay_journal(
        PagedLog([data, record_batch.encode_batch([good[1]._replace(offset=2)])]), found.append
    )
    assert found == [commit_entry(0), commit_entry(1, 1)]
    (line,) = told.errors
    assert line.startswith("offset 1: ")


def test_transactions_count_when_they_are_committed() -> None:
    def part(entry: JournalEntry, base: int, producer: int) -> bytes:
        return record_batch.encode_batch(
            [BatchRecord(base, NOW, *journal.encode_entry(entry))],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=base,
            transactional=True,
        )

    def end(kind: ControlRecordType, base: int, producer: int) -> bytes:
        return encode_end_transaction_marker(
            kind, offset=base, timestamp=NOW, producer_id=producer, producer_epoch=0
        )

    pages = [
        part(commit_entry(10), 0, 1),
        part(commit_entry(20, 1), 1, 2),
        *encode_batches([commit_entry(5)], base=2),
        end(ControlRecordType.COMMIT, 3, 1),
        part(commit_entry(30), 4, 2),
        end(ControlRecordType.ABORT, 5, 2),
        part(commit_entry(40), 6, 3),
    ]
    for at_once in range(1, len(pages) + 1):
        found: list[JournalEntry] = []
        replay_journal(PagedLog(pages, at_once=at_once), found.append)
        assert found == [commit_entry(5), commit_entry(10)]


def test_an_empty_journal_has_nothing_to_say() -> None:
    found: list[JournalEntry] = []
    assert replay_journal(PagedLog([]), found.append).records == 0
    assert found == []
