"""The options of the source, under the names that Spark's own Kafka source has for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from rota.client import setting
from rota.errors import InputError
from rota.model.client import ClientConfig, ReadConfig
from rota.model.text import compiled, nearest, shortened
from rota.model.topic import TopicPartition
from rota.spark import spec

PREFIX: Final = "kafka."
CLIENT_ID = "rota-spark"
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
ENDING: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
TRIGGER: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
"""Without effect in a batch query, as in Spark's own."""
REFUSED: Final[Mapping[str, str]] = {
    "auto.offset.reset": "where to begin is said by startingOffsets",
    "enable.auto.commit": "Spark's checkpoint has the offsets; rota.spark.commit_to_group mirrors "
    "them to a group",
    "interceptor.classes": "no consumer is there that could call them",
    "key.deserializer": "keys come as bytes; use cast, from_json and the like",
    "value.deserializer": "values come as bytes; use cast, from_json and the like",
}
"""Settings of Kafka that make no sense here, and what to do instead."""
_SPAN = re.compile(r"\s*(\d+)\s*([a-z]*)\s*")
_UNITS = {
    **dict.fromkeys(("", "ms"), 1),
    "s": 1_000,
    **dict.fromkeys(("m", "min"), 60_000),
    "h": 3_600_000,
    "d": 86_400_000,
}


@dataclass(frozen=True, slots=True)
class Topics:
    """Which topics to read: these."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """All topics, but for internal ones, in whose name this is found, as in Spark's own."""

    text: str


@dataclass(frozen=True, slots=True)
class Partitions:
    """These partitions."""

    partitions: tuple[TopicPartition, ...]


Subscription: TypeAlias = Topics | Pattern | Partitions


@dataclass(frozen=True, slots=True)
class Earliest:
    """At the beginning of each partition."""


@dataclass(frozen=True, slots=True)
class Latest:
    """At the end of each partition."""


@dataclass(frozen=True, slots=True)
class Committed:
    """At what the group has committed; at the beginning where that is nothing."""


@dataclass(frozen=True, slots=True)
class Given:
    """At these offsets; -1 is the end, -2 the beginning."""

    option: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class At:
    """At the first record that is not older than a time, of each partition.

    As in Kafka's own protocol, the time -1 is the end, -2 the beginning.
    """

    option: str
    time: int


@dataclass(frozen=True, slots=True)
class AtEach:
    """The same with a time for each partition."""

    option: str
    times: Mapping[TopicPartition, int]


