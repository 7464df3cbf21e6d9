"""Odd requests that a live broker was asked too; here they hold where no broker can run."""

from __future__ import annotations

from rota.engine.model.request import LeavingMember, OffsetDelete, SyncGroup
from rota.engine.model.response import JoinGroupResult, OffsetDeleteResult, SyncGroupResult
from rota.engine.model.topic import TopicPartition
from rota.errors import Code
from tests.support.coordinator_driver import GROUP, CoordinatorDriver, join_request


def test_a_strategy_listed_twice_counts_once() -> None:
    driver = CoordinatorDriver()
    _, one = driver.enter(join_request(strategies=("range", "range")))
    _, two = driver.enter(join_request(strategies=("range", "sticky")))
    driver.wait(6_000)
    assert driver.joined(one).protocol == driver.joined(two).protocol == "range"


def test_an_empty_static_id_is_a_static_id() -> None:
    driver = CoordinatorDriver()
    first = driver.send(join_request(group_instance_id=""))
    second = driver.send(join_request(group_instance_id=""))
    assert driver.joined(first) == JoinGroupResult(code=Code.FENCED_INSTANCE_ID, member_id="-id1")
    driver.wait(3_000)
    assert driver.joined(second).member_id == "-id2"
    assert driver.leave(LeavingMember()) == [Code.UNKNOWN_MEMBER_ID]
    assert driver.leave(LeavingMember(group_instance_id="")) == [Code.NONE]


def test_an_id_given_to_a_dynamic_member_is_no_static_member_s() -> None:
    driver = CoordinatorDriver()
    given = driver.joined(driver.send(join_request())).member_id
    assert driver.ask(join_request(given, group_instance_id="a")) == JoinGroupResult(
        code=Code.UNKNOWN
    )


def test_a_sync_before_the_first_generation_cannot_name_another_strategy() -> None:
    driver = CoordinatorDriver()
    member, _ = driver.enter()
    sync = SyncGroup(group=GROUP, generation=0, member_id=member, protocol="sticky")
    assert driver.ask(sync) == SyncGroupResult(code=Code.REBALANCE_IN_PROGRESS)


def test_offsets_of_no_group_are_not_deleted() -> None:
    request = OffsetDelete(group="", partitions=(TopicPartition("t", 0),))
    assert CoordinatorDriver().ask(request) == OffsetDeleteResult(code=Code.INVALID_GROUP_ID)
