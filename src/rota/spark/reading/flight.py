"""What is asked of a broker: one large range, or several small ones, in a Fetch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rota.client.connection import Connection
from rota.client.fetch import Fetch, Wanted, request
from rota.client.metadata import Metadata
from rota.model.client import ReadConfig
from rota.model.offset import NO_EPOCH
from rota.model.topic import TopicPartition
from rota.spark.reading.part import Part
from rota.wire.message import NO_ID

ANSWER = 4 << 20
"""Bytes that a Fetch asks for, about; ``max.partition.fetch.bytes`` may ask for more of one."""
MARGIN = 128 << 10
"""Bytes asked for beyond what the rest of a range should have: batches are not cut."""
GUESS = 1024.0
"""Bytes of an offset where nothing is known of a partition."""


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """A Fetch under way."""

    node: int
    connection: Connection
    fetch: Fetch
    parts: Mapping[TopicPartition, Part]
    size: int
    """Bytes that may come."""
    sent: float
    """When, by the clock that counts waiting only."""

    @property
    def alone(self) -> bool:
        """One range was asked for."""
        return len(self.parts) == 1


class Sizes:
    """How many bytes to ask for, by what was seen of each partition.

    A wrong estimate costs time, never progress: of the first partition with records a broker gives
    one batch at least, and who gets nothing is asked for alone.
    """

    def __init__(self, most: int, rates: dict[TopicPartition, float]) -> None:
        """Takes what is known.

        :param most: ``max.partition.fetch.bytes``
        :param rates: bytes of an offset
        """
        self._most = most
        self._rates = rates
        self._last: dict[TopicPartition, int] = {}
        """Bytes of the last answer."""

    def of(self, part: Part) -> int:
        """Bytes to ask for."""
        if part.alone:
            return self._most
        rate = self._rates.get(part.partition, GUESS)
        return min(self._most, int(part.left * rate) + MARGIN)

    def learn(self, partition: TopicPartition, size: int, offsets: int) -> None:
        """So many offsets had so many bytes."""
        self._rates[partition] = size / offsets
        self._last[partition] = size

    def largest(self, partitions: Iterable[TopicPartition]) -> int:
        """What may come of one of them, whatever is asked for: batches are whole."""
        known = (max(self._last.get(each, 0), int(self._rates.get(each, 0))) for each in partitions)
        return max(known, default=0)


def choose(queue: Iterable[Part], node: int, sizes: Sizes, now: float) -> list[Part]:
    """The next ranges for one Fetch to a broker, in the queue's order."""
    chosen: dict[TopicPartition, Part] = {}
    size = 0
    for part in queue:
        if part.node != node or part.stale or part.ready > now:
            continue
        if part.partition in chosen:  # a Fetch names a partition once
            continue
        single = part.alone or part.leader_only
        if chosen and (single or size + sizes.of(part) > ANSWER):
            break
        chosen[part.partition] = part
        size += sizes.of(part)
        if single:
            break
    return list(chosen.values())


def fetch_of(
    parts: Sequence[Part], metadata: Metadata, config: ReadConfig, sizes: Sizes
) -> tuple[Fetch, int]:
    """The request, and how many bytes may come."""
    wanted = []
    for part in parts:
        topic, known = metadata.topics.get(part.partition.topic), metadata.partition(part.partition)
        wanted.append(
            Wanted(
                part.partition,
                NO_ID if topic is None else topic.id,
                part.position,
                NO_EPOCH if known is None else known.leader_epoch,
                max_bytes=sizes.of(part),
            )
        )
    if any(part.leader_only for part in parts):
        config = replace(config, rack=None)
    size = min(sum(sizes.of(part) for part in parts), config.fetch_max_bytes)
    fetch = request(wanted, config, max_bytes=size)
    return fetch, max(size, sizes.largest(part.partition for part in parts))
