"""A member's way through its group: joins, syncs, listener calls, in Kafka's order."""

from __future__ import annotations

from rota.engine.formats import consumer_protocol
from rota.engine.member.events import (
    CloseRequested,
    FindCoordinator,
    FinishClose,
    ListenerMethod,
    MemberTimer,
    SetAssignment,
)
from rota.engine.member.state import MemberState
from rota.engine.model.request import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from rota.engine.model.response import JoinGroupResult, LeaveGroupResult
from rota.errors import Code
from tests.support.member_driver import ME, OTHER, Driver, of, requests, told, tp


def test_nothing_happens_before_the_application_polls() -> None:
    member = Driver()
    assert not of(FindCoordinator, member.log)
    assert member.poll() == [FindCoordinator()]
    assert not member.open


def test_a_new_member_joins_with_the_id_it_is_given() -> None:
    member = Driver()
    member.poll()
    member.found()
    assert member.sent(JoinGroup).member_id == ""
    member.answer(JoinGroup, JoinGroupResult(code=Code.MEMBER_ID_REQUIRED, member_id=ME))
    assert member.sent(JoinGroup).member_id == ME
    member.answer_join(generation=7)
    assert (member.state, member.machine.generation) == (MemberState.SYNCING, 7)
    commands = member.answer_sync("t0-0", "t0-1")
    assert member.state is MemberState.STABLE
    assert SetAssignment(tp("t0-0", "t0-1"), 7) in commands
    assert member.heard() == [(ListenerMethod.ASSIGNED, tp("t0-0", "t0-1"))]
    assert member.machine.assignment == tp("t0-0", "t0-1")


def test_the_leader_assigns_for_all() -> None:
    member = Driver()
    member.poll()
    member.found()
    member.answer_join(leader=ME, members={ME: told(), OTHER: told()})
    sent = member.sent(SyncGroup)
    placed = {
        who: consumer_protocol.decode_assignment(data).partitions.by_topic()
        for who, data in sent.assignments
    }
    assert placed == {ME: {"t0": (0, 1)}, OTHER: {"t0": (2, 3)}}


def test_heartbeats_are_exactly_periodic_whatever_the_application_does() -> None:
    member = Driver()
    member.settle("t0-0")
    member.end_poll()
    times = []
    for _ in range(5):
        member.pass_time(member.timers[MemberTimer.HEARTBEAT] - member.now)
        times.append(member.now)
        member.now += 17  # the answer takes its time
        member.beat_answered()
    assert times == [3_000, 6_000, 9_000, 12_000, 15_000]


def test_an_eager_member_gives_all_up_before_it_joins_again() -> None:
    member = Driver("range")
    member.settle("t0-0", "t0-1")
    member.end_poll()
    member.heard()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    assert (member.state, member.heard()) == (MemberState.STABLE, [])
    commands = member.poll()
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t0-0", "t0-1"))]
    assert SetAssignment((), 1) in commands
    assert (
        consumer_protocol.decode_subscription(
            member.sent(JoinGroup).protocols[0].metadata
        ).owned.by_topic()
        == {}
    )
    member.answer_join(2)
    member.answer_sync("t0-1")
    assert member.heard() == [(ListenerMethod.ASSIGNED, tp("t0-1"))]


def test_a_cooperative_member_keeps_what_it_has_and_gives_up_what_moved() -> None:
    member = Driver("cooperative-sticky")
    member.settle("t0-0", "t0-1", "t0-2")
    member.heard()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    joining = member.sent(JoinGroup)
    told_now = consumer_protocol.decode_subscription(joining.protocols[0].metadata)
    assert told_now.owned.by_topic() == {"t0": (0, 1, 2)}
    assert told_now.generation == 1
    assert member.heard() == []
    member.answer_join(2)
    commands = member.answer_sync("t0-0", "t0-1")
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t0-2")), (ListenerMethod.ASSIGNED, ())]
    assert SetAssignment(tp("t0-0", "t0-1"), 2) in commands
    # what it gave up can be given out now: it joins again by itself
    assert member.state is MemberState.JOINING
    member.answer_join(3)
    member.answer_sync("t0-0", "t0-1")
    assert member.heard() == [(ListenerMethod.ASSIGNED, ())]


def test_a_member_that_closes_leaves() -> None:
    member = Driver()
    member.settle("t0-0")
    member.end_poll()
    member.heard()
    member.give(CloseRequested())
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t0-0"))]
    assert member.sent(LeaveGroup).members[0].member_id == ME
    assert member.state is MemberState.LEFT
    assert FinishClose() in member.answer(LeaveGroup, LeaveGroupResult())
    assert not member.timers


def test_a_static_member_does_not_leave() -> None:
    member = Driver(group_instance_id="s")
    member.settle("t0-0")
    member.end_poll()
    commands = member.give(CloseRequested())
    assert FinishClose() in commands
    assert requests(commands) == []


def test_a_static_leader_that_is_back_keeps_the_assignment() -> None:
    member = Driver(group_instance_id="s")
    member.poll()
    member.found()
    member.answer_join(5, leader=ME, members={ME: told(), OTHER: told()}, skip_assignment=True)
    assert member.sent(SyncGroup).assignments == ()
    member.answer_sync("t0-0", "t0-1")
    member.change(t0=5, t1=4)
    assert member.state is MemberState.JOINING


def test_heartbeats_carry_the_generation() -> None:
    member = Driver()
    member.settle("t0-0", generation=4)
    member.pass_time(3_000)
    assert (member.sent(Heartbeat).generation, member.sent(Heartbeat).member_id) == (4, ME)
