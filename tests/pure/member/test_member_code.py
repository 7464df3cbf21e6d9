"""What a member does about every code, in the answer to every request."""

from __future__ import annotations

from typing import cast

import pytest

from rota.engine.member.events import (
    CallInterceptors,
    FindCoordinator,
    FinishSyncCommit,
    ListenerMethod,
    MemberNote,
    MemberTimer,
    RunCommitCallback,
    Unsubscribed,
)
from rota.engine.member.state import MemberState
from rota.engine.model.request import (
    DescribeGroups,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    SyncGroup,
)
from rota.engine.model.response import (
    DescribedGroup,
    DescribedMember,
    DescribeGroupsResult,
    HeartbeatResult,
    JoinGroupResult,
    LeaveGroupResult,
    LeavingMemberResult,
    SyncGroupResult,
)
from rota.errors import (
    AuthorizationFailed,
    Code,
    CommitFailed,
    Fenced,
    GroupError,
    InconsistentProtocol,
    RebalanceInProgress,
    RetriableCommitFailed,
    RotaError,
)
from tests.support.member_driver import (
    ME,
    OTHER,
    Driver,
    commands_of_type,
    encode_subscription,
    offsets,
    raised_errors,
    sent_requests,
    tp,
)

#: A code that nobody knows.
ODD = cast(Code, 999)
ALL = (*Code, ODD)
LATER = {Code.COORDINATOR_LOAD_IN_PROGRESS}
ELSEWHERE = {Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR}
NAMED = {Code.NONE, Code.FENCED_INSTANCE_ID, *LATER, *ELSEWHERE}


def joining_member(**settings: object) -> Driver:
    """On its way into the second generation, cooperatively, with two partitions."""
    member = Driver("cooperative-sticky", **settings)  # type: ignore[arg-type]
    member.settle("t0-0", "t0-1")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.heard()
    return member


def syncing_member() -> Driver:
    member = joining_member()
    member.answer_join(2)
    return member


def stable_member() -> Driver:
    member = syncing_member()
    member.answer_sync("t0-0", "t0-1")
    member.heard()
    return member


# Join


def test_join_accepted() -> None:
    member = joining_member()
    member.answer_join(2)
    assert (member.state, member.machine.generation) == (MemberState.SYNCING, 2)


def test_join_needs_the_id() -> None:
    member = joining_member()
    member.answer(JoinGroup, JoinGroupResult(code=Code.MEMBER_ID_REQUIRED, member_id="me-2"))
    assert member.sent(JoinGroup).member_id == "me-2"
    assert member.heard() == []


def test_join_needs_the_id_but_none_comes() -> None:
    member = joining_member()
    commands = member.answer(JoinGroup, JoinGroupResult(code=Code.MEMBER_ID_REQUIRED))
    assert [type(error) for error in raised_errors(commands)] == [GroupError]


def test_join_of_an_unknown_member_starts_anew() -> None:
    member = joining_member()
    member.answer(JoinGroup, JoinGroupResult(code=Code.UNKNOWN_MEMBER_ID))
    assert member.heard() == [(ListenerMethod.LOST, tp("t0-0", "t0-1"))]
    assert member.sent(JoinGroup).member_id == ""
    assert member.moves >= {(MemberState.JOINING, MemberState.UNJOINED)}


def test_join_met_by_another_rebalance_is_sent_again_at_once() -> None:
    member = joining_member()
    member.answer(JoinGroup, JoinGroupResult(code=Code.REBALANCE_IN_PROGRESS))
    assert member.sent(JoinGroup).member_id == ME
    assert member.heard() == []


@pytest.mark.parametrize("code", sorted(LATER | ELSEWHERE))
def test_join_that_may_work_later_is_tried_later(code: Code) -> None:
    member = joining_member()
    commands = member.answer(JoinGroup, JoinGroupResult(code=code))
    assert member.state is MemberState.JOINING
    assert not sent_requests(commands)
    commands = member.pass_time(member.config.retry_backoff)
    if code in ELSEWHERE:
        assert FindCoordinator() in commands
        member.found()
    assert member.sent(JoinGroup).member_id == ME
    assert member.heard() == []


