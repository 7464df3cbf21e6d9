"""When a group's offsets were committed, as a sign of life of those who own the partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rota.replay.fact import Generation, Held, LogLine

Commits: TypeAlias = Mapping[tuple[str, int], npt.NDArray[np.int64]]
"""The times of each partition's commits, in ascending order."""
Codes: TypeAlias = npt.NDArray[np.int32]
Numbers: TypeAlias = npt.NDArray[np.int64]
LATEST = np.iinfo(np.int64).max
AT_ONCE = 10
"""Commits so close to each other are one."""
BEATS = 4
"""So many times in a row it must have been the same, to speak of a rhythm."""
STEADY = 1.25
"""By how much the longest time between two commits may exceed the shortest."""
LAST = 64
"""No more of a partition's commits are looked at for a rhythm."""
EARLY = 0.9
"""A commit that comes before this share of the shortest time is out of the rhythm."""


def latest(
    commits: Commits, held: Held, until: int = LATEST, since: int | None = None
) -> int | None:
    """The last commit of any of these partitions, not after ``until`` and after ``since``."""
    newest: int | None = None
    for topic, numbers in held.items():
        for number in numbers:
            times = commits.get((topic, number))
            if times is None:
                continue
            position = int(np.searchsorted(times, until, side="right"))
            if position and (newest is None or times[position - 1] > newest):
                newest = int(times[position - 1])
    return None if newest is None or (since is not None and newest <= since) else newest


def is_out_of_rhythm(commits: Commits, held: Held, until: int, since: int) -> bool:
    """Whether the last commit of these partitions came too early in a rhythm that was steady.

    A client that commits from time to time commits once more when it is closed, whenever that is.
    One that dies, or polls no more, does not; and if its application or a thread of its own goes on
    to commit meanwhile, its last commit is in the rhythm.
    """
    found = [
        times[np.searchsorted(times, since, side="right") : np.searchsorted(times, until, "right")]
        for topic, numbers in held.items()
        for number in numbers
        if (times := commits.get((topic, number))) is not None
    ]
    if not found:
        return False
    times = np.unique(np.concatenate([one[-LAST:] for one in found]))
    gaps = np.diff(times)
    gaps = gaps[gaps > AT_ONCE]
    if len(gaps) <= BEATS:
        return False
    last, before = gaps[-1], gaps[-1 - BEATS : -1]
    return bool(before.max() <= before.min() * STEADY and last < before.min() * EARLY)


def moments(generations: Iterable[Generation], lines: Iterable[LogLine]) -> Numbers:
    """The times up to which commits are asked for, to explain the steps between generations."""
    found = {line.at for line in lines}
    for generation in generations:
        found.add(generation.at)
        if generation.state_at is not None:
            found.add(generation.state_at)
    return np.array(sorted(found), dtype=np.int64)


def telling(partition: Codes, at: Numbers, asked: Numbers) -> npt.NDArray[np.intp]:
    """The commits that can make a difference, by partition and time.

    Those are a partition's last ones up to each moment that is asked for, and up to the end.
    """
    order = np.lexsort((at, partition))
    partition, at = partition[order], at[order]
    before = np.searchsorted(asked, at)
    changes = (np.diff(partition) != 0) | (np.diff(before) != 0)
    ends = np.append(np.flatnonzero(changes) + 1, len(order))
    sizes = np.diff(ends, prepend=0)
    kept = np.repeat(ends, sizes) - np.arange(len(order)) <= LAST
    return order[kept]
