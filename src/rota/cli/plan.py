"""``rota plan``: who would get which partition, what would move, and whether it had to."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rota.assignors.registry import BUILT_IN, DEFAULT_LIST, known, resolve
from rota.assignors.sticky import SOLVERS, check_solver
from rota.cli import bootstrap, table
from rota.cli.case import Case, read_case
from rota.cli.module import let_modules_be_found
from rota.errors import InputError
from rota.model.membership import Member
from rota.plan import DEFAULT_BUDGET_MS, Plan, assign, carried_out

if TYPE_CHECKING:
    from rota.cli.live import Live

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
                "static_id": null, "rack": null}]}
  partitions, members, id and topics are needed; racks: {"t0": [["r1", "r2"], ["r2"], []]}

Where nobody owns anything, the state before a change is what the same strategy, or the one of
--from, would have given.

"""
LIMITS = ("--max-moves",)
"""Options that may end it with exit code 1."""

MOST_MEMBERS = 100_000
MOST = 2**31 - 1
"""Beyond these a number on the command line is a slip."""

COMPARED = tuple(
    (strategy, solver)
    for strategy, solvers in (
        ("range", ("exact",)),
        ("roundrobin", ("exact",)),
        ("sticky", ("exact", "kafka")),
        ("cooperative-sticky", ("exact", "kafka")),
    )
    for solver in solvers
)


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser], *, epilog: str) -> None:
    """Adds this command to the command line."""
    parser = commands.add_parser(
        "plan",
        help="who would get which partition, and what would move",
        description=DESCRIPTION,
        epilog=EXAMPLES + epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_group(parser.add_argument_group("the group"))
    bootstrap.add_to(parser.add_argument_group("the cluster where --group runs"))
    _add_strategy(parser.add_argument_group("the strategy"))
    _add_output(parser.add_argument_group("the output"))
    parser.set_defaults(run=run, error=parser.error)


def _add_group(group: argparse._ArgumentGroup) -> None:
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
        type=_up_to(MOST_MEMBERS),
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
        type=_up_to(MOST_MEMBERS),
        default=0,
        metavar="N",
        help="N members join, subscribed as most of the others are, with ids behind all others",
    )
    group.add_argument(
        "--remove", action="append", default=[], metavar="ID", help="this member leaves"
    )


def _add_strategy(strategy: argparse._ArgumentGroup) -> None:
    strategy.add_argument(
        "--strategy",
        action="append",
        metavar="NAME",
        help="a wire name, a Java class name or package.module:Class; several, in order, as in "
        f"partition.assignment.strategy (default: Kafka's own, {','.join(DEFAULT_LIST)}, and with "
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
        type=_up_to(MOST),
        default=DEFAULT_BUDGET_MS,
        metavar="MS",
        help=f"how long the exact solver may look for fewer moves (default {DEFAULT_BUDGET_MS})",
    )


def _add_output(output: argparse._ArgumentGroup) -> None:
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--all", action="store_true", help="list every member and every move")
    output.add_argument(
        "--max-moves",
        type=_up_to(MOST),
        metavar="N",
        help="exit with 1 if more than N partitions move",
    )


def run(args: argparse.Namespace) -> bool:
    """Prints the plan; true if the limit on moves is exceeded."""
    if args.compare and args.max_moves is not None:
        args.error("--max-moves needs one strategy: it does not go with --compare")
    let_modules_be_found([*(args.strategy or ()), *(args.origin or ())])
    check_solver(args.solver)
    live = _live(args)
    before, after = _cases(args, live)
    if args.compare:
        plans = [_planned(before, after, *choice, args) for choice in _choices(args.strategy)]
        if args.json:
            _print_json({"compare": [_summary(plan) for plan in plans]})
        else:
            table.print_comparison(plans)
        return False
    own = list(DEFAULT_LIST) if live is None else live.strategies
    strategies = _listed(args.strategy) or own
    plan = _planned(before, after, strategies, args.solver, args)
    if args.json:
        assignments = {"assignment": plan.to_dict(), "target_assignment": plan.target_dict()}
        _print_json({**_summary(plan), **assignments, **_origin(live, plan, args)})
    else:
        names = {} if live is None else live.names
        table.print_plan(plan, strategies, everything=args.all, names=names)
        table.print_notes(() if live is None else live.notes(args.add, plan.strategy))
        if plan.solver == "exact":
            table.print_javas(plan, _planned(before, after, strategies, "kafka", args))
    exceeded = args.max_moves is not None and plan.moved > args.max_moves
    if exceeded:
        print(  # noqa: T201
            f"rota: {plan.moved} partitions move, more than --max-moves {args.max_moves}",
            file=sys.stderr,
        )
    return exceeded


