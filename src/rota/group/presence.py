"""Who is still there: heartbeats, sessions that end, and members that leave."""

from __future__ import annotations

from rota.errors import Code
from rota.group import rebalance
from rota.group.classic import Group
from rota.group.event import Happened, TimerKind
from rota.group.state import State
from rota.group.turn import Turn, answerable
from rota.model.reply import HeartbeatReply, LeaveReply, LeaverReply
from rota.model.request import NO_MEMBER, Heartbeat, Leave, Leaver

_ALIVE = HeartbeatReply()
_REBALANCING = HeartbeatReply(code=Code.REBALANCE_IN_PROGRESS)


def heartbeat(turn: Turn, group: Group | None, token: int, request: Heartbeat) -> None:
    """A sign of life. A member that may still have to sync is not called to join again."""
    if group is None:
        turn.answer(token, HeartbeatReply(code=Code.UNKNOWN_MEMBER_ID))
        return
    code = group.check_member(request.member_id, request.static_id)
    if not code and request.generation != group.generation:
        code = Code.ILLEGAL_GENERATION
    if code:
        turn.answer(token, HeartbeatReply(code=code))
        return
    turn.start_session(group, group.members[request.member_id])
    turn.answer(token, _REBALANCING if group.state is State.PREPARING else _ALIVE)


def session_ended(turn: Turn, group: Group, member_id: str) -> None:
    """A member was silent for its session, or an id that was given out was not used."""
    if group.drop_pending(member_id):
        if group.state is State.PREPARING and group.all_joined:
            rebalance.complete(turn, group)
        return
    member = group.members.get(member_id)
    if member is None or member.excused:
        return
    turn.take_out(group, member)
    turn.note(Happened.SILENT, group, f"{member_id} for {member.session_timeout} ms")
    if group.state is State.PREPARING:
        if group.all_joined:
            rebalance.complete(turn, group)
    else:
        rebalance.start(turn, group, f"member {member_id} is silent")


def leave(turn: Turn, group: Group | None, token: int, request: Leave) -> None:
    """Members go, or an admin removes them."""
    if group is None:
        unknown = Code.UNKNOWN_MEMBER_ID
        turn.answer(token, LeaveReply(members=tuple(_left(m, unknown) for m in request.members)))
        return
    reply = LeaveReply(members=tuple(_left(m, _go(turn, group, m)) for m in request.members))
    gone = [m.member_id or m.static_id or "" for m in reply.members if not m.code]
    if gone and group.state in (State.STABLE, State.COMPLETING):
        rebalance.start(turn, group, f"members leave: {', '.join(gone)}")
    elif gone:
        rebalance.complete_if_all_joined(turn, group)
    turn.answer_after_append(
        token, lambda code: LeaveReply(code=answerable(code)) if code else reply
    )


def _left(leaver: Leaver, code: Code) -> LeaverReply:
    return LeaverReply(member_id=leaver.member_id, static_id=leaver.static_id, code=code)


def _go(turn: Turn, group: Group, leaver: Leaver) -> Code:
    member_id = leaver.member_id
    if member_id == NO_MEMBER and leaver.static_id is not None:
        member_id = group.static_ids.get(leaver.static_id, NO_MEMBER)
    elif group.drop_pending(member_id):
        turn.stop(TimerKind.SESSION, group, member_id)
        return Code.NONE
    code = group.check_member(member_id, leaver.static_id)
    if not code:
        turn.take_out(group, group.members[member_id])
        text = f"{member_id}; its reason: {leaver.reason or 'none given'}"
        turn.note(Happened.LEFT, group, text)
    return code
