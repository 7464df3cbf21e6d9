"""Journal entries of consumer groups (KIP-848): Kafka writes one entry for each part of a group's
state.

The assignment entries name topics by their topic id. Entries of share and streams groups that have
the same meaning are subclasses. A broker does not load this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from rota.engine.model.request import JoinGroupProtocol

#: The member has its target; must revoke partitions first; waits for others to revoke theirs.
STABLE, UNREVOKED_PARTITIONS, UNRELEASED_PARTITIONS = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A record whose key has a group."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord(GroupRecord):
    """A record whose key has a group and a member."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRecord(MemberRecord):
    """A member, with its client."""

    rack: str | None
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignmentEntry(MemberRecord):
    """What is assigned to a member now."""

    epoch: int
    previous_epoch: int
    state: int = STABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataEntry(GroupRecord):
    """The epoch of a group. It rises when the members, or the topics they read, change."""

    epoch: int
    metadata_hash: int = 0  # of the subscribed topics; 0 where it is not known


class ConsumerGroupMetadataTombstone(GroupRecord):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRacks:
    partition: int
    racks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadataTopic:
    """A topic as the group last saw it."""

    topic_id: bytes
    topic: str
    partition_count: int
    racks: tuple[PartitionRacks, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadataEntry(GroupRecord):
    """The topics of a group. Since Kafka 4.1 the entry of the epoch has a hash of them."""

    topics: tuple[PartitionMetadataTopic, ...]


class PartitionMetadataTombstone(GroupRecord):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberMetadata:
    """Metadata of a consumer group's member that still uses the classic protocol."""

    session_timeout: int
    protocols: tuple[JoinGroupProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadataEntry(ClientRecord):
    """A member of a consumer group, with its subscription."""

    group_instance_id: str | None
    topics: tuple[str, ...]
    regex: str | None
    rebalance_timeout: int
    assignor: str | None  # the server's strategy that the member asks for
    classic: ClassicMemberMetadata | None = None  # only for a member that uses the classic protocol


class MemberMetadataTombstone(MemberRecord):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignmentMetadataEntry(GroupRecord):
    """The epoch that the target assignment was computed for."""

    epoch: int
    timestamp: int = 0  # the time of the computation; 0 if unknown (before Kafka 4.3)


class TargetAssignmentMetadataTombstone(GroupRecord):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignmentTopic:
    topic_id: bytes
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignmentMemberEntry(MemberRecord):
    """The partitions that a member owns once all members have revoked the others' partitions."""

    topics: tuple[TargetAssignmentTopic, ...]


class TargetAssignmentMemberTombstone(MemberRecord):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignmentTopic:
    topic_id: bytes
    partitions: tuple[int, ...]
    epochs: tuple[int, ...] | None = ()  # each task's own epoch; only active tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentMemberAssignmentEntry(CurrentAssignmentEntry):
    """The partitions that a member owns or must revoke. A static member that left has epoch -2."""

    assigned: tuple[CurrentAssignmentTopic, ...] = ()
    revoking: tuple[CurrentAssignmentTopic, ...] = ()


class CurrentMemberAssignmentTombstone(MemberRecord):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegularExpressionEntry(GroupRecord):
    regex: str
    topics: tuple[str, ...]
    version: int  # the version of the cluster metadata that the expression was matched against
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegularExpressionTombstone(GroupRecord):
    regex: str


#: What Kafka's coordinator writes of consumer groups (KIP-848).
ConsumerGroupEntry: TypeAlias = (
    ConsumerGroupMetadataEntry
    | ConsumerGroupMetadataTombstone
    | PartitionMetadataEntry
    | PartitionMetadataTombstone
    | MemberMetadataEntry
    | MemberMetadataTombstone
    | TargetAssignmentMetadataEntry
    | TargetAssignmentMetadataTombstone
    | TargetAssignmentMemberEntry
    | TargetAssignmentMemberTombstone
    | CurrentMemberAssignmentEntry
    | CurrentMemberAssignmentTombstone
    | RegularExpressionEntry
    | RegularExpressionTombstone
)
