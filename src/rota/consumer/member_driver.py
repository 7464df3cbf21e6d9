"""Runs the member's state machine: its requests and timers have a thread of their own, so
heartbeats never wait.

Two threads give events to the machine, one at a time: the application's (it polls, commits, closes)
and the driver's (responses and timers). Each command is carried out by the thread it belongs to.
Commands for the application wait in an inbox, because listeners and callbacks run in the
application's own calls, and only there. The assignor of a group leader may take long: it runs in a
third thread, which ends with it, without the machine's lock.

The order in this module: the driver, its timers, the thread with an event loop, the worker for the
assignor, the guard against Ctrl-C and the check for forked processes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from types import FrameType, TracebackType
from typing import Any, assert_never

from rota.client.retry import add_jitter
from rota.consumer.coordinator import CoordinatorClient, now_ms
from rota.engine.assignors.interface import Assignor
from rota.engine.member.classic import compute_assignment
from rota.engine.member.events import (
    AssignmentComputed,
    CallInterceptors,
    CallListener,
    ComputeAssignment,
    FindCoordinator,
    FinishClose,
    FinishSyncCommit,
    MarkPendingRevocation,
    MemberCommand,
    MemberEvent,
    MemberNote,
    MemberTimer,
    MemberTimerFired,
    PollBegan,
    PollEnded,
    RaiseError,
    RequestMetadata,
    RunCommitCallback,
    SendRequest,
    SetAssignment,
    StartMemberTimer,
    StopMemberTimer,
)
from rota.engine.member.member import MemberStateMachine
from rota.engine.model.config import ClientConfig, MemberConfig
from rota.engine.model.request import GroupRequest
from rota.engine.model.response import GroupResponse
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import RotaError, StrategyFailed

LOGGER = logging.getLogger("rota.consumer")

POLL_EVENTS = frozenset({PollBegan, PollEnded})

#: Seconds that the thread has to end.
STOP_TIMEOUT = 5.0


class MemberDriver:
    """A member of a group: its state machine, and the thread that runs it."""

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
        #: Held while the machine works. Who takes records and tells of it does both under it.
        self.lock = threading.RLock()
        #: What the application has to do, in this order.
        self.inbox: deque[MemberCommand] = deque()
        #: To be read under the lock; told by :meth:`tell` alone.
        self.machine = MemberStateMachine(
            member, assignors, consumed, spread=lambda pause: round(add_jitter(pause))
        )
        self._client_config = client
        self._member = member
        self._wake = wake
        self._fork_check = ForkCheck()
        self._timers = MemberTimers(self._fire_due_timers)
        self._outgoing: deque[FindCoordinator | SendRequest] = deque()
        self._is_sending = False
        self._worker = BackgroundWorker(f"rota-{member.group}-assign")
        self._thread: LoopThread | None = None
        self._coordinator: CoordinatorClient | None = None
        self._is_stopped = False

    @property
    def group(self) -> str:
        """The group's name."""
        return self._member.group

    def now(self) -> int:
        """The machine's time, in milliseconds since some moment."""
        return now_ms()

    # Events in, commands out

    def handle_event(self, event: MemberEvent) -> None:
        """Gives an event to the state machine and executes the resulting commands; from any thread.

        :raises InputError: the event is wrong
        :raises RotaError: this process was forked from the consumer's
        """
        self._fork_check.check()
        if type(event) in POLL_EVENTS:
            with self.lock:
                if self.machine.is_idle:  # often, and nothing is lost if it is cut
                    self._handle_event(event)
                    return
        with SigintGuard():
            self._handle_event(event)

    def _handle_event(self, event: MemberEvent) -> None:
        with self.lock:
            told = len(self.inbox)
            for command in self.machine.handle(event, now_ms()):
                self._execute_command(command)
            told = len(self.inbox) - told
        if told:
            self._wake()

    def _execute_command(self, command: MemberCommand) -> None:
        match command:
            case StopMemberTimer(timer):
                self._timers.stop(timer)
            case StartMemberTimer(timer, at):
                if self._timers.start(timer, at):
                    self._ensure_thread().call(self._set_loop_timer)
            case FindCoordinator() | SendRequest():
                self._outgoing.append(command)
                if not self._is_sending:
                    self._ensure_thread().call(self._send_outgoing)
                    self._is_sending = True  # it waits for the lock before it takes this back
            case ComputeAssignment():
                self._worker.submit(partial(self._make_assignment, command))
            case MemberNote(text, warns):
                level = logging.WARNING if warns else logging.INFO
                LOGGER.log(level, "group %r: %s", self._member.group, text)
            case (
                CallListener()
                | SetAssignment()
                | MarkPendingRevocation()
                | RunCommitCallback()
                | CallInterceptors()
                | FinishSyncCommit()
                | RaiseError()
                | RequestMetadata()
                | FinishClose()
            ):
                self.inbox.append(command)
            case _:
                assert_never(command)

    # The thread

    def start(self) -> LoopThread:
        """Starts the thread, unless it runs; it is started by the first need, too.

        :raises RotaError: it has been stopped, or this process is a fork of the consumer's own
        """
        self._fork_check.check()
        if self._is_stopped:
            raise RotaError("the consumer is closed")
        with self.lock:
            return self._ensure_thread()

    def _ensure_thread(self) -> LoopThread:
        if self._thread is None:
            self._thread = LoopThread(f"rota-{self._member.group}", self._report)
            self._thread.call(self._open)
        return self._thread

    @property
    def is_started(self) -> bool:
        """The thread was started: something was asked of the group."""
        return self._thread is not None

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Ends the thread and its connections, within the timeout whatever hangs.

        The member has left the group before: see
        :class:`~rota.engine.member.events.CloseRequested`.
        """
        thread = self._stop_taking_work()
        if thread is not None and not thread.stop(self._close, timeout):
            LOGGER.warning("the thread %s is still busy, and is left to itself", thread.name)

    def abandon(self) -> None:
        """The same without waiting for it: nobody is left who could."""
        thread = self._stop_taking_work()
        if thread is not None:
            thread.begin_stop(self._close, STOP_TIMEOUT)

    def _stop_taking_work(self) -> LoopThread | None:
        """Accepts no more work; returns the thread, if this process may end it."""
        self._is_stopped = True
        self._worker.discard_pending()
        return None if self._fork_check.is_forked else self._thread

    async def ask_coordinator(
        self, request: GroupRequest, *, timeout: float | None = None
    ) -> GroupResponse:
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

    def _make_assignment(self, command: ComputeAssignment) -> None:
        try:
            made = compute_assignment(command)
        except BaseException as error:  # noqa: BLE001 (the group waits for an answer)
            failed = StrategyFailed(f"strategy {command.assignor.name!r} failed: {error!r}")
            failed.__cause__ = error
            made = AssignmentComputed(command.assignment_id, error=failed)
        if not self._is_stopped:
            self._handle_event_safely(made)

    # In the thread's loop

    def _open(self) -> None:
        self._coordinator = CoordinatorClient(
            self._client_config, self._member.group, self._handle_event_safely
        )

    async def _ask(self, request: GroupRequest, deadline: float) -> GroupResponse:
        assert self._coordinator is not None, "opened before all else"
        return await self._coordinator.ask_until_answered(request, deadline)

    def _send_outgoing(self) -> None:
        """Sends what is to be sent, in order."""
        link = self._coordinator
        assert link is not None, "opened before all else"
        with self.lock:
            self._is_sending = False  # first: what is put behind it now is sent, or pumps again
        while self._outgoing:
            command = self._outgoing.popleft()
            match command:
                case FindCoordinator():
                    link.find_coordinator()
                case SendRequest(number, request):
                    link.send_request(number, request)
                case _:
                    assert_never(command)

    def _set_loop_timer(self) -> None:
        with self.lock:
            self._timers.set_loop_timer(asyncio.get_running_loop())

    def _fire_due_timers(self) -> None:
        """Tells the machine of every timer that is due."""
        with self.lock:
            now = now_ms()
            while (timer := self._timers.take_due(now)) is not None:
                self._handle_event_safely(MemberTimerFired(timer))
            self._timers.set_loop_timer(asyncio.get_running_loop())

    def _handle_event_safely(self, event: MemberEvent) -> None:
        """As :meth:`tell`; what the machine raises is told to the application."""
        try:
            self.handle_event(event)
        except Exception as error:  # noqa: BLE001 (heartbeats must go on)
            self._report(error)

    def _report(self, error: Exception) -> None:
        """To be raised by the application's next call."""
        LOGGER.error("group %r: %r", self._member.group, error, exc_info=error)
        if not self._is_stopped:
            self.inbox.append(RaiseError(error))
            self._wake()

    async def _close(self) -> None:
        self._timers.clear()
        if self._coordinator is not None:
            await self._coordinator.close()


