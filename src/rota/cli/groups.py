"""``rota groups``: lists groups, describes them, shows their lag; groups_change.py changes them."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rota.cli import flags, groups_change
from rota.cli.flags import run_with_admin
from rota.cli.render import (
    format_partitions,
    print_json,
    print_lines,
    print_notice,
    print_table,
    select_attributes,
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

LIMITS = ("--fail-on",)  # options that can lead to exit code 1
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
member ids. strategy: the strategy that the members agreed on. generation: read from the
members' subscriptions, or with --leader from the journal.
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
    text = "exit with 1 if a group's lag is more than N records, or more than a time such as 5m"
    add("--fail-on N|TIME", text, type=_parse_lag_limit)
    _add_view_flags(add)
    groups_change.add_change_commands(actions)


def _add_view_flags(add: flags.AddFlag) -> None:
    add("--full", "show whole member ids")
    add("--no-time", "no lag in time (shown for the 1,000 partitions with the largest lag)")


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


@dataclass(frozen=True, slots=True)
class GroupLags:
    group: GroupDescription
    partitions: Sequence[PartitionLag]
    late: Sequence[TopicPartition]

    @property
    def lag(self) -> int | None:
        """The number of unread records; None if no partition's lag is known. A committed offset
        beyond the end of one partition does not make up for lag in another.
        """
        known = [max(each.lag, 0) for each in self.partitions if each.lag is not None]
        return sum(known) if known else None

    @property
    def age_ms(self) -> int | None:
        ages = [each.age_ms for each in self.partitions if each.age_ms is not None]
        return max(ages, default=0 if self.lag == 0 else None)

    @property
    def uncommitted_records(self) -> int:
        return sum(each.uncommitted for each in self.partitions)

    @property
    def uncommitted_partitions(self) -> str:
        uncommitted = [each.partition for each in self.partitions if each.uncommitted]
        return list_first_names(list(map(str, uncommitted)))

    @property
    def worst(self) -> PartitionLag | None:
        lagging = (each for each in self.partitions if each.lag is not None and each.lag > 0)
        return max(lagging, key=lambda each: each.lag or 0, default=None)


def list_groups(args: argparse.Namespace) -> bool:
    states = flags.split_names(args.state)
    known_states = set(map(_normalize_state, GROUP_STATES))
    for each in states:
        if _normalize_state(each) not in known_states:
            known_names = ", ".join(GROUP_STATES)
            args.error(f"--state {each!r}: not a state of a group; states are {known_names}")

    async def fetch(admin: Admin) -> tuple[GroupList, list[GroupDescription]]:
        listing = await admin.list_groups()
        return listing, await admin.describe_groups(listing)

    listing, groups = run_with_admin(args, fetch)
    selected = set(map(_normalize_state, states))
    shown = [each for each in groups if not selected or _normalize_state(each.state) in selected]
    if args.json:
        print_json([_group_json(each) for each in shown])
    else:
        _print_group_list(shown)
    if states and not shown and groups:
        counts = Counter(each.state for each in groups)
        listed = ", ".join(f"{counts[state]} {state}" for state in sorted(counts))
        print_notice(f"no group is {' or '.join(states)}; there are {listed}")
    _check_complete(listing)
    return False


def _normalize_state(state: str) -> str:
    return state.lower().replace("_", "").replace("-", "")


def _check_complete(listing: GroupList | None) -> None:
    """Raises Unreachable if a broker did not respond, after the other groups are printed."""
    if listing is not None and listing.unanswered:
        problems = "; ".join(listing.unanswered)
        raise Unreachable(f"the list is incomplete, groups are missing: {problems}")


def describe_groups(args: argparse.Namespace) -> bool:
    if bool(args.groups) == args.all:
        args.error("give the names of groups, or --all")
    listing, rows = _fetch_lags(args)
    if args.leader:
        rows = _add_leaders(args, rows)
    if args.json:
        print_json(
            [
                {
                    **_group_json(row.group),
                    "lag": row.lag,
                    "partitions": list(map(_partition_lag_json, row.partitions)),
                    "notes": _group_notes(row),
                }
                for row in rows
            ]
        )
    else:
        if not rows:
            print_lines("no groups")
        for number, row in enumerate(rows):
            if number:
                print_lines("")
            _print_group(row, full=args.full)
    _check_complete(listing)
    return False


def _add_leaders(args: argparse.Namespace, rows: list[GroupLags]) -> list[GroupLags]:
    """Adds leader and generation from each classic group's newest journal record."""
    from rota.consumer.consumer import Consumer  # noqa: PLC0415 (for this flag only)
    from rota.engine.coordinator.coordinator import journal_partition  # noqa: PLC0415

    names = {row.group.group for row in rows if row.group.is_classic and row.group.members}
    newest: dict[str, GroupMetadataEntry | GroupMetadataTombstone] = {}
    settings = {"auto.offset.reset": "earliest", **flags.read_connection_settings(args)}
    with Consumer(settings) as consumer:
        count = len(consumer.partitions_for_topic(CONSUMER_OFFSETS_TOPIC))
        topic = CONSUMER_OFFSETS_TOPIC
        partitions = {TopicPartition(topic, journal_partition(name, count)) for name in names}
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        deadline = time.monotonic() + args.timeout
        while any(consumer.position(each) < end for each, end in ends.items()):
            records = consumer.poll(1.0)
            if records:
                deadline = time.monotonic() + args.timeout
            elif time.monotonic() > deadline:
                raise TimedOut(f"no record of {CONSUMER_OFFSETS_TOPIC} for {args.timeout:g} s")
            for record in records:
                if record.key is not None and record.key[:2] == GROUP_TYPE.to_bytes(2):
                    entry = decode_group(record.key, record.value)
                    newest[entry.group] = entry
    for number, row in enumerate(rows):
        last = newest.get(row.group.group)
        if isinstance(last, GroupMetadataEntry):
            group = replace(row.group, leader=last.leader, stored_generation=last.generation)
            rows[number] = replace(row, group=group)
    return rows


