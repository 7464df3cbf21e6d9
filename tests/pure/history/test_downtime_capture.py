"""The comparison of measured downtime with the recorded runs, on measures made from the truth.

A measure is checked with ``check_measure``: it takes a group's name and whether the broker's log is
known (:func:`tests.support.downtime_comparison.read_evidence` reads both runs' evidence).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from rota.engine.history.facts import (
    Downtime,
    DowntimeReason,
    EvidenceType,
    GenerationChange,
    GroupType,
)
from tests.support.captured_downtime import (
    GapType,
    TrueGap,
    find_true_downtime,
    find_true_gaps,
    find_true_pauses,
    group_names,
    recording_end,
)
from tests.support.downtime_comparison import (
    DowntimeReport,
    Measure,
    compare_with_truth,
    merge_pieces,
    read_evidence,
)

REASONS = {
    GapType.REVOKED: DowntimeReason.REVOKED,
    GapType.LOST: DowntimeReason.REVOKED,
    GapType.LEFT: DowntimeReason.LEFT,
    GapType.CRASHED: DowntimeReason.SILENT,
    GapType.RESTARTED: DowntimeReason.RESTARTED,
    GapType.SLOW_POLL: DowntimeReason.LEFT,
}
GROUPS = group_names()


def check_measure(measure: Measure, *, with_log: bool) -> DowntimeReport:
    """Compares a measure with the truth of both runs; it must be accepted."""
    report = compare_with_truth(measure, GROUPS, with_log=with_log)
    print(report.summary())
    failures = report.failures()
    assert not failures, "\n".join(failures)
    return report


def make_piece(gap: TrueGap, reason: DowntimeReason | None = None) -> Downtime:
    until = gap.until or recording_end(gap.group)
    return Downtime(
        group=gap.group,
        topic=gap.topic,
        partition=gap.partition,
        since=gap.since,
        until=until,
        ended=gap.until is not None,
        reason=reason or REASONS[gap.kind],
        member_id=None,
        evidence=EvidenceType.STATED,
        at_least_ms=until - gap.since,
        at_most_ms=until - gap.since,
        incarnation=0,
        to_generation=None,
    )


def measure_truth(group: str, with_log: bool) -> Sequence[Downtime]:
    """The truth as a measure: a slow poll gives two pieces that touch."""
    found = [make_piece(gap) for gap in find_true_gaps(group)]
    for gap, left in zip(find_true_downtime(group), find_true_gaps(group), strict=True):
        if gap.since < left.since:
            found.append(make_piece(replace(gap, until=left.since), DowntimeReason.NOT_POLLED))
    return found


def with_noise(largest: int, *, bounded: bool, seed: int = 7) -> Measure:
    """The truth with both ends moved, longer or shorter by up to ``largest`` milliseconds."""

    def measure(group: str, with_log: bool) -> Sequence[Downtime]:
        return list(_noisy(measure_truth(group, with_log), random.Random(f"{group} {seed}")))

    def _noisy(pieces: Sequence[Downtime], chance: random.Random) -> Iterator[Downtime]:
        for piece in pieces:
            since = piece.since + chance.randint(-largest, min(largest, piece.milliseconds))
            length = piece.until - since
            width = largest if bounded else 0
            yield replace(
                piece, since=since, at_least_ms=max(length - width, 0), at_most_ms=length + width
            )

    return measure


def changed(change: Callable[[Sequence[Downtime]], Sequence[Downtime]], only: str) -> Measure:
    """The truth with a change in one group."""

    def measure(group: str, with_log: bool) -> Sequence[Downtime]:
        pieces = measure_truth(group, with_log)
        return change(pieces) if group == only else pieces

    return measure


@pytest.mark.parametrize("with_log", [True, False])
def test_the_truth_is_accepted(with_log: bool) -> None:
    report = check_measure(measure_truth, with_log=with_log)
    assert sum(len(one.truth) for one in report.matched) == 1434
    assert {one.error_ms for one in report.matched} == {0}
    assert not report.ignored


def test_with_the_log_half_a_second_is_accepted() -> None:
    check_measure(with_noise(400, bounded=False), with_log=True)
    report = compare_with_truth(with_noise(400, bounded=False), GROUPS, with_log=False)
    assert report.failures()


def test_bounds_that_contain_the_truth_are_accepted() -> None:
    for with_log in (True, False):
        check_measure(with_noise(3_000, bounded=True), with_log=with_log)


def test_large_errors_are_not_accepted_with_the_log() -> None:
    report = compare_with_truth(with_noise(3_000, bounded=False), GROUPS, with_log=True)
    failures = report.failures()
    assert any(text.startswith("wrong by") for text in failures)
    assert any("wrong by more than 0.5 s" in text for text in failures)


def test_a_missing_gap_is_found() -> None:
    def drop(pieces: Sequence[Downtime]) -> Sequence[Downtime]:
        return [piece for piece in pieces if piece.milliseconds < 5_000]

    report = compare_with_truth(changed(drop, "a-crash"), GROUPS, with_log=True)
    assert {one.group for one in report.missed} == {"a-crash"}
    assert {kind for one in report.missed for kind in one.kinds} == {GapType.CRASHED}
    assert len(report.failures()) == len(report.missed) == 4 + 6 + 12


def test_short_gaps_may_be_missed() -> None:
    def drop(pieces: Sequence[Downtime]) -> Sequence[Downtime]:
        return [piece for piece in pieces if piece.milliseconds > 50]

    report = compare_with_truth(changed(drop, "a-flap"), GROUPS, with_log=False)
    assert report.ignored
    assert not report.failures()


def test_an_invented_gap_is_found() -> None:
    def add(pieces: Sequence[Downtime]) -> Sequence[Downtime]:
        piece = pieces[0]
        at = recording_end(piece.group) - 5_000
        return [*pieces, replace(piece, since=at, until=at + 300, at_least_ms=300, at_most_ms=300)]

    report = compare_with_truth(changed(add, "a-grow"), GROUPS, with_log=False)
    assert [one.group for one in report.invented] == ["a-grow"]
    assert len(report.failures()) == 1


def test_a_piece_that_may_be_short_is_not_an_invention() -> None:
    def add(pieces: Sequence[Downtime]) -> Sequence[Downtime]:
        piece = pieces[0]
        at = recording_end(piece.group) - 5_000
        return [*pieces, replace(piece, since=at, until=at + 900, at_least_ms=0, at_most_ms=900)]

    assert not compare_with_truth(changed(add, "a-grow"), GROUPS, with_log=False).failures()


def test_a_slow_poll_counts_from_the_leave_if_the_measure_does_not_know_of_it() -> None:
    def drop(pieces: Sequence[Downtime]) -> Sequence[Downtime]:
        return [piece for piece in pieces if piece.reason is not DowntimeReason.NOT_POLLED]

    for group in ("a-slow", "b-slow"):
        assert find_true_pauses(group)
        report = compare_with_truth(changed(drop, group), [group], with_log=False)
        assert {one.error_ms for one in report.matched} == {0}


def test_pieces_that_touch_are_merged_and_their_bounds_added() -> None:
    first = replace(make_piece(find_true_gaps("a-crash")[0]), since=100, until=200)
    first = replace(first, at_least_ms=50, at_most_ms=120)
    second = replace(first, since=200, until=250, at_least_ms=50, at_most_ms=50)
    apart = replace(first, since=251, until=260)
    (merged,) = merge_pieces([apart, second, first]).values()
    assert [(gap.since, gap.until) for gap in merged] == [(100, 250), (251, 260)]
    assert (merged[0].at_least_ms, merged[0].at_most_ms) == (100, 170)


def test_a_measure_gets_the_evidence_of_both_runs() -> None:
    for group in GROUPS:
        known = read_evidence(group, True)
        assert known.history.generations
        assert len(known.rebalances) == len(known.explanations)
        assert known.lines
        assert not read_evidence(group, False).lines
    assert {
        topic
        for generation in read_evidence("b-next", True).history.generations
        for member in generation.members
        for topic in member.assigned
    } == {"orders", "audit"}
    last = read_evidence("a-slow", False).history.generations[-1]
    assert (last.kind, last.change) == (GroupType.CLASSIC, GenerationChange.REBALANCED)
