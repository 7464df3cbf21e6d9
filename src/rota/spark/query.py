"""What a query asks for: values that go to every task. How they are read out of options is
:mod:`rota.spark.option`'s, which tasks need not load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rota.model.client import ClientConfig, ReadConfig
from rota.model.topic import TopicPartition


@dataclass(frozen=True, slots=True)
class Topics:
    """Which topics to read: these."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """All topics in whose name this is found, as in Spark's own source."""

    text: str
    internal: bool = False
    """Those of the broker, too."""


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

    group: str


@dataclass(frozen=True, slots=True)
class Given:
    """At these offsets; -1 is the end, -2 the beginning."""

    option: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class At:
    """At the first record that is not older than a time, of each partition."""

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
    """What is without effect, or unwise, in any query."""
    batch_warnings: tuple[str, ...] = ()
    """What is without effect in a batch query."""
