"""``rota.Consumer`` and ``rota.AsyncConsumer`` against a broker in the same process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import signal
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import pytest

import rota
from rota.broker.embedded import Broker
from rota.client import fetch
from rota.consumer.buffer import FetchBuffer
from rota.consumer.core import ConsumerCore
from rota.consumer.records import Offsets
from rota.engine.member.events import MarkPendingRevocation, SetAssignment
from rota.engine.model.response import OffsetFetchResult
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import AuthorizationFailed, Code, InputError, Interrupted, RecordError
from tests.support.waiting import wait_until

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with rota.Broker(config={"group.min.session.timeout.ms": 100}) as one:
        one.create_topic("t", 2)
        yield one


def fill(broker: Broker, count: int, topic: str = "t", partition: int = 0) -> None:
    for number in range(count):
        broker.produce(topic, f"{number}", partition=partition)


def consumer_settings(broker: Broker, **others: object) -> dict[str, object]:
    named = {name.replace("_", "."): value for name, value in others.items()}
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        **named,
    }


@pytest.fixture
def consumer(broker: Broker) -> Iterator[rota.Consumer]:
    with rota.Consumer(consumer_settings(broker)) as one:
        yield one


def poll_until(consumer: rota.Consumer, condition: Callable[[], bool]) -> None:
    """Polls until something is true."""
    wait_until("so by polling", condition, meanwhile=partial(consumer.poll, 0.05))


def poll_values(consumer: rota.Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []

    def poll() -> None:
        found.extend(record.value for record in consumer.poll(0.5))

    wait_until(f"{count} records", lambda: len(found) >= count, lambda: found, meanwhile=poll)
    return found


def repeat_forever(call: Callable[[], object]) -> None:
    while True:
        call()


class RecordingListener(rota.RebalanceListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[TopicPartition, ...]]] = []

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("revoked", tuple(partitions)))

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("assigned", tuple(partitions)))

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("lost", tuple(partitions)))


# Reading


def test_a_member_reads_what_is_there_and_what_comes(
    broker: Broker, consumer: rota.Consumer
) -> None:
    fill(broker, 3)
    consumer.subscribe(["t"])
    assert poll_values(consumer, 3) == [b"0", b"1", b"2"]
    broker.produce("t", b"late", partition=1, key=b"k", headers=[("h", b"v")])
    [record] = poll_records(consumer)
    assert (record.topic, record.partition, record.offset) == ("t", 1, 0)
    assert (record.key, record.value, record.headers) == (b"k", b"late", (("h", b"v"),))
    assert record.timestamp > 0


def poll_records(consumer: rota.Consumer) -> rota.Records:
    found: rota.Records = wait_until("a record", partial(consumer.poll, 0.5), meanwhile=bool)
    return found


def test_what_was_read_is_committed_at_the_close_and_not_read_again(broker: Broker) -> None:
    fill(broker, 3)
    with rota.Consumer(consumer_settings(broker)) as first:
        first.subscribe(["t"])
        assert poll_values(first, 3) == [b"0", b"1", b"2"]
    assert broker.committed("g")[T0] == 3
    assert broker.group("g").state == "Empty"
    broker.produce("t", b"new", partition=0)
    with rota.Consumer(consumer_settings(broker)) as second:
        second.subscribe(["t"])
        assert poll_values(second, 1) == [b"new"]


def test_at_most_max_poll_records_come_at_once(broker: Broker, consumer: rota.Consumer) -> None:
    fill(broker, 10)
    consumer.assign([T0])
    first = consumer.poll(10, max_records=4)
    assert [record.offset for record in first] == [0, 1, 2, 3]
    assert consumer.position(T0) == 4
    assert [record.offset for record in consumer.poll(10)] == [4, 5, 6, 7, 8, 9]


def test_no_more_are_made_of_several_partitions_than_a_poll_gives(broker: Broker) -> None:
    fill(broker, 237)
    fill(broker, 400, partition=1)
    made: list[bytes] = []
    with rota.Consumer(consumer_settings(broker, value_deserializer=made.append)) as consumer:
        consumer.assign([T0, T1])
        end = time.monotonic() + 60
        while time.monotonic() < end:  # until both have answered
            made.clear()
            found = consumer.poll(10)
            assert len(found) == len(made)
            if len(found) == 500:
                return
            consumer.seek_to_beginning()
            time.sleep(0.05)
    raise AssertionError("not both at once")


def test_partitions_that_cannot_be_read_on_do_not_hold_up_others(broker: Broker) -> None:
    for partition in (0, 1):
        broker.produce("t", b"bad", partition=partition)
        for _ in range(60):
            broker.produce("t", b"x" * 400, partition=partition)

    def read(value: bytes) -> bytes:
        if value == b"bad":
            raise ValueError(value)
        return value

    broker.create_topic("fine", 1)
    limits = {"max_partition_fetch_bytes": 4_000, "fetch_max_bytes": 6_000}
    given = consumer_settings(broker, value_deserializer=read, fetch_max_wait_ms=50, **limits)
    with rota.Consumer(given) as consumer:
        consumer.assign([T0, T1, ("fine", 0)])
        failed: set[int] = set()
        found: list[bytes] = []
        end = time.monotonic() + 30
        while time.monotonic() < end and len(found) < 3:
            try:
                found += [record.value for record in consumer.poll(0.1)]
            except RecordError as error:
                failed.add(error.partition)
            if failed == {0, 1} and not found:
                for value in (b"0", b"1", b"2"):
                    broker.produce("fine", value)
                failed.clear()
        assert found[:3] == [b"0", b"1", b"2"]


def test_a_record_that_cannot_be_read_keeps_nothing_alive(broker: Broker) -> None:
    """Its error comes again and again: none is kept that has been through somebody's frames."""

    class Mine:
        """What an application has at hand."""

    fill(broker, 3)
    made: list[weakref.ref[Mine]] = []

    def refuse(_: bytes) -> bytes:
        mine = Mine()
        made.append(weakref.ref(mine))
        raise ValueError("no")

    with rota.Consumer(consumer_settings(broker, value_deserializer=refuse)) as consumer:
        consumer.assign([T0])
        for number in range(3):
            with pytest.raises(RecordError, match="t-0 at offset 0: .*no") as caught:
                consumer.poll(60)
            assert isinstance(caught.value.__cause__, ValueError) is (number == 0)
            length = len(traceback.extract_tb(caught.value.__traceback__))
            assert length < 15
            del caught
        gc.collect()
        assert [each() for each in made] == [None]
        consumer.seek(T0, 3)
        broker.produce("t", b"more", partition=0)
        with pytest.raises(RecordError, match="t-0 at offset 3"):
            consumer.poll(60)


