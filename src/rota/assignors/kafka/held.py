"""Who holds a partition in Kafka's eyes, where several members claim it."""

from __future__ import annotations

import numpy as np

from rota.assignors.problem import BoolArray, Problem
from rota.model.membership import UNASSIGNED
from rota.model.topic import IntArray


def holders(problem: Problem, walk: IntArray) -> tuple[IntArray, BoolArray]:
    """For each partition its holder, and whether two claims of one generation met on it.

    Kafka walks the members in table order and compares each claim with the last that counted:
    a newer one takes the partition, an equal one leaves it to nobody, an older one is ignored.
    So it depends on the order whether two equal claims are noticed beside a newer third. Claims
    of members that no longer subscribe count like all others.
    """
    claims = problem.claims
    holder = np.full(problem.layout.size, UNASSIGNED, dtype=np.int32)
    doubled = np.zeros(problem.layout.size, dtype=np.bool_)
    holder[claims.partition] = claims.member
    times = np.bincount(claims.partition, minlength=problem.layout.size)
    contested = np.flatnonzero(times[claims.partition] > 1)
    if len(contested) == 0:
        return holder, doubled
    turn = np.empty(len(walk), dtype=np.int32)
    turn[walk] = np.arange(len(walk), dtype=np.int32)
    partition, member = claims.partition[contested], claims.member[contested]
    order = np.lexsort((turn[member], partition))
    partition, member = partition[order], member[order]
    first = np.searchsorted(partition, partition, side="left")
    place = np.arange(len(partition)) - first
    last = np.empty(problem.layout.size, dtype=np.int32)
    by_place = np.argsort(place, kind="stable")
    for rows in np.split(by_place, np.cumsum(np.bincount(place))[:-1]):
        spot, claimant = partition[rows], member[rows]
        if place[rows[0]] == 0:
            last[spot] = holder[spot] = claimant
            continue
        new, old = claims.generation[claimant], claims.generation[last[spot]]
        doubled[spot[new == old]] = True
        holder[spot] = np.where(new > old, claimant, np.where(new < old, holder[spot], UNASSIGNED))
        last[spot] = np.where(new >= old, claimant, last[spot])
    return holder, doubled
