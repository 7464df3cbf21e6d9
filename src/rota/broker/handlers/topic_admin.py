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
    Api,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    Message,
)


def handle_create_topics(parts: HandlerContext, call: ServerRequest) -> None:
    """Makes topics, or says what would come of it."""
    asked = call.request.topics
    twice = {name for name, count in Counter(each.name for each in asked).items() if count > 1}
    once = [each for each in asked if each.name not in twice]
    try:
        _check_request_size(len(once), sum(_requested_count(parts, each) for each in once))
    except Refused as error:
        names = dict.fromkeys(each.name for each in asked)
        results = [_create_error(name, error) for name in names]
    else:
        results = _create_topics(parts, call, once)
        results += [
            _create_error(name, Refused(Code.INVALID_REQUEST, "the topic is in the request twice"))
            for name in sorted(twice)
        ]
    return call.answer(CreateTopicsResponse(topics=results))


def _check_request_size(topics: int, partitions: int) -> None:
    """Nobody else is served while they are made."""
    if topics > MAX_TOPICS_PER_REQUEST or partitions > MAX_TOPIC_PARTITIONS:
        raise Refused(
            Code.POLICY_VIOLATION,
            f"{topics} topics with {partitions} partitions: one request makes "
            f"{MAX_TOPICS_PER_REQUEST} topics "
            f"and {MAX_TOPIC_PARTITIONS} partitions at most",
        )


def _create_topics(
    parts: HandlerContext, call: ServerRequest, asked: Sequence[Message]
) -> list[Message]:
    checked = [_check_new_topic(parts, each) for each in asked]
    wanted = [each for each in checked if isinstance(each, NewTopic)]
    if call.request.validate_only:
        ids: dict[str, bytes | Refused] = {each.name: parts.topics.new_id() for each in wanted}
    else:
        outcomes = parts.topics.create_all(wanted, call.now)
        ids = {
            each.name: outcome if isinstance(outcome, Refused) else outcome.id
            for each, outcome in zip(wanted, outcomes, strict=True)
        }
    results = []
    for each, found in zip(asked, checked, strict=True):
        outcome = found if isinstance(found, Refused) else ids[found.name]
        if isinstance(outcome, Refused):
            results.append(_create_error(each.name, outcome))
        elif isinstance(found, NewTopic):
            results.append(_created_result(parts, found, outcome))
    return results


def _check_new_topic(parts: HandlerContext, asked: Message) -> NewTopic | Refused:
    try:
        parts.topics.check_name(asked.name)
        overrides = _requested_configs(asked)
        parts.topics.check_settings(overrides)
        return NewTopic(asked.name, _check_requested_count(parts, asked), overrides)
    except Refused as error:
        return error


def _requested_configs(asked: Message) -> dict[str, str]:
    empty = [each.name for each in asked.configs if each.value is None]
    if empty:
        raise Refused(Code.INVALID_CONFIG, f"{', '.join(empty)}: no value")
    return {each.name: each.value for each in asked.configs}


def _requested_count(parts: HandlerContext, asked: Message) -> int:
    """How many partitions the topic would get, if nothing is wrong with it."""
    if asked.assignments:
        return len(asked.assignments)
    if asked.num_partitions == -1:
        return parts.config.default_partitions
    return max(int(asked.num_partitions), 0)


def _check_requested_count(parts: HandlerContext, asked: Message) -> int:
    """How many partitions the topic gets; what it says of replicas must be true of one node."""
    if asked.assignments:
        if asked.replication_factor != -1 or asked.num_partitions != -1:
            raise Refused(
                Code.INVALID_REQUEST,
                "with partitions assigned by hand, num_partitions and replication_factor are -1",
            )
        numbers = [each.partition_index for each in asked.assignments]
        if sorted(numbers) != list(range(len(numbers))):
            raise Refused(
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"the assigned partitions are {sorted(numbers)}, not 0 to {len(numbers) - 1}",
            )
        for each in asked.assignments:
            _check_replicas(parts, each.broker_ids)
    elif asked.replication_factor < -1 or asked.replication_factor == 0:
        raise Refused(
            Code.INVALID_REPLICATION_FACTOR,
            f"the replication factor is 1 or -1, not {asked.replication_factor}",
        )
    elif asked.num_partitions < -1 or asked.num_partitions == 0:
        raise Refused(
            Code.INVALID_PARTITIONS, f"a topic cannot have {asked.num_partitions} partitions"
        )
    elif asked.replication_factor > 1:
        raise Refused(
            Code.INVALID_REPLICATION_FACTOR,
            f"the replication factor is {asked.replication_factor}, but there is one node",
        )
    return _requested_count(parts, asked)


