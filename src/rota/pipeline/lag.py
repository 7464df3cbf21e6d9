"""Computes gold/lag (at each commit), gold/status (by Burrow's rules) and gold/health."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

from rota.engine.history.consumption_end import list_partitions
from rota.engine.history.facts import MINUTE, EvidenceType, Generation
from rota.engine.history.health import HealthSettings, ThinnedCommits, compute_health
from rota.engine.history.lag import EndOffsets, OwnerIntervals, compute_lags
from rota.engine.history.verdicts import (
    DELETED_OFFSET,
    BurrowSettings,
    GroupCommits,
    SubscriptionHistory,
    compute_statuses,
)
from rota.pipeline import arrow
from rota.pipeline.group_by import TablePart, apply_by_group
from rota.pipeline.tables import HEALTH, LAG, STATUS

MAX_TIME = np.iinfo(np.int64).max
_LAG_TYPES: Mapping[str, str] = {
    "lag": arrow.struct_ddl(LAG),
    "status": arrow.struct_ddl(STATUS),
    "health": arrow.struct_ddl(HEALTH),
}
#: A row has ``lag``, a row of gold/lag, ``status``, a row of gold/status, or ``health``.
LAG_DDL = ", ".join(f"{name} {kind}" for name, kind in _LAG_TYPES.items())


def compute_lag(
    commits: DataFrame, generations: DataFrame, ownership: DataFrame, ends: DataFrame, *, as_of: int
) -> DataFrame:
    """Computes lag, verdicts as of a time, and health; the columns are :data:`LAG_DDL`."""

    def read(group: str, parts: Iterable[TablePart]) -> Iterator[pa.RecordBatch]:
        yield from compute_group_lag(group, parts, as_of)

    columns = ("group", "topic", "partition")
    partitions = commits.select(*columns).union(ownership.select(*columns))
    return apply_by_group(
        read,
        LAG_DDL,
        generations=generations,
        ownership=ownership,
        samples=select_group_samples(partitions, ends),
        commits=commits.select("group", "topic", "partition", "at", "offset", "journal_offset"),
    )


def select_group_samples(rows: DataFrame, ends: DataFrame) -> DataFrame:
    """Returns the samples of each group's own partitions: a worker may not hold all."""
    partitions = rows.select("group", "topic", "partition").distinct()
    return partitions.join(ends, ["topic", "partition"])


class EndSamples:
    def __init__(self) -> None:
        self.numbers: dict[tuple[str, int], int] = {}
        self.listed: list[tuple[str, int]] = []
        self._added: list[tuple[npt.NDArray[np.int64], ...]] = []
        self._ends: EndOffsets | None = None

    def add_samples(self, rows: pa.RecordBatch) -> None:
        pairs, place = distinct_partitions(rows)
        for pair in pairs:
            if pair not in self.numbers:
                self.numbers[pair] = len(self.listed)
                self.listed.append(pair)
        number = [self.numbers[pair] for pair in pairs]
        columns = (
            np.array(number, dtype=np.int64)[place],
            _to_int64(arrow.to_milliseconds(rows.column("at"))),
            _to_int64(rows.column("end")),
            _to_int64(rows.column("beginning").fill_null(0)),
        )
        self._added.append(columns)
        self._ends = None

    @property
    def ends(self) -> EndOffsets:
        if self._ends is None:
            nothing = (np.zeros(0, dtype=np.int64),) * 4
            columns = zip(nothing, *self._added, strict=True)
            joined = tuple(np.concatenate(each) for each in columns)
            self._added = [joined]
            self._ends = EndOffsets.from_samples(*joined)
        return self._ends


def compute_group_lag(
    group: str, parts: Iterable[TablePart], as_of: int
) -> Iterator[pa.RecordBatch]:
    """Computes lag, verdicts and health of one group; its ``commits`` come last, in any order."""
    generations: list[Generation] = []
    reader = arrow.GenerationReader()
    before: dict[str, list[pa.RecordBatch]] = {"ownership": [], "samples": []}
    samples: EndSamples | None = None
    tail, history = RecentCommits(as_of), CommitHistory()
    for table, rows in parts:
        match table:
            case "generations":
                generations += reader.read(rows)
            case "ownership" | "samples":
                before[table].append(rows)
            case _:
                if samples is None:
                    samples = EndSamples()
                    for sampled in before["samples"]:
                        samples.add_samples(sampled)
                    owners = OwnershipIndex(before["ownership"], samples)
                history.add_commits(rows)
                commits = SampledCommits.of(rows, samples)
                tail.add_commits(commits)
                for lags in lag_rows(commits, owners, samples):
                    yield arrow.as_struct_column(_LAG_TYPES, "lag", lags)
    generations.sort(key=lambda generation: generation.offset)
    samples = samples or EndSamples()
    statuses = status_rows(group, tail, samples, SubscriptionHistory(generations))
    if statuses is not None:
        yield arrow.as_struct_column(_LAG_TYPES, "status", statuses)
    health = health_row(group, history, samples, generations, as_of)
    yield arrow.as_struct_column(_LAG_TYPES, "health", health)


