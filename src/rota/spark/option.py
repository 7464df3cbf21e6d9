"""Reads the options of ``format("rota")``, which have the names of Spark's own Kafka source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from rota.client import config, config_keys
from rota.client.config_keys import CONSUMER_KEYS
from rota.engine.model.config import ConfigKey, ConfigType, FetchConfig, unknown_key_message
from rota.engine.model.text import quote_shortened
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
STARTING_OPTIONS: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
ENDING_OPTIONS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
TRIGGER_OPTIONS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")


def _source_options() -> Iterator[ConfigKey]:
    for name in (
        *("subscribe", "subscribePattern", "assign", "groupIdPrefix"),
        *("startingOffsets", "startingOffsetsByTimestamp"),
        *("endingOffsets", "endingOffsetsByTimestamp"),
    ):
        yield ConfigKey(name, ConfigType.STRING)
    yield ConfigKey("maxTriggerDelay", ConfigType.STRING, "15m")
    name, choices = "startingOffsetsByTimestampStrategy", ("error", "latest")
    yield ConfigKey(name, ConfigType.STRING, "error", choices=choices, ignores_case=True)
    for name in ("startingTimestamp", "endingTimestamp"):
        yield ConfigKey(name, ConfigType.LONG, minimum=query.EARLIEST_OFFSET)
    for name in (
        *("maxOffsetsPerTrigger", "minOffsetsPerTrigger"),
        *("minPartitions", "maxRecordsPerPartition", "slots"),
    ):
        yield ConfigKey(name, ConfigType.LONG, minimum=1)
    yield ConfigKey("kafkaConsumer.pollTimeoutMs", ConfigType.LONG, 120_000, minimum=1)
    yield ConfigKey("fetchOffset.numRetries", ConfigType.LONG, 3, minimum=1)
    yield ConfigKey("fetchOffset.retryIntervalMs", ConfigType.LONG, 1_000, minimum=0)
    yield ConfigKey("failOnDataLoss", ConfigType.BOOLEAN, True)
    yield ConfigKey("includeHeaders", ConfigType.BOOLEAN, False)
    yield ConfigKey("includeBatchInfo", ConfigType.BOOLEAN, False)


#: Every option of the source but Kafka's own.
SOURCE_OPTIONS: Final[Mapping[str, ConfigKey]] = {key.name: key for key in _source_options()}

#: Kafka settings that the source refuses, and what to do instead.
REFUSED_SETTINGS: Final[Mapping[str, str]] = {
    "auto.offset.reset": "set startingOffsets instead",
    "enable.auto.commit": "Spark's checkpoint has the offsets; rota.spark.commit_to_group mirrors "
    "them to a group",
    "interceptor.classes": "the source has no consumer that could call them",
    "key.deserializer": "keys come as bytes; use cast, from_json and the like",
    "value.deserializer": "values come as bytes; use cast, from_json and the like",
}

#: Kafka settings that the source accepts and that have no effect, and why.
IGNORED_SETTINGS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            *("group.instance.id", "group.protocol", "group.remote.assignor"),
            *("heartbeat.interval.ms", "session.timeout.ms", "max.poll.interval.ms"),
            *("partition.assignment.strategy", "assign.budget.ms", "auto.commit.interval.ms"),
        ),
        "a query is not a member of a group",
    ),
    "max.poll.records": "records come in whole Fetch responses, not in polls",
    **dict.fromkeys(
        ("deserializer.encoding", "key.deserializer.encoding", "value.deserializer.encoding"),
        "keys and values come as bytes",
    ),
}


def parse_options(options: Mapping[str, str], *, streaming: bool | None = None) -> SourceOptions:
    """Parses and checks the options; ``streaming`` is None if the kind of query is not known yet.

    :raises InputError: an option is unknown, malformed, refused, or does not fit the others
    """
    own, kafka = _split_options(options)
    if streaming:
        for name in ENDING_OPTIONS:
            if name in own:
                raise InputError(f"{name}: a stream has no end")
    used = {name: kafka[name] for name in kafka if name not in IGNORED_SETTINGS}
    try:
        settings = config.read_settings({"client.id": CLIENT_ID, **used})
    except (InputError, Unreachable) as error:
        raise type(error)(f"{KAFKA_PREFIX}{error}") from None
    values: dict[str, Any] = {
        name: key.parse(own[name]) if name in own else key.default
        for name, key in SOURCE_OPTIONS.items()
    }
    most, least = values["maxOffsetsPerTrigger"], values["minOffsetsPerTrigger"]
    if most is not None and least is not None and least > most:
        text = f"{least} is more than maxOffsetsPerTrigger, which is {most}"
        raise InputError(f"minOffsetsPerTrigger: {text}")
    batch_info = values["includeBatchInfo"]
    reading = settings.fetch
    return SourceOptions(
        client_config=settings.client,
        read_config=replace(reading, isolation="read_uncommitted") if batch_info else reading,
        subscription=_parse_topic_selection(values, kafka),
        starting=_parse_start(values, kafka, LatestOffsets() if streaming else EarliestOffsets()),
        ending=_parse_range_limit(values, ENDING_OPTIONS, LatestOffsets()),
        missing_timestamp_is_latest=values["startingOffsetsByTimestampStrategy"] == "latest",
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay=_parse_trigger_delay(values["maxTriggerDelay"]),
        min_partitions=values["minPartitions"],
        max_records_per_partition=values["maxRecordsPerPartition"],
        slots=values["slots"],
        fail_on_data_loss=values["failOnDataLoss"],
        include_headers=values["includeHeaders"],
        include_batch_info=batch_info,
        poll_timeout=values["kafkaConsumer.pollTimeoutMs"],
        lookup_attempts=values["fetchOffset.numRetries"],
        lookup_retry_interval=values["fetchOffset.retryIntervalMs"],
        warnings=(
            *(f"{KAFKA_PREFIX}{each}" for each in settings.warnings),
            *_find_ineffective_options(own, kafka, reading, batch_info=batch_info),
        ),
        batch_warnings=tuple(
            f"{name}: without effect: a batch query has no triggers"
            for name in TRIGGER_OPTIONS
            if name in own
        ),
    )


def _split_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Splits options into Rota's and Kafka's. Option names in Spark are case-insensitive."""
    names = {name.lower(): name for name in SOURCE_OPTIONS}
    own: dict[str, str] = {}
    kafka: dict[str, str] = {}
    for name, value in options.items():
        low = name.lower()
        if low.startswith(KAFKA_PREFIX):
            key = low.removeprefix(KAFKA_PREFIX)
            if key in REFUSED_SETTINGS:
                why = REFUSED_SETTINGS[key]
                raise InputError(f"{KAFKA_PREFIX}{key}: not for this source: {why}")
            if key not in CONSUMER_KEYS:
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
            return f"{name}: not built yet: a query reads all partitions, also beside group members"
        case "path":
            return "load() takes no path: set subscribe, subscribePattern or assign"
        case low if low in CONSUMER_KEYS:
            return f"{name}: add the prefix {KAFKA_PREFIX} to Kafka's settings: {KAFKA_PREFIX}{low}"
        case _:
            return unknown_key_message(name, SOURCE_OPTIONS, 'an option of format("rota")')


