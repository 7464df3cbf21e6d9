"""Keeps a log readable: a client with wrong settings connects again and again, and fails alike."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

PERIOD = 60.0
"""Seconds that a line is not said again."""
MOST = 1_000
"""So many lines are remembered."""


class Repeats:
    """Says a line once, and what came of it since then when a minute has passed."""

    def __init__(self, say: Callable[[int, str], None]) -> None:
        self._say = say
        self._said: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """When it was said last, and how often it was not since then."""

    def tell(self, level: int, text: str, at: float) -> None:
        """Says it, unless it was said a short time ago; ``at`` is in seconds."""
        since, left_out = self._said.get(text, (at - PERIOD, 0))
        if at - since < PERIOD:
            self._said[text] = since, left_out + 1
            return
        self._said[text] = at, 0
        self._said.move_to_end(text)
        if len(self._said) > MOST:
            self._said.popitem(last=False)
        more = f" ({left_out} times more in the last {at - since:.0f} s)" if left_out else ""
        self._say(level, text + more)
