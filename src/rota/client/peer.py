"""One broker's address: its connection, opened when it is needed and again when it is gone."""

from __future__ import annotations

import asyncio
import logging

from rota.client.connection import Connection, Means
from rota.client.race import wait_for_shared
from rota.client.retry import Backoff
from rota.errors import NotKafka, RotaError, TimedOut, Unreachable
from rota.model.client import Address

LOGGER = logging.getLogger("rota.client")


class Peer:
    """An address, and what became of the last tries to reach it."""

    def __init__(self, address: Address, means: Means, name: str, hint: str = "") -> None:
        """An address that nobody has tried.

        :param name: how errors call it
        :param hint: what they say to who cannot reach it
        """
        self.address = address
        self.name = name
        self._hint = hint
        self._means = means
        config = self._config = means.config
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._under_way: Connection | None = None
        """What is being opened."""
        self._pauses = Backoff.of(config.reconnect_backoff, config.reconnect_backoff_max)
        self._patience = Backoff.of(config.connect_timeout, config.connect_timeout_max)
        self._silence = Backoff.of(config.connect_timeout // 2, config.request_timeout)
        self._failures = 0
        self._met = False
        """It was a Kafka's once."""
        self._closed = False
        self.ready_at = 0.0
        """No try before this, by the loop's clock."""
        self.problem: RotaError | None = None
        """Why the last try failed."""

    @property
    def connection(self) -> Connection | None:
        """The connection, if it is open."""
        found = self._connection
        return found if found is not None and found.usable else None

    async def connect(self, deadline: float) -> Connection:
        """The connection, opened if need be: one try, after the pause that the last failure asks
        for. All who wait share it.

        :raises Unreachable: the try has failed, or takes too long
        :raises AuthenticationFailed: the login is refused
        """
        if (found := self.connection) is not None:
            return found
        if self._closed:
            raise Unreachable(f"{self.name}: this client is closed")
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        try:
            async with asyncio.timeout_at(deadline):
                return await wait_for_shared(opening)
        except TimeoutError:
            raise TimedOut(self.trouble) from self.problem
        except asyncio.CancelledError:
            if not self._closed or _cancelled():
                raise
            raise Unreachable(f"{self.name}: this client is closed") from None

    @property
    def trouble(self) -> str:
        """Why there is no connection, for who waits no longer."""
        if self.problem is not None:
            return str(self.problem)
        if self._under_way is None:
            return f"{self.name}: no answer in the time given"
        return str(self._under_way.late("in the time given"))

    async def _open(self) -> Connection:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self.ready_at - loop.time())
        patience = self._patience.after(self._failures + 1)
        longest = self._config.request_timeout / 1000
        made = self._under_way = Connection(self.address, self._means, self.name)
        try:
            await made.establish(
                loop.time() + max(patience, longest),
                patience=patience,
                # one that was a Kafka before may be a slow one now
                silence=longest if self._met else self._silence.after(self._failures + 1),
                hint=self._hint,
            )
        except NotKafka as error:
            if error.certain or not self._met:
                raise
            # a proxy in front of a dead broker takes a connection, and closes it or says nothing
            raise Unreachable(f"{self.name}: the broker does not answer any more") from error
        finally:
            self._under_way = None
        return made

    def _opened(self, task: asyncio.Task[Connection]) -> None:
        self._opening = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._connection, self._failures, self.problem = task.result(), 0, None
            self._met = True
            if self._closed:  # it was open just before it was to be given up
                self._connection.close()
            return
        self._failures += 1
        pause = self._pauses.after(self._failures)
        self.ready_at = asyncio.get_running_loop().time() + pause
        if self.problem is None or str(self.problem) != str(error):
            LOGGER.log(self._means.level, "%s", error)  # not each time: it is tried again and again
        self.problem = error if isinstance(error, RotaError) else Unreachable(str(error))

    def stop(self) -> None:
        """Begins to close the connection, or the try to open it."""
        if self._closed:
            return  # a second cancellation would cut short what the first one set going
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close()

    async def close(self) -> None:
        """Closes it, and waits for that."""
        self.stop()
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._connection is not None:
            await self._connection.abort()


def _cancelled() -> bool:
    """Is it this task that shall end, not what it waits for?"""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
