"""Spark's own Kafka source, a real Kafka, and the tool that operators look at groups with.

Spark runs in an environment of its own, of the version that its Kafka source exists for.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rota.engine.model.topic import TopicPartition
from tests.support.kafka import KafkaBroker, kafka_command
from tests.support.process import run_command
from tests.system.spark.comparison import environment
from tests.system.spark.source.test_committer import ROWS, Offsets, finished_offsets

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

# without Rota's source: a listener is all that a query of Spark's own needs
SCRIPT = """
    import os, sys
    from pathlib import Path
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener
    import rota.spark

    jars, address, folder = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    kafka = {"kafka.bootstrap.servers": address, "kafka.fetch.max.wait.ms": "50"}
    more = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"}

    class Raising(StreamingQueryListener):
        def onQueryStarted(self, event): raise RuntimeError("never")
        def onQueryProgress(self, event): raise RuntimeError("never")
        def onQueryTerminated(self, event): raise RuntimeError("never")

    def source(topic):
        options = kafka | more | {"subscribe": topic}
        return spark.readStream.format("kafka").options(**options).load()

    def run():
        writer = source("orders").union(source("returns")).writeStream.queryName("bills")
        writer = writer.option("checkpointLocation", folder).format("noop")
        writer.trigger(availableNow=True).start().awaitTermination()

    spark.streams.addListener(Raising())
    with rota.spark.commit_to_group(spark, group_id="seen", kafka=kafka | more, query="bills"):
        run()
    with rota.spark.commit_to_group(spark, group_id="later", kafka=kafka, query="bills"):
        run()  # nothing is new: the checkpoint has it all
"""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    running = KafkaBroker(tmp_path_factory.mktemp("kafka"), {})
    address = f"127.0.0.1:{running.port}"
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for each in admin.create_topics([NewTopic(name, 2, 1) for name in ("orders", "returns")]):
        assert each
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    for topic in ("orders", "returns"):
        for number in range(2 * ROWS):
            producer.produce(topic, b"%d" % number, partition=number % 2)
    assert producer.flush(60) == 0
    yield address
    running.stop()


def describe_group(address: str, group: str) -> tuple[Offsets, set[str]]:
    """What kafka-consumer-groups shows: the offsets, and every lag."""
    command = kafka_command(TOOL, "--bootstrap-server", address, "--describe", "--group", group)
    done = run_command(*command, seconds=600).checked()
    rows = [line.split() for line in done.lines if line.startswith(group)]
    offsets = {TopicPartition(row[1], int(row[2])): int(row[3]) for row in rows}
    return offsets, {row[5] for row in rows}


def test_kafkas_own_tool_sees_queries_of_sparks_own_source(kafka: str, tmp_path: Path) -> None:
    python, jars = environment.install_python(), environment.fetch_connector_jars()
    words = (",".join(map(str, jars)), kafka, tmp_path)
    run_command(python, "-c", textwrap.dedent(SCRIPT), *words, seconds=600).checked()
    checkpoint = finished_offsets(tmp_path)
    assert len(checkpoint) == 4
    assert set(checkpoint.values()) == {ROWS}
    assert describe_group(kafka, "seen") == (checkpoint, {"0"})
    assert describe_group(kafka, "later") == (checkpoint, {"0"})
