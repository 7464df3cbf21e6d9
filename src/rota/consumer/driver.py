"""Drives the member machine: its requests and timers in a thread of its own, so that heartbeats
go on whatever the application does.

Two threads give events to the machine, one at a time: the application's (it polls, commits,
closes) and the driver's (answers and timers). What the machine wants done is carried out by
whose duty it is. What is the application's waits in an inbox, for listeners and callbacks run in
the application's own calls, and only there. The strategy of a leader, which may take long, runs in
a third thread that lives as long as it does, without the machine's lock.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import assert_never

from rota.assignors.interface import Assignor
from rota.client.retry import spread
from rota.consumer.alarm import Alarm
from rota.consumer.home import Home
from rota.consumer.link import Link, now_ms
from rota.consumer.shield import Shield
from rota.consumer.thread import LoopThread
from rota.consumer.worker import Worker
from rota.errors import RotaError, StrategyFailed
from rota.member.event import (
    AssignmentMade,
    CallInterceptors,
    CallListener,
    Command,
    Event,
    FindCoordinator,
    FinishCommit,
    Finished,
    MakeAssignment,
    Note,
    PollBegan,
    PollEnded,
    Raise,
    RequestMetadata,
    RunCallback,
    Send,
    SetAssignment,
    StartTimer,
    StopTimer,
    TimerFired,
    Withhold,
)
from rota.member.leader import make
from rota.member.machine import Machine
from rota.model.client import ClientConfig
from rota.model.config import MemberConfig
from rota.model.offset import OffsetAndMetadata
from rota.model.reply import Reply
from rota.model.request import Request
from rota.model.topic import TopicPartition

LOGGER = logging.getLogger("rota.consumer")
POLLS = frozenset({PollBegan, PollEnded})
STOP_TIMEOUT = 5.0
"""Seconds that the thread has to end."""


class Driver:
    """A member of a group: the machine, and the thread that keeps it alive."""

    def __init__(
        self,
        client: ClientConfig,
        member: MemberConfig,
        assignors: Sequence[Assignor],
        consumed: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]],
        wake: Callable[[], None],
    ) -> None:
        """Nothing is opened yet.

        :param consumed: the positions after what was handed out; called under the lock, in either
            thread
        :param wake: called when something has come into the inbox, in either thread
        """
        self.lock = threading.RLock()
        """Held while the machine works. Who takes records and tells of it does both under it."""
        self.inbox: deque[Command] = deque()
        """What the application has to do, in this order."""
        self.machine = Machine(
            member, assignors, consumed, spread=lambda pause: round(spread(pause))
        )
        """To be read under the lock; told by :meth:`tell` alone."""
        self._client_config = client
        self._member = member
        self._wake = wake
        self._home = Home()
        self._alarm = Alarm(self._fire)
        self._outgoing: deque[FindCoordinator | Send] = deque()
        self._is_pumping = False
        self._worker = Worker(f"rota-{member.group}-assign")
        self._thread: LoopThread | None = None
        self._link: Link | None = None
        self._is_stopped = False

    @property
    def group(self) -> str:
        """The group's name."""
        return self._member.group

    def now(self) -> int:
        """The machine's time, in milliseconds since some moment."""
        return now_ms()

    # Events in, commands out

    def tell(self, event: Event) -> None:
        """Gives an event to the machine, and sees to what it wants done; from any thread.

        :raises InputError: the event is wrong
        :raises RotaError: this process is a fork of the consumer's own
        """
        self._home.check()
        if type(event) in POLLS:
            with self.lock:
                if self.machine.is_calm:  # often, and nothing is lost if it is cut
                    self._tell(event)
                    return
        with Shield():
            self._tell(event)

    def _tell(self, event: Event) -> None:
        with self.lock:
            told = len(self.inbox)
            for command in self.machine.handle(event, now_ms()):
                self._carry_out(command)
            told = len(self.inbox) - told
        if told:
            self._wake()

    def _carry_out(self, command: Command) -> None:
        match command:
            case StopTimer(timer):
                self._alarm.stop(timer)
            case StartTimer(timer, at):
                if self._alarm.start(timer, at):
                    self._started().call(self._arm)
            case FindCoordinator() | Send():
                self._outgoing.append(command)
                if not self._is_pumping:
                    self._started().call(self._pump)
                    self._is_pumping = True  # it waits for the lock before it takes this back
            case MakeAssignment():
                self._worker.give(partial(self._make, command))
            case Note(text, warns):
                level = logging.WARNING if warns else logging.INFO
                LOGGER.log(level, "group %r: %s", self._member.group, text)
            case (
                CallListener()
                | SetAssignment()
                | Withhold()
                | RunCallback()
                | CallInterceptors()
                | FinishCommit()
                | Raise()
                | RequestMetadata()
                | Finished()
            ):
                self.inbox.append(command)
            case _:
                assert_never(command)

    # The thread

    def start(self) -> LoopThread:
        """Starts the thread, unless it runs; it is started by the first need, too.

        :raises RotaError: it has been stopped, or this process is a fork of the consumer's own
        """
        self._home.check()
        if self._is_stopped:
            raise RotaError("the consumer is closed")
        with self.lock:
            return self._started()

    def _started(self) -> LoopThread:
        if self._thread is None:
            self._thread = LoopThread(f"rota-{self._member.group}", self._report)
            self._thread.call(self._open)
        return self._thread

    @property
    def is_started(self) -> bool:
        """Something has been asked of the group."""
        return self._thread is not None

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Ends the thread and its connections, within so many seconds whatever hangs.

        What has to be said to the group has been said: see :class:`~rota.member.event.CloseAsked`.
        """
        thread = self._drop()
        if thread is not None and not thread.stop(self._close, timeout):
            LOGGER.warning("the thread %s is still busy, and is left to itself", thread.name)

    def abandon(self) -> None:
        """The same without waiting for it: nobody is left who could."""
        thread = self._drop()
        if thread is not None:
            thread.begin_stop(self._close, STOP_TIMEOUT)

    def _drop(self) -> LoopThread | None:
        """Takes nothing on any more; the thread, if it is this process's to end."""
        self._is_stopped = True
        self._worker.drop()
        return None if self._home.is_forked else self._thread

    async def ask(self, request: Request, *, timeout: float | None = None) -> Reply:
        """Asks the coordinator something beside the membership, from any loop.

        What passes by itself (14, 15, 16, 88, broken connections) is asked again about; codes that
        are left come in the reply.

        :param timeout: in seconds; None: ``default.api.timeout.ms``
        :raises RotaError: there was no answer in time, or it was refused for good
        """
        patience = self._client_config.api_timeout / 1000 if timeout is None else timeout
        deadline = time.monotonic() + patience
        thread = self.start()
        asked = asyncio.run_coroutine_threadsafe(self._ask(request, deadline), thread.loop)
        try:
            return await asyncio.wrap_future(asked)
        except asyncio.CancelledError:
            if self._is_stopped:
                raise RotaError("the consumer was closed meanwhile") from None
            raise

    # In the worker's thread

    def _make(self, command: MakeAssignment) -> None:
        try:
            made = make(command)
        except BaseException as error:  # noqa: BLE001 (the group waits for an answer)
            failed = StrategyFailed(f"strategy {command.assignor.name!r} failed: {error!r}")
            failed.__cause__ = error
            made = AssignmentMade(command.number, error=failed)
        if not self._is_stopped:
            self._told(made)

    # In the thread's loop

    def _open(self) -> None:
        self._link = Link(self._client_config, self._member.group, self._told)

    async def _ask(self, request: Request, deadline: float) -> Reply:
        assert self._link is not None, "opened before all else"
        return await self._link.ask(request, deadline)

    def _pump(self) -> None:
        """Sends what is to be sent, in order."""
        link = self._link
        assert link is not None, "opened before all else"
        with self.lock:
            self._is_pumping = False  # first: what is put behind it now is sent, or pumps again
        while self._outgoing:
            command = self._outgoing.popleft()
            match command:
                case FindCoordinator():
                    link.find()
                case Send(number, request):
                    link.send(number, request)
                case _:
                    assert_never(command)

    def _arm(self) -> None:
        with self.lock:
            self._alarm.arm(asyncio.get_running_loop())

    def _fire(self) -> None:
        """Tells the machine of every timer that is due."""
        with self.lock:
            now = now_ms()
            while (timer := self._alarm.take(now)) is not None:
                self._told(TimerFired(timer))
            self._alarm.arm(asyncio.get_running_loop())

    def _told(self, event: Event) -> None:
        """As :meth:`tell`; what the machine raises is told to the application."""
        try:
            self.tell(event)
        except Exception as error:  # noqa: BLE001 (heartbeats must go on)
            self._report(error)

    def _report(self, error: Exception) -> None:
        """To be raised by the application's next call."""
        LOGGER.error("group %r: %r", self._member.group, error, exc_info=error)
        if not self._is_stopped:
            self.inbox.append(Raise(error))
            self._wake()

    async def _close(self) -> None:
        self._alarm.disarm()
        if self._link is not None:
            await self._link.close()
