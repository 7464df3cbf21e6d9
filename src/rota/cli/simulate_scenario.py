"""Runs the scenario of ``rota simulate`` and prints the result: a timeline, the rebalances, a
verdict.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import groupby, pairwise
from typing import assert_never

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from rota.cli.flags import import_from_working_directory, read_text_file, split_names
from rota.cli.render import (
    format_loads,
    make_console,
    print_json,
    print_lines,
    print_notice,
    print_table,
    printable_text,
)
from rota.cli.simulate import NARROW
from rota.engine.assignors.registry import (
    BUILT_IN,
    StrategyList,
    resolve_strategies,
    resolve_strategy,
)
from rota.engine.assignors.sticky import check_solver
from rota.engine.model.duration import format_clock, format_duration
from rota.engine.model.text import count_noun, list_first_names
from rota.engine.simulator.rebalances import SimulatedRebalance
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
from rota.engine.simulator.simulation import Simulation, simulate, sum_stops_by_owner
from rota.engine.simulator.timeline import (
    PartitionStop,
    ProcessState,
    ProcessStateChange,
    build_process_timelines,
)

#: Seconds after which a terminal shows a progress bar.
PROGRESS_AFTER = 1.0


def run_simulate(args: argparse.Namespace) -> bool:
    """Runs the scenario and prints the result; returns whether ``--max-stopped`` is exceeded."""
    if args.compare and args.max_stopped is not None:
        args.error("--max-stopped cannot be combined with --compare: it needs one policy")
    check_solver(args.solver)
    text, source = read_text_file(args.scenario)
    classes = re.findall(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text)
    import_from_working_directory([*(args.strategy or ()), *classes])
    scenario = read_scenario(text, source)
    if args.compare:
        _compare_policies(scenario, args)
        return False
    strategy = split_names(args.strategy) or None
    (simulation,) = _run_simulations(scenario, args, [(strategy, args.static)])
    if args.json:
        print_json(simulation.to_dict())
    else:
        width = args.width or shutil.get_terminal_size().columns
        print_simulation(simulation, width, everything=args.all)
    return _exceeds_limit(simulation, args.max_stopped)


def _run_simulations(
    scenario: Scenario,
    args: argparse.Namespace,
    policies: Sequence[tuple[StrategyList | None, bool | None]],
) -> list[Simulation]:
    """Runs the scenario under each policy; a terminal shows a bar if that takes long."""
    started = time.monotonic()
    done = 0
    update: Callable[[float], None] | None = None
    with ExitStack() as stack:

        def progress(share: float) -> None:
            nonlocal done, update
            is_long = time.monotonic() - started > PROGRESS_AFTER
            if update is None and is_long and sys.stderr.isatty():
                bar = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
                task = bar.add_task("simulating", total=len(policies))
                update = lambda completed: bar.update(task, completed=completed)  # noqa: E731
            if update is not None:
                update(done + share)
            done += share == 1

        return [
            simulate(
                scenario,
                strategy,
                solver=args.solver,
                static=static,
                seed=args.seed,
                progress=progress,
            )
            for strategy, static in policies
        ]


def _compare_policies(scenario: Scenario, args: argparse.Namespace) -> None:
    simulations = _run_simulations(scenario, args, [(None, None), *_policies_to_compare(args)])
    if args.json:
        rows = [{**each.summary(), "notes": list(each.notes)} for each in simulations]
        best = [each.policy for each in best_simulations(simulations)]
        print_json({"compare": rows, "best": best[0] if best else None, "same": best[1:]})
    else:
        print_comparison(simulations, everything=args.all)


def _policies_to_compare(args: argparse.Namespace) -> list[tuple[str, bool]]:
    """Returns built-in and named strategies, each with static and dynamic membership."""
    names = split_names(args.strategy)
    named = [name for name in names if resolve_strategy(name).name not in BUILT_IN]
    memberships = (False, True) if args.static is None else (args.static,)
    return [(name, static) for name in (*BUILT_IN, *named) for static in memberships]


def _exceeds_limit(simulation: Simulation, limit: float | None) -> bool:
    """Returns whether the limit is exceeded; partitions that were never read always exceed it."""
    if limit is not None and simulation.stopped > limit * 1000:
        seconds = f"{simulation.stopped / 1000:,.1f} seconds in total"
        print_notice(f"partitions were stopped for {seconds}, more than --max-stopped {limit:g}")
        return True
    if limit is not None and simulation.unread:
        unread = count_noun(len(simulation.unread), "partition")
        print_notice(f"{unread} never read, which exceeds every --max-stopped")
        return True
    return False


SHOWN_REBALANCES = 30
SHOWN_PARTITIONS = 3
SHOWN_NOTES = 5
SHOWN_EVENTS = 10
REBALANCE_LEGEND = """\
took: from the request to join until every member has its assignment
rounds: the number of generations; a cooperative rebalance that moves partitions takes two
moved: partitions that changed owner although the old owner still subscribed to them
needed: the smallest number of moves to the best balance
loads: the fewest and the most partitions of a member afterwards; idle: members without partitions
stopped: time without a reader, summed over partitions; worst: the longest stop; times: how often"""

COMPARISON_LEGEND = """\
generations: the number of assignments; a cooperative rebalance that moves partitions takes two
moved: partitions that changed owner although the old owner still subscribed to them
needed: the smallest number of moves to the best balance
loads: the fewest and the most partitions of a member at the end
stopped: time without a reader, summed over partitions; worst: the longest stop of one partition
idle: the largest number of members without partitions"""


def print_simulation(simulation: Simulation, width: int, *, everything: bool) -> None:
    """Prints the timeline, the rebalances, and a summary."""
    console = make_console()
    print_lines(_simulation_title(simulation), "")
    for line in draw_timeline(simulation, width, everything=everything):
        console.print(line, soft_wrap=True)
    print(f"\n{TIMELINE_LEGEND}\n")  # noqa: T201
    _print_events(simulation.scenario.events, sys.maxsize if everything else SHOWN_EVENTS)
    _print_rebalances(simulation, sys.maxsize if everything else SHOWN_REBALANCES)
    if simulation.stops:
        print_lines("")
        _print_partitions(simulation, sys.maxsize if everything else SHOWN_PARTITIONS)
    print(f"\n{REBALANCE_LEGEND}\n")  # noqa: T201
    print_lines(_simulation_summary(simulation))
    _print_notes(simulation.notes, everything=everything)


def _simulation_title(simulation: Simulation) -> str:
    scenario = simulation.scenario
    partitions = sum(scenario.topics.values())
    first = sum(
        members.joins + number * members.join_interval == 0
        for members in scenario.members
        for number in range(len(members.names))
    )
    ids = {None: "", True: ", static ids", False: ", no static ids"}[simulation.static]
    solver = "" if simulation.solver is None else f", solver {simulation.solver}"
    return (
        f"{scenario.name}: {simulation.strategy}, {simulation.protocol} protocol{solver}{ids}: "
        f"{count_noun(partitions, 'partition')}, {count_noun(first, 'member')} at first, "
        f"{format_clock(scenario.duration)}, seed {simulation.seed}"
    )


def _print_more(hidden: int, noun: str, rest: str = "") -> None:
    if hidden > 0:
        print_lines(f"{count_noun(hidden, f'more {noun}')}{rest}: --all lists them")


def _print_events(events: Sequence[ScenarioEvent], limit: int) -> None:
    if events:
        rows = [(format_clock(event.at), describe_event(event)) for event in events[:limit]]
        print_table(("at", "event"), rows, {"at"})
        _print_more(len(events) - limit, "event")
        print_lines("")


def _print_rebalances(simulation: Simulation, limit: int) -> None:
    first = ("at", "took")
    last = ("members", "rounds", "moved", "needed", "loads", "stopped", "worst", "idle")
    rows: list[tuple[object, ...]] = [
        (
            format_clock(rebalance.start),
            _format_seconds(rebalance.time) if rebalance.finished else "unfinished",
            rebalance_reason(rebalance),
            *(rebalance.members, len(rebalance.generations)),
            *(rebalance.cost.moved, rebalance.cost.moves_needed),
            format_loads(rebalance.loads),
            *_stopped_times(simulation.stopped_in(rebalance)),
            len(rebalance.idle),
        )
        for rebalance in simulation.rebalances[:limit]
    ]
    outside = simulation.stopped_outside
    if outside:
        sums = sum_stops_by_owner(outside).items()
        owners = [f"{owner or 'not read yet'} {_format_seconds(time)}" for owner, time in sums]
        reason = f"outside of rebalances: {list_first_names(owners)}"
        rows.append(("", "", reason, "", "", "", "", "", *_stopped_times(outside), ""))
    print_table((*first, "why", *last), rows, first + last)
    hidden = simulation.rebalances[limit:]
    stopped, _ = _stopped_times([stop for each in hidden for stop in simulation.stopped_in(each)])
    _print_more(len(hidden), "rebalance", f", {stopped} stopped")


def _stopped_times(stops: Sequence[PartitionStop]) -> tuple[str, str]:
    """Returns the sum of the stop times, and the longest."""
    times = [stop.time for stop in stops]
    return _format_seconds(sum(times)), _format_seconds(max(times, default=0))


def _print_partitions(simulation: Simulation, limit: int) -> None:
    """Prints the partitions that were stopped the longest."""
    by_partition = simulation.stops_by_partition
    times = {each: [stop.time for stop in stops] for each, stops in by_partition.items()}
    longest = sorted(times, key=lambda each: (-sum(times[each]), each))
    rows = [
        (each, *_stopped_times(by_partition[each]), len(times[each])) for each in longest[:limit]
    ]
    titles = ("partition", "stopped", "worst", "times")
    print_table(titles, rows, titles[1:])
    _print_more(len(longest) - limit, "partition", " were stopped")


def rebalance_reason(rebalance: SimulatedRebalance) -> str:
    """Returns why a rebalance began, and which members it waited for."""
    waits = (
        f"waited {wait.time / 1000:.0f}s for {list_first_names(wait.members) or 'the assignment'}, "
        f"which {wait.why}"
        for wait in rebalance.waits
    )
    return "; ".join((rebalance.reason, *waits))


def _simulation_summary(simulation: Simulation) -> str:
    facts = [
        count_noun(len(simulation.rebalances), "rebalance"),
        count_noun(simulation.generations, "generation"),
        f"{count_noun(simulation.moved, 'partition')} moved ({simulation.moves_needed} needed)",
    ]
    if simulation.orphaned:
        facts.append(f"{simulation.orphaned} orphaned (their owners were gone)")
    if (worst := simulation.worst) is None:
        facts.append("no partition was stopped")
    else:
        end = "" if worst.ended else " to the end"
        facts.append(
            f"{_format_seconds(simulation.stopped)} stopped, worst {worst.partition} for "
            f"{_format_seconds(worst.time)} from {format_clock(worst.since)}{end}"
        )
    if simulation.idle:
        facts.append(f"{count_noun(simulation.idle, 'member')} idle")
    if not simulation.is_sound:
        facts.append(_soundness_problem(simulation))
    return "; ".join(facts)


def print_comparison(simulations: Sequence[Simulation], *, everything: bool) -> None:
    """Prints one scenario under several policies, the scenario's own first, and the best one."""
    own = simulations[0]
    scenario = own.scenario
    print_lines(
        f"{scenario.name}: {count_noun(sum(scenario.topics.values()), 'partition')}, "
        f"{format_clock(scenario.duration)}, seed {own.seed}",
        "",
    )
    numbers = ("rebalances", "generations", "moved", "needed", "loads", "stopped", "worst", "idle")
    rows = [
        (
            _policy_name(each),
            *(len(each.rebalances), each.generations, each.moved, each.moves_needed),
            format_loads(each.loads),
            *_stopped_times(each.stops),
            each.idle,
        )
        for each in simulations
    ]
    print_table(("policy", *numbers), rows, numbers)
    print(f"\n{COMPARISON_LEGEND}\n")  # noqa: T201
    print_lines(_comparison_advice(simulations))
    for each in simulations:
        if not each.is_sound:
            print_lines(f"not sound: {_policy_name(each)}: {_soundness_problem(each)}")
    _print_notes(_merge_notes(simulations), everything=everything)


