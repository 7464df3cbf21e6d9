"""ListOffsets: the first and last offset of a partition, or the first at or after a time."""

from __future__ import annotations

from collections import Counter

from rota.broker.call import Call
from rota.broker.dispatch import Handler
from rota.broker.handlers.partition import check_epoch, log_of, reason, topic_of
from rota.broker.part import Parts
from rota.errors import Code, DiskError, Refused
from rota.storage.log import Log
from rota.wire.api import Api
from rota.wire.message import ListOffsetsResponse, Message

FIRST_VERSIONS = {
    -1: 1,  # the end
    -2: 1,  # the start
    -3: 7,  # the newest record (KIP-734)
    -4: 8,  # the start of what is on this broker's disks (KIP-405)
    -5: 9,  # the end of what is kept elsewhere (KIP-1005)
    -6: 11,  # the start of what is to be copied there (KIP-1023)
}
"""What may be asked for in place of a time, and since which version."""
NEVER = 1 << 15
CONSUMER = -1
READ_COMMITTED = 1
UNKNOWN = (-1, -1, -1)
"""The offset, time and epoch where there is none."""


def handle(parts: Parts, call: Call) -> None:
    """Looks each partition up."""
    asked = Counter(
        (topic.name, partition.partition_index)
        for topic in call.request.topics
        for partition in topic.partitions
    )
    twice = {each for each, times in asked.items() if times > 1}
    topics = [
        ListOffsetsResponse.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                _failed(each, Code.INVALID_REQUEST)
                if (topic.name, each.partition_index) in twice
                else _partition(parts, call, topic, each)
                for each in topic.partitions
            ],
        )
        for topic in call.request.topics
    ]
    call.answer(ListOffsetsResponse(throttle_time_ms=0, topics=topics))


def refuse(call: Call, code: Code) -> Message:
    """The error for each partition."""
    topics = [
        ListOffsetsResponse.ListOffsetsTopicResponse(
            name=topic.name, partitions=[_failed(each, code) for each in topic.partitions]
        )
        for topic in call.request.topics
    ]
    return ListOffsetsResponse(throttle_time_ms=0, topics=topics)


def _partition(parts: Parts, call: Call, topic: Message, asked: Message) -> Message:
    try:
        offset, timestamp, epoch = _look_up(parts, call, topic.name, asked)
    except (Refused, DiskError) as error:
        code, _ = reason(parts, error, f"{topic.name}-{asked.partition_index}")
        return _failed(asked, code)
    return ListOffsetsResponse.ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=0,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


def _look_up(parts: Parts, call: Call, name: str, asked: Message) -> tuple[int, int, int]:
    """The offset, its time and its leader's epoch.

    :raises Refused: the request is wrong
    :raises DiskError: the log cannot be read
    """
    if asked.timestamp < 0 and call.version < FIRST_VERSIONS.get(asked.timestamp, NEVER):
        raise Refused(
            Code.UNSUPPORTED_VERSION,
            f"version {call.version} has no meaning for the time {asked.timestamp}",
        )
    log = log_of(topic_of(parts.topics, name), asked.partition_index)
    check_epoch(log, asked.current_leader_epoch)
    request = call.request
    committed = request.replica_id == CONSUMER and request.isolation_level == READ_COMMITTED
    return _before(log, log.stable if committed else log.end, asked.timestamp)


def _before(log: Log, end: int, time: int) -> tuple[int, int, int]:
    """The same, of what is before an end."""
    match time:
        case -1:
            return end, -1, log.epochs.latest
        case -2 | -4:
            return log.start, -1, log.epochs.at(log.start)
        case -5 | -6:  # nothing is kept elsewhere
            return UNKNOWN
        case -3:
            found = log.newest()
        case _:
            found = log.offset_for_time(time)
    if found is None or found[0] >= end:
        return UNKNOWN
    offset, timestamp = found
    return offset, timestamp, log.epochs.at(offset)


def _failed(asked: Message, code: Code) -> Message:
    return ListOffsetsResponse.ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=code,
        timestamp=-1,
        offset=-1,
        leader_epoch=-1,
    )


HANDLERS = (Handler(api=Api.LIST_OFFSETS, lowest=1, highest=11, handle=handle, refuse=refuse),)
