"""``rota plan``: the partitions of each member under a strategy, the moves, and the downtime."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli import flags, render
from rota.cli.flags import flag_adder, import_from_working_directory, whole_number
from rota.cli.plan_group import HEARTBEAT, SESSION, Case, parse_case, verb_of_plan
from rota.engine.assignors import registry
from rota.engine.assignors.sticky import DEFAULT_BUDGET_MS, SOLVERS, TimeBudget, check_solver
from rota.engine.model.duration import format_duration
from rota.engine.model.member import Member, RebalanceProtocol
from rota.engine.model.text import count_noun, list_first_names
from rota.engine.plan import Plan, plan_rebalance
from rota.errors import InputError

if TYPE_CHECKING:
    from rota.cli.plan_group import LiveGroup
    from rota.engine.history.timing import GroupTiming

HELP = "show which member would get which partition, what would move, and the downtime"

DESCRIPTION = """\
Shows which member would get which partition under a strategy, which partitions would move, how
many moves are necessary, and the expected downtime: the time without a consumer, summed over
partitions. The group comes from a case file, from flags, or from a cluster; --add, --member,
--remove and --partitions change the group, and the plan shows the rebalance that follows.
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
  rota plan group.json --add 2 --strategy cooperative-sticky --max-moves 10
      for CI: exit code 1 if more than 10 partitions would move
  rota plan group.json --remove C2 --strategy cooperative-sticky --max-downtime 30s
      for CI: exit code 1 if more than 30 partition-seconds of downtime are expected
  rota plan group.json --strategy mine:MyAssignor
      your own strategy: class MyAssignor in mine.py
  rota plan group.json --strategy sticky --solver exact --prove
      the plan of a group that runs Rota, with a proof that no assignment is better
  rota plan group.json --json | jq .moved
  rota plan --group billing --bootstrap-servers kafka:9092 --add 2
      two members join a running group; the command only reads from the cluster
  rota plan --group billing --bootstrap-servers kafka:9092 --remove app-3 --compare
      member app-3 (member id, static id or client id) leaves a running group

case file:
  {"partitions": {"t0": 3}, "racks": null,
   "members": [{"id": "C0", "topics": ["t0"], "owned": {"t0": [0]}, "generation": 3,
                "group_instance_id": null, "rack": null, "user_data": null}],
   "settings": {"heartbeat.interval.ms": 3000, "session.timeout.ms": 45000}}
  required: partitions, members, id, topics. racks: {"t0": [["r1", "r2"], ["r2"], []]}.
  user_data: base64; without it, the strategy's own hooks make it from owned and generation

If no member owns a partition, the group starts with the assignment of the same strategy, or of
the one in --from.

