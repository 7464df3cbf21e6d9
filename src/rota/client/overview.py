"""Groups as an operator sees them: who is in them, who has what, how far they are behind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rota.errors import FormatError
from rota.formats import assignment, subscription
from rota.model.membership import Subscription
from rota.model.offset import OffsetAndMetadata
from rota.model.reply import DescribedGroup, DescribedMember, ListedGroup
from rota.model.request import CONSUMER
from rota.model.topic import NO_PARTITIONS, Partitions, TopicPartition

if TYPE_CHECKING:  # commands that say how they are used need no message library
    from rota.client.metadata import Node
    from rota.wire.message import Message

CLASSIC = "classic"
"""The type of groups whose leader assigns; brokers before 3.8 have no other, and do not say it."""
STABLE, EMPTY, DEAD = "Stable", "Empty", "Dead"
GATHERING = "PreparingRebalance"
WITHOUT_MEMBERS = frozenset({EMPTY, DEAD})
_UUID = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A member of a group."""

    id: str
    static_id: str | None
    client_id: str
    host: str
    rack: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression that the broker matches (KIP-848)."""
    owned: Partitions = NO_PARTITIONS
    """What it said that it owns when it joined."""
    generation: int | None = None
    """Since when it has owned that, or its epoch (KIP-848)."""
    assigned: Partitions = NO_PARTITIONS
    target: Partitions | None = None
    """Where the broker is heading (KIP-848), if it is not there yet."""
    problem: str | None = None
    """Why its own bytes cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A group, without its offsets."""

    group: str
    kind: str = CLASSIC
    """``classic``, ``consumer`` (KIP-848), ``share``, ``streams``; empty: it is not told."""
    state: str = ""
    protocol_type: str = ""
    strategy: str = ""
    epoch: int | None = None
    coordinator: str = ""
    """``id (host:port)``."""
    members: tuple[Present, ...] | None = ()
    """None: they cannot be looked at."""

    @property
    def classic(self) -> bool:
        """Is its assignment made by a leader among its members?"""
        return self.kind in {CLASSIC, ""}

    @property
    def reads(self) -> bool:
        """Are its members consumers? Connect's workers and others use groups too."""
        return self.protocol_type in {CONSUMER, ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a group is in one partition."""

    partition: TopicPartition
    committed: OffsetAndMetadata | None
    start: int | None
    end: int | None
    """None: the partition does not exist, or cannot be asked."""
    owner: str | None = None
    """A member's id."""
    age: int | None = None
    """Milliseconds since the first record that was not read, or a little more; None: not known."""

    @property
    def lag(self) -> int | None:
        """Records that are still to be read."""
        if self.committed is None or self.end is None:
            return None
        return self.end - self.committed.offset

    @property
    def uncommitted(self) -> int:
        """Records of a partition for which nothing is committed: how many of them are read, nobody
        knows.
        """
        if self.committed is not None or self.start is None or self.end is None:
            return 0
        return self.end - self.start

    @property
    def first_unread(self) -> int | None:
        """The first offset that may not have been read; None: there is none."""
        if self.committed is None:
            return self.start if self.uncommitted else None
        return self.committed.offset if self.lag is not None and self.lag > 0 else None

    @property
    def problem(self) -> str | None:
        """What is wrong with the committed offset, if anything."""
        if self.end is None:
            return "the partition does not exist or cannot be asked"
        if self.committed is None or self.start is None:
            return None
        if self.committed.offset < self.start:
            return f"{self.start - self.committed.offset} of the records behind it are deleted"
        if self.committed.offset > self.end:
            return "it is behind the end: the topic has lost records, or was made anew"
        return None


def owners(members: Iterable[Present]) -> dict[TopicPartition, str]:
    """Whom each assigned partition belongs to."""
    return {partition: member.id for member in members for partition in member.assigned}


def labels(members: Iterable[Present]) -> dict[str, str]:
    """Short names that tell members apart: a static id, or an id with the head of its UUID.

    Ids are 50 characters and more, which leaves no room beside them on a terminal.
    """
    found = {member.id: member.static_id or _shortened(member.id) for member in members}
    taken = Counter(found.values())
    return {name: name if taken[label] > 1 else label for name, label in found.items()}


def _shortened(member_id: str) -> str:
    match = _UUID.search(member_id)
    return member_id if match is None else member_id[: match.start() + 9]


def listed(found: ListedGroup, node: Node) -> Overview:
    """A group of which no more is known than the list says."""
    return Overview(
        group=found.group,
        kind=found.kind or CLASSIC,
        state=found.state,
        protocol_type=found.protocol_type,
        coordinator=f"{node.id} ({node.address})",
        members=None,
    )


def classic(found: DescribedGroup, coordinator: str) -> Overview:
    """Out of DescribeGroups."""
    return Overview(
        group=found.group,
        state=found.state,
        protocol_type=found.protocol_type,
        strategy=found.protocol,
        coordinator=coordinator,
        members=tuple(_classic_member(each, found) for each in found.members),
    )


def _classic_member(found: DescribedMember, group: DescribedGroup) -> Present:
    member = Present(
        id=found.member_id,
        static_id=found.static_id,
        client_id=found.client_id,
        host=found.client_host.removeprefix("/"),
    )
    if group.protocol_type != CONSUMER:
        return member
    try:
        told = subscription.decode(found.metadata) if found.metadata else Subscription(topics=())
        given = assignment.decode(found.assignment).partitions if found.assignment else None
    except FormatError as error:
        return replace(member, problem=str(error))
    return replace(
        member,
        topics=told.topics,
        owned=told.owned,
        generation=told.generation,
        rack=told.rack,
        assigned=NO_PARTITIONS if given is None else given,
    )


def modern(found: Message, coordinator: str) -> Overview:
    """Out of ConsumerGroupDescribe (KIP-848)."""
    return Overview(
        group=found.group_id,
        kind="consumer",
        state=found.group_state,
        protocol_type=CONSUMER,
        strategy=found.assignor_name,
        epoch=found.group_epoch,
        coordinator=coordinator,
        members=tuple(_modern_member(each) for each in found.members),
    )


def _modern_member(found: Message) -> Present:
    assigned, target = _given(found.assignment), _given(found.target_assignment)
    return Present(
        id=found.member_id,
        static_id=found.instance_id,
        client_id=found.client_id,
        host=found.client_host.removeprefix("/"),
        rack=found.rack_id or None,
        topics=tuple(found.subscribed_topic_names),
        pattern=found.subscribed_topic_regex or None,
        generation=found.member_epoch,
        assigned=assigned,
        target=None if sorted(target) == sorted(assigned) else target,
    )


def _given(found: Message) -> Partitions:
    return Partitions.of({each.topic_name: each.partitions for each in found.topic_partitions})


def standings(
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    owned_by: Mapping[TopicPartition, str],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[Standing]:
    """Every partition that the group has committed or that a member has, by topic and number."""
    return [
        Standing(
            partition=partition,
            committed=committed.get(partition),
            start=starts.get(partition),
            end=ends.get(partition),
            owner=owned_by.get(partition),
        )
        for partition in sorted({*committed, *owned_by})
    ]
