"""Range: the scenarios that Kafka's own tests hold it to."""

from __future__ import annotations

import itertools

import pytest

from rota.engine.assignors.problem import Problem
from rota.engine.assignors.range import RangeAssignor
from rota.engine.model.member import GroupSubscription
from rota.engine.model.topic import Cluster
from tests.support.assignments import assign_partitions, parse_members, parse_topics

KAFKA_TESTS = {
    "no topic": ("", "c1()", {"c1": ""}),
    "a topic that does not exist": ("", "c1(t1)", {"c1": ""}),
    "one consumer": ("t1:3", "c1(t1)", {"c1": "t1-0 t1-1 t1-2"}),
    "only subscribed topics": ("t1:3 other:3", "c1(t1)", {"c1": "t1-0 t1-1 t1-2"}),
    "several topics": ("t1:1 t2:2", "c1(t1 t2)", {"c1": "t1-0 t2-0 t2-1"}),
    "fewer partitions than members": ("t1:1", "c1(t1) c2(t1)", {"c1": "t1-0", "c2": ""}),
    "as many partitions as members": ("t1:2", "c1(t1) c2(t1)", {"c1": "t1-0", "c2": "t1-1"}),
    "mixed": (
        "t1:3 t2:2",
        "c1(t1) c2(t1 t2) c3(t1)",
        {"c1": "t1-0", "c2": "t1-1 t2-0 t2-1", "c3": "t1-2"},
    ),
    "static members by static id": (
        "t1:3 t2:3",
        "b=i1(t1 t2) a=i2(t1 t2)",
        {"b": "t1-0 t1-1 t2-0 t2-1", "a": "t1-2 t2-2"},
    ),
    "static members before dynamic ones": (
        "t1:3 t2:3",
        "b=i1(t1 t2) a(t1 t2)",
        {"b": "t1-0 t1-1 t2-0 t2-1", "a": "t1-2 t2-2"},
    ),
    "static members keep theirs beside a dynamic one": (
        "t1:5 t2:4",
        "c1=i1(t1 t2) c2=i2(t1 t2) c3=i3(t1 t2) c4(t1 t2)",
        {"c1": "t1-0 t1-1 t2-0", "c2": "t1-2 t2-1", "c3": "t1-3 t2-2", "c4": "t1-4 t2-3"},
    ),
    "... and when that one is replaced": (
        "t1:5 t2:4",
        "c1=i1(t1 t2) c2=i2(t1 t2) c3=i3(t1 t2) c5(t1 t2)",
        {"c1": "t1-0 t1-1 t2-0", "c2": "t1-2 t2-1", "c3": "t1-3 t2-2", "c5": "t1-4 t2-3"},
    ),
    "static members keep theirs under other member ids": (
        "t1:5 t2:5",
        "c1=i1(t1 t2) c5=i2(t1 t2) c4=i3(t1 t2)",
        {"c1": "t1-0 t1-1 t2-0 t2-1", "c5": "t1-2 t1-3 t2-2 t2-3", "c4": "t1-4 t2-4"},
    ),
}


@pytest.mark.parametrize("racks", ["", "brokers", "members", "both"])
@pytest.mark.parametrize(("topics", "group", "expected"), KAFKA_TESTS.values(), ids=KAFKA_TESTS)
def test_as_in_kafka_whatever_is_known_of_racks(
    topics: str, group: str, expected: dict[str, str], racks: str
) -> None:
    """Every rack holds every partition, so that racks must change nothing."""
    everywhere = {t: [("a", "b", "c")] * n for t, n in parse_topics(topics).items()}
    if racks in {"members", "both"}:
        for name, rack in zip(expected, "abcabc", strict=False):
            group = group.replace(f"{name}=", f"{name}#").replace(f"{name}(", f"{name}@{rack}(")
            group = group.replace(f"{name}#", f"{name}=")
    assert assign_partitions(
        RangeAssignor(), topics, group, everywhere if racks in {"brokers", "both"} else {}
    ) == (expected)


def spread_replicas(topics: str, replicas: int, brokers: str) -> dict[str, list[tuple[str, ...]]]:
    """Replicas on consecutive brokers, one rack each, going on from topic to topic."""
    turn = itertools.count()
    return {
        topic: [
            tuple(brokers[(first + r) % len(brokers)] for r in range(replicas))
            for first in itertools.islice(turn, count)
        ]
        for topic, count in sorted(parse_topics(topics).items())
    }


