"""Groups mixed of several libraries: every strategy, and each of them as the leader."""

from __future__ import annotations

from tests.consumer.crew import ASYNC, BLOCKING, CONFLUENT, JAVA, KAFKA_PYTHON, Kind
from tests.consumer.group import Group, Scene

MIXES: dict[str, tuple[Kind, ...]] = {
    "range": (ASYNC, JAVA, BLOCKING, KAFKA_PYTHON, CONFLUENT),
    "roundrobin": (BLOCKING, KAFKA_PYTHON, ASYNC, CONFLUENT, JAVA),
    "cooperative-sticky": (ASYNC, CONFLUENT, JAVA, KAFKA_PYTHON, BLOCKING),
    "sticky": (BLOCKING, JAVA, ASYNC),
}
"""Who has each strategy. The first to come leads the group, as long as it stays."""


def mixed(strategy: str, kinds: tuple[Kind, ...], scene: Scene) -> None:
    """Each in turn leads the group: the leader leaves, and the next one to come is the last."""
    group = Group(scene, partitions=2 * len(kinds))
    for kind in kinds:
        group.join(kind, strategy)
    group.settle()
    group.write()
    group.finish()
    for member in list(group.members.values())[:-1]:
        group.leave(member)
        group.write()
        group.settle()
        group.finish()
    group.judge()
