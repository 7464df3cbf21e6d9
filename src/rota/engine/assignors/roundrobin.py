"""RoundRobinAssignor: the partitions of all topics, one after the other, to the members in turn."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rota.engine.assignors.interface import ColumnarAssignor, Solution
from rota.engine.assignors.problem import ConsumersPerTopic, Problem
from rota.engine.model.topic import IntArray


class RoundRobinAssignor(ColumnarAssignor):
    """Subscribed members take turns; the turn does not restart with each topic."""

    name: ClassVar[str] = "roundrobin"

    def solve(self, problem: Problem) -> Solution:
        """Assigns the partitions of all topics in turn."""
        line = ConsumersPerTopic(problem)
        if len(problem.classes) <= 1:
            return Solution(owners=np.resize(line.member_order, problem.layout.size))
        return Solution(owners=line.member_order[_assign_in_turn(problem, line)])


def _assign_in_turn(problem: Problem, line: ConsumersPerTopic) -> IntArray:
    """Returns the place of each partition's member. A topic's subscribers take turns; the next
    topic continues after the last place served.
    """
    dealt = np.empty(problem.layout.size, dtype=np.int32)
    start = 0
    next_place = 0
    for kind, count in zip(line.kind_of_topic, problem.layout.counts.tolist(), strict=True):
        places = line.find_subscribers(kind)
        first = int(places.searchsorted(next_place))
        end = start + count
        turns = np.arange(first, first + count)
        places.take(turns, mode="wrap", out=dealt[start:end])
        next_place = int(dealt[end - 1]) + 1
        start = end
    return dealt
