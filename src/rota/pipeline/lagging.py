"""Lag and verdicts in a run that follows: what new commits and new samples of ends change.

The lag at a commit is settled once its partition has been sampled later than that: what comes after
does not change it, unless the owners turn out to be others. So a round computes the lag of new
commits, and of those that wait for a sample, whose rows are a file of their own; and that of all
commits of groups whose owners have changed, or of which a partition was never sampled before.
The verdicts are as of now: they are made every round, out of each partition's last commits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rota.pipeline import generation, lag, schema
from rota.pipeline.lag import Committed, Owned, Samples, Tail
from rota.pipeline.store import Store
from rota.pipeline.touched import Known, grouped, shown
from rota.replay.lag import REACH
from rota.replay.verdict import Subscriptions
from rota.tables import COMMITS, ENDS, GENERATIONS, LAG, OWNERSHIP, STATUS, Table

WAITING = "waiting"
"""The file of gold/lag whose rows are not settled."""
VERDICTS = "verdicts"
"""The file of gold/status."""
_COLUMNS = ("group", "topic", "partition", "at", "offset", "journal_offset")
_COMMITS = pa.schema([schema.arrow(COMMITS).field(name) for name in _COLUMNS])
_FIRST = -(1 << 62)


@dataclass(frozen=True, slots=True, kw_only=True)
class New:
    """What a round adds."""

    commits: pa.Table
    changed: frozenset[str]
    """Groups whose generations and owners are others now."""
    samples: pa.Table
    """Rows of bronze/ends, each later than the last of its partition."""
    last: int
    """The time of the last record of all."""


def _nothing() -> Committed:
    return Committed.of(_batch([]), Samples())


@dataclass(slots=True, kw_only=True)
class _Group:
    owners: list[pa.RecordBatch]
    subscriptions: Subscriptions
    tail: Tail = field(default_factory=lambda: Tail(_FIRST))
    later: list[pa.RecordBatch] = field(default_factory=list)
    """Commits from the future: no verdict looks at them yet."""
    waiting: Committed = field(default_factory=_nothing)
    """Commits that are not settled."""


class Lagging:
    """Every group's last commits, and all samples: it follows from the tables."""

    def __init__(self) -> None:
        self.samples = Samples()
        self._last: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """The time of each partition's last sample."""
        self._groups: dict[str, _Group] = {}
        self._unsettled: set[str] = set()
        """Groups whose lag must be computed from the beginning."""
        self.sampled = _FIRST
        """The time of the last sample."""

    @classmethod
    def load(cls, tables: Store, last: int) -> Lagging:
        """Reads the tables of the last round.

        :param last: the time of the last record
        """
        found = cls()
        found._sample(tables.layers(ENDS).read())
        if not found.samples.listed:
            return found
        commits = grouped(tables.layers(COMMITS).read(columns=_COLUMNS))
        found._describe(tables, commits.keys())
        for group, rows in commits.items():
            found._take(group, rows, found.as_of(last))
        if not tables.layers(LAG).has(WAITING):
            # Spark has written it: what is not settled stands among the other rows
            found._unsettled = {
                name for name, group in found._groups.items() if len(group.waiting.at)
            }
        return found

    def as_of(self, last: int) -> int:
        """The time of the verdicts, where the last record is of a time."""
        return min(max(last, self.sampled), self.sampled + REACH)

    def last(self, partition: tuple[str, int]) -> int:
        """The time of a partition's last sample."""
        number = self.samples.numbers.get(partition)
        return _FIRST if number is None else int(self._last[number])

    def round(self, tables: Store, known: Known, new: New, since: int | None) -> None:
        """Adds commits and samples to the tables, and computes what they change."""
        fresh = self._sample(new.samples)
        tables.layers(ENDS).append(new.samples)
        if not self.samples.listed:
            return
        commits = grouped(new.commits.select(_COLUMNS))
        anew = set(new.changed) | self._unsettled | (commits.keys() - self._groups.keys())
        groups = known.groups.items()
        anew |= {name for name, group in groups if not fresh.isdisjoint(group.partitions)}
        self._unsettled = set()
        self._describe(tables, anew)
        as_of = self.as_of(new.last)
        written = grouped(tables.layers(COMMITS).read(anew, _COLUMNS))
        whole = [
            self._lags(group, self._take(group, written.get(group, []), as_of))
            for group in sorted(anew)
        ]
        added = [
            self._lags(group, self._take(group, commits.get(group, []), as_of))
            for group in sorted(self._groups.keys() - anew)
        ]
        waiting = [self._lags(name, group.waiting) for name, group in self._groups.items()]
        lags = tables.layers(LAG)
        lags.append(_rows(LAG, added, since))
        if anew:
            lags.replace(anew, _rows(LAG, whole, since))
        lags.put(WAITING, _rows(LAG, waiting, since))
        self._verdicts(tables)

    def _sample(self, samples: pa.Table) -> set[tuple[str, int]]:
        """Takes samples; the partitions that had none before."""
        before = len(self.samples.listed)
        for rows in samples.combine_chunks().to_batches():
            self.samples.take(rows)
        ends = self.samples.ends
        if len(ends.at):
            # of each partition the last: they are by partition and time
            newest = np.flatnonzero(np.append(np.diff(ends.partition) != 0, [True]))
            self._last = ends.at[newest]
            self.sampled = int(self._last.max())
        return set(self.samples.listed[before:])

    def _describe(self, tables: Store, groups: Collection[str]) -> None:
        """Reads who owned what, and who subscribed to what; of commits nothing is known yet."""
        owners = grouped(tables.layers(OWNERSHIP).read(groups))
        made = grouped(tables.layers(GENERATIONS).read(groups), "offset")
        for group in groups:
            reader = generation.Reader()
            generations = [one for rows in made.get(group, ()) for one in reader.read(rows)]
            self._groups[group] = _Group(
                owners=owners.get(group, []), subscriptions=Subscriptions(generations)
            )

    def _take(self, name: str, new: list[pa.RecordBatch], as_of: int) -> Committed:
        """Takes a group's commits; those that are settled now."""
        group = self._groups[name]
        group.tail.as_of = as_of
        found = Committed.of(_batch([*group.later, *new]), self.samples)
        group.tail.take(found)
        group.later = [found.rows.filter(pa.array(found.at > as_of))]
        found = Committed.of(_batch([group.waiting.rows, *new]), self.samples)
        settled = found.at < self._last[found.partition]
        group.waiting = found.where(~settled)
        return found.where(settled)

    def _lags(self, name: str, committed: Committed) -> list[pa.RecordBatch]:
        if not len(committed.at):
            return []
        owners = Owned(self._groups[name].owners, self.samples)
        return list(lag.lag_rows(committed, owners, self.samples))

    def _verdicts(self, tables: Store) -> None:
        told = (
            lag.status_rows(name, group.tail, self.samples, group.subscriptions)
            for name, group in sorted(self._groups.items())
        )
        found = [[rows] for rows in told if rows is not None]
        verdicts = tables.layers(STATUS)
        verdicts.clear()
        verdicts.put(VERDICTS, _rows(STATUS, found))


def _rows(
    table: Table, parts: Iterable[list[pa.RecordBatch]], since: int | None = None
) -> pa.Table:
    listed = [rows for part in parts for rows in part]
    return shown(pa.Table.from_batches(listed, schema=schema.arrow(table)), "at", since)


def _batch(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    whole = pa.Table.from_batches(parts, schema=_COMMITS).combine_chunks().to_batches()
    return whole[0] if whole else pa.RecordBatch.from_pylist([], schema=_COMMITS)
