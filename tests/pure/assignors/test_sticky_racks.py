"""Racks in Kafka's own tests of its sticky strategies, told again for Rota."""

from __future__ import annotations

import pytest

from tests.support.sticky_group import Given, Group, every_strategy, parse_partitions


def place_replicas(topics: dict[str, int], brokers: str, factor: int) -> dict[str, list[str]]:
    """Replicas dealt over the racks of the brokers, in turn."""
    racks, found, start = brokers.split(), {}, 0
    for topic, count in sorted(topics.items()):
        found[topic] = [
            " ".join(racks[(start + n + j) % len(racks)] for j in range(factor))
            for n in range(count)
        ]
        start += count
    return found


def count_remote_partitions(group: Group, given: Given) -> int:
    """How many partitions went to a member in a rack without a replica."""
    return sum(
        group.racks[member] not in group.replicas[topic][number].split()
        for member, have in given.items()
        for topic, number in parse_partitions(have)
    )


RACKED_TOPICS = {"t1": 6, "t2": 7, "t3": 2}
ALL = "t1 t2 t3"
SCATTERED = {
    "c0": "t1-0 t1-1 t1-2 t1-3 t1-4",
    "c1": "t1-5 t2-0 t2-1 t2-2 t2-3",
    "c2": "t2-4 t2-5 t2-6 t3-0 t3-1",
}
EQUAL = {
    "c0": "t1-0 t1-3 t2-0 t2-3 t2-6",
    "c1": "t1-1 t1-4 t2-1 t2-4 t3-0",
    "c2": "t1-2 t1-5 t2-2 t2-5 t3-1",
}
UNEQUAL = {
    "c0": "t1-5 t2-0 t2-2 t2-4 t2-6",
    "c1": "t1-3 t2-1 t2-3 t2-5 t3-0",
    "c2": "t1-0 t1-1 t1-2 t1-4 t3-1",
}
UNEQUAL_NEAR = {
    "c0": "t1-3 t2-0 t2-2 t2-3 t2-6",
    "c1": "t1-4 t2-1 t2-4 t2-5 t3-0",
    "c2": "t1-0 t1-1 t1-2 t1-5 t3-1",
}


@every_strategy
@pytest.mark.parametrize(
    ("third", "brokers", "factor", "racks", "expected", "misplaced"),
    [
        (ALL, "a b c", 3, "a b c", EQUAL, 0),
        (ALL, "a b c d", 4, "a b c", EQUAL, 0),
        (ALL, "a b c", 3, "d e f", EQUAL, 15),
        (ALL, "a b c", 1, "a b c", EQUAL, 0),
        (ALL, "a b c", 2, "a b c", EQUAL, 0),
        (ALL, "a b", 2, "a b c", EQUAL, 5),
        ("t1 t3", "a b c", 3, "a b c", UNEQUAL, 0),
        ("t1 t3", "a b c d", 4, "a b c", UNEQUAL, 0),
        ("t1 t3", "a b c", 3, "d e f", UNEQUAL, 15),
        ("t1 t3", "a b c", 1, "a b c", UNEQUAL_NEAR, 4),
        (
            "t1 t3",
            "a b c",
            2,
            "a b c",
            {
                "c0": "t1-3 t2-0 t2-2 t2-5 t2-6",
                "c1": "t1-0 t2-1 t2-3 t2-4 t3-0",
                "c2": "t1-1 t1-2 t1-4 t1-5 t3-1",
            },
            0,
        ),
        ("t1 t3", "a b", 2, "a b c", UNEQUAL, 5),
    ],
)
def test_racks(
    strategy: str,
    third: str,
    brokers: str,
    factor: int,
    racks: str,
    expected: Given,
    misplaced: int,
) -> None:
    group = Group(
        strategy=strategy,
        topics=RACKED_TOPICS,
        members={"c0": ALL, "c1": ALL, "c2": third},
        racks=dict(zip(("c0", "c1", "c2"), racks.split(), strict=True)),
        replicas=place_replicas(RACKED_TOPICS, brokers, factor),
    )
    assert group.settled() == expected
    assert count_remote_partitions(group, expected) == misplaced
    assert group.then().settled() == expected


@every_strategy
@pytest.mark.parametrize(
    ("third", "kept", "expected", "misplaced"),
    [
        (ALL, {"c0": "t1-0 t1-3", "c1": "t2-1", "c2": "t2-5 t3-1"}, EQUAL, 0),
        ("t1 t3", {"c0": "t1-3", "c1": "t2-1", "c2": "t3-1"}, UNEQUAL_NEAR, 4),
    ],
)
def test_far_partitions_are_given_up_for_near_ones(
    strategy: str, third: str, kept: Given, expected: Given, misplaced: int
) -> None:
    group = Group(
        strategy=strategy,
        topics=RACKED_TOPICS,
        members={"c0": ALL, "c1": ALL, "c2": third},
        owned=SCATTERED,
        racks={"c0": "a", "c1": "b", "c2": "c"},
        replicas=place_replicas(RACKED_TOPICS, "a b c", 1),
    )
    given, target = group.rebalance()
    assert count_remote_partitions(group, target) == misplaced
    if strategy == "cooperative-sticky":
        assert given == kept
        assert group.settled() == expected
    elif third == ALL:
        assert given == expected


def test_what_moves_for_its_rack_is_taken_away_first() -> None:
    group = Group(
        strategy="cooperative-sticky",
        topics={"t": 4},
        members={"c0": "t", "c1": "t"},
        owned={"c0": "t-0 t-1", "c1": "t-2 t-3"},
        racks={"c0": "a", "c1": "b"},
        replicas={"t": ["a", "b", "a", "b"]},
    )
    assert group.withheld() == "t-1 t-2"
