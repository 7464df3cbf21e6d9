"""A streaming query whose driver is killed in each phase: afterwards every row is there, once."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rota

pytest.importorskip("pyspark")

SCRIPT = textwrap.dedent(
    """
    import os, signal, sys, threading, time
    from pathlib import Path

    import rota.spark
    from rota.pipeline.session import session

    servers, sink, folder, when = sys.argv[1:]
    group = os.getpgid(0)

    def kill():
        os.killpg(group, signal.SIGKILL)

    def watch():
        while not Path(folder, when).exists():
            time.sleep(0.0005)
        kill()

    def in_the_middle(batches):
        for each in batches:
            yield each
            kill()

    def write(rows, number):
        if when == f"before {number}":
            kill()
        rows.write.mode("overwrite").parquet(f"{folder}/out/batch={number}")
        if when == f"after {number}":
            kill()

    with session("local[2]") as spark:
        rota.spark.register(spark)
        rows = (
            spark.readStream.format("rota")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", "t")
            .option("startingOffsets", "latest")
            .option("maxOffsetsPerTrigger", 60)
            .option("kafka.max.partition.fetch.bytes", 300)
            .load()
            .selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
        )
        if when == "read":
            rows = rows.mapInArrow(in_the_middle, rows.schema)
        writing = rows.writeStream.option("checkpointLocation", f"{folder}/checkpoint")
        writing = writing.trigger(availableNow=True)
        if "/" in when:
            threading.Thread(target=watch, daemon=True).start()
        if sink == "parquet":
            query = writing.format("parquet").start(f"{folder}/out")
        else:
            query = writing.foreachBatch(write).start()
        query.awaitTermination()
    """
)
PATIENCE = 300
FILES = ("checkpoint/offsets/0", "checkpoint/offsets/1", "read", "out/_spark_metadata/2")
CALLS = ("before 1", "read", "after 2", "before 3")


def ran(servers: str, sink: str, folder: Path, when: str) -> None:
    """The query until it has read all, or is killed."""
    command = [sys.executable, "-c", SCRIPT, servers, sink, str(folder), when]
    said = folder / "said.txt"
    with said.open("w") as file:  # not a pipe: workers that outlive the driver would hold it open
        done = subprocess.run(
            command, stdout=file, stderr=file, start_new_session=True, timeout=PATIENCE, check=False
        )
    assert done.returncode == (-9 if when else 0), said.read_text()[-2000:]


@pytest.mark.parametrize(
    ("sink", "kills"),
    [("parquet", FILES), pytest.param("each batch", CALLS, marks=pytest.mark.nightly)],
)
def test_every_row_is_there_once(
    spark: SparkSession, tmp_path: Path, sink: str, kills: tuple[str, ...]
) -> None:
    with rota.Broker() as broker:
        broker.create_topic("t", 2)
        for partition in range(2):
            broker.produce("t", "before", "the", "query", partition=partition)
        if sink != "parquet":  # else it is killed while it notes where it begins
            ran(broker.bootstrap_servers, sink, tmp_path, "")
        for number, when in enumerate((*kills, "")):
            ran(broker.bootstrap_servers, sink, tmp_path, when)
            if not number:
                for row in range(240):
                    broker.produce("t", f"{row}", partition=row % 2)
            if sink != "parquet" and when == kills[0]:
                continue
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("partition", "offset").collect()
    places = [(row.partition, row.offset, row.value) for row in found]
    assert places == [(row % 2, 3 + row // 2, f"{row}") for row in sorted(range(240), key=_place)]


def _place(row: int) -> tuple[int, int]:
    return row % 2, row // 2