def test_a_pattern_finds_topics_that_are_made_later(broker: Broker) -> None:
    with rota.Consumer(consumer_settings(broker, metadata_max_age_ms=100)) as consumer:
        consumer.subscribe(pattern="new-.*")
        consumer.poll(0.2)
        broker.create_topic("new-one", 1)
        broker.produce("new-one", b"x")
        assert poll_values(consumer, 1) == [b"x"]
        assert consumer.subscription == {"new-one"}


def test_the_asyncio_consumer_reads_in_an_async_for(broker: Broker) -> None:
    fill(broker, 3)

    async def read() -> list[bytes]:
        found = []
        async with rota.AsyncConsumer(consumer_settings(broker)) as consumer:
            consumer.subscribe("t")
            async for record in consumer:
                found.append(record.value)
                if len(found) == 3:
                    break
        return found

    assert asyncio.run(asyncio.wait_for(read(), 60)) == [b"0", b"1", b"2"]


def test_an_async_for_follows_a_seek_and_goes_on_where_it_was_left(broker: Broker) -> None:
    fill(broker, 9)

    async def read() -> list[int]:
        found = []
        async with rota.AsyncConsumer(
            consumer_settings(broker, enable_auto_commit=False)
        ) as consumer:
            consumer.assign([T0])
            async for record in consumer:
                found.append(record.offset)
                if len(found) == 2:
                    consumer.seek(T0, 5)
                if len(found) == 3:
                    break
            await consumer.commit()
            assert broker.committed("g") == {T0: 6}
            async for record in consumer:
                found.append(record.offset)
                if len(found) == 5:
                    break
            found.append((await anext(consumer)).offset)
        return found

    assert asyncio.run(asyncio.wait_for(read(), 60)) == [0, 1, 5, 6, 7, 8]


# Record by record


def test_a_commit_inside_the_loop_covers_what_was_handed_out(
    broker: Broker, consumer: rota.Consumer
) -> None:
    fill(broker, 5)
    fill(broker, 5, partition=1)
    consumer.subscribe(["t"])
    for count, record in enumerate(consumer, 1):
        consumer.commit()
        stored = broker.committed("g")
        assert stored[TopicPartition(record.topic, record.partition)] == record.offset + 1
        assert sum(stored.values()) == count
        assert consumer.position((record.topic, record.partition)) == record.offset + 1
        if count == 10:
            break


def test_a_loop_that_is_left_goes_on_where_it_stopped(
    broker: Broker, consumer: rota.Consumer
) -> None:
    fill(broker, 6)
    consumer.subscribe(["t"])
    first = [record.value for record in islice(consumer, 2)]
    second = [next(iter(consumer)).value, next(consumer).value]
    assert first + second + poll_values(consumer, 2) == [b"%d" % number for number in range(6)]
    assert consumer.position(T0) == 6
    consumer.close()
    with pytest.raises(StopIteration):
        next(consumer)


def test_a_seek_in_the_loop_takes_effect_at_once(broker: Broker, consumer: rota.Consumer) -> None:
    fill(broker, 6)
    consumer.assign([T0])
    seen = []
    for record in consumer:
        seen.append(record.offset)
        if len(seen) == 2:
            consumer.seek(T0, 4)
        if len(seen) == 4:
            break
    assert seen == [0, 1, 4, 5]


def test_a_seek_of_one_partition_leaves_the_others_behind_what_was_handed_out(
    broker: Broker, consumer: rota.Consumer
) -> None:
    fill(broker, 5)
    fill(broker, 5, partition=1)
    consumer.assign([T0, T1])
    wait_until_fetched(consumer, {T0, T1})
    first = next(iter(consumer))
    there = TopicPartition(first.topic, first.partition)
    consumer.seek(there, 3)
    consumer.commit()
    [other] = {T0, T1} - {there}
    assert broker.committed("g") == {there: 3, other: 0}