class MemberTimers:
    """Knows when each of the member's timers is due, and wakes the loop for the earliest.

    Stopping a timer or moving it later causes no wake-up: the loop finds nothing due and sleeps on.
    A poll does that thousands of times a second. All methods but :meth:`set_loop_timer` and the
    loop's own call need the owner's lock.
    """

    __slots__ = ("_armed", "_fire", "_handle", "due")

    def __init__(self, fire: Callable[[], None]) -> None:
        #: In milliseconds of the driver's clock.
        self.due: dict[MemberTimer, int] = {}
        self._fire = fire
        #: When the loop will wake, or is about to be told to; in milliseconds.
        self._armed = math.inf
        self._handle: asyncio.TimerHandle | None = None

    def start(self, timer: MemberTimer, at: int) -> bool:
        """Starts a timer, or moves it; True if the loop must be told, by :meth:`arm`."""
        self.due[timer] = at
        if at < self._armed:
            self._armed = at
            return True
        return False

    def stop(self, timer: MemberTimer) -> None:
        """Forgets a timer."""
        self.due.pop(timer, None)

    def take_due(self, now: int) -> MemberTimer | None:
        """Removes and returns the first timer that is due; None if none is."""
        timer = min(self.due, key=lambda one: (self.due[one], one.value), default=None)
        if timer is None or self.due[timer] > now:
            return None
        del self.due[timer]
        return timer

    def set_loop_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """In the loop's thread: it wakes for the earliest timer there is now."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._armed = min(self.due.values(), default=math.inf)
        if self._armed < math.inf:
            # a bit late rather than a bit early, when nothing would be due yet
            self._handle = loop.call_at(self._armed / 1000 + 0.0005, self._fire)

    def clear(self) -> None:
        """In the loop's thread: it wakes no more."""
        self.due.clear()
        if self._handle is not None:
            self._handle.cancel()


