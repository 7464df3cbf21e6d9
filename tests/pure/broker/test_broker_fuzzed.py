"""Faults that random requests have found, each by itself."""

from __future__ import annotations

from rota.engine.model.config import MAX_LONG
from rota.engine.model.text import CONSUMER_OFFSETS_TOPIC
from rota.errors import Code
from rota.protocol.messages import (
    CreatePartitionsRequest,
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    OffsetCommitRequest,
)
from tests.support.node import ClientConnection, InMemoryNode
from tests.support.requests import START


def start_node() -> tuple[InMemoryNode, ClientConnection]:
    node = InMemoryNode()
    node.topics.create("t", 1, {}, START)
    return node, node.connect()


def test_groups_go_on_when_their_journal_was_deleted() -> None:
    node, peer = start_node()
    assert peer.commit("g", "t", 0, 7, "") is Code.NONE
    deleted = peer.ask(
        DeleteTopicsRequest(topic_names=[CONSUMER_OFFSETS_TOPIC], timeout_ms=1_000), 4
    )
    assert deleted.responses[0].error_code == 0
    assert peer.ask(FindCoordinatorRequest(key="g"), 0).error_code == 0
    assert peer.committed("g") == {}
    assert peer.commit("g", "t", 0, 3, "") is Code.NONE
    assert node.restart().connect().committed("g") == {("t", 0): (3, "")}
    assert not node.error_lines


def test_a_member_learns_that_the_journal_was_deleted() -> None:
    _, peer = start_node()
    assert peer.commit("g", "t", 0, 7, "") is Code.NONE
    peer.ask(DeleteTopicsRequest(topic_names=[CONSUMER_OFFSETS_TOPIC], timeout_ms=1_000), 4)
    beat = peer.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 0)
    assert beat.error_code == Code.UNKNOWN_MEMBER_ID


def test_the_journal_gets_no_more_partitions_for_groups_would_lose_their_offsets() -> None:
    node, peer = start_node()
    for group in ("a", "b", "c", "d"):
        assert peer.commit(group, "t", 0, 7, group) is Code.NONE
    more = CreatePartitionsRequest.CreatePartitionsTopic(name=CONSUMER_OFFSETS_TOPIC, count=8)
    (found,) = peer.ask(CreatePartitionsRequest(topics=[more], timeout_ms=1_000), 1).results
    assert found.error_code == Code.INVALID_PARTITIONS
    assert "keeps its 3 partitions" in found.error_message
    after = node.restart().connect()
    for group in ("a", "b", "c", "d"):
        assert after.committed(group) == {("t", 0): (7, group)}


def test_the_largest_retention_of_an_offset_means_for_ever() -> None:
    node, peer = start_node()
    one = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        retention_time_ms=MAX_LONG,
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[one])],
    )
    assert peer.ask(request, 2).topics[0].partitions[0].error_code == 0
    node.jump(10 * 365 * 86_400_000)
    assert node.connect().committed("g") == {("t", 0): (5, "")}
    assert not node.error_lines
