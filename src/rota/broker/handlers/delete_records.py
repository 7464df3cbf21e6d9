"""DeleteRecords: what is before an offset is gone for readers, and its segments in time."""

from __future__ import annotations

from collections.abc import Mapping

from rota.broker.call import Call
from rota.broker.dispatch import Handler
from rota.broker.handlers.partition import log_of, reason, topic_of
from rota.broker.part import Parts
from rota.errors import Code, DiskError, Refused
from rota.wire.api import Api
from rota.wire.message import DeleteRecordsResponse, Message

TO_THE_END = -1


def handle(parts: Parts, call: Call) -> None:
    """Moves the start of each partition; all that are to be moved are noted at once."""
    offsets: dict[tuple[str, int], int] = {}
    problems: dict[tuple[str, int], Code] = {}
    for topic in call.request.topics:
        for each in topic.partitions:
            where = (topic.name, each.partition_index)
            try:
                offsets[where] = max(_wanted(parts, topic, each), offsets.get(where, 0))
            except Refused as error:
                problems[where] = error.code
    try:
        parts.topics.delete_before_all(offsets)
    except (Refused, DiskError) as error:
        code, _ = reason(parts, error, "deleting records")
        problems |= dict.fromkeys(offsets, code)
    topics = [
        DeleteRecordsResponse.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                _outcome(parts, (topic.name, each.partition_index), problems)
                for each in topic.partitions
            ],
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


def _wanted(parts: Parts, asked_topic: Message, asked: Message) -> int:
    """Where the partition shall start.

    :raises Refused: its records may not be deleted, or not up to there
    """
    topic = topic_of(parts.topics, asked_topic.name)
    log = log_of(topic, asked.partition_index)
    if topic.internal:
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"{topic.name!r} is the broker's own")
    if topic.config.compacted and not topic.config.deleted:
        raise Refused(Code.POLICY_VIOLATION, f"{topic.name!r} is compacted: records are kept")
    offset = log.end if asked.offset == TO_THE_END else int(asked.offset)
    if not 0 <= offset <= log.end:
        raise Refused(Code.OFFSET_OUT_OF_RANGE, f"offset {offset} is not within 0 and {log.end}")
    return offset


def _outcome(
    parts: Parts, where: tuple[str, int], problems: Mapping[tuple[str, int], Code]
) -> Message:
    name, number = where
    log = parts.topics.log(name, number)
    if where in problems or log is None:
        return _answer(number, problems.get(where, Code.UNKNOWN_TOPIC_OR_PARTITION))
    return _answer(number, Code.NONE, log.start)


def _answer(partition: int, code: Code, start: int = -1) -> Message:
    return DeleteRecordsResponse.DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=start, error_code=code
    )


HANDLERS = (Handler(api=Api.DELETE_RECORDS, lowest=0, highest=2, handle=handle, refuse=refuse),)
