"""Offsets of groups: commit, fetch, delete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from rota.broker.call import Call
from rota.broker.dispatch import Handler
from rota.broker.handlers.group import ask
from rota.broker.part import Parts
from rota.broker.topics import Topics
from rota.errors import Code
from rota.model.offset import NO_EPOCH, NO_OFFSET, GivenOffset, OffsetAndMetadata
from rota.model.reply import CommitReply, DeleteOffsetsReply, FetchOffsetsReply, Reply
from rota.model.request import CommitOffsets, DeleteOffsets, FetchOffsets
from rota.model.topic import TopicPartition
from rota.wire.api import Api
from rota.wire.message import (
    Message,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
)

MISSING_GROUP = 9
"""From this OffsetCommit on an unknown group is told from an old generation."""
WHOLE_CODE, MANY_GROUPS = 2, 8
"""Versions of OffsetFetch: a code for the whole request; many groups at once."""
NO_RETENTION = -1

V = TypeVar("V")


def _by_topic(values: Mapping[TopicPartition, V]) -> dict[str, list[tuple[int, V]]]:
    topics: dict[str, list[tuple[int, V]]] = {}
    for (topic, partition), value in values.items():
        topics.setdefault(topic, []).append((partition, value))
    return topics


def _exists(topics: Topics, name: str, partition: int) -> bool:
    return topics.log(name, partition) is not None


# OffsetCommit


def _commit(parts: Parts, call: Call) -> None:
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
            if not _exists(parts.topics, *partition):
                unknown[partition] = Code.UNKNOWN_TOPIC_OR_PARTITION
            else:
                epoch = each.committed_leader_epoch
                offsets[partition] = GivenOffset(
                    each.committed_offset,
                    each.committed_metadata or "",
                    None if epoch == NO_EPOCH else epoch,
                )
    if not offsets:
        call.answer(_committed(call, CommitReply(codes=unknown)))
        return
    retention = asked.retention_time_ms
    request = CommitOffsets(
        group=asked.group_id,
        generation=asked.generation_id_or_member_epoch,
        member_id=asked.member_id,
        static_id=asked.group_instance_id,
        offsets=offsets,
        topic_ids=ids,
        retention=None if retention == NO_RETENTION else retention,
        knows_missing_group=call.version >= MISSING_GROUP,
    )
    ask(parts, call, request, CommitReply, partial(_committed, unknown=unknown))


def _committed(
    _call: Call, reply: CommitReply, unknown: Mapping[TopicPartition, Code] | None = None
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
            for name, each in _by_topic(codes).items()
        ]
    )


def _refuse_commit(call: Call, code: Code) -> Message:
    codes = {
        TopicPartition(topic.name, each.partition_index): code
        for topic in call.request.topics
        for each in topic.partitions
    }
    return _committed(call, CommitReply(codes=codes))


# OffsetFetch


def _fetch(parts: Parts, call: Call) -> None:
    """Of one group, or of each; require_stable asks for nothing here that is not so anyway: a
    coordinator answers with what is stored, and there are no transactions.
    """
    groups = _asked_groups(call)
    found: dict[int, FetchOffsetsReply] = {}

    def fetched(reply: Reply, number: int) -> None:
        assert isinstance(reply, FetchOffsetsReply)
        found[number] = reply
        if len(found) == len(groups):
            call.answer(_fetched(call, [found[at] for at in range(len(groups))]))

    if not groups:
        call.answer(_fetched(call, []))
    for number, group in enumerate(groups):
        partitions = None
        if group.topics is not None:
            partitions = tuple(
                TopicPartition(topic.name, index)
                for topic in group.topics
                for index in topic.partition_indexes
            )
        request = FetchOffsets(group=group.group_id, partitions=partitions)
        parts.groups.ask(request, partial(fetched, number=number), call.now)


def _asked_groups(call: Call) -> list[Message]:
    return list(call.request.groups) if call.version >= MANY_GROUPS else [call.request]


def _fetched(call: Call, replies: list[FetchOffsetsReply]) -> Message:
    response = OffsetFetchResponse
    pairs = list(zip(_asked_groups(call), replies, strict=True))
    if call.version >= MANY_GROUPS:
        one = response.OffsetFetchResponseGroup
        topic = one.OffsetFetchResponseTopics
        makers = topic, topic.OffsetFetchResponsePartitions
        return response(
            groups=[
                one(
                    group_id=group.group_id,
                    error_code=reply.code,
                    topics=[] if reply.code else _fetched_topics(group, reply, *makers),
                )
                for group, reply in pairs
            ]
        )
    ((group, reply),) = pairs
    topic = response.OffsetFetchResponseTopic
    makers = topic, topic.OffsetFetchResponsePartition
    # version 1 has no place for a code but at the partitions
    told = call.version < WHOLE_CODE or not reply.code
    topics = _fetched_topics(group, reply, *makers) if told else []
    return response(error_code=reply.code, topics=topics)


def _fetched_topics(
    group: Message,
    reply: FetchOffsetsReply,
    topic: Callable[..., Message],
    partition: Callable[..., Message],
) -> list[Message]:
    if group.topics is None:
        found = _by_topic(reply.offsets)
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
                    committed_leader_epoch=_epoch(offset),
                    metadata="" if offset is None else offset.metadata,
                    error_code=reply.code,
                )
                for number, offset in offsets
            ],
        )
        for name, offsets in found.items()
    ]


def _epoch(offset: OffsetAndMetadata | None) -> int:
    return NO_EPOCH if offset is None or offset.leader_epoch is None else offset.leader_epoch


def _refuse_fetch(call: Call, code: Code) -> Message:
    return _fetched(call, [FetchOffsetsReply(code=code) for _ in _asked_groups(call)])


# OffsetDelete


def _delete(parts: Parts, call: Call) -> None:
    unknown: dict[TopicPartition, Code] = {}
    partitions: dict[TopicPartition, None] = {}
    for topic in call.request.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if _exists(parts.topics, *partition):
                partitions[partition] = None
            else:
                unknown[partition] = Code.UNKNOWN_TOPIC_OR_PARTITION
    request = DeleteOffsets(group=call.request.group_id, partitions=tuple(partitions))
    ask(parts, call, request, DeleteOffsetsReply, partial(_deleted, unknown=unknown))


def _deleted(
    _call: Call, reply: DeleteOffsetsReply, unknown: Mapping[TopicPartition, Code] | None = None
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
            for name, each in _by_topic(codes).items()
        ],
    )


def _refuse_delete(call: Call, code: Code) -> Message:
    return _deleted(call, DeleteOffsetsReply(code=code))


HANDLERS = (
    Handler(api=Api.OFFSET_COMMIT, lowest=2, highest=9, handle=_commit, refuse=_refuse_commit),
    Handler(api=Api.OFFSET_FETCH, lowest=1, highest=9, handle=_fetch, refuse=_refuse_fetch),
    Handler(api=Api.OFFSET_DELETE, lowest=0, highest=0, handle=_delete, refuse=_refuse_delete),
)
