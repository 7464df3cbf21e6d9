"""CooperativeSticky: Sticky's placement, reached in two rounds without stopping the group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

import numpy as np

from rota.assignors.claims import held_by_another
from rota.assignors.interface import Solution
from rota.assignors.problem import Problem, stated
from rota.assignors.sticky import Expired, StickyFamily, unlimited
from rota.formats import userdata
from rota.model.membership import (
    NO_GENERATION,
    UNASSIGNED,
    Assignment,
    Ownership,
    RebalanceProtocol,
    Subscription,
)


class CooperativeSticky(StickyFamily):
    """What changes owner is first only taken away, and given in the next rebalance."""

    name: ClassVar[str] = "cooperative-sticky"
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (
        RebalanceProtocol.COOPERATIVE,
        RebalanceProtocol.EAGER,
    )

    def __init__(self, *, solver: str = "exact", budget: Callable[[], Expired] = unlimited) -> None:
        super().__init__(solver=solver, budget=budget)
        self._generation = NO_GENERATION

    def ownership(self, subscription: Subscription) -> Ownership:
        """From the subscription's fields; the generation from user data where the subscription is
        older than version 2, which has no field for it.
        """
        # kafka-python sends empty user data for none
        if subscription.generation is not None or not subscription.user_data:
            return stated(subscription)
        generation, note = userdata.decode_cooperative(subscription.user_data)
        return Ownership(partitions=subscription.owned, generation=generation, note=note)

    def solve(self, problem: Problem) -> Solution:
        """Sticky's placement without what another live member still holds."""
        placed = self.place(problem)
        withheld = held_by_another(problem, placed.owners)
        owners = np.where(withheld, np.int32(UNASSIGNED), placed.owners)
        return Solution(owners=owners, target=placed.owners, notes=placed.notes)

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """The generation, for leaders that read subscriptions older than version 2."""
        return userdata.encode_cooperative(self._generation)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Remembers the generation, for the next subscription."""
        self._generation = generation
