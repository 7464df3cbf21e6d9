"""Kafka's path for groups in which members name different topics.

What is owned stays. What is free goes to the least loaded member that may take it, the least
contested topics first. Then partitions move, one at a time, from a member to one at least two
lighter, until none can; all of that is undone unless it made the loads more even.

Kafka asks before each step whether the assignment is balanced. By its definition it is when no
partition can move to a subscriber at least two lighter than its owner: a step that would then
find nothing to do. So the question is not asked here, but for the steps described in
:class:`Astray`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rota.assignors.interface import Solution
from rota.assignors.kafka import nearness
from rota.assignors.kafka.hashing import walk
from rota.assignors.kafka.held import holders
from rota.assignors.kafka.lightest import Lightest
from rota.assignors.kafka.movements import Movements
from rota.assignors.problem import BoolArray, Problem
from rota.model.membership import UNASSIGNED
from rota.model.topic import IntArray

ENDLESS = "Kafka's own algorithm would never end here; finished without its undoing of moves"
LATE = "time budget used up: loads may be less even than Kafka's own"


class Astray(Exception):
    """Kafka would raise, or leave a partition with a member that does not subscribe.

    Both come from its wish to give a partition back to an earlier owner (one with a claim of an
    older generation), which it does not check for a subscription.
    """


def place(problem: Problem, expired: Callable[[], bool]) -> Solution:
    """An owner for each partition.

    Kafka's steps are followed to the end even through a stop at a member that does not
    subscribe, since it may move on from there. Where it does not, they are done again with only
    those earlier owners that subscribe.
    """
    order = walk(problem.members)
    previous = _earlier_owners(problem, order)
    stray = (previous != UNASSIGNED) & ~_may_take(problem, previous)
    notes: dict[str, None] = {}
    try:
        owners = Balance(problem, order, previous, stray, expired, notes).solve()
    except Astray:
        previous[stray] = UNASSIGNED
        notes = {}
        owners = Balance(problem, order, previous, np.zeros_like(stray), expired, notes).solve()
        notes.pop(ENDLESS, None)  # Kafka did end, where it should not have
    return Solution(owners=owners, notes=tuple(notes))


def _may_take(problem: Problem, members: IntArray) -> BoolArray:
    """For each partition: does this member subscribe to its topic?"""
    return problem.may_own(members, np.arange(problem.layout.size, dtype=np.int32))


def _earlier_owners(problem: Problem, order: IntArray) -> IntArray:
    """For each partition its latest claimant among those behind the group's latest generation."""
    claims = problem.claims
    generation = claims.generation[claims.member]
    behind = generation < claims.generation.max(initial=-1)
    partition, member = claims.partition[behind], claims.member[behind]
    turn = np.empty(len(order), dtype=np.int32)
    turn[order] = np.arange(len(order), dtype=np.int32)
    # the last one written stays: the highest generation, and there the first in table order
    rows = np.lexsort((-turn[member], generation[behind]))
    earlier = np.full(problem.layout.size, UNASSIGNED, dtype=np.int32)
    earlier[partition[rows]] = member[rows]
    return earlier


