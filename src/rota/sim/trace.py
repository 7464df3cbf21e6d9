"""What happened in a world, as plain values in the order it happened."""

from __future__ import annotations

import enum
from typing import NamedTuple


class What(enum.StrEnum):
    """What a record tells of; ``who`` is a process unless said otherwise."""

    STARTED = "started"
    """The detail has the topics and the pattern, as of SUBSCRIBED."""
    LEAVING = "leaving"
    """The application closes its consumer."""
    GONE = "gone"
    """The process has ended in good order."""
    CRASHED = "crashed"
    PAUSED = "paused"
    RESUMED = "resumed"
    STALLED = "stalled"
    """The application stays outside of poll: it is stuck, or its work will take too long."""
    WOKEN = "woken"
    """It polls again."""
    SLOWED = "slowed"
    SUBSCRIBED = "subscribed"
    TOPICS = "topics"
    """The cluster's topics have changed; who is empty, the detail has all counts."""
    IDENTITY = "identity"
    """The process has a new member id."""
    ASKED = "asked"
    """A request has reached the coordinator; heartbeats are left out."""
    ANSWERED = "answered"
    """The coordinator has answered; heartbeats answered 0 are left out."""
    FAILED = "failed"
    """The process has been told that no reply will come."""
    ASSIGNMENT = "assignment"
    WITHHELD = "withheld"
    """Nothing more is read of partitions that are about to be revoked."""
    LISTENER = "listener"
    COMMIT = "commit"
    """The process has been told the outcome of a commit."""
    RAISED = "raised"
    SAID = "said"
    """A member's note."""
    NOTE = "note"
    """A note of the coordinator; who is the group."""
    JOURNAL = "journal"
    """An entry was written; who is the group."""
    COORDINATOR = "coordinator"
    """The coordinator stopped, started to load, or has loaded; who is empty."""


class Record(NamedTuple):
    """One thing that happened."""

    at: int
    what: What
    who: str
    detail: object = None

    def __str__(self) -> str:
        detail = "" if self.detail is None else self.detail
        return f"{self.at:>9} {self.what:<11} {self.who:<12} {detail}"
