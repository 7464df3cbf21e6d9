"""The lag of a group at each of its commits.

The journal has the committed offsets; end offsets come from samples. Between two samples the end
offset rises evenly, rounded down. It is at least the committed offset, unless the next sample is
smaller, so lag is never negative. It is unknown before the first sample, more than ``max_age``
after the last, and where it fell between two samples (the topic was created again, or the log was
truncated). The samples of a partition between two falls are a *run*.

Lag in seconds is the age of the next record to be read: the time from when the end offset passed it
to the commit. It is unknown if that was before the first sample.

All data is in columns. A partition is a number with the same meaning in all columns of one call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Int64Array: TypeAlias = npt.NDArray[np.int64]
Float64Array: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
MAX_SAMPLE_AGE = 60_000  # time for which the last sample of an end offset is valid, in milliseconds
_NO_CEILING = np.iinfo(np.int64).max
_MAX_EXACT_PRODUCT = float(1 << 62)  # products beyond this do not fit into 64 bits


class PartitionTimeIndex:
    """Finds the last row of a partition at a time; a time that goes back counts as the latest."""

    def __init__(self, partition: Int64Array, at: Int64Array) -> None:
        """:param partition: ascending; the rows of one partition are in their order"""
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
    ceiling: Int64Array  # upper bound of the end: the end offset of the next sample
    sample: Int64Array
    known: BoolArray


@dataclass(frozen=True, slots=True)
class EndOffsets:
    partition: Int64Array
    at: Int64Array
    end: Int64Array
    beginning: Int64Array
    run: Int64Array
    index: PartitionTimeIndex
    levels: Int64Array  # all different ends, ascending
    search_key: Int64Array  # run and end of each sample as one ascending search key

    @classmethod
    def from_samples(
        cls,
        partition: Int64Array,
        at: Int64Array,
        end: Int64Array,
        beginning: Int64Array | None = None,
    ) -> EndOffsets:
        """Accepts samples in any order; of several at one time the largest end counts."""
        order = np.lexsort((end, at, partition))
        partition, at, end = partition[order], at[order], end[order]
        beginning = np.zeros_like(end) if beginning is None else beginning[order]
        kept = np.ones(len(at), dtype=bool)
        kept[:-1] = (partition[1:] != partition[:-1]) | (at[1:] != at[:-1])
        partition, at, end, beginning = partition[kept], at[kept], end[kept], beginning[kept]
        starts_run = np.zeros(len(at), dtype=np.int64)
        starts_run[1:] = (partition[1:] != partition[:-1]) | (end[1:] < end[:-1])
        run = np.cumsum(starts_run)
        levels = np.unique(end)
        key, index = _search_key(run, end, levels), PartitionTimeIndex(partition, at)
        return cls(partition, at, end, beginning, run, index, levels, key)

    def at_times(
        self, partition: Int64Array, at: Int64Array, max_age: int = MAX_SAMPLE_AGE
    ) -> KnownEndOffsets:
        if not len(self.at):
            none = np.zeros(len(at), dtype=np.int64)
            return KnownEndOffsets(none, none, none - 1, np.zeros(len(at), dtype=bool))
        row = self.index.find_last(partition, at)
        after = np.minimum(row + 1, len(self.at) - 1)
        rising = (row >= 0) & (after > row) & (self.run[after] == self.run[row])
        fallen = (after > row) & (self.partition[after] == partition) & ~rising
        elapsed = at - self.at[row]
        span = np.where(rising, self.at[after] - self.at[row], 1)
        rise = np.where(rising, self.end[after] - self.end[row], 0)
        known = (row >= 0) & (rising | (elapsed == 0) | (~fallen & (elapsed <= max_age)))
        end = self.end[row] + _multiply_divide(rise, np.where(rising, elapsed, 0), span)
        ceiling = np.where(rising | fallen, self.end[row] + rise, _NO_CEILING)
        return KnownEndOffsets(end, ceiling, row, known)

    def arrival_rates(self) -> dict[int, float]:
        """Returns how many records arrive in a millisecond, by partition, on average."""
        if not len(self.at):
            return {}
        numbers, first = np.unique(self.partition, return_index=True)
        last = np.append(first[1:], len(self.partition)) - 1
        rises = np.zeros(len(self.at), dtype=np.int64)
        rises[1:] = np.where(self.run[1:] == self.run[:-1], self.end[1:] - self.end[:-1], 0)
        total = np.add.reduceat(rises, first)
        time = self.at[last] - self.at[first]
        known = time > 0
        rates = (total[known] / time[known]).tolist()
        return dict(zip(numbers[known].tolist(), rates, strict=True))

    def end_before(self, sample: Int64Array, at: Int64Array) -> Int64Array:
        """Returns the end at a time before a sample, or the first end of the sample's run."""
        first = np.searchsorted(self.run, self.run[sample])
        return self.at_times(self.partition[sample], np.maximum(at, self.at[first])).end

    def age(self, sample: Int64Array, offset: Int64Array, at: Int64Array) -> Float64Array:
        """Returns the milliseconds since the end passed an offset; NaN outside of the run."""
        before, wait = self._crossing(sample, offset)
        return at - self.at[before] - wait

    def passed_at(self, sample: Int64Array, offset: Int64Array) -> Float64Array:
        """Returns when the end passed an offset; NaN outside of the sample's run or without one."""
        times = np.full(len(sample), np.nan)
        known = np.flatnonzero(sample >= 0)
        before, wait = self._crossing(sample[known], offset[known])
        times[known] = self.at[before] + wait
        return times

    def _crossing(self, sample: Int64Array, offset: Int64Array) -> tuple[Int64Array, Float64Array]:
        """Returns the last sample before the end passed an offset, and the time from it, or NaN."""
        key = _search_key(self.run[sample], offset, self.levels)
        row = np.searchsorted(self.search_key, key, side="right")
        row = np.minimum(row, len(self.end) - 1)
        before = np.maximum(row - 1, 0)
        inside = (before < row) & (self.end[row] > offset)
        inside &= self.run[row] == self.run[sample]
        inside &= self.run[before] == self.run[row]
        rise = np.where(inside, self.end[row] - self.end[before], 1)
        wait = (offset + 1 - self.end[before]) / rise * (self.at[row] - self.at[before])
        return before, np.where(inside, wait, np.nan)

    def first_at(self) -> Int64Array:
        return self.at[np.searchsorted(self.run, self.run)]

    def last_at(self) -> Int64Array:
        return self.at[np.searchsorted(self.run, self.run, side="right") - 1]

    def deleted(self) -> Int64Array:
        """Returns the offset below which all records were deleted: the run's largest beginning."""
        return running_maximum(self.run, self.beginning)

    def last_sample_with(self, sample: Int64Array, offset: Int64Array) -> Int64Array:
        """Returns the last sample of a sample's run that has an offset; -1 if none has."""
        if not len(self.at):
            return np.full(len(sample), -1, dtype=np.int64)
        deleted = self.deleted()
        levels = np.unique(deleted)
        key = _search_key(self.run[sample], offset, levels)
        row = np.searchsorted(_search_key(self.run, deleted, levels), key, side="right") - 1
        exists = (sample >= 0) & (row >= 0) & (self.run[row] == self.run[sample])
        return np.where(exists, row, -1)

    def first_sample_at(self, sample: Int64Array, at: Int64Array) -> Int64Array:
        """The first sample of a sample's run at or after a time, else the last; -1 without one."""
        if not len(self.at):
            return np.full(len(sample), -1, dtype=np.int64)
        before = self.index.find_last(self.partition[sample], at - 1)
        last = np.searchsorted(self.run, self.run[sample], side="right") - 1
        first = np.minimum(np.maximum(before + 1, sample), last)
        return np.where(sample >= 0, first, -1)


