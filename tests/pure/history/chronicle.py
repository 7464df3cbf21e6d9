"""Journals of one group, made up for the case, and what the timeline says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.formats import assignment, subscription
from rota.model.entry import (
    Entry,
    GroupForgotten,
    GroupSaved,
    SavedMember,
)
from rota.model.membership import Assignment, Subscription
from rota.model.modern import (
    CurrentForgotten,
    CurrentSaved,
    CurrentTopic,
    EpochSaved,
    MembershipForgotten,
    MembershipSaved,
    TargetEpochSaved,
    TargetForgotten,
    TargetSaved,
    TargetTopic,
)
from rota.model.topic import Partitions
from rota.replay.fact import Mark, Written
from rota.replay.timeline import Timeline, read, steps

ORDERS = bytes(range(16))
Partitioned = Mapping[str, Sequence[int]]


def member(
    name: str,
    given: Partitioned | bytes = b"",
    *,
    owned: Partitioned | None = None,
    generation: int | None = None,
    static_id: str | None = None,
    topics: Sequence[str] = ("t",),
    told: bytes | None = None,
    user_data: bytes | None = None,
) -> SavedMember:
    if not isinstance(given, bytes):
        given = assignment.encode(Assignment(Partitions.of(given)))
    subscribed = Subscription(
        topics=tuple(topics),
        owned=Partitions.of(owned or {}),
        generation=generation,
        user_data=user_data,
    )
    return SavedMember(
        member_id=name,
        static_id=static_id,
        client_id=f"client of {name}",
        client_host="/10.0.0.1",
        rebalance_timeout=300_000,
        session_timeout=45_000,
        subscription=subscription.encode(subscribed) if told is None else told,
        assignment=given,
    )


def saved(
    generation: int,
    *members: SavedMember,
    strategy: str | None = "range",
    protocol_type: str = "consumer",
) -> GroupSaved:
    return GroupSaved(
        group="g",
        protocol_type=protocol_type,
        generation=generation,
        protocol=strategy if members else None,
        leader=members[0].member_id if members else None,
        members=members,
    )


NEW = saved(0, protocol_type="")
GONE = GroupForgotten(group="g")


def told(*entries: Entry, apart: int = 10) -> Timeline:
    """Each entry written by itself, a second after the one before it."""
    records = [Written(apart * n, 1_000 * n, entry) for n, entry in enumerate(entries)]
    return read("g", records, {ORDERS: "orders"})


def marks(timeline: Timeline) -> list[Mark]:
    return [one.mark for one in timeline.generations]


def numbers(timeline: Timeline) -> list[tuple[int | None, int, int]]:
    """From, to and unseen of each step."""
    return [
        (step.from_generation, step.after.generation, step.unseen)
        for step in steps(timeline.generations)
    ]


def times(timeline: Timeline) -> list[tuple[int, str, int, int | None]]:
    return [(row.partition, row.member_id, row.since, row.until) for row in timeline.ownership]


# consumer groups


def joined(name: str, static_id: str | None = None, assignor: str | None = None) -> Entry:
    return MembershipSaved(
        group="g",
        member_id=name,
        static_id=static_id,
        rack=None,
        client_id=f"client of {name}",
        client_host="/10.0.0.1",
        topics=("orders",),
        regex=None,
        rebalance_timeout=300_000,
        assignor=assignor,
    )


def target(name: str, *partitions: int, topic: bytes = ORDERS) -> Entry:
    topics = (TargetTopic(topic_id=topic, partitions=partitions),) if partitions else ()
    return TargetSaved(group="g", member_id=name, topics=topics)


def has(name: str, epoch: int, *partitions: int, revoking: Sequence[int] = ()) -> Entry:
    def topics(numbers: Sequence[int]) -> tuple[CurrentTopic, ...]:
        return (CurrentTopic(topic_id=ORDERS, partitions=tuple(numbers)),) if numbers else ()

    return CurrentSaved(
        group="g",
        member_id=name,
        epoch=epoch,
        previous_epoch=0,
        assigned=topics(partitions),
        revoking=topics(revoking),
    )


def left(name: str) -> tuple[Entry, ...]:
    return (
        CurrentForgotten(group="g", member_id=name),
        TargetForgotten(group="g", member_id=name),
        MembershipForgotten(group="g", member_id=name),
    )


def epoch(number: int) -> Entry:
    return EpochSaved(group="g", epoch=number)


def computed(number: int) -> Entry:
    return TargetEpochSaved(group="g", epoch=number)


def written(*changes: Sequence[Entry]) -> Timeline:
    """Each change written at once, and ten seconds after the one before it."""
    records: list[Written] = []
    for number, change in enumerate(changes):
        start = records[-1].offset + 5 if records else 0
        records += [
            Written(start + place, 10_000 * number, entry) for place, entry in enumerate(change)
        ]
    return read("g", records, {ORDERS: "orders"})
