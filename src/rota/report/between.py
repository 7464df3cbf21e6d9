"""Lag from commit to commit: how long the oldest unread record had been waiting.

At a commit a group is as little behind as it ever is. A partition that stands still has no commits
at all while its lag grows, so gold/lag, which has a row for every commit, says nothing of that
time. Here a stretch goes from one commit to the next, and the lag is the one just before the next;
after a partition's last commit, and before its offset is deleted, it goes on to the last sample of
the end, for as long as somebody of the group owns the partition. Commits from before the first
sample, and from before the time that is asked for, are not in gold/lag: the last one of these is
taken as it stands then.

Only what is certain counts. The record at the committed offset was there when it was committed, or
a sample has the end beyond it: from when on is what :class:`rota.replay.lag.Ends` says. What
retention took waited up to the last sample that still had it; from there on it is the first record
that the next sample has, in a stretch of its own. Where the end fell (the topic was made anew) a
stretch is over with the last sample before: commits after it are not in gold/lag, and the record is
another.

There are millions of rows: everything is columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute

from rota.replay.lag import F64, I64, Bools, Ends, Track, highest, lags
from rota.report.gold import milliseconds

FOREVER = np.iinfo(np.int64).max
NEVER = np.iinfo(np.int64).min
TIME = pa.int64()
STRETCHES = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("since", TIME),
        ("until", TIME),
        ("lag", pa.int64()),
        ("lag_seconds", pa.float64()),
        ("at_least", pa.bool_()),
    ]
)
"""A stretch: from a commit (``since``) to just before the next, or to where retention took the
oldest unread record, and from there on; in milliseconds since 1970. How many records were to be
read at its end, and how old the oldest of them was. Before the end it was younger by the time that
was left, and before it was written there was no lag. ``at_least``: it was there before the first
sample, so it is older. An age of which nothing is known is null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """From when and how far the times of commits are known."""

    polled: Collection[str] = ()
    """Groups that were asked for their commits now and then: a commit may have been made at any
    time since the partition's end was sampled before."""
    since: int | None = None
    """From when on lag is told, in milliseconds since 1970; None: from the first sample on."""
    last: int | None = None
    """Up to when all commits are known, in milliseconds since 1970; None: to the last sample."""


def stretches(
    lag: pa.Table,
    ends: pa.Table,
    ownership: pa.Table,
    *,
    besides: pa.Table | None = None,
    seen: Seen | None = None,
) -> pa.Table:
    """The stretches of all groups and partitions, as :data:`STRETCHES`, by group.

    :param lag: gold/lag
    :param ends: bronze/ends
    :param ownership: gold/ownership
    :param besides: of silver/commits the rows without an offset, after which nobody waits, and the
        last commits before those of gold/lag
    """
    rows = _with(lag, besides)
    if not rows.num_rows:
        return STRETCHES.empty_table()
    seen = seen or Seen()
    committed = _Committed.of(rows)
    samples = committed.samples(ends)
    committed = _brought(committed, samples, NEVER if seen.since is None else seen.since)
    sample = samples.track.last(committed.number, committed.at)
    is_polled = _is_in(committed.group_names, seen.polled)[committed.group]
    until = _next(committed, samples, sample, is_polled)
    until = np.where(committed.is_last, FOREVER, until)
    until = np.minimum(until, FOREVER if seen.last is None else seen.last)
    final = _picked(samples.last_at(), sample, committed.at)
    final = np.minimum(final, committed.owned_until(ownership, until))
    is_over = committed.is_last | np.append(committed.is_deletion[1:], [False])
    until = np.where(is_over, np.minimum(final, until), until)
    is_told = committed.is_told & (~committed.is_earlier | (until >= committed.at))
    until = np.maximum(until, committed.at)
    return _told(rows, replace(committed, is_told=is_told), samples, sample, until)


