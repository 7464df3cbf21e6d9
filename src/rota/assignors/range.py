"""Range: each topic's partitions in consecutive runs, members in order."""

from __future__ import annotations

from typing import ClassVar

from rota.assignors.interface import ColumnarAssignor, Solution
from rota.assignors.problem import Problem


class Range(ColumnarAssignor):
    """Per topic n // m partitions each, the first n % m members one more."""

    name: ClassVar[str] = "range"

    def solve(self, problem: Problem) -> Solution:
        """Runs of each topic."""
        raise NotImplementedError
