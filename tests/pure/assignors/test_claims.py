"""Which claims hold, against the rule written out partition by partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.engine.assignors.exact import solver
from rota.engine.assignors.problem import Problem, find_owned_by_another, find_previous_owners
from rota.engine.model.member import NO_GENERATION, Subscription
from rota.engine.model.topic import Cluster, Partitions
from tests.support.seeded_groups import random_group


def find_latest_claimants(
    group: dict[str, Subscription], partition: tuple[str, int], *, subscribed: bool
) -> list[str]:
    """The members that claim a partition in the highest generation in which it is claimed."""
    claims = [
        (NO_GENERATION if member.generation is None else member.generation, name)
        for name, member in group.items()
        if partition in list(member.owned) and (partition[0] in member.topics or not subscribed)
    ]
    highest = max((generation for generation, _ in claims), default=0)
    return [name for generation, name in claims if generation == highest]


@given(seed=st.integers(0, 10**9))
def test_claims_follow_the_rule(seed: int) -> None:
    cluster, group = random_group(seed)
    problem = Problem.from_group(cluster, group)
    owners = solver.solve_exactly(problem, lambda: False).owners
    previous = find_previous_owners(problem).tolist()
    held = find_owned_by_another(problem, owners).tolist()
    for number, owner in enumerate(owners.tolist()):
        partition = problem.layout.partition_at(number)
        holders = find_latest_claimants(group, partition, subscribed=True)
        expected = problem.members.index(holders[0]) if len(holders) == 1 else -1
        assert previous[number] == expected
        everyone = find_latest_claimants(group, partition, subscribed=False)
        assert held[number] == any(name != problem.members[owner] for name in everyone)


def problem_with_claims(*members: tuple[str, list[tuple[str, int]], int | None]) -> Problem:
    """Members that all subscribe to t, of 3 partitions: topics, claims and generation of each."""
    group = {
        f"m{number}": Subscription(
            topics=tuple(topics.split()), owned=Partitions.of(owned), generation=generation
        )
        for number, (topics, owned, generation) in enumerate(members)
    }
    return Problem.from_group(Cluster({"t": 3}), group)


def test_three_ways() -> None:
    every = [("t", 0), ("t", 1)]
    newest = problem_with_claims(("t", every, 1), ("t", every, 2), ("t", every, 3))
    assert find_previous_owners(newest).tolist() == [2, 2, -1]
    tied = problem_with_claims(("t", every, 3), ("t", every, 3), ("t", every, 1))
    assert find_previous_owners(tied).tolist() == [-1, -1, -1]


def test_no_generation_is_older_than_any() -> None:
    claim = [("t", 0)]
    assert find_previous_owners(
        problem_with_claims(("t", claim, None), ("t", claim, 0))
    ).tolist() == [1, -1, -1]


def test_twice_by_one_member_is_one_claim() -> None:
    assert find_previous_owners(problem_with_claims(("t", [("t", 1), ("t", 1)], 5))).tolist() == [
        -1,
        0,
        -1,
    ]


def test_claims_on_what_is_not_there_are_dropped_and_said() -> None:
    owned = [("t", 0), ("t", 3), ("gone", 0), ("t", -1)]
    problem = problem_with_claims(("t", owned, 5), ("", [("t", 2)], 5))
    assert find_previous_owners(problem).tolist() == [0, -1, -1]
    assert problem.notes == (
        "member 'm0': claims on partitions that do not exist dropped: gone-0, t--1, t-3",
        "member 'm1': claims on topics it no longer subscribes to dropped: t",
    )
