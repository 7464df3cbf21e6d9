"""The content of the report: the groups, the worst first, and a summary of the input.

A group whose health is bad comes before one that is OK, and then one with more downtime before one
with less. Health is apart from the advice on the policy: a group without rebalances has it too.

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
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import cached_property, reduce
from operator import and_, itemgetter
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import compute, dataset, parquet

from rota.engine.history import facts
from rota.engine.history.facts import CHANGE, HEALTH_PATTERNS, UNCOUNTED_REASONS
from rota.engine.model.text import count_noun
from rota.errors import InputError, Unreachable
from rota.pipeline.arrow import arrow_schema, table_to_rows, to_milliseconds
from rota.pipeline.tables import (
    ADVICE,
    ADVISED,
    COMMITS,
    DOWNTIME,
    ENDS,
    EVIDENCE,
    GROUPS,
    HEALTH,
    LAG,
    OWNERSHIP,
    REBALANCES,
    SERVERLOG,
    STATUS,
    WHATIF,
    Table,
)
from rota.report import lag_intervals
from rota.report.lag_intervals import WorstLag

CURRENT_LINK = ".current"  # link to the published run: see :mod:`rota.pipeline.store`
COMMIT_COLUMNS = {"group", "topic", "partition", "at", "journal_offset"}

#: Columns of large tables that the report does not need.
SKIPPED_COLUMNS = {
    LAG: {"end", "evidence", "member_id"},
    DOWNTIME: {"ended", "member_id", "evidence", "delayed_records", "added_lag_ms"},
    SERVERLOG: {"member_id", "reason", "client_reason"},
    COMMITS: {column.name for column in COMMITS.columns} - COMMIT_COLUMNS,
}

ROW_FILTERS = {COMMITS: compute.field("offset").is_null()}  # rows that the report needs


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldTables:
    """The tables of one run that the report reads, by the names of their folders."""

    out: str
    groups: pa.Table
    rebalances: pa.Table
    downtime: pa.Table
    health: pa.Table
    ownership: pa.Table
    lag: pa.Table
    status: pa.Table
    whatif: pa.Table
    advice: pa.Table
    advised: pa.Table
    evidence: pa.Table  # one row
    ends: pa.Table  # bronze/ends
    serverlog: pa.Table  # bronze/serverlog
    deletions: pa.Table  # rows of silver/commits that delete an offset
    prior_commits: pa.Table  # the last commits before those of gold/lag


def read_gold_tables(out: str, group: str | None = None) -> GoldTables:
    """Reads the tables of the current run; with ``group`` only its rows, and no replays. Raises
    Unreachable or InputError.
    """
    if not Path(out, CURRENT_LINK).exists():
        raise Unreachable(f"{out} has no tables; rota run --out {out} writes them")
    run = Path(out, CURRENT_LINK).resolve()  # another run may replace it at any time
    needed = (GROUPS, REBALANCES, DOWNTIME, HEALTH, OWNERSHIP, LAG, STATUS, ADVICE)
    is_wanted = None if group is None else compute.field("group") == group
    try:
        tables = {Path(each.name).name: _read_table(run, each, is_wanted) for each in needed}
        tables["deletions"] = _read_table(run, COMMITS, is_wanted)
        tables["evidence"] = _read_table(run, EVIDENCE)
        is_topic = None
        if group is not None:
            topics = [tables[name].select(["topic"]) for name in ("ownership", "lag")]
            is_topic = compute.field("topic").isin(pa.concat_tables(topics)["topic"].unique())
        tables["ends"] = _read_table(run, ENDS, is_topic)
        tables["prior_commits"] = _read_prior_commits(
            run, tables["ends"], tables["evidence"], is_wanted
        )
        for each in (WHATIF, ADVISED, SERVERLOG):
            name, nothing = Path(each.name).name, arrow_schema(each).empty_table()
            tables[name] = _read_table(run, each) if group is None else nothing
    except _UnreadableTable as error:
        raise InputError(
            f"{out}: another version of Rota wrote {error}; rota run --out {out} writes it again"
        ) from None
    return GoldTables(out=out, **tables)


class _UnreadableTable(Exception):
    def __init__(self, table: Table, why: object) -> None:
        super().__init__(f"{table.name} ({why})")


def _read_table(run: Path, table: Table, is_wanted: compute.Expression | None = None) -> pa.Table:
    """Reads the columns not in SKIPPED_COLUMNS, of rows that ROW_FILTERS lets through. A filter of
    one group's rows reads all columns, because they are few.
    """
    skipped = SKIPPED_COLUMNS.get(table, set()) if is_wanted is None else set()
    names = [column.name for column in table.columns if column.name not in skipped]
    filters = [each for each in (is_wanted, ROW_FILTERS.get(table)) if each is not None]
    try:
        files = parquet.ParquetDataset(
            run / table.name, partitioning=None, filters=reduce(and_, filters) if filters else None
        )
        missing = set(names) - set(files.schema.names)
        if missing:
            raise _UnreadableTable(table, f"it has no column {', '.join(sorted(missing))}")
        return files.read(columns=names)
    except FileNotFoundError:
        raise _UnreadableTable(table, "it does not exist") from None
    except pa.ArrowException as error:
        raise _UnreadableTable(table, error) from None


def _read_prior_commits(
    run: Path, ends: pa.Table, evidence: pa.Table, is_wanted: compute.Expression | None
) -> pa.Table:
    since = compute.max(to_milliseconds(evidence["since"])).as_py()
    try:
        return last_commits_before_lag(run / COMMITS.name, ends, since, is_wanted)
    except (KeyError, pa.ArrowException) as error:
        raise _UnreadableTable(COMMITS, error) from None


PARTITION_KEY = ["group", "topic", "partition"]
PRIOR_COMMIT_COLUMNS = [*PARTITION_KEY, "at", "journal_offset", "offset"]
ROWS_PER_PASS = 1 << 20  # number of rows in memory


def last_commits_before_lag(
    folder: Path,
    ends: pa.Table,
    since: int | None,
    is_wanted: compute.Expression | None = None,
) -> pa.Table:
    """Returns each partition's last commit before its first sample, or ``since``."""
    commits = dataset.dataset(folder, format="parquet", partitioning=None)
    last = _last_commits(
        pa.schema([commits.schema.field(name) for name in PRIOR_COMMIT_COLUMNS]).empty_table()
    )
    if not ends.num_rows:
        return last
    bounds = _first_lag_times(ends, since)
    is_commit = compute.field("offset").is_valid()
    if is_wanted is not None:
        is_commit &= is_wanted
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
    """Returns from when on gold/lag has a partition's commits (column ``before``)."""
    firsts = ends.group_by(["topic", "partition"]).aggregate([("at", "min")])
    before = firsts["at_min"]
    if since is not None:
        begin = pa.scalar(since, pa.timestamp("ms", tz="UTC")).cast(before.type)
        before = compute.if_else(compute.less(before, begin), begin, before)
    return firsts.drop_columns("at_min").append_column("before", before)