def _merge_notes(simulations: Sequence[Simulation]) -> list[str]:
    """Returns each note once, with its policies unless it holds for all of them."""
    policies_by_note: dict[str, list[str]] = {}
    for simulation in simulations:
        for note in simulation.notes:
            policies_by_note.setdefault(note, []).append(_policy_name(simulation))
    return [
        note if len(policies) == len(simulations) else f"{list_first_names(policies)}: {note}"
        for note, policies in policies_by_note.items()
    ]


def best_simulations(simulations: Sequence[Simulation]) -> list[Simulation]:
    """Returns the sound simulations that rank first; several if they are equally good."""
    sound = [each for each in simulations if each.is_sound]
    best = min(map(_simulation_rank, sound), default=None)
    return [each for each in sound if _simulation_rank(each) == best]


def _simulation_rank(simulation: Simulation) -> tuple[int, int, int]:
    """Sort key: stopped time, as precisely as it is shown; moves; unevenness at the end."""
    uneven = sum(load * load for load in simulation.loads.values())
    return round(simulation.stopped / 100), simulation.moved, uneven


def _policy_name(simulation: Simulation) -> str:
    is_own = simulation.policy.startswith("as in the scenario")
    return f"{simulation.policy} ({simulation.strategy})" if is_own else simulation.policy


