"""JoinGroup: who is taken in, and under which member id."""

from __future__ import annotations

from collections.abc import Callable

from rota.errors import Code
from rota.group import rebalance, static
from rota.group.classic import Group, GroupMember
from rota.group.event import Happened, TimerKind
from rota.group.state import State
from rota.group.turn import Turn
from rota.model.config import GroupConfig
from rota.model.reply import JoinReply
from rota.model.request import NO_MEMBER, Join


def refusal(config: GroupConfig, request: Join) -> Code:
    """What can be told from the request alone."""
    if not request.group:
        return Code.INVALID_GROUP_ID
    if not config.min_session_timeout <= request.session_timeout <= config.max_session_timeout:
        return Code.INVALID_SESSION_TIMEOUT
    return Code.NONE


def handle(turn: Turn, group: Group, token: int, request: Join, new_id: Callable[[], str]) -> None:
    """A join reaches a group that exists."""
    if not _has_room(turn.config, group, request.member_id):
        _turn_away(turn, group, token, request)
    elif not group.accepts(request.protocol_type, request.protocols):
        turn.note(Happened.REFUSED, group, _no_strategy(group, request))
        refuse(turn, token, request, Code.INCONSISTENT_GROUP_PROTOCOL)
    elif request.member_id == NO_MEMBER:
        _newcomer(turn, group, token, request, new_id)
    elif request.member_id in group.pending:
        if request.static_id is None:
            _add(turn, group, token, request, request.member_id)
        else:  # an id that was given to a dynamic member: no honest client does this
            turn.answer(token, JoinReply(code=Code.UNKNOWN))
    else:
        code = group.check_member(request.member_id, request.static_id)
        if code:
            refuse(turn, token, request, code)
        else:
            _rejoin(turn, group, token, request, group.members[request.member_id])


def refuse(turn: Turn, token: int, request: Join, code: Code) -> None:
    """Answers with a code; the member keeps its id."""
    turn.answer(token, JoinReply(code=code, member_id=request.member_id))


def _has_room(config: GroupConfig, group: Group, member_id: str) -> bool:
    member = group.members.get(member_id)
    match group.state:
        case State.PREPARING:
            # whoever rejoins last has to go where group.max.size was lowered
            awaited = member is not None and member.join_token is not None
            return awaited or group.waiting < config.max_size
        case State.COMPLETING | State.STABLE:
            return member is not None or len(group.members) < config.max_size
        case _:
            return True


def _turn_away(turn: Turn, group: Group, token: int, request: Join) -> None:
    member = group.members.get(request.member_id)
    if member is not None:
        turn.take_out(group, member)
    elif group.drop_pending(request.member_id):
        turn.stop(TimerKind.SESSION, group, request.member_id)
    turn.note(Happened.REFUSED, group, f"full: group.max.size is {turn.config.max_size}")
    turn.answer(token, JoinReply(code=Code.GROUP_MAX_SIZE_REACHED))
    rebalance.complete_if_all_joined(turn, group)


def _no_strategy(group: Group, request: Join) -> str:
    offered = ", ".join(name for name, _ in request.protocols) or "none"
    common = ", ".join(group.strategies) or "none"
    return (
        f"{request.member_id or request.client_id} of type {request.protocol_type!r} supports "
        f"{offered}; the group, of type {group.protocol_type!r}, has in common: {common}"
    )


def _newcomer(
    turn: Turn, group: Group, token: int, request: Join, new_id: Callable[[], str]
) -> None:
    name = request.client_id if request.static_id is None else request.static_id
    member_id = f"{name}-{new_id()}"
    if request.static_id is not None:
        if request.static_id in group.static_ids:
            static.replace(turn, group, token, request, member_id)
        else:
            _add(turn, group, token, request, member_id)
    elif request.knows_id_first:
        # an id first (KIP-394): a client that gives up and tries again leaves no dead members
        group.pending[member_id] = None
        turn.start(TimerKind.SESSION, group, request.session_timeout, member_id)
        turn.answer(token, JoinReply(code=Code.MEMBER_ID_REQUIRED, member_id=member_id))
    else:
        _add(turn, group, token, request, member_id)


def _add(turn: Turn, group: Group, token: int, request: Join, member_id: str) -> None:
    if group.is_initial:
        group.newcomer = True
    member = GroupMember(member_id, request)
    group.add(member, request.protocol_type, token)
    # it cannot send heartbeats before its join is answered, but must not wait here for ever
    turn.start(TimerKind.SESSION, group, turn.config.new_member_timeout, member_id)
    if request.static_id is not None:
        how = f"static id {request.static_id}"
    else:
        how = "without an id" if request.member_id == NO_MEMBER else "with the id it was given"
    turn.note(Happened.ADDED, group, f"{member_id} ({how})")
    reason = f"member {member_id} joins; its reason: {request.reason or 'none given'}"
    rebalance.start_or_complete(turn, group, reason)


def _rejoin(turn: Turn, group: Group, token: int, request: Join, member: GroupMember) -> None:
    same = member.protocols == request.protocols
    leads = group.leader == member.member_id
    if group.state is State.PREPARING:
        why = "joins again"
    elif not same:
        why = "has other metadata"
    elif group.state is State.STABLE and leads:
        # how a leader tells of what changed outside the group, such as new partitions
        why = "leads and joins again"
    else:  # it did not receive the answer to its last join
        turn.answer(token, rebalance.joined(group, member))
        return
    supersede(turn, group, member)
    group.update(member, request)
    group.park_join(member, token)
    reason = f"member {member.member_id} {why}; its reason: {request.reason or 'none given'}"
    rebalance.start_or_complete(turn, group, reason)


def supersede(turn: Turn, group: Group, member: GroupMember) -> None:
    """A member that joins twice waits for one answer only; the older request ends."""
    code = Code.REBALANCE_IN_PROGRESS
    turn.answer_join(group, member, JoinReply(code=code, member_id=member.member_id))
