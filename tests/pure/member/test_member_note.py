"""What a member tells the log of its group's life: one line for each step, none for a heartbeat."""

from __future__ import annotations

from collections.abc import Iterable

from rota.engine.member.events import (
    CloseRequested,
    CoordinatorNotFound,
    FinishSyncCommit,
    MemberCommand,
    MemberNote,
    RunCommitCallback,
    Unsubscribed,
)
from rota.engine.member.state import MemberState
from rota.engine.model.request import OffsetCommit
from rota.errors import Code, CommitFailed, TimedOut
from tests.support.member_driver import (
    ME,
    OTHER,
    Driver,
    commands_of_type,
    encode_subscription,
    offsets,
)


def note_texts(commands: Iterable[MemberCommand]) -> list[str]:
    return [note.text for note in commands_of_type(MemberNote, commands)]


def stable_member(strategies: str = "range", **settings: object) -> Driver:
    """Stable with two partitions, outside a poll."""
    member = Driver(strategies, **settings)  # type: ignore[arg-type]
    member.settle("t0-0", "t0-1")
    member.end_poll()
    return member


# Coming


def test_a_follower() -> None:
    member = Driver()
    assert note_texts(member.settle("t0-0", "t0-1")) == [
        f"joined generation 1 under 'range' as {ME}",
        "assigned 2 partitions: t0-0, t0-1",
    ]


def test_a_leader() -> None:
    member = Driver()
    member.poll()
    member.found()
    assert note_texts(
        member.answer_join(
            leader=ME, members={ME: encode_subscription(), OTHER: encode_subscription()}
        )
    ) == [f"joined generation 1 under 'range' as {ME}, leading 2 members"]


def test_one_that_goes_empty_handed() -> None:
    assert note_texts(Driver().settle())[-1] == "assigned no partitions"


def test_of_very_many_partitions_only_some_are_named() -> None:
    member = Driver(partitions={"t0": 1_000})
    names = [f"t0-{number}" for number in range(1_000)]
    assert note_texts(member.settle(*names))[-1] == (
        "assigned 1,000 partitions: t0-0, t0-1, t0-2 and 997 more"
    )


def test_heartbeats_and_polls_are_no_news() -> None:
    member = stable_member()
    commands = member.pass_time(60_000, alive=True)
    assert commands_of_type(MemberNote, commands + member.poll() + member.end_poll()) == []


# Rebalances


def test_an_eager_member_gives_up_all_first() -> None:
    member = stable_member()
    commands = member.beat(Code.REBALANCE_IN_PROGRESS) + member.poll()
    assert note_texts(commands) == ["revoked 2 partitions: t0-0, t0-1"]
    assert note_texts(member.answer_join(2) + member.answer_sync("t0-1")) == [
        f"joined generation 2 under 'range' as {ME} (group is already rebalancing)",
        "assigned 1 partition: t0-1",
    ]


def test_a_cooperative_one_only_what_is_taken() -> None:
    member = stable_member("cooperative-sticky")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    assert note_texts(member.poll()) == []
    assert note_texts(member.answer_join(2) + member.answer_sync("t0-1"))[1:] == [
        "revoked 1 partition: t0-0",
        "assigned 1 partition: t0-1 (none of them new)",
    ]
    assert note_texts(member.answer_join(3) + member.answer_sync("t0-1", "t0-2"))[1:] == [
        "assigned 2 partitions: t0-1, t0-2 (new: t0-2)"
    ]


def test_one_that_is_thrown_out() -> None:
    member = stable_member()
    assert note_texts(member.beat(Code.UNKNOWN_MEMBER_ID)) == [
        "generation 1 given up: encountered UNKNOWN_MEMBER_ID from HEARTBEAT response"
    ]
    assert note_texts(member.poll()) == ["lost 2 partitions: t0-0, t0-1"]


# Going


def test_one_that_leaves() -> None:
    assert note_texts(stable_member().give(CloseRequested())) == [
        "revoked 2 partitions: t0-0, t0-1",
        "left generation 1: the consumer is being closed",
    ]
    assert (
        note_texts(stable_member().give(Unsubscribed()))[-1]
        == "left generation 1: the consumer unsubscribed from all topics"
    )


