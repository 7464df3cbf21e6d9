"""The only door to the library that reads and writes API messages."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl

from rota.errors import FormatError
from rota.formats.buffer import Bytes
from rota.wire.api import Api

Message: TypeAlias = Any
"""A request or response: fields by their names in Kafka's schemas, in snake case."""

_HEAD = struct.Struct(">hhih")
_MODULES = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)


def _class(name: str) -> Any:  # noqa: ANN401 the library's classes are made at run time
    return next(getattr(module, name) for module in _MODULES if hasattr(module, name))


ProduceRequest: Any = _class("ProduceRequest")
ProduceResponse: Any = _class("ProduceResponse")
FetchRequest: Any = _class("FetchRequest")
FetchResponse: Any = _class("FetchResponse")
ListOffsetsRequest: Any = _class("ListOffsetsRequest")
ListOffsetsResponse: Any = _class("ListOffsetsResponse")
MetadataRequest: Any = _class("MetadataRequest")
MetadataResponse: Any = _class("MetadataResponse")
OffsetCommitRequest: Any = _class("OffsetCommitRequest")
OffsetCommitResponse: Any = _class("OffsetCommitResponse")
OffsetFetchRequest: Any = _class("OffsetFetchRequest")
OffsetFetchResponse: Any = _class("OffsetFetchResponse")
FindCoordinatorRequest: Any = _class("FindCoordinatorRequest")
FindCoordinatorResponse: Any = _class("FindCoordinatorResponse")
JoinGroupRequest: Any = _class("JoinGroupRequest")
JoinGroupResponse: Any = _class("JoinGroupResponse")
HeartbeatRequest: Any = _class("HeartbeatRequest")
HeartbeatResponse: Any = _class("HeartbeatResponse")
LeaveGroupRequest: Any = _class("LeaveGroupRequest")
LeaveGroupResponse: Any = _class("LeaveGroupResponse")
SyncGroupRequest: Any = _class("SyncGroupRequest")
SyncGroupResponse: Any = _class("SyncGroupResponse")
DescribeGroupsRequest: Any = _class("DescribeGroupsRequest")
DescribeGroupsResponse: Any = _class("DescribeGroupsResponse")
ListGroupsRequest: Any = _class("ListGroupsRequest")
ListGroupsResponse: Any = _class("ListGroupsResponse")
SaslHandshakeRequest: Any = _class("SaslHandshakeRequest")
SaslHandshakeResponse: Any = _class("SaslHandshakeResponse")
ApiVersionsRequest: Any = _class("ApiVersionsRequest")
ApiVersionsResponse: Any = _class("ApiVersionsResponse")
CreateTopicsRequest: Any = _class("CreateTopicsRequest")
CreateTopicsResponse: Any = _class("CreateTopicsResponse")
DeleteTopicsRequest: Any = _class("DeleteTopicsRequest")
DeleteTopicsResponse: Any = _class("DeleteTopicsResponse")
DeleteRecordsRequest: Any = _class("DeleteRecordsRequest")
DeleteRecordsResponse: Any = _class("DeleteRecordsResponse")
InitProducerIdRequest: Any = _class("InitProducerIdRequest")
InitProducerIdResponse: Any = _class("InitProducerIdResponse")
OffsetForLeaderEpochRequest: Any = _class("OffsetForLeaderEpochRequest")
OffsetForLeaderEpochResponse: Any = _class("OffsetForLeaderEpochResponse")
DescribeConfigsRequest: Any = _class("DescribeConfigsRequest")
DescribeConfigsResponse: Any = _class("DescribeConfigsResponse")
SaslAuthenticateRequest: Any = _class("SaslAuthenticateRequest")
SaslAuthenticateResponse: Any = _class("SaslAuthenticateResponse")
CreatePartitionsRequest: Any = _class("CreatePartitionsRequest")
CreatePartitionsResponse: Any = _class("CreatePartitionsResponse")
DeleteGroupsRequest: Any = _class("DeleteGroupsRequest")
DeleteGroupsResponse: Any = _class("DeleteGroupsResponse")
IncrementalAlterConfigsRequest: Any = _class("IncrementalAlterConfigsRequest")
IncrementalAlterConfigsResponse: Any = _class("IncrementalAlterConfigsResponse")
ListPartitionReassignmentsRequest: Any = _class("ListPartitionReassignmentsRequest")
ListPartitionReassignmentsResponse: Any = _class("ListPartitionReassignmentsResponse")
OffsetDeleteRequest: Any = _class("OffsetDeleteRequest")
OffsetDeleteResponse: Any = _class("OffsetDeleteResponse")
DescribeClusterRequest: Any = _class("DescribeClusterRequest")
DescribeClusterResponse: Any = _class("DescribeClusterResponse")
DescribeTopicPartitionsRequest: Any = _class("DescribeTopicPartitionsRequest")
DescribeTopicPartitionsResponse: Any = _class("DescribeTopicPartitionsResponse")

