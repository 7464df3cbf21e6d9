"""A broker that stops answering in the middle of a read."""

from __future__ import annotations

import time

from rota import Broker
from rota.broker.faults import InjectedFault
from rota.protocol.messages import Api

PATIENCE = 300


class HeldFetches:
    """Lets some Fetches pass, and keeps all others waiting."""

    def __init__(self, broker: Broker, after: int) -> None:
        self.ended = False
        self._order = InjectedFault(api=Api.FETCH, remaining=None, client_id=None, delay=86_400_000)
        broker.delay("Fetch", 0.001, times=after)
        broker._call(lambda node, _: node.faults.inject(self._order))

    def wait(self) -> bool:
        """Wait until a Fetch waits, or `ended` is set; return whether a Fetch waits."""
        until = time.monotonic() + PATIENCE
        while not (self._order.triggered or self.ended):
            assert time.monotonic() < until, "nobody reads"
            time.sleep(0.01)
        return bool(self._order.triggered)
