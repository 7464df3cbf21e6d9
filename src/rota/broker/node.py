"""The broker without its sockets: events in, commands out.

A frame becomes a :class:`~rota.broker.call.Call`, the handler of its API answers it at once or
later, and the answer becomes a :class:`~rota.broker.event.Send`. What must happen later is an
alarm; :meth:`Node.next_alarm` says when the shell must come back at the latest. Where it is
:attr:`~Node.behind`, the shell comes back as soon as it has room for more answers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import assert_never

from rota.broker import turn
from rota.broker.call import Call, Client
from rota.broker.dispatch import Handler
from rota.broker.event import (
    Close,
    Closed,
    Command,
    ConnectionId,
    Done,
    Event,
    Log,
    Opened,
    Received,
    Send,
    Woken,
)
from rota.broker.fault import Faults, api_name
from rota.broker.part import ERROR, WARNING, Parts
from rota.errors import Code, FormatError, Refused
from rota.formats.buffer import Bytes
from rota.wire.api import Api
from rota.wire.message import Head, Message, read_head, read_request, write_response

BEFORE_LOGIN = frozenset({Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})
"""What a client may ask before it has logged in, where it must."""
LOGIN = " (is the client's security.protocol SASL_PLAINTEXT or SASL_SSL?)"
_LENGTH = struct.Struct(">i")


class Node:
    """Answers requests. It is called by one thread at a time."""

    def __init__(
        self,
        parts: Parts,
        handlers: Mapping[int, Handler],
        *,
        faults: Faults | None = None,
        login_needed: bool = False,
    ) -> None:
        self.parts = parts
        self.faults = Faults() if faults is None else faults
        self._handlers = handlers
        self._login_needed = login_needed
        self._clients: dict[ConnectionId, Client] = {}
        self._commands: list[Command] = []
        self._answered = 0
        """Bytes of the answers among them."""
        parts.log = self._log

    def handle(self, event: Event, now: int, room: int = turn.BYTES) -> list[Command]:
        """What must be done now that this has happened.

        Alarms ring only when the shell says that it is time. So after a stall what has come in
        meanwhile counts first: members whose heartbeats wait in their sockets are not silent.

        :param room: bytes of answers that the shell may take; the last one may need more. Who asks
            is answered all the same: that is for the shell to decide, before it tells of it.
        """
        match event:
            case Opened(connection, host):
                self._clients[connection] = Client(connection=connection, host=host)
            case Received(connection, frame):
                if (client := self._clients.get(connection)) is not None:
                    self._received(client, frame, now)
            case Closed(connection):
                self._forget(connection)
            case Woken():
                self._ring(now)
            case _:
                assert_never(event)
        self._take_turns(min(room, turn.BYTES))
        commands, self._commands, self._answered = self._commands, [], 0
        return commands

    def _ring(self, now: int) -> None:
        """Each alarm on its own: one that fails must not end the broker, or keep the others."""
        while True:
            try:
                return self.parts.alarms.ring(now)
            except Exception as error:  # noqa: BLE001 as above
                self._log(ERROR, f"an alarm: {type(error).__name__}: {error}")

    def _take_turns(self, room: int) -> None:
        turns = self.parts.turns
        left = min(turn.COUNT, len(turns))  # who asks again within its turn is not among them
        while turns and left and self._answered < room:
            take, long = turns.next()
            left = 0 if long else left - 1
            try:
                take()
            except Exception as error:  # noqa: BLE001 as above
                self._log(ERROR, f"a call that waited: {type(error).__name__}: {error}")

    @property
    def behind(self) -> bool:
        """Somebody who waited can be answered: come back when there is room."""
        return bool(self.parts.turns)

    def next_alarm(self, slack: int = 0) -> int | None:
        """When something must happen by itself; None: not before the next event.

        :param slack: what is done from time to time may be so much late
        """
        return self.parts.alarms.next(slack)

    @property
    def clients(self) -> list[Client]:
        """Those that are connected, in the order they came."""
        return list(self._clients.values())

    def trusts(self, connection: ConnectionId) -> bool:
        """Has this client logged in, if it must?"""
        client = self._clients.get(connection)
        return not self._login_needed or (client is not None and client.user is not None)

    def close(self, connection: ConnectionId, reason: str) -> None:
        """Ends a connection."""
        if self._forget(connection):
            self._commands.append(Close(connection, reason))

    def _forget(self, connection: ConnectionId) -> bool:
        client = self._clients.pop(connection, None)
        if client is not None and client.gone is not None:
            client.gone()
        return client is not None

    def _log(self, level: int, text: str) -> None:
        self._commands.append(Log(level, text))

    def _received(self, client: Client, frame: Bytes, now: int) -> None:
        if client.raw is not None:
            return self._token(client, client.raw, frame, now)
        try:
            head = read_head(frame)
            handler = self._handler(head)
            if handler is None:
                return self._refuse_version(client, head)
            if self._login_needed and client.user is None and handler.api not in BEFORE_LOGIN:
                return self._drop(client, f"{api_name(handler.api)} before logging in{LOGIN}")
            client.client_id = head.client_id or ""
            request = read_request(handler.api, head.version, frame, head.size)
        except FormatError as error:
            return self._drop(client, f"a frame of {len(frame)} bytes is no request: {error}")
        call = Call(
            api=handler.api,
            version=head.version,
            client=client,
            request=request,
            now=now,
            size=len(frame),
            reply=partial(self._reply, client, handler.api, head),
            drop=partial(self._drop, client),
        )
        return self._call(handler, call)

    def _token(
        self, client: Client, take: Callable[[bytes], bytes], frame: Bytes, now: int
    ) -> None:
        """A frame without a head, as part of a login; so is the answer."""
        try:
            reply = take(bytes(frame))
        except Refused as error:
            reason, name = str(error), ("login", client.connection)
            client.gone = partial(self.parts.alarms.stop, name)
            self.parts.alarms.start(
                name, now + self.parts.config.login_pause, lambda _: self._drop(client, reason)
            )
            return
        self._commands.append(Send(client.connection, _LENGTH.pack(len(reply)) + reply))

    def _call(self, handler: Handler, call: Call) -> None:
        answer = partial(self._answer, handler, call)
        if not self.faults.take(handler, call, answer):
            answer()

    def _answer(self, handler: Handler, call: Call) -> None:
        try:
            handler.handle(self.parts, call)
        except Exception as error:  # noqa: BLE001 a fault of one request must not end the broker
            self._log(ERROR, f"{call.api.name} v{call.version}: {type(error).__name__}: {error}")
            call.answer(handler.refuse(call, Code.UNKNOWN))

    def _handler(self, head: Head) -> Handler | None:
        handler = self._handlers.get(head.api)
        return handler if handler is not None and handler.handles(head.version) else None

    def _refuse_version(self, client: Client, head: Head) -> None:
        """ApiVersions is answered in version 0, which says what there is; else it is the end."""
        versions = self._handlers[Api.API_VERSIONS]
        if head.api != Api.API_VERSIONS:
            return self._drop(client, f"API {head.api} version {head.version} is not offered")
        reply = partial(self._reply, client, Api.API_VERSIONS, head_of_version_0(head))
        call = Call(
            api=Api.API_VERSIONS,
            version=0,
            client=client,
            request=None,
            now=0,
            size=0,
            reply=reply,
            drop=partial(self._drop, client),
        )
        return call.answer(versions.refuse(call, Code.UNSUPPORTED_VERSION))

    def _reply(self, client: Client, api: Api, head: Head, response: Message | None) -> None:
        connection = client.connection
        if connection not in self._clients:
            return None
        if response is None:
            self._commands.append(Done(connection))
        else:
            try:
                data = write_response(api, head.version, head.correlation, response)
            except Exception as error:  # noqa: BLE001 it may be another client's doing
                reason = f"the answer to {api.name} v{head.version} cannot be written: {error}"
                return self._drop(client, reason)
            self._commands.append(Send(connection, data))
            self._answered += len(data)
        return None

    def _drop(self, client: Client, reason: str) -> None:
        self._log(WARNING, f"{client.host}: {reason}; the connection is closed")
        self.close(client.connection, reason)


def head_of_version_0(head: Head) -> Head:
    """The same request, to be answered in version 0."""
    return Head(head.api, 0, head.correlation, head.client_id, head.size)