def _check_replicas(parts: HandlerContext, replicas: list[int]) -> None:
    if replicas != [parts.config.node_id]:
        raise Refused(
            Code.INVALID_REPLICA_ASSIGNMENT,
            f"replicas on {replicas}, but the only node is {parts.config.node_id}",
        )


def _created_result(parts: HandlerContext, made: NewTopic, topic_id: bytes) -> Message:
    name, count, overrides = made
    config = CreateTopicsResponse.CreatableTopicConfigs
    return CreateTopicsResponse.CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=Code.NONE,
        error_message=None,
        topic_config_error_code=Code.NONE,
        num_partitions=count,
        replication_factor=1,
        configs=[
            config(
                name=each.key,
                value=overrides.get(each.key, each.value),  # as it was given, as Kafka does
                read_only=each.read_only,
                config_source=each.source,
                is_sensitive=False,
            )
            for each in topic_config_entries(overrides, parts.topics.defaults)
        ],
    )


def _create_error(name: str, error: Refused) -> Message:
    return CreateTopicsResponse.CreatableTopicResult(
        name=name,
        topic_id=ZERO_UUID,
        error_code=error.code,
        error_message=str(error),
        num_partitions=-1,
        replication_factor=-1,
        configs=[],
    )


def refuse_create_topics(call: ServerRequest, code: Code) -> Message:
    """Every topic has the error."""
    names = dict.fromkeys(each.name for each in call.request.topics)
    return CreateTopicsResponse(
        topics=[_create_error(name, _error_without_text(code)) for name in names]
    )


def handle_delete_topics(parts: HandlerContext, call: ServerRequest) -> None:
    """Deletes topics, by name or, from version 6 on, by id."""
    asked = _requested_names_and_ids(call)
    results = [
        _delete_error(
            name, topic_id, _invalid_request("a topic is deleted by its name or id: one of the two")
        )
        for name, topic_id in asked
        if (name is None) == (topic_id == ZERO_UUID)
    ]
    ids = Counter(topic_id for name, topic_id in asked if name is None and topic_id != ZERO_UUID)
    names = Counter(name for name, topic_id in asked if name is not None and topic_id == ZERO_UUID)
    found: dict[str, Topic] = {}
    for topic_id, count in ids.items():
        topic = parts.topics.get_by_id(topic_id)
        if count > 1:
            results.append(
                _delete_error(None, topic_id, _invalid_request("the id is in the request twice"))
            )
        elif topic is None:
            results.append(
                _delete_error(None, topic_id, _error_without_text(Code.UNKNOWN_TOPIC_ID))
            )
        else:
            found[topic.name] = topic
    for name, count in names.items():
        topic = parts.topics.get(name)
        if count > 1:
            results.append(
                _delete_error(name, ZERO_UUID, _invalid_request("the name is in the request twice"))
            )
        elif topic is None:
            results.append(
                _delete_error(name, ZERO_UUID, _error_without_text(Code.UNKNOWN_TOPIC_OR_PARTITION))
            )
        elif found.pop(name, None) is not None:
            text = "the topic is in the request by its id too"
            results.append(_delete_error(name, topic.id, _invalid_request(text)))
        else:
            found[name] = topic
    results += _delete_topics(parts, found.values(), call.now)
    call.answer(DeleteTopicsResponse(responses=results))


def _requested_names_and_ids(call: ServerRequest) -> list[tuple[str | None, bytes]]:
    """Names and ids, with nothing where there is none."""
    if call.version < 6:
        return [(name, ZERO_UUID) for name in call.request.topic_names]
    return [(each.name, each.topic_id) for each in call.request.topics]


