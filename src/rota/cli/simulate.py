"""``rota simulate``: the flags. simulate_scenario.py runs the scenario and prints the result."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from rota.engine.assignors.sticky import SOLVERS

DESCRIPTION = """\
Runs a scenario (members join, crash, stall, restart; partitions are added; pods are deployed)
through Rota's own coordinator and members under a virtual clock. Shows every rebalance: its reason,
its duration, the moves it made and needed, and how long partitions were stopped. It connects to
nothing; a day takes seconds.
"""

EXAMPLES = """\
examples:
  rota simulate examples/rolling-deploy.toml
      the scenario as it is written
  rota simulate examples/rolling-deploy.toml --compare
      every strategy, with and without static membership
  rota simulate examples/crash.toml --strategy cooperative-sticky --static
      another strategy for all members, and static ids
  rota simulate examples/crash.toml --max-stopped 300
      for CI: exit code 1 if partitions are stopped for more than 300 seconds in total
  rota simulate examples/slow-poller.toml --json | jq .moved

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

#: Options that can cause exit code 1.
LIMITS = ("--max-stopped",)
MAX_SEED = 2**63 - 1
NARROW, WIDE = 40, 1_000


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], *, epilog: str
) -> None:
    parser = commands.add_parser(
        "simulate",
        help="run a scenario and show its rebalances, under one policy or all",
        description=DESCRIPTION,
        epilog=EXAMPLES + epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", metavar="FILE", help="a scenario; - for standard input")
    _add_policy_flags(parser.add_argument_group("the policy"))
    _add_output_flags(parser.add_argument_group("the output"))
    parser.set_defaults(run=run, error=parser.error)


def _add_policy_flags(policy: argparse._ArgumentGroup) -> None:
    policy.add_argument(
        "--strategy",
        action="append",
        metavar="NAME",
        help="strategy for all members, instead of the scenario's: a wire name, a Java class name "
        "or package.module:Class; several in order, as in partition.assignment.strategy",
    )
    policy.add_argument(
        "--solver",
        default="exact",
        metavar="|".join(SOLVERS),
        help="for the sticky strategies: exact finds the fewest moves (default), kafka assigns "
        "as Java consumers do",
    )
    membership = policy.add_mutually_exclusive_group()
    membership.add_argument(
        "--static",
        action="store_true",
        default=None,
        help="all members have static ids (group.instance.id)",
    )
    membership.add_argument(
        "--dynamic", action="store_false", dest="static", help="no member has a static id"
    )
    policy.add_argument("--compare", action="store_true", help="compare all policies")
    policy.add_argument(
        "--seed",
        type=_integer_between("seed", 0, MAX_SEED),
        default=0,
        metavar="N",
        help="decides member ids and the network's jitter (default 0)",
    )


def _add_output_flags(output: argparse._ArgumentGroup) -> None:
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument(
        "--all", action="store_true", help="show every member, event, rebalance and note"
    )
    output.add_argument(
        "--width",
        type=_integer_between("width", NARROW, WIDE),
        metavar="N",
        help="columns of the timeline (default: the terminal's)",
    )
    output.add_argument(
        "--max-stopped",
        type=_parse_seconds,
        metavar="SECONDS",
        help="exit with 1 if partitions are stopped for longer, summed over all of them",
    )


def run(args: argparse.Namespace) -> bool:
    """Runs the scenario; returns whether ``--max-stopped`` is exceeded."""
    from rota.cli import simulate_scenario  # noqa: PLC0415 (other commands do without the simulator)

    return simulate_scenario.run_simulate(args)


def _integer_between(what: str, least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a {what} from {least} to {most}")
        return int(text)

    return number


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds
