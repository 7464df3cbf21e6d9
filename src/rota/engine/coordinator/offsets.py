"""OffsetCommit, OffsetFetch and OffsetDelete, and the expiration of offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rota.engine.coordinator.events import EventContext, translate_append_error
from rota.engine.coordinator.state import ClassicGroup, GroupState
from rota.engine.model.config import MAX_LONG
from rota.engine.model.journal_entry import NO_TIMESTAMP, OffsetCommitEntry, OffsetCommitTombstone
from rota.engine.model.request import (
    CONSUMER_PROTOCOL_TYPE,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
)
from rota.engine.model.response import OffsetCommitResult, OffsetDeleteResult, OffsetFetchResult
from rota.engine.model.topic import NO_LEADER_EPOCH, OffsetAndMetadata, TopicPartition
from rota.errors import Code


def handle_offset_commit(
    context: EventContext, group: ClassicGroup | None, token: int, request: OffsetCommit
) -> None:
    """Accepts a commit without a generation only if the group has no members."""
    code = _check_commit_request(group, request)
    if code:
        context.respond(token, OffsetCommitResult(codes=dict.fromkeys(request.offsets, code)))
        return
    if group is not None and group.state in (GroupState.STABLE, GroupState.PREPARING):
        context.restart_session_timer(group, group.members[request.member_id])
    longest = context.config.offset_metadata_max
    codes: dict[TopicPartition, Code] = {}
    entries: list[OffsetCommitEntry] = []
    for partition, given in request.offsets.items():
        if _utf16_length(given.metadata) > longest:
            codes[partition] = Code.OFFSET_METADATA_TOO_LARGE
        else:
            codes[partition] = Code.NONE
            entries.append(_make_offset_entry(context.now, request, partition, given))

    def respond(later: EventContext, failed: Code) -> None:
        error = translate_append_error(failed)
        shown = {tp: code or error for tp, code in codes.items()} if error else codes
        later.respond(token, OffsetCommitResult(codes=shown))

    if entries:
        context.append_entries(tuple(entries), respond)
    else:
        respond(context, Code.NONE)


def _check_commit_request(group: ClassicGroup | None, request: OffsetCommit) -> Code:
    anonymous = request.generation < 0
    if group is None:
        if anonymous:  # an admin, or a consumer that only assigns: this creates the group
            return Code.NONE
        known = request.supports_group_id_not_found
        return Code.GROUP_ID_NOT_FOUND if known else Code.ILLEGAL_GENERATION
    if anonymous and group.state is GroupState.EMPTY:
        return Code.NONE
    code = group.check_member(request.member_id, request.group_instance_id)
    if code:
        return code
    if request.generation != group.generation:
        return Code.ILLEGAL_GENERATION
    # the member has joined this generation, but does not know its assignment yet
    return Code.REBALANCE_IN_PROGRESS if group.state is GroupState.COMPLETING else Code.NONE


def _utf16_length(text: str) -> int:
    """Kafka measures the length of metadata in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _make_offset_entry(
    now: int, request: OffsetCommit, partition: TopicPartition, given: OffsetAndMetadata
) -> OffsetCommitEntry:
    retention = request.retention
    return OffsetCommitEntry(
        group=request.group,
        topic=partition.topic,
        partition=partition.partition,
        offset=given.offset,
        leader_epoch=NO_LEADER_EPOCH if given.leader_epoch is None else given.leader_epoch,
        metadata=given.metadata,
        commit_timestamp=now,
        expire_timestamp=NO_TIMESTAMP if retention is None else min(now + retention, MAX_LONG),
        topic_id=normalize_topic_id(request.topic_ids.get(partition.topic)),
    )


def handle_offset_fetch(
    context: EventContext, group: ClassicGroup | None, token: int, request: OffsetFetch
) -> None:
    """A group that does not exist has no offsets, as in Kafka."""
    kept: Mapping[TopicPartition, OffsetCommitEntry] = {} if group is None else group.offsets
    asked = sorted(kept) if request.partitions is None else request.partitions
    ids = request.topic_ids
    found = {tp: _make_fetched_offset(kept.get(tp), ids.get(tp.topic)) for tp in asked}
    context.respond(token, OffsetFetchResult(offsets=found))


