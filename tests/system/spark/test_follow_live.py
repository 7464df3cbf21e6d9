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
from tests.system.spark.followed import (
    PATIENCE,
    TOPIC,
    RecordedProgress,
    following,
    member,
    rebalances,
)
from tests.system.spark.played import everything, ran, rows

until = partial(waiting.until, seconds=PATIENCE)


@pytest.fixture
def broker() -> Iterator[rota.Broker]:
    with rota.Broker(config={"group.initial.rebalance.delay.ms": "0"}) as running:
        running.create_topic(TOPIC, 4)
        yield running


def caught_up(out: Path, cluster: LiveCluster) -> bool:
    return (out / JOURNAL.name).exists() and len(rows(out, JOURNAL)) == find_journal(
        cluster
    ).records


def samples(out: Path, file: Path) -> Path:
    """bronze/ends as a file of samples."""
    lines = (
        {"t": round(row.pop("at").timestamp() * 1000)} | row for row in map(dict, rows(out, ENDS))
    )
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def test_members_come_and_go(spark: SparkSession, broker: rota.Broker, tmp_path: Path) -> None:
    out = tmp_path / "out"
    cluster = LiveCluster(settings={"bootstrap.servers": broker.bootstrap_servers}, lookups=100)
    with member(broker, "first"), following(spark, cluster, out) as told:
        told.until("the first member is told of", lambda: rebalances(out, "first") == 1)
        with member(broker, "first"), member(broker, "second"):
            told.until(
                "the others are told of",
                lambda: rebalances(out, "first") == 2 and rebalances(out, "second") == 1,
            )
        told.until("the last to leave is told of", lambda: rebalances(out, "first") == 3)
        rounds = len(told.rounds)
        assert rounds > 1
    with following(spark, cluster, out) as told:  # the last member has left meanwhile
        told.until("all is told of", lambda: caught_up(out, cluster))
        assert told.rounds[0].records < 10, "only what is new"
    given = (str(samples(out, tmp_path / "ends.jsonl")),)
    settings = LiveCluster(settings=cluster.settings)
    once = ran(spark, EvidenceSources(cluster=settings, ends=given), tmp_path / "once")
    found, wanted = everything(out), everything(once.out)
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


def command(broker: rota.Broker, out: Path) -> RunningCommand:
    words = ["run", "--follow", "--bootstrap-servers", broker.bootstrap_servers, "--json"]
    where = ["--out", out, "--master", "local[2]"]
    return RunningCommand(*ROTA, *words, *where, own_group=True)


@pytest.mark.nightly
def test_the_command_is_killed_and_ended(
    spark: SparkSession, broker: rota.Broker, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    cluster = LiveCluster(settings={"bootstrap.servers": broker.bootstrap_servers})
    with member(broker, "first"):
        for wait in (0.0, 1.0, 3.0):
            with command(broker, out) as running:
                until("the first member is told of", lambda: rebalances(out, "first") > 0)
                with member(broker, "first"):
                    time.sleep(wait)  # anywhere in a round
                    running.kill()
        with command(broker, out) as running:
            told = json.loads(running.read_line(PATIENCE))
            counts = {"records", "groups", "rebalances", "happened", "unread"}
            assert set(told) == {"at", "seconds"} | counts
            until("all is told of", lambda: caught_up(out, cluster))
            running.send_signal(signal.SIGINT)
            ended = running.wait(PATIENCE)
            assert ended.code == 130, ended.err
            assert "Traceback" not in ended.err
            page = out / "report.html"
            assert json.loads(ended.lines[-1])["page"] == str(page)
            assert page.exists()
        given = (str(samples(out, tmp_path / "ends.jsonl")),)
        once = ran(spark, EvidenceSources(cluster=cluster, ends=given), tmp_path / "once")
        assert everything(out) == everything(once.out)
