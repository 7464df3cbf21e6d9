"""Silver into gold/rebalances: each with its cause and its cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from rota.pipeline import generation, schema
from rota.pipeline.bygroup import Part, each_group
from rota.replay.cause import Commits, explain
from rota.replay.commit import Codes, Numbers, moments, telling
from rota.replay.cost import cost, protocol
from rota.replay.fact import Explanation, Generation, LogLine, Step
from rota.replay.policy import is_of_consumers
from rota.replay.rollout import rollouts
from rota.replay.scene import identity
from rota.replay.timeline import steps
from rota.tables import REBALANCES

ROOM = 2**20
"""So many commits are kept before those are sorted out that make no difference."""
SHARES = 16
"""Into so many parts commits are divided to be sorted."""


def rebalances(generations: DataFrame, commits: DataFrame, lines: DataFrame) -> DataFrame:
    """gold/rebalances, out of silver/generations and commits and bronze/serverlog."""
    # one that was seen between two samples is known by the second; of others nobody knows when
    at = fn.coalesce("committed_at", fn.when(fn.col("not_before").isNotNull(), fn.col("at")))
    committed = commits.where("offset is not null").withColumn("committed_at", at)
    committed = committed.where("committed_at is not null")
    return each_group(
        of_group,
        schema.ddl(REBALANCES),
        generations=generations,
        lines=lines,
        commits=committed.select("group", "topic", "partition", "committed_at"),
    )


def of_group(_: str, parts: Iterable[Part]) -> Iterator[pa.RecordBatch]:
    """One group's rebalances; ``commits`` come last, in any order within."""
    evidence = _Evidence()
    for table, rows in parts:
        evidence.take(table, rows)
    if evidence.made:
        yield schema.batch(REBALANCES, evidence.rows())


class _Evidence:
    """All that is known of a group; its commits come last."""

    def __init__(self) -> None:
        self.made: list[Generation] = []
        self._reader = generation.Reader()
        self._lines: list[tuple[tuple[int, str, int], LogLine]] = []
        self._times: _Times | None = None

    def take(self, table: str, rows: pa.RecordBatch) -> None:
        match table:
            case "generations":
                self.made += self._reader.read(rows)
            case "lines":
                self._lines += _log_lines(rows)
            case _:
                if self._times is None:
                    self._times = _Times(moments(self.made, (line for _, line in self._lines)))
                self._times.take(rows)

    def rows(self) -> Iterator[dict[str, Any]]:
        commits = {} if self._times is None else self._times.by_partition()
        self.made.sort(key=lambda generation: generation.offset)
        self._lines.sort(key=lambda line: line[0])
        lines = [line for _, line in self._lines]
        taken = steps(self.made)
        explained = [explain(step, commits, lines) for step in taken]
        deploys = rollouts(taken, explained)
        for step, why, rollout in zip(taken, explained, deploys, strict=True):
            yield _row(step, why, rollout)


def _log_lines(rows: pa.RecordBatch) -> Iterator[tuple[tuple[int, str, int], LogLine]]:
    at = rows.schema.get_field_index("at")
    rows = rows.set_column(at, "at", schema.milliseconds(rows.column(at)))
    for row in rows.to_pylist():
        file, line = row.pop("file"), row.pop("line")
        yield (row["at"], file, line), LogLine(**row)


class _Times:
    """When each partition's offsets were committed, as far as it tells anything.

    A group may have any number of commits, and rebalance now and then: only those are kept that can
    be asked for. Even so, a million of them are 12 MB.
    """

    def __init__(self, asked: Numbers) -> None:
        self._asked = asked
        self._numbers: dict[tuple[str, int], int] = {}
        self._pieces: list[tuple[Codes, Numbers]] = []
        """Each by partition and time."""
        self._rows = 0
        self._room = ROOM

    def take(self, part: pa.RecordBatch) -> None:
        topics = part.column("topic").dictionary_encode()
        partition = part.column("partition").to_numpy(zero_copy_only=False).astype(np.int64)
        pair = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64) << 32 | partition
        pairs, place = np.unique(pair, return_inverse=True)
        names = topics.dictionary.to_pylist()
        codes = [
            self._numbers.setdefault((names[one >> 32], one & 0xFFFFFFFF), len(self._numbers))
            for one in pairs.tolist()
        ]
        at = schema.milliseconds(part.column("committed_at")).to_numpy(zero_copy_only=False)
        self._add(np.array(codes, dtype=np.int32)[place], at)
        if self._rows > self._room:
            found = list(self._merged())
            self._pieces, self._rows = found, sum(len(at) for _, at in found)
            self._room = max(ROOM, 2 * self._rows)

    def _add(self, code: Codes, at: Numbers) -> None:
        kept = telling(code, at, self._asked)
        self._pieces.append((code[kept], at[kept]))
        self._rows += len(kept)

    def _merged(self) -> Iterator[tuple[Codes, Numbers]]:
        """All pieces as one, by partition and time, some partitions after the other: together they
        would be in memory several times.
        """
        size = len(self._numbers) // SHARES + 1
        for first in range(0, len(self._numbers), size):
            slices = [
                slice(*np.searchsorted(code, (first, first + size))) for code, _ in self._pieces
            ]
            each = list(zip(self._pieces, slices, strict=True))
            code = np.concatenate([code[rows] for (code, _), rows in each])
            at = np.concatenate([at[rows] for (_, at), rows in each])
            kept = telling(code, at, self._asked)
            yield code[kept], at[kept]

    def by_partition(self) -> Commits:
        pairs = list(self._numbers)
        found: dict[tuple[str, int], Numbers] = {}
        for codes, at in self._merged():
            numbers, begins = np.unique(codes, return_index=True)
            times = np.split(at, begins[1:])
            found |= {pairs[number]: each for number, each in zip(numbers, times, strict=True)}
        self._pieces = []
        return found


def _row(step: Step, why: Explanation, rollout: str | None) -> dict[str, Any]:
    after, before = step.after, step.before
    readable = is_of_consumers(step.rounds if before is None else (before, *step.rounds))
    counted = cost(step) if readable else None
    known = ("moved", "moved_min", "orphaned", "stopped", "idle_members", "most", "least")
    told = ("cause", "evidence", "likely", "reason")
    times = ("started_at", "joined_at", "earliest_start", "latest_start")
    old = () if before is None else before.members
    return {
        **{name: getattr(counted, name, None) for name in known},
        **{name: getattr(why, name) for name in (*told, *times)},
        "group": after.group,
        "kind": after.kind,
        "life": after.life,
        "from_generation": step.from_generation,
        "to_generation": after.generation,
        "rounds": len(step.rounds),
        "unseen": step.unseen,
        "at": after.at,
        "join_ms": _between(why.started_at, why.joined_at),
        "sync_ms": _between(why.joined_at, after.at),
        "strategy": after.strategy,
        "protocol": protocol(step) if readable else None,
        "members_before": len(old),
        "members_after": len(after.members),
        "joined": _only(after.members, old),
        "left": _only(old, after.members),
        "rollout": rollout,
    }


def _only(members: Sequence[Any], others: Sequence[Any]) -> list[str]:
    """The ids of members that the others have not; a static one is known by its static id."""
    known = {identity(other) for other in others}
    return sorted(each.member_id for each in members if identity(each) not in known)


def _between(begin: int | None, end: int | None) -> int | None:
    return None if begin is None or end is None else end - begin
