"""The commands of ``rota groups`` that change something: shown first, done with ``--execute``."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli import bootstrap
from rota.cli import reset as kinds
from rota.cli.bootstrap import asked, print_json, say
from rota.cli.reset import Change, Log, Target, exported, parse_topics
from rota.cli.screen import console, count, plain, print_table
from rota.client.overview import WITHOUT_MEMBERS, Overview, labels
from rota.errors import GroupError, InputError, Unreachable
from rota.model.topic import Partitions, TopicPartition, first_few

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.client.admin import Admin
    from rota.model.offset import OffsetAndMetadata

DRY_ALONE = "nothing was changed: this was a dry run"
DRY = f"{DRY_ALONE}, --execute does it"
MEANT = "--new gives offsets to a group that does not exist yet"

RESET_EXAMPLES = """\
examples:
  rota groups reset billing --all-topics --to-earliest --bootstrap-servers kafka:9092
      what would change; --execute changes it
  rota groups reset billing --topic orders:0,1,5-8 --shift-by -100 --bootstrap-servers kafka:9092
  rota groups reset billing --topic orders --to-datetime 2025-06-30T13:00:00Z --execute ...
  rota groups reset billing --topic orders --by-duration PT1H30M ...
      where the records of an hour and a half ago begin; 1h30m is the same
  rota groups reset billing --topic orders --to-latest --new --execute ...
      a group that does not exist yet: it begins there
  rota groups reset billing --all-topics --to-current --export > offsets.csv
  rota groups reset billing --from-file offsets.csv --execute ...
      lines topic,partition,offset: keeps a group's offsets, and puts them back

The group must have no members, else they would go on from where they are and commit that. An
offset out of range becomes the nearest in range, and is said. Times without a zone are UTC.
"""
DELETE_EXAMPLES = """\
examples:
  rota groups delete billing old-billing --bootstrap-servers kafka:9092
      what would be deleted; --execute deletes it
"""
DELETE_OFFSETS_EXAMPLES = """\
examples:
  rota groups delete-offsets billing --topic old-orders --bootstrap-servers kafka:9092
      what would be deleted; --execute deletes it

No member may subscribe to the topics. For offsets of topics that are not read any more: their lag
would grow for ever.
"""


def add_to(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds these commands."""
    about = "set where a group goes on reading"
    resetting = bootstrap.command(actions, "reset", reset, about, RESET_EXAMPLES)
    resetting.add_argument("group", metavar="GROUP", help="a group's name")
    _add_targets(resetting)
    _add_topics(resetting)
    resetting.add_argument(
        "--new", action="store_true", help="the group may be one that does not exist yet"
    )
    resetting.add_argument(
        "--export",
        action="store_true",
        help="print lines for --from-file, and change nothing",
    )
    _add_execute(resetting)
    about = "delete groups and their offsets"
    deleting = bootstrap.command(actions, "delete", delete, about, DELETE_EXAMPLES)
    deleting.add_argument("groups", nargs="+", metavar="GROUP", help="a group's name")
    _add_execute(deleting)
    about = "delete a group's offsets of topics"
    forgetting = bootstrap.command(
        actions, "delete-offsets", delete_offsets, about, DELETE_OFFSETS_EXAMPLES
    )
    forgetting.add_argument("group", metavar="GROUP", help="a group's name")
    _add_topics(forgetting)
    _add_execute(forgetting)


def _add_execute(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--execute", action="store_true", help="do it; without this it is only shown"
    )


def _add_topics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:0,1,5-8]",
        help="a topic, or some of its partitions; may be given again",
    )
    parser.add_argument(
        "--all-topics", action="store_true", help="every partition that the group has committed"
    )


def _add_targets(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("where to").add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="the first record")
    where.add_argument("--to-latest", action="store_true", help="behind the last record")
    where.add_argument(
        "--to-current", action="store_true", help="where it is; the end, where nothing is committed"
    )
    where.add_argument("--to-offset", type=_offset, metavar="N", help="an offset")
    where.add_argument(
        "--shift-by", type=_whole, metavar="N", help="so many offsets on, or back (-N)"
    )
    where.add_argument("--to-datetime", metavar="TIME", help="the first record of a time or later")
    where.add_argument("--by-duration", metavar="TIME", help="the same, so long ago")
    where.add_argument(
        "--from-file", metavar="FILE", help="CSV: topic,partition,offset; - for stdin"
    )


def _whole(text: str) -> int:
    if not text.removeprefix("-").removeprefix("+").isdecimal() or abs(int(text)) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _offset(text: str) -> int:
    if _whole(text) < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: an offset is 0 or more")
    return int(text)


# Reset


