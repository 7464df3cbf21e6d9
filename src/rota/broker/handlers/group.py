"""Groups and their members: requests as the coordinator's, its replies as responses.

What depends on a request's version becomes a field with a name on the way in; on the way out, a
field that the version does not have is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import AddressValueError, IPv6Address
from typing import TypeAlias, TypeVar

from rota.broker.call import Call
from rota.broker.dispatch import Handler
from rota.broker.part import WARNING, Parts
from rota.errors import Code
from rota.model.reply import (
    DeleteGroupsReply,
    DescribedGroup,
    DescribeGroupsReply,
    HeartbeatReply,
    JoinReply,
    LeaveReply,
    ListGroupsReply,
    Reply,
    SyncReply,
)
from rota.model.request import (
    DeleteGroups,
    DescribeGroups,
    Heartbeat,
    Join,
    Leave,
    Leaver,
    ListGroups,
    Protocol,
    Request,
    Sync,
)
from rota.model.text import LONGEST_STRING
from rota.wire.api import Api
from rota.wire.message import (
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

MANY_KEYS = 4
"""From this FindCoordinator on many are asked for at once."""
GROUP_KEY, TRANSACTION_KEY = 0, 1
NOWHERE = (-1, "", -1)
Found: TypeAlias = tuple[Code, str | None, int, str, int]
"""A code with its text, and a node: its id, host and port."""
ONE_TIMEOUT, ID_FIRST, NULL_PROTOCOL, SKIP = 0, 4, 7, 9
"""Versions of JoinGroup: one timeout for session and rebalance; a new member is given its id first;
a missing name is null; a leader may be told to skip the assignment.
"""
LONGEST_NAME = LONGEST_STRING - 64
"""Of a client or a static member: its member id is longer, and others are told of it."""
NAMED_PROTOCOL = 5
"""From this SyncGroup on a member says which protocol it means."""
MANY_LEAVE = 3
MISSING_GROUP = 6
"""From this DescribeGroups on a group that there is not is an error."""
CLASSIC = "classic"
OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""What may be done to a group: read, delete, describe, describe and alter its configuration."""
UNASKED = -(2**31)

R = TypeVar("R", bound=Reply)


def ask(
    parts: Parts, call: Call, request: Request, kind: type[R], write: Callable[[Call, R], Message]
) -> None:
    """Puts a request to the groups, and answers with what is written of the reply."""

    def answer(reply: Reply) -> None:
        assert isinstance(reply, kind)
        call.answer(write(call, reply))

    parts.groups.ask(request, answer, call.now)


# FindCoordinator


def _find(parts: Parts, call: Call) -> None:
    asked = call.request
    batched = call.version >= MANY_KEYS
    keys = asked.coordinator_keys if batched else [asked.key]
    found = {}
    for key in dict.fromkeys(keys):
        code, text = _search(parts, call, asked.key_type, key)
        host, port = parts.address
        node = (parts.config.node_id, host, port) if not code else NOWHERE
        found[key] = (code, text, *node)
    call.answer(_found(call, found))


def _search(parts: Parts, call: Call, kind: int, key: str) -> tuple[Code, str | None]:
    if kind == GROUP_KEY:
        code = parts.groups.find(key, call.now)
        return code, "the journal cannot be made" if code else None
    if kind == TRANSACTION_KEY:
        # the one code that makes every client give up at once, and not look for ever
        text = f"there are no transactions here: transactional id {key!r} is refused"
        parts.log(WARNING, f"{call.client.host}: {text}")
        return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text
    return Code.INVALID_REQUEST, f"there are no coordinators of type {kind} here"


def _found(call: Call, found: Mapping[str, Found]) -> Message:
    if call.version < MANY_KEYS:
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


def _refuse_find(call: Call, code: Code) -> Message:
    keys = call.request.coordinator_keys if call.version >= MANY_KEYS else [call.request.key]
    return _found(call, dict.fromkeys(keys, (code, None, *NOWHERE)))


