"""What a Spark task does: reads ranges of offsets as Arrow, straight from Fetch responses.

This module and its imports load no pyspark; an import contract checks that.

In the order of this file::

    read_ranges       the rows of a task: the entry point
    ClientPool        connections that a Python worker keeps from task to task
    RangeProgress     how far a range was read, and what delays it
    RangeFetch        one Fetch: its ranges, and how many bytes it requests
    handle_response   what a response means for a range
    LogExtent         whether missing records are delayed, compacted or lost
    FetchLoop         fetches until all ranges are read: leaders, connections, backoff, timeout

Several ranges of a broker are requested at a time: the next response is on its way while one is
decoded. Memory: the responses in flight, one more, and a part of that one as Arrow.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter, deque
from collections.abc import Coroutine, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from rota.client import arrow, fetch
from rota.client.cluster import ClusterClient
from rota.client.connection import BrokerConnection
from rota.client.fetch import Batch, FetchedPartition, FetchOutcome, FetchSource, PreparedFetch
from rota.client.metadata import ClusterMetadata
from rota.client.offsets import EARLIEST, LATEST, list_offsets
from rota.client.retry import is_permanent
from rota.engine.model.config import ClientConfig, FetchConfig
from rota.engine.model.topic import TopicPartition
from rota.errors import Code, RotaError, TimedOut, UnknownTopic, Unreachable
from rota.protocol.messages import Api, FetchResponse
from rota.spark.plan import TaskRanges
from rota.spark.query import SourceOptions, report_data_loss

MAX_ROWS = 50_000  # rows of one Arrow batch, at most
ARROW_BATCH_BYTES = 16 << 20  # bytes of an Arrow batch, about; one record may have more
DECODE_BYTES = 8 << 20  # decompressed bytes decoded together; one record batch may have more


def read_ranges(task: TaskRanges, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yields a task's rows; those of a range in order of their offsets. Raises DataLost (with
    ``failOnDataLoss``), RecordError, Refused, or TimedOut (``kafkaConsumer.pollTimeoutMs``).
    """
    blocking = CLIENT_POOL.take_client(options.client_config)
    loop = FetchLoop(blocking, task, options)
    try:
        while (yield from _next_rows(blocking, loop, options)):
            pass
    except BaseException:  # also if Spark needs no more rows: responses are still on their way
        try:
            loop.close()
        finally:
            blocking.close()
        raise
    loop.close()
    CLIENT_POOL.return_client(options.client_config, blocking)


def _next_rows(
    blocking: BlockingClient, loop: FetchLoop, options: SourceOptions
) -> Generator[pa.RecordBatch, None, bool]:
    """Yields the rows of the next responses, and keeps none; returns whether there were any."""
    responses = blocking.run(loop.next_responses())
    for each in responses:
        for batch in _decode_response(each, options):
            yield from _split_rows(batch, options)
            del batch  # a batch may be large: free it before the next one is made
    return bool(responses)


def _decode_response(fetched: FetchedRange, options: SourceOptions) -> Iterator[Batch]:
    batches = fetch.read_batches(
        fetched.fetched,
        check=options.read_config.check_crcs,
        committed_only=options.read_config.committed_only,
        control=options.include_batch_info,
        portion=DECODE_BYTES,
    )
    for batch in batches:
        count = int(np.searchsorted(batch.offsets, fetched.until))
        if count:
            yield batch[:count]
        if batch.next_offset >= fetched.until:
            return  # damage after the range does not matter
        del batch


