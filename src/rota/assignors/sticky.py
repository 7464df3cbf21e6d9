"""Sticky: as even as the subscriptions allow, and as little moved as possible; eager."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from rota.assignors import exact, kafka
from rota.assignors.interface import ColumnarAssignor, Solution
from rota.assignors.problem import Problem, stated
from rota.errors import UnknownSolver
from rota.formats import userdata
from rota.model.membership import NO_GENERATION, Assignment, Ownership, Subscription
from rota.model.topic import Cluster, Partitions

Expired = Callable[[], bool]
"""Asked now and then during a long solve: is the time budget used up?"""


def unlimited() -> Expired:
    """A budget that never ends."""
    return lambda: False


Solver = Callable[[Problem, Expired], Solution]

SOLVERS: Mapping[str, Solver] = {"exact": exact.solve, "kafka": kafka.solve}


def check_solver(solver: str) -> None:
    """Refuses a solver that there is not."""
    if not isinstance(solver, str) or solver not in SOLVERS:
        raise UnknownSolver(f"unknown solver {solver!r}: known are {', '.join(sorted(SOLVERS))}")


class StickyFamily(ColumnarAssignor):
    """What Sticky and CooperativeSticky share: the placement, by either solver.

    ``budget`` is called at the start of each assignment and gives the question that the exact
    solver asks while it works: the engine itself keeps no clock.
    """

    def __init__(self, *, solver: str = "exact", budget: Callable[[], Expired] = unlimited) -> None:
        check_solver(solver)
        self.solver = solver
        self.budget = budget

    def place(self, problem: Problem) -> Solution:
        """The placement that the solver finds."""
        return SOLVERS[self.solver](problem, self.budget())


class Sticky(StickyFamily):
    """Ownership travels in user data, because an eager member owns nothing when it joins."""

    name: ClassVar[str] = "sticky"

    def __init__(self, *, solver: str = "exact", budget: Callable[[], Expired] = unlimited) -> None:
        super().__init__(solver=solver, budget=budget)
        self._owned: Partitions | None = None
        self._generation = NO_GENERATION

    def ownership(self, subscription: Subscription) -> Ownership:
        """From user data where there is any, else from the subscription's fields."""
        if not subscription.user_data:
            return stated(subscription)
        return userdata.decode_sticky(subscription.user_data)

    def pose(self, cluster: Cluster, group: Mapping[str, Subscription]) -> Problem:
        """Reads the user data of all members together: in a large group it is most of the work."""
        data = [member.user_data for member in group.values() if member.user_data]
        read = dict(zip(data, userdata.decode_sticky_all(data), strict=True))

        def ownership(subscription: Subscription) -> Ownership:
            found = read.get(subscription.user_data) if subscription.user_data else None
            return self.ownership(subscription) if found is None else found

        return Problem.of(cluster, group, ownership)

    def solve(self, problem: Problem) -> Solution:
        """The placement, as it is."""
        return self.place(problem)

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """What this member owned last, with its generation; nothing before the first assignment."""
        if self._owned is None:
            return None
        return userdata.encode_sticky(self._owned, self._generation)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Remembers what was given, for the next subscription."""
        self._owned = assignment.partitions
        self._generation = generation
