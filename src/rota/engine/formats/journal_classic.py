"""Offsets and classic groups in ``__consumer_offsets``: record types 0 to 2, and Kafka's names of
all types.

The layouts, with the versions that have a field::

    OffsetCommit key            type int16 (1; 0 in the oldest brokers), group string, topic string,
                                partition int32
    OffsetCommit value          version int16
                                offset int64
                                leader epoch int32              3, 4
                                metadata string                 compact in 4
                                commit timestamp int64
                                expire timestamp int64          1
                                tagged fields: 0 topic id uuid  4

    GroupMetadata key           type int16 (2), group string
    GroupMetadata value         version int16
                                protocol type string, generation int32
                                protocol, leader: nullable strings
                                state timestamp int64           from 2 on
                                members: array of
                                    member id string
                                    group instance id nullable  from 3 on
                                    client id, client host: strings
                                    rebalance timeout int32     from 1 on
                                    session timeout int32
                                    subscription, assignment: bytes

Both values have versions 0 to 4; version 4 is flexible: all strings, arrays and bytes are compact
and tagged fields follow. Kafka writes an offset in version 4, or in version 1 with an expiry of its
own, and a group in version 3; so does Rota.
"""

from __future__ import annotations

import struct

from rota.engine.formats.primitive import UUID_SIZE, ZERO_UUID, PrimitiveReader, PrimitiveWriter
from rota.engine.model.journal_entry import (
    NO_TIMESTAMP,
    GroupMetadataEntry,
    GroupMetadataMember,
    GroupMetadataTombstone,
    OffsetCommitEntry,
    OffsetCommitTombstone,
)
from rota.engine.model.topic import NO_LEADER_EPOCH