def _split_rows(batch: Batch, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    columns = batch.columns
    size = int((columns.end[batch.rows] - columns.start[batch.rows]).sum())
    count = max(1, min(MAX_ROWS, len(batch) * ARROW_BATCH_BYTES // max(size, 1)))
    headers, batch_info = options.include_headers, options.include_batch_info
    for first in range(0, len(batch), count):
        rows = batch[first : first + count]
        yield to_record_batch(rows, headers=headers, batch_info=batch_info)


BATCH_INFO_FIELDS = (
    *(pa.field("control", pa.bool_()), pa.field("transactional", pa.bool_())),
    *(pa.field("producerId", pa.int64()), pa.field("producerEpoch", pa.int16())),
)


def to_record_batch(batch: Batch, *, headers: bool, batch_info: bool) -> pa.RecordBatch:
    """Returns the columns of Spark's own Kafka source: a missing timestamp is -1, not null."""
    fields = list(arrow.RECORD_SCHEMA)
    arrays = arrow.make_arrays(batch, headers=headers, absent_time_is_null=False)
    if not headers:
        fields.pop()
    if batch_info:
        of, batches = batch.columns.batch[batch.rows], batch.columns.batches
        fields += BATCH_INFO_FIELDS
        arrays += [
            pa.array(batches.control[of]),
            pa.array(batches.transactional[of]),
            arrow.number_array(batches.producer_id[of], pa.int64()),
            arrow.number_array(batches.producer_epoch[of].astype(np.int16), pa.int16()),
        ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


MAX_CLIENTS = 4  # client configurations for which a worker stays connected
T = TypeVar("T")


class BlockingClient:
    """A client and the event loop that runs it while a task waits."""

    def __init__(self, config: ClientConfig) -> None:
        self.loop = asyncio.new_event_loop()
        self.client = ClusterClient(config, quiet=True)
        #: Bytes per offset in the last response of a partition.
        self.offset_bytes: dict[TopicPartition, float] = {}

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def run_pending(self) -> None:
        """Lets the loop notice what happened while it did not run, such as closed connections."""
        self.run(asyncio.sleep(0))

    def close(self) -> None:
        try:
            self.run(self.client.close())
            self.run_pending()
        finally:
            self.loop.close()


class ClientPool:
    """The clients that no task of this process uses, the oldest first."""

    def __init__(self) -> None:
        self._idle: dict[ClientConfig, BlockingClient] = {}
        self._process = os.getpid()
        self._frozen = False
        #: Clients of the parent process: closing them in a fork would disturb the parent.
        self._inherited: list[BlockingClient] = []

    def take_client(self, config: ClientConfig) -> BlockingClient:
        """Returns a client, for the caller alone until it is returned to the pool."""
        if not self._frozen:
            # excludes imported objects: Spark's worker collects garbage after every task
            gc.collect()
            gc.freeze()
            self._frozen = True
        if self._process != os.getpid():
            self._inherited += self._idle.values()
            self._idle, self._process = {}, os.getpid()
        client = self._idle.pop(config, None)
        if client is None:
            return BlockingClient(config)
        client.run_pending()
        return client

    def return_client(self, config: ClientConfig, client: BlockingClient) -> None:
        if config in self._idle:  # one task has read twice at a time
            self._idle.pop(config).close()
        while len(self._idle) >= MAX_CLIENTS:
            self._idle.pop(next(iter(self._idle))).close()
        self._idle[config] = client

    def close(self) -> None:
        while self._idle:
            self._idle.popitem()[1].close()


CLIENT_POOL: Final = ClientPool()


@dataclass(slots=True, eq=False)
class RangeProgress:
    """A range that is not fully read yet. Its clock runs only while the task waits."""

    partition: TopicPartition
    position: int
    until: int
    source: FetchSource = field(default_factory=FetchSource)
    node: int | None = None  # the broker to request it from; None: not known
    leader_only: bool = False  # a follower failed: a request without rack names no follower
    fetch_alone: bool = False  # request it alone: a response with others had no space
    empty_responses: int = 0  # empty responses in a row, with nothing else requested
    readable_until: int = 0  # all of these responses reported records before this offset
    needs_leader: bool = False  # the leader must be looked up before the next request
    unknown_since: float | None = None  # since when brokers say that it does not exist
    waiting_since: float | None = None  # since when it is requested without progress
    last_failure: str = ""

    def advance_to(self, position: int) -> None:
        """Sets the position, and forgets failures."""
        self.position = position
        self.empty_responses, self.source.failures, self.fetch_alone = 0, 0, False
        self.waiting_since = self.unknown_since = None
        self.last_failure = ""

    def leave_replica(self) -> bool:
        """Returns to the leader for good; returns whether a follower was in use."""
        left = self.source.leave_replica()
        self.leader_only |= left
        return left

    def __str__(self) -> str:
        return f"{self.partition} from offset {self.position} to {self.until}"


FETCH_BYTES = 4 << 20  # bytes of a Fetch, about; ``max.partition.fetch.bytes`` may be more
FETCH_MARGIN = 128 << 10  # bytes requested beyond the estimate for a range: batches are not cut
DEFAULT_OFFSET_BYTES = 1024.0  # bytes per offset of a partition without a response


@dataclass(frozen=True, slots=True, eq=False)
class RangeFetch:
    node: int
    connection: BrokerConnection
    fetch: PreparedFetch
    ranges: Mapping[TopicPartition, RangeProgress]
    max_bytes: int
    sent_at: float


class FetchSizes:
    """How many bytes to request, estimated from earlier responses; a wrong one costs only time."""

    def __init__(self, max_bytes: int, offset_bytes: dict[TopicPartition, float]) -> None:
        self._max_bytes = max_bytes  # ``max.partition.fetch.bytes``
        self._offset_bytes = offset_bytes
        self._last_response_bytes: dict[TopicPartition, int] = {}

    def bytes_to_request(self, progress: RangeProgress) -> int:
        if progress.fetch_alone:
            return self._max_bytes
        rate = self._offset_bytes.get(progress.partition, DEFAULT_OFFSET_BYTES)
        left = progress.until - progress.position
        return min(self._max_bytes, int(left * rate) + FETCH_MARGIN)

    def record_response(self, partition: TopicPartition, size: int, offsets: int) -> None:
        self._offset_bytes[partition] = size / offsets
        self._last_response_bytes[partition] = size

    def largest_response(self, partitions: Iterable[TopicPartition]) -> int:
        """Returns the bytes that one partition may have whatever the limit: batches are whole."""
        rates, sizes = self._offset_bytes, self._last_response_bytes
        largest = (max(sizes.get(each, 0), int(rates.get(each, 0))) for each in partitions)
        return max(largest, default=0)


def choose_ranges(
    queue: Iterable[RangeProgress], node: int, sizes: FetchSizes, now: float
) -> list[RangeProgress]:
    chosen: dict[TopicPartition, RangeProgress] = {}
    size = 0
    for each in queue:
        if each.node != node or each.needs_leader or each.source.retry_at > now:
            continue
        if each.partition in chosen:  # a Fetch names a partition once
            continue
        single = each.fetch_alone or each.leader_only
        if chosen and (single or size + sizes.bytes_to_request(each) > FETCH_BYTES):
            break
        chosen[each.partition] = each
        size += sizes.bytes_to_request(each)
        if single:
            break
    return list(chosen.values())


def build_range_fetch(
    ranges: Sequence[RangeProgress],
    metadata: ClusterMetadata,
    config: FetchConfig,
    sizes: FetchSizes,
) -> tuple[PreparedFetch, int]:
    """Returns the request, and how many bytes the response may have."""
    limits = [sizes.bytes_to_request(each) for each in ranges]
    requested = [
        fetch.request_partition(metadata, each.partition, each.position, max_bytes=limit)
        for each, limit in zip(ranges, limits, strict=True)
    ]
    if any(each.leader_only for each in ranges):
        config = replace(config, rack=None)
    size = min(sum(limits), config.fetch_max_bytes)
    prepared = fetch.build_fetch(requested, config, max_bytes=size)
    return prepared, max(size, sizes.largest_response(each.partition for each in ranges))


EMPTY_RESPONSES_BEFORE_CHECK = 3  # empty responses in a row before the log is looked up


def handle_response(
    progress: RangeProgress, fetched: FetchedPartition, *, alone: bool, committed_only: bool
) -> FetchOutcome:
    """Advances a range by a response, and returns what to do next; ``HAS_RECORDS`` has moved it
    already, after ``OUT_OF_RANGE`` the records may be gone.

    :param alone: nothing else was requested, so the response had space for a batch at the position
    :raises RotaError: the error does not go away by itself
    """
    if fetched.error_code:
        code = fetched.error_code
        name = Code(code).name if code in set(Code) else "unknown"
        progress.last_failure = f"error {code} ({name}) at offset {progress.position}"
        progress.leader_only |= progress.source.replica is not None
        outcome = fetch.classify_error_code(code, progress.source)
        if outcome is FetchOutcome.RAISE:
            raise fetch.fetch_error(fetched)
        return outcome
    end = fetch.find_response_end(fetched)
    if end is not None and end.position.offset > progress.position:
        progress.advance_to(end.position.offset)
        return FetchOutcome.HAS_RECORDS
    if not progress.leader_only and progress.source.redirect(fetched):
        return FetchOutcome.NO_RECORDS
    if not alone:
        progress.fetch_alone = True
        return FetchOutcome.NO_RECORDS
    if end is not None and not end.is_sound:
        progress.last_failure = "the response has no whole batch"
        return FetchOutcome.HAS_RECORDS  # read_batches raises an error for this response
    return _handle_empty(progress, fetched, committed_only=committed_only)


def _handle_empty(
    progress: RangeProgress, fetched: FetchedPartition, *, committed_only: bool
) -> FetchOutcome:
    """One empty response proves nothing: remote storage (KIP-405) may need more time."""
    if progress.leave_replica():  # a follower may be behind its leader
        return FetchOutcome.NO_RECORDS
    stable = fetched.last_stable_offset if committed_only else -1
    readable = fetched.high_watermark if stable < 0 else stable
    is_first = not progress.empty_responses
    progress.readable_until = readable if is_first else min(readable, progress.readable_until)
    progress.empty_responses += 1
    progress.last_failure = f"the broker returns no records; it reports an end at {readable}"
    if committed_only and readable <= progress.position < fetched.high_watermark:
        text = f"a transaction is open at offset {readable}, and read_committed does not go beyond"
        progress.last_failure = text
    needs_check = progress.empty_responses >= EMPTY_RESPONSES_BEFORE_CHECK
    return FetchOutcome.OUT_OF_RANGE if needs_check else FetchOutcome.RETRY


EARLIEST_LOCAL = -4  # ListOffsets timestamp of the log start on the broker's disks (KIP-405)


class LogExtent(NamedTuple):
    log_start: int
    local_log_start: int  # where the log begins on the broker's own disks
    log_end: int  # the offset after the last record


async def look_up_extents(
    client: ClusterClient, partitions: set[TopicPartition], deadline: float
) -> dict[TopicPartition, LogExtent]:
    bounds: dict[TopicPartition, list[int]] = {each: [] for each in sorted(partitions)}
    for timestamp in (EARLIEST, EARLIEST_LOCAL, LATEST):
        listed = await list_offsets(client, dict.fromkeys(bounds, timestamp), deadline=deadline)
        for each, offsets in bounds.items():
            at = listed[each]
            offsets.append(0 if at is None else at.offset)
    return {each: LogExtent(*offsets) for each, offsets in bounds.items()}


def skip_missing(progress: RangeProgress, extent: LogExtent, *, fail: bool) -> None:
    """Moves a range behind missing records; raises DataLost with ``failOnDataLoss``."""
    if progress.position < extent.log_start:
        report_data_loss(f"{progress}: the log now begins at {extent.log_start}", fail=fail)
        progress.advance_to(extent.log_start)
    elif progress.position >= extent.log_end:
        report_data_loss(f"{progress}: the log now ends at {extent.log_end}", fail=fail)
        progress.advance_to(progress.until)
    elif (
        progress.empty_responses >= EMPTY_RESPONSES_BEFORE_CHECK
        and progress.readable_until > progress.position >= extent.local_log_start
    ):
        # on its own disks a broker finds every record: compaction has removed these
        progress.advance_to(min(progress.readable_until, progress.until))
    else:
        progress.empty_responses = 0


MAX_IN_FLIGHT = 2  # Fetch requests in flight to one broker
MAX_BYTES_IN_FLIGHT = 32 << 20  # bytes in flight from all brokers; one Fetch may bring more
#: Share of the timeout after which a topic that brokers do not know counts as deleted: a broker
#: that is behind does not know a topic that exists.
UNKNOWN_TOPIC_SHARE = 0.5
#: Seconds: no response is late while Spark takes rows. ``FetchLoop`` measures the time it waits.
FETCH_DEADLINE = 7 * 86_400.0


class FetchedRange(NamedTuple):
    fetched: FetchedPartition
    until: int  # the end of the range: later records do not belong to it


class _BrokerFailure(NamedTuple):
    since: float
    text: str


class FetchLoop:
    """Fetches the ranges of one task. This loop, beside that of :mod:`rota.consumer.fetcher`, ends
    when ranges are read, blocks while Spark takes rows, and finds out whether missing records are
    lost.

    Background tasks refresh leaders, look up log extents and open connections: at most one of each,
    and one connection attempt for each broker. No range waits for those of another.
    """

    def __init__(self, blocking: BlockingClient, task: TaskRanges, options: SourceOptions) -> None:
        self._blocking_client = blocking
        self._client = blocking.client
        self._options = options
        self._timeout = options.poll_timeout / 1000
        self._request_timeout = self._client.config.request_timeout / 1000
        self._sizes = FetchSizes(options.read_config.max_partition_bytes, blocking.offset_bytes)
        #: Ranges that are not in flight.
        self._queue = deque(RangeProgress(*each) for each in task if each.size > 0)
        self._to_check: list[RangeProgress] = []  # ranges whose log extent is needed
        self._in_flight: dict[asyncio.Future[FetchResponse], RangeFetch] = {}
        self._background: dict[Hashable, asyncio.Task[None]] = {}
        #: Brokers that cannot be reached; None: no broker returns metadata.
        self._broker_failures: dict[int | None, _BrokerFailure] = {}
        self._idle_seconds = 0.0  # seconds in which the task did not wait
        self._idle_since: float | None = None
        self._leaders_requested = False

    async def next_responses(self) -> list[FetchedRange]:
        """Waits for the next responses; an empty list means that all ranges are read."""
        if self._idle_since is not None:
            self._idle_seconds += self._blocking_client.loop.time() - self._idle_since
        try:
            while self._queue or self._in_flight or self._to_check:
                # one time for each pass: a range whose pause ends later is waited for
                now = self._now
                self._start_background(now)
                self._send_fetches(now)
                done = next((each for each in self._in_flight if each.done()), None)
                if done is None:
                    await self._wait(now)
                    self._check_timeouts()
                elif fetched := self._take_response(done):
                    self._send_fetches(now)  # the next is on its way while Spark takes these
                    return fetched
            return []
        finally:
            self._idle_since = self._blocking_client.loop.time()

    def close(self) -> None:
        background = list(self._background.values())
        started: list[asyncio.Future[Any]] = [*self._in_flight, *background]
        for each in started:
            each.cancel()
        self._in_flight, self._background = {}, {}
        if background:
            waiting = asyncio.gather(*background, return_exceptions=True)
            self._blocking_client.loop.run_until_complete(waiting)

    @property
    def _now(self) -> float:
        """By the clock that runs only while the task waits."""
        return self._blocking_client.loop.time() - self._idle_seconds

    def _take_response(self, future: asyncio.Future[FetchResponse]) -> list[FetchedRange]:
        """Returns the ranges of one Fetch response that have records."""
        flight = self._in_flight.pop(future)
        error = future.exception()
        if error is not None:
            if not isinstance(error, Unreachable):
                raise error
            self._retry_later(flight.ranges.values(), str(error))
            return []
        with_records, omitted, response = [], dict(flight.ranges), future.result()
        for fetched in flight.fetch.parse(response):
            progress = omitted.pop(fetched.partition, None)
            if progress is not None and self._handle_range(progress, fetched, flight):
                with_records.append(FetchedRange(fetched, progress.until))
        throttled = response.throttle_time_ms / 1000
        if throttled <= 0:
            self._retry_later(omitted.values(), "the broker's response leaves it out")
            return with_records
        for progress in omitted.values():
            # a broker that throttles this client leaves out all partitions (KIP-219)
            progress.last_failure = f"throttled by a quota of the broker for {throttled:g} s"
            progress.source.retry_at = self._now + throttled
            self._requeue(progress)
        return with_records

    def _handle_range(
        self, progress: RangeProgress, fetched: FetchedPartition, flight: RangeFetch
    ) -> bool:
        """Queues a range as its response demands; returns whether the response has records."""
        before, alone = progress.position, len(flight.ranges) == 1
        committed = self._options.read_config.committed_only
        outcome = handle_response(progress, fetched, alone=alone, committed_only=committed)
        if outcome is FetchOutcome.OUT_OF_RANGE:
            self._to_check.append(progress)
        elif outcome in {FetchOutcome.RETRY, FetchOutcome.REFRESH_METADATA}:
            self._retry_later([progress], progress.last_failure)
        else:
            if offsets := progress.position - before:
                self._sizes.record_response(progress.partition, len(fetched.records), offsets)
            self._requeue(progress)
        return outcome is FetchOutcome.HAS_RECORDS

    def _requeue(self, progress: RangeProgress) -> None:
        if progress.position < progress.until:
            progress.node = self._find_node(progress)
            progress.needs_leader = progress.node is None
            self._queue.appendleft(progress)  # one partition after the other

    def _retry_later(self, ranges: Iterable[RangeProgress], failure: str) -> None:
        """Queues ranges again, after a backoff and a refresh of their leaders."""
        for progress in list(ranges):
            progress.last_failure = failure
            progress.source.record_failure(self._now, self._client.backoff.pause_after)
            if progress.waiting_since is None:
                progress.waiting_since = self._now
            progress.needs_leader = True
            self._queue.append(progress)

    async def _wait(self, now: float) -> None:
        """Waits for a response, a background task or the next time that is due."""
        waiting = [each.waiting_since for each in self._all_ranges()]
        failing = [failure.since for failure in self._broker_failures.values()]
        due = [each.source.retry_at for each in self._queue if each.source.retry_at > now]
        due += [flight.sent_at + self._request_timeout for flight in self._in_flight.values()]
        due += [since + self._timeout for since in (*waiting, *failing) if since is not None]
        timeout = max(min(due) - self._now, 0.0) + 0.001 if due else None
        tasks: list[asyncio.Future[Any]] = [*self._in_flight, *self._background.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        else:
            assert timeout is not None, "nothing is in flight, and nothing is due"
            await asyncio.sleep(timeout)
        for key in [key for key, task in self._background.items() if task.done()]:
            self._background.pop(key).result()
        self._close_late_connections()

    def _close_late_connections(self) -> None:
        """Closes connections whose response is late: the next ones would be later still."""
        now = self._now
        late = {
            each.connection
            for future, each in self._in_flight.items()
            if not future.done() and now - each.sent_at >= self._request_timeout
        }
        timeout = self._request_timeout
        for future, flight in list(self._in_flight.items()):
            if flight.connection in late and not future.done():
                future.cancel()
                del self._in_flight[future]
                text = f"{flight.connection.name}: no response to Fetch within {timeout:g} s"
                self._retry_later(flight.ranges.values(), text)
        for connection in late:
            connection.close()

    def _all_ranges(self) -> Iterable[RangeProgress]:
        yield from self._queue
        yield from self._to_check
        for flight in self._in_flight.values():
            yield from flight.ranges.values()

    def _check_timeouts(self) -> None:
        now = self._now
        for each in self._all_ranges():
            if each.waiting_since is not None and now - each.waiting_since >= self._timeout:
                raise self._timeout_error(each, each.last_failure)
        for node, failure in list(self._broker_failures.items()):
            waiting = [each for each in self._queue if node is None or each.node == node]
            if not waiting:
                del self._broker_failures[node]  # other brokers lead by now
            elif now - failure.since >= self._timeout:
                raise self._timeout_error(waiting[0], failure.text)

    def _timeout_error(self, progress: RangeProgress, failure: str) -> TimedOut:
        return TimedOut(
            f"{progress.partition}: no progress from offset {progress.position} for "
            f"{self._timeout:g} s (kafkaConsumer.pollTimeoutMs): {failure}"
        )

    def _start_background(self, now: float) -> None:
        late = [each for each in self._queue if each.needs_leader and each.source.retry_at <= now]
        unknown = late or not self._leaders_requested
        if self._queue and unknown and "leaders" not in self._background:
            self._start_task("leaders", self._learn_leaders())
        if self._to_check and "extents" not in self._background:
            self._start_task("extents", self._check_logs())
        for node in {each.node for each in self._queue if not each.needs_leader}:
            if node is None or node in self._background:
                continue
            if self._client.open_connection(node) is None:
                self._start_task(node, self._connect(node))

    def _start_task(self, key: Hashable, coroutine: Coroutine[Any, Any, None]) -> None:
        self._background[key] = self._blocking_client.loop.create_task(coroutine)

    async def _learn_leaders(self) -> None:
        """Finds the leaders of queued ranges; refreshes metadata that is missing or was wrong."""
        begun, queued, self._leaders_requested = self._now, list(self._queue), True
        topics = {each.partition.topic for each in queued}
        stale = any(each.needs_leader for each in queued)
        if stale or not topics <= self._client.metadata.topics.keys():
            deadline = self._client.deadline_after(self._timeout)
            try:
                await self._client.refresh(topics, deadline=deadline)
            except Unreachable as error:
                self._record_failure(None, begun, error)
                return
        self._broker_failures.pop(None, None)
        now = self._now
        for each in [each for each in self._queue if each.partition.topic in topics]:
            if each.needs_leader and each.source.retry_at > now:
                continue  # it has failed meanwhile
            each.node, each.needs_leader = self._find_node(each), False
            if each.node is None:
                self._queue.remove(each)
                self._handle_no_leader(each)

    def _handle_no_leader(self, progress: RangeProgress) -> None:
        metadata = self._client.metadata
        if (error := metadata.topic_error(progress.partition)) is not None:
            raise error
        if metadata.partition(progress.partition) is not None:
            self._retry_later([progress], "it has no leader")
            return
        if progress.unknown_since is None:
            progress.unknown_since = self._now
        if self._now - progress.unknown_since >= UNKNOWN_TOPIC_SHARE * self._timeout:
            fail = self._options.fail_on_data_loss
            report_data_loss(f"{progress}: the partition does not exist", fail=fail)
        else:
            self._retry_later([progress], "there is no such partition")

    async def _check_logs(self) -> None:
        """Looks up the log extents of ranges whose records are missing."""
        ranges, failure = list(self._to_check), None
        timeout = min(self._timeout, self._client.config.api_timeout / 1000)
        deadline = self._client.deadline_after(timeout)
        try:
            partitions = {each.partition for each in ranges}
            extents = await look_up_extents(self._client, partitions, deadline)
        except (Unreachable, UnknownTopic) as error:
            if is_permanent(error) and not isinstance(error, UnknownTopic):
                raise
            extents, failure = {}, str(error)
        for progress in ranges:
            self._to_check.remove(progress)
            if progress.partition in extents:
                before, extent = progress.position, extents[progress.partition]
                skip_missing(progress, extent, fail=self._options.fail_on_data_loss)
                if progress.position > before:
                    self._requeue(progress)
                    continue
            self._retry_later([progress], failure or progress.last_failure)

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
        retry_at = self._now + self._client.backoff.pause_after(1)
        for each in self._queue:
            if node is None or each.node == node:
                each.source.retry_at = max(each.source.retry_at, retry_at)
                each.needs_leader = True
                if each.source.replica == node:
                    each.leave_replica()

    def _find_node(self, progress: RangeProgress) -> int | None:
        if progress.source.replica is not None:
            return progress.source.replica
        return self._client.metadata.leader(progress.partition)

    def _send_fetches(self, now: float) -> None:
        """Sends Fetches to all connected brokers that have fewer than ``MAX_IN_FLIGHT``."""
        nodes = dict.fromkeys(each.node for each in self._queue if each.node is not None)
        in_flight = Counter(flight.node for flight in self._in_flight.values())
        bytes_in_flight = sum(flight.max_bytes for flight in self._in_flight.values())
        for _ in range(MAX_IN_FLIGHT):
            for node in nodes:
                is_free = in_flight[node] < MAX_IN_FLIGHT and bytes_in_flight < MAX_BYTES_IN_FLIGHT
                connection = self._client.open_connection(node) if is_free else None
                if connection is None:
                    continue
                ranges = choose_ranges(self._queue, node, self._sizes, now)
                if ranges:
                    bytes_in_flight += self._send_fetch(node, connection, ranges)
                    in_flight[node] += 1

    def _send_fetch(
        self, node: int, connection: BrokerConnection, ranges: list[RangeProgress]
    ) -> int:
        for each in ranges:
            self._queue.remove(each)
            each.last_failure = each.last_failure or f"{connection.name} has not responded"
            if each.waiting_since is None:
                each.waiting_since = self._now
        config, metadata = self._options.read_config, self._client.metadata
        prepared, size = build_range_fetch(ranges, metadata, config, self._sizes)
        message, most = prepared.message, prepared.max_version
        deadline = self._blocking_client.loop.time() + FETCH_DEADLINE
        try:
            future = connection.send(Api.FETCH, message, deadline=deadline, most=most)
        except Unreachable as error:
            self._retry_later(ranges, str(error))
            return 0
        by_partition = {each.partition: each for each in ranges}
        flight = RangeFetch(node, connection, prepared, by_partition, size, self._now)
        self._in_flight[future] = flight
        return size
