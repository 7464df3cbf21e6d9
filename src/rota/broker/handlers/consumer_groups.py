"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups and
DeleteGroups.

Each handler turns the message into a request of the coordinator, and the coordinator's reply into
the response. What depends on the version of a request becomes a named field on the way in; on the
way out, a field that the version does not have is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import AddressValueError, IPv6Address
from typing import TypeAlias, TypeVar

from rota.broker.dispatch import WARNING, Handler, HandlerContext, ServerRequest
from rota.engine.model.request import (
    DeleteGroups,
    DescribeGroups,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    JoinGroupProtocol,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    SyncGroup,
)
from rota.engine.model.response import (
    DeleteGroupsResult,
    DescribedGroup,
    DescribeGroupsResult,
    GroupResponse,
    HeartbeatResult,
    JoinGroupResult,
    LeaveGroupResult,
    ListGroupsResult,
    SyncGroupResult,
)
from rota.engine.model.text import MAX_STRING_BYTES
from rota.errors import Code
from rota.protocol.messages import (
    Api,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    ListGroupsResponse,
    Message,
    SyncGroupResponse,
)

#: From this FindCoordinator on many are asked for at once.
BATCHED_KEYS_VERSION = 4

GROUP_KEY, TRANSACTION_KEY = 0, 1

NO_NODE = (-1, "", -1)

#: A code with its text, and a node: its id, host and port.
CoordinatorResult: TypeAlias = tuple[Code, str | None, int, str, int]

#: Versions of JoinGroup: one timeout for session and rebalance; a new member is given its id first;
#: a missing name is null; a leader may be told to skip the assignment.
ONE_TIMEOUT_VERSION, MEMBER_ID_REQUIRED_VERSION, NULL_PROTOCOL_VERSION, SKIP_ASSIGNMENT_VERSION = (
    0,
    4,
    7,
    9,
)

#: Of a client or a static member: its member id is longer, and others are told of it.
MAX_CLIENT_NAME_BYTES = MAX_STRING_BYTES - 64

#: From this SyncGroup on a member says which protocol it means.
PROTOCOL_NAME_VERSION = 5

BATCHED_LEAVE_VERSION = 3

#: From this DescribeGroups on a group that there is not is an error.
GROUP_NOT_FOUND_VERSION = 6

CLASSIC = "classic"

#: What may be done to a group: read, delete, describe, describe and alter its configuration.
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))

OPERATIONS_NOT_REQUESTED = -(2**31)

ReplyT = TypeVar("ReplyT", bound=GroupResponse)


def ask_coordinator(
    parts: HandlerContext,
    call: ServerRequest,
    request: GroupRequest,
    kind: type[ReplyT],
    write: Callable[[ServerRequest, ReplyT], Message],
) -> None:
    """Sends a request to its coordinator, and answers with the response that ``write`` makes
    of the reply.
    """

    def answer(reply: GroupResponse) -> None:
        assert isinstance(reply, kind)
        call.answer(write(call, reply))

    parts.groups.ask(request, answer, call.now)


def _handle_find_coordinator(parts: HandlerContext, call: ServerRequest) -> None:
    asked = call.request
    batched = call.version >= BATCHED_KEYS_VERSION
    keys = asked.coordinator_keys if batched else [asked.key]
    found = {}
    for key in dict.fromkeys(keys):
        code, text = _find_coordinator(parts, call, asked.key_type, key)
        host, port = parts.address
        node = (parts.config.node_id, host, port) if not code else NO_NODE
        found[key] = (code, text, *node)
    call.answer(_find_coordinator_response(call, found))


def _find_coordinator(
    parts: HandlerContext, call: ServerRequest, kind: int, key: str
) -> tuple[Code, str | None]:
    if kind == GROUP_KEY:
        code = parts.groups.find_coordinator(key, call.now)
        return code, "the journal cannot be made" if code else None
    if kind == TRANSACTION_KEY:
        # the one code that makes every client give up at once, and not look for ever
        text = f"there are no transactions here: transactional id {key!r} is refused"
        parts.log(WARNING, f"{call.client.host}: {text}")
        return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text
    return Code.INVALID_REQUEST, f"there are no coordinators of type {kind} here"


def _find_coordinator_response(
    call: ServerRequest, found: Mapping[str, CoordinatorResult]
) -> Message:
    if call.version < BATCHED_KEYS_VERSION:
        code, text, node, host, port = next(iter(found.values()))
        return FindCoordinatorResponse(
            error_code=code, error_message=text or code.name, node_id=node, host=host, port=port
        )
    coordinator = FindCoordinatorResponse.Coordinator
    return FindCoordinatorResponse(
        coordinators=[
            coordinator(
                key=key,
                error_code=code,
                error_message=text or "",
                node_id=node,
                host=host,
                port=port,
            )
            for key, (code, text, node, host, port) in found.items()
        ]
    )


def _refuse_find_coordinator(call: ServerRequest, code: Code) -> Message:
    keys = (
        call.request.coordinator_keys
        if call.version >= BATCHED_KEYS_VERSION
        else [call.request.key]
    )
    return _find_coordinator_response(call, dict.fromkeys(keys, (code, None, *NO_NODE)))


