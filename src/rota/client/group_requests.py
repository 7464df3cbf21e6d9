"""Converts the model's requests to a group's coordinator to Kafka's messages, and the responses
back.

A message has the fields of all versions: a field that a version lacks is not written, and reads as
its default. So neither direction needs the version, which the connection chooses;
:data:`MAX_VERSIONS` and :func:`min_version` limit it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from rota.client.cluster import error_name
from rota.engine.model import request as requests
from rota.engine.model import response as results
from rota.engine.model.request import GroupRequest
from rota.engine.model.text import list_first_names
from rota.engine.model.topic import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    OffsetAndMetadata,
    TopicPartition,
    values_by_topic,
)
from rota.errors import AuthorizationFailed, Code, GroupError, RotaError
from rota.protocol import messages
from rota.protocol.messages import Api, Message, Request
from rota.protocol.schemas import ResponseT

#: The highest versions that Rota uses: later ones have topic ids instead of names.
MAX_VERSIONS: Final[Mapping[Api, int]] = {Api.OFFSET_COMMIT: 9, Api.OFFSET_FETCH: 9}
MAX_REASON_LENGTH = 255  # characters; Kafka's consumer cuts the reason there too (KIP-800)
NO_RETENTION = -1

#: Codes that concern the whole request, also where a response has them for each partition.
REQUEST_LEVEL_CODES = frozenset(
    {
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.INVALID_GROUP_ID,
    }
)

GroupRequestT = TypeVar("GroupRequestT", bound=GroupRequest)
T = TypeVar("T")


class RequestCodec(NamedTuple, Generic[GroupRequestT, ResponseT]):
    encode: Callable[[GroupRequestT], Request[ResponseT]]
    decode: Callable[[ResponseT], results.GroupResponse]


_CODES_BY_NUMBER = {int(code): code for code in Code}


def min_version(request: GroupRequest) -> int:  # noqa: PLR0911 (one for each request)
    """Returns the lowest version that has a field for every part of the request."""
    match request:
        case requests.JoinGroup(group_instance_id=str()):
            return 5
        case requests.SyncGroup() | requests.Heartbeat():
            return 0 if request.group_instance_id is None else 3
        case requests.LeaveGroup(members=(member,)):
            return 0 if member.group_instance_id is None else 3
        case requests.LeaveGroup():
            return 3
        case requests.OffsetCommit(group_instance_id=str()):
            return 7
        case requests.OffsetFetch(partitions=None):
            return 2
        case requests.ListGroups(states=(_, *_)):
            return 4
        case _:
            return 0


def encode_group_request(request: GroupRequest) -> tuple[Api, Request[Any]]:
    message = REQUEST_CODECS[type(request)].encode(request)
    return message.API, message


def decode_group_response(request: GroupRequest, response: Message) -> results.GroupResponse:
    return REQUEST_CODECS[type(request)].decode(response)


def parse_error_code(number: int) -> Code:
    """Converts an error code. An unknown code stays a number, and is not fatal."""
    return _CODES_BY_NUMBER.get(number, cast(Code, number))


def _encode_join(request: requests.JoinGroup) -> messages.JoinGroupRequest:
    make_protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol
    return messages.JoinGroupRequest(
        group_id=request.group,
        session_timeout_ms=request.session_timeout,
        rebalance_timeout_ms=request.rebalance_timeout,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocols=[make_protocol(name=name, metadata=data) for name, data in request.protocols],
        reason=request.reason and request.reason[:MAX_REASON_LENGTH],
    )


def _decode_join(response: messages.JoinGroupResponse) -> results.JoinGroupResult:
    members = [
        results.JoinedMember(each.member_id, each.group_instance_id, each.metadata)
        for each in response.members
    ]
    return results.JoinGroupResult(
        code=parse_error_code(response.error_code),
        member_id=response.member_id,
        generation=response.generation_id,
        protocol_type=response.protocol_type,
        protocol=response.protocol_name,
        leader=response.leader,
        skip_assignment=response.skip_assignment,
        members=tuple(members),
    )


def _encode_sync(request: requests.SyncGroup) -> messages.SyncGroupRequest:
    make_assignment = messages.SyncGroupRequest.SyncGroupRequestAssignment
    return messages.SyncGroupRequest(
        group_id=request.group,
        generation_id=request.generation,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol,
        assignments=[
            make_assignment(member_id=member, assignment=assignment)
            for member, assignment in request.assignments
        ],
    )


def _decode_sync(response: messages.SyncGroupResponse) -> results.SyncGroupResult:
    return results.SyncGroupResult(
        code=parse_error_code(response.error_code),
        protocol_type=response.protocol_type,
        protocol=response.protocol_name,
        assignment=response.assignment,
    )


def _encode_heartbeat(request: requests.Heartbeat) -> messages.HeartbeatRequest:
    return messages.HeartbeatRequest(
        group_id=request.group,
        generation_id=request.generation,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )


def _decode_heartbeat(response: messages.HeartbeatResponse) -> results.HeartbeatResult:
    return results.HeartbeatResult(code=parse_error_code(response.error_code))


def _encode_leave(request: requests.LeaveGroup) -> messages.LeaveGroupRequest:
    return messages.LeaveGroupRequest(
        group_id=request.group,
        member_id=request.members[0].member_id,  # before version 3 only one member can leave
        members=[
            messages.LeaveGroupRequest.MemberIdentity(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                reason=each.reason and each.reason[:MAX_REASON_LENGTH],
            )
            for each in request.members
        ],
    )


def _decode_leave(response: messages.LeaveGroupResponse) -> results.LeaveGroupResult:
    members = [
        results.LeavingMemberResult(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            code=parse_error_code(each.error_code),
        )
        for each in response.members
    ]
    code = parse_error_code(response.error_code)
    return results.LeaveGroupResult(code=code, members=tuple(members))


def _encode_commit(request: requests.OffsetCommit) -> messages.OffsetCommitRequest:
    make = messages.OffsetCommitRequest
    make_topic = make.OffsetCommitRequestTopic
    topics: dict[str, list[messages.OffsetCommitRequest.OffsetCommitRequestPartition]] = {}
    for (topic, number), each in request.offsets.items():
        epoch = NO_LEADER_EPOCH if each.leader_epoch is None else each.leader_epoch
        partition = make.OffsetCommitRequestPartition(
            partition_index=number,
            committed_offset=each.offset,
            committed_leader_epoch=epoch,
            committed_metadata=each.metadata,
        )
        topics.setdefault(topic, []).append(partition)
    return make(
        group_id=request.group,
        generation_id_or_member_epoch=request.generation,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=NO_RETENTION if request.retention is None else request.retention,
        topics=[make_topic(name=name, partitions=each) for name, each in topics.items()],
    )


def _codes_by_partition(
    response: messages.OffsetCommitResponse | messages.OffsetDeleteResponse,
) -> dict[TopicPartition, Code]:
    return {
        TopicPartition(topic.name, each.partition_index): parse_error_code(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }


def _decode_commit(response: messages.OffsetCommitResponse) -> results.OffsetCommitResult:
    return results.OffsetCommitResult(codes=_codes_by_partition(response))


def encode_offset_fetch(*fetches: requests.OffsetFetch) -> messages.OffsetFetchRequest:
    """Encodes the requests for one group, or for many groups from version 8 on."""
    first, make = fetches[0], messages.OffsetFetchRequest
    return make(
        group_id=first.group,
        topics=_encode_topics(first.partitions, make.OffsetFetchRequestTopic),
        groups=[
            make.OffsetFetchRequestGroup(
                group_id=each.group,
                topics=_encode_topics(each.partitions, make.OffsetFetchRequestTopics),
            )
            for each in fetches
        ],
        require_stable=first.require_stable,
    )


def _encode_topics(
    partitions: Iterable[TopicPartition] | None, make_topic: Callable[..., T]
) -> list[T] | None:
    if partitions is None:
        return None
    return [
        make_topic(name=name, partition_indexes=numbers)
        for name, numbers in _numbers_by_topic(partitions)
    ]


def _numbers_by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    by_topic = values_by_topic(dict.fromkeys(partitions))
    return [(name, [number for number, _ in numbers]) for name, numbers in by_topic.items()]


def decode_offset_fetch(
    response: messages.OffsetFetchResponse, group_id: str | None = None
) -> results.OffsetFetchResult:
    """Decodes the offsets of one group; ``group_id`` says which, if the request had several."""
    group: messages.OffsetFetchResponse | messages.OffsetFetchResponse.OffsetFetchResponseGroup
    group = response
    if response.groups:  # from version 8 on
        group = next(each for each in response.groups if group_id in {None, each.group_id})
    offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
    codes: dict[TopicPartition, Code] = {}
    for topic in group.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                codes[partition] = parse_error_code(each.error_code)
            elif each.committed_offset == NO_OFFSET:
                offsets[partition] = None
            else:
                known = each.committed_leader_epoch != NO_LEADER_EPOCH
                epoch = each.committed_leader_epoch if known else None
                offset, metadata = each.committed_offset, each.metadata or ""
                offsets[partition] = OffsetAndMetadata(offset, metadata, epoch)
    code = parse_error_code(group.error_code)
    if not code and not offsets and len(set(codes.values())) == 1:
        # version 1 has the error of the whole request at each partition
        common = next(iter(codes.values()))
        code = common if common in REQUEST_LEVEL_CODES else Code.NONE
    return results.OffsetFetchResult(code=code, offsets=offsets, codes=codes)


def _encode_offset_delete(request: requests.OffsetDelete) -> messages.OffsetDeleteRequest:
    make = messages.OffsetDeleteRequest
    make_partition = make.OffsetDeleteRequestPartition
    topics = []
    for name, numbers in _numbers_by_topic(request.partitions):
        partitions = [make_partition(partition_index=number) for number in numbers]
        topics.append(make.OffsetDeleteRequestTopic(name=name, partitions=partitions))
    return make(group_id=request.group, topics=topics)


def _decode_offset_delete(response: messages.OffsetDeleteResponse) -> results.OffsetDeleteResult:
    code = parse_error_code(response.error_code)
    return results.OffsetDeleteResult(code=code, codes=_codes_by_partition(response))


def _encode_describe(request: requests.DescribeGroups) -> messages.DescribeGroupsRequest:
    return messages.DescribeGroupsRequest(groups=list(request.groups))


def _decode_describe(response: messages.DescribeGroupsResponse) -> results.DescribeGroupsResult:
    return results.DescribeGroupsResult(groups=tuple(map(_decode_group, response.groups)))


def _decode_group(group: messages.DescribeGroupsResponse.DescribedGroup) -> results.DescribedGroup:
    members = [
        results.DescribedMember(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            metadata=each.member_metadata,
            assignment=each.member_assignment,
        )
        for each in group.members
    ]
    return results.DescribedGroup(
        group=group.group_id,
        code=parse_error_code(group.error_code),
        state=group.group_state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        members=tuple(members),
    )


def _encode_list(request: requests.ListGroups) -> messages.ListGroupsRequest:
    return messages.ListGroupsRequest(states_filter=list(request.states))


def _decode_list(response: messages.ListGroupsResponse) -> results.ListGroupsResult:
    groups = [
        results.ListedGroup(
            group=each.group_id,
            protocol_type=each.protocol_type,
            state=each.group_state,
            group_type=each.group_type.lower(),
        )
        for each in sorted(response.groups, key=lambda group: group.group_id)
    ]
    code = parse_error_code(response.error_code)
    return results.ListGroupsResult(code=code, groups=tuple(groups))


def _encode_delete(request: requests.DeleteGroups) -> messages.DeleteGroupsRequest:
    return messages.DeleteGroupsRequest(groups_names=list(request.groups))


def _decode_delete(response: messages.DeleteGroupsResponse) -> results.DeleteGroupsResult:
    codes = {each.group_id: parse_error_code(each.error_code) for each in response.results}
    return results.DeleteGroupsResult(codes=codes)


REQUEST_CODECS: Final[Mapping[type[object], RequestCodec[Any, Any]]] = {
    requests.JoinGroup: RequestCodec(_encode_join, _decode_join),
    requests.SyncGroup: RequestCodec(_encode_sync, _decode_sync),
    requests.Heartbeat: RequestCodec(_encode_heartbeat, _decode_heartbeat),
    requests.LeaveGroup: RequestCodec(_encode_leave, _decode_leave),
    requests.OffsetCommit: RequestCodec(_encode_commit, _decode_commit),
    requests.OffsetFetch: RequestCodec(encode_offset_fetch, decode_offset_fetch),
    requests.OffsetDelete: RequestCodec(_encode_offset_delete, _decode_offset_delete),
    requests.DescribeGroups: RequestCodec(_encode_describe, _decode_describe),
    requests.ListGroups: RequestCodec(_encode_list, _decode_list),
    requests.DeleteGroups: RequestCodec(_encode_delete, _decode_delete),
}

AUTHORIZATION_CODES = frozenset(
    {
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
    }
)

ERROR_TEXTS: Final[Mapping[int, str]] = {
    Code.NON_EMPTY_GROUP: "the group has members",
    Code.UNKNOWN_MEMBER_ID: "the group has members",
    Code.GROUP_SUBSCRIBED_TO_TOPIC: "a member subscribes to the topic",
    Code.GROUP_ID_NOT_FOUND: "there is no such group",
    Code.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
    **dict.fromkeys(AUTHORIZATION_CODES, "no permission"),
}


def _error_text(code: int) -> str:
    name = error_name(code)
    return f"{ERROR_TEXTS[code]} ({name})" if code in ERROR_TEXTS else f"error {name}"


def group_request_error(code: Code, what: str) -> RotaError:
    return _make_error(code, f"{what}: {_error_text(code)}")


def check_codes(codes: Mapping[T, Code], what: str) -> None:
    """Raises GroupError or AuthorizationFailed, with names and reasons, unless all codes are 0."""
    failed: dict[Code, list[str]] = {}
    for name, code in codes.items():
        if code:
            failed.setdefault(code, []).append(str(name))
    if failed:
        reasons = [
            f"{list_first_names(each)}: {_error_text(code)}" for code, each in failed.items()
        ]
        done = len(codes) - sum(map(len, failed.values()))
        rest = f"; the other {done} were" if done else ""
        raise _make_error(next(iter(failed)), f"{what}: {'; '.join(reasons)}{rest}")


def _make_error(code: Code, message: str) -> RotaError:
    is_authorization = code in AUTHORIZATION_CODES
    return AuthorizationFailed(code, message) if is_authorization else GroupError(message, code)
