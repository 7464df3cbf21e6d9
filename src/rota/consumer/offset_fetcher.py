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

    def __init__(  # noqa: PLR0913, all that a request takes
        self,
        client: ClusterClient,
        config: FetchConfig,
        positions: Positions,
        buffer: FetchBuffer,
        *,
        committed: FetchCommittedOffsets | None,
        done: Callable[[], None],
    ) -> None:
        """:param committed: returns the group's committed offsets; None: the consumer has no group
        :param done: called after each response
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
        tokens = self._positions.requests_for_committed(now)
        if tokens and self._committed is None:
            self._handle_committed(tokens, dict.fromkeys([each.partition for each in tokens]), now)
        elif tokens:
            self.run_request(loop, partial(self._fetch_committed, tokens), tokens)
        for node, queries in self._positions.requests_for_reset(now).items():
            self.run_request(loop, partial(self._list_offsets, node, queries), queries)
        for node, queries in self._positions.requests_for_validation(now).items():
            self.run_request(loop, partial(self._validate, node, queries), queries)

    def run_request(
        self,
        loop: asyncio.AbstractEventLoop,
        request: Callable[[], Awaitable[None]],
        tokens: Iterable[RequestToken],
    ) -> None:
        """Runs a request; if it fails, its partitions retry after a pause."""
        task = loop.create_task(self._run(request, tuple(tokens)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(
        self, request: Callable[[], Awaitable[None]], tokens: tuple[RequestToken, ...]
    ) -> None:
        try:
            await request()
        except Exception as error:  # noqa: BLE001 (the application gets every error)
            self.handle_failure(tokens, error, asyncio.get_running_loop().time())
        self._done()

    def handle_failure(
        self, tokens: Collection[RequestToken], error: Exception, now: float
    ) -> None:
        """Handles a request that failed: transient errors are retried after a pause.

        Other errors are raised to the application, and then retried too.
        """
        concerned = [each.partition for each in tokens if self._positions.is_current(each)]
        self._positions.handle_failure(tokens, now)
        if isinstance(error, Unreachable) and not is_permanent(error):
            LOGGER.info("%s", error)
            self._client.request_refresh()
        elif concerned or not tokens:
            self._buffer.add_error(error, *concerned)

    async def _fetch_committed(self, tokens: tuple[RequestToken, ...]) -> None:
        assert self._committed is not None
        found = await self._committed(tuple([each.partition for each in tokens]))
        self._handle_committed(tokens, found, asyncio.get_running_loop().time())

    def _handle_committed(
        self, tokens: tuple[RequestToken, ...], found: CommittedOffsets, now: float
    ) -> None:
        self._positions.handle_failure(
            [each for each in tokens if each.partition not in found], now
        )
        missing = [
            each.partition
            for each in tokens
            if each.partition in found
            and self._positions.handle_committed(each, found[each.partition]) is not None
        ]
        if missing:
            self._buffer.add_error(None, *missing, lasting=True)

    async def _list_offsets(self, node: int, queries: Mapping[RequestToken, OffsetQuery]) -> None:
        by_partition = {token.partition: query for token, query in queries.items()}
        result = await send_list_offsets(
            self._client, node, by_partition, self._isolation, self._deadline()
        )
        now = asyncio.get_running_loop().time()
        for token in queries:
            if token.partition in result.found:
                self._positions.handle_listed_offset(token, result.found[token.partition], now)
        self._handle_refused(queries, result)

    async def _validate(self, node: int, queries: Mapping[RequestToken, OffsetQuery]) -> None:
        by_partition = {token.partition: query for token, query in queries.items()}
        result = await send_offset_for_leader_epoch(
            self._client, node, by_partition, self._deadline()
        )
        for token, query in queries.items():
            if token.partition not in result.found:
                continue
            end = result.found[token.partition] or EpochEndOffset.without_end(query.target)
            error = self._positions.handle_epoch_end(token, end)
            if error is not None:
                self._buffer.add_error(error, token.partition, lasting=True)
        self._handle_refused(queries, result)

    def _handle_refused(self, tokens: Iterable[RequestToken], result: LeaderResponse[Any]) -> None:
        """Handles partitions that the leader has refused or left out."""
        left = [each for each in tokens if each.partition not in result.found]
        if not left:
            return
        for token in left:
            error = result.errors.get(token.partition)
            if error is not None and self._positions.is_current(token):
                self._buffer.add_error(error, token.partition)
        self._positions.handle_failure(left, asyncio.get_running_loop().time())
        self._client.request_refresh()

    def _deadline(self) -> float:
        return self._client.deadline_after(self._client.config.request_timeout / 1000)