def _soundness_problem(simulation: Simulation) -> str:
    problems = []
    if simulation.failed:
        problems.append(f"{count_noun(len(simulation.failed), 'member')} ended with an error")
    if simulation.unread:
        problems.append(f"{count_noun(len(simulation.unread), 'partition')} never read")
    return ", ".join(problems)


def _comparison_advice(simulations: Sequence[Simulation]) -> str:
    own, best = simulations[0], best_simulations(simulations)
    if not best:
        return "no best policy: under each, members ended with an error or partitions were not read"
    choice, *same = best
    tie = f"; equally good: {list_first_names(list(map(_policy_name, same)))}" if same else ""
    name = f"best policy by stopped time: {_policy_name(choice)}"
    if choice is own:
        return f"{name}: no other policy does better{tie}"
    stopped, stopped_before = _stopped_times(choice.stops), _stopped_times(own.stops)
    pairs = [
        *zip(("stopped", "worst"), stopped, stopped_before, strict=True),
        ("moved", str(choice.moved), str(own.moved)),
        ("loads", format_loads(choice.loads), format_loads(own.loads)),
        ("rebalances", str(len(choice.rebalances)), str(len(own.rebalances))),
    ]
    changes = [f"{column} {new} instead of {old}" for column, new, old in pairs if new != old]
    return f"{name}: {', '.join(changes)}{tie}"


