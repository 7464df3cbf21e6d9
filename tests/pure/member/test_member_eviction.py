"""What an application is told when its member is out of the group, or cannot get at it."""

from __future__ import annotations

import pytest

from rota.engine.member.events import (
    CloseRequested,
    CoordinatorNotFound,
    FindCoordinator,
    FinishClose,
    FinishSyncCommit,
    ListenerReturned,
    MemberCommand,
    MemberNote,
    MemberTimer,
    RequestFailed,
    RunCommitCallback,
)
from rota.engine.member.state import MemberState
from rota.engine.model.request import GroupRequest, Heartbeat, JoinGroup, OffsetCommit
from rota.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    Code,
    CommitFailed,
    GroupError,
    Refused,
)
from tests.support.member_driver import (
    Driver,
    commands_of_type,
    offsets,
    raised_errors,
    sent_requests,
)

A = offsets(t0_0=5)
DENIED = AuthenticationFailed(Code.SASL_AUTHENTICATION_FAILED, "broker:9092: wrong password")


def stable_member(**settings: object) -> Driver:
    """Stable with two partitions, outside a poll."""
    member = Driver(**settings)  # type: ignore[arg-type]
    member.settle("t0-0", "t0-1")
    member.end_poll()
    return member


def commit_failed_message(member: Driver) -> str:
    """What a commit is refused with."""
    (done,) = commands_of_type(
        FinishSyncCommit, member.commit(1, A, wait=60_000) + answer_unknown_member(member)
    )
    assert isinstance(done.error, CommitFailed)
    return str(done.error)


def answer_unknown_member(member: Driver) -> list[MemberCommand]:
    if not member.in_flight(OffsetCommit):
        return []  # it was not even sent
    return member.answer_commit(Code.UNKNOWN_MEMBER_ID)


# Commits of one who is out


def test_one_that_has_not_joined_is_asked_to_poll() -> None:
    assert "has not joined" in commit_failed_message(Driver())


def test_one_that_polled_too_late_hears_by_how_much_and_what_to_set() -> None:
    member = stable_member(max_poll_interval=300_000)
    commands = member.pass_time(312_345, alive=True)
    assert [note.text for note in commands_of_type(MemberNote, commands) if note.is_warning]
    text = commit_failed_message(member)
    assert "has not polled for 312.3 s, 12.3 s longer than max.poll.interval.ms = 300000" in text
    assert "max.poll.records" in text


def test_nor_does_it_forget_when_it_polls_again() -> None:
    member = stable_member(max_poll_interval=300_000)
    member.answers_listener = False
    member.pass_time(310_000, alive=True)
    member.poll()
    (call,) = member.calls[-1:]
    member.now += 50
    assert "not polled for 310.0 s, 10.0 s longer" in commit_failed_message(member), (
        "asked for by its listener"
    )
    member.give(ListenerReturned(call.call_id))


def test_a_listener_that_takes_too_long_is_late_too() -> None:
    member = Driver(max_poll_interval=60_000)
    member.answers_listener = False
    member.settle("t0-0")
    member.pass_time(61_500, alive=True)
    assert (
        "has not polled for 61.5 s, 1.5 s longer than max.poll.interval.ms = 60000"
        in commit_failed_message(member)
    )


def test_a_new_generation_begins_anew() -> None:
    member = stable_member(max_poll_interval=300_000)
    member.pass_time(310_000, alive=True)
    member.settle("t0-0", generation=3)
    member.end_poll()
    member.beat(Code.UNKNOWN_MEMBER_ID)
    assert "max.poll.interval.ms was missed" in commit_failed_message(member)


@pytest.mark.parametrize("asks", [True, False], ids=["commit", "heartbeat"])
def test_one_whose_session_ended_hears_for_how_long_nothing_was_answered(asks: bool) -> None:
    """The process stood still: no timer fired meanwhile."""
    member = stable_member(session_timeout=45_000)
    member.now += 61_200
    if not asks:
        member.beat_at_once(Code.UNKNOWN_MEMBER_ID)
        assert member.state is MemberState.UNJOINED
    text = commit_failed_message(member)
    assert "UNKNOWN_MEMBER_ID" in text
    assert "no heartbeat was answered for 61.2 s" in text
    assert "session.timeout.ms = 45000" in text
    assert "generation 1" in text


def test_one_that_was_removed_missed_no_deadline() -> None:
    member = stable_member()
    member.beat()
    member.now += 1_500
    text = commit_failed_message(member)
    assert "answered 1.5 s before" in text
    assert "neither session.timeout.ms nor max.poll.interval.ms was missed" in text


def test_a_commit_of_a_generation_before_names_both() -> None:
    member = Driver("cooperative-sticky")
    member.settle("t0-0", "t0-1")
    member.commit(1, A)
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.answer_join(2)
    member.answer_sync("t0-0", "t0-1")
    (done,) = commands_of_type(RunCommitCallback, member.answer_commit(Code.ILLEGAL_GENERATION))
    assert isinstance(done.error, CommitFailed)
    assert "sent as of generation 1, and this member is in generation 2" in str(done.error)


