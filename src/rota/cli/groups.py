"""``rota groups``: lists and describes the groups of a cluster, and shows their lag.

groups_change.py has the commands that change a group.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from rota.cli import flags, groups_change
from rota.cli.flags import run_with_admin
from rota.cli.render import (
    format_ranges,
    make_console,
    print_json,
    print_notice,
    print_table,
    printable_text,
)
from rota.client.group_description import (
    CLASSIC,
    PREPARING_REBALANCE,
    GroupDescription,
    MemberDescription,
    PartitionLag,
    short_member_names,
)
from rota.engine.formats.journal_classic import GROUP_TYPE, decode_group
from rota.engine.model import duration
from rota.engine.model.duration import format_duration
from rota.engine.model.journal_entry import GroupMetadataEntry, GroupMetadataTombstone
from rota.engine.model.text import CONSUMER_OFFSETS_TOPIC, count_noun, list_first_names
from rota.engine.model.topic import Partitions, TopicPartition
from rota.errors import TimedOut, Unreachable

if TYPE_CHECKING:
    from rota.client.admin import Admin, GroupList

HELP = "show the groups of a cluster: members, lag, offsets"

DESCRIPTION = """\
Shows the consumer groups of a cluster: members, assignments, committed offsets, and lag in records
and in time. Resets and deletes committed offsets. Commands that change something are dry runs
unless --execute is given.
"""

EXAMPLES = """\
examples:
  rota groups list --bootstrap-servers kafka:9092 --state Stable
      groups with their state, strategy and members
  rota groups describe billing --bootstrap-servers kafka:9092
      members and their partitions; lag and owner of each partition
  rota groups lag --bootstrap-servers kafka:9092 --fail-on 100000
      all groups by lag; for CI: exit code 1 if a group has more
  rota groups reset billing --topic orders --to-earliest --bootstrap-servers kafka:9092
      shows the changes; with --execute the command makes them
  rota groups delete-offsets billing --topic old-orders --bootstrap-servers kafka:9092
  rota groups delete billing --bootstrap-servers kafka:9092

`rota groups COMMAND --help` shows the options of a command.

"""

#: Options that can lead to exit code 1.
LIMITS = ("--fail-on",)
#: The states in the second line occur only if the broker assigns.
GROUP_STATES = (
    *("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead"),
    *("Assigning", "Reconciling", "NotReady", "Unknown"),
)

LIST_EXAMPLES = """\
examples:
  rota groups list --bootstrap-servers kafka:9092
  rota groups list --bootstrap-servers kafka:9092 --state PreparingRebalance,CompletingRebalance
  rota groups list --bootstrap-servers kafka:9092 --json | jq '.[] | select(.type == "consumer")'

states: Stable, Empty, PreparingRebalance, CompletingRebalance, Dead; if the broker assigns
(KIP-848) also Assigning and Reconciling, with Kafka Streams also NotReady
"""

DESCRIBE_EXAMPLES = """\
examples:
  rota groups describe billing --bootstrap-servers kafka:9092
  rota groups describe --all --bootstrap-servers kafka:9092 --command-config client.properties
  rota groups describe billing --bootstrap-servers kafka:9092 --json | jq '.[0].members'

lag: number of records after the committed offset. behind: age of the first of these records, or a
little more. Members are shown by their static id or a short form of their member id; --full shows
member ids. strategy: the one that the members agreed on. generation: known from the members'
subscriptions, or with --leader from the journal.
"""

LAG_EXAMPLES = """\
examples:
  rota groups lag --bootstrap-servers kafka:9092
  rota groups lag billing invoices --bootstrap-servers kafka:9092 --fail-on 10000
      exit code 1 if one of the two groups has a lag of more than 10,000 records
  rota groups lag --bootstrap-servers kafka:9092 --fail-on 5m
      exit code 1 if the first unread record of a group is older than five minutes
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    about = "groups with their state, strategy and members"
    add = flags.add_admin_command(actions, "list", list_groups, about, LIST_EXAMPLES)
    add("--state STATE,...", "only groups in these states", repeated=True)
    about = "members, partitions, offsets and lag of groups"
    add = flags.add_admin_command(actions, "describe", describe_groups, about, DESCRIBE_EXAMPLES)
    add("groups GROUP", "a group's name", nargs="*")
    add("--all", "describe every group")
    add(
        "--leader",
        "show the leader of classic groups; reads each group's partition of "
        "__consumer_offsets, because Kafka's DescribeGroups does not have the leader",
    )
    _add_view_flags(add)
    add = flags.add_admin_command(actions, "lag", show_lag, "groups by their lag", LAG_EXAMPLES)
    add("groups GROUP", "a group's name (default: every group)", nargs="*")
    add(
        "--fail-on N|TIME",
        "exit with 1 if a group's lag is more than N records, or more than a time such as 5m",
        type=_parse_lag_limit,
    )
    _add_view_flags(add)
    groups_change.add_change_commands(actions)


