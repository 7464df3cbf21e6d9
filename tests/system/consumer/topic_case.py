"""What happens to topics: partitions added, new ones for a pattern, deleted ones."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.clients.scene import fresh
from tests.system.consumer.crew import ASYNC, BLOCKING, JAVA
from tests.system.consumer.group import Group, Scene
from tests.system.consumer.history import History

WATCHFUL = {"metadata.max.age.ms": 300}


def grown(scene: Scene) -> None:
    """Partitions are added: they have owners soon, and no record of them is missed."""
    group = Group(scene, partitions=3)
    for kind in (ASYNC, JAVA, BLOCKING):
        group.join(kind, "cooperative-sticky", settings=WATCHFUL)
    group.settle()
    group.write()
    (topic,) = group.topics
    group.grow(topic, 9)
    group.write()
    group.settle(3, 3, 3)
    assert {len(member.owned) for member in group.members.values()} == {3}
    group.finish()
    group.judge()


def matched(scene: Scene) -> None:
    """A new topic's name matches the pattern."""
    prefix = fresh(f"p-{scene.cluster.name}")
    scene.make(f"{prefix}-1", 2)
    group = Group(scene, f"{prefix}-1")
    for kind in (BLOCKING, ASYNC):
        group.join(kind, "range", pattern=f"{prefix}-[0-9]+", settings=WATCHFUL)
    group.settle()
    group.write()
    scene.make(f"{prefix}-2", 4)
    scene.make(f"{prefix}-other", 1)
    group.watch(f"{prefix}-2")
    group.write()
    group.settle()
    group.finish()
    group.judge()


def deleted(scene: Scene) -> None:
    """A topic is deleted, and made again: the group forgets it, and begins anew."""
    group = Group(scene, scene.topic(2), scene.topic(4))
    stays, goes = group.topics
    for kind in (ASYNC, JAVA, BLOCKING):
        group.join(kind, "cooperative-sticky", settings=WATCHFUL)
    group.settle()
    group.write()
    group.finish()
    group.await_commits()  # a commit for a topic that is gone is tried again for a minute
    scene.admin.delete_topic(goes)
    del group.partitions[goes]
    group.settle(all_busy=False)
    group.write(2, stays)
    group.finish()
    assert group.history.problems() == []
    read = {place: end for place, end in group.ends().items() if place.topic == stays}
    group.history = History(events=group.owning(), begins=read)
    scene.make(goes, 4)
    group.watch(goes)
    group.settle()
    group.write(3, goes)
    group.finish()
    group.judge()


CASES: dict[str, Callable[[Scene], None]] = {
    "partitions are added": grown,
    "a new topic matches the pattern": matched,
    "a topic is deleted and made again": deleted,
}