"""

LIMITS = ("--max-moves", "--max-downtime")  # options that can lead to exit code 1
MAX_MEMBERS = 100_000
MAX_INTEGER = 2**31 - 1

SOLVER_CONSUMERS = {"exact": "Rota", "kafka": "Java"}  # the consumers whose leaders use a solver
GIVEN = "--solver"

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
        f"partition.assignment.strategy (default: {','.join(registry.DEFAULT_STRATEGIES)} as in "
        "Kafka; with --group, the group's strategy)",
        action="append",
    )
    add(
        f"--solver {'|'.join(SOLVERS)}",
        "solver of the sticky strategies: kafka gives the assignment of Java consumers, exact the "
        "best one, as Rota consumers do (default: kafka; exact if only Rota runs the strategy, or "
        "if all members of --group run Rota)",
    )
    text = "strategy of the current assignment, if no member owns partitions (default: the same)"
    add("--from NAME", text, dest="origin", action="append")
    add("--compare", "compare all strategies; the best one has the solver of the group")
    text = f"time limit of the exact solver's search for fewer moves (default {DEFAULT_BUDGET_MS})"
    add("--budget-ms MS", text, type=number, default=DEFAULT_BUDGET_MS)
    add = flag_adder(parser, "the expected downtime")
    text = "heartbeat.interval.ms of the members (default: of the case file, or 3s as in Kafka)"
    add("--heartbeat TIME", text, type=flags.parse_seconds)
    text = "session.timeout.ms of the members (default: of the case file, or 45s as in Kafka)"
    add("--session TIME", text, type=flags.parse_seconds)
    text = "time since the group's last rebalance (default: long, so heartbeats are spread evenly)"
    add("--stable TIME", text, type=flags.parse_seconds)
    add = flag_adder(parser, "the output")
    add("--json", "print JSON")
    text = "prove that no assignment is better, or say what could be better"
    add("--prove", f"{text} (--solver exact finds the best)")
    add("--all", "list every member and every move")
    add("--max-moves N", "exit with 1 if more than N partitions move", type=number)
    text = "exit with 1 if more downtime is expected, summed over all partitions: 30, 90s, 5m"
    add("--max-downtime TIME", text, type=flags.parse_seconds)


def run(args: argparse.Namespace) -> bool:
    import_from_working_directory([*(args.strategy or ()), *(args.origin or ())])
    if args.solver is not None:
        check_solver(args.solver)
    compared = _strategies_to_compare(args) if args.compare else []
    live = _live_group_from_flags(args)
    before, after = _cases_from_flags(args, live)
    if not args.compare:
        return _plan_one_strategy(before, after, live, args)
    plans = [_plan_change(before, after, *choice, args) for choice in compared]
    _check_something_is_planned(before, after, args)
    if args.json:
        result = {"compare": [_plan_json(plan) for plan in plans]}
        render.print_json(result | _timing_json(after, args))
    else:
        notes = [*_timing_notes(plans, after, args), *_comparison_notes(args)]
        print_comparison(plans, _choose_solver(args, [*registry.BUILT_IN], live)[0], notes)
    return False


def _plan_one_strategy(
    before: Case, after: Case, live: LiveGroup | None, args: argparse.Namespace
) -> bool:
    own = list(registry.DEFAULT_STRATEGIES) if live is None else live.strategies
    strategies = flags.split_names(args.strategy) or own
    solver, reason = _choose_solver(args, strategies, live)
    start = _apply_start(before, after, strategies, solver, args)
    if args.max_moves is not None or args.max_downtime is not None:
        _check_limits(before, start, live, strategies, args)
    plan = _make_plan(start, strategies, solver, args)
    _check_something_is_planned(before, after, args)
    names = {} if live is None else live.short_names
    notes = () if live is None else live.notes(args.add, plan.strategy)
    if args.json:
        result = _plan_json(plan) | _timing_json(start, args)
        result["solver_reason"] = plan.solver and reason
        result |= {"assignment": plan.to_dict(), "target_assignment": plan.target_dict()}
        if args.prove:
            result["certificate"] = asdict(plan.certificate)
        if live is not None:
            result |= {"group": live.overview.group, "names": names, "notes": plan.notes + notes}
        render.print_json(result)
    else:
        print_plan(plan, strategies, reason, everything=args.all, names=names)
        _print_notes(
            (*_timing_notes([plan], start, args), *_migration_notes(strategies, args), *notes)
        )
        if args.prove:
            render.print_lines("", _proof_text(plan))
        for other in SOLVERS.keys() - {plan.solver} if plan.solver else ():
            print_solver_difference(plan, _plan_change(before, after, strategies, other, args))
    exceeded = []
    if args.max_moves is not None and plan.moved > args.max_moves:
        exceeded.append(f"{plan.moved} partitions move, more than --max-moves {args.max_moves}")
    if args.max_downtime is not None and plan.downtime_ms > args.max_downtime * 1000:
        found = f"the expected downtime is {plan.downtime_ms / 1000:,.1f} partition-seconds"
        limit = format_duration(round(args.max_downtime * 1000))
        exceeded.append(f"{found}, more than --max-downtime {limit}")
    for text in exceeded:
        render.print_notice(text)
    return bool(exceeded)


def _strategies_to_compare(args: argparse.Namespace) -> list[tuple[list[str], str]]:
    given = {
        "max-moves": args.max_moves is not None,
        "max-downtime": args.max_downtime is not None,
        "prove": args.prove,
        "all": args.all,
    }
    for option, is_given in given.items():
        if is_given:
            args.error(f"--{option} needs one strategy: leave out --compare")
    named = flags.custom_strategies(
        args, "--compare has every built-in strategy: leave out one of the two options"
    )
    plugins = (name for name in registry.known_strategies() if name not in registry.BUILT_IN)
    built_in = [([strategy], solver) for strategy, solver in COMPARED_STRATEGIES]
    return built_in + [([name], "exact") for name in dict.fromkeys((*plugins, *named))]


def _choose_solver(
    args: argparse.Namespace, strategies: Sequence[str], live: LiveGroup | None
) -> tuple[str, str]:
    """Returns the solver that the group's leader uses, as far as it is known, and the reason."""
    if args.solver is not None:
        return args.solver, GIVEN
    if strategies[0] not in registry.BUILT_IN and strategies[0] not in registry.JAVA_CLASSES:
        return "exact", "only Rota runs this strategy"
    if live is None or not live.overview.members:
        return "kafka", "the default"
    return live.solver


