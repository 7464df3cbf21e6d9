"""What can happen to a group, and what its members are configured as. Times are in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rota.assignors.registry import StrategyList


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Members that are alike: ``name-0``, ``name-1``, ..., or one with just this name."""

    name: str
    names: tuple[str, ...]
    topics: tuple[str, ...]
    pattern: str | None
    static: bool
    strategy: StrategyList | None
    """None: the scenario's."""
    joins: int
    apart: int
    """How long after each other they join."""
    session: int
    heartbeat: int
    max_poll: int
    processing: int
    listener: int
    auto_commit: bool
    commit_interval: int = 5_000
    capacity: int | None = None
    """Records a second that one can handle; None: all there are."""
    client_id: str = "consumer-{group}-1"
    """Kafka's default, the same in every process; may also name the member, as ``{name}``, and
    what differs from start to start, as ``{start}``.
    """


# What happens; ``at`` is in milliseconds from the start, ``names`` are members.


@dataclass(frozen=True, slots=True, kw_only=True)
class Joins:
    """New members, or some that are gone, start."""

    at: int
    names: tuple[str, ...]
    like: Mapping[str, Members]
    """For each name: what it is configured like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """Members close in good order."""

    at: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashes:
    """Members are gone without a word."""

    at: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """Applications stay outside of poll."""

    at: int
    names: tuple[str, ...]
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """Whole processes are frozen."""

    at: int
    names: tuple[str, ...]
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slows:
    """Applications take longer between polls; for a while, or for good."""

    at: int
    names: tuple[str, ...]
    processing: int
    time: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """Members close and are started again."""

    at: int
    names: tuple[str, ...]
    down: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deploys:
    """Members are replaced one after another."""

    at: int
    names: tuple[str, ...]
    down: int
    between: int
    surge: bool
    """The new one is started before the old one is told to go."""
    strategy: StrategyList | None
    """What the new ones are configured with; None: as the old ones."""
    static: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribes:
    """Members subscribe to other topics."""

    at: int
    names: tuple[str, ...]
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grows:
    """Topics get more partitions, or are made."""

    at: int
    partitions: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorStops:
    """The group's broker is down for a while."""

    at: int
    down: int


Happening: TypeAlias = (
    Joins
    | Leaves
    | Crashes
    | Stalls
    | Pauses
    | Slows
    | Restarts
    | Deploys
    | Subscribes
    | Grows
    | CoordinatorStops
)
