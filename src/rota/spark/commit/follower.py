"""Follows streaming queries: hears of their finished batches, and reads their checkpoints.

Listeners are called while Spark waits: at a start the query itself, else all other listeners. So
what they are told is only noted there; files are read and jobs are run by a thread of the
follower's own, in the order in which things happened.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from pyspark.sql.session import SparkSession as Classic
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from rota.spark.commit import checkpoint as checkpoints
from rota.spark.commit.checkpoint import Place
from rota.spark.commit.errand import Errands
from rota.spark.commit.ledger import Conflict, Ledger
from rota.spark.commit.progress import Finished, Offsets, finished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOGGER = logging.getLogger("rota.spark")

LATE = "Async"
"""How the engine's name begins that writes its logs when it finds the time
(``asyncProgressTrackingEnabled``): it tells of batches before they are in its commit log."""

E = TypeVar("E")


class Aim(Protocol):
    """Is told what the group is to have."""

    def __call__(self, offsets: Offsets, *, anew: bool) -> None:
        """See :meth:`rota.spark.commit.mirror.Mirror.aim`."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which queries are followed; by nothing: all."""

    name: str | None = None
    id: str | None = None

    def takes(self, query: object, name: str | None) -> bool:
        """Is this one of them?"""
        return self.name in {None, name} and self.id in {None, str(query)}

    def __str__(self) -> str:
        return f"named {self.name!r}" if self.id is None else f"of id {self.id}"


