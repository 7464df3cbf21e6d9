"""Computes gold/groups, gold/rebalances, gold/downtime, gold/whatif, gold/advice and gold/advised.

Each rebalance gets its cause and its cost, and each partition its downtime. Then every rebalance is
replayed under other policies. :func:`compute_group` processes one group; the analysis itself is in
``rota.engine.history``.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from rota.engine.history.advice import AdviceEvidence, advise_group
from rota.engine.history.causes import (
    CommitTimes,
    Int64Array,
    PartitionCodes,
    explain_rebalance,
    list_query_times,
    select_commits,
)
from rota.engine.history.downtime import (
    DowntimeTotal,
    find_downtime,
    sum_downtime,
)
from rota.engine.history.facts import (
    Downtime,
    DowntimeReason,
    Explanation,
    Generation,
    GroupHealth,
    GroupHealthStatus,
    GroupType,
    LogLine,
    PartitionOwnership,
    Rebalance,
    member_identity,
)
from rota.engine.history.groups import CommitSummary, GroupOverview, add_commits
from rota.engine.history.patterns import find_patterns
from rota.engine.history.policies import is_readable_consumer_group
from rota.engine.history.rebalances import compute_cost, find_rebalances, rebalance_protocol
from rota.engine.history.restarts import find_rollouts
from rota.engine.history.timing import ASSIGNMENT_INTERVAL
from rota.engine.history.whatif import evaluate_policies, list_advised_ownership
from rota.pipeline import arrow
from rota.pipeline.group_by import TablePart, apply_by_group
from rota.pipeline.lag import EndSamples, distinct_partitions, select_group_samples
from rota.pipeline.tables import ADVICE, ADVISED, DOWNTIME, GROUPS, REBALANCES, WHATIF, Table

MAX_KEPT_COMMITS = 2**20  # with more commits in memory, those without effect are dropped
MERGE_PARTS = 16  # number of ranges of partitions in which commits are merged

#: The tables that are computed here. A row of Spark has one of them as a struct.
GROUP_TABLES: Mapping[str, Table] = {
    "groups": GROUPS,
    "rebalances": REBALANCES,
    "downtime": DOWNTIME,
    "whatif": WHATIF,
    "advice": ADVICE,
    "advised": ADVISED,
}
_GROUP_TYPES = {name: arrow.struct_ddl(table) for name, table in GROUP_TABLES.items()}
GROUP_DDL = ", ".join(f"{name} {kind}" for name, kind in _GROUP_TYPES.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """What :func:`compute_group` needs besides the rows of a group; the same for all groups."""

    until: int  # end of the evidence, and of downtime that has not ended
    since: int | None = None  # rows, sums, patterns and downtime begin here
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    strategies: Sequence[str] = ()
    #: The least time between two target assignments of a consumer group (KIP-848), in milliseconds.
    assignment_interval: int = ASSIGNMENT_INTERVAL
    has_consumer_protocol: bool = False  # the brokers have the consumer protocol (KIP-848)

    def counts(self, at: int) -> bool:
        return self.since is None or at >= self.since


def compute_groups(  # noqa: PLR0913, PLR0917 (a table each)
    overviews: DataFrame,
    generations: DataFrame,
    lines: DataFrame,
    ownership: DataFrame,
    health: DataFrame,
    ends: DataFrame | None,
    commits: DataFrame,
    options: GroupOptions,
) -> DataFrame:
    """Computes all groups; columns :data:`GROUP_DDL`. Ownership is also before ``--since``.

    :param overviews: rows of gold/groups without the commits
    """
    working_directory = str(Path.cwd())

    def read(_: str, parts: Iterable[TablePart]) -> Iterator[pa.RecordBatch]:
        if options.strategies and working_directory not in sys.path:
            sys.path.insert(0, working_directory)  # in a worker of Spark
        for name, rows in compute_group(parts, options):
            yield arrow.as_struct_column(_GROUP_TYPES, name, rows)

    # a commit between two samples counts at the time of the second one
    at = fn.coalesce("committed_at", fn.when(fn.col("not_before").isNotNull(), fn.col("at")))
    counts = fn.col("offset").isNotNull()
    committed = commits.withColumn("committed_at", fn.when(counts, at))
    committed = committed.withColumn("at", fn.when(fn.col("committed_at").isNull(), fn.col("at")))
    consumer = generations.where(fn.col("kind") == GroupType.CONSUMER).select("group").distinct()
    samples = {} if ends is None else {"samples": select_group_samples(ownership, ends)}
    return apply_by_group(
        read,
        GROUP_DDL,
        overviews=overviews,
        generations=generations,
        lines=lines,
        ownership=ownership.join(consumer, "group", "left_semi"),
        health=health,
        **samples,
        commits=committed.select("group", "topic", "partition", "committed_at", "at"),
    )


def compute_group(
    parts: Iterable[TablePart], options: GroupOptions, samples: EndSamples | None = None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Computes the rows of one group; yields names of :data:`GROUP_TABLES` with rows.

    :param parts: rows of ``overviews``, ``generations``, ``lines``, ``ownership`` (of consumer
        groups), ``health``, ``samples`` and ``commits``; the commits come last, in any order.
        Commits without ``committed_at``, as deletions, only have a time ``at``
    :param samples: samples of log ends that were read before
    """
    evidence = _GroupEvidence(samples or EndSamples())
    for table, rows in parts:
        evidence.add_rows(table, rows)
    overview = add_commits(evidence.group, evidence.overview, evidence.commit_summary())
    if overview is not None:
        yield "groups", arrow.facts_to_batch(GROUPS, [overview])
    if evidence.generations:
        yield from _compute_group_rows(evidence, options)


