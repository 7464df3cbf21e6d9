"""Metadata and DescribeTopicPartitions: which topics there are, and who leads their partitions."""

from __future__ import annotations

from collections.abc import Iterable

from rota.broker.call import Call
from rota.broker.dispatch import Handler
from rota.broker.handlers.cluster import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from rota.broker.part import Parts
from rota.broker.topic import MOST_PARTITIONS, Topic, Wanted
from rota.errors import Code, Refused
from rota.model.naming import INTERNAL, JOURNAL, misname
from rota.wire.api import Api
from rota.wire.message import (
    NO_ID,
    DescribeTopicPartitionsResponse,
    Message,
    MetadataResponse,
)

IDS_FROM = 12
"""The version from which topics may be asked for by id."""
MOST_DESCRIBED = 2_000
"""So many partitions are described in one answer; Kafka's default."""
NO_LEADER = -1
MOST_MADE = 1_000
"""So many topics are made by one request at most, as nobody else is served meanwhile."""


# Metadata


def handle_metadata(parts: Parts, call: Call) -> None:
    """Describes the topics asked for; those that are missing are made, where that is wanted."""
    request = call.request
    if not all(_well_asked(call, each) for each in request.topics or ()):
        return call.answer(refuse_metadata(call, Code.INVALID_REQUEST))
    everything = request.topics is None or (call.version == 0 and not request.topics)
    if everything:
        topics = [_described(parts, topic) for topic in parts.topics]
    else:
        topics = _asked(parts, call)
    if call.version >= 8 and request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    asked = 8 <= call.version <= 10 and request.include_cluster_authorized_operations
    host, port = parts.address
    node = parts.config.node_id
    return call.answer(
        MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=node, host=host, port=port, rack=None
                )
            ],
            cluster_id=parts.topics.cluster_id,
            controller_id=node,
            topics=topics,
            cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
        )
    )


def _well_asked(call: Call, asked: Message) -> bool:
    """Ids have been in the schema for longer than they may be used."""
    by_id = call.version >= 10 and asked.topic_id != NO_ID
    if call.version < IDS_FROM:
        return asked.name is not None and not by_id
    return asked.name is not None or by_id


def _asked(parts: Parts, call: Call) -> list[Message]:
    """By id if there is one id at least, else by name, as in Kafka; each topic once."""
    asked = call.request.topics
    ids = [each.topic_id for each in asked if call.version >= 10 and each.topic_id != NO_ID]
    if ids:
        return [_by_id(parts, each) for each in dict.fromkeys(ids)]
    wanted = call.version < 4 or call.request.allow_auto_topic_creation
    create = parts.config.auto_create_topics and wanted
    names = dict.fromkeys(each.name for each in asked if each.name is not None)
    refusals = _create(parts, names, call.now) if create else {}
    return [_by_name(parts, name, refusals.get(name)) for name in names]


def _by_id(parts: Parts, topic_id: bytes) -> Message:
    topic = parts.topics.by_id(topic_id)
    if topic is None:
        return _missing(Code.UNKNOWN_TOPIC_ID, None, topic_id)
    return _described(parts, topic)


