"""What an application receives or registers: records, listeners, interceptors, callbacks."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from rota.engine.model.text import find_topic_name_problem
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import InputError


class ConsumerRecord(NamedTuple):
    """One record. Key and value are bytes, or the results of the deserializers."""

    topic: str
    partition: int
    offset: int
    timestamp: int  # milliseconds since 1970; -1: none
    timestamp_type: int  # 0: set by the producer (CreateTime), 1: by the broker (LogAppendTime)
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int | None


class GroupMetadata(NamedTuple):
    """The identity of a member in its group."""

    group: str
    generation: int  # -1 outside of the group
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
        """Called when partitions may have other owners: too late to commit.

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


PartitionLike: TypeAlias = tuple[str, int]  # a :class:`TopicPartition`, or a pair like it

OffsetsArgument: TypeAlias = (
    Mapping[TopicPartition, OffsetAndMetadata | int]
    | Mapping[PartitionLike, OffsetAndMetadata | int]
)

TimesArgument: TypeAlias = Mapping[TopicPartition, int] | Mapping[PartitionLike, int]
MAX_SHOWN = 60  # characters of a wrong argument that a message shows
PATTERN_CHARACTERS = re.compile(r"[\^$*+?|()\[\]{}\\]")  # not in topic names


def parse_partition(name: str, given: object) -> TopicPartition:
    """:raises InputError: the argument of method ``name`` is not a partition"""
    match given:
        case (str(topic), int(number)) if number >= 0:
            return TopicPartition(topic, number)
        case list() | set() | frozenset():
            hint = f"pass them one by one, such as {name}(*partitions)"
        case _:
            hint = "pass rota.TopicPartition(topic, number), or a pair like it"
    text = repr(given)
    shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
    raise InputError(f"{name}: {shown} is not a partition: {hint}")


def parse_partitions(name: str, given: Iterable[PartitionLike]) -> list[TopicPartition]:
    """:raises InputError: the argument of method ``name`` is not a list of partitions"""
    match given:
        case str() | (str(), int()):
            raise InputError(f"{name}: {given!r} is not a list of partitions like [('orders', 0)]")
        case _:
            return [parse_partition(name, each) for each in given]


def parse_topics(given: Iterable[str] | str) -> tuple[str, ...]:
    """:raises InputError: a topic name is invalid"""
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"subscribe: {name!r} is not a topic name")
        if problem := find_topic_name_problem(name):
            is_pattern = PATTERN_CHARACTERS.search(name)
            hint = "; is it a pattern? subscribe(pattern=...)" if is_pattern else ""
            raise InputError(f"subscribe: {problem}{hint}")
    return names


def check_listener(given: object) -> None:
    if given is not None and not isinstance(given, RebalanceListener):
        raise InputError(
            f"subscribe: listener {given!r} is not an instance of a rota.RebalanceListener subclass"
        )


def check_poll_arguments(timeout: float, max_records: int | None = None) -> None:
    """:raises InputError: the timeout is not a number from 0 up, or ``max_records`` is below 1"""
    if not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise InputError(f"poll: timeout {timeout!r} is not a number of seconds from 0 up")
    if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
        raise InputError(f"poll: max_records {max_records!r} is not a whole number from 1 up")


def parse_offsets(given: OffsetsArgument | None) -> Offsets | None:
    """Parses the offsets to commit; plain numbers are allowed. InputError names the partition."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise InputError(f"commit: {given!r} is not a mapping of partitions to offsets")
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, offset in given.items():
        at = parse_partition("commit", partition)
        if isinstance(offset, OffsetAndMetadata):
            found[at] = offset
        elif isinstance(offset, int) and not isinstance(offset, bool):
            found[at] = OffsetAndMetadata(offset)
        else:
            raise InputError(f"offset of {at}: {offset!r} is not a rota.OffsetAndMetadata")
    return found


def check_callback(given: object) -> None:
    if given is not None and not callable(given):
        raise InputError(f"commit_async: callback {given!r} is not callable")
    if inspect.iscoroutinefunction(given):
        raise InputError("commit_async: callbacks are plain functions, not async ones")


def parse_times(given: TimesArgument) -> dict[TopicPartition, int]:
    """:raises InputError: a time of ``offsets_for_times`` is wrong; names its partition"""
    if not isinstance(given, Mapping):
        raise InputError(f"offsets_for_times: {given!r} is not a mapping of partitions to times")
    wanted = {parse_partition("offsets_for_times", at): time for at, time in given.items()}
    for at, time in wanted.items():
        if not isinstance(time, int) or time < 0:
            problem = f"{time!r} of {at} is not a whole number of milliseconds since 1970"
            raise InputError(f"offsets_for_times: {problem}")
    return wanted
