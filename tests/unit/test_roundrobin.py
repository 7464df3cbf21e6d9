"""RoundRobin: the worked examples, and the scenarios that Kafka's own tests hold it to."""

from __future__ import annotations

import itertools

import pytest

from rota.assignors.roundrobin import RoundRobin
from tests.unit.placing import chain, loads, moved, place

WORKED = {
    "two topics of three": (
        "t0:3 t1:3",
        "C0(t0 t1) C1(t0 t1)",
        {"C0": "t0-0 t0-2 t1-1", "C1": "t0-1 t1-0 t1-2"},
    ),
    "one, two and three topics": (
        "t0:1 t1:2 t2:3",
        "C0(t0) C1(t0 t1) C2(t0 t1 t2)",
        {"C0": "t0-0", "C1": "t1-0", "C2": "t1-1 t2-0 t2-1 t2-2"},
    ),
    "two by two": (
        "T0:2 T1:2",
        "C0(T0 T1) C1(T0 T1)",
        {"C0": "T0-0 T1-0", "C1": "T0-1 T1-1"},
    ),
    "then T0 grows: the circle does not restart": (
        "T0:3 T1:2",
        "C0(T0 T1) C1(T0 T1)",
        {"C0": "T0-0 T0-2 T1-1", "C1": "T0-1 T1-0"},
    ),
    "then T1 grows": (
        "T0:3 T1:3",
        "C0(T0 T1) C1(T0 T1)",
        {"C0": "T0-0 T0-2 T1-1", "C1": "T0-1 T1-0 T1-2"},
    ),
    "two topics of five": (
        "A:5 B:5",
        "c0(A B) c1(A B)",
        {"c0": "A-0 A-2 A-4 B-1 B-3", "c1": "A-1 A-3 B-0 B-2 B-4"},
    ),
    "two topics of five, one member with one of them": (
        "A:5 B:5",
        "c0(A B) c1(A)",
        {"c0": "A-0 A-2 A-4 B-0 B-1 B-2 B-3 B-4", "c1": "A-1 A-3"},
    ),
    "seven over three": (
        "t:7",
        "c0(t) c1(t) c2(t)",
        {"c0": "t-0 t-3 t-6", "c1": "t-1 t-4", "c2": "t-2 t-5"},
    ),
    "mixed: the circle does not restart": (
        "t1:5 t2:7",
        "c0(t1 t2) c1(t1 t2) c2(t1 t2) c3(t2) c4(t2)",
        {
            "c0": "t1-0 t1-3 t2-3",
            "c1": "t1-1 t1-4 t2-4",
            "c2": "t1-2 t2-0 t2-5",
            "c3": "t2-1 t2-6",
            "c4": "t2-2",
        },
    ),
}

