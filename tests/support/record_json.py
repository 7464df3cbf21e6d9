"""Entries in the words of Kafka's own JSON: as kafka-dump-log prints records, and reads them.

Written from Kafka's schemas, apart from the code under test.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from functools import singledispatch

from rota.engine.model import share_streams_entry as other
from rota.engine.model.consumer_group_entry import (
    ConsumerGroupMetadataEntry,
    ConsumerGroupMetadataTombstone,
    CurrentAssignmentTopic,
    CurrentMemberAssignmentEntry,
    CurrentMemberAssignmentTombstone,
    MemberMetadataEntry,
    MemberMetadataTombstone,
    MemberRecord,
    PartitionMetadataEntry,
    PartitionMetadataTombstone,
    RegularExpressionEntry,
    RegularExpressionTombstone,
    TargetAssignmentMemberEntry,
    TargetAssignmentMemberTombstone,
    TargetAssignmentMetadataEntry,
    TargetAssignmentMetadataTombstone,
)
from rota.engine.model.journal_entry import (
    GroupMetadataEntry,
    GroupMetadataTombstone,
    JournalEntry,
    OffsetCommitEntry,
    OffsetCommitTombstone,
)

Json = dict[str, object]

GROUP = {"groupId": "group"}
MEMBER = {"groupId": "group", "memberId": "member_id"}
KEYS: dict[type, tuple[int, dict[str, str]]] = {
    made: (number, fields)
    for number, kinds, fields in (
        (
            1,
            (OffsetCommitEntry, OffsetCommitTombstone),
            {"group": "group", "topic": "topic", "partition": "partition"},
        ),
        (2, (GroupMetadataEntry, GroupMetadataTombstone), {"group": "group"}),
        (3, (ConsumerGroupMetadataEntry, ConsumerGroupMetadataTombstone), GROUP),
        (4, (PartitionMetadataEntry, PartitionMetadataTombstone), GROUP),
        (5, (MemberMetadataEntry, MemberMetadataTombstone), MEMBER),
        (6, (TargetAssignmentMetadataEntry, TargetAssignmentMetadataTombstone), GROUP),
        (7, (TargetAssignmentMemberEntry, TargetAssignmentMemberTombstone), MEMBER),
        (8, (CurrentMemberAssignmentEntry, CurrentMemberAssignmentTombstone), MEMBER),
        (
            16,
            (RegularExpressionEntry, RegularExpressionTombstone),
            {"groupId": "group", "regularExpression": "regex"},
        ),
        *(
            (
                number,
                (getattr(other, f"{name}Entry"), getattr(other, f"{name}Tombstone")),
                MEMBER if issubclass(getattr(other, f"{name}Entry"), MemberRecord) else GROUP,
            )
            for number, name in {
                9: "SharePartitionMetadata",
                10: "ShareMemberMetadata",
                11: "ShareGroupMetadata",
                12: "ShareTargetAssignmentMetadata",
                13: "ShareTargetAssignmentMember",
                14: "ShareCurrentMemberAssignment",
                15: "ShareStatePartitionMetadata",
                17: "StreamsGroupMetadata",
                18: "StreamsPartitionMetadata",
                19: "StreamsMemberMetadata",
                20: "StreamsTargetAssignmentMetadata",
                21: "StreamsTargetAssignmentMember",
                22: "StreamsCurrentMemberAssignment",
                23: "StreamsTopology",
            }.items()
        ),
    )
    for made in kinds
}


def key_json(entry: JournalEntry) -> tuple[int, Json]:
    """The record's type, and its key."""
    number, fields = KEYS[type(entry)]
    return number, {name: getattr(entry, field) for name, field in fields.items()}


def value_json(entry: JournalEntry) -> Json | None:
    """The record's value with the fields of all versions; tagged ones only where they are set."""
    return None if type(entry).__name__.endswith("Tombstone") else entry_json(entry)


@singledispatch
def entry_json(entry: JournalEntry) -> Json:
    return structure_json(entry, VALUES[type(entry)])


def base64(data: bytes) -> str:
    return b64encode(data).decode()


