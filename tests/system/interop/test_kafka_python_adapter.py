"""Rota's strategies inside kafka-python's own consumer."""

# mypy: disable-error-code="no-untyped-call"
# (the library has no types)
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack

import pytest
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from rota.adapters.kafka_python import adapt
from rota.engine.assignors.interface import PartitionAssignor
from rota.engine.assignors.sticky import StickyAssignor
from rota.engine.formats import consumer_protocol
from rota.engine.model.member import Assignment
from rota.engine.model.topic import Partitions
from rota.errors import BrokenRule, InputError, UnknownSolver, UnknownStrategy
from tests.system.interop.kafka_python_group import (
    assignments,
    complete_rebalance,
    consumer,
    metadata,
    rebalance,
    sent_subscription,
)
from tests.system.interop.strategies import CooperativeFirst, FirstTakesAll, Forgetful


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def partition_counts(given: Mapping[str, set[tuple[str, int]]]) -> list[int]:
    return sorted(map(len, given.values()))


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_static_and_dynamic_members_interleave(stack: ExitStack, strategy: str) -> None:
    group = {name: stack.enter_context(consumer(["t"], adapt(strategy))) for name in "abcd"}
    given = rebalance(group, strategy, metadata({"t": 4}), 1, {"a": "s1", "c": "s2"})
    assert given == {"a": {("t", 0)}, "c": {("t", 1)}, "b": {("t", 2)}, "d": {("t", 3)}}


def test_roundrobin_with_differing_subscriptions(stack: ExitStack) -> None:
    topics = {"C0": ["t0"], "C1": ["t0", "t1"], "C2": ["t0", "t1", "t2"]}
    group = {
        name: stack.enter_context(consumer(wanted, adapt("roundrobin")))
        for name, wanted in topics.items()
    }
    given = rebalance(group, "roundrobin", metadata({"t0": 1, "t1": 2, "t2": 3}), 1)
    assert given == {
        "C0": {("t0", 0)},
        "C1": {("t1", 0)},
        "C2": {("t1", 1), ("t2", 0), ("t2", 1), ("t2", 2)},
    }


@pytest.mark.parametrize(
    ("strategies", "protocol"),
    [
        (["cooperative-sticky"], RebalanceProtocol.COOPERATIVE),
        (["range", "cooperative-sticky"], RebalanceProtocol.EAGER),
        (["org.apache.kafka.clients.consumer.StickyAssignor"], RebalanceProtocol.EAGER),
        ([FirstTakesAll], RebalanceProtocol.EAGER),
    ],
)
def test_protocol_comes_from_the_whole_list(
    stack: ExitStack, strategies: list[str], protocol: RebalanceProtocol
) -> None:
    made = stack.enter_context(consumer(["t"], adapt(*strategies)))
    assert made._coordinator._rebalance_protocol == protocol


def test_bad_lists_are_refused() -> None:
    with pytest.raises(UnknownStrategy, match="cooperative-sticky"):
        adapt("stcky")
    with pytest.raises(UnknownSolver):
        adapt("sticky", solver="best")
    with pytest.raises(InputError, match="two strategies"):
        adapt("sticky", "sticky")
    with pytest.raises(InputError, match="alone"):
        adapt("cooperative-sticky", CooperativeFirst)
    with pytest.raises(InputError, match="empty"):
        adapt()


def test_racks_reach_the_leader_and_the_replicas_count(stack: ExitStack) -> None:
    group = {
        "a": stack.enter_context(consumer(["t"], adapt("range", rack="r1"))),
        "b": stack.enter_context(consumer(["t"], adapt("range", rack="r0"))),
    }
    given = rebalance(group, "range", metadata({"t": 4}, racks=("r0", "r1")), 1)
    assert given == {"a": {("t", 1), ("t", 3)}, "b": {("t", 0), ("t", 2)}}


