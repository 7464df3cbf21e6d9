"""ApiVersions, Metadata, DescribeTopicPartitions, DescribeCluster and ListPartitionReassignments.
The cluster has one node, so nothing is ever reassigned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

from rota.broker.dispatch import Handler, HandlerContext, ServerRequest
from rota.broker.storage.log import Log
from rota.broker.topics import MAX_TOPIC_PARTITIONS, NewTopic, Topic
from rota.engine.model.text import CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS, find_topic_name_problem
from rota.errors import Code, Refused
from rota.protocol.messages import (
    ZERO_UUID,
    Api,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    MetadataRequest,
    MetadataResponse,
)

API_VERSIONS_RANGE = (0, 4)
#: Allowed names and versions of a client's library.
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
TOPIC_ID_VERSION = 12  # metadata accepts topic ids from this version on
MAX_DESCRIBED_PARTITIONS = 2_000  # most partitions in a DescribeTopicPartitions response, as Kafka
#: Limit of topics that one Metadata request creates: meanwhile no other request is served.
MAX_AUTO_CREATED_TOPICS = 1_000
OPERATIONS_NOT_REQUESTED = -(2**31)
BROKER_ENDPOINTS = 1  # the endpoint type of brokers; 2 are controllers
PartitionT = TypeVar(
    "PartitionT",
    "MetadataResponse.MetadataResponsePartition",
    "DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition",
)


# Operations by their numbers in Kafka's ACLs: 3 read, 4 write, 5 create, 6 delete, 7 alter,
# 8 describe, 9 cluster action, 10 describe configs, 11 alter configs, 12 idempotent write.
# Rota has no ACLs: every client may do everything.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


def _handle_api_versions(request: ServerRequest[ApiVersionsRequest]) -> None:
    if request.version >= 3:
        name, version = request.body.client_software_name, request.body.client_software_version
        if not (_SOFTWARE_NAME.fullmatch(name) and _SOFTWARE_NAME.fullmatch(version)):
            return request.respond(refuse_api_versions(request, Code.INVALID_REQUEST))
        request.client.software = f"{name} {version}"
    keys = [
        ApiVersionsResponse.ApiVersion(api_key=api, min_version=low, max_version=high)
        for api, (low, high) in sorted(request.context.advertised_versions.items())
    ]
    return request.respond(ApiVersionsResponse(api_keys=keys))


def refuse_api_versions(_: object, code: Code) -> ApiVersionsResponse:
    """A client that asks in an unknown version gets the versions of this API (KIP-511)."""
    low, high = API_VERSIONS_RANGE
    own = ApiVersionsResponse.ApiVersion(
        api_key=Api.API_VERSIONS, min_version=low, max_version=high
    )
    keys = [own] if code is Code.UNSUPPORTED_VERSION else []
    return ApiVersionsResponse(error_code=code, api_keys=keys)


def _handle_metadata(request: ServerRequest[MetadataRequest]) -> None:
    context, body, version = request.context, request.body, request.version
    if not all(_is_valid_request(version, each) for each in body.topics or ()):
        return request.respond(_refuse_metadata(request, Code.INVALID_REQUEST))
    if body.topics is None or (version == 0 and not body.topics):
        topics = [_topic_metadata(context, topic) for topic in context.topics]
    else:
        topics = _describe_requested(request, body.topics)
    if version >= 8 and body.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    with_operations = 8 <= version <= 10 and body.include_cluster_authorized_operations
    host, port = context.address
    node = context.config.node_id
    return request.respond(
        MetadataResponse(
            brokers=[MetadataResponse.MetadataResponseBroker(node_id=node, host=host, port=port)],
            cluster_id=context.topics.cluster_id,
            controller_id=node,
            topics=topics,
            cluster_authorized_operations=CLUSTER_OPERATIONS
            if with_operations
            else OPERATIONS_NOT_REQUESTED,
        )
    )


def _is_valid_request(version: int, requested: MetadataRequest.MetadataRequestTopic) -> bool:
    """The schema has topic ids in older versions too, but clients may not use them there."""
    by_id = requested.topic_id != ZERO_UUID
    if version < TOPIC_ID_VERSION:
        return requested.name is not None and not by_id
    return requested.name is not None or by_id


def _describe_requested(
    request: ServerRequest[MetadataRequest],
    requested: Iterable[MetadataRequest.MetadataRequestTopic],
) -> list[MetadataResponse.MetadataResponseTopic]:
    """Finds topics by id if the request has an id, else by name, as in Kafka; each topic once."""
    context = request.context
    ids = [each.topic_id for each in requested if each.topic_id != ZERO_UUID]
    if ids:
        return [
            _topic_metadata_error(Code.UNKNOWN_TOPIC_ID, None, topic_id)
            if (topic := context.topics.get_by_id(topic_id)) is None
            else _topic_metadata(context, topic)
            for topic_id in dict.fromkeys(ids)
        ]
    create = request.version < 4 or request.body.allow_auto_topic_creation
    names = dict.fromkeys(each.name for each in requested if each.name is not None)
    refusals: dict[str, Refused] = {}
    if context.config.auto_create_topics and create:
        refusals = _create_missing(context, names, request.now)
    return [_describe_by_name(context, name, refusals.get(name)) for name in names]


def _create_missing(context: HandlerContext, names: Iterable[str], now: int) -> dict[str, Refused]:
    """Creates the first missing topics; clients ask again for the rest. Returns the errors."""
    count = context.config.default_partitions
    most = max(min(MAX_AUTO_CREATED_TOPICS, MAX_TOPIC_PARTITIONS // count), 1)
    missing = [name for name in names if context.topics.get(name) is None]
    refusals: dict[str, Refused] = {}
    if not missing:
        return refusals
    if CONSUMER_OFFSETS_TOPIC in missing:
        missing.remove(CONSUMER_OFFSETS_TOPIC)
        try:
            context.topics.get_or_create_journal(now)
        except Refused as error:
            refusals[CONSUMER_OFFSETS_TOPIC] = error
    new_topics = [NewTopic(name, count, {}) for name in missing[:most]]
    for each, outcome in zip(new_topics, context.topics.create_all(new_topics, now), strict=True):
        if isinstance(outcome, Refused):
            refusals[each.name] = outcome
    return refusals


def _describe_by_name(
    context: HandlerContext, name: str, refusal: Refused | None
) -> MetadataResponse.MetadataResponseTopic:
    if (topic := context.topics.get(name)) is not None:
        return _topic_metadata(context, topic)
    return _topic_metadata_error(refusal.code if refusal else _missing_topic_code(name), name)


def _missing_topic_code(name: str) -> Code:
    valid = find_topic_name_problem(name) is None
    return Code.UNKNOWN_TOPIC_OR_PARTITION if valid else Code.INVALID_TOPIC_EXCEPTION


def _topic_metadata(
    context: HandlerContext, topic: Topic
) -> MetadataResponse.MetadataResponseTopic:
    node = context.config.node_id
    partition_class = MetadataResponse.MetadataResponsePartition
    return MetadataResponse.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            _describe_partition(partition_class, node, number, log)
            for number, log in enumerate(topic.logs)
        ],
    )


def _describe_partition(
    partition_class: type[PartitionT], node: int, number: int, log: Log
) -> PartitionT:
    online = log.offline is None
    return partition_class(
        error_code=Code.NONE if online else Code.LEADER_NOT_AVAILABLE,
        partition_index=number,
        leader_id=node if online else -1,
        leader_epoch=log.epochs.latest,
        replica_nodes=[node],
        isr_nodes=[node],
        offline_replicas=[] if online else [node],
    )


def _topic_metadata_error(
    code: Code, name: str | None, topic_id: bytes = ZERO_UUID
) -> MetadataResponse.MetadataResponseTopic:
    return MetadataResponse.MetadataResponseTopic(
        error_code=code, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS
    )


def _refuse_metadata(request: ServerRequest[MetadataRequest], code: Code) -> MetadataResponse:
    """Every requested topic has the error; from version 13 on, the whole response too."""
    topics = [
        _topic_metadata_error(
            code,
            each.name if each.name is not None or request.version >= TOPIC_ID_VERSION else "",
            each.topic_id,
        )
        for each in request.body.topics or ()
    ]
    return MetadataResponse(topics=topics, error_code=code)


def _handle_describe_partitions(request: ServerRequest[DescribeTopicPartitionsRequest]) -> None:
    context, body = request.context, request.body
    cursor = body.cursor
    begin = cursor.topic_name if cursor is not None else ""
    everything = not body.topics
    names = {topic.name for topic in (context.topics if everything else body.topics)}
    remaining_names = sorted(name for name in names if name >= begin)
    if cursor is not None and (
        cursor.partition_index < 0 or (not everything and begin not in remaining_names)
    ):
        return request.respond(_refuse_describe_partitions(request, Code.INVALID_REQUEST))
    remaining = max(min(MAX_DESCRIBED_PARTITIONS, body.response_partition_limit), 1)
    response = DescribeTopicPartitionsResponse()
    for name in remaining_names:
        if remaining <= 0:
            response.next_cursor = _make_cursor(name, 0)
            break
        topic = context.topics.get(name)
        if topic is None:
            if not everything:
                code = _missing_topic_code(name)
                response.topics.append(_topic_description_error(name, code, TOPIC_OPERATIONS))
            continue
        first = cursor.partition_index if cursor is not None and name == begin else 0
        last = min(first + remaining, topic.partition_count)
        response.topics.append(_topic_description(context, topic, range(first, last)))
        remaining -= max(last - first, 0)
        if last < topic.partition_count:
            response.next_cursor = _make_cursor(name, last)
            break
    return request.respond(response)


def _make_cursor(name: str, partition: int) -> DescribeTopicPartitionsResponse.Cursor:
    return DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=partition)


def _topic_description(
    context: HandlerContext, topic: Topic, numbers: Iterable[int]
) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    node = context.config.node_id
    partition_class = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
    partitions = [
        _describe_partition(partition_class, node, number, topic.logs[number]) for number in numbers
    ]
    for each in partitions:
        each.eligible_leader_replicas = each.last_known_elr = []
    return DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _topic_description_error(
    name: str, code: Code, operations: int
) -> DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=operations,
    )


def _refuse_describe_partitions(
    request: ServerRequest[DescribeTopicPartitionsRequest], code: Code
) -> DescribeTopicPartitionsResponse:
    topics = [
        _topic_description_error(each.name, code, OPERATIONS_NOT_REQUESTED)
        for each in request.body.topics
    ]
    return DescribeTopicPartitionsResponse(topics=topics)


def _handle_describe_cluster(request: ServerRequest[DescribeClusterRequest]) -> None:
    context, body = request.context, request.body
    if request.version >= 1 and body.endpoint_type != BROKER_ENDPOINTS:
        # codes as in KIP-919: this endpoint is a broker's, or there is no such type
        mismatch = body.endpoint_type == 2
        code = Code.MISMATCHED_ENDPOINT_TYPE if mismatch else Code.UNSUPPORTED_ENDPOINT_TYPE
        text = f"this is a broker, but the request is for endpoints of type {body.endpoint_type}"
        return request.respond(DescribeClusterResponse(error_code=code, error_message=text))
    host, port = context.address
    node = context.config.node_id
    return request.respond(
        DescribeClusterResponse(
            endpoint_type=BROKER_ENDPOINTS,
            cluster_id=context.topics.cluster_id,
            controller_id=node,
            brokers=[
                DescribeClusterResponse.DescribeClusterBroker(broker_id=node, host=host, port=port)
            ],
            cluster_authorized_operations=CLUSTER_OPERATIONS
            if body.include_cluster_authorized_operations
            else OPERATIONS_NOT_REQUESTED,
        )
    )


def _handle_list_reassignments(request: ServerRequest[ListPartitionReassignmentsRequest]) -> None:
    request.respond(ListPartitionReassignmentsResponse(error_message=None))


HANDLERS = (
    Handler(ApiVersionsRequest, *API_VERSIONS_RANGE, _handle_api_versions, refuse_api_versions),
    Handler(MetadataRequest, 0, 13, _handle_metadata, _refuse_metadata),
    Handler(
        DescribeTopicPartitionsRequest,
        0,
        0,
        _handle_describe_partitions,
        _refuse_describe_partitions,
    ),
    Handler(DescribeClusterRequest, 0, 2, _handle_describe_cluster),
    Handler(ListPartitionReassignmentsRequest, 0, 0, _handle_list_reassignments),
)
