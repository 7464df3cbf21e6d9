"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: where a partition's log starts and ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from logging import WARNING
from typing import TypeAlias

from rota.broker.dispatch import Handler, HandlerContext, ServerRequest
from rota.broker.storage.file_records import DecodeBudget
from rota.broker.storage.log import Log
from rota.broker.topics import check_leader_epoch, find_log, find_topic
from rota.errors import Code, DiskError, Refused
from rota.protocol.messages import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

#: Timestamps with a special meaning, and the version of ListOffsets that introduced each.
SPECIAL_TIMESTAMP_VERSIONS = {
    -1: 1,  # the end
    -2: 1,  # the start
    -3: 7,  # the newest record (KIP-734)
    -4: 8,  # the start of the log on this broker's disks (KIP-405)
    -5: 9,  # the end of the part in remote storage (KIP-1005)
    -6: 11,  # the start of the part that is not in remote storage yet (KIP-1023)
}

NO_VERSION = 1 << 15
CONSUMER_REPLICA_ID = -1
READ_COMMITTED = 1
TIMESTAMPS_WITHOUT_LOOKUP = frozenset({-1, -2, -4, -5, -6})
#: Bytes that are decompressed before other requests are served; one partition may take more.
MAX_WORK_PER_EVENT = 16 << 20
LOOKUP_WORK = 1 << 16  # bytes that a lookup in the log's index counts for
NOT_FOUND = (-1, -1, -1)
DELETE_ALL = -1


def _handle_list_offsets(request: ServerRequest[ListOffsetsRequest]) -> None:
    """Looks up the partitions one by one, and lets other requests pass after some work."""
    topics = [
        ListOffsetsResponse.ListOffsetsTopicResponse(name=each.name) for each in request.body.topics
    ]
    steps = _list_partitions(request, topics)

    def resume() -> None:
        remaining = MAX_WORK_PER_EVENT
        for work in steps:
            remaining -= work
            if remaining <= 0:
                request.client.on_disconnect = request.stop_waiting
                return request.resume_later(resume, long=True)
        request.stop_waiting()
        return request.respond(ListOffsetsResponse(topics=topics))

    resume()


def _refuse_list_offsets(
    request: ServerRequest[ListOffsetsRequest], code: Code
) -> ListOffsetsResponse:
    topics = [
        ListOffsetsResponse.ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[_list_offsets_error(each, code) for each in topic.partitions],
        )
        for topic in request.body.topics
    ]
    return ListOffsetsResponse(topics=topics)


def _list_partitions(
    request: ServerRequest[ListOffsetsRequest],
    results: list[ListOffsetsResponse.ListOffsetsTopicResponse],
) -> Iterator[int]:
    topics = request.body.topics
    counts = Counter(
        (topic.name, each.partition_index) for topic in topics for each in topic.partitions
    )
    for topic, result in zip(topics, results, strict=True):
        for each in topic.partitions:
            if counts[topic.name, each.partition_index] > 1:
                result.partitions.append(_list_offsets_error(each, Code.INVALID_REQUEST))
                continue
            partition, work = _list_partition(request, topic.name, each)
            result.partitions.append(partition)
            yield work


def _list_partition(
    request: ServerRequest[ListOffsetsRequest],
    name: str,
    requested: ListOffsetsRequest.ListOffsetsPartition,
) -> tuple[ListOffsetsResponse.ListOffsetsPartitionResponse, int]:
    context, body = request.context, request.body
    committed = body.replica_id == CONSUMER_REPLICA_ID and body.isolation_level == READ_COMMITTED
    where = f"{name}-{requested.partition_index}"
    timestamp = requested.timestamp
    work = 0
    try:
        _check_timestamp(request.version, timestamp)
        log = find_log(find_topic(context.topics, name), requested.partition_index)
        check_leader_epoch(log, requested.current_leader_epoch)
        budget = log.decode_budget()
        try:
            end = log.last_stable_offset if committed else log.log_end_offset
            offset, found_timestamp, epoch = _find_offset(log, end, timestamp, budget)
        finally:
            work = budget.used + (0 if timestamp in TIMESTAMPS_WITHOUT_LOOKUP else LOOKUP_WORK)
    except (Refused, DiskError) as error:
        code, text = request.explain_error(error, where)
        if code is Code.MESSAGE_TOO_LARGE:
            context.log(WARNING, f"{where}: no offset was found by time: {text}")
        return _list_offsets_error(requested, code), work
    return ListOffsetsResponse.ListOffsetsPartitionResponse(
        partition_index=requested.partition_index,
        timestamp=found_timestamp,
        offset=offset,
        leader_epoch=epoch,
    ), work


def _check_timestamp(version: int, timestamp: int) -> None:
    if timestamp < 0 and version < SPECIAL_TIMESTAMP_VERSIONS.get(timestamp, NO_VERSION):
        text = f"version {version} has no meaning for the time {timestamp}"
        raise Refused(Code.UNSUPPORTED_VERSION, text)


def _find_offset(log: Log, end: int, timestamp: int, budget: DecodeBudget) -> tuple[int, int, int]:
    """Returns an offset below the end, the timestamp of its record, and its leader epoch."""
    match timestamp:
        case -1:
            return end, -1, log.epochs.latest
        case -2 | -4:
            return log.log_start_offset, -1, log.epochs.epoch_at(log.log_start_offset)
        case -5 | -6:  # the broker has no remote storage
            return NOT_FOUND
        case -3:
            record = log.find_newest_record(budget)
        case _:
            record = log.find_timestamp(timestamp, budget)
    if record is None or record[0] >= end:
        return NOT_FOUND
    offset, found_timestamp = record
    return offset, found_timestamp, log.epochs.epoch_at(offset)


