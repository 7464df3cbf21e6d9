"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords, through the node with real frames."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.admin import DeleteRecordsRequest
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest

from rota.errors import Code
from tests.support.node import ClientConnection, InMemoryNode
from tests.support.requests import START, batch, numbered_batch

T = ("t", 0)
LATEST, EARLIEST, NEWEST, LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6


@pytest.fixture
def node() -> InMemoryNode:
    node = InMemoryNode()
    node.create_topic("t", 2)
    return node


@pytest.fixture
def peer(node: InMemoryNode) -> ClientConnection:
    return node.connect()


def offset_of(peer: ClientConnection, time: int, version: int = 11, **fields: Any) -> Any:
    kind = ListOffsetsRequest.ListOffsetsTopic
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": time}
    topic = fields.pop("topic", "t")
    times = fields.pop("times", 1)
    part = kind.ListOffsetsPartition(**{**wanted, **fields})
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[kind(name=topic, partitions=[part] * times)],
        timeout_ms=0,
    )
    return peer.ask(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_the_ends(node: InMemoryNode, peer: ClientConnection, version: int) -> None:
    peer.store(numbered_batch(3), numbered_batch(3))
    node.topics.delete_records_before({("t", 0): 2})
    assert [offset_of(peer, each, version).offset for each in (EARLIEST, LATEST)] == [2, 6]
    assert offset_of(peer, LATEST, version).timestamp == -1
    if version >= 4:
        assert offset_of(peer, LATEST, version).leader_epoch == 0


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (START - 1, (0, START)),
        (START, (0, START)),
        (START + 1, (2, START + 10)),
        (START + 10, (2, START + 10)),
        (START + 11, (3, START + 30)),
        (START + 31, (-1, -1)),
        (NEWEST, (3, START + 30)),
        (LOCAL, (0, -1)),
        (TIERED, (-1, -1)),
        (PENDING, (-1, -1)),
    ],
)
def test_times(peer: ClientConnection, time: int, expected: tuple[int, int]) -> None:
    for at, values in ((0, (b"a", b"b")), (10, (b"c",)), (30, (b"d", b"e")), (20, (b"f",))):
        peer.store(batch(*values, timestamp=START + at))
    found = offset_of(peer, time)
    assert (found.error_code, found.offset, found.timestamp) == (0, *expected)


def test_an_empty_partition(peer: ClientConnection) -> None:
    found = {each: offset_of(peer, each) for each in (LATEST, EARLIEST, NEWEST, START)}
    assert {each: found[each].offset for each in found} == {
        LATEST: 0,
        EARLIEST: 0,
        NEWEST: -1,
        START: -1,
    }


@pytest.mark.parametrize(
    ("time", "version"), [(NEWEST, 6), (LOCAL, 7), (TIERED, 8), (PENDING, 10), (-7, 11)]
)
def test_words_that_a_version_does_not_have(
    peer: ClientConnection, time: int, version: int
) -> None:
    found = offset_of(peer, time, version)
    assert Code(found.error_code) is Code.UNSUPPORTED_VERSION
    assert (found.offset, found.timestamp) == (-1, -1)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"topic": "nowhere"}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition_index": 2}, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ({"current_leader_epoch": 5}, Code.UNKNOWN_LEADER_EPOCH),
        ({"times": 2}, Code.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_looked_up(
    peer: ClientConnection, wrong: dict[str, Any], code: Code
) -> None:
    assert Code(offset_of(peer, LATEST, **wrong).error_code) is code


# OffsetForLeaderEpoch


def end_of(
    peer: ClientConnection, epoch: int, version: int, current: int = -1, partition: int = 0
) -> Any:
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    part = kind.OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[kind(topic="t", partitions=[part])]
    )
    return peer.ask(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_an_epoch_ends(peer: ClientConnection, version: int) -> None:
    peer.store(numbered_batch(3))
    found = end_of(peer, 0, version)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, 0, 3)
    for epoch in (-1, 4):
        unknown = end_of(peer, epoch, version)
        assert (unknown.error_code, unknown.leader_epoch, unknown.end_offset) == (0, -1, -1)
    assert Code(end_of(peer, 0, version, current=3).error_code) is Code.UNKNOWN_LEADER_EPOCH
    assert end_of(peer, 0, version, partition=7).error_code == 3


# DeleteRecords


def delete(
    peer: ClientConnection, offset: int, version: int = 2, topic: str = "t", partition: int = 0
) -> Any:
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    part = kind.DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[kind(name=topic, partitions=[part])], timeout_ms=1_000)
    return peer.ask(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(("offset", "start"), [(2, 2), (0, 0), (-1, 6), (6, 6)])
def test_records_are_deleted_up_to_an_offset(
    peer: ClientConnection, version: int, offset: int, start: int
) -> None:
    peer.store(numbered_batch(3), numbered_batch(3))
    answer = delete(peer, offset, version)
    assert (answer.error_code, answer.low_watermark) == (0, start)
    assert offset_of(peer, EARLIEST).offset == start
    assert offset_of(peer, LATEST).offset == 6


def test_the_start_never_goes_back(peer: ClientConnection) -> None:
    peer.store(numbered_batch(5))
    assert delete(peer, 4).low_watermark == 4
    assert delete(peer, 1).low_watermark == 4


def test_deleted_records_stay_deleted_after_a_crash(
    node: InMemoryNode, peer: ClientConnection
) -> None:
    peer.store(numbered_batch(5))
    delete(peer, 3)
    assert offset_of(node.restart().connect(), EARLIEST).offset == 3


@pytest.mark.parametrize(
    ("offset", "topic", "code"),
    [
        (6, "t", Code.OFFSET_OUT_OF_RANGE),
        (-2, "t", Code.OFFSET_OUT_OF_RANGE),
        (0, "nowhere", Code.UNKNOWN_TOPIC_OR_PARTITION),
        (0, "c", Code.POLICY_VIOLATION),
        (0, "__consumer_offsets", Code.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_what_cannot_be_deleted(
    node: InMemoryNode, peer: ClientConnection, offset: int, topic: str, code: Code
) -> None:
    node.create_topic("c", cleanup_policy="compact")
    node.topics.get_or_create_journal(node.now)
    peer.store(numbered_batch(5))
    answer = delete(peer, offset, topic=topic)
    assert (Code(answer.error_code), answer.low_watermark) == (code, -1)
