"""A fetcher in a test: an application that takes what comes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Self

from rota.client.cluster import ClusterClient
from rota.consumer.fetcher import FetchCommittedOffsets, Fetcher
from rota.consumer.records import ConsumerRecord
from rota.engine.model.config import Address, ClientConfig, FetchConfig
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition

PATIENCE = 20.0
QUICK = {"retry_backoff": 5, "retry_backoff_max": 20, "reconnect_backoff": 5}


def committed_offsets_lookup(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> FetchCommittedOffsets:
    """A group that has committed this."""

    async def ask(
        partitions: tuple[TopicPartition, ...],
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return {each: offsets.get(each) for each in partitions}

    return ask


class Reader:
    """Reads from a broker; everything has a deadline."""

    def __init__(
        self,
        bootstrap: str,
        *,
        committed: FetchCommittedOffsets | None = None,
        client: Mapping[str, object] | None = None,
        **config: object,
    ) -> None:
        host, port = bootstrap.rsplit(":", 1)
        settings = {"client_id": "reader", **QUICK, **(client or {})}
        address = (Address(host, int(port)),)
        self.client = ClusterClient(ClientConfig(bootstrap_servers=address, **settings))  # type: ignore[arg-type]
        self._woken = asyncio.Event()
        reading = FetchConfig(**{"auto_offset_reset": "earliest", **config})  # type: ignore[arg-type]
        self.fetcher = Fetcher(self.client, reading, committed, self._woken.set)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.fetcher.close()
        await self.client.close()

    async def poll(self, timeout: float = PATIENCE, most: int = 500) -> list[ConsumerRecord]:
        """What one poll gives; nothing if nothing comes in time."""
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            self._woken.clear()
            self.fetcher.start_requests()
            self.fetcher.prepare_records(most)
            if found := list(self.fetcher.take_records(most)):
                self.fetcher.start_requests()
                return found
            if self.fetcher.has_records:
                continue
            try:
                async with asyncio.timeout_at(deadline):
                    await self._woken.wait()
            except TimeoutError:
                return []

    async def read(self, count: int, most: int = 500) -> list[ConsumerRecord]:
        """So many records, or those that came in time."""
        found: list[ConsumerRecord] = []
        while len(found) < count and (more := await self.poll(most=most)):
            found += more
        return found

    async def ready(self, *partitions: TopicPartition) -> None:
        """Waits until positions are known."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        await self.fetcher.wait_for_positions(partitions, deadline)


def record_values(records: Iterable[ConsumerRecord]) -> list[str]:
    """What the records say."""
    return [record.value.decode() for record in records]
