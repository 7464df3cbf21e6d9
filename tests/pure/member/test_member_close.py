"""Saying good-bye: commit, revoke, leave, and an end in any case."""

from __future__ import annotations

import pytest

from rota.errors import Code, CommitFailed, RetriableCommitFailed, TimedOut
from rota.member.event import (
    Call,
    CallListener,
    CloseAsked,
    CoordinatorMissing,
    FindCoordinator,
    FinishCommit,
    Finished,
    ListenerReturned,
    Note,
    PollBegan,
    Raise,
    RunCallback,
    SetAssignment,
    Timer,
)
from rota.member.state import State
from rota.model.reply import LeaveReply
from rota.model.request import CommitOffsets, Heartbeat, Join, Leave
from tests.support.member_driver import ME, Driver, at, of, requests, tp


def stable(strategies: str = "range", **settings: object) -> Driver:
    member = Driver(strategies, **settings)  # type: ignore[arg-type]
    member.settle("t0-0", "t0-1")
    member.end_poll()
    member.heard()
    return member


def test_commit_revoke_leave() -> None:
    member = stable(auto_commit=True)
    member.consumed = at(t0_0=3)
    member.give(CloseAsked())
    assert dict(member.sent(CommitOffsets).offsets) == at(t0_0=3)
    assert member.heard() == []
    commands = member.answer_commit()
    assert member.heard() == [(Call.REVOKED, tp("t0-0", "t0-1"))]
    assert SetAssignment((), 1) in commands
    assert member.sent(Leave).members[0].member_id == ME
    assert Finished() not in commands
    assert member.answer(Leave, LeaveReply())[-1] == Finished()
    assert member.state is State.LEFT


def test_afterwards_nothing_is_wanted() -> None:
    member = stable()
    member.give(CloseAsked())
    member.answer(Leave, LeaveReply())
    for event in (PollBegan(), CloseAsked(), ListenerReturned(1)):
        assert member.give(event) == []


def test_a_leave_that_fails_is_an_end_too() -> None:
    member = stable()
    member.give(CloseAsked())
    assert Finished() in member.fail(Leave)


def test_without_a_group_there_is_nothing_to_say() -> None:
    for member in (Driver(), Driver(topics=())):
        assert member.give(CloseAsked())[-1] == Finished()


def test_without_a_coordinator_and_without_time_it_ends_at_once() -> None:
    member = stable(auto_commit=True)
    member.consumed = at(t0_0=3)
    member.beat(Code.NOT_COORDINATOR)
    commands = member.give(CloseAsked())
    assert Finished() in commands
    assert requests(commands) == []
    assert member.heard() == [(Call.REVOKED, tp("t0-0", "t0-1"))]


def test_with_time_it_looks_for_the_coordinator() -> None:
    member = stable(auto_commit=True)
    member.consumed = at(t0_0=3)
    member.beat(Code.NOT_COORDINATOR)
    member.give(CloseAsked(member.now + 30_000))
    member.give(CoordinatorMissing())
    assert FindCoordinator() in member.pass_time(200)
    member.found()
    member.answer_commit()
    assert Finished() in member.answer(Leave, LeaveReply())


def test_with_time_it_tries_the_commit_again_but_not_for_ever() -> None:
    member = stable(auto_commit=True)
    member.consumed = at(t0_0=3)
    member.give(CloseAsked(member.now + 500))
    member.answer_commit(Code.COORDINATOR_LOAD_IN_PROGRESS)
    member.pass_time(100)
    assert member.under_way(CommitOffsets)
    commands = member.pass_time(400)
    assert member.heard() == [(Call.REVOKED, tp("t0-0", "t0-1"))]
    assert Finished() in commands


def test_a_leave_without_an_answer_is_waited_for_no_longer_than_the_application_waits() -> None:
    member = stable()
    member.give(CloseAsked(member.now + 500))
    assert Finished() in member.pass_time(500)
    assert not member.timers


def test_a_commit_that_fails_for_good_is_noted() -> None:
    member = stable(auto_commit=True)
    member.consumed = at(t0_0=3)
    member.give(CloseAsked())
    commands = member.answer_commit(Code.GROUP_AUTHORIZATION_FAILED)
    assert any("commit" in note.text for note in of(Note, commands))
    assert member.under_way(Leave)


def test_callbacks_run_before_the_end() -> None:
    member = stable()
    member.commit(1, at(t0_0=1))
    member.commit(2, at(t0_0=2))
    member.answer_commit()
    commands = member.give(CloseAsked())
    assert of(RunCallback, commands) == [RunCallback(2, at(t0_0=2))]
    assert Finished() not in member.answer(Leave, LeaveReply())
    commands = member.answer_commit()
    assert of(RunCallback, commands) == [RunCallback(1, at(t0_0=1))]
    assert commands[-1] == Finished()


def test_commits_that_are_not_done_in_time_have_failed() -> None:
    member = stable()
    member.commit(1, at(t0_0=1))
    member.commit(2, at(t0_0=1), wait=60_000)
    member.give(CloseAsked(member.now + 500))
    commands = member.pass_time(500)
    (callback,) = of(RunCallback, commands)
    (returned,) = of(FinishCommit, commands)
    assert isinstance(callback.error, TimedOut)
    assert isinstance(returned.error, TimedOut)
    assert commands[-1] == Finished()


