"""Events that a member handles, and commands that it returns."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from rota.engine.assignors.interface import Assignor
from rota.engine.model.member import GroupSubscription
from rota.engine.model.request import GroupRequest
from rota.engine.model.response import GroupResponse
from rota.engine.model.topic import Cluster, OffsetAndMetadata, TopicPartition


class MemberTimer(enum.Enum):
    """A member's timers. Starting a timer that runs moves it."""

    HEARTBEAT = "heartbeat"  # the next heartbeat is due
    SESSION = "session"  # no heartbeat response for a session: is the coordinator down?
    POLL = "poll"  # the application has not polled for ``max.poll.interval.ms``
    RETRY = "retry"  # a failed request may be retried
    COMMIT = "commit"  # the next automatic commit is due
    SYNC_COMMIT = "sync commit"  # the next retry or the deadline of a synchronous commit
    DEADLINE = "deadline"  # the deadline of the commit before a revocation, or of a close
    ASSIGN = "assign"  # the leader's strategy has taken ``max.poll.interval.ms``

    __hash__ = object.__hash__  # each poll looks up timers, and Enum's own is slow


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The application subscribes to topics, or to all topics that match a pattern."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The application unsubscribes; the member leaves the group."""


@dataclass(frozen=True, slots=True)
class MetadataUpdated:
    cluster: Cluster


@dataclass(frozen=True, slots=True)
class PollBegan:
    """The application is inside ``poll``: listeners and callbacks may run."""


@dataclass(frozen=True, slots=True)
class PollEnded:
    """The application left ``poll`` and processes the records."""


@dataclass(frozen=True, slots=True)
class CoordinatorFound:
    """The group's coordinator is known and can be reached."""


@dataclass(frozen=True, slots=True)
class CoordinatorNotFound:
    """The coordinator could not be found this time."""

    error: Exception | None = None  # permanent, as wrong credentials; None: a retry may help
    why: str = ""  # a temporary problem, such as an address that does not respond


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The response to a :class:`SendRequest`."""

    request_id: int
    response: GroupResponse


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """No response will come: the connection broke, or the request timed out."""

    request_id: int
    #: A permanent problem, such as an API that the broker lacks; None: a retry may succeed.
    error: Exception | None = None
    why: str = ""  # a temporary problem


@dataclass(frozen=True, slots=True)
class MemberTimerFired:
    timer: MemberTimer


@dataclass(frozen=True, slots=True)
class ListenerReturned:
    call_id: int
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class AssignmentComputed:
    """The result of a :class:`ComputeAssignment`."""

    assignment_id: int
    assignments: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: Exception | None = None  # why there is no assignment


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """The application commits, by default the positions after the records that it got. Results in a
    :class:`FinishSyncCommit`, or in a :class:`RunCommitCallback` if it is asynchronous.
    """

    commit_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    deadline: int | None = None  # for a synchronous commit, until when it may be tried


@dataclass(frozen=True, slots=True)
class RejoinRequested:
    """The application wants a rebalance; the next poll joins again."""

    reason: str


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """The application closes the consumer; :class:`FinishClose` follows when the member is done."""

    deadline: int | None = None  # of the commit and LeaveGroup; None: one try each, no wait


MemberEvent: TypeAlias = (
    Subscribed
    | Unsubscribed
    | MetadataUpdated
    | PollBegan
    | PollEnded
    | CoordinatorFound
    | CoordinatorNotFound
    | ResponseReceived
    | RequestFailed
    | MemberTimerFired
    | ListenerReturned
    | AssignmentComputed
    | CommitRequested
    | RejoinRequested
    | CloseRequested
)


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Find the coordinator, then send :class:`CoordinatorFound` or ``CoordinatorNotFound``."""


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send this request to the coordinator, then report the response or :class:`RequestFailed`: of
    JoinGroup after the rebalance timeout, of others after ``request.timeout.ms``.
    """

    request_id: int
    request: GroupRequest


@dataclass(frozen=True, slots=True)
class StartMemberTimer:
    """Send :class:`MemberTimerFired` at this time; a running timer is moved."""

    timer: MemberTimer
    due_at: int


@dataclass(frozen=True, slots=True)
class StopMemberTimer:
    """Forget this timer, if it runs."""

    timer: MemberTimer


class ListenerMethod(enum.Enum):
    REVOKED = "on_partitions_revoked"
    ASSIGNED = "on_partitions_assigned"
    LOST = "on_partitions_lost"


@dataclass(frozen=True, slots=True)
class CallListener:
    """Call the application's rebalance listener, then send :class:`ListenerReturned`."""

    call_id: int
    method: ListenerMethod
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ComputeAssignment:
    """Run :func:`rota.engine.member.classic.compute_assignment`, one at a time while heartbeats
    continue, then send :class:`AssignmentComputed`.
    """

    assignment_id: int
    assignor: Assignor
    cluster: Cluster
    group: GroupSubscription
    notes: tuple[str, ...] = ()  # notes for the log, in addition to the notes of the strategy


@dataclass(frozen=True, slots=True)
class MarkPendingRevocation:
    """Return no records of these until :class:`SetAssignment`: the next owner reads them again."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class SetAssignment:
    """From now on the member reads these partitions and no others."""

    partitions: tuple[TopicPartition, ...]
    generation: int


@dataclass(frozen=True, slots=True)
class FinishSyncCommit:
    """A synchronous commit is complete: return from it, or raise the error."""

    commit_id: int
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class RunCommitCallback:
    """An asynchronous commit is complete: run its callback, or log the result if it has none."""

    commit_id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class CallInterceptors:
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class RequestMetadata:
    """Fetch the metadata of these topics, or of all, then send :class:`MetadataUpdated`."""

    topics: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class RaiseError:
    """Raise this error from the application's call in progress; a poll gets at most one."""

    error: Exception


@dataclass(frozen=True, slots=True)
class MemberNote:
    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class PollTimeoutNote(MemberNote):
    """The application has not polled for ``max.poll.interval.ms``, so the member left."""


@dataclass(frozen=True, slots=True)
class FinishClose:
    """The member has finished closing; the application's close may return."""


MemberCommand: TypeAlias = (
    FindCoordinator
    | SendRequest
    | StartMemberTimer
    | StopMemberTimer
    | ComputeAssignment
    | CallListener
    | MarkPendingRevocation
    | SetAssignment
    | FinishSyncCommit
    | RunCommitCallback
    | CallInterceptors
    | RequestMetadata
    | RaiseError
    | MemberNote
    | FinishClose
)


class CommandBuffer:
    """Collects the commands of one event, and knows the running timers."""

    def __init__(self) -> None:
        self.now = 0
        self.timers: dict[MemberTimer, int] = {}  # when each running timer is due
        self._commands: list[MemberCommand] = []
        self._last_number = 0

    def take_commands(self) -> list[MemberCommand]:
        """Returns the commands, also those of an earlier event that Ctrl-C interrupted."""
        commands, self._commands = self._commands, []
        return commands

    def add(self, *commands: MemberCommand) -> None:
        self._commands.extend(commands)

    def next_id(self) -> int:
        self._last_number += 1
        return self._last_number

    def start_timer(self, timer: MemberTimer, at: int) -> None:
        if self.timers.get(timer) != at:
            self.timers[timer] = at
            self.add(StartMemberTimer(timer, at))

    def stop_timer(self, timer: MemberTimer) -> None:
        if self.timers.pop(timer, None) is not None:
            self.add(StopMemberTimer(timer))