def uuid(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def tagged_json(name: str, content: object, default: object) -> Json:
    return {} if content == default else {name: content}


@entry_json.register
def _(entry: OffsetCommitEntry) -> Json:
    return {
        "offset": entry.offset,
        "leaderEpoch": entry.leader_epoch,
        "metadata": entry.metadata,
        "commitTimestamp": entry.commit_timestamp,
        "expireTimestamp": entry.expire_timestamp,
        **tagged_json("topicId", entry.topic_id and uuid(entry.topic_id), None),
    }


@entry_json.register
def _(entry: GroupMetadataEntry) -> Json:
    return {
        "protocolType": entry.protocol_type,
        "generation": entry.generation,
        "protocol": entry.protocol,
        "leader": entry.leader,
        "currentStateTimestamp": entry.state_timestamp,
        "members": [
            {
                "memberId": member.member_id,
                "groupInstanceId": member.group_instance_id,
                "clientId": member.client_id,
                "clientHost": member.client_host,
                "rebalanceTimeout": member.rebalance_timeout,
                "sessionTimeout": member.session_timeout,
                "subscription": base64(member.subscription),
                "assignment": base64(member.assignment),
            }
            for member in entry.members
        ],
    }


@entry_json.register
def _(entry: ConsumerGroupMetadataEntry) -> Json:
    return {"epoch": entry.epoch, **tagged_json("metadataHash", entry.metadata_hash, 0)}


@entry_json.register
def _(entry: PartitionMetadataEntry) -> Json:
    return {
        "topics": [
            {
                "topicId": uuid(topic.topic_id),
                "topicName": topic.topic,
                "numPartitions": topic.partition_count,
                "partitionMetadata": [
                    {"partition": place.partition, "racks": list(place.racks)}
                    for place in topic.racks
                ],
            }
            for topic in entry.topics
        ]
    }


@entry_json.register
def _(entry: MemberMetadataEntry) -> Json:
    classic: Json | None = None
    if entry.classic is not None:
        classic = {
            "sessionTimeoutMs": entry.classic.session_timeout,
            "supportedProtocols": [
                {"name": protocol.name, "metadata": base64(protocol.metadata)}
                for protocol in entry.classic.protocols
            ],
        }
    empty: Json = {"sessionTimeoutMs": 0, "supportedProtocols": []}
    return {
        "instanceId": entry.group_instance_id,
        "rackId": entry.rack,
        "clientId": entry.client_id,
        "clientHost": entry.client_host,
        "subscribedTopicNames": list(entry.topics),
        "subscribedTopicRegex": entry.regex,
        "rebalanceTimeoutMs": entry.rebalance_timeout,
        "serverAssignor": entry.assignor,
        **tagged_json("classicMemberMetadata", classic, empty),
    }


@entry_json.register
def _(entry: TargetAssignmentMetadataEntry) -> Json:
    return {
        "assignmentEpoch": entry.epoch,
        **tagged_json("assignmentTimestamp", entry.timestamp, 0),
    }


@entry_json.register
def _(entry: TargetAssignmentMemberEntry) -> Json:
    return {"topicPartitions": fields_json(entry.topics, TOPIC_PARTITIONS)}


@entry_json.register
def _(entry: CurrentMemberAssignmentEntry) -> Json:
    return {
        "memberEpoch": entry.epoch,
        "previousMemberEpoch": entry.previous_epoch,
        "state": entry.state,
        "assignedPartitions": topics_json(entry.assigned),
        "partitionsPendingRevocation": topics_json(entry.revoking),
    }


def topics_json(topics: Iterable[CurrentAssignmentTopic]) -> list[Json]:
    return [
        {
            "topicId": uuid(topic.topic_id),
            "partitions": list(topic.partitions),
            **tagged_json(
                "assignmentEpochs", None if topic.epochs is None else list(topic.epochs), []
            ),
        }
        for topic in topics
    ]


@entry_json.register
def _(entry: RegularExpressionEntry) -> Json:
    return {"topics": list(entry.topics), "version": entry.version, "timestamp": entry.timestamp}


#: Kafka's names of fields in the values of share and streams groups, with Rota's name; a pair has
#: the fields of the structures in an array, a set a tagged array that is written unless empty.
Fields = Mapping[str, "str | set[str] | tuple[str, Fields]"]
TOPIC_PARTITIONS: Fields = {"topicId": "topic_id", "partitions": "partitions"}
STATE_TOPIC: Fields = {"topicId": "topic_id", "topicName": "topic", "partitions": "partitions"}
KEY_VALUE: Fields = {"key": "key", "value": "value"}
TASKS: Fields = {"subtopologyId": "subtopology", "partitions": "partitions"}
CURRENT_TASKS: Fields = {**TASKS, "assignmentEpochs": {"epochs"}}
INTERNAL_TOPIC: Fields = {
    "name": "topic",
    "partitions": "partition_count",
    "replicationFactor": "replication_factor",
    "topicConfigs": ("configs", KEY_VALUE),
}
VALUES: dict[type, Fields] = {
    other.ShareMemberMetadataEntry: {
        "rackId": "rack",
        "clientId": "client_id",
        "clientHost": "client_host",
        "subscribedTopicNames": "topics",
    },
    other.ShareCurrentMemberAssignmentEntry: {
        "memberEpoch": "epoch",
        "previousMemberEpoch": "previous_epoch",
        "state": "state",
        "assignedPartitions": ("assigned", TOPIC_PARTITIONS),
    },
    other.ShareStatePartitionMetadataEntry: {
        "initializingTopics": ("initializing", STATE_TOPIC),
        "initializedTopics": ("initialized", STATE_TOPIC),
        "deletingTopics": ("deleting", {"topicId": "topic_id", "topicName": "topic"}),
    },
    other.StreamsMemberMetadataEntry: {
        "instanceId": "group_instance_id",
        "rackId": "rack",
        "clientId": "client_id",
        "clientHost": "client_host",
        "rebalanceTimeoutMs": "rebalance_timeout",
        "topologyEpoch": "topology_epoch",
        "processId": "process_id",
        "userEndpoint": ("endpoint", {"host": "host", "port": "port"}),
        "clientTags": ("client_tags", KEY_VALUE),
    },
    other.StreamsTargetAssignmentMemberEntry: {
        "activeTasks": ("active", TASKS),
        "standbyTasks": ("standby", TASKS),
        "warmupTasks": ("warmup", TASKS),
    },
    other.StreamsCurrentMemberAssignmentEntry: {
        "memberEpoch": "epoch",
        "previousMemberEpoch": "previous_epoch",
        "state": "state",
        "activeTasks": ("active", CURRENT_TASKS),
        "standbyTasks": ("standby", CURRENT_TASKS),
        "warmupTasks": ("warmup", CURRENT_TASKS),
        "activeTasksPendingRevocation": ("active_revoking", CURRENT_TASKS),
        "standbyTasksPendingRevocation": ("standby_revoking", CURRENT_TASKS),
        "warmupTasksPendingRevocation": ("warmup_revoking", CURRENT_TASKS),
    },
    other.StreamsTopologyEntry: {
        "epoch": "epoch",
        "subtopologies": (
            "subtopologies",
            {
                "subtopologyId": "subtopology",
                "sourceTopics": "source_topics",
                "sourceTopicRegex": "source_regexes",
                "stateChangelogTopics": ("changelogs", INTERNAL_TOPIC),
                "repartitionSinkTopics": "repartition_sinks",
                "repartitionSourceTopics": ("repartition_sources", INTERNAL_TOPIC),
                "copartitionGroups": (
                    "copartition_groups",
                    {
                        "sourceTopics": "source_topic_places",
                        "sourceTopicRegex": "source_regex_places",
                        "repartitionSourceTopics": "repartition_source_places",
                    },
                ),
            },
        ),
    },
}


def fields_json(value: object, fields: Fields) -> object:
    """A structure, an array of structures, or null."""
    if value is None:
        return None
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return [structure_json(each, fields) for each in value]
    return structure_json(value, fields)


def structure_json(value: object, fields: Fields) -> Json:
    found: Json = {}
    for name, field in fields.items():
        match field:
            case tuple():
                found[name] = fields_json(getattr(value, field[0]), field[1])
            case set():
                (own,) = field
                found |= tagged_json(name, plain_json(getattr(value, own)), [])
            case _:
                found[name] = plain_json(getattr(value, field))
    return found


def plain_json(value: object) -> object:
    if isinstance(value, bytes):
        return uuid(value)
    return list(value) if isinstance(value, tuple) else value


@entry_json.register
def _(entry: other.StreamsGroupMetadataEntry) -> Json:
    return {
        "epoch": entry.epoch,
        "metadataHash": entry.metadata_hash,
        **tagged_json("validatedTopologyEpoch", entry.validated_topology_epoch, -1),
        **tagged_json("lastAssignmentConfigs", fields_json(entry.configs, KEY_VALUE), []),
    }


@entry_json.register
def _(entry: other.ShareGroupMetadataEntry) -> Json:
    return {"epoch": entry.epoch, "metadataHash": entry.metadata_hash}
