"""The flags of ``rota run``: every rebalance, its cause, its cost, and what would be better."""

from __future__ import annotations

import argparse
import importlib.util

from rota.cli import flags
from rota.cli.flags import flag_adder
from rota.errors import Unreachable

DEFAULT_LOOKUPS = 10_000

DEFAULT_POLL_INTERVAL, DEFAULT_POLL_DURATION = "5s", "10m"

MIN_POLL_INTERVAL_MS = 100

HELP = "find every rebalance of a cluster, its cause, its cost, and a better policy"

DESCRIPTION = """\
Reads a cluster's journal (__consumer_offsets) and shows every rebalance of every group: its cause,
how long partitions had no consumer, the partitions that moved and the moves that were necessary,
and the strategy, membership or protocol that would have been better. The input is a live cluster or
a copy of a broker's files. The command only reads; it joins no group. It runs on Spark, by default
on this machine.
"""

EVIDENCE_HELP = """\
  --bootstrap-servers HOST:PORT,...
                       a live cluster: its journal, and log end offsets for lag
  --poll               a live cluster whose journal you may not read: describes the groups at
                       intervals
  --segments DIR       copied __consumer_offsets-* folders of a broker
  --server-log FILE    the broker's server.log, which states causes and times
  --ends FILE          samples of log end offsets, for lag
  --demo               simulated data, to try the command"""

