"""``rota run``: every rebalance of a cluster, its cause, its cost, and what would be better.

The flags are here; run_pipeline.py does the work.
"""

from __future__ import annotations

import argparse
import importlib.util

from rota.cli import flags
from rota.errors import Unreachable

DEFAULT_LOOKUPS = 10_000

EVERY, LENGTH = "5s", "10m"

#: Milliseconds from one round of polling to the next, at least.
MIN_POLL_INTERVAL_MS = 100

DESCRIPTION = """\
Reads a cluster's journal (__consumer_offsets) and tells for every group each rebalance: why, what
moved against the fewest that had to, what stood still, and which other strategy, membership or
protocol would have done better. Reads a live cluster, or copies of a broker's files; in both cases
it only reads, and joins no group. Runs on Spark, on this machine unless told otherwise.
"""

EVIDENCE_HELP = """\
  --bootstrap-servers HOST:PORT,...
                       a live cluster: its journal, and log ends for lag
  --poll               a live cluster whose journal may not be read: its groups, asked for again
                       and again
  --segments DIR       copied __consumer_offsets-* folders of a broker
  --server-log FILE    the broker's server.log: causes and times are then stated, not inferred
  --ends FILE          samples of log ends, for lag
  --demo               a simulated day instead, to see what comes out"""

EXAMPLES = f"""\
evidence, any mix of:
{EVIDENCE_HELP}

examples:
  rota run --demo
      a simulated day of a shop with dozens of groups
  rota run --bootstrap-servers host:9092 --command-config client.properties
      a live cluster; what will be read is said first
  rota run --bootstrap-servers host:9092 --since 6h --lookups 50000
      the last 6 hours; lag by up to 50,000 look-ups of log ends
  rota run --bootstrap-servers host:9092 --poll 2s --for 1h --group 'billing-*'
      what can be seen of some groups in an hour, by asking every 2 seconds
  rota run --bootstrap-servers host:9092 --follow
      goes on: a line for every round, and the tables with all that is new, until Ctrl-C; started
      again with the same --out it goes on where it was
  rota run --segments /copy/of/kafka-logs
      all folders __consumer_offsets-N below it
  rota run --segments broker1/ broker2/ --server-log broker*/server.log* --log-zone +02:00
      replicas count once; logs may be gzipped
  rota run --segments kafka-logs --group 'billing-*' --since 6h --out billing
      some groups, and the last 6 hours of the evidence
  rota run --segments kafka-logs --redact --out for-support
      hosts, clients and members by hashes only
  rota run --segments /mnt/kafka-logs --out /mnt/tables --master spark://host:7077
      on a cluster whose machines all see both folders; sc://host:15002 for Spark Connect
  rota run --segments kafka-logs --json | jq '.groups[0]'

a live cluster needs these ACLs:
  Describe and Read on topic __consumer_offsets
  Describe on the topics that groups have committed, for lag; those without are left out
  Describe on the cluster, if the size of the journal is to be said beforehand
with --poll these instead:
  Describe on the cluster, or on each group that is meant
  Describe on the topics that groups have committed

--poll sees a group as it is at each sample. A rebalance between two samples that ends where it
began is not seen, and several between two samples are told of as one; causes are guesses. Numbers
of generations are not told to who asks: classic groups' changes are counted instead. A group that
--segments has is told of by them alone.

tables: OUT/bronze, OUT/silver and OUT/gold, as Parquet. A run replaces them all at once.
report: OUT/report.html, one page that needs no network; rota report makes it again.

"""

#: Options that may end it with exit code 1.
LIMITS: tuple[str, ...] = ()


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], *, epilog: str
) -> None:
    """Adds this command to the command line."""
    parser = commands.add_parser(
        "run",
        help="every rebalance of a cluster, its cause, its cost, and what would be better",
        description=DESCRIPTION,
        epilog=EXAMPLES + epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_cluster_flags(parser.add_argument_group("a live cluster"))
    _add_poll_flags(parser.add_argument_group("a live cluster whose journal may not be read"))
    _add_evidence_flags(parser.add_argument_group("other evidence"))
    _add_selection_flags(parser.add_argument_group("what to look at"))
    _add_output_flags(parser.add_argument_group("the output"))
    parser.set_defaults(run=run, error=parser.error)


def _add_cluster_flags(cluster: argparse._ArgumentGroup) -> None:
    flags.add_admin_flags(cluster)
    cluster.add_argument(
        "--lookups",
        type=_parse_count,
        default=DEFAULT_LOOKUPS,
        metavar="N",
        help="how often the cluster may be asked for an end, now or in the past (default "
        f"{DEFAULT_LOOKUPS:,}; 0: never, so no lag); the times are those of commits",
    )
    cluster.add_argument(
        "--follow",
        action="store_true",
        help="go on: add what is new to the tables every few seconds, until Ctrl-C",
    )


def _add_poll_flags(poll: argparse._ArgumentGroup) -> None:
    poll.add_argument(
        "--poll",
        type=_parse_poll_interval,
        nargs="?",
        const=_parse_poll_interval(EVERY),
        metavar="TIME",
        help="do not read the journal: ask for the groups again and again, so often (default "
        f"{EVERY}); Ctrl-C ends the sampling and computes what there is",
    )
    poll.add_argument(
        "--for",
        dest="poll_for",
        type=_parse_duration,
        metavar="TIME",
        help=f"for so long: 90s, 10m, 1h30m (default {LENGTH})",
    )


def _add_evidence_flags(evidence: argparse._ArgumentGroup) -> None:
    evidence.add_argument(
        "--segments",
        nargs="+",
        action="extend",
        default=[],
        metavar="DIR",
        help="folders with __consumer_offsets-N folders, or such folders themselves",
    )
    evidence.add_argument(
        "--server-log",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="logs of brokers, also gzipped",
    )
    evidence.add_argument(
        "--log-zone",
        type=_parse_time_zone,
        default=0,
        metavar="+HH:MM",
        help="the time zone of the logs' times (default: UTC)",
    )
    evidence.add_argument(
        "--ends",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="JSON lines with t (milliseconds), topic, partition, beginning, end; also gzipped",
    )
    evidence.add_argument("--demo", action="store_true", help="a simulated day")


def _add_selection_flags(choice: argparse._ArgumentGroup) -> None:
    choice.add_argument(
        "--since",
        type=_parse_time,
        metavar="TIME",
        help="show what happened from then on: 2026-11-15T06:00Z, or so long before now "
        "(without a cluster: before the last record): 6h, 2d; what it rests on is read from the "
        "beginning",
    )
    choice.add_argument(
        "--until", type=_parse_time, metavar="TIME", help="read nothing later: the same"
    )
    choice.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="NAME",
        help="only this group; * and ? stand for anything; may be given again",
    )
    choice.add_argument(
        "--redact",
        action="store_true",
        help="hash hosts, client ids, member ids and static ids, in every table",
    )


