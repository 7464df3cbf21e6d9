"""SyncGroup: the leader's assignment is stored, and everybody is handed its part."""

from __future__ import annotations

from rota.errors import Code
from rota.group import rebalance
from rota.group.classic import Group, GroupMember
from rota.group.event import Happened, TimerKind
from rota.group.state import State
from rota.group.turn import Turn, answerable
from rota.model.reply import SyncReply
from rota.model.request import Sync


def handle(turn: Turn, group: Group | None, token: int, request: Sync) -> None:
    """A member asks for its part."""
    if group is None or group.state is State.EMPTY:
        turn.answer(token, SyncReply(code=Code.UNKNOWN_MEMBER_ID))
        return
    code = _refusal(group, request)
    if code:
        turn.answer(token, SyncReply(code=code))
        return
    member = group.members[request.member_id]
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        turn.stop(TimerKind.SYNC, group)
    if group.state is State.STABLE:
        turn.answer(token, _part(group, member))
        return
    # a member that asks twice waits for one answer only
    turn.answer_sync(member, SyncReply(code=Code.REBALANCE_IN_PROGRESS))
    member.sync_token = token
    if group.leader == member.member_id:
        _store(turn, group, request)


def _refusal(group: Group, request: Sync) -> Code:
    code = group.check_member(request.member_id, request.static_id)
    if code:
        return code
    if request.generation != group.generation:
        return Code.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type):
        return Code.INCONSISTENT_GROUP_PROTOCOL
    # before its first generation a group has no strategy that could be another
    if group.protocol is not None and request.protocol not in (None, group.protocol):
        return Code.INCONSISTENT_GROUP_PROTOCOL
    if group.state is State.PREPARING:
        return Code.REBALANCE_IN_PROGRESS
    return Code.NONE


def _part(group: Group, member: GroupMember) -> SyncReply:
    return SyncReply(
        protocol_type=group.protocol_type, protocol=group.protocol, assignment=member.assignment
    )


def _store(turn: Turn, group: Group, request: Sync) -> None:
    assignments = dict(request.assignments)
    forgotten = [member_id for member_id in group.members if member_id not in assignments]
    text = f"from {request.member_id} for {len(group.members)} members"
    if forgotten:
        text += f"; nothing for {', '.join(forgotten)}"
    turn.note(Happened.ASSIGNED, group, text)
    turn.append(
        (group.saved(assignments),),
        lambda later, code: _stored(later, group, request.member_id, assignments, code),
    )


def _stored(
    turn: Turn, group: Group, leader: str, assignments: dict[str, bytes], code: Code
) -> None:
    if code:
        turn.note(Happened.FAILED, group, f"the assignment was not stored: {code.name}")
        rebalance.forget_assignment(turn, group, answerable(code))
        rebalance.start(turn, group, f"the assignment of leader {leader} was not stored")
        return
    group.move(State.STABLE, turn.now)
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        if turn.answer_sync(member, _part(group, member)):
            turn.start_session(group, member)
    turn.note(Happened.STABLE, group, f"{len(group.members)} members")
