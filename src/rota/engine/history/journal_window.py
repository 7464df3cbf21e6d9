"""The offset from which on the journal is complete for a group.

The journal is compacted: up to some offset only the last record of each key remains. That offset is
not stored, but the remaining records give bounds for it.

A classic group has one key, so its last records remain without a gap: the first of them gives the
group's state, and all later changes are known. The state of a consumer, share or streams group has
many keys, and the epoch is the last key but one at each change. Before the second remaining epoch,
records of other keys may be missing, so only their common state is known. From the second epoch on
all records are present. One exception: if a consumer group had just become a classic group, the
member whose leave caused that is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.engine.history.facts import JournalRecord
from rota.engine.model.consumer_group_entry import (
    ClientRecord,
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
from rota.engine.model.share_streams_entry import StreamsTopologyEntry

#: Entries about topics, which a change of the members may have or not.
_TOPICS = PartitionMetadataEntry | StreamsTopologyEntry


def is_new_group(entry: GroupMetadataEntry) -> bool:
    """Returns whether the group was just created: Kafka 4 saves it before a member joins."""
    return not entry.generation and not entry.members and entry.protocol is None


FIRST_EPOCH = 2  # of a new group; 1 before Kafka 4.1


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalWindow:
    """The part of the journal that has all of a group's records."""

    offset: int  # the state before this record and all changes from it on are known
    at: int  # the record's time
    is_whole: bool  # the group's first record is present


def find_window(records: Sequence[JournalRecord]) -> JournalWindow | None:
    """Returns the complete part of a group's journal without commits; None without records."""
    if not records:
        return None
    position, whole = find_compaction_edge(records)
    if position == len(records):
        last = records[-1]
        return JournalWindow(offset=last.offset + 1, at=last.at, is_whole=False)
    first = records[position]
    return JournalWindow(offset=first.offset, at=first.at, is_whole=whole)


def find_compaction_edge(records: Sequence[JournalRecord]) -> tuple[int, bool]:
    """Up to where records may be compacted, and whether the group's first record is present."""
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
    """Returns the start of the first change that is certainly complete and began in a stable group:
    while the epoch is newer than the target, members may have left.
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
    """Returns whether a record has state; a tombstone without an entry before it has none."""
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
        | _TOPICS,
    )


def _is_group_creation(records: Sequence[JournalRecord], start: int) -> bool:
    """Whether the group was created here: before its first epoch no member has partitions."""
    waiting = 0
    for position in range(start, len(records)):
        entry = records[position].entry
        following = next_entry_in_batch(records, position)
        match entry:
            case MemberMetadataEntry() if isinstance(following, CurrentMemberAssignmentEntry):
                if following.epoch >= FIRST_EPOCH or not entry.regex:
                    return False
                waiting += 1
            case ClientRecord():
                if waiting or not isinstance(following, ConsumerGroupMetadataEntry):
                    return False
                return following.epoch <= FIRST_EPOCH
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
    """The next entry if it is in the same batch, behind entries about topics."""
    for following in range(position + 1, len(records)):
        if records[following].offset != records[following - 1].offset + 1:
            break
        if not isinstance(records[following].entry, _TOPICS):
            return records[following].entry
    return None


def _find_batch_start(records: Sequence[JournalRecord], start: int, position: int) -> int:
    """Returns the position of the first record of the batch that ends in this epoch."""
    ending = (
        ConsumerGroupMetadataEntry
        | TargetAssignmentMetadataEntry
        | GroupMetadataEntry
        | GroupMetadataTombstone
    )
    for place in range(position, start, -1):
        earlier = records[place - 1]
        if earlier.offset != records[place].offset - 1 or isinstance(earlier.entry, ending):
            return place
    return start
