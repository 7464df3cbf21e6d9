"""What reaches the coordinator, and what it wants done."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from rota.errors import Code
from rota.model.entry import ClassicEntry
from rota.model.reply import Reply
from rota.model.request import Request


class TimerKind(enum.Enum):
    """What a timer is for."""

    SESSION = "session"
    """A member, or an id that was given out, has been silent."""
    JOIN = "join"
    """The join phase has lasted long enough."""
    SYNC = "sync"
    """The sync phase has lasted long enough."""
    RETENTION = "retention"
    """Time to look for offsets that have expired."""


class TimerKey(NamedTuple):
    """Names a timer; to start one that runs is to move it."""

    kind: TimerKind
    group: str = ""
    member: str = ""


# Events


@dataclass(frozen=True, slots=True)
class Requested:
    """A request came in; its answer will be a :class:`Answer` with the same token."""

    token: int
    request: Request


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that was started, and neither stopped nor moved since, is due."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class Appended:
    """The entries of an :class:`Append` are in the journal."""

    ticket: int


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """None of the entries of an :class:`Append` are in the journal, nor will they be."""

    ticket: int
    code: Code


@dataclass(frozen=True, slots=True)
class LoadStarted:
    """A journal is taken over; replayed entries follow, then :class:`Loaded`."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The journal has been replayed to its end."""


@dataclass(frozen=True, slots=True)
class Unloaded:
    """Another coordinator takes over."""


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Topics are gone from the cluster; topic ids where they are known."""

    topics: tuple[tuple[str, bytes | None], ...]


Event: TypeAlias = (
    Requested
    | TimerFired
    | Appended
    | AppendFailed
    | LoadStarted
    | Loaded
    | Unloaded
    | TopicsDeleted
)


# Commands


@dataclass(frozen=True, slots=True)
class Answer:
    """Send this reply to whoever sent the request with this token."""

    token: int
    reply: Reply


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Send :class:`TimerFired` at this time; a timer with this key that runs is moved."""

    key: TimerKey
    at: int


@dataclass(frozen=True, slots=True)
class StopTimer:
    """Forget this timer, if it runs."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class Append:
    """Write these entries to the journal, all or none, then say :class:`Appended`."""

    ticket: int
    entries: tuple[ClassicEntry, ...]


class Happened(enum.Enum):
    """What a note tells of."""

    PREPARING = "preparing"
    """A rebalance starts: the join phase begins."""
    JOINED = "joined"
    """The join phase is over, a new generation exists."""
    ASSIGNED = "assigned"
    """The leader's assignment has arrived."""
    STABLE = "stable"
    """The assignment is stored and handed out."""
    EMPTIED = "emptied"
    """The last member is gone."""
    ADDED = "added"
    LEFT = "left"
    SILENT = "silent"
    """A member was removed because its session ended."""
    ABSENT = "absent"
    """Members were removed because they did not join in time, or did not sync in time."""
    REPLACED = "replaced"
    """A static member came back under a new member id."""
    REFUSED = "refused"
    FAILED = "failed"
    """The journal could not be written."""


@dataclass(frozen=True, slots=True)
class Note:
    """For the log: what happened to a group, and why."""

    what: Happened
    group: str
    generation: int
    text: str


Command: TypeAlias = Answer | StartTimer | StopTimer | Append | Note
