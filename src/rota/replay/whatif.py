"""What-if: a group's history under every policy that its operator could have chosen.

Each policy is carried forward from its own previous result through the same history of members,
subscriptions and partitions. The policy that was really used is replayed too, from what members
then said they owned; it must come out as it did, or else the strategy is not one that Rota knows,
and its rows are history itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rota.assignors.move import moved
from rota.model.membership import UNASSIGNED
from rota.model.topic import IntArray
from rota.replay import policy
from rota.replay import turn as turns_of
from rota.replay.fact import Generation, Step, WhatIf
from rota.replay.placing import Placing, placing
from rota.replay.policy import Policy, Protocol
from rota.replay.reproduction import Reproduction, reproduce
from rota.replay.restart import Causes, events, restarts
from rota.replay.scene import Board, Placed, Poses, Scene, largest
from rota.replay.turn import Turn


def whatif(
    generations: Sequence[Generation],
    steps: Sequence[Step],
    causes: Causes | None = None,
    topic_ids: Mapping[str, bytes] | None = None,
) -> list[WhatIf]:
    """All rows of a group: the policy that was used, marked ``actual``, then all others; none where
    its members do not share partitions, or what they share cannot be read.

    :param generations: everything that is known of the group, in the order of the journal
    :param steps: its rebalances
    :param causes: why they were, by life and generation, as far as known: a member that fell
        silent had been gone for its session timeout
    :param topic_ids: the order of ids decides which partitions KIP-848's uniform moves
    """
    if not steps or not policy.is_of_consumers(generations):
        return []
    poses = Poses()
    reproduction = reproduce(steps, topic_ids or {}, poses)
    again = Again(generations, steps, causes, topic_ids, poses)
    others = again.under(policy.choices(reproduction.used, again.sessions))
    return [*_actual(steps, reproduction), *others]


class Again:
    """A group's history, ready to be played under any policy."""

    def __init__(
        self,
        generations: Sequence[Generation],
        steps: Sequence[Step],
        causes: Causes | None = None,
        topic_ids: Mapping[str, bytes] | None = None,
        poses: Poses | None = None,
    ) -> None:
        self._group = steps[0].after.group
        self._causes = causes or {}
        self._topic_ids = topic_ids or {}
        self._poses = poses
        self._history = turns_of.places(events(generations, steps))
        self._returned = restarts([place.event for place in self._history], self._causes)
        self.sessions = policy.session_timeouts(steps, self._returned)
        """Session timeouts worth asking for static members."""

    def under(self, choices: Iterable[Policy]) -> list[WhatIf]:
        """The rows of these policies."""
        listed = tuple(choices)
        board = self._board()
        # all before the first is played: the board must know everyone
        turns = {
            session: self._turns(board, session)
            for session in dict.fromkeys(choice.session_timeout for choice in listed)
        }
        return [
            _row(self._group, choice.label, moment)
            for choice in listed
            for moment in self._played(choice, turns[choice.session_timeout], board)
            if not moment.turn.is_start
        ]

    def owners(self, choice: Policy) -> tuple[Board, list[tuple[int, IntArray]]]:
        """Who has what from when on under a policy, as numbers of the board."""
        board = self._board()
        turns = self._turns(board, choice.session_timeout)
        moments = self._played(choice, turns, board)
        return board, [
            (moment.turn.happens_at, moment.placed.owners) for moment in moments if moment.happens
        ]

    def _board(self) -> Board:
        seen = (
            counts
            for place in self._history
            for counts in (place.counts, *(known for _, known in place.earlier))
        )
        return Board(largest(seen), self._poses)

    def _played(self, choice: Policy, turns: Iterable[Turn], board: Board) -> Iterator[_Moment]:
        return _played(choice, turns, placing(choice, self._topic_ids), board)

    def _turns(self, board: Board, session: int | None) -> list[Turn]:
        """With static members of this session timeout; None: with dynamic ones."""
        if session is None:
            return turns_of.dynamic(self._history, board)
        return turns_of.static(self._history, board, self._returned, session, self._causes)


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
            happens_at=after.at,
            moved=cost.moved,
            moved_min=cost.moved_min,
            stopped=cost.stopped,
            idle_members=cost.idle_members,
            spread=cost.most - cost.least,
        )


