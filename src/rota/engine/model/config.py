"""Configuration under Kafka's keys, with Kafka's defaults and bounds.

Each ``...Config`` class is one table: groups, members, topics, brokers, connections, fetching. The
metadata of a field holds the Kafka ``key``, and for a number its lowest (``least``) and highest
(``most``) value. Kafka gives some times no lower bound, though a negative time has no meaning; here
all have one. All times are in milliseconds. ``unit`` converts: it is 60,000 where Kafka counts
minutes.

:data:`TOPIC_CONFIG_KEYS` lists every key that Kafka 4.3 has for topics, with the type that
DescribeConfigs reports. Most keys set a field of :class:`TopicConfig`. The others concern what a
single node does not have (replicas, remote storage) or what Rota does not do (recompress batches);
of their values, only those that ask for nothing are accepted.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rota.engine.model.text import find_string_problem, quote_shortened, suggest_names
from rota.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MINUTE = 60_000

DAY = 24 * 60 * MINUTE

#: The highest numbers of Kafka's types.
MAX_INT, MAX_LONG = 2**31 - 1, 2**63 - 1


def number_field(
    key: str | None, default: int, *, least: int = 0, most: int = MAX_INT, unit: int = 1
) -> int:
    """Returns a dataclass field for a key whose value is a whole number."""
    value: int = field(
        default=default, metadata={"key": key, "least": least, "most": most * unit, "unit": unit}
    )
    return value


def ratio_field(key: str, default: float) -> float:
    """Returns a dataclass field for a key whose value is a number from 0 to 1."""
    value: float = field(
        default=default, metadata={"key": key, "least": 0, "most": 1, "ratio": True, "unit": 1}
    )
    return value


def choice_field(key: str, default: str, *others: str) -> str:
    """Returns a dataclass field for a key with a fixed list of values."""
    value: str = field(default=default, metadata={"key": key, "choices": (default, *others)})
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Broker configuration for groups. Times are in milliseconds."""

    min_session_timeout: int = number_field("group.min.session.timeout.ms", 6_000)
    max_session_timeout: int = number_field("group.max.session.timeout.ms", 30 * MINUTE)
    initial_rebalance_delay: int = number_field("group.initial.rebalance.delay.ms", 3_000)
    max_size: int = number_field("group.max.size", MAX_INT, least=1)
    offset_metadata_max: int = number_field("offset.metadata.max.bytes", 4_096)
    #: In milliseconds too, though Kafka counts minutes.
    offsets_retention: int = number_field(
        "offsets.retention.minutes", 7 * DAY, least=1, unit=MINUTE
    )
    retention_check_interval: int = number_field(
        "offsets.retention.check.interval.ms", 10 * MINUTE, least=1, most=MAX_LONG
    )
    #: How long a new member may wait for its first join to complete; fixed in Kafka.
    new_member_timeout: int = number_field(None, 5 * MINUTE, least=1)

    def __post_init__(self) -> None:
        check_config(self)
        if self.min_session_timeout > self.max_session_timeout:
            raise InputError(
                f"group.min.session.timeout.ms: {self.min_session_timeout} is more than "
                f"group.max.session.timeout.ms, {self.max_session_timeout}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """Consumer configuration for group membership. Times are in milliseconds."""

    group: str = field(metadata={"key": "group.id"})
    client_id: str = field(default="rota", metadata={"key": "client.id"})
    group_instance_id: str | None = field(default=None, metadata={"key": "group.instance.id"})
    rack: str | None = field(default=None, metadata={"key": "client.rack"})
    session_timeout: int = number_field("session.timeout.ms", 45_000, least=1)
    heartbeat_interval: int = number_field("heartbeat.interval.ms", 3_000, least=1)
    max_poll_interval: int = number_field("max.poll.interval.ms", 5 * MINUTE, least=1)
    retry_backoff: int = number_field("retry.backoff.ms", 100, most=MAX_LONG)
    retry_backoff_max: int = number_field("retry.backoff.max.ms", 1_000, most=MAX_LONG)
    auto_commit: bool = field(default=True, metadata={"key": "enable.auto.commit"})
    auto_commit_interval: int = number_field("auto.commit.interval.ms", 5_000)
    exclude_internal: bool = field(default=True, metadata={"key": "exclude.internal.topics"})

    def __post_init__(self) -> None:
        check_config(self)
        if not self.group:
            raise InputError("group.id: a member needs the name of its group")
        if self.group_instance_id == "":
            raise InputError("group.instance.id: may be absent, but not empty")
        if self.heartbeat_interval >= self.session_timeout:
            raise InputError(
                f"heartbeat.interval.ms: {self.heartbeat_interval} is not less than "
                f"session.timeout.ms, {self.session_timeout}"
            )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about values that are allowed but unwise."""
        if self.heartbeat_interval * 3 > self.session_timeout:
            return (
                f"heartbeat.interval.ms {self.heartbeat_interval} is more than a third of "
                f"session.timeout.ms {self.session_timeout}: two lost heartbeats end the session",
            )
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Topic configuration. Times are in milliseconds; -1 means no limit where Kafka says so."""

    cleanup_policy: str = choice_field("cleanup.policy", "delete", "compact", "compact,delete", "")
    delete_retention: int = number_field("delete.retention.ms", DAY, most=MAX_LONG)
    flush_messages: int = number_field("flush.messages", MAX_LONG, least=1, most=MAX_LONG)
    flush_interval: int = number_field("flush.ms", MAX_LONG, most=MAX_LONG)
    index_interval: int = number_field("index.interval.bytes", 4_096)
    max_compaction_lag: int = number_field(
        "max.compaction.lag.ms", MAX_LONG, least=1, most=MAX_LONG
    )
    max_message_bytes: int = number_field("max.message.bytes", 1_048_588)
    timestamp_after_max: int = number_field(
        "message.timestamp.after.max.ms", 60 * MINUTE, most=MAX_LONG
    )
    timestamp_before_max: int = number_field(
        "message.timestamp.before.max.ms", MAX_LONG, most=MAX_LONG
    )
    timestamp_type: str = choice_field("message.timestamp.type", "CreateTime", "LogAppendTime")
    min_cleanable_ratio: float = ratio_field("min.cleanable.dirty.ratio", 0.5)
    min_compaction_lag: int = number_field("min.compaction.lag.ms", 0, most=MAX_LONG)
    retention_bytes: int = number_field("retention.bytes", -1, least=-MAX_LONG, most=MAX_LONG)
    retention: int = number_field("retention.ms", 7 * DAY, least=-1, most=MAX_LONG)
    #: A topic's own may not be under 1 MiB, but for tests (``internal.segment.bytes``).
    segment_bytes: int = number_field("segment.bytes", 1 << 30, least=1)
    segment_index_bytes: int = number_field("segment.index.bytes", 10 << 20, least=4)
    segment_ms: int = number_field("segment.ms", 7 * DAY, least=1, most=MAX_LONG)

    def __post_init__(self) -> None:
        check_config(self)

    @property
    def is_compacted(self) -> bool:
        """Whether old values of a key are removed."""
        return "compact" in self.cleanup_policy

    @property
    def deletes_old_segments(self) -> bool:
        """Whether old segments are deleted."""
        return "delete" in self.cleanup_policy


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Broker configuration, without groups and topics. Times are in milliseconds."""

    node_id: int = number_field("node.id", 1)
    auto_create_topics: bool = field(default=True, metadata={"key": "auto.create.topics.enable"})
    default_partitions: int = number_field("num.partitions", 1, least=1)
    offsets_partitions: int = number_field("offsets.topic.num.partitions", 50, least=1)
    offsets_segment_bytes: int = number_field("offsets.topic.segment.bytes", 100 << 20, least=1)
    max_request_bytes: int = number_field("socket.request.max.bytes", 100 << 20, least=1)
    max_fetch_bytes: int = number_field("fetch.max.bytes", 55 << 20, least=1_024)
    max_connections: int = number_field("max.connections", MAX_INT)
    idle_connection: int = number_field("connections.max.idle.ms", 10 * MINUTE, most=MAX_LONG)
    #: Who has failed to log in waits so long for the answer: guessing takes its time.
    failed_authentication_delay: int = number_field(
        "connection.failed.authentication.delay.ms", 100
    )
    retention_check: int = number_field("log.retention.check.interval.ms", 5 * MINUTE, least=1)
    checkpoint_interval: int = number_field(
        "log.flush.offset.checkpoint.interval.ms", MINUTE, least=1
    )
    cleaner_backoff: int = number_field("log.cleaner.backoff.ms", 15_000, most=MAX_LONG)
    producer_expiration: int = number_field("producer.id.expiration.ms", DAY, least=1)

    def __post_init__(self) -> None:
        check_config(self)


def check_config(config: DataclassInstance) -> None:
    """Raises InputError for a number out of bounds, an unknown choice, or a text that is no
    Kafka string.
    """
    for each in fields(config):
        value, about = getattr(config, each.name), each.metadata
        name = about.get("key") or each.name
        if "least" in about:
            least, most = about["least"], about["most"]
            kinds, kind = ((int, float), "a") if "ratio" in about else ((int,), "a whole")
            if type(value) not in kinds or not least <= value <= most:
                unit = " milliseconds" if about["unit"] > 1 else ""
                raise InputError(
                    f"{name}: {value!r} is not {kind} number from {least} to {most}{unit}"
                )
        elif "choices" in about:
            if value not in about["choices"]:
                known = ", ".join(map(repr, about["choices"]))
                raise InputError(f"{name}: {value!r} is none of {known}")
        elif isinstance(value, str) and (problem := find_string_problem(value)):
            raise InputError(f"{name}: {quote_shortened(value)} {problem}")


EARLIEST, LATEST, NO_RESET, BY_DURATION = "earliest", "latest", "none", "by_duration"

TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


class Address(NamedTuple):
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS configuration. Certificates and keys are given as PEM text or as files."""

    #: Whom to trust (``ssl.truststore.certificates``), in PEM; None: what the machine trusts.
    truststore_certificates: str | None = None
    #: ``ssl.truststore.location``, of type PEM.
    truststore_location: str | None = None
    #: ``ssl.keystore.certificate.chain``: who this client is.
    keystore_certificate_chain: str | None = None
    #: ``ssl.keystore.key``.
    keystore_key: str | None = field(default=None, repr=False)
    #: ``ssl.keystore.location``, of type PEM: certificate and key in one file.
    keystore_location: str | None = None
    #: ``ssl.key.password``.
    key_password: str | None = field(default=None, repr=False)
    #: ``ssl.endpoint.identification.algorithm`` is ``https``, not empty.
    verifies_host_name: bool = True
    #: ``ssl.enabled.protocols``: some of :data:`TLS_VERSIONS`.
    enabled_protocols: tuple[str, ...] = TLS_VERSIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslConfig:
    """SASL mechanism and credentials."""

    #: ``PLAIN``, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``.
    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Client configuration for connections and metadata. Times are in milliseconds."""

    bootstrap_servers: tuple[Address, ...] = field(metadata={"key": "bootstrap.servers"})
    client_id: str = field(default="rota", metadata={"key": "client.id"})
    #: None: without TLS (``security.protocol``).
    tls: TlsConfig | None = None
    #: None: nobody logs in (``security.protocol``, ``sasl.mechanism``, ``sasl.jaas.config``).
    sasl: SaslConfig | None = None
    request_timeout: int = number_field("request.timeout.ms", 30_000)
    api_timeout: int = number_field("default.api.timeout.ms", 60_000)
    retry_backoff: int = number_field("retry.backoff.ms", 100, most=MAX_LONG)
    retry_backoff_max: int = number_field("retry.backoff.max.ms", 1_000, most=MAX_LONG)
    reconnect_backoff: int = number_field("reconnect.backoff.ms", 50, most=MAX_LONG)
    reconnect_backoff_max: int = number_field("reconnect.backoff.max.ms", 1_000, most=MAX_LONG)
    connect_timeout: int = number_field("socket.connection.setup.timeout.ms", 10_000, most=MAX_LONG)
    connect_timeout_max: int = number_field(
        "socket.connection.setup.timeout.max.ms", 30_000, most=MAX_LONG
    )
    idle_connection: int = number_field(
        "connections.max.idle.ms", 9 * MINUTE, least=-1, most=MAX_LONG
    )
    metadata_max_age: int = number_field("metadata.max.age.ms", 5 * MINUTE, most=MAX_LONG)
    #: Whether ``bootstrap`` is tried again once no known broker can be reached.
    metadata_recovery_strategy: str = choice_field(
        "metadata.recovery.strategy", "rebootstrap", "none"
    )
    #: How long no broker gave metadata before ``bootstrap`` is tried again.
    rebootstrap_trigger: int = number_field(
        "metadata.recovery.rebootstrap.trigger.ms", 5 * MINUTE, most=MAX_LONG
    )
    create_topics: bool = field(default=True, metadata={"key": "allow.auto.create.topics"})
    #: -1: as the system sees fit, which on Linux grows with need. Kafka has 64 KiB.
    receive_buffer: int = number_field("receive.buffer.bytes", -1, least=-1)
    send_buffer: int = number_field("send.buffer.bytes", 128 * 1024, least=-1)

    def __post_init__(self) -> None:
        check_config(self)
        if not self.bootstrap_servers:
            raise InputError("bootstrap.servers: at least one host:port is needed")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    """Consumer configuration for fetching records. Times are in milliseconds."""

    rack: str | None = field(default=None, metadata={"key": "client.rack"})
    fetch_min_bytes: int = number_field("fetch.min.bytes", 1)
    fetch_max_bytes: int = number_field("fetch.max.bytes", 50 << 20)
    fetch_max_wait: int = number_field("fetch.max.wait.ms", 500)
    max_partition_bytes: int = number_field("max.partition.fetch.bytes", 4 << 20)
    max_poll_records: int = number_field("max.poll.records", 500, least=1, most=MAX_INT)
    auto_offset_reset: str = choice_field(
        "auto.offset.reset", LATEST, EARLIEST, NO_RESET, BY_DURATION
    )
    #: How long before now reading starts where ``reset`` is ``by_duration`` (KIP-1106).
    reset_duration: int = number_field(None, 0, most=MAX_LONG)
    isolation: str = choice_field("isolation.level", "read_uncommitted", "read_committed")
    check_crcs: bool = field(default=True, metadata={"key": "check.crcs"})

    def __post_init__(self) -> None:
        check_config(self)

    @property
    def committed_only(self) -> bool:
        """Whether only records of committed transactions are returned."""
        return self.isolation == "read_committed"


# A topic's settings as text, the way requests and the catalogue carry them.
#
# Every key that Kafka 4.3 has for topics is here. Most have a field of
# :class:`~rota.engine.model.config.TopicConfig`. The others steer what a broker of one node has not
#     (replicas, remote storage) or does not do (packing batches anew): of those, the values are
#     accepted that ask for nothing.

ConfigValue: TypeAlias = int | float | bool | str


class ConfigType(enum.IntEnum):
    """The type of a configuration value, with its number in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigKey:
    """A topic configuration key: its type, default and allowed values."""

    key: str
    config_type: ConfigType
    default: ConfigValue
    description: str
    #: Of :class:`TopicConfig`; None if Rota has nothing to do for it.
    field: str | None = None
    #: The broker's settings it is taken from where the topic has none of its own, best first.
    broker_keys: tuple[str, ...] = ()
    least: float = 0
    most: float = MAX_LONG
    choices: tuple[str, ...] = ()
    #: Why only the ``choices`` are accepted, where Kafka has more.
    reason: str = ""
    #: What a list must look like, its items between commas.
    pattern: re.Pattern[str] | None = None
    #: That in words.
    pattern_description: str = ""
    #: Kafka does not show it unless it is set.
    hidden: bool = False

    def parse(self, text: str) -> ConfigValue:
        """Parses the text of a value.

        :raises InputError: the text is not a value of this type, or is out of bounds
        """
        text = text.strip()
        match self.config_type:
            case ConfigType.BOOLEAN:
                value: ConfigValue = self._choice(text.lower(), ("true", "false")) == "true"
            case ConfigType.LIST:
                return ",".join(self._items(text))
            case ConfigType.STRING:
                return self._choice(text, self.choices)
            case _:
                value = self._number(text)
        if self.choices:
            self._choice(format_config_value(value), self.choices)
        return value

    def _number(self, text: str) -> float | int:
        try:
            value = float(text) if self.config_type is ConfigType.DOUBLE else int(text)
            if "_" not in text and self.least <= value <= self.most:
                return value
        except ValueError:
            pass
        kind = "a" if self.config_type is ConfigType.DOUBLE else "a whole"
        raise InputError(
            f"{self.key}: {quote_shortened(text)} is not {kind} number from {self.least} to "
            f"{self.most}"
        )

    def _choice(self, text: str, choices: Iterable[str]) -> str:
        if text in choices:
            return text
        known = " or ".join(map(repr, choices))
        why = f" ({self.reason})" if self.reason else ""
        raise InputError(f"{self.key}: {quote_shortened(text)} is not {known}{why}")

    def _items(self, text: str) -> list[str]:
        items = [item.strip() for item in text.split(",")] if text else []
        if self.choices:
            for item in items:
                self._choice(item, self.choices)
        if self.pattern is not None and self.pattern.fullmatch(",".join(items)) is None:
            raise InputError(
                f"{self.key}: {quote_shortened(text)} is not {self.pattern_description}"
            )
        return list(dict.fromkeys(items))


def format_config_value(value: ConfigValue) -> str:
    """Formats a value as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def parse_topic_config(overrides: Mapping[str, str], defaults: TopicConfig) -> TopicConfig:
    """Returns the defaults with a topic's own values applied.

    :raises InputError: a key is unknown, or its value is not allowed; the message names the key
    """
    changes: dict[str, ConfigValue] = {}
    for key, text in overrides.items():
        setting = TOPIC_CONFIG_KEYS.get(key)
        if setting is None:
            near = suggest_names(key, TOPIC_CONFIG_KEYS)
            raise InputError(f"{quote_shortened(key)} is not a setting of topics{near}")
        value = setting.parse(text)
        if key == "cleanup.policy":
            value = ",".join(sorted(str(value).split(",")))
        if setting.field is not None:
            changes[setting.field] = value
    if "internal.segment.bytes" in overrides:
        changes["segment_bytes"] = TOPIC_CONFIG_KEYS["internal.segment.bytes"].parse(
            overrides["internal.segment.bytes"]
        )
    config = replace(defaults, **changes)  # type: ignore[arg-type]
    if config.min_compaction_lag > config.max_compaction_lag:
        raise InputError(
            f"min.compaction.lag.ms: {config.min_compaction_lag} is more than "
            f"max.compaction.lag.ms, {config.max_compaction_lag}"
        )
    return config


def _log_keys(*names: str) -> tuple[str, ...]:
    return tuple(f"log.{name}" for name in names)


_THROTTLED_REPLICAS = re.compile(r"|\*|\d+:\d+(,\d+:\d+)*")

_ONE_NODE_REASON = "there is one node, and so one replica"

_NO_REMOTE_STORAGE_REASON = "Rota has no remote storage"

_BROKER_KEYS: Mapping[str, tuple[str, ...]] = {
    "cleanup.policy": _log_keys("cleanup.policy"),
    "delete.retention.ms": _log_keys("cleaner.delete.retention.ms"),
    "flush.messages": _log_keys("flush.interval.messages"),
    "flush.ms": _log_keys("flush.interval.ms", "flush.scheduler.interval.ms"),
    "index.interval.bytes": _log_keys("index.interval.bytes"),
    "max.compaction.lag.ms": _log_keys("cleaner.max.compaction.lag.ms"),
    "max.message.bytes": ("message.max.bytes",),
    "message.timestamp.after.max.ms": _log_keys("message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": _log_keys("message.timestamp.before.max.ms"),
    "message.timestamp.type": _log_keys("message.timestamp.type"),
    "min.cleanable.dirty.ratio": _log_keys("cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": _log_keys("cleaner.min.compaction.lag.ms"),
    "retention.bytes": _log_keys("retention.bytes"),
    "retention.ms": _log_keys("retention.ms", "retention.minutes", "retention.hours"),
    "segment.bytes": _log_keys("segment.bytes"),
    "segment.index.bytes": _log_keys("index.size.max.bytes"),
    "segment.ms": _log_keys("roll.ms", "roll.hours"),
}

_TOPIC_KEY_DESCRIPTIONS: Mapping[str, str] = {
    "cleanup.policy": "What becomes of old segments: deleted, compacted by key, both, or kept.",
    "delete.retention.ms": "How long a compacted topic keeps the mark that a key was deleted.",
    "flush.messages": "After so many records, what was written is forced to the disk.",
    "flush.ms": "At the latest after this time, what was written is forced to the disk.",
    "index.interval.bytes": "How many bytes of a log one entry of its offset index stands for.",
    "max.compaction.lag.ms": "How long a record of a compacted topic stays uncompacted at most.",
    "max.message.bytes": "The largest batch of records that is taken, compressed as it comes.",
    "message.timestamp.after.max.ms": "How far a timestamp may be ahead of the broker's clock.",
    "message.timestamp.before.max.ms": "How far a timestamp may be behind the broker's clock.",
    "message.timestamp.type": "Whether a record keeps its producer's time or gets the broker's.",
    "min.cleanable.dirty.ratio": "How much of a log must be uncompacted before it is compacted.",
    "min.compaction.lag.ms": "How long a record of a compacted topic stays uncompacted at least.",
    "retention.bytes": "How large a partition may get before old segments are deleted; -1: any.",
    "retention.ms": "How old a segment may get before it is deleted; -1: any age.",
    "segment.bytes": "How large a segment may get before the next one is begun.",
    "segment.index.bytes": "How large a segment's offset index may get.",
    "segment.ms": "How old a segment may get before the next one is begun.",
}


def _supported_topic_keys() -> Iterable[TopicConfigKey]:
    """Yields the keys that set a field of :class:`TopicConfig`."""
    for each in fields(TopicConfig):
        about = each.metadata
        key = about["key"]
        default: ConfigValue = getattr(TopicConfig(), each.name)
        common = {
            "key": key,
            "field": each.name,
            "description": _TOPIC_KEY_DESCRIPTIONS[key],
            "broker_keys": _BROKER_KEYS[key],
        }
        if key == "cleanup.policy":
            choices = ("compact", "delete")
            yield TopicConfigKey(
                config_type=ConfigType.LIST, default=default, choices=choices, **common
            )
        elif "choices" in about:
            yield TopicConfigKey(
                config_type=ConfigType.STRING, default=default, choices=about["choices"], **common
            )
        else:
            kind = (
                ConfigType.DOUBLE
                if "ratio" in about
                else ConfigType.INT
                if about["most"] == MAX_INT
                else ConfigType.LONG
            )
            least = 1 << 20 if key == "segment.bytes" else about["least"]
            yield TopicConfigKey(
                config_type=kind, default=default, least=least, most=about["most"], **common
            )


def _ignored_topic_keys() -> Iterable[TopicConfigKey]:
    """Yields the keys that have no effect in Rota."""
    yield TopicConfigKey(
        key="compression.type",
        config_type=ConfigType.STRING,
        default="producer",
        choices=("producer",),
        reason="Rota keeps batches as their producers packed them",
        broker_keys=("compression.type",),
        description="How batches are compressed: as their producers did.",
    )
    for codec, default, least, most in (
        ("gzip", -1, -1, 9),
        ("lz4", 9, 1, 17),
        ("zstd", 3, -131_072, 22),
    ):
        key = f"compression.{codec}.level"
        yield TopicConfigKey(
            key=key,
            config_type=ConfigType.INT,
            default=default,
            least=least,
            most=most,
            broker_keys=(key,),
            description=f"Of no effect while compression.type is not {codec}.",
        )
    yield TopicConfigKey(
        key="file.delete.delay.ms",
        config_type=ConfigType.LONG,
        default=60_000,
        broker_keys=_log_keys("segment.delete.delay.ms"),
        description="Of no effect: the files of a deleted segment are removed at once.",
    )
    for side in ("follower", "leader"):
        yield TopicConfigKey(
            key=f"{side}.replication.throttled.replicas",
            config_type=ConfigType.LIST,
            default="",
            pattern=_THROTTLED_REPLICAS,
            pattern_description="'*', or a list of partition:broker",
            description="Of no effect: one node has nothing to replicate.",
        )
    for key in ("local.retention.bytes", "local.retention.ms"):
        yield TopicConfigKey(
            key=key,
            config_type=ConfigType.LONG,
            default=-2,
            least=-2,
            broker_keys=_log_keys(key),
            description="Of no effect without remote storage.",
        )
    yield TopicConfigKey(
        key="min.insync.replicas",
        config_type=ConfigType.INT,
        default=1,
        least=1,
        most=MAX_INT,
        choices=("1",),
        reason=_ONE_NODE_REASON,
        broker_keys=("min.insync.replicas",),
        description="How many replicas must have a record before it is acknowledged to acks=all.",
    )
    yield TopicConfigKey(
        key="preallocate",
        config_type=ConfigType.BOOLEAN,
        default=False,
        choices=("false",),
        reason="Rota's segments grow as they are written",
        broker_keys=_log_keys("preallocate"),
        description="Whether a segment's file has its full size from the start.",
    )
    for key in ("remote.log.copy.disable", "remote.log.delete.on.disable"):
        yield TopicConfigKey(
            key=key,
            config_type=ConfigType.BOOLEAN,
            default=False,
            description="Of no effect without remote storage.",
        )
    yield TopicConfigKey(
        key="remote.storage.enable",
        config_type=ConfigType.BOOLEAN,
        default=False,
        choices=("false",),
        reason=_NO_REMOTE_STORAGE_REASON,
        description="Whether old segments are moved to remote storage.",
    )
    yield TopicConfigKey(
        key="segment.jitter.ms",
        config_type=ConfigType.LONG,
        default=0,
        choices=("0",),
        reason="Rota rolls segments when they are due",
        broker_keys=_log_keys("roll.jitter.ms", "roll.jitter.hours"),
        description="How much sooner than segment.ms a segment may end, at random.",
    )
    yield TopicConfigKey(
        key="unclean.leader.election.enable",
        config_type=ConfigType.BOOLEAN,
        default=False,
        broker_keys=("unclean.leader.election.enable",),
        description="Of no effect: one node has one replica to elect.",
    )
    yield TopicConfigKey(
        key="internal.segment.bytes",
        config_type=ConfigType.INT,
        default=0,
        least=1,
        most=MAX_INT,
        hidden=True,
        description="In place of segment.bytes, without its lower bound; for tests.",
    )


#: All settings of topics, by their keys in order.
TOPIC_CONFIG_KEYS: Mapping[str, TopicConfigKey] = MappingProxyType(
    {
        each.key: each
        for each in sorted(
            (*_supported_topic_keys(), *_ignored_topic_keys()), key=lambda each: each.key
        )
    }
)
