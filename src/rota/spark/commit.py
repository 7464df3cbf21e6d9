"""``commit_to_group``: commits what streaming queries have finished to a consumer group.

Spark's checkpoint stays the truth. Spark calls its listeners after a batch is in the commit log of
the checkpoint, so the group is never ahead of the checkpoint; after a start, the group catches up
with the checkpoint. Failed commits are logged and tried again, and the query does not notice. Only
the newest offsets count: a commit that failed is replaced by the next one.

The last commits are made when the program ends. ``atexit`` is too late for them: Python calls it
after it has waited for threads, and over Spark Connect the thread that receives query events ends
only when its last listener is gone. So a thread waits until all other threads have ended that the
program waits for: a query may run in a thread that is not the main one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
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
from rota.spark.option import KAFKA_PREFIX, OPTION_NAMES
from rota.spark.progress import QueryFilter, QueryFollower

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOGGER = logging.getLogger("rota.spark")

#: Seconds for the last commits, unless told otherwise.
COMMIT_TIMEOUT = 10.0

#: Seconds at least to take the listener off.
REMOVE_LISTENER_TIMEOUT = 1.0

_SOURCE_OPTIONS = {name.lower() for name in OPTION_NAMES}


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

    ``kafka-consumer-groups --describe``, ``rota groups lag`` and whatever else looks at groups then
    sees the query and its lag. The group must have no members: a consumer's commits are its own.
    After a start the group catches up with the checkpoint, if a driver died before it could commit.
    A query that begins anew, with an empty checkpoint, sets the group back with its first finished
    batch; until then the group has what it had.

    :param group_id: best one for each query. Of queries that read the same topic only the first is
        committed, until it ends; the others are named in the log
    :param kafka: Kafka's settings, with or without ``kafka.`` before them; the reader's own options
        may be among them, so that those of the reader can be given as they are
    :param query: its name (it may start later, and again), or the query; None: every query of this
        session that reads Kafka. A source in Python does not tell Spark its name: one that is not
        Rota's, and has offsets of the same form, would be taken for Kafka
    :param checkpoint: where the query's checkpoint is. Over Spark Connect nothing else tells, and
        without it the group catches up with the first batch that ends; else the query is asked.
        With it the group catches up before the start
    :raises InputError: a setting is wrong
    :return: stop it at the end, or use it as a context manager, so that the last batch is not
        missed; at the end of the program that is tried, too
    """
    return Committer(
        spark,
        _check_group_id(group_id),
        client_config(group_id, kafka),
        wanted=_query_filter(query),
        query=None if isinstance(query, str) else query,
        checkpoint=checkpoint,
    )


def _check_group_id(given: object) -> str:
    if not isinstance(given, str) or not given:
        raise InputError("group_id: the name of a group is needed")
    return given


