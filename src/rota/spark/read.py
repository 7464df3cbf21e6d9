"""Reads ranges of partitions as Arrow, in a task: straight from the answers to raw Fetches.

Each broker is asked for some ranges at a time. While what came is decoded and taken by Spark, the
next answer is on its way. Memory: two answers for each broker, and what is made of one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rota.client import answer
from rota.client.batch import Batch
from rota.client.connection import Connection
from rota.client.fetch import Fetch, Fetched, Wanted, request
from rota.client.offset import EARLIEST, LATEST, list_offsets
from rota.client.refusal import AGAIN, refusal
from rota.errors import Code, TimedOut, UnknownTopic, Unreachable
from rota.model.offset import NO_EPOCH
from rota.model.topic import TopicPartition
from rota.spark import link
from rota.spark.arrow import record_batch
from rota.spark.link import Link
from rota.spark.loss import lost
from rota.spark.option import Options
from rota.spark.plan import Task
from rota.wire.api import Api
from rota.wire.message import NO_ID, Message

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 50_000
"""Of one Arrow batch."""
FLIGHTS = 2
"""Fetches to one broker at a time."""
ANSWER = 4 << 20
"""Bytes that a Fetch asks for, about; ``max.partition.fetch.bytes`` may ask for more of one."""
MARGIN = 128 << 10
"""Bytes asked for beyond what the rest of a range should have: batches are not cut."""
EMPTY = 3
"""Answers without anything after which it is looked up what there is."""
FOREVER = 7 * 86_400.0
"""Seconds: while Spark takes rows, no answer is late; time is taken while one is waited for."""


def read(task: Task, options: Options) -> Iterator[pa.RecordBatch]:
    """The rows of a task; those of a partition in order.

    :raises DataLost: records are gone, and ``failOnDataLoss`` is set
    :raises TimedOut: there was no progress for as long as ``kafkaConsumer.pollTimeoutMs``
    """
    own = link.take(options.client)
    try:
        yield from _Reading(own, task, options).rows()
    except BaseException:  # also if Spark wants no more: answers are still on their way
        own.close()
        raise
    link.give_back(options.client, own)


@dataclass(slots=True, eq=False)
class _Part:
    """How far a range was read."""

    partition: TopicPartition
    position: int
    until: int
    progress: float = 0.0
    """When there was some, by the clock that counts waiting only."""
    failures: int = 0
    """In a row."""
    ready: float = 0.0
    """When to try again, by the loop's clock."""
    empty: int = 0
    """Answers in a row that had nothing."""
    replica: int | None = None
    """A follower to read from, as the leader has said (KIP-392)."""
    trouble: str = "no answer"

    @property
    def left(self) -> int:
        return self.until - self.position


class _Flight(NamedTuple):
    node: int
    fetch: Fetch
    parts: dict[TopicPartition, _Part]


