"""Many long polls that one append wakes: they are answered in turn, as memory allows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rota.broker import dispatch
from rota.broker.events import FrameReceived, NodeCommand, Wakeup, WriteResponse
from tests.support.node import ClientConnection, InMemoryNode, request_frame
from tests.support.requests import batch, fetch_request, produce_request

T = ("t", 0)
MIB = 1 << 20
LARGE = bytes(400_000)


@pytest.fixture
def node() -> InMemoryNode:
    node = InMemoryNode()
    node.create_topic()
    return node


def start_polls(
    node: InMemoryNode, count: int, *, min_bytes: int = 1, max_wait: int = 500
) -> list[ClientConnection]:
    """So many clients that wait for records from the beginning on."""
    peers = [node.connect() for _ in range(count)]
    for peer in peers:
        peer.send(
            fetch_request(node.topic_ids(), {T: 0}, min_bytes=min_bytes, max_wait=max_wait), 12
        )
        assert peer.waits
    return peers


def answered_connections(commands: list[NodeCommand]) -> list[int]:
    """Who was sent something."""
    return [command.connection for command in commands if isinstance(command, WriteResponse)]


def append(node: InMemoryNode, value: bytes) -> tuple[ClientConnection, list[NodeCommand]]:
    producer = node.connect()
    request = request_frame(produce_request(node.topic_ids(), {T: batch(value)}), 9, 1)
    return producer, node.node.handle(FrameReceived(producer.id, request), node.now, node.room)


def going_on(node: InMemoryNode) -> Iterator[list[int]]:
    """Who is answered in each event, for as long as the node is behind."""
    while node.node.has_resumable_requests:
        yield answered_connections(node.node.handle(Wakeup(), node.now, node.room))


def test_large_answers_are_made_a_few_at_a_time_in_the_order_of_the_requests(
    node: InMemoryNode,
) -> None:
    peers = [peer.id for peer in start_polls(node, 20)]
    producer, first = append(node, LARGE)
    assert answered_connections(first) == [producer.id, *peers[:3]]
    rounds = list(going_on(node))
    assert sum(rounds, answered_connections(first)[1:]) == peers
    assert max(len(each) for each in rounds) == 3


def test_small_answers_need_few_rounds(node: InMemoryNode) -> None:
    peers = [peer.id for peer in start_polls(node, 1_000)]
    _, first = append(node, b"small")
    rounds = list(going_on(node))
    assert sum(rounds, answered_connections(first)[1:]) == peers
    assert len(rounds) < 1_000 / dispatch.MAX_RESUMED_PER_EVENT


def test_without_room_nobody_is_given_records_and_all_else_goes_on(node: InMemoryNode) -> None:
    peers = start_polls(node, 2)
    node.room = 0
    producer, commands = append(node, LARGE)
    assert answered_connections(commands) == [producer.id]
    late = node.connect()
    late.send(fetch_request(node.topic_ids(), {T: 0}), 12)
    node.advance(600)  # the time of the first two is up
    assert [peer.waits for peer in (*peers, late)] == [True] * 3
    node.room = 1
    assert list(going_on(node)) == [[each.id] for each in (*peers, late)]


def test_those_whose_time_is_up_are_answered_in_turn_too(node: InMemoryNode) -> None:
    producer = node.connect()
    producer.store(batch(LARGE))
    peers = [peer.id for peer in start_polls(node, 9, min_bytes=MIB)]
    first = answered_connections(node.node.handle(Wakeup(), node.now + 500))
    assert first == peers[:3]
    assert list(going_on(node)) == [peers[3:6], peers[6:]]


def test_who_hangs_up_before_its_turn_has_none(node: InMemoryNode) -> None:
    peers = start_polls(node, 3)
    node.room = 0
    append(node, LARGE)
    peers[0].disconnect()
    node.room = dispatch.MAX_RESPONSE_BYTES_PER_EVENT
    assert list(going_on(node)) == [[1, 2]]
    append(node, LARGE)
    assert not node.node.has_resumable_requests


def test_who_is_woken_again_before_its_turn_is_answered_once_with_all(node: InMemoryNode) -> None:
    (peer,) = start_polls(node, 1)
    node.room = 0
    append(node, LARGE)
    append(node, LARGE)
    node.room = dispatch.MAX_RESPONSE_BYTES_PER_EVENT
    node.advance(0)
    assert len(peer.fetched(peer.receive())[T].records) > 2 * len(LARGE)
    assert not node.node.has_resumable_requests
