"""Kafka's own sticky algorithm in Rota: worked examples, known faults that it must not have, speed.

That it gives what Kafka gives is shown against the Java classes, in tests/system/kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from rota.engine.assignors.kafka import assignment_builders
from rota.engine.assignors.kafka.assignment_builders import (
    PartitionHashSet,
    member_hash_map_order,
    topic_partition_hash,
)
from rota.engine.assignors.problem import Problem, find_previous_owners
from rota.engine.formats.hashing import java_string_hash
from rota.engine.model.member import Member, Placement, Subscription
from rota.engine.model.topic import Cluster, IntArray
from tests.support.sticky_cases import random_case
from tests.support.sticky_group import Group, every_strategy

SOLVERS = ["kafka", "exact"]
every_solver = pytest.mark.parametrize("solver", SOLVERS)


class TestWorkedExamples:
    """Those of the specification."""

    def test_three_members_four_topics_then_one_fails(self) -> None:
        topics = {f"t{n}": 2 for n in range(4)}
        members = dict.fromkeys(("C0", "C1", "C2"), " ".join(topics))
        group = Group(strategy="sticky", topics=topics, members=members)
        assert group.settled() == {
            "C0": "t0-0 t1-1 t3-0",
            "C1": "t0-1 t2-0 t3-1",
            "C2": "t1-0 t2-1",
        }
        left = group.then(members=dict.fromkeys(("C0", "C2"), " ".join(topics)))
        assert left.settled() == {"C0": "t0-0 t0-1 t1-1 t3-0", "C2": "t1-0 t2-0 t2-1 t3-1"}

    def test_three_by_three_then_one_leaves(self) -> None:
        topics = {"T0": 3, "T1": 3, "T2": 3}
        members = dict.fromkeys(("C0", "C1", "C2"), "T0 T1 T2")
        group = Group(strategy="sticky", topics=topics, members=members)
        before = group.settled()
        left = group.then(members=dict.fromkeys(("C0", "C1"), "T0 T1 T2"))
        assert left.loads() == [5, 4]
        assert all(set(before[m].split()) <= set(left.settled()[m].split()) for m in left.members)

    def test_nested_subscriptions_then_one_leaves(self) -> None:
        members = {"C0": "A", "C1": "A B", "C2": "A B C"}
        group = Group(strategy="sticky", topics={"A": 1, "B": 2, "C": 3}, members=members)
        assert group.settled() == {"C0": "A-0", "C1": "B-0 B-1", "C2": "C-0 C-1 C-2"}
        left = group.then(members={"C1": "A B", "C2": "A B C"})
        assert left.settled() == {"C1": "A-0 B-0 B-1", "C2": "C-0 C-1 C-2"}

    def test_two_then_four_then_three_then_two(self) -> None:
        group = Group(strategy="sticky", topics={"f": 12}, members={"m0": "f", "m1": "f"})
        for count, load, moved in ((4, 3, 6), (3, 4, 0), (2, 6, 0)):
            before = group.settled()
            group = group.then(members={f"m{n}": "f" for n in range(count)})
            after = group.settled()
            lost = [
                p for m in after for p in before.get(m, "").split() if p not in after[m].split()
            ]
            assert group.loads() == [load] * count
            assert len(lost) == moved


@every_solver
class TestFaultsElsewhere:
    """What Kafka's own classes do wrong; the smallest groups on which they do."""

    @every_strategy
    def test_the_first_member_subscribes_to_nothing(self, strategy: str, solver: str) -> None:
        """Kafka takes the subscriptions for equal and gives t-0 to C0."""
        group = Group(
            strategy=strategy, topics={"t": 1}, members={"C0": "", "C1": "t"}, solver=solver
        )
        assert group.settled() == {"C0": "", "C1": "t-0"}

    @every_strategy
    def test_an_earlier_owner_no_longer_subscribes(self, strategy: str, solver: str) -> None:
        """Kafka gives u-0 back to C1, which subscribes to t alone."""
        group = Group(
            strategy=strategy,
            topics={"t": 1, "u": 1},
            members={"C0": "t u", "C1": "t", "C2": "t u"},
            owned={"C0": "t-0 u-0", "C1": "u-0"},
            generations={"C0": 2, "C1": 1, "C2": 2},
            solver=solver,
        )
        assert sorted(group.loads()) == [0, 1, 1]

    @every_strategy
    def test_an_earlier_owner_subscribes_to_nothing(self, strategy: str, solver: str) -> None:
        """Kafka raises NullPointerException."""
        group = Group(
            strategy=strategy,
            topics={"t": 2},
            members={"C0": "t", "C1": "t", "C2": ""},
            owned={"C1": "t-0 t-1", "C2": "t-0"},
            generations={"C0": 2, "C1": 2, "C2": 1},
            solver=solver,
        )
        assert group.loads() == [1, 1, 0]

    def test_handed_over_while_another_holds_it(self, solver: str) -> None:
        """Kafka gives t-0 to C0 in the round in which C1 is still reading it."""
        group = Group(
            strategy="cooperative-sticky",
            topics={"t": 1},
            members={"C0": "t", "C1": ""},
            owned={"C0": "t-0", "C1": "t-0"},
            solver=solver,
        )
        assert group.rebalance() == ({"C0": "", "C1": ""}, {"C0": "t-0", "C1": ""})

    def test_withheld_from_its_only_holder(self, solver: str) -> None:
        """Two stale claims on t-0 make Kafka take it from C2 too, for a round."""
        group = Group(
            strategy="cooperative-sticky",
            topics={"t": 4},
            members=dict.fromkeys(("C0", "C1", "C2"), "t"),
            owned={"C0": "t-0 t-1", "C1": "t-0 t-2", "C2": "t-0"},
            generations={"C0": 1, "C1": 1, "C2": 2},
            solver=solver,
        )
        assert group.rebalance()[0]["C2"] == "t-0"

    @every_strategy
    @pytest.mark.parametrize(
        ("topics", "members", "owned"),
        [
            ({"t": 2}, {"C0": "t"}, {"C0": "t-2"}),  # Kafka: a phantom t-2
            ({"t": 1}, {"C0": "t"}, {"C0": "t-1"}),  # Kafka: IllegalStateException
            # Kafka: t-0 given twice
            ({"t": 1, "u": 1}, {"C0": "t", "C1": "t u"}, {"C0": "t-0", "C1": "u-1"}),
        ],
    )
    def test_a_claim_beyond_a_topics_end(
        self,
        strategy: str,
        topics: dict[str, int],
        members: dict[str, str],
        owned: dict[str, str],
        solver: str,
    ) -> None:
        group = Group(strategy=strategy, topics=topics, members=members, owned=owned, solver=solver)
        given, _ = group.rebalance()
        assert sorted(" ".join(given.values()).split()) == [
            f"{topic}-{number}" for topic, count in topics.items() for number in range(count)
        ]


