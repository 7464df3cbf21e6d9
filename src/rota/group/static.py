"""Static members (KIP-345): one that restarts takes the place of the process it was before."""

from __future__ import annotations

import dataclasses

from rota.errors import Code
from rota.group import rebalance
from rota.group.classic import Group, GroupMember
from rota.group.event import Happened, TimerKind
from rota.group.state import State
from rota.group.turn import Turn, answerable
from rota.model.entry import GroupSaved
from rota.model.reply import JoinReply, SyncReply
from rota.model.request import Join


def replace(turn: Turn, group: Group, token: int, request: Join, new_id: str) -> None:
    """A process joins without a member id under a static id that is taken.

    In a stable group whose strategy stays the same nothing else happens: the new process gets what
    the old one had, once that is in the journal. Otherwise a rebalance starts or goes on.
    """
    old = group.members[group.static_ids[request.static_id or ""]]
    new = _successor(old, new_id, request)
    if group.state is State.STABLE and group.elect_strategy((old, new)) == group.protocol:

        def stored(later: Turn, code: Code) -> None:
            if code:
                later.note(Happened.FAILED, group, f"{new_id} was not stored: {code.name}")
                later.answer(token, JoinReply(code=answerable(code), generation=group.generation))
            else:
                _take_over(later, group, old, new)
                later.answer(token, _welcome(group, old, new, request))

        turn.append((_saved_with(group, old, new),), stored)
        return
    _take_over(turn, group, old, new)
    group.park_join(new, token)
    # while completing, the leader may already assign to the old id, so the round starts again
    reason = f"static member {request.static_id} is back as {new_id}"
    rebalance.start_or_complete(turn, group, reason)


def _successor(old: GroupMember, member_id: str, request: Join) -> GroupMember:
    new = GroupMember(member_id, request)
    new.client_id = old.client_id  # as Kafka: the journal shows the first process's
    new.client_host = old.client_host
    new.assignment = old.assignment
    new.is_new = False
    return new


def _saved_with(group: Group, old: GroupMember, new: GroupMember) -> GroupSaved:
    saved = group.saved({member.member_id: member.assignment for member in group.members.values()})
    return dataclasses.replace(
        saved,
        leader=new.member_id if saved.leader == old.member_id else saved.leader,
        members=tuple(
            new.saved(group.protocol, new.assignment) if m.member_id == old.member_id else m
            for m in saved.members
        ),
    )


def _welcome(group: Group, old: GroupMember, new: GroupMember, request: Join) -> JoinReply:
    """What a process is told that came back to a stable group."""
    reply = rebalance.joined(group, new)
    if group.leader != new.member_id:
        return reply
    if request.knows_skip:  # it learns that it leads, but need not assign (KIP-814)
        return dataclasses.replace(reply, skip_assignment=True)
    # an older client is told that the old id leads: else it would assign, to no effect
    return dataclasses.replace(reply, leader=old.member_id, members=())


def _take_over(turn: Turn, group: Group, old: GroupMember, new: GroupMember) -> None:
    fenced = Code.FENCED_INSTANCE_ID
    turn.answer_join(group, old, JoinReply(code=fenced, member_id=old.member_id))
    turn.answer_sync(old, SyncReply(code=fenced))
    turn.stop(TimerKind.SESSION, group, old.member_id)
    group.replace(old, new)
    turn.start_session(group, new)
    turn.note(Happened.REPLACED, group, f"{old.member_id} by {new.member_id}")
