"""The broker's configuration: :func:`parse_config` turns the keys of a ``server.properties`` into
typed values; :func:`topic_config_entries` and :func:`broker_config_entries` list every key with its
value and where the value comes from, as DescribeConfigs shows it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from rota.engine.model.config import (
    HOUR,
    MAX_LONG,
    MINUTE,
    ONE_NODE_REASON,
    TOPIC_KEYS,
    BrokerConfig,
    ConfigKey,
    ConfigType,
    GroupConfig,
    TopicConfig,
    field_keys,
    format_config_value,
    unknown_key_message,
)
from rota.errors import InputError

ConfigInput: TypeAlias = Mapping[str, object]  # Kafka's names; values: text, numbers, booleans
ADVERTISED_LISTENERS = "advertised.listeners"
_SYNONYMS = {"broker.id": "node.id"}

_IGNORED_PREFIXES = (
    "alter. authorizer. client.quota. config.providers controlled. controller. delegation. "
    "eligible. follower. group.consumer. group.coordinator. group.share. group.streams. "
    "initial. inter. internal. kafka. leader. listener. listeners metadata. metric. metrics. "
    "password. principal. process. queued. quorum. quota. remote. replica. replication. "
    "reserved. rlmm. rsm. sasl. security. server. share. ssl. super. telemetry. transactional. "
    "unstable. zookeeper."
)

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

ConfigT = TypeVar("ConfigT", BrokerConfig, GroupConfig, TopicConfig)


def _topic_default_keys() -> Iterator[ConfigKey]:
    """Yields the broker's keys for topic defaults; of several for one field, the best first."""
    for key in TOPIC_KEYS.values():
        for name in key.broker_keys:
            unit = {"minutes": MINUTE, "hours": HOUR}.get(name.rpartition(".")[2], 1)
            most = key.maximum if unit == 1 else MAX_LONG // unit
            yield replace(key, name=name, unit=unit, maximum=most)


_BROKER_KEYS = {key.name: key for key in field_keys(BrokerConfig)}
_GROUP_KEYS = {key.name: key for key in field_keys(GroupConfig)}
_TOPIC_DEFAULT_KEYS = {key.name: key for key in _topic_default_keys()}

#: Keys whose only value is 1, because there is one node.
_REPLICATION_KEYS = {
    name: ConfigKey(name, ConfigType.INT, 1, choices=("1",), reason=ONE_NODE_REASON)
    for name in (
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
    )
}

