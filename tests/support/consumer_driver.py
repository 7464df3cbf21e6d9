"""A driver's application: does what it finds in its inbox, as a consumer would.

Also what is around it: a broker, the threads that it may leave, and Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rota import Broker
from rota.consumer.member_driver import MemberDriver
from rota.engine.assignors.interface import Assignor
from rota.engine.assignors.registry import resolve_strategies
from rota.engine.member.events import (
    CallInterceptors,
    CallListener,
    CloseRequested,
    CommitRequested,
    FinishClose,
    FinishSyncCommit,
    ListenerReturned,
    MarkPendingRevocation,
    MemberCommand,
    MetadataUpdated,
    PollBegan,
    PollEnded,
    RaiseError,
    RequestMetadata,
    RunCommitCallback,
    SetAssignment,
    Subscribed,
)
from rota.engine.member.state import MemberState
from rota.engine.model.config import Address, ClientConfig, MemberConfig
from rota.engine.model.topic import Cluster, OffsetAndMetadata, TopicPartition

#: Seconds that what is waited for has to happen, also on a machine with much else to do.
PATIENCE = 60.0
FAST = {"retry_backoff": 5, "retry_backoff_max": 20}
#: Settings of a broker that does not let a test wait.
QUICK = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 100}


@contextmanager
def quick_broker() -> Iterator[Broker]:
    """A broker with the topic that an application reads."""
    with Broker(config=QUICK) as running:
        running.create_topic("t", 4)
        yield running


@contextmanager
def no_thread_left() -> Iterator[None]:
    """Asserts that no thread outlives its driver; a broker's may."""
    before = set(threading.enumerate())
    yield
    left = [one for one in threading.enumerate() if one not in before and "broker" not in one.name]
    assert not left


def press_control_c() -> None:
    """Sends SIGINT to this process, and returns when Python has heard of it."""
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(3):
        time.sleep(0)


@contextmanager
def default_control_c() -> Iterator[None]:
    """Sets Python's own handler of SIGINT, and asserts that it is set at the end."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


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
        #: Raised in place of the positions.
        self.failure: Exception | None = None
        self.listener: Callable[[CallListener], object] = bool
        self.bell = threading.Event()
        self.driver = MemberDriver(
            ClientConfig(bootstrap_servers=(Address(host, int(port)),), **connect),  # type: ignore[arg-type]
            MemberConfig(**member),  # type: ignore[arg-type]
            resolve_strategies(strategies) if isinstance(strategies, str) else strategies,
            self._consumed,
            self.bell.set,
        )
        self.log: list[MemberCommand] = []
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
        self.driver.handle_event(Subscribed(tuple(self.topics)))
        self.handle_inbox()
        return self

    def poll(self, until: Callable[[], bool], timeout: float = PATIENCE) -> None:
        """Stays inside a poll until something is true."""
        self.driver.handle_event(PollBegan())
        self.wait(until, timeout)
        self.driver.handle_event(PollEnded())

    def wait(self, until: Callable[[], bool], timeout: float = PATIENCE) -> None:
        """Does what comes, until something is true."""
        end = time.monotonic() + timeout
        while True:
            self.bell.clear()
            self.handle_inbox()
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
        self.driver.handle_event(CommitRequested(self._commits, offsets, self.driver.now() + wait))
        return self._commits

    def commit_and_wait(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], wait: int = 10_000
    ) -> Exception | None:
        number = self.commit(offsets, wait)
        self.wait(lambda: number in self.returned)
        return self.returned[number]

    def commit_later(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> int:
        self._commits += 1
        self.driver.handle_event(CommitRequested(self._commits, offsets))
        return self._commits

    def close(self, wait: int = 5_000) -> None:
        self.driver.handle_event(CloseRequested(self.driver.now() + wait))
        self.wait(lambda: self.is_finished)
        self.driver.stop()

    def handle_inbox(self) -> None:
        """Does what is in the inbox."""
        while self.driver.inbox:
            command = self.driver.inbox.popleft()
            self.log.append(command)
            match command:
                case SetAssignment(partitions):
                    self.owned = partitions
                case CallListener(number):
                    self.listener(command)
                    self.driver.handle_event(ListenerReturned(number))
                case RequestMetadata():
                    self.driver.handle_event(MetadataUpdated(Cluster(self.topics)))
                case FinishSyncCommit(number, error) | RunCommitCallback(number, _, error):
                    self.returned[number] = error
                case RaiseError(error):
                    self.raised.append(error)
                case FinishClose():
                    self.is_finished = True
                case MarkPendingRevocation() | CallInterceptors():
                    pass
                case _:
                    raise AssertionError(f"not for an application: {command}")

    def _consumed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        if self.failure is not None:
            raise self.failure
        return self.consumed

    # How it stands

    @property
    def state(self) -> MemberState:
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
            stable = self.driver.machine.state is MemberState.STABLE
            return stable and bool(self.owned) and not self.driver.inbox