def client_config(group: str, given: Mapping[str, str]) -> ClientConfig:
    """How to reach the brokers, by Kafka's settings or a reader's options.

    :raises InputError: one is unknown or malformed, or there is no address
    """
    kafka: dict[str, object] = {}
    for name, value in config.require_mapping(given).items():
        low = str(name).lower()
        if low in _SOURCE_OPTIONS:
            continue
        key = low.removeprefix(KAFKA_PREFIX) if low.startswith(KAFKA_PREFIX) else str(name)
        if kafka.get(key, value) != value:
            raise InputError(f"kafka: {key} is given twice, and not the same")
        kafka[key] = value
    if not kafka.get("bootstrap.servers"):
        raise InputError("kafka: bootstrap.servers is needed, like host:9092")
    settings = config.read_settings(
        {"client.id": f"rota-spark-{group}"} | kafka | {"group.id": group}
    )
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
    """Keeps a group as far as the checkpoints of queries: see :func:`commit_to_group`."""

    def __init__(  # noqa: PLR0913 as commit_to_group
        self,
        spark: SparkSession,
        group: str,
        config: ClientConfig,
        *,
        wanted: QueryFilter,
        query: StreamingQuery | None,
        checkpoint: str | None,
    ) -> None:
        self.group_id = group
        self._group_committer = GroupCommitter(
            group, config, lambda: self._follower.has_running_query
        )
        self._follower = QueryFollower(
            spark,
            wanted,
            self._group_committer.set_target,
            about=f"group {group!r}",
            given=query,
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
        """What finished batches have, and the group has not yet."""
        return self._group_committer.pending

    def flush(self, timeout: float = COMMIT_TIMEOUT) -> bool:
        """Waits until the group has all that is known to be finished, and all of queries that have
        ended; False if it has not in these seconds. The log says why.
        """
        return self._flush(timeout)

    def _flush(self, timeout: float, *, at_exit: bool = False) -> bool:
        until = time.monotonic() + timeout
        caught_up = self._follower.catch_up(until, at_exit=at_exit)
        return self._group_committer.flush(until - time.monotonic()) and caught_up

    def stop(self, timeout: float = COMMIT_TIMEOUT) -> bool:
        """Commits the last, and no more after it. It does not wait for queries that run.

        :return: whether the group has all; what it has not, it gets after the next start
        """
        return self._stop(timeout)

    def _stop(self, timeout: float, *, at_exit: bool = False) -> bool:
        with self._lock:
            if self._stopped:
                return not self.pending
            self._stopped = True
        until = time.monotonic() + timeout
        done = self._flush(timeout, at_exit=at_exit)
        if self._follower.stop(
            max(until, time.monotonic() + REMOVE_LISTENER_TIMEOUT), surely=at_exit
        ):
            cancel_at_exit(self._stop_at_exit)
        self._group_committer.stop()
        if not done:
            LOGGER.warning(
                "group %r: stopped before all was committed (%s); the next start catches up",
                *(self.group_id, self._group_committer.last_failure),
            )
        return done

    def _stop_at_exit(self) -> None:
        """The program ends."""
        self._stop(COMMIT_TIMEOUT, at_exit=True)
        self._follower.stop(time.monotonic() + REMOVE_LISTENER_TIMEOUT, surely=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "stopped" if self._stopped else f"{len(self.pending)} offsets pending"
        return f"<rota.spark.Committer of group {self.group_id!r}, {state}>"


_COMMIT_LOGGER = logging.getLogger("rota.spark")

#: Between tries, in seconds.
COMMIT_BACKOFF = Backoff(0.5, 60.0)

#: Seconds after which all is committed again, even if nothing has changed. In a group without
#: members a broker forgets each offset ``offsets.retention.minutes`` after it was committed
#: (KIP-211), by default a week, though the query may only have nothing to do.
RENEWAL_INTERVAL = 3600.0

#: Seconds after which a failure that has not changed is logged once more.
WARNING_INTERVAL = 600.0

#: Seconds after which all is committed once more where a try was left without an answer: a broker
#: may still carry it out, after the one that followed it.
RECOMMIT_DELAY = 60.0

#: Seconds that connections have to close.
CLOSE_TIMEOUT = 2.0


class GroupCommitter:
    """Commits offsets to a group without being a member, as an operator does, from a thread
    of its own.
    """

    def __init__(self, group: str, config: ClientConfig, is_needed: Callable[[], bool]) -> None:
        """Begins at once, with nothing to commit.

        :param is_needed: is there anybody still whose offsets must not be forgotten?
        """
        self._group = group
        self._config = config
        self._is_needed = is_needed
        self._target: Mapping[TopicPartition, int] = {}
        self._stored: dict[TopicPartition, int] = {}
        #: What waits for the next try after a failure; None: all.
        self._waiting_for_retry: frozenset[TopicPartition] | None = None
        self._failures, self._retry_at = 0, 0.0
        self._recommit_at: float | None = None
        #: The last, and when it was logged.
        self._last_warning = ("", 0.0)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"rota-commit-{group}", daemon=True)
        self._thread.start()
        self._ready.wait()

    # From any thread

    def set_target(self, offsets: Mapping[TopicPartition, int], *, anew: bool = False) -> None:
        """Sets the offsets that the group should have, from now on.

        :param anew: commits all of them, even those that were committed before
        """
        self._call(lambda: self._take(offsets, anew=anew))

    def flush(self, timeout: float) -> bool:
        """Waits until all is committed; False if it is not in these seconds."""
        if not self._thread.is_alive():
            return not self.pending
        settled = self._settled()
        try:
            waiting = asyncio.run_coroutine_threadsafe(settled, self._loop)
        except RuntimeError:  # it has just ended
            settled.close()
            return not self.pending
        try:
            waiting.result(timeout=max(0.0, timeout))
        except (TimeoutError, concurrent.futures.CancelledError):
            waiting.cancel()
            return False
        return True

    def stop(self) -> None:
        """Ends it, with what is not committed left undone."""
        self._call(self._ending.set)
        self._thread.join(2 * CLOSE_TIMEOUT)

    @property
    def pending(self) -> dict[TopicPartition, int]:
        """What the group is to have, and has not."""
        stored = self._stored
        return {
            place: offset
            for place, offset in self._target.items()
            if stored.get(place, -1) != offset
        }

    @property
    def last_failure(self) -> str:
        """Why the group has not all, as far as it is known."""
        last, _ = self._last_warning
        servers = ", ".join(map(str, self._config.bootstrap_servers))
        return last or f"no answer yet from {servers}"

    def _call(self, act: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(act)

    # In the loop

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken, self._idle, self._ending = asyncio.Event(), asyncio.Event(), asyncio.Event()
        client = ClusterClient(self._config, quiet=True)
        keeper = asyncio.create_task(self._commit_loop(client))
        self._ready.set()
        await self._ending.wait()
        keeper.cancel()
        await asyncio.wait([keeper])
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await client.close()

    def _take(self, offsets: Mapping[TopicPartition, int], *, anew: bool) -> None:
        self._target = offsets
        if anew:
            self._stored.clear()
        self._idle.clear()
        self._woken.set()

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
        """Commits all once more, when it is time."""
        doubtful = self._recommit_at
        pause = RENEWAL_INTERVAL if doubtful is None else doubtful - self._loop.time()
        if not await self._sleep(pause) and (doubtful is not None or self._is_needed()):
            self._recommit_at = None
            self._stored.clear()

    def _due(self) -> dict[TopicPartition, int]:
        """What is to be committed now: what was refused waits, and holds nothing else up."""
        pending = self.pending
        if self._loop.time() >= self._retry_at:
            return pending
        held = self._waiting_for_retry
        return {} if held is None else {p: each for p, each in pending.items() if p not in held}

    async def _sleep(self, seconds: float) -> bool:
        """Until there is something to do; False if the time is over."""
        try:
            # not wait_for, which in Python 3.11 may swallow the end
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
        except Exception:  # whatever it is, the query must not feel it
            _COMMIT_LOGGER.exception("group %r: offsets are not committed", self._group)
        else:
            if whole:
                self._log_recovery()
            return
        left = {place for place in due if place in self.pending}
        self._waiting_for_retry = frozenset(left) if len(left) < len(due) else None
        self._failures += 1
        self._retry_at = self._loop.time() + COMMIT_BACKOFF.pause_after(self._failures)

    async def _commit(self, client: ClusterClient, pending: Mapping[TopicPartition, int]) -> None:
        given = {place: OffsetAndMetadata(offset) for place, offset in pending.items()}
        request = OffsetCommit(group=self._group, offsets=given)
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
        self._stored.update({p: offset for p, offset in pending.items() if codes.get(p) == 0})
        check_codes({place: code for place, code in codes.items() if code}, "refused")
        if missing := [str(place) for place in pending if place not in codes]:
            raise GroupError(f"the answer says nothing of {list_first_names(missing)}")

    def _log_failure(self, text: str) -> None:
        last, at = self._last_warning
        now = time.monotonic()
        if text != last or now - at >= WARNING_INTERVAL:
            self._last_warning = (text, now)
            _COMMIT_LOGGER.warning(
                "group %r: offsets are not committed, and will be tried again: %s",
                self._group,
                text,
            )

    def _log_recovery(self) -> None:
        self._failures = 0
        if self._last_warning[0]:
            self._last_warning = ("", 0.0)
            _COMMIT_LOGGER.info("group %r: offsets are committed again", self._group)


#: Whose threads may go on for as long as somebody listens.
SPARK_MODULES = ("pyspark.", "py4j.")

_exit_lock = threading.Lock()

_exit_callbacks: list[Callable[[], object]] = []

_exit_threads: list[threading.Thread] = []


def call_at_exit(act: Callable[[], object]) -> None:
    """Calls a function when all threads of the program have ended, unless it is cancelled
    before. It must return by itself: the program waits for it.
    """
    with _exit_lock:
        _exit_callbacks.append(act)
        if not _exit_threads:
            _exit_threads.append(
                threading.Thread(target=_wait_for_exit, name="rota-exit", daemon=False)
            )
            _exit_threads[0].start()


def cancel_at_exit(act: Callable[[], object]) -> None:
    """Cancels a call at exit."""
    with _exit_lock:
        if act in _exit_callbacks:
            _exit_callbacks.remove(act)


def _wait_for_exit() -> None:
    while working := [each for each in threading.enumerate() if _is_program_thread(each)]:
        working[0].join()
    with _exit_lock:
        left = list(_exit_callbacks)
    for act in left:
        act()


def _is_program_thread(thread: threading.Thread) -> bool:
    """Does the program wait for it, and it not for this one here?"""
    target = getattr(thread, "_target", None)  # nothing else tells whose it is
    bridge = (getattr(target, "__module__", None) or "").startswith(SPARK_MODULES)
    own = thread.daemon or bridge or thread is threading.current_thread()
    return not own and thread.is_alive()
