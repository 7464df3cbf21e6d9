"""Rota's strategies inside aiokafka's own coordinator, without a broker."""

# mypy: disable-error-code="no-untyped-call"
# (the library has no types)
from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.protocol.metadata import MetadataResponse_v1

from rota.adapters.aiokafka import adapt
from rota.engine.assignors.sticky import StickyAssignor
from rota.engine.formats import consumer_protocol
from rota.engine.model.member import NO_GENERATION, Subscription
from rota.errors import BrokenRule, InputError
from tests.system.interop.strategies import FirstTakesAll, Forgetful

Strategies = Sequence[AbstractPartitionAssignor | type[AbstractPartitionAssignor]]
Given = dict[str, set[tuple[str, int]]]


class Offline(AIOKafkaClient):
    """Knows its metadata from the start, and never connects."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        super().__init__(bootstrap_servers="127.0.0.1:1")
        topics = [
            (0, name, name.startswith("__"), [(0, number, 0, [0], [0]) for number in range(count)])
            for name, count in partitions.items()
        ]
        self.cluster.update_metadata(MetadataResponse_v1([(0, "none", 1, None)], 0, topics))

    def set_topics(self, topics: Collection[str]) -> None:
        """What is known stays as it is."""


class Passive(GroupCoordinator):
    """Joins no group by itself: the tests take the steps."""

    async def _coordination_routine(self) -> None:
        await self._closing

    def start_commit_offsets_refresh_task(self, assignment: object) -> None:
        """Offsets are not of interest here."""


class AdapterMember:
    """One member: its strategies in its own coordinator."""

    def __init__(self, topics: Sequence[str], strategies: Strategies) -> None:
        self.topics = topics
        self.strategies = strategies

    def join_metadata(self, strategy: str) -> bytes:
        """What it sends in its join request."""
        (chosen,) = (s for s in self.strategies if s.name == strategy)
        return chosen.metadata(self.topics).encode()


async def _rebalance(
    group: Mapping[str, AdapterMember], strategy: str, partitions: Mapping[str, int]
) -> Given:
    given: Given = {}
    async with asyncio.timeout(10):
        answers: dict[str, bytes] = {}
        for name, group_member in group.items():
            client = Offline(partitions)
            state = SubscriptionState()
            state.subscribe(set(group_member.topics))
            coordinator = Passive(
                client, state, assignors=group_member.strategies, enable_auto_commit=False
            )
            if not answers:
                joined = [(member, None, s.join_metadata(strategy)) for member, s in group.items()]
                response: Any = SimpleNamespace(
                    API_VERSION=5, group_protocol=strategy, members=joined
                )
                made = await coordinator._perform_assignment(response)
                answers = {member: assignment.encode() for member, assignment in made.items()}
            await coordinator._on_join_complete(1, name, strategy, answers[name])
            given[name] = {(tp.topic, tp.partition) for tp in state.assigned_partitions()}
            await coordinator.close()
            await client.close()
    return given


def rebalance(
    group: Mapping[str, AdapterMember], strategy: str, partitions: Mapping[str, int]
) -> Given:
    """One rebalance of the whole group, led by its first member; what each owns after it."""
    return asyncio.run(_rebalance(group, strategy, partitions))


def partition_counts(given: Given) -> list[int]:
    return sorted(map(len, given.values()))


def test_range() -> None:
    group = {name: AdapterMember(["t0", "t1"], adapt("range")) for name in ("C0", "C1")}
    assert rebalance(group, "range", {"t0": 3, "t1": 3}) == {
        "C0": {("t0", 0), ("t0", 1), ("t1", 0), ("t1", 1)},
        "C1": {("t0", 2), ("t1", 2)},
    }


def test_roundrobin_with_differing_subscriptions() -> None:
    topics = {"C0": ["t0"], "C1": ["t0", "t1"], "C2": ["t0", "t1", "t2"]}
    group = {
        name: AdapterMember(wanted, adapt("roundrobin", "range")) for name, wanted in topics.items()
    }
    assert rebalance(group, "roundrobin", {"t0": 1, "t1": 2, "t2": 3}) == {
        "C0": {("t0", 0)},
        "C1": {("t1", 0)},
        "C2": {("t1", 1), ("t2", 0), ("t2", 1), ("t2", 2)},
    }


def test_custom_strategy() -> None:
    group = {name: AdapterMember(["t"], adapt(FirstTakesAll)) for name in "ab"}
    given = rebalance(group, "first-takes-all", {"t": 2})
    assert given == {"a": {("t", 0), ("t", 1)}, "b": set()}


def test_custom_strategy_that_breaks_a_rule_is_named() -> None:
    group = {name: AdapterMember(["t"], adapt(Forgetful)) for name in "ab"}
    with pytest.raises(BrokenRule, match=r"forgetful.*all-members"):
        rebalance(group, "forgetful", {"t": 2})


def test_cooperative_strategies_are_refused() -> None:
    with pytest.raises(InputError, match="use 'sticky', which places alike"):
        adapt("cooperative-sticky")


def test_the_consumer_takes_the_list() -> None:
    async def made() -> set[object]:
        consumer = AIOKafkaConsumer(
            "t",
            bootstrap_servers="127.0.0.1:1",
            group_id="g",
            partition_assignment_strategy=adapt("range"),
        )
        await consumer.stop()
        return set(consumer.subscription())

    assert asyncio.run(made()) == {"t"}


@pytest.mark.parametrize("solver", ["exact", "kafka"])
class TestSticky:
    def test_keeps_what_members_had(self, solver: str) -> None:
        group = {name: AdapterMember(["t"], adapt("sticky", solver=solver)) for name in "abc"}
        before = rebalance(group, "sticky", {"t": 6})
        assert partition_counts(before) == [2, 2, 2]
        del group["b"]
        after = rebalance(group, "sticky", {"t": 6})
        assert partition_counts(after) == [3, 3]
        assert all(before[name] < after[name] for name in "ac")

    def test_consumers_share_nothing(self, solver: str) -> None:
        """aiokafka's own keeps what it remembers on the class (aiokafka#1175)."""
        group = {name: AdapterMember(["t"], adapt("sticky", solver=solver)) for name in "ab"}
        given = rebalance(group, "sticky", {"t": 4})
        for name, group_member in group.items():
            stated = consumer_protocol.decode_subscription(group_member.join_metadata("sticky"))
            owned = StickyAssignor().read_ownership(stated)
            assert set(map(tuple, owned.partitions)) == given[name]
            assert owned.generation == NO_GENERATION

    def test_internal_topics(self, solver: str) -> None:
        """aiokafka's own raises KeyError."""
        group_member = AdapterMember(["__consumer_offsets", "t"], adapt("sticky", solver=solver))
        given = rebalance({"a": group_member}, "sticky", {"__consumer_offsets": 2, "t": 1})
        assert given == {"a": {("__consumer_offsets", 0), ("__consumer_offsets", 1), ("t", 0)}}

    def test_aiokafka_sticky_member_in_the_group_keeps_what_it_had(self, solver: str) -> None:
        """Its user data are Java's bytes, read as they are."""

        class Own(StickyPartitionAssignor):
            """A class of this test: the original keeps its memory for the whole process."""

        group = {
            "a": AdapterMember(["t"], adapt("sticky", solver=solver)),
            "b": AdapterMember(["t"], [Own]),
        }
        before = rebalance(group, "sticky", {"t": 6})
        assert rebalance(group, "sticky", {"t": 6}) == before
        stated = Subscription(topics=("t",), user_data=Own.metadata({"t"}).user_data)
        owned = StickyAssignor().read_ownership(stated)
        assert set(map(tuple, owned.partitions)) == before["b"]
        assert owned.note is None
