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

from collections.abc import Mapping
from logging import WARNING

from rota.broker.dispatch import Handler, ServerRequest
from rota.broker.storage.file_records import DecodeBudget
from rota.broker.topics import Topic, find_log, find_topic
from rota.engine.formats import record_batch
from rota.engine.formats.buffer import Bytes
from rota.errors import Code, DiskError, Refused
from rota.protocol.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)

TOPIC_ID_VERSION = 13  # topics have ids in place of names from this version on
ZSTD_VERSION = 7
FLAGS_AT = record_batch.ATTRIBUTES_OFFSET + 1
SHORTEST_OLD_MESSAGE = 26  # bytes of the shortest message in the formats before batches

#: Errors for which Kafka leaves out the log start offset.
ERRORS_WITHOUT_LOG_START = frozenset(
    {
        Code.INVALID_TOPIC_EXCEPTION,
        Code.MESSAGE_TOO_LARGE,
        Code.RECORD_LIST_TOO_LARGE,
        Code.CORRUPT_MESSAGE,
        Code.KAFKA_STORAGE_ERROR,
    }
)


def _handle_produce(request: ServerRequest[ProduceRequest]) -> None:
    body = request.body
    if body.acks not in {-1, 0, 1}:
        text = f"acks may be -1, 0 or 1, not {body.acks}"
        return request.respond(_refuse_all(request, Code.INVALID_REQUIRED_ACKS, text))
    produce = _Produce(request)
    if any(
        _batch_attributes(partition.records) & record_batch.TRANSACTIONAL_FLAG_MASK
        for topic in body.topic_data
        for partition in topic.partition_data
    ):
        # every library gives up at this code; other codes are retried until a timeout
        text = "this broker has no transactions"
        produce.problems.append(text)
        response = _refuse_all(request, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
    else:
        response = produce.append_all()
    if body.acks != 0:
        return request.respond(response)
    if produce.problems:
        return request.drop_connection(f"PRODUCE with acks=0 failed: {produce.problems[0]}")
    return request.respond(None)


def _refuse_produce(request: ServerRequest[ProduceRequest], code: Code) -> ProduceResponse | None:
    """Returns the same error for each partition; None for a producer that expects no response."""
    return None if request.body.acks == 0 else _refuse_all(request, code, None)


class _Produce:
    def __init__(self, request: ServerRequest[ProduceRequest]) -> None:
        self._request = request
        self._topics = request.context.topics
        self._budget = DecodeBudget(request.size)
        self.problems: list[str] = []

    def append_all(self) -> ProduceResponse:
        # if a partition occurs more than once, the last batch counts, as in Kafka
        topics: dict[tuple[str, bytes], dict[int, Bytes | None]] = {}
        for topic in self._request.body.topic_data:
            batches = topics.setdefault((topic.name, topic.topic_id), {})
            batches.update({each.index: each.records for each in topic.partition_data})
        return ProduceResponse(
            responses=[
                ProduceResponse.TopicProduceResponse(
                    name=name,
                    topic_id=topic_id,
                    partition_responses=self._append_topic(name, topic_id, batches),
                )
                for (name, topic_id), batches in topics.items()
            ]
        )

    def _append_topic(
        self, name: str, topic_id: bytes, batches: Mapping[int, Bytes | None]
    ) -> list[ProduceResponse.PartitionProduceResponse]:
        try:
            by_id = self._request.version >= TOPIC_ID_VERSION
            topic = find_topic(self._topics, name, topic_id if by_id else None)
        except Refused as unknown:
            self.problems.append(f"{unknown.code.name}: {unknown}")
            return [_produce_error(index, unknown.code, str(unknown)) for index in batches]
        return [self._append_partition(topic, index, batch) for index, batch in batches.items()]

    def _append_partition(
        self, topic: Topic, index: int, batch: Bytes | None
    ) -> ProduceResponse.PartitionProduceResponse:
        log_start = -1
        try:
            log = find_log(topic, index)
            checked = _check_single_batch(self._request.version, topic, batch)
            log_start = log.log_start_offset
            now = self._request.now
            appended = self._topics.append(topic.name, index, checked, now, self._budget)
        except (Refused, DiskError) as error:
            where = f"{topic.name}-{index}"
            code, text = self._request.explain_error(error, where)
            self.problems.append(f"{where}: {code.name}: {text}")
            response = _produce_error(index, code, text)
            if code not in ERRORS_WITHOUT_LOG_START:
                response.log_start_offset = log_start
            if isinstance(error, Refused):
                response.record_errors = [
                    ProduceResponse.BatchIndexAndErrorMessage(
                        batch_index=number, batch_index_error_message=reason
                    )
                    for number, reason in error.records
                ]
            return response
        return ProduceResponse.PartitionProduceResponse(
            index=index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.append_time,
            log_start_offset=appended.log_start_offset,
        )


def _check_single_batch(version: int, topic: Topic, batch: Bytes | None) -> Bytes:
    """Returns one whole batch of format 2, or raises Refused. The log checks its records."""
    size = 0 if batch is None else len(batch)
    if batch is None or size <= record_batch.MAGIC_OFFSET or size < _batch_size(batch):
        raise Refused(Code.INVALID_RECORD, f"no whole batch of records in {size} bytes")
    magic = batch[record_batch.MAGIC_OFFSET]
    if _batch_size(batch) < (
        record_batch.HEADER.size if magic == record_batch.MAGIC else SHORTEST_OLD_MESSAGE
    ):
        raise Refused(Code.CORRUPT_MESSAGE, f"a batch of {_batch_size(batch)} bytes is too short")
    if magic != record_batch.MAGIC:
        known = magic < record_batch.MAGIC
        raise Refused(
            Code.INVALID_RECORD if known else Code.CORRUPT_MESSAGE,
            record_batch.describe_magic(magic),
        )
    if size > _batch_size(batch):
        raise Refused(Code.INVALID_RECORD, "more than one batch of records")
    codec = _batch_attributes(batch) & record_batch.COMPRESSION_CODEC_MASK
    if version < ZSTD_VERSION and codec == record_batch.CompressionType.ZSTD:
        text = f"zstd needs version {ZSTD_VERSION} of Produce or later; this is version {version}"
        raise Refused(Code.UNSUPPORTED_COMPRESSION_TYPE, text)
    if topic.is_internal:
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"{topic.name!r} is the broker's own")
    return batch


