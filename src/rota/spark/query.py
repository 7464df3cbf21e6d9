"""What a query reads: topics, starting and ending offsets, and all other options as checked values.

The values are sent to every task. Also here: the JSON of offsets in options and checkpoints,
``subscribePattern``, and what ``failOnDataLoss`` decides when records are gone.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard, TypeVar

from rota.engine.model import text
from rota.engine.model.config import ClientConfig, FetchConfig
from rota.engine.model.text import quote_shortened
from rota.engine.model.topic import MAX_PARTITIONS, TopicPartition
from rota.errors import InputError, RotaError


@dataclass(frozen=True, slots=True)
class SubscribeTopics:
    """``subscribe``: reads these topics."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """``subscribePattern``: reads all topics in whose names the pattern is found, as in
    Spark's own source.
    """

    text: str
    #: Those of the broker, too.
    include_internal: bool = False


@dataclass(frozen=True, slots=True)
class AssignPartitions:
    """``assign``: reads these partitions."""

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
    """The first record that is not older than a timestamp, with one timestamp for each
    partition.
    """

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
    """The options of a query, checked."""

    client_config: ClientConfig
    read_config: FetchConfig
    subscription: TopicSelection
    starting: OffsetRangeLimit
    ending: OffsetRangeLimit
    #: A start by a time that no record has reached is the end of the partition, not an error.
    missing_timestamp_is_latest: bool
    #: For each trigger.
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    #: Milliseconds until there is a trigger with fewer.
    max_trigger_delay: int
    min_partitions: int | None
    #: Of a task.
    max_records_per_partition: int | None
    slots: int | None
    fail_on_data_loss: bool
    include_headers: bool
    include_batch_info: bool
    #: Milliseconds without progress until a task gives up.
    poll_timeout: int
    #: How often the driver looks offsets up before it gives up.
    lookup_attempts: int
    #: Milliseconds between them.
    lookup_retry_interval: int
    #: What is without effect, or unwise, in any query.
    warnings: tuple[str, ...] = ()
    #: What is without effect in a batch query.
    batch_warnings: tuple[str, ...] = ()


#: What stands for a partition's end and beginning in the JSON of offsets.
LATEST_OFFSET, EARLIEST_OFFSET = -1, -2

OFFSETS_EXAMPLE = '{"topic": {"0": 23, "1": -2}}'

MAX_OFFSET = 2**63 - 1

T = TypeVar("T")


def parse_offsets(option: str, text: str) -> dict[TopicPartition, int]:
    """Parses ``{"topic": {"0": 23, "1": -2}}``, where -1 is the latest and -2 the earliest offset.

    :raises InputError: the text is malformed; the message says where
    """

    def offset(value: object, where: str) -> int:
        if not _is_integer(value) or not EARLIEST_OFFSET <= value <= MAX_OFFSET:
            raise InputError(f"{option}: {where}: {_format_value(value)} is no offset")
        return value

    return _parse_by_partition(
        option, _parse_json_object(option, text, OFFSETS_EXAMPLE), OFFSETS_EXAMPLE, offset
    )


def parse_timestamps(option: str, text: str) -> dict[TopicPartition, int]:
    """Parses the same JSON with milliseconds since 1970 in place of offsets; -1 and -2 as there."""
    example = '{"topic": {"0": 1767571200000}}'

    def moment(value: object, where: str) -> int:
        if not _is_integer(value) or not EARLIEST_OFFSET <= value <= MAX_OFFSET:
            raise InputError(
                f"{option}: {where}: {_format_value(value)} is no time in milliseconds"
            )
        return value

    return _parse_by_partition(option, _parse_json_object(option, text, example), example, moment)


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Parses ``{"topic": [0, 1]}``."""
    example = '{"topicA": [0, 1], "topicB": [2, 4]}'
    found: list[TopicPartition] = []
    for topic, numbers in _parse_json_object(option, text, example).items():
        if not isinstance(numbers, list):
            raise InputError(
                f"{option}: topic {quote_shortened(topic)}: a list of partitions is needed"
            )
        words = [each for each in numbers if not _is_integer(each)]
        if words:
            raise InputError(
                f"{option}: topic {quote_shortened(topic)}: {_format_value(words[0])} is no "
                "number of a "
                f"partition; it is like {example}"
            )
        found += [
            TopicPartition(topic, _parse_partition_number(option, topic, each)) for each in numbers
        ]
    return tuple(dict.fromkeys(found))


