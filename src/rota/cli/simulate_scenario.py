"""Runs the scenario of ``rota simulate``; prints a timeline, the rebalances and a verdict."""

from __future__ import annotations

import argparse
import math
import re
import shutil
import sys
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby, pairwise
from typing import TypeGuard, assert_never

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from rota.cli import flags, render
from rota.cli.simulate import NARROW
from rota.engine.assignors.registry import BUILT_IN, StrategyList, resolve_strategies
from rota.engine.assignors.sticky import check_solver
from rota.engine.history.advice import PolicyTotal
from rota.engine.history.downtime import DowntimeTotal, sum_downtime
from rota.engine.history.facts import UNCOUNTED_REASONS, Downtime, DowntimeReason
from rota.engine.model.duration import format_clock, format_duration, format_rounded_duration
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
from rota.engine.simulator.simulation import Simulation, policy_label, simulate
from rota.engine.simulator.timeline import (
    ProcessState,
    ProcessStateChange,
    build_process_timelines,
)
from rota.errors import InputError

PROGRESS_AFTER = 1.0  # seconds after which a terminal shows a progress bar


def run_simulate(args: argparse.Namespace) -> bool:
    if args.compare and args.max_downtime is not None:
        args.error("--max-downtime needs one strategy: leave out --compare")
    if args.width is not None and (args.compare or args.json):
        args.error("--width is for the timeline, which --compare and --json do not print")
    check_solver(args.solver)
    text, source = flags.read_text_file(args.scenario)
    if hint := flags.suggest_command(text, source, "simulate"):
        raise InputError(f"{source}: not a scenario: {hint}")
    classes = re.findall(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text)
    flags.import_from_working_directory([*(args.strategy or ()), *classes])
    scenario = read_scenario(text, source)
    if args.compare:
        _compare_policies(scenario, args)
        return False
    strategy = flags.split_names(args.strategy) or None
    (simulation,) = _run_simulations(scenario, args, [(strategy, args.static)])
    if args.json:
        render.print_json(simulation.to_dict())
    else:
        width = args.width or shutil.get_terminal_size().columns
        print_simulation(simulation, width, everything=args.all)
    return _exceeds_limit(simulation, args.max_downtime)


def _run_simulations(
    scenario: Scenario,
    args: argparse.Namespace,
    policies: Sequence[tuple[StrategyList | None, bool | None]],
) -> list[Simulation]:
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
    reason = "--compare has every built-in strategy: leave out one of the two options"
    named = flags.custom_strategies(args, reason)
    memberships = (False, True) if args.static is None else (args.static,)
    policies = [(name, static) for name in (*BUILT_IN, *named) for static in memberships]
    run = [policy for policy in policies if policy != _uniform_policy(scenario)]
    own, *others = _run_simulations(scenario, args, [(None, None), *run])
    found = dict(zip(run, others, strict=True))
    simulations = [own]
    for name, static in policies:
        label = policy_label(name, args.solver, static)
        simulations.append(found.get((name, static)) or replace(own, policy=label, static=static))
    if args.json:
        rows = [{**each.summary(), "notes": list(each.notes)} for each in simulations]
        similar = [each.policy for each in similar_simulations(simulations)]
        best = [] if similar else [each.policy for each in best_simulations(simulations)]
        result = {"best": best[0] if best else None, "same": best[1:], "similar": similar}
        render.print_json({"compare": rows, **result})
    else:
        print_comparison(simulations, everything=args.all)


def _uniform_policy(scenario: Scenario) -> tuple[str, bool] | None:
    """Returns the policy that all members of the scenario have all the time."""
    if any(_changes_policy(event) for event in scenario.events):
        return None
    used = {(members.strategy or scenario.strategy, members.static) for members in scenario.members}
    (strategy, static), *others = used
    names = [assignor.name for assignor in resolve_strategies(strategy)]
    return (names[0], static) if not others and len(names) == 1 else None


