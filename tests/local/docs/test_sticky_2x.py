"""``examples/sticky_2x.py``: Kafka 2.3's sticky strategy, as users run a strategy of their own.

``kafka-2.3.1-sticky.jsonl`` holds groups with what the StickyAssignor of kafka-clients 2.3.1
assigned in them: several rebalances of a group, also with members whose user data is old.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, cast

import pytest
from examples.sticky_2x import NO_GENERATION, Sticky2x, decode_user_data, encode_user_data

import rota
from rota import TopicPartition
from rota.engine.formats import consumer_protocol
from tests.support.command import RotaCommand
from tests.support.paths import FIXTURES, ROOT
from tests.support.waiting import wait_until

JAVA = [
    json.loads(line) for line in (FIXTURES / "kafka-2.3.1-sticky.jsonl").read_text().splitlines()
]
STRATEGY = "examples.sticky_2x:Sticky2x"
#: KIP-54's first example: eight partitions, three members, and then the second one leaves.
TOPICS = {f"t{number}": 2 for number in range(4)}

Owned = Mapping[str, frozenset[TopicPartition]]


def partitions_of(by_topic: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic in by_topic for number in by_topic[topic]]


def parse_partitions(*names: str) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(name[:2], int(name[3:])) for name in names)


def count_moved(before: Owned, after: Owned) -> int:
    """How many partitions left a member that is still there."""
    return sum(len(before[member] - after[member]) for member in before.keys() & after.keys())


def subscription(member: Mapping[str, Any]) -> rota.Subscription:
    data = None
    if "owned" in member:
        data = encode_user_data(partitions_of(member["owned"]), member["generation"])
    return rota.Subscription(topics=tuple(member["topics"]), user_data=data)


def assign_sticky(partitions: Mapping[str, int], members: Mapping[str, rota.Subscription]) -> Owned:
    given = Sticky2x().assign(rota.Cluster(partitions), members)
    return {member: frozenset(given[member].partitions) for member in given}


@pytest.mark.parametrize("case", JAVA)
def test_loads_and_moves_are_those_of_kafka_2_3(case: dict[str, Any]) -> None:
    members = {name: subscription(member) for name, member in case["members"].items()}
    mine = assign_sticky(case["partitions"], members)
    java = {name: frozenset(partitions_of(given)) for name, given in case["assigned"].items()}
    owned = {
        name: frozenset(
            tp for tp in decode_user_data(member.user_data)[0] if tp.topic in member.topics
        )
        for name, member in members.items()
    }
    assert sorted(map(len, mine.values())) == sorted(map(len, java.values()))
    assert count_moved(owned, mine) == count_moved(owned, java)
    assert frozenset().union(*mine.values()) == frozenset().union(*java.values())


def test_the_cases_are_more_than_new_groups() -> None:
    assert len(JAVA) == 60
    assert (
        sum(len({tuple(m["topics"]) for m in case["members"].values()}) > 1 for case in JAVA) > 20
    )
    stale = [{m.get("generation") for m in case["members"].values()} - {None} for case in JAVA]
    assert sum(len(generations) > 1 for generations in stale) > 10


def test_what_kip_54_shows() -> None:
    members = {name: rota.Subscription(topics=tuple(TOPICS)) for name in ("C0", "C1", "C2")}
    first = assign_sticky(TOPICS, members)
    assert first == {
        "C0": parse_partitions("t0-0", "t1-1", "t3-0"),
        "C1": parse_partitions("t0-1", "t2-0", "t3-1"),
        "C2": parse_partitions("t1-0", "t2-1"),
    }
    left = {
        name: rota.Subscription(
            topics=tuple(TOPICS), user_data=encode_user_data(sorted(first[name]), 1)
        )
        for name in ("C0", "C2")
    }
    assert assign_sticky(TOPICS, left) == {
        "C0": first["C0"] | parse_partitions("t2-0"),
        "C2": first["C2"] | parse_partitions("t0-1", "t3-1"),
    }


def test_user_data_is_in_javas_format() -> None:
    owned = partitions_of({"orders": [3, 0], "payments": [7]})
    data = encode_user_data(owned, 12)
    assert decode_user_data(data) == (owned, 12)
    java = consumer_protocol.decode_sticky_user_data(data)
    assert (list(java.partitions), java.generation) == (owned, 12)


def test_user_data_without_a_generation_is_read() -> None:
    owned = partitions_of({"orders": [3, 0]})
    assert decode_user_data(encode_user_data(owned, 12)[:-4]) == (owned, NO_GENERATION)


@pytest.mark.parametrize(
    "data",
    [None, b"", b"\0", b"\xff\xff\xff\xff", b"\0\0\0\1\x7f\xff", b"\0\0\0\1\0\1\xff\0\0\0\0"],
)
def test_other_bytes_are_no_claim(data: bytes | None) -> None:
    assert decode_user_data(data) == ([], NO_GENERATION)


def test_a_member_that_was_away_does_not_get_its_old_partitions() -> None:
    """KIP-341: the claim of the higher generation counts."""
    both = partitions_of({"t": [0, 1]})
    members = {
        "C0": rota.Subscription(topics=("t",), user_data=encode_user_data(both, 1)),
        "C1": rota.Subscription(topics=("t",), user_data=encode_user_data(both[:1], 2)),
    }
    assert assign_sticky({"t": 2}, members) == {"C0": {both[1]}, "C1": {both[0]}}


def test_assign_accepts_it() -> None:
    members = [
        rota.Member(id="C0", topics=["t0"], owned={"t0": [0]}, generation=1),
        rota.Member(id="C1", topics=["t0", "t1"], owned={"t1": [0, 1]}, generation=1),
        rota.Member(id="C2", topics=["t0", "t1", "t2"]),
    ]
    plan = rota.assign(STRATEGY, partitions={"t0": 1, "t1": 2, "t2": 3}, members=members)
    assert plan.strategy == "sticky-2x"
    assert plan.to_dict() == {"C0": {"t0": [0]}, "C1": {"t1": [0, 1]}, "C2": {"t2": [0, 1, 2]}}
    assert plan.moved == 0


def test_the_command_line_plans_it(
    rota_command: RotaCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    command = ("plan", "examples/orders.json", "--remove", "billing-2", "--json")
    ran = rota_command(*command, "--strategy", STRATEGY)
    plan = json.loads(ran.checked().out)
    assert (plan["strategy"], set(plan["loads"].values())) == ("sticky-2x", {7})
    assert (plan["moved"], plan["needless"], plan["orphaned"]) == (0, 0, 5)


class Group:
    """Rota consumers in a group on a broker, polled in turn until their loads are as expected."""

    def __init__(self, broker: rota.Broker, stack: ExitStack) -> None:
        self._broker, self._stack = broker, stack
        self._consumers: dict[str, rota.Consumer] = {}

    def join(self, name: str) -> None:
        settings = {
            "bootstrap.servers": self._broker.bootstrap_servers,
            "group.id": "billing",
            "client.id": name,
            "partition.assignment.strategy": STRATEGY,
            "heartbeat.interval.ms": 20,
        }
        consumer = self._stack.enter_context(rota.Consumer(settings))
        consumer.subscribe(list(TOPICS))
        self._consumers[name] = consumer

    def leave(self, name: str) -> None:
        self._consumers.pop(name).close()

    def wait_for_loads(self, *loads: int) -> Owned:
        def owned() -> Owned | None:
            for consumer in self._consumers.values():
                consumer.poll(0.02)
            found = {name: frozenset(c.assignment) for name, c in self._consumers.items()}
            every = frozenset().union(*found.values())
            settled = sorted(map(len, found.values())) == sorted(loads)
            return found if settled and len(every) == sum(loads) else None

        return cast(Owned, wait_until(f"loads {loads}", owned))


def test_a_group_keeps_what_members_own_when_one_leaves_and_one_joins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    with rota.Broker() as broker, ExitStack() as stack:
        for topic, count in TOPICS.items():
            broker.create_topic(topic, count)
        group = Group(broker, stack)
        for name in ("a", "b", "c"):
            group.join(name)
        before = group.wait_for_loads(2, 3, 3)
        assert broker.group("billing").strategy == "sticky-2x"

        group.leave("b")
        after = group.wait_for_loads(4, 4)
        assert count_moved(before, after) == 0
        assert after["a"] | after["c"] == frozenset().union(*before.values())

        group.join("d")
        assert (
            count_moved(after, group.wait_for_loads(2, 3, 3)) == 2
        )  # what the newcomer gets, and no more
