"""The policy that was used, played again: does it give what the journal has?

Members' claims are taken from the journal, where they made any, so this asks one thing alone:
whether Rota's strategy of that name is the one that placed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rota.assignors import server
from rota.assignors.cooperative import CooperativeSticky
from rota.assignors.interface import ColumnarAssignor
from rota.assignors.problem import Problem
from rota.assignors.range import Range
from rota.assignors.roundrobin import RoundRobin
from rota.assignors.sticky import Sticky
from rota.errors import UnknownStrategy
from rota.model.membership import GroupAssignment, Placement, Subscription
from rota.model.topic import NO_PARTITIONS, Cluster, Partitions
from rota.replay.cost import cost
from rota.replay.fact import Cost, Generation, Held, Kind, Step
from rota.replay.policy import Policy, used_by
from rota.replay.scene import followed, identity

SOLVERS = ("kafka", "exact")


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What was used, and what each step cost when played again."""

    used: tuple[Policy, ...]
    costs: tuple[Cost, ...]
    exact: bool
    """Every step came out as it did; else the costs are those of history."""


def reproduce(steps: Sequence[Step], topic_ids: Mapping[str, bytes]) -> Reproduction:
    """Plays all steps with the solver that gives what happened."""
    happened = tuple(cost(step) for step in steps)
    for solver in SOLVERS:
        used = used_by(steps, solver)
        costs = replayed(steps, happened, solver, topic_ids)
        if costs == happened:
            return Reproduction(used, costs, exact=True)
        if not any(policy.sticky for policy in used):
            break
    return Reproduction(used_by(steps), happened, exact=False)


def replayed(
    steps: Sequence[Step], happened: Sequence[Cost], solver: str, topic_ids: Mapping[str, bytes]
) -> tuple[Cost, ...] | None:
    """What each step costs when a strategy places it again; None at the first that differs."""
    counts: Mapping[str, int] = {}
    costs = []
    life = -1
    for step, was in zip(steps, happened, strict=True):
        if step.after.life != life:
            counts, life = {}, step.after.life
        again, counts = _again(step, counts, solver, topic_ids)
        if again is None:
            return None
        costs.append(was if again is step else cost(again))
        if costs[-1] != was:
            return None
    return tuple(costs)


def _again(
    step: Step, counts: Mapping[str, int], solver: str, topic_ids: Mapping[str, bytes]
) -> tuple[Step | None, Mapping[str, int]]:
    """The same step with its rounds placed again; itself where nothing differs."""
    rounds = []
    before = step.before
    if before is not None:
        counts = followed(before, counts)
    for generation in step.rounds:
        counts = followed(generation, counts)
        placed = _placed(generation, before, counts, solver, topic_ids)
        if placed is None:
            return None, counts
        rounds.append(placed)
        before = generation
    if all(new is old for new, old in zip(rounds, step.rounds, strict=True)):
        return step, counts
    return replace(step, rounds=tuple(rounds)), counts


def _placed(
    generation: Generation,
    before: Generation | None,
    counts: Mapping[str, int],
    solver: str,
    topic_ids: Mapping[str, bytes],
) -> Generation | None:
    """A generation with what its strategy gives; None where there is no such strategy."""
    if not generation.members:
        return generation
    assignor = _assignor(generation, solver, topic_ids)
    if assignor is None:
        return None
    problem = Problem.of(Cluster(counts), _subscriptions(generation, before))
    placement = Placement(problem.layout, problem.members, assignor.solve(problem).owners)
    given = GroupAssignment(placement)
    members = []
    for member in generation.members:
        held = given[member.member_id].partitions.by_topic()
        same = held == {topic: tuple(n) for topic, n in member.assigned.items() if n}
        members.append(member if same else replace(member, assigned=held))
    if all(new is old for new, old in zip(members, generation.members, strict=True)):
        return generation
    return replace(generation, members=tuple(members))


def _assignor(
    generation: Generation, solver: str, topic_ids: Mapping[str, bytes]
) -> ColumnarAssignor | None:
    name = generation.strategy or ""
    if generation.kind is Kind.CONSUMER:
        try:
            return server.resolve(name, topic_ids=topic_ids)
        except UnknownStrategy:
            return None
    match name:
        case Range.name:
            return Range()
        case RoundRobin.name:
            return RoundRobin()
        case Sticky.name:
            return Sticky(solver=solver)
        case CooperativeSticky.name:
            return CooperativeSticky(solver=solver)
        case _:
            return None


def _subscriptions(generation: Generation, before: Generation | None) -> dict[str, Subscription]:
    """What the leader heard from each member; of a consumer group what the broker had for it."""
    if generation.kind is Kind.CLASSIC:
        return {
            member.member_id: Subscription(
                topics=member.topics,
                owned=_partitions(member.owned),
                generation=member.owned_generation,
                static_id=member.static_id,
                rack=member.rack,
            )
            for member in generation.members
        }
    had = {} if before is None else {identity(one): one.assigned for one in before.members}
    return {
        member.member_id: Subscription(
            topics=member.topics,
            owned=_partitions(had.get(identity(member), {})),
            generation=0,
            static_id=member.static_id,
        )
        for member in generation.members
    }


def _partitions(held: Held) -> Partitions:
    return Partitions.of(held) if held else NO_PARTITIONS
