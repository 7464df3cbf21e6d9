"""Burrow's verdicts on a group at any time.

Burrow watches a live cluster and keeps the last ``intervals`` commits of each partition. Its rules,
in its order:

1. No lag: OK.
2. No commit for longer than the window, and the last one was below the end ``recent`` ago: STOP.
3. An offset fell, and no later one reached the old offset: REWIND.
4. No lag at some commit of the window: OK.
5. All commits are the same: STALL.
6. The lag never fell: WARN.

A group is OK, WARN if that is the worst of its partitions, otherwise ERR. ``docs/differences.md``
lists where a replay differs from Burrow, and why.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, NamedTuple, assert_never

import numpy as np
import numpy.typing as npt

from rota.engine.history.facts import Generation, GenerationChange, LagVerdict
from rota.engine.history.lag import (
    BoolArray,
    EndOffsets,
    Float64Array,
    Int64Array,
    PartitionTimeIndex,
    compute_lags,
)

DELETED_OFFSET = -1  # the offset of a deletion
_VERDICTS = (LagVerdict.OK, LagVerdict.WARN, LagVerdict.STALL, LagVerdict.STOP, LagVerdict.REWIND)
_OK, _WARN, _STALL, _STOP, _REWIND = range(len(_VERDICTS))
_MILD_VERDICTS = (LagVerdict.OK, LagVerdict.WARN)


@dataclass(frozen=True, slots=True, kw_only=True)
class BurrowSettings:
    """Burrow's settings and their defaults; times in milliseconds."""

    intervals: int = 10
    minimum_complete: float = 0.0  # a partition with a smaller share of its window is OK
    allowed_lag: int = 0
    recent: int = 100_000
    distance: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LagStatus:
    """A verdict on a partition or, without one, on the group: a row of gold/status."""

    group: str
    topic: str | None = None
    partition: int | None = None
    at: int
    verdict: LagVerdict
    lag: int  # for a group: the sum of its partitions
    complete: float  # share of the window with commits; group: of partitions with a full one


class GroupCommits(NamedTuple):
    """The commits of one group, in journal order."""

    partition: Int64Array
    at: Int64Array
    offset: Int64Array  # :data:`DELETED_OFFSET` where the offset was deleted


class CommitWindow(NamedTuple):
    """The last commits of partitions before a time: one row each, oldest first."""

    has_commit: BoolArray  # False in the first columns of a window that has fewer commits
    at: Int64Array
    offset: Int64Array
    lag: Float64Array


def judge_windows(
    window: CommitWindow,
    now: Int64Array,
    lag: Int64Array,
    recent_end: Int64Array,
    rule: BurrowSettings,
) -> npt.NDArray[np.int64]:
    """Returns verdicts as positions in ``_VERDICTS``; ``recent_end``: the end ``recent`` ago."""
    has_commit, last = window.has_commit, window.offset[:, -1]
    first = has_commit.argmax(axis=1)
    length = window.at[:, -1] - window.at[np.arange(len(first)), first]
    stopped = (now - window.at[:, -1] > length) & (recent_end > last)
    highest = np.where(has_commit, window.offset, last[:, None]).max(axis=1)
    lowest = np.where(has_commit, window.offset, last[:, None]).min(axis=1)
    known = has_commit & ~np.isnan(window.lag)
    caught_up = (known & (window.lag <= rule.allowed_lag)).any(axis=1)
    unclear = caught_up | (known.sum(axis=1) < 2)
    short = has_commit.mean(axis=1) < rule.minimum_complete
    return np.select(
        [
            (lag <= rule.allowed_lag) | short,
            stopped,
            last < highest,
            unclear,
            lowest == highest,
            ~_lag_fell(np.where(known, window.lag, np.nan)),
        ],
        [_OK, _STOP, _REWIND, _OK, _STALL, _WARN],
        default=_OK,
    )


def _lag_fell(lag: Float64Array) -> BoolArray:
    """Returns the rows in which a known lag is smaller than the known one before it."""
    fell = np.zeros(len(lag), dtype=bool)
    before = np.full(len(lag), np.nan)
    for column in lag.T:
        fell |= column < before
        before = np.where(np.isnan(column), before, column)
    return fell


