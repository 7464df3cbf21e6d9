"""A partition: segments one after another, appended to, read from, and cut at the front.

A batch is stored as its producer sent it, but for its offset and leader epoch (and the time, where
the topic wants the broker's). An append that fails leaves nothing behind: what was written of it is
cut off again. If even that fails, the log takes nothing more until it is opened anew.

A partition has no files before its first record: so a topic of thousands is made in no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeAlias

from rota.errors import Code, DiskError, Refused
from rota.formats.batch import Record, encode
from rota.formats.batch.header import HEAD
from rota.formats.buffer import Bytes
from rota.model.config import DAY, TopicConfig
from rota.storage import epoch, owner, recovery, retention, snapshot, validation
from rota.storage.allowance import Allowance
from rota.storage.chain import Chain
from rota.storage.disk import Disk
from rota.storage.epoch import Epochs
from rota.storage.producer import Producers
from rota.storage.scan import Head
from rota.storage.segment import Segment

BARE = frozenset({owner.NAME, epoch.NAME, f"{owner.NAME}.tmp", f"{epoch.NAME}.tmp"})
"""What a partition's folder may have before its first record."""
Pair: TypeAlias = tuple[bytes | None, bytes | None]
"""A record's key and value."""
Report: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a batch is now, or was already."""

    base_offset: int
    append_time: int
    """The broker's time, where that is what counts, else -1; of a duplicate its newest record's."""
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
        self.epochs = epochs
        self.producers = producers
        self.start = start
        """The first offset that is served."""
        self.recovery_point = recovery_point
        """All before this offset outlives a loss of power."""
        self.failed: str | None = None
        """Why nothing more is taken."""
        self.offline: str | None = None
        """Why nothing is served: its folder is not this partition's."""
        self.report = report
        self._unmade: bytes | None = None
        """The topic's id, while the files are not there."""
        self._segment_bytes = segment_bytes
        self._chain = Chain(segments)
        self._dirty_since: int | None = None
        """When the first record was appended that is not flushed."""
        self._named = recovery_point > 0
        """The folder and its names are durable: only by the first flush, as a topic may have many
        partitions."""

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
        """Makes a new folder, and in it an empty first segment; for the rest as :meth:`empty`."""
        log = cls.empty(
            disk,
            folder,
            topic_id,
            config,
            now=now,
            report=report,
            expiration=expiration,
            segment_bytes=segment_bytes,
        )
        log._make_files(now)
        return log

    @classmethod
    def empty(  # noqa: PLR0913, as above
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
        """A new partition; its files are made with the first record.

        :param folder: its name is the topic's, a minus and the partition's number
        :param segment_bytes: in place of the topic's ``segment.bytes``, which has a least
        """
        epochs = Epochs()
        first = Segment(
            disk, folder, 0, epochs=epochs, interval=config.index_interval, report=report
        )
        first.begin(now)
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
        log._unmade = topic_id
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
    def made(self) -> bool:
        """Are its files there?"""
        return self._unmade is None

    @property
    def segments(self) -> list[Segment]:
        """At least one; the last is written to."""
        return self._chain.segments

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

    def append(self, batch: Bytes, now: int, allowance: Allowance | None = None) -> Appended:
        """Takes one batch as a producer sent it.

        :param allowance: for looking at its records; by default that of the batch alone
        :raises Refused: it is not what the topic takes, or not what the producer should send now
        :raises DiskError: it could not be written; nothing of it is there
        """
        self._ready()
        head = validation.check(batch, self.config, now, allowance or Allowance(len(batch)))
        end = self.segments[-1].end
        by_append_time = self.config.timestamp_type == "LogAppendTime"
        if head.producer_id >= 0:
            known = self.producers.check(head._replace(base_offset=end).full)
            if known is not None:
                return Appended(known.first_offset, known.timestamp, self.start, True)
        append_time = now if by_append_time else None
        stored, head = validation.stamped(batch, head, end, self.epochs.latest, append_time)
        self._write(stored, head, now)
        return Appended(end, -1 if append_time is None else now, self.start)

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

    def _make_files(self, now: int) -> None:
        """Makes the folder and its files.

        :raises Refused: something is there that is not an empty partition's
        :raises DiskError: the machine refused; it is tried again with the next record
        """
        if self._unmade is None:
            return
        there = self.disk.names(self.folder)
        if any(self.disk.size(f"{self.folder}/{name}") for name in there if name not in BARE):
            raise Refused(
                Code.KAFKA_STORAGE_ERROR,
                f"the folder {self.folder} is in the way: it has files of its own",
            )
        owner.name_folder(self.disk, self.folder, self._unmade)
        self.disk.remove(f"{self.folder}/{epoch.NAME}")
        self.disk.append(f"{self.folder}/{epoch.NAME}", epoch.pack())
        self.segments[0].create(now)
        self._unmade = None

    def _ready(self) -> None:
        self.check_online()
        if self.failed is not None:
            raise Refused(Code.KAFKA_STORAGE_ERROR, f"{self.folder}: {self.failed}")

    def check_online(self) -> None:
        """Raises Refused if nothing is served."""
        if self.offline is not None:
            raise Refused(Code.KAFKA_STORAGE_ERROR, f"{self.folder}: {self.offline}")

    def _write(self, batch: bytes | bytearray, head: Head, now: int) -> None:
        if self._unmade is not None:
            self._make_files(now)
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
        config = self.config
        most = self._segment_bytes or config.segment_bytes
        if not segment.has_room(size, head.last_offset, most, config.segment_index_bytes):
            return segment.size > 0
        # of a compacted topic nothing may stay dirty longer (KIP-354)
        lag = config.max_compaction_lag if config.compacted else config.segment_age
        return segment.aged(head.max_timestamp, now) > min(config.segment_age, lag)

    def _sync(self, name: str) -> None:
        """Makes a file durable. If that fails once, it cannot be tried again.

        The machine may have forgotten what it could not write, and would say that all is well.
        """
        try:
            self.disk.sync(name)
            if not self._named:
                self._sync_names()
        except DiskError as error:
            self.fail(f"not synced: {error}")
            raise

    def _sync_names(self) -> None:
        """What else the folder has can be made anew: a loss of power may take it."""
        self.disk.sync(self.folder)
        self.disk.sync(self.folder.rpartition("/")[0])
        self._named = True

    def _cut(self, segment: Segment) -> None:
        """Takes back what an append has left behind."""
        try:
            self.disk.truncate(segment.log, segment.size)
        except DiskError as error:
            self.fail(f"a failed append could not be taken back: {error}")

    def fail(self, reason: str) -> None:
        """Takes nothing more from now on."""
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
        self._snapshot(durable=True)
        new = self._segment(old.end)
        new.create(now)
        self.disk.sync(self.folder)
        old.seal()
        self._chain.add(new)
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
    ) -> Bytes:
        """Whole batches from the one on that has an offset, each with its checksum compared.

        :param at_least_one: the first may be larger than ``max_bytes``
        :param to: none that begins at this offset or behind it
        :raises Refused: the offset is outside the log, or its batch is damaged
        """
        self.check_online()
        if not self.start <= offset <= self.end:
            raise Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"{self.folder}: offset {offset} is outside {self.start} to {self.end}",
            )
        until = self.end if to is None else min(to, self.end)
        return self._chain.read(offset, until, max_bytes, at_least_one=at_least_one)

    def offset_for_time(
        self, timestamp: int, allowance: Allowance | None = None
    ) -> tuple[int, int] | None:
        """The offset and timestamp of the first record that is not older; None: all are.

        :param allowance: for looking at records; by default that of a batch of the largest size
        :raises Refused: what must be read for that is damaged, or is too much work
        """
        return self._chain.first_since(timestamp, self.start, allowance or self.allowance())

    def newest(self, allowance: Allowance | None = None) -> tuple[int, int] | None:
        """The offset and timestamp of the first record with the newest timestamp; None: no record.

        :param allowance: as above
        :raises Refused: what must be read for that is damaged, or is too much work
        """
        return self._chain.newest(allowance or self.allowance())

    def allowance(self) -> Allowance:
        """For looking at the records of any batch that the log takes."""
        return Allowance(self.config.max_message_bytes)

    def aborted(self, first: int, last: int) -> list[tuple[int, int]]:
        """Aborted transactions with records from one offset to before another.

        :return: their producers' ids and first offsets, in the order of their ends
        """
        return self._chain.aborted(first, last)

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

        :raises DiskError: one could not be removed; it is not served any more all the same
        """
        self.producers.expire(now)
        gone = retention.expired(self.segments, self.config, self.start, now)
        if len(gone) == len(self.segments):
            self.roll(now)
        for segment in gone:
            self._chain.drop_first()
            self.start = max(self.start, self.segments[0].base_offset)
            segment.remove()
            snapshot.remove(self.disk, self.folder, [segment.base_offset])
        return len(gone)

    def swapped(self, bases: Sequence[int]) -> None:
        """Compaction has put new files in place of these segments: the first one's, one for all."""
        self._chain.swap(bases, self._segment(bases[0]))

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

    def unsynced(self) -> list[str]:
        """The paths that must be synced for :meth:`flushed`, but for the folder above."""
        if self.failed is not None or self.recovery_point >= self.end:
            return []
        return [self.segments[-1].log, *([] if self._named else [self.folder])]

    def flushed(self, problems: Sequence[DiskError] = ()) -> None:
        """What was :meth:`unsynced` is synced, and the folder above, but for these problems."""
        if problems:
            self.fail(f"not synced: {problems[0]}")
            return
        self.recovery_point = self.end
        self._named = True
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
        self._snapshot(durable=False)  # if it is lost with the power, the log is read

    def _snapshot(self, *, durable: bool) -> None:
        """What is known of producers, so that nobody need read the log for it."""
        end = self.producers.end
        if end and end not in snapshot.offsets(self.disk, self.folder):
            snapshot.save(self.disk, self.folder, self.producers, durable=durable)

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()
