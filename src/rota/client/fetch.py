"""Fetch: builds requests, reads responses, and returns the records of a partition as columns.

The loops of the consumer (:mod:`rota.consumer.fetcher`) and of the Spark tasks
(:mod:`rota.spark.task`) both use this module. Requests open no fetch session (KIP-227): each names
all its partitions, so it does not depend on an earlier request, and several may be in flight.

A response is decoded in portions of whole record batches. So the memory needed does not depend on
the size of a response or on how well it was compressed. Control batches, records before the
requested offset and, with ``read_committed``, aborted transactions are left out.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from rota.client.metadata import ClusterMetadata
from rota.client.retry import STALE_METADATA_CODES, TRANSIENT_CODES, partition_error
from rota.engine.formats import record_batch_columns
from rota.engine.formats.buffer import BoolArray, ByteBuffer, Int64Array
from rota.engine.formats.record_batch import (
    HEADER,
    LENGTH_FIELD,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_OFFSET,
    SHORTEST_BATCH_LENGTH,
    BatchProblem,
    BatchProblemKind,
    ControlRecordType,
    read_batch_header,
)
from rota.engine.formats.record_batch_columns import BatchColumns, RecordColumns, decode_batches
from rota.engine.model.config import FetchConfig
from rota.engine.model.topic import NO_LEADER_EPOCH, TopicPartition
from rota.errors import Code, RecordError, RotaError
from rota.protocol.messages import ZERO_UUID, FetchRequest, FetchResponse

if TYPE_CHECKING:
    import pyarrow as pa

LAST_VERSION_WITH_NAMES = 12  # the highest version with topic names; later: ids (KIP-516)
NO_SESSION, FULL = 0, -1
NO_REPLICA = -1
NO_RECORDS = memoryview(b"")


class FetchPosition(NamedTuple):
    """The next offset to read, and the leader epoch of the record before it, if known."""

    offset: int
    epoch: int | None = None


class RequestedPartition(NamedTuple):
    partition: TopicPartition
    topic_id: bytes  # ``ZERO_UUID`` if the broker's metadata has no topic ids
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH  # a leader of another epoch refuses the request (KIP-320)
    max_bytes: int | None = None  # replaces ``max.partition.fetch.bytes``


def request_partition(
    metadata: ClusterMetadata,
    partition: TopicPartition,
    offset: int,
    *,
    leader_epoch: int | None = None,
    max_bytes: int | None = None,
) -> RequestedPartition:
    """Returns a partition for :func:`build_fetch`; by default with the newest known epoch."""
    topic, known = metadata.topics.get(partition.topic), metadata.partition(partition)
    if leader_epoch is None:
        leader_epoch = NO_LEADER_EPOCH if known is None else known.leader_epoch
    topic_id = ZERO_UUID if topic is None else topic.id
    return RequestedPartition(partition, topic_id, offset, leader_epoch, max_bytes)


class FetchedPartition(NamedTuple):
    """A partition in a Fetch response. -1 stands for an offset that the broker does not report."""

    partition: TopicPartition
    error_code: int
    fetch_offset: int
    records: memoryview  # record batches: a view that keeps the whole response in memory
    high_watermark: int
    last_stable_offset: int  # all transactions before this offset are decided
    log_start_offset: int
    #: Aborted transactions that overlap the records: producer id and first offset.
    aborted_transactions: tuple[tuple[int, int], ...] = ()
    preferred_read_replica: int = NO_REPLICA  # the broker to fetch from instead (KIP-392)


class PreparedFetch:
    def __init__(
        self, requested: Mapping[tuple[object, int], RequestedPartition], message: FetchRequest
    ) -> None:
        self._requested = requested
        self.message = message
        #: The highest version in which the message may be sent; None: any.
        has_ids = all(each.topic_id != ZERO_UUID for each in requested.values())
        self.max_version = None if has_ids else LAST_VERSION_WITH_NAMES

    def parse(self, response: FetchResponse) -> list[FetchedPartition]:
        """Returns the partitions in the order of the response; skips those not requested."""
        if response.error_code:
            code = response.error_code
            return [
                FetchedPartition(each.partition, code, each.offset, NO_RECORDS, -1, -1, -1)
                for each in dict.fromkeys(self._requested.values())
            ]
        partitions = []
        for topic in response.responses:
            name = topic.topic_id if topic.topic_id != ZERO_UUID else topic.topic
            for data in topic.partitions:
                requested = self._requested.get((name, data.partition_index))
                if requested is not None:
                    partitions.append(_read_partition(requested, data))
        return partitions


def build_fetch(
    partitions: Iterable[RequestedPartition],
    config: FetchConfig,
    *,
    max_bytes: int | None = None,
    max_wait: int | None = None,
) -> PreparedFetch:
    """Builds a request for partitions of one broker; ``max_bytes`` limits the whole response."""
    make, partition_bytes = FetchRequest.FetchPartition, config.max_partition_bytes
    topics: list[FetchRequest.FetchTopic] = []
    requested: dict[tuple[object, int], RequestedPartition] = {}
    for each in partitions:
        (name, number), topic_id, offset, epoch, limit = each
        requested[name, number] = each
        if topic_id != ZERO_UUID:
            requested[topic_id, number] = each
        if not topics or (topics[-1].topic, topics[-1].topic_id) != (name, topic_id):
            # a topic may be there twice: a broker reads in this order until the response is full
            topics.append(FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=[]))
        topics[-1].partitions.append(
            make(
                partition=number,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                partition_max_bytes=partition_bytes if limit is None else limit,
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
    return PreparedFetch(requested, message)


def _read_partition(
    requested: RequestedPartition, data: FetchResponse.PartitionData
) -> FetchedPartition:
    aborted = data.aborted_transactions or ()
    return FetchedPartition(
        requested.partition,
        data.error_code,
        requested.offset,
        memoryview(data.records) if data.records else NO_RECORDS,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        tuple([(each.producer_id, each.first_offset) for each in aborted]),
        data.preferred_read_replica,
    )


@dataclass(slots=True)
class FetchSource:
    """The broker that serves a partition: the leader or the follower that it has named (KIP-392). A
    follower may be behind, so the leader is asked after each of its errors.
    """

    replica: int | None = None
    failures: int = 0
    retry_at: float = 0.0

    def redirect(self, fetched: FetchedPartition) -> bool:
        """Follows a response to another replica; returns whether it names one."""
        replica = fetched.preferred_read_replica
        if replica in {NO_REPLICA, self.replica}:
            return False
        self.replica = replica
        return True

    def leave_replica(self) -> bool:
        """Returns to the leader; returns whether a follower was in use."""
        was_in_use, self.replica = self.replica is not None, None
        return was_in_use

    def record_failure(self, now: float, backoff: Callable[[int], float]) -> None:
        """Sets the time of the next request, after a pause that grows with every failure."""
        self.failures += 1
        self.retry_at = now + backoff(self.failures)


class FetchOutcome(enum.Enum):
    HAS_RECORDS = "has records"
    NO_RECORDS = "no records"  # no new records, or an outdated response: fetch again
    RETRY = "retry"
    REFRESH_METADATA = "refresh metadata"
    OUT_OF_RANGE = "out of range"
    RAISE = "raise"  # raise :func:`fetch_error`


def classify_error_code(code: int, source: FetchSource) -> FetchOutcome:
    """Classifies a partition's error code. After any error of a follower the leader is asked."""
    from_replica = source.leave_replica()
    if code in STALE_METADATA_CODES:
        return FetchOutcome.REFRESH_METADATA
    if code in TRANSIENT_CODES or from_replica:
        return FetchOutcome.RETRY
    return FetchOutcome.OUT_OF_RANGE if code == Code.OFFSET_OUT_OF_RANGE else FetchOutcome.RAISE