class TestJavasOrder:
    """Hash codes and table orders as ``java.util`` has them; values taken from a JVM."""

    def test_spread_of_a_partition(self) -> None:
        code = 3286198453
        assert topic_partition_hash(java_string_hash("orders"), 17) == code ^ code >> 16

    @pytest.mark.parametrize(
        ("count", "order"),
        [
            (12, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 11, 10]),
            (13, [9, 8, 7, 6, 5, 4, 3, 2, 1, 12, 0, 11, 10]),  # the table has grown
        ],
    )
    def test_walk_over_a_table(self, count: int, order: list[int]) -> None:
        assert (
            member_hash_map_order(tuple(f"member-{number:02}" for number in range(count))).tolist()
            == order
        )

    def test_a_set_that_has_grown_does_not_shrink(self) -> None:
        small, grown = (
            PartitionHashSet(java_string_hash("orders")),
            PartitionHashSet(java_string_hash("orders")),
        )
        for number in range(0, 65, 5):
            grown.add(number)
        assert grown.first() == 40
        for number in range(0, 65, 5):
            if number not in {20, 35, 55}:
                grown.remove(number)
        for number in (20, 35, 55):
            small.add(number)
        assert (grown.first(), small.first()) == (20, 55)


def group_with_uneven_topics(count: int) -> Group:
    """Two members with all, and one that has just joined."""
    return Group(
        strategy="sticky",
        topics={"t": count, "u": 1},
        members={"C0": "t", "C1": "t u", "C2": "t"},
        owned={
            "C0": " ".join(f"t-{n}" for n in range(0, count, 2)),
            "C1": " ".join(f"t-{n}" for n in range(1, count, 2)),
        },
    )


def test_past_the_time_budget_the_result_is_valid_and_says_so() -> None:
    problem = group_with_uneven_topics(20).problem
    solution = assignment_builders.solve_as_kafka(problem, lambda: True)
    assert solution.notes == (assignment_builders.BUDGET_EXPIRED,)
    assert (solution.owners >= 0).all()
    assert assignment_builders.solve_as_kafka(problem, lambda: False).notes == ()


