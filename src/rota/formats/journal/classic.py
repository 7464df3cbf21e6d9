"""Offsets and classic groups: record types 0 to 2.

An offset's value in versions 0 to 4 (1 alone has an expiry, 3 brought the leader's epoch, 4 the
topic's id as a tagged field), a group's too (1 brought the rebalance timeout, 2 the timestamp, 3
the static id). Version 4 of both is flexible. Kafka writes an offset in version 4, in version 1
where it has an expiry of its own, and a group in version 3; so does Rota.
"""

from __future__ import annotations

import struct

from rota.formats.journal.structure import read_version
from rota.formats.primitive import UUID_SIZE, Reader, Writer
from rota.model.entry import (
    NO_TIMESTAMP,
    GroupForgotten,
    GroupSaved,
    OffsetCommitted,
    OffsetForgotten,
    SavedMember,
)
from rota.model.offset import NO_EPOCH

LEGACY_OFFSET, OFFSET, GROUP = 0, 1, 2
"""Record types. Keys of type 0 are those of the first brokers; they look like type 1."""
OFFSET_KEY, OFFSET_VALUE = "OffsetCommit key", "OffsetCommit value"
GROUP_KEY, GROUP_VALUE = "GroupMetadata key", "GroupMetadata value"
HIGHEST = 4
"""The highest version of both values; what came with which version stands where it is read."""
EXPIRING, CURRENT_OFFSET, CURRENT_GROUP = 1, 4, 3
"""The versions that are written."""
TOPIC_ID = 0
"""The tag of a topic's id."""
NO_ID = bytes(UUID_SIZE)
SMALLEST_MEMBER = 15
"""A member with nothing in it, in version 4."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_THREE_INT32 = struct.Struct(">iii")
_INT64 = struct.Struct(">q")
_KEY_HEAD = struct.Struct(">hh")
"""Record type, length of the group's name."""
_VALUE_HEAD = struct.Struct(">hqiB")
"""Version, offset, leader's epoch, length of the metadata and one."""
_NO_TAGS = b"\0"
_ONE_ID = bytes((1, TOPIC_ID, UUID_SIZE))
"""One tagged field, its tag, its size: what stands before a topic's id."""


def decode_offset(key: bytes, value: bytes | None) -> OffsetCommitted | OffsetForgotten:
    """An offset, or its tombstone."""
    try:
        quick = None if value is None else _quick_offset(key, value)
    except (struct.error, UnicodeDecodeError):
        quick = None
    return quick or _careful_offset(key, value)


def _quick_offset(key: bytes, value: bytes) -> OffsetCommitted | None:
    """The form that nearly all records of a journal have, in few steps; None for any other.

    Lengths are only trusted where together they are the record's own. What is wrong with a
    record, :func:`_careful_offset` says.
    """
    _, group_size = _KEY_HEAD.unpack_from(key)
    if group_size < 0:
        return None
    topic_at = 6 + group_size
    (topic_size,) = _INT16.unpack_from(key, topic_at - 2)
    partition_at = topic_at + topic_size
    version, offset, leader_epoch, metadata_size = _VALUE_HEAD.unpack_from(value)
    metadata_end = 14 + metadata_size
    if (
        topic_size < 0
        or partition_at + 4 != len(key)
        or version != CURRENT_OFFSET
        or not 0 < metadata_size < 128  # 0 is null, from 128 on the length has two bytes
    ):
        return None
    tags = value[metadata_end + 8 :]
    if tags == _NO_TAGS:
        topic_id = None
    elif len(tags) == 19 and tags.startswith(_ONE_ID) and tags[3:] != NO_ID:
        topic_id = tags[3:]
    else:
        return None
    return OffsetCommitted(
        group=key[4 : topic_at - 2].decode(),
        topic=key[topic_at:partition_at].decode(),
        partition=_INT32.unpack_from(key, partition_at)[0],
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=value[15:metadata_end].decode(),
        commit_timestamp=_INT64.unpack_from(value, metadata_end)[0],
        topic_id=topic_id,
    )


def _careful_offset(key: bytes, value: bytes | None) -> OffsetCommitted | OffsetForgotten:
    """Any version, field by field, so that an error can name the field."""
    reader = Reader(key, OFFSET_KEY)
    reader.int16("type")
    group = reader.string("group")
    topic = reader.string("topic")
    partition = reader.int32("partition")
    reader.end()
    if value is None:
        return OffsetForgotten(group=group, topic=topic, partition=partition)
    reader = Reader(value, OFFSET_VALUE)
    version = read_version(reader, HIGHEST)
    flexible = version >= 4
    offset = reader.int64("offset")
    leader_epoch = reader.int32("leader epoch") if version >= 3 else NO_EPOCH
    metadata = reader.compact_string("metadata") if flexible else reader.string("metadata")
    commit_timestamp = reader.int64("commit timestamp")
    expire_timestamp = reader.int64("expire timestamp") if version == EXPIRING else NO_TIMESTAMP
    topic_id = _topic_id(reader) if flexible else None
    reader.end()
    return OffsetCommitted(
        group=group,
        topic=topic,
        partition=partition,
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp,
        expire_timestamp=expire_timestamp,
        topic_id=topic_id,
    )


def _topic_id(reader: Reader) -> bytes | None:
    """The topic's id among the tagged fields; Kafka's zero means that there is none."""
    found = NO_ID
    for tag, end in reader.tags():
        if tag == TOPIC_ID:
            found = reader.uuid("topic id")
        else:
            reader.offset = end
    return None if found == NO_ID else found


