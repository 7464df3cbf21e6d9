"""The application's listener: one that raises, one that takes long, one that commits."""

from __future__ import annotations

from rota.engine.member.events import (
    CallListener,
    CommitRequested,
    FinishSyncCommit,
    ListenerMethod,
    ListenerReturned,
    MemberCommand,
    MemberTimer,
    RaiseError,
    SetAssignment,
    Subscribed,
)
from rota.engine.member.state import MemberState
from rota.engine.model.request import Heartbeat, JoinGroup, LeaveGroup, OffsetCommit
from rota.errors import Code
from tests.support.member_driver import (
    Driver,
    commands_of_type,
    offsets,
    raised_errors,
    sent_requests,
    tp,
)

OOPS = RuntimeError("oops")


def member_with_slow_listener(strategies: str = "range", **settings: object) -> Driver:
    """Stable with two partitions, and a listener that takes its time from now on."""
    member = Driver(strategies, **settings)  # type: ignore[arg-type]
    member.settle("t0-0", "t0-1")
    member.heard()
    member.answers_listener = False
    return member


def return_from_listener(member: Driver, error: Exception | None = None) -> list[MemberCommand]:
    return member.give(ListenerReturned(member.calls.pop().call_id, error))


def test_nothing_is_called_outside_a_poll() -> None:
    member = member_with_slow_listener("cooperative-sticky")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.end_poll()
    member.answer_join(2)
    member.answer_sync("t0-0")
    assert member.calls == []
    assert (member.state, member.machine.assignment) == (MemberState.STABLE, tp("t0-0", "t0-1"))
    member.poll()
    assert [call.method for call in member.calls] == [ListenerMethod.REVOKED]


def test_the_partitions_are_the_members_until_the_listener_has_returned() -> None:
    member = member_with_slow_listener()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    assert member.machine.assignment == tp("t0-0", "t0-1")
    assert not member.in_flight(JoinGroup)
    commands = return_from_listener(member)
    assert SetAssignment((), 1) in commands
    assert member.in_flight(JoinGroup)


def test_an_eager_listener_hears_of_every_rebalance() -> None:
    member = Driver("range")
    member.settle()
    assert member.heard() == [(ListenerMethod.ASSIGNED, ())]
    member.beat(Code.REBALANCE_IN_PROGRESS)
    assert member.heard() == [(ListenerMethod.REVOKED, ())]


def test_the_first_join_revokes_nothing() -> None:
    for strategies in ("range", "cooperative-sticky"):
        member = Driver(strategies)
        member.settle("t0-0")
        assert member.heard() == [(ListenerMethod.ASSIGNED, tp("t0-0"))]


def test_a_list_with_an_eager_strategy_is_eager() -> None:
    member = Driver("range,cooperative-sticky")
    member.settle("t0-0")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    assert member.heard()[-1] == (ListenerMethod.REVOKED, tp("t0-0"))


def test_partitions_are_named_in_order() -> None:
    member = Driver(topics=("t1", "t0"))
    member.settle("t1-2", "t0-10", "t0-9", "t1-0")
    assert member.heard() == [(ListenerMethod.ASSIGNED, tp("t0-9", "t0-10", "t1-0", "t1-2"))]


def test_one_that_raises_while_revoking_is_told_and_the_member_joins() -> None:
    member = member_with_slow_listener()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    commands = return_from_listener(member, OOPS)
    assert RaiseError(OOPS) in commands
    assert member.state is MemberState.JOINING
    member.end_poll()
    member.answers_listener = True
    member.poll()
    member.answer_join(2)
    member.answer_sync("t0-0")
    assert (member.state, member.machine.assignment) == (MemberState.STABLE, tp("t0-0"))


def test_one_that_raises_cooperatively_is_told_when_the_step_is_complete() -> None:
    member = member_with_slow_listener("cooperative-sticky")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.answer_join(2)
    member.answer_sync("t0-0", "t0-2")
    assert not commands_of_type(RaiseError, return_from_listener(member, OOPS))
    assert [(one.method, one.partitions) for one in member.calls] == [
        (ListenerMethod.ASSIGNED, tp("t0-2"))
    ]
    commands = return_from_listener(member, ValueError("the second is not told"))
    assert commands_of_type(RaiseError, commands) == [RaiseError(OOPS)]
    assert member.machine.assignment == tp("t0-0", "t0-2")
    assert member.state is MemberState.JOINING


