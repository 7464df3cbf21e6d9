"""What holds for a topic or the broker, setting by setting, and where each value comes from."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from rota.model.config import INT, BrokerConfig, GroupConfig, TopicConfig
from rota.model.setting import SETTINGS, Kind, Setting, Value, written


class Source(enum.IntEnum):
    """Where a value comes from, by its number in DescribeConfigs."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value that a setting would have by a name, if no better name had one."""

    name: str
    value: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """A setting and its value."""

    key: str
    kind: Kind
    value: str | None
    """None where the broker has no value under this name, but one under another."""
    synonyms: tuple[Synonym, ...]
    """Best first; the best one is the value, if there is any."""
    read_only: bool
    about: str

    @property
    def source(self) -> Source:
        """Of the value."""
        return self.synonyms[0].source if self.synonyms else Source.DEFAULT


def of_topic(overrides: Mapping[str, str], defaults: TopicConfig) -> Iterator[Effective]:
    """All settings of a topic, in the order of their keys."""
    for setting in SETTINGS.values():
        own = overrides.get(setting.key)
        if setting.hidden and own is None:
            continue
        inherited = _of_broker(setting, defaults)
        if own is None:
            field = setting.field
            value = written(setting.default if field is None else getattr(defaults, field))
            synonyms = inherited
        else:
            value = written(setting.parse(own))
            synonyms = (Synonym(setting.key, value, Source.TOPIC), *inherited)
        yield Effective(
            key=setting.key,
            kind=setting.kind,
            value=value,
            synonyms=synonyms,
            read_only=False,
            about=setting.about,
        )


_HOURS: Mapping[str, int] = MappingProxyType(
    dict.fromkeys(("log.retention.hours", "log.roll.hours", "log.roll.jitter.hours"), 3_600_000)
)


def _of_broker(setting: Setting, defaults: TopicConfig) -> tuple[Synonym, ...]:
    """What the broker says of a topic's setting, as Kafka lists it.

    Where the broker has several names for it, the best of them has no default, and Kafka lists
    nothing at all unless that one is set.
    """
    if not setting.broker:
        return ()
    best, last = setting.broker[0], setting.broker[-1]
    value = setting.default if setting.field is None else getattr(defaults, setting.field)
    plain = setting.default
    if last in _HOURS:
        assert isinstance(plain, int)
        plain //= _HOURS[last]
    default = Synonym(last, written(plain), Source.DEFAULT)
    if value != setting.default:
        return (Synonym(best, written(value), Source.STATIC_BROKER), default)
    return (default,) if best == last else ()


def of_broker(
    config: BrokerConfig, groups: GroupConfig, defaults: TopicConfig
) -> Iterator[Effective]:
    """All settings of the broker that Rota has, in the order of their keys; none can be altered."""
    found: dict[str, Effective] = {}
    for part in (config, groups):
        plain = type(part)()
        for each in fields(part):
            key, unit = each.metadata["key"], each.metadata.get("unit", 1)
            if key is not None:
                value, default = getattr(part, each.name), getattr(plain, each.name)
                if unit > 1:
                    value, default = value // unit, default // unit
                found[key] = _static(key, _kind(value, each.metadata), value, default)
    for setting in SETTINGS.values():
        if setting.broker:
            name = setting.broker[0]
            synonyms = _of_broker(setting, defaults)
            found[name] = Effective(
                key=name,
                kind=setting.kind,
                value=synonyms[0].value if synonyms else None,
                synonyms=synonyms,
                read_only=True,
                about=setting.about,
            )
    return iter(found[key] for key in sorted(found))


def _static(key: str, kind: Kind, value: Value, default: Value) -> Effective:
    best = Synonym(key, written(default), Source.DEFAULT)
    changed = (Synonym(key, written(value), Source.STATIC_BROKER),) if value != default else ()
    return Effective(
        key=key,
        kind=kind,
        value=written(value),
        synonyms=(*changed, best),
        read_only=True,
        about="",
    )


def _kind(value: Value, about: Mapping[str, object]) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, str):
        return Kind.STRING
    return Kind.INT if about.get("most") == INT * int(str(about.get("unit", 1))) else Kind.LONG
