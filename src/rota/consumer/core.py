"""What both consumers share: polling, handling the member's commands, committing and closing."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rota import errors
from rota.client.cluster import ClusterClient
from rota.client.config import read_settings
from rota.client.metadata import ClusterMetadata
from rota.consumer import membership as group_membership
from rota.consumer.buffer import PolledRecords
from rota.consumer.fetcher import Fetcher
from rota.consumer.member_driver import ForkCheck, MemberDriver
from rota.consumer.membership import LOGGER, GroupMembership, call_interceptor, in_listener
from rota.consumer.records import (
    Offsets,
    PartitionLike,
    Records,
    check_poll_arguments,
    parse_partition,
)
from rota.engine.member.events import (
    CloseRequested,
    MetadataUpdated,
    PollBegan,
    PollEnded,
    Unsubscribed,
)
from rota.engine.model.text import list_first_names
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import Code, InputError, RotaError

FOREVER = float("inf")
POLL_TIMEOUT = 1.0
#: Seconds after which a poll with buffered records runs the event loop: as long as Python lets a
#: thread run while others wait. Running it in every poll would take a tenth of the time.
LOOP_INTERVAL = 0.005
SUSPICIOUS_TIMEOUT = 100.0  # probably meant as milliseconds, as in other clients
T = TypeVar("T")


class ConsumerCore:
    def __init__(
        self, config: Mapping[str, object], call: group_membership.CallApplication
    ) -> None:
        settings = read_settings(config)
        for warning in settings.warnings:
            LOGGER.warning("%s", warning)
        self.settings = settings
        self.fork_check = ForkCheck()
        self.waker = Waker()
        self.client = ClusterClient(settings.client)
        self.topics = WatchedTopics(self.client, self._metadata_updated, self.waker.wake)
        self.fetcher = Fetcher(
            self.client,
            settings.fetch,
            None if settings.member is None else self.fetch_committed,
            self.waker.wake_in_loop,
            key_deserializer=settings.key_deserializer,
            value_deserializer=settings.value_deserializer,
        )
        self.membership: GroupMembership | None = None
        if (member := settings.member) is not None:
            positions, wake = self.consumed_positions, self.waker.wake
            driver = MemberDriver(settings.client, member, settings.strategies, positions, wake)
            self.membership = GroupMembership(
                driver, self.fetcher, settings.interceptors, call, self.topics.set_topics, wake
            )
        self.polled = PolledRecords()
        self.is_subscribed = False
        #: Partitions that the application has assigned.
        self.assigned: frozenset[TopicPartition] = frozenset()
        #: Partitions that the group has assigned, as the member has them and as a set.
        self._owned: tuple[tuple[TopicPartition, ...], frozenset[TopicPartition]] = (), frozenset()
        #: When the next automatic commit of ``assigned`` is due, in the driver's time.
        self._commit_due = 0
        self._is_polling = False
        self._last_loop_run = 0.0  # when a poll last ran the event loop
        self.is_closing = False  # only a listener may still use the consumer
        self.is_closed = False
        self._is_interrupted = False
        self._is_warned = False
        #: ``unsubscribe`` was called, and the member has not left the group yet.
        self._is_leaving = False

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        if not self.is_subscribed or self.membership is None:
            return self.assigned
        owned, found = self._owned
        current = self.membership.driver.machine.assignment
        if current is not owned:  # an assignment may have thousands of partitions
            found = frozenset(current)
            self._owned = current, found
        return found

    def assign(self, wanted: frozenset[TopicPartition]) -> None:
        self._commit_assigned()  # before records of dropped partitions are forgotten
        with self.member_lock():
            self.polled.drop_partitions(self.assigned - wanted)
            self.assigned = wanted
            self.fetcher.assign(tuple(sorted(wanted)))
        self.topics.set_topics(tuple(sorted({each.topic for each in wanted})))

    async def unsubscribe(self) -> None:
        """Leaves the group, and waits until the listener has been called."""
        membership = self.membership
        assert membership is not None
        with self.member_lock():
            self.polled.drop_remaining()  # positions stay: the last commit covers them
        self._is_leaving = True
        membership.driver.handle_event(Unsubscribed())
        if in_listener.get():
            return  # the member continues when the listener returns
        while True:
            await membership.handle_commands()
            if not membership.driver.machine.is_unsubscribing:
                break
            await self.waker.wait(FOREVER, self._has_commands)
        self._finish_unsubscribe()

    def _finish_unsubscribe(self) -> None:
        self._is_leaving = self.is_subscribed = False
        self.polled.set_records(Records({}))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hands out no more of these; records that a loop has not reached are fetched again."""
        with self.member_lock():
            unread = self.polled.remaining_positions()
            for at in partitions:
                if at in unread:
                    self.polled.drop_partitions([at])
                    self.fetcher.seek(at, unread[at])
            self.fetcher.pause(partitions)

    async def fill_records(self, timeout: float, max_records: int | None = None) -> None:
        """Polls for records unless some are left; waits for the timeout at most, in seconds."""
        is_early = asyncio.get_running_loop().time() < self._last_loop_run + LOOP_INTERVAL
        if not self.polled.is_empty or (is_early and self.fill_records_now(max_records)):
            return
        self._drop_handed_out()
        most = self._max_records(max_records)
        if await self._poll(timeout, most):
            self._run_interceptors()

    def fill_records_now(self, max_records: int | None = None) -> bool:
        """Like :meth:`fill_records` without the event loop; False if that is not possible now."""
        if not self.polled.is_empty:
            return True
        self._drop_handed_out()
        most = self._max_records(max_records)
        is_filled = self._poll_now(most)
        if is_filled:
            self._run_interceptors()
        return is_filled

    def take_records(self, max_records: int | None = None) -> Records:
        return self.polled.take_records(self._max_records(max_records))

    async def fill_with_batches(self, timeout: float) -> None:
        if not self.polled.has_batches:
            self._return_unread()
            await self._poll(timeout, None)

    def fill_with_batches_now(self) -> bool:
        """Like :meth:`fill_with_batches` without the event loop; False if that is not possible."""
        if self.polled.has_batches:
            return True
        self._return_unread()
        return self._poll_now(None)

    def _max_records(self, max_records: int | None) -> int:
        return self.settings.fetch.max_poll_records if max_records is None else max_records

    async def _poll(self, timeout: float, most: int | None) -> bool:
        """Takes up to ``most`` records, or batches if that is None; False if none came in time."""
        with self._one_poll():
            if not (self.is_subscribed or self.assigned):
                raise InputError("poll: nothing to read: subscribe or assign first")
            loop = asyncio.get_running_loop()
            deadline = loop.time() + timeout
            self._send_poll_event(PollBegan())
            try:
                await asyncio.sleep(0)  # runs other tasks, and reads the sockets
                self._last_loop_run = loop.time()
                while True:
                    await self.handle_commands()
                    if most is not None:
                        self.fetcher.prepare_records(most)
                    if self._take_records_and_end_poll(most):
                        return True
                    if self.is_closing or (loop.time() >= deadline and self._end_poll()):
                        return False
                    await self.waker.wait(deadline, self._has_work)
            finally:
                self._send_poll_event(PollEnded())

    def _poll_now(self, most: int | None) -> bool:
        if self.fetcher.needs_start or not self.fetcher.has_records:
            return False
        with self._one_poll():
            self._send_poll_event(PollBegan())
            try:
                if most is not None:
                    self.fetcher.prepare_records(most)
                if self._has_urgent_work() or not self._take_records_and_end_poll(most):
                    return False  # the poll continues in the loop
            except BaseException:
                self._send_poll_event(PollEnded())
                raise
            return True

    def _take_records_and_end_poll(self, most: int | None) -> bool:
        """Takes records and ends the poll in one step: no automatic commit covers unseen records.
        Takes none while commands wait, which may revoke their partitions.
        """
        with self.member_lock():
            if not self._may_take_records():
                return False
            if most is None:
                has_taken = bool(self.fetcher.take_batches(self.polled.set_batches))
            else:
                has_taken = bool(self.fetcher.take_records(most, self.polled.set_records))
            if has_taken:
                self._send_poll_event(PollEnded())
            return has_taken

    def _end_poll(self) -> bool:
        """Ends the poll unless commands of the member wait, which only a poll carries out."""
        with self.member_lock():
            if self._has_commands():
                return False
            self._send_poll_event(PollEnded())
            return True

    def _drop_handed_out(self) -> None:
        """Drops records that were handed out (less garbage collection); columns come again."""
        if self.polled.has_batches:
            self._return_unread()
        else:
            self.polled.set_records(Records({}))

    def _return_unread(self) -> None:
        """Seeks back to what is left, before a poll, so that it comes again in the other form."""
        with self.member_lock():
            for at, offset in self.polled.remaining_positions().items():
                self.fetcher.seek(at, offset)
            self.polled.set_records(Records({}))

    def _run_interceptors(self) -> None:
        for interceptor in self.settings.interceptors:
            records = call_interceptor("on_consume", interceptor, self.polled.all_records)
            if records is not None:
                with self.member_lock():
                    self.polled.set_records(records)

    async def commit(self, offsets: Offsets | None, timeout: float | None) -> None:
        """Commits offsets, or the positions of what was handed out, and waits for the result."""
        membership = self.membership
        assert membership is not None
        wait = self.settings.client.api_timeout / 1000 if timeout is None else timeout
        number = membership.begin_commit(offsets, membership.driver.now() + int(wait * 1000))
        await membership.handle_commit_commands()
        while not membership.has_commit_ended(number):
            self.check_interrupted()
            await self.waker.wait(
                FOREVER, lambda: self._is_interrupted or membership.has_commit_commands
            )
            await membership.handle_commit_commands()

    def check_poll(self, timeout: float, max_records: int | None = None) -> None:
        """:raises InputError: an argument is wrong"""
        check_poll_arguments(timeout, max_records)
        if timeout >= SUSPICIOUS_TIMEOUT and not self._is_warned:
            self._is_warned = True
            LOGGER.warning("poll(timeout=%s): the timeout is in seconds, not milliseconds", timeout)

    @contextlib.contextmanager
    def _one_poll(self) -> Iterator[None]:
        """Allows one poll at a time, and none inside a listener."""
        self.check_open()
        if self._is_polling or self.is_closing:
            raise InputError("poll: this consumer is inside a poll already")
        self._is_polling = True
        try:
            yield
        finally:
            self._is_polling = False

    async def handle_commands(self) -> None:
        """Handles the member's commands, commits if that is due, and starts new requests."""
        if self.membership is not None:
            await self.membership.handle_commands()
            if self._is_leaving and not self.membership.driver.machine.is_unsubscribing:
                self._finish_unsubscribe()
        if self.assigned:
            self._commit_if_due()
        self.start_requests()

    def start_requests(self) -> None:
        """Starts requests for metadata, positions and records; raises errors of the topics."""
        self.check_interrupted()
        self.topics.raise_problem()
        self.topics.start_refresh()
        self.fetcher.start_requests()

    def _has_commands(self) -> bool:
        return self.membership is not None and bool(self.membership.driver.inbox)

    def _may_take_records(self) -> bool:
        is_in_call = self.membership is not None and self.membership.is_listener_running
        return not (is_in_call or self._has_commands())

    def _has_work(self) -> bool:
        has_records = self.fetcher.has_records and self._may_take_records()
        return has_records or self.is_closing or self._has_urgent_work()

    def _has_urgent_work(self) -> bool:
        return self._has_commands() or self._is_interrupted or self.topics.problem is not None

    async def run_interruptibly(self, request: Coroutine[Any, Any, T]) -> T:
        """Returns the result of a request, unless ``wakeup`` interrupts it."""
        task = asyncio.ensure_future(request)
        task.add_done_callback(lambda _: self.waker.wake())
        try:
            while not task.done():
                self.check_interrupted()
                await self.waker.wait(FOREVER, lambda: task.done() or self._is_interrupted)
            return task.result()
        finally:
            task.cancel()

    def check_interrupted(self) -> None:
        if self._is_interrupted:
            self._is_interrupted = False
            raise errors.Interrupted("wakeup was called")

    def check_open(self) -> None:
        """Raises InputError if the consumer is closed, RotaError in a fork of its process."""
        self.fork_check.check()
        if self.is_closed:
            raise InputError("this consumer is closed")

    def require_group(self, name: str) -> GroupMembership:
        """Returns the membership; raises InputError in method ``name`` without ``group.id``."""
        self.check_open()
        if self.membership is None:
            raise InputError(f"{name}: this consumer has no group.id")
        return self.membership

    def require_assigned(
        self, name: str, partitions: Iterable[PartitionLike]
    ) -> list[TopicPartition]:
        """Parses the partitions of a method; raises InputError if one is not assigned."""
        self.check_open()
        wanted = [parse_partition(name, each) for each in partitions]
        assigned = self.assignment
        for each in wanted:
            if each not in assigned:
                raise InputError(f"{name}: {each} is not assigned to this consumer")
        return wanted

    def member_lock(self) -> contextlib.AbstractContextManager[object]:
        """The lock under which the member sees records taken and positions moved as one step."""
        return contextlib.nullcontext() if self.membership is None else self.membership.driver.lock

    def _send_poll_event(self, event: PollBegan | PollEnded) -> None:
        if self.is_subscribed and self.membership is not None:
            self.membership.driver.handle_event(event)

    def _metadata_updated(self, metadata: ClusterMetadata) -> None:
        if self.is_subscribed and self.membership is not None:
            self.membership.driver.handle_event(MetadataUpdated(metadata.cluster()))

    def consumed_positions(self, *only: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the positions after what was handed out, of all partitions or of these."""
        assigned, known = self.assignment, self.fetcher.consumed_positions(*only)
        positions = {at: position for at, position in known.items() if at in assigned}
        self.polled.rewind_positions(positions)
        return positions

    async def fetch_committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        assert self.membership is not None
        return await self.membership.fetch_committed(tuple(partitions), timeout)

    def _commit_if_due(self) -> None:
        """Commits automatically for ``assign``, as Kafka does."""
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
            positions = self.consumed_positions()
            if positions:
                self.membership.commit_async(positions, None)

    def interrupt(self) -> None:
        """Interrupts a call that waits, from any thread."""
        self._is_interrupted = True
        self.waker.wake()

    async def close(self, timeout: float) -> None:
        """Leaves the group, then closes everything. Raises InputError inside a listener."""
        if self.is_closing or self.fork_check.is_forked:
            return  # a fork shares its parent's sockets: closing them would disturb the parent
        if in_listener.get():
            raise InputError("close: not inside a listener: the group waits for its return")
        self.is_closing = True
        self.waker.wake()  # ends a poll that waits in another task
        with self.member_lock():
            self.polled.drop_remaining()  # positions stay: the last commit covers them
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._set_closed)
            for interceptor in self.settings.interceptors:
                stack.callback(call_interceptor, "close", interceptor)
            stack.push_async_callback(self.client.close)
            stack.push_async_callback(self.topics.close)
            stack.push_async_callback(self.fetcher.close)
            if self.membership is not None:
                stack.callback(self.membership.driver.stop)
                await self._leave_group(self.membership, timeout)

    def _set_closed(self) -> None:
        self.is_closed = True
        self.assigned = frozenset()

    def abandon(self) -> None:
        """Ends the thread of a consumer that was not closed: its member must leave the group."""
        is_used = self.is_subscribed or self.assigned
        if self.is_closing or self.fork_check.is_forked or not is_used:
            return
        warnings.warn(f"unclosed consumer {self}", ResourceWarning, stacklevel=3)
        if self.membership is not None and self.membership.driver.is_started:
            LOGGER.warning(
                "the consumer %s was not closed: it commits no more, and its partitions are not "
                "assigned to other members before session.timeout.ms is over",
                self,
            )
            self.membership.driver.abandon()

    def __str__(self) -> str:
        member = self.settings.member
        group = "without a group" if member is None else f"of group {member.group!r}"
        if self.is_closed:
            return f"{group}, closed"
        return f"{group}, {len(self.assignment)} partitions"

    async def _leave_group(self, membership: GroupMembership, timeout: float) -> None:
        commits = self._commits_assigned and bool(self.consumed_positions())
        if not (membership.driver.is_started or commits):
            return
        until = membership.driver.now() + int(timeout * 1000)
        if commits:
            membership.begin_commit(None, until)
        membership.driver.handle_event(CloseRequested(until))
        error: Exception | None = None
        # a little longer than the member itself may take
        deadline = self.client.deadline_after(timeout + 1)
        loop = asyncio.get_running_loop()
        while not membership.has_left and loop.time() < deadline:
            try:
                await membership.handle_commands()
            except Exception as raised:  # noqa: BLE001 (raised when all is closed)
                error = error or raised
            else:
                if not membership.has_left:
                    await self.waker.wait(deadline, self._has_commands)
        if error is not None:
            raise error


@dataclass(eq=False, repr=False)
class WatchedTopics:
    client: ClusterClient
    on_update: Callable[[ClusterMetadata], None]
    wake: Callable[[], None]
    wanted: tuple[str, ...] | None = ()
    is_due: bool = False
    task: asyncio.Task[None] | None = None
    problem: RotaError | None = None
    reported_missing: set[str] = field(default_factory=set)  # missing topics that were logged

    def __post_init__(self) -> None:
        self.client.metadata_listeners.append(self._updated)

    def set_topics(self, topics: tuple[str, ...] | None) -> None:
        """Sets the topics; None: all."""
        self.wanted = topics
        self.is_due = True

    def start_refresh(self) -> None:
        """Requests metadata of new topics; must be called in the loop."""
        if self.is_due and (self.task is None or self.task.done()):
            self.task = asyncio.get_running_loop().create_task(self._refresh())

    def raise_problem(self) -> None:
        """Raises the current problem (no broker, no permission, a wrong topic name), once."""
        problem, self.problem = self.problem, None
        if problem is not None:
            raise problem

    async def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task

    async def _refresh(self) -> None:
        config = self.client.config
        while self.is_due:
            self.is_due = False
            deadline = self.client.deadline_after()
            self.client.watch_topics(self.wanted)
            create = config.create_topics and self.wanted is not None
            try:
                await self.client.refresh(self.wanted, deadline=deadline, create=create)
            except errors.Unreachable as error:
                self.is_due = True
                if not self.client.metadata.brokers:
                    self._report_problem(error)
                    return
                LOGGER.warning("no metadata for now: %s", error)
            except RotaError as error:
                self.is_due = True
                self._report_problem(error)
                return

    def _updated(self, metadata: ClusterMetadata) -> None:
        topics: dict[int, list[str]] = {}
        for name in self.wanted or ():
            if name in metadata.topics:
                topics.setdefault(metadata.topics[name].error, []).append(name)
        missing = topics.get(Code.UNKNOWN_TOPIC_OR_PARTITION, [])
        if new := [name for name in missing if name not in self.reported_missing]:
            shown = list_first_names(new)
            LOGGER.warning("no such topic: %s; it is read as soon as it exists", shown)
        self.reported_missing = set(missing)
        if names := topics.get(Code.INVALID_TOPIC_EXCEPTION):
            text = f"no topic can have the name {list_first_names(names)}"
            self._report_problem(errors.UnknownTopic(Code.INVALID_TOPIC_EXCEPTION, text))
        if names := topics.get(Code.TOPIC_AUTHORIZATION_FAILED):
            text = f"no permission to read topic {list_first_names(names)}"
            self._report_problem(errors.AuthorizationFailed(Code.TOPIC_AUTHORIZATION_FAILED, text))
        self.on_update(metadata)

    def _report_problem(self, problem: RotaError) -> None:
        self.problem = problem
        self.wake()


class Waker:
    """Wakes the application where it waits; a wake-up while it does not wait is forgotten."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def wait(self, until: float, is_due: Callable[[], bool]) -> None:
        """Waits for a wake-up or a time of the loop's clock; returns at once if ``is_due()``."""
        loop = self._loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.add(future)  # before is_due(), or a wake-up in between would be missed
        timer = None
        try:
            if not is_due():
                timer = loop.call_at(until, _wake_waiter, future)
                await future
        finally:
            self._waiting.discard(future)
            if timer is not None:
                timer.cancel()

    def wake(self) -> None:
        """May be called from any thread and from signal handlers."""
        loop = self._loop
        if self._waiting and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self.wake_in_loop)

    def wake_in_loop(self) -> None:
        """Wakes at once; for the loop's own thread."""
        for future in self._waiting:
            _wake_waiter(future)


def _wake_waiter(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