@every_strategy
def test_steps_that_go_round_in_a_circle_end(strategy: str) -> None:
    """Kafka's own classes never return from this group."""
    group = Group(
        strategy=strategy,
        topics={"t0": 7, "t1": 6, "t2": 10, "t3": 6},
        members={
            "m0": "t3",
            "m1": "t0",
            "m2": "t0 t1",
            "m3": "t3 t1",
            "m4": "t2 t3",
            "m5": "t0 t2 t1",
            "m6": "t0 t3 t1",
        },
        owned={"m2": "t1-1 t1-2 t1-3", "m5": "t0-1", "m6": "t0-1 t1-4 t3-0 t3-1 t3-3 t3-4 t3-5"},
        generations={"m5": 0},
    )
    _, target = group.rebalance()
    assert group.solution.notes == (assignment_builders.KAFKA_NEVER_ENDS,)
    assert sorted(len(have.split()) for have in target.values()) == [3, 3, 4, 4, 5, 5, 5]


@pytest.mark.parametrize("equal", [True, False])
def test_the_order_of_the_input_does_not_matter(equal: bool) -> None:
    for seed in range(150):
        listed = random_case(seed, "sticky", equal=equal)
        random = Random(seed)
        members = [
            Member(
                id=member.id,
                topics=random.sample(member.topics, len(member.topics)),
                owned=random.sample(list(member.owned), len(member.owned)),
                generation=member.generation,
                rack=member.rack,
            )
            for member in random.sample(listed.members, len(listed.members))
        ]
        topics = random.sample(list(listed.counts), len(listed.counts))
        counts = {topic: listed.counts[topic] for topic in topics}
        other = replace(listed, counts=counts, members=tuple(members))
        expected = assignment_builders.solve_as_kafka(listed.problem, lambda: False).owners
        assert (
            assignment_builders.solve_as_kafka(other.problem, lambda: False).owners == expected
        ).all(), f"seed {seed}"


class Large:
    """A group of many, built from arrays."""

    def __init__(self, counts: dict[str, int], members: Mapping[str, tuple[str, ...]]) -> None:
        self.cluster = Cluster(counts)
        self.members = {m: Subscription(topics=listed) for m, listed in members.items()}

    def rebalance(self) -> tuple[Problem, IntArray]:
        problem = Problem.from_group(self.cluster, self.members)
        return problem, assignment_builders.solve_as_kafka(problem, lambda: False).owners

    def settle(self) -> None:
        """Members own what they are given."""
        problem, owners = self.rebalance()
        placement = Placement(problem.layout, problem.members, owners)
        for position, member in enumerate(problem.members):
            owned = problem.layout.partitions_at(placement.numbers_of(position))
            asked = self.members[member].topics
            self.members[member] = Subscription(topics=asked, owned=owned, generation=1)


def count_moved(problem: Problem, owners: IntArray) -> int:
    """How many partitions have another owner than the one that held them."""
    previous = find_previous_owners(problem)
    return int(np.count_nonzero((previous >= 0) & (previous != owners)))


class TestLargeGroups:
    """Moves that can be told beforehand; how long they take is the benchmarks' duty."""

    def test_a_million_partitions(self) -> None:
        topics = tuple(f"topic-{n:03}" for n in range(500))
        ids = [f"consumer-{n}-{n * 7919 % 10007:x}" for n in range(2000)]
        group = Large(dict.fromkeys(topics, 2000), dict.fromkeys(ids, topics))
        assert (np.bincount(group.rebalance()[1]) == 500).all()
        group.settle()
        group.members["consumer-new"] = Subscription(topics=topics)
        assert count_moved(*group.rebalance()) == 499, "one joins"
        del group.members["consumer-new"], group.members[ids[0]]
        assert count_moved(*group.rebalance()) == 0, "one leaves"

    def test_a_member_with_another_subscription_joins_a_large_group(self) -> None:
        """Java: 162 s."""
        topics = tuple(f"t{n}" for n in range(40))
        members = {f"consumer-{n}": topics for n in range(800)}
        group = Large(dict.fromkeys(topics, 1000), members)
        group.settle()
        group.members["new"] = Subscription(topics=topics[:1])
        assert count_moved(*group.rebalance()) == 49

    @pytest.mark.nightly
    def test_a_million_partitions_with_one_other_subscription(self) -> None:
        topics = tuple(f"t{n:03}" for n in range(500))
        members = {f"c{n:04}": topics if n else topics[:1] for n in range(2000)}
        group = Large(dict.fromkeys(topics, 2000), members)
        group.settle()
        del group.members["c1000"]
        assert count_moved(*group.rebalance()) == 0
