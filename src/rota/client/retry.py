"""Retries: how long to wait, which errors are worth another attempt, and attempts at the same time:
an address that drops every packet must not use up the time of the others.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from rota import errors
from rota.engine.model.topic import TopicPartition
from rota.errors import Code, Refused, RotaError

JITTER = 0.2  # share by which a pause may be longer or shorter


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with jitter: doubles with every failure, up to a maximum; in seconds."""

    initial: float
    maximum: float

    @classmethod
    def from_milliseconds(cls, first: int, most: int) -> Backoff:
        return cls(first / 1000, most / 1000)

    def pause_after(self, failures: int) -> float:
        """Returns the pause after failures in a row, as Kafka computes it; 0 without a failure."""
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
    """Returns whether the user must act: login, certificate, or a server that is not Kafka."""
    if isinstance(error, errors.NotKafka):
        return error.certain
    return isinstance(error, Refused | errors.InputError | errors.Untrusted)


REPLICA_NOT_AVAILABLE: Final = 9

#: The client's metadata is current, but the broker's is not, or the broker has a problem.
TRANSIENT_CODES = frozenset({Code.UNKNOWN, Code.UNKNOWN_LEADER_EPOCH, Code.REQUEST_TIMED_OUT})

#: The partition has another leader or epoch; its topic may be deleted, or created again.
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

#: Worth another attempt, after a pause and with new metadata.
RETRIABLE_CODES: Final = TRANSIENT_CODES | STALE_METADATA_CODES


def partition_error(code: int, partition: TopicPartition, doing: str) -> Refused:
    """Returns the error for a code that ends the attempts (``doing``, such as "to fetch from")."""
    known = Code(code) if code in set(Code) else Code.UNKNOWN
    if code == Code.TOPIC_AUTHORIZATION_FAILED:
        text = f"no permission to read topic {partition.topic!r}: {doing} {partition} was refused"
        return errors.AuthorizationFailed(known, text)
    if code == Code.INVALID_TOPIC_EXCEPTION:
        return errors.UnknownTopic(known, f"no topic can have the name {partition.topic!r}")
    name = known.name if known == code else "unknown to Rota"
    return Refused(known, f"{doing} {partition} was refused with error {code} ({name})")


S = TypeVar("S")
T = TypeVar("T")
ATTEMPT_DELAY = 0.25  # seconds between the starts of two attempts, as in RFC 8305


async def first_success(
    attempts: Sequence[Callable[[], Awaitable[T]]], discard: Callable[[Any], None] | None = None
) -> tuple[T | None, list[RotaError]]:
    """Returns the result of the first attempt that succeeds, and the errors of those that failed.

    The other attempts are cancelled; all have ended when this returns or raises another error than
    a RotaError.

    :param discard: closes an unused result: of a second attempt that succeeds at the same moment,
        or of the first if the caller is cancelled while the others end
    """
    if len(attempts) == 1:
        try:
            return await attempts[0](), []
        except RotaError as error:
            return None, [error]
    waiting = list(reversed(attempts))
    running: set[asyncio.Future[T]] = set()
    failed: list[RotaError] = []
    won: asyncio.Future[T] | None = None
    try:
        while won is None and (waiting or running):
            if waiting:
                running.add(asyncio.ensure_future(waiting.pop()()))
            timeout, until = ATTEMPT_DELAY if waiting else None, asyncio.FIRST_COMPLETED
            done, _ = await asyncio.wait(running, timeout=timeout, return_when=until)
            for task in done:
                running.discard(task)
                failure = task.exception()
                if failure is None:
                    won = task
                    break
                if not isinstance(failure, RotaError):
                    raise failure
                failed.append(failure)
        return (None if won is None else won.result()), failed
    finally:
        try:
            await _cancel_attempts(running, discard)
        except asyncio.CancelledError:
            if won is not None and discard is not None:
                discard(won.result())
            raise


async def run_all(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Runs awaitables together; returns their results in order. All have ended after an error."""
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


async def run_limited(
    limit: asyncio.Semaphore, send: Callable[[S], Awaitable[T]], items: Iterable[S]
) -> list[T]:
    """As :func:`run_all`, but only as many at a time as the semaphore allows."""

    async def send_limited(item: S) -> T:
        async with limit:
            return await send(item)

    return await run_all(map(send_limited, items))


async def wait_for_shared(task: asyncio.Future[T]) -> T:
    """Waits for a task that others wait for too; a cancelled caller does not cancel it. (From
    Python 3.14 on ``asyncio.shield`` also logs the task's error, even if other callers receive it.)
    """
    await asyncio.wait([task])
    return task.result()


async def _cancel_attempts(
    tasks: set[asyncio.Future[T]], discard: Callable[[Any], None] | None
) -> None:
    def discard_result(task: asyncio.Future[T]) -> None:
        if discard is not None and not task.cancelled() and task.exception() is None:
            discard(task.result())

    for task in tasks:
        task.cancel()
        if task.done():  # from Python 3.12 on gather returns before a callback would be called
            discard_result(task)
        else:
            task.add_done_callback(discard_result)
    await asyncio.gather(*tasks, return_exceptions=True)
