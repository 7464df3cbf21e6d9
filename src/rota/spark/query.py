"""The options of a query as checked values, which Spark sends to every task.

This module also has the JSON of offsets in options and checkpoints, ``subscribePattern``, and
``failOnDataLoss``.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from rota.engine.model import text
from rota.engine.model.config import ClientConfig, FetchConfig
from rota.engine.model.text import quote_shortened
from rota.engine.model.topic import MAX_PARTITIONS, TopicPartition
from rota.errors import InputError, RotaError


@dataclass(frozen=True, slots=True)
class SubscribeTopics:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """``subscribePattern``: the pattern may match any part of a name, as in Spark's own source."""

    text: str
    include_internal: bool = False


@dataclass(frozen=True, slots=True)
class AssignPartitions:
    partitions: tuple[TopicPartition, ...]


TopicSelection: TypeAlias = SubscribeTopics | SubscribePattern | AssignPartitions


@dataclass(frozen=True, slots=True)
class EarliestOffsets:
    """The beginning of each partition."""


@dataclass(frozen=True, slots=True)
class LatestOffsets:
    """The end of each partition."""


@dataclass(frozen=True, slots=True)
class CommittedOffsets:
    """The offsets that a group has committed; the beginning of partitions without one."""

    group: str


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """An offset for each partition; -1 is the end, -2 the beginning."""

    option: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class GlobalTimestamp:
    """In each partition, the first record that is not older than a timestamp."""

    option: str
    time: int


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """As :class:`GlobalTimestamp`, with one timestamp for each partition."""

    option: str
    times: Mapping[TopicPartition, int]


