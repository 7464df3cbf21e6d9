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
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import compute

from rota.replay.advice import CHANGE
from rota.replay.fact import Cause
from rota.report.course import Course, Span, lags, totals, under_advice
from rota.report.gold import Gold, milliseconds
from rota.report.shelf import by_group
from rota.report.story import Evidence, Group, Story

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
KEY = ("life", "to_generation")
"""What tells rebalances of a group apart."""
NAMED = ("cause", "evidence", "likely", "reason", "strategy", "rollout")

Columns: TypeAlias = dict[str, list[Any]]


def charts(story: Story, gold: Gold) -> Iterator[dict[str, Any]]:
    """What is drawn of each group of a story, in its order."""
    names = [group.name for group in story.groups]
    order = ("topic", "partition", "since")
    ownership = by_group(_timed(gold.ownership, "since", "until"), names, order)
    advised = by_group(_timed(_with_static(gold.advised), "since", "until"), names, order)
    rebalances = by_group(_timed(gold.rebalances, "at", "started_at"), names, ("at", *KEY))
    replayed = by_group(_timed(under_advice(gold.whatif, story.groups), "at"), names, ("at", *KEY))
    spans = [
        _span(story.evidence, ownership[place], rebalances[place]) for place in range(len(names))
    ]
    policies = totals(gold.whatif, names)
    courses = lags(story.lag, names, spans)
    for place, group in enumerate(story.groups):
        yield _Chart(spans[place]).drawn(
            group,
            was=ownership[place],
            would=advised[place] if group.verdict == CHANGE else None,
            rebalances=rebalances[place],
            replayed=replayed[place],
        ) | {"lag": _lag(courses.get(place)), "policies": policies.get(place, [])}


def packed(data: Mapping[str, Any]) -> str:
    """As it stands in the page."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode()


def deltas(numbers: Iterable[int]) -> list[int]:
    """The first, and from each to the next: small numbers, which deflate well."""
    listed = [0, *numbers]
    return [after - before for before, after in pairwise(listed)]


class _Names:
    """Names, each kept once."""

    def __init__(self) -> None:
        self.listed: list[Hashable] = []
        self._places: dict[Hashable, int] = {}

    def place(self, name: Hashable) -> int:
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
            [table[name].to_pylist() for table in tables for name in ("since", "until")]
            + [table["at"].to_pylist() for table in (rebalances, replayed)]
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
        times = zip(*(table[name].to_pylist() for name in ("since", "until")), strict=True)
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
        at, started = (table[name].to_pylist() for name in ("at", "started_at"))
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
        causes = dict(zip(_keys(rebalances), rebalances["cause"].to_pylist(), strict=True))
        return {
            "at": deltas(self._times[time] for time in table["at"].to_pylist()),
            "cause": [self._words.place(causes.get(key, Cause.UNKNOWN)) for key in _keys(table)],
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
        "used": group.used,
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


def _timed(table: pa.Table, *columns: str) -> pa.Table:
    """With milliseconds for times."""
    for name in columns:
        place = table.column_names.index(name)
        table = table.set_column(place, name, milliseconds(table[name]))
    return table


def _with_static(table: pa.Table) -> pa.Table:
    """With an empty column of static ids."""
    return table.append_column("static_id", pa.nulls(table.num_rows, pa.string()))


def _span(evidence: Evidence, ownership: pa.Table, rebalances: pa.Table) -> Span:
    """From the first that is known of a group, or from what was asked for, to the end of the
    evidence.
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
    return Span(begin, max(end, begin + 1_000))


def _places(columns: Iterable[Iterable[int | None]]) -> dict[int, int]:
    """Every time once, rising, with its place."""
    times = sorted({time for column in columns for time in column if time is not None})
    return {time: place for place, time in enumerate(times)}


def _partitions(table: pa.Table) -> Iterator[tuple[str, int]]:
    return zip(table["topic"].to_pylist(), table["partition"].to_pylist(), strict=True)


def _keys(table: pa.Table) -> Iterator[tuple[int, int]]:
    return zip(*(table[name].to_pylist() for name in KEY), strict=True)


def _lag(course: Course | None) -> dict[str, Any] | None:
    if course is None:
        return None
    return {
        "step": course.step,
        "in_seconds": course.in_seconds,
        "lengths": course.lengths,
        "lasts": course.lasts,
        "at_least": [int(one) for one in course.at_least],
    }
