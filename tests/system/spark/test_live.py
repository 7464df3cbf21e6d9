"""The journal over the wire gives the tables of the folders that it is served from."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import rota
from rota.cli.report_summary import print_summary, story_json
from rota.engine.formats import record_batch_columns
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.engine.simulator.day import GROUP_PLANS
from rota.errors import Unreachable
from rota.pipeline import ingest
from rota.pipeline.cluster import LiveCluster, find_journal
from rota.pipeline.demo import DemoDay, serve_day, write_day
from rota.pipeline.stages import EvidenceSources, PipelineStage, RunOptions, run_pipeline
from rota.pipeline.tables import EVIDENCE, JOURNAL, LAG, OWNERSHIP, REBALANCES
from rota.report.story import build_story, read_gold_tables
from tests.support.recorded_segment import journal_segments
from tests.system.spark.pipeline_run import (
    PipelineRun,
    SilentProgress,
    read_all_tables,
    run_evidence,
    write_segment,
)
from tests.system.spark.test_evidence import compact_segment


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded broker's journal; compaction has been at one of its partitions."""
    folder = tmp_path_factory.mktemp("logs")
    for number, (partition, data) in enumerate(sorted(journal_segments().items())):
        middle = int(record_batch_columns.decode_batches(data).offset[-1]) // 2
        write_segment(folder, partition, data if number else compact_segment(data, middle))
    return folder


@pytest.fixture(scope="module")
def folder_run(
    spark: SparkSession, logs: Path, tmp_path_factory: pytest.TempPathFactory
) -> PipelineRun:
    return run_evidence(
        spark, EvidenceSources(segments=(str(logs),)), tmp_path_factory.mktemp("folders")
    )


@pytest.fixture(scope="module")
def cluster(folder_run: PipelineRun, logs: Path) -> Iterator[LiveCluster]:
    """The same, served."""
    day = DemoDay(
        segments=logs, server_log=logs, ends=logs, start_ms=0, end_ms=0, groups=0, records=0
    )
    with serve_day(day) as running:
        yield LiveCluster(settings=running.settings, lookups=100)


def test_a_live_cluster_gives_the_same_tables(
    spark: SparkSession, logs: Path, folder_run: PipelineRun, cluster: LiveCluster, tmp_path: Path
) -> None:
    found = run_evidence(spark, EvidenceSources(cluster=cluster), tmp_path)
    assert read_all_tables(tmp_path) == read_all_tables(folder_run.out)
    assert any(row["control"] for row in found.rows(JOURNAL)), "transactions' markers, too"
    whole = dict(found.summary.complete)
    assert whole == folder_run.summary.complete
    assert any(edge.offset for edge in whole.values()), "of the compacted one not all is there"
    shown = story_json(build_story(read_gold_tables(str(tmp_path))), tmp_path / "report.html")[
        "cluster"
    ]
    assert shown["partitions"] == 50
    assert shown["max_records"] >= found.summary.records
    assert shown["lookups"]["made"] == 0, "none of the topics is there"
    (reason,) = shown["lookups"]["failed"]
    assert "no longer exist" in reason


def test_a_part_of_it_beside_folders_redacted(
    spark: SparkSession, logs: Path, folder_run: PipelineRun, cluster: LiveCluster, tmp_path: Path
) -> None:
    """What both have counts once, and the cluster is read once for all that is needed of it."""
    evidence = EvidenceSources(cluster=cluster, segments=(str(logs),))
    last = ingest.find_segments([str(logs)]).last_timestamp
    options = RunOptions(groups=("a-c*",), until=last, redact=True)
    found = run_evidence(spark, evidence, tmp_path, options)
    costs = (
        "group",
        "to_generation",
        "moved",
        "moves_needed",
        "revoked",
        "members_after",
        "downtime_ms",
    )
    theirs = [
        [row[name] for name in costs]
        for row in folder_run.rows(REBALANCES)
        if row["group"].startswith("a-c")
    ]
    assert [[row[name] for name in costs] for row in found.rows(REBALANCES)] == theirs
    assert theirs
    assert found.summary.complete == folder_run.summary.complete
    ours, others = (
        {row["member_id"] for row in each.rows(OWNERSHIP)} for each in (found, folder_run)
    )
    assert ours.isdisjoint(others)


