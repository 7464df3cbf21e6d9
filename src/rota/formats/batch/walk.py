"""Where the batches of a buffer are, from their lengths alone.

After bytes that are no batch, it goes on at the next batch that proves itself by its checksum:
one bad length must not cost the rest of a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rota.formats.batch.checksum import checksum
from rota.formats.batch.header import (
    ATTRIBUTES_AT,
    CHECKSUM,
    CHECKSUM_AT,
    FIELDS,
    HEAD,
    LENGTH,
    LENGTH_AT,
    MAGIC,
    MAGIC_AT,
    PREFIX,
    SHORTEST,
    SHORTEST_OLD,
    magic_problem,
)
from rota.formats.batch.problem import Flaw, Problem
from rota.formats.buffer import Bytes, Int64Array

KNOWN_ATTRIBUTES = 0x7F
STRETCH, LONGEST_STRETCH = 1 << 12, 1 << 22
"""Bytes that are looked through at first; twice as many each time that nothing is found."""
TRIES = 4
"""Looking for batches may take the checksum of so many times the bytes there are."""


@dataclass(frozen=True, slots=True)
class Walk:
    """The whole batches of a buffer, and what else is there."""

    positions: Int64Array
    sizes: Int64Array
    end: int
    """Behind the last whole batch, or message of an old format."""
    problems: tuple[Problem, ...]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.positions.tolist(), self.sizes.tolist(), strict=True)

    def __len__(self) -> int:
        return len(self.positions)


def walk(data: Bytes, start: int = 0, *, may_end_cut: bool = False) -> Walk:
    """The batches from a position on at which one begins; of any buffer, a mapped file too.

    :param may_end_cut: the last batch may well be cut, and what looks like that is not searched for
        others as damage is; unless it comes first, for then nothing speaks for it
    """
    view = memoryview(data)
    search = _Search(view)
    positions: list[int] = []
    problems: list[Problem] = []
    before: int | None = None
    at = end = start
    while at < len(view):
        stop = _run(view, at, positions)
        if stop > at:
            at = end = stop
            before = positions[-1]
            continue
        problem = _cut(view, at) if may_end_cut and positions else None
        if problem is None:
            problem = _passable(view, at)
        if problem is None:
            problem = _damaged(view, at, search, before)
            if problem.position < at:  # the batch before was none: its length led astray
                positions.pop()
                end = problem.position
        _add(problems, problem)
        before = None
        at = problem.position + problem.size
        if problem.flaw is Flaw.OLD:
            end = at
    return Walk(*_sized(view, positions), end, tuple(problems))


def _run(view: memoryview, at: int, positions: list[int]) -> int:
    """Steps from batch to batch as far as it goes; nearly all the time is spent here."""
    unpack, add = LENGTH.unpack_from, positions.append
    limit = len(view)
    last = limit - HEAD.size
    while at <= last:
        (length,) = unpack(view, at + LENGTH_AT)
        after = at + PREFIX + length
        if length < SHORTEST or after > limit or view[at + MAGIC_AT] != MAGIC:
            break
        add(at)
        at = after
    return at


def _sized(view: memoryview, positions: list[int]) -> tuple[Int64Array, Int64Array]:
    found = np.array(positions, dtype=np.int64)
    rows = max(len(view) - 3, 0)
    lengths = np.ndarray((rows,), ">i4", view, strides=(1,))
    return found, lengths[found + LENGTH_AT] + np.int64(PREFIX)


def _passable(view: memoryview, at: int) -> Problem | None:
    """What may well be where no batch of today begins; None: it is damage, or cut."""
    left = len(view) - at
    if not any(view[at : at + HEAD.size]) and _only_zeros(view, at):
        return Problem(at, left, Flaw.ZEROS, "zeros to the end")
    length, magic = _length_and_magic(view, at)
    if magic in {0, 1} and length is not None and SHORTEST_OLD <= length <= left - PREFIX:
        return Problem(at, PREFIX + length, Flaw.OLD, magic_problem(magic))
    return None


def _damaged(view: memoryview, at: int, search: _Search, before: int | None) -> Problem:
    """What is wrong here, and how far; it may have begun at the batch before."""
    length, magic = _length_and_magic(view, at)
    if before is not None and not search.sound(before, at - before):
        after = search.next(before + 1)
        if after < at:
            length, _ = _length_and_magic(view, before)
            return Problem(before, after - before, Flaw.FRAME, f"wrong length {length}")
    else:
        after = search.next(at + 1)
    size = after - at
    if magic not in {0, 1, MAGIC}:
        return Problem(at, size, Flaw.FRAME, magic_problem(magic))
    if after < len(view) or (length is not None and length < SHORTEST_OLD):
        return Problem(at, size, Flaw.FRAME, f"impossible length {length}")
    return _cut_problem(at, size, length)


def _cut(view: memoryview, at: int) -> Problem | None:
    """A batch of today that goes on behind the end, or may."""
    left = len(view) - at
    if left < PREFIX:
        return _cut_problem(at, left, None)
    (length,) = LENGTH.unpack_from(view, at + LENGTH_AT)
    if not left - PREFIX < length >= SHORTEST:
        return None
    _, magic = _length_and_magic(view, at)
    return _cut_problem(at, left, length) if magic == MAGIC else None


def _cut_problem(at: int, size: int, length: int | None) -> Problem:
    whole = f"at least {HEAD.size}" if length is None else PREFIX + length
    return Problem(at, size, Flaw.CUT, f"a batch of {whole} bytes is cut, {size} are there")


def _length_and_magic(view: memoryview, at: int) -> tuple[int | None, int]:
    """What a head says; if it is too short for that, nothing and the magic it should have."""
    if len(view) - at <= MAGIC_AT:
        return None, MAGIC
    (length,) = LENGTH.unpack_from(view, at + LENGTH_AT)
    return length, int.from_bytes(view[at + MAGIC_AT : at + MAGIC_AT + 1], signed=True)


def _add(problems: list[Problem], problem: Problem) -> None:
    """Neighbours of an old format are told of together: there may be millions."""
    if problems and problem.flaw is Flaw.OLD:
        last = problems[-1]
        if (last.position + last.size, last.text) == (problem.position, problem.text):
            size = last.size + problem.size
            problems[-1] = Problem(last.position, size, Flaw.OLD, last.text)
            return
    problems.append(problem)


def _stretches(begin: int, limit: int) -> Iterator[tuple[int, int]]:
    size = STRETCH
    while begin < limit:
        yield begin, min(begin + size, limit)
        begin += size
        size = min(2 * size, LONGEST_STRETCH)


def _only_zeros(view: memoryview, at: int) -> bool:
    numbers = np.frombuffer(view, np.uint8)
    return not any(numbers[a:b].any() for a, b in _stretches(at, len(view)))


class _Search:
    """Finds the next batch whose checksum is right."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.budget = TRIES * len(view)

    def next(self, at: int) -> int:
        """Its position; the buffer's end if there is none."""
        limit = len(self.view)
        for begin, end in _stretches(at, limit - HEAD.size + 1):
            for position, size in self._likely(begin, end):
                self.budget -= size
                if self.budget < 0:
                    return limit
                if self.sound(position, size):
                    return position
        return limit

    def sound(self, position: int, size: int) -> bool:
        """Is a batch's checksum right?"""
        view = self.view
        (stored,) = CHECKSUM.unpack_from(view, position + CHECKSUM_AT)
        made = checksum(view[position + ATTRIBUTES_AT : position + size])
        return made == int(stored)

    def _likely(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        numbers = np.frombuffer(self.view, np.uint8)
        found = np.flatnonzero(numbers[begin + MAGIC_AT : end + MAGIC_AT] == MAGIC) + begin
        rows = len(self.view) - HEAD.size + 1
        heads = np.ndarray((rows,), FIELDS, self.view, strides=(1,))[found]
        size = heads["length"] + np.int64(PREFIX)
        good = (size >= HEAD.size) & (size <= len(self.view) - found) & (heads["base_offset"] >= 0)
        good &= (heads["attributes"] & ~KNOWN_ATTRIBUTES) == 0
        good &= (heads["count"] >= 0) & (heads["last_offset_delta"] >= heads["count"] - 1)
        return zip(found[good].tolist(), size[good].tolist(), strict=True)
