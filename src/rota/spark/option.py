"""Reads the options of ``format("rota")``, which have the names of Spark's own Kafka source.

Strings come in; out comes :class:`rota.spark.query.SourceOptions`, checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, TypedDict

from rota.client import config, config_keys
from rota.client.config import Settings
from rota.client.config_keys import KEYS
from rota.engine.model.config import FetchConfig
from rota.engine.model.text import quote_shortened, suggest_names
from rota.errors import InputError, Unreachable
from rota.spark import query
from rota.spark.query import (
    AssignPartitions,
    CommittedOffsets,
    EarliestOffsets,
    GlobalTimestamp,
    LatestOffsets,
    OffsetRangeLimit,
    SourceOptions,
    SpecificOffsets,
    SpecificTimestamps,
    SubscribePattern,
    SubscribeTopics,
    TopicSelection,
)

KAFKA_PREFIX: Final = "kafka."

CLIENT_ID: Final = "rota-spark"

EXCLUDE_INTERNAL_TOPICS: Final = "exclude.internal.topics"

#: Every option but Kafka's own.
OPTION_NAMES: Final = (
    *("subscribe", "subscribePattern", "assign"),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    "startingOffsetsByTimestampStrategy",
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *("minPartitions", "maxRecordsPerPartition", "slots"),
    *("failOnDataLoss", "includeHeaders", "includeBatchInfo"),
    *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
    "groupIdPrefix",
)

STARTING_OPTIONS: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")

ENDING_OPTIONS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

TRIGGER_OPTIONS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")

#: Settings of Kafka that make no sense here, and what to do instead.
REFUSED_SETTINGS: Final[Mapping[str, str]] = {
    "auto.offset.reset": "where to begin is said by startingOffsets",
    "enable.auto.commit": "Spark's checkpoint has the offsets; rota.spark.commit_to_group mirrors "
    "them to a group",
    "interceptor.classes": "no consumer is there that could call them",
    "key.deserializer": "keys come as bytes; use cast, from_json and the like",
    "value.deserializer": "values come as bytes; use cast, from_json and the like",
}

#: Settings of Kafka that are taken, and do nothing here: why.
IGNORED_SETTINGS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            *("group.instance.id", "group.protocol", "group.remote.assignor"),
            *("heartbeat.interval.ms", "session.timeout.ms", "max.poll.interval.ms"),
            *("partition.assignment.strategy", "assign.budget.ms", "auto.commit.interval.ms"),
        ),
        "a query is no member of a group",
    ),
    "max.poll.records": "records come in whole answers, not in polls",
    **dict.fromkeys(
        ("deserializer.encoding", "key.deserializer.encoding", "value.deserializer.encoding"),
        "keys and values come as bytes",
    ),
}

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)

_DURATION = re.compile(r"(\d+)\s*([a-z]*)", re.ASCII)

_UNITS = {  # in microseconds
    "us": 1,
    **dict.fromkeys(("", "ms"), 1_000),
    "s": 1_000_000,
    **dict.fromkeys(("m", "min"), 60_000_000),
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}


class _TriggerLimits(TypedDict):
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay: int


def parse_options(given: Mapping[str, str], *, streaming: bool | None = None) -> SourceOptions:
    """Parses and checks the options of a query.

    :param streaming: None: not known yet; options that only one kind of query has are accepted
    :raises InputError: an option is unknown, malformed, refused, or does not fit the others
    :raises Unreachable: a file that one of them names cannot be read
    """
    own, kafka = _split_options(given)
    if streaming:
        _check_no_end(own)
    idle = [
        f"{KAFKA_PREFIX}{name}: without effect here: {IGNORED_SETTINGS[name]}"
        for name in kafka
        if name in IGNORED_SETTINGS
    ]
    settings = _client_settings(
        {name: kafka[name] for name in kafka if name not in IGNORED_SETTINGS}
    )
    batch_info = _parse_flag(own, "includeBatchInfo", default=False)
    reading = settings.read
    if batch_info:
        reading = replace(reading, isolation="read_uncommitted")
    return SourceOptions(
        client_config=settings.client,
        read_config=reading,
        subscription=_parse_topic_selection(own, kafka),
        starting=_parse_start(own, kafka, LatestOffsets() if streaming else EarliestOffsets()),
        ending=_parse_range_limit(own, ENDING_OPTIONS, LatestOffsets()),
        missing_timestamp_is_latest=_parse_timestamp_strategy(own),
        **_parse_trigger_limits(own),
        min_partitions=_parse_count(own, "minPartitions"),
        max_records_per_partition=_parse_count(own, "maxRecordsPerPartition"),
        slots=_parse_count(own, "slots"),
        fail_on_data_loss=_parse_flag(own, "failOnDataLoss", default=True),
        include_headers=_parse_flag(own, "includeHeaders", default=False),
        include_batch_info=batch_info,
        poll_timeout=_parse_count(own, "kafkaConsumer.pollTimeoutMs") or 120_000,
        lookup_attempts=_parse_count(own, "fetchOffset.numRetries") or 3,
        lookup_retry_interval=_parse_number(
            own, "fetchOffset.retryIntervalMs", least=0, default=1_000
        ),
        warnings=(
            *(f"{KAFKA_PREFIX}{each}" for each in settings.warnings),
            *idle,
            *_find_ineffective_options(own, settings.read, batch_info=batch_info),
        ),
        batch_warnings=tuple(
            f"{name}: without effect: a batch query has no triggers"
            for name in TRIGGER_OPTIONS
            if name in own
        ),
    )


def _split_options(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Splits options into Rota's and Kafka's. Option names in Spark are case-insensitive."""
    names = {name.lower(): name for name in OPTION_NAMES}
    own: dict[str, str] = {}
    kafka: dict[str, str] = {}
    for name, value in given.items():
        low = name.lower()
        if low.startswith(KAFKA_PREFIX):
            key = low.removeprefix(KAFKA_PREFIX)
            if key in REFUSED_SETTINGS:
                raise InputError(
                    f"{KAFKA_PREFIX}{key}: not for this source: {REFUSED_SETTINGS[key]}"
                )
            if key not in KEYS:
                why = config_keys.explain_unknown_key(key).removeprefix(f"{key}: ")
                raise InputError(f"{KAFKA_PREFIX}{key}: {why}")
            kafka[key] = value
        elif low in names:
            own[names[low]] = value
        else:
            raise InputError(_explain_unknown_option(name))
    if "bootstrap.servers" not in kafka:
        raise InputError("kafka.bootstrap.servers: is needed, like host:9092")
    return own, kafka


