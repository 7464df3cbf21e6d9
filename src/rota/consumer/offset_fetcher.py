"""Finds positions: committed offsets (OffsetFetch), resets (ListOffsets) and validation
(OffsetForLeaderEpoch, KIP-320).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias

from rota.client.cluster import ClusterClient
from rota.client.offsets import (
    EpochEndOffset,
    LeaderResponse,
    OffsetQuery,
    send_list_offsets,
    send_offset_for_leader_epoch,
)
from rota.client.retry import is_permanent
from rota.consumer.buffer import FetchBuffer
from rota.consumer.positions import Positions, RequestToken
from rota.engine.model.config import FetchConfig
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import Unreachable

LOGGER = logging.getLogger("rota.consumer")

CommittedOffsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata | None]

FetchCommittedOffsets: TypeAlias = Callable[
    [tuple[TopicPartition, ...]], Awaitable[CommittedOffsets]
]


class OffsetFetcher:
    """Requests for positions, each in a task of its own."""

    def __init__(  # noqa: PLR0913, all that a question takes
        self,
        client: ClusterClient,
        config: FetchConfig,
        positions: Positions,
        buffer: FetchBuffer,
        *,
        committed: FetchCommittedOffsets | None,
        done: Callable[[], None],
    ) -> None:
        """Nothing is asked yet.

        :param committed: asks for the group's offsets; None: there is no group
        :param done: called after each answer
        """
        self._client = client
        self._isolation = config.isolation
        self._positions = positions
        self._buffer = buffer
        self._committed = committed
        self._done = done
        self._tasks: set[asyncio.Task[None]] = set()

    def start_requests(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        """Sends the requests that partitions are waiting for."""
        tickets = self._positions.requests_for_committed(now)
        if tickets and self._committed is None:
            self._take_committed(tickets, dict.fromkeys([each.partition for each in tickets]))
        elif tickets and self._committed is not None:
            self.run_request(loop, partial(self._ask_committed, self._committed, tickets), tickets)
        for node, looks in self._positions.requests_for_reset(now).items():
            self.run_request(loop, partial(self._ask_offsets, node, looks), looks)
        for node, checks in self._positions.requests_for_validation(now).items():
            self.run_request(loop, partial(self._ask_ends, node, checks), checks)

    def run_request(
        self,
        loop: asyncio.AbstractEventLoop,
        question: Callable[[], Awaitable[None]],
        tickets: Iterable[RequestToken],
    ) -> None:
        """Runs a request; if it fails, its partitions retry after a pause."""
        task = loop.create_task(self._guarded(question, tuple(tickets)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Ends all questions."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _guarded(
        self, question: Callable[[], Awaitable[None]], tickets: tuple[RequestToken, ...]
    ) -> None:
        try:
            await question()
        except Exception as error:  # noqa: BLE001 the application must know, whatever it is
            self.handle_failure(tickets, error, asyncio.get_running_loop().time())
        self._done()

    def handle_failure(
        self, tickets: Collection[RequestToken], error: Exception, now: float
    ) -> None:
        """Handles a request that failed: transient errors are retried after a pause.

        Other errors are raised to the application, and then retried too.
        """
        concerned = [each.partition for each in tickets if self._positions.is_current(each)]
        self._positions.handle_failure(tickets, now)
        if is_transient(error):
            LOGGER.info("%s", error)
            self._client.request_refresh()
        elif concerned or not tickets:
            self._buffer.add_error(error, *concerned)

    # Questions

    async def _ask_committed(
        self, ask: FetchCommittedOffsets, tickets: tuple[RequestToken, ...]
    ) -> None:
        self._take_committed(tickets, await ask(tuple([each.partition for each in tickets])))

    def _take_committed(self, tickets: tuple[RequestToken, ...], found: CommittedOffsets) -> None:
        failed = [each for each in tickets if each.partition not in found]
        self._positions.handle_failure(failed, asyncio.get_running_loop().time())
        without = [
            each.partition
            for each in tickets
            if each.partition in found
            and self._positions.handle_committed(each, found[each.partition]) is not None
        ]
        if without:
            self._buffer.add_error(None, *without, lasting=True)

    async def _ask_offsets(self, node: int, looks: Mapping[RequestToken, OffsetQuery]) -> None:
        asked = {ticket.partition: look for ticket, look in looks.items()}
        result = await send_list_offsets(
            self._client, node, asked, self._isolation, self._deadline()
        )
        now = asyncio.get_running_loop().time()
        for ticket in looks:
            if ticket.partition in result.found:
                self._positions.handle_listed_offset(ticket, result.found[ticket.partition], now)
        self._handle_unanswered(looks, result)

    async def _ask_ends(self, node: int, checks: Mapping[RequestToken, OffsetQuery]) -> None:
        asked = {ticket.partition: look for ticket, look in checks.items()}
        result = await send_offset_for_leader_epoch(self._client, node, asked, self._deadline())
        for ticket in checks:
            if ticket.partition not in result.found:
                continue
            end = result.found[ticket.partition] or EpochEndOffset.without_end(
                checks[ticket].target
            )
            error = self._positions.handle_epoch_end(ticket, end)
            if error is not None:
                self._buffer.add_error(error, ticket.partition, lasting=True)
        self._handle_unanswered(checks, result)

    def _handle_unanswered(
        self, looks: Iterable[RequestToken], result: LeaderResponse[Any]
    ) -> None:
        """Those that a leader has refused, or not answered."""
        left = [each for each in looks if each.partition not in result.found]
        if not left:
            return
        for ticket in left:
            error = result.errors.get(ticket.partition)
            if error is not None and self._positions.is_current(ticket):
                self._buffer.add_error(error, ticket.partition)
        self._positions.handle_failure(left, asyncio.get_running_loop().time())
        self._client.request_refresh()

    def _deadline(self) -> float:
        return self._client.deadline_after(self._client.config.request_timeout / 1000)


def is_transient(error: Exception) -> bool:
    """Returns whether an error may go away by itself: a broker restart, a new leader."""
    return isinstance(error, Unreachable) and not is_permanent(error)