def fetch_error(fetched: FetchedPartition) -> RotaError:
    """Returns the error for a partition whose error code another request does not change."""
    partition, code, offset = fetched[:3]
    if code == Code.CORRUPT_MESSAGE:
        problem = "the broker reports damaged records at this offset (CORRUPT_MESSAGE)"
        return RecordError(*partition, offset, problem, next_offset=offset + 1)
    return partition_error(code, partition, f"to fetch from offset {offset} of")


class ResponseEnd(NamedTuple):
    """Where the whole batches of a response end."""

    position: FetchPosition
    is_sound: bool = True  # no damage follows: the next request can start at the position


def find_response_end(fetched: FetchedPartition) -> ResponseEnd | None:
    """Returns where the last whole batch of a response ends; None if the response is empty."""
    view = fetched.records
    limit = len(view)
    if not limit:
        return None
    at, last, is_sound, unpack = 0, -1, True, LENGTH_FIELD.unpack_from
    while at + HEADER.size <= limit:
        (length,) = unpack(view, at + LENGTH_OFFSET)
        if length < SHORTEST_BATCH_LENGTH or view[at + MAGIC_OFFSET] != MAGIC:
            is_sound = False
            break
        if at + LOG_OVERHEAD + length > limit:
            break
        last, at = at, at + LOG_OVERHEAD + length
    if last < 0:
        return ResponseEnd(FetchPosition(fetched.fetch_offset), is_sound=False)
    header = read_batch_header(view, last)
    epoch = None if header.leader_epoch == NO_LEADER_EPOCH else header.leader_epoch
    after = header.last_offset + 1
    return ResponseEnd(FetchPosition(after, epoch), is_sound and after > fetched.fetch_offset)


