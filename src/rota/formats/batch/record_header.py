"""The headers of records, as columns: a row for each header, in the order of the records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rota.formats.batch.scalar import Body
from rota.formats.batch.varint import signed, unsigned_varints
from rota.formats.buffer import Buffer, Int64Array

FEW = 12
"""With fewer records than this that have more headers, they are read one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """Names and values; starts are positions in the buffer's data."""

    name_start: Int64Array
    name_size: Int64Array
    value_start: Int64Array
    value_size: Int64Array
    """-1: null."""

    def __len__(self) -> int:
        return len(self.name_start)


def read(buffer: Buffer, start: Int64Array, count: Int64Array) -> Headers:
    """The headers of records of which it is known where they start, how many there are, and that
    they follow the format.
    """
    total = int(count.sum())
    fields = np.empty((4, total), dtype=np.int64)
    order = np.argsort(-count, kind="stable")
    going = np.searchsorted(-count[order], -np.arange(1, int(count.max(initial=0)) + 2), "right")
    at, row = start[order], (np.cumsum(count) - count)[order]
    step = 0
    while (live := int(going[step])) >= FEW:
        rows = row[:live] + step
        for field in (0, 2):
            number, begin = unsigned_varints(buffer, at[:live])
            size = np.maximum(signed(number), -1)  # any negative length is null
            fields[field, rows], fields[field + 1, rows] = begin, size
            at[:live] = begin + np.maximum(size, 0)
        step += 1
    for each in range(live):
        body = Body(buffer.data, int(at[each]))
        for place in range(int(row[each]) + step, int(row[each] + count[order[each]])):
            fields[:, place] = body.header_place()
    names = ("name_start", "name_size", "value_start", "value_size")
    return Headers(**dict(zip(names, fields, strict=True)))
