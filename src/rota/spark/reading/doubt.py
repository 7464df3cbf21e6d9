"""Whether what does not come is still to come, was never there, or is lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rota.client.cluster import Client
from rota.client.offset import EARLIEST, LATEST, list_offsets
from rota.model.topic import TopicPartition
from rota.spark.loss import lost
from rota.spark.reading.arrival import PROOF
from rota.spark.reading.part import Part

EARLIEST_LOCAL = -4
"""The timestamp of where a log begins on the broker's own disks (KIP-405)."""


class Extent(NamedTuple):
    """What a partition has."""

    first: int
    local: int
    """From here on on the broker's own disks."""
    last: int
    """Behind the last record."""


async def look(
    client: Client, partitions: Iterable[TopicPartition], deadline: float
) -> dict[TopicPartition, Extent]:
    """Asks the leaders."""
    every = sorted(set(partitions))
    found = []
    for which in (EARLIEST, EARLIEST_LOCAL, LATEST):
        listed = await list_offsets(client, dict.fromkeys(every, which), deadline=deadline)
        offsets = {each: listed[each] for each in every}
        found.append([0 if at is None else at.offset for at in offsets.values()])
    return {each: Extent(*extent) for each, *extent in zip(every, *found, strict=True)}


def settle(part: Part, extent: Extent, *, fail: bool) -> None:
    """Goes on behind what is lost, or is not there; else the range stays where it is.

    :param fail: with ``failOnDataLoss``
    :raises DataLost: records are gone, and it is set
    """
    where = f"{part.partition} from offset {part.position} to {part.until}"
    if part.position < extent.first:
        lost(f"{where}: the log begins at {extent.first} by now", fail=fail)
        part.move(extent.first)
    elif part.position >= extent.last:
        lost(f"{where}: the log ends at {extent.last} by now", fail=fail)
        part.move(part.until)
    elif part.empty >= PROOF and part.readable > part.position >= extent.local:
        # on its own disks the broker does not miss anything: compaction left nothing there
        part.move(min(part.readable, part.until))
    else:
        part.empty = 0
