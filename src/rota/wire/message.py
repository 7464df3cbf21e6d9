"""Requests and responses: their classes, and how they are read and written.

A message is an object with its schema's fields, in snake case; structs within it are made by
classes that are attributes of the message's class. An id is 16 bytes, :data:`NO_ID` where there is
none. Records in a message that was read are a view of its frame.
"""

from __future__ import annotations

import functools
import struct
from typing import Any, Final, NamedTuple, TypeAlias

from rota.errors import FormatError
from rota.formats.buffer import Bytes
from rota.wire import schema
from rota.wire.api import Api
from rota.wire.decoder import Decode, decoder, skip_tags
from rota.wire.encoder import Encode, encoder
from rota.wire.record import MessageClass, Record
from rota.wire.source import field_at

Message: TypeAlias = Any
"""A request or response."""
Pair: TypeAlias = tuple[Any, Any]

NO_ID: Final = schema.NO_ID
"""The id of no topic."""

_classes: dict[int, tuple[MessageClass, MessageClass]] = {}


def _classes_of(api: Api) -> Pair:
    """The classes of an API's request and response."""
    name = "".join(word.capitalize() for word in api.name.split("_"))
    _classes[api] = (MessageClass(f"{name}Request"), MessageClass(f"{name}Response"))
    return _classes[api]


ProduceRequest, ProduceResponse = _classes_of(Api.PRODUCE)
FetchRequest, FetchResponse = _classes_of(Api.FETCH)
ListOffsetsRequest, ListOffsetsResponse = _classes_of(Api.LIST_OFFSETS)
MetadataRequest, MetadataResponse = _classes_of(Api.METADATA)
OffsetCommitRequest, OffsetCommitResponse = _classes_of(Api.OFFSET_COMMIT)
OffsetFetchRequest, OffsetFetchResponse = _classes_of(Api.OFFSET_FETCH)
FindCoordinatorRequest, FindCoordinatorResponse = _classes_of(Api.FIND_COORDINATOR)
JoinGroupRequest, JoinGroupResponse = _classes_of(Api.JOIN_GROUP)
HeartbeatRequest, HeartbeatResponse = _classes_of(Api.HEARTBEAT)
LeaveGroupRequest, LeaveGroupResponse = _classes_of(Api.LEAVE_GROUP)
SyncGroupRequest, SyncGroupResponse = _classes_of(Api.SYNC_GROUP)
DescribeGroupsRequest, DescribeGroupsResponse = _classes_of(Api.DESCRIBE_GROUPS)
ListGroupsRequest, ListGroupsResponse = _classes_of(Api.LIST_GROUPS)
SaslHandshakeRequest, SaslHandshakeResponse = _classes_of(Api.SASL_HANDSHAKE)
ApiVersionsRequest, ApiVersionsResponse = _classes_of(Api.API_VERSIONS)
CreateTopicsRequest, CreateTopicsResponse = _classes_of(Api.CREATE_TOPICS)
DeleteTopicsRequest, DeleteTopicsResponse = _classes_of(Api.DELETE_TOPICS)
DeleteRecordsRequest, DeleteRecordsResponse = _classes_of(Api.DELETE_RECORDS)
InitProducerIdRequest, InitProducerIdResponse = _classes_of(Api.INIT_PRODUCER_ID)
OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse = _classes_of(Api.OFFSET_FOR_LEADER_EPOCH)
DescribeConfigsRequest, DescribeConfigsResponse = _classes_of(Api.DESCRIBE_CONFIGS)
AlterConfigsRequest, AlterConfigsResponse = _classes_of(Api.ALTER_CONFIGS)
DescribeLogDirsRequest, DescribeLogDirsResponse = _classes_of(Api.DESCRIBE_LOG_DIRS)
SaslAuthenticateRequest, SaslAuthenticateResponse = _classes_of(Api.SASL_AUTHENTICATE)
CreatePartitionsRequest, CreatePartitionsResponse = _classes_of(Api.CREATE_PARTITIONS)
DeleteGroupsRequest, DeleteGroupsResponse = _classes_of(Api.DELETE_GROUPS)
IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse = _classes_of(
    Api.INCREMENTAL_ALTER_CONFIGS
)
ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse = _classes_of(
    Api.LIST_PARTITION_REASSIGNMENTS
)
OffsetDeleteRequest, OffsetDeleteResponse = _classes_of(Api.OFFSET_DELETE)
DescribeClusterRequest, DescribeClusterResponse = _classes_of(Api.DESCRIBE_CLUSTER)
ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse = _classes_of(
    Api.CONSUMER_GROUP_DESCRIBE
)
DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse = _classes_of(
    Api.DESCRIBE_TOPIC_PARTITIONS
)

