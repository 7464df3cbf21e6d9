"""``rota plan``: the partitions of each member under a strategy, and the moves it takes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rota import assign
from rota.cli import flags
from rota.cli.flags import flag_adder, import_from_working_directory, whole_number
from rota.cli.plan_group import Case, parse_case
from rota.cli.render import (
    format_loads,
    format_ranges,
    print_json,
    print_lines,
    print_notice,
    print_table,
    select_attributes,
)
from rota.engine.assignors.registry import (
    BUILT_IN,
    DEFAULT_STRATEGIES,
    known_strategies,
    resolve_strategy,
)
from rota.engine.assignors.sticky import DEFAULT_BUDGET_MS, SOLVERS, check_solver
from rota.engine.model.member import Member, RebalanceProtocol
from rota.engine.model.text import count_noun
from rota.engine.plan import Plan
from rota.errors import InputError

if TYPE_CHECKING:
    from rota.cli.plan_group import LiveGroup

HELP = "show which member would get which partition, and what would move"

DESCRIPTION = """\
Shows which member would get which partition under a strategy, which partitions would move, and
how many moves are necessary. The group comes from a case file, from flags, or from a cluster;
--add, --member, --remove and --partitions change the group, and the plan shows the rebalance
that follows.
"""

EXAMPLES = """\
examples:
  rota plan group.json --strategy cooperative-sticky
      the next rebalance of the group in the file
  rota plan group.json --remove C2 --compare
      member C2 leaves: all strategies side by side
  rota plan --partitions orders=12,payments=6 --members 4 --add 1 --strategy sticky
      a fifth member joins a group of four
  rota plan --partitions orders=12 --members 4 --from range --strategy cooperative-sticky
      a group changes its strategy from range to cooperative-sticky
  rota plan group.json --add 2 --strategy cooperative-sticky --solver kafka --max-moves 10
      for CI: exit code 1 if Java consumers would move more than 10 partitions
  rota plan group.json --strategy mine:MyAssignor
      your own strategy: class MyAssignor in mine.py
  rota plan group.json --strategy sticky --prove
      with a proof that no assignment is better
  rota plan group.json --json | jq .moved
  rota plan --group billing --bootstrap-servers kafka:9092 --add 2
      two members join a running group; the command only reads from the cluster
  rota plan --group billing --bootstrap-servers kafka:9092 --remove app-3 --compare
      member app-3 (member id, static id or client id) leaves a running group

case file:
  {"partitions": {"t0": 3}, "racks": null,
   "members": [{"id": "C0", "topics": ["t0"], "owned": {"t0": [0]}, "generation": 3,
                "group_instance_id": null, "rack": null, "user_data": null}]}
  required: partitions, members, id, topics. racks: {"t0": [["r1", "r2"], ["r2"], []]}.
  user_data: base64; without it, the strategy's own hooks make it from owned and generation

If no member owns a partition, the group starts with the assignment of the same strategy, or of
the one in --from.

