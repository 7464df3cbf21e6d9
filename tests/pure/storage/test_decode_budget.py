"""Batches of a few bytes that are a great deal of work: no client may stop all others with them."""

from __future__ import annotations

import struct

import pytest
from kafka.protocol.consumer import ListOffsetsRequest

from rota.broker.handlers.log_offsets import MAX_WORK_PER_EVENT
from rota.broker.storage.compaction import GROUP_DECOMPRESSED_BYTES
from rota.broker.storage.file_records import (
    BASE_BUDGET_BYTES,
    BUDGET_RATIO,
    RECORD_COST_BYTES,
    DecodeBudget,
)
from rota.broker.topics import single_outcome
from rota.engine.formats.record_batch import (
    ATTRIBUTES_OFFSET,
    CRC_FIELD,
    CRC_OFFSET,
    HEADER,
    LOG_OVERHEAD,
    BatchHeader,
    BatchRecord,
    CompressionType,
    compress,
    compute_crc32c,
    decompress,
    encode_batch,
)
from rota.engine.formats.record_batch_columns import decode_batches, iterate_records
from rota.errors import Code, FormatError, Refused
from tests.support.node import ClientConnection, InMemoryNode
from tests.support.requests import START

COUNT_AT, LAST_AT = 57, 23
HONEST = 1 << 20


def encode_body(
    body: bytes, count: int = 1, codec: CompressionType = CompressionType.ZSTD
) -> bytes:
    """A batch of records that are encoded already."""
    batch = bytearray(
        encode_batch([BatchRecord(0, START, b"k", b"v")])[: HEADER.size] + compress(codec, body)
    )
    struct.pack_into(">i", batch, 8, len(batch) - LOG_OVERHEAD)
    batch[ATTRIBUTES_OFFSET + 1] = codec
    struct.pack_into(">i", batch, LAST_AT, count - 1)
    struct.pack_into(">i", batch, COUNT_AT, count)
    CRC_FIELD.pack_into(batch, CRC_OFFSET, compute_crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]))
    return bytes(batch)


def batch_of_one(size: int) -> bytes:
    """One record with a value of so many zeros."""
    return encode_batch([BatchRecord(0, START, b"k", bytes(size))], codec=CompressionType.ZSTD)


def batch_of_many(count: int) -> bytes:
    """So many records, each of a few bytes."""
    return encode_body(
        encode_batch([BatchRecord(0, START, b"k", b"")])[HEADER.size :] * count, count
    )


def head_of(batch: bytes) -> BatchHeader:
    return BatchHeader._make(HEADER.unpack_from(batch))


@pytest.fixture
def node() -> InMemoryNode:
    node = InMemoryNode()
    node.create_topic("t", 8, cleanup_policy="compact")
    return node


@pytest.fixture
def peer(node: InMemoryNode) -> ClientConnection:
    return node.connect()


