"""Computes gold/rebalances, and from it gold/whatif, gold/advice and gold/advised.

Each rebalance gets its cause and its cost. Then every rebalance is replayed under other policies.
The functions here process one group at a time; the analysis itself is in ``rota.engine.history``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from rota.engine.history.advice import advise_group
from rota.engine.history.causes import (
    CommitTimes,
    Int64Array,
    PartitionCodes,
    explain_rebalance,
    list_query_times,
    select_commits,
)
from rota.engine.history.facts import (
    Explanation,
    Generation,
    LogLine,
    Rebalance,
    RebalanceCause,
    member_identity,
)
from rota.engine.history.policies import is_readable_consumer_group
from rota.engine.history.rebalances import compute_cost, find_rebalances, rebalance_protocol
from rota.engine.history.restarts import find_rollouts
from rota.engine.history.whatif import evaluate_policies, list_advised_ownership
from rota.pipeline import arrow
from rota.pipeline.group_by import TablePart, apply_by_group
from rota.pipeline.lag import distinct_partitions
from rota.pipeline.tables import ADVICE, ADVISED, REBALANCES, WHATIF

#: Number of commits in memory above which commits without effect are dropped.
MAX_KEPT_COMMITS = 2**20
#: Number of ranges of partitions in which commits are merged.
MERGE_PARTS = 16


def compute_rebalances(generations: DataFrame, commits: DataFrame, lines: DataFrame) -> DataFrame:
    """Computes gold/rebalances."""
    # a commit between two samples counts at the time of the second one
    at = fn.coalesce("committed_at", fn.when(fn.col("not_before").isNotNull(), fn.col("at")))
    committed = commits.where("offset is not null").withColumn("committed_at", at)
    committed = committed.where("committed_at is not null")
    return apply_by_group(
        compute_group_rebalances,
        arrow.spark_ddl(REBALANCES),
        generations=generations,
        lines=lines,
        commits=committed.select("group", "topic", "partition", "committed_at"),
    )


def compute_group_rebalances(_: str, parts: Iterable[TablePart]) -> Iterator[pa.RecordBatch]:
    """Computes the rebalances of one group; its ``commits`` come last, in any order."""
    generations: list[Generation] = []
    reader = arrow.GenerationReader()
    placed_lines: list[tuple[tuple[int, str, int], LogLine]] = []
    times: _CommitTimes | None = None
    for table, rows in parts:
        match table:
            case "generations":
                generations += reader.read(rows)
            case "lines":
                placed_lines += _log_lines(rows)
            case _:
                if times is None:
                    query_times = list_query_times(generations, (line for _, line in placed_lines))
                    times = _CommitTimes(query_times)
                times.add_commits(rows)
    if not generations:
        return
    commits = {} if times is None else times.by_partition()
    generations.sort(key=lambda generation: generation.offset)
    lines = [line for _, line in sorted(placed_lines, key=lambda line: line[0])]
    rebalances = find_rebalances(generations)
    explained = [explain_rebalance(rebalance, commits, lines) for rebalance in rebalances]
    rollouts = find_rollouts(rebalances, explained)
    facts = zip(rebalances, explained, rollouts, strict=True)
    yield arrow.rows_to_batch(REBALANCES, (_rebalance_row(*fact) for fact in facts))


def _log_lines(rows: pa.RecordBatch) -> Iterator[tuple[tuple[int, str, int], LogLine]]:
    at = rows.schema.get_field_index("at")
    rows = rows.set_column(at, "at", arrow.to_milliseconds(rows.column(at)))
    for row in rows.to_pylist():
        file, line = row.pop("file"), row.pop("line")
        yield (row["at"], file, line), LogLine(**row)


class _CommitTimes:
    """The commit times of each partition that an explanation may use.

    A group may have many commits but few rebalances, so only commits that an explanation can use
    are kept. A million of them take 12 MB.
    """

    def __init__(self, query_times: Int64Array) -> None:
        self._query_times = query_times
        self._numbers: dict[tuple[str, int], int] = {}
        #: Runs of commits, each sorted by partition and time.
        self._runs: list[tuple[PartitionCodes, Int64Array]] = []
        self._rows = 0
        self._limit = MAX_KEPT_COMMITS

    def add_commits(self, rows: pa.RecordBatch) -> None:
        pairs, place = distinct_partitions(rows)
        codes = [self._numbers.setdefault(pair, len(self._numbers)) for pair in pairs]
        at = arrow.to_milliseconds(rows.column("committed_at")).to_numpy(zero_copy_only=False)
        self._add(np.array(codes, dtype=np.int32)[place], at)
        if self._rows > self._limit:
            merged = list(self._merged())
            self._runs, self._rows = merged, sum(len(at) for _, at in merged)
            self._limit = max(MAX_KEPT_COMMITS, 2 * self._rows)

    def _add(self, code: PartitionCodes, at: Int64Array) -> None:
        needed = select_commits(code, at, self._query_times)
        self._runs.append((code[needed], at[needed]))
        self._rows += len(needed)

    def _merged(self) -> Iterator[tuple[PartitionCodes, Int64Array]]:
        """Merges the sorted runs, by partition and time, in ranges of partitions to save memory."""
        size = len(self._numbers) // MERGE_PARTS + 1
        for first in range(0, len(self._numbers), size):
            slices = [
                slice(*np.searchsorted(code, (first, first + size))) for code, _ in self._runs
            ]
            each = list(zip(self._runs, slices, strict=True))
            code = np.concatenate([code[rows] for (code, _), rows in each])
            at = np.concatenate([at[rows] for (_, at), rows in each])
            needed = select_commits(code, at, self._query_times)
            yield code[needed], at[needed]

    def by_partition(self) -> CommitTimes:
        pairs = list(self._numbers)
        merged: dict[tuple[str, int], Int64Array] = {}
        for codes, at in self._merged():
            numbers, begins = np.unique(codes, return_index=True)
            times = np.split(at, begins[1:])
            merged |= {pairs[number]: each for number, each in zip(numbers, times, strict=True)}
        self._runs = []
        return merged


def _rebalance_row(rebalance: Rebalance, why: Explanation, rollout: str | None) -> dict[str, Any]:
    after, before = rebalance.after, rebalance.before
    readable = is_readable_consumer_group(
        rebalance.rounds if before is None else (before, *rebalance.rounds)
    )
    counted = compute_cost(rebalance) if readable else None
    counts = ("moved", "moves_needed", "orphaned", "stopped", "idle_members", "most", "least")
    explanation = ("cause", "evidence", "likely", "reason")
    times = ("started_at", "joined_at", "earliest_start", "latest_start")
    old = () if before is None else before.members
    return {
        **{name: getattr(counted, name, None) for name in counts},
        **{name: getattr(why, name) for name in (*explanation, *times)},
        "group": after.group,
        "kind": after.kind,
        "incarnation": after.incarnation,
        "from_generation": rebalance.from_generation,
        "to_generation": after.generation,
        "rounds": len(rebalance.rounds),
        "unseen": rebalance.unseen,
        "at": after.at,
        "join_ms": _duration_or_none(why.started_at, why.joined_at),
        "sync_ms": _duration_or_none(why.joined_at, after.at),
        "strategy": after.strategy,
        "protocol": rebalance_protocol(rebalance) if readable else None,
        "members_before": len(old),
        "members_after": len(after.members),
        "joined": _member_ids_missing_in(after.members, old),
        "left": _member_ids_missing_in(old, after.members),
        "rollout": rollout,
    }


def _member_ids_missing_in(members: Sequence[Any], others: Sequence[Any]) -> list[str]:
    """Returns member ids without a match in ``others``; static members match by instance id."""
    identities = {member_identity(other) for other in others}
    return sorted(each.member_id for each in members if member_identity(each) not in identities)


def _duration_or_none(begin: int | None, end: int | None) -> int | None:
    return None if begin is None or end is None else end - begin


#: A row has one of these columns, which is a row of that table.
WHATIF_TABLES = {"whatif": WHATIF, "advice": ADVICE, "advised": ADVISED}

_WHATIF_TYPES: Mapping[str, str] = {
    name: arrow.struct_ddl(table) for name, table in WHATIF_TABLES.items()
}

WHATIF_DDL = ", ".join(f"{name} {kind}" for name, kind in _WHATIF_TYPES.items())


def compute_whatif(
    generations: DataFrame,
    rebalances: DataFrame,
    *,
    topic_ids: Mapping[str, bytes],
    since: int | None,
    strategies: Sequence[str] = (),
) -> DataFrame:
    """Replays every rebalance under every policy and advises every group.

    The columns are :data:`WHATIF_DDL`.

    :param since: the advice does not count earlier rebalances
    :param strategies: custom strategies to replay, as ``package.module:Class``
    """
    working_directory = str(Path.cwd())

    def read(_: str, parts: Iterable[TablePart]) -> Iterator[pa.RecordBatch]:
        if strategies and working_directory not in sys.path:
            sys.path.insert(0, working_directory)  # in a worker of Spark
        yield from compute_group_whatif(parts, topic_ids, since, strategies)

    causes = rebalances.select("group", "incarnation", "to_generation", "cause", "rollout")
    return apply_by_group(read, WHATIF_DDL, generations=generations, rebalances=causes)


def compute_group_whatif(
    parts: Iterable[TablePart],
    topic_ids: Mapping[str, bytes],
    since: int | None,
    strategies: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Computes the rows of one group; see :func:`compute_whatif`."""
    generations: list[Generation] = []
    reader = arrow.GenerationReader()
    causes: dict[tuple[int, int], RebalanceCause] = {}
    rollouts: dict[tuple[int, int], str] = {}
    for table, rows in parts:
        if table == "generations":
            generations += reader.read(rows)
            continue
        for row in rows.to_pylist():
            key = (row["incarnation"], row["to_generation"])
            causes[key] = RebalanceCause(row["cause"])
            if row["rollout"] is not None:
                rollouts[key] = row["rollout"]
    generations.sort(key=lambda generation: generation.offset)
    history = rebalances = find_rebalances(generations)
    evaluation = evaluate_policies(generations, history, causes, topic_ids, strategies)
    if since is not None:
        rebalances = [rebalance for rebalance in history if rebalance.after.at >= since]
        recent = [row for row in evaluation.rows if row.at >= since]
        evaluation = replace(evaluation, rows=recent)
    if not rebalances:
        return
    advice = advise_group(generations, rebalances, evaluation, causes, rollouts)
    better = evaluation.advised_policy(advice)
    owners = list_advised_ownership(generations, history, better, causes, topic_ids)
    shown = [row for row in owners if since is None or row.until is None or row.until >= since]
    for name, facts in (("whatif", evaluation.rows), ("advice", [advice]), ("advised", shown)):
        yield arrow.as_struct_column(
            _WHATIF_TYPES, name, arrow.facts_to_batch(WHATIF_TABLES[name], facts)
        )
