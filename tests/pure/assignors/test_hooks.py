"""Plans call the hooks of a strategy as the members of a real group do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from examples.sticky_2x import Sticky2x

import rota
from rota.engine.assignors.sticky import StickyAssignor
from rota.engine.formats import consumer_protocol
from rota.errors import StrategyFailed

TOPICS = {f"t{number}": 2 for number in range(4)}


class Recorder(rota.PartitionAssignor):
    """Keeps what members had, and sends it as JSON. `seen` is what the leader saw last."""

    name = "recorder"
    seen: Mapping[str, rota.Subscription] = {}

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def on_assignment(self, assignment: rota.Assignment, generation: int) -> None:
        self.calls.append([list(assignment.partitions), generation])

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        self.calls.append(sorted(topics))
        return json.dumps(self.calls).encode()

    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, rota.Subscription]
    ) -> dict[str, list[rota.TopicPartition]]:
        type(self).seen = subscriptions
        first = self.member_order(subscriptions)[0]
        every = self.all_partitions_sorted(partitions)
        return {member: every if member == first else [] for member in subscriptions}


class CooperativeRecorder(Recorder):
    name = "cooperative-recorder"
    protocols = (rota.RebalanceProtocol.COOPERATIVE, rota.RebalanceProtocol.EAGER)
    allow_unassigned = True

    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, rota.Subscription]
    ) -> dict[str, list[rota.TopicPartition]]:
        type(self).seen = subscriptions
        return {member: [] for member in subscriptions}


def two_members(**settings: Any) -> list[rota.Member]:
    return [
        rota.Member(id="a", topics=["t"], owned={"t": [1]}, generation=7, **settings),
        rota.Member(id="b", topics=["t"]),
    ]


@pytest.mark.parametrize(
    "strategy", [Recorder, Recorder(), "tests.pure.assignors.test_hooks:Recorder"]
)
def test_each_member_has_an_instance_that_saw_its_assignment(strategy: Any) -> None:
    rota.assign(strategy, {"t": 2}, two_members())
    data = {member: json.loads(seen.user_data or b"") for member, seen in Recorder.seen.items()}
    assert data == {"a": [[[["t", 1]], 7], ["t"]], "b": [["t"]]}


def test_the_instance_of_the_caller_stays_as_it_was() -> None:
    mine = Recorder()
    rota.assign(mine, {"t": 2}, two_members())
    assert mine.calls == []


def test_an_eager_leader_sees_no_owned_partitions() -> None:
    rota.assign(Recorder, {"t": 2}, two_members())
    assert [(list(one.owned), one.generation) for one in Recorder.seen.values()] == [
        ([], 7),
        ([], None),
    ]


def test_a_cooperative_leader_sees_owned_partitions_and_user_data() -> None:
    rota.assign(CooperativeRecorder, {"t": 2}, two_members())
    seen = CooperativeRecorder.seen["a"]
    assert (list(seen.owned), seen.user_data is not None) == ([("t", 1)], True)
    rota.assign([CooperativeRecorder, "range"], {"t": 2}, two_members())
    assert not len(CooperativeRecorder.seen["a"].owned)  # the list runs eager


def test_user_data_of_a_member_goes_to_the_leader_as_it_is() -> None:
    rota.assign(Recorder, {"t": 2}, two_members(user_data=b"mine"))
    assert Recorder.seen["a"].user_data == b"mine"


def test_sticky_reads_given_user_data() -> None:
    owned = rota.Partitions.of({"t": [1, 2]})
    data = consumer_protocol.encode_sticky_user_data(owned, 3)
    members = [rota.Member(id="a", topics=["t"]), rota.Member(id="b", topics=["t"], user_data=data)]
    plan = rota.assign("sticky", {"t": 4}, members)
    assert plan.to_dict() == {"a": {"t": [0, 3]}, "b": {"t": [1, 2]}}
    assert (plan.moved, plan.revoked) == (0, 2)


def test_a_custom_sticky_strategy_moves_what_the_newcomer_gets_and_no_more() -> None:
    three = [rota.Member(id=name, topics=TOPICS) for name in "abc"]
    settled = rota.assign(Sticky2x, TOPICS, three).apply(three, generation=1)
    left = rota.assign(Sticky2x, TOPICS, [settled[0], settled[2]])
    assert (left.moved, left.moves_needed, left.balance_score) == (0, 0, 0)
    two = left.apply([settled[0], settled[2]], generation=2)
    joined = rota.assign(Sticky2x, TOPICS, [*two, rota.Member(id="d", topics=TOPICS)])
    assert (joined.moved, joined.needless, joined.balance_score) == (2, 0, 2)
    assert joined.certificate.is_best


def test_applying_a_plan_carries_what_the_leader_sent_with_the_assignment() -> None:
    class Counting(rota.Assignor):
        name = "counting"
        rounds = 0

        def assign(
            self, cluster: rota.Cluster, group: Mapping[str, rota.Subscription]
        ) -> rota.GroupAssignment:
            rounds = max(int(one.user_data or b"0") for one in group.values()) + 1
            every = rota.Partitions.of({"t": range(cluster.partitions["t"])})
            return rota.GroupAssignment({"a": rota.Assignment(every, b"%d" % rounds)})

        def on_assignment(self, assignment: rota.Assignment, generation: int) -> None:
            self.rounds = int(assignment.user_data or b"0")

        def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
            return b"%d" % self.rounds

    members = [rota.Member(id="a", topics=["t"])]
    for generation in (1, 2, 3):
        members = rota.assign(Counting, {"t": 1}, members).apply(members, generation)
    assert members[0].user_data == b"3"


def test_applying_a_plan_twice_gives_the_same_members() -> None:
    members = two_members()
    plan = rota.assign(Recorder, {"t": 2}, members)
    once = plan.apply(members, generation=8)
    assert plan.apply(members, generation=8) == once
    assert json.loads(once[1].user_data or b"") == [["t"], [[], 8], ["t"]]


def test_a_sticky_subclass_with_hooks_of_its_own_has_them_called() -> None:
    class Forgetful(StickyAssignor):
        name = "forgetful"

        def on_assignment(self, assignment: rota.Assignment, generation: int) -> None:
            pass

    owned = [
        rota.Member(id="a", topics=["t"], owned={"t": [1]}, generation=1),
        rota.Member(id="b", topics=["t"], owned={"t": [0]}, generation=1),
    ]
    assert rota.assign("sticky", {"t": 2}, owned).moved == 0
    assert rota.assign(Forgetful, {"t": 2}, owned).moved == 2


@pytest.mark.parametrize("hook", ["on_assignment", "subscription_user_data"])
def test_a_hook_that_raises_is_named(hook: str) -> None:
    def fail(*_: object) -> None:
        raise ValueError("by design")

    broken = type("Broken", (Recorder,), {"name": "broken", hook: fail})
    with pytest.raises(StrategyFailed, match=rf"{hook} raised ValueError: by design \(.*py:"):
        rota.assign(broken, {"t": 2}, two_members())


def test_user_data_that_is_not_bytes_is_refused() -> None:
    def text(*_: object) -> str:
        return "text"

    broken = type("Broken", (Recorder,), {"name": "broken", "subscription_user_data": text})
    with pytest.raises(StrategyFailed, match="subscription_user_data returned str, not bytes"):
        rota.assign(broken, {"t": 2}, two_members())


def test_an_instance_that_cannot_be_copied_is_refused() -> None:
    mine = Recorder()
    mine.calls.append(_ for _ in "x")  # a generator
    with pytest.raises(StrategyFailed, match="'recorder': __deepcopy__ raised TypeError"):
        rota.assign(mine, {"t": 2}, two_members())


def test_helpers_of_kafkas_abstract_partition_assignor() -> None:
    subscriptions = {
        "m3": rota.Subscription(topics=("t", "s")),
        "m1": rota.Subscription(topics=("t",)),
        "m2": rota.Subscription(topics=("s",), group_instance_id="z"),
    }
    helpers = rota.PartitionAssignor
    assert helpers.member_order(subscriptions) == ["m2", "m1", "m3"]
    assert helpers.consumers_per_topic(subscriptions) == {"s": ["m2", "m3"], "t": ["m1", "m3"]}
    assert helpers.all_partitions_sorted({"t": 2, "s": 1}) == [("s", 0), ("t", 0), ("t", 1)]


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_the_certificate_says_whether_an_assignment_is_best(strategy: str) -> None:
    members = [rota.Member(id=name, topics=["t", "s"]) for name in "ab"]
    plan = rota.assign(strategy, {"t": 3, "s": 3}, members)
    certificate = plan.certificate
    assert certificate.is_best is (strategy != "range")
    assert certificate.flaw == (None if certificate.is_best else "loads could be more even")
    assert certificate.levels == ({"a": 3, "b": 3} if certificate.is_best else {})
    assert plan.balance_score == (2 if strategy == "range" else 0)


def test_members_are_equal_by_their_user_data_too() -> None:
    member = rota.Member(id="a", topics=["t"], user_data=b"1")
    assert member != replace(member, user_data=None)
    assert member.subscription.user_data == b"1"
    with pytest.raises(rota.errors.InputError, match="user_data must be bytes, not '1'"):
        rota.Member(id="a", topics=["t"], user_data="1")  # type: ignore[arg-type]
