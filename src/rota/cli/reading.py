"""The work of ``rota consume``: reads, prints, commits what is printed."""

from __future__ import annotations

import argparse
import logging
import math
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rota.cli.bootstrap import CONNECT, say, trying
from rota.cli.line import Layout, as_json
from rota.cli.module import let_modules_be_found
from rota.cli.screen import count
from rota.cli.setting import topics
from rota.cli.start import EARLIEST, LATEST, Start
from rota.consumer.blocking import BlockingConsumer
from rota.consumer.listener import RebalanceListener
from rota.errors import (
    Code,
    GroupError,
    Interrupted,
    RebalanceInProgress,
    RecordError,
    RotaError,
    UnknownTopic,
)
from rota.model.offset import OffsetAndMetadata
from rota.model.text import nearest
from rota.model.topic import TopicPartition

if TYPE_CHECKING:
    from types import FrameType

    from rota.consumer.record import ConsumerRecord, Records

JOIN = 60.0
"""Seconds for the group's first assignment."""
PAUSE = 1.0
LAST = GOODBYE = 5.0
"""Seconds for the last commit, and for leaving the group behind it: who ends it does not wait for a
broker that is gone."""
INTERVAL, SHORTEST = 5_000, 100
"""Milliseconds between commits, where ``auto.commit.interval.ms`` is not set; no less."""
LOADED = (
    *("partition.assignment.strategy", "interceptor.classes"),
    *("key.deserializer", "value.deserializer"),
)
"""Settings that may name a class of the user's."""
SPACES = {"\\t": "\t", "\\n": "\n"}


def read(args: argparse.Namespace, given: dict[str, object]) -> bool:
    """Reads until the end, and closes in good order.

    Positions are committed by this command itself, when the lines are out: an automatic commit
    could be ahead of them.
    """
    has_group = bool(given.get("group.id"))
    wanted = str(given.get("enable.auto.commit", "true")).strip().lower() != "false"
    commits = wanted and has_group
    given["enable.auto.commit"] = "false"
    interval = given.get("auto.commit.interval.ms", INTERVAL)
    given.setdefault("allow.auto.create.topics", "false")
    if args.from_beginning:
        given["auto.offset.reset"] = "earliest"
    if args.strategy is not None:
        given["partition.assignment.strategy"] = args.strategy
    let_modules_be_found(str(given.get(key, "")) for key in LOADED)
    _log("rota.consumer")
    # why no broker can be reached is the command's error, said once; later it is a warning
    logging.getLogger("rota.client").handlers[:] = [logging.NullHandler()]
    consumer = BlockingConsumer(given)
    told: list[int] = []
    with _closing(consumer), _shown(args) as show:
        reader = Reader(
            args,
            consumer,
            show,
            has_group=has_group,
            commit_every=max(int(str(interval)), SHORTEST) / 1_000 if commits else None,
        )
        try:
            reader.begin()
            with _telling(consumer, told):
                reader.read()
        except Interrupted:
            assert told, "nobody else wakes the consumer up"
        except KeyboardInterrupt:  # before the reading has begun, or again: at once
            raise
        except BaseException:
            with suppress(RotaError):  # the first error is the one to tell
                reader.finish()
            raise
        reader.finish()
    if not args.quiet:
        reader.tell()
    if told and told[0] == signal.SIGINT:
        raise KeyboardInterrupt
    return False


@contextmanager
def _closing(consumer: BlockingConsumer) -> Iterator[None]:
    try:
        yield
    finally:
        consumer.close(GOODBYE)


