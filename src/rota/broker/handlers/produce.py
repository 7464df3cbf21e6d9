"""Produce: one batch for each partition, as the producer made it, to the end of the log.

With one node, ``acks=1`` and ``acks=-1`` are the same: the batch is in the log before the answer
leaves. ``acks=0`` gets no answer; where something goes wrong the connection is closed, so that the
producer notices. Versions 0 to 2 are told to clients but not handled, as in Kafka: older versions
of librdkafka take a broker without them for one that cannot compress.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rota.broker.call import Call
from rota.broker.dispatch import Handler
from rota.broker.handlers.partition import log_of, reason, topic_of, topic_with_id
from rota.broker.part import Parts
from rota.broker.topic import Topic
from rota.errors import Code, DiskError, Refused
from rota.formats.batch.header import (
    ATTRIBUTES_AT,
    CODEC_BITS,
    HEAD,
    LENGTH,
    LENGTH_AT,
    MAGIC,
    MAGIC_AT,
    PREFIX,
    TRANSACTIONAL_BIT,
    Codec,
    magic_problem,
)
from rota.formats.buffer import Bytes
from rota.storage.allowance import Allowance
from rota.wire.api import Api
from rota.wire.message import Message, ProduceResponse

TOPIC_IDS_FROM = 13
ZSTD_FROM = 7
FLAGS_AT = ATTRIBUTES_AT + 1
"""Where a batch has the lower byte of its attributes."""
SHORTEST = 26
"""Bytes of the shortest message in the formats before batches."""
WITHOUT_START = frozenset(
    {
        Code.INVALID_TOPIC_EXCEPTION,
        Code.MESSAGE_TOO_LARGE,
        Code.RECORD_LIST_TOO_LARGE,
        Code.CORRUPT_MESSAGE,
        Code.KAFKA_STORAGE_ERROR,
    }
)
"""Refusals with which Kafka does not say where the log starts."""


def handle(parts: Parts, call: Call) -> None:
    """Appends what a producer sends."""
    request = call.request
    if request.acks not in {-1, 0, 1}:
        text = f"acks may be -1, 0 or 1, not {request.acks}"
        return call.answer(_all_refused(call, Code.INVALID_REQUIRED_ACKS, text))
    if _is_transactional(request):
        # the code that every library takes for final; others are tried again until a timeout
        text = "this broker has no transactions"
        return _finish(
            call, _all_refused(call, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text), text
        )
    problems: list[str] = []
    allowance = Allowance(call.size)
    answers = [
        _topic(parts, call, asked, allowance, problems) for asked in _each_once(request.topic_data)
    ]
    return _finish(call, ProduceResponse(responses=answers, throttle_time_ms=0), *problems)


def refuse(call: Call, code: Code) -> Message:
    """The same error for each partition; nothing for a producer that expects no answer."""
    return None if call.request.acks == 0 else _all_refused(call, code, None)


def _finish(call: Call, response: Message, *problems: str) -> None:
    if call.request.acks != 0:
        call.answer(response)
    elif problems:
        call.drop(f"PRODUCE with acks=0 failed: {problems[0]}")
    else:
        call.answer(None)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a topic is to be given."""

    name: str
    topic_id: bytes
    partitions: dict[int, Message]


def _each_once(topics: Iterable[Message]) -> Iterable[_Asked]:
    """Of a partition that is named more than once the last counts, as in Kafka."""
    found: dict[tuple[str, bytes], _Asked] = {}
    for topic in topics:
        key = (topic.name, topic.topic_id)
        asked = found.setdefault(key, _Asked(*key, {}))
        asked.partitions.update({each.index: each for each in topic.partition_data})
    return found.values()


def _topic(
    parts: Parts, call: Call, asked: _Asked, allowance: Allowance, problems: list[str]
) -> Message:
    topics = parts.topics
    try:
        found = (
            topic_with_id(topics, asked.topic_id)
            if call.version >= TOPIC_IDS_FROM
            else topic_of(topics, asked.name)
        )
    except Refused as unknown:
        problems.append(f"{unknown.code.name}: {unknown}")
        answers = [_failed(index, unknown.code, str(unknown)) for index in asked.partitions]
    else:
        answers = [
            _partition(parts, call, found, each, allowance, problems)
            for each in asked.partitions.values()
        ]
    return ProduceResponse.TopicProduceResponse(
        name=asked.name, topic_id=asked.topic_id, partition_responses=answers
    )


