"""An asyncio loop in a thread of its own, which lives as long as its owner wants."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

Report = Callable[[Exception], None]


class LoopThread:
    """A daemon: a program that ends without a word does not wait for it.

    Nothing that happens in the loop ends it but :meth:`stop`; what a step raises is reported.
    """

    def __init__(self, name: str, report: Report) -> None:
        self.loop = asyncio.new_event_loop()
        self.name = name
        self._report = report
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.loop.set_exception_handler(self._handle)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Is this code running in that thread?"""
        return threading.get_ident() == self._thread.ident

    @property
    def is_alive(self) -> bool:
        """Has it not ended?"""
        return self._thread.is_alive()

    def call(self, act: Callable[[], object]) -> None:
        """Runs this in the loop soon, from whatever thread; not at all if it has been stopped."""
        if self.is_here:
            self.loop.call_soon(act)
            return
        try:
            self.loop.call_soon_threadsafe(act)
        except RuntimeError:  # it is closed
            if not self._is_stopping:
                raise

    def begin_stop(self, farewell: Callable[[], Coroutine[Any, Any, None]], timeout: float) -> None:
        """Runs a farewell in the loop, then ends it.

        The farewell has half of the time: what hangs in it is cancelled, as all else is.
        """

        def begin() -> None:
            if not self._is_stopping:
                self._is_stopping = True
                self.loop.create_task(self._end(farewell, timeout / 2))

        self.call(begin)

    def stop(self, farewell: Callable[[], Coroutine[Any, Any, None]], timeout: float) -> bool:
        """The same, and waits for it; False if it is still busy after that time."""
        until = time.monotonic() + timeout
        self.begin_stop(farewell, timeout)
        if not self.is_here:
            self._thread.join(max(0.0, until - time.monotonic()))
        return not self._thread.is_alive()

    async def _end(self, farewell: Callable[[], Coroutine[Any, Any, None]], time: float) -> None:
        try:
            await asyncio.wait_for(farewell(), time)
        except Exception as error:  # noqa: BLE001 (the thread ends, whatever happens)
            self._report(error)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=time)
        self.loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            while not self._is_stopping:
                try:
                    self.loop.run_forever()
                except Exception as error:  # noqa: BLE001 (goes on, or heartbeats would end)
                    self._report(error)
        finally:
            self.loop.close()

    def _handle(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._report(error if isinstance(error, Exception) else RuntimeError(context["message"]))