def test_join_of_a_fenced_member_is_its_end() -> None:
    member = joining_member(group_instance_id="s")
    commands = member.answer(JoinGroup, JoinGroupResult(code=Code.FENCED_INSTANCE_ID))
    assert member.state is MemberState.FENCED
    assert member.heard() == [(ListenerMethod.LOST, tp("t0-0", "t0-1"))]
    assert [type(error) for error in raised_errors(commands)] == [Fenced]
    member.end_poll()
    assert [type(error) for error in raised_errors(member.poll())] == [Fenced]
    assert not member.open
    assert not member.timers


FATAL_FOR_JOIN = [
    code
    for code in ALL
    if code
    not in NAMED
    | {
        Code.MEMBER_ID_REQUIRED,
        Code.UNKNOWN_MEMBER_ID,
        Code.REBALANCE_IN_PROGRESS,
        Code.INCONSISTENT_GROUP_PROTOCOL,  # asks first what the group has
    }
]


@pytest.mark.parametrize("code", FATAL_FOR_JOIN)
def test_join_refused_for_good_is_told_and_tried_by_the_next_poll(code: Code) -> None:
    member = joining_member()
    commands = member.answer(JoinGroup, JoinGroupResult(code=code))
    (error,) = raised_errors(commands)
    assert isinstance(error, GroupError | AuthorizationFailed)
    assert isinstance(error, AuthorizationFailed) == (code == Code.GROUP_AUTHORIZATION_FAILED)
    assert error.code == code
    assert not member.open
    assert not sent_requests(member.end_poll())
    assert [type(request) for request in sent_requests(member.poll())] == [JoinGroup]


def unknown_member() -> Driver:
    """A member that has no strategy in common with its group, and asks what that one has."""
    member = Driver("range,cooperative-sticky")
    member.poll()
    member.found()
    assert not raised_errors(
        member.answer(JoinGroup, JoinGroupResult(code=Code.INCONSISTENT_GROUP_PROTOCOL))
    )
    assert [type(request) for request in member.open.values()] == [DescribeGroups]
    return member


def describe_groups_result(**group: object) -> DescribeGroupsResult:
    return DescribeGroupsResult(groups=(DescribedGroup(group="g", **group),))  # type: ignore[arg-type]


def described_member(client_id: str) -> DescribedMember:
    return DescribedMember(
        member_id=f"{client_id}-1",
        group_instance_id=None,
        client_id=client_id,
        client_host="/10.0.0.1",
        metadata=b"",
        assignment=b"",
    )


def test_join_without_a_common_strategy_names_both_sides() -> None:
    member = unknown_member()
    others = (described_member("billing"), described_member("audit"))
    reply = describe_groups_result(
        state="Stable", protocol_type="consumer", protocol="sticky", members=others
    )
    (error,) = raised_errors(member.answer(DescribeGroups, reply))
    assert isinstance(error, InconsistentProtocol)
    assert error.code == Code.INCONSISTENT_GROUP_PROTOCOL
    assert "range, cooperative-sticky" in str(error)
    assert "the group's is sticky, of 2 members (audit, billing)" in str(error)
    assert not sent_requests(member.end_poll())
    assert [type(request) for request in sent_requests(member.poll())] == [JoinGroup]


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (
            describe_groups_result(state="PreparingRebalance", protocol_type="consumer"),
            "PreparingRebalance",
        ),
        (
            describe_groups_result(code=Code.GROUP_AUTHORIZATION_FAILED),
            "GROUP_AUTHORIZATION_FAILED",
        ),
        (
            describe_groups_result(state="Stable", protocol_type="connect", protocol="x"),
            "of type 'connect'",
        ),
        (DescribeGroupsResult(groups=()), "did not say"),
    ],
)
def test_where_the_broker_does_not_tell_the_groups_strategy_that_is_said(
    reply: DescribeGroupsResult, text: str
) -> None:
    (error,) = raised_errors(unknown_member().answer(DescribeGroups, reply))
    assert isinstance(error, InconsistentProtocol)
    assert "range, cooperative-sticky" in str(error)
    assert text in str(error)


