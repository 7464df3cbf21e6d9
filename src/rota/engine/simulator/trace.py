"""The trace: all events of a world as plain values, in order."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

from rota.engine.coordinator.kafka_log import format_note
from rota.engine.coordinator.notes import GroupNote


class SimulatedLogLine(NamedTuple):
    at: int
    group: str
    text: str


def list_log_lines(trace: Iterable[TraceRecord]) -> list[SimulatedLogLine]:
    """Returns the lines that a broker of Kafka 4.3 would have logged about all groups, in order."""
    return [
        SimulatedLogLine(record.at, record.subject, text)
        for record in trace
        if isinstance(record.detail, GroupNote)
        for text in format_note(record.detail)
    ]


class TraceEventType(enum.StrEnum):
    """The type of a trace record; its subject is a process unless the comment says otherwise."""

    #: The detail has the topics and the pattern, as for SUBSCRIBED.
    STARTED = "started"
    #: The application closes its consumer.
    LEAVING = "leaving"
    #: The process closed its consumer and ended.
    GONE = "gone"
    CRASHED = "crashed"
    PAUSED = "paused"
    RESUMED = "resumed"
    #: The application stays outside of poll.
    STALLED = "stalled"
    #: The application polls again.
    WOKEN = "woken"
    SLOWED = "slowed"
    SUBSCRIBED = "subscribed"
    #: The topics changed; the subject is empty, the detail has all counts.
    TOPICS = "topics"
    #: The process has a new member id.
    IDENTITY = "identity"
    #: A request reached the coordinator; without heartbeats.
    ASKED = "asked"
    #: The coordinator responded; without successful heartbeats.
    ANSWERED = "answered"
    #: The connection closed before the response.
    FAILED = "failed"
    ASSIGNMENT = "assignment"
    #: The process stops reading partitions before they are revoked.
    WITHHELD = "withheld"
    LISTENER = "listener"
    #: The result of a commit.
    COMMIT = "commit"
    RAISED = "raised"
    #: A member's note.
    SAID = "said"
    #: A note of the coordinator; the subject is the group.
    NOTE = "note"
    #: An entry was written; the subject is the group.
    JOURNAL = "journal"
    #: The coordinator stopped, started to load, or has loaded; the subject is empty.
    COORDINATOR = "coordinator"


class TraceRecord(NamedTuple):
    at: int
    type: TraceEventType
    subject: str
    detail: object = None

    def __str__(self) -> str:
        detail = "" if self.detail is None else self.detail
        return f"{self.at:>9} {self.type:<11} {self.subject:<12} {detail}"
