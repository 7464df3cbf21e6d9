"""Runs the member's state machine: a thread for requests and timers, so heartbeats never wait.

Two threads pass events to the machine, one at a time: the application's (it polls, commits, closes)
and the driver's (responses and timers). Each command is carried out by the thread it belongs to:
listeners and callbacks run only inside the application's own calls, so their commands wait in an
inbox. The assignor of a group leader may take long: it runs in a third thread, without the lock.
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
from types import FrameType
from typing import Any, assert_never

from rota.client.retry import add_jitter
from rota.consumer.coordinator import CoordinatorClient, now_ms
from rota.engine.assignors.interface import Assignor
from rota.engine.member import events
from rota.engine.member.classic import compute_assignment
from rota.engine.member.events import MemberCommand, MemberEvent
from rota.engine.member.member import MemberStateMachine
from rota.engine.model.config import ClientConfig, MemberConfig
from rota.engine.model.request import GroupRequest
from rota.engine.model.response import GroupResponse
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import RotaError, StrategyFailed

LOGGER = logging.getLogger("rota.consumer")
POLL_EVENTS = frozenset({events.PollBegan, events.PollEnded})
STOP_TIMEOUT = 5.0  # seconds for the thread to end


class MemberDriver:
    def __init__(
        self,
        client: ClientConfig,
        member: MemberConfig,
        assignors: Sequence[Assignor],
        consumed: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]],
        wake: Callable[[], None],
    ) -> None:
        """``consumed`` returns the positions after what was handed out, under the lock; ``wake`` is
        called when the inbox has a new command. Both are called in either thread.
        """
        #: Held while the machine handles an event, and while records are taken.
        self.lock = threading.RLock()
        self.inbox: deque[MemberCommand] = deque()  # commands for the application, in this order
        #: To be read under the lock; only :meth:`handle_event` changes it.
        self.machine = MemberStateMachine(
            member, assignors, consumed, spread=lambda pause: round(add_jitter(pause))
        )
        self._client_config = client
        self._member = member
        self._wake = wake
        self._fork_check = ForkCheck()
        self._timers = MemberTimers(self._fire_due_timers)
        self._outgoing: deque[events.FindCoordinator | events.SendRequest] = deque()
        self._is_sending = False
        self._worker = BackgroundWorker(f"rota-{member.group}-assign")
        self._thread: LoopThread | None = None
        self._coordinator: CoordinatorClient | None = None
        self._is_stopped = False

    @property
    def group(self) -> str:
        return self._member.group

    def now(self) -> int:
        return now_ms()

    def handle_event(self, event: MemberEvent) -> None:
        """Gives an event to the state machine and executes the resulting commands; from any thread.

        :raises InputError: the event is wrong
        :raises RotaError: this process was forked from the consumer's
        """
        self._fork_check.check()
        if type(event) in POLL_EVENTS:
            with self.lock:
                if self.machine.is_idle:  # frequent, and an interruption does no harm
                    self._handle_event(event)
                    return
        with SigintGuard():
            self._handle_event(event)

    def _handle_event(self, event: MemberEvent) -> None:
        with self.lock:
            before = len(self.inbox)
            for command in self.machine.handle(event, now_ms()):
                self._execute_command(command)
            has_new = len(self.inbox) > before
        if has_new:
            self._wake()

    def _execute_command(self, command: MemberCommand) -> None:
        match command:
            case events.StopMemberTimer(timer):
                self._timers.due.pop(timer, None)
            case events.StartMemberTimer(timer, at):
                if self._timers.start(timer, at):
                    self._ensure_thread().call(self._set_loop_timer)
            case events.FindCoordinator() | events.SendRequest():
                self._outgoing.append(command)
                if not self._is_sending:
                    self._ensure_thread().call(self._send_outgoing)
                    self._is_sending = True  # _send_outgoing needs the lock to reset this
            case events.ComputeAssignment():
                self._worker.submit(partial(self._make_assignment, command))
            case events.MemberNote(text, warns):
                level = logging.WARNING if warns else logging.INFO
                LOGGER.log(level, "group %r: %s", self._member.group, text)
            case (
                events.CallListener()
                | events.SetAssignment()
                | events.MarkPendingRevocation()
                | events.RunCommitCallback()
                | events.CallInterceptors()
                | events.FinishSyncCommit()
                | events.RaiseError()
                | events.RequestMetadata()
                | events.FinishClose()
            ):
                self.inbox.append(command)
            case _:
                assert_never(command)

    def start(self) -> LoopThread:
        """Starts the thread unless it runs. Raises RotaError after a stop or a fork."""
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
        return self._thread is not None

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Ends the thread and its connections in time, after the member has left the group."""
        thread = self.abandon(timeout)
        if thread is not None and not thread.wait(timeout):
            LOGGER.warning("the thread %s is still busy and is abandoned", thread.name)

    def abandon(self, timeout: float = STOP_TIMEOUT) -> LoopThread | None:
        """As :meth:`stop`, but does not wait; returns the thread, if this process may end it."""
        self._is_stopped = True
        self._worker.discard_pending()
        if self._fork_check.is_forked or self._thread is None:
            return None
        self._thread.begin_stop(self._close, timeout)
        return self._thread

    async def send_to_coordinator(
        self, request: GroupRequest, *, timeout: float | None = None
    ) -> GroupResponse:
        """Sends a request from any loop, not one of the membership; retries transient errors.

        :param timeout: in seconds; None: ``default.api.timeout.ms``
        :raises RotaError: no response in time, or the request is refused for good
        """
        seconds = self._client_config.api_timeout / 1000 if timeout is None else timeout
        deadline = time.monotonic() + seconds
        thread = self.start()
        future = asyncio.run_coroutine_threadsafe(self._send(request, deadline), thread.loop)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if self._is_stopped:
                raise RotaError("the consumer was closed meanwhile") from None
            raise

    def _make_assignment(self, command: events.ComputeAssignment) -> None:
        try:
            made = compute_assignment(command)
        except BaseException as error:  # noqa: BLE001 (the group waits for an assignment)
            failed = StrategyFailed(f"strategy {command.assignor.name!r} failed: {error!r}")
            failed.__cause__ = error
            made = events.AssignmentComputed(command.assignment_id, error=failed)
        if not self._is_stopped:
            self._handle_event_safely(made)

    def _open(self) -> None:
        config, report_event = self._client_config, self._handle_event_safely
        self._coordinator = CoordinatorClient(config, self._member.group, report_event)

    async def _send(self, request: GroupRequest, deadline: float) -> GroupResponse:
        assert self._coordinator is not None, "_open runs first"
        return await self._coordinator.send_with_retries(request, deadline)

    def _send_outgoing(self) -> None:
        coordinator = self._coordinator
        assert coordinator is not None, "_open runs first"
        with self.lock:
            self._is_sending = False  # first: a command added now is sent here, or by a new call
        while self._outgoing:
            command = self._outgoing.popleft()
            match command:
                case events.FindCoordinator():
                    coordinator.find_coordinator()
                case events.SendRequest(number, request):
                    coordinator.send_request(number, request)
                case _:
                    assert_never(command)

    def _set_loop_timer(self) -> None:
        with self.lock:
            self._timers.set_loop_timer(asyncio.get_running_loop())

    def _fire_due_timers(self) -> None:
        with self.lock:
            now = now_ms()
            while (timer := self._timers.take_due(now)) is not None:
                self._handle_event_safely(events.MemberTimerFired(timer))
            self._timers.set_loop_timer(asyncio.get_running_loop())

    def _handle_event_safely(self, event: MemberEvent) -> None:
        """As :meth:`handle_event`; the application gets the exceptions of the machine."""
        try:
            self.handle_event(event)
        except Exception as error:  # noqa: BLE001 (heartbeats must go on)
            self._report(error)

    def _report(self, error: Exception) -> None:
        LOGGER.error("group %r: %r", self._member.group, error, exc_info=error)
        if not self._is_stopped:
            self.inbox.append(events.RaiseError(error))
            self._wake()

    async def _close(self) -> None:
        self._timers.clear()
        if self._coordinator is not None:
            await self._coordinator.close()


