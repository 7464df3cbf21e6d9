"""Kafka's own sticky algorithm, so that a replay can say what Java consumers did or would do."""

from __future__ import annotations

from collections.abc import Callable

from rota.assignors.interface import Solution
from rota.assignors.problem import Problem


def solve(problem: Problem, expired: Callable[[], bool]) -> Solution:
    """What Kafka 4.3 gives."""
    raise NotImplementedError
