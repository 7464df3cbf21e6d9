"""The exact solver on groups that a person can check by hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rota.engine.assignors import certificate
from rota.engine.assignors.exact import solver
from rota.engine.assignors.problem import Problem
from rota.engine.model.member import Subscription
from rota.engine.model.topic import Cluster, Partitions

Held = dict[str, list[str]]


def assign_exactly(
    counts: Mapping[str, int],
    topics: Mapping[str, str],
    owned: Held | None = None,
    racks: tuple[Mapping[str, list[list[str]]], Mapping[str, str]] = ({}, {}),
) -> Held:
    """Who gets what. ``topics`` are names in one word for each member; a partition is written
    ``t0``: topic and number. ``racks`` are those of the partitions and those of the members.
    """
    group = {
        member: Subscription(
            topics=tuple(listed.split()),
            owned=Partitions.of([(p[:-1], int(p[-1])) for p in (owned or {}).get(member, [])]),
            generation=1,
            rack=racks[1].get(member),
        )
        for member, listed in topics.items()
    }
    problem = Problem.from_group(Cluster(counts, racks[0]), group)
    solution = solver.solve_exactly(problem, lambda: False)
    assert solution.notes == ()
    assert certificate.certify(problem, solution.owners).flaw is None
    found: Held = {member: [] for member in topics}
    for number, owner in enumerate(solution.owners.tolist()):
        topic, partition = problem.layout.partition_at(number)
        found[problem.members[owner]].append(f"{topic}{partition}")
    return found


def partitions_per_member(held: Held) -> list[int]:
    return [len(partitions) for partitions in held.values()]


def test_fresh_group_is_dealt_round() -> None:
    counts = {"t0-": 2, "t1-": 2, "t2-": 2, "t3-": 2}
    every = " ".join(counts)
    first = assign_exactly(counts, {"C0": every, "C1": every, "C2": every})
    assert first == {
        "C0": ["t0-0", "t1-1", "t3-0"],
        "C1": ["t0-1", "t2-0", "t3-1"],
        "C2": ["t1-0", "t2-1"],
    }
    after = assign_exactly(counts, {"C0": every, "C2": every}, first)
    assert partitions_per_member(after) == [4, 4]
    assert set(first["C0"]) < set(after["C0"])
    assert set(first["C2"]) < set(after["C2"])


def test_survivors_keep_all_they_have() -> None:
    counts = {"T": 3, "U": 3, "V": 3}
    first = assign_exactly(counts, {"C0": "T U V", "C1": "T U V", "C2": "T U V"})
    assert first == {f"C{n}": [f"T{n}", f"U{n}", f"V{n}"] for n in range(3)}
    after = assign_exactly(counts, {"C0": "T U V", "C1": "T U V"}, first)
    assert partitions_per_member(after) == [5, 4]
    assert set(first["C0"]) < set(after["C0"])
    assert set(first["C1"]) < set(after["C1"])


def test_mixed_subscriptions() -> None:
    counts = {"A": 1, "B": 2, "C": 3}
    first = assign_exactly(counts, {"C0": "A", "C1": "A B", "C2": "A B C"})
    assert first == {"C0": ["A0"], "C1": ["B0", "B1"], "C2": ["C0", "C1", "C2"]}
    after = assign_exactly(counts, {"C1": "A B", "C2": "A B C"}, first)
    assert after == {"C1": ["A0", "B0", "B1"], "C2": ["C0", "C1", "C2"]}


def count_moved(before: Held, after: Held) -> int:
    """Partitions that a member which is still there lost."""
    return sum(
        len(set(before[member]) - set(after[member])) for member in before if member in after
    )


def test_a_chain_of_joins_and_leaves() -> None:
    steps: list[tuple[str, list[int], int]] = [
        ("ab", [6, 6], 0),
        ("abcd", [3, 3, 3, 3], 6),
        ("abc", [4, 4, 4], 0),
        ("ab", [6, 6], 0),
    ]
    before: Held = {}
    for members, expected, must in steps:
        after = assign_exactly({"f": 10, "g": 2}, dict.fromkeys(members, "f g"), before)
        assert partitions_per_member(after) == expected
        assert count_moved(before, after) == must
        before = after


def test_a_newcomer_with_one_topic_takes_from_that_topic_alone() -> None:
    counts = {"t": 6, "u": 6}
    first = assign_exactly(counts, {"a": "t u", "b": "t u", "c": "t u"})
    after = assign_exactly(counts, {"a": "t u", "b": "t u", "c": "t u", "d": "u"}, first)
    assert partitions_per_member(after) == [3, 3, 3, 3]
    assert count_moved(first, after) == 3
    assert {partition[0] for partition in after["d"]} == {"u"}


def test_a_chain_of_members_passes_one_partition_on() -> None:
    """a has too much and d too little, but they share no topic: each hands one on."""
    counts = {"t": 3, "u": 1, "v": 1}
    owned = {"a": ["t0", "t1"], "b": ["t2"], "c": ["u0", "v0"]}
    after = assign_exactly(counts, {"a": "t", "b": "t u", "c": "u v", "d": "v"}, owned)
    assert partitions_per_member(after) == [2, 1, 1, 1]
    assert count_moved(owned, after) == 1


@pytest.mark.parametrize(
    ("counts", "topics", "expected"),
    [
        ({}, {}, {}),
        ({"t": 2}, {}, {}),
        ({}, {"a": "t"}, {"a": []}),
        ({"t": 0}, {"a": "t"}, {"a": []}),
        ({"t": 2}, {"a": "t"}, {"a": ["t0", "t1"]}),
        ({"t": 2}, {"a": "", "b": "t"}, {"a": [], "b": ["t0", "t1"]}),
        ({"t": 1}, {"a": "t", "b": "t"}, {"a": ["t0"], "b": []}),
        ({"t": 1, "u": 1}, {"a": "t", "b": "t u"}, {"a": ["t0"], "b": ["u0"]}),
        ({"t": 1}, {"a": "t", "b": "t gone"}, {"a": ["t0"], "b": []}),
    ],
)
def test_small_and_empty(counts: dict[str, int], topics: dict[str, str], expected: Held) -> None:
    assert assign_exactly(counts, topics) == expected


def test_a_topic_is_spread_over_its_possible_owners() -> None:
    """Loads alone would allow a topic to lie on a few members, who then bear all its traffic."""
    names = [f"topic {number}" for number in range(40)]
    group = {
        f"m{member}": Subscription(topics=tuple(names[(member * 7 + n) % 40] for n in range(20)))
        for member in range(40)
    }
    problem = Problem.from_group(Cluster(dict.fromkeys(names, 40)), group)
    owners = solver.solve_exactly(problem, lambda: False).owners.reshape(40, 40)
    assert sum(len(set(row)) for row in owners.tolist()) >= 0.9 * 40 * 20  # 20 subscribe to each


RACKS = {"t": [["x"], ["x"], ["y"], ["y"]]}


def test_local_comes_before_sticky_and_after_even() -> None:
    members = {"a": "t", "b": "t"}
    owned = {"a": ["t2", "t3"], "b": ["t0", "t1"]}
    assert assign_exactly({"t": 4}, members, owned, (RACKS, {"a": "x", "b": "y"})) == {
        "a": ["t0", "t1"],
        "b": ["t2", "t3"],
    }
    # both in x: nothing of y can be local, what is owned stays
    assert assign_exactly({"t": 4}, members, owned, (RACKS, {"a": "x", "b": "x"})) == owned
    # three local ones for a would leave b with one
    uneven = {"t": [["x"], ["x"], ["x"], ["y"]]}
    assert partitions_per_member(
        assign_exactly({"t": 4}, members, {}, (uneven, {"a": "x", "b": "y"}))
    ) == [2, 2]


def test_out_of_time_says_so() -> None:
    group = {
        "a": Subscription(topics=("t",)),
        "b": Subscription(topics=("t", "u"), owned=Partitions.of({"t": range(6), "u": range(6)})),
        "c": Subscription(topics=("u",)),
    }
    problem = Problem.from_group(Cluster({"t": 6, "u": 6}), group)
    hurried = solver.solve_exactly(problem, lambda: True)
    assert "time budget" in hurried.notes[0]
    assert sorted(hurried.owners.tolist()) == [0] * 4 + [1] * 4 + [2] * 4
    assert solver.solve_exactly(problem, lambda: False).notes == ()
