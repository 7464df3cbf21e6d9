"""What was handed out of a flow, however it is taken and whatever happens to the rest."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from itertools import islice

import pytest

import rota
from rota.consumer.buffer import PolledRecords
from rota.consumer.records import ConsumerRecord, Records
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition

A, B = (TopicPartition("orders", number) for number in range(2))


def take_offsets(flow: PolledRecords, count: int) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in islice(flow.remaining, count)]


def make_records(at: TopicPartition, count: int) -> dict[TopicPartition, list[ConsumerRecord]]:
    return {at: [ConsumerRecord(*at, offset, 0, 0, None, b"", (), 7) for offset in range(count)]}


def committed_position(flow: PolledRecords) -> int:
    """What a commit would store of the first partition, whose position is at 10."""
    positions = {at: OffsetAndMetadata(10) for at in (A, B)}
    flow.rewind_positions(positions)
    return positions[A].offset


def test_another_thread_may_ask_while_a_loop_goes_on() -> None:
    """It never sees more than was handed out, or nothing that there is."""
    flow = PolledRecords()
    seen: list[str] = []
    goes_on = True

    def ask() -> None:
        while goes_on:
            try:
                found = committed_position(flow)
                if not 0 <= found <= 10:
                    seen.append(f"at {found}")
            except Exception as error:  # noqa: BLE001 what the test is about
                seen.append(repr(error))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for _ in range(3_000):
            flow.set_records(Records(make_records(A, 10) | make_records(B, 1)))
            for _ in flow.remaining:
                pass
            flow.set_records(Records({}))
    finally:
        goes_on = False
        thread.join()
        sys.setswitchinterval(before)
    assert not seen


# In a consumer


@pytest.fixture
def consumer() -> Iterator[rota.Consumer]:
    with rota.Broker() as broker:
        broker.create_topic("orders", 2)
        for partition in range(2):
            broker.produce("orders", *map(str, range(40)), partition=partition)
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "auto.offset.reset": "earliest",
            "group.id": "billing",
            "enable.auto.commit": False,
        }
        with rota.Consumer(settings) as one:
            yield one


def test_columns_in_the_middle_of_a_loop_are_handed_out_once(
    consumer: rota.Consumer,
) -> None:
    consumer.assign([("orders", 0)])
    seen: list[int] = []
    for record in consumer:
        seen.append(record.offset)
        if len(seen) == 10:
            while sum(map(len, batches := consumer.poll_batches())) == 0:
                pass
            seen += [offset for each in batches for offset in each.offsets.tolist()]
            assert consumer.position(("orders", 0)) == seen[-1] + 1
        if len(seen) >= 40:
            break
    assert seen == list(range(40))


def test_a_seek_in_a_loop_is_never_seen_half(consumer: rota.Consumer) -> None:
    """By the member's thread, which asks under the lock at every moment that Python may switch."""
    consumer.assign([("orders", 0), ("orders", 1)])
    core = consumer._core
    handed = dict.fromkeys(core.assigned, 0)
    wrong: list[object] = []

    def look(_frame: object, event: str, _: object) -> None:
        membership = core.membership
        assert membership is not None
        lock = membership.driver.lock
        if event != "return" and not is_held_by_this_thread(lock):
            sys.setprofile(None)
            found = {at: each.offset for at, each in core.consumed_positions().items()}
            wrong.extend((at, found) for at in handed if found.get(at, 0) > handed[at])
            sys.setprofile(look)

    for count, record in enumerate(consumer, 1):
        at = TopicPartition(record.topic, record.partition)
        handed[at] = record.offset + 1
        if count == 3:
            other = next(each for each in handed if each != at)
            handed[other] = 5
            sys.setprofile(look)
            consumer.seek(other, 5)
            sys.setprofile(None)
        if count > 50:
            break
    assert not wrong


def is_held_by_this_thread(lock: object) -> bool:
    return bool(lock._is_owned())  # type: ignore[attr-defined]


def test_a_ctrl_c_in_a_loop_loses_nothing(consumer: rota.Consumer) -> None:
    consumer.assign([("orders", 0)])
    seen: list[int] = []
    while len(seen) < 40:
        try:
            for record in consumer:
                seen.append(record.offset)
                if len(seen) % 7 == 0:
                    signal.raise_signal(signal.SIGINT)
                if len(seen) == 40:
                    break
        except KeyboardInterrupt:
            assert consumer.position(("orders", 0)) == seen[-1] + 1
    assert seen == list(range(40))
