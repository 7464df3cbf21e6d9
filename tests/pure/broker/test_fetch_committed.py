"""Readers of committed records only, on a log with transactions as a Kafka leaves it."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer import ListOffsetsRequest

from rota.engine.formats.record_batch import (
    BatchRecord,
    ControlRecordType,
    encode_batch,
)
from rota.engine.formats.record_batch_columns import decode_batches, iterate_records
from tests.support.node import ClientConnection, InMemoryNode
from tests.support.requests import START, fetch_request, numbered_batch
from tests.support.transactions import encode_end_transaction_marker

T = ("t", 0)
FILE = "t-0/00000000000000000000.log"
COMMITTED = 1


def transaction_batch(offset: int, producer: int) -> bytes:
    """Two records of a transaction."""
    return encode_batch(
        [BatchRecord(offset + each, START, b"k", b"v") for each in range(2)],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def end_transaction_marker(kind: ControlRecordType, offset: int, producer: int) -> bytes:
    return encode_end_transaction_marker(
        kind, offset=offset, timestamp=START, producer_id=producer, producer_epoch=0
    )


def reopen_node(*batches: bytes) -> ClientConnection:
    """A partition with two records of no transaction, and then these batches."""
    node = InMemoryNode()
    node.create_topic("t")
    node.connect().store(numbered_batch(2))
    for each in batches:
        node.disk.append(FILE, each)
    return node.restart().connect()


ONE_OPEN = (
    transaction_batch(2, 9),
    transaction_batch(4, 10),
    end_transaction_marker(ControlRecordType.ABORT, 6, 9),
)
ALL_ENDED = (*ONE_OPEN, end_transaction_marker(ControlRecordType.COMMIT, 7, 10))


def offsets(data: bytes) -> list[int]:
    return [record.offset for record in iterate_records(decode_batches(bytes(data)))]


@pytest.mark.parametrize("version", range(4, 19))
def test_up_to_the_first_open_transaction(version: int) -> None:
    answer = reopen_node(*ONE_OPEN).fetch({T: 0}, version, isolation=COMMITTED)[T]
    assert offsets(answer.records)[-1] == 3
    assert (answer.high_watermark, answer.last_stable_offset) == (7, 4)
    aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]
    assert aborted == [(9, 2)]


def test_other_readers_see_all() -> None:
    answer = reopen_node(*ONE_OPEN).fetch({T: 0})[T]
    assert len(bytes(answer.records)) == sum(map(len, (numbered_batch(2), *ONE_OPEN)))
    assert answer.last_stable_offset == 4
    assert answer.aborted_transactions is None


def test_when_all_have_ended_it_is_said_which_were_aborted() -> None:
    peer = reopen_node(*ALL_ENDED)
    answer = peer.fetch({T: 4}, isolation=COMMITTED)[T]
    assert answer.last_stable_offset == answer.high_watermark == 8
    assert [each.producer_id for each in answer.aborted_transactions] == [9]
    at_marker = peer.fetch({T: 6}, isolation=COMMITTED)[T]
    assert [each.producer_id for each in at_marker.aborted_transactions] == [9]
    late = peer.fetch({T: 7}, isolation=COMMITTED)[T]
    assert late.aborted_transactions == []


def test_an_aborted_transaction_behind_what_is_given_is_not_told() -> None:
    peer = reopen_node(*ALL_ENDED)
    answer = peer.fetch({T: 0}, isolation=COMMITTED, partition_max=1)[T]
    assert offsets(answer.records) == [0, 1]
    assert answer.aborted_transactions == []


def test_what_is_not_stable_does_not_end_a_wait() -> None:
    peer = reopen_node(*ONE_OPEN)
    peer.send(fetch_request(peer.node.topic_ids(), {T: 4}, isolation=COMMITTED, max_wait=500), 16)
    peer.node.connect().store(numbered_batch(1))
    assert peer.waits
    peer.node.advance(500)
    assert bytes(peer.fetched(peer.receive())[T].records) == b""


@pytest.mark.parametrize(("isolation", "expected"), [(0, 7), (COMMITTED, 4)])
def test_the_end_for_each_kind_of_reader(isolation: int, expected: int) -> None:
    kind = ListOffsetsRequest.ListOffsetsTopic
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            kind(
                name="t",
                partitions=[kind.ListOffsetsPartition(partition_index=0, timestamp=-1)],
            )
        ],
    )
    answer = reopen_node(*ONE_OPEN).ask(request, 7).topics[0].partitions[0]
    assert answer.offset == expected
