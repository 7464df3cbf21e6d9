"""The broker's configuration: parsed from Kafka's keys, and listed as DescribeConfigs shows it.

:func:`parse_config` turns the keys of a ``server.properties`` into typed values.
:func:`topic_config_entries` and :func:`broker_config_entries` list every key with its value and
where the value comes from.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from rota.engine.model.config import (
    MAX_INT,
    TOPIC_CONFIG_KEYS,
    BrokerConfig,
    ConfigType,
    ConfigValue,
    GroupConfig,
    TopicConfig,
    TopicConfigKey,
    format_config_value,
    parse_topic_config,
)
from rota.engine.model.text import suggest_names
from rota.errors import InputError

#: Kafka's names, and values as text, numbers or booleans.
ConfigInput: TypeAlias = Mapping[str, object]

ADVERTISED_LISTENERS = "advertised.listeners"

#: Copies of things. There is one node, so there is one of each.
_REPLICATION_KEYS = frozenset(
    {
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
    }
)

_SYNONYMS = {"broker.id": "node.id"}

_TIME_UNITS = {".minutes": 60_000, ".hours": 3_600_000}

#: How settings of a Kafka begin of which no kind has an effect here.
_IGNORED_PREFIXES = (
    "alter. authorizer. client.quota. config.providers controlled. controller. delegation. "
    "eligible. follower. group.consumer. group.coordinator. group.share. group.streams. "
    "initial. inter. internal. kafka. leader. listener. listeners metadata. metric. metrics. "
    "password. principal. process. queued. quorum. quota. remote. replica. replication. "
    "reserved. rlmm. rsm. sasl. security. server. share. ssl. super. telemetry. transactional. "
    "unstable. zookeeper."
)

#: Other settings of a Kafka that have none.
_IGNORED_KEYS = (
    "add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms "
    "auto.include.jmx.reporter auto.leader.rebalance.enable background.threads "
    "broker.heartbeat.interval.ms broker.id.generation.enable broker.rack "
    "broker.session.timeout.ms connections.max.reauth.ms control.plane.listener.name "
    "cordoned.log.dirs create.topic.policy.class.name "
    "delete.records.purgatory.purge.interval.requests delete.topic.enable early.start.listeners "
    "fetch.purgatory.purge.interval.requests log.cleaner.dedupe.buffer.size log.cleaner.enable "
    "log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size "
    "log.cleaner.io.max.bytes.per.second log.cleaner.threads log.dir log.dir.failure.timeout.ms "
    "log.dirs log.flush.start.offset.checkpoint.interval.ms log.initial.task.delay.ms "
    "log.message.downconversion.enable log.message.format.version "
    "log.message.timestamp.difference.max.ms max.connection.creation.rate "
    "max.connections.per.ip max.connections.per.ip.overrides "
    "max.incremental.fetch.session.cache.slots max.request.partition.size.limit num.io.threads "
    "num.network.threads num.recovery.threads.per.data.dir num.replica.alter.log.dirs.threads "
    "num.replica.fetchers offsets.commit.required.acks offsets.commit.timeout.ms "
    "offsets.load.buffer.size offsets.topic.compression.codec "
    "producer.id.expiration.check.interval.ms producer.purgatory.purge.interval.requests "
    "request.timeout.ms socket.connection.setup.timeout.max.ms "
    "socket.connection.setup.timeout.ms socket.listen.backlog.size socket.receive.buffer.bytes "
    "socket.send.buffer.bytes transaction.abort.timed.out.transaction.cleanup.interval.ms "
    "transaction.max.timeout.ms transaction.partition.verification.enable "
    "transaction.remove.expired.transaction.cleanup.interval.ms "
    "transaction.state.log.load.buffer.size transaction.state.log.num.partitions "
    "transaction.state.log.segment.bytes transaction.two.phase.commit.enable "
    "unclean.leader.election.interval.ms"
)

ConfigT = TypeVar("ConfigT", BrokerConfig, GroupConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProperties:
    """The parsed configuration of a broker."""

    broker: BrokerConfig = field(default_factory=BrokerConfig)
    #: A broker for tests and one machine does not make the first member wait for others.
    group: GroupConfig = field(default_factory=lambda: GroupConfig(initial_rebalance_delay=0))
    #: Defaults of topics that have no settings of their own.
    topic: TopicConfig = field(default_factory=TopicConfig)
    #: ``host:port`` that the broker sends to clients in Metadata.
    advertised_listener: str | None = None
    #: Keys of Kafka that have no effect in Rota.
    ignored_keys: tuple[str, ...] = ()


def parse_config(given: ConfigInput) -> ServerProperties:
    """Parses Kafka's settings into typed values.

    :raises InputError: a setting is unknown or has a value it cannot have; the message names
        it
    """
    texts = {_SYNONYMS.get(key, key): _value_to_text(key, value) for key, value in given.items()}
    advertised = texts.pop(ADVERTISED_LISTENERS, None)
    idle = find_ignored_keys(texts)
    for key in idle:
        del texts[key]
    for key in _REPLICATION_KEYS & texts.keys():
        if texts.pop(key).strip() != "1":
            raise InputError(f"{key}: there is one node, so it can only be 1")
    topic = _take_topic_config(texts)
    broker = _take_config(BrokerConfig(), texts)
    group = _take_config(ServerProperties().group, texts)
    if texts:
        key = next(iter(texts))
        near = suggest_names(key, known_keys())
        raise InputError(f"{key!r} is not a setting that Rota's broker has{near}")
    return ServerProperties(
        broker=broker,
        group=group,
        topic=topic,
        advertised_listener=None if advertised is None else _parse_first_listener(advertised),
        ignored_keys=tuple(idle),
    )


def known_keys() -> list[str]:
    """Every name that a broker of Rota's can be given."""
    keys = {*_REPLICATION_KEYS, *_SYNONYMS, ADVERTISED_LISTENERS}
    for part in (BrokerConfig, GroupConfig):
        keys.update(each.metadata["key"] for each in fields(part))
    for setting in TOPIC_CONFIG_KEYS.values():
        keys.update(setting.broker_keys)
    return sorted(key for key in keys if key is not None)


