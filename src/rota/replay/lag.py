"""How far a group was behind, at each of its commits.

The journal says what was committed, not how long the partitions were then: that comes from samples
of their ends. Between two samples the end is taken to have risen evenly, rounded down. A commit is
evidence of its own: a partition is at least as long as the offset committed in it, unless the next
sample says otherwise, so lag is never negative. Nothing is said before the first sample, more than
``reach`` after the last, and where the end fell between two samples (the topic was made anew, or
the log was cut): there the end is not known.

Lag in seconds is the age, at the commit, of the next record to be read: the time since the end
passed it, by the same even rise. It is not known where that was before the first sample.

Everything is columns. A partition is a number, the same in every column of one call; what it
stands for is the caller's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

I64: TypeAlias = npt.NDArray[np.int64]
F64: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

REACH = 60_000
"""How long after its last sample a partition's end still counts as known, in milliseconds."""
_ALWAYS = np.iinfo(np.int64).max
_EXACT = float(1 << 62)
"""Products beyond this do not fit into 64 bits."""


class Track:
    """Rows by partition and time, for finding the last one at a time.

    Times that go back within a partition count as the latest time before them.
    """

    def __init__(self, partition: I64, at: I64) -> None:
        """:param partition: ascending; the rows of one are in their order"""
        self._partition = partition
        self._times = np.unique(at)
        # Ranks instead of times: no product of a partition and a time can overflow.
        self._key = np.maximum.accumulate(self._keys(partition, at))

    def _keys(self, partition: I64, at: I64) -> I64:
        rank = np.searchsorted(self._times, at, side="right")
        return partition * (len(self._times) + 1) + rank

    def last(self, partition: I64, at: I64) -> I64:
        """The row of the last entry of a partition that is not later; -1 where there is none."""
        if not len(self._partition):
            return np.full(len(at), -1, dtype=np.int64)
        row = np.searchsorted(self._key, self._keys(partition, at), side="right") - 1
        return np.where((row >= 0) & (self._partition[row] == partition), row, -1)


class Known(NamedTuple):
    """Ends at some times."""

    end: I64
    ceiling: I64
    """What the end was at most: the next sample's."""
    sample: I64
    """The last sample that is not later."""
    known: Bools


@dataclass(frozen=True, slots=True)
class Ends:
    """Samples of partitions' ends, by partition and time."""

    partition: I64
    at: I64
    end: I64
    beginning: I64
    run: I64
    """Numbers the stretches in which a partition's end never fell."""
    track: Track
    levels: I64
    """All ends that there are, ascending."""
    climb: I64
    """Stretch and end of each sample in one ascending number, by which an offset is found."""

    @classmethod
    def of(cls, partition: I64, at: I64, end: I64, beginning: I64 | None = None) -> Ends:
        """Samples in any order; of several at one time the longest counts.

        :param beginning: the first offset that is there; 0 where that is not known
        """
        order = np.lexsort((end, at, partition))
        partition, at, end = partition[order], at[order], end[order]
        beginning = np.zeros_like(end) if beginning is None else beginning[order]
        kept = np.ones(len(at), dtype=bool)
        kept[:-1] = (partition[1:] != partition[:-1]) | (at[1:] != at[:-1])
        partition, at, end, beginning = partition[kept], at[kept], end[kept], beginning[kept]
        fresh = np.zeros(len(at), dtype=np.int64)
        fresh[1:] = (partition[1:] != partition[:-1]) | (end[1:] < end[:-1])
        run = np.cumsum(fresh)
        levels = np.unique(end)
        climb = _climbed(run, end, levels)
        return cls(partition, at, end, beginning, run, Track(partition, at), levels, climb)

    def when(self, partition: I64, at: I64, reach: int = REACH) -> Known:
        """The ends of partitions at times."""
        if not len(self.at):
            none = np.zeros(len(at), dtype=np.int64)
            return Known(none, none, none - 1, np.zeros(len(at), dtype=bool))
        row = self.track.last(partition, at)
        after = np.minimum(row + 1, len(self.at) - 1)
        rising = (row >= 0) & (after > row) & (self.run[after] == self.run[row])
        fallen = (after > row) & (self.partition[after] == partition) & ~rising
        elapsed = at - self.at[row]
        span = np.where(rising, self.at[after] - self.at[row], 1)
        rise = np.where(rising, self.end[after] - self.end[row], 0)
        known = (row >= 0) & (rising | (elapsed == 0) | (~fallen & (elapsed <= reach)))
        end = self.end[row] + _share(rise, np.where(rising, elapsed, 0), span)
        ceiling = np.where(rising | fallen, self.end[row] + rise, _ALWAYS)
        return Known(end, ceiling, row, known)

    def earlier(self, sample: I64, at: I64) -> I64:
        """The end at a time before a sample; before the sample's stretch, the stretch's first."""
        first = np.searchsorted(self.run, self.run[sample])
        return self.when(self.partition[sample], np.maximum(at, self.at[first])).end

    def age(self, sample: I64, offset: I64, at: I64) -> F64:
        """How long before a time the end passed an offset, in milliseconds.

        NaN where that was not in the stretch of the sample.
        """
        before, wait = self._crossing(sample, offset)
        return at - self.at[before] - wait

    def passed(self, sample: I64, offset: I64) -> F64:
        """When the end passed an offset, in milliseconds since 1970.

        NaN where that was not in the stretch of the sample, and where there is no sample (-1).
        """
        found = np.full(len(sample), np.nan)
        some = np.flatnonzero(sample >= 0)
        before, wait = self._crossing(sample[some], offset[some])
        found[some] = self.at[before] + wait
        return found

    def _crossing(self, sample: I64, offset: I64) -> tuple[I64, F64]:
        """The last sample before the end passed an offset, and how long after it that was; NaN
        where it was not in the stretch of the sample.
        """
        wanted = _climbed(self.run[sample], offset, self.levels)
        row = np.searchsorted(self.climb, wanted, side="right")
        row = np.minimum(row, len(self.end) - 1)
        before = np.maximum(row - 1, 0)
        inside = (self.run[row] == self.run[sample]) & (self.run[before] == self.run[row])
        inside &= (before < row) & (self.end[row] > offset)
        rise = np.where(inside, self.end[row] - self.end[before], 1)
        wait = (offset + 1 - self.end[before]) / rise * (self.at[row] - self.at[before])
        return before, np.where(inside, wait, np.nan)

    def first_at(self) -> I64:
        """For each sample the time of the first one in its stretch."""
        return self.at[np.searchsorted(self.run, self.run)]

    def last_at(self) -> I64:
        """For each sample the time of the last one in its stretch."""
        return self.at[np.searchsorted(self.run, self.run, side="right") - 1]

    def deleted(self) -> I64:
        """For each sample the offset below which nothing is there any more, by its stretch so far:
        what is gone stays gone, also where a sample does not know the beginning.
        """
        return highest(self.run, self.beginning)

    def holding(self, sample: I64, offset: I64) -> I64:
        """The last sample in the stretch of a sample before which an offset was not deleted; -1
        where there is none.
        """
        if not len(self.at):
            return np.full(len(sample), -1, dtype=np.int64)
        deleted = self.deleted()
        levels = np.unique(deleted)
        wanted = _climbed(self.run[sample], offset, levels)
        row = np.searchsorted(_climbed(self.run, deleted, levels), wanted, side="right") - 1
        found = (sample >= 0) & (row >= 0) & (self.run[row] == self.run[sample])
        return np.where(found, row, -1)

    def by(self, sample: I64, at: I64) -> I64:
        """The first sample in the stretch of a sample that is not before a time, or else the last;
        -1 where there is none.
        """
        if not len(self.at):
            return np.full(len(sample), -1, dtype=np.int64)
        before = self.track.last(self.partition[sample], at - 1)
        last = np.searchsorted(self.run, self.run[sample], side="right") - 1
        found = np.minimum(np.maximum(before + 1, sample), last)
        return np.where(sample >= 0, found, -1)


