"""The broker is killed, and comes back; or comes back with less than it had."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from rota import TopicPartition
from rota.errors import NoOffset, Unreachable
from tests.consumer.crew import ASYNC, BLOCKING, CONFLUENT, JAVA, Kind
from tests.consumer.group import Group, Scene
from tests.consumer.hands import consumer, read
from tests.interop.scene import fresh, plain_record, until


def test_a_group_goes_on_when_the_broker_is_back(scene: Scene) -> None:
    group = Group(scene)
    for kind in (ASYNC, BLOCKING, JAVA, CONFLUENT):
        group.join(kind, "cooperative-sticky")
    group.settle()
    group.write()
    group.finish()
    scene.cluster.kill()
    time.sleep(0.5)  # all of them notice
    scene.cluster.start()
    group.write()
    group.finish()
    group.settle()
    group.judge()


@pytest.mark.parametrize("kind", [ASYNC, BLOCKING], ids=str)
def test_a_consumer_waits_for_the_broker(kind: Kind, scene: Scene) -> None:
    topic = scene.topic(1)
    settings = {"group.id": fresh("g"), "auto.offset.reset": "earliest"}
    with consumer(kind, scene.servers, settings) as own:
        own.subscribe([topic])
        write(scene, topic, 1, 2, 3)
        assert values(own, 3) == [1, 2, 3]
        generation = own.group_metadata.generation
        scene.cluster.kill()
        assert not own.poll(timeout=0.5)
        with pytest.raises(Unreachable, match=scene.servers):
            own.commit_sync(timeout=0.5)
        scene.cluster.start()
        write(scene, topic, 4)
        assert values(own, 1) == [4]
        own.commit_sync()
        assert own.group_metadata.generation == generation
        place = TopicPartition(topic, 0)
        assert own.committed([place])[place].offset == 4


@pytest.mark.parametrize(("kind", "other"), [(ASYNC, BLOCKING)], ids=["both"])
def test_a_log_is_shorter_than_it_was(kind: Kind, other: Kind, scene: Scene) -> None:
    """Whoever has a reset policy gets all that is written since; who has none is told."""
    topic = scene.topic(1)
    place = TopicPartition(topic, 0)
    for start in range(0, 20, 5):
        write(scene, topic, *range(start, start + 5))
    with (
        consumer(kind, scene.servers, {"auto.offset.reset": "earliest"}) as own,
        consumer(other, scene.servers, {"auto.offset.reset": "none"}) as strict,
    ):
        for each in (own, strict):
            each.assign([place])
            each.seek_to_beginning(place)
            assert values(each, 20) == list(range(20))
        left = shorten(scene, topic)
        write(scene, topic, 100, 101, 102)
        with pytest.raises(NoOffset, match=str(place)):
            read(strict, 1)
        found = values(own, 1)
        while 102 not in found:
            found += values(own, 1)
        assert found in ([100, 101, 102], [*range(left), 100, 101, 102])


@pytest.mark.parametrize("kind", [ASYNC, BLOCKING], ids=str)
def test_a_log_has_grown_again_past_the_position(kind: Kind, scene: Scene) -> None:
    """Its leader's epoch tells that what is there now is not what was there."""
    if scene.cluster.name == "rota":
        pytest.skip("Rota's broker has one leader epoch for all time, so nobody could tell")
    topic = scene.topic(1)
    place = TopicPartition(topic, 0)
    for start in range(0, 20, 5):
        write(scene, topic, *range(start, start + 5))
    with consumer(kind, scene.servers, {"auto.offset.reset": "earliest"}) as own:
        own.assign([place])
        assert values(own, 20) == list(range(20))
        left = shorten(scene, topic)
        assert left < 20
        write(scene, topic, *range(100, 130))
        assert values(own, 30) == list(range(100, 130))


def write(scene: Scene, topic: str, *numbers: int) -> None:
    scene.admin.produce(topic, [plain_record(each, 0) for each in numbers])


def values(own: Any, count: int) -> list[int]:
    return [int(record.value) for record in read(own, count)]


def shorten(scene: Scene, topic: str) -> int:
    """No broker may do this: half of a partition's records are gone. Says how many are left."""
    scene.cluster.kill()
    (log,) = (scene.cluster.data / f"{topic}-0").glob("*.log")
    os.truncate(log, log.stat().st_size // 2 + 1)
    scene.cluster.start()
    until("it has a leader", lambda: leader(scene, topic) >= 0)
    ((_, end),) = scene.admin.log_offsets(topic, 1, "latest")
    return end


def leader(scene: Scene, topic: str) -> int:
    found = scene.admin.admin.list_topics(topic, timeout=10).topics[topic].partitions
    return found[0].leader if found else -1
