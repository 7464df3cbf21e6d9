"""What a broker does for its logs from time to time, each kind by an alarm of its own.

Nothing here may end the broker: what the disk refuses is said, and tried again next time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rota.broker.means import Means
from rota.errors import DiskError
from rota.storage.checkpoint import Offsets
from rota.storage.cleaner import Cleaner
from rota.storage.log import Log

Logs: TypeAlias = Callable[[], Iterator[tuple[str, int, Log]]]
"""All partitions: topic, number, log."""

REMOVAL_PAUSE = 10
"""Between the removals of two deleted files, in milliseconds: other work goes in between."""
CLEANING_PAUSE = 10
"""Between two slices of a compaction, in milliseconds; a slice takes a few."""


class Housekeeping:
    """Retention, compaction, flushes by time, checkpoints, and the removal of what was deleted."""

    def __init__(self, means: Means, logs: Logs) -> None:
        self._disk = means.disk
        self._folder = means.folder
        self._config = means.config
        self._alarms = means.alarms
        self._report = means.report
        self._logs = logs
        self._cleaner = Cleaner(logs, means.folder, means.report)
        self._unflushed: dict[tuple[str, int], Log] = {}
        self._deleted: deque[str] = deque()
        """Folders to be removed."""

    def start(self, now: int) -> None:
        """Sets the first alarms."""
        self._every("retention", self._config.retention_check, self.delete_old, now)
        self._every("checkpoint", self._config.checkpoint_interval, self.checkpoint, now)
        self._clean_later(now)

    def run(self, now: int) -> None:
        """Does everything at once, due or not."""
        for name, partition in tuple(self._unflushed):
            self._flush(name, partition)
        self.delete_old(now)
        while self._cleaner.step(now):
            pass
        while self._deleted:
            self._remove_one()
        self.checkpoint(now)

    def close(self) -> None:
        """Sets no alarm any more."""
        for name in ("retention", "checkpoint", "compaction", "removal"):
            self._alarms.stop(("topics", name))
        self._cleaner.stop()
        for name_and_partition in self._unflushed:
            self._alarms.stop(("flush", *name_and_partition))
        self._unflushed.clear()

    def _every(self, name: str, interval: int, work: Callable[[int], None], now: int) -> None:
        def ring(at: int) -> None:
            work(at)
            self._every(name, interval, work, at)

        self._alarms.start(("topics", name), now + interval, ring, patient=True)

    @contextmanager
    def _said(self, what: str) -> Iterator[None]:
        try:
            yield
        except DiskError as error:
            self._report(f"{what} failed, and is tried again later: {error}")

    # Retention and checkpoints

    def delete_old(self, now: int) -> None:
        """Deletes the segments that no topic has to keep any more."""
        for name, partition, log in self._logs():
            with self._said(f"deleting old segments of {name}-{partition}"):
                log.delete_old(now)

    def checkpoint(self, _: int) -> None:
        """Saves where logs are, from time to time."""
        with self._said("saving the recovery points"):
            self.save_points()

    def save_points(self) -> None:
        """Saves up to where each log is on the disk, and where it begins.

        :raises DiskError: this could not be done
        """
        points: dict[tuple[str, int], int] = {}
        starts: dict[tuple[str, int], int] = {}
        for name, partition, log in self._logs():
            where = (name, partition)
            if log.offline is not None:  # it may be brought back
                points.update(_of(where, self._folder.recovery_points))
                starts.update(_of(where, self._folder.log_starts))
            elif log.made:
                points[where] = log.recovery_point
                if log.start > 0:
                    starts[where] = log.start
        if (points, starts) != (self._folder.recovery_points, self._folder.log_starts):
            self._folder.save_checkpoints(points, starts)

    def forget_points(self, names: frozenset[str]) -> None:
        """Nothing is known any more of deleted topics: those that are made anew have their names.

        Their records would else count as deleted, or as safe on the disk.

        :raises DiskError: this could not be saved
        """
        folder = self._folder
        points, starts = _without(names, folder.recovery_points), _without(names, folder.log_starts)
        if (points, starts) != (folder.recovery_points, folder.log_starts):
            folder.save_checkpoints(points, starts)
        cleaned = _without(names, folder.cleaner_points)
        if cleaned != folder.cleaner_points:
            folder.save_cleaner_points(cleaned)

    # Compaction

    def _clean_later(self, now: int) -> None:
        at = now + self._config.cleaner_backoff
        self._alarms.start(("topics", "compaction"), at, self._clean, patient=True)

    def _clean(self, now: int) -> None:
        if self._cleaner.step(now):
            self._alarms.start(("topics", "compaction"), now + CLEANING_PAUSE, self._clean)
        else:
            self._clean_later(now)

    def stop_cleaning(self, names: frozenset[str]) -> None:
        """The topics' folders are about to go: no compaction is under way in them any more."""
        self._cleaner.forget(names)

    # Flushes by time

    def flush_later(self, name: str, partition: int, log: Log, now: int) -> None:
        """The log is flushed when its topic's ``flush.ms`` is over."""
        if (name, partition) not in self._unflushed:
            self._unflushed[name, partition] = log
            self._alarms.start(
                ("flush", name, partition),
                now + log.config.flush_interval,
                lambda _: self._flush(name, partition),
            )

    def _flush(self, name: str, partition: int) -> None:
        log = self._unflushed.pop((name, partition), None)
        if log is not None:
            with self._said(f"flushing {name}-{partition}"):
                log.flush()

    def forget(self, name: str, logs: Iterable[Log]) -> None:
        """The topic is deleted: nothing more is done for it."""
        for partition, _ in enumerate(logs):
            self._alarms.stop(("flush", name, partition))
            self._unflushed.pop((name, partition), None)

    # Removal of what was deleted

    def remove_later(self, folders: Iterable[str], now: int) -> None:
        """Removes folders, a file at a time."""
        self._deleted.extend(folders)
        self._alarms.start(("topics", "removal"), now + REMOVAL_PAUSE, self._remove_next)

    def _remove_next(self, at: int) -> None:
        self._remove_one()
        if self._deleted:
            self._alarms.start(("topics", "removal"), at + REMOVAL_PAUSE, self._remove_next)

    def _remove_one(self) -> None:
        folder = self._deleted[0]
        try:
            names = self._disk.names(folder)
            self._disk.remove(f"{folder}/{names[-1]}" if len(names) > 1 else folder)
        except DiskError as error:
            self._report(f"{folder} is removed at the next start: {error}")
            names = []
        if len(names) <= 1:
            self._deleted.popleft()


def _without(names: frozenset[str], offsets: Offsets) -> Offsets:
    return {where: offset for where, offset in offsets.items() if where[0] not in names}


def _of(where: tuple[str, int], offsets: Offsets) -> Offsets:
    return {where: offsets[where]} if where in offsets else {}
