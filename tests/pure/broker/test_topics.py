"""Topics are made, deleted, grown and changed; a restart finds them, and mends what it must."""

from __future__ import annotations

import pytest

from rota.broker.handlers.partition import log_of
from rota.broker.topic import MOST_PARTITIONS, deleted_name
from rota.errors import Code, DiskError, Refused
from rota.model.config import BrokerConfig, TopicConfig
from tests.support.faulty_disk import FaultyDisk
from tests.support.partition_log import sent, values
from tests.support.topic_store import NOW, Store


def refusal(error: pytest.ExceptionInfo[Refused]) -> Code:
    return error.value.code


def test_a_topic_is_found_by_its_name_and_its_id() -> None:
    store = Store()
    topic = store.topics.create("orders", 3, {"retention.ms": "5"}, NOW)
    assert store.topics.get("orders") is topic
    assert store.topics.by_id(topic.id) is topic
    assert topic.partitions == 3
    assert topic.config.retention == 5
    assert store.topics.log("orders", 2) is topic.logs[2]
    assert store.topics.log("orders", 3) is store.topics.log("orders", -1) is None
    assert store.topics.get("absent") is store.topics.by_id(bytes(16)) is None
    assert store.folders() == {"orders-2"}  # the others have theirs with their first record
    store.write("orders", 0, b"a")
    assert store.folders() == {"orders-0", "orders-2"}


def test_topics_come_in_the_order_of_their_names() -> None:
    store = Store()
    for name in ("b", "a", "c", "B"):
        store.topics.create(name, 1, {}, NOW)
    store.topics.delete("b", NOW)
    assert [topic.name for topic in store.topics] == ["B", "a", "c"]
    assert len(store.topics) == 3


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_restart_finds_all_topics_again(clean: bool) -> None:
    store = Store()
    first = store.topics.create("orders", 2, {"cleanup.policy": "delete,compact"}, NOW)
    store.topics.create("other", 1, {}, NOW)
    store.topics.grow("other", 4, NOW)
    store.write("orders", 1, b"a", b"b")
    cluster = store.topics.cluster_id
    again = store.stop() if clean else store.restart()
    found = again.topics.get("orders")
    assert found is not None
    assert (found.id, found.overrides) == (first.id, {"cleanup.policy": "delete,compact"})
    assert found.config.cleanup_policy == "compact,delete"
    assert again.ends() == {"orders": [0, 2], "other": [0, 0, 0, 0]}
    assert again.topics.cluster_id == cluster
    assert again.said == []


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
    store = Store()
    store.topics.create("orders", 1, {}, NOW)
    store.topics.create("my_orders", 1, {}, NOW)
    with pytest.raises(Refused) as error:
        store.topics.create(name, 1, {}, NOW)
    assert refusal(error) is code


@pytest.mark.parametrize("count", [0, -1, MOST_PARTITIONS + 1])
def test_a_number_of_partitions_may_be_refused(count: int) -> None:
    store = Store()
    store.topics.create("orders", 1, {}, NOW)
    with pytest.raises(Refused) as error:
        store.topics.create("new", count, {}, NOW)
    assert refusal(error) is Code.INVALID_PARTITIONS
    with pytest.raises(Refused) as error:
        store.topics.grow("orders", count, NOW)
    assert refusal(error) is Code.INVALID_PARTITIONS
    assert store.folders() == {"orders-0"}


def test_what_is_not_there_cannot_be_changed() -> None:
    topics = Store().topics
    for act in (
        lambda: topics.delete("absent", NOW),
        lambda: topics.grow("absent", 2, NOW),
        lambda: topics.configure("absent", {}, NOW),
        lambda: topics.append("absent", 0, b"", NOW),
        lambda: topics.delete_before("absent", 0, 0, NOW),
    ):
        with pytest.raises(Refused) as error:
            act()
        assert refusal(error) is Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_gets_other_settings() -> None:
    store = Store(defaults=TopicConfig(retention=77))
    topic = store.topics.create("orders", 2, {"retention.ms": "5"}, NOW)
    store.topics.configure("orders", {"flush.ms": "9"}, NOW)
    assert topic.logs[1].config.flush_interval == 9
    assert topic.logs[1].config.retention == 77
    with pytest.raises(Refused, match="flush.ms") as error:
        store.topics.configure("orders", {"flush.ms": "soon"}, NOW)
    assert refusal(error) is Code.INVALID_CONFIG
    found = store.restart().topics.get("orders")
    assert found is not None
    assert found.overrides == {"flush.ms": "9"}
    assert found.logs[0].config.flush_interval == 9


