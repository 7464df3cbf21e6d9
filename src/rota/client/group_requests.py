"""Requests to a group's coordinator: from the model's requests to Kafka's messages, and from
responses to replies.

A message carries the fields of all versions: a field that a version lacks is not written, and reads
as its default. So neither direction needs the version, which the connection chooses;
:data:`MAX_VERSIONS` and :func:`min_version` bound it. At the end: the errors for codes that a
coordinator answers an operator's request with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar, cast

from rota.client.cluster import error_name
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
from rota.engine.model.text import list_first_names
from rota.engine.model.topic import NO_LEADER_EPOCH, NO_OFFSET, OffsetAndMetadata, TopicPartition
from rota.errors import AuthorizationFailed, Code, GroupError, RotaError
from rota.protocol.messages import (
    Api,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    Message,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)

#: The highest versions that are meant here: behind them topics have ids in place of names.
MAX_VERSIONS: Final[Mapping[Api, int]] = {Api.OFFSET_COMMIT: 9, Api.OFFSET_FETCH: 9}

#: Of a join or leave, in characters: as Kafka's consumer cuts it (KIP-800).
MAX_REASON_LENGTH = 255

NO_RETENTION = -1

#: Codes that concern a whole request, wherever they stand in its response.
REQUEST_LEVEL_CODES = frozenset(
    {
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.INVALID_GROUP_ID,
    }
)

V = TypeVar("V")


class RequestCodec(NamedTuple):
    """How to encode a kind of request, and how to decode its response."""

    api: Api
    encode: Callable[[Any], Message]
    decode: Callable[[Any, Message], GroupResponse]


_CODES_BY_NUMBER = {int(code): code for code in Code}


def min_version(request: GroupRequest) -> int:
    """Returns the lowest version that can carry a request without losing a part of it."""
    match request:
        case JoinGroup(group_instance_id=str()):
            found = 5
        case SyncGroup(group_instance_id=str()) | Heartbeat(group_instance_id=str()) | LeaveGroup():
            found = 3 if _names_static_member(request) else 0
        case OffsetCommit(group_instance_id=str()):
            found = 7
        case OffsetFetch(partitions=None):
            found = 2
        case ListGroups(states=states) if states:
            found = 4
        case _:
            found = 0
    return found


def _names_static_member(request: SyncGroup | Heartbeat | LeaveGroup) -> bool:
    if isinstance(request, LeaveGroup):
        return len(request.members) > 1 or request.members[0].group_instance_id is not None
    return request.group_instance_id is not None


def encode_group_request(request: GroupRequest) -> tuple[Api, Message]:
    """Encodes a request as a Kafka message."""
    api, write, _ = REQUEST_CODECS[type(request)]
    return api, write(request)


def decode_group_response(request: GroupRequest, response: Message) -> GroupResponse:
    """Decodes a response into a reply."""
    return REQUEST_CODECS[type(request)].decode(request, response)


def parse_error_code(number: int) -> Code:
    """Converts an error code. An unknown one stays a number, and is not fatal."""
    return _CODES_BY_NUMBER.get(number, cast(Code, number))


def _join_request(request: JoinGroup) -> Message:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    return JoinGroupRequest(
        group_id=request.group,
        session_timeout_ms=request.session_timeout,
        rebalance_timeout_ms=request.rebalance_timeout,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocols=[protocol(name=name, metadata=data) for name, data in request.protocols],
        reason=_cut_reason(request.reason),
    )


def _join_reply(_request: JoinGroup, response: Message) -> JoinGroupResult:
    return JoinGroupResult(
        code=parse_error_code(response.error_code),
        member_id=response.member_id,
        generation=response.generation_id,
        protocol_type=response.protocol_type,
        protocol=response.protocol_name,
        leader=response.leader,
        skip_assignment=response.skip_assignment,
        members=tuple(
            JoinedMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                metadata=bytes(each.metadata),
            )
            for each in response.members
        ),
    )


def _sync_request(request: SyncGroup) -> Message:
    assignment = SyncGroupRequest.SyncGroupRequestAssignment
    return SyncGroupRequest(
        group_id=request.group,
        generation_id=request.generation,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol,
        assignments=[
            assignment(member_id=member, assignment=given) for member, given in request.assignments
        ],
    )


def _sync_reply(_request: SyncGroup, response: Message) -> SyncGroupResult:
    return SyncGroupResult(
        code=parse_error_code(response.error_code),
        protocol_type=response.protocol_type,
        protocol=response.protocol_name,
        assignment=bytes(response.assignment),
    )


def _heartbeat_request(request: Heartbeat) -> Message:
    return HeartbeatRequest(
        group_id=request.group,
        generation_id=request.generation,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )


def _heartbeat_reply(_request: Heartbeat, response: Message) -> HeartbeatResult:
    return HeartbeatResult(code=parse_error_code(response.error_code))


def _leave_request(request: LeaveGroup) -> Message:
    member = LeaveGroupRequest.MemberIdentity
    return LeaveGroupRequest(
        group_id=request.group,
        member_id=request.members[0].member_id,  # all that there is room for before version 3
        members=[
            member(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                reason=_cut_reason(each.reason),
            )
            for each in request.members
        ],
    )


def _leave_reply(_request: LeaveGroup, response: Message) -> LeaveGroupResult:
    return LeaveGroupResult(
        code=parse_error_code(response.error_code),
        members=tuple(
            LeavingMemberResult(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                code=parse_error_code(each.error_code),
            )
            for each in response.members
        ),
    )


def _cut_reason(reason: str | None) -> str | None:
    return None if reason is None else reason[:MAX_REASON_LENGTH]


def _commit_request(request: OffsetCommit) -> Message:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition
    by_topic = _group_by_topic(request.offsets.items())
    return OffsetCommitRequest(
        group_id=request.group,
        generation_id_or_member_epoch=request.generation,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=NO_RETENTION if request.retention is None else request.retention,
        topics=[
            topic(
                name=name,
                partitions=[
                    partition(
                        partition_index=number,
                        committed_offset=given.offset,
                        committed_leader_epoch=(
                            NO_LEADER_EPOCH if given.leader_epoch is None else given.leader_epoch
                        ),
                        committed_metadata=given.metadata,
                    )
                    for number, given in offsets
                ],
            )
            for name, offsets in by_topic.items()
        ],
    )


def _commit_reply(_request: OffsetCommit, response: Message) -> OffsetCommitResult:
    return OffsetCommitResult(codes=_partition_codes(response.topics))


def _fetch_offsets_request(request: OffsetFetch) -> Message:
    """Of one group: by itself up to version 7, as one of many from 8 on."""
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    return OffsetFetchRequest(
        group_id=request.group,
        topics=_fetch_offsets_topics(request, OffsetFetchRequest.OffsetFetchRequestTopic),
        groups=[
            group(
                group_id=request.group,
                topics=_fetch_offsets_topics(request, group.OffsetFetchRequestTopics),
            )
        ],
        require_stable=request.require_stable,
    )


def _fetch_offsets_topics(
    request: OffsetFetch, topic: Callable[..., Message]
) -> list[Message] | None:
    if request.partitions is None:
        return None
    by_topic = _group_by_topic((partition, None) for partition in request.partitions)
    return [
        topic(name=name, partition_indexes=[number for number, _ in numbers])
        for name, numbers in by_topic.items()
    ]


def _fetch_offsets_reply(request: OffsetFetch, response: Message) -> OffsetFetchResult:
    found = response
    if response.groups:  # from version 8 on
        found = next(one for one in response.groups if one.group_id == request.group)
    offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
    codes: dict[TopicPartition, Code] = {}
    for topic in found.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                codes[partition] = parse_error_code(each.error_code)
            else:
                offsets[partition] = _committed_offset(each)
    code = parse_error_code(found.error_code)
    if not code and codes and not offsets and len(set(codes.values())) == 1:
        code = _request_level_code(next(iter(codes.values())))
    return OffsetFetchResult(code=code, offsets=offsets, codes=codes)


def _request_level_code(code: Code) -> Code:
    """Version 1 has no place for what concerns the whole request but at each partition."""
    return code if code in REQUEST_LEVEL_CODES else Code.NONE


def _committed_offset(found: Any) -> OffsetAndMetadata | None:  # noqa: ANN401 of two classes, much alike
    if found.committed_offset == NO_OFFSET:
        return None
    epoch = found.committed_leader_epoch
    return OffsetAndMetadata(
        found.committed_offset, found.metadata or "", None if epoch == NO_LEADER_EPOCH else epoch
    )


def _delete_offsets_request(request: OffsetDelete) -> Message:
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    partition = topic.OffsetDeleteRequestPartition
    by_topic = _group_by_topic((one, None) for one in request.partitions)
    return OffsetDeleteRequest(
        group_id=request.group,
        topics=[
            topic(name=name, partitions=[partition(partition_index=each) for each, _ in numbers])
            for name, numbers in by_topic.items()
        ],
    )


def _delete_offsets_reply(_request: OffsetDelete, response: Message) -> OffsetDeleteResult:
    return OffsetDeleteResult(
        code=parse_error_code(response.error_code), codes=_partition_codes(response.topics)
    )


def _group_by_topic(values: Iterable[tuple[TopicPartition, V]]) -> dict[str, list[tuple[int, V]]]:
    topics: dict[str, list[tuple[int, V]]] = {}
    for (topic, partition), value in values:
        topics.setdefault(topic, []).append((partition, value))
    return topics


def _partition_codes(topics: Iterable[Message]) -> dict[TopicPartition, Code]:
    return {
        TopicPartition(topic.name, each.partition_index): parse_error_code(each.error_code)
        for topic in topics
        for each in topic.partitions
    }


def _describe_request(request: DescribeGroups) -> Message:
    return DescribeGroupsRequest(groups=list(request.groups))


def _describe_reply(_request: DescribeGroups, response: Message) -> DescribeGroupsResult:
    return DescribeGroupsResult(groups=tuple(map(_described_group, response.groups)))


def _described_group(found: Message) -> DescribedGroup:
    return DescribedGroup(
        group=found.group_id,
        code=parse_error_code(found.error_code),
        state=found.group_state,
        protocol_type=found.protocol_type,
        protocol=found.protocol_data,
        members=tuple(
            DescribedMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                metadata=bytes(each.member_metadata),
                assignment=bytes(each.member_assignment),
            )
            for each in found.members
        ),
    )


def _list_request(request: ListGroups) -> Message:
    return ListGroupsRequest(states_filter=list(request.states))


def _list_reply(_request: ListGroups, response: Message) -> ListGroupsResult:
    return ListGroupsResult(
        code=parse_error_code(response.error_code),
        groups=tuple(
            ListedGroup(
                group=each.group_id,
                protocol_type=each.protocol_type,
                state=each.group_state,
                group_type=each.group_type.lower(),
            )
            for each in sorted(response.groups, key=lambda one: str(one.group_id))
        ),
    )


def _delete_groups_request(request: DeleteGroups) -> Message:
    return DeleteGroupsRequest(groups_names=list(request.groups))


def _delete_groups_reply(_request: DeleteGroups, response: Message) -> DeleteGroupsResult:
    codes = {each.group_id: parse_error_code(each.error_code) for each in response.results}
    return DeleteGroupsResult(codes=codes)


#: Every request that there is.
REQUEST_CODECS: Final[Mapping[type[object], RequestCodec]] = {
    JoinGroup: RequestCodec(Api.JOIN_GROUP, _join_request, _join_reply),
    SyncGroup: RequestCodec(Api.SYNC_GROUP, _sync_request, _sync_reply),
    Heartbeat: RequestCodec(Api.HEARTBEAT, _heartbeat_request, _heartbeat_reply),
    LeaveGroup: RequestCodec(Api.LEAVE_GROUP, _leave_request, _leave_reply),
    OffsetCommit: RequestCodec(Api.OFFSET_COMMIT, _commit_request, _commit_reply),
    OffsetFetch: RequestCodec(Api.OFFSET_FETCH, _fetch_offsets_request, _fetch_offsets_reply),
    OffsetDelete: RequestCodec(Api.OFFSET_DELETE, _delete_offsets_request, _delete_offsets_reply),
    DescribeGroups: RequestCodec(Api.DESCRIBE_GROUPS, _describe_request, _describe_reply),
    ListGroups: RequestCodec(Api.LIST_GROUPS, _list_request, _list_reply),
    DeleteGroups: RequestCodec(Api.DELETE_GROUPS, _delete_groups_request, _delete_groups_reply),
}

T = TypeVar("T")

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
    return (
        f"{ERROR_TEXTS[code]} ({error_name(code)})"
        if code in ERROR_TEXTS
        else f"error {error_name(code)}"
    )


def group_request_error(code: Code, what: str) -> RotaError:
    """Returns the error that says what failed, and why."""
    return _make_error(code, f"{what}: {_error_text(code)}")


def check_codes(codes: Mapping[T, Code], what: str) -> None:
    """Checks that all error codes are 0.

    :raises GroupError: some are not; the message names the items and reasons
    :raises AuthorizationFailed: the same, for lack of permission
    """
    failed: dict[Code, list[str]] = {}
    for name, code in codes.items():
        if code:
            failed.setdefault(code, []).append(str(name))
    if failed:
        reasons = "; ".join(
            f"{list_first_names(names)}: {_error_text(code)}" for code, names in failed.items()
        )
        done = len(codes) - sum(map(len, failed.values()))
        rest = f"; the other {done} were" if done else ""
        raise _make_error(next(iter(failed)), f"{what}: {reasons}{rest}")


def _make_error(code: Code, message: str) -> RotaError:
    return (
        AuthorizationFailed(code, message)
        if code in AUTHORIZATION_CODES
        else GroupError(message, code)
    )
