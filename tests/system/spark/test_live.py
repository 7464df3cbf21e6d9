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
from rota.cli.summary import as_json, print_summary
from rota.errors import Unreachable
from rota.formats import batch
from rota.model.offset import OffsetAndMetadata
from rota.model.topic import TopicPartition
from rota.pipeline import ingest, segment
from rota.pipeline.cluster import Cluster, look
from rota.pipeline.demo import Day, served, write_day
from rota.pipeline.evidence import Evidence, Options
from rota.pipeline.run import run
from rota.pipeline.stage import Stage
from rota.report import gold
from rota.report.story import tell
from rota.sim.shop import PLANS
from rota.tables import EVIDENCE, JOURNAL, LAG, OWNERSHIP, REBALANCES
from tests.support.recorded_segment import journal_segments
from tests.system.spark.played import Quiet, Ran, everything, ran, write_segment
from tests.system.spark.test_evidence import compacted


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded broker's journal; compaction has been at one of its partitions."""
    folder = tmp_path_factory.mktemp("logs")
    for number, (partition, data) in enumerate(sorted(journal_segments().items())):
        middle = int(batch.decode(data).offset[-1]) // 2
        write_segment(folder, partition, data if number else compacted(data, middle))
    return folder


@pytest.fixture(scope="module")
def from_folders(spark: SparkSession, logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return ran(spark, Evidence(segments=(str(logs),)), tmp_path_factory.mktemp("folders"))


@pytest.fixture(scope="module")
def cluster(from_folders: Ran, logs: Path) -> Iterator[Cluster]:
    """The same, served."""
    day = Day(segments=logs, server_log=logs, ends=logs, start_ms=0, end_ms=0, groups=0, records=0)
    with served(day) as running:
        yield Cluster(settings=running.settings, lookups=100)


def test_a_live_cluster_gives_the_same_tables(
    spark: SparkSession, logs: Path, from_folders: Ran, cluster: Cluster, tmp_path: Path
) -> None:
    found = ran(spark, Evidence(cluster=cluster), tmp_path)
    assert everything(tmp_path) == everything(from_folders.out)
    assert any(row["control"] for row in found.rows(JOURNAL)), "transactions' markers, too"
    whole = dict(found.summary.complete)
    assert whole == from_folders.summary.complete
    assert any(edge.offset for edge in whole.values()), "of the compacted one not all is there"
    shown = as_json(tell(gold.read(str(tmp_path))), tmp_path / "report.html")["cluster"]
    assert shown["partitions"] == 50
    assert shown["most_records"] >= found.summary.records
    assert shown["lookups"]["made"] == 0, "none of the topics is there"
    (reason,) = shown["lookups"]["not_to_be_had"]
    assert "do not exist" in reason


def test_a_part_of_it_beside_folders_redacted(
    spark: SparkSession, logs: Path, from_folders: Ran, cluster: Cluster, tmp_path: Path
) -> None:
    """What both have counts once, and the cluster is read once for all that is needed of it."""
    evidence = Evidence(cluster=cluster, segments=(str(logs),))
    last = segment.find([str(logs)]).last
    options = Options(groups=("a-c*",), until=last, redact=True)
    found = ran(spark, evidence, tmp_path, options)
    costs = ("group", "to_generation", "moved", "moved_min", "stopped", "members_after")
    theirs = [
        [row[name] for name in costs]
        for row in from_folders.rows(REBALANCES)
        if row["group"].startswith("a-c")
    ]
    assert [[row[name] for name in costs] for row in found.rows(REBALANCES)] == theirs
    assert theirs
    assert found.summary.complete == from_folders.summary.complete
    ours, others = (
        {row["member_id"] for row in each.rows(OWNERSHIP)} for each in (found, from_folders)
    )
    assert ours.isdisjoint(others)


def test_tasks_load_no_broker(spark: SparkSession, cluster: Cluster) -> None:
    def loaded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        names = [name for name in sys.modules if name.startswith("rota.")]
        yield pa.RecordBatch.from_pydict({"name": names})

    rows = ingest.live_journal(spark, look(cluster)).mapInArrow(loaded, "name string").collect()
    names = {row.name for row in rows}
    assert "rota.spark.reading.read" in names
    assert not {name for name in names if name.startswith(("rota.broker", "rota.consumer"))}


@pytest.mark.nightly
def test_some_of_the_demo_over_the_wire(spark: SparkSession, tmp_path: Path) -> None:
    plans = [plan for plan in PLANS if plan.group in {"fraud-scoring", "coupon-limits"}]
    day = write_day(tmp_path / "day", plans=plans)
    rest = Evidence(server_logs=(str(day.server_log),), ends=(str(day.ends),))
    evidence = replace(rest, segments=(str(day.segments),))
    folders = ran(spark, evidence, tmp_path / "folders")
    with served(day) as cluster:
        wire = ran(spark, replace(rest, cluster=cluster), tmp_path / "wire")
    assert everything(wire.out) == everything(folders.out)
    assert wire.rows(LAG)
    assert wire.summary.live is not None


def test_for_other_machines_the_demo_is_guarded(tmp_path: Path) -> None:
    day = write_day(tmp_path / "day", plans=PLANS[:1])
    with served(day, "spark://127.0.0.1:7077") as open_one:
        assert "sasl.jaas.config" not in open_one.settings, "nobody else hears it"
    with served(day, f"spark://{address()}:7077") as guarded:
        assert look(guarded).records == day.records
        stranger = Cluster(settings={"bootstrap.servers": guarded.servers}, timeout=1)
        with pytest.raises(Unreachable, match="it may want a login"):
            look(stranger)


def address() -> str:
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
        empty = ran(spark, Evidence(cluster=Cluster(settings=settings, lookups=10)), tmp_path)
    assert [name for name, rows in everything(tmp_path).items() if rows] == [EVIDENCE.name]
    (row,) = empty.rows(EVIDENCE)
    assert (row["records"], row["cluster"]["partitions"]) == (0, 0)
    print_summary(tell(gold.read(str(empty.out))), tmp_path / "report.html")
    assert "no group has ever been here" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("stage", [Stage.JOURNAL, Stage.ENDS])
def test_a_broker_that_dies_is_named(
    spark: SparkSession, logs: Path, tmp_path: Path, stage: Stage
) -> None:
    with rota.Broker(tmp_path / "data") as broker:
        address = broker.bootstrap_servers

        def stop(at: Stage) -> None:
            if at is stage:
                broker.stop()

        broker.create_topic("t")
        commit(address)
        cluster = Cluster(settings={"bootstrap.servers": address}, timeout=1, lookups=10)
        with pytest.raises(Unreachable, match=address):
            run(Evidence(cluster=cluster), str(tmp_path / "out"), Options(), Quiet(stop), spark)
    assert not (tmp_path / "out" / "gold").exists()


def commit(address: str) -> None:
    with rota.BlockingConsumer({"bootstrap.servers": address, "group.id": "g"}) as consumer:
        place = TopicPartition("t", 0)
        consumer.assign([place])
        consumer.commit_sync({place: OffsetAndMetadata(0)})
