"""What is still to be done when the program ends.

``atexit`` is too late: Python calls it after it has waited for threads, and over Spark Connect the
thread that hears of queries ends only when its last listener is gone. So a thread waits for the end
of all others that a program waits for: a query may well run in one that is not the main one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

BRIDGES = ("pyspark.", "py4j.")
"""Whose threads may go on for as long as somebody listens."""

_lock = threading.Lock()
_acts: list[Callable[[], object]] = []
_watch: list[threading.Thread] = []


def at_exit(act: Callable[[], object]) -> None:
    """Calls this when all threads of the program have ended, unless it is forgotten before. It must
    come to an end by itself: the program waits for it.
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
    while working := [each for each in threading.enumerate() if _is_the_programs(each)]:
        working[0].join()
    with _lock:
        left = list(_acts)
    for act in left:
        act()


def _is_the_programs(thread: threading.Thread) -> bool:
    """Does the program wait for it, and it not for this one here?"""
    target = getattr(thread, "_target", None)  # nothing else tells whose it is
    bridge = (getattr(target, "__module__", None) or "").startswith(BRIDGES)
    own = thread.daemon or bridge or thread is threading.current_thread()
    return not own and thread.is_alive()
