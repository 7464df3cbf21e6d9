"""Faults on order, for tests: errors, delays and broken connections."""

from __future__ import annotations

from collections.abc import Callable

from rota.broker.call import Call
from rota.broker.dispatch import Handler


class Faults:
    """None are ordered."""

    def take(self, handler: Handler, call: Call, answer: Callable[[], None]) -> bool:
        """Does a fault take this call over? It may answer later, by calling ``answer``."""
        return False
