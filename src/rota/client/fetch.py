"""Fetch: builds requests, reads the responses, and gives the records of a partition as columns.

``build_fetch`` makes a request for some partitions of one broker, and ``PreparedFetch.parse``
splits the response into one ``FetchedPartition`` each, still as bytes. ``read_batches`` decodes
those bytes into ``Batch`` objects.

Requests open no fetch session (KIP-227): each names all its partitions, so it does not depend on an
earlier one, and several may be in flight.

A response is decoded in portions of whole record batches, so the memory needed does not depend on
how much a broker sends or how well it was compressed. Left out is what does not concern a consumer:
control batches, records before the requested offset and, with ``read_committed``, aborted
transactions.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from rota.engine.formats import record_batch_columns
from rota.engine.formats.buffer import BoolArray, ByteBuffer, Int64Array
from rota.engine.formats.record_batch import (
    LENGTH_FIELD,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    BatchProblem,
    BatchProblemKind,
    ControlRecordType,
    read_batch_header,
)
from rota.engine.formats.record_batch_columns import BatchColumns, RecordColumns, decode_batches
from rota.engine.model.config import FetchConfig
from rota.engine.model.topic import NO_LEADER_EPOCH, TopicPartition
from rota.errors import RecordError
from rota.protocol.messages import ZERO_UUID, FetchRequest, FetchResponse

if TYPE_CHECKING:
    import pyarrow as pa

#: The lowest version that is spoken: the first with record batches of today's format.
MIN_VERSION = 4

#: The highest version in which topics are named; from the next on they have ids (KIP-516).
LAST_VERSION_WITH_NAMES = 12

NO_SESSION, FULL = 0, -1

NO_REPLICA = -1

NO_RECORDS = memoryview(b"")


class RequestedPartition(NamedTuple):
    """A partition in a Fetch request."""

    partition: TopicPartition
    #: ``NO_ID`` where the broker's metadata have none.
    topic_id: bytes
    offset: int
    #: The leader's, as the client knows it: an older or newer leader refuses (KIP-320).
    leader_epoch: int = NO_LEADER_EPOCH
    #: That of the last record before the offset: the leader says where its log parts from it
    #: (KIP-595). Kafka's own consumers ask by OffsetForLeaderEpoch instead, and leave this out.
    last_fetched_epoch: int = NO_LEADER_EPOCH
    #: ``max.partition.fetch.bytes``, if not the one that is set.
    max_bytes: int | None = None


class FetchedPartition(NamedTuple):
    """A partition in a Fetch response."""

    partition: TopicPartition
    #: An error's; 0 is none.
    error_code: int
    #: What was asked for.
    fetch_offset: int
    #: Record batches: of the answer's frame, which stays in memory as long as this.
    records: memoryview
    high_watermark: int
    #: Up to here transactions are decided; -1: not told.
    last_stable_offset: int
    #: The first offset there is; -1: not told.
    log_start_offset: int
    #: Aborted transactions that reach into the records: producer id and first offset.
    aborted_transactions: tuple[tuple[int, int], ...] = ()
    #: Where to fetch from instead (KIP-392); -1: here.
    preferred_read_replica: int = NO_REPLICA
    #: Where the leader's log parts from what the client read: epoch, and the epoch's end.
    diverging_epoch: tuple[int, int] | None = None
    #: With the codes 6 and 74: who leads now, and in which epoch (KIP-951), if it is told.
    current_leader: tuple[int, int] | None = None


class PreparedFetch:
    """A Fetch request, and how to read its response."""

    __slots__ = ("_wanted", "max_version", "message")

    def __init__(
        self, wanted: Mapping[tuple[object, int], RequestedPartition], message: FetchRequest
    ) -> None:
        self._wanted = wanted
        #: Good for every version from ``LOWEST`` to :attr:`most`.
        self.message = message
        #: The highest version it may be sent in; None: any.
        self.max_version = None if _all_have_ids(wanted) else LAST_VERSION_WITH_NAMES

    def parse(self, response: FetchResponse) -> list[FetchedPartition]:
        """Returns the partitions in the order of the response; skips those not requested."""
        if response.error_code:
            each_once = dict.fromkeys(self._wanted.values())
            return [_failed_partition(each, response.error_code) for each in each_once]
        found = []
        for topic in response.responses:
            name = topic.topic_id if topic.topic_id != ZERO_UUID else topic.topic
            for answer in topic.partitions:
                asked = self._wanted.get((name, answer.partition_index))
                if asked is not None:
                    found.append(_read_partition(asked, answer))
        return found


def build_fetch(
    wanted: Iterable[RequestedPartition],
    config: FetchConfig,
    *,
    max_bytes: int | None = None,
    max_wait: int | None = None,
) -> PreparedFetch:
    """Builds a request for partitions of one broker, in this order.

    :param max_bytes: limit of the whole response, instead of ``fetch.max.bytes``
    :param max_wait: milliseconds, instead of ``fetch.max.wait.ms``
    """
    make = FetchRequest.FetchPartition
    most = config.max_partition_bytes
    topics: list[FetchRequest.FetchTopic] = []
    known: dict[tuple[object, int], RequestedPartition] = {}
    for each in wanted:
        (name, number), topic_id, offset, epoch, last_epoch, limit = each
        known[name, number] = each
        if topic_id != ZERO_UUID:
            known[topic_id, number] = each
        if not topics or (topics[-1].topic, topics[-1].topic_id) != (name, topic_id):
            # a topic may come more than once: brokers read in this order until the answer is full
            topics.append(FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=[]))
        topics[-1].partitions.append(
            make(
                partition=number,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                partition_max_bytes=most if limit is None else limit,
            )
        )
    message = FetchRequest(
        max_wait_ms=config.fetch_max_wait if max_wait is None else max_wait,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes if max_bytes is None else max_bytes,
        isolation_level=int(config.committed_only),
        session_id=NO_SESSION,
        session_epoch=FULL,
        topics=topics,
        rack_id=config.rack or "",
    )
    return PreparedFetch(known, message)


def _all_have_ids(wanted: Mapping[tuple[object, int], RequestedPartition]) -> bool:
    return all(each.topic_id != ZERO_UUID for each in wanted.values())


def _read_partition(
    asked: RequestedPartition, answer: FetchResponse.PartitionData
) -> FetchedPartition:
    aborted = answer.aborted_transactions
    records = answer.records
    diverging, leader = answer.diverging_epoch, answer.current_leader
    if diverging is not None and diverging.epoch < 0:
        diverging = None
    return FetchedPartition(
        asked.partition,
        answer.error_code,
        asked.offset,
        memoryview(records) if records else NO_RECORDS,
        answer.high_watermark,
        answer.last_stable_offset,
        answer.log_start_offset,
        tuple([(each.producer_id, each.first_offset) for each in aborted]) if aborted else (),
        answer.preferred_read_replica,
        None if diverging is None else (diverging.epoch, diverging.end_offset),
        None if leader is None else (leader.leader_id, leader.leader_epoch),
    )


def _failed_partition(asked: RequestedPartition, code: int) -> FetchedPartition:
    return FetchedPartition(asked.partition, code, asked.offset, NO_RECORDS, -1, -1, -1)


#: Bytes of batches, decompressed, that are decoded together; one batch may have more.
PORTION_BYTES = 16 << 20

#: What is wrong with batches that have a head at least.
FLAWS_WITH_HEADER = frozenset(
    {
        BatchProblemKind.CHECKSUM,
        BatchProblemKind.CODEC,
        BatchProblemKind.SIZE,
        BatchProblemKind.RECORDS,
    }
)


def read_batches(
    fetched: FetchedPartition,
    *,
    check: bool = True,
    committed_only: bool = False,
    control: bool = False,
    portion: int = PORTION_BYTES,
) -> Iterator[Batch]:
    """Decodes the records of a response in portions; each has the next offset to read.

    A portion may be empty and still be progress: all its records were left out or compacted away. A
    batch that is cut at the end is ignored.

    :param check: verify checksums (``check.crcs``)
    :param committed_only: leave out aborted transactions (``read_committed``)
    :param control: include control records
    :raises RecordError: the next batch is damaged or has an unsupported format; the records before
        it are returned first
    """
    answer = _BatchReader(
        fetched, fetched.aborted_transactions if committed_only else (), control=control
    )
    view, at = fetched.records, 0
    while at < len(view):
        columns = decode_batches(
            view[at:], at=at, check=check, chunk_bytes=portion, may_end_cut=True
        )
        at = columns.end_position
        problem = answer.first_problem(columns)
        sound = columns if problem is None else _batches_before(columns, problem)
        if len(sound.batches):
            yield answer.make_batch(sound)
        if problem is not None:
            raise answer.make_error(problem, columns)
        del columns, sound  # not while the next are decoded


class _BatchReader:
    """How far an answer was read."""

    def __init__(
        self, fetched: FetchedPartition, aborted: Sequence[tuple[int, int]], *, control: bool
    ) -> None:
        self.control = control
        self.source: TopicPartition = fetched.partition
        self.view = fetched.records
        self.position = fetched.fetch_offset
        self.epoch = NO_LEADER_EPOCH
        self.transactions = _AbortedTransactions(aborted)
        self.empty = True

    def first_problem(self, columns: RecordColumns) -> BatchProblem | None:
        """The first that cannot be passed over."""
        for problem in columns.problems:
            nothing = self.empty and not len(columns.batches)
            if problem.kind is not BatchProblemKind.CUT or nothing:
                return problem
        return None

    def make_batch(self, columns: RecordColumns) -> Batch:
        """The records of these batches that concern a consumer."""
        self.empty = False
        batches = columns.batches
        keep = columns.offset >= self.position
        drop = self.transactions.find_aborted(batches)
        if not self.control:
            drop |= batches.control
        if drop.any():
            keep &= ~drop[columns.batch]
        if not keep.all():
            columns = columns.select(keep)
        offset = columns.offset
        if (offset[1:] <= offset[:-1]).any():  # no broker sends that; nothing is handed out twice
            columns = columns.select(
                np.append(True, offset[1:] > np.maximum.accumulate(offset)[:-1])
            )
        last = int(columns.offset.max(initial=-1))
        self.position = max(self.position, int(batches.last_offset.max()) + 1, last + 1)
        self.epoch = int(batches.leader_epoch[-1])
        return Batch(self.source, columns, slice(0, len(columns)), self.position, self.epoch)

    def make_error(self, problem: BatchProblem, columns: RecordColumns) -> RecordError:
        """What is wrong, where, and how to go on behind it."""
        behind = max(self._offset_after(problem, columns), self.position + 1)
        offset = self.position
        if problem.kind in FLAWS_WITH_HEADER:
            base = read_batch_header(self.view, problem.position).base_offset
            offset = base if offset < base < behind else offset
        text = problem.text
        if problem.kind is BatchProblemKind.CUT:
            text += ", and nothing whole before it (max.partition.fetch.bytes)"
        return RecordError(*self.source, offset, text, next_offset=behind)

    def _offset_after(self, problem: BatchProblem, columns: RecordColumns) -> int:
        """The offset behind what is damaged, as far as it can be known."""
        after = columns.batches.position > problem.position
        if after.any():  # it proved itself by its checksum, which a damaged head does not
            return int(columns.batches.base_offset[after][0])
        if problem.kind in FLAWS_WITH_HEADER:
            return read_batch_header(self.view, problem.position).last_offset + 1
        if problem.kind is BatchProblemKind.OLD:
            return _last_old_offset(self.view, problem) + 1
        return self.position + 1


class _AbortedTransactions:
    """Knows of each producer whether what it writes at a place of the log was aborted."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._not_started = sorted(aborted, key=itemgetter(1), reverse=True)
        self._producers = np.array(sorted({producer for producer, _ in aborted}), dtype=np.int64)
        #: Producers with a transaction that has begun and will be aborted.
        self._aborted_producers: set[int] = set()

    def find_aborted(self, batches: BatchColumns) -> BoolArray:
        """Which batches of data come from aborted transactions."""
        drop = np.zeros(len(batches), dtype=np.bool_)
        if not len(self._producers):
            return drop
        concerned = batches.transactional & np.isin(batches.producer_id, self._producers)
        rows = np.flatnonzero(concerned)
        columns = (batches.producer_id, batches.last_offset, batches.control, batches.marker)
        lists = [column[rows].tolist() for column in columns]
        for row, producer, last, control, marker in zip(rows.tolist(), *lists, strict=True):
            while self._not_started and self._not_started[-1][1] <= last:
                self._aborted_producers.add(self._not_started.pop()[0])
            if not control:
                drop[row] = producer in self._aborted_producers
            elif marker == ControlRecordType.ABORT:
                self._aborted_producers.discard(producer)
        return drop