def find_ignored_keys(given: ConfigInput) -> list[str]:
    """Returns the given keys that Kafka knows and that have no effect in Rota."""
    idle, families = frozenset(_IGNORED_KEYS.split()), tuple(_IGNORED_PREFIXES.split())
    return [key for key in given if key in idle or key.startswith(families)]


def parse_properties(text: str) -> dict[str, str]:
    """The settings of a ``.properties`` file, as Java reads them but for escapes.

    :raises InputError: a line is no setting
    """
    settings: dict[str, str] = {}
    lines = text.replace("\\\n", "").splitlines()
    for number, line in enumerate(lines, 1):
        plain = line.strip()
        if not plain or plain[0] in "#!":
            continue
        key, sign, value = plain.partition("=")
        if not sign or not key.strip():
            raise InputError(f"line {number}: {plain[:60]!r} is not KEY=VALUE")
        settings[key.strip()] = value.strip()
    return settings


def _value_to_text(key: str, value: object) -> str:
    if isinstance(value, bool | int | float | str):
        return format_config_value(value)
    raise InputError(f"{key}: {value!r} is neither a text nor a number nor a boolean")


def _take_topic_config(texts: dict[str, str]) -> TopicConfig:
    """Takes what the broker says for topics without settings of their own. Where Kafka has several
    names for one (``log.retention.ms``, ``.minutes``, ``.hours``), the first holds.
    """
    config = TopicConfig()
    for setting in TOPIC_CONFIG_KEYS.values():
        said = [(key, texts.pop(key)) for key in setting.broker_keys if key in texts]
        if said:
            key, text = said[0]
            for ending, unit in _TIME_UNITS.items():
                if key.endswith(ending):
                    text = _scale_time(key, text, unit)
            try:
                config = parse_topic_config({setting.key: text}, config)
            except InputError as error:
                raise InputError(str(error).replace(setting.key, key, 1)) from error
    return config


def _scale_time(key: str, text: str, unit: int) -> str:
    number = _parse_int(key, text)
    return str(number if number == -1 else number * unit)


def _take_config(defaults: ConfigT, texts: dict[str, str]) -> ConfigT:
    changes: dict[str, ConfigValue] = {}
    for each in fields(defaults):
        key = each.metadata["key"]
        if key not in texts:
            continue
        text, default = texts.pop(key).strip(), getattr(defaults, each.name)
        if isinstance(default, bool):
            if text.lower() not in {"true", "false"}:
                raise InputError(f"{key}: {text!r} is neither true nor false")
            changes[each.name] = text.lower() == "true"
        elif isinstance(default, int):
            changes[each.name] = _parse_int(key, text) * each.metadata["unit"]
        else:
            changes[each.name] = text
    return replace(defaults, **changes)  # type: ignore[arg-type]


def _parse_int(key: str, text: str) -> int:
    try:
        if "_" not in text:
            return int(text)
    except ValueError:
        pass
    raise InputError(f"{key}: {text!r} is not a whole number")


def _parse_first_listener(text: str) -> str:
    """``PLAINTEXT://host:port`` or plain ``host:port``; of several, the first."""
    return text.partition(",")[0].strip().rpartition("//")[2]