UNEVEN = "t1:6 t2:7 t3:2"
EVEN = "t1:5 t2:5 t3:5"
PAIRS = "t1:6 t2:6 t3:2 t4:2"
SIX = "t1:6 t2:6 t3:2 t4:2 t5:4 t6:4"
THREE = ("(t1 t2 t3)", "(t1 t2 t3)", "(t1 t2 t3)")
LAST_WITHOUT_T2 = ("(t1 t2 t3)", "(t1 t2 t3)", "(t1 t3)")
TWO_TEAMS = ("(t1 t2)", "(t1 t2)", "(t3 t4)", "(t3 t4)")
FOUR = ("(t1 t2 t3 t4)",) * 4
NINE = ("(t1 t2 t3 t4 t5 t6 t7 t8 t9)",) * 3
PLAIN = {
    (UNEVEN, THREE): (
        "t1-0 t1-1 t2-0 t2-1 t2-2 t3-0",
        "t1-2 t1-3 t2-3 t2-4 t3-1",
        "t1-4 t1-5 t2-5 t2-6",
    ),
    (UNEVEN, LAST_WITHOUT_T2): (
        "t1-0 t1-1 t2-0 t2-1 t2-2 t2-3 t3-0",
        "t1-2 t1-3 t2-4 t2-5 t2-6 t3-1",
        "t1-4 t1-5",
    ),
    (EVEN, THREE): (
        "t1-0 t1-1 t2-0 t2-1 t3-0 t3-1",
        "t1-2 t1-3 t2-2 t2-3 t3-2 t3-3",
        "t1-4 t2-4 t3-4",
    ),
    (EVEN, LAST_WITHOUT_T2): (
        "t1-0 t1-1 t2-0 t2-1 t2-2 t3-0 t3-1",
        "t1-2 t1-3 t2-3 t2-4 t3-2 t3-3",
        "t1-4 t3-4",
    ),
}
TEAMS_PLAIN = ("t1-0 t1-1 t1-2 t2-0 t2-1 t2-2", "t1-3 t1-4 t1-5 t2-3 t2-4 t2-5")
FOUR_PLAIN = (
    "t1-0 t1-1 t2-0 t2-1 t3-0 t4-0",
    "t1-2 t1-3 t2-2 t2-3 t3-1 t4-1",
    "t1-4 t2-4",
    "t1-5 t2-5",
)
BY_RACK = [  # topics, replicas, brokers' racks, members' racks, subscriptions, result, not local
    *(
        (topics, 3, brokers, racks, group, plain, None)
        for (topics, group), plain in PLAIN.items()
        for brokers, racks in (("abc", "___"), ("abc", "abc"), ("abc", "def"), ("abc", "_ef"))
    ),
    *((topics, 4, "abcd", "abc", group, plain, 0) for (topics, group), plain in PLAIN.items()),
    *((topics, 3, "ab", "abc", group, plain, None) for (topics, group), plain in PLAIN.items()),
    (
        *(UNEVEN, 1, "abc", "abc", THREE),
        ("t1-0 t1-3 t2-0 t2-3 t2-6", "t1-1 t1-4 t2-1 t2-4 t3-0", "t1-2 t1-5 t2-2 t2-5 t3-1"),
        0,
    ),
    (
        *(UNEVEN, 2, "abc", "abc", THREE),
        ("t1-0 t1-2 t2-0 t2-2 t2-3 t3-1", "t1-1 t1-3 t2-1 t2-4 t3-0", "t1-4 t1-5 t2-5 t2-6"),
        1,
    ),
    (
        *(UNEVEN, 1, "abc", "abc", LAST_WITHOUT_T2),
        ("t1-0 t1-3 t2-0 t2-2 t2-3 t2-6", "t1-1 t1-4 t2-1 t2-4 t2-5 t3-0", "t1-2 t1-5 t3-1"),
        2,
    ),
    (
        *(UNEVEN, 2, "abc", "abc", LAST_WITHOUT_T2),
        ("t1-0 t1-2 t2-0 t2-2 t2-3 t2-5 t3-1", "t1-1 t1-3 t2-1 t2-4 t2-6 t3-0", "t1-4 t1-5"),
        0,
    ),
    # co-partitioning comes before locality
    (EVEN, 1, "abc", "abc", THREE, PLAIN[EVEN, THREE], 10),
    (EVEN, 2, "abc", "abc", THREE, PLAIN[EVEN, THREE], 5),
    (EVEN, 3, "ab", "abc", THREE, PLAIN[EVEN, THREE], 3),
    (
        *(EVEN, 1, "abc", "abc", LAST_WITHOUT_T2),
        (
            "t1-0 t1-1 t2-0 t2-1 t2-4 t3-0 t3-1",
            "t1-2 t1-3 t2-2 t2-3 t3-2 t3-3",
            "t1-4 t3-4",
        ),
        9,
    ),
    (
        *(EVEN, 2, "abc", "abc", LAST_WITHOUT_T2),
        ("t1-2 t2-0 t2-1 t2-3 t3-2", "t1-0 t1-3 t2-2 t2-4 t3-0 t3-3", "t1-1 t1-4 t3-1 t3-4"),
        0,
    ),
    (PAIRS, 3, "ab", "abba", TWO_TEAMS, (*TEAMS_PLAIN, "t3-0 t4-0", "t3-1 t4-1"), None),
    (PAIRS, 2, "ab", "abba", TWO_TEAMS, (*TEAMS_PLAIN, "t3-0 t4-0", "t3-1 t4-1"), 0),
    (
        *(PAIRS, 1, "ab", "abba", TWO_TEAMS),
        (
            "t1-0 t1-2 t1-4 t2-0 t2-2 t2-4",
            "t1-1 t1-3 t1-5 t2-1 t2-3 t2-5",
            "t3-1 t4-1",
            "t3-0 t4-0",
        ),
        0,
    ),
    (PAIRS, 3, "ab", "abba", FOUR, FOUR_PLAIN, None),
    (PAIRS, 2, "ab", "abba", FOUR, FOUR_PLAIN, 0),
    (
        *(PAIRS, 1, "ab", "abba", FOUR),
        (
            "t1-0 t1-2 t2-0 t2-2 t3-0 t4-0",
            "t1-1 t1-3 t2-1 t2-3 t3-1 t4-1",
            "t1-5 t2-5",
            "t1-4 t2-4",
        ),
        0,
    ),
    (
        *(PAIRS, 1, "abc", "abba", FOUR),
        (
            "t1-0 t1-3 t2-0 t2-3 t3-0 t4-0",
            "t1-1 t1-4 t2-1 t2-4 t3-1 t4-1",
            "t1-2 t2-2",
            "t1-5 t2-5",
        ),
        6,
    ),
    (
        *(SIX, 3, "abc", "abc", NINE),
        (
            "t1-0 t1-1 t2-0 t2-1 t3-0 t4-0 t5-0 t5-1 t6-0 t6-1",
            "t1-2 t1-3 t2-2 t2-3 t3-1 t4-1 t5-2 t6-2",
            "t1-4 t1-5 t2-4 t2-5 t5-3 t6-3",
        ),
        0,
    ),
    (
        *(SIX, 2, "abc", "abc", NINE),
        (
            "t1-0 t1-2 t2-0 t2-2 t3-0 t4-0 t5-1 t6-1",
            "t1-1 t1-3 t2-1 t2-3 t3-1 t4-1 t5-2 t6-2",
            "t1-4 t1-5 t2-4 t2-5 t5-0 t5-3 t6-0 t6-3",
        ),
        0,
    ),
]


