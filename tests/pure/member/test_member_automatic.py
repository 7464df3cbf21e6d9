"""Automatic commits: by the interval, and before partitions are given up."""

from __future__ import annotations

import pytest

from rota.engine.member.events import (
    CoordinatorNotFound,
    FindCoordinator,
    FinishSyncCommit,
    ListenerMethod,
    MarkPendingRevocation,
    MemberNote,
    MemberTimer,
    RunCommitCallback,
    SetAssignment,
)
from rota.engine.model.request import JoinGroup, OffsetCommit
from rota.errors import Code
from tests.support.member_driver import Driver, commands_of_type, offsets, sent_requests, tp


def auto_commit_member(strategies: str = "range") -> Driver:
    """Stable with two partitions, outside a poll, with something handed out."""
    member = Driver(strategies, auto_commit=True)
    member.settle("t0-0", "t0-1")
    member.end_poll()
    member.heard()
    member.consumed = offsets(t0_0=1)
    return member


def test_the_interval_ends_and_the_next_poll_commits() -> None:
    member = auto_commit_member()
    member.pass_time(5_000, alive=True)
    assert not member.in_flight(OffsetCommit), "only the application's own poll does it"
    member.poll()
    assert dict(member.sent(OffsetCommit).offsets) == offsets(t0_0=1)
    assert not any(
        isinstance(one, RunCommitCallback | FinishSyncCommit) for one in member.answer_commit()
    )
    commands = member.pass_time(5_000, alive=True)
    assert OffsetCommit in [type(request) for request in sent_requests(commands)]


def test_an_interval_of_zero_lets_time_pass_between_commits() -> None:
    member = Driver(auto_commit=True, auto_commit_interval=0)
    member.settle("t0-0")
    assert member.timers[MemberTimer.COMMIT] == member.now + 1, "or the poll would only commit"


def test_nothing_handed_out_is_nothing_committed() -> None:
    member = auto_commit_member()
    member.consumed = {}
    member.poll()
    member.pass_time(5_000, alive=True)
    assert not member.in_flight(OffsetCommit)


def test_an_automatic_commit_that_fails_is_noted_and_tried_soon() -> None:
    member = auto_commit_member()
    member.poll()
    member.pass_time(5_000, alive=True)
    commands = member.answer_commit(Code.COORDINATOR_LOAD_IN_PROGRESS)
    assert any("automatic commit" in note.text for note in commands_of_type(MemberNote, commands))
    assert member.timers[MemberTimer.COMMIT] == member.now + member.config.retry_backoff


def test_an_automatic_commit_that_fails_for_good_waits_for_its_interval() -> None:
    member = auto_commit_member()
    member.poll()
    member.pass_time(5_000, alive=True)
    commands = member.answer_commit(Code.GROUP_AUTHORIZATION_FAILED)
    assert any("automatic commit" in note.text for note in commands_of_type(MemberNote, commands))
    assert member.timers[MemberTimer.COMMIT] == member.now + 5_000


def test_an_eager_revocation_comes_after_the_commit() -> None:
    member = auto_commit_member()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    commands = member.poll()
    assert MarkPendingRevocation(tp("t0-0", "t0-1")) in commands
    assert member.heard() == []
    assert member.sent(OffsetCommit).generation == 1
    member.answer_commit()
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t0-0", "t0-1"))]
    assert member.in_flight(JoinGroup)


def test_a_commit_before_a_revocation_is_tried_again() -> None:
    member = auto_commit_member()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    member.answer_commit(Code.COORDINATOR_LOAD_IN_PROGRESS)
    assert member.heard() == []
    member.pass_time(100)
    member.answer_commit()
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t0-0", "t0-1"))]


@pytest.mark.parametrize("code", [Code.REBALANCE_IN_PROGRESS, Code.GROUP_AUTHORIZATION_FAILED])
def test_one_that_fails_for_good_does_not_hold_the_rebalance_up(code: Code) -> None:
    member = auto_commit_member()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    commands = member.answer_commit(code)
    assert any(
        "before the revocation" in note.text for note in commands_of_type(MemberNote, commands)
    )
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t0-0", "t0-1"))]


def test_what_is_gone_with_its_topic_is_not_committed_before_a_revocation() -> None:
    """A deleted topic would otherwise hold the rebalance up for max.poll.interval.ms."""
    member = auto_commit_member()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    commands = member.answer_commit(Code.UNKNOWN_TOPIC_OR_PARTITION)
    assert any(
        "no such partition any more" in note.text for note in commands_of_type(MemberNote, commands)
    )
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t0-0", "t0-1"))]
    assert member.in_flight(JoinGroup)


def test_nor_does_one_that_fails_for_as_long_as_a_rebalance_may_take() -> None:
    member = auto_commit_member()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    member.pass_time(member.config.max_poll_interval, alive=True)
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t0-0", "t0-1"))]
    assert member.in_flight(JoinGroup)


def test_the_answer_outside_a_poll_waits_for_one() -> None:
    member = auto_commit_member()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    member.end_poll()
    member.answer_commit()
    assert member.heard() == []
    member.poll()
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t0-0", "t0-1"))]


def test_a_membership_lost_while_committing_makes_the_partitions_lost() -> None:
    member = auto_commit_member()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    member.answer_commit(Code.UNKNOWN_MEMBER_ID)
    assert member.heard() == [(ListenerMethod.LOST, tp("t0-0", "t0-1"))]
    assert member.sent(JoinGroup).member_id == ""


def test_a_search_for_the_coordinator_and_a_commit_wait_together() -> None:
    member = auto_commit_member()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    member.answer_commit(Code.NOT_COORDINATOR)
    assert FindCoordinator() in member.pass_time(100)
    member.give(CoordinatorNotFound())
    assert member.timers[MemberTimer.RETRY] == member.now + 200
    member.pass_time(200)
    member.found()
    member.answer_commit()
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t0-0", "t0-1"))]


def test_a_membership_lost_while_giving_up_makes_everything_lost() -> None:
    member = auto_commit_member("cooperative-sticky")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.poll()
    member.answer_commit()
    member.answer_join(2)
    member.answer_sync("t0-0")
    member.beat(Code.UNKNOWN_MEMBER_ID)
    member.answer_commit(Code.UNKNOWN_MEMBER_ID)
    assert member.heard() == [(ListenerMethod.LOST, tp("t0-0", "t0-1"))]
    assert member.sent(JoinGroup).member_id == ""


def test_a_cooperative_member_commits_before_the_join_and_before_it_gives_up() -> None:
    """Java commits before the join only: what is handed out until the sync would be read twice."""
    member = auto_commit_member("cooperative-sticky")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    commands = member.poll()
    assert not commands_of_type(MarkPendingRevocation, commands), (
        "it goes on reading while it joins"
    )
    member.answer_commit()
    member.consumed = offsets(t0_0=1, t0_1=4)
    member.answer_join(2)
    commands = member.answer_sync("t0-0")
    assert commands_of_type(MarkPendingRevocation, commands) == [MarkPendingRevocation(tp("t0-1"))]
    assert member.sent(OffsetCommit).generation == 2
    assert dict(member.sent(OffsetCommit).offsets) == offsets(t0_0=1, t0_1=4)
    assert member.heard() == []
    commands = member.answer_commit()
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t0-1")), (ListenerMethod.ASSIGNED, ())]
    assert commands_of_type(SetAssignment, commands)[-1] == SetAssignment(tp("t0-0"), 2)
