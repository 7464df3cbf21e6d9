"""The content of the report: the groups, the worst first, and a summary of the input.

:func:`read_gold_tables` reads the tables of a run with Arrow: gold, and the parts of bronze and
silver that lag is computed from. :func:`build_story` makes the story of them, which the page and
the terminal show.

gold/lag has no row for a commit before the first sample of a partition's end, or before
``--since``. A partition without commits since then has no row in gold/lag, so the last commit
before is read from silver/commits: it is the position at which the group waits. There are millions
of commits; they are read in batches, and only the last commit of each group and partition is kept.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import compute, dataset, parquet

from rota.engine.history.advice import CHANGE
from rota.engine.history.client_settings import CLIENT_LIBRARIES, UNKNOWN_LIBRARY
from rota.errors import InputError, Unreachable
from rota.pipeline.arrow import table_to_rows, to_milliseconds
from rota.pipeline.tables import (
    ADVICE,
    ADVISED,
    COMMITS,
    ENDS,
    EVIDENCE,
    LAG,
    OWNERSHIP,
    REBALANCES,
    STATUS,
    WHATIF,
    Table,
)
from rota.report import lag_intervals
from rota.report.lag_intervals import WorstLag

#: Link to the published run: see :mod:`rota.pipeline.store`.
CURRENT_LINK = ".current"
#: Key of a commit.
COMMIT_COLUMNS = {"group", "topic", "partition", "at", "journal_offset"}

#: Columns of large tables that the report does not need.
SKIPPED_COLUMNS = {
    LAG: {"end", "evidence", "member_id"},
    COMMITS: {column.name for column in COMMITS.columns} - COMMIT_COLUMNS,
}

#: Rows of large tables that the report needs.
ROW_FILTERS = {COMMITS: compute.field("offset").is_null()}


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldTables:
    """The tables of one run that the report reads, by the names of their folders."""

    out: str
    rebalances: pa.Table
    ownership: pa.Table
    lag: pa.Table
    status: pa.Table
    whatif: pa.Table
    advice: pa.Table
    advised: pa.Table
    #: One row.
    evidence: pa.Table
    #: bronze/ends.
    ends: pa.Table
    #: Rows of silver/commits that delete an offset.
    deletions: pa.Table
    #: The last commits before those of gold/lag.
    prior_commits: pa.Table


def read_gold_tables(out: str) -> GoldTables:
    """Reads the tables of the current run of a folder.

    :raises Unreachable: the folder has no tables
    :raises InputError: another version of Rota wrote them
    """
    if not Path(out, CURRENT_LINK).exists():
        raise Unreachable(f"{out} has no tables; rota run --out {out} writes them")
    run = Path(out, CURRENT_LINK).resolve()  # another run may replace it at any time
    needed = (REBALANCES, OWNERSHIP, LAG, STATUS, WHATIF, ADVICE, ADVISED, EVIDENCE, ENDS)
    try:
        tables = {Path(table.name).name: _read_table(run, table) for table in needed}
        tables["deletions"] = _read_table(run, COMMITS)
        tables["prior_commits"] = _read_prior_commits(run, tables["ends"], tables["evidence"])
    except _UnreadableTable as error:
        raise InputError(
            f"{out}: another version of Rota wrote {error}; rota run --out {out} writes it again"
        ) from None
    return GoldTables(out=out, **tables)


class _UnreadableTable(Exception):
    def __init__(self, table: Table, why: object) -> None:
        super().__init__(f"{table.name} ({why})")


def _read_table(run: Path, table: Table) -> pa.Table:
    """Reads the declared columns of a table, without SKIPPED_COLUMNS, and only the rows that
    ROW_FILTERS lets through.
    """
    names = [
        column.name for column in table.columns if column.name not in SKIPPED_COLUMNS.get(table, ())
    ]
    filters = ROW_FILTERS.get(table)
    try:
        files = parquet.ParquetDataset(run / table.name, partitioning=None, filters=filters)
        missing = set(names) - set(files.schema.names)
        if missing:
            raise _UnreadableTable(table, f"it has no column {', '.join(sorted(missing))}")
        return files.read(columns=names)
    except FileNotFoundError:
        raise _UnreadableTable(table, "it does not exist") from None
    except pa.ArrowException as error:
        raise _UnreadableTable(table, error) from None


def _read_prior_commits(run: Path, ends: pa.Table, evidence: pa.Table) -> pa.Table:
    since = compute.max(to_milliseconds(evidence["since"])).as_py()
    try:
        return last_commits_before_lag(run / COMMITS.name, ends, since)
    except (KeyError, pa.ArrowException) as error:
        raise _UnreadableTable(COMMITS, error) from None


PARTITION_KEY = ["group", "topic", "partition"]
PRIOR_COMMIT_COLUMNS = [*PARTITION_KEY, "at", "journal_offset", "offset"]
#: Number of rows in memory.
ROWS_PER_PASS = 1 << 20


def last_commits_before_lag(folder: Path, ends: pa.Table, since: int | None) -> pa.Table:
    """Returns, for each group and partition, the last commit before the first sample of its end, or
    before ``since`` if that is later.

    :param folder: folder of silver/commits
    :param ends: bronze/ends
    :param since: the time of ``--since``, in milliseconds since 1970
    """
    commits = dataset.dataset(folder, format="parquet", partitioning=None)
    last = _last_commits(
        pa.schema([commits.schema.field(name) for name in PRIOR_COMMIT_COLUMNS]).empty_table()
    )
    if not ends.num_rows:
        return last
    bounds = _first_lag_times(ends, since)
    is_commit = compute.field("offset").is_valid()
    is_commit &= compute.field("at") < compute.max(bounds["before"])
    is_commit &= compute.field("topic").isin(compute.unique(bounds["topic"]))
    pending, rows = [last], 0
    for batch in commits.to_batches(columns=PRIOR_COMMIT_COLUMNS, filter=is_commit):
        table = pa.Table.from_batches([batch])
        bounded = table.join(bounds, keys=["topic", "partition"], join_type="inner")
        early = bounded.filter(compute.less(bounded["at"], bounded["before"]))
        pending.append(early.select(PRIOR_COMMIT_COLUMNS))
        rows += pending[-1].num_rows
        if rows >= ROWS_PER_PASS:
            pending, rows = [_last_commits(pa.concat_tables(pending))], 0
    return _last_commits(pa.concat_tables(pending))


def _first_lag_times(ends: pa.Table, since: int | None) -> pa.Table:
    """Returns, for each partition, the time from which gold/lag has its commits (column
    ``before``).
    """
    firsts = ends.group_by(["topic", "partition"]).aggregate([("at", "min")])
    before = firsts["at_min"]
    if since is not None:
        begin = pa.scalar(since, pa.timestamp("ms", tz="UTC")).cast(before.type)
        before = compute.if_else(compute.less(before, begin), begin, before)
    return firsts.drop_columns("at_min").append_column("before", before)


def _last_commits(rows: pa.Table) -> pa.Table:
    """Returns the last row of each group and partition in the order of the journal."""
    rest = PRIOR_COMMIT_COLUMNS[len(PARTITION_KEY) :]
    ordered = rows.sort_by("journal_offset").group_by(PARTITION_KEY, use_threads=False)
    last = ordered.aggregate([(name, "last") for name in rest])
    columns = last.select([*PARTITION_KEY, *(f"{name}_last" for name in rest)])
    return columns.rename_columns(PRIOR_COMMIT_COLUMNS)


#: Smallest lag that gets a sentence; a client that commits every few seconds has a smaller one.
NOTABLE_SECONDS = 10.0
#: The same in records, if the ages of records are unknown.
NOTABLE_RECORDS = 1_000


class EvidenceMark(enum.StrEnum):
    """How a number is known."""

    #: The broker's log or a record of the journal states it.
    STATED = "stated"
    #: It follows from the journal.
    INFERRED = "inferred"
    #: It comes from samples.
    SAMPLED = "sampled"
    #: It comes from a replay of the history under another policy.
    REPLAYED = "replayed"


#: Cause, how it is known, number of rebalances; the most frequent first.
CauseCounts: TypeAlias = tuple[tuple[str, EvidenceMark, int], ...]
#: Counts of the history of a group, and of its replay under the recommended policy.
ACTUAL_COUNTS = ("damage", "rebalances", "moved", "moves_needed", "stopped")
REPLAYED_COUNTS = ("rebalances_after", "moved_after", "stopped_after")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStory:
    """A group: its row of gold/advice, with facts from other tables."""

    name: str
    verdict: str
    policy: str
    #: In the order of their last use.
    policies_used: tuple[str, ...]
    damage: float
    rebalances: int
    rebalances_after: int
    moved: int | None
    moved_after: int | None
    moves_needed: int | None
    stopped: int | None
    stopped_after: int | None
    libraries: tuple[str, ...]
    headline: str
    steps: tuple[str, ...]
    #: How the counts of the history are known: inferred or sampled.
    mark: EvidenceMark
    causes: CauseCounts
    lag: WorstLag | None
    #: Burrow's verdict on the group at the end of the evidence.
    status: str | None
    #: Time from which on its records are complete; None: unknown.
    complete_from: int | None
    #: The records include the group's first one.
    whole: bool

    @property
    def policies_text(self) -> str:
        """The same policies as text: ``range → cooperative-sticky``."""
        return " → ".join(self.policies_used)

    @property
    def known_causes(self) -> dict[EvidenceMark, int]:
        """Number of rebalances by how their cause is known."""
        counts: Counter[EvidenceMark] = Counter()
        for _, how, number in self.causes:
            counts[how] += number
        return counts

    @property
    def marks(self) -> dict[str, Any]:
        """How each number is known, by name; None: the number is unknown.

        The counts under the recommended policy of a group that keeps its policy are those of its
        history.
        """
        would = EvidenceMark.REPLAYED if self.verdict == CHANGE else self.mark
        counts = dict.fromkeys(ACTUAL_COUNTS, self.mark) | dict.fromkeys(REPLAYED_COUNTS, would)
        return {
            **{name: None if getattr(self, name) is None else counts[name] for name in counts},
            "causes": [how for _, how, _ in self.causes],
            "lag": None if self.lag is None else EvidenceMark.SAMPLED,
            "status": None if self.status is None else EvidenceMark.SAMPLED,
        }

    @property
    def first_line(self) -> str:
        """What happened, what was unnecessary, its cost, the recommendation and its clients."""
        sentences = (self.headline, self._lag_sentence(), self._clients_sentence())
        return " ".join(filter(None, sentences))

    def _lag_sentence(self) -> str:
        """Returns a sentence about the worst lag, or nothing if it is small."""
        lag = self.lag
        if lag is None:
            return ""
        notable, behind = lag.most >= NOTABLE_RECORDS, f"{lag.most:,} records"
        if lag.most_seconds is not None and lag.at_least:
            notable |= lag.most_seconds >= NOTABLE_SECONDS
            behind = f"at least {format_seconds(lag.most_seconds)}, {behind}"
        elif lag.most_seconds is not None:
            notable = lag.most_seconds >= NOTABLE_SECONDS
            behind = format_seconds(lag.most_seconds)
        when = "before any rebalance"
        if lag.after_rebalance is not None:
            when = f"{format_seconds(lag.after_rebalance)} after a rebalance"
        where = f"{lag.most_topic}-{lag.most_partition} at {format_time(lag.most_at)}"
        return f"Most lag: {behind}, {where}, {when}." if notable else ""

    def _clients_sentence(self) -> str:
        """Returns a sentence that names the clients that can apply the advice."""
        if self.verdict != CHANGE:
            return ""
        libraries = [name for name in self.libraries if name != UNKNOWN_LIBRARY]
        if not libraries:
            return "The change works for Java clients; the members' client library is unknown."
        names = ", ".join(
            CLIENT_LIBRARIES[name].name if name in CLIENT_LIBRARIES else name for name in libraries
        )
        others = ""
        if UNKNOWN_LIBRARY in self.libraries:
            others = "; for members with an unknown library the steps show Java's settings"
        return f"The change works for the members' clients: {names}{others}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The content of the report."""

    #: Folder of the tables.
    out: str
    #: Sorted by damage, then by name.
    groups: tuple[GroupStory, ...]
    #: Number of groups in the tables, also those that are not shown.
    total_groups: int
    evidence: EvidenceSummary
    #: Causes in all groups shown.
    causes: CauseCounts
    #: Columns of :data:`rota.report.lag_intervals.LAG_INTERVALS`.
    lag: pa.Table = field(default_factory=lag_intervals.LAG_INTERVALS.empty_table, repr=False)

    @property
    def marks(self) -> dict[str, tuple[EvidenceMark, ...]]:
        """How the counts of the input are known: records of the journal are stated, rebalances are
        inferred, and both may be sampled.
        """
        evidence = self.evidence
        sampled = () if evidence.polled is None else (EvidenceMark.SAMPLED,)
        of_journal = bool(evidence.records) or not sampled
        entries = (EvidenceMark.STATED, *sampled) if of_journal else sampled
        return {
            "records": (EvidenceMark.STATED,),
            "commits": entries,
            "generations": entries,
            "rebalances": (EvidenceMark.INFERRED, *sampled) if of_journal else sampled,
            "lines": (EvidenceMark.STATED,),
            "samples": (EvidenceMark.SAMPLED,),
        }