class _CommitHistory:
    def __init__(self, commits: GroupCommits, ends: EndOffsets, rule: BurrowSettings) -> None:
        order = np.argsort(commits.partition, kind="stable")
        self.partition = commits.partition[order]
        self.at = commits.at[order]
        self.offset = commits.offset[order]
        self.index = PartitionTimeIndex(self.partition, self.at)
        self.ends = ends
        self.rule = rule
        self._number_commits()

    def _number_commits(self) -> None:
        """Numbers the spans of ``distance``, and the incarnations: a deletion ends one."""
        is_new_partition = self.partition[1:] != self.partition[:-1]
        starts_incarnation = np.zeros(len(self.at), dtype=bool)
        starts_incarnation[1:] = is_new_partition | (self.offset[:-1] == DELETED_OFFSET)
        starts_span = starts_incarnation.copy()
        span = self.at // self.rule.distance
        starts_span[1:] |= span[1:] != span[:-1]
        self.span = np.cumsum(starts_span)
        self.newest = np.flatnonzero(np.append(self.span[1:] != self.span[:-1], True))
        self.incarnation = np.cumsum(starts_incarnation)[self.newest]

    def window(self, row: Int64Array) -> CommitWindow:
        back = np.arange(self.rule.intervals - 1, -1, -1)
        wanted = self.span[row][:, None] - back
        span = np.maximum(wanted, 0)
        used = (wanted >= 0) & (self.incarnation[span] == self.incarnation[self.span[row]][:, None])
        entry = self.newest[span]
        entry[:, -1] = row
        flat = entry.ravel()
        lags = compute_lags(self.partition[flat], self.at[flat], self.offset[flat], self.ends)
        lag = np.full(len(flat), np.nan)
        lag[lags.row] = lags.lag
        return CommitWindow(used, self.at[entry], self.offset[entry], lag.reshape(entry.shape))


class SubscriptionHistory:
    def __init__(self, generations: Iterable[Generation]) -> None:
        """:param generations: of one group, in the journal's order"""
        now: Collection[str] | None = None
        self._since: list[int] = []
        self._topics: list[Collection[str] | None] = []
        for generation in generations:
            match generation.change:
                case (
                    GenerationChange.REBALANCED
                    | GenerationChange.REPLACED
                    | GenerationChange.CONVERTED
                    | GenerationChange.FIRST_SAMPLE
                ):
                    now = _generation_topics(generation)
                case GenerationChange.CREATED | GenerationChange.DELETED:
                    now = None
                case GenerationChange.EMPTIED:
                    pass  # the topics of its last members still count
                case _:
                    assert_never(generation.change)
            self._since.append(generation.at)
            self._topics.append(now)
        self._since = list(accumulate(self._since, max))

    def at(self, time: int) -> Collection[str] | None:
        position = bisect_right(self._since, time)
        return self._topics[position - 1] if position else None


def _generation_topics(generation: Generation) -> Collection[str] | None:
    if not generation.members or any(member.problem for member in generation.members):
        return None
    members = generation.members
    # Assigned topics too: a regular expression that the broker resolves lists no topic.
    return frozenset(t for m in members for t in (*m.topics, *m.assigned)) or None


def compute_statuses(  # noqa: PLR0913, PLR0917 - a verdict needs evidence of four kinds
    group: str,
    partitions: Sequence[tuple[str, int]],
    commits: GroupCommits,
    ends: EndOffsets,
    subscriptions: SubscriptionHistory,
    as_of: Iterable[int],
    rule: BurrowSettings | None = None,
) -> list[LagStatus]:
    """Returns the verdicts at each time: first those on ``partitions`` as numbered in ``commits``,
    then the one on the group. Use the end of all evidence: else a group without commits does not
    look stopped.
    """
    rule = rule or BurrowSettings()
    queries = [
        (time, number)
        for time in sorted(set(as_of))
        for topics in (subscriptions.at(time),)
        for number, (topic, _) in enumerate(partitions)
        if topics is None or topic in topics
    ]
    if not queries or not len(commits.at):
        return []
    history = _CommitHistory(commits, ends, rule)
    columns = _judge_partitions(history, np.array(queries, dtype=np.int64))
    statuses: list[LagStatus] = []
    for time, rows in groupby(zip(*columns, strict=True), key=itemgetter(0)):
        partition_statuses = [
            LagStatus(
                group=group,
                topic=partitions[number][0],
                partition=partitions[number][1],
                at=time,
                verdict=_VERDICTS[verdict],
                lag=lag,
                complete=complete,
            )
            for _, number, verdict, lag, complete in rows
        ]
        statuses += [*partition_statuses, _group_status(partition_statuses)]
    return statuses


def _judge_partitions(history: _CommitHistory, queries: Int64Array) -> tuple[list[Any], ...]:
    """Returns columns of times, partitions, verdicts, lags and window shares, where known."""
    time, number = queries.T
    row = history.index.find_last(number, time)
    end_offsets = history.ends.at_times(number, time)
    known = end_offsets.known & (row >= 0) & (history.offset[row] != DELETED_OFFSET)
    time, number, row, sample = time[known], number[known], row[known], end_offsets.sample[known]
    window = history.window(row)
    lag = np.maximum(end_offsets.end[known] - window.offset[:, -1], 0)
    recent = history.ends.end_before(sample, time - history.rule.recent)
    verdict = judge_windows(window, time, lag, recent, history.rule)
    columns = (time, number, verdict, lag, window.has_commit.mean(axis=1))
    return tuple(column.tolist() for column in columns)


def _group_status(statuses: Sequence[LagStatus]) -> LagStatus:
    worst = max(statuses, key=lambda status: _VERDICTS.index(status.verdict))
    return LagStatus(
        group=worst.group,
        at=worst.at,
        verdict=worst.verdict if worst.verdict in _MILD_VERDICTS else LagVerdict.ERR,
        lag=sum(status.lag for status in statuses),
        complete=sum(status.complete == 1 for status in statuses) / len(statuses),
    )