def test_a_setting_that_is_not_known_any_more_is_ignored_and_said() -> None:
    store = Store()
    store.topics.create("orders", 1, {"flush.ms": "9", "retention.ms": "5"}, NOW)
    catalog = store.disk.read("rota.catalog", 0, 10_000)
    assert b"flush.ms" in catalog
    entry = store.folder.catalog.topics["orders"]
    wrong = type(entry)(name="orders", id=entry.id, partitions=1, overrides={"flush.ms": "x"})
    store.folder.catalog.put(wrong)
    again = store.restart()
    found = again.topics.get("orders")
    assert found is not None
    assert found.config == TopicConfig()
    assert again.said == [
        "topic 'orders': a setting is ignored: flush.ms: 'x' is not a whole number "
        "from 0 to 9223372036854775807"
    ]


# Deletion


def test_a_deleted_topic_is_gone_at_once_and_its_files_soon() -> None:
    store = Store()
    old = store.topics.create("orders", 2, {}, NOW)
    store.write("orders", 0, b"a")
    told: list[str] = []
    store.topics.on_deleted(lambda topic, now: told.append(f"{topic.name} {now}"))
    store.topics.watch("orders", 1, lambda: told.append("watcher"))
    store.topics.delete("orders", NOW)
    assert told == [f"orders {NOW}", "watcher"]
    assert store.topics.get("orders") is store.topics.by_id(old.id) is None
    assert store.folders() == {deleted_name("orders", n, old.id) for n in (0, 1)}
    new = store.topics.create("orders", 1, {}, NOW)
    assert new.id != old.id
    assert store.ends() == {"orders": [0]}
    store.wait(10_000)
    assert store.folders() == {"orders-0"}
    assert store.restart().ends() == {"orders": [0]}


def test_what_a_deletion_left_is_removed_at_the_next_start() -> None:
    store = Store()
    store.topics.create("orders", 2, {}, NOW)
    store.topics.delete("orders", NOW)
    again = store.restart()
    assert any("folders of deleted topics are removed" in line for line in again.said)
    again.wait(10_000)
    assert again.folders() == set()


def test_folders_of_deleted_topics_have_names_that_fit_a_disk() -> None:
    names = {deleted_name("x" * 249, number, bytes(range(16))) for number in range(12)}
    assert len(names) == 12
    assert all(len(name) <= 255 for name in names)
    store = Store()
    store.topics.create("x" * 249, 11, {}, NOW)
    store.topics.delete("x" * 249, NOW)
    again = store.restart()
    again.wait(10_000)
    assert again.folders() == set()


# Watchers


def test_watchers_hear_of_records_until_they_do_not_watch() -> None:
    store = Store()
    store.topics.create("orders", 2, {}, NOW)
    heard: list[str] = []

    def one() -> None:
        heard.append("one")
        store.topics.unwatch("orders", 0, one)

    def two() -> None:
        heard.append("two")

    store.topics.watch("orders", 0, one)
    store.topics.watch("orders", 0, two)
    store.write("orders", 1, b"elsewhere")
    store.write("orders", 0, b"a")
    store.write("orders", 0, b"b")
    store.topics.delete_before("orders", 0, 1, NOW)
    store.topics.append_records("orders", 0, [(b"k", b"v")], NOW)
    store.topics.unwatch("orders", 0, two)
    store.topics.unwatch("orders", 0, two)
    store.write("orders", 0, b"c")
    assert heard == ["one", "two", "two", "two", "two"]


# From time to time


def test_old_segments_are_deleted() -> None:
    store = Store()
    store.topics.create("orders", 1, {"retention.ms": "1000", "segment.ms": "500"}, NOW)
    store.write("orders", 0, b"a")
    store.wait(600)
    store.write("orders", 0, b"b")
    store.wait(1_500 + BrokerConfig().retention_check)
    log = store.topics.log("orders", 0)
    assert log is not None
    assert log.start == 2
    assert store.restart().topics.log("orders", 0).start == 2  # type: ignore[union-attr]