def build_story(gold: GoldTables, globs: Sequence[str] = ()) -> Story:
    """Builds the story of the groups whose names match one of ``wanted``; of all groups if
    ``wanted`` is empty.
    """

    def is_wanted(name: str) -> bool:
        return not globs or any(name == glob or fnmatchcase(name, glob) for glob in globs)

    evidence = read_evidence_summary(gold.evidence)
    if globs:
        evidence = _only_wanted(evidence, is_wanted)
    builder = _StoryBuilder(gold, evidence)
    rows = [row for row in gold.advice.to_pylist() if is_wanted(row["group"])]
    rows.sort(key=lambda row: (-row["damage"], row["group"]))
    groups = tuple(map(builder.build_group, rows))
    return Story(
        out=gold.out,
        groups=groups,
        total_groups=gold.advice.num_rows,
        evidence=evidence,
        causes=builder.count_causes(is_wanted),
        lag=builder.lag,
    )


def _only_wanted(evidence: EvidenceSummary, is_wanted: Callable[[str], bool]) -> EvidenceSummary:
    """Removes the names of other groups, also in examples."""
    windows = tuple(window for window in evidence.windows if is_wanted(window[0]))
    polled = evidence.polled
    if polled is not None:
        polled = polled | {"groups": sorted(filter(is_wanted, polled["groups"]))}
    unread = tuple((what, count, ()) for what, count, _ in evidence.unread)
    return replace(evidence, windows=windows, polled=polled, unread=unread)


