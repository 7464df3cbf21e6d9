"""Offsets of a group: who may commit, what is kept, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from rota.errors import Code
from rota.group.classic import Group
from rota.group.state import State
from rota.group.turn import Turn, answerable
from rota.model.config import LONG
from rota.model.entry import NO_TIMESTAMP, OffsetCommitted, OffsetForgotten
from rota.model.offset import NO_EPOCH, OffsetAndMetadata
from rota.model.reply import CommitReply, DeleteOffsetsReply, FetchOffsetsReply
from rota.model.request import CONSUMER, CommitOffsets, DeleteOffsets, FetchOffsets
from rota.model.topic import TopicPartition


def commit(turn: Turn, group: Group | None, token: int, request: CommitOffsets) -> None:
    """Stores offsets, if they come from a member of this generation or nobody else is there."""
    code = _refusal(group, request)
    if code:
        turn.answer(token, CommitReply(codes=dict.fromkeys(request.offsets, code)))
        return
    if group is not None and group.state in (State.STABLE, State.PREPARING):
        turn.start_session(group, group.members[request.member_id])
    longest = turn.config.offset_metadata_max
    codes: dict[TopicPartition, Code] = {}
    entries: list[OffsetCommitted] = []
    for partition, given in request.offsets.items():
        if _java_length(given.metadata) > longest:
            codes[partition] = Code.OFFSET_METADATA_TOO_LARGE
        else:
            codes[partition] = Code.NONE
            entries.append(_entry(turn.now, request, partition, given))
    if not entries:
        turn.answer(token, CommitReply(codes=codes))
        return
    turn.append(
        tuple(entries),
        lambda later, failed: later.answer(token, CommitReply(codes=_outcome(codes, failed))),
    )


def _outcome(codes: dict[TopicPartition, Code], failed: Code) -> dict[TopicPartition, Code]:
    return {tp: code or answerable(failed) for tp, code in codes.items()} if failed else codes


def _refusal(group: Group | None, request: CommitOffsets) -> Code:
    anonymous = request.generation < 0
    if group is None:
        if anonymous:  # an admin, or a consumer that only assigns: the group begins with this
            return Code.NONE
        return Code.GROUP_ID_NOT_FOUND if request.knows_missing_group else Code.ILLEGAL_GENERATION
    if anonymous and group.state is State.EMPTY:
        return Code.NONE
    code = group.check_member(request.member_id, request.static_id)
    if code:
        return code
    if request.generation != group.generation:
        return Code.ILLEGAL_GENERATION
    # it holds the generation of a join whose sync is not done: its positions are not settled
    return Code.REBALANCE_IN_PROGRESS if group.state is State.COMPLETING else Code.NONE


def _java_length(text: str) -> int:
    """The length that Kafka measures: UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _entry(
    now: int, request: CommitOffsets, partition: TopicPartition, given: OffsetAndMetadata
) -> OffsetCommitted:
    retention = request.retention
    return OffsetCommitted(
        group=request.group,
        topic=partition.topic,
        partition=partition.partition,
        offset=given.offset,
        leader_epoch=NO_EPOCH if given.leader_epoch is None else given.leader_epoch,
        metadata=given.metadata,
        commit_timestamp=now,
        expire_timestamp=NO_TIMESTAMP if retention is None else min(now + retention, LONG),
        topic_id=known_id(request.topic_ids.get(partition.topic)),
    )


def fetch(turn: Turn, group: Group | None, token: int, request: FetchOffsets) -> None:
    """What is stored; nothing for a group that does not exist, as in Kafka."""
    kept: Mapping[TopicPartition, OffsetCommitted] = {} if group is None else group.offsets
    asked = sorted(kept) if request.partitions is None else request.partitions
    ids = request.topic_ids
    found = {tp: _fetched(kept.get(tp), ids.get(tp.topic)) for tp in asked}
    turn.answer(token, FetchOffsetsReply(offsets=found))