def _add_output_flags(output: argparse._ArgumentGroup) -> None:
    output.add_argument(
        "--out",
        metavar="DIR",
        help="where the tables and the report go (default: rota-out, or rota-demo with --demo)",
    )
    output.add_argument(
        "--master",
        "--remote",
        default="local[*]",
        metavar="URL",
        help="a Spark master, or a Spark Connect address sc://... (default: this machine)",
    )
    output.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> bool:
    """Runs the pipeline and prints what it found."""
    live = args.bootstrap_servers is not None or args.command_config is not None
    _check_poll_flags(args, live=live)
    if not args.segments and not args.demo and not live:
        args.error(f"no journal to read. Evidence is, in any mix:\n{EVIDENCE_HELP}")
    if args.demo and (live or args.segments or args.server_log or args.ends):
        args.error(
            "--demo brings its own evidence: it does not go with --bootstrap-servers, --segments "
            "and the like"
        )
    if args.follow:
        _check_follow_flags(args, live=live)
    if importlib.util.find_spec("pyspark") is None:
        raise Unreachable("rota run needs Spark: pip install 'rota[spark]' ('.[spark]' in a clone)")
    from rota.cli import run_pipeline  # noqa: PLC0415 (other commands do without Spark)

    run_pipeline.run_analysis(args)
    return False


def _check_poll_flags(args: argparse.Namespace, *, live: bool) -> None:
    """Polling needs a cluster, and a time."""
    if args.poll is not None and not live:
        args.error("--poll asks a live cluster: give --bootstrap-servers")
    if args.poll is None and args.poll_for is not None:
        args.error("--for tells how long to --poll, which is not given")
    args.poll_for = _parse_duration(LENGTH) if args.poll_for is None else args.poll_for


def _check_follow_flags(args: argparse.Namespace, *, live: bool) -> None:
    """What does not go on cannot be followed."""
    if not live:
        args.error("--follow reads a live cluster: give --bootstrap-servers")
    if args.poll is not None:
        args.error("--follow reads the journal as it grows, --poll does without it: give one")
    for option in ("segments", "until"):
        if getattr(args, option):
            args.error(f"--follow goes on with a live cluster: it does not go with --{option}")
    if args.since is not None and args.since[0] == "back":
        args.error("--follow goes on: --since takes a time with it, like 2026-11-15T06:00Z")
    if args.master.startswith("sc://"):
        args.error("--follow does not go with Spark Connect: give a Spark master")


def _parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) > 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)


def _parse_poll_interval(text: str) -> int:
    found = _parse_duration(text)
    if found < MIN_POLL_INTERVAL_MS:
        raise argparse.ArgumentTypeError(f"{text!r}: more often than brokers should be asked")
    return found


def _parse_duration(text: str) -> int:
    """Milliseconds."""
    from rota.engine.model.duration import parse_duration  # noqa: PLC0415

    try:
        found = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no time at all")
    return found


def _parse_time_zone(text: str) -> int:
    """Minutes ahead of UTC."""
    from datetime import datetime  # noqa: PLC0415

    if text.upper() in {"Z", "UTC"}:
        return 0
    try:
        ahead = datetime.strptime(text, "%z").utcoffset()
    except ValueError:
        ahead = None
    if ahead is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time zone like +02:00")
    return int(ahead.total_seconds()) // 60


def _parse_time(text: str) -> tuple[str, int]:
    """``("at", milliseconds)``, or ``("back", milliseconds)`` before the end of the evidence."""
    from datetime import UTC, datetime  # noqa: PLC0415

    number, unit = text[:-1], text[-1:]
    units = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
    if number.isdecimal() and unit in units:
        return "back", int(number) * units[unit] * 1000
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a time like 2026-11-15T06:00Z nor a duration like 6h"
        ) from None
    return "at", int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
