"""The member's connection to the group coordinator, in the driver's event loop."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from rota.client import group_requests
from rota.client.cluster import COORDINATOR_CODES, MOVED_CODES, ClusterClient
from rota.client.connection import BrokerConnection
from rota.client.group_requests import MAX_VERSIONS, decode_group_response, encode_group_request
from rota.client.retry import is_permanent
from rota.engine.member import events
from rota.engine.member.events import CoordinatorNotFound, RequestFailed, ResponseReceived
from rota.engine.model.config import ClientConfig
from rota.engine.model.request import GroupRequest, JoinGroup, LeaveGroup, SyncGroup
from rota.engine.model.response import GroupResponse, OffsetCommitResult, OffsetFetchResult
from rota.errors import Code, GroupError, InputError, Refused, RotaError, TimedOut, Unreachable
from rota.protocol.messages import Api, Message
from rota.protocol.schemas import api_name

JOIN_GROUP_TIMEOUT_LAPSE = 5.0  # seconds beyond the rebalance timeout, as in Kafka's consumer

#: Codes after which a request is repeated, until its deadline.
RETRIABLE_GROUP_CODES = COORDINATOR_CODES | {Code.REQUEST_TIMED_OUT, Code.UNSTABLE_OFFSET_COMMIT}
FIRST_SEARCH_TIMEOUT = 2.0  # seconds until the first search fails and is logged; next: longer
MAX_TRACE_LENGTH = 600  # characters of a request or response that are logged at most
LOGGER = logging.getLogger("rota.consumer")


class CoordinatorClient:
    """Finds the coordinator, and sends the member's requests over one connection, which Kafka does
    not read while a JoinGroup waits. The application's requests use another one.
    """

    def __init__(
        self, config: ClientConfig, group: str, report_event: Callable[[events.MemberEvent], None]
    ) -> None:
        self._config = config
        self._group = group
        self._report_event = report_event
        self._client = ClusterClient(config, quiet=True)  # self._warning logs the failures
        self._search: asyncio.Task[None] | None = None
        #: asyncio keeps no reference to tasks: they could be collected before they are done.
        self._tasks: set[asyncio.Task[None]] = set()
        self._connection: BrokerConnection | None = None
        #: JoinGroup and SyncGroup in flight, which wait for the other members.
        self._rebalance_requests: set[int] = set()
        self._failures = 0
        self._warning = RateLimitedWarning(f"group {group!r}: no coordinator")
        self._loop = asyncio.get_running_loop()

    def find_coordinator(self) -> None:
        """Looks for the coordinator; requests in flight to the previous one are abandoned."""
        self._close_connection()
        if self._search is not None:
            self._search.cancel()
        self._search = self._run(self._find())

    async def _find(self) -> None:
        # short at first, so that a failure is logged soon; the attempt to connect continues
        timeout = min(FIRST_SEARCH_TIMEOUT * 2**self._failures, self._config.request_timeout / 1000)
        deadline = self._loop.time() + timeout
        try:
            self._client.forget_coordinator(self._group)
            found = await self._client.find_coordinator(self._group, deadline)
            self._connection = await found.endpoint.connect(deadline)
        except RotaError as error:
            self._failures = min(self._failures + 1, 30)
            if is_final(error):
                self._report_event(CoordinatorNotFound(error))
            else:
                self._warning.warn(error)
                self._report_event(CoordinatorNotFound(why=str(error)))
        except Exception:
            self._report_event(CoordinatorNotFound())  # or the member would wait forever
            raise
        else:
            self._failures = 0
            self._warning.clear()
            LOGGER.debug("group %r: its coordinator is %s", self._group, self._connection.name)
            self._report_event(events.CoordinatorFound())

    def send_request(self, number: int, request: GroupRequest) -> None:
        connection = self._connection
        if connection is None:
            self._report_event(RequestFailed(number))
            return
        if isinstance(request, LeaveGroup) and self._rebalance_requests:
            self._run(self._leave_group(number, request, connection))
            return
        self._log(f"request {number} to {connection.name}", request)
        api, message = encode_group_request(request)
        try:
            _check_version(connection, api, request)
            deadline, most = self._deadline(request), MAX_VERSIONS.get(api)
            future = connection.send(api, message, deadline=deadline, most=most)
        except RotaError as error:
            self._fail(number, error)
            return
        except TypeError as error:  # a string that is too long for its field, such as metadata
            self._fail(number, InputError(f"the request cannot be sent: {error}"))
            return
        if isinstance(request, (JoinGroup, SyncGroup)):
            self._rebalance_requests.add(number)
        future.add_done_callback(partial(self._handle_response, connection, number, request))

    async def _leave_group(
        self, number: int, request: LeaveGroup, connection: BrokerConnection
    ) -> None:
        """Sends LeaveGroup over another connection: behind the JoinGroup the coordinator would read
        it only when all other members have joined, and ``close`` would wait for them.
        """
        try:
            response = await self._send_once(request, self._deadline(request))
        except RotaError as error:
            self._fail(number, error)
        except Exception:
            self._report_event(RequestFailed(number))
            raise
        else:
            if connection is self._connection:
                self._report_event(ResponseReceived(number, response))

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._handle_end)
        return task

    def _handle_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()  # raises the task's error here, where the loop reports it

    def _deadline(self, request: GroupRequest) -> float:
        timeout = self._config.request_timeout / 1000
        if isinstance(request, JoinGroup):  # waits for the other members
            timeout = max(timeout, request.rebalance_timeout / 1000 + JOIN_GROUP_TIMEOUT_LAPSE)
        return self._loop.time() + timeout

    def _handle_response(
        self,
        connection: BrokerConnection,
        number: int,
        request: GroupRequest,
        future: asyncio.Future[Message],
    ) -> None:
        self._rebalance_requests.discard(number)
        # exception() is called in any case: asyncio logs errors that nobody retrieves
        if future.cancelled() or (future.exception() and connection is not self._connection):
            return  # abandoned, and the member knows
        try:
            response = decode_group_response(request, future.result())
        except RotaError as error:
            self._fail(number, error)
        except Exception:
            self._report_event(RequestFailed(number))  # or the member would wait forever
            raise
        else:
            self._log(f"response {number}", response)
            self._report_event(ResponseReceived(number, response))

    def _log(self, what: str, message: GroupRequest | GroupResponse) -> None:
        if LOGGER.isEnabledFor(logging.DEBUG):
            text = str(message)  # megabytes in a large group
            text = text if len(text) <= MAX_TRACE_LENGTH else f"{text[:MAX_TRACE_LENGTH]} ..."
            LOGGER.debug("group %r: %s: %s", self._group, what, text)

    def _fail(self, number: int, error: RotaError) -> None:
        if is_final(error):
            self._report_event(RequestFailed(number, error))
        else:
            LOGGER.info("group %r: a request got no response: %s", self._group, error)
            self._report_event(RequestFailed(number, why=str(error)))

    async def send_with_retries(self, request: GroupRequest, deadline: float) -> GroupResponse:
        """Sends a request of the application until its response has no retriable error."""
        problem: str | RotaError | None = None
        for failures in itertools.count(1):
            try:
                response = await self._send_once(request, deadline)
            except Unreachable as error:
                if is_final(error):
                    raise
                # the problem before says more than a timeout
                problem = problem if problem and isinstance(error, TimedOut) else error
                self._client.forget_coordinator(self._group)
            else:
                code = _retriable_code(response)
                if code is None:
                    return response
                problem = f"refused with {int(code)} {code.name}"
                if code in MOVED_CODES:
                    self._client.forget_coordinator(self._group)
            if not await self._client.pause(failures, deadline):
                break
        name = type(request).__name__
        raise TimedOut(f"group {self._group!r}: {name} got no answer in time: {problem}")

    async def _send_once(self, request: GroupRequest, deadline: float) -> GroupResponse:
        found = await self._client.find_coordinator(self._group, deadline)
        endpoint = self._client.endpoint(found.node) if self._rebalance_requests else found.endpoint
        connection = await endpoint.connect(deadline)
        api, message = encode_group_request(request)
        _check_version(connection, api, request)
        most = MAX_VERSIONS.get(api)
        response = await self._client.send_over(connection, api, message, deadline, most=most)
        return decode_group_response(request, response)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._close_connection()
        await self._client.close()

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        self._rebalance_requests.clear()
        if connection is not None:
            connection.close()


def is_final(error: RotaError) -> bool:
    """Returns whether retries would fail too, so that the application must know."""
    return isinstance(error, GroupError) or is_permanent(error)


def _check_version(connection: BrokerConnection, api: Api, request: GroupRequest) -> None:
    """:raises Refused: an old broker would ignore a field, such as a static id"""
    version = connection.version(api, MAX_VERSIONS.get(api))
    needed = group_requests.min_version(request)
    if version < needed:
        name = type(request).__name__
        text = f"{connection.name}: the broker is too old for this {name}: it needs "
        text += f"version {needed} of {api_name(api)}, and the broker knows {version}"
        raise Refused(Code.UNSUPPORTED_VERSION, text)


def _retriable_code(response: GroupResponse) -> Code | None:
    match response:
        case OffsetFetchResult():
            codes = {response.code, *response.codes.values()}
        case OffsetCommitResult():
            codes = set(response.codes.values())
        case _:
            codes = {getattr(response, "code", Code.NONE)}
    return next((code for code in sorted(codes) if code in RETRIABLE_GROUP_CODES), None)


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


WARNING_INTERVAL = 30.0  # seconds between two warnings of the same problem


class RateLimitedWarning:
    """Logs the first failure at once, then one warning per interval, then the recovery."""

    def __init__(self, about: str) -> None:
        self.about = about
        self._since: float | None = None
        self._last_warning = 0.0
        self._failures = 0

    def warn(self, error: Exception) -> None:
        now = time.monotonic()
        self._failures += 1
        if self._since is None:
            self._since = self._last_warning = now
            LOGGER.warning("%s: %s; trying again", self.about, error)
        elif now - self._last_warning >= WARNING_INTERVAL:
            self._last_warning = now
            text = f"{self.about} for {now - self._since:.0f} s, {self._failures} attempts"
            LOGGER.warning("%s: %s; trying again", text, error)

    def clear(self) -> None:
        if self._since is not None:
            LOGGER.info("%s for %.1f s, now over", self.about, time.monotonic() - self._since)
        self._since, self._failures = None, 0
