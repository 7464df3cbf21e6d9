"""ApiVersions, Metadata, DescribeTopicPartitions, DescribeCluster and ListPartitionReassignments.

They tell a client which APIs, topics and nodes exist. The cluster has one node, so nothing is ever
reassigned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rota.broker.dispatch import Handler, HandlerContext, ServerRequest
from rota.broker.topics import MAX_TOPIC_PARTITIONS, NewTopic, Topic
from rota.engine.model.text import CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS, find_topic_name_problem
from rota.errors import Code, Refused
from rota.protocol.messages import (
    ZERO_UUID,
    Api,
    ApiVersionsResponse,
    DescribeClusterResponse,
    DescribeTopicPartitionsResponse,
    ListPartitionReassignmentsResponse,
    Message,
    MetadataResponse,
)

API_VERSIONS_LOWEST, API_VERSIONS_HIGHEST = 0, 4

#: What a client's library may be called, and its version.
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle_api_versions(parts: HandlerContext, call: ServerRequest) -> None:
    """Lists the APIs with their versions, and remembers what library the client uses."""
    request = call.request
    if call.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE_NAME.fullmatch(name) and _SOFTWARE_NAME.fullmatch(version)):
            return call.answer(refuse_api_versions(call, Code.INVALID_REQUEST))
        call.client.software = f"{name} {version}"
    keys = [
        _make_api_version(api, *versions)
        for api, versions in sorted(parts.advertised_versions.items())
    ]
    return call.answer(ApiVersionsResponse(error_code=Code.NONE, api_keys=keys))


def refuse_api_versions(_: ServerRequest, code: Code) -> Message:
    """A client that asks in a version unknown here is told the versions of this API (KIP-511)."""
    known = (
        [_make_api_version(Api.API_VERSIONS, API_VERSIONS_LOWEST, API_VERSIONS_HIGHEST)]
        if code is Code.UNSUPPORTED_VERSION
        else []
    )
    return ApiVersionsResponse(error_code=code, api_keys=known)


def _make_api_version(api: int, lowest: int, highest: int) -> Message:
    return ApiVersionsResponse.ApiVersion(api_key=api, min_version=lowest, max_version=highest)


_API_VERSIONS_HANDLERS = (
    Handler(
        api=Api.API_VERSIONS,
        min_version=API_VERSIONS_LOWEST,
        max_version=API_VERSIONS_HIGHEST,
        handle=handle_api_versions,
        error_response=refuse_api_versions,
    ),
)

#: The version from which topics may be asked for by id.
TOPIC_ID_VERSION = 12

#: So many partitions are described in one answer; Kafka's default.
MAX_DESCRIBED_PARTITIONS = 2_000

NO_LEADER = -1

#: So many topics are made by one request at most, as nobody else is served meanwhile.
MAX_AUTO_CREATED_TOPICS = 1_000


def handle_metadata(parts: HandlerContext, call: ServerRequest) -> None:
    """Describes the topics asked for; those that are missing are made, where that is wanted."""
    request = call.request
    if not all(_is_valid_request(call, each) for each in request.topics or ()):
        return call.answer(refuse_metadata(call, Code.INVALID_REQUEST))
    everything = request.topics is None or (call.version == 0 and not request.topics)
    if everything:
        topics = [_topic_metadata(parts, topic) for topic in parts.topics]
    else:
        topics = _describe_requested(parts, call)
    if call.version >= 8 and request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    asked = 8 <= call.version <= 10 and request.include_cluster_authorized_operations
    host, port = parts.address
    node = parts.config.node_id
    return call.answer(
        MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=node, host=host, port=port, rack=None
                )
            ],
            cluster_id=parts.topics.cluster_id,
            controller_id=node,
            topics=topics,
            cluster_authorized_operations=CLUSTER_OPERATIONS if asked else OPERATIONS_NOT_REQUESTED,
        )
    )


def _is_valid_request(call: ServerRequest, asked: Message) -> bool:
    """Ids have been in the schema for longer than they may be used."""
    by_id = call.version >= 10 and asked.topic_id != ZERO_UUID
    if call.version < TOPIC_ID_VERSION:
        return asked.name is not None and not by_id
    return asked.name is not None or by_id


def _describe_requested(parts: HandlerContext, call: ServerRequest) -> list[Message]:
    """By id if there is one id at least, else by name, as in Kafka; each topic once."""
    asked = call.request.topics
    ids = [each.topic_id for each in asked if call.version >= 10 and each.topic_id != ZERO_UUID]
    if ids:
        return [_describe_by_id(parts, each) for each in dict.fromkeys(ids)]
    wanted = call.version < 4 or call.request.allow_auto_topic_creation
    create = parts.config.auto_create_topics and wanted
    names = dict.fromkeys(each.name for each in asked if each.name is not None)
    refusals = _create_missing(parts, names, call.now) if create else {}
    return [_describe_by_name(parts, name, refusals.get(name)) for name in names]


def _describe_by_id(parts: HandlerContext, topic_id: bytes) -> Message:
    topic = parts.topics.get_by_id(topic_id)
    if topic is None:
        return _topic_metadata_error(Code.UNKNOWN_TOPIC_ID, None, topic_id)
    return _topic_metadata(parts, topic)


def _create_missing(parts: HandlerContext, names: Iterable[str], now: int) -> dict[str, Refused]:
    """Makes topics that are missing; gives those that were not made.

    Of very many only the first are made: clients ask again for the others, and come to them so.
    """
    count = parts.config.default_partitions
    most = max(min(MAX_AUTO_CREATED_TOPICS, MAX_TOPIC_PARTITIONS // count), 1)
    missing = [name for name in names if parts.topics.get(name) is None]
    refusals: dict[str, Refused] = {}
    if not missing:
        return refusals
    if CONSUMER_OFFSETS_TOPIC in missing:
        missing.remove(CONSUMER_OFFSETS_TOPIC)
        try:
            parts.topics.get_or_create_journal(now)
        except Refused as error:
            refusals[CONSUMER_OFFSETS_TOPIC] = error
    wanted = [NewTopic(name, count, {}) for name in missing[:most]]
    for each, outcome in zip(wanted, parts.topics.create_all(wanted, now), strict=True):
        if isinstance(outcome, Refused):
            refusals[each.name] = outcome
    return refusals


def _describe_by_name(parts: HandlerContext, name: str, refusal: Refused | None) -> Message:
    topic = parts.topics.get(name)
    if topic is not None:
        return _topic_metadata(parts, topic)
    if refusal is not None:
        return _topic_metadata_error(refusal.code, name)
    known = Code.UNKNOWN_TOPIC_OR_PARTITION if find_topic_name_problem(name) is None else None
    return _topic_metadata_error(known or Code.INVALID_TOPIC_EXCEPTION, name)


def _topic_metadata(parts: HandlerContext, topic: Topic) -> Message:
    node = parts.config.node_id
    partition = MetadataResponse.MetadataResponsePartition
    return MetadataResponse.MetadataResponseTopic(
        error_code=Code.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            partition(
                error_code=Code.NONE if log.offline is None else Code.LEADER_NOT_AVAILABLE,
                partition_index=number,
                leader_id=node if log.offline is None else NO_LEADER,
                leader_epoch=log.epochs.latest,
                replica_nodes=[node],
                isr_nodes=[node],
                offline_replicas=[] if log.offline is None else [node],
            )
            for number, log in enumerate(topic.logs)
        ],
    )


def _topic_metadata_error(code: Code, name: str | None, topic_id: bytes = ZERO_UUID) -> Message:
    return MetadataResponse.MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
    )


def refuse_metadata(call: ServerRequest, code: Code) -> Message:
    """Every topic asked for has the error; the whole answer too, from version 13 on."""
    topics = [
        _topic_metadata_error(
            code,
            each.name if each.name is not None or call.version >= TOPIC_ID_VERSION else "",
            each.topic_id if call.version >= 10 else ZERO_UUID,
        )
        for each in call.request.topics or ()
    ]
    return MetadataResponse(brokers=[], topics=topics, error_code=code)


def handle_describe_topic_partitions(parts: HandlerContext, call: ServerRequest) -> None:
    """Describes topics in the order of their names, some partitions at a time."""
    request = call.request
    cursor = request.cursor
    begin = cursor.topic_name if cursor is not None else ""
    everything = not request.topics
    names: Iterable[str] = (
        (topic.name for topic in parts.topics) if everything else (t.name for t in request.topics)
    )
    wanted = sorted({name for name in names if name >= begin})
    if cursor is not None and (
        cursor.partition_index < 0 or (not everything and begin not in wanted)
    ):
        return call.answer(refuse_describe_topic_partitions(call, Code.INVALID_REQUEST))
    left = max(min(MAX_DESCRIBED_PARTITIONS, request.response_partition_limit), 1)
    topics: list[Message] = []
    next_cursor = None
    for name in wanted:
        if left <= 0:
            next_cursor = _make_cursor(name, 0)
            break
        topic = parts.topics.get(name)
        if topic is None:
            if not everything:
                bad = find_topic_name_problem(name) is not None
                code = Code.INVALID_TOPIC_EXCEPTION if bad else Code.UNKNOWN_TOPIC_OR_PARTITION
                topics.append(_topic_description_error(name, code, TOPIC_OPERATIONS))
            continue
        first = cursor.partition_index if cursor is not None and name == begin else 0
        last = min(first + left, topic.partition_count)
        topics.append(_topic_description(parts, topic, range(first, last)))
        left -= max(last - first, 0)
        if last < topic.partition_count:
            next_cursor = _make_cursor(name, last)
            break
    return call.answer(DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor))


def _make_cursor(name: str, partition: int) -> Message:
    return DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=partition)


def _topic_description(parts: HandlerContext, topic: Topic, numbers: Iterable[int]) -> Message:
    node = parts.config.node_id
    partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
    return DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=Code.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            partition(
                error_code=Code.NONE if log.offline is None else Code.LEADER_NOT_AVAILABLE,
                partition_index=number,
                leader_id=node if log.offline is None else NO_LEADER,
                leader_epoch=log.epochs.latest,
                replica_nodes=[node],
                isr_nodes=[node],
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[] if log.offline is None else [node],
            )
            for number in numbers
            for log in (topic.logs[number],)
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _topic_description_error(name: str, code: Code, operations: int) -> Message:
    return DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=operations,
    )


def refuse_describe_topic_partitions(call: ServerRequest, code: Code) -> Message:
    """Every topic asked for has the error."""
    topics = [
        _topic_description_error(each.name, code, OPERATIONS_NOT_REQUESTED)
        for each in call.request.topics
    ]
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=None)


_METADATA_HANDLERS = (
    Handler(
        api=Api.METADATA,
        min_version=0,
        max_version=13,
        handle=handle_metadata,
        error_response=refuse_metadata,
    ),
    Handler(
        api=Api.DESCRIBE_TOPIC_PARTITIONS,
        min_version=0,
        max_version=0,
        handle=handle_describe_topic_partitions,
        error_response=refuse_describe_topic_partitions,
    ),
)

#: In the place of authorized operations, where nobody asked for them.
OPERATIONS_NOT_REQUESTED = -(2**31)

#: The kind of endpoints that a broker tells of; 2 would be controllers.
BROKER_ENDPOINTS = 1


def _operation_bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


# Operations by their numbers in Kafka's ACLs: 3 read, 4 write, 5 create, 6 delete, 7 alter,
# 8 describe, 9 cluster action, 10 describe configs, 11 alter configs, 12 idempotent write.
# Rota has no ACLs: who may connect may do all that there is for a kind of resource.
TOPIC_OPERATIONS = _operation_bits(3, 4, 5, 6, 7, 8, 10, 11)

CLUSTER_OPERATIONS = _operation_bits(5, 7, 8, 9, 10, 11, 12)


def handle_describe_cluster(parts: HandlerContext, call: ServerRequest) -> None:
    """Describes the one node."""
    request = call.request
    if call.version >= 1 and request.endpoint_type != BROKER_ENDPOINTS:
        # codes as in KIP-919: this endpoint is a broker's, or there is no such kind
        mismatch = request.endpoint_type == 2
        code = Code.MISMATCHED_ENDPOINT_TYPE if mismatch else Code.UNSUPPORTED_ENDPOINT_TYPE
        text = f"this is a broker, and endpoints of kind {request.endpoint_type} were asked for"
        return call.answer(_describe_cluster_error(code, text))
    host, port = parts.address
    node = parts.config.node_id
    asked = request.include_cluster_authorized_operations
    return call.answer(
        DescribeClusterResponse(
            error_code=Code.NONE,
            error_message=None,
            endpoint_type=BROKER_ENDPOINTS,
            cluster_id=parts.topics.cluster_id,
            controller_id=node,
            brokers=[
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=node, host=host, port=port, rack=None, is_fenced=False
                )
            ],
            cluster_authorized_operations=CLUSTER_OPERATIONS if asked else OPERATIONS_NOT_REQUESTED,
        )
    )


def refuse_describe_cluster(_: ServerRequest, code: Code) -> Message:
    """The whole answer has the error."""
    return _describe_cluster_error(code, None)


def _describe_cluster_error(code: Code, text: str | None) -> Message:
    return DescribeClusterResponse(
        error_code=code, error_message=text, cluster_id="", controller_id=-1, brokers=[]
    )


def handle_list_reassignments(_: HandlerContext, call: ServerRequest) -> None:
    """There are none."""
    call.answer(
        ListPartitionReassignmentsResponse(error_code=Code.NONE, error_message=None, topics=[])
    )


def refuse_list_reassignments(_: ServerRequest, code: Code) -> Message:
    """The whole answer has the error."""
    return ListPartitionReassignmentsResponse(error_code=code, error_message=None, topics=[])


_CLUSTER_HANDLERS = (
    Handler(
        api=Api.DESCRIBE_CLUSTER,
        min_version=0,
        max_version=2,
        handle=handle_describe_cluster,
        error_response=refuse_describe_cluster,
    ),
    Handler(
        api=Api.LIST_PARTITION_REASSIGNMENTS,
        min_version=0,
        max_version=0,
        handle=handle_list_reassignments,
        error_response=refuse_list_reassignments,
    ),
)

HANDLERS = (*_API_VERSIONS_HANDLERS, *_METADATA_HANDLERS, *_CLUSTER_HANDLERS)
