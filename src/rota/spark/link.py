"""Connections of a worker to a cluster, kept from task to task.

Spark's Python workers serve many tasks, one at a time. An event loop runs while a task waits for
something; what arrives meanwhile waits in the system's buffers.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Coroutine
from typing import Any, TypeVar

from rota.client.cluster import Client
from rota.model.client import ClientConfig
from rota.model.topic import TopicPartition

MOST = 4
"""Clusters, or ways to log in to one, that a worker stays connected to."""

T = TypeVar("T")
_links: dict[tuple[int, ClientConfig], Link] = {}


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

    def close(self) -> None:
        """Closes the connections."""
        self.run(self.client.close())
        self.run(asyncio.sleep(0))
        self.loop.close()


def take(config: ClientConfig) -> Link:
    """The link of this worker, which is the caller's until it gives it back."""
    if not _links:
        # Spark's worker collects garbage after every task: not among what was imported
        gc.collect()
        gc.freeze()
    return _links.pop((os.getpid(), config), None) or Link(config)


def give_back(config: ClientConfig, link: Link) -> None:
    """Keeps a link for the next task."""
    while len(_links) >= MOST:
        _links.pop(next(iter(_links))).close()
    _links[os.getpid(), config] = link
