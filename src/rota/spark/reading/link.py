"""Connections of a worker to a cluster, kept from task to task.

Spark's Python workers serve many tasks, one at a time. An event loop runs while a task waits for
something; what arrives meanwhile waits in the system's buffers.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from rota.client.cluster import Client
from rota.model.client import ClientConfig
from rota.model.topic import TopicPartition

MOST = 4
"""Clusters, or ways to log in to one, that a worker stays connected to."""

T = TypeVar("T")


class Link:
    """A client with a loop to run it."""

    def __init__(self, config: ClientConfig) -> None:
        """Nothing is opened yet."""
        self.loop = asyncio.new_event_loop()
        self.client = Client(config, quiet=True)
        self.rates: dict[TopicPartition, float] = {}
        """Bytes of each offset, as they were last."""

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """What a call gives."""
        return self.loop.run_until_complete(call)

    def turn(self) -> None:
        """Lets the loop see what happened while it was at rest: connections that are closed."""
        self.run(asyncio.sleep(0))

    def close(self) -> None:
        """Closes the connections."""
        try:
            self.run(self.client.close())
            self.turn()
        finally:
            self.loop.close()


class Kept:
    """The links of a process that nobody uses at the moment, the oldest first."""

    def __init__(self) -> None:
        self._links: dict[ClientConfig, Link] = {}
        self._process = os.getpid()
        self._frozen = False
        self._others: list[Link] = []
        """What was there before a fork: to close it here would disturb the other process."""

    def take(self, config: ClientConfig) -> Link:
        """A link, which is the caller's until it gives it back."""
        self._freeze()
        if self._process != os.getpid():
            self._others += self._links.values()
            self._links, self._process = {}, os.getpid()
        found = self._links.pop(config, None)
        if found is None:
            return Link(config)
        found.turn()
        return found

    def give_back(self, config: ClientConfig, link: Link) -> None:
        """Keeps a link for the next task."""
        older = self._links.pop(config, None)
        if older is not None:  # one task has read twice at a time
            older.close()
        while len(self._links) >= MOST:
            self._links.pop(next(iter(self._links))).close()
        self._links[config] = link

    def close(self) -> None:
        """Closes all."""
        while self._links:
            self._links.popitem()[1].close()

    def _freeze(self) -> None:
        """Spark's worker collects garbage after every task: not among what was imported."""
        if not self._frozen:
            gc.collect()
            gc.freeze()
            self._frozen = True


KEPT: Final = Kept()
"""Those of this process."""
