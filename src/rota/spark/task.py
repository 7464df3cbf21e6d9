"""What a Spark task does: reads ranges of offsets as Arrow, straight from Fetch responses.

This module and what it imports load no pyspark; an import contract holds that.

In the order of this file::

    read_ranges       the rows of a task: the entry point
    ClientPool        connections that a Python worker keeps from task to task
    RangeProgress     how far a range was read, and what delays it
    FetchInFlight     one Fetch: which ranges it asks for, and for how many bytes
    handle_response   what a response means for a range
    LogExtent         whether records that do not come are delayed, compacted or lost
    FetchLoop         asks brokers until all ranges are read: leaders, connections, backoff, timeout

Each broker is asked for several ranges at a time. The next response is on its way while one is
decoded and taken by Spark. Memory: the responses in flight, one more, and a part of that one as
Arrow.
"""

from __future__ import annotations

import asyncio
import enum
import gc
import os
from collections import deque
from collections.abc import Coroutine, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from rota.client import arrow, fetch
from rota.client import fetch as fetch_module
from rota.client.cluster import ClusterClient
from rota.client.connection import BrokerConnection
from rota.client.fetch import Batch, FetchedPartition, PreparedFetch, RequestedPartition
from rota.client.metadata import ClusterMetadata
from rota.client.offsets import EARLIEST, LATEST, list_offsets
from rota.client.retry import RETRIABLE_CODES, is_permanent, partition_error
from rota.engine.formats.buffer import BoolArray
from rota.engine.formats.record_batch import read_batch_header
from rota.engine.formats.record_batch_scan import find_batches
from rota.engine.model.config import ClientConfig, FetchConfig
from rota.engine.model.topic import NO_LEADER_EPOCH, TopicPartition
from rota.errors import Code, RotaError, TimedOut, UnknownTopic, Unreachable
from rota.protocol.messages import ZERO_UUID, Api, FetchResponse
from rota.spark.plan import TaskRanges
from rota.spark.query import SourceOptions, report_data_loss

#: Of one Arrow batch, at most.
MAX_ROWS = 50_000

#: Bytes of its records, about; one record may have more.
ARROW_BATCH_BYTES = 16 << 20

#: Bytes of records, decompressed, that are decoded together; one batch may have more.
DECODE_BYTES = 8 << 20


def read_ranges(task: TaskRanges, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a task; those of a range in order of their offsets.

    :raises DataLost: records are gone, and ``failOnDataLoss`` is set
    :raises RecordError: a record is damaged
    :raises TimedOut: no progress for ``kafkaConsumer.pollTimeoutMs``
    :raises Refused: a broker refuses to serve a partition, and will not change its mind
    """
    own = CLIENT_POOL.take_client(options.client_config)
    inquiry = FetchLoop(own, task, options)
    try:
        while (yield from _next_rows(own, inquiry, options)):
            pass
    except BaseException:  # also if Spark wants no more: answers are still on their way
        try:
            inquiry.close()
        finally:
            own.close()
        raise
    inquiry.close()
    CLIENT_POOL.return_client(options.client_config, own)


def _next_rows(
    own: BlockingClient, inquiry: FetchLoop, options: SourceOptions
) -> Generator[pa.RecordBatch, None, bool]:
    """Yields the rows of the next responses, of which nothing is kept; returns whether there
    were any.
    """
    answers = own.run(inquiry.next_responses())
    for each in answers:
        for batch in _decode_response(each, options):
            yield from _split_rows(batch, options)
            del batch  # not while the next is made: a batch may be large
    return bool(answers)


def _decode_response(found: FetchedRange, options: SourceOptions) -> Iterator[Batch]:
    """Yields the records of a response that are within the range."""
    reading = fetch.read_batches(
        found.fetched,
        check=options.read_config.check_crcs,
        committed_only=options.read_config.committed_only,
        control=options.include_batch_info,
        portion=DECODE_BYTES,
    )
    for batch in reading:
        upto = int(np.searchsorted(batch.offsets, found.until))
        if upto:
            yield batch[:upto]
        if batch.next_offset >= found.until:
            return  # what is wrong behind the range is no concern of it
        del batch


def _split_rows(batch: Batch, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    columns = batch.columns
    size = int((columns.end[batch.rows] - columns.start[batch.rows]).sum())
    count = max(1, min(MAX_ROWS, len(batch) * ARROW_BATCH_BYTES // max(size, 1)))
    for first in range(0, len(batch), count):
        some = batch[first : first + count]
        yield to_record_batch(
            some, headers=options.include_headers, batch_info=options.include_batch_info
        )


BATCH_INFO_FIELDS = (
    pa.field("control", pa.bool_()),
    pa.field("transactional", pa.bool_()),
    pa.field("producerId", pa.int64()),
    pa.field("producerEpoch", pa.int16()),
)


def to_record_batch(batch: Batch, *, headers: bool, batch_info: bool) -> pa.RecordBatch:
    """Records as Spark's own Kafka source has them: no timestamp is -1 there, not null."""
    fields = list(arrow.RECORD_SCHEMA)
    arrays = arrow.make_arrays(batch, headers=headers, absent_time_is_null=False)
    if not headers:
        fields.pop()
    if batch_info:
        of, batches = batch.columns.batch[batch.rows], batch.columns.batches
        fields += BATCH_INFO_FIELDS
        arrays += [
            _bool_array(batches.control[of]),
            _bool_array(batches.transactional[of]),
            arrow.number_array(batches.producer_id[of], pa.int64()),
            arrow.number_array(batches.producer_epoch[of].astype(np.int16), pa.int16()),
        ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _bool_array(values: BoolArray) -> pa.Array:
    data = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, data])