ReportError = Callable[[Exception], None]


class LoopThread:
    """A daemon: a program that ends without a word does not wait for it.

    Nothing that happens in the loop ends it but :meth:`stop`; what a step raises is reported.
    """

    def __init__(self, name: str, report: ReportError) -> None:
        self.loop = asyncio.new_event_loop()
        self.name = name
        self._report = report
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.loop.set_exception_handler(self._handle)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Is this code running in that thread?"""
        return threading.get_ident() == self._thread.ident

    @property
    def is_alive(self) -> bool:
        """Has it not ended?"""
        return self._thread.is_alive()

    def call(self, act: Callable[[], object]) -> None:
        """Runs this in the loop soon, from whatever thread; not at all if it has been stopped."""
        if self.is_here:
            self.loop.call_soon(act)
            return
        try:
            self.loop.call_soon_threadsafe(act)
        except RuntimeError:  # it is closed
            if not self._is_stopping:
                raise

    def begin_stop(self, farewell: Callable[[], Coroutine[Any, Any, None]], timeout: float) -> None:
        """Runs a farewell in the loop, then ends it.

        The farewell has half of the time: what hangs in it is cancelled, as all else is.
        """

        def begin() -> None:
            if not self._is_stopping:
                self._is_stopping = True
                self.loop.create_task(self._end(farewell, timeout / 2))

        self.call(begin)

    def stop(self, farewell: Callable[[], Coroutine[Any, Any, None]], timeout: float) -> bool:
        """The same, and waits for it; False if it is still busy after that time."""
        until = time.monotonic() + timeout
        self.begin_stop(farewell, timeout)
        if not self.is_here:
            self._thread.join(max(0.0, until - time.monotonic()))
        return not self._thread.is_alive()

    async def _end(self, farewell: Callable[[], Coroutine[Any, Any, None]], time: float) -> None:
        try:
            await asyncio.wait_for(farewell(), time)
        except Exception as error:  # noqa: BLE001 (the thread ends, whatever happens)
            self._report(error)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=time)
        self.loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            while not self._is_stopping:
                try:
                    self.loop.run_forever()
                except Exception as error:  # noqa: BLE001 (goes on, or heartbeats would end)
                    self._report(error)
        finally:
            self.loop.close()

    def _handle(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._report(error if isinstance(error, Exception) else RuntimeError(context["message"]))


class BackgroundWorker:
    """Runs one task at a time, in a thread that lives as long as there is work.

    Of the waiting tasks only the newest counts: older ones are outdated. Nobody waits for the
    thread, and it is a daemon, so a task that hangs does not keep the process alive.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._next: Callable[[], object] | None = None
        self._is_busy = False

    def submit(self, work: Callable[[], object]) -> None:
        """Submits a task, which must not raise; it replaces one that still waits."""
        with self._lock:
            self._next = work
            if not self._is_busy:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
                self._is_busy = True

    def discard_pending(self) -> None:
        """Discards the waiting task."""
        with self._lock:
            self._next = None

    def _run(self) -> None:
        while (work := self._take()) is not None:
            work()

    def _take(self) -> Callable[[], object] | None:
        with self._lock:
            work, self._next = self._next, None
            self._is_busy = work is not None
            return work


SignalHandler = Callable[[int, FrameType | None], object]


class SigintGuard:
    """Defers SIGINT: its handler is called at the end of the ``with`` block.

    Python calls the handler between any two steps of the main thread's code, and it raises
    KeyboardInterrupt there. A state machine that is interrupted in the middle of an event would
    wait for commands that were never carried out.
    """

    __slots__ = ("_before", "_caught", "_frame")

    def __init__(self) -> None:
        self._before: SignalHandler | None = None
        self._caught = False
        self._frame: FrameType | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # no handler is called here
        before = signal.getsignal(signal.SIGINT)
        if callable(before):
            self._before = before
            try:
                signal.signal(signal.SIGINT, self._note)
            except ValueError:  # the main thread of another interpreter
                self._before = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        before, self._before = self._before, None
        if before is not None:
            signal.signal(signal.SIGINT, before)
            if self._caught:
                before(signal.SIGINT, self._frame)

    def _note(self, _number: int, frame: FrameType | None) -> None:
        self._caught, self._frame = True, frame


class ForkCheck:
    """Detects a fork: the new process lacks the threads and shares its parent's sockets."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Whether the current process is a fork of the one that created the object."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """:raises RotaError: this process was forked"""
        if self.is_forked:
            raise RotaError(
                "this process was forked from the one that made the consumer: its thread and "
                "connections are not here. Make a consumer in each process"
            )