def test_a_segment_ends_where_its_index_is_full() -> None:
    store = Store()
    settings = {"segment.index.bytes": "32", "index.interval.bytes": "100"}
    store.topics.create("orders", 1, settings, NOW)
    for _ in range(20):
        store.write("orders", 0, b"x" * 100)
    log = store.topics.log("orders", 0)
    assert log is not None
    assert len(log.segments) > 3
    assert store.restart().ends() == {"orders": [20]}


def test_what_was_written_is_flushed_in_time() -> None:
    store = Store()
    store.topics.create("orders", 1, {"flush.ms": "100"}, NOW)
    store.write("orders", 0, b"a")
    log = store.topics.log("orders", 0)
    assert log is not None
    store.wait(99)
    assert log.recovery_point == 0
    store.wait(1)
    assert log.recovery_point == 1
    store.write("orders", 0, b"b")
    store.wait(100)
    assert log.recovery_point == 2
    disk = store.disk
    assert isinstance(disk, FaultyDisk)
    assert store.restart(disk.crash(least=True)).ends() == {"orders": [2]}


def test_recovery_points_and_starts_are_saved() -> None:
    store = Store()
    store.topics.create("orders", 1, {"flush.ms": "0"}, NOW)
    store.write("orders", 0, b"a", b"b", b"c")
    store.topics.delete_before("orders", 0, 2, NOW)
    assert store.restart().folder.log_starts == {("orders", 0): 2}
    store.wait(BrokerConfig().checkpoint_interval)
    again = store.restart()
    assert again.folder.recovery_points == {("orders", 0): 3}
    log = again.topics.log("orders", 0)
    assert log is not None
    assert (log.start, log.end) == (2, 3)


def test_a_failing_disk_does_not_end_the_broker() -> None:
    disk = FaultyDisk()
    store = Store(disk)
    store.topics.create("orders", 1, {"flush.ms": "100"}, NOW)
    store.write("orders", 0, b"a")
    disk.refuse("sync", "orders-0/*")
    store.wait(100)
    assert any("flushing orders-0 failed" in line for line in store.said)
    disk.refuse("replace", "recovery-point*")
    store.wait(BrokerConfig().checkpoint_interval)
    assert any("saving the recovery points failed" in line for line in store.said)


# The journal


def test_the_journal_is_made_on_first_need() -> None:
    config = BrokerConfig(offsets_partitions=3, offsets_segment_bytes=2_000)
    store = Store(config=config)
    journal = store.topics.journal(NOW)
    assert store.topics.journal(NOW) is journal
    assert (journal.name, journal.partitions, journal.internal) == ("__consumer_offsets", 3, True)
    assert journal.config.cleanup_policy == "compact"
    assert journal.config.segment_bytes == 2_000
    found = store.restart().topics.journal(NOW)
    assert found.id == journal.id
    assert found.config.segment_bytes == 2_000


# Producers


def test_a_producer_id_is_never_given_twice() -> None:
    store = Store()
    given = [store.topics.new_producer_id() for _ in range(3)]
    again = store.restart()
    given += [again.topics.new_producer_id() for _ in range(1_500)]
    given.append(again.restart().topics.new_producer_id())
    assert len(set(given)) == len(given)


def test_a_producer_id_that_a_log_knows_is_not_given_again() -> None:
    """As after the loss of the catalogue, or where a Kafka had given it."""
    store = Store()
    store.topics.create("orders", 2, {}, NOW)
    batch = sent(b"a", producer_id=70_000, producer_epoch=0, base_sequence=0)
    store.topics.append("orders", 1, batch, NOW)
    assert store.restart().topics.new_producer_id() == 70_001
    assert store.stop().topics.new_producer_id() > 70_001


def under_compaction(store: Store) -> None:
    """A topic whose compaction has begun, and has not ended."""
    settings = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": "400",
        "min.cleanable.dirty.ratio": "0.01",
    }
    store.topics.create("orders", 1, settings, NOW)
    for _ in range(20):
        store.write("orders", 0, b"a", b"b")
    store.wait(BrokerConfig().cleaner_backoff)
    assert store.folder.cleaner_points == {}


@pytest.mark.parametrize("anew", [False, True], ids=["gone", "made anew"])
def test_the_compaction_of_a_topic_ends_with_it(anew: bool) -> None:
    store = Store()
    under_compaction(store)
    store.topics.delete("orders", store.now)
    if anew:
        store.topics.create("orders", 1, {}, store.now)
        store.write("orders", 0, b"new")
    store.wait(10 * BrokerConfig().cleaner_backoff)
    assert store.said == []
    assert store.folder.cleaner_points == {}
    assert store.folders() == ({"orders-0"} if anew else set())
    if anew:
        log = store.topics.log("orders", 0)
        assert log is not None
        assert values(log) == [(0, b"new")]
        assert not any(
            ".cleaned" in name or ".swap" in name for name in store.disk.names("orders-0")
        )