def _partition(  # noqa: PLR0913, PLR0917, what an append needs
    parts: Parts,
    call: Call,
    topic: Topic,
    asked: Message,
    allowance: Allowance,
    problems: list[str],
) -> Message:
    start = -1
    try:
        log = log_of(topic, asked.index)
        _check_form(call.version, asked.records)
        start = log.start
        return _append(parts, call, topic, asked, allowance)
    except (Refused, DiskError) as error:
        where = f"{topic.name}-{asked.index}"
        code, text = reason(parts, error, where)
        problems.append(f"{where}: {code.name}: {text}")
        return _failed(
            asked.index,
            code,
            text,
            start=-1 if code in WITHOUT_START else start,
            records=_record_errors(error),
        )


def _check_form(version: int, records: Bytes | None) -> None:
    """One whole batch of the only format there is; what is in it is the log's affair.

    :raises Refused: it is something else
    """
    size = 0 if records is None else len(records)
    if records is None or size <= MAGIC_AT or size < _size(records):
        raise Refused(Code.INVALID_RECORD, f"no whole batch of records in {size} bytes")
    magic = records[MAGIC_AT]
    if _size(records) < (HEAD.size if magic == MAGIC else SHORTEST):
        raise Refused(Code.CORRUPT_MESSAGE, f"a batch of {_size(records)} bytes cannot be")
    if magic != MAGIC:
        known = magic < MAGIC
        raise Refused(Code.INVALID_RECORD if known else Code.CORRUPT_MESSAGE, magic_problem(magic))
    if size > _size(records):
        raise Refused(Code.INVALID_RECORD, "more than one batch of records")
    if version < ZSTD_FROM and _attributes(records) & CODEC_BITS == Codec.ZSTD:
        raise Refused(
            Code.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd may be used from version {ZSTD_FROM} of Produce on, this is {version}",
        )


def _append(
    parts: Parts, call: Call, topic: Topic, asked: Message, allowance: Allowance
) -> Message:
    """Puts a batch at the end of a partition.

    :raises Refused: it is not allowed there
    :raises DiskError: it could not be written
    """
    if topic.internal:
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"{topic.name!r} is the broker's own")
    done = parts.topics.append(topic.name, asked.index, asked.records, call.now, allowance)
    return ProduceResponse.PartitionProduceResponse(
        index=asked.index,
        error_code=0,
        base_offset=done.base_offset,
        log_append_time_ms=done.append_time,
        log_start_offset=done.log_start,
        record_errors=[],
        error_message=None,
    )


def _is_transactional(request: Message) -> bool:
    return any(
        _attributes(partition.records) & TRANSACTIONAL_BIT
        for topic in request.topic_data
        for partition in topic.partition_data
    )


def _attributes(batch: Bytes | None) -> int:
    return batch[FLAGS_AT] if batch is not None and len(batch) > FLAGS_AT else 0


def _size(batch: Bytes) -> int:
    """All bytes of a batch, as its head has it."""
    length: int = LENGTH.unpack_from(batch, LENGTH_AT)[0]
    return PREFIX + length


def _record_errors(error: Refused | DiskError) -> list[Message]:
    if isinstance(error, DiskError):
        return []
    return [
        ProduceResponse.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
        for index, text in error.records
    ]


def _all_refused(call: Call, code: Code, text: str | None) -> Message:
    topics = [
        ProduceResponse.TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[_failed(each.index, code, text) for each in topic.partition_data],
        )
        for topic in call.request.topic_data
    ]
    return ProduceResponse(responses=topics, throttle_time_ms=0)


def _failed(
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


HANDLERS = (
    Handler(
        api=Api.PRODUCE,
        lowest=3,
        highest=13,
        advertised_from=0,
        handle=handle,
        refuse=refuse,
    ),
)
