"""Kafka's own sticky algorithm, so that a replay can say what Java consumers did or would do.

Kafka 4.3 has two paths: one for groups in which all members name the same topics
(:mod:`.constrained`), one for all others (:mod:`.general`). Both start from what members say they
own (:mod:`.held`), heed racks (:mod:`.nearness`), and depend in places on the order in which
Java's hash tables are walked (:mod:`.hashing`).
"""

from __future__ import annotations

from collections.abc import Callable

from rota.assignors.interface import Solution
from rota.assignors.kafka import constrained, general
from rota.assignors.problem import Problem


def solve(problem: Problem, expired: Callable[[], bool]) -> Solution:
    """What Kafka 4.3 gives; where Kafka's result would break a rule, a valid one in its manner."""
    if problem.equal:
        return Solution(owners=constrained.place(problem))
    return general.place(problem, expired)
