"""Partitions listed by topic: the piece that subscriptions, assignments and user data share."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rota.formats.javahash import java_key
from rota.formats.primitive import Reader, Writer
from rota.model.topic import NO_PARTITIONS, Partitions

SMALLEST_ENTRY = 6
"""A topic with an empty name and no partitions: two lengths."""


def read_partitions(reader: Reader, field: str) -> Partitions:
    """Partitions in the order they are listed in; a topic may come twice."""
    index: dict[str, int] = {}
    topics: list[int] = []
    packed: list[bytes] = []
    topic_field, numbers_field = f"topic of {field}", f"partitions of {field}"
    for _ in range(reader.count(field, SMALLEST_ENTRY)):
        topics.append(index.setdefault(reader.string(topic_field), len(index)))
        packed.append(reader.packed_int32s(numbers_field))
    if not packed:
        return NO_PARTITIONS
    topic = np.repeat(np.array(topics, dtype=np.int32), [len(piece) // 4 for piece in packed])
    numbers = np.frombuffer(b"".join(packed), dtype=">i4").astype(np.int32)
    for column in (topic, numbers):
        column.setflags(write=False)
    return Partitions(tuple(index), topic, numbers)


def write_partitions(writer: Writer, entries: Iterable[tuple[str, tuple[int, ...]]]) -> None:
    """One entry a topic, in the order given."""
    listed = list(entries)
    writer.int32(len(listed))
    for topic, numbers in listed:
        writer.string(topic)
        writer.int32s(numbers)


def sorted_by_topic(partitions: Partitions) -> list[tuple[str, tuple[int, ...]]]:
    """Topics in Java's order, the numbers of each ascending."""
    found = partitions.by_topic()
    return [(name, tuple(sorted(found[name]))) for name in sorted(found, key=java_key)]
