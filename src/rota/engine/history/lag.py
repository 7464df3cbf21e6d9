"""The lag of a group at each of its commits.

The journal has the committed offsets but not the end offsets: those come from samples. Between two
samples the end offset is taken to have risen evenly, rounded down. A commit is evidence too: a
partition's end offset is at least the offset committed in it, unless the next sample says
otherwise, so lag is never negative. The end offset is not known before the first sample, more than
``reach`` after the last, and where it fell between two samples (the topic was created again, or the
log was truncated).

Lag in seconds is the age, at the commit, of the next record to be read: the time since the end
offset passed it, by the same even rise. It is not known where that was before the first sample.

All data is in columns. A partition is a number, the same in every column of one call; the caller
knows what it stands for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Int64Array: TypeAlias = npt.NDArray[np.int64]
Float64Array: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
#: How long after its last sample a partition's end still counts as known, in milliseconds.
MAX_SAMPLE_AGE = 60_000
_NO_CEILING = np.iinfo(np.int64).max
#: Products beyond this do not fit into 64 bits.
_MAX_EXACT_PRODUCT = float(1 << 62)


class PartitionTimeIndex:
    """Finds the last row of a partition at a time.

    Times that go back within a partition count as the latest time before them.
    """

    def __init__(self, partition: Int64Array, at: Int64Array) -> None:
        """:param partition: ascending; the rows of one are in their order"""
        self._partition = partition
        self._times = np.unique(at)
        # Ranks instead of times: no product of a partition and a time can overflow.
        self._key = np.maximum.accumulate(self._keys(partition, at))

    def _keys(self, partition: Int64Array, at: Int64Array) -> Int64Array:
        rank = np.searchsorted(self._times, at, side="right")
        return partition * (len(self._times) + 1) + rank

    def find_last(self, partition: Int64Array, at: Int64Array) -> Int64Array:
        """Returns the row of the last entry up to each time; -1 if there is none."""
        if not len(self._partition):
            return np.full(len(at), -1, dtype=np.int64)
        row = np.searchsorted(self._key, self._keys(partition, at), side="right") - 1
        return np.where((row >= 0) & (self._partition[row] == partition), row, -1)


class KnownEndOffsets(NamedTuple):
    end: Int64Array
    #: What the end was at most: the next sample's.
    ceiling: Int64Array
    #: The last sample that is not later.
    sample: Int64Array
    known: BoolArray


@dataclass(frozen=True, slots=True)
class EndOffsets:
    """Samples of end offsets, by partition and time."""

    partition: Int64Array
    at: Int64Array
    end: Int64Array
    beginning: Int64Array
    #: Numbers the stretches in which a partition's end never fell.
    stretch: Int64Array
    track: PartitionTimeIndex
    #: All ends that there are, ascending.
    levels: Int64Array
    #: Stretch and end of each sample in one ascending number, by which an offset is found.
    climb: Int64Array

    @classmethod
    def of(
        cls,
        partition: Int64Array,
        at: Int64Array,
        end: Int64Array,
        beginning: Int64Array | None = None,
    ) -> EndOffsets:
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
        climb = _search_key(run, end, levels)
        return cls(
            partition, at, end, beginning, run, PartitionTimeIndex(partition, at), levels, climb
        )

    def at_times(
        self, partition: Int64Array, at: Int64Array, reach: int = MAX_SAMPLE_AGE
    ) -> KnownEndOffsets:
        if not len(self.at):
            none = np.zeros(len(at), dtype=np.int64)
            return KnownEndOffsets(none, none, none - 1, np.zeros(len(at), dtype=bool))
        row = self.track.find_last(partition, at)
        after = np.minimum(row + 1, len(self.at) - 1)
        rising = (row >= 0) & (after > row) & (self.stretch[after] == self.stretch[row])
        fallen = (after > row) & (self.partition[after] == partition) & ~rising
        elapsed = at - self.at[row]
        span = np.where(rising, self.at[after] - self.at[row], 1)
        rise = np.where(rising, self.end[after] - self.end[row], 0)
        known = (row >= 0) & (rising | (elapsed == 0) | (~fallen & (elapsed <= reach)))
        end = self.end[row] + _multiply_divide(rise, np.where(rising, elapsed, 0), span)
        ceiling = np.where(rising | fallen, self.end[row] + rise, _NO_CEILING)
        return KnownEndOffsets(end, ceiling, row, known)

    def end_before(self, sample: Int64Array, at: Int64Array) -> Int64Array:
        """The end at a time before a sample; before the sample's stretch, the stretch's first."""
        first = np.searchsorted(self.stretch, self.stretch[sample])
        return self.at_times(self.partition[sample], np.maximum(at, self.at[first])).end

    def age(self, sample: Int64Array, offset: Int64Array, at: Int64Array) -> Float64Array:
        """How long before a time the end passed an offset, in milliseconds.

        NaN where that was not in the stretch of the sample.
        """
        before, wait = self._crossing(sample, offset)
        return at - self.at[before] - wait

    def passed_at(self, sample: Int64Array, offset: Int64Array) -> Float64Array:
        """When the end passed an offset, in milliseconds since 1970.

        NaN where that was not in the stretch of the sample, and where there is no sample (-1).
        """
        found = np.full(len(sample), np.nan)
        some = np.flatnonzero(sample >= 0)
        before, wait = self._crossing(sample[some], offset[some])
        found[some] = self.at[before] + wait
        return found

    def _crossing(self, sample: Int64Array, offset: Int64Array) -> tuple[Int64Array, Float64Array]:
        """The last sample before the end passed an offset, and how long after it that was; NaN
        where it was not in the stretch of the sample.
        """
        wanted = _search_key(self.stretch[sample], offset, self.levels)
        row = np.searchsorted(self.climb, wanted, side="right")
        row = np.minimum(row, len(self.end) - 1)
        before = np.maximum(row - 1, 0)
        inside = (self.stretch[row] == self.stretch[sample]) & (
            self.stretch[before] == self.stretch[row]
        )
        inside &= (before < row) & (self.end[row] > offset)
        rise = np.where(inside, self.end[row] - self.end[before], 1)
        wait = (offset + 1 - self.end[before]) / rise * (self.at[row] - self.at[before])
        return before, np.where(inside, wait, np.nan)

    def first_at(self) -> Int64Array:
        """Returns the time of the first sample in each sample's stretch."""
        return self.at[np.searchsorted(self.stretch, self.stretch)]

    def last_at(self) -> Int64Array:
        """Returns the time of the last sample in each sample's stretch."""
        return self.at[np.searchsorted(self.stretch, self.stretch, side="right") - 1]

    def deleted(self) -> Int64Array:
        """For each sample the offset below which nothing is there any more, by its stretch so far:
        what is gone stays gone, also where a sample does not know the beginning.
        """
        return running_maximum(self.stretch, self.beginning)

    def last_sample_with(self, sample: Int64Array, offset: Int64Array) -> Int64Array:
        """The last sample in the stretch of a sample before which an offset was not deleted; -1
        where there is none.
        """
        if not len(self.at):
            return np.full(len(sample), -1, dtype=np.int64)
        deleted = self.deleted()
        levels = np.unique(deleted)
        wanted = _search_key(self.stretch[sample], offset, levels)
        row = np.searchsorted(_search_key(self.stretch, deleted, levels), wanted, side="right") - 1
        found = (sample >= 0) & (row >= 0) & (self.stretch[row] == self.stretch[sample])
        return np.where(found, row, -1)

    def first_sample_at(self, sample: Int64Array, at: Int64Array) -> Int64Array:
        """The first sample in the stretch of a sample that is not before a time, or else the last;
        -1 where there is none.
        """
        if not len(self.at):
            return np.full(len(sample), -1, dtype=np.int64)
        before = self.track.find_last(self.partition[sample], at - 1)
        last = np.searchsorted(self.stretch, self.stretch[sample], side="right") - 1
        found = np.minimum(np.maximum(before + 1, sample), last)
        return np.where(sample >= 0, found, -1)