"""

#: Options that can lead to exit code 1.
LIMITS = ("--max-moves",)
MAX_MEMBERS = 100_000
MAX_INTEGER = 2**31 - 1

#: Strategies of ``--compare``, with their solvers.
COMPARED_STRATEGIES = (
    *(("range", "exact"), ("roundrobin", "exact")),
    *(("sticky", "exact"), ("sticky", "kafka")),
    *(("cooperative-sticky", "exact"), ("cooperative-sticky", "kafka")),
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    member_count = whole_number(f"a whole number from 0 to {MAX_MEMBERS}", 0, MAX_MEMBERS)
    number = whole_number(f"a whole number from 0 to {MAX_INTEGER}", 0, MAX_INTEGER)
    add = flag_adder(parser, "the group")
    add("case CASE", "a case file; - for standard input", nargs="?")
    add("--group NAME", "a group of a cluster, instead of a case file")
    text = "partition counts of topics; with a case file or --group, the new counts"
    add("--partitions TOPIC=N,...", text, repeated=True)
    size = whole_number(f"a whole number from 1 to {MAX_MEMBERS}", 1, MAX_MEMBERS)
    add("--members N", "a group of N members that subscribe to all topics", type=size)
    text = "a member and its topics (default: all); with a case file or --group, it joins"
    add("--member ID[=TOPIC,...]", text, repeated=True)
    text = "N members join, with the most common subscription; their ids sort after all others"
    add("--add N", text, type=member_count, default=0)
    add("--remove ID", "this member leaves", repeated=True)
    flags.add_admin_flags(flag_adder(parser, "the cluster of --group"))
    add = flag_adder(parser, "the strategy")
    add(
        "--strategy NAME",
        "a strategy's name, Java class name or package.module:Class, or a list of them as in "
        f"partition.assignment.strategy (default: {','.join(DEFAULT_STRATEGIES)} as in Kafka; with "
        "--group, the group's strategy)",
        action="append",
    )
    add(
        f"--solver {'|'.join(SOLVERS)}",
        "solver of the sticky strategies: exact (default) gives the best assignment, as Rota "
        "consumers do; kafka gives the assignment of Java consumers",
        default="exact",
    )
    text = "strategy of the current assignment, if no member owns partitions (default: the same)"
    add("--from NAME", text, dest="origin", action="append")
    add("--compare", "compare all strategies")
    text = f"time limit of the exact solver's search for fewer moves (default {DEFAULT_BUDGET_MS})"
    add("--budget-ms MS", text, type=number, default=DEFAULT_BUDGET_MS)
    add = flag_adder(parser, "the output")
    add("--json", "print JSON")
    add("--prove", "prove that no assignment is better, or say what could be better")
    add("--all", "list every member and every move")
    add("--max-moves N", "exit with 1 if more than N partitions move", type=number)


def run(args: argparse.Namespace) -> bool:
    """Prints the plan; true if ``--max-moves`` is exceeded."""
    if args.compare and (args.max_moves is not None or args.prove):
        args.error("--compare cannot be combined with --max-moves or --prove")
    import_from_working_directory([*(args.strategy or ()), *(args.origin or ())])
    check_solver(args.solver)
    live = _live_group_from_flags(args)
    before, after = _cases_from_flags(args, live)
    if args.compare:
        choices = _strategies_to_compare(args.strategy)
        plans = [_make_plan(before, after, *choice, args) for choice in choices]
        if args.json:
            print_json({"compare": [_plan_json(plan) for plan in plans]})
        else:
            print_comparison(plans)
        return False
    own = list(DEFAULT_STRATEGIES) if live is None else live.strategies
    strategies = flags.split_names(args.strategy) or own
    plan = _make_plan(before, after, strategies, args.solver, args)
    names = {} if live is None else live.short_names
    notes = () if live is None else live.notes(args.add, plan.strategy)
    if args.json:
        result = _plan_json(plan)
        result |= {"assignment": plan.to_dict(), "target_assignment": plan.target_dict()}
        if args.prove:
            result["certificate"] = asdict(plan.certificate)
        if live is not None:
            result |= {"group": live.overview.group, "names": names, "notes": plan.notes + notes}
        print_json(result)
    else:
        print_plan(plan, strategies, everything=args.all, names=names)
        _print_notes(notes)
        if args.prove:
            print_lines("", _proof_text(plan))
        if plan.solver == "exact":
            print_java_difference(plan, _make_plan(before, after, strategies, "kafka", args))
    exceeded = args.max_moves is not None and plan.moved > args.max_moves
    if exceeded:
        print_notice(f"{plan.moved} partitions move, more than --max-moves {args.max_moves}")
    return exceeded


def _strategies_to_compare(strategies: Sequence[str] | None) -> list[tuple[list[str], str]]:
    """Returns all known strategies and the ones that the user named, with their solvers."""
    built_in = [([strategy], solver) for strategy, solver in COMPARED_STRATEGIES]
    return built_in + [
        ([name], "exact")
        for name in dict.fromkeys((*known_strategies(), *flags.split_names(strategies)))
        if resolve_strategy(name).name not in BUILT_IN  # a Java class name is built in, too
    ]


def _live_group_from_flags(args: argparse.Namespace) -> LiveGroup | None:
    if args.group is None:
        if args.bootstrap_servers is not None or args.command_config is not None or args.config:
            args.error("--bootstrap-servers, --command-config and --config need --group NAME")
        return None
    if args.case is not None or args.members is not None:
        args.error("--group cannot be combined with a case file or --members")
    if args.origin:
        args.error("--from cannot be combined with --group: the cluster knows the owned partitions")
    from rota.cli import plan_group  # noqa: PLC0415 (a plan of a file needs no network)

    return plan_group.read_live_group(args)


def _apply_changes(args: argparse.Namespace, before: Case, counts: Mapping[str, int]) -> Case:
    after = before.with_partitions(counts)
    joining = _members_from_flags(args, tuple(after.partitions))
    after = replace(after, members=after.members + joining)
    for topic in counts:
        if not any(topic in member.topics for member in after.members):
            raise InputError(f"--partitions {topic!r}: no member subscribes to that topic")
    return after


def _cases_from_flags(args: argparse.Namespace, live: LiveGroup | None) -> tuple[Case, Case]:
    """Returns the group before and after the change."""
    counts = _parse_partition_counts(args)
    leaving = args.remove
    if live is not None:
        before = live.case
        after = _apply_changes(args, before, counts)
        leaving = [live.resolve_member(each) for each in args.remove]
    elif args.case is not None:
        if "=" in args.case and not Path(args.case).exists():
            args.error(f"{args.case!r} is not a case file; did you mean --partitions {args.case}?")
        if args.members is not None:
            args.error("--members cannot be combined with a case file; use --add for new members")
        before = parse_case(*flags.read_text_file(args.case))
        if args.origin and any(len(member.owned) for member in before.members):
            print_notice("--from is ignored: the case file has the partitions that members own")
        after = _apply_changes(args, before, counts)
    else:
        if not counts or (args.members is None and not args.member):
            args.error("give a case file, --group NAME, or --partitions with --members or --member")
        before = Case(partitions=counts, racks={}, members=_members_from_flags(args, tuple(counts)))
        after = before
    # new members of an empty group read the topics for which the group has committed offsets
    is_empty = live is not None and not live.case.members
    topics = tuple(before.partitions) if is_empty else None
    return before, after.without_members(leaving).with_members(args.add, topics)


def _parse_partition_counts(args: argparse.Namespace) -> dict[str, int]:
    counts = {}
    for flag in flags.split_names(args.partitions):
        topic, _, count = flag.rpartition("=")
        if not topic or not count.removeprefix("-").isdecimal():
            args.error(f"--partitions {flag!r}: must be TOPIC=N")
        counts[topic] = int(count)
        if counts[topic] == 0:
            raise InputError(f"--partitions {flag!r}: topic {topic!r} has no partitions")
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
                raise InputError(f"--member {flag!r}: topic {topic!r} is not in the group")
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
    origin = flags.split_names(args.origin)
    if owns_nothing and (origin or after != before):
        applied = plan(before, origin or strategies).apply(before.members, generation=1)
        if origin:  # user data of another strategy
            applied = [replace(member, user_data=None) for member in applied]
        settled = {member.id: member for member in applied}
        members = tuple(settled.get(member.id, member) for member in after.members)
        left = tuple(settled.get(member.id, member) for member in after.left)
        after = replace(after, members=members, left=left)
    return plan(after, strategies)


def _plan_json(plan: Plan) -> dict[str, object]:
    return {
        "strategy": plan.strategy,
        "solver": plan.solver,
        "protocol": plan.protocol.name.lower(),
        **select_attributes(
            plan,
            *("loads", "target_loads", "idle", "moved", "moves_needed", "local", "needless"),
            *("balance_score", "orphaned", "withheld", "stopped"),
        ),
        "moves": [
            {"topic": m.topic, "partition": m.partition, "from": m.source, "to": m.to}
            for m in plan.moves
        ],
        "skipped_topics": plan.skipped_topics,
        "notes": plan.notes,
    }


SHOWN_MEMBERS = 40
SHOWN_TOPICS = 10
SHOWN_MOVES = 15

COMPARISON_LEGEND = """\
moved: partitions that leave a member that still subscribes to them
needed: moves that the best balance needs
stopped: partitions revoked during the rebalance (eager: all; cooperative: those that move)
solver exact: as Rota consumers do it; solver kafka: as Java consumers do it"""


def print_plan(
    plan: Plan, strategies: Sequence[str], *, everything: bool, names: Mapping[str, str]
) -> None:
    """Prints members with their partitions, then the moves; ``names`` has short member names."""
    print_lines(_plan_title(plan))
    if len(strategies) > 1:
        print_lines(_strategy_list_note(plan, strategies))
    print_lines("")
    _print_members(plan, names, everything=everything)
    print_lines("", _plan_verdict(plan))
    _print_moves(plan, names, plan.moved if everything else SHOWN_MOVES)
    _print_notes(plan.notes)


def _print_notes(notes: Sequence[str]) -> None:
    print_lines(*(f"note: {note}" for note in notes))


def print_comparison(plans: Sequence[Plan]) -> None:
    """Prints several plans of one group side by side, and the best of them."""
    titles = ("strategy", "solver", "protocol", "loads", "idle", "moved", "needed", "stopped")
    rows = [
        (
            *(plan.strategy, plan.solver or "", plan.protocol.name.lower()),
            format_loads(plan.target_loads),
            *(len(plan.idle), plan.moved, plan.moves_needed, plan.stopped),
        )
        for plan in plans
    ]
    print_table(titles, rows, titles[4:])
    print(f"\n{COMPARISON_LEGEND}\n")  # noqa: T201
    best = min(plans, key=_plan_rank)
    ranks = [_plan_rank(plan) for plan in plans if plan.strategy == best.strategy]
    name = _plan_name(best) if ranks.count(_plan_rank(best)) == 1 else best.strategy
    print_lines(
        f"best for this group: {name}: loads {format_loads(best.target_loads)}, "
        f"{best.moved} moved, {best.stopped} stopped"
    )
    _print_notes(list(dict.fromkeys(note for plan in plans for note in plan.notes)))


def print_java_difference(plan: Plan, java_plan: Plan) -> None:
    """Prints how the plan of Java's consumers differs, if it does."""
    loads = format_loads(java_plan.target_loads)
    if (java_plan.moved, loads) != (plan.moved, format_loads(plan.target_loads)):
        text = "Java consumers give another result (--solver kafka)"
        print_lines(f"{text}: loads {loads}, {java_plan.moved} moved")


