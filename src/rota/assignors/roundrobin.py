"""RoundRobin: all partitions dealt in one circle over the members."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rota.assignors.interface import ColumnarAssignor, Solution
from rota.assignors.line import Line
from rota.assignors.problem import Problem
from rota.model.topic import IntArray


class RoundRobin(ColumnarAssignor):
    """The circle does not restart for each topic; members that do not subscribe are skipped."""

    name: ClassVar[str] = "roundrobin"

    def solve(self, problem: Problem) -> Solution:
        """One deal over all topics."""
        line = Line(problem)
        if len(problem.classes) <= 1:
            return Solution(owners=np.resize(line.order, problem.layout.size))
        return Solution(owners=line.order[_dealt(problem, line)])


def _dealt(problem: Problem, line: Line) -> IntArray:
    """The place in the line that each partition falls to.

    Within a topic the deal is a circle over its subscribers alone; what one topic hands to the
    next is the place after the last one served.
    """
    dealt = np.empty(problem.layout.size, dtype=np.int32)
    start = 0
    next_place = 0
    for kind, count in zip(line.kind_of, problem.layout.counts.tolist(), strict=True):
        places = line.places(kind)
        first = int(places.searchsorted(next_place))
        end = start + count
        turns = np.arange(first, first + count)
        places.take(turns, mode="wrap", out=dealt[start:end])
        next_place = int(dealt[end - 1]) + 1
        start = end
    return dealt