PORTION_BYTES = 16 << 20  # decompressed bytes decoded together; one batch may have more

_KIND = BatchProblemKind
#: Problems of batches whose header can be read.
FLAWS_WITH_HEADER = frozenset({_KIND.CHECKSUM, _KIND.CODEC, _KIND.SIZE, _KIND.RECORDS})


def read_batches(
    fetched: FetchedPartition,
    *,
    check: bool = True,
    committed_only: bool = False,
    control: bool = False,
    portion: int = PORTION_BYTES,
) -> Iterator[Batch]:
    """Decodes the records of a response in portions; each has the next offset to read.

    A portion may be empty and still be progress: its records were left out or compacted away. A
    batch that is cut at the end is ignored.

    :param check: verify checksums (``check.crcs``)
    :param committed_only: leave out aborted transactions (``read_committed``)
    :param control: include control records
    :raises RecordError: the next batch is damaged or has an unsupported format; the records before
        it are returned first
    """
    aborted = fetched.aborted_transactions if committed_only else ()
    reader = _BatchReader(fetched, aborted, control=control)
    view, at = fetched.records, 0
    while at < len(view):
        columns = decode_batches(
            view[at:], at=at, check=check, chunk_bytes=portion, may_end_cut=True
        )
        at = columns.end_position
        problem = reader.first_problem(columns)
        sound = columns
        if problem is not None:
            before = np.searchsorted(columns.batches.position, problem.position)
            sound = columns.first_batches(int(before))
        if len(sound.batches):
            yield reader.make_batch(sound)
        if problem is not None:
            raise reader.make_error(problem, columns)
        del columns, sound  # frees them before the next portion is decoded


class _BatchReader:
    def __init__(
        self, fetched: FetchedPartition, aborted: Sequence[tuple[int, int]], *, control: bool
    ) -> None:
        self.control = control
        self.source, self.view = fetched.partition, fetched.records
        self.position = fetched.fetch_offset
        self.transactions = _AbortedTransactions(aborted)
        self.is_empty = True

    def first_problem(self, columns: RecordColumns) -> BatchProblem | None:
        """Returns the first problem other than a last batch that is cut."""
        for problem in columns.problems:
            nothing = self.is_empty and not len(columns.batches)
            if problem.kind is not BatchProblemKind.CUT or nothing:
                return problem
        return None

    def make_batch(self, columns: RecordColumns) -> Batch:
        self.is_empty = False
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
        if (offset[1:] <= offset[:-1]).any():  # no broker sends that; no record is returned twice
            is_new = offset[1:] > np.maximum.accumulate(offset)[:-1]
            columns = columns.select(np.append(True, is_new))
        last = int(columns.offset.max(initial=-1))
        self.position = max(self.position, int(batches.last_offset.max()) + 1, last + 1)
        epoch = int(batches.leader_epoch[-1])
        return Batch(self.source, columns, slice(0, len(columns)), self.position, epoch)

    def make_error(self, problem: BatchProblem, columns: RecordColumns) -> RecordError:
        after = max(self._offset_after(problem, columns), self.position + 1)
        offset = self.position
        if problem.kind in FLAWS_WITH_HEADER:
            base = read_batch_header(self.view, problem.position).base_offset
            offset = base if offset < base < after else offset
        text = problem.text
        if problem.kind is BatchProblemKind.CUT:
            text += ", and nothing whole before it (max.partition.fetch.bytes)"
        return RecordError(*self.source, offset, text, next_offset=after)

    def _offset_after(self, problem: BatchProblem, columns: RecordColumns) -> int:
        following = columns.batches.position > problem.position
        if following.any():  # its checksum is right; the header of the damaged batch may be wrong
            return int(columns.batches.base_offset[following][0])
        if problem.kind in FLAWS_WITH_HEADER:
            return read_batch_header(self.view, problem.position).last_offset + 1
        last = self.position
        if problem.kind is BatchProblemKind.OLD:
            at = problem.position
            while at < problem.position + problem.size:
                last = int.from_bytes(self.view[at : at + LENGTH_OFFSET], signed=True)
                at += LOG_OVERHEAD + LENGTH_FIELD.unpack_from(self.view, at + LENGTH_OFFSET)[0]
        return last + 1