def _last_commits(rows: pa.Table) -> pa.Table:
    rest = PRIOR_COMMIT_COLUMNS[len(PARTITION_KEY) :]
    ordered = rows.sort_by("journal_offset").group_by(PARTITION_KEY, use_threads=False)
    last = ordered.aggregate([(name, "last") for name in rest])
    columns = last.select([*PARTITION_KEY, *(f"{name}_last" for name in rest)])
    return columns.rename_columns(PRIOR_COMMIT_COLUMNS)


NOTABLE_SECONDS = 10.0  # a client that commits every few seconds has a smaller lag
NOTABLE_RECORDS = 1_000  # the same in records, if the ages of records are unknown


class EvidenceMark(enum.StrEnum):
    """How a number is known."""

    STATED = "stated"  # the broker's log or a record of the journal states it
    INFERRED = "inferred"  # it follows from the journal
    SAMPLED = "sampled"  # it comes from samples
    REPLAYED = "replayed"  # it comes from a replay of the history under another policy


#: Cause, how it is known, number of rebalances; the most frequent first.
CauseCounts: TypeAlias = tuple[tuple[str, EvidenceMark, int], ...]
#: Numbers of the history of a group, and of its replay under the recommended policy.
ACTUAL_NUMBERS = (
    *("rebalances", "downtime_ms", "downtime_at_least_ms", "downtime_at_most_ms", "not_polled_ms"),
    *("moved", "moves_needed", "revoked"),
)
REPLAYED_NUMBERS = (
    *("rebalances_after", "downtime_current_ms", "downtime_after_ms", "uncertainty_ms"),
    *("delayed_records_after", "saving_ms"),
    *("moved_after", "revoked_after"),
)
SAMPLED_NUMBERS = ("delayed_records", "added_lag_ms")  # numbers that depend on samples of log ends
#: Names of causes as the legend of the page has them; base.js has the same ones.
CAUSE_TITLES: Mapping[str, str] = {
    facts.RebalanceCause.JOINED: "member joined",
    facts.RebalanceCause.LEFT: "member left",
    facts.RebalanceCause.SESSION_TIMEOUT: "session timeout",
    facts.RebalanceCause.SLOW_POLL: "max.poll.interval exceeded",
    facts.RebalanceCause.UNKNOWN: "cause unknown",
}
#: Kinds of groups whose members read partitions alone, so that they have downtime.
CONSUMER_KINDS = frozenset({"classic", "consumer", "commits only"})
#: Bad health, the worst last.
PROBLEMS = (facts.GroupHealth.FALLING_BEHIND, facts.GroupHealth.STUCK, facts.GroupHealth.FAILING)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStory(facts.Advice):
    """A group: its row of gold/advice, with facts from other tables."""

    health: facts.GroupHealthStatus
    mark: EvidenceMark  # how the counts of the history are known: inferred or sampled
    causes: CauseCounts
    lag: WorstLag | None
    status: str | None  # Burrow's verdict on the group at the end of the evidence
    complete_from: int | None  # time from which on its records are complete; None: unknown
    whole: bool  # the records include the group's first one
    overview: Mapping[str, Any] = field(default_factory=dict)  # row of gold/groups, or empty

    @property
    def name(self) -> str:
        return self.group

    @property
    def severity(self) -> int:
        """How bad the present health is; 0: OK or unknown."""
        health = self.health.health
        return PROBLEMS.index(health) + 1 if health in PROBLEMS else 0

    @property
    def cause_lines(self) -> tuple[str, ...]:
        """The problem of the health, and the patterns; else the causes of the rebalances."""
        counted: Counter[str] = Counter()
        for cause, _, number in self.causes:
            counted[cause] += number
        causes = ", ".join(
            f"{CAUSE_TITLES.get(cause, cause)}: {number:,}"
            for cause, number in counted.most_common()
        )
        problem = [self.health.reason] if self.severity else []
        same = HEALTH_PATTERNS.get(self.health.health)
        patterns = (one.text for one in self.patterns if one.pattern is not same)
        return (*problem, *patterns) or ((causes,) if causes else ())

    @property
    def first_action(self) -> facts.Action | None:
        """The action that ``recommendation`` names; None: keep the policy."""
        return next((one for one in self.actions if one.is_worth_it), None)

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
        """How each number is known, by name; None: the number is unknown. The counts under the
        recommended policy of a group that keeps its policy are those of its history.
        """
        would = EvidenceMark.REPLAYED if self.verdict == CHANGE else self.mark
        numbers = (
            dict.fromkeys(ACTUAL_NUMBERS, self.mark)
            | dict.fromkeys(REPLAYED_NUMBERS, would)
            | dict.fromkeys(SAMPLED_NUMBERS, EvidenceMark.SAMPLED)
        )
        return {
            **{name: None if getattr(self, name) is None else numbers[name] for name in numbers},
            "health": self.mark if self.health.lag is None else EvidenceMark.SAMPLED,
            "causes": [how for _, how, _ in self.causes],
            "patterns": self.mark,
            "actions": [
                self.mark if action.kind is facts.ActionKind.REPAIR else EvidenceMark.REPLAYED
                for action in self.actions
            ],
            "lag": None if self.lag is None else EvidenceMark.SAMPLED,
            "status": None if self.status is None else EvidenceMark.SAMPLED,
        }

    def to_json(self) -> dict[str, Any]:
        """Returns all facts as JSON values, with the mark of every number."""
        facts_of = asdict(self)
        health = facts_of.pop("health")
        columns = [column.name for column in ADVICE.columns[1:]]
        return {
            "group": health.pop("group"),
            "health": {"now": health.pop("health"), **health},
            **{name: facts_of[name] for name in columns},
            "mark": self.mark,
            "marks": self.marks,
            "causes": [
                {"cause": cause, "evidence": how, "rebalances": number}
                for cause, how, number in self.causes
            ],
            "lag": facts_of["lag"],
            "status": self.status,
            "overview": facts_of["overview"],
        }