class MemberTimers:
    """The times of the member's timers; wakes the loop for the earliest. All methods need the lock.
    A poll stops and moves timers thousands of times a second: that causes no wake-up.
    """

    def __init__(self, fire: Callable[[], None]) -> None:
        self.due: dict[events.MemberTimer, int] = {}  # in milliseconds of the driver's clock
        self._fire = fire
        #: When the loop will wake up, in milliseconds; it may not have its timer yet.
        self._armed = math.inf
        self._handle: asyncio.TimerHandle | None = None

    def start(self, timer: events.MemberTimer, at: int) -> bool:
        """Starts or moves a timer; returns whether :meth:`set_loop_timer` must be called."""
        self.due[timer] = at
        is_first = at < self._armed
        self._armed = min(self._armed, at)
        return is_first

    def take_due(self, now: int) -> events.MemberTimer | None:
        """Removes and returns the first timer that is due; None if none is."""
        timer = min(self.due, key=lambda each: (self.due[each], each.value), default=None)
        if timer is None or self.due[timer] > now:
            return None
        del self.due[timer]
        return timer

    def set_loop_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """Makes the loop wake up for the earliest timer; must be called in its thread."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._armed = min(self.due.values(), default=math.inf)
        if self._armed < math.inf:
            # slightly late rather than slightly early, when no timer would be due
            self._handle = loop.call_at(self._armed / 1000 + 0.0005, self._fire)

    def clear(self) -> None:
        self.due.clear()
        if self._handle is not None:
            self._handle.cancel()


class LoopThread:
    """A daemon thread with an event loop that only :meth:`begin_stop` ends; reports exceptions."""

    def __init__(self, name: str, report: Callable[[Exception], None]) -> None:
        self.loop = asyncio.new_event_loop()
        self.name = name
        self._report = report
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.loop.set_exception_handler(self._handle)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        return threading.get_ident() == self._thread.ident

    def call(self, function: Callable[[], object]) -> None:
        """Calls a function in the loop soon, from any thread; not at all after a stop."""
        if self.is_current:
            self.loop.call_soon(function)
            return
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:  # the loop is closed
            if not self._is_stopping:
                raise

    def begin_stop(self, cleanup: Callable[[], Coroutine[Any, Any, None]], timeout: float) -> None:
        """Runs a cleanup in the loop, for half of the time, cancels all tasks and ends it."""

        def begin() -> None:
            if not self._is_stopping:
                self._is_stopping = True
                self.loop.create_task(self._end(cleanup, timeout / 2))

        self.call(begin)

    def wait(self, timeout: float) -> bool:
        """Waits for the end after :meth:`begin_stop`; False if the thread is still busy then."""
        if not self.is_current:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    async def _end(self, cleanup: Callable[[], Coroutine[Any, Any, None]], timeout: float) -> None:
        try:
            await asyncio.wait_for(cleanup(), timeout)
        except Exception as error:  # noqa: BLE001 (the thread ends, whatever happens)
            self._report(error)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=timeout)
        self.loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            while not self._is_stopping:
                try:
                    self.loop.run_forever()
                except Exception as error:  # noqa: BLE001 (heartbeats must continue)
                    self._report(error)
        finally:
            self.loop.close()

    def _handle(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._report(error if isinstance(error, Exception) else RuntimeError(context["message"]))


class BackgroundWorker:
    """Runs the newest task, in a daemon thread that ends when none waits: a task may hang."""

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
        with self._lock:
            self._next = None

    def _run(self) -> None:
        while True:
            with self._lock:
                work, self._next = self._next, None
                self._is_busy = work is not None
            if work is None:
                return
            work()


class SigintGuard:
    """Defers SIGINT to the end of the block: an interrupted event would lose its commands."""

    __slots__ = ("_before", "_caught", "_frame")

    def __init__(self) -> None:
        self._before: Callable[[int, FrameType | None], object] | None = None
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

    def __exit__(self, *_: object) -> None:
        before, self._before = self._before, None
        if before is not None:
            signal.signal(signal.SIGINT, before)
            if self._caught:
                before(signal.SIGINT, self._frame)

    def _note(self, _number: int, frame: FrameType | None) -> None:
        self._caught, self._frame = True, frame


class ForkCheck:
    """Detects a fork: the new process lacks the threads and shares its parent's sockets."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_forked(self) -> bool:
        return os.getpid() != self._pid

    def check(self) -> None:
        if self.is_forked:
            raise RotaError(
                "this process was forked from the one that made the consumer: its thread and "
                "connections are not here. Make a consumer in each process"
            )
