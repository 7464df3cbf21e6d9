"""Work that may take long, beside the loop that must not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Worker:
    """Does one piece of work at a time, in a thread that lives as long as there is work.

    Of what waits for its turn, only the newest counts: the older is out of date. Nobody waits for
    the thread, and it is a daemon, so that what hangs in it holds up no end.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._next: Callable[[], object] | None = None
        self._is_busy = False

    def give(self, work: Callable[[], object]) -> None:
        """To be done as soon as what is under way is; it must not raise."""
        with self._lock:
            self._next = work
            if not self._is_busy:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
                self._is_busy = True

    def drop(self) -> None:
        """What waits is not done."""
        with self._lock:
            self._next = None

    def _run(self) -> None:
        while (work := self._take()) is not None:
            work()

    def _take(self) -> Callable[[], object] | None:
        with self._lock:
            work, self._next = self._next, None
            self._is_busy = work is not None
            return work
