"""From which offset on the journal is complete for a group.

The journal is compacted: up to some offset only the last record of each key is left, and after it
every record is there. That offset is not written anywhere, but the records that are left limit
where it can be.

A classic group has one key, so its last records are left, without a gap: everything after the first
of them is known, and that one gives the group's state. The state of a consumer group is spread over
many keys, and the epoch's key is written last but one at every change. Before the second epoch that
is left, records of other keys may be missing, so only the state that they give together is known;
from the second on everything is there. In both cases the state at the beginning of the window is
known, and all changes after it are complete. One exception: if a consumer group had just become a
classic group, it is not known which member's leaving caused that.

Commits have a key for each partition: :func:`first_complete_offset` returns the offset from which
on all of them are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rota.engine.history.facts import JournalRecord
from rota.engine.model.consumer_group_entry import (
    ConsumerGroupMetadataEntry,
    ConsumerGroupMetadataTombstone,
    CurrentMemberAssignmentEntry,
    CurrentMemberAssignmentTombstone,
    MemberMetadataEntry,
    MemberMetadataTombstone,
    PartitionMetadataEntry,
    PartitionMetadataTombstone,
    RegularExpressionEntry,
    RegularExpressionTombstone,
    TargetAssignmentMemberTombstone,
    TargetAssignmentMetadataEntry,
    TargetAssignmentMetadataTombstone,
)
from rota.engine.model.journal_entry import GroupMetadataEntry, GroupMetadataTombstone, JournalEntry


def is_new_group(entry: GroupMetadataEntry) -> bool:
    """Returns whether the group was just created: Kafka 4 saves it before a member joins."""
    return not entry.generation and not entry.members and entry.protocol is None


#: Of a new group; 1 before Kafka 4.1.
FIRST_EPOCH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalWindow:
    """The part of the journal that has all of a group's records."""

    #: Its state before this record is known, and from it on every change.
    offset: int
    #: The record's time.
    at: int
    #: The group's first record is there: nothing is missing.
    whole: bool


def find_window(records: Sequence[JournalRecord]) -> JournalWindow | None:
    """From where on a group's records are all there; None if it has none.

    ``records`` are the group's own in journal order, without commits.
    """
    if not records:
        return None
    position, whole = find_compaction_edge(records)
    if position == len(records):
        last = records[-1]
        return JournalWindow(offset=last.offset + 1, at=last.at, whole=False)
    first = records[position]
    return JournalWindow(offset=first.offset, at=first.at, whole=whole)


def find_compaction_edge(records: Sequence[JournalRecord]) -> tuple[int, bool]:
    """The position up to which a group's records may be what compaction left of more, and whether
    the group's first record is there.
    """
    start = next((i for i, one in enumerate(records) if _carries_state(one)), len(records))
    if start == len(records):
        return start, False
    entry = records[start].entry
    if isinstance(entry, GroupMetadataEntry):
        return start, start == 0 and is_new_group(entry)
    if _is_group_creation(records, start):
        return start, start == 0
    return _find_second_change(records, start), False


def _find_second_change(records: Sequence[JournalRecord], start: int) -> int:
    """Where the first change begins that is surely whole, and comes upon a settled group.

    While the group is in a newer epoch than its target, members of that target may be gone: the
    generation that a rebalance began from can then not be told.
    """
    epoch = target = None
    for position in range(start, len(records)):
        match records[position].entry:
            case ConsumerGroupMetadataEntry(epoch=number):
                if epoch is not None and epoch == target:
                    return _find_batch_start(records, start, position)
                epoch = number
            case TargetAssignmentMetadataEntry(epoch=number):
                target = number
            case ConsumerGroupMetadataTombstone():
                return _find_batch_start(records, start, position)
            case _:
                pass
    return len(records)


def _carries_state(record: JournalRecord) -> bool:
    """Whether a record carries state; a tombstone with nothing before it does not."""
    return not isinstance(
        record.entry,
        GroupMetadataTombstone
        | ConsumerGroupMetadataTombstone
        | MemberMetadataTombstone
        | TargetAssignmentMetadataTombstone
        | TargetAssignmentMemberTombstone
        | CurrentMemberAssignmentTombstone
        | RegularExpressionTombstone
        | PartitionMetadataTombstone
        | PartitionMetadataEntry,
    )


def _is_group_creation(records: Sequence[JournalRecord], start: int) -> bool:
    """The consumer group was made here.

    Its first epoch is there, and in front of it just the member that made it, or such as wait for
    their regular expression to be matched: they have nothing yet, which is saved at once.
    """
    waiting = 0
    for position in range(start, len(records)):
        entry = records[position].entry
        following = next_entry_in_batch(records, position)
        match entry:
            case MemberMetadataEntry() if isinstance(following, CurrentMemberAssignmentEntry):
                if following.epoch >= FIRST_EPOCH or not entry.regex:
                    return False
                waiting += 1
            case MemberMetadataEntry():
                made = (
                    isinstance(following, ConsumerGroupMetadataEntry)
                    and following.epoch <= FIRST_EPOCH
                )
                return made and not waiting
            case ConsumerGroupMetadataEntry():
                return waiting > 0 and entry.epoch <= FIRST_EPOCH
            case (
                CurrentMemberAssignmentEntry() | RegularExpressionEntry() | PartitionMetadataEntry()
            ) if waiting:
                pass
            case _:
                return False
    return waiting > 0


def next_entry_in_batch(records: Sequence[JournalRecord], position: int) -> JournalEntry | None:
    """Returns the entry after a position if it was written in the same batch. Topics that
    Kafka before 4.1 wrote between a member and its epoch are skipped.
    """
    for following in range(position + 1, len(records)):
        if records[following].offset != records[following - 1].offset + 1:
            break
        if not isinstance(records[following].entry, PartitionMetadataEntry):
            return records[following].entry
    return None


def _find_batch_start(records: Sequence[JournalRecord], start: int, position: int) -> int:
    """Returns the position of the first record of the batch that ends in this epoch."""
    while (
        position > start
        and records[position - 1].offset == records[position].offset - 1
        and not isinstance(
            records[position - 1].entry,
            ConsumerGroupMetadataEntry
            | TargetAssignmentMetadataEntry
            | GroupMetadataEntry
            | GroupMetadataTombstone,
        )
    ):
        position -= 1
    return position


def first_complete_offset(offsets: npt.NDArray[np.int64]) -> int:
    """The offset from which on a partition of the journal has all its records, commits too.

    ``offsets`` are those of all records of the partition, transaction markers included, ascending:
    records are numbered without a gap, so where a number is missing compaction took it.
    """
    if not len(offsets):
        return 0
    gaps = np.flatnonzero(np.diff(offsets) > 1)
    return int(offsets[gaps[-1] + 1] if len(gaps) else offsets[0])