def _plan_rank(plan: Plan) -> tuple[int, int, int]:
    """Sort key: even loads first, then few stopped partitions, then few moves."""
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
    reason = "not every strategy of the list is cooperative"
    if plan.protocol is RebalanceProtocol.COOPERATIVE:
        reason = "every strategy of the list supports it"
    return (
        f"from the list {', '.join(strategies)}: the first is used, and the protocol is "
        f"{plan.protocol.name.lower()} because {reason}"
    )


def _print_members(plan: Plan, names: Mapping[str, str], *, everything: bool) -> None:
    limit = len(plan) if everything else SHOWN_MEMBERS
    rows = []
    for member in plan.members[:limit]:
        assigned = [f"{topic} {format_ranges(numbers)}" for topic, numbers in plan[member].items()]
        if len(assigned) > SHOWN_TOPICS and not everything:
            more = len(assigned) - SHOWN_TOPICS
            assigned[SHOWN_TOPICS:] = [f"{more} more topics: --all lists them"]
        load = str(plan.loads[member])
        if plan.target_loads[member] != plan.loads[member]:
            load += f" -> {plan.target_loads[member]}"
        nothing = "(idle)" if plan.target_loads[member] == 0 else "(from the next rebalance)"
        rows.append((names.get(member, member), load, "; ".join(assigned) or nothing))
    if len(plan) > limit:
        rows.append(("...", "", f"{len(plan) - limit} more members: --all lists them"))
    print_table(("member", "load", "partitions"), rows, {"load"})