def _make_fetched_offset(
    kept: OffsetCommitEntry | None, topic_id: bytes | None
) -> OffsetAndMetadata | None:
    # a record with a negative offset means that nothing is committed
    if kept is None or kept.offset < 0:
        return None
    # the offset belongs to a topic of the same name that was deleted
    wanted = normalize_topic_id(topic_id)
    if wanted is not None and kept.topic_id not in (None, wanted):
        return None
    epoch = None if kept.leader_epoch == NO_LEADER_EPOCH else kept.leader_epoch
    return OffsetAndMetadata(kept.offset, kept.metadata, epoch)


def handle_offset_delete(
    context: EventContext, group: ClassicGroup | None, token: int, request: OffsetDelete
) -> None:
    """Offsets of topics that a member reads are not deleted."""
    if group is None:
        context.respond(token, OffsetDeleteResult(code=Code.GROUP_ID_NOT_FOUND))
        return
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        context.respond(token, OffsetDeleteResult(code=Code.NON_EMPTY_GROUP))
        return
    taken, subscribed = Code.GROUP_SUBSCRIBED_TO_TOPIC, group.is_subscribed_to_topic
    codes = {tp: taken if subscribed(tp.topic) else Code.NONE for tp in request.partitions}
    gone = [tp for tp, code in codes.items() if not code and tp in group.offsets]
    append_tombstones(context, group, gone)

    def make_response(failed: Code) -> OffsetDeleteResult:
        code = translate_append_error(failed)
        return OffsetDeleteResult(code=code) if code else OffsetDeleteResult(codes=codes)

    context.respond_after_append(token, make_response)


def append_tombstones(
    context: EventContext, group: ClassicGroup, partitions: Iterable[TopicPartition]
) -> None:
    entries = make_tombstones(group, partitions)
    if entries:
        context.append_entries(entries)


def make_tombstones(
    group: ClassicGroup, partitions: Iterable[TopicPartition]
) -> tuple[OffsetCommitTombstone, ...]:
    return tuple(
        OffsetCommitTombstone(group=group.name, topic=tp.topic, partition=tp.partition)
        for tp in sorted(partitions)
    )


def find_offsets_of_deleted_topics(
    group: ClassicGroup, topics: Iterable[tuple[str, bytes | None]]
) -> Iterator[TopicPartition]:
    """Yields offsets of deleted topics. A topic with the same name and another id keeps its own."""
    gone: dict[str, set[bytes | None]] = {}
    for topic, topic_id in topics:
        gone.setdefault(topic, set()).add(normalize_topic_id(topic_id))
    for tp, kept in group.offsets.items():
        ids = gone.get(tp.topic)
        if ids is not None and (kept.topic_id is None or None in ids or kept.topic_id in ids):
            yield tp


def normalize_topic_id(topic_id: bytes | None) -> bytes | None:
    """Returns None for Kafka's all-zero id."""
    return topic_id if topic_id is not None and any(topic_id) else None


def find_expired_offsets(group: ClassicGroup, now: int, retention: int) -> list[TopicPartition]:
    """Returns the partitions whose offsets have expired. Retention counts from when the group
    became empty, or from the commit without a protocol type or reader. None expire in a rebalance.
    """
    since = NO_TIMESTAMP
    settled = group.state is GroupState.STABLE and group.subscribed_topics is not None
    if group.protocol_type is not None and not settled:
        if group.state is not GroupState.EMPTY:
            return []
        since = group.state_timestamp

    def is_expired(kept: OffsetCommitEntry) -> bool:
        if kept.expire_timestamp != NO_TIMESTAMP:
            return now >= kept.expire_timestamp
        return now - (kept.commit_timestamp if since == NO_TIMESTAMP else since) >= retention

    return [
        tp
        for tp, kept in group.offsets.items()
        if not group.is_subscribed_to_topic(tp.topic) and is_expired(kept)
    ]
