"""CreateTopics, DeleteTopics and CreatePartitions.

Each topic of a request succeeds or fails by itself. Where several errors apply, the one that
Kafka's controller reports wins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from rota.broker.config import topic_config_entries
from rota.broker.dispatch import Handler, HandlerContext, ServerRequest
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


def handle_create_topics(
    context: HandlerContext, request: ServerRequest[CreateTopicsRequest]
) -> None:
    """Creates topics, or only validates the request."""
    requested = request.body.topics
    twice = {name for name, count in Counter(each.name for each in requested).items() if count > 1}
    once = [each for each in requested if each.name not in twice]
    try:
        _check_request_size(len(once), sum(_requested_count(context, each) for each in once))
    except Refused as error:
        names = dict.fromkeys(each.name for each in requested)
        results = [_create_error(name, error) for name in names]
    else:
        results = _create_topics(context, request, once)
        results += [
            _create_error(name, _invalid_request("the topic is in the request twice"))
            for name in sorted(twice)
        ]
    request.respond(CreateTopicsResponse(topics=results))


def _check_request_size(topics: int, partitions: int) -> None:
    """No other request is served while the topics are created."""
    if topics > MAX_TOPICS_PER_REQUEST or partitions > MAX_TOPIC_PARTITIONS:
        raise Refused(
            Code.POLICY_VIOLATION,
            f"{topics} topics with {partitions} partitions: one request makes "
            f"{MAX_TOPICS_PER_REQUEST} topics "
            f"and {MAX_TOPIC_PARTITIONS} partitions at most",
        )


def _create_topics(
    context: HandlerContext,
    request: ServerRequest[CreateTopicsRequest],
    requested: Sequence[CreateTopicsRequest.CreatableTopic],
) -> list[CreateTopicsResponse.CreatableTopicResult]:
    checked = [_check_new_topic(context, each) for each in requested]
    wanted = [each for each in checked if isinstance(each, NewTopic)]
    if request.body.validate_only:
        ids: dict[str, bytes | Refused] = {each.name: context.topics.new_id() for each in wanted}
    else:
        outcomes = context.topics.create_all(wanted, request.now)
        ids = {
            each.name: outcome if isinstance(outcome, Refused) else outcome.id
            for each, outcome in zip(wanted, outcomes, strict=True)
        }
    results = []
    for each, found in zip(requested, checked, strict=True):
        outcome = found if isinstance(found, Refused) else ids[found.name]
        if isinstance(outcome, Refused):
            results.append(_create_error(each.name, outcome))
        elif isinstance(found, NewTopic):
            results.append(_created_result(context, found, outcome))
    return results


def _check_new_topic(
    context: HandlerContext, requested: CreateTopicsRequest.CreatableTopic
) -> NewTopic | Refused:
    try:
        context.topics.check_name(requested.name)
        overrides = _requested_configs(requested)
        context.topics.check_settings(overrides)
        return NewTopic(requested.name, _check_requested_count(context, requested), overrides)
    except Refused as error:
        return error


def _requested_configs(requested: CreateTopicsRequest.CreatableTopic) -> dict[str, str]:
    configs = {each.name: each.value for each in requested.configs if each.value is not None}
    empty = [each.name for each in requested.configs if each.value is None]
    if empty:
        raise Refused(Code.INVALID_CONFIG, f"{', '.join(empty)}: no value")
    return configs


def _requested_count(context: HandlerContext, requested: CreateTopicsRequest.CreatableTopic) -> int:
    """The number of partitions, without any check."""
    if requested.assignments:
        return len(requested.assignments)
    if requested.num_partitions == -1:
        return context.config.default_partitions
    return max(requested.num_partitions, 0)


def _check_requested_count(
    context: HandlerContext, requested: CreateTopicsRequest.CreatableTopic
) -> int:
    """The number of partitions, after a check that all replicas are on this node."""
    if requested.assignments:
        if requested.replication_factor != -1 or requested.num_partitions != -1:
            raise Refused(
                Code.INVALID_REQUEST,
                "with partitions assigned by hand, num_partitions and replication_factor are -1",
            )
        numbers = [each.partition_index for each in requested.assignments]
        if sorted(numbers) != list(range(len(numbers))):
            raise Refused(
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"the assigned partitions are {sorted(numbers)}, not 0 to {len(numbers) - 1}",
            )
        for each in requested.assignments:
            _check_replicas(context, each.broker_ids)
    elif requested.replication_factor < -1 or requested.replication_factor == 0:
        raise Refused(
            Code.INVALID_REPLICATION_FACTOR,
            f"the replication factor is 1 or -1, not {requested.replication_factor}",
        )
    elif requested.num_partitions < -1 or requested.num_partitions == 0:
        raise Refused(
            Code.INVALID_PARTITIONS, f"a topic cannot have {requested.num_partitions} partitions"
        )
    elif requested.replication_factor > 1:
        raise Refused(
            Code.INVALID_REPLICATION_FACTOR,
            f"the replication factor is {requested.replication_factor}, but there is one node",
        )
    return _requested_count(context, requested)


def _check_replicas(context: HandlerContext, replicas: list[int]) -> None:
    if replicas != [context.config.node_id]:
        raise Refused(
            Code.INVALID_REPLICA_ASSIGNMENT,
            f"replicas on {replicas}, but the only node is {context.config.node_id}",
        )


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
                name=each.key,
                value=overrides.get(each.key, each.value),  # unparsed, as in Kafka
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


def refuse_create_topics(
    request: ServerRequest[CreateTopicsRequest], code: Code
) -> CreateTopicsResponse:
    names = dict.fromkeys(each.name for each in request.body.topics)
    return CreateTopicsResponse(
        topics=[_create_error(name, _error_without_text(code)) for name in names]
    )


def handle_delete_topics(
    context: HandlerContext, request: ServerRequest[DeleteTopicsRequest]
) -> None:
    """Deletes topics, by name or, from version 6 on, by id."""
    results: list[DeleteTopicsResponse.DeletableTopicResult] = []
    found: dict[str, Topic] = {}
    for (name, topic_id), count in Counter(_requested_names_and_ids(request)).items():
        try:
            topic = _find_topic_to_delete(context, name, topic_id, count)
        except Refused as error:
            results.append(_delete_error(name, topic_id, error))
            continue
        if found.pop(topic.name, None) is not None:
            twice = _invalid_request("the topic is in the request by its name and by its id")
            results.append(_delete_error(topic.name, topic.id, twice))
        else:
            found[topic.name] = topic
    results += _delete_topics(context, found.values(), request.now)
    request.respond(DeleteTopicsResponse(responses=results))


def _find_topic_to_delete(
    context: HandlerContext, name: str | None, topic_id: bytes, count: int
) -> Topic:
    by_name = name is not None
    if by_name == (topic_id != ZERO_UUID):
        raise _invalid_request("a topic is deleted by its name or id: one of the two")
    if count > 1:
        raise _invalid_request(f"the {'name' if by_name else 'id'} is in the request twice")
    topic = context.topics.get(name) if name is not None else context.topics.get_by_id(topic_id)
    if topic is None:
        code = Code.UNKNOWN_TOPIC_OR_PARTITION if by_name else Code.UNKNOWN_TOPIC_ID
        raise _error_without_text(code)
    return topic


def _requested_names_and_ids(
    request: ServerRequest[DeleteTopicsRequest],
) -> list[tuple[str | None, bytes]]:
    """Names, None if missing, and ids, zero if missing."""
    if request.version < 6:
        return [(name, ZERO_UUID) for name in request.body.topic_names]
    return [(each.name, each.topic_id) for each in request.body.topics]


def _delete_topics(
    context: HandlerContext, topics: Collection[Topic], now: int
) -> list[DeleteTopicsResponse.DeletableTopicResult]:
    outcomes = context.topics.delete_all([topic.name for topic in topics], now)
    return [
        _delete_error(topic.name, topic.id, outcome)
        if isinstance(outcome, Refused)
        else DeleteTopicsResponse.DeletableTopicResult(name=topic.name, topic_id=topic.id)
        for topic, outcome in zip(topics, outcomes, strict=True)
    ]


def _delete_error(
    name: str | None, topic_id: bytes, error: Refused
) -> DeleteTopicsResponse.DeletableTopicResult:
    return DeleteTopicsResponse.DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error.code, error_message=str(error) or None
    )


def refuse_delete_topics(
    request: ServerRequest[DeleteTopicsRequest], code: Code
) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            _delete_error(name, topic_id, _error_without_text(code))
            for name, topic_id in dict.fromkeys(_requested_names_and_ids(request))
        ]
    )


def handle_create_partitions(
    context: HandlerContext, request: ServerRequest[CreatePartitionsRequest]
) -> None:
    """Adds partitions to topics, or only validates the request."""
    requested = request.body.topics
    counts = Counter(each.name for each in requested)
    results = [
        _increase_result(name, _invalid_request("the topic is in the request twice"))
        for name, count in counts.items()
        if count > 1
    ]
    once = [each for each in requested if counts[each.name] == 1]
    errors: dict[str, Refused | None] = {}
    added = 0
    for each in once:
        try:
            added += _check_increase(context, each)
            errors[each.name] = None
        except Refused as error:
            errors[each.name] = error
    wanted = {each.name: each.count for each in once if errors[each.name] is None}
    try:
        _check_request_size(0, added)
    except Refused as error:
        errors |= dict.fromkeys(wanted, error)
    else:
        if not request.body.validate_only:
            outcomes = context.topics.create_partitions_all(wanted, request.now)
            for name, outcome in zip(wanted, outcomes, strict=True):
                errors[name] = outcome if isinstance(outcome, Refused) else None
    results += [_increase_result(each.name, errors[each.name]) for each in once]
    request.respond(CreatePartitionsResponse(results=results))


def _check_increase(
    context: HandlerContext, requested: CreatePartitionsRequest.CreatePartitionsTopic
) -> int:
    """Returns how many partitions are added to a topic.

    :raises Refused: they cannot be added
    """
    topic = context.topics.get(requested.name)
    if topic is None:
        raise _error_without_text(Code.UNKNOWN_TOPIC_OR_PARTITION)
    check_partition_increase(topic, requested.count)
    added = requested.count - topic.partition_count
    if requested.assignments is not None:
        if len(requested.assignments) != added:
            raise Refused(
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"{added} partitions more, but {len(requested.assignments)} are assigned",
            )
        for each in requested.assignments:
            _check_replicas(context, each.broker_ids)
    return added


def _increase_result(
    name: str, error: Refused | None
) -> CreatePartitionsResponse.CreatePartitionsTopicResult:
    return CreatePartitionsResponse.CreatePartitionsTopicResult(
        name=name,
        error_code=Code.NONE if error is None else error.code,
        error_message=None if error is None else str(error) or None,
    )


def refuse_create_partitions(
    request: ServerRequest[CreatePartitionsRequest], code: Code
) -> CreatePartitionsResponse:
    names = dict.fromkeys(each.name for each in request.body.topics)
    return CreatePartitionsResponse(
        results=[_increase_result(name, _error_without_text(code)) for name in names]
    )


def _invalid_request(text: str) -> Refused:
    return Refused(Code.INVALID_REQUEST, text)


def _error_without_text(code: Code) -> Refused:
    return Refused(code, code.name.lower().replace("_", " "))


HANDLERS = (
    Handler(CreateTopicsRequest, 2, 7, handle_create_topics, refuse_create_topics),
    Handler(DeleteTopicsRequest, 1, 6, handle_delete_topics, refuse_delete_topics),
    Handler(CreatePartitionsRequest, 0, 3, handle_create_partitions, refuse_create_partitions),
)
