"""A topic's settings as text, the way requests and the catalogue carry them.

Every key that Kafka 4.3 has for topics is here. Most have a field of
:class:`~rota.model.config.TopicConfig`. The others steer what a broker of one node has not
(replicas, remote storage) or does not do (packing batches anew): of those, the values are accepted
that ask for nothing.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TypeAlias

from rota.errors import InputError
from rota.model.config import INT, LONG, TopicConfig
from rota.model.text import nearest, shortened

Value: TypeAlias = int | float | bool | str


class Kind(enum.IntEnum):
    """The type of a setting, by its number in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting of topics: what it is called, and what it may be."""

    key: str
    kind: Kind
    default: Value
    about: str
    field: str | None = None
    """Of :class:`TopicConfig`; None if Rota has nothing to do for it."""
    broker: tuple[str, ...] = ()
    """The broker's settings it is taken from where the topic has none of its own, best first."""
    least: float = 0
    most: float = LONG
    choices: tuple[str, ...] = ()
    reason: str = ""
    """Why only the ``choices`` are accepted, where Kafka has more."""
    pattern: re.Pattern[str] | None = None
    """What a list must look like, its items between commas."""
    wanted: str = ""
    """That in words."""
    hidden: bool = False
    """Kafka does not show it unless it is set."""

    def parse(self, text: str) -> Value:
        """The value that a text stands for.

        :raises InputError: it is none, or out of bounds
        """
        text = text.strip()
        match self.kind:
            case Kind.BOOLEAN:
                value: Value = self._choice(text.lower(), ("true", "false")) == "true"
            case Kind.LIST:
                return ",".join(self._items(text))
            case Kind.STRING:
                return self._choice(text, self.choices)
            case _:
                value = self._number(text)
        if self.choices:
            self._choice(written(value), self.choices)
        return value

    def _number(self, text: str) -> float | int:
        try:
            value = float(text) if self.kind is Kind.DOUBLE else int(text)
            if "_" not in text and self.least <= value <= self.most:
                return value
        except ValueError:
            pass
        kind = "a" if self.kind is Kind.DOUBLE else "a whole"
        raise InputError(
            f"{self.key}: {shortened(text)} is not {kind} number from {self.least} to {self.most}"
        )

    def _choice(self, text: str, choices: Iterable[str]) -> str:
        if text in choices:
            return text
        known = " or ".join(map(repr, choices))
        why = f" ({self.reason})" if self.reason else ""
        raise InputError(f"{self.key}: {shortened(text)} is not {known}{why}")

    def _items(self, text: str) -> list[str]:
        items = [item.strip() for item in text.split(",")] if text else []
        if self.choices:
            for item in items:
                self._choice(item, self.choices)
        if self.pattern is not None and self.pattern.fullmatch(",".join(items)) is None:
            raise InputError(f"{self.key}: {shortened(text)} is not {self.wanted}")
        return list(dict.fromkeys(items))


