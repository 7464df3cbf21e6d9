"""Odd requests that a live broker was asked too; here they hold where no broker can run."""

from __future__ import annotations

from rota.engine.model.request import LeavingMember, OffsetDelete, SyncGroup
from rota.engine.model.response import JoinGroupResult, OffsetDeleteResult, SyncGroupResult
from rota.engine.model.topic import TopicPartition
from rota.errors import Code
from tests.support.coordinator_driver import GROUP, CoordinatorDriver, join


def test_a_strategy_listed_twice_counts_once() -> None:
    desk = CoordinatorDriver()
    _, one = desk.enter(join(strategies=("range", "range")))
    _, two = desk.enter(join(strategies=("range", "sticky")))
    desk.wait(6_000)
    assert desk.joined(one).protocol == desk.joined(two).protocol == "range"


def test_an_empty_static_id_is_a_static_id() -> None:
    desk = CoordinatorDriver()
    first = desk.send(join(group_instance_id=""))
    second = desk.send(join(group_instance_id=""))
    assert desk.joined(first) == JoinGroupResult(code=Code.FENCED_INSTANCE_ID, member_id="-id1")
    desk.wait(3_000)
    assert desk.joined(second).member_id == "-id2"
    assert desk.leave(LeavingMember()) == [Code.UNKNOWN_MEMBER_ID]
    assert desk.leave(LeavingMember(group_instance_id="")) == [Code.NONE]


def test_an_id_given_to_a_dynamic_member_is_no_static_member_s() -> None:
    desk = CoordinatorDriver()
    given = desk.joined(desk.send(join())).member_id
    assert desk.ask(join(given, group_instance_id="a")) == JoinGroupResult(code=Code.UNKNOWN)


def test_a_sync_before_the_first_generation_cannot_name_another_strategy() -> None:
    desk = CoordinatorDriver()
    member, _ = desk.enter()
    sync = SyncGroup(group=GROUP, generation=0, member_id=member, protocol="sticky")
    assert desk.ask(sync) == SyncGroupResult(code=Code.REBALANCE_IN_PROGRESS)


def test_offsets_of_no_group_are_not_deleted() -> None:
    request = OffsetDelete(group="", partitions=(TopicPartition("t", 0),))
    assert CoordinatorDriver().ask(request) == OffsetDeleteResult(code=Code.INVALID_GROUP_ID)