def show_lag(args: argparse.Namespace) -> bool:
    listing, rows = _fetch_lags(args)
    rows = [row for row in rows if row.partitions or args.groups]
    rows.sort(key=lambda row: (-(row.lag or 0) - row.uncommitted_records, row.group.group))
    if args.json:
        print_json([_lag_json(row) for row in rows])
    else:
        _print_lag_table(rows, full=args.full)
    exceeded = [text for row in rows if (text := _exceeded_limit(row, args.fail_on)) is not None]
    for text in exceeded:
        print_notice(text)
    _check_complete(listing)
    return bool(exceeded)


def _fetch_lags(args: argparse.Namespace) -> tuple[GroupList | None, list[GroupLags]]:
    limit: LagLimit | None = getattr(args, "fail_on", None)

    async def fetch(admin: Admin) -> tuple[GroupList | None, list[GroupLags]]:
        listing = None
        if args.groups:
            groups = [await admin.describe_group(each) for each in dict.fromkeys(args.groups)]
        else:
            listing = await admin.list_groups()
            groups = await admin.describe_groups(listing)
        lags = await admin.fetch_lags([each for each in groups if each.group_type != "share"])
        late: dict[str, list[TopicPartition]] = {}
        if limit is not None and limit.milliseconds is not None:
            late = await admin.find_older(lags, limit.milliseconds)
        if not args.no_time:
            lags = await admin.add_ages(lags)
        return listing, [
            GroupLags(each, lags.get(each.group, []), late.get(each.group, [])) for each in groups
        ]

    return run_with_admin(args, fetch)


def _lag_json(row: GroupLags) -> dict[str, object]:
    worst, age = row.worst, row.age_ms
    return {
        "group": row.group.group,
        "state": row.group.state,
        "type": row.group.group_type,
        "members": _count_members(row.group),
        "lag": row.lag,
        "lag_seconds": None if age is None else age / 1_000,
        "partitions": len(row.partitions),
        "lagging": sum(each.lag is not None and each.lag > 0 for each in row.partitions),
        "uncommitted": sum(each.committed is None for each in row.partitions),
        "uncommitted_records": row.uncommitted_records,
        "worst": worst and _partition_lag_json(worst),
        "notes": _lag_notes(row),
    }


