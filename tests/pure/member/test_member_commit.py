"""Commits: synchronous, asynchronous, automatic; what is told, when, and in which order."""

from __future__ import annotations

import pytest

from rota.engine.member.events import (
    CallInterceptors,
    CoordinatorNotFound,
    FindCoordinator,
    FinishSyncCommit,
    MemberCommand,
    MemberTimer,
    ResponseReceived,
    RunCommitCallback,
)
from rota.engine.member.state import MemberState
from rota.engine.model.request import JoinGroup, OffsetCommit
from rota.engine.model.response import OffsetCommitResult
from rota.errors import (
    Code,
    CommitFailed,
    Fenced,
    GroupError,
    RebalanceInProgress,
    RetriableCommitFailed,
    TimedOut,
)
from tests.support.member_driver import ME, Driver, commands_of_type, offsets, tp

A, B, C = offsets(t0_0=5), offsets(t0_0=6), offsets(t0_0=7)


def stable_member(strategies: str = "range", **settings: object) -> Driver:
    """Stable with two partitions, outside a poll."""
    member = Driver(strategies, **settings)  # type: ignore[arg-type]
    member.settle("t0-0", "t0-1")
    member.end_poll()
    member.heard()
    return member


def ended_commits(commands: list[MemberCommand]) -> list[MemberCommand]:
    """Callbacks and returns, in their order."""
    return [one for one in commands if isinstance(one, RunCommitCallback | FinishSyncCommit)]


def commit_request_numbers(member: Driver) -> list[int]:
    return [number for number, _ in member.in_flight(OffsetCommit)]


# The request


def test_a_commit_carries_who_the_member_is() -> None:
    member = stable_member(group_instance_id="s")
    member.commit(1, A)
    sent = member.sent(OffsetCommit)
    assert (sent.group, sent.generation, sent.member_id) == ("g", 1, ME)
    assert (sent.group_instance_id, dict(sent.offsets)) == ("s", A)


def test_without_offsets_what_was_handed_out_is_committed() -> None:
    member = stable_member()
    member.consumed = offsets(t0_0=3, t0_1=9)
    member.commit(1)
    assert dict(member.sent(OffsetCommit).offsets) == offsets(t0_0=3, t0_1=9)


def test_one_that_only_assigns_commits_as_nobody() -> None:
    member = Driver(topics=(), group_instance_id="s")
    member.commit(1, A)
    member.found()
    sent = member.sent(OffsetCommit)
    assert (sent.generation, sent.member_id, sent.group_instance_id) == (-1, "", None)


# Synchronous


def test_a_synchronous_commit_returns_when_it_is_stored() -> None:
    member = stable_member()
    assert ended_commits(member.commit(1, A, wait=1_000)) == []
    commands = member.answer_commit()
    assert CallInterceptors(A) in commands
    assert ended_commits(commands) == [FinishSyncCommit(1)]
    assert MemberTimer.SYNC_COMMIT not in member.timers


def test_it_is_tried_again_with_growing_pauses() -> None:
    member = stable_member()
    member.commit(1, A, wait=60_000)
    pauses = []
    for _ in range(6):
        member.answer_commit(Code.COORDINATOR_LOAD_IN_PROGRESS)
        pauses.append(member.timers[MemberTimer.SYNC_COMMIT] - member.now)
        member.pass_time(pauses[-1])
    assert pauses == [100, 200, 400, 800, 1_000, 1_000]
    assert ended_commits(member.answer_commit()) == [FinishSyncCommit(1)]


def test_a_failed_request_is_tried_again_with_the_next_coordinator() -> None:
    member = stable_member()
    member.commit(1, A, wait=60_000)
    assert FindCoordinator() in member.fail(OffsetCommit)
    member.pass_time(100)
    assert not commit_request_numbers(member)
    member.found()
    assert ended_commits(member.answer_commit()) == [FinishSyncCommit(1)]


def test_its_time_is_over() -> None:
    member = stable_member()
    member.commit(1, A, wait=500)
    member.answer_commit(Code.COORDINATOR_LOAD_IN_PROGRESS)
    (done,) = commands_of_type(FinishSyncCommit, member.pass_time(500))
    assert isinstance(done.error, TimedOut)
    assert "LOAD_IN_PROGRESS" in str(done.error), "the last reason is told"
    late = dict.fromkeys(A, Code.NONE)
    assert (
        member.give(
            ResponseReceived(commit_request_numbers(member)[-1], OffsetCommitResult(codes=late))
        )
        == []
    )


def test_it_waits_for_a_coordinator_no_longer_than_it_may() -> None:
    member = Driver(topics=())
    member.commit(1, A, wait=500)
    for _ in range(2):
        member.give(CoordinatorNotFound(why="kafka.example:9092: the connection is refused"))
        member.pass_time(200)
    (done,) = commands_of_type(FinishSyncCommit, member.pass_time(200))
    assert isinstance(done.error, TimedOut)
    assert "coordinator was not found" in str(done.error)
    assert "kafka.example:9092" in str(done.error)


