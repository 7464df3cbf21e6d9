"""Configuration under Kafka's keys, with Kafka's defaults and bounds.

:class:`ConfigKey` is the one type for a setting: consumer, producer, topic and broker settings and
the options of the Spark source are tables of it. Each ``...Config`` class holds typed values;
the metadata of its fields holds their keys. All times are in milliseconds, and never negative.

:data:`TOPIC_KEYS` lists every topic key of Kafka 4.3. Keys of features that a single node does not
have (replicas, remote storage) or Rota does not implement accept only values without effect.
"""

from __future__ import annotations

import contextlib
import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from rota.engine.model.text import find_string_problem, quote_shortened, suggest_names
from rota.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR

MAX_INT, MAX_LONG = 2**31 - 1, 2**63 - 1  # the highest numbers of Kafka's types


class ConfigType(enum.IntEnum):
    """The numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class KeySupport(enum.Enum):
    HONOURED = "honoured"
    NO_EFFECT = "without effect"
    REFUSED = "refused"


_TYPE_RANGES: Mapping[ConfigType, tuple[float, float]] = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-MAX_INT - 1, MAX_INT),
    ConfigType.LONG: (-MAX_LONG - 1, MAX_LONG),
    ConfigType.DOUBLE: (float("-inf"), float("inf")),
}


@dataclass(frozen=True, slots=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: object = None
    description: str = ""  # what it does; or why it has no effect or is refused, and the remedy
    _: KW_ONLY
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()  # all values of a text or number, or all items of a list
    ignores_case: bool = False  # upper and lower case are equal in ``choices``
    reason: str = ""  # why ``choices`` are fewer than Kafka's
    pattern: tuple[str, str] = (".*", "")  # the form of a list, and its description for errors
    drops_duplicates: bool = False  # a repeated item counts once; otherwise: an error
    support: KeySupport = KeySupport.HONOURED
    no_op_values: tuple[object, ...] = ()  # values of a setting without effect that need no warning
    broker_keys: tuple[str, ...] = ()  # broker's defaults of a topic setting, best first
    hidden: bool = False  # DescribeConfigs lists the setting only where it is set
    unit: int = 1  # milliseconds per unit of the setting, if Kafka's unit is minutes or hours
    field: str | None = None  # field of the ``...Config`` class; None: no field

    def parse(self, value: object) -> Any:  # noqa: ANN401 (a value of the key's type)
        """The value, parsed as in Kafka. InputError names the key, but shows no password."""
        if isinstance(value, str):
            value = value.strip()
        kind = type(value).__name__
        match self.type:
            case ConfigType.CLASS:
                return value
            case ConfigType.PASSWORD if not isinstance(value, str):
                raise InputError(f"{self.name}: must be text, not {kind}")
            case ConfigType.PASSWORD:
                return value
            case ConfigType.LIST:
                return self._parse_list(value)
            case ConfigType.STRING if not isinstance(value, str):
                raise InputError(f"{self.name}: {show_value(value)} is not text but {kind}")
            case ConfigType.STRING:
                return self._check_choice(str(value))
            case ConfigType.BOOLEAN:
                parsed: object = self._parse_boolean(value)
            case _:
                parsed = self._parse_number(value)
        self._check_choice(format_config_value(parsed))
        return parsed

    def parse_for_field(self, value: object) -> object:
        """Returns the value for the key's field: times in milliseconds, a list as sorted text."""
        parsed = self.parse(value)
        if self.type is ConfigType.LIST:
            return ",".join(sorted(parsed))
        return parsed * self.unit if self.unit > 1 and parsed != -1 else parsed

    def check(self, value: object) -> None:
        """Raises InputError if the key's field may not have this value."""
        if self.type in _TYPE_RANGES:
            self._check_number(value, value, self.unit)
        elif isinstance(value, str):
            self.parse(value)
            if problem := find_string_problem(value):
                raise InputError(f"{self.name}: {quote_shortened(value)} {problem}")

    @property
    def bounds(self) -> tuple[float, float]:
        least, most = _TYPE_RANGES[self.type]
        least = least if self.minimum is None else self.minimum
        return least, most if self.maximum is None else self.maximum

    def _parse_boolean(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in {"true", "false"}:
            return value.lower() == "true"
        raise InputError(f"{self.name}: {show_value(value)} is neither true nor false")

    def _parse_number(self, value: object) -> float:
        number: object = value
        if isinstance(value, str):
            # Java reads digits of any script in whole numbers, but only ASCII digits in doubles
            is_double = self.type is ConfigType.DOUBLE
            number = None
            if "_" not in value and (value.isascii() or not is_double):
                with contextlib.suppress(ValueError):
                    number = float(value) if is_double else int(value)
        return self._check_number(number, value, 1)

    def _check_number(self, number: object, shown: object, unit: int) -> float:
        least, most = self.bounds
        is_double = self.type is ConfigType.DOUBLE
        if (type(number) is int or (is_double and type(number) is float)) and (
            least <= number <= most * unit
        ):
            return number
        raise InputError(
            f"{self.name}: {show_value(shown)} is not a {'' if is_double else 'whole '}number "
            f"from {least} to {most * unit}{' milliseconds' if unit > 1 else ''}"
        )

    def _check_choice(self, text: str) -> str:
        if not self.choices or text in self.choices:
            return text
        same = {each.lower(): each for each in self.choices}.get(text.lower())
        if self.ignores_case and same is not None:
            return same
        known = ", ".join(map(repr, self.choices))
        known = f"one of {known}" if len(self.choices) > 1 else known
        if self.reason:
            hint = f" ({self.reason})"
        else:
            tls_as_ssl = text.upper().replace("TLS", "SSL")  # Kafka says SSL for TLS
            near = text.upper() if self.ignores_case else text
            hint = suggest_names(tls_as_ssl if tls_as_ssl in self.choices else near, self.choices)
        raise InputError(f"{self.name}: {show_value(text)} is not {known}{hint}")

    def _parse_list(self, value: object) -> tuple[object, ...]:
        """Splits text at commas; a value that is neither text nor iterable is a list of one."""
        if isinstance(value, str):
            items: list[object] = [each.strip() for each in value.split(",")] if value else []
        elif isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping, type)):
            items = [each.strip() if isinstance(each, str) else each for each in value]
        else:
            items = [value]
        if self.drops_duplicates:
            items = [item for at, item in enumerate(items) if item not in items[:at]]
        for at, item in enumerate(items):
            if item == "":
                raise InputError(f"{self.name}: the list has an empty item")
            if item in items[:at]:
                raise InputError(f"{self.name}: {show_value(item)} is in the list twice")
            if self.choices:
                self._check_choice(str(item))
        form, description = self.pattern
        if not re.fullmatch(form, ",".join(map(str, items)), re.DOTALL):
            raise InputError(f"{self.name}: {show_value(value)} is not {description}")
        return tuple(items)


