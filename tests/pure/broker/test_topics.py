"""Topics are made, deleted, grown and changed; a restart finds them, and mends what it must."""

from __future__ import annotations

import pytest

from rota.broker.topics import (
    MAX_TOPIC_PARTITIONS,
    deleted_folder_name,
    find_log,
    single_outcome,
)
from rota.engine.model.config import BrokerConfig, TopicConfig
from rota.errors import Code, DiskError, Refused
from tests.support.faulty_disk import FaultyDisk
from tests.support.node import InMemoryNode
from tests.support.partition_log import producer_batch, read_values
from tests.support.requests import START


def refused_code(error: pytest.ExceptionInfo[Refused]) -> Code:
    return error.value.code


def test_a_topic_is_found_by_its_name_and_its_id() -> None:
    node = InMemoryNode()
    topic = node.topics.create("orders", 3, {"retention.ms": "5"}, START)
    assert node.topics.get("orders") is topic
    assert node.topics.get_by_id(topic.id) is topic
    assert topic.partition_count == 3
    assert topic.config.retention == 5
    assert node.topics.get_log("orders", 2) is topic.logs[2]
    assert node.topics.get_log("orders", 3) is node.topics.get_log("orders", -1) is None
    assert node.topics.get("absent") is node.topics.get_by_id(bytes(16)) is None
    assert node.folders() == {"orders-2"}  # the others have theirs with their first record
    node.append("orders", 0, b"a")
    assert node.folders() == {"orders-0", "orders-2"}


def test_topics_come_in_the_order_of_their_names() -> None:
    node = InMemoryNode()
    for name in ("b", "a", "c", "B"):
        node.topics.create(name, 1, {}, START)
    node.topics.delete("b", START)
    assert [topic.name for topic in node.topics] == ["B", "a", "c"]
    assert len(node.topics) == 3


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_restart_finds_all_topics_again(clean: bool) -> None:
    node = InMemoryNode()
    first = node.topics.create("orders", 2, {"cleanup.policy": "delete,compact"}, START)
    node.topics.create("other", 1, {}, START)
    node.topics.create_partitions("other", 4, START)
    node.append("orders", 1, b"a", b"b")
    cluster = node.topics.cluster_id
    again = node.restart(node.disk, clean=True) if clean else node.restart(node.disk)
    found = again.topics.get("orders")
    assert found is not None
    assert (found.id, found.overrides) == (first.id, {"cleanup.policy": "delete,compact"})
    assert found.config.cleanup_policy == "compact,delete"
    assert again.end_offsets() == {"orders": [0, 2], "other": [0, 0, 0, 0]}
    assert again.topics.cluster_id == cluster
    assert again.log_lines == []


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("orders", Code.TOPIC_ALREADY_EXISTS),
        ("my.orders", Code.INVALID_TOPIC_EXCEPTION),
        ("a b", Code.INVALID_TOPIC_EXCEPTION),
        ("", Code.INVALID_TOPIC_EXCEPTION),
        ("__cluster_metadata", Code.INVALID_REQUEST),
    ],
)
def test_a_name_may_be_refused(name: str, code: Code) -> None:
    node = InMemoryNode()
    node.topics.create("orders", 1, {}, START)
    node.topics.create("my_orders", 1, {}, START)
    with pytest.raises(Refused) as error:
        node.topics.create(name, 1, {}, START)
    assert refused_code(error) is code


@pytest.mark.parametrize("count", [0, -1, MAX_TOPIC_PARTITIONS + 1])
def test_a_number_of_partitions_may_be_refused(count: int) -> None:
    node = InMemoryNode()
    node.topics.create("orders", 1, {}, START)
    with pytest.raises(Refused) as error:
        node.topics.create("new", count, {}, START)
    assert refused_code(error) is Code.INVALID_PARTITIONS
    with pytest.raises(Refused) as error:
        node.topics.create_partitions("orders", count, START)
    assert refused_code(error) is Code.INVALID_PARTITIONS
    assert node.folders() == {"orders-0"}


