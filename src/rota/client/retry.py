"""Retries: how long to wait, which errors are worth another attempt, and how to run attempts at the
same time.

The error codes are those of a partition in Fetch, ListOffsets and OffsetForLeaderEpoch responses.
Attempts run side by side because one address that swallows every packet must not cost the time that
all others would need.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from rota.engine.model.topic import TopicPartition
from rota.errors import (
    AuthorizationFailed,
    Code,
    InputError,
    NotKafka,
    Refused,
    RotaError,
    UnknownTopic,
    Untrusted,
)

#: As much more or less than planned, so that clients that failed together do not come together.
JITTER = 0.2


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with jitter: doubles with every failure, up to a maximum; in seconds."""

    initial: float
    maximum: float

    @classmethod
    def from_milliseconds(cls, first: int, most: int) -> Backoff:
        """From Kafka's settings, in milliseconds."""
        return cls(first / 1000, most / 1000)

    def pause_after(self, failures: int) -> float:
        """The pause after so many failures in a row, as Kafka has it: none without a failure, and
        never longer than the longest, which holds from the first on if it is shorter than that.
        """
        if failures < 1:
            return 0.0
        if self.maximum <= self.initial:
            return self.maximum
        exponent = min(failures - 1, math.log2(self.maximum / max(self.initial, 0.001)))
        planned = self.initial * math.pow(2, exponent)
        return min(self.maximum, add_jitter(planned))


def add_jitter(pause: float) -> float:
    """Adds jitter, so that clients that failed together do not retry together."""
    return pause * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311


def is_permanent(error: RotaError) -> bool:
    """Returns whether another attempt would fail too.

    A refused login, an untrusted certificate, a server that is not Kafka: the user must know, and
    the broker should not be asked again.
    """
    certain = isinstance(error, NotKafka) and error.certain
    return certain or isinstance(error, Refused | InputError | Untrusted)


REPLICA_NOT_AVAILABLE: Final = 9

#: Nothing is wrong with the metadata: the broker is behind them, or in trouble itself.
TRANSIENT_CODES: Final = frozenset(
    {Code.UNKNOWN, Code.UNKNOWN_LEADER_EPOCH, Code.REQUEST_TIMED_OUT}
)

#: The partition is led elsewhere, or by another epoch; its topic may be gone, or made anew.
STALE_METADATA_CODES: Final = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        REPLICA_NOT_AVAILABLE,
        Code.NETWORK_EXCEPTION,
        Code.KAFKA_STORAGE_ERROR,
        Code.FETCH_SESSION_ID_NOT_FOUND,
        Code.INVALID_FETCH_SESSION_EPOCH,
        Code.FENCED_LEADER_EPOCH,
        Code.OFFSET_NOT_AVAILABLE,
        Code.UNKNOWN_TOPIC_ID,
        Code.INCONSISTENT_TOPIC_ID,
    }
)

#: Worth another try, after a pause and with new metadata.
RETRIABLE_CODES: Final = TRANSIENT_CODES | STALE_METADATA_CODES


def partition_error(code: int, partition: TopicPartition, doing: str) -> Refused:
    """Returns the error for a partition's error code that is not worth another attempt.

    :param doing: the refused action, such as "to fetch from"
    """
    known = Code(code) if code in set(Code) else Code.UNKNOWN
    if code == Code.TOPIC_AUTHORIZATION_FAILED:
        text = f"no permission to read topic {partition.topic!r}: {doing} {partition} was refused"
        return AuthorizationFailed(known, text)
    if code == Code.INVALID_TOPIC_EXCEPTION:
        return UnknownTopic(known, f"no topic can have the name {partition.topic!r}")
    name = known.name if known == code else "one that Rota does not know"
    return Refused(known, f"{doing} {partition} was refused with error {code} ({name})")


T = TypeVar("T")

#: Seconds until the next is begun beside the last, as RFC 8305 has it for addresses.
ATTEMPT_DELAY = 0.25


async def first_success(
    ways: Sequence[Callable[[], Awaitable[T]]], discard: Callable[[Any], None] | None = None
) -> tuple[T | None, list[RotaError]]:
    """Returns the result of the first attempt that succeeds, and the errors of those that failed.

    The other attempts are cancelled. All have ended when this returns.

    :param discard: closes a result that nobody gets: that of a second attempt that succeeded at the
        same moment, or of the first if the caller is cancelled while the others end
    :raises Exception: an error that is not a RotaError, at once
    """
    if len(ways) == 1:
        try:
            return await ways[0](), []
        except RotaError as error:
            return None, [error]
    left = iter(ways)
    running: set[asyncio.Task[T]] = set()
    failed: list[RotaError] = []
    more = True
    won: asyncio.Task[T] | None = None
    try:
        while more or running:
            if more and (way := next(left, None)) is not None:
                running.add(asyncio.ensure_future(_run_attempt(way)))
            else:
                more = False
            if not running:
                break
            done, _ = await asyncio.wait(
                running,
                timeout=ATTEMPT_DELAY if more else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            won = _find_winner(done, running, failed)
            if won is not None:
                return won.result(), failed
        return None, failed
    finally:
        try:
            await _cancel_attempts(running, discard)
        except asyncio.CancelledError:
            if won is not None and discard is not None:
                discard(won.result())
            raise


async def run_all(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Runs the awaitables at the same time and returns their results in the same order.

    If one fails, or if the caller is cancelled, the others are cancelled once. All have ended when
    this function returns or raises, so none goes on to use a client that its owner has closed.

    :raises Exception: the first error, in the order of the awaitables
    """
    tasks = [asyncio.ensure_future(each) for each in awaitables]
    if not tasks:
        return []
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if not task.cancelled():
            task.result()  # raises its error
    return [task.result() for task in tasks]


async def wait_for_shared(task: asyncio.Future[T]) -> T:
    """Waits for a task that other callers wait for too; a cancelled caller does not cancel it.

    ``asyncio.shield`` does the same. From Python 3.14 on it also logs the task's error if one
    caller was cancelled, even if the other callers receive that error.
    """
    await asyncio.wait([task])
    return task.result()


async def _run_attempt(way: Callable[[], Awaitable[T]]) -> T:
    return await way()


def _find_winner(
    done: set[asyncio.Task[T]], running: set[asyncio.Task[T]], failed: list[RotaError]
) -> asyncio.Task[T] | None:
    for task in done:
        error = task.exception()
        if error is None:
            running.discard(task)
            return task
        running.discard(task)
        if not isinstance(error, RotaError):
            raise error
        failed.append(error)
    return None


async def _cancel_attempts(
    running: set[asyncio.Task[T]], discard: Callable[[Any], None] | None
) -> None:
    for task in running:
        task.cancel()
        if discard is None:
            continue
        if task.done():  # from Python 3.12 on gather returns before a callback would be called
            _discard_result(discard, task)
        else:
            task.add_done_callback(partial(_discard_result, discard))
    await asyncio.gather(*running, return_exceptions=True)


def _discard_result(discard: Callable[[Any], None], task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and task.exception() is None:
        discard(task.result())
