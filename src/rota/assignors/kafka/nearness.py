"""Racks as Kafka's sticky strategies heed them (KIP-881)."""

from __future__ import annotations

import numpy as np

from rota.assignors.problem import BoolArray, Problem, Racks
from rota.model.membership import UNASSIGNED
from rota.model.topic import IntArray

NO_RACK = -1


def heeded(racks: Racks | None) -> bool:
    """Kafka heeds racks where a member's rack holds replicas and the partitions' racks differ."""
    if racks is None:
        return False
    everywhere = frozenset[int]().union(*racks.sets)
    near_some = any(rack in everywhere for rack in racks.member.tolist())
    return near_some and any(found != everywhere for found in racks.sets)


def release_far(problem: Problem, holder: IntArray) -> BoolArray:
    """Takes partitions from holders whose rack has no replica of them; says which."""
    racks = problem.racks
    assert racks is not None
    rack = np.where(holder == UNASSIGNED, NO_RACK, racks.member[holder])
    far: BoolArray = (rack != NO_RACK) & ~racks.local[racks.set_of, rack]
    holder[far] = UNASSIGNED
    return far


def by_contest(racks: Racks, partitions: IntArray) -> IntArray:
    """Partitions with the fewest members in the racks of their replicas first.

    Kafka sorts like this as soon as any member names a rack, also where it then ignores racks.
    """
    members = np.bincount(racks.member[racks.member >= 0], minlength=len(racks.names))
    near = racks.local @ members
    return partitions[np.argsort(near[racks.set_of[partitions]], kind="stable")]
