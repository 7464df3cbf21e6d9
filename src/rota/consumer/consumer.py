"""``rota.Consumer``, and the event loop that it runs in the caller's thread while a call waits."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from itertools import chain
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from rota.client.config import require_mapping, require_one_mapping
from rota.client.fetch import Batch
from rota.consumer.async_consumer import CLOSE_TIMEOUT, AsyncConsumer, BaseConsumer
from rota.consumer.core import POLL_TIMEOUT, ConsumerCore
from rota.consumer.member_driver import ForkCheck
from rota.consumer.records import ConsumerRecord, Records
from rota.errors import InputError

T = TypeVar("T")
P = ParamSpec("P")


def _blocking(
    method: Callable[Concatenate[AsyncConsumer, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Consumer, P], T]:
    """Makes a blocking method of a coroutine method, with its signature and docstring."""

    @functools.wraps(method)
    def run(consumer: Consumer, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return consumer._loop.run(method(consumer._async, *args, **kwargs))

    run.__qualname__ = f"Consumer.{method.__name__}"
    return run


class Consumer(BaseConsumer):
    """A consumer whose calls wait.

    ::

        with rota.Consumer({"bootstrap.servers": "...", "group.id": "g"}) as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
                ...

    It reads topics as a member of a group (:meth:`subscribe`), or partitions that you choose
    (:meth:`assign`). Only one thread at a time may use it, except for :meth:`wakeup`. Use
    :class:`rota.AsyncConsumer` with asyncio.

    Partitions are :class:`rota.TopicPartition` or pairs like ``("orders", 0)``. Timeouts are in
    seconds; None means ``default.api.timeout.ms``. All errors are in :mod:`rota.errors`; the
    consumer can be used again after every error except ``Fenced``.
    """

    @require_one_mapping
    def __init__(self, config: Mapping[str, object]) -> None:
        self._loop = PrivateEventLoop()
        try:
            self._core = ConsumerCore(require_mapping(config), self._loop.call_outside)
        except BaseException:
            self._loop.close()
            raise
        self._async = AsyncConsumer._from_core(self._core)

    def poll(self, timeout: float = POLL_TIMEOUT, max_records: int | None = None) -> Records:
        self._core.check_poll(timeout, max_records)
        if not self._core.fill_records_now(max_records):
            self._loop.run(self._core.fill_records(timeout, max_records))
        return self._core.take_records(max_records)

    def poll_batches(self, timeout: float = POLL_TIMEOUT) -> list[Batch]:
        self._core.check_poll(timeout)
        if not self._core.fill_with_batches_now():
            self._loop.run(self._core.fill_with_batches(timeout))
        return self._core.polled.take_batches()

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return chain.from_iterable(self._iterate_polls())

    def __next__(self) -> ConsumerRecord:
        return next(iter(self))

    def _iterate_polls(self) -> Iterator[Iterator[ConsumerRecord]]:
        core = self._core
        while not core.is_closing:
            yield core.polled.remaining
            if not (core.is_closing or core.fill_records_now()):
                self._loop.run(core.fill_records(POLL_TIMEOUT))

    unsubscribe = _blocking(AsyncConsumer.unsubscribe)
    commit = _blocking(AsyncConsumer.commit)
    committed = _blocking(AsyncConsumer.committed)
    position = _blocking(AsyncConsumer.position)
    beginning_offsets = _blocking(AsyncConsumer.beginning_offsets)
    end_offsets = _blocking(AsyncConsumer.end_offsets)
    offsets_for_times = _blocking(AsyncConsumer.offsets_for_times)
    partitions_for_topic = _blocking(AsyncConsumer.partitions_for_topic)
    topics = _blocking(AsyncConsumer.topics)

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        if not (self._core.is_closing or self._core.fork_check.is_forked):
            try:
                self._loop.run(self._async.close(timeout))
            finally:
                if self._core.is_closed:
                    self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    __init__.__doc__ = AsyncConsumer.__init__.__doc__
    __iter__.__doc__ = AsyncConsumer.__aiter__.__doc__
    poll.__doc__ = AsyncConsumer.poll.__doc__
    poll_batches.__doc__ = AsyncConsumer.poll_batches.__doc__
    close.__doc__ = AsyncConsumer.close.__doc__


class PrivateEventLoop:
    """An event loop that runs in the caller's thread while a call waits. Listeners and callbacks
    run between two runs of it, so that they may use the consumer again.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._fork_check = ForkCheck()
        self._outside_calls: deque[tuple[Callable[[], object], asyncio.Future[None]]] = deque()
        self._owner = threading.RLock()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns a coroutine's result; an interrupt (Ctrl-C) cancels it and waits for its end."""
        with contextlib.ExitStack() as stack:
            stack.callback(coroutine.close)
            self._check()
            if not self._owner.acquire(blocking=False):
                raise InputError("this consumer is in use by another thread")
            stack.callback(self._owner.release)
            task = self._loop.create_task(coroutine)
            try:
                self._run_until_done(task)
            except BaseException:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    self._run_until_done(task)
                raise
            return task.result()

    async def call_outside(self, function: Callable[[], object]) -> None:
        """Stops the loop, calls a function outside of it, then lets the loop continue."""
        future = self._loop.create_future()
        self._outside_calls.append((function, future))
        self._loop.stop()
        await future

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.run_until_complete(asyncio.sleep(0))  # callbacks of closed connections
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _check(self) -> None:
        self._fork_check.check()
        if self._loop.is_closed():
            raise InputError("this consumer is closed")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise InputError("use rota.AsyncConsumer with asyncio: rota.Consumer would block the loop")

    def _run_until_done(self, task: asyncio.Task[T]) -> None:
        stop = self._stop
        task.add_done_callback(stop)
        try:
            while not task.done():
                self._loop.run_forever()
                while self._outside_calls:
                    self._run_outside_call(*self._outside_calls.popleft())
        finally:
            task.remove_done_callback(stop)

    def _stop(self, _: object) -> None:
        self._loop.stop()

    def _run_outside_call(
        self, function: Callable[[], object], future: asyncio.Future[None]
    ) -> None:
        if future.done():
            return  # the coroutine that waits for it was cancelled
        try:
            _refuse_coroutine(function())
        except Exception as error:  # noqa: BLE001 (an application's code may raise anything)
            future.set_exception(error)
        except BaseException:
            future.cancel()
            raise
        else:
            if not future.done():  # the function may have run the loop, and a Ctrl-C ended it there
                future.set_result(None)


def _refuse_coroutine(result: object) -> None:
    if inspect.iscoroutine(result):
        result.close()
        raise InputError(f"{result.__qualname__} is async: only rota.AsyncConsumer can await it")
