"""The trace: what happened in a world, as plain values in the order in which it happened."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rota.engine.coordinator.events import Happened
from rota.engine.coordinator.kafka_log import GroupLog
from rota.engine.model.journal_entry import GroupMetadataEntry
from rota.engine.model.response import JoinGroupResult

# The log lines are worded as those of Kafka 4.3, so that a reader of a broker's log reads them too.
# The members stand for Java's consumers, so their reasons are Java's.


class SimulatedLogLine(NamedTuple):
    at: int
    group: str
    text: str


def list_log_lines(trace: Iterable[TraceRecord]) -> list[SimulatedLogLine]:
    """Returns the broker's log lines about all groups of a world, in order."""
    groups: dict[str, GroupLog] = {}
    found: list[SimulatedLogLine] = []
    asked: dict[str, str] = {}
    for record in trace:
        group: str | None = None
        match record.type:
            case TraceEventType.STARTED:
                continue
            case TraceEventType.ASKED:
                asked[record.subject] = getattr(record.detail, "group", "")
                continue
            case TraceEventType.ANSWERED:
                group = asked.get(record.subject)
            case TraceEventType.NOTE | TraceEventType.JOURNAL:
                group = record.subject
            case TraceEventType.COORDINATOR:
                if record.detail == "loaded":
                    for name, known in groups.items():
                        found.append(SimulatedLogLine(record.at, name, known.log_loaded()))
                continue
            case _:
                continue
        if group is not None:
            known = groups.setdefault(group, GroupLog(group))
            found += [
                SimulatedLogLine(record.at, group, text) for text in _log_record(known, record)
            ]
    return found


def _log_record(group: GroupLog, record: TraceRecord) -> Iterator[str]:
    match record.type:
        case TraceEventType.NOTE:
            assert isinstance(record.detail, tuple)
            what, generation, text = record.detail
            yield from group.log_note(Happened(what), generation, text)
        case TraceEventType.JOURNAL if isinstance(record.detail, GroupMetadataEntry):
            group.saved(record.detail)
        case TraceEventType.ANSWERED if isinstance(record.detail, JoinGroupResult):
            yield from group.log_join_reply(record.detail)
        case _:
            pass


class TraceEventType(enum.StrEnum):
    """The type of a trace record; its subject is a process unless the comment says otherwise."""

    #: The detail has the topics and the pattern, as of SUBSCRIBED.
    STARTED = "started"
    #: The application closes its consumer.
    LEAVING = "leaving"
    #: The process has ended in good order.
    GONE = "gone"
    CRASHED = "crashed"
    PAUSED = "paused"
    RESUMED = "resumed"
    #: The application stays outside of poll.
    STALLED = "stalled"
    #: It polls again.
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