# Connections of a worker to a cluster, kept from task to task.
#
# Spark's Python workers serve many tasks, one at a time. An event loop runs while a task waits for
# something; what arrives meanwhile waits in the system's buffers.

#: Clusters, or ways to log in to one, that a worker stays connected to.
MAX_CLIENTS = 4

T = TypeVar("T")


class BlockingClient:
    """A client and the event loop that runs it while a task waits. Between waits, data stays
    in socket buffers.
    """

    def __init__(self, config: ClientConfig) -> None:
        """Nothing is opened yet."""
        self.loop = asyncio.new_event_loop()
        self.client = ClusterClient(config, quiet=True)
        #: Bytes of each offset, as they were last.
        self.offset_bytes: dict[TopicPartition, float] = {}

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """What a call gives."""
        return self.loop.run_until_complete(call)

    def run_pending(self) -> None:
        """Lets the loop notice what happened while it did not run, such as closed connections."""
        self.run(asyncio.sleep(0))

    def close(self) -> None:
        """Closes the connections."""
        try:
            self.run(self.client.close())
            self.run_pending()
        finally:
            self.loop.close()


class ClientPool:
    """The clients of this process that no task uses at the moment, the oldest first. Spark's
    Python workers serve many tasks, one at a time.
    """

    def __init__(self) -> None:
        self._idle: dict[ClientConfig, BlockingClient] = {}
        self._process = os.getpid()
        self._frozen = False
        #: What was there before a fork: to close it here would disturb the other process.
        self._inherited: list[BlockingClient] = []

    def take_client(self, config: ClientConfig) -> BlockingClient:
        """Returns a client, for the caller alone until it is returned to the pool."""
        self._freeze_gc()
        if self._process != os.getpid():
            self._inherited += self._idle.values()
            self._idle, self._process = {}, os.getpid()
        found = self._idle.pop(config, None)
        if found is None:
            return BlockingClient(config)
        found.run_pending()
        return found

    def return_client(self, config: ClientConfig, link: BlockingClient) -> None:
        """Keeps a client for the next task."""
        older = self._idle.pop(config, None)
        if older is not None:  # one task has read twice at a time
            older.close()
        while len(self._idle) >= MAX_CLIENTS:
            self._idle.pop(next(iter(self._idle))).close()
        self._idle[config] = link

    def close(self) -> None:
        """Closes all."""
        while self._idle:
            self._idle.popitem()[1].close()

    def _freeze_gc(self) -> None:
        """Excludes imported objects from garbage collection: Spark's worker collects after
        every task.
        """
        if not self._frozen:
            gc.collect()
            gc.freeze()
            self._frozen = True


#: Those of this process.
CLIENT_POOL: Final = ClientPool()


