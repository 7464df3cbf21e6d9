"""The thread that a broker runs in, and the way into it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from rota.broker.build import Installation
from rota.broker.clock import Clock
from rota.broker.event import Woken
from rota.broker.node import Node
from rota.broker.server import Server
from rota.errors import RotaError
from rota.model.config import BrokerConfig

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds that a broker has to stop: with thousands of partitions it writes for a while."""


class Running:
    """A broker that runs, in a thread of its own."""

    def __init__(  # noqa: PLR0913, what a thread is given
        self,
        install: Callable[..., Installation],
        sockets: list[socket.socket],
        *,
        clock: Clock,
        config: BrokerConfig,
        context: ssl.SSLContext | None,
        temporary: Path | None,
    ) -> None:
        self._install, self._sockets, self._clock = install, sockets, clock
        self._config, self._context, self._temporary = config, context, temporary
        self._process = os.getpid()
        self._wanted = True
        """Nobody has said that it shall stop."""
        self._ready: Future[None] = Future()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="rota-broker", daemon=True)

    def start(self) -> None:
        """Runs the thread until clients are served; raises what kept it from that."""
        self._thread.start()
        try:
            self._ready.result()
        except BaseException:
            self._end()
            raise
        _all.add(self)

    def stop(self, *, keep: bool = False) -> None:
        """Ends the thread; raises what kept the broker from stopping in good order.

        :param keep: its folder will be used again, though it is a temporary one
        :raises TimeoutError: it has not ended yet: it still serves, and may be stopped once more
        """
        if self._process != os.getpid():
            return  # a child has inherited the object, but not the thread
        if keep:
            self._temporary, self._installed.lasting = None, True
        self._end()
        if self._thread.is_alive():
            raise TimeoutError(
                f"the broker has not stopped in {PATIENCE:g} s: it is busy, and keeps its folder"
            )
        _all.discard(self)
        if self._error is not None:
            raise self._error

    def run(self, act: Callable[[Node, Server], T]) -> T:
        """What this gives in the broker's thread; what the node then wants done is done."""
        if self._process != os.getpid():
            raise RotaError("the broker runs in the process that has started it, not in a fork")
        if threading.current_thread() is self._thread:
            return self._act(act)
        future: Future[T] = Future()

        def do() -> None:
            try:
                future.set_result(self._act(act))
            except BaseException as error:  # noqa: BLE001 (it is the caller's)
                future.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(do)
        except RuntimeError:
            raise RotaError("the broker has stopped") from self._error
        while not future.done() and self._thread.is_alive():
            with contextlib.suppress(TimeoutError):
                return future.result(1)
        if not future.done():
            raise RotaError("the broker has stopped") from self._error
        return future.result()

    def let_go(self) -> None:
        """In a child: keeps nothing that would outlive the broker of its parent."""
        nothing = os.open(os.devnull, os.O_RDWR)
        sockets = [one.fileno() for one in self._sockets]
        for each in [self._installed.lock.fileno(), *sockets, *self._server.descriptors()]:
            # in place of closing: the objects that own it may close it once more
            if each >= 0:
                os.dup2(nothing, each)
        os.close(nothing)

    def _act(self, act: Callable[[Node, Server], T]) -> T:
        try:
            return act(self._node, self._server)
        finally:
            self._server.tell(Woken())

    @property
    def alive(self) -> bool:
        """The thread has not ended by itself."""
        return self._thread.is_alive()

    def _end(self) -> None:
        self._wanted = False
        with contextlib.suppress(RuntimeError, AttributeError):  # ended by itself, or not begun
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(PATIENCE)

    def _main(self) -> None:
        try:
            # not the loop that the application has chosen for its own (uvloop, say)
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 (it is raised by stop)
            self._error = error
        finally:
            self._clear()
            if self._error is not None and not self._ready.done():
                self._ready.set_exception(self._error)

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._installed = self._install(now=self._clock.now())
        self._node = self._installed.node
        try:
            self._server = Server(self._node, self._clock, self._config, context=self._context)
            await self._server.start(self._sockets)
            self._ready.set_result(None)
            if self._wanted:
                await self._stopping.wait()
            await self._server.stop()
        finally:
            self._installed.close(self._clock.now())

    def _clear(self) -> None:
        """By the thread itself, so that nothing is taken away from under it."""
        for each in self._sockets:
            each.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


_all: weakref.WeakSet[Running] = weakref.WeakSet()


def _forked() -> None:
    for each in list(_all):
        each.let_go()
    _all.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
