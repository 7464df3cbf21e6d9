"""Background work on the logs: retention, compaction, flushes, checkpoints, removal of files.

Each kind of work has its own timer. A disk error is logged and the work is retried the next time;
it never ends the broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rota.broker.storage.checkpoint import PartitionOffsets
from rota.broker.storage.disk import Disk, Report
from rota.broker.storage.log import Log
from rota.broker.storage.log_directory import LogDirectory
from rota.broker.timers import Timers
from rota.engine.model.config import BrokerConfig, TopicConfig
from rota.errors import DiskError, FormatError

if TYPE_CHECKING:
    from rota.broker.storage.compaction import CompactionSteps, LogToClean


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageContext:
    disk: Disk
    folder: LogDirectory
    config: BrokerConfig
    defaults: TopicConfig
    timers: Timers
    new_id: Callable[[], bytes]  # returns 16 bytes, different at each call
    report: Report


PartitionLogs: TypeAlias = Callable[[], Iterable[tuple[str, int, Log]]]
REMOVAL_PAUSE_MS = 10  # milliseconds between the removals of two deleted files
COMPACTION_PAUSE_MS = 10  # milliseconds between two steps of a compaction, which take a few each


class LogCleaner:
    """Compacts the logs of a log directory, one after the other, the dirtiest first."""

    def __init__(
        self,
        logs: PartitionLogs,
        folder: LogDirectory,
        report: Report,
        *,
        max_keys: int | None = None,
    ) -> None:
        self._logs = logs
        self._folder = folder
        self._report = report
        self._max_keys = max_keys
        self._partition: tuple[str, int] | None = None
        self._steps: CompactionSteps | None = None
        #: Damaged logs, which are reported once and no longer compacted.
        self._uncleanable: dict[tuple[str, int], Log] = {}

    def run_step(self, now: int) -> bool:
        """Runs one step of compaction; returns False if there is nothing to do for now."""
        if self._steps is None and not self._choose_log(now):
            return False
        steps, partition = self._steps, self._partition
        assert steps is not None
        assert partition is not None
        try:
            next(steps)
        except StopIteration as done:
            self._finish_log()
            if done.value is not None:
                self._save_checkpoint({**self._folder.cleaner_points, partition: done.value})
        except FormatError as error:
            self._mark_uncleanable(partition, error)
            self._finish_log()
        except DiskError as error:
            self._report(f"compaction of {partition[0]}-{partition[1]} failed: {error}")
            self._finish_log()
            return False  # retry later
        return True

    def remove_topics(self, topics: Collection[str]) -> None:
        if self._partition is not None and self._partition[0] in topics:
            self.stop()
        kept = _drop_topics(topics, self._folder.cleaner_points)
        if kept != self._folder.cleaner_points:
            self._save_checkpoint(kept)

    def stop(self) -> None:
        """Stops the running compaction; segments that were already replaced stay replaced."""
        if self._steps is not None:
            self._steps.close()
            self._finish_log()

    def _choose_log(self, now: int) -> bool:
        from rota.broker.storage.compaction import (  # noqa: PLC0415, for a fast start
            MAX_KEYS,
            compact_log,
            inspect_log,
        )

        candidates: list[tuple[float, tuple[str, int], Log, LogToClean]] = []
        for topic, number, log in self._logs():
            partition = (topic, number)
            if not log.config.is_compacted or len(log.segments) < 2 or log.failed is not None:
                continue
            if self._uncleanable.get(partition) is log:
                continue
            try:
                to_clean = inspect_log(log, self._folder.cleaner_points.get(partition), now)
            except FormatError as error:
                self._mark_uncleanable(partition, error)
                continue
            if to_clean.needs_cleaning(log.config.min_cleanable_ratio):
                candidates.append((to_clean.cleanable_ratio, partition, log, to_clean))
        if not candidates:
            return False
        _, self._partition, log, to_clean = max(candidates, key=lambda each: (each[0], each[1]))
        self._steps = compact_log(log, to_clean, now, max_keys=self._max_keys or MAX_KEYS)
        return True

    def _finish_log(self) -> None:
        self._steps = self._partition = None

    def _mark_uncleanable(self, partition: tuple[str, int], error: FormatError) -> None:
        name = f"{partition[0]}-{partition[1]}"
        self._report(f"{name} is damaged and no longer compacted: {error}")
        for topic, number, log in self._logs():
            if (topic, number) == partition:
                self._uncleanable[partition] = log

    def _save_checkpoint(self, points: dict[tuple[str, int], int]) -> None:
        try:
            self._folder.save_cleaner_points(points)
        except DiskError as error:
            self._report(f"saving the cleaner checkpoint failed: {error}")


class LogManager:
    def __init__(self, context: StorageContext, logs: PartitionLogs) -> None:
        self._disk = context.disk
        self._folder = context.folder
        self._config = context.config
        self._timers = context.timers
        self._report = context.report
        self._logs = logs
        self.cleaner = LogCleaner(logs, context.folder, context.report)
        self._unflushed: dict[tuple[str, int], Log] = {}
        self._deleted: deque[str] = deque()

    def start(self, now: int) -> None:
        config = self._config
        self._schedule_periodic("retention", config.retention_check, self.delete_expired, now)
        self._schedule_periodic("checkpoint", config.checkpoint_interval, self.checkpoint, now)
        self._schedule_compaction(now)

    def run_all(self, now: int) -> None:
        for name, partition in tuple(self._unflushed):
            self._flush(name, partition)
        self.delete_expired(now)
        while self.cleaner.run_step(now):
            pass
        while self._deleted:
            self._remove_one()
        self.checkpoint(now)

    def close(self) -> None:
        for name in ("retention", "checkpoint", "compaction", "removal"):
            self._timers.stop(("topics", name))
        self.cleaner.stop()
        for name_and_partition in self._unflushed:
            self._timers.stop(("flush", *name_and_partition))
        self._unflushed.clear()

    def _schedule_periodic(
        self, name: str, interval: int, work: Callable[[int], None], now: int
    ) -> None:
        def run(at: int) -> None:
            work(at)
            self._schedule_periodic(name, interval, work, at)

        self._timers.start(("topics", name), now + interval, run, lenient=True)

    @contextmanager
    def _log_disk_errors(self, operation: str) -> Iterator[None]:
        try:
            yield
        except DiskError as error:
            self._report(f"{operation} failed and is retried later: {error}")

    def delete_expired(self, now: int) -> None:
        for name, partition, log in self._logs():
            with self._log_disk_errors(f"deleting old segments of {name}-{partition}"):
                log.delete_old_segments(now)

    def checkpoint(self, _: int) -> None:
        with self._log_disk_errors("saving the recovery points"):
            self.save_checkpoints()

    def save_checkpoints(self) -> None:
        points: PartitionOffsets = {}
        starts: PartitionOffsets = {}
        saved_points, saved_starts = self._folder.recovery_points, self._folder.log_start_offsets
        for name, number, log in self._logs():
            partition = (name, number)
            if log.offline is not None:  # its folder may come back
                for offsets, saved in ((points, saved_points), (starts, saved_starts)):
                    if partition in saved:
                        offsets[partition] = saved[partition]
            elif log.has_files:
                points[partition] = log.recovery_point
                if log.log_start_offset > 0:
                    starts[partition] = log.log_start_offset
        if (points, starts) != (saved_points, saved_starts):
            self._folder.save_checkpoints(points, starts)

    def forget_checkpoints(self, names: frozenset[str]) -> None:
        """Removes checkpoints of deleted topics, wrong for new topics of these names."""
        folder = self._folder
        points = _drop_topics(names, folder.recovery_points)
        starts = _drop_topics(names, folder.log_start_offsets)
        if (points, starts) != (folder.recovery_points, folder.log_start_offsets):
            folder.save_checkpoints(points, starts)
        cleaned = _drop_topics(names, folder.cleaner_points)
        if cleaned != folder.cleaner_points:
            folder.save_cleaner_points(cleaned)

    def _schedule_compaction(self, now: int) -> None:
        at = now + self._config.cleaner_backoff
        self._timers.start(("topics", "compaction"), at, self._compact, lenient=True)

    def _compact(self, now: int) -> None:
        if self.cleaner.run_step(now):
            self._timers.start(("topics", "compaction"), now + COMPACTION_PAUSE_MS, self._compact)
        else:
            self._schedule_compaction(now)

    def schedule_flush(self, name: str, partition: int, log: Log, now: int) -> None:
        if (name, partition) not in self._unflushed:
            self._unflushed[name, partition] = log
            at = now + log.config.flush_interval
            self._timers.start(
                ("flush", name, partition), at, lambda _: self._flush(name, partition)
            )

    def _flush(self, name: str, partition: int) -> None:
        log = self._unflushed.pop((name, partition), None)
        if log is not None:
            with self._log_disk_errors(f"flushing {name}-{partition}"):
                log.flush()

    def forget_topic(self, name: str, logs: Iterable[Log]) -> None:
        for partition, _ in enumerate(logs):
            self._timers.stop(("flush", name, partition))
            self._unflushed.pop((name, partition), None)

    def schedule_removal(self, folders: Iterable[str], now: int) -> None:
        """Removes folders in the background, one file at a time."""
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
            self._report(f"{folder} will be removed at the next start: {error}")
            names = []
        if len(names) <= 1:
            self._deleted.popleft()


def _drop_topics(names: Collection[str], offsets: PartitionOffsets) -> PartitionOffsets:
    return {each: offset for each, offset in offsets.items() if each[0] not in names}
