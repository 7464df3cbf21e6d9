"""What is asked of a group's coordinator, as requests of the protocol; responses as its replies.

A message carries the fields of all versions: one that a version does not have is not written, and
reads as its default. So neither way needs the version, which is the connection's to choose;
:data:`MOST` and :func:`least` say between which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar, cast

from rota.errors import Code
from rota.model.offset import NO_EPOCH, NO_OFFSET, OffsetAndMetadata
from rota.model.reply import (
    CommitReply,
    DeleteGroupsReply,
    DeleteOffsetsReply,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsReply,
    FetchOffsetsReply,
    HeartbeatReply,
    JoinedMember,
    JoinReply,
    LeaveReply,
    LeaverReply,
    ListedGroup,
    ListGroupsReply,
    Reply,
    SyncReply,
)
from rota.model.request import (
    CommitOffsets,
    DeleteGroups,
    DeleteOffsets,
    DescribeGroups,
    FetchOffsets,
    Heartbeat,
    Join,
    Leave,
    ListGroups,
    Request,
    Sync,
)
from rota.model.topic import TopicPartition
from rota.wire.api import Api
from rota.wire.message import (
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

MOST: Final[Mapping[Api, int]] = {Api.OFFSET_COMMIT: 9, Api.OFFSET_FETCH: 9}
"""The highest versions that are meant here: behind them topics have ids in place of names."""
LONGEST_REASON = 255
"""Of a join or leave, in characters: as Kafka's consumer cuts it (KIP-800)."""
NO_RETENTION = -1
WHOLE = frozenset(
    {
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.INVALID_GROUP_ID,
    }
)
"""Codes that concern a whole request, wherever they stand in its response."""

V = TypeVar("V")


class Kind(NamedTuple):
    """How requests of a kind are written, and their responses read."""

    api: Api
    write: Callable[[Any], Message]
    read: Callable[[Any, Message], Reply]


_CODES = {int(code): code for code in Code}


def least(request: Request) -> int:
    """The lowest version that can carry a request; below it, what it asks for would be lost."""
    match request:
        case Join(static_id=str()):
            found = 5
        case Sync(static_id=str()) | Heartbeat(static_id=str()) | Leave():
            found = 3 if _names_static(request) else 0
        case CommitOffsets(static_id=str()):
            found = 7
        case FetchOffsets(partitions=None):
            found = 2
        case ListGroups(states=states) if states:
            found = 4
        case _:
            found = 0
    return found


def _names_static(request: Sync | Heartbeat | Leave) -> bool:
    if isinstance(request, Leave):
        return len(request.members) > 1 or request.members[0].static_id is not None
    return request.static_id is not None


def to_wire(request: Request) -> tuple[Api, Message]:
    """The request of the protocol."""
    api, write, _ = KINDS[type(request)]
    return api, write(request)


def from_wire(request: Request, response: Message) -> Reply:
    """The reply that a response means."""
    return KINDS[type(request)].read(request, response)


def code_of(number: int) -> Code:
    """An error code. One that is not known stays the number that it is, which is not fatal."""
    return _CODES.get(number, cast(Code, number))


# Members


def _join(request: Join) -> Message:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    return JoinGroupRequest(
        group_id=request.group,
        session_timeout_ms=request.session_timeout,
        rebalance_timeout_ms=request.rebalance_timeout,
        member_id=request.member_id,
        group_instance_id=request.static_id,
        protocol_type=request.protocol_type,
        protocols=[protocol(name=name, metadata=data) for name, data in request.protocols],
        reason=_cut(request.reason),
    )


def _joined(_request: Join, response: Message) -> JoinReply:
    return JoinReply(
        code=code_of(response.error_code),
        member_id=response.member_id,
        generation=response.generation_id,
        protocol_type=response.protocol_type,
        protocol=response.protocol_name,
        leader=response.leader,
        skip_assignment=response.skip_assignment,
        members=tuple(
            JoinedMember(
                member_id=each.member_id,
                static_id=each.group_instance_id,
                metadata=bytes(each.metadata),
            )
            for each in response.members
        ),
    )


