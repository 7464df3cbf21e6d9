"""Where the parts of a member put what they want done."""

from __future__ import annotations

from rota.member.event import Command, Send, StartTimer, StopTimer, Timer
from rota.model.request import Request


class Outbox:
    """Collects the commands of one event, numbers requests and calls, and knows what timers run."""

    def __init__(self) -> None:
        self.now = 0
        self.timers: dict[Timer, int] = {}
        """When each running timer is due."""
        self._commands: list[Command] = []
        self._last_number = 0

    def open(self, now_ms: int) -> None:
        """An event came at this time."""
        self.now = now_ms

    def close(self) -> list[Command]:
        """What is to be done about it; also about one before, if Ctrl-C has cut it short."""
        commands, self._commands = self._commands, []
        return commands

    def put(self, *commands: Command) -> None:
        """Adds what is to be done."""
        self._commands.extend(commands)

    def number(self) -> int:
        """A number that was not used before."""
        self._last_number += 1
        return self._last_number

    def send(self, request: Request) -> int:
        """Sends, and gives the request's number."""
        number = self.number()
        self.put(Send(number, request))
        return number

    def start(self, timer: Timer, at: int) -> None:
        """Starts a timer, or moves it."""
        if self.timers.get(timer) != at:
            self.timers[timer] = at
            self.put(StartTimer(timer, at))

    def stop(self, timer: Timer) -> None:
        """Stops a timer, if it runs."""
        if self.timers.pop(timer, None) is not None:
            self.put(StopTimer(timer))

    def fired(self, timer: Timer) -> int | None:
        """A timer is due; since when, or None if it does not run any more."""
        return self.timers.pop(timer, None)