BROKER_KEYS: Mapping[str, ConfigKey] = {
    **_BROKER_KEYS,
    **_GROUP_KEYS,
    **_TOPIC_DEFAULT_KEYS,
    **_REPLICATION_KEYS,
    ADVERTISED_LISTENERS: ConfigKey(ADVERTISED_LISTENERS, ConfigType.STRING),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProperties:
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    #: A broker for tests and one machine does not make the first member wait for others.
    group: GroupConfig = field(default_factory=lambda: GroupConfig(initial_rebalance_delay=0))
    topic: TopicConfig = field(default_factory=TopicConfig)
    advertised_listener: str | None = None
    ignored_keys: tuple[str, ...] = ()


def parse_config(settings: ConfigInput) -> ServerProperties:
    """Parses Kafka's settings; raises InputError that names an unknown or invalid setting."""
    ignored = find_ignored_keys(settings)
    values: dict[str, Any] = {}
    for given_name, value in settings.items():
        name = _SYNONYMS.get(given_name, given_name)
        if given_name in ignored:
            continue
        if name not in BROKER_KEYS:
            known = (*BROKER_KEYS, *_SYNONYMS)
            raise InputError(unknown_key_message(given_name, known, "a broker setting"))
        values[name] = BROKER_KEYS[name].parse_for_field(value)
    defaults = ServerProperties()
    listeners = values.get(ADVERTISED_LISTENERS)
    return ServerProperties(
        broker=_apply_values(defaults.broker, _BROKER_KEYS, values),
        group=_apply_values(defaults.group, _GROUP_KEYS, values),
        topic=_apply_values(defaults.topic, _TOPIC_DEFAULT_KEYS, values),
        # PLAINTEXT://host:port or host:port; of several, the first
        advertised_listener=listeners and listeners.partition(",")[0].strip().rpartition("//")[2],
        ignored_keys=tuple(ignored),
    )


def _apply_values(
    defaults: ConfigT, keys: Mapping[str, ConfigKey], values: Mapping[str, Any]
) -> ConfigT:
    changes: dict[str, Any] = {}
    for name, key in keys.items():
        if name in values and key.field is not None:
            changes.setdefault(key.field, values[name])
    return replace(defaults, **changes)


def find_ignored_keys(settings: ConfigInput) -> list[str]:
    """Returns the given keys that Kafka knows and that have no effect in Rota."""
    names, prefixes = frozenset(_IGNORED_KEYS.split()), tuple(_IGNORED_PREFIXES.split())
    return [key for key in settings if key in names or key.startswith(prefixes)]


class ConfigSource(enum.IntEnum):
    """Where a value comes from, with its number in DescribeConfigs."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A name of a setting, with the value that the setting has under this name."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    key: ConfigKey
    value: str | None  # None: the broker has no value under this name, but one under another
    synonyms: tuple[ConfigSynonym, ...]  # best first; the first one's value holds
    read_only: bool

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source if self.synonyms else ConfigSource.DEFAULT


def topic_config_entries(
    overrides: Mapping[str, str], defaults: TopicConfig
) -> Iterator[ConfigEntry]:
    for key in TOPIC_KEYS.values():
        own = overrides.get(key.name)
        if key.hidden and own is None:
            continue
        value, synonyms = _default_value(key, defaults), _broker_synonyms(key, defaults)
        if own is not None:
            value = format_config_value(key.parse(own))
            synonyms = (ConfigSynonym(key.name, value, ConfigSource.TOPIC), *synonyms)
        yield ConfigEntry(key.name, key, value, synonyms, read_only=False)


def _default_value(key: ConfigKey, defaults: TopicConfig) -> str:
    return format_config_value(key.default if key.field is None else getattr(defaults, key.field))


def _broker_synonyms(key: ConfigKey, defaults: TopicConfig) -> tuple[ConfigSynonym, ...]:
    """Returns the broker's values, as Kafka lists them: of several names only set ones."""
    if not key.broker_keys:
        return ()
    best, last = key.broker_keys[0], key.broker_keys[-1]
    value, default = _default_value(key, defaults), key.default
    if last.endswith(".hours"):
        assert isinstance(default, int)
        default //= HOUR
    by_default = ConfigSynonym(last, format_config_value(default), ConfigSource.DEFAULT)
    if value != format_config_value(key.default):
        return ConfigSynonym(best, value, ConfigSource.STATIC_BROKER), by_default
    return (by_default,) if best == last else ()


def broker_config_entries(
    config: BrokerConfig, groups: GroupConfig, defaults: TopicConfig
) -> Iterator[ConfigEntry]:
    """Yields all settings of Rota's broker, in the order of their keys; none can be altered."""
    entries: dict[str, tuple[ConfigKey, tuple[ConfigSynonym, ...]]] = {}
    for settings, keys in ((config, _BROKER_KEYS), (groups, _GROUP_KEYS)):
        for name, key in keys.items():
            assert key.field is not None
            value = getattr(settings, key.field)
            value = format_config_value(value // key.unit if key.unit > 1 else value)
            default = format_config_value(key.default)
            synonyms = [ConfigSynonym(name, default, ConfigSource.DEFAULT)]
            if value != default:
                synonyms.insert(0, ConfigSynonym(name, value, ConfigSource.STATIC_BROKER))
            entries[name] = key, tuple(synonyms)
    for key in TOPIC_KEYS.values():
        if key.broker_keys:
            entries[key.broker_keys[0]] = key, _broker_synonyms(key, defaults)
    for name, (key, known) in sorted(entries.items()):
        value = known[0].value if known else None
        yield ConfigEntry(name, key, value, known, read_only=True)
