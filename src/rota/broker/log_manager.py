"""Background work on the logs: retention, compaction, flushes, checkpoints, removal of deleted
files.

Each kind of work has a timer of its own. An error of the disk is logged and the work is tried again
next time; it never ends the broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from rota.broker.storage.checkpoint import PartitionOffsets
from rota.broker.storage.cleaner import LogCleaner
from rota.broker.storage.disk import Disk
from rota.broker.storage.log import Log
from rota.broker.storage.log_directory import LogDirectory
from rota.broker.timers import Timers
from rota.engine.model.config import BrokerConfig, TopicConfig
from rota.errors import DiskError


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageContext:
    """What topics are stored with: the data folder, the settings, timers, new ids, and a
    report of problems.
    """

    disk: Disk
    #: With the catalogue.
    folder: LogDirectory
    config: BrokerConfig
    #: What holds for topics without settings of their own.
    defaults: TopicConfig
    timers: Timers
    #: Gives 16 bytes, never the same.
    new_id: Callable[[], bytes]
    #: Is told what goes wrong and what was put right.
    report: Callable[[str], None]


# What a broker does for its logs from time to time, each kind by an alarm of its own.
#
# Nothing here may end the broker: what the disk refuses is said, and tried again next time.

#: All partitions: topic, number, log.
PartitionLogs: TypeAlias = Callable[[], Iterator[tuple[str, int, Log]]]

#: Between the removals of two deleted files, in milliseconds: other work goes in between.
REMOVAL_PAUSE_MS = 10

#: Between two slices of a compaction, in milliseconds; a slice takes a few.
COMPACTION_PAUSE_MS = 10


class LogManager:
    """Retention, compaction, timed flushes, checkpoints, and the removal of deleted files."""

    def __init__(self, means: StorageContext, logs: PartitionLogs) -> None:
        self._disk = means.disk
        self._folder = means.folder
        self._config = means.config
        self._timers = means.timers
        self._report = means.report
        self._logs = logs
        self._cleaner = LogCleaner(logs, means.folder, means.report)
        self._unflushed: dict[tuple[str, int], Log] = {}
        #: Folders to be removed.
        self._deleted: deque[str] = deque()

    def start(self, now: int) -> None:
        """Sets the first alarms."""
        self._schedule_periodic("retention", self._config.retention_check, self.delete_expired, now)
        self._schedule_periodic(
            "checkpoint", self._config.checkpoint_interval, self.checkpoint, now
        )
        self._schedule_compaction(now)

    def run_all(self, now: int) -> None:
        """Does everything at once, due or not."""
        for name, partition in tuple(self._unflushed):
            self._flush(name, partition)
        self.delete_expired(now)
        while self._cleaner.run_step(now):
            pass
        while self._deleted:
            self._remove_one()
        self.checkpoint(now)

    def close(self) -> None:
        """Sets no alarm any more."""
        for name in ("retention", "checkpoint", "compaction", "removal"):
            self._timers.stop(("topics", name))
        self._cleaner.stop()
        for name_and_partition in self._unflushed:
            self._timers.stop(("flush", *name_and_partition))
        self._unflushed.clear()

    def _schedule_periodic(
        self, name: str, interval: int, work: Callable[[int], None], now: int
    ) -> None:
        def ring(at: int) -> None:
            work(at)
            self._schedule_periodic(name, interval, work, at)

        self._timers.start(("topics", name), now + interval, ring, patient=True)

    @contextmanager
    def _log_disk_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except DiskError as error:
            self._report(f"{what} failed, and is tried again later: {error}")

    # Retention and checkpoints

    def delete_expired(self, now: int) -> None:
        """Deletes the segments that no topic has to keep any more."""
        for name, partition, log in self._logs():
            with self._log_disk_errors(f"deleting old segments of {name}-{partition}"):
                log.delete_old_segments(now)

    def checkpoint(self, _: int) -> None:
        """Saves where logs are, from time to time."""
        with self._log_disk_errors("saving the recovery points"):
            self.save_checkpoints()

    def save_checkpoints(self) -> None:
        """Saves up to where each log is on the disk, and where it begins.

        :raises DiskError: this could not be done
        """
        points: dict[tuple[str, int], int] = {}
        starts: dict[tuple[str, int], int] = {}
        for name, partition, log in self._logs():
            where = (name, partition)
            if log.offline is not None:  # it may be brought back
                points.update(_pick_offset(where, self._folder.recovery_points))
                starts.update(_pick_offset(where, self._folder.log_start_offsets))
            elif log.has_files:
                points[where] = log.recovery_point
                if log.log_start_offset > 0:
                    starts[where] = log.log_start_offset
        if (points, starts) != (self._folder.recovery_points, self._folder.log_start_offsets):
            self._folder.save_checkpoints(points, starts)

    def forget_checkpoints(self, names: frozenset[str]) -> None:
        """Forgets the checkpoints of these topic names: a topic that is created anew may have the
        name of a deleted one.

        Otherwise its records would count as deleted, or as safe on the disk.

        :raises DiskError: this could not be saved
        """
        folder = self._folder
        points, starts = (
            _drop_topics(names, folder.recovery_points),
            _drop_topics(names, folder.log_start_offsets),
        )
        if (points, starts) != (folder.recovery_points, folder.log_start_offsets):
            folder.save_checkpoints(points, starts)
        cleaned = _drop_topics(names, folder.cleaner_points)
        if cleaned != folder.cleaner_points:
            folder.save_cleaner_points(cleaned)

    # Compaction

    def _schedule_compaction(self, now: int) -> None:
        at = now + self._config.cleaner_backoff
        self._timers.start(("topics", "compaction"), at, self._compact, patient=True)

    def _compact(self, now: int) -> None:
        if self._cleaner.run_step(now):
            self._timers.start(("topics", "compaction"), now + COMPACTION_PAUSE_MS, self._compact)
        else:
            self._schedule_compaction(now)

    def stop_compaction(self, names: frozenset[str]) -> None:
        """Stops compactions of these topics, because their folders are about to be renamed."""
        self._cleaner.remove_topics(names)

    # Flushes by time

    def schedule_flush(self, name: str, partition: int, log: Log, now: int) -> None:
        """The log is flushed when its topic's ``flush.ms`` is over."""
        if (name, partition) not in self._unflushed:
            self._unflushed[name, partition] = log
            self._timers.start(
                ("flush", name, partition),
                now + log.config.flush_interval,
                lambda _: self._flush(name, partition),
            )

    def _flush(self, name: str, partition: int) -> None:
        log = self._unflushed.pop((name, partition), None)
        if log is not None:
            with self._log_disk_errors(f"flushing {name}-{partition}"):
                log.flush()

    def forget_topic(self, name: str, logs: Iterable[Log]) -> None:
        """The topic is deleted: nothing more is done for it."""
        for partition, _ in enumerate(logs):
            self._timers.stop(("flush", name, partition))
            self._unflushed.pop((name, partition), None)

    # Removal of what was deleted

    def schedule_removal(self, folders: Iterable[str], now: int) -> None:
        """Removes folders, a file at a time."""
        self._deleted.extend(folders)
        self._timers.start(("topics", "removal"), now + REMOVAL_PAUSE_MS, self._remove_next)

    def _remove_next(self, at: int) -> None:
        self._remove_one()
        if self._deleted:
            self._timers.start(("topics", "removal"), at + REMOVAL_PAUSE_MS, self._remove_next)

    def _remove_one(self) -> None:
        folder = self._deleted[0]
        try:
            names = self._disk.list_names(folder)
            self._disk.remove(f"{folder}/{names[-1]}" if len(names) > 1 else folder)
        except DiskError as error:
            self._report(f"{folder} is removed at the next start: {error}")
            names = []
        if len(names) <= 1:
            self._deleted.popleft()


def _drop_topics(names: frozenset[str], offsets: PartitionOffsets) -> PartitionOffsets:
    return {where: offset for where, offset in offsets.items() if where[0] not in names}


def _pick_offset(where: tuple[str, int], offsets: PartitionOffsets) -> PartitionOffsets:
    return {where: offsets[where]} if where in offsets else {}
