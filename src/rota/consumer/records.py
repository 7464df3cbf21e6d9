"""The records that an application receives from a consumer, and the listeners, interceptors and
callbacks that it can register.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from rota.engine.model.topic import OffsetAndMetadata, TopicPartition


class ConsumerRecord(NamedTuple):
    """One record. Key and value are bytes, or the results of the deserializers."""

    topic: str
    partition: int
    offset: int
    #: Milliseconds since 1970; -1: none.
    timestamp: int
    #: 0: set by the producer (CreateTime), 1: by the broker (LogAppendTime).
    timestamp_type: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int | None


class GroupMetadata(NamedTuple):
    """The identity of a member in its group."""

    group: str
    #: -1 outside of the group.
    generation: int
    member_id: str
    group_instance_id: str | None


class Records:
    """The records of one ``poll``: iterate over all, or over the list of one partition."""

    __slots__ = ("by_partition",)

    def __init__(self, by_partition: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        self.by_partition = by_partition

    def __getitem__(self, partition: tuple[str, int]) -> list[ConsumerRecord]:
        return self.by_partition.get(TopicPartition(*partition), [])

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return chain.from_iterable(self.by_partition.values())

    def __len__(self) -> int:
        return sum(map(len, self.by_partition.values()))

    def __bool__(self) -> bool:
        return any(self.by_partition.values())

    def __repr__(self) -> str:
        counts = ", ".join(f"{name}: {len(each)}" for name, each in self.by_partition.items())
        return f"<{len(self)} records ({counts})>"


Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
#: Called with the offsets of a commit, and its error if it failed.
CommitCallback: TypeAlias = Callable[[Offsets, Exception | None], object]


class RebalanceListener:
    """Base class for listeners, whose methods are called when the assignment changes.

    The calls happen inside ``poll``, ``unsubscribe`` or ``close``, in the application's own thread.
    A listener may commit, seek, pause and look up offsets, but not poll. Its methods may be
    ``async`` with :class:`rota.AsyncConsumer`. The call that runs a listener raises the listener's
    exception; the rebalance continues.

    With the eager protocol a rebalance revokes all partitions, then assigns all new ones. With the
    cooperative protocol it revokes only the partitions that move to other members, then assigns
    only the partitions that are new, which may be none.
    """

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Called before partitions move to other members: the last chance to commit their offsets.

        Automatic commits are done already.
        """

    def on_partitions_assigned(
        self, partitions: Sequence[TopicPartition]
    ) -> Awaitable[None] | None:
        """Called with the new partitions; with the eager protocol, with all partitions."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Called when partitions may have other owners already, so that it is too late to commit.

        Calls :meth:`on_partitions_revoked` by default.
        """
        return self.on_partitions_revoked(partitions)


class ConsumerInterceptor:
    """Sees records before the application, and every commit that succeeded.

    ``interceptor.classes`` names interceptors; each receives what the one before it returned. Their
    exceptions are logged and have no other effect. ``poll_batches`` does not call them.
    """

    def on_consume(self, records: Records) -> Records:
        """Called with the records of a poll; returns the records that the poll returns."""
        return records

    def on_commit(self, offsets: Offsets) -> None:
        """Called after these offsets were committed."""

    def close(self) -> None:
        """Called when the consumer is closed."""
