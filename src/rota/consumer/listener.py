"""What an application may hang into its consumer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from rota.consumer.record import Records
from rota.model.offset import OffsetAndMetadata
from rota.model.topic import TopicPartition

Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback: TypeAlias = Callable[[Offsets, Exception | None], object]
"""Called with what was to be committed, and the error if it was not."""


class RebalanceListener:
    """Told of every change of the assignment, inside ``poll``, ``unsubscribe`` or ``close``.

    A listener of :class:`rota.Consumer` may have ``async`` methods. It may commit and seek.
    """

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These are about to go to others: the last chance to commit what was done with them."""

    def on_partitions_assigned(
        self, partitions: Sequence[TopicPartition]
    ) -> Awaitable[None] | None:
        """These are new; with the eager protocol, all there are."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These may have other owners already: it is too late to commit. Revoked, by default."""
        return self.on_partitions_revoked(partitions)


class ConsumerInterceptor:
    """Sees records before the application, and every commit that succeeded."""

    def on_consume(self, records: Records) -> Records:
        """What a poll is about to give; returns what it gives."""
        return records

    def on_commit(self, offsets: Offsets) -> None:
        """These offsets are committed."""

    def close(self) -> None:
        """The consumer is closed."""
