"""The data of a group's page: columns of whole numbers, packed.

A group's data is one JSON object, deflated and written in base64. Times are whole milliseconds,
kept once in a rising list; columns hold positions in that list. Names are kept the same way. A page
of a thousand groups opens at once because a group is unpacked only when somebody opens it, and
because each table is sorted by group and read once, however many groups there are. unpack.js
unpacks it.

Three parts have a limit, so that the file stays small: the partitions with their own lag, the times
without a consumer, and the lines of the broker's log. The longest times and the largest lag are
kept; sums are always over all of them.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
from pyarrow import compute

from rota.engine.history.facts import CHANGE, RebalanceCause
from rota.engine.history.lag import BoolArray, Float64Array, Int64Array
from rota.pipeline.arrow import to_milliseconds
from rota.report.story import (
    NOTABLE_RECORDS,
    NOTABLE_SECONDS,
    GoldTables,
    GroupStory,
    Story,
)

NO_POSITION = -1  # end of a band that goes on to the end of the evidence; no name
MEMBER_COLUMNS = ("member_id", "client_id", "client_host", "group_instance_id")

COUNT_COLUMNS = (
    ("generation", "to_generation"),
    ("from_generation", "from_generation"),
    ("incarnation", "incarnation"),
    ("rounds", "rounds"),
    ("join", "join_ms"),
    ("sync", "sync_ms"),
    ("before", "members_before"),
    ("after", "members_after"),
    ("moved", "moved"),
    ("needed", "moves_needed"),
    ("revoked", "revoked"),
    ("orphaned", "orphaned"),
    ("idle", "idle_members"),
    ("downtime", "downtime_ms"),
    ("at_least", "downtime_at_least_ms"),
    ("at_most", "downtime_at_most_ms"),
    ("not_polled", "not_polled_ms"),
    ("delayed", "delayed_records"),
)

#: Starts, as milliseconds before the end: stated, earliest and latest.
START_COLUMNS = (("took", "started_at"), ("most", "earliest_start"), ("least", "latest_start"))
REBALANCE_KEY = ("incarnation", "to_generation")  # what tells rebalances of a group apart
STOP_KEY = ("since", "until", "reason", *REBALANCE_KEY)
NAME_COLUMNS = (
    *("cause", "evidence", "likely", "reason", "strategy", "rollout", "kind", "protocol"),
)
#: Limits for each group: rows of gold/downtime to choose from, and runs of partitions in them.
MAX_STOP_ROWS, MAX_STOP_RUNS = 20_000, 6_000
#: Lines of the broker's log that show a rebalance, in the order in which they are kept; the number
#: of lines for each rebalance, group and page.
LINE_TYPES = ("preparing", "failed", "left", "stabilized", "replaced", "emptied")
LINES_PER_REBALANCE, LINES_PER_GROUP, LINES_PER_PAGE = 3, 200, 6_000
Columns: TypeAlias = dict[str, list[Any]]


def build_charts(story: Story, gold: GoldTables) -> Iterator[dict[str, Any]]:
    """Yields the chart data of each group of a story, in the story's order."""
    names = [group.name for group in story.groups]
    order = ("topic", "partition", "since")
    ownership = split_by_group(_with_milliseconds(gold.ownership, "since", "until"), names, order)
    no_ids = pa.nulls(gold.advised.num_rows, pa.string())
    advised = gold.advised.append_column("group_instance_id", no_ids)
    advised_by_group = split_by_group(_with_milliseconds(advised, "since", "until"), names, order)
    order = ("at", *REBALANCE_KEY)
    times = ("at", "started_at", "earliest_start", "latest_start")
    rebalances = split_by_group(_with_milliseconds(gold.rebalances, *times), names, order)
    reasons = split_by_group(downtime_by_reason(gold.downtime), names, (*REBALANCE_KEY, "reason"))
    downtime = _with_milliseconds(gold.downtime, "since", "until")
    stops = split_by_group(downtime, names, ("until", "since", "reason", "topic", "partition"))
    is_used = compute.is_in(gold.serverlog["what"], value_set=pa.array(LINE_TYPES))
    lines = _with_milliseconds(gold.serverlog.filter(is_used), "at")
    lines_by_group = split_by_group(lines, names, ("at", "file", "line"))
    most_lines = min(LINES_PER_GROUP, LINES_PER_PAGE // max(len(names), 1))
    replayed = rebalances_under_advice(gold.whatif, story.groups)
    replayed_by_group = split_by_group(_with_milliseconds(replayed, "at"), names, order)
    spans = _chart_windows(story, ownership, rebalances)
    policies = policy_totals(gold.whatif, names)
    lags = lag_series(story.lag, names, spans)
    partition_lags = partition_lag_series(story.lag, names, spans)
    for place, group in enumerate(story.groups):
        rows = _GroupRows(
            ownership=ownership[place],
            advised_ownership=advised_by_group[place] if group.verdict == CHANGE else None,
            rebalances=rebalances[place],
            replayed=replayed_by_group[place],
            stops=stops[place],
        )
        chart = _ChartBuilder(spans[place]).build(group, rows)
        chart["rebalances"]["reasons"] = reason_columns(rebalances[place], reasons[place])
        yield chart | {
            "lag": asdict(lags[place]) if place in lags else None,
            "partition_lags": partition_lags.get(place, []),
            "policies": policies.get(place, []),
            "lines": _log_lines(rebalances[place], lines_by_group[place], most_lines),
        }


def pack_chart(data: Mapping[str, Any]) -> str:
    """Packs chart data for the page: JSON, deflated, base64."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode()


def to_deltas(numbers: Iterable[int]) -> list[int]:
    """Returns the first number, then the differences, which are small and deflate well."""
    listed = [0, *numbers]
    return [after - before for before, after in pairwise(listed)]


class _NameTable(dict[Hashable, int]):
    """Names without duplicates, each with its position; columns hold positions."""

    def position_of(self, name: Hashable) -> int:
        return NO_POSITION if name is None else self.setdefault(name, len(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class _GroupRows:
    """The rows of one group."""

    ownership: pa.Table
    advised_ownership: pa.Table | None  # None: no change is advised
    rebalances: pa.Table
    replayed: pa.Table
    stops: pa.Table  # of gold/downtime


class _ChartBuilder:
    def __init__(self, span: ChartWindow) -> None:
        self._span = span
        self._members = _NameTable()
        self._topics = _NameTable()
        self._words = _NameTable()
        self._times: dict[int, int] = {}
        self._position_by_id: dict[str, int] = {}

    def build(self, group: GroupStory, tables: _GroupRows) -> dict[str, Any]:
        """Returns the chart data without lag, policies, log lines and reasons of downtime."""
        advised, rebalances = tables.advised_ownership, tables.rebalances
        owned = [tables.ownership] if advised is None else [tables.ownership, advised]
        columns = [table[name] for table in owned for name in ("since", "until")]
        columns += [table["at"] for table in (rebalances, tables.replayed)]
        times = {time for column in columns for time in column.to_pylist()} - {None}
        self._times = {time: place for place, time in enumerate(sorted(times))}
        rows = sorted({row for table in owned for row in _rows(table, "topic", "partition")})
        return {
            "group": _group_fields(group),
            "begin": self._span.begin,
            "end": self._span.end,
            "ownership": self._bands(tables.ownership, rows),
            "advised_ownership": None if advised is None else self._bands(advised, rows),
            "rebalances": self._rebalances(rebalances),
            "stops": self._stops(tables.stops, rebalances, rows),
            "replayed": None if advised is None else self._replayed(tables.replayed, rebalances),
            "times": to_deltas(self._times),
            "members": list(self._members),
            "row_topics": [self._topics.position_of(topic) for topic, _ in rows],
            "row_partitions": to_deltas(partition for _, partition in rows),
            "topics": list(self._topics),
            "words": list(self._words),
        }

    def _bands(self, table: pa.Table, rows: Sequence[tuple[str, int]]) -> Columns:
        """Returns the number of bands of each row; and for each band its owner, the gap from
        the end of the band before (for the first: from the first time), and its length. Gap
        and length are counted in positions of the list of times.
        """
        counts = dict.fromkeys(rows, 0)
        columns: Columns = {"member": [], "gap": [], "length": []}
        partitions, members = _rows(table, "topic", "partition"), _rows(table, *MEMBER_COLUMNS)
        times = _rows(table, "since", "until")
        before, end = None, 0
        for row, member, (since, until) in zip(partitions, members, times, strict=True):
            if row != before:
                before, end = row, 0
            counts[row] += 1
            begin = self._times[since]
            columns["member"].append(self._members.position_of(member))
            columns["gap"].append(begin - end)
            end = begin if until is None else self._times[until]
            columns["length"].append(NO_POSITION if until is None else end - begin)
        return {"bands": list(counts.values())} | columns

    def _rebalances(self, table: pa.Table) -> Columns:
        at = table["at"].to_pylist()
        columns: Columns = {"at": to_deltas(self._times[time] for time in at)}
        for name, column in START_COLUMNS:
            columns[name] = [
                None if begin is None else end - begin
                for begin, end in zip(table[column].to_pylist(), at, strict=True)
            ]
        for name in ("joined", "left"):
            listed = table[name].to_pylist()
            columns[name] = [[self._member_position(member) for member in ids] for ids in listed]
        columns |= {name: table[column].to_pylist() for name, column in COUNT_COLUMNS}
        return columns | {
            name: [self._words.position_of(word) for word in table[name].to_pylist()]
            for name in NAME_COLUMNS
        }

    def _member_position(self, member_id: str) -> int:
        """Returns the position of a member, also of one that never had a partition."""
        if not self._position_by_id:
            for (name, *_), place in cast("dict[tuple[str, ...], int]", self._members).items():
                self._position_by_id.setdefault(name, place)
        if member_id not in self._position_by_id:
            self._position_by_id[member_id] = self._members.position_of(
                (member_id, None, None, None)
            )
        return self._position_by_id[member_id]

    def _stops(
        self, table: pa.Table, rebalances: pa.Table, rows: Sequence[tuple[str, int]]
    ) -> dict[str, Any]:
        """Returns the longest times without a consumer. Partitions that stopped together are one
        stop, with its partitions as runs of rows: how many rows are before the run, since the run
        before, and how long it is.
        """
        longest = table
        if table.num_rows > MAX_STOP_ROWS:
            lengths = compute.subtract(table["until"], table["since"])
            by = [("length", "descending")]
            longest = table.take(
                compute.select_k_unstable(table.append_column("length", lengths), MAX_STOP_ROWS, by)
            )
        places = {row: place for place, row in enumerate(rows)}
        rebalance = {key: place for place, key in enumerate(_rows(rebalances, *REBALANCE_KEY))}
        found: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for *key, topic, partition in _rows(longest, *STOP_KEY, "topic", "partition"):
            if (topic, partition) in places and key[1] > key[0]:
                found[tuple(key)].append(places[topic, partition])
        stops: list[tuple[tuple[Any, ...], list[tuple[int, int]]]] = []
        many = 0
        for stop, partitions in sorted(found.items(), key=lambda one: one[0][0] - one[0][1]):
            runs = _runs(sorted(partitions))
            many += len(runs)
            if many > MAX_STOP_RUNS:
                break
            stops.append((stop, runs))
        stops.sort(key=lambda one: (one[0][1], one[0][0], one[1]))
        return {
            "until": to_deltas(key[1] for key, _ in stops),
            "length": [key[1] - key[0] for key, _ in stops],
            "reason": [self._words.position_of(key[2]) for key, _ in stops],
            "rebalance": [rebalance.get(tuple(key[3:]), NO_POSITION) for key, _ in stops],
            "runs": [[number for run in runs for number in run] for _, runs in stops],
            "left_out": len(found) - len(stops),
        }

    def _replayed(self, table: pa.Table, rebalances: pa.Table) -> Columns:
        """Returns the rebalances that happen under the advised policy, with their causes."""
        keys = list(_rows(table, *REBALANCE_KEY))
        places = {key: place for place, key in enumerate(_rows(rebalances, *REBALANCE_KEY))}
        causes = dict(zip(places, rebalances["cause"].to_pylist(), strict=True))
        return {
            "at": to_deltas(self._times[time] for time in table["at"].to_pylist()),
            "cause": [
                self._words.position_of(causes.get(key, RebalanceCause.UNKNOWN)) for key in keys
            ],
            "of": [places.get(key, NO_POSITION) for key in keys],
            "moved": table["moved"].to_pylist(),
            "needed": table["moves_needed"].to_pylist(),
            "revoked": table["revoked"].to_pylist(),
            "downtime": table["downtime_ms"].to_pylist(),
        }


#: Columns of gold/groups that the page shows.
OVERVIEW_COLUMNS = ("kind", "members", "partitions", "topics", "last_members")


def _group_fields(group: GroupStory) -> dict[str, Any]:
    same = (
        *("name", "verdict", "policy", "mark", "moved", "complete_from", "whole"),
        *("downtime_ms", "downtime_at_least_ms", "downtime_at_most_ms", "not_polled_ms"),
        *("delayed_records", "happened", "to_do"),
    )
    actions = [asdict(action) for action in group.actions]
    return {name: getattr(group, name) for name in same} | {
        "overview": {name: group.overview.get(name) for name in OVERVIEW_COLUMNS},
        "health": asdict(group.health) | {"mark": group.marks["health"]},
        "used": list(group.policies_used),
        "known_causes": list(group.known_causes.items()),
        "needed": group.moves_needed,
        "libraries": list(group.libraries),
        "patterns": [asdict(pattern) for pattern in group.patterns],
        "actions": actions,
        "setting_libraries": list(group.setting_libraries),
        "lag": None if group.lag is None else asdict(group.lag),
    }


def _runs(places: Sequence[int]) -> list[tuple[int, int]]:
    """Returns runs of consecutive places: the gap since the run before, and the length."""
    runs: list[tuple[int, int]] = []
    end = 0
    for place in places:
        if runs and place == end:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((place - end, 1))
        end = place + 1
    return runs


def downtime_by_reason(downtime: pa.Table) -> pa.Table:
    """Returns the downtime that each rebalance ended, in partition-milliseconds, by its reason."""
    keys = ["group", *REBALANCE_KEY, "reason"]
    lengths = compute.subtract(*(to_milliseconds(downtime[name]) for name in ("until", "since")))
    rows = downtime.select(keys).append_column("length", lengths)
    return rows.group_by(keys).aggregate([("length", "sum")])


def reason_columns(rebalances: pa.Table, reasons: pa.Table) -> Columns:
    places = {key: place for place, key in enumerate(_rows(rebalances, *REBALANCE_KEY))}
    columns: Columns = {}
    for *key, reason, length in _rows(reasons, *REBALANCE_KEY, "reason", "length_sum"):
        place = places.get(tuple(key))
        if place is not None and length:
            columns.setdefault(reason, [0] * len(places))[place] = length
    return columns


def _log_lines(rebalances: pa.Table, lines: pa.Table, most: int) -> Columns:
    """Returns the lines of the broker's log between each rebalance and the one before it."""
    ends = np.asarray(rebalances["at"].to_pylist(), np.int64)
    listed = list(_rows(lines, "at", "what", "file", "line", "text"))
    places = np.searchsorted(ends, [line[0] for line in listed]).tolist()
    by_rank: dict[int, list[tuple[int, int]]] = defaultdict(list)
    # the last "preparing" before the end is that of the rebalance
    for number in reversed(range(len(listed))):
        if places[number] < len(ends):
            rank = LINE_TYPES.index(listed[number][1])
            by_rank[places[number]].append((rank, number))
    chosen = sorted(
        (rank, place, number)
        for place, ranked in by_rank.items()
        for rank, number in sorted(ranked, key=lambda one: (one[0], -one[1]))[:LINES_PER_REBALANCE]
    )[:most]
    kept = sorted((place, number) for _, place, number in chosen)
    files = sorted({listed[number][2] for _, number in kept})
    return {
        "rebalance": [place for place, _ in kept],
        "before": [int(ends[place]) - listed[number][0] for place, number in kept],
        "file": [files.index(listed[number][2]) for _, number in kept],
        "line": [listed[number][3] for _, number in kept],
        "text": [listed[number][4] for _, number in kept],
        "files": files,
    }


def _with_milliseconds(table: pa.Table, *columns: str) -> pa.Table:
    for name in columns:
        place = table.column_names.index(name)
        table = table.set_column(place, name, to_milliseconds(table[name]))
    return table


def _chart_windows(
    story: Story, ownership: Sequence[pa.Table], rebalances: Sequence[pa.Table]
) -> list[ChartWindow]:
    """Returns each group's time within ``--since`` and ``--until``, or the evidence."""
    evidence = story.evidence
    begins = story.lag.group_by("group").aggregate([("since", "min")])
    lag_begin = dict(_rows(begins, "group", "since_min"))
    windows = []
    for group, owned, changed in zip(story.groups, ownership, rebalances, strict=True):
        since, until, at = (
            compute.min_max(column).as_py()
            for column in (owned["since"], owned["until"], changed["at"])
        )
        firsts = (since["min"], at["min"], lag_begin.get(group.name))
        lasts = (since["max"], until["max"], at["max"], evidence.last)
        begin = evidence.since
        if begin is None:
            begin = min((first for first in firsts if first is not None), default=evidence.first)
        begin = begin or 0
        end = max((last for last in lasts if last is not None), default=begin)
        if evidence.until is not None:
            end = min(end, evidence.until)
        windows.append(ChartWindow(begin, max(end, begin + 1_000)))
    return windows


def _rows(table: pa.Table, *columns: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in columns), strict=True)


