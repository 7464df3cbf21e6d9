"""Produce and InitProducerId.

Produce appends one batch to each partition, as the producer made it. With one node, ``acks=1`` and
``acks=-1`` are the same: the batch is in the log before the response leaves. ``acks=0`` gets no
response; after an error the connection is closed, so that the producer notices. Versions 0 to 2 are
advertised but not handled, as in Kafka: older versions of librdkafka take a broker without them for
one that cannot compress.

InitProducerId gives an id that no other producer has, for idempotent writes. A producer that has an
id and asks again (version 3 on, after an error) gets a new one, as in Kafka: only transactional
producers keep theirs, and this broker has no transactions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rota.broker.dispatch import WARNING, Handler, HandlerContext, ServerRequest, explain_error
from rota.broker.storage.file_records import DecodeBudget
from rota.broker.topics import Topic, find_log, find_topic, find_topic_by_id
from rota.engine.formats.buffer import Bytes
from rota.engine.formats.record_batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_CODEC_MASK,
    HEADER,
    LENGTH_FIELD,
    LENGTH_OFFSET,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_OFFSET,
    TRANSACTIONAL_FLAG_MASK,
    CompressionType,
    describe_magic,
)
from rota.errors import Code, DiskError, Refused
from rota.protocol.messages import Api, InitProducerIdResponse, Message, ProduceResponse

TOPIC_ID_VERSION = 13

ZSTD_VERSION = 7

#: Where a batch has the lower byte of its attributes.
FLAGS_AT = ATTRIBUTES_OFFSET + 1

#: Bytes of the shortest message in the formats before batches.
SHORTEST_OLD_MESSAGE = 26

#: Refusals with which Kafka does not say where the log starts.
ERRORS_WITHOUT_LOG_START = frozenset(
    {
        Code.INVALID_TOPIC_EXCEPTION,
        Code.MESSAGE_TOO_LARGE,
        Code.RECORD_LIST_TOO_LARGE,
        Code.CORRUPT_MESSAGE,
        Code.KAFKA_STORAGE_ERROR,
    }
)


def handle_produce(parts: HandlerContext, call: ServerRequest) -> None:
    """Appends what a producer sends."""
    request = call.request
    if request.acks not in {-1, 0, 1}:
        text = f"acks may be -1, 0 or 1, not {request.acks}"
        return call.answer(_refuse_all(call, Code.INVALID_REQUIRED_ACKS, text))
    if _has_transactional_batch(request):
        # the code that every library takes for final; others are tried again until a timeout
        text = "this broker has no transactions"
        return _answer_or_drop(
            call, _refuse_all(call, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text), text
        )
    problems: list[str] = []
    allowance = DecodeBudget(call.size)
    answers = [
        _append_topic(parts, call, asked, allowance, problems)
        for asked in _last_batch_per_partition(request.topic_data)
    ]
    return _answer_or_drop(call, ProduceResponse(responses=answers, throttle_time_ms=0), *problems)


def refuse_produce(call: ServerRequest, code: Code) -> Message:
    """The same error for each partition; nothing for a producer that expects no answer."""
    return None if call.request.acks == 0 else _refuse_all(call, code, None)


def _answer_or_drop(call: ServerRequest, response: Message, *problems: str) -> None:
    if call.request.acks != 0:
        call.answer(response)
    elif problems:
        call.drop_connection(f"PRODUCE with acks=0 failed: {problems[0]}")
    else:
        call.answer(None)


@dataclass(frozen=True, slots=True)
class _TopicBatches:
    """What a topic is to be given."""

    name: str
    topic_id: bytes
    partitions: dict[int, Message]


def _last_batch_per_partition(topics: Iterable[Message]) -> Iterable[_TopicBatches]:
    """Of a partition that is named more than once the last counts, as in Kafka."""
    found: dict[tuple[str, bytes], _TopicBatches] = {}
    for topic in topics:
        key = (topic.name, topic.topic_id)
        asked = found.setdefault(key, _TopicBatches(*key, {}))
        asked.partitions.update({each.index: each for each in topic.partition_data})
    return found.values()


def _append_topic(
    parts: HandlerContext,
    call: ServerRequest,
    asked: _TopicBatches,
    allowance: DecodeBudget,
    problems: list[str],
) -> Message:
    topics = parts.topics
    try:
        found = (
            find_topic_by_id(topics, asked.topic_id)
            if call.version >= TOPIC_ID_VERSION
            else find_topic(topics, asked.name)
        )
    except Refused as unknown:
        problems.append(f"{unknown.code.name}: {unknown}")
        answers = [_produce_error(index, unknown.code, str(unknown)) for index in asked.partitions]
    else:
        answers = [
            _append_partition(parts, call, found, each, allowance, problems)
            for each in asked.partitions.values()
        ]
    return ProduceResponse.TopicProduceResponse(
        name=asked.name, topic_id=asked.topic_id, partition_responses=answers
    )


def _append_partition(  # noqa: PLR0913, PLR0917, what an append needs
    parts: HandlerContext,
    call: ServerRequest,
    topic: Topic,
    asked: Message,
    allowance: DecodeBudget,
    problems: list[str],
) -> Message:
    start = -1
    try:
        log = find_log(topic, asked.index)
        _check_single_batch(call.version, asked.records)
        start = log.log_start_offset
        return _append_batch(parts, call, topic, asked, allowance)
    except (Refused, DiskError) as error:
        where = f"{topic.name}-{asked.index}"
        code, text = explain_error(parts, error, where)
        problems.append(f"{where}: {code.name}: {text}")
        return _produce_error(
            asked.index,
            code,
            text,
            start=-1 if code in ERRORS_WITHOUT_LOG_START else start,
            records=_record_errors(error),
        )


def _check_single_batch(version: int, records: Bytes | None) -> None:
    """One whole batch of the only format there is; what is in it is the log's affair.

    :raises Refused: it is something else
    """
    size = 0 if records is None else len(records)
    if records is None or size <= MAGIC_OFFSET or size < _batch_size(records):
        raise Refused(Code.INVALID_RECORD, f"no whole batch of records in {size} bytes")
    magic = records[MAGIC_OFFSET]
    if _batch_size(records) < (HEADER.size if magic == MAGIC else SHORTEST_OLD_MESSAGE):
        raise Refused(Code.CORRUPT_MESSAGE, f"a batch of {_batch_size(records)} bytes cannot be")
    if magic != MAGIC:
        known = magic < MAGIC
        raise Refused(Code.INVALID_RECORD if known else Code.CORRUPT_MESSAGE, describe_magic(magic))
    if size > _batch_size(records):
        raise Refused(Code.INVALID_RECORD, "more than one batch of records")
    if (
        version < ZSTD_VERSION
        and _batch_attributes(records) & COMPRESSION_CODEC_MASK == CompressionType.ZSTD
    ):
        raise Refused(
            Code.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd may be used from version {ZSTD_VERSION} of Produce on, this is {version}",
        )


def _append_batch(
    parts: HandlerContext,
    call: ServerRequest,
    topic: Topic,
    asked: Message,
    allowance: DecodeBudget,
) -> Message:
    """Puts a batch at the end of a partition.

    :raises Refused: it is not allowed there
    :raises DiskError: it could not be written
    """
    if topic.is_internal:
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"{topic.name!r} is the broker's own")
    done = parts.topics.append(topic.name, asked.index, asked.records, call.now, allowance)
    return ProduceResponse.PartitionProduceResponse(
        index=asked.index,
        error_code=0,
        base_offset=done.base_offset,
        log_append_time_ms=done.append_time,
        log_start_offset=done.log_start_offset,
        record_errors=[],
        error_message=None,
    )


def _has_transactional_batch(request: Message) -> bool:
    return any(
        _batch_attributes(partition.records) & TRANSACTIONAL_FLAG_MASK
        for topic in request.topic_data
        for partition in topic.partition_data
    )


def _batch_attributes(batch: Bytes | None) -> int:
    return batch[FLAGS_AT] if batch is not None and len(batch) > FLAGS_AT else 0


def _batch_size(batch: Bytes) -> int:
    """All bytes of a batch, as its head has it."""
    length: int = LENGTH_FIELD.unpack_from(batch, LENGTH_OFFSET)[0]
    return LOG_OVERHEAD + length


def _record_errors(error: Refused | DiskError) -> list[Message]:
    if isinstance(error, DiskError):
        return []
    return [
        ProduceResponse.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
        for index, text in error.records
    ]


def _refuse_all(call: ServerRequest, code: Code, text: str | None) -> Message:
    topics = [
        ProduceResponse.TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                _produce_error(each.index, code, text) for each in topic.partition_data
            ],
        )
        for topic in call.request.topic_data
    ]
    return ProduceResponse(responses=topics, throttle_time_ms=0)


def _produce_error(
    partition: int,
    code: Code,
    text: str | None,
    *,
    start: int = -1,
    records: list[Message] | None = None,
) -> Message:
    return ProduceResponse.PartitionProduceResponse(
        index=partition,
        error_code=code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=start,
        record_errors=records or [],
        error_message=text,
    )


_PRODUCE_HANDLERS = (
    Handler(
        api=Api.PRODUCE,
        min_version=3,
        max_version=13,
        advertised_from=0,
        handle=handle_produce,
        error_response=refuse_produce,
    ),
)


def handle_init_producer_id(parts: HandlerContext, call: ServerRequest) -> None:
    """Gives out an id."""
    request = call.request
    if (request.producer_id == -1) != (request.producer_epoch == -1) or (
        request.transactional_id == ""
    ):
        return call.answer(refuse_init_producer_id(call, Code.INVALID_REQUEST))
    if request.transactional_id is not None:
        parts.log(
            WARNING,
            f"{call.client.host}: transactional.id {request.transactional_id!r} is refused: "
            "this broker has no transactions",
        )
        # the code that every library takes for final; others are tried again until a timeout
        return call.answer(
            refuse_init_producer_id(call, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        )
    try:
        producer = parts.topics.new_producer_id()
    except (Refused, DiskError) as error:
        return call.answer(
            refuse_init_producer_id(call, explain_error(parts, error, "a new producer id")[0])
        )
    return call.answer(_init_producer_id_response(Code.NONE, producer, 0))


def refuse_init_producer_id(_: ServerRequest, code: Code) -> Message:
    """The error, and no id."""
    return _init_producer_id_response(code, -1, -1)


def _init_producer_id_response(code: Code, producer: int, epoch: int) -> Message:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=code, producer_id=producer, producer_epoch=epoch
    )


_INIT_PRODUCER_ID_HANDLERS = (
    Handler(
        api=Api.INIT_PRODUCER_ID,
        min_version=0,
        max_version=5,
        handle=handle_init_producer_id,
        error_response=refuse_init_producer_id,
    ),
)

HANDLERS = (*_PRODUCE_HANDLERS, *_INIT_PRODUCER_ID_HANDLERS)
