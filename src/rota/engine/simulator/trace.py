"""The trace: what happened in a world, as plain values in the order in which it happened."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rota.engine.coordinator.events import Happened
from rota.engine.coordinator.kafka_log import GroupLog
from rota.engine.model.journal_entry import GroupMetadataEntry
from rota.engine.model.response import JoinGroupResult

# What a broker of Kafka 4.3 would have logged about a group, in its own words.
#
# Made of a world's trace: the coordinator's notes say what happened and why, and here it is worded
# as Kafka's group coordinator words it, so that whatever reads a broker's log reads this one too.
# The members stand for Java's consumers, so their reasons are put into the words of those.


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
    #: The application stays outside of poll: it is stuck, or its work will take too long.
    STALLED = "stalled"
    #: It polls again.
    WOKEN = "woken"
    SLOWED = "slowed"
    SUBSCRIBED = "subscribed"
    #: The cluster's topics have changed; who is empty, the detail has all counts.
    TOPICS = "topics"
    #: The process has a new member id.
    IDENTITY = "identity"
    #: A request has reached the coordinator; heartbeats are left out.
    ASKED = "asked"
    #: The coordinator has answered; heartbeats answered 0 are left out.
    ANSWERED = "answered"
    #: The process has been told that no reply will come.
    FAILED = "failed"
    ASSIGNMENT = "assignment"
    #: Nothing more is read of partitions that are about to be revoked.
    WITHHELD = "withheld"
    LISTENER = "listener"
    #: The process has been told the outcome of a commit.
    COMMIT = "commit"
    RAISED = "raised"
    #: A member's note.
    SAID = "said"
    #: A note of the coordinator; who is the group.
    NOTE = "note"
    #: An entry was written; who is the group.
    JOURNAL = "journal"
    #: The coordinator stopped, started to load, or has loaded; who is empty.
    COORDINATOR = "coordinator"


class TraceRecord(NamedTuple):
    at: int
    type: TraceEventType
    subject: str
    detail: object = None

    def __str__(self) -> str:
        detail = "" if self.detail is None else self.detail
        return f"{self.at:>9} {self.type:<11} {self.subject:<12} {detail}"
