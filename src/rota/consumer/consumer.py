"""``rota.Consumer``: reads as a member of a group, or partitions that it is told."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import NamedTuple, Never, Self

from rota.client.batch import Batch
from rota.client.offset import EARLIEST, LATEST, ListedOffset, list_offsets
from rota.client.setting import mapping
from rota.consumer import argument
from rota.consumer.argument import GivenOffsets, GivenTimes, Place, places
from rota.consumer.core import POLL_TIMEOUT, Core
from rota.consumer.listener import CommitCallback, RebalanceListener
from rota.consumer.membership import SILENT, Caller, call_here
from rota.consumer.record import ConsumerRecord, Records
from rota.errors import InputError
from rota.member.event import RejoinAsked, Subscribed
from rota.model.offset import OffsetAndMetadata
from rota.model.topic import TopicPartition

CLOSE_TIMEOUT = 30.0
"""Seconds, as in Kafka."""


class GroupMetadata(NamedTuple):
    """What a member is to its group."""

    group: str
    generation: int
    """-1: of none."""
    member_id: str
    static_id: str | None


class Consumer:
    """A consumer for asyncio.

    ::

        async with rota.Consumer({"bootstrap.servers": "...", "group.id": "g"}) as consumer:
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
        call: Caller | None = None,
        **keywords: Never,
    ) -> None:
        """Reads the settings; nothing is opened yet.

        :param config: Kafka's settings by their names; see docs/consumer-settings.md.
            :func:`rota.load_properties` has those of a file
        :param call: how listeners and callbacks are called, for those who have another loop
        :param keywords: there are none; who tries is told how settings are given
        :raises InputError: a setting is missing, unknown or wrong; names it
        """
        self.core = Core(mapping(config, keywords), call or call_here)
        self._flow = self.core.flow

    # What to read

    def subscribe(
        self,
        topics: Iterable[str] | str = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Reads these topics, or those whose whole name matches, together with the group.

        Takes the place of what was subscribed to before, listener included. The next polls join
        the group; until then :attr:`assignment` is as it was. A topic that is missing is logged,
        and read once it exists.

        :param pattern: a regular expression of Python's; new topics are found when metadata are
            renewed (``metadata.max.age.ms``)
        :param listener: told of what comes and goes, inside polls
        :raises InputError: neither is given, or both; no ``group.id``; partitions are assigned
        """
        self.core.check_open()
        membership = self.core.need_group("subscribe")
        names = argument.topics(topics)
        argument.check_listener(listener)
        if bool(names) == (pattern is not None):
            raise InputError("subscribe: give topics or a pattern; unsubscribe() ends both")
        if self.core.assigned:
            raise InputError("subscribe: partitions are assigned by hand; unsubscribe() first")
        text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
        membership.driver.tell(Subscribed(names, text))
        membership.listener = SILENT if listener is None else listener
        self.core.is_subscribed = True

    def assign(self, partitions: Iterable[Place]) -> None:
        """Reads these partitions, whatever a group does; in place of those before.

        It starts at what the group has committed, if there is a ``group.id``, else by
        ``auto.offset.reset``. Partitions that stay go on where they are.

        :raises InputError: topics are subscribed to
        """
        self.core.check_open()
        if self.core.is_subscribed:
            raise InputError("assign: topics are subscribed to; unsubscribe() first")
        self.core.assign(frozenset(places("assign", partitions)))

    async def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group.

        Commits first if that is automatic; the listener is told what is revoked.
        """
        self.core.check_open()
        if self.core.assigned:
            self.assign(())
        if self.core.is_subscribed:
            await self.core.unsubscribe()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is read now: what the group has given, or what was assigned by hand."""
        return self.core.assignment

    @property
    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to; those that a pattern matches."""
        if not self.core.is_subscribed or self.core.membership is None:
            return frozenset()
        return frozenset(self.core.membership.driver.machine.topics)

    # Reading

    async def poll(self, timeout: float = POLL_TIMEOUT, max_records: int | None = None) -> Records:
        """Records as soon as there are some; none after so many seconds.

        Listeners and callbacks run in here. Rebalances are gone through in here, too: poll often,
        at least every ``max.poll.interval.ms``. What is returned counts as handed out: the next
        commit without offsets covers it.

        :param timeout: 0: what is there
        :param max_records: at most so many, in place of ``max.poll.records``
        :raises InputError: there is nothing to read; another poll is under way
        :raises RecordError: the next record cannot be decoded; seek behind it, or it comes again
        :raises NoOffset: nothing says where to read, and ``auto.offset.reset`` is ``none``
        :raises Unreachable: no broker was ever reached, for ``default.api.timeout.ms``
        :raises GroupError: the group refuses this member: ``Fenced``, ``InconsistentProtocol``...
        :raises Refused: no permission, a wrong password, an impossible name of a topic
        :raises Interrupted: :meth:`wakeup` was called
        """
        self.core.check_poll(timeout, max_records)
        await self.core.fill(timeout, max_records)
        return self.core.hand_out(max_records)

    async def poll_batches(self, timeout: float = POLL_TIMEOUT) -> list[Batch]:
        """The same in columns: all that has been fetched, a batch for each partition's answer.

        ``max.poll.records``, interceptors and deserializers do not apply. A batch has NumPy arrays
        of offsets and timestamps, lists of keys, values and headers, and ``to_arrow()``. Otherwise
        as :meth:`poll`.
        """
        self.core.check_poll(timeout)
        await self.core.fill_with_batches(timeout)
        return self.core.flow.take_batches()

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
        for record in self._flow.rest:
            return record
        core = self.core
        while not core.is_closing:
            await core.fill(POLL_TIMEOUT)
            for record in self._flow.rest:
                return record
        raise StopAsyncIteration

    # Committing

    async def commit_sync(
        self, offsets: GivenOffsets | None = None, timeout: float | None = None
    ) -> None:
        """Stores offsets, and waits for it; those of all that was handed out, unless given.

        Tries again what may pass, until the time is over. Callbacks of the asynchronous commits
        before it have run when it returns.

        :param offsets: where to read on, such as ``{("orders", 0): 18}``: the offset behind the
            last record that was dealt with; numbers, or :class:`rota.OffsetAndMetadata` with a note
        :raises CommitFailed: the group has gone on without this member, or it has not joined;
            says which deadline was missed, and what to set
        :raises RebalanceInProgress: poll first
        :raises TimedOut: it could not be stored in time; names the last reason
        :raises GroupError: it was refused
        :raises Exception: what the callback of an earlier commit has raised
        """
        self.core.need_group("commit_sync")
        await self.core.commit(argument.offsets(offsets), timeout)

    def commit_async(
        self, offsets: GivenOffsets | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Stores offsets without waiting for it, and without trying again.

        Callbacks of commits that are through run in order, in the next call of poll, commit or
        close. Without one, a failure is logged.

        :param offsets: as in :meth:`commit_sync`
        :param callback: called as ``callback(offsets, error)``: what was to be stored, by
            partition; and None, or why it was not stored
        """
        membership = self.core.need_group("commit_async")
        argument.check_callback(callback)
        membership.commit_async(argument.offsets(offsets), callback)
        membership.attend_to_commits_now()

    async def committed(
        self, partitions: Iterable[Place], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has stored for any partitions; None where nothing.

        :raises TimedOut: the coordinator gave no answer in time
        :raises AuthorizationFailed: no permission for the group
        """
        self.core.need_group("committed")
        wanted = places("committed", partitions)
        return await self.core.until_interrupted(self.core.fetch_committed(wanted, timeout))

    # Positions

    async def position(self, partition: Place, timeout: float | None = None) -> int:
        """The offset of the next record to be handed out, also in the middle of a loop.

        :raises InputError: the partition is not assigned
        :raises TimedOut: nobody could say in time
        """
        [at] = self.core.of_assignment("position", [partition])
        deadline = self.core.client.deadline(timeout)
        while at not in (found := self.core.consumed(at)):
            self.core.advance()
            await self.core.fetcher.wait_for_positions([at], deadline)
        return found[at].offset

    def seek(self, partition: Place, offset: int | OffsetAndMetadata) -> None:
        """Goes on at this offset, from the next poll on; what was fetched is dropped.

        :raises InputError: the partition is not assigned, or the offset is negative
        """
        [at] = self.core.of_assignment("seek", [partition])
        wanted = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        with self.core.lock():
            self.core.flow.drop([at])
            self.core.fetcher.seek(at, wanted)

    def seek_to_beginning(self, *partitions: Place) -> None:
        """Goes on at the first record there is, of these partitions or of all."""
        self._seek_to_end_of("seek_to_beginning", partitions, self.core.fetcher.seek_to_beginning)

    def seek_to_end(self, *partitions: Place) -> None:
        """Goes on behind the last record there is, of these partitions or of all."""
        self._seek_to_end_of("seek_to_end", partitions, self.core.fetcher.seek_to_end)

    def _seek_to_end_of(
        self,
        name: str,
        partitions: tuple[Place, ...],
        seek: Callable[[tuple[TopicPartition, ...]], None],
    ) -> None:
        wanted = self.core.of_assignment(name, partitions or self.assignment)
        with self.core.lock():
            self.core.flow.drop(wanted)
            seek(tuple(wanted))

    def pause(self, *partitions: Place) -> None:
        """Hands out nothing of these until they are resumed; they stay assigned.

        Forgotten when a rebalance takes the partition away. Go on polling meanwhile.
        """
        self.core.pause(self.core.of_assignment("pause", partitions))

    def resume(self, *partitions: Place) -> None:
        """Goes on with these."""
        self.core.fetcher.resume(self.core.of_assignment("resume", partitions))

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """What is paused."""
        return frozenset(self.core.fetcher.paused)

    def lag(self, partition: Place) -> int | None:
        """How many offsets lie between the position and the end, as the last fetch told; None if
        none did. Asks nobody.
        """
        [at] = self.core.of_assignment("lag", [partition])
        fetched, known = self.core.fetcher.position(at), self.core.fetcher.lag(at)
        if fetched is None or known is None:
            return None
        return known + fetched - self.core.consumed(at)[at].offset

    # Look-ups

    async def beginning_offsets(
        self, partitions: Iterable[Place], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return await self._ends("beginning_offsets", partitions, EARLIEST, timeout)

    async def end_offsets(
        self, partitions: Iterable[Place], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record of each; under ``read_committed``, of the stable."""
        return await self._ends("end_offsets", partitions, LATEST, timeout)

    async def offsets_for_times(
        self, times: GivenTimes, timeout: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """The first record of each partition from a time on; None if none is.

        It has ``offset``, ``timestamp`` and ``leader_epoch``.

        :param times: ms since 1970, whole numbers, such as ``{("orders", 0): 1700000000000}``
        :raises InputError: a time is no such number
        :raises UnknownTopic: there is no such partition
        :raises TimedOut: not all leaders have answered in time
        """
        return await self._list(argument.times(times), timeout)

    async def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[int, ...]:
        """The numbers of a topic's partitions; none if there is no such topic."""
        self.core.check_open()
        asked = self.core.client.refresh((topic,), deadline=self.core.client.deadline(timeout))
        found = await self.core.until_interrupted(asked)
        known = found.topics.get(topic)
        return () if known is None else tuple(range(len(known.partitions)))

    async def topics(self, timeout: float | None = None) -> dict[str, int]:
        """All topics that may be seen, the broker's own too, with how many partitions they have."""
        self.core.check_open()
        asked = self.core.client.refresh(None, deadline=self.core.client.deadline(timeout))
        found = await self.core.until_interrupted(asked)
        return {name: len(topic.partitions) for name, topic in sorted(found.topics.items())}

    async def _ends(
        self, name: str, partitions: Iterable[Place], which: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        found = await self._list(dict.fromkeys(places(name, partitions), which), timeout)
        return {at: listed.offset for at, listed in found.items() if listed is not None}

    async def _list(
        self, wanted: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, ListedOffset | None]:
        self.core.check_open()
        config = self.core.settings.read
        deadline = self.core.client.deadline(timeout)
        asked = list_offsets(self.core.client, wanted, config.isolation, deadline=deadline)
        return await self.core.until_interrupted(asked)

    # The group

    @property
    def group_metadata(self) -> GroupMetadata:
        """Who this member is; generation -1 while it is of none."""
        driver = self.core.need_group("group_metadata").driver
        member = self.core.settings.member
        assert member is not None
        with driver.lock:
            machine = driver.machine
            return GroupMetadata(
                member.group, machine.generation, machine.member_id, member.static_id
            )

    def enforce_rebalance(self, reason: str = "the application asks for it") -> None:
        """The next poll joins the group again, though nothing has changed.

        For a strategy whose answer depends on more than the members' topics.

        :param reason: for the broker's log
        """
        self.core.need_group("enforce_rebalance").driver.tell(RejoinAsked(reason))

    def wakeup(self) -> None:
        """Ends what the application waits for by :class:`rota.errors.Interrupted`, or the next
        that it would wait for. For any thread, and for signal handlers.
        """
        self.core.interrupt()

    # The end

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Commits if that is automatic, leaves the group, closes connections.

        The listener is told what is revoked. A static member does not leave: its partitions wait
        for it until the session ends. A second call does nothing.

        :param timeout: how long commit and good-bye may take; then everything is closed all the
            same
        :raises Exception: what a listener or a callback has raised, after all is closed
        """
        await self.core.close(timeout)

    def __repr__(self) -> str:
        return f"<rota.Consumer {self.core}>"

    def __del__(self) -> None:
        core: Core | None = getattr(self, "core", None)
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
