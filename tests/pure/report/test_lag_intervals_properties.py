"""Lag from commit to commit over any commits, samples and owners, beside the plainest way of
finding it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rota.report.lag_intervals import CommitCoverage
from tests.support.examples import examples
from tests.support.lag_tables import LagHistory, Where

T: Where = ("t", 0)
Sampled = tuple[Where, int, int, int | None]
times = st.integers(0, 100)
offsets = st.integers(0, 40)
groups = st.sampled_from("ggh")
places: st.SearchStrategy[Where] = st.sampled_from([T, T, T, ("t", 1), ("u", 0)])


def cumulative_samples(steps: list[tuple[Where, int, int, int | None]]) -> list[Sampled]:
    """Ends that rise by steps, and now and then begin anew; a beginning is behind its end."""
    ends: dict[Where, int] = {}
    found: list[Sampled] = []
    for where, at, rise, behind in sorted(steps, key=lambda step: step[1]):
        ends[where] = ends.get(where, 0) + rise if rise else 0
        low = None if behind is None else max(ends[where] - behind, 0)
        found.append((where, at, ends[where], low))
    return found


scenes = st.builds(
    LagHistory,
    commits=st.lists(
        st.tuples(groups, places, times, st.none() | offsets | offsets | offsets), max_size=14
    ),
    samples=st.lists(
        st.tuples(places, times, st.integers(0, 12), st.none() | st.integers(0, 20)),
        max_size=16,
        unique_by=lambda sample: sample[:2],
    ).map(cumulative_samples),
    owned=st.lists(
        st.tuples(groups, places, times, st.none() | times),
        max_size=6,
        unique_by=lambda span: span[:3],
    ),
    seen=st.builds(
        CommitCoverage,
        polled_groups=st.sets(groups, max_size=1),
        since=st.none() | times,
        complete_until=st.none() | times,
    ),
)
#: When, end, beginning.
Sample = tuple[int, int, int]


def sample_runs(case: LagHistory, where: Where) -> list[list[Sample]]:
    """A partition's samples, apart where the end fell."""
    mine = sorted((at, end, low or 0) for w, at, end, low in case.samples if w == where)
    found: list[list[Sample]] = []
    for sample in mine:
        if not found or sample[1] < found[-1][-1][1]:
            found.append([])
        found[-1].append(sample)
    return found


def time_at_offset(run: list[Sample], offset: int) -> float | None:
    """When the end passed an offset."""
    for (t0, e0, _), (t1, e1, _) in pairwise(run):
        if e0 <= offset < e1:
            return t0 + (offset + 1 - e0) / (e1 - e0) * (t1 - t0)
    return None


def owned_until(case: LagHistory, group: str, where: Where, before: float) -> float:
    mine = [span for span in case.owned if span[:2] == (group, where) and span[2] <= before]
    if not mine:
        return -math.inf
    return max(math.inf if span[3] is None else span[3] for span in mine)


def waited_until(
    case: LagHistory, row: dict[str, Any], following: tuple[int, int | None] | None
) -> float:
    """Until when the record at a committed offset is sure to have waited."""
    group, where, at = row["group"], (row["topic"], row["partition"]), row["at"]
    run = [run for run in sample_runs(case, where) if run[0][0] <= at][-1]
    later = [run[0][0] for run in sample_runs(case, where) if run[0][0] > at]
    until: float = math.inf
    if following is not None:
        until = float(following[0])
        if group in case.seen.polled_groups:
            asked = [t for each in sample_runs(case, where) for t, _, _ in each if t < until]
            until = max(asked, default=at)
        if later and later[0] <= following[0]:
            until = run[-1][0]
    if case.seen.complete_until is not None:
        until = min(until, case.seen.complete_until)
    if following is None or following[1] is None:
        until = min(until, run[-1][0], owned_until(case, group, where, until))
    return until


def brought(case: LagHistory) -> dict[int, dict[str, Any] | None]:
    """The last commits before lag is told, as they stand when it begins to be, by their places;
    None: of that nothing is sure.
    """
    found: dict[int, dict[str, Any] | None] = {}
    for (_, where), row in case.earlier().items():
        every = sample_runs(case, where)
        first, offset = every[0][0], row["offset"]
        at = max(row["at"], first[0], case.seen.since or 0)
        then = [run for run in every if run[0][0] <= max(row["at"], first[0])][-1]
        now = [run for run in every if run[0][0] <= at][-1]
        end, most = end_at(now, at, is_last=now is every[-1])
        is_sure = then is now and end is not None
        is_sure &= offset <= (first[1] if row["at"] < first[0] else most)
        lag = max((end or 0) - offset, 0)
        found[row["journal_offset"]] = row | {"at": at, "lag": lag} if is_sure else None
    return found


