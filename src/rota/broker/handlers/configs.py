"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs.

Topics have configs of their own. The broker's configs are set at its start and cannot be altered.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TypeAlias, TypeVar, assert_never

from rota.broker.config import ConfigEntry, broker_config_entries, topic_config_entries
from rota.broker.dispatch import Handler, HandlerContext, ServerRequest
from rota.broker.topics import Topic, find_topic
from rota.engine.model.config import TOPIC_KEYS, ConfigType, format_config_value
from rota.engine.model.text import find_topic_name_problem
from rota.errors import Code, Refused
from rota.protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

#: Resource types. Rota has no configs for the last three.
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

MAX_VALUE_LENGTH = 32_767
RequestedConfigs: TypeAlias = "DescribeConfigsRequest.DescribeConfigsResource"
AlteredResource: TypeAlias = "IncrementalAlterConfigsRequest.AlterConfigsResource"
AlteredConfig: TypeAlias = "IncrementalAlterConfigsRequest.AlterableConfig"
AlterResponseT = TypeVar("AlterResponseT", AlterConfigsResponse, IncrementalAlterConfigsResponse)


class AlterOperation(enum.IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def _handle_describe_configs(request: ServerRequest[DescribeConfigsRequest]) -> None:
    results = [_describe_resource(request, each) for each in request.body.resources]
    request.respond(DescribeConfigsResponse(results=results))


def _describe_resource(
    request: ServerRequest[DescribeConfigsRequest], resource: RequestedConfigs
) -> DescribeConfigsResponse.DescribeConfigsResult:
    try:
        entries = list(_resource_entries(request.context, resource))
    except Refused as error:
        return _describe_result(resource, error.code, str(error))
    keys = resource.configuration_keys
    result = _describe_result(resource, Code.NONE, "")
    result.configs = [
        _entry_result(request, each) for each in entries if not keys or each.name in keys
    ]
    return result


def _resource_entries(context: HandlerContext, resource: RequestedConfigs) -> Iterator[ConfigEntry]:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        topic = _find_valid_topic(context, name)
        return topic_config_entries(topic.overrides, context.topics.defaults)
    if resource.resource_type == BROKER:
        if name == "":  # the dynamic configs of all brokers, which Rota does not have
            return iter(())
        _check_broker_id(context, name)
        return broker_config_entries(context.config, context.groups.config, context.topics.defaults)
    raise _unsupported_resource(resource.resource_type)


def _entry_result(
    request: ServerRequest[DescribeConfigsRequest], entry: ConfigEntry
) -> DescribeConfigsResponse.DescribeConfigsResourceResult:
    documented = request.version >= 3 and request.body.include_documentation
    return DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        synonyms=[
            DescribeConfigsResponse.DescribeConfigsSynonym(
                name=each.name, value=each.value, source=each.source
            )
            for each in entry.synonyms
            if request.body.include_synonyms
        ],
        config_type=entry.key.type,
        documentation=(entry.key.description or None) if documented else None,
    )


def _describe_result(
    resource: RequestedConfigs, code: Code, text: str | None
) -> DescribeConfigsResponse.DescribeConfigsResult:
    return DescribeConfigsResponse.DescribeConfigsResult(
        error_code=code,
        error_message=text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _refuse_describe_configs(
    request: ServerRequest[DescribeConfigsRequest], code: Code
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe_result(each, code, None) for each in request.body.resources]
    )


def _handle_incremental_alter(request: ServerRequest[IncrementalAlterConfigsRequest]) -> None:
    resources = request.body.resources
    errors = _alter_topics(request, resources)
    request.respond(_alter_response(IncrementalAlterConfigsResponse, resources, errors))


def _refuse_incremental_alter(
    request: ServerRequest[IncrementalAlterConfigsRequest], code: Code
) -> IncrementalAlterConfigsResponse:
    errors = repeat(Refused(code, code.name))
    return _alter_response(IncrementalAlterConfigsResponse, request.body.resources, errors)


def _handle_alter_configs(request: ServerRequest[AlterConfigsRequest]) -> None:
    """Replaces the configs of topics: a config that is not in the request gets its default."""
    resources = [
        IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[
                IncrementalAlterConfigsRequest.AlterableConfig(
                    name=each.name, config_operation=AlterOperation.SET, value=each.value
                )
                for each in resource.configs
            ],
        )
        for resource in request.body.resources
    ]
    errors = _alter_topics(request, resources, replace=True)
    request.respond(_alter_response(AlterConfigsResponse, resources, errors))


def _refuse_alter_configs(
    request: ServerRequest[AlterConfigsRequest], code: Code
) -> AlterConfigsResponse:
    errors = repeat(Refused(code, code.name))
    return _alter_response(AlterConfigsResponse, request.body.resources, errors)