def _up_to(most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) > most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {most}")
        return int(text)

    return number


def _listed(strategies: Sequence[str] | None) -> list[str]:
    return [name.strip() for listed in strategies or () for name in listed.split(",")]


def _choices(strategies: Sequence[str] | None) -> list[tuple[list[str], str]]:
    """What --compare compares: every strategy there is, and those the user named beside them."""
    built_in = [([strategy], solver) for strategy, solver in COMPARED]
    others = [name for name in (*known(), *_listed(strategies)) if name not in BUILT_IN]
    return built_in + [([name], "exact") for name in dict.fromkeys(others) if _is_other(name)]


def _is_other(strategy: str) -> bool:
    """Not a built-in one by another name."""
    return resolve(strategy).name not in BUILT_IN


def _live(args: argparse.Namespace) -> Live | None:
    """The group that runs, if that is what is asked for."""
    if args.group is None:
        if args.bootstrap_servers is not None or args.command_config is not None or args.config:
            args.error("--bootstrap-servers, --command-config and --config are for --group NAME")
        return None
    if args.case is not None or args.members is not None:
        args.error("--group is read from its cluster: it goes with no case file and no --members")
    if args.origin:
        args.error("--from is for groups of which it is not known who owns what: not for --group")
    from rota.cli import live  # noqa: PLC0415 (a plan of a file needs no network)

    return live.read(args)


def _changed(args: argparse.Namespace, before: Case, counts: Mapping[str, int]) -> Case:
    """The group with the partitions and members that are given."""
    after = before.with_partitions(counts)
    joining = _members(args, tuple(after.partitions))
    after = replace(after, members=after.members + joining)
    for topic in counts:
        if not any(topic in member.topics for member in after.members):
            raise InputError(f"--partitions {topic!r}: nobody subscribes to that topic")
    return after


def _cases(args: argparse.Namespace, live: Live | None) -> tuple[Case, Case]:
    """The group as it is, and as it will be."""
    counts = _counts(args)
    leaving = args.remove
    if live is not None:
        before = live.case
        after = _changed(args, before, counts)
        leaving = live.ids(args.remove)
    elif args.case is not None:
        if "=" in args.case and not Path(args.case).exists():
            args.error(f"{args.case!r} is not a case file: --partitions takes TOPIC=N,TOPIC=N")
        if args.members is not None:
            args.error("--members describes a group without a case file; --add lets members join")
        text = sys.stdin.read() if args.case == "-" else _read(args.case)
        before = read_case(text, "standard input" if args.case == "-" else args.case)
        after = _changed(args, before, counts)
    else:
        if not counts or (args.members is None and not args.member):
            args.error(
                "a case file, or --group NAME, or --partitions with --members or --member, is "
                "needed"
            )
        before = Case(partitions=counts, racks={}, members=_members(args, tuple(counts)))
        after = before
    return before, after.without_members(leaving).with_members(args.add, _wanted(live))


def _wanted(live: Live | None) -> tuple[str, ...] | None:
    """What new members of an empty group would read: what those before them did."""
    return None if live is None or live.case.members else tuple(live.case.partitions)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file: {error.reason}") from None


def _counts(args: argparse.Namespace) -> dict[str, int]:
    counts = {}
    for flag in (part for listed in args.partitions for part in listed.split(",")):
        topic, _, count = flag.rpartition("=")
        if not topic or not count.removeprefix("-").isdecimal():
            args.error(f"--partitions {flag!r}: must be TOPIC=N")
        counts[topic] = int(count)
    return counts


def _members(args: argparse.Namespace, topics: tuple[str, ...]) -> tuple[Member, ...]:
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


def _planned(
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
    origin = _listed(args.origin)
    if owns_nothing and (origin or after != before):
        settled = carried_out(plan(before, origin or strategies), before.members, generation=1)
        after = _settled(after, {member.id: member for member in settled})
    return plan(after, strategies)


def _settled(after: Case, settled: Mapping[str, Member]) -> Case:
    def update(members: tuple[Member, ...]) -> tuple[Member, ...]:
        return tuple(settled.get(member.id, member) for member in members)

    return replace(after, members=update(after.members), left=update(after.left))


def _summary(plan: Plan) -> dict[str, object]:
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


def _origin(live: Live | None, plan: Plan, args: argparse.Namespace) -> dict[str, object]:
    """Of a group that runs: its name and its members' short ones."""
    if live is None:
        return {}
    notes = plan.notes + live.notes(args.add, plan.strategy)
    return {"group": live.overview.group, "names": live.names, "notes": notes}


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))  # noqa: T201
