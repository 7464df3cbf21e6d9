"""Uniform where members name different topics.

What members have of topics they subscribe to stays at first. What is free goes to the lightest
subscribers, topics with the most partitions a subscriber first. Then topic by topic partitions
move from the heaviest subscribers to the lightest, round after round, until a whole round moves
nothing or the rounds are used up.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from rota.assignors.problem import Problem
from rota.assignors.uniform.held import holders
from rota.assignors.uniform.scale import LEVEL, Scale
from rota.assignors.uniform.table import TopicIds, TopicTable, member_walk
from rota.model.membership import UNASSIGNED
from rota.model.topic import IntArray

ROUNDS = 16


def place(problem: Problem, ids: TopicIds) -> IntArray:
    """An owner for each partition."""
    walk = np.array(member_walk(problem.members), dtype=np.int32)
    owners = _Balance(problem, ids, walk).solve()
    return walk[np.array(owners, dtype=np.int32)]


class _Balance:
    """One run. Members are named by their place in the walk, which decides every tie."""

    def __init__(self, problem: Problem, ids: TopicIds, walk: IntArray) -> None:
        turn = np.empty(len(walk), dtype=np.int32)
        turn[walk] = np.arange(len(walk), dtype=np.int32)
        held = holders(problem, turn)
        held = np.where(held == UNASSIGNED, held, turn[held])
        self._owners: list[int] = held.tolist()
        self._loads: list[int] = np.bincount(held[held >= 0], minlength=len(walk)).tolist()
        starts = problem.layout.starts.tolist()
        self._spans = [range(*bounds) for bounds in pairwise(starts)]
        self._subscribers = _subscribers(problem, walk)
        self._topics = self._densest_first(TopicTable(problem, ids))

    def _densest_first(self, table: TopicTable) -> list[int]:
        def key(topic: int) -> tuple[float, int, tuple[int, int]]:
            subscribers = len(self._subscribers[topic])
            return -len(self._spans[topic]) / subscribers, subscribers, table.sort_key(topic)

        return sorted(range(len(self._spans)), key=key)

    def solve(self) -> list[int]:
        """Gives out what is free, then evens out."""
        for topic in self._topics:
            self._give_out(topic)
        self._even_out([topic for topic in self._topics if len(self._subscribers[topic]) > 1])
        return self._owners

    def _give_out(self, topic: int) -> None:
        free = [spot for spot in self._spans[topic] if self._owners[spot] == UNASSIGNED]
        if not free:
            return
        scale = Scale(self._subscribers[topic], self._loads)
        for spot in free:
            member = scale.taker()
            self._owners[spot] = member
            self._loads[member] += 1

    def _even_out(self, topics: list[int]) -> None:
        last = None  # the last topic of which a partition moved; at first the first one of all
        for _ in range(ROUNDS):
            for topic in topics:
                if topic == last:
                    return
                if self._move(topic) or last is None:
                    last = topic

    def _move(self, topic: int) -> bool:
        """Moves partitions of a topic to its lightest subscribers; says whether any moved."""
        subscribers, loads = self._subscribers[topic], self._loads
        among = [loads[member] for member in subscribers]
        if max(among) - min(among) <= LEVEL:
            return False
        held: dict[int, list[int]] = {}
        for spot in self._spans[topic]:
            held.setdefault(self._owners[spot], []).append(spot)
        scale = Scale(subscribers, loads)
        moved = False
        while not scale.even():
            giver = scale.giver()
            while giver is not None and not held.get(giver):
                scale.set_aside()
                giver = scale.giver()
            if giver is None:
                break
            taker = scale.taker()
            if scale.even():
                break
            self._owners[held[giver].pop()] = taker
            loads[giver] -= 1
            loads[taker] += 1
            moved = True
        return moved


def _subscribers(problem: Problem, walk: IntArray) -> list[list[int]]:
    """For each topic the places of its subscribers in the walk; shared by topics that agree."""
    classes = problem.class_of[walk]
    kinds: dict[bytes, list[int]] = {}
    found = []
    for column in problem.subscribes.T:
        kind = column.tobytes()
        if kind not in kinds:
            kinds[kind] = np.flatnonzero(column[classes]).tolist()
        found.append(kinds[kind])
    return found