def test_tasks_load_no_broker(spark: SparkSession, cluster: LiveCluster) -> None:
    def loaded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        names = [name for name in sys.modules if name.startswith("rota.")]
        yield pa.RecordBatch.from_pydict({"name": names})

    rows = (
        ingest.read_live_journal(spark, find_journal(cluster))
        .mapInArrow(loaded, "name string")
        .collect()
    )
    names = {row.name for row in rows}
    assert "rota.spark.task" in names
    assert not {name for name in names if name.startswith(("rota.broker", "rota.consumer"))}


DAY_GROUPS = {"fraud-scoring", "coupon-limits", "order-search", "pdf-invoices"}


@pytest.mark.nightly
def test_some_of_the_demo_over_the_wire(spark: SparkSession, tmp_path: Path) -> None:
    plans = [plan for plan in GROUP_PLANS if plan.group in DAY_GROUPS]
    day = write_day(tmp_path / "day", plans=plans)
    rest = EvidenceSources(server_logs=(str(day.server_log),), ends=(str(day.ends),))
    evidence = replace(rest, segments=(str(day.segments),))
    folders = run_evidence(spark, evidence, tmp_path / "folders")
    with serve_day(day) as cluster:
        wire = run_evidence(spark, replace(rest, cluster=cluster), tmp_path / "wire")
    assert read_all_tables(wire.out) == read_all_tables(folders.out)
    assert wire.rows(LAG)
    assert wire.summary.live is not None


def test_for_other_machines_the_demo_is_guarded(tmp_path: Path) -> None:
    day = write_day(tmp_path / "day", plans=GROUP_PLANS[:1])
    with serve_day(day, "spark://127.0.0.1:7077") as open_one:
        assert "sasl.jaas.config" not in open_one.settings, "nobody else hears it"
    with serve_day(day, f"spark://{local_address()}:7077") as guarded:
        assert find_journal(guarded).records == day.records
        stranger = LiveCluster(settings={"bootstrap.servers": guarded.servers}, timeout=1)
        with pytest.raises(Unreachable, match="it may require a login"):
            find_journal(stranger)


def local_address() -> str:
    """That of this machine in its network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # of nobody, and nothing is sent
        except OSError:
            pytest.skip("this machine is in no network")
        return str(probe.getsockname()[0])


def test_a_cluster_without_groups(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with rota.Broker() as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        empty = run_evidence(
            spark, EvidenceSources(cluster=LiveCluster(settings=settings, lookups=10)), tmp_path
        )
    assert [name for name, rows in read_all_tables(tmp_path).items() if rows] == [EVIDENCE.name]
    (row,) = empty.rows(EVIDENCE)
    assert (row["records"], row["cluster"]["partitions"]) == (0, 0)
    print_summary(build_story(read_gold_tables(str(empty.out))), tmp_path / "report.html")
    assert "it never had a group" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("stage", [PipelineStage.JOURNAL, PipelineStage.ENDS])
def test_a_broker_that_dies_is_named(
    spark: SparkSession, logs: Path, tmp_path: Path, stage: PipelineStage
) -> None:
    with rota.Broker(tmp_path / "data") as broker:
        address = broker.bootstrap_servers

        def stop(at: PipelineStage) -> None:
            if at is stage:
                broker.stop()

        broker.create_topic("t")
        commit_offset(address)
        cluster = LiveCluster(settings={"bootstrap.servers": address}, timeout=1, lookups=10)
        with pytest.raises(Unreachable, match=address):
            run_pipeline(
                EvidenceSources(cluster=cluster),
                str(tmp_path / "out"),
                RunOptions(),
                SilentProgress(stop),
                spark,
            )
    assert not (tmp_path / "out" / "gold").exists()


def commit_offset(address: str) -> None:
    with rota.Consumer({"bootstrap.servers": address, "group.id": "g"}) as consumer:
        place = TopicPartition("t", 0)
        consumer.assign([place])
        consumer.commit({place: OffsetAndMetadata(0)})