def _describe_nothing_to_plan(before: Case, after: Case) -> str | None:
    if not after.members:
        hint = "leave out a --remove" if before.members else "add one with --member ID=TOPIC"
        return f"the group has no members; {hint}"
    topics = sorted({topic for member in after.members for topic in member.topics})
    if any(after.partitions.get(topic) for topic in topics):
        return None
    if not topics:
        return "no member subscribes to a topic; --member ID=TOPIC adds a member that does"
    hint = f"--partitions {topics[0]}=N sets a number"
    return f"the topics of the members have no partitions ({list_first_names(topics)}); {hint}"


def _check_something_is_planned(before: Case, after: Case, args: argparse.Namespace) -> None:
    if (nothing := _describe_nothing_to_plan(before, after)) is not None:
        raise InputError(f"nothing to {verb_of_plan(args)}: {nothing}")


def _check_limits(
    before: Case,
    start: Case,
    live: LiveGroup | None,
    strategies: list[str],
    args: argparse.Namespace,
) -> None:
    """Raises InputError if the limits would always hold: they would check nothing."""
    _check_something_is_planned(before, start, args)
    if not any(len(each.owned) or each.user_data for each in (*start.members, *start.left)):
        hint = "add the owned partitions to the case file, or give a change, such as --add 1"
        if live is not None:
            hint = "start the group's members first, or leave out the limit"
        result = "none can move" if args.max_moves is not None else "no downtime can be computed"
        raise InputError(f"nothing to check: no member owns a partition, so {result}; {hint}")
    if args.max_downtime is not None and _migration_notes(strategies, args):
        raise InputError(
            "nothing to check: the downtime of a migration is that of its restarts; rota simulate "
            "--max-downtime checks it, with a scenario such as examples/switch-strategy.toml"
        )


def _live_group_from_flags(args: argparse.Namespace) -> LiveGroup | None:
    if args.group is None:
        connects = args.bootstrap_servers is not None or args.command_config is not None
        if connects or args.config or args.timeout != flags.DEFAULT_TIMEOUT:
            options = "--bootstrap-servers, --command-config, --config and --timeout"
            args.error(f"{options} need --group NAME")
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
            args.error(
                "--from: the case file has the partitions that members own; leave out --from"
            )
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
        if topic in counts:
            args.error(f"--partitions {flag!r}: topic {topic!r} is given twice")
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


def _plan_change(
    before: Case, after: Case, strategies: list[str], solver: str, args: argparse.Namespace
) -> Plan:
    start = _apply_start(before, after, strategies, solver, args)
    return _make_plan(start, strategies, solver, args)


def _make_plan(case: Case, strategies: list[str], solver: str, args: argparse.Namespace) -> Plan:
    return plan_rebalance(
        strategies,
        case.partitions,
        case.members,
        solver=solver,
        racks=case.racks,
        left=case.left,
        timing=_read_timing(case, args)[0],
        budget=TimeBudget(args.budget_ms, time.monotonic),
    )


def _read_timing(case: Case, args: argparse.Namespace) -> tuple[GroupTiming, list[str]]:
    from rota.engine.history import facts, heartbeats, timing  # noqa: PLC0415 (slow)

    settings = {
        HEARTBEAT: ("Kafka's default", facts.HEARTBEAT_INTERVAL),
        SESSION: ("Kafka's default", facts.DEFAULT_SESSION_TIMEOUT),
    }
    settings |= {name: ("case file", value) for name, value in case.settings.items()}
    for name, seconds in ((HEARTBEAT, args.heartbeat), (SESSION, args.session)):
        if seconds is not None:
            settings[name] = "given", round(seconds * 1000)
    sources = [f"{name}={value} ({source})" for name, (source, value) in settings.items()]
    (_, heartbeat), (_, session) = settings.values()
    if not 0 < heartbeat < session:
        raise InputError(f"{sources[0]} must be above 0 and below {sources[1]}")
    beats = heartbeats.Heartbeats(heartbeat, is_known=True)
    stable = timing.LONG_STABLE if args.stable is None else round(args.stable * 1000)
    return timing.GroupTiming(beats, session_timeout=session, stable_time=stable), sources


