"""Rota and a real Kafka 4.3.1 take over each other's data folders, and serve what was in them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import rota
from rota.engine.formats.record_batch import BatchRecord, CompressionType, encode_batch
from rota.protocol.messages import ZERO_UUID
from tests.support import kafka as java
from tests.support.differential_side import Side
from tests.system.kafka.differential.admin import create_topics, topic_request
from tests.system.kafka.differential.data import NOW, make_batch, produce_quietly
from tests.system.kafka.differential.group import PROTOCOL, _join, _sync
from tests.system.kafka.differential.mask import mask_answer, split_whole

SETTINGS = {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "2"}
EVERY = {"segment.bytes": "1048576"}


@contextlib.contextmanager
def start_kafka(folder: Path, taken: Path | None = None) -> Iterator[tuple[java.KafkaBroker, Side]]:
    running = java.KafkaBroker(folder, SETTINGS, taken=taken)
    side = Side("kafka", running.port, mask_answer)
    try:
        with side.section(""):
            yield running, side
    finally:
        running.stop()


@contextlib.contextmanager
def start_rota(folder: Path, *, adopt: bool = False) -> Iterator[Side]:
    with rota.Broker(folder, config=SETTINGS, adopt=adopt) as running:
        side = Side("rota", int(running.bootstrap_servers.rpartition(":")[2]), mask_answer)
        with side.section(""):
            yield side


def fill(side: Side) -> None:
    """Records of every codec in several segments, a compacted topic, a producer, groups."""
    create_topics(
        side,
        topic_request("many", 3, configs=EVERY),
        topic_request("compacted", configs={"cleanup.policy": "compact"}),
        topic_request("empty"),
        topic_request("cut"),
    )
    for number in range(120):
        codec = list(CompressionType)[number % len(CompressionType)]
        value = bytes(number % 251 for _ in range(30_000))
        produce_quietly(
            side, "many", number % 3, make_batch(value, b"second", at=NOW + number, codec=codec)
        )
    for number in range(10):
        produce_quietly(side, "compacted", 0, make_batch(b"%d" % number, key=b"%d" % (number % 3)))
        produce_quietly(side, "cut", 0, make_batch(b"a", b"b"))
    delete = [{"name": "cut", "partitions": [{"partition_index": 0, "offset": 7}]}]
    side.quiet("DeleteRecords", 1, topics=delete, timeout_ms=5_000)
    for sequence in range(3):
        produce_quietly(side, "empty", 0, numbered_batch(sequence))
    side.eventually(lambda: side.quiet("FindCoordinator", 0, key="g").error_code == 0, "a journal")
    side.eventually(lambda: commit(side, "g", 1) == 0, "a commit")
    commit(side, "g", 41)
    commit(side, "other", 7)
    stable_group(side)


def numbered_batch(sequence: int) -> bytes:
    records = [BatchRecord(0, NOW, b"k", b"%d" % sequence)]
    return encode_batch(records, producer_id=77, producer_epoch=0, base_sequence=sequence)


def commit(side: Side, group: str, offset: int) -> int:
    partition = {"partition_index": 1, "committed_offset": offset, "committed_metadata": "note"}
    answer = side.quiet(
        "OffsetCommit",
        5,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": "many", "partitions": [partition]}],
    )
    return int(answer.topics[0].partitions[0].error_code)


def stable_group(side: Side) -> None:
    assert PROTOCOL["name"] == "range"
    given = side.quiet("JoinGroup", 5, **_join(5, "team", static="s", session=1_800_000))
    member = given.member_id
    side.quiet("SyncGroup", 3, **_sync(3, "team", 1, member, static="s", assigned=[member]))


def transact(side: Side) -> None:
    """Transactions that end well and badly, one after another and one within another."""
    create_topics(side, topic_request("paid", 2))
    address = {"bootstrap.servers": f"127.0.0.1:{side.port}", "linger.ms": 0}
    first, second = (Producer({**address, "transactional.id": name}) for name in "ab")
    for producer in (first, second):
        producer.init_transactions()
    for number in range(6):
        for producer in (first, second):
            producer.begin_transaction()
            producer.produce("paid", key=b"k", value=b"%d" % number, partition=number % 2)
            producer.flush()
        for producer, good in ((second, number % 3 == 0), (first, number % 2 == 0)):
            producer.commit_transaction() if good else producer.abort_transaction()


def fetch_records(side: Side, name: str, partition: int, offset: int, isolation: int = 0) -> Any:
    asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    answer = side.quiet(
        "Fetch",
        11,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 24,
        isolation_level=isolation,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": name, "partitions": [asked]}],
        forgotten_topics_data=[],
    )
    (got,) = answer.responses[0].partitions
    assert got.error_code == 0, got
    return got


def aborted_transactions(side: Side, name: str, partition: int, start: int) -> tuple[int, Any]:
    """Up to where transactions have ended, and which of them badly."""
    got = fetch_records(side, name, partition, start, isolation=1)
    listed = [(each.producer_id, each.first_offset) for each in got.aborted_transactions or ()]
    return got.last_stable_offset, sorted(listed)


def make_records(side: Side, name: str, partition: int, start: int) -> list[tuple[int, bytes]]:
    """All batches, with their offsets."""
    found: list[tuple[int, bytes]] = []
    offset = start
    while True:
        got = fetch_records(side, name, partition, offset)
        whole = list(split_whole(bytes(got.records or b"")))
        if not whole:
            return found
        # the leader's epoch is no part of what a producer sent
        found += [(int.from_bytes(each[:8], "big"), each[16:]) for each in whole]
        last = whole[-1]
        offset = int.from_bytes(last[:8], "big") + int.from_bytes(last[23:27], "big") + 1


def read_files(side: Side) -> dict[str, Any]:
    """All that two brokers on the same folder must agree on."""
    seen: dict[str, Any] = {}
    answer = side.quiet("Metadata", 12, topics=None, allow_auto_topic_creation=False)
    for each in answer.topics:
        seen[each.name] = (str(each.topic_id or ZERO_UUID), len(each.partitions))
        for number in range(len(each.partitions)):
            begin, end = (log_bound(side, each.name, number, special) for special in (-2, -1))
            seen[f"{each.name}-{number}"] = (
                begin,
                end,
                make_records(side, each.name, number, begin),
            )
            seen[f"aborted {each.name}-{number}"] = aborted_transactions(
                side, each.name, number, begin
            )
    for group in ("g", "other"):
        fetched = side.quiet("OffsetFetch", 7, group_id=group, topics=None, require_stable=False)
        seen[group] = [
            (each.name, at.partition_index, at.committed_offset, at.metadata)
            for each in fetched.topics
            for at in each.partitions
        ]
    (team,) = side.quiet("DescribeGroups", 5, groups=["team"]).groups
    seen["team"] = (
        team.group_state,
        [(m.member_id, m.group_instance_id, bytes(m.member_assignment)) for m in team.members],
    )
    return seen


def log_bound(side: Side, name: str, partition: int, special: int) -> int:
    def ask() -> Any:
        listed = [{"partition_index": partition, "timestamp": special}]
        topics = [{"name": name, "partitions": listed}]
        return side.quiet("ListOffsets", 1, replica_id=-1, topics=topics).topics[0].partitions[0]

    side.eventually(lambda: ask().error_code == 0, f"{name}-{partition} to be served")
    return int(ask().offset)


def wait_for_coordinator(side: Side) -> None:
    """The coordinator has read its journal."""

    def ready() -> bool:
        return all(
            side.quiet("DescribeGroups", 5, groups=[group]).groups[0].error_code == 0
            for group in ("g", "other", "team")
        )

    side.eventually(ready, "groups to be loaded")


def continue_producer(side: Side) -> None:
    """A producer that was known goes on, and what it sends again is not stored twice."""
    before = log_bound(side, "empty", 0, -1)
    produce_quietly(side, "empty", 0, numbered_batch(2))
    assert log_bound(side, "empty", 0, -1) == before
    produce_quietly(side, "empty", 0, numbered_batch(3))
    assert log_bound(side, "empty", 0, -1) == before + 1


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_real_kafka_serves_what_rota_wrote(tmp_path: Path, clean: bool) -> None:
    data, killed = tmp_path / "rota", tmp_path / "killed"
    with start_rota(data) as side:
        fill(side)
        wanted = read_files(side)
        if not clean:
            # the broker renames such files at any time
            shutil.copytree(data, killed, ignore=shutil.ignore_patterns("*.tmp"))
    folder = tmp_path / "kafka"
    folder.mkdir()
    with start_kafka(folder, data if clean else killed) as (_, side):
        wait_for_coordinator(side)
        assert read_files(side) == wanted
        continue_producer(side)


def test_rota_serves_what_a_real_kafka_wrote(tmp_path: Path) -> None:
    with start_kafka(tmp_path) as (running, side):
        fill(side)
        transact(side)
        wanted = read_files(side)
        running.shut_down()
        # Kafka takes its lock away some time after it has marked the folder as clean
        leave = shutil.ignore_patterns(".lock")
        shutil.copytree(tmp_path / "data", tmp_path / "taken", ignore=leave)
    assert wanted["aborted paid-0"][1]
    assert wanted["aborted paid-1"][1]
    with start_rota(tmp_path / "taken", adopt=True) as side:
        assert read_files(side) == wanted
        continue_producer(side)
        wanted = read_files(side)
    with start_rota(tmp_path / "taken") as side:
        assert read_files(side) == wanted