class ConfigSource(enum.IntEnum):
    """Where a value comes from, by its number in DescribeConfigs."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A value that a setting would have by a name, if no better name had one."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A setting, its value and where the value comes from."""

    key: str
    kind: ConfigType
    #: None where the broker has no value under this name, but one under another.
    value: str | None
    #: Best first; the best one is the value, if there is any.
    synonyms: tuple[ConfigSynonym, ...]
    read_only: bool
    documentation: str

    @property
    def source(self) -> ConfigSource:
        """Of the value."""
        return self.synonyms[0].source if self.synonyms else ConfigSource.DEFAULT


def topic_config_entries(
    overrides: Mapping[str, str], defaults: TopicConfig
) -> Iterator[ConfigEntry]:
    """All settings of a topic, in the order of their keys."""
    for setting in TOPIC_CONFIG_KEYS.values():
        own = overrides.get(setting.key)
        if setting.hidden and own is None:
            continue
        inherited = _broker_synonyms(setting, defaults)
        if own is None:
            field = setting.field
            value = format_config_value(
                setting.default if field is None else getattr(defaults, field)
            )
            synonyms = inherited
        else:
            value = format_config_value(setting.parse(own))
            synonyms = (ConfigSynonym(setting.key, value, ConfigSource.TOPIC), *inherited)
        yield ConfigEntry(
            key=setting.key,
            kind=setting.config_type,
            value=value,
            synonyms=synonyms,
            read_only=False,
            documentation=setting.description,
        )


_HOUR_KEYS: Mapping[str, int] = MappingProxyType(
    dict.fromkeys(("log.retention.hours", "log.roll.hours", "log.roll.jitter.hours"), 3_600_000)
)


def _broker_synonyms(setting: TopicConfigKey, defaults: TopicConfig) -> tuple[ConfigSynonym, ...]:
    """What the broker says of a topic's setting, as Kafka lists it.

    Where the broker has several names for it, the best of them has no default, and Kafka lists
    nothing at all unless that one is set.
    """
    if not setting.broker_keys:
        return ()
    best, last = setting.broker_keys[0], setting.broker_keys[-1]
    value = setting.default if setting.field is None else getattr(defaults, setting.field)
    plain = setting.default
    if last in _HOUR_KEYS:
        assert isinstance(plain, int)
        plain //= _HOUR_KEYS[last]
    default = ConfigSynonym(last, format_config_value(plain), ConfigSource.DEFAULT)
    if value != setting.default:
        return (
            ConfigSynonym(best, format_config_value(value), ConfigSource.STATIC_BROKER),
            default,
        )
    return (default,) if best == last else ()


def broker_config_entries(
    config: BrokerConfig, groups: GroupConfig, defaults: TopicConfig
) -> Iterator[ConfigEntry]:
    """All settings of the broker that Rota has, in the order of their keys; none can be altered."""
    found: dict[str, ConfigEntry] = {}
    for part in (config, groups):
        plain = type(part)()
        for each in fields(part):
            key, unit = each.metadata["key"], each.metadata.get("unit", 1)
            if key is not None:
                value, default = getattr(part, each.name), getattr(plain, each.name)
                if unit > 1:
                    value, default = value // unit, default // unit
                found[key] = _make_broker_entry(
                    key, _config_kind(value, each.metadata), value, default
                )
    for setting in TOPIC_CONFIG_KEYS.values():
        if setting.broker_keys:
            name = setting.broker_keys[0]
            synonyms = _broker_synonyms(setting, defaults)
            found[name] = ConfigEntry(
                key=name,
                kind=setting.config_type,
                value=synonyms[0].value if synonyms else None,
                synonyms=synonyms,
                read_only=True,
                documentation=setting.description,
            )
    return iter(found[key] for key in sorted(found))


def _make_broker_entry(
    key: str, kind: ConfigType, value: ConfigValue, default: ConfigValue
) -> ConfigEntry:
    best = ConfigSynonym(key, format_config_value(default), ConfigSource.DEFAULT)
    changed = (
        (ConfigSynonym(key, format_config_value(value), ConfigSource.STATIC_BROKER),)
        if value != default
        else ()
    )
    return ConfigEntry(
        key=key,
        kind=kind,
        value=format_config_value(value),
        synonyms=(*changed, best),
        read_only=True,
        documentation="",
    )


def _config_kind(value: ConfigValue, about: Mapping[str, object]) -> ConfigType:
    if isinstance(value, bool):
        return ConfigType.BOOLEAN
    if isinstance(value, str):
        return ConfigType.STRING
    return (
        ConfigType.INT
        if about.get("most") == MAX_INT * int(str(about.get("unit", 1)))
        else ConfigType.LONG
    )
