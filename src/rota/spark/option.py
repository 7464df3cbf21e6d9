"""The options of the source, under the names that Spark's own Kafka source has for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, TypedDict

from rota.client import alias, setting
from rota.client.setting import Settings
from rota.client.table import KEYS
from rota.errors import InputError, Unreachable
from rota.model.client import ReadConfig
from rota.model.text import nearest, shortened
from rota.spark import pattern, spec
from rota.spark.query import (
    At,
    AtEach,
    Committed,
    Earliest,
    Given,
    Latest,
    Options,
    Partitions,
    Pattern,
    Subscription,
    Topics,
    Where,
)

PREFIX: Final = "kafka."
CLIENT_ID: Final = "rota-spark"
INTERNAL: Final = "exclude.internal.topics"
NAMES: Final = (
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
"""Every option but Kafka's own."""
STARTING: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
ENDING: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
TRIGGER: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
REFUSED: Final[Mapping[str, str]] = {
    "auto.offset.reset": "where to begin is said by startingOffsets",
    "enable.auto.commit": "Spark's checkpoint has the offsets; rota.spark.commit_to_group mirrors "
    "them to a group",
    "interceptor.classes": "no consumer is there that could call them",
    "key.deserializer": "keys come as bytes; use cast, from_json and the like",
    "value.deserializer": "values come as bytes; use cast, from_json and the like",
}
"""Settings of Kafka that make no sense here, and what to do instead."""
IDLE: Final[Mapping[str, str]] = {
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
"""Settings of Kafka that are taken, and do nothing here: why."""
_NUMBER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_SPAN = re.compile(r"(\d+)\s*([a-z]*)", re.ASCII)
_UNITS = {  # in microseconds
    "us": 1,
    **dict.fromkeys(("", "ms"), 1_000),
    "s": 1_000_000,
    **dict.fromkeys(("m", "min"), 60_000_000),
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}


class _Limits(TypedDict):
    most_offsets: int | None
    least_offsets: int | None
    longest_delay: int


def read(given: Mapping[str, str], *, streaming: bool | None = None) -> Options:
    """The options that a query was given.

    :param streaming: None: not known yet; what only one kind of query has is taken from both
    :raises InputError: one is unknown, malformed, refused, or does not fit to the others
    :raises Unreachable: a file that one of them names cannot be read
    """
    own, kafka = _split(given)
    if streaming:
        _check_endless(own)
    idle = [f"{PREFIX}{name}: without effect here: {IDLE[name]}" for name in kafka if name in IDLE]
    settings = _settings({name: kafka[name] for name in kafka if name not in IDLE})
    batch_info = _flag(own, "includeBatchInfo", default=False)
    reading = settings.read
    if batch_info:
        reading = replace(reading, isolation="read_uncommitted")
    return Options(
        client=settings.client,
        read=reading,
        subscription=_subscription(own, kafka),
        start=_start(own, kafka, Latest() if streaming else Earliest()),
        end=_place(own, ENDING, Latest()),
        late_is_latest=_strategy(own),
        **_limits(own),
        least_tasks=_count(own, "minPartitions"),
        most_records=_count(own, "maxRecordsPerPartition"),
        slots=_count(own, "slots"),
        fail_on_loss=_flag(own, "failOnDataLoss", default=True),
        headers=_flag(own, "includeHeaders", default=False),
        batch_info=batch_info,
        patience=_count(own, "kafkaConsumer.pollTimeoutMs") or 120_000,
        tries=_count(own, "fetchOffset.numRetries") or 3,
        pause=_number(own, "fetchOffset.retryIntervalMs", least=0, default=1_000),
        warnings=(
            *(f"{PREFIX}{each}" for each in settings.warnings),
            *idle,
            *_unwise(own, settings.read, batch_info=batch_info),
        ),
        batch_warnings=tuple(
            f"{name}: without effect: a batch query has no triggers"
            for name in TRIGGER
            if name in own
        ),
    )


def _split(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Ours by their names, and Kafka's. Spark's options know no upper and lower case."""
    names = {name.lower(): name for name in NAMES}
    own: dict[str, str] = {}
    kafka: dict[str, str] = {}
    for name, value in given.items():
        low = name.lower()
        if low.startswith(PREFIX):
            key = low.removeprefix(PREFIX)
            if key in REFUSED:
                raise InputError(f"{PREFIX}{key}: not for this source: {REFUSED[key]}")
            if key not in KEYS:
                why = alias.unknown(key).removeprefix(f"{key}: ")
                raise InputError(f"{PREFIX}{key}: {why}")
            kafka[key] = value
        elif low in names:
            own[names[low]] = value
        else:
            raise InputError(_unknown(name))
    if "bootstrap.servers" not in kafka:
        raise InputError("kafka.bootstrap.servers: is needed, like host:9092")
    return own, kafka


def _unknown(name: str) -> str:
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
            return f"{name}: Kafka's settings begin with {PREFIX} here: {PREFIX}{low}"
        case low:
            return f"{name}: there is no such option{nearest(low, NAMES)}"


def _settings(kafka: Mapping[str, str]) -> Settings:
    """Kafka's own settings; errors name them as they are named here."""
    try:
        return setting.read({"client.id": CLIENT_ID, **kafka})
    except (InputError, Unreachable) as error:
        raise type(error)(f"{PREFIX}{error}") from None


def _check_endless(own: Mapping[str, str]) -> None:
    for name in ENDING:
        if name in own:
            raise InputError(f"{name}: a stream has no end")


def _unwise(own: Mapping[str, str], reading: ReadConfig, *, batch_info: bool) -> Iterator[str]:
    for offsets, time, times in (STARTING, ENDING):
        given = [name for name in (time, times, offsets) if name in own]
        for name in given[1:]:
            yield f"{name}: without effect beside {given[0]}"
    if "groupIdPrefix" in own:
        yield "groupIdPrefix: without effect: nothing is read as a group"
    if batch_info and reading.committed_only:
        yield (
            f"{PREFIX}isolation.level: without effect beside includeBatchInfo, which shows "
            "records of aborted transactions, too"
        )


def _limits(own: Mapping[str, str]) -> _Limits:
    most, least = _count(own, "maxOffsetsPerTrigger"), _count(own, "minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise InputError(
            f"minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, which is {most}"
        )
    delay = _span(own, "maxTriggerDelay", 15 * 60_000)
    return {"most_offsets": most, "least_offsets": least, "longest_delay": delay}


def _subscription(own: Mapping[str, str], kafka: Mapping[str, str]) -> Subscription:
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
            return Topics(tuple(dict.fromkeys(topics)))
        case "subscribePattern":
            pattern.compiled("subscribePattern", text)
            internal = INTERNAL in kafka and not KEYS[INTERNAL].parse(kafka[INTERNAL])
            return Pattern(text, internal)
        case _:
            return Partitions(spec.partitions("assign", text))


def _start(own: Mapping[str, str], kafka: Mapping[str, str], default: Where) -> Where:
    offsets, time, times = STARTING
    if own.get(offsets, "").strip().lower() != "committed" or time in own or times in own:
        return _place(own, STARTING, default)
    if "group.id" not in kafka:
        raise InputError("startingOffsets: committed needs kafka.group.id: whose offsets?")
    return Committed(kafka["group.id"].strip())


def _place(own: Mapping[str, str], names: tuple[str, str, str], default: Where) -> Where:
    """A time for all comes before times for each, and those before offsets, as in Spark's own."""
    offsets, time, times = names
    if time in own:
        return At(time, _number(own, time, least=spec.EARLIEST, default=0))
    if times in own:
        return AtEach(times, spec.times(times, own[times]))
    if offsets not in own:
        return default
    text = own[offsets].strip()
    words: dict[str, Where] = {"earliest": Earliest(), "latest": Latest()}
    if text.lower() in words:
        return words[text.lower()]
    if text.startswith("{"):
        return Given(offsets, spec.offsets(offsets, text))
    known = [*words, *(["committed"] if offsets == STARTING[0] else [])]
    raise InputError(
        f"{offsets}: {shortened(text)} is none of {', '.join(known)} and JSON like {spec.EXAMPLE}"
    )


def _strategy(own: Mapping[str, str]) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    text = own.get(name, "error").strip().lower()
    if text not in {"error", "latest"}:
        raise InputError(f"{name}: {shortened(text)} is neither error nor latest")
    return text == "latest"


def _flag(own: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = own.get(name, str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise InputError(f"{name}: {shortened(own[name])} is neither true nor false")
    return text == "true"


def _count(own: Mapping[str, str], name: str) -> int | None:
    return _number(own, name, least=1, default=0) if name in own else None


def _number(own: Mapping[str, str], name: str, *, least: int, default: int) -> int:
    text = own.get(name, str(default))
    if _NUMBER.fullmatch(text.strip()) is None:
        raise InputError(f"{name}: {shortened(text)} is no whole number")
    found = int(text)
    if not least <= found <= spec.LARGEST:
        raise InputError(f"{name}: {found} is out of bounds: from {least} to {spec.LARGEST}")
    return found


def _span(own: Mapping[str, str], name: str, default: int) -> int:
    if name not in own:
        return default
    found = _SPAN.fullmatch(own[name].strip().lower())
    if found is None or found[2] not in _UNITS:
        raise InputError(f"{name}: {shortened(own[name])} is no time like 15m, 30s or 500ms")
    return int(found[1]) * _UNITS[found[2]] // 1_000
