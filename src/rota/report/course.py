"""What came of a group's rebalances, under each policy and over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from rota.replay.advice import CHANGE
from rota.replay.lag import F64, I64, Bools
from rota.report.shelf import PLACE, placed, whole
from rota.report.story import Group

LAG_POINTS = 240
"""Lag is drawn as the most of each of so many buckets of time."""
PIECE = 1 << 22
"""Stretches in buckets that are gone through at a time."""
FIGURES, FIGURES_OF_MANY = 3, 5
"""To which lag is rounded: that of one bucket, and that from which others are reckoned."""
TOLERANCE = 0.001
"""Seconds."""
SUMMED = ("rebalances", "stopped", "moved", "moved_min", "needless", "idle_members", "spread")


@dataclass(frozen=True, slots=True)
class Span:
    """The time that a group's charts show, in milliseconds."""

    begin: int
    end: int

    @property
    def step(self) -> int:
        """The width of a bucket of lag."""
        return -(-(self.end - self.begin + 1) // LAG_POINTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The most lag of a group's partitions in each bucket of time, as runs of buckets.

    In a run lag rises as time passes, up to its last bucket: by the width of a bucket, from 0 on.
    That is what a partition does that stands still, and what no lag is. Lag in records is the same
    in all of a run, and known where a stretch ends.
    """

    step: int
    """The width of a bucket, in milliseconds."""
    in_seconds: bool
    """False: records, because no ages are known."""
    lengths: list[int]
    """How many buckets each run has."""
    lasts: list[float | None]
    """The lag in the last of them; None: it is not known in any."""
    at_least: list[bool]
    """Of each run: lag is at least so much, as the record was there before the first sample."""


def under_advice(whatif: pa.Table, groups: Sequence[Group]) -> pa.Table:
    """The rebalances that there would be under the policies that are advised; ``at``: when."""
    advised = [group.policy if group.verdict == CHANGE else None for group in groups]
    found = placed(whatif, [group.name for group in groups])
    policies = pa.array(advised, pa.string()).take(whole(found[PLACE]))
    wanted = compute.equal(whole(found["policy"]), policies)
    happening = found.filter(compute.and_(whole(found["happens"]), wanted))
    return happening.drop_columns([PLACE, "at"]).rename_columns({"happens_at": "at"})


def totals(whatif: pa.Table, names: Sequence[str]) -> dict[int, list[list[Any]]]:
    """What each policy costs a group, by the group's place: the policy in use first, then the least
    damage. A row is the policy, whether it is the one in use, and :data:`SUMMED`, summed as
    :func:`rota.replay.advice.totals` does.
    """
    rows = placed(whatif, names)
    happens = compute.cast(rows["happens"], pa.int64())
    numbers = {
        name: compute.multiply(compute.cast(rows[name], pa.int64()), happens)
        for name in ("moved", "moved_min", "stopped", "idle_members", "spread")
    }
    more = compute.subtract(numbers["moved"], numbers["moved_min"])
    numbers |= {"rebalances": happens, "needless": compute.max_element_wise(more, 0)}
    keys = {name: rows[name] for name in (PLACE, "policy", "actual")}
    sums = pa.table(keys | numbers).group_by(list(keys))
    found = sums.aggregate([(name, "sum") for name in SUMMED])
    columns = [found[name] for name in (*keys, *(f"{name}_sum" for name in SUMMED))]
    told: dict[int, list[list[Any]]] = {}
    for place, *row in sorted(zip(*(one.to_pylist() for one in columns), strict=True), key=_rank):
        told.setdefault(place, []).append(row)
    return told


def _rank(row: tuple[Any, ...]) -> tuple[Any, ...]:
    place, policy, actual, rebalances, stopped, _, _, needless, *_ = row
    return (place, not actual, stopped + needless, rebalances, policy)


def lags(stretches: pa.Table, names: Sequence[str], spans: Sequence[Span]) -> dict[int, Course]:
    """The lag of each group that has any in its time, by the group's place.

    :param stretches: :data:`rota.report.between.STRETCHES`
    """
    rows = placed(stretches, names)
    seconds, records, floor = _most(rows, spans)
    told: dict[int, Course] = {}
    known = ((seconds >= 0) | (records >= 0)).any(axis=1)
    for place in np.flatnonzero(known).tolist():
        step, in_seconds = spans[place].step, bool((seconds[place] >= 0).any())
        amounts = seconds[place] if in_seconds else records[place]
        is_floor = floor[place] & in_seconds
        ends = _run_ends(amounts, is_floor, step / 1000 if in_seconds else 0)
        lengths = np.diff(ends, prepend=-1).tolist()
        lasts = [_rounded(*pair) for pair in zip(amounts[ends].tolist(), lengths, strict=True)]
        told[place] = Course(
            step=step,
            in_seconds=in_seconds,
            lengths=lengths,
            lasts=lasts,
            at_least=is_floor[ends].tolist(),
        )
    return told


def _most(rows: pa.Table, spans: Sequence[Span]) -> tuple[F64, F64, Bools]:
    """The most seconds and records of each group in each of its buckets, -1 where there are none;
    and where the seconds are only known to be at least so many.

    Lag in seconds is largest where a bucket ends, or the stretch in it. Lag in records is known
    where a stretch ends.
    """
    place, since, until, lag, lag_seconds, at_least = (
        whole(rows[name]).to_numpy(zero_copy_only=False)
        for name in (PLACE, "since", "until", "lag", "lag_seconds", "at_least")
    )
    begin, step = (
        np.array([getattr(span, name) for span in spans], dtype=np.int64)[place]
        for name in ("begin", "step")
    )
    first = np.maximum((since - begin) // step, 0)
    last = np.minimum((until - begin) // step, LAG_POINTS - 1)
    many = np.maximum(last - first + 1, 0)
    exact, floor, records = (np.full(len(spans) * LAG_POINTS, -1.0) for _ in range(3))
    through = np.cumsum(many)
    pieces = np.searchsorted(through, np.arange(PIECE, through[-1:].sum() + PIECE, PIECE))
    for piece in np.split(np.arange(len(many)), np.unique(pieces)):
        row = np.repeat(piece, many[piece])
        bucket = np.arange(len(row)) - np.repeat(np.cumsum(many[piece]) - many[piece], many[piece])
        bucket += first[row]
        after = until[row] - begin[row] - (bucket + 1) * step[row]
        left, is_end = np.maximum(after, 0) / 1000, after < 0
        into = place[row].astype(np.int64) * LAG_POINTS + bucket
        seconds, is_floor = np.maximum(lag_seconds[row] - left, 0), at_least[row]
        np.fmax.at(exact, into[~is_floor], seconds[~is_floor])
        np.fmax.at(floor, into[is_floor], seconds[is_floor])
        np.maximum.at(records, into[is_end], lag[row[is_end]])
    shape = len(spans), LAG_POINTS
    most = np.maximum(exact, floor)
    return most.reshape(shape), records.reshape(shape), (floor > exact).reshape(shape)


def _run_ends(amounts: F64, is_floor: Bools, rise: float) -> I64:
    """The last bucket of each run in which lag rises evenly: see :class:`Course`."""
    expected = np.where(amounts[1:] < 0, -1, np.maximum(amounts[1:] - rise, 0))
    is_last = np.abs(expected - amounts[:-1]) > TOLERANCE
    is_last |= is_floor[1:] != is_floor[:-1]
    return np.flatnonzero(np.append(is_last, [True]))


def _rounded(amount: float, many: int) -> float | None:
    """As few signs as will do for a picture."""
    if amount < 0:
        return None
    rounded = float(f"{amount:.{FIGURES if many == 1 else FIGURES_OF_MANY}g}")
    return int(rounded) if rounded.is_integer() else rounded
