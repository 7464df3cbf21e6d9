"""Which of the claims on a partition holds.

The claim of the highest generation holds if it is alone there; else none holds. A member without
a generation counts as -1.
"""

from __future__ import annotations

import numpy as np

from rota.assignors.problem import BoolArray, Problem
from rota.model.membership import UNASSIGNED
from rota.model.topic import IntArray


def previous_owners(problem: Problem) -> IntArray:
    """For each partition the member whose claim on it holds, else -1.

    Claims of members that no longer subscribe to the topic do not count.
    """
    claims = problem.claims
    keep = claims.subscribed
    if keep.all():
        return _holders(problem, claims.partition, claims.member)
    return _holders(problem, claims.partition[keep], claims.member[keep])


def _holders(problem: Problem, partition: IntArray, member: IntArray) -> IntArray:
    owners = np.full(problem.layout.size, UNASSIGNED, dtype=np.int32)
    contested = _contested(owners, partition, member)
    if contested is None:
        return owners
    partition, member = partition[contested], member[contested]
    owners[partition] = UNASSIGNED
    highest, alone = _latest(problem, partition, member)
    owners[partition[highest & alone]] = member[highest & alone]
    return owners


def _contested(owners: IntArray, partition: IntArray, member: IntArray) -> BoolArray | None:
    """Writes the claims into ``owners``; which of them are on a partition that others claim too,
    None if there are none such.
    """
    owners[partition] = member
    overwritten = owners[partition] != member
    if not overwritten.any():
        return None
    several = np.zeros(len(owners), dtype=np.bool_)
    several[partition[overwritten]] = True
    return several[partition]


def _latest(problem: Problem, partition: IntArray, member: IntArray) -> tuple[BoolArray, BoolArray]:
    """For each claim: is it of its partition's highest generation, and is it alone there?"""
    generation = problem.claims.generation[member]
    top = np.full(problem.layout.size, np.iinfo(np.int32).min, dtype=np.int32)
    np.maximum.at(top, partition, generation)
    highest = generation == top[partition]
    holders = np.bincount(partition[highest], minlength=problem.layout.size)
    return highest, holders[partition] == 1


def held_by_another(problem: Problem, owners: IntArray) -> BoolArray:
    """For each partition: does a live member other than ``owners`` still hold it?

    This is what a cooperative round must not hand over. Every claim of the partition's highest
    generation counts: one by a member that no longer subscribes (it holds the partition until it
    is told to give it up), and each of several in conflict (all of them may be reading it).
    """
    claims = problem.claims
    other = owners[claims.partition] != claims.member
    holders = np.full(problem.layout.size, UNASSIGNED, dtype=np.int32)
    contested = _contested(holders, claims.partition, claims.member)
    if contested is not None:
        highest, _ = _latest(problem, claims.partition[contested], claims.member[contested])
        other[contested] &= highest
    held = np.zeros(problem.layout.size, dtype=np.bool_)
    held[claims.partition[other]] = True
    return held
