"""The policy that was used, played again: does it give what the journal has?

Members' claims are taken from the journal, where they made any, so this asks one thing alone:
whether Rota's strategy of that name is the one that placed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rota.assignors import server
from rota.assignors.interface import ColumnarAssignor
from rota.assignors.problem import Problem
from rota.assignors.range import Range
from rota.assignors.registry import BUILT_IN, resolve
from rota.assignors.roundrobin import RoundRobin
from rota.model.membership import GroupAssignment, Placement, Subscription
from rota.model.topic import NO_PARTITIONS, Cluster, IntArray, Partitions
from rota.replay.cost import cost
from rota.replay.fact import Cost, Generation, Held, Kind, Step
from rota.replay.policy import EXACT, KAFKA, OTHER, Policy, used_by
from rota.replay.scene import (
    Poses,
    followed,
    identity,
    owners_of,
    seen_counts,
    wanted_counts,
    without,
)

SOLVERS = (KAFKA, EXACT)


@dataclass(frozen=True, slots=True)
class Strategies:
    """How generations were placed, if Rota can tell."""

    solver: str
    topic_ids: Mapping[str, bytes]
    poses: Poses

    def of(self, generation: Generation) -> ColumnarAssignor | None:
        """The strategy of a generation; None where there is none of that name."""
        name = generation.strategy or ""
        if generation.kind is Kind.CONSUMER:
            known = name in server.KNOWN
            return server.resolve(name, topic_ids=self.topic_ids) if known else None
        found = resolve(name, solver=self.solver) if name in BUILT_IN else None
        return found if isinstance(found, ColumnarAssignor) else None


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What was used, and what each step cost when played again."""

    used: tuple[Policy, ...]
    costs: tuple[Cost, ...]
    exact: bool
    """Every step came out as it did; else the costs are those of history."""


def reproduce(
    steps: Sequence[Step], topic_ids: Mapping[str, bytes], poses: Poses | None = None
) -> Reproduction:
    """Plays all steps with the solver that gives what happened: the very partitions, or at least
    as many moved, stopped and placed.
    """
    poses = Poses() if poses is None else poses
    happened = tuple(cost(step, poses) for step in steps)
    found: Reproduction | None = None
    for solver in SOLVERS:
        used = used_by(steps, solver)
        costs, same = replayed(steps, happened, Strategies(solver, topic_ids, poses))
        if costs == happened and (same or found is None):
            found = Reproduction(used, costs, exact=True)
        if same or not any(policy.sticky for policy in used):
            break
    return found or Reproduction(used_by(steps, OTHER), happened, exact=False)


def replayed(
    steps: Sequence[Step], happened: Sequence[Cost], strategies: Strategies
) -> tuple[tuple[Cost, ...], bool]:
    """What each step costs when a strategy places it again, as far as it costs the same; and
    whether it gave everyone the same partitions.
    """
    counts: Mapping[str, int] = {}
    costs: list[Cost] = []
    same = True
    life = -1
    for step, was in zip(steps, happened, strict=True):
        if step.after.life != life:
            counts, life = {}, step.after.life
        again, counts = _again(step, counts, strategies)
        if again is not step:
            same = False
            if again is None or cost(again, strategies.poses) != was:
                break
        costs.append(was)
    return tuple(costs), same


def _again(
    step: Step, counts: Mapping[str, int], strategies: Strategies
) -> tuple[Step | None, Mapping[str, int]]:
    """The same step with its rounds placed again; itself where nothing differs."""
    rounds = []
    before = step.before
    if before is not None:
        counts = followed(before, counts)
    for generation in step.rounds:
        counts = without(followed(generation, counts), step.absent)
        placed = _placed(generation, before, counts, strategies)
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
    strategies: Strategies,
) -> Generation | None:
    """A generation with what its strategy gives; None where there is no such strategy."""
    if not generation.members:
        return generation
    assignor = strategies.of(generation)
    if assignor is None:
        return None
    if isinstance(assignor, Range | RoundRobin | server.ServerRange):
        asking = {(one.member_id, one.static_id, one.topics) for one in generation.members}
        wanted = wanted_counts({topics for _, _, topics in asking}, counts)
        problem = strategies.poses.problem(asking, wanted)
    else:
        problem = Problem.of(Cluster(counts), _subscriptions(generation, before))
    owners = assignor.solve(problem).owners
    happened = _given(problem, generation)
    if happened is not None and np.array_equal(owners, happened):
        return generation
    given = GroupAssignment(Placement(problem.layout, problem.members, owners))
    members = (
        replace(member, assigned=given[member.member_id].partitions.by_topic())
        for member in generation.members
    )
    return replace(generation, members=tuple(members))


def _given(problem: Problem, generation: Generation) -> IntArray | None:
    """Who was given what, in terms of the problem; None where it has no such partition."""
    layout = problem.layout
    position = {member: at for at, member in enumerate(problem.members)}
    seen = seen_counts(generation)
    if any(t not in layout.index or n > layout.counts[layout.index[t]] for t, n in seen.items()):
        return None
    held = ((position[member.member_id], member.assigned) for member in generation.members)
    return owners_of(layout, held)


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