def test_of_nothing_it_returns_at_once() -> None:
    member = stable_member()
    assert ended_commits(member.commit(1, {}, wait=1_000)) == [FinishSyncCommit(1)]
    assert not commit_request_numbers(member)


def test_two_at_a_time_do_not_disturb_each_other() -> None:
    member = stable_member()
    member.commit(1, A, wait=300)
    member.commit(2, B, wait=60_000)
    first, second = commit_request_numbers(member)
    assert ended_commits(member.answer_commit(number=second)) == [FinishSyncCommit(2)]
    assert [one.commit_id for one in commands_of_type(FinishSyncCommit, member.pass_time(300))] == [
        1
    ]
    assert first < second


# Asynchronous


def test_callbacks_run_when_the_application_comes_by() -> None:
    member = stable_member()
    member.commit(1, A)
    assert ended_commits(member.answer_commit()) == []
    assert ended_commits(member.poll()) == [RunCommitCallback(1, A)]
    assert ended_commits(member.poll()) == []


def test_one_that_is_inside_a_poll_need_not_wait_for_the_next() -> None:
    member = stable_member()
    member.poll()
    member.commit(1, A)
    assert ended_commits(member.answer_commit()) == [RunCommitCallback(1, A)]


def test_the_next_commit_is_an_occasion_too() -> None:
    member = stable_member()
    member.commit(1, A)
    member.answer_commit()
    assert ended_commits(member.commit(2, B)) == [RunCommitCallback(1, A)]


def test_callbacks_run_in_the_order_of_completion() -> None:
    member = stable_member()
    for commit_id, committed in ((1, A), (2, B), (3, C)):
        member.commit(commit_id, committed)
    first, second, third = commit_request_numbers(member)
    for number in (second, third, first):
        member.answer_commit(number=number)
    assert [one.commit_id for one in commands_of_type(RunCommitCallback, member.poll())] == [
        2,
        3,
        1,
    ]


def test_interceptors_hear_of_a_success_at_once() -> None:
    member = stable_member()
    member.commit(1, A)
    assert commands_of_type(CallInterceptors, member.answer_commit()) == [CallInterceptors(A)]
    member.commit(2, B)
    assert commands_of_type(CallInterceptors, member.answer_commit(Code.UNKNOWN)) == []


def test_a_failure_that_may_pass_is_told_and_not_tried_again() -> None:
    member = stable_member()
    member.commit(1, A)
    member.fail(OffsetCommit)
    member.found()
    member.pass_time(2_000)
    assert not commit_request_numbers(member)
    (done,) = commands_of_type(RunCommitCallback, member.poll())
    assert isinstance(done.error, RetriableCommitFailed)


def test_a_commit_waits_for_one_search_for_the_coordinator() -> None:
    member = Driver(topics=())
    member.commit(1, A)
    assert commands_of_type(FindCoordinator, member.log) == [FindCoordinator()]
    member.found()
    assert len(commit_request_numbers(member)) == 1

    member = Driver(topics=())
    member.commit(1, A)
    member.give(CoordinatorNotFound())
    (done,) = commands_of_type(RunCommitCallback, member.poll())
    assert isinstance(done.error, RetriableCommitFailed)
    member.pass_time(5_000)
    assert len(commands_of_type(FindCoordinator, member.log)) == 1


def test_of_nothing_it_succeeds() -> None:
    member = stable_member()
    member.commit(1, {})
    assert ended_commits(member.poll()) == [RunCommitCallback(1, {})]


def test_callbacks_run_before_a_synchronous_commit_returns() -> None:
    member = stable_member()
    member.commit(1, A)
    member.commit(2, B)
    member.commit(3, C, wait=60_000)
    one, two, three = commit_request_numbers(member)
    assert ended_commits(member.answer_commit(number=two)) == []
    assert ended_commits(member.answer_commit(number=three)) == [], (
        "the first one is still under way"
    )
    commands = ended_commits(member.answer_commit(number=one))
    assert commands == [RunCommitCallback(2, B), RunCommitCallback(1, A), FinishSyncCommit(3)]


def test_a_synchronous_commit_of_nothing_waits_for_those_before_it() -> None:
    member = stable_member()
    member.commit(1, A)
    assert ended_commits(member.commit(2, {}, wait=1_000)) == []
    assert ended_commits(member.answer_commit()) == [RunCommitCallback(1, A), FinishSyncCommit(2)]


def test_it_does_not_wait_for_those_after_it() -> None:
    member = stable_member()
    member.commit(1, A, wait=1_000)
    member.commit(2, B)
    assert ended_commits(member.answer_commit(number=commit_request_numbers(member)[0])) == [
        FinishSyncCommit(1)
    ]


def test_nor_longer_than_it_may() -> None:
    member = stable_member()
    member.commit(1, A)
    member.commit(2, B, wait=1_000)
    member.answer_commit()
    assert ended_commits(member.pass_time(1_000)) == [FinishSyncCommit(2)], (
        "it is stored, after all"
    )


