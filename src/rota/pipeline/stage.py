"""What a run does, and who is told of it."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Stage(enum.StrEnum):
    """What a run does, in this order."""

    FIND = "finding the journal"
    START = "starting Spark"
    EVIDENCE = "reading logs"
    JOURNAL = "reading the journal"
    COMMITS = "decoding commits"
    ENDS = "reading log ends"
    GROUPS = "decoding groups"
    REBALANCES = "explaining rebalances"
    LAG = "computing lag"
    WHATIF = "replaying other policies"
    PUBLISH = "showing the tables"


class Progress(Protocol):
    """Who is told how far a run is."""

    def began(self, stage: Stage) -> None:
        """The stage begins."""

    def ended(self, stage: Stage, note: str) -> None:
        """The stage is done; what came of it."""


@contextmanager
def stage(progress: Progress, stage: Stage) -> Iterator[list[str]]:
    """Tells of a stage; what is added to the list is said of it at the end."""
    progress.began(stage)
    note: list[str] = []
    yield note
    progress.ended(stage, "; ".join(note))
