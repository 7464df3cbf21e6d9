"""The single assignments of Kafka's own tests of its sticky strategies, told again for Rota.

Each runs under both wire names and with every setting of racks that must make no difference:
none, members' only, replicas' only, and all replicas in all racks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.support.sticky_group import Given, Group, every_rack_setting, every_strategy, with_racks


@dataclass(frozen=True)
class Scenario:
    """One assignment: what must come out, and what a cooperative round must first take away."""

    name: str
    topics: dict[str, int]
    members: dict[str, str]
    expected: Given
    owned: Given = field(default_factory=dict)
    generations: dict[str, int | None] = field(default_factory=dict)
    withheld: str = ""


SCENARIOS = [
    Scenario("one member, no topic", {}, {"c": ""}, {"c": ""}),
    Scenario("one member, topic without partitions", {"t": 0}, {"c": "t"}, {"c": ""}),
    Scenario("one member, one topic", {"t": 3}, {"c": "t"}, {"c": "t-0 t-1 t-2"}),
    Scenario(
        "claims on a topic that nobody subscribes to",
        {"t": 2, "other": 2},
        {"c": "t"},
        {"c": "t-0 t-1"},
        owned={"c": "t-0 t-1 other-0 other-1"},
    ),
    Scenario("one member, two topics", {"t1": 1, "t2": 2}, {"c": "t1 t2"}, {"c": "t1-0 t2-0 t2-1"}),
    Scenario(
        "fewer partitions than members", {"t": 1}, {"c1": "t", "c2": "t"}, {"c1": "t-0", "c2": ""}
    ),
    Scenario("one each", {"t": 2}, {"c1": "t", "c2": "t"}, {"c1": "t-0", "c2": "t-1"}),
    Scenario(
        "mixed subscriptions",
        {"t1": 3, "t2": 2},
        {"c1": "t1", "c2": "t1 t2", "c3": "t1"},
        {"c1": "t1-0 t1-2", "c2": "t2-0 t2-1", "c3": "t1-1"},
    ),
    Scenario(
        "two topics, six partitions",
        {"t1": 3, "t2": 3},
        {"c1": "t1 t2", "c2": "t1 t2"},
        {"c1": "t1-0 t1-2 t2-1", "c2": "t1-1 t2-0 t2-2"},
    ),
    Scenario(
        "at the checker, raised to the ceiling",
        {"t1": 2, "t2": 3},
        {"c1": "t1 t2", "c2": "t1 t2"},
        {"c1": "t1-0 t2-0 t2-1", "c2": "t1-1 t2-2"},
        owned={"c1": "t1-0 t2-1", "c2": "t1-1 t2-2"},
    ),
    Scenario(
        "more members at the ceiling than there may be",
        {"topic1": 2, "topic2": 2},
        {f"consumer{n}": "topic1 topic2" for n in (1, 2, 3)},
        {"consumer1": "topic1-0", "consumer2": "topic1-1 topic2-1", "consumer3": "topic2-0"},
        owned={"consumer1": "topic1-0 topic2-0", "consumer2": "topic1-1 topic2-1"},
        withheld="topic2-0",
    ),
    Scenario(
        "all below the checker",
        {"t1": 2, "t2": 3},
        {f"c{n}": "t1 t2" for n in (1, 2, 3)},
        {"c1": "t1-0 t2-1", "c2": "t1-1 t2-2", "c3": "t2-0"},
        owned={"c1": "t1-0", "c2": "t1-1"},
    ),
    Scenario(
        "quotas reached and filled",
        {"t": 4},
        {f"c{n}": "t" for n in (1, 2, 3)},
        {"c1": "t-0 t-1", "c2": "t-2", "c3": "t-3"},
        owned={"c1": "t-0 t-1", "c2": "t-2"},
    ),
    Scenario(
        "stale generation",
        {"t": 3, "t2": 3},
        {"c1": "t t2", "c2": "t t2"},
        {"c1": "t-0 t-2 t2-1", "c2": "t-1 t2-0 t2-2"},
        owned={"c1": "t-0 t-2 t2-1", "c2": "t-0 t-2 t2-1"},
        generations={"c1": 10, "c2": 9},
    ),
    Scenario(
        "no generation",
        {"t": 3, "t2": 3},
        {"c1": "t t2", "c2": "t t2"},
        {"c1": "t-0 t-2 t2-1", "c2": "t-1 t2-0 t2-2"},
        owned={"c1": "t-0 t-2 t2-1", "c2": "t-0 t-2 t2-1"},
        generations={"c1": 10, "c2": None},
    ),
    Scenario(
        "stale generation with a claim of its own",
        {"t": 3, "t2": 3},
        {"c1": "t t2", "c2": "t t2"},
        {"c1": "t-0 t-1 t2-1", "c2": "t-2 t2-0 t2-2"},
        owned={"c1": "t-0 t-1 t2-1", "c2": "t-0 t2-1 t2-2"},
        generations={"c1": 10, "c2": 8},
    ),
    Scenario(
        "claimed twice in one generation, equal shares",
        {"t": 3},
        {f"c{n}": "t" for n in (1, 2, 3)},
        {"c1": "t-1", "c2": "t-2", "c3": "t-0"},
        owned={"c1": "t-0 t-1", "c2": "t-0 t-2"},
        withheld="t-0",
    ),
    Scenario(
        "claimed twice in one generation, unequal shares",
        {"t": 4},
        {f"c{n}": "t" for n in (1, 2, 3)},
        {"c1": "t-1 t-3", "c2": "t-2", "c3": "t-0"},
        owned={"c1": "t-0 t-1", "c2": "t-0 t-2"},
        withheld="t-0",
    ),
    Scenario(
        "the highest generation keeps",
        {"t": 3, "t2": 3, "t3": 3},
        {f"c{n}": "t t2 t3" for n in (1, 2, 3)},
        {"c1": "t-0 t2-0 t3-0", "c2": "t-1 t2-1 t3-1", "c3": "t-2 t2-2 t3-2"},
        owned={"c1": "t-0 t2-0 t3-0", "c2": "t-1 t2-1 t3-1", "c3": "t2-1 t3-0 t3-2"},
        generations={"c1": 10, "c2": 9, "c3": 8},
    ),
    Scenario(
        "three generations, nothing taken from anyone",
        {"t": 3, "t1": 3, "t2": 3, "t3": 3},
        {f"c{n}": "t t2 t3 t1" for n in (1, 2, 3, 4)},
        {
            "c1": "t1-2 t2-1 t3-0",
            "c2": "t-0 t1-0 t2-0",
            "c3": "t1-1 t2-2 t3-2",
            "c4": "t-1 t-2 t3-1",
        },
        owned={"c2": "t-0 t2-0 t1-0", "c3": "t3-2 t2-2 t1-1", "c4": "t3-1 t-1 t-2"},
        generations={"c1": None, "c2": 9, "c3": 8, "c4": 7},
    ),
    Scenario(
        "an older subscription beside newer ones",
        {"t": 3},
        {f"c{n}": "t" for n in (1, 2, 3)},
        {"c1": "t-0", "c2": "t-1", "c3": "t-2"},
        owned={"c1": "t-0", "c2": "t-1"},
        generations={"c1": 1, "c2": None, "c3": 1},
    ),
]


@every_strategy
@every_rack_setting
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_one_assignment(strategy: str, setting: str, scenario: Scenario) -> None:
    group = Group(
        strategy=strategy,
        topics=scenario.topics,
        members=scenario.members,
        owned=scenario.owned,
        generations=scenario.generations,
    )
    group = with_racks(group, setting)
    _, target = group.rebalance()
    assert target == scenario.expected
    assert group.withheld() == (scenario.withheld if strategy == "cooperative-sticky" else "")
    assert group.settled() == scenario.expected
