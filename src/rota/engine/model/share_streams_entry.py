"""Journal entries of share groups (KIP-932) and of streams groups (KIP-1071).

As for consumer groups, Kafka writes one entry for each part of a group's state. Names are the same
as in :mod:`rota.engine.model.consumer_group_entry`. A broker does not load this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from rota.engine.model.consumer_group_entry import PartitionMetadataTopic, TargetAssignmentTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord(GroupRecord):
    member_id: str


class GroupRecordTombstone(GroupRecord):
    __slots__ = ()


class MemberRecordTombstone(MemberRecord):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionMetadataEntry(GroupRecord):
    """The topics of a share group; only early releases of Kafka 4 wrote it."""

    topics: tuple[PartitionMetadataTopic, ...]


class SharePartitionMetadataTombstone(GroupRecordTombstone):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMemberMetadataEntry(MemberRecord):
    """A member of a share group, with its subscription. It has no static id."""

    rack: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]


class ShareMemberMetadataTombstone(MemberRecordTombstone):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupMetadataEntry(GroupRecord):
    epoch: int
    metadata_hash: int  # of the subscribed topics


class ShareGroupMetadataTombstone(GroupRecordTombstone):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareTargetAssignmentMetadataEntry(GroupRecord):
    """The epoch that the target assignment was computed for."""

    epoch: int
    timestamp: int = 0  # the time of the computation; 0 if unknown (before Kafka 4.3)


class ShareTargetAssignmentMetadataTombstone(GroupRecordTombstone):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareTargetAssignmentMemberEntry(MemberRecord):
    """The partitions that a member will read; other members may read them too."""

    topics: tuple[TargetAssignmentTopic, ...]


class ShareTargetAssignmentMemberTombstone(MemberRecordTombstone):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCurrentMemberAssignmentEntry(MemberRecord):
    """The partitions that a member reads."""

    epoch: int
    previous_epoch: int
    state: int
    assigned: tuple[TargetAssignmentTopic, ...]


class ShareCurrentMemberAssignmentTombstone(MemberRecordTombstone):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStateTopic:
    """Partitions of a topic whose share-group state the share coordinator keeps."""

    topic_id: bytes
    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStateDeletedTopic:
    topic_id: bytes
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStatePartitionMetadataEntry(GroupRecord):
    """The partitions that members can read (initialized), or cannot read yet."""

    initializing: tuple[ShareStateTopic, ...]
    initialized: tuple[ShareStateTopic, ...]
    deleting: tuple[ShareStateDeletedTopic, ...]


class ShareStatePartitionMetadataTombstone(GroupRecordTombstone):
    __slots__ = ()


ShareGroupEntry: TypeAlias = (
    SharePartitionMetadataEntry
    | SharePartitionMetadataTombstone
    | ShareMemberMetadataEntry
    | ShareMemberMetadataTombstone
    | ShareGroupMetadataEntry
    | ShareGroupMetadataTombstone
    | ShareTargetAssignmentMetadataEntry
    | ShareTargetAssignmentMetadataTombstone
    | ShareTargetAssignmentMemberEntry
    | ShareTargetAssignmentMemberTombstone
    | ShareCurrentMemberAssignmentEntry
    | ShareCurrentMemberAssignmentTombstone
    | ShareStatePartitionMetadataEntry
    | ShareStatePartitionMetadataTombstone
)


class KeyValue(NamedTuple):
    """A setting or a tag."""

    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupMetadataEntry(GroupRecord):
    epoch: int
    metadata_hash: int
    #: The topology whose topics were found in the cluster; -1: none yet.
    validated_topology_epoch: int = -1
    configs: tuple[KeyValue, ...] | None = ()  # the settings of the last assignment


class StreamsGroupMetadataTombstone(GroupRecordTombstone):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsPartitionMetadataEntry(GroupRecord):
    """The topics of a streams group; only early releases of Kafka 4 wrote it."""

    topics: tuple[PartitionMetadataTopic, ...]


class StreamsPartitionMetadataTombstone(GroupRecordTombstone):
    __slots__ = ()


class StreamsEndpoint(NamedTuple):
    """Where interactive queries of a member's state are answered."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMemberMetadataEntry(MemberRecord):
    """A member of a streams group: a thread of a process."""

    group_instance_id: str | None
    rack: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    topology_epoch: int
    process_id: str
    endpoint: StreamsEndpoint | None
    client_tags: tuple[KeyValue, ...]


