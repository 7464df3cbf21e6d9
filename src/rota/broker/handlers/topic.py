"""CreateTopics, DeleteTopics and CreatePartitions.

Each topic of a request succeeds or fails by itself. Which error wins where several hold is as in
Kafka's controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from rota.broker.call import Call
from rota.broker.dispatch import Handler
from rota.broker.effective import of_topic
from rota.broker.part import Parts
from rota.broker.topic import MOST_PARTITIONS, MOST_TOPICS, Topic, Wanted, check_growth
from rota.errors import Code, Refused
from rota.wire.api import Api
from rota.wire.message import (
    NO_ID,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    Message,
)

# CreateTopics


def handle_create(parts: Parts, call: Call) -> None:
    """Makes topics, or says what would come of it."""
    asked = call.request.topics
    twice = {name for name, count in Counter(each.name for each in asked).items() if count > 1}
    once = [each for each in asked if each.name not in twice]
    try:
        _check_most(len(once), sum(_count(parts, each) for each in once))
    except Refused as error:
        names = dict.fromkeys(each.name for each in asked)
        results = [_uncreated(name, error) for name in names]
    else:
        results = _created(parts, call, once)
        results += [
            _uncreated(name, Refused(Code.INVALID_REQUEST, "the topic is in the request twice"))
            for name in sorted(twice)
        ]
    return call.answer(CreateTopicsResponse(topics=results))


def _check_most(topics: int, partitions: int) -> None:
    """Nobody else is served while they are made."""
    if topics > MOST_TOPICS or partitions > MOST_PARTITIONS:
        raise Refused(
            Code.POLICY_VIOLATION,
            f"{topics} topics with {partitions} partitions: one request makes {MOST_TOPICS} topics "
            f"and {MOST_PARTITIONS} partitions at most",
        )


def _created(parts: Parts, call: Call, asked: Sequence[Message]) -> list[Message]:
    checked = [_checked(parts, each) for each in asked]
    wanted = [each for each in checked if isinstance(each, Wanted)]
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
            results.append(_uncreated(each.name, outcome))
        elif isinstance(found, Wanted):
            results.append(_creation(parts, found, outcome))
    return results


def _checked(parts: Parts, asked: Message) -> Wanted | Refused:
    try:
        parts.topics.check_name(asked.name)
        overrides = _overrides(asked)
        parts.topics.check_settings(overrides)
        return Wanted(asked.name, _checked_count(parts, asked), overrides)
    except Refused as error:
        return error


def _overrides(asked: Message) -> dict[str, str]:
    empty = [each.name for each in asked.configs if each.value is None]
    if empty:
        raise Refused(Code.INVALID_CONFIG, f"{', '.join(empty)}: no value")
    return {each.name: each.value for each in asked.configs}


def _count(parts: Parts, asked: Message) -> int:
    """How many partitions the topic would get, if nothing is wrong with it."""
    if asked.assignments:
        return len(asked.assignments)
    if asked.num_partitions == -1:
        return parts.config.default_partitions
    return max(int(asked.num_partitions), 0)


def _checked_count(parts: Parts, asked: Message) -> int:
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
    return _count(parts, asked)


def _check_replicas(parts: Parts, replicas: list[int]) -> None:
    if replicas != [parts.config.node_id]:
        raise Refused(
            Code.INVALID_REPLICA_ASSIGNMENT,
            f"replicas on {replicas}, but the only node is {parts.config.node_id}",
        )


def _creation(parts: Parts, made: Wanted, topic_id: bytes) -> Message:
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
            for each in of_topic(overrides, parts.topics.defaults)
        ],
    )


def _uncreated(name: str, error: Refused) -> Message:
    return CreateTopicsResponse.CreatableTopicResult(
        name=name,
        topic_id=NO_ID,
        error_code=error.code,
        error_message=str(error),
        num_partitions=-1,
        replication_factor=-1,
        configs=[],
    )


def refuse_create(call: Call, code: Code) -> Message:
    """Every topic has the error."""
    names = dict.fromkeys(each.name for each in call.request.topics)
    return CreateTopicsResponse(topics=[_uncreated(name, _named(code)) for name in names])


# DeleteTopics


def handle_delete(parts: Parts, call: Call) -> None:
    """Deletes topics, by name or, from version 6 on, by id."""
    asked = _asked(call)
    results = [
        _undeleted(name, topic_id, _refused("a topic is deleted by its name or id: one of the two"))
        for name, topic_id in asked
        if (name is None) == (topic_id == NO_ID)
    ]
    ids = Counter(topic_id for name, topic_id in asked if name is None and topic_id != NO_ID)
    names = Counter(name for name, topic_id in asked if name is not None and topic_id == NO_ID)
    found: dict[str, Topic] = {}
    for topic_id, count in ids.items():
        topic = parts.topics.by_id(topic_id)
        if count > 1:
            results.append(_undeleted(None, topic_id, _refused("the id is in the request twice")))
        elif topic is None:
            results.append(_undeleted(None, topic_id, _named(Code.UNKNOWN_TOPIC_ID)))
        else:
            found[topic.name] = topic
    for name, count in names.items():
        topic = parts.topics.get(name)
        if count > 1:
            results.append(_undeleted(name, NO_ID, _refused("the name is in the request twice")))
        elif topic is None:
            results.append(_undeleted(name, NO_ID, _named(Code.UNKNOWN_TOPIC_OR_PARTITION)))
        elif found.pop(name, None) is not None:
            text = "the topic is in the request by its id too"
            results.append(_undeleted(name, topic.id, _refused(text)))
        else:
            found[name] = topic
    results += _deleted(parts, found.values(), call.now)
    call.answer(DeleteTopicsResponse(responses=results))


def _asked(call: Call) -> list[tuple[str | None, bytes]]:
    """Names and ids, with nothing where there is none."""
    if call.version < 6:
        return [(name, NO_ID) for name in call.request.topic_names]
    return [(each.name, each.topic_id) for each in call.request.topics]


def _deleted(parts: Parts, topics: Collection[Topic], now: int) -> list[Message]:
    outcomes = parts.topics.delete_all([topic.name for topic in topics], now)
    return [
        _undeleted(topic.name, topic.id, outcome)
        if isinstance(outcome, Refused)
        else DeleteTopicsResponse.DeletableTopicResult(
            name=topic.name, topic_id=topic.id, error_code=Code.NONE, error_message=None
        )
        for topic, outcome in zip(topics, outcomes, strict=True)
    ]


def _undeleted(name: str | None, topic_id: bytes, error: Refused) -> Message:
    return DeleteTopicsResponse.DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error.code, error_message=str(error) or None
    )


def refuse_delete(call: Call, code: Code) -> Message:
    """Every topic has the error."""
    return DeleteTopicsResponse(
        responses=[
            _undeleted(name, topic_id, _named(code))
            for name, topic_id in dict.fromkeys(_asked(call))
        ]
    )


# CreatePartitions


def handle_grow(parts: Parts, call: Call) -> None:
    """Gives topics more partitions, or says what would come of it."""
    asked = call.request.topics
    counts = Counter(each.name for each in asked)
    results = [
        _grown(name, _refused("the topic is in the request twice"))
        for name, count in counts.items()
        if count > 1
    ]
    once = [each for each in asked if counts[each.name] == 1]
    problems = {each.name: _ungrowable(parts, each) for each in once}
    wanted = {each.name: each.count for each in once if problems[each.name] is None}
    try:
        _check_most(0, sum(count - _partitions(parts, name) for name, count in wanted.items()))
    except Refused as error:
        problems |= dict.fromkeys(wanted, error)
    else:
        if not call.request.validate_only:
            outcomes = parts.topics.grow_all(wanted, call.now)
            for name, outcome in zip(wanted, outcomes, strict=True):
                problems[name] = outcome if isinstance(outcome, Refused) else None
    results += [_grown(each.name, problems[each.name]) for each in once]
    call.answer(CreatePartitionsResponse(results=results))


def _partitions(parts: Parts, name: str) -> int:
    topic = parts.topics.get(name)
    return 0 if topic is None else topic.partitions


def _ungrowable(parts: Parts, asked: Message) -> Refused | None:
    """Why a topic cannot be given more partitions."""
    topic = parts.topics.get(asked.name)
    if topic is None:
        return _named(Code.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        check_growth(topic, asked.count)
        if asked.assignments is not None:
            _check_assigned(parts, asked.assignments, asked.count - topic.partitions)
    except Refused as error:
        return error
    return None


def _check_assigned(parts: Parts, assigned: list[Message], more: int) -> None:
    if len(assigned) != more:
        raise Refused(
            Code.INVALID_REPLICA_ASSIGNMENT,
            f"{more} partitions more, but {len(assigned)} are assigned",
        )
    for each in assigned:
        _check_replicas(parts, each.broker_ids)


def _grown(name: str, error: Refused | None) -> Message:
    return CreatePartitionsResponse.CreatePartitionsTopicResult(
        name=name,
        error_code=Code.NONE if error is None else error.code,
        error_message=None if error is None else str(error) or None,
    )


def refuse_grow(call: Call, code: Code) -> Message:
    """Every topic has the error."""
    names = dict.fromkeys(each.name for each in call.request.topics)
    return CreatePartitionsResponse(results=[_grown(name, _named(code)) for name in names])


def _refused(text: str) -> Refused:
    return Refused(Code.INVALID_REQUEST, text)


def _named(code: Code) -> Refused:
    """An error that needs no words beside its name."""
    return Refused(code, code.name.lower().replace("_", " "))


HANDLERS = (
    Handler(api=Api.CREATE_TOPICS, lowest=2, highest=7, handle=handle_create, refuse=refuse_create),
    Handler(api=Api.DELETE_TOPICS, lowest=1, highest=6, handle=handle_delete, refuse=refuse_delete),
    Handler(api=Api.CREATE_PARTITIONS, lowest=0, highest=3, handle=handle_grow, refuse=refuse_grow),
)