def _exceeds_limit(simulation: Simulation, limit: float | None) -> bool:
    """Returns whether the limit is exceeded; partitions that were never read always exceed it."""
    if limit is None:
        return False
    total = simulation.total
    # somebody may have shut the group down on purpose, but nobody reads its partitions
    if total.downtime_ms + total.shut_down_ms > limit * 1000:
        text = f"the downtime is {total.downtime_ms / 1000:,.1f} partition-seconds, "
        if total.shut_down_ms:
            text += f"and {format_rounded_duration(total.shut_down_ms)} after all members closed, "
        given = format_duration(round(limit * 1000))
        render.print_notice(f"{text}more than --max-downtime {given}")
        return True
    if simulation.unread:
        unread = count_noun(len(simulation.unread), "partition")
        render.print_notice(f"{unread} never read, which exceeds every --max-downtime")
        return True
    return False


MIN_NOISE = 10.0  # percent; smaller differences are noise, however many rebalances happen
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
downtime: time in which no member consumed a partition, summed over all partitions
not polled: time in which the owner did not poll; it may have worked, so downtime is without it
delayed: records that arrived during downtime; added lag: the longest that one waited because of it
worst: the longest downtime; times: how often"""

COMPARISON_LEGEND = """\
downtime: time in which no member consumed a partition, summed over all partitions, by its reason
not polled: time in which the owner did not poll; it may have worked, so downtime is without it
delayed: records that arrived during downtime; added lag: the longest that one waited because of it
moved: partitions that changed owner although the old owner still subscribed to them
needed: the smallest number of moves to the best balance; revoked: partitions that members gave up
loads: the fewest and the most partitions of a member at the end
most idle: the largest number of members without partitions after a rebalance"""


def print_simulation(simulation: Simulation, width: int, *, everything: bool) -> None:
    console = render.make_console()
    render.print_lines(_simulation_title(simulation), "")
    for line in draw_timeline(simulation, width, everything=everything):
        console.print(line, soft_wrap=True)
    print(f"\n{TIMELINE_LEGEND}\n")  # noqa: T201
    _print_events(simulation.scenario.events, sys.maxsize if everything else SHOWN_EVENTS)
    _print_rebalances(simulation, sys.maxsize if everything else SHOWN_REBALANCES)
    if simulation.counted_downtime:
        render.print_lines("")
        _print_partitions(simulation, sys.maxsize if everything else SHOWN_PARTITIONS)
    print(f"\n{REBALANCE_LEGEND}\n")  # noqa: T201
    render.print_lines(_simulation_summary(simulation))
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
        render.print_lines(f"{count_noun(hidden, f'more {noun}')}{rest}: --all lists them")


def _print_events(events: Sequence[ScenarioEvent], limit: int) -> None:
    if events:
        rows = [(format_clock(event.at), describe_event(event)) for event in events[:limit]]
        render.print_table(("at", "event"), rows, {"at"})
        _print_more(len(events) - limit, "event")
        render.print_lines("")


def _print_rebalances(simulation: Simulation, limit: int) -> None:
    first = ("at", "took")
    counts = ("members", "rounds", "moved", "needed", "revoked", "loads", "idle")
    rows: list[tuple[object, ...]] = [
        (
            format_clock(rebalance.start),
            _format_seconds(rebalance.time) if rebalance.finished else "unfinished",
            rebalance_reason(rebalance),
            *(rebalance.members, len(rebalance.generations)),
            *(rebalance.cost.moved, rebalance.cost.moves_needed, rebalance.cost.revoked),
            render.format_loads(rebalance.loads),
            len(rebalance.idle),
            *_downtime_cells(sum_downtime(simulation.downtime_in(rebalance))),
        )
        for rebalance in simulation.rebalances[:limit]
    ]
    outside = simulation.downtime_outside
    total = sum_downtime(outside)
    if total.downtime_ms or total.not_polled_ms:
        sums = simulation.sum_by_process(outside).items()
        owners = [f"{owner} {_format_seconds(time)}" for owner, time in sums]
        reason = f"outside of rebalances: {list_first_names(owners) or 'not polled'}"
        rows.append(("", "", reason, *("" for _ in counts), *_downtime_cells(total)))
    render.print_table(
        (*first, "why", *counts, *DOWNTIME_COLUMNS), rows, first + counts + DOWNTIME_COLUMNS
    )
    hidden = simulation.rebalances[limit:]
    rest = sum_downtime(one for each in hidden for one in simulation.downtime_in(each))
    _print_more(len(hidden), "rebalance", f", {_format_seconds(rest.downtime_ms)} downtime")


DOWNTIME_COLUMNS = ("downtime", "not polled", "delayed", "added lag")


def _downtime_cells(total: DowntimeTotal) -> tuple[str, ...]:
    return (
        _format_seconds(total.downtime_ms),
        _format_seconds(total.not_polled_ms),
        f"{total.delayed_records or 0:,}",
        _format_seconds(total.added_lag_ms or 0),
    )


def _print_partitions(simulation: Simulation, limit: int) -> None:
    times = {
        partition: [one.milliseconds for one in found]
        for partition, found in simulation.downtime_by_partition.items()
    }
    longest = sorted(times, key=lambda each: (-sum(times[each]), each))
    rows = [
        (each, *(_format_seconds(f(times[each])) for f in (sum, max)), len(times[each]))
        for each in longest[:limit]
    ]
    titles = ("partition", "downtime", "worst", "times")
    render.print_table(titles, rows, titles[1:])
    _print_more(len(longest) - limit, "partition", " had downtime")


def rebalance_reason(rebalance: SimulatedRebalance) -> str:
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
    if simulation.revoked:
        facts.append(f"{simulation.revoked:,} revoked")
    total = simulation.total
    if (worst := simulation.worst) is None:
        facts.append("no downtime")
    else:
        end = "" if worst.ended else " to the end"
        facts.append(
            f"{_format_seconds(total.downtime_ms)} downtime ({_format_reasons(total)}), "
            f"worst {worst.topic}-{worst.partition} for {_format_seconds(worst.milliseconds)} "
            f"from {format_clock(worst.since)}{end}"
        )
    if total.not_polled_ms:
        facts.append(f"{_format_seconds(total.not_polled_ms)} not polled")
    if total.shut_down_ms:
        time = format_rounded_duration(total.shut_down_ms)
        facts.append(f"not counted: {time} after all members closed")
    if total.delayed_records:
        facts.append(
            f"{count_noun(total.delayed_records, 'record')} delayed, by at most "
            f"{_format_seconds(total.added_lag_ms or 0)}"
        )
    if simulation.idle:
        facts.append(f"{count_noun(simulation.idle, 'member')} idle")
    if not simulation.is_sound:
        facts.append(_soundness_problem(simulation))
    return "; ".join(facts)


def _format_reasons(total: DowntimeTotal) -> str:
    counted = [
        (time, reason)
        for reason, time in total.by_reason.items()
        if reason not in UNCOUNTED_REASONS
    ]
    return ", ".join(f"{reason} {_format_seconds(time)}" for time, reason in sorted(counted)[::-1])


def print_comparison(simulations: Sequence[Simulation], *, everything: bool) -> None:
    """Prints one scenario under several policies, the scenario's own first, and the best one."""
    own = simulations[0]
    scenario = own.scenario
    render.print_lines(
        f"{scenario.name}: {count_noun(sum(scenario.topics.values()), 'partition')}, "
        f"{format_clock(scenario.duration)}, seed {own.seed}",
        "",
    )
    counts = ("rebalances", "moved", "needed", "revoked", "loads", "most idle")
    rows = [
        (
            _policy_name(each),
            *_downtime_cells(each.total),
            *(len(each.rebalances), each.moved, each.moves_needed, each.revoked),
            render.format_loads(each.loads),
            each.idle,
        )
        for each in simulations
    ]
    numbers = DOWNTIME_COLUMNS + counts
    render.print_table(("policy", *numbers), rows, numbers)
    render.print_lines("")
    _print_reasons(simulations)
    if any(each.total.shut_down_ms for each in simulations):
        render.print_lines("", "shut down: time after all members closed; downtime is without it")
    print(f"\n{COMPARISON_LEGEND}\n")  # noqa: T201
    render.print_lines(_comparison_advice(simulations))
    for each in simulations:
        if not each.is_sound:
            render.print_lines(f"not sound: {_policy_name(each)}: {_soundness_problem(each)}")
        elif not _is_as_even(each, own):
            name = _policy_name(each)
            render.print_lines(f"not the best: {name}: it balances the load less evenly")
    if any(_changes_policy(event) for event in scenario.events):
        render.print_lines(
            "deploys of the scenario change the policy; in all rows but the first, every "
            "member has the policy of the row from the start"
        )
    seeds = f"--seed {own.seed + 1} and --seed {own.seed + 2}"
    rebalances = count_noun(_most_rebalances(simulations), "rebalance")
    render.print_lines(
        f"the result is one draw: with {rebalances}, differences below "
        f"{_noise(simulations):.0f} % are noise; repeat with {seeds}"
    )
    _print_notes(_merge_notes(simulations), everything=everything)


