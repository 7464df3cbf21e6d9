"""A first placement, from which the flow has little left to move."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from rota.assignors.exact import bits


def proportional(
    sizes: list[int], reach: list[int], rooms: npt.NDArray[np.int64]
) -> Iterator[tuple[int, int, int]]:
    """(pool, member, amount): each pool over the members it can go to, in proportion to room.

    The pools with the least choice go first; what finds no room is spread evenly. ``rooms`` is
    used up. Proportion spreads a topic over nearly all of its possible owners; filling one member
    after the other would leave it on a few (a topic's load would lie on them alone).
    """
    for pool in sorted(range(len(sizes)), key=lambda pool: (reach[pool].bit_count(), pool)):
        if not sizes[pool]:
            continue
        members = bits.array(reach[pool])
        room = rooms[members]
        shares = _split(sizes[pool], room)
        rooms[members] = np.maximum(room - shares, 0)
        given = np.flatnonzero(shares)
        for member, amount in zip(members[given].tolist(), shares[given].tolist(), strict=True):
            yield pool, member, amount


def _split(size: int, room: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    total = int(room.sum())
    if total >= size:
        return np.diff(np.cumsum(room) * size // total, prepend=0)
    evenly = np.arange(1, len(room) + 1) * (size - total) // len(room)
    return room + np.diff(evenly, prepend=0)