class _StoryBuilder:
    """Combines the rows of all tables about a group."""

    def __init__(self, gold: GoldTables, evidence: EvidenceSummary) -> None:
        self._causes = _causes_by_group(gold.rebalances)
        self._status = _status_by_group(gold.status)
        self._windows = {group: (at, whole) for group, at, whole in evidence.windows}
        polled = evidence.polled or {"groups": ()}
        self._only_polled = set(polled["groups"]) - set(self._windows)
        self.lag = lag_intervals.find_lag_intervals(
            gold.lag,
            gold.ends,
            gold.ownership,
            besides=pa.concat_tables(
                [gold.prior_commits, gold.deletions], promote_options="default"
            ),
            coverage=lag_intervals.CommitCoverage(
                polled_groups=self._only_polled,
                since=evidence.since,
                complete_until=evidence.commits_until,
            ),
        )
        self._lag = lag_intervals.find_worst_lags(self.lag, _rebalance_times(gold.rebalances))

    def build_group(self, row: Mapping[str, Any]) -> GroupStory:
        """Builds a group from its row of gold/advice and the other tables."""
        group = row["group"]
        causes = self._causes.get(group, ())
        sampled = group in self._only_polled or any(
            how is EvidenceMark.SAMPLED for _, how, _ in causes
        )
        complete_from, whole = self._windows.get(group, (None, False))
        advice = {column: value for column, value in row.items() if column != "group"}
        return GroupStory(
            **advice | {name: tuple(row[name]) for name in ("policies_used", "libraries", "steps")},
            name=group,
            mark=EvidenceMark.SAMPLED if sampled else EvidenceMark.INFERRED,
            causes=causes,
            lag=self._lag.get(group),
            status=self._status.get(group),
            complete_from=complete_from,
            whole=whole,
        )

    def count_causes(self, is_wanted: Callable[[str], bool]) -> CauseCounts:
        """Counts the causes of all wanted groups together."""
        total: Counter[tuple[str, EvidenceMark]] = Counter()
        for group, causes in self._causes.items():
            for cause, how, number in causes if is_wanted(group) else ():
                total[cause, how] += number
        return _rank_causes((cause, how, number) for (cause, how), number in total.items())


