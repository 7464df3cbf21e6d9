"""The broker is killed, and comes back; or comes back with less than it had."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaException

from rota import TopicPartition
from rota.errors import NoOffset, TimedOut
from tests.support.clients.case import plain_record, unique_name
from tests.support.waiting import wait_until
from tests.system.consumer.blocking_calls import open_consumer, poll_until, read_records
from tests.system.consumer.client_drivers import ASYNC, BLOCKING, CONFLUENT, JAVA, ConsumerKind
from tests.system.consumer.group import Group, GroupCase


def test_a_group_goes_on_when_the_broker_is_back(group_case: GroupCase) -> None:
    group = Group(group_case)
    for kind in (ASYNC, BLOCKING, JAVA, CONFLUENT):
        group.join(kind, "cooperative-sticky", settings={"reconnect.backoff.max.ms": 300})
    group.settle()
    group.write()
    group.finish()
    group_case.cluster.kill()
    time.sleep(0.5)  # all of them notice
    group_case.cluster.start()
    group.write()
    group.finish()
    group.settle()
    assert [len(member.owned) > 0 for member in group.members.values()] == [True] * 4
    group.check_history()


def test_consumers_wait_for_the_broker(group_case: GroupCase) -> None:
    topic = group_case.topic(1)
    with ExitStack() as stack:
        both = [join_group(kind, group_case, topic, stack) for kind in (ASYNC, BLOCKING)]
        write(group_case, topic, 1, 2, 3)
        before = [own.group_metadata for own in both]
        for own in both:
            assert read_values(own, 3) == [1, 2, 3]
        group_case.cluster.kill()
        for own in both:
            assert not own.poll(timeout=0.3)
            with pytest.raises(TimedOut, match=group_case.servers):
                own.commit(timeout=1)
        group_case.cluster.start()
        write(group_case, topic, 4)
        place = TopicPartition(topic, 0)
        for own in both:
            assert read_values(own, 1) == [4]
            own.commit()
            assert own.committed([place])[place].offset == 4
        assert [own.group_metadata for own in both] == before


def join_group(kind: ConsumerKind, group_case: GroupCase, topic: str, stack: ExitStack) -> Any:
    """The one member of a group."""
    settings = {"group.id": unique_name("g"), "auto.offset.reset": "earliest"}
    own = stack.enter_context(open_consumer(kind, group_case.servers, settings))
    own.subscribe([topic])
    poll_until(own, "it is there", lambda: own.assignment)
    return own


def test_logs_are_shorter_than_they_were(group_case: GroupCase) -> None:
    """Whoever has a reset policy gets all that is written since; who has none is told."""
    topics = [group_case.topic(1) for _ in range(2)]
    for topic in topics:
        for start in range(0, 20, 5):
            write(group_case, topic, *range(start, start + 5))
    with ExitStack() as stack:
        short = [caught_up_reader(kind, group_case, topics[0], stack) for kind in (ASYNC, BLOCKING)]
        regrown = [
            caught_up_reader(kind, group_case, topics[1], stack) for kind in (ASYNC, BLOCKING)
        ]
        strict = caught_up_reader(ASYNC, group_case, topics[0], stack, reset="none")
        left, _ = truncate_logs(group_case, topics)
        write(group_case, topics[0], 100, 101, 102)
        write(group_case, topics[1], *range(100, 130))
        for own in short:
            found = read_values(own, 1)
            while 102 not in found:
                found += read_values(own, 1)
            assert found in ([100, 101, 102], [*range(left), 100, 101, 102])
        with pytest.raises(NoOffset, match=f"{topics[0]}-0"):
            read_records(strict, 1)
        # Behind the position there are records again, and only the leader's epoch tells that they
        # are others. Rota's broker has one epoch for all time.
        for own in regrown if group_case.cluster.name == "kafka" else ():
            assert read_values(own, 30) == list(range(100, 130))


def caught_up_reader(
    kind: ConsumerKind,
    group_case: GroupCase,
    topic: str,
    stack: ExitStack,
    reset: str = "earliest",
) -> Any:
    """One who has read all there is."""
    own = stack.enter_context(open_consumer(kind, group_case.servers, {"auto.offset.reset": reset}))
    own.assign([(topic, 0)])
    own.seek_to_beginning((topic, 0))
    assert read_values(own, 20) == list(range(20))
    return own


def write(group_case: GroupCase, topic: str, *numbers: int) -> None:
    group_case.admin.produce(topic, [plain_record(each, 0) for each in numbers])


def read_values(own: Any, count: int) -> list[int]:
    return [int(record.value) for record in read_records(own, count)]


def truncate_logs(group_case: GroupCase, topics: Sequence[str]) -> list[int]:
    """No broker may do this: half of the records are gone. Says how many are left."""
    group_case.cluster.kill()
    for topic in topics:
        (log,) = (group_case.cluster.data / f"{topic}-0").glob("*.log")
        os.truncate(log, log.stat().st_size // 2 + 1)
    group_case.cluster.start()
    return [wait_until("it is led again", partial(log_end, group_case, topic)) for topic in topics]


def log_end(group_case: GroupCase, topic: str) -> int | None:
    """The end of its log, once it has a leader; librdkafka may ask with an old epoch at first."""
    found = group_case.admin.admin.list_topics(topic, timeout=10).topics[topic].partitions
    if not found or found[0].leader < 0:
        return None
    with suppress(KafkaException):
        ((_, end),) = group_case.admin.log_offsets(topic, 1, "latest")
        assert 0 < end < 20
        return end
    return None
