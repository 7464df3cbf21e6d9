"""A driver's application: does what it finds in its inbox, as a consumer would."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from rota.assignors.interface import Assignor
from rota.assignors.registry import resolve_all
from rota.consumer.driver import Driver
from rota.member.event import (
    CallInterceptors,
    CallListener,
    CloseAsked,
    Command,
    CommitAsked,
    FinishCommit,
    Finished,
    ListenerReturned,
    MetadataUpdated,
    PollBegan,
    PollEnded,
    Raise,
    RequestMetadata,
    RunCallback,
    SetAssignment,
    Subscribed,
    Withhold,
)
from rota.member.state import State
from rota.model.client import Address, ClientConfig
from rota.model.config import MemberConfig
from rota.model.offset import OffsetAndMetadata
from rota.model.topic import Cluster, TopicPartition

PATIENCE = 60.0
"""Seconds that what is waited for has to happen, also on a machine with much else to do."""
FAST = {"retry_backoff": 5, "retry_backoff_max": 20}


class Application:
    """Reads nothing, but does all else that an application does, in the test's thread."""

    def __init__(
        self,
        bootstrap: str,
        *,
        topics: Mapping[str, int] | None = None,
        strategies: str | Sequence[Assignor] = "range",
        client: Mapping[str, object] | None = None,
        **member: object,
    ) -> None:
        host, _, port = bootstrap.rpartition(":")
        name = str(member.get("client_id", "rota"))
        connect = {"client_id": name, **FAST, **(client or {})}
        member = {"group": "g", "auto_commit": False, **FAST, **member}
        self.topics = dict(topics or {"t": 4})
        self.consumed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.failure: Exception | None = None
        """Raised in place of the positions."""
        self.listener: Callable[[CallListener], object] = bool
        self.bell = threading.Event()
        self.driver = Driver(
            ClientConfig(bootstrap=(Address(host, int(port)),), **connect),  # type: ignore[arg-type]
            MemberConfig(**member),  # type: ignore[arg-type]
            resolve_all(strategies) if isinstance(strategies, str) else strategies,
            self._consumed,
            self.bell.set,
        )
        self.log: list[Command] = []
        self.raised: list[Exception] = []
        self.returned: dict[int, Exception | None] = {}
        self.owned: tuple[TopicPartition, ...] = ()
        self.is_finished = False
        self._commits = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.driver.stop()

    # What it does

    def subscribe(self) -> Self:
        self.driver.tell(Subscribed(tuple(self.topics)))
        self.attend()
        return self

    def poll(self, until: Callable[[], bool], timeout: float = PATIENCE) -> None:
        """Stays inside a poll until something is true."""
        self.driver.tell(PollBegan())
        self.wait(until, timeout)
        self.driver.tell(PollEnded())

    def wait(self, until: Callable[[], bool], timeout: float = PATIENCE) -> None:
        """Does what comes, until something is true."""
        end = time.monotonic() + timeout
        while True:
            self.bell.clear()
            self.attend()
            if until():
                return
            assert time.monotonic() < end, f"not in time: {self.state}, {self.log[-5:]}"
            self.bell.wait(0.01)

    def join(self) -> Self:
        """Polls until it is a stable member."""
        self.subscribe()
        self.poll(lambda: self.is_settled)
        return self

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], wait: int) -> int:
        self._commits += 1
        self.driver.tell(CommitAsked(self._commits, offsets, self.driver.now() + wait))
        return self._commits

    def commit_and_wait(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], wait: int = 10_000
    ) -> Exception | None:
        number = self.commit(offsets, wait)
        self.wait(lambda: number in self.returned)
        return self.returned[number]

    def commit_later(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> int:
        self._commits += 1
        self.driver.tell(CommitAsked(self._commits, offsets))
        return self._commits

    def close(self, wait: int = 5_000) -> None:
        self.driver.tell(CloseAsked(self.driver.now() + wait))
        self.wait(lambda: self.is_finished)
        self.driver.stop()

    def attend(self) -> None:
        """Does what is in the inbox."""
        while self.driver.inbox:
            command = self.driver.inbox.popleft()
            self.log.append(command)
            match command:
                case SetAssignment(partitions):
                    self.owned = partitions
                case CallListener(number):
                    self.listener(command)
                    self.driver.tell(ListenerReturned(number))
                case RequestMetadata():
                    self.driver.tell(MetadataUpdated(Cluster(self.topics)))
                case FinishCommit(number, error) | RunCallback(number, _, error):
                    self.returned[number] = error
                case Raise(error):
                    self.raised.append(error)
                case Finished():
                    self.is_finished = True
                case Withhold() | CallInterceptors():
                    pass
                case _:
                    raise AssertionError(f"not for an application: {command}")

    def _consumed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        if self.failure is not None:
            raise self.failure
        return self.consumed

    # How it stands

    @property
    def state(self) -> State:
        with self.driver.lock:
            return self.driver.machine.state

    @property
    def generation(self) -> int:
        with self.driver.lock:
            return self.driver.machine.generation

    @property
    def member_id(self) -> str:
        with self.driver.lock:
            return self.driver.machine.member_id

    @property
    def is_settled(self) -> bool:
        """Stable, and its listener has heard of what it owns."""
        with self.driver.lock:
            stable = self.driver.machine.state is State.STABLE
            return stable and bool(self.owned) and not self.driver.inbox
