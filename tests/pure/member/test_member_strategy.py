"""A strategy that does not do its duty: it is told, and the group is not left waiting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import pytest

from rota.engine.assignors.interface import Assignor
from rota.engine.assignors.range import RangeAssignor
from rota.engine.member.classic import compute_assignment
from rota.engine.member.events import (
    CloseRequested,
    ComputeAssignment,
    ListenerMethod,
    MemberNote,
    MemberTimer,
)
from rota.engine.member.state import MemberState
from rota.engine.model.member import Assignment, GroupAssignment, RebalanceProtocol, Subscription
from rota.engine.model.request import JoinGroup, LeaveGroup, SyncGroup
from rota.engine.model.response import LeaveGroupResult, SyncGroupResult
from rota.engine.model.topic import Cluster, Partitions
from rota.errors import BrokenRule, Code, FormatError, InputError, StrategyFailed
from tests.support.member_driver import (
    ME,
    OTHER,
    Driver,
    commands_of_type,
    encode_subscription,
    raised_errors,
    sent_requests,
    tp,
)


class Raises(RangeAssignor):
    def assign(self, cluster: Cluster, group: Mapping[str, Subscription]) -> GroupAssignment:
        raise ZeroDivisionError


class Doubles(Assignor):
    name: ClassVar[str] = "doubles"

    def assign(self, cluster: Cluster, group: Mapping[str, Subscription]) -> GroupAssignment:
        everything = Partitions.of({"t0": range(4)})
        return GroupAssignment(dict.fromkeys(group, Assignment(everything)))


class Writes(RangeAssignor):
    """Sends its members text, where bytes travel."""

    def assign(self, cluster: Cluster, group: Mapping[str, Subscription]) -> GroupAssignment:
        given = super().assign(cluster, group)
        text: bytes = "all yours"  # type: ignore[assignment]
        return GroupAssignment(
            {member: Assignment(one.partitions, text) for member, one in given.items()}
        )


class GivesNoData(RangeAssignor):
    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        raise LookupError("no data")


class GivesText(RangeAssignor):
    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        return "no data"  # type: ignore[return-value]


class DislikesItsShare(RangeAssignor):
    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        raise LookupError("too little")


def lead_with(assignor: Assignor, group_instance_id: str | None = None) -> Driver:
    member = Driver([assignor], group_instance_id=group_instance_id)
    member.poll()
    member.found()
    member.answer_join(leader=ME, members={ME: encode_subscription(), OTHER: encode_subscription()})
    return member


@pytest.mark.parametrize("group_instance_id", [None, "s"])
@pytest.mark.parametrize(
    ("assignor", "error"),
    [(Raises(), StrategyFailed), (Doubles(), BrokenRule), (Writes(), BrokenRule)],
    ids=["raises", "doubles", "writes"],
)
def test_the_leader_leaves_and_tells(
    assignor: Assignor, error: type[Exception], group_instance_id: str | None
) -> None:
    member = lead_with(assignor, group_instance_id)
    assert [type(one) for one in raised_errors(member.log)] == [error]
    leaver = member.sent(LeaveGroup).members[0]
    assert (leaver.member_id, leaver.group_instance_id) == (ME, group_instance_id), (
        "or the others would wait"
    )
    assert not member.in_flight(SyncGroup)
    assert member.state is MemberState.UNJOINED


def test_the_rule_is_named() -> None:
    (error,) = raised_errors(lead_with(Doubles()).log)
    assert isinstance(error, BrokenRule)
    assert error.rule == "one-owner"


def test_it_is_tried_again_if_the_application_polls_again() -> None:
    member = lead_with(Raises())
    assert not member.in_flight(JoinGroup)
    member.end_poll()
    member.poll()
    assert member.sent(JoinGroup).member_id == ""


@pytest.mark.parametrize("assignor", [GivesNoData(), GivesText()], ids=["none", "text"])
def test_a_strategy_without_its_user_data_does_not_join(assignor: Assignor) -> None:
    member = Driver([assignor])
    member.poll()
    (error,) = raised_errors(member.found())
    assert isinstance(error, StrategyFailed)
    assert "'range' gave no user data" in str(error)
    member.end_poll()
    assert [type(one) for one in raised_errors(member.poll())] == [StrategyFailed]
    assert not member.open


def test_a_strategy_that_dislikes_its_share_is_told_after_the_rebalance() -> None:
    member = Driver([DislikesItsShare()])
    commands = member.settle("t0-0")
    assert member.heard() == [(ListenerMethod.ASSIGNED, tp("t0-0"))]
    assert [type(one) for one in raised_errors(commands)] == [StrategyFailed]
    assert member.state is MemberState.STABLE


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\3\0\0\0\1"], ids=["none", "short", "cut"])
def test_an_assignment_that_cannot_be_read_is_left(data: bytes) -> None:
    member = Driver()
    member.poll()
    member.found()
    member.answer_join()
    commands = member.answer(SyncGroup, SyncGroupResult(assignment=data))
    assert [type(one) for one in raised_errors(commands)] == [FormatError]
    assert member.sent(LeaveGroup).members[0].member_id == ME
    assert (member.state, member.machine.assignment) == (MemberState.UNJOINED, ())


def test_a_member_whose_subscription_cannot_be_read_is_noted() -> None:
    member = Driver()
    member.poll()
    member.found()
    member.answer_join(leader=ME, members={ME: encode_subscription(), OTHER: b"\0"})
    assert any(OTHER in note.text for note in commands_of_type(MemberNote, member.log))
    assert {who for who, _ in member.sent(SyncGroup).assignments} == {ME, OTHER}


def test_two_strategies_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="two strategies in the list have the name 'range'"):
        Driver([RangeAssignor(), GivesNoData()])


def test_strategies_without_a_protocol_in_common_are_refused() -> None:
    class OnlyCooperative(RangeAssignor):
        name: ClassVar[str] = "only-cooperative"
        protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.COOPERATIVE,)

    with pytest.raises(InputError, match="no rebalance protocol"):
        Driver([RangeAssignor(), OnlyCooperative()])


# A strategy that takes its time


def wait_for_strategy(
    group_instance_id: str | None = None, max_poll_interval: int = 300_000
) -> tuple[Driver, ComputeAssignment]:
    """The member leads, and its strategy is at work."""
    member = Driver(group_instance_id=group_instance_id, max_poll_interval=max_poll_interval)
    member.makes_assignments = False
    member.poll()
    member.found()
    (task,) = commands_of_type(
        ComputeAssignment,
        member.answer_join(
            leader=ME, members={ME: encode_subscription(), OTHER: encode_subscription()}
        ),
    )
    assert not member.in_flight(SyncGroup)
    return member, task


def test_heartbeats_go_on_while_the_strategy_is_at_work() -> None:
    member, task = wait_for_strategy()
    member.pass_time(60_000, alive=True)
    assert (member.state, member.machine.generation) == (MemberState.SYNCING, 1)
    member.give(compute_assignment(task))
    assert [to for to, _ in member.sent(SyncGroup).assignments] == [ME, OTHER]
    member.answer_sync("t0-0", "t0-1")
    assert (member.state, member.machine.assignment) == (MemberState.STABLE, tp("t0-0", "t0-1"))


def test_what_changes_meanwhile_comes_after_it() -> None:
    member, task = wait_for_strategy()
    assert not sent_requests(member.change(t0=5, t1=4))
    member.give(compute_assignment(task))
    commands = member.answer_sync("t0-0", "t0-1")
    (again,) = [one for one in sent_requests(commands) if isinstance(one, JoinGroup)]
    assert again.reason == "cached metadata has changed"


def test_what_it_makes_for_a_generation_that_is_over_is_dropped() -> None:
    member, task = wait_for_strategy()
    commands = member.beat(Code.UNKNOWN_MEMBER_ID)
    (note,) = [one for one in commands_of_type(MemberNote, commands) if "strategy" in one.text]
    assert note.is_warning
    assert note.text == (
        "strategy 'range' ran for 3.0 s, and its result was not used: encountered "
        "UNKNOWN_MEMBER_ID from HEARTBEAT response"
    )
    assert MemberTimer.ASSIGN not in member.timers
    assert not member.give(compute_assignment(task))
    assert member.state is MemberState.JOINING


def test_nor_is_what_it_makes_for_one_who_closes() -> None:
    member, task = wait_for_strategy()
    commands = member.give(CloseRequested(member.now + 1_000))
    assert not [one for one in commands_of_type(MemberNote, commands) if one.is_warning]
    member.answer(LeaveGroup, LeaveGroupResult())
    assert member.state is MemberState.LEFT
    assert not member.give(compute_assignment(task))


def test_what_it_makes_while_there_is_no_coordinator_is_made_anew() -> None:
    member, task = wait_for_strategy()
    member.beat(Code.NOT_COORDINATOR)
    member.give(compute_assignment(task))
    member.pass_time(1_000)
    member.found()
    assert member.state is MemberState.JOINING


@pytest.mark.parametrize("group_instance_id", [None, "mine"])
def test_one_that_takes_longer_than_the_rebalance_may(group_instance_id: str | None) -> None:
    member, task = wait_for_strategy(max_poll_interval=10_000, group_instance_id=group_instance_id)
    commands = member.pass_time(10_000, alive=True)
    (error,) = raised_errors(commands)
    assert isinstance(error, StrategyFailed)
    assert str(error) == (
        "group 'g': strategy 'range' has made no assignment for 10.0 s, and the group waits no "
        "longer than max.poll.interval.ms = 10000. The strategy must be faster, or "
        "max.poll.interval.ms higher"
    )
    assert LeaveGroup in map(type, sent_requests(commands))
    assert member.state is MemberState.UNJOINED
    assert not member.give(compute_assignment(task))
