"""CreateTopics, DeleteTopics and CreatePartitions.

Each topic of a request succeeds or fails separately. Of several errors the response has the one
that Kafka's controller reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rota.broker.config import topic_config_entries
from rota.broker.dispatch import Handler, HandlerContext, ServerRequest
from rota.broker.handlers.configs import config_values
from rota.broker.topics import (
    MAX_TOPIC_PARTITIONS,
    MAX_TOPICS_PER_REQUEST,
    NewTopic,
    Topic,
    check_partition_increase,
)
from rota.errors import Code, Refused
from rota.protocol.messages import (
    ZERO_UUID,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

REPEATED_TOPIC = "the topic is in the request more than once"


def _handle_create_topics(request: ServerRequest[CreateTopicsRequest]) -> None:
    requested = request.body.topics
    counts = Counter(each.name for each in requested)
    once = [each for each in requested if counts[each.name] == 1]
    partitions = sum(_requested_count(request.context, each) for each in once)
    try:
        _check_request_size(len(once), partitions)
    except Refused as error:
        results = [_create_error(name, error) for name in counts]
    else:
        twice = sorted(name for name, count in counts.items() if count > 1)
        results = _create_topics(request, once)
        results += [_create_error(name, _invalid_request(REPEATED_TOPIC)) for name in twice]
    request.respond(CreateTopicsResponse(topics=results))


def _check_request_size(topics: int, partitions: int) -> None:
    """No other request is served while the topics are created."""
    if topics > MAX_TOPICS_PER_REQUEST or partitions > MAX_TOPIC_PARTITIONS:
        limits = f"{MAX_TOPICS_PER_REQUEST} topics and {MAX_TOPIC_PARTITIONS} partitions"
        text = f"{topics} topics with {partitions} partitions: one request creates at most {limits}"
        raise Refused(Code.POLICY_VIOLATION, text)


def _create_topics(
    request: ServerRequest[CreateTopicsRequest],
    requested: Sequence[CreateTopicsRequest.CreatableTopic],
) -> list[CreateTopicsResponse.CreatableTopicResult]:
    topics, now = request.context.topics, request.now
    checked = {each.name: _check_new_topic(request.context, each) for each in requested}
    valid = {name: each for name, each in checked.items() if isinstance(each, NewTopic)}
    outcomes: dict[str, Topic | Refused] = {}
    if not request.body.validate_only:
        outcomes = dict(zip(valid, topics.create_all(valid.values(), now), strict=True))
    results = []
    for name, result in checked.items():
        outcome = result if isinstance(result, Refused) else outcomes.get(name)
        if isinstance(outcome, Refused):
            results.append(_create_error(name, outcome))
        else:
            topic_id = topics.new_id() if outcome is None else outcome.id
            results.append(_created_result(request.context, valid[name], topic_id))
    return results


def _check_new_topic(
    context: HandlerContext, requested: CreateTopicsRequest.CreatableTopic
) -> NewTopic | Refused:
    try:
        context.topics.check_name(requested.name)
        overrides = config_values(requested.configs, Code.INVALID_CONFIG)
        context.topics.check_settings(overrides)
        return NewTopic(requested.name, _check_requested_count(context, requested), overrides)
    except Refused as error:
        return error


def _requested_count(context: HandlerContext, requested: CreateTopicsRequest.CreatableTopic) -> int:
    if requested.assignments:
        return len(requested.assignments)
    if requested.num_partitions == -1:
        return context.config.default_partitions
    return max(requested.num_partitions, 0)


def _check_requested_count(
    context: HandlerContext, requested: CreateTopicsRequest.CreatableTopic
) -> int:
    """Returns the number of partitions, after a check that all replicas are on this node."""
    if requested.assignments:
        if requested.replication_factor != -1 or requested.num_partitions != -1:
            text = "with assigned replicas, num_partitions and replication_factor must be -1"
            raise _invalid_request(text)
        numbers = [each.partition_index for each in requested.assignments]
        if sorted(numbers) != list(range(len(numbers))):
            text = f"the assigned partitions are {sorted(numbers)}, not 0 to {len(numbers) - 1}"
            raise Refused(Code.INVALID_REPLICA_ASSIGNMENT, text)
        for each in requested.assignments:
            _check_replicas(context, each.broker_ids)
    elif requested.replication_factor < -1 or requested.replication_factor == 0:
        text = f"the replication factor is 1 or -1, not {requested.replication_factor}"
        raise Refused(Code.INVALID_REPLICATION_FACTOR, text)
    elif requested.num_partitions < -1 or requested.num_partitions == 0:
        text = f"a topic cannot have {requested.num_partitions} partitions"
        raise Refused(Code.INVALID_PARTITIONS, text)
    elif requested.replication_factor > 1:
        text = f"the replication factor is {requested.replication_factor}, but there is one node"
        raise Refused(Code.INVALID_REPLICATION_FACTOR, text)
    return _requested_count(context, requested)


def _check_replicas(context: HandlerContext, replicas: list[int]) -> None:
    if replicas != [context.config.node_id]:
        text = f"replicas on {replicas}, but the only node is {context.config.node_id}"
        raise Refused(Code.INVALID_REPLICA_ASSIGNMENT, text)


def _created_result(
    context: HandlerContext, topic: NewTopic, topic_id: bytes
) -> CreateTopicsResponse.CreatableTopicResult:
    name, count, overrides = topic
    return CreateTopicsResponse.CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=count,
        replication_factor=1,
        configs=[
            CreateTopicsResponse.CreatableTopicConfigs(
                name=each.name,
                value=overrides.get(each.name, each.value),  # unparsed, as in Kafka
                read_only=each.read_only,
                config_source=each.source,
            )
            for each in topic_config_entries(overrides, context.topics.defaults)
        ],
    )


def _create_error(name: str, error: Refused) -> CreateTopicsResponse.CreatableTopicResult:
    return CreateTopicsResponse.CreatableTopicResult(
        name=name, error_code=error.code, error_message=str(error)
    )


def _refuse_create_topics(
    request: ServerRequest[CreateTopicsRequest], code: Code
) -> CreateTopicsResponse:
    names, error = dict.fromkeys(each.name for each in request.body.topics), _make_error(code)
    return CreateTopicsResponse(topics=[_create_error(name, error) for name in names])


def _handle_delete_topics(request: ServerRequest[DeleteTopicsRequest]) -> None:
    results: list[DeleteTopicsResponse.DeletableTopicResult] = []
    topics: dict[str, Topic] = {}
    for (name, topic_id), count in Counter(_requested_names_and_ids(request)).items():
        try:
            topic = _find_topic_to_delete(request.context, name, topic_id, count)
        except Refused as error:
            results.append(_delete_error(name, topic_id, error))
            continue
        if topics.pop(topic.name, None) is not None:
            twice = _invalid_request("the topic is in the request by its name and by its id")
            results.append(_delete_error(topic.name, topic.id, twice))
        else:
            topics[topic.name] = topic
    outcomes = request.context.topics.delete_all(list(topics), request.now)
    results += [
        _delete_error(topic.name, topic.id, outcome)
        if isinstance(outcome, Refused)
        else DeleteTopicsResponse.DeletableTopicResult(name=topic.name, topic_id=topic.id)
        for topic, outcome in zip(topics.values(), outcomes, strict=True)
    ]
    request.respond(DeleteTopicsResponse(responses=results))


def _find_topic_to_delete(
    context: HandlerContext, name: str | None, topic_id: bytes, count: int
) -> Topic:
    by_name = name is not None
    if by_name == (topic_id != ZERO_UUID):
        raise _invalid_request("a topic is deleted either by its name or by its id")
    if count > 1:
        raise _invalid_request(f"the {'name' if by_name else 'id'} is in the request twice")
    topic = context.topics.get(name) if name is not None else context.topics.get_by_id(topic_id)
    if topic is None:
        code = Code.UNKNOWN_TOPIC_OR_PARTITION if by_name else Code.UNKNOWN_TOPIC_ID
        raise _make_error(code)
    return topic


def _requested_names_and_ids(
    request: ServerRequest[DeleteTopicsRequest],
) -> list[tuple[str | None, bytes]]:
    """Returns names (None if missing) and ids (zero if missing)."""
    if request.version < 6:
        return [(name, ZERO_UUID) for name in request.body.topic_names]
    return [(each.name, each.topic_id) for each in request.body.topics]


def _delete_error(
    name: str | None, topic_id: bytes, error: Refused
) -> DeleteTopicsResponse.DeletableTopicResult:
    return DeleteTopicsResponse.DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error.code, error_message=str(error) or None
    )


def _refuse_delete_topics(
    request: ServerRequest[DeleteTopicsRequest], code: Code
) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            _delete_error(name, topic_id, _make_error(code))
            for name, topic_id in dict.fromkeys(_requested_names_and_ids(request))
        ]
    )


def _handle_create_partitions(request: ServerRequest[CreatePartitionsRequest]) -> None:
    requested = request.body.topics
    counts = Counter(each.name for each in requested)
    repeated = [name for name, count in counts.items() if count > 1]
    results = [_increase_result(name, _invalid_request(REPEATED_TOPIC)) for name in repeated]
    once = [each for each in requested if counts[each.name] == 1]
    errors: dict[str, Topic | Refused] = {}
    added = 0
    for each in once:
        try:
            added += _check_increase(request.context, each)
        except Refused as error:
            errors[each.name] = error
    increases = {each.name: each.count for each in once if each.name not in errors}
    try:
        _check_request_size(0, added)
    except Refused as error:
        errors |= dict.fromkeys(increases, error)
    else:
        if not request.body.validate_only:
            outcomes = request.context.topics.create_partitions_all(increases, request.now)
            errors |= zip(increases, outcomes, strict=True)
    results += [_increase_result(each.name, errors.get(each.name)) for each in once]
    request.respond(CreatePartitionsResponse(results=results))


def _check_increase(
    context: HandlerContext, requested: CreatePartitionsRequest.CreatePartitionsTopic
) -> int:
    """Returns the number of new partitions; raises Refused if they cannot be added."""
    topic = context.topics.get(requested.name)
    if topic is None:
        raise _make_error(Code.UNKNOWN_TOPIC_OR_PARTITION)
    check_partition_increase(topic, requested.count)
    added = requested.count - topic.partition_count
    if requested.assignments is not None:
        if len(requested.assignments) != added:
            text = f"{added} new partitions, but replicas for {len(requested.assignments)}"
            raise Refused(Code.INVALID_REPLICA_ASSIGNMENT, text)
        for each in requested.assignments:
            _check_replicas(context, each.broker_ids)
    return added


def _increase_result(
    name: str, outcome: Topic | Refused | None
) -> CreatePartitionsResponse.CreatePartitionsTopicResult:
    result = CreatePartitionsResponse.CreatePartitionsTopicResult(name=name, error_message=None)
    if isinstance(outcome, Refused):
        result.error_code, result.error_message = outcome.code, str(outcome) or None
    return result


def _refuse_create_partitions(
    request: ServerRequest[CreatePartitionsRequest], code: Code
) -> CreatePartitionsResponse:
    names, error = dict.fromkeys(each.name for each in request.body.topics), _make_error(code)
    return CreatePartitionsResponse(results=[_increase_result(name, error) for name in names])


def _invalid_request(text: str) -> Refused:
    return Refused(Code.INVALID_REQUEST, text)


def _make_error(code: Code) -> Refused:
    return Refused(code, code.name.lower().replace("_", " "))


HANDLERS = (
    Handler(CreateTopicsRequest, 2, 7, _handle_create_topics, _refuse_create_topics),
    Handler(DeleteTopicsRequest, 1, 6, _handle_delete_topics, _refuse_delete_topics),
    Handler(CreatePartitionsRequest, 0, 3, _handle_create_partitions, _refuse_create_partitions),
)