def _find_ineffective_options(
    own: Mapping[str, str], kafka: Mapping[str, str], reading: FetchConfig, *, batch_info: bool
) -> Iterator[str]:
    for name in kafka:
        if name in IGNORED_SETTINGS:
            yield f"{KAFKA_PREFIX}{name}: without effect: {IGNORED_SETTINGS[name]}"
    for offsets, time, times in (STARTING_OPTIONS, ENDING_OPTIONS):
        winners = [name for name in (time, times, offsets) if name in own]
        for name in winners[1:]:
            yield f"{name}: without effect beside {winners[0]}"
    if "groupIdPrefix" in own:
        yield "groupIdPrefix: without effect: the source reads without a group"
    if batch_info and reading.committed_only:
        yield (
            f"{KAFKA_PREFIX}isolation.level: without effect beside includeBatchInfo, which shows "
            "records of aborted transactions, too"
        )


def _parse_topic_selection(values: Mapping[str, Any], kafka: Mapping[str, str]) -> TopicSelection:
    names = ("subscribe", "subscribePattern", "assign")
    selected = [name for name in names if values[name] is not None]
    if len(selected) != 1:
        problem = f"{' and '.join(selected)} are given" if selected else "none is given"
        raise InputError(f"set exactly one of subscribe, subscribePattern and assign: {problem}")
    text = values[selected[0]]
    if not text:
        raise InputError(f"{selected[0]}: is empty")
    match selected[0]:
        case "subscribe":
            topics = tuple(filter(None, (each.strip() for each in text.split(","))))
            if not topics:
                raise InputError("subscribe: the list of topics is empty")
            return SubscribeTopics(tuple(dict.fromkeys(topics)))
        case "subscribePattern":
            query.compile_java_pattern("subscribePattern", text)
            name = "exclude.internal.topics"
            internal = name in kafka and not CONSUMER_KEYS[name].parse(kafka[name])
            return SubscribePattern(text, internal)
        case _:
            return AssignPartitions(query.parse_partitions("assign", text))


def _parse_start(
    values: Mapping[str, Any], kafka: Mapping[str, str], default: OffsetRangeLimit
) -> OffsetRangeLimit:
    offsets, time, times = (values[name] for name in STARTING_OPTIONS)
    if (offsets or "").lower() != "committed" or time is not None or times is not None:
        return _parse_range_limit(values, STARTING_OPTIONS, default)
    if "group.id" not in kafka:
        raise InputError("startingOffsets: committed needs kafka.group.id")
    return CommittedOffsets(kafka["group.id"].strip())


def _parse_range_limit(
    values: Mapping[str, Any], names: tuple[str, str, str], default: OffsetRangeLimit
) -> OffsetRangeLimit:
    """Parses a range limit as Spark: one timestamp wins over timestamps, these over offsets."""
    offsets, time, times = names
    if values[time] is not None:
        return GlobalTimestamp(time, values[time])
    if values[times] is not None:
        return SpecificTimestamps(times, query.parse_timestamps(times, values[times]))
    text = values[offsets]
    if text is None:
        return default
    limits: dict[str, OffsetRangeLimit] = {"earliest": EarliestOffsets(), "latest": LatestOffsets()}
    if text.lower() in limits:
        return limits[text.lower()]
    if text.startswith("{"):
        return SpecificOffsets(offsets, query.parse_offsets(offsets, text))
    allowed = [*limits, *(["committed"] if offsets == STARTING_OPTIONS[0] else [])]
    raise InputError(
        f"{offsets}: {quote_shortened(text)} is none of {', '.join(allowed)} and JSON like "
        f"{query.OFFSETS_EXAMPLE}"
    )


def _parse_trigger_delay(text: str) -> int:
    """Returns milliseconds, from Spark's notation of times."""
    match = re.fullmatch(r"([0-9]+)\s*(us|ms|s|min|m|h|d|)", text.lower())
    if match is None:
        shown = quote_shortened(text)
        raise InputError(f"maxTriggerDelay: {shown} is not a time like 15m, 30s or 500ms")
    units = {"s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
    return int(match[1]) // 1_000 if match[2] == "us" else int(match[1]) * units.get(match[2], 1)
