"""A streaming query that is killed; ``python -m`` runs it in a process of its own."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import rota.spark
from rota.pipeline.session import open_session


def finish(
    spark: SparkSession, servers: str, start: str, folder: str | Path, when: str = ""
) -> None:
    """Run the query until it has read all, or until it kills its process group.

    :param when: a file that it writes, or "before" or "after" and the number of a batch
    """
    rota.spark.register(spark)
    rows = (
        spark.readStream.format("rota")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "t")
        .option("startingOffsets", start)
        .option("maxOffsetsPerTrigger", 60)
        .option("kafka.max.partition.fetch.bytes", 300)
        .load()
        .selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
    )

    def write(batch: DataFrame, number: int) -> None:
        if when == f"before {number}":
            kill()
        batch.write.mode("overwrite").parquet(f"{folder}/out/batch={number}")
        if when == f"after {number}":
            kill()

    writing = rows.writeStream.option("checkpointLocation", f"{folder}/checkpoint")
    writing = writing.trigger(availableNow=True)
    if "/" in when:
        threading.Thread(target=watch, args=(Path(folder, when),), daemon=True).start()
    if start == "latest":
        query = writing.format("parquet").start(f"{folder}/out")
    else:
        query = writing.foreachBatch(write).start()
    query.awaitTermination()


def watch(file: Path) -> None:
    """Kill the process group as soon as a file is there."""
    while not file.exists():
        time.sleep(0.0005)
    kill()


def kill() -> None:
    """End this process, its Spark and its workers."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    with open_session("local[2]") as started:
        finish(started, *sys.argv[1:])
