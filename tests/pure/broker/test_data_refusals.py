"""Each data API in each version: the answer when all of it is refused follows its schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol import admin, consumer, producer

from rota.broker.dispatch import AnyHandler, AnyRequest
from rota.broker.faults import FaultInjector
from rota.broker.handlers import fetch, log_offsets, produce
from rota.errors import Code
from rota.protocol.messages import Api
from tests.support.node import InMemoryNode
from tests.support.requests import fetch_request, numbered_batch, produce_request

MODULES = (produce, fetch, log_offsets)
DATA = [each for module in MODULES for each in module.HANDLERS]


class Refusing(FaultInjector):
    """Every call is refused."""

    def intercept(self, handler: AnyHandler, call: AnyRequest, answer: Callable[[], None]) -> bool:
        call.respond(handler.error_response(call, Code.KAFKA_STORAGE_ERROR))
        return True


def request_of(api: Api, node: InMemoryNode) -> Any:
    topics = consumer.ListOffsetsRequest.ListOffsetsTopic
    epochs = consumer.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    deleted = admin.DeleteRecordsRequest.DeleteRecordsTopic
    match api:
        case Api.PRODUCE:
            return produce_request(
                node.topic_ids(), {("t", 0): numbered_batch(1), ("t", 1): numbered_batch(1)}
            )
        case Api.FETCH:
            return fetch_request(node.topic_ids(), {("t", 0): 0, ("t", 1): 0})
        case Api.LIST_OFFSETS:
            parts = [topics.ListOffsetsPartition(partition_index=0, timestamp=-1)]
            return consumer.ListOffsetsRequest(
                replica_id=-1,
                isolation_level=0,
                topics=[topics(name="t", partitions=parts)],
                timeout_ms=0,
            )
        case Api.OFFSET_FOR_LEADER_EPOCH:
            wanted = [epochs.OffsetForLeaderPartition(partition=0, leader_epoch=0)]
            return consumer.OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[epochs(topic="t", partitions=wanted)]
            )
        case Api.DELETE_RECORDS:
            gone = [deleted.DeleteRecordsPartition(partition_index=0, offset=0)]
            return admin.DeleteRecordsRequest(
                topics=[deleted(name="t", partitions=gone)], timeout_ms=0
            )
        case _:
            return producer.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)


def codes(message: Any) -> set[int]:
    """Every error code of a response, wherever it is."""
    found: set[int] = set()
    if isinstance(message, dict):
        for name, value in message.items():
            found |= {value} if name == "error_code" else codes(value)
    elif isinstance(message, list):
        for each in message:
            found |= codes(each)
    return found


@pytest.mark.parametrize(
    ("api", "version"),
    [
        (handler.api, version)
        for handler in DATA
        for version in range(handler.min_version, handler.max_version + 1)
    ],
)
def test_refused(api: Api, version: int) -> None:
    node = InMemoryNode()
    node.create_topic("t", 2)
    node.node.faults = Refusing(node.node.context.timers)
    response = node.connect().ask(request_of(api, node), version)
    assert codes(response.to_dict()) == {Code.KAFKA_STORAGE_ERROR}


def test_a_producer_that_expects_no_answer_gets_none() -> None:
    node = InMemoryNode()
    node.create_topic("t", 2)
    node.node.faults = Refusing(node.node.context.timers)
    peer = node.connect()
    assert (
        peer.ask(produce_request(node.topic_ids(), {("t", 0): numbered_batch(1)}, acks=0), 9)
        is None
    )
    assert peer.closed is None