def test_commits_that_wait_for_a_coordinator_have_failed() -> None:
    member = Driver(topics=())
    member.commit(1, at(t0_0=1))
    commands = member.give(CloseAsked())
    (callback,) = of(RunCallback, commands)
    assert isinstance(callback.error, RetriableCommitFailed)
    assert commands[-1] == Finished()


def test_commits_that_wait_for_a_coordinator_go_out_before_the_member_leaves() -> None:
    member = stable()
    member.pass_time(3_000)
    member.fail(Heartbeat)
    member.commit(1, at(t0_0=1))
    commands = member.give(CloseAsked(member.now + 30_000))
    assert not of(CallListener, commands)
    commands = member.found()
    assert [type(request) for request in requests(commands)][-2:] == [CommitOffsets, Leave]
    member.answer_commit()
    assert RunCallback(1, at(t0_0=1)) in member.log + member.answer(Leave, LeaveReply())


def test_if_there_is_none_they_have_failed_and_the_member_goes() -> None:
    member = stable()
    member.pass_time(3_000)
    member.fail(Heartbeat)
    member.commit(1, at(t0_0=1))
    member.give(CloseAsked(member.now + 30_000))
    commands = member.give(CoordinatorMissing())
    (callback,) = of(RunCallback, commands)
    assert isinstance(callback.error, RetriableCommitFailed)
    assert commands[-1] == Finished()


def test_nor_do_they_wait_longer_than_the_application() -> None:
    member = stable()
    member.pass_time(3_000)
    member.fail(Heartbeat)
    member.commit(1, at(t0_0=1))
    member.give(CloseAsked(member.now + 500))
    assert Finished() in member.pass_time(500)


def test_a_commit_to_be_tried_again_is_not_sent_by_one_who_left() -> None:
    member = stable()
    member.commit(1, at(t0_0=1), wait=60_000)
    member.answer_commit(Code.COORDINATOR_LOAD_IN_PROGRESS)
    member.give(CloseAsked(member.now + 30_000))
    member.answer(Leave, LeaveReply())
    (returned,) = of(FinishCommit, member.pass_time(100))
    assert isinstance(returned.error, CommitFailed)
    assert member.log[-1] == Finished()


def test_in_the_middle_of_a_rebalance_what_was_kept_is_lost() -> None:
    member = stable("cooperative-sticky")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    member.give(CloseAsked())
    assert member.heard() == [(Call.LOST, tp("t0-0", "t0-1"))]
    assert member.sent(Leave).members[0].member_id == ME
    member.answer_join(2)
    assert member.state is State.LEFT


def test_a_first_join_has_no_id_to_leave_with() -> None:
    member = Driver()
    member.poll()
    member.found()
    assert Finished() in member.give(CloseAsked())
    assert not member.under_way(Leave)


@pytest.mark.parametrize("waits", [None, 1_000])
def test_a_fenced_member_only_ends(waits: int | None) -> None:
    member = stable(static_id="s")
    member.beat(Code.FENCED_INSTANCE_ID)
    until = None if waits is None else member.now + waits
    commands = member.give(CloseAsked(until))
    assert member.heard() == [(Call.LOST, tp("t0-0", "t0-1"))]
    assert Finished() in commands
    assert requests(commands) == []


def test_a_listener_that_raises_is_told_before_the_end() -> None:
    member = stable()
    member.answers_listener = False
    member.give(CloseAsked())
    error = RuntimeError("oops")
    member.give(ListenerReturned(member.calls.pop().call_id, error))
    commands = member.answer(Leave, LeaveReply())
    assert [one for one in commands if isinstance(one, Raise | Finished)] == [
        Raise(error),
        Finished(),
    ]


def test_a_listener_at_work_returns_first() -> None:
    member = stable("cooperative-sticky")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    member.answer_join(2)
    member.answers_listener = False
    member.answer_sync("t0-0")
    assert [call.call for call in member.calls] == [Call.REVOKED]
    assert not of(Finished, member.give(CloseAsked()))
    member.answers_listener = True
    member.give(ListenerReturned(member.calls.pop().call_id))
    assert member.heard() == [(Call.ASSIGNED, ()), (Call.REVOKED, tp("t0-0"))]
    assert member.under_way(Leave)
    assert not member.under_way(Join)


def test_a_rebalance_that_waits_for_its_commit_is_given_up() -> None:
    member = stable(auto_commit=True)
    member.consumed = at(t0_0=3)
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    assert Timer.DEADLINE in member.timers
    member.give(CloseAsked())
    member.answer_commit()
    member.answer_commit()
    assert member.heard() == [(Call.REVOKED, tp("t0-0", "t0-1"))]
    assert not member.under_way(Join)
    assert Finished() in member.answer(Leave, LeaveReply())


def test_what_was_never_told_is_noted() -> None:
    member = Driver()
    member.poll()
    member.found()
    member.end_poll()
    member.refuse_join(Code.GROUP_MAX_SIZE_REACHED)
    commands = member.give(CloseAsked())
    assert any("GROUP_MAX_SIZE_REACHED" in note.text for note in of(Note, commands))
