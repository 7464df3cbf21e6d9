"""Subscriptions, patterns, and the watch over the topics' metadata."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rota.engine.formats import consumer_protocol
from rota.engine.member.events import (
    ListenerMethod,
    MetadataUpdated,
    RequestMetadata,
    Subscribed,
    Unsubscribed,
)
from rota.engine.member.state import MemberState
from rota.engine.model.member import Subscription
from rota.engine.model.request import JoinGroup, LeaveGroup, OffsetCommit, SyncGroup
from rota.engine.model.topic import Cluster
from rota.errors import Code, InputError
from tests.support.member_driver import (
    ME,
    OTHER,
    Driver,
    commands_of_type,
    encode_subscription,
    offsets,
    sent_requests,
    tp,
)

#: One byte more than a string may have.
TOO_LONG = "orders" + "é" * 16_381
NO_UTF8 = "orders\ud800"


def sent_subscription(member: Driver) -> Subscription:
    return consumer_protocol.decode_subscription(member.sent(JoinGroup).protocols[0].metadata)


def leading_member(
    strategies: str = "range", *, others: tuple[str, ...] = ("t0",), **kw: object
) -> Driver:
    """Stable, and the leader of a group of two."""
    member = Driver(strategies, **kw)  # type: ignore[arg-type]
    member.poll()
    member.found()
    member.answer_join(
        leader=ME, members={ME: encode_subscription(), OTHER: encode_subscription(others)}
    )
    member.answer_sync("t0-0", "t0-1")
    member.heard()
    return member


def sent_assignments(member: Driver) -> Mapping[str, Mapping[str, tuple[int, ...]]]:
    return {
        who: consumer_protocol.decode_assignment(data).partitions.by_topic()
        for who, data in member.sent(SyncGroup).assignments
    }


# The subscription that travels


def test_a_join_tells_what_java_tells() -> None:
    member = Driver("cooperative-sticky,sticky", topics=("t1", "t0"), rack="r1")
    member.settle("t0-1", "t0-0")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    sent = member.sent(JoinGroup)
    assert [protocol.name for protocol in sent.protocols] == ["cooperative-sticky", "sticky"]
    assert (sent.session_timeout, sent.rebalance_timeout) == (45_000, 300_000)
    assert (sent.client_id, sent.protocol_type) == ("rota", "consumer")
    first, second = (
        consumer_protocol.decode_subscription(protocol.metadata) for protocol in sent.protocols
    )
    for one in (first, second):
        assert (one.topics, one.rack) == (("t0", "t1"), "r1")
        assert one.generation == 1
        # a list with an eager strategy has given everything up by now
        assert one.owned.by_topic() == {}
    assert first.user_data is not None


def test_sticky_remembers_in_its_user_data_what_it_had() -> None:
    member = Driver("sticky")
    member.settle("t0-1", "t0-0", generation=6)
    member.beat(Code.REBALANCE_IN_PROGRESS)
    group = {ME: member.sent(JoinGroup).protocols[0].metadata, OTHER: encode_subscription()}
    member.answer_join(7, leader=ME, members=group)
    assert sent_assignments(member) == {ME: {"t0": (0, 1)}, OTHER: {"t0": (2, 3)}}


def test_the_generation_in_the_subscription_is_the_one_owned() -> None:
    member = Driver("cooperative-sticky")
    member.poll()
    member.found()
    assert sent_subscription(member).generation is None
    member.answer_join(4)
    member.answer_sync("t0-0")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    assert sent_subscription(member).generation == 4
    member.answer_join(5)
    member.end_poll()
    member.beat(Code.UNKNOWN_MEMBER_ID)
    member.poll()
    assert sent_subscription(member).generation is None
    assert sent_subscription(member).owned.by_topic() == {}


# A changed subscription


@pytest.mark.parametrize("topic", [TOO_LONG, NO_UTF8], ids=["too long", "no UTF-8"])
def test_a_topic_that_kafka_cannot_carry_is_refused_and_changes_nothing(topic: str) -> None:
    member = Driver()
    with pytest.raises(InputError, match=r"^topic 'orders") as refused:
        member.give(Subscribed(("t1", topic)))
    assert len(str(refused.value)) < 200
    member.poll()
    member.found()
    assert sent_subscription(member).topics == ("t0",)


def test_other_topics_are_joined_for_by_the_next_poll() -> None:
    member = Driver()
    member.settle("t0-0")
    member.end_poll()
    commands = member.give(Subscribed(("t1", "t0")))
    assert RequestMetadata(("t0", "t1")) in commands
    assert not sent_requests(commands)
    member.poll()
    assert sent_subscription(member).topics == ("t0", "t1")


def test_the_same_topics_are_no_reason_to_join() -> None:
    member = Driver(topics=("t0", "t1"))
    member.settle("t0-0")
    member.give(Subscribed(("t1", "t0")))
    assert member.state is MemberState.STABLE


def test_a_cooperative_member_gives_up_what_it_no_longer_wants_before_it_joins() -> None:
    member = Driver("cooperative-sticky", topics=("t0", "t1"))
    member.settle("t0-0", "t1-0")
    member.heard()
    member.give(Subscribed(("t0",)))
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t1-0"))]
    assert sent_subscription(member).owned.by_topic() == {"t0": (0,)}


def test_also_when_the_join_before_it_failed() -> None:
    member = Driver("cooperative-sticky", topics=("t0", "t1"))
    member.settle("t0-0", "t1-0")
    member.heard()
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.give(Subscribed(("t0",)))
    member.fail(JoinGroup)
    member.pass_time(100)
    member.found()
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t1-0"))]
    assert sent_subscription(member).owned.by_topic() == {"t0": (0,)}


def test_an_assignment_that_no_longer_fits_is_not_taken() -> None:
    member = Driver(topics=("t0", "t1"))
    member.poll()
    member.found()
    member.answer_join()
    member.give(Subscribed(("t0",)))
    member.answer_sync("t0-0", "t1-0")
    assert member.machine.assignment == ()
    assert sent_subscription(member).topics == ("t0",)
    assert (ListenerMethod.ASSIGNED, tp("t0-0", "t1-0")) not in member.heard()


def test_topics_wanted_while_joining_are_joined_for_afterwards() -> None:
    member = Driver()
    member.poll()
    member.found()
    member.answer_join()
    member.give(Subscribed(("t0", "t1")))
    member.answer_sync("t0-0")
    assert sent_subscription(member).topics == ("t0", "t1")


# Unsubscribing


@pytest.mark.parametrize("event", [Unsubscribed(), Subscribed(())], ids=["none", "empty"])
def test_one_that_unsubscribes_gives_up_and_leaves(event: Unsubscribed | Subscribed) -> None:
    member = Driver()
    member.settle("t0-0")
    member.end_poll()
    member.heard()
    member.give(event)
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t0-0"))]
    assert member.sent(LeaveGroup).members[0].member_id == ME
    assert (member.state, member.machine.assignment) == (MemberState.UNJOINED, ())
    assert not member.timers
    assert not sent_requests(member.poll())


def test_one_that_unsubscribes_commits_first() -> None:
    member = Driver(auto_commit=True)
    member.settle("t0-0")
    member.consumed = offsets(t0_0=3)
    member.heard()
    member.give(Unsubscribed())
    assert dict(member.sent(OffsetCommit).offsets) == offsets(t0_0=3)
    assert member.heard() == []
    member.answer_commit()
    assert member.heard() == [(ListenerMethod.REVOKED, tp("t0-0"))]
    assert member.state is MemberState.UNJOINED


def test_one_that_subscribes_again_while_it_unsubscribes_starts_anew() -> None:
    member = Driver(auto_commit=True)
    member.settle("t0-0")
    member.consumed = offsets(t0_0=3)
    member.give(Unsubscribed())
    member.give(Subscribed(("t1",)))
    member.answer_commit()
    assert member.in_flight(LeaveGroup)
    assert (member.sent(JoinGroup).member_id, sent_subscription(member).topics) == ("", ("t1",))


def test_in_the_middle_of_a_rebalance_what_was_kept_is_lost() -> None:
    member = Driver("cooperative-sticky")
    member.settle("t0-0")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.heard()
    member.give(Unsubscribed())
    assert member.heard() == [(ListenerMethod.LOST, tp("t0-0"))]


def test_it_may_subscribe_again() -> None:
    member = Driver()
    member.settle("t0-0")
    member.give(Unsubscribed())
    member.give(Subscribed(("t1",)))
    assert (member.sent(JoinGroup).member_id, sent_subscription(member).topics) == ("", ("t1",))


def test_to_unsubscribe_from_nothing_is_nothing() -> None:
    member = Driver(topics=())
    assert member.give(Unsubscribed()) == []


# Patterns


def test_a_pattern_waits_for_the_topics_and_matches_them_whole() -> None:
    member = Driver(topics=())
    member.gives_metadata = False
    commands = member.give(Subscribed(pattern="t[0-9]"))
    assert commands_of_type(RequestMetadata, commands) == [RequestMetadata(None)]
    member.poll()
    member.found()
    assert not member.in_flight(JoinGroup)
    member.change(t0=1, t1=1, t10=1, at0=1)
    assert sent_subscription(member).topics == ("t0", "t1")


def test_a_pattern_does_not_match_kafkas_own_topics() -> None:
    member = Driver(pattern=".*", partitions={"t0": 1, "__consumer_offsets": 50})
    member.poll()
    member.found()
    assert sent_subscription(member).topics == ("t0",)


def test_but_it_does_if_exclude_internal_topics_is_false() -> None:
    partitions = {"t0": 1, "__consumer_offsets": 50}
    member = Driver(pattern=".*", partitions=partitions, exclude_internal=False)
    member.poll()
    member.found()
    assert sent_subscription(member).topics == ("__consumer_offsets", "t0")


@pytest.mark.parametrize(
    "pattern", ["[", "a{99999999999999}", "(" * 5_000 + ")" * 5_000], ids=lambda one: one[:9]
)
def test_a_pattern_that_is_none_is_refused_and_changes_nothing(pattern: str) -> None:
    member = Driver()
    with pytest.raises(InputError, match="is not a pattern") as refused:
        member.give(Subscribed(pattern=pattern))
    assert repr(pattern[:9]).rstrip("'") in str(refused.value)
    assert len(str(refused.value)) < 200
    member.poll()
    member.found()
    assert sent_subscription(member).topics == ("t0",)


def test_a_pattern_does_not_match_what_kafka_cannot_carry() -> None:
    member = Driver(pattern=".*", partitions={"t0": 1, TOO_LONG: 1, NO_UTF8: 1})
    member.poll()
    member.found()
    assert sent_subscription(member).topics == ("t0",)


def test_a_new_match_makes_any_member_join() -> None:
    member = Driver(pattern="t.*")
    member.settle("t0-0")
    member.end_poll()
    member.change(t0=4, t1=4, t2=4)
    assert member.state is MemberState.STABLE
    member.poll()
    assert sent_subscription(member).topics == ("t0", "t1", "t2")


def test_a_pattern_is_matched_anew_before_each_join() -> None:
    member = Driver(pattern="t.*")
    member.settle("t0-0")
    member.metadata = {"t0": 4, "t1": 4, "t2": 4}
    member.beat(Code.REBALANCE_IN_PROGRESS)
    assert sent_subscription(member).topics == ("t0", "t1", "t2")


def test_a_topic_that_the_leader_saw_first_is_taken() -> None:
    member = Driver("cooperative-sticky", pattern="t.*")
    member.poll()
    member.found()
    member.answer_join()
    member.metadata = {"t0": 4, "t1": 4, "t9": 1}
    commands = member.answer_sync("t0-0", "t9-0")
    assert member.machine.assignment == tp("t0-0", "t9-0")
    assert RequestMetadata(None) in commands
    assert member.state is MemberState.STABLE


# The leader's watch


def test_partitions_added_make_the_leader_join() -> None:
    member = leading_member()
    member.end_poll()
    member.change(t0=5, t1=4)
    assert member.state is MemberState.STABLE
    member.poll()
    assert member.sent(JoinGroup).reason == "cached metadata has changed"


def test_partitions_added_are_not_a_followers_business() -> None:
    member = Driver()
    member.settle("t0-0")
    member.change(t0=5, t1=4)
    assert member.state is MemberState.STABLE


def test_topics_of_no_member_are_nobodys_business() -> None:
    member = leading_member()
    member.change(t0=4, t1=9)
    assert member.state is MemberState.STABLE


def test_a_leader_watches_the_others_topics_too() -> None:
    member = leading_member(others=("t0", "t1"))
    member.change(t0=4, t1=9)
    assert member.sent(JoinGroup).reason == "cached metadata has changed"


def test_a_leader_asks_for_topics_that_only_others_subscribe_to() -> None:
    member = Driver()
    member.gives_metadata = False
    member.give(MetadataUpdated(Cluster({"t0": 4})))
    member.poll()
    member.found()
    commands = member.answer_join(
        leader=ME, members={ME: encode_subscription(), OTHER: encode_subscription(("t1",))}
    )
    assert commands_of_type(RequestMetadata, commands) == [RequestMetadata(("t0", "t1"))]
    assert not member.in_flight(SyncGroup), "it cannot assign what it does not know"
    member.beat()
    member.change(t0=4, t1=2)
    assert sent_assignments(member) == {ME: {"t0": (0, 1, 2, 3)}, OTHER: {"t1": (0, 1)}}


def test_a_leader_that_lost_its_place_while_it_waited_does_not_assign() -> None:
    member = Driver()
    member.gives_metadata = False
    member.poll()
    member.found()
    member.answer_join(
        leader=ME, members={ME: encode_subscription(), OTHER: encode_subscription(("t1",))}
    )
    member.beat(Code.UNKNOWN_MEMBER_ID)
    assert not sent_requests(member.change(t0=4, t1=2))
    assert member.in_flight(JoinGroup)


def test_a_leader_that_lost_the_coordinator_while_it_waited_joins_again() -> None:
    member = Driver()
    member.gives_metadata = False
    member.poll()
    member.found()
    member.answer_join(
        leader=ME, members={ME: encode_subscription(), OTHER: encode_subscription(("t1",))}
    )
    member.beat(Code.NOT_COORDINATOR)
    member.change(t0=4, t1=2)
    member.found()
    member.pass_time(100)
    assert member.sent(JoinGroup).member_id == ME


def test_a_topic_that_comes_to_be_makes_the_leader_join() -> None:
    member = leading_member(others=("t0", "new"))
    assert not member.in_flight(JoinGroup)
    member.change(t0=4, t1=4, new=1)
    assert member.in_flight(JoinGroup)


def test_racks_matter_to_a_member_with_a_rack() -> None:
    for rack, joins in ((None, False), ("r1", True)):
        member = leading_member(rack=rack)
        member.give(MetadataUpdated(Cluster({"t0": 4, "t1": 4}, {"t0": [["r1"]] * 4})))
        assert bool(member.in_flight(JoinGroup)) == joins


def test_metadata_that_says_the_same_is_no_reason() -> None:
    member = leading_member()
    member.change(t1=4, t0=4)
    assert member.state is MemberState.STABLE


def test_one_who_led_before_does_not_watch_any_more() -> None:
    member = leading_member("cooperative-sticky")
    member.beat(Code.REBALANCE_IN_PROGRESS)
    member.answer_join(2)
    member.answer_sync("t0-0", "t0-1")
    member.change(t0=9, t1=4)
    assert member.state is MemberState.STABLE
