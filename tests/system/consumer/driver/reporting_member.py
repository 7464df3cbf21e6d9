"""A member that hands out records, commits, and tells what it does as it does it.

Its news are lines ``{"member": "m-1", "kind": "assigned", "at": 12.5, ...}``; the parent makes the
events of tests/system/consumer/history.py of them. Times are of the monotonic clock, which all
processes of a machine share.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tests.support.clients.driver.base import VOICE, Member, describe

#: Seconds that a poll may take.
TURN = 0.1


class FetchedRecord(NamedTuple):
    """A record, as an application sees it."""

    topic: str
    partition: int
    offset: int
    value: str


Place = tuple[str, int]


class ReportingMember(Member):
    """A consumer in a thread of its own.

    ``commits`` is ``each`` (synchronous, after the records of each poll), ``auto`` or ``never``.
    """

    def __init__(
        self,
        name: str,
        settings: Mapping[str, Any],
        *,
        topics: list[str] | None = None,
        pattern: str | None = None,
        strategies: list[str] | None = None,
        commits: str = "each",
        tell: Callable[[dict[str, Any]], None] = VOICE.say,
    ) -> None:
        super().__init__()
        self.name = name
        self.settings = {**settings, "enable.auto.commit": commits == "auto"}
        self.topics = topics or []
        self.pattern = pattern
        self.strategies = strategies
        self.owned: set[Place] = set()
        self._commits = commits
        self._tell = tell

    # What a library does

    @abstractmethod
    def fetch(self) -> list[FetchedRecord]:
        """One poll."""

    @abstractmethod
    def store(self, offsets: dict[Place, int]) -> None:
        """Commit, and wait."""

    @abstractmethod
    def generation(self) -> int:
        """The generation that the member belongs to; -1 if it cannot be known."""

    # What it tells

    def report(self, kind: str, **facts: Any) -> None:
        """News."""
        self._tell({"member": self.name, "kind": kind, "at": time.monotonic(), **facts})

    def assigned(self, partitions: Iterable[Place]) -> None:
        """For the library's listener."""
        given = sorted(partitions)
        self.owned |= set(given)
        self.report("assigned", generation=self.generation(), partitions=given)

    def revoked(self, partitions: Iterable[Place], *, lost: bool = False) -> None:
        """For the library's listener."""
        taken = sorted(partitions)
        self.owned -= set(taken)
        if taken:
            self.report("revoked", partitions=taken, lost=lost)

    def _run(self) -> None:
        super()._run()
        if self.seen.error is not None:
            self.report("failed", error=self.seen.error)

    def poll(self) -> None:
        """Hands out what there is, and commits."""
        self.deliver_records(self.fetch())

    def deliver_records(self, records: list[FetchedRecord]) -> None:
        """To an application that commits when it is done with them."""
        if not records:
            return
        rows = [[*each[:3], each.value.rstrip()] for each in records]  # some values are padded
        self.report("handed", records=rows)
        if self._commits == "each":
            self.try_commit({(each.topic, each.partition): each.offset + 1 for each in records})

    def try_commit(self, offsets: dict[Place, int]) -> str | None:
        """Commit, and tell how it went; the error, if there was one."""
        began, error = time.monotonic(), None
        try:
            self.store(offsets)
        except Exception as refused:  # noqa: BLE001 - told; the next owner handles them again
            error = describe(refused)
        listed = [[*place, offset] for place, offset in offsets.items()]
        self.report("committed", began=began, offsets=listed, error=error)
        return error

    def commit_now(self) -> None:
        """Not asked for: a noted member commits by itself."""
        raise NotImplementedError

    def commit_later(self) -> None:
        """Not asked for either."""
        raise NotImplementedError

    def _close(self) -> None:
        super()._close()
        self.report("ended")
