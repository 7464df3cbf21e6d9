"""``rota.AsyncConsumer``, and the methods that ``rota.Consumer`` shares because they never wait."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Self

from rota.client.config import require_mapping, require_one_mapping
from rota.client.fetch import Batch
from rota.client.offsets import EARLIEST, LATEST, ListedOffset, list_offsets
from rota.consumer.core import POLL_TIMEOUT, ConsumerCore
from rota.consumer.membership import NO_LISTENER, call_in_loop
from rota.consumer.records import (
    CommitCallback,
    ConsumerRecord,
    GroupMetadata,
    OffsetsArgument,
    PartitionLike,
    RebalanceListener,
    Records,
    TimesArgument,
    check_callback,
    check_listener,
    parse_offsets,
    parse_partitions,
    parse_times,
    parse_topics,
)
from rota.engine.member.events import RejoinRequested, Subscribed
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import InputError

CLOSE_TIMEOUT = 30.0  # seconds, as in Kafka


class BaseConsumer:
    _core: ConsumerCore

    def subscribe(
        self,
        topics: Iterable[str] | str = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribes to topics, as a member of the group.

        Replaces the previous subscription and its listener. The next polls join the group; until
        then :attr:`assignment` does not change. A topic that does not exist is logged, and read
        once it exists.

        :param topics: one name, or a list of names
        :param pattern: instead of names, a regular expression that matches whole names; new topics
            are found when the metadata is refreshed (``metadata.max.age.ms``)
        :param listener: called inside polls when partitions are assigned, revoked or lost
        :raises InputError: neither topics nor a pattern are given, or both; there is no
            ``group.id``; partitions are assigned with :meth:`assign`
        """
        membership = self._core.require_group("subscribe")
        names = parse_topics(topics)
        check_listener(listener)
        if bool(names) == (pattern is not None):
            hint = ", not both" if names else "; unsubscribe() ends both"
            raise InputError(f"subscribe: give topics or a pattern{hint}")
        if self._core.assigned:
            raise InputError("subscribe: partitions are assigned by hand; unsubscribe() first")
        text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
        membership.driver.handle_event(Subscribed(names, text))
        membership.listener = NO_LISTENER if listener is None else listener
        self._core.is_subscribed = True

    def assign(self, partitions: Iterable[PartitionLike]) -> None:
        """Assigns partitions by hand, without the group; replaces the previous assignment.

        Reading starts at the committed offset if there is a ``group.id``, else as
        ``auto.offset.reset`` says. Partitions that stay assigned keep their position.

        :raises InputError: the consumer is subscribed to topics
        """
        self._core.check_open()
        if self._core.is_subscribed:
            raise InputError("assign: topics are subscribed to; unsubscribe() first")
        self._core.assign(frozenset(parse_partitions("assign", partitions)))

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the group or :meth:`assign` has assigned to this consumer."""
        return self._core.assignment

    @property
    def subscription(self) -> frozenset[str]:
        """The subscribed topics; with a pattern, the topics that match it."""
        if not self._core.is_subscribed or self._core.membership is None:
            return frozenset()
        return frozenset(self._core.membership.driver.machine.topics)

    def commit_async(
        self, offsets: OffsetsArgument | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commits offsets without waiting for the result and without retries.

        Callbacks of completed commits run in order, in the next call of poll, commit or close. A
        failed commit without a callback is logged.

        :param offsets: as in :meth:`commit`
        :param callback: called as ``callback(offsets, error)``; ``error`` is None if the offsets
            are stored
        """
        membership = self._core.require_group("commit_async")
        check_callback(callback)
        membership.commit_async(parse_offsets(offsets), callback)
        membership.handle_commit_commands_now()

    def seek(self, partition: PartitionLike, offset: int | OffsetAndMetadata) -> None:
        """Sets the position; the next poll reads from there, and buffered records are dropped.

        :raises InputError: the partition is not assigned, or the offset is negative
        """
        [at] = self._core.require_assigned("seek", [partition])
        wanted = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        with self._core.member_lock():
            self._core.polled.drop_partitions([at])
            self._core.fetcher.seek(at, wanted)

    def seek_to_beginning(self, *partitions: PartitionLike) -> None:
        """Moves to the first record of these partitions; of all assigned partitions by default."""
        self._seek_all("seek_to_beginning", partitions, EARLIEST)

    def seek_to_end(self, *partitions: PartitionLike) -> None:
        """Moves behind the last record of these partitions; of all assigned ones by default."""
        self._seek_all("seek_to_end", partitions, LATEST)

    def _seek_all(self, name: str, partitions: tuple[PartitionLike, ...], timestamp: int) -> None:
        wanted = self._core.require_assigned(name, partitions or self.assignment)
        with self._core.member_lock():
            self._core.polled.drop_partitions(wanted)
            self._core.fetcher.seek_to(wanted, timestamp)

    def pause(self, *partitions: PartitionLike) -> None:
        """Stops returning records of these partitions until they are resumed.

        The partitions stay assigned, so keep polling. A rebalance that revokes a partition also
        ends its pause.
        """
        self._core.pause(self._core.require_assigned("pause", partitions))

    def resume(self, *partitions: PartitionLike) -> None:
        """Returns records of these partitions again."""
        self._core.fetcher.resume(self._core.require_assigned("resume", partitions))

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return frozenset(self._core.fetcher.paused)

    def lag(self, partition: PartitionLike) -> int | None:
        """Returns the number of offsets between the position and the end of the log.

        Sends no request: the end is known from the last fetch. Returns None before the first fetch.
        """
        [at] = self._core.require_assigned("lag", [partition])
        fetched, known = self._core.fetcher.position(at), self._core.fetcher.lag(at)
        if fetched is None or known is None:
            return None
        return known + fetched - self._core.consumed_positions(at)[at].offset

    @property
    def group_metadata(self) -> GroupMetadata:
        """The member's group, generation and ids; the generation is -1 outside of the group."""
        driver = self._core.require_group("group_metadata").driver
        member = self._core.settings.member
        assert member is not None
        with driver.lock:
            machine = driver.machine
            generation, member_id = machine.generation, machine.member_id
        return GroupMetadata(member.group, generation, member_id, member.group_instance_id)

    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Makes the next poll rejoin the group although nothing has changed.

        Useful for an assignor whose result depends on more than the members' topics.

        :param reason: appears in the broker's log
        """
        self._core.require_group("enforce_rebalance").driver.handle_event(RejoinRequested(reason))

    def wakeup(self) -> None:
        """Interrupts the call that waits now, or else the next call that would wait.

        That call raises :class:`rota.errors.Interrupted`. ``wakeup`` may be called from any thread
        and from signal handlers.
        """
        self._core.interrupt()

    def __repr__(self) -> str:
        return f"<rota.{type(self).__name__} {self._core}>"


class AsyncConsumer(BaseConsumer):
    """A consumer for asyncio.

    ::

        async with rota.AsyncConsumer({"bootstrap.servers": "...", "group.id": "g"}) as consumer:
            consumer.subscribe(["orders"])
            async for record in consumer:
                ...

    It has the methods of :class:`rota.Consumer`; those that wait are coroutines. Records are
    fetched and decoded in the event loop; threads receive large responses that follow each other.
    Heartbeats have a thread of their own, so a blocked loop keeps the membership for
    ``max.poll.interval.ms``. Call all methods from the event loop; only :meth:`wakeup` may be
    called from any thread.

    Partitions are :class:`rota.TopicPartition` or pairs like ``("orders", 0)``. Timeouts are in
    seconds; None means ``default.api.timeout.ms``. All errors are in :mod:`rota.errors`; the
    consumer can be used again after every error except ``Fenced``.
    """

    @require_one_mapping
    def __init__(self, config: Mapping[str, object]) -> None:
        """Reads the settings; opens nothing yet.

        :param config: settings under Kafka's names, such as ``{"bootstrap.servers": "host:9092"}``;
            see docs/consumer-settings.md. :func:`rota.load_properties` reads them from a file
        :raises InputError: a setting is missing, unknown or wrong
        """
        self._core = ConsumerCore(require_mapping(config), call_in_loop)
        self._polled = self._core.polled

    @classmethod
    def _from_core(cls, core: ConsumerCore) -> Self:
        consumer = cls.__new__(cls)
        consumer._core, consumer._polled = core, core.polled
        return consumer

    async def unsubscribe(self) -> None:
        """Ends the subscription or the manual assignment, and leaves the group.

        Commits first if ``enable.auto.commit`` is set; the listener is called for the revoked
        partitions.
        """
        self._core.check_open()
        if self._core.assigned:
            self.assign(())
        if self._core.is_subscribed:
            await self._core.unsubscribe()

    async def poll(self, timeout: float = POLL_TIMEOUT, max_records: int | None = None) -> Records:
        """Returns records as soon as there are any; returns none when the timeout is over.

        Listeners, callbacks and rebalances run inside this call, so poll at least every
        ``max.poll.interval.ms``. The next commit without offsets covers the returned records.

        :param timeout: in seconds; 0 returns only records that are already buffered
        :param max_records: the largest number of records to return, instead of ``max.poll.records``
        :raises InputError: nothing is subscribed or assigned; another poll is running
        :raises RecordError: the next record cannot be decoded; seek behind it, or the next poll
            raises the error again
        :raises NoOffset: there is no valid position, and ``auto.offset.reset`` is ``none``
        :raises Unreachable: no broker was reached for ``default.api.timeout.ms``
        :raises GroupError: the group refuses this member: ``Fenced``, ``InconsistentProtocol``...
        :raises Refused: no permission, a wrong password or an invalid topic name
        :raises Interrupted: :meth:`wakeup` was called
        """
        self._core.check_poll(timeout, max_records)
        await self._core.fill_records(timeout, max_records)
        return self._core.take_records(max_records)

    async def poll_batches(self, timeout: float = POLL_TIMEOUT) -> list[Batch]:
        """Returns fetched records as columns, one batch for each partition of a Fetch response.

        ``max.poll.records``, interceptors and deserializers do not apply. Otherwise as
        :meth:`poll`.
        """
        self._core.check_poll(timeout)
        await self._core.fill_with_batches(timeout)
        return self._core.polled.take_batches()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Iterates over records until the consumer is closed.

        A commit without offsets, also an automatic one, covers the records up to the current one,
        not the rest of the poll it came with. After a ``break`` the next loop continues with the
        next record. Raises the errors of :meth:`poll`.
        """
        return self

    async def __anext__(self) -> ConsumerRecord:
        # Not a generator: yielding a tuple from an async generator costs Python an exception.
        for record in self._polled.remaining:
            return record
        core = self._core
        while not core.is_closing:
            await core.fill_records(POLL_TIMEOUT)
            for record in self._polled.remaining:
                return record
        raise StopAsyncIteration

    async def commit(
        self, offsets: OffsetsArgument | None = None, timeout: float | None = None
    ) -> None:
        """Commits offsets and waits for the result; by default the offsets of all records that the
        application has received.

        Retries until the timeout is over. Callbacks of earlier asynchronous commits have run when
        it returns.

        :param offsets: the next offsets to read, such as ``{("orders", 0): 18}`` after the record
            at offset 17; numbers, or :class:`rota.OffsetAndMetadata`
        :raises CommitFailed: this member is no longer in the group, or has not joined it yet; the
            message names the missed deadline and the setting to change
        :raises RebalanceInProgress: a rebalance is running: poll, then commit again
        :raises TimedOut: the offsets could not be stored in time; the message names the last reason
        :raises GroupError: the coordinator refused the commit
        :raises Exception: the error that the callback of an earlier commit raised
        """
        self._core.require_group("commit")
        await self._core.commit(parse_offsets(offsets), timeout)

    async def committed(
        self, partitions: Iterable[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offsets of partitions; None where nothing is committed.

        :raises TimedOut: the coordinator did not respond in time
        :raises AuthorizationFailed: no permission for the group
        """
        self._core.require_group("committed")
        wanted = parse_partitions("committed", partitions)
        return await self._core.run_interruptibly(self._core.fetch_committed(wanted, timeout))

    async def position(self, partition: PartitionLike, timeout: float | None = None) -> int:
        """Returns the offset of the next record that the application receives.

        :raises InputError: the partition is not assigned
        :raises TimedOut: the position could not be found in time
        """
        [at] = self._core.require_assigned("position", [partition])
        deadline = self._core.client.deadline_after(timeout)
        while at not in (found := self._core.consumed_positions(at)):
            self._core.start_requests()
            await self._core.fetcher.wait_for_positions([at], deadline)
        return found[at].offset

    async def beginning_offsets(
        self, partitions: Iterable[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition."""
        return await self._list_ends("beginning_offsets", partitions, EARLIEST, timeout)

    async def end_offsets(
        self, partitions: Iterable[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the offset behind each last record; ``read_committed``: last stable offset."""
        return await self._list_ends("end_offsets", partitions, LATEST, timeout)

    async def offsets_for_times(
        self, times: TimesArgument, timeout: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """Returns offset and timestamp of the first record at or after a time, for each partition;
        None if there is no such record.

        :param times: milliseconds since 1970, such as ``{("orders", 0): 1700000000000}``
        :raises InputError: a time is not a whole number from 0 up
        :raises UnknownTopic: a partition does not exist
        :raises TimedOut: a partition's leader did not respond in time
        """
        return await self._list_offsets(parse_times(times), timeout)

    async def partitions_for_topic(
        self, topic: str, timeout: float | None = None
    ) -> tuple[int, ...]:
        """Returns the partition numbers of a topic; none if the topic does not exist."""
        return tuple(range((await self._count_partitions((topic,), timeout)).get(topic, 0)))

    async def topics(self, timeout: float | None = None) -> dict[str, int]:
        """Returns the number of partitions of all visible topics, including internal topics."""
        return await self._count_partitions(None, timeout)

    async def _count_partitions(
        self, topics: tuple[str, ...] | None, timeout: float | None
    ) -> dict[str, int]:
        self._core.check_open()
        deadline = self._core.client.deadline_after(timeout)
        refresh = self._core.client.refresh(topics, deadline=deadline)
        found = await self._core.run_interruptibly(refresh)
        return {name: len(topic.partitions) for name, topic in sorted(found.topics.items())}

    async def _list_ends(
        self, name: str, partitions: Iterable[PartitionLike], which: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(parse_partitions(name, partitions), which)
        found = await self._list_offsets(wanted, timeout)
        return {at: listed.offset for at, listed in found.items() if listed is not None}

    async def _list_offsets(
        self, wanted: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, ListedOffset | None]:
        self._core.check_open()
        isolation = self._core.settings.fetch.isolation
        deadline = self._core.client.deadline_after(timeout)
        request = list_offsets(self._core.client, wanted, isolation, deadline=deadline)
        return await self._core.run_interruptibly(request)

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Commits if ``enable.auto.commit`` is set, leaves the group and closes all connections.

        The listener is called for the revoked partitions. A static member does not leave: the
        group keeps its partitions until the session times out. A second call does nothing.

        :param timeout: seconds for the commit and for leaving; everything is closed even if the
            time is over
        :raises Exception: the error that a listener or callback raised, after everything is closed
        """
        await self._core.close(timeout)

    def __del__(self) -> None:
        core: ConsumerCore | None = getattr(self, "_core", None)
        if core is not None:
            core.abandon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
