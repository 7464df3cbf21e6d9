"""Batches on their way to their records: checked, decompressed, and told of where that fails."""

from __future__ import annotations

import numpy as np

from rota.errors import FormatError
from rota.formats.batch import checksum
from rota.formats.batch.codec import TooLarge, decompress
from rota.formats.batch.header import ATTRIBUTES_AT, CODEC_BITS, FIELDS, HEAD, Codec
from rota.formats.batch.problem import Flaw, Problem
from rota.formats.batch.scalar import SMALLEST_RECORD, Body
from rota.formats.batch.walk import walk
from rota.formats.buffer import BoolArray, Buffer, Int64Array

MOST_IN_ALL = 1 << 30
"""The most bytes that the batches of one buffer may have together, decompressed."""
MOST_EXPLAINED = 10_000
"""Records of a batch that are read one by one, only to say what is wrong with one of them."""


class Content:
    """The batches of a buffer that are still good, a row for each."""

    def __init__(
        self, view: memoryview, portion: int | None = None, *, may_end_cut: bool = False
    ) -> None:
        """As in :func:`rota.formats.batch.column.decode`."""
        found = walk(view, may_end_cut=may_end_cut)
        self.view = view
        self.upto = len(view)
        self.problems = list(found.problems)
        self.position = found.positions
        self.size = found.sizes
        self._portion = portion
        rows = max(len(view) - HEAD.size + 1, 0)
        self.heads = np.ndarray((rows,), FIELDS, view, strides=(1,))[found.positions]
        self.count: Int64Array = self.heads["count"].astype(np.int64)
        self.start: Int64Array = self.position + HEAD.size
        self.limit: Int64Array = self.position + self.size
        """Where the records are: in the view, and once opened in the buffer."""
        if portion is not None and len(view) > portion:
            self._end_before(max(int(np.searchsorted(self.size.cumsum(), portion, "right")), 1))
            self.view = view[: self.upto]

    def check(self) -> None:
        """Takes out batches whose checksum is wrong."""
        crc, view = checksum.function(), self.view
        begins = (self.position + ATTRIBUTES_AT).tolist()
        made = [crc(view[a:b]) for a, b in zip(begins, self.limit.tolist(), strict=True)]
        stored = self.heads["checksum"]
        bad = np.flatnonzero(np.array(made, dtype=np.uint32) != stored)
        found = {
            row: (Flaw.CHECKSUM, f"checksum {made[row]:08x}, its head says {stored[row]:08x}")
            for row in bad.tolist()
        }
        self._refuse(found)

    def open(self, most: int, most_in_all: int) -> None:
        """Decompresses; the records of all batches are in one buffer then."""
        pieces: list[memoryview | bytes] = [self.view]
        size = len(self.view)
        left = most_in_all
        found = {}
        compressed = (self.heads["attributes"] & CODEC_BITS != Codec.NONE) & (self.count > 0)
        for row in np.flatnonzero(compressed).tolist():
            data = self.view[int(self.start[row]) : int(self.limit[row])]
            codec = int(self.heads["attributes"][row]) & CODEC_BITS
            room = min(most, left)
            enough = room
            if row and self._portion is not None:
                enough = min(room, max(self._portion - (size - len(self.view)), 0))
            try:
                piece = decompress(codec, data, enough)
            except FormatError as error:
                found[row] = Flaw.CODEC, str(error)
            except TooLarge:
                if enough < room:
                    self._end_before(row)
                    break
                found[row] = Flaw.SIZE, f"more than {room} bytes, decompressed"
            else:
                pieces.append(piece)
                self.start[row], self.limit[row] = size, size + len(piece)
                size += len(piece)
                left -= len(piece)
        self.limit = np.where(self.count == 0, self.start, self.limit)
        for row in np.flatnonzero(self._impossible()).tolist():
            size = self.limit[row] - self.start[row]
            text = f"impossible count {self.count[row]}, {size} bytes there"
            found.setdefault(row, (Flaw.RECORDS, text))
        self._refuse(found)
        self.buffer = Buffer(pieces)

    def _end_before(self, row: int) -> None:
        """Leaves this batch and those behind it for another time."""
        if row < len(self.position):
            self.upto = int(self.position[row])
            self.problems = [each for each in self.problems if each.position < self.upto]
            self._keep(np.arange(len(self.position)) < row)

    def _impossible(self) -> BoolArray:
        room = (self.limit - self.start) // SMALLEST_RECORD
        return (self.count < 0) | (self.count > room)

    def refuse_records(self, bad: BoolArray) -> None:
        """Takes out batches whose records do not follow the format."""
        found = {row: (Flaw.RECORDS, self._reason(row)) for row in np.flatnonzero(bad).tolist()}
        self._refuse(found)

    def _reason(self, row: int) -> str:
        if self.count[row] > MOST_EXPLAINED:
            return "its records do not follow the format"
        body = Body(self.buffer.data[int(self.start[row]) : int(self.limit[row])])
        try:
            body.records(int(self.count[row]), 0, 0)
        except FormatError as error:
            return str(error)
        raise AssertionError("the readers of one and of many batches do not agree")

    def _refuse(self, found: dict[int, tuple[Flaw, str]]) -> None:
        if not found:
            return
        for row, (flaw, text) in found.items():
            position, size = int(self.position[row]), int(self.size[row])
            self.problems.append(Problem(position, size, flaw, text))
        keep = np.ones(len(self.position), dtype=np.bool_)
        keep[list(found)] = False
        self._keep(keep)

    def _keep(self, rows: BoolArray) -> None:
        self.heads, self.count = self.heads[rows], self.count[rows]
        self.position, self.size = self.position[rows], self.size[rows]
        self.start, self.limit = self.start[rows], self.limit[rows]
