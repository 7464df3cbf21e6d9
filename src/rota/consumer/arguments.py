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
#: Characters of a wrong argument that a message shows.
MAX_SHOWN = 60
#: Characters of patterns that topic names cannot have.
PATTERN_CHARACTERS = re.compile(r"[\^$*+?|()\[\]{}\\]")


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
