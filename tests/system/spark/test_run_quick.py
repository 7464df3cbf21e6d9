"""``rota run`` once in ``make test``: from a folder and a live cluster to tables, in one Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rota
from rota.tables import COMMITS, EVIDENCE, LAG, OWNERSHIP, REBALANCES
from tests.support.journal_folder import START, batch_of, commit, member, saved, write
from tests.support.waiting import until
from tests.system.spark.played import rows

TOPIC = "orders"
#: No partition of the journal where a broker keeps the group "live".
PARTITION = 3


@pytest.mark.quick
def test_the_command_makes_tables_of_a_folder_and_a_cluster(tmp_path: Path) -> None:
    """The cluster's journal is read by ``format("rota")``, the folder's by the command itself."""
    first = saved("stored", 1, member("a", 0, 1))
    second = saved("stored", 2, member("a", 0), member("b", 1))
    times = [START, START + 1_000, START + 2_000]
    journal = batch_of(first, second, commit("stored", 42), at=times)
    write(tmp_path / "logs", PARTITION, journal)
    out = tmp_path / "out"
    with rota.Broker(config={"group.initial.rebalance.delay.ms": "0"}) as broker:
        broker.create_topic(TOPIC, 2)
        for partition in range(2):
            broker.produce(TOPIC, "1", "2", "3", partition=partition)
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "live"}
        with rota.BlockingConsumer(settings) as consumer:
            consumer.subscribe([TOPIC])
            until("the member has both partitions", lambda: joined(consumer))
            consumer.commit_sync(dict.fromkeys(consumer.assignment, 1))
            words = ["--bootstrap-servers", broker.bootstrap_servers, "--out", str(out), "--json"]
            told = rota_run("--segments", str(tmp_path / "logs"), *words)
    assert told["page"] == str(out / "report.html")
    assert (out / "report.html").exists()
    (evidence,) = rows(out, EVIDENCE)
    assert evidence["cluster"]["partitions"] == 50
    assert [
        (row["group"], row["from_generation"], row["to_generation"], row["members_after"])
        for row in rows(out, REBALANCES)
    ] == [("live", 0, 1, 1), ("stored", 0, 1, 1), ("stored", 1, 2, 2)]
    assert {(row["group"], row["partition"], row["offset"]) for row in rows(out, COMMITS)} == {
        ("live", 0, 1),
        ("live", 1, 1),
        ("stored", 0, 42),
    }
    owners = [row for row in rows(out, OWNERSHIP) if row["group"] == "stored"]
    assert {(row["partition"], row["client_id"], row["to_generation"]) for row in owners} == {
        (0, "a", 2),
        (1, "a", 1),
        (1, "b", 2),
    }
    lag = [(row["group"], row["partition"], row["lag"]) for row in rows(out, LAG)]
    assert lag == [("live", 0, 2), ("live", 1, 2)]


def joined(consumer: rota.BlockingConsumer) -> bool:
    consumer.poll(0.05)
    return len(consumer.assignment) == 2


def rota_run(*words: str) -> dict[str, object]:
    """What ``rota run --json`` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "rota", "run", "--master", "local[1]", *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, object] = json.loads(done.stdout)
    return told