class _Moment(NamedTuple):
    """A turn as it went under a policy."""

    turn: Turn
    happens: bool
    placed: Placed
    """Who has what after it, whether it happened or not."""
    counted: Counted


def _played(
    choice: Policy, turns: Iterable[Turn], place: Placing, board: Board
) -> Iterator[_Moment]:
    """A policy, carried forward from turn to turn."""
    rebalance = _REBALANCE[choice.protocol]
    nothing = np.full(board.layout.size, UNASSIGNED, dtype=np.int32)
    last = Placed(nothing, nothing, 0, 0, 0)
    owners = nothing
    for turn in turns:
        scene = turn.scene
        if turn.afresh:
            owners = nothing
        happens = scene is not None and (turn.needed or choice.protocol is not Protocol.CONSUMER)
        counted = (0, 0, 0)
        if scene is not None and happens:
            last, counted = rebalance((*turn.on_the_way, scene), owners, place)
            owners = last.owners
        yield _Moment(turn, happens, last, counted)


def _row(group: str, policy: str, moment: _Moment) -> WhatIf:
    turn, placed = moment.turn, moment.placed
    moves, fewest, stopped = moment.counted
    return WhatIf(
        group=group,
        life=turn.life,
        to_generation=turn.generation,
        at=turn.at,
        policy=policy,
        actual=False,
        happens=moment.happens,
        happens_at=turn.happens_at if moment.happens else None,
        moved=moves,
        moved_min=fewest,
        stopped=stopped,
        idle_members=placed.idle,
        spread=placed.most - placed.least,
    )


Counted = tuple[int, int, int]
"""Moved, the fewest, stopped."""
Rebalance = Callable[[Sequence[Scene], IntArray, Placing], tuple[Placed, Counted]]
"""From the scenes of its rounds, of which there is one where nothing came in between."""


def _eager(scenes: Sequence[Scene], owners: IntArray, place: Placing) -> tuple[Placed, Counted]:
    """Everything that a living member has is given up."""
    scene = scenes[-1]
    previous = scene.previous(owners)
    placed = place(scene, previous)
    return placed, (
        moved(previous, placed.positions),
        scene.fewest(previous),
        scene.living(owners),
    )


def _consumer(scenes: Sequence[Scene], owners: IntArray, place: Placing) -> tuple[Placed, Counted]:
    """The broker makes a new target, and members give up only what is not in theirs."""
    scene = scenes[-1]
    previous = scene.previous(owners)
    placed = place(scene, previous)
    moves = moved(previous, placed.positions)
    unwanted = scene.living(owners) - int(np.count_nonzero(previous != UNASSIGNED))
    return placed, (moves, scene.fewest(previous), moves + unwanted)


ROUNDS = 8
"""A cooperative rebalance is done in two; one of an algorithm that is not stable is cut off."""


def _cooperative(
    scenes: Sequence[Scene], owners: IntArray, place: Placing
) -> tuple[Placed, Counted]:
    """What changes owner is first only taken away; the next round gives it out."""
    held, stopped = owners, 0
    for scene in scenes[:-1]:
        held, _, taken, unwanted = _round(scene, held, place)
        stopped += taken + unwanted
    scene = scenes[-1]
    for _ in range(ROUNDS):
        held, placed, taken, unwanted = _round(scene, held, place)
        stopped += taken + unwanted
        if not taken:
            break
    previous = scene.previous(owners)
    return placed, (moved(previous, placed.positions), scene.fewest(previous), stopped)


def _round(scene: Scene, owners: IntArray, place: Placing) -> tuple[IntArray, Placed, int, int]:
    """Who has what after one round, what all shall have, and how much was given up: taken, for
    which another round is due, and no longer wanted.
    """
    previous = scene.previous(owners)
    placed = place(scene, previous)
    withheld = (previous != UNASSIGNED) & (previous != placed.positions)
    taken = int(np.count_nonzero(withheld))
    unwanted = scene.living(owners) - int(np.count_nonzero(previous != UNASSIGNED))
    held = scene.everyone(np.where(withheld, np.int32(UNASSIGNED), placed.positions))
    return held, placed, taken, unwanted


_REBALANCE: Mapping[Protocol, Rebalance] = {
    Protocol.EAGER: _eager,
    Protocol.COOPERATIVE: _cooperative,
    Protocol.CONSUMER: _consumer,
}
