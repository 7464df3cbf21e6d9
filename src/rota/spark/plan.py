"""Which task reads what: partitions weighted by what is to be read of them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from rota.model.topic import TopicPartition


class Range(NamedTuple):
    """Offsets of a partition; the last is not one of them."""

    partition: TopicPartition
    start: int
    until: int

    @property
    def size(self) -> int:
        """How many offsets, which may be more than there are records."""
        return self.until - self.start


Task = tuple[Range, ...]


def tasks(
    ranges: Iterable[Range],
    *,
    slots: int,
    least: int | None = None,
    most_records: int | None = None,
) -> list[Task]:
    """Every offset in one task, in few tasks of about the same size.

    :param slots: how many tasks there should be, if there is enough to do
    :param least: how many there must be (``minPartitions``); large partitions are split for it
    :param most_records: what a task may have (``maxRecordsPerPartition``)
    """
    pieces = [each for each in ranges if each.size > 0]
    if most_records is not None:
        pieces = [part for each in pieces for part in _split(each, -(-each.size // most_records))]
    if least is not None:
        pieces = _at_least(pieces, least)
    packed = _pack(pieces, max(slots, least or 0), most_records)
    return [_joined(task) for task in packed]


def _at_least(pieces: Sequence[Range], count: int) -> list[Range]:
    """So many pieces, if there are so many offsets: always the largest part is made smaller."""
    parts = dict.fromkeys(pieces, 1)
    largest = [(-each.size, each) for each in pieces]
    heapq.heapify(largest)
    for _ in range(count - len(pieces)):
        if not largest or largest[0][0] >= -1:
            break
        _, each = largest[0]
        parts[each] += 1
        heapq.heapreplace(largest, (-(each.size // parts[each]), each))
    return [part for each, number in parts.items() for part in _split(each, number)]


def _split(whole: Range, parts: int) -> list[Range]:
    bounds = [whole.start + whole.size * number // parts for number in range(parts + 1)]
    return [Range(whole.partition, start, until) for start, until in pairwise(bounds)]


def _pack(pieces: Sequence[Range], count: int, most: int | None) -> list[list[Range]]:
    """The largest first, each to the task that has the least."""
    packed: list[list[Range]] = [[] for _ in range(min(count, len(pieces)))]
    loads = [(0, number) for number in range(len(packed))]
    for each in sorted(pieces, key=lambda piece: (-piece.size, piece)):
        load, number = loads[0]
        if most is not None and load + each.size > most and load:
            packed.append([each])  # all others have at least as much
            heapq.heappush(loads, (each.size, len(packed) - 1))
            continue
        packed[number].append(each)
        heapq.heapreplace(loads, (load + each.size, number))
    return packed


def _joined(task: Iterable[Range]) -> Task:
    """In order; neighbours are one."""
    found: list[Range] = []
    for each in sorted(task):
        if found and (found[-1].partition, found[-1].until) == (each.partition, each.start):
            found[-1] = found[-1]._replace(until=each.until)
        else:
            found.append(each)
    return tuple(found)
