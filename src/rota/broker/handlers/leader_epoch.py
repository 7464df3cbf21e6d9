"""OffsetForLeaderEpoch: where an epoch's records end. A consumer asks whether the log was cut."""

from __future__ import annotations

from rota.broker.call import Call
from rota.broker.dispatch import Handler
from rota.broker.handlers.partition import check_epoch, log_of, reason, topic_of
from rota.broker.part import Parts
from rota.errors import Code, DiskError, Refused
from rota.wire.api import Api
from rota.wire.message import Message, OffsetForLeaderEpochResponse


def handle(parts: Parts, call: Call) -> None:
    """Looks each epoch up."""
    topics = [
        OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[_partition(parts, topic, each) for each in topic.partitions],
        )
        for topic in call.request.topics
    ]
    call.answer(OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics))


def refuse(call: Call, code: Code) -> Message:
    """The error for each partition."""
    topics = [
        OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[_answer(each.partition, code) for each in topic.partitions],
        )
        for topic in call.request.topics
    ]
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)


def _partition(parts: Parts, topic: Message, asked: Message) -> Message:
    number = asked.partition
    try:
        log = log_of(topic_of(parts.topics, topic.topic), number)
        check_epoch(log, asked.current_leader_epoch)
        found = log.end_of_epoch(asked.leader_epoch) if asked.leader_epoch >= 0 else None
    except (Refused, DiskError) as error:
        return _answer(number, reason(parts, error, f"{topic.topic}-{number}")[0])
    return _answer(number, Code.NONE, *(found or ()))


def _answer(partition: int, code: Code, epoch: int = -1, end: int = -1) -> Message:
    return OffsetForLeaderEpochResponse.EpochEndOffset(
        error_code=code, partition=partition, leader_epoch=epoch, end_offset=end
    )


HANDLERS = (
    Handler(api=Api.OFFSET_FOR_LEADER_EPOCH, lowest=2, highest=4, handle=handle, refuse=refuse),
)
