"""A way to the broker that can be cut: TCP from one port to another."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress


class Proxy:
    """Runs in a thread of its own. Its clients stay strangers to the broker's real port."""

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._through = True
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        assert self._ready.wait(10)
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

    def _call(self, coroutine: object) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)  # type: ignore[arg-type]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._accept, "127.0.0.1", self.port)
        )
        self._ready.set()
        self._loop.run_forever()

    async def _cut(self) -> None:
        self._through = False
        for each in self._open:
            each.transport.abort()

    async def _end(self) -> None:
        self._server.close()
        await self._cut()
        await _turns()  # those that were just accepted begin, and end
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()
                with suppress(asyncio.CancelledError, OSError):
                    await task
        await _turns()  # aborted connections close their sockets

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._through:
                await self._join(reader, writer)
        finally:
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            return
        self._open |= {writer, back}
        try:
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        finally:
            self._open -= {writer, back}
            back.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


async def _turns() -> None:
    """Lets the loop do what is to be done."""
    for _ in range(5):
        await asyncio.sleep(0)
