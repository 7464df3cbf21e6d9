"""What the drivers in Python have in common: orders in, answers out, a line of JSON each.

An order is ``{"id": 1, "op": "produce", "servers": "host:port", "security": {...}, ...}``; its
answer ``{"id": 1, "ok": ...}`` or ``{"id": 1, "error": "what the library said"}``. Each order has
a thread of its own, so answers come in any order. A line without an id is news: what happened to a
member, told as it happens, so that it is known of a process that is killed too. The driver ends
when its input does.

This runs under the Pythons of old client libraries too: the standard library alone, and nothing
newer than Python 3.9.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

#: How long an order may take, in seconds. What takes longer has gone wrong.
PATIENCE = 60


class Library(ABC):
    """A client library, with its settings left alone except for those that an order names."""

    members: dict[str, Any]

    def __init__(self, servers: str, security: dict[str, str] | None) -> None:
        self.servers = servers
        self.security = security
        self.members = {}

    @abstractmethod
    def hello(self) -> str:
        """The version of the library."""

    def join(self, member: str, **wanted: Any) -> None:
        """Start a member of a group, which handles records until it is told to leave."""
        self.members[member] = self.member_of(**wanted)

    @abstractmethod
    def member_of(self, **wanted: Any) -> Any:
        """A member that has started."""

    def member(self, member: str) -> dict[str, Any]:
        """How it goes with a member."""
        shown: dict[str, Any] = self.members[member].seen.show()
        return shown

    def commit(self, member: str, how: str) -> None:
        """Have a member commit where it is, and wait until the broker has said yes."""
        self.members[member].commit(how)

    def leave(self, member: str) -> None:
        """Have a member leave in good order."""
        self.members.pop(member).leave()


class MemberState:
    """What became of a member; told by its thread, asked by others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.assigned: list[int] = []
        self.rebalances = 0
        self.error: str | None = None
        self._handled: list[tuple[int, int, str]] = []

    def handle(self, partition: int, offset: int, value: bytes) -> None:
        """A record was handled."""
        with self._lock:
            self._handled.append((partition, offset, value.decode()))

    def show(self) -> dict[str, Any]:
        """All of it, for an answer."""
        with self._lock:
            return {
                "assigned": sorted(self.assigned),
                "rebalances": self.rebalances,
                "handled": list(self._handled),
                "error": self.error,
            }


class Member(ABC):
    """A consumer that belongs to one thread: it polls, and does what it is told in between."""

    def __init__(self) -> None:
        self.seen = MemberState()
        self._orders: queue.Queue[tuple[Callable[[], None], Future[None]]] = queue.Queue()
        self._done = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Member:
        """Begin to poll."""
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            self.open()
            while not self._done:
                self.poll()
                self._obey()
        except Exception as error:  # noqa: BLE001 - told to whom asks
            self.seen.error = describe(error)

    def _obey(self) -> None:
        while not self._orders.empty():
            order, done = self._orders.get()
            try:
                done.set_result(order())
            except Exception as error:  # noqa: BLE001 - told to whom gave the order
                done.set_exception(error)

    def order(self, what: Callable[[], None]) -> None:
        """Have it done by the member's thread."""
        done: Future[None] = Future()
        self._orders.put((what, done))
        done.result(PATIENCE)

    def commit(self, how: str) -> None:
        """Commit where it is."""
        self.order(self.commit_now if how == "sync" else self.commit_later)

    def leave(self) -> None:
        """Close the consumer and end."""
        self.order(self._close)
        self._thread.join(PATIENCE)

    def _close(self) -> None:
        self._done = True
        self.close()

    @abstractmethod
    def open(self) -> None:
        """Make the consumer and subscribe."""

    @abstractmethod
    def poll(self) -> None:
        """One poll, a tenth of a second at most."""

    @abstractmethod
    def commit_now(self) -> None:
        """Commit and wait."""

    @abstractmethod
    def commit_later(self) -> None:
        """Commit by the call that does not wait, and wait for its callback."""

    @abstractmethod
    def close(self) -> None:
        """Close the consumer."""


class LogCapture(logging.Handler):
    """Keeps the complaints in a library's log: there a user finds why it could not connect."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.WARNING)
        self._logger = logging.getLogger(name)
        self._said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """One more."""
        self._said.append(record.getMessage())

    def __enter__(self) -> LogCapture:
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)

    def __str__(self) -> str:
        return " | ".join(dict.fromkeys(self._said))


def describe(error: BaseException) -> str:
    """An error with its kind: what a user of the library would see."""
    return f"{type(error).__name__}: {error}"


def deadline() -> Callable[[], None]:
    """Raises when called too late."""
    end = time.monotonic() + PATIENCE

    def check() -> None:
        if time.monotonic() > end:
            raise TimeoutError(f"not done after {PATIENCE} s")

    return check


class JsonOutput:
    """The driver's output, a line of JSON at a time, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stream = sys.stdout

    def take_over(self) -> None:
        """What a library prints must not come between the lines."""
        self._stream = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def say(self, line: dict[str, Any]) -> None:
        """An answer, or news."""
        text = json.dumps(line) + "\n"
        with self._lock:
            self._stream.write(text)


VOICE = JsonOutput()


def run(library: Callable[[str, dict[str, str] | None], Library]) -> None:
    """Serve until the input ends."""
    VOICE.take_over()
    lock = threading.Lock()
    made: dict[str, Library] = {}

    def serve(order: dict[str, Any]) -> None:
        number, op = order.pop("id"), order.pop("op")
        servers, security = order.pop("servers", ""), order.pop("security", None)
        with lock:
            key = json.dumps([servers, security])
            if key not in made:
                made[key] = library(servers, security)
        try:
            answer = {"id": number, "ok": getattr(made[key], op)(**order)}
        except Exception as error:  # noqa: BLE001 - the test decides what it means
            answer = {"id": number, "error": describe(error)}
        VOICE.say(answer)

    for line in sys.stdin:
        threading.Thread(target=serve, args=(json.loads(line),), daemon=True).start()
    os._exit(0)