def _handle_join_group(parts: HandlerContext, call: ServerRequest) -> None:
    asked = call.request
    session = asked.session_timeout_ms
    request = JoinGroup(
        group=asked.group_id,
        member_id=asked.member_id,
        group_instance_id=asked.group_instance_id,
        protocol_type=asked.protocol_type,
        protocols=tuple(
            JoinGroupProtocol(each.name, bytes(each.metadata)) for each in asked.protocols
        ),
        session_timeout=session,
        rebalance_timeout=session
        if call.version == ONE_TIMEOUT_VERSION
        else asked.rebalance_timeout_ms,
        client_id=call.client.client_id,
        client_host=format_client_host(call.client.host),
        reason=asked.reason,
        supports_member_id_required=call.version >= MEMBER_ID_REQUIRED_VERSION,
        supports_skip_assignment=call.version >= SKIP_ASSIGNMENT_VERSION,
    )
    if len((request.group_instance_id or request.client_id).encode()) > MAX_CLIENT_NAME_BYTES:
        call.answer(_refuse_join_group(call, Code.INVALID_REQUEST))
        return
    ask_coordinator(parts, call, request, JoinGroupResult, _join_group_response)


def _join_group_response(call: ServerRequest, reply: JoinGroupResult) -> Message:
    member = JoinGroupResponse.JoinGroupResponseMember
    return JoinGroupResponse(
        error_code=reply.code,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol or (None if call.version >= NULL_PROTOCOL_VERSION else ""),
        leader=reply.leader or "",
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            member(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                metadata=each.metadata,
            )
            for each in reply.members
        ],
    )


def _refuse_join_group(call: ServerRequest, code: Code) -> Message:
    return _join_group_response(call, JoinGroupResult(code=code))


def format_client_host(host: str) -> str:
    """Returns a client's address as Java shows it: behind a slash, and without "::"."""
    try:
        parts = IPv6Address(host.partition("%")[0]).exploded.split(":")
    except AddressValueError:
        return f"/{host}"
    return "/" + ":".join(f"{int(part, 16):x}" for part in parts)


def _handle_sync_group(parts: HandlerContext, call: ServerRequest) -> None:
    asked = call.request
    if call.version >= PROTOCOL_NAME_VERSION and None in (asked.protocol_type, asked.protocol_name):
        call.answer(_refuse_sync_group(call, Code.INCONSISTENT_GROUP_PROTOCOL))
        return
    request = SyncGroup(
        group=asked.group_id,
        generation=asked.generation_id,
        member_id=asked.member_id,
        group_instance_id=asked.group_instance_id,
        protocol_type=asked.protocol_type,
        protocol=asked.protocol_name,
        assignments=tuple((each.member_id, bytes(each.assignment)) for each in asked.assignments),
    )
    ask_coordinator(parts, call, request, SyncGroupResult, _sync_group_response)


def _sync_group_response(_call: ServerRequest, reply: SyncGroupResult) -> Message:
    return SyncGroupResponse(
        error_code=reply.code,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )


def _refuse_sync_group(call: ServerRequest, code: Code) -> Message:
    return _sync_group_response(call, SyncGroupResult(code=code))


def _handle_heartbeat(parts: HandlerContext, call: ServerRequest) -> None:
    asked = call.request
    request = Heartbeat(
        group=asked.group_id,
        generation=asked.generation_id,
        member_id=asked.member_id,
        group_instance_id=asked.group_instance_id,
    )
    ask_coordinator(parts, call, request, HeartbeatResult, _heartbeat_response)


def _heartbeat_response(_call: ServerRequest, reply: HeartbeatResult) -> Message:
    return HeartbeatResponse(error_code=reply.code)


def _refuse_heartbeat(call: ServerRequest, code: Code) -> Message:
    return _heartbeat_response(call, HeartbeatResult(code=code))


def _handle_leave_group(parts: HandlerContext, call: ServerRequest) -> None:
    asked = call.request
    if call.version >= BATCHED_LEAVE_VERSION:
        members = tuple(
            LeavingMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                reason=each.reason,
            )
            for each in asked.members
        )
    else:
        members = (LeavingMember(member_id=asked.member_id),)
    ask_coordinator(
        parts,
        call,
        LeaveGroup(group=asked.group_id, members=members),
        LeaveGroupResult,
        _leave_group_response,
    )


def _leave_group_response(call: ServerRequest, reply: LeaveGroupResult) -> Message:
    if call.version < BATCHED_LEAVE_VERSION:
        codes = [reply.code, *(each.code for each in reply.members)]
        return LeaveGroupResponse(error_code=next(filter(None, codes), Code.NONE))
    member = LeaveGroupResponse.MemberResponse
    return LeaveGroupResponse(
        error_code=reply.code,
        members=[
            member(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=each.code,
            )
            for each in reply.members
        ],
    )


