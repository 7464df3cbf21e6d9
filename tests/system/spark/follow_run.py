"""Clusters that a run follows: a stored journal in pieces, and members that come and go."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import rota
from rota.pipeline.cluster import JOURNAL_TOPIC, LiveCluster, LiveJournal, find_journal
from rota.pipeline.demo import READ_ONLY_BROKER
from rota.pipeline.follow import MicroBatchResult, follow_cluster
from rota.pipeline.stages import EvidenceSources, RunOptions
from rota.pipeline.tables import REBALANCES
from rota.spark import register
from tests.support.waiting import wait_until
from tests.system.spark.pipeline_run import SilentProgress, read_rows

#: The topic that the members consume.
TOPIC = "orders"
#: Seconds for a round, also on a machine with much else to do.
PATIENCE = 600.0

Offsets = Mapping[int, int]


class RecordedProgress(SilentProgress):
    """Keeps what rounds tell, and the error that ended them."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: list[MicroBatchResult] = []
        self.problems: list[BaseException] = []

    def until(self, what: str, look: Callable[[], object]) -> None:
        """Wait until `look` finds something. Raise the error if one ended the rounds."""
        wait_until(what, lambda: self.problems or look(), seconds=PATIENCE)
        self.check()

    def check(self) -> None:
        for problem in self.problems:
            raise problem

    def waiting(self, why: str) -> None:
        pass

    def round(self, done: MicroBatchResult) -> None:
        self.rounds.append(done)


@contextmanager
def serve_journal(segments: Path) -> Iterator[LiveJournal]:
    """The folders of a journal as a cluster that stands still."""
    with rota.Broker(segments, config=READ_ONLY_BROKER, adopt=True) as broker:
        broker.clock.freeze()
        yield find_journal(LiveCluster(settings={"bootstrap.servers": broker.bootstrap_servers}))


def split_offsets(live: LiveJournal, shares: list[float]) -> list[Offsets]:
    """Where each partition is after each share of its records."""
    sizes = {
        partition: end - live.log_starts[partition] for partition, end in live.log_ends.items()
    }
    return [
        {p: live.log_starts[p] + round(size * share) for p, size in sizes.items()}
        for share in (0.0, *shares)
    ]


def journal_batch(
    spark: SparkSession, live: LiveJournal, begin: Offsets, end: Offsets
) -> DataFrame:
    """The records from here to there, as a batch of a stream has them."""
    register(spark)
    options = live.source_options()
    for name, places in (("startingOffsets", begin), ("endingOffsets", end)):
        listed = {str(partition): offset for partition, offset in places.items()}
        options[name] = json.dumps({JOURNAL_TOPIC: listed})
    records: DataFrame = spark.read.format("rota").options(**options).load()
    return records


@contextmanager
def group_member(broker: rota.Broker, group: str) -> Iterator[None]:
    """A member of a group until the block ends; it has committed once when the block begins."""
    done, ready = threading.Event(), threading.Event()
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group,
        "enable.auto.commit": False,
    }

    def work() -> None:
        with rota.Consumer(settings) as consumer:
            consumer.subscribe([TOPIC])
            while not done.is_set():
                consumer.poll(0.1)
                if consumer.assignment and not ready.is_set():
                    try:
                        consumer.commit(dict.fromkeys(consumer.assignment, 0))
                    except rota.errors.RotaError:
                        continue
                    ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def start_following(
    spark: SparkSession, cluster: LiveCluster, out: Path, options: RunOptions | None = None
) -> Iterator[RecordedProgress]:
    """Follow a cluster until the block ends."""
    progress, stop = RecordedProgress(), threading.Event()

    def work() -> None:
        try:
            asked = options or RunOptions()
            follow_cluster(
                EvidenceSources(cluster=cluster), str(out), asked, progress, spark, stop=stop
            )
        except BaseException as error:  # noqa: BLE001 (it is raised where it is looked for)
            progress.problems.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield progress
    finally:
        stop.set()
        thread.join()
    progress.check()


def count_rebalances(out: Path, group: str) -> int:
    """How many rebalances of a group the tables have."""
    if not (out / REBALANCES.name).exists():
        return 0
    return sum(row["group"] == group for row in read_rows(out, REBALANCES))
