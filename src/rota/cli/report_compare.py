"""Compares two runs group by group, for ``rota report --compare``.

The windows of the runs may differ in length, so rates per hour of evidence are compared; downtime
per hour and partition, because topics may have grown. Chance explains a small difference: if
rebalances come at random, each with its own downtime, their number varies by its square root, and
their downtime by the root of the sum of the squares. A difference is clear if it is larger than two
standard deviations of both runs, and than what the two measurements may be wrong by.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyarrow import compute
from rich.text import Text

from rota.cli import render
from rota.engine.history.facts import UNCOUNTED_REASONS, GroupHealth
from rota.engine.model.duration import format_rounded_duration
from rota.engine.model.text import count_noun, list_first_names
from rota.errors import InputError
from rota.pipeline.arrow import to_milliseconds
from rota.report import evidence_text
from rota.report.story import (
    NOTABLE_SECONDS,
    GoldTables,
    GroupStory,
    Story,
    build_story,
    format_seconds,
    read_gold_tables,
)

HOUR = 3_600_000
STANDARD_DEVIATIONS = 2
LAG_SHARE = 1 / 8  # the mean lag of a run may be wrong by this share, or by half of a notable lag
WORSE, BETTER, UNCLEAR = "worse", "better", "no clear difference"
SHOWN_GROUPS = 4
#: Lines of a group on the terminal, and columns of its name.
TEXT_LINES, NAME_WIDTH = 2, 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A number of a group in one run."""

    value: float
    deviation: float = 0  # standard deviation, if the events came at random
    uncertainty: float = 0  # the measurement may be wrong by this
    mark: str  # how the number is known


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRun:
    """A group in one run. Unknown measures are left out."""

    health: GroupHealth
    hours: float  # length of its evidence
    partitions: int  # number of partitions that had an owner
    #: ``health`` (severity), ``downtime`` (milliseconds per hour and partition), ``lag`` (mean age
    #: of the first unread record over time and partitions, in seconds), ``rebalances`` (per hour).
    measures: dict[str, Measure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A group that is in both runs."""

    group: str
    before: GroupRun
    after: GroupRun

    @property
    def changes(self) -> dict[str, int]:
        """What got clearly worse (1) or better (-1), by measure; 0: no clear difference."""
        changes = {}
        for name, old in self.before.measures.items():
            new = self.after.measures.get(name)
            if new is not None:
                gap, noise = new.value - old.value, math.hypot(old.deviation, new.deviation)
                noise = max(STANDARD_DEVIATIONS * noise, old.uncertainty + new.uncertainty)
                changes[name] = 0 if abs(gap) <= noise else 1 if gap > 0 else -1
        return changes

    @property
    def verdict(self) -> str:
        """The number of rebalances decides only if nothing else changed."""
        changes = self.changes
        rebalances = changes.pop("rebalances", 0)
        found = set(changes.values()) - {0} or {rebalances}
        return WORSE if 1 in found else BETTER if -1 in found else UNCLEAR


class Run:
    """The groups of one run."""

    def __init__(self, folder: str, globs: Sequence[str]) -> None:
        gold = read_gold_tables(folder)
        self.story = build_story(gold, globs)
        self._deviations = _downtime_deviations(gold)
        self._partitions = _partition_counts(gold)
        self._lags = _mean_lags(self.story)
        self.groups = {group.name: self._group_run(group) for group in self.story.groups}

    def _group_run(self, group: GroupStory) -> GroupRun:
        evidence, marks = self.story.evidence, group.marks
        begins = (evidence.first, evidence.since, group.complete_from)
        begin = max((time for time in begins if time is not None), default=0)
        hours = max((evidence.last or 0) - begin, 0) / HOUR
        partitions = self._partitions.get(group.name, 0)
        measures = {}
        if group.health.health is not GroupHealth.UNKNOWN:
            measures["health"] = Measure(value=group.severity, mark=marks["health"])
        span = hours * partitions
        if group.downtime_ms is not None and span:
            measures["downtime"] = Measure(
                value=group.downtime_ms / span,
                deviation=self._deviations.get(group.name, 0) / span,
                uncertainty=(group.uncertainty_ms or 0) / span,
                mark=marks["downtime_ms"],
            )
        if (lag := self._lags.get(group.name)) is not None:
            uncertainty = max(NOTABLE_SECONDS / 2, LAG_SHARE * lag)
            measures["lag"] = Measure(value=lag, uncertainty=uncertainty, mark=marks["lag"])
        if hours:
            number = group.rebalances
            measures["rebalances"] = Measure(
                value=number / hours, deviation=math.sqrt(number) / hours, mark=marks["rebalances"]
            )
        return GroupRun(
            health=group.health.health, hours=hours, partitions=partitions, measures=measures
        )


def _downtime_deviations(gold: GoldTables) -> dict[str, float]:
    """Returns the root of the sum of the squared downtimes of each group's rebalances."""
    since, until = (to_milliseconds(gold.downtime[name]) for name in ("since", "until"))
    is_uncounted = compute.is_in(
        gold.downtime["reason"], value_set=pa.array(sorted(UNCOUNTED_REASONS))
    )
    rows = gold.downtime.append_column("ms", compute.subtract(until, since))
    rows = rows.filter(compute.invert(is_uncounted))
    events = rows.group_by(["group", "incarnation", "to_generation"]).aggregate([("ms", "sum")])
    squares: dict[str, float] = defaultdict(float)
    for row in events.to_pylist():
        squares[row["group"]] += row["ms_sum"] ** 2
    return {group: math.sqrt(square) for group, square in squares.items()}


def _partition_counts(gold: GoldTables) -> dict[str, int]:
    partitions = gold.ownership.group_by(["group", "topic", "partition"]).aggregate([])
    counts = partitions.group_by("group").aggregate([([], "count_all")])
    return dict(zip(counts["group"].to_pylist(), counts["count_all"].to_pylist(), strict=True))


def _mean_lags(story: Story) -> dict[str, float]:
    """Returns the mean age of the first unread record over time and partitions, in seconds."""
    lag = story.lag.filter(compute.is_valid(story.lag["lag_seconds"]))
    length = compute.cast(compute.subtract(lag["until"], lag["since"]), pa.float64())
    rows = lag.select(["group"]).append_column("length", length)
    rows = rows.append_column("area", compute.multiply(length, lag["lag_seconds"]))
    sums = rows.group_by("group").aggregate([("length", "sum"), ("area", "sum")]).to_pylist()
    return {row["group"]: row["area_sum"] / row["length_sum"] for row in sums if row["length_sum"]}


def compare_runs(folders: Sequence[str], globs: Sequence[str], *, as_json: bool) -> bool:
    """Prints the comparison; returns whether a group got worse."""
    before, after = (Run(folder, globs) for folder in folders)
    found = [
        Comparison(group=name, before=before.groups[name], after=after.groups[name])
        for name in sorted(before.groups.keys() & after.groups.keys())
    ]
    if not found:
        raise InputError(f"nothing to compare: no group is in both {' and '.join(folders)}")
    if as_json:
        render.print_json(_comparison_json(before, after, found))
    else:
        console = render.make_console()
        for line in _comparison_lines(before, after, found):
            console.print(line, soft_wrap=True)
    return any(one.verdict == WORSE for one in found)


def _comparison_json(before: Run, after: Run, found: Sequence[Comparison]) -> dict[str, Any]:
    runs = {"before": before, "after": after}
    return {
        **{
            title: {"out": one.story.out}
            | render.select_attributes(one.story.evidence, "demo", "first", "last", "since")
            for title, one in runs.items()
        },
        "units": {
            "downtime": "milliseconds per hour and partition",
            "lag": "mean seconds",
            "rebalances": "per hour",
        },
        "groups": [asdict(one) | {"changes": one.changes, "verdict": one.verdict} for one in found],
        "only_before": sorted(before.groups.keys() - after.groups.keys()),
        "only_after": sorted(after.groups.keys() - before.groups.keys()),
    }


def _comparison_lines(before: Run, after: Run, found: Sequence[Comparison]) -> Iterator[Text]:
    for title, run in (("before", before), ("after", after)):
        line = f"{run.story.out}: {evidence_text.input_text(run.story.evidence)}"
        first = f"{title}:".ljust(8)
        yield from map(Text, render.clip_text(line, first, " " * 8, lines=TEXT_LINES))
    for verdict in (WORSE, BETTER):
        groups = [one for one in found if one.verdict == verdict]
        yield Text(f"{verdict}: {count_noun(len(groups), 'group')}", style="bold")
        for one in sorted(groups, key=_costliest_first)[:SHOWN_GROUPS]:
            name = render.shorten_name(one.group, NAME_WIDTH)
            line = f"{name}: {'; '.join(_describe_changes(one))}"
            yield from map(Text, render.clip_text(line, "  ", "    ", lines=TEXT_LINES))
        if len(groups) > SHOWN_GROUPS:
            yield Text(f"  {len(groups) - SHOWN_GROUPS:,} more in --json")
    same = sum(one.verdict == UNCLEAR for one in found)
    yield Text(f"{UNCLEAR}: {count_noun(same, 'group')}", style="bold")
    for title, ours, others in (("before", before, after), ("after", after, before)):
        if only := sorted(ours.groups.keys() - others.groups.keys()):
            names = list_first_names([render.shorten_name(name, NAME_WIDTH) for name in only])
            lines = render.clip_text(f"only {title}: {names}", rest="  ", lines=TEXT_LINES)
            yield from map(Text, lines)


def _costliest_first(one: Comparison) -> tuple[float, ...]:
    gaps = []
    for name in ("health", "downtime", "lag", "rebalances"):
        old, new = one.before.measures.get(name), one.after.measures.get(name)
        weight = one.before.partitions if name == "downtime" else 1
        gaps.append(0.0 if old is None or new is None else -abs(new.value - old.value) * weight)
    return tuple(gaps)


def _describe_changes(one: Comparison) -> Iterator[str]:
    for name, change in one.changes.items():
        if not change:
            continue
        old, new = one.before.measures[name].value, one.after.measures[name].value
        if name == "health":
            yield f"health {one.before.health} -> {one.after.health}"
        elif name == "downtime":
            shown = " -> ".join(format_rounded_duration(round(value)) for value in (old, new))
            yield f"downtime {shown} per hour and partition"
        elif name == "lag":
            yield f"mean lag {format_seconds(old)} -> {format_seconds(new)}"
        else:
            yield f"rebalances {old:.1f} -> {new:.1f} per hour"
