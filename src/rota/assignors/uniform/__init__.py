"""Uniform: the broker's default strategy for groups of the new protocol (KIP-848).

Kafka 4.3 has two methods: one for groups in which all members name the same topics
(:mod:`.equal`), one for all others (:mod:`.mixed`). Both start from the target that the group had
and heed no racks. What the order of Java's tables decides is decided by the same order here
(:mod:`.table`).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from rota.assignors.interface import ColumnarAssignor, Solution
from rota.assignors.problem import Problem
from rota.assignors.uniform import equal, mixed
from rota.assignors.uniform.table import TopicIds

NO_IDS = "topic ids are not known: topics are taken by name, where Kafka takes them by id"


class Uniform(ColumnarAssignor):
    """A member's ``owned`` is its target so far, not what it has by now.

    ``topic_ids`` are the 16 bytes of each topic's id; without them the loads are Kafka's, but
    where there are several topics it may be other partitions that move.
    """

    name: ClassVar[str] = "uniform"

    def __init__(self, topic_ids: TopicIds | None = None) -> None:
        self._ids = topic_ids or {}

    def solve(self, problem: Problem) -> Solution:
        """What Kafka 4.3's coordinator gives."""
        if not problem.layout.size:
            return Solution(owners=np.empty(0, dtype=np.int32))
        known = all(topic in self._ids for topic in problem.layout.topics)
        ids = self._ids if known else {}
        place = equal.place if problem.equal else mixed.place
        matters = not known and len(problem.layout.topics) > 1
        return Solution(owners=place(problem, ids), notes=(NO_IDS,) if matters else ())
