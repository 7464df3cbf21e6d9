"""The orders in which members are served. Ties never fall to the order of the input."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rota.formats.javahash import java_key
from rota.model.topic import IntArray


def static_first(static_ids: Sequence[str | None]) -> IntArray:
    """Positions of members as Range and RoundRobin serve them, of members sorted by id.

    Static members come first, by static id, so that a restart under a new member id changes
    nothing; the others follow by member id. The two never interleave: a known fault elsewhere
    (kafka-python groups the unsorted list and loses members).
    """
    static = [(java_key(name), at) for at, name in enumerate(static_ids) if name is not None]
    if not static:
        return np.arange(len(static_ids), dtype=np.int32)
    dynamic = [at for at, name in enumerate(static_ids) if name is None]
    return np.array([at for _, at in sorted(static)] + dynamic, dtype=np.int32)
