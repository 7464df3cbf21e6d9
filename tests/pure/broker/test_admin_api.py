"""Topics, settings and the cluster, asked for in real frames: every version, and refusals."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from rota.broker.faults import InjectedFault
from rota.broker.handlers import configs, topic_admin
from rota.broker.handlers import metadata as metadata_module
from rota.engine.model.config import BrokerConfig, TopicConfig
from rota.errors import Code
from tests.support.differential_side import Plain, fill_request
from tests.support.faulty_disk import FaultyDisk
from tests.support.node import HANDLERS, InMemoryNode

NOBODY = UUID(int=0)
TOPIC, BROKER = 2, 4
#: The handlers that know topics, settings and the cluster.
ADMIN = [each for module in (metadata_module, configs, topic_admin) for each in module.HANDLERS]


def send_request(node: InMemoryNode, name: str, version: int, **fields: Plain) -> Any:
    return node.connect().ask(fill_request(name, version, **fields))


def create_topic(
    node: InMemoryNode, name: str, count: int = 1, version: int = 7, **configs: str
) -> Any:
    settings = [{"name": key.replace("_", "."), "value": text} for key, text in configs.items()]
    topic = {
        "name": name,
        "num_partitions": count,
        "replication_factor": 1,
        "assignments": [],
        "configs": settings,
    }
    return send_request(node, "CreateTopics", version, topics=[topic], timeout_ms=1_000).topics[0]


def fetch_metadata(node: InMemoryNode, *names: str, version: int = 12, auto: bool = False) -> Any:
    topics = [{"name": name, "topic_id": NOBODY} for name in names]
    return send_request(node, "Metadata", version, topics=topics, allow_auto_topic_creation=auto)


def own_settings(node: InMemoryNode, name: str) -> dict[str, str]:
    asked = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}
    (found,) = send_request(node, "DescribeConfigs", 4, resources=[asked]).results
    return {each.name: each.value for each in found.configs if each.config_source == 1}


# Every version


REQUESTS: dict[str, Plain] = {
    "ApiVersions": {},
    "Metadata": {"topics": [{"name": "t"}]},
    "CreateTopics": {
        "topics": [{"name": "n", "num_partitions": 2, "replication_factor": 1}],
        "timeout_ms": 1,
    },
    "CreatePartitions": {"topics": [{"name": "t", "count": 9, "assignments": None}]},
    "DescribeConfigs": {
        "resources": [{"resource_type": TOPIC, "resource_name": "t", "configuration_keys": None}]
    },
    "IncrementalAlterConfigs": {
        "resources": [
            {
                "resource_type": TOPIC,
                "resource_name": "t",
                "configs": [{"name": "retention.ms", "value": "5", "config_operation": 0}],
            }
        ]
    },
    "AlterConfigs": {
        "resources": [
            {
                "resource_type": TOPIC,
                "resource_name": "t",
                "configs": [{"name": "retention.ms", "value": "5"}],
            }
        ]
    },
    "DescribeCluster": {},
    "DescribeTopicPartitions": {"topics": [{"name": "t"}], "cursor": None},
    "ListPartitionReassignments": {"timeout_ms": 1, "topics": None},
}


def cases() -> list[tuple[str, int]]:
    listed = []
    for handler in ADMIN:
        name = "".join(word.capitalize() for word in handler.api.name.split("_"))
        listed += [
            (name, version) for version in range(handler.min_version, handler.max_version + 1)
        ]
    return listed


def request_fields(name: str, version: int) -> Plain:
    if name == "DeleteTopics":
        by_name = {"topic_names": ["t"]} if version < 6 else {}
        return by_name or {"topics": [{"name": "t", "topic_id": NOBODY}]}
    fields: Plain = dict(REQUESTS[name])
    if name == "ApiVersions" and version >= 3:
        fields = {"client_software_name": "script", "client_software_version": "1.0"}
    return fields


def errors(found: Any) -> list[int]:
    """Every error code in an answer."""
    if isinstance(found, list):
        return [code for each in found for code in errors(each)]
    if isinstance(found, dict):
        own = [value for key, value in found.items() if key == "error_code"]
        return own + [code for each in found.values() for code in errors(each)]
    return []


@pytest.mark.parametrize(("name", "version"), cases())
def test_every_version_is_answered_without_an_error(name: str, version: int) -> None:
    node = InMemoryNode()
    create_topic(node, "t")
    answer = send_request(node, name, version, **request_fields(name, version))
    assert set(errors(answer.to_dict())) <= {0}
    assert node.log_lines == []


@pytest.mark.parametrize(("name", "version"), cases())
def test_every_version_can_be_refused(name: str, version: int) -> None:
    """What an order for faults, or a bug of ours, makes of a request."""
    node = InMemoryNode()
    create_topic(node, "t")
    for handler in ADMIN:
        refusal = InjectedFault(
            api=handler.api, remaining=None, client_id=None, code=Code.KAFKA_STORAGE_ERROR
        )
        node.node.faults.inject(refusal)
    if name == "ApiVersions":  # kafka-python reads an error of it in version 0 alone
        if version == 0:
            assert send_request(node, name, 0).error_code == Code.KAFKA_STORAGE_ERROR
        return
    answer = send_request(node, name, version, **request_fields(name, version))
    assert set(errors(answer.to_dict())) == {Code.KAFKA_STORAGE_ERROR}


def test_what_is_offered_is_what_is_handled() -> None:
    answer = send_request(InMemoryNode(), "ApiVersions", 2)
    offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert offered == {key: (each.min_version, each.max_version) for key, each in HANDLERS.items()}


# Topics


def test_a_topic_made_by_a_client_is_there_after_a_restart() -> None:
    node = InMemoryNode()
    made = create_topic(node, "orders", 3, retention_ms="5", cleanup_policy="delete,compact")
    for again in (node.restart(node.disk), node.restart(node.disk, clean=True)):
        (found,) = fetch_metadata(again, "orders").topics
        assert (found.topic_id, len(found.partitions)) == (made.topic_id, 3)
        settings = {"retention.ms": "5", "cleanup.policy": "delete,compact"}
        assert own_settings(again, "orders") == settings


def test_a_missing_topic_is_made_where_both_sides_want_it() -> None:
    node = InMemoryNode(config=BrokerConfig(default_partitions=4))
    assert fetch_metadata(node, "no").topics[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    (made,) = fetch_metadata(node, "yes", auto=True).topics
    assert (made.error_code, len(made.partitions)) == (0, 4)
    assert fetch_metadata(node, "bad name", auto=True).topics[0].error_code == 17
    assert fetch_metadata(node, "__consumer_offsets", auto=True).topics[0].is_internal
    never = InMemoryNode(config=BrokerConfig(auto_create_topics=False))
    assert fetch_metadata(never, "no", auto=True).topics[0].error_code == 3


def test_versions_before_the_flag_make_missing_topics() -> None:
    (made,) = send_request(InMemoryNode(), "Metadata", 3, topics=[{"name": "old"}]).topics
    assert made.error_code == 0


def test_a_topic_is_deleted_by_its_id() -> None:
    node = InMemoryNode()
    made = create_topic(node, "orders")
    (gone,) = send_request(
        node, "DeleteTopics", 6, topics=[{"name": None, "topic_id": made.topic_id}]
    ).responses
    assert (gone.name, gone.error_code) == ("orders", 0)
    assert fetch_metadata(node.restart(node.disk)).topics == []


@pytest.mark.parametrize("factor", [2, 3, 32_767])
def test_more_replicas_than_nodes_are_refused(factor: int) -> None:
    topic = {"name": "t", "num_partitions": 1, "replication_factor": factor}
    (answer,) = send_request(InMemoryNode(), "CreateTopics", 7, topics=[topic], timeout_ms=1).topics
    assert answer.error_code == Code.INVALID_REPLICATION_FACTOR
    assert answer.error_message == f"the replication factor is {factor}, but there is one node"
    assert answer.configs == []


def test_a_refused_setting_is_named() -> None:
    answer = create_topic(InMemoryNode(), "t", compression_type="gzip")
    assert answer.error_code == Code.INVALID_CONFIG
    assert answer.error_message.startswith("compression.type: 'gzip' is not 'producer'")


def test_a_full_disk_is_told_to_the_client_and_nothing_is_left() -> None:
    disk = FaultyDisk()
    node = InMemoryNode(disk)
    disk.room(100)
    answer = create_topic(node, "t", 5)
    assert answer.error_code == Code.KAFKA_STORAGE_ERROR
    assert "No space left" in answer.error_message
    disk.room(None)
    assert fetch_metadata(node.restart(node.disk)).topics == []


def test_many_partitions_are_described_in_turns() -> None:
    node = InMemoryNode()
    create_topic(node, "a", 7)
    create_topic(node, "b", 3)
    cursor = None
    found: list[tuple[str, int]] = []
    for _ in range(10):
        answer = send_request(
            node, "DescribeTopicPartitions", 0, topics=[], response_partition_limit=4, cursor=cursor
        )
        found += [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
        if answer.next_cursor is None:
            break
        following = answer.next_cursor
        cursor = {
            "topic_name": following.topic_name,
            "partition_index": following.partition_index,
        }
    assert found == [*(("a", n) for n in range(7)), *(("b", n) for n in range(3))]


# Settings


def test_the_brokers_own_settings_show_in_topics_and_in_itself() -> None:
    node = InMemoryNode(
        config=BrokerConfig(default_partitions=3), topic_config=TopicConfig(retention=9)
    )
    create_topic(node, "t")
    wanted = [
        {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": ["retention.ms"]},
        {
            "resource_type": BROKER,
            "resource_name": "1",
            "configuration_keys": ["num.partitions", "log.retention.ms", "group.max.size"],
        },
    ]
    topic, broker = send_request(
        node, "DescribeConfigs", 4, resources=wanted, include_synonyms=True
    ).results
    (retention,) = topic.configs
    assert (retention.value, retention.config_source) == ("9", 4)
    assert [each.name for each in retention.synonyms] == ["log.retention.ms", "log.retention.hours"]
    assert {each.name: (each.value, each.config_source) for each in broker.configs} == {
        "num.partitions": ("3", 4),
        "log.retention.ms": ("9", 4),
        "group.max.size": ("2147483647", 5),
    }
    assert all(each.read_only for each in broker.configs)


def test_altered_settings_hold_at_once_and_after_a_restart() -> None:
    node = InMemoryNode()
    create_topic(node, "t", retention_ms="5")
    change = {"name": "flush.ms", "value": "7", "config_operation": 0}
    resource = {"resource_type": TOPIC, "resource_name": "t", "configs": [change]}
    (answer,) = send_request(node, "IncrementalAlterConfigs", 1, resources=[resource]).responses
    assert answer.error_code == 0
    log = node.topics.get_log("t", 0)
    assert log is not None
    assert (log.config.flush_interval, log.config.retention) == (7, 5)
    again = node.restart(node.disk)
    assert own_settings(again, "t") == {"retention.ms": "5", "flush.ms": "7"}


def test_only_a_check_changes_nothing() -> None:
    node = InMemoryNode()
    create_topic(node, "t")
    change = {"name": "flush.ms", "value": "7", "config_operation": 0}
    resource = {"resource_type": TOPIC, "resource_name": "t", "configs": [change]}
    send_request(node, "IncrementalAlterConfigs", 1, resources=[resource], validate_only=True)
    new = {"name": "n", "num_partitions": 1, "replication_factor": 1}
    send_request(node, "CreateTopics", 7, topics=[new], timeout_ms=1, validate_only=True)
    more = {"name": "t", "count": 5, "assignments": None}
    send_request(node, "CreatePartitions", 3, topics=[more], timeout_ms=1, validate_only=True)
    assert own_settings(node, "t") == {}
    assert [(topic.name, topic.partition_count) for topic in node.topics] == [("t", 1)]