def test_what_is_not_there_cannot_be_changed() -> None:
    topics = InMemoryNode().topics
    for act in (
        lambda: topics.delete("absent", START),
        lambda: topics.create_partitions("absent", 2, START),
        lambda: single_outcome(topics.configure_all({"absent": {}})),
        lambda: topics.append("absent", 0, b"", START),
        lambda: topics.delete_records_before({("absent", 0): 0}),
    ):
        with pytest.raises(Refused) as error:
            act()
        assert refused_code(error) is Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_gets_other_settings() -> None:
    node = InMemoryNode(topic_config=TopicConfig(retention=77))
    topic = node.topics.create("orders", 2, {"retention.ms": "5"}, START)
    node.topics.configure_all({"orders": {"flush.ms": "9"}})
    assert topic.logs[1].config.flush_interval == 9
    assert topic.logs[1].config.retention == 77
    with pytest.raises(Refused, match="flush.ms") as error:
        single_outcome(node.topics.configure_all({"orders": {"flush.ms": "soon"}}))
    assert refused_code(error) is Code.INVALID_CONFIG
    found = node.restart(node.disk).topics.get("orders")
    assert found is not None
    assert found.overrides == {"flush.ms": "9"}
    assert found.logs[0].config.flush_interval == 9


def test_a_setting_that_is_not_known_any_more_is_ignored_and_said() -> None:
    node = InMemoryNode()
    node.topics.create("orders", 1, {"flush.ms": "9", "retention.ms": "5"}, START)
    catalog = node.disk.read("rota.catalog", 0, 10_000)
    assert b"flush.ms" in catalog
    entry = node.folder.catalog.topics["orders"]
    wrong = type(entry)(name="orders", id=entry.id, partitions=1, overrides={"flush.ms": "x"})
    node.folder.catalog.change_topics(put=[wrong])
    again = node.restart(node.disk)
    found = again.topics.get("orders")
    assert found is not None
    assert found.config == TopicConfig()
    assert again.log_lines == [
        "topic 'orders': a setting is ignored: flush.ms: 'x' is not a whole number "
        "from 0 to 9223372036854775807"
    ]


# Deletion


def test_a_deleted_topic_is_gone_at_once_and_its_files_soon() -> None:
    node = InMemoryNode()
    old = node.topics.create("orders", 2, {}, START)
    node.append("orders", 0, b"a")
    told: list[str] = []
    node.topics.on_deleted(lambda topic, now: told.append(f"{topic.name} {now}"))
    node.topics.watch("orders", 1, lambda: told.append("watcher"))
    node.topics.delete("orders", START)
    assert told == [f"orders {START}", "watcher"]
    assert node.topics.get("orders") is node.topics.get_by_id(old.id) is None
    assert node.folders() == {deleted_folder_name("orders", n, old.id) for n in (0, 1)}
    new = node.topics.create("orders", 1, {}, START)
    assert new.id != old.id
    assert node.end_offsets() == {"orders": [0]}
    node.advance(10_000)
    assert node.folders() == {"orders-0"}
    assert node.restart(node.disk).end_offsets() == {"orders": [0]}


def test_what_a_deletion_left_is_removed_at_the_next_start() -> None:
    node = InMemoryNode()
    node.topics.create("orders", 2, {}, START)
    node.topics.delete("orders", START)
    again = node.restart(node.disk)
    assert any("folders of deleted topics are removed" in line for line in again.log_lines)
    again.advance(10_000)
    assert again.folders() == set()


def test_folders_of_deleted_topics_have_names_that_fit_a_disk() -> None:
    names = {deleted_folder_name("x" * 249, number, bytes(range(16))) for number in range(12)}
    assert len(names) == 12
    assert all(len(name) <= 255 for name in names)
    node = InMemoryNode()
    node.topics.create("x" * 249, 11, {}, START)
    node.topics.delete("x" * 249, START)
    again = node.restart(node.disk)
    again.advance(10_000)
    assert again.folders() == set()


