"""Offsets by time and the ends of epochs, asked of leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from rota import Broker
from rota.client.cluster import ClusterClient
from rota.client.offsets import (
    EARLIEST,
    LATEST,
    EpochEndOffset,
    ListedOffset,
    OffsetQuery,
    list_offsets,
    send_offset_for_leader_epoch,
)
from rota.engine.model.config import Address, ClientConfig
from rota.engine.model.topic import TopicPartition
from rota.errors import AuthorizationFailed, Refused, TimedOut, UnknownTopic

T = TypeVar("T")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("t", 2)
        yield running


def run_with_client(broker: Broker, question: Callable[[ClusterClient], Awaitable[T]]) -> T:
    """Runs a request with a client of its own, and returns the result."""

    async def asked() -> T:
        host, port = broker.bootstrap_servers.split(":")
        config = ClientConfig(
            bootstrap_servers=(Address(host, int(port)),), retry_backoff=5, retry_backoff_max=20
        )
        client = ClusterClient(config)
        try:
            return await question(client)
        finally:
            await client.close()

    return asyncio.run(asked())


def lookup_offsets(
    broker: Broker, targets: dict[TopicPartition, int], timeout: float = 20.0
) -> dict[TopicPartition, ListedOffset | None]:
    return run_with_client(
        broker, lambda c: list_offsets(c, targets, deadline=c.deadline_after(timeout))
    )


def offset_values(found: dict[TopicPartition, ListedOffset | None]) -> list[int | None]:
    return [each and each.offset for each in found.values()]


def test_beginnings_ends_and_times(broker: Broker) -> None:
    for at in (1_000, 2_000, 3_000):
        broker.produce("t", "x", partition=0, timestamp=at)
    assert offset_values(lookup_offsets(broker, {T0: EARLIEST, T1: EARLIEST})) == [0, 0]
    assert offset_values(lookup_offsets(broker, {T0: LATEST, T1: LATEST})) == [3, 0]
    assert lookup_offsets(broker, {T0: 1_500, T1: 1_500}) == {
        T0: ListedOffset(1, 2_000, 0),
        T1: None,
    }
    assert lookup_offsets(broker, {T0: 9_000}) == {T0: None}


def test_ten_thousand_partitions_at_once(broker: Broker) -> None:
    broker.create_topic("wide", 10_000)
    wide = [TopicPartition("wide", number) for number in range(10_000)]
    found = lookup_offsets(broker, dict.fromkeys(wide, LATEST))
    assert list(found) == wide
    assert set(offset_values(found)) == {0}


def test_leaders_that_have_changed_are_asked_again(broker: Broker) -> None:
    broker.fail("ListOffsets", "NOT_LEADER_OR_FOLLOWER", times=3)
    broker.drop_response("ListOffsets")
    assert offset_values(lookup_offsets(broker, {T0: LATEST})) == [0]
    assert broker.clear_faults() == 0


def test_a_topic_that_comes_in_time(broker: Broker) -> None:
    late = TopicPartition("late", 0)

    async def look(client: ClusterClient) -> dict[TopicPartition, ListedOffset | None]:
        looking = asyncio.ensure_future(
            list_offsets(client, {late: LATEST}, deadline=client.deadline_after(20))
        )
        await asyncio.sleep(0.05)
        broker.create_topic("late")
        return await looking

    assert offset_values(run_with_client(broker, look)) == [0]


@pytest.mark.parametrize("partition", [TopicPartition("missing", 0), TopicPartition("t", 2)])
def test_what_does_not_exist_is_named(broker: Broker, partition: TopicPartition) -> None:
    with pytest.raises(UnknownTopic, match=str(partition)):
        lookup_offsets(broker, {partition: LATEST}, timeout=1.5)


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [(29, AuthorizationFailed, "topic 't'"), (42, Refused, "42"), (6, TimedOut, "error 6")],
)
def test_refusals(broker: Broker, code: int, error: type[Exception], text: str) -> None:
    broker.fail("ListOffsets", code, times=None)
    with pytest.raises(error, match=text):
        lookup_offsets(broker, {T0: LATEST}, timeout=1.5)


def test_where_epochs_end(broker: Broker) -> None:
    broker.produce("t", "x", "y", partition=0)

    async def epoch_ends(client: ClusterClient) -> dict[TopicPartition, EpochEndOffset | None]:
        deadline = client.deadline_after(20)
        leader = (await client.refresh(["t"], deadline=deadline)).leader(T0)
        assert leader is not None
        queries = {T0: OffsetQuery(0), T1: OffsetQuery(7)}
        return (await send_offset_for_leader_epoch(client, leader, queries, deadline)).found

    assert run_with_client(broker, epoch_ends) == {
        T0: EpochEndOffset(0, 2),
        T1: EpochEndOffset(-1, -1),
    }
