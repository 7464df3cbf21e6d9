"""Fetch through the node, with real frames; long polls in virtual time."""

from __future__ import annotations

from collections import deque

import pytest

from rota.engine.formats.record_batch_columns import decode_batches, iterate_records
from rota.engine.formats.record_batch_scan import find_batches
from rota.errors import Code
from tests.support.node import ClientConnection, InMemoryNode
from tests.support.requests import fetch_request, numbered_batch, produce_request

T, U = ("t", 0), ("u", 0)


@pytest.fixture
def node() -> InMemoryNode:
    node = InMemoryNode()
    node.create_topic("t", 2)
    node.create_topic("u")
    return node


@pytest.fixture
def peer(node: InMemoryNode) -> ClientConnection:
    return node.connect()


def offsets(data: bytes) -> list[int]:
    return [record.offset for record in iterate_records(decode_batches(bytes(data)))]


@pytest.mark.parametrize("version", range(4, 19))
def test_each_version_gives_whole_batches_from_the_one_with_the_offset(
    peer: ClientConnection, version: int
) -> None:
    peer.store(numbered_batch(3), numbered_batch(3), numbered_batch(3))
    answers = peer.fetch({T: 4, U: 0}, version)
    assert offsets(answers[T].records) == [3, 4, 5, 6, 7, 8]
    assert (answers[T].error_code, answers[T].high_watermark) == (0, 9)
    assert (answers[T].last_stable_offset, answers[U].high_watermark) == (9, 0)
    assert answers[T].preferred_read_replica == -1
    assert bytes(answers[U].records) == b""
    if version >= 5:
        assert answers[T].log_start_offset == 0


def test_an_unknown_topic_partition_or_id(peer: ClientConnection) -> None:
    for version, code in ((4, 3), (12, 3), (13, 100)):
        ids = {"nowhere": bytes(15) + b"\1"}
        answers = peer.fetch({("nowhere", 0): 0}, version, ids=ids, max_wait=500)
        assert answers["nowhere", 0].error_code == code
        assert answers["nowhere", 0].high_watermark == -1
    assert peer.fetch({("t", 2): 0})["t", 2].error_code == 3


@pytest.mark.parametrize("offset", [-1, 4, 1 << 40])
def test_an_offset_that_the_log_does_not_have(peer: ClientConnection, offset: int) -> None:
    peer.store(numbered_batch(3))
    answer = peer.fetch({T: offset}, max_wait=1_000)[T]
    assert Code(answer.error_code) is Code.OFFSET_OUT_OF_RANGE
    assert (answer.high_watermark, answer.log_start_offset) == (-1, -1)


def test_what_was_deleted_cannot_be_read(node: InMemoryNode, peer: ClientConnection) -> None:
    peer.store(numbered_batch(3), numbered_batch(3))
    node.topics.delete_records_before({("t", 0): 4})
    answers = peer.fetch({T: 3})
    assert Code(answers[T].error_code) is Code.OFFSET_OUT_OF_RANGE
    answer = peer.fetch({T: 4})[T]
    assert (answer.log_start_offset, offsets(answer.records)) == (4, [3, 4, 5])


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 0), (1, Code.UNKNOWN_LEADER_EPOCH)])
def test_the_leaders_epoch_is_checked(peer: ClientConnection, epoch: int, code: int) -> None:
    assert peer.fetch({T: 0}, epoch=epoch)[T].error_code == code


