"""The driver's way to the group's coordinator, in the driver's loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from rota.client.cluster import Client
from rota.client.connection import Connection
from rota.client.group import MOST, from_wire, least, to_wire
from rota.client.retry import Backoff, hopeless
from rota.client.version import api_name
from rota.consumer.complaint import Complaint
from rota.errors import (
    Code,
    GroupError,
    InputError,
    Refused,
    RotaError,
    TimedOut,
    Unreachable,
)
from rota.member.event import (
    Answered,
    CoordinatorFound,
    CoordinatorMissing,
    Event,
    RequestFailed,
)
from rota.model.client import ClientConfig
from rota.model.reply import CommitReply, FetchOffsetsReply, Reply
from rota.model.request import Join, Leave, Request, Sync
from rota.wire.api import Api
from rota.wire.message import Message

JOIN_LAPSE = 5.0
"""Seconds that a join may take beyond its rebalance timeout, as in Kafka's consumer."""
PASSING = frozenset(
    {
        Code.REQUEST_TIMED_OUT,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Codes that are asked again about, until the time is over."""

MOVED = frozenset({Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR})
FIRST_SEARCH = 2.0
"""Seconds until the first search is given up, and told; the next ones take longer."""

LONGEST_TRACE = 600
"""Characters of a request or reply that the log is told at most."""

LOGGER = logging.getLogger("rota.consumer")


class Link:
    """Finds the coordinator, and carries the member's requests to it over one connection.

    Kafka reads no further request of a connection whose join waits for the other members: what an
    application asks meanwhile goes another way.
    """

    def __init__(self, config: ClientConfig, group: str, tell: Callable[[Event], None]) -> None:
        self._config = config
        self._group = group
        self._tell = tell
        self._client = Client(config, quiet=True)  # the complaint below tells, or the error
        self._search: asyncio.Task[None] | None = None
        self._others: set[asyncio.Task[None]] = set()
        """A task that nobody holds may be collected before it is done."""
        self._connection: Connection | None = None
        self._waits: set[int] = set()
        """Joins and syncs under way, which wait for the other members."""
        self._failures = 0
        """Searches that failed, one after the other."""
        self._complaint = Complaint(f"group {group!r}: no coordinator")
        self._loop = asyncio.get_running_loop()

    # The member's requests

    def find(self) -> None:
        """Looks for the coordinator; whatever was sent to the one before has been given up."""
        self._hang_up()
        if self._search is not None:
            self._search.cancel()
        self._search = self._run(self._find())

    async def _find(self) -> None:
        # short at first, so that somebody hears of it soon; a connection goes on being opened
        patience = min(FIRST_SEARCH * 2**self._failures, self._config.request_timeout / 1000)
        deadline = self._loop.time() + patience
        try:
            self._client.forget_coordinator(self._group)
            found = await self._client.coordinator(self._group, deadline)
            self._connection = await found.connect(deadline)
        except RotaError as error:
            self._failures = min(self._failures + 1, 30)
            if is_final(error):
                self._tell(CoordinatorMissing(error))
            else:
                self._complaint.make(error)
                self._tell(CoordinatorMissing(why=str(error)))
        except Exception:
            self._tell(CoordinatorMissing())  # else the member would wait for ever
            raise
        else:
            self._failures = 0
            self._complaint.settle()
            LOGGER.debug("group %r: its coordinator is %s", self._group, self._connection.name)
            self._tell(CoordinatorFound())

    def send(self, number: int, request: Request) -> None:
        """Sends, and tells what comes of it."""
        connection = self._connection
        if connection is None:
            self._tell(RequestFailed(number))
            return
        if isinstance(request, Leave) and self._waits:
            self._run(self._leave_group(number, request, connection))
            return
        self._trace(f"number {number} goes to {connection.name}", request)
        api, message = to_wire(request)
        try:
            _check_version(connection, api, request)
            answer = connection.send(
                api, message, deadline=self._patience(request), most=MOST.get(api)
            )
        except RotaError as error:
            self._fail(number, error)
            return
        except TypeError as error:  # a text that is too long for its field, such as a note
            self._fail(number, InputError(f"it cannot be sent: {error}"))
            return
        if isinstance(request, (Join, Sync)):
            self._waits.add(number)
        answer.add_done_callback(partial(self._answered, connection, number, request))

    async def _leave_group(self, number: int, request: Leave, connection: Connection) -> None:
        """By another connection: behind the join it would be read when all others have joined, and
        who closes would wait for them.
        """
        deadline = self._patience(request)
        try:
            reply = await self._ask_once(request, deadline)
        except RotaError as error:
            self._fail(number, error)
        except Exception:
            self._tell(RequestFailed(number))
            raise
        else:
            if connection is self._connection:
                self._tell(Answered(number, reply))

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._others.discard(task)
        if not task.cancelled():
            task.result()  # what it raised is raised here, where the loop tells of it

    def _patience(self, request: Request) -> float:
        patience = self._config.request_timeout / 1000
        if isinstance(request, Join):  # answered when the other members have come, or are given up
            patience = max(patience, request.rebalance_timeout / 1000 + JOIN_LAPSE)
        return self._loop.time() + patience

    def _answered(
        self,
        connection: Connection,
        number: int,
        request: Request,
        answer: asyncio.Future[Message],
    ) -> None:
        self._waits.discard(number)
        # looked at in any case: asyncio complains of an error that nobody has seen
        if answer.cancelled() or (answer.exception() and connection is not self._connection):
            return  # given up, and the member knows
        try:
            reply = from_wire(request, answer.result())
        except RotaError as error:
            self._fail(number, error)
        except Exception:
            self._tell(RequestFailed(number))  # else the member would wait for ever
            raise
        else:
            self._trace(f"number {number} is answered", reply)
            self._tell(Answered(number, reply))

    def _trace(self, what: str, about: Request | Reply) -> None:
        if LOGGER.isEnabledFor(logging.DEBUG):
            text = str(about)  # a large group's has megabytes
            text = text if len(text) <= LONGEST_TRACE else f"{text[:LONGEST_TRACE]} ..."
            LOGGER.debug("group %r: %s: %s", self._group, what, text)

    def _fail(self, number: int, error: RotaError) -> None:
        if is_final(error):
            self._tell(RequestFailed(number, error))
        else:
            LOGGER.info("group %r: a request got no answer: %s", self._group, error)
            self._tell(RequestFailed(number, why=str(error)))

    # The application's questions

    async def ask(self, request: Request, deadline: float) -> Reply:
        """Asks until there is an answer that will not pass by itself.

        :raises RotaError: there is none in time
        """
        pauses = Backoff.of(self._config.retry_backoff, self._config.retry_backoff_max)
        failures = 0
        problem: str | RotaError | None = None
        while True:
            try:
                reply = await self._ask_once(request, deadline)
            except Unreachable as error:
                if is_final(error):
                    raise
                # that the time is over tells less than what was wrong before
                problem = problem if problem and isinstance(error, TimedOut) else error
                self._client.forget_coordinator(self._group)
            else:
                code = _passing(reply)
                if code is None:
                    return reply
                problem = f"refused with {int(code)} {code.name}"
                if code in MOVED:
                    self._client.forget_coordinator(self._group)
            failures += 1
            pause = pauses.after(failures)
            if self._loop.time() + pause >= deadline:
                kind = type(request).__name__
                raise TimedOut(f"group {self._group!r}: {kind} got no answer in time: {problem}")
            await asyncio.sleep(pause)

    async def _ask_once(self, request: Request, deadline: float) -> Reply:
        found = await self._client.coordinator(self._group, deadline)
        peer = self._client.peer(found.node) if self._waits else found.peer
        connection = await peer.connect(deadline)
        api, message = to_wire(request)
        _check_version(connection, api, request)
        answer = await self._client.ask(connection, api, message, deadline, most=MOST.get(api))
        return from_wire(request, answer)

    # The end

    async def close(self) -> None:
        """Closes all connections."""
        for task in self._others:
            task.cancel()
        self._hang_up()
        await self._client.close()

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        self._waits.clear()
        if connection is not None:
            connection.close()


def is_final(error: RotaError) -> bool:
    """Would the same happen again and again? Then the application must know."""
    return isinstance(error, GroupError) or hopeless(error)


def _check_version(connection: Connection, api: Api, request: Request) -> None:
    """Not silently without what an old broker does not know, such as a static id."""
    version, needed = connection.version(api, MOST.get(api)), least(request)
    if version < needed:
        raise Refused(
            Code.UNSUPPORTED_VERSION,
            f"{connection.name}: the broker is too old for this {type(request).__name__}: it needs "
            f"version {needed} of {api_name(api)}, and the broker knows {version}",
        )


def _passing(reply: Reply) -> Code | None:
    """Why it has to be asked again, if so."""
    codes: set[Code] = set()
    match reply:
        case FetchOffsetsReply():
            codes = {reply.code, *reply.codes.values()}
        case CommitReply():
            codes = set(reply.codes.values())
        case _:
            codes = {getattr(reply, "code", Code.NONE)}
    return next((code for code in sorted(codes) if code in PASSING), None)


def now_ms() -> int:
    """The clock of members: whole milliseconds, which nobody sets."""
    return time.monotonic_ns() // 1_000_000
