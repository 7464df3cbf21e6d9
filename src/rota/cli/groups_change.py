"""``rota groups reset``, ``delete`` and ``delete-offsets``: dry runs unless ``--execute`` is given.

Reset follows the rules of Kafka's tool: an offset out of range becomes the nearest one in range; a
time after the last record means the end, and so does the current offset if nothing is committed.
"""

from __future__ import annotations

import argparse
import csv
import io
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

from rota.cli import flags
from rota.cli.flags import run_with_admin
from rota.cli.render import print_json, print_lines, print_notice, print_table
from rota.client.group_description import (
    STATES_WITHOUT_MEMBERS,
    GroupDescription,
    short_member_names,
)
from rota.engine.model import duration
from rota.engine.model.text import count_noun, list_first_names
from rota.engine.model.topic import OffsetAndMetadata, Partitions, TopicPartition
from rota.errors import GroupError, InputError, Unreachable

if TYPE_CHECKING:
    from rota.client.admin import Admin

RESET_EXAMPLES = """\
examples:
  rota groups reset billing --all-topics --to-earliest --bootstrap-servers kafka:9092
      shows the changes; with --execute the command makes them
  rota groups reset billing --topic orders:0,1,5-8 --shift-by -100 --bootstrap-servers kafka:9092
  rota groups reset billing --topic orders --to-datetime 2025-06-30T13:00:00Z --execute ...
  rota groups reset billing --topic orders --by-duration PT1H30M ...
      the first record of the last hour and a half; 1h30m means the same
  rota groups reset billing --topic orders --to-latest --new --execute ...
      a group that does not exist yet starts at the end
  rota groups reset billing --all-topics --to-current --export > offsets.csv
  rota groups reset billing --from-file offsets.csv --execute ...
      save a group's offsets as lines topic,partition,offset, and restore them

The group must have no members, because members would commit their own positions again. An offset
out of range becomes the nearest one in range, with a note. Times without a zone are UTC.
"""

DELETE_EXAMPLES = """\
examples:
  rota groups delete billing old-billing --bootstrap-servers kafka:9092
      shows what would be deleted; with --execute the command deletes it
"""

DELETE_OFFSETS_EXAMPLES = """\
examples:
  rota groups delete-offsets billing --topic old-orders --bootstrap-servers kafka:9092
      shows what would be deleted; with --execute the command deletes it

No member may subscribe to the topics. Use it for topics that the group no longer reads: their lag
would grow for ever.
"""


