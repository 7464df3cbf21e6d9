"""``rota.Consumer``: the consumer for programs without asyncio, and the event loop it runs
on.

The loop runs in the caller's thread while a call waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import re
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from itertools import chain
from types import TracebackType
from typing import Any, Never, Self, TypeVar

from rota.client.config import require_mapping
from rota.client.fetch import Batch
from rota.client.offsets import ListedOffset
from rota.consumer.arguments import OffsetsArgument, PartitionLike, TimesArgument
from rota.consumer.async_consumer import CLOSE_TIMEOUT, AsyncConsumer, GroupMetadata
from rota.consumer.core import POLL_TIMEOUT
from rota.consumer.member_driver import ForkCheck
from rota.consumer.records import CommitCallback, ConsumerRecord, RebalanceListener, Records
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import InputError


class Consumer:
    """A consumer whose calls wait.

    ::

        with rota.Consumer({"bootstrap.servers": "...", "group.id": "g"}) as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
                ...

    It has the methods of :class:`rota.AsyncConsumer` and an event loop of its own, which runs in
    the calling thread while a call waits; only heartbeats, and the receiving of large responses,
    have other threads. One thread at a time may use it; :meth:`wakeup` may be called from any.

    Partitions are :class:`rota.TopicPartition` or pairs like ``("orders", 0)``. Timeouts are in
    seconds; None is ``default.api.timeout.ms``. Errors are in :mod:`rota.errors`; after one the
    consumer can be used again, but for ``Fenced``.
    """

    def __init__(self, config: Mapping[str, object] | None = None, **keywords: Never) -> None:
        """Reads the settings; nothing is opened yet.

        :param config: Kafka's settings by their names; see docs/consumer-settings.md.
            :func:`rota.load_properties` has those of a file
        :param keywords: there are none; who tries is told how settings are given
        :raises InputError: a setting is missing, unknown or wrong; names it
        """
        settings = require_mapping(config, keywords)
        self._loop = PrivateEventLoop()
        try:
            self._consumer = AsyncConsumer(settings, call=self._loop.call_outside)
        except BaseException:
            self._loop.close()
            raise
        self._core = self._consumer.core

    def subscribe(
        self,
        topics: Iterable[str] | str = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribes to topics, or to all topics whose whole name matches a pattern, as a member of
        the group.

        Replaces the previous subscription and its listener. The next polls join the group; until
        then
        :attr:`assignment` does not change. A missing topic is logged, and read once it exists.

        :param pattern: a Python regular expression; new topics are found when the metadata is
            refreshed (``metadata.max.age.ms``)
        :param listener: called inside polls when partitions are assigned, revoked or lost
        :raises InputError: neither topics nor a pattern are given, or both; there is no
            ``group.id``; partitions are assigned by hand
        """
        self._consumer.subscribe(topics, pattern=pattern, listener=listener)

    def assign(self, partitions: Iterable[PartitionLike]) -> None:
        """Assigns partitions by hand, without the group's coordination; replaces those assigned
        before.

        Reading starts at the committed offset if there is a ``group.id``, else where
        ``auto.offset.reset`` says. Partitions that stay assigned keep their position.

        :raises InputError: the consumer is subscribed to topics
        """
        self._consumer.assign(partitions)

    def unsubscribe(self) -> None:
        """Ends the subscription or the manual assignment, and leaves the group.

        Commits first if ``enable.auto.commit`` is set; the listener is called for the revoked
        partitions.
        """
        self._loop.run(self._consumer.unsubscribe())

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now: assigned by the group, or by hand."""
        return self._consumer.assignment

    @property
    def subscription(self) -> frozenset[str]:
        """The subscribed topics; with a pattern, the topics that match it."""
        return self._consumer.subscription

    def poll(self, timeout: float = POLL_TIMEOUT, max_records: int | None = None) -> Records:
        """Returns records as soon as there are some; returns none when the timeout is over.

        Listeners, callbacks and rebalances run inside this call, so poll at least every
        ``max.poll.interval.ms``. Returned records count as handed out: the next commit without
        offsets covers them.

        :param timeout: in seconds; 0 returns only records that are already buffered
        :param max_records: the largest number of records to return, instead of ``max.poll.records``
        :raises InputError: nothing is subscribed or assigned; another poll is running
        :raises RecordError: the next record cannot be decoded; seek behind it, or it is raised
            again
        :raises NoOffset: there is no valid position, and ``auto.offset.reset`` is ``none``
        :raises Unreachable: no broker was reached for ``default.api.timeout.ms``
        :raises GroupError: the group refuses this member: ``Fenced``, ``InconsistentProtocol``...
        :raises Refused: no permission, a wrong password or an invalid topic name
        :raises Interrupted: :meth:`wakeup` was called
        """
        self._core.check_poll(timeout, max_records)
        if not self._core.fill_records_now(max_records):
            self._loop.run(self._core.fill_records(timeout, max_records))
        return self._core.take_records(max_records)

    def poll_batches(self, timeout: float = POLL_TIMEOUT) -> list[Batch]:
        """Returns fetched records as columns, a batch for each partition's response.

        ``max.poll.records``, interceptors and deserializers do not apply. A batch has NumPy arrays
        of offsets and timestamps, lists of keys, values and headers, and ``to_arrow()``. Otherwise
        it works like :meth:`poll`.
        """
        self._core.check_poll(timeout)
        if not self._core.fill_with_batches_now():
            self._loop.run(self._core.fill_with_batches(timeout))
        return self._core.polled.take_batches()

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Record by record, until the consumer is closed.

        A commit without offsets covers what was handed out, the current record included, and not
        the rest of the poll it came with; the same holds for automatic commits. A loop that is left
        may be entered again: it goes on with the next record. Raises what :meth:`poll` raises.
        """
        return chain.from_iterable(self._fillings())

    def __next__(self) -> ConsumerRecord:
        """The next record of such a loop."""
        return next(iter(self))

    def _fillings(self) -> Iterator[Iterator[ConsumerRecord]]:
        """Yields the remaining records, then those of each further poll."""
        core = self._core
        while not core.is_closing:
            yield core.polled.remaining
            if not (core.is_closing or core.fill_records_now()):
                self._loop.run(core.fill_records(POLL_TIMEOUT))

    def commit(self, offsets: OffsetsArgument | None = None, timeout: float | None = None) -> None:
        """Commits offsets and waits for the result; without offsets, those of all records handed
        out.

        Retries until the timeout is over. Callbacks of earlier asynchronous commits have run when
        it returns.

        :param offsets: the next offsets to read, such as ``{("orders", 0): 18}``: one behind the
            last record that was processed; numbers, or :class:`rota.OffsetAndMetadata` with
            metadata
        :raises CommitFailed: the group has gone on without this member, or it has not joined; the
            message says which deadline was missed and what to set
        :raises RebalanceInProgress: poll first
        :raises TimedOut: the offsets could not be stored in time; names the last reason
        :raises GroupError: the commit was refused
        :raises Exception: the error that the callback of an earlier commit raised
        """
        self._loop.run(self._consumer.commit(offsets, timeout))

    def commit_async(
        self, offsets: OffsetsArgument | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commits offsets without waiting for the result and without retries.

        Callbacks of completed commits run in order, in the next call of poll, commit or close. A
        failed commit without a callback is logged.

        :param offsets: as in :meth:`commit`
        :param callback: called as ``callback(offsets, error)`` with the offsets by partition and
            None, or the reason why they were not stored
        """
        self._consumer.commit_async(offsets, callback)

    def committed(
        self, partitions: Iterable[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offsets of partitions; None where nothing is committed.

        :raises TimedOut: the coordinator did not answer in time
        :raises AuthorizationFailed: no permission for the group
        """
        return self._loop.run(self._consumer.committed(partitions, timeout))

    def position(self, partition: PartitionLike, timeout: float | None = None) -> int:
        """Returns the offset of the next record to be handed out, also in the middle of a loop.

        :raises InputError: the partition is not assigned
        :raises TimedOut: the position could not be found in time
        """
        return self._loop.run(self._consumer.position(partition, timeout))

    def seek(self, partition: PartitionLike, offset: int | OffsetAndMetadata) -> None:
        """Sets the position; the next poll reads from there, and buffered records are dropped.

        :raises InputError: the partition is not assigned, or the offset is negative
        """
        self._consumer.seek(partition, offset)

    def seek_to_beginning(self, *partitions: PartitionLike) -> None:
        """Moves to the first record of these partitions, or of all that are assigned."""
        self._consumer.seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: PartitionLike) -> None:
        """Moves behind the last record of these partitions, or of all that are assigned."""
        self._consumer.seek_to_end(*partitions)

    def pause(self, *partitions: PartitionLike) -> None:
        """Stops handing out records of these partitions until they are resumed; they stay assigned.

        A rebalance that takes the partition away also ends the pause. Keep polling meanwhile.
        """
        self._consumer.pause(*partitions)

    def resume(self, *partitions: PartitionLike) -> None:
        """Hands out records of these partitions again."""
        self._consumer.resume(*partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return self._consumer.paused

    def lag(self, partition: PartitionLike) -> int | None:
        """Returns the number of offsets between the position and the end of the log.

        Sends no request: the end is that of the last fetch. Returns None before the first.
        """
        return self._consumer.lag(partition)

    def beginning_offsets(
        self, partitions: Iterable[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition."""
        return self._loop.run(self._consumer.beginning_offsets(partitions, timeout))

    def end_offsets(
        self, partitions: Iterable[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the offset behind the last record of each partition.

        With ``read_committed`` that is the last stable offset.
        """
        return self._loop.run(self._consumer.end_offsets(partitions, timeout))

    def offsets_for_times(
        self, times: TimesArgument, timeout: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """Returns the first record at or after a time, for each partition; None if there is none.

        The result has ``offset``, ``timestamp`` and ``leader_epoch``.

        :param times: milliseconds since 1970, such as ``{("orders", 0): 1700000000000}``
        :raises InputError: a time is not a whole number from 0 up
        :raises UnknownTopic: a partition does not exist
        :raises TimedOut: not all leaders have answered in time
        """
        return self._loop.run(self._consumer.offsets_for_times(times, timeout))

    def partitions_for_topic(self, topic: str, timeout: float | None = None) -> tuple[int, ...]:
        """Returns the partition numbers of a topic; none if the topic does not exist."""
        return self._loop.run(self._consumer.partitions_for_topic(topic, timeout))

    def topics(self, timeout: float | None = None) -> dict[str, int]:
        """Returns all visible topics, internal ones too, with their number of partitions."""
        return self._loop.run(self._consumer.topics(timeout))

    @property
    def group_metadata(self) -> GroupMetadata:
        """The member's group, generation and ids; the generation is -1 outside of one."""
        return self._consumer.group_metadata

    def enforce_rebalance(self, reason: str = "the application asks for it") -> None:
        """Makes the next poll rejoin the group although nothing has changed.

        For an assignor whose result depends on more than the members' topics.

        :param reason: appears in the broker's log
        """
        self._consumer.enforce_rebalance(reason)

    def wakeup(self) -> None:
        """Interrupts the call that waits now, or the next one that would wait.

        That call raises :class:`rota.errors.Interrupted`. May be called from any thread and from
        signal handlers.
        """
        self._consumer.wakeup()

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Commits if ``enable.auto.commit`` is set, leaves the group and closes all connections.

        The listener is called for the revoked partitions. A static member does not leave: its
        partitions wait for it until the session times out. A second call does nothing.

        :param timeout: seconds for the commit and for leaving; then everything is closed all the
            same
        :raises Exception: the error that a listener or callback raised, after everything is closed
        """
        if not (self._core.is_closing or self._core.fork_check.is_forked):
            try:
                self._loop.run(self._consumer.close(timeout))
            finally:
                if self._core.is_closed:
                    self._loop.close()

    def __repr__(self) -> str:
        return f"<rota.Consumer {self._core}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


T = TypeVar("T")


class PrivateEventLoop:
    """An event loop that runs in the caller's thread while a call waits.

    What is the application's own (listeners, callbacks) is called between two runs of the loop,
    so that it may use the consumer again: a call inside a call runs the loop, too.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._fork_check = ForkCheck()
        self._outside_calls: deque[tuple[Callable[[], object], asyncio.Future[None]]] = deque()
        self._owner = threading.RLock()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """What a call gives. If it is interrupted (Ctrl-C), it is ended before that is told."""
        with contextlib.ExitStack() as stack:
            stack.callback(call.close)
            self._check()
            if not self._owner.acquire(blocking=False):
                raise InputError("this consumer is in use by another thread")
            stack.callback(self._owner.release)
            task = self._loop.create_task(call)
            try:
                self._run_until_done(task)
            except BaseException:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    self._run_until_done(task)
                raise
            return task.result()

    async def call_outside(self, function: Callable[[], object]) -> None:
        """For a call that the loop runs: a function is called while the loop stands still."""
        future = self._loop.create_future()
        self._outside_calls.append((function, future))
        self._loop.stop()
        await future

    def close(self) -> None:
        """Runs no more."""
        if not self._loop.is_closed():
            self._loop.run_until_complete(asyncio.sleep(0))  # for what closed connections leave
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _check(self) -> None:
        self._fork_check.check()
        if self._loop.is_closed():
            raise InputError("this consumer is closed")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise InputError("inside asyncio use rota.AsyncConsumer: this one would block the loop")

    def _run_until_done(self, task: asyncio.Task[T]) -> None:
        stop = self._stop
        task.add_done_callback(stop)
        try:
            while not task.done():
                self._loop.run_forever()
                while self._outside_calls:
                    self._run_outside_call(*self._outside_calls.popleft())
        finally:
            task.remove_done_callback(stop)

    def _stop(self, _: object) -> None:
        self._loop.stop()

    def _run_outside_call(
        self, function: Callable[[], object], future: asyncio.Future[None]
    ) -> None:
        if future.done():
            return  # who asked for it was cancelled
        try:
            _refuse_coroutine(function())
        except Exception as error:  # noqa: BLE001 (an application's code may raise anything)
            future.set_exception(error)
        except BaseException:
            future.cancel()
            raise
        else:
            if not future.done():  # the function may have run the loop, and a Ctrl-C ended it there
                future.set_result(None)


def _refuse_coroutine(answer: object) -> None:
    if inspect.iscoroutine(answer):
        answer.close()
        raise InputError(f"{answer.__qualname__} is async: only rota.AsyncConsumer can await it")
