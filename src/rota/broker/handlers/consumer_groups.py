"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the groups' description, list
and deletion.

Each handler makes a coordinator's request from the message, and a response from the coordinator's
result. Differences between versions become named fields of the coordinator's request. The encoder
skips the fields that the version of a response does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from ipaddress import AddressValueError, IPv6Address
from logging import WARNING
from typing import TypeVar

from rota.broker.dispatch import Handler, ServerRequest
from rota.broker.handlers.metadata import OPERATIONS_NOT_REQUESTED
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
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    Request,
    SyncGroupRequest,
    SyncGroupResponse,
)
from rota.protocol.schemas import ResponseT

BATCHED_KEYS_VERSION = 4  # the first version of FindCoordinator with several groups

GROUP_KEY, TRANSACTION_KEY = 0, 1

# Versions of JoinGroup.
ONE_TIMEOUT_VERSION = 0  # one timeout for session and rebalance
MEMBER_ID_REQUIRED_VERSION = 4  # a new member gets its id before it joins
NULL_PROTOCOL_VERSION = 7  # a missing protocol name is null
SKIP_ASSIGNMENT_VERSION = 9  # the leader may have to skip the assignment
#: Limit of a client id or group instance id: the member id appends a UUID, and must fit a string.
MAX_CLIENT_NAME_BYTES = MAX_STRING_BYTES - 64
PROTOCOL_NAME_VERSION = 5  # syncGroup contains the protocol's type and name from this version on
BATCHED_LEAVE_VERSION = 3
GROUP_NOT_FOUND_VERSION = 6  # describeGroups has an error for a missing group from this version on
CLASSIC = "classic"
#: Authorized operations on a group: read, delete, describe, describe and alter its configs.
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))

ResultT = TypeVar("ResultT", bound=GroupResponse)


def ask_coordinator(
    request: ServerRequest[Request[ResponseT]],
    group_request: GroupRequest,
    result_class: type[ResultT],
    make_response: Callable[[ResultT], ResponseT],
) -> None:
    def respond(result: GroupResponse) -> None:
        assert isinstance(result, result_class)
        request.respond(make_response(result))

    request.context.groups.ask(group_request, respond, request.now)


def _handle_find_coordinator(request: ServerRequest[FindCoordinatorRequest]) -> None:
    host, port = request.context.address
    coordinators = []
    for key in dict.fromkeys(_coordinator_keys(request)):
        code, text = _find_coordinator(request, key)
        response = _coordinator_error(key, code, text)
        if not code:
            response.node_id = request.context.config.node_id
            response.host, response.port = host, port
        coordinators.append(response)
    request.respond(_find_coordinator_response(request, coordinators))


def _find_coordinator(
    request: ServerRequest[FindCoordinatorRequest], key: str
) -> tuple[Code, str | None]:
    key_type = request.body.key_type
    if key_type == GROUP_KEY:
        code = request.context.groups.find_coordinator(key, request.now)
        return code, "__consumer_offsets cannot be created" if code else None
    if key_type == TRANSACTION_KEY:
        # clients give up at once at this code; at any other one, some retry for ever
        text = f"this broker has no transactions: transactional id {key!r} is refused"
        request.context.log(WARNING, f"{request.client.host}: {text}")
        return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text
    return Code.INVALID_REQUEST, f"this broker has no coordinators of type {key_type}"


def _coordinator_error(
    key: str, code: Code, text: str | None
) -> FindCoordinatorResponse.Coordinator:
    return FindCoordinatorResponse.Coordinator(
        key=key, error_code=code, error_message=text or "", node_id=-1, port=-1
    )


def _find_coordinator_response(
    request: ServerRequest[FindCoordinatorRequest],
    coordinators: list[FindCoordinatorResponse.Coordinator],
) -> FindCoordinatorResponse:
    if request.version >= BATCHED_KEYS_VERSION:
        return FindCoordinatorResponse(coordinators=coordinators)
    [found] = coordinators
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or Code(found.error_code).name,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator_keys(request: ServerRequest[FindCoordinatorRequest]) -> list[str]:
    body = request.body
    return body.coordinator_keys if request.version >= BATCHED_KEYS_VERSION else [body.key]