#: Subject and verb of a sentence about the downtime of each reason.
DOWNTIME_SUBJECTS: Mapping[str, str] = {
    facts.DowntimeReason.REVOKED: "Eager rebalances, which revoke every partition, cause",
    facts.DowntimeReason.MOVED: "Partitions that move from one member to another cause",
    facts.DowntimeReason.LEFT: "Members that leave cause",
    facts.DowntimeReason.SILENT: "Members that stop sending heartbeats cause",
    facts.DowntimeReason.RESTARTED: "Restarts of static members cause",
    facts.DowntimeReason.EMPTY: "Groups that have no member for a while cause",
}
SHOWN_REASONS = 3
RESTLESS_REBALANCES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTotals:
    """Sums over all groups of a story."""

    rebalances: int
    restless_groups: int  # groups with several rebalances
    downtime_ms: int
    downtime_by_reason: Mapping[str, int]  # the longest first
    unhealthy: Mapping[str, int]  # number of groups of each bad health, the worst first
    saving_ms: int  # what the recommended policies save
    changes: int  # groups whose policy should change

    @classmethod
    def from_groups(cls, groups: Sequence[GroupStory]) -> ClusterTotals:
        reasons = Counter[str]()
        for group in groups:
            reasons.update(group.downtime_by_reason)
        for reason in UNCOUNTED_REASONS:
            reasons.pop(reason, None)
        health = Counter(group.health.health for group in groups)
        return cls(
            rebalances=sum(group.rebalances for group in groups),
            restless_groups=sum(group.rebalances >= RESTLESS_REBALANCES for group in groups),
            downtime_ms=sum(group.downtime_ms or 0 for group in groups),
            downtime_by_reason=dict(reasons.most_common()),
            unhealthy={str(one): health[one] for one in reversed(PROBLEMS)},
            saving_ms=sum(group.saving_ms or 0 for group in groups),
            changes=sum(group.verdict == CHANGE for group in groups),
        )

    @property
    def largest_reasons(self) -> list[tuple[str, int]]:
        return list(self.downtime_by_reason.items())[:SHOWN_REASONS]

    @property
    def saving_share(self) -> float | None:
        return min(self.saving_ms / self.downtime_ms, 1.0) if self.downtime_ms else None


