"""The orders in which members are served. Ties never fall to the order of the input."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rota.model.topic import IntArray


def java_key(text: str) -> bytes:
    """A sort key that orders text as Java's ``String.compareTo`` does: by UTF-16 code units.

    Python orders by code points, which differs once characters beyond the basic plane appear.
    """
    return text.encode("utf-16-be", "surrogatepass")


def java_sorted(texts: Iterable[str]) -> list[str]:
    """Text in Java's order."""
    listed = list(texts)
    return sorted(listed) if all(map(str.isascii, listed)) else sorted(listed, key=java_key)


def static_first(members: Sequence[str], static_ids: Sequence[str | None]) -> IntArray:
    """Positions of members as Range and RoundRobin serve them.

    Static members come first, by static id, so that a restart under a new member id changes
    nothing; the others follow by member id. The two never interleave: a known fault elsewhere
    (kafka-python groups the unsorted list and loses members).
    """

    def key(position: int) -> tuple[bool, bytes, bytes]:
        static = static_ids[position]
        first = static if static is not None else members[position]
        return static is None, java_key(first), java_key(members[position])

    return np.array(sorted(range(len(members)), key=key), dtype=np.int32)
