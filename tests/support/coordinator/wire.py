"""Rota's requests as messages of Kafka's protocol, and its answers as Rota's replies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, assert_never

from kafka.protocol.admin.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)

from rota.engine.model.request import (
    DeleteGroups,
    DescribeGroups,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
)
from rota.engine.model.response import (
    DeleteGroupsResult,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsResult,
    GroupResponse,
    HeartbeatResult,
    JoinedMember,
    JoinGroupResult,
    LeaveGroupResult,
    LeavingMemberResult,
    ListedGroup,
    ListGroupsResult,
    OffsetCommitResult,
    OffsetDeleteResult,
    OffsetFetchResult,
    SyncGroupResult,
)
from rota.engine.model.topic import NO_LEADER_EPOCH, NO_OFFSET, OffsetAndMetadata, TopicPartition
from rota.errors import Code

#: A message of kafka-python's protocol; its classes are made of schemas, so they have no types.
Message = Any


def encode(request: GroupRequest) -> Message:  # noqa: C901, PLR0911 (one for each request)
    """The message, of the version that the request's fields stand for."""
    match request:
        case JoinGroup():
            return _join(request)
        case SyncGroup():
            return _sync(request)
        case Heartbeat():
            return HeartbeatRequest(
                version=4,
                group_id=request.group,
                generation_id=request.generation,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
            )
        case LeaveGroup():
            identity = LeaveGroupRequest.MemberIdentity
            members = [
                identity(
                    member_id=leaver.member_id,
                    group_instance_id=leaver.group_instance_id,
                    reason=leaver.reason,
                )
                for leaver in request.members
            ]
            return LeaveGroupRequest(version=5, group_id=request.group, members=members)
        case OffsetCommit():
            return _commit(request)
        case OffsetFetch():
            return _fetch(request)
        case OffsetDelete():
            return _delete_offsets(request)
        case DeleteGroups():
            return DeleteGroupsRequest(version=2, groups_names=list(request.groups))
        case DescribeGroups():
            version = 6 if request.supports_group_id_not_found else 5
            return DescribeGroupsRequest(version=version, groups=list(request.groups))
        case ListGroups():
            return ListGroupsRequest(version=5, states_filter=list(request.states), types_filter=[])
        case _:
            assert_never(request)


def _join(request: JoinGroup) -> Message:
    if not request.supports_member_id_required:
        assert request.group_instance_id is None, "static ids came with v5"
        version = 3
    else:
        version = 9 if request.supports_skip_assignment else 8
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    return JoinGroupRequest(
        version=version,
        group_id=request.group,
        session_timeout_ms=request.session_timeout,
        rebalance_timeout_ms=request.rebalance_timeout,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocols=[protocol(name=name, metadata=data) for name, data in request.protocols],
        reason=request.reason,
    )