Where: TypeAlias = Earliest | Latest | Committed | Given | At | AtEach


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a query asks for, checked."""

    client: ClientConfig
    read: ReadConfig
    group: str | None
    subscription: Subscription
    start: Where
    end: Where
    late_is_latest: bool
    """A start by a time that no record has reached is the end of the partition, not an error."""
    most_offsets: int | None
    """For each trigger."""
    least_offsets: int | None
    longest_delay: int
    """Milliseconds until there is a trigger with fewer."""
    least_tasks: int | None
    most_records: int | None
    """Of a task."""
    slots: int | None
    fail_on_loss: bool
    headers: bool
    batch_info: bool
    patience: int
    """Milliseconds without progress until a task gives up."""
    tries: int
    """How often the driver looks offsets up before it gives up."""
    pause: int
    """Milliseconds between them."""
    warnings: tuple[str, ...] = ()


def read(given: Mapping[str, str], *, streaming: bool | None = None) -> Options:
    """The options that a query was given.

    :param streaming: None: not known yet; what only one kind of query has is taken from both
    :raises InputError: one is unknown, malformed, refused, or does not fit to the others
    """
    own, kafka = _split(given)
    if streaming:
        _check_endless(own)
    settings = _settings(kafka)
    batch_info = _flag(own, "includeBatchInfo", default=False)
    group = kafka.get("group.id")
    start = _start(own, Latest() if streaming else Earliest())
    if isinstance(start, Committed) and group is None:
        raise InputError("startingOffsets: committed needs kafka.group.id: whose offsets?")
    reading = settings.read
    if batch_info:
        reading = replace(reading, isolation="read_uncommitted")
    found = Options(
        client=settings.client,
        read=reading,
        group=group,
        subscription=_subscription(own),
        start=start,
        end=_place(own, ENDING, Latest()),
        late_is_latest=_strategy(own),
        most_offsets=_count(own, "maxOffsetsPerTrigger"),
        least_offsets=_count(own, "minOffsetsPerTrigger"),
        longest_delay=_span(own, "maxTriggerDelay", 15 * 60_000),
        least_tasks=_count(own, "minPartitions"),
        most_records=_count(own, "maxRecordsPerPartition"),
        slots=_count(own, "slots"),
        fail_on_loss=_flag(own, "failOnDataLoss", default=True),
        headers=_flag(own, "includeHeaders", default=False),
        batch_info=batch_info,
        patience=_count(own, "kafkaConsumer.pollTimeoutMs") or 120_000,
        tries=_count(own, "fetchOffset.numRetries") or 3,
        pause=_count(own, "fetchOffset.retryIntervalMs", least=0) or 0,
        warnings=settings.warnings + (_without_effect(own) if streaming is False else ()),
    )
    _check_limits(found)
    return found


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
            kafka[key] = value
        elif low in names:
            own[names[low]] = value
        else:
            raise InputError(_unknown(name))
    if "bootstrap.servers" not in kafka:
        raise InputError("kafka.bootstrap.servers: is needed, like host:9092")
    return own, kafka


def _unknown(name: str) -> str:
    low = name.lower()
    if low == "group.membership":
        return f"{name}: not built yet: a query reads all partitions, whoever else is in the group"
    if low == "path":
        return "load() takes no path: what to read is said by subscribe, subscribePattern or assign"
    known = {each.lower(): each for each in (*NAMES, "kafka.bootstrap.servers", "kafka.group.id")}
    close = nearest(low, known)
    for each, name_of in known.items():
        close = close.replace(each, name_of)
    return f"{name}: there is no such option{close}"


def _settings(kafka: Mapping[str, str]) -> setting.Settings:
    try:
        return setting.read({"client.id": CLIENT_ID, **kafka})
    except InputError as error:
        # under the name by which it was given
        ours = str(error).partition(":")[0] in kafka
        raise InputError(f"{PREFIX}{error}") from None if ours else error


def _check_endless(own: Mapping[str, str]) -> None:
    for name in ENDING:
        if name in own:
            raise InputError(f"{name}: a stream has no end")


def _without_effect(own: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{name}: a batch query has no triggers" for name in TRIGGER if name in own)


def _check_limits(found: Options) -> None:
    least, most = found.least_offsets, found.most_offsets
    if least is not None and most is not None and least > most:
        raise InputError(
            f"minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger allows, {most}"
        )


def _subscription(own: Mapping[str, str]) -> Subscription:
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
            try:
                compiled(text)
            except InputError as error:
                raise InputError(f"subscribePattern: {error}") from None
            return Pattern(text)
        case _:
            return Partitions(spec.partitions("assign", text))


def _start(own: Mapping[str, str], default: Where) -> Where:
    names = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
    return _place(own, names, default)


def _place(own: Mapping[str, str], names: tuple[str, str, str], default: Where) -> Where:
    """A time for all comes before times for each, and those before offsets, as in Spark's own."""
    offsets, time, times = names
    if time in own:
        return At(time, _number(time, own[time], least=spec.EARLIEST))
    if times in own:
        return AtEach(times, spec.times(times, own[times]))
    if offsets not in own:
        return default
    text = own[offsets].strip()
    words: dict[str, Where] = {"earliest": Earliest(), "latest": Latest()}
    if offsets == "startingOffsets":
        words["committed"] = Committed()
    if text.lower() in words:
        return words[text.lower()]
    if text.startswith("{"):
        return Given(offsets, spec.offsets(offsets, text))
    raise InputError(
        f"{offsets}: {shortened(text)} is none of {', '.join(words)} and JSON like {spec.EXAMPLE}"
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


def _count(own: Mapping[str, str], name: str, *, least: int = 1) -> int | None:
    return _number(name, own[name], least=least) if name in own else None


def _number(name: str, text: str, *, least: int) -> int:
    try:
        found = int(text)
    except ValueError:
        raise InputError(f"{name}: {shortened(text)} is no whole number") from None
    if not least <= found <= spec.LARGEST:
        raise InputError(f"{name}: {found} is out of bounds: at least {least}")
    return found


def _span(own: Mapping[str, str], name: str, default: int) -> int:
    if name not in own:
        return default
    found = _SPAN.fullmatch(own[name].lower())
    if found is None or found[2] not in _UNITS:
        raise InputError(f"{name}: {shortened(own[name])} is no time like 15m, 30s or 500ms")
    return int(found[1]) * _UNITS[found[2]]