def _batches_before(columns: RecordColumns, problem: BatchProblem) -> RecordColumns:
    """The batches before what is damaged."""
    return columns.first_batches(int(np.searchsorted(columns.batches.position, problem.position)))


def _last_old_offset(view: memoryview, problem: BatchProblem) -> int:
    """The offset of the last message of an old format in a stretch of them."""
    at, last = problem.position, 0
    while at < problem.position + problem.size:
        last = int.from_bytes(view[at : at + LENGTH_OFFSET], signed=True)
        at += LOG_OVERHEAD + LENGTH_FIELD.unpack_from(view, at + LENGTH_OFFSET)[0]
    return last


Headers = tuple[tuple[str, bytes | None], ...]

NO_HEADERS: Headers = ()

#: Pieces of one size from which on they are cut out faster together.
MIN_RUN_LENGTH = 64

#: Pieces that are cut out at once; what is remembered of that takes 64 bytes for each.
MAX_UNPACK_COUNT = 500


class Batch:
    """Records in the order of their offsets, a row for each.

    ``batch[a:b]`` are some of them; that copies nothing. Columns are NumPy arrays, keys and values
    are lists of bytes, and :meth:`to_arrow` gives all of it without an object for each record.
    Columns are views of the broker's answer, which stays in memory as long as one of its batches.
    """

    __slots__ = ("columns", "next_epoch", "next_offset", "rows", "source")

    def __init__(
        self,
        source: TopicPartition,
        columns: RecordColumns,
        rows: slice,
        next_offset: int,
        next_epoch: int,
    ) -> None:
        #: The partition.
        self.source = source
        self.columns = columns
        #: Which rows of the columns; both its bounds are given.
        self.rows = rows
        #: Where to read on: behind the last row, and what was left out after it.
        self.next_offset = next_offset
        #: The leader's epoch of what is before that offset, as a commit has it; -1: none.
        self.next_epoch = next_epoch

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.source.topic

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self.source.partition

    def __len__(self) -> int:
        length: int = self.rows.stop - self.rows.start
        return length

    def __getitem__(self, rows: slice) -> Batch:
        begin, end, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"rows are taken one after the other, not by {step}")
        first, stop = self.rows.start + begin, self.rows.start + max(begin, end)
        behind = self.next_offset, self.next_epoch
        if stop < self.rows.stop:  # what is left out between two rows is left to the second
            row = max(stop - 1, 0)
            epoch = self.columns.batches.leader_epoch[self.columns.batch[row]]
            behind = int(self.columns.offset[row]) + (stop > 0), int(epoch)
        return Batch(self.source, self.columns, slice(first, stop), *behind)

    def __repr__(self) -> str:
        return f"<{len(self)} records of {self.source}, next offset {self.next_offset}>"

    @property
    def offsets(self) -> Int64Array:
        """Ascending, with gaps where compaction or transactions left them."""
        return self.columns.offset[self.rows]

    @property
    def timestamps(self) -> Int64Array:
        """Milliseconds since 1970; -1: none."""
        return self.columns.timestamp[self.rows]

    @property
    def timestamp_types(self) -> npt.NDArray[np.int32]:
        """0: set by the producer, 1: by the broker."""
        return self.columns.batches.append_time[self.columns.batch[self.rows]].astype(np.int32)

    @property
    def leader_epochs(self) -> Int64Array:
        """The epoch of the leader that took the record; -1: not known."""
        return self.columns.batches.leader_epoch[self.columns.batch[self.rows]]

    @property
    def key_column(self) -> BytesColumn:
        """The records' keys, still in the broker's answer."""
        columns, rows = self.columns, self.rows
        return BytesColumn(columns.buffer, columns.key_start[rows], columns.key_size[rows])

    @property
    def value_column(self) -> BytesColumn:
        """The records' values, still there."""
        columns, rows = self.columns, self.rows
        return BytesColumn(columns.buffer, columns.value_start[rows], columns.value_size[rows])

    def keys(self) -> list[bytes | None]:
        """The records' keys."""
        return self.key_column.slice_rows(0, len(self))

    def values(self) -> list[bytes | None]:
        """The records' values."""
        return self.value_column.slice_rows(0, len(self))

    def headers(self) -> Sequence[Headers]:
        """The records' headers. What is no UTF-8 in a name is replaced by U+FFFD, as in Kafka."""
        counts = self.columns.headers[self.rows]
        if not counts.any():
            return [NO_HEADERS] * len(self)
        buffer = self.columns.buffer
        found = record_batch_columns.read_header_columns(
            buffer, self.columns.headers_start[self.rows], counts
        )
        names = slice_buffer(buffer, found.name_start, found.name_size)
        text = {name: str(name or b"", "utf-8", "replace") for name in set(names)}
        values = slice_buffer(buffer, found.value_start, found.value_size)
        pairs = list(zip(map(text.__getitem__, names), values, strict=True))
        behind = np.cumsum(counts)
        bounds = zip((behind - counts).tolist(), behind.tolist(), strict=True)
        return [tuple(pairs[a:b]) for a, b in bounds]

    @property
    def has_headers(self) -> bool:
        """Some record has."""
        return bool(self.columns.headers[self.rows].any())

    def spans(self) -> list[tuple[int, bool, int]]:
        """Rows that follow each other and were written alike: how many, whether the broker set
        their timestamps, and the leader's epoch. One, as a rule.
        """
        if not len(self):
            return []
        rows = self.columns.batch[self.rows]
        batches = self.columns.batches
        between = slice(rows[0], rows[-1] + 1)
        by_broker, epoch = batches.append_time[between], batches.leader_epoch[between]
        changed = (by_broker[1:] != by_broker[:-1]) | (epoch[1:] != epoch[:-1])
        if not changed.any():
            return [(len(self), bool(by_broker[0]), int(epoch[0]))]
        firsts = np.append(0, np.flatnonzero(changed) + 1)
        counts = np.diff(np.searchsorted(rows, firsts + rows[0]), append=len(self))
        kinds, epochs = by_broker[firsts].tolist(), epoch[firsts].tolist()
        found = zip(counts.tolist(), kinds, epochs, strict=True)
        return [each for each in found if each[0]]

    def to_arrow(self) -> pa.RecordBatch:
        """A ``pyarrow.RecordBatch`` with the columns of Spark's Kafka source: ``key``, ``value``,
        ``topic``, ``partition``, ``offset``, ``timestamp`` (microseconds, UTC; null if there is
        none), ``timestampType`` and ``headers`` (null if there are none).

        :raises InputError: pyarrow is not installed, or there are so many rows that Arrow cannot
            count the bytes of a column; take some of them
        :raises RecordError: a timestamp is too far off to be counted in microseconds
        """
        from rota.client.arrow import make_record_batch  # noqa: PLC0415 only who needs it has pyarrow

        return make_record_batch(self)


