"""Phase one: how many partitions each class of members gets in the most even assignment."""

from __future__ import annotations

import numpy as np

from rota.assignors.exact import bits
from rota.assignors.exact.flow import Flow
from rota.assignors.exact.seed import proportional


def levels(reach: list[int], sizes: list[int], class_sizes: list[int]) -> list[int]:
    """The level of each class: in every most even assignment its members have ``level`` partitions
    or one fewer, and a pool lies only with those of its classes that have the smallest level.

    ``reach[p]`` is the set of classes that may own pool p of ``sizes[p]`` partitions. Classes that
    no pool reaches have level 0.

    Fill all classes evenly to the mean. What does not fit stays with the classes that it reaches:
    they must end above the mean, and the rest, which may not take from them, at it or below. Both
    sides are then problems of their own, without flow between them.
    """
    found = [0] * len(class_sizes)
    shared = _settle_alone(reach, sizes, class_sizes, found)
    if not shared:
        return found
    flow = Flow([reach[pool] for pool in shared], len(class_sizes))
    everyone = bits.union(flow.reach)
    total = [sizes[pool] for pool in shared]
    mean = sum(total) // sum(class_sizes[c] for c in bits.positions(everyone))
    rooms = np.array(class_sizes, dtype=np.int64) * mean
    for pool, listed, amounts in proportional(total, flow.reach, rooms):
        flow.put(pool, listed, amounts)
    stack = [((1 << len(shared)) - 1, everyone)]
    while stack:
        pools, classes = stack.pop()
        listed = bits.positions(classes)
        partitions = sum(total[pool] for pool in bits.positions(pools))
        level, rest = divmod(partitions, sum(class_sizes[c] for c in listed))
        full, stuck = _fill(flow, classes, listed, class_sizes, level)
        if full == classes and rest:
            level += 1
            full, stuck = _fill(flow, classes, listed, class_sizes, level)
        if not full:
            for position in listed:
                found[position] = level
            continue
        for pool in bits.positions(pools & ~stuck):
            flow.reach[pool] &= ~full
        stack += [(pools & stuck, full), (pools & ~stuck, classes & ~full)]
    return found


def _fill(
    flow: Flow, classes: int, listed: list[int], class_sizes: list[int], level: int
) -> tuple[int, int]:
    """Lets every class take ``level`` for each of its members. Gives the classes and pools with
    which something stays that fits nowhere.
    """
    for position in listed:
        flow.aim(position, class_sizes[position] * level)
    return flow.spread(classes)


def _settle_alone(
    reach: list[int], sizes: list[int], class_sizes: list[int], found: list[int]
) -> list[int]:
    """Sets the level of classes that own one pool and nothing else; gives the pools left over."""
    shared = []
    for pool, alone in enumerate(alone_in(reach)):
        if not alone:
            shared.append(pool)
            continue
        classes = bits.positions(reach[pool])
        level = -(-sizes[pool] // sum(class_sizes[c] for c in classes))
        for position in classes:
            found[position] = level
    return shared


def alone_in(reach: list[int]) -> list[bool]:
    """For each pool: does it share no member with any other pool?"""
    once = twice = 0
    for takers in reach:
        twice |= once & takers
        once |= takers
    return [not takers & twice for takers in reach]