def wait_until_fetched(consumer: rota.Consumer, partitions: set[TopicPartition]) -> None:
    """Until one poll gives records of all of them; then back to the beginning."""

    def again() -> None:
        consumer.seek_to_beginning()
        time.sleep(0.05)

    wait_until(
        "records of all",
        lambda: set(consumer.poll(0.5).by_partition) == partitions,
        meanwhile=again,
    )
    consumer.seek_to_beginning()
    assert all(consumer.position(each) == 0 for each in partitions)


@pytest.mark.parametrize("how", ["assign", "subscribe"])
@pytest.mark.parametrize("end", ["close", "unsubscribe", "assign"])
def test_the_last_commit_covers_what_a_loop_has_handed_out(
    broker: Broker, how: str, end: str
) -> None:
    fill(broker, 5)
    fill(broker, 5, partition=1)
    with rota.Consumer(consumer_settings(broker)) as consumer:
        if how == "assign":
            consumer.assign([T0, T1])
        else:
            consumer.subscribe(["t"])
        for count, _ in enumerate(consumer, 1):
            if count == 3:
                break
        if end == "unsubscribe" or (end == "assign" and how == "subscribe"):
            consumer.unsubscribe()
        if end == "assign":
            consumer.assign([TopicPartition("other", 0)])
    stored = broker.committed("g")
    assert stored.get(T0, 0) + stored.get(T1, 0) == 3


def test_a_poll_after_a_loop_gives_at_most_max_records_and_intercepts_once(broker: Broker) -> None:
    fill(broker, 6)
    seen: list[int] = []

    class Spy(rota.ConsumerInterceptor):
        def on_consume(self, records: rota.Records) -> rota.Records:
            seen.extend(record.offset for record in records)
            return records

    with rota.Consumer(consumer_settings(broker, interceptor_classes=[Spy()])) as consumer:
        consumer.assign([T0])
        assert next(iter(consumer)).offset == 0
        assert [record.offset for record in consumer.poll(10, max_records=2)] == [1, 2]
        assert consumer.position(T0) == 3
        assert [record.offset for record in consumer.poll(10)] == [3, 4, 5]
        assert consumer.position(T0) == 6
    assert seen == [0, 1, 2, 3, 4, 5]


def test_columns_after_a_loop_go_on_where_it_stopped(
    broker: Broker, consumer: rota.Consumer
) -> None:
    fill(broker, 6)
    consumer.assign([T0])
    assert next(iter(consumer)).offset == 0
    found: list[int] = []
    while len(found) < 5:
        for batch in consumer.poll_batches(10):
            found += batch.offsets.tolist()
    assert found == [1, 2, 3, 4, 5]
    consumer.commit()
    assert broker.committed("g") == {T0: 6}


# What is wrong is said


def test_polling_needs_something_to_read(consumer: rota.Consumer) -> None:
    with pytest.raises(InputError, match="subscribe or assign first"):
        consumer.poll(0)
    with pytest.raises(InputError, match="subscribe or assign first"):
        next(iter(consumer))


def test_arguments_that_make_no_sense_are_named(consumer: rota.Consumer) -> None:
    given: Any = "t"
    alone: Any = ("t", 0)
    several: Any = [T0]
    one: Any = T0
    consumer.assign([T0])
    for call, text in (
        (lambda: consumer.assign(given), "assign: 't' is not a list of partitions"),
        (lambda: consumer.seek(given, 3), "seek: 't' is not a partition"),
        (lambda: consumer.commit({given: 3}), "commit: 't' is not a partition"),
        (lambda: consumer.committed(alone), "committed: .'t', 0. is not a list of partitions"),
        (lambda: consumer.end_offsets(one), "end_offsets: TopicPartition.* is not a list of"),
        (lambda: consumer.pause(several), r"one by one, such as pause\(\*partitions\)"),
        (lambda: consumer.offsets_for_times({T0: -2}), "-2 of t-0 is not a whole number"),
        (lambda: consumer.poll(-1), "timeout -1"),
        (lambda: consumer.poll(float("nan")), "timeout nan"),
        (lambda: consumer.poll(0, max_records=0), "max_records 0"),
        (lambda: consumer.subscribe(alone), "is not a topic name"),
    ):
        with pytest.raises(InputError, match=text):
            call()


def test_a_pause_in_the_loop_takes_effect_at_once(broker: Broker, consumer: rota.Consumer) -> None:
    fill(broker, 5)
    fill(broker, 5, partition=1)
    consumer.assign([T0, T1])
    first = next(iter(consumer))
    at = TopicPartition(first.topic, first.partition)
    other = T1 if at == T0 else T0
    consumer.pause(at)
    seen = [next(iter(consumer)) for _ in range(5)]
    assert {record.partition for record in seen} == {other.partition}
    assert consumer.position(at) == 1
    consumer.resume(at)
    assert [next(iter(consumer)).offset for _ in range(4)] == [1, 2, 3, 4]


# Without a group


def test_assigned_partitions_are_read_without_a_group(broker: Broker) -> None:
    fill(broker, 4, partition=1)
    config = {"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest"}
    with rota.Consumer(config) as consumer:
        consumer.assign([("t", 1)])
        consumer.seek(T1, 2)
        assert poll_values(consumer, 2) == [b"2", b"3"]
        consumer.seek_to_beginning()
        assert consumer.position(T1) == 0
        consumer.seek_to_end(T1)
        assert consumer.position(T1) == 4
        with pytest.raises(InputError, match=r"commit: this consumer has no group.id"):
            consumer.commit()
        with pytest.raises(InputError, match="seek: t-0 is not assigned"):
            consumer.seek(T0, 0)


