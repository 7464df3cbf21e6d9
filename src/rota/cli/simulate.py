"""``rota simulate``: the flags. simulate_scenario.py runs the scenario and prints the result."""

from __future__ import annotations

import argparse

from rota.cli.flags import flag_adder, parse_seconds, whole_number
from rota.engine.assignors.sticky import SOLVERS

HELP = "run a scenario and show its rebalances, under one policy or all"

DESCRIPTION = """\
Runs a scenario (members join, crash, stall, restart; partitions are added; pods are deployed)
through Rota's own coordinator and members under a virtual clock. Shows every rebalance: its reason,
its duration, the moves it made and needed, and its downtime: the time in which no member consumed
a partition, in partition-seconds. It connects to nothing; a day takes seconds.
"""

EXAMPLES = """\
examples:
  rota simulate examples/rolling-deploy.toml
      the scenario as it is written
  rota simulate examples/rolling-deploy.toml --compare
      every strategy, with and without static membership
  rota simulate examples/crash.toml --strategy cooperative-sticky --static
      another strategy for all members, and static ids
  rota simulate examples/crash.toml --max-downtime 5m
      for CI: exit code 1 if the downtime is more than five minutes, over all partitions
  rota simulate examples/slow-poller.toml --json | jq .downtime_by_reason

scenario file (docs/how-to/simulate.md describes every key):
  duration = "30m"
  strategy = "range"
  [topics]
  orders = 12
  [[members]]
  name = "billing"
  count = 4
  [[events]]
  at = "5m"
  crash = "billing-2"

"""

LIMITS = ("--max-downtime",)  # options that can cause exit code 1
MAX_SEED = 2**63 - 1
NARROW, WIDE = 40, 1_000


def add_flags(parser: argparse.ArgumentParser) -> None:
    add = flag_adder(parser)
    add("scenario FILE", "a scenario; - for standard input")
    policy = parser.add_argument_group("the policy")
    add = flag_adder(policy)
    add(
        "--strategy NAME",
        "strategy for all members, instead of the scenario's: a wire name, a Java class name "
        "or package.module:Class; several in order, as in partition.assignment.strategy",
        action="append",
    )
    add(
        f"--solver {'|'.join(SOLVERS)}",
        "solver of the sticky strategies: kafka gives the assignment of Java consumers (default), "
        "exact the best one, as Rota consumers do",
        default="kafka",
    )
    add_membership = flag_adder(policy.add_mutually_exclusive_group())
    add_membership("--static", "all members have static ids (group.instance.id)", default=None)
    add_membership("--dynamic", "no member has a static id", action="store_false", dest="static")
    add("--compare", "compare all policies")
    seed = whole_number(f"a seed from 0 to {MAX_SEED}", 0, MAX_SEED)
    add("--seed N", "seed of member ids and network jitter (default 0)", type=seed, default=0)
    add = flag_adder(parser, "the output")
    add("--json", "print JSON")
    add("--all", "show every member, event, rebalance and note")
    width = whole_number(f"a width from {NARROW} to {WIDE}", NARROW, WIDE)
    add("--width N", "columns of the timeline (default: the terminal's)", type=width)
    text = "exit with 1 if the downtime is longer, summed over all partitions: 300, 90s, 5m"
    add("--max-downtime TIME", text, type=parse_seconds)


def run(args: argparse.Namespace) -> bool:
    from rota.cli import simulate_scenario  # noqa: PLC0415 (other commands do without the simulator)

    return simulate_scenario.run_simulate(args)
