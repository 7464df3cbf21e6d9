"""CooperativeStickyAssignor: the sticky assignment, reached in two rebalances without
stopping the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

import numpy as np

from rota.engine.assignors.interface import Solution
from rota.engine.assignors.problem import Problem, find_owned_by_another, stated_ownership
from rota.engine.assignors.sticky import AbstractStickyAssignor, Expired, unlimited_budget
from rota.engine.formats import consumer_protocol
from rota.engine.model.member import (
    NO_GENERATION,
    UNASSIGNED,
    Assignment,
    OwnedPartitions,
    RebalanceProtocol,
    Subscription,
)


class CooperativeStickyAssignor(AbstractStickyAssignor):
    """Revokes moving partitions in one rebalance and assigns them in the next."""

    name: ClassVar[str] = "cooperative-sticky"
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def __init__(
        self, *, solver: str = "exact", budget: Callable[[], Expired] = unlimited_budget
    ) -> None:
        super().__init__(solver=solver, budget=budget)
        self._generation = NO_GENERATION

    def read_ownership(self, subscription: Subscription) -> OwnedPartitions:
        """Reads ownership from the subscription's fields.

        Subscriptions older than version 2 have no field for the generation; it is then read from
        user data.
        """
        # kafka-python sends empty user data for none
        if subscription.generation is not None or not subscription.user_data:
            return stated_ownership(subscription)
        generation, note = consumer_protocol.decode_cooperative_user_data(subscription.user_data)
        return OwnedPartitions(partitions=subscription.owned, generation=generation, note=note)

    def solve(self, problem: Problem) -> Solution:
        """Returns the sticky assignment without the partitions that another live member still
        owns.
        """
        placed = self.run_solver(problem)
        withheld = find_owned_by_another(problem, placed.owners)
        owners = np.where(withheld, np.int32(UNASSIGNED), placed.owners)
        return Solution(owners=owners, target=placed.owners, notes=placed.notes)

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """The generation, for leaders that read subscriptions older than version 2."""
        return consumer_protocol.encode_cooperative_user_data(self._generation)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Remembers the generation, for the next subscription."""
        self._generation = generation
