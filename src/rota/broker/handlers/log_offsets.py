"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: the offsets at which a partition's log
starts and ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rota.broker.dispatch import (
    ERROR,
    WARNING,
    Handler,
    HandlerContext,
    ServerRequest,
    explain_error,
)
from rota.broker.storage.file_records import DecodeBudget
from rota.broker.storage.log import Log
from rota.broker.topics import check_leader_epoch, find_log, find_topic
from rota.errors import Code, DiskError, Refused
from rota.protocol.messages import (
    Api,
    DeleteRecordsResponse,
    ListOffsetsResponse,
    Message,
    OffsetForLeaderEpochResponse,
)

#: What may be asked for in place of a time, and since which version.
SPECIAL_TIMESTAMP_VERSIONS = {
    -1: 1,  # the end
    -2: 1,  # the start
    -3: 7,  # the newest record (KIP-734)
    -4: 8,  # the start of what is on this broker's disks (KIP-405)
    -5: 9,  # the end of what is kept elsewhere (KIP-1005)
    -6: 11,  # the start of what is to be copied there (KIP-1023)
}

NO_VERSION = 1 << 15

CONSUMER_REPLICA_ID = -1

READ_COMMITTED = 1

#: What is known without a look into the log.
TIMESTAMPS_WITHOUT_LOOKUP = frozenset({-1, -2, -4, -5, -6})

#: Bytes that are unpacked before others get their turn; one partition may take more.
MAX_WORK_PER_TURN = 16 << 20

#: To find a place in a log counts as unpacking so many.
LOOKUP_WORK = 1 << 16

#: The offset, time and epoch where there is none.
NOT_FOUND = (-1, -1, -1)


def handle_list_offsets(parts: HandlerContext, call: ServerRequest) -> None:
    """Looks each partition up."""
    _OffsetLookup(parts, call).resume()


def refuse_list_offsets(call: ServerRequest, code: Code) -> Message:
    """The error for each partition."""
    topics = [
        ListOffsetsResponse.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[_list_offsets_error(each, code) for each in topic.partitions],
        )
        for topic in call.request.topics
    ]
    return ListOffsetsResponse(throttle_time_ms=0, topics=topics)


class _OffsetLookup:
    """Looks the partitions up one by one, and gives way to other requests after some work."""

    def __init__(self, parts: HandlerContext, call: ServerRequest) -> None:
        self._parts = parts
        self._call = call
        self._topics = [
            ListOffsetsResponse.ListOffsetsTopicResponse(name=each.name, partitions=[])
            for each in call.request.topics
        ]
        self._steps = self._list_partitions()

    def resume(self) -> None:
        """Does a part of the work; answers when all is done."""
        left = MAX_WORK_PER_TURN
        for work in self._steps:
            left -= work
            if left <= 0:
                self._call.client.on_disconnect = self._stop
                return self._parts.ready_queue.add(self, self._run_turn, long=True)
        return self._answer(ListOffsetsResponse(throttle_time_ms=0, topics=self._topics))

    def _list_partitions(self) -> Iterator[int]:
        """After each partition how much work it was."""
        asked = Counter(
            (topic.name, partition.partition_index)
            for topic in self._call.request.topics
            for partition in topic.partitions
        )
        for topic, answer in zip(self._call.request.topics, self._topics, strict=True):
            for each in topic.partitions:
                if asked[topic.name, each.partition_index] > 1:
                    answer.partitions.append(_list_offsets_error(each, Code.INVALID_REQUEST))
                    continue
                found, work = _list_partition(self._parts, self._call, topic.name, each)
                answer.partitions.append(found)
                yield work

    def _run_turn(self) -> None:
        try:
            self.resume()
        except Exception as error:  # noqa: BLE001 a fault of one request must not end the broker
            text = f"ListOffsets v{self._call.version}: {type(error).__name__}: {error}"
            self._parts.log(ERROR, text)
            self._answer(refuse_list_offsets(self._call, Code.UNKNOWN))

    def _answer(self, response: Message) -> None:
        self._call.client.on_disconnect = None
        self._call.answer(response)

    def _stop(self) -> None:
        self._parts.ready_queue.remove(self)


