"""What makes a consumer: polling, attending to the member, keeping positions, closing."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from rota.client.cluster import Client
from rota.client.metadata import Metadata
from rota.client.setting import read
from rota.consumer.argument import Place, check_poll, place
from rota.consumer.bell import Bell
from rota.consumer.driver import Driver
from rota.consumer.fetcher import Fetcher
from rota.consumer.flow import Flow
from rota.consumer.home import Home
from rota.consumer.listener import ConsumerInterceptor, Offsets
from rota.consumer.membership import LOGGER, Caller, Membership, in_listener, told
from rota.consumer.record import Records
from rota.consumer.topics import Topics
from rota.errors import InputError, Interrupted
from rota.member.event import MetadataUpdated, PollBegan, PollEnded, Unsubscribed
from rota.model.offset import OffsetAndMetadata
from rota.model.topic import TopicPartition

FOREVER = float("inf")
POLL_TIMEOUT = 1.0
TURN = 0.005
"""Seconds after which others in the loop have their turn, though there are records at hand: as long
as Python lets a thread run while others wait. A turn for every poll would take a tenth of the time.
"""
SUSPICIOUS = 100.0
"""Seconds of a poll that may have been meant as milliseconds, as in other clients."""
T = TypeVar("T")


class Core:
    """The parts of a consumer, and how they work together."""

    def __init__(self, config: Mapping[str, object], call: Caller) -> None:
        settings = read(config)
        for warning in settings.warnings:
            LOGGER.warning("%s", warning)
        self.settings = settings
        self.home = Home()
        self.bell = Bell()
        self.client = Client(settings.client)
        self.topics = Topics(self.client, self._metadata_updated, self.bell.ring)
        self.fetcher = Fetcher(
            self.client,
            settings.read,
            None if settings.member is None else self.fetch_committed,
            self.bell.ring_here,
            key_deserializer=settings.key_deserializer,
            value_deserializer=settings.value_deserializer,
        )
        self.membership: Membership | None = None
        if settings.member is not None:
            driver = Driver(
                settings.client,
                settings.member,
                settings.strategies,
                self.consumed,
                self.bell.ring,
            )
            self.membership = Membership(
                driver,
                self.fetcher,
                settings.interceptors,
                call,
                want_metadata=self.topics.want,
                wake=self.bell.ring,
            )
        self.flow = Flow()
        self.is_subscribed = False
        self.assigned: frozenset[TopicPartition] = frozenset()
        """By the application itself."""
        self._owned: tuple[tuple[TopicPartition, ...], frozenset[TopicPartition]] = (), frozenset()
        """By the group, as the member has it and as a set."""
        self._commit_due = 0
        """When the next automatic commit of such an assignment is due, in the driver's time."""
        self._is_polling = False
        self._turn = 0.0
        """When others in the loop had their turn, by its clock."""
        self.is_closing = False
        """Only what a listener does while the consumer says good-bye is still allowed."""
        self.is_closed = False
        self._is_interrupted = False
        self._is_warned = False
        self._is_leaving = False
        """``unsubscribe`` was called, and the group is not left yet."""

    # What is read

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is read now."""
        if not self.is_subscribed or self.membership is None:
            return self.assigned
        owned, found = self._owned
        current = self.membership.driver.machine.assignment
        if current is not owned:  # made once for each assignment: some have thousands
            found = frozenset(current)
            self._owned = current, found
        return found

    def assign(self, wanted: frozenset[TopicPartition]) -> None:
        """Reads these, by the application's own will."""
        self._commit_assigned()  # first, for it covers what was handed out of what is dropped
        with self.lock():
            self.flow.drop(self.assigned - wanted)
            self.assigned = wanted
            self.fetcher.assign(tuple(sorted(wanted)))
        self.topics.want(tuple(sorted({each.topic for each in wanted})))

    async def unsubscribe(self) -> None:
        """Leaves the group, and waits until the listener has heard of it."""
        membership = self.membership
        assert membership is not None
        with self.lock():
            self.flow.stop()  # positions stay: the last commit covers what was handed out
        self._is_leaving = True
        membership.driver.tell(Unsubscribed())
        if in_listener():
            return  # the member goes on when the listener is done
        while True:
            await membership.attend()
            if not membership.driver.machine.is_unsubscribing:
                break
            await self.bell.wait(FOREVER, lambda: membership.is_due)
        self._leave()

    def _leave(self) -> None:
        """The group is left."""
        self._is_leaving = self.is_subscribed = False
        self.flow.fill(Records({}))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hands out no more of these; what a loop has not come to is fetched again later."""
        with self.lock():
            unread = self.flow.unread()
            for at in partitions:
                if at in unread:
                    self.flow.drop([at])
                    self.fetcher.seek(at, unread[at])
            self.fetcher.pause(partitions)

    # Polling

    async def fill(self, timeout: float, max_records: int | None = None) -> None:
        """Fills the flow, unless something is left there; not longer than so many seconds."""
        is_early = asyncio.get_running_loop().time() < self._turn + TURN
        if not self.flow.is_empty or (is_early and self.fill_now(max_records)):
            return
        self._clear()
        most = self._most(max_records)
        prepare = partial(self.fetcher.prepare, most)
        if await self._poll(timeout, prepare, partial(self._take, most)):
            self._intercept()

    def fill_now(self, max_records: int | None = None) -> bool:
        """The same without a loop, if it can be done at once."""
        if not self.flow.is_empty:
            return True
        self._clear()
        most = self._most(max_records)
        is_filled = self._poll_now(partial(self.fetcher.prepare, most), partial(self._take, most))
        if is_filled:
            self._intercept()
        return is_filled

    def hand_out(self, max_records: int | None = None) -> Records:
        """What the application gets of the flow."""
        return self.flow.take(self._most(max_records))

    async def fill_with_batches(self, timeout: float) -> None:
        """Fills the flow with columns, unless some are left there."""
        if not self.flow.has_batches:
            self._give_back()
            await self._poll(timeout, _nothing, self._take_batches)

    def fill_with_batches_now(self) -> bool:
        """The same without a loop, if it can be done at once."""
        if self.flow.has_batches:
            return True
        self._give_back()
        return self._poll_now(_nothing, self._take_batches)

    def _most(self, max_records: int | None) -> int:
        return self.settings.read.max_records if max_records is None else max_records

    async def _poll(
        self, timeout: float, prepare: Callable[[], None], take: Callable[[], bool]
    ) -> bool:
        """Takes as soon as there is something to take, and says whether there was."""
        with self._alone():
            if not (self.is_subscribed or self.assigned):
                raise InputError("poll: nothing to read: subscribe or assign first")
            loop = asyncio.get_running_loop()
            deadline = loop.time() + timeout
            self._tell_poll(PollBegan())
            try:
                await asyncio.sleep(0)  # others in the loop have their turn, the sockets too
                self._turn = loop.time()
                while True:
                    await self.attend()
                    prepare()
                    if self._take_in_poll(take):
                        return True
                    if self.is_closing or (loop.time() >= deadline and self._ends_in_peace()):
                        return False
                    await self.bell.wait(deadline, self._is_due)
            finally:
                self._tell_poll(PollEnded())

    def _poll_now(self, prepare: Callable[[], None], take: Callable[[], bool]) -> bool:
        if self.fetcher.is_hungry or not self.fetcher.has_records:
            return False
        with self._alone():
            self._tell_poll(PollBegan())
            try:
                prepare()
                if self._is_due_but_for_records() or not self._take_in_poll(take):
                    return False  # the poll goes on in the loop
            except BaseException:
                self._tell_poll(PollEnded())
                raise
            return True

    def _take_in_poll(self, take: Callable[[], bool]) -> bool:
        """Takes records, and ends the poll by it: a commit of the member's own in between would
        cover what the application has not seen. Nothing is taken if the member has said something
        meanwhile: it may be that a partition is to be withheld, or another's.
        """
        with self.lock():
            if not self._may_take() or not take():
                return False
            self._tell_poll(PollEnded())
            return True

    def _ends_in_peace(self) -> bool:
        """Ends the poll, unless the member has said something meanwhile: it may be given partitions
        that the listener, who hears of them in a poll, has not been told of.
        """
        with self.lock():
            if self.membership is not None and self.membership.is_due:
                return False
            self._tell_poll(PollEnded())
            return True

    def _take(self, most: int) -> bool:
        return bool(self.fetcher.take(most, self.flow.fill))

    def _clear(self) -> None:
        """Lets go of what was handed out, before new records are made: the collector has less to
        look through. Columns that are left come again, as records.
        """
        if self.flow.has_batches:
            self._give_back()
        else:
            self.flow.fill(Records({}))

    def _give_back(self) -> None:
        """What is left comes again, in the other form. Before a poll: it may revoke something."""
        with self.lock():
            for at, offset in self.flow.unread().items():
                self.fetcher.seek(at, offset)
            self.flow.fill(Records({}))

    def _take_batches(self) -> bool:
        return bool(self.fetcher.take_batches(self.flow.fill_with_batches))

    def _intercept(self) -> None:
        """Lets interceptors see what is in the flow, and change it."""
        for interceptor in self.settings.interceptors:
            seen = told("on_consume", interceptor.on_consume, self.flow.whole)
            if seen is not None:
                with self.lock():
                    self.flow.fill(seen)

    # Committing

    async def commit(self, offsets: Offsets | None, timeout: float | None) -> None:
        """Stores offsets, or what was handed out, and waits for it."""
        membership = self.membership
        assert membership is not None
        wait = self.settings.client.api_timeout / 1000 if timeout is None else timeout
        number = membership.begin_commit(offsets, membership.driver.now() + int(wait * 1000))
        await membership.attend_to_commits()
        while not membership.has_ended(number):
            self.check_interrupted()
            await self.bell.wait(FOREVER, self._has_commit_news)
            await membership.attend_to_commits()

    def _has_commit_news(self) -> bool:
        membership = self.membership
        return self._is_interrupted or (membership is not None and membership.has_commit_news)

    # Inside

    def check_poll(self, timeout: float, max_records: int | None = None) -> None:
        """Looks at what a poll is given.

        :raises InputError: it makes no sense
        """
        check_poll(timeout, max_records)
        if timeout >= SUSPICIOUS and not self._is_warned:
            self._is_warned = True
            LOGGER.warning("poll(timeout=%s) waits so many seconds, not milliseconds", timeout)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One poll at a time, and none inside a listener."""
        self.check_open()
        if self._is_polling or self.is_closing:
            raise InputError("poll: this consumer is inside a poll already")
        self._is_polling = True
        try:
            yield
        finally:
            self._is_polling = False

    async def attend(self) -> None:
        """Does what waits to be done, and starts what can be started."""
        if self.membership is not None:
            await self.membership.attend()
            if self._is_leaving and not self.membership.driver.machine.is_unsubscribing:
                self._leave()
        if self.assigned:
            self._commit_if_due()
        self.advance()

    def advance(self) -> None:
        """Starts what can be started: look-ups of topics and positions, fetches.

        :raises RotaError: something stands in the way of it
        """
        self.check_interrupted()
        self.topics.check()
        self.topics.advance()
        self.fetcher.advance()

    def _may_take(self) -> bool:
        membership = self.membership
        return membership is None or not (membership.is_due or membership.is_listening)

    def _is_due(self) -> bool:
        has_records = self.fetcher.has_records and self._may_take()
        return has_records or self.is_closing or self._is_due_but_for_records()

    def _is_due_but_for_records(self) -> bool:
        membership = self.membership
        has_mail = membership is not None and membership.is_due
        return has_mail or self._is_interrupted or self.topics.in_trouble

    async def until_interrupted(self, question: Coroutine[Any, Any, T]) -> T:
        """What a look-up finds, unless ``wakeup`` ends it."""
        task = asyncio.ensure_future(question)
        task.add_done_callback(lambda _: self.bell.ring())
        try:
            while not task.done():
                self.check_interrupted()
                await self.bell.wait(FOREVER, lambda: task.done() or self._is_interrupted)
            return task.result()
        finally:
            task.cancel()

    def check_interrupted(self) -> None:
        """:raises Interrupted: ``wakeup`` was called"""
        if self._is_interrupted:
            self._is_interrupted = False
            raise Interrupted("wakeup was called")

    def check_open(self) -> None:
        """:raises InputError: the consumer is closed
        :raises RotaError: this process is a fork of the consumer's own
        """
        self.home.check()
        if self.is_closed:
            raise InputError("this consumer is closed")

    def need_group(self, name: str) -> Membership:
        """The membership, for a call that cannot do without.

        :raises InputError: there is no ``group.id``
        """
        self.check_open()
        if self.membership is None:
            raise InputError(f"{name}: this consumer has no group.id")
        return self.membership

    def of_assignment(self, name: str, partitions: Iterable[Place]) -> list[TopicPartition]:
        """Partitions that a call names.

        :raises InputError: one of them is not read by this consumer
        """
        self.check_open()
        wanted = [place(name, each) for each in partitions]
        assigned = self.assignment
        for each in wanted:
            if each not in assigned:
                raise InputError(f"{name}: {each} is not assigned to this consumer")
        return wanted

    def lock(self) -> contextlib.AbstractContextManager[object]:
        """Held where the member must not see half a step."""
        return contextlib.nullcontext() if self.membership is None else self.membership.driver.lock

    def _tell_poll(self, event: PollBegan | PollEnded) -> None:
        if self.is_subscribed and self.membership is not None:
            self.membership.driver.tell(event)

    def _metadata_updated(self, metadata: Metadata) -> None:
        if self.is_subscribed and self.membership is not None:
            self.membership.driver.tell(MetadataUpdated(metadata.cluster()))

    def consumed(self, *only: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions after what was handed out, of what is this consumer's; of these alone, if
        some are named.
        """
        mine = self.assignment
        positions = {at: each for at, each in self.fetcher.consumed(*only).items() if at in mine}
        self.flow.correct(positions)
        return positions

    async def fetch_committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has stored."""
        assert self.membership is not None
        return await self.membership.fetch_committed(tuple(partitions), timeout)

    def _commit_if_due(self) -> None:
        """Kafka commits automatically for assigned partitions, too."""
        member, membership = self.settings.member, self.membership
        if member is None or membership is None or not member.auto_commit:
            return
        now = membership.driver.now()
        if now >= self._commit_due:
            is_first, self._commit_due = not self._commit_due, now + member.auto_commit_interval
            if not is_first:
                self._commit_assigned()

    @property
    def _commits_assigned(self) -> bool:
        member = self.settings.member
        return bool(self.assigned) and member is not None and member.auto_commit

    def _commit_assigned(self) -> None:
        if self._commits_assigned and self.membership is not None:
            positions = self.consumed()
            if positions:
                self.membership.commit_async(positions, None)

    def interrupt(self) -> None:
        """Ends what is waited for, from any thread."""
        self._is_interrupted = True
        self.bell.ring()

    async def close(self, timeout: float) -> None:
        """Says good-bye to the group, then closes everything, whatever goes wrong.

        :raises InputError: a listener asks for it
        """
        if self.is_closing or self.home.is_forked:
            return  # a fork shares its parent's sockets: to close them here would hurt it
        if in_listener():
            raise InputError("close: not inside a listener: the group waits for its return")
        self.is_closing = True
        self.bell.ring()  # for a poll that waits in another task
        with self.lock():
            self.flow.stop()  # positions stay: the last commit covers what was handed out
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._set_closed)
            for interceptor in self.settings.interceptors:
                stack.callback(told, "close", _closing(interceptor), None)
            stack.push_async_callback(self.client.close)
            stack.push_async_callback(self.topics.close)
            stack.push_async_callback(self.fetcher.close)
            if self.membership is not None:
                stack.callback(self.membership.driver.stop)
                await self._say_goodbye(self.membership, timeout)

    def _set_closed(self) -> None:
        self.is_closed = True
        self.assigned = frozenset()

    def abandon(self) -> None:
        """Nobody can use the consumer any more. If it is not closed, at least its thread ends:
        else a member would live on that nobody polls.
        """
        if self.is_closing or self.home.is_forked or not (self.is_subscribed or self.assigned):
            return
        warnings.warn(f"unclosed consumer {self}", ResourceWarning, stacklevel=3)
        if self.membership is not None and self.membership.driver.is_started:
            LOGGER.warning(
                "the consumer %s was not closed: nothing more is committed, and the group waits "
                "for it until session.timeout.ms is over",
                self,
            )
            self.membership.driver.abandon()

    def __str__(self) -> str:
        member = self.settings.member
        group = "without a group" if member is None else f"of group {member.group!r}"
        if self.is_closed:
            return f"{group}, closed"
        return f"{group}, {len(self.assignment)} partitions"

    async def _say_goodbye(self, membership: Membership, timeout: float) -> None:
        commits = self._commits_assigned and bool(self.consumed())
        if not (membership.driver.is_started or commits):
            return
        until = membership.driver.now() + int(timeout * 1000)
        if commits:
            membership.begin_commit(None, until)
        membership.begin_close(until)
        error: Exception | None = None
        # a little longer than the member itself may take, to hear of its end
        deadline = self.client.deadline(timeout + 1)
        loop = asyncio.get_running_loop()
        while not membership.is_finished and loop.time() < deadline:
            try:
                await membership.attend()
            except Exception as raised:  # noqa: BLE001 (told when all is closed)
                error = error or raised
            else:
                if not membership.is_finished:
                    await self.bell.wait(deadline, lambda: membership.is_due)
        if error is not None:
            raise error


def _closing(interceptor: ConsumerInterceptor) -> Callable[[None], None]:
    return lambda _: interceptor.close()


def _nothing() -> None:
    """Columns are not made into records."""
