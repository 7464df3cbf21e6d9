"""Members that come together."""

from __future__ import annotations

from tests.support.coordinator.actor import DELAY, Actor
from tests.support.coordinator.stage import Stage

#: A session or rebalance timeout that a case waits for; the shortest that the broker allows.
SHORT = 1_000
WITHIN = 500
BEYOND = 1_500


def members(stage: Stage, *names: str, **settings: object) -> list[Actor]:
    """New actors, alike."""
    return [Actor(stage, name, **settings) for name in names]  # type: ignore[arg-type]


def alone(stage: Stage, actor: Actor) -> None:
    """The actor makes the group's first generation alone."""
    actor.enter()
    stage.wait(DELAY)
    actor.sync(actor)


def formed(stage: Stage, leader: Actor, *others: Actor) -> None:
    """All are in one generation and have synced; each newcomer makes all others join again."""
    alone(stage, leader)
    present = [leader]
    for other in others:
        other.enter()
        for each in present:
            each.join()
        present.append(other)
    leader.sync(*present)
    for other in others:
        other.sync()