def end_at(run: list[Sample], at: int, *, is_last: bool) -> tuple[int | None, float]:
    """The end at a time, by an even rise, and what it was at most; None: it is not known."""
    for (t0, e0, _), (t1, e1, _) in pairwise(run):
        if t0 <= at < t1:
            return e0 + (e1 - e0) * (at - t0) // (t1 - t0), e1
    t, end, _ = run[-1]
    if is_last:
        return end, math.inf
    return (end if t == at else None), end


def waiting(
    run: list[Sample], at: int, offset: int, until: float
) -> Iterator[tuple[float, float, int]]:
    """From when to when which offset was the first unread one that is sure to be there: what a
    sample has was there at every sample before.
    """
    since, before = float(at), at
    oldest = max([offset, *(low for t, _, low in run if t <= at)])
    if any(t == until for t, _, _ in run if t <= at):
        yield since, until, oldest
        return
    for t, _, low in run:
        if t <= at:
            continue
        if low > oldest:
            yield since, before, oldest
            since, oldest = before, low
        before = t
        if t >= until:
            break
    yield since, until, oldest


def intervals_one_by_one(case: LagHistory) -> list[tuple[Any, ...]]:
    """Every stretch: where, from when to when, seconds, whether it is at least so much."""
    found = []
    rows: dict[int, dict[str, Any] | None] = {
        row["journal_offset"]: row for row in _milliseconds(case)
    }
    earlier = brought(case)
    rows |= earlier
    for order, row in rows.items():
        if row is None:
            continue
        group, where = row["group"], (row["topic"], row["partition"])
        following = next(
            (
                ((rows.get(place) or {"at": at})["at"], offset)
                for place, (g, w, at, offset) in enumerate(case.commits)
                if place > order and (g, w) == (group, where) and (place in rows or offset is None)
            ),
            None,
        )
        at, offset, until = row["at"], row["offset"], waited_until(case, row, following)
        if order in earlier and until < at:
            continue
        until = max(until, float(at))
        run = [run for run in sample_runs(case, where) if run[0][0] <= at][-1]
        for since, upto, oldest in waiting(run, at, offset, until):
            was_there = row["lag"] > 0 and oldest < offset + row["lag"]
            written = time_at_offset(run, oldest)
            at_least = was_there and written is None
            if at_least:
                written = run[0][0]
            seconds: float | None = 0.0 if written is None else max(upto - written, 0) / 1000
            if at_least and not seconds:
                seconds, at_least = None, False
            found.append((group, *where, since, upto, seconds, at_least))
    return sorted(found, key=sort_key)


def sort_key(row: tuple[Any, ...]) -> tuple[Any, ...]:
    *key, seconds, at_least = row
    return (*key, -1 if seconds is None else round(seconds, 9), at_least)


def _milliseconds(case: LagHistory) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = case.lag().to_pylist()
    return [row | {"at": round(row["at"].timestamp() * 1000)} for row in rows]


def is_near(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, abs_tol=1e-6)


@examples(quick=25)
@given(scenes)
def test_stretches_are_those_that_a_loop_would_find(case: LagHistory) -> None:
    columns = ("group", "topic", "partition", "since", "until", "lag_seconds", "at_least")
    told = sorted((tuple(row[name] for name in columns) for row in case.intervals()), key=sort_key)
    expected = intervals_one_by_one(case)
    assert len(told) == len(expected)
    for ours, theirs in zip(told, expected, strict=True):
        assert (ours[:5], ours[6]) == (theirs[:5], theirs[6])
        assert is_near(ours[5], theirs[5]), (ours, theirs)


@examples(quick=25)
@given(scenes)
def test_lag_is_never_less_than_at_the_commit(case: LagHistory) -> None:
    """Of what a commit knows, nothing is lost on the way to the report."""
    most: dict[tuple[str, str, int], float] = {}
    for row in case.intervals():
        key = row["group"], row["topic"], row["partition"]
        most[key] = max(most.get(key, 0.0), row["lag_seconds"] or 0.0)
        assert row["until"] >= row["since"]
        assert row["lag"] >= 0
    for row in case.lag().to_pylist():
        key = row["group"], row["topic"], row["partition"]
        assert most[key] >= (row["lag_seconds"] or 0.0) - 1e-6


@examples(quick=25)
@given(scenes, st.permutations(range(20)))
def test_samples_of_other_partitions_change_nothing(case: LagHistory, order: list[int]) -> None:
    """Each partition alone is told as it is told among others."""
    whole = case.intervals()
    for where in {where for _, where, _, _ in case.commits}:
        alone = LagHistory(
            commits=[
                commit if commit[1] == where else ("nobody", ("none", 9), *commit[2:])
                for commit in case.commits
            ],
            samples=[case.samples[n] for n in order if n < len(case.samples)],
            owned=[span for span in case.owned if span[1] == where],
            seen=case.seen,
        )
        mine = [row for row in whole if (row["topic"], row["partition"]) == where]
        assert [row for row in alone.intervals() if row["group"] != "nobody"] == mine