def test_a_coordinator_that_goes_meanwhile_does_not_hide_the_error() -> None:
    (error,) = raised_errors(unknown_member().fail(DescribeGroups))
    assert isinstance(error, InconsistentProtocol)
    assert "did not say" in str(error)


def test_no_join_is_tried_while_the_group_is_asked_about() -> None:
    member = unknown_member()
    member.end_poll()
    assert not sent_requests(member.poll())
    assert raised_errors(member.answer(DescribeGroups, describe_groups_result()))


def test_who_unsubscribes_meanwhile_is_told_nothing() -> None:
    member = unknown_member()
    member.give(Unsubscribed())
    assert not raised_errors(member.answer(DescribeGroups, describe_groups_result()))


def test_join_refused_outside_a_poll_is_told_by_the_next_one() -> None:
    member = joining_member()
    member.end_poll()
    assert not raised_errors(
        member.answer(JoinGroup, JoinGroupResult(code=Code.GROUP_MAX_SIZE_REACHED))
    )
    commands = member.poll()
    assert [type(error) for error in raised_errors(commands)] == [GroupError]
    assert not sent_requests(commands)
    member.end_poll()
    assert [type(request) for request in sent_requests(member.poll())] == [JoinGroup]


def test_join_answered_by_a_group_of_another_kind() -> None:
    member = joining_member()
    reply = JoinGroupResult(member_id=ME, generation=2, protocol_type="connect", protocol="range")
    (error,) = raised_errors(member.answer(JoinGroup, reply))
    assert isinstance(error, InconsistentProtocol)
    assert member.state is MemberState.JOINING


def test_join_answered_with_a_strategy_that_the_member_does_not_have() -> None:
    member = joining_member()
    reply = JoinGroupResult(member_id=ME, generation=2, protocol="odd", leader=OTHER)
    (error,) = raised_errors(member.answer(JoinGroup, reply))
    assert isinstance(error, InconsistentProtocol)
    assert member.sent(LeaveGroup).members[0].member_id == ME
    assert member.state is MemberState.UNJOINED


def test_join_answered_without_a_generation() -> None:
    member = joining_member()
    (error,) = raised_errors(
        member.answer(JoinGroup, JoinGroupResult(protocol="cooperative-sticky"))
    )
    assert isinstance(error, GroupError)


def test_join_not_answered() -> None:
    member = joining_member()
    commands = member.fail(JoinGroup)
    assert (member.state, sent_requests(commands)) == (MemberState.JOINING, [])
    assert FindCoordinator() in member.pass_time(100)
    member.found()
    assert member.sent(JoinGroup).member_id == ME


# Sync


def test_sync_accepted() -> None:
    member = syncing_member()
    member.answer_sync("t0-0", "t0-1")
    assert member.state is MemberState.STABLE


def test_sync_overtaken_by_another_rebalance() -> None:
    member = syncing_member()
    member.answer(SyncGroup, SyncGroupResult(code=Code.REBALANCE_IN_PROGRESS))
    assert member.sent(JoinGroup).member_id == ME
    assert member.heard() == []


@pytest.mark.parametrize(
    ("code", "kept"), [(Code.UNKNOWN_MEMBER_ID, ""), (Code.ILLEGAL_GENERATION, ME)]
)
def test_sync_of_one_who_is_not_known(code: Code, kept: str) -> None:
    member = syncing_member()
    member.answer(SyncGroup, SyncGroupResult(code=code))
    assert member.heard() == [(ListenerMethod.LOST, tp("t0-0", "t0-1"))]
    assert member.sent(JoinGroup).member_id == kept


