"""What the adapters share: the leader's duty, and a clock for the exact solver."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from rota.assignors.interface import Assignor
from rota.assignors.rules import assign_checked
from rota.assignors.sticky import Expired
from rota.model.membership import GroupAssignment, Subscription
from rota.model.topic import Cluster

BUDGET_MS = 5_000
"""How long the exact solver may take, in milliseconds, before it returns its best so far."""

log = logging.getLogger("rota.adapters")


def time_budget(milliseconds: int) -> Callable[[], Expired]:
    """A budget that starts anew with each assignment."""

    def start() -> Expired:
        end = time.monotonic() + milliseconds / 1000
        return lambda: time.monotonic() > end

    return start


def lead(
    assignor: Assignor, cluster: Cluster, group: Mapping[str, Subscription]
) -> GroupAssignment:
    """What everyone is given, with the rules checked; what a person should know is logged."""
    checked = assign_checked(assignor, cluster, group)
    for note in checked.result.notes:
        log.warning("strategy %s: %s", assignor.name, note)
    if checked.problem.skipped_topics:
        skipped = ", ".join(checked.problem.skipped_topics)
        log.warning("strategy %s: no metadata, so not assigned: %s", assignor.name, skipped)
    return checked.result