def _delete_topics(parts: HandlerContext, topics: Collection[Topic], now: int) -> list[Message]:
    outcomes = parts.topics.delete_all([topic.name for topic in topics], now)
    return [
        _delete_error(topic.name, topic.id, outcome)
        if isinstance(outcome, Refused)
        else DeleteTopicsResponse.DeletableTopicResult(
            name=topic.name, topic_id=topic.id, error_code=Code.NONE, error_message=None
        )
        for topic, outcome in zip(topics, outcomes, strict=True)
    ]


def _delete_error(name: str | None, topic_id: bytes, error: Refused) -> Message:
    return DeleteTopicsResponse.DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error.code, error_message=str(error) or None
    )


def refuse_delete_topics(call: ServerRequest, code: Code) -> Message:
    """Every topic has the error."""
    return DeleteTopicsResponse(
        responses=[
            _delete_error(name, topic_id, _error_without_text(code))
            for name, topic_id in dict.fromkeys(_requested_names_and_ids(call))
        ]
    )


def handle_create_partitions(parts: HandlerContext, call: ServerRequest) -> None:
    """Gives topics more partitions, or says what would come of it."""
    asked = call.request.topics
    counts = Counter(each.name for each in asked)
    results = [
        _increase_result(name, _invalid_request("the topic is in the request twice"))
        for name, count in counts.items()
        if count > 1
    ]
    once = [each for each in asked if counts[each.name] == 1]
    problems = {each.name: _find_increase_error(parts, each) for each in once}
    wanted = {each.name: each.count for each in once if problems[each.name] is None}
    try:
        _check_request_size(
            0, sum(count - _current_count(parts, name) for name, count in wanted.items())
        )
    except Refused as error:
        problems |= dict.fromkeys(wanted, error)
    else:
        if not call.request.validate_only:
            outcomes = parts.topics.create_partitions_all(wanted, call.now)
            for name, outcome in zip(wanted, outcomes, strict=True):
                problems[name] = outcome if isinstance(outcome, Refused) else None
    results += [_increase_result(each.name, problems[each.name]) for each in once]
    call.answer(CreatePartitionsResponse(results=results))


def _current_count(parts: HandlerContext, name: str) -> int:
    topic = parts.topics.get(name)
    return 0 if topic is None else topic.partition_count


def _find_increase_error(parts: HandlerContext, asked: Message) -> Refused | None:
    """Why a topic cannot be given more partitions."""
    topic = parts.topics.get(asked.name)
    if topic is None:
        return _error_without_text(Code.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        check_partition_increase(topic, asked.count)
        if asked.assignments is not None:
            _check_assignments(parts, asked.assignments, asked.count - topic.partition_count)
    except Refused as error:
        return error
    return None


def _check_assignments(parts: HandlerContext, assigned: list[Message], more: int) -> None:
    if len(assigned) != more:
        raise Refused(
            Code.INVALID_REPLICA_ASSIGNMENT,
            f"{more} partitions more, but {len(assigned)} are assigned",
        )
    for each in assigned:
        _check_replicas(parts, each.broker_ids)


def _increase_result(name: str, error: Refused | None) -> Message:
    return CreatePartitionsResponse.CreatePartitionsTopicResult(
        name=name,
        error_code=Code.NONE if error is None else error.code,
        error_message=None if error is None else str(error) or None,
    )


def refuse_create_partitions(call: ServerRequest, code: Code) -> Message:
    """Every topic has the error."""
    names = dict.fromkeys(each.name for each in call.request.topics)
    return CreatePartitionsResponse(
        results=[_increase_result(name, _error_without_text(code)) for name in names]
    )


def _invalid_request(text: str) -> Refused:
    return Refused(Code.INVALID_REQUEST, text)


def _error_without_text(code: Code) -> Refused:
    """An error that needs no words beside its name."""
    return Refused(code, code.name.lower().replace("_", " "))


HANDLERS = (
    Handler(
        api=Api.CREATE_TOPICS,
        min_version=2,
        max_version=7,
        handle=handle_create_topics,
        error_response=refuse_create_topics,
    ),
    Handler(
        api=Api.DELETE_TOPICS,
        min_version=1,
        max_version=6,
        handle=handle_delete_topics,
        error_response=refuse_delete_topics,
    ),
    Handler(
        api=Api.CREATE_PARTITIONS,
        min_version=0,
        max_version=3,
        handle=handle_create_partitions,
        error_response=refuse_create_partitions,
    ),
)