def _explain_unknown_option(name: str) -> str:
    match name.lower():
        case "group.membership":
            return (
                f"{name}: not built yet: a query reads all partitions, whoever else is in the group"
            )
        case "path":
            return (
                "load() takes no path: what to read is said by subscribe, subscribePattern or "
                "assign"
            )
        case low if low in KEYS:
            return f"{name}: Kafka's settings begin with {KAFKA_PREFIX} here: {KAFKA_PREFIX}{low}"
        case low:
            return f"{name}: there is no such option{suggest_names(low, OPTION_NAMES)}"


def _client_settings(kafka: Mapping[str, str]) -> Settings:
    """Parses Kafka's own settings; errors name them with the prefix ``kafka.``."""
    try:
        return config.read_settings({"client.id": CLIENT_ID, **kafka})
    except (InputError, Unreachable) as error:
        raise type(error)(f"{KAFKA_PREFIX}{error}") from None


def _check_no_end(own: Mapping[str, str]) -> None:
    for name in ENDING_OPTIONS:
        if name in own:
            raise InputError(f"{name}: a stream has no end")


def _find_ineffective_options(
    own: Mapping[str, str], reading: FetchConfig, *, batch_info: bool
) -> Iterator[str]:
    for offsets, time, times in (STARTING_OPTIONS, ENDING_OPTIONS):
        given = [name for name in (time, times, offsets) if name in own]
        for name in given[1:]:
            yield f"{name}: without effect beside {given[0]}"
    if "groupIdPrefix" in own:
        yield "groupIdPrefix: without effect: nothing is read as a group"
    if batch_info and reading.committed_only:
        yield (
            f"{KAFKA_PREFIX}isolation.level: without effect beside includeBatchInfo, which shows "
            "records of aborted transactions, too"
        )


def _parse_trigger_limits(own: Mapping[str, str]) -> _TriggerLimits:
    most, least = (
        _parse_count(own, "maxOffsetsPerTrigger"),
        _parse_count(own, "minOffsetsPerTrigger"),
    )
    if most is not None and least is not None and least > most:
        raise InputError(
            f"minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, which is {most}"
        )
    delay = _parse_duration(own, "maxTriggerDelay", 15 * 60_000)
    return {
        "max_offsets_per_trigger": most,
        "min_offsets_per_trigger": least,
        "max_trigger_delay": delay,
    }