def _sync(request: Sync) -> Message:
    assignment = SyncGroupRequest.SyncGroupRequestAssignment
    return SyncGroupRequest(
        group_id=request.group,
        generation_id=request.generation,
        member_id=request.member_id,
        group_instance_id=request.static_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol,
        assignments=[
            assignment(member_id=member, assignment=given) for member, given in request.assignments
        ],
    )


def _synced(_request: Sync, response: Message) -> SyncReply:
    return SyncReply(
        code=code_of(response.error_code),
        protocol_type=response.protocol_type,
        protocol=response.protocol_name,
        assignment=bytes(response.assignment),
    )


def _heartbeat(request: Heartbeat) -> Message:
    return HeartbeatRequest(
        group_id=request.group,
        generation_id=request.generation,
        member_id=request.member_id,
        group_instance_id=request.static_id,
    )


def _beaten(_request: Heartbeat, response: Message) -> HeartbeatReply:
    return HeartbeatReply(code=code_of(response.error_code))


def _leave(request: Leave) -> Message:
    member = LeaveGroupRequest.MemberIdentity
    return LeaveGroupRequest(
        group_id=request.group,
        member_id=request.members[0].member_id,  # all that there is room for before version 3
        members=[
            member(
                member_id=each.member_id,
                group_instance_id=each.static_id,
                reason=_cut(each.reason),
            )
            for each in request.members
        ],
    )


def _left(_request: Leave, response: Message) -> LeaveReply:
    return LeaveReply(
        code=code_of(response.error_code),
        members=tuple(
            LeaverReply(
                member_id=each.member_id,
                static_id=each.group_instance_id,
                code=code_of(each.error_code),
            )
            for each in response.members
        ),
    )


def _cut(reason: str | None) -> str | None:
    return None if reason is None else reason[:LONGEST_REASON]


# Offsets


def _commit(request: CommitOffsets) -> Message:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition
    by_topic = _by_topic(request.offsets.items())
    return OffsetCommitRequest(
        group_id=request.group,
        generation_id_or_member_epoch=request.generation,
        member_id=request.member_id,
        group_instance_id=request.static_id,
        retention_time_ms=NO_RETENTION if request.retention is None else request.retention,
        topics=[
            topic(
                name=name,
                partitions=[
                    partition(
                        partition_index=number,
                        committed_offset=given.offset,
                        committed_leader_epoch=(
                            NO_EPOCH if given.leader_epoch is None else given.leader_epoch
                        ),
                        committed_metadata=given.metadata,
                    )
                    for number, given in offsets
                ],
            )
            for name, offsets in by_topic.items()
        ],
    )


def _committed(_request: CommitOffsets, response: Message) -> CommitReply:
    return CommitReply(codes=_codes(response.topics))


def _fetch(request: FetchOffsets) -> Message:
    """Of one group: by itself up to version 7, as one of many from 8 on."""
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    return OffsetFetchRequest(
        group_id=request.group,
        topics=_asked(request, OffsetFetchRequest.OffsetFetchRequestTopic),
        groups=[
            group(
                group_id=request.group,
                topics=_asked(request, group.OffsetFetchRequestTopics),
            )
        ],
        require_stable=request.stable,
    )


def _asked(request: FetchOffsets, topic: Callable[..., Message]) -> list[Message] | None:
    if request.partitions is None:
        return None
    by_topic = _by_topic((partition, None) for partition in request.partitions)
    return [
        topic(name=name, partition_indexes=[number for number, _ in numbers])
        for name, numbers in by_topic.items()
    ]


def _fetched(request: FetchOffsets, response: Message) -> FetchOffsetsReply:
    found = response
    if response.groups:  # from version 8 on
        found = next(one for one in response.groups if one.group_id == request.group)
    offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
    codes: dict[TopicPartition, Code] = {}
    for topic in found.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                codes[partition] = code_of(each.error_code)
            else:
                offsets[partition] = _offset(each)
    code = code_of(found.error_code)
    if not code and codes and not offsets and len(set(codes.values())) == 1:
        code = _whole(next(iter(codes.values())))
    return FetchOffsetsReply(code=code, offsets=offsets, codes=codes)


def _whole(code: Code) -> Code:
    """Version 1 has no place for what concerns the whole request but at each partition."""
    return code if code in WHOLE else Code.NONE


