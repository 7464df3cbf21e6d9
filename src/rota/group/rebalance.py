"""The phases of a rebalance: who is waited for, how long, and what a new generation starts with."""

from __future__ import annotations

from rota.errors import Code
from rota.group.classic import Group, GroupMember
from rota.group.event import Happened, TimerKind
from rota.group.state import State
from rota.group.turn import Turn
from rota.model.reply import JoinReply, SyncReply

SHORTEST_WAIT = 1_000
"""How often, at most, absent members are looked for: a rebalance timeout may be nothing."""


def start_or_complete(turn: Turn, group: Group, reason: str) -> None:
    """Something changed: a rebalance starts, or the one under way may now be complete."""
    if group.state is State.PREPARING:
        complete_if_all_joined(turn, group)
    else:
        start(turn, group, reason)


def start(turn: Turn, group: Group, reason: str) -> None:
    """Calls all members to join again."""
    if group.state is State.COMPLETING:
        forget_assignment(turn, group, Code.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    turn.stop(TimerKind.SYNC, group)
    initial = group.state is State.EMPTY
    state = group.state.value
    group.move(State.PREPARING, turn.now)
    turn.note(Happened.PREPARING, group, f"{reason} (group was {state})")
    if initial:
        # others are likely to come too: a moment's wait saves a rebalance for each of them
        delay = turn.config.initial_rebalance_delay
        group.newcomer = False
        group.initial_delay_left = max(group.rebalance_timeout - delay, 0)
        turn.start(TimerKind.JOIN, group, delay)
    elif group.all_joined:
        complete(turn, group)
    else:
        turn.start(TimerKind.JOIN, group, group.rebalance_timeout)


def complete_if_all_joined(turn: Turn, group: Group) -> None:
    """Ends the join phase early; the initial delay is always waited for."""
    if group.state is State.PREPARING and not group.is_initial and group.all_joined:
        complete(turn, group)


def join_time_is_up(turn: Turn, group: Group) -> None:
    """The join phase has lasted long enough."""
    if group.state is not State.PREPARING:
        return
    if group.is_initial and group.newcomer and group.initial_delay_left > 0:
        delay = min(turn.config.initial_rebalance_delay, group.initial_delay_left)
        group.newcomer = False
        group.initial_delay_left -= delay
        turn.start(TimerKind.JOIN, group, delay)
    else:
        complete(turn, group)


def complete(turn: Turn, group: Group) -> None:
    """Ends the join phase: who has not joined is left out, and a generation begins.

    Only dynamic members are dropped: a static one may be restarting, and has its session to come
    back (KIP-345).
    """
    turn.stop(TimerKind.JOIN, group)
    absent = [m for m in group.members.values() if m.join_token is None and m.static_id is None]
    for member in absent:
        turn.take_out(group, member)
    if absent:
        names = ", ".join(member.member_id for member in absent)
        turn.note(Happened.ABSENT, group, f"did not join in time: {names}")
    if group.members and not group.elect_leader():
        # nobody is there but static members that may come back within their sessions
        turn.start(TimerKind.JOIN, group, max(group.rebalance_timeout, SHORTEST_WAIT))
        return
    group.next_generation(turn.now)
    if group.members:
        _begin_generation(turn, group)
    else:
        turn.note(Happened.EMPTIED, group, "no members are left")
        turn.append((group.saved({}),), lambda later, code: _empty_saved(later, group, code))


def _begin_generation(turn: Turn, group: Group) -> None:
    turn.note(Happened.JOINED, group, f"{len(group.members)} members, strategy {group.protocol}")
    for member in group.members.values():
        turn.answer_join(group, member, joined(group, member))
        turn.start_session(group, member)
        member.is_new = False
    turn.start(TimerKind.SYNC, group, group.rebalance_timeout)


def joined(group: Group, member: GroupMember) -> JoinReply:
    """The group's generation, as a member is told of it."""
    leads = group.leader == member.member_id
    return JoinReply(
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader,
        members=group.joined_members() if leads else (),
    )


def _empty_saved(turn: Turn, group: Group, code: Code) -> None:
    # a restart would bring the last generation back, whose members' sessions would then end
    if code:
        turn.note(Happened.FAILED, group, f"that the group is empty was not stored: {code.name}")


def sync_time_is_up(turn: Turn, group: Group) -> None:
    """The sync phase has lasted long enough: who has not asked for its part is removed."""
    if group.state not in (State.COMPLETING, State.STABLE) or not group.pending_sync:
        return
    absent = [group.members[member_id] for member_id in group.pending_sync]
    for member in absent:
        turn.take_out(group, member)
    names = ", ".join(member.member_id for member in absent)
    turn.note(Happened.ABSENT, group, f"did not sync in time: {names}")
    start(turn, group, f"did not sync in time: {names}")


def forget_assignment(turn: Turn, group: Group, code: Code) -> None:
    """The generation fails before it is stable: those who wait for their part are told so."""
    for member in group.members.values():
        member.assignment = b""
        if turn.answer_sync(member, SyncReply(code=code)):
            turn.start_session(group, member)
