"""Topics, partitions and offsets: single ones as tuples, large sets as numpy columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from rota.errors import InputError

IntArray = npt.NDArray[np.int32]  # members, topics, partitions: Kafka's own width is 32 bits

MAX_PARTITIONS = 2**31 - 1


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


ValueT = TypeVar("ValueT")


def values_by_topic(values: Mapping[TopicPartition, ValueT]) -> dict[str, list[tuple[int, ValueT]]]:
    """Groups the values of partitions by topic: partition numbers and values, in the same order."""
    topics: dict[str, list[tuple[int, ValueT]]] = {}
    for (topic, partition), value in values.items():
        topics.setdefault(topic, []).append((partition, value))
    return topics


def _make_read_only_array(values: Sequence[int]) -> IntArray:
    given = np.array(values) if len(values) else np.empty(0, dtype=np.int32)
    if given.dtype.kind not in "iu":
        raise TypeError("partitions must be whole numbers")
    limits = np.iinfo(np.int32)
    if len(given) and not (limits.min <= given.min() and given.max() <= limits.max):
        raise OverflowError("partitions must fit 32 bits")
    array: IntArray = given.astype(np.int32)
    array.setflags(write=False)
    return array


class Partitions:
    """Partitions of several topics: row i is partition ``numbers[i]`` of ``names[topic[i]]``."""

    __slots__ = ("names", "numbers", "topic")

    def __init__(self, names: tuple[str, ...], topic: IntArray, numbers: IntArray) -> None:
        self.names = names
        self.topic = topic
        self.numbers = numbers

    @classmethod
    def of(cls, partitions: Mapping[str, Iterable[int]] | Iterable[tuple[str, int]]) -> Partitions:
        """From ``{"topic": [0, 1]}`` or from (topic, partition) pairs."""
        index: dict[str, int] = {}
        topic: list[int] = []
        numbers: list[int] = []
        if isinstance(partitions, Mapping):
            for name, values in partitions.items():
                listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
                topic += [index.setdefault(name, len(index))] * len(listed)
                numbers += listed
        else:
            for name, number in partitions:
                topic.append(index.setdefault(name, len(index)))
                numbers.append(number)
        return cls(tuple(index), _make_read_only_array(topic), _make_read_only_array(numbers))

    def by_topic(self) -> dict[str, tuple[int, ...]]:
        """Returns ``{"topic": (0, 1)}``; topics and numbers keep their order."""
        found: dict[str, list[int]] = {}
        for topic, number in zip(self.topic.tolist(), self.numbers.tolist(), strict=True):
            found.setdefault(self.names[topic], []).append(number)
        return {name: tuple(numbers) for name, numbers in found.items()}

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, number in zip(self.topic.tolist(), self.numbers.tolist(), strict=True):
            yield TopicPartition(self.names[topic], number)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Partitions):
            return NotImplemented
        return list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Partitions.of({self.by_topic()!r})"


NO_PARTITIONS = Partitions.of(())


@dataclass(frozen=True, slots=True)
class Cluster:
    """The topics that the leader knows: their partition counts, and the racks of their replicas. A
    topic without metadata is absent. ``racks[topic][p]`` are the racks that hold a replica of
    partition p; topics without known racks are absent there.
    """

    partitions: Mapping[str, int]
    racks: Mapping[str, Sequence[Iterable[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.partitions, Mapping):
            raise InputError(f"partitions must be {{topic: count}}, not {self.partitions!r}")
        for topic, count in self.partitions.items():
            if not isinstance(count, (int, np.integer)) or isinstance(count, bool):
                raise InputError(f"partitions[{topic!r}]: {count!r} is not a whole number")
            if count < 0:
                raise InputError(f"partitions[{topic!r}]: {count} is negative")
        if sum(self.partitions.values()) > MAX_PARTITIONS:
            raise InputError(f"partitions: more than {MAX_PARTITIONS} in all")
        # copies, so that a strategy cannot change the caller's mappings
        object.__setattr__(self, "partitions", dict(self.partitions))
        self._check_racks()

    def _check_racks(self) -> None:
        known: dict[str, tuple[frozenset[str], ...]] = {}
        for topic, listed in self.racks.items():
            if topic not in self.partitions:
                raise InputError(f"racks[{topic!r}]: no such topic in partitions")
            if not isinstance(listed, Sequence) or len(listed) != self.partitions[topic]:
                count = self.partitions[topic]
                raise InputError(f"racks[{topic!r}]: a list of {count} lists of racks is needed")
            known[topic] = tuple(_check_rack_names(topic, *entry) for entry in enumerate(listed))
        object.__setattr__(self, "racks", known)


def _check_rack_names(topic: str, number: int, racks: object) -> frozenset[str]:
    if isinstance(racks, Iterable) and not isinstance(racks, str):
        found = frozenset(racks)
        if all(isinstance(rack, str) for rack in found):
            return found
    raise InputError(f"racks[{topic!r}][{number}]: {racks!r} is not a list of rack names")


class PartitionNumbering:
    """Numbers partitions, topic after topic: partition p of topic t has number ``starts[t] + p``.
    So an assignment is one array of owners.
    """

    def __init__(self, topics: tuple[str, ...], counts: Iterable[int]) -> None:
        self.topics = topics
        self.counts: IntArray = _make_read_only_array(list(counts))
        starts = np.zeros(len(topics) + 1, dtype=np.int64)
        np.cumsum(self.counts, out=starts[1:])
        starts.setflags(write=False)
        self.starts: npt.NDArray[np.int64] = starts

    @property
    def size(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def index(self) -> dict[str, int]:
        return {topic: position for position, topic in enumerate(self.topics)}

    @cached_property
    def topic_of(self) -> IntArray:
        positions = np.repeat(np.arange(len(self.topics), dtype=np.int32), self.counts)
        positions.setflags(write=False)
        return positions

    def numbers_of(self, partitions: Partitions) -> npt.NDArray[np.int64]:
        """Returns the numbers of these partitions, without those that do not exist."""
        places = [self.index.get(name, -1) for name in partitions.names]
        topic = np.array(places, dtype=np.int32)[partitions.topic]
        known = topic >= 0
        topic, numbers = topic[known], partitions.numbers[known]
        exists = (numbers >= 0) & (numbers < self.counts[topic])
        return self.starts[topic[exists]] + numbers[exists]

    def partition_at(self, number: int) -> TopicPartition:
        topic = int(np.searchsorted(self.starts, number, side="right")) - 1
        return TopicPartition(self.topics[topic], int(number - self.starts[topic]))

    def partitions_at(self, numbers: npt.NDArray[np.integer]) -> Partitions:
        topic = np.searchsorted(self.starts, numbers, side="right").astype(np.int32) - np.int32(1)
        return Partitions(self.topics, topic, (numbers - self.starts[topic]).astype(np.int32))


NO_OFFSET = -1  # nothing was committed
NO_LEADER_EPOCH = -1  # the leader's epoch is not known


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """The next offset to read, with the application's own metadata and the leader epoch."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.offset, int) or self.offset < 0:
            raise InputError(f"offset {self.offset!r} is not a number from 0 up")


@dataclass(frozen=True, slots=True)
class UncheckedOffset(OffsetAndMetadata):
    """An offset as a client sent it, which may be negative: Kafka's broker stores any number."""

    def __post_init__(self) -> None:
        """Accepts every number, unlike the base class."""