def _log(name: str) -> None:
    """What is logged, as lines of this command."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("rota: %(message)s"))
    logger = logging.getLogger(name)
    logger.handlers[:] = [handler]
    logger.propagate = False


@contextmanager
def _telling(consumer: BlockingConsumer, told: list[int]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the reading, not the process: the group is to be left. A second
    Ctrl-C ends at once.
    """

    def tell(number: int, _frame: FrameType | None) -> None:
        if told and number == signal.SIGINT:
            raise KeyboardInterrupt
        told.append(number)
        consumer.wakeup()

    before = [(number, signal.signal(number, tell)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


@contextmanager
def _shown(args: argparse.Namespace) -> Iterator[Callable[[int, int | None], None]]:
    """Where somebody watches, and the lines go elsewhere: how many have been read."""
    if args.quiet or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    columns = (TextColumn("records"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=args.max_messages)
        yield lambda done, total: progress.update(task, completed=done, total=total)


class Reader(RebalanceListener):
    """Prints records, and keeps account of what is printed."""

    def __init__(
        self,
        args: argparse.Namespace,
        consumer: BlockingConsumer,
        show: Callable[[int, int | None], None],
        *,
        has_group: bool,
        commit_every: float | None,
    ) -> None:
        """Nothing is read yet; what is printed is committed every so many seconds, or never."""
        self.args = args
        self.has_group = has_group
        self.consumer = consumer
        self.show = show
        self.printed = 0
        self.skipped = 0
        self.total: int | None = args.max_messages
        self.ends: dict[TopicPartition, int] | None = None
        """With ``--to-end``: of the partitions that are not yet there."""
        self._since: float | None = None if has_group else time.monotonic()
        """When the last record came, or those before it could have; None: not yet of the group."""
        self._done: dict[TopicPartition, OffsetAndMetadata] = {}
        """How far each partition that is read has been printed."""
        self._is_out = True
        """Are all lines out of what was read? Then the consumer's positions are what is done."""
        self._commit_every = commit_every
        self._commit_at = math.inf
        self._complaint: str | None = None
        """Why the last commit has failed."""
        self._plan_commit()
        layout = Layout(
            key=args.print_key,
            headers=args.print_headers,
            time=args.print_time,
            place=args.print_place,
            separator=SPACES.get(args.separator, args.separator),
        )
        self._line = as_json if args.json else layout.line

    # Where to read

    def begin(self) -> None:
        """Subscribes, or assigns partitions and goes to where they start.

        :raises UnknownTopic: there is none of that name, or no such partition
        """
        args, consumer = self.args, self.consumer
        with trying(CONNECT):
            known = consumer.topics(timeout=CONNECT)
        _log("rota.client")
        names = topics(args.topic)
        for name in names:
            if name not in known:
                raise UnknownTopic(
                    Code.UNKNOWN_TOPIC_OR_PARTITION,
                    f"there is no topic {name!r}{nearest(name, known)}",
                )
        if self.has_group:
            consumer.subscribe(names, pattern=args.pattern, listener=self)
            return
        partitions = list(_partitions(args.partition, names, known))
        start = args.offset or Start(end=EARLIEST if args.from_beginning else LATEST)
        at, last = start.offsets(consumer, partitions)
        if not (args.offset or args.from_beginning or args.to_end or args.quiet):
            say("only what is written from now on is read; --from-beginning reads all")
        consumer.assign(partitions)
        for partition, offset in at.items():
            consumer.seek(partition, offset)
        if args.to_end:
            self.ends = {each: last[each] for each in partitions if at[each] < last[each]}
            self._pause(set(partitions) - set(self.ends))
            left = sum(end - at[each] for each, end in self.ends.items())
            self.total = left if self.total is None else min(left, self.total)

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """From now on records may come."""
        self._since = time.monotonic()
        if not self.args.quiet:
            say(f"assigned: {_listed(partitions)}")

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """The last chance to commit."""
        try:
            self.commit()
        except GroupError as error:  # the group goes on all the same
            say(f"not committed: {error}")
        for each in partitions:
            self._done.pop(each, None)
        if partitions and not self.args.quiet:
            say(f"revoked: {_listed(partitions)}")

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """They are others' now, and what was printed of them will be read again."""
        for each in partitions:
            self._done.pop(each, None)
        say(f"lost: {_listed(partitions)}: what was read of them last will be read again")

    # Reading

    def read(self) -> None:
        """Until one of the ends that were asked for."""
        begun = time.monotonic()
        while not self.is_over:
            left = self._patience(begun) - time.monotonic()
            if left <= 0:
                return
            limit = self.args.max_messages
            most = None if limit is None else limit - self.printed
            try:
                records = self.consumer.poll(self._pause_before(left), max_records=most)
            except RecordError as error:
                self._skip(error)
                continue
            if records:
                self._print(records)
                self._since = time.monotonic()
            self._look(records)
            self._commit_in_time()

    def _pause_before(self, left: float) -> float:
        """How long a poll may wait: what is printed is committed also while no record comes."""
        return min(PAUSE, left, max(self._commit_at - time.monotonic(), 0))

    def _patience(self, begun: float) -> float:
        """Until when a record is waited for."""
        timeout: float | None = self.args.timeout
        if timeout is None:
            return math.inf
        if self._since is None:  # a group may take its time for the first rebalance
            return begun + max(timeout, JOIN)
        return self._since + timeout

    @property
    def is_over(self) -> bool:
        """Is all printed that was asked for?"""
        if self.ends is not None and not self.ends:
            return True
        return self.args.max_messages is not None and self.printed >= self.args.max_messages

    def _print(self, records: Records) -> None:
        self._is_out = False
        lines = list(map(self._line, self._wanted(records)))
        sys.stdout.buffer.write(b"".join(lines))
        sys.stdout.buffer.flush()
        self.printed += len(lines)
        self.show(self.printed, self.total)
        for partition, some in records.by_partition.items():
            last = some[-1]
            self._done[partition] = OffsetAndMetadata(last.offset + 1, "", last.leader_epoch)
        self._is_out = True

    def _wanted(self, records: Records) -> Iterable[ConsumerRecord]:
        """With ``--to-end``, what was there at the start."""
        if self.ends is None:
            return records
        ends = self.ends
        return (
            one
            for partition, some in records.by_partition.items()
            for one in some
            if one.offset < ends.get(partition, 0)
        )

    def _look(self, records: Records) -> None:
        """Which partitions are at their end now? Behind the last record there may be marks of
        transactions, and offsets that compaction has emptied.
        """
        if self.ends is None:
            return
        looked = [each for each in records.by_partition if each in self.ends] or list(self.ends)
        there = {each for each in looked if self.consumer.position(each) >= self.ends[each]}
        self._pause(there)
        for each in there:
            del self.ends[each]

    def _pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.consumer.pause(*partitions)

    def _skip(self, error: RecordError) -> None:
        if not self.args.skip_undecodable:
            raise error
        say(f"skipped: {error}")
        self.skipped += 1
        self.consumer.seek((error.topic, error.partition), error.next_offset)

    # Commits

    def _plan_commit(self) -> None:
        if self._commit_every is not None:
            self._commit_at = time.monotonic() + self._commit_every

    def _commit_in_time(self) -> None:
        if time.monotonic() < self._commit_at:
            return
        self._plan_commit()
        if self.consumer.assignment:
            self._commit_at = math.inf  # one at a time
            self.consumer.commit_async(callback=self._committed)

    def _committed(self, _offsets: object, error: Exception | None) -> None:
        self._plan_commit()
        passing = error is None or isinstance(error, RebalanceInProgress)
        complaint = None if passing else str(error)
        if complaint is not None and complaint != self._complaint:
            say(f"not committed: {complaint}")
        self._complaint = complaint

    def finish(self) -> None:
        """Commits for the last time: what was tried in vain is not tried again while it closes."""
        try:
            self.commit(LAST)
        finally:
            self._commit_every = None

    def commit(self, timeout: float | None = None) -> None:
        """Stores how far the lines have got."""
        offsets = None if self._is_out else self._done
        something = self.consumer.assignment if self._is_out else self._done
        if self._commit_every is None or not something:
            return
        try:
            self.consumer.commit_sync(offsets, timeout)
        except Interrupted:  # it came when there was nothing left to interrupt
            self.consumer.commit_sync(offsets, timeout)

    # The end

    def tell(self) -> None:
        """How much it was."""
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        say(f"{count(self.printed, 'record')}{skipped}")


def _partitions(
    wanted: list[list[int]] | None, names: Iterable[str], known: dict[str, int]
) -> Iterator[TopicPartition]:
    for name in names:
        numbers = range(known[name])
        for number in numbers if wanted is None else sorted({n for some in wanted for n in some}):
            if number not in numbers:
                raise UnknownTopic(
                    Code.UNKNOWN_TOPIC_OR_PARTITION,
                    f"--partition {number}: {name} has partitions 0 to {len(numbers) - 1}",
                )
            yield TopicPartition(name, number)


def _listed(partitions: Sequence[TopicPartition]) -> str:
    by_topic: dict[str, list[str]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(str(number))
    return "; ".join(f"{name} {','.join(some)}" for name, some in by_topic.items()) or "nothing"