def slice_buffer(buffer: ByteBuffer, start: Int64Array, size: Int64Array) -> list[bytes | None]:
    """Pieces of a buffer; None where a size is negative."""
    return BytesColumn(buffer, start, size).slice_rows(0, len(size))


class BytesColumn:
    """A column of byte strings, None where a size is negative.

    They are cut out of the buffer some rows at a time; the fastest way to do so is chosen once.
    """

    __slots__ = ("_bounds", "_buffer", "_runs")

    def __init__(self, buffer: ByteBuffer, start: Int64Array, size: Int64Array) -> None:
        null = size < 0
        self._buffer = buffer
        self._runs = [] if null.any() else _find_runs(start, size)
        #: Where pieces begin and end; None: there are none, or they are in runs.
        self._bounds: tuple[list[int], list[int]] | None = None
        if not self._runs and not null.all():
            self._bounds = start.tolist(), (start + size).tolist()

    def slice_rows(self, begin: int, behind: int) -> list[bytes | None]:
        """Those of the rows from one to before another."""
        found: list[bytes | None] = []
        if self._bounds is not None:
            data = self._buffer.data
            pairs = zip(*(each[begin:behind] for each in self._bounds), strict=True)
            found += [data[a:b] if a <= b else None for a, b in pairs]
        elif self._runs:
            for run in self._runs:
                if run.first < behind and begin < run.stop:
                    run.slice_rows(self._buffer.view, begin, behind, found)
        else:
            found += [None] * (behind - begin)
        return found