def _print_reasons(simulations: Sequence[Simulation]) -> None:
    known = {reason for each in simulations for reason in each.total.by_reason}
    reasons = [one for one in DowntimeReason if one in known - {DowntimeReason.NOT_POLLED}]
    if reasons:
        rows = [
            (
                _policy_name(each),
                *(_format_seconds(each.total.by_reason.get(one, 0)) for one in reasons),
            )
            for each in simulations
        ]
        render.print_table(("downtime by reason", *reasons), rows, set(reasons))


def _merge_notes(simulations: Sequence[Simulation]) -> list[str]:
    policies_by_note: dict[str, list[str]] = {}
    for simulation in simulations:
        for note in simulation.notes:
            policies_by_note.setdefault(note, []).append(_policy_name(simulation))
    return [
        note if len(policies) == len(simulations) else f"{list_first_names(policies)}: {note}"
        for note, policies in policies_by_note.items()
    ]


def best_simulations(simulations: Sequence[Simulation]) -> list[Simulation]:
    """Returns the possible simulations that rank first; several if they are equally good."""
    possible = _possible_simulations(simulations)
    best = min(map(_simulation_rank, possible), default=None)
    return [each for each in possible if _simulation_rank(each) == best]


def _possible_simulations(simulations: Sequence[Simulation]) -> list[Simulation]:
    """Returns those that are sound and balance the load as evenly as the scenario's own policy."""
    own = simulations[0]
    return [each for each in simulations if each.is_sound and _is_as_even(each, own)]


