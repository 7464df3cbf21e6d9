"""Both of Rota's consumers in the test's own hands, used in the same way."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

import rota
from rota import TopicPartition
from rota.consumer.records import ConsumerRecord, RebalanceListener
from tests.support.waiting import wait_until
from tests.system.consumer.client_drivers import ASYNC, ConsumerKind


class AsyncConsumerOnLoop:
    """A ``rota.AsyncConsumer`` whose coroutines are run to their end, on a loop of this thread.

    Between two calls the loop stands still, as it does under code that blocks it.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._loop = asyncio.new_event_loop()
        self._consumer = rota.AsyncConsumer(config)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._consumer, name)
        if not iscoroutinefunction(found):
            return found

        @wraps(found)
        def run(*args: Any, **fields: Any) -> Any:
            return self._loop.run_until_complete(found(*args, **fields))

        return run

    def end(self) -> None:
        """After ``close``."""
        self._loop.close()


@contextlib.contextmanager
def open_consumer(
    kind: ConsumerKind, servers: str, settings: Mapping[str, object]
) -> Iterator[Any]:
    """A consumer of this kind, closed at the end."""
    config = {"bootstrap.servers": servers, "enable.auto.commit": False, **settings}
    made: Any = AsyncConsumerOnLoop(config) if kind is ASYNC else rota.Consumer(config)
    try:
        yield made
    finally:
        made.close()
        if kind is ASYNC:
            made.end()


def read_records(own: Any, count: int) -> list[ConsumerRecord]:
    """Polls until ``count`` records have arrived."""
    found: list[ConsumerRecord] = []

    def enough() -> bool:
        found.extend(own.poll(timeout=0.1))
        return len(found) >= count

    wait_until(f"{count} records", enough, lambda: found)
    return found


def poll_until(own: Any, what: str, true: Callable[[], object]) -> None:
    """Poll until something is true; no record may come."""

    def look() -> bool:
        assert not own.poll(timeout=0.1)
        return bool(true())

    wait_until(what, look)


class BlockingListener(RebalanceListener):
    """Notes its calls, and may block in them."""

    def __init__(self, **blocks: float) -> None:
        self.calls: list[tuple[str, frozenset[TopicPartition]]] = []
        self._blocks = blocks

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._note("revoked", partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._note("lost", partitions)

    def _note(self, call: str, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append((call, frozenset(partitions)))
        time.sleep(self._blocks.get(call, 0))