@dataclass(slots=True, eq=False)
class RangeProgress:
    """A range that is not fully read yet. Times are by the clock that runs only while the
    task waits.
    """

    partition: TopicPartition
    position: int
    until: int
    #: Whom to ask: the leader, or the follower that it has named (KIP-392).
    node: int | None = None
    #: That follower.
    replica: int | None = None
    #: A follower did not do: nobody is to name one again.
    leader_only: bool = False
    #: To be asked for alone: in an answer with others there was no room for it.
    fetch_alone: bool = False
    #: Answers in a row that had nothing, though nothing else was asked for.
    empty_responses: int = 0
    #: What all of these answers have said to be readable: offsets before this.
    readable_until: int = 0
    #: Not to be asked for before it is known who leads now.
    needs_leader: bool = False
    #: Since when brokers say that there is no such partition.
    unknown_since: float | None = None
    #: Since when it is asked for without progress.
    waiting_since: float | None = None
    #: In a row.
    failures: int = 0
    #: When it may be asked for again.
    retry_at: float = 0.0
    #: What came of the last try.
    last_failure: str = ""

    @property
    def offsets_left(self) -> int:
        """How many offsets."""
        return self.until - self.position

    def advance_to(self, position: int) -> None:
        """Sets the position, and clears what was noted about failures."""
        self.position = position
        self.empty_responses, self.failures, self.fetch_alone = 0, 0, False
        self.waiting_since = self.unknown_since = None
        self.last_failure = ""


#: Bytes that a Fetch asks for, about; ``max.partition.fetch.bytes`` may ask for more of one.
FETCH_BYTES = 4 << 20

#: Bytes asked for beyond what the rest of a range should have: batches are not cut.
FETCH_MARGIN = 128 << 10

#: Bytes of an offset where nothing is known of a partition.
DEFAULT_OFFSET_BYTES = 1024.0


@dataclass(frozen=True, slots=True, eq=False)
class FetchInFlight:
    """A Fetch in flight."""

    node: int
    connection: BrokerConnection
    fetch: PreparedFetch
    ranges: Mapping[TopicPartition, RangeProgress]
    #: Bytes that may come.
    max_bytes: int
    #: When, by the clock that counts waiting only.
    sent_at: float

    @property
    def has_single_range(self) -> bool:
        """One range was asked for."""
        return len(self.ranges) == 1


class FetchSizes:
    """How many bytes to request, estimated from earlier responses for each partition.

    A wrong estimate costs time, never progress: a broker returns at least one batch of the first
    partition with records, and a range that got nothing is requested alone.
    """

    def __init__(self, most: int, rates: dict[TopicPartition, float]) -> None:
        """Takes what is known.

        :param most: ``max.partition.fetch.bytes``
        :param rates: bytes of an offset
        """
        self._max_bytes = most
        self._offset_bytes = rates
        #: Bytes of the last answer.
        self._last_response_bytes: dict[TopicPartition, int] = {}

    def bytes_to_request(self, part: RangeProgress) -> int:
        """Bytes to ask for."""
        if part.fetch_alone:
            return self._max_bytes
        rate = self._offset_bytes.get(part.partition, DEFAULT_OFFSET_BYTES)
        return min(self._max_bytes, int(part.offsets_left * rate) + FETCH_MARGIN)

    def record_response(self, partition: TopicPartition, size: int, offsets: int) -> None:
        """So many offsets had so many bytes."""
        self._offset_bytes[partition] = size / offsets
        self._last_response_bytes[partition] = size

    def largest_response(self, partitions: Iterable[TopicPartition]) -> int:
        """What may come of one of them, whatever is asked for: batches are whole."""
        known = (
            max(self._last_response_bytes.get(each, 0), int(self._offset_bytes.get(each, 0)))
            for each in partitions
        )
        return max(known, default=0)


def choose_ranges(
    queue: Iterable[RangeProgress], node: int, sizes: FetchSizes, now: float
) -> list[RangeProgress]:
    """Returns the next ranges for one Fetch to a broker, in the queue's order."""
    chosen: dict[TopicPartition, RangeProgress] = {}
    size = 0
    for part in queue:
        if part.node != node or part.needs_leader or part.retry_at > now:
            continue
        if part.partition in chosen:  # a Fetch names a partition once
            continue
        single = part.fetch_alone or part.leader_only
        if chosen and (single or size + sizes.bytes_to_request(part) > FETCH_BYTES):
            break
        chosen[part.partition] = part
        size += sizes.bytes_to_request(part)
        if single:
            break
    return list(chosen.values())


