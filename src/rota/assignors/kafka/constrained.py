"""Kafka's path for groups in which all members name the same topics.

Every member gets the floor or the ceiling of the average. Each keeps what it owns up to that; the
rest is dealt in (topic, number) order over the members below the floor, in turn, and then over
those that may have one more.
"""

from __future__ import annotations

import numpy as np

from rota.assignors.kafka import nearness
from rota.assignors.kafka.deal import Deal, NearDeal
from rota.assignors.kafka.hashing import walk
from rota.assignors.kafka.held import holders
from rota.assignors.problem import Problem
from rota.model.membership import UNASSIGNED
from rota.model.topic import IntArray


def place(problem: Problem) -> IntArray:
    """An owner for each partition."""
    if not problem.members:
        return np.empty(0, dtype=np.int32)
    order = walk(problem.members)
    owners, doubled = holders(problem, order)
    near = nearness.heeded(problem.racks)
    if near:
        nearness.release_far(problem, owners)
    owners[doubled] = UNASSIGNED
    members = len(problem.members)
    held = np.bincount(owners[owners >= 0], minlength=members).astype(np.int32)
    deal = Deal.after_keeping(held, order, problem.layout.size)
    _trim(problem, owners, held, deal.loads)
    free = np.flatnonzero(owners == UNASSIGNED).astype(np.int32)
    if problem.racks is not None:
        free = nearness.by_contest(problem.racks, free)
        if near:
            free = NearDeal(deal, problem.racks).out(free, owners)
    owners[free] = deal.out(len(free))
    return owners


def _trim(problem: Problem, owners: IntArray, held: IntArray, kept: IntArray) -> None:
    """Takes what is beyond the kept number from each holder: the last in (number, topic) order."""
    above = held > kept
    if not above.any():
        return
    layout = problem.layout
    rows = np.flatnonzero(above[owners] & (owners != UNASSIGNED))
    member = owners[rows].astype(np.int64)
    number = rows - layout.starts[layout.topic_of[rows]]
    # rows stand in (topic, number) order, so a stable sort leaves ties in topic order
    rows = rows[np.argsort(member * int(layout.counts.max()) + number, kind="stable")]
    held = np.where(above, held, 0)
    first = np.cumsum(held) - held
    rank = np.arange(len(rows)) - first[owners[rows]]
    owners[rows[rank >= kept[owners[rows]]]] = UNASSIGNED
