"""A streaming query whose driver is killed in each phase: afterwards every row is there, once."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rota
from tests.support.examples import NIGHTLY
from tests.support.process import RunningCommand
from tests.system.spark.source.held_fetches import PATIENCE, HeldFetches
from tests.system.spark.source.killed_query import finish


def run_until_killed(
    servers: str, start: str, folder: Path, when: str = "", held: HeldFetches | None = None
) -> None:
    """The query in a process until it kills itself, or is killed because it reads."""
    said = folder / "said.txt"  # not a pipe: workers that outlive the driver would hold it open
    command = (sys.executable, "-m", "tests.system.spark.source.killed_query")
    words = (servers, start, folder, when)
    with RunningCommand(*command, *words, log=said, own_group=True) as query:
        if held is None:
            assert query.wait(PATIENCE).code == -signal.SIGKILL, said.read_text()[-2000:]
        else:
            held.wait()
            assert query.is_running, said.read_text()[-2000:]


def fill(broker: rota.Broker) -> None:
    for row in range(240):
        broker.produce("t", f"{row}", partition=row % 2)


def read_output(spark: SparkSession, folder: Path) -> list[tuple[int, int, str]]:
    rows = spark.read.parquet(str(folder / "out")).collect()
    return sorted((row.partition, row.offset, row.value) for row in rows)


def expected_rows(before: int) -> list[tuple[int, int, str]]:
    return sorted((row % 2, before + row // 2, f"{row}") for row in range(240))


def test_files_have_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """The driver is killed after it has stored where it begins and before it stores that a batch
    is written; under ``make nightly`` also while it reads.
    """
    with rota.Broker() as broker:
        servers = broker.bootstrap_servers
        broker.create_topic("t", 2)
        for partition in range(2):
            broker.produce("t", "before", "the", "query", partition=partition)
        run_until_killed(servers, "latest", tmp_path, "checkpoint/offsets/0")
        fill(broker)
        if NIGHTLY:
            run_until_killed(servers, "latest", tmp_path, held=HeldFetches(broker, 5))
            broker.clear_faults()
        run_until_killed(servers, "latest", tmp_path, "out/_spark_metadata/2")
        finish(spark, servers, "latest", tmp_path)
    assert read_output(spark, tmp_path) == expected_rows(3)


@pytest.mark.nightly
def test_batches_that_are_written_again_have_the_same_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    with rota.Broker() as broker:
        servers = broker.bootstrap_servers
        broker.create_topic("t", 2)
        fill(broker)
        run_until_killed(servers, "earliest", tmp_path, "before 0")
        run_until_killed(servers, "earliest", tmp_path, held=HeldFetches(broker, 30))
        broker.clear_faults()
        for when in ("after 1", "before 3"):
            run_until_killed(servers, "earliest", tmp_path, when)
        finish(spark, servers, "earliest", tmp_path)
    assert read_output(spark, tmp_path) == expected_rows(0)