KAFKA_TESTS = {
    "no topic": ("", "c1()", {"c1": ""}),
    "a topic that does not exist": ("", "c1(t)", {"c1": ""}),
    "one consumer": ("t:3", "c1(t)", {"c1": "t-0 t-1 t-2"}),
    "only subscribed topics": ("t:3 other:3", "c1(t)", {"c1": "t-0 t-1 t-2"}),
    "several topics": ("t1:1 t2:2", "c1(t1 t2)", {"c1": "t1-0 t2-0 t2-1"}),
    "fewer partitions than members": ("t:1", "c1(t) c2(t)", {"c1": "t-0", "c2": ""}),
    "as many partitions as members": ("t:2", "c1(t) c2(t)", {"c1": "t-0", "c2": "t-1"}),
    "mixed": (
        "t1:3 t2:2",
        "c1(t1) c2(t1 t2) c3(t1)",
        {"c1": "t1-0", "c2": "t1-1 t2-0 t2-1", "c3": "t1-2"},
    ),
    "dynamic members": (
        "t1:3 t2:3",
        "c1(t1 t2) c2(t1 t2)",
        {"c1": "t1-0 t1-2 t2-1", "c2": "t1-1 t2-0 t2-2"},
    ),
    "static members by static id": (
        "t1:3 t2:3",
        "b=i1(t1 t2) a=i2(t1 t2)",
        {"b": "t1-0 t1-2 t2-1", "a": "t1-1 t2-0 t2-2"},
    ),
    "static members before dynamic ones": (
        "t1:3 t2:3",
        "b=i1(t1 t2) a(t1 t2)",
        {"b": "t1-0 t1-2 t2-1", "a": "t1-1 t2-0 t2-2"},
    ),
    "static members keep theirs beside a dynamic one": (
        "t1:3 t2:3",
        "c1=i1(t1 t2) c2=i2(t1 t2) c3=i3(t1 t2) c4(t1 t2)",
        {"c1": "t1-0 t2-1", "c2": "t1-1 t2-2", "c3": "t1-2", "c4": "t2-0"},
    ),
    "... and when that one is replaced": (
        "t1:3 t2:3",
        "c1=i1(t1 t2) c2=i2(t1 t2) c3=i3(t1 t2) c5(t1 t2)",
        {"c1": "t1-0 t2-1", "c2": "t1-1 t2-2", "c3": "t1-2", "c5": "t2-0"},
    ),
    "static members keep theirs under other member ids": (
        "t1:5 t2:5",
        "c1=i1(t1 t2) c5=i2(t1 t2) c4=i3(t1 t2)",
        {"c1": "t1-0 t1-3 t2-1 t2-4", "c5": "t1-1 t1-4 t2-2", "c4": "t1-2 t2-0 t2-3"},
    ),
}


@pytest.mark.parametrize(("topics", "group", "expected"), WORKED.values(), ids=WORKED)
def test_worked_example(topics: str, group: str, expected: dict[str, str]) -> None:
    assert place(RoundRobin(), topics, group) == expected


@pytest.mark.parametrize(("topics", "group", "expected"), KAFKA_TESTS.values(), ids=KAFKA_TESTS)
def test_as_in_kafka(topics: str, group: str, expected: dict[str, str]) -> None:
    assert place(RoundRobin(), topics, group) == expected


def test_a_member_leaves_and_partitions_move_that_need_not() -> None:
    """Three are orphaned; two more move between the members that stay."""
    before = place(RoundRobin(), "T0:3 T1:3 T2:3", " ".join(f"C{i}(T0 T1 T2)" for i in range(3)))
    after = place(RoundRobin(), "T0:3 T1:3 T2:3", " ".join(f"C{i}(T0 T1 T2)" for i in range(2)))
    assert before == {f"C{i}": f"T0-{i} T1-{i} T2-{i}" for i in range(3)}
    assert after == {"C0": "T0-0 T0-2 T1-1 T2-0 T2-2", "C1": "T0-1 T1-0 T1-2 T2-1"}
    assert moved(before, after) == 2


def test_chain_moves_what_need_not_move() -> None:
    steps = chain(RoundRobin())
    assert [loads(step) for step in steps] == [[6, 6], [3, 3, 3, 3], [4, 4, 4], [6, 6]]
    assert [moved(*pair) for pair in itertools.pairwise(steps)] == [6, 6, 4]


def test_kafka_python_loses_members_when_static_and_dynamic_interleave() -> None:
    """There, c and d get two each, a and b nothing."""
    group = "a=s1(t) b(t) c=s2(t) d(t)"
    assert place(RoundRobin(), "t:4", group) == {"a": "t-0", "b": "t-2", "c": "t-1", "d": "t-3"}


def test_kafka_python_raises_keyerror_on_differing_subscriptions() -> None:
    """There, already the example of its own documentation: C0(t0) C1(t0 t1) C2(t0 t1 t2)."""
    topics, group, expected = WORKED["one, two and three topics"]
    assert place(RoundRobin(), topics, group) == expected


def test_members_that_subscribe_to_nothing_are_skipped() -> None:
    assert place(RoundRobin(), "t:4", "a() b(t) c() d(t)") == {
        "a": "",
        "b": "t-0 t-2",
        "c": "",
        "d": "t-1 t-3",
    }
