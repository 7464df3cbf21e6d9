"""Rota's coordinator as the other side: appends succeed at once, time is a number."""

from __future__ import annotations

import heapq
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import assert_never

from rota.group.coordinator import Coordinator
from rota.group.event import (
    Answer,
    Append,
    Appended,
    Command,
    Event,
    Loaded,
    LoadStarted,
    Note,
    Requested,
    StartTimer,
    StopTimer,
    TimerFired,
    TimerKey,
    TopicsDeleted,
)
from rota.model.config import GroupConfig
from rota.model.entry import ClassicEntry
from rota.model.reply import Reply
from rota.model.request import Request
from tests.support.coordinator import wire
from tests.support.coordinator.stage import QUIET


class Node:
    """A coordinator, for one case. Its clock moves only with the case's steps."""

    def __init__(self, config: GroupConfig) -> None:
        self.journal: list[ClassicEntry] = []
        self.slack = config.retention_check_interval
        """How near a timer was, at its nearest, when a step ended."""
        self._config = config
        self._ids = count(1)
        self._tokens = count(1)
        self._now = 0
        self._load()

    def _load(self) -> None:
        self._sent: dict[int, tuple[str, Request]] = {}
        self._answers: dict[int, Reply] = {}
        self._timers: dict[TimerKey, int] = {}
        self._due: list[tuple[int, int, TimerKey]] = []
        self._coordinator = Coordinator(self._config, lambda: str(uuid.UUID(int=next(self._ids))))
        self._handle(LoadStarted())
        for entry in self.journal:
            self._coordinator.replay(entry)
        self._handle(Loaded())

    @property
    def remaining(self) -> int:
        """Milliseconds until the next timer ends."""
        return min((at - self._now for at in self._timers.values()), default=self.slack)

    def send(self, label: str, client_id: str, request: Request) -> None:
        token = next(self._tokens)
        self._sent[token] = label, request
        self._handle(Requested(token, request))

    def collect(self, milliseconds: int, expected: Collection[str] | None) -> Mapping[str, Reply]:
        self._advance(self._now + milliseconds)
        if len(self._sent) > len(self._answers):
            self._advance(self._now + QUIET)  # so that both sides' timers keep the same pace
        self.slack = min(self.slack, *(at - self._now for at in self._timers.values()))
        answers: dict[str, Reply] = {}
        for token, reply in self._answers.items():
            label, request = self._sent.pop(token)
            answers[label] = wire.carried(request, reply)
        self._answers.clear()
        return answers

    def ask(self, request: Request, wanted: Callable[[Reply], bool]) -> Reply:
        token = next(self._tokens)
        self._handle(Requested(token, request))
        return self._answers.pop(token)

    def restart(self) -> None:
        self._load()

    def create_topic(self, topic: str) -> None:
        """Which topics there are is the broker's to know."""

    def delete_topic(self, topic: str) -> None:
        self._handle(TopicsDeleted(((topic, None),)))

    def _advance(self, until: int) -> None:
        while self._due and self._due[0][0] <= until:
            at, _, key = heapq.heappop(self._due)
            if self._timers.get(key) == at:
                del self._timers[key]
                self._now = at
                self._handle(TimerFired(key))
        self._now = until

    def _handle(self, event: Event) -> None:
        events = deque([event])
        while events:
            for command in self._coordinator.handle(events.popleft(), self._now):
                events.extend(self._obey(command))
            self._coordinator.check_invariants()

    def _obey(self, command: Command) -> list[Event]:
        match command:
            case Answer(token, reply):
                self._answers[token] = reply
            case StartTimer(key, at):
                self._timers[key] = at
                heapq.heappush(self._due, (at, next(self._tokens), key))
            case StopTimer(key):
                self._timers.pop(key, None)
            case Append(ticket, entries):
                self.journal += entries
                return [Appended(ticket)]
            case Note():
                pass
            case _:
                assert_never(command)
        return []