def _refuse_find_coordinator(
    request: ServerRequest[FindCoordinatorRequest], code: Code
) -> FindCoordinatorResponse:
    keys = dict.fromkeys(_coordinator_keys(request))
    return _find_coordinator_response(request, [_coordinator_error(key, code, "") for key in keys])


def _handle_join_group(request: ServerRequest[JoinGroupRequest]) -> None:
    body, client, version = request.body, request.client, request.version
    if len((body.group_instance_id or client.client_id).encode()) > MAX_CLIENT_NAME_BYTES:
        return request.respond(_refuse_join_group(request, Code.INVALID_REQUEST))
    session = body.session_timeout_ms
    group_request = JoinGroup(
        group=body.group_id,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        protocol_type=body.protocol_type,
        protocols=tuple(JoinGroupProtocol(each.name, each.metadata) for each in body.protocols),
        session_timeout=session,
        rebalance_timeout=session if version == ONE_TIMEOUT_VERSION else body.rebalance_timeout_ms,
        client_id=client.client_id,
        client_host=_format_client_host(client.host),
        reason=body.reason,
        supports_member_id_required=version >= MEMBER_ID_REQUIRED_VERSION,
        supports_skip_assignment=version >= SKIP_ASSIGNMENT_VERSION,
    )
    make_response = partial(_join_group_response, request)
    return ask_coordinator(request, group_request, JoinGroupResult, make_response)


def _join_group_response(
    request: ServerRequest[JoinGroupRequest], result: JoinGroupResult
) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=result.code,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol or (None if request.version >= NULL_PROTOCOL_VERSION else ""),
        leader=result.leader or "",
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                metadata=each.metadata,
            )
            for each in result.members
        ],
    )


def _refuse_join_group(request: ServerRequest[JoinGroupRequest], code: Code) -> JoinGroupResponse:
    return _join_group_response(request, JoinGroupResult(code=code))


def _format_client_host(host: str) -> str:
    """Returns a client's address as Java shows it: behind a slash, and without "::"."""
    try:
        groups = IPv6Address(host.partition("%")[0]).exploded.split(":")
    except AddressValueError:
        return f"/{host}"
    return "/" + ":".join(f"{int(group, 16):x}" for group in groups)


def _handle_sync_group(request: ServerRequest[SyncGroupRequest]) -> None:
    body = request.body
    protocol = body.protocol_type, body.protocol_name
    if request.version >= PROTOCOL_NAME_VERSION and None in protocol:
        return request.respond(SyncGroupResponse(error_code=Code.INCONSISTENT_GROUP_PROTOCOL))
    group_request = SyncGroup(
        group=body.group_id,
        generation=body.generation_id,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        protocol_type=body.protocol_type,
        protocol=body.protocol_name,
        assignments=tuple((each.member_id, each.assignment) for each in body.assignments),
    )

    def make_response(result: SyncGroupResult) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=result.code,
            protocol_type=result.protocol_type,
            protocol_name=result.protocol,
            assignment=result.assignment,
        )

    return ask_coordinator(request, group_request, SyncGroupResult, make_response)


def _handle_heartbeat(request: ServerRequest[HeartbeatRequest]) -> None:
    body = request.body
    group_request = Heartbeat(
        group=body.group_id,
        generation=body.generation_id,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
    )
    ask_coordinator(
        request, group_request, HeartbeatResult, lambda one: HeartbeatResponse(error_code=one.code)
    )


def _handle_leave_group(request: ServerRequest[LeaveGroupRequest]) -> None:
    body = request.body
    members = [LeavingMember(member_id=body.member_id)]
    if request.version >= BATCHED_LEAVE_VERSION:
        members = [
            LeavingMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                reason=each.reason,
            )
            for each in body.members
        ]

    def make_response(result: LeaveGroupResult) -> LeaveGroupResponse:
        if request.version < BATCHED_LEAVE_VERSION:
            codes = [result.code, *(each.code for each in result.members)]
            return LeaveGroupResponse(error_code=next(filter(None, codes), Code.NONE))
        return LeaveGroupResponse(
            error_code=result.code,
            members=[
                LeaveGroupResponse.MemberResponse(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=each.code,
                )
                for each in result.members
            ],
        )

    group_request = LeaveGroup(group=body.group_id, members=tuple(members))
    ask_coordinator(request, group_request, LeaveGroupResult, make_response)


