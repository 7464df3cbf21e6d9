"""RangeAssignor: consecutive partitions of each topic, members in order.

Where racks are known (KIP-881), a first pass assigns partitions to members in a rack that holds a
replica, and the rest of each topic is assigned as without racks. That pass is skipped altogether
unless some topic has subscribers in a rack of its replicas while its partitions are not all in the
same racks. Topics with the same subscribers and partition counts are co-partitioned: they are
matched together, so that one member gets partition p of all of them. Kafka does that even for
topics that would not need the pass on their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from rota.engine.assignors.interface import ColumnarAssignor, Solution
from rota.engine.assignors.problem import NO_RACK, ConsumersPerTopic, Problem, Racks
from rota.engine.formats.buffer import BoolArray
from rota.engine.model.member import UNASSIGNED
from rota.engine.model.topic import IntArray


class RangeAssignor(ColumnarAssignor):
    """Each topic on its own: n // m partitions for each of m members, one more for the first n % m.
    With racks (KIP-881) members in a rack of a replica come first, within these quotas.
    """

    name: ClassVar[str] = "range"

    def solve(self, problem: Problem) -> Solution:
        if not problem.layout.size:
            return Solution(owners=np.empty(0, dtype=np.int32))
        order = ConsumersPerTopic(problem)
        local = assign_with_rack_matching(problem, order)
        runs: dict[tuple[int, int], IntArray] = {}
        columns: list[IntArray] = []
        for topic, kind in enumerate(order.kind_of_topic):
            count = int(problem.layout.counts[topic])
            if topic in local:
                columns.append(_assign_remaining_ranges(local[topic], order.find_subscribers(kind)))
                continue
            if (kind, count) not in runs:
                runs[kind, count] = _assign_ranges(count, order.find_subscribers(kind))
            columns.append(runs[kind, count])
        return Solution(owners=order.member_order[np.concatenate(columns)])


def _assign_ranges(count: int, places: IntArray) -> IntArray:
    each, extra = divmod(count, len(places))
    sizes = np.full(len(places), each)
    sizes[:extra] += 1
    return places.repeat(sizes)


def _assign_remaining_ranges(assigned: IntArray, places: IntArray) -> IntArray:
    """Assigns the unassigned partitions to subscribers in order, up to their quotas."""
    free = assigned == UNASSIGNED
    each, extra = divmod(len(assigned), len(places))
    counts = np.bincount(assigned[~free], minlength=len(places))
    sizes = np.maximum(each - counts, 0)
    without = np.flatnonzero(counts <= each)
    sizes[without[: extra - (len(counts) - len(without))]] += 1
    subscriber = assigned.copy()
    subscriber[free] = np.repeat(np.arange(len(places), dtype=np.int32), sizes)
    return places[subscriber]


def assign_with_rack_matching(problem: Problem, order: ConsumersPerTopic) -> dict[int, IntArray]:
    """Returns for topics with rack matching each partition's place in the subscribers, or -1."""
    racks = problem.racks
    if racks is None:
        return {}
    alike: dict[tuple[int, int], list[int]] = {}
    for topic, kind in enumerate(order.kind_of_topic):
        alike.setdefault((kind, int(problem.layout.counts[topic])), []).append(topic)
    racks_of = {
        kind: racks.rack_of_member[order.member_order[order.find_subscribers(kind)]].tolist()
        for kind in set(order.kind_of_topic)
    }
    needing = {
        topic
        for (kind, _), topics in alike.items()
        for topic in topics
        if _needs_rack_matching(
            _rack_sets_of_topic(problem, racks, topic), set(racks_of[kind]) - {NO_RACK}, racks
        )
    }
    assigned: dict[int, IntArray] = {}
    for (kind, _), topics in alike.items():
        if not needing or all(rack == NO_RACK for rack in racks_of[kind]):
            continue
        # near[p, r]: rack r holds a replica of partition p of all these topics
        near = np.logical_and.reduce(
            [racks.set_has_rack[_rack_sets_of_topic(problem, racks, topic)] for topic in topics]
        )
        if len(topics) > 1:
            taken = _assign_co_partitioned_with_rack_matching(near, racks_of[kind])
            assigned |= dict.fromkeys(topics, taken)
        elif topics[0] in needing:
            assigned[topics[0]] = _assign_topic_with_rack_matching(near, racks_of[kind])
    return assigned


def _rack_sets_of_topic(problem: Problem, racks: Racks, topic: int) -> IntArray:
    starts = problem.layout.starts
    return racks.set_of_partition[starts[topic] : starts[topic + 1]]


def _needs_rack_matching(set_of: IntArray, subscribers: set[int], racks: Racks) -> bool:
    present = [racks.sets[position] for position in np.unique(set_of).tolist()]
    everywhere = frozenset[int]().union(*present)
    return not subscribers.isdisjoint(everywhere) and any(s != everywhere for s in present)


def _assign_topic_with_rack_matching(near: BoolArray, racks_of: Sequence[int]) -> IntArray:
    """Each subscriber of a topic takes free partitions with a replica in its rack."""
    each, extra = divmod(len(near), len(racks_of))
    owners = [UNASSIGNED] * len(near)
    queues: dict[int, Iterator[int]] = {
        rack: iter(np.flatnonzero(near[:, rack]).tolist() if rack >= 0 else range(len(near)))
        for rack in set(racks_of)
    }
    for subscriber, rack in enumerate(racks_of):
        quota = each + (extra > 0)
        got = 0
        while got < quota:
            partition = next(queues[rack], None)
            if partition is None:
                break
            if owners[partition] == UNASSIGNED:
                owners[partition] = subscriber
                got += 1
        extra -= got > each
    return np.array(owners, dtype=np.int32)


def _assign_co_partitioned_with_rack_matching(near: BoolArray, racks_of: Sequence[int]) -> IntArray:
    """Co-partitioned topics: a partition number goes to the first subscriber below its quota whose
    rack has a replica in all of them. Only the head of each rack's queue can be below it.
    """
    each, extra = divmod(len(near), len(racks_of))
    has = [0] * len(racks_of)
    queues: dict[int, deque[int]] = {}
    for subscriber, rack in enumerate(racks_of):
        queues.setdefault(rack, deque()).append(subscriber)
    owners = [UNASSIGNED] * len(near)
    for partition, row in enumerate(near.tolist()):
        heads = []
        for rack, queue in queues.items():
            if rack >= 0 and not row[rack]:
                continue
            while queue and has[queue[0]] >= each + (extra > 0):
                queue.popleft()
            if queue:
                heads.append(queue[0])
        if heads:
            subscriber = min(heads)
            owners[partition] = subscriber
            has[subscriber] += 1
            extra -= has[subscriber] > each
    return np.array(owners, dtype=np.int32)
