"""Chooses which log is compacted next, and does it slice by slice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, TypeAlias

from rota.errors import DiskError, FormatError
from rota.storage.folder import Folder
from rota.storage.log import Log

if TYPE_CHECKING:  # a broker that starts has nothing to compact
    from rota.storage.compaction import Dirt, Work

Where: TypeAlias = tuple[str, int]
"""A topic and a partition's number."""
Logs: TypeAlias = Callable[[], Iterable[tuple[str, int, Log]]]


class Cleaner:
    """Compacts the logs of a folder, one after the other, the dirtiest first."""

    def __init__(
        self,
        logs: Logs,
        folder: Folder,
        report: Callable[[str], None],
        *,
        most_keys: int | None = None,
    ) -> None:
        """:param logs: gives all of them: topic, partition, log."""
        self._logs = logs
        self._folder = folder
        self._report = report
        self._most_keys = most_keys
        self._at: Where | None = None
        self._work: Work | None = None
        self._damaged: dict[Where, Log] = {}
        """These are left alone: damage is told of once."""

    def step(self, now: int) -> bool:
        """Does a slice of work; False: there is nothing to do for now."""
        if self._work is None and not self._begin(now):
            return False
        work, where = self._work, self._at
        assert work is not None
        assert where is not None
        try:
            next(work)
        except StopIteration as done:
            self._end()
            if done.value is not None:
                self._save({**self._folder.cleaner_points, where: done.value})
        except FormatError as error:
            self._leave(where, error)
            self._end()
        except DiskError as error:
            self._report(f"compaction of {where[0]}-{where[1]} failed: {error}")
            self._end()
            return False  # not again at once
        return True

    def forget(self, topics: Collection[str]) -> None:
        """Topics are deleted: what is under way in them ends, and no point of them is kept."""
        if self._at is not None and self._at[0] in topics:
            self.stop()
        points = self._folder.cleaner_points
        left = {where: point for where, point in points.items() if where[0] not in topics}
        if len(left) < len(points):
            self._save(left)

    def stop(self) -> None:
        """Ends what is under way; the log is as it was."""
        if self._work is not None:
            self._work.close()
            self._end()

    def _begin(self, now: int) -> bool:
        from rota.storage.compaction import MOST_KEYS, compact, look  # noqa: PLC0415

        found: list[tuple[float, Where, Log, Dirt]] = []
        for topic, partition, log in self._logs():
            where = (topic, partition)
            if not log.config.compacted or len(log.segments) < 2 or log.failed is not None:
                continue
            if self._damaged.get(where) is log:
                continue
            try:
                dirt = look(log, self._folder.cleaner_points.get(where), now)
            except FormatError as error:
                self._leave(where, error)
                continue
            if dirt.worth(log.config.min_cleanable_ratio):
                found.append((dirt.ratio, where, log, dirt))
        if not found:
            return False
        _, self._at, log, dirt = max(found, key=lambda each: (each[0], each[1]))
        self._work = compact(log, dirt, now, most_keys=self._most_keys or MOST_KEYS)
        return True

    def _end(self) -> None:
        self._work = self._at = None

    def _leave(self, where: Where, error: FormatError) -> None:
        self._report(f"{where[0]}-{where[1]} is not compacted any more, it is damaged: {error}")
        for topic, partition, log in self._logs():
            if (topic, partition) == where:
                self._damaged[where] = log

    def _save(self, points: dict[Where, int]) -> None:
        try:
            self._folder.save_cleaner_points(points)
        except DiskError as error:
            self._report(f"saving up to where logs are compacted failed: {error}")
