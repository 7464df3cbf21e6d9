"""Journals of one group, made up for the case, and what the timeline says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.engine.formats import consumer_protocol
from rota.engine.history.facts import GenerationChange, JournalRecord
from rota.engine.history.generations import GroupHistory, read_history
from rota.engine.history.rebalances import find_rebalances
from rota.engine.model.consumer_group_entry import (
    ConsumerGroupMetadataEntry,
    CurrentAssignmentTopic,
    CurrentMemberAssignmentEntry,
    CurrentMemberAssignmentTombstone,
    MemberMetadataEntry,
    MemberMetadataTombstone,
    TargetAssignmentMemberEntry,
    TargetAssignmentMemberTombstone,
    TargetAssignmentMetadataEntry,
    TargetAssignmentTopic,
)
from rota.engine.model.journal_entry import (
    GroupMetadataEntry,
    GroupMetadataMember,
    GroupMetadataTombstone,
    JournalEntry,
)
from rota.engine.model.member import Assignment, Subscription
from rota.engine.model.topic import Partitions

ORDERS = bytes(range(16))
Partitioned = Mapping[str, Sequence[int]]


def member(
    name: str,
    given: Partitioned | bytes = b"",
    *,
    owned: Partitioned | None = None,
    generation: int | None = None,
    group_instance_id: str | None = None,
    topics: Sequence[str] = ("t",),
    told: bytes | None = None,
    user_data: bytes | None = None,
) -> GroupMetadataMember:
    if not isinstance(given, bytes):
        given = consumer_protocol.encode_assignment(Assignment(Partitions.of(given)))
    subscribed = Subscription(
        topics=tuple(topics),
        owned=Partitions.of(owned or {}),
        generation=generation,
        user_data=user_data,
    )
    return GroupMetadataMember(
        member_id=name,
        group_instance_id=group_instance_id,
        client_id=f"client of {name}",
        client_host="/10.0.0.1",
        rebalance_timeout=300_000,
        session_timeout=45_000,
        subscription=consumer_protocol.encode_subscription(subscribed) if told is None else told,
        assignment=given,
    )


def group_metadata_entry(
    generation: int,
    *members: GroupMetadataMember,
    strategy: str | None = "range",
    protocol_type: str = "consumer",
) -> GroupMetadataEntry:
    return GroupMetadataEntry(
        group="g",
        protocol_type=protocol_type,
        generation=generation,
        protocol=strategy if members else None,
        leader=members[0].member_id if members else None,
        members=members,
    )


NEW = group_metadata_entry(0, protocol_type="")
GONE = GroupMetadataTombstone(group="g")


def read_entries(*entries: JournalEntry, apart: int = 10) -> GroupHistory:
    """Each entry written by itself, a second after the one before it."""
    records = [JournalRecord(apart * n, 1_000 * n, entry) for n, entry in enumerate(entries)]
    return read_history("g", records, {ORDERS: "orders"})


def changes_of(timeline: GroupHistory) -> list[GenerationChange]:
    return [one.change for one in timeline.generations]


def generation_numbers(timeline: GroupHistory) -> list[tuple[int | None, int, int]]:
    """From, to and unseen of each step."""
    return [
        (step.from_generation, step.after.generation, step.unseen)
        for step in find_rebalances(timeline.generations)
    ]


def ownership_times(timeline: GroupHistory) -> list[tuple[int, str, int, int | None]]:
    return [(row.partition, row.member_id, row.since, row.until) for row in timeline.ownership]


# consumer groups


def member_metadata_entry(
    name: str, group_instance_id: str | None = None, assignor: str | None = None
) -> JournalEntry:
    return MemberMetadataEntry(
        group="g",
        member_id=name,
        group_instance_id=group_instance_id,
        rack=None,
        client_id=f"client of {name}",
        client_host="/10.0.0.1",
        topics=("orders",),
        regex=None,
        rebalance_timeout=300_000,
        assignor=assignor,
    )


def target_assignment_entry(name: str, *partitions: int, topic: bytes = ORDERS) -> JournalEntry:
    topics = (TargetAssignmentTopic(topic_id=topic, partitions=partitions),) if partitions else ()
    return TargetAssignmentMemberEntry(group="g", member_id=name, topics=topics)


def current_assignment_entry(
    name: str, epoch: int, *partitions: int, revoking: Sequence[int] = ()
) -> JournalEntry:
    def topics(numbers: Sequence[int]) -> tuple[CurrentAssignmentTopic, ...]:
        return (
            (CurrentAssignmentTopic(topic_id=ORDERS, partitions=tuple(numbers)),) if numbers else ()
        )

    return CurrentMemberAssignmentEntry(
        group="g",
        member_id=name,
        epoch=epoch,
        previous_epoch=0,
        assigned=topics(partitions),
        revoking=topics(revoking),
    )


def member_tombstones(name: str) -> tuple[JournalEntry, ...]:
    return (
        CurrentMemberAssignmentTombstone(group="g", member_id=name),
        TargetAssignmentMemberTombstone(group="g", member_id=name),
        MemberMetadataTombstone(group="g", member_id=name),
    )


def group_epoch_entry(number: int) -> JournalEntry:
    return ConsumerGroupMetadataEntry(group="g", epoch=number)


def target_epoch_entry(number: int) -> JournalEntry:
    return TargetAssignmentMetadataEntry(group="g", epoch=number)


def read_changes(*changes: Sequence[JournalEntry]) -> GroupHistory:
    """Each change written at once, and ten seconds after the one before it."""
    records: list[JournalRecord] = []
    for number, change in enumerate(changes):
        start = records[-1].offset + 5 if records else 0
        records += [
            JournalRecord(start + place, 10_000 * number, entry)
            for place, entry in enumerate(change)
        ]
    return read_history("g", records, {ORDERS: "orders"})
