"""Checks the arguments of a consumer's methods before anything is done."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from rota.consumer.records import Offsets, RebalanceListener
from rota.engine.model.text import find_topic_name_problem
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import InputError

#: A :class:`TopicPartition`, or a pair like it.
PartitionLike: TypeAlias = tuple[str, int]

OffsetsArgument: TypeAlias = (
    Mapping[TopicPartition, OffsetAndMetadata | int]
    | Mapping[PartitionLike, OffsetAndMetadata | int]
)

TimesArgument: TypeAlias = Mapping[TopicPartition, int] | Mapping[PartitionLike, int]

#: Characters of what is no partition.
MAX_SHOWN = 60

#: What patterns have and names of topics have not.
PATTERN_CHARACTERS = re.compile(r"[\^$*+?|()\[\]{}\\]")


def parse_partition(name: str, given: object) -> TopicPartition:
    """Parses a partition that a method was given.

    :raises InputError: it is not a partition
    """
    match given:
        case (str(topic), int(number)) if number >= 0:
            return TopicPartition(topic, number)
        case list() | set() | frozenset():
            wanted = f"give them one by one, such as {name}(*partitions)"
        case _:
            wanted = "give rota.TopicPartition(topic, number), or a pair like it"
    text = repr(given)
    shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
    raise InputError(f"{name}: {shown} is no partition: {wanted}")


def parse_partitions(name: str, given: Iterable[PartitionLike]) -> list[TopicPartition]:
    """Parses the partitions of a method that takes a list of them.

    :raises InputError: it is not a list of partitions
    """
    match given:
        case str() | (str(), int()):
            raise InputError(f"{name}: {given!r} is no list of partitions, such as [('orders', 0)]")
        case _:
            return [parse_partition(name, each) for each in given]


def parse_topics(given: Iterable[str] | str) -> tuple[str, ...]:
    """Names of topics to subscribe to.

    :raises InputError: no topic can have one of them
    """
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"subscribe: {name!r} is no topic's name")
        if problem := find_topic_name_problem(name):
            hint = (
                "; is it a pattern? subscribe(pattern=...)"
                if PATTERN_CHARACTERS.search(name)
                else ""
            )
            raise InputError(f"subscribe: {problem}{hint}")
    return names


def check_listener(given: object) -> None:
    """:raises InputError: it is no listener"""
    if given is not None and not isinstance(given, RebalanceListener):
        raise InputError(
            f"subscribe: listener {given!r} is no instance of a subclass of rota.RebalanceListener"
        )


def check_poll_arguments(timeout: float, max_records: int | None = None) -> None:
    """:raises InputError: the timeout is not a number from 0 up, or ``max_records`` is below 1"""
    if not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise InputError(f"poll: timeout {timeout!r} is no number of seconds from 0 up")
    if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
        raise InputError(f"poll: max_records {max_records!r} is no number from 1 up")


def parse_offsets(given: OffsetsArgument | None) -> Offsets | None:
    """Offsets to commit: numbers are taken, too.

    :raises InputError: something else is given; names its partition
    """
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise InputError(f"commit: {given!r} is no mapping of partitions to offsets")
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, offset in given.items():
        at = parse_partition("commit", partition)
        if isinstance(offset, OffsetAndMetadata):
            found[at] = offset
        elif isinstance(offset, int) and not isinstance(offset, bool):
            found[at] = OffsetAndMetadata(offset)
        else:
            raise InputError(f"offset of {at}: {offset!r} is no rota.OffsetAndMetadata")
    return found


def check_callback(given: object) -> None:
    """:raises InputError: it is not callable, or it is an async function"""
    if given is not None and not callable(given):
        raise InputError(f"commit_async: callback {given!r} cannot be called")
    if inspect.iscoroutinefunction(given):
        raise InputError("commit_async: callbacks are plain functions, not async ones")


def parse_times(given: TimesArgument) -> dict[TopicPartition, int]:
    """Parses the times of ``offsets_for_times``.

    :raises InputError: a time is not a whole number from 0 up; names its partition
    """
    if not isinstance(given, Mapping):
        raise InputError(f"offsets_for_times: {given!r} is no mapping of partitions to times")
    wanted = {parse_partition("offsets_for_times", at): time for at, time in given.items()}
    for at, time in wanted.items():
        if not isinstance(time, int) or time < 0:
            raise InputError(
                f"offsets_for_times: {time!r} of {at} is no whole number of milliseconds since 1970"
            )
    return wanted