def reset(args: argparse.Namespace) -> bool:
    """Prints where a group would go on, and has it do so."""
    target = _target(args)

    async def ask(admin: Admin) -> tuple[Overview | None, list[Change]]:
        group = await (
            admin.look(args.group) if args.new else admin.overview(args.group, otherwise=MEANT)
        )
        _check_kind(group)
        changes = await _changes(admin, args, target)
        if args.execute and not args.export:
            _check_empty(group, "reset")
            await admin.commit(args.group, {each.partition: each.new for each in changes})
        return group, changes

    group, changes = asked(args, ask)
    done = args.execute and not args.export
    if args.export:
        print(exported(changes), end="")  # noqa: T201
    elif args.json:
        print_json(
            {
                "group": args.group,
                "executed": done,
                "refused": None if done else _living(group),
                "changes": [_change_json(each) for each in changes],
            }
        )
    else:
        _print_changes(args.group, changes)
        _conclude("the new offsets are stored", group, done=done)
    return False


def _target(args: argparse.Namespace) -> Target:
    if args.from_file is not None:
        if args.topic or args.all_topics:
            args.error("--from-file names the partitions: it does not go with --topic")
        source = "standard input" if args.from_file == "-" else args.from_file
        return kinds.read_offsets(_text(args.from_file), source, args.group)
    if bool(args.topic) == args.all_topics:
        args.error("--topic TOPIC, or --all-topics, is needed")
    if args.to_datetime is not None:
        return kinds.Time(kinds.parse_datetime(args.to_datetime))
    if args.by_duration is not None:
        now = time.time_ns() // 1_000_000
        return kinds.Time(max(now - kinds.parse_duration(args.by_duration), 0))
    if args.shift_by is not None:
        return kinds.Shift(args.shift_by)
    if args.to_offset is not None:
        return kinds.Offset(args.to_offset)
    return _named(args)


def _named(args: argparse.Namespace) -> Target:
    if args.to_earliest:
        return kinds.Earliest()
    return kinds.Latest() if args.to_latest else kinds.Current()