_HEAD = struct.Struct(">hhih")
schema.require(made.name for pair in _classes.values() for made in pair)
_decoders: dict[tuple[type[Record], int], Decode] = {}
_encoders: dict[tuple[type[Record], int], Encode] = {}


class Head(NamedTuple):
    """The header of a request."""

    api: int
    version: int
    correlation: int
    client_id: str | None
    size: int
    """Bytes up to the body."""


def spoken(api: Api) -> schema.Versions:
    """The versions of an API that can be written and read."""
    return _classes[api][0].made.SCHEMA.versions


def read_head(frame: Bytes) -> Head:
    """The header of a request, whatever its API and version.

    :raises FormatError: it is cut
    """
    if len(frame) < _HEAD.size:
        raise FormatError(f"a request's header has {_HEAD.size} bytes at least, not {len(frame)}")
    api, version, correlation, length = _HEAD.unpack_from(frame)
    size = _HEAD.size + max(length, 0)
    if length < -1 or size > len(frame):
        raise FormatError(f"its client id is said to have {length} bytes")
    client_id = None if length < 0 else str(frame[_HEAD.size : size], "utf-8", "replace")
    if api in _classes and version in _flexible(api):
        try:
            tags = frame[size]
            size = skip_tags(frame, size + 1, len(frame), tags) if tags else size + 1
        except (FormatError, IndexError):
            raise FormatError("the tagged fields of its header are cut") from None
    return Head(api, version, correlation, client_id, size)


def read_request(api: Api, version: int, frame: Bytes, start: int) -> Message:
    """A request's body, from a position of its frame on.

    :raises FormatError: it does not follow its schema, or something is left behind it
    """
    return _read(_classes[api][0].made, version, frame, start)


def read_response(api: Api, version: int, frame: Bytes) -> tuple[int, Message]:
    """The correlation id and the body of a response.

    :raises FormatError: it does not follow its schema, or something is left behind it
    """
    try:
        correlation = int.from_bytes(frame[:4], "big", signed=True)
        start = skip_tags(frame, 5, len(frame), frame[4]) if _long_head(api, version) else 4
    except (FormatError, IndexError):
        raise FormatError("a response's header is cut") from None
    return correlation, _read(_classes[api][1].made, version, frame, start)


def write_request(head: Head, request: Message) -> bytearray:
    """A whole frame, length and header included; the header's size is not looked at."""
    name = head.client_id
    encoded = b"" if name is None else name.encode()
    size = -1 if name is None else len(encoded)
    out = bytearray(4) + _HEAD.pack(head.api, head.version, head.correlation, size) + encoded
    if head.version in _flexible(head.api):
        out.append(0)
    return _write(request, head.version, out)


def write_response(api: Api, version: int, correlation: int, response: Message) -> bytearray:
    """A whole frame, length and header included."""
    out = bytearray(struct.pack(">ii", 0, correlation))
    if _long_head(api, version):
        out.append(0)
    return _write(response, version, out)


@functools.cache
def _flexible(api: int) -> schema.Versions:
    """The versions of an API that have tagged fields."""
    return _classes[api][0].made.SCHEMA.flexible


def _long_head(api: Api, version: int) -> bool:
    """Has a response's header tagged fields? That of ApiVersions never, so that anyone reads it."""
    return version in _flexible(api) and api != Api.API_VERSIONS


def _read(made: type[Record], version: int, frame: Bytes, start: int) -> Message:
    decode = _decoders.get((made, version))
    if decode is None:
        if version not in made.SCHEMA.versions:
            raise FormatError(f"there is no {made.__name__} of version {version}")
        decode = _decoders[made, version] = decoder(made, version)
    try:
        return decode(frame, start)
    except (FormatError, struct.error, IndexError) as error:
        text = str(error) if isinstance(error, FormatError) else "is cut"
        place = field_at(error.__traceback__) or "its body"
        raise FormatError(f"{made.__name__} v{version}: {place} {text}") from None


def _write(message: Record, version: int, out: bytearray) -> bytearray:
    made = type(message)
    encode = _encoders.get((made, version))
    if encode is None:
        if version not in made.SCHEMA.versions:
            raise TypeError(f"there is no {made.__name__} of version {version}")
        encode = _encoders[made, version] = encoder(made, version)
    try:
        encode(message, out)
    except (TypeError, ValueError, AttributeError, struct.error) as error:
        place = field_at(error.__traceback__)
        raise TypeError(f"{made.__name__} v{version}: {place}: {error}") from error
    struct.pack_into(">i", out, 0, len(out) - 4)
    return out
