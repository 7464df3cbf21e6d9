"""What an application gives to a consumer's calls, looked at before anything is done."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from rota.consumer.listener import Offsets, RebalanceListener
from rota.errors import InputError
from rota.model.naming import misname
from rota.model.offset import OffsetAndMetadata
from rota.model.topic import TopicPartition

Place: TypeAlias = tuple[str, int]
"""A :class:`TopicPartition`, or a pair like it."""
GivenOffsets: TypeAlias = (
    Mapping[TopicPartition, OffsetAndMetadata | int] | Mapping[Place, OffsetAndMetadata | int]
)
GivenTimes: TypeAlias = Mapping[TopicPartition, int] | Mapping[Place, int]
SHOWN = 60
"""Characters of what is no partition."""
PATTERN = re.compile(r"[\^$*+?|()\[\]{}\\]")
"""What patterns have and names of topics have not."""


def place(name: str, given: object) -> TopicPartition:
    """A partition as an application names it, in a call.

    :raises InputError: it is none
    """
    match given:
        case (str(topic), int(number)) if number >= 0:
            return TopicPartition(topic, number)
        case list() | set() | frozenset():
            wanted = f"give them one by one, such as {name}(*partitions)"
        case _:
            wanted = "give rota.TopicPartition(topic, number), or a pair like it"
    text = repr(given)
    shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    raise InputError(f"{name}: {shown} is no partition: {wanted}")


def places(name: str, given: Iterable[Place]) -> list[TopicPartition]:
    """Partitions, of a call that takes a list of them.

    :raises InputError: there is something else
    """
    match given:
        case str() | (str(), int()):
            raise InputError(f"{name}: {given!r} is no list of partitions, such as [('orders', 0)]")
        case _:
            return [place(name, each) for each in given]


def topics(given: Iterable[str] | str) -> tuple[str, ...]:
    """Names of topics to subscribe to.

    :raises InputError: no topic can have one of them
    """
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"subscribe: {name!r} is no topic's name")
        if problem := misname(name):
            hint = "; is it a pattern? subscribe(pattern=...)" if PATTERN.search(name) else ""
            raise InputError(f"subscribe: {problem}{hint}")
    return names


def check_listener(given: object) -> None:
    """:raises InputError: it is no listener"""
    if given is not None and not isinstance(given, RebalanceListener):
        raise InputError(
            f"subscribe: listener {given!r} is no instance of a subclass of rota.RebalanceListener"
        )


def check_poll(timeout: float, max_records: int | None = None) -> None:
    """:raises InputError: so long cannot be waited, or nothing is wanted"""
    if not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise InputError(f"poll: timeout {timeout!r} is no number of seconds from 0 up")
    if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
        raise InputError(f"poll: max_records {max_records!r} is no number from 1 up")


def offsets(given: GivenOffsets | None) -> Offsets | None:
    """Offsets to commit: numbers are taken, too.

    :raises InputError: something else is given; names its partition
    """
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise InputError(f"commit: {given!r} is no mapping of partitions to offsets")
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, offset in given.items():
        at = place("commit", partition)
        if isinstance(offset, OffsetAndMetadata):
            found[at] = offset
        elif isinstance(offset, int) and not isinstance(offset, bool):
            found[at] = OffsetAndMetadata(offset)
        else:
            raise InputError(f"offset of {at}: {offset!r} is no rota.OffsetAndMetadata")
    return found


def check_callback(given: object) -> None:
    """:raises InputError: it cannot be called, or only awaited"""
    if given is not None and not callable(given):
        raise InputError(f"commit_async: callback {given!r} cannot be called")
    if inspect.iscoroutinefunction(given):
        raise InputError("commit_async: callbacks are plain functions, not async ones")


def times(given: GivenTimes) -> dict[TopicPartition, int]:
    """Times to look for.

    :raises InputError: one is none; names its partition
    """
    if not isinstance(given, Mapping):
        raise InputError(f"offsets_for_times: {given!r} is no mapping of partitions to times")
    wanted = {place("offsets_for_times", at): time for at, time in given.items()}
    for at, time in wanted.items():
        if not isinstance(time, int) or time < 0:
            raise InputError(
                f"offsets_for_times: {time!r} of {at} is no whole number of milliseconds since 1970"
            )
    return wanted
