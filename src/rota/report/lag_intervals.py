"""Lag between commits: how long the oldest unread record had been waiting, and the worst lag of
each group.

At a commit the lag is smallest. If a group reads nothing, it has no commits while its lag grows,
and gold/lag, which has a row for every commit, does not show that time. A lag interval goes from
one commit to the next, and its lag is the lag just before the next commit. After a partition's last
commit, and before its offset is deleted, the interval goes on to the last sample of the end, for as
long as a member of the group owns the partition. gold/lag has no commits before the first sample or
before ``--since``: the last of these commits begins an interval at that time.

An interval has only what is certain. The record at the committed offset existed at the commit, or a
sample has the end behind it: ``EndOffsets`` gives the time. A record that retention deleted waited
up to the last sample that still had it; from there on another interval has the first record of the
next sample. If the end fell (the topic was created again), an interval ends with the last sample
before, because the record at that offset is another one.

There are millions of rows, so everything is computed on columns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute

from rota.engine.history.lag import (
    BoolArray,
    EndOffsets,
    Float64Array,
    Int64Array,
    PartitionTimeIndex,
    compute_lags,
    running_maximum,
)
from rota.pipeline.arrow import to_milliseconds

FOREVER = np.iinfo(np.int64).max
NEVER = np.iinfo(np.int64).min
TIME_TYPE = pa.int64()

#: An interval: from a commit (``since``) to just before the next commit, or to the time when
#: retention deleted the oldest unread record; in milliseconds since 1970. ``lag`` is the number of
#: unread records at its end, ``lag_seconds`` the age of the oldest one; null: unknown.
#: ``at_least``: the record may be older, because it existed before the first sample.
LAG_INTERVALS = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("since", TIME_TYPE),
        ("until", TIME_TYPE),
        ("lag", pa.int64()),
        ("lag_seconds", pa.float64()),
        ("at_least", pa.bool_()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCoverage:
    """Which commits are known: the polled groups, and the time range."""

    #: Groups whose commits were sampled: a commit happened at any time since the sample before.
    polled_groups: Collection[str] = ()
    since: int | None = None  # first time of the intervals; None: the first sample
    complete_until: int | None = None  # all commits are known up to here; None: last sample


def find_lag_intervals(
    lag: pa.Table,
    ends: pa.Table,
    ownership: pa.Table,
    *,
    besides: pa.Table | None = None,
    coverage: CommitCoverage | None = None,
) -> pa.Table:
    """Returns the lag intervals of all groups and partitions, with the schema
    :data:`LAG_INTERVALS`; the rows of a group are together.

    :param lag: gold/lag
    :param ends: bronze/ends
    :param ownership: gold/ownership
    :param besides: rows of silver/commits: deletions (without an offset), which end an interval,
        and the last commits before those of gold/lag
    """
    rows = _add_other_commits(lag, besides)
    if not rows.num_rows:
        return LAG_INTERVALS.empty_table()
    coverage = coverage or CommitCoverage()
    committed = _CommitColumns.from_table(rows)
    samples = committed.samples(ends)
    committed = _start_earlier_commits(
        committed, samples, NEVER if coverage.since is None else coverage.since
    )
    sample = samples.index.find_last(committed.partition, committed.at)
    polled = pa.array(sorted(coverage.polled_groups), pa.string())
    is_polled = (_positions(committed.group_names, polled) >= 0)[committed.group]
    until = _waits_until(committed, samples, sample, is_polled)
    until = np.where(committed.is_last, FOREVER, until)
    until = np.minimum(
        until, FOREVER if coverage.complete_until is None else coverage.complete_until
    )
    final = _pick_or(samples.last_at(), sample, committed.at)
    final = np.minimum(final, committed.owned_until(ownership, until))
    is_over = committed.is_last | np.append(committed.is_deletion[1:], [False])
    until = np.where(is_over, np.minimum(final, until), until)
    is_told = committed.is_known & (~committed.is_prior | (until >= committed.at))
    until = np.maximum(until, committed.at)
    return _interval_table(rows, replace(committed, is_known=is_told), samples, sample, until)


def _add_other_commits(lag: pa.Table, besides: pa.Table | None) -> pa.Table:
    """Adds deletions, and commits without a row in gold/lag (``is_earlier``)."""
    names = ["group", "topic", "partition", "at", "journal_offset", "offset", "lag", "lag_seconds"]
    own = lag.select(names)
    tables = [own.append_column("is_earlier", pa.repeat(pa.scalar(False), own.num_rows))]
    if besides is not None:
        others = besides.select(names[:6])
        tables.append(others.append_column("is_earlier", others["offset"].is_valid()))
    return pa.concat_tables(tables, promote_options="permissive")


@dataclass(frozen=True, slots=True, kw_only=True)
class _CommitColumns:
    """Commits and deletions as columns, sorted by group and partition, then by journal offset."""

    row: Int64Array  # position in the table of commits
    group: Int64Array  # position in ``group_names``
    group_names: pa.Array
    topics: pa.Array
    #: Topic and partition in one number, ascending; ``partition`` holds positions in this list.
    partition_codes: Int64Array
    partition: Int64Array
    at: Int64Array
    offset: Int64Array
    lag: Int64Array
    lag_seconds: Float64Array  # naN: unknown
    is_last: BoolArray  # the last row of its group and partition
    is_deletion: BoolArray  # the offset was deleted
    is_prior: BoolArray  # gold/lag does not have the commit
    is_known: BoolArray  # a commit that begins an interval

    @classmethod
    def from_table(cls, lag: pa.Table) -> _CommitColumns:
        groups, topics = (compute.unique(lag[name]) for name in ("group", "topic"))
        group = _positions(lag["group"], groups)
        numbered, number = np.unique(_partition_numbers(lag, topics), return_inverse=True)
        key = group * len(numbered) + number
        row = np.lexsort((_int64(lag["journal_offset"]), key))
        key = key[row]
        is_deletion = lag["offset"].is_null().to_numpy()[row]
        return cls(
            row=row,
            group=group[row],
            group_names=groups,
            topics=topics,
            partition_codes=numbered,
            partition=number[row],
            at=_int64(to_milliseconds(lag["at"]))[row],
            offset=_int64(compute.fill_null(lag["offset"], 0))[row],
            lag=_int64(compute.fill_null(lag["lag"], 0))[row],
            lag_seconds=lag["lag_seconds"].to_numpy().astype(np.float64)[row],
            is_last=np.append(key[1:] != key[:-1], [True]),
            is_deletion=is_deletion,
            is_prior=lag["is_earlier"].to_numpy()[row],
            is_known=~is_deletion,
        )

    def samples(self, ends: pa.Table) -> EndOffsets:
        number = self._partition_positions(ends)
        mask = number >= 0
        at, end = _int64(to_milliseconds(ends["at"])), _int64(ends["end"])
        beginning = _int64(compute.fill_null(ends["beginning"], 0))
        return EndOffsets.from_samples(number[mask], at[mask], end[mask], beginning[mask])

    def owned_until(self, ownership: pa.Table, before: Int64Array) -> Int64Array:
        """Returns the last end of ownership by an owner that came before ``before``."""
        number = self._partition_positions(ownership)
        group = _positions(ownership["group"], self.group_names)
        is_owned = (number >= 0) & (group >= 0)
        since = _int64(to_milliseconds(ownership["since"]))[is_owned]
        until = _int64(compute.fill_null(to_milliseconds(ownership["until"]), FOREVER))[is_owned]
        key = group[is_owned] * len(self.partition_codes) + number[is_owned]
        order = np.lexsort((since, key))
        owned, place = np.unique(key[order], return_inverse=True)
        own = _find_sorted(owned, self.group * len(self.partition_codes) + self.partition)
        row = PartitionTimeIndex(place, since[order]).find_last(own, before)
        return _pick_or(running_maximum(place, until[order]), row, np.full(len(own), NEVER))

    def _partition_positions(self, table: pa.Table) -> Int64Array:
        """Returns each row's partition; -1: it has no commits."""
        return _find_sorted(self.partition_codes, _partition_numbers(table, self.topics))


