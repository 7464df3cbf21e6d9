"""OffsetCommit, OffsetFetch and OffsetDelete: the committed offsets of groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from rota.broker.dispatch import AnyRequest, Handler, ServerRequest
from rota.broker.handlers.consumer_groups import ask_coordinator
from rota.engine.model import response
from rota.engine.model.request import OffsetCommit, OffsetDelete, OffsetFetch
from rota.engine.model.topic import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    OffsetAndMetadata,
    TopicPartition,
    UncheckedOffset,
    values_by_topic,
)
from rota.errors import Code
from rota.protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

GROUP_NOT_FOUND_VERSION = 9

# Versions of OffsetFetch.
REQUEST_ERROR_VERSION = 2  # an error code for the whole request
BATCHED_GROUPS_VERSION = 8  # many groups in one request
NO_RETENTION = -1
NOT_COMMITTED = UncheckedOffset(NO_OFFSET)
#: A request of an old version has the fields of its one group.
RequestedGroup: TypeAlias = "OffsetFetchRequest | OffsetFetchRequest.OffsetFetchRequestGroup"
PartitionT = TypeVar(
    "PartitionT",
    "OffsetFetchResponse.OffsetFetchResponsePartition",
    "OffsetFetchResponse.OffsetFetchResponsePartitions",
)


def _find_unknown(
    request: AnyRequest, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Code]:
    get_log, unknown = request.context.topics.get_log, Code.UNKNOWN_TOPIC_OR_PARTITION
    return {each: unknown for each in partitions if get_log(*each) is None}


def _handle_offset_commit(request: ServerRequest[OffsetCommitRequest]) -> None:
    body, topics = request.body, request.context.topics
    requested: dict[TopicPartition, OffsetAndMetadata] = {
        TopicPartition(topic.name, each.partition_index): UncheckedOffset(
            each.committed_offset,
            each.committed_metadata or "",
            None if (epoch := each.committed_leader_epoch) == NO_LEADER_EPOCH else epoch,
        )
        for topic in body.topics
        for each in topic.partitions
    }
    unknown = _find_unknown(request, requested)
    offsets = {each: offset for each, offset in requested.items() if each not in unknown}
    if not offsets:
        return request.respond(_offset_commit_response(unknown))
    retention = body.retention_time_ms
    group_request = OffsetCommit(
        group=body.group_id,
        generation=body.generation_id_or_member_epoch,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        offsets=offsets,
        topic_ids={each.name: known.id for each in body.topics if (known := topics.get(each.name))},
        retention=None if retention == NO_RETENTION else retention,
        supports_group_id_not_found=request.version >= GROUP_NOT_FOUND_VERSION,
    )

    def make_response(result: response.OffsetCommitResult) -> OffsetCommitResponse:
        return _offset_commit_response({**unknown, **result.codes})

    return ask_coordinator(request, group_request, response.OffsetCommitResult, make_response)


def _offset_commit_response(codes: Mapping[TopicPartition, Code]) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=name,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=number, error_code=code
                    )
                    for number, code in partitions
                ],
            )
            for name, partitions in values_by_topic(codes).items()
        ]
    )


def _refuse_offset_commit(
    request: ServerRequest[OffsetCommitRequest], code: Code
) -> OffsetCommitResponse:
    return _offset_commit_response(
        {
            TopicPartition(topic.name, each.partition_index): code
            for topic in request.body.topics
            for each in topic.partitions
        }
    )


def _handle_offset_fetch(request: ServerRequest[OffsetFetchRequest]) -> None:
    """``require_stable`` has no effect: without transactions every stored offset is stable."""
    groups = _requested_groups(request)
    results: dict[int, response.OffsetFetchResult] = {}

    def add_result(result: response.GroupResponse, number: int) -> None:
        assert isinstance(result, response.OffsetFetchResult)
        results[number] = result
        if len(results) == len(groups):
            ordered = [results[at] for at in range(len(groups))]
            request.respond(_offset_fetch_response(request, ordered))

    if not groups:
        request.respond(_offset_fetch_response(request, []))
    for number, group in enumerate(groups):
        partitions = None
        if group.topics is not None:
            partitions = tuple(
                TopicPartition(topic.name, index)
                for topic in group.topics
                for index in topic.partition_indexes
            )
        group_request = OffsetFetch(group=group.group_id, partitions=partitions)
        request.context.groups.ask(group_request, partial(add_result, number=number), request.now)


def _requested_groups(request: ServerRequest[OffsetFetchRequest]) -> Sequence[RequestedGroup]:
    return request.body.groups if request.version >= BATCHED_GROUPS_VERSION else [request.body]


def _offset_fetch_response(
    request: ServerRequest[OffsetFetchRequest], results: Sequence[response.OffsetFetchResult]
) -> OffsetFetchResponse:
    pairs = list(zip(_requested_groups(request), results, strict=True))
    if request.version >= BATCHED_GROUPS_VERSION:
        partitions_class = OffsetFetchResponse.OffsetFetchResponsePartitions
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponse.OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    error_code=result.code,
                    topics=[
                        OffsetFetchResponse.OffsetFetchResponseTopics(
                            name=name, partitions=_partition_offsets(partitions_class, offsets)
                        )
                        for name, offsets in _offsets_by_topic(group, result).items()
                        if not result.code
                    ],
                )
                for group, result in pairs
            ]
        )
    ((group, result),) = pairs
    # version 1 has an error code only for each partition
    with_topics = request.version < REQUEST_ERROR_VERSION or not result.code
    partition_class = OffsetFetchResponse.OffsetFetchResponsePartition
    return OffsetFetchResponse(
        error_code=result.code,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=name, partitions=_partition_offsets(partition_class, offsets, result.code)
            )
            for name, offsets in _offsets_by_topic(group, result).items()
            if with_topics
        ],
    )


def _partition_offsets(
    partition_class: type[PartitionT],
    offsets: Iterable[tuple[int, OffsetAndMetadata]],
    code: Code = Code.NONE,
) -> list[PartitionT]:
    return [
        partition_class(
            partition_index=number,
            committed_offset=offset.offset,
            committed_leader_epoch=NO_LEADER_EPOCH
            if offset.leader_epoch is None
            else offset.leader_epoch,
            metadata=offset.metadata,
            error_code=code,
        )
        for number, offset in offsets
    ]


def _offsets_by_topic(
    group: RequestedGroup, result: response.OffsetFetchResult
) -> dict[str, list[tuple[int, OffsetAndMetadata]]]:
    offsets = {at: offset or NOT_COMMITTED for at, offset in result.offsets.items()}
    if group.topics is None:
        return values_by_topic(offsets)
    return {
        topic.name: [
            (number, offsets.get(TopicPartition(topic.name, number), NOT_COMMITTED))
            for number in topic.partition_indexes
        ]
        for topic in group.topics
    }


def _refuse_offset_fetch(
    request: ServerRequest[OffsetFetchRequest], code: Code
) -> OffsetFetchResponse:
    results = [response.OffsetFetchResult(code=code)] * len(_requested_groups(request))
    return _offset_fetch_response(request, results)


def _handle_offset_delete(request: ServerRequest[OffsetDeleteRequest]) -> None:
    requested = dict.fromkeys(
        TopicPartition(topic.name, each.partition_index)
        for topic in request.body.topics
        for each in topic.partitions
    )
    unknown = _find_unknown(request, requested)

    def make_response(result: response.OffsetDeleteResult) -> OffsetDeleteResponse:
        if result.code:
            return OffsetDeleteResponse(error_code=result.code)
        return OffsetDeleteResponse(
            topics=[
                OffsetDeleteResponse.OffsetDeleteResponseTopic(
                    name=name,
                    partitions=[
                        OffsetDeleteResponse.OffsetDeleteResponsePartition(
                            partition_index=number, error_code=code
                        )
                        for number, code in each
                    ],
                )
                for name, each in values_by_topic({**unknown, **result.codes}).items()
            ]
        )

    partitions = tuple(each for each in requested if each not in unknown)
    group_request = OffsetDelete(group=request.body.group_id, partitions=partitions)
    ask_coordinator(request, group_request, response.OffsetDeleteResult, make_response)


HANDLERS = (
    Handler(OffsetCommitRequest, 2, 9, _handle_offset_commit, _refuse_offset_commit),
    Handler(OffsetFetchRequest, 1, 9, _handle_offset_fetch, _refuse_offset_fetch),
    Handler(OffsetDeleteRequest, 0, 0, _handle_offset_delete),
)
