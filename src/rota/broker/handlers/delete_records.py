"""DeleteRecords: what is before an offset is gone for readers, and its segments in time."""

from __future__ import annotations

from rota.broker.call import Call
from rota.broker.dispatch import Handler
from rota.broker.handlers.partition import log_of, reason, topic_of
from rota.broker.part import Parts
from rota.errors import Code, DiskError, Refused
from rota.wire.api import Api
from rota.wire.message import DeleteRecordsResponse, Message

TO_THE_END = -1


def handle(parts: Parts, call: Call) -> None:
    """Moves the start of each partition."""
    topics = [
        DeleteRecordsResponse.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[_partition(parts, call, topic, each) for each in topic.partitions],
        )
        for topic in call.request.topics
    ]
    call.answer(DeleteRecordsResponse(throttle_time_ms=0, topics=topics))


def refuse(call: Call, code: Code) -> Message:
    """The error for each partition."""
    topics = [
        DeleteRecordsResponse.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[_answer(each.partition_index, code) for each in topic.partitions],
        )
        for topic in call.request.topics
    ]
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


def _partition(parts: Parts, call: Call, topic: Message, asked: Message) -> Message:
    number = asked.partition_index
    try:
        start = _delete(parts, call, topic, asked)
    except (Refused, DiskError) as error:
        return _answer(number, reason(parts, error, f"{topic.name}-{number}")[0])
    return _answer(number, Code.NONE, start)


def _delete(parts: Parts, call: Call, asked_topic: Message, asked: Message) -> int:
    """Where the partition starts now.

    :raises Refused: its records may not be deleted, or not up to there
    :raises DiskError: it could not be noted
    """
    topic = topic_of(parts.topics, asked_topic.name)
    log = log_of(topic, asked.partition_index)
    if topic.internal:
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"{topic.name!r} is the broker's own")
    if topic.config.compacted and not topic.config.deleted:
        raise Refused(Code.POLICY_VIOLATION, f"{topic.name!r} is compacted: records are kept")
    offset = log.end if asked.offset == TO_THE_END else asked.offset
    if not 0 <= offset <= log.end:
        raise Refused(Code.OFFSET_OUT_OF_RANGE, f"offset {offset} is not within 0 and {log.end}")
    parts.topics.delete_before(topic.name, asked.partition_index, offset, call.now)
    return log.start


def _answer(partition: int, code: Code, start: int = -1) -> Message:
    return DeleteRecordsResponse.DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=start, error_code=code
    )


HANDLERS = (Handler(api=Api.DELETE_RECORDS, lowest=0, highest=2, handle=handle, refuse=refuse),)
