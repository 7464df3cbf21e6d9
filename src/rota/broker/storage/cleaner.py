"""The log cleaner: chooses which log is compacted next, and compacts it step by step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, TypeAlias

from rota.broker.storage.log import Log
from rota.broker.storage.log_directory import LogDirectory
from rota.errors import DiskError, FormatError

if TYPE_CHECKING:
    from rota.broker.storage.compaction import CompactionSteps, LogToClean

#: A topic and a partition's number.
PartitionKey: TypeAlias = tuple[str, int]

ListLogs: TypeAlias = Callable[[], Iterable[tuple[str, int, Log]]]


class LogCleaner:
    """Compacts the logs of a log directory, one after the other, the dirtiest first."""

    def __init__(
        self,
        logs: ListLogs,
        folder: LogDirectory,
        report: Callable[[str], None],
        *,
        most_keys: int | None = None,
    ) -> None:
        """:param logs: gives all of them: topic, partition, log."""
        self._logs = logs
        self._folder = folder
        self._report = report
        self._most_keys = most_keys
        self._partition: PartitionKey | None = None
        self._steps: CompactionSteps | None = None
        #: These are left alone: damage is told of once.
        self._uncleanable: dict[PartitionKey, Log] = {}

    def run_step(self, now: int) -> bool:
        """Runs one step of compaction; returns False if there is nothing to do for now."""
        if self._steps is None and not self._choose_log(now):
            return False
        work, where = self._steps, self._partition
        assert work is not None
        assert where is not None
        try:
            next(work)
        except StopIteration as done:
            self._finish_log()
            if done.value is not None:
                self._save_checkpoint({**self._folder.cleaner_points, where: done.value})
        except FormatError as error:
            self._mark_uncleanable(where, error)
            self._finish_log()
        except DiskError as error:
            self._report(f"compaction of {where[0]}-{where[1]} failed: {error}")
            self._finish_log()
            return False  # not again at once
        return True

    def remove_topics(self, topics: Collection[str]) -> None:
        """Stops compaction of deleted topics, and removes their checkpoints."""
        if self._partition is not None and self._partition[0] in topics:
            self.stop()
        points = self._folder.cleaner_points
        left = {where: point for where, point in points.items() if where[0] not in topics}
        if len(left) < len(points):
            self._save_checkpoint(left)

    def stop(self) -> None:
        """Stops the running compaction; segments that were already replaced stay replaced."""
        if self._steps is not None:
            self._steps.close()
            self._finish_log()

    def _choose_log(self, now: int) -> bool:
        from rota.broker.storage.compaction import (  # noqa: PLC0415 (a start does without it)
            MAX_KEYS,
            compact_log,
            inspect_log,
        )

        found: list[tuple[float, PartitionKey, Log, LogToClean]] = []
        for topic, partition, log in self._logs():
            where = (topic, partition)
            if not log.config.is_compacted or len(log.segments) < 2 or log.failed is not None:
                continue
            if self._uncleanable.get(where) is log:
                continue
            try:
                dirt = inspect_log(log, self._folder.cleaner_points.get(where), now)
            except FormatError as error:
                self._mark_uncleanable(where, error)
                continue
            if dirt.needs_cleaning(log.config.min_cleanable_ratio):
                found.append((dirt.cleanable_ratio, where, log, dirt))
        if not found:
            return False
        _, self._partition, log, dirt = max(found, key=lambda each: (each[0], each[1]))
        self._steps = compact_log(log, dirt, now, most_keys=self._most_keys or MAX_KEYS)
        return True

    def _finish_log(self) -> None:
        self._steps = self._partition = None

    def _mark_uncleanable(self, where: PartitionKey, error: FormatError) -> None:
        self._report(f"{where[0]}-{where[1]} is not compacted any more, it is damaged: {error}")
        for topic, partition, log in self._logs():
            if (topic, partition) == where:
                self._uncleanable[where] = log

    def _save_checkpoint(self, points: dict[PartitionKey, int]) -> None:
        try:
            self._folder.save_cleaner_points(points)
        except DiskError as error:
            self._report(f"saving up to where logs are compacted failed: {error}")
