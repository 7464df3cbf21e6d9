"""Positions that the log has left behind, and groups that cannot be joined."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rota import TopicPartition
from rota.engine.model.topic import OffsetAndMetadata
from rota.errors import InconsistentProtocol, NoOffset
from tests.support.clients.case import plain_record, unique_name
from tests.support.waiting import wait_until
from tests.system.consumer.blocking_calls import open_consumer, poll_until, read_records
from tests.system.consumer.client_drivers import ASYNC, BLOCKING, JAVA, ConsumerKind
from tests.system.consumer.group import SESSION, Group, GroupCase
from tests.system.consumer.strategy import FirstMemberTwice

HOUR = 3_600_000


def _write(group_case: GroupCase, topic: str, *numbers: int, timestamp: int | None = None) -> None:
    records = [{**plain_record(each, 0), "timestamp": timestamp} for each in numbers]
    group_case.admin.produce(topic, records)


def read_values(own: Any, count: int) -> list[int]:
    return [int(record.value) for record in read_records(own, count)]


def _committed_at(group_case: GroupCase, place: TopicPartition, offset: int) -> str:
    group = unique_name(f"g-{group_case.cluster.name}")
    with open_consumer(BLOCKING, group_case.servers, {"group.id": group}) as own:
        own.assign([place])
        own.commit({place: OffsetAndMetadata(offset)})
    return group


def removed(reset: str, kind: ConsumerKind, group_case: GroupCase) -> None:
    """The records at the group's offset have been deleted since."""
    topic = group_case.topic(1)
    place = TopicPartition(topic, 0)
    _write(group_case, topic, *range(10))
    group = _committed_at(group_case, place, 2)
    group_case.admin.delete_records(topic, [[0, 5]])
    settings = {"group.id": group, "auto.offset.reset": reset}
    with open_consumer(kind, group_case.servers, settings) as own:
        own.subscribe([topic])
        assert_goes_on(group_case, own, place, reset)


def removed_under_way(reset: str, kind: ConsumerKind, group_case: GroupCase) -> None:
    """They are deleted while the consumer is there."""
    topic = group_case.topic(1)
    place = TopicPartition(topic, 0)
    _write(group_case, topic, *range(10))
    with open_consumer(kind, group_case.servers, {"auto.offset.reset": reset}) as own:
        own.assign([place])
        own.seek(place, 0)
        assert read_values(own, 10) == list(range(10))
        group_case.admin.delete_records(topic, [[0, 5]])
        own.seek(place, 2)
        assert_goes_on(group_case, own, place, reset)


def assert_goes_on(group_case: GroupCase, own: Any, place: TopicPartition, reset: str) -> None:
    match reset:
        case "earliest":
            assert read_values(own, 5) == [5, 6, 7, 8, 9]
        case "latest":
            poll_until(
                own,
                "it goes on at the end",
                lambda: own.assignment and own.position(place) == 10,
            )
        case _:
            with pytest.raises(NoOffset, match=str(place)):
                read_records(own, 1)
            own.seek_to_end(place)
            assert own.position(place) == 10
    _write(group_case, place.topic, 10, 11)
    assert read_values(own, 2) == [10, 11]


def nothing_committed(kind: ConsumerKind, group_case: GroupCase) -> None:
    """A new group, and no word on where it begins."""
    topic = group_case.topic(1)
    _write(group_case, topic, 0)
    settings = {
        "group.id": unique_name(f"g-{group_case.cluster.name}"),
        "auto.offset.reset": "none",
    }
    with open_consumer(kind, group_case.servers, settings) as own:
        own.subscribe([topic])
        with pytest.raises(NoOffset, match=f"{topic}-0"):
            read_records(own, 1)


def expired(kind: ConsumerKind, group_case: GroupCase) -> None:
    """Retention has gone past the position."""
    topic = group_case.topic(1, **{"retention.ms": str(HOUR)})
    place = TopicPartition(topic, 0)
    with open_consumer(kind, group_case.servers, {"auto.offset.reset": "earliest"}) as own:
        own.assign([place])
        _write(group_case, topic, 0, 1, timestamp=int(time.time() * 1000) - 2 * HOUR)
        assert not own.poll(timeout=0.2) or own.position(place) <= 2
        wait_until(
            "they are gone", lambda: group_case.admin.log_offsets(topic, 1, "earliest") == [[0, 2]]
        )
        own.seek(place, 0)
        _write(group_case, topic, 2, 3)
        assert read_values(own, 2) == [2, 3]


def made_again(kind: ConsumerKind, group_case: GroupCase) -> None:
    """A topic is deleted and made again under a consumer without a group."""
    topic = group_case.topic(1)
    place = TopicPartition(topic, 0)
    settings = {"auto.offset.reset": "earliest", "metadata.max.age.ms": 300}
    with open_consumer(kind, group_case.servers, settings) as own:
        own.assign([place])
        _write(group_case, topic, *range(5))
        assert read_values(own, 5) == list(range(5))
        group_case.admin.delete_topic(topic)
        assert not own.poll(timeout=0.5)
        group_case.make(topic, 1)
        _write(group_case, topic, 100, 101)
        assert read_values(own, 2) == [100, 101]


def no_strategy_in_common(kind: ConsumerKind, group_case: GroupCase) -> None:
    """The error names what this member has, and what the others have."""
    group = Group(group_case)
    group.join(JAVA, "range")
    group.settle()
    settings = {
        "group.id": group.name,
        "partition.assignment.strategy": [FirstMemberTwice],
        **SESSION,
    }
    with open_consumer(kind, group_case.servers, settings) as own:
        own.subscribe(group.topics)
        with pytest.raises(InconsistentProtocol, match=r"blocks.*range"):
            read_records(own, 1)
    group.check_history()


CASES: dict[str, Callable[[GroupCase], None]] = {
    **{
        f"{kind}: records deleted before it came, {reset}": partial(removed, reset, kind)
        for kind, reset in ((ASYNC, "earliest"), (BLOCKING, "latest"), (ASYNC, "none"))
    },
    **{
        f"{kind}: records deleted under way, {reset}": partial(removed_under_way, reset, kind)
        for kind, reset in ((BLOCKING, "earliest"), (ASYNC, "latest"), (BLOCKING, "none"))
    },
    **{
        f"{kind}: {what}": partial(case, kind)
        for kind in (ASYNC, BLOCKING)
        for what, case in {
            "nothing committed": nothing_committed,
            "retention past the position": expired,
            "a topic made again, without a group": made_again,
            "no strategy in common": no_strategy_in_common,
        }.items()
    },
}
