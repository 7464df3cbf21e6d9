"""``rota groups``: the groups of a cluster, how far they are behind, and where they go on."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rota.cli import bootstrap, change, roster
from rota.cli.bootstrap import asked, print_json, say
from rota.cli.screen import console
from rota.client.overview import Overview, Standing
from rota.errors import Unreachable
from rota.model.topic import first_few
from rota.sim import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.client.admin import Admin, Listing
    from rota.model.topic import TopicPartition

DESCRIPTION = """\
The consumer groups of a cluster: who is in them, who has which partition, how far they are
behind in records and in time, and where they shall go on. What would change something is
shown first, and done with --execute only.
"""

EXAMPLES = """\
examples:
  rota groups list --bootstrap-servers kafka:9092 --state Stable
      groups with their state, strategy and members
  rota groups describe billing --bootstrap-servers kafka:9092
      its members and their partitions; for each partition its lag and owner
  rota groups lag --bootstrap-servers kafka:9092 --fail-on 100000
      all groups by their lag, for CI: exit code 1 if one has more
  rota groups reset billing --topic orders --to-earliest --bootstrap-servers kafka:9092
      what would change; the same with --execute changes it
  rota groups delete-offsets billing --topic old-orders --bootstrap-servers kafka:9092
  rota groups delete billing --bootstrap-servers kafka:9092

`rota groups COMMAND --help` has the options of each.

"""
LIMITS = ("--fail-on",)
"""Options that may end it with exit code 1."""

STATES = (
    *("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead"),
    *("Assigning", "Reconciling", "NotReady", "Unknown"),
)
"""Of groups of any type, in Kafka's words; the second line only where the broker assigns."""

