"""Range: each topic's partitions in consecutive runs, members in order."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rota.assignors.interface import ColumnarAssignor, Solution
from rota.assignors.line import Line
from rota.assignors.problem import Problem
from rota.assignors.rackmatch import matched
from rota.model.membership import UNASSIGNED
from rota.model.topic import IntArray


class Range(ColumnarAssignor):
    """Per topic n // m partitions each, the first n % m members one more.

    With racks (KIP-881) a member near a replica comes first, as long as these quotas hold.
    """

    name: ClassVar[str] = "range"

    def solve(self, problem: Problem) -> Solution:
        """Runs of each topic."""
        if not problem.layout.size:
            return Solution(owners=np.empty(0, dtype=np.int32))
        line = Line(problem)
        near = matched(problem, line)
        runs: dict[tuple[int, int], IntArray] = {}
        columns: list[IntArray] = []
        for topic, kind in enumerate(line.kind_of):
            count = int(problem.layout.counts[topic])
            if topic in near:
                columns.append(_filled(near[topic], line.places(kind)))
                continue
            run = runs.get((kind, count))
            if run is None:
                run = runs[kind, count] = _run(count, line.places(kind))
            columns.append(run)
        return Solution(owners=line.order[np.concatenate(columns)])


def _run(count: int, places: IntArray) -> IntArray:
    """The place that each of a topic's partitions falls to."""
    each, extra = divmod(count, len(places))
    sizes = np.full(len(places), each)
    sizes[:extra] += 1
    return places.repeat(sizes)


def _filled(taken: IntArray, places: IntArray) -> IntArray:
    """The same, after some partitions were ``taken`` by rack: subscribers in order are filled up
    to their quotas with what is left, and the extra ones go to the first who have none.
    """
    left = taken == UNASSIGNED
    each, extra = divmod(len(taken), len(places))
    has = np.bincount(taken[~left], minlength=len(places))
    sizes = np.maximum(each - has, 0)
    without = np.flatnonzero(has <= each)
    sizes[without[: extra - (len(has) - len(without))]] += 1
    subscriber = taken.copy()
    subscriber[left] = np.repeat(np.arange(len(places), dtype=np.int32), sizes)
    return places[subscriber]