# Watchers


def test_watchers_hear_of_records_until_they_do_not_watch() -> None:
    node = InMemoryNode()
    node.topics.create("orders", 2, {}, START)
    heard: list[str] = []

    def one() -> None:
        heard.append("one")
        node.topics.unwatch("orders", 0, one)

    def two() -> None:
        heard.append("two")

    node.topics.watch("orders", 0, one)
    node.topics.watch("orders", 0, two)
    node.append("orders", 1, b"elsewhere")
    node.append("orders", 0, b"a")
    node.append("orders", 0, b"b")
    node.topics.delete_records_before({("orders", 0): 1})
    node.topics.append_records("orders", 0, [(b"k", b"v")], START)
    node.topics.unwatch("orders", 0, two)
    node.topics.unwatch("orders", 0, two)
    node.append("orders", 0, b"c")
    assert heard == ["one", "two", "two", "two", "two"]


# From time to time


def test_old_segments_are_deleted() -> None:
    node = InMemoryNode()
    node.topics.create("orders", 1, {"retention.ms": "1000", "segment.ms": "500"}, START)
    node.append("orders", 0, b"a")
    node.advance(600)
    node.append("orders", 0, b"b")
    node.advance(1_500 + BrokerConfig().retention_check)
    log = node.topics.get_log("orders", 0)
    assert log is not None
    assert log.log_start_offset == 2
    assert node.restart(node.disk).topics.get_log("orders", 0).log_start_offset == 2  # type: ignore[union-attr]


def test_a_segment_ends_where_its_index_is_full() -> None:
    node = InMemoryNode()
    settings = {"segment.index.bytes": "32", "index.interval.bytes": "100"}
    node.topics.create("orders", 1, settings, START)
    for _ in range(20):
        node.append("orders", 0, b"x" * 100)
    log = node.topics.get_log("orders", 0)
    assert log is not None
    assert len(log.segments) > 3
    assert node.restart(node.disk).end_offsets() == {"orders": [20]}


def test_what_was_written_is_flushed_in_time() -> None:
    node = InMemoryNode()
    node.topics.create("orders", 1, {"flush.ms": "100"}, START)
    node.append("orders", 0, b"a")
    log = node.topics.get_log("orders", 0)
    assert log is not None
    node.advance(99)
    assert log.recovery_point == 0
    node.advance(1)
    assert log.recovery_point == 1
    node.append("orders", 0, b"b")
    node.advance(100)
    assert log.recovery_point == 2
    disk = node.disk
    assert node.restart(disk.crash(least=True)).end_offsets() == {"orders": [2]}


def test_recovery_points_and_starts_are_saved() -> None:
    node = InMemoryNode()
    node.topics.create("orders", 1, {"flush.ms": "0"}, START)
    node.append("orders", 0, b"a", b"b", b"c")
    node.topics.delete_records_before({("orders", 0): 2})
    assert node.restart(node.disk).folder.log_start_offsets == {("orders", 0): 2}
    node.advance(BrokerConfig().checkpoint_interval)
    again = node.restart(node.disk)
    assert again.folder.recovery_points == {("orders", 0): 3}
    log = again.topics.get_log("orders", 0)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (2, 3)


def test_a_failing_disk_does_not_end_the_broker() -> None:
    disk = FaultyDisk()
    node = InMemoryNode(disk)
    node.topics.create("orders", 1, {"flush.ms": "100"}, START)
    node.append("orders", 0, b"a")
    disk.refuse("sync", "orders-0/*")
    node.advance(100)
    assert any("flushing orders-0 failed" in line for line in node.log_lines)
    disk.refuse("replace", "recovery-point*")
    node.advance(BrokerConfig().checkpoint_interval)
    assert any("saving the recovery points failed" in line for line in node.log_lines)


