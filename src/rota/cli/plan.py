"""``rota plan``: who would get which partition, what would move, and whether it had to."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from rota.cli import flags
from rota.cli.flags import import_from_working_directory
from rota.cli.plan_group import Case, parse_case
from rota.cli.render import (
    count_noun,
    format_ranges,
    make_console,
    make_table,
    print_trimmed_table,
    printable_text,
)
from rota.engine.assignors.registry import (
    BUILT_IN,
    DEFAULT_STRATEGIES,
    known_strategies,
    resolve_strategy,
)
from rota.engine.assignors.sticky import DEFAULT_BUDGET_MS, SOLVERS, check_solver
from rota.engine.model.member import Member, RebalanceProtocol
from rota.errors import InputError
from rota.plan import Plan, apply_plan, assign

if TYPE_CHECKING:
    from rota.cli.plan_group import LiveGroup

DESCRIPTION = """\
Who would get which partition under a strategy, what would move and from whom, against the
fewest that must. The group comes from a case file, from flags, or from a cluster where it
runs; --add, --member, --remove and --partitions change it, and the plan shows the rebalance
that follows.
"""

EXAMPLES = """\
examples:
  rota plan group.json --strategy cooperative-sticky
      the rebalance that the group in the file is about to have
  rota plan group.json --remove C2 --compare
      every strategy side by side when C2 leaves
  rota plan --partitions orders=12,payments=6 --members 4 --add 1 --strategy sticky
      a group of four that has settled, and a fifth member joins
  rota plan --partitions orders=12 --members 4 --from range --strategy cooperative-sticky
      a group that has run under range changes its strategy
  rota plan group.json --add 2 --strategy cooperative-sticky --solver kafka --max-moves 10
      for CI: exit code 1 if more than 10 partitions move, as Java consumers would do it
  rota plan group.json --strategy mine:MyAssignor
      a strategy of your own, class MyAssignor in mine.py
  rota plan group.json --json | jq .moved
  rota plan --group billing --bootstrap-servers kafka:9092 --add 2
      a group that runs: two more members join. Nothing is changed, it is only looked at
  rota plan --group billing --bootstrap-servers kafka:9092 --remove app-3 --compare
      every strategy side by side when app-3 (an id, static id or client id) stops

case file:
  {"partitions": {"t0": 3}, "racks": null,
   "members": [{"id": "C0", "topics": ["t0"], "owned": {"t0": [0]}, "generation": 3,
                "group_instance_id": null, "rack": null}]}
  partitions, members, id and topics are needed; racks: {"t0": [["r1", "r2"], ["r2"], []]}

Where nobody owns anything, the state before a change is what the same strategy, or the one of
--from, would have given.

