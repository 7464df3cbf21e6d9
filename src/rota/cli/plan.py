"""``rota plan``: who would get which partition, what would move, and whether it had to."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rota.assignors.registry import DEFAULT_LIST, known
from rota.assignors.sticky import SOLVERS
from rota.cli import table
from rota.cli.case import Case, read_case
from rota.errors import InputError
from rota.model.membership import Member
from rota.plan import DEFAULT_BUDGET_MS, Plan, assign, carried_out

DESCRIPTION = """\
Who would get which partition under a strategy, what would move and from whom, against the
fewest that must. The group comes from a case file or from flags; --add, --remove and
--partitions change it, and the plan shows the rebalance that follows.
"""

EXAMPLES = """\
examples:
  rota plan group.json --strategy cooperative-sticky
      the rebalance that the group in the file is about to have
  rota plan group.json --remove C2 --compare
      every strategy side by side when C2 leaves
  rota plan --partitions orders=12 --members 4 --add 1 --strategy sticky
      a group of four that has settled, and a fifth member joins
  rota plan group.json --add 2 --strategy mypackage.mine:MyAssignor --max-moves 10
      a strategy of your own; exit code 1 if more than 10 partitions move
  rota plan group.json --json | jq .moved

case file:
  {"partitions": {"t0": 3}, "racks": null,
   "members": [{"id": "C0", "topics": ["t0"], "owned": {"t0": [0]}, "generation": 3,
                "static_id": null, "rack": null}]}
  partitions, members, id and topics are needed; racks: {"t0": [["r1", "r2"], ["r2"], []]}

Where nobody owns anything and the group is changed, its state before the change is what the same
strategy would have given it.

"""

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
    group = parser.add_argument_group("the group")
    group.add_argument("case", nargs="?", metavar="CASE", help="a case file; - for standard input")
    group.add_argument(
        "--partitions",
        action="append",
        default=[],
        metavar="TOPIC=N",
        help="a topic's partition count; with a case file, its count after the change",
    )
    group.add_argument(
        "--members", type=int, metavar="N", help="N members, subscribed to all topics"
    )
    group.add_argument(
        "--member",
        action="append",
        default=[],
        metavar="ID[=TOPIC,...]",
        help="a member and its topics (all, if none are named)",
    )
    group.add_argument("--add", type=int, default=0, metavar="N", help="N members join")
    group.add_argument(
        "--remove", action="append", default=[], metavar="ID", help="this member leaves"
    )
    strategy = parser.add_argument_group("the strategy")
    strategy.add_argument(
        "--strategy",
        action="append",
        metavar="NAME",
        help="a wire name, a Java class name or package.module:Class; several, in order, as in "
        f"partition.assignment.strategy (default: Kafka's own, {','.join(DEFAULT_LIST)})",
    )
    strategy.add_argument(
        "--solver", default="exact", metavar="|".join(SOLVERS), help="for the sticky strategies"
    )
    strategy.add_argument("--compare", action="store_true", help="all strategies side by side")
    strategy.add_argument(
        "--budget-ms",
        type=int,
        default=DEFAULT_BUDGET_MS,
        metavar="MS",
        help=f"how long the exact solver may look for fewer moves (default {DEFAULT_BUDGET_MS})",
    )
    output = parser.add_argument_group("the output")
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--all", action="store_true", help="list every member and every move")
    output.add_argument(
        "--max-moves", type=int, metavar="N", help="exit with 1 if more than N partitions move"
    )
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> bool:
    """Prints the plan; true if the limit on moves is exceeded."""
    if args.compare and args.max_moves is not None:
        args.error("--max-moves needs one strategy: it does not go with --compare")
    if args.add < 0:
        args.error(f"--add {args.add}: must not be negative")
    _let_modules_be_found(args.strategy or ())
    before, after = _cases(args)
    if args.compare:
        plans = [_planned(before, after, *choice, args) for choice in _choices(args.strategy)]
        if args.json:
            _print_json({"compare": [_summary(plan) for plan in plans]})
        else:
            table.print_comparison(plans)
        return False
    strategies = _listed(args.strategy) or list(DEFAULT_LIST)
    plan = _planned(before, after, strategies, args.solver, args)
    if args.json:
        _print_json({**_summary(plan), "assignment": plan.to_dict()})
    else:
        table.print_plan(plan, strategies, everything=args.all)
    exceeded = args.max_moves is not None and plan.moved > args.max_moves
    if exceeded:
        print(  # noqa: T201
            f"rota: {plan.moved} partitions move, more than --max-moves {args.max_moves}",
            file=sys.stderr,
        )
    return exceeded


def _let_modules_be_found(strategies: Sequence[str]) -> None:
    """A strategy named as package.module:Class may lie in the folder the command is run in."""
    if any(":" in strategy for strategy in strategies) and "" not in sys.path:
        sys.path.insert(0, "")


def _listed(strategies: Sequence[str] | None) -> list[str]:
    return [name.strip() for listed in strategies or () for name in listed.split(",")]


def _choices(strategies: Sequence[str] | None) -> list[tuple[list[str], str]]:
    """What --compare compares: the built-in strategies, and those the user named beside them."""
    built_in = [([strategy], solver) for strategy, solver in COMPARED]
    named = [strategy for strategy in _listed(strategies) if strategy not in known()]
    return built_in + [([strategy], "exact") for strategy in named]


def _cases(args: argparse.Namespace) -> tuple[Case, Case]:
    """The group as it is, and as it will be."""
    counts = _counts(args)
    if args.case is not None:
        if args.members is not None or args.member:
            args.error("--members and --member describe a group without a case file")
        text = sys.stdin.read() if args.case == "-" else _read(args.case)
        before = read_case(text, "standard input" if args.case == "-" else args.case)
        after = before.with_partitions(counts)
    else:
        if not counts or (args.members is None and not args.member):
            args.error("a case file, or --partitions with --members or --member, is needed")
        before = Case(partitions=counts, racks={}, members=_members(args, tuple(counts)))
        after = before
    return before, after.without_members(args.remove).with_members(args.add)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file: {error.reason}") from None


def _counts(args: argparse.Namespace) -> dict[str, int]:
    counts = {}
    for flag in args.partitions:
        topic, _, count = flag.rpartition("=")
        if not topic or not count.removeprefix("-").isdecimal():
            args.error(f"--partitions {flag!r}: must be TOPIC=N")
        counts[topic] = int(count)
    return counts


def _members(args: argparse.Namespace, topics: tuple[str, ...]) -> tuple[Member, ...]:
    count = args.members or 0
    if count < 0:
        args.error(f"--members {count}: must not be negative")
    width = len(str(max(count - 1, 0)))
    members = [Member(id=f"C{number:0{width}}", topics=topics) for number in range(count)]
    for flag in args.member:
        name, _, listed = flag.partition("=")
        members.append(Member(id=name, topics=listed.split(",") if listed else topics))
    return tuple(members)


def _planned(
    before: Case, after: Case, strategies: list[str], solver: str, args: argparse.Namespace
) -> Plan:
    def plan(case: Case) -> Plan:
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
    if owns_nothing and after != before:
        settled = carried_out(plan(before), before.members, generation=1)
        after = _settled(after, {member.id: member for member in settled})
    return plan(after)


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


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))  # noqa: T201
