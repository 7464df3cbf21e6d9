"""Asks brokers for ranges until all is read: who leads, connections, pauses, patience.

What takes time beside the Fetches are chores: one look who leads, one look what there is, one
connection to each broker at a time. No range waits for the chores of another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Hashable, Iterable
from typing import Any, NamedTuple

from rota.client.connection import Connection
from rota.client.fetch import Fetched
from rota.client.refusal import AGAIN, refusal
from rota.client.retry import hopeless
from rota.errors import Code, RotaError, TimedOut, UnknownTopic, Unreachable
from rota.spark.loss import lost
from rota.spark.plan import Task
from rota.spark.query import Options
from rota.spark.reading import doubt
from rota.spark.reading.arrival import Verdict, judge
from rota.spark.reading.flight import Flight, Sizes, choose, fetch_of
from rota.spark.reading.link import Link
from rota.spark.reading.part import Part
from rota.wire.api import Api
from rota.wire.message import Message

FLIGHTS = 2
"""Fetches to one broker at a time."""
UNDER_WAY = 32 << 20
"""Bytes that may come at a time from all brokers together; one Fetch may bring more."""
GONE = 0.5
"""How much of its patience a task waits for a topic of which brokers do not know: one that is
behind may say so of a topic that is there.
"""
FOREVER = 7 * 86_400.0
"""Seconds: while Spark takes rows, no answer is late; time is taken here, while one is awaited."""


class Answer(NamedTuple):
    """What came of a range."""

    fetched: Fetched
    until: int
    """The range's end; records from there on are not of it."""


class _Trouble(NamedTuple):
    since: float
    text: str