def _print_notes(notes: Sequence[str], *, everything: bool) -> None:
    shown = len(notes) if everything else SHOWN_NOTES
    print_lines(*(f"note: {note}" for note in notes[:shown]))
    _print_more(len(notes) - shown, "note")


def _format_seconds(milliseconds: int) -> str:
    """Formats to a tenth of a second; shorter times in milliseconds."""
    return f"{milliseconds}ms" if 0 < milliseconds < 100 else f"{milliseconds / 1000:,.1f}s"


MAX_NAME_LENGTH = 24
SHOWN_ROWS = 40
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

#: Mark and style of each state. A member that reads is shown by its number of partitions.
STATES = {
    ProcessState.READING: ("", "green"),
    ProcessState.IDLE: ("-", "yellow"),
    ProcessState.JOINING: ("~", "yellow"),
    ProcessState.ASLEEP: ("!", "red"),
    ProcessState.GONE: (".", "red"),
}

TIMELINE_LEGEND = (
    "digit: number of partitions (a is 10, b is 11, ..., + is over 35)   ~ joining   - idle\n"
    ". not running   ! frozen, or not polling   | an event, or the start of a rebalance\n"
    "digit above the members: number of events, of rebalances, or of partitions stopped at once"
)

#: Columns from one time on the axis to the next.
AXIS_TICK_COLUMNS = 10


