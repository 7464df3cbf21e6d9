"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs.

Topics have configs of their own. The broker's configs are set when it starts: they are shown, but
cannot be altered.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias, assert_never

from rota.broker.config import ConfigEntry, broker_config_entries, topic_config_entries
from rota.broker.dispatch import Handler, HandlerContext, ServerRequest
from rota.broker.topics import Topic
from rota.engine.model.config import TOPIC_CONFIG_KEYS, ConfigType
from rota.engine.model.text import find_topic_name_problem
from rota.errors import Code, Refused
from rota.protocol.messages import (
    AlterConfigsResponse,
    Api,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
    Message,
)

#: Kinds of resources. Rota has nothing to set for the last three.
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

#: Characters of a setting's value.
MAX_VALUE_LENGTH = 32_767

#: From a topic's settings and what a request says to those it has then.
AlterOverrides: TypeAlias = Callable[[Mapping[str, str], list[Message]], dict[str, str]]


class AlterOperation(enum.IntEnum):
    """What is done to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def handle_describe_configs(parts: HandlerContext, call: ServerRequest) -> None:
    """Shows settings: all, or those whose keys are asked for."""
    results = [_describe_resource(parts, call, each) for each in call.request.resources]
    call.answer(DescribeConfigsResponse(results=results))


def _describe_resource(parts: HandlerContext, call: ServerRequest, resource: Message) -> Message:
    try:
        settings = list(_resource_entries(parts, resource))
    except Refused as error:
        return _describe_result(resource, error.code, str(error), [])
    keys = resource.configuration_keys
    shown = [_entry_result(call, each) for each in settings if not keys or each.key in keys]
    return _describe_result(resource, Code.NONE, "", shown)


def _resource_entries(parts: HandlerContext, resource: Message) -> Iterator[ConfigEntry]:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        topic = _find_valid_topic(parts, name)
        return topic_config_entries(topic.overrides, parts.topics.defaults)
    if resource.resource_type == BROKER:
        if name == "":  # what was set for all brokers while they ran: nothing can be
            return iter(())
        _check_broker_id(parts, name)
        return broker_config_entries(parts.config, parts.groups.config, parts.topics.defaults)
    raise _unsupported_resource(resource)


def _entry_result(call: ServerRequest, setting: ConfigEntry) -> Message:
    request = call.request
    synonym = DescribeConfigsResponse.DescribeConfigsSynonym
    return DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=setting.key,
        value=setting.value,
        read_only=setting.read_only,
        config_source=setting.source,
        is_sensitive=False,
        synonyms=[
            synonym(name=each.name, value=each.value, source=each.source)
            for each in setting.synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=setting.kind,
        documentation=(setting.documentation or None)
        if call.version >= 3 and request.include_documentation
        else None,
    )


def _describe_result(
    resource: Message, code: Code, text: str | None, configs: list[Message]
) -> Message:
    return DescribeConfigsResponse.DescribeConfigsResult(
        error_code=code,
        error_message=text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def refuse_describe_configs(call: ServerRequest, code: Code) -> Message:
    """Every resource has the error."""
    return DescribeConfigsResponse(
        results=[_describe_result(each, code, None, []) for each in call.request.resources]
    )


def handle_incremental_alter_configs(parts: HandlerContext, call: ServerRequest) -> None:
    """Changes some settings of topics."""
    call.answer(
        IncrementalAlterConfigsResponse(responses=_alter_resources(parts, call, _apply_operations))
    )


def handle_alter_configs(parts: HandlerContext, call: ServerRequest) -> None:
    """Changes all settings of topics: those that are not named are as the broker has them."""
    call.answer(AlterConfigsResponse(responses=_alter_resources(parts, call, _replace_overrides)))


def _alter_resources(
    parts: HandlerContext, call: ServerRequest, alter: AlterOverrides
) -> list[Message]:
    resources = call.request.resources
    counts = Counter((each.resource_type, each.resource_name) for each in resources)
    settings: dict[str, Mapping[str, str]] = {}
    #: Why it is refused, or the topic whose settings are to be changed.
    outcomes: list[Refused | str | None] = []
    for each in resources:
        try:
            _check_once(each, counts[each.resource_type, each.resource_name])
            overrides = _new_overrides(parts, each, alter)
        except Refused as error:
            outcomes.append(error)
            continue
        if overrides is not None and not call.request.validate_only:
            settings[each.resource_name] = overrides
        outcomes.append(each.resource_name if overrides is not None else None)
    changed = dict(zip(settings, parts.topics.configure_all(settings, call.now), strict=True))
    return [
        _alter_result(
            call, each, _refused_or_none(changed.get(found) if isinstance(found, str) else found)
        )
        for each, found in zip(resources, outcomes, strict=True)
    ]


def _refused_or_none(outcome: Topic | Refused | None) -> Refused | None:
    return outcome if isinstance(outcome, Refused) else None


def _new_overrides(
    parts: HandlerContext, resource: Message, alter: AlterOverrides
) -> dict[str, str] | None:
    """The settings that a topic shall have; None: there is nothing to change."""
    keys = [each.name for each in resource.configs]
    if len(set(keys)) < len(keys):
        raise Refused(Code.INVALID_REQUEST, "a setting is in the request twice")
    if resource.resource_type == BROKER:
        if resource.resource_name != "":
            _check_broker_id(parts, resource.resource_name)
        if keys:
            raise Refused(
                Code.INVALID_REQUEST, f"{keys[0]}: the broker's settings are set when it starts"
            )
        return None
    if resource.resource_type != TOPIC:
        raise _unsupported_resource(resource)
    name = resource.resource_name
    if name == "":
        raise Refused(Code.INVALID_REQUEST, "a topic has a name")
    topic = parts.topics.get(name)
    overrides = alter({} if topic is None else topic.overrides, resource.configs)
    parts.topics.check_settings(overrides)
    _find_valid_topic(parts, name)
    return overrides


def _apply_operations(overrides: Mapping[str, str], changes: list[Message]) -> dict[str, str]:
    _check_values([each for each in changes if each.config_operation != AlterOperation.DELETE])
    new = dict(overrides)
    for each in changes:
        try:
            operation = AlterOperation(each.config_operation)
        except ValueError:
            raise Refused(
                Code.INVALID_REQUEST, f"{each.name}: no operation {each.config_operation}"
            ) from None
        match operation:
            case AlterOperation.SET:
                new[each.name] = each.value
            case AlterOperation.DELETE:
                new.pop(each.name, None)
            case AlterOperation.APPEND | AlterOperation.SUBTRACT:
                new[each.name] = _edit_list(new, each.name, operation, each.value)
            case _:
                assert_never(operation)
    return new


def _edit_list(
    overrides: Mapping[str, str], key: str, operation: AlterOperation, value: str
) -> str:
    """A list with some items more or fewer; it starts from the default if it is not set."""
    setting = TOPIC_CONFIG_KEYS.get(key)
    if setting is None or setting.config_type is not ConfigType.LIST:
        raise Refused(
            Code.INVALID_CONFIG, f"{key}: it is no list, so nothing is added or taken away"
        )
    current = overrides.get(key, str(setting.default))
    items = [item.strip() for item in current.split(",")] if current.strip() else []
    given = value.split(",")
    if operation is AlterOperation.APPEND:
        return ",".join(dict.fromkeys([*items, *given]))
    return ",".join(item for item in items if item not in given)


def _check_once(resource: Message, times: int) -> None:
    if times > 1:
        name = resource.resource_name
        raise Refused(Code.INVALID_REQUEST, f"{name!r} is in the request {times} times")


def _replace_overrides(_: Mapping[str, str], settings: list[Message]) -> dict[str, str]:
    _check_values(settings)
    return {each.name: each.value for each in settings}


def _check_values(settings: list[Message]) -> None:
    empty = [each.name for each in settings if each.value is None]
    if empty:
        raise Refused(Code.INVALID_REQUEST, f"{', '.join(empty)}: no value")
    for each in settings:
        if len(each.value) > MAX_VALUE_LENGTH:
            raise Refused(
                Code.INVALID_CONFIG, f"{each.name}: more than {MAX_VALUE_LENGTH} characters"
            )


def _alter_result(call: ServerRequest, resource: Message, error: Refused | None) -> Message:
    incremental = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    whole = AlterConfigsResponse.AlterConfigsResourceResponse
    kind = incremental if call.api is Api.INCREMENTAL_ALTER_CONFIGS else whole
    return kind(
        error_code=Code.NONE if error is None else error.code,
        error_message=None if error is None else str(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def refuse_incremental_alter_configs(call: ServerRequest, code: Code) -> Message:
    """Every resource has the error."""
    error = Refused(code, code.name)
    return IncrementalAlterConfigsResponse(
        responses=[_alter_result(call, each, error) for each in call.request.resources]
    )


def refuse_alter_configs(call: ServerRequest, code: Code) -> Message:
    """Every resource has the error."""
    error = Refused(code, code.name)
    return AlterConfigsResponse(
        responses=[_alter_result(call, each, error) for each in call.request.resources]
    )


def _find_valid_topic(parts: HandlerContext, name: str) -> Topic:
    if (problem := find_topic_name_problem(name)) is not None:
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, problem)
    topic = parts.topics.get(name)
    if topic is None:
        raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


def _unsupported_resource(resource: Message) -> Refused:
    return Refused(
        Code.INVALID_REQUEST,
        f"there are no settings for resources of kind {resource.resource_type}",
    )


def _check_broker_id(parts: HandlerContext, name: str) -> None:
    if name != str(parts.config.node_id):
        raise Refused(
            Code.INVALID_REQUEST, f"there is no broker {name!r}, this is {parts.config.node_id}"
        )


HANDLERS = (
    Handler(
        api=Api.DESCRIBE_CONFIGS,
        min_version=1,
        max_version=4,
        handle=handle_describe_configs,
        error_response=refuse_describe_configs,
    ),
    Handler(
        api=Api.INCREMENTAL_ALTER_CONFIGS,
        min_version=0,
        max_version=1,
        handle=handle_incremental_alter_configs,
        error_response=refuse_incremental_alter_configs,
    ),
    Handler(
        api=Api.ALTER_CONFIGS,
        min_version=0,
        max_version=2,
        handle=handle_alter_configs,
        error_response=refuse_alter_configs,
    ),
)
