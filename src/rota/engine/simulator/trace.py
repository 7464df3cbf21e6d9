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

    STARTED = "started"  # the detail has the topics and the pattern, as for SUBSCRIBED
    LEAVING = "leaving"
    GONE = "gone"  # the process closed its consumer and ended
    CRASHED = "crashed"
    PAUSED = "paused"
    RESUMED = "resumed"
    STALLED = "stalled"  # the application stays outside of poll
    WOKEN = "woken"
    SLOWED = "slowed"
    SUBSCRIBED = "subscribed"
    TOPICS = "topics"  # the topics changed; the subject is empty, the detail has all counts
    IDENTITY = "identity"
    ASKED = "asked"  # a request reached the coordinator; without heartbeats
    ANSWERED = "answered"  # the coordinator responded; without successful heartbeats
    FAILED = "failed"  # the connection closed before the response
    ASSIGNMENT = "assignment"
    WITHHELD = "withheld"  # the process stops reading partitions before they are revoked
    LISTENER = "listener"
    COMMIT = "commit"
    RAISED = "raised"
    SAID = "said"
    NOTE = "note"  # a note of the coordinator; the subject is the group
    JOURNAL = "journal"  # an entry was written; the subject is the group
    COORDINATOR = "coordinator"  # it stopped, started to load, or has loaded; empty subject


class TraceRecord(NamedTuple):
    at: int
    type: TraceEventType
    subject: str
    detail: object = None

    def __str__(self) -> str:
        detail = "" if self.detail is None else self.detail
        return f"{self.at:>9} {self.type:<11} {self.subject:<12} {detail}"