def test_a_static_one_may_be_back() -> None:
    assert note_texts(stable_member(group_instance_id="s").give(CloseRequested()))[-1] == (
        "gone from generation 1 for now, as 's' may be back: the consumer is being closed"
    )


def test_one_that_cannot_tell_the_coordinator() -> None:
    member = stable_member()
    member.beat_at_once(Code.NOT_COORDINATOR)
    assert note_texts(member.give(CloseRequested()))[-1] == (
        "left generation 1, but could not tell the coordinator: the consumer is being closed"
    )


def test_one_that_never_joined_has_nothing_to_give_up() -> None:
    member = Driver()
    member.poll()
    member.give(CoordinatorNotFound(why="a:9092 refuses"))
    assert note_texts(member.give(CloseRequested())) == []


# Commits that were not stored


def test_a_synchronous_one_that_waits_says_so_once() -> None:
    member = stable_member()
    member.commit(1, offsets(t0_0=1), wait=1_000)
    assert note_texts(member.answer_commit(Code.UNKNOWN_TOPIC_OR_PARTITION)) == [
        "commit is tried again until its time is over: commit of t0-0 refused with 3 "
        "UNKNOWN_TOPIC_OR_PARTITION"
    ]
    member.pass_time(100)
    assert not note_texts(member.answer_commit(Code.UNKNOWN_TOPIC_OR_PARTITION))


def test_at_the_end_the_true_reason_is_told() -> None:
    """Not that the member has left: it was not reached before."""
    member = stable_member(auto_commit=True)
    member.consumed = offsets(t0_0=3)
    member.commit(1, offsets(t0_1=1))
    member.fail(OffsetCommit)
    member.commit(2, offsets(t0_1=2))
    member.give(CloseRequested(member.now + 1_000))
    member.give(CoordinatorNotFound(why="a:9092 refuses"))
    commands = member.pass_time(1_000)
    assert (
        "commit before the revocation failed: the commit could not be stored in time: "
        "a:9092 refuses"
    ) in note_texts(commands)
    assert not any("has left" in text for text in note_texts(commands))
    errors = [done.error for done in commands_of_type(RunCommitCallback, member.log)]
    assert not any(isinstance(error, CommitFailed) for error in errors)
    assert member.state is MemberState.LEFT


def test_a_late_answer_to_what_was_given_up_does_no_harm() -> None:
    member = stable_member(auto_commit=True)
    member.consumed = offsets(t0_0=3)
    member.give(CloseRequested(member.now + 1_000))
    commands = member.pass_time(1_000)
    assert (
        "commit before the revocation failed: the commit could not be stored in time"
        in note_texts(commands)
    )
    assert not commands_of_type(MemberNote, member.answer_commit())
    assert member.state is MemberState.LEFT


def test_unsubscribing_without_a_coordinator_commits_nothing_and_says_so() -> None:
    member = stable_member(auto_commit=True)
    member.consumed = offsets(t0_0=3)
    member.beat_at_once(Code.NOT_COORDINATOR)
    (note, *_) = commands_of_type(MemberNote, member.give(Unsubscribed()))
    assert note.is_warning
    assert note.text == "no commit before the revocation: the coordinator is not known just now"


def test_each_error_names_the_group_once() -> None:
    member = stable_member()
    (done,) = commands_of_type(
        FinishSyncCommit,
        member.commit(1, offsets(t0_0=1), wait=1_000)
        + member.answer_commit(Code.ILLEGAL_GENERATION),
    )
    assert str(done.error).startswith(
        "group 'g': generation 1 of this member is over (encountered ILLEGAL_GENERATION from "
        "OFFSET_COMMIT response), though"
    )
    assert str(done.error).count("ILLEGAL_GENERATION") == 1


def test_one_that_is_late_names_its_group_and_the_last_trouble() -> None:
    member = stable_member()
    member.commit(1, offsets(t0_0=1), wait=1_000)
    member.fail(OffsetCommit)
    member.give(CoordinatorNotFound(why="a:9092 refuses"))
    (done,) = commands_of_type(FinishSyncCommit, member.pass_time(1_000))
    assert isinstance(done.error, TimedOut)
    assert str(done.error) == (
        "group 'g': the commit could not be stored in time: the coordinator did not answer; "
        "a:9092 refuses"
    )
