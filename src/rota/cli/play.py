"""Plays scenarios for ``rota simulate``, and prints what came of them."""

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
from rota.assignors.sticky import check_solver
from rota.cli import outcome
from rota.cli.module import let_modules_be_found
from rota.cli.screen import count
from rota.errors import InputError
from rota.sim.policy import Policy, compared
from rota.sim.result import Simulation
from rota.sim.scenario import Scenario, read_scenario
from rota.sim.simulate import play

PATIENCE = 1.0
"""Seconds after which somebody who waits wants to see that something happens."""


def run(args: argparse.Namespace) -> bool:
    """Prints what came of it; true if the limit on standstill is exceeded."""
    if args.compare and args.max_stopped is not None:
        args.error("--max-stopped needs one policy: it does not go with --compare")
    check_solver(args.solver)
    let_modules_be_found(args.strategy or ())
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
        same = [] if best is None else outcome.equals(found, best)
        _print_json(
            {
                "compare": [{**one.summary(), "notes": list(one.notes)} for one in found],
                "best": best and best.policy.label,
                "same": [one.policy.label for one in same],
            }
        )
    else:
        outcome.print_comparison(found, everything=args.all)


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
    """The limit does not hold either where what was to be read never was."""
    if limit is None:
        return False
    if simulation.stopped > limit * 1000:
        problem = f"partitions stood still for {simulation.stopped / 1000:,.1f} seconds, more than"
    elif simulation.unread:
        problem = f"{count(len(simulation.unread), 'partition')} never read: this cannot pass"
    else:
        return False
    print(f"rota: {problem} --max-stopped {limit:g}", file=sys.stderr)  # noqa: T201
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


def _listed(strategies: Sequence[str] | None) -> list[str]:
    return [name.strip() for listed in strategies or () for name in listed.split(",")]


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))  # noqa: T201