BOMBS = {
    "bytes": batch_of_one(BASE_BUDGET_BYTES + (1 << 20)),
    "records": batch_of_many(BASE_BUDGET_BYTES // RECORD_COST_BYTES + 10_000),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_is_refused_where_keys_must_be_seen(
    node: InMemoryNode, peer: ClientConnection, bomb: bytes
) -> None:
    assert len(bomb) < 10_000
    answer = peer.produce({("t", 0): bomb})["t", 0]
    assert answer.error_code == Code.MESSAGE_TOO_LARGE
    assert "limit" in answer.error_message
    assert node.topics.get_log("t", 0).log_end_offset == 0  # type: ignore[union-attr]


def test_many_batches_of_one_request_have_one_allowance(peer: ClientConnection) -> None:
    batch = batch_of_one(BASE_BUDGET_BYTES // 3 + HONEST)
    answers = peer.produce({("t", each): batch for each in range(8)})
    codes = [answers["t", each].error_code for each in range(8)]
    assert codes == [0, 0, *[Code.MESSAGE_TOO_LARGE] * 6]
    assert peer.produce({("t", 7): batch})["t", 7].error_code == 0


def test_a_batch_whose_codec_fails_late_has_used_the_allowance_up(peer: ClientConnection) -> None:
    broken = bytearray(batch_of_many(400_000))
    broken[-2:] = b"xx"
    CRC_FIELD.pack_into(broken, CRC_OFFSET, compute_crc32c(memoryview(broken)[ATTRIBUTES_OFFSET:]))
    answers = peer.produce({("t", 0): bytes(broken), ("t", 1): batch_of_one(HONEST)})
    assert [each.error_code for each in answers.values()] == [
        Code.CORRUPT_MESSAGE,
        Code.MESSAGE_TOO_LARGE,
    ]


@pytest.mark.parametrize("codec", CompressionType)
def test_honest_batches_are_taken(peer: ClientConnection, codec: CompressionType) -> None:
    sent = [BatchRecord(each, START, b"%d" % each, bytes(80)) for each in range(10_000)]
    batch = encode_batch(sent, codec=codec)
    answers = peer.produce({("t", each): batch for each in range(8)})
    assert {each.error_code for each in answers.values()} == {0}


def test_a_wrong_time_is_no_way_around(node: InMemoryNode, peer: ClientConnection) -> None:
    node.create_topic("plain", 1, message_timestamp_before_max_ms="1")
    bomb = bytearray(BOMBS["bytes"])
    struct.pack_into(">q", bomb, 27, START - 5)
    CRC_FIELD.pack_into(bomb, CRC_OFFSET, compute_crc32c(memoryview(bomb)[ATTRIBUTES_OFFSET:]))
    answer = peer.produce({("plain", 0): bytes(bomb)})["plain", 0]
    assert answer.error_code == Code.MESSAGE_TOO_LARGE


def send_list_offsets(
    peer: ClientConnection, topic: str, partitions: int, time: int = START
) -> None:
    """Asks for the offset of a time, in each partition."""
    kind = ListOffsetsRequest.ListOffsetsTopic
    asked = [
        kind.ListOffsetsPartition(partition_index=each, current_leader_epoch=-1, timestamp=time)
        for each in range(partitions)
    ]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[kind(name=topic, partitions=asked)], timeout_ms=0
    )
    peer.send(request, 9)


def receive_offsets(peer: ClientConnection) -> list[tuple[int, int]]:
    """Each partition's error and offset."""
    return [
        (each.error_code, each.offset)
        for topic in peer.receive().topics
        for each in topic.partitions
    ]


def test_others_get_their_turn_while_offsets_are_looked_up_by_time(node: InMemoryNode) -> None:
    node.create_topic("plain", 4)
    asking, other = node.connect(), node.connect()
    for each in range(4):
        other.store(batch_of_one(MAX_WORK_PER_EVENT), topic="plain", partition=each)
    send_list_offsets(asking, "plain", 4)
    send_list_offsets(other, "plain", 4, time=-1)
    assert (asking.waits, receive_offsets(other)) == (True, [(0, 1)] * 4)
    node.advance(0)
    assert receive_offsets(asking) == [(0, 0)] * 4


def test_a_client_that_is_gone_is_not_looked_up_for(node: InMemoryNode) -> None:
    node.create_topic("plain", 4)
    asking = node.connect()
    for each in range(4):
        asking.store(batch_of_one(MAX_WORK_PER_EVENT), topic="plain", partition=each)
    send_list_offsets(asking, "plain", 4)
    asking.disconnect()
    assert not node.node.has_resumable_requests


@pytest.mark.parametrize("time", [START, -3], ids=["by time", "the newest"])
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_is_not_looked_into_for_a_time(node: InMemoryNode, bomb: bytes, time: int) -> None:
    node.create_topic("plain", 1)
    peer = node.connect()
    peer.store(bomb, topic="plain")
    send_list_offsets(peer, "plain", 1, time)
    node.advance(0)
    assert receive_offsets(peer) == [(Code.MESSAGE_TOO_LARGE, -1)]
    assert "plain-0: no offset was found by time" in node.log_lines[-1]


def test_batches_that_lie_about_their_time_are_not_all_looked_into(node: InMemoryNode) -> None:
    node.create_topic("plain", 1)
    peer = node.connect()
    liar = bytearray(batch_of_one(BASE_BUDGET_BYTES // 2))
    struct.pack_into(">q", liar, 35, START + 10)
    CRC_FIELD.pack_into(liar, CRC_OFFSET, compute_crc32c(memoryview(liar)[ATTRIBUTES_OFFSET:]))
    peer.store(*[bytes(liar)] * 6, topic="plain")
    send_list_offsets(peer, "plain", 1, START + 10)
    node.advance(0)
    assert receive_offsets(peer) == [(Code.MESSAGE_TOO_LARGE, -1)]


def test_an_allowance_grows_with_what_was_sent() -> None:
    batch = encode_batch([BatchRecord(0, START, b"k", b"v")], codec=CompressionType.ZSTD)
    allowance = DecodeBudget(1_000)
    assert allowance.remaining == BASE_BUDGET_BYTES + BUDGET_RATIO * 1_000
    columns = allowance.decode_batch(batch, head_of(batch))
    unpacked = columns.buffer.size - len(batch)
    assert (
        allowance.remaining
        == BASE_BUDGET_BYTES + BUDGET_RATIO * 1_000 - RECORD_COST_BYTES - unpacked
    )
    with pytest.raises(Refused, match="limit"):
        DecodeBudget(0).decode_batch(BOMBS["bytes"], head_of(BOMBS["bytes"]))


def test_gzip_members_are_read_one_after_the_other() -> None:
    data = (
        compress(CompressionType.GZIP, b"a" * 50_000) + compress(CompressionType.GZIP, b"") * 2_000
    )
    assert (
        decompress(CompressionType.GZIP, data + compress(CompressionType.GZIP, b"b"))
        == b"a" * 50_000 + b"b"
    )
    with pytest.raises(FormatError, match="incomplete"):
        decompress(CompressionType.GZIP, data[:-1])


def test_what_is_wrong_with_very_many_records_is_not_searched_for() -> None:
    body = encode_batch([BatchRecord(0, START, b"k", b"")])[HEADER.size :] * 20_000
    [problem] = decode_batches(encode_body(body[:-1] + b"\x7f", 20_000)).problems
    assert problem.text == "its records do not follow the format"


def test_compaction_reads_large_batches_alone_and_small_ones_together(
    node: InMemoryNode, peer: ClientConnection
) -> None:
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": str(1 << 20),
        "min.cleanable.dirty.ratio": "0",
    }
    single_outcome(node.topics.configure_all({"t": settings}))
    for _ in range(3):
        peer.store(batch_of_one(GROUP_DECOMPRESSED_BYTES // 2), topic="t")
    log = node.topics.get_log("t", 0)
    assert log is not None
    log.roll(node.now)
    node.topics.log_manager.run_all(node.now)
    assert not any("not compacted" in line for line in node.log_lines)
    kept = [record.offset for record in _records(peer)]
    assert kept == [2]


def test_a_bomb_from_before_a_topic_was_compacted_stops_nothing_but_its_compaction(
    node: InMemoryNode,
) -> None:
    node.create_topic("plain", 1, segment_bytes=str(1 << 20))
    peer = node.connect()
    peer.store(BOMBS["records"], topic="plain")
    log = node.topics.get_log("plain", 0)
    assert log is not None
    log.roll(node.now)
    single_outcome(node.topics.configure_all({"plain": {"cleanup.policy": "compact"}}))
    node.topics.log_manager.run_all(node.now)
    assert [line for line in node.log_lines if "plain-0 is damaged and no longer compacted" in line]
    assert peer.store(batch_of_one(1), topic="plain") == [log.log_end_offset - 1]


def _records(peer: ClientConnection) -> list[BatchRecord]:
    data = bytes(peer.fetch({("t", 0): 0})["t", 0].records)
    return list(iterate_records(decode_batches(data)))