def _add_view_flags(add: flags.AddFlag) -> None:
    add("--full", "show whole member ids")
    add(
        "--no-time",
        "do not look up the lag in time (looked up for the 1,000 partitions with the largest lag)",
    )


@dataclass(frozen=True, slots=True)
class LagLimit:
    records: int | None = None
    milliseconds: int | None = None


def _parse_lag_limit(text: str) -> LagLimit:
    if text.isascii() and text.isdecimal():
        return LagLimit(records=int(text))
    try:
        return LagLimit(milliseconds=duration.parse_duration(text))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a number of records nor a time such as 90s or 5m"
        ) from None


def list_groups(args: argparse.Namespace) -> bool:
    """Prints the groups of all brokers."""
    states = flags.split_names(args.state)
    for each in states:
        if _normalize_state(each) not in map(_normalize_state, GROUP_STATES):
            args.error(
                f"--state {each!r}: not a state of a group; states are {', '.join(GROUP_STATES)}"
            )

    async def ask(admin: Admin) -> tuple[GroupList, list[GroupDescription]]:
        listing = await admin.list_groups()
        return listing, await admin.describe_groups(listing)

    listing, found = run_with_admin(args, ask)
    wanted = {_normalize_state(each) for each in states}
    shown = [each for each in found if not wanted or _normalize_state(each.state) in wanted]
    if args.json:
        print_json([group_json(each) for each in shown])
    else:
        print_group_list(shown)
    if states and not shown and found:
        counts = Counter(each.state for each in found)
        there = ", ".join(f"{counts[state]} {state}" for state in sorted(counts))
        print_notice(f"no group is {' or '.join(states)}; there are {there}")
    _check_complete(listing)
    return False


def _normalize_state(state: str) -> str:
    return state.lower().replace("_", "").replace("-", "")


def _check_complete(listing: GroupList) -> None:
    """Raises Unreachable if a broker did not respond, after the other groups are printed."""
    if listing.unanswered:
        raise Unreachable(
            f"the list is incomplete, groups are missing: {'; '.join(listing.unanswered)}"
        )


def describe_groups(args: argparse.Namespace) -> bool:
    """Prints groups with their members and offsets."""
    if bool(args.groups) == args.all:
        args.error("give the names of groups, or --all")
    listing, rows = _read_groups(args)
    if args.leader:
        rows = _add_leaders(args, rows)
    if args.json:
        print_json(
            [
                {
                    **group_json(group),
                    "lag": total_lag(lags),
                    "partitions": [partition_lag_json(each) for each in lags],
                    "notes": group_notes(group, lags),
                }
                for group, lags, _ in rows
            ]
        )
    else:
        if not rows:
            make_console().print("no groups")
        for number, (group, lags, _) in enumerate(rows):
            if number:
                print()  # noqa: T201
            print_group(group, lags, full=args.full)
    if listing is not None:
        _check_complete(listing)
    return False