@pytest.mark.parametrize("code", sorted(LATER | ELSEWHERE))
def test_sync_that_may_work_later_is_a_join_later(code: Code) -> None:
    member = syncing_member()
    commands = member.answer(SyncGroup, SyncGroupResult(code=code))
    assert not sent_requests(commands)
    member.pass_time(member.config.retry_backoff)
    if code in ELSEWHERE:
        member.found()
    assert member.sent(JoinGroup).member_id == ME


def test_sync_of_a_fenced_member_is_its_end() -> None:
    member = Driver(group_instance_id="s")
    member.poll()
    member.found()
    member.answer_join()
    commands = member.answer(SyncGroup, SyncGroupResult(code=Code.FENCED_INSTANCE_ID))
    assert [type(error) for error in raised_errors(commands)] == [Fenced]
    assert member.state is MemberState.FENCED


FATAL_FOR_SYNC = [
    code
    for code in ALL
    if code
    not in NAMED | {Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS}
]


@pytest.mark.parametrize("code", FATAL_FOR_SYNC)
def test_sync_refused_for_good_is_told(code: Code) -> None:
    member = syncing_member()
    (error,) = raised_errors(member.answer(SyncGroup, SyncGroupResult(code=code)))
    assert isinstance(error, GroupError | AuthorizationFailed)
    assert error.code == code
    member.end_poll()
    assert [type(request) for request in sent_requests(member.poll())] == [JoinGroup]


@pytest.mark.parametrize(
    "reply", [SyncGroupResult(protocol_type="connect"), SyncGroupResult(protocol="range")], ids=str
)
def test_sync_answered_by_a_group_of_another_kind(reply: SyncGroupResult) -> None:
    member = syncing_member()
    (error,) = raised_errors(member.answer(SyncGroup, reply))
    assert isinstance(error, InconsistentProtocol)


def test_sync_not_answered() -> None:
    member = syncing_member()
    member.fail(SyncGroup)
    assert member.state is MemberState.SYNCING
    member.pass_time(100)
    member.found()
    assert member.sent(JoinGroup).member_id == ME


# Heartbeat


@pytest.mark.parametrize("code", ALL)
def test_heartbeats(code: Code) -> None:
    member = stable_member()
    member.end_poll()
    commands = member.beat(code)
    lost = {Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION}
    if code in lost:
        assert member.state is MemberState.UNJOINED
        assert member.machine.member_id == (ME if code == Code.ILLEGAL_GENERATION else "")
    elif code == Code.FENCED_INSTANCE_ID:
        assert member.state is MemberState.FENCED
    else:
        assert member.state is MemberState.STABLE
    assert (FindCoordinator() in commands) == (code in ELSEWHERE)
    assert not raised_errors(commands), "outside a poll nothing is raised"
    joins = [type(request) for request in sent_requests(member.poll())]
    assert (joins == [JoinGroup]) == (code in {*lost, Code.REBALANCE_IN_PROGRESS})


@pytest.mark.parametrize(
    "code", [code for code in ALL if code not in NAMED | {Code.REBALANCE_IN_PROGRESS}]
)
def test_a_heartbeat_that_was_refused_is_tried_sooner(code: Code) -> None:
    member = stable_member()
    member.end_poll()
    member.beat(code)
    if member.state is MemberState.STABLE:
        assert member.timers[MemberTimer.HEARTBEAT] == member.now + member.config.retry_backoff


@pytest.mark.parametrize(
    "code",
    [
        Code.UNKNOWN_MEMBER_ID,
        Code.ILLEGAL_GENERATION,
        Code.FENCED_INSTANCE_ID,
        Code.REBALANCE_IN_PROGRESS,
    ],
)
def test_an_answer_to_a_heartbeat_of_another_generation_counts_for_nothing(code: Code) -> None:
    member = stable_member()
    member.pass_time(3_000)
    number, _ = member.in_flight(Heartbeat)[-1]
    heartbeat = member.open.pop(number)
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.answer_join(3)
    member.answer_sync("t0-0", "t0-1")
    member.open[number] = heartbeat
    member.open = {number: heartbeat}
    commands = member.answer(Heartbeat, HeartbeatResult(code=code))
    assert (member.state, member.machine.generation) == (MemberState.STABLE, 3)
    assert not sent_requests(commands)


