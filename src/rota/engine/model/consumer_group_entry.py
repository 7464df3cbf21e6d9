"""Journal entries of consumer groups (KIP-848). Kafka writes one for each part of a group's state.

The assignment entries name topics by their topic id. A broker does not load this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from rota.engine.model.request import JoinGroupProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataEntry:
    """The epoch of a consumer group. It rises when the members, or the topics they read, change."""

    group: str
    epoch: int
    metadata_hash: int = 0  # of the subscribed topics; 0 where it is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataTombstone:
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRacks:
    partition: int
    racks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadataTopic:
    topic_id: bytes
    topic: str
    partition_count: int
    racks: tuple[PartitionRacks, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadataEntry:
    """The topics of a group. Since Kafka 4.1 ConsumerGroupMetadataEntry has a hash of them."""

    group: str
    topics: tuple[PartitionMetadataTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadataTombstone:
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberMetadata:
    """Metadata of a consumer group's member that still uses the classic protocol."""

    session_timeout: int
    protocols: tuple[JoinGroupProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadataEntry:
    group: str
    member_id: str
    group_instance_id: str | None
    rack: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    rebalance_timeout: int
    assignor: str | None  # the server's strategy that the member asks for
    classic: ClassicMemberMetadata | None = None  # only for a member that uses the classic protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadataTombstone:
    group: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignmentMetadataEntry:
    """The epoch that the target assignment was computed for."""

    group: str
    epoch: int
    timestamp: int = 0  # the time of the computation; 0 if unknown (before Kafka 4.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignmentMetadataTombstone:
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignmentTopic:
    topic_id: bytes
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignmentMemberEntry:
    """The partitions that a member owns once all members have revoked the others' partitions."""

    group: str
    member_id: str
    topics: tuple[TargetAssignmentTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignmentMemberTombstone:
    group: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignmentTopic:
    topic_id: bytes
    partitions: tuple[int, ...]
    #: The epoch in which each was given; none where it is not known (before Kafka 4.3).
    epochs: tuple[int, ...] | None = ()


#: The member has its target; must revoke partitions first; waits for others to revoke theirs.
STABLE, UNREVOKED_PARTITIONS, UNRELEASED_PARTITIONS = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentMemberAssignmentEntry:
    """The partitions that a member owns or must revoke. A static member that left has epoch -2."""

    group: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: int = STABLE
    assigned: tuple[CurrentAssignmentTopic, ...] = ()
    revoking: tuple[CurrentAssignmentTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentMemberAssignmentTombstone:
    group: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegularExpressionEntry:
    group: str
    regex: str
    topics: tuple[str, ...]
    version: int  # the version of the cluster metadata that the expression was matched against
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegularExpressionTombstone:
    group: str
    regex: str


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
