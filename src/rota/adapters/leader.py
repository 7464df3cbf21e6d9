"""Computes the assignment on the group leader, for both adapters."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from rota.engine.assignors.interface import Assignor, assign_checked
from rota.engine.model.member import GroupAssignment, GroupSubscription, Subscription
from rota.engine.model.topic import Cluster

LOGGER = logging.getLogger("rota.adapters")


def assign_as_leader(
    assignor: Assignor, cluster: Cluster, group: Mapping[str, Subscription]
) -> GroupAssignment:
    """Computes every member's assignment and checks the rules; logs what a person should know."""
    checked = assign_checked(assignor, cluster, GroupSubscription(group))
    for note in checked.notes:
        LOGGER.warning("strategy %s: %s", assignor.name, note)
    return checked.result