def similar_simulations(simulations: Sequence[Simulation]) -> list[Simulation]:
    """Returns the simulations that chance could have made the best; none if one is clearly best."""
    own, possible = simulations[0], _possible_simulations(simulations)
    times = {each.policy: _simulation_rank(each)[0] for each in possible}
    least = min(times.values(), default=0)
    similar = [
        each
        for each in possible
        if times[each.policy] < least * (1 + _noise(simulations) / 100)
        and (each is own or each.trace is not own.trace)
    ]
    return similar if any(times[each.policy] > least for each in similar) else []


def _noise(simulations: Sequence[Simulation]) -> float:
    """Returns by how many percent the downtime of two policies may differ by chance. Heartbeats
    decide how long an eager rebalance takes: from nothing to one heartbeat interval. In the
    examples, the standard deviation over seeds is 40 % with 3 or 5 rebalances, 11 % with 17.
    """
    return max(MIN_NOISE, 100 / math.sqrt(_most_rebalances(simulations)))


def _most_rebalances(simulations: Sequence[Simulation]) -> int:
    return max(1, *(len(each.rebalances) for each in simulations))


def _is_as_even(simulation: Simulation, own: Simulation) -> bool:
    """Whether members are loaded as evenly as under the scenario's own policy, on average."""
    return not own.is_sound or _sum_loads(simulation).is_as_even_as(_sum_loads(own))


def _sum_loads(simulation: Simulation) -> PolicyTotal:
    loads = [[*one.loads.values()] for one in simulation.rebalances if one.loads]
    return PolicyTotal(
        simulation.policy,
        rebalances=len(loads),
        idle=sum(one.count(0) for one in loads),
        spread=sum(max(one) - min(one) for one in loads),
    )


