"""The broker's side of a world: a coordinator, its journal, and the ways in which it can stop."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Protocol, assert_never

from rota.errors import Code
from rota.group.coordinator import Coordinator
from rota.group.event import (
    Answer,
    Append,
    Appended,
    AppendFailed,
    Command,
    Loaded,
    LoadStarted,
    Note,
    Requested,
    StartTimer,
    StopTimer,
    TimerFired,
    TimerKey,
    TimerKind,
    TopicsDeleted,
    Unloaded,
)
from rota.model.config import GroupConfig
from rota.model.entry import ClassicEntry, OffsetCommitted
from rota.model.reply import Reply
from rota.model.request import Request
from rota.model.topic import TopicPartition
from rota.sim.agenda import Entry
from rota.sim.chance import uuid_like
from rota.sim.stage import Stage
from rota.sim.trace import What


class Boundary(enum.Enum):
    """Where, around an append, the broker's process can die."""

    BEFORE_APPEND = "before the entries are written"
    BEFORE_REPLAY = "after the entries are written, before they count"
    BEFORE_REPLY = "after the entries count, before anybody is answered"


class Caller(Protocol):
    """Whoever waits for an answer."""

    def answered(self, reply: Reply) -> None:
        """The coordinator has answered."""
        ...


class Node:
    """A broker with one coordinator. ``coordinator`` is None while it is down."""

    def __init__(self, stage: Stage, config: GroupConfig, seed: int) -> None:
        self.coordinator: Coordinator | None = None
        self.journal: list[ClassicEntry] = []
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        """Where each group has got to."""
        self.timers: dict[TimerKey, Entry] = {}
        self.on_stop: Callable[[], None] = lambda: None
        """Called when the broker's process ends: its connections break."""
        self._stage = stage
        self._config = config
        self._seed = seed
        self._ids = 0
        self._tokens = 0
        self._callers: dict[int, Caller] = {}
        self._life = 0
        """Counts coordinators: what was under way for an earlier one is void."""
        self._written_by = 0
        self._crash: tuple[Boundary, int, int] | None = None

    def _new_id(self) -> str:
        self._ids += 1
        return uuid_like(self._seed, self._ids)

    # life and death

    def start(self, load_time: int = 0) -> None:
        """A new coordinator takes over the journal; loading takes this long."""
        assert self.coordinator is None, "the coordinator runs already"
        self.coordinator = Coordinator(self._config, self._new_id)
        self._life += 1
        self._stage.tell(What.COORDINATOR, "", "loading")
        self._carry_out(self.coordinator.handle(LoadStarted(), self._stage.now))
        if load_time:
            due = self._stage.now + load_time
            self._stage.agenda.add(due, self._load, self._life)
        else:
            self._load(self._life)

    def _load(self, life: int) -> None:
        if life != self._life or self.coordinator is None:
            return
        now = self._stage.now
        for entry in self.journal:
            self.coordinator.replay(entry)
        self._stage.tell(What.COORDINATOR, "", "loaded")
        self._carry_out(self.coordinator.handle(Loaded(), now))

    def stop(self) -> None:
        """The process ends at once; what was not written is lost."""
        if self.coordinator is None:
            return
        self._forget()
        self._stage.tell(What.COORDINATOR, "", "stopped")
        self.on_stop()

    def hand_over(self, load_time: int = 0) -> None:
        """Another broker takes over, in good order: no connection breaks."""
        if self.coordinator is None:
            return
        self._stage.tell(What.COORDINATOR, "", "unloaded")
        self._carry_out(self.coordinator.handle(Unloaded(), self._stage.now))
        self._forget()
        self.start(load_time)

    def crash_at(self, boundary: Boundary, downtime: int, load_time: int = 0) -> None:
        """The process dies at the next append, and is started again after the downtime."""
        self._crash = (boundary, downtime, load_time)

    def _dies_at(self, boundary: Boundary) -> bool:
        if self._crash is None or self._crash[0] is not boundary:
            return False
        _, downtime, load_time = self._crash
        self._crash = None
        self.stop()
        self._stage.agenda.add(self._stage.now + downtime, self._restart, load_time)
        return True

    def _restart(self, load_time: int) -> None:
        if self.coordinator is None:
            self.start(load_time)

    def _forget(self) -> None:
        self.coordinator = None
        self._life += 1
        for entry in self.timers.values():
            self._stage.agenda.cancel(entry)
        self.timers.clear()
        self._callers.clear()

    # what comes in

    def request(self, caller: Caller, request: Request) -> None:
        """Gives a request to the coordinator, which runs."""
        assert self.coordinator is not None
        self._tokens += 1
        self._callers[self._tokens] = caller
        event = Requested(self._tokens, request)
        self._carry_out(self.coordinator.handle(event, self._stage.now))

    def delete_topics(self, topics: tuple[str, ...]) -> None:
        """Topics are gone from the cluster."""
        if self.coordinator is not None:
            event = TopicsDeleted(tuple((topic, None) for topic in topics))
            self._carry_out(self.coordinator.handle(event, self._stage.now))

    def _fire(self, key: TimerKey) -> None:
        assert self.coordinator is not None
        del self.timers[key]
        self._carry_out(self.coordinator.handle(TimerFired(key), self._stage.now))

    def _append_ended(self, given: tuple[int, Append, Code]) -> None:
        life, append, code = given
        if life != self._life or self.coordinator is None:
            return
        now = self._stage.now
        if code is not Code.NONE:
            self._carry_out(self.coordinator.handle(AppendFailed(append.ticket, code), now))
            return
        self.journal += append.entries
        news = not _is_commit(append)
        for entry in append.entries:
            self._stage.tell(What.JOURNAL, entry.group, entry, news=news)
            if isinstance(entry, OffsetCommitted):
                key = entry.group, TopicPartition(entry.topic, entry.partition)
                self.committed[key] = entry.offset
        if self._dies_at(Boundary.BEFORE_REPLAY):
            return
        commands = self.coordinator.handle(Appended(append.ticket), now)
        if not self._dies_at(Boundary.BEFORE_REPLY):
            self._carry_out(commands)

    # what goes out

    def _carry_out(self, commands: list[Command]) -> None:
        life = self._life
        for command in commands:
            if life != self._life:  # it died over one of them
                return
            match command:
                case StartTimer():
                    self._start_timer(command)
                case Answer():
                    self._callers.pop(command.token).answered(command.reply)
                case StopTimer():
                    entry = self.timers.pop(command.key, None)
                    if entry is not None:
                        self._stage.agenda.cancel(entry)
                case Append():
                    self._append(command)
                case Note():
                    detail = (command.what.value, command.generation, command.text)
                    self._stage.tell(What.NOTE, command.group, detail)
                case _:
                    assert_never(command)

    def _start_timer(self, command: StartTimer) -> None:
        entry = self.timers.get(command.key)
        if entry is None:
            beats = command.key.kind in {TimerKind.SESSION, TimerKind.RETENTION}
            entry = Entry(self._fire, command.key, command.key, beat=beats)
            self.timers[command.key] = entry
        self._stage.agenda.move(entry, command.at)

    def _append(self, append: Append) -> None:
        stage = self._stage
        beat = _is_commit(append)
        if not beat:
            stage.mark_news()
        if self._dies_at(Boundary.BEFORE_APPEND):
            return
        delay, code = stage.nature.append(stage.now)
        self._written_by = max(self._written_by, stage.now + delay)  # one after another
        given = (self._life, append, code)
        stage.agenda.add(self._written_by, self._append_ended, given, beat=beat)


def _is_commit(append: Append) -> bool:
    """Members commit again and again while nothing happens."""
    return isinstance(append.entries[0], OffsetCommitted)
