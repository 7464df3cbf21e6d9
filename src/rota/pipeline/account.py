"""The run's account of itself: the one row of gold/evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rota.pipeline.cluster import ACLS, JOURNAL, Live
from rota.pipeline.evidence import Evidence
from rota.pipeline.lookup import Looked
from rota.pipeline.poll import Polled
from rota.pipeline.schema import Row
from rota.pipeline.segment import Edge
from rota.pipeline.summary import Summary
from rota.pipeline.unread import READ_ONCE, Unread, added


def account(found: Summary, evidence: Evidence) -> dict[str, Any]:
    """What a run has read; times are milliseconds."""
    return {
        "demo": evidence.demo,
        "first": found.first,
        "last": found.last,
        "since": found.since,
        "until": found.until,
        "records": found.records,
        "commits": found.commits,
        "generations": found.generations,
        "rebalances": found.rebalances,
        "logs": found.logs,
        "lines": found.lines,
        "samples": found.samples,
        "cluster": None if found.live is None else _cluster(found.live),
        "lookups": _lookups(found.live, found.looked),
        "polled": None if found.polled is None else _polled(found.polled),
        "windows": [_window(*window) for window in found.windows],
        "complete": _edges(found.complete),
        "unread": [asdict(one) for one in found.unread],
    }


def _cluster(live: Live) -> dict[str, Any]:
    return {
        "bootstrap_servers": live.cluster.servers,
        "topic": JOURNAL,
        "partitions": len(live.ends),
        "most_records": live.records,
        "bytes": live.size,
        "acls": list(ACLS if live.cluster.lookups else ACLS[:1]),
    }


def _lookups(live: Live | None, looked: Looked | None) -> dict[str, Any] | None:
    if live is None or looked is None:
        return None
    return {
        "most": live.cluster.lookups,
        "made": looked.made,
        "partitions": looked.partitions,
        "partitions_left_out": [str(place) for place in looked.left_out],
        "of_a_time_that_is_deleted": looked.lost,
        "not_to_be_had": looked.skipped,
    }


def _polled(polled: Polled) -> dict[str, Any]:
    return {
        "first": polled.first,
        "last": polled.last,
        "every": polled.every,
        "rounds": polled.rounds,
        "groups": sorted(polled.groups),
        "gaps": [{"begin": gap.begin, "end": gap.end, "why": gap.why} for gap in polled.gaps],
    }


def _window(group: str, at: int, whole: bool) -> dict[str, Any]:
    return {"group": group, "at": at, "whole": whole}


def _edges(complete: Mapping[int, Edge]) -> list[dict[str, Any]]:
    return [
        {"journal_partition": partition, "offset": edge.offset, "at": edge.at}
        for partition, edge in sorted(complete.items())
    ]


def unread(row: Row) -> list[Unread]:
    """What an account says could not be read."""
    return [
        Unread(what=one["what"], count=one["count"], examples=tuple(one["examples"]))
        for one in row["unread"]
    ]


def continued(before: Row, now: Row) -> dict[str, Any]:
    """The account of a large round of a run that follows: it computes everything anew, but does
    not read again what the rounds before have read.
    """
    known = {edge["journal_partition"] for edge in before["complete"]}
    edges = [edge for edge in now["complete"] if edge["journal_partition"] not in known]
    once = [one for one in unread(before) if one.what in READ_ONCE]
    return {
        **now,
        "logs": before["logs"],
        "lookups": _summed(before["lookups"], now["lookups"]),
        "complete": _by(("journal_partition",), before["complete"], edges),
        "unread": [asdict(one) for one in added(once, unread(now))],
    }


def _summed(before: Row | None, now: Row | None) -> Row | None:
    """The look-ups of both; which partitions they are about is told anew each time."""
    if before is None or now is None:
        return now or before
    more = {name: before[name] + now[name] for name in ("made", "of_a_time_that_is_deleted")}
    return {**now, **more}


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What a small round of a run that follows has to say."""

    times: Sequence[int | None]
    """Of the first and the last new record; None: there are none."""
    counts: Mapping[str, int]
    """Rows that tables have now, by column."""
    windows: Iterable[tuple[str, int, bool]]
    """Of groups that were computed anew."""
    edges: Mapping[int, Edge]
    """The first new record of each partition of the journal."""
    unread: Iterable[Unread]
    """New records that could not be read."""


def grown(before: Row, by: Growth) -> dict[str, Any]:
    """The account of a small round of a run that follows."""
    fresh = [_window(*window) for window in by.windows]
    named = {window["group"] for window in fresh}
    kept = [window for window in before["windows"] if window["group"] not in named]
    known = {edge["journal_partition"] for edge in before["complete"]}
    edges = {place: edge for place, edge in by.edges.items() if place not in known}
    bounds = [at for at in (before["first"], before["last"], *by.times) if at is not None]
    return {
        **before,
        **by.counts,
        "first": min(bounds, default=None),
        "last": max(bounds, default=None),
        "windows": _by(("group", "at"), kept, fresh),
        "complete": _by(("journal_partition",), before["complete"], _edges(edges)),
        "unread": [asdict(one) for one in added(unread(before), by.unread)],
    }


def _by(names: Sequence[str], *several: Iterable[Row]) -> list[Row]:
    rows = (row for each in several for row in each)
    return sorted(rows, key=lambda row: [row[name] for name in names])