EXAMPLES = f"""\
input, in any combination:
{EVIDENCE_HELP}

examples:
  rota run --demo
      one simulated day of a shop with dozens of groups
  rota run --bootstrap-servers host:9092 --command-config client.properties
      a live cluster; the command first shows how much it will read
  rota run --bootstrap-servers host:9092 --since 6h --lookups 50000
      the last 6 hours; lag from at most 50,000 lookups of log end offsets
  rota run --bootstrap-servers host:9092 --poll 2s --for 1h --group 'billing-*'
      describes some groups every 2 seconds for an hour
  rota run --bootstrap-servers host:9092 --follow
      adds new records to the tables until Ctrl-C, and prints a line for each micro-batch; start
      it again with the same --out to continue
  rota run --segments /copy/of/kafka-logs
      all folders __consumer_offsets-N in this folder
  rota run --segments broker1/ broker2/ --server-log broker*/server.log* --log-zone +02:00
      two brokers; records of several replicas count once; logs may be gzipped
  rota run --segments kafka-logs --group 'billing-*' --since 6h --out billing
      some groups, and the last 6 hours of the input
  rota run --segments kafka-logs --strategy mine:MyAssignor
      what the groups would have done under your own strategy: rows of gold/whatif
  rota run --segments kafka-logs --redact --out for-support
      replaces hosts, client ids and member ids with hashes
  rota run --segments /mnt/kafka-logs --out /mnt/tables --master spark://host:7077
      on a Spark cluster; all its machines must see both folders; sc://host:15002 uses Spark Connect
  rota run --segments kafka-logs --json | jq '.groups[0]'

ACLs that a live cluster needs:
  Describe and Read on topic __consumer_offsets
  Describe on the topics that groups have committed, for lag; other topics get no lag
  Describe on the cluster, to show the size of the journal first
ACLs that --poll needs:
  Describe on the cluster, or on each group
  Describe on the topics that groups have committed

--poll sees the state of a group at each sample. Several rebalances between two samples appear as
one, or not at all if the group is the same again. Causes are likely causes. Brokers do not return
the generation of a classic group, so Rota counts the group's changes. If --segments has a group,
its samples are not used.

tables: OUT/bronze, OUT/silver and OUT/gold, as Parquet. A run replaces all of them at once.
report: OUT/report.html, one page that needs no network; rota report writes it again.

"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    add = flag_adder(parser, "a live cluster")
    flags.add_admin_flags(add)
    add(
        "--lookups N",
        "maximum number of ListOffsets lookups, which give the log end at the time of a "
        f"commit (default {DEFAULT_LOOKUPS:,}; 0: no lookups and no lag)",
        type=flags.whole_number("a number between 0 and 1,000,000,000", 0, 10**9),
        default=DEFAULT_LOOKUPS,
    )
    add("--follow", "keep running: add new records to the tables every few seconds, until Ctrl-C")
    add = flag_adder(parser, "a live cluster whose journal you may not read")
    add(
        "--poll TIME",
        "do not read the journal: describe the groups at this interval (default "
        f"{DEFAULT_POLL_INTERVAL}); Ctrl-C ends polling and computes the tables",
        type=_parse_poll_interval,
        nargs="?",
        const=_parse_poll_interval(DEFAULT_POLL_INTERVAL),
    )
    text = f"duration of polling: 90s, 10m, 1h30m (default {DEFAULT_POLL_DURATION})"
    add("--for TIME", text, dest="poll_for", type=_parse_duration)
    add = flag_adder(parser, "other input")
    several = {"nargs": "+", "action": "extend", "default": []}
    add("--segments DIR", "folders __consumer_offsets-N, or folders that contain them", **several)
    add("--server-log FILE", "log files of brokers, plain or gzipped", **several)
    text = "time zone of the log files (default: UTC)"
    add("--log-zone +HH:MM", text, type=_parse_time_zone, default=0)
    text = "JSON lines with t (milliseconds), topic, partition, beginning, end; plain or gzipped"
    add("--ends FILE", text, **several)
    add("--demo", "simulated data of one day")
    add = flag_adder(parser, "selection")
    add(
        "--since TIME",
        "show only events after this time: 2026-11-15T06:00Z, or 6h or 2d before now "
        "(without a cluster: before the last record); older records are still read, because later "
        "ones build on them",
        type=flags.parse_time_bound,
    )
    add("--until TIME", "ignore later records; same format", type=flags.parse_time_bound)
    add("--group NAME", "only these groups; * and ? are wildcards; repeatable", repeated=True)
    text = "replay the history of each group under your own strategy too; repeatable"
    add("--strategy MODULE:CLASS", text, repeated=True)
    text = (
        "interval at which the broker assigns in a consumer group (consumer.assignment.interval.ms,"
        " KIP-1263), for the replay under KIP-848 (default 1s; 0s: at once, as before Kafka 4.3)"
    )
    add("--assignment-interval TIME", text, type=_parse_duration_or_zero, default=1_000)
    add("--redact", "hash hosts, client ids, member ids and group.instance.ids in every table")
    add = flag_adder(parser, "output")
    add("--out DIR", "folder for tables and report (default: rota-out, or rota-demo with --demo)")
    text = "Spark master, or Spark Connect address sc://... (default: this machine)"
    add("--master --remote URL", text, default="local[*]")
    add("--json", "print JSON")


def run(args: argparse.Namespace) -> bool:
    live = args.bootstrap_servers is not None or args.command_config is not None
    if args.poll is not None and not live:
        args.error("--poll reads a live cluster: give --bootstrap-servers")
    if args.poll is None and args.poll_for is not None:
        args.error("--for is the duration of --poll: give --poll too")
    if args.poll_for is None:
        args.poll_for = _parse_duration(DEFAULT_POLL_DURATION)
    if not args.segments and not args.demo and not live:
        args.error(f"no input. Give at least one of:\n{EVIDENCE_HELP}")
    if args.demo and (live or args.segments or args.server_log or args.ends):
        args.error("--demo uses simulated data: leave out all other input")
    _refuse_unused_flags(args, live=live)
    if args.follow:
        _check_follow_flags(args, live=live)
    if importlib.util.find_spec("pyspark") is None:
        raise Unreachable("rota run needs Spark: pip install 'rota[spark]' ('.[spark]' in a clone)")
    from rota.cli import run_pipeline  # noqa: PLC0415 (other commands do without Spark)

    run_pipeline.run_analysis(args)
    return False


def _refuse_unused_flags(args: argparse.Namespace, *, live: bool) -> None:
    if not live:
        own = {"config": [], "timeout": flags.DEFAULT_TIMEOUT, "lookups": DEFAULT_LOOKUPS}
        for option, default in own.items():
            if getattr(args, option) != default:
                args.error(f"--{option} is for a live cluster: give --bootstrap-servers too")
    if args.poll is not None and args.lookups != DEFAULT_LOOKUPS:
        args.error("--poll samples log ends itself: leave out --lookups")
    if args.log_zone and not args.server_log:
        args.error("--log-zone is the time zone of --server-log: give --server-log too")


def _check_follow_flags(args: argparse.Namespace, *, live: bool) -> None:
    if not live:
        args.error("--follow reads a live cluster: give --bootstrap-servers")
    if args.poll is not None:
        args.error("--follow reads the journal, --poll does not: give one of them")
    for option in ("segments", "until"):
        if getattr(args, option):
            args.error(f"--follow reads a live cluster until you stop it: leave out --{option}")
    if args.since is not None and args.since[0] == "back":
        args.error("--follow needs a point in time after --since, for example 2026-11-15T06:00Z")
    if args.master.startswith("sc://"):
        args.error("--follow does not work with Spark Connect: give a Spark master")


def _parse_poll_interval(text: str) -> int:
    interval = _parse_duration(text)
    if interval < MIN_POLL_INTERVAL_MS:
        raise argparse.ArgumentTypeError(f"{text!r}: the shortest interval is 100ms")
    return interval


def _parse_duration(text: str) -> int:
    """Returns milliseconds, more than 0."""
    if not (duration := _parse_duration_or_zero(text)):
        raise argparse.ArgumentTypeError(f"{text!r}: give a duration longer than 0")
    return duration


def _parse_duration_or_zero(text: str) -> int:
    from rota.engine.model.duration import parse_duration  # noqa: PLC0415

    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parse_time_zone(text: str) -> int:
    """Returns minutes ahead of UTC."""
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