OffsetRangeLimit: TypeAlias = (
    EarliestOffsets
    | LatestOffsets
    | CommittedOffsets
    | SpecificOffsets
    | GlobalTimestamp
    | SpecificTimestamps
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    client_config: ClientConfig
    read_config: FetchConfig
    subscription: TopicSelection
    starting: OffsetRangeLimit
    ending: OffsetRangeLimit
    missing_timestamp_is_latest: bool  # a time after all records: the end, not an error
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay: int  # milliseconds until a trigger runs with fewer offsets
    min_partitions: int | None
    max_records_per_partition: int | None
    slots: int | None
    fail_on_data_loss: bool
    include_headers: bool
    include_batch_info: bool
    poll_timeout: int  # milliseconds without progress until a task gives up
    lookup_attempts: int
    lookup_retry_interval: int  # milliseconds between attempts
    warnings: tuple[str, ...] = ()
    batch_warnings: tuple[str, ...] = ()  # warnings for batch queries only


LATEST_OFFSET, EARLIEST_OFFSET = -1, -2  # a partition's end and beginning in the JSON of offsets
OFFSETS_EXAMPLE = '{"topic": {"0": 23, "1": -2}}'
MAX_OFFSET = 2**63 - 1


def parse_offsets(option: str, text: str) -> dict[TopicPartition, int]:
    """Parses ``{"topic": {"0": 23, "1": -2}}``; -1 is the latest, -2 the earliest offset."""
    fields = _parse_json_object(option, text, OFFSETS_EXAMPLE)
    return _parse_by_partition(option, fields, OFFSETS_EXAMPLE, EARLIEST_OFFSET, "an offset")


def parse_timestamps(option: str, text: str) -> dict[TopicPartition, int]:
    """Parses the same JSON with milliseconds since 1970 instead of offsets; -1 and -2 as there."""
    example = '{"topic": {"0": 1767571200000}}'
    fields = _parse_json_object(option, text, example)
    return _parse_by_partition(option, fields, example, EARLIEST_OFFSET, "a time in milliseconds")


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Parses ``{"topic": [0, 1]}``."""
    example = '{"topicA": [0, 1], "topicB": [2, 4]}'
    partitions: list[TopicPartition] = []
    for topic, numbers in _parse_json_object(option, text, example).items():
        where = f"{option}: topic {quote_shortened(topic)}"
        if not isinstance(numbers, list):
            raise InputError(f"{where}: a list of partitions is needed")
        if wrong := [each for each in numbers if type(each) is not int]:
            shown = _format_value(wrong[0])
            raise InputError(f"{where}: {shown} is not a partition number; write it like {example}")
        parsed = [_parse_partition_number(option, topic, each) for each in numbers]
        partitions += [TopicPartition(topic, number) for number in parsed]
    return tuple(dict.fromkeys(partitions))


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Returns offsets as Spark's own source writes them: topics and partitions in order."""
    topics: dict[str, dict[str, int]] = {}
    for each in sorted(offsets):
        topics.setdefault(each.topic, {})[str(each.partition)] = offsets[each]
    return topics


def offsets_from_json(fields: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return _parse_by_partition("the checkpoint", fields, OFFSETS_EXAMPLE, 0, "an offset")


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    some = [str(each) for each in sorted(partitions)]
    return ", ".join(some[:10]) + (f" and {len(some) - 10} more" if len(some) > 10 else "")


def _parse_by_partition(
    option: str, fields: Mapping[str, Any], example: str, least: int, kind: str
) -> dict[TopicPartition, int]:
    numbers: dict[TopicPartition, int] = {}
    for topic, each in fields.items():
        where = f"{option}: topic {quote_shortened(topic)}"
        if not isinstance(each, Mapping):
            raise InputError(f"{where}: its partitions are needed, like {example}")
        for number, value in each.items():
            partition = TopicPartition(topic, _parse_partition_number(option, topic, number))
            if partition in numbers:
                raise InputError(f"{where}, partition {partition.partition}: is there twice")
            if type(value) is not int or not least <= value <= MAX_OFFSET:
                shown = _format_value(value)
                raise InputError(f"{where}, partition {partition.partition}: {shown} is not {kind}")
            numbers[partition] = value
    return numbers


def _parse_json_object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        fields = json.loads(text, object_pairs_hook=_reject_duplicate_keys)
    except ValueError as error:
        raise InputError(f"{option}: not JSON: {error}; write it like {example}") from None
    except KeyError as error:
        raise InputError(f"{option}: {quote_shortened(error.args[0])} is there twice") from None
    except RecursionError:
        raise InputError(f"{option}: nested too deeply; write it like {example}") from None
    if not isinstance(fields, dict):
        raise InputError(f"{option}: {quote_shortened(text)} is not like {example}")
    return fields


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises KeyError for a duplicate: JSON would silently use the last one."""
    for name, count in Counter(name for name, _ in pairs).items():
        if count > 1:
            raise KeyError(name)
    return dict(pairs)


def _parse_partition_number(option: str, topic: str, number: object) -> int:
    text = str(number)  # that of a bool is not decimal
    if not (text.isascii() and text.isdecimal()) or len(text) > 10 or int(text) > MAX_PARTITIONS:
        where, shown = f"{option}: topic {quote_shortened(topic)}", _format_value(number)
        raise InputError(f"{where}: {shown} is not a partition number")
    return int(text)


def _format_value(value: object) -> str:
    return quote_shortened(json.dumps(value))[1:-1]


_PATTERN_TOKENS = re.compile(r"\\Q|\\.|\[\^?\]?|\]|&&|\(\?<[a-zA-Z]", re.DOTALL)


def compile_java_pattern(option: str, pattern: str) -> re.Pattern[str]:
    """Compiles a regular expression as Java's ``find`` reads it; InputError if Python does not."""
    if syntax := _find_java_only_syntax(pattern):
        raise InputError(
            f"{option}: {quote_shortened(pattern)}: {syntax} works only in Java; write it "
            "in a form that Python understands, too"
        )
    try:
        return text.compile_pattern(pattern)
    except InputError as error:
        raise InputError(f"{option}: {error}") from None


def _find_java_only_syntax(pattern: str) -> str:
    """The first syntax that Python lacks or reads differently in ASCII names, or nothing."""
    inside = False
    for token in _PATTERN_TOKENS.finditer(pattern):
        match token[0]:
            case "&&" | "[" | "[^" | "[]" | "[^]" if inside:
                return f"{token[0][:2]} within [...]"
            case "&&":
                pass
            case "]":
                inside = False
            case "\\Q" | "\\p" | "\\P" | "\\h" | "\\H" | "\\R" | "\\X" | "\\G" | "\\z" as escape:
                return escape
            case found if found.startswith("["):
                inside = True
            case found if found.startswith("(?<") and not inside:
                return "(?<name>...)"
    return ""


LOGGER = logging.getLogger("rota.spark")


class DataLost(RotaError):
    """Records that a query should have read are gone."""


def report_data_loss(records: str, *, fail: bool) -> None:
    """Logs that records are gone; raises DataLost if ``failOnDataLoss`` is set."""
    if fail:
        raise DataLost(
            f"records may be lost: {records}: retention has deleted them, or the topic was deleted "
            "and created again; set the option failOnDataLoss=false to continue without them"
        )
    LOGGER.warning("records may be lost: %s", records)
