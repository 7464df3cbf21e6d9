"""Fetches under way: one for each broker, and a second where the first would hold somebody up.

A broker holds a Fetch back until one of its partitions has something, for ``fetch.max.wait.ms`` at
most, and answers the requests of a connection one after the other. So what comes into question
while a Fetch waits (a partition that was drained, sought in, resumed or assigned) is asked for over
a second connection. That Fetch waits for a moment only, for others may come into question
meanwhile. If it brings nothing, it is sent again with them, and waits twice as long; the last ends
shortly before the first, which has them all from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from rota.client.cluster import Client
from rota.client.connection import Connection
from rota.client.fetch import Fetch, Fetched, Wanted, request
from rota.consumer.buffer import Buffer
from rota.consumer.entry import Ticket, Want
from rota.consumer.lookup import LOGGER, Lookup
from rota.consumer.position import Positions
from rota.consumer.reach import reach
from rota.consumer.room import LANES, Room, room
from rota.consumer.verdict import Verdict
from rota.errors import RotaError, Unreachable
from rota.model.client import ReadConfig
from rota.model.topic import TopicPartition
from rota.wire.api import Api
from rota.wire.message import NO_ID, Message

FIRST, BESIDE = 0, 1
MARGIN = 0.02
"""Seconds by which the second Fetch ends before the first."""
MOMENT = 0.02
"""Seconds that the second Fetch waits at first, and so whoever comes into question after it."""


class Lane(NamedTuple):
    """One of the two connections to a broker."""

    node: int
    number: int


class Lanes:
    """Sends Fetches, and takes in their answers."""

    def __init__(  # noqa: PLR0913, all that a Fetch takes
        self,
        client: Client,
        config: ReadConfig,
        positions: Positions,
        buffer: Buffer,
        lookup: Lookup,
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
        self._flights: dict[Lane, float | None] = {}
        """Until when a Fetch waits at its broker; None: the connection is still to be opened."""
        self._idle: dict[int, float] = {}
        """Brokers whose second Fetch brought nothing, and how many seconds the next may wait."""
        self._closed = False

    def restart(self) -> None:
        """Something is new: nobody waits for the first Fetch any more."""
        self._idle.clear()

    def close(self) -> None:
        """What comes back from now on is not looked at."""
        self._closed = True

    def start(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        """Sends what can be sent, unless enough waits already. What is not to be handed out now
        does not count, and is let go of if it is too much.

        While the loop does not run, only over connections that are open.
        """
        limits, positions = self._limits, self._positions
        if positions.resting > limits.resting:
            positions.make_room(limits.resting)
        if positions.buffered - positions.resting >= limits.waiting:
            return
        busy = {lane.node for lane in self._flights if self._free(lane.node, now) is None}
        if not loop.is_running():
            busy |= {node for node in self._client.metadata.brokers if self._closed_to(node, now)}
        unread = positions.unread(now, busy, self._config.max_partition_bytes)
        for node, wants in unread.items():
            found = self._free(node, now)
            if found is None:
                raise AssertionError(f"broker {node} was not to be asked")
            lane, wait = found
            connection = self._connection(lane)
            if connection is not None:
                self._send(loop, lane, connection, wants, wait)
            else:
                self._flights[lane] = None
                tickets = [each.ticket for each in wants]
                connect = partial(self._connect, loop, lane, wants, wait)
                self._lookup.spawn(loop, connect, tickets)

    def _free(self, node: int, now: float) -> tuple[Lane, float] | None:
        """The lane for the next Fetch, and how many seconds it may wait; None: it must wait."""
        first, beside = Lane(node, FIRST), Lane(node, BESIDE)
        longest = self._config.fetch_max_wait / 1000
        if first not in self._flights:
            return first, longest
        until = self._flights[first]
        if until is None or beside in self._flights:
            return None
        left = until - now
        if node in self._idle and left <= 2 * MARGIN:
            return None
        return beside, min(max(left - MARGIN, 0.0), self._idle.get(node, MOMENT))

    # There

    def _closed_to(self, node: int, now: float) -> bool:
        """A connection would have to be opened."""
        found = self._free(node, now)
        return found is not None and self._connection(found[0]) is None

    def _connection(self, lane: Lane) -> Connection | None:
        known = self._client.metadata.brokers.get(lane.node)
        return None if known is None else self._client.peer(known, LANES[lane.number]).connection

    async def _connect(
        self, loop: asyncio.AbstractEventLoop, lane: Lane, wants: list[Want], wait: float
    ) -> None:
        """Opens a connection first."""
        try:
            connection = await self._open(lane)
        except BaseException:
            del self._flights[lane]
            raise
        left = [each for each in wants if self._positions.holds(each.ticket)]
        if left:
            self._send(loop, lane, connection, left, wait)
        else:
            del self._flights[lane]

    async def _open(self, lane: Lane) -> Connection:
        known = self._client.metadata.brokers.get(lane.node)
        if known is None:
            raise Unreachable(f"broker {lane.node} is not known")
        deadline = self._client.deadline(self._client.config.request_timeout / 1000)
        return await self._client.peer(known, LANES[lane.number]).connect(deadline)

    def _send(
        self,
        loop: asyncio.AbstractEventLoop,
        lane: Lane,
        connection: Connection,
        wants: list[Want],
        wait: float,
    ) -> None:
        fetch = request(
            [self._wanted(each) for each in wants],
            self._config,
            max_bytes=self._limits.answer,
            max_wait=round(wait * 1000),
        )
        tickets = {each.ticket.partition: each.ticket for each in wants}
        until = loop.time() + wait
        deadline = until + self._client.config.request_timeout / 1000
        try:
            future = connection.send(
                Api.FETCH, fetch.message, deadline=deadline, most=fetch.most, large=True
            )
        except RotaError as error:
            self._flights.pop(lane, None)
            self._lookup.failed(tickets.values(), error, loop.time())
        else:
            self._flights[lane] = until
            future.add_done_callback(partial(self._answered, loop, lane, fetch, tickets))

    @property
    def _limits(self) -> Room:
        return room(self._config, self._positions.brokers)

    def _wanted(self, want: Want) -> Wanted:
        topic = self._client.metadata.topics.get(want.ticket.partition.topic)
        topic_id = NO_ID if topic is None else topic.id
        return Wanted(want.ticket.partition, topic_id, want.offset, want.leader_epoch)

    # And back

    def _answered(
        self,
        loop: asyncio.AbstractEventLoop,
        lane: Lane,
        fetch: Fetch,
        tickets: dict[TopicPartition, Ticket],
        future: asyncio.Future[Message],
    ) -> None:
        del self._flights[lane]
        if future.cancelled():
            return
        error = future.exception()
        if self._closed:
            return
        if error is not None:
            failure = error if isinstance(error, Exception) else Unreachable(str(error))
            self._lookup.failed(tickets.values(), failure, loop.time())
        else:
            everyone = list(tickets.values())
            try:
                self._take_in(loop.time(), lane, fetch.parse(future.result()), tickets)
            except Exception as flaw:  # noqa: BLE001 or nobody would ask for the rest again
                LOGGER.exception("an answer of broker %d cannot be taken in", lane.node)
                self._lookup.failed(everyone, flaw, loop.time())
        self._done()

    def _take_in(
        self,
        now: float,
        lane: Lane,
        answers: list[Fetched],
        tickets: dict[TopicPartition, Ticket],
    ) -> None:
        """Keeps what is to be handed out or raised."""
        seen = set()
        for answer in answers:
            ticket = tickets.pop(answer.partition, None)
            if ticket is None:
                continue  # told of twice: the first counts
            found, error = self._positions.fetched(ticket, answer, reach(answer), now)
            seen.add(found)
            if error is not None:
                self._buffer.add_trouble(error, answer.partition, lasting=found is Verdict.RANGE)
            elif found is Verdict.KEEP:
                self._buffer.add(answer)
        self._positions.failed(tickets.values(), now)  # those that it does not tell of
        if Verdict.REFRESH in seen or tickets:
            self._client.request_refresh()
        if lane.number == FIRST or Verdict.KEEP in seen:
            self._idle.pop(lane.node, None)
        else:
            self._idle[lane.node] = 2 * self._idle.get(lane.node, MOMENT)