# The journal


def test_the_journal_is_made_on_first_need() -> None:
    config = BrokerConfig(offsets_partitions=3, offsets_segment_bytes=2_000)
    node = InMemoryNode(config=config)
    journal = node.topics.get_or_create_journal(START)
    assert node.topics.get_or_create_journal(START) is journal
    assert (journal.name, journal.partition_count, journal.is_internal) == (
        "__consumer_offsets",
        3,
        True,
    )
    assert journal.config.cleanup_policy == "compact"
    assert journal.config.segment_bytes == 2_000
    found = node.restart(node.disk).topics.get_or_create_journal(START)
    assert found.id == journal.id
    assert found.config.segment_bytes == 2_000


# Producers


def test_a_producer_id_is_never_given_twice() -> None:
    node = InMemoryNode()
    given = [node.topics.new_producer_id() for _ in range(3)]
    again = node.restart(node.disk)
    given += [again.topics.new_producer_id() for _ in range(1_500)]
    given.append(again.restart(again.disk).topics.new_producer_id())
    assert len(set(given)) == len(given)


def test_a_producer_id_that_a_log_knows_is_not_given_again() -> None:
    """As after the loss of the catalogue, or where a Kafka had given it."""
    node = InMemoryNode()
    node.topics.create("orders", 2, {}, START)
    batch = producer_batch(b"a", producer_id=70_000, producer_epoch=0, base_sequence=0)
    node.topics.append("orders", 1, batch, START)
    assert node.restart(node.disk).topics.new_producer_id() == 70_001
    assert node.restart(node.disk, clean=True).topics.new_producer_id() > 70_001


def under_compaction(node: InMemoryNode) -> None:
    """A topic whose compaction has begun, and has not ended."""
    settings = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": "400",
        "min.cleanable.dirty.ratio": "0.01",
    }
    node.topics.create("orders", 1, settings, START)
    for _ in range(20):
        node.append("orders", 0, b"a", b"b")
    node.advance(BrokerConfig().cleaner_backoff)
    assert node.folder.cleaner_points == {}


@pytest.mark.parametrize("anew", [False, True], ids=["gone", "made anew"])
def test_the_compaction_of_a_topic_ends_with_it(anew: bool) -> None:
    node = InMemoryNode()
    under_compaction(node)
    node.topics.delete("orders", node.now)
    if anew:
        node.topics.create("orders", 1, {}, node.now)
        node.append("orders", 0, b"new")
    node.advance(10 * BrokerConfig().cleaner_backoff)
    assert node.log_lines == []
    assert node.folder.cleaner_points == {}
    assert node.folders() == ({"orders-0"} if anew else set())
    if anew:
        log = node.topics.get_log("orders", 0)
        assert log is not None
        assert read_values(log) == [(0, b"new")]
        assert not any(
            ".cleaned" in name or ".swap" in name for name in node.disk.list_names("orders-0")
        )


def test_a_compaction_that_is_not_disturbed_ends_by_itself() -> None:
    node = InMemoryNode()
    under_compaction(node)
    node.advance(10 * BrokerConfig().cleaner_backoff)
    assert node.folder.cleaner_points[("orders", 0)] > 0
    assert node.log_lines == []


# What a start finds


def test_a_missing_folder_is_made_anew_and_said() -> None:
    node = InMemoryNode()
    node.topics.create("orders", 2, {}, START)
    node.append("orders", 0, b"a")
    node.append("orders", 1, b"a")
    node.advance(BrokerConfig().checkpoint_interval)
    node.disk.remove("orders-1")
    again = node.restart(node.disk)
    assert again.end_offsets() == {"orders": [1, 0]}
    assert again.log_lines == ["these folders were lost and have no records now: orders-1"]
    again.append("orders", 1, b"b")
    assert again.restart(again.disk).end_offsets() == {"orders": [1, 1]}