def written(value: Value) -> str:
    """A value as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def topic_config(overrides: Mapping[str, str], defaults: TopicConfig) -> TopicConfig:
    """What holds for a topic that has these settings of its own.

    :raises InputError: one that no topic has, or a value it cannot have; names it
    """
    changes: dict[str, Value] = {}
    for key, text in overrides.items():
        setting = SETTINGS.get(key)
        if setting is None:
            near = nearest(key, SETTINGS)
            raise InputError(f"{shortened(key)} is not a setting of topics{near}")
        value = setting.parse(text)
        if key == "cleanup.policy":
            value = ",".join(sorted(str(value).split(",")))
        if setting.field is not None:
            changes[setting.field] = value
    if "internal.segment.bytes" in overrides:
        changes["segment_bytes"] = SETTINGS["internal.segment.bytes"].parse(
            overrides["internal.segment.bytes"]
        )
    config = replace(defaults, **changes)  # type: ignore[arg-type]
    if config.min_compaction_lag > config.max_compaction_lag:
        raise InputError(
            f"min.compaction.lag.ms: {config.min_compaction_lag} is more than "
            f"max.compaction.lag.ms, {config.max_compaction_lag}"
        )
    return config


def _log(*names: str) -> tuple[str, ...]:
    return tuple(f"log.{name}" for name in names)


_REPLICAS = re.compile(r"|\*|\d+:\d+(,\d+:\d+)*")
_ALONE = "there is one node, and so one replica"
_LOCAL = "Rota has no remote storage"

_BROKER: Mapping[str, tuple[str, ...]] = {
    "cleanup.policy": _log("cleanup.policy"),
    "delete.retention.ms": _log("cleaner.delete.retention.ms"),
    "flush.messages": _log("flush.interval.messages"),
    "flush.ms": _log("flush.interval.ms", "flush.scheduler.interval.ms"),
    "index.interval.bytes": _log("index.interval.bytes"),
    "max.compaction.lag.ms": _log("cleaner.max.compaction.lag.ms"),
    "max.message.bytes": ("message.max.bytes",),
    "message.timestamp.after.max.ms": _log("message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": _log("message.timestamp.before.max.ms"),
    "message.timestamp.type": _log("message.timestamp.type"),
    "min.cleanable.dirty.ratio": _log("cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": _log("cleaner.min.compaction.lag.ms"),
    "retention.bytes": _log("retention.bytes"),
    "retention.ms": _log("retention.ms", "retention.minutes", "retention.hours"),
    "segment.bytes": _log("segment.bytes"),
    "segment.index.bytes": _log("index.size.max.bytes"),
    "segment.ms": _log("roll.ms", "roll.hours"),
}

_ABOUT: Mapping[str, str] = {
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


def _honoured() -> Iterable[Setting]:
    """The settings that are fields of :class:`TopicConfig`."""
    for each in fields(TopicConfig):
        about = each.metadata
        key = about["key"]
        default: Value = getattr(TopicConfig(), each.name)
        common = {"key": key, "field": each.name, "about": _ABOUT[key], "broker": _BROKER[key]}
        if key == "cleanup.policy":
            choices = ("compact", "delete")
            yield Setting(kind=Kind.LIST, default=default, choices=choices, **common)
        elif "choices" in about:
            yield Setting(kind=Kind.STRING, default=default, choices=about["choices"], **common)
        else:
            kind = (
                Kind.DOUBLE if "ratio" in about else Kind.INT if about["most"] == INT else Kind.LONG
            )
            least = 1 << 20 if key == "segment.bytes" else about["least"]
            yield Setting(kind=kind, default=default, least=least, most=about["most"], **common)


def _idle() -> Iterable[Setting]:
    """The settings that ask Rota for nothing."""
    yield Setting(
        key="compression.type",
        kind=Kind.STRING,
        default="producer",
        choices=("producer",),
        reason="Rota keeps batches as their producers packed them",
        broker=("compression.type",),
        about="How batches are compressed: as their producers did.",
    )
    for codec, default, least, most in (
        ("gzip", -1, -1, 9),
        ("lz4", 9, 1, 17),
        ("zstd", 3, -131_072, 22),
    ):
        key = f"compression.{codec}.level"
        yield Setting(
            key=key,
            kind=Kind.INT,
            default=default,
            least=least,
            most=most,
            broker=(key,),
            about=f"Of no effect while compression.type is not {codec}.",
        )
    yield Setting(
        key="file.delete.delay.ms",
        kind=Kind.LONG,
        default=60_000,
        broker=_log("segment.delete.delay.ms"),
        about="Of no effect: the files of a deleted segment are removed at once.",
    )
    for side in ("follower", "leader"):
        yield Setting(
            key=f"{side}.replication.throttled.replicas",
            kind=Kind.LIST,
            default="",
            pattern=_REPLICAS,
            wanted="'*', or a list of partition:broker",
            about="Of no effect: one node has nothing to replicate.",
        )
    for key in ("local.retention.bytes", "local.retention.ms"):
        yield Setting(
            key=key,
            kind=Kind.LONG,
            default=-2,
            least=-2,
            broker=_log(key),
            about="Of no effect without remote storage.",
        )
    yield Setting(
        key="min.insync.replicas",
        kind=Kind.INT,
        default=1,
        least=1,
        most=INT,
        choices=("1",),
        reason=_ALONE,
        broker=("min.insync.replicas",),
        about="How many replicas must have a record before it is acknowledged to acks=all.",
    )
    yield Setting(
        key="preallocate",
        kind=Kind.BOOLEAN,
        default=False,
        choices=("false",),
        reason="Rota's segments grow as they are written",
        broker=_log("preallocate"),
        about="Whether a segment's file has its full size from the start.",
    )
    for key in ("remote.log.copy.disable", "remote.log.delete.on.disable"):
        yield Setting(
            key=key,
            kind=Kind.BOOLEAN,
            default=False,
            about="Of no effect without remote storage.",
        )
    yield Setting(
        key="remote.storage.enable",
        kind=Kind.BOOLEAN,
        default=False,
        choices=("false",),
        reason=_LOCAL,
        about="Whether old segments are moved to remote storage.",
    )
    yield Setting(
        key="segment.jitter.ms",
        kind=Kind.LONG,
        default=0,
        choices=("0",),
        reason="Rota rolls segments when they are due",
        broker=_log("roll.jitter.ms", "roll.jitter.hours"),
        about="How much sooner than segment.ms a segment may end, at random.",
    )
    yield Setting(
        key="unclean.leader.election.enable",
        kind=Kind.BOOLEAN,
        default=False,
        broker=("unclean.leader.election.enable",),
        about="Of no effect: one node has one replica to elect.",
    )
    yield Setting(
        key="internal.segment.bytes",
        kind=Kind.INT,
        default=0,
        least=1,
        most=INT,
        hidden=True,
        about="In place of segment.bytes, without its lower bound; for tests.",
    )


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {each.key: each for each in sorted((*_honoured(), *_idle()), key=lambda each: each.key)}
)
"""All settings of topics, by their keys in order."""
