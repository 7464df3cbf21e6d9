"""Sets of small numbers as Python's big integers: thousands are joined in one step."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

FEW = 16
"""Up to so many elements a plain loop is faster than NumPy's fixed cost."""


def mask(positions: npt.NDArray[np.integer], width: int) -> int:
    """The set of these positions, all below ``width``."""
    if len(positions) <= FEW:
        found = 0
        for position in positions.tolist():
            found |= 1 << position
        return found
    flags = np.zeros(width, dtype=np.bool_)
    flags[positions] = True
    return from_flags(flags)


def from_flags(flags: npt.NDArray[np.bool_]) -> int:
    """The set of the positions that are true."""
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def positions(bits: int) -> list[int]:
    """The elements of a set, ascending."""
    if bits.bit_count() > FEW:
        listed: list[int] = array(bits).tolist()
        return listed
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found


def array(bits: int) -> npt.NDArray[np.intp]:
    """The elements of a set, ascending, as a column."""
    octets = np.frombuffer(bits.to_bytes(bits.bit_length() // 8 + 1, "little"), dtype=np.uint8)
    return np.unpackbits(octets, bitorder="little").view(np.bool_).nonzero()[0]


def union(sets: Iterable[int]) -> int:
    """All elements of these sets."""
    found = 0
    for bits in sets:
        found |= bits
    return found