class _GroupEvidence:
    def __init__(self, samples: EndSamples) -> None:
        self.group = ""
        self.overview: GroupOverview | None = None
        self.generations: list[Generation] = []
        self.ownership: list[PartitionOwnership] = []
        self.health: GroupHealthStatus | None = None
        self.samples = samples
        self._reader = arrow.GenerationReader()
        self._placed_lines: list[tuple[tuple[int, str, int], LogLine]] = []
        self._commits: _CommitTimes | None = None

    @property
    def lines(self) -> list[LogLine]:
        return [line for _, line in sorted(self._placed_lines, key=lambda line: line[0])]

    def commits(self) -> CommitTimes:
        return {} if self._commits is None else self._commits.by_partition()

    def commit_summary(self) -> CommitSummary | None:
        return None if self._commits is None else self._commits.summary

    def add_rows(self, table: str, rows: pa.RecordBatch) -> None:  # noqa: C901 (a case for each)
        match table:
            case "overviews":
                for row in arrow.batch_to_rows(rows):
                    self.overview = GroupOverview(**row)
            case "generations":
                self.generations += self._reader.read(rows)
                self.generations.sort(key=lambda generation: generation.offset)
            case "lines":
                for row in arrow.batch_to_rows(rows):
                    place = row["at"], row.pop("file"), row.pop("line")
                    self._placed_lines.append((place, LogLine(**row)))
            case "ownership":
                self.ownership += (PartitionOwnership(**row) for row in arrow.batch_to_rows(rows))
            case "health":
                for row in arrow.batch_to_rows(rows):
                    known = {name: GroupHealth(row[name]) for name in ("health", "worst")}
                    self.health = GroupHealthStatus(**row | known)
            case "samples":
                self.samples.add_samples(rows)
            case _ if rows.num_rows:
                if self._commits is None:
                    self.group = rows.column("group")[0].as_py()
                    self._commits = _CommitTimes(self._query_times())
                self._commits.add_commits(rows)
            case _:
                pass

    def _query_times(self) -> Int64Array:
        """Returns the times that the analysis looks back from, to find the last commits before."""
        ends = [owned.until for owned in self.ownership if owned.until is not None]
        times = list_query_times(self.generations, (line for _, line in self._placed_lines))
        return np.union1d(times, np.array(ends, dtype=np.int64))


def _compute_group_rows(
    evidence: _GroupEvidence, options: GroupOptions
) -> Iterator[tuple[str, pa.RecordBatch]]:
    generations, commits, lines = evidence.generations, evidence.commits(), evidence.lines
    samples = evidence.samples
    rebalances = find_rebalances(generations)
    explained = [explain_rebalance(rebalance, commits, lines) for rebalance in rebalances]
    rollouts = find_rollouts(rebalances, explained)
    downtime = find_downtime(
        generations,
        rebalances,
        explained,
        commits=commits,
        until=options.until,
        lines=lines,
        ownership=evidence.ownership,
    )
    uncounted: list[Downtime] = []
    if options.since is not None:
        uncounted = list(_list_uncounted(downtime.found, options.since))
        downtime = replace(downtime, found=list(_clip_downtime(downtime.found, options.since)))
    if samples.numbers:
        downtime = downtime.with_log_ends(samples.ends, samples.numbers)
    pieces = downtime.found
    downtime = replace(downtime, found=[*pieces, *uncounted])
    evaluation = evaluate_policies(
        generations,
        rebalances,
        downtime,
        topic_ids=options.topic_ids,
        strategies=options.strategies,
        assignment_interval=options.assignment_interval,
        since=options.since,
    )
    ended_by: defaultdict[tuple[int, int | None], list[Downtime]] = defaultdict(list)
    for piece in pieces:
        ended_by[piece.incarnation, piece.to_generation].append(piece)
    facts = [
        fact
        for fact in zip(rebalances, explained, rollouts, strict=True)
        if options.counts(fact[0].after.at)
    ]
    rows = (
        _rebalance_row(*fact, sum_downtime(ended_by[_rebalance_key(fact[0])])) for fact in facts
    )
    yield "rebalances", arrow.rows_to_batch(REBALANCES, rows)
    yield "downtime", arrow.facts_to_batch(DOWNTIME, pieces)
    yield "whatif", arrow.facts_to_batch(WHATIF, evaluation.rows)
    if not facts and not pieces:
        return
    recent = [rebalance for rebalance, _, _ in facts]
    # with the generation before, to see which static members returned in the first one
    numbered = enumerate(generations)
    first = next((n for n, one in numbered if options.counts(one.at)), len(generations))
    patterns = find_patterns(
        recent,
        [why for _, why, _ in facts],
        [name for _, _, name in facts],
        generations=generations[max(first - 1, 0) :],
        commits=commits,
        health=evidence.health,
        end=options.until,
    )
    # without a rebalance in the time window, the last one before it shows the policy in use
    is_readable = is_readable_consumer_group(generations)
    earlier = [one for one in rebalances if one.after.members and is_readable]
    advice = advise_group(
        generations,
        recent or earlier[-1:],
        AdviceEvidence(
            evaluation=evaluation,
            total=sum_downtime(pieces),
            patterns=[pattern for pattern in patterns if options.counts(pattern.until)],
            health=evidence.health,
            causes={_rebalance_key(rebalance): why.cause for rebalance, why, _ in facts},
            has_consumer_protocol=options.has_consumer_protocol,
        ),
    )
    yield "advice", arrow.rows_to_batch(ADVICE, [asdict(advice)])
    better = evaluation.advised_policy(advice)
    owners = list_advised_ownership(generations, rebalances, better, downtime, options.topic_ids)
    shown = [one for one in owners if one.until is None or options.counts(one.until)]
    yield "advised", arrow.facts_to_batch(ADVISED, shown)


