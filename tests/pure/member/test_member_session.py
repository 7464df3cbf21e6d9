"""Finding the coordinator, heartbeats, and the deadlines of session and poll."""

from __future__ import annotations

import pytest

from rota.engine.member.events import (
    CommandBuffer,
    CoordinatorFound,
    CoordinatorNotFound,
    FindCoordinator,
    ListenerMethod,
    MemberNote,
    MemberTimer,
    MemberTimerFired,
    SendRequest,
)
from rota.engine.member.member import MemberStateMachine
from rota.engine.member.state import MemberSession, MemberState
from rota.engine.model.config import MemberConfig
from rota.engine.model.request import Heartbeat, JoinGroup, LeaveGroup
from rota.engine.model.response import LeaveGroupResult
from rota.errors import Code, InputError
from tests.support.member_driver import ME, Driver, commands_of_type, sent_requests, tp


def test_a_member_needs_a_strategy() -> None:
    with pytest.raises(InputError, match="partition.assignment.strategy"):
        MemberStateMachine(MemberConfig(group="g"), (), dict)


# The coordinator


def test_the_search_for_the_coordinator_backs_off() -> None:
    member = Driver(retry_backoff=100, retry_backoff_max=1_000)
    member.poll()
    waits = []
    for _ in range(6):
        member.give(CoordinatorNotFound())
        waits.append(member.timers[MemberTimer.RETRY] - member.now)
        assert member.pass_time(waits[-1]) == [FindCoordinator()]
    assert waits == [100, 200, 400, 800, 1_000, 1_000]


def test_a_coordinator_that_nobody_looked_for_is_ignored() -> None:
    member = Driver()
    assert member.give(CoordinatorFound()) == []
    assert member.give(CoordinatorNotFound()) == []
    assert member.poll() == [FindCoordinator()]


def test_the_search_is_not_begun_twice() -> None:
    member = Driver()
    member.poll()
    member.end_poll()
    assert FindCoordinator() not in member.poll()


def test_a_broken_connection_takes_all_requests_with_it() -> None:
    member = Driver()
    member.settle("t0-0")
    member.pass_time(6_000)
    member.commit(1, {}, wait=None)
    first, second = (number for number, _ in member.in_flight(Heartbeat))
    member.fail(Heartbeat)
    assert FindCoordinator() in member.log
    member.found()
    before = len(member.log)
    member.answer(Heartbeat, LeaveGroupResult())  # the other one, late, and not even a heartbeat's
    assert member.log[before:] == []
    assert member.state is MemberState.STABLE
    assert first < second


def test_an_answer_that_does_not_fit_its_request_is_a_broken_connection() -> None:
    member = Driver()
    member.settle("t0-0")
    member.pass_time(3_000)
    assert FindCoordinator() in member.answer(Heartbeat, LeaveGroupResult())


# Heartbeats


def test_a_late_timer_does_not_shift_the_heartbeats() -> None:
    member = Driver()
    member.settle("t0-0")
    member.now = 3_040
    del member.timers[MemberTimer.HEARTBEAT]
    member.give(MemberTimerFired(MemberTimer.HEARTBEAT))
    assert member.timers[MemberTimer.HEARTBEAT] == 6_000


def test_heartbeats_missed_in_a_standstill_are_not_made_up_for() -> None:
    member = Driver()
    member.settle("t0-0")
    member.now = 10_500
    del member.timers[MemberTimer.HEARTBEAT]
    commands = member.give(MemberTimerFired(MemberTimer.HEARTBEAT))
    assert [type(request) for request in sent_requests(commands)] == [Heartbeat]
    assert member.timers[MemberTimer.HEARTBEAT] == 13_500


def test_a_timer_that_was_stopped_may_not_fire() -> None:
    member = Driver()
    assert member.give(MemberTimerFired(MemberTimer.HEARTBEAT)) == []


def test_a_heartbeat_waits_for_the_coordinator_and_then_does_not_wait() -> None:
    member = Driver()
    member.settle("t0-0")
    member.end_poll()
    member.beat(Code.NOT_COORDINATOR)
    member.pass_time(3_000)
    assert not member.in_flight(Heartbeat)
    commands = member.found()
    assert [type(request) for request in sent_requests(commands)] == [Heartbeat]
    assert member.timers[MemberTimer.HEARTBEAT] == member.now + 3_000