class StreamsMemberMetadataTombstone(MemberRecordTombstone):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsTargetAssignmentMetadataEntry(GroupRecord):
    """The epoch that the target assignment was computed for."""

    epoch: int
    timestamp: int = 0  # the time of the computation; 0 if unknown (before Kafka 4.3)


class StreamsTargetAssignmentMetadataTombstone(GroupRecordTombstone):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsTasks:
    """Tasks of a subtopology, one for each partition."""

    subtopology: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsTargetAssignmentMemberEntry(MemberRecord):
    """The tasks that a member will run."""

    active: tuple[StreamsTasks, ...]
    standby: tuple[StreamsTasks, ...]
    warmup: tuple[StreamsTasks, ...]


class StreamsTargetAssignmentMemberTombstone(MemberRecordTombstone):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsCurrentTasks:
    subtopology: str
    partitions: tuple[int, ...]
    #: The epoch in which each was given; only active tasks have it.
    epochs: tuple[int, ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsCurrentMemberAssignmentEntry(MemberRecord):
    """The tasks that a member runs, or must give up. A static member that left has epoch -2."""

    epoch: int
    previous_epoch: int
    state: int
    active: tuple[StreamsCurrentTasks, ...]
    standby: tuple[StreamsCurrentTasks, ...]
    warmup: tuple[StreamsCurrentTasks, ...]
    active_revoking: tuple[StreamsCurrentTasks, ...]
    standby_revoking: tuple[StreamsCurrentTasks, ...]
    warmup_revoking: tuple[StreamsCurrentTasks, ...]


class StreamsCurrentMemberAssignmentTombstone(MemberRecordTombstone):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsInternalTopic:
    """A topic that Kafka Streams creates."""

    topic: str
    partition_count: int  # 0 if the number follows from other topics
    replication_factor: int  # 0: the broker's default
    configs: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopartitionGroup:
    """Topics that need equal numbers of partitions, as positions in a subtopology's lists."""

    source_topic_places: tuple[int, ...]
    source_regex_places: tuple[int, ...]
    repartition_source_places: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtopology:
    """A part of a topology that shares no data in memory with the others."""

    subtopology: str
    source_topics: tuple[str, ...]
    source_regexes: tuple[str, ...]
    changelogs: tuple[StreamsInternalTopic, ...]
    repartition_sinks: tuple[str, ...]
    repartition_sources: tuple[StreamsInternalTopic, ...]
    copartition_groups: tuple[CopartitionGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsTopologyEntry(GroupRecord):
    epoch: int
    subtopologies: tuple[Subtopology, ...]


class StreamsTopologyTombstone(GroupRecordTombstone):
    __slots__ = ()


StreamsGroupEntry: TypeAlias = (
    StreamsGroupMetadataEntry
    | StreamsGroupMetadataTombstone
    | StreamsPartitionMetadataEntry
    | StreamsPartitionMetadataTombstone
    | StreamsMemberMetadataEntry
    | StreamsMemberMetadataTombstone
    | StreamsTargetAssignmentMetadataEntry
    | StreamsTargetAssignmentMetadataTombstone
    | StreamsTargetAssignmentMemberEntry
    | StreamsTargetAssignmentMemberTombstone
    | StreamsCurrentMemberAssignmentEntry
    | StreamsCurrentMemberAssignmentTombstone
    | StreamsTopologyEntry
    | StreamsTopologyTombstone
)
