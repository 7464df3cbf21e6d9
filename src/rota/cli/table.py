"""Plans as tables that a person can read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from rota.cli.screen import console, count, empty_table, plain, print_trimmed, ranges
from rota.model.membership import RebalanceProtocol
from rota.plan import Plan

SHOWN_MEMBERS = 40
SHOWN_TOPICS = 10
SHOWN_MOVES = 15
LEGEND = """\
moved: changes hands though its owner still wants it; needed: what the best balance needs
stopped: revoked during the rebalance (eager: all that is owned; cooperative: what moves)
solver exact: with Rota on the group's leader; solver kafka: as Java consumers do it"""


def print_plan(
    plan: Plan, strategies: Sequence[str], *, everything: bool, names: Mapping[str, str]
) -> None:
    """One plan: members with their partitions, then what moves.

    :param names: what members are called; whom it does not have is called by the id
    """
    screen = console()
    screen.print(_title(plan))
    if len(strategies) > 1:
        screen.print(_list_note(plan, strategies))
    screen.print()
    print_trimmed(_members(plan, names, everything=everything))
    screen.print()
    screen.print(_verdict(plan))
    _print_moves(screen, plan, names, plan.moved if everything else SHOWN_MOVES)
    print_notes(plan.notes)


def print_notes(notes: Iterable[str]) -> None:
    """What a person should know."""
    screen = console()
    for note in notes:
        screen.print(f"note: {note}")


def print_comparison(plans: Sequence[Plan]) -> None:
    """Several plans of one group side by side, and the best of them."""
    screen = console()
    table = empty_table(
        "strategy", "solver", "protocol", "loads", "idle", "moved", "needed", "stopped"
    )
    for column in table.columns[4:]:
        column.justify = "right"
    for plan in plans:
        table.add_row(
            plan.strategy,
            plan.solver or "",
            plan.protocol.name.lower(),
            _spread(plan),
            str(len(plan.idle)),
            str(plan.moved),
            str(plan.moved_min),
            str(plan.stopped),
        )
    print_trimmed(table)
    screen.print()
    screen.print(LEGEND)
    best = min(plans, key=_rank)
    alike = [
        plan for plan in plans if plan.strategy == best.strategy and _rank(plan) == _rank(best)
    ]
    name = _named(best) if len(alike) == 1 else best.strategy
    screen.print()
    screen.print(
        f"best here: {name}: loads {_spread(best)}, {best.moved} moved, {best.stopped} stopped"
    )
    for note in dict.fromkeys(note for plan in plans for note in plan.notes):
        screen.print(f"note: {note}")


def print_javas(plan: Plan, javas: Plan) -> None:
    """Where Java's own solver would do otherwise, how."""
    if (javas.moved, _spread(javas)) != (plan.moved, _spread(plan)):
        console().print(
            f"Java consumers would do otherwise (--solver kafka): loads {_spread(javas)}, "
            f"{javas.moved} moved"
        )


def _rank(plan: Plan) -> tuple[int, int, int]:
    """Even loads first, then what stands still during the rebalance, then what moves."""
    return sum(load * load for load in plan.target_loads.values()), plan.stopped, plan.moved


def _named(plan: Plan) -> str:
    return f"{plan.strategy} (solver {plan.solver})" if plan.solver else plan.strategy


def _title(plan: Plan) -> str:
    partitions = sum(plan.target_loads.values())
    return (
        f"{_named(plan)}, {plan.protocol.name.lower()} protocol: "
        f"{count(partitions, 'partition')} over {count(len(plan), 'member')}"
    )


def _list_note(plan: Plan, strategies: Sequence[str]) -> str:
    why = (
        "every strategy of the list supports it"
        if plan.protocol is RebalanceProtocol.COOPERATIVE
        else "not every strategy of the list is cooperative"
    )
    return (
        f"from the list {', '.join(strategies)}: the first is used, and the protocol is "
        f"{plan.protocol.name.lower()} because {why}"
    )


def _members(plan: Plan, names: Mapping[str, str], *, everything: bool) -> Table:
    limit = len(plan) if everything else SHOWN_MEMBERS
    table = empty_table("member", "load", "partitions")
    table.columns[1].justify = "right"
    for member in plan.members[:limit]:
        given = [f"{topic} {ranges(numbers)}" for topic, numbers in plan[member].items()]
        if len(given) > SHOWN_TOPICS and not everything:
            given[SHOWN_TOPICS:] = [f"{len(given) - SHOWN_TOPICS} more topics: --all lists them"]
        load = str(plan.loads[member])
        if plan.target_loads[member] != plan.loads[member]:
            load += f" -> {plan.target_loads[member]}"
        nothing = "(idle)" if plan.target_loads[member] == 0 else "(from the next rebalance)"
        shown = plain(names.get(member, member))
        table.add_row(shown, load, plain("; ".join(given) or nothing))
    if len(plan) > limit:
        table.add_row("...", "", f"{len(plan) - limit} more members: --all lists them")
    return table


def _verdict(plan: Plan) -> str:
    said = [f"loads {_spread(plan)}", f"{plan.moved} moved (best balance needs {plan.moved_min})"]
    if plan.local is not None:
        said.append(f"{plan.local} in their member's own rack")
    if plan.needless > 0:
        said.append(f"{plan.needless} of them needless")
    if plan.orphaned:
        said.append(f"{plan.orphaned} taken over from members that left")
    if plan.withheld:
        said.append(f"{plan.withheld} given out in the next rebalance")
    said.append(f"{plan.stopped} stopped during the rebalance")
    if plan.idle:
        said.append(f"{count(len(plan.idle), 'member')} idle")
    return "; ".join(said)


def _print_moves(screen: Console, plan: Plan, names: Mapping[str, str], limit: int) -> None:
    if not plan.moved:
        return
    table = empty_table("moved", "from", "to")
    for move in plan.first_moves(limit):
        to = names.get(move.to, move.to) if move.to is not None else "(next rebalance)"
        source = names.get(move.source, move.source)
        table.add_row(plain(f"{move.topic}-{move.partition}"), plain(source), plain(to))
    screen.print()
    print_trimmed(table)
    if plan.moved > limit:
        screen.print(f"{plan.moved - limit} more moves: --all lists them")


def _spread(plan: Plan) -> str:
    loads = sorted(plan.target_loads.values()) or [0]
    return str(loads[0]) if loads[0] == loads[-1] else f"{loads[0]} to {loads[-1]}"
