"""What may take its time, done in order in a thread that nobody has to wait for."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

LOGGER = logging.getLogger("rota.spark")


class Errands:
    """A thread that does what it is given. What raises is logged, and the next one is done."""

    def __init__(self, name: str, about: str) -> None:
        """With the thread's name, and what log lines are about."""
        self._waiting: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._about = about
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def add(self, act: Callable[[], object]) -> None:
        """To be done after all that was given before."""
        self._waiting.put(act)

    def wait(self, timeout: float) -> bool:
        """Waits until all is done that was given up to now; False if it is not in these seconds."""
        done = threading.Event()
        self._waiting.put(done.set)
        return done.wait(max(0.0, timeout))

    def end(self) -> None:
        """The thread ends once all is done; nothing is given to it any more."""
        self._waiting.put(None)

    def _run(self) -> None:
        while (act := self._waiting.get()) is not None:
            try:
                act()
            except Exception as error:
                first = next(iter(str(error).strip().splitlines()), "")
                LOGGER.warning("%s: %s: %s", self._about, type(error).__name__, first)
                LOGGER.debug("%s: in full", self._about, exc_info=True)