def decode_group(key: bytes, value: bytes | None) -> GroupSaved | GroupForgotten:
    """A classic group, or its tombstone."""
    reader = Reader(key, GROUP_KEY)
    reader.int16("type")
    group = reader.string("group")
    reader.end()
    if value is None:
        return GroupForgotten(group=group)
    reader = Reader(value, GROUP_VALUE)
    version = read_version(reader, HIGHEST)
    flexible = version >= 4
    text = reader.compact_string if flexible else reader.string
    nullable_text = reader.nullable_compact_string if flexible else reader.nullable_string
    count = reader.compact_count if flexible else reader.count
    saved = GroupSaved(
        group=group,
        protocol_type=text("protocol type"),
        generation=reader.int32("generation"),
        protocol=nullable_text("protocol"),
        leader=nullable_text("leader"),
        state_timestamp=reader.int64("state timestamp") if version >= 2 else NO_TIMESTAMP,
        members=_members(reader, version, count("members", SMALLEST_MEMBER)),
    )
    if flexible:
        reader.skip_tags()
    reader.end()
    return saved


def _members(reader: Reader, version: int, count: int) -> tuple[SavedMember, ...]:
    start = reader.offset
    if version == CURRENT_GROUP:
        try:
            return tuple([_quick_member(reader) for _ in range(count)])
        except (struct.error, UnicodeDecodeError):
            reader.offset = start  # what is wrong is said below
    return tuple([_member(reader, version) for _ in range(count)])


def _quick_member(reader: Reader) -> SavedMember:
    """The form that nearly all groups have, in few steps.

    :raises struct.error: if it is another, or the bytes are not enough
    """
    data, at = reader.data, reader.offset
    texts: list[str | None] = []
    for _ in range(4):
        (size,) = _INT16.unpack_from(data, at)
        end = at + 2 + max(size, 0)
        texts.append(None if size < 0 else data[at + 2 : end].decode())
        at = end
    member_id, static_id, client_id, client_host = texts
    rebalance_timeout, session_timeout, size = _THREE_INT32.unpack_from(data, at)
    told_at, end = at + 12, at + 12 + size
    (given,) = _INT32.unpack_from(data, end)
    reader.offset = end + 4 + given
    if size < 0 or given < 0 or reader.offset > len(data):
        raise struct.error
    if member_id is None or client_id is None or client_host is None:
        raise struct.error
    return SavedMember(
        member_id=member_id,
        static_id=static_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout=rebalance_timeout,
        session_timeout=session_timeout,
        subscription=data[told_at:end],
        assignment=data[end + 4 : reader.offset],
    )


def _member(reader: Reader, version: int) -> SavedMember:
    flexible = version >= 4
    text = reader.compact_string if flexible else reader.string
    nullable_text = reader.nullable_compact_string if flexible else reader.nullable_string
    some_bytes = reader.compact_bytes if flexible else reader.needed_bytes
    member_id = text("member id")
    static_id = nullable_text("static id") if version >= 3 else None
    client_id = text("client id")
    client_host = text("client host")
    rebalance_timeout = reader.int32("rebalance timeout") if version >= 1 else None
    session_timeout = reader.int32("session timeout")
    member = SavedMember(
        member_id=member_id,
        static_id=static_id,
        client_id=client_id,
        client_host=client_host,
        # before version 1 the session timeout was used for both
        rebalance_timeout=session_timeout if rebalance_timeout is None else rebalance_timeout,
        session_timeout=session_timeout,
        subscription=some_bytes("subscription"),
        assignment=some_bytes("assignment"),
    )
    if flexible:
        reader.skip_tags()
    return member


def offset_key(entry: OffsetCommitted | OffsetForgotten) -> bytes:
    """The key of an offset."""
    writer = Writer(OFFSET_KEY)
    writer.int16(OFFSET)
    writer.string(entry.group)
    writer.string(entry.topic)
    writer.int32(entry.partition)
    return writer.done()


def offset_value(entry: OffsetCommitted) -> bytes:
    """The value of an offset. With an expiry it has no room for the epoch and the topic's id."""
    writer = Writer(OFFSET_VALUE)
    if entry.expire_timestamp != NO_TIMESTAMP:
        writer.int16(EXPIRING)
        writer.int64(entry.offset)
        writer.string(entry.metadata)
        writer.int64(entry.commit_timestamp)
        writer.int64(entry.expire_timestamp)
        return writer.done()
    writer.int16(CURRENT_OFFSET)
    writer.int64(entry.offset)
    writer.int32(entry.leader_epoch)
    writer.compact_string(entry.metadata)
    writer.int64(entry.commit_timestamp)
    if entry.topic_id is None or entry.topic_id == NO_ID:
        writer.unsigned_varint(0)
    else:
        writer.unsigned_varint(1)
        writer.unsigned_varint(TOPIC_ID)
        writer.unsigned_varint(UUID_SIZE)
        writer.uuid(entry.topic_id)
    return writer.done()


def group_key(entry: GroupSaved | GroupForgotten) -> bytes:
    """The key of a classic group."""
    writer = Writer(GROUP_KEY)
    writer.int16(GROUP)
    writer.string(entry.group)
    return writer.done()


def group_value(entry: GroupSaved) -> bytes:
    """The value of a classic group."""
    writer = Writer(GROUP_VALUE)
    writer.int16(CURRENT_GROUP)
    writer.string(entry.protocol_type)
    writer.int32(entry.generation)
    writer.string(entry.protocol)
    writer.string(entry.leader)
    writer.int64(entry.state_timestamp)
    writer.int32(len(entry.members))
    for member in entry.members:
        writer.string(member.member_id)
        writer.string(member.static_id)
        writer.string(member.client_id)
        writer.string(member.client_host)
        writer.int32(member.rebalance_timeout)
        writer.int32(member.session_timeout)
        writer.nullable_bytes(member.subscription)
        writer.nullable_bytes(member.assignment)
    return writer.done()