def _fetched(kept: OffsetCommitted | None, topic_id: bytes | None) -> OffsetAndMetadata | None:
    # a journal may hold what says that there is no offset
    if kept is None or kept.offset < 0:
        return None
    # an offset of a topic that was deleted and made again belongs to the old one
    wanted = known_id(topic_id)
    if wanted is not None and kept.topic_id not in (None, wanted):
        return None
    epoch = None if kept.leader_epoch == NO_EPOCH else kept.leader_epoch
    return OffsetAndMetadata(kept.offset, kept.metadata, epoch)


def delete(turn: Turn, group: Group | None, token: int, request: DeleteOffsets) -> None:
    """Forgets offsets, but not of topics that a member reads."""
    if group is None:
        turn.answer(token, DeleteOffsetsReply(code=Code.GROUP_ID_NOT_FOUND))
        return
    if group.state is not State.EMPTY and group.protocol_type != CONSUMER:
        turn.answer(token, DeleteOffsetsReply(code=Code.NON_EMPTY_GROUP))
        return
    taken = Code.GROUP_SUBSCRIBED_TO_TOPIC
    codes = {tp: taken if group.is_subscribed(tp.topic) else Code.NONE for tp in request.partitions}
    gone = [tp for tp, code in codes.items() if not code and tp in group.offsets]
    forget(turn, group, gone)
    turn.answer_after_append(
        token,
        lambda code: (
            DeleteOffsetsReply(code=answerable(code)) if code else DeleteOffsetsReply(codes=codes)
        ),
    )


def forget(turn: Turn, group: Group, partitions: Iterable[TopicPartition]) -> None:
    """Writes tombstones of these offsets."""
    entries = tombstones(group, partitions)
    if entries:
        turn.append(entries)


def tombstones(group: Group, partitions: Iterable[TopicPartition]) -> tuple[OffsetForgotten, ...]:
    """The tombstones of these offsets."""
    return tuple(
        OffsetForgotten(group=group.name, topic=tp.topic, partition=tp.partition)
        for tp in sorted(partitions)
    )


def of_deleted(
    group: Group, topics: Iterable[tuple[str, bytes | None]]
) -> Iterator[TopicPartition]:
    """Offsets in topics that are gone; of a topic made anew under the same name they stay."""
    gone: dict[str, set[bytes | None]] = {}
    for topic, topic_id in topics:
        gone.setdefault(topic, set()).add(known_id(topic_id))
    for tp, kept in group.offsets.items():
        ids = gone.get(tp.topic)
        if ids is not None and (kept.topic_id is None or None in ids or kept.topic_id in ids):
            yield tp


def known_id(topic_id: bytes | None) -> bytes | None:
    """A topic's id; Kafka says by zeros that there is none."""
    return topic_id if topic_id is not None and any(topic_id) else None


def expired(group: Group, now: int, retention: int) -> list[TopicPartition]:
    """Offsets that nobody has needed for the time of retention.

    It counts from when the group became empty; in a group without members' protocol, and for a
    topic that a stable group no longer reads, from the commit. While a group rebalances, its
    topics are not settled, so nothing expires.
    """
    since: Callable[[OffsetCommitted], int]
    settled = group.state is State.STABLE and group.subscribed is not None
    if group.protocol_type is None or settled:
        since = _committed_at
    elif group.state is State.EMPTY:
        emptied = group.timestamp
        since = _committed_at if emptied == NO_TIMESTAMP else (lambda _: emptied)
    else:
        return []
    return [
        tp
        for tp, kept in group.offsets.items()
        if not group.is_subscribed(tp.topic) and _is_over(kept, since(kept), now, retention)
    ]


def _committed_at(kept: OffsetCommitted) -> int:
    return kept.commit_timestamp


def _is_over(kept: OffsetCommitted, since: int, now: int, retention: int) -> bool:
    if kept.expire_timestamp != NO_TIMESTAMP:
        return now >= kept.expire_timestamp
    return now - since >= retention
