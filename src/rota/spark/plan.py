"""How many offsets a trigger reads, and which task reads which of them.

A trigger is limited to the same offsets that Spark's own Kafka source would choose. The offsets are
then split into ranges and packed into tasks of about the same size.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from rota.engine.model.topic import TopicPartition
from rota.spark.query import MAX_OFFSET


class OffsetRange(NamedTuple):
    """A range of offsets of one partition; ``until`` is exclusive."""

    partition: TopicPartition
    start: int
    until: int

    @property
    def size(self) -> int:
        """Number of offsets, which may be more than the number of records."""
        return self.until - self.start


TaskRanges = tuple[OffsetRange, ...]


def plan_tasks(
    ranges: Iterable[OffsetRange],
    *,
    slots: int,
    least: int | None = None,
    most_records: int | None = None,
) -> list[TaskRanges]:
    """Divides ranges into about ``slots`` equal tasks; large partitions are split for the ``least``
    number (``minPartitions``). ``most_records`` is ``maxRecordsPerPartition``.
    """
    pieces = [each for each in ranges if each.size > 0]
    if most_records is not None:
        counts = [(each, -(-each.size // most_records)) for each in pieces]
        pieces = [piece for each, count in counts for piece in _split_range(each, count)]
    if least is not None:
        pieces = _split_to_count(pieces, least)
    packed = _pack_ranges(pieces, max(slots, least or 0), most_records)
    return [_join_neighbours(task) for task in packed]


def _split_to_count(ranges: Sequence[OffsetRange], count: int) -> list[OffsetRange]:
    """Splits always the largest part until there are this many, if there are enough offsets."""
    counts = dict.fromkeys(ranges, 1)
    largest = [(-each.size, each) for each in ranges]
    heapq.heapify(largest)
    for _ in range(count - len(ranges)):
        if not largest or largest[0][0] >= -1:
            break
        _, each = largest[0]
        counts[each] += 1
        largest_part = -(-each.size // counts[each])
        heapq.heapreplace(largest, (-largest_part, each))
    return [piece for each, number in counts.items() for piece in _split_range(each, number)]


def _split_range(whole: OffsetRange, count: int) -> list[OffsetRange]:
    bounds = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [OffsetRange(whole.partition, start, until) for start, until in pairwise(bounds)]


def _pack_ranges(
    ranges: Sequence[OffsetRange], count: int, most: int | None
) -> list[list[OffsetRange]]:
    """Packs the largest range first, each range into the task with the fewest offsets."""
    packed: list[list[OffsetRange]] = [[] for _ in range(min(count, len(ranges)))]
    loads = [(0, number) for number in range(len(packed))]
    for each in sorted(ranges, key=lambda piece: (-piece.size, piece)):
        load, number = loads[0]
        if most is not None and load + each.size > most and load:
            packed.append([each])  # all other tasks have at least as many offsets
            heapq.heappush(loads, (each.size, len(packed) - 1))
            continue
        packed[number].append(each)
        heapq.heapreplace(loads, (load + each.size, number))
    return packed


def _join_neighbours(task: Iterable[OffsetRange]) -> TaskRanges:
    """Sorts the ranges of a task and joins neighbours."""
    joined: list[OffsetRange] = []
    for each in sorted(task):
        if joined and (joined[-1].partition, joined[-1].until) == (each.partition, each.start):
            joined[-1] = joined[-1]._replace(until=each.until)
        else:
            joined.append(each)
    return tuple(joined)


Offsets = Mapping[TopicPartition, int]


def limit_offsets(most: int, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
    """Returns ends for at most ``most`` offsets, in proportion to each partition's size."""
    sizes = {each: end[each] - start[each] for each in end if end[each] > start[each]}
    total = float(sum(sizes.values()))
    ends = dict(end)
    for each, size in sizes.items():
        share = most * (size / total)
        # small partitions must not starve
        whole = math.ceil(share) if share < 1 else math.floor(share)
        ends[each] = min(end[each], start[each] + min(whole, MAX_OFFSET - start[each]))
    return ends


@dataclass(slots=True)
class TriggerDelay:
    """Waits for ``minOffsetsPerTrigger``, but not longer than ``maxTriggerDelay``."""

    min_offsets: int
    #: Milliseconds.
    max_delay: int
    #: In milliseconds: the first trigger of a process does not wait.
    last_trigger: int = 0

    def should_wait(self, start: Offsets, end: Offsets, now: int) -> bool:
        """Returns whether to wait longer; if not, the delay starts again."""
        # a new partition counts from offset 0, as in Spark's own source
        new = sum(max(until - start.get(each, 0), 0) for each, until in end.items())
        if now - self.last_trigger >= self.max_delay or new >= self.min_offsets:
            self.last_trigger = now
            return False
        return True