"""

#: Options that may end it with exit code 1.
LIMITS = ("--max-moves",)

MAX_MEMBERS = 100_000

#: Beyond these a number on the command line is a slip.
MAX_INTEGER = 2**31 - 1

COMPARED_STRATEGIES = tuple(
    (strategy, solver)
    for strategy, solvers in (
        ("range", ("exact",)),
        ("roundrobin", ("exact",)),
        ("sticky", ("exact", "kafka")),
        ("cooperative-sticky", ("exact", "kafka")),
    )
    for solver in solvers
)


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], *, epilog: str
) -> None:
    """Adds this command to the command line."""
    parser = commands.add_parser(
        "plan",
        help="who would get which partition, and what would move",
        description=DESCRIPTION,
        epilog=EXAMPLES + epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_group_flags(parser.add_argument_group("the group"))
    flags.add_admin_flags(parser.add_argument_group("the cluster where --group runs"))
    _add_strategy_flags(parser.add_argument_group("the strategy"))
    _add_output_flags(parser.add_argument_group("the output"))
    parser.set_defaults(run=run, error=parser.error)


def _add_group_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("case", nargs="?", metavar="CASE", help="a case file; - for standard input")
    group.add_argument(
        "--group", metavar="NAME", help="a group that runs, in place of a file: see the cluster"
    )
    group.add_argument(
        "--partitions",
        action="append",
        default=[],
        metavar="TOPIC=N,...",
        help="partition counts of topics; with a case file or --group, their counts after the "
        "change",
    )
    group.add_argument(
        "--members",
        type=_integer_up_to(MAX_MEMBERS),
        metavar="N",
        help="N members, subscribed to all topics",
    )
    group.add_argument(
        "--member",
        action="append",
        default=[],
        metavar="ID[=TOPIC,...]",
        help="a member and its topics (all, if none are named); with a case file or --group, it "
        "joins",
    )
    group.add_argument(
        "--add",
        type=_integer_up_to(MAX_MEMBERS),
        default=0,
        metavar="N",
        help="N members join, subscribed as most of the others are, with ids behind all others",
    )
    group.add_argument(
        "--remove", action="append", default=[], metavar="ID", help="this member leaves"
    )


def _add_strategy_flags(strategy: argparse._ArgumentGroup) -> None:
    strategy.add_argument(
        "--strategy",
        action="append",
        metavar="NAME",
        help="a wire name, a Java class name or package.module:Class; several, in order, as in "
        "partition.assignment.strategy (default: Kafka's own, "
        f"{','.join(DEFAULT_STRATEGIES)}, and with "
        "--group the group's own)",
    )
    strategy.add_argument(
        "--solver",
        default="exact",
        metavar="|".join(SOLVERS),
        help="for the sticky strategies: exact, the best there is, with Rota on the group's leader "
        "(default); kafka, what Java consumers do",
    )
    strategy.add_argument(
        "--from",
        dest="origin",
        action="append",
        metavar="NAME",
        help="the strategy under which the group has run so far, where the case does not say "
        "who owns what (default: the same)",
    )
    strategy.add_argument("--compare", action="store_true", help="all strategies side by side")
    strategy.add_argument(
        "--budget-ms",
        type=_integer_up_to(MAX_INTEGER),
        default=DEFAULT_BUDGET_MS,
        metavar="MS",
        help=f"how long the exact solver may look for fewer moves (default {DEFAULT_BUDGET_MS})",
    )


def _add_output_flags(output: argparse._ArgumentGroup) -> None:
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--all", action="store_true", help="list every member and every move")
    output.add_argument(
        "--max-moves",
        type=_integer_up_to(MAX_INTEGER),
        metavar="N",
        help="exit with 1 if more than N partitions move",
    )


def run(args: argparse.Namespace) -> bool:
    """Prints the plan; true if the limit on moves is exceeded."""
    if args.compare and args.max_moves is not None:
        args.error("--max-moves needs one strategy: it does not go with --compare")
    import_from_working_directory([*(args.strategy or ()), *(args.origin or ())])
    check_solver(args.solver)
    live = _live_group_from_flags(args)
    before, after = _cases_from_flags(args, live)
    if args.compare:
        plans = [
            _make_plan(before, after, *choice, args)
            for choice in _strategies_to_compare(args.strategy)
        ]
        if args.json:
            _print_json({"compare": [_plan_json(plan) for plan in plans]})
        else:
            print_comparison(plans)
        return False
    own = list(DEFAULT_STRATEGIES) if live is None else live.strategies
    strategies = _split_strategies(args.strategy) or own
    plan = _make_plan(before, after, strategies, args.solver, args)
    if args.json:
        assignments = {"assignment": plan.to_dict(), "target_assignment": plan.target_dict()}
        _print_json({**_plan_json(plan), **assignments, **_live_group_json(live, plan, args)})
    else:
        names = {} if live is None else live.short_names
        print_plan(plan, strategies, everything=args.all, names=names)
        print_notes(() if live is None else live.notes(args.add, plan.strategy))
        if plan.solver == "exact":
            print_java_difference(plan, _make_plan(before, after, strategies, "kafka", args))
    exceeded = args.max_moves is not None and plan.moved > args.max_moves
    if exceeded:
        print(  # noqa: T201
            f"rota: {plan.moved} partitions move, more than --max-moves {args.max_moves}",
            file=sys.stderr,
        )
    return exceeded


def _integer_up_to(most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) > most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {most}")
        return int(text)

    return number


def _split_strategies(strategies: Sequence[str] | None) -> list[str]:
    return [name.strip() for listed in strategies or () for name in listed.split(",")]


def _strategies_to_compare(strategies: Sequence[str] | None) -> list[tuple[list[str], str]]:
    """What --compare compares: every strategy there is, and those the user named beside them."""
    built_in = [([strategy], solver) for strategy, solver in COMPARED_STRATEGIES]
    others = [
        name
        for name in (*known_strategies(), *_split_strategies(strategies))
        if name not in BUILT_IN
    ]
    return built_in + [
        ([name], "exact") for name in dict.fromkeys(others) if _is_custom_strategy(name)
    ]


def _is_custom_strategy(strategy: str) -> bool:
    """Returns whether a strategy is not built in, not even under another name."""
    return resolve_strategy(strategy).name not in BUILT_IN


def _live_group_from_flags(args: argparse.Namespace) -> LiveGroup | None:
    """The group that runs, if that is what is asked for."""
    if args.group is None:
        if args.bootstrap_servers is not None or args.command_config is not None or args.config:
            args.error("--bootstrap-servers, --command-config and --config are for --group NAME")
        return None
    if args.case is not None or args.members is not None:
        args.error("--group is read from its cluster: it goes with no case file and no --members")
    if args.origin:
        args.error("--from is for groups of which it is not known who owns what: not for --group")
    from rota.cli import plan_group  # noqa: PLC0415 (a plan of a file needs no network)

    return plan_group.read_live_group(args)


def _apply_changes(args: argparse.Namespace, before: Case, counts: Mapping[str, int]) -> Case:
    """The group with the partitions and members that are given."""
    after = before.with_partitions(counts)
    joining = _members_from_flags(args, tuple(after.partitions))
    after = replace(after, members=after.members + joining)
    for topic in counts:
        if not any(topic in member.topics for member in after.members):
            raise InputError(f"--partitions {topic!r}: nobody subscribes to that topic")
    return after


def _cases_from_flags(args: argparse.Namespace, live: LiveGroup | None) -> tuple[Case, Case]:
    """The group as it is, and as it will be."""
    counts = _parse_partition_counts(args)
    leaving = args.remove
    if live is not None:
        before = live.case
        after = _apply_changes(args, before, counts)
        leaving = live.resolve_members(args.remove)
    elif args.case is not None:
        if "=" in args.case and not Path(args.case).exists():
            args.error(f"{args.case!r} is not a case file: --partitions takes TOPIC=N,TOPIC=N")
        if args.members is not None:
            args.error("--members describes a group without a case file; --add lets members join")
        text = sys.stdin.read() if args.case == "-" else _read_text_file(args.case)
        before = parse_case(text, "standard input" if args.case == "-" else args.case)
        after = _apply_changes(args, before, counts)
    else:
        if not counts or (args.members is None and not args.member):
            args.error(
                "a case file, or --group NAME, or --partitions with --members or --member, is "
                "needed"
            )
        before = Case(partitions=counts, racks={}, members=_members_from_flags(args, tuple(counts)))
        after = before
    return before, after.without_members(leaving).with_members(
        args.add, _topics_of_new_members(live)
    )


def _topics_of_new_members(live: LiveGroup | None) -> tuple[str, ...] | None:
    """Topics of new members of an empty group: those that the group has committed."""
    return None if live is None or live.case.members else tuple(live.case.partitions)


def _read_text_file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file: {error.reason}") from None


def _parse_partition_counts(args: argparse.Namespace) -> dict[str, int]:
    counts = {}
    for flag in (part for listed in args.partitions for part in listed.split(",")):
        topic, _, count = flag.rpartition("=")
        if not topic or not count.removeprefix("-").isdecimal():
            args.error(f"--partitions {flag!r}: must be TOPIC=N")
        counts[topic] = int(count)
    return counts


def _members_from_flags(args: argparse.Namespace, topics: tuple[str, ...]) -> tuple[Member, ...]:
    count = args.members or 0
    width = len(str(max(count - 1, 0)))
    members = [Member(id=f"C{number:0{width}}", topics=topics) for number in range(count)]
    for flag in args.member:
        name, _, listed = flag.partition("=")
        named = listed.split(",") if listed else topics
        for topic in named:
            if topic not in topics:
                raise InputError(f"--member {flag!r}: there is no topic {topic!r}")
        members.append(Member(id=name, topics=named))
    return tuple(members)


def _make_plan(
    before: Case, after: Case, strategies: list[str], solver: str, args: argparse.Namespace
) -> Plan:
    def plan(case: Case, strategies: list[str]) -> Plan:
        return assign(
            strategies,
            case.partitions,
            case.members,
            solver=solver,
            racks=case.racks,
            left=case.left,
            budget_ms=args.budget_ms,
        )

    owns_nothing = not any(len(member.owned) for member in before.members)
    origin = _split_strategies(args.origin)
    if owns_nothing and (origin or after != before):
        settled = apply_plan(plan(before, origin or strategies), before.members, generation=1)
        after = _with_owned_partitions(after, {member.id: member for member in settled})
    return plan(after, strategies)


def _with_owned_partitions(after: Case, settled: Mapping[str, Member]) -> Case:
    def update(members: tuple[Member, ...]) -> tuple[Member, ...]:
        return tuple(settled.get(member.id, member) for member in members)

    return replace(after, members=update(after.members), left=update(after.left))


def _plan_json(plan: Plan) -> dict[str, object]:
    return {
        "strategy": plan.strategy,
        "solver": plan.solver,
        "protocol": plan.protocol.name.lower(),
        "loads": plan.loads,
        "target_loads": plan.target_loads,
        "idle": plan.idle,
        "moved": plan.moved,
        "moved_min": plan.moved_min,
        "local": plan.local,
        "needless": plan.needless,
        "orphaned": plan.orphaned,
        "withheld": plan.withheld,
        "stopped": plan.stopped,
        "moves": [
            {"topic": m.topic, "partition": m.partition, "from": m.source, "to": m.to}
            for m in plan.moves
        ],
        "skipped_topics": plan.skipped_topics,
        "notes": plan.notes,
    }


def _live_group_json(
    live: LiveGroup | None, plan: Plan, args: argparse.Namespace
) -> dict[str, object]:
    """Of a group that runs: its name and its members' short ones."""
    if live is None:
        return {}
    notes = plan.notes + live.notes(args.add, plan.strategy)
    return {"group": live.overview.group, "names": live.short_names, "notes": notes}


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))  # noqa: T201


