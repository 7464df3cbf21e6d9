"""Following a cluster that lives: members come and go, the follower is ended and killed."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rota
from rota.errors import InputError
from rota.pipeline.cluster import LiveCluster, find_journal
from rota.pipeline.follow import follow_cluster
from rota.pipeline.stages import EvidenceSources, RunOptions
from rota.pipeline.tables import ENDS, JOURNAL, LAG
from tests.support import waiting
from tests.support.command import ROTA
from tests.support.process import RunningCommand
from tests.system.spark.follow_run import (
    PATIENCE,
    TOPIC,
    RecordedProgress,
    count_rebalances,
    group_member,
    start_following,
)
from tests.system.spark.pipeline_run import read_all_tables, read_rows, run_evidence

until = partial(waiting.wait_until, seconds=PATIENCE)


@pytest.fixture
def broker() -> Iterator[rota.Broker]:
    with rota.Broker(config={"group.initial.rebalance.delay.ms": "0"}) as running:
        running.create_topic(TOPIC, 4)
        yield running


def has_caught_up(out: Path, cluster: LiveCluster) -> bool:
    return (out / JOURNAL.name).exists() and len(read_rows(out, JOURNAL)) == find_journal(
        cluster
    ).records


def write_samples(out: Path, file: Path) -> Path:
    """bronze/ends as a file of samples."""
    lines = (
        {"t": round(row.pop("at").timestamp() * 1000)} | row
        for row in map(dict, read_rows(out, ENDS))
    )
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def test_members_come_and_go(spark: SparkSession, broker: rota.Broker, tmp_path: Path) -> None:
    out = tmp_path / "out"
    cluster = LiveCluster(settings={"bootstrap.servers": broker.bootstrap_servers}, lookups=100)
    with group_member(broker, "first"), start_following(spark, cluster, out) as progress:
        progress.until("the first member is told of", lambda: count_rebalances(out, "first") == 1)
        with group_member(broker, "first"), group_member(broker, "second"):
            progress.until(
                "the others are told of",
                lambda: (
                    count_rebalances(out, "first") == 2 and count_rebalances(out, "second") == 1
                ),
            )
        progress.until("the last to leave is told of", lambda: count_rebalances(out, "first") == 3)
        rounds = len(progress.rounds)
        assert rounds > 1
    with start_following(spark, cluster, out) as progress:  # the last member has left meanwhile
        progress.until("all is told of", lambda: has_caught_up(out, cluster))
        assert progress.rounds[0].records < 10, "only what is new"
    given = (str(write_samples(out, tmp_path / "ends.jsonl")),)
    settings = LiveCluster(settings=cluster.settings)
    once = run_evidence(spark, EvidenceSources(cluster=settings, ends=given), tmp_path / "once")
    found, wanted = read_all_tables(out), read_all_tables(once.out)
    for name, table in wanted.items():
        assert found[name] == table, name
    assert wanted[LAG.name]
    with pytest.raises(InputError, match=r"--group was not given; now it is x"):
        follow_cluster(
            EvidenceSources(cluster=cluster),
            str(out),
            RunOptions(groups=("x",)),
            RecordedProgress(),
            spark,
        )


def start_follow(broker: rota.Broker, out: Path) -> RunningCommand:
    words = ["run", "--follow", "--bootstrap-servers", broker.bootstrap_servers, "--json"]
    where = ["--out", out, "--master", "local[2]"]
    return RunningCommand(*ROTA, *words, *where, own_group=True)


@pytest.mark.nightly
def test_the_command_is_killed_and_ended(
    spark: SparkSession, broker: rota.Broker, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    cluster = LiveCluster(settings={"bootstrap.servers": broker.bootstrap_servers})
    with group_member(broker, "first"):
        for wait in (0.0, 1.0, 3.0):
            with start_follow(broker, out) as running:
                until("the first member is told of", lambda: count_rebalances(out, "first") > 0)
                with group_member(broker, "first"):
                    time.sleep(wait)  # anywhere in a round
                    running.kill()
        with start_follow(broker, out) as running:
            summary = json.loads(running.read_line(PATIENCE))
            counts = {"records", "groups", "rebalances", "happened", "unread"}
            assert set(summary) == {"at", "seconds"} | counts
            until("all is told of", lambda: has_caught_up(out, cluster))
            running.send_signal(signal.SIGINT)
            ended = running.wait(PATIENCE)
            assert ended.code == 130, ended.err
            assert "Traceback" not in ended.err
            page = out / "report.html"
            assert json.loads(ended.lines[-1])["page"] == str(page)
            assert page.exists()
        given = (str(write_samples(out, tmp_path / "ends.jsonl")),)
        once = run_evidence(spark, EvidenceSources(cluster=cluster, ends=given), tmp_path / "once")
        assert read_all_tables(out) == read_all_tables(once.out)
