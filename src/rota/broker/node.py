"""The broker without its sockets: events in, commands out.

A frame becomes a :class:`~rota.broker.dispatch.ServerRequest`. The handler of its API answers it at
once or later, and the response becomes a :class:`~rota.broker.events.WriteResponse`. Later work is
a timer; :meth:`BrokerNode.next_timer` returns when the server must call again at the latest. While
:attr:`~BrokerNode.has_resumable_requests` is true, the server calls again as soon as it has room
for more responses.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import partial
from logging import ERROR, WARNING
from typing import assert_never

from rota.broker import dispatch, events
from rota.broker.dispatch import (
    AnyHandler,
    AnyRequest,
    ClientSession,
    HandlerContext,
    ServerRequest,
)
from rota.broker.faults import FaultInjector
from rota.broker.handlers.metadata import refuse_api_versions
from rota.broker.handlers.sasl import delay_failed_login
from rota.engine.formats.buffer import Bytes
from rota.errors import Code, FormatError, Refused
from rota.protocol.codec import RequestHeader, read_request, read_request_header, write_response
from rota.protocol.messages import Api, Message
from rota.protocol.schemas import api_name

ALLOWED_BEFORE_LOGIN = frozenset({Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})
LOGIN_HINT = " (is the client's security.protocol SASL_PLAINTEXT or SASL_SSL?)"
_LENGTH = struct.Struct(">i")


class BrokerNode:
    """Handles requests. It is called by one thread at a time."""

    def __init__(self, context: HandlerContext, handlers: Mapping[int, AnyHandler]) -> None:
        self.context = context
        self.faults = FaultInjector(context.timers)
        self._handlers = handlers
        self._login_needed = context.users is not None
        self._clients: dict[events.ConnectionId, ClientSession] = {}
        self._commands: list[events.NodeCommand] = []
        self._response_bytes = 0
        context.log = self._log

    def handle(
        self,
        event: events.NodeEvent,
        now: int,
        free_response_bytes: int = dispatch.MAX_RESPONSE_BYTES_PER_EVENT,
    ) -> list[events.NodeCommand]:
        """Handles an event and returns the commands that follow from it.

        Timers fire only on a :class:`Wakeup`. So after a stall, frames that arrived during it are
        handled first: members whose heartbeats wait in their sockets do not count as silent.

        :param free_response_bytes: limit for the responses to resumed requests; the last one may
            exceed it. Before it passes on a new request, the server checks for room.
        """
        match event:
            case events.ConnectionOpened(connection, host):
                self._clients[connection] = ClientSession(connection=connection, host=host)
            case events.FrameReceived(connection, frame):
                if (client := self._clients.get(connection)) is not None:
                    self._handle_frame(client, frame, now)
            case events.ConnectionClosed(connection):
                self._remove_client(connection)
            case events.Wakeup():
                self._fire_timers(now)
            case _:
                assert_never(event)
        self._resume_ready(min(free_response_bytes, dispatch.MAX_RESPONSE_BYTES_PER_EVENT))
        commands, self._commands, self._response_bytes = self._commands, [], 0
        return commands

    def _fire_timers(self, now: int) -> None:
        """Fires due timers; one that fails must not end the broker or stop the others."""
        while True:
            try:
                return self.context.timers.fire_due(now)
            except Exception as error:  # noqa: BLE001 as above
                self._log(ERROR, f"a timer failed: {type(error).__name__}: {error}")

    def _resume_ready(self, free_response_bytes: int) -> None:
        queue = self.context.ready_queue
        remaining = min(dispatch.MAX_RESUMED_PER_EVENT, len(queue))  # not requests queued meanwhile
        while queue and remaining and self._response_bytes < free_response_bytes:
            request, (resume, long) = queue.popitem(last=False)
            remaining = 0 if long else remaining - 1
            self._run(request, resume)

    @property
    def has_resumable_requests(self) -> bool:
        """Whether waiting requests can be resumed: call again when there is room."""
        return bool(self.context.ready_queue)

    def next_timer(self, slack: int = 0) -> int | None:
        return self.context.timers.next_due(slack)

    @property
    def clients(self) -> list[ClientSession]:
        return list(self._clients.values())

    def is_authenticated(self, connection: events.ConnectionId) -> bool:
        client = self._clients.get(connection)
        return not self._login_needed or (client is not None and client.user is not None)

    def close_connection(self, connection: events.ConnectionId, reason: str) -> None:
        if self._remove_client(connection):
            self._commands.append(events.CloseConnection(connection, reason))

    def _remove_client(self, connection: events.ConnectionId) -> bool:
        client = self._clients.pop(connection, None)
        if client is not None and client.on_disconnect is not None:
            client.on_disconnect()
        return client is not None

    def _log(self, level: int, text: str) -> None:
        self._commands.append(events.WriteLogLine(level, text))

    def _handle_frame(self, client: ClientSession, frame: Bytes, now: int) -> None:
        if client.raw_frame_handler is not None:
            return self._handle_raw_frame(client, client.raw_frame_handler, frame, now)
        try:
            head = read_request_header(frame)
            handler = self._handlers.get(head.api_key)
            if handler is None or not (
                handler.min_version <= head.api_version <= handler.max_version
            ):
                return self._refuse_version(client, head)
            if not (
                self.is_authenticated(client.connection) or handler.api in ALLOWED_BEFORE_LOGIN
            ):
                return self._drop_client(
                    client, f"{api_name(handler.api)} before a login{LOGIN_HINT}"
                )
            client.client_id = head.client_id or ""
            body = read_request(handler.request_class, head.api_version, frame, head.size)
        except FormatError as error:
            return self._drop_client(
                client, f"a frame of {len(frame)} bytes is not a valid request: {error}"
            )
        request = ServerRequest(
            context=self.context,
            api=handler.api,
            version=head.api_version,
            client=client,
            body=body,
            now=now,
            size=len(frame),
            write_response=partial(self._write_response, client, handler.api, head),
            drop_connection=partial(self._drop_client, client),
        )
        run_handler = partial(self._run, request, partial(handler.handle, request))
        if not self.faults.intercept(handler, request, run_handler):
            run_handler()
        return None

    def _handle_raw_frame(
        self, client: ClientSession, handle: Callable[[bytes], bytes], frame: Bytes, now: int
    ) -> None:
        """Handles a frame of a login; neither it nor the response has a header."""
        try:
            response = handle(bytes(frame))
        except Refused as error:
            reason = str(error)
            delay_failed_login(
                self.context, client, now, lambda _: self._drop_client(client, reason)
            )
            return
        data = _LENGTH.pack(len(response)) + response
        self._commands.append(events.WriteResponse(client.connection, data))

    def _run(self, request: AnyRequest, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as error:  # noqa: BLE001 an error of one request must not end the broker
            name = f"{request.api.name} v{request.version}"
            self._log(ERROR, f"{name}: {type(error).__name__}: {error}")
            if request.client.on_disconnect is not None:
                request.client.on_disconnect()
            request.respond(self._handlers[request.api].error_response(request, Code.UNKNOWN))

    def _refuse_version(self, client: ClientSession, head: RequestHeader) -> None:
        """Answers ApiVersions in version 0, with the supported versions; else drops the client."""
        if head.api_key != Api.API_VERSIONS:
            return self._drop_client(
                client, f"API {head.api_key} version {head.api_version} is not supported"
            )
        response = refuse_api_versions(None, Code.UNSUPPORTED_VERSION)
        head = head._replace(api_version=0)
        return self._write_response(client, Api.API_VERSIONS, head, response)

    def _write_response(
        self, client: ClientSession, api: Api, head: RequestHeader, response: Message | None
    ) -> None:
        connection = client.connection
        if connection not in self._clients:
            return None
        if response is None:
            self._commands.append(events.NoResponse(connection))
        else:
            try:
                data = write_response(api, head.api_version, head.correlation_id, response)
            except Exception as error:  # noqa: BLE001 another client's data may be the cause
                name = f"{api.name} v{head.api_version}"
                reason = f"the response to {name} cannot be encoded: {error}"
                return self._drop_client(client, reason)
            self._commands.append(events.WriteResponse(connection, data))
            self._response_bytes += len(data)
        return None

    def _drop_client(self, client: ClientSession, reason: str) -> None:
        self._log(WARNING, f"{client.host}: {reason}; the connection is closed")
        self.close_connection(client.connection, reason)
