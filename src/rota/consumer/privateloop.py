"""An event loop for programs without one: it runs in the caller's thread while a call waits."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rota.consumer.home import Home
from rota.errors import InputError

T = TypeVar("T")


class PrivateLoop:
    """An event loop that runs in the caller's thread while a call waits.

    What is the application's own (listeners, callbacks) is called between two runs of the loop,
    so that it may use the consumer again: a call inside a call runs the loop, too.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._home = Home()
        self._errands: deque[tuple[Callable[[], object], asyncio.Future[None]]] = deque()
        self._owner = threading.RLock()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """What a call gives. If it is interrupted (Ctrl-C), it is ended before that is told."""
        with contextlib.ExitStack() as stack:
            stack.callback(call.close)
            self._check()
            if not self._owner.acquire(blocking=False):
                raise InputError("this consumer is in use by another thread")
            stack.callback(self._owner.release)
            task = self._loop.create_task(call)
            try:
                self._run_until_done(task)
            except BaseException:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    self._run_until_done(task)
                raise
            return task.result()

    async def call_outside(self, function: Callable[[], object]) -> None:
        """For a call that the loop runs: a function is called while the loop stands still."""
        future = self._loop.create_future()
        self._errands.append((function, future))
        self._loop.stop()
        await future

    def close(self) -> None:
        """Runs no more."""
        if not self._loop.is_closed():
            self._loop.run_until_complete(asyncio.sleep(0))  # for what closed connections leave
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _check(self) -> None:
        self._home.check()
        if self._loop.is_closed():
            raise InputError("this consumer is closed")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise InputError("inside asyncio use rota.Consumer: this one would block the loop")

    def _run_until_done(self, task: asyncio.Task[T]) -> None:
        stop = self._stop
        task.add_done_callback(stop)
        try:
            while not task.done():
                self._loop.run_forever()
                while self._errands:
                    self._run_errand(*self._errands.popleft())
        finally:
            task.remove_done_callback(stop)

    def _stop(self, _: object) -> None:
        self._loop.stop()

    def _run_errand(self, function: Callable[[], object], future: asyncio.Future[None]) -> None:
        if future.done():
            return  # who asked for it was cancelled
        try:
            _refuse_coroutine(function())
        except Exception as error:  # noqa: BLE001 (an application's code may raise anything)
            future.set_exception(error)
        except BaseException:
            future.cancel()
            raise
        else:
            if not future.done():  # the function may have run the loop, and a Ctrl-C ended it there
                future.set_result(None)


def _refuse_coroutine(answer: object) -> None:
    if inspect.iscoroutine(answer):
        answer.close()
        raise InputError(f"{answer.__qualname__} is async: only rota.Consumer can await it")