def test_a_compaction_that_is_not_disturbed_ends_by_itself() -> None:
    store = Store()
    under_compaction(store)
    store.wait(10 * BrokerConfig().cleaner_backoff)
    assert store.folder.cleaner_points[("orders", 0)] > 0
    assert store.said == []


# What a start finds


def test_a_missing_folder_is_made_anew_and_said() -> None:
    store = Store()
    store.topics.create("orders", 2, {}, NOW)
    store.write("orders", 0, b"a")
    store.write("orders", 1, b"a")
    store.wait(BrokerConfig().checkpoint_interval)
    store.disk.remove("orders-1")
    again = store.restart()
    assert again.ends() == {"orders": [1, 0]}
    assert again.said == ["folders are missing, and made anew without records: orders-1"]
    again.write("orders", 1, b"b")
    assert again.restart().ends() == {"orders": [1, 1]}


def test_a_stray_folder_with_records_is_left_alone_and_said() -> None:
    store = Store()
    store.topics.create("orders", 1, {}, NOW)
    store.write("orders", 0, b"a")
    store.disk.rename("orders-0", "lost-0")
    again = store.restart()
    assert "lost-0: left alone; it has records, but is of no topic in the catalogue" in again.said
    assert "lost-0" in again.folders()
    with pytest.raises(Refused, match="lost-0 is in the way") as error:
        again.topics.create("lost", 2, {}, NOW)
    assert refusal(error) is Code.KAFKA_STORAGE_ERROR
    with pytest.raises(Refused, match="lost-0 is in the way"):
        again.topics.create("lost", 1, {}, NOW)
    assert again.folders() == {"lost-0"}


def foreign() -> Store:
    """One partition has the folder of another topic in place of its own, whose start was 1."""
    store = Store()
    for name in ("orders", "other"):
        store.topics.create(name, 2, {}, NOW)
        for _ in range(4):
            store.ids()  # ids that are not one character from each other
    store.write("orders", 0, b"a")
    store.write("orders", 1, b"b", b"c")
    store.write("other", 0, b"d", b"e", b"f")
    store.topics.delete_before("orders", 1, 1, NOW)
    store.disk.rename("orders-1", "put.aside")
    store.disk.rename("other-0", "orders-1")
    return store.restart()


def test_a_folder_of_another_topic_is_not_served_but_all_others_are() -> None:
    store = foreign()
    assert any(
        "the partition orders-1 is offline: the folder orders-1 is of" in each
        for each in store.said
    )
    log = store.topics.log("orders", 1)
    assert log is not None
    for act in (
        lambda: store.write("orders", 1, b"g"),
        lambda: log.read(0, 1000),
        lambda: log_of(store.topics.get("orders"), 1),  # type: ignore[arg-type]
    ):
        with pytest.raises(Refused, match="of another topic") as error:
            act()
        assert refusal(error) is Code.KAFKA_STORAGE_ERROR
    store.write("orders", 0, b"g")
    assert store.ends()["orders"] == [2, 0]


def test_a_folder_that_is_put_back_is_as_it_was() -> None:
    store = foreign()
    again = store.stop()
    again.topics.close(NOW)
    again.disk.rename("orders-1", "other-0")
    again.disk.rename("put.aside", "orders-1")
    last = again.restart()
    log = last.topics.log("orders", 1)
    assert log is not None
    assert (log.start, log.end, last.ends()["other"]) == (1, 2, [3, 0])