def draw_timeline(simulation: Simulation, width: int, *, everything: bool = False) -> list[Text]:
    """Returns one line for each process, with one column for each slice of time."""
    rows = build_process_timelines(simulation.trace)
    shown = list(rows) if everything else list(rows)[:SHOWN_ROWS]
    labels = [printable_text(name).plain for name in shown]
    margin = min(max([len(label) for label in labels] + [len("rebalances")]), MAX_NAME_LENGTH) + 2
    columns = max(width, NARROW) - margin
    end = simulation.scenario.duration
    edges = [end * column // columns for column in range(columns + 1)]
    marks = {"h:mm:ss": _axis_marks(edges)}
    if simulation.scenario.events:
        marks["events"] = _count_marks(edges, [event.at for event in simulation.scenario.events])
    marks["rebalances"] = _count_marks(edges, [each.start for each in simulation.rebalances])
    marks["stopped"] = _stopped_marks(edges, simulation.stops)
    lines = [
        Text(_fit_label(label, margin)).append(mark.rstrip(), "red" if label == "stopped" else "")
        for label, mark in marks.items()
    ]
    for name, label in zip(shown, labels, strict=True):
        line = Text(_fit_label(label, margin))
        for state, cells in groupby(_process_cells(rows[name], edges), key=lambda cell: cell[0]):
            line.append("".join(mark for _, mark in cells), STATES[state][1])
        lines.append(line)
    if len(rows) > len(shown):
        lines.append(Text(f"... {len(rows) - len(shown)} more: --all shows them"))
    return lines


def _fit_label(label: str, margin: int) -> str:
    short = label if len(label) <= margin - 2 else label[: margin - 4] + ".."
    return short.ljust(margin)


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
    """Returns the largest number of partitions that were stopped at once in each column."""
    changes: Counter[int] = Counter()
    for stop in stops:
        changes[stop.since] += 1
        changes[stop.until] -= 1
    moments = sorted(changes)
    marks, stopped, position = "", 0, 0
    for until in edges[1:]:
        most = stopped
        while position < len(moments) and moments[position] < until:
            stopped += changes[moments[position]]
            most = max(most, stopped)
            position += 1
        marks += _count_digit(most) if most else " "
    return marks


def _process_cells(
    changes: Sequence[ProcessStateChange], edges: Sequence[int]
) -> list[tuple[ProcessState, str]]:
    """Returns the mark of each column: gone or asleep if it occurred, else the last state."""
    times = [change.at for change in changes]
    return [
        _process_cell(changes[max(bisect_right(times, since) - 1, 0) : bisect_left(times, until)])
        for since, until in pairwise(edges)
    ]


def _process_cell(changes: Sequence[ProcessStateChange]) -> tuple[ProcessState, str]:
    if not changes:
        return ProcessState.IDLE, " "
    last, states = changes[-1], {change.state for change in changes}
    unusual = (each for each in (ProcessState.GONE, ProcessState.ASLEEP) if each in states)
    state = next(unusual, last.state)
    return state, STATES[state][0] or _count_digit(last.load)


def _count_digit(number: int) -> str:
    return DIGITS[number] if number < len(DIGITS) else "+"


def describe_event(event: ScenarioEvent) -> str:  # noqa: C901, PLR0911 (one case each)
    """Describes an event: ``deploy billing-0, billing-1 and billing-2, each down for 10s``."""
    names = list_first_names(getattr(event, "names", ()))
    match event:
        case AddPartitionsEvent():
            counts = [f"{topic} = {count}" for topic, count in event.partitions.items()]
            return f"partitions {list_first_names(counts)}"
        case CoordinatorDownEvent():
            return f"coordinator_down for {format_duration(event.downtime)}"
        case JoinEvent():
            return f"join {names}"
        case LeaveEvent():
            return f"leave {names}"
        case CrashEvent():
            return f"crash {names}"
        case StallEvent():
            return f"stall {names} for {format_duration(event.time)}"
        case PauseEvent():
            return f"pause {names} for {format_duration(event.time)}"
        case SlowDownEvent():
            until = "" if event.time is None else f" for {format_duration(event.time)}"
            return f"slow {names}{until}: {format_duration(event.processing)} between polls"
        case RestartEvent():
            return f"restart {names}, down for {format_duration(event.downtime)}"
        case DeployEvent():
            return f"deploy {names}, {_deploy_settings(event)}"
        case SubscribeEvent():
            return f"subscribe {names} to {list_first_names(event.topics)}"
        case _:
            assert_never(event)


def _deploy_settings(event: DeployEvent) -> str:
    downtime = "with surge" if event.surge else f"each down for {format_duration(event.downtime)}"
    settings = [downtime, f"{format_duration(event.interval)} between"]
    if event.strategy is not None:
        names = ", ".join(assignor.name for assignor in resolve_strategies(event.strategy))
        settings.append(f"strategy {names}")
    if event.static is not None:
        settings.append("static ids" if event.static else "no static ids")
    return ", ".join(settings)
