"""The application's side of the membership: does what the member machine wants done here.

The machine lives in the driver's thread; its commands for the application wait in an inbox until
the application is inside one of its consumer's calls. So listeners, callbacks and interceptors run
in the application's own thread, and only there.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Protocol, TypeAlias, TypeVar, assert_never

from rota.client.race import wait_for_shared
from rota.consumer.driver import Driver
from rota.consumer.listener import (
    CommitCallback,
    ConsumerInterceptor,
    Offsets,
    RebalanceListener,
)
from rota.errors import AuthorizationFailed, Code, GroupError
from rota.member.event import (
    CallInterceptors,
    CallListener,
    CloseAsked,
    Command,
    CommitAsked,
    FinishCommit,
    Finished,
    ListenerReturned,
    Raise,
    RequestMetadata,
    RunCallback,
    SetAssignment,
    Withhold,
)
from rota.member.refusal import code_name
from rota.model.offset import OffsetAndMetadata
from rota.model.reply import FetchOffsetsReply
from rota.model.request import FetchOffsets
from rota.model.topic import TopicPartition

LOGGER = logging.getLogger("rota.consumer")
SILENT = RebalanceListener()

_in_listener: ContextVar[bool] = ContextVar("in_listener", default=False)
CommitNews: TypeAlias = RunCallback | CallInterceptors | FinishCommit
Caller: TypeAlias = Callable[[Callable[[], object]], Awaitable[None]]
"""Calls what is the application's own, and waits for it if it is to be awaited."""
T = TypeVar("T")
R = TypeVar("R")


class Reader(Protocol):
    """Who reads what the member owns."""

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """From now on these, and no others."""

    def withhold(self, partitions: Sequence[TopicPartition]) -> None:
        """Hand out no more of these."""


