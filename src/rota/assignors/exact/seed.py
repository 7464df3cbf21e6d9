"""A first placement, from which the flow has little left to move."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from rota.assignors.exact import bits


def proportional(
    sizes: list[int], reach: list[int], rooms: npt.NDArray[np.int64]
) -> Iterator[tuple[int, list[int], list[int]]]:
    """(pool, members, amounts): each pool over the members it can go to, in proportion to room.

    The pools with the least choice go first; what finds no room is spread evenly. ``rooms`` is
    used up. Proportion spreads a topic over nearly all of its possible owners; filling one member
    after the other would leave it on a few.
    """
    for pool in sorted(range(len(sizes)), key=lambda pool: (reach[pool].bit_count(), pool)):
        if not sizes[pool]:
            continue
        members = bits.array(reach[pool])
        room = rooms[members]
        shares = _split(sizes[pool], room)
        rooms[members] = np.maximum(room - shares, 0)
        given = shares.nonzero()[0]
        yield pool, members[given].tolist(), shares[given].tolist()


def _split(size: int, room: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    total = int(room.sum())
    if total >= size:
        return _steps(room.cumsum() * size // total)
    return room + _steps(np.arange(1, len(room) + 1) * (size - total) // len(room))


def _steps(sums: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """What running sums were summed from (np.diff takes three times as long on short rows)."""
    sums[1:] -= sums[:-1].copy()
    return sums
