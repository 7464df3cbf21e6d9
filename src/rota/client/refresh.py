"""Keeps the snapshot of a cluster new: one request at a time, shared by all who wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

from rota.client.metadata import Metadata, merged, without
from rota.client.race import wait_for_shared
from rota.client.retry import Backoff, hopeless
from rota.errors import RotaError, TimedOut, Unreachable
from rota.model.client import ClientConfig
from rota.wire.message import Message, MetadataRequest

LOGGER = logging.getLogger("rota.client")
REBOOTSTRAP_REQUIRED = 129
"""Kafka's code."""


class Ask(Protocol):
    """Asks any broker."""

    def __call__(self, request: Message, /, *, deadline: float) -> Awaitable[Message]:
        """The answer."""


@dataclass(slots=True)
class _Round:
    """One request, and what it asks for."""

    topics: frozenset[str] | None
    create: bool
    deadline: float
    task: asyncio.Task[None] | None = None

    def covers(self, topics: frozenset[str] | None, *, create: bool) -> bool:
        """Does its answer serve who wants this?"""
        enough = self.topics is None or (topics is not None and topics <= self.topics)
        return enough and (self.create or not create)


class Refresher:
    """The snapshot, and when it is renewed."""

    def __init__(
        self,
        ask: Ask,
        config: ClientConfig,
        problems: Callable[[], str],
        begin_again: Callable[[], None],
    ) -> None:
        """Knows nothing yet.

        :param problems: what has come of the last tries to reach brokers
        :param begin_again: forgets the connections to those known
        """
        self._begin_again = begin_again
        self.metadata = Metadata()
        self.callbacks: list[Callable[[Metadata], None]] = []
        self._ask = ask
        self._config = config
        self._problems = problems
        self._watched: frozenset[str] | None = frozenset()
        self._round: _Round | None = None
        self._pauses = Backoff.of(config.retry_backoff, config.retry_backoff_max)
        self._failures = 0
        self._renewed = 0.0
        """When the last request was answered or given up."""
        self._answered = 0.0
        """When the last was answered."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._background: asyncio.Task[None] | None = None
        self._closed = False

    def watch(self, topics: frozenset[str] | None) -> None:
        """Watches these and no others."""
        self._watched = topics
        if topics is not None:
            gone = frozenset(self.metadata.topics) - topics
            if gone:
                self.metadata = without(self.metadata, gone)

    async def refresh(
        self, topics: frozenset[str] | None, deadline: float, *, create: bool
    ) -> Metadata:
        """A snapshot that is newer than the call, with these topics."""
        if topics is not None and self._watched is not None:
            self._watched |= topics
        create = create and self._config.create_topics
        loop = self._loop = asyncio.get_running_loop()
        while True:
            under_way = self._round
            if under_way is None:
                wanted = self._watched if topics is not None else None
                under_way = self._round = _Round(wanted, create, deadline)
                under_way.task = asyncio.ensure_future(self._run(under_way))
                under_way.task.add_done_callback(_retrieved)
            task = under_way.task
            assert task is not None
            try:
                # one that ends by then says why; the others are given up here
                shared = under_way.deadline > deadline
                async with asyncio.timeout_at(deadline if shared else None):
                    await wait_for_shared(task)
            except TimeoutError:
                why = self._problems()
                raise TimedOut(f"no broker tells of the cluster in the time given{why}") from None
            except RotaError:
                if under_way.deadline >= deadline or loop.time() >= deadline:
                    raise
                continue  # it was given up by who had less time
            except asyncio.CancelledError:
                if self._closed and task.cancelled():
                    raise Unreachable("this client is closed") from None
                raise
            if under_way.covers(topics, create=create):
                return self.metadata

    async def _run(self, under_way: _Round) -> None:
        topics = under_way.topics
        request = MetadataRequest(
            topics=None
            if topics is None
            else [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(topics)],
            allow_auto_topic_creation=under_way.create,
        )
        loop = asyncio.get_running_loop()
        try:
            response = await self._ask(request, deadline=under_way.deadline)
        except RotaError:
            self._lost(loop.time())
            raise
        finally:
            self._round = None
            self._renewed = loop.time()
        self._failures = 0
        self._answered = self._renewed
        self._take(merged(self.metadata, response, whole=topics is None))
        if response.error_code == REBOOTSTRAP_REQUIRED:
            self._answered = 0.0
            self._lost(self._renewed)

    def _lost(self, now: float) -> None:
        """Begins again with ``bootstrap.servers`` if nobody has told of the cluster for long, or a
        broker wants that (KIP-1102).
        """
        late = self._answered + self._config.recovery_trigger / 1000 <= now
        if late and self._config.recovery == "rebootstrap" and self.metadata.brokers:
            LOGGER.warning("the cluster is looked for anew, by bootstrap.servers")
            self.metadata = replace(self.metadata, brokers=MappingProxyType({}))
            self._begin_again()

    def _take(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self._arm()
        for callback in list(self.callbacks):
            try:
                callback(metadata)
            except Exception:
                LOGGER.exception("a listener of metadata has failed")

    def _arm(self) -> None:
        """Renews what is known when it is old."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._closed:
            age = self._config.metadata_max_age / 1000
            self._timer = asyncio.get_running_loop().call_later(age, self.request)

    def request(self) -> None:
        """Renews the snapshot soon; nothing happens if that is under way."""
        if self._background is None and not self._closed:
            loop = self._loop or asyncio.get_running_loop()  # it may be at rest
            self._background = loop.create_task(self._renew())

    async def _renew(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not self._closed:
                pause = self._renewed + self._pauses.after(self._failures + 1) - loop.time()
                await asyncio.sleep(pause)
                patience = self._config.request_timeout / 1000
                try:
                    watched = self._watched
                    await self.refresh(watched, loop.time() + patience, create=False)
                except RotaError as error:
                    self._failures += 1
                    LOGGER.warning("the cluster's metadata is not renewed: %s", error)
                    if hopeless(error):
                        self._arm()  # who needs it before meets the error itself
                        return
                else:
                    return
        finally:
            self._background = None

    def stop(self) -> None:
        """Cancels what is under way."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._under_way():
            task.cancel()

    async def close(self) -> None:
        """Ends what is under way, and waits for that."""
        self.stop()
        if left := self._under_way():
            await asyncio.wait(left)

    def _under_way(self) -> list[asyncio.Task[None]]:
        tasks = [self._background, None if self._round is None else self._round.task]
        return [each for each in tasks if each is not None]


def _retrieved(task: asyncio.Task[None]) -> None:
    """Those who waited may be gone: then nobody needs to hear of its error."""
    if not task.cancelled():
        task.exception()
