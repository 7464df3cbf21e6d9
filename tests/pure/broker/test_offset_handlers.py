"""Offsets over the wire: commit, fetch and delete, in every version."""

from __future__ import annotations

from typing import Any

import pytest

from rota.engine.model.config import DAY
from rota.errors import Code
from tests.support.node import ClientConnection, InMemoryNode
from tests.support.requests import (
    GROUP,
    Member,
    commit_request,
    delete_offsets_request,
    error_code,
    offset_fetch_request,
)

FETCHES = range(1, 10)
COMMITS = range(2, 10)


@pytest.fixture
def node() -> InMemoryNode:
    made = InMemoryNode()
    made.create_topic(partitions=4)
    return made


@pytest.fixture
def peer(node: InMemoryNode) -> ClientConnection:
    return node.connect()


def fetch_committed(
    peer: ClientConnection, version: int = 8, group: str = GROUP
) -> dict[tuple[str, int], Any]:
    """All offsets of a group."""
    answer = peer.ask(offset_fetch_request(None, group), version)
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in topics
        for each in topic.partitions
    }


def error_codes(answer: Any) -> dict[tuple[str, int], Code]:
    return {
        (topic.name, each.partition_index): error_code(each)
        for topic in answer.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", COMMITS)
def test_a_member_commits(peer: ClientConnection, version: int) -> None:
    member = Member(peer)
    member.enter()
    request = commit_request({("t", 0): 7, ("t", 3): 9}, member.id, member.generation)
    assert set(error_codes(peer.ask(request, version)).values()) == {Code.NONE}
    assert fetch_committed(peer) == {("t", 0): 7, ("t", 3): 9}
    late = commit_request({("t", 0): 1}, member.id, member.generation - 1)
    assert error_codes(peer.ask(late, version)) == {("t", 0): Code.ILLEGAL_GENERATION}


@pytest.mark.parametrize("version", COMMITS)
def test_a_commit_of_a_group_that_there_is_not(peer: ClientConnection, version: int) -> None:
    answer = peer.ask(commit_request({("t", 0): 7}, "m", 1), version)
    expected = Code.GROUP_ID_NOT_FOUND if version >= 9 else Code.ILLEGAL_GENERATION
    assert error_codes(answer) == {("t", 0): expected}


@pytest.mark.parametrize("version", COMMITS)
def test_topics_and_partitions_must_be_there(peer: ClientConnection, version: int) -> None:
    answer = peer.ask(
        commit_request({("gone", 0): 1, ("t", 4): 2, ("t", 1): 3, ("t", -1): 4}), version
    )
    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert error_codes(answer) == {
        ("gone", 0): unknown,
        ("t", 4): unknown,
        ("t", -1): unknown,
        ("t", 1): Code.NONE,
    }
    assert fetch_committed(peer) == {("t", 1): 3}


def test_a_commit_of_nothing_that_is_there_begins_no_group(peer: ClientConnection) -> None:
    peer.ask(commit_request({("gone", 0): 1}), 8)
    peer.ask(commit_request({}), 8)
    assert fetch_committed(peer) == {}


def test_metadata_may_be_4096_characters_long_and_null(peer: ClientConnection) -> None:
    assert error_codes(peer.ask(commit_request({("t", 0): 1}, note="x" * 4_096), 8)) == {
        ("t", 0): Code.NONE
    }
    too_long = commit_request({("t", 0): 2}, note="x" * 4_097)
    assert error_codes(peer.ask(too_long, 8)) == {("t", 0): Code.OFFSET_METADATA_TOO_LARGE}
    assert error_codes(peer.ask(commit_request({("t", 0): 3}, note=None), 8)) == {
        ("t", 0): Code.NONE
    }
    (topic,) = peer.ask(offset_fetch_request({"t": [0]}), 7).topics
    assert (topic.partitions[0].committed_offset, topic.partitions[0].metadata) == (3, "")


def test_an_offset_below_zero_is_none(peer: ClientConnection) -> None:
    peer.ask(commit_request({("t", 0): 5}), 8)
    assert error_codes(peer.ask(commit_request({("t", 0): -1}), 8)) == {("t", 0): Code.NONE}
    assert fetch_committed(peer) == {("t", 0): -1}


@pytest.mark.parametrize("version", [2, 4])
def test_old_clients_say_how_long_offsets_are_kept(node: InMemoryNode, version: int) -> None:
    peer = node.connect()
    peer.ask(commit_request({("t", 0): 1}, retention=DAY), version)
    peer.ask(commit_request({("t", 1): 1}), version)
    node.advance(DAY + 600_000)
    assert fetch_committed(peer) == {("t", 1): 1}
    node.advance(6 * DAY)
    assert fetch_committed(peer) == {}


def test_for_ever_is_long_enough(peer: ClientConnection) -> None:
    request = commit_request({("t", 0): 1}, retention=2**63 - 1)
    assert error_codes(peer.ask(request, 2)) == {("t", 0): Code.NONE}
    assert fetch_committed(peer) == {("t", 0): 1}


@pytest.mark.parametrize("version", FETCHES)
def test_offsets_are_fetched(peer: ClientConnection, version: int) -> None:
    peer.ask(commit_request({("t", 1): 7}), 8)
    answer = peer.ask(
        offset_fetch_request({"t": [0, 1], "gone": [5]}, GROUP, "nobody", stable=True), version
    )
    mine = answer.groups[0] if version >= 8 else answer
    found = [
        (topic.name, each.partition_index, each.committed_offset, each.metadata, each.error_code)
        for topic in mine.topics
        for each in topic.partitions
    ]
    assert found == [
        ("t", 0, -1, "", 0),
        ("t", 1, 7, "note", 0),
        ("gone", 5, -1, "", 0),
    ]
    assert mine.topics[0].partitions[1].committed_leader_epoch == (0 if version >= 5 else -1)
    if version >= 8:
        nobody = answer.groups[1]
        assert (nobody.group_id, nobody.error_code) == ("nobody", Code.NONE)
        assert [each.committed_offset for each in nobody.topics[0].partitions] == [-1, -1]


@pytest.mark.parametrize("version", range(2, 10))
def test_null_asks_for_all_there_is(peer: ClientConnection, version: int) -> None:
    assert fetch_committed(peer, version) == {}
    peer.ask(commit_request({("t", 2): 7, ("t", 0): 1}), 8)
    assert fetch_committed(peer, version) == {("t", 0): 1, ("t", 2): 7}


def test_offsets_are_deleted(peer: ClientConnection) -> None:
    peer.ask(commit_request({("t", 0): 1, ("t", 1): 2}), 8)
    answer = peer.ask(delete_offsets_request({"t": [0, 2, 9], "gone": [0]}), 0)
    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert error_code(answer) is Code.NONE
    assert error_codes(answer) == {
        ("t", 0): Code.NONE,
        ("t", 2): Code.NONE,
        ("t", 9): unknown,
        ("gone", 0): unknown,
    }
    assert fetch_committed(peer) == {("t", 1): 2}
    missing = peer.ask(delete_offsets_request({"t": [0], "gone": [0]}, group="nobody"), 0)
    assert (error_code(missing), missing.topics) == (Code.GROUP_ID_NOT_FOUND, [])


def test_a_deleted_topic_takes_its_offsets_along(
    node: InMemoryNode, peer: ClientConnection
) -> None:
    node.create_topic("u", 1)
    peer.ask(commit_request({("t", 0): 1, ("u", 0): 2}), 8)
    node.topics.delete("t", node.now)
    assert fetch_committed(peer) == {("u", 0): 2}
    node.create_topic("t", 1)
    assert fetch_committed(node.restart().connect()) == {("u", 0): 2}
