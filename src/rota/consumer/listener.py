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

    It runs in the application's own thread, and may commit, seek, pause and ask for offsets, but
    not poll. One of :class:`rota.Consumer` may have ``async`` methods. What it raises is raised by
    the call that it runs in; the rebalance goes on.

    Under the eager protocol a rebalance is: all revoked, then all that was given assigned. Under
    the cooperative one: what goes to others revoked, then what is new assigned, maybe nothing.
    """

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These are about to go to others: the last chance to commit what was done with them.

        Automatic commits have been made already.
        """

    def on_partitions_assigned(
        self, partitions: Sequence[TopicPartition]
    ) -> Awaitable[None] | None:
        """These are new; with the eager protocol, all there are."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These may have other owners already: it is too late to commit. Revoked, by default."""
        return self.on_partitions_revoked(partitions)


class ConsumerInterceptor:
    """Sees records before the application, and every commit that succeeded.

    Named in ``interceptor.classes``, each is given what the one before it returned. What it raises
    is logged, and does no harm. Columns (``poll_batches``) do not pass it.
    """

    def on_consume(self, records: Records) -> Records:
        """What a poll is about to give; returns what it gives."""
        return records

    def on_commit(self, offsets: Offsets) -> None:
        """These offsets are committed."""

    def close(self) -> None:
        """The consumer is closed."""
