"""Samples of ends in a run that follows: where the partitions that groups commit end now.

A partition is looked at now and then, not in every round, and no more of them in a round than the
user has allowed look-ups for; those that were looked at longest ago come first.
"""

from __future__ import annotations

import time

import pyarrow as pa

from rota.errors import RotaError
from rota.model.topic import TopicPartition
from rota.pipeline import lookup, schema
from rota.pipeline.cluster import Cluster
from rota.pipeline.lagging import Lagging
from rota.pipeline.lookup import ALWAYS, Plan
from rota.pipeline.touched import Known
from rota.tables import ENDS

EVERY = 30.0
"""Seconds between two looks at a partition."""


class Sampling:
    """Asks a cluster for ends, not too often."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._asked: dict[tuple[str, int], float] = {}
        """When, by partition."""

    def samples(self, known: Known, lagging: Lagging) -> pa.Table:
        """New samples of what groups have committed, each later than the last of its partition.

        A cluster that does not answer now is asked again later: lag waits for that long.
        """
        now = time.monotonic()
        every = {pair for group in known.groups.values() for pair in group.partitions}
        due = [pair for pair in every if now - self._asked.get(pair, -EVERY) >= EVERY]
        due.sort(key=lambda pair: (self._asked.get(pair, -EVERY), pair))
        due = due[: self._cluster.lookups // ALWAYS]
        self._asked |= dict.fromkeys(due, now)
        plan = Plan(times={TopicPartition(*pair): () for pair in due})
        try:
            found = lookup.look_up(self._cluster, plan).samples
        except RotaError:
            found = []
        rows = [
            sample._asdict()
            for sample in found
            if sample.at > lagging.last((sample.topic, sample.partition))
        ]
        return pa.Table.from_batches([schema.batch(ENDS, rows)])