def test_paused_partitions_give_nothing_until_resumed(
    broker: Broker, consumer: rota.Consumer
) -> None:
    fill(broker, 2)
    fill(broker, 2, partition=1)
    consumer.assign([T0, T1])
    consumer.pause(T0)
    assert consumer.paused == {T0}
    assert {record.partition for record in consumer.poll(10)} == {1}
    assert not consumer.poll(0.1)
    consumer.resume(T0)
    assert {record.partition for record in consumer.poll(10)} == {0}


@pytest.mark.parametrize("change", ["resume", "seek", "seek_to_beginning", "assign"])
def test_a_poll_that_waits_hears_of_what_another_task_does(broker: Broker, change: str) -> None:
    fill(broker, 1)
    fill(broker, 1, partition=1)

    async def read() -> None:
        async with rota.AsyncConsumer(consumer_settings(broker)) as consumer:
            consumer.assign([T0])
            assert len(await consumer.poll(60)) == 1
            if change == "resume":
                consumer.pause(T0)
                fill(broker, 1)
            waiting = asyncio.create_task(consumer.poll(3_600))
            await asyncio.sleep(0.1)
            match change:
                case "resume":
                    consumer.resume(T0)
                case "seek":
                    consumer.seek(T0, 0)
                case "seek_to_beginning":
                    consumer.seek_to_beginning(T0)
                case _:
                    consumer.assign([T1])
            assert len(await waiting) == 1

    asyncio.run(asyncio.wait_for(read(), 60))


def test_look_ups(broker: Broker, consumer: rota.Consumer) -> None:
    fill(broker, 3)
    consumer.assign([T0])
    assert consumer.lag(T0) is None
    assert consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
    assert consumer.end_offsets([T0, T1]) == {T0: 3, T1: 0}
    found = consumer.offsets_for_times({T0: 0, T1: 0})
    assert {at: each and each.offset for at, each in found.items()} == {T0: 0, T1: None}
    assert consumer.partitions_for_topic("t") == (0, 1)
    assert consumer.topics()["t"] == 2
    assert consumer.committed([T0]) == {T0: None}
    consumer.poll(10, max_records=1)
    assert consumer.lag(T0) == 2


# Commits


def test_callbacks_run_in_order_and_before_a_commit_that_waits_returns(
    broker: Broker, consumer: rota.Consumer
) -> None:
    consumer.assign([T0])
    results: list[tuple[int, Exception | None]] = []

    def note(offsets: Offsets, error: Exception | None) -> None:
        results.append((offsets[T0].offset, error))

    for offset in (1, 2, 3):
        consumer.commit_async({T0: OffsetAndMetadata(offset)}, note)
    consumer.commit({T0: OffsetAndMetadata(4, "by hand")})
    assert results == [(1, None), (2, None), (3, None)]
    stored = consumer.committed([T0])[T0]
    assert stored is not None
    assert (stored.offset, stored.metadata) == (4, "by hand")


def test_a_callback_that_raises_is_told_and_does_no_harm(
    broker: Broker, consumer: rota.Consumer
) -> None:
    consumer.assign([T0])

    def broken(_: Offsets, __: Exception | None) -> None:
        raise ValueError("in the callback")

    consumer.commit_async({T0: OffsetAndMetadata(1)}, broken)
    with pytest.raises(ValueError, match="in the callback"):
        consumer.commit({T0: OffsetAndMetadata(2)})
    consumer.commit({T0: OffsetAndMetadata(3)})
    assert broker.committed("g")[T0] == 3


def test_offsets_that_are_none_are_refused(consumer: rota.Consumer) -> None:
    wrong: Any = {T0: "five"}
    with pytest.raises(InputError, match="offset of t-0: 'five'"):
        consumer.commit(wrong)


def test_assigned_partitions_are_committed_automatically_too(broker: Broker) -> None:
    fill(broker, 3)
    with rota.Consumer(consumer_settings(broker, auto_commit_interval_ms=50)) as consumer:
        consumer.assign([T0])
        poll_values(consumer, 3)
        poll_until(consumer, lambda: broker.committed("g").get(T0) == 3)
        broker.produce("t", b"last", partition=0)
        poll_values(consumer, 1)
    assert broker.committed("g")[T0] == 4


# Listeners and interceptors


def test_a_listener_hears_of_what_comes_and_goes(broker: Broker, consumer: rota.Consumer) -> None:
    recording_listener = RecordingListener()
    consumer.subscribe(["t"], listener=recording_listener)
    poll_until(consumer, lambda: consumer.assignment == {T0, T1})
    consumer.unsubscribe()
    assert recording_listener.calls == [("assigned", (T0, T1)), ("revoked", (T0, T1))]
    assert consumer.assignment == frozenset()
    assert broker.wait_for_group("g", members=0).state == "Empty"


def test_a_listener_may_commit_and_seek(broker: Broker) -> None:
    fill(broker, 5)

    class Careful(rota.RebalanceListener):
        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            careful.seek(T0, 2)
            assert careful.position(T0) == 2

        def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            if partitions:
                careful.commit({T0: OffsetAndMetadata(4)})

    with rota.Consumer(consumer_settings(broker, enable_auto_commit=False)) as careful:
        careful.subscribe(["t"], listener=Careful())
        assert poll_values(careful, 3) == [b"2", b"3", b"4"]
    assert broker.committed("g") == {T0: 4}