def _handle_describe_groups(request: ServerRequest[DescribeGroupsRequest]) -> None:
    group_request = DescribeGroups(
        groups=tuple(request.body.groups),
        supports_group_id_not_found=request.version >= GROUP_NOT_FOUND_VERSION,
    )
    make_response = partial(_describe_groups_response, request)
    ask_coordinator(request, group_request, DescribeGroupsResult, make_response)


def _describe_groups_response(
    request: ServerRequest[DescribeGroupsRequest], result: DescribeGroupsResult
) -> DescribeGroupsResponse:
    with_operations = request.body.include_authorized_operations
    operations = GROUP_OPERATIONS if with_operations else OPERATIONS_NOT_REQUESTED
    # a request may name one group thousands of times: its description is made once
    by_name = {each.group: each for each in result.groups}
    described = {name: _describe_group(each, operations) for name, each in by_name.items()}
    return DescribeGroupsResponse(groups=[described[each.group] for each in result.groups])


def _describe_group(
    group: DescribedGroup, operations: int
) -> DescribeGroupsResponse.DescribedGroup:
    missing = group.code is Code.GROUP_ID_NOT_FOUND
    return DescribeGroupsResponse.DescribedGroup(
        error_code=group.code,
        error_message=f"there is no group {group.group!r}" if missing else None,
        group_id=group.group,
        # after any other error the state is unknown
        group_state=group.state if not group.code or missing else "",
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            DescribeGroupsResponse.DescribedGroupMember(
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


def _refuse_describe_groups(
    request: ServerRequest[DescribeGroupsRequest], code: Code
) -> DescribeGroupsResponse:
    groups = tuple(DescribedGroup(group=name, code=code) for name in request.body.groups)
    return _describe_groups_response(request, DescribeGroupsResult(groups=groups))


def _handle_list_groups(request: ServerRequest[ListGroupsRequest]) -> None:
    types = [name.casefold() for name in request.body.types_filter]
    if types and CLASSIC not in types:
        return request.respond(ListGroupsResponse())

    def make_response(result: ListGroupsResult) -> ListGroupsResponse:
        return ListGroupsResponse(
            error_code=result.code,
            groups=[
                ListGroupsResponse.ListedGroup(
                    group_id=each.group,
                    protocol_type=each.protocol_type,
                    group_state=each.state,
                    group_type=CLASSIC,
                )
                for each in result.groups
            ],
        )

    states = tuple(name.strip() for name in request.body.states_filter)
    return ask_coordinator(request, ListGroups(states=states), ListGroupsResult, make_response)


def _handle_delete_groups(request: ServerRequest[DeleteGroupsRequest]) -> None:
    group_request = DeleteGroups(groups=tuple(request.body.groups_names))
    ask_coordinator(request, group_request, DeleteGroupsResult, _delete_groups_response)


def _delete_groups_response(result: DeleteGroupsResult) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=name, error_code=code)
            for name, code in result.codes.items()
        ]
    )


def _refuse_delete_groups(
    request: ServerRequest[DeleteGroupsRequest], code: Code
) -> DeleteGroupsResponse:
    codes = dict.fromkeys(request.body.groups_names, code)
    return _delete_groups_response(DeleteGroupsResult(codes=codes))


HANDLERS = (
    Handler(FindCoordinatorRequest, 0, 6, _handle_find_coordinator, _refuse_find_coordinator),
    Handler(JoinGroupRequest, 0, 9, _handle_join_group, _refuse_join_group),
    Handler(SyncGroupRequest, 0, 5, _handle_sync_group),
    Handler(HeartbeatRequest, 0, 4, _handle_heartbeat),
    Handler(LeaveGroupRequest, 0, 5, _handle_leave_group),
    Handler(DescribeGroupsRequest, 0, 6, _handle_describe_groups, _refuse_describe_groups),
    Handler(ListGroupsRequest, 0, 5, _handle_list_groups),
    Handler(DeleteGroupsRequest, 0, 2, _handle_delete_groups, _refuse_delete_groups),
)