def build_fetch(
    parts: Sequence[RangeProgress],
    metadata: ClusterMetadata,
    config: FetchConfig,
    sizes: FetchSizes,
) -> tuple[PreparedFetch, int]:
    """Returns the request, and how many bytes the response may have."""
    wanted = []
    for part in parts:
        topic, known = metadata.topics.get(part.partition.topic), metadata.partition(part.partition)
        wanted.append(
            RequestedPartition(
                part.partition,
                ZERO_UUID if topic is None else topic.id,
                part.position,
                NO_LEADER_EPOCH if known is None else known.leader_epoch,
                max_bytes=sizes.bytes_to_request(part),
            )
        )
    if any(part.leader_only for part in parts):
        config = replace(config, rack=None)
    size = min(sum(sizes.bytes_to_request(part) for part in parts), config.fetch_max_bytes)
    fetch = fetch_module.build_fetch(wanted, config, max_bytes=size)
    return fetch, max(size, sizes.largest_response(part.partition for part in parts))


#: Answers in a row with nothing before it is looked up what there is.
EMPTY_RESPONSES_BEFORE_CHECK = 3


class FetchAction(enum.Enum):
    """What to do next with a range."""

    READ = "its records are to be read; the position is behind them already"
    FETCH_AGAIN = "it is to be asked for again"
    BACK_OFF = "the same, after a pause and a look who leads now"
    CHECK_LOG = "it is to be looked up what there is"


def handle_response(
    part: RangeProgress, fetched: FetchedPartition, *, alone: bool, committed_only: bool
) -> FetchAction:
    """Moves a range on by what a response says, and returns what to do next.

    :param alone: nothing else was requested, so a batch at the position had room
    :param committed_only: with ``read_committed``
    :raises Refused: the error is not worth another try
    """
    if fetched.error_code:
        return _handle_error(part, fetched.error_code)
    behind = _end_of_whole_batches(fetched)
    if behind is not None and behind > part.position:
        part.advance_to(behind)
        return FetchAction.READ
    if fetched.preferred_read_replica >= 0 and part.replica is None and not part.leader_only:
        part.replica = fetched.preferred_read_replica
        return FetchAction.FETCH_AGAIN
    if not alone:
        part.fetch_alone = True
        return FetchAction.FETCH_AGAIN
    if behind is None and fetched.records:
        part.last_failure = "what came has no whole batch"
        return FetchAction.READ  # the reader of records says what is wrong with them
    return _handle_empty(part, fetched, committed_only=committed_only)


def _end_of_whole_batches(fetched: FetchedPartition) -> int | None:
    """Returns the offset behind the last whole batch, from batch headers; None: there is no
    whole batch.
    """
    if not fetched.records:
        return None
    positions = find_batches(fetched.records, may_end_cut=True).positions
    if not len(positions):
        return None
    return read_batch_header(fetched.records, int(positions[-1])).last_offset + 1


def _handle_empty(
    part: RangeProgress, fetched: FetchedPartition, *, committed_only: bool
) -> FetchAction:
    """Handles an empty response: there is nothing yet, or no longer.

    A broker may also have more and be too slow to get it, from remote storage (KIP-405), say. So
    one such response proves nothing.
    """
    if part.replica is not None:  # it may be behind its leader
        part.replica, part.leader_only = None, True
        return FetchAction.FETCH_AGAIN
    stable = fetched.last_stable_offset if committed_only else -1
    readable = fetched.high_watermark if stable < 0 else stable
    part.readable_until = min(readable, part.readable_until) if part.empty_responses else readable
    part.empty_responses += 1
    part.last_failure = f"the broker has nothing there, and what can be read ends at {readable}"
    if committed_only and readable <= part.position < fetched.high_watermark:
        part.last_failure = (
            f"a transaction is open at offset {readable}, and read_committed does not go beyond"
        )
    return (
        FetchAction.CHECK_LOG
        if part.empty_responses >= EMPTY_RESPONSES_BEFORE_CHECK
        else FetchAction.BACK_OFF
    )


def _handle_error(part: RangeProgress, code: int) -> FetchAction:
    known = Code(code).name if code in set(Code) else "unknown"
    part.last_failure = f"error {code} ({known}) at offset {part.position}"
    if part.replica is not None:
        part.replica, part.leader_only = None, True
        return FetchAction.BACK_OFF
    if code == Code.OFFSET_OUT_OF_RANGE:
        return FetchAction.CHECK_LOG
    if code in RETRIABLE_CODES:
        return FetchAction.BACK_OFF
    raise partition_error(code, part.partition, f"to fetch offset {part.position} of")