class SampledCommits(NamedTuple):
    """Commits of partitions that have samples."""

    rows: pa.RecordBatch
    partition: npt.NDArray[np.int64]
    at: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]  # offset in the journal

    @classmethod
    def of(cls, rows: pa.RecordBatch, samples: EndSamples) -> SampledCommits:
        number = _partition_numbers(rows, samples)
        has_samples = number >= 0
        rows = rows.filter(pa.array(has_samples))
        return cls(
            rows,
            number[has_samples],
            _to_int64(arrow.to_milliseconds(rows.column("at"))),
            _to_int64(rows.column("offset").fill_null(DELETED_OFFSET)),
            _to_int64(rows.column("journal_offset")),
        )

    def where(self, mask: npt.NDArray[np.bool_]) -> SampledCommits:
        return SampledCommits(self.rows.filter(pa.array(mask)), *(each[mask] for each in self[1:]))


def _partition_numbers(rows: pa.RecordBatch, samples: EndSamples) -> npt.NDArray[np.int64]:
    """Returns each row's partition number; -1: no samples."""
    pairs, place = distinct_partitions(rows)
    numbers = [samples.numbers.get(pair, -1) for pair in pairs]
    return np.array(numbers, dtype=np.int64)[place]


def distinct_partitions(rows: pa.RecordBatch) -> tuple[list[tuple[str, int]], npt.NDArray[np.intp]]:
    """Returns the distinct (topic, partition), and for each row its position among them."""
    topics = rows.column("topic").dictionary_encode()
    pair = _to_int64(topics.indices) << 32 | _to_int64(rows.column("partition"))
    pairs, place = np.unique(pair, return_inverse=True)
    names = topics.dictionary.to_pylist()
    return [(names[pair >> 32], pair & 0xFFFFFFFF) for pair in pairs.tolist()], place


class OwnershipIndex:
    def __init__(self, owned: list[pa.RecordBatch], samples: EndSamples) -> None:
        self.members = pa.array([], pa.string())
        nothing = np.zeros(0, dtype=np.int64)
        self._owners = OwnerIntervals.from_intervals(nothing, nothing, nothing)
        if owned:
            rows = pa.Table.from_batches(owned).combine_chunks().to_batches()[0]
            self.members = rows.column("member_id")
            until = arrow.to_milliseconds(rows.column("until")).fill_null(MAX_TIME)
            since = arrow.to_milliseconds(rows.column("since"))
            self._owners = OwnerIntervals.from_intervals(
                _partition_numbers(rows, samples), _to_int64(since), _to_int64(until)
            )

    def owners_at(self, committed: SampledCommits) -> pa.Array:
        row = self._owners.find_owner(committed.partition, committed.at)
        return self.members.take(pa.array(row, mask=row < 0))


def lag_rows(
    committed: SampledCommits, owners: OwnershipIndex, samples: EndSamples
) -> Iterator[pa.RecordBatch]:
    stored = np.flatnonzero(committed.offset != DELETED_OFFSET)
    partition, at, offset, _ = (each[stored] for each in committed[1:])
    lags = compute_lags(partition, at, offset, samples.ends)
    if not len(lags.row):
        return
    stored = stored[lags.row]
    rows = committed.rows.take(pa.array(stored))
    members = owners.owners_at(SampledCommits(rows, *(each[stored] for each in committed[1:])))
    same = ("group", "topic", "partition", "at", "journal_offset", "offset")
    values = [
        pa.array(lags.end),
        pa.array(lags.lag),
        pa.array(lags.seconds, mask=np.isnan(lags.seconds)),
        pa.repeat(pa.scalar(str(EvidenceType.SAMPLED)), len(stored)),
        members,
    ]
    yield pa.record_batch([*rows.select(same).columns, *values], schema=arrow.arrow_schema(LAG))