# JoinGroup


def _join(parts: Parts, call: Call) -> None:
    asked = call.request
    session = asked.session_timeout_ms
    request = Join(
        group=asked.group_id,
        member_id=asked.member_id,
        static_id=asked.group_instance_id,
        protocol_type=asked.protocol_type,
        protocols=tuple(Protocol(each.name, bytes(each.metadata)) for each in asked.protocols),
        session_timeout=session,
        rebalance_timeout=session if call.version == ONE_TIMEOUT else asked.rebalance_timeout_ms,
        client_id=call.client.client_id,
        client_host=shown_host(call.client.host),
        reason=asked.reason,
        knows_id_first=call.version >= ID_FIRST,
        knows_skip=call.version >= SKIP,
    )
    if len((request.static_id or request.client_id).encode()) > LONGEST_NAME:
        call.answer(_refuse_join(call, Code.INVALID_REQUEST))
        return
    ask(parts, call, request, JoinReply, _joined)


def _joined(call: Call, reply: JoinReply) -> Message:
    member = JoinGroupResponse.JoinGroupResponseMember
    return JoinGroupResponse(
        error_code=reply.code,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol or (None if call.version >= NULL_PROTOCOL else ""),
        leader=reply.leader or "",
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            member(
                member_id=each.member_id, group_instance_id=each.static_id, metadata=each.metadata
            )
            for each in reply.members
        ],
    )


def _refuse_join(call: Call, code: Code) -> Message:
    return _joined(call, JoinReply(code=code))


def shown_host(host: str) -> str:
    """A client's address as Java shows it: behind a slash, and without "::"."""
    try:
        parts = IPv6Address(host.partition("%")[0]).exploded.split(":")
    except AddressValueError:
        return f"/{host}"
    return "/" + ":".join(f"{int(part, 16):x}" for part in parts)


# SyncGroup


def _sync(parts: Parts, call: Call) -> None:
    asked = call.request
    if call.version >= NAMED_PROTOCOL and None in (asked.protocol_type, asked.protocol_name):
        call.answer(_refuse_sync(call, Code.INCONSISTENT_GROUP_PROTOCOL))
        return
    request = Sync(
        group=asked.group_id,
        generation=asked.generation_id,
        member_id=asked.member_id,
        static_id=asked.group_instance_id,
        protocol_type=asked.protocol_type,
        protocol=asked.protocol_name,
        assignments=tuple((each.member_id, bytes(each.assignment)) for each in asked.assignments),
    )
    ask(parts, call, request, SyncReply, _synced)


def _synced(_call: Call, reply: SyncReply) -> Message:
    return SyncGroupResponse(
        error_code=reply.code,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )


def _refuse_sync(call: Call, code: Code) -> Message:
    return _synced(call, SyncReply(code=code))


# Heartbeat


def _heartbeat(parts: Parts, call: Call) -> None:
    asked = call.request
    request = Heartbeat(
        group=asked.group_id,
        generation=asked.generation_id,
        member_id=asked.member_id,
        static_id=asked.group_instance_id,
    )
    ask(parts, call, request, HeartbeatReply, _beaten)


def _beaten(_call: Call, reply: HeartbeatReply) -> Message:
    return HeartbeatResponse(error_code=reply.code)


def _refuse_heartbeat(call: Call, code: Code) -> Message:
    return _beaten(call, HeartbeatReply(code=code))


# LeaveGroup


def _leave(parts: Parts, call: Call) -> None:
    asked = call.request
    if call.version >= MANY_LEAVE:
        members = tuple(
            Leaver(member_id=each.member_id, static_id=each.group_instance_id, reason=each.reason)
            for each in asked.members
        )
    else:
        members = (Leaver(member_id=asked.member_id),)
    ask(parts, call, Leave(group=asked.group_id, members=members), LeaveReply, _left)


