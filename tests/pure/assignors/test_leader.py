"""The leader's duty, from bytes to bytes."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from rota.engine.assignors.interface import Assignor, PartitionAssignor
from rota.engine.assignors.range import RangeAssignor
from rota.engine.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from rota.engine.formats import consumer_protocol
from rota.engine.member.classic import compute_assignment, decode_subscriptions
from rota.engine.member.events import AssignmentComputed, ComputeAssignment
from rota.engine.model.member import Subscription
from rota.engine.model.response import JoinedMember
from rota.engine.model.topic import Cluster, Partitions, TopicPartition
from rota.errors import BrokenRule, InputError

CLUSTER = Cluster({"t0": 3, "t1": 3})
BOTH = Subscription(topics=("t0", "t1"))
Placed = dict[str, dict[str, tuple[int, ...]]]


def joined_members(
    group: Mapping[str, Subscription | bytes], static: Mapping[str, str] | None = None
) -> list[JoinedMember]:
    return [
        JoinedMember(
            member,
            (static or {}).get(member),
            sent if isinstance(sent, bytes) else consumer_protocol.encode_subscription(sent),
        )
        for member, sent in group.items()
    ]


def assign_members(
    assignor: Assignor, cluster: Cluster, members: list[JoinedMember]
) -> AssignmentComputed:
    group, notes = decode_subscriptions(members)
    outcome = compute_assignment(ComputeAssignment(1, assignor, cluster, group, tuple(notes)))
    if outcome.error is not None:
        raise outcome.error
    return outcome


def assigned_partitions(outcome: AssignmentComputed) -> Placed:
    return {
        member: consumer_protocol.decode_assignment(data).partitions.by_topic()
        for member, data in outcome.assignments.items()
    }


def test_bytes_in_bytes_out() -> None:
    outcome = assign_members(RangeAssignor(), CLUSTER, joined_members({"C1": BOTH, "C0": BOTH}))
    assert assigned_partitions(outcome) == {
        "C0": {"t0": (0, 1), "t1": (0, 1)},
        "C1": {"t0": (2,), "t1": (2,)},
    }
    assert outcome.notes == ()


def test_static_ids_come_beside_the_bytes() -> None:
    group = {"a": BOTH, "z": BOTH}
    outcome = assign_members(RangeAssignor(), CLUSTER, joined_members(group, static={"z": "first"}))
    assert assigned_partitions(outcome)["z"] == {"t0": (0, 1), "t1": (0, 1)}


class KeepFirst(PartitionAssignor):
    """Everything to the first member."""

    name = "keep-first"

    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        first, *rest = subscriptions
        everything = [TopicPartition(t, p) for t, n in partitions.items() for p in range(n)]
        return {first: everything} | {member: [] for member in rest}


class KeepNothing(KeepFirst):
    """Breaks a rule."""

    name = "keep-nothing"

    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        return {member: [] for member in subscriptions}


def test_a_custom_strategy_is_written_too_and_held_to_the_rules() -> None:
    group = joined_members({"b": BOTH, "a": BOTH})
    assert assigned_partitions(assign_members(KeepFirst(), CLUSTER, group)) == {
        "a": {"t0": (0, 1, 2), "t1": (0, 1, 2)},
        "b": {},
    }
    with pytest.raises(BrokenRule, match="all-owned"):
        assign_members(KeepNothing(), CLUSTER, group)


def test_members_whose_bytes_cannot_be_read_are_given_nothing_and_named() -> None:
    group: dict[str, Subscription | bytes] = {
        "good": BOTH,
        "worse": b"",
        "bad": b"\0\3\0\0\0\1",
        "fine": BOTH,
    }
    for strategy in all_strategies():
        outcome = assign_members(strategy, CLUSTER, joined_members(group, static={"bad": "first"}))
        placed = assigned_partitions(outcome)
        assert placed.pop("bad") == placed.pop("worse") == {}
        assert placed == assigned_partitions(
            assign_members(strategy, CLUSTER, joined_members({"good": BOTH, "fine": BOTH}))
        )
        unreadable = "unreadable, so subscribed to nothing: subscription"
        assert outcome.notes == (
            f"member 'bad': {unreadable}: topics at byte 2: impossible count 1, 0 bytes left",
            f"member 'worse': {unreadable}: version at byte 0: 2 bytes needed, 0 left",
        )


def test_a_group_of_which_nothing_can_be_read_is_given_nothing() -> None:
    for strategy in all_strategies():
        outcome = assign_members(strategy, CLUSTER, joined_members({"a": b"", "b": b"?"}))
        assert assigned_partitions(outcome) == {"a": {}, "b": {}}
        assert len(outcome.notes) == 2


def test_a_member_listed_twice_is_refused() -> None:
    with pytest.raises(InputError, match="member 'a' is listed twice"):
        assign_members(RangeAssignor(), CLUSTER, joined_members({"a": BOTH}) * 2)


@pytest.mark.parametrize("strategy", [StickyAssignor, CooperativeStickyAssignor])
def test_nobody_loses_anything_when_one_leaves(
    strategy: type[StickyAssignor | CooperativeStickyAssignor],
) -> None:
    cluster = Cluster({f"topic-{number}": 40 for number in range(10)})
    topics = tuple(cluster.partitions)
    states: dict[str, StickyAssignor | CooperativeStickyAssignor] = {
        f"m{n:02}": strategy() for n in range(40)
    }
    asked = {member: Subscription(topics=topics) for member in states}
    first = assign_members(strategy(), cluster, joined_members(asked))
    sent: dict[str, Subscription] = {}
    for member, state in states.items():
        mine = consumer_protocol.decode_assignment(first.assignments[member])
        state.on_assignment(mine, generation=1)
        held = mine.partitions if strategy is CooperativeStickyAssignor else Partitions.of(())
        sent[member] = Subscription(
            topics=topics,
            user_data=state.subscription_user_data(topics),
            owned=held,
            generation=1,
        )
    del sent["m07"]
    second = assign_members(strategy(), cluster, joined_members(sent))
    before, after = assigned_partitions(first), assigned_partitions(second)
    for member in sent:
        for topic, numbers in before[member].items():
            assert set(numbers) <= set(after[member][topic])
    assert sum(len(n) for held in after.values() for n in held.values()) == 400
    assert second.notes == ()


def test_unreadable_user_data_is_no_claim_and_the_member_is_named() -> None:
    owned = consumer_protocol.encode_sticky_user_data(Partitions.of({"t0": [0, 1, 2]}), 4)
    group = {f"m{n:02}": BOTH for n in range(20)}
    group["m03"] = Subscription(topics=BOTH.topics, user_data=b"garbage")
    group["m04"] = Subscription(topics=BOTH.topics, user_data=owned)
    outcome = assign_members(StickyAssignor(), CLUSTER, joined_members(group))
    assert len(outcome.notes) == 1
    assert outcome.notes[0].startswith(
        "member 'm03': user data: unreadable, so no claim: sticky user data"
    )


def test_a_newer_version_of_user_data_keeps_its_claim() -> None:
    owned = Partitions.of({"t0": [1], "t1": [0, 2]})
    data = consumer_protocol.encode_sticky_user_data(owned, 4) + b"new fields"
    # few members are read one by one, many together
    for count, cluster in ((2, CLUSTER), (20, Cluster({"t0": 30, "t1": 30}))):
        group = {f"m{n:02}": BOTH for n in range(count)}
        group["m01"] = Subscription(topics=BOTH.topics, user_data=data)
        outcome = assign_members(StickyAssignor(), cluster, joined_members(group))
        assert assigned_partitions(outcome)["m01"] == {"t0": (1,), "t1": (0, 2)}
        assert outcome.notes == ()


def cooperative_v1(user_data: bytes | None) -> AssignmentComputed:
    """Of two members the second owns t1 and says so in a subscription without a generation."""
    mine = Subscription(
        topics=BOTH.topics, owned=Partitions.of({"t1": [0, 1, 2]}), user_data=user_data
    )
    return assign_members(
        CooperativeStickyAssignor(),
        CLUSTER,
        joined_members({"a": BOTH, "b": consumer_protocol.encode_subscription(mine, 1)}),
    )


def test_empty_cooperative_user_data_is_none() -> None:
    # as kafka-python's cooperative members send it
    assert cooperative_v1(b"") == cooperative_v1(None)
    assert cooperative_v1(b"").notes == ()
    assert assigned_partitions(cooperative_v1(b""))["b"] == {"t1": (0, 1, 2)}
    assert cooperative_v1(b"\0\0\0\5 new").notes == ()
    assert cooperative_v1(b"\0").notes == (
        "member 'b': user data: unreadable, so no generation: "
        "cooperative user data: generation at byte 0: 4 bytes needed, 1 left",
    )


def all_strategies() -> list[Assignor]:
    return [RangeAssignor(), StickyAssignor(), CooperativeStickyAssignor()]


@pytest.mark.parametrize("strategy", all_strategies(), ids=lambda strategy: strategy.name)
def test_the_order_of_members_does_not_reach_the_bytes(strategy: Assignor) -> None:
    rng = random.Random(7)
    cluster = Cluster({"a": 30, "b": 7, "c": 64})
    group: dict[str, Subscription | bytes] = {}
    for number in range(30):
        topics = tuple(rng.sample(sorted(cluster.partitions), rng.randint(1, 3)))
        owned = Partitions.of([(topic, rng.randrange(70)) for topic in topics for _ in range(3)])
        group[f"m{number}"] = Subscription(
            topics=topics,
            owned=owned,
            generation=rng.choice([None, 1, 2]),
            user_data=consumer_protocol.encode_sticky_user_data(owned, 2)
            if strategy.name == "sticky"
            else None,
        )
    expected = assign_members(strategy, cluster, joined_members(group))
    listed = joined_members(group)
    for _ in range(3):
        rng.shuffle(listed)
        assert assign_members(strategy, cluster, listed) == expected
