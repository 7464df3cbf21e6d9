"""Produce and InitProducerId, through the node with real frames."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.producer import InitProducerIdRequest

from rota.engine.formats.record_batch import CompressionType
from rota.engine.formats.record_batch_columns import decode_batches, iterate_records
from rota.errors import Code
from tests.support.node import ClientConnection, InMemoryNode
from tests.support.requests import START, batch, numbered_batch, produce_request

T = ("t", 0)


@pytest.fixture
def node() -> InMemoryNode:
    return InMemoryNode()


@pytest.fixture
def peer(node: InMemoryNode) -> ClientConnection:
    node.create_topic("t", 2)
    return node.connect()


def read_values(peer: ClientConnection, partition: tuple[str, int] = T) -> list[bytes | None]:
    data = bytes(peer.fetch({partition: 0})[partition].records)
    return [record.value for record in iterate_records(decode_batches(data))]


@pytest.mark.parametrize("version", range(3, 14))
def test_each_version_stores_a_batch_for_each_partition(
    peer: ClientConnection, version: int
) -> None:
    peer.store(numbered_batch(3))
    answers = peer.produce({T: numbered_batch(2), ("t", 1): numbered_batch(5)}, version=version)
    assert {each: answers[each].base_offset for each in answers} == {T: 3, ("t", 1): 0}
    assert {answer.error_code for answer in answers.values()} == {0}
    assert answers[T].log_append_time_ms == -1
    assert len(read_values(peer)) == 5


@pytest.mark.parametrize("codec", CompressionType)
def test_a_batch_is_kept_as_it_was_compressed(
    peer: ClientConnection, codec: CompressionType
) -> None:
    sent = numbered_batch(50, codec=codec)
    peer.store(sent)
    kept = bytes(peer.fetch({T: 0})[T].records)
    assert kept[21:] == sent[21:]


@pytest.mark.parametrize(("version", "code"), [(3, 76), (6, 76), (7, 0), (11, 0)])
def test_zstd_needs_version_7(peer: ClientConnection, version: int, code: int) -> None:
    answer = peer.produce({T: numbered_batch(5, codec=CompressionType.ZSTD)}, version=version)[T]
    assert answer.error_code == code


def damaged_batch() -> bytes:
    data = bytearray(numbered_batch(3))
    data[-1] ^= 1
    return bytes(data)


def batch_of_magic(magic: int) -> bytes:
    data = bytearray(numbered_batch(1))
    data[16] = magic
    return bytes(data)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (None, Code.INVALID_RECORD),
        (b"", Code.INVALID_RECORD),
        (numbered_batch(1) + numbered_batch(1), Code.INVALID_RECORD),
        (batch_of_magic(0), Code.INVALID_RECORD),
        (batch_of_magic(1), Code.INVALID_RECORD),
        (batch_of_magic(3), Code.CORRUPT_MESSAGE),
        (numbered_batch(3)[:-1], Code.INVALID_RECORD),
        (numbered_batch(3)[:10], Code.INVALID_RECORD),
        (damaged_batch(), Code.CORRUPT_MESSAGE),
        (numbered_batch(1, size=2_000_000), Code.MESSAGE_TOO_LARGE),
        (batch(b"v", control=True, producer_id=1, producer_epoch=0), Code.INVALID_RECORD),
        (batch(b"v", timestamp=START + 2 * 3_600_000), Code.INVALID_TIMESTAMP),
    ],
    ids=lambda value: value.name if isinstance(value, Code) else "",
)
def test_a_wrong_batch_is_refused_and_the_others_are_stored(
    peer: ClientConnection, sent: bytes | None, code: Code
) -> None:
    answers = peer.produce({T: sent, ("t", 1): numbered_batch(2)})
    refused, stored = answers[T], answers["t", 1]
    assert Code(refused.error_code) is code
    assert refused.error_message
    assert (refused.base_offset, refused.log_append_time_ms) == (-1, -1)
    assert (stored.error_code, stored.base_offset) == (0, 0)
    assert read_values(peer) == []


def test_a_compacted_topic_wants_keys_and_says_which_record_has_none(node: InMemoryNode) -> None:
    node.create_topic("c", cleanup_policy="compact")
    answer = node.connect().produce({("c", 0): batch(b"v", b"w", key=None)})["c", 0]
    assert Code(answer.error_code) is Code.INVALID_RECORD
    assert [each.batch_index for each in answer.record_errors] == [0, 1]


@pytest.mark.parametrize("version", [3, 9, 12])
def test_an_unknown_topic_or_partition(peer: ClientConnection, version: int) -> None:
    answers = peer.produce(
        {
            ("nowhere", 0): numbered_batch(1),
            ("t", 2): numbered_batch(1),
            ("t", -1): numbered_batch(1),
        },
        version=version,
    )
    assert {answer.error_code for answer in answers.values()} == {3}


def test_an_unknown_topic_id(peer: ClientConnection) -> None:
    ids = {"gone": bytes(15) + b"\1"}
    answer = peer.produce({("gone", 0): numbered_batch(1)}, version=13, ids=ids)["gone", 0]
    assert Code(answer.error_code) is Code.UNKNOWN_TOPIC_ID


def test_the_brokers_own_topic_takes_nothing(node: InMemoryNode, peer: ClientConnection) -> None:
    journal = node.topics.get_or_create_journal(node.now).name
    answer = peer.produce({(journal, 0): numbered_batch(1)})[journal, 0]
    assert Code(answer.error_code) is Code.INVALID_TOPIC_EXCEPTION


def test_the_brokers_time(node: InMemoryNode) -> None:
    node.create_topic("a", message_timestamp_type="LogAppendTime")
    node.now += 5
    peer = node.connect()
    answer = peer.produce({("a", 0): numbered_batch(2)})["a", 0]
    assert answer.log_append_time_ms == START + 5
    data = bytes(peer.fetch({("a", 0): 0})["a", 0].records)
    assert {record.timestamp for record in iterate_records(decode_batches(data))} == {START + 5}


# Acknowledgements


def test_acks_0_gets_no_answer(peer: ClientConnection) -> None:
    assert peer.produce({T: numbered_batch(2)}, acks=0) == {}
    assert peer.closed is None
    assert len(read_values(peer)) == 2


def test_acks_0_with_an_error_ends_the_connection(
    node: InMemoryNode, peer: ClientConnection
) -> None:
    peer.send(
        produce_request(
            node.topic_ids(), {T: numbered_batch(1), ("nowhere", 0): numbered_batch(1)}, acks=0
        ),
        9,
    )
    assert peer.closed is not None
    assert "UNKNOWN_TOPIC_OR_PARTITION" in peer.closed
    assert not peer.responses
    assert len(read_values(node.connect())) == 1


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused(peer: ClientConnection, acks: int) -> None:
    answer = peer.produce({T: numbered_batch(1)}, acks=acks)[T]
    assert Code(answer.error_code) is Code.INVALID_REQUIRED_ACKS
    assert read_values(peer) == []


def test_a_transactional_batch_is_refused(peer: ClientConnection) -> None:
    sent = batch(b"v", transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    answer = peer.produce({T: sent})[T]
    assert Code(answer.error_code) is Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert "no transactions" in answer.error_message


# A full disk


def test_a_full_disk_refuses_and_keeps_nothing_of_it(
    node: InMemoryNode, peer: ClientConnection
) -> None:
    peer.store(numbered_batch(2))
    node.disk.room(50)
    answer = peer.produce({T: numbered_batch(3)})[T]
    assert Code(answer.error_code) is Code.KAFKA_STORAGE_ERROR
    assert any("t-0" in line for line in node.log_lines)
    node.disk.room(1 << 30)
    assert peer.store(numbered_batch(3)) == [2]
    assert len(read_values(peer)) == 5


# Idempotence


def sequenced_batch(sequence: int, *, count: int = 2, epoch: int = 0, producer: int = 7) -> bytes:
    return batch(
        *(b"%d" % (sequence + each) for each in range(count)),
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


@pytest.mark.parametrize(
    ("before", "sent", "code", "offset"),
    [
        ([sequenced_batch(0)], sequenced_batch(2), 0, 2),
        ([sequenced_batch(0)], sequenced_batch(0), 0, 0),
        ([sequenced_batch(each * 2) for each in range(5)], sequenced_batch(0), 0, 0),
        ([sequenced_batch(each * 2) for each in range(5)], sequenced_batch(8), 0, 8),
        ([sequenced_batch(0)], sequenced_batch(4), Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (
            [sequenced_batch(0), sequenced_batch(2)],
            sequenced_batch(1),
            Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
            -1,
        ),
        ([sequenced_batch(0)], sequenced_batch(0, epoch=1), 0, 2),
        ([sequenced_batch(0)], sequenced_batch(2, epoch=1), Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (
            [sequenced_batch(0, epoch=3)],
            sequenced_batch(2, epoch=2),
            Code.INVALID_PRODUCER_EPOCH,
            -1,
        ),
        ([], sequenced_batch(40), 0, 0),
        ([sequenced_batch(2**31 - 2)], sequenced_batch(0), 0, 2),
        ([sequenced_batch(0)], sequenced_batch(0, producer=8), 0, 2),
    ],
    ids=[
        "next",
        "again",
        "the oldest of five again",
        "the last of five again",
        "a gap",
        "half of one again",
        "a new epoch",
        "a new epoch not from 0",
        "an old epoch",
        "a stranger in the middle",
        "round to 0",
        "another producer",
    ],
)
def test_sequences(
    peer: ClientConnection, before: list[bytes], sent: bytes, code: int, offset: int
) -> None:
    peer.store(*before)
    end = 2 * len(before)
    answer = peer.produce({T: sent})[T]
    assert (answer.error_code, answer.base_offset) == (code, offset)
    grown = 2 if code == 0 and offset == end else 0
    assert len(read_values(peer)) == end + grown


def test_a_batch_that_comes_again_after_a_crash_is_not_stored_twice(
    node: InMemoryNode, peer: ClientConnection
) -> None:
    peer.store(sequenced_batch(0), sequenced_batch(2))
    again = node.restart().connect()
    assert again.store(sequenced_batch(2)) == [2]
    assert again.store(sequenced_batch(4)) == [4]
    assert read_values(again) == [b"0", b"1", b"2", b"3", b"4", b"5"]


# InitProducerId


def init_producer_id(peer: ClientConnection, version: int = 4, **fields: Any) -> Any:
    given = {"transactional_id": None, "transaction_timeout_ms": 0, **fields}
    return peer.ask(InitProducerIdRequest(**given), version)


def test_every_producer_gets_an_id_of_its_own_for_ever(node: InMemoryNode) -> None:
    ids = set()
    for _ in range(3):
        peer = node.connect()
        for version in range(6):
            answer = init_producer_id(peer, version)
            assert (answer.error_code, answer.producer_epoch) == (0, 0)
            ids.add(answer.producer_id)
        node = node.restart()
    assert len(ids) == 18


def test_a_producer_that_has_an_id_gets_a_new_one(peer: ClientConnection) -> None:
    first = init_producer_id(peer)
    again = init_producer_id(
        peer, producer_id=first.producer_id, producer_epoch=first.producer_epoch
    )
    assert (again.error_code, again.producer_epoch) == (0, 0)
    assert again.producer_id != first.producer_id


@pytest.mark.parametrize("half", [{"producer_id": 5}, {"producer_epoch": 0}])
def test_an_id_without_an_epoch_makes_no_sense(
    peer: ClientConnection, half: dict[str, int]
) -> None:
    answer = init_producer_id(peer, 4, **half)
    assert Code(answer.error_code) is Code.INVALID_REQUEST
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@pytest.mark.parametrize(
    ("name", "code"),
    [("", Code.INVALID_REQUEST), ("tx", Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)],
)
def test_a_transactional_id_is_refused(
    node: InMemoryNode, peer: ClientConnection, name: str, code: Code
) -> None:
    assert Code(init_producer_id(peer, transactional_id=name).error_code) is code
    assert not name or any("no transactions" in line for line in node.log_lines)


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize("apart", [False, True], ids=["one topic", "two topics"])
def test_of_a_partition_named_twice_the_last_batch_counts(
    node: InMemoryNode, peer: ClientConnection, version: int, apart: bool
) -> None:
    request = produce_request(node.topic_ids(), {T: batch(b"first")})
    again = produce_request(node.topic_ids(), {T: batch(b"last")}).topic_data[0]
    if apart:
        request.topic_data.append(again)
    else:
        request.topic_data[0].partition_data += again.partition_data
    [topic] = peer.ask(request, version).responses
    assert [each.base_offset for each in topic.partition_responses] == [0]
    assert read_values(peer) == [b"last"]