SHOWN_MEMBERS = 40

SHOWN_TOPICS = 10

SHOWN_MOVES = 15

COMPARISON_LEGEND = """\
moved: changes hands though its owner still wants it; needed: what the best balance needs
stopped: revoked during the rebalance (eager: all that is owned; cooperative: what moves)
solver exact: with Rota on the group's leader; solver kafka: as Java consumers do it"""


def print_plan(
    plan: Plan, strategies: Sequence[str], *, everything: bool, names: Mapping[str, str]
) -> None:
    """One plan: members with their partitions, then what moves.

    :param names: what members are called; whom it does not have is called by the id
    """
    screen = make_console()
    screen.print(_plan_title(plan))
    if len(strategies) > 1:
        screen.print(_strategy_list_note(plan, strategies))
    screen.print()
    print_trimmed_table(_members_table(plan, names, everything=everything))
    screen.print()
    screen.print(_plan_verdict(plan))
    _print_moves(screen, plan, names, plan.moved if everything else SHOWN_MOVES)
    print_notes(plan.notes)


def print_notes(notes: Iterable[str]) -> None:
    """What a person should know."""
    screen = make_console()
    for note in notes:
        screen.print(f"note: {note}")


def print_comparison(plans: Sequence[Plan]) -> None:
    """Several plans of one group side by side, and the best of them."""
    screen = make_console()
    table = make_table(
        "strategy", "solver", "protocol", "loads", "idle", "moved", "needed", "stopped"
    )
    for column in table.columns[4:]:
        column.justify = "right"
    for plan in plans:
        table.add_row(
            plan.strategy,
            plan.solver or "",
            plan.protocol.name.lower(),
            _load_range(plan),
            str(len(plan.idle)),
            str(plan.moved),
            str(plan.moved_min),
            str(plan.stopped),
        )
    print_trimmed_table(table)
    screen.print()
    screen.print(COMPARISON_LEGEND)
    best = min(plans, key=_plan_rank)
    alike = [
        plan
        for plan in plans
        if plan.strategy == best.strategy and _plan_rank(plan) == _plan_rank(best)
    ]
    name = _plan_name(best) if len(alike) == 1 else best.strategy
    screen.print()
    screen.print(
        f"best here: {name}: loads {_load_range(best)}, {best.moved} moved, {best.stopped} stopped"
    )
    for note in dict.fromkeys(note for plan in plans for note in plan.notes):
        screen.print(f"note: {note}")


