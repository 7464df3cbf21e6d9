"""Range's first pass where racks are known (KIP-881): partitions to members near a replica.

What is decided here is final, and the rest of each topic is then dealt as without racks. The
pass is skipped as a whole unless some topic has subscribers in a rack of its replicas, while its
partitions are not all in the same racks. Topics with the same subscribers and partition counts
are matched together, so that partition p of all of them falls to one member; Kafka does that even
for those of them that would not need it alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from rota.assignors.line import Line
from rota.assignors.problem import BoolArray, Problem, Racks
from rota.model.membership import UNASSIGNED
from rota.model.topic import IntArray

NO_RACK = -1
"""The rack of a member that names none: it is near every partition."""


def matched(problem: Problem, line: Line) -> dict[int, IntArray]:
    """For each topic in which anything may be matched: for each partition the subscriber it falls
    to, by position among the topic's subscribers, or -1.
    """
    racks = problem.racks
    if racks is None:
        return {}
    alike: dict[tuple[int, int], list[int]] = {}
    for topic, kind in enumerate(line.kind_of):
        alike.setdefault((kind, int(problem.layout.counts[topic])), []).append(topic)
    racks_of = {
        kind: racks.member[line.order[line.places(kind)]].tolist() for kind in set(line.kind_of)
    }
    needing = {
        topic
        for (kind, _), topics in alike.items()
        for topic in topics
        if _needs_matching(_sets_of(problem, racks, topic), set(racks_of[kind]) - {NO_RACK}, racks)
    }
    found: dict[int, IntArray] = {}
    for (kind, _), topics in alike.items():
        if not needing or all(rack == NO_RACK for rack in racks_of[kind]):
            continue
        if len(topics) > 1:
            near = np.logical_and.reduce([_near(problem, racks, topic) for topic in topics])
            found |= dict.fromkeys(topics, _matched_together(near, racks_of[kind]))
        elif topics[0] in needing:
            found[topics[0]] = _matched_alone(_near(problem, racks, topics[0]), racks_of[kind])
    return found


def _near(problem: Problem, racks: Racks, topic: int) -> BoolArray:
    """``near[p, r]``: rack r holds a replica of this topic's partition p."""
    return racks.local[_sets_of(problem, racks, topic)]


def _sets_of(problem: Problem, racks: Racks, topic: int) -> IntArray:
    starts = problem.layout.starts
    return racks.set_of[starts[topic] : starts[topic + 1]]


def _needs_matching(set_of: IntArray, subscribers: set[int], racks: Racks) -> bool:
    present = [racks.sets[position] for position in np.unique(set_of).tolist()]
    everywhere = frozenset[int]().union(*present)
    return not subscribers.isdisjoint(everywhere) and any(s != everywhere for s in present)


def _matched_alone(near: BoolArray, racks_of: Sequence[int]) -> IntArray:
    """One topic: subscribers in order take the first free partitions near them, up to quota."""
    each, extra = divmod(len(near), len(racks_of))
    taken = [UNASSIGNED] * len(near)
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
            if taken[partition] == UNASSIGNED:
                taken[partition] = subscriber
                got += 1
        extra -= got > each
    return np.array(taken, dtype=np.int32)


def _matched_together(near: BoolArray, racks_of: Sequence[int]) -> IntArray:
    """Topics alike: each partition number in order goes to the first subscriber that is near it
    in all of them and below quota. A subscriber once at its quota never gets below it again, so
    only the head of each rack's queue has to be looked at.
    """
    each, extra = divmod(len(near), len(racks_of))
    has = [0] * len(racks_of)
    queues: dict[int, deque[int]] = {}
    for subscriber, rack in enumerate(racks_of):
        queues.setdefault(rack, deque()).append(subscriber)
    taken = [UNASSIGNED] * len(near)
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
            taken[partition] = subscriber
            has[subscriber] += 1
            extra -= has[subscriber] > each
    return np.array(taken, dtype=np.int32)
