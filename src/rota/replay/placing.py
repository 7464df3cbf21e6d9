"""How each policy places: from a scene and who held what in it to who gets what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from rota.assignors import exact, kafka, server
from rota.assignors.problem import Problem
from rota.assignors.range import Range
from rota.assignors.roundrobin import RoundRobin
from rota.model.topic import IntArray
from rota.replay.policy import EXACT, Policy, Protocol
from rota.replay.scene import Placed, Scene, claiming

Placing: TypeAlias = Callable[[Scene, IntArray], Placed]
"""The placement in a scene, given the previous owner of each partition (-1: none)."""

Solve: TypeAlias = Callable[[Problem], IntArray]


def placing(policy: Policy, topic_ids: Mapping[str, bytes]) -> Placing:
    """How a policy places."""
    if policy.protocol is Protocol.CONSUMER:
        assignor = server.resolve(policy.strategy, topic_ids=topic_ids)
        if policy.strategy == server.ServerRange.name:
            return _memoryless("range", lambda problem: assignor.solve(problem).owners)
        return _sticky("uniform", lambda problem: assignor.solve(problem).owners)
    if policy.sticky:
        solver = exact.solve if policy.solver == EXACT else kafka.solve
        return _sticky(policy.solver, lambda problem: solver(problem, _never).owners)
    dealt = Range() if policy.strategy == Range.name else RoundRobin()
    return _memoryless(policy.strategy, lambda problem: dealt.solve(problem).owners)


def _never() -> bool:
    return False


def _memoryless(name: str, solve: Solve) -> Placing:
    """Who held what does not matter, so a scene is placed once."""

    def place(scene: Scene, _previous: IntArray) -> Placed:
        found = scene.placed.get((name, b""))
        if found is None:
            found = scene.placed[name, b""] = Placed.of(scene, solve(scene.problem))
        return found

    return place


def _sticky(name: str, solve: Solve) -> Placing:
    """Sticky and the rounds of cooperative-sticky ask the same as long as their owners agree."""

    def place(scene: Scene, previous: IntArray) -> Placed:
        key = name, previous.tobytes()
        found = scene.placed.get(key)
        if found is None:
            problem = scene.problem
            placed = solve(problem.claimed(claiming(problem, previous)))
            found = scene.placed[key] = Placed.of(scene, placed)
        return found

    return place
