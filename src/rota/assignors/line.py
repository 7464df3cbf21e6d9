"""The line in which Range and RoundRobin serve members, and each topic's part of it."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from rota.assignors.order import static_first
from rota.assignors.problem import BoolArray, Problem
from rota.model.topic import IntArray


class Line:
    """Members in the order they are served: ``order[place]`` is a member's position.

    Topics with the same subscribers are of one kind, and their subscribers are looked up once:
    large groups have few kinds, often one.
    """

    def __init__(self, problem: Problem) -> None:
        self.order = static_first(problem.static_ids)
        self._problem = problem
        self._places: dict[int, IntArray] = {}
        self.kind_of: list[int]
        """The kind of each topic."""
        if len(problem.classes) <= 1:
            self.kind_of = [0] * len(problem.layout.topics)
            self._columns = [np.ones(1, dtype=np.bool_)]
        else:
            kinds: dict[bytes, int] = {}
            columns = np.ascontiguousarray(problem.subscribes.T)
            self.kind_of = [kinds.setdefault(column.tobytes(), len(kinds)) for column in columns]
            self._columns = [np.frombuffer(kind, dtype=np.bool_) for kind in kinds]

    @cached_property
    def _class_at(self) -> IntArray:
        return self._problem.class_of[self.order]

    def places(self, kind: int) -> IntArray:
        """The places in the line of those who subscribe to topics of this kind, ascending."""
        found = self._places.get(kind)
        if found is None:
            column: BoolArray = self._columns[kind]
            found = np.flatnonzero(column[self._class_at]).astype(np.int32)
            self._places[kind] = found
        return found