class Balance:
    """One run of the general method."""

    def __init__(  # noqa: PLR0913, PLR0917 (what the run starts from)
        self,
        problem: Problem,
        order: IntArray,
        previous: IntArray,
        stray: BoolArray,
        expired: Callable[[], bool],
        notes: dict[str, None],
    ) -> None:
        self._problem = problem
        self._previous = previous.tolist()
        self._stray = stray.tolist()
        self._expired = expired
        self._notes = notes  # each once, in order
        self._near = nearness.heeded(problem.racks)
        held, _ = holders(problem, order)
        lost = (held != UNASSIGNED) & ~_may_take(problem, held)
        held[lost] = UNASSIGNED
        far = nearness.release_far(problem, held) if self._near else lost
        self._revoked = bool(lost.any() or far.any())
        loads = np.bincount(held[held >= 0], minlength=len(problem.members))
        self._owners: list[int] = held.tolist()
        self._topic_of: list[int] = problem.layout.topic_of.tolist()
        self._lightest = Lightest(problem, loads.tolist(), near=self._near)
        self._movements = Movements(problem.layout)
        self._undoes = True
        members = np.bincount(problem.class_of, minlength=len(problem.classes))
        self._subscribers = members @ problem.subscribes
        shared = self._subscribers >= 2
        self._shared: list[bool] = shared.tolist()
        wants_shared: BoolArray = np.any(problem.subscribes & shared, axis=1)
        self._takes_part = wants_shared[problem.class_of]

    def solve(self) -> IntArray:
        """Keeps, gives out, evens out."""
        fresh = not any(self._lightest.loads)
        # topics with the fewest subscribers first; layout order is by name, and the sort stable
        everything = np.argsort(self._subscribers[self._problem.layout.topic_of], kind="stable")
        free = [p for p in everything.tolist() if self._owners[p] == UNASSIGNED]
        self._give_out(free)
        before, uneven = self._owners.copy(), self._unevenness()
        if not self._revoked:
            self._even_out([p for p in free if self._is_shared(p)])
        changed = self._even_out([p for p in everything.tolist() if self._is_shared(p)])
        if changed and not fresh and self._unevenness() >= uneven:
            self._owners = before
        owners = np.array(self._owners, dtype=np.int32)
        if not _may_take(self._problem, owners).all():
            raise Astray
        return owners

    def _is_shared(self, partition: int) -> bool:
        return self._shared[self._topic_of[partition]]

    def _give_out(self, free: list[int]) -> None:
        """To the least loaded subscriber, first within racks where they count."""
        racks = self._problem.racks
        if self._near and racks is not None:
            for partition in free:
                near = racks.sets[racks.set_of[partition]]
                self._give(partition, self._lightest.of(self._topic_of[partition], near))
        for partition in free:
            if self._owners[partition] == UNASSIGNED:
                self._give(partition, self._lightest.of(self._topic_of[partition]))

    def _give(self, partition: int, taker: int | None) -> None:
        if taker is not None:
            self._owners[partition] = taker
            self._lightest.change(taker, +1)

    def _unevenness(self) -> int:
        """Kafka's score: the sum of all differences between two loads, in 32 bits."""
        loads = np.sort(np.array(self._lightest.loads)[self._takes_part])
        weights = 2 * np.arange(len(loads)) - len(loads) + 1
        return int((weights * loads).sum().astype(np.int32))

    def _even_out(self, partitions: list[int]) -> bool:
        """Moves until nothing moves any more; says whether anything did.

        Kafka's passes can go round in a circle, and its leader then never answers: the move that
        is undone may be one from a partition's first owner, which leaves the present one as
        heavy as it was. So the state is compared with that after passes 0, 1, 2, 4, 8 ..., and
        once it repeats, moves are no longer undone: each then makes loads more even.
        """
        landmark, passes = self._owners.copy(), 0
        while self._pass(partitions):
            passes += 1
            if self._expired():
                self._notes[LATE] = None
                break
            if self._owners == landmark:
                self._notes[ENDLESS] = None
                self._undoes = False
            if passes & (passes - 1) == 0:
                landmark = self._owners.copy()
        return passes > 0

    def _pass(self, partitions: list[int]) -> bool:
        """One look at each partition; says whether any moved."""
        loads = self._lightest.loads
        moved = False
        for partition in partitions:
            load = loads[self._owners[partition]]
            earlier = self._previous[partition]
            if self._stray[partition] and self._must_stop(earlier, load):
                return moved
            if earlier != UNASSIGNED and load > loads[earlier] + 1:
                self._move(partition, earlier)
                moved = True
                continue
            taker = self._lightest.of(self._topic_of[partition])
            if taker is not None and load > loads[taker] + 1:
                self._move(partition, taker)
                moved = True
        return moved

    def _move(self, partition: int, taker: int) -> None:
        chosen = partition
        if self._undoes:
            chosen = self._movements.instead(partition, self._owners[partition], taker)
        giver = self._owners[chosen]
        self._movements.record(chosen, giver, taker)
        self._owners[chosen] = taker
        self._lightest.change(giver, -1)
        self._lightest.change(taker, +1)

    def _must_stop(self, earlier: int, load: int) -> bool:
        """Before a step towards a member that does not subscribe: is all balanced already?"""
        idle = not self._takes_part[earlier]
        if not idle and load <= self._lightest.loads[earlier] + 1:
            return False
        if self._is_balanced():
            return True
        if idle:
            raise Astray  # Kafka has set this member aside, and fails looking it up
        return False

    def _is_balanced(self) -> bool:
        """Kafka's own question, in full."""
        layout, subscribes = self._problem.layout, self._problem.subscribes
        loads = np.array(self._lightest.loads)
        highest = np.zeros(len(layout.topics), dtype=np.int64)
        np.maximum.at(highest, layout.topic_of, loads[self._owners])
        room = (subscribes @ layout.counts)[self._problem.class_of]
        reachable = np.where(subscribes, highest, 0).max(axis=1)[self._problem.class_of]
        return not (self._takes_part & (loads != room) & (reachable > loads + 1)).any()
