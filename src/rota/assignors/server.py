"""The broker's own strategies (KIP-848), as Kafka 4.3's coordinator computes them.

A group of the new protocol is not assigned by a member: the coordinator computes a target and
members move towards it. So these are no strategies for ``partition.assignment.strategy``; they
are for asking what would have been. A member's ``owned`` is its target so far; a static member
that comes back under a new id has the target of its old one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from rota.assignors.interface import ColumnarAssignor, Solution
from rota.assignors.problem import Problem
from rota.assignors.range import Range
from rota.assignors.uniform import Uniform
from rota.assignors.uniform.table import TopicIds
from rota.errors import UnknownStrategy

JAVA_PACKAGE = "org.apache.kafka.coordinator.group.assignor."
DEFAULT = "uniform"
"""The first of the broker's ``group.consumer.assignors``, which holds where members name none."""


class ServerRange(ColumnarAssignor):
    """The client's range without racks. Nothing in it is sticky."""

    name: ClassVar[str] = "range"

    def solve(self, problem: Problem) -> Solution:
        """Runs of each topic."""
        return Range().solve(replace(problem, racks=None) if problem.racks else problem)


KNOWN = (Uniform.name, ServerRange.name)


def resolve(name: str, *, topic_ids: TopicIds | None = None) -> ColumnarAssignor:
    """The broker's strategy of this name, or of this Java class.

    ``topic_ids`` are the 16 bytes of each topic's id: the order of ids decides which partitions
    uniform moves.

    :raises UnknownStrategy: the broker has none
    """
    match name.removeprefix(JAVA_PACKAGE):
        case "uniform" | "UniformAssignor":
            return Uniform(topic_ids)
        case "range" | "RangeAssignor":
            return ServerRange()
        case _:
            known = ", ".join(KNOWN)
            raise UnknownStrategy(f"unknown strategy {name!r} of the broker: known are {known}")