def _list_partition(
    parts: HandlerContext, call: ServerRequest, name: str, asked: Message
) -> tuple[Message, int]:
    """The answer, and how much work it was."""
    where = f"{name}-{asked.partition_index}"
    work = 0
    try:
        log = _find_requested_log(parts, call, name, asked)
        allowance = log.decode_budget()
        try:
            offset, timestamp, epoch = _find_offset(
                log, _visible_end(call, log), asked.timestamp, allowance
            )
        finally:
            work = allowance.used + (
                LOOKUP_WORK if asked.timestamp not in TIMESTAMPS_WITHOUT_LOOKUP else 0
            )
    except (Refused, DiskError) as error:
        code, text = explain_error(parts, error, where)
        if code is Code.MESSAGE_TOO_LARGE:
            parts.log(WARNING, f"{where}: no offset was found by time: {text}")
        return _list_offsets_error(asked, code), work
    return ListOffsetsResponse.ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=0,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    ), work


def _find_requested_log(
    parts: HandlerContext, call: ServerRequest, name: str, asked: Message
) -> Log:
    """The log that is asked for.

    :raises Refused: the request is wrong
    """
    if asked.timestamp < 0 and call.version < SPECIAL_TIMESTAMP_VERSIONS.get(
        asked.timestamp, NO_VERSION
    ):
        raise Refused(
            Code.UNSUPPORTED_VERSION,
            f"version {call.version} has no meaning for the time {asked.timestamp}",
        )
    log = find_log(find_topic(parts.topics, name), asked.partition_index)
    check_leader_epoch(log, asked.current_leader_epoch)
    return log


def _visible_end(call: ServerRequest, log: Log) -> int:
    """Where the log ends for this client."""
    request = call.request
    committed = (
        request.replica_id == CONSUMER_REPLICA_ID and request.isolation_level == READ_COMMITTED
    )
    return log.last_stable_offset if committed else log.log_end_offset


def _find_offset(log: Log, end: int, time: int, allowance: DecodeBudget) -> tuple[int, int, int]:
    """The offset, its time and its leader's epoch, of what is before an end.

    :raises Refused: what must be read for that is damaged, or is too much work
    :raises DiskError: the log cannot be read
    """
    match time:
        case -1:
            return end, -1, log.epochs.latest
        case -2 | -4:
            return log.log_start_offset, -1, log.epochs.epoch_at(log.log_start_offset)
        case -5 | -6:  # nothing is kept elsewhere
            return NOT_FOUND
        case -3:
            found = log.find_newest_record(allowance)
        case _:
            found = log.find_timestamp(time, allowance)
    if found is None or found[0] >= end:
        return NOT_FOUND
    offset, timestamp = found
    return offset, timestamp, log.epochs.epoch_at(offset)


def _list_offsets_error(asked: Message, code: Code) -> Message:
    return ListOffsetsResponse.ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=code,
        timestamp=-1,
        offset=-1,
        leader_epoch=-1,
    )


_LIST_OFFSETS_HANDLERS = (
    Handler(
        api=Api.LIST_OFFSETS,
        min_version=1,
        max_version=11,
        handle=handle_list_offsets,
        error_response=refuse_list_offsets,
    ),
)


def handle_offset_for_leader_epoch(parts: HandlerContext, call: ServerRequest) -> None:
    """Looks each epoch up."""
    topics = [
        OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[_find_epoch_end(parts, topic, each) for each in topic.partitions],
        )
        for topic in call.request.topics
    ]
    call.answer(OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics))


def refuse_offset_for_leader_epoch(call: ServerRequest, code: Code) -> Message:
    """The error for each partition."""
    topics = [
        OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[_epoch_end_result(each.partition, code) for each in topic.partitions],
        )
        for topic in call.request.topics
    ]
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)