def _simulation_rank(simulation: Simulation) -> tuple[int, int, int]:
    """Sort key: downtime, as precisely as it is shown; moves; unevenness at the end."""
    uneven = sum(load * load for load in simulation.loads.values())
    return round(simulation.total.downtime_ms / 100), simulation.moved, uneven


def _policy_name(simulation: Simulation) -> str:
    is_own = simulation.policy.startswith("as in the scenario")
    return f"{simulation.policy} ({_strategies(simulation)})" if is_own else simulation.policy


def _strategies(simulation: Simulation) -> str:
    """Returns the strategies of the members at first, and that of the last deploy."""
    deploys = [event for event in simulation.scenario.events if _changes_policy(event)]
    last = next((each.strategy for each in reversed(deploys) if each.strategy is not None), None)
    then = "" if last is None else f", then {resolve_strategies(last)[0].name}"
    return f"{simulation.strategy}{then}"


def _changes_policy(event: ScenarioEvent) -> TypeGuard[DeployEvent]:
    return isinstance(event, DeployEvent) and (event.strategy, event.static) != (None, None)


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
    if similar := similar_simulations(simulations):
        names, share = "; ".join(map(_policy_name, similar)), _noise(simulations)
        return f"no clear best: these differ by less than {share:.0f} %, which is noise: {names}"
    choice, *same = best
    others = [_policy_name(each) for each in same if each.trace is not own.trace]
    tie = f"; equally good: {'; '.join(others)}" if others else ""
    if choice is own:
        name = f"best policy by downtime: {_strategies(own)}, as in the scenario"
        return f"{name}: no other policy has less downtime{tie}"
    name = f"best policy by downtime: {_policy_name(choice)}"
    pairs = [
        *zip(
            DOWNTIME_COLUMNS, _downtime_cells(choice.total), _downtime_cells(own.total), strict=True
        ),
        ("moved", str(choice.moved), str(own.moved)),
        ("loads", render.format_loads(choice.loads), render.format_loads(own.loads)),
        ("rebalances", str(len(choice.rebalances)), str(len(own.rebalances))),
    ]
    changes = [f"{column} {new} instead of {old}" for column, new, old in pairs if new != old]
    return f"{name}: {', '.join(changes)}{tie}"


def _print_notes(notes: Sequence[str], *, everything: bool) -> None:
    shown = len(notes) if everything else SHOWN_NOTES
    render.print_lines(*(f"note: {note}" for note in notes[:shown]))
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
    "digit above the members: number of events, of rebalances, or of partitions without a consumer"
)

AXIS_TICK_COLUMNS = 10


def draw_timeline(simulation: Simulation, width: int, *, everything: bool = False) -> list[Text]:
    """Returns one line for each process, with one column for each slice of time."""
    rows = build_process_timelines(simulation.trace)
    shown = list(rows) if everything else list(rows)[:SHOWN_ROWS]
    labels = [render.printable_text(name).plain for name in shown]
    margin = min(max([len(label) for label in labels] + [len("rebalances")]), MAX_NAME_LENGTH) + 2
    columns = max(width, NARROW) - margin
    end = simulation.scenario.duration
    edges = [end * column // columns for column in range(columns + 1)]
    marks = {"h:mm:ss": _axis_marks(edges)}
    if simulation.scenario.events:
        marks["events"] = _count_marks(edges, [event.at for event in simulation.scenario.events])
    marks["rebalances"] = _count_marks(edges, [each.start for each in simulation.rebalances])
    marks["downtime"] = _downtime_marks(edges, simulation.counted_downtime)
    lines = [
        Text(_fit_label(label, margin)).append(mark.rstrip(), "red" if label == "downtime" else "")
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


def _downtime_marks(edges: Sequence[int], found: Sequence[Downtime]) -> str:
    """Returns the largest number of partitions without a consumer at once in each column."""
    changes: Counter[int] = Counter()
    for one in found:
        changes[one.since] += 1
        changes[one.until] -= 1
    moments = sorted(changes)
    marks, down, position = "", 0, 0
    for until in edges[1:]:
        most = down
        while position < len(moments) and moments[position] < until:
            down += changes[moments[position]]
            most = max(most, down)
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
