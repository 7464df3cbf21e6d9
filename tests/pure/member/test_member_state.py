"""The table of moves: each is made by something, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rota.engine.member.events import CloseRequested, MemberTimer, Subscribed, Unsubscribed
from rota.engine.member.state import (
    GENERATION_STATES,
    INACTIVE_STATES,
    MEMBER_TRANSITIONS,
    MemberState,
)
from rota.engine.model.request import JoinGroup, LeaveGroup, SyncGroup
from rota.engine.model.response import JoinGroupResult, SyncGroupResult
from rota.errors import Code, FormatError
from tests.support.member_driver import Driver, encode_assignment, raised_errors

U, J, SY, ST = MemberState.UNJOINED, MemberState.JOINING, MemberState.SYNCING, MemberState.STABLE
F, L = MemberState.FENCED, MemberState.LEFT


def unjoined_member() -> Driver:
    return Driver(group_instance_id="s")


def joining_member() -> Driver:
    member = unjoined_member()
    member.poll()
    member.found()
    return member


def syncing_member() -> Driver:
    member = joining_member()
    member.answer_join()
    return member


def stable_member() -> Driver:
    member = syncing_member()
    member.answer_sync("t0-0")
    return member


def fenced_member() -> Driver:
    member = joining_member()
    member.answer(JoinGroup, JoinGroupResult(code=Code.FENCED_INSTANCE_ID))
    return member


def close(member: Driver) -> None:
    member.give(CloseRequested())


def unsubscribe(member: Driver) -> None:
    member.give(Unsubscribed())


def poll_late(member: Driver) -> None:
    member.end_poll()
    member.timers = {MemberTimer.POLL: member.timers[MemberTimer.POLL]}
    member.pass_time(member.config.max_poll_interval)


def join_again(member: Driver) -> None:
    member.end_poll()
    member.answer(SyncGroup, SyncGroupResult(code=Code.REBALANCE_IN_PROGRESS))
    assert member.state is MemberState.SYNCING
    member.poll()


WAYS: dict[
    tuple[MemberState, MemberState], tuple[Callable[[], Driver], list[Callable[[Driver], object]]]
] = {
    (U, J): (unjoined_member, [lambda member: member.poll() + member.found()]),
    (U, L): (unjoined_member, [close]),
    (J, SY): (joining_member, [Driver.answer_join]),
    (J, U): (joining_member, [poll_late, unsubscribe]),
    (J, F): (
        joining_member,
        [lambda m: m.answer(JoinGroup, JoinGroupResult(code=Code.FENCED_INSTANCE_ID))],
    ),
    (J, L): (joining_member, [close]),
    (SY, ST): (syncing_member, [lambda member: member.answer_sync("t0-0")]),
    (SY, J): (syncing_member, [join_again]),
    (SY, U): (
        syncing_member,
        [
            poll_late,
            unsubscribe,
            lambda m: (
                m.end_poll() + m.answer(SyncGroup, SyncGroupResult(code=Code.UNKNOWN_MEMBER_ID))
            ),
            lambda m: m.end_poll() + m.beat(Code.ILLEGAL_GENERATION),
        ],
    ),
    (SY, F): (
        syncing_member,
        [
            lambda m: m.answer(SyncGroup, SyncGroupResult(code=Code.FENCED_INSTANCE_ID)),
            lambda m: m.beat(Code.FENCED_INSTANCE_ID),
        ],
    ),
    (SY, L): (syncing_member, [close]),
    (ST, J): (
        stable_member,
        [
            lambda member: member.beat(Code.REBALANCE_IN_PROGRESS),
            lambda member: member.give(Subscribed(("t0", "t1"))),
        ],
    ),
    (ST, U): (
        stable_member,
        [
            poll_late,
            unsubscribe,
            lambda m: m.end_poll() + m.beat(Code.UNKNOWN_MEMBER_ID),
            lambda m: m.end_poll() + m.commit(1, {}) + m.beat(Code.ILLEGAL_GENERATION),
        ],
    ),
    (ST, F): (stable_member, [lambda member: member.beat(Code.FENCED_INSTANCE_ID)]),
    (ST, L): (stable_member, [close]),
    (F, L): (fenced_member, [close]),
}


def test_every_legal_move_has_a_test() -> None:
    assert set(WAYS) == set(MEMBER_TRANSITIONS)


@pytest.mark.parametrize(
    ("move", "way"), [(move, way) for move, (_, ways) in WAYS.items() for way in ways]
)
def test_every_legal_move_is_made(
    move: tuple[MemberState, MemberState], way: Callable[[Driver], object]
) -> None:
    source, target = move
    member = WAYS[move][0]()
    assert member.state is source
    member.moves.clear()
    way(member)
    assert move in member.moves
    assert member.state is target


def test_a_state_that_is_over_is_left_by_a_close_alone() -> None:
    for source, target in MEMBER_TRANSITIONS:
        assert source not in INACTIVE_STATES or (source, target) == (F, L)


@pytest.mark.parametrize("state", [SY, ST])
def test_heartbeats_run_in_a_generation_only(state: MemberState) -> None:
    assert state in GENERATION_STATES
    member = syncing_member() if state is SY else stable_member()
    assert {MemberTimer.HEARTBEAT, MemberTimer.SESSION} <= set(member.timers)
    close(member)
    assert not member.timers


def test_an_assignment_that_cannot_be_read_is_left_and_told() -> None:
    member = syncing_member()
    member.end_poll()
    member.answer(SyncGroup, SyncGroupResult(assignment=encode_assignment("t0-0")[:3]))
    commands = member.poll()
    assert (ST, U) in member.moves
    assert [type(error) for error in raised_errors(commands)] == [FormatError]
    assert member.sent(LeaveGroup).members[0].group_instance_id == "s"
