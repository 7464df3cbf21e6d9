"""``rota consume``: prints the records of topics as lines, and commits the printed records.

The flags; consume_records.py does the work.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from rota.cli import flags
from rota.errors import Unreachable

DESCRIPTION = """\
Prints the records of topics, one per line. With a group, reading continues at the group's committed
offsets. Without a group, reading starts at an offset or a time, and the cluster keeps no trace.
Ctrl-C or SIGTERM ends the command: it commits the printed records and leaves the group at once.
"""

EXAMPLES = """\
examples:
  rota consume --topic orders --bootstrap-servers kafka:9092
      new records of all partitions, without a group
  rota consume --topic orders --from-beginning --to-end --bootstrap-servers kafka:9092 > orders.txt
      all records that the topic has now
  rota consume --topic orders --group billing --max-messages 10 --bootstrap-servers kafka:9092
      ten records for the group; the next run continues after them
  rota consume --topic orders --partition 0,3-5 --offset -2 --to-end --bootstrap-servers kafka:9092
      the last two records of each of these partitions
  rota consume --topic orders --offset @2026-11-15T06:00Z --timeout 5 --bootstrap-servers kafka:9092
      records from a time on; ends after five seconds without a record
  rota consume --topic orders --group g --strategy cooperative-sticky --print-key --print-place \\
      --command-config client.properties
  rota consume --topic a --from-beginning --to-end --json --command-config client.properties |
      rota produce --topic b --json --command-config client.properties
      an exact copy of a topic

"""

#: Options that may end it with exit code 1.
LIMITS: tuple[str, ...] = ()


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], *, epilog: str
) -> None:
    """Adds this command to the command line."""
    parser = commands.add_parser(
        "consume",
        help="print the records of topics",
        description=DESCRIPTION,
        epilog=EXAMPLES + epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    flags.add_connection_flags(parser.add_argument_group("the cluster"))
    _add_selection_flags(parser.add_argument_group("what to read"))
    _add_end_flags(parser.add_argument_group("when to end"))
    _add_output_flags(parser.add_argument_group("the output"))
    parser.set_defaults(run=run, error=parser.error)


def _add_selection_flags(choice: argparse._ArgumentGroup) -> None:
    choice.add_argument(
        "--topic", action="append", default=[], metavar="NAME,...", help="a topic; may be repeated"
    )
    choice.add_argument(
        "--pattern", metavar="REGEX", help="all topics whose whole name matches, instead of --topic"
    )
    choice.add_argument(
        "--group", metavar="NAME", help="read as a member of this group (or group.id in the file)"
    )
    choice.add_argument(
        "--strategy",
        metavar="NAME,...",
        help="with a group: partition.assignment.strategy (default range,cooperative-sticky)",
    )
    choice.add_argument(
        "--partition",
        action="append",
        type=_parse_partitions,
        metavar="N,N-N,...",
        help="without a group: only these partitions of the topic",
    )
    choice.add_argument(
        "--offset",
        type=_parse_start,
        metavar="OFFSET",
        help="without a group, where to start: earliest, latest (default), a number, -N for the "
        "last N of each partition, or @TIME (2026-11-15T06:00Z, or milliseconds since 1970)",
    )
    choice.add_argument(
        "--from-beginning",
        action="store_true",
        help="the same as --offset earliest; with a group, only where it has no committed offset",
    )


def _add_end_flags(end: argparse._ArgumentGroup) -> None:
    end.add_argument(
        "--max-messages", type=_parse_count, metavar="N", help="end after this number of records"
    )
    end.add_argument(
        "--timeout",
        type=_parse_seconds,
        metavar="SECONDS",
        help="end after this time without a record",
    )
    end.add_argument(
        "--to-end",
        action="store_true",
        help="without a group: end at the offsets that are the last ones when the command starts",
    )


def _add_output_flags(output: argparse._ArgumentGroup) -> None:
    output.add_argument(
        "--json",
        action="store_true",
        help="one JSON object per line; bytes that are not UTF-8 become base64 (key_base64, "
        "value_base64)",
    )
    output.add_argument("--print-key", action="store_true", help="print the key before the value")
    output.add_argument("--print-headers", action="store_true", help="print name:value,...")
    output.add_argument("--print-place", action="store_true", help="print topic-partition@offset")
    output.add_argument(
        "--print-time", action="store_true", help="print the timestamp: CreateTime:milliseconds"
    )
    output.add_argument(
        "--separator",
        default="\\t",
        metavar="TEXT",
        help="text between the fields of a line (default: a tab; write \\t for a tab, \\n for a "
        "new line)",
    )
    output.add_argument(
        "--skip-undecodable",
        action="store_true",
        help="skip records that cannot be decoded, and name them on stderr",
    )
    output.add_argument(
        "--quiet", action="store_true", help="print only errors and warnings on stderr"
    )


def run(args: argparse.Namespace) -> bool:
    """Reads and prints until the end."""
    given = flags.read_connection_settings(args)
    if args.group is not None:
        given["group.id"] = args.group
    _check_flags(args, has_group=bool(given.get("group.id")))
    from rota.client import missing  # noqa: PLC0415 (not for --help)

    if (problem := missing()) is not None:
        raise Unreachable(problem)
    from rota.cli.consume_records import read_records  # noqa: PLC0415

    return read_records(args, given)


def _check_flags(args: argparse.Namespace, *, has_group: bool) -> None:
    """Ends the command if flags contradict each other."""
    if bool(args.topic) == (args.pattern is not None):
        args.error("give either --topic or --pattern")
    for flag in ("partition", "offset", "to_end"):
        if has_group and getattr(args, flag):
            args.error(f"--{flag.replace('_', '-')} is for reading without a group")
    for flag in ("strategy", "pattern"):
        if not has_group and getattr(args, flag) is not None:
            args.error(f"--{flag} needs a group")
    if args.from_beginning and args.offset is not None:
        args.error("give either --from-beginning or --offset")
    printed = args.print_key or args.print_headers or args.print_place or args.print_time
    if args.json and printed:
        args.error("--json prints the whole record: --print-... is for lines of text")


def _parse_partitions(text: str) -> list[int]:
    found: list[int] = []
    for item in text.split(","):
        first, dash, last = item.strip().partition("-")
        bounds = (first, last) if dash else (first, first)
        if not all(each.isascii() and each.isdecimal() and len(each) < 8 for each in bounds):
            raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 0,3-5")
        found.extend(range(int(bounds[0]), int(bounds[1]) + 1))
    return found


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**63):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _parse_seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1
    if not 0 <= found <= 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return found


class StartPosition(NamedTuple):
    """Where to start reading: the beginning, an offset or a time; without any of them, the end."""

    from_beginning: bool = False
    #: Negative: counted from the end.
    offset: int | None = None
    #: Milliseconds since 1970.
    time: int | None = None


def _parse_start(text: str) -> StartPosition:
    if text in {"earliest", "latest"}:
        return StartPosition(from_beginning=text == "earliest")
    if text.startswith("@"):
        return StartPosition(time=_parse_time(text[1:]))
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and len(digits) < 20:
        return StartPosition(offset=int(text))
    raise argparse.ArgumentTypeError(f"{text!r} is not earliest, latest, a number, or @ and a time")


def _parse_time(text: str) -> int:
    from datetime import UTC, datetime  # noqa: PLC0415

    if text.isascii() and text.isdecimal() and len(text) < 19:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a time such as 2026-11-15T06:00Z nor milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
