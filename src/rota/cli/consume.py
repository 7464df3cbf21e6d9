"""``rota consume``: a topic's records, as lines."""

from __future__ import annotations

import argparse

from rota.cli import setting
from rota.cli.start import Start
from rota.errors import Unreachable

DESCRIPTION = """\
Prints the records of topics, a line each: with a group, going on where it is; without one, from an
offset or a time, leaving nothing behind in the cluster. Ends at Ctrl-C or SIGTERM: then records
that are printed are committed, and the group is left at once.
"""

EXAMPLES = """\
examples:
  rota consume --topic orders --bootstrap-servers kafka:9092
      what comes from now on, of all partitions, without a group
  rota consume --topic orders --from-beginning --to-end --bootstrap-servers kafka:9092 > orders.txt
      all that is there now
  rota consume --topic orders --group billing --max-messages 10 --bootstrap-servers kafka:9092
      ten records for the group, which goes on behind them the next time
  rota consume --topic orders --partition 0,3-5 --offset -2 --to-end --bootstrap-servers kafka:9092
      the last two records of each of these partitions
  rota consume --topic orders --offset @2026-11-15T06:00Z --timeout 5 --bootstrap-servers kafka:9092
      from a time on; ends when no record has come for five seconds
  rota consume --topic orders --group g --strategy cooperative-sticky --print-key --print-place \\
      --command-config client.properties
  rota consume --topic a --from-beginning --to-end --json --command-config client.properties |
      rota produce --topic b --json --command-config client.properties
      a copy, byte by byte

"""
LIMITS: tuple[str, ...] = ()
"""Options that may end it with exit code 1."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], *, epilog: str) -> None:
    """Adds this command to the command line."""
    parser = commands.add_parser(
        "consume",
        help="the records of topics, as lines",
        description=DESCRIPTION,
        epilog=EXAMPLES + epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    setting.add_to(parser.add_argument_group("the cluster"))
    _add_choice(parser.add_argument_group("what to read"))
    _add_end(parser.add_argument_group("when to end"))
    _add_output(parser.add_argument_group("the output"))
    parser.set_defaults(run=run, error=parser.error)


def _add_choice(choice: argparse._ArgumentGroup) -> None:
    choice.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME,...",
        help="a topic; may be given again",
    )
    choice.add_argument(
        "--pattern", metavar="REGEX", help="in place of --topic: all whose whole name matches"
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
        type=_partitions,
        metavar="N,N-N,...",
        help="without a group: only these partitions of the topic",
    )
    choice.add_argument(
        "--offset",
        type=_start,
        metavar="OFFSET",
        help="without a group, where to start: earliest, latest (default), a number, -N for the "
        "last N of each partition, or @TIME (2026-11-15T06:00Z, or milliseconds since 1970)",
    )
    choice.add_argument(
        "--from-beginning",
        action="store_true",
        help="the same as --offset earliest; with a group, where it has committed nothing yet",
    )


def _add_end(end: argparse._ArgumentGroup) -> None:
    end.add_argument("--max-messages", type=_count, metavar="N", help="end after so many records")
    end.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help="end once no record has come for so long",
    )
    end.add_argument(
        "--to-end",
        action="store_true",
        help="without a group: end at what is the end of the partitions when it starts",
    )


def _add_output(output: argparse._ArgumentGroup) -> None:
    output.add_argument(
        "--json",
        action="store_true",
        help="a JSON object a line; bytes that are no UTF-8 as base64 (key_base64, value_base64)",
    )
    output.add_argument("--print-key", action="store_true", help="the key before the value")
    output.add_argument("--print-headers", action="store_true", help="name:value,...")
    output.add_argument(
        "--print-place", action="store_true", help="topic-partition@offset of each record"
    )
    output.add_argument("--print-time", action="store_true", help="CreateTime:milliseconds")
    output.add_argument(
        "--separator",
        default="\\t",
        metavar="TEXT",
        help="between these and the value (default: a tab; \\t and \\n are understood)",
    )
    output.add_argument(
        "--skip-undecodable",
        action="store_true",
        help="go on behind records that cannot be decoded; they are named on stderr",
    )
    output.add_argument(
        "--quiet", action="store_true", help="no word on stderr but errors and warnings"
    )


def run(args: argparse.Namespace) -> bool:
    """Reads and prints until the end."""
    given = setting.given(args)
    if args.group is not None:
        given["group.id"] = args.group
    _check(args, has_group=bool(given.get("group.id")))
    from rota.client import missing  # noqa: PLC0415 (other commands do without it)

    if (problem := missing()) is not None:
        raise Unreachable(problem)
    from rota.cli.reading import read  # noqa: PLC0415

    return read(args, given)


def _check(args: argparse.Namespace, *, has_group: bool) -> None:
    """Flags that do not go together."""
    if bool(args.topic) == (args.pattern is not None):
        args.error("--topic is needed, or --pattern, but not both")
    for flag in ("partition", "offset", "to_end"):
        if has_group and getattr(args, flag):
            args.error(f"--{flag.replace('_', '-')} is for reading without a group")
    for flag in ("strategy", "pattern"):
        if not has_group and getattr(args, flag) is not None:
            args.error(f"--{flag} needs a group")
    if args.from_beginning and args.offset is not None:
        args.error("--from-beginning and --offset: give one of them")
    printed = args.print_key or args.print_headers or args.print_place or args.print_time
    if args.json and printed:
        args.error("--json has all of a record: --print-... is for lines of text")


def _partitions(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        bounds = (first, last) if dash else (first, first)
        if not all(each.isascii() and each.isdecimal() and len(each) < 8 for each in bounds):
            raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 0,3-5")
        found.extend(range(int(bounds[0]), int(bounds[1]) + 1))
    return found


def _start(text: str) -> Start:
    try:
        return Start.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**63):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1
    if not 0 <= found <= 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return found
