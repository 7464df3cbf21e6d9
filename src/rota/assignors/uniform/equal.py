"""Uniform where all members name the same topics.

Each member gets the floor or the ceiling of the average and keeps what it has up to that. The
rest goes in runs to those with room, in the order of the walk; a ceiling that a member does not
fill by itself is passed on, as long as enough members are left to take it.
"""

from __future__ import annotations

import numpy as np

from rota.assignors.problem import Problem
from rota.assignors.uniform.held import holders
from rota.assignors.uniform.table import TopicIds, TopicTable, member_walk, number_walk
from rota.model.membership import UNASSIGNED
from rota.model.topic import IntArray


def place(problem: Problem, ids: TopicIds) -> IntArray:
    """An owner for each partition."""
    walk = member_walk(problem.members)
    order = np.array(walk, dtype=np.int32)
    turn = np.empty_like(order)
    turn[order] = np.arange(len(walk), dtype=np.int32)
    owners = holders(problem, turn)
    counts = np.bincount(owners[owners >= 0], minlength=len(walk)).tolist()
    keeps, room = quotas([counts[member] for member in walk], len(owners))
    topics = TopicTable(problem, ids)
    free = _free(problem, topics, owners)
    over = [(member, keep) for member, keep in zip(walk, keeps, strict=True) if keep is not None]
    if over:
        free = np.concatenate([free, _revoked(problem, topics, owners, over)])
    owners[free] = np.repeat(order, room)
    return owners


def quotas(counts: list[int], size: int) -> tuple[list[int | None], list[int]]:
    """For each member, in the order of the walk: how many it keeps (None: all it has), and how
    many it is given.
    """
    quota, extra = divmod(size, len(counts))
    keeps: list[int | None] = []
    room: list[int] = []
    behind = len(counts)  # this member and those after it
    for count in counts:
        raised = extra > 0
        missing = quota + raised - count
        keeps.append(quota + raised if missing < 0 else None)
        if missing > 0 and raised and behind > extra:
            missing -= 1
            raised = False
        room.append(max(missing, 0))
        extra -= raised
        behind -= 1
    return keeps, room


def _free(problem: Problem, topics: TopicTable, owners: IntArray) -> IntArray:
    """What nobody has, topic by topic."""
    free = np.flatnonzero(owners == UNASSIGNED)
    if len(free) and len(topics.walk) > 1:
        rank = np.empty(len(topics.walk), dtype=np.int32)
        rank[topics.walk] = np.arange(len(topics.walk), dtype=np.int32)
        free = free[np.argsort(rank[problem.layout.topic_of[free]], kind="stable")]
    return free.astype(np.int32)


def _revoked(
    problem: Problem, topics: TopicTable, owners: IntArray, over: list[tuple[int, int]]
) -> IntArray:
    """What these members have beyond what they keep: the end of their tables."""
    by_owner = np.argsort(owners, kind="stable")
    members = np.array([member for member, _ in over], dtype=np.int32)
    starts = np.searchsorted(owners, members, side="left", sorter=by_owner).tolist()
    ends = np.searchsorted(owners, members, side="right", sorter=by_owner).tolist()
    order = by_owner.tolist()
    topic_of = problem.layout.topic_of[by_owner].tolist()
    first = problem.layout.starts.tolist()
    given_up: list[int] = []
    for (_, quota), start, end in zip(over, starts, ends, strict=True):
        keep = quota
        by_topic: dict[int, list[int]] = {}
        for partition, topic in zip(order[start:end], topic_of[start:end], strict=True):
            by_topic.setdefault(topic, []).append(partition - first[topic])
        for topic in topics.held_walk(by_topic):
            numbers = by_topic[topic]
            if len(numbers) > keep:
                given_up += [first[topic] + number for number in number_walk(numbers)[keep:]]
            keep = max(keep - len(numbers), 0)
    return np.array(given_up, dtype=np.int32)
