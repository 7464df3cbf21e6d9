"""Saying good-bye: commit, revoke, leave, and an end in any case."""

from __future__ import annotations

import pytest

from rota.engine.member.events import (
    CallListener,
    CloseRequested,
    CoordinatorNotFound,
    FindCoordinator,
    FinishClose,
    FinishSyncCommit,
    ListenerMethod,
    ListenerReturned,
    MemberNote,
    MemberTimer,
    PollBegan,
    RaiseError,
    RunCommitCallback,
    SetAssignment,
)
from rota.engine.member.state import MemberState
from rota.engine.model.request import Heartbeat, JoinGroup, LeaveGroup, OffsetCommit
from rota.engine.model.response import LeaveGroupResult
from rota.errors import Code, CommitFailed, RetriableCommitFailed, TimedOut
from tests.support.member_driver import ME, Driver, commands_of_type, offsets, sent_requests, tp


def stable_member(strategies: str = "range", **settings: object) -> Driver:
    member = Driver(strategies, **settings)  # type: ignore[arg-type]
    member.settle("t0-0", "t0-1")
    member.end_poll()
    member.heard()
    return member


def test_commit_revoke_leave() -> None:
    member = stable_member(auto_commit=True)
    member.consumed = offsets(t0_0=3)
    member.give(CloseRequested())
    assert dict(member.sent(OffsetCommit).offsets) == offsets(t0_0=3)
    assert member.heard() == []
    commands = member.answer_commit()
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t0-0", "t0-1"))]
    assert SetAssignment((), 1) in commands
    assert member.sent(LeaveGroup).members[0].member_id == ME
    assert FinishClose() not in commands
    assert member.answer(LeaveGroup, LeaveGroupResult())[-1] == FinishClose()
    assert member.state is MemberState.LEFT


def test_afterwards_nothing_is_wanted() -> None:
    member = stable_member()
    member.give(CloseRequested())
    member.answer(LeaveGroup, LeaveGroupResult())
    for event in (PollBegan(), CloseRequested(), ListenerReturned(1)):
        assert member.give(event) == []


def test_a_leave_that_fails_is_an_end_too() -> None:
    member = stable_member()
    member.give(CloseRequested())
    assert FinishClose() in member.fail(LeaveGroup)


def test_without_a_group_there_is_nothing_to_say() -> None:
    for member in (Driver(), Driver(topics=())):
        assert member.give(CloseRequested())[-1] == FinishClose()


def test_without_a_coordinator_and_without_time_it_ends_at_once() -> None:
    member = stable_member(auto_commit=True)
    member.consumed = offsets(t0_0=3)
    member.beat(Code.NOT_COORDINATOR)
    commands = member.give(CloseRequested())
    assert FinishClose() in commands
    assert sent_requests(commands) == []
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t0-0", "t0-1"))]


def test_with_time_it_looks_for_the_coordinator() -> None:
    member = stable_member(auto_commit=True)
    member.consumed = offsets(t0_0=3)
    member.beat(Code.NOT_COORDINATOR)
    member.give(CloseRequested(member.now + 30_000))
    member.give(CoordinatorNotFound())
    assert FindCoordinator() in member.pass_time(200)
    member.found()
    member.answer_commit()
    assert FinishClose() in member.answer(LeaveGroup, LeaveGroupResult())


def test_with_time_it_tries_the_commit_again_but_not_for_ever() -> None:
    member = stable_member(auto_commit=True)
    member.consumed = offsets(t0_0=3)
    member.give(CloseRequested(member.now + 500))
    member.answer_commit(Code.COORDINATOR_LOAD_IN_PROGRESS)
    member.pass_time(100)
    assert member.in_flight(OffsetCommit)
    commands = member.pass_time(400)
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t0-0", "t0-1"))]
    assert FinishClose() in commands


def test_a_leave_without_an_answer_is_waited_for_no_longer_than_the_application_waits() -> None:
    member = stable_member()
    member.give(CloseRequested(member.now + 500))
    assert FinishClose() in member.pass_time(500)
    assert not member.timers


def test_a_commit_that_fails_for_good_is_noted() -> None:
    member = stable_member(auto_commit=True)
    member.consumed = offsets(t0_0=3)
    member.give(CloseRequested())
    commands = member.answer_commit(Code.GROUP_AUTHORIZATION_FAILED)
    assert any("commit" in note.text for note in commands_of_type(MemberNote, commands))
    assert member.in_flight(LeaveGroup)


def test_callbacks_run_before_the_end() -> None:
    member = stable_member()
    member.commit(1, offsets(t0_0=1))
    member.commit(2, offsets(t0_0=2))
    member.answer_commit()
    commands = member.give(CloseRequested())
    assert commands_of_type(RunCommitCallback, commands) == [RunCommitCallback(2, offsets(t0_0=2))]
    assert FinishClose() not in member.answer(LeaveGroup, LeaveGroupResult())
    commands = member.answer_commit()
    assert commands_of_type(RunCommitCallback, commands) == [RunCommitCallback(1, offsets(t0_0=1))]
    assert commands[-1] == FinishClose()


def test_commits_that_are_not_done_in_time_have_failed() -> None:
    member = stable_member()
    member.commit(1, offsets(t0_0=1))
    member.commit(2, offsets(t0_0=1), wait=60_000)
    member.give(CloseRequested(member.now + 500))
    commands = member.pass_time(500)
    (callback,) = commands_of_type(RunCommitCallback, commands)
    (returned,) = commands_of_type(FinishSyncCommit, commands)
    assert isinstance(callback.error, TimedOut)
    assert isinstance(returned.error, TimedOut)
    assert commands[-1] == FinishClose()