def _with(lag: pa.Table, besides: pa.Table | None) -> pa.Table:
    """Commits, deletions of committed offsets (these without an offset), and commits of which
    gold/lag has no row (``is_earlier``).
    """
    names = ["group", "topic", "partition", "at", "journal_offset", "offset", "lag", "lag_seconds"]
    own = lag.select(names)
    parts = [own.append_column("is_earlier", pa.repeat(pa.scalar(False), own.num_rows))]
    if besides is not None:
        others = besides.select(names[:6])
        parts.append(others.append_column("is_earlier", others["offset"].is_valid()))
    return pa.concat_tables(parts, promote_options="permissive")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Committed:
    """Commits and deletions by group and partition, each one's in the journal's order."""

    row: I64
    """In gold/lag."""
    group: I64
    """Its place among the names."""
    group_names: pa.Array
    topics: pa.Array
    numbered: I64
    """Topic and partition of all that are committed, in one number each, rising: their places are
    the numbers of partitions here. A partition of another topic has another."""
    number: I64
    at: I64
    offset: I64
    lag: I64
    seconds: F64
    """NaN where it is not known."""
    is_last: Bools
    """Nothing else follows of the partition."""
    is_deletion: Bools
    """It is no commit: the offset was deleted."""
    is_earlier: Bools
    """Gold/lag has no row of it."""
    is_told: Bools
    """It is a commit of which something is known."""

    @classmethod
    def of(cls, lag: pa.Table) -> _Committed:
        groups, topics = (compute.unique(lag[name]) for name in ("group", "topic"))
        group = _places(lag["group"], groups)
        numbered, number = np.unique(_pairs(lag, topics), return_inverse=True)
        key = group * len(numbered) + number
        row = np.lexsort((_int64(lag["journal_offset"]), key))
        key = key[row]
        is_deletion = lag["offset"].is_null().to_numpy()[row]
        return cls(
            row=row,
            group=group[row],
            group_names=groups,
            topics=topics,
            numbered=numbered,
            number=number[row],
            at=_int64(milliseconds(lag["at"]))[row],
            offset=_int64(compute.fill_null(lag["offset"], 0))[row],
            lag=_int64(compute.fill_null(lag["lag"], 0))[row],
            seconds=lag["lag_seconds"].to_numpy().astype(np.float64)[row],
            is_last=np.append(key[1:] != key[:-1], [True]),
            is_deletion=is_deletion,
            is_earlier=lag["is_earlier"].to_numpy()[row],
            is_told=~is_deletion,
        )

    def samples(self, ends: pa.Table) -> Ends:
        """The samples of partitions that are committed."""
        number = self._numbers(ends)
        kept = number >= 0
        at, end = _int64(milliseconds(ends["at"])), _int64(ends["end"])
        beginning = _int64(compute.fill_null(ends["beginning"], 0))
        return Ends.of(number[kept], at[kept], end[kept], beginning[kept])

    def owned_until(self, ownership: pa.Table, before: I64) -> I64:
        """Until when an owner in the group that came before a time had each partition: the one that
        stayed longest.
        """
        number, group = self._numbers(ownership), _places(ownership["group"], self.group_names)
        kept = (number >= 0) & (group >= 0)
        since = _int64(milliseconds(ownership["since"]))[kept]
        until = _int64(compute.fill_null(milliseconds(ownership["until"]), FOREVER))[kept]
        key = group[kept] * len(self.numbered) + number[kept]
        order = np.lexsort((since, key))
        owned, place = np.unique(key[order], return_inverse=True)
        own = _found(owned, self.group * len(self.numbered) + self.number)
        row = Track(place, since[order]).last(own, before)
        return _picked(highest(place, until[order]), row, np.full(len(own), NEVER))

    def _numbers(self, table: pa.Table) -> I64:
        """Each row's partition; -1 where nothing is committed in it."""
        return _found(self.numbered, _pairs(table, self.topics))


def _brought(committed: _Committed, samples: Ends, since: int) -> _Committed:
    """With earlier commits as they stand when lag begins to be told: at the first sample, or when
    it is asked for. Where the end has fallen by then, nothing is told of them.
    """
    row = np.flatnonzero(committed.is_earlier)
    number, offset = committed.number[row], committed.offset[row]
    first = np.searchsorted(samples.partition, number)
    sampled = first < len(samples.at)
    sampled[sampled] = samples.partition[first[sampled]] == number[sampled]
    is_told, at = committed.is_told.copy(), committed.at.copy()
    lag, seconds = committed.lag.copy(), committed.seconds.copy()
    is_told[row] = False
    row, number, offset, first = (each[sampled] for each in (row, number, offset, first))
    begin = np.maximum(np.maximum(at[row], samples.at[first]), since)
    made = samples.track.last(number, at[row])
    ends = samples.when(number, begin)
    known = ends.known & (samples.run[np.maximum(made, first)] == samples.run[ends.sample])
    known &= offset <= np.where(made < 0, samples.end[first], ends.ceiling)
    row, number, offset, begin = (each[known] for each in (row, number, offset, begin))
    found = lags(number, begin, offset, samples)
    is_told[row], at[row], lag[row], seconds[row] = True, begin, found.lag, found.seconds
    return replace(committed, is_told=is_told, at=at, lag=lag, seconds=seconds)


def _next(committed: _Committed, samples: Ends, sample: I64, is_polled: Bools) -> I64:
    """Until when the record at each committed offset is sure to have waited, if another commit
    follows.
    """
    following = np.minimum(np.arange(len(sample)) + 1, len(sample) - 1)
    until = committed.at[following]
    asked = samples.track.last(committed.number, until - 1)
    until = np.where(is_polled, _picked(samples.at, asked, committed.at), until)
    run = _picked(samples.run, sample, np.full(len(sample), -1))
    fallen = (run >= 0) & (run[following] > run)
    return np.where(fallen, _picked(samples.last_at(), sample, until), until)


