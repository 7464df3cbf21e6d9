"""A strategy that does not do its duty is refused by the name of the rule it breaks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import rota
from rota.engine.assignors.interface import Solution, assign_checked
from rota.engine.assignors.problem import Problem
from rota.engine.assignors.range import RangeAssignor
from rota.engine.assignors.roundrobin import RoundRobinAssignor
from rota.errors import BrokenRule, StrategyFailed

TOPICS = {"t": 2, "other": 1}
MEMBERS = [rota.Member(id="a", topics=["t"]), rota.Member(id="b", topics=["t"])]


def strategy_that_returns(
    result: Callable[[], object], **attributes: object
) -> rota.PartitionAssignor:
    def assign_partitions(self: object, partitions: object, subscriptions: object) -> object:
        return result()

    members: dict[str, Any] = {"name": "mine", "assign_partitions": assign_partitions, **attributes}
    made: rota.PartitionAssignor = type("Mine", (rota.PartitionAssignor,), members)()
    return made


def raise_error() -> object:
    raise ZeroDivisionError("by design")


BROKEN: dict[str, tuple[Callable[[], object], str]] = {
    "returns None": (lambda: None, "a-result"),
    "forgets a member": (lambda: {"a": [("t", 0), ("t", 1)]}, "all-members"),
    "invents a member": (lambda: {"a": [("t", 0)], "b": [("t", 1)], "c": []}, "only-members"),
    "gives a partition twice": (lambda: {"a": [("t", 0), ("t", 1)], "b": [("t", 1)]}, "one-owner"),
    "gives one member the same twice": (
        lambda: {"a": [("t", 0), ("t", 0)], "b": [("t", 1)]},
        "one-owner",
    ),
    "invents a partition": (lambda: {"a": [("t", 0), ("t", 2)], "b": [("t", 1)]}, "exists"),
    "a negative partition": (lambda: {"a": [("t", 0), ("t", -1)], "b": [("t", 1)]}, "exists"),
    "invents a topic": (lambda: {"a": [("t", 0), ("x", 0)], "b": [("t", 1)]}, "exists"),
    "gives an unsubscribed topic": (
        lambda: {"a": [("t", 0), ("other", 0)], "b": [("t", 1)]},
        "subscribed",
    ),
    "leaves a partition out": (lambda: {"a": [("t", 0)], "b": []}, "all-owned"),
}


@pytest.mark.parametrize(("result", "rule"), BROKEN.values(), ids=BROKEN)
def test_the_broken_rule_is_named(result: Callable[[], object], rule: str) -> None:
    with pytest.raises(BrokenRule) as caught:
        rota.assign(strategy_that_returns(result), TOPICS, MEMBERS)
    assert caught.value.rule == rule
    assert "mine" in str(caught.value)
    assert rule in str(caught.value)


def test_a_strategy_that_raises() -> None:
    with pytest.raises(StrategyFailed, match="'mine': assign raised ZeroDivisionError: by design"):
        rota.assign(strategy_that_returns(raise_error), TOPICS, MEMBERS)


def test_a_member_given_a_topic_that_only_the_other_subscribes_to() -> None:
    members = [rota.Member(id="a", topics=["t"]), rota.Member(id="b", topics=["t", "other"])]
    wrong = strategy_that_returns(lambda: {"a": [("t", 0), ("other", 0)], "b": [("t", 1)]})
    with pytest.raises(BrokenRule, match="'subscribed'.*'a' was given other-0"):
        rota.assign(wrong, TOPICS, members)


def test_broadcast_is_allowed_where_it_is_declared() -> None:
    everything = [("t", 0), ("t", 1)]
    broadcast = strategy_that_returns(lambda: {"a": everything, "b": everything}, allow_shared=True)
    plan = rota.assign(broadcast, TOPICS, MEMBERS)
    assert plan.to_dict() == {"a": {"t": [0, 1]}, "b": {"t": [0, 1]}}


def test_leaving_out_is_allowed_where_it_is_declared() -> None:
    sparse = strategy_that_returns(lambda: {"a": [("t", 0)], "b": []}, allow_unassigned=True)
    assert rota.assign(sparse, TOPICS, MEMBERS).loads == {"a": 1, "b": 0}


class HandOver(rota.PartitionAssignor):
    """Cooperative by its word, but it gives everything to b at once."""

    name = "hand-over"
    protocols = (rota.RebalanceProtocol.COOPERATIVE,)

    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, rota.Subscription]
    ) -> dict[str, list[rota.TopicPartition]]:
        return {"a": [], "b": [rota.TopicPartition("t", 0), rota.TopicPartition("t", 1)]}


def member_that_owns(
    member: str, topics: str, *partitions: int, generation: int = 1
) -> rota.Member:
    return rota.Member(
        id=member, topics=topics.split(), owned={"t": partitions}, generation=generation
    )


def test_a_hand_over_in_one_round() -> None:
    with pytest.raises(BrokenRule, match="'no-hand-over'.*t-0"):
        rota.assign(HandOver(), TOPICS, [member_that_owns("a", "t", 0), member_that_owns("b", "t")])


def test_a_hand_over_from_one_that_no_longer_subscribes() -> None:
    with pytest.raises(BrokenRule, match="'no-hand-over'.*t-0"):
        rota.assign(
            HandOver(), TOPICS, [member_that_owns("a", "other", 0), member_that_owns("b", "t")]
        )


def test_a_partition_that_two_claim_is_not_given_to_either() -> None:
    with pytest.raises(BrokenRule, match="'no-hand-over'.*t-0"):
        rota.assign(
            HandOver(), TOPICS, [member_that_owns("a", "t", 0), member_that_owns("b", "t", 0)]
        )


def test_a_stale_claim_does_not_hold_the_newer_owner_up() -> None:
    members = [
        member_that_owns("a", "t", 0, generation=1),
        member_that_owns("b", "t", 0, generation=2),
    ]
    assert rota.assign(HandOver(), TOPICS, members).loads == {"a": 0, "b": 2}


def test_a_result_of_another_type() -> None:
    class Wrong(rota.Assignor):
        name = "wrong"

        def assign(self, cluster: object, group: object) -> Any:
            return {"a": 1}

    with pytest.raises(BrokenRule, match="'a-result'.*returned dict"):
        rota.assign(Wrong(), TOPICS, MEMBERS)


def test_a_strategy_may_delegate_to_a_built_in_one() -> None:
    class Delegating(rota.Assignor):
        name = "delegating"

        def assign(
            self, cluster: rota.Cluster, group: Mapping[str, rota.Subscription]
        ) -> rota.GroupAssignment:
            return RoundRobinAssignor().assign(cluster, group)

    assert rota.assign(Delegating(), TOPICS, MEMBERS).loads == {"a": 1, "b": 1}


def test_an_empty_group_and_a_group_without_topics() -> None:
    cluster = rota.Cluster({"t": 2})
    nobody = assign_checked(HandOverNothing(), cluster, {})
    assert len(nobody.partition) == 0
    plan = rota.assign(HandOverNothing(), {"t": 2}, [rota.Member(id="a", topics=[])])
    assert plan.to_dict() == {"a": {}}


class HandOverNothing(rota.PartitionAssignor):
    name = "nothing"

    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, rota.Subscription]
    ) -> dict[str, list[rota.TopicPartition]]:
        return {member: [] for member in subscriptions}


class Raising(RangeAssignor):
    """A built-in strategy with a fault of its own."""

    name = "raising"

    def solve(self, problem: Problem) -> Solution:
        raise KeyError("x")


class Beyond(RangeAssignor):
    name = "beyond"

    def solve(self, problem: Problem) -> Solution:
        return Solution(owners=np.array([0, 9], dtype=np.int32))


class Overridden(RangeAssignor):
    name = "overridden"

    def assign(
        self, cluster: rota.Cluster, group: Mapping[str, rota.Subscription]
    ) -> rota.GroupAssignment:
        everything = rota.Partitions.of({"t": [0, 1]})
        return rota.GroupAssignment(
            {"a": rota.Assignment(rota.Partitions.of(())), "b": rota.Assignment(everything)}
        )


def test_a_subclass_of_a_built_in_strategy_is_guarded_like_any_other() -> None:
    with pytest.raises(StrategyFailed, match=r"assign raised KeyError: 'x' \(.*test_rules.py:"):
        rota.assign(Raising(), TOPICS, MEMBERS)
    with pytest.raises(BrokenRule, match="'only-members'.*an owner that is not in the group"):
        rota.assign(Beyond(), TOPICS, MEMBERS)


def test_assign_of_a_subclass_counts() -> None:
    assert rota.assign(Overridden(), TOPICS, MEMBERS).loads == {"a": 0, "b": 2}


def test_a_strategy_that_exits() -> None:
    def exits() -> object:
        raise SystemExit(0)

    with pytest.raises(StrategyFailed, match="raised SystemExit: 0"):
        rota.assign(strategy_that_returns(exits), TOPICS, MEMBERS)


def test_an_exception_that_cannot_be_shown() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    def fails() -> object:
        raise Mute

    with pytest.raises(StrategyFailed, match="'mine': assign raised .*Mute"):
        rota.assign(strategy_that_returns(fails), TOPICS, MEMBERS)


def test_broadcast_does_not_allow_one_member_a_partition_twice() -> None:
    doubled = strategy_that_returns(
        lambda: {"a": [("t", 0), ("t", 0)], "b": [("t", 1)]}, allow_shared=True
    )
    with pytest.raises(BrokenRule, match="'one-owner'.*'a' was given twice: t-0"):
        rota.assign(doubled, TOPICS, MEMBERS)


def test_a_strategy_that_writes_into_its_input_reaches_neither_caller_nor_check() -> None:
    class Writes(rota.Assignor):
        name = "writes"

        def assign(self, cluster: rota.Cluster, group: object) -> rota.GroupAssignment:
            cluster.partitions["t"] = 9  # type: ignore[index]
            invented = rota.Partitions.of({"t": [0, 1, 4]})
            return rota.GroupAssignment(
                {"a": rota.Assignment(invented), "b": rota.Assignment(rota.Partitions.of(()))}
            )

    counts = {"t": 2}
    with pytest.raises(BrokenRule, match="'exists'.*t-4"):
        rota.assign(Writes(), counts, MEMBERS)
    assert counts == {"t": 2}


def test_a_target_in_other_terms_is_left_aside() -> None:
    """A strategy that delegates a part of the group: positions there mean other members."""

    class Partly(rota.Assignor):
        name = "partly"
        protocols = (rota.RebalanceProtocol.COOPERATIVE,)

        def assign(
            self, cluster: rota.Cluster, group: Mapping[str, rota.Subscription]
        ) -> rota.GroupAssignment:
            part = RoundRobinAssignor().assign(cluster, {"b": group["b"]})
            nothing = rota.Assignment(rota.Partitions.of(()))
            return rota.GroupAssignment({"a": nothing, "b": part["b"]}, target=part.target)

    plan = rota.assign(Partly(), TOPICS, MEMBERS)
    assert plan.target_loads == plan.loads == {"a": 0, "b": 2}


def test_a_broken_rule_survives_a_process_boundary() -> None:
    error = pickle.loads(pickle.dumps(BrokenRule("mine", "exists", "t-9")))
    assert (error.rule, str(error)) == ("exists", str(BrokenRule("mine", "exists", "t-9")))