class _Reading:
    def __init__(self, own: Link, task: Task, options: Options) -> None:
        self._link = own
        self._client = own.client
        self._options = options
        self._queue = deque(_Part(*each) for each in task)
        """Not under way."""
        self._doubtful: list[_Part] = []
        """To be looked up."""
        self._flights: dict[asyncio.Future[Message], _Flight] = {}
        self._stale = False
        self._waited = 0.0
        """Seconds that brokers were waited for."""

    def rows(self) -> Iterator[pa.RecordBatch]:
        """All, until every range is at its end."""
        while self._queue or self._flights or self._doubtful:
            waiting: Batch | None = None
            for batch in self._batches(self._link.run(self._next())):
                if waiting is not None:
                    yield from self._arrow(waiting)
                waiting = batch
            self._send()  # the next answer is on its way while Spark takes these rows
            if waiting is not None:
                yield from self._arrow(waiting)

    def _arrow(self, batch: Batch) -> Iterator[pa.RecordBatch]:
        options = self._options
        for first in range(0, len(batch), ROWS):
            some = batch[first : first + ROWS]
            yield record_batch(some, headers=options.headers, batch_info=options.batch_info)

    # What came

    def _batches(self, answers: Iterable[tuple[_Part, Fetched]]) -> Iterator[Batch]:
        """The records within the ranges. Positions move on."""
        config, control = self._options.read, self._options.batch_info
        for part, fetched in answers:
            found = answer.read(
                fetched,
                check=config.check_crcs,
                committed_only=config.committed_only,
                control=control,
            )
            begin = part.position
            for batch in found:
                part.position = max(part.position, batch.next_offset)
                upto = int(np.searchsorted(batch.offsets, part.until))
                if upto:
                    yield batch[:upto]
                if part.position >= part.until:
                    break
            self._judge(part, fetched, begin)

    def _judge(self, part: _Part, fetched: Fetched, begin: int) -> None:
        """What an answer means for its range."""
        if part.position > begin:
            part.progress, part.failures, part.empty = self._waited, 0, 0
            rate = len(fetched.records) / (part.position - begin)
            self._link.rates[part.partition] = rate
        elif fetched.preferred_replica >= 0:
            part.replica = fetched.preferred_replica
        else:
            part.empty += 1
            if part.empty >= EMPTY:
                part.trouble = "answers without records"
                self._doubtful.append(part)
                return
        if part.position < part.until:
            self._queue.appendleft(part)  # one partition after the other

    async def _next(self) -> list[tuple[_Part, Fetched]]:
        """What comes next; waits for it."""
        loop, begin, before = self._link.loop, self._link.loop.time(), self._waited
        found: list[tuple[_Part, Fetched]] = []
        while not found and (self._queue or self._flights or self._doubtful):
            await self._know()
            await self._look()
            await self._connect()
            self._send()
            await self._wait()
            self._waited = before + loop.time() - begin
            for future in [each for each in self._flights if each.done()]:
                found += self._landed(self._flights.pop(future), future)
            self._give_up()
        return found

    async def _wait(self) -> None:
        patience = self._client.config.request_timeout / 1000
        if self._flights:
            done, _ = await asyncio.wait(
                self._flights, timeout=patience, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                for node in {flight.node for flight in self._flights.values()}:
                    self._hang_up(node)
        elif self._queue:
            ready = min(each.ready for each in self._queue)
            await asyncio.sleep(max(ready - self._link.loop.time(), 0.0))

    def _hang_up(self, node: int) -> None:
        """A broker does not answer: all that is under way to it fails."""
        connection = self._connection(node)
        if connection is not None:
            connection.finish()

    def _landed(
        self, flight: _Flight, future: asyncio.Future[Message]
    ) -> list[tuple[_Part, Fetched]]:
        error = future.exception()
        if error is not None:
            if not isinstance(error, Unreachable):
                raise error
            self._failed(flight.parts.values(), str(error))
            return []
        found: list[tuple[_Part, Fetched]] = []
        parts = dict(flight.parts)
        for fetched in flight.fetch.parse(future.result()):
            part = parts.pop(fetched.partition, None)
            if part is not None and self._is_sound(part, fetched):
                found.append((part, fetched))
        self._failed(parts.values(), "the broker's answer leaves it out")
        return found

    def _is_sound(self, part: _Part, fetched: Fetched) -> bool:
        match fetched.code:
            case Code.NONE:
                return True
            case Code.OFFSET_OUT_OF_RANGE if part.replica is None:
                part.trouble = f"offset {part.position} is out of range"
                self._doubtful.append(part)
            case code if code in AGAIN or part.replica is not None:
                part.replica = None
                self._failed([part], f"error {code}")
            case code:
                raise refusal(code, part.partition, "to fetch from")
        return False

    def _failed(self, parts: Iterable[_Part], trouble: str) -> None:
        """To be tried again, after a pause and with new metadata."""
        now = self._link.loop.time()
        for part in parts:
            part.trouble = trouble
            part.failures += 1
            part.ready = now + self._client.backoff.after(part.failures)
            self._queue.append(part)
            self._stale = True

    def _give_up(self) -> None:
        patience = self._options.patience / 1000
        for part in self._queue:
            if self._waited - part.progress > patience:
                raise TimedOut(
                    f"{part.partition}: nothing could be read from offset {part.position} on for "
                    f"{patience:g} s (kafkaConsumer.pollTimeoutMs): {part.trouble}"
                )

    # What is asked

    async def _know(self) -> None:
        """Who leads, if that is not known or was wrong."""
        topics = {each.partition.topic for each in self._queue}
        unknown = not topics <= self._client.metadata.topics.keys()
        if not self._stale and not unknown:
            return
        deadline = self._client.deadline(self._options.patience / 1000)
        await self._client.refresh(topics, deadline=deadline)
        self._stale = False
        for part in [each for each in self._queue if self._node(each) is None]:
            self._queue.remove(part)
            self._failed([part], "it has no leader")

    def _node(self, part: _Part) -> int | None:
        if part.replica is not None:
            return part.replica
        return self._client.metadata.leader(part.partition)

    async def _look(self) -> None:
        """Whether what does not come is still to come, was never there, or is lost."""
        doubtful, self._doubtful = self._doubtful, []
        if not doubtful:
            return
        partitions = {each.partition for each in doubtful}
        deadline = self._client.deadline()
        try:
            begin = await list_offsets(
                self._client, dict.fromkeys(partitions, EARLIEST), deadline=deadline
            )
            end = await list_offsets(
                self._client, dict.fromkeys(partitions, LATEST), deadline=deadline
            )
        except UnknownTopic as error:
            for part in doubtful:
                lost(f"{part.partition}: {error}", fail=self._options.fail_on_loss)
            return
        for part in doubtful:
            first, last = begin[part.partition], end[part.partition]
            self._settle(part, first.offset if first else 0, last.offset if last else 0)

    def _settle(self, part: _Part, first: int, last: int) -> None:
        """Goes on behind what is lost, or is no record."""
        fail = self._options.fail_on_loss
        where = f"{part.partition} from offset {part.position} to {part.until}"
        if part.position < first:
            lost(f"{where}: the log begins at {first} by now", fail=fail)
            part.position = first
        elif part.position >= last:
            lost(f"{where}: the log ends at {last} by now", fail=fail)
            part.position = part.until
        elif part.empty >= EMPTY and last >= part.until:
            part.position = part.until  # nothing is there any more: compacted away
        part.empty = 0
        if part.position < part.until:
            self._failed([part], part.trouble)

    async def _connect(self) -> None:
        """Connections to all brokers that are needed now."""
        now = self._link.loop.time()
        nodes = {self._node(each) for each in self._queue if each.ready <= now}
        for node in nodes:
            if node is None or self._connection(node) is not None:
                continue
            try:
                deadline = self._client.deadline(self._options.patience / 1000)
                await self._client.connect(node, deadline=deadline)
            except Unreachable as error:
                failed = [each for each in self._queue if self._node(each) == node]
                for part in failed:
                    self._queue.remove(part)
                    part.replica = None
                self._failed(failed, str(error))

    def _connection(self, node: int) -> Connection | None:
        known = self._client.metadata.brokers.get(node)
        return None if known is None else self._client.peer(known).connection

    def _send(self) -> None:
        """Fetches to all brokers that have not enough to do and are connected."""
        now = self._link.loop.time()
        room: dict[int, int] = {}
        for part in self._queue:
            node = self._node(part)
            if node is not None and self._connection(node) is not None:
                room[node] = FLIGHTS
        for flight in self._flights.values():
            if flight.node in room:
                room[flight.node] -= 1
        for node, count in room.items():
            for _ in range(count):
                parts = self._choose(node, now)
                if parts:
                    self._fetch(node, parts)

    def _choose(self, node: int, now: float) -> list[_Part]:
        """Ranges for one Fetch: one that is large, or several that are small."""
        chosen: list[_Part] = []
        size = 0
        for part in self._queue:
            if part.ready > now or self._node(part) != node:
                continue
            if chosen and (part.empty or size + self._size(part) > ANSWER):
                break
            chosen.append(part)
            size += self._size(part)
            if part.empty:  # alone it gets what there is
                break
        for part in chosen:
            self._queue.remove(part)
        return chosen

    def _size(self, part: _Part) -> int:
        """How many bytes to ask for."""
        most = self._options.read.max_partition_bytes
        rate = self._link.rates.get(part.partition)
        if rate is None or part.empty:
            return most
        return min(most, int(part.left * rate) + MARGIN)

    def _fetch(self, node: int, parts: list[_Part]) -> None:
        metadata = self._client.metadata
        wanted = []
        for part in parts:
            topic, known = (
                metadata.topics.get(part.partition.topic),
                metadata.partition(part.partition),
            )
            wanted.append(
                Wanted(
                    part.partition,
                    NO_ID if topic is None else topic.id,
                    part.position,
                    NO_EPOCH if known is None else known.leader_epoch,
                    max_bytes=self._size(part),
                )
            )
        size = sum(self._size(part) for part in parts)
        fetch = request(wanted, self._options.read, max_bytes=size)
        connection = self._connection(node)
        assert connection is not None, "it is open"
        flight = _Flight(node, fetch, {part.partition: part for part in parts})
        try:
            deadline = self._link.loop.time() + FOREVER
            future = connection.send(Api.FETCH, fetch.message, deadline=deadline, most=fetch.most)
        except Unreachable as error:
            self._failed(parts, str(error))
        else:
            self._flights[future] = flight
