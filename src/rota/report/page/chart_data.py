"""The data of a group's charts: columns of whole numbers, packed for the page.

A group's data is one JSON object, deflated and written in base64. Times are whole milliseconds,
kept once in a rising list; columns hold positions in that list. Names are kept the same way. A page
of a thousand groups opens at once because a group is unpacked only when somebody opens it, and
because each table is sorted by group and read once, however many groups there are. pack.js
unpacks it.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import compute

from rota.engine.history.advice import CHANGE
from rota.engine.history.facts import RebalanceCause
from rota.engine.history.lag import BoolArray, Float64Array, Int64Array
from rota.pipeline.arrow import to_milliseconds
from rota.report.gold_tables import GoldTables
from rota.report.story import EvidenceSummary, GroupStory, Story

#: Stands for the end of a band that goes on to the end of the evidence, and for no name.
NO_POSITION = -1
MEMBER_COLUMNS = ("member_id", "client_id", "client_host", "group_instance_id")

COUNT_COLUMNS = (
    ("before", "members_before"),
    ("after", "members_after"),
    ("moved", "moved"),
    ("needed", "moved_min"),
    ("stopped", "stopped"),
)

#: What tells rebalances of a group apart.
REBALANCE_KEY = ("life", "to_generation")
NAME_COLUMNS = ("cause", "evidence", "likely", "reason", "strategy", "rollout")
Columns: TypeAlias = dict[str, list[Any]]


def build_charts(story: Story, gold: GoldTables) -> Iterator[dict[str, Any]]:
    """Yields the chart data of each group of a story, in the story's order."""
    names = [group.name for group in story.groups]
    order = ("topic", "partition", "since")
    ownership = split_by_group(_with_milliseconds(gold.ownership, "since", "until"), names, order)
    advised = split_by_group(
        _with_milliseconds(_with_group_instance_id(gold.advised), "since", "until"), names, order
    )
    rebalances = split_by_group(
        _with_milliseconds(gold.rebalances, "at", "started_at"), names, ("at", *REBALANCE_KEY)
    )
    replayed = split_by_group(
        _with_milliseconds(rebalances_under_advice(gold.whatif, story.groups), "at"),
        names,
        ("at", *REBALANCE_KEY),
    )
    spans = [
        _chart_window(story.evidence, ownership[place], rebalances[place])
        for place in range(len(names))
    ]
    policies = policy_totals(gold.whatif, names)
    courses = lag_series(story.lag, names, spans)
    for place, group in enumerate(story.groups):
        yield _ChartBuilder(spans[place]).build(
            group,
            was=ownership[place],
            would=advised[place] if group.verdict == CHANGE else None,
            rebalances=rebalances[place],
            replayed=replayed[place],
        ) | {"lag": _lag_columns(courses.get(place)), "policies": policies.get(place, [])}


