"""One Spark with Spark's own Kafka source and Rota's: orders in, answers out, a line of JSON each.

An order is ``{"id": 1, "op": "read", "source": "rota", "options": {...}}``, its answer
``{"id": 1, "ok": ...}`` or ``{"id": 1, "error": "what Spark said"}``. It runs in an environment
that has what ``rota[spark]`` needs and no more.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from base64 import b64encode
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.streaming.query import StreamingQuery

import rota.spark
from rota.pipeline.session import open_session

#: How long a query may take, in seconds. What takes longer has gone wrong.
PATIENCE = 60


def encode_rows(table: pa.Table) -> str:
    """A table as text: an Arrow stream in base 64."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return b64encode(sink.getvalue()).decode()


def read_checkpoint(checkpoint: str) -> dict[str, Any]:
    """The offsets of each batch that a checkpoint has."""
    logs = (Path(checkpoint) / "offsets").glob("[0-9]*")
    return {log.name: json.loads(log.read_text().splitlines()[2]) for log in logs}


class CollectedStream:
    """A stream, and what came out of it."""

    def __init__(self, stream: DataFrame, checkpoint: str, trigger: dict[str, Any]) -> None:
        self._checkpoint = checkpoint
        self._batches: dict[int, str] = {}
        writer = stream.writeStream.foreachBatch(self._keep).trigger(**trigger)
        self.query: StreamingQuery = writer.option("checkpointLocation", checkpoint).start()

    def _keep(self, batch: DataFrame, number: int) -> None:
        self._batches[number] = encode_rows(batch.toArrow())

    def result(self) -> dict[str, Any]:
        """The rows of each batch, and where it began and ended by checkpoint and progress."""
        progress = [
            {"batch": each["batchId"], **each["sources"][0]}
            for each in map(json.loads, (shown.json for shown in self.query.recentProgress))
        ]
        return {
            "rows": list(self._batches.values()),
            "offsets": read_checkpoint(self._checkpoint),
            "progress": [each for each in progress if each["numInputRows"]],
        }

    def wait(self) -> None:
        """Until it has ended by itself."""
        if not self.query.awaitTermination(PATIENCE):
            self.query.stop()
            raise TimeoutError(f"not done after {PATIENCE} s")


class WorkerRequests:
    """What can be asked."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._running: dict[str, CollectedStream] = {}

    def hello(self) -> str:
        """The version of Spark."""
        return self._spark.version

    def read(self, source: str, options: dict[str, str]) -> dict[str, Any]:
        """Everything that a batch query gives."""
        frame = self._spark.read.format(source).options(**options).load()
        return {"schema": frame.schema.jsonValue(), "rows": [encode_rows(frame.toArrow())]}

    def tasks(self, source: str, options: dict[str, str]) -> list[int]:
        """How many rows each task of a batch query reads, of those that read any."""
        frame = self._spark.read.format(source).options(**options).load()
        counts = frame.groupBy(spark_partition_id()).count().collect()
        return sorted(row["count"] for row in counts)

    def stream(self, source: str, options: dict[str, str], checkpoint: str) -> dict[str, Any]:
        """Runs a stream until it has read all records that exist now."""
        followed = self._follow(source, options, checkpoint, {"availableNow": True})
        followed.wait()
        return followed.result()

    def once(self, source: str, options: dict[str, str], checkpoint: str) -> dict[str, Any]:
        """The same in one batch, whatever the limits."""
        followed = self._follow(source, options, checkpoint, {"once": True})
        followed.wait()
        return followed.result()

    def start(self, source: str, options: dict[str, str], checkpoint: str) -> dict[str, Any]:
        """A stream that goes on."""
        trigger = {"processingTime": "0 seconds"}
        self._running[checkpoint] = self._follow(source, options, checkpoint, trigger)
        return self._running[checkpoint].result()

    def drain(self, checkpoint: str, **_: object) -> dict[str, Any]:
        """What a running stream has given when it has read all that is there."""
        followed = self._running[checkpoint]
        followed.query.processAllAvailable()
        return followed.result()

    def stop(self, checkpoint: str, **_: object) -> dict[str, Any]:
        """End a running stream."""
        followed = self._running.pop(checkpoint)
        followed.query.stop()
        return followed.result()

    def _follow(
        self, source: str, options: dict[str, str], checkpoint: str, trigger: dict[str, Any]
    ) -> CollectedStream:
        stream = self._spark.readStream.format(source).options(**options).load()
        return CollectedStream(stream, checkpoint, trigger)


def serve(jars: str) -> None:
    """Until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what Spark prints must not come between the answers
    lock = threading.Lock()

    def obey(driver: WorkerRequests, order: dict[str, Any]) -> None:
        number, op = order.pop("id"), order.pop("op")
        try:
            answer = {"id": number, "ok": getattr(driver, op)(**order)}
        except Exception as error:  # noqa: BLE001 - the test decides what it means
            answer = {"id": number, "error": f"{type(error).__name__}: {error}"}
        with lock:
            answers.write(json.dumps(answer) + "\n")

    # what collect() waits for a Python; the ten seconds to connect are fixed (see source_pair.py)
    patience = f"--conf spark.python.authenticate.socketTimeout={PATIENCE}s"
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{patience} --jars {jars} pyspark-shell"
    with open_session("local[2]") as spark:
        rota.spark.register(spark)
        driver = WorkerRequests(spark)
        for line in sys.stdin:
            # each in a thread of its own: the two sources are asked at the same time
            threading.Thread(target=obey, args=(driver, json.loads(line)), daemon=True).start()


if __name__ == "__main__":
    serve(sys.argv[1])
