"""The exact solver of the sticky family."""

from __future__ import annotations

from collections.abc import Callable

from rota.assignors.interface import Solution
from rota.assignors.problem import Problem


def solve(problem: Problem, expired: Callable[[], bool]) -> Solution:
    """The most even loads that the subscriptions allow, and among those the fewest moves."""
    raise NotImplementedError
