"""One event being handled: what it leads to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from rota.errors import Code
from rota.group.classic import Group, GroupMember
from rota.group.event import (
    Answer,
    Command,
    Happened,
    Note,
    StartTimer,
    StopTimer,
    TimerKey,
    TimerKind,
)
from rota.model.config import GroupConfig
from rota.model.entry import ClassicEntry
from rota.model.reply import JoinReply, Reply, SyncReply

Then: TypeAlias = "Callable[[Turn, Code], None]"
"""What is done once an append has succeeded (code 0) or failed."""


def _nothing(turn: Turn, code: Code) -> None:
    """What follows from an append whose entries say it all."""


class Turn:
    """Collects the commands that an event leads to; handlers speak through it."""

    __slots__ = ("appends", "commands", "config", "now", "overdue")

    def __init__(self, config: GroupConfig, now: int, overdue: set[TimerKey]) -> None:
        self.config = config
        self.now = now
        self.overdue = overdue
        """Timers that have fired, but whose time is up only if nothing starts or stops them."""
        self.commands: list[Command] = []
        self.appends: list[tuple[tuple[ClassicEntry, ...], Then]] = []

    def answer(self, token: int, reply: Reply) -> None:
        """Replies to a request."""
        self.commands.append(Answer(token, reply))

    def append(self, entries: tuple[ClassicEntry, ...], then: Then = _nothing) -> None:
        """Writes to the journal; what follows from it waits until that has succeeded."""
        self.appends.append((entries, then))

    def answer_after_append(self, token: int, reply: Callable[[Code], Reply]) -> None:
        """Replies once what this event has appended, if anything, is in the journal."""
        if not self.appends:
            self.answer(token, reply(Code.NONE))
            return
        entries, then = self.appends.pop()

        def and_answer(later: Turn, code: Code) -> None:
            then(later, code)
            later.answer(token, reply(code))

        self.append(entries, and_answer)

    def start(self, kind: TimerKind, group: Group, after: int, member_id: str = "") -> None:
        """Starts or moves a timer."""
        key = TimerKey(kind, group.name, member_id)
        self.overdue.discard(key)
        self.commands.append(StartTimer(key, self.now + after))

    def stop(self, kind: TimerKind, group: Group, member_id: str = "") -> None:
        """Stops a timer."""
        key = TimerKey(kind, group.name, member_id)
        self.overdue.discard(key)
        self.commands.append(StopTimer(key))

    def stop_all(self, group: Group) -> None:
        """Stops every timer of a group."""
        for member_id in (*group.members, *group.pending):
            self.stop(TimerKind.SESSION, group, member_id)
        self.stop(TimerKind.JOIN, group)
        self.stop(TimerKind.SYNC, group)

    def note(self, what: Happened, group: Group, text: str) -> None:
        """Says for the log what happened."""
        self.commands.append(Note(what, group.name, group.generation, text))

    def start_session(self, group: Group, member: GroupMember) -> None:
        """A sign of life: the member's session starts anew."""
        self.start(TimerKind.SESSION, group, member.session_timeout, member.member_id)

    def answer_join(self, group: Group, member: GroupMember, reply: JoinReply) -> None:
        """Answers a member's join, if one waits."""
        token = group.unpark_join(member)
        if token is not None:
            self.answer(token, reply)

    def answer_sync(self, member: GroupMember, reply: SyncReply) -> bool:
        """Answers a member's sync, if one waits; says whether one did."""
        token = member.sync_token
        if token is None:
            return False
        member.sync_token = None
        self.answer(token, reply)
        return True

    def take_out(self, group: Group, member: GroupMember) -> None:
        """Removes a member. What it waits for is answered, so that it can come back as new."""
        unknown = Code.UNKNOWN_MEMBER_ID
        self.answer_join(group, member, JoinReply(code=unknown))
        self.answer_sync(member, SyncReply(code=unknown))
        self.stop(TimerKind.SESSION, group, member.member_id)
        group.remove(member)


_ANSWERABLE = {
    Code.UNKNOWN_TOPIC_OR_PARTITION: Code.COORDINATOR_NOT_AVAILABLE,
    Code.REQUEST_TIMED_OUT: Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_ENOUGH_REPLICAS: Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_LEADER_OR_FOLLOWER: Code.NOT_COORDINATOR,
    Code.KAFKA_STORAGE_ERROR: Code.NOT_COORDINATOR,
    Code.MESSAGE_TOO_LARGE: Code.UNKNOWN,
    Code.RECORD_LIST_TOO_LARGE: Code.UNKNOWN,
}


def answerable(code: Code) -> Code:
    """What a member is told when the journal could not be written, as Kafka says it.

    What may pass is to be tried again, here or elsewhere; entries that are too large stay so.
    """
    return _ANSWERABLE.get(code, code)
