"""What-if: a group's history under every policy that its operator could have chosen.

Each policy is carried forward from its own previous result through the same history of members,
subscriptions and partitions. The policy that was really used is replayed too, from what members
then said they owned; it must come out as it did, or else the strategy is not one that Rota knows,
and its rows are history itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rota.assignors.move import moved
from rota.model.membership import UNASSIGNED
from rota.model.topic import IntArray
from rota.replay import policy, turn
from rota.replay.turn import Place, Turn
from rota.replay.fact import Cause, Generation, Step, WhatIf
from rota.replay.placing import Placing, placing
from rota.replay.policy import Membership, Policy, Protocol
from rota.replay.reproduction import Reproduction, reproduce
from rota.replay.restart import events, restarts
from rota.replay.scene import Board, Placed, Scene


def whatif(
    generations: Sequence[Generation],
    steps: Sequence[Step],
    causes: Mapping[tuple[int, int], Cause] | None = None,
    topic_ids: Mapping[str, bytes] | None = None,
) -> list[WhatIf]:
    """All rows of a group: the policy that was used, marked ``actual``, then all others.

    :param generations: everything that is known of the group, in the order of the journal
    :param steps: its rebalances
    :param causes: why they were, by life and generation, as far as known: a member that fell
        silent had been gone for its session timeout
    :param topic_ids: the order of ids decides which partitions KIP-848's uniform moves
    """
    if not steps:
        return []
    reproduction = reproduce(steps, topic_ids or {})
    rows = list(_actual(steps, reproduction))
    if not policy.is_of_consumers(generations):
        return rows
    history = turn.places(events(generations, steps))
    returned = restarts([place.event for place in history], causes or {})
    sessions = policy.session_timeouts(steps, returned)
    board = Board(turn.most_partitions(history))
    courses = Courses(history, board, {})
    for session in sessions:
        courses.static[session] = turn.static(history, board, returned, session, causes or {})
    for choice in policy.choices(reproduction.used, sessions):
        place = placing(choice, topic_ids or {})
        rows += _carried(steps[0].after.group, choice, courses.of(choice), place, board)
    return rows


def _actual(steps: Sequence[Step], reproduction: Reproduction) -> Iterator[WhatIf]:
    label = policy.used_label(reproduction.used)
    for step, cost in zip(steps, reproduction.costs, strict=True):
        after = step.after
        yield WhatIf(
            group=after.group,
            life=after.life,
            to_generation=after.generation,
            at=after.at,
            policy=label,
            actual=True,
            happens=True,
            moved=cost.moved,
            moved_min=cost.moved_min,
            stopped=cost.stopped,
            idle_members=cost.idle_members,
            spread=cost.most - cost.least,
        )


@dataclass
class Courses:
    """The history as it goes under each kind of membership."""

    history: Sequence[Place]
    board: Board
    static: dict[int, list[Turn]]
    _dynamic: list[Turn] = field(default_factory=list)

    def of(self, choice: Policy) -> list[Turn]:
        """The rebalances that there are under a policy."""
        if choice.membership is Membership.STATIC and choice.session_timeout is not None:
            return self.static[choice.session_timeout]
        if not self._dynamic:
            self._dynamic = turn.dynamic(self.history, self.board)
        return self._dynamic


def _carried(
    group: str, choice: Policy, turns: Sequence[Turn], place: Placing, board: Board
) -> Iterator[WhatIf]:
    """One row for each turn."""
    label = choice.label
    rebalance = _REBALANCE[choice.protocol]
    nothing = np.full(board.layout.size, UNASSIGNED, dtype=np.int32)
    owners = nothing
    last = Placed(nothing, nothing, 0, 0, 0)
    never = (0, 0, 0)
    for turn in turns:
        scene = turn.scene
        if turn.afresh:
            owners = nothing
        happens = scene is not None and (turn.needed or choice.protocol is not Protocol.CONSUMER)
        counted = never
        if scene is not None and happens:
            last, counted = rebalance(scene, owners, place)
            owners = last.owners
        yield WhatIf(
            group=group,
            life=turn.life,
            to_generation=turn.generation,
            at=turn.at,
            policy=label,
            actual=False,
            happens=happens,
            moved=counted[0],
            moved_min=counted[1],
            stopped=counted[2],
            idle_members=last.idle,
            spread=last.most - last.least,
        )


Counted = tuple[int, int, int]
"""Moved, the fewest, stopped."""
Rebalance = Callable[[Scene, IntArray, Placing], tuple[Placed, Counted]]


def _fewest(scene: Scene, previous: IntArray) -> int:
    return scene.fewest.moves(previous, lambda: False)[0]


def _eager(scene: Scene, owners: IntArray, place: Placing) -> tuple[Placed, Counted]:
    """Everything that a living member has is given up."""
    previous = scene.previous(owners)
    placed = place(scene, previous)
    return placed, (
        moved(previous, placed.positions),
        _fewest(scene, previous),
        scene.living(owners),
    )


def _consumer(scene: Scene, owners: IntArray, place: Placing) -> tuple[Placed, Counted]:
    """The broker makes a new target, and members give up only what is not in theirs."""
    previous = scene.previous(owners)
    placed = place(scene, previous)
    moves = moved(previous, placed.positions)
    unwanted = scene.living(owners) - int(np.count_nonzero(previous != UNASSIGNED))
    return placed, (moves, _fewest(scene, previous), moves + unwanted)


ROUNDS = 8
"""A cooperative rebalance is done in two; one of an algorithm that is not stable is cut off."""


def _cooperative(scene: Scene, owners: IntArray, place: Placing) -> tuple[Placed, Counted]:
    """What changes owner is first only taken away; the next round gives it out."""
    previous = scene.previous(owners)
    stopped = scene.living(owners) - int(np.count_nonzero(previous != UNASSIGNED))
    held = previous
    for _ in range(ROUNDS):
        placed = place(scene, held)
        withheld = (held != UNASSIGNED) & (held != placed.positions)
        taken = int(np.count_nonzero(withheld))
        stopped += taken
        if not taken:
            break
        held = np.where(withheld, np.int32(UNASSIGNED), placed.positions)
    return placed, (moved(previous, placed.positions), _fewest(scene, previous), stopped)


_REBALANCE: Mapping[Protocol, Rebalance] = {
    Protocol.EAGER: _eager,
    Protocol.COOPERATIVE: _cooperative,
    Protocol.CONSUMER: _consumer,
}