def _refuse_leave_group(call: ServerRequest, code: Code) -> Message:
    return _leave_group_response(call, LeaveGroupResult(code=code))


def _handle_describe_groups(parts: HandlerContext, call: ServerRequest) -> None:
    request = DescribeGroups(
        groups=tuple(call.request.groups),
        supports_group_id_not_found=call.version >= GROUP_NOT_FOUND_VERSION,
    )
    ask_coordinator(parts, call, request, DescribeGroupsResult, _describe_groups_response)


def _describe_groups_response(call: ServerRequest, reply: DescribeGroupsResult) -> Message:
    operations = (
        GROUP_OPERATIONS if call.request.include_authorized_operations else OPERATIONS_NOT_REQUESTED
    )
    groups = [_describe_group(each, operations) for each in reply.groups]
    return DescribeGroupsResponse(groups=groups)


def _describe_group(group: DescribedGroup, operations: int) -> Message:
    described = DescribeGroupsResponse.DescribedGroup
    member = described.DescribedGroupMember
    missing = group.code is Code.GROUP_ID_NOT_FOUND
    return described(
        error_code=group.code,
        error_message=f"there is no group {group.group!r}" if missing else None,
        group_id=group.group,
        # an error leaves the rest open, but for a group that is known not to be there
        group_state=group.state if not group.code or missing else "",
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            member(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=each.metadata,
                member_assignment=each.assignment,
            )
            for each in group.members
        ],
        authorized_operations=OPERATIONS_NOT_REQUESTED if group.code else operations,
    )


def _refuse_describe_groups(call: ServerRequest, code: Code) -> Message:
    groups = tuple(DescribedGroup(group=name, code=code) for name in call.request.groups)
    return _describe_groups_response(call, DescribeGroupsResult(groups=groups))


def _handle_list_groups(parts: HandlerContext, call: ServerRequest) -> None:
    types = [name.casefold() for name in call.request.types_filter]
    if types and CLASSIC not in types:  # there are no groups of another type
        call.answer(_list_groups_response(call, ListGroupsResult()))
        return
    states = tuple(name.strip() for name in call.request.states_filter)
    ask_coordinator(parts, call, ListGroups(states=states), ListGroupsResult, _list_groups_response)


def _list_groups_response(_call: ServerRequest, reply: ListGroupsResult) -> Message:
    group = ListGroupsResponse.ListedGroup
    return ListGroupsResponse(
        error_code=reply.code,
        groups=[
            group(
                group_id=each.group,
                protocol_type=each.protocol_type,
                group_state=each.state,
                group_type=CLASSIC,
            )
            for each in reply.groups
        ],
    )


def _refuse_list_groups(call: ServerRequest, code: Code) -> Message:
    return _list_groups_response(call, ListGroupsResult(code=code))


def _handle_delete_groups(parts: HandlerContext, call: ServerRequest) -> None:
    request = DeleteGroups(groups=tuple(call.request.groups_names))
    ask_coordinator(parts, call, request, DeleteGroupsResult, _delete_groups_response)


def _delete_groups_response(_call: ServerRequest, reply: DeleteGroupsResult) -> Message:
    result = DeleteGroupsResponse.DeletableGroupResult
    return DeleteGroupsResponse(
        results=[result(group_id=name, error_code=code) for name, code in reply.codes.items()]
    )


def _refuse_delete_groups(call: ServerRequest, code: Code) -> Message:
    return _delete_groups_response(
        call, DeleteGroupsResult(codes=dict.fromkeys(call.request.groups_names, code))
    )


HANDLERS = (
    Handler(
        api=Api.FIND_COORDINATOR,
        min_version=0,
        max_version=6,
        handle=_handle_find_coordinator,
        error_response=_refuse_find_coordinator,
    ),
    Handler(
        api=Api.JOIN_GROUP,
        min_version=0,
        max_version=9,
        handle=_handle_join_group,
        error_response=_refuse_join_group,
    ),
    Handler(
        api=Api.SYNC_GROUP,
        min_version=0,
        max_version=5,
        handle=_handle_sync_group,
        error_response=_refuse_sync_group,
    ),
    Handler(
        api=Api.HEARTBEAT,
        min_version=0,
        max_version=4,
        handle=_handle_heartbeat,
        error_response=_refuse_heartbeat,
    ),
    Handler(
        api=Api.LEAVE_GROUP,
        min_version=0,
        max_version=5,
        handle=_handle_leave_group,
        error_response=_refuse_leave_group,
    ),
    Handler(
        api=Api.DESCRIBE_GROUPS,
        min_version=0,
        max_version=6,
        handle=_handle_describe_groups,
        error_response=_refuse_describe_groups,
    ),
    Handler(
        api=Api.LIST_GROUPS,
        min_version=0,
        max_version=5,
        handle=_handle_list_groups,
        error_response=_refuse_list_groups,
    ),
    Handler(
        api=Api.DELETE_GROUPS,
        min_version=0,
        max_version=2,
        handle=_handle_delete_groups,
        error_response=_refuse_delete_groups,
    ),
)