def _plan_verdict(plan: Plan) -> str:
    items = [
        f"loads {format_loads(plan.target_loads)}",
        f"{plan.moved} moved (best balance needs {plan.moves_needed})",
    ]
    if plan.local is not None:
        items.append(f"{plan.local} in the rack of their member")
    if plan.needless > 0:
        items.append(f"{plan.needless} of the moves unnecessary")
    if plan.orphaned:
        items.append(f"{plan.orphaned} taken over from members that left")
    if plan.withheld:
        items.append(f"{plan.withheld} assigned in the next rebalance")
    items.append(f"{plan.stopped} stopped during the rebalance")
    if plan.idle:
        items.append(f"{count_noun(len(plan.idle), 'member')} idle")
    return "; ".join(items)


def _print_moves(plan: Plan, names: Mapping[str, str], limit: int) -> None:
    if not plan.moved:
        return
    rows = [
        (
            f"{move.topic}-{move.partition}",
            names.get(move.source, move.source),
            "(next rebalance)" if move.to is None else names.get(move.to, move.to),
        )
        for move in plan.first_moves(limit)
    ]
    print_lines("")
    print_table(("moved", "from", "to"), rows)
    if plan.moved > limit:
        print_lines(f"{plan.moved - limit} more moves: --all lists them")


def _proof_text(plan: Plan) -> str:
    flaw = plan.certificate.flaw
    if flaw is not None:
        return f"proof: a better assignment exists: {flaw}"
    local = "has more partitions in the rack of their member, or " if plan.local is not None else ""
    return (
        f"proof: no assignment is more even, and no equally even one {local}moves fewer partitions "
        "(checked by separate code; see --json)"
    )
