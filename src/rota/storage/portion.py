"""A portion of a segment: some batches whose records are read together, which is much faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rota.errors import FormatError, Refused
from rota.formats.batch import Columns, Flaw, Header, decode
from rota.storage.allowance import Allowance
from rota.storage.scan import Batch
from rota.storage.segment import Segment

SIZE = 1 << 17
"""Bytes that are read together, unless a batch has more."""
MANY = 64
"""Batches, likewise."""
UNPACKED = 1 << 23
"""Bytes that they may have together, decompressed; if they have more, each is read alone."""
RECORDS = 1 << 16
"""Records, likewise."""


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
    :raises FormatError: a batch's records cannot be read, or that would be too much work
    """
    found: list[Batch] = []
    size = 0
    for batch in segment.scan(window=SIZE):
        if found and (size + batch.head.size > SIZE or len(found) == MANY):
            yield from _read(segment, found)
            found, size = [], 0
        found.append(batch)
        size += batch.head.size
    if found:
        yield from _read(segment, found)


def _read(segment: Segment, batches: list[Batch]) -> Iterator[Portion]:
    """Together if they are as small as they look, else one by one."""
    if len(batches) > 1 and sum(each.head.records for each in batches) <= RECORDS:
        joined = b"".join([each.data for each in batches])
        columns = decode(joined, check=False, most_in_all=UNPACKED)  # whoever scans has checked it
        if not any(each.flaw is Flaw.SIZE for each in columns.problems):
            yield _portion(segment, batches, columns)
            return
    for batch in batches:
        try:
            columns = Allowance(batch.head.size).decode(batch.data, batch.head)
        except Refused as error:
            raise FormatError(f"{segment.log}: byte {batch.position}: {error}") from None
        yield _portion(segment, [batch], columns)


def _portion(segment: Segment, batches: list[Batch], columns: Columns) -> Portion:
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
