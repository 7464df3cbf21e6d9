"""What came of a group's rebalances, under each policy and over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from rota.replay.advice import CHANGE
from rota.replay.lag import F64
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
    in all of a run.
    """

    step: int
    """The width of a bucket, in milliseconds."""
    in_seconds: bool
    """False: records, because no ages are known."""
    lengths: list[int]
    """How many buckets each run has."""
    lasts: list[float | None]
    """The lag in the last of them; None: it is not known in any."""


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
    seconds, records = _most(rows, spans)
    told: dict[int, Course] = {}
    for place in np.flatnonzero((records >= 0).any(axis=1)).tolist():
        step, in_seconds = spans[place].step, bool((seconds[place] >= 0).any())
        amounts = seconds[place] if in_seconds else records[place]
        lengths, lasts = _runs(amounts, step / 1000 if in_seconds else 0)
        told[place] = Course(step=step, in_seconds=in_seconds, lengths=lengths, lasts=lasts)
    return told


def _most(rows: pa.Table, spans: Sequence[Span]) -> tuple[F64, F64]:
    """The most seconds and records of each group in each of its buckets; -1 where there are none.

    Lag in seconds is largest where a bucket ends, or the stretch in it.
    """
    place, since, until, lag, lag_seconds = (
        whole(rows[name]).to_numpy(zero_copy_only=False)
        for name in (PLACE, "since", "until", "lag", "lag_seconds")
    )
    begin, step = (
        np.array([getattr(span, name) for span in spans], dtype=np.int64)[place]
        for name in ("begin", "step")
    )
    first = np.maximum((since - begin) // step, 0)
    last = np.minimum((until - begin) // step, LAG_POINTS - 1)
    many = np.maximum(last - first + 1, 0)
    seconds, records = (np.full(len(spans) * LAG_POINTS, -1.0) for _ in range(2))
    through = np.cumsum(many)
    pieces = np.searchsorted(through, np.arange(PIECE, through[-1:].sum() + PIECE, PIECE))
    for piece in np.split(np.arange(len(many)), np.unique(pieces)):
        row = np.repeat(piece, many[piece])
        bucket = np.arange(len(row)) - np.repeat(np.cumsum(many[piece]) - many[piece], many[piece])
        bucket += first[row]
        left = np.maximum(until[row] - begin[row] - (bucket + 1) * step[row], 0) / 1000
        into = place[row].astype(np.int64) * LAG_POINTS + bucket
        np.fmax.at(seconds, into, np.maximum(lag_seconds[row] - left, 0))
        np.maximum.at(records, into, np.where(left > 0, 0, lag[row]))
    shape = len(spans), LAG_POINTS
    return seconds.reshape(shape), records.reshape(shape)


def _runs(amounts: F64, rise: float) -> tuple[list[int], list[float | None]]:
    """Runs of buckets in which lag rises evenly: see :class:`Course`."""
    expected = np.where(amounts[1:] < 0, -1, np.maximum(amounts[1:] - rise, 0))
    is_last = np.append(np.abs(expected - amounts[:-1]) > TOLERANCE, [True])
    ends = np.flatnonzero(is_last)
    lengths = np.diff(ends, prepend=-1).tolist()
    lasts = amounts[ends].tolist()
    return lengths, [_rounded(*pair) for pair in zip(lasts, lengths, strict=True)]


def _rounded(amount: float, many: int) -> float | None:
    """As few signs as will do for a picture."""
    if amount < 0:
        return None
    rounded = float(f"{amount:.{FIGURES if many == 1 else FIGURES_OF_MANY}g}")
    return int(rounded) if rounded.is_integer() else rounded
