"""A partition: segments one after another, appended to, read from, and cut at the front.

A batch is stored as its producer sent it, but for its offset and leader epoch (and the time, where
the topic wants the broker's). An append that fails leaves nothing behind: what was written of it is
cut off again. If even that fails, the log takes nothing more until it is opened anew.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TypeAlias

from rota.errors import Code, DiskError, Refused
from rota.formats.batch import Record, encode
from rota.formats.batch.checksum import checksum
from rota.formats.batch.header import (
    APPEND_TIME_BIT,
    ATTRIBUTES_AT,
    CHECKSUM,
    CHECKSUM_AT,
    HEAD,
)
from rota.formats.buffer import Bytes
from rota.model.config import DAY, TopicConfig
from rota.storage import epoch, lookup, recovery, replay, retention, snapshot, transaction
from rota.storage import validation as validate
from rota.storage.disk import Disk
from rota.storage.epoch import Epochs
from rota.storage.producer import Producers
from rota.storage.scan import Damage, Head
from rota.storage.segment import Segment, Stretch

METADATA = "partition.metadata"
Pair: TypeAlias = tuple[bytes | None, bytes | None]
"""A record's key and value."""
Report: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a batch is now, or was already."""

    base_offset: int
    append_time: int
    """The broker's time, where that is what counts; else -1."""
    log_start: int
    duplicate: bool = False


