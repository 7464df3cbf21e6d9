"""What a group's charts are drawn from: columns of whole numbers, packed for the page.

A group's data is one JSON object, deflated and written in base64. Times are whole milliseconds,
kept once in a rising list of which the columns hold places; names likewise. A page of a thousand
groups opens at once because a group is unpacked only when somebody opens it, and the tables are
gone through once, sorted by group, however many groups there are.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import compute

from rota.replay.advice import CHANGE
from rota.report.gold import Gold
from rota.report.story import Evidence, Group, Story

LAG_POINTS = 600
"""Lag is drawn as the most of each of so many stretches of time."""
OPEN = -1
"""Stands for the end of a band that goes on to the end of the evidence, and for no name."""
MEMBER = ("member_id", "client_id", "client_host", "static_id")
COUNTED = (
    ("before", "members_before"),
    ("after", "members_after"),
    ("moved", "moved"),
    ("needed", "moved_min"),
    ("stopped", "stopped"),
)
NAMED = ("cause", "evidence", "likely", "reason", "strategy", "rollout")

Columns: TypeAlias = dict[str, list[Any]]


def charts(story: Story, gold: Gold) -> Iterator[dict[str, Any]]:
    """What is drawn of each group of a story, in its order."""
    names = [group.name for group in story.groups]
    ownership = _by_group(_with_static(gold.ownership), names, ("topic", "partition", "since"))
    advised = _by_group(_with_static(gold.advised), names, ("topic", "partition", "since"))
    rebalances = _by_group(gold.rebalances, names, ("at", "life", "to_generation"))
    replayed = _by_group(_of_advice(gold.whatif, story.groups), names, ("at",))
    spans = [
        _span(story.evidence, ownership[place], rebalances[place]) for place in range(len(names))
    ]
    totals = _totals(gold.whatif, names)
    lags = _lags(gold.lag, names, spans)
    for place, group in enumerate(story.groups):
        yield _Chart(spans[place]).drawn(
            group,
            was=ownership[place],
            would=advised[place] if group.verdict == CHANGE else None,
            rebalances=rebalances[place],
            replayed=replayed[place],
        ) | {"lag": lags.get(place), "policies": totals.get(place, [])}


def packed(data: Mapping[str, Any]) -> str:
    """As it stands in the page."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode()


def deltas(numbers: Iterable[int]) -> list[int]:
    """The first, and from each to the next: small numbers, which deflate well."""
    listed = [0, *numbers]
    return [after - before for before, after in pairwise(listed)]


