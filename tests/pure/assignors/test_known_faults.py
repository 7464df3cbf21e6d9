"""Faults that sticky strategies have elsewhere, by name, and what Rota does instead.

Those of Range and RoundRobin stand in test_range and test_roundrobin, those of a client library
as a whole in tests/system/interop. ``rota.assign`` refuses a result that breaks a rule, so that
every test here also shows one that does not.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Mapping

import pytest

import rota
from rota.engine.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from rota.engine.model.member import NO_GENERATION, Assignment

pytestmark = pytest.mark.parametrize("solver", ["exact", "kafka"])
both = pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])


def member(
    name: str, topics: Iterable[str], owned: Mapping[str, Iterable[int]] | None = None
) -> rota.Member:
    return rota.Member(id=name, topics=topics, owned=owned or {}, generation=1)


@both
def test_kafka_python_and_aiokafka_raise_keyerror_on_internal_topics(
    solver: str, strategy: str
) -> None:
    topics = ("__consumer_offsets", "t")
    plan = rota.assign(
        strategy,
        {"__consumer_offsets": 2, "t": 2},
        [member("a", topics, {"__consumer_offsets": [0, 1], "t": [0, 1]}), member("b", topics)],
        solver=solver,
    )
    assert (plan.moved, plan.moves_needed) == (2, 2)


def test_aiokafka_shares_what_sticky_remembers_between_consumers(solver: str) -> None:
    """aiokafka#1175."""
    one, other = StickyAssignor(solver=solver), StickyAssignor(solver=solver)
    one.on_assignment(Assignment(rota.Partitions.of({"t": [0]})), 5)
    assert other.subscription_user_data(["t"]) is None
    other.on_assignment(Assignment(rota.Partitions.of({"t": [1]})), 6)
    remembered = one.subscription_user_data(["t"])
    assert remembered is not None
    read = one.read_ownership(rota.Subscription(topics=("t",), user_data=remembered))
    assert (read.partitions.by_topic(), read.generation) == ({"t": (0,)}, 5)


def test_kafka_python_writes_user_data_that_java_cannot_read(solver: str) -> None:
    """It puts a version in front. A mixed group forgets who owned what; here both are read."""
    java = struct.pack(">i h1s i 2i i", 1, 1, b"t", 2, 0, 1, 7)
    kafka_python = struct.pack(">h", 1) + java
    without_generation = java[:-4]
    for user_data, generation in (
        (java, 7),
        (kafka_python, 7),
        (without_generation, NO_GENERATION),
    ):
        subscription = rota.Subscription(topics=("t",), user_data=user_data)
        read = StickyAssignor(solver=solver).read_ownership(subscription)
        assert (read.partitions.by_topic(), read.generation) == ({"t": (0, 1)}, generation)
        group = {"a": rota.Subscription(topics=("t",)), "b": subscription}
        given = StickyAssignor(solver=solver).assign(rota.Cluster({"t": 4}), group)
        assert given["b"].partitions.by_topic() == {"t": (0, 1)}


@both
def test_kafka_15106_kafka_python_and_aiokafka_take_tens_of_seconds_after_one_left(
    solver: str, strategy: str
) -> None:
    """83 members, 7 topics of 240 partitions, one topic each: 32 s of processor time there."""
    partitions = {f"t{number}": 240 for number in range(7)}
    members = [member(f"m{number:02}", [f"t{number % 7}"]) for number in range(83)]
    before = rota.assign(strategy, partitions, members, solver=solver)
    left = [member(m.id, m.topics, before[m.id]) for m in members[:-1]]
    started = time.process_time()
    plan = rota.assign(strategy, partitions, left, solver=solver)
    assert time.process_time() - started < 1
    assert plan.moved == 0
    assert sorted(plan.loads.values()) == [20] * 60 + [21] * 4 + [22] * 18


