"""One Spark Connect session: reads requests and writes answers, a line of JSON each.

A process of its own, because a process has one kind of session. pyspark starts a Connect server on
this machine where it is asked for ``local[...]``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import rota.spark
from rota.pipeline import session
from rota.pipeline.cluster import LiveCluster
from rota.pipeline.session import SESSION_SETTINGS
from rota.pipeline.stages import EvidenceSources, RunOptions, run_pipeline
from tests.system.spark.pipeline_run import SilentProgress

TOPIC = {"subscribe": "orders"}
EARLIEST = {"startingOffsets": "earliest"}


class ConnectWorker:
    """Handles the requests of a test in a Spark Connect session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        rota.spark.register(spark)

    def run(self, segments: str, servers: str, log: str, out: str) -> None:
        """The pipeline, over folders and a cluster."""
        cluster = LiveCluster(settings={"bootstrap.servers": servers})
        evidence = EvidenceSources(segments=(segments,), cluster=cluster, server_logs=(log,))
        run_pipeline(evidence, out, RunOptions(), SilentProgress(), self._spark)

    def read(self, servers: str) -> list[str]:
        """The values of a topic."""
        given = {"kafka.bootstrap.servers": servers, **TOPIC}
        rows = self._spark.read.format("rota").options(**given).load()
        return sorted(bytes(row.value).decode() for row in rows.collect())

    def stream(self, servers: str, checkpoint: str) -> list[int]:
        """How many rows a stream of the topic has, and the sum of their offsets."""
        writer = self._stream(servers).writeStream.format("memory").queryName("seen")
        writer = writer.trigger(availableNow=True).option("checkpointLocation", checkpoint)
        writer.start().awaitTermination()
        (row,) = self._spark.sql("select count(*) as n, sum(offset) as total from seen").collect()
        return [row.n, row.total]

    def commit(self, servers: str, checkpoint: str) -> bool:
        """A group that hears of a query, and one that reads its checkpoint and is never closed."""
        kafka = {"kafka.bootstrap.servers": servers, **TOPIC}
        rows = self._stream(servers, maxOffsetsPerTrigger="6")
        writer = rows.writeStream.queryName("bills").option("checkpointLocation", checkpoint)
        with rota.spark.commit_to_group(self._spark, group_id="told", kafka=kafka, query="bills"):
            writer.trigger(availableNow=True).format("noop").start().awaitTermination()
        forgotten = rota.spark.commit_to_group(
            self._spark, group_id="caught", kafka=kafka, checkpoint=checkpoint
        )
        return forgotten.flush(120)

    def _stream(self, servers: str, **more: str) -> DataFrame:
        given = {"kafka.bootstrap.servers": servers, **TOPIC, **EARLIEST, **more}
        return self._spark.readStream.format("rota").options(**given).load()


def serve(work: Path) -> None:
    """Until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what Spark prints must not come between the answers
    os.environ["JAVA_HOME"] = str(
        session.make_java_home(work, session.find_java(), work / "complaints")
    )
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.remote("local[2]")
    for name, value in SESSION_SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    assert type(spark).__module__ == "pyspark.sql.connect.session"
    driver = ConnectWorker(spark)
    for line in sys.stdin:
        order = json.loads(line)
        number, op = order.pop("id"), order.pop("op")
        try:
            answer = {"id": number, "ok": getattr(driver, op)(**order)}
        except Exception as error:  # noqa: BLE001 (the test fails with it)
            answer = {"id": number, "error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