#: The timestamp of where a log begins on the broker's own disks (KIP-405).
EARLIEST_LOCAL = -4


class LogExtent(NamedTuple):
    """Where a partition's log begins and ends."""

    log_start: int
    #: From here on on the broker's own disks.
    local_log_start: int
    #: Behind the last record.
    log_end: int


async def look_up_extents(
    client: ClusterClient, partitions: Iterable[TopicPartition], deadline: float
) -> dict[TopicPartition, LogExtent]:
    """Asks the leaders where logs begin and end."""
    every = sorted(set(partitions))
    found = []
    for which in (EARLIEST, EARLIEST_LOCAL, LATEST):
        listed = await list_offsets(client, dict.fromkeys(every, which), deadline=deadline)
        offsets = {each: listed[each] for each in every}
        found.append([0 if at is None else at.offset for at in offsets.values()])
    return {each: LogExtent(*extent) for each, *extent in zip(every, *found, strict=True)}


def skip_missing(part: RangeProgress, extent: LogExtent, *, fail: bool) -> None:
    """Moves a range behind records that are lost or were compacted; otherwise leaves it where it
    is.

    :param fail: with ``failOnDataLoss``
    :raises DataLost: records are gone, and it is set
    """
    where = f"{part.partition} from offset {part.position} to {part.until}"
    if part.position < extent.log_start:
        report_data_loss(f"{where}: the log begins at {extent.log_start} by now", fail=fail)
        part.advance_to(extent.log_start)
    elif part.position >= extent.log_end:
        report_data_loss(f"{where}: the log ends at {extent.log_end} by now", fail=fail)
        part.advance_to(part.until)
    elif (
        part.empty_responses >= EMPTY_RESPONSES_BEFORE_CHECK
        and part.readable_until > part.position >= extent.local_log_start
    ):
        # on its own disks the broker does not miss anything: compaction left nothing there
        part.advance_to(min(part.readable_until, part.until))
    else:
        part.empty_responses = 0


# Asks brokers for ranges until all is read: who leads, connections, pauses, patience.
#
# What takes time beside the Fetches are chores: one look who leads, one look what there is, one
# connection to each broker at a time. No range waits for the chores of another.

#: Fetches to one broker at a time.
MAX_IN_FLIGHT = 2

#: Bytes that may come at a time from all brokers together; one Fetch may bring more.
MAX_BYTES_IN_FLIGHT = 32 << 20

#: How much of its patience a task waits for a topic of which brokers do not know: one that is
#: behind may say so of a topic that is there.
UNKNOWN_TOPIC_SHARE = 0.5

#: Seconds: while Spark takes rows, no answer is late; time is taken here, while one is awaited.
FETCH_DEADLINE = 7 * 86_400.0


class FetchedRange(NamedTuple):
    """What came of a range."""

    fetched: FetchedPartition
    #: The range's end; records from there on are not of it.
    until: int


class _BrokerFailure(NamedTuple):
    since: float
    text: str