def _offset(found: Any) -> OffsetAndMetadata | None:  # noqa: ANN401 of two classes, much alike
    if found.committed_offset == NO_OFFSET:
        return None
    epoch = found.committed_leader_epoch
    return OffsetAndMetadata(
        found.committed_offset, found.metadata or "", None if epoch == NO_EPOCH else epoch
    )


def _delete_offsets(request: DeleteOffsets) -> Message:
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    partition = topic.OffsetDeleteRequestPartition
    by_topic = _by_topic((one, None) for one in request.partitions)
    return OffsetDeleteRequest(
        group_id=request.group,
        topics=[
            topic(name=name, partitions=[partition(partition_index=each) for each, _ in numbers])
            for name, numbers in by_topic.items()
        ],
    )


def _offsets_deleted(_request: DeleteOffsets, response: Message) -> DeleteOffsetsReply:
    return DeleteOffsetsReply(code=code_of(response.error_code), codes=_codes(response.topics))


def _by_topic(values: Iterable[tuple[TopicPartition, V]]) -> dict[str, list[tuple[int, V]]]:
    topics: dict[str, list[tuple[int, V]]] = {}
    for (topic, partition), value in values:
        topics.setdefault(topic, []).append((partition, value))
    return topics


def _codes(topics: Iterable[Message]) -> dict[TopicPartition, Code]:
    return {
        TopicPartition(topic.name, each.partition_index): code_of(each.error_code)
        for topic in topics
        for each in topic.partitions
    }


# Groups


def _describe(request: DescribeGroups) -> Message:
    return DescribeGroupsRequest(groups=list(request.groups))


def _described(_request: DescribeGroups, response: Message) -> DescribeGroupsReply:
    return DescribeGroupsReply(groups=tuple(map(_described_group, response.groups)))


def _described_group(found: Message) -> DescribedGroup:
    return DescribedGroup(
        group=found.group_id,
        code=code_of(found.error_code),
        state=found.group_state,
        protocol_type=found.protocol_type,
        protocol=found.protocol_data,
        members=tuple(
            DescribedMember(
                member_id=each.member_id,
                static_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                metadata=bytes(each.member_metadata),
                assignment=bytes(each.member_assignment),
            )
            for each in found.members
        ),
    )


def _list(request: ListGroups) -> Message:
    return ListGroupsRequest(states_filter=list(request.states))


def _listed(_request: ListGroups, response: Message) -> ListGroupsReply:
    return ListGroupsReply(
        code=code_of(response.error_code),
        groups=tuple(
            ListedGroup(
                group=each.group_id,
                protocol_type=each.protocol_type,
                state=each.group_state,
                kind=each.group_type.lower(),
            )
            for each in sorted(response.groups, key=lambda one: str(one.group_id))
        ),
    )


def _delete(request: DeleteGroups) -> Message:
    return DeleteGroupsRequest(groups_names=list(request.groups))


def _deleted(_request: DeleteGroups, response: Message) -> DeleteGroupsReply:
    codes = {each.group_id: code_of(each.error_code) for each in response.results}
    return DeleteGroupsReply(codes=codes)


KINDS: Final[Mapping[type[object], Kind]] = {
    Join: Kind(Api.JOIN_GROUP, _join, _joined),
    Sync: Kind(Api.SYNC_GROUP, _sync, _synced),
    Heartbeat: Kind(Api.HEARTBEAT, _heartbeat, _beaten),
    Leave: Kind(Api.LEAVE_GROUP, _leave, _left),
    CommitOffsets: Kind(Api.OFFSET_COMMIT, _commit, _committed),
    FetchOffsets: Kind(Api.OFFSET_FETCH, _fetch, _fetched),
    DeleteOffsets: Kind(Api.OFFSET_DELETE, _delete_offsets, _offsets_deleted),
    DescribeGroups: Kind(Api.DESCRIBE_GROUPS, _describe, _described),
    ListGroups: Kind(Api.LIST_GROUPS, _list, _listed),
    DeleteGroups: Kind(Api.DELETE_GROUPS, _delete, _deleted),
}
"""Every request that there is."""
