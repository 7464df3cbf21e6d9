"""The states of a group, and every way from one to another.

A group of the classic protocol lives in rounds. Somebody joins an *empty* group, or something
changes in a *stable* one: a member joins, leaves, falls silent, asks for other topics. The group is
then *preparing a rebalance*: all members are called to join again, and the coordinator waits for
them, at most for the longest rebalance timeout among them. When all are there, or time is up, a new
generation exists. It is *completing* while its leader works out who gets what, and *stable* once
that assignment is in the journal and handed out. When the last member goes, the group is *empty*:
its offsets stay until they expire. A group that was deleted, or moved to another coordinator, is
*dead*.

The join phase is soft: it lives in memory alone, and a restart forgets it. What a restart keeps is
what the journal holds: the last generation that became stable or empty, and the offsets.

``MOVES`` is the only list of legal moves. :meth:`rota.group.classic.Group.move` is the only place
that changes a state, the documentation's diagram is drawn from this table, and the simulation
checks that no group goes any other way.
"""

from __future__ import annotations

import enum


class State(enum.Enum):
    """A group's state, with Kafka's name for it."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


MOVES: dict[tuple[State, State], str] = {
    (State.EMPTY, State.PREPARING): "a first member joins",
    (State.STABLE, State.PREPARING): "a member joins, leaves, is silent or has other topics",
    (State.COMPLETING, State.PREPARING): "a member joins, leaves, is silent; or storing fails",
    (State.PREPARING, State.COMPLETING): "all have joined, or time is up",
    (State.PREPARING, State.EMPTY): "nobody is left",
    (State.COMPLETING, State.STABLE): "the leader's assignment is in the journal",
    (State.EMPTY, State.DEAD): "deleted, expired or moved away",
    (State.PREPARING, State.DEAD): "moved away",
    (State.COMPLETING, State.DEAD): "moved away",
    (State.STABLE, State.DEAD): "moved away",
}
