"""Downtime of small histories: every reason, its evidence, and its bounds.

Times are milliseconds after :data:`START`. The group is saved at 100 s with t-0 of ``a`` and t-1 of
``b``; the rebalance that a test is about is saved at 202 s, unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest

from rota.engine.history.causes import CommitTimes
from rota.engine.history.downtime import count_delayed_records, find_downtime, sum_downtime
from rota.engine.history.facts import (
    Downtime,
    DowntimeReason,
    EvidenceType,
    Generation,
    GenerationChange,
    GenerationMember,
    GroupType,
    LogLine,
    PartitionOwnership,
    RebalanceCause,
)
from rota.engine.history.lag import EndOffsets
from tests.support.example_history import START, generation, measure_downtime, member

STATED, INFERRED, BOUNDED = EvidenceType.STATED, EvidenceType.INFERRED, EvidenceType.BOUNDED
REVOKED, MOVED, LEFT = DowntimeReason.REVOKED, DowntimeReason.MOVED, DowntimeReason.LEFT
SILENT, RESTARTED = DowntimeReason.SILENT, DowntimeReason.RESTARTED
EMPTY, SHUT_DOWN = DowntimeReason.EMPTY, DowntimeReason.SHUT_DOWN
NOT_POLLED = DowntimeReason.NOT_POLLED
MINUTE = 60_000
#: A member may have its assignment this long before it uses it.
DELAY = 500


class Piece(NamedTuple):
    """A downtime, with times after :data:`START`."""

    partition: int
    reason: DowntimeReason
    evidence: EvidenceType
    since: int
    until: int
    at_least: int
    at_most: int


def pieces(found: Sequence[Downtime]) -> list[Piece]:
    for one in found:
        assert 0 <= one.at_least_ms <= one.milliseconds <= one.at_most_ms
    return [
        Piece(
            one.partition,
            one.reason,
            one.evidence,
            one.since - START,
            one.until - START,
            one.at_least_ms,
            one.at_most_ms,
        )
        for one in found
    ]


def group(number: int, at: int, *members: GenerationMember, **fields: Any) -> Generation:
    """All had joined 20 ms before the generation was saved."""
    given = {"at": START + at, "state_at": START + at - 20, "offset": number + at}
    return generation(number, members, **{**given, **fields})


def owner(name: str, *partitions: int, **fields: Any) -> GenerationMember:
    return member(name, {"t": partitions} if partitions else {}, **fields)


A_AND_B = group(1, 100_000, owner("a", 0), owner("b", 1))
#: The member ``c`` joins and gets nothing.
THREE = group(2, 202_000, owner("a", 0), owner("b", 1), owner("c"))
#: The member ``b`` is gone.
ALONE = group(2, 202_000, owner("a", 0, 1))


def line(what: str, at: int, member_id: str | None = None, **fields: Any) -> LogLine:
    given: dict[str, Any] = {"generation": 1, "text": fields.get("reason") or ""}
    return LogLine(at=START + at, group="g", what=what, member_id=member_id, **given, **fields)


def call_to_join(at: int, member_id: str, reason: str, number: int = 1) -> LogLine:
    found = line("preparing", at, member_id, reason=reason)
    return replace(found, generation=number)


#: ``c`` joins.
CALLED = call_to_join(200_000, "c", "Adding new member c")


def commits_of(times: Mapping[int, Sequence[int]]) -> CommitTimes:
    """:param times: after :data:`START`, by partition"""
    return {
        ("t", number): np.array([START + at for at in listed], dtype=np.int64)
        for number, listed in times.items()
    }


def measure(
    *generations: Generation,
    cause: RebalanceCause = RebalanceCause.UNKNOWN,
    commits: Mapping[int, Sequence[int]] | None = None,
    lines: Sequence[LogLine] = (),
    until: int = 300_000,
    ownership: Sequence[PartitionOwnership] = (),
) -> list[Downtime]:
    """:param cause: of the second generation"""
    return measure_downtime(
        generations,
        {2: cause},
        commits=commits_of(commits or {}),
        until=START + until,
        lines=lines,
        ownership=ownership,
    ).found


# Revoked: eager members


def test_revoked_at_the_commit_of_the_member_after_the_call_to_join() -> None:
    commits = {0: [199_000, 201_000], 1: [201_900]}
    stated = measure(A_AND_B, THREE, commits=commits, lines=[CALLED])
    # all had joined at 201 980
    assert pieces(stated) == [
        Piece(0, REVOKED, STATED, 201_000, 202_000, 20, 1_000 + 10 + DELAY),
        Piece(1, REVOKED, STATED, 201_900, 202_000, 20, 100 + 10 + DELAY),
    ]
    assert [(one.member_id, one.to_generation, one.ended) for one in stated] == [
        ("a", 2, True),
        ("b", 2, True),
    ]
    bounded = measure(A_AND_B, THREE, commits=commits)
    assert pieces(bounded) == [one._replace(evidence=BOUNDED) for one in pieces(stated)]


def test_revoked_before_the_join_of_the_member_that_called() -> None:
    called = call_to_join(200_000, "a", "Updating metadata for member a during Stable")
    first, second = pieces(measure(A_AND_B, THREE, commits={0: [199_000]}, lines=[called]))
    assert first == Piece(0, REVOKED, STATED, 200_000, 202_000, 2_000, 3_000 + DELAY)
    assert second.since > 200_000


def test_revoked_at_an_expected_heartbeat_without_commits() -> None:
    found = pieces(measure(A_AND_B, THREE, lines=[CALLED]))
    # members learn of it by their heartbeats in the 1.98 s until all have joined
    assert {(one.reason, one.evidence, one.at_least) for one in found} == {(REVOKED, STATED, 20)}
    assert {one.at_most for one in found} == {2_000 + 10 + DELAY}
    assert all(200_000 <= one.since <= 201_980 for one in found)


def test_a_member_without_partitions_has_no_downtime() -> None:
    assert all(one.member_id != "c" for one in measure(THREE, group(3, 290_000, owner("c", 0, 1))))


# Moved: cooperative members


COOPERATIVE = "cooperative-sticky"


def test_moved_from_the_first_round_to_the_second() -> None:
    both = {"t": (0, 1)}
    before = group(1, 100_000, owner("a", 0, 1), strategy=COOPERATIVE)
    taken = group(
        2,
        200_000,
        owner("a", 0, owned=both, owned_generation=1),
        owner("b"),
        strategy=COOPERATIVE,
    )
    given = group(
        3,
        203_000,
        owner("a", 0, owned={"t": (0,)}, owned_generation=2),
        owner("b", 1, owned_generation=2),
        strategy=COOPERATIVE,
    )
    found = measure(before, taken, given)
    assert pieces(found) == [Piece(1, MOVED, INFERRED, 200_000, 203_000, 2_500, 3_500)]
    assert (found[0].member_id, found[0].to_generation) == ("a", 3)
    # the evidence ends between the rounds
    (open_piece,) = measure(before, taken, until=202_000)
    assert (open_piece.ended, open_piece.milliseconds) == (False, 2_000)
    assert open_piece.to_generation is None


def test_a_move_across_a_hole_may_have_begun_after_the_last_commit() -> None:
    both = {"t": (0, 1)}
    before = group(1, 100_000, owner("a", 0, 1), strategy=COOPERATIVE)
    after = group(
        4,
        200_000,
        owner("a", 0, owned={"t": (0,)}, owned_generation=3),
        owner("b", 1),
        strategy=COOPERATIVE,
    )
    known = replace(after, generation=2, members=(owner("a", 0, owned=both), owner("b", 1)))
    assert [(one.at_least_ms, one.at_most_ms) for one in measure(before, known)] == [(0, DELAY)]
    found = measure(before, after, commits={1: [120_000, 150_000]})
    assert pieces(found) == [Piece(1, MOVED, BOUNDED, 200_000, 200_000, 0, 50_000 + DELAY)]


def owned(member_id: str, since: int, until: int | None, **fields: Any) -> PartitionOwnership:
    given = {"topic": "t", "partition": 1, "client_id": member_id, "client_host": "/10.0.0.1"}
    return PartitionOwnership(
        group="g",
        member_id=member_id,
        group_instance_id=None,
        since=START + since,
        until=None if until is None else START + until,
        from_generation=1,
        to_generation=2,
        **{**given, **fields},
    )


def test_moved_between_the_members_of_a_consumer_group() -> None:
    kind = GroupType.CONSUMER
    before = group(1, 100_000, owner("a", 0, 1), strategy="uniform", kind=kind)
    after = group(2, 200_000, owner("a", 0), owner("b", 1), strategy="uniform", kind=kind)
    ownership = [owned("a", 100_000, 201_000), owned("b", 204_000, None)]
    (found,) = measure(before, after, ownership=ownership)
    assert (found.reason, found.evidence, found.member_id) == (MOVED, INFERRED, "a")
    assert (found.since, found.until) == (START + 201_000, START + 204_000)
    # it may have stopped when the new target was computed
    assert (found.at_least_ms, found.at_most_ms) == (3_000, 4_020 + DELAY)


@pytest.mark.parametrize(
    ("last", "reason", "since"),
    [
        (199_000, LEFT, 201_000),
        # three commits are missing: its session of 45 s had begun before
        (160_000, SILENT, 160_000),
        (150_000, SILENT, 156_000),
    ],
)
def test_the_commits_of_a_member_of_a_consumer_group_show_a_crash(
    last: int, reason: DowntimeReason, since: int
) -> None:
    kind = GroupType.CONSUMER
    before = group(1, 100_000, owner("a", 0), owner("b", 1), strategy="uniform", kind=kind)
    after = group(2, 200_000, owner("a", 0, 1), strategy="uniform", kind=kind)
    ownership = [owned("b", 100_000, 201_000), owned("a", 204_000, None)]
    commits = {1: list(range(last - 40_000, last + 1, 5_000))}
    (found,) = measure(before, after, ownership=ownership, commits=commits)
    assert (found.reason, found.evidence) == (reason, BOUNDED)
    assert (found.since, found.until) == (START + since, START + 204_000)


# Left and silent


LEAVE = [
    line("left", 200_000, "b", client_reason="the consumer is being closed"),
    call_to_join(200_000, "b", "removing member b on LeaveGroup"),
]


def one_of_b(found: Sequence[Downtime]) -> Piece:
    """Returns the downtime of t-1, whose owner is gone."""
    (one,) = (each for each in found if each.partition == 1)
    assert one.member_id == "b"
    return pieces([one])[0]


def test_left_when_the_broker_says_so() -> None:
    found = one_of_b(measure(A_AND_B, ALONE, cause=RebalanceCause.LEFT, lines=LEAVE))
    # a closing client stops reading up to 250 ms before its LeaveGroup request
    assert found == Piece(1, LEFT, STATED, 200_000, 202_000, 2_000, 2_250 + DELAY)


def test_left_between_the_last_commit_and_the_join_phase() -> None:
    found = one_of_b(measure(A_AND_B, ALONE, cause=RebalanceCause.LEFT, commits={1: [199_000]}))
    # two members share a heartbeat interval of 3 s: the last one waits for half of it
    assert found == Piece(1, LEFT, BOUNDED, 200_480, 202_000, 20, 3_000 + DELAY)


def test_left_at_the_commit_of_a_closing_client() -> None:
    steady = list(range(150_000, 200_000, 5_000))
    found = one_of_b(
        measure(A_AND_B, ALONE, cause=RebalanceCause.LEFT, commits={1: [*steady, 197_500]})
    )
    assert found == Piece(1, LEFT, BOUNDED, 197_500, 202_000, 20, 4_500 + DELAY)


EXPIRED = [call_to_join(200_000, "b", "removing member b on heartbeat expiration")]


def test_silent_since_the_last_heartbeat() -> None:
    found = measure(A_AND_B, ALONE, cause=RebalanceCause.SESSION_TIMEOUT, lines=EXPIRED)
    # the session of 45 s began at 155 s; the next heartbeat was due up to a third of it later
    assert one_of_b(found) == Piece(
        1, SILENT, STATED, 156_500, 202_000, 202_000 - 170_000, 47_000 + DELAY
    )


def test_silent_since_a_commit_after_the_last_heartbeat() -> None:
    steady = list(range(107_000, 160_000, 5_000))  # the last one at 157 s
    found = measure(
        A_AND_B,
        ALONE,
        cause=RebalanceCause.SESSION_TIMEOUT,
        commits={1: steady},
        lines=EXPIRED,
    )
    # the next commit was due at 162 s
    assert one_of_b(found) == Piece(
        1, SILENT, STATED, 159_550, 202_000, 202_000 - 170_000, 45_000 + DELAY
    )


def test_silent_for_a_session_without_the_log() -> None:
    found = measure(
        A_AND_B, ALONE, cause=RebalanceCause.SESSION_TIMEOUT, commits={1: [120_000, 125_000]}
    )
    # the others were called to join at about 200 480
    since = 200_480 - 45_000 + 1_500
    assert one_of_b(found) == Piece(
        1, SILENT, BOUNDED, since, 202_000, 20, 202_000 - 125_000 + DELAY
    )


def test_commits_far_apart_leave_wide_bounds() -> None:
    known = measure(A_AND_B, ALONE, cause=RebalanceCause.LEFT, commits={1: [110_000, 170_000]})
    unknown = measure(A_AND_B, ALONE, cause=RebalanceCause.LEFT)
    # the last sign of life is the commit, or the generation before
    assert one_of_b(known).at_most == 202_000 - 170_000 + DELAY
    assert one_of_b(unknown).at_most == 202_000 - 100_000 + DELAY
    assert one_of_b(known).since == one_of_b(unknown).since == 200_480


# Restarted: static members


STATIC = group(1, 100_000, owner("s!a", 0), owner("r!b", 1))
BACK = group(
    1, 150_000, owner("s!a", 0), owner("r!b2", 1), change=GenerationChange.REPLACED, offset=9
)


def test_restarted_since_its_last_commit() -> None:
    found = measure(STATIC, BACK, commits={1: [130_000, 142_000]})
    assert pieces(found) == [Piece(1, RESTARTED, BOUNDED, 142_000, 150_000, 0, 8_000 + DELAY)]
    assert (found[0].member_id, found[0].to_generation) == ("r!b", None)
    assert sum_downtime(found).by_reason == {"restarted": 8_000}


def test_restarted_at_most_a_session_ago_without_commits() -> None:
    # a usual restart takes 10 s
    assert pieces(measure(STATIC, BACK)) == [
        Piece(1, RESTARTED, BOUNDED, 140_000, 150_000, 0, 45_000 + DELAY)
    ]


LIMITED = member("r!b", {"t": (1,)}, rebalance_timeout=300_000)
#: It commits every five seconds, and no more from 140 s on.
QUIET_COMMITS = [*range(5_000, 140_001, 5_000)]


@pytest.mark.parametrize(
    ("back", "library", "reasons"),
    [
        (200_000, "java", [RESTARTED]),  # nothing to commit; its poll interval has not passed
        (445_000, "java", [NOT_POLLED, RESTARTED]),
        (445_000, "sarama", [RESTARTED]),  # it has no poll interval
    ],
)
def test_a_static_member_without_commits_polled_too_late_only_after_its_interval(
    back: int, library: str, reasons: list[DowntimeReason]
) -> None:
    old = replace(LIMITED, library=library)
    new = replace(old, member_id="r!b2")
    returned = group(1, back, new, change=GenerationChange.REPLACED, offset=9)
    found = measure(group(1, 0, old), returned, commits={1: QUIET_COMMITS}, until=back + 1_000)
    assert [one.reason for one in found] == reasons
    assert all(one.since >= START + 140_000 for one in found)


#: The last commits of a member that commits every five seconds, and then closes.
CLOSE_COMMITS = [*range(110_000, 250_001, 5_000), 252_000]


def test_a_static_member_that_closed_before_the_end_is_away() -> None:
    (found,) = measure(STATIC, commits={1: CLOSE_COMMITS}, until=282_000)
    assert pieces([found]) == [Piece(1, RESTARTED, BOUNDED, 252_000, 282_000, 0, 30_000)]
    assert not found.ended


@pytest.mark.parametrize(
    ("commits", "until"),
    [
        ([*CLOSE_COMMITS[:-1], 255_000], 285_000),  # it may poll too late
        (CLOSE_COMMITS, 266_000),  # two commits may be late
        (CLOSE_COMMITS, 298_000),  # it sends heartbeats: its session would have ended
        (CLOSE_COMMITS[-3:], 282_000),  # no rhythm
    ],
    ids=["regular", "early", "alive", "few"],
)
def test_a_static_member_without_a_closing_commit_is_not(commits: list[int], until: int) -> None:
    assert measure(STATIC, commits={1: commits}, until=until) == []


# Empty and shut down


@pytest.mark.parametrize(
    ("away", "reason"), [(MINUTE, EMPTY), (30 * MINUTE, EMPTY), (30 * MINUTE + 1, SHUT_DOWN)]
)
def test_empty_between_the_last_leave_and_the_next_member(
    away: int, reason: DowntimeReason
) -> None:
    before = group(1, 100_000, owner("a", 0))
    gone = line("left", 200_000, "a", client_reason="the consumer is being closed")
    back = 200_000 + away
    found = measure(
        before,
        group(2, 200_000),
        group(3, back, owner("a2", 0)),
        lines=[gone],
        until=back + 1_000,
    )
    left, empty = pieces(found)
    # it may have stopped reading shortly before
    assert left == Piece(0, LEFT, STATED, 200_000, 200_000, 0, 250)
    assert empty == Piece(0, reason, INFERRED, 200_000, back, away, away + DELAY)
    assert [one.to_generation for one in found] == [2, 3]
    assert sum_downtime(found).downtime_ms == (away if reason is EMPTY else 0)


def test_a_static_group_that_closed_is_shut_down() -> None:
    """Its sessions end 45 s after its members closed, which is part of it."""
    before = group(1, 100_000, owner("s!a", 0))
    back = 297_000 + 31 * MINUTE
    generations = (before, group(2, 297_000), group(3, back, owner("s!a2", 0)))
    cause = RebalanceCause.SESSION_TIMEOUT
    found = measure(*generations, cause=cause, commits={0: CLOSE_COMMITS}, until=back)
    assert [(one.reason, one.since - START) for one in found] == [
        (SHUT_DOWN, 252_000),
        (SHUT_DOWN, 297_000),
    ]
    crashed = measure(*generations, cause=cause, commits={0: CLOSE_COMMITS[:-1]}, until=back)
    assert [one.reason for one in crashed] == [SILENT, EMPTY]


def test_a_group_is_back_when_it_has_one_of_its_partitions_again() -> None:
    both = member("a", {"t": (0,), "u": (0,)}, topics=("t", "u"))
    one = member("b", {"t": (0,)}, topics=("t", "u"))  # the topic u was deleted
    fields = {"strategy": "cooperative-sticky"}
    found = measure(
        group(1, 100_000, both, **fields),
        group(2, 200_000),
        group(3, 210_000, one, **fields),
        cause=RebalanceCause.LEFT,
    )
    times = {(each.topic, each.reason, each.ended) for each in found if each.milliseconds > 1}
    assert times == {("t", EMPTY, True), ("u", EMPTY, False)}


def test_an_outage_counts_however_long_it_is() -> None:
    failed = line("failed", 200_000, "a")
    late = 200_000 + 40 * 60_000
    generations = (group(1, 100_000, owner("a", 0)), group(2, 200_000))
    found = measure(*generations, group(3, late, owner("a2", 0)), lines=[failed], until=late)
    assert [one.reason for one in found] == [SILENT, EMPTY]
    unended = measure(*generations, lines=[failed], until=late)
    assert [(one.reason, one.ended) for one in unended] == [(SILENT, True), (EMPTY, False)]


@pytest.mark.parametrize(
    ("absences", "reason"),
    [
        ([600, 610, 590, 600], SHUT_DOWN),
        # too few, without a rhythm, or only away for a short time: deploys
        ([600, 610, 590], EMPTY),
        ([600, 610, 100, 600], EMPTY),
        ([8, 9, 9, 8, 8], EMPTY),
    ],
)
def test_a_job_that_runs_again_and_again_is_shut_down_in_between(
    absences: Sequence[int], reason: DowntimeReason
) -> None:
    generations, lines, at = [group(1, 100_000, owner("a1", 0))], [], 100_000
    for number, seconds in enumerate(absences, 1):
        at += 60_000
        client_reason = "the consumer is being closed"
        lines.append(line("left", at, f"a{number}", client_reason=client_reason))
        generations.append(group(2 * number, at))
        at += seconds * 1_000
        generations.append(group(2 * number + 1, at, owner(f"a{number + 1}", 0)))
    found = measure(*generations, lines=lines, until=at)
    assert {one.reason for one in found if one.milliseconds > 1_000} == {reason}


def test_a_group_that_polls_too_slowly_again_and_again_is_not_shut_down() -> None:
    member = owner("a1", 0, rebalance_timeout=30_000)
    generations, lines, at = [group(1, 100_000, member)], [], 100_000
    for number in range(1, 6):
        at += 60_000
        lines.append(line("left", at, f"a{number}", client_reason="consumer poll timeout"))
        generations.append(group(2 * number, at))
        at += 40_000
        back = owner(f"a{number + 1}", 0, rebalance_timeout=30_000)
        generations.append(group(2 * number + 1, at, back))
    found = measure(*generations, lines=lines, until=at)
    assert sum(one.reason is EMPTY for one in found) == 5


def consumer(number: int, at: int, *members: GenerationMember) -> Generation:
    """A generation of a consumer group (KIP-848)."""
    strategy = "uniform" if members else None
    return group(number, at, *members, strategy=strategy, kind=GroupType.CONSUMER)


def test_the_schedule_of_a_consumer_group_counts_too() -> None:
    generations, held, at = [], [], 0
    for number in range(1, 7):
        name = f"a{number}"
        generations.append(consumer(2 * number - 1, at, owner(name, 0)))
        held.append(owned(name, at, at + 60_000, partition=0))
        generations.append(consumer(2 * number, at + 60_000))
        at += 660_000
    generations.append(consumer(13, at, owner("a7", 0)))
    held.append(owned("a7", at, None, partition=0))
    found = measure(*generations, ownership=held, until=at)
    assert [one.reason for one in found if one.milliseconds > 1_000] == [SHUT_DOWN] * 6


def test_a_static_member_of_a_consumer_group_returns_once() -> None:
    before = consumer(3, 100_000, owner("s!a", 0), owner("b", 1))
    after = consumer(3, 165_000, owner("s!a2", 0), owner("b", 1))
    returned = replace(after, change=GenerationChange.REPLACED, offset=9)
    held = [
        replace(owned("a", 100_000, 160_000, partition=0), group_instance_id="s"),
        replace(owned("a2", 165_000, None, partition=0), group_instance_id="s"),
        owned("b", 100_000, None, partition=1),
    ]
    (found,) = measure(before, returned, ownership=held, until=200_000)
    assert (found.reason, found.since - START, found.until - START) == (
        DowntimeReason.RESTARTED,
        160_000,
        165_000,
    )


def test_partitions_of_a_consumer_group_have_the_same_reason_while_it_is_empty() -> None:
    """One of its last members crashed, so nobody has shut down the group."""
    late = 200_000 + 60 * MINUTE
    generations = (
        consumer(1, 100_000, owner("a", 0), owner("b", 1)),
        consumer(2, 200_000),
        consumer(3, late, owner("c", 0, 1)),
    )
    held = [owned(name, 100_000, 200_000, partition=number) for number, name in enumerate("ab")]
    held += [owned("c", late, None, partition=number) for number in (0, 1)]
    lines = [line("failed", 200_000, "a"), line("left", 200_000, "b")]
    found = measure(*generations, ownership=held, lines=lines, until=late)
    empty = [one for one in found if one.reason in {EMPTY, SHUT_DOWN}]
    assert [(one.partition, one.reason) for one in empty] == [(0, EMPTY), (1, EMPTY)]


def test_the_downtime_before_a_consumer_group_was_empty_belongs_to_its_last_epoch() -> None:
    held = [owned("a", 100_000, 200_000, partition=0)]
    commits = {0: range(105_000, 156_000, 5_000)}
    generations = (consumer(1, 100_000, owner("a", 0)), consumer(2, 200_000))
    found = measure(*generations, ownership=held, commits=commits)
    assert [(one.reason, one.to_generation) for one in found] == [(SILENT, 2), (EMPTY, None)]


def test_a_deleted_topic_of_a_consumer_group_is_not_down() -> None:
    both = ("t", "u")
    generations = (
        consumer(1, 100_000, owner("a", 0, topics=both)),
        consumer(2, 200_000, owner("a", 0, topics=both)),
        consumer(3, 300_000, owner("a", 0, topics=both)),
    )
    first = replace(generations[0], members=(member("a", {"t": (0,), "u": (0,)}, topics=both),))
    held = [owned("a", 100_000, None, partition=0)]
    held.append(owned("a", 100_000, 200_000, partition=0, topic="u"))
    assert not measure(first, *generations[1:], ownership=held, until=9_000_000)


def test_pieces_do_not_overlap_if_the_journals_clock_goes_back() -> None:
    times = (1_000_000, 1_300_000, 1_280_000, 1_290_000, 1_295_000)
    members = ((owner("a", 0),), (), (owner("b", 0),), (), (owner("c", 0),))
    numbered = enumerate(zip(times, members, strict=True), 1)
    found = measure(
        *(replace(group(number, at, *listed), offset=number) for number, (at, listed) in numbered)
    )
    for before, after in pairwise(sorted(found, key=lambda one: one.since)):
        assert before.until <= after.since


@pytest.mark.parametrize(("away", "reason"), [(MINUTE, EMPTY), (31 * MINUTE, SHUT_DOWN)])
def test_shut_down_if_nobody_comes_back(away: int, reason: DowntimeReason) -> None:
    """A deploy that stops all members counts also while it runs."""
    until = 200_000 + away
    found = measure(group(1, 100_000, owner("a", 0)), group(2, 200_000), until=until)
    last = found[-1]
    assert (last.reason, last.ended, last.milliseconds) == (reason, False, away)
    total = sum_downtime(found)
    assert total.by_reason[reason] == away
    counted = sum(total.by_reason.values()) - (away if reason is SHUT_DOWN else 0)
    assert total.downtime_ms == counted


def test_a_group_that_closes_again_and_again_without_a_commit_is_not_a_scheduled_job() -> None:
    generations, lines, at = [group(1, 100_000, owner("a1", 0))], [], 100_000
    for number in range(1, 7):
        at += 20_000
        lines.append(line("left", at, f"a{number}", client_reason="the consumer is being closed"))
        generations.append(group(2 * number, at))
        at += 300_000
        generations.append(group(2 * number + 1, at, owner(f"a{number + 1}", 0)))

    def reasons(*commits: int) -> set[DowntimeReason]:
        found = measure(*generations, lines=lines, commits={0: list(commits)}, until=at)
        return {one.reason for one in found if one.milliseconds > 1_000}

    assert reasons(110_000) == {EMPTY}
    assert reasons(*range(110_000, at, 320_000)) == {SHUT_DOWN}


def test_a_group_that_was_deleted_is_not_down_if_the_tombstone_is_missing() -> None:
    later = 9 * 24 * 60 * MINUTE
    again = replace(group(1, later, owner("z", 0)), incarnation=1)
    found = measure(group(1, 100_000, owner("a", 0)), group(2, 200_000), again, until=later)
    assert sum_downtime(found).downtime_ms == 0


def test_a_partition_that_an_eager_leader_left_out_for_a_while_is_down() -> None:
    generations = (
        group(1, 100_000, owner("a", 0, 1)),
        group(2, 200_000, owner("a", 0)),
        group(3, 4_200_000, owner("a", 0, 1)),
    )
    (left_out,) = [one for one in measure(*generations) if one.milliseconds > 10_000]
    assert (left_out.partition, left_out.until) == (1, START + 4_200_000)
    assert (left_out.evidence, left_out.at_least_ms) == (BOUNDED, 0)


def test_a_topic_that_was_deleted_and_created_again_is_not_down() -> None:
    both = member("a", {"t": (0,), "u": (0,)}, topics=("t", "u"))
    one = member("a", {"t": (0,)}, topics=("t", "u"))
    found = measure(group(1, 100_000, both), group(2, 200_000, one), group(3, 4_200_000, both))
    assert sum_downtime(found).downtime_ms < 10_000


# Not polled


def test_not_polled_before_the_client_left_because_of_it() -> None:
    slow = replace(A_AND_B, members=(owner("a", 0), owner("b", 1, rebalance_timeout=30_000)))
    left = replace(LEAVE[0], client_reason="consumer poll timeout has expired.")
    found = measure(slow, ALONE, cause=RebalanceCause.SLOW_POLL, lines=[left, LEAVE[1]])
    waiting, gone = pieces([one for one in found if one.partition == 1])
    # the client looks at the time since its last poll with each heartbeat
    assert waiting == Piece(1, NOT_POLLED, STATED, 170_000, 200_000, 30_000, 33_000)
    assert gone == Piece(1, LEFT, STATED, 200_000, 202_000, 2_000, 2_000 + DELAY)
    total = sum_downtime([one for one in found if one.partition == 1])
    assert (total.not_polled_ms, total.downtime_ms) == (30_000, 2_000)
    assert (total.downtime_at_least_ms, total.downtime_at_most_ms) == (2_000, 2_500)


def test_a_slow_poll_begins_after_the_member_joined() -> None:
    slow = replace(A_AND_B, members=(owner("a", 0), owner("b", 1, rebalance_timeout=300_000)))
    left = replace(LEAVE[0], client_reason="consumer poll timeout has expired.")
    found = measure(slow, ALONE, cause=RebalanceCause.SLOW_POLL, lines=[left, LEAVE[1]])
    (waiting,) = pieces([one for one in found if one.reason is NOT_POLLED])
    # the member polled when it was called to join the generation of 100 s
    assert (waiting.since, waiting.until) == (99_980, 200_000)


def test_a_member_that_never_polled_after_its_assignment_did_not_read_its_partitions() -> None:
    late = owner("b", 1, rebalance_timeout=30_000)
    began = call_to_join(165_000, "a", "rebalance failed")
    again = group(2, 171_000, owner("a", 0), late)
    gone = group(3, 202_000, owner("a", 0, 1))
    # the client polled last 30 s before it left: after it had joined, before its assignment
    left = line("left", 200_000, "b", client_reason="consumer poll timeout has expired.")
    leave = call_to_join(200_000, "b", "Removing member b on LeaveGroup", 2)
    found = measure(
        replace(A_AND_B, members=(owner("a", 0), late)),
        again,
        gone,
        cause=RebalanceCause.SLOW_POLL,
        lines=[began, left, leave],
    )
    last = [one for one in pieces(found) if one.partition == 1][-2:]
    assert [(one.reason, one.since, one.until) for one in last] == [
        (LEFT, 171_000, 200_000),
        (LEFT, 200_000, 202_000),
    ]


# A rebalance at the end


@pytest.mark.parametrize(
    ("strategy", "lines", "expected"),
    [
        # both revoked their partitions when a heartbeat told them
        ("range", [call_to_join(200_000, "c", "Adding new member c")], ["revoked", "revoked"]),
        ("cooperative-sticky", [call_to_join(200_000, "c", "Adding new member c")], []),
        ("cooperative-sticky", LEAVE, ["left"]),
        ("range", LEAVE, ["left", "revoked"]),
        ("range", [call_to_join(90_000, "c", "Adding new member c", 0)], []),  # it has ended
    ],
    ids=["eager", "cooperative", "cooperative leave", "eager leave", "before"],
)
def test_a_rebalance_that_runs_at_the_end_counts(
    strategy: str, lines: list[LogLine], expected: list[str]
) -> None:
    found = measure(replace(A_AND_B, strategy=strategy), lines=lines, until=230_000)
    assert sorted(one.reason for one in found) == expected
    for one in found:
        assert not one.ended
        assert 200_000 <= one.since - START < one.until - START == 230_000


# What is not downtime


def test_nothing_counts_before_the_first_owner() -> None:
    assert measure(A_AND_B) == []
    created = group(0, 50_000, change=GenerationChange.CREATED)
    assert measure(created, A_AND_B) == []
    added = group(2, 202_000, owner("a", 0, 1, 2))
    assert 2 not in {one.partition for one in measure(group(1, 100_000, owner("a", 0, 1)), added)}


def test_nothing_counts_after_the_last_subscriber() -> None:
    other = group(2, 202_000, member("a", {"u": (0,)}, topics=("u",)))
    assert measure(group(1, 100_000, owner("a", 0)), other) == []


def test_nothing_counts_after_the_group_was_deleted() -> None:
    deleted = group(2, 230_000, change=GenerationChange.DELETED, offset=9)
    again = replace(group(1, 290_000, owner("z", 0)), incarnation=1)
    found = measure(group(1, 100_000, owner("a", 0)), group(2, 200_000), deleted, again)
    assert [(one.until - START, one.ended) for one in found if one.reason is EMPTY] == [
        (230_000, False)
    ]
    assert max(one.until for one in found) == START + 230_000


def test_a_group_that_only_commits_has_no_downtime_that_is_known() -> None:
    found = find_downtime([], [], [], commits=commits_of({0: [1, 2, 3]}), until=START)
    assert (found.found, found.events) == ([], {})
    assert sum_downtime(found.found).delayed_records is None


# Bad evidence


def shifted(lines: Sequence[LogLine], by: int) -> list[LogLine]:
    return [replace(one, at=one.at + by) for one in lines]


@pytest.mark.parametrize("by", [-600_000, 600_000])
def test_a_log_whose_clock_is_minutes_off_is_as_good_as_none(by: int) -> None:
    evidence: dict[str, Any] = {"cause": RebalanceCause.LEFT, "commits": {1: [199_000]}}
    without = measure(A_AND_B, ALONE, **evidence)
    assert measure(A_AND_B, ALONE, lines=shifted(LEAVE, by), **evidence) == without
    assert {one.evidence for one in without} == {BOUNDED}


@pytest.mark.parametrize("by", [-900, 900])
def test_a_log_whose_clock_is_a_little_off_shifts_times_by_as_much(by: int) -> None:
    found = measure(A_AND_B, ALONE, cause=RebalanceCause.LEFT, lines=shifted(LEAVE, by))
    one = one_of_b(found)
    assert (one.since, one.until, one.evidence) == (200_000 + by, 202_000, STATED)


@pytest.mark.parametrize("by", [-120_000, -5_000, 900, 60_000])
def test_a_log_that_has_the_groups_generations_is_corrected(by: int) -> None:
    stable = [line("stabilized", 201_980 + by), line("stabilized", 99_980 + by)]
    stable = [replace(one, generation=2 - number) for number, one in enumerate(stable)]
    lines = sorted([*stable, replace(CALLED, at=CALLED.at + by)], key=lambda one: one.at)
    assert measure(A_AND_B, THREE, lines=lines) == measure(A_AND_B, THREE, lines=[CALLED])


def test_a_log_whose_clock_jumps_is_not_used() -> None:
    first, last = line("stabilized", 99_980 - 9_000), line("stabilized", 201_980 + 9_000)
    found = measure(A_AND_B, THREE, lines=[first, CALLED, replace(last, generation=2)])
    assert found == measure(A_AND_B, THREE)


@pytest.mark.parametrize("by", [1_800, -60_000])
def test_a_clock_that_jumps_leaves_only_the_lines_around_the_jump_out(by: int) -> None:
    """As between the logs of two brokers."""
    generations, lines, right = [A_AND_B], [line("stabilized", 99_980)], []
    for number in range(2, 12):
        at = 100_000 * number
        offset = by if number > 6 else 0
        call = call_to_join(at - 2_020 + offset, f"c{number}", "Adding new member", number - 1)
        stable = replace(line("stabilized", at - 20 + offset), generation=number)
        lines += [call, stable]
        right.append(replace(call, at=call.at - offset))
        generations.append(group(number, at, owner("a", 0), owner("b", 1)))
    lines.sort(key=lambda one: one.at)
    found = [one for one in measure(*generations, lines=lines) if one.partition == 0]
    wanted = [one for one in measure(*generations, lines=right) if one.partition == 0]
    unknown = [one.to_generation for one in found if one.evidence is BOUNDED]
    assert unknown == [7]
    for one, other in zip(found, wanted, strict=True):
        if one.evidence is STATED:
            assert (one.since, one.at_most_ms) == (other.since, other.at_most_ms)
        assert one.until - one.at_most_ms <= other.since


def test_a_leave_that_the_log_has_after_the_rebalance_is_not_lost() -> None:
    found = measure(A_AND_B, ALONE, cause=RebalanceCause.LEFT, lines=shifted(LEAVE, 2_900))
    # all had joined at 201 980, so it left before
    assert one_of_b(found) == Piece(1, LEFT, STATED, 201_980, 202_000, 20, 270 + DELAY)


def test_a_hole_in_the_log_leaves_its_rebalances_bounded() -> None:
    back = group(3, 260_000, owner("a", 0), owner("b2", 1))
    found = measure(A_AND_B, ALONE, back, cause=RebalanceCause.LEFT, lines=LEAVE)
    by_generation = {one.to_generation: one.evidence for one in found}
    assert by_generation == {2: STATED, 3: BOUNDED}


# Delayed records


def ends_of(*samples: tuple[int, int]) -> EndOffsets:
    """Samples of t-1: time and end."""
    at, end = np.array([(START + at, end) for at, end in samples], dtype=np.int64).T
    return EndOffsets.from_samples(np.zeros(len(at), dtype=np.int64), at, end)


def delayed(*samples: tuple[int, int]) -> tuple[int | None, int | None]:
    found = measure(A_AND_B, ALONE, cause=RebalanceCause.LEFT, lines=LEAVE)
    counted = count_delayed_records(found, ends_of(*samples), {("t", 1): 0})
    assert [one for one in counted if one.partition == 0] == [
        one for one in found if one.partition == 0
    ]
    (one,) = (each for each in counted if each.partition == 1)
    return one.delayed_records, one.added_lag_ms


def test_records_that_arrive_during_downtime_are_delayed() -> None:
    # ten records a second; the first one arrives just after the leave
    assert delayed((190_000, 0), (210_000, 200)) == (20, 1_900)
    # nothing arrives
    assert delayed((190_000, 50), (210_000, 50)) == (0, 0)


def test_ends_that_were_sampled_once_show_no_delayed_records() -> None:
    assert delayed((210_000, 100)) == (None, None)
    assert delayed((190_000, 100)) == (None, None)
    # nothing is known after the last one
    assert delayed((180_000, 0), (190_000, 100)) == (None, None)
    # the topic was created again in between
    assert delayed((190_000, 100), (210_000, 5)) == (None, None)


def test_samples_that_are_far_apart_show_no_delayed_records() -> None:
    """Records do not arrive evenly over hours."""
    assert delayed((100_000, 0), (3_690_000, 35_900))[0] == 20
    assert delayed((100_000, 0), (3_710_000, 36_100)) == (None, None)


def test_sums_have_delayed_records_where_they_are_known() -> None:
    (one,) = (each for each in measure(A_AND_B, ALONE, lines=LEAVE) if each.partition == 1)
    known = replace(one, delayed_records=5, added_lag_ms=700)
    total = sum_downtime([one, known, replace(known, delayed_records=7, added_lag_ms=900)])
    assert (total.delayed_records, total.added_lag_ms) == (12, 900)
    assert sum_downtime([one]).delayed_records is None