_REQUESTS: dict[Api, Any] = {
    Api.PRODUCE: ProduceRequest,
    Api.FETCH: FetchRequest,
    Api.LIST_OFFSETS: ListOffsetsRequest,
    Api.METADATA: MetadataRequest,
    Api.OFFSET_COMMIT: OffsetCommitRequest,
    Api.OFFSET_FETCH: OffsetFetchRequest,
    Api.FIND_COORDINATOR: FindCoordinatorRequest,
    Api.JOIN_GROUP: JoinGroupRequest,
    Api.HEARTBEAT: HeartbeatRequest,
    Api.LEAVE_GROUP: LeaveGroupRequest,
    Api.SYNC_GROUP: SyncGroupRequest,
    Api.DESCRIBE_GROUPS: DescribeGroupsRequest,
    Api.LIST_GROUPS: ListGroupsRequest,
    Api.SASL_HANDSHAKE: SaslHandshakeRequest,
    Api.API_VERSIONS: ApiVersionsRequest,
    Api.CREATE_TOPICS: CreateTopicsRequest,
    Api.DELETE_TOPICS: DeleteTopicsRequest,
    Api.DELETE_RECORDS: DeleteRecordsRequest,
    Api.INIT_PRODUCER_ID: InitProducerIdRequest,
    Api.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochRequest,
    Api.DESCRIBE_CONFIGS: DescribeConfigsRequest,
    Api.SASL_AUTHENTICATE: SaslAuthenticateRequest,
    Api.CREATE_PARTITIONS: CreatePartitionsRequest,
    Api.DELETE_GROUPS: DeleteGroupsRequest,
    Api.INCREMENTAL_ALTER_CONFIGS: IncrementalAlterConfigsRequest,
    Api.LIST_PARTITION_REASSIGNMENTS: ListPartitionReassignmentsRequest,
    Api.OFFSET_DELETE: OffsetDeleteRequest,
    Api.DESCRIBE_CLUSTER: DescribeClusterRequest,
    Api.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitionsRequest,
}


@dataclass(frozen=True, slots=True)
class Head:
    """The header of a request."""

    api: int
    version: int
    correlation: int
    client_id: str | None
    size: int
    """Bytes up to the body."""


def read_head(frame: Bytes) -> Head:
    """The header of a request, whatever its API and version.

    :raises FormatError: it is cut
    """
    if len(frame) < _HEAD.size:
        raise FormatError(f"a request's header needs {_HEAD.size} bytes, there are {len(frame)}")
    api, version, correlation, length = _HEAD.unpack_from(frame)
    size = _HEAD.size + max(length, 0)
    if length < -1 or size > len(frame):
        raise FormatError(f"a client id of {length} bytes in a frame of {len(frame)}")
    try:
        client_id = None if length < 0 else str(frame[_HEAD.size : size], "utf-8")
    except UnicodeDecodeError:
        raise FormatError("the client id is no UTF-8") from None
    request = _REQUESTS.get(api)
    if request is not None and request.flexible_version_q(version):
        size = _skip_tags(frame, size)
    return Head(api, version, correlation, client_id, size)


def _skip_tags(frame: Bytes, position: int) -> int:
    count, position = _varint(frame, position)
    for _ in range(count):
        _, position = _varint(frame, position)
        size, position = _varint(frame, position)
        position += size
    if position > len(frame):
        raise FormatError("the header's tagged fields are cut")
    return position


def _varint(frame: Bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in (0, 7, 14, 21, 28):
        if position >= len(frame):
            break
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise FormatError("a number of the header is cut or too long")


def read_request(api: Api, version: int, frame: Bytes, start: int) -> Message:
    """A request's body, from a position of its frame on.

    :raises FormatError: it does not follow its schema, or something is left behind it
    """
    try:
        return _REQUESTS[api].decode(memoryview(frame)[start:], version=version)
    except (ValueError, IndexError, struct.error, AssertionError) as error:
        raise FormatError(f"{api.name} v{version}: {error}") from None


def write_response(
    api: Api,  # noqa: ARG001
    version: int,
    correlation: int,
    response: Message,
) -> bytes:
    """A whole frame, length and header included."""
    response.API_VERSION = version
    response.with_header(correlation)
    return bytes(response.encode(header=True, framed=True))