def test_what_is_assigned_while_a_poll_ends_is_told_in_it(
    consumer: rota.Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = ConsumerCore._take_records_and_end_poll

    def slowly(core: ConsumerCore, most: int | None) -> bool:
        time.sleep(0.05)  # what the member has asked for is answered meanwhile
        return take(core, most)

    monkeypatch.setattr(ConsumerCore, "_take_records_and_end_poll", slowly)
    recording_listener = RecordingListener()
    consumer.subscribe(["t"], listener=recording_listener)
    wait_until(
        "it is assigned",
        lambda: consumer.assignment or recording_listener.calls,
        meanwhile=partial(consumer.poll, 0),
    )
    assert recording_listener.calls == [("assigned", (T0, T1))]
    assert consumer.assignment == {T0, T1}


def test_a_listener_that_raises_is_told_and_leaves_the_group_usable(
    broker: Broker, consumer: rota.Consumer
) -> None:
    fill(broker, 1)

    class Broken(rota.RebalanceListener):
        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            raise ValueError("in the listener")

    consumer.subscribe(["t"], listener=Broken())
    with pytest.raises(ValueError, match="in the listener"):
        poll_values(consumer, 1)
    assert poll_values(consumer, 1) == [b"0"]


def test_nobody_polls_inside_a_listener(broker: Broker, consumer: rota.Consumer) -> None:
    class Greedy(rota.RebalanceListener):
        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            consumer.poll(0)

    consumer.subscribe(["t"], listener=Greedy())
    with pytest.raises(InputError, match="inside a poll already"):
        poll_until(consumer, lambda: False)


def test_an_async_listener_is_for_the_asyncio_consumer(broker: Broker) -> None:
    class Async(rota.RebalanceListener):
        async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            await asyncio.sleep(0)
            heard.append(tuple(partitions))

    heard: list[tuple[TopicPartition, ...]] = []

    async def run() -> None:
        async with rota.AsyncConsumer(consumer_settings(broker)) as consumer:
            consumer.subscribe("t", listener=Async())
            while not consumer.assignment or not heard:
                await consumer.poll(0.1)

    asyncio.run(asyncio.wait_for(run(), 60))
    assert heard == [(T0, T1)]
    with rota.Consumer(consumer_settings(broker)) as blocking:
        blocking.subscribe(["t"], listener=Async())
        with pytest.raises(InputError, match=r"is async: only rota.AsyncConsumer"):
            poll_until(blocking, lambda: False)


def test_interceptors_see_records_and_commits(broker: Broker) -> None:
    fill(broker, 3)

    class Spy(rota.ConsumerInterceptor):
        def __init__(self) -> None:
            self.seen: list[object] = []

        def on_consume(self, records: rota.Records) -> rota.Records:
            self.seen.append(len(records))
            return records

        def on_commit(self, offsets: Offsets) -> None:
            self.seen.append({at: offset.offset for at, offset in offsets.items()})

        def close(self) -> None:
            self.seen.append("closed")

    spy = Spy()
    config = consumer_settings(broker, enable_auto_commit=False, interceptor_classes=[spy])
    with rota.Consumer(config) as consumer:
        consumer.assign([T0])
        poll_values(consumer, 3)
        consumer.commit()
    assert spy.seen == [3, {T0: 3}, "closed"]


def test_an_interceptor_may_take_all_records_away(broker: Broker) -> None:
    fill(broker, 3)

    class Closed(rota.ConsumerInterceptor):
        def on_consume(self, records: rota.Records) -> rota.Records:
            return rota.Records({})

    with rota.Consumer(consumer_settings(broker, interceptor_classes=[Closed()])) as consumer:
        consumer.assign([T0])
        poll_until(consumer, lambda: consumer.position(T0) == 3)
        assert not consumer.poll(0)


def test_what_waits_for_the_next_poll_does_not_keep_a_commit_busy(
    broker: Broker, consumer: rota.Consumer
) -> None:
    """The new assignment of a rebalance waits while a commit is slow to be answered."""
    consumer.subscribe(["t"])
    poll_until(consumer, lambda: bool(consumer.assignment))
    membership = consumer._core.membership
    assert membership is not None
    membership.driver.inbox.append(SetAssignment((T0, T1), 1))
    broker.delay("OffsetCommit", seconds=0.5)
    before = time.process_time()
    consumer.commit({T0: OffsetAndMetadata(1)})
    assert time.process_time() - before < 0.25
    assert membership.driver.inbox


@pytest.mark.parametrize("columns", [False, True])
def test_what_ctrl_c_stops_on_its_way_is_not_committed_and_comes_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, columns: bool
) -> None:
    """Positions have moved, but the application has not got its records."""
    fill(broker, 5)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with rota.Consumer(consumer_settings(broker)) as consumer:
        consumer.assign([T0])
        with monkeypatch.context() as patch:
            patch.setattr(FetchBuffer, "_advance_position", stopped)
            with pytest.raises(KeyboardInterrupt):
                repeat_forever(partial(consumer.poll_batches if columns else consumer.poll, 10))
        consumer.commit()
        assert broker.committed("g").get(T0, 0) == 0
        assert poll_values(consumer, 5) == [b"0", b"1", b"2", b"3", b"4"]


