"""Entries in the words of Kafka's own JSON: as kafka-dump-log prints records, and reads them.

Written from Kafka's schemas, apart from the code under test.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable
from functools import singledispatch

from rota.engine.model.consumer_group_entry import (
    ConsumerGroupMetadataEntry,
    ConsumerGroupMetadataTombstone,
    CurrentAssignmentTopic,
    CurrentMemberAssignmentEntry,
    CurrentMemberAssignmentTombstone,
    MemberMetadataEntry,
    MemberMetadataTombstone,
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
    raise TypeError(entry)


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
    return {
        "topicPartitions": [
            {"topicId": uuid(topic.topic_id), "partitions": list(topic.partitions)}
            for topic in entry.topics
        ]
    }


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