# Between generations


def test_an_unjoined_member_cannot_commit() -> None:
    member = Driver()
    (done,) = commands_of_type(FinishSyncCommit, member.commit(1, A, wait=1_000))
    assert isinstance(done.error, CommitFailed)


def test_a_member_that_rebalances_is_asked_to_poll_first() -> None:
    member = stable_member("cooperative-sticky")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    (done,) = commands_of_type(FinishSyncCommit, member.commit(1, A, wait=1_000))
    assert isinstance(done.error, RebalanceInProgress)
    member.answer_join(2)
    (done,) = commands_of_type(FinishSyncCommit, member.commit(2, A, wait=1_000))
    assert isinstance(done.error, RebalanceInProgress)


def test_a_fenced_member_cannot_commit() -> None:
    member = stable_member(group_instance_id="s")
    member.beat(Code.FENCED_INSTANCE_ID)
    (done,) = commands_of_type(FinishSyncCommit, member.commit(1, A, wait=1_000))
    assert isinstance(done.error, Fenced)


def test_a_commit_that_is_fenced_ends_the_member() -> None:
    member = stable_member(group_instance_id="s")
    member.commit(1, A, wait=1_000)
    (done,) = commands_of_type(FinishSyncCommit, member.answer_commit(Code.FENCED_INSTANCE_ID))
    assert isinstance(done.error, Fenced)
    assert member.state is MemberState.FENCED


def test_a_commit_waiting_for_its_next_try_hears_of_the_fence() -> None:
    member = stable_member(group_instance_id="s")
    member.pass_time(3_000)
    member.commit(1, A, wait=60_000)
    member.answer_commit(Code.COORDINATOR_LOAD_IN_PROGRESS)
    member.beat_answered(Code.FENCED_INSTANCE_ID)
    (done,) = commands_of_type(FinishSyncCommit, member.pass_time(100))
    assert isinstance(done.error, Fenced)


@pytest.mark.parametrize("code", [Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID])
def test_an_answer_overtaken_by_a_rebalance_does_not_harm_it(code: Code) -> None:
    member = stable_member("cooperative-sticky")
    member.commit(1, A)
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    member.answer_join(2)
    member.answer_sync("t0-0", "t0-1")
    (done,) = commands_of_type(RunCommitCallback, member.answer_commit(code))
    member.end_poll()
    assert (member.state, member.machine.generation) == (MemberState.STABLE, 2)
    member.poll()
    assert isinstance(done.error, CommitFailed)
    assert not member.in_flight(JoinGroup)


@pytest.mark.parametrize("code", [Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID])
def test_an_answer_while_joining_leaves_the_verdict_to_the_join(code: Code) -> None:
    member = stable_member("cooperative-sticky")
    member.commit(1, A, wait=60_000)
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    (done,) = commands_of_type(FinishSyncCommit, member.answer_commit(code))
    assert isinstance(done.error, RebalanceInProgress)
    member.answer_join(2)
    assert member.state is MemberState.SYNCING


def test_a_commit_met_by_a_rebalance_makes_the_member_join() -> None:
    member = stable_member()
    member.commit(1, A, wait=1_000)
    (done,) = commands_of_type(FinishSyncCommit, member.answer_commit(Code.REBALANCE_IN_PROGRESS))
    assert isinstance(done.error, RebalanceInProgress)
    assert member.state is MemberState.STABLE
    member.poll()
    assert member.sent(JoinGroup).member_id == ME


def test_a_commit_retried_in_the_next_generation_says_so() -> None:
    member = stable_member("cooperative-sticky")
    member.commit(1, A, wait=60_000)
    member.answer_commit(Code.COORDINATOR_LOAD_IN_PROGRESS)
    member.beat_at_once(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    member.answer_join(2)
    member.answer_sync("t0-0", "t0-1")
    member.pass_time(100)
    assert member.sent(OffsetCommit).generation == 2


def test_the_first_partition_that_is_refused_decides() -> None:
    member = stable_member()
    member.commit(1, offsets(t0_0=1, t0_1=2), wait=1_000)
    codes = dict(zip(tp("t0-0", "t0-1"), (Code.NONE, Code.OFFSET_METADATA_TOO_LARGE), strict=True))
    commands = member.give(
        ResponseReceived(commit_request_numbers(member)[0], OffsetCommitResult(codes=codes))
    )
    (done,) = commands_of_type(FinishSyncCommit, commands)
    assert isinstance(done.error, GroupError)
    assert "t0-1" in str(done.error)


def test_topics_that_may_not_be_committed_for_are_named_together() -> None:
    member = stable_member()
    member.commit(1, offsets(t0_0=1, t1_0=2), wait=1_000)
    commands = member.answer_commit(Code.TOPIC_AUTHORIZATION_FAILED)
    (done,) = commands_of_type(FinishSyncCommit, commands)
    assert "t0, t1" in str(done.error)