def test_ctrl_c_in_a_deserializer_loses_nothing(broker: Broker) -> None:
    fill(broker, 5)
    fill(broker, 5, partition=1)
    calls: list[bytes] = []

    def deserialized(data: bytes) -> bytes:
        calls.append(data)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return data

    with rota.Consumer(consumer_settings(broker, value_deserializer=deserialized)) as consumer:
        consumer.assign([T0, T1])
        found: list[bytes] = []
        with pytest.raises(KeyboardInterrupt):
            repeat_forever(lambda: found.extend(record.value for record in consumer.poll(10)))
        consumer.commit()
        assert sum(broker.committed("g").values()) == len(found)
        found += poll_values(consumer, 10 - len(found))
        assert sorted(found) == sorted([b"%d" % each for each in range(5)] * 2)


def test_ctrl_c_while_decoding_loses_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 5)

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with rota.Consumer(consumer_settings(broker)) as consumer:
        consumer.assign([T0])
        with monkeypatch.context() as patch:
            patch.setattr(fetch, "decode_batches", stopped)
            with pytest.raises(KeyboardInterrupt):
                poll_values(consumer, 1)
        assert poll_values(consumer, 5) == [b"0", b"1", b"2", b"3", b"4"]


def test_an_error_of_a_poll_ends_it_for_the_member(broker: Broker) -> None:
    fill(broker, 600)

    def picky(data: bytes) -> bytes:
        if data == b"550":
            raise ValueError("not this one")
        return data

    config = consumer_settings(broker, value_deserializer=picky)
    with rota.Consumer(config) as consumer:
        consumer.subscribe("t")
        with pytest.raises(RecordError, match=r"t-0 at offset 550: .*not this one"):
            poll_values(consumer, 600)
        membership = consumer._core.membership
        assert membership is not None
        assert not membership.driver.machine._in_poll
        consumer.seek(T0, 551)
        assert poll_values(consumer, 1)[0] == b"551"


def test_a_listener_may_unsubscribe_but_not_close(broker: Broker) -> None:
    class Leaving(rota.RebalanceListener):
        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            with pytest.raises(InputError, match="close: not inside a listener"):
                leaver.close()
            leaver.unsubscribe()

    with rota.Consumer(consumer_settings(broker)) as leaver:
        leaver.subscribe("t", listener=Leaving())
        poll_until(leaver, lambda: not leaver.subscription)
        assert leaver.assignment == frozenset()
        assert broker.wait_for_group("g", members=0).state == "Empty"


# Groups


def test_two_members_share_and_the_second_leaves(broker: Broker) -> None:
    config = consumer_settings(
        broker,
        partition_assignment_strategy=["cooperative-sticky"],
        heartbeat_interval_ms=50,
        session_timeout_ms=6000,
    )
    with rota.Consumer(config) as first:
        recording_listener = RecordingListener()
        first.subscribe(["t"], listener=recording_listener)
        poll_until(first, lambda: len(first.assignment) == 2)
        second = rota.Consumer(config)
        second.subscribe(["t"])
        thread = threading.Thread(
            target=poll_until, args=(second, lambda: len(second.assignment) == 1), daemon=True
        )
        thread.start()
        poll_until(first, lambda: len(first.assignment) == 1 and not thread.is_alive())
        assert first.assignment | second.assignment == {T0, T1}
        second_owned = tuple(second.assignment)
        second.close()
        poll_until(first, lambda: len(first.assignment) == 2)
    moved = second_owned
    assert recording_listener.calls[:2] == [("assigned", (T0, T1)), ("revoked", moved)]
    assert recording_listener.calls[-2:] == [("assigned", moved), ("revoked", (T0, T1))]


def test_what_a_loop_has_left_is_handed_out_before_a_rebalance(broker: Broker) -> None:
    fill(broker, 5)
    fill(broker, 5, partition=1)
    config = consumer_settings(broker, heartbeat_interval_ms=50)
    with rota.Consumer(config) as first, rota.Consumer(config) as second:
        first.subscribe("t")
        found = [next(iter(first)).value]
        second.subscribe("t")
        thread = threading.Thread(
            target=poll_until, args=(second, lambda: len(second.assignment) == 1), daemon=True
        )
        thread.start()
        while thread.is_alive() or len(first.assignment) != 1:
            found += [record.value for record in first.poll(0.05)]
        thread.join()
        assert len(found) == 10
        assert sum(broker.committed("g").values()) == 10


def test_group_metadata_and_a_rebalance_on_request(broker: Broker, consumer: rota.Consumer) -> None:
    assert consumer.group_metadata.generation == -1
    consumer.subscribe(["t"])
    poll_until(consumer, lambda: bool(consumer.assignment))
    before = consumer.group_metadata
    assert (before.group, before.generation) == ("g", 1)
    assert before.member_id
    consumer.enforce_rebalance("to see it")
    poll_until(consumer, lambda: consumer.group_metadata.generation == 2)


# Ends


def test_wakeup_ends_a_look_up(broker: Broker, consumer: rota.Consumer) -> None:
    broker.delay("Metadata", 30, times=None)
    threading.Timer(0.05, consumer.wakeup).start()
    with pytest.raises(Interrupted):
        consumer.topics()