class _UniformRun(NamedTuple):
    """Pieces of one size, equally far apart."""

    first: int
    #: Rows, from one to before the other.
    stop: int
    start: int
    size: int
    gap: int

    def slice_rows(
        self, view: memoryview, begin: int, behind: int, found: list[bytes | None]
    ) -> None:
        """Adds those from one row to before another."""
        first, stop, start, size, between = self
        stop = min(stop, behind)
        for row in range(max(first, begin), stop, MAX_UNPACK_COUNT):
            layout = _run_struct(size, between, min(stop - row, MAX_UNPACK_COUNT))
            found += layout.unpack_from(view, start + (row - first) * (size + between))


def _find_runs(start: Int64Array, size: Int64Array) -> list[_UniformRun]:
    """Such runs if they are long, as those of records of one size are: to cut out their pieces
    together takes a quarter of the time. Else none.
    """
    step = np.diff(start)
    changed = size[1:] != size[:-1]
    changed[:-1] |= step[1:] != step[:-1]
    bounds = [0, *(np.flatnonzero(changed) + 1).tolist(), len(start)]
    if len(bounds) > len(start) // MIN_RUN_LENGTH:
        return []
    found = []
    for first, behind in pairwise(bounds):
        each = int(size[first])
        between = int(step[first]) - each if behind - first > 1 else 0
        if between < 0:
            return []
        found.append(_UniformRun(first, behind, int(start[first]), each, between))
    return found


@functools.lru_cache(maxsize=64)
def _run_struct(size: int, between: int, count: int) -> Struct:
    """So many pieces of a size, with so much between them."""
    return Struct(f"{size}s" + f"{between}x{size}s" * (count - 1))
