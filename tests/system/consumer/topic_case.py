"""What happens to topics: partitions added, new ones for a pattern, deleted ones."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.clients.case import unique_name
from tests.system.consumer.client_drivers import ASYNC, BLOCKING, JAVA
from tests.system.consumer.group import Group, GroupCase
from tests.system.consumer.history import History

WATCHFUL = {"metadata.max.age.ms": 300}


def grown(group_case: GroupCase) -> None:
    """Partitions are added: they have owners soon, and no record of them is missed."""
    group = Group(group_case, partitions=3)
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
    group.check_history()


def matched(group_case: GroupCase) -> None:
    """A new topic's name matches the pattern."""
    prefix = unique_name(f"p-{group_case.cluster.name}")
    group_case.make(f"{prefix}-1", 2)
    group = Group(group_case, f"{prefix}-1")
    for kind in (BLOCKING, ASYNC):
        group.join(kind, "range", pattern=f"{prefix}-[0-9]+", settings=WATCHFUL)
    group.settle()
    group.write()
    group_case.make(f"{prefix}-2", 4)
    group_case.make(f"{prefix}-other", 1)
    group.add_topic(f"{prefix}-2")
    group.write()
    group.settle()
    group.finish()
    group.check_history()


def deleted(group_case: GroupCase) -> None:
    """A topic is deleted, and made again: the group forgets it, and begins anew."""
    group = Group(group_case, group_case.topic(2), group_case.topic(4))
    stays, goes = group.topics
    for kind in (ASYNC, JAVA, BLOCKING):
        group.join(kind, "cooperative-sticky", settings=WATCHFUL)
    group.settle()
    group.write()
    group.finish()
    group.await_commits()  # a commit for a topic that is gone is tried again for a minute
    group_case.admin.delete_topic(goes)
    del group.partitions[goes]
    group.settle(all_busy=False)
    group.write(2, stays)
    group.finish()
    assert group.history.problems() == []
    read = {place: end for place, end in group.final_offsets().items() if place.topic == stays}
    group.history = History(events=group.current_ownership(), begins=read)
    group_case.make(goes, 4)
    group.add_topic(goes)
    group.settle()
    group.write(3, goes)
    group.finish()
    group.check_history()


CASES: dict[str, Callable[[GroupCase], None]] = {
    "partitions are added": grown,
    "a new topic matches the pattern": matched,
    "a topic is deleted and made again": deleted,
}