def test_a_stray_folder_with_records_is_left_alone_and_said() -> None:
    node = InMemoryNode()
    node.topics.create("orders", 1, {}, START)
    node.append("orders", 0, b"a")
    node.disk.rename("orders-0", "lost-0")
    again = node.restart(node.disk)
    assert (
        "lost-0: left alone; it has records but belongs to no topic in the catalogue"
        in again.log_lines
    )
    assert "lost-0" in again.folders()
    with pytest.raises(Refused, match="lost-0 is in the way") as error:
        again.topics.create("lost", 2, {}, START)
    assert refused_code(error) is Code.KAFKA_STORAGE_ERROR
    with pytest.raises(Refused, match="lost-0 is in the way"):
        again.topics.create("lost", 1, {}, START)
    assert again.folders() == {"lost-0"}


def node_with_kafka_folder() -> InMemoryNode:
    """One partition has the folder of another topic in place of its own, whose start was 1."""
    node = InMemoryNode()
    for name in ("orders", "other"):
        node.topics.create(name, 2, {}, START)
    node.append("orders", 0, b"a")
    node.append("orders", 1, b"b", b"c")
    node.append("other", 0, b"d", b"e", b"f")
    node.topics.delete_records_before({("orders", 1): 1})
    node.disk.rename("orders-1", "put.aside")
    node.disk.rename("other-0", "orders-1")
    return node.restart(node.disk)


def test_a_folder_of_another_topic_is_not_served_but_all_others_are() -> None:
    node = node_with_kafka_folder()
    assert any(
        "the partition orders-1 is offline: the folder orders-1 belongs to" in each
        for each in node.log_lines
    )
    log = node.topics.get_log("orders", 1)
    assert log is not None
    for act in (
        lambda: node.append("orders", 1, b"g"),
        lambda: log.read(0, 1000),
        lambda: find_log(node.topics.get("orders"), 1),  # type: ignore[arg-type]
    ):
        with pytest.raises(Refused, match="belongs to another topic") as error:
            act()
        assert refused_code(error) is Code.KAFKA_STORAGE_ERROR
    node.append("orders", 0, b"g")
    assert node.end_offsets()["orders"] == [2, 0]


def test_a_folder_that_is_put_back_is_as_it_was() -> None:
    node = node_with_kafka_folder()
    again = node.restart(node.disk, clean=True)
    again.topics.close(START)
    again.disk.rename("orders-1", "other-0")
    again.disk.rename("put.aside", "orders-1")
    last = again.restart(again.disk)
    log = last.topics.get_log("orders", 1)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset, last.end_offsets()["other"]) == (1, 2, [3, 0])


def test_a_folder_of_another_topic_outlives_the_deletion_of_this_one() -> None:
    node = node_with_kafka_folder()
    node.topics.delete("orders", START)
    node.advance(60_000)
    assert "orders-1" in node.folders()
    assert "orders-0" not in node.folders()
    with pytest.raises(Refused, match="orders-1 is in the way"):
        node.topics.create("orders", 2, {}, START)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_flipped_bit_in_what_a_folder_says_of_its_topic_is_mended(clean: bool) -> None:
    """The catalogue has a checksum, and knows better."""
    disk = FaultyDisk()
    node = InMemoryNode(disk)
    node.topics.create("orders", 1, {}, START)
    node.append("orders", 0, b"a", b"b")
    if clean:
        node.topics.close(START)
    path = "orders-0/partition.metadata"
    right = disk.content(path)
    for bit in range(8 * len(right)):
        damaged = disk.kill()
        damaged.flip(path, bit)
        again = node.restart(damaged)
        assert again.end_offsets() == {"orders": [2]}
        again.append("orders", 0, b"c")
        if damaged.content(path) != right:  # bits that no id has: base 64 has two of them left over
            assert again.log_lines == []
            continue
        assert again.log_lines == [f"{path}: it does not have the topic's id; rewritten"]