@dataclass(frozen=True, kw_only=True)
class Story:
    """The content of the report."""

    out: str  # folder of the tables
    groups: tuple[GroupStory, ...]  # the worst health first, then the most downtime
    total_groups: int  # number of groups in the tables, also those that are not shown
    evidence: EvidenceSummary
    causes: CauseCounts
    #: Columns of :data:`rota.report.lag_intervals.LAG_INTERVALS`.
    lag: pa.Table = field(default_factory=lag_intervals.LAG_INTERVALS.empty_table, repr=False)

    @cached_property
    def totals(self) -> ClusterTotals:
        return ClusterTotals.from_groups(self.groups)

    @property
    def headline(self) -> str:
        """How many groups are unhealthy, and the largest part of the downtime, in two sentences."""
        totals, number = self.totals, len(self.groups)
        if not number:
            return "The input has no consumer group."
        unhealthy = sum(totals.unhealthy.values())
        first = f"All {count_noun(number, 'group')} are healthy now."
        if number == 1:
            first = f"{self.groups[0].name} is {self.groups[0].health.health} now."
        elif unhealthy:
            needs = "needs" if unhealthy == 1 else "need"
            first = f"{unhealthy:,} of {number:,} groups {needs} attention now."
        elif not all(group.health.health is facts.GroupHealth.OK for group in self.groups):
            first = f"None of {number:,} groups is known to be unhealthy now."
        if not totals.downtime_ms or not totals.largest_reasons:
            return f"{first} No downtime was found."
        reason, length = totals.largest_reasons[0]
        share = f"{length / totals.downtime_ms:.0%}".replace("%", " %")
        return f"{first} {DOWNTIME_SUBJECTS[reason]} {share} of all downtime."

    @property
    def marks(self) -> dict[str, tuple[EvidenceMark, ...]]:
        """How the counts of the input are known: stated or inferred, and both maybe sampled."""
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
    """Builds the story of the groups that match one of ``globs``, or of all groups."""

    def is_wanted(name: str) -> bool:
        return not globs or any(name == glob or fnmatchcase(name, glob) for glob in globs)

    evidence = read_evidence_summary(gold.evidence)
    if globs:
        evidence = _only_wanted(evidence, is_wanted)
    builder = _StoryBuilder(gold, evidence)
    names = list_group_names(gold)
    groups = map(builder.build_group, filter(is_wanted, names))
    return Story(
        out=gold.out,
        groups=tuple(sorted(groups, key=_worst_first)),
        total_groups=len(names),
        evidence=evidence,
        causes=builder.count_causes(is_wanted),
        lag=builder.lag,
    )