@dataclass(frozen=True, slots=True)
class Span:
    """The time that a group's charts show, in milliseconds."""

    begin: int
    end: int

    @property
    def step(self) -> int:
        """The width of a stretch of lag."""
        return max(-(-(self.end - self.begin + 1) // LAG_POINTS), 1)


class _Names:
    """Names, each kept once."""

    def __init__(self) -> None:
        self.listed: list[Any] = []
        self._places: dict[Any, int] = {}

    def place(self, name: Any) -> int:
        if name is None:
            return OPEN
        if name not in self._places:
            self._places[name] = len(self.listed)
            self.listed.append(name)
        return self._places[name]


class _Chart:
    """One group's, under way."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._members = _Names()
        self._topics = _Names()
        self._words = _Names()
        self._times: dict[int, int] = {}

    def drawn(
        self,
        group: Group,
        *,
        was: pa.Table,
        would: pa.Table | None,
        rebalances: pa.Table,
        replayed: pa.Table,
    ) -> dict[str, Any]:
        """Everything but lag and policies."""
        tables = [was] if would is None else [was, would]
        self._times = _places(
            [_milliseconds(table[name]) for table in tables for name in ("since", "until")]
            + [_milliseconds(table["at"]) for table in (rebalances, replayed)]
        )
        rows = sorted({row for table in tables for row in _partitions(table)})
        return {
            "group": _head(group),
            "begin": self._span.begin,
            "end": self._span.end,
            "was": self._bands(was, rows),
            "would": None if would is None else self._bands(would, rows),
            "rebalances": self._rebalances(rebalances),
            "replayed": None if would is None else self._replayed(replayed, rebalances),
            "times": deltas(self._times),
            "members": self._members.listed,
            "row_topics": [self._topics.place(topic) for topic, _ in rows],
            "row_partitions": deltas(partition for _, partition in rows),
            "topics": self._topics.listed,
            "words": self._words.listed,
        }

    def _bands(self, table: pa.Table, rows: Sequence[tuple[str, int]]) -> Columns:
        """Of each row how many bands; of each band its owner, the gap from the end of the one
        before (the first: from the first time), and how long it is, in places of times.
        """
        counts = dict.fromkeys(rows, 0)
        columns: Columns = {"member": [], "gap": [], "length": []}
        members = zip(*(table[name].to_pylist() for name in MEMBER), strict=True)
        times = zip(*(_milliseconds(table[name]) for name in ("since", "until")), strict=True)
        before, end = None, 0
        for row, member, (since, until) in zip(_partitions(table), members, times, strict=True):
            if row != before:
                before, end = row, 0
            counts[row] += 1
            begin = self._times[since]
            columns["member"].append(self._members.place(member))
            columns["gap"].append(begin - end)
            end = begin if until is None else self._times[until]
            columns["length"].append(OPEN if until is None else end - begin)
        return {"bands": list(counts.values())} | columns

    def _rebalances(self, table: pa.Table) -> Columns:
        at, started = (_milliseconds(table[name]) for name in ("at", "started_at"))
        columns: Columns = {"at": deltas(self._times[time] for time in at)}
        columns["took"] = [
            None if begin is None else end - begin for begin, end in zip(started, at, strict=True)
        ]
        columns |= {name: table[column].to_pylist() for name, column in COUNTED}
        return columns | {
            name: [self._words.place(word) for word in table[name].to_pylist()] for name in NAMED
        }

    def _replayed(self, table: pa.Table, rebalances: pa.Table) -> Columns:
        """The rebalances that the advised policy leaves, with the causes that they had."""
        keys = ("life", "to_generation")
        places = {
            key: place
            for place, key in enumerate(zip(*(rebalances[k].to_pylist() for k in keys), strict=True))
        }
        causes = rebalances["cause"].to_pylist()
        found = (
            places.get(key) for key in zip(*(table[k].to_pylist() for k in keys), strict=True)
        )
        return {
            "at": deltas(self._times[time] for time in _milliseconds(table["at"])),
            "cause": [
                self._words.place("unknown" if place is None else causes[place]) for place in found
            ],
            "moved": table["moved"].to_pylist(),
            "needed": table["moved_min"].to_pylist(),
            "stopped": table["stopped"].to_pylist(),
        }


def _head(group: Group) -> dict[str, Any]:
    """What is said of a group in words and totals."""
    lag = group.lag
    return {
        "name": group.name,
        "line": group.first_line,
        "verdict": group.verdict,
        "policy": group.policy,
        "used": group.policy_used,
        "mark": str(group.mark),
        "damage": group.damage,
        "rebalances": [group.rebalances, group.rebalances_after],
        "stopped": [group.stopped, group.stopped_after],
        "moved": [group.moved, group.moved_after],
        "needed": group.moved_min,
        "libraries": list(group.libraries),
        "steps": list(group.steps),
        "causes": [[cause, str(mark), number] for cause, mark, number in group.causes],
        "status": group.status,
        "complete_from": group.complete_from,
        "whole": group.whole,
        "most_lag": None
        if lag is None
        else [lag.most_seconds, lag.most, lag.most_at, lag.most_topic, lag.most_partition],
    }


def _with_static(table: pa.Table) -> pa.Table:
    """With a column of static ids, if only an empty one."""
    if "static_id" in table.column_names:
        return table
    return table.append_column("static_id", pa.nulls(table.num_rows, pa.string()))


def _by_group(table: pa.Table, names: Sequence[str], order: Sequence[str]) -> list[pa.Table]:
    """A table's rows of each of these groups, in order."""
    placed = _placed(table, names)
    by = [("place", "ascending"), *((column, "ascending") for column in order)]
    ordered = placed.sort_by(by)
    counts = ordered.group_by("place", use_threads=False).aggregate([([], "count_all")])
    many = dict(
        zip(counts["place"].to_pylist(), counts["count_all"].to_pylist(), strict=True)
    )
    slices, begin = [], 0
    for place in range(len(names)):
        number = many.get(place, 0)
        slices.append(ordered.slice(begin, number))
        begin += number
    return slices


def _placed(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows of these groups, each with its group's place among them."""
    places = compute.index_in(table["group"], value_set=pa.array(names, pa.string()))
    with_place = table.append_column("place", places)
    return with_place.filter(compute.is_valid(places))


def _of_advice(whatif: pa.Table, groups: Sequence[Group]) -> pa.Table:
    """The rebalances that there would be under the policies that are advised."""
    advised = [group.policy if group.verdict == CHANGE else None for group in groups]
    placed = _placed(whatif, [group.name for group in groups])
    policies = pa.array(advised, pa.string()).take(_whole(placed["place"]))
    wanted = compute.equal(_whole(placed["policy"]), policies)
    return placed.filter(compute.and_(_whole(placed["happens"]), wanted)).drop_columns(["place"])


def _totals(whatif: pa.Table, names: Sequence[str]) -> dict[int, list[list[Any]]]:
    """What each policy costs a group, the one in use first, then the least damage: policy, whether
    it is the one in use, and the sums that :func:`rota.replay.advice.totals` makes.
    """
    placed = _placed(whatif, names)
    happens = compute.cast(placed["happens"], pa.int64())
    moved, least = (compute.cast(placed[name], pa.int64()) for name in ("moved", "moved_min"))
    needless = compute.max_element_wise(compute.subtract(moved, least), 0)
    sums = {
        "rebalances": happens,
        "needless": compute.multiply(needless, happens),
    } | {
        name: compute.multiply(compute.cast(placed[name], pa.int64()), happens)
        for name in ("moved", "moved_min", "stopped", "idle_members", "spread")
    }
    keys = {name: placed[name] for name in ("place", "policy", "actual")}
    found = pa.table(keys | sums).group_by(list(keys)).aggregate([(name, "sum") for name in sums])
    shown = ("rebalances", "stopped", "moved", "moved_min", "needless", "idle_members", "spread")
    rows = zip(
        *(found[name].to_pylist() for name in keys),
        *(found[f"{name}_sum"].to_pylist() for name in shown),
        strict=True,
    )
    totals: dict[int, list[list[Any]]] = {}
    for place, policy, actual, *numbers in sorted(rows, key=_rank):
        totals.setdefault(place, []).append([policy, actual, *numbers])
    return totals


def _rank(row: tuple[Any, ...]) -> tuple[Any, ...]:
    place, policy, actual, rebalances, stopped, _, _, needless, *_ = row
    return (place, not actual, stopped + needless, rebalances, policy)


def _lags(
    lag: pa.Table, names: Sequence[str], spans: Sequence[Span]
) -> dict[int, dict[str, list[Any]]]:
    """The most of each stretch of time over a group's partitions: which stretch, records, and
    seconds where they are known.
    """
    placed = _placed(lag.select(["group", "at", "lag", "lag_seconds"]), names)
    places = _whole(placed["place"])
    begins = pa.array([span.begin for span in spans], pa.int64()).take(places)
    steps = pa.array([span.step for span in spans], pa.int64()).take(places)
    times = _whole(_as_milliseconds(placed["at"]))
    buckets = compute.divide(compute.subtract(times, begins), steps)
    shown = compute.and_(
        compute.greater_equal(times, begins), compute.less(buckets, LAG_POINTS)
    )
    found = (
        pa.table(
            {
                "place": places,
                "bucket": buckets,
                "lag": placed["lag"],
                "lag_seconds": placed["lag_seconds"],
            }
        )
        .filter(shown)
        .group_by(["place", "bucket"])
        .aggregate([("lag", "max"), ("lag_seconds", "max")])
        .sort_by([("place", "ascending"), ("bucket", "ascending")])
    )
    lags: dict[int, dict[str, list[Any]]] = {}
    columns = ("place", "bucket", "lag_max", "lag_seconds_max")
    for place, bucket, records, seconds in zip(
        *(found[name].to_pylist() for name in columns), strict=True
    ):
        kept = lags.setdefault(place, {"bucket": [], "records": [], "seconds": []})
        kept["bucket"].append(bucket)
        kept["records"].append(records)
        kept["seconds"].append(None if seconds is None else round(seconds, 3))
    return {
        place: columns | {"bucket": deltas(columns["bucket"]), "step": spans[place].step}
        for place, columns in lags.items()
    }


def _span(evidence: Evidence, ownership: pa.Table, rebalances: pa.Table) -> Span:
    """From the first that is known of a group, or from what was asked for, to the end of the
    evidence.
    """
    since, until, at = (
        compute.min_max(_as_milliseconds(column)).as_py()
        for column in (ownership["since"], ownership["until"], rebalances["at"])
    )
    firsts = [one["min"] for one in (since, at) if one["min"] is not None]
    lasts = [one["max"] for one in (since, until, at) if one["max"] is not None]
    begin = evidence.since if evidence.since is not None else min(firsts, default=0)
    end = max([*lasts, *(time for time in (evidence.last,) if time is not None)], default=begin)
    if evidence.until is not None:
        end = min(end, evidence.until)
    return Span(begin, max(end, begin + 1_000))


def _places(columns: Iterable[Iterable[int | None]]) -> dict[int, int]:
    """Every time once, rising, with its place."""
    times = sorted({time for column in columns for time in column if time is not None})
    return {time: place for place, time in enumerate(times)}


def _partitions(table: pa.Table) -> Iterator[tuple[str, int]]:
    return zip(table["topic"].to_pylist(), table["partition"].to_pylist(), strict=True)


def _milliseconds(column: pa.ChunkedArray) -> list[int | None]:
    times: list[int | None] = _as_milliseconds(column).to_pylist()
    return times


def _as_milliseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    zone = column.type.tz
    return column.cast(pa.timestamp("ms", zone), safe=False).cast(pa.int64())


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """In one piece, as columns that are computed with each other have to be."""
    return column.combine_chunks()