def _create(parts: Parts, names: Iterable[str], now: int) -> dict[str, Refused]:
    """Makes topics that are missing; gives those that were not made.

    Of very many only the first are made: clients ask again for the others, and come to them so.
    """
    count = parts.config.default_partitions
    most = max(min(MOST_MADE, MOST_PARTITIONS // count), 1)
    missing = [name for name in names if parts.topics.get(name) is None]
    refusals: dict[str, Refused] = {}
    if not missing:
        return refusals
    if JOURNAL in missing:
        missing.remove(JOURNAL)
        try:
            parts.topics.journal(now)
        except Refused as error:
            refusals[JOURNAL] = error
    wanted = [Wanted(name, count, {}) for name in missing[:most]]
    for each, outcome in zip(wanted, parts.topics.create_all(wanted, now), strict=True):
        if isinstance(outcome, Refused):
            refusals[each.name] = outcome
    return refusals


def _by_name(parts: Parts, name: str, refusal: Refused | None) -> Message:
    topic = parts.topics.get(name)
    if topic is not None:
        return _described(parts, topic)
    if refusal is not None:
        return _missing(refusal.code, name)
    known = Code.UNKNOWN_TOPIC_OR_PARTITION if misname(name) is None else None
    return _missing(known or Code.INVALID_TOPIC_EXCEPTION, name)


def _described(parts: Parts, topic: Topic) -> Message:
    node = parts.config.node_id
    partition = MetadataResponse.MetadataResponsePartition
    return MetadataResponse.MetadataResponseTopic(
        error_code=Code.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=[
            partition(
                error_code=Code.NONE if log.offline is None else Code.LEADER_NOT_AVAILABLE,
                partition_index=number,
                leader_id=node if log.offline is None else NO_LEADER,
                leader_epoch=log.epochs.latest,
                replica_nodes=[node],
                isr_nodes=[node],
                offline_replicas=[] if log.offline is None else [node],
            )
            for number, log in enumerate(topic.logs)
        ],
    )


def _missing(code: Code, name: str | None, topic_id: bytes = NO_ID) -> Message:
    return MetadataResponse.MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL,
        partitions=[],
    )


def refuse_metadata(call: Call, code: Code) -> Message:
    """Every topic asked for has the error; the whole answer too, from version 13 on."""
    topics = [
        _missing(
            code,
            each.name if each.name is not None or call.version >= IDS_FROM else "",
            each.topic_id if call.version >= 10 else NO_ID,
        )
        for each in call.request.topics or ()
    ]
    return MetadataResponse(brokers=[], topics=topics, error_code=code)


# DescribeTopicPartitions


def handle_describe(parts: Parts, call: Call) -> None:
    """Describes topics in the order of their names, some partitions at a time."""
    request = call.request
    cursor = request.cursor
    begin = cursor.topic_name if cursor is not None else ""
    everything = not request.topics
    names: Iterable[str] = (
        (topic.name for topic in parts.topics) if everything else (t.name for t in request.topics)
    )
    wanted = sorted({name for name in names if name >= begin})
    if cursor is not None and (
        cursor.partition_index < 0 or (not everything and begin not in wanted)
    ):
        return call.answer(refuse_describe(call, Code.INVALID_REQUEST))
    left = max(min(MOST_DESCRIBED, request.response_partition_limit), 1)
    topics: list[Message] = []
    next_cursor = None
    for name in wanted:
        if left <= 0:
            next_cursor = _cursor(name, 0)
            break
        topic = parts.topics.get(name)
        if topic is None:
            if not everything:
                bad = misname(name) is not None
                code = Code.INVALID_TOPIC_EXCEPTION if bad else Code.UNKNOWN_TOPIC_OR_PARTITION
                topics.append(_undescribed(name, code, TOPIC_OPERATIONS))
            continue
        first = cursor.partition_index if cursor is not None and name == begin else 0
        last = min(first + left, topic.partitions)
        topics.append(_detailed(parts, topic, range(first, last)))
        left -= max(last - first, 0)
        if last < topic.partitions:
            next_cursor = _cursor(name, last)
            break
    return call.answer(DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor))


def _cursor(name: str, partition: int) -> Message:
    return DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=partition)


def _detailed(parts: Parts, topic: Topic, numbers: Iterable[int]) -> Message:
    node = parts.config.node_id
    partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
    return DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=Code.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=[
            partition(
                error_code=Code.NONE if log.offline is None else Code.LEADER_NOT_AVAILABLE,
                partition_index=number,
                leader_id=node if log.offline is None else NO_LEADER,
                leader_epoch=log.epochs.latest,
                replica_nodes=[node],
                isr_nodes=[node],
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[] if log.offline is None else [node],
            )
            for number in numbers
            for log in (topic.logs[number],)
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _undescribed(name: str, code: Code, operations: int) -> Message:
    return DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=NO_ID,
        is_internal=name in INTERNAL,
        partitions=[],
        topic_authorized_operations=operations,
    )


def refuse_describe(call: Call, code: Code) -> Message:
    """Every topic asked for has the error."""
    topics = [_undescribed(each.name, code, NOT_ASKED) for each in call.request.topics]
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=None)


HANDLERS = (
    Handler(api=Api.METADATA, lowest=0, highest=13, handle=handle_metadata, refuse=refuse_metadata),
    Handler(
        api=Api.DESCRIBE_TOPIC_PARTITIONS,
        lowest=0,
        highest=0,
        handle=handle_describe,
        refuse=refuse_describe,
    ),
)
