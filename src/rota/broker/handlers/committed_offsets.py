"""OffsetCommit, OffsetFetch and OffsetDelete: the committed offsets of groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from rota.broker.dispatch import Handler, HandlerContext, ServerRequest
from rota.broker.handlers.consumer_groups import ask_coordinator
from rota.broker.topics import Topics
from rota.engine.model.request import OffsetCommit, OffsetDelete, OffsetFetch
from rota.engine.model.response import (
    GroupResponse,
    OffsetCommitResult,
    OffsetDeleteResult,
    OffsetFetchResult,
)
from rota.engine.model.topic import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    OffsetAndMetadata,
    TopicPartition,
    UncheckedOffset,
)
from rota.errors import Code
from rota.protocol.messages import (
    Api,
    Message,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
)

#: From this OffsetCommit on an unknown group is told from an old generation.
GROUP_NOT_FOUND_VERSION = 9

#: Versions of OffsetFetch: a code for the whole request; many groups at once.
REQUEST_ERROR_VERSION, BATCHED_GROUPS_VERSION = 2, 8

NO_RETENTION = -1

ValueT = TypeVar("ValueT")


def _group_by_topic(values: Mapping[TopicPartition, ValueT]) -> dict[str, list[tuple[int, ValueT]]]:
    topics: dict[str, list[tuple[int, ValueT]]] = {}
    for (topic, partition), value in values.items():
        topics.setdefault(topic, []).append((partition, value))
    return topics


def _partition_exists(topics: Topics, name: str, partition: int) -> bool:
    return topics.get_log(name, partition) is not None


def _handle_offset_commit(parts: HandlerContext, call: ServerRequest) -> None:
    asked = call.request
    unknown: dict[TopicPartition, Code] = {}
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    ids: dict[str, bytes] = {}
    for topic in asked.topics:
        known = parts.topics.get(topic.name)
        if known is not None:
            ids[topic.name] = known.id
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if not _partition_exists(parts.topics, *partition):
                unknown[partition] = Code.UNKNOWN_TOPIC_OR_PARTITION
            else:
                epoch = each.committed_leader_epoch
                offsets[partition] = UncheckedOffset(
                    each.committed_offset,
                    each.committed_metadata or "",
                    None if epoch == NO_LEADER_EPOCH else epoch,
                )
    if not offsets:
        call.answer(_offset_commit_response(call, OffsetCommitResult(codes=unknown)))
        return
    retention = asked.retention_time_ms
    request = OffsetCommit(
        group=asked.group_id,
        generation=asked.generation_id_or_member_epoch,
        member_id=asked.member_id,
        group_instance_id=asked.group_instance_id,
        offsets=offsets,
        topic_ids=ids,
        retention=None if retention == NO_RETENTION else retention,
        supports_group_id_not_found=call.version >= GROUP_NOT_FOUND_VERSION,
    )
    ask_coordinator(
        parts, call, request, OffsetCommitResult, partial(_offset_commit_response, unknown=unknown)
    )


def _offset_commit_response(
    _call: ServerRequest,
    reply: OffsetCommitResult,
    unknown: Mapping[TopicPartition, Code] | None = None,
) -> Message:
    topic = OffsetCommitResponse.OffsetCommitResponseTopic
    partition = topic.OffsetCommitResponsePartition
    codes = {**(unknown or {}), **reply.codes}
    return OffsetCommitResponse(
        topics=[
            topic(
                name=name,
                partitions=[
                    partition(partition_index=number, error_code=code) for number, code in each
                ],
            )
            for name, each in _group_by_topic(codes).items()
        ]
    )


def _refuse_offset_commit(call: ServerRequest, code: Code) -> Message:
    codes = {
        TopicPartition(topic.name, each.partition_index): code
        for topic in call.request.topics
        for each in topic.partitions
    }
    return _offset_commit_response(call, OffsetCommitResult(codes=codes))


def _handle_offset_fetch(parts: HandlerContext, call: ServerRequest) -> None:
    """Fetches the offsets of one group or of many. require_stable changes nothing: a
    coordinator answers with what is stored, and there are no transactions.
    """
    groups = _requested_groups(call)
    found: dict[int, OffsetFetchResult] = {}

    def fetched(reply: GroupResponse, number: int) -> None:
        assert isinstance(reply, OffsetFetchResult)
        found[number] = reply
        if len(found) == len(groups):
            call.answer(_offset_fetch_response(call, [found[at] for at in range(len(groups))]))

    if not groups:
        call.answer(_offset_fetch_response(call, []))
    for number, group in enumerate(groups):
        partitions = None
        if group.topics is not None:
            partitions = tuple(
                TopicPartition(topic.name, index)
                for topic in group.topics
                for index in topic.partition_indexes
            )
        request = OffsetFetch(group=group.group_id, partitions=partitions)
        parts.groups.ask(request, partial(fetched, number=number), call.now)


def _requested_groups(call: ServerRequest) -> list[Message]:
    return list(call.request.groups) if call.version >= BATCHED_GROUPS_VERSION else [call.request]


def _offset_fetch_response(call: ServerRequest, replies: list[OffsetFetchResult]) -> Message:
    response = OffsetFetchResponse
    pairs = list(zip(_requested_groups(call), replies, strict=True))
    if call.version >= BATCHED_GROUPS_VERSION:
        one = response.OffsetFetchResponseGroup
        topic = one.OffsetFetchResponseTopics
        makers = topic, topic.OffsetFetchResponsePartitions
        return response(
            groups=[
                one(
                    group_id=group.group_id,
                    error_code=reply.code,
                    topics=[] if reply.code else _offset_fetch_topics(group, reply, *makers),
                )
                for group, reply in pairs
            ]
        )
    ((group, reply),) = pairs
    topic = response.OffsetFetchResponseTopic
    makers = topic, topic.OffsetFetchResponsePartition
    # version 1 has no place for a code but at the partitions
    told = call.version < REQUEST_ERROR_VERSION or not reply.code
    topics = _offset_fetch_topics(group, reply, *makers) if told else []
    return response(error_code=reply.code, topics=topics)


def _offset_fetch_topics(
    group: Message,
    reply: OffsetFetchResult,
    topic: Callable[..., Message],
    partition: Callable[..., Message],
) -> list[Message]:
    if group.topics is None:
        found = _group_by_topic(reply.offsets)
    else:
        found = {
            each.name: [
                (number, reply.offsets.get(TopicPartition(each.name, number)))
                for number in each.partition_indexes
            ]
            for each in group.topics
        }
    return [
        topic(
            name=name,
            partitions=[
                partition(
                    partition_index=number,
                    committed_offset=NO_OFFSET if offset is None else offset.offset,
                    committed_leader_epoch=_leader_epoch_of(offset),
                    metadata="" if offset is None else offset.metadata,
                    error_code=reply.code,
                )
                for number, offset in offsets
            ],
        )
        for name, offsets in found.items()
    ]


def _leader_epoch_of(offset: OffsetAndMetadata | None) -> int:
    return NO_LEADER_EPOCH if offset is None or offset.leader_epoch is None else offset.leader_epoch


def _refuse_offset_fetch(call: ServerRequest, code: Code) -> Message:
    return _offset_fetch_response(
        call, [OffsetFetchResult(code=code) for _ in _requested_groups(call)]
    )


def _handle_offset_delete(parts: HandlerContext, call: ServerRequest) -> None:
    unknown: dict[TopicPartition, Code] = {}
    partitions: dict[TopicPartition, None] = {}
    for topic in call.request.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if _partition_exists(parts.topics, *partition):
                partitions[partition] = None
            else:
                unknown[partition] = Code.UNKNOWN_TOPIC_OR_PARTITION
    request = OffsetDelete(group=call.request.group_id, partitions=tuple(partitions))
    ask_coordinator(
        parts, call, request, OffsetDeleteResult, partial(_offset_delete_response, unknown=unknown)
    )


def _offset_delete_response(
    _call: ServerRequest,
    reply: OffsetDeleteResult,
    unknown: Mapping[TopicPartition, Code] | None = None,
) -> Message:
    topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
    partition = topic.OffsetDeleteResponsePartition
    codes = {} if reply.code else {**(unknown or {}), **reply.codes}
    return OffsetDeleteResponse(
        error_code=reply.code,
        topics=[
            topic(
                name=name,
                partitions=[
                    partition(partition_index=number, error_code=code) for number, code in each
                ],
            )
            for name, each in _group_by_topic(codes).items()
        ],
    )


def _refuse_offset_delete(call: ServerRequest, code: Code) -> Message:
    return _offset_delete_response(call, OffsetDeleteResult(code=code))


HANDLERS = (
    Handler(
        api=Api.OFFSET_COMMIT,
        min_version=2,
        max_version=9,
        handle=_handle_offset_commit,
        error_response=_refuse_offset_commit,
    ),
    Handler(
        api=Api.OFFSET_FETCH,
        min_version=1,
        max_version=9,
        handle=_handle_offset_fetch,
        error_response=_refuse_offset_fetch,
    ),
    Handler(
        api=Api.OFFSET_DELETE,
        min_version=0,
        max_version=0,
        handle=_handle_offset_delete,
        error_response=_refuse_offset_delete,
    ),
)
