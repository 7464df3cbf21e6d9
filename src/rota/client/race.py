"""Awaitables that run at the same time, and how to wait for them.

One address that swallows every packet must not cost the time that all the others would need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from rota.errors import RotaError

T = TypeVar("T")

HEAD_START = 0.25
"""Seconds until the next is begun beside the last, as RFC 8305 has it for addresses."""


async def first(
    ways: Sequence[Callable[[], Awaitable[T]]], discard: Callable[[Any], None] | None = None
) -> tuple[T | None, list[RotaError]]:
    """What the first to succeed gives, and the errors of those that failed before it.

    The others are cancelled. All have ended when this returns.

    :param discard: ends what nobody gets: of a second one that came in at the same moment, or of
        the first if this is cancelled while the others end
    :raises Exception: what a way raises that is no RotaError, at once
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
                running.add(asyncio.ensure_future(_run(way)))
            else:
                more = False
            if not running:
                break
            done, _ = await asyncio.wait(
                running,
                timeout=HEAD_START if more else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            won = _winner(done, running, failed)
            if won is not None:
                return won.result(), failed
        return None, failed
    finally:
        try:
            await _end(running, discard)
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


async def _run(way: Callable[[], Awaitable[T]]) -> T:
    return await way()


def _winner(
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


async def _end(running: set[asyncio.Task[T]], discard: Callable[[Any], None] | None) -> None:
    for task in running:
        task.cancel()
        if discard is None:
            continue
        if task.done():  # from Python 3.12 on gather returns before a callback would be called
            _drop(discard, task)
        else:
            task.add_done_callback(partial(_drop, discard))
    await asyncio.gather(*running, return_exceptions=True)


def _drop(discard: Callable[[Any], None], task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and task.exception() is None:
        discard(task.result())
