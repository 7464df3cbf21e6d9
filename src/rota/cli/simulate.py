"""``rota simulate``: what a scenario does to a group, under each policy."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from rota.assignors.registry import BUILT_IN, resolve
from rota.assignors.sticky import SOLVERS, check_solver
from rota.cli import outcome
from rota.errors import InputError
from rota.sim.policy import Policy, compared
from rota.sim.result import Simulation
from rota.sim.scenario import Scenario, read_scenario
from rota.sim.simulate import play

DESCRIPTION = """\
Plays a scenario (members join, crash, stall, restart; partitions are added; pods are deployed)
through Rota's own coordinator and members under a virtual clock, and shows every rebalance: why,
how long, what moved against the fewest, and how long partitions stood still. Nothing is
connected to; a day takes seconds.
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
      for CI: exit code 1 if partitions stand still for more than 300 seconds, added up
  rota simulate examples/slow-poller.toml --json | jq .moved

scenario file (docs/how-to/simulate.md has all of it):
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

MOST_SEED = 2**63 - 1
NARROW, WIDE = 40, 1_000
PATIENCE = 1.0
"""Seconds after which somebody who waits wants to see that something happens."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], *, epilog: str) -> None:
    """Adds this command to the command line."""
    parser = commands.add_parser(
        "simulate",
        help="what a scenario does to a group, under each policy",
        description=DESCRIPTION,
        epilog=EXAMPLES + epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", metavar="FILE", help="a scenario; - for standard input")
    _add_policy(parser.add_argument_group("the policy"))
    _add_output(parser.add_argument_group("the output"))
    parser.set_defaults(run=run, error=parser.error)


def _add_policy(policy: argparse._ArgumentGroup) -> None:
    policy.add_argument(
        "--strategy",
        action="append",
        metavar="NAME",
        help="for all members, instead of the scenario's; a wire name, a Java class name or "
        "package.module:Class; several, in order, as in partition.assignment.strategy",
    )
    policy.add_argument(
        "--solver",
        default="exact",
        metavar="|".join(SOLVERS),
        help="for the sticky strategies: exact, the best there is (default); kafka, what Java "
        "consumers do",
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
    policy.add_argument("--compare", action="store_true", help="all policies side by side")
    policy.add_argument(
        "--seed",
        type=_number("seed", 0, MOST_SEED),
        default=0,
        metavar="N",
        help="decides member ids and the network's jitter (default 0)",
    )


def _add_output(output: argparse._ArgumentGroup) -> None:
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--all", action="store_true", help="show every member and rebalance")
    output.add_argument(
        "--width",
        type=_number("width", NARROW, WIDE),
        metavar="N",
        help="columns of the picture (default: the terminal's)",
    )
    output.add_argument(
        "--max-stopped",
        type=_seconds,
        metavar="SECONDS",
        help="exit with 1 if partitions stand still for longer, added up over all of them",
    )


def run(args: argparse.Namespace) -> bool:
    """Prints what came of it; true if the limit on standstill is exceeded."""
    if args.compare and args.max_stopped is not None:
        args.error("--max-stopped needs one policy: it does not go with --compare")
    check_solver(args.solver)
    _let_modules_be_found(args.strategy or ())
    scenario = _scenario(args.scenario)
    if args.compare:
        _compare(scenario, args)
        return False
    strategy = _listed(args.strategy) or None
    policy = Policy(strategy=strategy, solver=args.solver, static=args.static)
    with _Progress(1) as told:
        simulation = play(scenario, policy, args.seed, progress=told)
    if args.json:
        _print_json(simulation.to_dict())
    else:
        outcome.print_simulation(simulation, _width(args), everything=args.all)
    return _exceeded(simulation, args.max_stopped)


def _compare(scenario: Scenario, args: argparse.Namespace) -> None:
    policies = [Policy(solver=args.solver), *_policies(args)]
    with _Progress(len(policies)) as told:
        found = [play(scenario, policy, args.seed, progress=told) for policy in policies]
    if args.json:
        best = outcome.best(found)
        rows = [simulation.summary() for simulation in found]
        _print_json({"compare": rows, "best": best.policy.label})
    else:
        outcome.print_comparison(found)


def _policies(args: argparse.Namespace) -> list[Policy]:
    """Every built-in strategy, and those the user named beside them."""
    memberships = (False, True) if args.static is None else (args.static,)
    named = [name for name in _listed(args.strategy) if resolve(name).name not in BUILT_IN]
    own = [
        Policy(strategy=name, solver=args.solver, static=static)
        for name in named
        for static in memberships
    ]
    return [policy for policy in compared(args.solver) if policy.static in memberships] + own


def _exceeded(simulation: Simulation, limit: float | None) -> bool:
    if limit is None or simulation.stopped <= limit * 1000:
        return False
    print(  # noqa: T201
        f"rota: partitions stood still for {simulation.stopped / 1000:,.1f} seconds, more than "
        f"--max-stopped {limit:g}",
        file=sys.stderr,
    )
    return True


def _scenario(path: str) -> Scenario:
    if path == "-":
        return read_scenario(sys.stdin.read(), "standard input")
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file: {error.reason}") from None
    return read_scenario(text, path)


def _width(args: argparse.Namespace) -> int:
    width: int | None = args.width
    return shutil.get_terminal_size().columns if width is None else width


class _Progress:
    """A bar on standard error, if that is a terminal and the work takes long."""

    def __init__(self, plays: int) -> None:
        self._plays = plays
        self._done = 0
        self._since = time.monotonic()
        self._update: Callable[[float], None] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __call__(self, share: float) -> None:
        """So much of the play is over."""
        if self._update is None and self._is_long():
            self._update = self._bar()
        if self._update is not None:
            self._update(self._done + share)
        self._done += share == 1

    def _is_long(self) -> bool:
        return sys.stderr.isatty() and time.monotonic() - self._since > PATIENCE

    def _bar(self) -> Callable[[float], None]:
        from rich.console import Console  # noqa: PLC0415 (only where somebody waits)
        from rich.progress import Progress  # noqa: PLC0415

        bar = self._stack.enter_context(Progress(console=Console(stderr=True), transient=True))
        task = bar.add_task("simulating", total=self._plays)
        return lambda done: bar.update(task, completed=done)


def _number(what: str, least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a {what} from {least} to {most}")
        return int(text)

    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def _let_modules_be_found(strategies: Sequence[str]) -> None:
    """A strategy named as package.module:Class may lie in the folder the command is run in."""
    if any(":" in strategy for strategy in strategies) and "" not in sys.path:
        sys.path.insert(0, "")


def _listed(strategies: Sequence[str] | None) -> list[str]:
    return [name.strip() for listed in strategies or () for name in listed.split(",")]


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))  # noqa: T201
