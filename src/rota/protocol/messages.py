"""Requests and responses: the API keys, the message classes, and how frames are read and written.

A message is an object with the fields of its schema, in snake case. The classes of structs inside a
message are attributes of the message's class. A UUID is 16 bytes, :data:`ZERO_UUID` if there is
none. The records in a message that was read are a view of its frame.
"""

from __future__ import annotations

import enum
import functools
import struct
from typing import Any, Final, NamedTuple, TypeAlias

from rota.engine.formats.buffer import Bytes
from rota.errors import FormatError
from rota.protocol import schemas
from rota.protocol.codec import (
    Decoder,
    Encoder,
    field_of_traceback,
    make_decoder,
    make_encoder,
    skip_tags,
)
from rota.protocol.schemas import LazyMessageClass, MessageBase


class Api(enum.IntEnum):
    """An API's key."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_TOPIC_PARTITIONS = 75


#: What Rota's client asks a Kafka, and Rota's broker does not serve.
CLIENT_ONLY_APIS: Final = frozenset({Api.CONSUMER_GROUP_DESCRIBE, Api.DESCRIBE_LOG_DIRS})

#: A request or response.
Message: TypeAlias = Any

MessageClassPair: TypeAlias = tuple[Any, Any]

#: The id of no topic.
ZERO_UUID: Final = schemas.ZERO_UUID

_classes_by_api: dict[int, tuple[LazyMessageClass, LazyMessageClass]] = {}


def _make_classes(api: Api) -> MessageClassPair:
    """The classes of an API's request and response."""
    name = "".join(word.capitalize() for word in api.name.split("_"))
    _classes_by_api[api] = (LazyMessageClass(f"{name}Request"), LazyMessageClass(f"{name}Response"))
    return _classes_by_api[api]


ProduceRequest, ProduceResponse = _make_classes(Api.PRODUCE)

FetchRequest, FetchResponse = _make_classes(Api.FETCH)

ListOffsetsRequest, ListOffsetsResponse = _make_classes(Api.LIST_OFFSETS)

MetadataRequest, MetadataResponse = _make_classes(Api.METADATA)

OffsetCommitRequest, OffsetCommitResponse = _make_classes(Api.OFFSET_COMMIT)

OffsetFetchRequest, OffsetFetchResponse = _make_classes(Api.OFFSET_FETCH)

FindCoordinatorRequest, FindCoordinatorResponse = _make_classes(Api.FIND_COORDINATOR)

JoinGroupRequest, JoinGroupResponse = _make_classes(Api.JOIN_GROUP)

HeartbeatRequest, HeartbeatResponse = _make_classes(Api.HEARTBEAT)

LeaveGroupRequest, LeaveGroupResponse = _make_classes(Api.LEAVE_GROUP)

SyncGroupRequest, SyncGroupResponse = _make_classes(Api.SYNC_GROUP)

DescribeGroupsRequest, DescribeGroupsResponse = _make_classes(Api.DESCRIBE_GROUPS)

ListGroupsRequest, ListGroupsResponse = _make_classes(Api.LIST_GROUPS)

SaslHandshakeRequest, SaslHandshakeResponse = _make_classes(Api.SASL_HANDSHAKE)

ApiVersionsRequest, ApiVersionsResponse = _make_classes(Api.API_VERSIONS)

CreateTopicsRequest, CreateTopicsResponse = _make_classes(Api.CREATE_TOPICS)

DeleteTopicsRequest, DeleteTopicsResponse = _make_classes(Api.DELETE_TOPICS)

DeleteRecordsRequest, DeleteRecordsResponse = _make_classes(Api.DELETE_RECORDS)

InitProducerIdRequest, InitProducerIdResponse = _make_classes(Api.INIT_PRODUCER_ID)

OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse = _make_classes(
    Api.OFFSET_FOR_LEADER_EPOCH
)

DescribeConfigsRequest, DescribeConfigsResponse = _make_classes(Api.DESCRIBE_CONFIGS)

AlterConfigsRequest, AlterConfigsResponse = _make_classes(Api.ALTER_CONFIGS)

DescribeLogDirsRequest, DescribeLogDirsResponse = _make_classes(Api.DESCRIBE_LOG_DIRS)

SaslAuthenticateRequest, SaslAuthenticateResponse = _make_classes(Api.SASL_AUTHENTICATE)

CreatePartitionsRequest, CreatePartitionsResponse = _make_classes(Api.CREATE_PARTITIONS)

DeleteGroupsRequest, DeleteGroupsResponse = _make_classes(Api.DELETE_GROUPS)

IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse = _make_classes(
    Api.INCREMENTAL_ALTER_CONFIGS
)

ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse = _make_classes(
    Api.LIST_PARTITION_REASSIGNMENTS
)

OffsetDeleteRequest, OffsetDeleteResponse = _make_classes(Api.OFFSET_DELETE)

DescribeClusterRequest, DescribeClusterResponse = _make_classes(Api.DESCRIBE_CLUSTER)

ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse = _make_classes(
    Api.CONSUMER_GROUP_DESCRIBE
)

DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse = _make_classes(
    Api.DESCRIBE_TOPIC_PARTITIONS
)

_REQUEST_HEADER = struct.Struct(">hhih")

schemas.require_schemas(made.name for pair in _classes_by_api.values() for made in pair)

_decoders: dict[tuple[type[MessageBase], int], Decoder] = {}

_encoders: dict[tuple[type[MessageBase], int], Encoder] = {}


class RequestHeader(NamedTuple):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    #: Bytes up to the body.
    size: int


def supported_versions(api: Api) -> schemas.Versions:
    """The versions of an API that can be encoded and decoded."""
    return _classes_by_api[api][0].message_class.SCHEMA.versions


def read_request_header(frame: Bytes) -> RequestHeader:
    """The header of a request, whatever its API and version.

    :raises FormatError: it is cut
    """
    if len(frame) < _REQUEST_HEADER.size:
        raise FormatError(
            f"a request's header has {_REQUEST_HEADER.size} bytes at least, not {len(frame)}"
        )
    api, version, correlation, length = _REQUEST_HEADER.unpack_from(frame)
    size = _REQUEST_HEADER.size + max(length, 0)
    if length < -1 or size > len(frame):
        raise FormatError(f"its client id is said to have {length} bytes")
    client_id = None if length < 0 else str(frame[_REQUEST_HEADER.size : size], "utf-8", "replace")
    if api in _classes_by_api and version in _flexible_versions(api):
        try:
            tags = frame[size]
            size = skip_tags(frame, size + 1, len(frame), tags) if tags else size + 1
        except (FormatError, IndexError):
            raise FormatError("the tagged fields of its header are cut") from None
    return RequestHeader(api, version, correlation, client_id, size)


def read_request(api: Api, version: int, frame: Bytes, start: int) -> Message:
    """A request's body, from a position of its frame on.

    :raises FormatError: it does not follow its schema, or something is left behind it
    """
    return _decode_message(_classes_by_api[api][0].message_class, version, frame, start)


def read_response(api: Api, version: int, frame: Bytes) -> tuple[int, Message]:
    """The correlation id and the body of a response.

    :raises FormatError: it does not follow its schema, or something is left behind it
    """
    try:
        correlation = int.from_bytes(frame[:4], "big", signed=True)
        start = (
            skip_tags(frame, 5, len(frame), frame[4])
            if _has_tagged_response_header(api, version)
            else 4
        )
    except (FormatError, IndexError):
        raise FormatError("a response's header is cut") from None
    return correlation, _decode_message(
        _classes_by_api[api][1].message_class, version, frame, start
    )


def write_request(head: RequestHeader, request: Message) -> bytearray:
    """A whole frame, length and header included; the header's size is not looked at."""
    name = head.client_id
    encoded = b"" if name is None else name.encode()
    size = -1 if name is None else len(encoded)
    out = (
        bytearray(4)
        + _REQUEST_HEADER.pack(head.api_key, head.api_version, head.correlation_id, size)
        + encoded
    )
    if head.api_version in _flexible_versions(head.api_key):
        out.append(0)
    return _encode_message(request, head.api_version, out)


def write_response(api: Api, version: int, correlation: int, response: Message) -> bytearray:
    """A whole frame, length and header included."""
    out = bytearray(struct.pack(">ii", 0, correlation))
    if _has_tagged_response_header(api, version):
        out.append(0)
    return _encode_message(response, version, out)


@functools.cache
def _flexible_versions(api: int) -> schemas.Versions:
    """The versions of an API that have tagged fields."""
    return _classes_by_api[api][0].message_class.SCHEMA.flexible


def _has_tagged_response_header(api: Api, version: int) -> bool:
    """Whether a response's header has tagged fields.

    That of ApiVersions never has, so that any client can read it.
    """
    return version in _flexible_versions(api) and api != Api.API_VERSIONS


def _decode_message(made: type[MessageBase], version: int, frame: Bytes, start: int) -> Message:
    decode = _decoders.get((made, version))
    if decode is None:
        if version not in made.SCHEMA.versions:
            raise FormatError(f"there is no {made.__name__} of version {version}")
        decode = _decoders[made, version] = make_decoder(made, version)
    try:
        return decode(frame, start)
    except (FormatError, struct.error, IndexError) as error:
        text = str(error) if isinstance(error, FormatError) else "is cut"
        place = field_of_traceback(error.__traceback__) or "its body"
        raise FormatError(f"{made.__name__} v{version}: {place} {text}") from None


def _encode_message(message: MessageBase, version: int, out: bytearray) -> bytearray:
    made = type(message)
    encode = _encoders.get((made, version))
    if encode is None:
        if version not in made.SCHEMA.versions:
            raise TypeError(f"there is no {made.__name__} of version {version}")
        encode = _encoders[made, version] = make_encoder(made, version)
    try:
        encode(message, out)
    except (TypeError, ValueError, AttributeError, struct.error) as error:
        place = field_of_traceback(error.__traceback__)
        raise TypeError(f"{made.__name__} v{version}: {place}: {error}") from error
    struct.pack_into(">i", out, 0, len(out) - 4)
    return out