def test_one_that_only_assigns_is_told_that_the_group_has_members() -> None:
    member = Driver(topics=())
    member.commit(1, A, wait=1_000)
    member.found()
    (done,) = commands_of_type(FinishSyncCommit, member.answer_commit(Code.UNKNOWN_MEMBER_ID))
    assert isinstance(done.error, CommitFailed)
    assert "not one of them" in str(done.error)


# No way to the coordinator, now or later


def test_a_search_refused_for_good_is_told_by_every_poll() -> None:
    member = Driver()
    member.poll()
    assert raised_errors(member.give(CoordinatorNotFound(DENIED))) == [DENIED]
    assert FindCoordinator() not in member.pass_time(10_000), "not before the next poll"
    assert FindCoordinator() not in member.end_poll()
    assert FindCoordinator() in member.poll()
    assert raised_errors(member.give(CoordinatorNotFound(DENIED))) == [DENIED]


def test_outside_a_poll_it_waits_for_the_next_one() -> None:
    member = stable_member()
    member.pass_time(3_000)
    assert FindCoordinator() in member.fail(Heartbeat)
    assert not raised_errors(member.give(CoordinatorNotFound(DENIED)))
    member.pass_time(10_000)
    assert raised_errors(member.poll()) == [DENIED]
    assert not raised_errors(member.end_poll())


def test_commits_that_wait_for_the_coordinator_fail_with_it() -> None:
    member = stable_member()
    member.commit(1, A, wait=60_000)
    member.commit(2, A)
    member.fail(OffsetCommit)
    (done,) = commands_of_type(FinishSyncCommit, member.give(CoordinatorNotFound(DENIED)))
    assert (done.commit_id, done.error) == (1, DENIED)
    (later,) = commands_of_type(FinishSyncCommit, member.commit(3, A, wait=60_000))
    assert later.error is DENIED, "at once"


def test_one_that_only_assigns_is_told_by_its_commit_and_may_try_again() -> None:
    member = Driver(topics=())
    member.commit(1, A, wait=60_000)
    (done,) = commands_of_type(FinishSyncCommit, member.give(CoordinatorNotFound(DENIED)))
    assert done.error is DENIED
    member.pass_time(100)
    assert FindCoordinator() in member.commit(2, A, wait=60_000)
    member.found()
    assert commands_of_type(FinishSyncCommit, member.answer_commit()) == [FinishSyncCommit(2)]


def test_the_close_does_not_wait_for_a_coordinator_that_is_refused() -> None:
    member = stable_member(auto_commit=True)
    member.consumed = A
    member.pass_time(3_000)
    member.fail(Heartbeat)
    member.give(CoordinatorNotFound(DENIED))
    assert FinishClose() in member.give(CloseRequested(member.now + 30_000))


# A request that no broker takes

TOO_OLD = Refused(Code.UNSUPPORTED_VERSION, "the broker is too old for group.instance.id")


def fail_request(member: Driver, kind: type[GroupRequest]) -> list[MemberCommand]:
    number, _ = member.in_flight(kind)[-1]
    del member.open[number]
    return member.give(RequestFailed(number, TOO_OLD))


def test_a_join_that_cannot_be_sent_is_told_and_tried_by_the_next_poll() -> None:
    member = Driver(group_instance_id="s")
    member.poll()
    member.found()
    assert raised_errors(fail_request(member, JoinGroup)) == [TOO_OLD]
    assert not sent_requests(member.pass_time(10_000))
    member.end_poll()
    assert [type(request) for request in sent_requests(member.poll())] == [JoinGroup]


def test_a_commit_that_cannot_be_sent_is_not_tried_again() -> None:
    member = stable_member()
    member.commit(1, A, wait=60_000)
    assert FinishSyncCommit(1, TOO_OLD) in fail_request(member, OffsetCommit)


def test_a_heartbeat_that_cannot_be_sent_is_tried_again() -> None:
    member = stable_member()
    member.pass_time(3_000)
    assert MemberNote(str(TOO_OLD), is_warning=True) in fail_request(member, Heartbeat)
    assert member.timers[MemberTimer.HEARTBEAT] == member.now + member.config.retry_backoff


# Permissions


def test_a_heartbeat_without_permission_is_told_once_a_poll() -> None:
    member = stable_member()
    for _ in range(2):
        member.beat(Code.GROUP_AUTHORIZATION_FAILED)
        member.beat(Code.GROUP_AUTHORIZATION_FAILED)
        (error,) = raised_errors(member.poll())
        assert isinstance(error, AuthorizationFailed)
        assert "group 'g'" in str(error)
        assert not raised_errors(member.end_poll())


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (Code.INVALID_SESSION_TIMEOUT, "session.timeout.ms = 45000"),
        (Code.GROUP_MAX_SIZE_REACHED, "group.max.size"),
    ],
)
def test_a_refused_join_says_which_setting_to_look_at(code: Code, text: str) -> None:
    member = Driver()
    member.poll()
    member.found()
    (error,) = raised_errors(member.refuse_join(code))
    assert isinstance(error, GroupError)
    assert text in str(error)
