"""Journal entries of share groups (KIP-932) and of streams groups (KIP-1071).

As for consumer groups, Kafka writes one entry for each part of a group's state. Names are the same
as in :mod:`rota.engine.model.consumer_group_entry`. A broker does not load this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rota.engine.model import consumer_group_entry as consumer


class ShareRecord(consumer.GroupRecord):
    """A record of a share group."""

    __slots__ = ()


class SharePartitionMetadataEntry(consumer.PartitionMetadataEntry, ShareRecord):
    """Only early releases of Kafka 4 wrote it."""

    __slots__ = ()


class SharePartitionMetadataTombstone(consumer.PartitionMetadataTombstone, ShareRecord):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMemberMetadataEntry(consumer.ClientRecord, ShareRecord):
    """A member of a share group, with its subscription. It has no static id."""

    topics: tuple[str, ...]


class ShareMemberMetadataTombstone(consumer.MemberMetadataTombstone, ShareRecord):
    __slots__ = ()


class ShareGroupMetadataEntry(consumer.ConsumerGroupMetadataEntry, ShareRecord):
    __slots__ = ()


class ShareGroupMetadataTombstone(consumer.ConsumerGroupMetadataTombstone, ShareRecord):
    __slots__ = ()


class ShareTargetAssignmentMetadataEntry(consumer.TargetAssignmentMetadataEntry, ShareRecord):
    __slots__ = ()


class ShareTargetAssignmentMetadataTombstone(
    consumer.TargetAssignmentMetadataTombstone, ShareRecord
):
    __slots__ = ()


class ShareTargetAssignmentMemberEntry(consumer.TargetAssignmentMemberEntry, ShareRecord):
    """The partitions that a member will read; other members may read them too."""

    __slots__ = ()


class ShareTargetAssignmentMemberTombstone(consumer.TargetAssignmentMemberTombstone, ShareRecord):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCurrentMemberAssignmentEntry(consumer.CurrentAssignmentEntry, ShareRecord):
    """The partitions that a member reads."""

    assigned: tuple[consumer.TargetAssignmentTopic, ...]


class ShareCurrentMemberAssignmentTombstone(consumer.CurrentMemberAssignmentTombstone, ShareRecord):
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
class ShareStatePartitionMetadataEntry(ShareRecord):
    """The partitions that members can read (initialized), or cannot read yet."""

    initializing: tuple[ShareStateTopic, ...]
    initialized: tuple[ShareStateTopic, ...]
    deleting: tuple[ShareStateDeletedTopic, ...]


class ShareStatePartitionMetadataTombstone(ShareRecord):
    __slots__ = ()


class StreamsRecord(consumer.GroupRecord):
    """A record of a streams group."""

    __slots__ = ()


class KeyValue(NamedTuple):
    """A setting or a tag."""

    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupMetadataEntry(consumer.ConsumerGroupMetadataEntry, StreamsRecord):
    validated_topology_epoch: int = -1  # topology with all topics in the cluster; -1: none
    configs: tuple[KeyValue, ...] | None = ()  # the settings of the last assignment


class StreamsGroupMetadataTombstone(consumer.ConsumerGroupMetadataTombstone, StreamsRecord):
    __slots__ = ()


class StreamsPartitionMetadataEntry(consumer.PartitionMetadataEntry, StreamsRecord):
    """Only early releases of Kafka 4 wrote it."""

    __slots__ = ()


class StreamsPartitionMetadataTombstone(consumer.PartitionMetadataTombstone, StreamsRecord):
    __slots__ = ()


class StreamsEndpoint(NamedTuple):
    """Where interactive queries of a member's state are answered."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMemberMetadataEntry(consumer.ClientRecord, StreamsRecord):
    """A member of a streams group: a thread of a process."""

    group_instance_id: str | None
    rebalance_timeout: int
    topology_epoch: int
    process_id: str
    endpoint: StreamsEndpoint | None
    client_tags: tuple[KeyValue, ...]


class StreamsMemberMetadataTombstone(consumer.MemberMetadataTombstone, StreamsRecord):
    __slots__ = ()


class StreamsTargetAssignmentMetadataEntry(consumer.TargetAssignmentMetadataEntry, StreamsRecord):
    __slots__ = ()


class StreamsTargetAssignmentMetadataTombstone(
    consumer.TargetAssignmentMetadataTombstone, StreamsRecord
):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsTasks:
    """Tasks of a subtopology, one for each partition."""

    subtopology: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsTargetAssignmentMemberEntry(consumer.MemberRecord, StreamsRecord):
    """The tasks that a member will run."""

    active: tuple[StreamsTasks, ...]
    standby: tuple[StreamsTasks, ...]
    warmup: tuple[StreamsTasks, ...]


class StreamsTargetAssignmentMemberTombstone(
    consumer.TargetAssignmentMemberTombstone, StreamsRecord
):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsCurrentTasks:
    subtopology: str
    partitions: tuple[int, ...]
    epochs: tuple[int, ...] | None = ()  # each task's own epoch; only active tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsCurrentMemberAssignmentEntry(consumer.CurrentAssignmentEntry, StreamsRecord):
    """The tasks that a member runs, or must give up. A static member that left has epoch -2."""

    active: tuple[StreamsCurrentTasks, ...]
    standby: tuple[StreamsCurrentTasks, ...]
    warmup: tuple[StreamsCurrentTasks, ...]
    active_revoking: tuple[StreamsCurrentTasks, ...]
    standby_revoking: tuple[StreamsCurrentTasks, ...]
    warmup_revoking: tuple[StreamsCurrentTasks, ...]


class StreamsCurrentMemberAssignmentTombstone(
    consumer.CurrentMemberAssignmentTombstone, StreamsRecord
):
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
class StreamsTopologyEntry(StreamsRecord):
    epoch: int
    subtopologies: tuple[Subtopology, ...]


class StreamsTopologyTombstone(StreamsRecord):
    __slots__ = ()
