"""Cases of Kafka's command-line tools: what an operator types, and what is printed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.clients.case import ClientCase, plain_record, unique_name
from tests.support.waiting import wait_until
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


def run_tool(client_case: ClientCase, tool: str, *args: str, typed: str = "") -> str:
    """What a tool printed; it must have ended well."""
    places = PLACES if client_case.client.tools != "3.9" else {**PLACES, **OLD_PLACES}
    main = places.get(tool, f"{TOOLS}.{tool}")
    done: dict[str, Any] = client_case.own.ask("tool", main=main, args=args, input=typed)
    assert done["status"] == 0, f"{tool} ended with {done['status']}: {done['out']}{done['err']}"
    return str(done["out"])


def server_option(client_case: ClientCase) -> tuple[str, str]:
    return "--bootstrap-server", client_case.stage.cluster.plain


def topics(client_case: ClientCase) -> None:
    topic = unique_name("t")
    named = (*server_option(client_case), "--topic", topic)
    made = run_tool(
        client_case,
        "TopicCommand",
        "--create",
        *named,
        "--partitions",
        "2",
        "--config",
        "retention.ms=5000",
    )
    assert f"Created topic {topic}." in made
    assert (
        topic
        in run_tool(client_case, "TopicCommand", "--list", *server_option(client_case)).split()
    )
    run_tool(client_case, "TopicCommand", "--alter", *named, "--partitions", "3")
    shown = run_tool(client_case, "TopicCommand", "--describe", *named)
    assert "PartitionCount: 3" in shown
    assert "retention.ms=5000" in shown
    assert shown.count("Leader: ") == 3
    run_tool(client_case, "TopicCommand", "--delete", *named)
    wait_until("it is gone", lambda: topic not in client_case.steady.ask("topics"))


def consumer_groups(client_case: ClientCase) -> None:
    group = Group(client_case, partitions=2)
    member = group.join(client_case.steady)
    group.write()
    group.finish()
    client_case.steady.ask("commit", member=member, how="sync")
    named = (*server_option(client_case), "--group", group.name)
    assert (
        group.name
        in run_tool(
            client_case, "ConsumerGroupCommand", "--list", *server_option(client_case)
        ).split()
    )
    rows = run_tool(client_case, "ConsumerGroupCommand", "--describe", *named).splitlines()
    lines = [row.split() for row in rows if row.startswith(group.name)]
    assert [line[1:6] for line in sorted(lines)] == [
        [group.topic, number, "10", "10", "0"] for number in ("0", "1")
    ]
    assert "Stable" in run_tool(
        client_case, "ConsumerGroupCommand", "--describe", "--state", *named
    )
    assert group.name in run_tool(
        client_case, "ConsumerGroupCommand", "--describe", "--members", *named
    )
    group.end()
    reset = ("--reset-offsets", "--to-offset", "4", "--topic", f"{group.topic}:0", "--execute")
    run_tool(client_case, "ConsumerGroupCommand", *reset, *named)
    assert [0, 4] in client_case.steady.ask("offsets", group=group.name, topic=group.topic)
    run_tool(
        client_case, "ConsumerGroupCommand", "--delete-offsets", "--topic", group.topic, *named
    )
    assert client_case.steady.ask("offsets", group=group.name, topic=group.topic) == []


def delete_groups(client_case: ClientCase) -> None:
    group = Group(client_case, partitions=1)
    group.join(client_case.steady)
    group.write()
    group.finish()
    group.end()
    run_tool(
        client_case,
        "ConsumerGroupCommand",
        "--delete",
        *server_option(client_case),
        "--group",
        group.name,
    )
    assert group.name not in client_case.steady.ask("groups")


def console(client_case: ClientCase) -> None:
    topic = client_case.topic(1)
    lines = [f"key {number}\tvalue {number}" for number in range(5)]
    run_tool(
        client_case,
        "ConsoleProducer",
        *server_option(client_case),
        "--topic",
        topic,
        "--property",
        "parse.key=true",
        typed="\n".join(lines) + "\n",
    )
    printed = run_tool(
        client_case,
        "ConsoleConsumer",
        *server_option(client_case),
        "--topic",
        topic,
        "--from-beginning",
        "--max-messages",
        "5",
        "--property",
        "print.key=true",
    )
    assert printed.splitlines()[-5:] == lines  # 4.3 has a word about --property first


def configs(client_case: ClientCase) -> None:
    topic = client_case.topic(1)
    named = (*server_option(client_case), "--entity-type", "topics", "--entity-name", topic)
    wanted = "cleanup.policy=[compact,delete],segment.bytes=2000000"
    run_tool(client_case, "ConfigCommand", "--alter", *named, "--add-config", wanted)
    shown = run_tool(client_case, "ConfigCommand", "--describe", *named)
    assert "cleanup.policy=compact,delete" in shown
    assert "segment.bytes=2000000" in shown
    run_tool(client_case, "ConfigCommand", "--alter", *named, "--delete-config", "segment.bytes")
    assert "segment.bytes" not in run_tool(client_case, "ConfigCommand", "--describe", *named)
    broker = (*server_option(client_case), "--entity-type", "brokers", "--entity-name", "1")
    every = run_tool(client_case, "ConfigCommand", "--describe", "--all", *broker)
    assert "auto.create.topics.enable=true" in every


def get_offsets(client_case: ClientCase) -> None:
    topic = client_case.topic(2)
    records = [plain_record(number, number % 2) for number in range(9)]
    client_case.steady.ask("produce", topic=topic, records=records)
    named = (*server_option(client_case), "--topic", topic)
    latest = run_tool(client_case, "GetOffsetShell", *named).split()
    assert latest == [f"{topic}:0:5", f"{topic}:1:4"]
    earliest = run_tool(client_case, "GetOffsetShell", *named, "--time", "earliest").split()
    assert earliest == [f"{topic}:0:0", f"{topic}:1:0"]
    newest = run_tool(client_case, "GetOffsetShell", *named, "--time", "max-timestamp").split()
    assert len(newest) == 2


def delete_records(client_case: ClientCase) -> None:
    topic = client_case.topic(1)
    records = [plain_record(number, 0) for number in range(9)]
    client_case.steady.ask("produce", topic=topic, records=records)
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "offsets.json"
        place = {"topic": topic, "partition": 0, "offset": 5}
        wanted.write_text(json.dumps({"partitions": [place], "version": 1}))
        printed = run_tool(
            client_case,
            "DeleteRecordsCommand",
            *server_option(client_case),
            "--offset-json-file",
            str(wanted),
        )
    assert "low_watermark: 5" in printed


def performance(client_case: ClientCase) -> None:
    topic = client_case.topic(1)
    written = run_tool(
        client_case,
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
        f"bootstrap.servers={client_case.stage.cluster.plain}",
    )
    assert "2000 records sent" in written
    latest = client_case.steady.ask("log_offsets", topic=topic, partitions=1, at="latest")
    assert latest == [[0, 2000]]


def api_versions(client_case: ClientCase) -> None:
    printed = run_tool(client_case, "BrokerApiVersionsCommand", *server_option(client_case))
    assert client_case.stage.cluster.plain in printed
    assert "Produce(0)" in printed
    assert "JoinGroup(11)" in printed


CASES: dict[str, Callable[[ClientCase], None]] = {
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
