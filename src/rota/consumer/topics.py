"""Keeps the metadata of the wanted topics fresh, and says what is wrong with them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from rota.client.cluster import Client
from rota.client.metadata import Metadata
from rota.consumer.membership import LOGGER
from rota.errors import AuthorizationFailed, Code, Refused, RotaError, UnknownTopic, Unreachable
from rota.model.topic import first_few


class Topics:
    """The topics that a consumer reads, or whose names it matches with a pattern."""

    def __init__(
        self, client: Client, on_update: Callable[[Metadata], None], wake: Callable[[], None]
    ) -> None:
        self._client = client
        self._on_update = on_update
        self._wake = wake
        self._wanted: tuple[str, ...] | None = ()
        self._is_due = False
        self._task: asyncio.Task[None] | None = None
        self._trouble: RotaError | None = None
        self._missed: set[str] = set()
        """Topics that were said not to exist."""
        client.on_metadata.append(self._updated)

    def want(self, topics: tuple[str, ...] | None) -> None:
        """From now on these, or all."""
        self._wanted = topics
        self._is_due = True

    def advance(self) -> None:
        """Asks for what is wanted and not there yet. To be called within the loop."""
        if self._is_due and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._refresh())

    def check(self) -> None:
        """Tells what stands in the way, once.

        :raises RotaError: brokers that were never reached, no permission, impossible names
        """
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble

    @property
    def in_trouble(self) -> bool:
        """There is something to tell."""
        return self._trouble is not None

    async def close(self) -> None:
        """Asks no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _refresh(self) -> None:
        config = self._client.config
        while self._is_due:
            self._is_due = False
            deadline = self._client.deadline()
            self._client.watch(self._wanted)
            create = config.create_topics and self._wanted is not None
            try:
                await self._client.refresh(self._wanted, deadline=deadline, create=create)
            except Unreachable as error:
                self._is_due = True
                if not self._client.metadata.brokers:
                    self._tell(error)
                    return
                LOGGER.warning("no metadata for now: %s", error)
            except RotaError as error:
                self._is_due = True
                self._tell(error)
                return

    def _updated(self, metadata: Metadata) -> None:
        wanted = self._wanted or ()
        found = {name: metadata.topics[name].error for name in wanted if name in metadata.topics}
        missing = [name for name, code in found.items() if code == Code.UNKNOWN_TOPIC_OR_PARTITION]
        if new := [name for name in missing if name not in self._missed]:
            LOGGER.warning("no such topic: %s; it is read as soon as there is one", first_few(new))
        self._missed = set(missing)
        problem = _problem(found)
        if problem is not None:
            self._tell(problem)
        self._on_update(metadata)

    def _tell(self, trouble: RotaError) -> None:
        self._trouble = trouble
        self._wake()


def _problem(codes: dict[str, int]) -> Refused | None:
    """What does not pass by itself."""
    for code, error, text in (
        (Code.TOPIC_AUTHORIZATION_FAILED, AuthorizationFailed, "no permission to read topic"),
        (Code.INVALID_TOPIC_EXCEPTION, UnknownTopic, "no topic can have the name"),
    ):
        names = [name for name, found in codes.items() if found == code]
        if names:
            return error(code, f"{text} {first_few(names)}")
    return None
