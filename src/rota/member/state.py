"""The states of a member, and every legal move between them.

How a member lives
==================

A member is **unjoined** until the application polls. Inside a poll it makes itself ready (commits,
gives up what the protocol asks for) and sends a join: it is **joining**. The reply names its
generation, and whether it leads: it is **syncing**, and sends its sync. If it leads, the sync has
everybody's assignment, so it waits for the strategy to make it, which may take long. The reply has
its own assignment: it is **stable**. Heartbeats run from the join's reply on, in **syncing** and in
**stable**, whatever the application and the strategy do.

A rebalance is a way round: when a heartbeat says that the group rebalances, or the member itself
sees a reason, the next poll takes it from **stable** to **joining**. A join or sync that fails for
a while (no coordinator, a rebalance that overtook it) is tried again from where it stands: a
member that waits to join again stays **joining**, or **syncing**, for until then nothing else has
become true of it.

When the coordinator no longer knows the member or its generation, or the application has not
polled for too long, the member is **unjoined** again: what it owned is lost, which its listener
hears at the next poll, and the next join starts anew.

**fenced** (another process has taken its static id) and **left** (the application has closed) have
no way back. A fenced member can only be closed.

Requests and timers do not decide anything by themselves: a reply counts only if its request is
still the one that is waited for, so that what comes late, twice or out of order is ignored.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping


class State(enum.Enum):
    """Where a member stands."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    FENCED = "fenced"
    LEFT = "left"


MOVES: Mapping[tuple[State, State], str] = {
    (State.UNJOINED, State.JOINING): "a join is sent",
    (State.UNJOINED, State.LEFT): "the application closes",
    (State.JOINING, State.SYNCING): "the join is answered, the sync is due",
    (State.JOINING, State.UNJOINED): "the member is unknown, polls too late or unsubscribes",
    (State.JOINING, State.FENCED): "the static id has been taken",
    (State.JOINING, State.LEFT): "the application closes",
    (State.SYNCING, State.STABLE): "the sync is answered with an assignment",
    (State.SYNCING, State.JOINING): "another rebalance began, or the sync failed: a join is sent",
    (State.SYNCING, State.UNJOINED): (
        "the member or its generation is unknown, its strategy failed or is late, it polls too "
        "late or unsubscribes"
    ),
    (State.SYNCING, State.FENCED): "the static id has been taken",
    (State.SYNCING, State.LEFT): "the application closes",
    (State.STABLE, State.JOINING): "a rebalance began: a join is sent",
    (State.STABLE, State.UNJOINED): (
        "the member or its generation is unknown, its assignment cannot be read, it polls too late "
        "or unsubscribes"
    ),
    (State.STABLE, State.FENCED): "the static id has been taken",
    (State.STABLE, State.LEFT): "the application closes",
    (State.FENCED, State.LEFT): "the application closes",
}
"""Every legal move, and what makes it."""

IN_GENERATION = frozenset({State.SYNCING, State.STABLE})
"""The states of one who belongs to a generation, and says so by heartbeats."""
OVER = frozenset({State.FENCED, State.LEFT})
"""The states in which nothing more is asked of the group."""