def _find_epoch_end(parts: HandlerContext, topic: Message, asked: Message) -> Message:
    number = asked.partition
    try:
        log = find_log(find_topic(parts.topics, topic.topic), number)
        check_leader_epoch(log, asked.current_leader_epoch)
        found = log.end_offset_for_epoch(asked.leader_epoch) if asked.leader_epoch >= 0 else None
    except (Refused, DiskError) as error:
        return _epoch_end_result(number, explain_error(parts, error, f"{topic.topic}-{number}")[0])
    return _epoch_end_result(number, Code.NONE, *(found or ()))


def _epoch_end_result(partition: int, code: Code, epoch: int = -1, end: int = -1) -> Message:
    return OffsetForLeaderEpochResponse.EpochEndOffset(
        error_code=code, partition=partition, leader_epoch=epoch, end_offset=end
    )


_LEADER_EPOCH_HANDLERS = (
    Handler(
        api=Api.OFFSET_FOR_LEADER_EPOCH,
        min_version=2,
        max_version=4,
        handle=handle_offset_for_leader_epoch,
        error_response=refuse_offset_for_leader_epoch,
    ),
)

DELETE_ALL = -1


def handle_delete_records(parts: HandlerContext, call: ServerRequest) -> None:
    """Moves the start of each partition; all that are to be moved are noted at once."""
    offsets: dict[tuple[str, int], int] = {}
    problems: dict[tuple[str, int], Code] = {}
    for topic in call.request.topics:
        for each in topic.partitions:
            where = (topic.name, each.partition_index)
            try:
                offsets[where] = max(_requested_start(parts, topic, each), offsets.get(where, 0))
            except Refused as error:
                problems[where] = error.code
    try:
        parts.topics.delete_records_before_all(offsets)
    except (Refused, DiskError) as error:
        code, _ = explain_error(parts, error, "deleting records")
        problems |= dict.fromkeys(offsets, code)
    topics = [
        DeleteRecordsResponse.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                _delete_records_outcome(parts, (topic.name, each.partition_index), problems)
                for each in topic.partitions
            ],
        )
        for topic in call.request.topics
    ]
    call.answer(DeleteRecordsResponse(throttle_time_ms=0, topics=topics))


def refuse_delete_records(call: ServerRequest, code: Code) -> Message:
    """The error for each partition."""
    topics = [
        DeleteRecordsResponse.DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                _delete_records_result(each.partition_index, code) for each in topic.partitions
            ],
        )
        for topic in call.request.topics
    ]
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


def _requested_start(parts: HandlerContext, asked_topic: Message, asked: Message) -> int:
    """Where the partition shall start.

    :raises Refused: its records may not be deleted, or not up to there
    """
    topic = find_topic(parts.topics, asked_topic.name)
    log = find_log(topic, asked.partition_index)
    if topic.is_internal:
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"{topic.name!r} is the broker's own")
    if topic.config.is_compacted and not topic.config.deletes_old_segments:
        raise Refused(Code.POLICY_VIOLATION, f"{topic.name!r} is compacted: records are kept")
    offset = log.log_end_offset if asked.offset == DELETE_ALL else int(asked.offset)
    if not 0 <= offset <= log.log_end_offset:
        raise Refused(
            Code.OFFSET_OUT_OF_RANGE, f"offset {offset} is not within 0 and {log.log_end_offset}"
        )
    return offset


def _delete_records_outcome(
    parts: HandlerContext, where: tuple[str, int], problems: Mapping[tuple[str, int], Code]
) -> Message:
    name, number = where
    log = parts.topics.get_log(name, number)
    if where in problems or log is None:
        return _delete_records_result(number, problems.get(where, Code.UNKNOWN_TOPIC_OR_PARTITION))
    return _delete_records_result(number, Code.NONE, log.log_start_offset)


def _delete_records_result(partition: int, code: Code, start: int = -1) -> Message:
    return DeleteRecordsResponse.DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=start, error_code=code
    )


_DELETE_RECORDS_HANDLERS = (
    Handler(
        api=Api.DELETE_RECORDS,
        min_version=0,
        max_version=2,
        handle=handle_delete_records,
        error_response=refuse_delete_records,
    ),
)

HANDLERS = (*_LIST_OFFSETS_HANDLERS, *_LEADER_EPOCH_HANDLERS, *_DELETE_RECORDS_HANDLERS)
