"""A portion of a segment: some batches whose records are read together, which is much faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rota.errors import FormatError
from rota.formats.batch import Columns, Header, decode
from rota.storage.scan import Batch
from rota.storage.segment import Segment

SIZE = 1 << 17
"""Bytes that are read together, unless a batch has more."""
MANY = 64
"""Batches, likewise."""


@dataclass(frozen=True, slots=True)
class Portion:
    """Batches, and their records as lists, one after the other."""

    batches: Sequence[Batch]
    heads: Sequence[Header]
    columns: Columns
    data: bytes
    """All starts and ends are positions in it."""
    first: Sequence[int]
    """Of each batch the row of its first record; then the number of all records."""
    offset: Sequence[int]
    key_start: Sequence[int]
    key_size: Sequence[int]
    value_size: Sequence[int]
    marker: Sequence[int]
    """Of each batch."""

    def __iter__(self) -> Iterator[tuple[int, Header, int, int]]:
        """Each batch: its number, its head, its first row and the row behind its last."""
        return zip(range(len(self.heads)), self.heads, self.first, self.first[1:], strict=False)


def portions(segment: Segment) -> Iterator[Portion]:
    """All of a segment.

    :raises Damage: a batch is not sound
    :raises FormatError: a batch's records cannot be read
    """
    found: list[Batch] = []
    size = 0
    for batch in segment.scan(window=SIZE):
        if found and (size + batch.head.size > SIZE or len(found) == MANY):
            yield _portion(segment, found)
            found, size = [], 0
        found.append(batch)
        size += batch.head.size
    if found:
        yield _portion(segment, found)


def _portion(segment: Segment, batches: list[Batch]) -> Portion:
    joined = batches[0].data if len(batches) == 1 else b"".join([each.data for each in batches])
    columns = decode(joined, check=False)  # whoever scans has checked it
    if columns.problems:
        problem = columns.problems[0]
        raise FormatError(
            f"{segment.log}: byte {batches[0].position + problem.position}: {problem.text}"
        )
    counts = columns.batches.count.cumsum().tolist()
    return Portion(
        batches=batches,
        heads=[each.head.full for each in batches],
        columns=columns,
        data=columns.buffer.data,
        first=[0, *counts],
        offset=columns.offset.tolist(),
        key_start=columns.key_start.tolist(),
        key_size=columns.key_size.tolist(),
        value_size=columns.value_size.tolist(),
        marker=columns.batches.marker.tolist(),
    )
