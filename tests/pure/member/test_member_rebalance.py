"""A member's way through its group: joins, syncs, listener calls, in Kafka's order."""

from __future__ import annotations

import pytest

from rota.engine.formats import consumer_protocol
from rota.engine.member.events import (
    CloseRequested,
    CommandBuffer,
    FindCoordinator,
    FinishClose,
    ListenerMethod,
    MemberTimer,
    RejoinRequested,
    SetAssignment,
    Subscribed,
    Unsubscribed,
)
from rota.engine.member.state import MemberIdentity, MemberSession, MemberState
from rota.engine.model.config import MemberConfig
from rota.engine.model.request import Heartbeat, JoinGroup, LeaveGroup, SyncGroup, truncate_reason
from rota.engine.model.response import JoinGroupResult, LeaveGroupResult, SyncGroupResult
from rota.errors import Code
from tests.support.member_driver import (
    ME,
    OTHER,
    Driver,
    commands_of_type,
    encode_subscription,
    offsets,
    sent_requests,
    tp,
)


def test_nothing_happens_before_the_application_polls() -> None:
    member = Driver()
    assert not commands_of_type(FindCoordinator, member.log)
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
    member.answer_join(leader=ME, members={ME: encode_subscription(), OTHER: encode_subscription()})
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
    assert sent_requests(commands) == []


def test_a_static_leader_that_is_back_keeps_the_assignment() -> None:
    member = Driver(group_instance_id="s")
    member.poll()
    member.found()
    member.answer_join(
        5,
        leader=ME,
        members={ME: encode_subscription(), OTHER: encode_subscription()},
        skip_assignment=True,
    )
    assert member.sent(SyncGroup).assignments == ()
    member.answer_sync("t0-0", "t0-1")
    member.change(t0=5, t1=4)
    assert member.state is MemberState.JOINING


def test_heartbeats_carry_the_generation() -> None:
    member = Driver()
    member.settle("t0-0", generation=4)
    member.pass_time(3_000)
    assert (member.sent(Heartbeat).generation, member.sent(Heartbeat).member_id) == (4, ME)


# The reasons of KIP-800, in Java's words


def stable_member() -> Driver:
    member = Driver()
    member.settle("t0-0")
    member.end_poll()
    return member


def test_a_new_member_sends_no_reason_and_then_names_its_id() -> None:
    member = Driver()
    member.poll()
    member.found()
    assert member.sent(JoinGroup).reason == ""
    member.answer(JoinGroup, JoinGroupResult(code=Code.MEMBER_ID_REQUIRED, member_id=ME))
    assert member.sent(JoinGroup).reason == f"need to re-join with the given member-id: {ME}"


@pytest.mark.parametrize(
    ("code", "exception"),
    [
        (Code.UNKNOWN_MEMBER_ID, "UnknownMemberId"),
        (Code.REBALANCE_IN_PROGRESS, "RebalanceInProgress"),
        (Code.NOT_COORDINATOR, "NotCoordinator"),
        (Code.GROUP_AUTHORIZATION_FAILED, "GroupAuthorization"),
        (Code.GROUP_MAX_SIZE_REACHED, "GroupMaxSizeReached"),
        (Code.ILLEGAL_GENERATION, "Kafka"),
        (Code.INVALID_REQUEST, "Kafka"),
        (Code.UNKNOWN, "Kafka"),
    ],
)
def test_after_a_refused_join_the_reason_names_the_exception_of_java(
    code: Code, exception: str
) -> None:
    member = Driver()
    member.poll()
    member.found()
    member.refuse_join(code)
    member.end_poll()
    member.poll()
    member.pass_time(1_000)
    if FindCoordinator() in member.log[2:]:
        member.found()
    assert member.sent(JoinGroup).reason == f"rebalance failed due to {exception}Exception"


@pytest.mark.parametrize(
    ("code", "exception"),
    [
        (Code.UNKNOWN_MEMBER_ID, "UnknownMemberId"),
        (Code.ILLEGAL_GENERATION, "IllegalGeneration"),
        (Code.NOT_COORDINATOR, "NotCoordinator"),
        (Code.COORDINATOR_LOAD_IN_PROGRESS, "Kafka"),
        (Code.UNKNOWN, "Kafka"),
    ],
)
def test_after_a_refused_sync_the_reason_names_the_exception_of_java(
    code: Code, exception: str
) -> None:
    member = Driver()
    member.poll()
    member.found()
    member.answer_join()
    member.answer(SyncGroup, SyncGroupResult(code=code))
    member.end_poll()
    member.poll()
    member.pass_time(1_000)
    if member.in_flight(JoinGroup) == []:
        member.found()
    assert member.sent(JoinGroup).reason == f"rebalance failed due to {exception}Exception"


def test_after_a_refused_heartbeat_or_commit_the_reason_names_the_response() -> None:
    member = stable_member()
    member.beat(Code.ILLEGAL_GENERATION)
    member.poll()
    assert member.sent(JoinGroup).reason == "encountered ILLEGAL_GENERATION from HEARTBEAT response"
    member = stable_member()
    member.commit(1, offsets(t0_0=1))
    member.answer_commit(Code.UNKNOWN_MEMBER_ID)
    member.poll()
    reason = "encountered UNKNOWN_MEMBER_ID from OFFSET_COMMIT response"
    assert member.sent(JoinGroup).reason == reason


@pytest.mark.parametrize("group_instance_id", [None, "s"])
def test_a_member_that_polled_too_late_joins_with_the_reason_of_a_leave(
    group_instance_id: str | None,
) -> None:
    member = Driver(group_instance_id=group_instance_id)
    member.settle("t0-0")
    member.end_poll()
    member.pass_time(member.config.max_poll_interval, alive=True)
    if group_instance_id is None:
        reason = member.sent(LeaveGroup).members[0].reason
        assert reason == "consumer poll timeout has expired."
    member.poll()
    assert member.sent(JoinGroup).reason == "consumer pro-actively leaving the group"


def test_a_member_that_unsubscribed_joins_with_the_reason_of_a_leave() -> None:
    member = stable_member()
    member.give(Unsubscribed())
    reason = member.sent(LeaveGroup).members[0].reason
    assert reason == "the consumer unsubscribed from all topics"
    member.give(Subscribed(("t1",)))
    member.poll()
    assert member.sent(JoinGroup).reason == "consumer pro-actively leaving the group"


def test_a_reason_is_cut_after_255_utf16_units() -> None:
    member = stable_member()
    member.give(RejoinRequested("x" * 254 + "\N{PARTY POPPER}y"))
    member.poll()
    assert member.sent(JoinGroup).reason == "x" * 254  # half a character is dropped
    assert truncate_reason("x" * 253 + "\N{PARTY POPPER}y") == "x" * 253 + "\N{PARTY POPPER}"
    assert truncate_reason("\u00e4" * 255) == "\u00e4" * 255


def test_the_reason_of_a_leave_is_cut_too() -> None:
    commands = CommandBuffer()
    session = MemberSession(MemberConfig(group="g"), commands, list[Exception]().append)
    session.find_coordinator()
    session.set_coordinator_found()
    session.transition_to(MemberState.JOINING)
    session.enter_generation(MemberIdentity(1, ME, "range"))
    session.leave_group("y" * 300)
    (leave,) = sent_requests(commands.take_commands())
    assert isinstance(leave, LeaveGroup)
    assert leave.members[0].reason == "y" * 255
