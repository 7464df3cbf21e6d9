"""Entries of consumer groups (KIP-848): their state is spread over an entry for each of its parts.

Topics are named by id where members hold or shall hold partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from rota.model.request import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSaved:
    """A consumer group is in an epoch: its members, or the topics they read, have changed."""

    group: str
    epoch: int
    metadata_hash: int = 0
    """Of the subscribed topics; 0 where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochForgotten:
    """The tombstone of a consumer group."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRacks:
    """Where the replicas of a partition are."""

    partition: int
    racks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTopic:
    """A topic as the group last saw it."""

    topic_id: bytes
    topic: str
    partition_count: int
    racks: tuple[PartitionRacks, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsSaved:
    """The topics that a consumer group reads; since Kafka 4.1 a hash in the epoch's place."""

    group: str
    topics: tuple[SavedTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsForgotten:
    """The tombstone of a consumer group's topics."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMembership:
    """What a member of the classic protocol brought into a consumer group."""

    session_timeout: int
    protocols: tuple[Protocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSaved:
    """A member of a consumer group, with its subscription."""

    group: str
    member_id: str
    static_id: str | None
    rack: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    rebalance_timeout: int
    assignor: str | None
    """The server's strategy that the member asks for."""
    classic: ClassicMembership | None = None
    """Only for one that still speaks the classic protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipForgotten:
    """The tombstone of a consumer group's member."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEpochSaved:
    """The epoch that the target assignment was computed for."""

    group: str
    epoch: int
    timestamp: int = 0
    """When; 0 where it is not known (before Kafka 4.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEpochForgotten:
    """The tombstone of a target assignment."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTopic:
    """The partitions of one topic that a member shall have."""

    topic_id: bytes
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSaved:
    """What a member shall have once all have given up what they must."""

    group: str
    member_id: str
    topics: tuple[TargetTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetForgotten:
    """The tombstone of what a member shall have."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentTopic:
    """The partitions of one topic that a member has."""

    topic_id: bytes
    partitions: tuple[int, ...]
    epochs: tuple[int, ...] | None = ()
    """The epoch in which each was given; none where it is not known (before Kafka 4.3)."""


STABLE, UNREVOKED, UNRELEASED = 0, 1, 2
"""A member has its target; must give up partitions first; waits for others to do so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentSaved:
    """What a member has, and what it must give up. A static one that left has the epoch -2."""

    group: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: int = STABLE
    assigned: tuple[CurrentTopic, ...] = ()
    revoking: tuple[CurrentTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentForgotten:
    """The tombstone of what a member has."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexSaved:
    """The topics that a regular expression stands for."""

    group: str
    regex: str
    topics: tuple[str, ...]
    version: int
    """Of the cluster's metadata that it was matched against."""
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexForgotten:
    """The tombstone of a regular expression."""

    group: str
    regex: str


ModernEntry: TypeAlias = (
    EpochSaved
    | EpochForgotten
    | TopicsSaved
    | TopicsForgotten
    | MembershipSaved
    | MembershipForgotten
    | TargetEpochSaved
    | TargetEpochForgotten
    | TargetSaved
    | TargetForgotten
    | CurrentSaved
    | CurrentForgotten
    | RegexSaved
    | RegexForgotten
)
"""What Kafka's coordinator writes of consumer groups (KIP-848)."""
