"""Events that the coordinator handles, and commands that it returns."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from rota.engine.coordinator.notes import GroupChange, GroupNote
from rota.engine.coordinator.state import ClassicGroup, ClassicGroupMember
from rota.engine.model.config import GroupConfig
from rota.engine.model.journal_entry import ClassicEntry
from rota.engine.model.request import GroupRequest
from rota.engine.model.response import GroupResponse, JoinGroupResult, SyncGroupResult
from rota.errors import Code


class GroupTimerKind(enum.Enum):
    SESSION = "session"  # the session of a member, or of an id that no member joined with, is over
    JOIN = "join"  # the join phase is over
    SYNC = "sync"  # the sync phase is over
    RETENTION = "retention"  # the next check for expired offsets is due


class GroupTimerKey(NamedTuple):
    """Identifies a timer. Starting a timer that runs moves it."""

    kind: GroupTimerKind
    group: str = ""
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """The coordinator responds with a :class:`SendResponse` with the same token."""

    token: int
    request: GroupRequest


@dataclass(frozen=True, slots=True)
class GroupTimerFired:
    """A timer is due, and was neither stopped nor moved since it was started."""

    key: GroupTimerKey


@dataclass(frozen=True, slots=True)
class AppendSucceeded:
    """The entries of an :class:`AppendEntries` are in the journal."""

    append_id: int


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """None of the entries of an :class:`AppendEntries` are in the journal, nor will they be."""

    append_id: int
    code: Code


@dataclass(frozen=True, slots=True)
class JournalLoadStarted:
    """Loading of a journal starts: replayed entries follow, then :class:`JournalLoaded`."""


@dataclass(frozen=True, slots=True)
class JournalLoaded:
    """The journal has been replayed to its end."""


@dataclass(frozen=True, slots=True)
class JournalUnloaded:
    """Another coordinator takes over."""


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Topics were deleted: their names, and their ids where known."""

    topics: tuple[tuple[str, bytes | None], ...]


CoordinatorEvent: TypeAlias = (
    RequestReceived
    | GroupTimerFired
    | AppendSucceeded
    | AppendFailed
    | JournalLoadStarted
    | JournalLoaded
    | JournalUnloaded
    | TopicsDeleted
)


@dataclass(frozen=True, slots=True)
class SendResponse:
    """Send this response to the sender of the request with this token."""

    token: int
    response: GroupResponse


@dataclass(frozen=True, slots=True)
class StartGroupTimer:
    """Send :class:`GroupTimerFired` at this time; a running timer with this key is moved."""

    key: GroupTimerKey
    due_at: int


@dataclass(frozen=True, slots=True)
class StopGroupTimer:
    """Forget this timer, if it runs."""

    key: GroupTimerKey


@dataclass(frozen=True, slots=True)
class AppendEntries:
    """Write all entries or none, then send :class:`AppendSucceeded` or :class:`AppendFailed`."""

    append_id: int
    entries: tuple[ClassicEntry, ...]


CoordinatorCommand: TypeAlias = (
    SendResponse | StartGroupTimer | StopGroupTimer | AppendEntries | GroupNote
)

#: Called once an append has succeeded (code 0) or failed.
AppendCallback: TypeAlias = "Callable[[EventContext, Code], None]"


class EventContext:
    __slots__ = ("appends", "commands", "config", "expired_timers", "now")

    def __init__(self, config: GroupConfig, now: int, expired_timers: set[GroupTimerKey]) -> None:
        self.config = config
        self.now = now
        #: Timers that have fired, but whose work still waits in a queue.
        self.expired_timers = expired_timers
        self.commands: list[CoordinatorCommand] = []
        self.appends: list[tuple[tuple[ClassicEntry, ...], AppendCallback]] = []

    def respond(self, token: int, response: GroupResponse) -> None:
        self.commands.append(SendResponse(token, response))

    def append_entries(
        self, entries: tuple[ClassicEntry, ...], then: AppendCallback = lambda _later, _code: None
    ) -> None:
        self.appends.append((entries, then))

    def respond_after_append(self, token: int, response: Callable[[Code], GroupResponse]) -> None:
        """Responds after the append of this event is complete, or at once if there is none."""
        if not self.appends:
            self.respond(token, response(Code.NONE))
            return
        entries, then = self.appends.pop()

        def complete_and_respond(later: EventContext, code: Code) -> None:
            then(later, code)
            later.respond(token, response(code))

        self.append_entries(entries, complete_and_respond)

    def start_timer(
        self, kind: GroupTimerKind, group: ClassicGroup, after: int, member_id: str = ""
    ) -> None:
        key = GroupTimerKey(kind, group.name, member_id)
        self.expired_timers.discard(key)
        self.commands.append(StartGroupTimer(key, self.now + after))

    def stop_timer(self, kind: GroupTimerKind, group: ClassicGroup, member_id: str = "") -> None:
        key = GroupTimerKey(kind, group.name, member_id)
        self.expired_timers.discard(key)
        self.commands.append(StopGroupTimer(key))

    def add_note(self, group: ClassicGroup, change: GroupChange) -> None:
        self.commands.append(GroupNote(group.name, group.generation, group.state, change))

    def restart_session_timer(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        self.start_timer(GroupTimerKind.SESSION, group, member.session_timeout, member.member_id)

    def respond_to_join(
        self, group: ClassicGroup, member: ClassicGroupMember, response: JoinGroupResult
    ) -> None:
        """Responds to the member's waiting JoinGroup, if there is one."""
        token = group.take_waiting_join(member)
        if token is not None:
            self.respond(token, response)

    def respond_to_sync(self, member: ClassicGroupMember, response: SyncGroupResult) -> bool:
        """Responds to the member's waiting SyncGroup, and returns whether there was one."""
        token = member.sync_token
        if token is None:
            return False
        member.sync_token = None
        self.respond(token, response)
        return True

    def remove_member(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Removes a member. Its waiting requests get UNKNOWN_MEMBER_ID, so that it joins again."""
        unknown = Code.UNKNOWN_MEMBER_ID
        self.respond_to_join(group, member, JoinGroupResult(code=unknown))
        self.respond_to_sync(member, SyncGroupResult(code=unknown))
        self.stop_timer(GroupTimerKind.SESSION, group, member.member_id)
        group.remove_member(member)


_RESPONSE_CODES = {
    Code.UNKNOWN_TOPIC_OR_PARTITION: Code.COORDINATOR_NOT_AVAILABLE,
    Code.REQUEST_TIMED_OUT: Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_ENOUGH_REPLICAS: Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_LEADER_OR_FOLLOWER: Code.NOT_COORDINATOR,
    Code.KAFKA_STORAGE_ERROR: Code.NOT_COORDINATOR,
    Code.MESSAGE_TOO_LARGE: Code.UNKNOWN,
    Code.RECORD_LIST_TOO_LARGE: Code.UNKNOWN,
}


def translate_append_error(code: Code) -> Code:
    """Translates the error of a failed append, mostly into a code that the client retries."""
    return _RESPONSE_CODES.get(code, code)