class RecentCommits:
    """Keeps the last commits of each partition, as many as a verdict needs."""

    def __init__(self, as_of: int) -> None:
        #: Ignores later commits.
        self.as_of = as_of
        self._rule = BurrowSettings()
        self._columns: list[npt.NDArray[np.int64]] = [np.zeros(0, dtype=np.int64) for _ in range(4)]

    @property
    def commits(self) -> GroupCommits:
        """Commits by partition, in the order of the journal."""
        return GroupCommits(*self._columns[:3])

    def add_commits(self, committed: SampledCommits) -> None:
        """Adds commits and drops those that no verdict needs."""
        early = committed.at <= self.as_of
        new = (column[early] for column in committed[1:])
        columns = [np.concatenate(pair) for pair in zip(self._columns, new, strict=True)]
        order = np.lexsort((columns[3], columns[0]))
        columns = [column[order] for column in columns]
        partition, at, offset, _ = columns
        tick = at // self._rule.distance
        # Burrow counts commits of one interval as one: keep the last; a deletion ends an interval
        newest = np.ones(len(at), dtype=bool)
        newest[:-1] = (
            (partition[1:] != partition[:-1])
            | (tick[1:] != tick[:-1])
            | (offset[:-1] == DELETED_OFFSET)
        )
        columns = [column[newest] for column in columns]
        ends = np.searchsorted(columns[0], columns[0], side="right")
        is_recent = ends - np.arange(len(ends)) <= self._rule.intervals + 1
        self._columns = [column[is_recent] for column in columns]


MAX_KEPT_COMMITS = 100_000  # a group with more commits keeps them in longer spans
MIN_SPAN, MAX_SPAN = 10_000, 3_600_000
#: Intervals without a change are long from this multiple of the span, or this time, on.
LONG_INTERVAL, MAX_LONG_INTERVAL = 6, HealthSettings().minimum_time
#: The spans of the last two hours, in which the growth of the lag must be seen, and those of the
#: whole group are not longer: two of them are not longer than health's shortest limit.
RECENT_TIME, FINE_SPAN = 120 * MINUTE, MAX_LONG_INTERVAL // 2
_UNKNOWN_INTERVAL = np.iinfo(np.int64).max


