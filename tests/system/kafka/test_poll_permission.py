"""Polling a real Kafka with ACLs: what is not allowed is said, and the rest is seen."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from rota.cli.main import main
from rota.client.cluster import ClusterClient
from rota.pipeline.cluster import LiveCluster, run_with_client
from rota.pipeline.poll import ClusterSnapshot, SnapshotReader
from tests.support.cluster import PASSWORD, USER
from tests.support.waiting import wait_until
from tests.system.kafka.test_groups_command import kafka_with_acls

__all__ = ["kafka_with_acls"]

pytest.importorskip("pyspark")
#: Seconds: the broker makes its journal for the first commit.
WAIT = 90
SETTINGS = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="{USER}" password="{PASSWORD}";',
}


def run_survey(servers: str) -> ClusterSnapshot:
    async def ask(client: ClusterClient) -> ClusterSnapshot:
        return await SnapshotReader(client, (), 30).take_snapshot()

    return run_with_client(LiveCluster(settings={"bootstrap.servers": servers, **SETTINGS}), ask)


@pytest.mark.nightly
def test_what_is_not_allowed_is_named(
    kafka_with_acls: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    servers, own = kafka_with_acls
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(30)
    wait_until("it is known", lambda: "orders" in admin.list_topics(timeout=30).topics)
    offsets = confluent_kafka.ConsumerGroupTopicPartitions(
        "billing", [confluent_kafka.TopicPartition("orders", 0, 0)]
    )

    def is_committed() -> bool:
        results = admin.alter_consumer_group_offsets([offsets])["billing"].result(WAIT)
        return all(each.error is None for each in results.topic_partitions)

    wait_until("it is committed", is_committed)
    login = tmp_path / "client.properties"
    login.write_text("".join(f"{key}={value}\n" for key, value in SETTINGS.items()))

    def refused(*words: str) -> str:
        where = ("--bootstrap-servers", own, "--command-config", str(login))
        out = ("--out", str(tmp_path / "out"))
        assert main(["run", *where, *out, "--poll", "--for", "1s", *words]) == 3
        return capsys.readouterr().err.splitlines()[-1]

    def allow(kind: ResourceType, name: str) -> None:
        binding = AclBinding(
            *(kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*"),
            AclOperation.DESCRIBE,
            AclPermissionType.ALLOW,
        )
        admin.create_acls([binding])[binding].result(30)

    assert (
        "no permission to describe any group. To describe groups a user needs Describe" in refused()
    )
    assert "no permission to describe group 'billing'" in refused("--group", "billing")
    allow(ResourceType.GROUP, "billing")
    wait_until("it is allowed", lambda: set(run_survey(own).groups) == {"billing"})
    assert run_survey(own).offsets == {"billing": {}}  # the broker leaves out what is not allowed
    allow(ResourceType.TOPIC, "orders")
    wait_until("it is allowed", lambda: bool(run_survey(own).offsets["billing"]))
    assert list(run_survey(own).ends.values()) == [(0, 0)]