def _batch_attributes(batch: Bytes | None) -> int:
    return batch[FLAGS_AT] if batch is not None and len(batch) > FLAGS_AT else 0


def _batch_size(batch: Bytes) -> int:
    length: int = record_batch.LENGTH_FIELD.unpack_from(batch, record_batch.LENGTH_OFFSET)[0]
    return record_batch.LOG_OVERHEAD + length


def _refuse_all(
    request: ServerRequest[ProduceRequest], code: Code, text: str | None
) -> ProduceResponse:
    topics = [
        ProduceResponse.TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                _produce_error(each.index, code, text) for each in topic.partition_data
            ],
        )
        for topic in request.body.topic_data
    ]
    return ProduceResponse(responses=topics)


def _produce_error(
    partition: int, code: Code, text: str | None
) -> ProduceResponse.PartitionProduceResponse:
    return ProduceResponse.PartitionProduceResponse(
        index=partition, error_code=code, base_offset=-1, error_message=text
    )


def _handle_init_producer_id(request: ServerRequest[InitProducerIdRequest]) -> None:
    context, body = request.context, request.body
    if (body.producer_id == -1) != (body.producer_epoch == -1) or body.transactional_id == "":
        return request.respond(_refuse_init_producer_id(request, Code.INVALID_REQUEST))
    if body.transactional_id is not None:
        text = f"transactional.id {body.transactional_id!r} is refused"
        context.log(WARNING, f"{request.client.host}: {text}: this broker has no transactions")
        code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return request.respond(_refuse_init_producer_id(request, code))
    try:
        producer_id = context.topics.new_producer_id()
    except (Refused, DiskError) as error:
        code, _ = request.explain_error(error, "a new producer id")
        return request.respond(_refuse_init_producer_id(request, code))
    return request.respond(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))


def _refuse_init_producer_id(_: object, code: Code) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


HANDLERS = (
    Handler(ProduceRequest, 3, 13, _handle_produce, _refuse_produce, advertised_from=0),
    Handler(InitProducerIdRequest, 0, 5, _handle_init_producer_id, _refuse_init_producer_id),
)
