"""RoundRobin: all partitions dealt in one circle over the members."""

from __future__ import annotations

from typing import ClassVar

from rota.assignors.interface import ColumnarAssignor, Solution
from rota.assignors.problem import Problem


class RoundRobin(ColumnarAssignor):
    """The circle does not restart for each topic; members that do not subscribe are skipped."""

    name: ClassVar[str] = "roundrobin"

    def solve(self, problem: Problem) -> Solution:
        """One deal over all topics."""
        raise NotImplementedError
