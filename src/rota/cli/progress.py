"""What is under way, said beside the output by a command that takes a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rota.cli.bootstrap import SOON, say

Begin: TypeAlias = Callable[[str], None]


@contextmanager
def progress() -> Iterator[Begin]:
    """Gives a function that is told what begins. Nothing is said until somebody who waits for it
    wonders; then what is under way, and from then on whatever begins. All of it goes to stderr.
    """
    word = _Word()
    notice = threading.Timer(SOON, word.wonder)
    notice.daemon = True
    notice.start()
    try:
        yield word.begin
    finally:
        notice.cancel()


class _Word:
    """What is under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text: str | None = None
        self._is_late = False

    def begin(self, text: str) -> None:
        with self._lock:
            self._text = text
            self._say()

    def wonder(self) -> None:
        with self._lock:
            self._is_late = True
            self._say()

    def _say(self) -> None:
        if self._is_late and self._text is not None:
            say(f"{self._text} ...")
