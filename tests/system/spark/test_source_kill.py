"""A streaming query whose driver is killed in each phase: afterwards every row is there, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rota
from tests.system.spark.held import PATIENCE, Held

SCRIPT = textwrap.dedent(
    """
    import os, signal, sys, threading, time
    from pathlib import Path

    import rota.spark
    from rota.pipeline.session import session

    servers, start, folder, when = sys.argv[1:]
    group = os.getpgid(0)

    def kill():
        os.killpg(group, signal.SIGKILL)

    def watch():
        while not Path(folder, when).exists():
            time.sleep(0.0005)
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
            .option("startingOffsets", start)
            .option("maxOffsetsPerTrigger", 60)
            .option("kafka.max.partition.fetch.bytes", 300)
            .load()
            .selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
        )
        writing = rows.writeStream.option("checkpointLocation", f"{folder}/checkpoint")
        writing = writing.trigger(availableNow=True)
        if "/" in when:
            threading.Thread(target=watch, daemon=True).start()
        if start == "latest":
            query = writing.format("parquet").start(f"{folder}/out")
        else:
            query = writing.foreachBatch(write).start()
        query.awaitTermination()
    """
)


def ran(servers: str, start: str, folder: Path, when: str = "", held: Held | None = None) -> None:
    """The query until it has read all, or kills itself, or is killed because it reads."""
    command = [sys.executable, "-c", SCRIPT, servers, start, str(folder), when]
    said = folder / "said.txt"
    with said.open("w") as file:  # not a pipe: workers that outlive the driver would hold it open
        query = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
    try:
        if held is not None:
            held.wait()
            os.killpg(query.pid, signal.SIGKILL)
        code = query.wait(PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(query.pid, signal.SIGKILL)
    assert code == (-9 if when or held else 0), said.read_text()[-2000:]


def fill(broker: rota.Broker) -> None:
    for row in range(240):
        broker.produce("t", f"{row}", partition=row % 2)


def found(spark: SparkSession, folder: Path) -> list[tuple[int, int, str]]:
    rows = spark.read.parquet(str(folder / "out")).collect()
    return sorted((row.partition, row.offset, row.value) for row in rows)


def expected(before: int) -> list[tuple[int, int, str]]:
    return sorted((row % 2, before + row // 2, f"{row}") for row in range(240))


def test_files_have_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """Killed when it has noted where it begins, while it reads, and before it notes that a batch
    is written."""
    with rota.Broker() as broker:
        servers = broker.bootstrap_servers
        broker.create_topic("t", 2)
        for partition in range(2):
            broker.produce("t", "before", "the", "query", partition=partition)
        ran(servers, "latest", tmp_path, "checkpoint/offsets/0")
        fill(broker)
        ran(servers, "latest", tmp_path, held=Held(broker, 5))
        broker.heal()
        ran(servers, "latest", tmp_path, "out/_spark_metadata/2")
        ran(servers, "latest", tmp_path)
    assert found(spark, tmp_path) == expected(3)


@pytest.mark.nightly
def test_batches_that_are_written_again_have_the_same_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    with rota.Broker() as broker:
        servers = broker.bootstrap_servers
        broker.create_topic("t", 2)
        fill(broker)
        ran(servers, "earliest", tmp_path, "before 0")
        ran(servers, "earliest", tmp_path, held=Held(broker, 30))
        broker.heal()
        for when in ("after 1", "before 3", ""):
            ran(servers, "earliest", tmp_path, when)
    assert found(spark, tmp_path) == expected(0)
