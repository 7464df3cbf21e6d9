"""Lets a group see how far a streaming query is: the ends of finished batches are committed to it.

Spark's checkpoint stays the truth. Spark tells its listeners of a batch after that batch is in the
commit log of the checkpoint, so that the group is never ahead of it; after a start, the group
catches up with what the checkpoint has. What goes wrong on the way to the group is logged and tried
again, and the query does not notice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rota.client import setting
from rota.errors import InputError
from rota.model.client import ClientConfig
from rota.model.text import shortened
from rota.model.topic import TopicPartition
from rota.spark.commit.exit import at_exit, forget
from rota.spark.commit.follower import Follower, Wanted
from rota.spark.commit.mirror import Mirror
from rota.spark.option import NAMES, PREFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOGGER = logging.getLogger("rota.spark")

PATIENCE = 10.0
"""Seconds for the last commits, unless told otherwise."""
UNHOOKING = 1.0
"""Seconds at least to take the listener off."""
_OWN = {name.lower() for name in NAMES}


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
    :param kafka: Kafka's settings, with or without ``kafka.`` before them; the reader's own
        options may be among them, so that those of the reader can be given as they are
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
        _group(group_id),
        config(group_id, kafka),
        wanted=_wanted(query),
        query=None if isinstance(query, str) else query,
        checkpoint=checkpoint,
    )


def _group(given: object) -> str:
    if not isinstance(given, str) or not given:
        raise InputError("group_id: the name of a group is needed")
    return given


def config(group: str, given: Mapping[str, str]) -> ClientConfig:
    """How to reach the brokers, by Kafka's settings or a reader's options.

    :raises InputError: one is unknown or malformed, or there is no address
    """
    kafka: dict[str, object] = {}
    for name, value in setting.mapping(given, {}).items():
        low = str(name).lower()
        if low in _OWN:
            continue
        key = low.removeprefix(PREFIX) if low.startswith(PREFIX) else str(name)
        if kafka.get(key, value) != value:
            raise InputError(f"kafka: {key} is given twice, and not the same")
        kafka[key] = value
    if not kafka.get("bootstrap.servers"):
        raise InputError("kafka: bootstrap.servers is needed, like host:9092")
    settings = setting.read({"client.id": f"rota-spark-{group}"} | kafka | {"group.id": group})
    for warning in settings.warnings:
        LOGGER.warning("%s", warning)
    return settings.client


def _wanted(query: object) -> Wanted:
    match query:
        case None:
            return Wanted()
        case str() if query:
            return Wanted(name=query)
        case _ if hasattr(query, "runId"):
            return Wanted(id=str(query.id))  # type: ignore[attr-defined]  # Connect's is another
    shown = shortened(repr(query))[1:-1]
    raise InputError(f"query: a query or its name is needed, not {shown}")


class Committer:
    """Keeps a group as far as the checkpoints of queries: see :func:`commit_to_group`."""

    def __init__(  # noqa: PLR0913 as commit_to_group
        self,
        spark: SparkSession,
        group: str,
        config: ClientConfig,
        *,
        wanted: Wanted,
        query: StreamingQuery | None,
        checkpoint: str | None,
    ) -> None:
        self.group_id = group
        self._mirror = Mirror(group, config, lambda: self._follower.follows)
        self._follower = Follower(
            spark,
            wanted,
            self._mirror.aim,
            about=f"group {group!r}",
            given=query,
            checkpoint=checkpoint,
        )
        self._lock = threading.Lock()
        self._stopped = False
        try:
            self._follower.begin()
        except BaseException:
            self._follower.end(time.monotonic() + UNHOOKING)
            self._mirror.stop()
            raise
        at_exit(self._leave)

    @property
    def pending(self) -> dict[TopicPartition, int]:
        """What finished batches have, and the group has not yet."""
        return self._mirror.pending

    def flush(self, timeout: float = PATIENCE) -> bool:
        """Waits until the group has all that is known to be finished, and all of queries that have
        ended; False if it has not in these seconds. The log says why.
        """
        return self._flush(timeout)

    def _flush(self, timeout: float, *, at_exit: bool = False) -> bool:
        until = time.monotonic() + timeout
        caught_up = self._follower.catch_up(until, at_exit=at_exit)
        return self._mirror.flush(until - time.monotonic()) and caught_up

    def stop(self, timeout: float = PATIENCE) -> bool:
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
        if self._follower.end(max(until, time.monotonic() + UNHOOKING), surely=at_exit):
            forget(self._leave)
        self._mirror.stop()
        if not done:
            LOGGER.warning(
                "group %r: stopped before all was committed (%s); the next start catches up",
                *(self.group_id, self._mirror.trouble),
            )
        return done

    def _leave(self) -> None:
        """The program ends."""
        self._stop(PATIENCE, at_exit=True)
        self._follower.end(time.monotonic() + UNHOOKING, surely=True)

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