class FetchLoop:
    """Fetches the ranges of one task.

    Beside the Fetches, background tasks refresh leaders, look up log extents and open connections:
    at most one of each kind, and one connection attempt for each broker, at a time. No range waits
    for the background tasks of another.
    """

    def __init__(self, link: BlockingClient, task: TaskRanges, options: SourceOptions) -> None:
        """Nothing is asked yet."""
        self._blocking_client = link
        self._client = link.client
        self._options = options
        self._timeout = options.poll_timeout / 1000
        self._sizes = FetchSizes(options.read_config.max_partition_bytes, link.offset_bytes)
        #: Not under way.
        self._queue = deque(RangeProgress(*each) for each in task if each.size > 0)
        #: To be looked up, or being so.
        self._to_check: list[RangeProgress] = []
        self._in_flight: dict[asyncio.Future[FetchResponse], FetchInFlight] = {}
        self._background: dict[Hashable, asyncio.Task[None]] = {}
        #: Brokers that cannot be reached; None: nobody tells of the cluster.
        self._broker_failures: dict[int | None, _BrokerFailure] = {}
        #: Seconds that nobody waited.
        self._idle_seconds = 0.0
        #: When nobody waited any more.
        self._idle_since: float | None = None
        #: It was looked who leads, once at least.
        self._leaders_requested = False

    async def next_responses(self) -> list[FetchedRange]:
        """Waits for the next responses and returns them in the order of their offsets; an
        empty list: all ranges are read.
        """
        if self._idle_since is not None:
            self._idle_seconds += self._blocking_client.loop.time() - self._idle_since
        try:
            while self._queue or self._in_flight or self._to_check:
                # one time for a turn: what is due after it is waited for
                now = self._now
                self._start_background(now)
                self._send_fetches(now)
                flight = next((each for each in self._in_flight if each.done()), None)
                if flight is None:
                    await self._wait(now)
                    self._check_timeouts()
                elif found := self._take_response(flight):
                    self._send_fetches(now)  # the next is on its way while Spark takes these
                    return found
            return []
        finally:
            self._idle_since = self._blocking_client.loop.time()

    def close(self) -> None:
        """Ends what is under way."""
        for response in self._in_flight:
            response.cancel()
        for task in self._background.values():
            task.cancel()
        chores, self._in_flight, self._background = list(self._background.values()), {}, {}
        if chores:
            self._blocking_client.run(_wait_for_all(chores))

    @property
    def _now(self) -> float:
        """By the clock that counts waiting only."""
        return self._blocking_client.loop.time() - self._idle_seconds

    # What came

    def _take_response(self, future: asyncio.Future[FetchResponse]) -> list[FetchedRange]:
        """The answers to one Fetch; those to others wait as they came."""
        flight = self._in_flight.pop(future)
        error = future.exception()
        if error is not None:
            if not isinstance(error, Unreachable):
                raise error
            self._retry_later(flight.ranges.values(), str(error))
            return []
        found, parts, response = [], dict(flight.ranges), future.result()
        for fetched in flight.fetch.parse(response):
            part = parts.pop(fetched.partition, None)
            if part is not None and self._handle_range(part, fetched, flight):
                found.append(FetchedRange(fetched, part.until))
        self._handle_omitted(list(parts.values()), response.throttle_time_ms / 1000)
        return found

    def _handle_range(
        self, part: RangeProgress, fetched: FetchedPartition, flight: FetchInFlight
    ) -> bool:
        """Has it something to be read?"""
        before, committed = part.position, self._options.read_config.committed_only
        verdict = handle_response(
            part, fetched, alone=flight.has_single_range, committed_only=committed
        )
        match verdict:
            case FetchAction.READ:
                if part.position > before:
                    offsets = part.position - before
                    self._sizes.record_response(part.partition, len(fetched.records), offsets)
                self._requeue(part)
            case FetchAction.FETCH_AGAIN:
                self._requeue(part)
            case FetchAction.BACK_OFF:
                self._retry_later([part], part.last_failure)
            case FetchAction.CHECK_LOG:
                self._to_check.append(part)
        return verdict is FetchAction.READ

    def _requeue(self, part: RangeProgress) -> None:
        if part.position < part.until:
            part.node = self._node(part)
            part.needs_leader = part.node is None
            self._queue.appendleft(part)  # one partition after the other

    def _handle_omitted(self, parts: list[RangeProgress], throttled: float) -> None:
        """Handles ranges that the response leaves out: a broker that throttles this client
        answers with nothing at all.
        """
        if throttled <= 0:
            self._retry_later(parts, "the broker's answer leaves it out")
            return
        for part in parts:
            part.last_failure = f"a quota of the broker's, which wants a pause of {throttled:g} s"
            part.retry_at = self._now + throttled
            self._requeue(part)

    def _retry_later(self, parts: Iterable[RangeProgress], trouble: str) -> None:
        """Queues ranges again, after a backoff and a refresh of their leaders."""
        for part in list(parts):
            part.last_failure = trouble
            part.failures += 1
            if part.waiting_since is None:
                part.waiting_since = self._now
            part.retry_at = self._now + self._client.backoff.pause_after(part.failures)
            part.needs_leader = True
            self._queue.append(part)

    # Waiting

    async def _wait(self, turn: float) -> None:
        """Until something has happened, or is due after this turn."""
        due = [part.retry_at for part in self._queue if part.retry_at > turn]
        due += [flight.sent_at + self._request_timeout for flight in self._in_flight.values()]
        due += [
            each.waiting_since + self._timeout
            for each in self._all_ranges()
            if each.waiting_since is not None
        ]
        due += [trouble.since + self._timeout for trouble in self._broker_failures.values()]
        timeout = max(min(due) - self._now, 0.0) + 0.001 if due else None
        tasks: list[asyncio.Future[Any]] = [*self._in_flight, *self._background.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        else:
            assert timeout is not None, "nothing is under way, and nothing is due"
            await asyncio.sleep(timeout)
        for key in [key for key, chore in self._background.items() if chore.done()]:
            self._background.pop(key).result()
        self._close_late_connections()

    @property
    def _request_timeout(self) -> float:
        """Seconds after which an answer does not come any more."""
        return self._client.config.request_timeout / 1000

    def _close_late_connections(self) -> None:
        """Closes connections whose response is late: responses come in order, so the next
        ones would be later still.
        """
        now = self._now
        late = {
            each.connection
            for future, each in self._in_flight.items()
            if not future.done() and now - each.sent_at >= self._request_timeout
        }
        for future, flight in list(self._in_flight.items()):
            if flight.connection in late and not future.done():
                future.cancel()
                del self._in_flight[future]
                text = (
                    f"{flight.connection.name}: no answer to Fetch within "
                    f"{self._request_timeout:g} s"
                )
                self._retry_later(flight.ranges.values(), text)
        for connection in late:
            connection.close()

    def _all_ranges(self) -> Iterable[RangeProgress]:
        yield from self._queue
        yield from self._to_check
        for flight in self._in_flight.values():
            yield from flight.ranges.values()

    def _check_timeouts(self) -> None:
        """Without progress for too long."""
        now = self._now
        for part in self._all_ranges():
            if part.waiting_since is not None and now - part.waiting_since >= self._timeout:
                raise self._timeout_error(part, part.last_failure)
        for node, trouble in list(self._broker_failures.items()):
            parts = [each for each in self._queue if node is None or each.node == node]
            if not parts:
                del self._broker_failures[node]  # others lead by now
            elif now - trouble.since >= self._timeout:
                raise self._timeout_error(parts[0], trouble.text)

    def _timeout_error(self, part: RangeProgress, trouble: str) -> TimedOut:
        return TimedOut(
            f"{part.partition}: nothing could be read from offset {part.position} on for "
            f"{self._timeout:g} s (kafkaConsumer.pollTimeoutMs): {trouble}"
        )

    # Chores

    def _start_background(self, now: float) -> None:
        unknown = not self._leaders_requested or any(
            part.needs_leader and part.retry_at <= now for part in self._queue
        )
        if self._queue and unknown:
            self._start_once("leaders", self._learn_leaders)
        if self._to_check:
            self._start_once("extents", self._check_logs)
        for node in {part.node for part in self._queue if not part.needs_leader}:
            if node is not None and self._connection(node) is None:
                self._start_once(node, self._connect, node)

    def _start_once(self, key: Hashable, chore: Any, *given: Any) -> None:  # noqa: ANN401 any chore
        if key not in self._background:
            call: Coroutine[Any, Any, None] = chore(*given)
            self._background[key] = self._blocking_client.loop.create_task(call)

    async def _learn_leaders(self) -> None:
        """Who leads, asked for if that is not known or was wrong."""
        begun, queued, self._leaders_requested = self._now, list(self._queue), True
        topics = {each.partition.topic for each in queued}
        stale = any(each.needs_leader for each in queued)
        if stale or not topics <= self._client.metadata.topics.keys():
            try:
                await self._client.refresh(
                    topics, deadline=self._client.deadline_after(self._timeout)
                )
            except Unreachable as error:
                self._record_failure(None, begun, error)
                return
        self._broker_failures.pop(None, None)
        now = self._now
        for part in [each for each in self._queue if each.partition.topic in topics]:
            if part.needs_leader and part.retry_at > now:
                continue  # it has failed meanwhile
            part.node, part.needs_leader = self._node(part), False
            if part.node is None:
                self._queue.remove(part)
                self._handle_no_leader(part)

    def _handle_no_leader(self, part: RangeProgress) -> None:
        topic = self._client.metadata.topics.get(part.partition.topic)
        error = Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        if error not in RETRIABLE_CODES | {Code.NONE}:
            raise partition_error(error, part.partition, "to look up")
        if self._client.metadata.partition(part.partition) is not None:
            self._retry_later([part], "it has no leader")
            return
        if part.unknown_since is None:
            part.unknown_since = self._now
        if self._now - part.unknown_since >= UNKNOWN_TOPIC_SHARE * self._timeout:
            what = f"{part.partition} from offset {part.position} to {part.until}: it is gone"
            report_data_loss(what, fail=self._options.fail_on_data_loss)
        else:
            self._retry_later([part], "there is no such partition")

    async def _check_logs(self) -> None:
        """What there is of those in doubt."""
        parts = list(self._to_check)
        deadline = self._client.deadline_after(
            min(self._timeout, self._client.config.api_timeout / 1000)
        )
        trouble = None
        try:
            found = await look_up_extents(
                self._client, [each.partition for each in parts], deadline
            )
        except (Unreachable, UnknownTopic) as error:
            if is_permanent(error) and not isinstance(error, UnknownTopic):
                raise
            found, trouble = {}, str(error)
        for part in parts:
            self._to_check.remove(part)
            if part.partition in found:
                before = part.position
                skip_missing(part, found[part.partition], fail=self._options.fail_on_data_loss)
                if part.position > before:
                    self._requeue(part)
                    continue
            self._retry_later([part], trouble or part.last_failure)

    async def _connect(self, node: int) -> None:
        begun = self._now
        try:
            await self._client.connect(node, deadline=self._client.deadline_after(self._timeout))
        except Unreachable as error:
            self._record_failure(node, begun, error)
        else:
            self._broker_failures.pop(node, None)

    def _record_failure(self, node: int | None, since: float, error: RotaError) -> None:
        """Records that a broker cannot be reached: others may lead its partitions by now."""
        if is_permanent(error):
            raise error
        before = self._broker_failures.get(node)
        self._broker_failures[node] = _BrokerFailure(before.since if before else since, str(error))
        for part in self._queue:
            if node is None or part.node == node:
                part.retry_at = max(part.retry_at, self._now + self._client.backoff.pause_after(1))
                part.needs_leader = True
                if part.replica == node:
                    part.replica, part.leader_only = None, True

    # What is asked

    def _node(self, part: RangeProgress) -> int | None:
        if part.replica is not None:
            return part.replica
        return self._client.metadata.leader(part.partition)

    def _connection(self, node: int) -> BrokerConnection | None:
        known = self._client.metadata.brokers.get(node)
        return None if known is None else self._client.endpoint(known).connection

    def _send_fetches(self, now: float) -> None:
        """Fetches to all brokers that have not enough to do and are connected."""
        room: dict[int, int] = {}
        for part in self._queue:
            if part.node is not None:
                room[part.node] = MAX_IN_FLIGHT
        under_way = 0
        for flight in self._in_flight.values():
            under_way += flight.max_bytes
            if flight.node in room:
                room[flight.node] -= 1
        for _ in range(MAX_IN_FLIGHT):
            for node, count in room.items():
                connection = self._connection(node) if count > 0 else None
                if connection is None or under_way >= MAX_BYTES_IN_FLIGHT:
                    continue
                parts = choose_ranges(self._queue, node, self._sizes, now)
                if parts:
                    under_way += self._send_fetch(node, connection, parts)
                    room[node] -= 1

    def _send_fetch(
        self, node: int, connection: BrokerConnection, parts: list[RangeProgress]
    ) -> int:
        for part in parts:
            self._queue.remove(part)
            part.last_failure = part.last_failure or f"{connection.name} has not answered"
            if part.waiting_since is None:
                part.waiting_since = self._now
        fetch, size = build_fetch(
            parts, self._client.metadata, self._options.read_config, self._sizes
        )
        try:
            deadline = self._blocking_client.loop.time() + FETCH_DEADLINE
            future = connection.send(
                Api.FETCH, fetch.message, deadline=deadline, most=fetch.max_version
            )
        except Unreachable as error:
            self._retry_later(parts, str(error))
            return 0
        by_name = {part.partition: part for part in parts}
        self._in_flight[future] = FetchInFlight(node, connection, fetch, by_name, size, self._now)
        return size


async def _wait_for_all(chores: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*chores, return_exceptions=True)