LIST_EXAMPLES = """\
examples:
  rota groups list --bootstrap-servers kafka:9092
  rota groups list --bootstrap-servers kafka:9092 --state PreparingRebalance,CompletingRebalance
  rota groups list --bootstrap-servers kafka:9092 --json | jq '.[] | select(.type == "consumer")'

states: Stable, Empty, PreparingRebalance, CompletingRebalance, Dead; and where the broker assigns
(KIP-848) Assigning and Reconciling, with Kafka Streams also NotReady
"""
DESCRIBE_EXAMPLES = """\
examples:
  rota groups describe billing --bootstrap-servers kafka:9092
  rota groups describe --all --bootstrap-servers kafka:9092 --command-config client.properties
  rota groups describe billing --bootstrap-servers kafka:9092 --json | jq '.[0].members'

lag: records behind the committed offset; behind: how old the first of them is, or a little more.
Members are shown by their static id or a short form of their id; --full shows ids. Their list of
strategies is known to the group's leader alone: what is shown is the one that the group has chosen.
"""
LAG_EXAMPLES = """\
examples:
  rota groups lag --bootstrap-servers kafka:9092
  rota groups lag billing invoices --bootstrap-servers kafka:9092 --fail-on 10000
      exit code 1 if one of them has more than 10,000 records to read
  rota groups lag --bootstrap-servers kafka:9092 --fail-on 5m
      exit code 1 if the first unread record of one is older than five minutes
"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], *, epilog: str) -> None:
    """Adds this command to the command line."""
    parser = commands.add_parser(
        "groups",
        help="the groups of a cluster: members, lag, offsets",
        description=DESCRIPTION,
        epilog=EXAMPLES + epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    about = "groups with their state, strategy and members"
    listing = bootstrap.command(actions, "list", list_groups, about, LIST_EXAMPLES)
    listing.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="STATE,...",
        help="only groups in these states",
    )
    about = "members, partitions, offsets and lag of groups"
    describing = bootstrap.command(actions, "describe", describe, about, DESCRIBE_EXAMPLES)
    describing.add_argument("groups", nargs="*", metavar="GROUP", help="a group's name")
    describing.add_argument("--all", action="store_true", help="every group that there is")
    _add_view(describing)
    lagging = bootstrap.command(actions, "lag", lag, "groups by their lag", LAG_EXAMPLES)
    lagging.add_argument(
        "groups", nargs="*", metavar="GROUP", help="a group's name (default: every group)"
    )
    lagging.add_argument(
        "--fail-on",
        type=_limit,
        metavar="N|TIME",
        help="exit with 1 if a group's lag is more than N records, or more than a time such as 5m",
    )
    _add_view(lagging)
    change.add_to(actions)


def _add_view(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--full", action="store_true", help="show whole member ids")
    parser.add_argument(
        "--no-time",
        action="store_true",
        help="do not look up how far behind a group is in time; without it, that is done for the "
        "thousand partitions with the largest lag",
    )


@dataclass(frozen=True, slots=True)
class Limit:
    """How far behind a group may be."""

    records: int | None = None
    milliseconds: int | None = None


def _limit(text: str) -> Limit:
    if text.isascii() and text.isdecimal():
        return Limit(records=int(text))
    try:
        return Limit(milliseconds=duration.parse(text))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a number of records nor a time such as 90s or 5m"
        ) from None


# List


def list_groups(args: argparse.Namespace) -> bool:
    """Prints the groups of all brokers."""
    states = [each.strip() for given in args.state for each in given.split(",")]
    for each in states:
        if _plain(each) not in {_plain(one) for one in STATES}:
            args.error(f"--state {each!r}: no state of a group; there are {', '.join(STATES)}")

    async def ask(admin: Admin) -> tuple[Listing, list[Overview]]:
        listing = await admin.listing()
        return listing, await admin.overviews(listing)

    listing, found = asked(args, ask)
    wanted = {_plain(each) for each in states}
    shown = [each for each in found if not wanted or _plain(each.state) in wanted]
    if args.json:
        print_json([roster.group_json(each) for each in shown])
    else:
        roster.print_list(shown)
    if states and not shown and found:
        say(f"no group is {' or '.join(states)}; there are {_states(found)}")
    _check_complete(listing)
    return False


def _plain(state: str) -> str:
    return state.lower().replace("_", "").replace("-", "")


def _states(groups: Sequence[Overview]) -> str:
    states = sorted({each.state for each in groups})
    return ", ".join(f"{sum(each.state == one for each in groups)} {one}" for one in states)


def _check_complete(listing: Listing) -> None:
    """What is missing is said behind what was found, and by the exit code."""
    if listing.silent:
        raise Unreachable(
            f"the list is not complete, groups are missing: {'; '.join(listing.silent)}"
        )


# Describe and lag


def describe(args: argparse.Namespace) -> bool:
    """Prints groups with their members and offsets."""
    if bool(args.groups) == args.all:
        args.error("name groups, or give --all")
    listing, rows = _looked(args)
    if args.json:
        print_json(
            [
                {
                    **roster.group_json(group),
                    "lag": roster.lag_of(standings),
                    "partitions": [roster.standing_json(each) for each in standings],
                    "notes": roster.notes(group, standings),
                }
                for group, standings, _ in rows
            ]
        )
    else:
        if not rows:
            console().print("no groups")
        for number, (group, standings, _) in enumerate(rows):
            if number:
                print()  # noqa: T201
            roster.print_group(group, standings, full=args.full)
    if listing is not None:
        _check_complete(listing)
    return False


def lag(args: argparse.Namespace) -> bool:
    """Prints groups by their lag; true if one exceeds the limit."""
    listing, found = _looked(args)
    rows = [row for row in found if row[1] or args.groups]
    rows.sort(key=_by_lag)
    if args.json:
        print_json([_lag_json(group, standings) for group, standings, _ in rows])
    else:
        roster.print_lags([(group, standings) for group, standings, _ in rows], full=args.full)
    over = [text for row in rows if (text := _exceeds(*row, args.fail_on)) is not None]
    for text in over:
        say(text)
    if listing is not None:
        _check_complete(listing)
    return bool(over)


def _by_lag(row: Row) -> tuple[int, str]:
    group, standings, _ = row
    return -(roster.lag_of(standings) or 0) - roster.uncommitted_of(standings), group.group


Row: TypeAlias = "tuple[Overview, Sequence[Standing], Sequence[TopicPartition]]"
"""A group, how far it is in its partitions, and those in which it is too far behind in time."""


def _looked(args: argparse.Namespace) -> tuple[Listing | None, list[Row]]:
    """The groups that the flags name, or all, with their offsets."""
    limit: Limit | None = getattr(args, "fail_on", None)

    async def ask(admin: Admin) -> tuple[Listing | None, list[Row]]:
        listing = None
        if args.groups:
            groups = [await admin.overview(each) for each in dict.fromkeys(args.groups)]
        else:
            listing = await admin.listing()
            groups = await admin.overviews(listing)
        readable = [each for each in groups if each.kind != "share"]
        standings = await admin.standings(readable)
        old: dict[str, list[TopicPartition]] = {}
        if limit is not None and limit.milliseconds is not None:
            old = await admin.older(standings, limit.milliseconds)
        if not args.no_time:
            standings = await admin.aged(standings)
        return listing, [
            (each, standings.get(each.group, []), old.get(each.group, [])) for each in groups
        ]

    return asked(args, ask)


def _lag_json(group: Overview, standings: Sequence[Standing]) -> dict[str, object]:
    worst = roster.worst_of(standings)
    ages = [each.age for each in standings if each.age is not None]
    lag = roster.lag_of(standings)
    return {
        "group": group.group,
        "state": group.state,
        "type": group.kind,
        "members": None if group.members is None else len(group.members),
        "lag": lag,
        "lag_seconds": max(ages) / 1_000 if ages else 0 if lag == 0 else None,
        "partitions": len(standings),
        "lagging": sum(each.lag is not None and each.lag > 0 for each in standings),
        "uncommitted": sum(each.committed is None for each in standings),
        "uncommitted_records": roster.uncommitted_of(standings),
        "worst": None if worst is None else roster.standing_json(worst),
        "notes": roster.lag_notes(group, standings),
    }


def _exceeds(
    group: Overview,
    standings: Sequence[Standing],
    old: Sequence[TopicPartition],
    limit: Limit | None,
) -> str | None:
    """Where nothing is committed, nothing counts as read: who never commits is never at the end."""
    name = f"group {group.group}"
    if limit is not None and limit.records is not None:
        known, unknown = roster.lag_of(standings) or 0, roster.uncommitted_of(standings)
        if known > limit.records:
            return f"{name} has a lag of {known}, more than --fail-on {limit.records}"
        if known + unknown > limit.records:
            return (
                f"{name} has a lag of up to {known + unknown}, more than --fail-on "
                f"{limit.records}: nothing is committed for {roster.uncommitted_places(standings)}"
            )
    if limit is not None and limit.milliseconds is not None and old:
        time = duration.written(limit.milliseconds)
        never = {each.partition for each in standings if each.uncommitted}
        places = [f"{each}{' (nothing is committed)' * (each in never)}" for each in old]
        return f"{name} is more than {time} behind in {first_few(places)}"
    return None
