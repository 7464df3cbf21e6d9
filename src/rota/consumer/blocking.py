"""``rota.BlockingConsumer``: the same consumer for programs without asyncio."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from types import TracebackType
from typing import Never, Self

from rota.client.batch import Batch
from rota.client.offset import ListedOffset
from rota.client.setting import mapping
from rota.consumer.argument import GivenOffsets, GivenTimes, Place
from rota.consumer.consumer import CLOSE_TIMEOUT, Consumer, GroupMetadata
from rota.consumer.core import POLL_TIMEOUT
from rota.consumer.listener import CommitCallback, RebalanceListener
from rota.consumer.privateloop import PrivateLoop
from rota.consumer.record import ConsumerRecord, Records
from rota.model.offset import OffsetAndMetadata
from rota.model.topic import TopicPartition


class BlockingConsumer:
    """A consumer whose calls wait.

    ::

        with rota.BlockingConsumer({"bootstrap.servers": "...", "group.id": "g"}) as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
                ...

    It is :class:`rota.Consumer`, method by method, with an event loop of its own, which runs in the
    calling thread while a call waits; only heartbeats, and the receiving of large answers, have
    other threads. One thread at a time may use it, but for :meth:`wakeup`.

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
        settings = mapping(config, keywords)
        self._loop = PrivateLoop()
        try:
            self._consumer = Consumer(settings, call=self._loop.call_outside)
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
        """Reads these topics, or those whose whole name matches, together with the group.

        Takes the place of what was subscribed to before, listener included. The next polls join
        the group; until then :attr:`assignment` is as it was. A topic that is missing is logged,
        and read once it exists.

        :param pattern: a regular expression of Python's; new topics are found when metadata are
            renewed (``metadata.max.age.ms``)
        :param listener: told of what comes and goes, inside polls
        :raises InputError: neither is given, or both; no ``group.id``; partitions are assigned
        """
        self._consumer.subscribe(topics, pattern=pattern, listener=listener)

    def assign(self, partitions: Iterable[Place]) -> None:
        """Reads these partitions, whatever a group does; in place of those before.

        It starts at what the group has committed, if there is a ``group.id``, else by
        ``auto.offset.reset``. Partitions that stay go on where they are.

        :raises InputError: topics are subscribed to
        """
        self._consumer.assign(partitions)

    def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group.

        Commits first if that is automatic; the listener is told what is revoked.
        """
        self._loop.run(self._consumer.unsubscribe())

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is read now: what the group has given, or what was assigned by hand."""
        return self._consumer.assignment

    @property
    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to; those that a pattern matches."""
        return self._consumer.subscription

    def poll(self, timeout: float = POLL_TIMEOUT, max_records: int | None = None) -> Records:
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
        self._core.check_poll(timeout, max_records)
        if not self._core.fill_now(max_records):
            self._loop.run(self._core.fill(timeout, max_records))
        return self._core.hand_out(max_records)

    def poll_batches(self, timeout: float = POLL_TIMEOUT) -> list[Batch]:
        """The same in columns: all that has been fetched, a batch for each partition's answer.

        ``max.poll.records``, interceptors and deserializers do not apply. A batch has NumPy arrays
        of offsets and timestamps, lists of keys, values and headers, and ``to_arrow()``. Otherwise
        as :meth:`poll`.
        """
        self._core.check_poll(timeout)
        if not self._core.fill_with_batches_now():
            self._loop.run(self._core.fill_with_batches(timeout))
        return self._core.flow.take_batches()

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
        """What is left, then what is there next, and so on."""
        core = self._core
        while not core.is_closing:
            yield core.flow.rest
            if not (core.is_closing or core.fill_now()):
                self._loop.run(core.fill(POLL_TIMEOUT))

    def commit_sync(
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
        self._loop.run(self._consumer.commit_sync(offsets, timeout))

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
        self._consumer.commit_async(offsets, callback)

    def committed(
        self, partitions: Iterable[Place], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has stored for any partitions; None where nothing.

        :raises TimedOut: the coordinator gave no answer in time
        :raises AuthorizationFailed: no permission for the group
        """
        return self._loop.run(self._consumer.committed(partitions, timeout))

    def position(self, partition: Place, timeout: float | None = None) -> int:
        """The offset of the next record to be handed out, also in the middle of a loop.

        :raises InputError: the partition is not assigned
        :raises TimedOut: nobody could say in time
        """
        return self._loop.run(self._consumer.position(partition, timeout))

    def seek(self, partition: Place, offset: int | OffsetAndMetadata) -> None:
        """Goes on at this offset, from the next poll on; what was fetched is dropped.

        :raises InputError: the partition is not assigned, or the offset is negative
        """
        self._consumer.seek(partition, offset)

    def seek_to_beginning(self, *partitions: Place) -> None:
        """Goes on at the first record there is, of these partitions or of all."""
        self._consumer.seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: Place) -> None:
        """Goes on behind the last record there is, of these partitions or of all."""
        self._consumer.seek_to_end(*partitions)

    def pause(self, *partitions: Place) -> None:
        """Hands out nothing of these until they are resumed; they stay assigned.

        Forgotten when a rebalance takes the partition away. Go on polling meanwhile.
        """
        self._consumer.pause(*partitions)

    def resume(self, *partitions: Place) -> None:
        """Goes on with these."""
        self._consumer.resume(*partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """What is paused."""
        return self._consumer.paused

    def lag(self, partition: Place) -> int | None:
        """How many offsets lie between the position and the end, as the last fetch told; None if
        none did. Asks nobody.
        """
        return self._consumer.lag(partition)

    def beginning_offsets(
        self, partitions: Iterable[Place], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._loop.run(self._consumer.beginning_offsets(partitions, timeout))

    def end_offsets(
        self, partitions: Iterable[Place], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record of each; under ``read_committed``, of the stable."""
        return self._loop.run(self._consumer.end_offsets(partitions, timeout))

    def offsets_for_times(
        self, times: GivenTimes, timeout: float | None = None
    ) -> dict[TopicPartition, ListedOffset | None]:
        """The first record of each partition from a time on; None if none is.

        It has ``offset``, ``timestamp`` and ``leader_epoch``.

        :param times: ms since 1970, whole numbers, such as ``{("orders", 0): 1700000000000}``
        :raises InputError: a time is no such number
        :raises UnknownTopic: there is no such partition
        :raises TimedOut: not all leaders have answered in time
        """
        return self._loop.run(self._consumer.offsets_for_times(times, timeout))

    def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[int, ...]:
        """The numbers of a topic's partitions; none if there is no such topic."""
        return self._loop.run(self._consumer.partitions_for(topic, timeout))

    def topics(self, timeout: float | None = None) -> dict[str, int]:
        """All topics that may be seen, the broker's own too, with how many partitions they have."""
        return self._loop.run(self._consumer.topics(timeout))

    @property
    def group_metadata(self) -> GroupMetadata:
        """Who this member is; generation -1 while it is of none."""
        return self._consumer.group_metadata

    def enforce_rebalance(self, reason: str = "the application asks for it") -> None:
        """The next poll joins the group again, though nothing has changed.

        For a strategy whose answer depends on more than the members' topics.

        :param reason: for the broker's log
        """
        self._consumer.enforce_rebalance(reason)

    def wakeup(self) -> None:
        """Ends what the application waits for by :class:`rota.errors.Interrupted`, or the next
        that it would wait for. For any thread, and for signal handlers.
        """
        self._consumer.wakeup()

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Commits if that is automatic, leaves the group, closes connections.

        The listener is told what is revoked. A static member does not leave: its partitions wait
        for it until the session ends. A second call does nothing.

        :param timeout: how long commit and good-bye may take; then everything is closed all the
            same
        :raises Exception: what a listener or a callback has raised, after all is closed
        """
        if not (self._core.is_closing or self._core.home.is_forked):
            try:
                self._loop.run(self._consumer.close(timeout))
            finally:
                if self._core.is_closed:
                    self._loop.close()

    def __repr__(self) -> str:
        return f"<rota.BlockingConsumer {self._core}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
