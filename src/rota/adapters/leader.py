"""Computes the assignment on the group leader, for both adapters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rota.engine.assignors.interface import Assignor, assign_checked
from rota.engine.model.member import GroupSubscription, Subscription
from rota.engine.model.topic import Cluster

LOGGER = logging.getLogger("rota.adapters")
T = TypeVar("T")


def count_partitions(metadata: Any, group: Mapping[str, Subscription]) -> dict[str, int]:  # noqa: ANN401 a class of either library
    topics = sorted({topic for subscription in group.values() for topic in subscription.topics})
    return {topic: len(metadata.partitions_for_topic(topic) or ()) for topic in topics}


def assign_as_leader(
    assignor: Assignor,
    cluster: Cluster,
    group: Mapping[str, Subscription],
    encode: Callable[[list[tuple[str, list[int]]], bytes | None], T],
) -> dict[str, T]:
    """Also checks the rules and logs notes. ``encode`` makes the library's assignment."""
    checked = assign_checked(assignor, cluster, GroupSubscription(group))
    for note in checked.notes:
        LOGGER.warning("strategy %s: %s", assignor.name, note)
    return {
        member: encode(
            [(topic, list(numbers)) for topic, numbers in each.partitions.by_topic().items()],
            each.user_data,
        )
        for member, each in checked.result.items()
    }
