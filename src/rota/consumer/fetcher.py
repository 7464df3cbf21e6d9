"""Fetches the assigned partitions ahead of the application.

Unlike the loop of the Spark tasks (:mod:`rota.spark.task`) this one never ends, its partitions come
and go and move with every seek, and memory must stay bounded while the application takes records.

One or two Fetch requests are in flight to each broker. The next one is sent as soon as a response
arrives, before the response is decoded. A broker holds a Fetch until one of its partitions has
records, at most for ``fetch.max.wait.ms``, and answers the requests of a connection in order. So
partitions that become fetchable meanwhile (drained, sought, resumed or assigned) are requested over
a second connection. That second Fetch waits only briefly. If it brings no records, it is sent again
with all partitions that are fetchable then, and waits twice as long.

Memory is bounded. A partition is requested again while at most ``max.partition.fetch.bytes`` of it
are buffered. No partition is requested while half of ``fetch.max.bytes`` are buffered in all, or
two responses if those are more. So at most 1.5 times ``fetch.max.bytes`` (2 times if a response may
be more than a quarter of it), or 2 times ``max.partition.fetch.bytes`` for each partition, are in
memory as the brokers sent them, plus the response that is handed out, of which 16 MiB are decoded
at a time. Exceptions: a broker also sends a record batch that is larger than a limit; a response
may always have 4 MiB, which exceeds ``fetch.max.bytes`` with more than six brokers by default; the
bytes of paused and pending-revocation partitions may double this, and one of them stays decoded.
``compute_byte_limits`` has the arithmetic.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from rota.client import offsets
from rota.client.cluster import ClusterClient
from rota.client.config import Deserializer
from rota.client.connection import BrokerConnection
from rota.client.fetch import (
    Batch,
    FetchOutcome,
    FetchPosition,
    PreparedFetch,
    build_fetch,
    find_response_end,
    request_partition,
)
from rota.client.metadata import ClusterMetadata
from rota.client.offsets import OffsetQuery
from rota.client.retry import is_permanent
from rota.consumer.buffer import FetchBuffer, store_nothing
from rota.consumer.positions import (
    FetchablePartition,
    FetchState,
    LeaderAndEpoch,
    Positions,
    RequestToken,
)
from rota.consumer.records import Records
from rota.engine.model.config import BY_DURATION, FetchConfig
from rota.engine.model.text import list_first_names
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import Code, RotaError, TimedOut, Unreachable
from rota.protocol.messages import Api, FetchResponse

LOGGER = logging.getLogger("rota.consumer")
CommittedOffsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata | None]
FetchCommittedOffsets: TypeAlias = Callable[
    [tuple[TopicPartition, ...]], Awaitable[CommittedOffsets]
]


class Fetcher:
    def __init__(  # noqa: PLR0913, what a consumer is made of
        self,
        client: ClusterClient,
        config: FetchConfig,
        committed: FetchCommittedOffsets | None,
        wake: Callable[[], None],
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> None:
        """``committed``: None without a group. ``wake`` is called when records or errors arrive."""
        self._client = client
        self._config = config
        self._wake = wake
        self._positions = Positions(
            reset=_reset_target(config),
            backoff=client.backoff.pause_after,
            preferred_replica_expiry=client.config.metadata_max_age / 1000,
            warn=LOGGER.warning,
        )
        key, value = key_deserializer, value_deserializer
        self._buffer = FetchBuffer(
            self._positions, config, drained=self._handle_drained, key=key, value=value
        )
        positions, buffer, done = self._positions, self._buffer, self._handle_change
        self._offset_fetcher = OffsetFetcher(client, config, positions, buffer, done, committed)
        self._in_flight = InFlightFetches(
            client, config, positions, buffer, done, self._offset_fetcher
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._metadata: ClusterMetadata | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._changed = False  # new requests may be possible
        self._missing: set[TopicPartition] = set()  # partitions that do not exist and were logged
        self._refresh_at = 0.0
        self._refreshes = 0
        self._refreshing = False
        self._closed = False
        client.metadata_listeners.append(self._handle_change)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._positions.assign(partitions)
        if self._metadata is not None:  # nearly always new enough
            self._positions.update_leaders(partial(_find_leader, self._metadata))
        self._restart()

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        self._positions.mark_pending_revocation(partitions)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hands out and fetches nothing of these; their records are kept while memory allows."""
        for each in partitions:
            self._positions.pause(each, paused=True)
        self._restart()  # other partitions may use their memory

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self._positions.pause(each, paused=False)
        self._restart()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(entry.partition for entry in self._positions if entry.paused)

    def seek(self, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        self._positions.seek(partition, FetchPosition(offset.offset, offset.leader_epoch))
        self._restart()

    def seek_to(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        """Continues at the offsets of a ListOffsets timestamp, once they are known."""
        for each in partitions:
            self._positions.seek_to(each, timestamp)
        self._restart()

    def _restart(self) -> None:
        """Starts over after a change by the application, and wakes waiting calls."""
        self._in_flight.second_waits.clear()  # new partitions may be fetchable
        self._changed = True
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._wake()

    @property
    def has_records(self) -> bool:
        """Records or an error are waiting."""
        return bool(self._buffer)

    @property
    def needs_start(self) -> bool:
        """:meth:`start_requests` may have requests to send."""
        return self._changed

    def prepare_records(self, max_records: int) -> None:
        """Decodes up to ``max_records`` fetched records; runs the deserializers."""
        self._buffer.prepare_records(max_records)

    def take_records(
        self, max_records: int, store_records: Callable[[Records], None] = store_nothing
    ) -> Records:
        """Returns prepared records; calls ``store_records`` with them before the positions move."""
        with self._in_loop_after_errors():
            return self._buffer.take_records(max_records, store_records)

    def take_batches(
        self, store_records: Callable[[list[Batch]], None] = store_nothing
    ) -> list[Batch]:
        """As :meth:`take_records`, but returns all fetched records, as columns."""
        with self._in_loop_after_errors():
            return self._buffer.take_batches(store_records)

    @contextlib.contextmanager
    def _in_loop_after_errors(self) -> Iterator[None]:
        """Makes the poll after an error run in the loop, where other responses arrive."""
        try:
            yield
        except Exception:
            self._changed = True
            raise

    def consumed_positions(self, *only: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._positions.consumed_positions(*only)

    def position(self, partition: TopicPartition) -> int | None:
        """Returns the next offset to be handed out; None: not known yet, or not assigned."""
        entry = self._positions.get(partition)
        if entry is None or entry.state is not FetchState.FETCHING or not entry.consumed_position:
            return None
        return entry.consumed_position.offset

    def high_watermark(self, partition: TopicPartition) -> int | None:
        entry = self._positions.get(partition)
        return None if entry is None else entry.high_watermark

    def lag(self, partition: TopicPartition) -> int | None:
        """Returns the number of offsets to the end of the log, as the last fetch reported it."""
        entry = self._positions.get(partition)
        if entry is None or entry.consumed_position is None:
            return None
        end = entry.last_stable if self._config.committed_only else entry.high_watermark
        return None if end is None else max(end - entry.consumed_position.offset, 0)

    @property
    def buffered(self) -> int:
        return self._positions.buffered_bytes

    async def wait_for_positions(
        self, partitions: Iterable[TopicPartition], deadline: float
    ) -> None:
        """Waits until all of these have a position. Raises TimedOut, or a partition's error."""
        wanted = frozenset(partitions)
        loop = asyncio.get_running_loop()
        while missing := [each for each in sorted(wanted) if self.position(each) is None]:
            self.start_requests()
            if (error := self._buffer.take_error_of(wanted)) is not None:
                raise error
            waiter = loop.create_future()
            self._waiters.append(waiter)
            try:
                async with asyncio.timeout_at(deadline):
                    await waiter
            except TimeoutError:
                names = list_first_names([str(each) for each in missing])
                raise TimedOut(f"no position of {names} before the timeout") from None
            finally:
                self._waiters.remove(waiter)

    async def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._handle_change in self._client.metadata_listeners:
            self._client.metadata_listeners.remove(self._handle_change)
        self._in_flight.closed = True
        await self._offset_fetcher.close()
        self._positions.assign(())
        self._buffer.drop_outdated()

    def start_requests(self) -> None:
        """Sends all requests that are possible now: for positions, records and metadata."""
        if self._closed or not self._changed:
            return
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        self._changed = False
        now = loop.time()
        if self._client.metadata is not self._metadata:
            self._apply_metadata(self._client.metadata)
        self._offset_fetcher.start_requests(loop, now)
        self._in_flight.send_fetches(loop, now)
        self._refresh_leaders(loop, now)
        self._set_timer(loop, now)

    def _handle_drained(self) -> None:
        """Requests more, before the next response is decoded."""
        self._changed = True
        if self._loop is None or self._closed:
            return
        if self._loop.is_running():
            self.start_requests()
        else:  # the other requests can wait until the loop runs
            self._in_flight.send_fetches(self._loop, self._loop.time())

    def _handle_change(self, _: object = None) -> None:
        """Starts the next requests after a response, a timer or new metadata."""
        self._changed = True
        if self._closed:
            return
        self.start_requests()
        if self._waiters or self._buffer:
            self._wake_waiters()

    def _set_timer(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        times = self._positions.next_retry_at(now) or 0.0, self._refresh_at
        due = min([each for each in times if each > now], default=None)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if due is None else loop.call_at(due, self._handle_change)

    def _apply_metadata(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata
        self._positions.update_leaders(partial(_find_leader, metadata))
        by_topic: dict[str, list[TopicPartition]] = {}
        for entry in self._positions:
            by_topic.setdefault(entry.partition.topic, []).append(entry.partition)
        for _, partitions in sorted(by_topic.items()):
            if (error := metadata.topic_error(partitions[0])) is not None:
                self._buffer.add_error(error, *partitions)
        self._warn_of_missing(metadata)

    def _warn_of_missing(self, metadata: ClusterMetadata) -> None:
        """Logs once of each partition that it does not exist: its name may be a mistake."""
        missing = set(self._positions.leaderless)
        for each in sorted(missing - self._missing):
            known = metadata.topics.get(each.topic)
            if known is not None and known.error == Code.UNKNOWN_TOPIC_OR_PARTITION:
                LOGGER.warning("there is no topic %r: %s waits for it", each.topic, each)
            elif known is not None and not known.error and each.partition >= len(known.partitions):
                count = len(known.partitions)
                LOGGER.warning("there is no partition %s: %s has %d", each, each.topic, count)
            else:
                missing.discard(each)
        self._missing = missing

    def _refresh_leaders(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        """Refreshes metadata while a partition has no leader, with growing pauses."""
        if not self._positions.leaderless:
            self._refreshes, self._refresh_at = 0, 0.0
        elif now >= self._refresh_at and not self._refreshing:
            self._refreshes += 1
            self._refresh_at = now + self._client.backoff.pause_after(self._refreshes)
            topics = {each.topic for each in self._positions.leaderless}
            self._offset_fetcher.run_request(loop, partial(self._send_metadata, topics), ())

    async def _send_metadata(self, topics: set[str]) -> None:
        self._refreshing = True
        try:
            deadline = self._client.request_deadline()
            await self._client.refresh(topics, deadline=deadline, create=True)
        finally:
            self._refreshing = False


def _reset_target(config: FetchConfig) -> int | Callable[[], int] | None:
    """Returns the ListOffsets timestamp for ``auto.offset.reset``; None: ``none``."""
    if config.auto_offset_reset == BY_DURATION:
        return lambda: int(time.time() * 1000) - config.reset_duration
    return {"earliest": offsets.EARLIEST, "latest": offsets.LATEST}.get(config.auto_offset_reset)


def _find_leader(metadata: ClusterMetadata, partition: TopicPartition) -> LeaderAndEpoch | None:
    node, known = metadata.leader(partition), metadata.partition(partition)
    return None if node is None or known is None else LeaderAndEpoch(node, known.leader_epoch)


#: The two connections to a broker; other requests use a third.
FIRST_FETCH, SECOND_FETCH = "fetch", "second fetch"
SECOND_FETCH_MARGIN = 0.02  # seconds by which the second Fetch ends before the first
SECOND_FETCH_WAIT = 0.02  # seconds that the second Fetch waits at first


class FetchConnection(NamedTuple):
    node: int
    use: str


@dataclass(eq=False, repr=False)
class InFlightFetches:
    client: ClusterClient
    config: FetchConfig
    positions: Positions
    buffer: FetchBuffer
    done: Callable[[], None]  # called after each response
    offset_fetcher: OffsetFetcher
    #: When a Fetch ends its wait at the broker; None: the connection is being opened.
    max_wait_ends_at: dict[FetchConnection, float | None] = field(default_factory=dict)
    #: Brokers whose second Fetch brought no records, and how long the next one waits.
    second_waits: dict[int, float] = field(default_factory=dict)
    closed: bool = False  # responses are ignored

    def send_fetches(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        """Sends the Fetch requests that can be sent, unless partitions that hand out records have
        enough buffered. While the loop does not run, only open connections are used.
        """
        positions, client = self.positions, self.client
        limits = compute_byte_limits(self.config, positions.brokers)
        if positions.inactive_bytes > limits.inactive:
            positions.release_inactive(limits.inactive)
        if positions.buffered_bytes - positions.inactive_bytes >= limits.buffered:
            return
        fetching = [key.node for key in self.max_wait_ends_at]
        busy = {node for node in fetching if self._free_connection(node, now) is None}
        if not loop.is_running():
            for node in client.metadata.brokers:
                free = self._free_connection(node, now)
                if free is not None and client.open_connection(*free[0]) is None:
                    busy.add(node)
        ready = positions.requests_for_fetch(now, busy, self.config.max_partition_bytes)
        for node, partitions in ready.items():
            connection_and_wait = self._free_connection(node, now)
            assert connection_and_wait is not None, "busy brokers are left out"
            key, wait = connection_and_wait
            connection = client.open_connection(*key)
            if connection is not None:
                self._send(loop, key, connection, partitions, wait)
            else:
                self.max_wait_ends_at[key] = None
                tokens = [each.token for each in partitions]
                connect = partial(self._connect_and_send, loop, key, partitions, wait)
                self.offset_fetcher.run_request(loop, connect, tokens)

    def _free_connection(self, node: int, now: float) -> tuple[FetchConnection, float] | None:
        """Returns the connection for the next Fetch and its maximum wait; None: both are in use."""
        first, second = FetchConnection(node, FIRST_FETCH), FetchConnection(node, SECOND_FETCH)
        if first not in self.max_wait_ends_at:
            return first, self.config.fetch_max_wait / 1000
        until = self.max_wait_ends_at[first]
        if until is None or second in self.max_wait_ends_at:
            return None
        left = until - now
        if node in self.second_waits and left <= 2 * SECOND_FETCH_MARGIN:
            return None
        longest = self.second_waits.get(node, SECOND_FETCH_WAIT)
        return second, min(max(left - SECOND_FETCH_MARGIN, 0.0), longest)

    async def _connect_and_send(
        self,
        loop: asyncio.AbstractEventLoop,
        key: FetchConnection,
        partitions: list[FetchablePartition],
        wait: float,
    ) -> None:
        try:
            deadline = self.client.request_deadline()
            connection = await self.client.connect(key.node, use=key.use, deadline=deadline)
        except BaseException:
            del self.max_wait_ends_at[key]
            raise
        current = [each for each in partitions if self.positions.is_current(each.token)]
        if current:
            self._send(loop, key, connection, current, wait)
        else:
            del self.max_wait_ends_at[key]

    def _send(
        self,
        loop: asyncio.AbstractEventLoop,
        key: FetchConnection,
        connection: BrokerConnection,
        partitions: list[FetchablePartition],
        wait: float,
    ) -> None:
        metadata = self.client.metadata
        requested = [
            request_partition(metadata, token.partition, offset, leader_epoch=epoch)
            for token, offset, epoch in partitions
        ]
        max_bytes = compute_byte_limits(self.config, self.positions.brokers).response
        max_wait = round(wait * 1000)
        fetch = build_fetch(requested, self.config, max_bytes=max_bytes, max_wait=max_wait)
        tokens = {each.token.partition: each.token for each in partitions}
        until = loop.time() + wait
        deadline = until + self.client.config.request_timeout / 1000
        try:
            future = connection.send(
                Api.FETCH, fetch.message, deadline=deadline, most=fetch.max_version, large=True
            )
        except RotaError as error:
            self.max_wait_ends_at.pop(key, None)
            self.offset_fetcher.handle_failure(tokens.values(), error, loop.time())
        else:
            self.max_wait_ends_at[key] = until
            future.add_done_callback(partial(self._handle_response, loop, key, fetch, tokens))

    def _handle_response(
        self,
        loop: asyncio.AbstractEventLoop,
        key: FetchConnection,
        fetch: PreparedFetch,
        tokens: dict[TopicPartition, RequestToken],
        future: asyncio.Future[FetchResponse],
    ) -> None:
        del self.max_wait_ends_at[key]
        if future.cancelled():
            return
        error = future.exception()
        if self.closed:
            return
        if error is not None:
            failure = error if isinstance(error, Exception) else Unreachable(str(error))
            self.offset_fetcher.handle_failure(tokens.values(), failure, loop.time())
        else:
            requested = list(tokens.values())
            try:
                self._handle_partitions(loop.time(), key, fetch, tokens, future.result())
            except Exception as failure:
                LOGGER.exception("a Fetch response of broker %d cannot be processed", key.node)
                self.offset_fetcher.handle_failure(requested, failure, loop.time())
        self.done()

    def _handle_partitions(
        self,
        now: float,
        key: FetchConnection,
        fetch: PreparedFetch,
        tokens: dict[TopicPartition, RequestToken],
        response: FetchResponse,
    ) -> None:
        outcomes = set()
        for fetched in fetch.parse(response):
            token = tokens.pop(fetched.partition, None)
            if token is None:
                continue  # the partition is there twice: the first one counts
            end = find_response_end(fetched)
            outcome, error = self.positions.handle_fetched(token, fetched, end, now)
            outcomes.add(outcome)
            if error is not None:
                lasting = outcome is FetchOutcome.OUT_OF_RANGE
                self.buffer.add_error(error, fetched.partition, lasting=lasting)
            elif outcome is FetchOutcome.HAS_RECORDS:
                self.buffer.add_response(fetched)
        if tokens and response.throttle_time_ms > 0:
            # a broker that throttles this client leaves out all partitions (KIP-219)
            self.positions.postpone(tokens.values(), now + response.throttle_time_ms / 1000)
        elif tokens:
            self.positions.handle_failure(tokens.values(), now)
            outcomes.add(FetchOutcome.REFRESH_METADATA)
        if FetchOutcome.REFRESH_METADATA in outcomes:
            self.client.request_refresh()
        node = key.node
        if key.use == FIRST_FETCH or FetchOutcome.HAS_RECORDS in outcomes:
            self.second_waits.pop(node, None)
        else:
            self.second_waits[node] = 2 * self.second_waits.get(node, SECOND_FETCH_WAIT)


@dataclass(eq=False, repr=False)
class OffsetFetcher:
    """Finds positions: committed offsets (OffsetFetch), resets (ListOffsets), validation
    (OffsetForLeaderEpoch, KIP-320). Each request has a task of its own.
    """

    client: ClusterClient
    config: FetchConfig
    positions: Positions
    buffer: FetchBuffer
    done: Callable[[], None]  # called after each response
    committed: FetchCommittedOffsets | None  # None: the consumer has no group
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def start_requests(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        tokens = self.positions.requests_for_committed(now)
        if tokens and self.committed is None:
            self._handle_committed(tokens, dict.fromkeys([each.partition for each in tokens]), now)
        elif tokens:
            self.run_request(loop, partial(self._fetch_committed, tokens), tokens)
        for node, queries in self.positions.requests_for_reset(now).items():
            self.run_request(loop, partial(self._list_offsets, node, queries), queries)
        for node, queries in self.positions.requests_for_validation(now).items():
            self.run_request(loop, partial(self._validate, node, queries), queries)

    def run_request(
        self,
        loop: asyncio.AbstractEventLoop,
        request: Callable[[], Awaitable[None]],
        tokens: Iterable[RequestToken],
    ) -> None:
        """Runs a request; if it fails, its partitions retry after a pause."""
        task = loop.create_task(self._run(request, tuple(tokens)))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _run(
        self, request: Callable[[], Awaitable[None]], tokens: tuple[RequestToken, ...]
    ) -> None:
        try:
            await request()
        except Exception as error:  # noqa: BLE001 (the application gets every error)
            self.handle_failure(tokens, error, asyncio.get_running_loop().time())
        self.done()

    def handle_failure(
        self, tokens: Collection[RequestToken], error: Exception, now: float
    ) -> None:
        """Retries a request after a pause; errors that are not transient are raised, too."""
        concerned = [each.partition for each in tokens if self.positions.is_current(each)]
        self.positions.handle_failure(tokens, now)
        if isinstance(error, Unreachable) and not is_permanent(error):
            LOGGER.info("%s", error)
            self.client.request_refresh()
        elif concerned or not tokens:
            self.buffer.add_error(error, *concerned)

    async def _fetch_committed(self, tokens: tuple[RequestToken, ...]) -> None:
        assert self.committed is not None
        committed = await self.committed(tuple([each.partition for each in tokens]))
        self._handle_committed(tokens, committed, asyncio.get_running_loop().time())

    def _handle_committed(
        self, tokens: tuple[RequestToken, ...], committed: CommittedOffsets, now: float
    ) -> None:
        positions = self.positions
        positions.handle_failure([each for each in tokens if each.partition not in committed], now)
        missing = []
        for token in [each for each in tokens if each.partition in committed]:
            partition = token.partition
            if positions.handle_committed(token, committed[partition]) is not None:
                missing.append(partition)
        if missing:
            self.buffer.add_error(None, *missing, lasting=True)

    async def _list_offsets(self, node: int, queries: Mapping[RequestToken, OffsetQuery]) -> None:
        client, isolation = self.client, self.config.isolation
        targets = {token.partition: query for token, query in queries.items()}
        deadline = client.request_deadline()
        result = await offsets.send_list_offsets(client, node, targets, isolation, deadline)
        now = asyncio.get_running_loop().time()
        for token in queries:
            if token.partition in result.found:
                self.positions.handle_listed_offset(token, result.found[token.partition], now)
        self._handle_refused(queries, result)

    async def _validate(self, node: int, queries: Mapping[RequestToken, OffsetQuery]) -> None:
        targets = {token.partition: query for token, query in queries.items()}
        client, deadline = self.client, self.client.request_deadline()
        result = await offsets.send_offset_for_leader_epoch(client, node, targets, deadline)
        for token, query in queries.items():
            if token.partition not in result.found:
                continue
            # an old leader does not report the end of an epoch, which then counts as complete
            end = result.found[token.partition] or offsets.EpochEndOffset(query.target, 2**63 - 1)
            error = self.positions.handle_epoch_end(token, end)
            if error is not None:
                self.buffer.add_error(error, token.partition, lasting=True)
        self._handle_refused(queries, result)

    def _handle_refused(
        self, tokens: Iterable[RequestToken], result: offsets.LeaderResponse[Any]
    ) -> None:
        """Handles partitions that the leader has refused or left out."""
        left = [each for each in tokens if each.partition not in result.found]
        for token in left:
            error = result.errors.get(token.partition)
            if error is not None and self.positions.is_current(token):
                self.buffer.add_error(error, token.partition)
        if left:
            self.positions.handle_failure(left, asyncio.get_running_loop().time())
            self.client.request_refresh()


MAX_RESPONSE_BYTES = 8 << 20  # bytes; larger ones are not faster and need more memory
MIN_RESPONSE_BYTES = 4 << 20  # bytes that are always allowed: many small ones take longer


class ByteLimits(NamedTuple):
    response: int
    buffered: int  # no partition is fetched while this many bytes wait to be handed out
    inactive: int  # inactive bytes above this are dropped, as if all partitions were paused


def compute_byte_limits(config: FetchConfig, brokers: int) -> ByteLimits:
    """All responses together have ``fetch.max.bytes``, unless that makes them very small; one is in
    flight while another is handed out.
    """
    total, of_partition = config.fetch_max_bytes, config.max_partition_bytes
    fetches = 2 * max(brokers, 1)
    response = min(total // fetches, max(MAX_RESPONSE_BYTES, of_partition))
    response = max(response, min(MIN_RESPONSE_BYTES, of_partition, total // 2), 1)
    buffered = max(min(total, max(total // 2, 2 * response)), 1)
    return ByteLimits(response, buffered, buffered + max(total, fetches * response))