def _told(lag: pa.Table, committed: _Committed, samples: Ends, sample: I64, until: I64) -> pa.Table:
    """The stretches, with the lag just before each ends."""
    made = _Pieces.of(committed, samples, sample, until)
    at, offset = committed.at[made.row], committed.offset[made.row]
    written, at_least = _written(committed, samples, sample, made)
    seconds = np.where(np.isnan(written), 0.0, np.maximum(made.until - written, 0) / 1000)
    seconds[at_least & (seconds == 0)] = np.nan
    ends = samples.when(committed.number[made.row], made.until)
    records = np.maximum(np.where(ends.known, ends.end - offset, 0), committed.lag[made.row])
    since = np.where(made.is_first, at, np.append([0], made.until[:-1]))
    told = {"since": since, "until": made.until, "lag": records, "lag_seconds": seconds}
    told["at_least"] = at_least & ~np.isnan(seconds)
    return _table(lag, committed.row[made.row], told)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pieces:
    """From commit to commit, apart where retention took the oldest unread record."""

    row: I64
    """Of the commit; rising."""
    until: I64
    oldest: I64
    """The offset of the first unread record that is sure to be there up to then."""
    is_first: Bools

    @classmethod
    def of(cls, committed: _Committed, samples: Ends, sample: I64, until: I64) -> _Pieces:
        """:param sample: the last one before each commit; -1: there is none"""
        commit = np.flatnonzero(committed.is_told)
        offset, sample, until = committed.offset[commit], sample[commit], until[commit]
        deleted = samples.deleted()
        final = samples.by(sample, until)
        taken = np.flatnonzero((np.diff(samples.run) == 0) & (np.diff(deleted) > 0))
        first = np.searchsorted(taken, np.maximum(sample, samples.holding(sample, offset)))
        more = np.maximum(np.searchsorted(taken, final) - first, 0)
        row = np.repeat(np.arange(len(commit)), more + 1)
        place = np.arange(len(row)) - np.repeat(np.cumsum(more + 1) - more - 1, more + 1)
        cut = np.where(place < more[row], first[row] + place, -1)
        upto = np.maximum(_picked(samples.at[taken], cut, until[row]), committed.at[commit[row]])
        last = np.where(cut >= 0, _picked(taken, cut, cut), final[row])
        oldest = np.maximum(offset[row], _picked(deleted, last, offset[row]))
        return cls(row=commit[row], until=upto, oldest=oldest, is_first=place == 0)


def _written(
    committed: _Committed, samples: Ends, sample: I64, pieces: _Pieces
) -> tuple[F64, Bools]:
    """When the oldest unread record was written, NaN where no sample has it; and whether that is
    only known to have been earlier.
    """
    row, oldest = pieces.row, pieces.oldest
    sample, offset, lag = sample[row], committed.offset[row], committed.lag[row]
    at, seconds = committed.at[row], committed.seconds[row]
    was_there = (lag > 0) & (oldest < offset + lag)
    # the one whose age gold/lag has
    is_upcoming = oldest == np.maximum(offset, _picked(samples.deleted(), sample, offset))
    written = samples.passed(sample, oldest)
    known = was_there & is_upcoming & ~np.isnan(seconds)
    written = np.where(known, at - seconds * 1000, written)
    at_least = was_there & np.isnan(written)
    written = np.where(at_least, _picked(samples.first_at(), sample, at), written)
    return np.where(was_there, np.fmin(written, at), written), at_least


def _table(lag: pa.Table, rows: I64, told: Mapping[str, npt.NDArray[Any]]) -> pa.Table:
    """Columns of numbers beside where rows of gold/lag are."""
    where = lag.select(["group", "topic", "partition"]).take(pa.array(rows))
    for name, values in told.items():
        where = where.append_column(name, pa.array(values, from_pandas=True))
    return where.cast(STRETCHES)


def _pairs(table: pa.Table, topics: pa.Array) -> I64:
    """Topic and partition in one number; negative where the topic is none of these."""
    return _places(table["topic"], topics) << 32 | _int64(table["partition"])


def _places(column: pa.ChunkedArray, values: pa.Array) -> I64:
    """Each value's place among some; -1 where it is none of them."""
    return _int64(compute.fill_null(compute.index_in(column, value_set=values), -1))


def _found(listed: I64, wanted: I64) -> I64:
    """Where each number stands in a rising list; -1 where it does not."""
    if not len(listed):
        return np.full(len(wanted), -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(listed, wanted), len(listed) - 1)
    return np.where(listed[place] == wanted, place, -1)


def _picked(values: I64, row: I64, otherwise: I64) -> I64:
    """Each row's value; something else where there is none (-1)."""
    found = otherwise.copy()
    some = row >= 0
    found[some] = values[row[some]]
    return found


def _is_in(names: pa.Array, some: Collection[str]) -> Bools:
    wanted = pa.array(sorted(some), pa.string())
    found: Bools = compute.is_in(names, value_set=wanted).to_numpy(zero_copy_only=False)
    return found


def _int64(column: pa.ChunkedArray) -> I64:
    found: I64 = column.to_numpy().astype(np.int64)
    return found