def list_group_names(gold: GoldTables) -> list[str]:
    """Returns all groups, sorted."""
    tables = (gold.groups, gold.advice, gold.health)
    return sorted({name for table in tables for name in table["group"].to_pylist()})


def _worst_first(group: GroupStory) -> tuple[Any, ...]:
    costs = (group.downtime_ms, group.delayed_records, group.moved)
    return (-group.severity, *(1 if cost is None else -cost for cost in costs), group.name)


def _only_wanted(evidence: EvidenceSummary, is_wanted: Callable[[str], bool]) -> EvidenceSummary:
    """Removes the names of other groups, also in examples."""
    windows = tuple(window for window in evidence.windows if is_wanted(window[0]))
    polled = evidence.polled
    if polled is not None:
        polled = polled | {"groups": sorted(filter(is_wanted, polled["groups"]))}
    unread = tuple((what, count, ()) for what, count, _ in evidence.unread)
    return replace(evidence, windows=windows, polled=polled, unread=unread)


class _StoryBuilder:
    def __init__(self, gold: GoldTables, evidence: EvidenceSummary) -> None:
        self._evidence = evidence
        self._overviews = {row["group"]: row for row in table_to_rows(gold.groups)}
        self._advice = {row["group"]: row for row in table_to_rows(gold.advice)}
        self._health = {row["group"]: row for row in table_to_rows(gold.health)}
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

    def build_group(self, group: str) -> GroupStory:
        causes = self._causes.get(group, ())
        sampled = group in self._only_polled or any(
            how is EvidenceMark.SAMPLED for _, how, _ in causes
        )
        complete_from, whole = self._windows.get(group, (None, False))
        health = _read_health(group, self._health.get(group))
        row = self._advice.get(group)
        if row is None:
            # rare, and rota why should not wait for the imports of all other advice
            from rota.engine.history.advice import advise_uncompared  # noqa: PLC0415

            advice = advise_uncompared(group, (), (), "the group had no rebalances", health=health)
        else:
            advice = _read_advice(row)
        columns = {column.name: getattr(advice, column.name) for column in ADVICE.columns}
        overview = self._overviews.get(group, {})
        if overview and overview["kind"] not in CONSUMER_KINDS:
            columns["happened"] = " ".join(filter(None, (overview["text"], advice.happened)))
        return GroupStory(
            **columns,
            overview=overview,
            health=health,
            mark=EvidenceMark.SAMPLED if sampled else EvidenceMark.INFERRED,
            causes=causes,
            lag=self._lag.get(group),
            status=self._status.get(group),
            complete_from=complete_from,
            whole=whole,
        )

    def count_causes(self, is_wanted: Callable[[str], bool]) -> CauseCounts:
        total: Counter[tuple[str, EvidenceMark]] = Counter()
        for group, causes in self._causes.items():
            for cause, how, number in causes if is_wanted(group) else ():
                total[cause, how] += number
        return _rank_causes((cause, how, number) for (cause, how), number in total.items())


def _read_advice(row: Mapping[str, Any]) -> facts.Advice:
    names = ("policies_used", "libraries", "setting_libraries")
    lists = {name: tuple(row[name]) for name in names}
    patterns = (
        facts.Pattern(**pattern | {"pattern": facts.PatternType(pattern["pattern"])})
        for pattern in row["patterns"]
    )
    actions = tuple(map(_read_action, row["actions"]))
    return facts.Advice(**{**row, **lists, "patterns": tuple(patterns), "actions": actions})


def _read_action(row: Mapping[str, Any]) -> facts.Action:
    steps = (
        facts.ActionStep(**step | {"libraries": tuple(step["libraries"])}) for step in row["steps"]
    )
    return facts.Action(**{**row, "kind": facts.ActionKind(row["kind"]), "steps": tuple(steps)})


