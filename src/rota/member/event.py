"""What reaches a member, and what it wants done."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from rota.assignors.interface import Assignor
from rota.model.membership import GroupSubscription
from rota.model.offset import OffsetAndMetadata
from rota.model.reply import Reply
from rota.model.request import Request
from rota.model.topic import Cluster, TopicPartition


class Timer(enum.Enum):
    """A member's timers; to start one that runs is to move it."""

    HEARTBEAT = "heartbeat"
    """Time for the next heartbeat."""
    SESSION = "session"
    """No heartbeat has been answered for a session: the coordinator may be gone."""
    POLL = "poll"
    """The application has not polled for ``max.poll.interval.ms``."""
    RETRY = "retry"
    """Time to try again what failed."""
    COMMIT = "commit"
    """Time for the next automatic commit."""
    SYNC_COMMIT = "sync commit"
    """Time to try a synchronous commit again, or to give it up."""
    DEADLINE = "deadline"
    """Time to go on without the commit before a revocation, or to close without more ado."""
    ASSIGN = "assign"
    """The strategy has had all the time that the group gives it."""

    __hash__ = object.__hash__  # each poll looks up timers, and Enum's own is slow


# Events


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The application wants these topics, or all whose name matches a pattern as a whole."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The application wants nothing any more; the member leaves."""


@dataclass(frozen=True, slots=True)
class MetadataUpdated:
    """What topics there are now."""

    cluster: Cluster


@dataclass(frozen=True, slots=True)
class PollBegan:
    """The application is inside ``poll``: listeners and callbacks may run."""


@dataclass(frozen=True, slots=True)
class PollEnded:
    """The application left ``poll``, with records to work on."""


@dataclass(frozen=True, slots=True)
class CoordinatorFound:
    """The group's coordinator is known and can be reached."""


@dataclass(frozen=True, slots=True)
class CoordinatorMissing:
    """The coordinator could not be found this time."""

    error: Exception | None = None
    """Why it will not be found the next time either: credentials, permissions. None: it may be."""
    why: str = ""
    """What is known of a trouble that may pass, such as which address did not answer."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The reply to a :class:`Send`."""

    request_id: int
    reply: Reply


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """No reply will come: the connection broke, or took too long."""

    request_id: int
    error: Exception | None = None
    """Why it would fail again, too: the broker does not know such requests. None: it may not."""
    why: str = ""
    """What is known of a trouble that may pass."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that was started, and neither stopped nor moved since, is due."""

    timer: Timer


@dataclass(frozen=True, slots=True)
class ListenerReturned:
    """A :class:`CallListener` is done."""

    call_id: int
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class AssignmentMade:
    """A :class:`MakeAssignment` is done."""

    number: int
    assignments: Mapping[str, bytes] = field(default_factory=dict)
    """For each member."""
    notes: tuple[str, ...] = ()
    """What a person should know of it."""
    error: Exception | None = None
    """Why there is none."""


@dataclass(frozen=True, slots=True)
class CommitAsked:
    """The application commits; it ends in :class:`FinishCommit` if it waits, else in a callback.

    Without offsets: the positions after what was handed out.
    """

    commit_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    waits_until: int | None = None
    """For a synchronous commit, until when it may be tried."""


@dataclass(frozen=True, slots=True)
class RejoinAsked:
    """The application wants a rebalance; the next poll joins again."""

    reason: str


@dataclass(frozen=True, slots=True)
class CloseAsked:
    """The application is done; :class:`Finished` will say when it may go."""

    waits_until: int | None = None
    """Until when to try to commit, to leave and to hear of it; None: each once."""


Event: TypeAlias = (
    Subscribed
    | Unsubscribed
    | MetadataUpdated
    | PollBegan
    | PollEnded
    | CoordinatorFound
    | CoordinatorMissing
    | Answered
    | RequestFailed
    | TimerFired
    | ListenerReturned
    | AssignmentMade
    | CommitAsked
    | RejoinAsked
    | CloseAsked
)


# Commands


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Find the group's coordinator, then say :class:`CoordinatorFound` or ``Missing``.

    Whatever was sent to the one before and is not answered has been given up: its connection may be
    closed, and an answer or a failure that still comes is ignored.
    """


@dataclass(frozen=True, slots=True)
class Send:
    """Send this to the coordinator, then say :class:`Answered` or :class:`RequestFailed`.

    A join is answered when the group's join phase ends, so it may take as long as its rebalance
    timeout; every other request is given up after ``request.timeout.ms``.
    """

    request_id: int
    request: Request


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Send :class:`TimerFired` at this time; the same timer, if it runs, is moved."""

    timer: Timer
    at: int


@dataclass(frozen=True, slots=True)
class StopTimer:
    """Forget this timer, if it runs."""

    timer: Timer


class Call(enum.Enum):
    """A listener's methods."""

    REVOKED = "on_partitions_revoked"
    ASSIGNED = "on_partitions_assigned"
    LOST = "on_partitions_lost"


@dataclass(frozen=True, slots=True)
class CallListener:
    """Call the application's rebalance listener, then say :class:`ListenerReturned`."""

    call_id: int
    call: Call
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class MakeAssignment:
    """Run the strategy for the whole group, then say :class:`AssignmentMade`.

    A strategy is anybody's code and may take long: heartbeats must go on meanwhile. One at a time,
    for strategies remember things. See :func:`rota.member.leader.make`.
    """

    number: int
    assignor: Assignor
    cluster: Cluster
    group: GroupSubscription
    notes: tuple[str, ...] = ()
    """What is to be told beside the strategy's own notes."""


@dataclass(frozen=True, slots=True)
class Withhold:
    """Hand out no more records of these: they are about to be revoked.

    Otherwise what is handed out while the commit before the revocation is under way would be read
    again by the next owner. The next :class:`SetAssignment` ends it.
    """

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class SetAssignment:
    """From now on these partitions, and no others, are this member's to read."""

    partitions: tuple[TopicPartition, ...]
    generation: int


@dataclass(frozen=True, slots=True)
class FinishCommit:
    """A synchronous commit is over: return, or raise."""

    commit_id: int
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class RunCallback:
    """An asynchronous commit is over: run its callback, or log if it has none."""

    commit_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class CallInterceptors:
    """Tell the interceptors that these offsets are committed."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class RequestMetadata:
    """Fetch the metadata of these topics, or of all, then say :class:`MetadataUpdated`.

    However long it takes: a pattern is not joined for, and a leader does not assign, before. Later
    updates should cover the same topics.
    """

    topics: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise this from the application's ``poll``, or from its close or unsubscription under way.

    At most one in each poll, which ends by it. What was refused for good is tried again by the next
    poll, if the application polls again.
    """

    error: Exception


@dataclass(frozen=True, slots=True)
class Note:
    """For the log."""

    text: str
    warns: bool = False
    """Somebody should look at it."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The member has done all it had to do before the application may close."""


Command: TypeAlias = (
    FindCoordinator
    | Send
    | StartTimer
    | StopTimer
    | MakeAssignment
    | CallListener
    | Withhold
    | SetAssignment
    | FinishCommit
    | RunCallback
    | CallInterceptors
    | RequestMetadata
    | Raise
    | Note
    | Finished
)
