"""The application's side of membership: executes the member's commands inside application calls.

The commands of the driver's thread (:mod:`rota.consumer.member_driver`) wait in an inbox, so that
listeners, callbacks and interceptors run in the application's own thread, and only there.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, assert_never

from rota.client.retry import wait_for_shared
from rota.consumer.fetcher import Fetcher
from rota.consumer.member_driver import MemberDriver
from rota.consumer.records import CommitCallback, ConsumerInterceptor, Offsets, RebalanceListener
from rota.engine.member import events
from rota.engine.member.events import MemberCommand
from rota.engine.member.state import format_code
from rota.engine.model.request import OffsetFetch
from rota.engine.model.response import OffsetFetchResult
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import AuthorizationFailed, Code, GroupError

LOGGER = logging.getLogger("rota.consumer")
NO_LISTENER = RebalanceListener()
in_listener: ContextVar[bool] = ContextVar("in_listener", default=False)  # inside a listener
CommitCommand: TypeAlias = (
    events.RunCommitCallback | events.CallInterceptors | events.FinishSyncCommit
)
#: Calls a function of the application, and awaits its result if that is awaitable.
CallApplication: TypeAlias = Callable[[Callable[[], object]], Awaitable[None]]


@dataclass(eq=False, repr=False)
class GroupMembership:
    driver: MemberDriver
    fetcher: Fetcher
    interceptors: Sequence[ConsumerInterceptor]
    call: CallApplication
    want_metadata: Callable[[tuple[str, ...] | None], None]
    wake: Callable[[], None]
    listener: RebalanceListener = NO_LISTENER
    has_left: bool = False  # the member has left the group, after ``CloseRequested``
    numbers: Iterator[int] = field(default_factory=partial(itertools.count, 1))
    callbacks: dict[int, CommitCallback | None] = field(default_factory=dict)
    ended: dict[int, Exception | None] = field(default_factory=dict)  # of synchronous commits
    errors: list[Exception] = field(default_factory=list)
    listener_task: asyncio.Future[None] | None = None  # the running or last call of the listener

    @property
    def is_listener_running(self) -> bool:
        """New partitions are not read before the listener returns."""
        return self.listener_task is not None and not self.listener_task.done()

    @property
    def has_commit_commands(self) -> bool:
        return any(isinstance(command, CommitCommand) for command in list(self.driver.inbox))

    async def handle_commands(self) -> None:
        """Carries out all waiting commands; raises the first error that they report."""
        inbox = self.driver.inbox
        while inbox:
            await self._execute_command(inbox.popleft())
        self._raise_first()

    async def handle_commit_commands(self) -> None:
        """Carries out the commands of commits; the others wait for the next poll."""
        for command in self._take_commit_commands():
            await self._execute_command(command)
        self._raise_first()

    def handle_commit_commands_now(self) -> None:
        """Like :meth:`handle_commit_commands`, for callers that cannot await."""
        for command in self._take_commit_commands():
            self._handle_commit_command(command)
        self._raise_first()

    def _take_commit_commands(self) -> list[CommitCommand]:
        inbox = self.driver.inbox
        waiting = [inbox.popleft() for _ in range(len(inbox))]
        inbox.extendleft(each for each in reversed(waiting) if not isinstance(each, CommitCommand))
        return [each for each in waiting if isinstance(each, CommitCommand)]

    def commit_async(self, offsets: Offsets | None, callback: CommitCallback | None) -> None:
        number = next(self.numbers)
        self.callbacks[number] = callback
        self.driver.handle_event(events.CommitRequested(number, offsets))

    def begin_commit(self, offsets: Offsets | None, until_ms: int) -> int:
        """Starts a commit, and returns the number for :meth:`has_commit_ended`."""
        number = next(self.numbers)
        self.driver.handle_event(events.CommitRequested(number, offsets, until_ms))
        return number

    def has_commit_ended(self, number: int) -> bool:
        """Raises GroupError if the commit failed, TimedOut if it was not stored in time."""
        if number not in self.ended:
            return False
        error = self.ended.pop(number)
        if error is not None:
            raise error
        return True

    async def fetch_committed(
        self, partitions: tuple[TopicPartition, ...], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the group's committed offsets. Raises AuthorizationFailed or GroupError."""
        group = self.driver.group
        # stable: waits for offsets that an open transaction is about to commit (KIP-447)
        request = OffsetFetch(group=group, partitions=partitions, require_stable=True)
        response = await self.driver.send_to_coordinator(request, timeout=timeout)
        assert isinstance(response, OffsetFetchResult)
        if response.code == Code.GROUP_AUTHORIZATION_FAILED:
            raise AuthorizationFailed(response.code, f"no permission for group {group}")
        if response.code != Code.NONE:
            text = f"offsets of group {group}: refused with {format_code(response.code)}"
            raise GroupError(text, response.code)
        for at, code in response.codes.items():
            if code == Code.TOPIC_AUTHORIZATION_FAILED:
                raise AuthorizationFailed(code, f"no permission to read topic {at.topic}")
            if code != Code.NONE:
                text = f"the committed offset of {at}: refused with {format_code(code)}"
                raise GroupError(text, code)
        return dict(response.offsets)

    async def _execute_command(self, command: MemberCommand) -> None:
        match command:
            case events.SetAssignment(partitions):
                with self.driver.lock:
                    self.fetcher.assign(partitions)
            case events.MarkPendingRevocation(partitions):
                with self.driver.lock:
                    self.fetcher.mark_pending_revocation(partitions)
            case events.CallListener():
                await self._call_listener(command)
            case events.RunCommitCallback() | events.CallInterceptors() | events.FinishSyncCommit():
                await self.call(partial(self._handle_commit_command, command))
            case events.RequestMetadata(topics):
                self.want_metadata(topics)
            case events.RaiseError(error):
                self.errors.append(error)
            case events.FinishClose():
                self.has_left = True
            case _:
                raise AssertionError(f"not for the application: {command!r}")

    async def _call_listener(self, command: events.CallListener) -> None:
        """Runs the listener in a task, so that a cancelled poll does not interrupt it."""
        self.listener_task = asyncio.ensure_future(self._run_listener(command))
        self.listener_task.add_done_callback(lambda _: self.wake())
        await wait_for_shared(self.listener_task)

    async def _run_listener(self, command: events.CallListener) -> None:
        method = getattr(self.listener, command.method.value)
        error: Exception | None = None
        in_listener.set(True)
        try:
            await self.call(partial(_call_in_listener, method, command.partitions))
        except Exception as raised:  # noqa: BLE001 (an application's code may raise anything)
            error = raised
        finally:  # also after a Ctrl-C: the group must not wait forever
            self.driver.handle_event(events.ListenerReturned(command.call_id, error))

    def _handle_commit_command(self, command: CommitCommand) -> None:
        match command:
            case events.RunCommitCallback(number, offsets, error):
                self._run(self.callbacks.pop(number, None), offsets, error)
            case events.CallInterceptors(offsets):
                for interceptor in self.interceptors:
                    call_interceptor("on_commit", interceptor, offsets)
            case events.FinishSyncCommit(number, error):
                self.ended[number] = error
            case _:
                assert_never(command)

    def _run(
        self, callback: CommitCallback | None, offsets: Offsets, failure: Exception | None
    ) -> None:
        if callback is None:
            if failure is not None:
                LOGGER.warning(
                    "asynchronous commit of %d partitions failed: %s", len(offsets), failure
                )
            return
        try:
            callback(offsets, failure)
        except Exception as error:  # noqa: BLE001 (an application's code may raise anything)
            self.errors.append(error)

    def _raise_first(self) -> None:
        """Raises the first error; the following calls raise the others, one each."""
        if self.errors:
            raise self.errors.pop(0)


def _call_in_listener(
    method: Callable[[Sequence[TopicPartition]], object], partitions: Sequence[TopicPartition]
) -> object:
    # the method may run in another context than the task that calls it
    before = in_listener.set(True)
    try:
        return method(partitions)
    finally:
        in_listener.reset(before)


async def call_in_loop(function: Callable[[], object]) -> None:
    """Calls a function in the loop, and awaits its result if that is awaitable."""
    result = function()
    if inspect.isawaitable(result):
        await result


def call_interceptor(name: str, interceptor: ConsumerInterceptor, *arguments: object) -> Any:  # noqa: ANN401
    """Calls a method of an interceptor, and logs its errors: they must not break the consumer."""
    try:
        return getattr(interceptor, name)(*arguments)
    except Exception:  # an application's code may raise anything
        LOGGER.exception("an interceptor's %s raised", name)
        return None