def _sync(request: SyncGroup) -> Message:
    assignment = SyncGroupRequest.SyncGroupRequestAssignment
    return SyncGroupRequest(
        version=4 if request.protocol is None else 5,
        group_id=request.group,
        generation_id=request.generation,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol,
        assignments=[
            assignment(member_id=member, assignment=data) for member, data in request.assignments
        ],
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """In the order of the request, which the journal follows."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics


def _commit(request: OffsetCommit) -> Message:
    in_topic = OffsetCommitRequest.OffsetCommitRequestTopic
    in_partition = in_topic.OffsetCommitRequestPartition
    topics = []
    for topic, numbers in _by_topic(request.offsets).items():
        partitions = []
        for number in numbers:
            offset = request.offsets[TopicPartition(topic, number)]
            epoch = NO_LEADER_EPOCH if offset.leader_epoch is None else offset.leader_epoch
            partitions.append(
                in_partition(
                    partition_index=number,
                    committed_offset=offset.offset,
                    committed_leader_epoch=epoch,
                    committed_metadata=offset.metadata,
                )
            )
        topics.append(in_topic(name=topic, partitions=partitions))
    return OffsetCommitRequest(
        version=9 if request.supports_group_id_not_found else 8,
        group_id=request.group,
        generation_id_or_member_epoch=request.generation,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=topics,
    )


def _fetch(request: OffsetFetch) -> Message:
    in_group = OffsetFetchRequest.OffsetFetchRequestGroup
    topics = None
    if request.partitions is not None:
        topics = [
            in_group.OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
            for topic, numbers in _by_topic(request.partitions).items()
        ]
    return OffsetFetchRequest(version=9, groups=[in_group(group_id=request.group, topics=topics)])


def _delete_offsets(request: OffsetDelete) -> Message:
    in_topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    in_partition = in_topic.OffsetDeleteRequestPartition
    topics = [
        in_topic(name=topic, partitions=[in_partition(partition_index=each) for each in numbers])
        for topic, numbers in _by_topic(request.partitions).items()
    ]
    return OffsetDeleteRequest(version=0, group_id=request.group, topics=topics)


def decode(request: GroupRequest, answer: Message) -> GroupResponse:  # noqa: C901, PLR0911 (one for each reply)
    """The reply; where the wire says nothing with an empty text, nothing."""
    match request:
        case JoinGroup():
            return _joined(answer)
        case SyncGroup():
            return SyncGroupResult(
                code=Code(answer.error_code),
                protocol_type=answer.protocol_type or None,
                protocol=answer.protocol_name or None,
                assignment=bytes(answer.assignment),
            )
        case Heartbeat():
            return HeartbeatResult(code=Code(answer.error_code))
        case LeaveGroup():
            members = tuple(
                LeavingMemberResult(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    code=Code(each.error_code),
                )
                for each in answer.members
            )
            return LeaveGroupResult(code=Code(answer.error_code), members=members)
        case OffsetCommit():
            return OffsetCommitResult(codes=_codes(answer.topics))
        case OffsetFetch():
            return _fetched(answer)
        case OffsetDelete():
            return OffsetDeleteResult(code=Code(answer.error_code), codes=_codes(answer.topics))
        case DeleteGroups():
            return DeleteGroupsResult(
                codes={each.group_id: Code(each.error_code) for each in answer.results}
            )
        case DescribeGroups():
            return DescribeGroupsResult(groups=tuple(map(_described, answer.groups)))
        case ListGroups():
            groups = tuple(
                ListedGroup(
                    group=each.group_id,
                    protocol_type=each.protocol_type,
                    state=each.group_state,
                )
                for each in sorted(answer.groups, key=lambda each: str(each.group_id))
            )
            return ListGroupsResult(code=Code(answer.error_code), groups=groups)
        case _:
            assert_never(request)


def carried(request: GroupRequest, reply: GroupResponse) -> GroupResponse:
    """What of a reply the request's version has fields for."""
    match request, reply:
        case JoinGroup(supports_member_id_required=False), JoinGroupResult():
            members = tuple(replace(each, group_instance_id=None) for each in reply.members)
            return replace(reply, protocol_type=None, members=members)
        case SyncGroup(protocol=None), SyncGroupResult():
            return replace(reply, protocol_type=None, protocol=None)
    return reply


def _joined(answer: Message) -> JoinGroupResult:
    members = tuple(
        JoinedMember(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            metadata=bytes(each.metadata),
        )
        for each in answer.members
    )
    return JoinGroupResult(
        code=Code(answer.error_code),
        member_id=answer.member_id,
        generation=answer.generation_id,
        protocol_type=answer.protocol_type or None,
        protocol=answer.protocol_name or None,
        leader=answer.leader or None,
        skip_assignment=answer.skip_assignment,
        members=members,
    )


def _codes(topics: Iterable[Message]) -> Mapping[TopicPartition, Code]:
    return {
        TopicPartition(topic.name, each.partition_index): Code(each.error_code)
        for topic in topics
        for each in topic.partitions
    }


def _fetched(answer: Message) -> OffsetFetchResult:
    (group,) = answer.groups
    offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for topic in group.topics:
        for each in topic.partitions:
            assert each.error_code == Code.NONE, each
            offset = None
            if each.committed_offset != NO_OFFSET:
                epoch = each.committed_leader_epoch
                offset = OffsetAndMetadata(
                    each.committed_offset,
                    each.metadata,
                    None if epoch == NO_LEADER_EPOCH else epoch,
                )
            offsets[TopicPartition(topic.name, each.partition_index)] = offset
    return OffsetFetchResult(code=Code(group.error_code), offsets=offsets)


def _described(group: Message) -> DescribedGroup:
    members = tuple(
        DescribedMember(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            metadata=bytes(each.member_metadata),
            assignment=bytes(each.member_assignment),
        )
        for each in group.members
    )
    return DescribedGroup(
        group=group.group_id,
        code=Code(group.error_code),
        state=group.group_state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        members=members,
    )
