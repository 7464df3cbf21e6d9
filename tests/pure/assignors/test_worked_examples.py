"""Every worked example of the specification.

A group is written "C0(t0 t1) C1(t0)"; a result "C0 t0p0 t0p1; C1 t1p0".
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import rota
from rota.engine.plan import Plan


def parse_group(text: str, topics: dict[str, int]) -> list[rota.Member]:
    """Members from "C0(t0 t1) C1"; without brackets a member subscribes to everything."""
    found = re.findall(r"(\S+?)(?:\(([^)]*)\))?(?:\s|$)", text)
    return [
        rota.Member(id=name, topics=(listed or " ".join(topics)).split()) for name, listed in found
    ]


def parse_topics(text: str) -> dict[str, int]:
    """Partition counts from "t0:3 t1:3"."""
    return {topic: int(count) for topic, count in (item.split(":") for item in text.split())}


def parse_result(text: str) -> dict[str, list[tuple[str, int]]]:
    """An assignment from "C0 t0p0 t0p1; C1 t0p2"."""
    parts = [part.split() for part in text.split(";")]
    return {
        member: sorted((p.rsplit("p", 1)[0], int(p.rsplit("p", 1)[1])) for p in partitions)
        for member, *partitions in parts
    }


def assigned_partitions(plan: Plan) -> dict[str, list[tuple[str, int]]]:
    return {m: sorted((t, p) for t, ps in plan[m].items() for p in ps) for m in plan}


SIMPLE = [
    ("range", "t0:3 t1:3", "C0 C1", "C0 t0p0 t0p1 t1p0 t1p1; C1 t0p2 t1p2"),
    ("roundrobin", "t0:3 t1:3", "C0 C1", "C0 t0p0 t0p2 t1p1; C1 t0p1 t1p0 t1p2"),
    (
        "roundrobin",
        "t0:1 t1:2 t2:3",
        "C0(t0) C1(t0 t1) C2(t0 t1 t2)",
        "C0 t0p0; C1 t1p0; C2 t1p1 t2p0 t2p1 t2p2",
    ),
    (
        "sticky",
        "t0:2 t1:2 t2:2 t3:2",
        "C0 C1 C2",
        "C0 t0p0 t1p1 t3p0; C1 t0p1 t2p0 t3p1; C2 t1p0 t2p1",
    ),
    ("range", "A:7", "c0 c1 c2", "c0 Ap0 Ap1 Ap2; c1 Ap3 Ap4; c2 Ap5 Ap6"),
    ("range", "t:2", "C0 C1 C2", "C0 tp0; C1 tp1; C2"),
    (
        "roundrobin",
        "A:5 B:5",
        "c0 c1",
        "c0 Ap0 Ap2 Ap4 Bp1 Bp3; c1 Ap1 Ap3 Bp0 Bp2 Bp4",
    ),
    (
        "roundrobin",
        "A:5 B:5",
        "c0(A B) c1(A)",
        "c0 Ap0 Ap2 Ap4 Bp0 Bp1 Bp2 Bp3 Bp4; c1 Ap1 Ap3",
    ),
    (
        "sticky",
        "A:1 B:2 C:3",
        "C0(A) C1(A B) C2(A B C)",
        "C0 Ap0; C1 Bp0 Bp1; C2 Cp0 Cp1 Cp2",
    ),
    ("roundrobin", "t:7", "c0 c1 c2", "c0 tp0 tp3 tp6; c1 tp1 tp4; c2 tp2 tp5"),
    (
        "roundrobin",
        "t1:5 t2:7",
        "c0 c1 c2 c3(t2) c4(t2)",
        "c0 t1p0 t1p3 t2p3; c1 t1p1 t1p4 t2p4; c2 t1p2 t2p0 t2p5; c3 t2p1 t2p6; c4 t2p2",
    ),
]


@pytest.mark.parametrize(("strategy", "topics", "members", "expected"), SIMPLE)
def test_example(strategy: str, topics: str, members: str, expected: str) -> None:
    plan = rota.assign(strategy, parse_topics(topics), parse_group(members, parse_topics(topics)))
    assert assigned_partitions(plan) == parse_result(expected)


LOADS = [
    ("range", "A:10", "C0 C1", {"A": [5, 5]}),
    ("range", "A:7 B:7 C:7", "c0 c1 c2", {"A": [3, 2, 2], "B": [3, 2, 2], "C": [3, 2, 2]}),
    ("range", "A:5", "c0 c1 c2", {"A": [2, 2, 1]}),
    ("range", "t:7", "c0 c1 c2 c3 c4", {"t": [2, 2, 1, 1, 1]}),
    (
        "range",
        "t1:5 t2:7",
        "c0 c1 c2 c3(t2) c4(t2)",
        {"t1": [2, 2, 1, 0, 0], "t2": [2, 2, 1, 1, 1]},
    ),
]


@pytest.mark.parametrize(("strategy", "topics", "members", "expected"), LOADS)
def test_loads_by_topic(
    strategy: str, topics: str, members: str, expected: dict[str, list[int]]
) -> None:
    plan = rota.assign(strategy, parse_topics(topics), parse_group(members, parse_topics(topics)))
    assert {t: [len(plan[m].get(t, ())) for m in plan] for t in expected} == expected


def plan_steps(strategy: str, steps: list[tuple[str, str]], solver: str = "exact") -> list[Plan]:
    """Plans of a group that changes step by step, each from what the one before gave."""
    plans: list[Plan] = []
    before: dict[str, rota.Member] = {}
    for generation, (topics, members) in enumerate(steps):
        now = parse_group(members, parse_topics(topics))
        left = [member for name, member in before.items() if name not in {m.id for m in now}]
        now = [
            replace(m, owned=before[m.id].owned, generation=generation) if m.id in before else m
            for m in now
        ]
        plan = rota.assign(strategy, parse_topics(topics), now, solver=solver, left=left)
        before = {m.id: m for m in plan.apply(now, generation)}
        plans.append(plan)
    return plans


GROWING = [("T0:2 T1:2", "C0 C1"), ("T0:3 T1:2", "C0 C1"), ("T0:3 T1:3", "C0 C1")]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (
            "range",
            [
                "C0 T0p0 T1p0; C1 T0p1 T1p1",
                "C0 T0p0 T0p1 T1p0; C1 T0p2 T1p1",
                "C0 T0p0 T0p1 T1p0 T1p1; C1 T0p2 T1p2",
            ],
        ),
        (
            "roundrobin",
            [
                "C0 T0p0 T1p0; C1 T0p1 T1p1",
                "C0 T0p0 T0p2 T1p1; C1 T0p1 T1p0",
                "C0 T0p0 T0p2 T1p1; C1 T0p1 T1p0 T1p2",
            ],
        ),
    ],
)
def test_partitions_are_added(strategy: str, expected: list[str]) -> None:
    assert [assigned_partitions(plan) for plan in plan_steps(strategy, GROWING)] == [
        parse_result(r) for r in expected
    ]


NINE = "T0:3 T1:3 T2:3"
ONE_LEAVES = [(NINE, "C0 C1 C2"), (NINE, "C0 C1")]


def test_roundrobin_moves_two_that_it_need_not_when_one_leaves() -> None:
    first, second = plan_steps("roundrobin", ONE_LEAVES)
    assert assigned_partitions(first) == parse_result(
        "C0 T0p0 T1p0 T2p0; C1 T0p1 T1p1 T2p1; C2 T0p2 T1p2 T2p2"
    )
    assert assigned_partitions(second) == parse_result(
        "C0 T0p0 T0p2 T1p1 T2p0 T2p2; C1 T0p1 T1p0 T1p2 T2p1"
    )
    assert (second.orphaned, second.moved, second.moves_needed, second.needless) == (3, 2, 0, 2)


@pytest.mark.parametrize("solver", ["exact", "kafka"])
def test_sticky_moves_only_the_orphans_when_one_leaves(solver: str) -> None:
    first, second = plan_steps("sticky", ONE_LEAVES, solver)
    for member in ("C0", "C1"):
        assert set(assigned_partitions(first)[member]) <= set(assigned_partitions(second)[member])
    assert sorted(second.loads.values()) == [4, 5]
    assert (second.orphaned, second.moved) == (3, 0)


EIGHT = "t0:2 t1:2 t2:2 t3:2"


@pytest.mark.parametrize("solver", ["exact", "kafka"])
def test_sticky_when_the_middle_one_fails(solver: str) -> None:
    first, second = plan_steps("sticky", [(EIGHT, "C0 C1 C2"), (EIGHT, "C0 C2")], solver)
    assert second.loads == {"C0": 4, "C2": 4}
    assert set(assigned_partitions(first)["C0"]) <= set(assigned_partitions(second)["C0"])
    assert set(assigned_partitions(first)["C2"]) <= set(assigned_partitions(second)["C2"])
    assert (second.orphaned, second.moved) == (3, 0)
    if solver == "kafka":
        gained = {
            m: sorted(set(assigned_partitions(second)[m]) - set(assigned_partitions(first)[m]))
            for m in second
        }
        assert gained == {"C0": [("t0", 1)], "C2": [("t2", 0), ("t3", 1)]}


def test_sticky_hands_the_only_partition_of_one_that_leaves_to_who_may_take_it() -> None:
    topics = "A:1 B:2 C:3"
    first, second = plan_steps(
        "sticky", [(topics, "C0(A) C1(A B) C2(A B C)"), (topics, "C1(A B) C2(A B C)")]
    )
    assert assigned_partitions(second) == parse_result("C1 Ap0 Bp0 Bp1; C2 Cp0 Cp1 Cp2")
    assert second["C2"] == first["C2"]


SCALING = [
    ("f:12", "C0 C1"),
    ("f:12", "C0 C1 C2 C3"),
    ("f:12", "C0 C1 C2"),
    ("f:12", "C0 C1"),
]


@pytest.mark.parametrize(
    ("strategy", "solver", "moved"),
    [
        ("sticky", "exact", [0, 6, 0, 0]),
        ("sticky", "kafka", [0, 6, 0, 0]),
        ("range", "exact", [0, 9, 3, 2]),
        ("roundrobin", "exact", [0, 6, 6, 4]),
    ],
)
def test_a_group_of_two_then_four_then_three_then_two(
    strategy: str, solver: str, moved: list[int]
) -> None:
    plans = plan_steps(strategy, SCALING, solver)
    loads = [sorted(plan.loads.values()) for plan in plans]
    assert loads == [[6, 6], [3, 3, 3, 3], [4, 4, 4], [6, 6]]
    assert [plan.moved for plan in plans] == moved
    assert [plan.moves_needed for plan in plans] == [0, 6, 0, 0] or strategy != "sticky"
    assert [plan.orphaned for plan in plans] == [0, 0, 3, 4]