def test_failed_heartbeats_back_off_until_one_is_answered() -> None:
    member = Driver()
    member.settle("t0-0")
    waits = []
    for _ in range(3):
        member.beat(Code.UNKNOWN)
        waits.append(member.timers[MemberTimer.HEARTBEAT] - member.now)
    member.beat()
    member.beat(Code.UNKNOWN)
    waits.append(member.timers[MemberTimer.HEARTBEAT] - member.now)
    assert waits == [100, 200, 400, 100]


def test_a_session_without_an_answer_means_another_coordinator() -> None:
    member = Driver()
    member.settle("t0-0")
    member.end_poll()
    commands = member.pass_time(45_000)
    assert FindCoordinator() in commands
    assert member.state is MemberState.STABLE, "the member is not the one to say that it is out"
    member.found()
    assert member.timers[MemberTimer.SESSION] == member.now + 45_000


def test_an_answered_heartbeat_renews_the_session() -> None:
    member = Driver()
    member.settle("t0-0")
    assert FindCoordinator() not in member.pass_time(200_000, alive=True)


def test_heartbeats_go_on_while_a_rebalance_waits_for_the_application() -> None:
    member = Driver()
    member.settle("t0-0")
    member.end_poll()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.beat(Code.REBALANCE_IN_PROGRESS)
    assert not member.in_flight(JoinGroup)
    member.poll()
    assert member.in_flight(JoinGroup)
    assert MemberTimer.HEARTBEAT not in member.timers


# The poll deadline


def poll_too_late(member: Driver) -> None:
    member.settle("t0-0")
    member.end_poll()
    member.heard()
    member.pass_time(member.config.max_poll_interval, alive=True)


def test_a_member_that_is_polled_too_late_leaves() -> None:
    member = Driver()
    poll_too_late(member)
    assert member.sent(LeaveGroup).members[0].member_id == ME
    assert (member.state, member.machine.member_id) == (MemberState.UNJOINED, "")
    assert member.heard() == [], "its listener hears of it when the application polls"
    assert any(
        "max.poll.interval.ms" in note.text for note in commands_of_type(MemberNote, member.log)
    )
    member.poll()
    assert member.heard() == [(ListenerMethod.LOST, tp("t0-0"))]
    assert member.sent(JoinGroup).member_id == ""


def test_a_static_member_that_is_polled_too_late_falls_silent() -> None:
    member = Driver(group_instance_id="s")
    poll_too_late(member)
    sent = len(commands_of_type(SendRequest, member.log))
    member.pass_time(600_000)
    assert len(commands_of_type(SendRequest, member.log)) == sent
    assert not member.in_flight(LeaveGroup)
    member.poll()
    assert member.heard() == [(ListenerMethod.LOST, tp("t0-0"))]
    assert (member.sent(JoinGroup).member_id, member.sent(JoinGroup).group_instance_id) == ("", "s")


def test_polls_in_time_keep_a_member() -> None:
    member = Driver(max_poll_interval=10_000)
    member.settle("t0-0")
    for _ in range(10):
        member.end_poll()
        member.pass_time(9_999, alive=True)
        member.poll()
    assert member.state is MemberState.STABLE


def test_a_long_poll_is_not_late() -> None:
    member = Driver(max_poll_interval=10_000)
    member.settle("t0-0")
    member.pass_time(100_000, alive=True)
    assert member.state is MemberState.STABLE


def test_a_join_under_way_is_left_too_and_its_answer_ignored() -> None:
    member = Driver(max_poll_interval=10_000)
    member.settle("t0-0")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.end_poll()
    member.pass_time(10_000)
    assert member.sent(LeaveGroup).members[0].member_id == ME
    member.answer_join(2)
    assert member.state is MemberState.UNJOINED


def test_a_member_outside_the_group_has_no_deadline() -> None:
    member = Driver(max_poll_interval=10_000)
    member.poll()
    member.end_poll()
    assert sent_requests(member.pass_time(20_000)) == []


def test_pauses_are_spread_but_not_beyond_the_longest() -> None:
    config = MemberConfig(group="g", retry_backoff=100, retry_backoff_max=300)
    session = MemberSession(config, CommandBuffer(), print, spread=lambda pause: pause * 6 // 5)
    assert [session.retry_delay(failures) for failures in range(4)] == [120, 240, 300, 300]