def _add_leaders(args: argparse.Namespace, rows: list[GroupRow]) -> list[GroupRow]:
    """Adds leader and generation of classic groups, from the newest record of each group in
    ``__consumer_offsets``.

    :raises TimedOut: the journal could not be read on
    """
    from rota.consumer.consumer import Consumer  # noqa: PLC0415 (for this flag only)
    from rota.engine.coordinator.coordinator import journal_partition  # noqa: PLC0415

    names = {group.group for group, _, _ in rows if group.is_classic and group.members}
    newest: dict[str, GroupMetadataEntry | GroupMetadataTombstone] = {}
    settings = {"auto.offset.reset": "earliest", **flags.read_connection_settings(args)}
    with Consumer(settings) as consumer:
        count = len(consumer.partitions_for_topic(CONSUMER_OFFSETS_TOPIC))
        places = {
            TopicPartition(CONSUMER_OFFSETS_TOPIC, journal_partition(name, count)) for name in names
        }
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        deadline = time.monotonic() + args.timeout
        while any(consumer.position(place) < ends[place] for place in places):
            records = consumer.poll(1.0)
            if records:
                deadline = time.monotonic() + args.timeout
            elif time.monotonic() > deadline:
                raise TimedOut(f"no record of {CONSUMER_OFFSETS_TOPIC} for {args.timeout:g} s")
            for record in records:
                if record.key is not None and record.key[:2] == GROUP_TYPE.to_bytes(2):
                    entry = decode_group(record.key, record.value)
                    newest[entry.group] = entry
    found = []
    for group, lags, old in rows:
        known = group
        last = newest.get(group.group)
        if isinstance(last, GroupMetadataEntry):
            known = replace(group, leader=last.leader, stored_generation=last.generation)
        found.append((known, lags, old))
    return found


def show_lag(args: argparse.Namespace) -> bool:
    """Prints groups by their lag; true if one exceeds the limit."""
    listing, found = _read_groups(args)
    rows = [row for row in found if row[1] or args.groups]
    rows.sort(
        key=lambda row: (-(total_lag(row[1]) or 0) - uncommitted_records(row[1]), row[0].group)
    )
    if args.json:
        print_json([_lag_json(group, lags) for group, lags, _ in rows])
    else:
        print_lag_table(rows, full=args.full)
    over = [text for row in rows if (text := _exceeded_limit(*row, args.fail_on)) is not None]
    for text in over:
        print_notice(text)
    if listing is not None:
        _check_complete(listing)
    return bool(over)


#: A group, its lag in each partition, and the partitions with too much lag in time.
GroupRow: TypeAlias = "tuple[GroupDescription, Sequence[PartitionLag], Sequence[TopicPartition]]"


def _read_groups(args: argparse.Namespace) -> tuple[GroupList | None, list[GroupRow]]:
    limit: LagLimit | None = getattr(args, "fail_on", None)

    async def ask(admin: Admin) -> tuple[GroupList | None, list[GroupRow]]:
        listing = None
        if args.groups:
            groups = [await admin.describe_group(each) for each in dict.fromkeys(args.groups)]
        else:
            listing = await admin.list_groups()
            groups = await admin.describe_groups(listing)
        readable = [each for each in groups if each.group_type != "share"]
        lags = await admin.fetch_lags(readable)
        old: dict[str, list[TopicPartition]] = {}
        if limit is not None and limit.milliseconds is not None:
            old = await admin.find_older(lags, limit.milliseconds)
        if not args.no_time:
            lags = await admin.add_ages(lags)
        return listing, [
            (each, lags.get(each.group, []), old.get(each.group, [])) for each in groups
        ]

    return run_with_admin(args, ask)


def _lag_json(group: GroupDescription, lags: Sequence[PartitionLag]) -> dict[str, object]:
    worst, lag, age = worst_partition(lags), total_lag(lags), _longest_age(lags)
    return {
        "group": group.group,
        "state": group.state,
        "type": group.group_type,
        "members": None if group.members is None else len(group.members),
        "lag": lag,
        "lag_seconds": age / 1_000 if age is not None else 0 if lag == 0 else None,
        "partitions": len(lags),
        "lagging": sum(each.lag is not None and each.lag > 0 for each in lags),
        "uncommitted": sum(each.committed is None for each in lags),
        "uncommitted_records": uncommitted_records(lags),
        "worst": None if worst is None else partition_lag_json(worst),
        "notes": lag_notes(group, lags),
    }