def print_java_difference(plan: Plan, javas: Plan) -> None:
    """Prints how the plan of Java's consumers differs, if it does."""
    if (javas.moved, _load_range(javas)) != (plan.moved, _load_range(plan)):
        make_console().print(
            f"Java consumers would do otherwise (--solver kafka): loads {_load_range(javas)}, "
            f"{javas.moved} moved"
        )


def _plan_rank(plan: Plan) -> tuple[int, int, int]:
    """Even loads first, then what stands still during the rebalance, then what moves."""
    return sum(load * load for load in plan.target_loads.values()), plan.stopped, plan.moved


def _plan_name(plan: Plan) -> str:
    return f"{plan.strategy} (solver {plan.solver})" if plan.solver else plan.strategy


def _plan_title(plan: Plan) -> str:
    partitions = sum(plan.target_loads.values())
    return (
        f"{_plan_name(plan)}, {plan.protocol.name.lower()} protocol: "
        f"{count_noun(partitions, 'partition')} over {count_noun(len(plan), 'member')}"
    )


def _strategy_list_note(plan: Plan, strategies: Sequence[str]) -> str:
    why = (
        "every strategy of the list supports it"
        if plan.protocol is RebalanceProtocol.COOPERATIVE
        else "not every strategy of the list is cooperative"
    )
    return (
        f"from the list {', '.join(strategies)}: the first is used, and the protocol is "
        f"{plan.protocol.name.lower()} because {why}"
    )


