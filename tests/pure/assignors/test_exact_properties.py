"""The exact solver and its certificate against judges that share no code with them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.engine.assignors import certificate
from rota.engine.assignors.exact import solver
from rota.engine.assignors.problem import Problem, find_previous_owners
from rota.engine.model.member import Placement, Subscription
from rota.engine.model.topic import Cluster, IntArray, Partitions
from tests.support import flow_oracle
from tests.support.examples import first
from tests.support.seeded_groups import random_group, random_problem

BRUTE_FORCE_LIMIT = 3_000

Item = TypeVar("Item")


def never() -> bool:
    return False


def solve_owners(problem: Problem) -> list[int]:
    """The owners, after a check that each may own what it is given."""
    owners: list[int] = solver.solve_exactly(problem, never).owners.tolist()
    for owner, may in zip(owners, flow_oracle.subscribers(problem), strict=True):
        assert owner in may
    return owners


def check_against_flow(
    seed: int, *, members: int = 8, topics: int = 6, partitions: int = 6
) -> None:
    problem = random_problem(
        seed, members=members, topics=topics, partitions=partitions, racks=seed % 2 == 1
    )
    found = flow_oracle.goal_of(problem, solve_owners(problem))
    assert found == flow_oracle.minimum_cost_flow(problem), f"seed {seed}"


@pytest.mark.parametrize("block", first(3, range(12)))
def test_equals_an_independent_minimum_cost_flow(block: int) -> None:
    for seed in range(block * 250, block * 250 + 250):
        check_against_flow(seed)


def test_equals_the_flow_on_larger_groups() -> None:
    for seed in range(200):
        check_against_flow(seed, members=16, topics=14, partitions=9)


@pytest.mark.nightly
def test_equals_the_flow_all_night() -> None:
    for seed in range(10_000, 100_000):
        check_against_flow(seed)
    for seed in range(10_000):
        check_against_flow(seed, members=16, topics=14, partitions=9)


def check_against_brute_force(seed: int, limit: int) -> bool:
    problem = random_problem(seed, members=6, topics=4, partitions=3, racks=seed % 2 == 1)
    choices = flow_oracle.subscribers(problem)
    if problem.layout.size > 8 or np.prod([len(may) for may in choices]) > limit:
        return False
    found = flow_oracle.goal_of(problem, solve_owners(problem))
    assert found == flow_oracle.brute_force(problem), f"seed {seed}"
    return True


def test_equals_brute_force() -> None:
    assert sum(check_against_brute_force(seed, BRUTE_FORCE_LIMIT) for seed in range(600)) > 300


@pytest.mark.nightly
def test_equals_brute_force_all_night() -> None:
    assert sum(check_against_brute_force(seed, 50_000) for seed in range(5_000)) > 2_500


def check_large(topics: int, partitions: int, members: int, least: int, most: int) -> None:
    """Fresh, after a member left and after one joined: proved best by the certificate."""
    dice = random.Random(topics)
    names = [f"t{number}" for number in range(topics)]
    cluster = Cluster(dict.fromkeys(names, partitions))
    group = {
        f"m{number}": Subscription(topics=tuple(dice.sample(names, dice.randint(least, most))))
        for number in range(members)
    }
    problem = Problem.from_group(cluster, group)
    owners = solver.solve_exactly(problem, never).owners
    assert certificate.certify(problem, owners).flaw is None
    group = {
        member: Subscription(topics=group[member].topics, owned=owned)
        for member, owned in partitions_by_member(problem, owners).items()
    }
    del group["m7"]
    group["newcomer"] = Subscription(topics=tuple(names[:most]))
    problem = Problem.from_group(cluster, group)
    assert certificate.certify(problem, solver.solve_exactly(problem, never).owners).flaw is None


def partitions_by_member(problem: Problem, owners: IntArray) -> dict[str, Partitions]:
    placement = Placement(problem.layout, problem.members, owners)
    return {
        member: problem.layout.partitions_at(placement.numbers_of(position))
        for position, member in enumerate(problem.members)
    }


def test_large_groups_are_proved_best() -> None:
    check_large(200, 200, 500, 60, 140)
    check_large(1_000, 10, 1_000, 1, 20)


@pytest.mark.nightly
def test_very_large_groups_are_proved_best() -> None:
    check_large(5_000, 20, 5_000, 5, 50)


def mutate_owners(problem: Problem, owners: list[int], dice: random.Random) -> list[int]:
    """Some partitions given to others, or swapped."""
    may = flow_oracle.subscribers(problem)
    changed = list(owners)
    for _ in range(dice.randint(1, 3)):
        one, other = dice.randrange(len(owners)), dice.randrange(len(owners))
        if dice.random() < 0.5:
            changed[one] = dice.choice(may[one])
        elif changed[other] in may[one] and changed[one] in may[other]:
            changed[one], changed[other] = changed[other], changed[one]
    return changed


def check_certificate(seed: int) -> tuple[int, int]:
    """The certificate's verdict on a best result and on mutations of it; how many of these were
    as good, and how many not.
    """
    problem = random_problem(seed, racks=seed % 2 == 1)
    owners = solve_owners(problem)
    assert certificate.certify(problem, np.array(owners, dtype=np.int32)).flaw is None, (
        f"seed {seed}"
    )
    if not owners:
        return 0, 0
    best = flow_oracle.goal_of(problem, owners)
    dice = random.Random(seed)
    good = bad = 0
    for _ in range(4):
        other = mutate_owners(problem, owners, dice)
        as_good = flow_oracle.goal_of(problem, other) == best
        verdict = certificate.certify(problem, np.array(other, dtype=np.int32)).flaw
        assert (verdict is None) == as_good, f"seed {seed}: {verdict}"
        good, bad = good + as_good, bad + (not as_good)
    return good, bad


def test_certificate_accepts_exactly_the_best() -> None:
    verdicts = [check_certificate(seed) for seed in range(1_000)]
    assert sum(good for good, _ in verdicts) > 500
    assert sum(bad for _, bad in verdicts) > 500


@pytest.mark.nightly
def test_certificate_accepts_exactly_the_best_all_night() -> None:
    for seed in range(1_000, 50_000):
        check_certificate(seed)


def test_certificate_accepts_only_the_best_of_any_assignment() -> None:
    for seed in range(400):
        problem = random_problem(seed, members=4, topics=3, partitions=3, racks=seed % 2 == 1)
        may = flow_oracle.subscribers(problem)
        best = flow_oracle.minimum_cost_flow(problem)
        dice = random.Random(seed)
        for _ in range(10):
            owners = [dice.choice(members) for members in may]
            verdict = certificate.certify(problem, np.array(owners, dtype=np.int32)).flaw
            assert (verdict is None) == (flow_oracle.goal_of(problem, owners) == best), seed


def test_certificate_names_what_is_wrong() -> None:
    subscription = Subscription(topics=("t",))
    other = Subscription(topics=("u",))
    cluster = Cluster({"t": 4, "u": 1})
    problem = Problem.from_group(cluster, {"a": subscription, "b": subscription, "c": other})
    verdicts = {
        (0, 0, 1, 1, 2): None,
        (0, 0, 1, 1): "not one owner for each partition",
        (0, 0, 1, -1, 2): "a partition without an owner",
        (0, 0, 1, 2, 2): "an owner that does not subscribe",
        (0, 0, 0, 1, 2): "loads could be more even",
    }
    for owners, verdict in verdicts.items():
        assert certificate.certify(problem, np.array(owners, dtype=np.int32)).flaw == verdict


def reorder_group(
    cluster: Cluster, group: dict[str, Subscription], dice: random.Random
) -> tuple[Cluster, dict[str, Subscription]]:
    def shuffled(listed: Iterable[Item]) -> list[Item]:
        known = list(listed)
        return dice.sample(known, len(known))

    other = Cluster(
        dict(shuffled(cluster.partitions.items())),
        dict(shuffled(cluster.racks.items())),
    )
    members = {
        member: Subscription(
            topics=tuple(shuffled(subscription.topics)),
            owned=Partitions.of(shuffled(subscription.owned)),
            generation=subscription.generation,
            rack=subscription.rack,
        )
        for member, subscription in shuffled(group.items())
    }
    return other, members


@given(seed=st.integers(0, 10**9), racks=st.booleans())
def test_order_of_the_input_does_not_matter(seed: int, racks: bool) -> None:
    cluster, group = random_group(seed, racks=racks)
    again = reorder_group(cluster, group, random.Random(seed))
    assert solve_owners(Problem.from_group(cluster, group)) == solve_owners(
        Problem.from_group(*again)
    )


@given(seed=st.integers(0, 10**9), racks=st.booleans())
def test_a_second_solve_moves_nothing(seed: int, racks: bool) -> None:
    cluster, group = random_group(seed, racks=racks)
    problem = Problem.from_group(cluster, group)
    first = solver.solve_exactly(problem, never).owners
    settled = {
        member: Subscription(
            topics=group[member].topics, owned=owned, generation=3, rack=group[member].rack
        )
        for member, owned in partitions_by_member(problem, first).items()
    }
    after = Problem.from_group(cluster, settled)
    assert find_previous_owners(after).tolist() == first.tolist()
    assert solve_owners(after) == first.tolist()


@given(seed=st.integers(0, 10**9), racks=st.booleans(), patience=st.integers(0, 6))
def test_out_of_time_it_is_still_balanced(seed: int, racks: bool, patience: int) -> None:
    problem = random_problem(seed, racks=racks, members=12, topics=10, partitions=9)
    asked = 0

    def expired() -> bool:
        nonlocal asked
        asked += 1
        return asked > patience

    hurried = solver.solve_exactly(problem, expired)
    for owner, may in zip(hurried.owners.tolist(), flow_oracle.subscribers(problem), strict=True):
        assert owner in may
    best = flow_oracle.goal_of(problem, solve_owners(problem))
    found = flow_oracle.goal_of(problem, hurried.owners.tolist())
    assert found.loads == best.loads
    assert bool(hurried.notes) == (asked > patience)
    if not hurried.notes:
        assert found == best