@both
def test_kafka_takes_subscriptions_for_equal_when_the_first_member_has_none(
    solver: str, strategy: str
) -> None:
    plan = rota.assign(strategy, {"t": 2}, [member("a", []), member("b", ["t"])], solver=solver)
    assert plan.to_dict() == {"a": {}, "b": {"t": [0, 1]}}


@both
def test_kafka_gives_a_partition_to_one_that_no_longer_subscribes(
    solver: str, strategy: str
) -> None:
    """kafka-python and aiokafka raise KeyError or do the same."""
    group = [
        member("a", ["t"], {"u": [0, 1]}),
        member("b", ["t", "u"], {"t": [0, 1]}),
        member("c", ["u"]),
    ]
    plan = rota.assign(strategy, {"t": 2, "u": 2}, group, solver=solver)
    assert "u" not in plan.to_dict()["a"]


def test_kafka_hands_over_cooperatively_while_another_still_holds_it(solver: str) -> None:
    """``a`` no longer subscribes, but is reading u-0 until this round has told it to stop."""
    group = [member("a", ["t"], {"u": [0]}), member("b", ["t", "u"])]
    plan = rota.assign("cooperative-sticky", {"t": 1, "u": 1}, group, solver=solver)
    assert "u" not in plan.to_dict()["b"]
    told = [member("a", ["t"], {"t": [0]}), member("b", ["t", "u"])]
    plan = rota.assign("cooperative-sticky", {"t": 1, "u": 1}, told, solver=solver)
    assert plan.to_dict() == {"a": {"t": [0]}, "b": {"u": [0]}}


@both
def test_a_claim_beyond_a_topics_end_gives_phantom_partitions_in_java(
    solver: str, strategy: str
) -> None:
    """The topic was made again with fewer partitions: phantoms, double owners or an exception."""
    group = [member("a", ["t"], {"t": [0, 1, 2]}), member("b", ["t"], {"t": [3, 4, 5]})]
    plan = rota.assign(strategy, {"t": 3}, group, solver=solver)
    assert sum(plan.loads.values()) == 3 - (strategy == "cooperative-sticky")
    assert plan.moved == 1


@both
def test_java_takes_minutes_when_a_member_with_another_subscription_joins(
    solver: str, strategy: str
) -> None:
    """40,000 partitions and 800 members: 162 s there."""
    partitions = {f"t{number:02}": 1_000 for number in range(40)}
    everyone = [member(f"m{number:03}", partitions) for number in range(800)]
    before = rota.assign(strategy, partitions, everyone, solver=solver)
    group = [member(m.id, m.topics, before[m.id]) for m in everyone]
    started = time.process_time()
    plan = rota.assign(strategy, partitions, [*group, member("n", ["t00"])], solver=solver)
    assert time.process_time() - started < 3
    assert plan.moved == plan.moves_needed


@both
def test_sticky_of_2_x_fails_on_a_subscribed_topic_without_metadata(
    solver: str, strategy: str
) -> None:
    group = [member("a", ["t", "gone"], {"gone": [0], "t": [0]}), member("b", ["t", "gone"])]
    plan = rota.assign(strategy, {"t": 2}, group, solver=solver)
    assert plan.to_dict() == {"a": {"t": [0]}, "b": {"t": [1]}}
    assert plan.skipped_topics == ("gone",)


def test_kafka_python_cooperative_cannot_tell_a_stale_owner_from_a_fresh_one(solver: str) -> None:
    group = {
        "stale": rota.Subscription(
            topics=("t",), owned=rota.Partitions.of({"t": [0, 1]}), generation=3
        ),
        "fresh": rota.Subscription(
            topics=("t",), owned=rota.Partitions.of({"t": [0, 1]}), generation=4
        ),
    }
    given = CooperativeStickyAssignor(solver=solver).assign(rota.Cluster({"t": 2}), group)
    assert len(given["fresh"].partitions) == 1
    assert len(given["stale"].partitions) == 0