def highest(part: I64, values: I64) -> I64:
    """For each value the highest so far in its part; parts are numbered in rising order."""
    levels, rank = np.unique(values, return_inverse=True)
    base = part * (len(levels) + 1)
    found: I64 = levels[np.maximum.accumulate(base + rank) - base]
    return found


def _climbed(run: I64, end: I64, levels: I64) -> I64:
    """By stretch, then by end; ranks instead of ends, so that no product overflows."""
    return run * (len(levels) + 1) + np.searchsorted(levels, end, side="right")


def _share(rise: I64, elapsed: I64, span: I64) -> I64:
    """``rise * elapsed // span``, also where the product is too large to be exact."""
    large = rise.astype(np.float64) * elapsed > _EXACT
    exact = np.where(large, 0, rise) * elapsed // span
    return np.where(large, (rise * (elapsed / span)).astype(np.int64), exact)


class Lags(NamedTuple):
    """The lag at commits whose partition's end is known."""

    row: I64
    """The commit's row in the columns given."""
    end: I64
    lag: I64
    seconds: F64
    """NaN where it is not known."""


def lags(partition: I64, at: I64, offset: I64, ends: Ends, reach: int = REACH) -> Lags:
    """The lag at each commit that can be told, in the order of the commits."""
    found = ends.when(partition, at, reach)
    row = np.flatnonzero(found.known)
    offset, sample = offset[row], found.sample[row]
    end = found.end[row]
    end = np.where(offset <= found.ceiling[row], np.maximum(end, offset), end)
    lag = np.maximum(end - offset, 0)
    if not len(row):
        return Lags(row, end, lag, np.zeros(0))
    # What retention took is not read any more: the next record is the first that is there.
    upcoming = np.maximum(offset, ends.deleted()[sample])
    seconds = np.maximum(ends.age(sample, upcoming, at[row]), 0) / 1000
    return Lags(row, end, lag, np.where(upcoming >= end, 0.0, seconds))


@dataclass(frozen=True, slots=True)
class Owners:
    """Who owned which partition from when to when: the intervals of one group."""

    until: I64
    row: I64
    track: Track

    @classmethod
    def of(cls, partition: I64, since: I64, until: I64) -> Owners:
        """:param until: the largest number where it has no end"""
        order = np.lexsort((since, partition))
        return cls(until[order], order, Track(partition[order], since[order]))

    def at(self, partition: I64, at: I64) -> I64:
        """The row of the interval that a time falls into; -1 where nobody owned the partition."""
        if not len(self.row):
            return np.full(len(at), -1, dtype=np.int64)
        found = self.track.last(partition, at)
        return np.where((found >= 0) & (at < self.until[found]), self.row[found], -1)