def test_wakeup_ends_a_poll(consumer: rota.Consumer) -> None:
    consumer.assign([T0])
    threading.Timer(0.05, consumer.wakeup).start()
    with pytest.raises(Interrupted):
        consumer.poll(60)
    assert not consumer.poll(0)


def test_ctrl_c_ends_a_poll_and_the_close_still_leaves_the_group(broker: Broker) -> None:
    with rota.Consumer(consumer_settings(broker)) as consumer:
        consumer.subscribe(["t"])
        poll_until(consumer, lambda: bool(consumer.assignment))
        timer = threading.Timer(0.05, signal.raise_signal, (signal.SIGINT,))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(60)
        timer.join()
        consumer.close()
        assert broker.group("g").state == "Empty"


def test_a_closed_consumer_says_so(consumer: rota.Consumer) -> None:
    consumer.close()
    consumer.close()
    for call in (consumer.poll, consumer.unsubscribe, consumer.commit, consumer.topics):
        with pytest.raises(InputError, match="closed"):
            call()
    assert list(consumer) == []


def test_one_thread_at_a_time(broker: Broker, consumer: rota.Consumer) -> None:
    consumer.assign([T0])
    thread = threading.Thread(target=consumer.poll, args=(0.5,))
    thread.start()
    time.sleep(0.1)
    with pytest.raises(InputError, match="another thread"):
        consumer.poll(0)
    thread.join()


def test_inside_asyncio_the_other_one_is_named(consumer: rota.Consumer) -> None:
    async def wrong() -> None:
        consumer.poll(0)

    with pytest.raises(InputError, match=r"use rota\.AsyncConsumer"):
        asyncio.run(wrong())


def test_both_consumers_have_the_same_methods() -> None:
    names = {name for name in dir(rota.AsyncConsumer) if not name.startswith("_")}
    assert names == {name for name in dir(rota.Consumer) if not name.startswith("_")}
    for name in (*names, "__init__"):
        blocking, other = getattr(rota.Consumer, name), getattr(rota.AsyncConsumer, name)
        assert blocking.__doc__ == other.__doc__, name
        assert blocking.__doc__, name
        if callable(blocking):
            assert inspect.signature(blocking) == inspect.signature(other), name
    assert rota.Consumer.__iter__.__doc__ == rota.AsyncConsumer.__aiter__.__doc__


def test_a_closed_asyncio_consumer_says_so(broker: Broker) -> None:
    async def run() -> None:
        consumer = rota.AsyncConsumer(consumer_settings(broker))
        consumer.assign([T0])
        await consumer.close()
        assert consumer.assignment == frozenset()
        for call in (consumer.topics, consumer.poll, consumer.commit, consumer.unsubscribe):
            with pytest.raises(InputError, match="this consumer is closed"):
                await call()
        with pytest.raises(InputError, match="this consumer is closed"):
            await consumer.partitions_for_topic("t")

    asyncio.run(run())


# What reviewers found


def test_automatic_commits_go_on_while_a_loop_is_idle(broker: Broker) -> None:
    fill(broker, 5)
    done = threading.Event()
    with rota.Consumer(consumer_settings(broker, auto_commit_interval_ms=50)) as consumer:
        consumer.subscribe("t")

        def watch() -> None:
            try:
                wait_until("5 are committed", lambda: broker.committed("g").get(T0) == 5)
                done.set()
            finally:
                consumer.wakeup()

        watching = threading.Thread(target=watch)
        watching.start()
        with pytest.raises(Interrupted):
            deque(consumer, maxlen=0)
        watching.join()
        assert done.is_set()
        assert broker.committed("g")[T0] == 5


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_a_loop_ends_with_what_it_reads(broker: Broker, end: str) -> None:
    fill(broker, 20)
    with rota.Consumer(consumer_settings(broker)) as consumer:
        consumer.subscribe("t")
        seen = []
        with contextlib.suppress(InputError):  # nothing to read, any more
            for record in consumer:
                seen.append(record.offset)
                if len(seen) == 2:
                    getattr(consumer, end)()
    assert seen == [0, 1]
    assert broker.committed("g")[T0] == 2


def test_assigned_partitions_are_committed_at_the_close_even_if_nothing_was_asked_before(
    broker: Broker,
) -> None:
    fill(broker, 5)
    with rota.Consumer(consumer_settings(broker)) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        poll_values(consumer, 5)
    assert broker.committed("g")[T0] == 5


def test_a_close_ends_a_poll_in_another_task(broker: Broker) -> None:
    async def run() -> rota.Records:
        consumer = rota.AsyncConsumer(consumer_settings(broker))
        consumer.subscribe("t")
        poll = asyncio.create_task(consumer.poll(3600))
        await asyncio.sleep(0.2)
        await consumer.close()
        return await poll

    assert len(asyncio.run(asyncio.wait_for(run(), 60))) == 0


def test_a_cancelled_poll_does_not_end_the_listener_in_the_middle(broker: Broker) -> None:
    fill(broker, 5)

    class Slow(rota.RebalanceListener):
        async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            await asyncio.sleep(0.3)
            consumers[0].seek(T0, 3)

    consumers: list[rota.AsyncConsumer] = []

    async def run() -> list[int]:
        async with rota.AsyncConsumer(consumer_settings(broker)) as consumer:
            consumers.append(consumer)
            consumer.subscribe("t", listener=Slow())
            found: list[int] = []
            while len(found) < 2:
                with contextlib.suppress(TimeoutError):
                    records = await asyncio.wait_for(consumer.poll(5), 0.1)
                    found += [record.offset for record in records]
            return found

    assert asyncio.run(asyncio.wait_for(run(), 60)) == [3, 4]


