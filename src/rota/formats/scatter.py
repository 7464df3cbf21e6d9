"""Writes the assignments of all members of a group at once.

They stand one after the other in one buffer. Where each field goes is computed for all of them
together, and the fields are then scattered into the buffer, column by column.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rota.formats.assignment import SUBJECT
from rota.formats.primitive import encoded_string
from rota.formats.version import HIGHEST_VERSION
from rota.model.membership import Placement
from rota.model.topic import IntArray

Int64Array = npt.NDArray[np.int64]

HEAD = 6
"""The version and the number of topics."""
TAIL = 4
"""User data: null."""


class _Buffer:
    """Bytes into which values are written at any offsets, aligned or not."""

    def __init__(self, size: int) -> None:
        self.bytes = np.empty(size, dtype=np.uint8)

    def put(
        self, kind: str, at: npt.NDArray[np.integer], values: npt.NDArray[np.generic] | int
    ) -> None:
        rows = max(len(self.bytes) - np.dtype(kind).itemsize + 1, 0)
        np.ndarray((rows,), kind, self.bytes, strides=(1,))[at] = values


def encode_all(placement: Placement) -> dict[str, bytes]:
    """The same bytes as :func:`rota.formats.assignment.encode` of each member's assignment."""
    order, bounds = placement.by_member
    rows, bounds = order[bounds[0] :], bounds - bounds[0]
    topic = placement.layout.topic_of[rows]
    first = _entries(topic, bounds)
    count = np.diff(first, append=len(rows))
    entry_topic = topic[first]
    entry_bounds = np.searchsorted(first, bounds)
    entries = np.diff(entry_bounds)

    names = [encoded_string(name, SUBJECT) for name in placement.layout.topics]
    name_size = np.array([len(name) for name in names], dtype=np.int64)[entry_topic]
    ends = np.cumsum(np.append(0, name_size + 4 + 4 * count))
    member = np.arange(len(placement.members))
    name_at = ends[:-1] + HEAD + (HEAD + TAIL) * np.repeat(member, entries)
    count_at = name_at + name_size
    member_at = ends[entry_bounds] + (HEAD + TAIL) * np.arange(len(bounds))

    buffer = _Buffer(int(member_at[-1]))
    buffer.put(">i2", member_at[:-1], HIGHEST_VERSION)
    buffer.put(">i4", member_at[:-1] + 2, entries)
    buffer.put(">i4", member_at[1:] - TAIL, -1)
    _put_names(buffer, names, entry_topic, name_at, name_size)
    buffer.put(">i4", count_at, count)
    number_at = np.repeat(count_at + 4 - 4 * first, count) + 4 * np.arange(len(rows))
    buffer.put(">i4", number_at, rows - placement.layout.starts[topic])

    data = buffer.bytes.tobytes()
    cuts = member_at.tolist()
    return {
        member_id: data[begin:end]
        for member_id, begin, end in zip(placement.members, cuts[:-1], cuts[1:], strict=True)
    }


def _entries(topic: IntArray, bounds: Int64Array) -> npt.NDArray[np.intp]:
    """The first row of each entry: a run of partitions of one topic that one member gets."""
    starts = np.ones(len(topic) + 1, dtype=np.bool_)
    np.not_equal(topic[1:], topic[:-1], out=starts[1:-1])
    starts[bounds] = True
    return np.flatnonzero(starts[:-1])


def _put_names(
    buffer: _Buffer,
    names: list[bytes],
    entry_topic: IntArray,
    name_at: Int64Array,
    name_size: Int64Array,
) -> None:
    """Names of one length are written together, as values of that many bytes."""
    by_size = np.argsort(name_size.astype(np.uint16), kind="stable")
    per_size = np.bincount(name_size)
    sizes = np.array([len(name) for name in names])
    position = np.empty(len(names), dtype=np.intp)
    end = 0
    for size in np.flatnonzero(per_size).tolist():
        begin, end = end, end + int(per_size[size])
        chosen = by_size[begin:end]
        alike = np.flatnonzero(sizes == size)
        position[alike] = np.arange(len(alike))
        table = np.frombuffer(b"".join([names[topic] for topic in alike]), dtype=f"V{size}")
        buffer.put(f"V{size}", name_at[chosen], table[position[entry_topic[chosen]]])
