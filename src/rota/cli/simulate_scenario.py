"""Runs the scenario of ``rota simulate`` and prints the result: a timeline, the rebalances, a
verdict.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby, pairwise
from pathlib import Path
from typing import assert_never

from rich.text import Text

from rota.cli.flags import import_from_working_directory
from rota.cli.render import count_noun, make_console, make_table, printable_text
from rota.engine.assignors.registry import BUILT_IN, resolve_strategies, resolve_strategy
from rota.engine.assignors.sticky import check_solver
from rota.engine.model.duration import format_clock, format_duration
from rota.engine.simulator.rebalances import (
    RebalanceWait,
    SimulatedRebalance,
)
from rota.engine.simulator.scenario import (
    AddPartitionsEvent,
    CoordinatorDownEvent,
    CrashEvent,
    DeployEvent,
    JoinEvent,
    LeaveEvent,
    PauseEvent,
    RestartEvent,
    Scenario,
    ScenarioEvent,
    SlowDownEvent,
    StallEvent,
    SubscribeEvent,
    read_scenario,
)
from rota.engine.simulator.simulation import (
    Simulation,
    SimulationPolicy,
    list_policies,
    run_scenario,
    sum_stops_by_owner,
)
from rota.engine.simulator.timeline import (
    PartitionStop,
    ProcessState,
    ProcessStateChange,
    build_process_timelines,
)
from rota.errors import InputError

#: Seconds after which somebody who waits wants to see that something happens.
PROGRESS_AFTER = 1.0


def run_simulate(args: argparse.Namespace) -> bool:
    """Runs the scenario and prints the result; returns whether ``--max-stopped`` is exceeded."""
    if args.compare and args.max_stopped is not None:
        args.error("--max-stopped needs one policy: it does not go with --compare")
    check_solver(args.solver)
    import_from_working_directory(args.strategy or ())
    scenario = _read_scenario_file(args.scenario)
    if args.compare:
        _compare_policies(scenario, args)
        return False
    strategy = _split_strategies(args.strategy) or None
    policy = SimulationPolicy(strategy=strategy, solver=args.solver, static=args.static)
    with _SimulationProgress(1) as told:
        simulation = run_scenario(scenario, policy, args.seed, progress=told)
    if args.json:
        _print_json(simulation.to_dict())
    else:
        print_simulation(simulation, _picture_width(args), everything=args.all)
    return _exceeds_limit(simulation, args.max_stopped)


def _compare_policies(scenario: Scenario, args: argparse.Namespace) -> None:
    policies = [SimulationPolicy(solver=args.solver), *_policies_to_compare(args)]
    with _SimulationProgress(len(policies)) as told:
        found = [run_scenario(scenario, policy, args.seed, progress=told) for policy in policies]
    if args.json:
        best = best_simulation(found)
        same = [] if best is None else equally_good(found, best)
        _print_json(
            {
                "compare": [{**one.summary(), "notes": list(one.notes)} for one in found],
                "best": best and best.policy.label,
                "same": [one.policy.label for one in same],
            }
        )
    else:
        print_comparison(found, everything=args.all)


def _policies_to_compare(args: argparse.Namespace) -> list[SimulationPolicy]:
    """Every built-in strategy, and those the user named beside them."""
    memberships = (False, True) if args.static is None else (args.static,)
    named = [
        name
        for name in _split_strategies(args.strategy)
        if resolve_strategy(name).name not in BUILT_IN
    ]
    own = [
        SimulationPolicy(strategy=name, solver=args.solver, static=static)
        for name in named
        for static in memberships
    ]
    return [policy for policy in list_policies(args.solver) if policy.static in memberships] + own


def _exceeds_limit(simulation: Simulation, limit: float | None) -> bool:
    """Returns whether the limit is exceeded. It also counts as exceeded if partitions were
    never read.
    """
    if limit is None:
        return False
    if simulation.stopped > limit * 1000:
        problem = f"partitions stood still for {simulation.stopped / 1000:,.1f} seconds, more than"
    elif simulation.unread:
        problem = f"{count_noun(len(simulation.unread), 'partition')} never read: this cannot pass"
    else:
        return False
    print(f"rota: {problem} --max-stopped {limit:g}", file=sys.stderr)  # noqa: T201
    return True


def _read_scenario_file(path: str) -> Scenario:
    if path == "-":
        return read_scenario(sys.stdin.read(), "standard input")
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file: {error.reason}") from None
    return read_scenario(text, path)


def _picture_width(args: argparse.Namespace) -> int:
    width: int | None = args.width
    return shutil.get_terminal_size().columns if width is None else width


class _SimulationProgress:
    """A bar on standard error, if that is a terminal and the work takes long."""

    def __init__(self, plays: int) -> None:
        self._simulations = plays
        self._done = 0
        self._since = time.monotonic()
        self._update: Callable[[float], None] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> _SimulationProgress:
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
        return sys.stderr.isatty() and time.monotonic() - self._since > PROGRESS_AFTER

    def _bar(self) -> Callable[[float], None]:
        from rich.console import Console  # noqa: PLC0415 (only where somebody waits)
        from rich.progress import Progress  # noqa: PLC0415

        bar = self._stack.enter_context(Progress(console=Console(stderr=True), transient=True))
        task = bar.add_task("simulating", total=self._simulations)
        return lambda done: bar.update(task, completed=done)


def _split_strategies(strategies: Sequence[str] | None) -> list[str]:
    return [name.strip() for listed in strategies or () for name in listed.split(",")]


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))  # noqa: T201


SHOWN_REBALANCES = 30

SHOWN_PARTITIONS = 3

SHOWN_NOTES = 5

SHOWN_EVENTS = 10

REBALANCE_LEGEND = """\
took: from the call to join until every member has its part
rounds: the generations it took, two for a cooperative one that moves something
moved: changed hands though its owner still wanted it; needed: what the best balance needed
loads: the fewest and the most partitions of a member afterwards; idle: members with none
stopped: how long partitions stood still, added up; worst: the longest; times: how often"""

COMPARISON_LEGEND = """\
generations: assignments that were handed out; a cooperative rebalance may take two
moved: changed hands though its owner still wanted it; needed: what the best balance needed
loads: the fewest and the most partitions of a member at the end; idle: members with none, at most
stopped: how long partitions stood still, added up; worst: the longest that one of them did"""


def print_simulation(simulation: Simulation, width: int, *, everything: bool) -> None:
    """One simulation: the picture, the rebalances, the verdict."""
    screen = make_console()
    screen.print(_simulation_title(simulation))
    screen.print()
    for line in draw_timeline(simulation, width, everything=everything):
        screen.print(line, soft_wrap=True)
    screen.print()
    screen.print(TIMELINE_LEGEND)
    screen.print()
    _print_events(simulation.scenario.events, None if everything else SHOWN_EVENTS)
    shown = len(simulation.rebalances) if everything else SHOWN_REBALANCES
    _print_rebalances(simulation, shown)
    if simulation.stops:
        screen.print()
        _print_partitions(simulation, None if everything else SHOWN_PARTITIONS)
    screen.print()
    screen.print(REBALANCE_LEGEND)
    screen.print()
    screen.print(_simulation_verdict(simulation))
    _print_notes(simulation.notes, len(simulation.notes) if everything else SHOWN_NOTES)


def _simulation_title(simulation: Simulation) -> str:
    scenario, policy = simulation.scenario, simulation.policy
    partitions = sum(scenario.topics.values())
    first = sum(
        members.joins + number * members.join_interval == 0
        for members in scenario.members
        for number in range(len(members.names))
    )
    ids = {None: "", True: ", static ids", False: ", no static ids"}[policy.static]
    solver = f", solver {policy.solver}" if simulation.solver_matters else ""
    return (
        f"{scenario.name}: {simulation.strategy}, {simulation.protocol} protocol{solver}{ids}: "
        f"{count_noun(partitions, 'partition')}, {count_noun(first, 'member')} at first, "
        f"{format_clock(scenario.duration)}, seed {simulation.seed}"
    )


def _print_events(events: Sequence[ScenarioEvent], limit: int | None) -> None:
    if not events:
        return
    table = make_table("at", "event")
    table.columns[0].justify = "right"
    for event in events[:limit]:
        table.add_row(format_clock(event.at), printable_text(describe_event(event)))
    screen = make_console()
    screen.print(table)
    if limit is not None and len(events) > limit:
        screen.print(f"{count_noun(len(events) - limit, 'more event')}: --all lists them")
    screen.print()


def _print_rebalances(simulation: Simulation, limit: int) -> None:
    table = make_table(
        *("at", "took", "why", "members", "rounds", "moved", "needed", "loads"),
        *("stopped", "worst", "idle"),
    )
    for column in (*table.columns[:2], *table.columns[3:]):
        column.justify = "right"
    for rebalance in simulation.rebalances[:limit]:
        table.add_row(
            format_clock(rebalance.start),
            _format_seconds(rebalance.time) if rebalance.finished else "unfinished",
            printable_text(rebalance_reason(rebalance)),
            str(rebalance.members),
            str(rebalance.rounds),
            str(rebalance.moved),
            str(rebalance.moved_min),
            _load_range(rebalance.loads),
            *_stopped_times(simulation.stopped_in(rebalance)),
            str(len(rebalance.idle)),
        )
    outside = simulation.stopped_outside
    if outside:
        said = printable_text(f"outside of rebalances: {_stopped_by_owner(outside)}")
        table.add_row("", "", said, "", "", "", "", "", *_stopped_times(outside), "")
    make_console().print(table)
    hidden = simulation.rebalances[limit:]
    if hidden:
        stopped, _ = _stopped_times([stop for one in hidden for stop in simulation.stopped_in(one)])
        more = count_noun(len(hidden), "more rebalance")
        make_console().print(f"{more}, {stopped} stopped: --all lists them")


def _stopped_times(stops: Sequence[PartitionStop]) -> tuple[str, str]:
    """Added up, and the worst."""
    times = [stop.time for stop in stops]
    return _format_seconds(sum(times)), _format_seconds(max(times, default=0))


def _stopped_by_owner(stops: Sequence[PartitionStop]) -> str:
    """Who had read what stood still, and how long it did."""
    return join_first_names(
        [
            f"{owner or 'not read yet'} {_format_seconds(time)}"
            for owner, time in sum_stops_by_owner(stops).items()
        ]
    )


def _load_range(loads: Mapping[str, int]) -> str:
    fewest, most = min(loads.values(), default=0), max(loads.values(), default=0)
    return str(fewest) if fewest == most else f"{fewest} to {most}"


def _print_partitions(simulation: Simulation, limit: int | None) -> None:
    """Those that stood still the longest."""
    rows = [
        (sum(stop.time for stop in stops), max(stop.time for stop in stops), partition, len(stops))
        for partition, stops in simulation.stops_by_partition.items()
    ]
    rows.sort(key=lambda row: (-row[0], row[2]))
    table = make_table("partition", "stopped", "worst", "times")
    for column in table.columns[1:]:
        column.justify = "right"
    for stopped, worst, partition, times in rows[:limit]:
        table.add_row(
            printable_text(str(partition)),
            _format_seconds(stopped),
            _format_seconds(worst),
            str(times),
        )
    make_console().print(table)
    if limit is not None and len(rows) > limit:
        more = count_noun(len(rows) - limit, "more partition")
        make_console().print(f"{more} stood still: --all lists them")


def rebalance_reason(rebalance: SimulatedRebalance) -> str:
    """Returns why a rebalance began, and which members it waited for."""
    return "; ".join((rebalance.reason, *map(_wait_reason, rebalance.waits)))


def _wait_reason(wait: RebalanceWait) -> str:
    whom = join_first_names(wait.members) or "the assignment"
    return f"waited {wait.time / 1000:.0f}s for {whom}, which {wait.why}"


def _simulation_verdict(simulation: Simulation) -> str:
    said = [
        count_noun(len(simulation.rebalances), "rebalance"),
        count_noun(simulation.generations, "generation"),
        f"{simulation.moved} moved (best balance needed {simulation.moved_min})",
    ]
    if simulation.orphaned:
        said.append(f"{simulation.orphaned} orphaned (their owners were gone)")
    worst = simulation.worst
    if worst is None:
        said.append("nothing stood still")
    else:
        end = "" if worst.ended else ", and it still stands"
        said.append(
            f"{_format_seconds(simulation.stopped)} stopped, worst {worst.partition} for "
            f"{_format_seconds(worst.time)} from {format_clock(worst.since)}{end}"
        )
    if simulation.idle:
        said.append(f"{count_noun(simulation.idle, 'member')} idle")
    if not simulation.is_sound:
        said.append(_soundness_problem(simulation))
    return "; ".join(said)


def print_comparison(simulations: Sequence[Simulation], *, everything: bool) -> None:
    """One scenario under several policies, the scenario's own first, and the best of them."""
    screen = make_console()
    own, *others = simulations
    screen.print(_scenario_title(own))
    screen.print()
    table = make_table(
        *("policy", "rebalances", "generations", "moved", "needed", "loads"),
        *("stopped", "worst", "idle"),
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for simulation in (own, *others):
        table.add_row(
            printable_text(_policy_name(simulation)),
            str(len(simulation.rebalances)),
            str(simulation.generations),
            str(simulation.moved),
            str(simulation.moved_min),
            _load_range(simulation.loads),
            *_stopped_times(simulation.stops),
            str(simulation.idle),
        )
    screen.print(table)
    screen.print()
    screen.print(COMPARISON_LEGEND)
    screen.print()
    screen.print(printable_text(_comparison_advice(own, simulations)))
    for simulation in simulations:
        if not simulation.is_sound:
            screen.print(
                printable_text(
                    f"not sound: {_policy_name(simulation)}: {_soundness_problem(simulation)}"
                )
            )
    notes = _merge_notes(simulations)
    _print_notes(notes, len(notes) if everything else SHOWN_NOTES)


def _merge_notes(simulations: Sequence[Simulation]) -> list[str]:
    """Each note once, with the policies under which it was made, unless that is all of them."""
    found: dict[str, list[str]] = {}
    for simulation in simulations:
        for note in simulation.notes:
            found.setdefault(note, []).append(_policy_name(simulation))
    return [
        note if len(policies) == len(simulations) else f"{join_first_names(policies)}: {note}"
        for note, policies in found.items()
    ]


def best_simulation(simulations: Sequence[Simulation]) -> Simulation | None:
    """The policy under which partitions stood still the least; the first of equals.

    None where under each of them members died of an error, or partitions were never read.
    """
    return min((one for one in simulations if one.is_sound), key=_simulation_rank, default=None)


def equally_good(simulations: Sequence[Simulation], choice: Simulation) -> list[Simulation]:
    """Returns the other simulations that rank the same as ``choice``."""
    rank = _simulation_rank(choice)
    return [
        one
        for one in simulations
        if one is not choice and one.is_sound and _simulation_rank(one) == rank
    ]


def _simulation_rank(simulation: Simulation) -> tuple[int, int, int]:
    """Sort key: time stopped, as precisely as it is shown; partitions moved; unevenness at
    the end.
    """
    uneven = sum(load * load for load in simulation.loads.values())
    return round(simulation.stopped / 100), simulation.moved, uneven


def _scenario_title(simulation: Simulation) -> str:
    scenario = simulation.scenario
    return (
        f"{scenario.name}: {count_noun(sum(scenario.topics.values()), 'partition')}, "
        f"{format_clock(scenario.duration)}, seed {simulation.seed}"
    )


def _policy_name(simulation: Simulation) -> str:
    if simulation.policy.strategy is None:
        return f"{simulation.policy.label} ({simulation.strategy})"
    return simulation.policy.label


def _soundness_problem(simulation: Simulation) -> str:
    said = []
    if simulation.failed:
        said.append(f"{count_noun(len(simulation.failed), 'member')} died of an error")
    if simulation.unread:
        said.append(f"{count_noun(len(simulation.unread), 'partition')} never read")
    return ", ".join(said)


def _comparison_advice(own: Simulation, simulations: Sequence[Simulation]) -> str:
    choice = best_simulation(simulations)
    if choice is None:
        return "none is best: under each, members died of an error or partitions were never read"
    same = [_policy_name(one) for one in equally_good(simulations, choice)]
    tie = f"; the same: {join_first_names(same)}" if same else ""
    if choice is own:
        return f"best here, by standstill: {_policy_name(own)}: no other policy does better{tie}"
    (stopped, worst), (before, worst_before) = (
        _stopped_times(choice.stops),
        _stopped_times(own.stops),
    )
    pairs = [
        ("stopped", stopped, before),
        ("worst", worst, worst_before),
        ("moved", str(choice.moved), str(own.moved)),
        ("loads", _load_range(choice.loads), _load_range(own.loads)),
        ("rebalances", str(len(choice.rebalances)), str(len(own.rebalances))),
    ]
    said = [f"{what} {new} instead of {old}" for what, new, old in pairs if new != old]
    return f"best here, by standstill: {_policy_name(choice)}: {', '.join(said)}{tie}"


def _print_notes(notes: Sequence[str], limit: int) -> None:
    screen = make_console()
    for note in notes[:limit]:
        screen.print(printable_text(f"note: {note}"))
    if len(notes) > limit:
        screen.print(f"{count_noun(len(notes) - limit, 'more note')}: --all lists them")


def _format_seconds(milliseconds: int) -> str:
    """To a tenth of a second, or to the millisecond where that would show nothing."""
    if 0 < milliseconds < 100:
        return f"{milliseconds}ms"
    return f"{milliseconds / 1000:,.1f}s"


MIN_TIMELINE_WIDTH = 40

MAX_NAME_LENGTH = 24

SHOWN_ROWS = 40

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

STATE_MARKS = {
    ProcessState.IDLE: "-",
    ProcessState.JOINING: "~",
    ProcessState.ASLEEP: "!",
    ProcessState.GONE: ".",
}

STATE_STYLES = {
    ProcessState.READING: "green",
    ProcessState.IDLE: "yellow",
    ProcessState.JOINING: "yellow",
    ProcessState.ASLEEP: "red",
    ProcessState.GONE: "red",
}

TIMELINE_LEGEND = (
    "a digit: partitions it has (a is 10, b 11, ..., + over 35)   ~ joining   - nothing to do\n"
    ". gone   ! frozen, or stuck outside of poll   | an event, or a rebalance begins\n"
    "a digit above the members: several events or rebalances; partitions that stood still at once"
)

#: How many columns there are from one time on the axis to the next.
AXIS_TICK_COLUMNS = 10


def draw_timeline(simulation: Simulation, width: int, *, everything: bool = False) -> list[Text]:
    """Returns the lines of the timeline: one row for each process, one column for each slice
    of time.
    """
    rows = build_process_timelines(simulation.trace)
    shown = list(rows) if everything else list(rows)[:SHOWN_ROWS]
    labels = [_escape_name(name) for name in shown]
    margin = min(max([len(label) for label in labels] + [len("rebalances")]), MAX_NAME_LENGTH) + 2
    columns = max(width, MIN_TIMELINE_WIDTH) - margin
    end = simulation.scenario.duration
    edges = [end * column // columns for column in range(columns + 1)]
    lines = [_labelled_line("h:mm:ss", margin, _axis_marks(edges))]
    if simulation.scenario.events:
        moments = [event.at for event in simulation.scenario.events]
        lines.append(_labelled_line("events", margin, _count_marks(edges, moments)))
    lines += [
        _labelled_line(
            "rebalances", margin, _count_marks(edges, [r.start for r in simulation.rebalances])
        ),
        _labelled_line("stopped", margin, _stopped_marks(edges, simulation.stops), "red"),
    ]
    for name, label in zip(shown, labels, strict=True):
        line = Text(_fit_label(label, margin))
        for doing, cells in groupby(_process_cells(rows[name], edges), key=lambda cell: cell[0]):
            line.append("".join(mark for _, mark in cells), STATE_STYLES[doing])
        lines.append(line)
    if len(rows) > len(shown):
        lines.append(Text(f"... {len(rows) - len(shown)} more: --all shows them"))
    return lines


def _labelled_line(label: str, margin: int, marks: str, style: str = "") -> Text:
    return Text(_fit_label(label, margin)).append(marks.rstrip(), style)


def _fit_label(label: str, margin: int) -> str:
    short = label if len(label) <= margin - 2 else label[: margin - 4] + ".."
    return short.ljust(margin)


def _escape_name(name: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def _axis_marks(edges: Sequence[int]) -> str:
    marks = ""
    for column in range(0, len(edges) - 1, AXIS_TICK_COLUMNS):
        marks = marks.ljust(column) + format_clock(edges[column] // 1000 * 1000)
    return marks


def _count_marks(edges: Sequence[int], moments: Sequence[int]) -> str:
    marks = ""
    for since, until in pairwise(edges):
        last = until if until == edges[-1] else until - 1  # the end belongs to the last column
        count = sum(since <= moment <= last for moment in moments)
        marks += " " if not count else "|" if count == 1 else _count_digit(count)
    return marks


def _stopped_marks(edges: Sequence[int], stops: Sequence[PartitionStop]) -> str:
    """The most partitions that stood still at once within each column."""
    turns: Mapping[int, int] = _stop_deltas(stops)
    moments = sorted(turns)
    marks, standing, position = "", 0, 0
    for until in edges[1:]:
        most = standing
        while position < len(moments) and moments[position] < until:
            standing += turns[moments[position]]
            most = max(most, standing)
            position += 1
        marks += _count_digit(most) if most else " "
    return marks


def _stop_deltas(stops: Sequence[PartitionStop]) -> dict[int, int]:
    turns: dict[int, int] = {}
    for stop in stops:
        turns[stop.since] = turns.get(stop.since, 0) + 1
        turns[stop.until] = turns.get(stop.until, 0) - 1
    return turns


def _process_cells(
    changes: Sequence[ProcessStateChange], edges: Sequence[int]
) -> list[tuple[ProcessState, str]]:
    """Returns the mark of each column: gone or asleep if the process was so at any time in
    it, else its last state.
    """
    cells = []
    position = -1
    for since, until in pairwise(edges):
        seen = [changes[position]] if position >= 0 else []
        while position + 1 < len(changes) and changes[position + 1].at < until:
            position += 1
            if changes[position].at <= since:
                seen.clear()
            seen.append(changes[position])
        cells.append(_process_cell(seen))
    return cells


def _process_cell(seen: Sequence[ProcessStateChange]) -> tuple[ProcessState, str]:
    if not seen:
        return ProcessState.IDLE, " "
    for doing in (ProcessState.GONE, ProcessState.ASLEEP):
        if any(change.state is doing for change in seen):
            return doing, STATE_MARKS[doing]
    last = seen[-1]
    if last.state is ProcessState.READING:
        return ProcessState.READING, _count_digit(last.load)
    return last.state, STATE_MARKS[last.state]


def _count_digit(number: int) -> str:
    return DIGITS[number] if number < len(DIGITS) else "+"


SHOWN_NAMES = 3


def describe_event(event: ScenarioEvent) -> str:  # noqa: C901, PLR0911 (one case for each kind)
    """Describes an event: ``deploy billing-0, billing-1, billing-2 and 9 more, each down for
    10s``.
    """
    match event:
        case JoinEvent():
            return f"join {join_first_names(event.names)}"
        case LeaveEvent():
            return f"leave {join_first_names(event.names)}"
        case CrashEvent():
            return f"crash {join_first_names(event.names)}"
        case StallEvent():
            return f"stall {join_first_names(event.names)} for {format_duration(event.time)}"
        case PauseEvent():
            return f"pause {join_first_names(event.names)} for {format_duration(event.time)}"
        case SlowDownEvent():
            until = "" if event.time is None else f" for {format_duration(event.time)}"
            work = format_duration(event.processing)
            return f"slow {join_first_names(event.names)}{until}: {work} between polls"
        case RestartEvent():
            return (
                f"restart {join_first_names(event.names)}, down for "
                f"{format_duration(event.downtime)}"
            )
        case DeployEvent():
            how = (
                "with surge" if event.surge else f"each down for {format_duration(event.downtime)}"
            )
            said = (
                f"deploy {join_first_names(event.names)}, {how}, "
                f"{format_duration(event.interval)} between"
            )
            return said + _deploy_settings(event)
        case SubscribeEvent():
            return f"subscribe {join_first_names(event.names)} to {join_first_names(event.topics)}"
        case AddPartitionsEvent():
            counts = [f"{topic} = {count}" for topic, count in event.partitions.items()]
            return f"partitions {join_first_names(counts)}"
        case CoordinatorDownEvent():
            return f"coordinator_down for {format_duration(event.downtime)}"
        case _:
            assert_never(event)


def _deploy_settings(event: DeployEvent) -> str:
    """What the new processes are told to do otherwise."""
    said = ""
    if event.strategy is not None:
        names = ", ".join(assignor.name for assignor in resolve_strategies(event.strategy))
        said += f", strategy {names}"
    if event.static is not None:
        said += ", static ids" if event.static else ", no static ids"
    return said


def join_first_names(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:SHOWN_NAMES])
    more = len(names) - SHOWN_NAMES
    return f"{shown} and {more:,} more" if more > 0 else shown
