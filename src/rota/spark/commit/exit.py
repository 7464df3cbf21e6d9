"""What is still to be done when the program ends.

``atexit`` is too late: Python calls it after it has waited for threads, and over Spark Connect the
thread that hears of queries ends only when its last listener is gone. So a thread waits for the end
of the main one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_lock = threading.Lock()
_acts: list[Callable[[], object]] = []
_watch: list[threading.Thread] = []


def at_exit(act: Callable[[], object]) -> None:
    """Calls this when the main thread has ended, unless it is forgotten before. It must come to
    an end by itself: the program waits for it.
    """
    with _lock:
        _acts.append(act)
        if not _watch:
            _watch.append(threading.Thread(target=_wait, name="rota-exit", daemon=False))
            _watch[0].start()


def forget(act: Callable[[], object]) -> None:
    """It is not to be called any more."""
    with _lock:
        if act in _acts:
            _acts.remove(act)


def _wait() -> None:
    threading.main_thread().join()
    with _lock:
        left = list(_acts)
    for act in left:
        act()