def add_change_commands(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    def add_topic_flags() -> None:
        partitions_help = "a topic or some of its partitions; can be repeated"
        add("--topic TOPIC[:0,1,5-8]", partitions_help, repeated=True)
        add("--all-topics", "every partition with a committed offset")

    execute = ("--execute", "make the change; without it, a dry run")
    about = "set the committed offsets of a group"
    add = flags.add_admin_command(actions, "reset", reset_offsets, about, RESET_EXAMPLES)
    add("group GROUP", "a group's name")
    targets = actions.choices["reset"].add_argument_group("new offset")
    add_target = flags.flag_adder(targets.add_mutually_exclusive_group(required=True))
    add_target("--to-earliest", "the first record")
    add_target("--to-latest", "the end, after the last record")
    add_target("--to-current", "the committed offset, or else the end")
    add_target("--to-offset N", "an offset", type=_parse_offset)
    add_target("--shift-by N", "N offsets forward, or back (-N)", type=_parse_integer)
    add_target("--to-datetime TIME", "the first record at this time or later")
    add_target("--by-duration TIME", "the first record after this time before now")
    add_target("--from-file FILE", "CSV: topic,partition,offset; - for stdin")
    add_topic_flags()
    add("--new", "allow a group that does not exist yet")
    add("--export", "print lines for --from-file; changes nothing")
    add(*execute)
    about = "delete groups and their offsets"
    add = flags.add_admin_command(actions, "delete", delete_groups, about, DELETE_EXAMPLES)
    add("groups GROUP", "a group's name", nargs="+")
    add(*execute)
    about, epilog = "delete committed offsets of a group", DELETE_OFFSETS_EXAMPLES
    add = flags.add_admin_command(actions, "delete-offsets", delete_offsets, about, epilog)
    add("group GROUP", "a group's name")
    add_topic_flags()
    add(*execute)


def _parse_integer(text: str) -> int:
    if not text.removeprefix("-").removeprefix("+").isdecimal() or abs(int(text)) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _parse_offset(text: str) -> int:
    if _parse_integer(text) < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: an offset is 0 or more")
    return int(text)


def reset_offsets(args: argparse.Namespace) -> bool:
    target = _target_from_flags(args)
    executed = args.execute and not args.export

    async def find_and_commit(admin: Admin) -> tuple[GroupDescription | None, list[OffsetChange]]:
        hint = "--new commits offsets for a group that does not exist yet"
        if args.new:
            group = await admin.find_group(args.group)
        else:
            group = await admin.describe_group(args.group, otherwise=hint)
        _check_has_offsets(group)
        changes = await _find_changes(admin, args, target)
        if executed:
            _check_empty(group, "reset")
            await admin.commit_offsets(args.group, {each.partition: each.new for each in changes})
        return group, changes

    group, changes = run_with_admin(args, find_and_commit)
    refused = None if executed else _why_not_empty(group)
    if args.export:
        print(export_offsets(changes), end="")  # noqa: T201
    elif args.json:
        cells = [(*each.cells, each.note or None) for each in changes]
        rows = [dict(zip(CHANGE_TITLES, row, strict=True)) for row in cells]
        print_json({"group": args.group, "executed": executed, "refused": refused, "changes": rows})
    else:
        _print_changes(args.group, changes)
        _print_outcome("the new offsets are committed" if executed else None, refused)
    return False


def _target_from_flags(args: argparse.Namespace) -> ResetTarget:
    if args.from_file is not None:
        if args.topic or args.all_topics:
            args.error("--from-file cannot be combined with --topic or --all-topics")
        return parse_offsets_file(*flags.read_text_file(args.from_file), args.group)
    if bool(args.topic) == args.all_topics:
        args.error("give --topic TOPIC or --all-topics")
    if args.to_datetime is not None:
        return ToDatetime(parse_to_datetime(args.to_datetime))
    if args.by_duration is not None:
        now = time.time_ns() // 1_000_000
        return ToDatetime(max(now - parse_by_duration(args.by_duration), 0))
    if args.shift_by is not None:
        return ShiftBy(args.shift_by)
    if args.to_offset is not None:
        return ToOffset(args.to_offset)
    return NamedOffset(
        "earliest" if args.to_earliest else "latest" if args.to_latest else "current"
    )


async def _find_changes(
    admin: Admin, args: argparse.Namespace, target: ResetTarget
) -> list[OffsetChange]:
    committed = await admin.fetch_committed(args.group)
    if isinstance(target, FromFile):
        partitions = sorted(target.offsets)
        numbers = Partitions.of(partitions).by_topic()
        select_partitions(numbers, (await admin.describe_topics(numbers)).cluster().partitions)
    else:
        partitions = await _partitions_from_flags(admin, args, committed)
    starts, ends = await admin.fetch_bounds(partitions)
    without_leader = [str(each) for each in partitions if each not in starts or each not in ends]
    if without_leader:
        names = list_first_names(without_leader)
        raise Unreachable(f"{names}: no leader, so the offsets are unknown; try again later")
    times: Mapping[TopicPartition, int | None] = {}
    if isinstance(target, ToDatetime):
        times = await admin.offsets_for_time(partitions, target.at)
    logs = {each: LogBounds(starts[each], ends[each], times.get(each)) for each in partitions}
    return compute_changes(target, committed, logs)


async def _partitions_from_flags(
    admin: Admin, args: argparse.Namespace, committed: Mapping[TopicPartition, OffsetAndMetadata]
) -> list[TopicPartition]:
    if args.all_topics:
        if not committed:
            name = repr(args.group)
            raise InputError(f"--all-topics: group {name} has no committed offsets; use --topic")
        counts = (await admin.fetch_metadata(each.topic for each in committed)).cluster().partitions
        deleted = {each for each in committed if each.partition >= counts.get(each.topic, 0)}
        if deleted:
            names = list_first_names(list(map(str, sorted(deleted))))
            print_notice(f"not changed: {names}: the partition does not exist")
        return sorted(committed.keys() - deleted)
    selected = parse_topic_flags(args.topic)
    counts = (await admin.describe_topics(selected)).cluster().partitions
    return select_partitions(selected, counts)


def _check_has_offsets(group: GroupDescription | None) -> None:
    if group is not None and group.group_type == "share":
        text = f"group {group.group!r} is a share group (KIP-932): it has no committed offsets"
        raise InputError(f"{text}; use kafka-share-groups")


def _check_empty(group: GroupDescription | None, action: str) -> None:
    if (problem := _why_not_empty(group)) is not None:
        raise GroupError(f"{action} refused: {problem}")


def _why_not_empty(group: GroupDescription | None) -> str | None:
    """Returns a message that names the members of a group; None if the group has none."""
    if group is None or group.state in STATES_WITHOUT_MEMBERS:
        return None
    members = group.members or ()
    names = short_member_names(members)
    members_at = [f"{names[each.id]} at {each.host}" for each in members]
    named_members = f" with members {list_first_names(sorted(members_at))}" if members_at else ""
    state = group.state or "in use"
    return f"group {group.group!r} is {state}{named_members}; stop its members first"


def _print_outcome(done: str | None, refused: str | None) -> None:
    hint = "--execute makes the change" if refused is None else f"--execute would fail: {refused}"
    print_notice(done or f"dry run: nothing was changed; {hint}")


CHANGE_TITLES = ("topic", "partition", "old", "new", "difference", "note")


def _print_changes(group: str, changes: Sequence[OffsetChange]) -> None:
    rows = []
    for each in changes:
        *offsets, difference = each.cells
        shown = None if difference is None else f"{difference:+d}".replace("+0", "0")
        rows.append((*offsets, shown, each.note))
    print_table(CHANGE_TITLES, rows, CHANGE_TITLES[1:5])
    differences = [each.difference for each in changes if each.difference is not None]
    totals = [
        (-sum(each for each in differences if each < 0), "offset", "back"),
        (sum(each for each in differences if each > 0), "offset", "forward"),
        (len(changes) - len(differences), "partition", "without a committed offset"),
    ]
    text = ", ".join(f"{count_noun(number, noun)} {how}" for number, noun, how in totals if number)
    print_lines(f"group {group}: {text or 'no change'}")


def delete_groups(args: argparse.Namespace) -> bool:
    names = list(dict.fromkeys(args.groups))

    async def describe_and_delete(admin: Admin) -> list[tuple[GroupDescription, int]]:
        described = [
            (await admin.describe_group(each), len(await admin.fetch_committed(each)))
            for each in names
        ]
        if args.execute:
            for group, _ in described:
                _check_empty(group, "deletion")
            await admin.delete_groups(names)
        return described

    rows = [
        (group.group, group.state, offsets, None if args.execute else _why_not_empty(group))
        for group, offsets in run_with_admin(args, describe_and_delete)
    ]
    if args.json:
        keys = ("group", "state", "offsets", "refused")
        groups = [dict(zip(keys, row, strict=True)) for row in rows]
        print_json({"executed": args.execute, "groups": groups})
    else:
        print_table(("group", "state", "committed partitions"), [row[:3] for row in rows])
        refused = "; ".join(problem for *_, problem in rows if problem)
        _print_outcome("deleted" if args.execute else None, refused or None)
    return False


def delete_offsets(args: argparse.Namespace) -> bool:
    if bool(args.topic) == args.all_topics:
        args.error("give --topic TOPIC or --all-topics")
    selected = parse_topic_flags(args.topic)

    async def find_and_delete(admin: Admin) -> tuple[GroupDescription, dict[TopicPartition, int]]:
        group = await admin.describe_group(args.group)
        _check_has_offsets(group)
        committed = await admin.fetch_committed(args.group)
        chosen = {
            partition: committed_offset.offset
            for partition, committed_offset in sorted(committed.items())
            for numbers in (selected.get(partition.topic, ()),)
            if args.all_topics or numbers is None or partition.partition in numbers
        }
        if not chosen:
            topics = list_first_names(sorted({each.topic for each in committed})) or "nothing"
            text = f"group {args.group!r} has no committed offsets in these partitions"
            raise InputError(f"{text}; it has offsets in {topics}")
        if args.execute:
            await admin.delete_offsets(args.group, chosen)
        return group, chosen

    group, chosen = run_with_admin(args, find_and_delete)
    subscribed = {topic for each in group.members or () for topic in each.topics}
    used = sorted(subscribed & {partition.topic for partition in chosen})
    refused = None
    if used and not args.execute:
        refused = f"members subscribe to {list_first_names(used)}"
    titles = ("topic", "partition", "committed")
    rows = [(*partition, offset) for partition, offset in chosen.items()]
    if args.json:
        offsets = [dict(zip(titles, row, strict=True)) for row in rows]
        result = {"executed": args.execute, "offsets": offsets, "refused": refused}
        print_json({"group": args.group, **result})
    else:
        print_table(titles, rows, titles[1:])
        _print_outcome("deleted" if args.execute else None, refused)
    return False


@dataclass(frozen=True, slots=True)
class NamedOffset:
    #: The start or end of the log, or the committed offset (the end if nothing is committed).
    name: Literal["earliest", "latest", "current"]


@dataclass(frozen=True, slots=True)
class ToOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    by: int  # added to the committed offset; may be negative


@dataclass(frozen=True, slots=True)
class ToDatetime:
    at: int  # the first record of this time or later, in milliseconds since 1970


@dataclass(frozen=True, slots=True)
class FromFile:
    offsets: Mapping[TopicPartition, int]


ResetTarget: TypeAlias = NamedOffset | ToOffset | ShiftBy | ToDatetime | FromFile


@dataclass(frozen=True, slots=True)
class LogBounds:
    start: int
    end: int
    at_time: int | None = None  # first offset at the requested time or later; None: no record


@dataclass(frozen=True, slots=True)
class OffsetChange:
    partition: TopicPartition
    old: int | None
    new: int
    note: str = ""

    @property
    def difference(self) -> int | None:
        """Negative: records that are read again; positive: records that are skipped."""
        return None if self.old is None else self.new - self.old

    @property
    def cells(self) -> tuple[str, int, int | None, int, int | None]:
        return (*self.partition, self.old, self.new, self.difference)


def compute_changes(
    target: ResetTarget,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    logs: Mapping[TopicPartition, LogBounds],
) -> list[OffsetChange]:
    """Returns the new offset of each partition of ``logs``, by topic and number."""
    if isinstance(target, ShiftBy):
        without = [str(each) for each in sorted(logs) if each not in committed]
        if without:
            names, hint = list_first_names(without), "use another target, such as --to-earliest"
            raise InputError(f"--shift-by: nothing is committed for {names}; {hint}")
    changes = []
    for partition, log in sorted(logs.items()):
        old = committed[partition].offset if partition in committed else None
        changes.append(OffsetChange(partition, old, *_new_offset(target, partition, old, log)))
    return changes


def _new_offset(
    target: ResetTarget, partition: TopicPartition, old: int | None, log: LogBounds
) -> tuple[int, str]:
    match target:
        case NamedOffset("earliest" | "latest" as name):
            return (log.start if name == "earliest" else log.end), ""
        case NamedOffset():
            return (log.end, "nothing was committed: the end") if old is None else (old, "")
        case ToOffset(offset):
            return _clamp_offset(offset, log)
        case ShiftBy(by):
            assert old is not None
            return _clamp_offset(old + by, log)
        case ToDatetime():
            late = "no record at this time or later: the end"
            return (log.end, late) if log.at_time is None else (log.at_time, "")
        case FromFile(offsets):
            return _clamp_offset(offsets[partition], log)
        case _:
            assert_never(target)


def _clamp_offset(offset: int, log: LogBounds) -> tuple[int, str]:
    if offset > log.end:
        return log.end, f"{offset} is after the end, {log.end}"
    if offset < log.start:
        return log.start, f"{offset} is before the first record, {log.start}"
    return offset, ""


def parse_topic_flags(flag_values: Sequence[str]) -> dict[str, tuple[int, ...] | None]:
    """Parses ``orders`` or ``orders:0,1,5-8`` to partitions by topic; None: every partition."""
    chosen: dict[str, tuple[int, ...] | None] = {}
    for text in flag_values:
        topic, colon, listed = text.partition(":")
        if not topic:
            raise InputError(f"--topic {text!r}: expected TOPIC or TOPIC:0,1,2")
        if not colon:
            chosen[topic] = None
            continue
        try:
            numbers = flags.parse_partition_numbers(listed)
        except ValueError as error:
            hint = f"{str(error)!r} is not a partition; write TOPIC:0,1,5-8"
            raise InputError(f"--topic {text!r}: {hint}") from None
        before = chosen.get(topic, ())
        if before is not None:
            chosen[topic] = (*before, *numbers)
    return {name: None if each is None else tuple(sorted({*each})) for name, each in chosen.items()}


def select_partitions(
    selected: Mapping[str, tuple[int, ...] | None], counts: Mapping[str, int]
) -> list[TopicPartition]:
    """Returns the selected partitions; raises InputError if one of them does not exist."""
    partitions: list[TopicPartition] = []
    for topic, numbers in selected.items():
        count = counts[topic]
        for number in range(count) if numbers is None else numbers:
            if number >= count:
                known = f"partitions are 0 to {count - 1}"
                raise InputError(f"--topic {topic}: no partition {number}; {known}")
            partitions.append(TopicPartition(topic, number))
    return partitions


def parse_to_datetime(text: str) -> int:
    """Returns milliseconds since 1970; a time without a zone is UTC, as in Kafka's tool."""
    try:
        milliseconds = flags.parse_iso_time(text)
    except ValueError:
        forms = "2025-06-30T13:00:00.000 (UTC) or 2025-06-30T15:00:00+02:00"
        raise InputError(f"--to-datetime {text!r}: not a time such as {forms}") from None
    if milliseconds < 0:
        raise InputError(f"--to-datetime {text!r}: the time is before 1970")
    return milliseconds


def parse_by_duration(text: str) -> int:
    """Returns milliseconds, from ``PT1H30M`` as in Kafka's tool, or from ``1h30m``."""
    if text.upper().startswith("P"):
        return duration.parse_iso_duration(text, "--by-duration")
    try:
        return duration.parse_duration(text)
    except ValueError:
        forms = "PT1H30M, P7D, 90s or 1h30m"
        raise InputError(f"--by-duration {text!r}: not a time such as {forms}") from None


def parse_offsets_file(content: str, source: str, group: str) -> FromFile:
    """Parses lines ``[group,]topic,partition,offset``, the formats of Kafka's tool."""
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(io.StringIO(content)), 1):
        if not row or row == [""]:
            continue
        if len(row) not in {3, 4}:
            forms = "topic,partition,offset or group,topic,partition,offset"
            raise InputError(f"{source}, line {number}: expected {forms}, not {','.join(row)}")
        *named, partition, offset = (each.strip() for each in row)
        if len(named) == 2 and named[0] != group:
            continue
        for column, text in (("partition", partition), ("offset", offset)):
            if not (text.isascii() and text.isdecimal()) or int(text) >= 2**63:
                raise InputError(f"{source}, line {number}: {column} {text!r} must be 0 or more")
        each = TopicPartition(named[-1], int(partition))
        if each in offsets:
            raise InputError(f"{source}, line {number}: {each} occurs twice")
        offsets[each] = int(offset)
    if not offsets:
        raise InputError(f"{source}: no offset of group {group!r}")
    return FromFile(offsets)


def export_offsets(changes: Iterable[OffsetChange]) -> str:
    """Returns the new offsets as lines for ``--from-file``, also of Kafka's tool."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows((*each.partition, each.new) for each in changes)
    return out.getvalue()
