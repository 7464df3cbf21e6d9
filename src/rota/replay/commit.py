"""When a group's offsets were committed, as a sign of life of those who own the partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rota.replay.fact import Held

Commits: TypeAlias = Mapping[tuple[str, int], npt.NDArray[np.int64]]
"""The times of each partition's commits, in ascending order."""
LATEST = np.iinfo(np.int64).max


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
