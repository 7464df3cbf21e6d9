"""Fetches the assigned partitions ahead of the application.

One or two Fetch requests are in flight to each broker. The next one is sent as soon as a response
is in, before that is decoded. A broker holds a Fetch back until one of its partitions has records,
for ``fetch.max.wait.ms`` at most, and answers the requests of a connection one after the other. So
partitions that become fetchable meanwhile (drained, sought in, resumed or assigned) are requested
over a second connection. That second Fetch waits only briefly, because further partitions may
become fetchable. If it brings nothing, it is sent again with them and waits twice as long; the last
one ends shortly before the first Fetch, and the next first Fetch has all partitions.

Memory is bounded. A partition is requested again while at most ``max.partition.fetch.bytes`` of it
are buffered, and no partition is while half of ``fetch.max.bytes`` are buffered in all, or two
responses if those are more. The requests in flight share ``fetch.max.bytes``; none asks for more
than 8 MiB, or ``max.partition.fetch.bytes`` if that is more. So there are never more bytes than

    1.5 x fetch.max.bytes (2 x where a response may be more than a quarter of that),
    or 2 x max.partition.fetch.bytes x partitions if that is less,

as they came from the brokers, beside the response that is being handed out, of which 16 MiB are
decoded at a time. Four things come on top: a record batch that is larger than a limit is sent all
the same; a response may always have 4 MiB (or ``max.partition.fetch.bytes``, or half of
``fetch.max.bytes``, if that is less), and there are two for each broker, which is more than
``fetch.max.bytes`` with more than six brokers by default; bytes of partitions that hand out nothing
now (paused, or in front of a record that cannot be read) hold nobody up, and may be as much again
before they are dropped and fetched another time; and one of those that was begun stays decoded.
``byte_limits`` has the arithmetic.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from rota.client.cluster import ClusterClient
from rota.client.connection import BrokerConnection
from rota.client.fetch import (
    Batch,
    FetchedPartition,
    PreparedFetch,
    RequestedPartition,
    build_fetch,
)
from rota.client.metadata import ClusterMetadata
from rota.client.offsets import EARLIEST, LATEST
from rota.client.retry import RETRIABLE_CODES, partition_error
from rota.consumer.buffer import Deserializer, FetchBuffer, keep_nothing
from rota.consumer.offset_fetcher import LOGGER, FetchCommittedOffsets, OffsetFetcher
from rota.consumer.positions import (
    FetchablePartition,
    FetchOutcome,
    FetchPosition,
    FetchState,
    LeaderAndEpoch,
    Positions,
    RequestToken,
    ResponseEnd,
)
from rota.consumer.records import Records
from rota.engine.formats.record_batch import (
    HEADER,
    LENGTH_FIELD,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_OFFSET,
    SHORTEST_BATCH_LENGTH,
    read_batch_header,
)
from rota.engine.model import config as config_module
from rota.engine.model.config import FetchConfig
from rota.engine.model.text import list_first_names
from rota.engine.model.topic import NO_LEADER_EPOCH, OffsetAndMetadata, TopicPartition
from rota.errors import Code, RotaError, TimedOut, Unreachable
from rota.protocol.messages import ZERO_UUID, Api, FetchResponse

_LOGGER = logging.getLogger("rota.consumer")


class Fetcher:
    """Fetches partitions, in the application's event loop."""

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
        """Nothing is assigned yet.

        :param committed: asks for the group's offsets; None: there is no group
        :param wake: called when there are records, or an error
        """
        self._client = client
        self._config = config
        self._wake = wake
        self._positions = Positions(
            reset=_reset_target(config),
            backoff=client.backoff.pause_after,
            lease=client.config.metadata_max_age / 1000,
            warn=_LOGGER.warning,
        )
        self._buffer = FetchBuffer(
            self._positions,
            config,
            drained=self._handle_drained,
            key=key_deserializer,
            value=value_deserializer,
        )
        self._offset_fetcher = OffsetFetcher(
            client,
            config,
            self._positions,
            self._buffer,
            committed=committed,
            done=self._handle_change,
        )
        self._in_flight = InFlightFetches(
            client,
            config,
            self._positions,
            self._buffer,
            self._offset_fetcher,
            done=self._handle_change,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._metadata: ClusterMetadata | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        #: There may be something to start.
        self._changed = False
        #: Those that do not exist, as the log says.
        self._missing: set[TopicPartition] = set()
        self._refresh_at = 0.0
        self._refreshes = 0
        self._refreshing = False
        self._closed = False
        client.metadata_listeners.append(self._handle_metadata)

    # What is assigned

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Sets the assigned partitions; those that stay keep their position."""
        self._positions.assign(partitions)
        if self._metadata is not None:  # they will do, as a rule: nobody waits for newer ones
            self._positions.update_leaders(partial(_find_leader, self._metadata))
        self._restart()

    def withhold(self, partitions: Iterable[TopicPartition]) -> None:
        """Hands out no records of these partitions until the next assignment."""
        self._positions.withhold(partitions)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hands out and fetches nothing of these; what is there is kept while there is room."""
        for each in partitions:
            self._positions.pause(each, paused=True)
        self._restart()  # others may have their room

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends :meth:`pause`."""
        for each in partitions:
            self._positions.pause(each, paused=False)
        self._restart()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """Those that are paused."""
        return frozenset(entry.partition for entry in self._positions if entry.paused)

    def seek(self, partition: TopicPartition, offset: OffsetAndMetadata) -> None:
        """Reads on there."""
        self._positions.seek(partition, FetchPosition(offset.offset, offset.leader_epoch))
        self._restart()

    def seek_to_beginning(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads on at the first offset there is, once it is known."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads on behind the last offset there is, once it is known."""
        self._seek_to(partitions, LATEST)

    def _seek_to(self, partitions: Iterable[TopicPartition], target: int) -> None:
        for each in partitions:
            self._positions.seek_to(each, target)
        self._restart()

    def _restart(self) -> None:
        """Starts over after a change by the application, and wakes whoever waits."""
        self._in_flight.reset_second_waits()
        self._changed = True
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._wake()

    # What is there

    @property
    def has_records(self) -> bool:
        """There may be something to take."""
        return bool(self._buffer)

    @property
    def needs_start(self) -> bool:
        """There may be requests that :meth:`start_requests` would send."""
        return self._changed

    def prepare_records(self, max_records: int) -> None:
        """Decodes and makes so many records, if they are there. Deserializers run in here."""
        self._buffer.prepare_records(max_records)

    def take_records(
        self, max_records: int, keep: Callable[[Records], None] = keep_nothing
    ) -> Records:
        """Returns up to ``max_records`` prepared records.

        :param keep: called with them before the positions move
        :raises RotaError: the next item is an error
        """
        with self._in_loop_after_errors():
            return self._buffer.take_records(max_records, keep)

    def take_batches(self, keep: Callable[[list[Batch]], None] = keep_nothing) -> list[Batch]:
        """What waits, as columns.

        :param keep: is given them before the positions move
        :raises RotaError: the next thing is an error
        """
        with self._in_loop_after_errors():
            return self._buffer.take_batches(keep)

    @contextlib.contextmanager
    def _in_loop_after_errors(self) -> Iterator[None]:
        """Who polls again after an error gives the loop its turn first: others may have something,
        and would never be heard of while the same error is at hand.
        """
        try:
            yield
        except Exception:
            self._changed = True
            raise

    def consumed_positions(self, *only: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where what was handed out ends, of all or of these."""
        return self._positions.consumed_positions(*only)

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset to be handed out; None: not known yet, or not assigned."""
        entry = self._positions.get(partition)
        if (
            entry is None
            or entry.consumed_position is None
            or entry.state is not FetchState.FETCHING
        ):
            return None
        return entry.consumed_position.offset

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Where the log ended when it was last fetched."""
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
        """How many bytes wait, as they came from the brokers."""
        return self._positions.buffered_bytes

    async def wait_for_positions(
        self, partitions: Iterable[TopicPartition], deadline: float
    ) -> None:
        """Waits until all of these have a position.

        :raises TimedOut: some have none in time
        :raises RotaError: one cannot have any
        """
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
                raise TimedOut(f"no position of {names} in the time given") from None
            finally:
                self._waiters.remove(waiter)

    async def close(self) -> None:
        """Ends what is under way."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._handle_metadata in self._client.metadata_listeners:
            self._client.metadata_listeners.remove(self._handle_metadata)
        self._in_flight.close()
        await self._offset_fetcher.close()
        self._positions.assign(())
        self._buffer.drop_outdated()

    # What is to be done

    def start_requests(self) -> None:
        """Starts what can be started: look-ups, resets, validations, fetches."""
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
        self._refresh(loop, now)
        self._set_timer(loop, now)

    def _handle_drained(self) -> None:
        """Partitions have room: ask for more, before the next answer is decoded."""
        self._changed = True
        if self._loop is None or self._closed:
            return
        if self._loop.is_running():
            self.start_requests()
        else:  # the rest can wait until it does
            self._in_flight.send_fetches(self._loop, self._loop.time())

    def _handle_change(self) -> None:
        """Starts the next requests after a response, a timer or new metadata."""
        self._changed = True
        if self._closed:
            return
        self.start_requests()
        if self._waiters or self._buffer:
            self._wake_waiters()

    def _set_timer(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        times = [each for each in (self._positions.next_retry_at(now), self._refresh_at) if each]
        due = min([each for each in times if each > now], default=None)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if due is None else loop.call_at(due, self._handle_change)

    # Metadata

    def _handle_metadata(self, metadata: ClusterMetadata) -> None:
        self._handle_change()

    def _apply_metadata(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata
        self._positions.update_leaders(partial(_find_leader, metadata))
        for topic in sorted({entry.partition.topic for entry in self._positions}):
            known = metadata.topics.get(topic)
            if known is not None and known.error and known.error not in RETRIABLE_CODES:
                concerned = [e.partition for e in self._positions if e.partition.topic == topic]
                error = partition_error(known.error, concerned[0], "to look up")
                self._buffer.add_error(error, *concerned)
        self._warn(metadata)

    def _warn(self, metadata: ClusterMetadata) -> None:
        """Says once of each partition that it is waited for: its name may be a mistake."""
        missing = set(self._positions.leaderless)
        for each in sorted(missing - self._missing):
            known = metadata.topics.get(each.topic)
            if known is not None and known.error == Code.UNKNOWN_TOPIC_OR_PARTITION:
                _LOGGER.warning("there is no topic %r: %s waits for it", each.topic, each)
            elif known is not None and not known.error and each.partition >= len(known.partitions):
                count = len(known.partitions)
                _LOGGER.warning("there is no partition %s: %s has %d", each, each.topic, count)
            else:
                missing.discard(each)
        self._missing = missing

    def _refresh(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        """Refreshes metadata while a partition has no leader, with growing pauses."""
        if not self._positions.leaderless:
            self._refreshes, self._refresh_at = 0, 0.0
        elif now >= self._refresh_at and not self._refreshing:
            self._refreshes += 1
            self._refresh_at = now + self._client.backoff.pause_after(self._refreshes)
            topics = {each.topic for each in self._positions.leaderless}
            self._offset_fetcher.run_request(loop, partial(self._ask_metadata, topics), ())

    async def _ask_metadata(self, topics: set[str]) -> None:
        self._refreshing = True
        try:
            deadline = self._client.deadline_after(self._client.config.request_timeout / 1000)
            await self._client.refresh(topics, deadline=deadline, create=True)
        finally:
            self._refreshing = False


def _reset_target(config: FetchConfig) -> int | Callable[[], int] | None:
    """Returns the ListOffsets timestamp for ``auto.offset.reset``; None: ``none``."""
    match config.auto_offset_reset:
        case config_module.EARLIEST:
            return EARLIEST
        case config_module.LATEST:
            return LATEST
        case config_module.BY_DURATION:
            return lambda: int(time.time() * 1000) - config.reset_duration
        case _:
            return None


def _find_leader(metadata: ClusterMetadata, partition: TopicPartition) -> LeaderAndEpoch | None:
    node, known = metadata.leader(partition), metadata.partition(partition)
    return None if node is None or known is None else LeaderAndEpoch(node, known.leader_epoch)


FIRST_FETCH, SECOND_FETCH = 0, 1

#: Seconds by which the second Fetch ends before the first.
SECOND_FETCH_MARGIN = 0.02

#: Seconds that the second Fetch waits at first, and so whoever comes into question after it.
SECOND_FETCH_WAIT = 0.02


class FetchConnection(NamedTuple):
    """One of the two fetch connections to a broker."""

    node: int
    number: int


class InFlightFetches:
    """The Fetch requests in flight: sends them and handles their responses."""

    def __init__(  # noqa: PLR0913, all that a Fetch takes
        self,
        client: ClusterClient,
        config: FetchConfig,
        positions: Positions,
        buffer: FetchBuffer,
        lookup: OffsetFetcher,
        *,
        done: Callable[[], None],
    ) -> None:
        """Nothing is under way.

        :param done: called after each answer
        """
        self._client = client
        self._config = config
        self._positions = positions
        self._buffer = buffer
        self._lookup = lookup
        self._done = done
        #: Until when a Fetch waits at its broker; None: the connection is still to be opened.
        self._held_until: dict[FetchConnection, float | None] = {}
        #: Brokers whose second Fetch brought nothing, and how many seconds the next may wait.
        self._second_waits: dict[int, float] = {}
        self._closed = False

    def reset_second_waits(self) -> None:
        """Forgets that second fetches brought nothing: new partitions may be fetchable."""
        self._second_waits.clear()

    def close(self) -> None:
        """Ignores responses from now on."""
        self._closed = True

    def send_fetches(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        """Sends the Fetch requests that can be sent, unless enough is buffered already.

        Bytes of partitions that hand out nothing now do not count, and are dropped if they are too
        many. While the loop does not run, only open connections are used.
        """
        limits, positions = self._limits, self._positions
        if positions.inactive_bytes > limits.inactive:
            positions.release_inactive(limits.inactive)
        if positions.buffered_bytes - positions.inactive_bytes >= limits.buffered:
            return
        busy = {
            lane.node for lane in self._held_until if self._free_connection(lane.node, now) is None
        }
        if not loop.is_running():
            busy |= {
                node for node in self._client.metadata.brokers if self._needs_connection(node, now)
            }
        unread = positions.requests_for_fetch(now, busy, self._config.max_partition_bytes)
        for node, wants in unread.items():
            found = self._free_connection(node, now)
            if found is None:
                raise AssertionError(f"broker {node} was not to be asked")
            lane, wait = found
            connection = self._connection(lane)
            if connection is not None:
                self._send(loop, lane, connection, wants, wait)
            else:
                self._held_until[lane] = None
                tickets = [each.token for each in wants]
                connect = partial(self._connect, loop, lane, wants, wait)
                self._lookup.run_request(loop, connect, tickets)

    def _free_connection(self, node: int, now: float) -> tuple[FetchConnection, float] | None:
        """Returns the connection for the next Fetch and its maximum wait; None: both are in use."""
        first, beside = FetchConnection(node, FIRST_FETCH), FetchConnection(node, SECOND_FETCH)
        longest = self._config.fetch_max_wait / 1000
        if first not in self._held_until:
            return first, longest
        until = self._held_until[first]
        if until is None or beside in self._held_until:
            return None
        left = until - now
        if node in self._second_waits and left <= 2 * SECOND_FETCH_MARGIN:
            return None
        return beside, min(
            max(left - SECOND_FETCH_MARGIN, 0.0), self._second_waits.get(node, SECOND_FETCH_WAIT)
        )

    # There

    def _needs_connection(self, node: int, now: float) -> bool:
        """A connection would have to be opened."""
        found = self._free_connection(node, now)
        return found is not None and self._connection(found[0]) is None

    def _connection(self, lane: FetchConnection) -> BrokerConnection | None:
        known = self._client.metadata.brokers.get(lane.node)
        return (
            None
            if known is None
            else self._client.endpoint(known, CONNECTION_USES[lane.number]).connection
        )

    async def _connect(
        self,
        loop: asyncio.AbstractEventLoop,
        lane: FetchConnection,
        wants: list[FetchablePartition],
        wait: float,
    ) -> None:
        """Opens a connection first."""
        try:
            connection = await self._open(lane)
        except BaseException:
            del self._held_until[lane]
            raise
        left = [each for each in wants if self._positions.is_current(each.token)]
        if left:
            self._send(loop, lane, connection, left, wait)
        else:
            del self._held_until[lane]

    async def _open(self, lane: FetchConnection) -> BrokerConnection:
        known = self._client.metadata.brokers.get(lane.node)
        if known is None:
            raise Unreachable(f"broker {lane.node} is not known")
        deadline = self._client.deadline_after(self._client.config.request_timeout / 1000)
        return await self._client.endpoint(known, CONNECTION_USES[lane.number]).connect(deadline)

    def _send(
        self,
        loop: asyncio.AbstractEventLoop,
        lane: FetchConnection,
        connection: BrokerConnection,
        wants: list[FetchablePartition],
        wait: float,
    ) -> None:
        fetch = build_fetch(
            [self._wanted(each) for each in wants],
            self._config,
            max_bytes=self._limits.response,
            max_wait=round(wait * 1000),
        )
        tickets = {each.token.partition: each.token for each in wants}
        until = loop.time() + wait
        deadline = until + self._client.config.request_timeout / 1000
        try:
            future = connection.send(
                Api.FETCH, fetch.message, deadline=deadline, most=fetch.max_version, large=True
            )
        except RotaError as error:
            self._held_until.pop(lane, None)
            self._lookup.handle_failure(tickets.values(), error, loop.time())
        else:
            self._held_until[lane] = until
            future.add_done_callback(partial(self._handle_response, loop, lane, fetch, tickets))

    @property
    def _limits(self) -> ByteLimits:
        return compute_byte_limits(self._config, self._positions.brokers)

    def _wanted(self, want: FetchablePartition) -> RequestedPartition:
        topic = self._client.metadata.topics.get(want.token.partition.topic)
        topic_id = ZERO_UUID if topic is None else topic.id
        return RequestedPartition(want.token.partition, topic_id, want.offset, want.leader_epoch)

    # And back

    def _handle_response(
        self,
        loop: asyncio.AbstractEventLoop,
        lane: FetchConnection,
        fetch: PreparedFetch,
        tickets: dict[TopicPartition, RequestToken],
        future: asyncio.Future[FetchResponse],
    ) -> None:
        del self._held_until[lane]
        if future.cancelled():
            return
        error = future.exception()
        if self._closed:
            return
        if error is not None:
            failure = error if isinstance(error, Exception) else Unreachable(str(error))
            self._lookup.handle_failure(tickets.values(), failure, loop.time())
        else:
            everyone = list(tickets.values())
            try:
                self._handle_partitions(loop.time(), lane, fetch.parse(future.result()), tickets)
            except Exception as flaw:  # noqa: BLE001 or nobody would ask for the rest again
                LOGGER.exception("an answer of broker %d cannot be taken in", lane.node)
                self._lookup.handle_failure(everyone, flaw, loop.time())
        self._done()

    def _handle_partitions(
        self,
        now: float,
        lane: FetchConnection,
        answers: list[FetchedPartition],
        tickets: dict[TopicPartition, RequestToken],
    ) -> None:
        """Keeps what is to be handed out or raised."""
        seen = set()
        for answer in answers:
            ticket = tickets.pop(answer.partition, None)
            if ticket is None:
                continue  # told of twice: the first counts
            found, error = self._positions.handle_fetched(
                ticket, answer, find_response_end(answer), now
            )
            seen.add(found)
            if error is not None:
                self._buffer.add_error(
                    error, answer.partition, lasting=found is FetchOutcome.OUT_OF_RANGE
                )
            elif found is FetchOutcome.HAS_RECORDS:
                self._buffer.add_response(answer)
        self._positions.handle_failure(tickets.values(), now)  # those that it does not tell of
        if FetchOutcome.REFRESH_METADATA in seen or tickets:
            self._client.request_refresh()
        if lane.number == FIRST_FETCH or FetchOutcome.HAS_RECORDS in seen:
            self._second_waits.pop(lane.node, None)
        else:
            self._second_waits[lane.node] = 2 * self._second_waits.get(lane.node, SECOND_FETCH_WAIT)


#: What the two connections to a broker are for; looking things up has a third.
CONNECTION_USES: Final = ("fetch", "fetch beside")

#: Bytes of an answer: larger ones are read no faster, and take more memory.
MAX_RESPONSE_BYTES = 8 << 20

#: Bytes that an answer may have with any number of brokers: many small ones take longer.
MIN_RESPONSE_BYTES = 4 << 20


class ByteLimits(NamedTuple):
    """Limits in bytes, as they come from the brokers."""

    #: In one answer.
    response: int
    #: No more is fetched while so many wait to be handed out.
    buffered: int
    #: More of what is not to be handed out now is let go of: not less than can come to be there
    #: when all is paused at once.
    inactive: int


def compute_byte_limits(config: FetchConfig, brokers: int) -> ByteLimits:
    """Computes the limits for a number of brokers.

    All responses together have ``fetch.max.bytes``, unless that makes them very small. Half of it
    may be buffered, or two responses if those are more: so one is in flight while another is handed
    out.
    """
    most, of_partition = config.fetch_max_bytes, config.max_partition_bytes
    fetches = len(CONNECTION_USES) * max(brokers, 1)
    answer = min(most // fetches, max(MAX_RESPONSE_BYTES, of_partition))
    answer = max(answer, min(MIN_RESPONSE_BYTES, of_partition, most // 2), 1)
    waiting = max(min(most, max(most // 2, 2 * answer)), 1)
    return ByteLimits(answer, waiting, waiting + max(most, fetches * answer))


def find_response_end(fetched: FetchedPartition) -> ResponseEnd | None:
    """Returns where the last whole batch of a response ends; None if the response is empty.

    A batch that is cut at the end is normal: the next response begins with it. Anything else that
    is not a batch is an error, and so is a response without a whole batch.
    """
    view = fetched.records
    limit = len(view)
    if not limit:
        return None
    at, last, unpack = 0, -1, LENGTH_FIELD.unpack_from
    length = 0
    while at + HEADER.size <= limit:
        (length,) = unpack(view, at + LENGTH_OFFSET)
        if length < SHORTEST_BATCH_LENGTH or view[at + MAGIC_OFFSET] != MAGIC:
            return _end_after_batch(fetched, last, sound=False)
        if at + LOG_OVERHEAD + length > limit:
            break
        last, at = at, at + LOG_OVERHEAD + length
    return _end_after_batch(fetched, last, sound=last >= 0)


def _end_after_batch(fetched: FetchedPartition, last: int, *, sound: bool) -> ResponseEnd:
    """The reach with this as the last whole batch."""
    if last < 0:
        return ResponseEnd(FetchPosition(fetched.fetch_offset), sound)
    head = read_batch_header(fetched.records, last)
    epoch = None if head.leader_epoch == NO_LEADER_EPOCH else head.leader_epoch
    behind = head.last_offset + 1
    return ResponseEnd(FetchPosition(behind, epoch), sound and behind > fetched.fetch_offset)
