"""The data folder: whose it is, how its last use ended, its catalogue and its checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from rota.broker.storage import checkpoint, producer_state
from rota.broker.storage.catalog import (
    CATALOG_COPY_FILE,
    CATALOG_FILE,
    PRODUCER_ID_BLOCK,
    Catalog,
    TopicEntry,
)
from rota.broker.storage.log_directory import (
    CLEAN_SHUTDOWN_FILE,
    KEEP_ALL_CONFIG,
    LOCK_FILE,
    LOG_START_CHECKPOINT,
    META_PROPERTIES_FILE,
    PRODUCER_ID_GAP,
    RECOVERY_POINT_CHECKPOINT,
    open_log_directory,
)
from rota.broker.storage.log_directory import LogDirectory as DataFolder
from rota.broker.storage.producer_state import ProducerStateEntry, ProducerStateManager
from rota.engine.formats.primitive import uuid_to_text
from rota.errors import DiskError, InputError, Unreachable
from tests.support.faulty_disk import FaultyDisk, Stopped

ORDERS = TopicEntry(
    name="orders", id=bytes(range(16)), partitions=3, overrides={"retention.ms": "5"}
)
BILLS = TopicEntry(name="bills", id=bytes(16), partitions=1)
POINTS = {("orders", 0): 12, ("orders", 1): 0, ("bills", 0): 2**40}


def sequential_ids() -> Callable[[], bytes]:
    numbers = count(1)
    return lambda: next(numbers).to_bytes(16)


def open_folder(
    disk: FaultyDisk, said: list[str] | None = None, *, adopt: bool = False, node: int = 1
) -> DataFolder:
    report = pytest.fail if said is None else said.append
    return open_log_directory(
        disk, node_id=node, new_id=sequential_ids(), report=report, adopt=adopt
    )


def with_topics(disk: FaultyDisk) -> Catalog:
    catalog = open_folder(disk).catalog
    catalog.change_topics(put=[ORDERS])
    catalog.change_topics(put=[BILLS])
    return catalog


def test_topics_are_there_after_a_restart_in_the_order_of_names() -> None:
    disk = FaultyDisk()
    with_topics(disk)
    catalog = open_folder(disk.crash(least=True)).catalog
    assert list(catalog.topics.values()) == [BILLS, ORDERS]
    catalog.change_topics(remove=["orders"])
    assert list(catalog.topics) == ["bills"]


def test_a_new_folder_has_an_identity_that_stays() -> None:
    disk = FaultyDisk()
    first = open_folder(disk)
    meta = disk.content(META_PROPERTIES_FILE).decode()
    assert meta == (
        f"cluster.id={first.cluster_id}\n"
        f"directory.id={first.catalog.identity.directory_id}\nnode.id=1\nversion=1\n"
    )
    assert open_folder(disk.kill()).cluster_id == first.cluster_id


@pytest.mark.parametrize("path", [CATALOG_FILE, CATALOG_COPY_FILE])
def test_any_flipped_bit_in_one_copy_is_said_and_the_other_used(path: str) -> None:
    whole = FaultyDisk()
    with_topics(whole)
    size = whole.size(path)
    assert size is not None
    for bit in range(0, 8 * size, 3):
        disk, said = whole.kill(), list[str]()
        disk.flip(path, bit)
        assert list(open_folder(disk, said).catalog.topics) == ["bills", "orders"]
        assert len(said) == 1
        assert said[0].startswith(f"{path}: ")
        assert disk.content(path) == whole.content(path)


def test_a_copy_that_cannot_be_read_is_said() -> None:
    disk, said = FaultyDisk(), list[str]()
    with_topics(disk)
    disk.refuse("read", CATALOG_FILE)
    assert list(open_folder(disk, said).catalog.topics) == ["bills", "orders"]
    assert said == [
        f"{CATALOG_FILE}: Input/output error; it is rewritten from the other copy",
    ]


def test_with_both_copies_damaged_it_is_said_how_to_go_on() -> None:
    disk, said = FaultyDisk(), list[str]()
    with_topics(disk)
    for path in (CATALOG_FILE, CATALOG_COPY_FILE):
        disk.flip(path, 1000)
    with pytest.raises(Unreachable, match=r"both copies .* are damaged .*start with --adopt"):
        open_folder(disk)
    for number in range(3):
        text = f"version: 0\ntopic_id: {uuid_to_text(ORDERS.id)}"
        disk.put(f"orders-{number}/partition.metadata", text.encode())
    catalog = open_folder(disk, said, adopt=True).catalog
    assert [(each.name, each.id, each.partitions) for each in catalog.topics.values()] == [
        ("orders", ORDERS.id, 3)
    ]
    assert said[0].startswith(f"{CATALOG_FILE}: checksum ")
    assert said[1].startswith(f"{CATALOG_COPY_FILE}: checksum ")
    assert said[2].startswith("1 topics were adopted; their settings are unknown")
    assert catalog.topics["orders"].overrides == KEEP_ALL_CONFIG
    assert open_folder(disk.kill()).catalog.topics == catalog.topics


def test_a_crash_at_any_step_leaves_the_old_catalogue_or_the_new() -> None:
    seen = set()
    for seed in range(20):
        for step in range(2):
            disk = FaultyDisk(seed)
            catalog = with_topics(disk)
            disk.stop_at(step)
            with pytest.raises(Stopped):
                catalog.change_topics(remove=["bills"])
            topics = tuple(open_folder(disk.crash()).catalog.topics)
            assert topics in {("bills", "orders"), ("orders",)}
            seen.add(topics)
    assert len(seen) == 2


@pytest.mark.parametrize("path", [CATALOG_FILE, CATALOG_COPY_FILE])
def test_a_change_that_failed_is_not_there_after_a_restart(path: str) -> None:
    disk = FaultyDisk()
    catalog = with_topics(disk)
    disk.refuse("replace", path)
    with pytest.raises(DiskError):
        catalog.change_topics(remove=["orders"])
    assert list(catalog.topics) == ["bills", "orders"]
    assert list(open_folder(disk.kill()).catalog.topics) == ["bills", "orders"]
    catalog.change_topics(remove=["orders"])
    assert list(open_folder(disk.kill()).catalog.topics) == ["bills"]


def test_a_crash_while_a_folder_is_made_leaves_one_that_can_be_opened() -> None:
    for seed in range(10):
        for step in range(5):
            disk = FaultyDisk(seed)
            disk.stop_at(step)
            with pytest.raises(Stopped):
                open_folder(disk)
            open_folder(disk.crash()).catalog.change_topics(put=[ORDERS])


def test_a_producer_id_is_never_given_twice() -> None:
    disk, given = FaultyDisk(), list[int]()
    for round_ in range(6):
        catalog = open_folder(disk).catalog
        given += [
            catalog.new_producer_id() for _ in range(3 * round_ + PRODUCER_ID_BLOCK * (round_ == 3))
        ]
        disk = disk.kill() if round_ % 2 else disk.crash(least=True)
    assert len(set(given)) == len(given)


def test_no_producer_id_is_given_before_it_is_set_aside_on_disk() -> None:
    disk = FaultyDisk()
    catalog = open_folder(disk).catalog
    disk.refuse("replace", CATALOG_FILE)
    with pytest.raises(DiskError):
        catalog.new_producer_id()
    assert catalog.new_producer_id() == 0
    catalog.skip_producer_ids_through(5 * PRODUCER_ID_BLOCK)
    assert catalog.new_producer_id() == 5 * PRODUCER_ID_BLOCK + 1
    assert open_folder(disk.kill()).catalog.new_producer_id() > 5 * PRODUCER_ID_BLOCK + 1


def test_the_clean_stop_is_known_once() -> None:
    disk = FaultyDisk()
    folder = open_folder(disk)
    assert not folder.clean_shutdown
    folder.mark_clean_shutdown()
    assert disk.content(CLEAN_SHUTDOWN_FILE) == b'{"version":0,"brokerEpoch":-1}'
    disk = disk.crash(least=True)
    assert open_folder(disk).clean_shutdown
    assert not open_folder(disk.crash(least=True)).clean_shutdown


def test_a_damaged_marker_is_no_clean_stop() -> None:
    whole = FaultyDisk()
    open_folder(whole).mark_clean_shutdown()
    for bit in range(8 * len(whole.content(CLEAN_SHUTDOWN_FILE))):
        disk, said = whole.kill(), list[str]()
        disk.flip(CLEAN_SHUTDOWN_FILE, bit)
        clean = open_folder(disk, said).clean_shutdown
        assert clean == (said == [])
        if clean:  # the broker's epoch, which is not looked at
            assert bit // 8 in range(27, 30)


def test_checkpoints_are_kafkas_and_outlive_a_crash() -> None:
    disk = FaultyDisk()
    open_folder(disk).save_checkpoints(POINTS, {("orders", 0): 3})
    assert disk.content(RECOVERY_POINT_CHECKPOINT) == (
        b"0\n3\nbills 0 1099511627776\norders 0 12\norders 1 0\n"
    )
    folder = open_folder(disk.crash(least=True))
    assert folder.recovery_points == POINTS
    assert folder.log_start_offsets == {("orders", 0): 3}
    assert folder.cleaner_points == {}


@pytest.mark.parametrize("path", [LOG_START_CHECKPOINT, f"{LOG_START_CHECKPOINT}.copy"])
def test_any_flipped_bit_in_a_checkpoint_is_said_and_does_no_harm(path: str) -> None:
    """One that brings deleted records back would break a promise."""
    starts = {("orders", 0): 7, ("bills", 0): 1}
    whole = FaultyDisk()
    folder = open_folder(whole)
    folder.save_checkpoints({}, {("orders", 0): 3})
    folder.save_checkpoints({}, starts)
    for bit in range(8 * len(whole.content(path))):
        disk, said = whole.kill(), list[str]()
        disk.flip(path, bit)
        assert open_folder(disk, said).log_start_offsets == starts
        assert len(said) == 1
        assert said[0].startswith(f"{path}: ")
        assert (
            open_folder(disk).log_start_offsets == starts
        )  # it was written anew: nothing more to say


@pytest.mark.parametrize("path", [LOG_START_CHECKPOINT, f"{LOG_START_CHECKPOINT}.copy"])
def test_a_lost_or_unreadable_checkpoint_is_made_up_for_by_the_other(path: str) -> None:
    for fault in ("remove", "read"):
        disk, said = FaultyDisk(), list[str]()
        open_folder(disk).save_checkpoints({}, {("orders", 0): 3})
        if fault == "remove":
            disk.remove(path)
        else:
            disk.refuse("read", path)
        assert open_folder(disk, said).log_start_offsets == {("orders", 0): 3}


def test_a_checkpoint_damaged_while_it_is_in_use_does_not_count_after_a_crash() -> None:
    for seed in range(20):
        disk, said = FaultyDisk(seed), list[str]()
        folder = open_folder(disk)
        folder.save_checkpoints({}, {("orders", 0): 3})
        disk.flip(LOG_START_CHECKPOINT, 8 * len("0\n1\norders 0 "))
        disk.stop_at(1)
        with pytest.raises(Stopped):
            folder.save_checkpoints({}, {("orders", 0): 4})
        assert open_folder(disk.crash(), said).log_start_offsets == {("orders", 0): 4}


def test_a_crash_at_any_step_leaves_old_checkpoints_or_new() -> None:
    later = {**POINTS, ("orders", 0): 20}
    seen = set()
    for seed in range(20):
        for step in range(2):
            disk = FaultyDisk(seed)
            folder = open_folder(disk)
            folder.save_checkpoints(POINTS, {})
            disk.stop_at(step)
            with pytest.raises(Stopped):
                folder.save_checkpoints(later, {})
            found = open_folder(disk.crash()).recovery_points
            assert found in (POINTS, later)
            seen.add(found["orders", 0])
    assert seen == {12, 20}


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "1\n0\n",
        "0\n2\na 0 1\n",
        "0\n1\na 0\n",
        "0\n1\na 0 x\n",
        "0\n1\na 0 -1\n",
        "0\n2\na 0 1\na 0 2\n",
        "\xff",
    ],
)
def test_a_malformed_checkpoint_is_said_and_taken_for_missing(text: str) -> None:
    disk, said = FaultyDisk(), list[str]()
    disk.put(LOG_START_CHECKPOINT, text.encode("latin-1"))
    assert checkpoint.read_offsets(disk, LOG_START_CHECKPOINT, said.append) == {}
    assert len(said) == 1
    assert said[0].endswith("the file is ignored")


def test_an_empty_checkpoint_is_what_kafka_leaves_at_first() -> None:
    disk = FaultyDisk()
    disk.put(LOG_START_CHECKPOINT, b"")
    assert checkpoint.read_offsets(disk, LOG_START_CHECKPOINT, pytest.fail) == {}


def test_meta_properties_are_mended_from_the_catalogue() -> None:
    disk = FaultyDisk()
    with_topics(disk)
    before = disk.content(META_PROPERTIES_FILE)
    for bit in range(8 * len(before)):
        said = list[str]()
        disk.flip(META_PROPERTIES_FILE, bit)
        open_folder(disk, said)
        assert disk.content(META_PROPERTIES_FILE) == before
        assert said == [f"{META_PROPERTIES_FILE}: it does not match the catalogue; rewritten"]


def test_another_nodes_folder_is_refused() -> None:
    disk = FaultyDisk()
    with_topics(disk)
    with pytest.raises(InputError, match=r"node.id: the folder belongs to node 1, not 2"):
        open_folder(disk, node=2)


@pytest.mark.parametrize("adopt", [False, True])
def test_a_foreign_folder_is_refused(adopt: bool) -> None:
    disk = FaultyDisk()
    for name in ("a.txt", "b", "c", "d"):
        disk.put(name, b"")
    with pytest.raises(InputError, match="belong to Rota, it has 'a.txt', 'b', 'c' and 1 more"):
        open_folder(disk, adopt=adopt)
    assert disk.paths() == ["a.txt", "b", "c", "d"]


def partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()


def disk_of_kafka() -> FaultyDisk:
    """As a Kafka leaves it."""
    disk = FaultyDisk()
    disk.put(
        META_PROPERTIES_FILE,
        b"#\n#Sun Nov 15\ncluster.id=abc\nversion=1\ndirectory.id=def\nnode.id=1\n",
    )
    disk.put(CLEAN_SHUTDOWN_FILE, b'{"version":0,"brokerEpoch":17}')
    for number in range(2):
        disk.put(f"bills-{number}/partition.metadata", partition_metadata(ORDERS.id))
    disk.put("__consumer_offsets-0/partition.metadata", partition_metadata(bytes(16)))
    disk.put("__cluster_metadata-0/00000000000000000000.log", b"")
    disk.put("gone-0.0123456789abcdef0123456789abcdef-delete/x", b"")
    return disk


def test_a_kafkas_folder_is_taken_over_only_if_told_to() -> None:
    disk, said = disk_of_kafka(), list[str]()
    known = ProducerStateManager()
    known.put(4_711, ProducerStateEntry(epoch=0))
    disk.put("bills-0/00000000000000000009.snapshot", producer_state.pack_snapshot(known))
    before = disk.content(META_PROPERTIES_FILE)
    with pytest.raises(InputError, match="by Kafka: stop that Kafka, then start with --adopt"):
        open_folder(disk)
    folder = open_folder(disk, said, adopt=True)
    assert folder.clean_shutdown
    assert folder.cluster_id == "abc"
    assert {each.name: (each.id, each.partitions) for each in folder.catalog.topics.values()} == {
        "__consumer_offsets": (bytes(16), 1),
        "bills": (ORDERS.id, 2),
    }
    assert folder.catalog.topics["__consumer_offsets"].overrides == {"cleanup.policy": "compact"}
    assert folder.catalog.topics["bills"].overrides == KEEP_ALL_CONFIG
    assert folder.catalog.new_producer_id() == PRODUCER_ID_GAP
    assert len(said) == 1
    assert said[0].startswith("2 topics were adopted; their settings are unknown")
    assert disk.content(META_PROPERTIES_FILE) == before
    assert open_folder(disk.kill()).catalog.topics == folder.catalog.topics


def test_a_folder_that_a_kafka_had_meanwhile_is_looked_at_anew() -> None:
    disk, said = disk_of_kafka(), list[str]()
    first = open_folder(disk, said, adopt=True)
    bills = replace(first.catalog.topics["bills"], overrides={"retention.ms": "5"})
    first.catalog.change_topics(put=[bills])
    first.save_checkpoints(POINTS, {("bills", 0): 3})
    given = first.catalog.new_producer_id()
    disk.put(CLEAN_SHUTDOWN_FILE, b'{"version":0,"brokerEpoch":18}')
    disk.put(LOG_START_CHECKPOINT, b"0\n1\nbills 0 4\n")
    disk.put("later-0/partition.metadata", partition_metadata(bytes(15) + b"1"))
    with pytest.raises(InputError, match="last used by Kafka: stop that Kafka"):
        open_folder(disk)
    folder = open_folder(disk, said, adopt=True)
    topics = folder.catalog.topics
    assert list(topics) == ["__consumer_offsets", "bills", "later"]
    assert topics["bills"].overrides == {"retention.ms": "5"}
    assert topics["later"].overrides == KEEP_ALL_CONFIG
    assert folder.log_start_offsets == {("bills", 0): 4}
    assert folder.catalog.new_producer_id() > given
    folder.mark_clean_shutdown()
    assert open_folder(disk.kill()).catalog.topics == topics


V1 = bytes(8) + (30).to_bytes(4) + bytes(4) + b"\1" + bytes(25)


@pytest.mark.parametrize(
    ("path", "content", "problem"),
    [
        (
            "bills-3/partition.metadata",
            partition_metadata(ORDERS.id),
            r"partitions 2 of topic 'bills' are in another",
        ),
        (
            "bills-1/partition.metadata",
            partition_metadata(BILLS.id),
            "bills-0 and bills-1 belong to two topics",
        ),
        ("new-0/00000000000000000000.log", b"", "no folder of topic 'new' has the topic's id"),
        ("bills-0/00000000000000000007.log", V1, "message format 1 of Kafka before 0.11"),
        ("bills-20240101/00000000000000000007.log", b"", "a topic may have 10000 at most"),
        (
            META_PROPERTIES_FILE,
            b"version=1\ncluster.id=abc\nnode.id=2\n",
            "belongs to node 2, not 1",
        ),
        (
            META_PROPERTIES_FILE,
            b"version=0\nbroker.id=1\ncluster.id=abc\n",
            "not from a Kafka with KRaft",
        ),
        (CLEAN_SHUTDOWN_FILE, None, "a Kafka that runs or was not stopped cleanly"),
    ],
)
def test_a_kafkas_folder_stays_as_it_is_if_it_cannot_be_adopted(
    path: str, content: bytes | None, problem: str
) -> None:
    disk = disk_of_kafka()
    if content is None:
        disk.remove(path)
    else:
        disk.put(path, content)
    before = {path: disk.content(path) for path in disk.paths()}
    with pytest.raises(InputError, match=problem):
        open_folder(disk, adopt=True)
    assert {path: disk.content(path) for path in disk.paths()} == before


def test_a_folder_of_a_kafka_before_3_7_gets_an_id() -> None:
    disk, said = disk_of_kafka(), list[str]()
    disk.put(META_PROPERTIES_FILE, b"version=1\ncluster.id=abc\nnode.id=1\n")
    identity = open_folder(disk, said, adopt=True).catalog.identity
    assert identity.cluster_id == "abc"
    assert f"directory.id={identity.directory_id}\n" in disk.content(META_PROPERTIES_FILE).decode()


def test_a_copy_of_partitions_folders_is_taken_over_with_holes() -> None:
    disk, said = FaultyDisk(), list[str]()
    disk.put("bills-0/partition.metadata", partition_metadata(ORDERS.id))
    disk.put("bills-2/partition.metadata", b"nonsense")
    disk.put("old-0/00000000000000000000.log", b"")
    disk.put(RECOVERY_POINT_CHECKPOINT, b"0\n0\n")
    with pytest.raises(InputError, match=r"partitions' folders, .*: start with --adopt"):
        open_folder(disk)
    topics = open_folder(disk, said, adopt=True).catalog.topics
    assert (topics["bills"].id, topics["bills"].partitions) == (ORDERS.id, 3)
    assert said[:2] == [
        "topic 'bills': 1 of 3 partitions have no folder and are made without records",
        "topic 'old': its folders have no topic id; it gets a new one",
    ]
    assert open_folder(disk.kill()).catalog.topics == topics


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("notes.txt", r"does not belong to Rota, it has 'notes.txt': adopt a folder that has only"),
        ("backup-1/app.log", r"does not belong to Rota, it has 'backup-1': adopt"),
        (LOCK_FILE, "has no partition's folder to adopt"),
    ],
)
def test_what_is_no_copy_of_partitions_is_not_adopted(path: str, problem: str) -> None:
    disk = FaultyDisk()
    disk.put(path, b"")
    with pytest.raises(InputError, match=problem):
        open_folder(disk, adopt=True)
    assert disk.paths() == [path]
