"""Puts Ctrl-C off until a step that must not be cut is complete."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

Handler = Callable[[int, FrameType | None], object]


class Shield:
    """Inside of it SIGINT is noted; its own handler is called at the end.

    Python calls that handler between any two steps of the main thread's code, and it raises
    KeyboardInterrupt there. A member machine that is cut in the middle of an event would wait for
    things that nobody was asked to do.
    """

    __slots__ = ("_before", "_caught", "_frame")

    def __init__(self) -> None:
        self._before: Handler | None = None
        self._caught = False
        self._frame: FrameType | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # no handler is called here
        before = signal.getsignal(signal.SIGINT)
        if callable(before):
            self._before = before
            try:
                signal.signal(signal.SIGINT, self._note)
            except ValueError:  # the main thread of another interpreter
                self._before = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        before, self._before = self._before, None
        if before is not None:
            signal.signal(signal.SIGINT, before)
            if self._caught:
                before(signal.SIGINT, self._frame)

    def _note(self, _number: int, frame: FrameType | None) -> None:
        self._caught, self._frame = True, frame
