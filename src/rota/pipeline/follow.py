"""A run that goes on: every few seconds what is new in a live cluster's journal, and what follows.

Spark's streaming reads the journal in batches, and keeps in a checkpoint how far it is. A batch is
a round (:mod:`rota.pipeline.round`), whose folder holds the number of its batch. After a kill Spark
gives the last batch again, with the same records: if its round is shown already, nothing is left to
do, and if not, nothing is left of it. So a record is in the tables once.

::

    OUT/.follow/1f0c9a77/       the checkpoint; the name is in the folder of the round that is shown

A folder whose tables are of no such round, or of one whose checkpoint is gone, is begun anew.
"""

from __future__ import annotations

import secrets
import shutil
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rota.errors import InputError
from rota.pipeline import cluster, ingest, store
from rota.pipeline.cluster import Cluster, Live
from rota.pipeline.evidence import Back, Evidence, Options
from rota.pipeline.round import Listener as RoundListener
from rota.pipeline.round import Mark, Rounds
from rota.pipeline.run import LARGE
from rota.pipeline.session import CONNECT, session
from rota.pipeline.stage import Stage, stage
from rota.pipeline.store import Shelf

EVERY = 2.0
"""Seconds from one look for new records to the next, at least."""
LOOK = 0.2
"""Seconds from one look at the query to the next."""
CHECKPOINTS = ".follow"


class Stopped(Exception):
    """Nobody wants another round."""


class Listener(RoundListener, Protocol):
    """Who is told what happens."""

    def waiting(self, why: str) -> None:
        """There is nothing to do yet, for this reason."""


def follow(  # noqa: PLR0913 (a run's, and how it ends)
    evidence: Evidence,
    out: str,
    options: Options,
    listener: Listener,
    spark: SparkSession | None = None,
    *,
    stop: threading.Event | None = None,
) -> None:
    """Shows the tables of a live cluster, and new ones whenever its journal has grown.

    :param evidence: a cluster; logs and samples of others' are read once, at the beginning
    :param spark: a session to use; one is started, and ended, where none is given
    :param stop: who sets it ends it; a round that has begun is dropped
    :raises InputError: what was asked for cannot be followed
    """
    asked = check(evidence, options)
    stop = stop or threading.Event()
    with ExitStack() as stack:
        with stage(listener, Stage.FIND) as note:
            ingest.check(evidence.server_logs, evidence.ends)
            shelf = stack.enter_context(store.held(out))
            live = _there(asked, listener, stop)
            if live is None:
                return
            mark = _mark(shelf, live, options)
            note.append(str(live) if mark.batch < 0 else f"{live}; goes on where it was")
        with stage(listener, Stage.START):
            if spark is None:
                large = mark.batch < 0 and live.weight > LARGE
                spark = stack.enter_context(session(options.master, large=large))
        rounds = Rounds(spark, shelf, (evidence, options, live), mark, listener)
        checkpoint = shelf.out / CHECKPOINTS / mark.follow
        _Query(rounds, shelf.out, stop).run(spark, live, checkpoint)


def check(evidence: Evidence, options: Options) -> Cluster:
    """The cluster to follow.

    :raises InputError: what was asked for cannot be followed
    """
    if evidence.cluster is None:
        raise InputError("--follow needs --bootstrap-servers: a folder of files does not go on")
    if evidence.segments:
        raise InputError("--follow reads a live cluster: it does not go with --segments")
    if options.until is not None:
        raise InputError("--follow has no end: it does not go with --until")
    if isinstance(options.since, Back):
        raise InputError("--follow goes on: --since takes a time with it, like 2026-11-15T06:00Z")
    if options.master.startswith(CONNECT):
        raise InputError(
            "--follow keeps its tables in this process's folder: it does not go with Spark Connect "
            f"({options.master}); a Spark master does"
        )
    return evidence.cluster


def _there(asked: Cluster, listener: Listener, stop: threading.Event) -> Live | None:
    """The cluster, once it has a journal; None: nobody wants to wait any more."""
    live = cluster.look(asked)
    while not live.ends:
        listener.waiting(str(live))
        if stop.wait(EVERY):
            return None
        live = cluster.look(asked)
    return live


def _mark(shelf: Shelf, live: Live, options: Options) -> Mark:
    """Where to go on; old checkpoints are removed.

    :raises InputError: the folder is of another cluster, or of other groups
    """
    new = Mark(
        follow=secrets.token_hex(8),
        cluster=live.name,
        groups=sorted(options.groups),
        since=options.since if isinstance(options.since, int) else None,
    )
    found = Mark.read(shelf.shown)
    checkpoints = shelf.out / CHECKPOINTS
    if found is not None and not (checkpoints / found.follow).is_dir():
        found = None
    if found is not None:
        _same(found, new, shelf.out)
        if options.redact:
            found = None  # the key of its hashes was never kept
    mark = new if found is None else found
    for folder in checkpoints.glob("*"):
        if folder.name != mark.follow:
            shutil.rmtree(folder, ignore_errors=True)
    return mark


def _same(found: Mark, new: Mark, out: Path) -> None:
    told = {
        "the cluster": (found.cluster, new.cluster),
        "--group": (" ".join(found.groups), " ".join(new.groups)),
        "--since": (found.since, new.since),
    }
    for what, (before, now) in told.items():
        if before != now:
            raise InputError(
                f"--out {out}: it goes on with what it was begun with: {what} was "
                f"{before or 'not given'}, and is {now or 'not given'} now; give another folder"
            )


class _Query:
    """Spark's query, from its start to its end."""

    def __init__(self, rounds: Rounds, out: Path, stop: threading.Event) -> None:
        self._rounds = rounds
        self._out = out
        self._stop = stop
        self._busy = threading.Lock()
        self._problem: BaseException | None = None

    def run(self, spark: SparkSession, live: Live, checkpoint: Path) -> None:
        """Until it is stopped, or something is wrong."""
        from rota.spark import register  # noqa: PLC0415 (only who follows needs a client in Spark)

        register(spark)
        told = {name: value for name, value in live.options().items() if name != "endingOffsets"}
        rows = spark.readStream.format("rota").options(**told).load()
        writer = rows.writeStream.foreachBatch(self._take).trigger(
            processingTime=f"{EVERY} seconds"
        )
        with store.failures(self._out):
            query = writer.option("checkpointLocation", str(checkpoint)).start()
            try:
                self._wait(query)
            finally:
                self._end(query)

    def _take(self, frame: DataFrame, batch: int) -> None:
        with self._busy:
            if self._stop.is_set():
                raise Stopped  # if it returned, Spark would take the batch for done
            try:
                self._rounds.take(frame, batch)
            except BaseException as error:
                # the query dies of it, and tells of it in many lines
                self._problem = error
                raise

    def _wait(self, query: StreamingQuery) -> None:
        while not self._stop.wait(LOOK):
            if not query.isActive:
                problem = self._problem or query.exception()
                if problem is not None:
                    raise problem
                return

    def _end(self, query: StreamingQuery) -> None:
        self._stop.set()
        with suppress(PySparkException):
            query.stop()
        with self._busy:  # what it was at is dropped, or done
            pass
