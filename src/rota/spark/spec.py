"""What the JSON of options and of checkpoints says: offsets, times and partitions by topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeGuard, TypeVar

from rota.errors import InputError
from rota.model.text import shortened
from rota.model.topic import MAX_PARTITIONS, TopicPartition

LATEST, EARLIEST = -1, -2
"""What stands for a partition's end and beginning in the JSON of offsets."""
EXAMPLE = '{"topic": {"0": 23, "1": -2}}'
LARGEST = 2**63 - 1

T = TypeVar("T")


def offsets(option: str, text: str) -> dict[TopicPartition, int]:
    """``{"topic": {"0": 23, "1": -2}}``, where -1 is the latest and -2 the earliest.

    :raises InputError: it is malformed; says where
    """

    def offset(value: object, where: str) -> int:
        if not _is_number(value) or not EARLIEST <= value <= LARGEST:
            raise InputError(f"{option}: {where}: {_shown(value)} is no offset")
        return value

    return _by_partition(option, _mapping(option, text, EXAMPLE), EXAMPLE, offset)


def times(option: str, text: str) -> dict[TopicPartition, int]:
    """The same with milliseconds since 1970 in place of offsets; -1 and -2 as there."""
    example = '{"topic": {"0": 1767571200000}}'

    def moment(value: object, where: str) -> int:
        if not _is_number(value) or not EARLIEST <= value <= LARGEST:
            raise InputError(f"{option}: {where}: {_shown(value)} is no time in milliseconds")
        return value

    return _by_partition(option, _mapping(option, text, example), example, moment)


def partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """``{"topic": [0, 1]}``."""
    example = '{"topicA": [0, 1], "topicB": [2, 4]}'
    found: list[TopicPartition] = []
    for topic, numbers in _mapping(option, text, example).items():
        if not isinstance(numbers, list):
            raise InputError(f"{option}: topic {shortened(topic)}: a list of partitions is needed")
        words = [each for each in numbers if not _is_number(each)]
        if words:
            raise InputError(
                f"{option}: topic {shortened(topic)}: {_shown(words[0])} is no number of a "
                f"partition; it is like {example}"
            )
        found += [TopicPartition(topic, _number(option, topic, each)) for each in numbers]
    return tuple(dict.fromkeys(found))


def to_json(found: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets as Spark's own source writes them: topics and partitions in order."""
    topics: dict[str, dict[str, int]] = {}
    for each in sorted(found):
        topics.setdefault(each.topic, {})[str(each.partition)] = found[each]
    return topics


def from_json(found: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Offsets of a checkpoint, which this source or Spark's own has written.

    :raises InputError: they are none
    """

    def offset(value: object, where: str) -> int:
        if not _is_number(value) or not 0 <= value <= LARGEST:
            raise InputError(f"the checkpoint: {where}: {_shown(value)} is no offset")
        return value

    return _by_partition("the checkpoint", found, EXAMPLE, offset)


def named(found: Iterable[TopicPartition]) -> str:
    """Some partitions, for a message."""
    some = [str(each) for each in sorted(found)]
    return ", ".join(some[:10]) + (f" and {len(some) - 10} more" if len(some) > 10 else "")


def _by_partition(
    option: str, given: Mapping[str, Any], example: str, read: Callable[[object, str], T]
) -> dict[TopicPartition, T]:
    found: dict[TopicPartition, T] = {}
    for topic, each in given.items():
        if not isinstance(each, Mapping):
            raise InputError(
                f"{option}: topic {shortened(topic)}: its partitions are needed, like {example}"
            )
        for number, value in each.items():
            partition = TopicPartition(topic, _number(option, topic, number))
            where = f"topic {shortened(topic)}, partition {partition.partition}"
            if partition in found:
                raise InputError(f"{option}: {where}: is there twice")
            found[partition] = read(value, where)
    return found


def _mapping(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        raise InputError(f"{option}: no JSON: {error}; it is like {example}") from None
    except KeyError as error:
        raise InputError(f"{option}: {shortened(error.args[0])} is there twice") from None
    except RecursionError:
        raise InputError(f"{option}: nested too deeply; it is like {example}") from None
    if not isinstance(found, dict):
        raise InputError(f"{option}: {shortened(text)} is not like {example}")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON has it that the last of two counts; who wrote two meant something else."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise KeyError(name)
        found[name] = value
    return found


def _number(option: str, topic: str, given: object) -> int:
    text = str(given)
    plain = not isinstance(given, bool) and text.isascii() and text.isdecimal()
    if not plain or len(text) > 10 or int(text) > MAX_PARTITIONS:
        raise InputError(
            f"{option}: topic {shortened(topic)}: {_shown(given)} is no number of a partition"
        )
    return int(text)


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    return shortened(json.dumps(value))[1:-1]
