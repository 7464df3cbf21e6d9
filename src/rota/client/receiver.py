"""Large answers are received by a thread, while the loop's own deals with those before them.

Python lets other threads run while the system copies an answer out of a socket, so both go on at
once. The thread takes one answer whenever it is told to, to its last byte and not further. It asks
for all that is missing in one call: each return to Python would have to wait until the other thread
lets go of the interpreter, for 5 ms as a rule (``sys.getswitchinterval()``). That takes a socket
that blocks; it does so only while an answer is waited for, and nobody else may use it then, neither
to read nor to write.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias
from weakref import WeakMethod

from rota.formats.buffer import Bytes
from rota.wire.frame import Frames

Outcome: TypeAlias = Bytes | Exception | None
"""An answer; or why there is none: the connection is broken (``OSError``), this is no frame
(``FormatError``), there is no memory for it, or (None) the broker sends no more.
"""
Deliver: TypeAlias = Callable[[Outcome], object]
PATIENCE = 1.0
"""Seconds for the thread to end, which takes it no time as a rule."""


class Receiver:
    """Receives answers of one connection in a thread, which ends with this object."""

    def __init__(self, own: socket.socket, frames: Frames, deliver: Deliver, name: str) -> None:
        """Starts the thread; it waits to be told.

        :param own: a duplicate of the connection's socket, which is the thread's from now on
        :param frames: that takes nothing in but what it needs for a frame's length
        :param deliver: a method, called in the thread with each outcome. The thread does not keep
            its object alive
        """
        self._socket = own
        self._process = os.getpid()
        self._orders: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(
            target=_serve,
            args=(own, frames, self._orders, WeakMethod(deliver)),
            name=f"rota-receive-{name}",
            daemon=True,
        )
        self._thread.start()

    def expect(self) -> None:
        """Receives the next answer."""
        self._orders.put(True)

    def close(self) -> None:
        """Ends the connection, if it is still there, and the thread."""
        self._end()
        self._thread.join(PATIENCE)

    def __del__(self) -> None:
        if os.getpid() == self._process:  # else a fork, whose parent has the same connection
            self._end()

    def _end(self) -> None:
        self._orders.put(False)
        with contextlib.suppress(OSError):  # the broker was first, or the thread
            self._socket.shutdown(socket.SHUT_RDWR)  # it may wait for an answer


def _serve(
    own: socket.socket, frames: Frames, orders: SimpleQueue[bool], deliver: WeakMethod[Deliver]
) -> None:
    with own:
        while orders.get():
            outcome = _receive(own, frames)
            method = deliver()
            if method is None:
                return
            method(outcome)
            del outcome, method  # not while the next is waited for


def _receive(own: socket.socket, frames: Frames) -> Outcome:
    try:
        own.setblocking(True)
        try:
            while (frame := frames.next()) is None:
                room = frames.room()
                count = own.recv_into(room, len(room), socket.MSG_WAITALL)
                if not count:
                    return None
                frames.advance(count)
        finally:
            own.setblocking(False)
    except Exception as error:  # noqa: BLE001 nobody else would tell of it
        return error
    return frame
