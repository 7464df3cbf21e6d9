"""Pools: partitions that the same members may own are interchangeable, so they count as one."""

from __future__ import annotations

import numpy as np

from rota.assignors.exact import bits
from rota.assignors.exact.stickiness import Network
from rota.assignors.problem import Problem, Racks
from rota.model.topic import IntArray


def merged(reach: list[int], sizes: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Distinct sets in order of appearance, how many partitions each has, and which of them each
    of the given ones is.
    """
    index: dict[int, int] = {}
    which = [index.setdefault(members, len(index)) for members in reach]
    total = [0] * len(index)
    for pool, size in zip(which, sizes, strict=True):
        total[pool] += size
    return list(index), total, which


def subscribing(problem: Problem) -> list[int]:
    """For each topic the set of member classes that subscribe to it."""
    classes = problem.classes
    topics = len(problem.layout.topics)
    if len(classes) <= bits.FEW:
        found = [0] * topics
        for position, listed in enumerate(classes):
            for topic in listed.tolist():
                found[topic] |= 1 << position
        return found
    topic_column = np.concatenate(classes)
    class_column = np.repeat(np.arange(len(classes)), [len(listed) for listed in classes])
    order = np.argsort(topic_column, kind="stable")
    bounds = np.searchsorted(topic_column[order], np.arange(1, topics))
    return [bits.mask(column, len(classes)) for column in np.split(class_column[order], bounds)]


def members_of(reach: list[int], class_of: IntArray, classes: int) -> list[int]:
    """The same sets as sets of members, where they are sets of classes."""
    if classes == len(class_of):
        return reach  # each its own class, and they stand in the members' order
    found = []
    for listed in reach:
        flags = np.zeros(classes, dtype=np.bool_)
        flags[bits.array(listed)] = True
        found.append(bits.from_flags(flags[class_of]))
    return found


def local_members(racks: Racks) -> list[int]:
    """For each rack set the members in one of its racks."""
    known = racks.member >= 0
    return [bits.from_flags(row[racks.member] & known) for row in racks.local]


def by_rack(
    network: Network, pool_of: IntArray | None, set_of: IntArray, near: list[int]
) -> tuple[Network, IntArray, list[int]]:
    """Pools split by which of their members are local; the local ones of each new pool."""
    key = set_of if pool_of is None else pool_of * np.int64(len(near)) + set_of
    counts = np.bincount(key)
    present = np.flatnonzero(counts)
    index: dict[tuple[int, int], int] = {}
    pool_at = np.zeros(len(counts), dtype=np.int32)
    sizes: list[int] = []
    for place, count in zip(present.tolist(), counts[present].tolist(), strict=True):
        pool, rack_set = divmod(place, len(near))
        found = index.setdefault((pool, near[rack_set] & network.reach[pool]), len(index))
        if found == len(sizes):
            sizes.append(0)
        sizes[found] += count
        pool_at[place] = found
    reach = [network.reach[pool] for pool, _ in index]
    local = [members for _, members in index]
    split = Network(sizes=sizes, reach=reach, low=network.low, high=network.high)
    return split, pool_at[key], local
