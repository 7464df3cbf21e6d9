"""The data of the overview: for each group its rebalances, downtime and lag over the time of the
cluster, and the words that the search finds. list.js and timeline.js read it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from pyarrow import compute

from rota.engine.history.facts import MINUTE, UNCOUNTED_REASONS
from rota.pipeline.arrow import to_milliseconds
from rota.report.page import chart_data
from rota.report.page.chart_data import ChartWindow
from rota.report.story import GoldTables, GroupStory, Story

#: Columns of gold/rebalances that :func:`build_summary` reads.
REBALANCE_COLUMNS = ("at", "cause", "downtime_ms", *chart_data.REBALANCE_KEY)
ROUNDED_WINDOW = 120 * MINUTE  # a longer window begins and ends at a whole minute


def cluster_window(story: Story, gold: GoldTables) -> ChartWindow:
    """Returns the time that the overview shows: ``--since`` to ``--until``, or the evidence."""
    evidence = story.evidence
    at = compute.min_max(to_milliseconds(gold.rebalances["at"])).as_py()
    firsts = (time for time in (evidence.first, at["min"]) if time is not None)
    lasts = (time for time in (evidence.last, at["max"]) if time is not None)
    begin = evidence.since if evidence.since is not None else min(firsts, default=0)
    end = max(lasts, default=begin)
    if end - begin > ROUNDED_WINDOW:
        begin, end = begin // MINUTE * MINUTE, -(-end // MINUTE) * MINUTE
    if evidence.until is not None:
        end = min(end, evidence.until)
    return ChartWindow(begin, max(end, begin + 1_000))


def build_summary(story: Story, gold: GoldTables) -> dict[str, Any]:
    """Returns the data of the overview; the groups are in the story's order."""
    window = cluster_window(story, gold)
    names = [group.name for group in story.groups]
    order = ("at", *chart_data.REBALANCE_KEY)
    columns = gold.rebalances.select(["group", *REBALANCE_COLUMNS])
    times = columns.set_column(1, "at", to_milliseconds(columns["at"]))
    rebalances = chart_data.split_by_group(times, names, order)
    reasons = chart_data.split_by_group(
        chart_data.downtime_by_reason(counted_downtime(gold.downtime)),
        names,
        (*chart_data.REBALANCE_KEY, "reason"),
    )
    starts = chart_data.split_by_group(
        _first_downtimes(counted_downtime(gold.downtime)), names, chart_data.REBALANCE_KEY
    )
    absences = find_absences(gold.downtime)
    lags = chart_data.lag_series(story.lag, names, [window] * len(names))
    return {
        "begin": window.begin,
        "end": window.end,
        "demo": story.evidence.demo,
        "groups": [
            _group_fields(group)
            | _rebalance_columns(rebalances[place], window.begin)
            | {
                "spans": _downtime_spans(rebalances[place], starts[place]),
                "reasons": chart_data.reason_columns(rebalances[place], reasons[place]),
                "absences": absences.get(group.name, []),
                "lag": asdict(lags[place]) if place in lags else None,
            }
            for place, group in enumerate(story.groups)
        ],
    }


def _group_fields(group: GroupStory) -> dict[str, Any]:
    same = ("happened", "to_do", "recommendation", "saving_ms", "mark", "downtime_ms")
    more = ("downtime_at_least_ms", "downtime_at_most_ms", "delayed_records")
    lag = group.lag
    return {name: getattr(group, name) for name in (*same, *more)} | {
        "name": group.name,
        "kind": group.overview.get("kind"),
        "topics": group.overview.get("topics", []),
        "partitions": group.overview.get("partitions"),
        "members": group.overview.get("members"),
        "health": str(group.health.health),
        "since": group.health.since,
        "reason": group.health.reason,
        "strategy": group.policies_used[-1],
        "used": group.policies_text,
        "patterns": [pattern.text for pattern in group.patterns],
        "most_lag": None if lag is None else [lag.most_seconds, lag.most, lag.at_least],
    }


def _rebalance_columns(table: pa.Table, begin: int) -> dict[str, list[Any]]:
    at = table["at"].to_pylist()
    return {
        "at": chart_data.to_deltas(time - begin for time in at),
        "cause": table["cause"].dictionary_encode().combine_chunks().indices.to_pylist(),
        "causes": table["cause"].dictionary_encode().combine_chunks().dictionary.to_pylist(),
        "downtime": table["downtime_ms"].to_pylist(),
    }


def _first_downtimes(downtime: pa.Table) -> pa.Table:
    """Returns when the downtime that each rebalance ended began."""
    keys = ["group", *chart_data.REBALANCE_KEY]
    rows = downtime.select(keys).append_column("since", to_milliseconds(downtime["since"]))
    return rows.group_by(keys).aggregate([("since", "min")])


def _downtime_spans(rebalances: pa.Table, starts: pa.Table) -> list[int]:
    """Returns the time from the first downtime of each rebalance to its end; 0: no downtime."""
    names = chart_data.REBALANCE_KEY
    keys = zip(*(starts[name].to_pylist() for name in names), strict=True)
    firsts = dict(zip(keys, starts["since_min"].to_pylist(), strict=True))
    at = rebalances["at"].to_pylist()
    own = zip(*(rebalances[name].to_pylist() for name in names), strict=True)
    return [max(time - firsts.get(key, time), 0) for time, key in zip(at, own, strict=True)]


def counted_downtime(downtime: pa.Table) -> pa.Table:
    """Returns the rows of gold/downtime that count, without ``not polled`` and ``shut down``."""
    uncounted = pa.array(sorted(UNCOUNTED_REASONS), pa.string())
    return downtime.filter(compute.invert(compute.is_in(downtime["reason"], value_set=uncounted)))


def find_absences(downtime: pa.Table) -> dict[str, list[list[Any]]]:
    """Returns each group's downtime that no rebalance ended: static members that restarted, and
    absences that have not ended. A row is since, until, its length in all partitions, the reason.
    """
    counted = counted_downtime(downtime)
    rows = counted.filter(compute.is_null(counted["to_generation"]))
    since, until = (to_milliseconds(rows[name]) for name in ("since", "until"))
    keys = {"group": rows["group"], "since": since, "until": until, "reason": rows["reason"]}
    lengths = pa.table(keys | {"length": compute.subtract(until, since)})
    summed = lengths.group_by(list(keys)).aggregate([("length", "sum")])
    found = defaultdict(list)
    order = [(name, "ascending") for name in ("since", "until", "reason")]
    for row in summed.sort_by(order).to_pylist():
        found[row["group"]].append(
            [row[name] for name in ("since", "until", "length_sum", "reason")]
        )
    return found
