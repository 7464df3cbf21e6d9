"""Entries of the journal ``__consumer_offsets``, as values.

An entry is one record: what a group or an offset has become, or, as a tombstone, that it is gone.
:mod:`rota.formats.journal` turns entries into Kafka's bytes and back.

Classic groups, offsets of all groups, then the consumer groups of KIP-848, whose state is spread
over an entry for each of its parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from rota.model.offset import NO_EPOCH
from rota.model.request import Protocol

NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitted:
    """A group's offset in one partition."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp: int
    expire_timestamp: int = NO_TIMESTAMP
    """Only where the client asked for a retention of its own (OffsetCommit v2-4)."""
    topic_id: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForgotten:
    """The tombstone of an offset: expired, deleted, or its topic is gone."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedMember:
    """A member of a saved generation."""

    member_id: str
    static_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSaved:
    """A generation of a classic group: its members, what they asked for and what they got."""

    group: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp: int = NO_TIMESTAMP
    """When the group came into the state it was saved in."""
    members: tuple[SavedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupForgotten:
    """The tombstone of a classic group."""

    group: str


ClassicEntry: TypeAlias = OffsetCommitted | OffsetForgotten | GroupSaved | GroupForgotten
"""What the coordinator writes and replays."""


# Consumer groups (KIP-848). Topics are named by id where members hold or shall hold partitions.


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A record of a kind that Rota names but does not read: share and streams groups, newer kinds.

    It keeps its bytes. Without a value it is a tombstone.
    """

    type: int
    name: str
    """Kafka's name of the type, "unknown" for one that has none yet."""
    key: bytes
    value: bytes | None


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

Entry: TypeAlias = ClassicEntry | ModernEntry | Foreign
"""Any record of the journal."""