def test_an_unsubscription_that_is_cancelled_is_done_by_the_next_poll(broker: Broker) -> None:
    async def run() -> None:
        async with rota.AsyncConsumer(consumer_settings(broker)) as consumer:
            consumer.subscribe("t")
            fill(broker, 1)
            while not await consumer.poll(0.1):
                pass
            broker.delay("OffsetCommit", 0.3)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(consumer.unsubscribe(), 0.05)
            with pytest.raises(InputError, match="nothing to read"):
                await poll_forever(consumer)

    async def poll_forever(consumer: rota.AsyncConsumer) -> None:
        while True:
            await consumer.poll(0.1)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_columns_after_a_loop_that_was_left_survive_a_rebalance(broker: Broker) -> None:
    fill(broker, 5)
    fill(broker, 5, partition=1)
    config = consumer_settings(
        broker, heartbeat_interval_ms=50, partition_assignment_strategy="cooperative-sticky"
    )
    with rota.Consumer(config) as first, rota.Consumer(config) as second:
        first.subscribe("t")
        first_record = next(iter(first))
        found = [(first_record.partition, first_record.offset)]
        second.subscribe("t")
        thread = threading.Thread(
            target=poll_until, args=(second, lambda: len(second.assignment) == 1), daemon=True
        )
        thread.start()
        while thread.is_alive() or len(first.assignment) != 1:
            for batch in first.poll_batches(0.05):
                found += [(batch.partition, offset) for offset in batch.offsets.tolist()]
        thread.join()
        for batch in first.poll_batches(0.5):
            found += [(batch.partition, offset) for offset in batch.offsets.tolist()]
        [kept] = first.assignment
        assert sorted(offset for partition, offset in found if partition == kept.partition) == [
            *range(5)
        ]


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda c: c.commit(5), "commit: 5 is not a mapping"),
        (lambda c: c.offsets_for_times({T0: 1.5}), "1.5 of t-0 is not a whole number of millisec"),
        (lambda c: c.commit({T0: True}), "offset of t-0: True"),
        (lambda c: c.commit({("t", -1): 3}), "is not a partition"),
        (lambda c: c.commit_async(callback=5), "callback 5 is not callable"),
        (lambda c: c.commit_async(callback=asyncio.sleep), "plain functions, not async"),
        (lambda c: c.poll(0, max_records=1.5), "max_records 1.5"),
        (lambda c: c.poll("1"), "timeout '1' is not a number of seconds"),
        (lambda c: c.subscribe("^t.*"), r"is it a pattern\? subscribe\(pattern="),
        (lambda c: c.subscribe(["t"], pattern="x"), "give topics or a pattern, not both$"),
        (lambda c: c.subscribe(), "give topics or a pattern; unsubscribe"),
        (lambda c: c.subscribe("t", listener=RecordingListener), "is not an instance of a rota"),
    ],
)
def test_arguments_of_the_wrong_kind_are_named(
    consumer: rota.Consumer, call: Callable[[Any], object], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        call(consumer)


def test_what_the_member_says_in_the_last_moment_is_heard_before_records_are_taken(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It marks a partition pending revocation after the poll attends to it and before it takes."""
    with rota.Consumer(consumer_settings(broker)) as consumer:
        consumer.subscribe("t")
        poll_until(consumer, lambda: bool(consumer.assignment))
        core = consumer._core
        assert core.membership is not None
        inbox = core.membership.driver.inbox
        prepare = core.fetcher.prepare_records

        def prepare_and_mark(most: int) -> None:
            prepare(most)
            if core.fetcher.has_records and not told:
                told.append(True)
                inbox.append(MarkPendingRevocation((T0,)))

        told: list[bool] = []
        monkeypatch.setattr(core.fetcher, "prepare_records", prepare_and_mark)
        fill(broker, 1)
        assert not consumer.poll(1)
        assert told


def test_an_empty_poll_counts_and_no_poll_at_all_does_not(broker: Broker) -> None:
    with rota.Consumer(consumer_settings(broker, max_poll_interval_ms=700)) as consumer:
        consumer.subscribe("t")
        poll_until(consumer, lambda: bool(consumer.assignment))
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            consumer.poll(0.1)
        assert broker.wait_for_group("g", members=1).state == "Stable"
        assert (
            broker.wait_for_group("g", members=0).state == "Empty"
        )  # waits for it, without a poll


def test_no_permission_for_a_topics_offsets_is_said(
    broker: Broker, consumer: rota.Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer.assign([T0])
    membership = consumer._core.membership
    assert membership is not None

    async def refused(request: object, *, timeout: float | None = None) -> OffsetFetchResult:
        return OffsetFetchResult(codes={T0: Code.TOPIC_AUTHORIZATION_FAILED})

    monkeypatch.setattr(membership.driver, "send_to_coordinator", refused)
    with pytest.raises(AuthorizationFailed, match="no permission to read topic t"):
        consumer.committed([T0])
    with pytest.raises(AuthorizationFailed, match="no permission to read topic t"):
        consumer.poll(10)
