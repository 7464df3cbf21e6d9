"""One Spark session for all of these tests, and the recorded run's tables, made once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from rota.pipeline.session import open_session
from tests.support.clients.driver_process import Driver
from tests.support.examples import NIGHTLY
from tests.support.spark_start import FEW_ROWS, make_archive, spark_variables
from tests.system.spark.pipeline_run import (
    PipelineRun,
    code_generation,
    run_recorded,
    write_recorded_segments,
)

CONNECT_WORKER = "tests.system.spark.connect_worker"


@pytest.fixture(scope="package", autouse=True)
def small_queries(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set up the Sparks that tests start, in this process and in others, for a few rows.

    ``make nightly`` runs them with Spark's own defaults. ``make test`` starts too few Sparks to
    make an archive; it uses one that is there.
    """
    if NIGHTLY:
        yield
        return
    if any("check" in item.keywords for item in request.session.items):
        make_archive()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_variables(*FEW_ROWS).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="package")
def spark(small_queries: None) -> Iterator[SparkSession]:
    with open_session("local[2]") as started:
        # Rota's session sets four for each core
        started.conf.set("spark.sql.shuffle.partitions", "2")
        yield started


@pytest.fixture(scope="package")
def spark_connect(
    small_queries: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    """A process with one Spark Connect session, for all tests of Spark Connect."""
    for package in ("grpc", "grpc_status", "zstandard"):
        pytest.importorskip(package)
    words = [sys.executable, "-m", CONNECT_WORKER, str(tmp_path_factory.mktemp("java"))]
    path = os.pathsep.join(filter(None, sys.path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_TESTING", "1")  # pyspark's own way to a server on a free port
        started = Driver(words, path, patience=600)
    try:
        yield started
        # one of the tests leaves a committer open
        assert started.end() == 0, started.log_tail()
    finally:
        started.kill()


@pytest.fixture(scope="package")
def segments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded broker's folders of the journal."""
    return write_recorded_segments(tmp_path_factory.mktemp("kafka-logs"))


@pytest.fixture(scope="package")
def logged_run(
    spark: SparkSession, segments: Path, tmp_path_factory: pytest.TempPathFactory
) -> PipelineRun:
    """The recorded run with the broker's log and samples of ends."""
    with code_generation(spark):
        return run_recorded(spark, segments, tmp_path_factory.mktemp("logged"), log=True, ends=True)


@pytest.fixture(scope="package")
def unlogged_run(
    spark: SparkSession, segments: Path, tmp_path_factory: pytest.TempPathFactory
) -> PipelineRun:
    """The same out of the journal alone."""
    return run_recorded(spark, segments, tmp_path_factory.mktemp("unlogged"))