class Membership:
    """Carries out the commands that are the application's to carry out."""

    def __init__(  # noqa: PLR0913, what it stands between
        self,
        driver: Driver,
        reader: Reader,
        interceptors: Sequence[ConsumerInterceptor],
        call: Caller,
        *,
        want_metadata: Callable[[tuple[str, ...] | None], None],
        wake: Callable[[], None],
    ) -> None:
        self.driver = driver
        self._call = call
        self.listener: RebalanceListener = SILENT
        self.is_finished = False
        """The member has said good-bye."""
        self._reader = reader
        self._interceptors = interceptors
        self._want_metadata = want_metadata
        self._wake = wake
        self._numbers = itertools.count(1)
        self._callbacks: dict[int, CommitCallback | None] = {}
        self._ended: dict[int, Exception | None] = {}
        """Synchronous commits that are over."""
        self._errors: list[Exception] = []
        self._listening: asyncio.Future[None] | None = None
        """The call of the listener that is under way, or was last."""

    @property
    def is_due(self) -> bool:
        """Something waits to be done."""
        return bool(self.driver.inbox)

    @property
    def is_listening(self) -> bool:
        """The listener is at work: what it was told of is not read before it is done."""
        return self._listening is not None and not self._listening.done()

    @property
    def has_commit_news(self) -> bool:
        """Something that belongs to commits waits to be done."""
        return any(isinstance(command, CommitNews) for command in list(self.driver.inbox))

    async def attend(self) -> None:
        """Does all that waits.

        :raises Exception: what the member has to tell, or a callback raised; the first of it
        """
        inbox = self.driver.inbox
        while inbox:
            await self._carry_out(inbox.popleft())
        self._raise_first()

    async def attend_to_commits(self) -> None:
        """Does what belongs to commits; the rest waits for the next poll."""
        for command in self._about_commits():
            await self._carry_out(command)
        self._raise_first()

    def attend_to_commits_now(self) -> None:
        """The same for who cannot await."""
        for command in self._about_commits():
            self._tell(command)
        self._raise_first()

    def _about_commits(self) -> list[CommitNews]:
        inbox = self.driver.inbox
        found: list[CommitNews] = []
        others: list[Command] = []
        while inbox:
            command = inbox.popleft()
            if isinstance(command, CommitNews):
                found.append(command)
            else:
                others.append(command)
        inbox.extendleft(reversed(others))
        return found

    def commit_async(self, offsets: Offsets | None, callback: CommitCallback | None) -> None:
        """Asks for a commit; its callback runs later."""
        number = next(self._numbers)
        self._callbacks[number] = callback
        self.driver.tell(CommitAsked(number, offsets))

    def begin_commit(self, offsets: Offsets | None, until_ms: int) -> int:
        """Asks for a commit that is waited for."""
        number = next(self._numbers)
        self.driver.tell(CommitAsked(number, offsets, until_ms))
        return number

    def has_ended(self, number: int) -> bool:
        """Is this commit over?

        :raises GroupError: it is, and nothing was stored
        :raises TimedOut: it was not stored in time
        """
        if number not in self._ended:
            return False
        error = self._ended.pop(number)
        if error is not None:
            raise error
        return True

    async def fetch_committed(
        self, partitions: tuple[TopicPartition, ...], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has stored.

        :raises AuthorizationFailed: no permission for the group, or for a topic
        :raises GroupError: its coordinator refuses
        """
        group = self.driver.group
        # stable: what an open transaction is about to commit is waited for (KIP-447)
        request = FetchOffsets(group=group, partitions=partitions, stable=True)
        reply = await self.driver.ask(request, timeout=timeout)
        assert isinstance(reply, FetchOffsetsReply)
        if reply.code == Code.GROUP_AUTHORIZATION_FAILED:
            raise AuthorizationFailed(reply.code, f"no permission for group {group}")
        if reply.code != Code.NONE:
            text = f"offsets of group {group}: refused with {code_name(reply.code)}"
            raise GroupError(text, reply.code)
        for at, code in reply.codes.items():
            if code == Code.TOPIC_AUTHORIZATION_FAILED:
                raise AuthorizationFailed(code, f"no permission to read topic {at.topic}")
            if code != Code.NONE:
                text = f"the committed offset of {at}: refused with {code_name(code)}"
                raise GroupError(text, code)
        return dict(reply.offsets)

    def begin_close(self, until_ms: int | None) -> None:
        """The member says good-bye; :attr:`is_finished` says when it has."""
        self.driver.tell(CloseAsked(until_ms))

    async def _carry_out(self, command: Command) -> None:
        match command:
            case SetAssignment(partitions):
                with self.driver.lock:
                    self._reader.assign(partitions)
            case Withhold(partitions):
                with self.driver.lock:
                    self._reader.withhold(partitions)
            case CallListener():
                await self._call_listener(command)
            case RunCallback() | CallInterceptors() | FinishCommit():
                await self._call(partial(self._tell, command))
            case RequestMetadata(topics):
                self._want_metadata(topics)
            case Raise(error):
                self._errors.append(error)
            case Finished():
                self.is_finished = True
            case _:
                raise AssertionError(f"not for the application: {command!r}")

    async def _call_listener(self, command: CallListener) -> None:
        """In a task of its own: a poll that is cancelled does not end the listener in the middle;
        the next one waits for it.
        """
        self._listening = asyncio.ensure_future(self._listen(command))
        self._listening.add_done_callback(lambda _: self._wake())
        await wait_for_shared(self._listening)

    async def _listen(self, command: CallListener) -> None:
        method = getattr(self.listener, command.call.value)
        error: Exception | None = None
        _in_listener.set(True)
        try:
            await self._call(partial(_called_in_listener, method, command.partitions))
        except Exception as raised:  # noqa: BLE001 (an application's code may raise anything)
            error = raised
        finally:  # also after a Ctrl-C in it: the group must not wait for ever
            self.driver.tell(ListenerReturned(command.call_id, error))

    def _tell(self, command: CommitNews) -> None:
        match command:
            case RunCallback(number, offsets, error):
                self._run(self._callbacks.pop(number, None), offsets, error)
            case CallInterceptors(offsets):
                for interceptor in self._interceptors:
                    told("on_commit", interceptor.on_commit, offsets)
            case FinishCommit(number, error):
                self._ended[number] = error
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
            self._errors.append(error)

    def _raise_first(self) -> None:
        """Raises the first error; the following calls raise the others, one each."""
        if self._errors:
            raise self._errors.pop(0)


def in_listener() -> bool:
    """Is this a listener's own call?"""
    return _in_listener.get()


def _called_in_listener(
    method: Callable[[Sequence[TopicPartition]], object], partitions: Sequence[TopicPartition]
) -> object:
    """In the context that it is called in, which may not be that of the call's own task."""
    before = _in_listener.set(True)
    try:
        return method(partitions)
    finally:
        _in_listener.reset(before)


async def call_here(function: Callable[[], object]) -> None:
    """Inside the loop; ``async`` functions are awaited."""
    answer = function()
    if inspect.isawaitable(answer):
        await answer


def told(name: str, method: Callable[[T], R], argument: T) -> R | None:
    """Calls an interceptor. What it raises is logged: it must not break what it looks at."""
    try:
        return method(argument)
    except Exception:  # an application's code may raise anything
        LOGGER.exception("an interceptor's %s raised", name)
        return None