class CommitHistory:
    """Keeps the commits of a group that its health needs.

    Kept are deletions, each partition's last commit in spans of 10 s to 85 min, its last change of
    the offset, the changes before and after long intervals, and the group's first and last commit
    in each :data:`FINE_SPAN`. Each commit keeps the interval between the last two changes up to it,
    and the intervals of other changes are counted, so that the times of waiting do not depend on
    the length of the spans. In the longest spans these are at most eight commits an hour for each
    partition, and 24 for the group; of the last two hours, twelve more an hour.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], int] = {}
        #: Partition, time, offset, place in the journal, interval between the last two changes.
        self._kept = np.zeros((5, 0), dtype=np.int64)
        #: Changes that are not kept: partition and interval (rounded) as one key, and number.
        self._left_out = np.zeros((2, 0), dtype=np.int64)
        #: New commits: partition, time, offset, place in the journal.
        self._added: list[npt.NDArray[np.int64]] = []
        self._span = MIN_SPAN

    @property
    def has_commits(self) -> bool:
        return bool(self._numbers)

    def add_commits(self, rows: pa.RecordBatch) -> None:
        """Adds rows of silver/commits."""
        pairs, place = distinct_partitions(rows)
        number = [self._numbers.setdefault(pair, len(self._numbers)) for pair in pairs]
        columns = (
            np.array(number, dtype=np.int64)[place],
            _to_int64(arrow.to_milliseconds(rows.column("at"))),
            _to_int64(rows.column("offset").fill_null(DELETED_OFFSET)),
            _to_int64(rows.column("journal_offset")),
        )
        self._added.append(np.stack(columns))
        new = sum(each.shape[1] for each in self._added)
        if new > max(MAX_KEPT_COMMITS, self._kept.shape[1]):
            self._thin()

    def _thin(self) -> None:
        added = np.concatenate([np.zeros((4, 0), dtype=np.int64), *self._added], axis=1)
        unknown = np.full((1, added.shape[1]), _UNKNOWN_INTERVAL)
        columns = np.concatenate([self._kept, [*added, *unknown]], axis=1)
        self._added = []
        columns = columns[:, np.lexsort((columns[3], columns[0]))]
        while columns.shape[1]:
            partition, at, offset, *_ = columns
            is_first = np.append(True, np.diff(partition) != 0)
            changed = is_first | np.append(True, np.diff(offset) != 0)
            change = np.flatnonzero(changed)
            between = np.maximum(np.diff(at[change], prepend=0), 0)
            between[is_first[change]] = _UNKNOWN_INTERVAL
            interval = np.minimum(columns[4, change], between)
            columns[4] = interval[np.cumsum(changed) - 1]
            span = np.full(len(at), self._span)
            span[at > at.max() - RECENT_TIME] = min(self._span, FINE_SPAN)
            kept = np.append(is_first[1:] | (np.diff(at // span) != 0), True)
            kept |= offset == DELETED_OFFSET
            kept[change[np.append(is_first[change][1:], True)]] = True  # the last change
            # the interval before a first change is unknown: it is kept too
            long = np.flatnonzero(interval >= min(LONG_INTERVAL * self._span, MAX_LONG_INTERVAL))
            kept[change[long]] = kept[change[long - 1]] = True
            by_time = np.argsort(at, kind="stable")
            ends_span = np.diff(at[by_time] // FINE_SPAN) != 0
            kept[by_time[np.append(True, ends_span)]] = True
            kept[by_time[np.append(ends_span, True)]] = True
            self._count_intervals(partition[change[~kept[change]]], interval[~kept[change]])
            columns = columns[:, kept]
            if columns.shape[1] <= MAX_KEPT_COMMITS or self._span > MAX_SPAN:
                break
            self._span *= 2
        self._kept = columns

    def _count_intervals(
        self, partition: npt.NDArray[np.int64], interval: npt.NDArray[np.int64]
    ) -> None:
        """Counts the intervals of changes that are left out, rounded by a few percent."""
        known = interval < _UNKNOWN_INTERVAL
        unit = 2.0 ** np.maximum(np.frexp(interval[known])[1] - 5, 0)
        rounded = ((interval[known] // unit + 0.5) * unit).astype(np.int64)
        keys = np.append(self._left_out[0], partition[known] << 32 | rounded)
        numbers = np.append(self._left_out[1], np.ones_like(rounded))
        keys, place = np.unique(keys, return_inverse=True)
        self._left_out = np.stack([keys, np.bincount(place, numbers, len(keys)).astype(np.int64)])

    def sorted_commits(
        self, others: Iterable[tuple[str, int]] = ()
    ) -> tuple[list[tuple[str, int]], ThinnedCommits]:
        """Returns the partitions by topic and number, with ``others``, and the commits."""
        self._thin()
        partition, at, offset, _, interval = self._kept
        pairs = sorted({*self._numbers, *others})
        places = {pair: place for place, pair in enumerate(pairs)}
        rank = np.array([places[pair] for pair in self._numbers], dtype=np.int64)
        order = np.argsort(rank[partition], kind="stable")
        key, number = self._left_out
        left_out = np.stack([rank[key >> 32], key & 0xFFFFFFFF, number])
        return pairs, ThinnedCommits(
            rank[partition][order], at[order], offset[order], interval[order], left_out
        )


def health_row(
    group: str,
    history: CommitHistory,
    samples: EndSamples,
    generations: list[Generation],
    as_of: int,
) -> pa.RecordBatch:
    members = generations[-1].members if generations else ()
    owned = {pair for member in members for pair in list_partitions(member)}
    pairs, commits = history.sorted_commits(owned & samples.numbers.keys())
    numbers = np.array([samples.numbers.get(pair, -1) for pair in pairs], dtype=np.int64)
    ends = _select_partitions(samples.ends, numbers)
    health = compute_health(group, pairs, commits, ends, generations, as_of)
    return arrow.facts_to_batch(HEALTH, [health])


def status_rows(
    group: str, tail: RecentCommits, samples: EndSamples, subscriptions: SubscriptionHistory
) -> pa.RecordBatch | None:
    number, inverse = np.unique(tail.commits.partition, return_inverse=True)
    # number only the group's partitions: the verdicts loop over all numbers
    statuses = compute_statuses(
        group,
        [samples.listed[each] for each in number.tolist()],
        GroupCommits(inverse.astype(np.int64), tail.commits.at, tail.commits.offset),
        _select_partitions(samples.ends, number),
        subscriptions,
        as_of=[tail.as_of],
    )
    return arrow.facts_to_batch(STATUS, statuses) if statuses else None


def _select_partitions(ends: EndOffsets, numbers: npt.NDArray[np.int64]) -> EndOffsets:
    begin = np.searchsorted(ends.partition, numbers)
    sizes = np.searchsorted(ends.partition, numbers, side="right") - begin
    before = np.cumsum(sizes) - sizes
    rows = np.arange(sizes.sum()) + np.repeat(begin - before, sizes)
    partition = np.repeat(np.arange(len(numbers)), sizes)
    return EndOffsets.from_samples(partition, ends.at[rows], ends.end[rows], ends.beginning[rows])


def _to_int64(values: pa.Array) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = values.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers
