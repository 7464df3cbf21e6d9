"""Proves, from the input and the result alone, that no assignment is better.

It shares no code with the solver. It takes a few passes over the edges (subscriptions of member
classes, claims, owners), each in NumPy.

1. **Valid**: every partition has an owner that subscribes to its topic.
2. **Most even.** Let ``level`` be the least numbers with level(m) >= load(m), and level(m') >=
   level(m) where m has a partition that m' may own. If no level exceeds its member's load by more
   than one, the result is most even: for any convex measure let p(m) be the cost of the step from
   level(m) - 1 to level(m). No assignment can cost less than this one plus the difference in the
   sum of p over all partitions, and in this one every partition has the smallest p it can have. If
   a level is too high, a partition can move along each step of the path that raised it, and that
   makes the loads more even.
3. **Most local, then fewest moves**: a result is best within the limits of (2) if and only if no
   cycle of exchanges gains, where one local partition is worth more than all moves together.
   Shortest distances over all exchanges exist exactly then (Bellman-Ford); they are the dual
   solution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rota.engine.assignors.problem import NO_RACK, Problem, find_previous_owners
from rota.engine.formats.buffer import Int64Array
from rota.engine.model.topic import IntArray


@dataclass(frozen=True, slots=True)
class Certificate:
    """The proof that a result is best, or its flaw. ``levels`` and ``prices``, by member, are the
    numbers with which steps 2 and 3 above can be checked; empty as far as there is no proof.
    """

    flaw: str | None
    levels: Mapping[str, int] = field(default_factory=dict)
    prices: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_best(self) -> bool:
        """True if the proof holds."""
        return self.flaw is None


def certify(problem: Problem, owners: IntArray) -> Certificate:
    """Proves that the result is best, or finds what could be better. A best result takes about as
    many passes as its longest exchange, any other up to one per member.
    """
    if len(owners) != problem.layout.size:
        return Certificate("not one owner for each partition")
    if not len(owners):
        return Certificate(None)
    if owners.min() < 0 or owners.max() >= len(problem.members):
        return Certificate("a partition without an owner")
    if not problem.is_subscribed(owners, np.arange(len(owners), dtype=np.int32)).all():
        return Certificate("an owner that does not subscribe")
    return _find_improvement(problem, owners)


def _find_improvement(problem: Problem, owners: IntArray) -> Certificate:
    edges = _Subscriptions.from_problem(problem)
    level = _find_levels(problem, owners, edges)
    if level is None:
        return Certificate("loads could be more even")
    levels = dict(zip(problem.members, level.tolist(), strict=True))
    exchanges = _Exchanges(problem, owners, edges, level)
    if exchanges.kept != np.count_nonzero(owners == find_previous_owners(problem)):
        return Certificate("two members exchanged partitions of one topic without need", levels)
    prices = exchanges.find_distances()
    if prices is None:
        return Certificate("fewer partitions could move, or more be local", levels)
    return Certificate(None, levels, dict(zip(problem.members, prices.tolist(), strict=True)))


class _Subscriptions(NamedTuple):
    """Pairs of member class and topic, sorted."""

    topic: Int64Array
    member_class: Int64Array

    @classmethod
    def from_problem(cls, problem: Problem) -> _Subscriptions:
        sizes = [len(topics) for topics in problem.classes]
        topic = np.concatenate(problem.classes).astype(np.int64)
        return cls(topic, np.repeat(np.arange(len(sizes)), sizes))


def _find_levels(problem: Problem, owners: IntArray, edges: _Subscriptions) -> Int64Array | None:
    """The least levels; None if a level exceeds its member's load by more than one."""
    members = len(problem.members)
    loads = np.bincount(owners, minlength=members)
    pairs = np.unique(problem.layout.topic_of * np.int64(members) + owners)
    topic, owner = pairs // members, pairs % members
    level = loads
    while True:
        of_topic = np.zeros(len(problem.layout.topics), dtype=np.int64)
        np.maximum.at(of_topic, topic, level[owner])
        of_class = np.zeros(len(problem.classes), dtype=np.int64)
        np.maximum.at(of_class, edges.member_class, of_topic[edges.topic])
        raised = np.maximum(level, of_class[problem.class_of])
        if (raised == level).all():
            return level
        if (raised > loads + 1).any():
            return None
        level = raised


class _Exchanges:
    """All single steps that a partition can take within the limits, each with its cost. Nodes:
    kinds (topic and rack set), members, pairs of member class and rack, and one node through which
    a member that may have one more trades with one that may have one fewer.
    """

    def __init__(
        self, problem: Problem, owners: IntArray, edges: _Subscriptions, level: Int64Array
    ) -> None:
        members = len(problem.members)
        racks = problem.racks
        sets = 1 if racks is None else len(racks.sets)
        kind_of = problem.layout.topic_of.astype(np.int64) * sets
        kind_of += 0 if racks is None else racks.set_of_partition
        kinds, kind_of = np.unique(kind_of, return_inverse=True)
        self.kind_topic, self.kind_set = kinds // sets, kinds % sets
        self.rack = np.full(members, NO_RACK) if racks is None else racks.rack_of_member
        self.local_worth = problem.layout.size + 1
        self.level = level
        self.loads = np.bincount(owners, minlength=members)
        self._add_receiving_edges(problem, edges)
        self._add_releasing_edges(problem, owners, kind_of)

    def _add_receiving_edges(self, problem: Problem, edges: _Subscriptions) -> None:
        """Adds edges from each kind to pairs of class and rack: only pairs at its least level."""
        racks = problem.racks
        count = 1 if racks is None else len(racks.names) + 1
        class_rack = problem.class_of.astype(np.int64) * count + self.rack + 1
        class_racks, first, which = np.unique(class_rack, return_index=True, return_inverse=True)
        self.class_rack_of_member = which
        self.class_rack_count = len(class_racks)
        class_of, rack_of = class_racks // count, class_racks % count - 1
        # the edges of a kind: the pairs of class and rack with a class that subscribes to its topic
        order = np.argsort(edges.topic, kind="stable")
        by_topic = edges.member_class[order]
        start = np.searchsorted(edges.topic[order], np.arange(len(problem.layout.topics) + 1))
        kind, classes = _join_ranges(self.kind_topic, start, by_topic)
        start_of = np.searchsorted(class_of, np.arange(len(problem.classes) + 1))
        edge, reached = _join_ranges(classes, start_of, np.arange(len(class_racks)))
        kind = kind[edge]
        # members of one class and rack have the same level: they may own the same partitions
        level_of = self.level[first]
        least = np.full(len(self.kind_topic), np.iinfo(np.int64).max)
        np.minimum.at(least, kind, level_of[reached])
        usable = level_of[reached] == least[kind]
        self.edge_kind, self.edge_class_rack = kind[usable], reached[usable]
        self.edge_cost = -self.local_worth * self._local(
            problem, self.edge_kind, rack_of[self.edge_class_rack]
        )
        self.kind_level = least

    def _local(self, problem: Problem, kind: Int64Array, rack: Int64Array) -> Int64Array:
        if problem.racks is None:
            return np.zeros(len(kind), dtype=np.int64)
        local = problem.racks.set_has_rack[self.kind_set[kind], rack] & (rack >= 0)
        return local.astype(np.int64)

    def _add_releasing_edges(self, problem: Problem, owners: IntArray, kind_of: Int64Array) -> None:
        """Adds the edges for partitions that members have, and for those they owned and lack."""
        members = len(problem.members)
        previous = find_previous_owners(problem).astype(np.int64)
        claimed = np.flatnonzero(previous >= 0)
        both = np.concatenate((kind_of, kind_of[claimed]))
        who = np.concatenate((owners.astype(np.int64), previous[claimed]))
        key, row = np.unique(both * members + who, return_inverse=True)
        has = np.bincount(row[: len(owners)], minlength=len(key))
        owned = np.bincount(row[len(owners) :], minlength=len(key))
        self.kept = int(np.minimum(has, owned).sum())
        kind, member = key // members, key % members
        local = self.local_worth * self._local(problem, kind, self.rack[member])
        held = has > 0
        self.release_member, self.release_kind = member[held], kind[held]
        # the cheapest to give up: one that is new here if there is any, else one that is kept
        self.release_cost = local[held] + (has <= owned)[held]
        lacks = (has < owned) & (self.level[member] == self.kind_level[kind])
        self.lack_member, self.lack_kind = member[lacks], kind[lacks]
        self.lack_cost = -local[lacks] - 1

    def find_distances(self) -> Int64Array | None:
        """Returns the shortest distance of each member; None if a cycle of exchanges gains."""
        members, kinds = len(self.loads), len(self.kind_topic)
        may_rise = np.flatnonzero((self.loads == self.level - 1) & (self.level > 0))
        may_fall = np.flatnonzero((self.loads == self.level) & (self.level > 0))
        member = np.zeros(members, dtype=np.int64)
        far = np.iinfo(np.int64).max // 2
        for _ in range(members + 2):
            # each round takes a step from members to members, over kinds or over the trading node
            kind = np.full(kinds, far)
            np.minimum.at(kind, self.release_kind, member[self.release_member] + self.release_cost)
            pair = np.full(self.class_rack_count, far)
            np.minimum.at(pair, self.edge_class_rack, kind[self.edge_kind] + self.edge_cost)
            nearer = np.minimum(member, pair[self.class_rack_of_member])
            np.minimum.at(nearer, self.lack_member, kind[self.lack_kind] + self.lack_cost)
            if len(may_rise) and len(may_fall):
                nearer[may_fall] = np.minimum(nearer[may_fall], member[may_rise].min())
            if (nearer == member).all():
                return member
            member = nearer
        return None


def _join_ranges(
    key: Int64Array, start: Int64Array, values: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """For each row i the values ``values[start[key[i]]:start[key[i] + 1]]``, with i beside them."""
    size = start[key + 1] - start[key]
    row = np.repeat(np.arange(len(key)), size)
    place = np.arange(len(row)) - np.repeat(np.cumsum(size) - size, size)
    return row, values[start[key[row]] + place]