def offsets_to_json(found: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Returns offsets in the form in which Spark's own source writes them: topics and
    partitions in order.
    """
    topics: dict[str, dict[str, int]] = {}
    for each in sorted(found):
        topics.setdefault(each.topic, {})[str(each.partition)] = found[each]
    return topics


def offsets_from_json(found: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Parses the offsets of a checkpoint, which this source or Spark's own has written.

    :raises InputError: they are malformed
    """

    def offset(value: object, where: str) -> int:
        if not _is_integer(value) or not 0 <= value <= MAX_OFFSET:
            raise InputError(f"the checkpoint: {where}: {_format_value(value)} is no offset")
        return value

    return _parse_by_partition("the checkpoint", found, OFFSETS_EXAMPLE, offset)


def format_partitions(found: Iterable[TopicPartition]) -> str:
    """Formats partitions for a message: at most ten of them."""
    some = [str(each) for each in sorted(found)]
    return ", ".join(some[:10]) + (f" and {len(some) - 10} more" if len(some) > 10 else "")


def _parse_by_partition(
    option: str, given: Mapping[str, Any], example: str, read: Callable[[object, str], T]
) -> dict[TopicPartition, T]:
    found: dict[TopicPartition, T] = {}
    for topic, each in given.items():
        if not isinstance(each, Mapping):
            raise InputError(
                f"{option}: topic {quote_shortened(topic)}: its partitions are needed, like "
                f"{example}"
            )
        for number, value in each.items():
            partition = TopicPartition(topic, _parse_partition_number(option, topic, number))
            where = f"topic {quote_shortened(topic)}, partition {partition.partition}"
            if partition in found:
                raise InputError(f"{option}: {where}: is there twice")
            found[partition] = read(value, where)
    return found


def _parse_json_object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_reject_duplicate_keys)
    except ValueError as error:
        raise InputError(f"{option}: no JSON: {error}; it is like {example}") from None
    except KeyError as error:
        raise InputError(f"{option}: {quote_shortened(error.args[0])} is there twice") from None
    except RecursionError:
        raise InputError(f"{option}: nested too deeply; it is like {example}") from None
    if not isinstance(found, dict):
        raise InputError(f"{option}: {quote_shortened(text)} is not like {example}")
    return found


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises KeyError for a key that is there twice. JSON would let the last one win, which
    is hardly what the user meant.
    """
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise KeyError(name)
        found[name] = value
    return found


def _parse_partition_number(option: str, topic: str, given: object) -> int:
    text = str(given)
    plain = not isinstance(given, bool) and text.isascii() and text.isdecimal()
    if not plain or len(text) > 10 or int(text) > MAX_PARTITIONS:
        raise InputError(
            f"{option}: topic {quote_shortened(topic)}: {_format_value(given)} is no number "
            "of a partition"
        )
    return int(text)


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _format_value(value: object) -> str:
    return quote_shortened(json.dumps(value))[1:-1]


_PATTERN_TOKENS = re.compile(r"\\Q|\\.|\[\^?\]?|\]|&&|\(\?<[a-zA-Z]", re.DOTALL)


def compile_java_pattern(option: str, given: str) -> re.Pattern[str]:
    """Compiles a Java regular expression; it is searched for, as Java's ``find`` does.

    :raises InputError: it is malformed, or Python would read it differently from Java
    """
    if what := _find_java_only_syntax(given):
        raise InputError(
            f"{option}: {quote_shortened(given)}: {what} is Java's alone; write it in a form "
            "that Python "
            "has, too"
        )
    try:
        return text.compile_pattern(given)
    except InputError as error:
        raise InputError(f"{option}: {error}") from None


def _find_java_only_syntax(given: str) -> str:
    """Returns the first syntax that Python does not have or reads differently, or an empty
    string. Topic names are ASCII, so most differences (``$``, character classes) do not
    matter.
    """
    inside = False
    for part in _PATTERN_TOKENS.finditer(given):
        match part[0]:
            case "&&" | "[" | "[^" | "[]" | "[^]" if inside:
                return f"{part[0][:2]} within [...]"
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


def report_data_loss(what: str, *, fail: bool) -> None:
    """Logs that records are gone, or fails.

    :raises DataLost: ``failOnDataLoss`` is set
    """
    if fail:
        raise DataLost(
            f"records may be lost: {what}: they were deleted by retention, or the topic was "
            "deleted and made anew; the option failOnDataLoss=false goes on without them"
        )
    LOGGER.warning("records may be lost: %s", what)