def _left(call: Call, reply: LeaveReply) -> Message:
    if call.version < MANY_LEAVE:
        codes = [reply.code, *(each.code for each in reply.members)]
        return LeaveGroupResponse(error_code=next(filter(None, codes), Code.NONE))
    member = LeaveGroupResponse.MemberResponse
    return LeaveGroupResponse(
        error_code=reply.code,
        members=[
            member(member_id=each.member_id, group_instance_id=each.static_id, error_code=each.code)
            for each in reply.members
        ],
    )


def _refuse_leave(call: Call, code: Code) -> Message:
    return _left(call, LeaveReply(code=code))


# DescribeGroups


def _describe(parts: Parts, call: Call) -> None:
    request = DescribeGroups(
        groups=tuple(call.request.groups), knows_missing_group=call.version >= MISSING_GROUP
    )
    ask(parts, call, request, DescribeGroupsReply, _described)


def _described(call: Call, reply: DescribeGroupsReply) -> Message:
    operations = OPERATIONS if call.request.include_authorized_operations else UNASKED
    groups = [_described_group(each, operations) for each in reply.groups]
    return DescribeGroupsResponse(groups=groups)


def _described_group(group: DescribedGroup, operations: int) -> Message:
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
                group_instance_id=each.static_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=each.metadata,
                member_assignment=each.assignment,
            )
            for each in group.members
        ],
        authorized_operations=UNASKED if group.code else operations,
    )


def _refuse_describe(call: Call, code: Code) -> Message:
    groups = tuple(DescribedGroup(group=name, code=code) for name in call.request.groups)
    return _described(call, DescribeGroupsReply(groups=groups))


# ListGroups


def _list(parts: Parts, call: Call) -> None:
    types = [name.casefold() for name in call.request.types_filter]
    if types and CLASSIC not in types:  # there are no groups of another type
        call.answer(_listed(call, ListGroupsReply()))
        return
    states = tuple(name.strip() for name in call.request.states_filter)
    ask(parts, call, ListGroups(states=states), ListGroupsReply, _listed)


def _listed(_call: Call, reply: ListGroupsReply) -> Message:
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


def _refuse_list(call: Call, code: Code) -> Message:
    return _listed(call, ListGroupsReply(code=code))


# DeleteGroups


def _delete(parts: Parts, call: Call) -> None:
    request = DeleteGroups(groups=tuple(call.request.groups_names))
    ask(parts, call, request, DeleteGroupsReply, _deleted)


def _deleted(_call: Call, reply: DeleteGroupsReply) -> Message:
    result = DeleteGroupsResponse.DeletableGroupResult
    return DeleteGroupsResponse(
        results=[result(group_id=name, error_code=code) for name, code in reply.codes.items()]
    )


def _refuse_delete(call: Call, code: Code) -> Message:
    return _deleted(call, DeleteGroupsReply(codes=dict.fromkeys(call.request.groups_names, code)))


HANDLERS = (
    Handler(api=Api.FIND_COORDINATOR, lowest=0, highest=6, handle=_find, refuse=_refuse_find),
    Handler(api=Api.JOIN_GROUP, lowest=0, highest=9, handle=_join, refuse=_refuse_join),
    Handler(api=Api.SYNC_GROUP, lowest=0, highest=5, handle=_sync, refuse=_refuse_sync),
    Handler(api=Api.HEARTBEAT, lowest=0, highest=4, handle=_heartbeat, refuse=_refuse_heartbeat),
    Handler(api=Api.LEAVE_GROUP, lowest=0, highest=5, handle=_leave, refuse=_refuse_leave),
    Handler(
        api=Api.DESCRIBE_GROUPS, lowest=0, highest=6, handle=_describe, refuse=_refuse_describe
    ),
    Handler(api=Api.LIST_GROUPS, lowest=0, highest=5, handle=_list, refuse=_refuse_list),
    Handler(api=Api.DELETE_GROUPS, lowest=0, highest=2, handle=_delete, refuse=_refuse_delete),
)
