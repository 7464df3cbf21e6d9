"""The bell that wakes an application: in its own loop at once, and from other threads."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from rota.consumer.core import Waker

#: Seconds that nobody waits.
LATE = 10.0


def never() -> bool:
    return False


@pytest.fixture
def threadsafe_calls(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was handed to a loop as if from another thread."""
    found: list[object] = []
    plain = asyncio.BaseEventLoop.call_soon_threadsafe

    def noted(
        loop: asyncio.BaseEventLoop, callback: Callable[..., object], *args: object
    ) -> asyncio.Handle:
        found.append(callback)
        return plain(loop, callback, *args)

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_soon_threadsafe", noted)
    return found


async def start_waiters(bell: Waker, count: int = 1) -> list[asyncio.Task[None]]:
    """So many who wait."""
    until = asyncio.get_running_loop().time() + LATE
    tasks = [asyncio.ensure_future(bell.wait(until, never)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


def test_a_ring_in_the_loop_wakes_all_without_the_detour_of_another_thread(
    threadsafe_calls: list[object],
) -> None:
    async def main() -> None:
        bell = Waker()
        tasks = await start_waiters(bell, 3)
        threadsafe_calls.clear()
        bell.wake_in_loop()
        bell.wake_in_loop()  # they are awake already, and not gone yet
        assert threadsafe_calls == []
        async with asyncio.timeout(LATE):
            await asyncio.gather(*tasks)

    begun = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - begun < LATE / 2


def test_a_ring_from_another_thread_wakes() -> None:
    async def main() -> None:
        bell = Waker()
        (task,) = await start_waiters(bell)
        threading.Timer(0.02, bell.wake).start()
        await asyncio.wait([task], timeout=LATE / 2)
        assert task.done()

    asyncio.run(main())


def test_a_ring_in_a_signal_handler_wakes_a_loop_that_has_nothing_else_to_do() -> None:
    async def main() -> None:
        bell = Waker()
        (task,) = await start_waiters(bell)
        before = signal.signal(signal.SIGUSR1, lambda *_: bell.wake())
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        try:
            await task
        finally:
            signal.signal(signal.SIGUSR1, before)

    begun = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - begun < LATE / 2


def test_a_ring_in_another_threads_loop_wakes() -> None:
    async def ringing(bell: Waker) -> None:
        await asyncio.sleep(0.02)
        bell.wake()

    async def main() -> None:
        bell = Waker()
        (task,) = await start_waiters(bell)
        other = threading.Thread(target=lambda: asyncio.run(ringing(bell)))
        other.start()
        await asyncio.wait([task], timeout=LATE / 2)
        assert task.done()
        other.join()

    asyncio.run(main())


def test_a_ring_where_nobody_waits_does_nothing_and_is_forgotten(
    threadsafe_calls: list[object],
) -> None:
    bell = Waker()
    bell.wake()

    async def main() -> None:
        bell.wake()
        (task,) = await start_waiters(bell)
        await asyncio.sleep(0.02)
        assert not task.done()
        bell.wake()
        await task
        threadsafe_calls.clear()
        bell.wake()
        other = threading.Thread(target=bell.wake)
        other.start()
        other.join()
        assert threadsafe_calls == []

    asyncio.run(main())
    bell.wake()  # its loop is closed
    assert threadsafe_calls == []


def test_what_is_due_already_is_not_waited_for() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await Waker().wait(begun + LATE, lambda: True)
        await Waker().wait(begun + 0.02, never)
        assert begun + 0.02 <= loop.time() < begun + LATE / 2

    asyncio.run(main())


def test_who_is_woken_may_wait_again_at_once() -> None:
    async def main() -> None:
        bell = Waker()
        until = asyncio.get_running_loop().time() + LATE
        rounds = 0

        async def listen() -> None:
            nonlocal rounds
            while rounds < 5:
                await bell.wait(until, never)
                rounds += 1

        task = asyncio.ensure_future(listen())
        while not task.done():
            await asyncio.sleep(0)
            bell.wake()
        assert rounds == 5

    asyncio.run(main())
