"""The line in which Range and RoundRobin serve members, and each topic's part of it."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from rota.assignors.order import static_first
from rota.assignors.problem import Problem
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
            self._classes = [np.zeros(1, dtype=np.int32)]
        else:
            kinds: dict[bytes, int] = {}
            self.kind_of = [
                kinds.setdefault(classes.tobytes(), len(kinds)) for classes in _classes(problem)
            ]
            self._classes = [np.frombuffer(kind, dtype=np.int32) for kind in kinds]

    @cached_property
    def _class_at(self) -> IntArray:
        return self._problem.class_of[self.order]

    def places(self, kind: int) -> IntArray:
        """The places in the line of those who subscribe to topics of this kind, ascending."""
        found = self._places.get(kind)
        if found is None:
            wants = np.zeros(len(self._problem.classes), dtype=np.bool_)
            wants[self._classes[kind]] = True
            found = np.flatnonzero(wants[self._class_at]).astype(np.int32)
            self._places[kind] = found
        return found


def _classes(problem: Problem) -> list[IntArray]:
    """For each topic the classes of members that subscribe to it, ascending."""
    sizes = [len(topics) for topics in problem.classes]
    position = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    topic = np.concatenate(problem.classes)
    order = np.argsort(topic, kind="stable")
    bounds = np.searchsorted(topic[order], np.arange(1, len(problem.layout.topics)))
    return np.split(position[order], bounds)
