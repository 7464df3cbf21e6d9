"""What the journal says, worked out a second time: to compare with what the coordinator says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from rota.engine.formats import consumer_protocol
from rota.engine.model.journal_entry import (
    ClassicEntry,
    GroupMetadataEntry,
    GroupMetadataMember,
    GroupMetadataTombstone,
    OffsetCommitEntry,
    OffsetCommitTombstone,
)
from rota.engine.model.member import NO_GENERATION, Subscription
from rota.engine.model.topic import TopicPartition
from tests.support.simulation.rule import RuleViolation, must

COOPERATIVE = "cooperative-sticky"


def _nobody(group: str) -> GroupMetadataEntry:
    return GroupMetadataEntry(
        group=group, protocol_type="", generation=0, protocol=None, leader=None
    )


@dataclass(slots=True)
class StoredGroup:
    saved: GroupMetadataEntry
    #: Tells generations of one number apart: one that was not stored may come again.
    incarnation: int = 0
    offsets: dict[TopicPartition, OffsetCommitEntry] = field(default_factory=dict)

    def member(self, member_id: str) -> GroupMetadataMember | None:
        return next((one for one in self.saved.members if one.member_id == member_id), None)


class Stored:
    """The journal, replayed entry by entry as it is written."""

    def __init__(self) -> None:
        self.groups: dict[str, StoredGroup] = {}

    def apply(self, entry: ClassicEntry, incarnation: int) -> None:
        known = self.groups.get(entry.group)
        match entry:
            case GroupMetadataEntry():
                _check_members(entry)
                if known is None:
                    self.groups[entry.group] = StoredGroup(entry, incarnation)
                else:
                    _check_successor(known.saved, entry)
                    known.saved, known.incarnation = entry, incarnation
            case GroupMetadataTombstone():
                gone = self.groups.pop(entry.group, None)
                must(gone is not None, "tombstone", "of a group that there was not:", entry.group)
                if gone is not None and gone.offsets:
                    raise RuleViolation("tombstone", f"of {entry.group}, whose offsets stay")
            case OffsetCommitEntry():
                if known is None:
                    known = self.groups[entry.group] = StoredGroup(_nobody(entry.group))
                known.offsets[TopicPartition(entry.topic, entry.partition)] = entry
            case OffsetCommitTombstone():
                tp = TopicPartition(entry.topic, entry.partition)
                there = known.offsets.pop(tp, None) if known else None
                must(there, "tombstone", "of an offset that there was not:", entry)
            case _:
                assert_never(entry)

    def compacted(self) -> list[ClassicEntry]:
        found: list[ClassicEntry] = []
        for name in sorted(self.groups):
            group = self.groups[name]
            found.append(group.saved)
            found += [group.offsets[tp] for tp in sorted(group.offsets)]
        return found


def _check_members(entry: GroupMetadataEntry) -> None:
    ids = [member.member_id for member in entry.members]
    static = [
        member.group_instance_id for member in entry.members if member.group_instance_id is not None
    ]
    must(len(set(ids)) == len(ids), "ids are unique", entry.group, ids)
    must(len(set(static)) == len(static), "static ids are unique", entry.group, static)
    if entry.members:
        must(entry.leader in ids, "the leader is a member", entry.leader, ids)
        _check_assignment(entry)


def _check_successor(old: GroupMetadataEntry, new: GroupMetadataEntry) -> None:
    """A generation follows a lower one; or it is the same, and one static member was replaced.

    A group that begins while an admin commits is told of twice, as one of nobody.
    """
    if not (old.members or new.members or new.generation):
        return
    if new.generation != old.generation:
        rising = new.generation > old.generation
        must(rising, "generations rise", f"{old.generation} is followed by {new.generation}")
        return
    pairs = list(zip(old.members, new.members, strict=False))
    changed = [(a, b) for a, b in pairs if a.member_id != b.member_id]
    same = len(old.members) == len(new.members) and len(changed) == 1
    if same:
        ((before, after),) = changed
        same = before.group_instance_id == after.group_instance_id is not None
        same = same and before.assignment == after.assignment
    must(same, "a generation is stored once", new.group, new.generation)


def _check_assignment(entry: GroupMetadataEntry) -> None:
    """Nobody shares a partition; a cooperative round gives nothing that another still holds."""
    owners: dict[TopicPartition, str] = {}
    for member in entry.members:
        if member.assignment:
            for tp in consumer_protocol.decode_assignment(member.assignment).partitions:
                other = owners.setdefault(tp, member.member_id)
                one = other == member.member_id
                must(one, "one owner in a generation", f"{tp} for {other} and {member.member_id}")
    if entry.protocol == COOPERATIVE:
        holders = _holders(entry)
        for tp, owner in owners.items():
            holder = holders.get(tp, owner)
            must(
                holder in (owner, None),
                "no handover in one round",
                f"generation {entry.generation}: {tp}, held by {holder}, is given to {owner}",
            )


def _holders(entry: GroupMetadataEntry) -> dict[TopicPartition, str | None]:
    """Who says to own what: the claim of the highest generation, if there is one alone."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in entry.members:
        told: Subscription = consumer_protocol.decode_subscription(member.subscription)
        since = NO_GENERATION if told.generation is None else told.generation
        for tp in told.owned:
            known = best.get(tp)
            if known is None or since > known[0]:
                best[tp] = (since, member.member_id)
            elif since == known[0]:
                best[tp] = (since, None)
    return {tp: holder for tp, (_, holder) in best.items()}
