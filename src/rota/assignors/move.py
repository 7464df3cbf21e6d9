"""What moves: counted, and the fewest that had to.

Everywhere ``previous`` has the owner of each partition before, -1 where there was none, where it
is gone, or where it no longer subscribes: what nobody wanted to keep did not move.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rota.assignors import exact
from rota.assignors.problem import Problem
from rota.model.membership import UNASSIGNED
from rota.model.topic import IntArray


def moved(previous: IntArray, owners: IntArray) -> int:
    """Partitions that got another owner, or none, though theirs still wants them."""
    return int(np.count_nonzero((previous != owners) & (previous != UNASSIGNED)))


class Fewest:
    """The fewest moves with which a group reaches its best balance, from any previous owners.

    What does not depend on the owners is found once. Racks do not count: balance comes first.
    """

    def __init__(self, problem: Problem) -> None:
        self._members = len(problem.members)
        self._floor, self._extra = divmod(problem.layout.size, max(self._members, 1))
        self._balance = None if len(problem.classes) <= 1 else exact.Balance.of(problem)

    def moves(self, previous: IntArray, expired: Callable[[], bool]) -> tuple[int, bool]:
        """How many, and whether time sufficed to be sure that they are the fewest."""
        held = np.bincount(previous[previous != UNASSIGNED], minlength=self._members)
        if self._balance is None:
            return self._moves_when_equal(held.tolist()), True
        kept, in_time = self._balance.most_kept(previous, expired)
        return int(held.sum()) - kept, in_time

    def _moves_when_equal(self, held: list[int]) -> int:
        """Where all subscribe alike, each member keeps what it holds up to the floor of the mean;
        of those that hold more, as many as there are ceilings keep one more.
        """
        beyond = [count - self._floor for count in held if count > self._floor]
        return sum(beyond) - min(self._extra, len(beyond))