def test_a_client_with_an_epoch_that_never_was(peer: ClientConnection) -> None:
    peer.store(numbered_batch(3))
    assert peer.fetch({T: 3}, last_epoch=0)[T].error_code == 0
    answer = peer.fetch({T: 3}, last_epoch=9)[T]
    assert Code(answer.error_code) is Code.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("session", "code"),
    [
        ((0, -1), 0),
        ((0, 0), 0),
        ((77, 0), 0),  # a full request: it ends a session, if there were one
        ((77, -1), 0),
        ((0, 1), Code.FETCH_SESSION_ID_NOT_FOUND),
        ((77, 3), Code.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
def test_there_are_no_sessions(peer: ClientConnection, session: tuple[int, int], code: int) -> None:
    peer.store(numbered_batch(3))
    response = peer.ask(fetch_request(peer.node.topic_ids(), {T: 0}, session=session), 16)
    assert (response.error_code, response.session_id) == (code, 0)
    assert len(response.responses) == (0 if code else 1)


def test_a_damaged_batch_is_never_served(node: InMemoryNode, peer: ClientConnection) -> None:
    peer.store(numbered_batch(3), numbered_batch(3))
    second = len(numbered_batch(3)) + 70
    node.disk.flip("t-0/00000000000000000000.log", second * 8)
    assert offsets(peer.fetch({T: 0})[T].records) == [0, 1, 2]
    answer = peer.fetch({T: 3})[T]
    assert Code(answer.error_code) is Code.CORRUPT_MESSAGE
    assert bytes(answer.records) == b""


@pytest.mark.parametrize(("version", "code"), [(4, 6), (5, 6), (6, 56), (16, 56)])
def test_a_read_error(node: InMemoryNode, peer: ClientConnection, version: int, code: int) -> None:
    peer.store(numbered_batch(3))
    node.disk.refuse("read", "*.log")
    assert peer.fetch({T: 0}, version)[T].error_code == code
    assert offsets(peer.fetch({T: 0}, version)[T].records) == [0, 1, 2]


# Limits


def test_a_batch_larger_than_all_limits_comes_whole(peer: ClientConnection) -> None:
    peer.store(numbered_batch(50), numbered_batch(1))
    answers = peer.fetch({T: 0}, max_bytes=1, partition_max=1)
    assert offsets(answers[T].records) == list(range(50))


def test_only_the_first_partition_with_records_may_break_the_limits(peer: ClientConnection) -> None:
    peer.store(numbered_batch(50))
    peer.store(numbered_batch(50), topic="u")
    answers = peer.fetch({("t", 1): 0, T: 0, U: 0}, max_bytes=10, partition_max=10)
    assert offsets(answers[T].records) == list(range(50))
    assert bytes(answers[U].records) == b""


def test_limits_of_a_partition_and_of_all(peer: ClientConnection) -> None:
    one = numbered_batch(10)
    peer.store(*[one] * 10)
    peer.store(*[one] * 10, topic="u")
    size = len(one)
    answers = peer.fetch({T: 0, U: 0}, partition_max=3 * size + 1, max_bytes=5 * size + 5)
    assert len(answers[T].records) == 3 * size
    assert len(answers[U].records) == 2 * size


# Waiting


def wait(
    peer: ClientConnection, *, max_wait: int = 500, min_bytes: int = 1, version: int = 16
) -> None:
    wanted = fetch_request(
        peer.node.topic_ids(), {T: 0, U: 0}, max_wait=max_wait, min_bytes=min_bytes
    )
    peer.send(wanted, version)


def test_an_append_ends_the_wait(node: InMemoryNode, peer: ClientConnection) -> None:
    wait(peer)
    assert peer.waits
    node.advance(300)
    node.connect().store(numbered_batch(2), topic="u")
    answers = peer.fetched(peer.receive())
    assert offsets(answers[U].records) == [0, 1]
    assert answers[U].high_watermark == 2
    node.advance(500)
    assert not peer.responses


def test_the_wait_ends_when_its_time_is_up(node: InMemoryNode, peer: ClientConnection) -> None:
    wait(peer)
    node.advance(499)
    assert peer.waits
    node.advance(1)
    answers = peer.fetched(peer.receive())
    assert bytes(answers[T].records) == b""
    assert answers[T].error_code == 0


def test_it_waits_until_there_are_enough_bytes_and_then_gives_all(
    node: InMemoryNode, peer: ClientConnection
) -> None:
    one = numbered_batch(10)
    producer = node.connect()
    producer.store(one)
    wait(peer, min_bytes=3 * len(one))
    producer.store(one, topic="u")
    assert peer.waits
    producer.store(one)
    answers = peer.fetched(peer.receive())
    assert offsets(answers[T].records) == list(range(20))
    assert offsets(answers[U].records) == list(range(10))


def test_too_little_in_time_is_given_all_the_same(
    node: InMemoryNode, peer: ClientConnection
) -> None:
    wait(peer, min_bytes=10_000)
    node.connect().store(numbered_batch(3))
    assert peer.waits
    node.advance(500)
    assert offsets(peer.fetched(peer.receive())[T].records) == [0, 1, 2]


def test_a_request_that_appends_to_both_is_seen_whole(
    node: InMemoryNode, peer: ClientConnection
) -> None:
    wait(peer)
    node.connect().produce({T: numbered_batch(2), U: numbered_batch(3)})
    answers = peer.fetched(peer.receive())
    assert offsets(answers[T].records) == [0, 1]
    assert offsets(answers[U].records) == [0, 1, 2]


def test_the_producer_is_answered_before_those_it_wakes(
    node: InMemoryNode, peer: ClientConnection
) -> None:
    wait(peer)
    other = node.connect()
    order: list[object] = []
    for each in (peer, other):
        each.responses = RecordedAppends(each, order)
    other.send(produce_request(node.topic_ids(), {T: numbered_batch(1)}), 9)
    assert order == [other, peer]


def test_deleting_the_topic_ends_the_wait(node: InMemoryNode, peer: ClientConnection) -> None:
    wait(peer, max_wait=100_000)
    gone = node.topics.get("t")
    assert gone is not None
    node.topics.delete("t", node.now)
    node.advance(0)
    (answer,) = [
        each.partitions[0] for each in peer.receive().responses if each.topic_id.bytes == gone.id
    ]
    assert Code(answer.error_code) is Code.UNKNOWN_TOPIC_ID


def test_an_unknown_partition_does_not_keep_others_from_waiting(
    node: InMemoryNode, peer: ClientConnection
) -> None:
    peer.send(fetch_request(node.topic_ids(), {("nowhere", 0): 0, T: 0}, max_wait=500), 12)
    assert peer.waits
    node.advance(500)
    assert peer.fetched(peer.receive())["nowhere", 0].error_code == 3


def test_a_client_that_hangs_up_leaves_nothing_behind(
    node: InMemoryNode, peer: ClientConnection
) -> None:
    before = node.node.next_timer()
    wait(peer, max_wait=500)
    assert node.node.next_timer() == node.now + 500
    peer.disconnect()
    assert node.node.next_timer() == before
    node.disk.refuse("read", "*.log")
    other = node.connect()
    other.store(numbered_batch(1))
    assert not peer.responses
    assert other.fetch({T: 0})[T].error_code == 56, "somebody else has read"


def test_a_fault_in_a_woken_fetch_is_no_fault_of_the_producer(
    node: InMemoryNode, peer: ClientConnection
) -> None:
    wait(peer)
    node.disk.refuse("read", "*.log")
    assert node.connect().store(numbered_batch(1)) == [0]
    assert peer.fetched(peer.receive())[T].error_code == 56


class RecordedAppends(deque[bytes | None]):
    """Notes whose answer came."""

    def __init__(self, peer: ClientConnection, order: list[object]) -> None:
        super().__init__()
        self._note = (peer, order)

    def append(self, answer: bytes | None) -> None:
        self._note[1].append(self._note[0])
        super().append(answer)


def test_batches_are_whole(peer: ClientConnection) -> None:
    peer.store(*[numbered_batch(each + 1) for each in range(20)])
    data = bytes(peer.fetch({T: 0}, partition_max=700)[T].records)
    assert find_batches(data).end == len(data)


def test_a_client_that_is_ahead_of_the_log_is_told_where_they_part(peer: ClientConnection) -> None:
    peer.store(numbered_batch(3))
    answer = peer.fetch({T: 5}, last_epoch=0, max_wait=500)[T]
    assert (answer.error_code, answer.diverging_epoch.end_offset) == (0, 3)
    assert bytes(answer.records) == b""
