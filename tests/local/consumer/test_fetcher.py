"""Reading from a broker: where it begins, what comes in which order, and what goes wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from rota import Broker
from rota.client.connection import BrokerConnection
from rota.client.fetch import FetchedPartition, PreparedFetch
from rota.client.offsets import EARLIEST, LATEST
from rota.consumer import positions
from rota.consumer.buffer import FetchBuffer
from rota.consumer.positions import PartitionState
from rota.consumer.records import ConsumerRecord
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import AuthorizationFailed, Code, NoOffset, Refused, TimedOut, UnknownTopic
from rota.protocol.messages import Api, Message
from tests.support.fetching import PATIENCE, Reader, committed_offsets_lookup, record_values
from tests.support.scripted_cluster import (
    Fetched,
    fetch_response,
    scripted_cluster,
    throttled_response,
)
from tests.support.spark_topic import encode_records

MIB = 1 << 20
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("t", 3)
        yield running


@pytest.fixture
def request_counts(monkeypatch: pytest.MonkeyPatch) -> Counter[Api]:
    """How many requests were sent, by their API."""
    counts: Counter[Api] = Counter()
    send = BrokerConnection.send

    def counted(self: BrokerConnection, api: Api, *given: Any, **options: Any) -> Any:
        counts[api] += 1
        return send(self, api, *given, **options)

    monkeypatch.setattr(BrokerConnection, "send", counted)
    return counts


def fill(broker: Broker, partition: TopicPartition, count: int, start: int = 0) -> None:
    texts = [f"{partition.partition}.{number}" for number in range(start, start + count)]
    broker.produce(partition.topic, *texts, partition=partition.partition)


# Where reading begins


def test_what_is_there_and_what_comes(broker: Broker) -> None:
    async def read() -> None:
        fill(broker, T0, 3)
        async with Reader(broker.bootstrap_servers) as reader:
            reader.fetcher.assign([T0])
            assert record_values(await reader.read(3)) == ["0.0", "0.1", "0.2"]
            fill(broker, T0, 1, 3)
            assert record_values(await reader.read(1)) == ["0.3"]
            assert reader.fetcher.consumed_positions() == {T0: OffsetAndMetadata(4, "", 0)}
            assert reader.fetcher.position(T0) == 4
            assert reader.fetcher.high_watermark(T0) == 4
            assert reader.fetcher.lag(T0) == 0

    asyncio.run(read())


def test_committed_offsets_are_read_on_and_others_by_the_policy(broker: Broker) -> None:
    async def read() -> None:
        for each in (T0, T1):
            fill(broker, each, 5)
        known = committed_offsets_lookup({T0: OffsetAndMetadata(3, "", 0)})
        async with Reader(
            broker.bootstrap_servers, committed=known, auto_offset_reset="latest"
        ) as reader:
            reader.fetcher.assign([T0, T1])
            await reader.ready(T0, T1)
            assert reader.fetcher.consumed_positions()[T1].offset == 5
            fill(broker, T1, 1, 5)
            assert sorted(record_values(await reader.read(3))) == ["0.3", "0.4", "1.5"]

    asyncio.run(read())


def test_without_offset_and_policy_all_such_partitions_are_named_each_time(broker: Broker) -> None:
    async def read() -> None:
        fill(broker, T0, 1)
        async with Reader(broker.bootstrap_servers, auto_offset_reset="none") as reader:
            reader.fetcher.assign([T0, T1])
            for _ in range(2):
                with pytest.raises(NoOffset, match="t-0, t-1"):
                    await reader.poll()
            with pytest.raises(NoOffset, match="t-0, t-1"):
                await reader.ready(T1)
            reader.fetcher.seek(T1, OffsetAndMetadata(0))
            with pytest.raises(NoOffset, match="for t-0, and"):
                await reader.poll()
            reader.fetcher.seek(T0, OffsetAndMetadata(0))
            assert record_values(await reader.read(1)) == ["0.0"]

    asyncio.run(read())


def test_by_duration(broker: Broker) -> None:
    async def read() -> None:
        for hours in (3, 1):
            back = broker.clock.now() - hours * 3_600_000
            broker.produce("t", f"{hours} hours ago", partition=0, timestamp=back)
        broker.produce("t", "old", partition=1, timestamp=broker.clock.now() - 9_000_000)
        async with Reader(
            broker.bootstrap_servers, auto_offset_reset="by_duration", reset_duration=7_200_000
        ) as reader:
            reader.fetcher.assign([T0, T1])
            await reader.ready(T0, T1)
            assert record_values(await reader.read(1)) == ["1 hours ago"]
            broker.produce("t", "new", partition=1)
            assert record_values(await reader.read(1)) == ["new"]

    asyncio.run(read())


def test_look_ups_are_tried_again(broker: Broker) -> None:
    async def read() -> None:
        fill(broker, T0, 1)
        broker.fail("ListOffsets", "NOT_LEADER_OR_FOLLOWER", times=2)
        broker.fail("Fetch", "UNKNOWN_LEADER_EPOCH", times=2)
        async with Reader(broker.bootstrap_servers) as reader:
            reader.fetcher.assign([T0])
            assert record_values(await reader.read(1)) == ["0.0"]
        assert broker.clear_faults() == 0

    asyncio.run(read())


def test_committed_offsets_that_cannot_be_had_are_told_and_asked_for_again(broker: Broker) -> None:
    asked = 0

    async def ask(partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, None]:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise TimedOut("no coordinator")
        if asked == 2:
            raise AuthorizationFailed(Code.GROUP_AUTHORIZATION_FAILED, "not your group")
        return dict.fromkeys(partitions)

    async def read() -> None:
        fill(broker, T0, 1)
        async with Reader(broker.bootstrap_servers, committed=ask) as reader:
            reader.fetcher.assign([T0])
            with pytest.raises(AuthorizationFailed, match="not your group"):
                await reader.poll()
            assert record_values(await reader.read(1)) == ["0.0"]

    asyncio.run(read())


def test_no_position_in_time(broker: Broker) -> None:
    async def read() -> None:
        broker.fail("ListOffsets", "NOT_LEADER_OR_FOLLOWER", times=None)
        async with Reader(broker.bootstrap_servers) as reader:
            reader.fetcher.assign([T0])
            soon = asyncio.get_running_loop().time() + 0.1
            with pytest.raises(TimedOut, match="t-0"):
                await reader.fetcher.wait_for_positions([T0], soon)

    asyncio.run(read())


# Order, and who gets something when


def test_every_partition_goes_on_however_small_the_limits(broker: Broker) -> None:
    broker.create_topic("u", 3)
    everyone = [TopicPartition(topic, number) for topic in "tu" for number in range(3)]

    async def read() -> None:
        for each in everyone:
            for start in range(0, 40, 2):
                fill(broker, each, 2, start)
        async with Reader(
            broker.bootstrap_servers, max_partition_bytes=100, fetch_max_bytes=150
        ) as reader:
            reader.fetcher.assign(everyone)
            found = await reader.read(240)
        half = Counter((record.topic, record.partition) for record in found[:120])
        assert min(half[each] for each in everyone) >= 10
        for each in everyone:
            own = [record.offset for record in found if record[:2] == each]
            assert own == list(range(40))

    asyncio.run(read())


def test_the_next_is_asked_for_before_an_answer_is_decoded_even_outside_the_loop(
    broker: Broker, request_counts: Counter[Api]
) -> None:
    for start in range(0, 12, 2):
        fill(broker, T0, 2, start)
    loop = asyncio.new_event_loop()
    reader = Reader(broker.bootstrap_servers, max_partition_bytes=100)
    try:
        reader.fetcher.assign([T0])
        found = loop.run_until_complete(reader.poll(most=1))
        loop.run_until_complete(asyncio.sleep(0.1))  # two answers wait now
        before = request_counts[Api.FETCH]
        reader.fetcher.prepare_records(2)
        found += list(reader.fetcher.take_records(2))
        assert request_counts[Api.FETCH] == before + 1
        found += loop.run_until_complete(reader.read(12 - len(found)))
        assert [record.offset for record in found] == list(range(12))
    finally:
        loop.run_until_complete(reader.__aexit__())
        loop.close()


def test_polls_are_as_small_as_asked_for(broker: Broker) -> None:
    async def read() -> None:
        fill(broker, T0, 10)
        async with Reader(broker.bootstrap_servers) as reader:
            reader.fetcher.assign([T0])
            sizes: list[int] = []
            while sum(sizes) < 10:
                sizes.append(len(await reader.poll(most=4)))
                assert reader.fetcher.consumed_positions()[T0].offset == sum(sizes)
            assert sizes == [4, 4, 2]

    asyncio.run(read())


def test_batches_are_handed_out_behind_records(broker: Broker) -> None:
    async def read() -> None:
        fill(broker, T0, 10)
        async with Reader(broker.bootstrap_servers) as reader:
            reader.fetcher.assign([T0])
            await reader.poll(most=4)
            (batch,) = reader.fetcher.take_batches()
            assert batch.offsets.tolist() == [4, 5, 6, 7, 8, 9]
            assert reader.fetcher.consumed_positions()[T0].offset == 10

    asyncio.run(read())


@pytest.mark.parametrize("change", ["seek", "resume", "assign", "seek to the beginning"])
def test_nobody_waits_for_a_long_poll_of_others(broker: Broker, change: str) -> None:
    """A broker holds a Fetch of partitions that are read to their end for a minute here."""

    async def read() -> None:
        for each in (T0, T1):
            fill(broker, each, 2)
        async with Reader(broker.bootstrap_servers, fetch_max_wait=60_000) as reader:
            fetcher = reader.fetcher
            fetcher.assign([T0] if change == "assign" else [T0, T1])
            if change == "resume":
                fetcher.pause([T1])
            await reader.read(2 if change in {"assign", "resume"} else 4)
            assert await reader.poll(0.1) == []
            match change:
                case "seek":
                    fetcher.seek(T1, OffsetAndMetadata(0))
                case "resume":
                    fetcher.resume([T1])
                case "assign":
                    fetcher.assign([T0, T1])
                case _:
                    fetcher.seek_to([T1], EARLIEST)
            assert record_values(await reader.read(2)) == ["1.0", "1.1"]
            fill(broker, T0, 1, 2)
            assert record_values(await reader.read(1)) == ["0.2"]

    asyncio.run(read())


def test_who_comes_into_question_while_both_fetches_wait_waits_for_a_moment(
    broker: Broker,
) -> None:
    async def read() -> None:
        fill(broker, T1, 1)
        fill(broker, T2, 2)
        async with Reader(broker.bootstrap_servers, fetch_max_wait=60_000) as reader:
            fetcher = reader.fetcher
            fetcher.assign([T0, T1, T2])
            fetcher.pause([T1, T2])
            assert await reader.poll(0.2) == []  # the first has T0 now
            fetcher.seek(T1, OffsetAndMetadata(1))
            fetcher.resume([T1])
            assert await reader.poll(0.2) == []  # and the second T1, at its end too
            fetcher.resume([T2])
            assert record_values(await reader.read(2)) == ["2.0", "2.1"]

    asyncio.run(read())


def test_an_idle_reader_sends_one_fetch_after_the_other(
    broker: Broker, request_counts: Counter[Api]
) -> None:
    async def read() -> int:
        for each in (T0, T1):
            fill(broker, each, 2)
        async with Reader(broker.bootstrap_servers, fetch_max_wait=100) as reader:
            reader.fetcher.assign([T0, T1])
            await reader.read(4)
            reader.fetcher.seek(T1, OffsetAndMetadata(1))
            await reader.read(1)
            request_counts.clear()
            assert await reader.poll(1.0) == []
            return request_counts.total()

    assert asyncio.run(read()) <= 14


def test_few_are_looked_at_where_little_changes(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    place = positions._queue_key

    def counted(entry: PartitionState, now: float) -> positions.QueueKey | None:
        nonlocal looks
        looks += 1
        return place(entry, now)

    async def read() -> None:
        broker.create_topic("many", 200)
        everyone = [TopicPartition("many", number) for number in range(200)]
        for each in everyone:
            fill(broker, each, 1)
        monkeypatch.setattr(positions, "_queue_key", counted)
        async with Reader(broker.bootstrap_servers, fetch_max_wait=60_000) as reader:
            reader.fetcher.assign(everyone)
            assert len(await reader.read(200, most=1)) == 200
        assert looks <= 20 * len(everyone)

    asyncio.run(read())


def test_no_more_waits_than_is_said_if_nobody_takes(broker: Broker) -> None:
    async def read() -> None:
        for each in (T0, T1, T2):
            for _ in range(60):
                broker.produce("t", "x" * 400, partition=each.partition)
        limits: dict[str, Any] = {"max_partition_bytes": 4_000, "fetch_max_bytes": 6_000}
        waiting: list[int] = []
        async with Reader(broker.bootstrap_servers, fetch_max_wait=50, **limits) as reader:
            fetcher = reader.fetcher
            fetcher.assign([T0, T1, T2])
            await reader.ready(T0, T1, T2)
            while len(waiting) < 20 or waiting[-1] != waiting[-20]:
                waiting.append(fetcher.buffered)
                await asyncio.sleep(0.01)
            assert 6_000 <= max(waiting) <= 2 * 6_000
            assert len(await reader.read(180)) == 180
            assert fetcher.buffered == 0

    asyncio.run(read())


def test_what_waits_of_paused_partitions_does_not_hold_up_the_others(broker: Broker) -> None:
    async def read() -> None:
        for each in (T0, T1):
            for number in range(60):
                broker.produce("t", f"{number:0400}", partition=each.partition)
        limits: dict[str, Any] = {"max_partition_bytes": 4_000, "fetch_max_bytes": 6_000}
        async with Reader(broker.bootstrap_servers, fetch_max_wait=50, **limits) as reader:
            fetcher = reader.fetcher
            fetcher.assign([T0, T1, T2])
            await reader.ready(T0, T1, T2)
            first = await reader.poll(most=5)
            async with asyncio.timeout(PATIENCE):
                while fetcher.buffered < 6_000:
                    await asyncio.sleep(0.01)
            fetcher.pause([T0, T1])
            fill(broker, T2, 3)
            assert {record.partition for record in await reader.read(3)} == {2}
            fetcher.resume([T0, T1])
            found = first + await reader.read(115)
            for partition in (0, 1):
                own = [record.offset for record in found if record.partition == partition]
                assert own == list(range(60))

    asyncio.run(read())


def test_what_is_paused_for_a_while_is_not_fetched_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    add = FetchBuffer.add_response

    def noted(self: FetchBuffer, fetched: FetchedPartition) -> None:
        kept.append((fetched.partition, fetched.fetch_offset))
        add(self, fetched)

    async def read() -> None:
        for each in (T0, T1):
            for _ in range(60):
                broker.produce("t", "x" * 400, partition=each.partition)
        limits: dict[str, Any] = {"max_partition_bytes": 4_000, "fetch_max_bytes": 6_000}
        async with Reader(broker.bootstrap_servers, fetch_max_wait=50, **limits) as reader:
            fetcher = reader.fetcher
            fetcher.assign([T0, T1])
            found = 0
            while found < 110:
                found += len(await reader.poll(most=5))
                await asyncio.sleep(0.02)  # until what may wait waits
                fetcher.pause([T0, T1])
                fetcher.start_requests()
                await asyncio.sleep(0.02)
                fetcher.resume([T0, T1])

    monkeypatch.setattr(FetchBuffer, "add_response", noted)
    asyncio.run(read())
    assert len(kept) == len(set(kept)) >= 12


def test_of_what_is_paused_midway_only_the_last_stays_decoded(broker: Broker) -> None:
    async def read() -> None:
        for each in (T0, T1, T2):
            fill(broker, each, 60)
        async with Reader(broker.bootstrap_servers, fetch_max_wait=50) as reader:
            fetcher = reader.fetcher
            found: list[ConsumerRecord] = []
            fetcher.assign([T0, T1, T2])
            while len({record.partition for record in found}) < 3:
                records = await reader.poll(most=5)
                found += records
                fetcher.pause(TopicPartition("t", record.partition) for record in records)
            await reader.poll(0.05)
            aside = [item for items in fetcher._buffer._aside.values() for item in items]
            assert [item.has_decoded for item in aside] == [False, False, True]
            fetcher.resume([T0, T1, T2])
            found += await reader.read(180 - len(found))
            for number in range(3):
                own = [record.offset for record in found if record.partition == number]
                assert own == list(range(60))

    asyncio.run(read())


@pytest.mark.parametrize(
    ("of_partition", "of_all", "asked"),
    [
        (100, 10_000, 5_000),
        (8 * MIB, 50 * MIB, 8 * MIB),
        (40 * MIB, 100 * MIB, 40 * MIB),
        (90 * MIB, 100 * MIB, 50 * MIB),
        (8 * MIB, 6 * MIB, 3 * MIB),
        (8 * MIB, 1, 1),
    ],
)
def test_answers_under_way_share_what_may_come(
    of_partition: int, of_all: int, asked: int, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    send = BrokerConnection.send

    def noted(self: BrokerConnection, api: Api, message: Any, **options: Any) -> Any:
        if api is Api.FETCH:
            sizes.append(message.max_bytes)
        return send(self, api, message, **options)

    async def read() -> None:
        fill(broker, T0, 1)
        limits: dict[str, Any] = {"max_partition_bytes": of_partition, "fetch_max_bytes": of_all}
        async with Reader(broker.bootstrap_servers, **limits) as reader:
            reader.fetcher.assign([T0])
            await reader.read(1)

    monkeypatch.setattr(BrokerConnection, "send", noted)
    asyncio.run(read())
    assert set(sizes) == {asked}


# What an application does meanwhile


def test_who_waits_for_a_position_hears_of_a_seek(broker: Broker) -> None:
    async def read() -> None:
        broker.fail("ListOffsets", "NOT_LEADER_OR_FOLLOWER", times=None)
        slow = {"retry_backoff": 60_000, "retry_backoff_max": 60_000}
        async with Reader(broker.bootstrap_servers, client=slow) as reader:
            reader.fetcher.assign([T0])
            waiting = asyncio.create_task(reader.ready(T0))
            await asyncio.sleep(0.05)
            reader.fetcher.seek(T0, OffsetAndMetadata(0))
            await waiting
            assert reader.fetcher.position(T0) == 0

    asyncio.run(read())


def test_what_is_assigned_next_waits_for_no_metadata(
    broker: Broker, request_counts: Counter[Api]
) -> None:
    async def read() -> None:
        fill(broker, T1, 1)
        async with Reader(broker.bootstrap_servers) as reader:
            reader.fetcher.assign([T0])
            await reader.ready(T0)
            request_counts.clear()
            reader.fetcher.assign([T0, T1])
            assert record_values(await reader.read(1)) == ["1.0"]
            assert request_counts[Api.METADATA] == 0

    asyncio.run(read())


def test_what_was_fetched_before_a_seek_is_not_handed_out(broker: Broker) -> None:
    async def read() -> None:
        fill(broker, T0, 10)
        async with Reader(broker.bootstrap_servers) as reader:
            reader.fetcher.assign([T0])
            assert len(await reader.poll(most=2)) == 2
            reader.fetcher.seek(T0, OffsetAndMetadata(7))
            assert not reader.fetcher.has_records
            assert reader.fetcher.consumed_positions() == {T0: OffsetAndMetadata(7)}
            assert record_values(await reader.read(3)) == ["0.7", "0.8", "0.9"]
            reader.fetcher.seek_to([T0], LATEST)
            await reader.ready(T0)
            assert reader.fetcher.position(T0) == 10

    asyncio.run(read())


@pytest.mark.parametrize("how", ["pause", "mark_pending_revocation"])
def test_what_is_held_back_is_kept_and_handed_out_later(broker: Broker, how: str) -> None:
    async def read() -> None:
        fill(broker, T0, 4)
        fill(broker, T1, 4)
        async with Reader(broker.bootstrap_servers) as reader:
            fetcher = reader.fetcher
            fetcher.assign([T0, T1])
            await reader.poll(most=1)
            fetcher.pause([T0]) if how == "pause" else fetcher.mark_pending_revocation([T0])
            taken = fetcher.consumed_positions()[T0].offset
            assert {each.partition for each in await reader.read(4)} == {1}
            assert await reader.poll(0.05) == []
            assert fetcher.consumed_positions()[T0].offset == taken
            fetcher.resume([T0]) if how == "pause" else fetcher.assign([T0, T1])
            assert [each.offset for each in await reader.read(4 - taken)] == list(range(taken, 4))

    asyncio.run(read())


def test_a_revoked_partition_gives_nothing_and_begins_anew(broker: Broker) -> None:
    async def read() -> None:
        fill(broker, T0, 4)
        async with Reader(broker.bootstrap_servers) as reader:
            reader.fetcher.assign([T0])
            await reader.poll(most=1)
            reader.fetcher.assign([])
            assert not reader.fetcher.has_records
            assert reader.fetcher.consumed_positions() == {}
            reader.fetcher.assign([T0])
            assert len(await reader.read(4)) == 4

    asyncio.run(read())


# What goes wrong


@pytest.mark.parametrize("code", [3, 5, 6, 56, 74, 75, 78, 100, 103, -1])
def test_errors_that_pass(broker: Broker, code: int) -> None:
    async def read() -> None:
        fill(broker, T0, 2)
        broker.fail("Fetch", code, times=3)
        async with Reader(broker.bootstrap_servers) as reader:
            reader.fetcher.assign([T0])
            assert len(await reader.read(2)) == 2
        assert broker.clear_faults() == 0

    asyncio.run(read())


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        (29, AuthorizationFailed, "no permission to read topic 't'"),
        (76, Refused, "error 76"),
        (87, Refused, "INVALID_RECORD"),
    ],
)
def test_errors_that_are_told(broker: Broker, code: int, error: type[Exception], text: str) -> None:
    async def read() -> None:
        fill(broker, T0, 2)
        broker.fail("Fetch", code)
        async with Reader(broker.bootstrap_servers) as reader:
            reader.fetcher.assign([T0])
            with pytest.raises(error, match=text):
                await reader.poll()
            assert len(await reader.read(2)) == 2

    asyncio.run(read())


def test_connections_that_break(broker: Broker) -> None:
    async def read() -> None:
        async with Reader(broker.bootstrap_servers) as reader:
            reader.fetcher.assign([T0, T1, T2])
            for start in range(5):
                for each in (T0, T1, T2):
                    fill(broker, each, 1, start)
                assert len(await reader.read(3)) == 3
                broker.drop_response("Fetch")
                broker.disconnect("reader")

    asyncio.run(read())


def test_a_broker_that_is_restarted(broker: Broker) -> None:
    async def read() -> None:
        fill(broker, T0, 2)
        async with Reader(broker.bootstrap_servers) as reader:
            reader.fetcher.assign([T0])
            assert len(await reader.read(2)) == 2
            await asyncio.to_thread(broker.restart)
            fill(broker, T0, 1, 2)
            assert record_values(await reader.read(1)) == ["0.2"]

    asyncio.run(read())


def test_an_answer_that_tells_of_a_partition_twice(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = PreparedFetch.parse
    monkeypatch.setattr(PreparedFetch, "parse", lambda self, response: parse(self, response) * 2)

    async def read() -> None:
        async with Reader(broker.bootstrap_servers) as reader:
            reader.fetcher.assign([T0, T1, T2])
            for start in range(3):
                for each in (T0, T1, T2):
                    fill(broker, each, 1, start)
                assert len(await reader.read(3)) == 3

    asyncio.run(read())


def test_an_answer_that_cannot_be_taken_in_is_told_and_asked_for_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = PreparedFetch.parse

    def broken(self: PreparedFetch, response: Message) -> list[FetchedPartition]:
        monkeypatch.setattr(PreparedFetch, "parse", parse)
        raise ValueError("nonsense")

    async def read() -> None:
        fill(broker, T0, 2)
        async with Reader(broker.bootstrap_servers) as reader:
            reader.fetcher.assign([T0])
            with pytest.raises(ValueError, match="nonsense"):
                await reader.poll()
            assert len(await reader.read(2)) == 2

    monkeypatch.setattr(PreparedFetch, "parse", broken)
    asyncio.run(read())


def test_a_broker_that_throttles_is_asked_again_without_new_metadata(
    request_counts: Counter[Api],
) -> None:
    def respond(node: int, request: Message, before: int) -> Fetched:
        return throttled_response(50) if before < 2 else fetch_response(encode_records(0, 10))

    async def read(servers: str) -> None:
        async with Reader(servers) as reader:
            reader.fetcher.assign([T0])
            assert [record.offset for record in await reader.read(10)] == list(range(10))

    with scripted_cluster(respond) as found:
        asyncio.run(read(found.servers))
    assert request_counts[Api.METADATA] == 1
    assert found.asked[2][1].topics


def test_out_of_range_is_reset_or_told(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    async def read(reset: str) -> None:
        fill(broker, T0, 3)
        async with Reader(broker.bootstrap_servers, auto_offset_reset=reset) as reader:
            reader.fetcher.assign([T0])
            reader.fetcher.seek(T0, OffsetAndMetadata(99))
            if reset == "none":
                with pytest.raises(NoOffset, match="offset 99 of t-0 is out of range"):
                    await reader.poll()
                assert reader.fetcher.consumed_positions()[T0].offset == 99
            else:
                assert (await reader.poll())[0].offset == 0
                assert caplog.messages == [
                    "offset 99 of t-0 is out of range; "
                    "reading continues where auto.offset.reset says"
                ]

    for policy in ("none", "earliest"):
        asyncio.run(read(policy))


def test_a_topic_that_is_missing_is_waited_for_without_haste(
    broker: Broker, request_counts: Counter[Api]
) -> None:
    late = TopicPartition("late", 0)

    async def read() -> None:
        fill(broker, T0, 1)
        slow = {"retry_backoff": 50, "retry_backoff_max": 100}
        settings = {"create_topics": False, **slow}
        async with Reader(broker.bootstrap_servers, client=settings) as reader:
            reader.fetcher.assign([T0, late])
            assert record_values(await reader.read(1)) == ["0.0"]
            request_counts.clear()
            assert await reader.poll(1.0) == []
            assert request_counts[Api.METADATA] <= 15
            assert request_counts[Api.FETCH] <= 4
            broker.produce("late", "at last")
            assert record_values(await reader.read(1)) == ["at last"]

    asyncio.run(read())


def test_a_topic_that_is_deleted_and_made_again(broker: Broker) -> None:
    async def read() -> None:
        fill(broker, T0, 5)
        fill(broker, T1, 1)
        settings = {"create_topics": False}
        async with Reader(broker.bootstrap_servers, client=settings) as reader:
            reader.fetcher.assign([T0])
            assert len(await reader.read(5)) == 5
            broker.delete_topic("t")
            assert await reader.poll(0.3) == []
            broker.create_topic("t", 3)
            fill(broker, T0, 2, 100)
            assert record_values(await reader.read(2)) == ["0.100", "0.101"]

    asyncio.run(read())


def test_a_partition_that_is_added_later(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    later = TopicPartition("t", 3)

    async def read() -> None:
        async with Reader(broker.bootstrap_servers) as reader:
            reader.fetcher.assign([T0, later])
            assert await reader.poll(0.1) == []
            assert caplog.messages == ["there is no partition t-3: t has 3"]
            broker.create_partitions("t", 4)
            fill(broker, later, 1)
            assert record_values(await reader.read(1)) == ["3.0"]

    asyncio.run(read())


def test_a_name_that_no_topic_can_have(broker: Broker) -> None:
    async def read() -> None:
        async with Reader(broker.bootstrap_servers) as reader:
            reader.fetcher.assign([TopicPartition("no such/name", 0)])
            with pytest.raises(UnknownTopic, match="no such/name"):
                await reader.poll()

    asyncio.run(read())


def test_what_is_closed_ends_at_once(broker: Broker) -> None:
    async def read() -> None:
        reader = Reader(broker.bootstrap_servers, fetch_max_wait=60_000)
        async with reader:
            reader.fetcher.assign([T0])
            await reader.ready(T0)
            assert await reader.poll(0.05) == []
        assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        reader.fetcher.start_requests()

    asyncio.run(read())