def _text(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file: {error.reason}") from None


async def _changes(admin: Admin, args: argparse.Namespace, target: Target) -> list[Change]:
    committed = await admin.committed(args.group)
    if isinstance(target, kinds.Listed):
        wanted = sorted(target.offsets)
        await _check_places(admin, wanted)
    else:
        wanted = await _meant(admin, args, committed)
    starts, ends = await admin.bounds(wanted)
    silent = [str(each) for each in wanted if each not in starts or each not in ends]
    if silent:
        raise Unreachable(f"{first_few(silent)}: no leader that could be asked for its offsets")
    times: Mapping[TopicPartition, int | None] = {}
    if isinstance(target, kinds.Time):
        times = await admin.at_time(wanted, target.at)
    logs: dict[TopicPartition, Log] = {
        each: kinds.Log(start=starts[each], end=ends[each], at_time=times.get(each))
        for each in wanted
    }
    return kinds.changes(target, committed, logs)


async def _check_places(admin: Admin, places: Sequence[TopicPartition]) -> None:
    numbers: dict[str, tuple[int, ...] | None] = {}
    numbers.update(Partitions.of(places).by_topic())
    kinds.chosen(numbers, (await admin.topics(numbers)).cluster().partitions)


async def _meant(
    admin: Admin,
    args: argparse.Namespace,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[TopicPartition]:
    """The partitions that the flags mean; they exist."""
    if args.all_topics:
        if not committed:
            raise InputError(
                f"--all-topics: group {args.group!r} has committed nothing; --topic names topics"
            )
        counts = (await admin.known(each.topic for each in committed)).cluster().partitions
        gone = [each for each in sorted(committed) if each.partition >= counts.get(each.topic, 0)]
        if gone:
            say(f"left as they are: {first_few([str(each) for each in gone])}: no such partition")
        return sorted({*committed} - {*gone})
    wanted = kinds.parse_topics(args.topic)
    counts = (await admin.topics(wanted)).cluster().partitions
    return kinds.chosen(wanted, counts)


def _check_kind(group: Overview | None) -> None:
    if group is not None and group.kind == "share":
        raise InputError(
            f"group {group.group!r} is a share group (KIP-932): it has no committed offsets; "
            "Kafka's own tool is kafka-share-groups"
        )


def _check_empty(group: Overview | None, doing: str) -> None:
    living = _living(group)
    if living is not None:
        raise GroupError(f"no {doing}: {living}")


def _living(group: Overview | None) -> str | None:
    """Who is still in a group; None if nobody is."""
    if group is None or group.state in WITHOUT_MEMBERS:
        return None
    members = group.members or ()
    names = labels(members)
    named = [f"{names[each.id]} at {each.host}" for each in members]
    who = f" with members {first_few(sorted(named))}" if named else ""
    return f"group {group.group!r} is {group.state or 'in use'}{who}; stop them first"


def _conclude(what: str, group: Overview | None, *, done: bool) -> None:
    if done:
        say(what)
        return
    _say_dry(_living(group))


def _say_dry(refused: str | None) -> None:
    say(DRY if refused is None else f"{DRY_ALONE}; --execute would be refused: {refused}")


def _change_json(change: Change) -> dict[str, object]:
    return {
        "topic": change.partition.topic,
        "partition": change.partition.partition,
        "old": change.old,
        "new": change.new,
        "difference": change.difference,
        "note": change.note or None,
    }


def _print_changes(group: str, changes: Sequence[Change]) -> None:
    titles = ("topic", "partition", "old", "new", "difference", "note")
    rows = [
        (
            each.partition.topic,
            str(each.partition.partition),
            "-" if each.old is None else str(each.old),
            str(each.new),
            "-" if each.difference is None else f"{each.difference:+d}".replace("+0", "0"),
            each.note,
        )
        for each in changes
    ]
    print_table(titles, rows, titles[1:5])
    back = sum(-each.difference for each in changes if each.difference and each.difference < 0)
    on = sum(each.difference for each in changes if each.difference and each.difference > 0)
    first = sum(each.old is None for each in changes)
    said = [
        *[f"{count(back, 'offset')} back"] * bool(back),
        *[f"{count(on, 'offset')} on"] * bool(on),
        *[f"{count(first, 'partition')} without an offset so far"] * bool(first),
    ]
    console().print(plain(f"group {group}: {', '.join(said) or 'nothing moves'}"))


# Delete


def delete(args: argparse.Namespace) -> bool:
    """Prints what would be deleted, and deletes it."""
    names = list(dict.fromkeys(args.groups))

    async def ask(admin: Admin) -> list[tuple[Overview, int]]:
        found = [(await admin.overview(each), len(await admin.committed(each))) for each in names]
        if args.execute:
            for group, _ in found:
                _check_empty(group, "deletion")
            await admin.delete(names)
        return found

    found = asked(args, ask)
    if args.json:
        rows = [
            {
                "group": group.group,
                "state": group.state,
                "offsets": offsets,
                "refused": None if args.execute else _living(group),
            }
            for group, offsets in found
        ]
        print_json({"executed": args.execute, "groups": rows})
        return False
    titles = ("group", "state", "committed partitions")
    print_table(titles, [(each.group, each.state, str(offsets)) for each, offsets in found])
    if args.execute:
        say("deleted")
    else:
        living = filter(None, (_living(group) for group, _ in found))
        _say_dry("; ".join(living) or None)
    return False


def delete_offsets(args: argparse.Namespace) -> bool:
    """Prints which offsets would be deleted, and deletes them."""
    if bool(args.topic) == args.all_topics:
        args.error("--topic TOPIC, or --all-topics, is needed")
    wanted = parse_topics(args.topic)

    async def ask(admin: Admin) -> tuple[Overview, dict[TopicPartition, int]]:
        group = await admin.overview(args.group)
        _check_kind(group)
        committed = await admin.committed(args.group)
        chosen = {
            place: found.offset
            for place, found in sorted(committed.items())
            if args.all_topics or _is_meant(place, wanted)
        }
        if not chosen:
            topics = first_few(sorted({each.topic for each in committed})) or "nothing"
            raise InputError(
                f"group {args.group!r} has committed nothing there; it has committed {topics}"
            )
        if args.execute:
            await admin.delete_offsets(args.group, chosen)
        return group, chosen

    group, chosen = asked(args, ask)
    subscribed = sorted(
        {topic for each in group.members or () for topic in each.topics}
        & {place.topic for place in chosen}
    )
    refused = f"members subscribe to {first_few(subscribed)}" if subscribed else None
    if args.json:
        rows = [
            {"topic": place.topic, "partition": place.partition, "committed": offset}
            for place, offset in chosen.items()
        ]
        answer = {"group": args.group, "executed": args.execute, "offsets": rows}
        print_json({**answer, "refused": None if args.execute else refused})
        return False
    _print_offsets(chosen)
    if args.execute:
        say("deleted")
    else:
        _say_dry(refused)
    return False


def _is_meant(place: TopicPartition, wanted: Mapping[str, tuple[int, ...] | None]) -> bool:
    numbers = wanted.get(place.topic, ())
    return numbers is None or place.partition in numbers


def _print_offsets(offsets: Mapping[TopicPartition, int]) -> None:
    titles = ("topic", "partition", "committed")
    rows = [(*map(str, place), str(offset)) for place, offset in offsets.items()]
    print_table(titles, rows, titles[1:])