def _timing_json(case: Case, args: argparse.Namespace) -> dict[str, object]:
    timing, sources = _read_timing(case, args)
    return {
        "timing": {
            "heartbeat_interval_ms": timing.heartbeats.interval,
            "session_timeout_ms": timing.session_timeout,
            "sync_time_ms": timing.sync_time,
            "stable_ms": timing.stable_time,
            "sources": sources,
        }
    }


def _timing_notes(plans: Sequence[Plan], case: Case, args: argparse.Namespace) -> list[str]:
    plan, (timing, (heartbeat, session)) = plans[0], _read_timing(case, args)
    ago = "long" if args.stable is None else format_duration(timing.stable_time)
    notes = [f"expected downtime: with {heartbeat}, if the last rebalance was {ago} ago"]
    if not plan.changes_members and any(each.downtime_ms for each in plans):
        notes.append(
            "no member joins or leaves: the plan assumes that one of the members starts a "
            "rebalance, and waits for all others"
        )
    if plan.restart_downtime_ms is not None:
        restart = f"{plan.restart_downtime_ms / 1000:,.1f}s"
        usual = format_duration(plan.restart_time_ms)
        notes.append(
            "a static member does not leave the group: its partitions wait for the end of its "
            f"session, {session}. If it is back after {usual} instead, no rebalance happens, and "
            f"the expected downtime is {restart}"
        )
    return notes


def _migration_notes(strategies: list[str], args: argparse.Namespace) -> list[str]:
    origin = flags.split_names(args.origin)
    if not origin or origin == strategies:
        return []
    rows = "each row of another strategy" if args.compare else "this"
    restarts = "the restarts before it have downtime of their own, which rota simulate shows"
    return [f"{rows} is one rebalance after the migration from {', '.join(origin)}; {restarts}"]


def _comparison_notes(args: argparse.Namespace) -> list[str]:
    notes = _migration_notes([], args)
    if args.stable is None:
        notes.append(
            "in a rolling deploy the next rebalance begins sooner; --stable 30s shows that case"
        )
    return notes


def _apply_start(
    before: Case, after: Case, strategies: list[str], solver: str, args: argparse.Namespace
) -> Case:
    """Returns the group after the change, with owned partitions, stated or of a first plan."""
    owns_nothing = not any(len(member.owned) for member in before.members)
    origin = flags.split_names(args.origin)
    if owns_nothing and (origin or after != before):
        earlier = _make_plan(before, origin or strategies, solver, args)
        applied = earlier.apply(before.members, generation=1)
        if origin:  # user data of another strategy
            applied = [replace(member, user_data=None) for member in applied]
        settled = {member.id: member for member in applied}
        members = tuple(settled.get(member.id, member) for member in after.members)
        left = tuple(settled.get(member.id, member) for member in after.left)
        after = replace(after, members=members, left=left)
    return after


