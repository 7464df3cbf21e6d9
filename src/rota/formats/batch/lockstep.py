"""Finds every record of many batches: the next record of each in one step.

What one step finds for all costs little more than for one. So large batches are begun at several
places at once, where a record is likely; and in the end each record must be seen to end where the
next one begins. Batches in which that is not so are read one record after the other.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rota.formats.batch.length import in_turn, measured, strides
from rota.formats.batch.strand import LARGEST, likely_records
from rota.formats.buffer import BoolArray, Buffer, Int64Array

FEW = 16
"""With fewer strands than this still going, a step costs more than one after the other."""
WIDE = 128
"""Strands that are worth to be looked for."""
LARGE = 256
"""Records of a batch from which on it may have several."""
SHORTEST_RUN = 4
"""Steps, before it is looked at who is still going."""


def find_records(
    buffer: Buffer, start: Int64Array, limit: Int64Array, count: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array, BoolArray]:
    """For each record where it starts (behind its length), where it ends, and its batch's row.

    Then for each batch whether its records do not fill it exactly; there are none of it then.
    """
    at, batch = _strands(buffer, start, limit, count)
    starts, ends = measured(buffer, at)
    doubtful = _unlinked(at, ends, batch, limit, count)
    bad = np.zeros(len(count), dtype=np.bool_)
    if doubtful.any():
        rows = np.flatnonzero(doubtful).tolist()
        bounds = {row: (int(start[row]), int(limit[row])) for row in rows}
        at, batch = _anew(buffer, bounds, at, batch)
        starts, ends = measured(buffer, at)
        bad = _unlinked(at, ends, batch, limit, count)
        if bad.any():
            keep = ~bad[batch]
            starts, ends, batch = starts[keep], ends[keep], batch[keep]
    return starts, ends, batch, bad


def _strands(
    buffer: Buffer, start: Int64Array, limit: Int64Array, count: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Where records seem to be, and of which batch."""
    if len(count) < FEW and (limit - start).sum() > LARGEST * count.sum():
        bounds = zip(start.tolist(), limit.tolist(), strict=True)
        turns = [in_turn(buffer, first, behind) for first, behind in bounds]
        lengths = [len(each) for each in turns]
        return np.concatenate(turns), np.repeat(np.arange(len(count)), lengths)
    begin, owner = _begun(buffer, start, limit, count)
    target = limit[owner]
    inner = np.flatnonzero(owner[1:] == owner[:-1])
    target[inner] = begin[inner + 1]
    counts = np.zeros(len(begin), dtype=np.int64)
    found = []
    for rows, places in _steps(buffer, begin, target, _run(count, len(begin))):
        real = places < target[rows, np.newaxis]
        counts[rows] += real.sum(axis=1)
        found.append((rows, places, real))
    if len(found) == 1:
        ((_, places, real),) = found
        return places[real], np.repeat(owner, counts)
    at = np.empty(int(counts.sum()), dtype=np.int64)
    first = np.cumsum(counts) - counts
    for rows, places, real in found:
        to = first[rows, np.newaxis] + np.arange(places.shape[1])
        at[to[real]] = places[real]
        first[rows] += places.shape[1]
    return at, np.repeat(owner, counts)


def _run(count: Int64Array, strands: int) -> int:
    """How many steps to go before it is looked at who is still going."""
    mean = int(count.sum()) // max(strands, 1)
    return min(int(count.max(initial=0)), mean + mean // 4 + SHORTEST_RUN)


def _begun(
    buffer: Buffer, start: Int64Array, limit: Int64Array, count: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Where strands begin, and of which batch; those without records have none."""
    rows = np.flatnonzero(count > 0)
    large = rows[count[rows] >= LARGE]
    if len(rows) >= WIDE // 2 or not len(large):
        return start[rows], rows
    share = WIDE / int(count.sum())
    begin, owner = [start[rows]], [rows]
    for row in large.tolist():
        parts = round(int(count[row]) * share)
        if parts > 1:
            more = likely_records(buffer, int(start[row]), int(limit[row]), int(count[row]), parts)
            begin.append(more)
            owner.append(np.full(len(more), row))
    joined, owners = np.concatenate(begin), np.concatenate(owner)
    order = np.lexsort((joined, owners))
    return joined[order], owners[order]


def _steps(
    buffer: Buffer, at: Int64Array, target: Int64Array, run: int
) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Rows of strands, and for each the places of its next records.

    A strand that has arrived, or gone astray, stays at its target.
    """
    stride, pair = strides().take, buffer.pair
    rows = np.arange(len(at))
    while len(rows) >= FEW:
        places = np.empty((run + 1, len(rows)), dtype=np.int64)
        places[0] = here = at
        for there in places[1:]:
            np.add(here, stride(pair[here]), out=there)
            here = np.minimum(there, target, out=there)
        yield rows, np.ascontiguousarray(places[:-1].T)
        going = here < target
        rows, at, target = rows[going], here[going], target[going]
    for row, begin, end in zip(rows.tolist(), at.tolist(), target.tolist(), strict=True):
        yield np.array([row]), in_turn(buffer, begin, end)[np.newaxis]


def _unlinked(
    at: Int64Array, ends: Int64Array, batch: Int64Array, limit: Int64Array, count: Int64Array
) -> BoolArray:
    """In which batches a record does not end where the next one begins, or some are missing."""
    found = np.bincount(batch, minlength=len(count))
    bad: BoolArray = found != count
    if len(at):
        following = np.append(at[1:], 0)
        some = found > 0
        following[np.cumsum(found)[some] - 1] = limit[some]
        bad[batch[ends != following]] = True
    return bad


def _anew(
    buffer: Buffer,
    bounds: dict[int, tuple[int, int]],
    at: Int64Array,
    batch: Int64Array,
) -> tuple[Int64Array, Int64Array]:
    """The same with the records of some batches found one by one."""
    sound = ~np.isin(batch, list(bounds))
    places, owner = [at[sound]], [batch[sound]]
    for row, (start, limit) in bounds.items():
        found = in_turn(buffer, start, limit)
        places.append(found)
        owner.append(np.full(len(found), row))
    joined, owners = np.concatenate(places), np.concatenate(owner)
    order = np.argsort(owners, kind="stable")
    return joined[order], owners[order]
