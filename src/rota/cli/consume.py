"""``rota consume``: prints and commits the records of topics; consume_records.py does the work."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from rota.cli import flags
from rota.cli.flags import flag_adder
from rota.errors import Unreachable

HELP = "print the records of topics"

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
      records since a time; ends after five seconds without a record
  rota consume --topic orders --group g --strategy cooperative-sticky --print-key --print-place \\
      --command-config client.properties
  rota consume --topic a --from-beginning --to-end --json --command-config client.properties |
      rota produce --topic b --json --command-config client.properties
      an exact copy of a topic

"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    flags.add_connection_flags(flag_adder(parser, "the cluster"))
    add = flag_adder(parser, "what to read")
    add("--topic NAME,...", "a topic; may be repeated", repeated=True)
    add("--pattern REGEX", "all topics whose whole name matches, instead of --topic")
    add("--group NAME", "read as a member of this group (or group.id in the file)")
    add("--strategy NAME,...", "with a group: its strategies (default range,cooperative-sticky)")
    text = "without a group: only these partitions of the topic"
    add("--partition N,N-N,...", text, type=_parse_partitions, action="append")
    add(
        "--offset OFFSET",
        "without a group, where to start: earliest, latest (default), a number, -N for the "
        "last N of each partition, or @TIME (2026-11-15T06:00Z, or milliseconds since 1970)",
        type=_parse_start,
    )
    add("--from-beginning", "as --offset earliest; with a group, only without a committed offset")
    add = flag_adder(parser, "when to end")
    count = flags.whole_number("a number of 1 or more", 1, 2**63 - 1)
    add("--max-messages N", "end after this number of records", type=count)
    add("--timeout TIME", "end after this time without a record", type=flags.parse_seconds)
    add("--to-end", "without a group: end where the logs end when the command starts")
    add = flag_adder(parser, "the output")
    add("--json", "one JSON object per line; base64 (key_base64, value_base64) if not UTF-8")
    add("--print-key", "print the key before the value")
    add("--print-headers", "print name:value,...")
    add("--print-place", "print topic-partition@offset")
    add("--print-time", "print the timestamp: CreateTime:milliseconds")
    text = "text between the fields of a line; write \\t for a tab (default), \\n for a line end"
    add("--separator TEXT", text, default="\\t")
    add("--skip-undecodable", "skip records that cannot be decoded, and name them on stderr")
    add("--quiet", "print only errors and warnings on stderr")


def run(args: argparse.Namespace) -> bool:
    settings = flags.read_connection_settings(args)
    if args.group is not None:
        settings["group.id"] = args.group
    _check_flags(args, has_group=bool(settings.get("group.id")))
    from rota.client import explain_missing_packages  # noqa: PLC0415 (not for --help)

    if (problem := explain_missing_packages()) is not None:
        raise Unreachable(problem)
    from rota.cli.consume_records import read_records  # noqa: PLC0415

    return read_records(args, settings)


def _check_flags(args: argparse.Namespace, *, has_group: bool) -> None:
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
    try:
        return flags.parse_partition_numbers(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 0,3-5") from None


class StartPosition(NamedTuple):
    """Where to start reading: the beginning, an offset or a time; without any of them, the end."""

    from_beginning: bool = False
    offset: int | None = None  # negative: counted from the end
    time: int | None = None  # milliseconds since 1970


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
    if text.isascii() and text.isdecimal() and len(text) < 19:
        return int(text)
    try:
        return flags.parse_iso_time(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a time such as 2026-11-15T06:00Z nor milliseconds since 1970"
        ) from None
