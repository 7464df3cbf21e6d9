"""The health of a group, now and at its worst: OK, falling behind, stuck, failing or unknown.

The evidence is the commits, the samples of log ends, and the generations. A commit *moves* a
partition if its offset differs from the one before. A partition *waits* from the time at which a
record arrives after a move until the next move. Records that were already there at the move count
only if they are more than ``ignored_records``: transaction markers take offsets too, and no member
reads them. The *limit* for waiting is ``minimum_time``, or ``intervals`` times the usual (median)
interval between the moves of the partition or of the group, if that is longer. So a group that
commits every hour may wait for three hours.

- **Stuck**: a partition waits for longer than its limit while the group has members. Other
  partitions may move, or none. If members come and go twice, or once for ``minimum_time``, and the
  partition does not move, it is stuck from its first waiting record on; so it is if the members
  were away only shortly.
- **Failing**: the group has no members, and partitions wait for longer than their limit. Or it
  cannot stay stable: for ``minimum_time`` no generation lasts ``stable_time``, and there are more
  than ``rebalances_per_change`` rebalances for each change between the members before and after
  that time. (A rolling deploy with cooperative rebalances needs two for each member that is gone
  and two for each new one, but a member that comes and goes again and again changes little.) Or
  members come again and again for less than ``minimum_time`` (at that age Kubernetes forgets the
  crashes of a container), the group is away for more than half of that time, and the runs leave on
  average more than half of the records that arrive in a run. If a partition is stuck at the same
  time, the group is stuck instead. A job that reads until nothing is left is OK.
- **Falling behind**: the group moves a partition, but less than arrives: for ``growth_time`` the
  lag in records grows from each sixth of that time to the next, and the age of the next record
  grows by at least ``material_time``. It lasts until that age becomes shorter again. Lag that rises
  with the traffic, at the same delay, is OK.
- **Unknown**: none of these is shown, and the group has no committed offset, or no partition of it
  has two samples, or members have had a partition with new records for longer than its limit
  without ever committing an offset. Instability needs no samples.
- **OK** otherwise, also with a large lag that does not grow, or while the group catches up.

A **scheduled job** is not failing while it is away. It is recognised by its own rhythm: it ran at
least four times; most of its complete absences, and at least three, are of similar length (the
longest at most 1.5 times the shortest); and complete absences are at least half of the evidence up
to the last run. An absence counts as its pause if the group had consumed its backlog before (the
lag was at most a tenth of the usual lag at its return) and if the absence is not longer than 1.5
times the longest similar one. So an absence that lasts can start to fail, but never stops failing.
Complete absences are judged with hindsight. Two outages are no rhythm. The rule is that of
:mod:`rota.engine.history.downtime`, but a missed or an additional run does not end the rhythm.

A group without generations (commits only) is away where it commits nothing for longer than its
limit. A share group is unknown. Partitions of topics without subscription do not count. Of several
problems at a time the worst decides: failing, stuck, falling behind; among equals the longest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import numpy as np

from rota.engine.history.consumption_end import list_partitions
from rota.engine.history.downtime import IDLE_SHARE, MIN_RUNS, SCHEDULE_TOLERANCE
from rota.engine.history.facts import (
    MINUTE,
    Generation,
    GenerationChange,
    GroupHealth,
    GroupHealthStatus,
    GroupType,
)
from rota.engine.history.lag import EndOffsets, Int64Array, compute_lags, running_maximum
from rota.engine.history.verdicts import DELETED_OFFSET, GroupCommits, SubscriptionHistory
from rota.engine.model.duration import format_rounded_duration
from rota.engine.model.text import count_noun


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    """Times in milliseconds."""

    #: Twice the default of ``max.poll.interval.ms``: a member may work that long on one poll.
    minimum_time: int = 10 * MINUTE
    intervals: int = 3
    growth_time: int = 30 * MINUTE  # half an hour: shorter peaks of the traffic are usual
    material_time: int = MINUTE
    stable_time: int = MINUTE
    rebalances_per_change: int = 2
    ignored_records: int = 10


class ThinnedCommits(NamedTuple):
    """Commits of one group, as :class:`GroupCommits`, without some changes of offsets; those before
    and after an interval of ``minimum_time`` are kept.
    """

    partition: Int64Array
    at: Int64Array
    offset: Int64Array
    interval: Int64Array  # time between the last two changes of the offset so far
    left_out: Int64Array  # left-out intervals: partition, interval (rounded), number


class _Problem(NamedTuple):
    health: GroupHealth
    since: int
    until: int
    topic: str | None  # None: the whole group
    partition: int | None
    reason: str
    offset: int | None = None


class _Wait(NamedTuple):
    number: int
    since: int  # when the first record arrived that had to wait
    until: int
    moved_at: int
    offset: int
    arrived: int  # records that arrived since then, and those that waited at the end
    left: int


class _Presence(NamedTuple):
    since: int
    until: int
    has_members: bool | None  # whether the group had members; None: it was deleted

    @property
    def length(self) -> int:
        return self.until - self.since


class _Absence(NamedTuple):
    """A time without members in which partitions waited."""

    part: _Presence
    since: int  # when the first partition began to wait, and until when the last one waited
    until: int
    lag_before: int  # records that waited at the start without members, and at the end
    lag_after: int


_SEVERITY = (GroupHealth.OK, GroupHealth.FALLING_BEHIND, GroupHealth.STUCK, GroupHealth.FAILING)
_BEFORE_ALL = -(1 << 62)
_MAX_SHORT_RUNS = 50  # judged at most: each reads the lag of all partitions
#: A rebalance of a share group stops no member, so many of them are no failure either.
SHARE_REASON = "a share group commits no offsets to the journal"
_UNKNOWN_LAG = "of log ends: it is unknown whether records wait"


def compute_health(  # noqa: PLR0913, PLR0917 - health needs evidence of all these kinds
    group: str,
    partitions: Sequence[tuple[str, int]],
    commits: GroupCommits | ThinnedCommits,
    ends: EndOffsets,
    generations: Sequence[Generation],
    until: int,
    settings: HealthSettings | None = None,
) -> GroupHealthStatus:
    """Returns a group's health at ``until`` and its worst; ``partitions`` number the commits."""
    settings = settings or HealthSettings()
    is_share = bool(generations) and generations[-1].kind is GroupType.SHARE
    if is_share:
        generations = ()
    history = _History(partitions, commits, ends, generations, until, settings)
    waits = [*history.find_waiting_problems()]
    problems = [
        *_find_instability(generations, until, settings),
        *waits,
        *history.find_short_runs([each for each in waits if each.health is GroupHealth.STUCK]),
        *history.find_growing_lag(),
    ]
    order = sorted(problems, key=_compare_problems, reverse=True)
    unknown = SHARE_REASON if is_share else history.explain_unknown()
    waiting = history.waiting_at(until)
    last_end = None if unknown else max((each.until for each in problems), default=None)
    calm = GroupHealth.UNKNOWN if unknown else GroupHealth.OK
    reason = unknown or history.explain_ok(waiting)
    health, since, _, topic, partition, why, offset = next(
        (problem for problem in order if problem.until >= until),
        (calm, last_end, None, None, None, reason, None),
    )
    worst, worst_since, worst_until, worst_topic, worst_partition, worst_reason = (
        order[0][:6] if order else (calm, None, None, None, None, reason)
    )
    return GroupHealthStatus(
        group=group,
        health=health,
        since=since,
        topic=topic,
        partition=partition,
        offset=offset,
        lag=None if unknown else int(waiting.sum()),
        reason=why,
        worst=worst,
        worst_since=worst_since,
        worst_until=worst_until,
        worst_topic=worst_topic,
        worst_partition=worst_partition,
        worst_reason=worst_reason,
    )