def show_value(value: object) -> str:
    """Returns the value for an error: text in quotes, anything else as its ``repr``, shortened."""
    return quote_shortened(value) if isinstance(value, str) else quote_shortened(repr(value))[1:-1]


def format_config_value(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def unknown_key_message(name: str, known: Iterable[str], expected: str) -> str:
    """Returns the error for a setting that is no ``expected`` one, with similar names."""
    similar = suggest_names(name.replace("_", ".").lower(), known)
    return f"{quote_shortened(name)} is not {expected}{similar}"


def field_keys(*configs: type[DataclassInstance]) -> Iterator[ConfigKey]:
    for config in configs:
        for each in fields(config):
            if "key" in each.metadata:
                yield replace(each.metadata["key"], field=each.name)


def index_keys(
    keys: Iterable[ConfigKey], descriptions: Mapping[str, str] = MappingProxyType({})
) -> Mapping[str, ConfigKey]:
    """Returns a read-only table of the keys with their descriptions, in the order of names."""
    found = {
        key.name: replace(key, description=descriptions.get(key.name, key.description))
        for key in keys
    }
    return MappingProxyType(dict(sorted(found.items())))


def check_config(config: DataclassInstance) -> None:
    """Raises InputError for a field with a value that its key does not allow."""
    for each in fields(config):
        value = getattr(config, each.name)
        if "key" in each.metadata and value is not each.default:
            each.metadata["key"].check(value)


# each of these returns a dataclass field for a key of this type


def int_field(name: str, default: int, *, minimum: int = 0, unit: int = 1) -> int:
    key = ConfigKey(name, ConfigType.INT, default // unit, minimum=minimum, unit=unit)
    return field(default=default, metadata={"key": key})


def long_field(name: str, default: int, *, minimum: int = 0) -> int:
    key = ConfigKey(name, ConfigType.LONG, default, minimum=minimum)
    return field(default=default, metadata={"key": key})


def boolean_field(name: str, *, default: bool) -> bool:
    return field(default=default, metadata={"key": ConfigKey(name, ConfigType.BOOLEAN, default)})


def choice_field(name: str, default: str, other: str, *, ignores_case: bool = False) -> str:
    choices = (default, other)
    key = ConfigKey(name, ConfigType.STRING, default, choices=choices, ignores_case=ignores_case)
    return field(default=default, metadata={"key": key})


def _string_key(name: str, default: str | None = None) -> Mapping[str, ConfigKey]:
    return {"key": ConfigKey(name, ConfigType.STRING, default)}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    min_session_timeout: int = int_field("group.min.session.timeout.ms", 6_000)
    max_session_timeout: int = int_field("group.max.session.timeout.ms", 30 * MINUTE)
    initial_rebalance_delay: int = int_field("group.initial.rebalance.delay.ms", 3_000)
    max_size: int = int_field("group.max.size", MAX_INT, minimum=1)
    offset_metadata_max: int = int_field("offset.metadata.max.bytes", 4_096)
    #: In milliseconds too, though Kafka counts minutes.
    offsets_retention: int = int_field("offsets.retention.minutes", 7 * DAY, minimum=1, unit=MINUTE)
    retention_check_interval: int = long_field(
        "offsets.retention.check.interval.ms", 10 * MINUTE, minimum=1
    )
    new_member_timeout: int = 5 * MINUTE  # for its first join to complete; fixed in Kafka

    def __post_init__(self) -> None:
        check_config(self)
        if self.min_session_timeout > self.max_session_timeout:
            raise InputError(
                f"group.min.session.timeout.ms: {self.min_session_timeout} is more than "
                f"group.max.session.timeout.ms, {self.max_session_timeout}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    group: str = field(metadata=_string_key("group.id"))
    client_id: str = field(default="rota", metadata=_string_key("client.id", ""))
    group_instance_id: str | None = field(default=None, metadata=_string_key("group.instance.id"))
    rack: str | None = field(default=None, metadata=_string_key("client.rack", ""))
    session_timeout: int = int_field("session.timeout.ms", 45_000, minimum=1)
    heartbeat_interval: int = int_field("heartbeat.interval.ms", 3_000, minimum=1)
    max_poll_interval: int = int_field("max.poll.interval.ms", 5 * MINUTE, minimum=1)
    retry_backoff: int = long_field("retry.backoff.ms", 100)
    retry_backoff_max: int = long_field("retry.backoff.max.ms", 1_000)
    auto_commit: bool = boolean_field("enable.auto.commit", default=True)
    auto_commit_interval: int = int_field("auto.commit.interval.ms", 5_000)
    exclude_internal: bool = boolean_field("exclude.internal.topics", default=True)

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
class BrokerConfig:
    node_id: int = int_field("node.id", 1)
    auto_create_topics: bool = boolean_field("auto.create.topics.enable", default=True)
    default_partitions: int = int_field("num.partitions", 1, minimum=1)
    offsets_partitions: int = int_field("offsets.topic.num.partitions", 50, minimum=1)
    offsets_segment_bytes: int = int_field("offsets.topic.segment.bytes", 100 << 20, minimum=1)
    max_request_bytes: int = int_field("socket.request.max.bytes", 100 << 20, minimum=1)
    max_fetch_bytes: int = int_field("fetch.max.bytes", 55 << 20, minimum=1_024)
    max_connections: int = int_field("max.connections", MAX_INT)
    idle_connection: int = long_field("connections.max.idle.ms", 10 * MINUTE)
    #: The delay makes guessing passwords slow.
    failed_authentication_delay: int = int_field("connection.failed.authentication.delay.ms", 100)
    retention_check: int = int_field("log.retention.check.interval.ms", 5 * MINUTE, minimum=1)
    checkpoint_interval: int = int_field(
        "log.flush.offset.checkpoint.interval.ms", MINUTE, minimum=1
    )
    cleaner_backoff: int = long_field("log.cleaner.backoff.ms", 15_000)
    producer_expiration: int = int_field("producer.id.expiration.ms", DAY, minimum=1)

    def __post_init__(self) -> None:
        check_config(self)


EARLIEST, LATEST, NO_RESET, BY_DURATION = "earliest", "latest", "none", "by_duration"
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS configuration: the settings ``ssl.*``. Certificates and keys are PEM text or files."""

    truststore_certificates: str | None = None  # certificates to trust; None: the machine's
    truststore_location: str | None = None
    keystore_certificate_chain: str | None = None  # the client's certificate and those above it
    keystore_key: str | None = field(default=None, repr=False)
    keystore_location: str | None = None  # a file with certificate and key
    key_password: str | None = field(default=None, repr=False)
    verifies_host_name: bool = True  # ``ssl.endpoint.identification.algorithm`` is not empty
    enabled_protocols: tuple[str, ...] = TLS_VERSIONS  # some of :data:`TLS_VERSIONS`


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslConfig:
    mechanism: str  # ``PLAIN``, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    bootstrap_servers: tuple[Address, ...]
    client_id: str = field(default="rota", metadata=_string_key("client.id", ""))
    tls: TlsConfig | None = None  # None: without TLS (``security.protocol``)
    #: None: without a login (``security.protocol``, ``sasl.mechanism``, ``sasl.jaas.config``).
    sasl: SaslConfig | None = None
    request_timeout: int = int_field("request.timeout.ms", 30_000)
    api_timeout: int = int_field("default.api.timeout.ms", 60_000)
    retry_backoff: int = long_field("retry.backoff.ms", 100)
    retry_backoff_max: int = long_field("retry.backoff.max.ms", 1_000)
    reconnect_backoff: int = long_field("reconnect.backoff.ms", 50)
    reconnect_backoff_max: int = long_field("reconnect.backoff.max.ms", 1_000)
    connect_timeout: int = long_field("socket.connection.setup.timeout.ms", 10_000)
    connect_timeout_max: int = long_field("socket.connection.setup.timeout.max.ms", 30_000)
    idle_connection: int = long_field("connections.max.idle.ms", 9 * MINUTE, minimum=-1)
    metadata_max_age: int = long_field("metadata.max.age.ms", 5 * MINUTE)
    #: Whether the client connects to ``bootstrap_servers`` again if no known broker is reachable.
    metadata_recovery_strategy: str = choice_field(
        "metadata.recovery.strategy", "rebootstrap", "none", ignores_case=True
    )
    rebootstrap_trigger: int = long_field("metadata.recovery.rebootstrap.trigger.ms", 5 * MINUTE)
    create_topics: bool = boolean_field("allow.auto.create.topics", default=True)
    #: -1: the system decides; on Linux the buffer grows with need. Kafka has 64 KiB.
    receive_buffer: int = int_field("receive.buffer.bytes", -1, minimum=-1)
    send_buffer: int = int_field("send.buffer.bytes", 128 * 1024, minimum=-1)

    def __post_init__(self) -> None:
        check_config(self)
        if not self.bootstrap_servers:
            raise InputError("bootstrap.servers: at least one host:port is needed")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    rack: str | None = field(default=None, metadata=_string_key("client.rack", ""))
    fetch_min_bytes: int = int_field("fetch.min.bytes", 1)
    fetch_max_bytes: int = int_field("fetch.max.bytes", 50 << 20)
    fetch_max_wait: int = int_field("fetch.max.wait.ms", 500)
    max_partition_bytes: int = int_field("max.partition.fetch.bytes", 4 << 20)
    max_poll_records: int = int_field("max.poll.records", 500, minimum=1)
    auto_offset_reset: str = field(
        default=LATEST, metadata=_string_key("auto.offset.reset", LATEST)
    )
    reset_duration: int = 0  # how long before now to start, if ``by_duration`` (KIP-1106)
    isolation: str = choice_field("isolation.level", "read_uncommitted", "read_committed")
    check_crcs: bool = boolean_field("check.crcs", default=True)

    def __post_init__(self) -> None:
        check_config(self)

    @property
    def committed_only(self) -> bool:
        return self.isolation == "read_committed"


_POLICIES = ("compact", "delete")
_CLEANUP_POLICY = ConfigKey(
    "cleanup.policy", ConfigType.LIST, ("delete",), choices=_POLICIES, drops_duplicates=True
)
_RATIO = "min.cleanable.dirty.ratio"
_CLEANABLE_RATIO = ConfigKey(_RATIO, ConfigType.DOUBLE, 0.5, minimum=0, maximum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """-1 means no limit where Kafka says so."""

    cleanup_policy: str = field(default="delete", metadata={"key": _CLEANUP_POLICY})
    delete_retention: int = long_field("delete.retention.ms", DAY)
    flush_messages: int = long_field("flush.messages", MAX_LONG, minimum=1)
    flush_interval: int = long_field("flush.ms", MAX_LONG)
    index_interval: int = int_field("index.interval.bytes", 4_096)
    max_compaction_lag: int = long_field("max.compaction.lag.ms", MAX_LONG, minimum=1)
    max_message_bytes: int = int_field("max.message.bytes", 1_048_588)
    timestamp_after_max: int = long_field("message.timestamp.after.max.ms", HOUR)
    timestamp_before_max: int = long_field("message.timestamp.before.max.ms", MAX_LONG)
    timestamp_type: str = choice_field("message.timestamp.type", "CreateTime", "LogAppendTime")
    min_cleanable_ratio: float = field(default=0.5, metadata={"key": _CLEANABLE_RATIO})
    min_compaction_lag: int = long_field("min.compaction.lag.ms", 0)
    retention_bytes: int = long_field("retention.bytes", -1, minimum=-MAX_LONG)
    retention: int = long_field("retention.ms", 7 * DAY, minimum=-1)
    #: Users set ``segment.bytes``, which may not be under 1 MiB.
    segment_bytes: int = int_field("internal.segment.bytes", 1 << 30, minimum=1)
    segment_index_bytes: int = int_field("segment.index.bytes", 10 << 20, minimum=4)
    segment_ms: int = long_field("segment.ms", 7 * DAY, minimum=1)

    def __post_init__(self) -> None:
        check_config(self)
        if self.min_compaction_lag > self.max_compaction_lag:
            raise InputError(
                f"min.compaction.lag.ms: {self.min_compaction_lag} is more than "
                f"max.compaction.lag.ms, {self.max_compaction_lag}"
            )

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes_old_segments(self) -> bool:
        return "delete" in self.cleanup_policy


def parse_topic_config(overrides: Mapping[str, str], defaults: TopicConfig) -> TopicConfig:
    """Returns the defaults with a topic's own values applied; InputError names a wrong key."""
    changes: dict[str, Any] = {}
    for name in sorted(overrides, reverse=True):  # internal.segment.bytes wins over segment.bytes
        key = TOPIC_KEYS.get(name)
        if key is None:
            raise InputError(unknown_key_message(name, TOPIC_KEYS, "a topic setting"))
        value = key.parse_for_field(overrides[name])
        if key.field is not None:
            changes[key.field] = value
    return replace(defaults, **changes)


_DESCRIPTIONS: Mapping[str, str] = {
    "cleanup.policy": "Whether old segments are deleted, compacted by key, both, or kept (empty).",
    "compression.type": "The compression of batches in the log.",
    "delete.retention.ms": "How long a compacted topic keeps tombstones.",
    "file.delete.delay.ms": "Of no effect: the files of a deleted segment are removed at once.",
    "flush.messages": "The number of records after which the log is flushed to disk.",
    "flush.ms": "How long a record may wait before the log is flushed to disk.",
    "index.interval.bytes": "The bytes of a log between two entries of its offset index.",
    "internal.segment.bytes": "segment.bytes without its lower bound; for tests.",
    "max.compaction.lag.ms": "How long a record of a compacted topic may stay uncompacted.",
    "max.message.bytes": "The largest batch of records, compressed as the producer sends it.",
    "message.timestamp.after.max.ms": "How far a timestamp may be ahead of the broker's clock.",
    "message.timestamp.before.max.ms": "How far a timestamp may be behind the broker's clock.",
    "message.timestamp.type": "Whether a record keeps its producer's time or gets the broker's.",
    "min.cleanable.dirty.ratio": "The share of a log that must be uncompacted before compaction.",
    "min.compaction.lag.ms": "How long a record of a compacted topic stays uncompacted at least.",
    "min.insync.replicas": "The replicas that must have a record before acks=all is acknowledged.",
    "preallocate": "Whether the file of a new segment has its full size at once.",
    "remote.storage.enable": "Whether old segments are moved to remote storage.",
    "retention.bytes": "The partition size above which old segments are deleted; -1: no limit.",
    "retention.ms": "The age at which a segment is deleted; -1: no limit.",
    "segment.bytes": "The size at which a segment ends and the next one begins.",
    "segment.index.bytes": "The largest size of a segment's offset index.",
    "segment.jitter.ms": "The longest random time by which a segment ends before segment.ms.",
    "segment.ms": "The age at which a segment ends and the next one begins.",
    "unclean.leader.election.enable": "Of no effect: one node has one replica to elect.",
}

_BROKER_KEYS: Mapping[str, tuple[str, ...]] = {  # broker's defaults of a topic setting, best first
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "max.message.bytes": ("message.max.bytes",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
}

ONE_NODE_REASON = "there is one node, and so one replica"


def _topic_keys() -> Iterator[ConfigKey]:
    boolean, int_, long = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
    default: object
    yield from field_keys(TopicConfig)
    yield ConfigKey("segment.bytes", int_, 1 << 30, minimum=1 << 20, field="segment_bytes")
    # the other keys have no effect
    why = "Of no effect while compression.type is producer."
    for codec, default, least, most in (
        ("gzip", -1, -1, 9),
        ("lz4", 9, 1, 17),
        ("zstd", 3, -(2**17), 22),
    ):
        name = f"compression.{codec}.level"
        yield ConfigKey(name, int_, default, why, minimum=least, maximum=most)
    yield ConfigKey("file.delete.delay.ms", long, 60_000, minimum=0)
    yield ConfigKey("unclean.leader.election.enable", boolean, False)
    why = "Of no effect without remote storage."
    for name in ("local.retention.bytes", "local.retention.ms"):
        yield ConfigKey(name, long, -2, why, minimum=-2)
    for name in ("remote.log.copy.disable", "remote.log.delete.on.disable"):
        yield ConfigKey(name, boolean, False, why)
    why = "Of no effect: one node replicates nothing."
    form = (r"|\*|\d+:\d+(,\d+:\d+)*", "'*', or a list of partition:broker")
    for side in ("follower", "leader"):
        name = f"{side}.replication.throttled.replicas"
        yield ConfigKey(name, ConfigType.LIST, (), why, pattern=form, drops_duplicates=True)
    for name, type_, default, reason in (
        ("compression.type", ConfigType.STRING, "producer", "Rota does not recompress batches"),
        ("min.insync.replicas", int_, 1, ONE_NODE_REASON),
        ("preallocate", boolean, False, "in Rota the file of a segment grows with it"),
        ("remote.storage.enable", boolean, False, "Rota has no remote storage"),
        ("segment.jitter.ms", long, 0, "Rota ends segments at segment.ms"),
    ):
        only = (format_config_value(default),)
        yield ConfigKey(name, type_, default, choices=only, reason=reason)


def _with_broker_keys(key: ConfigKey) -> ConfigKey:
    names = _BROKER_KEYS.get(key.name, (f"log.{key.name}",))
    if key.name.startswith(("compression.", "min.insync.", "unclean.")):
        names = (key.name,)
    elif key.name.startswith(("follower.", "internal.", "leader.", "remote.")):
        names = ()
    return replace(key, broker_keys=names, hidden=key.name == "internal.segment.bytes")


TOPIC_KEYS: Mapping[str, ConfigKey] = index_keys(
    map(_with_broker_keys, _topic_keys()), _DESCRIPTIONS
)
