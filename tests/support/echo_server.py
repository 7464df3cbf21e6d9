"""A node that answers with what was asked, and a server around it in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from rota.broker.events import (
    CloseConnection,
    ConnectionClosed,
    ConnectionId,
    ConnectionOpened,
    FrameReceived,
    NodeCommand,
    NodeEvent,
    NoResponse,
    Wakeup,
    WriteLogLine,
    WriteResponse,
)
from rota.broker.server import Server, bind_sockets
from rota.broker.timers import Clock
from rota.engine.model.config import BrokerConfig
from tests.support.waiting import PATIENCE

T = TypeVar("T")


def encode_frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Echo:
    """A frame is answered with itself, but for these words.

    ``hold``: not until somebody says ``free``; ``mute``: never; ``big 5``: with 5 bytes; ``bye``:
    the connection is closed; ``say x``: x is logged; ``wake 50``: in 50 ms, with the time;
    ``fail``: the node has a bug; ``login``: the client is trusted, if that is needed.
    """

    def __init__(self) -> None:
        self.events: list[NodeEvent] = []
        self.held: list[ConnectionId] = []
        self.alarms: list[tuple[int, ConnectionId]] = []
        self.has_resumable_requests = False
        self.login_needed = False
        self.trusted: set[ConnectionId] = set()

    def handle(self, event: NodeEvent, now: int, free_response_bytes: int) -> list[NodeCommand]:
        self.events.append(event)
        rung = [(at, who) for at, who in sorted(self.alarms) if at <= now]
        self.alarms = [each for each in self.alarms if each not in rung]
        commands: list[NodeCommand] = [
            WriteResponse(who, encode_frame(b"%d" % now)) for _, who in rung
        ]
        if isinstance(event, FrameReceived):
            commands += self._answer(event.connection, bytes(event.frame), now)
        else:
            assert isinstance(event, ConnectionOpened | ConnectionClosed | Wakeup)
        return commands

    def is_authenticated(self, connection: ConnectionId) -> bool:
        return not self.login_needed or connection in self.trusted

    def next_timer(self, slack: int = 0) -> int | None:
        return min(self.alarms)[0] if self.alarms else None

    def _answer(self, who: ConnectionId, frame: bytes, now: int) -> list[NodeCommand]:
        word, _, rest = frame[:40].partition(b" ")
        answer: list[NodeCommand] = []
        match word:
            case b"hold":
                self.held.append(who)
            case b"free":
                freed, self.held = self.held, []
                answer = [WriteResponse(each, encode_frame(b"freed")) for each in [*freed, who]]
            case b"mute":
                answer = [NoResponse(who)]
            case b"big":
                answer = [WriteResponse(who, encode_frame(bytes(int(rest))))]
            case b"bye":
                answer = [
                    WriteResponse(who, encode_frame(b"bye")),
                    CloseConnection(who, "asked for"),
                ]
            case b"say":
                answer = [WriteLogLine(20, rest.decode()), NoResponse(who)]
            case b"login":
                self.trusted.add(who)
                answer = [WriteResponse(who, encode_frame(b"welcome"))]
            case b"fail":
                raise AssertionError("a bug")
            case b"wake":
                self.alarms.append((now + int(rest), who))
            case _:
                answer = [WriteResponse(who, encode_frame(frame))]
        return answer


class EchoServerThread:
    """A server in a thread."""

    def __init__(
        self, config: BrokerConfig, context: ssl.SSLContext | None, clock: Clock | None
    ) -> None:
        self.core = Echo()
        self.clock = Clock() if clock is None else clock
        self.lines: list[str] = []
        self._config, self._context = config, context
        self._logger = logging.getLogger(f"rota.broker.test{id(self)}")
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(record.getMessage())  # type: ignore[method-assign]
        self._logger.addHandler(handler)
        self._sockets = bind_sockets("127.0.0.1", 0)
        self.address: tuple[str, int] = self._sockets[0].getsockname()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def run(self, call: Callable[[Server], T]) -> T:
        """What this gives, called in the server's thread."""

        async def called() -> T:
            return call(self._server)

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(10)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, PATIENCE)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = Server(
            self.core, self.clock, self._config, context=self._context, logger=self._logger
        )
        await self._server.start(self._sockets)
        self._ready.set()
        await self._stop.wait()
        await self._server.stop()


@contextmanager
def run_echo_server(
    config: BrokerConfig | None = None,
    context: ssl.SSLContext | None = None,
    clock: Clock | None = None,
) -> Iterator[EchoServerThread]:
    server = EchoServerThread(config or BrokerConfig(), context, clock)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def read_exactly(sock: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = sock.recv(min(size, 1 << 20))
        if not part:
            raise EOFError(b"".join(parts))
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def read_frame(sock: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", read_exactly(sock, 4))
    return read_exactly(sock, size)


def is_closed(sock: socket.socket) -> bool:
    """Nothing more comes, and the other side has ended."""
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


def limit_open_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            pytest.skip(f"needs {count} open files, this machine allows {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