def _compare_problems(problem: _Problem) -> tuple[int, int, int]:
    """Returns a key by severity, then by length, then by time: the first one comes last."""
    severity = _SEVERITY.index(problem.health)
    return severity, problem.until - problem.since, -problem.since


class _History:
    def __init__(  # noqa: PLR0913, PLR0917
        self,
        partitions: Sequence[tuple[str, int]],
        commits: GroupCommits | ThinnedCommits,
        ends: EndOffsets,
        generations: Sequence[Generation],
        until: int,
        settings: HealthSettings,
    ) -> None:
        self._partitions = partitions
        self._ends = ends
        self._generations = generations
        self._until = until
        self._settings = settings
        self._subscriptions = SubscriptionHistory(generations)
        self._deleted = ends.deleted() if len(ends.at) else ends.at
        self._is_scheduled = False
        self._read_moves(commits)
        self._limit = self._waiting_limits()
        self._presence = self._read_presence(commits.at[commits.at <= until])

    def _read_moves(self, commits: GroupCommits | ThinnedCommits) -> None:
        """Keeps the commits that change an offset, and the deletions, by partition and time."""
        rows = np.flatnonzero(commits.at <= self._until)
        rows = rows[np.argsort(commits.partition[rows], kind="stable")]
        partition, at, offset = (column[rows] for column in commits[:3])
        is_same = partition[1:] == partition[:-1]
        if (is_same & (at[1:] < at[:-1])).any():  # a clock went back
            at = running_maximum(partition, at)
        moves = np.ones(len(rows), dtype=bool)
        moves[1:] = ~is_same | (offset[1:] != offset[:-1])
        self._partition, self._at, self._offset = partition[moves], at[moves], offset[moves]
        self._next_at = np.full(len(self._at), self._until)
        self._has_next = np.zeros(len(self._at), dtype=bool)
        self._has_next[:-1] = self._partition[1:] == self._partition[:-1]
        self._next_at[:-1][self._has_next[:-1]] = self._at[1:][self._has_next[:-1]]
        self._numbers = np.flatnonzero(np.bincount(self._partition))
        #: How long each move was the last one.
        self._interval = self._next_at - self._at
        self._left_out = np.zeros((3, 0), dtype=np.int64)
        if isinstance(commits, ThinnedCommits):
            has_next = np.flatnonzero(self._has_next)
            real = commits.interval[rows[moves][has_next + 1]]
            self._interval[has_next] = np.minimum(self._interval[has_next], real)
            self._left_out = commits.left_out

    def _waiting_limits(self) -> Int64Array:
        """Returns the limit of each partition, and of the group as the last element."""
        stored = self._offset != DELETED_OFFSET
        rows = np.flatnonzero(self._has_next & stored & np.append(stored[1:], False))
        found = np.stack([self._partition[rows], self._interval[rows], np.ones_like(rows)])
        number, interval, weight = np.concatenate([found, self._left_out], axis=1)
        usual = np.zeros(len(self._partitions) + 1, dtype=np.int64)
        if len(number):
            usual[:] = _weighted_medians(np.zeros_like(number), interval, weight)[0]
            usual[number] = np.maximum(_weighted_medians(number, interval, weight), usual[number])
        return np.maximum(self._settings.intervals * usual, self._settings.minimum_time)

    def _read_presence(self, committed_at: Int64Array) -> list[_Presence]:
        edges: list[tuple[int, bool | None]] = [(_BEFORE_ALL, True)]
        for generation in self._generations:
            is_deleted = generation.change is GenerationChange.DELETED
            present = None if is_deleted else bool(generation.members)
            edges.append((max(generation.at, edges[-1][0]), present))
        if not self._generations and len(committed_at):
            times = np.append(np.sort(committed_at), self._until)
            for place in np.flatnonzero(np.diff(times) > self._limit[-1]).tolist():
                edges += [(int(times[place]), False), (int(times[place + 1]), True)]
        changes = [edges[0]]
        changes += [edge for edge in edges[1:] if edge[0] < self._until]
        kept = [after for before, after in pairwise(changes) if before[1] is not after[1]]
        ends = [*(at for at, _ in kept), self._until]
        starts = [changes[0], *kept]
        parts = zip(starts, ends, strict=True)
        return [_Presence(at, end, present) for (at, present), end in parts if at < end]

    def _parts(self, since: int, until: int) -> Iterator[tuple[int, int, _Presence]]:
        first = bisect_right(self._presence, since, key=lambda part: part.until)
        for part in self._presence[first:]:
            if part.since >= until:
                return
            if part.has_members is not None:
                yield max(part.since, since), min(part.until, until), part

    def _is_subscribed(self, number: int, time: int) -> bool:
        topics = self._subscriptions.at(time)
        return topics is None or self._partitions[number][0] in topics

    def _last_moves(self, number: Int64Array, time: int) -> Int64Array:
        """Returns the row of each partition's last move up to a time; -1: none."""
        count = np.bincount(self._partition[self._at <= time], minlength=len(self._partitions))
        row = np.searchsorted(self._partition, number) + count[number] - 1
        return np.where(count[number] > 0, row, -1)

    def waiting_at(
        self, time: int, among: Collection[int] | None = None, *, before_commits: bool = False
    ) -> Int64Array:
        """Returns how many records wait in each subscribed partition with an offset and samples;
        with ``before_commits`` as before the commits and deletions at that very time.
        """
        among = self._numbers.tolist() if among is None else sorted(set(among))
        last = time - before_commits
        listed = [each for each in among if self._is_subscribed(each, last)]
        if not listed or not len(self._ends.at):
            return np.zeros(0, dtype=np.int64)
        number = np.array(listed, dtype=np.int64)
        row = self._last_moves(number, last)
        ends = self._ends.at_times(number, np.full(len(number), time))
        known = (row >= 0) & (ends.sample >= 0) & (self._offset[row] != DELETED_OFFSET)
        upcoming = np.maximum(self._offset[row], self._deleted[ends.sample])
        waiting: Int64Array = np.maximum(ends.end - upcoming, 0)[known]
        return waiting

    def find_waiting_problems(self) -> Iterator[_Problem]:
        absences: defaultdict[_Presence, list[tuple[int, int, int]]] = defaultdict(list)
        for wait in self._find_waits():
            if not self._is_subscribed(wait.number, wait.until):
                continue
            limit = int(self._limit[wait.number])
            parts = list(self._parts(wait.since, wait.until))
            whole_runs = [
                end - begin
                for begin, end, part in parts
                if part.has_members and wait.since < begin and end < wait.until
            ]
            present = sum(end - begin for begin, end, part in parts if part.has_members)
            longest_absence = max(
                (e - b for b, e, part in parts if not part.has_members), default=0
            )
            if (
                len(whole_runs) > 1
                or max(whole_runs, default=0) >= self._settings.minimum_time
                or (present >= limit > longest_absence)
            ):
                yield self._stuck(wait, wait.since, wait.until)
                continue
            for begin, end, part in parts:
                if end - begin >= limit and part.has_members:
                    yield self._stuck(wait, begin, end)
                elif end - begin >= limit:
                    absences[part].append((wait.number, begin, end))
        yield from self._find_failing(absences)

    def _find_waits(self) -> Iterator[_Wait]:
        ends, long = self._ends, self._interval >= self._limit[self._partition]
        rows = np.flatnonzero(long & (self._offset != DELETED_OFFSET))
        first = np.searchsorted(ends.partition, self._partition[rows])
        has_samples = np.searchsorted(ends.partition, self._partition[rows], "right") > first
        rows, first = rows[has_samples], first[has_samples]
        number, offset = self._partition[rows], self._offset[rows]
        since = np.maximum(self._at[rows], ends.at[first])
        rows, number, offset, since = (
            column[since < self._next_at[rows]] for column in (rows, number, offset, since)
        )
        if not len(rows):
            return
        known = ends.at_times(number, since)
        waiting = known.end - np.maximum(offset, self._deleted[known.sample])
        arrival = ends.passed_at(known.sample, np.maximum(offset, known.end))
        arrival = np.where(waiting > self._settings.ignored_records, since, arrival)
        # a smaller end begins another run: the topic was created again
        last_run = ends.run[np.searchsorted(ends.partition, number, "right") - 1]
        is_last = ends.run[known.sample] == last_run
        until = np.where(
            is_last,
            self._next_at[rows],
            np.minimum(self._next_at[rows], ends.last_at()[known.sample]),
        )
        ended, at_end = self._has_next[rows], ends.at_times(number, until)
        left = at_end.end - np.maximum(offset, self._deleted[at_end.sample])
        arrived = at_end.end - known.end
        begin = np.maximum(np.nan_to_num(arrival, nan=float(self._until)), since).astype(np.int64)
        for each in np.flatnonzero((until - begin >= self._limit[number]) & (left > 0)).tolist():
            yield _Wait(
                number=int(number[each]),
                since=int(begin[each]),
                # the wait is over, even if the group commits at the very end
                until=int(until[each]) - bool(ended[each] and until[each] >= self._until),
                moved_at=int(self._at[rows[each]]),
                offset=int(offset[each]),
                arrived=int(arrived[each]),
                left=int(left[each]),
            )

    def _stuck(self, wait: _Wait, since: int, until: int) -> _Problem:
        topic, partition = self._partitions[wait.number]
        lasts, period = until >= self._until, self._format_period(wait.moved_at, until)
        records = f"{wait.arrived:,} records arrived"
        if not wait.arrived:
            records = f"{wait.left:,} records {'wait' if lasts else 'waited'}"
        return _Problem(
            GroupHealth.STUCK,
            since,
            until,
            topic,
            partition,
            f"{topic}-{partition}: committed offset {wait.offset:,} "
            f"{'has not moved' if lasts else 'did not move'} {period} while {records}",
            wait.offset,
        )

    def _find_failing(
        self, waits: Mapping[_Presence, Sequence[tuple[int, int, int]]]
    ) -> Iterator[_Problem]:
        """Returns absences of no scheduled job; ``waits``: partitions that waited, since, until."""
        absences = []
        for part, waiting in sorted(waits.items()):
            number, begin, end = zip(*waiting, strict=True)
            until = max(end)
            before = self.waiting_at(part.since, number)
            after = self.waiting_at(until, number, before_commits=until < self._until)
            lags = int(before.sum()), int(after.sum())
            absences.append(_Absence(part, min(begin), until, *lags))
        longest, backlog = self._longest_pause(absences)
        for absence in absences:
            if absence.part.length <= longest and 10 * absence.lag_before <= backlog:
                self._is_scheduled = True
                continue
            who = "no members" if self._generations else "no commits"
            time = self._format_period(absence.part.since, absence.until)
            records = f"{absence.lag_after:,} records {self._choose('wait', absence.until)}"
            yield self._failing(absence.since, absence.until, f"{who} {time}; {records}")

    def _longest_pause(self, absences: Sequence[_Absence]) -> tuple[float, float]:
        """Returns how long a scheduled job may be away (0: none), and its usual lag on return."""
        complete = [each for each in absences if each.part.until < self._until]
        lengths = sorted(each.part.length for each in complete)
        similar = [
            lengths[n : bisect_right(lengths, SCHEDULE_TOLERANCE * length)]
            for n, length in enumerate(lengths)
        ]
        usual = max(similar, key=len, default=[])
        if len(usual) + 1 < MIN_RUNS or 2 * len(usual) <= len(lengths):
            return 0, 0
        # an absence that lasts must not make the group look idle
        end = absences[-1].part.since if len(complete) < len(absences) else self._until
        first = min(int(self._at.min(initial=self._until)), self._presence[0].until)
        if sum(lengths) < IDLE_SHARE * (end - first):
            return 0, 0
        return SCHEDULE_TOLERANCE * usual[-1], median(each.lag_after for each in complete)

    def find_short_runs(self, stuck: Sequence[_Problem]) -> Iterator[_Problem]:
        """Returns the times in which members came repeatedly, but only for a short time. ``stuck``:
        a partition that is stuck at the same time is the cause, and says more.
        """
        parts: list[_Presence] = []
        for part in (*self._presence, _Presence(self._until, self._until, None)):
            is_short = part.length < self._settings.minimum_time
            lasts = part.has_members is False and part.until >= self._until
            if part.has_members is not None and (
                lasts or (is_short and (parts or not part.has_members))
            ):
                parts.append(part)
                continue
            problem = self._judge_short_runs(parts)
            if problem and not any(
                each.since < problem.until and problem.since < each.until for each in stuck
            ):
                yield problem
            parts = []

    def _judge_short_runs(self, parts: Sequence[_Presence]) -> _Problem | None:
        """:param parts: absences and runs in turn, the first is an absence"""
        absences = [part for part in parts if not part.has_members]
        runs = [part.length for part in parts if part.has_members and part.until < self._until]
        if len(absences) < MIN_RUNS:
            return None
        since, until = parts[0].since, parts[-1].until
        away = sum(part.length for part in absences)
        if until - since < self._settings.minimum_time or 2 * away <= until - since:
            return None
        known = [part for part in absences if part.until < self._until][-_MAX_SHORT_RUNS:]
        left = [int(self.waiting_at(part.since).sum()) for part in known]
        found = [int(self.waiting_at(part.until, before_commits=True).sum()) for part in known]
        # a job that reads until nothing is left also reads records that arrive while it runs
        arrived = (sum(found) - sum(left)) / sum(part.length for part in known)
        if 2 * sum(left) / len(left) <= arrived * sum(runs) / len(runs):
            return None
        now = int(self.waiting_at(until).sum())
        records = f"{now:,} records wait"
        if until < self._until or not now:
            until, records = min(until, self._until - 1), f"up to {max(found):,} records waited"
        times = f"{len(absences)} times {self._format_period(since, until)}"
        stayed = format_rounded_duration(-(-max(runs) // 1000) * 1000)
        return self._failing(
            since, until, f"all members left {times}, each time after at most {stayed}; {records}"
        )

    def find_growing_lag(self) -> Iterator[_Problem]:
        settings, step = self._settings, max(self._settings.growth_time // 6, 1)
        bucket = self._at // step
        # the last move of each partition in each bucket
        last = np.append((np.diff(bucket) != 0) | (np.diff(self._partition) != 0), True)
        rows = np.flatnonzero(last[: len(bucket)] & (self._offset != DELETED_OFFSET))
        partition, at, offset = (c[rows] for c in (self._partition, self._at, self._offset))
        lags = compute_lags(partition, at, offset, self._ends)
        partition, at, offset, lag = partition[lags.row], at[lags.row], offset[lags.row], lags.lag
        if not len(at):
            return
        grows = (
            (partition[1:] == partition[:-1]) & (lag[1:] > lag[:-1]) & (offset[1:] >= offset[:-1])
        )
        begin = np.flatnonzero(np.append(True, ~grows))
        end = np.append(begin[1:] - 1, len(at) - 1)
        longer = lags.seconds[end] - lags.seconds[begin] >= settings.material_time / 1000
        # the record arrived before the first sample: longer ago than the lag has grown
        longer |= np.isnan(lags.seconds[end])
        found = longer & (at[end] - at[begin] >= settings.growth_time) & (end - begin >= 3)
        age = np.nan_to_num(lags.seconds, nan=np.inf)
        for first, final in zip(begin[found].tolist(), end[found].tolist(), strict=True):
            number = int(partition[first])
            if not self._is_subscribed(number, int(at[final])):
                continue
            last = final
            while (
                last + 1 < len(at) and partition[last + 1] == number and age[last + 1] >= age[final]
            ):
                last += 1
            is_last = last + 1 == len(at) or partition[last + 1] != number
            soon = self._until - at[last] <= max(int(self._limit[number]), 2 * step)
            until = self._until if is_last and soon else int(at[last])
            since_then = "; the delay has not decreased since" if last > final else ""
            topic, partition_number = self._partitions[number]
            minutes = (at[final] - at[first]) / MINUTE
            consumed = offset[final] - offset[first]
            arrived = consumed + lag[final] - lag[first]
            yield _Problem(
                GroupHealth.FALLING_BEHIND,
                int(at[first]),
                until,
                topic,
                partition_number,
                f"{topic}-{partition_number}: the lag grew from {lag[first]:,} to {lag[final]:,} "
                f"records {self._format_period(int(at[first]), int(at[final]))}: "
                f"{arrived / minutes:,.0f} records arrived per minute, "
                f"{consumed / minutes:,.0f} were consumed{since_then}",
            )

    def explain_unknown(self) -> str | None:
        number = self._numbers
        if len(number) and not len(self._ends.at):
            return f"no samples {_UNKNOWN_LAG}"
        stored = number[self._offset[self._last_moves(number, self._until)] != DELETED_OFFSET]
        if not len(stored):
            return "the group has no committed offset"
        counts = np.bincount(self._ends.partition, minlength=len(self._partitions))[stored]
        if counts.max(initial=0) < 2:
            few = "only one sample" if counts.any() else "no samples"
            return f"{few} {_UNKNOWN_LAG}"
        return self._explain_uncommitted()

    def _explain_uncommitted(self) -> str | None:
        """Returns which partition has an owner and new records, but never had a commit."""
        sampled = np.flatnonzero(np.bincount(self._ends.partition))
        numbers = {self._partitions[each]: each for each in sampled.tolist()}
        owned = numbers.keys() - {self._partitions[each] for each in self._numbers.tolist()}
        owned_since: dict[tuple[str, int], int] = {}
        for generation in reversed(self._generations):
            if generation.at > self._until:
                continue
            owned &= {pair for member in generation.members for pair in list_partitions(member)}
            owned_since |= dict.fromkeys(owned, generation.at)
            if not owned:
                break
        for (topic, partition), since in sorted(owned_since.items()):
            number = numbers[topic, partition]
            first = int(self._ends.at[np.searchsorted(self._ends.partition, number)])
            times = np.array([since, self._until - self._limit[number], self._until])
            rows = np.full(3, number)
            start, early, now = self._ends.at_times(rows, np.maximum(times, max(first, since))).end
            if early - start > self._settings.ignored_records:
                return (
                    f"{topic}-{partition}: no offset was ever committed; it has had an owner since "
                    f"{format_minute(since)}, and {now - start:,} records have arrived"
                )
        return None

    def explain_ok(self, waiting: Int64Array) -> str:
        """:param waiting: the records that wait, by partition"""
        if not waiting.any():
            return f"no records wait in {count_noun(len(waiting), 'partition')}"
        last = self._presence[-1]
        why = "no partition is stuck"
        if last.has_members is False:
            who = f"no members since {format_minute(last.since)}"
            why = f"{who}, as several times before" if self._is_scheduled else who
        some = f"{np.count_nonzero(waiting):,} of {len(waiting):,} partitions"
        if len(waiting) == 1:
            some, why = "the group's only partition", why.replace("no partition is", "it is not")
        return f"{waiting.sum():,} records wait in {some}; {why}"

    def _failing(self, since: int, until: int, reason: str) -> _Problem:
        return _Problem(GroupHealth.FAILING, since, until, None, None, reason)

    def _choose(self, verb: str, until: int) -> str:
        return verb if until >= self._until else f"{verb}ed"

    def _format_period(self, since: int, until: int) -> str:
        return _format_period(since, until, self._until)


def _weighted_medians(group: Int64Array, values: Int64Array, weight: Int64Array) -> Int64Array:
    """Returns for each row the weighted (lower) median of its group's values."""
    order = np.lexsort((values, group))
    group, weight = group[order], weight[order]
    total = np.cumsum(weight)
    first, end = (np.searchsorted(group, group, side) for side in ("left", "right"))
    half = (total[first] - weight[first] + total[end - 1] + 1) // 2
    medians = np.empty_like(values)
    medians[order] = values[order][np.searchsorted(total, half)]
    return medians


def _find_instability(
    generations: Iterable[Generation], until: int, settings: HealthSettings
) -> Iterator[_Problem]:
    chain: list[tuple[int, int, frozenset[str]]] = []  # time, rebalances and members of each
    before: Generation | None = None
    for generation in generations:
        if generation.change not in {GenerationChange.REBALANCED, GenerationChange.EMPTIED}:
            continue
        attempts, at = 1, generation.at
        if before is not None and chain:
            if before.incarnation == generation.incarnation:  # the journal may lack some attempts
                attempts = max(generation.generation - before.generation, 1)
            at = max(at, chain[-1][0])
            if at - chain[-1][0] > attempts * settings.stable_time:
                yield from _unstable(chain, until, settings)
                chain = []
        chain.append((at, attempts, frozenset(each.member_id for each in generation.members)))
        before = generation
    yield from _unstable(chain, until, settings)


def _unstable(
    chain: Sequence[tuple[int, int, frozenset[str]]], until: int, settings: HealthSettings
) -> Iterator[_Problem]:
    chain = [each for each in chain if each[0] <= until]
    if not chain:
        return
    (since, _, first), (end, _, last) = chain[0], chain[-1]
    rebalances = sum(attempts for _, attempts, _ in chain[1:])
    changes = len(first ^ last) + 1  # the first generation is that after the first change
    is_stable = rebalances <= settings.rebalances_per_change * changes
    if is_stable or end - since < settings.minimum_time:
        return
    members = max(len(members) for _, _, members in chain)
    lasts = until - end <= settings.stable_time
    yield _Problem(
        GroupHealth.FAILING,
        since,
        until if lasts else end,
        None,
        None,
        f"{rebalances:,} rebalances {_format_period(since, until if lasts else end, until)} "
        f"with at most {members:,} members: no generation lasted "
        f"{settings.stable_time // 1000} s",
    )


def format_minute(milliseconds: int) -> str:
    """Returns a time as ``2026-01-05 17:05Z``; a report on one day shows ``17:05 UTC``."""
    return f"{np.datetime64(milliseconds // 60_000, 'm')}Z".replace("T", " ")


def format_minutes(since: int, until: int) -> str:
    """Returns ``at 2026-01-05 17:05Z``, or ``between 2026-01-05 17:05Z and ...``."""
    first, last = format_minute(since), format_minute(until)
    return f"at {first}" if first == last else f"between {first} and {last}"


def _format_period(since: int, until: int, end: int) -> str:
    """:param end: of the evidence"""
    if until >= end:
        return f"since {format_minute(since)}"
    return f"from {format_minute(since)} to {format_minute(until)}"
