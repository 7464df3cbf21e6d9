"""One partition's answer, from its bytes to the records that are handed out, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy

from rota.client.answer import read
from rota.client.batch import Batch
from rota.client.fetch import Fetched
from rota.consumer.entry import Position
from rota.consumer.making import Deserializer, Made, Making
from rota.consumer.record import ConsumerRecord
from rota.errors import RecordError
from rota.model.client import ReadConfig
from rota.model.offset import NO_EPOCH

ROWS = 500
"""Records that are made at once. Each is an object that the garbage collector looks at once 700 new
ones are alive (``gc.get_threshold()``); with fewer, which are dropped before the next are made, it
has nothing to do. That halves the time a record takes.
"""
STRETCH = 16 * ROWS
"""Records whose making is begun at once: what is known of each of them takes a hundred bytes."""


def behind(rows: Batch) -> Position:
    """Where to read on after these."""
    return Position(rows.next_offset, None if rows.next_epoch == NO_EPOCH else rows.next_epoch)


class Waiting:
    """An answer that waits its turn.

    It is decoded portion by portion (:meth:`open`), records are made of a portion's rows
    (:meth:`prepare`), and both are handed out by the methods that take.
    """

    __slots__ = (
        "_at",
        "_batches",
        "_fetched",
        "_flaw",
        "_made",
        "_making",
        "_row",
        "_rows",
        "error",
        "is_empty",
        "partition",
        "passed",
        "size",
        "stamp",
    )

    def __init__(self, fetched: Fetched, stamp: int) -> None:
        self.partition = fetched.partition
        self.stamp = stamp
        self.size = len(fetched.records)
        self.error: RecordError | None = None
        """What comes next cannot be read."""
        self.is_empty = False
        """That was all."""
        self.passed: Batch | None = None
        """Without records, but to be read on behind: all of it was left out, or compacted away."""
        self._fetched = fetched
        self._batches: Iterator[Batch] | None = None
        self._rows: Batch | None = None
        """The portion that is being handed out."""
        self._row = 0
        """Its first row that was not."""
        self._making: tuple[Making, int] | None = None
        """A stretch of it that records are made of, and its first row."""
        self._made: list[ConsumerRecord] = []
        self._at = 0
        """The first of those made that was not handed out."""
        self._flaw: RecordError | None = None
        """What is wrong with the record behind those made."""

    @property
    def ready(self) -> int:
        """How many records are made, and were not handed out."""
        return len(self._made) - self._at

    @property
    def is_begun(self) -> bool:
        """Some of it was decoded, and perhaps handed out."""
        return self._batches is not None

    @property
    def is_open(self) -> bool:
        """Nothing is to be decoded before the next rows, or their error, are known."""
        return self._rows is not None or self.error is not None or self.is_empty

    @property
    def is_through(self) -> bool:
        """All of it was handed out."""
        return self.is_empty and self.error is None and self.passed is None

    def open(self, config: ReadConfig) -> None:
        """Decodes the next portion, if none is under way; there is none, or an error, else."""
        while self._rows is None and self.error is None and not self.is_empty:
            if self._batches is None:
                check, committed_only = config.check_crcs, config.committed_only
                self._batches = read(self._fetched, check=check, committed_only=committed_only)
            try:
                rows = next(self._batches, None)
            except RecordError as error:
                self.error = error
                return
            except BaseException:
                # Ctrl-C has ended the generator: the next one reads on where this one was
                self._batches = None
                raise
            if rows is None:
                self.is_empty = True
                return
            self._fetched = self._fetched._replace(fetch_offset=rows.next_offset)
            if len(rows):
                self._rows, self._row, self._making = rows, 0, None
            else:
                self.passed = rows

    def prepare(
        self, config: ReadConfig, key: Deserializer | None, value: Deserializer | None, most: int
    ) -> None:
        """Makes the next records, unless some are made, but not more than so many. An error of a
        deserializer waits until those before it are handed out.
        """
        if self.ready:
            return
        self.open(config)
        if self._rows is None:
            return
        records, flaw = self._make(self._rows, key, value, min(most, ROWS))
        if records:
            self._made, self._at, self._flaw = records, 0, flaw
        else:
            self.error = flaw

    def _make(
        self, rows: Batch, key: Deserializer | None, value: Deserializer | None, most: int
    ) -> Made:
        making, begin = self._making or (None, 0)
        if making is None or self._row >= begin + len(making):
            making, begin = Making(rows[self._row : self._row + STRETCH], key, value), self._row
            self._making = making, begin
        return making.make(self._row - begin, self._row - begin + most)

    def take(self, most: int) -> tuple[list[ConsumerRecord], Position]:
        """Records that are made, one at least, and where to read on behind them."""
        assert self._rows is not None
        records = self._made[self._at : self._at + most]
        if self._row + len(records) == len(self._rows):
            return records, behind(self._rows)
        last = records[-1]
        return records, Position(last.offset + 1, last.leader_epoch)

    def took(self, count: int) -> None:
        """So many rows were handed out."""
        assert self._rows is not None
        self._row += count
        self._at += count
        if self._at >= len(self._made):
            self._made, self._at = [], 0
            self.error, self._flaw = self._flaw, None
        if self._row >= len(self._rows):
            self._rows = None

    def take_rows(self) -> Batch:
        """All rows of the portion that were not handed out; what was made of them is forgotten."""
        assert self._rows is not None
        self._made, self._at, self._flaw = [], 0, None
        return self._rows[self._row :]

    def stumble(self) -> RecordError:
        """The error whose turn has come. The next time it is another: an exception keeps all frames
        alive that it came through, and so what was decoded, and what the application had there.
        """
        assert self.error is not None
        error, self.error = self.error, copy(self.error)
        self._rows = self._making = self._batches = None
        return error

    def shrink(self) -> None:
        """Keeps its own bytes alone, as they came and not decoded: it may be here for long, and the
        frame has others' too. It goes on with the first row that was not handed out.
        """
        own = memoryview(bytes(self._fetched.records))
        at = self._fetched.fetch_offset if self._rows is None else self._rows.offsets[self._row]
        self._fetched = self._fetched._replace(records=own, fetch_offset=int(at))
        self._rows = self._making = self._batches = self._flaw = None
        self._made, self._at = [], 0
