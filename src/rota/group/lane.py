"""In what order a group's work is done while entries of it are being appended.

Work that changes a group waits until the change before it is stored, so that no handler meets a
group in between. Commits change nothing but offsets: they do not wait for each other, and nothing
waits for them but what removes offsets, which must know them all. What only reads, and heartbeats,
never wait. Work that waits is done in the order it came.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from rota.group.turn import Turn

Run: TypeAlias = Callable[[Turn], None]


class Work(enum.Enum):
    """What a piece of work does to its group."""

    COMMIT = "commit"
    CHANGE = "change"
    REMOVAL = "removal"


class Lane:
    """What is under way for one group, and what waits for it."""

    __slots__ = ("changing", "commits", "queue")

    def __init__(self) -> None:
        self.commits = 0
        """Appends of offsets under way."""
        self.changing = False
        """Any other append is under way."""
        self.queue: deque[tuple[Work, Run]] = deque()

    @property
    def idle(self) -> bool:
        """Nothing is under way, nothing waits."""
        return not (self.commits or self.changing or self.queue)

    def admits(self, work: Work) -> bool:
        """Whether such work may be done now, if nothing is queued before it."""
        return not self.changing and not (work is Work.REMOVAL and self.commits)