def _exceeded_limit(row: GroupLags, limit: LagLimit | None) -> str | None:
    """Returns a message if the lag, or all records without a commit, exceed the limit."""
    if limit is None:
        return None
    name = f"group {row.group.group}"
    if limit.records is not None:
        known, unknown = row.lag or 0, row.uncommitted_records
        if known > limit.records:
            return f"{name} has a lag of {known}, more than --fail-on {limit.records}"
        if known + unknown > limit.records:
            return (
                f"{name} has a lag of up to {known + unknown}, more than --fail-on "
                f"{limit.records}: nothing is committed for {row.uncommitted_partitions}"
            )
    if limit.milliseconds is not None and row.late:
        time = format_duration(limit.milliseconds)
        never = {each.partition for each in row.partitions if each.uncommitted}
        late = [f"{each}{' (nothing is committed)' * (each in never)}" for each in row.late]
        return f"{name} is more than {time} behind in {list_first_names(late)}"
    return None


GROUP_TYPES = {
    "consumer": "assigned by the broker (KIP-848)",
    "share": "a share group (KIP-932)",
    "streams": "a group of Kafka Streams, assigned by the broker (KIP-1071)",
}


def _print_group_list(groups: Sequence[GroupDescription]) -> None:
    if not groups:
        print_lines("no groups")
        return
    rows = [
        (
            each.group,
            each.state or None,
            (each.group_type or CLASSIC)
            + ("" if each.is_consumer_group else f" ({each.protocol_type})"),
            each.strategy or None,
            _count_members(each),
        )
        for each in groups
    ]
    print_table(("group", "state", "type", "strategy", "members"), rows, {"members"})


def _count_members(group: GroupDescription) -> int | None:
    return None if group.members is None else len(group.members)


def _print_group(row: GroupLags, *, full: bool) -> None:
    group, names = row.group, _member_names(row.group, full=full)
    print_lines(_group_headline(group))
    if group.is_classic and group.generation is not None:
        leader = f", leader {names.get(group.leader, group.leader)}" if group.leader else ""
        print_lines(f"generation {group.generation}{leader}")
    if group.members:
        print_lines("")
        _print_members(group.members, names)
        if _shows_subscriptions(group):
            print_lines(*_subscription_lines(group.members, names))
    if row.partitions:
        print_lines("")
        titles = ("topic", "partition", "committed", "end", "lag", "behind", "owner")
        cells = [
            (
                *each.partition,
                each.committed and each.committed.offset,
                *(each.log_end, each.lag, _format_partition_age(each)),
                names.get(each.owner or ""),
            )
            for each in row.partitions
        ]
        print_table(titles, cells, titles[1:-1])
        print_lines(_total_lag_line(row))
    else:
        print_lines("no committed offsets, or no permission to see them")
    print_lines(*(f"note: {note}" for note in _group_notes(row)))


def _shows_subscriptions(group: GroupDescription) -> bool:
    """Returns whether brokers describe subscriptions: not while a classic group waits for joins."""
    return not group.is_classic or group.state != PREPARING_REBALANCE


def _group_headline(group: GroupDescription) -> str:
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


def _group_notes(row: GroupLags) -> list[str]:
    notes = []
    if row.group.members is None:
        notes.append("members of groups of this type cannot be described")
    if not _shows_subscriptions(row.group):
        notes.append("the group is rebalancing: subscriptions and owners are known when it is over")
    for member in row.group.members or ():
        if member.problem:
            notes.append(f"member {member.id} cannot be decoded: {member.problem}")
        if member.target is not None:
            before, after = format_partitions(member.assigned), format_partitions(member.target)
            notes.append(f"member {member.id} moves from {before} to {after}")
    by_problem: dict[str, list[str]] = {}
    for each in row.partitions:
        if each.problem is not None:
            by_problem.setdefault(each.problem, []).append(str(each.partition))
    return notes + [f"{list_first_names(names)}: {why}" for why, names in by_problem.items()]


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
            *[each.rack or None] * racks,
            len(each.assigned),
            format_partitions(each.assigned),
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
    items = sorted(by_topics.items())
    return [f"subscribed by {list_first_names(sorted(ids))}: {topics}" for topics, ids in items]