class Follower:
    """Tells how far those queries of a session are that are wanted."""

    def __init__(  # noqa: PLR0913 what a query may be known by
        self,
        spark: SparkSession,
        wanted: Wanted,
        aim: Aim,
        *,
        about: str,
        given: StreamingQuery | None = None,
        checkpoint: str | None = None,
    ) -> None:
        """Nothing happens yet.

        :param about: what log lines are about
        :param given: the query that is wanted, if it is known
        :param checkpoint: where its checkpoint is, if that is known
        """
        self._spark = spark
        self._wanted = wanted
        self._aim = aim
        self._about = about
        self._given = given
        self._checkpoint = checkpoint
        self._here = isinstance(spark, Classic)
        self._errands = Errands("rota-spark", about)
        self._listener = Listener(self)
        self._changed = threading.Condition()
        self._deaf = False
        self._hooked = False
        self._running: dict[str, str] = {}
        """Queries by their runs."""
        self._passed: set[str] = set()
        """Names of queries that are not wanted."""
        self._found = False
        """One was that is."""
        self._ended: set[str] | None = None
        """Runs that have ended while those were listed that are active."""
        self._news: dict[str, Finished] = {}
        """The newest finished batch of a run that nobody has looked at yet."""
        # only the errands' thread uses these
        self._ledger = Ledger()
        self._places: dict[str, Place] = {}
        self._late: set[str] = set()
        self._told: set[Conflict] = set()

    @property
    def follows(self) -> bool:
        """Is one of the queries running?"""
        return bool(self._running)

    def begin(self) -> None:
        """From now on."""
        if self._checkpoint is not None:
            self._errands.add(partial(self._catch_up_before, self._checkpoint))
        self._hooked, self._ended = True, set()
        self._spark.streams.addListener(self._listener)
        active = [each for each in self._spark.streams.active if self._takes(each)]
        for each in active:
            self._start(str(each.id), str(each.runId))
        with self._changed:
            ended, self._ended = self._ended, None
        for run in ended & {str(each.runId) for each in active}:
            self._end(run)
        if self._given is not None and not active:
            query, run = str(self._given.id), str(self._given.runId)
            self._start(query, run)
            self._end(run)

    def _takes(self, query: StreamingQuery) -> bool:
        return self._wanted.takes(query.id, query.name)

    def catch_up(self, until: float, *, at_exit: bool = False) -> bool:
        """Waits until all is heard of queries that have ended, and looked at; False if there is no
        time for it.

        :param at_exit: the program ends, and Spark Connect cannot be asked any more
        """
        ended = set(self._running)
        if self._here or not at_exit:
            self._errands.add(partial(self._look_around, ended))
        else:
            ended.clear()
        if not self._errands.wait(until - time.monotonic()):
            return False
        # Spark says that a query has ended before its listeners have heard all of it
        with self._changed:
            heard = self._changed.wait_for(
                lambda: not self._running.keys() & ended, max(0.0, until - time.monotonic())
            )
        return self._errands.wait(until - time.monotonic()) and heard

    def _look_around(self, runs: set[str]) -> None:
        """Leaves of these only what has ended."""
        runs.difference_update(str(each.runId) for each in self._spark.streams.active)

    def end(self, until: float, *, surely: bool = False) -> bool:
        """Hears no more; False if the listener could not be taken off.

        :param surely: tries it even where it might block the session, as nobody needs it any more
        """
        if not self._deaf and self._passed and not self._found:
            LOGGER.warning(
                "%s: nothing was committed: no query was %s; those that ran: %s",
                *(self._about, self._wanted, ", ".join(sorted(self._passed))),
            )
        self._deaf = True
        if not self._hooked:
            return True
        self._errands.add(partial(self._unhook, surely=surely))
        self._errands.wait(until - time.monotonic())
        if not self._hooked:
            self._errands.end()
        return not self._hooked

    def _unhook(self, *, surely: bool) -> None:
        # PySpark's client holds a lock while it waits for the thread that hears of events, and
        # that thread wants the lock for the next event: without queries there is none
        if self._here or surely or not self._spark.streams.active:
            self._hooked = False
            self._spark.streams.removeListener(self._listener)

    # As the listener hears it

    def started(self, event: QueryStartedEvent) -> None:
        """A query has started."""
        if self._wanted.takes(event.id, event.name):
            self._start(str(event.id), str(event.runId))
        else:
            self._passed.add(event.name or "one without a name")

    def progressed(self, event: QueryProgressEvent) -> None:
        """A trigger is over."""
        progress = event.progress
        if not self._wanted.takes(progress.id, progress.name):
            return
        done = finished(progress)
        if done is None:
            return
        self._start(done.query, done.run)
        with self._changed:
            is_first = done.run not in self._news
            self._news[done.run] = done
        if is_first:
            self._errands.add(partial(self._take_news, done.run))

    def terminated(self, event: QueryTerminatedEvent) -> None:
        """A query has ended."""
        run = str(event.runId)
        with self._changed:
            if self._ended is not None:
                self._ended.add(run)
            known = run in self._running
        if known:
            self._end(run)

    @property
    def is_deaf(self) -> bool:
        """It has ended, and only could not be taken off."""
        return self._deaf

    def _start(self, query: str, run: str) -> None:
        with self._changed:
            if run in self._running:
                return
            self._running[run] = query
            self._found = True
        self._errands.add(partial(self._catch_up, query, run))

    def _end(self, run: str) -> None:
        self._errands.add(partial(self._close, run))

    # In the errands' thread

    def _catch_up_before(self, root: str) -> None:
        """What the checkpoint has that was given, before any query has started."""
        place = checkpoints.place(self._spark, root, here=self._here)
        query = checkpoints.owner(place)
        if query is None:
            return
        if self._wanted.id not in {None, query}:
            LOGGER.warning(
                "%s: the checkpoint %s is of query %s, not of %s: it is not looked at",
                *(self._about, root, query, self._wanted.id),
            )
            return
        self._look(place, query, "")

    def _catch_up(self, query: str, run: str) -> None:
        """What the checkpoint of a query has that has started."""
        self._ledger.started(query, run)
        found = self._spark.streams.get(query) or self._given
        place = self._place(found, query, run)
        if place is not None:
            self._places[run] = place
            self._look(place, query, run)
        elif found is not None and (last := found.lastProgress) is not None:
            done = finished(last)
            if done is not None:
                self._take(done, anew=True)

    def _place(self, found: StreamingQuery | None, query: str, run: str) -> Place | None:
        """Where the checkpoint is. Classic Spark's own object of the query knows; its class, too,
        is told nowhere else.
        """
        engine = None if found is None else getattr(found, "_jsq", None)
        if engine is not None:
            execution = engine.streamingQuery()
            if execution.getClass().getSimpleName().startswith(LATE):
                self._late.add(run)
            root = execution.resolvedCheckpointRoot()
            return checkpoints.place(self._spark, root, here=self._here)
        if self._checkpoint is None:
            return None
        place = checkpoints.place(self._spark, self._checkpoint, here=self._here)
        owner = checkpoints.owner(place)
        if owner in {None, query}:
            return place
        LOGGER.warning(
            "%s: the checkpoint %s is of query %s, not of %s: it is not looked at",
            *(self._about, self._checkpoint, owner, query),
        )
        return None

    def _look(self, place: Place, query: str, run: str, *, anew: bool = True) -> None:
        last = checkpoints.last_finished(place)
        if last is not None:
            batch, offsets = last
            self._take(Finished(query=query, run=run, batch=batch, offsets=offsets), anew=anew)

    def _take_news(self, run: str) -> None:
        with self._changed:
            done = self._news.pop(run)
        if run in self._late:
            place = self._places.get(run) or self._place(
                self._spark.streams.get(done.query), done.query, run
            )
            if place is not None:
                self._places[run] = place
                self._look(place, done.query, run, anew=False)
        else:
            self._take(done, anew=False)

    def _take(self, done: Finished, *, anew: bool) -> None:
        conflicts = self._ledger.finished(done)
        if conflicts is None:
            return
        for each in set(conflicts) - self._told:
            self._told.add(each)
            LOGGER.warning(
                "%s: topic %r of query %s is not committed: query %s commits it already; "
                "give each query a group of its own",
                *(self._about, each.topic, each.query, each.owner),
            )
        self._aim(self._ledger.target(), anew=anew)

    def _close(self, run: str) -> None:
        try:
            query, place = self._running.get(run), self._places.pop(run, None)
            if query is None:
                return
            if run in self._late and place is not None:
                self._look(place, query, run, anew=False)
            self._ledger.ended(query, run)
            self._late.discard(run)
        finally:
            with self._changed:
                self._running.pop(run, None)
                self._changed.notify_all()


class Listener(StreamingQueryListener):
    """Hears what Spark tells, and never raises."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 Spark's names
        """A query has started."""
        self._tell(self._follower.started, event)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A trigger is over."""
        self._tell(self._follower.progressed, event)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """A query has ended."""
        self._tell(self._follower.terminated, event)

    def _tell(self, hear: Callable[[E], None], event: E) -> None:
        if self._follower.is_deaf:
            return
        try:
            hear(event)
        except Exception:  # Spark would log it, too, but not say whose it is
            LOGGER.exception("an event of a query was not understood")