def _plan_json(plan: Plan) -> dict[str, object]:
    return {
        "strategy": plan.strategy,
        "solver": plan.solver,
        "protocol": plan.protocol.name.lower(),
        **render.select_attributes(
            plan,
            *("loads", "target_loads", "idle", "moved", "moves_needed", "local", "needless"),
            *("balance_score", "orphaned", "withheld", "revoked", "downtime_ms"),
            "restart_downtime_ms",
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
revoked: partitions revoked during the rebalance (eager: all; cooperative: those that move)
downtime: expected time without a consumer, summed over partitions
solver exact: as Rota consumers do it; solver kafka: as Java consumers do it"""


def print_plan(
    plan: Plan,
    strategies: Sequence[str],
    solver_reason: str,
    *,
    everything: bool,
    names: Mapping[str, str],
) -> None:
    """Prints members with their partitions, then the moves; ``names`` has short member names."""
    partitions = count_noun(sum(plan.target_loads.values()), "partition")
    over = f"{partitions} over {count_noun(len(plan), 'member')}"
    render.print_lines(f"{_plan_name(plan)}, {plan.protocol.name.lower()} protocol: {over}")
    if plan.solver is not None and solver_reason != GIVEN:
        consumers = SOLVER_CONSUMERS[plan.solver]
        render.print_lines(f"solver {plan.solver}, as {consumers} consumers: {solver_reason}")
    if len(strategies) > 1:
        render.print_lines(_strategy_list_note(plan, strategies))
    render.print_lines("")
    _print_members(plan, names, everything=everything)
    render.print_lines("", _plan_verdict(plan))
    _print_moves(plan, names, plan.moved if everything else SHOWN_MOVES)
    _print_notes(plan.notes)


def _print_notes(notes: Sequence[str]) -> None:
    render.print_lines(*(f"note: {note}" for note in notes))


def print_comparison(plans: Sequence[Plan], solver: str, timing_notes: Sequence[str]) -> None:
    """Prints several plans of one group side by side, and the best that its solver can make."""
    counts = ("idle", "moved", "needed", "revoked", "downtime")
    titles = ("strategy", "solver", "protocol", "loads", *counts)
    rows = [
        (
            *(plan.strategy, plan.solver or "", plan.protocol.name.lower()),
            render.format_loads(plan.target_loads),
            *(len(plan.idle), plan.moved, plan.moves_needed, plan.revoked, _format_downtime(plan)),
        )
        for plan in plans
    ]
    render.print_table(titles, rows, counts)
    print(f"\n{COMPARISON_LEGEND}\n")  # noqa: T201
    # only Rota runs a strategy of the user's, with its own solver
    solvers = {None, solver}
    best = min(
        (one for one in plans if one.solver in solvers or one.strategy not in registry.BUILT_IN),
        key=_plan_rank,
    )
    ranks = [_plan_rank(plan) for plan in plans if plan.strategy == best.strategy]
    name = _plan_name(best) if ranks.count(_plan_rank(best)) == 1 else best.strategy
    render.print_lines(
        f"best for this group: {name}: loads {render.format_loads(best.target_loads)}, "
        f"expected downtime {_format_downtime(best)}, {best.moved} moved"
    )
    notes = dict.fromkeys(note for plan in plans for note in plan.notes)
    _print_notes([*timing_notes, *notes])


def print_solver_difference(plan: Plan, other: Plan) -> None:
    loads = render.format_loads(other.target_loads)
    solver = other.solver
    if solver and (other.moved, loads) != (plan.moved, render.format_loads(plan.target_loads)):
        text = f"{SOLVER_CONSUMERS[solver]} consumers give another result (--solver {solver})"
        render.print_lines(f"{text}: loads {loads}, {other.moved} moved")


def _plan_rank(plan: Plan) -> tuple[int, int, int, int]:
    """Sort key: all partitions assigned, even loads, little downtime as shown, few moves."""
    loads = plan.target_loads.values()
    uneven = sum(load * load for load in loads)
    return -sum(loads), uneven, round(plan.downtime_ms / 100), plan.moved


def _format_downtime(plan: Plan) -> str:
    return f"{plan.downtime_ms / 1000:,.1f}s"


def _plan_name(plan: Plan) -> str:
    return f"{plan.strategy} (solver {plan.solver})" if plan.solver else plan.strategy


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
        assigned = [
            f"{topic} {render.format_ranges(numbers)}" for topic, numbers in plan[member].items()
        ]
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
    render.print_table(("member", "load", "partitions"), rows, {"load"})


def _plan_verdict(plan: Plan) -> str:
    items = [
        f"loads {render.format_loads(plan.target_loads)}",
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
    items += [f"{plan.revoked} revoked", f"expected downtime {_format_downtime(plan)}"]
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
    render.print_lines("")
    render.print_table(("moved", "from", "to"), rows)
    if plan.moved > limit:
        render.print_lines(f"{plan.moved - limit} more moves: --all lists them")


def _proof_text(plan: Plan) -> str:
    flaw = plan.certificate.flaw
    if flaw is not None:
        hint = "; --solver exact finds the best one" if plan.solver == "kafka" else ""
        return f"proof: a better assignment exists: {flaw}{hint}"
    local = "has more partitions in the rack of their member, or " if plan.local is not None else ""
    return (
        f"proof: no assignment is more even, and no equally even one {local}moves fewer partitions "
        "(checked by separate code; see --json)"
    )
