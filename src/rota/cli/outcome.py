"""Simulations as pictures and tables that a person can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.cli.happening import listed, told
from rota.cli.picture import LEGEND, picture
from rota.cli.screen import console, count, empty_table, plain
from rota.sim.duration import clock
from rota.sim.happening import Happening
from rota.sim.rebalance import LEAVE, POLLED_LATE, Rebalance
from rota.sim.result import Simulation, by_owner
from rota.sim.standstill import Stop
from rota.sim.wait import Wait

SHOWN_REBALANCES = 30
SHOWN_PARTITIONS = 3
SHOWN_NOTES = 5
SHOWN_EVENTS = 10
KEY = """\
took: from the call to join until every member has its part
rounds: the generations it took, two for a cooperative one that moves something
moved: changed hands though its owner still wanted it; needed: what the best balance needed
loads: the fewest and the most partitions of a member afterwards; idle: members with none
stopped: how long partitions stood still, added up; worst: the longest; times: how often"""
COMPARED_KEY = """\
generations: assignments that were handed out; a cooperative rebalance may take two
moved: changed hands though its owner still wanted it; needed: what the best balance needed
loads: the fewest and the most partitions of a member at the end; idle: members with none, at most
stopped: how long partitions stood still, added up; worst: the longest that one of them did"""
ONLY_NEW = ("the member is new", "the member has been given its id")
"""Reasons to join that say no more than that a member joins."""


def print_simulation(simulation: Simulation, width: int, *, everything: bool) -> None:
    """One simulation: the picture, the rebalances, the verdict."""
    screen = console()
    screen.print(_title(simulation))
    screen.print()
    for line in picture(simulation, width, everything=everything):
        screen.print(line, soft_wrap=True)
    screen.print()
    screen.print(LEGEND)
    screen.print()
    _print_events(simulation.scenario.events, None if everything else SHOWN_EVENTS)
    shown = len(simulation.rebalances) if everything else SHOWN_REBALANCES
    _print_rebalances(simulation, shown)
    if simulation.stops:
        screen.print()
        _print_partitions(simulation, None if everything else SHOWN_PARTITIONS)
    screen.print()
    screen.print(KEY)
    screen.print()
    screen.print(_verdict(simulation))
    _print_notes(simulation.notes, len(simulation.notes) if everything else SHOWN_NOTES)


def _title(simulation: Simulation) -> str:
    scenario, policy = simulation.scenario, simulation.policy
    partitions = sum(scenario.topics.values())
    first = sum(
        members.joins + number * members.apart == 0
        for members in scenario.members
        for number in range(len(members.names))
    )
    ids = {None: "", True: ", static ids", False: ", no static ids"}[policy.static]
    solver = f", solver {policy.solver}" if simulation.solver_matters else ""
    return (
        f"{scenario.name}: {simulation.strategy}, {simulation.protocol} protocol{solver}{ids}: "
        f"{count(partitions, 'partition')}, {count(first, 'member')} at first, "
        f"{clock(scenario.duration)}, seed {simulation.seed}"
    )


def _print_events(events: Sequence[Happening], limit: int | None) -> None:
    if not events:
        return
    table = empty_table("at", "event")
    table.columns[0].justify = "right"
    for event in events[:limit]:
        table.add_row(clock(event.at), plain(told(event)))
    screen = console()
    screen.print(table)
    if limit is not None and len(events) > limit:
        screen.print(f"{count(len(events) - limit, 'more event')}: --all lists them")
    screen.print()


def _print_rebalances(simulation: Simulation, limit: int) -> None:
    table = empty_table(
        *("at", "took", "why", "members", "rounds", "moved", "needed", "loads"),
        *("stopped", "worst", "idle"),
    )
    for column in (*table.columns[:2], *table.columns[3:]):
        column.justify = "right"
    for rebalance in simulation.rebalances[:limit]:
        table.add_row(
            clock(rebalance.start),
            _seconds(rebalance.time) if rebalance.finished else "unfinished",
            plain(why(rebalance)),
            str(rebalance.members),
            str(rebalance.rounds),
            str(rebalance.moved),
            str(rebalance.moved_min),
            _spread(rebalance.loads),
            *_stopped(simulation.stopped_in(rebalance)),
            str(len(rebalance.idle)),
        )
    outside = simulation.stopped_outside
    if outside:
        said = plain(f"outside of rebalances: {_owners(outside)}")
        table.add_row("", "", said, "", "", "", "", "", *_stopped(outside), "")
    console().print(table)
    hidden = simulation.rebalances[limit:]
    if hidden:
        stopped, _ = _stopped([stop for one in hidden for stop in simulation.stopped_in(one)])
        more = count(len(hidden), "more rebalance")
        console().print(f"{more}, {stopped} stopped: --all lists them")


def _stopped(stops: Sequence[Stop]) -> tuple[str, str]:
    """Added up, and the worst."""
    times = [stop.time for stop in stops]
    return _seconds(sum(times)), _seconds(max(times, default=0))


def _owners(stops: Sequence[Stop]) -> str:
    """Who had read what stood still, and how long it did."""
    return listed(
        [f"{owner or 'not read yet'} {_seconds(time)}" for owner, time in by_owner(stops).items()]
    )


def _spread(loads: Mapping[str, int]) -> str:
    fewest, most = min(loads.values(), default=0), max(loads.values(), default=0)
    return str(fewest) if fewest == most else f"{fewest} to {most}"


def _print_partitions(simulation: Simulation, limit: int | None) -> None:
    """Those that stood still the longest."""
    rows = [
        (sum(stop.time for stop in stops), max(stop.time for stop in stops), partition, len(stops))
        for partition, stops in simulation.stops_by_partition.items()
    ]
    rows.sort(key=lambda row: (-row[0], row[2]))
    table = empty_table("partition", "stopped", "worst", "times")
    for column in table.columns[1:]:
        column.justify = "right"
    for stopped, worst, partition, times in rows[:limit]:
        table.add_row(plain(str(partition)), _seconds(stopped), _seconds(worst), str(times))
    console().print(table)
    if limit is not None and len(rows) > limit:
        more = count(len(rows) - limit, "more partition")
        console().print(f"{more} stood still: --all lists them")


def why(rebalance: Rebalance) -> str:
    """The coordinator's reason, shorter, and whom it waited for."""
    text = rebalance.reason.rpartition(" (group was ")[0] or rebalance.reason
    said, _, reason = text.partition("; its reason: ")
    leaver = said.removeprefix(LEAVE)
    if leaver != said and ", " not in leaver:
        said = f"member {leaver} {'polled too late' if reason == POLLED_LATE else 'leaves'}"
    elif reason and reason not in ONLY_NEW:
        said = f"{said}: {reason}"
    return "; ".join((said, *map(_waited, rebalance.waits)))


