"""What a client knows of a cluster, and when it asks again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import rota
from rota.broker.embedded import Broker
from rota.engine.model.topic import TopicPartition
from rota.errors import Code, TimedOut, UnknownTopic
from tests.support.client import client, new_deadline, run


@pytest.fixture
def broker() -> Iterator[Broker]:
    with rota.Broker(config={"auto.create.topics.enable": True}) as one:
        yield one


def test_topics_come_grow_go_and_come_again(broker: Broker) -> None:
    async def main() -> None:
        async with client(broker.bootstrap_servers) as one:
            assert (await one.refresh(["t"], deadline=new_deadline())).topics["t"].error == 3
            made = await one.refresh(["t"], deadline=new_deadline(), create=True)
            if made.topics["t"].error:
                await one.find_leader(TopicPartition("t", 0), new_deadline())
            first = one.metadata.topics["t"]
            assert len(first.partitions) == 1
            broker.create_partitions("t", 3)
            assert (
                len((await one.refresh(["t"], deadline=new_deadline())).topics["t"].partitions) == 3
            )
            broker.delete_topic("t")
            assert (await one.refresh(["t"], deadline=new_deadline())).topics["t"].error == 3
            broker.create_topic("t", 2)
            again = (await one.refresh(["t"], deadline=new_deadline())).topics["t"]
            assert again.id != first.id
            assert len(again.partitions) == 2
            odd = (await one.refresh(["a b"], deadline=new_deadline())).topics["a b"]
            assert odd.error == Code.INVALID_TOPIC_EXCEPTION

    run(main())


def test_a_leader_is_waited_for(broker: Broker) -> None:
    async def main() -> None:
        async with client(broker.bootstrap_servers) as one:
            waiting = asyncio.ensure_future(
                one.find_leader(TopicPartition("late", 0), new_deadline())
            )
            await asyncio.sleep(0.02)
            broker.create_topic("late")
            assert await waiting == 1
            with pytest.raises(TimedOut, match="never-0 has no leader: there is no topic"):
                await one.find_leader(TopicPartition("never", 0), new_deadline(0.05))
            with pytest.raises(UnknownTopic, match="no topic can have the name 'a b'"):
                await one.find_leader(TopicPartition("a b", 0), new_deadline())

    run(main())
