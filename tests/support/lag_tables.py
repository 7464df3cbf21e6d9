"""Tables of commits, samples and owners, from which the report computes lag between commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from rota.engine.history.lag import EndOffsets, compute_lags
from rota.pipeline import arrow
from rota.pipeline.tables import COMMITS, ENDS, LAG, OWNERSHIP, Table
from rota.report.lag_intervals import CommitCoverage, find_lag_intervals

#: A topic and a partition of it.
Where = tuple[str, int]


def build_table(kind: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows of a table; what they do not have is null."""
    names = arrow.arrow_schema(kind).names
    whole = [{name: row.get(name) for name in names} for row in rows]
    return pa.Table.from_batches([arrow.rows_to_batch(kind, whole)])


@dataclass(frozen=True, kw_only=True)
class LagHistory:
    """What happened to some partitions. Times are milliseconds."""

    #: Group, partition, when, offset (None: it was deleted), in the journal's order.
    commits: Sequence[tuple[str, Where, int, int | None]]
    #: Partition, when, end, beginning.
    samples: Sequence[tuple[Where, int, int, int | None]] = ()
    #: Group, partition, from when to when.
    owned: Sequence[tuple[str, Where, int, int | None]] = ()
    seen: CommitCoverage = field(default_factory=CommitCoverage)

    def lag(self) -> pa.Table:
        """gold/lag, as the pipeline computes it."""
        places = sorted({where for where, *_ in self.samples})
        sampled = [(places.index(w), at, end, low or 0) for w, at, end, low in self.samples]
        made = [
            (group, where, at, offset, order)
            for order, (group, where, at, offset) in enumerate(self.commits)
            if offset is not None and where in places and at >= (self.seen.since or 0)
        ]
        columns = [(places.index(where), at, offset) for _, where, at, offset, _ in made]
        ends = EndOffsets.from_samples(*np.array(sampled, dtype=np.int64).reshape(-1, 4).T)
        partition, at, offset = np.array(columns, dtype=np.int64).reshape(-1, 3).T
        found = compute_lags(partition, at, offset, ends)
        rows = []
        for row, end, lag, seconds in zip(*found, strict=True):
            group, (topic, number), when, committed, order = made[row]
            rows.append(
                {
                    "group": group,
                    "topic": topic,
                    "partition": number,
                    "at": when,
                    "journal_offset": order,
                    "offset": committed,
                    "end": int(end),
                    "lag": int(lag),
                    "lag_seconds": None if np.isnan(seconds) else float(seconds),
                    "evidence": "sampled",
                }
            )
        return build_table(LAG, rows)

    def intervals(self) -> list[dict[str, Any]]:
        """The stretches, by group, partition and time."""
        found = find_lag_intervals(
            self.lag(),
            build_table(ENDS, map(_sample, self.samples)),
            build_table(OWNERSHIP, map(_ownership, self.owned)),
            besides=build_table(COMMITS, [*self._deletions(), *self.earlier().values()]),
            coverage=self.seen,
        )
        by = ("group", "topic", "partition", "since", "until", "lag")
        return sorted(found.to_pylist(), key=lambda row: [row[name] for name in by])

    def earlier(self) -> dict[tuple[str, Where], dict[str, Any]]:
        """The last commits before the first sample, and before what was asked for."""
        found = {}
        for order, (group, where, at, offset) in enumerate(self.commits):
            first = min((at for sampled, at, *_ in self.samples if sampled == where), default=None)
            if first is not None and offset is not None and at < max(first, self.seen.since or 0):
                found[group, where] = self._commit(order)
        return found

    def _deletions(self) -> Iterable[dict[str, Any]]:
        for order, (_, _, _, offset) in enumerate(self.commits):
            if offset is None:
                yield self._commit(order)

    def _commit(self, order: int) -> dict[str, Any]:
        group, (topic, partition), at, offset = self.commits[order]
        row = {"group": group, "topic": topic, "partition": partition, "at": at}
        return row | {"journal_offset": order, "offset": offset}


def _sample(sample: tuple[Where, int, int, int | None]) -> dict[str, Any]:
    (topic, partition), at, end, beginning = sample
    row = {"topic": topic, "partition": partition, "at": at}
    return row | {"end": end, "beginning": beginning}


def _ownership(owned: tuple[str, Where, int, int | None]) -> dict[str, Any]:
    group, (topic, partition), since, until = owned
    row = {"group": group, "topic": topic, "partition": partition}
    return row | {"since": since, "until": until}