def _format_partition_age(each: PartitionLag) -> str | None:
    if each.lag is None or each.lag <= 0:
        return None if each.lag is None else "0s"
    return format_age(each.age_ms)


def format_age(age: int | None) -> str | None:
    """Formats an age with at most two units: ``3d4h``, ``1h5m``, ``12s``."""
    if age is None:
        return None
    unit = 3_600_000 if age >= 86_400_000 else 60_000 if age >= 3_600_000 else 1_000
    return format_duration(age // unit * unit)


def _total_lag_line(row: GroupLags) -> str:
    items = ["lag unknown" if row.lag is None else f"total lag {row.lag:,}"]
    if row.age_ms is not None and (row.age_ms or row.lag):
        items.append(f"up to {format_age(row.age_ms)} behind")
    if without := sum(each.committed is None for each in row.partitions):
        records = row.uncommitted_records
        unread = f" ({count_noun(records, 'record')})" if records else ""
        items.append(f"{count_noun(without, 'partition')} without a committed offset{unread}")
    return "; ".join(items)


def _print_lag_table(rows: Sequence[GroupLags], *, full: bool) -> None:
    if not rows:
        print_lines("no group has committed offsets")
        return
    titles = ("group", "state", "members", "lag", "behind", "worst partition", "owner")
    cells = []
    for row in rows:
        place = owner = None
        if row.worst is not None:
            place = f"{row.worst.partition} ({row.worst.lag})"
            owner = _member_names(row.group, full=full).get(row.worst.owner or "")
        counts = (_count_members(row.group), row.lag, format_age(row.age_ms))
        cells.append((row.group.group, row.group.state or None, *counts, place, owner))
    print_table(titles, cells, titles[2:5])
    print_lines(*(f"note: {row.group.group}: {note}" for row in rows for note in _lag_notes(row)))


def _lag_notes(row: GroupLags) -> list[str]:
    notes = _group_notes(row) if row.group.members is not None else []
    if partitions := row.uncommitted_partitions:
        records = count_noun(row.uncommitted_records, "record")
        notes.append(f"nothing is committed for {partitions}: {records} may be unread")
    return notes


def _group_json(group: GroupDescription) -> dict[str, object]:
    members = group.members
    return {
        **select_attributes(group, "group", "state"),
        "type": group.group_type or CLASSIC,
        **select_attributes(group, "protocol_type", "strategy", "epoch"),
        **select_attributes(group, "generation", "leader", "coordinator"),
        "members": None if members is None else list(map(_member_json, members)),
    }


def _member_json(member: MemberDescription) -> dict[str, object]:
    return {
        **select_attributes(member, "id", "group_instance_id", "client_id", "host", "rack"),
        "topics": sorted(member.topics),
        "pattern": member.pattern,
        "owned_at_join": _partitions_json(member.owned),
        "generation": member.generation,
        "assigned": _partitions_json(member.assigned),
        "target": None if member.target is None else _partitions_json(member.target),
        "problem": member.problem,
    }


def _partitions_json(partitions: Partitions) -> dict[str, list[int]]:
    return {topic: sorted(numbers) for topic, numbers in sorted(partitions.by_topic().items())}


def _partition_lag_json(each: PartitionLag) -> dict[str, object]:
    committed = each.committed
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "committed": committed and committed.offset,
        "metadata": committed and committed.metadata,
        "leader_epoch": committed and committed.leader_epoch,
        "start": each.log_start,
        "end": each.log_end,
        "lag": each.lag,
        "lag_seconds": None if each.age_ms is None else each.age_ms / 1_000,
        "owner": each.owner,
        "problem": each.problem,
    }
