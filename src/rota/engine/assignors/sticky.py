"""StickyAssignor and CooperativeStickyAssignor: loads as even as the subscriptions allow, and as
few moves as possible. The cooperative one takes two rebalances, without stopping the group.

Two solvers compute the assignment: "exact" (`exact.solver`, provably best) and "kafka"
(`kafka.assignment_builders`, what Kafka 4.3 gives).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rota.engine.assignors.exact import solver
from rota.engine.assignors.interface import ColumnarAssignor, Solution
from rota.engine.assignors.kafka import assignment_builders
from rota.engine.assignors.problem import Problem, find_owned_by_another, stated_ownership
from rota.engine.formats import consumer_protocol
from rota.engine.model.member import (
    NO_GENERATION,
    UNASSIGNED,
    Assignment,
    OwnedPartitions,
    RebalanceProtocol,
    Subscription,
)
from rota.engine.model.topic import Cluster, Partitions
from rota.errors import InputError, UnknownSolver

Expired = Callable[[], bool]  # whether the time budget is used up; a solve calls it often

DEFAULT_BUDGET_MS = 5_000  # ``assign.budget.ms`` of the exact solver's search for fewer moves


def unlimited_budget() -> Expired:
    return lambda: False


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """A limit on the time of one assignment; a call starts it and returns an `Expired`."""

    milliseconds: int
    clock: Callable[[], float]  # a monotonic clock in seconds, such as ``time.monotonic``

    def __post_init__(self) -> None:
        if not isinstance(self.milliseconds, int) or self.milliseconds < 0:
            raise InputError(f"budget_ms: {self.milliseconds!r} is not a number of milliseconds")

    def __call__(self) -> Expired:
        deadline = self.clock() + self.milliseconds / 1000
        return lambda: self.clock() > deadline


Solver = Callable[[Problem, Expired], Solution]

SOLVERS: Mapping[str, Solver] = {
    "exact": solver.solve_exactly,
    "kafka": assignment_builders.solve_as_kafka,
}


def check_solver(solver: str) -> None:
    if not isinstance(solver, str) or solver not in SOLVERS:
        raise UnknownSolver(f"unknown solver {solver!r}: known are {', '.join(sorted(SOLVERS))}")


class AbstractStickyAssignor(ColumnarAssignor):
    """Base of both sticky assignors: runs the chosen solver; each run starts a ``budget``."""

    def __init__(
        self, *, solver: str = "exact", budget: Callable[[], Expired] = unlimited_budget
    ) -> None:
        check_solver(solver)
        self.solver = solver
        self.start_budget = budget
        self._owned: Partitions | None = None
        self._generation = NO_GENERATION

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        self._owned = assignment.partitions
        self._generation = generation

    def run_solver(self, problem: Problem) -> Solution:
        return SOLVERS[self.solver](problem, self.start_budget())


class StickyAssignor(AbstractStickyAssignor):
    """Sends owned partitions in user data, because an eager member owns nothing when it joins."""

    name: ClassVar[str] = "sticky"

    def read_ownership(self, subscription: Subscription) -> OwnedPartitions:
        """Reads ownership from user data if present, else from the subscription's fields."""
        if not subscription.user_data:
            return stated_ownership(subscription)
        return consumer_protocol.decode_sticky_user_data(subscription.user_data)

    def build_problem(self, cluster: Cluster, group: Mapping[str, Subscription]) -> Problem:
        """Decodes all user data together: in a large group that is most of the work."""
        data = [member.user_data for member in group.values() if member.user_data]
        read = dict(zip(data, consumer_protocol.decode_all_sticky_user_data(data), strict=True))

        def ownership(subscription: Subscription) -> OwnedPartitions:
            found = read.get(subscription.user_data) if subscription.user_data else None
            return self.read_ownership(subscription) if found is None else found

        return Problem.from_group(cluster, group, ownership)

    def solve(self, problem: Problem) -> Solution:
        return self.run_solver(problem)

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Returns the last assignment with its generation; None before the first assignment."""
        if self._owned is None:
            return None
        return consumer_protocol.encode_sticky_user_data(self._owned, self._generation)


class CooperativeStickyAssignor(AbstractStickyAssignor):
    """Revokes moving partitions in one rebalance and assigns them in the next."""

    name: ClassVar[str] = "cooperative-sticky"
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def read_ownership(self, subscription: Subscription) -> OwnedPartitions:
        """Reads ownership from fields; before version 2, the generation is in user data."""
        # kafka-python sends empty user data for none
        if subscription.generation is not None or not subscription.user_data:
            return stated_ownership(subscription)
        generation, note = consumer_protocol.decode_cooperative_user_data(subscription.user_data)
        return OwnedPartitions(partitions=subscription.owned, generation=generation, note=note)

    def solve(self, problem: Problem) -> Solution:
        """Returns the sticky assignment without partitions that another live member owns."""
        placed = self.run_solver(problem)
        withheld = find_owned_by_another(problem, placed.owners)
        owners = np.where(withheld, np.int32(UNASSIGNED), placed.owners)
        return Solution(owners=owners, target=placed.owners, notes=placed.notes)

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """The generation, for leaders that read subscriptions older than version 2."""
        return consumer_protocol.encode_cooperative_user_data(self._generation)