def _parse_topic_selection(own: Mapping[str, str], kafka: Mapping[str, str]) -> TopicSelection:
    names = ("subscribe", "subscribePattern", "assign")
    found = [name for name in names if name in own]
    if len(found) != 1:
        what = f"{' and '.join(found)} are given" if found else "none is given"
        raise InputError(f"exactly one of subscribe, subscribePattern and assign is needed: {what}")
    text = own[found[0]].strip()
    if not text:
        raise InputError(f"{found[0]}: is empty")
    match found[0]:
        case "subscribe":
            topics = tuple(filter(None, (each.strip() for each in text.split(","))))
            if not topics:
                raise InputError("subscribe: names no topic")
            return SubscribeTopics(tuple(dict.fromkeys(topics)))
        case "subscribePattern":
            query.compile_java_pattern("subscribePattern", text)
            internal = EXCLUDE_INTERNAL_TOPICS in kafka and not KEYS[EXCLUDE_INTERNAL_TOPICS].parse(
                kafka[EXCLUDE_INTERNAL_TOPICS]
            )
            return SubscribePattern(text, internal)
        case _:
            return AssignPartitions(query.parse_partitions("assign", text))


def _parse_start(
    own: Mapping[str, str], kafka: Mapping[str, str], default: OffsetRangeLimit
) -> OffsetRangeLimit:
    offsets, time, times = STARTING_OPTIONS
    if own.get(offsets, "").strip().lower() != "committed" or time in own or times in own:
        return _parse_range_limit(own, STARTING_OPTIONS, default)
    if "group.id" not in kafka:
        raise InputError("startingOffsets: committed needs kafka.group.id: whose offsets?")
    return CommittedOffsets(kafka["group.id"].strip())


def _parse_range_limit(
    own: Mapping[str, str], names: tuple[str, str, str], default: OffsetRangeLimit
) -> OffsetRangeLimit:
    """Parses a start or an end. A timestamp for all partitions wins over timestamps for each,
    and those over offsets, as in Spark's own source.
    """
    offsets, time, times = names
    if time in own:
        return GlobalTimestamp(
            time, _parse_number(own, time, least=query.EARLIEST_OFFSET, default=0)
        )
    if times in own:
        return SpecificTimestamps(times, query.parse_timestamps(times, own[times]))
    if offsets not in own:
        return default
    text = own[offsets].strip()
    words: dict[str, OffsetRangeLimit] = {"earliest": EarliestOffsets(), "latest": LatestOffsets()}
    if text.lower() in words:
        return words[text.lower()]
    if text.startswith("{"):
        return SpecificOffsets(offsets, query.parse_offsets(offsets, text))
    known = [*words, *(["committed"] if offsets == STARTING_OPTIONS[0] else [])]
    raise InputError(
        f"{offsets}: {quote_shortened(text)} is none of {', '.join(known)} and JSON like "
        f"{query.OFFSETS_EXAMPLE}"
    )


def _parse_timestamp_strategy(own: Mapping[str, str]) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    text = own.get(name, "error").strip().lower()
    if text not in {"error", "latest"}:
        raise InputError(f"{name}: {quote_shortened(text)} is neither error nor latest")
    return text == "latest"


def _parse_flag(own: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = own.get(name, str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise InputError(f"{name}: {quote_shortened(own[name])} is neither true nor false")
    return text == "true"


def _parse_count(own: Mapping[str, str], name: str) -> int | None:
    return _parse_number(own, name, least=1, default=0) if name in own else None


def _parse_number(own: Mapping[str, str], name: str, *, least: int, default: int) -> int:
    text = own.get(name, str(default))
    if _INTEGER.fullmatch(text.strip()) is None:
        raise InputError(f"{name}: {quote_shortened(text)} is no whole number")
    found = int(text)
    if not least <= found <= query.MAX_OFFSET:
        raise InputError(f"{name}: {found} is out of bounds: from {least} to {query.MAX_OFFSET}")
    return found


def _parse_duration(own: Mapping[str, str], name: str, default: int) -> int:
    if name not in own:
        return default
    found = _DURATION.fullmatch(own[name].strip().lower())
    if found is None or found[2] not in _UNITS:
        raise InputError(f"{name}: {quote_shortened(own[name])} is no time like 15m, 30s or 500ms")
    return int(found[1]) * _UNITS[found[2]] // 1_000
