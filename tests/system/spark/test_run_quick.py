"""What ``make test`` runs of Spark: ``rota run``, a run that follows, a stream that commits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rota
import rota.spark
from rota.engine.model.topic import TopicPartition
from rota.pipeline.cluster import LiveCluster
from rota.pipeline.stages import RunOptions
from rota.pipeline.tables import (
    COMMITS,
    EVIDENCE,
    GENERATIONS,
    LAG,
    OWNERSHIP,
    REBALANCES,
    TABLES,
    WHATIF,
)
from tests.support import journal_folder
from tests.support.command import run_rota
from tests.support.journal_folder import (
    START,
    encode_journal_batch,
    group_metadata_entry,
    offset_commit_entry,
    write_segment,
)
from tests.support.process import environment
from tests.support.spark_start import spark_variables
from tests.support.waiting import wait_until
from tests.system.spark.follow_run import (
    PATIENCE,
    TOPIC,
    count_rebalances,
    group_member,
    start_following,
)
from tests.system.spark.pipeline_run import read_all_tables, read_rows

pytestmark = pytest.mark.quick

#: No partition of the journal where a broker keeps the group "live".
PARTITION = 3


@pytest.fixture
def broker() -> Iterator[rota.Broker]:
    with rota.Broker(config={"group.initial.rebalance.delay.ms": "0"}) as running:
        running.create_topic(TOPIC, 2)
        for partition in range(2):
            running.produce(TOPIC, "1", "2", "3", partition=partition)
        yield running


def test_the_command_makes_tables_of_a_folder_and_a_cluster(
    broker: rota.Broker, tmp_path: Path
) -> None:
    """The folder has a journal; the cluster is polled."""
    a, b = (journal_folder.group_member("a", 0), journal_folder.group_member("b", 1))
    first = group_metadata_entry("stored", 1, journal_folder.group_member("a", 0, 1))
    second = group_metadata_entry("stored", 2, a, b)
    times = [START, START + 1_000, START + 2_000]
    journal = encode_journal_batch(first, second, offset_commit_entry("stored", 42), at=times)
    write_segment(tmp_path / "logs", PARTITION, journal)
    out = tmp_path / "out"
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "live", "client.id": "c"}
    with rota.Consumer(settings) as consumer:
        consumer.subscribe([TOPIC])
        wait_until("the member has both partitions", lambda: has_joined(consumer))
        consumer.commit(dict.fromkeys(consumer.assignment, 1))
        words = ["--bootstrap-servers", broker.bootstrap_servers, "--out", str(out), "--json"]
        polled = ("--poll", "200ms", "--for", "1s")
        words += ["--strategy", "examples.sticky_2x:Sticky2x"]
        summary = rota_run("--segments", str(tmp_path / "logs"), *polled, *words)
    assert summary["page"] == str(out / "report.html")
    assert (out / "report.html").exists()
    (evidence,) = read_rows(out, EVIDENCE)
    assert evidence["polled"]["groups"] == ["live"]
    assert [
        (row["group"], row["from_generation"], row["to_generation"], row["members_after"])
        for row in read_rows(out, REBALANCES)
    ] == [("stored", 0, 1, 1), ("stored", 1, 2, 2)]
    replayed = [row for row in read_rows(out, WHATIF) if row["policy"] == "sticky-2x"]
    assert [(row["to_generation"], row["moved"], row["revoked"]) for row in replayed] == [
        (1, 0, 0),
        (2, 1, 2),
    ]
    assert {(row["group"], row["partition"], row["offset"]) for row in read_rows(out, COMMITS)} == {
        ("live", 0, 1),
        ("live", 1, 1),
        ("stored", 0, 42),
    }
    assert {
        (row["group"], row["partition"], row["client_id"], row["to_generation"])
        for row in read_rows(out, OWNERSHIP)
    } == {
        ("live", 0, "c", 0),
        ("live", 1, "c", 0),
        ("stored", 0, "a", 2),
        ("stored", 1, "a", 1),
        ("stored", 1, "b", 2),
    }
    lag = [(row["group"], row["partition"], row["lag"]) for row in read_rows(out, LAG)]
    assert lag == [("live", 0, 2), ("live", 1, 2)]


def has_joined(consumer: rota.Consumer) -> bool:
    consumer.poll(0.05)
    return len(consumer.assignment) == 2


def rota_run(*words: str) -> dict[str, object]:
    """What ``rota run --json`` prints, with Spark as it is installed."""
    env = environment(**spark_variables())
    done = run_rota("run", "--master", "local[1]", *words, env=env, seconds=PATIENCE).checked()
    summary: dict[str, object] = json.loads(done.out)
    return summary


def test_a_run_that_follows_names_no_member(
    spark: SparkSession, broker: rota.Broker, tmp_path: Path
) -> None:
    """The first round is a whole run; the second one reads what is new, in this process."""
    out = tmp_path / "out"
    settings = {"bootstrap.servers": broker.bootstrap_servers}
    cluster = LiveCluster(settings=settings, lookups=100)
    with (
        group_member(broker, "bills"),
        start_following(spark, cluster, out, RunOptions(redact=True)) as progress,
    ):
        progress.until("the member", lambda: count_rebalances(out, "bills") == 1)
        with group_member(broker, "bills"):
            progress.until("the second one", lambda: count_rebalances(out, "bills") == 2)
            progress.until("its round", lambda: len(progress.rounds) > 1)
            (after,) = (row for row in read_rows(out, REBALANCES) if row["to_generation"] == 2)
            assert (after["members_before"], after["members_after"]) == (1, 2)
            listed = broker.group("bills").members
    assert len(listed) == 2
    shown = repr(read_all_tables(out, TABLES))
    assert [each.id for each in listed if each.id in shown] == []
    (second,) = (row for row in read_rows(out, GENERATIONS) if row["generation"] == 2)
    assert len({member["member_id"] for member in second["members"]}) == 2


def test_a_stream_commits_what_it_has_read(
    spark: SparkSession, broker: rota.Broker, tmp_path: Path
) -> None:
    rota.spark.register(spark)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
    }
    with rota.spark.commit_to_group(spark, group_id="stream", kafka=options, query="stream"):
        stream = spark.readStream.format("rota").options(**options).load().writeStream
        stream = stream.queryName("stream").option("checkpointLocation", str(tmp_path))
        stream.format("noop").trigger(availableNow=True).start().awaitTermination()
    places = [TopicPartition(TOPIC, partition) for partition in range(2)]
    assert broker.committed("stream") == dict.fromkeys(places, 3)