class _AbortedTransactions:
    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._not_started = sorted(aborted, key=itemgetter(1), reverse=True)
        self._producers = np.array(sorted({producer for producer, _ in aborted}), dtype=np.int64)
        #: Producers with a transaction that has begun and will be aborted.
        self._aborted_producers: set[int] = set()

    def find_aborted(self, batches: BatchColumns) -> BoolArray:
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


Headers = tuple[tuple[str, bytes | None], ...]
NO_HEADERS: Headers = ()
MIN_RUN_LENGTH = 64  # shortest run of equal sizes for which ``struct`` beats slicing
MAX_UNPACK_COUNT = 500  # values that one ``struct`` unpacks; the cache holds 64 bytes for each


class Batch:
    """Records of one partition in the order of their offsets, as columns. ``batch[a:b]`` selects
    rows without a copy. Numbers are NumPy arrays, keys and values are lists of bytes, and
    :meth:`to_arrow` returns all columns without an object for each record. The columns are views
    that keep the broker's response in memory.
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
        self.source = source
        self.columns = columns
        self.rows = rows
        #: The offset to read next: after the last row and after records that were left out.
        self.next_offset = next_offset
        #: The leader epoch to commit with that offset; -1: none.
        self.next_epoch = next_epoch

    @property
    def topic(self) -> str:
        """The topic of the records."""
        return self.source.topic

    @property
    def partition(self) -> int:
        """The partition of the records."""
        return self.source.partition

    def __len__(self) -> int:
        length: int = self.rows.stop - self.rows.start
        return length

    def __getitem__(self, rows: slice) -> Batch:
        begin, end, step = rows.indices(len(self))
        if step != 1:
            text = "batch[a:b] selects neighbouring rows"
            raise ValueError(f"{text}: a step of {step} is not possible")
        first, stop = self.rows.start + begin, self.rows.start + max(begin, end)
        after = self.next_offset, self.next_epoch
        if stop < self.rows.stop:  # records that were left out between two rows follow the first
            row = max(stop - 1, 0)
            epoch = self.columns.batches.leader_epoch[self.columns.batch[row]]
            after = int(self.columns.offset[row]) + (stop > 0), int(epoch)
        return Batch(self.source, self.columns, slice(first, stop), *after)

    def __repr__(self) -> str:
        return f"<{len(self)} records of {self.source}, next offset {self.next_offset}>"

    @property
    def offsets(self) -> Int64Array:
        """Ascending, with gaps after compaction or transactions."""
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
        """Epoch of the leader that appended the record; -1: unknown."""
        return self.columns.batches.leader_epoch[self.columns.batch[self.rows]]

    @property
    def key_column(self) -> BytesColumn:
        """The keys as a column of bytes, for Arrow."""
        columns, rows = self.columns, self.rows
        return BytesColumn(columns.buffer, columns.key_start[rows], columns.key_size[rows])

    @property
    def value_column(self) -> BytesColumn:
        """The values as a column of bytes, for Arrow."""
        columns, rows = self.columns, self.rows
        return BytesColumn(columns.buffer, columns.value_start[rows], columns.value_size[rows])

    def keys(self) -> list[bytes | None]:
        """The keys; None for a record without one."""
        return self.key_column.slice_rows(0, len(self))

    def values(self) -> list[bytes | None]:
        """The values; None for a tombstone."""
        return self.value_column.slice_rows(0, len(self))

    def headers(self) -> Sequence[Headers]:
        """Names and values; invalid UTF-8 in a name becomes U+FFFD, as in Kafka."""
        counts = self.columns.headers[self.rows]
        if not counts.any():
            return [NO_HEADERS] * len(self)
        buffer, start = self.columns.buffer, self.columns.headers_start[self.rows]
        columns = record_batch_columns.read_header_columns(buffer, start, counts)
        names = slice_buffer(buffer, columns.name_start, columns.name_size)
        text = {name: str(name or b"", "utf-8", "replace") for name in set(names)}
        values = slice_buffer(buffer, columns.value_start, columns.value_size)
        pairs = list(zip(map(text.__getitem__, names), values, strict=True))
        ends = np.cumsum(counts)
        bounds = zip((ends - counts).tolist(), ends.tolist(), strict=True)
        return [tuple(pairs[a:b]) for a, b in bounds]

    @property
    def has_headers(self) -> bool:
        """Whether a record of the batch has headers."""
        return bool(self.columns.headers[self.rows].any())

    def spans(self) -> list[tuple[int, bool, int]]:
        """Row count, timestamp type and epoch of neighbouring equal rows; mostly of one group."""
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
        types, epochs = by_broker[firsts].tolist(), epoch[firsts].tolist()
        spans = zip(counts.tolist(), types, epochs, strict=True)
        return [each for each in spans if each[0]]

    def to_arrow(self) -> pa.RecordBatch:
        """Returns a ``pyarrow.RecordBatch`` with the columns of Spark's Kafka source: ``key``,
        ``value``, ``topic``, ``partition``, ``offset``, ``timestamp`` (microseconds, UTC, or null),
        ``timestampType`` and ``headers`` (or null).

        :raises InputError: pyarrow is not installed, or a column has more bytes than Arrow can
            address; select fewer rows
        :raises RecordError: a timestamp is out of range for microseconds
        """
        from rota.client.arrow import make_record_batch  # noqa: PLC0415 (pyarrow is optional)

        return make_record_batch(self)


def slice_buffer(buffer: ByteBuffer, start: Int64Array, size: Int64Array) -> list[bytes | None]:
    return BytesColumn(buffer, start, size).slice_rows(0, len(size))


class BytesColumn:
    """Byte strings, None where a size is negative, copied out of the buffer some rows at a time."""

    __slots__ = ("_bounds", "_buffer", "_runs")

    def __init__(self, buffer: ByteBuffer, start: Int64Array, size: Int64Array) -> None:
        null = size < 0
        self._buffer = buffer
        self._runs = [] if null.any() else _find_runs(start, size)
        #: Where values begin and end; None: all values are None or in runs.
        self._bounds: tuple[list[int], list[int]] | None = None
        if not self._runs and not null.all():
            self._bounds = start.tolist(), (start + size).tolist()

    def slice_rows(self, first: int, stop: int) -> list[bytes | None]:
        """Returns the values of rows ``first`` to ``stop - 1``."""
        values: list[bytes | None] = []
        if self._bounds is not None:
            data = self._buffer.data
            pairs = zip(*(each[first:stop] for each in self._bounds), strict=True)
            values += [data[a:b] if a <= b else None for a, b in pairs]
        elif self._runs:
            for run in self._runs:
                if run.first < stop and first < run.stop:
                    run.slice_rows(self._buffer.view, first, stop, values)
        else:
            values += [None] * (stop - first)
        return values


class _UniformRun(NamedTuple):
    first: int
    stop: int
    start: int
    size: int
    gap: int

    def slice_rows(
        self, view: memoryview, first_row: int, stop_row: int, values: list[bytes | None]
    ) -> None:
        first, stop, start, size, gap = self
        stop = min(stop, stop_row)
        for row in range(max(first, first_row), stop, MAX_UNPACK_COUNT):
            layout = _run_struct(size, gap, min(stop - row, MAX_UNPACK_COUNT))
            values += layout.unpack_from(view, start + (row - first) * (size + gap))


def _find_runs(start: Int64Array, size: Int64Array) -> list[_UniformRun]:
    """Returns runs if they are long: unpacking one takes a quarter of the time of slicing."""
    step = np.diff(start)
    changed = size[1:] != size[:-1]
    changed[:-1] |= step[1:] != step[:-1]
    bounds = [0, *(np.flatnonzero(changed) + 1).tolist(), len(start)]
    if len(bounds) > len(start) // MIN_RUN_LENGTH:
        return []
    found = []
    for first, stop in pairwise(bounds):
        each = int(size[first])
        gap = int(step[first]) - each if stop - first > 1 else 0
        if gap < 0:
            return []
        found.append(_UniformRun(first, stop, int(start[first]), each, gap))
    return found


@functools.lru_cache(maxsize=64)
def _run_struct(size: int, gap: int, count: int) -> Struct:
    return Struct(f"{size}s" + f"{gap}x{size}s" * (count - 1))
