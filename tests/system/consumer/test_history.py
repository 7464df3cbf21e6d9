"""``History.problems`` finds every broken promise, and none where all were kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rota import TopicPartition
from tests.system.consumer.history import (
    Assigned,
    CommitAttempt,
    DeliveredRecord,
    Event,
    History,
    MemberEnded,
    ObservedOffset,
    PositionMoved,
    Revoked,
)

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


def deliveries(member: str, at: float, place: TopicPartition, *offsets: int) -> list[Event]:
    return [DeliveredRecord(member, at, place, each, f"{place}@{each}") for each in offsets]


def valid_history() -> History:
    """a owns both; b joins and takes q; b is killed, and a goes on from its last commit."""
    events: list[Event] = [
        Assigned("a", 1, 1, (P, Q)),
        *deliveries("a", 2, P, 0, 1),
        *deliveries("a", 2, Q, 0),
        CommitAttempt("a", 3, 4, {P: 2, Q: 1}),
        Revoked("a", 5, (Q,)),
        Assigned("a", 6, 2, ()),
        Assigned("b", 7, 3, (Q,)),
        Assigned("a", 7, 3, ()),
        *deliveries("b", 8, Q, 1),
        CommitAttempt("b", 9, 10, {Q: 2}),
        *deliveries("b", 11, Q, 2),
        MemberEnded("b", 12, killed=True),
        Assigned("a", 20, 4, (Q,)),
        *deliveries("a", 21, Q, 2, 3),
        *deliveries("a", 22, P, 2),
        CommitAttempt("a", 23, 24, {P: 3}, error="TimedOut"),
    ]
    written = {
        place: {each: f"{place}@{each}" for each in range(n)} for place, n in ((P, 3), (Q, 4))
    }
    return History(events=events, written=written, observed=[ObservedOffset(15, 16, Q, 2)])


def test_promises_kept() -> None:
    assert valid_history().problems() == []


def lose_record(history: History) -> None:
    history.written[P][3] = "more"


def change_record(history: History) -> None:
    history.written[P][2] = "other"


def claim_twice(history: History) -> None:
    history.events.append(Assigned("b", 30, 4, (P,)))


def take_too_early(history: History) -> None:
    history.events.insert(4, Assigned("b", 4.5, 2, (Q,)))
    history.events.insert(6, MemberEnded("b", 6.5))


def hand_out_what_is_gone(history: History) -> None:
    history.events[6:6] = deliveries("a", 6, Q, 1)


def skip_record(history: History) -> None:
    history.events += deliveries("a", 30, Q, 5)


def hand_out_twice(history: History) -> None:
    history.events += deliveries("a", 30, Q, 3)


def hand_out_again_after_a_commit(history: History) -> None:
    history.events.insert(8, *deliveries("b", 7.5, Q, 0))


def commit_ahead(history: History) -> None:
    history.events.append(CommitAttempt("a", 30, 31, {P: 4}))


def commit_ahead_behind_the_back(history: History) -> None:
    history.observed.append(ObservedOffset(8, 10.5, Q, 3))


def commit_too_early(history: History) -> None:
    history.events.append(CommitAttempt("b", 7.5, 8, {Q: 2}))


def reset_offset(history: History) -> None:
    history.observed.append(ObservedOffset(30, 31, Q, 1))


def give_up_another_s(history: History) -> None:
    history.events.append(Revoked("c", 30, (P,)))


def give_twice(history: History) -> None:
    history.events.append(Assigned("a", 30, 5, (P,)))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lose_record, "more at t-0 3 was never handed out"),
        (change_record, "t-0 2: t-0@2 instead of other"),
        (claim_twice, "t-0 belonged to a and b in generation 4"),
        (take_too_early, "t-1 was b's while it was a's"),
        (hand_out_what_is_gone, "a handed out t-1 at 1, not being its owner"),
        (skip_record, "a handed out t-1 5 after 3"),
        (hand_out_twice, "a handed out t-1 3 after 3"),
        (hand_out_again_after_a_commit, "b handed out t-1 0, though 1 was committed before"),
        (commit_ahead, "a committed t-0 4, when 3 was handed out"),
        (commit_ahead_behind_the_back, "the group committed t-1 3, when 2 was handed out"),
        (commit_too_early, "b committed t-1 2, when 1 was handed out"),
        (reset_offset, "t-1: the group was at 1, after 2 was committed"),
        (give_up_another_s, "c gave up t-0, which it had not"),
        (give_twice, "a was given t-0 again, without giving it up"),
    ],
)
def test_a_broken_promise(fault: Callable[[History], None], message: str) -> None:
    history = valid_history()
    fault(history)
    assert message in history.problems()


def test_one_who_has_not_heard_yet_may_think_that_it_is_the_owner() -> None:
    history = valid_history()
    history.events += [Assigned("z", 0.1, 0, (P,)), Revoked("z", 30, (P,), lost=True)]
    assert history.problems() == []
    history.events[-1] = MemberEnded("z", 30, killed=True, unaware=True)
    assert history.problems() == []
    for last in (Revoked("z", 30, (P,)), MemberEnded("z", 30)):
        history.events[-1] = last
        assert history.problems() == ["t-0 was a's while it was z's"]


def test_a_seek_explains_a_jump() -> None:
    history = valid_history()
    history.events += [PositionMoved("a", 29, P, 0), *deliveries("a", 30, P, 0)]
    assert history.problems() == []


def test_a_commit_without_an_answer_may_have_been_stored() -> None:
    history = valid_history()
    history.observed.append(ObservedOffset(30, 31, P, 3))
    assert history.problems() == []


def test_records_that_were_removed_are_not_missed() -> None:
    history = valid_history()
    history.written[P] |= {3: "gone", 4: "new"}
    history.removed[P] = 4
    history.events.append(DeliveredRecord("a", 30, P, 4, "new"))
    assert history.problems() == []


def test_a_library_that_repeats_itself_is_not_blamed_for_it_but_for_gaps() -> None:
    history = valid_history()
    history.repeaters.add("a")
    hand_out_twice(history)
    assert history.problems() == []
    skip_record(history)
    assert history.problems() == ["a handed out t-1 5 after 3"]


def test_a_static_member_may_be_replaced_in_its_generation() -> None:
    history = valid_history()
    history.events += [MemberEnded("a", 30), Assigned("c", 31, 4, (P, Q))]
    assert history.problems() == [
        f"{place} belonged to a and c in generation 4" for place in (P, Q)
    ]
    history.seats |= {"a": "seat", "c": "seat"}
    assert history.problems() == []
