"""What members have of what they may have, one holder for each partition."""

from __future__ import annotations

import numpy as np

from rota.assignors.problem import Problem
from rota.model.membership import UNASSIGNED
from rota.model.topic import IntArray


def holders(problem: Problem, turn: IntArray) -> IntArray:
    """For each partition its holder; ``turn`` is each member's place in the walk.

    A coordinator's targets never overlap. Of claims that do, which only other evidence can bring,
    the latest generation counts, then the first in the walk.
    """
    claims = problem.claims
    partition, member = claims.partition, claims.member
    if not claims.subscribed.all():
        partition, member = partition[claims.subscribed], member[claims.subscribed]
    owners = np.full(problem.layout.size, UNASSIGNED, dtype=np.int32)
    owners[partition] = member
    if len(partition) and (owners[partition] != member).any():
        # the last one written stays
        rows = np.lexsort((-turn[member], claims.generation[member]))
        owners[partition[rows]] = member[rows]
    return owners