def _start_earlier_commits(
    committed: _CommitColumns, samples: EndOffsets, since: int
) -> _CommitColumns:
    """Moves commits to the first sample or ``since``; drops them if the end fell before."""
    row = np.flatnonzero(committed.is_prior)
    number, offset = committed.partition[row], committed.offset[row]
    first = np.searchsorted(samples.partition, number)
    sampled = first < len(samples.at)
    sampled[sampled] = samples.partition[first[sampled]] == number[sampled]
    is_kept, at = committed.is_known.copy(), committed.at.copy()
    lag, seconds = committed.lag.copy(), committed.lag_seconds.copy()
    is_kept[row] = False
    row, number, offset, first = (each[sampled] for each in (row, number, offset, first))
    begin = np.maximum(np.maximum(at[row], samples.at[first]), since)
    prior = samples.index.find_last(number, at[row])
    ends = samples.at_times(number, begin)
    known = ends.known & (samples.run[np.maximum(prior, first)] == samples.run[ends.sample])
    known &= offset <= np.where(prior < 0, samples.end[first], ends.ceiling)
    row, number, offset, begin = (each[known] for each in (row, number, offset, begin))
    lags = compute_lags(number, begin, offset, samples)
    is_kept[row], at[row], lag[row], seconds[row] = True, begin, lags.lag, lags.seconds
    return replace(committed, is_known=is_kept, at=at, lag=lag, lag_seconds=seconds)