def _exceeded_limit(
    group: GroupDescription,
    lags: Sequence[PartitionLag],
    old: Sequence[TopicPartition],
    limit: LagLimit | None,
) -> str | None:
    """Returns a message if the group exceeds the limit. Without a committed offset all records of a
    partition count as lag.
    """
    name = f"group {group.group}"
    if limit is None:
        return None
    if limit.records is not None:
        known, unknown = total_lag(lags) or 0, uncommitted_records(lags)
        if known > limit.records:
            return f"{name} has a lag of {known}, more than --fail-on {limit.records}"
        if known + unknown > limit.records:
            return (
                f"{name} has a lag of up to {known + unknown}, more than --fail-on "
                f"{limit.records}: nothing is committed for {uncommitted_partitions(lags)}"
            )
    if limit.milliseconds is not None and old:
        time = duration.format_duration(limit.milliseconds)
        never = {each.partition for each in lags if each.uncommitted}
        places = [f"{each}{' (nothing is committed)' * (each in never)}" for each in old]
        return f"{name} is more than {time} behind in {list_first_names(places)}"
    return None


UNKNOWN_CELL = "-"

GROUP_TYPES = {
    "consumer": "assigned by the broker (KIP-848)",
    "share": "a share group (KIP-932)",
    "streams": "a group of Kafka Streams, assigned by the broker (KIP-1071)",
}


def print_group_list(groups: Sequence[GroupDescription]) -> None:
    if not groups:
        make_console().print("no groups")
        return
    rows = [
        (
            each.group,
            each.state or UNKNOWN_CELL,
            (each.group_type or CLASSIC)
            + ("" if each.is_consumer_group else f" ({each.protocol_type})"),
            each.strategy or UNKNOWN_CELL,
            UNKNOWN_CELL if each.members is None else str(len(each.members)),
        )
        for each in groups
    ]
    print_table(("group", "state", "type", "strategy", "members"), rows, {"members"})


def print_group(group: GroupDescription, lags: Sequence[PartitionLag], *, full: bool) -> None:
    """Prints the members of a group, then its lag."""
    screen = make_console()
    screen.print(printable_text(group_headline(group)))
    names = _member_names(group, full=full)
    if group.is_classic and group.generation is not None:
        leader = f", leader {names.get(group.leader, group.leader)}" if group.leader else ""
        screen.print(printable_text(f"generation {group.generation}{leader}"))
    if group.members:
        screen.print()
        _print_members(group.members, names)
        if _shows_subscriptions(group):
            for line in _subscription_lines(group.members, names):
                screen.print(printable_text(line))
    if lags:
        screen.print()
        _print_partition_lags(lags, names)
        screen.print(_total_lag_line(lags))
    else:
        screen.print("no committed offsets, or no permission to see them")
    for note in group_notes(group, lags):
        screen.print(printable_text(f"note: {note}"))


def _shows_subscriptions(group: GroupDescription) -> bool:
    """Returns whether brokers describe subscriptions: not while a classic group waits for joins."""
    return not group.is_classic or group.state != PREPARING_REBALANCE


def group_headline(group: GroupDescription) -> str:
    """Describes a group in one line."""
    items = [f"{group.group}: {group.state or 'state unknown'}"]
    if not group.is_classic:
        items.append(GROUP_TYPES.get(group.group_type, f"of type {group.group_type}"))
    if not group.is_consumer_group:
        items.append(f"of {group.protocol_type} workers")
    if group.strategy:
        items.append(f"strategy {group.strategy}")
    if group.epoch is not None:
        items.append(f"epoch {group.epoch}")
    if group.members is not None:
        items.append(count_noun(len(group.members), "member"))
    if group.coordinator:
        items.append(f"coordinator {group.coordinator}")
    return ", ".join(items)


def group_notes(group: GroupDescription, lags: Iterable[PartitionLag]) -> list[str]:
    notes = []
    if group.members is None:
        notes.append("members of groups of this type cannot be described")
    if not _shows_subscriptions(group):
        notes.append("the group is rebalancing: subscriptions and owners are known when it is over")
    for member in group.members or ():
        if member.problem:
            notes.append(f"member {member.id} cannot be decoded: {member.problem}")
        if member.target is not None:
            notes.append(
                f"member {member.id} moves from {_format_partitions(member.assigned)} "
                f"to {_format_partitions(member.target)}"
            )
    by_problem: dict[str, list[str]] = {}
    for each in lags:
        if each.problem is not None:
            by_problem.setdefault(each.problem, []).append(str(each.partition))
    notes += [f"{list_first_names(places)}: {problem}" for problem, places in by_problem.items()]
    return notes