def test_topics_without_metadata_are_left_out_and_said(
    stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    group = {"a": stack.enter_context(consumer(["t", "gone"], adapt("range")))}
    assert rebalance(group, "range", metadata({"t": 1}), 1) == {"a": {("t", 0)}}
    assert "topic 'gone' has no partitions: skipped" in caplog.text


@pytest.mark.parametrize(
    "strategy", [FirstTakesAll, "tests.system.interop.strategies:FirstTakesAll"]
)
def test_custom_strategy(stack: ExitStack, strategy: str | type[PartitionAssignor]) -> None:
    group = {name: stack.enter_context(consumer(["t"], adapt(strategy))) for name in "ab"}
    given = rebalance(group, "first-takes-all", metadata({"t": 2}), 1)
    assert given == {"a": {("t", 0), ("t", 1)}, "b": set()}


def test_custom_strategy_that_breaks_a_rule_is_named(stack: ExitStack) -> None:
    group = {name: stack.enter_context(consumer(["t"], adapt(Forgetful))) for name in "ab"}
    with pytest.raises(BrokenRule, match="forgetful.*all-members"):
        rebalance(group, "forgetful", metadata({"t": 2}), 1)


@pytest.mark.parametrize("solver", ["exact", "kafka"])
class TestStickyFamily:
    def test_cooperative_takes_first_and_gives_in_the_next_round(
        self, stack: ExitStack, solver: str
    ) -> None:
        strategies = adapt("cooperative-sticky", solver=solver)
        group = {name: stack.enter_context(consumer(["t"], strategies)) for name in "ab"}
        cluster = metadata({"t": 6})
        before = rebalance(group, "cooperative-sticky", cluster, 1)
        assert partition_counts(before) == [3, 3]
        group["c"] = stack.enter_context(consumer(["t"], strategies))
        taken = rebalance(group, "cooperative-sticky", cluster, 2)
        assert taken["c"] == set()
        assert partition_counts(taken) == [0, 2, 2]
        given = rebalance(group, "cooperative-sticky", cluster, 3)
        assert partition_counts(given) == [2, 2, 2]
        assert all(given[name] == taken[name] for name in "ab")

    def test_cooperative_states_owned_partitions_and_generation(
        self, stack: ExitStack, solver: str
    ) -> None:
        """kafka-python's own strategy sends no generation."""
        made = stack.enter_context(
            consumer(["t"], adapt("cooperative-sticky", solver=solver, rack="r1"))
        )
        rebalance({"a": made}, "cooperative-sticky", metadata({"t": 2}), 7)
        sent = sent_subscription(made, "cooperative-sticky")
        stated = consumer_protocol.decode_subscription(sent)
        assert stated.owned.by_topic() == {"t": (0, 1)}
        assert (stated.generation, stated.rack) == (7, "r1")
        assert sent == consumer_protocol.encode_subscription(stated)  # as Java writes it

    def test_old_claim_of_a_member_that_was_thrown_out_does_not_hold(
        self, stack: ExitStack, solver: str
    ) -> None:
        strategies = adapt("cooperative-sticky", solver=solver)
        cluster = metadata({"t": 4})
        a, b = (stack.enter_context(consumer(["t"], strategies)) for _ in range(2))
        rebalance({"a": a}, "cooperative-sticky", cluster, 1)
        stale = sent_subscription(a, "cooperative-sticky")
        rebalance({"b": b}, "cooperative-sticky", cluster, 2)
        fresh = sent_subscription(b, "cooperative-sticky")
        sent = assignments(b, "cooperative-sticky", {"a": stale, "b": fresh}, cluster)
        complete_rebalance(a, "cooperative-sticky", sent["a"], 3)
        complete_rebalance(b, "cooperative-sticky", sent["b"], 3)
        assert (len(a.assignment()), len(b.assignment())) == (0, 2)

    def test_cooperative_beside_range_states_nothing_it_gave_up(
        self, stack: ExitStack, solver: str
    ) -> None:
        strategies = adapt("cooperative-sticky", "range", solver=solver)
        group = {"a": stack.enter_context(consumer(["t"], strategies))}
        cluster = metadata({"t": 4})
        rebalance(group, "cooperative-sticky", cluster, 1)
        group["b"] = stack.enter_context(consumer(["t"], strategies))
        assert partition_counts(rebalance(group, "cooperative-sticky", cluster, 2)) == [2, 2]

    def test_sticky_keeps_what_members_had(self, stack: ExitStack, solver: str) -> None:
        strategies = adapt("sticky", solver=solver)
        group = {name: stack.enter_context(consumer(["t"], strategies)) for name in "abc"}
        cluster = metadata({"t": 6})
        before = rebalance(group, "sticky", cluster, 1)
        assert partition_counts(before) == [2, 2, 2]
        del group["b"]
        after = rebalance(group, "sticky", cluster, 2)
        assert partition_counts(after) == [3, 3]
        assert all(before[name] < after[name] for name in "ac")

    def test_kafka_python_sticky_member_in_the_group_keeps_what_it_had(
        self, stack: ExitStack, solver: str
    ) -> None:
        """Its user data is not in Java's format; both are read."""
        cluster = metadata({"t": 6})
        group = {
            "a": stack.enter_context(consumer(["t"], adapt("sticky", solver=solver))),
            "b": stack.enter_context(consumer(["t"], [StickyPartitionAssignor])),
        }
        held = {"a": {("t", 4), ("t", 1), ("t", 0)}, "b": {("t", 5), ("t", 2), ("t", 3)}}
        for name, member in group.items():
            own = assignments(
                member, "sticky", {name: sent_subscription(member, "sticky")}, cluster
            )
            complete_rebalance(member, "sticky", own[name], 1)
        for name, member in group.items():
            complete_rebalance(member, "sticky", _assignment(held[name]), 2)
        assert rebalance(group, "sticky", cluster, 3) == held

    def test_consumers_given_the_same_list_share_nothing(
        self, stack: ExitStack, solver: str
    ) -> None:
        strategies = adapt("sticky", solver=solver)
        group = {name: stack.enter_context(consumer(["t"], strategies)) for name in "ab"}
        given = rebalance(group, "sticky", metadata({"t": 4}), 3)
        for name, member in group.items():
            stated = consumer_protocol.decode_subscription(sent_subscription(member, "sticky"))
            owned = StickyAssignor().read_ownership(stated)
            assert set(map(tuple, owned.partitions)) == given[name]
            assert owned.generation == 3


def _assignment(partitions: Iterable[tuple[str, int]]) -> bytes:
    return consumer_protocol.encode_assignment(Assignment(Partitions.of(sorted(partitions))))
