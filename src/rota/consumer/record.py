"""Records as an application gets them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from rota.model.topic import TopicPartition


class ConsumerRecord(NamedTuple):
    """One record. Key and value are bytes, or what the deserializers made of them."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970, -1 if there is none."""
    timestamp_type: int
    """0: set by the producer (CreateTime), 1: by the broker (LogAppendTime)."""
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int | None


class Records:
    """What one ``poll`` gave: iterate over it, or over the list of one partition."""

    __slots__ = ("by_partition",)

    def __init__(self, by_partition: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        self.by_partition = by_partition

    def __getitem__(self, partition: tuple[str, int]) -> list[ConsumerRecord]:
        """The records of a partition, none if there are none."""
        return self.by_partition.get(TopicPartition(*partition), [])

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return chain.from_iterable(self.by_partition.values())

    def __len__(self) -> int:
        return sum(map(len, self.by_partition.values()))

    def __bool__(self) -> bool:
        return any(self.by_partition.values())

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}: {len(each)}" for name, each in self.by_partition.items())
        return f"<{len(self)} records ({counts})>"
