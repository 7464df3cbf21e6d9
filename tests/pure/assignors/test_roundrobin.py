"""RoundRobin: the scenarios that Kafka's own tests hold it to."""

from __future__ import annotations

import pytest

from rota.engine.assignors.roundrobin import RoundRobinAssignor
from tests.support.assignments import assign_partitions

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


@pytest.mark.parametrize(("topics", "group", "expected"), KAFKA_TESTS.values(), ids=KAFKA_TESTS)
def test_as_in_kafka(topics: str, group: str, expected: dict[str, str]) -> None:
    assert assign_partitions(RoundRobinAssignor(), topics, group) == expected


def test_kafka_python_loses_members_when_static_and_dynamic_interleave() -> None:
    """There, c and d get two each, a and b nothing."""
    group = "a=s1(t) b(t) c=s2(t) d(t)"
    assert assign_partitions(RoundRobinAssignor(), "t:4", group) == {
        "a": "t-0",
        "b": "t-2",
        "c": "t-1",
        "d": "t-3",
    }


def test_kafka_python_raises_keyerror_on_differing_subscriptions() -> None:
    """There, already the example of its own documentation: C0(t0) C1(t0 t1) C2(t0 t1 t2)."""
    group = "C0(t0) C1(t0 t1) C2(t0 t1 t2)"
    expected = {"C0": "t0-0", "C1": "t1-0", "C2": "t1-1 t2-0 t2-1 t2-2"}
    assert assign_partitions(RoundRobinAssignor(), "t0:1 t1:2 t2:3", group) == expected


def test_members_that_subscribe_to_nothing_are_skipped() -> None:
    assert assign_partitions(RoundRobinAssignor(), "t:4", "a() b(t) c() d(t)") == {
        "a": "",
        "b": "t-0 t-2",
        "c": "",
        "d": "t-1 t-3",
    }