def _member_names(group: GroupDescription, *, full: bool) -> dict[str, str]:
    members = group.members or ()
    return {each.id: each.id for each in members} if full else short_member_names(members)


def _print_members(members: Iterable[MemberDescription], names: Mapping[str, str]) -> None:
    """Prints members; columns without information are left out."""
    listed = sorted(members, key=lambda each: names[each.id])
    clients = any(not names[each.id].startswith(each.client_id) for each in listed)
    racks = any(each.rack for each in listed)
    titles = ["member", *["client id"] * clients, "host", *["rack"] * racks, "load", "partitions"]
    rows = [
        [
            names[each.id],
            *[each.client_id] * clients,
            each.host,
            *[each.rack or UNKNOWN_CELL] * racks,
            str(len(each.assigned)),
            _format_partitions(each.assigned),
        ]
        for each in listed
    ]
    print_table(titles, rows, {"load"})


def _subscription_lines(
    members: Sequence[MemberDescription], names: Mapping[str, str]
) -> list[str]:
    """Returns the subscriptions: one line if all members have the same."""
    by_topics: dict[str, list[str]] = {}
    for each in members:
        topics = ", ".join(sorted(each.topics)) or ("" if each.pattern else "unknown")
        pattern = f"pattern {each.pattern}" if each.pattern else ""
        wanted = "; ".join(filter(None, (topics, pattern)))
        by_topics.setdefault(wanted, []).append(names[each.id])
    if len(by_topics) == 1:
        return [f"subscribed: {next(iter(by_topics))}"]
    return [
        f"subscribed by {list_first_names(sorted(who))}: {what}"
        for what, who in sorted(by_topics.items())
    ]


def _print_partition_lags(lags: Iterable[PartitionLag], names: Mapping[str, str]) -> None:
    titles = ("topic", "partition", "committed", "end", "lag", "behind", "owner")
    rows = [
        (
            each.partition.topic,
            str(each.partition.partition),
            _format_number(None if each.committed is None else each.committed.offset),
            _format_number(each.log_end),
            _format_number(each.lag),
            _format_time_lag(each),
            names.get(each.owner or "", UNKNOWN_CELL),
        )
        for each in lags
    ]
    print_table(titles, rows, titles[1:-1])


def _format_time_lag(partition_lag: PartitionLag) -> str:
    lag, age = partition_lag.lag, partition_lag.age_ms
    if lag is not None and lag <= 0:
        return "0s"
    return UNKNOWN_CELL if lag is None or age is None else format_age(age)


def _longest_age(lags: Iterable[PartitionLag]) -> int | None:
    return max((each.age_ms for each in lags if each.age_ms is not None), default=None)


