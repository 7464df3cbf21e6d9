"""A way to the broker that can be cut: TCP from one port to another.

Sockets are accepted and held here, not by asyncio's servers and streams: in Python 3.11 a server
that is closed loses the connections that it has accepted a moment before (``Server._attach``).
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from typing import Any

BACKLOG = 100
PIECE = 1 << 16


class Proxy:
    """Runs in a thread of its own. Its clients stay strangers to the broker's real port."""

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self._target = target
        #: The sockets of every connection, from its accept until they are closed.
        self._links: dict[asyncio.Task[None], tuple[socket.socket, socket.socket]] = {}
        self._through = True

    def __enter__(self) -> Proxy:
        self._listening = socket.create_server(("127.0.0.1", self.port), backlog=BACKLOG)
        self._listening.setblocking(False)
        self._loop = asyncio.new_event_loop()
        self._loop.add_reader(self._listening, self._accept)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def cut(self) -> None:
        """Every connection breaks off, and no new one gets through."""
        self._call(self._cut())

    def mend(self) -> None:
        """Connections get through again."""
        self._through = True

    def _call(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _cut(self) -> None:
        self._through = False
        for task in self._links:
            task.cancel()
        if self._links:
            await asyncio.wait(list(self._links))

    async def _end(self) -> None:
        self._loop.remove_reader(self._listening)
        self._listening.close()
        await self._cut()
        assert not self._links

    def _accept(self) -> None:
        try:
            near, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        if not self._through:
            near.close()
            return
        far = socket.socket()
        for each in (near, far):
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._join(near, far))
        self._links[task] = near, far
        task.add_done_callback(self._part)

    def _part(self, task: asyncio.Task[None]) -> None:
        """Also of those that were cancelled before their first step."""
        for each in self._links.pop(task):
            each.close()

    async def _join(self, near: socket.socket, far: socket.socket) -> None:
        try:
            await self._loop.sock_connect(far, ("127.0.0.1", self._target))
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._pump(near, far))
                ways.create_task(self._pump(far, near))
        except* OSError:
            pass

    async def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        while data := await self._loop.sock_recv(source, PIECE):
            await self._loop.sock_sendall(sink, data)
        raise ConnectionAbortedError  # which ends the other way too
