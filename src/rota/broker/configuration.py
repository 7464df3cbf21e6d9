"""A broker's settings out of Kafka's names: what ``server.properties`` would have."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TypeAlias, TypeVar

from rota.errors import InputError
from rota.model.config import BrokerConfig, GroupConfig, TopicConfig
from rota.model.setting import SETTINGS, Value, topic_config, written

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
_KAFKA = (
    "advertised. alter. authorizer. auto. background. broker. client. compression. config. "
    "connection. connections. control. controlled. controller. create. default. delegation. "
    "delete. early. eligible. fetch. follower. group. initial. inter. kafka. leader. listener "
    "listeners log. max. message. metadata. metric metrics. min. node. num. offset. offsets. "
    "password. principal. process. producer. queued. quorum. quota. remote. replica. "
    "replication. request. reserved. sasl. security. server. share. socket. ssl. static. "
    "super. telemetry. transaction transactional. unclean. unstable. zookeeper."
)
"""How settings of a Kafka begin."""
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


def configuration(given: Given) -> Configuration:
    """What these settings come to.

    :raises InputError: one that is not known, or a value it cannot have; names it
    """
    texts = {_SYNONYMS.get(key, key): _text(key, value) for key, value in given.items()}
    advertised = texts.pop(ADVERTISED, None)
    for key in _ONE & texts.keys():
        if texts.pop(key).strip() != "1":
            raise InputError(f"{key}: there is one node, so it can only be 1")
    topic = _topic(texts)
    broker = _read(BrokerConfig(), texts)
    group = _read(Configuration().group, texts)
    if texts:
        raise InputError(_unknown(next(iter(texts))))
    return Configuration(
        broker=broker,
        group=group,
        topic=topic,
        advertised=None if advertised is None else _listener(advertised),
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
    names, kafka = frozenset(known()), tuple(_KAFKA.split())
    return [key for key in given if key not in names and key.startswith(kafka)]


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


def _unknown(key: str) -> str:
    near = _nearest(key, known())
    hint = f"; did you mean {near}?" if near else ""
    return f"{key!r} is not a setting that Rota's broker has{hint}"


def _nearest(key: str, keys: Iterable[str]) -> str:
    return " or ".join(difflib.get_close_matches(key, keys, 2, 0.6))