def _read_health(group: str, row: Mapping[str, Any] | None) -> facts.GroupHealthStatus:
    if row is None:
        reason, unknown = "the tables have no health of the group", facts.GroupHealth.UNKNOWN
        row = dict.fromkeys(column.name for column in HEALTH.columns)
        row |= {"group": group, "health": unknown, "worst": unknown}
        row |= {"reason": reason, "worst_reason": reason}
    known = {name: facts.GroupHealth(str(row[name])) for name in ("health", "worst")}
    return facts.GroupHealthStatus(**{**row, **known})


_MINUTE = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d)Z")
_DAY = 24 * 60 * 60 * 1000


def shorten_times(text: str, evidence: EvidenceSummary) -> str:
    """Writes ``between 2026-01-05 17:05Z and 2026-01-05 19:53Z`` as ``between 17:05 and 19:53 UTC``
    if the evidence is of at most a day; otherwise each date is only there once.
    """
    begins = [at for at in (evidence.since, evidence.first) if at is not None]
    ends = [at for at in (evidence.until, evidence.last) if at is not None]
    is_one_day = bool(begins and ends) and min(ends) - max(begins) <= _DAY
    found = list(_MINUTE.finditer(text))
    shown = {found[0][1]} if found and is_one_day else set()
    for place, match in enumerate(found):
        day, clock = match.groups()
        short = clock if is_one_day or day in shown else match[0].removesuffix("Z")
        shown.add(day)
        zone = " UTC" if place == len(found) - 1 else ""
        text = text.replace(match[0], f"{short}{zone}", 1)
    return text


def _causes_by_group(rebalances: pa.Table) -> dict[str, CauseCounts]:
    counted = rebalances.group_by(["group", "cause", "evidence"]).aggregate([([], "count_all")])
    causes_by_group = defaultdict(list)
    for row in counted.to_pylist():
        cause = (row["cause"], EvidenceMark(row["evidence"]), row["count_all"])
        causes_by_group[row["group"]].append(cause)
    return {group: _rank_causes(causes) for group, causes in causes_by_group.items()}


def _rebalance_times(rebalances: pa.Table) -> dict[str, list[int]]:
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

    demo: bool
    first: int | None  # times of the first and the last record
    last: int | None
    since: int | None  # the options ``--since`` and ``--until``
    until: int | None
    records: int
    commits: int
    generations: int
    rebalances: int
    logs: int  # number of broker log files
    lines: int
    samples: int
    cluster: dict[str, Any] | None  # structs of gold/evidence: cluster, lookups, polling
    lookups: dict[str, Any] | None
    polled: dict[str, Any] | None
    #: Group, time from which on its records are complete, whether its first record is there.
    windows: tuple[tuple[str, int, bool], ...]
    #: Journal partition, offset and time from which on its records are complete.
    complete: tuple[tuple[int, int, int], ...]
    unread: tuple[tuple[str, int, tuple[str, ...]], ...]  # not decoded: what, count, examples

    @property
    def commits_until(self) -> int | None:
        """Time up to which all commits are known; copied folders end with a record."""
        copied = self.cluster is None and self.polled is None
        bounds = [self.until, self.last if copied else None]
        return min((bound for bound in bounds if bound is not None), default=None)


def read_evidence_summary(table: pa.Table) -> EvidenceSummary:
    """Reads gold/evidence; raises InputError unless it has one row."""
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


def format_worst_lag(lag: WorstLag) -> str:
    """Formats a lag as ``43 min, orders-0 at 2026-11-15 06:40:35Z, 41 min after a rebalance``."""
    behind = f"{lag.most:,} records"
    if lag.most_seconds is not None:
        age = format_seconds(lag.most_seconds)
        behind = f"at least {age}, {behind}" if lag.at_least else age
    when = "before any rebalance"
    if lag.after_rebalance is not None:
        when = f"{format_seconds(lag.after_rebalance)} after a rebalance"
    return f"{behind}, {lag.most_topic}-{lag.most_partition} at {format_time(lag.most_at)}, {when}"


def format_seconds(seconds: float) -> str:
    """Formats a duration as ``108 s``, ``45 min``, ``5 h`` or ``3 d``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 120 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3_600:
        return f"{seconds / 3_600:.0f} h"
    return f"{seconds / 86_400:,.0f} d"