class Inquiry:
    """The questions of one task."""

    def __init__(self, link: Link, task: Task, options: Options) -> None:
        """Nothing is asked yet."""
        self._link = link
        self._client = link.client
        self._options = options
        self._patience = options.patience / 1000
        self._sizes = Sizes(options.read.max_partition_bytes, link.rates)
        self._queue = deque(Part(*each) for each in task if each.size > 0)
        """Not under way."""
        self._doubtful: list[Part] = []
        """To be looked up, or being so."""
        self._flights: dict[asyncio.Future[Message], Flight] = {}
        self._chores: dict[Hashable, asyncio.Task[None]] = {}
        self._troubles: dict[int | None, _Trouble] = {}
        """Brokers that cannot be reached; None: nobody tells of the cluster."""
        self._away = 0.0
        """Seconds that nobody waited."""
        self._left: float | None = None
        """When nobody waited any more."""
        self._known = False
        """It was looked who leads, once at least."""

    async def next(self) -> list[Answer]:
        """What comes next, in the order of its offsets; waits for it. Nothing: all is read."""
        if self._left is not None:
            self._away += self._link.loop.time() - self._left
        try:
            while self._queue or self._flights or self._doubtful:
                # one time for a turn: what is due after it is waited for
                now = self._now
                self._begin_chores(now)
                self._send(now)
                flight = next((each for each in self._flights if each.done()), None)
                if flight is None:
                    await self._wait(now)
                    self._give_up()
                elif found := self._landed(flight):
                    self._send(now)  # the next is on its way while Spark takes these
                    return found
            return []
        finally:
            self._left = self._link.loop.time()

    def close(self) -> None:
        """Ends what is under way."""
        for each in (*self._flights, *self._chores.values()):
            each.cancel()
        chores, self._flights, self._chores = list(self._chores.values()), {}, {}
        if chores:
            self._link.run(_ended(chores))

    @property
    def _now(self) -> float:
        """By the clock that counts waiting only."""
        return self._link.loop.time() - self._away

    # What came

    def _landed(self, future: asyncio.Future[Message]) -> list[Answer]:
        """The answers to one Fetch; those to others wait as they came."""
        flight = self._flights.pop(future)
        error = future.exception()
        if error is not None:
            if not isinstance(error, Unreachable):
                raise error
            self._failed(flight.parts.values(), str(error))
            return []
        found, parts, response = [], dict(flight.parts), future.result()
        for fetched in flight.fetch.parse(response):
            part = parts.pop(fetched.partition, None)
            if part is not None and self._arrived(part, fetched, flight):
                found.append(Answer(fetched, part.until))
        self._left_out(list(parts.values()), response.throttle_time_ms / 1000)
        return found

    def _arrived(self, part: Part, fetched: Fetched, flight: Flight) -> bool:
        """Has it something to be read?"""
        before, committed = part.position, self._options.read.committed_only
        verdict = judge(part, fetched, alone=flight.alone, committed_only=committed)
        match verdict:
            case Verdict.READ:
                if part.position > before:
                    offsets = part.position - before
                    self._sizes.learn(part.partition, len(fetched.records), offsets)
                self._requeue(part)
            case Verdict.ASK:
                self._requeue(part)
            case Verdict.PAUSE:
                self._failed([part], part.trouble)
            case Verdict.DOUBT:
                self._doubtful.append(part)
        return verdict is Verdict.READ

    def _requeue(self, part: Part) -> None:
        if part.position < part.until:
            part.node = self._node(part)
            part.stale = part.node is None
            self._queue.appendleft(part)  # one partition after the other

    def _left_out(self, parts: list[Part], throttled: float) -> None:
        """A broker over whose quota this client is answers with nothing at all."""
        if throttled <= 0:
            self._failed(parts, "the broker's answer leaves it out")
            return
        for part in parts:
            part.trouble = f"a quota of the broker's, which wants a pause of {throttled:g} s"
            part.ready = self._now + throttled
            self._requeue(part)

    def _failed(self, parts: Iterable[Part], trouble: str) -> None:
        """To be tried again, after a pause and a look who leads now."""
        for part in list(parts):
            part.trouble = trouble
            part.failures += 1
            if part.waiting is None:
                part.waiting = self._now
            part.ready = self._now + self._client.backoff.after(part.failures)
            part.stale = True
            self._queue.append(part)

    # Waiting

    async def _wait(self, turn: float) -> None:
        """Until something has happened, or is due after this turn."""
        due = [part.ready for part in self._queue if part.ready > turn]
        due += [flight.sent + self._late for flight in self._flights.values()]
        due += [each.waiting + self._patience for each in self._every() if each.waiting is not None]
        due += [trouble.since + self._patience for trouble in self._troubles.values()]
        timeout = max(min(due) - self._now, 0.0) + 0.001 if due else None
        tasks = [*self._flights, *self._chores.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        else:
            assert timeout is not None, "nothing is under way, and nothing is due"
            await asyncio.sleep(timeout)
        for key in [key for key, chore in self._chores.items() if chore.done()]:
            self._chores.pop(key).result()
        self._hang_up()

    @property
    def _late(self) -> float:
        """Seconds after which an answer does not come any more."""
        return self._client.config.request_timeout / 1000

    def _hang_up(self) -> None:
        """Gives brokers up that do not answer: what comes after a late answer is later."""
        now = self._now
        late = {
            each.connection
            for future, each in self._flights.items()
            if not future.done() and now - each.sent >= self._late
        }
        for future, flight in list(self._flights.items()):
            if flight.connection in late and not future.done():
                future.cancel()
                del self._flights[future]
                text = f"{flight.connection.name}: no answer to Fetch within {self._late:g} s"
                self._failed(flight.parts.values(), text)
        for connection in late:
            connection.close()

    def _every(self) -> Iterable[Part]:
        yield from self._queue
        yield from self._doubtful
        for flight in self._flights.values():
            yield from flight.parts.values()

    def _give_up(self) -> None:
        """Without progress for too long."""
        now = self._now
        for part in self._every():
            if part.waiting is not None and now - part.waiting >= self._patience:
                raise self._given_up(part, part.trouble)
        for node, trouble in list(self._troubles.items()):
            parts = [each for each in self._queue if node is None or each.node == node]
            if not parts:
                del self._troubles[node]  # others lead by now
            elif now - trouble.since >= self._patience:
                raise self._given_up(parts[0], trouble.text)

    def _given_up(self, part: Part, trouble: str) -> TimedOut:
        return TimedOut(
            f"{part.partition}: nothing could be read from offset {part.position} on for "
            f"{self._patience:g} s (kafkaConsumer.pollTimeoutMs): {trouble}"
        )

    # Chores

    def _begin_chores(self, now: float) -> None:
        unknown = not self._known or any(part.stale and part.ready <= now for part in self._queue)
        if self._queue and unknown:
            self._begin("leaders", self._learn_leaders)
        if self._doubtful:
            self._begin("extents", self._look_up)
        for node in {part.node for part in self._queue if not part.stale}:
            if node is not None and self._connection(node) is None:
                self._begin(node, self._connect, node)

    def _begin(self, key: Hashable, chore: Any, *given: Any) -> None:  # noqa: ANN401 any chore
        if key not in self._chores:
            call: Coroutine[Any, Any, None] = chore(*given)
            self._chores[key] = self._link.loop.create_task(call)

    async def _learn_leaders(self) -> None:
        """Who leads, asked for if that is not known or was wrong."""
        begun, queued, self._known = self._now, list(self._queue), True
        topics = {each.partition.topic for each in queued}
        stale = any(each.stale for each in queued)
        if stale or not topics <= self._client.metadata.topics.keys():
            try:
                await self._client.refresh(topics, deadline=self._client.deadline(self._patience))
            except Unreachable as error:
                self._note(None, begun, error)
                return
        self._troubles.pop(None, None)
        now = self._now
        for part in [each for each in self._queue if each.partition.topic in topics]:
            if part.stale and part.ready > now:
                continue  # it has failed meanwhile
            part.node, part.stale = self._node(part), False
            if part.node is None:
                self._queue.remove(part)
                self._without_leader(part)

    def _without_leader(self, part: Part) -> None:
        topic = self._client.metadata.topics.get(part.partition.topic)
        error = Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        if error not in AGAIN | {Code.NONE}:
            raise refusal(error, part.partition, "to look up")
        if self._client.metadata.partition(part.partition) is not None:
            self._failed([part], "it has no leader")
            return
        if part.unknown is None:
            part.unknown = self._now
        if self._now - part.unknown >= GONE * self._patience:
            what = f"{part.partition} from offset {part.position} to {part.until}: it is gone"
            lost(what, fail=self._options.fail_on_loss)
        else:
            self._failed([part], "there is no such partition")

    async def _look_up(self) -> None:
        """What there is of those in doubt."""
        parts = list(self._doubtful)
        deadline = self._client.deadline(
            min(self._patience, self._client.config.api_timeout / 1000)
        )
        trouble = None
        try:
            found = await doubt.look(self._client, [each.partition for each in parts], deadline)
        except (Unreachable, UnknownTopic) as error:
            if hopeless(error) and not isinstance(error, UnknownTopic):
                raise
            found, trouble = {}, str(error)
        for part in parts:
            self._doubtful.remove(part)
            if part.partition in found:
                before = part.position
                doubt.settle(part, found[part.partition], fail=self._options.fail_on_loss)
                if part.position > before:
                    self._requeue(part)
                    continue
            self._failed([part], trouble or part.trouble)

    async def _connect(self, node: int) -> None:
        begun = self._now
        try:
            await self._client.connect(node, deadline=self._client.deadline(self._patience))
        except Unreachable as error:
            self._note(node, begun, error)
        else:
            self._troubles.pop(node, None)

    def _note(self, node: int | None, since: float, error: RotaError) -> None:
        """A broker cannot be reached: others may lead what it led."""
        if hopeless(error):
            raise error
        before = self._troubles.get(node)
        self._troubles[node] = _Trouble(before.since if before else since, str(error))
        for part in self._queue:
            if node is None or part.node == node:
                part.ready = max(part.ready, self._now + self._client.backoff.after(1))
                part.stale = True
                if part.replica == node:
                    part.replica, part.leader_only = None, True

    # What is asked

    def _node(self, part: Part) -> int | None:
        if part.replica is not None:
            return part.replica
        return self._client.metadata.leader(part.partition)

    def _connection(self, node: int) -> Connection | None:
        known = self._client.metadata.brokers.get(node)
        return None if known is None else self._client.peer(known).connection

    def _send(self, now: float) -> None:
        """Fetches to all brokers that have not enough to do and are connected."""
        room: dict[int, int] = {}
        for part in self._queue:
            if part.node is not None:
                room[part.node] = FLIGHTS
        under_way = 0
        for flight in self._flights.values():
            under_way += flight.size
            if flight.node in room:
                room[flight.node] -= 1
        for _ in range(FLIGHTS):
            for node, count in room.items():
                connection = self._connection(node) if count > 0 else None
                if connection is None or under_way >= UNDER_WAY:
                    continue
                parts = choose(self._queue, node, self._sizes, now)
                if parts:
                    under_way += self._fetch(node, connection, parts)
                    room[node] -= 1

    def _fetch(self, node: int, connection: Connection, parts: list[Part]) -> int:
        for part in parts:
            self._queue.remove(part)
            part.trouble = part.trouble or f"{connection.name} has not answered"
            if part.waiting is None:
                part.waiting = self._now
        fetch, size = fetch_of(parts, self._client.metadata, self._options.read, self._sizes)
        try:
            deadline = self._link.loop.time() + FOREVER
            future = connection.send(Api.FETCH, fetch.message, deadline=deadline, most=fetch.most)
        except Unreachable as error:
            self._failed(parts, str(error))
            return 0
        by_name = {part.partition: part for part in parts}
        self._flights[future] = Flight(node, connection, fetch, by_name, size, self._now)
        return size


async def _ended(chores: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*chores, return_exceptions=True)
