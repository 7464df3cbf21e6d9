"""Measures Rota on a case, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from bench.case import Case, Step, StepKind
from bench.measure import Measurement, TimeLimitExceeded, best_run, peak_memory
from rota.engine.assignors.interface import ColumnarAssignor
from rota.engine.assignors.problem import Problem
from rota.engine.model.member import UNASSIGNED, Placement, Subscription
from rota.engine.model.topic import NO_PARTITIONS, Cluster, IntArray, Partitions

GENERATION = 1

Check = Callable[[Problem, IntArray], str | None]
Owned = Mapping[str, Partitions]


def make_cluster(case: Case) -> Cluster:
    """The case's topics."""
    return Cluster(dict(case.topics))


def make_group(case: Case, step: Step, owned: Owned) -> dict[str, Subscription]:
    """The step's members, each with what it owned before."""
    listings = [tuple(case.topics[topic][0] for topic in topics) for topics in case.classes]
    return {
        member: Subscription(
            topics=listings[number],
            owned=owned.get(member, NO_PARTITIONS),
            generation=GENERATION if member in owned else None,
        )
        for member, number in step.members
    }


def deal_topics(case: Case, step: Step) -> Owned:
    """Each topic in a circle over its subscribers."""
    found: dict[str, list[tuple[str, int]]] = {}
    for position, (topic, count) in enumerate(case.topics):
        subscribers = [m for m, number in step.members if position in case.classes[number]]
        for number in range(count):
            found.setdefault(subscribers[number % len(subscribers)], []).append((topic, number))
    return {member: Partitions.of(partitions) for member, partitions in found.items()}


def owned_after(problem: Problem, owners: IntArray) -> Owned:
    """What each member has, to be told in the next step."""
    placement = Placement(problem.layout, problem.members, owners)
    return {
        member: problem.layout.partitions_at(placement.numbers_of(position))
        for position, member in enumerate(problem.members)
    }


def find_error(problem: Problem, owners: IntArray) -> str | None:
    """What is wrong with a result, if anything."""
    if (owners < 0).any() or (owners >= len(problem.members)).any():
        return "a partition without an owner"
    if not problem.subscribes[problem.class_of[owners], problem.layout.topic_of].all():
        return "an owner that does not subscribe"
    return None


def count_moved(problem: Problem, owners: IntArray) -> int:
    """How many partitions changed hands between members that are there."""
    before = np.full(problem.layout.size, UNASSIGNED, dtype=np.int32)
    before[problem.claims.partition] = problem.claims.member
    return int(((before >= 0) & (before != owners)).sum())


def measure_steps(
    case: Case,
    strategy: ColumnarAssignor,
    *,
    limit: float,
    budget: float,
    checks: tuple[Check, ...] = (find_error,),
) -> dict[str, Measurement]:
    """What ``solve`` takes for each timed step, from arrays to arrays: the problem is posed before
    the clock starts. Each step starts from the strategy's own result of the one it comes after.
    """
    topics = make_cluster(case)
    owned: dict[str | None, Owned] = {None: {}}
    taken: dict[str, Measurement] = {}
    for step in case.steps:
        if step.play is StepKind.DEALT:
            owned[step.name] = deal_topics(case, step)
            continue
        if step.after not in owned:
            taken[step.name] = Measurement(seconds=None, trouble=f"no result for {step.after}")
            continue
        members = make_group(case, step, owned[step.after])

        def posed(members: Mapping[str, Subscription] = members) -> Problem:
            return Problem.from_group(topics, members, strategy.read_ownership)

        timed = step.play is StepKind.TIMED
        try:
            seconds, solution = best_run(
                posed, strategy.solve, limit=limit, budget=budget if timed else 0
            )
        except TimeLimitExceeded:
            taken[step.name] = Measurement(seconds=limit, over=True)
            continue
        except NotImplementedError:
            taken[step.name] = Measurement(seconds=None, trouble="not there yet")
            continue
        problem = posed()
        owned[step.name] = owned_after(problem, solution.owners)
        if timed:
            loads = np.bincount(solution.owners, minlength=len(problem.members))
            wrong = (check(problem, solution.owners) for check in checks)
            taken[step.name] = Measurement(
                seconds=seconds,
                loads=(int(loads.min()), int(loads.max())),
                moved=count_moved(problem, solution.owners),
                peak=peak_memory(posed, strategy.solve),
                trouble=next((reason for reason in wrong if reason is not None), None),
            )
    return taken
