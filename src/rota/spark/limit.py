"""How much a trigger reads: the same offsets that Spark's own Kafka source would choose."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rota.model.topic import TopicPartition
from rota.spark.spec import LARGEST

Offsets = Mapping[TopicPartition, int]


def prorated(most: int, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
    """Ends so that not more than so many offsets are read, shared by what each partition has.

    :param start: of all partitions of the end
    """
    sizes = {each: end[each] - start[each] for each in end if end[each] > start[each]}
    total = float(sum(sizes.values()))
    found = dict(end)
    for each, size in sizes.items():
        share = most * (size / total)
        # small partitions are not to starve
        whole = math.ceil(share) if share < 1 else math.floor(share)
        found[each] = min(end[each], start[each] + min(whole, LARGEST - start[each]))
    return found


@dataclass(slots=True)
class Delay:
    """Waits for ``minOffsetsPerTrigger``, but not longer than ``maxTriggerDelay``."""

    least: int
    longest: int
    """Milliseconds."""
    last: int = 0
    """When there was a trigger, in milliseconds: the first one of a process does not wait."""

    def holds(self, start: Offsets, end: Offsets, now: int) -> bool:
        """Whether to wait still; where not, the time begins anew."""
        if now - self.last >= self.longest or _new(start, end) >= self.least:
            self.last = now
            return False
        return True


def _new(start: Offsets, end: Offsets) -> int:
    """Records of partitions that are new count from offset 0, as they do in Spark's own."""
    return sum(max(until - start.get(each, 0), 0) for each, until in end.items())
