"""What the adapters share: the leader's duty."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from rota.assignors.interface import Assignor
from rota.assignors.rules import assign_checked
from rota.model.membership import GroupAssignment, GroupSubscription, Subscription
from rota.model.topic import Cluster

log = logging.getLogger("rota.adapters")


def lead(
    assignor: Assignor, cluster: Cluster, group: Mapping[str, Subscription]
) -> GroupAssignment:
    """What everyone is given, with the rules checked; what a person should know is logged."""
    checked = assign_checked(assignor, cluster, GroupSubscription(group))
    for note in checked.notes:
        log.warning("strategy %s: %s", assignor.name, note)
    return checked.result