def running_maximum(group: Int64Array, values: Int64Array) -> Int64Array:
    """Returns the running maximum within each group; groups have rising numbers."""
    levels, rank = np.unique(values, return_inverse=True)
    base = group * (len(levels) + 1)
    maximum: Int64Array = levels[np.maximum.accumulate(base + rank) - base]
    return maximum


def _search_key(run: Int64Array, end: Int64Array, levels: Int64Array) -> Int64Array:
    """Returns a key that sorts by run, then by end; ranks instead of ends avoid an overflow."""
    return run * (len(levels) + 1) + np.searchsorted(levels, end, side="right")


def _multiply_divide(rise: Int64Array, elapsed: Int64Array, span: Int64Array) -> Int64Array:
    large = rise.astype(np.float64) * elapsed > _MAX_EXACT_PRODUCT
    exact = np.where(large, 0, rise) * elapsed // span
    return np.where(large, (rise * (elapsed / span)).astype(np.int64), exact)


class CommitLags(NamedTuple):
    """The lag at the commits with known end offsets."""

    row: Int64Array
    end: Int64Array
    lag: Int64Array
    seconds: Float64Array  # naN if unknown


def compute_lags(
    partition: Int64Array,
    at: Int64Array,
    offset: Int64Array,
    ends: EndOffsets,
    max_age: int = MAX_SAMPLE_AGE,
) -> CommitLags:
    """Computes the lag at each commit with a known end offset, in commit order."""
    end_offsets = ends.at_times(partition, at, max_age)
    row = np.flatnonzero(end_offsets.known)
    offset, sample = offset[row], end_offsets.sample[row]
    end = end_offsets.end[row]
    end = np.where(offset <= end_offsets.ceiling[row], np.maximum(end, offset), end)
    lag = np.maximum(end - offset, 0)
    if not len(row):
        return CommitLags(row, end, lag, np.zeros(0))
    # Deleted records are not read any more: the next record is the first available one.
    upcoming = np.maximum(offset, ends.deleted()[sample])
    seconds = np.maximum(ends.age(sample, upcoming, at[row]), 0) / 1000
    return CommitLags(row, end, lag, np.where(upcoming >= end, 0.0, seconds))


@dataclass(frozen=True, slots=True)
class OwnerIntervals:
    until: Int64Array
    row: Int64Array
    index: PartitionTimeIndex

    @classmethod
    def from_intervals(
        cls, partition: Int64Array, since: Int64Array, until: Int64Array
    ) -> OwnerIntervals:
        """:param until: the largest int64 if the ownership has no end"""
        order = np.lexsort((since, partition))
        return cls(until[order], order, PartitionTimeIndex(partition[order], since[order]))

    def find_owner(self, partition: Int64Array, at: Int64Array) -> Int64Array:
        """Returns the row of the interval at each time; -1 if nobody owned the partition."""
        if not len(self.row):
            return np.full(len(at), -1, dtype=np.int64)
        interval = self.index.find_last(partition, at)
        return np.where((interval >= 0) & (at < self.until[interval]), self.row[interval], -1)
