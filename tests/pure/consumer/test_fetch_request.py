"""Fetch requests as they go to brokers of several versions, and answers as they come back."""

from __future__ import annotations

import pytest

from rota.client.fetch import NAMES_UPTO, Fetched, Wanted, request
from rota.formats import batch
from rota.formats.batch import Record
from rota.model.client import ReadConfig
from rota.model.topic import TopicPartition
from rota.wire.api import Api
from rota.wire.message import (
    NO_ID,
    FetchResponse,
    Head,
    Message,
    read_head,
    read_request,
    read_response,
    write_request,
    write_response,
)

ORDERS = b"orders".ljust(16, b"!")
DATA = batch.encode([Record(5, 1_790_000_000_000, None, b"v")])
CONFIG = ReadConfig(rack="a", isolation="read_committed", fetch_max_bytes=1000)


def sent(wanted: list[Wanted], version: int) -> Message:
    """The request as a broker reads it."""
    made = request(wanted, CONFIG)
    assert made.most is None or made.most >= version
    frame = write_request(Head(Api.FETCH, version, 1, None, 0), made.message)[4:]
    return read_request(Api.FETCH, version, frame, read_head(frame).size)


def answered(version: int, wanted: list[Wanted], **fields: object) -> list[Fetched]:
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
    _, response = read_response(Api.FETCH, version, frame)
    return request(wanted, CONFIG).parse(response)


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_asks_for_the_same(version: int) -> None:
    known = Wanted(TopicPartition("orders", 1), ORDERS, 5, leader_epoch=3)
    got = sent([known], version)
    (topic,) = got.topics
    if version <= NAMES_UPTO:
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
    wanted = [Wanted(TopicPartition("orders", 1), ORDERS, 5)]
    aborted = [FetchResponse.AbortedTransaction(producer_id=7, first_offset=2)]
    (found,) = answered(version, wanted, high_watermark=6, aborted_transactions=aborted)
    assert (found.partition, found.code, found.fetch_offset) == (wanted[0].partition, 0, 5)
    assert (bytes(found.records), found.high_watermark, found.aborted) == (DATA, 6, ((7, 2),))


def test_a_topic_without_an_id_is_asked_for_by_name() -> None:
    known = Wanted(TopicPartition("orders", 1), ORDERS, 5)
    nameless = Wanted(TopicPartition("old", 0), NO_ID, 0)
    assert request([known], CONFIG).most is None
    assert request([known, nameless], CONFIG).most == NAMES_UPTO


def test_an_error_of_the_whole_answer_is_one_of_each_partition() -> None:
    wanted = [Wanted(TopicPartition("orders", number), ORDERS, 5) for number in (0, 1)]
    found = request(wanted, CONFIG).parse(FetchResponse(error_code=29))
    assert [(each.partition.partition, each.code) for each in found] == [(0, 29), (1, 29)]


def test_where_logs_part_and_who_leads_is_told() -> None:
    wanted = [Wanted(TopicPartition("orders", 1), ORDERS, 5, last_epoch=2)]
    (found,) = answered(
        16,
        wanted,
        diverging_epoch=FetchResponse.EpochEndOffset(epoch=1, end_offset=4),
        current_leader=FetchResponse.LeaderIdAndEpoch(leader_id=8, leader_epoch=3),
        preferred_read_replica=6,
    )
    assert (found.diverging, found.leader, found.preferred_replica) == ((1, 4), (8, 3), 6)


def test_partitions_are_asked_for_in_the_order_given_across_topics() -> None:
    names = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
    turn = [names[1], names[2], names[0]]
    message = request([Wanted(each, NO_ID, 0) for each in turn], ReadConfig()).message
    asked = [
        TopicPartition(topic.topic, each.partition)
        for topic in message.topics
        for each in topic.partitions
    ]
    assert asked == turn
