"""A group's offsets, kept as they should be by a thread of its own.

Only the newest counts: what could not be committed is replaced by what comes after it. Failures are
logged and tried again, with pauses that grow; nobody who says what the offsets are waits for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import cast

from rota.client.cluster import Client
from rota.client.group import MOST, from_wire, to_wire
from rota.client.reason import check
from rota.client.retry import Backoff
from rota.errors import GroupError, RotaError
from rota.model.client import ClientConfig
from rota.model.offset import OffsetAndMetadata
from rota.model.reply import CommitReply
from rota.model.request import CommitOffsets
from rota.model.topic import TopicPartition, first_few

LOGGER = logging.getLogger("rota.spark")

PAUSES = Backoff(0.5, 60.0)
"""Between tries, in seconds."""
RENEWAL = 3600.0
"""Seconds after which all is committed again, even if nothing has changed. In a group without
members a broker forgets each offset ``offsets.retention.minutes`` after it was committed (KIP-211),
by default a week, though the query may only have nothing to do."""
REMINDER = 600.0
"""Seconds after which a failure that has not changed is logged once more."""
DOUBT = 60.0
"""Seconds after which all is committed once more where a try was left without an answer: a broker
may still carry it out, after the one that followed it."""
CLOSING = 2.0
"""Seconds that connections have to close."""


class Mirror:
    """Commits to a group from outside: without a member, as an operator does."""

    def __init__(self, group: str, config: ClientConfig, is_needed: Callable[[], bool]) -> None:
        """Begins at once, with nothing to commit.

        :param is_needed: is there anybody still whose offsets must not be forgotten?
        """
        self._group = group
        self._config = config
        self._is_needed = is_needed
        self._target: Mapping[TopicPartition, int] = {}
        self._stored: dict[TopicPartition, int] = {}
        self._held: frozenset[TopicPartition] | None = None
        """What waits for the next try after a failure; None: all."""
        self._failures, self._retry_at = 0, 0.0
        self._doubtful_until: float | None = None
        self._complaint = ("", 0.0)
        """The last, and when it was logged."""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"rota-commit-{group}", daemon=True)
        self._thread.start()
        self._ready.wait()

    # From any thread

    def aim(self, offsets: Mapping[TopicPartition, int], *, anew: bool = False) -> None:
        """What the group is to have, from now on.

        :param anew: commits all of it, even what was committed before
        """
        self._call(lambda: self._take(offsets, anew=anew))

    def flush(self, timeout: float) -> bool:
        """Waits until all is committed; False if it is not in these seconds."""
        if not self._thread.is_alive():
            return not self.pending
        settled = self._settled()
        try:
            waiting = asyncio.run_coroutine_threadsafe(settled, self._loop)
        except RuntimeError:  # it has just ended
            settled.close()
            return not self.pending
        try:
            waiting.result(timeout=max(0.0, timeout))
        except (TimeoutError, concurrent.futures.CancelledError):
            waiting.cancel()
            return False
        return True

    def stop(self) -> None:
        """Ends it, with what is not committed left undone."""
        self._call(self._ending.set)
        self._thread.join(2 * CLOSING)

    @property
    def pending(self) -> dict[TopicPartition, int]:
        """What the group is to have, and has not."""
        stored = self._stored
        return {
            place: offset
            for place, offset in self._target.items()
            if stored.get(place, -1) != offset
        }

    @property
    def trouble(self) -> str:
        """Why the group has not all, as far as it is known."""
        last, _ = self._complaint
        servers = ", ".join(map(str, self._config.bootstrap))
        return last or f"no answer yet from {servers}"

    def _call(self, act: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(act)

    # In the loop

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken, self._idle, self._ending = asyncio.Event(), asyncio.Event(), asyncio.Event()
        client = Client(self._config, quiet=True)
        keeper = asyncio.create_task(self._keep(client))
        self._ready.set()
        await self._ending.wait()
        keeper.cancel()
        await asyncio.wait([keeper])
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                await client.close()

    def _take(self, offsets: Mapping[TopicPartition, int], *, anew: bool) -> None:
        self._target = offsets
        if anew:
            self._stored.clear()
        self._idle.clear()
        self._woken.set()

    async def _settled(self) -> None:
        self._failures, self._retry_at = 0, 0.0
        self._woken.set()
        await self._idle.wait()

    async def _keep(self, client: Client) -> None:
        while True:
            due = self._due()
            if due:
                await self._try(client, due)
            elif self.pending:
                await self._sleep(self._retry_at - self._loop.time())
            else:
                self._idle.set()
                await self._renew()

    async def _renew(self) -> None:
        """Commits all once more, when it is time."""
        doubtful = self._doubtful_until
        pause = RENEWAL if doubtful is None else doubtful - self._loop.time()
        if not await self._sleep(pause) and (doubtful is not None or self._is_needed()):
            self._doubtful_until = None
            self._stored.clear()

    def _due(self) -> dict[TopicPartition, int]:
        """What is to be committed now: what was refused waits, and holds nothing else up."""
        pending = self.pending
        if self._loop.time() >= self._retry_at:
            return pending
        held = self._held
        return {} if held is None else {p: each for p, each in pending.items() if p not in held}

    async def _sleep(self, seconds: float) -> bool:
        """Until there is something to do; False if the time is over."""
        try:
            # not wait_for, which in Python 3.11 may swallow the end
            async with asyncio.timeout(max(0.0, seconds)):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True

    async def _try(self, client: Client, due: Mapping[TopicPartition, int]) -> None:
        whole = len(due) == len(self.pending)
        try:
            await self._commit(client, due)
        except RotaError as error:
            self._complain(str(error))
        except Exception:  # whatever it is, the query must not feel it
            LOGGER.exception("group %r: offsets are not committed", self._group)
        else:
            if whole:
                self._relieve()
            return
        left = {place for place in due if place in self.pending}
        self._held = frozenset(left) if len(left) < len(due) else None
        self._failures += 1
        self._retry_at = self._loop.time() + PAUSES.after(self._failures)

    async def _commit(self, client: Client, pending: Mapping[TopicPartition, int]) -> None:
        given = {place: OffsetAndMetadata(offset) for place, offset in pending.items()}
        request = CommitOffsets(group=self._group, offsets=given)
        api, message = to_wire(request)
        begun = self._loop.time()
        try:
            response = await client.ask_coordinator(
                self._group, api, message, client.deadline(), most=MOST.get(api)
            )
        finally:
            now = self._loop.time()
            if now - begun >= self._config.request_timeout / 1000:
                self._doubtful_until = now + DOUBT
        codes = cast(CommitReply, from_wire(request, response)).codes
        self._stored.update({p: offset for p, offset in pending.items() if codes.get(p) == 0})
        check({place: code for place, code in codes.items() if code}, "refused")
        if missing := [str(place) for place in pending if place not in codes]:
            raise GroupError(f"the answer says nothing of {first_few(missing)}")

    def _complain(self, text: str) -> None:
        last, at = self._complaint
        now = time.monotonic()
        if text != last or now - at >= REMINDER:
            self._complaint = (text, now)
            LOGGER.warning(
                "group %r: offsets are not committed, and will be tried again: %s",
                self._group,
                text,
            )

    def _relieve(self) -> None:
        self._failures = 0
        if self._complaint[0]:
            self._complaint = ("", 0.0)
            LOGGER.info("group %r: offsets are committed again", self._group)
