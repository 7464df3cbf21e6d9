"""The fewest moves, counted without placing anything, are those of the exact solver's placement."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rota.engine.assignors.exact import solver
from rota.engine.assignors.exact.solver import FewestMoves
from rota.engine.assignors.problem import Problem, count_moves, find_previous_owners
from rota.engine.model.member import Subscription
from rota.engine.model.topic import Cluster, Partitions
from tests.support.seeded_groups import random_group


def never() -> bool:
    return False


def check_fewest_moves(problem: Problem) -> None:
    previous = find_previous_owners(problem)
    placed = solver.solve_exactly(problem, never).owners
    assert FewestMoves(problem).count(previous, never) == (count_moves(previous, placed), True)


@given(seed=st.integers(0, 10**9))
def test_with_any_subscriptions(seed: int) -> None:
    check_fewest_moves(Problem.from_group(*random_group(seed)))


@given(
    counts=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    members=st.integers(1, 9),
    seed=st.integers(0, 10**9),
)
def test_with_equal_subscriptions(counts: list[int], members: int, seed: int) -> None:
    dice = random.Random(seed)
    topics = {f"t{number}": count for number, count in enumerate(counts)}
    owned: list[list[tuple[str, int]]] = [[] for _ in range(members)]
    lean = dice.randint(1, members)
    for topic, count in topics.items():
        for number in range(count):
            if dice.random() < 0.9:
                owned[dice.randrange(lean)].append((topic, number))
    group = {
        f"m{number}": Subscription(
            topics=tuple(topics), owned=Partitions.of(owned[number]), generation=1
        )
        for number in range(members)
    }
    check_fewest_moves(Problem.from_group(Cluster(topics), group))


def test_what_nobody_wants_to_keep_does_not_move() -> None:
    assert count_moves(np.array([-1, 0, 1], np.int32), np.array([0, 1, 1], np.int32)) == 1