@pytest.mark.parametrize(
    ("topics", "replicas", "brokers", "racks", "subscriptions", "expected", "remote"), BY_RACK
)
def test_as_in_kafka_by_rack(
    topics: str,
    replicas: int,
    brokers: str,
    racks: str,
    subscriptions: tuple[str, ...],
    expected: tuple[str, ...],
    remote: int | None,
) -> None:
    """A rack written ``_`` is none."""
    names = [f"c{i}" for i in range(len(racks))]
    group = " ".join(
        (name if rack == "_" else f"{name}@{rack}") + listed
        for name, rack, listed in zip(names, racks, subscriptions, strict=True)
    )
    where = spread_replicas(topics, replicas, brokers)
    placed = assign_partitions(RangeAssignor(), topics, group, where)
    assert placed == dict(zip(names, expected, strict=True))
    if remote is not None:
        given = [
            (p.split("-"), rack)
            for n, rack in zip(names, racks, strict=True)
            for p in placed[n].split()
        ]
        assert sum(rack not in where[t][int(p)] for (t, p), rack in given) == remote


def test_static_members_keep_their_racks_partitions_under_other_ids() -> None:
    topics = "t1:5 t2:5"
    where: dict[str, list[tuple[str, ...]]] = {
        t: [tuple("abcabc"[p % 3 : p % 3 + 2]) for p in range(5)] for t in ("t1", "t2")
    }
    expected = ["t1-0 t1-2 t2-0 t2-2", "t1-1 t1-3 t2-1 t2-3", "t1-4 t2-4"]
    for ids in (["c1", "c2", "c3"], ["c1", "c5", "c4"]):
        group = " ".join(f"{m}=i{i}@{'abc'[i]}(t1 t2)" for i, m in enumerate(ids))
        assert assign_partitions(RangeAssignor(), topics, group, where) == dict(
            zip(ids, expected, strict=True)
        )


def test_empty_rack_name_of_a_member_is_no_rack() -> None:
    where = spread_replicas("t:4", 1, "ab")
    assert assign_partitions(RangeAssignor(), "t:4", "c0@(t) c1@a(t)", where) == assign_partitions(
        RangeAssignor(), "t:4", "c0(t) c1@a(t)", where
    )


def test_topics_without_metadata_are_left_out_and_named() -> None:
    assert assign_partitions(RangeAssignor(), "t:2 empty:0", "c0(t gone empty)") == {
        "c0": "t-0 t-1"
    }
    problem = Problem.from_group(
        Cluster({"t": 2, "empty": 0}), GroupSubscription.of(parse_members("c0(t gone empty)"))
    )
    assert problem.skipped_topics == ("empty", "gone")


def test_kafka_python_loses_members_when_static_and_dynamic_interleave() -> None:
    """There, c and d get two each, a and b nothing."""
    group = "a=s1(t) b(t) c=s2(t) d(t)"
    assert assign_partitions(RangeAssignor(), "t:4", group) == {
        "a": "t-0",
        "b": "t-2",
        "c": "t-1",
        "d": "t-3",
    }
