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
STRETCH = 1 << 12
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


def walk(data: Bytes, start: int = 0) -> Walk:
    """The batches from a position on at which one begins; of any buffer, a mapped file too."""
    view = memoryview(data)
    limit = len(view)
    search = _Search(view)
    positions: list[int] = []
    problems: list[Problem] = []
    at = end = start
    while at < limit:
        stop = _run(view, at, positions)
        if stop > at:
            at = end = stop
            continue
        after, problem = _stopped(view, at, search)
        if problem.flaw is Flaw.OLD:
            end = after
        _add(problems, problem)
        at = after
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


def _stopped(view: memoryview, at: int, search: _Search) -> tuple[int, Problem]:
    """Where to go on from a place at which no whole batch begins, and what there is instead."""
    limit = len(view)
    left = limit - at
    if not any(view[at : at + 64]) and _only_zeros(view, at):
        return limit, Problem(at, left, Flaw.ZEROS, "zeros to the end")
    whole = left > MAGIC_AT
    (length,) = LENGTH.unpack_from(view, at + LENGTH_AT) if whole else (0,)
    magic = int.from_bytes(view[at + MAGIC_AT : at + MAGIC_AT + 1], signed=True) if whole else MAGIC
    old = magic in {0, 1}
    least = SHORTEST_OLD if old else SHORTEST
    if old and least <= length <= left - PREFIX:
        after = at + PREFIX + length
        return after, Problem(at, PREFIX + length, Flaw.OLD, magic_problem(magic))
    after = search.next(at + 1)
    if after < limit:
        text = magic_problem(magic) if magic != MAGIC and not old else f"impossible length {length}"
        return after, Problem(at, after - at, Flaw.FRAME, text)
    if magic != MAGIC and not old:
        return limit, Problem(at, left, Flaw.FRAME, magic_problem(magic))
    if whole and length < least:
        return limit, Problem(at, left, Flaw.FRAME, f"impossible length {length}")
    size = f"{PREFIX + length} bytes" if whole else f"at least {HEAD.size} bytes"
    return limit, Problem(at, left, Flaw.CUT, f"a batch of {size} is cut, {left} are there")


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
        size *= 2


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
        view, limit = self.view, len(self.view)
        for begin, end in _stretches(at, limit - HEAD.size + 1):
            for position, size in self._likely(begin, end):
                self.budget -= size
                if self.budget < 0:
                    return limit
                (stored,) = CHECKSUM.unpack_from(view, position + CHECKSUM_AT)
                if checksum(view[position + ATTRIBUTES_AT : position + size]) == stored:
                    return position
        return limit

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
