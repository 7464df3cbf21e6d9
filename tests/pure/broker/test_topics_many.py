"""Many topics or partitions by one request, and a stop with many: what the disk has to do for it.

Nobody else is served meanwhile. Time is not measured here, but what it goes into is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from rota.broker.handlers.metadata import MAX_AUTO_CREATED_TOPICS
from rota.broker.storage.catalog import CATALOG_FILE
from rota.broker.storage.log_directory import CLEAN_SHUTDOWN_FILE, LOG_START_CHECKPOINT
from rota.broker.topics import MAX_TOPIC_PARTITIONS, MAX_TOPICS_PER_REQUEST, NewTopic, Topic
from rota.engine.formats.buffer import Bytes
from rota.errors import Code, DiskError, Refused
from tests.support.differential_side import Plain, fill_request
from tests.support.faulty_disk import FaultyDisk
from tests.support.node import InMemoryNode
from tests.support.requests import START, batch

TOPIC = 2


class CountingDisk(FaultyDisk):
    """Counts what it is asked to do."""

    def __init__(self) -> None:
        super().__init__()
        self.saves: Counter[str] = Counter()
        self.synced: Counter[str] = Counter()

    def replace(self, path: str, data: Bytes) -> None:
        self.saves[path] += 1
        super().replace(path, data)

    def sync(self, path: str) -> None:
        self.synced[path] += 1
        super().sync(path)

    def count(self, act: Callable[[], object]) -> int:
        """How many changes an act makes; saves and syncs are counted from here on."""
        self.saves.clear()
        self.synced.clear()
        before = self.changes
        act()
        return self.changes - before


def topic_names(count: int) -> list[str]:
    return [f"t{number:05}" for number in range(count)]


def create_topics(node: InMemoryNode, asked: Sequence[str], partitions: int = 1) -> Any:
    topics: Plain = [
        {"name": name, "num_partitions": partitions, "replication_factor": 1} for name in asked
    ]
    return (
        node.connect().ask(fill_request("CreateTopics", 7, topics=topics, timeout_ms=1_000)).topics
    )


def create_by_metadata(node: InMemoryNode, asked: Sequence[str]) -> Any:
    topics: Plain = [{"name": name} for name in asked]
    return (
        node.connect()
        .ask(fill_request("Metadata", 4, topics=topics, allow_auto_topic_creation=True))
        .topics
    )


def delete_topics(node: InMemoryNode, asked: Sequence[str]) -> Any:
    return (
        node.connect()
        .ask(fill_request("DeleteTopics", 5, topic_names=[*asked], timeout_ms=1_000))
        .responses
    )


def create_partitions(node: InMemoryNode, asked: Sequence[str]) -> Any:
    topics: Plain = [{"name": name, "count": 3, "assignments": None} for name in asked]
    return (
        node.connect()
        .ask(fill_request("CreatePartitions", 3, topics=topics, timeout_ms=1_000))
        .results
    )


def alter_configs(node: InMemoryNode, asked: Sequence[str]) -> Any:
    setting: Plain = {"name": "retention.ms", "value": "5", "config_operation": 0}
    resources: Plain = [
        {"resource_type": TOPIC, "resource_name": name, "configs": [setting]} for name in asked
    ]
    return (
        node.connect()
        .ask(fill_request("IncrementalAlterConfigs", 1, resources=resources))
        .responses
    )


MAKING = (create_topics, create_by_metadata)
CHANGING = (delete_topics, create_partitions, alter_configs)


@pytest.mark.parametrize("act", [*MAKING, *CHANGING])
def test_a_request_for_many_topics_saves_the_catalogue_once(
    act: Callable[[InMemoryNode, Sequence[str]], Any],
) -> None:
    costs = []
    for count in (1, 50, 100):
        disk = CountingDisk()
        node = InMemoryNode(disk=disk)
        if act in CHANGING:
            create_topics(node, topic_names(count))
        answers: list[Any] = []
        costs.append(disk.count(lambda: answers.extend(act(node, topic_names(count)))))  # noqa: B023
        assert [each.error_code for each in answers] == [0] * count
        assert disk.saves[CATALOG_FILE] == 1
    one, fifty, hundred = costs
    assert hundred - fifty == 50 * (fifty - one) // 49  # as much for each, however many there are
    assert (hundred - fifty) // 50 <= 3


def test_a_topic_costs_the_disk_the_same_whatever_its_partitions() -> None:
    disk = CountingDisk()
    node = InMemoryNode(disk=disk)
    costs = {
        disk.count(partial(create_topics, node, [f"t{count}"], count)) for count in (1, 10, 1_000)
    }
    assert len(costs) == 1
    assert {topic.partition_count for topic in node.topics} == {1, 10, 1_000}
    assert {topic.partition_count for topic in node.restart(node.disk).topics} == {1, 10, 1_000}


def test_records_of_many_partitions_are_deleted_by_one_save() -> None:
    disk = CountingDisk()
    node = InMemoryNode(disk)
    node.create_topic("t", 50)
    peer = node.connect()
    for partition in range(50):
        peer.store(batch(b"a", b"b"), partition=partition)
    partitions: list[Plain] = [{"partition_index": n, "offset": 1} for n in range(51)]
    asked = fill_request("DeleteRecords", 2, topics=[{"name": "t", "partitions": partitions}])
    answers: list[Any] = []
    disk.count(lambda: answers.append(peer.ask(asked, 2)))
    assert disk.saves[LOG_START_CHECKPOINT] == 1
    (topic,) = answers[0].topics
    found = [(each.error_code, each.low_watermark) for each in topic.partitions]
    assert found == [(0, 1)] * 50 + [(Code.UNKNOWN_TOPIC_OR_PARTITION, -1)]


# Each by itself


def test_names_that_collide_within_a_request() -> None:
    node = InMemoryNode()
    codes = [each.error_code for each in create_topics(node, ["a.b", "ok", "a_b", "no no"])]
    assert codes == [0, 0, Code.INVALID_TOPIC_EXCEPTION, Code.INVALID_TOPIC_EXCEPTION]
    assert [topic.name for topic in node.topics] == ["a.b", "ok"]
    delete_topics(node, ["a.b"])
    assert create_topics(node, ["a_b"])[0].error_code == 0


def test_a_topic_that_the_disk_refuses_does_not_stop_the_others() -> None:
    disk = FaultyDisk()
    node = InMemoryNode(disk)
    disk.refuse("make_folder", "b-*")
    outcomes = node.topics.create_all([NewTopic(name, 2, {}) for name in "abc"], START)
    assert [isinstance(each, Refused) for each in outcomes] == [False, True, False]
    assert list(node.restart(node.disk).end_offsets()) == ["a", "c"]


@pytest.mark.parametrize("path", [CATALOG_FILE, f"{CATALOG_FILE}.copy"])
def test_a_catalogue_that_cannot_be_saved_leaves_all_as_it_was(path: str) -> None:
    disk = FaultyDisk()
    node = InMemoryNode(disk)
    node.topics.create_all([NewTopic(name, 1, {}) for name in "xyz"], START)
    for name in "xyz":
        node.append(name, 0, b"a")
    before, folders = node.end_offsets(), node.folders()
    settings = {name: {"retention.ms": "5"} for name in "xyz"}
    acts: list[Callable[[], list[Topic | Refused]]] = [
        lambda: node.topics.create_all([NewTopic(name, 2, {}) for name in "abc"], START),
        lambda: node.topics.delete_all("xyz", START),
        lambda: node.topics.create_partitions_all(dict.fromkeys("xyz", 3), START),
        lambda: node.topics.configure_all(settings),
    ]
    for act in acts:
        disk.refuse("replace", path)
        assert [each.code for each in act() if isinstance(each, Refused)] == [
            Code.KAFKA_STORAGE_ERROR
        ] * 3
        assert (node.end_offsets(), node.folders()) == (before, folders)
        assert node.restart(disk.kill()).end_offsets() == before
    assert len(node.topics.create_all([NewTopic(name, 2, {}) for name in "abc"], START)) == 3
    assert list(node.end_offsets()) == [*"abcxyz"]


# No more than that


def test_a_request_for_too_many_is_refused_and_names_the_limit() -> None:
    node = InMemoryNode()
    for answers in (
        create_topics(node, topic_names(MAX_TOPICS_PER_REQUEST + 1)),
        create_topics(node, "ab", MAX_TOPIC_PARTITIONS - 1),
    ):
        assert {each.error_code for each in answers} == {Code.POLICY_VIOLATION}
        assert (
            f"{MAX_TOPICS_PER_REQUEST} topics and {MAX_TOPIC_PARTITIONS} partitions"
            in answers[0].error_message
        )
    assert len(node.topics) == 0


def test_of_too_many_names_the_first_are_made_and_the_others_when_asked_again() -> None:
    node = InMemoryNode()
    asked = topic_names(MAX_AUTO_CREATED_TOPICS + 5)
    codes = Counter(each.error_code for each in create_by_metadata(node, asked))
    assert codes == {0: MAX_AUTO_CREATED_TOPICS, Code.UNKNOWN_TOPIC_OR_PARTITION: 5}
    assert {each.error_code for each in create_by_metadata(node, asked)} == {0}


# A stop


def node_with_dirty_logs(partitions: int) -> tuple[CountingDisk, InMemoryNode]:
    disk = CountingDisk()
    node = InMemoryNode(disk)
    node.topics.create("t", partitions, {}, START)
    for partition in range(partitions):
        node.append("t", partition, b"a", b"b")
    return disk, node


def test_a_stop_syncs_each_log_once_and_each_new_folder_once() -> None:
    disk, node = node_with_dirty_logs(50)
    disk.count(lambda: node.topics.close(START))
    logs = [f"t-{number}/{0:020}.log" for number in range(50)]
    assert disk.synced == Counter([*logs, *(f"t-{number}" for number in range(50)), ""])
    again = node.restart(node.disk)
    again.append("t", 7, b"c")
    disk.count(lambda: again.topics.close(START))
    assert disk.synced == {logs[7]: 1, "": 1}


def test_after_a_clean_stop_a_loss_of_power_takes_no_record() -> None:
    disk, node = node_with_dirty_logs(5)
    node.topics.close(START)
    for seed in range(20):
        left = disk.crash(least=not seed)
        again = node.restart(left)
        assert again.end_offsets() == {"t": [2] * 5}
        assert again.folder.clean_shutdown


def test_a_stop_whose_sync_fails_is_not_marked_clean() -> None:
    disk, node = node_with_dirty_logs(5)
    disk.refuse("sync", "t-3/*")
    with pytest.raises(DiskError, match="t-3/"):
        node.topics.close(START)
    assert disk.size(CLEAN_SHUTDOWN_FILE) is None
    assert node.folder.recovery_points["t", 3] == 0
    assert node.folder.recovery_points["t", 4] == 2


def test_a_stop_with_a_log_that_has_failed_is_not_marked_clean() -> None:
    """What a sync could not write may be lost, though the next one says that all is well."""
    disk, node = node_with_dirty_logs(2)
    log = node.topics.get_log("t", 1)
    assert log is not None
    disk.refuse("sync", "t-1/*")
    with pytest.raises(DiskError):
        log.flush()
    node.topics.close(START)
    assert disk.size(CLEAN_SHUTDOWN_FILE) is None
    assert node.log_lines[-1] == "the next start recovers all logs, because these have failed: t-1"
