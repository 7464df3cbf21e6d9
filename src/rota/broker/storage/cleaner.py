"""The log cleaner: chooses which log is compacted next, and compacts it step by step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, TypeAlias

from rota.broker.storage.disk import Report
from rota.broker.storage.log import Log
from rota.broker.storage.log_directory import LogDirectory
from rota.errors import DiskError, FormatError

if TYPE_CHECKING:
    from rota.broker.storage.compaction import CompactionSteps, LogToClean

#: Returns topic, partition and log of every partition.
ListLogs: TypeAlias = Callable[[], Iterable[tuple[str, int, Log]]]


class LogCleaner:
    """Compacts the logs of a log directory, one after the other, the dirtiest first."""

    def __init__(
        self, logs: ListLogs, folder: LogDirectory, report: Report, *, max_keys: int | None = None
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
        """Stops compaction of deleted topics, and removes their checkpoints."""
        if self._partition is not None and self._partition[0] in topics:
            self.stop()
        points = self._folder.cleaner_points
        kept = {each: offset for each, offset in points.items() if each[0] not in topics}
        if len(kept) < len(points):
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
