"""What-if: a group's history under every policy that its operator could have chosen.

Each policy starts from its own previous result and runs through the same history of members,
subscriptions and partitions. The policy that was really used is replayed too, with the owned
partitions that members reported. If the result differs from the journal, Rota does not know the
strategy, and the rows of that policy are taken from the journal.

A policy with another kind of membership is replayed several times, each time with other heartbeats.
Static members leave less evidence. So a group of them is also replayed with other assumptions about
what the evidence leaves open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np

from rota.engine.assignors import uniform
from rota.engine.assignors.exact.solver import solve_exactly
from rota.engine.assignors.interface import ColumnarAssignor, assign_checked
from rota.engine.assignors.kafka import assignment_builders
from rota.engine.assignors.problem import Problem
from rota.engine.assignors.range import RangeAssignor
from rota.engine.assignors.registry import (
    BUILT_IN,
    common_protocol,
    create_member_assignors,
    resolve_strategy,
)
from rota.engine.assignors.roundrobin import RoundRobinAssignor
from rota.engine.history import policies, whatif_membership, whatif_replay
from rota.engine.history.advice import PolicyEvaluation
from rota.engine.history.downtime import GroupDowntime, sum_downtime
from rota.engine.history.facts import (
    UNCOUNTED_REASONS,
    AdvisedOwnership,
    DowntimeReason,
    Generation,
    GenerationChange,
    GroupType,
    Rebalance,
    RebalanceCost,
    WhatIf,
    member_identity,
)
from rota.engine.history.policies import GroupPolicy, MembershipType, PolicyProtocol
from rota.engine.history.rebalances import compute_cost
from rota.engine.history.restarts import find_restarts, list_membership_events
from rota.engine.history.snapshot import (
    GroupSnapshot,
    HistoryIndex,
    ProblemCache,
    SnapshotPlacement,
    assigned_counts,
    drop_topics,
    largest_counts,
    make_claims,
    make_owner_array,
    subscribed_counts,
    update_counts,
)
from rota.engine.history.timing import (
    ASSIGNMENT_INTERVAL,
    GroupTiming,
)
from rota.engine.history.whatif_membership import ProcessEvent, ProcessEventType
from rota.engine.history.whatif_replay import (
    END_OF_TIME,
    NO_DOWNTIME,
    NO_MOVES,
    DowntimeCost,
    DowntimeCounter,
    HistoryClock,
    PlacementFunction,
    PolicyOutcome,
    run_rebalance,
)
from rota.engine.model.member import (
    UNASSIGNED,
    GroupAssignment,
    Placement,
    RebalanceProtocol,
    Subscription,
)
from rota.engine.model.topic import NO_PARTITIONS, Cluster, IntArray, Partitions

SolveFunction: TypeAlias = Callable[[Problem], IntArray]

#: How heartbeats drift apart is not known, and a few milliseconds may decide whether a member hears
#: of a rebalance at once or one heartbeat later. So short histories are replayed several times,
#: fewer if the first replays differ by a small share; the one with the median downtime counts. In
#: long histories such differences cancel out.
MIN_DRAWS, DRAWS = 3, 9
STABLE_SHARE = 0.03
MAX_DRAWN_EVENTS = 200


def make_placement_function(
    policy: GroupPolicy, topic_ids: Mapping[str, bytes]
) -> PlacementFunction:
    name = policy.strategy
    if policy.assignor is not None:
        return _place_with_hooks(policy.assignor)
    if policy.protocol is PolicyProtocol.CONSUMER:
        server = uniform.resolve_server_assignor(name, topic_ids=topic_ids)
        sticky = name != uniform.ServerRangeAssignor.name
        return _place_cached(name, lambda problem: server.solve(problem).owners, sticky=sticky)
    if policy.sticky:
        exact = policy.solver == policies.EXACT_SOLVER
        solver = solve_exactly if exact else assignment_builders.solve_as_kafka
        return _place_cached(
            policy.solver, lambda problem: solver(problem, lambda: False).owners, sticky=True
        )
    assignor = RangeAssignor() if name == RangeAssignor.name else RoundRobinAssignor()
    return _place_cached(name, lambda problem: assignor.solve(problem).owners, sticky=False)


def _place_cached(name: str, solve: SolveFunction, *, sticky: bool) -> PlacementFunction:
    """Caches by owners if the strategy is sticky; others assign each snapshot once."""

    def place(snapshot: GroupSnapshot, previous: IntArray) -> SnapshotPlacement:
        key = name, previous.tobytes() if sticky else b""
        found = snapshot.placements.get(key)
        if found is None:
            problem = snapshot.problem
            if sticky:
                problem = problem.with_claims(make_claims(problem, previous))
            found = SnapshotPlacement.from_positions(snapshot, solve(problem))
            snapshot.placements[key] = found
        return found

    return place


def _place_with_hooks(strategy: str) -> PlacementFunction:
    """Calls the hooks of a custom strategy as in a real group: each member has its own instance.
    Under the eager protocol the leader receives no owned partitions, only user data.
    """
    leader = resolve_strategy(strategy)
    cooperative = common_protocol([leader]) is RebalanceProtocol.COOPERATIVE
    instances = create_member_assignors(strategy, leader)
    generation = 0

    def place(snapshot: GroupSnapshot, previous: IntArray) -> SnapshotPlacement:
        nonlocal generation
        layout, ids = snapshot.problem.layout, snapshot.problem.members
        owned = GroupAssignment(Placement(layout, ids, previous))
        group = {
            member.member_id: Subscription(
                topics=member.topics,
                user_data=None
                if instances is None
                else instances.subscription_user_data(str(member.number), member.topics),
                owned=owned[member.member_id].partitions if cooperative else NO_PARTITIONS,
                generation=generation or None,
                group_instance_id=member.group_instance_id,
            )
            for member in snapshot.members
        }
        counts = dict(zip(layout.topics, layout.counts.tolist(), strict=True))
        checked = assign_checked(leader, Cluster(counts), group)
        generation += 1
        if instances is not None:
            for member in snapshot.members:
                given = checked.result[member.member_id]
                instances.on_assignment(str(member.number), given, generation)
        positions = np.full(layout.size, UNASSIGNED, dtype=np.int32)
        positions[checked.partition] = checked.member
        return SnapshotPlacement.from_positions(snapshot, positions)

    return place


# Replay of the used policy, with the owned partitions in the journal. It shows whether Rota's
# strategy of that name computed the assignments.


@dataclass(frozen=True, slots=True)
class UsedStrategies:
    solver: str
    topic_ids: Mapping[str, bytes]
    problems: ProblemCache

    def assignor_for(self, generation: Generation) -> ColumnarAssignor | None:
        """Returns the strategy of a generation; None if it is unknown."""
        name = generation.strategy or ""
        if generation.kind is GroupType.CONSUMER:
            if name not in uniform.SERVER_ASSIGNORS:
                return None
            return uniform.resolve_server_assignor(name, topic_ids=self.topic_ids)
        found = resolve_strategy(name, solver=self.solver) if name in BUILT_IN else None
        return found if isinstance(found, ColumnarAssignor) else None


@dataclass(frozen=True, slots=True)
class PolicyReproduction:
    used: tuple[GroupPolicy, ...]
    costs: tuple[RebalanceCost, ...]
    exact: bool  # all replayed rebalances equal the real ones; else: the journal's costs


def reproduce_rebalances(
    rebalances: Sequence[Rebalance],
    topic_ids: Mapping[str, bytes],
    problems: ProblemCache | None = None,
) -> PolicyReproduction:
    """Replays all rebalances with the solver that reproduces the partitions, or else the costs."""
    problems = ProblemCache() if problems is None else problems
    actual = tuple(compute_cost(rebalance, problems) for rebalance in rebalances)
    reproduction: PolicyReproduction | None = None
    for solver in (policies.KAFKA_SOLVER, policies.EXACT_SOLVER):
        used = policies.find_used_policies(rebalances, solver)
        strategies = UsedStrategies(solver, topic_ids, problems)
        costs, is_same = replay_rebalances(rebalances, actual, strategies)
        if costs == actual and (is_same or reproduction is None):
            reproduction = PolicyReproduction(used, costs, exact=True)
        if is_same or not any(policy.sticky for policy in used):
            break
    if reproduction is not None:
        return reproduction
    used = policies.find_used_policies(rebalances, policies.OTHER_SOLVER)
    return PolicyReproduction(used, actual, exact=False)


def replay_rebalances(
    rebalances: Sequence[Rebalance], happened: Sequence[RebalanceCost], strategies: UsedStrategies
) -> tuple[tuple[RebalanceCost, ...], bool]:
    """Returns the costs of the replayed rebalances up to the first that differs from the real one,
    and whether every member got the same partitions.
    """
    counts: Mapping[str, int] = {}
    costs: list[RebalanceCost] = []
    is_same = True
    incarnation = -1
    for rebalance, cost in zip(rebalances, happened, strict=True):
        if rebalance.after.incarnation != incarnation:
            counts, incarnation = {}, rebalance.after.incarnation
        replayed, counts = _replay_rebalance(rebalance, counts, strategies)
        if replayed is not rebalance:
            is_same = False
            if replayed is None or compute_cost(replayed, strategies.problems) != cost:
                break
        costs.append(cost)
    return tuple(costs), is_same


def _replay_rebalance(
    rebalance: Rebalance, counts: Mapping[str, int], strategies: UsedStrategies
) -> tuple[Rebalance | None, Mapping[str, int]]:
    """Replays one rebalance; returns it unchanged if nothing differs."""
    rounds = []
    before = rebalance.before
    if before is not None:
        counts = update_counts(before, counts)
    for generation in rebalance.rounds:
        counts = drop_topics(update_counts(generation, counts), rebalance.absent)
        placed = _replay_generation(generation, before, counts, strategies)
        if placed is None:
            return None, counts
        rounds.append(placed)
        before = generation
    if all(new is old for new, old in zip(rounds, rebalance.rounds, strict=True)):
        return rebalance, counts
    return replace(rebalance, rounds=tuple(rounds)), counts


def _replay_generation(
    generation: Generation,
    before: Generation | None,
    counts: Mapping[str, int],
    strategies: UsedStrategies,
) -> Generation | None:
    """Replays one generation; None if its strategy is unknown."""
    if not generation.members:
        return generation
    assignor = strategies.assignor_for(generation)
    if assignor is None:
        return None
    if isinstance(assignor, RangeAssignor | RoundRobinAssignor | uniform.ServerRangeAssignor):
        joined = {(one.member_id, one.group_instance_id, one.topics) for one in generation.members}
        subscribed = subscribed_counts({topics for _, _, topics in joined}, counts)
        problem = strategies.problems.problem(joined, subscribed)
    else:
        problem = Problem.from_group(Cluster(counts), _make_subscriptions(generation, before))
    owners = assignor.solve(problem).owners
    actual = _actual_owners(problem, generation)
    if actual is not None and np.array_equal(owners, actual):
        return generation
    assignment = GroupAssignment(Placement(problem.layout, problem.members, owners))
    members = (
        replace(member, assigned=assignment[member.member_id].partitions.by_topic())
        for member in generation.members
    )
    return replace(generation, members=tuple(members))


def _actual_owners(problem: Problem, generation: Generation) -> IntArray | None:
    """Returns the real owners by position; None if the problem lacks one of their partitions."""
    layout = problem.layout
    position = {member: at for at, member in enumerate(problem.members)}
    known = assigned_counts(generation)
    if any(t not in layout.index or n > layout.counts[layout.index[t]] for t, n in known.items()):
        return None
    assignments = ((position[member.member_id], member.assigned) for member in generation.members)
    return make_owner_array(layout, assignments)


def _make_subscriptions(
    generation: Generation, before: Generation | None
) -> dict[str, Subscription]:
    """Returns the subscriptions that the leader received; in a consumer group, the broker."""
    classic = generation.kind is GroupType.CLASSIC
    old = {} if before is None else {member_identity(one): one.assigned for one in before.members}
    subscriptions = {}
    for member in generation.members:
        owned = member.owned if classic else old.get(member_identity(member))
        subscriptions[member.member_id] = Subscription(
            topics=member.topics,
            owned=Partitions.of(owned) if owned else NO_PARTITIONS,
            generation=member.owned_generation if classic else 0,
            group_instance_id=member.group_instance_id,
            rack=member.rack if classic else None,
        )
    return subscriptions


def evaluate_policies(  # noqa: PLR0913 (all but three are options)
    generations: Sequence[Generation],
    rebalances: Sequence[Rebalance],
    downtime: GroupDowntime,
    *,
    topic_ids: Mapping[str, bytes] | None = None,
    strategies: Iterable[str] = (),
    assignment_interval: int = ASSIGNMENT_INTERVAL,
    since: int | None = None,
) -> PolicyEvaluation:
    """Replays a group's rebalances under the policy that was used and under all alternatives.
    Returns no rows if the members do not share partitions or their data cannot be decoded.

    :param generations: all generations of the group, in the order of the journal
    :param topic_ids: their order decides which partitions the server's uniform assignor moves
    :param strategies: custom strategies to replay, as ``package.module:Class``
    :param assignment_interval: the least time between two target assignments of a consumer group
    :param since: earlier rebalances are replayed, but have no rows
    """
    if not rebalances or not policies.is_readable_consumer_group(generations):
        return PolicyEvaluation()
    problems = ProblemCache()
    reproduction = reproduce_rebalances(rebalances, topic_ids or {}, problems)
    replay = HistoryReplay(
        generations, rebalances, downtime, topic_ids, problems, assignment_interval, since
    )
    custom = map(policies.make_custom_policy, strategies)
    others = policies.list_alternatives(reproduction.used, replay.sessions, custom)
    rows = [
        *_actual_rows(generations, rebalances, reproduction, downtime),
        *replay.rows_under(others),
    ]
    return PolicyEvaluation(
        rows=[row for row in rows if since is None or row.at >= since],
        used=reproduction.used,
        alternatives={policy.label: policy for policy in others},
        modelled_ms=replay.total_under(reproduction.used),
        spreads=replay.spreads,
        other_readings=replay.other_readings,
    )


class _Reading(NamedTuple):
    events: list[ProcessEvent]
    timing: GroupTiming


class HistoryReplay:
    """A group's history, ready to be replayed under any policy."""

    def __init__(  # noqa: PLR0913, PLR0917 (all but three are options)
        self,
        generations: Sequence[Generation],
        rebalances: Sequence[Rebalance],
        downtime: GroupDowntime,
        topic_ids: Mapping[str, bytes] | None = None,
        problems: ProblemCache | None = None,
        assignment_interval: int = ASSIGNMENT_INTERVAL,
        since: int | None = None,
    ) -> None:
        self._since = since
        self._group = rebalances[0].after.group
        self._topic_ids = topic_ids or {}
        self._problems = problems
        self._assignment_interval = assignment_interval
        events = list_membership_events(generations, rebalances, downtime.events)
        self._history = whatif_membership.follow_partition_counts(events)
        self._restarts = find_restarts(events)
        self._timing = GroupTiming.from_history(events, downtime.heartbeats)
        self._process_events = whatif_membership.list_process_events(
            self._history, self._restarts, self._timing
        )
        self.sessions = policies.suggest_session_timeouts(rebalances, self._restarts)
        used = policies.find_used_policies(rebalances)
        self._memberships = {(one.membership, one.session_timeout) for one in used}
        self._protocols = {one.protocol for one in used}
        self._revoked_times = _mean_revoked_times(downtime)
        self._until = downtime.until
        rest = sum_downtime(piece for piece in downtime.found if not piece.ended)
        self._unended = DowntimeCost(rest.downtime_ms, rest.delayed_records or 0)
        self._rates = downtime.arrival_rates
        self._shut_down = _merge_intervals(
            (piece.since, piece.until)
            for piece in downtime.found
            if piece.reason is DowntimeReason.SHUT_DOWN
        )
        #: By how much the downtime of a policy differs between replays.
        self.spreads: dict[str, int] = {}
        #: The downtime of a policy under each other reading of the evidence.
        self.other_readings: dict[str, tuple[int, ...]] = {}

    def rows_under(self, choices: Iterable[GroupPolicy]) -> list[WhatIf]:
        return [
            _make_row(self._group, choice.label, outcome, has_rates=bool(self._rates))
            for choice in choices
            for outcome in self._replay_policy(choice)
            if not outcome.is_start
        ]

    def _is_same(self, choice: GroupPolicy) -> bool:
        """Returns whether a policy has the used protocol and membership, so the same rebalances."""
        return self._memberships == {(choice.membership, choice.session_timeout)} and (
            choice.protocol is PolicyProtocol.CONSUMER or choice.protocol in self._protocols
        )

    def total_under(self, used: Sequence[GroupPolicy]) -> int | None:
        """Returns the downtime of the used policy if the same happens to the processes again; None
        if the group used several policies, or one that Rota does not know.
        """
        if len(used) != 1 or not used[0].known:
            return None
        policy = used[0]
        if policy.membership is MembershipType.STATIC and policy.session_timeout is None:
            return None
        return self._sum_downtime(self._replay_processes(policy))

    def owners_under(self, choice: GroupPolicy) -> tuple[HistoryIndex, list[tuple[int, IntArray]]]:
        """Returns the owners under a policy from each time on, as numbers of the index."""
        changes = [
            (outcome.happens_at, outcome.placed.owners)
            for outcome in self._replay_policy(choice)
            if outcome.happens_at is not None
        ]
        if not self._is_same(choice):
            changes.sort(key=itemgetter(0))
        return self._index, changes

    @cached_property
    def _index(self) -> HistoryIndex:
        seen = (
            counts
            for place in self._history
            for counts in (place.counts, *(known for _, known in place.earlier))
        )
        index = HistoryIndex(largest_counts(seen), self._problems)
        for event in self._process_events:
            if event.member is not None:
                index.number(whatif_membership.member_name(event.member))
                for is_static in (False, True):
                    whatif_replay.member_number(index, event, is_static=is_static)
        return index

    @cached_property
    def _rebalances(self) -> list[whatif_membership.WhatIfRebalance]:
        return whatif_membership.list_rebalances(self._history, self._index, self._timing)

    @cached_property
    def _counter(self) -> DowntimeCounter:
        layout = self._index.layout
        rates = np.zeros(layout.size)
        for (topic, number), rate in self._rates.items():
            place = layout.index.get(topic)
            if place is not None and number < layout.counts[place]:
                rates[layout.starts[place] + number] = rate
        return DowntimeCounter(rates, self._shut_down)

    def _replay_policy(self, choice: GroupPolicy) -> Iterable[PolicyOutcome]:
        if self._is_same(choice):
            return self._replay_history(choice)
        return self._replay_processes(choice)

    def _replay_processes(self, choice: GroupPolicy) -> list[PolicyOutcome]:
        """Replays what happened to the processes: the median of several draws of heartbeats."""
        draws = DRAWS if len(self._process_events) <= MAX_DRAWN_EVENTS else 1
        usual = _Reading(self._process_events, self._timing)
        outcomes: list[list[PolicyOutcome]] = []
        totals: list[int] = []
        while len(outcomes) < draws and not _is_stable(totals):
            outcomes.append(self._replay_reading(choice, usual, len(outcomes)))
            totals.append(sum(outcome.cost.downtime for outcome in outcomes[-1]))
        draws = len(outcomes)
        counted = sorted(map(self._sum_downtime, outcomes))
        counted = counted[draws // 4 : draws - draws // 4]  # without the extremes
        self.spreads[choice.label] = counted[-1] - counted[0]
        self.other_readings[choice.label] = tuple(
            self._sum_downtime(self._replay_reading(choice, reading)) for reading in self._readings
        )
        return outcomes[sorted(range(draws), key=totals.__getitem__)[draws // 2]]

    def _replay_reading(
        self, choice: GroupPolicy, reading: _Reading, draw: int = 0
    ) -> list[PolicyOutcome]:
        replay = whatif_replay.MembershipReplay(
            choice,
            self._index,
            reading.timing,
            self._assignment_interval,
            self._history,
            make_placement_function(choice, self._topic_ids),  # hooks may have a state
            self._counter,
            self._until,
            draw,
        )
        return list(replay.run(reading.events))

    def _sum_downtime(self, outcomes: Iterable[PolicyOutcome]) -> int:
        since = -END_OF_TIME if self._since is None else self._since
        return sum(outcome.cost.downtime for outcome in outcomes if outcome.at >= since)

    @cached_property
    def _readings(self) -> list[_Reading]:
        """The other readings of the evidence, in a group of static members: the members send
        heartbeats less often; those that may have closed or crashed have crashed.
        """
        found: list[_Reading] = []
        if any(membership is not MembershipType.STATIC for membership, _ in self._memberships):
            return found
        events, timing = self._process_events, self._timing
        heartbeats = timing.heartbeats
        longest = heartbeats.longest_usual_interval
        if not heartbeats.is_known and longest > heartbeats.interval:
            seldom = replace(heartbeats, interval=longest)
            found.append(_Reading(events, replace(timing, heartbeats=seldom)))
        if any(event.is_guess for event in events):
            crashes = [
                event._replace(type=ProcessEventType.CRASHED) if event.is_guess else event
                for event in events
            ]
            found.append(_Reading(crashes, timing))
        return found

    def _replay_history(self, choice: GroupPolicy) -> Iterator[PolicyOutcome]:
        """Replays the rebalances of the history; each starts from the assignment before."""
        place = make_placement_function(choice, self._topic_ids)
        layout = self._index.layout
        clock = HistoryClock(
            choice,
            self._index,
            self._timing,
            self._assignment_interval,
            self._revoked_times,  # every eager strategy revokes all partitions
            self._counter,
        )
        unassigned = np.full(layout.size, UNASSIGNED, dtype=np.int32)
        last = SnapshotPlacement(unassigned, unassigned, 0, 0, 0)
        owners = unassigned
        for each in self._rebalances:
            if each.starts_new_incarnation:
                owners = unassigned
                clock.start_incarnation()
            snapshot = each.snapshot
            moves, cost = NO_MOVES, NO_DOWNTIME
            happens = snapshot is not None and (
                each.is_needed or choice.protocol is not PolicyProtocol.CONSUMER
            )
            if snapshot is None:
                cost = clock.count_returned(each, owners)
            elif happens:
                snapshots = (*each.earlier_snapshots, snapshot)
                last, moves = run_rebalance(choice.protocol, snapshots, owners, place)
                cost = clock.count_rebalance(each, snapshot, owners, last.owners, moves)
                owners = last.owners
            at = each.at if happens else None
            yield PolicyOutcome(
                each.incarnation, each.generation, each.at, at, last, moves, cost, each.is_start
            )
        if self._unended.downtime:  # it has the same reason under this policy
            yield PolicyOutcome(
                each.incarnation, each.generation, each.at + 1, None, last, NO_MOVES, self._unended
            )


def _merge_intervals(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for since, until in sorted(set(intervals)):
        if merged and since <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(until, merged[-1][1])
        else:
            merged.append((since, until))
    return merged


def _is_stable(totals: Sequence[int]) -> bool:
    """Returns whether more draws would give nearly the same downtime."""
    return len(totals) >= MIN_DRAWS and max(totals) - min(totals) <= STABLE_SHARE * min(totals)


def _mean_revoked_times(downtime: GroupDowntime) -> dict[tuple[int, int], int]:
    """Returns for how long each eager rebalance revoked a partition, on average."""
    times: Counter[tuple[int, int]] = Counter()
    pieces: Counter[tuple[int, int]] = Counter()
    for piece in downtime.found:
        if piece.reason is DowntimeReason.REVOKED and piece.to_generation is not None:
            end = piece.incarnation, piece.to_generation
            times[end] += piece.until - piece.since
            pieces[end] += 1
    return {end: time // pieces[end] for end, time in times.items()}


def _actual_rows(
    generations: Sequence[Generation],
    rebalances: Sequence[Rebalance],
    reproduction: PolicyReproduction,
    downtime: GroupDowntime,
) -> Iterator[WhatIf]:
    """Returns the rows of the used policy, with the measured downtime; the return of a static
    member and downtime that has not ended have rows without a rebalance.
    """
    label = policies.label_used_policies(reproduction.used)
    #: By the rebalance that ended the downtime, the time of a return, or None if it has not ended.
    times: Counter[tuple[int, int] | int | None] = Counter()
    delayed: Counter[tuple[int, int] | int | None] = Counter()
    for piece in downtime.found:
        if piece.reason in UNCOUNTED_REASONS:
            continue
        end: tuple[int, int] | int | None = None
        if piece.ended:
            number = piece.to_generation
            end = piece.until if number is None else (piece.incarnation, number)
        times[end] += piece.until - piece.since
        if piece.delayed_records is not None:
            delayed[end] += piece.delayed_records
    #: Generation, time, costs (None: no rebalance), downtime and delayed records.
    rows: list[tuple[Generation, int, RebalanceCost | None, int, int]] = []
    for rebalance, cost in zip(rebalances, reproduction.costs, strict=True):
        after = rebalance.after
        key = after.incarnation, after.generation
        rows.append((after, after.at, cost, times[key], delayed[key]))
    replaced = (one for one in generations if one.change is GenerationChange.REPLACED)
    rows += [
        (one, one.at, None, times.pop(one.at), delayed[one.at]) for one in replaced if times[one.at]
    ]
    if times[None]:
        last = generations[-1]
        at = max(last.at, rebalances[-1].after.at) + 1
        rows.append((last, at, None, times[None], delayed[None]))
    for generation, at, found, time, records in rows:
        yield WhatIf(
            group=generation.group,
            incarnation=generation.incarnation,
            to_generation=generation.generation,
            at=at,
            policy=label,
            actual=True,
            happens=found is not None,
            happens_at=None if found is None else at,
            downtime_ms=time,
            delayed_records=records if downtime.arrival_rates else None,
            moved=0 if found is None else found.moved,
            moves_needed=0 if found is None else found.moves_needed,
            revoked=0 if found is None else found.revoked,
            idle_members=0 if found is None else found.idle_members,
            spread=0 if found is None else found.most - found.least,
        )


def _make_row(group: str, policy: str, outcome: PolicyOutcome, *, has_rates: bool) -> WhatIf:
    placed, moves = outcome.placed, outcome.moves
    return WhatIf(
        group=group,
        incarnation=outcome.incarnation,
        to_generation=outcome.generation,
        at=outcome.at,
        policy=policy,
        actual=False,
        happens=outcome.happens_at is not None,
        happens_at=outcome.happens_at,
        downtime_ms=outcome.cost.downtime,
        delayed_records=round(outcome.cost.delayed) if has_rates else None,
        moved=moves.moved,
        moves_needed=moves.needed,
        revoked=moves.revoked,
        idle_members=placed.idle,
        spread=placed.most - placed.least,
    )


def list_advised_ownership(
    generations: Sequence[Generation],
    rebalances: Sequence[Rebalance],
    policy: GroupPolicy | None,
    downtime: GroupDowntime,
    topic_ids: Mapping[str, bytes] | None = None,
) -> list[AdvisedOwnership]:
    """Returns the rows of gold/advised, by partition and time; none if no change is advised. Times
    are ``happens_at`` in gold/whatif. A partition that moves in a cooperative rebalance changes its
    owner at once, as the times of the rounds are unknown.
    """
    if policy is None:
        return []
    replay = HistoryReplay(generations, rebalances, downtime, topic_ids)
    index, changes = replay.owners_under(policy)
    layout = index.layout
    owners: IntArray = np.full(layout.size, UNASSIGNED, dtype=np.int32)
    since = np.zeros(layout.size, dtype=np.int64)
    spans: list[tuple[int, int, int, int | None]] = []  # partition position, owner, since, until
    now = -END_OF_TIME
    for at, new in changes:
        now = max(now, at)  # a timestamp may go back
        changed = np.flatnonzero(owners != new)
        ended = changed[(owners[changed] != UNASSIGNED) & (since[changed] < now)]
        spans += [(place, int(owners[place]), int(since[place]), now) for place in ended.tolist()]
        since[changed] = now
        owners = new
    owned = np.flatnonzero(owners != UNASSIGNED)
    spans += [(place, int(owners[place]), int(since[place]), None) for place in owned.tolist()]
    # the last entry of a name wins: its first generation
    members = {
        name: one
        for each in reversed(generations)
        for one in each.members
        for name in (one.member_id, whatif_membership.member_name(one))
    }
    rows = []
    for place, owner, start, until in sorted(spans, key=itemgetter(0, 2)):
        topic, member = int(layout.topic_of[place]), members[index.member_id(owner)]
        rows.append(
            AdvisedOwnership(
                group=rebalances[0].after.group,
                topic=layout.topics[topic],
                partition=place - int(layout.starts[topic]),
                member_id=member.member_id,
                client_id=member.client_id,
                client_host=member.client_host,
                since=start,
                until=until,
            )
        )
    return rows