def test_a_folder_of_another_topic_outlives_the_deletion_of_this_one() -> None:
    store = foreign()
    store.topics.delete("orders", NOW)
    store.wait(60_000)
    assert "orders-1" in store.folders()
    assert "orders-0" not in store.folders()
    with pytest.raises(Refused, match="orders-1 is in the way"):
        store.topics.create("orders", 2, {}, NOW)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_flipped_bit_in_what_a_folder_says_of_its_topic_is_mended(clean: bool) -> None:
    """The catalogue has a checksum, and knows better."""
    disk = FaultyDisk()
    store = Store(disk)
    store.topics.create("orders", 1, {}, NOW)
    store.write("orders", 0, b"a", b"b")
    if clean:
        store.topics.close(NOW)
    path = "orders-0/partition.metadata"
    right = disk.content(path)
    for bit in range(8 * len(right)):
        damaged = disk.kill()
        damaged.flip(path, bit)
        again = store.restart(damaged)
        assert again.ends() == {"orders": [2]}
        again.write("orders", 0, b"c")
        if damaged.content(path) != right:  # bits that no id has: base 64 has two of them left over
            assert again.said == []
            continue
        assert again.said == [f"{path}: it does not say the topic's id; it is written anew"]


def test_what_is_in_the_way_of_a_first_record_is_not_overwritten() -> None:
    disk = FaultyDisk()
    store = Store(disk)
    store.topics.create("orders", 2, {}, NOW)
    disk.put("orders-0/00000000000000000000.log", b"someone's")
    with pytest.raises(Refused, match="the folder orders-0 is in the way") as error:
        store.write("orders", 0, b"a")
    assert refusal(error) is Code.KAFKA_STORAGE_ERROR
    assert disk.content("orders-0/00000000000000000000.log") == b"someone's"


def test_a_first_record_is_taken_when_the_disk_works_again() -> None:
    for operation in ("make", "append"):
        for step in range(7):
            disk = FaultyDisk()
            store = Store(disk)
            store.topics.create("orders", 2, {}, NOW)
            disk.refuse(operation, "orders-0*", skip=step)
            try:
                store.write("orders", 0, b"a")
            except DiskError:
                disk.allow()
                assert store.restart(disk.kill()).ends() == {"orders": [0, 0]}
                store.write("orders", 0, b"a")
            assert store.restart(disk.kill()).ends() == {"orders": [1, 0]}


def test_a_log_that_cannot_be_read_stops_the_start_with_its_name() -> None:
    disk = FaultyDisk()
    store = Store(disk)
    store.topics.create("orders", 1, {}, NOW)
    store.write("orders", 0, b"a")
    disk.refuse("read", "orders-0/*.log", times=9)
    with pytest.raises(DiskError, match="orders-0/"):
        store.restart()


@pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power cut"])
def test_a_topic_made_anew_has_nothing_of_the_old_one(power_cut: bool) -> None:
    """What the checkpoints say of a deleted topic must not hold for one of the same name."""
    disk = FaultyDisk()
    store = Store(disk)
    store.topics.create("orders", 1, {"cleanup.policy": "delete,compact", "flush.ms": "0"}, NOW)
    for _ in range(5):
        store.write("orders", 0, b"a", b"b")
    store.topics.delete_before("orders", 0, 7, NOW)
    store.folder.save_cleaner_points({("orders", 0): 8})
    store.wait(BrokerConfig().checkpoint_interval)
    assert store.folder.recovery_points == {("orders", 0): 10}
    store.topics.delete("orders", NOW)
    store.topics.create("orders", 1, {"flush.messages": "1"}, NOW)
    store.write("orders", 0, b"a", b"b", b"c")
    again = store.restart(disk.crash(least=True) if power_cut else disk.kill())
    log = again.topics.log("orders", 0)
    assert log is not None
    assert (log.start, log.end) == (0, 3)
    assert not again.folder.cleaner_points
    assert again.said == [] or "deleted topics are removed" in again.said[0]


def test_a_start_forgets_what_it_knows_of_topics_that_are_not_there() -> None:
    store = Store()
    store.folder.save_checkpoints({("orders", 0): 50}, {("orders", 0): 40})
    again = store.restart()
    assert (again.folder.recovery_points, again.folder.log_starts) == ({}, {})


def test_a_folder_made_anew_is_not_taken_for_the_lost_one() -> None:
    disk = FaultyDisk()
    store = Store(disk)
    store.topics.create("orders", 1, {"flush.ms": "0"}, NOW)
    store.write("orders", 0, *[b"a"] * 10)
    store.topics.delete_before("orders", 0, 7, NOW)
    store.wait(BrokerConfig().checkpoint_interval)
    disk.remove("orders-0")
    again = store.restart(disk.kill())
    assert again.folder.recovery_points == {}
    again.write("orders", 0, b"b", b"c")
    assert again.restart().ends() == {"orders": [2]}
    log = again.restart().topics.log("orders", 0)
    assert log is not None
    assert log.start == 0
