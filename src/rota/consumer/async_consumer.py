"""``rota.AsyncConsumer``: the consumer for asyncio. It reads as a member of a group, or the
partitions it is assigned by hand.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import NamedTuple, Never, Self

from rota.client.config import require_mapping
from rota.client.fetch import Batch
from rota.client.offsets import EARLIEST, LATEST, ListedOffset, list_offsets
from rota.consumer import arguments
from rota.consumer.arguments import OffsetsArgument, PartitionLike, TimesArgument, parse_partitions
from rota.consumer.core import POLL_TIMEOUT, ConsumerCore
from rota.consumer.membership import NO_LISTENER, CallApplication, call_in_loop
from rota.consumer.records import CommitCallback, ConsumerRecord, RebalanceListener, Records
from rota.engine.member.events import RejoinRequested, Subscribed
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import InputError

#: Seconds, as in Kafka.
CLOSE_TIMEOUT = 30.0


class GroupMetadata(NamedTuple):
    """The identity of a member in its group."""

    group: str
    #: -1: of none.
    generation: int
    member_id: str
    group_instance_id: str | None


class AsyncConsumer:
    """A consumer for asyncio.

    ::

        async with rota.AsyncConsumer({"bootstrap.servers": "...", "group.id": "g"}) as consumer:
            consumer.subscribe(["orders"])
            async for record in consumer:
                ...

    Records are fetched and decoded in the event loop; where large answers follow each other,
    threads receive them. Heartbeats have a thread of their own, so code that blocks the loop keeps
    the membership for ``max.poll.interval.ms``. All methods belong to the loop, but :meth:`wakeup`,
    which may be called from any thread.

    Partitions are :class:`rota.TopicPartition` or pairs like ``("orders", 0)``. Timeouts are in
    seconds; None is ``default.api.timeout.ms``. Errors are in :mod:`rota.errors`; after one the
    consumer can be used again, but for ``Fenced``.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        call: CallApplication | None = None,
        **keywords: Never,
    ) -> None:
        """Reads the settings; nothing is opened yet.

        :param config: Kafka's settings by their names; see docs/consumer-settings.md.
            :func:`rota.load_properties` has those of a file
        :param call: how listeners and callbacks are called, for those who have another loop
        :param keywords: there are none; who tries is told how settings are given
        :raises InputError: a setting is missing, unknown or wrong; names it
        """
        self.core = ConsumerCore(require_mapping(config, keywords), call or call_in_loop)
        self._flow = self.core.polled

    # What to read

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
        self.core.check_open()
        membership = self.core.require_group("subscribe")
        names = arguments.parse_topics(topics)
        arguments.check_listener(listener)
        if bool(names) == (pattern is not None):
            raise InputError("subscribe: give topics or a pattern; unsubscribe() ends both")
        if self.core.assigned:
            raise InputError("subscribe: partitions are assigned by hand; unsubscribe() first")
        text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
        membership.driver.handle_event(Subscribed(names, text))
        membership.listener = NO_LISTENER if listener is None else listener
        self.core.is_subscribed = True

    def assign(self, partitions: Iterable[PartitionLike]) -> None:
        """Assigns partitions by hand, without the group's coordination; replaces those assigned
        before.

        Reading starts at the committed offset if there is a ``group.id``, else where
        ``auto.offset.reset`` says. Partitions that stay assigned keep their position.

        :raises InputError: the consumer is subscribed to topics
        """
        self.core.check_open()
        if self.core.is_subscribed:
            raise InputError("assign: topics are subscribed to; unsubscribe() first")
        self.core.assign(frozenset(parse_partitions("assign", partitions)))

    async def unsubscribe(self) -> None:
        """Ends the subscription or the manual assignment, and leaves the group.

        Commits first if ``enable.auto.commit`` is set; the listener is called for the revoked
        partitions.
        """
        self.core.check_open()
        if self.core.assigned:
            self.assign(())
        if self.core.is_subscribed:
            await self.core.unsubscribe()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now: assigned by the group, or by hand."""
        return self.core.assignment

    @property
    def subscription(self) -> frozenset[str]:
        """The subscribed topics; with a pattern, the topics that match it."""
        if not self.core.is_subscribed or self.core.membership is None:
            return frozenset()
        return frozenset(self.core.membership.driver.machine.topics)

    # Reading

    async def poll(self, timeout: float = POLL_TIMEOUT, max_records: int | None = None) -> Records:
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
        self.core.check_poll(timeout, max_records)
        await self.core.fill_records(timeout, max_records)
        return self.core.take_records(max_records)

    async def poll_batches(self, timeout: float = POLL_TIMEOUT) -> list[Batch]:
        """Returns fetched records as columns, a batch for each partition's response.

        ``max.poll.records``, interceptors and deserializers do not apply. A batch has NumPy arrays
        of offsets and timestamps, lists of keys, values and headers, and ``to_arrow()``. Otherwise
        it works like :meth:`poll`.
        """
        self.core.check_poll(timeout)
        await self.core.fill_with_batches(timeout)
        return self.core.polled.take_batches()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Record by record, until the consumer is closed.

        A commit without offsets covers what was handed out, the current record included, and not
        the rest of the poll it came with; the same holds for automatic commits. A loop that is left
        may be entered again: it goes on with the next record. Raises what :meth:`poll` raises.
        """
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record of such a loop. A generator would take longer for each: what it yields is
        an exception's value on its way, and one that is a tuple costs Python an exception.
        """
        for record in self._flow.remaining:
            return record
        core = self.core
        while not core.is_closing:
            await core.fill_records(POLL_TIMEOUT)
            for record in self._flow.remaining:
                return record
        raise StopAsyncIteration

    # Committing

    async def commit(
        self, offsets: OffsetsArgument | None = None, timeout: float | None = None
    ) -> None:
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
        self.core.require_group("commit")
        await self.core.commit(arguments.parse_offsets(offsets), timeout)

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
        membership = self.core.require_group("commit_async")
        arguments.check_callback(callback)
        membership.commit_async(arguments.parse_offsets(offsets), callback)
        membership.handle_commit_commands_now()

    async def committed(
        self, partitions: Iterable[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offsets of partitions; None where nothing is committed.

        :raises TimedOut: the coordinator did not answer in time
        :raises AuthorizationFailed: no permission for the group
        """
        self.core.require_group("committed")
        wanted = parse_partitions("committed", partitions)
        return await self.core.run_interruptibly(self.core.fetch_committed(wanted, timeout))

    # Positions

    async def position(self, partition: PartitionLike, timeout: float | None = None) -> int:
        """Returns the offset of the next record to be handed out, also in the middle of a loop.

        :raises InputError: the partition is not assigned
        :raises TimedOut: the position could not be found in time
        """
        [at] = self.core.require_assigned("position", [partition])
        deadline = self.core.client.deadline_after(timeout)
        while at not in (found := self.core.consumed_positions(at)):
            self.core.start_requests()
            await self.core.fetcher.wait_for_positions([at], deadline)
        return found[at].offset

    def seek(self, partition: PartitionLike, offset: int | OffsetAndMetadata) -> None:
        """Sets the position; the next poll reads from there, and buffered records are dropped.

        :raises InputError: the partition is not assigned, or the offset is negative
        """
        [at] = self.core.require_assigned("seek", [partition])
        wanted = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        with self.core.member_lock():
            self.core.polled.drop_partitions([at])
            self.core.fetcher.seek(at, wanted)

    def seek_to_beginning(self, *partitions: PartitionLike) -> None:
        """Moves to the first record of these partitions, or of all that are assigned."""
        self._seek_to_end_of("seek_to_beginning", partitions, self.core.fetcher.seek_to_beginning)

    def seek_to_end(self, *partitions: PartitionLike) -> None:
        """Moves behind the last record of these partitions, or of all that are assigned."""
        self._seek_to_end_of("seek_to_end", partitions, self.core.fetcher.seek_to_end)

    def _seek_to_end_of(
        self,
        name: str,
        partitions: tuple[PartitionLike, ...],
        seek: Callable[[tuple[TopicPartition, ...]], None],
    ) -> None:
        wanted = self.core.require_assigned(name, partitions or self.assignment)
        with self.core.member_lock():
            self.core.polled.drop_partitions(wanted)
            seek(tuple(wanted))

    def pause(self, *partitions: PartitionLike) -> None:
        """Stops handing out records of these partitions until they are resumed; they stay assigned.

        A rebalance that takes the partition away also ends the pause. Keep polling meanwhile.
        """
        self.core.pause(self.core.require_assigned("pause", partitions))

    def resume(self, *partitions: PartitionLike) -> None:
        """Hands out records of these partitions again."""
        self.core.fetcher.resume(self.core.require_assigned("resume", partitions))

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return frozenset(self.core.fetcher.paused)

    def lag(self, partition: PartitionLike) -> int | None:
        """Returns the number of offsets between the position and the end of the log.

        Sends no request: the end is that of the last fetch. Returns None before the first.
        """
        [at] = self.core.require_assigned("lag", [partition])
        fetched, known = self.core.fetcher.position(at), self.core.fetcher.lag(at)
        if fetched is None or known is None:
            return None
        return known + fetched - self.core.consumed_positions(at)[at].offset

    # Look-ups

    async def beginning_offsets(
        self, partitions: Iterable[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition."""
        return await self._ends("beginning_offsets", partitions, EARLIEST, timeout)

    async def end_offsets(
        self, partitions: Iterable[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the offset behind the last record of each partition.

        With ``read_committed`` that is the last stable offset.
        """
        return await self._ends("end_offsets", partitions, LATEST, timeout)

    async def offsets_for_times(
        self, times: TimesArgument, timeout: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """Returns the first record at or after a time, for each partition; None if there is none.

        The result has ``offset``, ``timestamp`` and ``leader_epoch``.

        :param times: milliseconds since 1970, such as ``{("orders", 0): 1700000000000}``
        :raises InputError: a time is not a whole number from 0 up
        :raises UnknownTopic: a partition does not exist
        :raises TimedOut: not all leaders have answered in time
        """
        return await self._list(arguments.parse_times(times), timeout)

    async def partitions_for_topic(
        self, topic: str, timeout: float | None = None
    ) -> tuple[int, ...]:
        """Returns the partition numbers of a topic; none if the topic does not exist."""
        self.core.check_open()
        asked = self.core.client.refresh(
            (topic,), deadline=self.core.client.deadline_after(timeout)
        )
        found = await self.core.run_interruptibly(asked)
        known = found.topics.get(topic)
        return () if known is None else tuple(range(len(known.partitions)))

    async def topics(self, timeout: float | None = None) -> dict[str, int]:
        """Returns all visible topics, internal ones too, with their number of partitions."""
        self.core.check_open()
        asked = self.core.client.refresh(None, deadline=self.core.client.deadline_after(timeout))
        found = await self.core.run_interruptibly(asked)
        return {name: len(topic.partitions) for name, topic in sorted(found.topics.items())}

    async def _ends(
        self, name: str, partitions: Iterable[PartitionLike], which: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        found = await self._list(dict.fromkeys(parse_partitions(name, partitions), which), timeout)
        return {at: listed.offset for at, listed in found.items() if listed is not None}

    async def _list(
        self, wanted: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, ListedOffset | None]:
        self.core.check_open()
        config = self.core.settings.read
        deadline = self.core.client.deadline_after(timeout)
        asked = list_offsets(self.core.client, wanted, config.isolation, deadline=deadline)
        return await self.core.run_interruptibly(asked)

    # The group

    @property
    def group_metadata(self) -> GroupMetadata:
        """The member's group, generation and ids; the generation is -1 outside of one."""
        driver = self.core.require_group("group_metadata").driver
        member = self.core.settings.member
        assert member is not None
        with driver.lock:
            machine = driver.machine
            return GroupMetadata(
                member.group, machine.generation, machine.member_id, member.group_instance_id
            )

    def enforce_rebalance(self, reason: str = "the application asks for it") -> None:
        """Makes the next poll rejoin the group although nothing has changed.

        For an assignor whose result depends on more than the members' topics.

        :param reason: appears in the broker's log
        """
        self.core.require_group("enforce_rebalance").driver.handle_event(RejoinRequested(reason))

    def wakeup(self) -> None:
        """Interrupts the call that waits now, or the next one that would wait.

        That call raises :class:`rota.errors.Interrupted`. May be called from any thread and from
        signal handlers.
        """
        self.core.interrupt()

    # The end

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Commits if ``enable.auto.commit`` is set, leaves the group and closes all connections.

        The listener is called for the revoked partitions. A static member does not leave: its
        partitions wait for it until the session times out. A second call does nothing.

        :param timeout: seconds for the commit and for leaving; then everything is closed all the
            same
        :raises Exception: the error that a listener or callback raised, after everything is closed
        """
        await self.core.close(timeout)

    def __repr__(self) -> str:
        return f"<rota.AsyncConsumer {self.core}>"

    def __del__(self) -> None:
        core: ConsumerCore | None = getattr(self, "core", None)
        if core is not None:
            core.abandon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