def test_commits_that_wait_for_a_coordinator_have_failed() -> None:
    member = Driver(topics=())
    member.commit(1, offsets(t0_0=1))
    commands = member.give(CloseRequested())
    (callback,) = commands_of_type(RunCommitCallback, commands)
    assert isinstance(callback.error, RetriableCommitFailed)
    assert commands[-1] == FinishClose()


def test_commits_that_wait_for_a_coordinator_go_out_before_the_member_leaves() -> None:
    member = stable_member()
    member.pass_time(3_000)
    member.fail(Heartbeat)
    member.commit(1, offsets(t0_0=1))
    commands = member.give(CloseRequested(member.now + 30_000))
    assert not commands_of_type(CallListener, commands)
    commands = member.found()
    assert [type(request) for request in sent_requests(commands)][-2:] == [OffsetCommit, LeaveGroup]
    member.answer_commit()
    assert RunCommitCallback(1, offsets(t0_0=1)) in member.log + member.answer(
        LeaveGroup, LeaveGroupResult()
    )


def test_if_there_is_none_they_have_failed_and_the_member_goes() -> None:
    member = stable_member()
    member.pass_time(3_000)
    member.fail(Heartbeat)
    member.commit(1, offsets(t0_0=1))
    member.give(CloseRequested(member.now + 30_000))
    commands = member.give(CoordinatorNotFound())
    (callback,) = commands_of_type(RunCommitCallback, commands)
    assert isinstance(callback.error, RetriableCommitFailed)
    assert commands[-1] == FinishClose()


def test_nor_do_they_wait_longer_than_the_application() -> None:
    member = stable_member()
    member.pass_time(3_000)
    member.fail(Heartbeat)
    member.commit(1, offsets(t0_0=1))
    member.give(CloseRequested(member.now + 500))
    assert FinishClose() in member.pass_time(500)


def test_a_commit_to_be_tried_again_is_not_sent_by_one_who_left() -> None:
    member = stable_member()
    member.commit(1, offsets(t0_0=1), wait=60_000)
    member.answer_commit(Code.COORDINATOR_LOAD_IN_PROGRESS)
    member.give(CloseRequested(member.now + 30_000))
    member.answer(LeaveGroup, LeaveGroupResult())
    (returned,) = commands_of_type(FinishSyncCommit, member.pass_time(100))
    assert isinstance(returned.error, CommitFailed)
    assert member.log[-1] == FinishClose()


def test_in_the_middle_of_a_rebalance_what_was_kept_is_lost() -> None:
    member = stable_member("cooperative-sticky")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    member.give(CloseRequested())
    assert member.heard() == [(ListenerMethod.LOST, tp("t0-0", "t0-1"))]
    assert member.sent(LeaveGroup).members[0].member_id == ME
    member.answer_join(2)
    assert member.state is MemberState.LEFT


def test_a_first_join_has_no_id_to_leave_with() -> None:
    member = Driver()
    member.poll()
    member.found()
    assert FinishClose() in member.give(CloseRequested())
    assert not member.in_flight(LeaveGroup)


@pytest.mark.parametrize("waits", [None, 1_000])
def test_a_fenced_member_only_ends(waits: int | None) -> None:
    member = stable_member(group_instance_id="s")
    member.beat(Code.FENCED_INSTANCE_ID)
    until = None if waits is None else member.now + waits
    commands = member.give(CloseRequested(until))
    assert member.heard() == [(ListenerMethod.LOST, tp("t0-0", "t0-1"))]
    assert FinishClose() in commands
    assert sent_requests(commands) == []


def test_a_listener_that_raises_is_told_before_the_end() -> None:
    member = stable_member()
    member.answers_listener = False
    member.give(CloseRequested())
    error = RuntimeError("oops")
    member.give(ListenerReturned(member.calls.pop().call_id, error))
    commands = member.answer(LeaveGroup, LeaveGroupResult())
    assert [one for one in commands if isinstance(one, RaiseError | FinishClose)] == [
        RaiseError(error),
        FinishClose(),
    ]


def test_a_listener_at_work_returns_first() -> None:
    member = stable_member("cooperative-sticky")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    member.answer_join(2)
    member.answers_listener = False
    member.answer_sync("t0-0")
    assert [call.method for call in member.calls] == [ListenerMethod.REVOKED]
    assert not commands_of_type(FinishClose, member.give(CloseRequested()))
    member.answers_listener = True
    member.give(ListenerReturned(member.calls.pop().call_id))
    assert member.heard() == [(ListenerMethod.ASSIGNED, ()), (ListenerMethod.REVOKED, tp("t0-0"))]
    assert member.in_flight(LeaveGroup)
    assert not member.in_flight(JoinGroup)


def test_a_rebalance_that_waits_for_its_commit_is_given_up() -> None:
    member = stable_member(auto_commit=True)
    member.consumed = offsets(t0_0=3)
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    assert MemberTimer.DEADLINE in member.timers
    member.give(CloseRequested())
    member.answer_commit()
    member.answer_commit()
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t0-0", "t0-1"))]
    assert not member.in_flight(JoinGroup)
    assert FinishClose() in member.answer(LeaveGroup, LeaveGroupResult())


def test_what_was_never_told_is_noted() -> None:
    member = Driver()
    member.poll()
    member.found()
    member.end_poll()
    member.refuse_join(Code.GROUP_MAX_SIZE_REACHED)
    commands = member.give(CloseRequested())
    assert any(
        "GROUP_MAX_SIZE_REACHED" in note.text for note in commands_of_type(MemberNote, commands)
    )