def test_one_that_raises_while_losing_is_told_and_the_member_joins_anew() -> None:
    member = member_with_slow_listener()
    member.beat(Code.UNKNOWN_MEMBER_ID)
    assert [call.method for call in member.calls] == [ListenerMethod.LOST]
    assert RaiseError(OOPS) in return_from_listener(member, OOPS)
    assert member.sent(JoinGroup).member_id == ""


def test_errors_are_raised_one_a_poll() -> None:
    member = member_with_slow_listener()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    return_from_listener(member, OOPS)
    member.answer_join(2)
    member.answer_sync("t0-0")
    late = ValueError("late")
    assert not commands_of_type(RaiseError, return_from_listener(member, late))
    member.end_poll()
    assert raised_errors(member.poll()) == [late]


def test_heartbeats_go_on_while_a_listener_is_at_work() -> None:
    member = member_with_slow_listener()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    times = []
    for _ in range(3):
        member.beat()
        times.append(member.now)
    assert times == [6_000, 9_000, 12_000]


def test_one_that_takes_longer_than_a_poll_may_costs_the_membership() -> None:
    member = member_with_slow_listener(max_poll_interval=20_000)
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.pass_time(20_000, alive=True)
    assert (member.state, len(member.in_flight(LeaveGroup))) == (MemberState.UNJOINED, 1)
    return_from_listener(member)
    assert member.sent(JoinGroup).member_id == ""
    assert member.calls == []


def test_an_assignment_lost_while_its_listener_worked_is_told_as_lost() -> None:
    member = member_with_slow_listener("cooperative-sticky", max_poll_interval=20_000)
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.answer_join(2)
    member.answer_sync("t0-0", "t0-2")
    assert [call.method for call in member.calls] == [ListenerMethod.REVOKED]
    member.pass_time(20_000, alive=True)
    assert member.state is MemberState.UNJOINED
    return_from_listener(member)
    heard = [(one.method, one.partitions) for one in member.calls]
    assert heard == [(ListenerMethod.LOST, tp("t0-0"))], "and not as assigned"
    return_from_listener(member)
    assert member.machine.assignment == ()
    assert member.sent(JoinGroup).member_id == ""


def test_one_that_commits_while_revoking_commits_for_the_old_generation() -> None:
    member = member_with_slow_listener()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.give(CommitRequested(1, offsets(t0_0=5), member.now + 1_000))
    assert member.sent(OffsetCommit).generation == 1
    assert commands_of_type(FinishSyncCommit, member.answer_commit()) == [FinishSyncCommit(1)]
    return_from_listener(member)
    assert member.in_flight(JoinGroup)


def test_the_commit_inside_a_cooperative_revocation_is_of_the_new_generation() -> None:
    member = member_with_slow_listener("cooperative-sticky")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.answer_join(2)
    member.answer_sync("t0-0")
    member.commit(1, offsets(t0_1=7), wait=1_000)
    assert member.sent(OffsetCommit).generation == 2


def test_a_poll_that_is_cut_short_while_a_listener_works() -> None:
    member = member_with_slow_listener("cooperative-sticky")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.answer_join(2)
    member.answer_sync("t0-0", "t0-2")
    member.end_poll()
    assert MemberTimer.POLL in member.timers
    return_from_listener(member)
    member.poll()
    assert [call.method for call in member.calls] == [ListenerMethod.ASSIGNED]
    return_from_listener(member)
    assert member.state is MemberState.JOINING


def test_topics_dropped_inside_a_revocation_are_not_taken() -> None:
    member = member_with_slow_listener("cooperative-sticky")
    member.give(Subscribed(("t0", "t1")))
    member.answer_join(2)
    member.answer_sync("t0-0", "t1-0")
    member.give(Subscribed(("t0",)))
    return_from_listener(member)
    assert member.calls == []
    assert member.machine.assignment == tp("t0-0")
    assert member.in_flight(JoinGroup)


def test_a_return_that_nobody_waits_for_is_ignored() -> None:
    member = member_with_slow_listener()
    assert member.give(ListenerReturned(99, OOPS)) == []


def test_heartbeats_tell_of_the_generation_being_revoked() -> None:
    member = member_with_slow_listener()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.pass_time(3_000)
    assert member.sent(Heartbeat).generation == 1
    assert not commands_of_type(CallListener, member.log[-2:])
    assert sent_requests(member.log[-2:]) == [member.sent(Heartbeat)]