class Log:
    """Made by :meth:`create` and :meth:`open`."""

    def __init__(  # noqa: PLR0913, what a folder holds
        self,
        disk: Disk,
        folder: str,
        config: TopicConfig,
        *,
        segments: list[Segment],
        epochs: Epochs,
        producers: Producers,
        start: int,
        recovery_point: int,
        report: Report,
        segment_bytes: int | None = None,
    ) -> None:
        self.disk = disk
        self.folder = folder
        self.config = config
        self.segments = segments
        """At least one; the last is written to."""
        self.epochs = epochs
        self.producers = producers
        self.start = start
        """The first offset that is served."""
        self.recovery_point = recovery_point
        """All before this offset outlives a loss of power."""
        self.failed: str | None = None
        """Why nothing more is taken."""
        self.report = report
        self._segment_bytes = segment_bytes
        self._bases = [each.base_offset for each in segments]
        self._dirty_since: int | None = None
        """When the first record was appended that is not flushed."""
        self._unsynced: list[str] = []
        """Names that the first flush makes durable: a topic of many partitions is made at once."""
        self._snapshot_at = producers.end

    @classmethod
    def create(  # noqa: PLR0913, as above
        cls,
        disk: Disk,
        folder: str,
        topic_id: bytes,
        config: TopicConfig,
        *,
        now: int = 0,
        report: Report = lambda _: None,
        expiration: int = DAY,
        segment_bytes: int | None = None,
    ) -> Log:
        """Makes a new folder, and in it an empty first segment.

        :param folder: its name is the topic's, a minus and the partition's number
        :param segment_bytes: in place of the topic's ``segment.bytes``, which has a least
        """
        disk.make(folder)
        shown = urlsafe_b64encode(topic_id).decode().rstrip("=")
        for name, text in (
            (METADATA, f"version: 0\ntopic_id: {shown}".encode()),
            (epoch.NAME, epoch.pack()),
        ):
            disk.remove(f"{folder}/{name}")
            disk.append(f"{folder}/{name}", text)
        epochs = Epochs()
        first = Segment(
            disk, folder, 0, epochs=epochs, interval=config.index_interval, report=report
        )
        first.create(now)
        log = cls(
            disk,
            folder,
            config,
            segments=[first],
            epochs=epochs,
            producers=Producers(expiration),
            start=0,
            recovery_point=0,
            report=report,
            segment_bytes=segment_bytes,
        )
        above = folder.rpartition("/")[0]
        log._unsynced = [above, folder, *(f"{folder}/{name}" for name in (METADATA, epoch.NAME))]
        return log

    @classmethod
    def open(  # noqa: PLR0913, as above
        cls,
        disk: Disk,
        folder: str,
        config: TopicConfig,
        *,
        recovery_point: int,
        clean: bool,
        report: Report,
        now: int,
        log_start: int = 0,
        expiration: int = DAY,
        segment_bytes: int | None = None,
    ) -> Log:
        """Takes a folder as it is, and repairs what a crash has left; see :mod:`.recovery`.

        :param recovery_point: all before this offset was flushed, as the checkpoint has it
        :param clean: the broker was stopped, so that nothing needs to be read
        :param log_start: the first offset that is served, as the checkpoint has it
        :raises DiskError: the machine refused
        """
        found = recovery.load(
            disk,
            folder,
            recovery.Known(
                recovery_point=recovery_point,
                clean=clean,
                start=log_start,
                now=now,
                interval=config.index_interval,
                compacted=config.compacted,
                expiration=expiration,
            ),
            report,
        )
        return cls(
            disk,
            folder,
            config,
            segments=found.segments,
            epochs=found.epochs,
            producers=found.producers,
            start=found.start,
            recovery_point=found.recovery_point,
            report=report,
            segment_bytes=segment_bytes,
        )

    @property
    def end(self) -> int:
        """The offset of the next record: all before it are there, for one node is enough."""
        return self.segments[-1].end

    @property
    def stable(self) -> int:
        """The last stable offset: no transaction that began before it is open."""
        return max(self.start, self.producers.stable(self.end))

    @property
    def size(self) -> int:
        """Of all batches, in bytes."""
        return sum(each.size for each in self.segments)

    def append(self, batch: Bytes, now: int) -> Appended:
        """Takes one batch as a producer sent it.

        :raises Refused: it is not what the topic takes, or not what the producer should send now
        :raises DiskError: it could not be written; nothing of it is there
        """
        self._ready()
        head = validate.check(batch, self.config, now)
        end = self.segments[-1].end
        if head.producer_id >= 0:
            known = self.producers.check(head._replace(base_offset=end).full)
            if known is not None:
                time = known.timestamp if self._by_append_time else -1
                return Appended(known.first_offset, time, self.start, True)
        stamped = bytearray(batch)
        head = self._stamp(stamped, head, end, now)
        self._write(stamped, head, now)
        append_time = now if self._by_append_time else -1
        return Appended(end, append_time, self.start)

    def append_records(self, pairs: Iterable[Pair], now: int) -> Appended:
        """Writes records of the broker's own as one batch.

        :raises Refused: it is larger than the topic allows
        :raises DiskError: it could not be written; nothing of it is there
        """
        self._ready()
        end = self.end
        records = [Record(offset, now, *pair) for offset, pair in enumerate(pairs, start=end)]
        batch = encode(records, leader_epoch=self.epochs.latest)
        if len(batch) > self.config.max_message_bytes:
            raise Refused(
                Code.MESSAGE_TOO_LARGE,
                f"{self.folder}: a batch of {len(batch)} bytes, max.message.bytes is "
                f"{self.config.max_message_bytes}",
            )
        self._write(batch, Head._make(HEAD.unpack_from(batch)), now)
        return Appended(end, -1, self.start)

    @property
    def _by_append_time(self) -> bool:
        return self.config.timestamp_type == "LogAppendTime"

    def _ready(self) -> None:
        if self.failed is not None:
            raise Refused(Code.KAFKA_STORAGE_ERROR, f"{self.folder}: {self.failed}")

    def _stamp(self, batch: bytearray, head: Head, offset: int, now: int) -> Head:
        """Gives a batch its offset and epoch, and the time if the topic wants the broker's."""
        head = head._replace(base_offset=offset, leader_epoch=self.epochs.latest)
        if self._by_append_time:
            attributes = head.attributes | APPEND_TIME_BIT
            head = head._replace(attributes=attributes, max_timestamp=now)
            HEAD.pack_into(batch, 0, *head)
            made = checksum(memoryview(batch)[ATTRIBUTES_AT:])
            CHECKSUM.pack_into(batch, CHECKSUM_AT, made)
            return head._replace(checksum=made)
        HEAD.pack_into(batch, 0, *head)
        return head

    def _write(self, batch: bytes | bytearray, head: Head, now: int) -> None:
        segment = self.segments[-1]
        if self._is_full(segment, len(batch), head, now):
            segment = self.roll(now)
        next_offset = head.last_offset + 1
        try:
            self.disk.append(segment.log, batch)
            if next_offset - self.recovery_point >= self.config.flush_messages:
                self._sync(segment.log)
                self.recovery_point = next_offset
        except DiskError:
            self._cut(segment)
            raise
        segment.take(head, now)
        if head.producer_id >= 0:
            self.producers.take(head.full)
        self.producers.end = next_offset
        if self._dirty_since is None and self.recovery_point < next_offset:
            self._dirty_since = now

    def _is_full(self, segment: Segment, size: int, head: Head, now: int) -> bool:
        most = self._segment_bytes or self.config.segment_bytes
        if not segment.has_room(size, head.last_offset, most):
            return segment.size > 0
        return segment.aged(head.max_timestamp, now) > self.config.segment_age

    def _sync(self, name: str) -> None:
        """Makes a file durable. If that fails once, it cannot be tried again.

        The machine may have forgotten what it could not write, and would say that all is well.
        """
        try:
            while self._unsynced:
                self.disk.sync(self._unsynced[-1])
                self._unsynced.pop()
            self.disk.sync(name)
        except DiskError as error:
            self._fail(f"not synced: {error}")
            raise

    def _cut(self, segment: Segment) -> None:
        """Takes back what an append has left behind."""
        try:
            self.disk.truncate(segment.log, segment.size)
        except DiskError as error:
            self._fail(f"a failed append could not be taken back: {error}")

    def _fail(self, reason: str) -> None:
        if self.failed is None:
            self.failed = reason
            self.report(f"{self.folder}: {reason}; it takes nothing more until it is opened anew")

    def roll(self, now: int) -> Segment:
        """Goes on in a new segment; all before it outlives a loss of power.

        :raises DiskError: it could not; the old one goes on
        """
        old = self.segments[-1]
        if not old.size:
            return old
        old.save()
        for name in (old.log, old.offsets.path, old.times.path):
            self._sync(name)
        self._snapshot()
        new = self._segment(old.end)
        new.create(now)
        self.disk.sync(self.folder)
        old.seal()
        self.segments.append(new)
        self._bases.append(new.base_offset)
        self.recovery_point = old.end
        self._dirty_since = None
        return new

    def _segment(self, base_offset: int) -> Segment:
        return Segment(
            self.disk,
            self.folder,
            base_offset,
            epochs=self.epochs,
            interval=self.config.index_interval,
            report=self.report,
        )

    def read(
        self, offset: int, max_bytes: int, *, at_least_one: bool = True, to: int | None = None
    ) -> bytes:
        """Whole batches from the one on that has an offset, each with its checksum compared.

        :param at_least_one: the first may be larger than ``max_bytes``
        :param to: none that begins at this offset or behind it
        :raises Refused: the offset is outside the log, or its batch is damaged
        """
        if not self.start <= offset <= self.end:
            raise Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"{self.folder}: offset {offset} is outside {self.start} to {self.end}",
            )
        until = self.end if to is None else min(to, self.end)
        pieces: list[bytes] = []
        row = bisect_right(self._bases, offset) - 1
        while offset < until and row < len(self.segments):
            segment = self.segments[row]
            stretch = self._read(segment, offset, max_bytes, until, at_least_one and not pieces)
            if stretch.data:
                pieces.append(stretch.data)
                max_bytes -= len(stretch.data)
            if stretch.damage is not None and not pieces:
                raise Refused(Code.CORRUPT_MESSAGE, str(stretch.damage))
            offset = stretch.next_offset
            if stretch.damage is not None or offset < segment.end:
                break
            row += 1
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read(
        self, segment: Segment, offset: int, budget: int, until: int, at_least_one: bool
    ) -> Stretch:
        try:
            place = lookup.find(segment, offset)
        except Damage as damage:
            segment.tell(damage)
            return Stretch(b"", offset, damage)
        if place is None:  # compaction has left nothing behind it
            return Stretch(b"", segment.end, None)
        until = min(until, segment.end)  # of two that overlap, the later one counts
        return segment.read(place, budget, until, at_least_one=at_least_one)

    def offset_for_time(self, timestamp: int) -> tuple[int, int] | None:
        """The offset and timestamp of the first record that is not older; None: all are.

        :raises Refused: what must be read for that is damaged
        """
        for segment in self.segments:
            try:
                found = lookup.first_since(segment, timestamp, self.start)
            except Damage as damage:
                segment.tell(damage)
                raise Refused(Code.CORRUPT_MESSAGE, str(damage)) from None
            if found is not None:
                return found
        return None

    def newest(self) -> tuple[int, int] | None:
        """The offset and timestamp of the first record with the newest timestamp; None: no record.

        :raises Refused: what must be read for that is damaged
        """
        try:
            best = max(self.segments, key=lambda each: (lookup.newest(each)[0], -each.base_offset))
            return lookup.newest_record(best)
        except Damage as damage:
            raise Refused(Code.CORRUPT_MESSAGE, str(damage)) from None

    def aborted(self, first: int, last: int) -> list[tuple[int, int]]:
        """Aborted transactions with records from one offset to before another.

        :return: their producers' ids and first offsets, in the order of their ends
        """
        found: list[tuple[int, int]] = []
        for row in range(max(bisect_right(self._bases, first) - 1, 0), len(self.segments)):
            entries = transaction.overlapping(replay.aborted(self.segments, row), first, last)
            found += [(each.producer_id, each.first_offset) for each in entries]
        return found

    def delete_before(self, offset: int) -> None:
        """Serves nothing before an offset any more; the files go with :meth:`delete_old`.

        :raises Refused: the log ends before
        """
        if not 0 <= offset <= self.end:
            raise Refused(
                Code.OFFSET_OUT_OF_RANGE, f"{self.folder}: offset {offset} is behind {self.end}"
            )
        self.start = max(self.start, offset)

    def delete_old(self, now: int) -> int:
        """Removes the segments that retention has no place for; tells how many.

        :raises DiskError: one could not be removed; those before it are gone
        """
        self.producers.expire(now)
        gone = retention.expired(self.segments, self.config, self.start, now)
        if len(gone) == len(self.segments):
            self.roll(now)
        for segment in gone:
            segment.remove()
            snapshot.remove(self.disk, self.folder, [segment.base_offset])
            del self.segments[0], self._bases[0]
            self.start = max(self.start, self._bases[0])
        return len(gone)

    def end_of_epoch(self, asked: int) -> tuple[int, int] | None:
        """The last leader epoch up to this one, and the offset at which it ends."""
        return self.epochs.end_of(asked, self.end)

    def flush(self) -> None:
        """What was appended outlives a loss of power.

        :raises DiskError: it may not
        """
        end = self.end
        if self.recovery_point < end:
            self._sync(self.segments[-1].log)
            self.recovery_point = end
        self._dirty_since = None

    def flush_due(self, now: int) -> None:
        """Flushes if something is older than ``flush.ms``."""
        since = self._dirty_since
        if since is not None and now - since >= self.config.flush_interval:
            self.flush()

    def close(self) -> None:
        """Flushes, and leaves all so that it can be opened without being read."""
        if self.failed is not None:
            return
        self.flush()
        self.segments[-1].save()
        self._snapshot()

    def _snapshot(self) -> None:
        """What is known of producers, so that nobody need read the log for it."""
        if self._snapshot_at != self.producers.end:
            snapshot.save(self.disk, self.folder, self.producers)
            self._snapshot_at = self.producers.end

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()