def running_maximum(part: Int64Array, values: Int64Array) -> Int64Array:
    """Returns the running maximum within each group; groups have rising numbers."""
    levels, rank = np.unique(values, return_inverse=True)
    base = part * (len(levels) + 1)
    found: Int64Array = levels[np.maximum.accumulate(base + rank) - base]
    return found


def _search_key(run: Int64Array, end: Int64Array, levels: Int64Array) -> Int64Array:
    """Sorts by stretch, then by end; ranks instead of ends avoid an overflow."""
    return run * (len(levels) + 1) + np.searchsorted(levels, end, side="right")


def _multiply_divide(rise: Int64Array, elapsed: Int64Array, span: Int64Array) -> Int64Array:
    """Returns ``rise * elapsed // span`` without overflow."""
    large = rise.astype(np.float64) * elapsed > _MAX_EXACT_PRODUCT
    exact = np.where(large, 0, rise) * elapsed // span
    return np.where(large, (rise * (elapsed / span)).astype(np.int64), exact)


class CommitLags(NamedTuple):
    """The lag at the commits of partitions with known end offsets."""

    #: The commit's row in the columns given.
    row: Int64Array
    end: Int64Array
    lag: Int64Array
    #: NaN where it is not known.
    seconds: Float64Array


def compute_lags(
    partition: Int64Array,
    at: Int64Array,
    offset: Int64Array,
    ends: EndOffsets,
    reach: int = MAX_SAMPLE_AGE,
) -> CommitLags:
    """Computes the lag at each commit with a known end offset, in commit order."""
    found = ends.at_times(partition, at, reach)
    row = np.flatnonzero(found.known)
    offset, sample = offset[row], found.sample[row]
    end = found.end[row]
    end = np.where(offset <= found.ceiling[row], np.maximum(end, offset), end)
    lag = np.maximum(end - offset, 0)
    if not len(row):
        return CommitLags(row, end, lag, np.zeros(0))
    # What retention took is not read any more: the next record is the first that is there.
    upcoming = np.maximum(offset, ends.deleted()[sample])
    seconds = np.maximum(ends.age(sample, upcoming, at[row]), 0) / 1000
    return CommitLags(row, end, lag, np.where(upcoming >= end, 0.0, seconds))


@dataclass(frozen=True, slots=True)
class OwnerIntervals:
    """The ownership intervals of one group."""

    until: Int64Array
    row: Int64Array
    track: PartitionTimeIndex

    @classmethod
    def from_intervals(
        cls, partition: Int64Array, since: Int64Array, until: Int64Array
    ) -> OwnerIntervals:
        """:param until: the largest number where it has no end"""
        order = np.lexsort((since, partition))
        return cls(until[order], order, PartitionTimeIndex(partition[order], since[order]))

    def find_owner(self, partition: Int64Array, at: Int64Array) -> Int64Array:
        """Returns the row of the interval at each time; -1 if nobody owned the partition."""
        if not len(self.row):
            return np.full(len(at), -1, dtype=np.int64)
        found = self.track.find_last(partition, at)
        return np.where((found >= 0) & (at < self.until[found]), self.row[found], -1)