def _waited(wait: Wait) -> str:
    whom = listed(wait.members) or "the assignment"
    return f"waited {wait.time / 1000:.0f}s for {whom}, which {wait.why}"


def _verdict(simulation: Simulation) -> str:
    said = [
        count(len(simulation.rebalances), "rebalance"),
        count(simulation.generations, "generation"),
        f"{simulation.moved} moved (best balance needed {simulation.moved_min})",
    ]
    if simulation.orphaned:
        said.append(f"{simulation.orphaned} given to others because their owners were gone")
    worst = simulation.worst
    if worst is None:
        said.append("nothing stood still")
    else:
        end = "" if worst.ended else ", and it still stands"
        said.append(
            f"{_seconds(simulation.stopped)} stopped, worst {worst.partition} for "
            f"{_seconds(worst.time)} from {clock(worst.since)}{end}"
        )
    if simulation.idle:
        said.append(f"{count(simulation.idle, 'member')} idle")
    if not simulation.is_sound:
        said.append(_unsound(simulation))
    return "; ".join(said)


def print_comparison(simulations: Sequence[Simulation], *, everything: bool) -> None:
    """One scenario under several policies, the scenario's own first, and the best of them."""
    screen = console()
    own, *others = simulations
    screen.print(_scene(own))
    screen.print()
    table = empty_table(
        *("policy", "rebalances", "generations", "moved", "needed", "loads"),
        *("stopped", "worst", "idle"),
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for simulation in (own, *others):
        table.add_row(
            plain(_named(simulation)),
            str(len(simulation.rebalances)),
            str(simulation.generations),
            str(simulation.moved),
            str(simulation.moved_min),
            _spread(simulation.loads),
            *_stopped(simulation.stops),
            str(simulation.idle),
        )
    screen.print(table)
    screen.print()
    screen.print(COMPARED_KEY)
    screen.print()
    screen.print(plain(_advice(own, simulations)))
    for simulation in simulations:
        if not simulation.is_sound:
            screen.print(plain(f"not sound: {_named(simulation)}: {_unsound(simulation)}"))
    notes = _merged(simulations)
    _print_notes(notes, len(notes) if everything else SHOWN_NOTES)


def _merged(simulations: Sequence[Simulation]) -> list[str]:
    """Each note once, with the policies under which it was made, unless that is all of them."""
    found: dict[str, list[str]] = {}
    for simulation in simulations:
        for note in simulation.notes:
            found.setdefault(note, []).append(_named(simulation))
    return [
        note if len(policies) == len(simulations) else f"{listed(policies)}: {note}"
        for note, policies in found.items()
    ]


def best(simulations: Sequence[Simulation]) -> Simulation | None:
    """The policy under which partitions stood still the least; the first of equals.

    None where under each of them members died of an error, or partitions were never read.
    """
    return min((one for one in simulations if one.is_sound), key=_rank, default=None)


def equals(simulations: Sequence[Simulation], choice: Simulation) -> list[Simulation]:
    """The others that are as good as this one."""
    rank = _rank(choice)
    return [one for one in simulations if one is not choice and one.is_sound and _rank(one) == rank]


def _rank(simulation: Simulation) -> tuple[int, int, int]:
    """What stood still, as exactly as it is shown; what moved; how uneven it ended."""
    uneven = sum(load * load for load in simulation.loads.values())
    return round(simulation.stopped / 100), simulation.moved, uneven


def _scene(simulation: Simulation) -> str:
    scenario = simulation.scenario
    return (
        f"{scenario.name}: {count(sum(scenario.topics.values()), 'partition')}, "
        f"{clock(scenario.duration)}, seed {simulation.seed}"
    )


def _named(simulation: Simulation) -> str:
    if simulation.policy.strategy is None:
        return f"{simulation.policy.label} ({simulation.strategy})"
    return simulation.policy.label


def _unsound(simulation: Simulation) -> str:
    said = []
    if simulation.failed:
        said.append(f"{count(len(simulation.failed), 'member')} died of an error")
    if simulation.unread:
        said.append(f"{count(len(simulation.unread), 'partition')} never read")
    return ", ".join(said)


def _advice(own: Simulation, simulations: Sequence[Simulation]) -> str:
    choice = best(simulations)
    if choice is None:
        return "none is best: under each, members died of an error or partitions were never read"
    same = [_named(one) for one in equals(simulations, choice)]
    tie = f"; the same: {listed(same)}" if same else ""
    if choice is own:
        return f"best here, by standstill: {_named(own)}: no other policy does better{tie}"
    (stopped, worst), (before, worst_before) = _stopped(choice.stops), _stopped(own.stops)
    pairs = [
        ("stopped", stopped, before),
        ("worst", worst, worst_before),
        ("moved", str(choice.moved), str(own.moved)),
        ("loads", _spread(choice.loads), _spread(own.loads)),
        ("rebalances", str(len(choice.rebalances)), str(len(own.rebalances))),
    ]
    said = [f"{what} {new} instead of {old}" for what, new, old in pairs if new != old]
    return f"best here, by standstill: {_named(choice)}: {', '.join(said)}{tie}"


def _print_notes(notes: Sequence[str], limit: int) -> None:
    screen = console()
    for note in notes[:limit]:
        screen.print(plain(f"note: {note}"))
    if len(notes) > limit:
        screen.print(f"{count(len(notes) - limit, 'more note')}: --all lists them")


def _seconds(milliseconds: int) -> str:
    """To a tenth of a second, or to the millisecond where that would show nothing."""
    if 0 < milliseconds < 100:
        return f"{milliseconds}ms"
    return f"{milliseconds / 1000:,.1f}s"
