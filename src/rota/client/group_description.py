"""Descriptions of groups: members, their assignments, and the lag of each partition."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rota.engine.formats import consumer_protocol
from rota.engine.model.member import Subscription
from rota.engine.model.request import CONSUMER_PROTOCOL_TYPE
from rota.engine.model.response import DescribedGroup, DescribedMember, ListedGroup
from rota.engine.model.topic import NO_PARTITIONS, OffsetAndMetadata, Partitions, TopicPartition
from rota.errors import FormatError

if TYPE_CHECKING:
    from rota.client.metadata import BrokerMetadata
    from rota.protocol.messages import ConsumerGroupDescribeResponse

CLASSIC = "classic"  # the leader assigns; brokers before 3.8 know only these, and say nothing
STABLE, EMPTY, DEAD = "Stable", "Empty", "Dead"
PREPARING_REBALANCE = "PreparingRebalance"
STATES_WITHOUT_MEMBERS = frozenset({EMPTY, DEAD})
_UUID_SUFFIX = re.compile(r"(-[0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    id: str
    group_instance_id: str | None
    client_id: str
    host: str
    rack: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None  # a regular expression that the broker matches (KIP-848)
    owned: Partitions = NO_PARTITIONS
    generation: int | None = None  # of the owned partitions; or the member epoch (KIP-848)
    assigned: Partitions = NO_PARTITIONS
    target: Partitions | None = None
    problem: str | None = None  # why its subscription or assignment cannot be decoded


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group and its members, without offsets."""

    group: str
    group_type: str = CLASSIC  # ``classic``, ``consumer``, ``share``, ``streams``; empty: unknown
    state: str = ""
    protocol_type: str = ""
    strategy: str = ""
    epoch: int | None = None
    leader: str | None = None  # a classic group's leader; None: not read from the journal
    coordinator: str = ""  # ``id (host:port)``
    members: tuple[MemberDescription, ...] | None = ()

    @property
    def is_classic(self) -> bool:
        """True if a leader among the members computes the assignment."""
        return self.group_type in {CLASSIC, ""}

    stored_generation: int | None = None

    @property
    def generation(self) -> int | None:
        """The group's generation, or its epoch (KIP-848), if known. For a classic group: the one
        before the join, from the members' subscriptions (KIP-792).
        """
        if not self.is_classic or self.stored_generation is not None:
            return self.epoch if self.stored_generation is None else self.stored_generation
        joined = [each.generation for each in self.members or () if each.generation is not None]
        return max(joined) + 1 if joined else None

    @property
    def is_consumer_group(self) -> bool:
        """True if the members are consumers; Connect's workers and others use groups too."""
        return self.protocol_type in {CONSUMER_PROTOCOL_TYPE, ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """A group's committed offset and lag in one partition."""

    partition: TopicPartition
    committed: OffsetAndMetadata | None
    log_start: int | None
    log_end: int | None  # None: the partition does not exist, or its leader cannot be reached
    owner: str | None = None
    age_ms: int | None = None  # of the first unread record, or a little more; None: unknown

    @property
    def lag(self) -> int | None:
        """The number of offsets from the committed one to the log's end; None if unknown."""
        if self.committed is None or self.log_end is None:
            return None
        return self.log_end - self.committed.offset

    @property
    def uncommitted(self) -> int:
        """The number of records in a partition without a committed offset; else 0."""
        if self.committed is not None or self.log_start is None or self.log_end is None:
            return 0
        return self.log_end - self.log_start

    @property
    def first_unread(self) -> int | None:
        """The first offset that may be unread; None: all are read."""
        if self.committed is None:
            return self.log_start if self.uncommitted else None
        return self.committed.offset if self.lag is not None and self.lag > 0 else None

    @property
    def problem(self) -> str | None:
        """The problem of the committed offset; None if it is valid."""
        if self.log_end is None:
            return "the partition does not exist or cannot be asked"
        if self.committed is None or self.log_start is None:
            return None
        if self.committed.offset < self.log_start:
            return f"{self.log_start - self.committed.offset} of the records after it are deleted"
        if self.committed.offset > self.log_end:
            return "it is past the log end: the topic lost records, or was created again"
        return None


def owner_by_partition(members: Iterable[MemberDescription]) -> dict[TopicPartition, str]:
    return {partition: member.id for member in members for partition in member.assigned}


def short_member_names(members: Iterable[MemberDescription]) -> dict[str, str]:
    """Short unique names for a terminal: the static id, or the id with the start of its UUID."""
    named = [(each.id, each.group_instance_id) for each in members]
    labels = {name: static or _UUID_SUFFIX.sub(r"\1", name) for name, static in named}
    taken = Counter(labels.values())
    return {name: name if taken[label] > 1 else label for name, label in labels.items()}


def describe_listed_group(listed: ListedGroup, node: BrokerMetadata) -> GroupDescription:
    return GroupDescription(
        group=listed.group,
        group_type=listed.group_type or CLASSIC,
        state=listed.state,
        protocol_type=listed.protocol_type,
        coordinator=f"{node.id} ({node.address})",
        members=None,
    )


def describe_classic_group(described: DescribedGroup, coordinator: str) -> GroupDescription:
    return GroupDescription(
        group=described.group,
        state=described.state,
        protocol_type=described.protocol_type,
        strategy=described.protocol,
        coordinator=coordinator,
        members=tuple(_describe_classic_member(each, described) for each in described.members),
    )


def _describe_classic_member(found: DescribedMember, group: DescribedGroup) -> MemberDescription:
    member = MemberDescription(
        id=found.member_id,
        group_instance_id=found.group_instance_id,
        client_id=found.client_id,
        host=found.client_host.removeprefix("/"),
    )
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return member
    try:
        subscription, assigned = Subscription(topics=()), NO_PARTITIONS
        if found.metadata:
            subscription = consumer_protocol.decode_subscription(found.metadata)
        if found.assignment:
            assigned = consumer_protocol.decode_assignment(found.assignment).partitions
    except FormatError as error:
        return replace(member, problem=str(error))
    return replace(
        member,
        topics=subscription.topics,
        owned=subscription.owned,
        generation=subscription.generation,
        rack=subscription.rack,
        assigned=assigned,
    )


def describe_consumer_group(
    described: ConsumerGroupDescribeResponse.DescribedGroup, coordinator: str
) -> GroupDescription:
    """Converts a group of ConsumerGroupDescribe (KIP-848)."""
    return GroupDescription(
        group=described.group_id,
        group_type="consumer",
        state=described.group_state,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        strategy=described.assignor_name,
        epoch=described.group_epoch,
        coordinator=coordinator,
        members=tuple(_describe_consumer_member(each) for each in described.members),
    )


def _describe_consumer_member(found: ConsumerGroupDescribeResponse.Member) -> MemberDescription:
    assigned, target = _read_assignment(found.assignment), _read_assignment(found.target_assignment)
    return MemberDescription(
        id=found.member_id,
        group_instance_id=found.instance_id,
        client_id=found.client_id,
        host=found.client_host.removeprefix("/"),
        rack=found.rack_id or None,
        topics=tuple(found.subscribed_topic_names),
        pattern=found.subscribed_topic_regex or None,
        generation=found.member_epoch,
        assigned=assigned,
        target=None if sorted(target) == sorted(assigned) else target,
    )


def _read_assignment(found: ConsumerGroupDescribeResponse.Assignment) -> Partitions:
    return Partitions.of({each.topic_name: each.partitions for each in found.topic_partitions})


def compute_lags(
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    owned_by: Mapping[TopicPartition, str],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[PartitionLag]:
    """The lag of each committed or assigned partition, sorted by topic and number."""
    return [
        PartitionLag(
            partition=partition,
            committed=committed.get(partition),
            log_start=starts.get(partition),
            log_end=ends.get(partition),
            owner=owned_by.get(partition),
        )
        for partition in sorted({*committed, *owned_by})
    ]