def _members_table(plan: Plan, names: Mapping[str, str], *, everything: bool) -> Table:
    limit = len(plan) if everything else SHOWN_MEMBERS
    table = make_table("member", "load", "partitions")
    table.columns[1].justify = "right"
    for member in plan.members[:limit]:
        given = [f"{topic} {format_ranges(numbers)}" for topic, numbers in plan[member].items()]
        if len(given) > SHOWN_TOPICS and not everything:
            given[SHOWN_TOPICS:] = [f"{len(given) - SHOWN_TOPICS} more topics: --all lists them"]
        load = str(plan.loads[member])
        if plan.target_loads[member] != plan.loads[member]:
            load += f" -> {plan.target_loads[member]}"
        nothing = "(idle)" if plan.target_loads[member] == 0 else "(from the next rebalance)"
        shown = printable_text(names.get(member, member))
        table.add_row(shown, load, printable_text("; ".join(given) or nothing))
    if len(plan) > limit:
        table.add_row("...", "", f"{len(plan) - limit} more members: --all lists them")
    return table


def _plan_verdict(plan: Plan) -> str:
    said = [
        f"loads {_load_range(plan)}",
        f"{plan.moved} moved (best balance needs {plan.moved_min})",
    ]
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
        said.append(f"{count_noun(len(plan.idle), 'member')} idle")
    return "; ".join(said)


def _print_moves(screen: Console, plan: Plan, names: Mapping[str, str], limit: int) -> None:
    if not plan.moved:
        return
    table = make_table("moved", "from", "to")
    for move in plan.first_moves(limit):
        to = names.get(move.to, move.to) if move.to is not None else "(next rebalance)"
        source = names.get(move.source, move.source)
        table.add_row(
            printable_text(f"{move.topic}-{move.partition}"),
            printable_text(source),
            printable_text(to),
        )
    screen.print()
    print_trimmed_table(table)
    if plan.moved > limit:
        screen.print(f"{plan.moved - limit} more moves: --all lists them")


def _load_range(plan: Plan) -> str:
    loads = sorted(plan.target_loads.values()) or [0]
    return str(loads[0]) if loads[0] == loads[-1] else f"{loads[0]} to {loads[-1]}"