def test_what_is_in_the_way_of_a_first_record_is_not_overwritten() -> None:
    disk = FaultyDisk()
    node = InMemoryNode(disk)
    node.topics.create("orders", 2, {}, START)
    disk.put("orders-0/00000000000000000000.log", b"someone's")
    with pytest.raises(Refused, match="the folder orders-0 is in the way") as error:
        node.append("orders", 0, b"a")
    assert refused_code(error) is Code.KAFKA_STORAGE_ERROR
    assert disk.content("orders-0/00000000000000000000.log") == b"someone's"


def test_a_first_record_is_taken_when_the_disk_works_again() -> None:
    for operation in ("make_folder", "append"):
        for step in range(7):
            disk = FaultyDisk()
            node = InMemoryNode(disk)
            node.topics.create("orders", 2, {}, START)
            disk.refuse(operation, "orders-0*", skip=step)
            try:
                node.append("orders", 0, b"a")
            except DiskError:
                disk.allow()
                assert node.restart(disk.kill()).end_offsets() == {"orders": [0, 0]}
                node.append("orders", 0, b"a")
            assert node.restart(disk.kill()).end_offsets() == {"orders": [1, 0]}


def test_a_log_that_cannot_be_read_stops_the_start_with_its_name() -> None:
    disk = FaultyDisk()
    node = InMemoryNode(disk)
    node.topics.create("orders", 1, {}, START)
    node.append("orders", 0, b"a")
    disk.refuse("read", "orders-0/*.log", times=9)
    with pytest.raises(DiskError, match="orders-0/"):
        node.restart(node.disk)


@pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power cut"])
def test_a_topic_made_anew_has_nothing_of_the_old_one(power_cut: bool) -> None:
    """What the checkpoints say of a deleted topic must not hold for one of the same name."""
    disk = FaultyDisk()
    node = InMemoryNode(disk)
    node.topics.create("orders", 1, {"cleanup.policy": "delete,compact", "flush.ms": "0"}, START)
    for _ in range(5):
        node.append("orders", 0, b"a", b"b")
    node.topics.delete_records_before({("orders", 0): 7})
    node.folder.save_cleaner_points({("orders", 0): 8})
    node.advance(BrokerConfig().checkpoint_interval)
    assert node.folder.recovery_points == {("orders", 0): 10}
    node.topics.delete("orders", START)
    node.topics.create("orders", 1, {"flush.messages": "1"}, START)
    node.append("orders", 0, b"a", b"b", b"c")
    again = node.restart(disk.crash(least=True) if power_cut else disk.kill())
    log = again.topics.get_log("orders", 0)
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
    assert not again.folder.cleaner_points
    assert again.log_lines == [] or "deleted topics are removed" in again.log_lines[0]


def test_a_start_forgets_what_it_knows_of_topics_that_are_not_there() -> None:
    node = InMemoryNode()
    node.folder.save_checkpoints({("orders", 0): 50}, {("orders", 0): 40})
    again = node.restart(node.disk)
    assert (again.folder.recovery_points, again.folder.log_start_offsets) == ({}, {})


def test_a_folder_made_anew_is_not_taken_for_the_lost_one() -> None:
    disk = FaultyDisk()
    node = InMemoryNode(disk)
    node.topics.create("orders", 1, {"flush.ms": "0"}, START)
    node.append("orders", 0, *[b"a"] * 10)
    node.topics.delete_records_before({("orders", 0): 7})
    node.advance(BrokerConfig().checkpoint_interval)
    disk.remove("orders-0")
    again = node.restart(disk.kill())
    assert again.folder.recovery_points == {}
    again.append("orders", 0, b"b", b"c")
    assert again.restart(again.disk).end_offsets() == {"orders": [2]}
    log = again.restart(again.disk).topics.get_log("orders", 0)
    assert log is not None
    assert log.log_start_offset == 0
