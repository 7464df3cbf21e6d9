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
        consumers = ConsumersPerTopic(problem)
        if len(problem.classes) <= 1:
            return Solution(owners=np.resize(consumers.member_order, problem.layout.size))
        return Solution(owners=consumers.member_order[_assign_in_turn(problem, consumers)])


def _assign_in_turn(problem: Problem, consumers: ConsumersPerTopic) -> IntArray:
    owners = np.empty(problem.layout.size, dtype=np.int32)
    start = 0
    next_place = 0
    for kind, count in zip(consumers.kind_of_topic, problem.layout.counts.tolist(), strict=True):
        places = consumers.find_subscribers(kind)
        first = int(places.searchsorted(next_place))
        end = start + count
        turns = np.arange(first, first + count)
        places.take(turns, mode="wrap", out=owners[start:end])
        next_place = int(owners[end - 1]) + 1
        start = end
    return owners
