"""Simulations as pictures and tables that a person can read."""

from __future__ import annotations

from collections.abc import Sequence

from rota.cli.picture import LEGEND, picture
from rota.cli.screen import console, count, empty_table, plain
from rota.sim.duration import clock
from rota.sim.rebalance import Rebalance
from rota.sim.result import Simulation

SHOWN_REBALANCES = 30
SHOWN_PARTITIONS = 3
SHOWN_NOTES = 5
KEY = """\
took: from the call to join until every member has its part; rounds: cooperative ones take two
moved: changed hands though its owner still wanted it; needed: what the best balance needed
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
    members = sum(len(members.names) for members in scenario.members)
    ids = {None: "", True: ", static ids", False: ", no static ids"}[policy.static]
    return (
        f"{scenario.name}: {simulation.strategy}, {simulation.protocol} protocol{ids}: "
        f"{count(partitions, 'partition')}, {count(members, 'member')} at first, "
        f"{clock(scenario.duration)}, seed {simulation.seed}"
    )


def _print_rebalances(simulation: Simulation, limit: int) -> None:
    table = empty_table(
        "at", "took", "why", "members", "rounds", "moved", "needed", "stopped", "worst", "idle"
    )
    for column in (*table.columns[:2], *table.columns[3:]):
        column.justify = "right"
    for rebalance in simulation.rebalances[:limit]:
        stops = simulation.stopped_in(rebalance)
        table.add_row(
            clock(rebalance.start),
            _seconds(rebalance.time) if rebalance.finished else "unfinished",
            plain(why(rebalance)),
            str(rebalance.members),
            str(rebalance.rounds),
            str(rebalance.moved),
            str(rebalance.moved_min),
            _seconds(sum(stop.time for stop in stops)),
            _seconds(max((stop.time for stop in stops), default=0)),
            str(len(rebalance.idle)),
        )
    console().print(table)
    if len(simulation.rebalances) > limit:
        console().print(f"{len(simulation.rebalances) - limit} more rebalances: --all lists them")


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
    """The coordinator's reason, shorter."""
    text = rebalance.reason.rpartition(" (group was ")[0] or rebalance.reason
    said, _, reason = text.partition("; its reason: ")
    return said if not reason or reason in ONLY_NEW else f"{said}: {reason}"


def _verdict(simulation: Simulation) -> str:
    said = [
        count(len(simulation.rebalances), "rebalance"),
        count(simulation.generations, "generation"),
        f"{simulation.moved} moved (best balance needed {simulation.moved_min})",
    ]
    if simulation.orphaned:
        said.append(f"{simulation.orphaned} whose owner was gone")
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


def print_comparison(simulations: Sequence[Simulation]) -> None:
    """One scenario under several policies, the scenario's own first, and the best of them."""
    screen = console()
    own, *others = simulations
    screen.print(_scene(own))
    screen.print()
    table = empty_table(
        "policy", "rebalances", "generations", "moved", "needed", "stopped", "worst", "idle"
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for simulation in (own, *others):
        worst = simulation.worst
        table.add_row(
            plain(_named(simulation)),
            str(len(simulation.rebalances)),
            str(simulation.generations),
            str(simulation.moved),
            str(simulation.moved_min),
            _seconds(simulation.stopped),
            _seconds(0 if worst is None else worst.time),
            str(simulation.idle),
        )
    screen.print(table)
    screen.print()
    screen.print(KEY.partition("\n")[2])
    screen.print()
    screen.print(_advice(own, best(simulations)))
    for simulation in simulations:
        if not simulation.is_sound:
            screen.print(plain(f"not sound: {_named(simulation)}: {_unsound(simulation)}"))
    said = dict.fromkeys(note for simulation in simulations for note in simulation.notes)
    _print_notes(list(said), SHOWN_NOTES)


def best(simulations: Sequence[Simulation]) -> Simulation | None:
    """The policy under which partitions stood still the least; the first of equals.

    None where under each of them members died of an error, or partitions were never read.
    """
    return min((one for one in simulations if one.is_sound), key=_rank, default=None)


def _rank(simulation: Simulation) -> tuple[int, int, int, int]:
    """What stood still, the longest, what moved, how often."""
    worst = simulation.worst
    return (
        simulation.stopped,
        0 if worst is None else worst.time,
        simulation.moved,
        len(simulation.rebalances),
    )


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


def _advice(own: Simulation, choice: Simulation | None) -> str:
    if choice is None:
        return "none is best: under each, members died of an error or partitions were never read"
    if own.is_sound and _rank(choice) == _rank(own):
        return f"best here, by standstill: {_named(own)}: under no other policy is there less"
    worst, before = choice.worst, own.worst
    pairs = [
        ("stopped", _seconds(choice.stopped), _seconds(own.stopped)),
        ("worst", _seconds(worst.time if worst else 0), _seconds(before.time if before else 0)),
        ("moved", str(choice.moved), str(own.moved)),
        ("rebalances", str(len(choice.rebalances)), str(len(own.rebalances))),
    ]
    said = [f"{what} {new} instead of {old}" for what, new, old in pairs if new != old]
    return f"best here, by standstill: {_named(choice)}: {', '.join(said)}"


def _print_notes(notes: Sequence[str], limit: int) -> None:
    screen = console()
    for note in notes[:limit]:
        screen.print(plain(f"note: {note}"))
    if len(notes) > limit:
        screen.print(f"{len(notes) - limit} more notes")


def _seconds(milliseconds: int) -> str:
    """To a tenth of a second, or to the millisecond where that would show nothing."""
    if 0 < milliseconds < 100:
        return f"{milliseconds}ms"
    return f"{milliseconds / 1000:,.1f}s"