def _clip_downtime(found: Iterable[Downtime], since: int) -> Iterator[Downtime]:
    """Yields the downtime after a time; its bounds become shorter by as much as the estimate."""
    for one in found:
        cut = since - one.since
        if cut <= 0:
            yield one
        elif one.until > since:
            least, most = max(one.at_least_ms - cut, 0), one.at_most_ms - cut
            yield replace(one, since=since, at_least_ms=least, at_most_ms=most)


def _list_uncounted(found: Sequence[Downtime], since: int) -> Iterator[Downtime]:
    """Yields the times before ``since`` in which a downtime began that ends later. They have the
    reason *shut down*, so that the replay of a policy does not count them.
    """
    first = min((one.since for one in found if one.since < since < one.until), default=since)
    for one in found:
        if one.since < since and one.until >= first:  # a crash comes before the empty group
            end = min(one.until, since)
            yield replace(one, until=end, reason=DowntimeReason.SHUT_DOWN)


def _rebalance_key(rebalance: Rebalance) -> tuple[int, int]:
    return rebalance.after.incarnation, rebalance.after.generation


class _CommitTimes:
    """The commit times that an explanation can use: a group may have many others."""

    def __init__(self, query_times: Int64Array) -> None:
        self._query_times = query_times
        #: The times of the first and the last commit or deletion.
        self.times: tuple[int, int] | None = None
        self._numbers: dict[tuple[str, int], int] = {}
        #: Runs of commits, each sorted by partition and time.
        self._runs: list[tuple[PartitionCodes, Int64Array]] = []
        self._rows = 0
        self._limit = MAX_KEPT_COMMITS

    @property
    def summary(self) -> CommitSummary | None:
        return None if self.times is None else CommitSummary(*self.times, self._numbers.keys())

    def add_commits(self, rows: pa.RecordBatch) -> None:
        times = pc.coalesce(rows.column("committed_at"), rows.column("at"))
        bounds = pc.min_max(arrow.to_milliseconds(times)).as_py()
        first, last = self.times or (bounds["min"], bounds["max"])
        self.times = min(first, bounds["min"]), max(last, bounds["max"])
        rows = rows.filter(rows.column("committed_at").is_valid())
        pairs, place = distinct_partitions(rows)
        codes = [self._numbers.setdefault(pair, len(self._numbers)) for pair in pairs]
        at = arrow.to_milliseconds(rows.column("committed_at")).to_numpy(zero_copy_only=False)
        code = np.array(codes, dtype=np.int32)[place]
        needed = select_commits(code, at, self._query_times)
        self._runs.append((code[needed], at[needed]))
        self._rows += len(needed)
        if self._rows > self._limit:
            merged = list(self._merged())
            self._runs, self._rows = merged, sum(len(at) for _, at in merged)
            self._limit = max(MAX_KEPT_COMMITS, 2 * self._rows)

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


def _rebalance_row(
    rebalance: Rebalance, why: Explanation, rollout: str | None, downtime: DowntimeTotal
) -> dict[str, Any]:
    after, before = rebalance.after, rebalance.before
    readable = is_readable_consumer_group(
        rebalance.rounds if before is None else (before, *rebalance.rounds)
    )
    counted = compute_cost(rebalance) if readable else None
    sums = asdict(downtime) if readable else {}
    counts = ("moved", "moves_needed", "orphaned", "revoked", "idle_members", "most", "least")
    explanation = ("cause", "evidence", "likely", "reason")
    times = ("started_at", "joined_at", "earliest_start", "latest_start")
    old = () if before is None else before.members
    return {
        **sums,
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