def format_age(age: int) -> str:
    """Formats an age with at most two units: ``3d4h``, ``1h5m``, ``12s``."""
    for coarse, fine in ((86_400_000, 3_600_000), (3_600_000, 60_000), (0, 1_000)):
        if age >= coarse:
            return format_duration(age // fine * fine)
    return "0s"


def _total_lag_line(lags: Sequence[PartitionLag]) -> str:
    lag = total_lag(lags)
    items = ["lag unknown" if lag is None else f"total lag {lag:,}"]
    if (age := _longest_age(lags)) is not None:
        items.append(f"up to {format_age(age)} behind")
    without = sum(each.committed is None for each in lags)
    if without:
        records = uncommitted_records(lags)
        there = f" ({count_noun(records, 'record')})" if records else ""
        items.append(f"{count_noun(without, 'partition')} without a committed offset{there}")
    return "; ".join(items)


def _format_number(number: int | None) -> str:
    return UNKNOWN_CELL if number is None else str(number)


def _format_partitions(partitions: Partitions) -> str:
    """``orders 0-2; payments 5``."""
    by_topic = partitions.by_topic()
    listed = [f"{topic} {format_ranges(sorted(by_topic[topic]))}" for topic in sorted(by_topic)]
    return "; ".join(listed) or "nothing"


def print_lag_table(rows: Sequence[GroupRow], *, full: bool) -> None:
    if not rows:
        make_console().print("no group has committed offsets")
        return
    titles = ("group", "state", "members", "lag", "behind", "worst partition", "owner")
    cells = [_lag_row(group, lags, full=full) for group, lags, _ in rows]
    print_table(titles, cells, titles[2:5])
    for group, lags, _ in rows:
        for note in lag_notes(group, lags):
            make_console().print(printable_text(f"note: {group.group}: {note}"))


def lag_notes(group: GroupDescription, lags: Sequence[PartitionLag]) -> list[str]:
    notes = group_notes(group, lags) if group.members is not None else []
    if places := uncommitted_partitions(lags):
        records = count_noun(uncommitted_records(lags), "record")
        notes.append(f"nothing is committed for {places}: {records} may be unread")
    return notes


def _lag_row(
    group: GroupDescription, lags: Sequence[PartitionLag], *, full: bool
) -> tuple[str, ...]:
    worst, lag, age = worst_partition(lags), total_lag(lags), _longest_age(lags)
    place = owner = UNKNOWN_CELL
    if worst is not None:
        place = f"{worst.partition} ({worst.lag})"
        owner = _member_names(group, full=full).get(worst.owner or "", UNKNOWN_CELL)
    return (
        group.group,
        group.state or UNKNOWN_CELL,
        UNKNOWN_CELL if group.members is None else str(len(group.members)),
        _format_number(lag),
        format_age(age) if age is not None else "0s" if lag == 0 else UNKNOWN_CELL,
        place,
        owner,
    )


def total_lag(lags: Iterable[PartitionLag]) -> int | None:
    """Returns the number of unread records; None if no partition's lag is known. A committed offset
    beyond the end of one partition does not make up for lag in another.
    """
    known = [max(each.lag, 0) for each in lags if each.lag is not None]
    return sum(known) if known else None


def uncommitted_records(lags: Iterable[PartitionLag]) -> int:
    """Returns the number of records in partitions without a committed offset."""
    return sum(each.uncommitted for each in lags)


def uncommitted_partitions(lags: Iterable[PartitionLag]) -> str:
    return list_first_names([str(each.partition) for each in lags if each.uncommitted])


def worst_partition(lags: Iterable[PartitionLag]) -> PartitionLag | None:
    """The partition with the largest lag; None if there is no lag."""
    behind = [(each.lag, each) for each in lags if each.lag is not None and each.lag > 0]
    return max(behind, key=lambda pair: pair[0], default=(0, None))[1]


def group_json(group: GroupDescription) -> dict[str, object]:
    return {
        "group": group.group,
        "state": group.state,
        "type": group.group_type or CLASSIC,
        "protocol_type": group.protocol_type,
        "strategy": group.strategy,
        "epoch": group.epoch,
        "generation": group.generation,
        "leader": group.leader,
        "coordinator": group.coordinator,
        "members": None if group.members is None else list(map(_member_json, group.members)),
    }


def _member_json(member: MemberDescription) -> dict[str, object]:
    return {
        "id": member.id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "rack": member.rack,
        "topics": sorted(member.topics),
        "pattern": member.pattern,
        "owned_at_join": _partitions_json(member.owned),
        "generation": member.generation,
        "assigned": _partitions_json(member.assigned),
        "target": None if member.target is None else _partitions_json(member.target),
        "problem": member.problem,
    }


def _partitions_json(partitions: Partitions) -> dict[str, list[int]]:
    by_topic = partitions.by_topic()
    return {topic: sorted(by_topic[topic]) for topic in sorted(by_topic)}


def partition_lag_json(partition_lag: PartitionLag) -> dict[str, object]:
    """Returns the committed offset, end and lag of one partition."""
    committed = partition_lag.committed
    return {
        "topic": partition_lag.partition.topic,
        "partition": partition_lag.partition.partition,
        "committed": None if committed is None else committed.offset,
        "metadata": None if committed is None else committed.metadata,
        "leader_epoch": None if committed is None else committed.leader_epoch,
        "start": partition_lag.log_start,
        "end": partition_lag.log_end,
        "lag": partition_lag.lag,
        "lag_seconds": None if partition_lag.age_ms is None else partition_lag.age_ms / 1_000,
        "owner": partition_lag.owner,
        "problem": partition_lag.problem,
    }
