"""A real Kafka 4.3.1 with real consumers, read while it runs, and then out of its folders."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql import SparkSession

import rota
from rota.client.admin import Admin
from rota.client.cluster import ClusterClient
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import Unreachable
from rota.pipeline import cluster
from rota.pipeline.cluster import LiveCluster, LookupPlan, find_journal, run_with_client
from rota.pipeline.stages import EvidenceSources
from rota.pipeline.tables import (
    ADVICE,
    DOWNTIME,
    ENDS,
    HEALTH,
    LAG,
    OWNERSHIP,
    REBALANCES,
    STATUS,
    TABLES,
    WHATIF,
)
from tests.support.java import launcher
from tests.support.kafka import KafkaBroker
from tests.support.waiting import wait_until
from tests.system.spark.pipeline_run import PipelineRun, read_all_tables, run_evidence

SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
PARTITIONS = 4
#: Records in every partition.
EACH = 20
#: Records that come when all consumers are gone.
LATER = 7
PATIENCE = 60.0


class JavaConsumers:
    """Java consumers in a process of their own."""

    def __init__(self, port: int) -> None:
        pipe = subprocess.PIPE
        command = launcher.java_command("GroupFleet", heap="128m")
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        self._port = port
        #: Who, what, which partitions.
        self.told: list[tuple[str, str, list[str]]] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            _, name, what, *partitions = line.split()
            self.told.append((name, what, [p for each in partitions for p in each.split(",")]))

    def start(self, name: str, group: str, **settings: str) -> None:
        given = {
            "bootstrap.servers": f"127.0.0.1:{self._port}",
            "group.id": group,
            "topics": "orders",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": "100",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self._send_command("start", name, *(f"{key}={value}" for key, value in given.items()))

    def close(self, name: str) -> None:
        self._send_command("close", name)
        wait_until(f"{name} leaves", lambda: (name, "closed", []) in self.told)

    def _send_command(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")

    def wait_for_partitions(self, name: str, number: int) -> None:
        """Waits until a member was told so many partitions at last."""

        def last() -> bool:
            own = [each for who, what, each in self.told if who == name and what == "assigned"]
            return bool(own) and len(own[-1]) == number

        wait_until(f"{name} has {number} partitions", last)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@dataclass(frozen=True)
class ClusterCase:
    """What there was."""

    broker: KafkaBroker
    folder: Path
    told: list[tuple[str, str, list[str]]]

    @property
    def log(self) -> Path:
        return self.folder / "broker.log"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.broker.port}"

    @property
    def cluster(self) -> LiveCluster:
        return LiveCluster(settings={"bootstrap.servers": self.address}, lookups=1_000)


@pytest.fixture(scope="module")
def cluster_case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterCase]:
    folder = tmp_path_factory.mktemp("kafka")
    broker = KafkaBroker(folder, SETTINGS)
    consumers = JavaConsumers(broker.port)
    try:
        found = ClusterCase(broker, folder, consumers.told)
        run_scenario(found, consumers)
        yield found
    finally:
        consumers.end()
        broker.stop()


def run_scenario(cluster_case: ClusterCase, consumers: JavaConsumers) -> None:
    """A group of two, one of whom leaves; one of the new protocol; one that is behind."""
    admin = AdminClient({"bootstrap.servers": cluster_case.address})
    for made in admin.create_topics([NewTopic("orders", PARTITIONS, 1)]).values():
        made.result(PATIENCE)
    consumers.start("a", "billing", partition_assignment_strategy=RANGE)
    consumers.wait_for_partitions("a", 4)
    consumers.start("b", "billing", partition_assignment_strategy=RANGE)
    consumers.wait_for_partitions("b", 2)
    consumers.wait_for_partitions("a", 2)
    consumers.start("m", "modern", group_protocol="consumer")
    consumers.wait_for_partitions("m", 4)
    produce(cluster_case, EACH, range(PARTITIONS))
    wait_until(
        "billing is through", lambda: count_committed(cluster_case, "billing") == EACH * PARTITIONS
    )
    wait_until(
        "modern is through", lambda: count_committed(cluster_case, "modern") == EACH * PARTITIONS
    )
    consumers.close("b")
    consumers.wait_for_partitions("a", 4)
    for name in ("a", "m"):
        consumers.close(name)
    settings = {"bootstrap.servers": cluster_case.address, "group.id": "behind"}
    with rota.Consumer(settings) as consumer:
        place = TopicPartition("orders", 0)
        consumer.assign([place])
        consumer.commit({place: OffsetAndMetadata(3)})
    produce(cluster_case, LATER, [0])


RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"


def produce(cluster_case: ClusterCase, number: int, partitions: range | list[int]) -> None:
    producer = Producer({"bootstrap.servers": cluster_case.address, "linger.ms": 0})
    for partition in partitions:
        for each in range(number):
            producer.produce("orders", b"%d" % each, partition=partition)
            producer.flush()


def count_committed(cluster_case: ClusterCase, group: str) -> int:
    """How many records a group has committed."""

    async def ask(client: ClusterClient) -> int:
        found = await Admin(client, PATIENCE).fetch_committed(group)
        return sum(each.offset for each in found.values())

    return run_with_client(cluster_case.cluster, ask)


@pytest.fixture(scope="module")
def live_run(
    spark: SparkSession, cluster_case: ClusterCase, tmp_path_factory: pytest.TempPathFactory
) -> PipelineRun:
    """Read while it runs, with its own log up to now."""
    shutil.copy(cluster_case.folder / "server.log", cluster_case.log)
    evidence = EvidenceSources(cluster=cluster_case.cluster, server_logs=(str(cluster_case.log),))
    return run_evidence(spark, evidence, tmp_path_factory.mktemp("live"))


def test_what_is_to_be_read_is_known_before(
    cluster_case: ClusterCase, live_run: PipelineRun
) -> None:
    found = live_run.summary.live
    assert found is not None
    assert len(found.log_ends) == 5
    assert found.records == live_run.summary.records, "nothing is compacted yet"
    assert found.size
    folders = cluster_case.folder.glob("data/__consumer_offsets-*/*.log")
    assert found.size == sum(file.stat().st_size for file in folders)


def test_every_rebalance_with_its_cause(live_run: PipelineRun) -> None:
    found = [row for row in live_run.rows(REBALANCES) if row["group"] == "billing"]
    found.sort(key=lambda row: row["at"])
    rows = [(row["members_after"], row["cause"], row["evidence"]) for row in found]
    assert rows == [
        (1, "joined", "stated"),
        (2, "joined", "stated"),
        (1, "left", "stated"),
        (0, "left", "stated"),
    ]


def test_owners_are_those_that_the_consumers_were_told(
    cluster_case: ClusterCase, live_run: PipelineRun
) -> None:
    told: dict[str, list[str]] = {}
    for name, what, partitions in cluster_case.told:
        if what == "assigned" and name in {"a", "b"}:
            for partition in partitions:
                told.setdefault(partition, []).append(name)
    found: dict[str, list[str]] = {}
    owned = [row for row in live_run.rows(OWNERSHIP) if row["group"] == "billing"]
    for row in sorted(owned, key=lambda row: row["since"]):
        found.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["client_id"])
    assert {key: collapse_repeats(names) for key, names in found.items()} == {
        key: collapse_repeats(names) for key, names in told.items()
    }
    assert ["a", "b", "a"] in map(collapse_repeats, found.values())
    modern = [row for row in live_run.rows(OWNERSHIP) if row["group"] == "modern"]
    assert {row["client_id"] for row in modern} == {"m"}


def collapse_repeats(names: list[str]) -> list[str]:
    return [name for name, _ in groupby(names)]


def test_lag_at_commits_and_now(live_run: PipelineRun) -> None:
    (behind,) = [row for row in live_run.rows(LAG) if row["group"] == "behind"]
    assert (behind["end"], behind["lag"]) == (EACH, EACH - 3)
    assert behind["lag_seconds"] > 0
    through = [row for row in live_run.rows(LAG) if row["group"] == "billing"]
    assert {row["partition"] for row in through} == set(range(PARTITIONS))
    for row in through:
        assert row["offset"] + row["lag"] == row["end"] <= EACH
    last = {row["partition"]: row["lag"] for row in sorted(through, key=lambda row: row["at"])}
    assert set(last.values()) == {0}
    now = {
        (row["group"], row["partition"]): row["lag"]
        for row in live_run.rows(STATUS)
        if row["topic"] == "orders" and row["partition"] == 0
    }
    assert now == {
        ("behind", 0): EACH - 3 + LATER,
        ("billing", 0): LATER,
        ("modern", 0): LATER,
    }
    looked = live_run.summary.lookups
    assert looked is not None
    assert looked.partitions == PARTITIONS
    assert 0 < looked.lookups <= 1_000
    assert not looked.left_out
    assert not looked.skipped


@pytest.fixture
def deny(cluster_case: ClusterCase) -> Callable[[str, AclOperation], None]:
    """Takes a permission away from everybody."""

    def deny(topic: str, operation: AclOperation) -> None:
        admin = AdminClient({"bootstrap.servers": cluster_case.address})
        rule = AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            "User:*",
            "*",
            operation,
            AclPermissionType.DENY,
        )
        for made in admin.create_acls([rule]).values():
            made.result(PATIENCE)

    return deny


def test_a_topic_that_may_not_be_described_is_left_out(
    cluster_case: ClusterCase, live_run: PipelineRun, deny: Callable[[str, AclOperation], None]
) -> None:
    deny("orders", AclOperation.DESCRIBE)
    wanted = LookupPlan(times={TopicPartition("orders", 0): [1]})

    skipped = wait_until(
        "the rule is known to the broker",
        lambda: cluster.look_up_ends(cluster_case.cluster, wanted).skipped,
    )
    assert skipped == {"without permission to describe them": {"orders"}}


def test_a_journal_that_may_not_be_read(
    cluster_case: ClusterCase, live_run: PipelineRun, deny: Callable[[str, AclOperation], None]
) -> None:
    deny("__consumer_offsets", AclOperation.READ)

    def refused() -> str:
        try:
            find_journal(cluster_case.cluster)
        except Unreachable as error:
            return str(error)
        return ""

    message = wait_until("the rule is known to the broker", refused)
    assert "Describe and Read on topic __consumer_offsets" in message


def test_its_folders_give_the_same_tables(
    spark: SparkSession, cluster_case: ClusterCase, live_run: PipelineRun, tmp_path: Path
) -> None:
    cluster_case.broker.shut_down()
    folders = (str(cluster_case.folder / "data"),)
    samples = tmp_path / "ends.jsonl"
    with samples.open("w") as file:
        for row in read_all_tables(live_run.out, [ENDS])[ENDS.name]:
            at = round(row.pop("at").timestamp() * 1_000)
            print(json.dumps({"t": at, **row}), file=file)
    evidence = EvidenceSources(
        segments=folders, server_logs=(str(cluster_case.log),), ends=(str(samples),)
    )
    run_evidence(spark, evidence, tmp_path / "out")
    found, wanted = (read_all_tables(out, TABLES) for out in (tmp_path / "out", live_run.out))
    for name in (DOWNTIME.name, LAG.name, HEALTH.name):
        assert any(wanted[name])
    assert all(found[name] for name in (WHATIF.name, ADVICE.name))
    assert found == wanted