def pack_chart(data: Mapping[str, Any]) -> str:
    """Packs chart data for the page: JSON, deflated, base64."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode()


def to_deltas(numbers: Iterable[int]) -> list[int]:
    """Returns the first number, then the difference to each next one: small numbers, which
    deflate well.
    """
    listed = [0, *numbers]
    return [after - before for before, after in pairwise(listed)]


class _NameTable:
    """A list of names without duplicates; columns hold positions in it."""

    def __init__(self) -> None:
        self.names: list[Hashable] = []
        self._places: dict[Hashable, int] = {}

    def position_of(self, name: Hashable) -> int:
        if name is None:
            return NO_POSITION
        if name not in self._places:
            self._places[name] = len(self.names)
            self.names.append(name)
        return self._places[name]


class _ChartBuilder:
    """Builds the chart data of one group."""

    def __init__(self, span: ChartWindow) -> None:
        self._span = span
        self._members = _NameTable()
        self._topics = _NameTable()
        self._words = _NameTable()
        self._times: dict[int, int] = {}

    def build(
        self,
        group: GroupStory,
        *,
        was: pa.Table,
        would: pa.Table | None,
        rebalances: pa.Table,
        replayed: pa.Table,
    ) -> dict[str, Any]:
        """Everything but lag and policies."""
        tables = [was] if would is None else [was, would]
        self._times = _time_positions(
            [table[name].to_pylist() for table in tables for name in ("since", "until")]
            + [table["at"].to_pylist() for table in (rebalances, replayed)]
        )
        rows = sorted({row for table in tables for row in _row_partitions(table)})
        return {
            "group": _group_fields(group),
            "begin": self._span.begin,
            "end": self._span.end,
            "was": self._bands(was, rows),
            "would": None if would is None else self._bands(would, rows),
            "rebalances": self._rebalances(rebalances),
            "replayed": None if would is None else self._replayed(replayed, rebalances),
            "times": to_deltas(self._times),
            "members": self._members.names,
            "row_topics": [self._topics.position_of(topic) for topic, _ in rows],
            "row_partitions": to_deltas(partition for _, partition in rows),
            "topics": self._topics.names,
            "words": self._words.names,
        }

    def _bands(self, table: pa.Table, rows: Sequence[tuple[str, int]]) -> Columns:
        """Returns the number of bands of each row; and for each band its owner, the gap from
        the end of the band before (for the first: from the first time), and its length. Gap
        and length are counted in positions of the list of times.
        """
        counts = dict.fromkeys(rows, 0)
        columns: Columns = {"member": [], "gap": [], "length": []}
        members = zip(*(table[name].to_pylist() for name in MEMBER_COLUMNS), strict=True)
        times = zip(*(table[name].to_pylist() for name in ("since", "until")), strict=True)
        before, end = None, 0
        for row, member, (since, until) in zip(_row_partitions(table), members, times, strict=True):
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
        at, started = (table[name].to_pylist() for name in ("at", "started_at"))
        columns: Columns = {"at": to_deltas(self._times[time] for time in at)}
        columns["took"] = [
            None if begin is None else end - begin for begin, end in zip(started, at, strict=True)
        ]
        columns |= {name: table[column].to_pylist() for name, column in COUNT_COLUMNS}
        return columns | {
            name: [self._words.position_of(word) for word in table[name].to_pylist()]
            for name in NAME_COLUMNS
        }

    def _replayed(self, table: pa.Table, rebalances: pa.Table) -> Columns:
        """The rebalances that the advised policy leaves, with the causes that they had."""
        causes = dict(
            zip(_rebalance_keys(rebalances), rebalances["cause"].to_pylist(), strict=True)
        )
        return {
            "at": to_deltas(self._times[time] for time in table["at"].to_pylist()),
            "cause": [
                self._words.position_of(causes.get(key, RebalanceCause.UNKNOWN))
                for key in _rebalance_keys(table)
            ],
            "moved": table["moved"].to_pylist(),
            "needed": table["moved_min"].to_pylist(),
            "stopped": table["stopped"].to_pylist(),
        }


def _group_fields(group: GroupStory) -> dict[str, Any]:
    """What is said of a group in words and totals."""
    lag = group.lag
    return {
        "name": group.name,
        "line": group.first_line,
        "verdict": group.verdict,
        "policy": group.policy,
        "used": group.policies_text,
        "now": group.policies_used[-1],
        "mark": str(group.mark),
        "known_causes": [[str(how), number] for how, number in group.known_causes.items()],
        "moved": group.moved,
        "needed": group.moved_min,
        "libraries": list(group.libraries),
        "steps": list(group.steps),
        "status": group.status,
        "complete_from": group.complete_from,
        "whole": group.whole,
        "most_lag": None
        if lag is None
        else [lag.most_seconds, lag.most, lag.most_at, lag.at_least],
    }


def _with_milliseconds(table: pa.Table, *columns: str) -> pa.Table:
    """With milliseconds for times."""
    for name in columns:
        place = table.column_names.index(name)
        table = table.set_column(place, name, to_milliseconds(table[name]))
    return table


def _with_group_instance_id(table: pa.Table) -> pa.Table:
    """With an empty column of static ids."""
    return table.append_column("group_instance_id", pa.nulls(table.num_rows, pa.string()))


def _chart_window(
    evidence: EvidenceSummary, ownership: pa.Table, rebalances: pa.Table
) -> ChartWindow:
    """The time that the charts show: from the first known time of the group, or ``--since``,
    to the end of the evidence or ``--until``.
    """
    since, until, at = (
        compute.min_max(column).as_py()
        for column in (ownership["since"], ownership["until"], rebalances["at"])
    )
    firsts = [one["min"] for one in (since, at) if one["min"] is not None]
    lasts = [one["max"] for one in (since, until, at) if one["max"] is not None]
    begin = evidence.since if evidence.since is not None else min(firsts, default=0)
    end = max([*lasts, *(time for time in (evidence.last,) if time is not None)], default=begin)
    if evidence.until is not None:
        end = min(end, evidence.until)
    return ChartWindow(begin, max(end, begin + 1_000))


def _time_positions(columns: Iterable[Iterable[int | None]]) -> dict[int, int]:
    """Every time once, rising, with its place."""
    times = sorted({time for column in columns for time in column if time is not None})
    return {time: place for place, time in enumerate(times)}


def _row_partitions(table: pa.Table) -> Iterator[tuple[str, int]]:
    return zip(table["topic"].to_pylist(), table["partition"].to_pylist(), strict=True)


def _rebalance_keys(table: pa.Table) -> Iterator[tuple[int, int]]:
    return zip(*(table[name].to_pylist() for name in REBALANCE_KEY), strict=True)


def _lag_columns(course: LagSeries | None) -> dict[str, Any] | None:
    if course is None:
        return None
    return {
        "step": course.step,
        "in_seconds": course.in_seconds,
        "lengths": course.run_lengths,
        "lasts": course.run_ends,
        "at_least": [int(one) for one in course.at_least],
    }


#: Lag is drawn as the most of each of so many buckets of time.
LAG_BUCKETS = 240
#: Stretches in buckets that are gone through at a time.
BUCKETS_PER_PASS = 1 << 22

#: To which lag is rounded: that of one bucket, and that from which others are reckoned.
FIGURES, FIGURES_OF_MANY = 3, 5

#: Seconds.
TOLERANCE_SECONDS = 0.001

POLICY_TOTALS = (
    "rebalances",
    "stopped",
    "moved",
    "moved_min",
    "needless",
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
    """The most lag of a group's partitions in each bucket of time, as runs of buckets.

    In a run lag rises as time passes, up to its last bucket: by the width of a bucket, from 0 on.
    That is what a partition does that stands still, and what no lag is. Lag in records is the same
    in all of a run, and known where a stretch ends.
    """

    #: The width of a bucket, in milliseconds.
    step: int
    #: False: records, because no ages are known.
    in_seconds: bool
    #: How many buckets each run has.
    run_lengths: list[int]
    #: The lag in the last of them; None: it is not known in any.
    run_ends: list[float | None]
    #: Of each run: lag is at least so much, as the record was there before the first sample.
    at_least: list[bool]


def rebalances_under_advice(whatif: pa.Table, groups: Sequence[GroupStory]) -> pa.Table:
    """Returns the rebalances that would happen under the advised policies; ``at`` is when."""
    advised = [group.policy if group.verdict == CHANGE else None for group in groups]
    found = add_group_positions(whatif, [group.name for group in groups])
    policies = pa.array(advised, pa.string()).take(as_one_array(found[POSITION]))
    wanted = compute.equal(as_one_array(found["policy"]), policies)
    happening = found.filter(compute.and_(as_one_array(found["happens"]), wanted))
    return happening.drop_columns([POSITION, "at"]).rename_columns({"happens_at": "at"})


def policy_totals(whatif: pa.Table, names: Sequence[str]) -> dict[int, list[list[Any]]]:
    """Returns what each policy costs each group, by the group's position: the policy in use
    first, then by damage. A row is the policy, whether it is in use, and the sums of
    :data:`POLICY_TOTALS`, computed like the totals of the advice.
    """
    rows = add_group_positions(whatif, names)
    happens = compute.cast(rows["happens"], pa.int64())
    numbers = {
        name: compute.multiply(compute.cast(rows[name], pa.int64()), happens)
        for name in ("moved", "moved_min", "stopped", "idle_members", "spread")
    }
    more = compute.subtract(numbers["moved"], numbers["moved_min"])
    numbers |= {"rebalances": happens, "needless": compute.max_element_wise(more, 0)}
    keys = {name: rows[name] for name in (POSITION, "policy", "actual")}
    sums = pa.table(keys | numbers).group_by(list(keys))
    found = sums.aggregate([(name, "sum") for name in POLICY_TOTALS])
    columns = [found[name] for name in (*keys, *(f"{name}_sum" for name in POLICY_TOTALS))]
    told: dict[int, list[list[Any]]] = {}
    for place, *row in sorted(
        zip(*(one.to_pylist() for one in columns), strict=True), key=_policy_rank
    ):
        told.setdefault(place, []).append(row)
    return told


def _policy_rank(row: tuple[Any, ...]) -> tuple[Any, ...]:
    place, policy, actual, rebalances, stopped, _, _, needless, *_ = row
    return (place, not actual, stopped + needless, rebalances, policy)


def lag_series(
    stretches: pa.Table, names: Sequence[str], spans: Sequence[ChartWindow]
) -> dict[int, LagSeries]:
    """The lag of each group that has any in its time, by the group's place.

    :param stretches: :data:`rota.report.lag_intervals.LAG_INTERVALS`
    """
    rows = add_group_positions(stretches, names)
    seconds, records, floor = _largest_lags(rows, spans)
    told: dict[int, LagSeries] = {}
    known = ((seconds >= 0) | (records >= 0)).any(axis=1)
    for place in np.flatnonzero(known).tolist():
        step, in_seconds = spans[place].step, bool((seconds[place] >= 0).any())
        amounts = seconds[place] if in_seconds else records[place]
        is_floor = floor[place] & in_seconds
        ends = _run_ends(amounts, is_floor, step / 1000 if in_seconds else 0)
        lengths = np.diff(ends, prepend=-1).tolist()
        lasts = [_round_lag(*pair) for pair in zip(amounts[ends].tolist(), lengths, strict=True)]
        told[place] = LagSeries(
            step=step,
            in_seconds=in_seconds,
            run_lengths=lengths,
            run_ends=lasts,
            at_least=is_floor[ends].tolist(),
        )
    return told


def _largest_lags(
    rows: pa.Table, spans: Sequence[ChartWindow]
) -> tuple[Float64Array, Float64Array, BoolArray]:
    """The most seconds and records of each group in each of its buckets, -1 where there are none;
    and where the seconds are only known to be at least so many.

    Lag in seconds is largest where a bucket ends, or the stretch in it. Lag in records is known
    where a stretch ends.
    """
    place, since, until, lag, lag_seconds, at_least = (
        as_one_array(rows[name]).to_numpy(zero_copy_only=False)
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
    pieces = np.searchsorted(
        through,
        np.arange(BUCKETS_PER_PASS, through[-1:].sum() + BUCKETS_PER_PASS, BUCKETS_PER_PASS),
    )
    for piece in np.split(np.arange(len(many)), np.unique(pieces)):
        row = np.repeat(piece, many[piece])
        bucket = np.arange(len(row)) - np.repeat(np.cumsum(many[piece]) - many[piece], many[piece])
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
    """The last bucket of each run in which lag rises evenly: see :class:`LagSeries`."""
    expected = np.where(amounts[1:] < 0, -1, np.maximum(amounts[1:] - rise, 0))
    is_last = np.abs(expected - amounts[:-1]) > TOLERANCE_SECONDS
    is_last |= is_floor[1:] != is_floor[:-1]
    return np.flatnonzero(np.append(is_last, [True]))


def _round_lag(amount: float, many: int) -> float | None:
    """Rounds lag to the few digits that a chart needs; None if it is unknown."""
    if amount < 0:
        return None
    rounded = float(f"{amount:.{FIGURES if many == 1 else FIGURES_OF_MANY}g}")
    return int(rounded) if rounded.is_integer() else rounded


#: The column that says which of the groups asked for a row is of.
POSITION = "place"


def add_group_positions(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Returns the rows of these groups, with a column for the group's position in ``names``."""
    places = compute.index_in(table["group"], value_set=pa.array(names, pa.string()))
    return table.append_column(POSITION, places).filter(compute.is_valid(places))


def split_by_group(table: pa.Table, names: Sequence[str], order: Sequence[str]) -> list[pa.Table]:
    """Splits a table into one table for each of these groups, each sorted by some columns."""
    by = [(column, "ascending") for column in (POSITION, *order)]
    ordered = add_group_positions(table, names).sort_by(by)
    counted = ordered.group_by(POSITION).aggregate([([], "count_all")])
    many = dict(zip(counted[POSITION].to_pylist(), counted["count_all"].to_pylist(), strict=True))
    slices, begin = [], 0
    for place in range(len(names)):
        number = many.get(place, 0)
        slices.append(ordered.slice(begin, number))
        begin += number
    return slices


def as_one_array(column: pa.ChunkedArray) -> pa.Array:
    """Combines the chunks of a column; Arrow needs that to compute with two columns."""
    return column.combine_chunks()
