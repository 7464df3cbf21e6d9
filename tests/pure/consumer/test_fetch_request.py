"""Fetch requests as they go to brokers of several versions, and answers as they come back."""

from __future__ import annotations

from typing import Any

import pytest

from rota.client.fetch import (
    LAST_VERSION_WITH_NAMES,
    FetchedPartition,
    RequestedPartition,
    build_fetch,
)
from rota.engine.formats import record_batch
from rota.engine.formats.record_batch import BatchRecord
from rota.engine.model.config import FetchConfig
from rota.engine.model.topic import TopicPartition
from rota.protocol.codec import (
    RequestHeader,
    read_request,
    read_request_header,
    read_response,
    write_request,
    write_response,
)
from rota.protocol.messages import ZERO_UUID, Api, FetchRequest, FetchResponse

ORDERS = b"orders".ljust(16, b"!")
DATA = record_batch.encode_batch([BatchRecord(5, 1_790_000_000_000, None, b"v")])
CONFIG = FetchConfig(rack="a", isolation="read_committed", fetch_max_bytes=1000)


def encode_and_decode_request(wanted: list[RequestedPartition], version: int) -> FetchRequest:
    """The request as a broker reads it."""
    made = build_fetch(wanted, CONFIG)
    assert made.max_version is None or made.max_version >= version
    frame = write_request(RequestHeader(Api.FETCH, version, 1, None, 0), made.message)[4:]
    return read_request(FetchRequest, version, frame, read_request_header(frame).size)


def encode_and_decode_response(
    version: int, wanted: list[RequestedPartition], **fields: Any
) -> list[FetchedPartition]:
    topic = wanted[0]
    made = FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=topic.partition.topic,
                topic_id=topic.topic_id,
                partitions=[
                    FetchResponse.PartitionData(partition_index=number, records=DATA, **fields)
                    for number in (1, 9)
                ],
            )
        ]
    )
    frame = write_response(Api.FETCH, version, 1, made)[4:]
    _, response = read_response(FetchResponse, version, frame)
    return build_fetch(wanted, CONFIG).parse(response)


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_asks_for_the_same(version: int) -> None:
    known = RequestedPartition(TopicPartition("orders", 1), ORDERS, 5, leader_epoch=3)
    got = encode_and_decode_request([known], version)
    (topic,) = got.topics
    if version <= LAST_VERSION_WITH_NAMES:
        assert topic.topic == "orders"
    else:
        assert topic.topic_id == ORDERS
    (partition,) = topic.partitions
    assert (partition.partition, partition.fetch_offset) == (1, 5)
    assert partition.current_leader_epoch == (3 if version >= 9 else -1)
    assert (got.max_bytes, got.isolation_level, got.session_epoch) == (1000, 1, -1)
    assert got.rack_id == ("a" if version >= 11 else "")


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_is_answered_alike(version: int) -> None:
    """What was not asked for is passed over."""
    wanted = [RequestedPartition(TopicPartition("orders", 1), ORDERS, 5)]
    aborted = [FetchResponse.AbortedTransaction(producer_id=7, first_offset=2)]
    (found,) = encode_and_decode_response(
        version, wanted, high_watermark=6, aborted_transactions=aborted
    )
    assert (found.partition, found.error_code, found.fetch_offset) == (wanted[0].partition, 0, 5)
    assert (bytes(found.records), found.high_watermark, found.aborted_transactions) == (
        DATA,
        6,
        ((7, 2),),
    )


def test_a_topic_without_an_id_is_asked_for_by_name() -> None:
    known = RequestedPartition(TopicPartition("orders", 1), ORDERS, 5)
    nameless = RequestedPartition(TopicPartition("old", 0), ZERO_UUID, 0)
    assert build_fetch([known], CONFIG).max_version is None
    assert build_fetch([known, nameless], CONFIG).max_version == LAST_VERSION_WITH_NAMES


def test_an_error_of_the_whole_answer_is_one_of_each_partition() -> None:
    wanted = [RequestedPartition(TopicPartition("orders", number), ORDERS, 5) for number in (0, 1)]
    found = build_fetch(wanted, CONFIG).parse(FetchResponse(error_code=29))
    assert [(each.partition.partition, each.error_code) for each in found] == [(0, 29), (1, 29)]


def test_the_preferred_replica_is_read() -> None:
    wanted = [RequestedPartition(TopicPartition("orders", 1), ORDERS, 5)]
    (found,) = encode_and_decode_response(16, wanted, preferred_read_replica=6)
    assert found.preferred_read_replica == 6


def test_partitions_are_asked_for_in_the_order_given_across_topics() -> None:
    names = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
    turn = [names[1], names[2], names[0]]
    message = build_fetch(
        [RequestedPartition(each, ZERO_UUID, 0) for each in turn], FetchConfig()
    ).message
    asked = [
        TopicPartition(topic.topic, each.partition)
        for topic in message.topics
        for each in topic.partitions
    ]
    assert asked == turn
