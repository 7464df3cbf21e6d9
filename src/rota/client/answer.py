"""The records in a partition's answer to a Fetch.

An answer is read in portions of whole record batches, so that what it takes of memory does not
depend on how much a broker sends, or how well that was compressed. Left out is what does not
concern a consumer: control batches, records before the offset that was asked for and, with
``read_committed``, aborted transactions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

import numpy as np

from rota.client.batch import Batch
from rota.client.fetch import Fetched
from rota.errors import RecordError
from rota.formats.batch import Batches, Columns, Flaw, Marker, Problem, decode, read_header
from rota.formats.batch.header import LENGTH, LENGTH_AT, PREFIX
from rota.formats.buffer import BoolArray
from rota.model.offset import NO_EPOCH
from rota.model.topic import TopicPartition

PORTION = 16 << 20
"""Bytes of batches, decompressed, that are decoded together; one batch may have more."""
HEADED = frozenset({Flaw.CHECKSUM, Flaw.CODEC, Flaw.SIZE, Flaw.RECORDS})
"""What is wrong with batches that have a head at least."""


def read(
    fetched: Fetched,
    *,
    check: bool = True,
    committed_only: bool = False,
    control: bool = False,
    portion: int = PORTION,
) -> Iterator[Batch]:
    """The records in portions; each says where to read on, the last behind all that came.

    A portion may have no records and still be progress: all of it was left out, or compacted away.
    A batch that is cut at the end is not looked at.

    :param check: compare checksums (``check.crcs``)
    :param committed_only: leave out aborted transactions (``read_committed``)
    :param control: have control records, too
    :raises RecordError: what comes next is damaged, or of a format that is not read; the records
        before it are handed out first
    """
    answer = _Answer(fetched, fetched.aborted if committed_only else (), control=control)
    view, at = fetched.records, 0
    while at < len(view):
        columns = decode(view[at:], at=at, check=check, portion=portion, may_end_cut=True)
        at = columns.upto
        problem = answer.problem(columns)
        sound = columns if problem is None else _before(columns, problem)
        if len(sound.batches):
            yield answer.batch(sound)
        if problem is not None:
            raise answer.error(problem, columns)
        del columns, sound  # not while the next are decoded


class _Answer:
    """How far an answer was read."""

    def __init__(
        self, fetched: Fetched, aborted: Sequence[tuple[int, int]], *, control: bool
    ) -> None:
        self.control = control
        self.source: TopicPartition = fetched.partition
        self.view = fetched.records
        self.position = fetched.fetch_offset
        self.epoch = NO_EPOCH
        self.transactions = _Transactions(aborted)
        self.empty = True

    def problem(self, columns: Columns) -> Problem | None:
        """The first that cannot be passed over."""
        for problem in columns.problems:
            nothing = self.empty and not len(columns.batches)
            if problem.flaw is not Flaw.CUT or nothing:
                return problem
        return None

    def batch(self, columns: Columns) -> Batch:
        """The records of these batches that concern a consumer."""
        self.empty = False
        batches = columns.batches
        keep = columns.offset >= self.position
        drop = self.transactions.aborted(batches)
        if not self.control:
            drop |= batches.control
        if drop.any():
            keep &= ~drop[columns.batch]
        if not keep.all():
            columns = columns.only(keep)
        offset = columns.offset
        if (offset[1:] <= offset[:-1]).any():  # no broker sends that; nothing is handed out twice
            columns = columns.only(np.append(True, offset[1:] > np.maximum.accumulate(offset)[:-1]))
        last = int(columns.offset.max(initial=-1))
        self.position = max(self.position, int(batches.last_offset.max()) + 1, last + 1)
        self.epoch = int(batches.leader_epoch[-1])
        return Batch(self.source, columns, slice(0, len(columns)), self.position, self.epoch)

    def error(self, problem: Problem, columns: Columns) -> RecordError:
        """What is wrong, where, and how to go on behind it."""
        behind = max(self._behind(problem, columns), self.position + 1)
        offset = self.position
        if problem.flaw in HEADED:
            base = read_header(self.view, problem.position).base_offset
            offset = base if offset < base < behind else offset
        text = problem.text
        if problem.flaw is Flaw.CUT:
            text += ", and nothing whole before it (max.partition.fetch.bytes)"
        return RecordError(*self.source, offset, text, next_offset=behind)

    def _behind(self, problem: Problem, columns: Columns) -> int:
        """The offset behind what is damaged, as far as it can be known."""
        after = columns.batches.position > problem.position
        if after.any():  # it proved itself by its checksum, which a damaged head does not
            return int(columns.batches.base_offset[after][0])
        if problem.flaw in HEADED:
            return read_header(self.view, problem.position).last_offset + 1
        if problem.flaw is Flaw.OLD:
            return _last_old(self.view, problem) + 1
        return self.position + 1


class _Transactions:
    """Knows of each producer whether what it writes at a place of the log was aborted."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._ahead = sorted(aborted, key=itemgetter(1), reverse=True)
        self._producers = np.array(sorted({producer for producer, _ in aborted}), dtype=np.int64)
        self._open: set[int] = set()
        """Producers with a transaction that has begun and will be aborted."""

    def aborted(self, batches: Batches) -> BoolArray:
        """Which batches of data come from aborted transactions."""
        drop = np.zeros(len(batches), dtype=np.bool_)
        if not len(self._producers):
            return drop
        concerned = batches.transactional & np.isin(batches.producer_id, self._producers)
        rows = np.flatnonzero(concerned)
        columns = (batches.producer_id, batches.last_offset, batches.control, batches.marker)
        lists = [column[rows].tolist() for column in columns]
        for row, producer, last, control, marker in zip(rows.tolist(), *lists, strict=True):
            while self._ahead and self._ahead[-1][1] <= last:
                self._open.add(self._ahead.pop()[0])
            if not control:
                drop[row] = producer in self._open
            elif marker == Marker.ABORT:
                self._open.discard(producer)
        return drop


def _before(columns: Columns, problem: Problem) -> Columns:
    """The batches before what is damaged."""
    return columns.of_first(int(np.searchsorted(columns.batches.position, problem.position)))


def _last_old(view: memoryview, problem: Problem) -> int:
    """The offset of the last message of an old format in a stretch of them."""
    at, last = problem.position, 0
    while at < problem.position + problem.size:
        last = int.from_bytes(view[at : at + LENGTH_AT], signed=True)
        at += PREFIX + LENGTH.unpack_from(view, at + LENGTH_AT)[0]
    return last