RECORD_NAMES = {
    0: "LegacyOffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    9: "ShareGroupPartitionMetadata",  # of early releases of Kafka 4, like 18
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    18: "StreamsGroupPartitionMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
LEGACY_OFFSET_TYPE, OFFSET_TYPE, GROUP_TYPE = 0, 1, 2
OFFSET_KEY, OFFSET_VALUE = "OffsetCommit key", "OffsetCommit value"
GROUP_KEY, GROUP_VALUE = "GroupMetadata key", "GroupMetadata value"

HIGHEST_VALUE_VERSION = 4  # the highest version of both values
#: The versions that are written.
EXPIRING_OFFSET_VERSION, CURRENT_OFFSET_VERSION, CURRENT_GROUP_VERSION = 1, 4, 3
#: The versions that introduced the leader epoch, and compact fields.
LEADER_EPOCH_VERSION, FLEXIBLE_VERSION = 3, 4

TOPIC_ID_TAG = 0
TOPIC_ID_PREFIX = bytes((1, TOPIC_ID_TAG, UUID_SIZE))  # number of tagged fields, tag and size
NO_TAGS = b"\0"
SMALLEST_MEMBER = 15  # bytes of a member with empty fields, in version 4
_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_THREE_INT32 = struct.Struct(">iii")
_KEY_START = struct.Struct(">hh")  # record type and the length of the group
_VALUE_START = struct.Struct(">hqiB")  # version, offset, leader epoch, metadata length plus one


def decode_offset(key: bytes, value: bytes | None) -> OffsetCommitEntry | OffsetCommitTombstone:
    try:
        found = None if value is None else _decode_current_offset(key, value)
    except (struct.error, UnicodeDecodeError):
        found = None
    return found or _decode_any_offset(key, value)


def _decode_current_offset(key: bytes, value: bytes) -> OffsetCommitEntry | None:
    """Decodes nearly all offset records, in few steps; None where lengths differ from the form."""
    _, group_size = _KEY_START.unpack_from(key)
    if group_size < 0:
        return None
    topic_at = 6 + group_size
    (topic_size,) = _INT16.unpack_from(key, topic_at - 2)
    partition_at = topic_at + topic_size
    version, offset, leader_epoch, metadata_size = _VALUE_START.unpack_from(value)
    metadata_end = 14 + metadata_size
    if (
        topic_size < 0
        or partition_at + 4 != len(key)
        or version != CURRENT_OFFSET_VERSION
        or not 0 < metadata_size < 128  # 0 is null, from 128 on the length has two bytes
    ):
        return None
    tags = value[metadata_end + 8 :]
    if tags == NO_TAGS:
        topic_id = None
    elif len(tags) == 19 and tags.startswith(TOPIC_ID_PREFIX) and tags[3:] != ZERO_UUID:
        topic_id = tags[3:]
    else:
        return None
    return OffsetCommitEntry(
        group=key[4 : topic_at - 2].decode(),
        topic=key[topic_at:partition_at].decode(),
        partition=_INT32.unpack_from(key, partition_at)[0],
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=value[15:metadata_end].decode(),
        commit_timestamp=_INT64.unpack_from(value, metadata_end)[0],
        topic_id=topic_id,
    )


def _decode_any_offset(
    key: bytes, value: bytes | None
) -> OffsetCommitEntry | OffsetCommitTombstone:
    """Decodes any version field by field, so that an error can name the field."""
    reader = PrimitiveReader(key, OFFSET_KEY)
    reader.int16("type")
    group = reader.string("group")
    topic = reader.string("topic")
    partition = reader.int32("partition")
    reader.expect_end()
    if value is None:
        return OffsetCommitTombstone(group=group, topic=topic, partition=partition)
    reader = PrimitiveReader(value, OFFSET_VALUE)
    version = _read_value_version(reader)
    offset = reader.int64("offset")
    leader_epoch = NO_LEADER_EPOCH
    if version >= LEADER_EPOCH_VERSION:
        leader_epoch = reader.int32("leader epoch")
    metadata = reader.string("metadata")
    commit_timestamp = reader.int64("commit timestamp")
    expire_timestamp = (
        reader.int64("expire timestamp") if version == EXPIRING_OFFSET_VERSION else NO_TIMESTAMP
    )
    topic_id = None
    for tag, end in reader.tags():
        if tag == TOPIC_ID_TAG:
            topic_id = reader.uuid("topic id")
        else:
            reader.offset = end
    reader.expect_end()
    return OffsetCommitEntry(
        group=group,
        topic=topic,
        partition=partition,
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp,
        expire_timestamp=expire_timestamp,
        topic_id=None if topic_id == ZERO_UUID else topic_id,
    )


def decode_group(key: bytes, value: bytes | None) -> GroupMetadataEntry | GroupMetadataTombstone:
    reader = PrimitiveReader(key, GROUP_KEY)
    reader.int16("type")
    group = reader.string("group")
    reader.expect_end()
    if value is None:
        return GroupMetadataTombstone(group=group)
    reader = PrimitiveReader(value, GROUP_VALUE)
    version = _read_value_version(reader)
    saved = GroupMetadataEntry(
        group=group,
        protocol_type=reader.string("protocol type"),
        generation=reader.int32("generation"),
        protocol=reader.nullable_string("protocol"),
        leader=reader.nullable_string("leader"),
        state_timestamp=reader.int64("state timestamp") if version >= 2 else NO_TIMESTAMP,
        members=_read_members(reader, version, reader.count("members", SMALLEST_MEMBER)),
    )
    reader.skip_tags()
    reader.expect_end()
    return saved


def _read_members(
    reader: PrimitiveReader, version: int, count: int
) -> tuple[GroupMetadataMember, ...]:
    start = reader.offset
    if version == CURRENT_GROUP_VERSION:
        try:
            return tuple([_read_current_member(reader) for _ in range(count)])
        except (struct.error, UnicodeDecodeError):
            reader.offset = start  # the other decoder raises the error
    return tuple([_read_any_member(reader, version) for _ in range(count)])


def _read_current_member(reader: PrimitiveReader) -> GroupMetadataMember:
    """Reads the form of nearly all groups, in few steps; raises struct.error for any other form."""
    data, at = reader.data, reader.offset
    texts: list[str | None] = []
    for _ in range(4):
        (size,) = _INT16.unpack_from(data, at)
        end = at + 2 + max(size, 0)
        texts.append(None if size < 0 else data[at + 2 : end].decode())
        at = end
    member_id, group_instance_id, client_id, client_host = texts
    rebalance_timeout, session_timeout, size = _THREE_INT32.unpack_from(data, at)
    subscription_at, end = at + 12, at + 12 + size
    (assignment_size,) = _INT32.unpack_from(data, end)
    reader.offset = end + 4 + assignment_size
    if size < 0 or assignment_size < 0 or reader.offset > len(data):
        raise struct.error
    if member_id is None or client_id is None or client_host is None:
        raise struct.error
    return GroupMetadataMember(
        member_id=member_id,
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout=rebalance_timeout,
        session_timeout=session_timeout,
        subscription=data[subscription_at:end],
        assignment=data[end + 4 : reader.offset],
    )


def _read_any_member(reader: PrimitiveReader, version: int) -> GroupMetadataMember:
    member_id = reader.string("member id")
    group_instance_id = reader.nullable_string("static id") if version >= 3 else None
    client_id = reader.string("client id")
    client_host = reader.string("client host")
    rebalance_timeout = reader.int32("rebalance timeout") if version >= 1 else None
    session_timeout = reader.int32("session timeout")
    member = GroupMetadataMember(
        member_id=member_id,
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host=client_host,
        # before version 1 the session timeout was used for both
        rebalance_timeout=session_timeout if rebalance_timeout is None else rebalance_timeout,
        session_timeout=session_timeout,
        subscription=reader.bytes_not_null("subscription"),
        assignment=reader.bytes_not_null("assignment"),
    )
    reader.skip_tags()
    return member


def encode_offset_key(entry: OffsetCommitEntry | OffsetCommitTombstone) -> bytes:
    writer = PrimitiveWriter(OFFSET_KEY)
    writer.int16(OFFSET_TYPE)
    writer.string(entry.group)
    writer.string(entry.topic)
    writer.int32(entry.partition)
    return writer.to_bytes()


def encode_offset_value(entry: OffsetCommitEntry) -> bytes:
    """Encodes an offset's value. With an expiry it has neither leader epoch nor topic id."""
    expires = entry.expire_timestamp != NO_TIMESTAMP
    writer = PrimitiveWriter(OFFSET_VALUE, flexible=not expires)
    writer.int16(EXPIRING_OFFSET_VERSION if expires else CURRENT_OFFSET_VERSION)
    writer.int64(entry.offset)
    if not expires:
        writer.int32(entry.leader_epoch)
    writer.string(entry.metadata)
    writer.int64(entry.commit_timestamp)
    if expires:
        writer.int64(entry.expire_timestamp)
    elif entry.topic_id is None or entry.topic_id == ZERO_UUID:
        writer.unsigned_varint(0)
    else:
        writer.unsigned_varint(1)
        writer.unsigned_varint(TOPIC_ID_TAG)
        writer.unsigned_varint(UUID_SIZE)
        writer.uuid(entry.topic_id)
    return writer.to_bytes()


def encode_group_key(entry: GroupMetadataEntry | GroupMetadataTombstone) -> bytes:
    writer = PrimitiveWriter(GROUP_KEY)
    writer.int16(GROUP_TYPE)
    writer.string(entry.group)
    return writer.to_bytes()


def encode_group_value(entry: GroupMetadataEntry) -> bytes:
    writer = PrimitiveWriter(GROUP_VALUE)
    writer.int16(CURRENT_GROUP_VERSION)
    writer.string(entry.protocol_type)
    writer.int32(entry.generation)
    writer.string(entry.protocol)
    writer.string(entry.leader)
    writer.int64(entry.state_timestamp)
    writer.int32(len(entry.members))
    for member in entry.members:
        writer.string(member.member_id)
        writer.string(member.group_instance_id)
        writer.string(member.client_id)
        writer.string(member.client_host)
        writer.int32(member.rebalance_timeout)
        writer.int32(member.session_timeout)
        writer.nullable_bytes(member.subscription)
        writer.nullable_bytes(member.assignment)
    return writer.to_bytes()


def _read_value_version(reader: PrimitiveReader) -> int:
    version = read_value_version(reader, HIGHEST_VALUE_VERSION)
    reader.flexible = version >= FLEXIBLE_VERSION
    return version


def read_value_version(reader: PrimitiveReader, highest: int) -> int:
    """Raises FormatError for a newer version, which may have additional fields in between."""
    version = reader.int16("version")
    if not 0 <= version <= highest:
        raise reader.error("version", f"{version} is not one of 0 to {highest}", at=0)
    return version