def _causes_by_group(rebalances: pa.Table) -> dict[str, CauseCounts]:
    counted = rebalances.group_by(["group", "cause", "evidence"]).aggregate([([], "count_all")])
    causes_by_group = defaultdict(list)
    for row in counted.to_pylist():
        cause = (row["cause"], EvidenceMark(row["evidence"]), row["count_all"])
        causes_by_group[row["group"]].append(cause)
    return {group: _rank_causes(causes) for group, causes in causes_by_group.items()}


def _rebalance_times(rebalances: pa.Table) -> dict[str, list[int]]:
    """Returns the times of each group's rebalances, in ascending order."""
    times = to_milliseconds(rebalances["at"]).to_pylist()
    times_by_group = defaultdict(list)
    for at, group in sorted(zip(times, rebalances["group"].to_pylist(), strict=True)):
        times_by_group[group].append(at)
    return times_by_group


def _rank_causes(causes: Iterable[tuple[str, EvidenceMark, int]]) -> CauseCounts:
    return tuple(sorted(causes, key=lambda row: (-row[2], row[0], row[1])))


def _status_by_group(status: pa.Table) -> dict[str, str]:
    """The last verdict on each group as a whole."""
    whole = status.filter(compute.is_null(status["topic"])).select(["group", "at", "verdict"])
    whole = whole.set_column(1, "at", to_milliseconds(whole["at"])).sort_by("at")
    return dict(zip(whole["group"].to_pylist(), whole["verdict"].to_pylist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSummary:
    """The row of gold/evidence. Times are in milliseconds since 1970."""

    #: The input is simulated.
    demo: bool
    #: Times of the first and the last record.
    first: int | None
    last: int | None
    #: The options ``--since`` and ``--until``.
    since: int | None
    until: int | None
    records: int
    commits: int
    generations: int
    rebalances: int
    #: Number of broker log files.
    logs: int
    lines: int
    samples: int
    #: The structs of gold/evidence about the cluster, the lookups and polling.
    cluster: dict[str, Any] | None
    lookups: dict[str, Any] | None
    polled: dict[str, Any] | None
    #: Group, time from which on its records are complete, whether its first record is there.
    windows: tuple[tuple[str, int, bool], ...]
    #: Journal partition, offset and time from which on its records are complete.
    complete: tuple[tuple[int, int, int], ...]
    #: Input that could not be decoded: description, count, examples.
    unread: tuple[tuple[str, int, tuple[str, ...]], ...]

    @property
    def commits_until(self) -> int | None:
        """Time up to which all commits are known; None: up to the last sample of a log end.

        A live cluster's log ends are read after its commits. Copied folders end with
        their last record, even if log ends were sampled later.
        """
        copied = self.cluster is None and self.polled is None
        bounds = [self.until, self.last if copied else None]
        return min((bound for bound in bounds if bound is not None), default=None)


def read_evidence_summary(table: pa.Table) -> EvidenceSummary:
    """Reads gold/evidence.

    :raises InputError: the table does not have exactly one row
    """
    if table.num_rows != 1:
        raise InputError(f"{EVIDENCE.name} has {table.num_rows} rows instead of one")
    (row,) = table_to_rows(table)
    row["windows"] = tuple(map(itemgetter("group", "at", "whole"), row["windows"]))
    row["complete"] = tuple(map(itemgetter("journal_partition", "offset", "at"), row["complete"]))
    unread = ((each["what"], each["count"], tuple(each["examples"])) for each in row["unread"])
    return EvidenceSummary(**row | {"unread": tuple(unread)})


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_time(milliseconds: int) -> str:
    """Formats a time as ``2026-11-15 06:00:00Z``, or as a number if datetime cannot hold it."""
    try:
        return f"{EPOCH + timedelta(milliseconds=milliseconds):%Y-%m-%d %H:%M:%S}Z"
    except OverflowError:
        return f"{milliseconds} ms after 1970"


def format_seconds(seconds: float) -> str:
    """Formats a duration as ``108 s``, ``45 min``, ``5 h`` or ``3 d``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 120 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3_600:
        return f"{seconds / 3_600:.0f} h"
    return f"{seconds / 86_400:,.0f} d"