@pytest.mark.parametrize("code", [Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION])
def test_while_joining_the_join_decides(code: Code) -> None:
    member = stable_member()
    member.pass_time(3_000)
    waiting = dict(member.open)
    member.open.clear()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    assert member.state is MemberState.JOINING
    member.open |= waiting
    commands = member.answer(Heartbeat, HeartbeatResult(code=code))
    assert (sent_requests(commands), member.heard()) == ([], [])
    member.answer_join(3)
    assert (member.state, member.machine.generation) == (MemberState.SYNCING, 3)


# Leave


@pytest.mark.parametrize("code", [code for code in ALL if code is not Code.NONE])
def test_a_leave_that_was_refused_is_noted(code: Code) -> None:
    member = stable_member()
    member.end_poll()
    member.pass_time(member.config.max_poll_interval, alive=True)
    reply = LeaveGroupResult(
        members=(LeavingMemberResult(member_id=ME, group_instance_id=None, code=code),)
    )
    commands = member.answer(LeaveGroup, reply)
    assert [str(int(code)) in note.text for note in commands_of_type(MemberNote, commands)] == [
        True
    ]
    assert member.state is MemberState.UNJOINED


# Commit

ENDS: dict[Code, type[RotaError]] = {
    Code.TOPIC_AUTHORIZATION_FAILED: AuthorizationFailed,
    Code.GROUP_AUTHORIZATION_FAILED: AuthorizationFailed,
    Code.ILLEGAL_GENERATION: CommitFailed,
    Code.UNKNOWN_MEMBER_ID: CommitFailed,
    Code.REBALANCE_IN_PROGRESS: RebalanceInProgress,
    Code.FENCED_INSTANCE_ID: Fenced,
}
MAY_PASS = {
    *LATER,
    *ELSEWHERE,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.REQUEST_TIMED_OUT,
}


@pytest.mark.parametrize("code", ALL)
def test_asynchronous_commits(code: Code) -> None:
    member = stable_member()
    member.commit(1, offsets(t0_0=5))
    commands = member.answer_commit(code)
    assert bool(commands_of_type(CallInterceptors, commands)) == (code == Code.NONE)
    (done,) = commands_of_type(RunCommitCallback, commands)
    member.end_poll()
    member.poll()
    expected = ENDS.get(code, RetriableCommitFailed if code in MAY_PASS else GroupError)
    assert type(done.error) is (type(None) if code == Code.NONE else expected)
    lost = {Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID}
    rejoins = {*lost, Code.REBALANCE_IN_PROGRESS}
    assert (member.state is MemberState.JOINING) == (code in rejoins)


@pytest.mark.parametrize("code", ALL)
def test_synchronous_commits(code: Code) -> None:
    member = stable_member()
    member.end_poll()
    member.commit(1, offsets(t0_0=5), wait=10_000)
    done = commands_of_type(FinishSyncCommit, member.answer_commit(code))
    if code in MAY_PASS:
        assert done == []
        commands = member.pass_time(member.config.retry_backoff)
        if code in ELSEWHERE | {Code.REQUEST_TIMED_OUT}:
            assert FindCoordinator() in member.log
            commands = member.found()
        assert OffsetCommit in [type(request) for request in sent_requests(commands)]
        done = commands_of_type(FinishSyncCommit, member.answer_commit())
        assert done == [FinishSyncCommit(1, None)]
    else:
        expected = ENDS.get(code, GroupError)
        assert [type(one.error) for one in done] == [type(None) if code == Code.NONE else expected]


def test_the_leader_is_told_of_the_group() -> None:
    member = joining_member()
    member.answer_join(
        2, leader=ME, members={ME: encode_subscription(), OTHER: encode_subscription()}
    )
    assert {who for who, _ in member.sent(SyncGroup).assignments} == {ME, OTHER}
