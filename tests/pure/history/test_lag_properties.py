"""Lag and verdicts over any samples and commits, beside the plainest way of finding them."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rota.engine.history.facts import LagVerdict
from rota.engine.history.lag import EndOffsets, Int64Array, OwnerIntervals, compute_lags
from rota.engine.history.verdicts import (
    DELETED_OFFSET,
    BurrowSettings,
    GroupCommits,
    SubscriptionHistory,
    compute_statuses,
)
from tests.support.examples import examples

REACH = 20
times = st.integers(0, 100)
Row = tuple[int, int, int]
rows = st.lists(st.tuples(st.integers(0, 2), times, st.integers(0, 30)), max_size=25)
growing = st.lists(
    st.tuples(times, st.integers(0, 9)), max_size=12, unique_by=lambda step: step[0]
).map(lambda steps: [(at, end) for at, end in zip(*cumulative_offsets(steps), strict=True)])


def cumulative_offsets(steps: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    at = sorted(at for at, _ in steps)
    return at, [int(end) for end in np.cumsum([rise for _, rise in steps])]


def columns(rows: list[Row]) -> tuple[Int64Array, Int64Array, Int64Array]:
    first, second, third = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return first, second, third


def samples_around(
    samples: list[Row], partition: int, at: int
) -> tuple[list[tuple[int, int]], bool]:
    """The samples between the falls around a time, and whether a fall follows."""
    found: list[tuple[int, int]] = []
    for when in sorted({s[1] for s in samples if s[0] == partition}):
        end = max(s[2] for s in samples if s[0] == partition and s[1] == when)
        if found and end < found[-1][1]:
            if when > at:
                return found, True
            found = []
        found.append((when, end))
    return found, False


def lag_seconds_one_by_one(
    samples: list[Row], partition: int, at: int, reach: int = REACH
) -> Fraction | None:
    """The end at a time, not rounded."""
    found, falls = samples_around(samples, partition, at)
    before = [s for s in found if s[0] <= at]
    after = [s for s in found if s[0] >= at]
    if not before:
        return None
    if after:
        (t0, e0), (t1, e1) = before[-1], after[0]
        return Fraction(e0) if t0 == t1 else e0 + Fraction(e1 - e0) * (at - t0) / (t1 - t0)
    return None if falls or at - before[-1][0] > reach else Fraction(before[-1][1])


@examples(quick=25)
@given(rows, rows)
def test_the_end_is_on_the_line_between_the_samples(samples: list[Row], commits: list[Row]) -> None:
    partition, at, offset = columns(commits)
    found = compute_lags(partition, at, offset, EndOffsets.from_samples(*columns(samples)), REACH)
    expected = [lag_seconds_one_by_one(samples, p, t) for p, t, _ in commits]
    assert found.row.tolist() == [n for n, end in enumerate(expected) if end is not None]
    for row, end, lag in zip(found.row, found.end, found.lag, strict=True):
        exact, committed = expected[row], commits[row][2]
        assert exact is not None
        assert lag == max(floor(exact) - committed, 0)
        assert end in {floor(exact), max(floor(exact), committed)}


@given(growing, times, st.integers(0, 100))
def test_the_age_is_how_long_ago_a_commit_would_have_had_no_lag(
    samples: list[tuple[int, int]], at: int, offset: int
) -> None:
    triples = [(0, when, end) for when, end in samples]
    found = compute_lags(
        *columns([(0, at, offset)]), ends=EndOffsets.from_samples(*columns(triples)), max_age=REACH
    )
    if not len(found.row):
        return
    (seconds,), (lag,) = found.seconds, found.lag
    if lag == 0:
        assert seconds == 0
    elif np.isnan(seconds):
        assert offset < samples[0][1]
    else:
        then = floor(at - seconds * 1000 - 1e-6)
        passed = [lag_seconds_one_by_one(triples, 0, t) for t in range(then + 1, at + 1)]
        assert all(end is None or end >= offset + 1 for end in passed)
        assert (end := lag_seconds_one_by_one(triples, 0, then)) is None or end < offset + 1


@given(st.lists(st.tuples(st.integers(0, 2), times, st.integers(0, 20)), max_size=12), rows)
def test_owners_are_those_whose_time_it_was(spans: list[Row], asked: list[Row]) -> None:
    """Owners of a partition follow each other: nobody begins before another ends."""
    kept: list[Row] = []
    for p, since, length in sorted(spans):
        if all(k[0] != p or k[2] <= since for k in kept):
            kept.append((p, since, since + length))
    partition, at, _ = columns(asked)
    found = OwnerIntervals.from_intervals(*columns(kept)).find_owner(partition, at)
    for row, (p, t, _) in zip(found, asked, strict=True):
        owners = [n for n, (q, since, until) in enumerate(kept) if q == p and since <= t < until]
        assert owners == ([] if row < 0 else [row])


def burrow_verdict(
    window: list[tuple[int, int, int | None]], now: int, lag: int, recent: int
) -> LagVerdict:
    """The rules as they are told, one window at a time."""
    offsets = [offset for offset, _, _ in window]
    known = [lag for _, _, lag in window if lag is not None]
    if lag == 0:
        return LagVerdict.OK
    if now - window[-1][1] > window[-1][1] - window[0][1] and recent > offsets[-1]:
        return LagVerdict.STOP
    falls = (n for n in range(1, len(offsets)) if offsets[n] < offsets[n - 1])
    if any(max(offsets[n:]) < offsets[n - 1] for n in falls):
        return LagVerdict.REWIND
    if 0 in known or len(known) < 2:
        return LagVerdict.OK
    if len(set(offsets)) == 1:
        return LagVerdict.STALL
    return LagVerdict.WARN if known == sorted(known) else LagVerdict.OK


@examples(quick=25)
@given(st.lists(st.tuples(times, st.integers(-1, 12)), min_size=1, max_size=25), growing, times)
def test_verdicts_are_burrows_at_any_time(
    commits: list[tuple[int, int]], samples: list[tuple[int, int]], now: int
) -> None:
    commits = sorted(commits, key=lambda commit: commit[0])
    triples = [(0, at, end) for at, end in samples]
    ends = EndOffsets.from_samples(*columns(triples))
    rule = BurrowSettings(intervals=4, recent=15, distance=10)
    rows = [(0, at, offset) for at, offset in commits]
    given_commits = GroupCommits(*columns(rows))
    found = compute_statuses(
        "g", [("t", 0)], given_commits, ends, SubscriptionHistory(()), [now], rule
    )

    alive: list[tuple[int, int]] = []
    for at, offset in commits:
        if at <= now:
            alive = [] if offset == DELETED_OFFSET else [*alive, (at, offset)]
    by_span = {at // 10: (at, offset) for at, offset in alive}
    end = ends.at_times(*columns([(0, now, 0)])[:2])
    if not by_span or not end.known[0]:
        assert not found
        return
    lag = {row: int(n) for row, n in zip(*compute_lags(*given_commits, ends)[0:3:2], strict=True)}
    window = [
        (offset, at, lag.get(max(n for n, row in enumerate(commits) if row == (at, offset))))
        for at, offset in list(by_span.values())[-4:]
    ]
    first = min(at for at, _ in samples)
    recent = lag_seconds_one_by_one(triples, 0, max(now - 15, first), reach=60_000)
    assert recent is not None
    left = max(int(end.end[0]) - window[-1][0], 0)
    assert found[0].lag == left
    assert found[0].complete == len(window) / 4
    assert found[0].verdict == burrow_verdict(window, now, left, floor(recent))