def _list_offsets_error(
    requested: ListOffsetsRequest.ListOffsetsPartition, code: Code
) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
    return ListOffsetsResponse.ListOffsetsPartitionResponse(
        partition_index=requested.partition_index, error_code=code
    )


EpochEndOffset: TypeAlias = "OffsetForLeaderEpochResponse.EpochEndOffset"
RequestedEpoch: TypeAlias = "OffsetForLeaderEpochRequest.OffsetForLeaderPartition"


def _handle_leader_epochs(request: ServerRequest[OffsetForLeaderEpochRequest]) -> None:
    def find_end(topic: str, requested: RequestedEpoch) -> EpochEndOffset:
        result = OffsetForLeaderEpochResponse.EpochEndOffset(partition=requested.partition)
        try:
            log = find_log(find_topic(request.context.topics, topic), requested.partition)
            check_leader_epoch(log, requested.current_leader_epoch)
            epoch = requested.leader_epoch
            epoch_end = log.end_offset_for_epoch(epoch) if epoch >= 0 else None
        except (Refused, DiskError) as error:
            where = f"{topic}-{requested.partition}"
            result.error_code, _ = request.explain_error(error, where)
        else:
            if epoch_end is not None:
                result.leader_epoch, result.end_offset = epoch_end
        return result

    request.respond(_leader_epochs_response(request, find_end))


def _refuse_leader_epochs(
    request: ServerRequest[OffsetForLeaderEpochRequest], code: Code
) -> OffsetForLeaderEpochResponse:
    result_class = OffsetForLeaderEpochResponse.EpochEndOffset
    return _leader_epochs_response(
        request, lambda _, requested: result_class(error_code=code, partition=requested.partition)
    )


def _leader_epochs_response(
    request: ServerRequest[OffsetForLeaderEpochRequest],
    make_result: Callable[[str, RequestedEpoch], EpochEndOffset],
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[make_result(topic.topic, each) for each in topic.partitions],
            )
            for topic in request.body.topics
        ]
    )


def _handle_delete_records(request: ServerRequest[DeleteRecordsRequest]) -> None:
    """Moves the start of each partition. The checkpoint is written once for all of them."""
    context = request.context
    offsets: dict[tuple[str, int], int] = {}
    errors: dict[tuple[str, int], Code] = {}
    for topic in request.body.topics:
        for each in topic.partitions:
            key = topic.name, each.partition_index
            try:
                offsets[key] = max(_new_log_start(context, *key, each.offset), offsets.get(key, 0))
            except Refused as error:
                errors[key] = error.code
    try:
        context.topics.delete_records_before(offsets)
    except (Refused, DiskError) as error:
        code, _ = request.explain_error(error, "deleting records")
        errors |= dict.fromkeys(offsets, code)

    def find_result(topic: str, partition: int) -> tuple[Code, int]:
        log = context.topics.get_log(topic, partition)
        if (topic, partition) in errors or log is None:
            return errors.get((topic, partition), Code.UNKNOWN_TOPIC_OR_PARTITION), -1
        return Code.NONE, log.log_start_offset

    request.respond(_delete_records_response(request, find_result))


def _refuse_delete_records(
    request: ServerRequest[DeleteRecordsRequest], code: Code
) -> DeleteRecordsResponse:
    return _delete_records_response(request, lambda _, __: (code, -1))


def _new_log_start(context: HandlerContext, name: str, partition: int, offset: int) -> int:
    """Returns the partition's new start; raises Refused if its records may not be deleted."""
    topic = find_topic(context.topics, name)
    log = find_log(topic, partition)
    if topic.is_internal:
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"{topic.name!r} is the broker's own")
    if topic.config.is_compacted and not topic.config.deletes_old_segments:
        raise Refused(Code.POLICY_VIOLATION, f"{topic.name!r} is compacted: records are kept")
    offset = log.log_end_offset if offset == DELETE_ALL else offset
    if not 0 <= offset <= log.log_end_offset:
        text = f"offset {offset} is not within 0 and {log.log_end_offset}"
        raise Refused(Code.OFFSET_OUT_OF_RANGE, text)
    return offset


def _delete_records_response(
    request: ServerRequest[DeleteRecordsRequest],
    find_result: Callable[[str, int], tuple[Code, int]],
) -> DeleteRecordsResponse:
    """:param find_result: returns the error code and the log start offset of a partition"""
    topics = []
    for topic in request.body.topics:
        result = DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name)
        for each in topic.partitions:
            code, log_start = find_result(topic.name, each.partition_index)
            result.partitions.append(
                DeleteRecordsResponse.DeleteRecordsPartitionResult(
                    partition_index=each.partition_index, low_watermark=log_start, error_code=code
                )
            )
        topics.append(result)
    return DeleteRecordsResponse(topics=topics)


HANDLERS = (
    Handler(ListOffsetsRequest, 1, 11, _handle_list_offsets, _refuse_list_offsets),
    Handler(OffsetForLeaderEpochRequest, 2, 4, _handle_leader_epochs, _refuse_leader_epochs),
    Handler(DeleteRecordsRequest, 0, 2, _handle_delete_records, _refuse_delete_records),
)
