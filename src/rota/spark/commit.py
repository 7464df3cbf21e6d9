"""``commit_to_group``: commits what streaming queries have finished to a consumer group.

Spark calls its listeners after a batch is in the commit log of the checkpoint, so the group is
never ahead of the checkpoint; after a start, the group catches up with it. Failed commits are
logged and tried again, without an effect on the query. Only the newest offsets count: the next
commit replaces one that failed.

The last commits are made when the program ends. ``atexit`` is too late for them: Python calls it
after it has waited for threads, and over Spark Connect the thread that receives query events ends
only when its last listener is removed. So a thread waits for all other non-daemon threads: a query
may run in a thread that is not the main one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Self, cast

from rota.client import config
from rota.client.cluster import ClusterClient
from rota.client.group_requests import (
    MAX_VERSIONS,
    check_codes,
    decode_group_response,
    encode_group_request,
)
from rota.client.retry import Backoff
from rota.engine.model.config import ClientConfig
from rota.engine.model.request import OffsetCommit
from rota.engine.model.response import OffsetCommitResult
from rota.engine.model.text import list_first_names, quote_shortened
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import GroupError, InputError, RotaError
from rota.spark.option import KAFKA_PREFIX, SOURCE_OPTIONS
from rota.spark.progress import QueryFilter, QueryFollower
from rota.spark.query import LOGGER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COMMIT_TIMEOUT = 10.0  # seconds for the last commits
REMOVE_LISTENER_TIMEOUT = 1.0  # seconds to remove the listener, at least
_SOURCE_OPTIONS = {name.lower() for name in SOURCE_OPTIONS}


def commit_to_group(
    spark: SparkSession,
    *,
    group_id: str,
    kafka: Mapping[str, str],
    query: str | StreamingQuery | None = None,
    checkpoint: str | None = None,
) -> Committer:
    """Commits what a streaming query has finished to a group, for Rota's source and Spark's own.

    ::

        kafka = {"kafka.bootstrap.servers": "host:9092"}
        with rota.spark.commit_to_group(spark, group_id="billing", kafka=kafka, query="bills"):
            rows = spark.readStream.format("rota").options(**kafka).option("subscribe", "orders")
            query = rows.load().writeStream.queryName("bills").option(...).start()
            query.awaitTermination()

    ``kafka-consumer-groups --describe``, ``rota groups lag`` and other tools then show the query
    and its lag. The group must have no members. After a start the group catches up with the
    checkpoint, in case a driver died before it could commit. A query with an empty checkpoint sets
    the group back when its first batch is finished, not before.

    :param group_id: best one for each query. If several queries read a topic, only the first one is
        committed until it ends; the others are logged
    :param kafka: Kafka's settings, with or without ``kafka.`` before them. The options of a reader
        may be passed as they are: options of the source are ignored
    :param query: a query, or a name (the query may start later, and again); None: every query of
        this session that reads Kafka. Spark does not know the names of sources in Python: one whose
        offsets have the same form counts as Kafka
    :param checkpoint: the path of the query's checkpoint. The group then catches up before the
        start. Over Spark Connect Rota cannot find the path itself, and without it the group catches
        up when the next batch is finished
    :raises InputError: a setting is wrong
    :return: call ``stop()`` at the end, or use it as a context manager, so that the last batch is
        committed; the end of the program tries that, too
    """
    if not isinstance(group_id, str) or not group_id:
        raise InputError("group_id: the name of a group is needed")
    return Committer(spark, group_id, client_config(group_id, kafka), query, checkpoint)


def client_config(group: str, options: Mapping[str, str]) -> ClientConfig:
    """Reads Kafka's settings or a reader's options; raises InputError."""
    kafka: dict[str, object] = {}
    for name, value in config.require_mapping(options).items():
        low = str(name).lower()
        if low in _SOURCE_OPTIONS:
            continue
        key = low.removeprefix(KAFKA_PREFIX) if low.startswith(KAFKA_PREFIX) else str(name)
        if kafka.get(key, value) != value:
            raise InputError(f"kafka: {key} is set twice, with different values")
        kafka[key] = value
    if not kafka.get("bootstrap.servers"):
        raise InputError("kafka: bootstrap.servers is needed, like host:9092")
    defaults = {"client.id": f"rota-spark-{group}"}
    settings = config.read_settings(defaults | kafka | {"group.id": group})
    for warning in settings.warnings:
        LOGGER.warning("%s", warning)
    return settings.client


def _query_filter(query: object) -> QueryFilter:
    match query:
        case None:
            return QueryFilter()
        case str() if query:
            return QueryFilter(name=query)
        case _ if hasattr(query, "runId"):
            return QueryFilter(id=str(query.id))  # type: ignore[attr-defined]  # Connect's is another
    shown = quote_shortened(repr(query))[1:-1]
    raise InputError(f"query: a query or its name is needed, not {shown}")


class Committer:
    def __init__(
        self,
        spark: SparkSession,
        group: str,
        config: ClientConfig,
        query: str | StreamingQuery | None,
        checkpoint: str | None,
    ) -> None:
        self.group_id, query_filter = group, _query_filter(query)
        self._group_committer = GroupCommitter(
            group, config, lambda: self._follower.has_running_query
        )
        self._follower = QueryFollower(
            spark,
            query_filter,
            self._group_committer.set_target,
            about=f"group {group!r}",
            query=None if isinstance(query, str) else query,
            checkpoint=checkpoint,
        )
        self._lock = threading.Lock()
        self._stopped = False
        try:
            self._follower.start()
        except BaseException:
            self._follower.stop(time.monotonic() + REMOVE_LISTENER_TIMEOUT)
            self._group_committer.stop()
            raise
        call_at_exit(self._stop_at_exit)

    @property
    def pending(self) -> dict[TopicPartition, int]:
        """Offsets of finished batches that are not committed yet."""
        return self._group_committer.pending

    def flush(self, timeout: float = COMMIT_TIMEOUT) -> bool:
        """Waits until all finished batches are committed; False and a warning after the timeout."""
        until = time.monotonic() + timeout
        caught_up = self._follower.catch_up(until)
        return self._group_committer.flush(until - time.monotonic()) and caught_up

    def stop(self, timeout: float = COMMIT_TIMEOUT) -> bool:
        """Makes the last commits, waits for no query; returns whether all is committed."""
        with self._lock:
            if self._stopped:
                return not self.pending
            self._stopped = True
        until = time.monotonic() + timeout
        done = self.flush(timeout)
        if self._follower.stop(max(until, time.monotonic() + REMOVE_LISTENER_TIMEOUT)):
            cancel_at_exit(self._stop_at_exit)
        self._group_committer.stop()
        if not done:
            text = "group %r: stopped before all was committed (%s); the next start catches up"
            LOGGER.warning(text, self.group_id, self._group_committer.last_failure)
        return done

    def _stop_at_exit(self) -> None:
        self._follower.is_exiting = True
        self.stop()
        self._follower.stop(time.monotonic() + REMOVE_LISTENER_TIMEOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "stopped" if self._stopped else f"{len(self.pending)} offsets pending"
        return f"<rota.spark.Committer of group {self.group_id!r}, {state}>"


COMMIT_BACKOFF = Backoff(0.5, 60.0)  # pauses after failed commits, in seconds
#: Seconds after which unchanged offsets are committed again. Without members, a broker drops each
#: offset ``offsets.retention.minutes`` after its commit (KIP-211), even if the query is only idle.
RENEWAL_INTERVAL = 3600.0
WARNING_INTERVAL = 600.0  # seconds after which an unchanged failure is logged again
#: Seconds after which all offsets are committed again if a commit got no response: a broker may
#: still execute it, after the commit that followed it.
RECOMMIT_DELAY = 60.0
CLOSE_TIMEOUT = 2.0  # seconds to close connections


class GroupCommitter:
    """Commits offsets to a group without being a member, from a thread of its own."""

    def __init__(self, group: str, config: ClientConfig, is_needed: Callable[[], bool]) -> None:
        """:param is_needed: returns whether the broker must keep offsets that do not change"""
        self._group = group
        self._config = config
        self._is_needed = is_needed
        self._target: Mapping[TopicPartition, int] = {}
        self._stored: dict[TopicPartition, int] = {}
        #: Partitions that wait for the next attempt after a failure; None: all.
        self._waiting_for_retry: frozenset[TopicPartition] | None = None
        self._failures, self._retry_at = 0, 0.0
        self._recommit_at: float | None = None
        self._last_warning = ("", 0.0)  # the last failure, and when it was logged
        self._ready = threading.Event()
        name, target = f"rota-commit-{group}", lambda: asyncio.run(self._main())
        self._thread = threading.Thread(target=target, name=name, daemon=True)
        self._thread.start()
        self._ready.wait()

    def set_target(self, offsets: Mapping[TopicPartition, int], *, anew: bool = False) -> None:
        """``anew`` commits all of them again."""

        def apply() -> None:
            self._target = offsets
            if anew:
                self._stored.clear()
            self._idle.clear()
            self._woken.set()

        self._call(apply)

    def flush(self, timeout: float) -> bool:
        if not self._thread.is_alive():
            return not self.pending
        settled = self._settled()
        try:
            waiting = asyncio.run_coroutine_threadsafe(settled, self._loop)
        except RuntimeError:  # the loop has just ended
            settled.close()
            return not self.pending
        try:
            waiting.result(timeout=max(0.0, timeout))
        except (TimeoutError, concurrent.futures.CancelledError):
            waiting.cancel()
            return False
        return True

    def stop(self) -> None:
        self._call(self._ending.set)
        self._thread.join(2 * CLOSE_TIMEOUT)

    @property
    def pending(self) -> dict[TopicPartition, int]:
        stored = self._stored
        return {tp: offset for tp, offset in self._target.items() if stored.get(tp, -1) != offset}

    @property
    def last_failure(self) -> str:
        last, _ = self._last_warning
        servers = ", ".join(map(str, self._config.bootstrap_servers))
        return last or f"no answer yet from {servers}"

    def _call(self, function: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken, self._idle, self._ending = asyncio.Event(), asyncio.Event(), asyncio.Event()
        client = ClusterClient(self._config, quiet=True)
        committing = asyncio.create_task(self._commit_loop(client))
        self._ready.set()
        await self._ending.wait()
        committing.cancel()
        await asyncio.wait([committing])
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await client.close()

    async def _settled(self) -> None:
        self._failures, self._retry_at = 0, 0.0
        self._woken.set()
        await self._idle.wait()

    async def _commit_loop(self, client: ClusterClient) -> None:
        while True:
            due = self._due()
            if due:
                await self._try(client, due)
            elif self.pending:
                await self._sleep(self._retry_at - self._loop.time())
            else:
                self._idle.set()
                await self._renew()

    async def _renew(self) -> None:
        recommit_at = self._recommit_at
        pause = RENEWAL_INTERVAL if recommit_at is None else recommit_at - self._loop.time()
        if not await self._sleep(pause) and (recommit_at is not None or self._is_needed()):
            self._recommit_at = None
            self._stored.clear()

    def _due(self) -> dict[TopicPartition, int]:
        """Returns the offsets to commit now: refused ones wait, and do not delay the others."""
        pending, waiting = self.pending, self._waiting_for_retry
        if self._loop.time() >= self._retry_at:
            return pending
        return {} if waiting is None else {tp: pending[tp] for tp in pending if tp not in waiting}

    async def _sleep(self, seconds: float) -> bool:
        """Waits for new offsets; False after the pause."""
        try:
            # not wait_for, which may swallow a cancellation in Python 3.11
            async with asyncio.timeout(max(0.0, seconds)):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True

    async def _try(self, client: ClusterClient, due: Mapping[TopicPartition, int]) -> None:
        whole = len(due) == len(self.pending)
        try:
            await self._commit(client, due)
        except RotaError as error:
            self._log_failure(str(error))
        except Exception:  # noqa: BLE001 (the query must not notice)
            LOGGER.exception("group %r: offsets are not committed", self._group)
        else:
            if whole:
                self._failures = 0
                if self._last_warning[0]:
                    self._last_warning = ("", 0.0)
                    LOGGER.info("group %r: offsets are committed again", self._group)
            return
        left = due.keys() & self.pending.keys()
        self._waiting_for_retry = frozenset(left) if len(left) < len(due) else None
        self._failures += 1
        self._retry_at = self._loop.time() + COMMIT_BACKOFF.pause_after(self._failures)

    async def _commit(self, client: ClusterClient, pending: Mapping[TopicPartition, int]) -> None:
        offsets = {tp: OffsetAndMetadata(offset) for tp, offset in pending.items()}
        request = OffsetCommit(group=self._group, offsets=offsets)
        api, message = encode_group_request(request)
        begun = self._loop.time()
        try:
            response = await client.send_to_coordinator(
                self._group, api, message, client.deadline_after(), most=MAX_VERSIONS.get(api)
            )
        finally:
            now = self._loop.time()
            if now - begun >= self._config.request_timeout / 1000:
                self._recommit_at = now + RECOMMIT_DELAY
        codes = cast(OffsetCommitResult, decode_group_response(request, response)).codes
        self._stored.update({tp: offset for tp, offset in pending.items() if codes.get(tp) == 0})
        check_codes({tp: code for tp, code in codes.items() if code}, "refused")
        if missing := [str(tp) for tp in pending if tp not in codes]:
            raise GroupError(f"the response leaves out {list_first_names(missing)}")

    def _log_failure(self, text: str) -> None:
        last, at = self._last_warning
        now = time.monotonic()
        if text != last or now - at >= WARNING_INTERVAL:
            self._last_warning = (text, now)
            message = "group %r: the commit failed and will be tried again: %s"
            LOGGER.warning(message, self._group, text)


SPARK_MODULES = ("pyspark.", "py4j.")  # their threads may run as long as a listener
_exit_lock = threading.Lock()
_exit_callbacks: list[Callable[[], object]] = []
_exit_threads: list[threading.Thread] = []


def call_at_exit(function: Callable[[], object]) -> None:
    """Calls a function, unless cancelled, when all threads of the program have ended."""
    with _exit_lock:
        _exit_callbacks.append(function)
        if not _exit_threads:
            thread = threading.Thread(target=_wait_for_exit, name="rota-exit", daemon=False)
            _exit_threads.append(thread)
            thread.start()


def cancel_at_exit(function: Callable[[], object]) -> None:
    with _exit_lock:
        if function in _exit_callbacks:
            _exit_callbacks.remove(function)


def _wait_for_exit() -> None:
    while working := [each for each in threading.enumerate() if _is_program_thread(each)]:
        working[0].join()
    with _exit_lock:
        left = list(_exit_callbacks)
    for function in left:
        function()


def _is_program_thread(thread: threading.Thread) -> bool:
    """Returns whether the program waits for a thread that does not wait for this one."""
    target = getattr(thread, "_target", None)  # only its module tells Spark's threads apart
    is_spark = (getattr(target, "__module__", None) or "").startswith(SPARK_MODULES)
    is_current = thread is threading.current_thread()
    return thread.is_alive() and not (thread.daemon or is_spark or is_current)
