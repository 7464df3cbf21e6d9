"""A journal that a broker serves, fed to rounds in pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from rota.broker.embedded import Broker
from rota.pipeline.cluster import JOURNAL, Cluster, Live, look
from rota.pipeline.demo import STILL
from rota.pipeline.round import Round
from rota.spark import register
from tests.system.spark.played import Quiet

Offsets = Mapping[int, int]


class Told(Quiet):
    """Keeps what rounds tell."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: list[Round] = []

    def waiting(self, why: str) -> None:
        pass

    def round(self, done: Round) -> None:
        self.rounds.append(done)


@contextmanager
def served(segments: Path) -> Iterator[Live]:
    """The folders of a journal as a cluster that stands still."""
    with Broker(segments, config=STILL, adopt=True) as broker:
        broker.clock.freeze()
        yield look(Cluster(settings={"bootstrap.servers": broker.bootstrap_servers}))


def cuts(live: Live, shares: list[float]) -> list[Offsets]:
    """Where each partition is after each share of its records."""
    sizes = {partition: end - live.begins[partition] for partition, end in live.ends.items()}
    return [
        {p: live.begins[p] + round(size * share) for p, size in sizes.items()}
        for share in (0.0, *shares)
    ]


def piece(spark: SparkSession, live: Live, begin: Offsets, end: Offsets) -> DataFrame:
    """The records from here to there, as a batch of a stream has them."""
    register(spark)
    told = live.options()
    for name, places in (("startingOffsets", begin), ("endingOffsets", end)):
        listed = {str(partition): offset for partition, offset in places.items()}
        told[name] = json.dumps({JOURNAL: listed})
    rows: DataFrame = spark.read.format("rota").options(**told).load()
    return rows