def _waits_until(
    committed: _CommitColumns, samples: EndOffsets, sample: Int64Array, is_polled: BoolArray
) -> Int64Array:
    """Returns until when each record certainly waited, if another commit follows."""
    following = np.minimum(np.arange(len(sample)) + 1, len(sample) - 1)
    until = committed.at[following]
    last_sample = samples.index.find_last(committed.partition, until - 1)
    until = np.where(is_polled, _pick_or(samples.at, last_sample, committed.at), until)
    run = _pick_or(samples.run, sample, np.full(len(sample), -1))
    fallen = (run >= 0) & (run[following] > run)
    return np.where(fallen, _pick_or(samples.last_at(), sample, until), until)


def _interval_table(
    lag: pa.Table,
    committed: _CommitColumns,
    samples: EndOffsets,
    sample: Int64Array,
    until: Int64Array,
) -> pa.Table:
    intervals = _IntervalColumns.from_commits(committed, samples, sample, until)
    at, offset = committed.at[intervals.row], committed.offset[intervals.row]
    written, at_least = _written_times(committed, samples, sample, intervals)
    seconds = np.where(np.isnan(written), 0.0, np.maximum(intervals.until - written, 0) / 1000)
    seconds[at_least & (seconds == 0)] = np.nan
    ends = samples.at_times(committed.partition[intervals.row], intervals.until)
    records = np.maximum(np.where(ends.known, ends.end - offset, 0), committed.lag[intervals.row])
    since = np.where(intervals.is_first, at, np.append([0], intervals.until[:-1]))
    columns: dict[str, npt.NDArray[Any]] = {
        "since": since,
        "until": intervals.until,
        "lag": records,
        "lag_seconds": seconds,
        "at_least": at_least & ~np.isnan(seconds),
    }
    table = lag.select(["group", "topic", "partition"]).take(pa.array(committed.row[intervals.row]))
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values, from_pandas=True))
    return table.cast(LAG_INTERVALS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _IntervalColumns:
    """Intervals between commits, split where retention deleted the oldest unread record."""

    row: Int64Array  # position of the commit; ascending
    until: Int64Array
    oldest: Int64Array  # offset of the first unread record that certainly existed up to ``until``
    is_first: BoolArray

    @classmethod
    def from_commits(
        cls, committed: _CommitColumns, samples: EndOffsets, sample: Int64Array, until: Int64Array
    ) -> _IntervalColumns:
        """:param sample: position of the last sample before each commit; -1: none"""
        commit = np.flatnonzero(committed.is_known)
        offset, sample, until = committed.offset[commit], sample[commit], until[commit]
        deleted = samples.deleted()
        final = samples.first_sample_at(sample, until)
        gaps = np.flatnonzero((np.diff(samples.run) == 0) & (np.diff(deleted) > 0))
        first = np.searchsorted(gaps, np.maximum(sample, samples.last_sample_with(sample, offset)))
        more = np.maximum(np.searchsorted(gaps, final) - first, 0)
        row = np.repeat(np.arange(len(commit)), more + 1)
        place = np.arange(len(row)) - np.repeat(np.cumsum(more + 1) - more - 1, more + 1)
        cut = np.where(place < more[row], first[row] + place, -1)
        upto = np.maximum(_pick_or(samples.at[gaps], cut, until[row]), committed.at[commit[row]])
        last = np.where(cut >= 0, _pick_or(gaps, cut, cut), final[row])
        oldest = np.maximum(offset[row], _pick_or(deleted, last, offset[row]))
        return cls(row=commit[row], until=upto, oldest=oldest, is_first=place == 0)


def _written_times(
    committed: _CommitColumns, samples: EndOffsets, sample: Int64Array, intervals: _IntervalColumns
) -> tuple[Float64Array, BoolArray]:
    """Returns when the oldest record was written (or NaN), and whether it may be older."""
    row, oldest = intervals.row, intervals.oldest
    sample, offset, lag = sample[row], committed.offset[row], committed.lag[row]
    at, seconds = committed.at[row], committed.lag_seconds[row]
    was_there = (lag > 0) & (oldest < offset + lag)
    # gold/lag has the age of this record
    is_upcoming = oldest == np.maximum(offset, _pick_or(samples.deleted(), sample, offset))
    written = samples.passed_at(sample, oldest)
    known = was_there & is_upcoming & ~np.isnan(seconds)
    written = np.where(known, at - seconds * 1000, written)
    at_least = was_there & np.isnan(written)
    written = np.where(at_least, _pick_or(samples.first_at(), sample, at), written)
    return np.where(was_there, np.fmin(written, at), written), at_least


def _partition_numbers(table: pa.Table, topics: pa.Array) -> Int64Array:
    """Returns topic and partition in one number; negative: another topic."""
    return _positions(table["topic"], topics) << 32 | _int64(table["partition"])


def _positions(column: pa.ChunkedArray, values: pa.Array) -> Int64Array:
    """Returns the position of each value in ``values``; -1: not found."""
    return _int64(compute.fill_null(compute.index_in(column, value_set=values), -1))


def _find_sorted(listed: Int64Array, numbers: Int64Array) -> Int64Array:
    if not len(listed):
        return np.full(len(numbers), -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(listed, numbers), len(listed) - 1)
    return np.where(listed[place] == numbers, place, -1)


def _pick_or(values: Int64Array, row: Int64Array, otherwise: Int64Array) -> Int64Array:
    """Returns the value of each row; ``otherwise`` where the row is -1."""
    picked = otherwise.copy()
    some = row >= 0
    picked[some] = values[row[some]]
    return picked


def _int64(column: pa.ChunkedArray) -> Int64Array:
    numbers: Int64Array = column.to_numpy().astype(np.int64)
    return numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstLag:
    """The worst lag of a group. It is always sampled."""

    most: int  # number of unread records
    most_seconds: float | None  # age of the oldest one
    most_at: int  # time in milliseconds since 1970: just before a commit, or at the last sample
    most_topic: str
    most_partition: int
    at_least: bool = False  # may be older: it existed before the first sample
    after_rebalance: float | None = None  # seconds since the last rebalance; None: none


def find_worst_lags(
    intervals: pa.Table, rebalances: Mapping[str, Sequence[int]]
) -> dict[str, WorstLag]:
    """Returns each group's worst lag: the oldest record; without ages the most records."""
    seconds, records = intervals["lag_seconds"], intervals["lag"]
    waited = intervals.filter(compute.greater(seconds, 0))
    ageless = intervals.filter(compute.and_(compute.is_null(seconds), compute.greater(records, 0)))
    ageless = _of_other_groups(ageless, waited)
    none = _of_other_groups(_of_other_groups(intervals, waited), ageless)
    still = none.filter(compute.is_valid(none["lag_seconds"]))
    return {
        row["group"]: WorstLag(
            most=row["lag"],
            most_seconds=row["lag_seconds"],
            most_at=row["until"],
            most_topic=row["topic"],
            most_partition=row["partition"],
            at_least=row["at_least"],
            after_rebalance=_seconds_since(rebalances.get(row["group"], ()), row["until"]),
        )
        for rows, measure in (
            (waited, "lag_seconds"),
            (ageless, "lag"),
            (still, "lag_seconds"),
            (_of_other_groups(none, still), "lag"),
        )
        for row in _largest_rows(rows, measure)
    }


def _of_other_groups(rows: pa.Table, others: pa.Table) -> pa.Table:
    """Returns the rows of groups that have no row in ``others``."""
    groups = compute.unique(others["group"])
    return rows.filter(compute.invert(compute.is_in(rows["group"], value_set=groups)))


def _seconds_since(times: Sequence[int], at: int) -> float | None:
    place = bisect_right(times, at)
    return (at - times[place - 1]) / 1000 if place else None


def _largest_rows(rows: pa.Table, measure: str) -> list[dict[str, Any]]:
    """Returns for each group the first of its rows with the largest measure."""
    columns = ("group", "topic", "partition", "lag_seconds", "lag", "until", "at_least")
    best = rows.select(columns)
    for column in (measure, "until", "topic", "partition", "lag", "at_least"):
        best = _rows_with_extreme(best, column, "max" if column in {measure, "lag"} else "min")
    same = best.group_by(list(columns)).aggregate([])
    listed: list[dict[str, Any]] = same.sort_by("group").to_pylist()
    return listed


def _rows_with_extreme(rows: pa.Table, column: str, which: str) -> pa.Table:
    """Returns the rows that hold the largest or smallest value of a column within their group."""
    limits = rows.group_by("group").aggregate([(column, which)])
    place = compute.index_in(rows["group"], value_set=limits["group"])
    return rows.filter(compute.equal(rows[column], limits[f"{column}_{which}"].take(place)))
