"""Cases of Kafka's command-line tools: what an operator types, and what is printed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.clients.scene import Scene, fresh, plain_record
from tests.support.waiting import until
from tests.system.interop.group_case import Group

TOOLS = "org.apache.kafka.tools"
PLACES = {
    "ConsumerGroupCommand": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "ConsoleConsumer": f"{TOOLS}.consumer.ConsoleConsumer",
    "ConfigCommand": "kafka.admin.ConfigCommand",
}
OLD_PLACES = {  # moved after 3.9
    "ConsoleProducer": "kafka.tools.ConsoleProducer",
    "BrokerApiVersionsCommand": "kafka.admin.BrokerApiVersionsCommand",
}


def run(scene: Scene, tool: str, *args: str, typed: str = "") -> str:
    """What a tool printed; it must have ended well."""
    places = PLACES if scene.client.tools != "3.9" else {**PLACES, **OLD_PLACES}
    main = places.get(tool, f"{TOOLS}.{tool}")
    done: dict[str, Any] = scene.own.ask("tool", main=main, args=args, input=typed)
    assert done["status"] == 0, f"{tool} ended with {done['status']}: {done['out']}{done['err']}"
    return str(done["out"])


def server(scene: Scene) -> tuple[str, str]:
    return "--bootstrap-server", scene.stage.cluster.plain


def topics(scene: Scene) -> None:
    topic = fresh("t")
    named = (*server(scene), "--topic", topic)
    made = run(
        scene,
        "TopicCommand",
        "--create",
        *named,
        "--partitions",
        "2",
        "--config",
        "retention.ms=5000",
    )
    assert f"Created topic {topic}." in made
    assert topic in run(scene, "TopicCommand", "--list", *server(scene)).split()
    run(scene, "TopicCommand", "--alter", *named, "--partitions", "3")
    shown = run(scene, "TopicCommand", "--describe", *named)
    assert "PartitionCount: 3" in shown
    assert "retention.ms=5000" in shown
    assert shown.count("Leader: ") == 3
    run(scene, "TopicCommand", "--delete", *named)
    until("it is gone", lambda: topic not in scene.steady.ask("topics"))


def consumer_groups(scene: Scene) -> None:
    group = Group(scene, partitions=2)
    member = group.join(scene.steady)
    group.write()
    group.finish()
    scene.steady.ask("commit", member=member, how="sync")
    named = (*server(scene), "--group", group.name)
    assert group.name in run(scene, "ConsumerGroupCommand", "--list", *server(scene)).split()
    rows = run(scene, "ConsumerGroupCommand", "--describe", *named).splitlines()
    lines = [row.split() for row in rows if row.startswith(group.name)]
    assert [line[1:6] for line in sorted(lines)] == [
        [group.topic, number, "10", "10", "0"] for number in ("0", "1")
    ]
    assert "Stable" in run(scene, "ConsumerGroupCommand", "--describe", "--state", *named)
    assert group.name in run(scene, "ConsumerGroupCommand", "--describe", "--members", *named)
    group.end()
    reset = ("--reset-offsets", "--to-offset", "4", "--topic", f"{group.topic}:0", "--execute")
    run(scene, "ConsumerGroupCommand", *reset, *named)
    assert [0, 4] in scene.steady.ask("offsets", group=group.name, topic=group.topic)
    run(scene, "ConsumerGroupCommand", "--delete-offsets", "--topic", group.topic, *named)
    assert scene.steady.ask("offsets", group=group.name, topic=group.topic) == []


def delete_groups(scene: Scene) -> None:
    group = Group(scene, partitions=1)
    group.join(scene.steady)
    group.write()
    group.finish()
    group.end()
    run(scene, "ConsumerGroupCommand", "--delete", *server(scene), "--group", group.name)
    assert group.name not in scene.steady.ask("groups")


def console(scene: Scene) -> None:
    topic = scene.topic(1)
    lines = [f"key {number}\tvalue {number}" for number in range(5)]
    run(
        scene,
        "ConsoleProducer",
        *server(scene),
        "--topic",
        topic,
        "--property",
        "parse.key=true",
        typed="\n".join(lines) + "\n",
    )
    printed = run(
        scene,
        "ConsoleConsumer",
        *server(scene),
        "--topic",
        topic,
        "--from-beginning",
        "--max-messages",
        "5",
        "--property",
        "print.key=true",
    )
    assert printed.splitlines()[-5:] == lines  # 4.3 has a word about --property first


def configs(scene: Scene) -> None:
    topic = scene.topic(1)
    named = (*server(scene), "--entity-type", "topics", "--entity-name", topic)
    wanted = "cleanup.policy=[compact,delete],segment.bytes=2000000"
    run(scene, "ConfigCommand", "--alter", *named, "--add-config", wanted)
    shown = run(scene, "ConfigCommand", "--describe", *named)
    assert "cleanup.policy=compact,delete" in shown
    assert "segment.bytes=2000000" in shown
    run(scene, "ConfigCommand", "--alter", *named, "--delete-config", "segment.bytes")
    assert "segment.bytes" not in run(scene, "ConfigCommand", "--describe", *named)
    broker = (*server(scene), "--entity-type", "brokers", "--entity-name", "1")
    every = run(scene, "ConfigCommand", "--describe", "--all", *broker)
    assert "auto.create.topics.enable=true" in every


def get_offsets(scene: Scene) -> None:
    topic = scene.topic(2)
    records = [plain_record(number, number % 2) for number in range(9)]
    scene.steady.ask("produce", topic=topic, records=records)
    named = (*server(scene), "--topic", topic)
    latest = run(scene, "GetOffsetShell", *named).split()
    assert latest == [f"{topic}:0:5", f"{topic}:1:4"]
    earliest = run(scene, "GetOffsetShell", *named, "--time", "earliest").split()
    assert earliest == [f"{topic}:0:0", f"{topic}:1:0"]
    newest = run(scene, "GetOffsetShell", *named, "--time", "max-timestamp").split()
    assert len(newest) == 2


def delete_records(scene: Scene) -> None:
    topic = scene.topic(1)
    records = [plain_record(number, 0) for number in range(9)]
    scene.steady.ask("produce", topic=topic, records=records)
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "offsets.json"
        place = {"topic": topic, "partition": 0, "offset": 5}
        wanted.write_text(json.dumps({"partitions": [place], "version": 1}))
        printed = run(
            scene, "DeleteRecordsCommand", *server(scene), "--offset-json-file", str(wanted)
        )
    assert "low_watermark: 5" in printed


def performance(scene: Scene) -> None:
    topic = scene.topic(1)
    written = run(
        scene,
        "ProducerPerformance",
        "--topic",
        topic,
        "--num-records",
        "2000",
        "--record-size",
        "100",
        "--throughput",
        "-1",
        "--producer-props",
        f"bootstrap.servers={scene.stage.cluster.plain}",
    )
    assert "2000 records sent" in written
    latest = scene.steady.ask("log_offsets", topic=topic, partitions=1, at="latest")
    assert latest == [[0, 2000]]


def api_versions(scene: Scene) -> None:
    printed = run(scene, "BrokerApiVersionsCommand", *server(scene))
    assert scene.stage.cluster.plain in printed
    assert "Produce(0)" in printed
    assert "JoinGroup(11)" in printed


CASES: dict[str, Callable[[Scene], None]] = {
    "kafka-topics": topics,
    "kafka-consumer-groups": consumer_groups,
    "kafka-consumer-groups --delete": delete_groups,
    "kafka-console-producer and -consumer": console,
    "kafka-configs": configs,
    "kafka-get-offsets": get_offsets,
    "kafka-delete-records": delete_records,
    "kafka-producer-perf-test": performance,
    "kafka-broker-api-versions": api_versions,
}
