"""A broker's settings out of Kafka's names: what ``server.properties`` would have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TypeAlias, TypeVar

from rota.errors import InputError
from rota.model.config import BrokerConfig, GroupConfig, TopicConfig
from rota.model.setting import SETTINGS, Value, topic_config, written
from rota.model.text import nearest

Given: TypeAlias = Mapping[str, object]
"""Kafka's names, and values as text, numbers or booleans."""
ADVERTISED = "advertised.listeners"
_ONE = frozenset(
    {
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
    }
)
"""Copies of things. There is one node, so there is one of each."""
_SYNONYMS = {"broker.id": "node.id"}
_UNITS = {".minutes": 60_000, ".hours": 3_600_000}
_FAMILIES = (
    "alter. authorizer. client.quota. config.providers controlled. controller. delegation. "
    "eligible. follower. group.consumer. group.coordinator. group.share. group.streams. "
    "initial. inter. internal. kafka. leader. listener. listeners metadata. metric. metrics. "
    "password. principal. process. queued. quorum. quota. remote. replica. replication. "
    "reserved. rlmm. rsm. sasl. security. server. share. ssl. super. telemetry. transactional. "
    "unstable. zookeeper."
)
"""How settings of a Kafka begin of which no kind has an effect here."""
_IDLE = (
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
"""Other settings of a Kafka that have none."""
T = TypeVar("T", BrokerConfig, GroupConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """All that is set."""

    broker: BrokerConfig = field(default_factory=BrokerConfig)
    group: GroupConfig = field(default_factory=lambda: GroupConfig(initial_rebalance_delay=0))
    """A broker for tests and one machine does not make the first member wait for others."""
    topic: TopicConfig = field(default_factory=TopicConfig)
    """What holds for topics without settings of their own."""
    advertised: str | None = None
    """``host:port`` that clients are told."""
    idle: tuple[str, ...] = ()
    """Settings that a Kafka has, without effect here."""


def configuration(given: Given) -> Configuration:
    """What these settings come to.

    :raises InputError: one that is not known, or a value it cannot have; names it
    """
    texts = {_SYNONYMS.get(key, key): _text(key, value) for key, value in given.items()}
    advertised = texts.pop(ADVERTISED, None)
    idle = without_effect(texts)
    for key in idle:
        del texts[key]
    for key in _ONE & texts.keys():
        if texts.pop(key).strip() != "1":
            raise InputError(f"{key}: there is one node, so it can only be 1")
    topic = _topic(texts)
    broker = _read(BrokerConfig(), texts)
    group = _read(Configuration().group, texts)
    if texts:
        key = next(iter(texts))
        near = nearest(key, known())
        raise InputError(f"{key!r} is not a setting that Rota's broker has{near}")
    return Configuration(
        broker=broker,
        group=group,
        topic=topic,
        advertised=None if advertised is None else _listener(advertised),
        idle=tuple(idle),
    )


def known() -> list[str]:
    """Every name that a broker of Rota's can be given."""
    keys = {*_ONE, *_SYNONYMS, ADVERTISED}
    for part in (BrokerConfig, GroupConfig):
        keys.update(each.metadata["key"] for each in fields(part))
    for setting in SETTINGS.values():
        keys.update(setting.broker)
    return sorted(key for key in keys if key is not None)


def without_effect(given: Given) -> list[str]:
    """Those of a Kafka's settings that mean nothing to Rota: what a whole file may have."""
    idle, families = frozenset(_IDLE.split()), tuple(_FAMILIES.split())
    return [key for key in given if key in idle or key.startswith(families)]


def read_properties(text: str) -> dict[str, str]:
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


def _text(key: str, value: object) -> str:
    if isinstance(value, bool | int | float | str):
        return written(value)
    raise InputError(f"{key}: {value!r} is neither a text nor a number nor a boolean")


def _topic(texts: dict[str, str]) -> TopicConfig:
    """Takes what the broker says for topics without settings of their own. Where Kafka has several
    names for one (``log.retention.ms``, ``.minutes``, ``.hours``), the first holds.
    """
    config = TopicConfig()
    for setting in SETTINGS.values():
        said = [(key, texts.pop(key)) for key in setting.broker if key in texts]
        if said:
            key, text = said[0]
            for ending, unit in _UNITS.items():
                if key.endswith(ending):
                    text = _scaled(key, text, unit)
            try:
                config = topic_config({setting.key: text}, config)
            except InputError as error:
                raise InputError(str(error).replace(setting.key, key, 1)) from error
    return config


def _scaled(key: str, text: str, unit: int) -> str:
    number = _whole(key, text)
    return str(number if number == -1 else number * unit)


def _read(defaults: T, texts: dict[str, str]) -> T:
    changes: dict[str, Value] = {}
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
            changes[each.name] = _whole(key, text) * each.metadata["unit"]
        else:
            changes[each.name] = text
    return replace(defaults, **changes)  # type: ignore[arg-type]


def _whole(key: str, text: str) -> int:
    try:
        if "_" not in text:
            return int(text)
    except ValueError:
        pass
    raise InputError(f"{key}: {text!r} is not a whole number")


def _listener(text: str) -> str:
    """``PLAINTEXT://host:port`` or plain ``host:port``; of several, the first."""
    return text.partition(",")[0].strip().rpartition("//")[2]