def _alter_response(
    response_class: type[AlterResponseT],
    resources: Sequence[AlteredResource | AlterConfigsRequest.AlterConfigsResource],
    errors: Iterable[Refused | None],
) -> AlterResponseT:
    results = [
        response_class.AlterConfigsResourceResponse(
            error_code=Code.NONE if error is None else error.code,
            error_message=None if error is None else str(error),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, error in zip(resources, errors, strict=False)
    ]
    return response_class(responses=results)


def _alter_topics(
    request: ServerRequest[IncrementalAlterConfigsRequest] | ServerRequest[AlterConfigsRequest],
    resources: Sequence[AlteredResource],
    *,
    replace: bool = False,
) -> list[Refused | None]:
    context = request.context
    counts = Counter((each.resource_type, each.resource_name) for each in resources)
    altered: dict[str, Mapping[str, str]] = {}
    errors: list[Refused | None] = []
    for each in resources:
        try:
            count = counts[each.resource_type, each.resource_name]
            overrides = _new_overrides(context, each, count, replace=replace)
        except Refused as error:
            errors.append(error)
            continue
        errors.append(None)
        if overrides is not None and not request.body.validate_only:
            altered[each.resource_name] = overrides
    outcomes = dict(zip(altered, context.topics.configure_all(altered), strict=True))
    for number, each in enumerate(resources):
        outcome = outcomes.get(each.resource_name) if each.resource_type == TOPIC else None
        if isinstance(outcome, Refused):
            errors[number] = outcome
    return errors


def _new_overrides(
    context: HandlerContext, resource: AlteredResource, count: int, *, replace: bool
) -> dict[str, str] | None:
    """Returns the configs that a topic will have; None if nothing changes."""
    name = resource.resource_name
    if count > 1:
        raise Refused(Code.INVALID_REQUEST, f"{name!r} is in the request {count} times")
    keys = [each.name for each in resource.configs]
    if len(set(keys)) < len(keys):
        raise Refused(Code.INVALID_REQUEST, "a setting is in the request twice")
    if resource.resource_type == BROKER:
        if name != "":
            _check_broker_id(context, name)
        if keys:
            text = f"{keys[0]}: a broker's settings cannot change while it runs"
            raise Refused(Code.INVALID_REQUEST, text)
        return None
    if resource.resource_type != TOPIC:
        raise _unsupported_resource(resource.resource_type)
    if name == "":
        raise Refused(Code.INVALID_REQUEST, "a topic has a name")
    topic = context.topics.get(name)
    current = {} if replace or topic is None else topic.overrides
    overrides = _apply_operations(current, resource.configs)
    context.topics.check_settings(overrides)
    _find_valid_topic(context, name)
    return overrides


def _apply_operations(
    overrides: Mapping[str, str], changes: Sequence[AlteredConfig]
) -> dict[str, str]:
    needed = [each for each in changes if each.config_operation != AlterOperation.DELETE]
    values = config_values(needed, Code.INVALID_REQUEST)
    for name, value in values.items():
        if len(value) > MAX_VALUE_LENGTH:
            raise Refused(Code.INVALID_CONFIG, f"{name}: more than {MAX_VALUE_LENGTH} characters")
    new = dict(overrides)
    for each in changes:
        try:
            operation = AlterOperation(each.config_operation)
        except ValueError:
            text = f"{each.name}: no operation {each.config_operation}"
            raise Refused(Code.INVALID_REQUEST, text) from None
        match operation:
            case AlterOperation.SET:
                new[each.name] = values[each.name]
            case AlterOperation.DELETE:
                new.pop(each.name, None)
            case AlterOperation.APPEND | AlterOperation.SUBTRACT:
                new[each.name] = _edit_list(new, each.name, operation, values[each.name])
            case _:
                assert_never(operation)
    return new


def config_values(
    configs: Sequence[AlteredConfig | CreateTopicsRequest.CreatableTopicConfig], code: Code
) -> dict[str, str]:
    """Returns the values by key; raises Refused with the code if a config has no value."""
    if empty := [each.name for each in configs if each.value is None]:
        raise Refused(code, f"{', '.join(empty)}: no value")
    return {each.name: each.value for each in configs if each.value is not None}


def _edit_list(
    overrides: Mapping[str, str], key: str, operation: AlterOperation, value: str
) -> str:
    """Adds items to a list, or removes some; starts from the default if the list is not set."""
    config_key = TOPIC_KEYS.get(key)
    if config_key is None or config_key.type is not ConfigType.LIST:
        raise Refused(Code.INVALID_CONFIG, f"{key} is not a list; APPEND and SUBTRACT do not apply")
    current = overrides.get(key, format_config_value(config_key.default))
    items = [item.strip() for item in current.split(",")] if current.strip() else []
    edited = value.split(",")
    if operation is AlterOperation.APPEND:
        return ",".join(dict.fromkeys([*items, *edited]))
    return ",".join(item for item in items if item not in edited)


def _find_valid_topic(context: HandlerContext, name: str) -> Topic:
    if (problem := find_topic_name_problem(name)) is not None:
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, problem)
    return find_topic(context.topics, name)


def _unsupported_resource(resource_type: int) -> Refused:
    return Refused(Code.INVALID_REQUEST, f"unsupported resource type {resource_type}")


def _check_broker_id(context: HandlerContext, name: str) -> None:
    node_id = context.config.node_id
    if name != str(node_id):
        raise Refused(Code.INVALID_REQUEST, f"there is no broker {name!r}, this is {node_id}")


HANDLERS = (
    Handler(DescribeConfigsRequest, 1, 4, _handle_describe_configs, _refuse_describe_configs),
    Handler(
        IncrementalAlterConfigsRequest, 0, 1, _handle_incremental_alter, _refuse_incremental_alter
    ),
    Handler(AlterConfigsRequest, 0, 2, _handle_alter_configs, _refuse_alter_configs),
)