LAG_BUCKETS = 240  # number of time buckets in a chart; each shows the largest lag in its time
#: Partitions of a group with their own lag, the largest; fewer if there are many groups.
PARTITIONS_WITH_LAG, SERIES_PER_PAGE = 12, 3_000
BUCKETS_PER_PASS = 1 << 22  # pairs of interval and bucket computed at a time
#: Digits of a run's lag: in a run of one bucket, and in a longer run.
FIGURES, FIGURES_OF_MANY = 3, 5
TOLERANCE_SECONDS = 0.001

POLICY_TOTALS = (
    "downtime_ms",
    "rebalances",
    "moved",
    "moves_needed",
    "revoked",
    "idle_members",
    "spread",
)


@dataclass(frozen=True, slots=True)
class ChartWindow:
    """The time that a group's charts show, in milliseconds."""

    begin: int
    end: int

    @property
    def step(self) -> int:
        """The width of a bucket of lag."""
        return -(-(self.end - self.begin + 1) // LAG_BUCKETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSeries:
    """The largest lag of a group's partitions in each bucket of time, as runs of buckets. In a run,
    lag in seconds rises by the width of a bucket from one bucket to the next, as it does while a
    group reads nothing. Lag in records is the same in all buckets of a run.
    """

    step: int  # the width of a bucket, in milliseconds
    in_seconds: bool  # False: records, because no ages are known
    run_lengths: list[int]  # number of buckets in each run
    run_ends: list[float | None]  # lag in the last bucket of each run; None: unknown
    at_least: list[bool]  # may be larger: the record was there before the first sample


def rebalances_under_advice(whatif: pa.Table, groups: Sequence[GroupStory]) -> pa.Table:
    """Returns the rebalances that would happen under the advised policies; ``at`` is when."""
    advised = [group.policy if group.verdict == CHANGE else None for group in groups]
    rows = add_group_positions(whatif, [group.name for group in groups])
    # Arrow computes with two columns only if each has one chunk
    policies = pa.array(advised, pa.string()).take(rows[POSITION].combine_chunks())
    is_advised = compute.equal(rows["policy"].combine_chunks(), policies)
    happening = rows.filter(compute.and_(rows["happens"].combine_chunks(), is_advised))
    return happening.drop_columns([POSITION, "at"]).rename_columns({"happens_at": "at"})


def policy_totals(whatif: pa.Table, names: Sequence[str]) -> dict[int, list[list[Any]]]:
    """Returns the costs of the policies by the group's position: the policy in use first, then
    by downtime. A row is the policy, whether it is in use, and the sums of :data:`POLICY_TOTALS`.
    """
    rows = add_group_positions(whatif, names)
    happens = compute.cast(rows["happens"], pa.int64())
    numbers = {
        name: compute.multiply(compute.cast(rows[name], pa.int64()), happens)
        for name in POLICY_TOTALS[2:]
    }
    # a static member that restarts is down without a rebalance
    numbers |= {"downtime_ms": rows["downtime_ms"], "rebalances": happens}
    keys = {name: rows[name] for name in (POSITION, "policy", "actual")}
    sums = pa.table(keys | numbers).group_by(list(keys))
    summed = sums.aggregate([(name, "sum") for name in POLICY_TOTALS])
    columns = (*keys, *(f"{name}_sum" for name in POLICY_TOTALS))
    totals = defaultdict(list)
    for place, *row in sorted(_rows(summed, *columns), key=_policy_rank):
        totals[place].append(row)
    return totals


def _policy_rank(row: tuple[Any, ...]) -> tuple[Any, ...]:
    place, policy, actual, downtime, rebalances, moved, *_ = row
    return (place, not actual, downtime, moved, rebalances, policy)


def lag_series(
    intervals: pa.Table, names: Sequence[str], spans: Sequence[ChartWindow]
) -> dict[int, LagSeries]:
    """Returns the lag of each group whose lag is known in its time, by position."""
    return _make_lag_series(add_group_positions(intervals, names), spans)


def partition_lag_series(
    intervals: pa.Table, names: Sequence[str], spans: Sequence[ChartWindow]
) -> dict[int, list[dict[str, Any]]]:
    """Returns the lag of the partitions of each group that have the largest lag, by position."""
    rows = add_group_positions(intervals, names)
    keys = [POSITION, "topic", "partition"]
    peaks = rows.group_by(keys).aggregate([("lag_seconds", "max"), ("lag", "max")])
    most = min(PARTITIONS_WITH_LAG, max(SERIES_PER_PAGE // max(len(names), 1), 2))
    chosen: list[tuple[int, str, int]] = []
    counts: dict[int, int] = defaultdict(int)
    ranked = sorted(_rows(peaks, *keys, "lag_seconds_max", "lag_max"), key=_lag_rank)
    for place, topic, partition, seconds, records in ranked:
        is_notable = (seconds or 0) >= NOTABLE_SECONDS or (records or 0) >= NOTABLE_RECORDS
        if counts[place] < (most if is_notable else 2):
            counts[place] += 1
            chosen.append((place, topic, partition))
    if not chosen:
        return {}
    listed = [dict(zip([*keys, "series"], (*key, n), strict=True)) for n, key in enumerate(chosen)]
    schema = pa.schema([rows.schema.field(name) for name in keys]).append(
        pa.field("series", pa.int64())
    )
    numbered = pa.Table.from_pylist(listed, schema)
    found = rows.join(numbered, keys, join_type="inner").drop_columns(POSITION)
    found = found.rename_columns({"series": POSITION})
    by_series = _make_lag_series(found, [spans[place] for place, _, _ in chosen])
    series: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for number, (place, topic, partition) in enumerate(chosen):
        if number in by_series:
            name = {"topic": topic, "partition": partition}
            series[place].append(name | asdict(by_series[number]))
    return series


def _lag_rank(peak: tuple[Any, ...]) -> tuple[Any, ...]:
    place, topic, partition, seconds, records = peak
    return (place, seconds is None, -(seconds or 0), -(records or 0), topic, partition)


def _make_lag_series(rows: pa.Table, spans: Sequence[ChartWindow]) -> dict[int, LagSeries]:
    seconds, records, floor = _largest_lags(rows, spans)
    series: dict[int, LagSeries] = {}
    has_lag = ((seconds >= 0) | (records >= 0)).any(axis=1)
    for place in np.flatnonzero(has_lag).tolist():
        step, in_seconds = spans[place].step, bool((seconds[place] >= 0).any())
        amounts = seconds[place] if in_seconds else records[place]
        is_floor = floor[place] & in_seconds
        ends = _run_ends(amounts, is_floor, step / 1000 if in_seconds else 0)
        lengths = np.diff(ends, prepend=-1).tolist()
        lasts = [_round_lag(*pair) for pair in zip(amounts[ends].tolist(), lengths, strict=True)]
        series[place] = LagSeries(
            step=step,
            in_seconds=in_seconds,
            run_lengths=lengths,
            run_ends=lasts,
            at_least=is_floor[ends].tolist(),
        )
    return series


def _largest_lags(
    rows: pa.Table, spans: Sequence[ChartWindow]
) -> tuple[Float64Array, Float64Array, BoolArray]:
    """Returns the most seconds and records of each group in each of its buckets, -1 where there is
    no lag interval; and whether the seconds are only a lower bound. Lag in seconds is largest at
    the end of a bucket, or at the end of the interval in it. Lag in records is known at the end of
    an interval.
    """
    place, since, until, lag, lag_seconds, at_least = (
        rows[name].combine_chunks().to_numpy(zero_copy_only=False)
        for name in (POSITION, "since", "until", "lag", "lag_seconds", "at_least")
    )
    begin, step = (
        np.array([getattr(span, name) for span in spans], dtype=np.int64)[place]
        for name in ("begin", "step")
    )
    first = np.maximum((since - begin) // step, 0)
    last = np.minimum((until - begin) // step, LAG_BUCKETS - 1)
    many = np.maximum(last - first + 1, 0)
    exact, floor, records = (np.full(len(spans) * LAG_BUCKETS, -1.0) for _ in range(3))
    through = np.cumsum(many)
    chunks = np.searchsorted(
        through,
        np.arange(BUCKETS_PER_PASS, through[-1:].sum() + BUCKETS_PER_PASS, BUCKETS_PER_PASS),
    )
    for chunk in np.split(np.arange(len(many)), np.unique(chunks)):
        row = np.repeat(chunk, many[chunk])
        bucket = np.arange(len(row)) - np.repeat(np.cumsum(many[chunk]) - many[chunk], many[chunk])
        bucket += first[row]
        after = until[row] - begin[row] - (bucket + 1) * step[row]
        left, is_end = np.maximum(after, 0) / 1000, after < 0
        into = place[row].astype(np.int64) * LAG_BUCKETS + bucket
        seconds, is_floor = np.maximum(lag_seconds[row] - left, 0), at_least[row]
        np.fmax.at(exact, into[~is_floor], seconds[~is_floor])
        np.fmax.at(floor, into[is_floor], seconds[is_floor])
        np.maximum.at(records, into[is_end], lag[row[is_end]])
    shape = len(spans), LAG_BUCKETS
    most = np.maximum(exact, floor)
    return most.reshape(shape), records.reshape(shape), (floor > exact).reshape(shape)


def _run_ends(amounts: Float64Array, is_floor: BoolArray, rise: float) -> Int64Array:
    """Returns the last bucket of each run: see :class:`LagSeries`."""
    expected = np.where(amounts[1:] < 0, -1, np.maximum(amounts[1:] - rise, 0))
    is_last = np.abs(expected - amounts[:-1]) > TOLERANCE_SECONDS
    is_last |= is_floor[1:] != is_floor[:-1]
    return np.flatnonzero(np.append(is_last, [True]))


def _round_lag(amount: float, many: int) -> float | None:
    """Rounds lag to the few digits that a chart needs; None if it is unknown."""
    if amount < 0:
        return None
    rounded = round(float(f"{amount:.{FIGURES if many == 1 else FIGURES_OF_MANY}g}"), 1)
    return int(rounded) if rounded.is_integer() else rounded


POSITION = "place"  # column with the position of a row's group in a list of groups


def add_group_positions(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Returns the rows of these groups, with a column for the group's position in ``names``."""
    places = compute.index_in(table["group"], value_set=pa.array(names, pa.string()))
    return table.append_column(POSITION, places).filter(compute.is_valid(places))


def split_by_group(table: pa.Table, names: Sequence[str], order: Sequence[str]) -> list[pa.Table]:
    """Splits a table into one table for each of these groups, each sorted by some columns."""
    by = [(column, "ascending") for column in (POSITION, *order)]
    ordered = add_group_positions(table, names).sort_by(by)
    places = ordered[POSITION].to_numpy()
    edges = np.searchsorted(places, np.arange(len(names) + 1)).tolist()
    return [ordered.slice(begin, end - begin) for begin, end in pairwise(edges)]
