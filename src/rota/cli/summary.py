"""What a run found, on the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rota.cli.screen import console, count, empty_table, plain
from rota.pipeline.cluster import ACLS, JOURNAL

if TYPE_CHECKING:
    from pyspark.sql import Row

    from rota.pipeline.poll import Polled
    from rota.pipeline.summary import Summary

SHOWN_GROUPS = 15
SHOWN_EXAMPLES = 3
LEGEND = """\
stopped: partitions that a living member had to give up; moved: changed hands though their owner
was still there; needed: the fewest that the best balance had to move"""


def print_summary(found: Summary, *, demo: bool) -> None:
    """First what to do, then what there is, then what it rests on."""
    screen = console()
    if demo:
        screen.print("DEMO: a simulated day, no cluster of anybody's", style="bold")
        screen.print()
    _print_worst(screen, found.groups)
    if found.groups:
        _print_groups(screen, found.groups)
    _print_evidence(screen, found)
    _print_unread(screen, found)
    screen.print()
    screen.print(plain(f"tables: {found.out}/gold, {found.out}/silver, {found.out}/bronze"))


def _print_worst(screen: Console, groups: Sequence[Row]) -> None:
    if not groups:
        screen.print("No rebalance of any group in this evidence.")
        return
    worst = groups[0]
    screen.print(plain(worst.headline), style="bold")
    for number, step in enumerate(worst.steps, 1):
        screen.print(plain(f"  {number}. {step}"))
    screen.print()


def _print_groups(screen: Console, groups: Sequence[Row]) -> None:
    table = empty_table(
        "group", "rebalances", "stopped", "moved", "needed", "verdict", "best policy", "saves"
    )
    for column in table.columns[1:5]:
        column.justify = "right"
    for group in groups[:SHOWN_GROUPS]:
        table.add_row(
            plain(group.group),
            f"{group.rebalances:,}",
            _number(group.stopped),
            _number(group.moved),
            _number(group.moved_min),
            group.verdict,
            plain(group.policy if group.verdict == "change" else ""),
            _saving(group),
        )
    screen.print(table)
    if len(groups) > SHOWN_GROUPS:
        screen.print(f"{len(groups) - SHOWN_GROUPS:,} more groups: gold/advice, or --json")
    screen.print(LEGEND)


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _saving(group: Row) -> str:
    if group.verdict != "change":
        return ""
    saved = [
        (group.rebalances - group.rebalances_after, "rebalance"),
        (group.stopped - group.stopped_after, "stop"),
        (group.moved - group.moved_after, "move"),
    ]
    return ", ".join(count(number, noun) for number, noun in saved if number > 0)


def _print_evidence(screen: Console, found: Summary) -> None:
    screen.print()
    if found.first is None or found.last is None:
        missing = found.live is not None and not found.live.ends and not found.complete
        screen.print(
            "evidence: the cluster has no journal (__consumer_offsets): no group has ever been here"
            if missing
            else "evidence: the journal is empty"
        )
        return
    what = "samples" if found.polled and not found.records else count(found.records, "record")
    screen.print(
        f"evidence: {what} from {_time(found.first)} to "
        f"{_time(found.last)}; {count(found.commits, 'commit')}, "
        f"{count(found.generations, 'generation')}, {count(found.rebalances, 'rebalance')}"
    )
    if found.polled is not None:
        _print_polled(screen, found.polled)
    if found.since is not None or found.until is not None:
        begin = "the beginning" if found.since is None else _time(found.since)
        end = "the end" if found.until is None else _time(found.until)
        screen.print(f"shown: what happened from {begin} to {end}")
    late = [group for group, _, whole in found.windows if not whole]
    if late:
        screen.print(
            f"the journal is compacted: of {count(len(late), 'group')} the beginning is missing; "
            "what is told of them is complete from their first entry on"
        )
    edges = [edge.at for edge in found.complete.values() if edge.offset]
    if edges:
        screen.print(
            f"commits: all of them are there from {_time(max(edges))} on; before, compaction took "
            "some, so that lag and inferred causes rest on fewer"
        )
    unknown = sum(number for cause, _, number in found.causes if cause == "unknown")
    known = {
        how: sum(n for cause, said, n in found.causes if said == how and cause != "unknown")
        for how in ("stated", "inferred", "sampled")
    }
    sampled = f"{known['sampled']:,} seen in samples, " if found.polled is not None else ""
    screen.print(
        f"causes: {known['stated']:,} stated by the broker's log, "
        f"{known['inferred']:,} inferred from the journal, {sampled}{unknown:,} unknown"
    )
    if found.logs and not found.lines:
        screen.print("        the log that was given has no line about these groups")
    elif unknown and not found.logs and found.polled is None:
        screen.print("        --server-log FILE would state them")
    _print_lag(screen, found)


def _print_polled(screen: Console, polled: Polled) -> None:
    """What samples tell, and what they do not."""
    screen.print(
        f"sampled: {count(len(polled.groups), 'group')} in {count(polled.rounds, 'round')}, "
        f"every {polled.every:g} s. A rebalance between two samples that ended where it began is "
        "not seen; several are told of as one"
    )
    for gap in polled.gaps:
        end = "the end" if gap.end is None else _time(gap.end)
        screen.print(plain(f"gap: no samples from {_time(gap.begin)} to {end}: {gap.why}"))


def _print_lag(screen: Console, found: Summary) -> None:
    """What lag rests on."""
    looked = found.looked
    if looked is not None and looked.made:
        screen.print(
            f"lag: by {count(looked.made, 'look-up')} of ends in "
            f"{count(looked.partitions, 'partition')}, as true as the timestamps of their records"
        )
    elif not found.samples:
        asked = "--lookups N" if found.live is not None else "--bootstrap-servers"
        screen.print(
            f"lag: not computed; {asked} asks a cluster for log ends, --ends FILE gives samples"
        )
    if looked is not None and looked.lost:
        screen.print(
            f"     {count(looked.lost, 'look-up')} found nothing left of that time: retention has "
            "deleted it"
        )
    if looked is not None and looked.left_out:
        screen.print(
            f"     {count(len(looked.left_out), 'partition')} with commits not looked up: a larger "
            "--lookups N takes them in"
        )


def _print_unread(screen: Console, found: Summary) -> None:
    for unread in found.unread:
        screen.print(plain(f"not read: {unread.count:,} {unread.what}"))
        for example in unread.examples[:SHOWN_EXAMPLES]:
            screen.print(plain(f"          {example}"))


def _time(milliseconds: int) -> str:
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def as_json(found: Summary, *, demo: bool) -> dict[str, Any]:
    """Everything that is printed, and the groups that are not."""
    return {
        "out": found.out,
        "demo": demo,
        "cluster": _cluster(found),
        "window": {"first": found.first, "last": found.last},
        "shown": {"since": found.since, "until": found.until},
        "records": found.records,
        "commits": found.commits,
        "generations": found.generations,
        "rebalances": found.rebalances,
        "lines": found.lines,
        "samples": found.samples,
        "polled": None if found.polled is None else _polled(found.polled),
        "groups": [group.asDict() for group in found.groups],
        "causes": [
            {"cause": cause, "evidence": evidence, "rebalances": number}
            for cause, evidence, number in found.causes
        ],
        "complete_from": [
            {"group": group, "at": at, "whole": whole} for group, at, whole in found.windows
        ],
        "commits_complete_from": [
            {"journal_partition": partition, "offset": edge.offset, "at": edge.at}
            for partition, edge in sorted(found.complete.items())
        ],
        "not_read": [
            {"what": one.what, "count": one.count, "examples": list(one.examples)}
            for one in found.unread
        ],
    }


def _cluster(found: Summary) -> dict[str, Any] | None:
    """What was read of a live cluster."""
    live, looked = found.live, found.looked
    if live is None:
        return None
    return {
        "bootstrap_servers": live.cluster.servers,
        "topic": JOURNAL,
        "partitions": len(live.ends),
        "most_records": live.records,
        "bytes": live.size,
        "acls": list(ACLS if live.cluster.lookups else ACLS[:1]),
        "lookups": None
        if looked is None
        else {
            "most": live.cluster.lookups,
            "made": looked.made,
            "partitions": looked.partitions,
            "partitions_left_out": [str(place) for place in looked.left_out],
            "of_a_time_that_is_deleted": looked.lost,
            "not_to_be_had": looked.skipped,
        },
    }


def _polled(polled: Polled) -> dict[str, Any]:
    """What was sampled."""
    return {
        "first": polled.first,
        "last": polled.last,
        "every": polled.every,
        "rounds": polled.rounds,
        "groups": sorted(polled.groups),
        "gaps": [{"begin": gap.begin, "end": gap.end, "why": gap.why} for gap in polled.gaps],
    }
