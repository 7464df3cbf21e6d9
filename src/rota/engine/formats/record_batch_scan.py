"""Finds the batches of a buffer, and the records of many batches.

`find_batches` steps from batch to batch by their lengths. After bytes that are no batch it
continues at the next batch whose checksum is right: one bad length must not cost the rest of a
file. Batches of magic 0 and 1 (before Kafka 0.11) are reported and skipped.

`find_records` finds the next record of every batch in one step, because a step for all batches
costs little more than a step for one. A record starts where the one before it ends; so in a large
batch the search starts at several probable record starts at once (`guess_record_starts`), each the
start of a *chain* of records. In the end each record must end where the next one starts; other
batches are read again, one record after the other. The length of a record is a varint, nearly
always of one or two bytes; a table gives the size for each pair of bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rota.engine.formats.buffer import (
    BoolArray,
    ByteBuffer,
    Bytes,
    Int64Array,
    decode_leading_varints,
    read_unsigned_varints,
)
from rota.engine.formats.record_batch import (
    ATTRIBUTES_OFFSET,
    CRC_FIELD,
    CRC_OFFSET,
    HEADER,
    HEADER_DTYPE,
    LENGTH_FIELD,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_OFFSET,
    SHORTEST_BATCH_LENGTH,
    SHORTEST_MESSAGE_LENGTH,
    SMALLEST_RECORD,
    BatchProblem,
    BatchProblemKind,
    compute_crc32c,
    describe_magic,
)

KNOWN_ATTRIBUTES = 0x7F

#: Bytes of a search window, which doubles until a batch is found.
FIRST_SEARCH_WINDOW, LONGEST_SEARCH_WINDOW = 1 << 12, 1 << 22
MAX_CHECKSUM_PASSES = 4  # a search may compute the checksum of this many times the buffer's bytes


@dataclass(frozen=True, slots=True)
class BatchPositions:
    positions: Int64Array
    sizes: Int64Array
    end: int  # the end of the last whole batch, or message of an old format
    problems: tuple[BatchProblem, ...]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.positions.tolist(), self.sizes.tolist(), strict=True)

    def __len__(self) -> int:
        return len(self.positions)


def find_batches(data: Bytes, start: int = 0, *, may_end_cut: bool = False) -> BatchPositions:
    """Finds the batches from ``start`` on, where one must begin. With ``may_end_cut`` a last batch
    that is cut off is not searched for further batches, unless it comes first.
    """
    view = memoryview(data)
    search = _BatchSearch(view)
    positions: list[int] = []
    problems: list[BatchProblem] = []
    before: int | None = None
    at = end = start
    while at < len(view):
        stop = _step_over_batches(view, at, positions)
        if stop > at:
            at = end = stop
            before = positions[-1]
            continue
        problem = _describe_cut_batch(view, at) if may_end_cut and positions else None
        if problem is None:
            problem = _describe_zeros_or_old_format(view, at)
        if problem is None:
            problem = _describe_damage(view, at, search, before)
            if problem.position < at:  # the length of the batch before is wrong
                positions.pop()
                end = problem.position
        _add_problem(problems, problem)
        before = None
        at = problem.position + problem.size
        if problem.kind is BatchProblemKind.OLD:
            end = at
    return BatchPositions(*_add_batch_sizes(view, positions), end, tuple(problems))


def _step_over_batches(view: memoryview, at: int, positions: list[int]) -> int:
    """Steps from batch to batch; nearly all the time is spent here."""
    unpack, add = LENGTH_FIELD.unpack_from, positions.append
    limit = len(view)
    last = limit - HEADER.size
    while at <= last:
        (length,) = unpack(view, at + LENGTH_OFFSET)
        after = at + LOG_OVERHEAD + length
        if length < SHORTEST_BATCH_LENGTH or after > limit or view[at + MAGIC_OFFSET] != MAGIC:
            break
        add(at)
        at = after
    return at


def _add_batch_sizes(view: memoryview, positions: list[int]) -> tuple[Int64Array, Int64Array]:
    found = np.array(positions, dtype=np.int64)
    rows = max(len(view) - 3, 0)
    lengths = np.ndarray((rows,), ">i4", view, strides=(1,))
    return found, lengths[found + LENGTH_OFFSET] + np.int64(LOG_OVERHEAD)


def _describe_zeros_or_old_format(view: memoryview, at: int) -> BatchProblem | None:
    """Returns None if the bytes are damaged, or a cut batch."""
    left = len(view) - at
    if not any(view[at : at + HEADER.size]) and _only_zeros(view, at):
        return BatchProblem(at, left, BatchProblemKind.ZEROS, "zeros to the end")
    length, magic = _read_length_and_magic(view, at)
    if (
        magic in {0, 1}
        and length is not None
        and SHORTEST_MESSAGE_LENGTH <= length <= left - LOG_OVERHEAD
    ):
        return BatchProblem(at, LOG_OVERHEAD + length, BatchProblemKind.OLD, describe_magic(magic))
    return None


def _describe_damage(
    view: memoryview, at: int, search: _BatchSearch, before: int | None
) -> BatchProblem:
    """Describes damaged bytes, which may begin at the batch before."""
    length, magic = _read_length_and_magic(view, at)
    if before is not None and not search.has_right_checksum(before, at - before):
        after = search.find_next(before + 1)
        if after < at:
            length, _ = _read_length_and_magic(view, before)
            return BatchProblem(
                before, after - before, BatchProblemKind.FRAME, f"wrong length {length}"
            )
    else:
        after = search.find_next(at + 1)
    size = after - at
    if magic not in {0, 1, MAGIC}:
        return BatchProblem(at, size, BatchProblemKind.FRAME, describe_magic(magic))
    if after < len(view) or (length is not None and length < SHORTEST_MESSAGE_LENGTH):
        return BatchProblem(at, size, BatchProblemKind.FRAME, f"impossible length {length}")
    return _build_cut_problem(at, size, length)


def _describe_cut_batch(view: memoryview, at: int) -> BatchProblem | None:
    """Returns a problem if a batch of magic 2 continues past the end, or may."""
    left = len(view) - at
    if left < LOG_OVERHEAD:
        return _build_cut_problem(at, left, None)
    (length,) = LENGTH_FIELD.unpack_from(view, at + LENGTH_OFFSET)
    if not left - LOG_OVERHEAD < length >= SHORTEST_BATCH_LENGTH:
        return None
    _, magic = _read_length_and_magic(view, at)
    return _build_cut_problem(at, left, length) if magic == MAGIC else None


def _build_cut_problem(at: int, size: int, length: int | None) -> BatchProblem:
    whole = f"at least {HEADER.size}" if length is None else LOG_OVERHEAD + length
    return BatchProblem(
        at, size, BatchProblemKind.CUT, f"a batch of {whole} bytes is cut, {size} left"
    )


def _read_length_and_magic(view: memoryview, at: int) -> tuple[int | None, int]:
    """Returns None and the expected magic if the header is too short."""
    if len(view) - at <= MAGIC_OFFSET:
        return None, MAGIC
    (length,) = LENGTH_FIELD.unpack_from(view, at + LENGTH_OFFSET)
    return length, int.from_bytes(view[at + MAGIC_OFFSET : at + MAGIC_OFFSET + 1], signed=True)


def _add_problem(problems: list[BatchProblem], problem: BatchProblem) -> None:
    """Adds a problem; adjacent messages of an old format, maybe millions, become one."""
    if problems and problem.kind is BatchProblemKind.OLD:
        last = problems[-1]
        if (last.position + last.size, last.text) == (problem.position, problem.text):
            size = last.size + problem.size
            problems[-1] = BatchProblem(last.position, size, BatchProblemKind.OLD, last.text)
            return
    problems.append(problem)


def _search_windows(begin: int, limit: int) -> Iterator[tuple[int, int]]:
    size = FIRST_SEARCH_WINDOW
    while begin < limit:
        yield begin, min(begin + size, limit)
        begin += size
        size = min(2 * size, LONGEST_SEARCH_WINDOW)


def _only_zeros(view: memoryview, at: int) -> bool:
    numbers = np.frombuffer(view, np.uint8)
    return not any(numbers[a:b].any() for a, b in _search_windows(at, len(view)))


class _BatchSearch:
    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.budget = MAX_CHECKSUM_PASSES * len(view)

    def find_next(self, at: int) -> int:
        """Returns the position, or the buffer's end."""
        limit = len(self.view)
        for begin, end in _search_windows(at, limit - HEADER.size + 1):
            for position, size in self._find_candidates(begin, end):
                self.budget -= size
                if self.budget < 0:
                    return limit
                if self.has_right_checksum(position, size):
                    return position
        return limit

    def has_right_checksum(self, position: int, size: int) -> bool:
        view = self.view
        (stored,) = CRC_FIELD.unpack_from(view, position + CRC_OFFSET)
        made = compute_crc32c(view[position + ATTRIBUTES_OFFSET : position + size])
        return made == int(stored)

    def _find_candidates(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        numbers = np.frombuffer(self.view, np.uint8)
        found = np.flatnonzero(numbers[begin + MAGIC_OFFSET : end + MAGIC_OFFSET] == MAGIC) + begin
        rows = len(self.view) - HEADER.size + 1
        headers = np.ndarray((rows,), HEADER_DTYPE, self.view, strides=(1,))[found]
        size = headers["length"] + np.int64(LOG_OVERHEAD)
        good = (
            (size >= HEADER.size) & (size <= len(self.view) - found) & (headers["base_offset"] >= 0)
        )
        good &= (headers["attributes"] & ~KNOWN_ATTRIBUTES) == 0
        good &= (headers["record_count"] >= 0) & (
            headers["last_offset_delta"] >= headers["record_count"] - 1
        )
        return zip(found[good].tolist(), size[good].tolist(), strict=True)


NO_STRIDE = 1 << 40  # larger than any buffer: the length is invalid, or has more than two bytes
SHORTEST_USEFUL_RUN = 64  # records of one size that are found faster together than one by one
MAX_SHORT_RUNS = 4  # after this many shorter runs, records are found one by one


@functools.cache
def record_stride_table() -> Int64Array:
    """Returns, by the first two bytes of a record, its size including the length itself."""
    first, second = np.arange(1 << 16) & 255, np.arange(1 << 16) >> 8
    short = first < 128
    number = np.where(short, first, first & 127 | second << 7)
    found = (number >> 1) + np.where(short, 1, 2)
    wrong = (number & 1).astype(np.bool_) | (~short & (second > 127))
    wrong |= number >> 1 < SMALLEST_RECORD - 1
    found[wrong] = NO_STRIDE
    return found


def measure_records(buffer: ByteBuffer, at: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Returns where records begin after their length, and where they end."""
    pair = buffer.pair[at]
    end = record_stride_table()[pair]
    start = at + 1
    start += pair >> 7 & 1
    unknown = np.flatnonzero(end == NO_STRIDE)
    end += at
    if len(unknown):
        number, after = read_unsigned_varints(buffer, at[unknown])
        start[unknown] = after
        end[unknown] = after + (number >> 1) + (number & 1) * NO_STRIDE  # an odd one is negative
    return start, end


def find_records_in_sequence(buffer: ByteBuffer, at: int, limit: int) -> Int64Array:
    """Returns where records begin, up to the first malformed one; equal sizes go fast."""
    found = []
    short = 0
    pair, stride = buffer.pair, record_stride_table()
    while at < limit and short < MAX_SHORT_RUNS:
        size = int(stride[pair[at]])
        end = at + size * _count_equal_at_start(pair[at:limit:size])
        if end > limit:  # the last record is cut off, or these are not records
            break
        found.append(np.arange(at, end, size))
        short += end - at < SHORTEST_USEFUL_RUN * size
        at = end
    if at < limit:
        found.append(np.array(_find_one_by_one(buffer.view, at, limit), dtype=np.int64))
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _count_equal_at_start(lengths: npt.NDArray[np.uint16]) -> int:
    known, window = 0, SHORTEST_USEFUL_RUN
    while known < len(lengths):
        others = np.flatnonzero(lengths[known : known + window] != lengths[0])
        if len(others):
            return known + int(others[0])
        known += window
        window *= 4
    return len(lengths)


def _find_one_by_one(data: Bytes, at: int, limit: int) -> list[int]:
    low, high = _stride_by_byte_tables()
    found: list[int] = []
    add = found.append
    while at < limit:
        while at < limit:
            add(at)
            first = data[at]
            at += low[first] if first < 128 else low[first] + high[data[at + 1]]
        if at > limit:
            at = found[-1]
            at += _read_any_stride(data, at)
    return found


@functools.cache
def _stride_by_byte_tables() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the part of a record size from the first byte, and the part to add for the second."""
    small = record_stride_table()[:128].tolist()
    low = [2 + (byte >> 1) if byte % 2 == 0 else NO_STRIDE for byte in range(128)]
    return (*small, *low), (*range(0, 64 * 128, 64), *[NO_STRIDE] * 128)


def _read_any_stride(data: Bytes, at: int) -> int:
    """Returns the size of a record whose length may be a varint of any size."""
    number = 0
    for place, byte in enumerate(data[at : at + 5]):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return NO_STRIDE if number & 1 else place + 1 + (number >> 1)
    return NO_STRIDE


CONFIRMING_RECORDS = 2  # records that must follow a probable record start
MAX_OFFSET_GAP = 64  # largest step between offsets: compaction may have removed records
GUESS_WINDOW = 1.5  # size of the search window, in mean record sizes
MAX_MEAN_RECORD_SIZE = 512  # for larger records a search costs more than reading all lengths
SMALLEST_LENGTH_BYTE = 2 * (SMALLEST_RECORD - 1)  # the smallest first byte of a record's length
MAX_CANDIDATES = 32  # with more candidates per window, the search is given up


def guess_record_starts(
    buffer: ByteBuffer, start: int, limit: int, count: int, parts: int
) -> Int64Array:
    """Places where records of a large batch probably start: a chain leads from one to the next."""
    nothing = np.empty(0, dtype=np.int64)
    mean = (limit - start) // count
    apart = (limit - start) // parts
    window = int(GUESS_WINDOW * mean)
    if not 0 < window < apart or mean > MAX_MEAN_RECORD_SIZE:
        return nothing
    rows, wide = parts - 1, window + 2
    near = np.ndarray(
        (rows, wide), np.uint8, buffer.uint8, offset=start + apart, strides=(apart, 1)
    ).ravel()
    row, column = np.divmod(np.flatnonzero(_looks_like_record(near)), wide)
    inside = column < window
    row, column = row[inside], column[inside]
    if len(row) > MAX_CANDIDATES * rows:
        return nothing
    found = start + apart + row * apart + column
    held = _confirm_candidates(buffer, found, limit)
    row, found = row[held], found[held]
    first = np.ones(len(row), dtype=np.bool_)
    first[1:] = row[1:] != row[:-1]
    return found[first]


def _looks_like_record(near: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Returns where an even length of one or two bytes is followed by zero attributes."""
    here, zero = near[:-2], near == 0
    long = here > 127
    looks: npt.NDArray[np.bool_] = zero[1:-1] & ~long
    looks |= zero[2:] & long
    looks &= here & 1 == 0
    looks &= here >= SMALLEST_LENGTH_BYTE
    return looks


def _confirm_candidates(buffer: ByteBuffer, at: Int64Array, limit: int) -> Int64Array:
    """Returns which candidates probable records with ascending offsets, or the end, follow."""
    rows = np.arange(len(at))
    stride, _, before = _peek_records(buffer, at)
    for _ in range(CONFIRMING_RECORDS):
        at = np.where(at < limit, at + stride, at)
        keep = at <= limit
        rows, at, before = rows[keep], at[keep], before[keep]
        stride, attributes, offset = _peek_records(buffer, at)
        step = offset - before
        keep = (attributes == 0) & (step > 0) & (step <= MAX_OFFSET_GAP)
        keep |= at == limit
        rows, at, before, stride = rows[keep], at[keep], offset[keep], stride[keep]
    return rows


def _peek_records(
    buffer: ByteBuffer, at: Int64Array
) -> tuple[Int64Array, npt.NDArray[np.uint8], Int64Array]:
    """Returns the size, attributes and offset delta that a record at these offsets would have."""
    pair = buffer.pair[at]
    start = at + 1 + (pair >> 7 & 1)
    word = buffer.little[start + 1]
    _, bits, _ = decode_leading_varints(word)
    return (
        record_stride_table()[pair],
        buffer.uint8[start],
        decode_leading_varints(word >> bits)[0],
    )


FEW_CHAINS = 16  # with fewer unfinished chains, reading one after the other costs less
CHAINS_WANTED = 128  # chains that make the steps for all worthwhile
LARGE_BATCH = 256  # records of a batch that may have several chains
EXTRA_STEPS = 4  # additional steps before finished chains are dropped


def find_records(
    buffer: ByteBuffer, start: Int64Array, limit: Int64Array, count: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array, BoolArray]:
    """Each record's start, end and batch row, and the batches that records do not fill exactly."""
    at, batch = _find_candidates(buffer, start, limit, count)
    starts, ends = measure_records(buffer, at)
    doubtful = _find_inconsistent(at, ends, batch, limit, count)
    bad = np.zeros(len(count), dtype=np.bool_)
    if doubtful.any():
        rows = np.flatnonzero(doubtful).tolist()
        bounds = {row: (int(start[row]), int(limit[row])) for row in rows}
        at, batch = _find_again_in_sequence(buffer, bounds, at, batch)
        starts, ends = measure_records(buffer, at)
        bad = _find_inconsistent(at, ends, batch, limit, count)
        if bad.any():
            keep = ~bad[batch]
            starts, ends, batch = starts[keep], ends[keep], batch[keep]
    return starts, ends, batch, bad


def _find_candidates(
    buffer: ByteBuffer, start: Int64Array, limit: Int64Array, count: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Returns the probable starts of records, and their batch."""
    if len(count) < FEW_CHAINS and (limit - start).sum() > MAX_MEAN_RECORD_SIZE * count.sum():
        bounds = zip(start.tolist(), limit.tolist(), strict=True)
        starts = [find_records_in_sequence(buffer, first, end) for first, end in bounds]
        lengths = [len(each) for each in starts]
        return np.concatenate(starts), np.repeat(np.arange(len(count)), lengths)
    begin, owner = _start_chains(buffer, start, limit, count)
    target = limit[owner]
    inner = np.flatnonzero(owner[1:] == owner[:-1])
    target[inner] = begin[inner + 1]
    counts = np.zeros(len(begin), dtype=np.int64)
    found = []
    for rows, places in _follow_chains(buffer, begin, target, _steps_per_round(count, len(begin))):
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


def _steps_per_round(count: Int64Array, chains: int) -> int:
    mean = int(count.sum()) // max(chains, 1)
    return min(int(count.max(initial=0)), mean + mean // 4 + EXTRA_STEPS)


def _start_chains(
    buffer: ByteBuffer, start: Int64Array, limit: Int64Array, count: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Returns where chains start, and their batch; batches without records have none."""
    rows = np.flatnonzero(count > 0)
    large = rows[count[rows] >= LARGE_BATCH]
    if len(rows) >= CHAINS_WANTED // 2 or not len(large):
        return start[rows], rows
    share = CHAINS_WANTED / int(count.sum())
    begin, owner = [start[rows]], [rows]
    for row in large.tolist():
        parts = round(int(count[row]) * share)
        if parts > 1:
            more = guess_record_starts(
                buffer, int(start[row]), int(limit[row]), int(count[row]), parts
            )
            begin.append(more)
            owner.append(np.full(len(more), row))
    joined, owners = np.concatenate(begin), np.concatenate(owner)
    order = np.lexsort((joined, owners))
    return joined[order], owners[order]


def _follow_chains(
    buffer: ByteBuffer, at: Int64Array, target: Int64Array, run: int
) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Yields rows of chains, and their next records; a chain stays at or behind its target."""
    stride, pair = record_stride_table().take, buffer.pair
    rows = np.arange(len(at))
    while len(rows) >= FEW_CHAINS:
        places = np.empty((run + 1, len(rows)), dtype=np.int64)
        places[0] = here = at
        for there in places[1:]:
            np.add(here, stride(pair[here]), out=there)
            here = np.minimum(there, target, out=there)
        yield rows, np.ascontiguousarray(places[:-1].T)
        going = here < target
        rows, at, target = rows[going], here[going], target[going]
    for row, begin, end in zip(rows.tolist(), at.tolist(), target.tolist(), strict=True):
        yield np.array([row]), find_records_in_sequence(buffer, begin, end)[np.newaxis]


def _find_inconsistent(
    at: Int64Array, ends: Int64Array, batch: Int64Array, limit: Int64Array, count: Int64Array
) -> BoolArray:
    """Returns the batches whose records do not follow each other exactly, or are too few."""
    found = np.bincount(batch, minlength=len(count))
    bad: BoolArray = found != count
    if len(at):
        following = np.append(at[1:], 0)
        some = found > 0
        following[np.cumsum(found)[some] - 1] = limit[some]
        bad[batch[ends != following]] = True
    return bad


def _find_again_in_sequence(
    buffer: ByteBuffer, bounds: dict[int, tuple[int, int]], at: Int64Array, batch: Int64Array
) -> tuple[Int64Array, Int64Array]:
    sound = ~np.isin(batch, list(bounds))
    places, owner = [at[sound]], [batch[sound]]
    for row, (start, limit) in bounds.items():
        found = find_records_in_sequence(buffer, start, limit)
        places.append(found)
        owner.append(np.full(len(found), row))
    joined, owners = np.concatenate(places), np.concatenate(owner)
    order = np.argsort(owners, kind="stable")
    return joined[order], owners[order]
