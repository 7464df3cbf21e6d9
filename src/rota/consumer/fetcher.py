"""Fetches what is assigned, ahead of the application, and finds out where to begin.

One or two Fetches are under way for each broker, and the next is sent as soon as an answer is in,
before that is decoded. What waits is bounded: a partition is asked for again while not more than
``max.partition.fetch.bytes`` of it wait, and nobody is while half of ``fetch.max.bytes`` wait in
all, or two answers if those are more. What is under way shares ``fetch.max.bytes`` among its
Fetches; none asks for more than 8 MiB, or ``max.partition.fetch.bytes`` if that is more. So there
are never more bytes than

    1.5 x fetch.max.bytes (2 x where an answer may be more than a quarter of that),
    or 2 x max.partition.fetch.bytes x partitions if that is less,

as they came from the brokers, beside the answer that is being handed out, of which 16 MiB are
decoded at a time. Four things come on top: a record batch that is larger than a limit comes all the
same; an answer may always have 4 MiB (or ``max.partition.fetch.bytes``, or half of
``fetch.max.bytes``, if that is less), and there are two for each broker, which is more than
``fetch.max.bytes`` with more than six brokers by default; what waits of partitions that do not give
now (paused, or in front of a record that cannot be read) holds nobody up, and may be as much again
before it is let go of and fetched another time; and one of those that was begun stays decoded.
:mod:`rota.consumer.room` has the arithmetic.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from rota.client.batch import Batch
from rota.client.cluster import Client
from rota.client.metadata import Metadata
from rota.client.offset import EARLIEST, LATEST
from rota.client.refusal import AGAIN, refusal
from rota.consumer.buffer import Buffer, forget
from rota.consumer.entry import Leader, Position, Stage
from rota.consumer.lane import Lanes
from rota.consumer.lookup import AskCommitted, Lookup
from rota.consumer.making import Deserializer
from rota.consumer.position import Positions
from rota.consumer.record import Records
from rota.errors import Code, TimedOut
from rota.model import client as model
from rota.model.client import ReadConfig
from rota.model.offset import OffsetAndMetadata
from rota.model.topic import TopicPartition, first_few

LOGGER = logging.getLogger("rota.consumer")


class Fetcher:
    """Reads partitions, in the application's loop."""

    def __init__(  # noqa: PLR0913, what a consumer is made of
        self,
        client: Client,
        config: ReadConfig,
        committed: AskCommitted | None,
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
            reset=_policy(config),
            backoff=client.backoff.after,
            lease=client.config.metadata_max_age / 1000,
            warn=LOGGER.warning,
        )
        self._buffer = Buffer(
            self._positions,
            config,
            drained=self._drained,
            key=key_deserializer,
            value=value_deserializer,
        )
        self._lookup = Lookup(
            client, config, self._positions, self._buffer, committed=committed, done=self._done
        )
        self._lanes = Lanes(
            client, config, self._positions, self._buffer, self._lookup, done=self._done
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._metadata: Metadata | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._changed = False
        """There may be something to start."""
        self._missing: set[TopicPartition] = set()
        """Those that do not exist, as the log says."""
        self._refresh_at = 0.0
        self._refreshes = 0
        self._refreshing = False
        self._closed = False
        client.on_metadata.append(self._renewed)

    # What is assigned

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """From now on these and no others; those that stay go on where they are."""
        self._positions.assign(partitions)
        if self._metadata is not None:  # they will do, as a rule: nobody waits for newer ones
            self._positions.lead(partial(_leader, self._metadata))
        self._restart()

    def withhold(self, partitions: Iterable[TopicPartition]) -> None:
        """Hands out nothing of these until the next assignment."""
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
        self._positions.seek(partition, Position(offset.offset, offset.leader_epoch))
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
        """There is something new to do: whoever waits, in whatever task, is to begin with it."""
        self._lanes.restart()
        self._changed = True
        self._ring()

    def _ring(self) -> None:
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
    def is_hungry(self) -> bool:
        """There may be something that :meth:`advance` would start."""
        return self._changed

    def prepare(self, max_records: int) -> None:
        """Decodes and makes so many records, if they are there. Deserializers run in here."""
        self._buffer.prepare(max_records)

    def take(self, max_records: int, keep: Callable[[Records], None] = forget) -> Records:
        """Up to so many records that are prepared.

        :param keep: is given them before the positions move
        :raises RotaError: the next thing is an error
        """
        with self._in_loop_after_errors():
            return self._buffer.take(max_records, keep)

    def take_batches(self, keep: Callable[[list[Batch]], None] = forget) -> list[Batch]:
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

    def consumed(self, *only: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where what was handed out ends, of all or of these."""
        return self._positions.consumed(*only)

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset to be handed out; None: not known yet, or not assigned."""
        entry = self._positions.get(partition)
        if entry is None or entry.handed is None or entry.stage is not Stage.READING:
            return None
        return entry.handed.offset

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Where the log ended when it was last fetched."""
        entry = self._positions.get(partition)
        return None if entry is None else entry.high_watermark

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets are still to come, as far as known without asking."""
        entry = self._positions.get(partition)
        if entry is None or entry.handed is None:
            return None
        end = entry.last_stable if self._config.committed_only else entry.high_watermark
        return None if end is None else max(end - entry.handed.offset, 0)

    @property
    def buffered(self) -> int:
        """How many bytes wait, as they came from the brokers."""
        return self._positions.buffered

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
            self.advance()
            if (error := self._buffer.trouble_of(wanted)) is not None:
                raise error
            waiter = loop.create_future()
            self._waiters.append(waiter)
            try:
                async with asyncio.timeout_at(deadline):
                    await waiter
            except TimeoutError:
                names = first_few([str(each) for each in missing])
                raise TimedOut(f"no position of {names} in the time given") from None
            finally:
                self._waiters.remove(waiter)

    async def close(self) -> None:
        """Ends what is under way."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._renewed in self._client.on_metadata:
            self._client.on_metadata.remove(self._renewed)
        self._lanes.close()
        await self._lookup.close()
        self._positions.assign(())
        self._buffer.tidy()

    # What is to be done

    def advance(self) -> None:
        """Starts what can be started: look-ups, resets, validations, fetches."""
        if self._closed or not self._changed:
            return
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        self._changed = False
        now = loop.time()
        if self._client.metadata is not self._metadata:
            self._learn(self._client.metadata)
        self._lookup.start(loop, now)
        self._lanes.start(loop, now)
        self._refresh(loop, now)
        self._set_timer(loop, now)

    def _drained(self) -> None:
        """Partitions have room: ask for more, before the next answer is decoded."""
        self._changed = True
        if self._loop is None or self._closed:
            return
        if self._loop.is_running():
            self.advance()
        else:  # the rest can wait until it does
            self._lanes.start(self._loop, self._loop.time())

    def _done(self) -> None:
        """Something has changed."""
        self._changed = True
        if self._closed:
            return
        self.advance()
        if self._waiters or self._buffer:
            self._ring()

    def _set_timer(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        times = [each for each in (self._positions.next_try(now), self._refresh_at) if each]
        due = min([each for each in times if each > now], default=None)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if due is None else loop.call_at(due, self._done)

    # Metadata

    def _renewed(self, metadata: Metadata) -> None:
        self._done()

    def _learn(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._positions.lead(partial(_leader, metadata))
        for topic in sorted({entry.partition.topic for entry in self._positions}):
            known = metadata.topics.get(topic)
            if known is not None and known.error and known.error not in AGAIN:
                concerned = [e.partition for e in self._positions if e.partition.topic == topic]
                error = refusal(known.error, concerned[0], "to look up")
                self._buffer.add_trouble(error, *concerned)
        self._warn(metadata)

    def _warn(self, metadata: Metadata) -> None:
        """Says once of each partition that it is waited for: its name may be a mistake."""
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

    def _refresh(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        """Asks for metadata as long as somebody has no leader: less and less often."""
        if not self._positions.leaderless:
            self._refreshes, self._refresh_at = 0, 0.0
        elif now >= self._refresh_at and not self._refreshing:
            self._refreshes += 1
            self._refresh_at = now + self._client.backoff.after(self._refreshes)
            topics = {each.topic for each in self._positions.leaderless}
            self._lookup.spawn(loop, partial(self._ask_metadata, topics), ())

    async def _ask_metadata(self, topics: set[str]) -> None:
        self._refreshing = True
        try:
            deadline = self._client.deadline(self._client.config.request_timeout / 1000)
            await self._client.refresh(topics, deadline=deadline, create=True)
        finally:
            self._refreshing = False


def _policy(config: ReadConfig) -> int | Callable[[], int] | None:
    """What to look for where nothing says where to read."""
    match config.reset:
        case model.EARLIEST:
            return EARLIEST
        case model.LATEST:
            return LATEST
        case model.BY_DURATION:
            return lambda: int(time.time() * 1000) - config.reset_duration
        case _:
            return None


def _leader(metadata: Metadata, partition: TopicPartition) -> Leader | None:
    node, known = metadata.leader(partition), metadata.partition(partition)
    return None if node is None or known is None else Leader(node, known.leader_epoch)
