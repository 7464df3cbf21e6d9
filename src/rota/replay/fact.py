"""Facts about a group, as values: what the journal and the broker's log say, and what follows.

Times are milliseconds since 1970. A fact whose fields are the columns of a table of
:mod:`rota.tables` is written there as it is.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from rota.model.entry import Entry

Held: TypeAlias = Mapping[str, tuple[int, ...]]
"""Partitions by topic, numbers ascending."""


class Written(NamedTuple):
    """A record of the journal that counts: no control record, not of an aborted transaction."""

    offset: int
    """Its place in its partition of ``__consumer_offsets``: a group's records are all in one."""
    at: int
    """The record's timestamp."""
    entry: Entry


class Kind(enum.StrEnum):
    """How a group is run."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    """KIP-848: the broker assigns."""


class Mark(enum.StrEnum):
    """What a saved generation is to the one before it."""

    CREATED = "created"
    """A new group's first entry, without members: no rebalance."""
    SETTLED = "settled"
    """A new generation, or a new target of a consumer group."""
    REPLACED = "replaced"
    """The same generation with a static member's new id: no rebalance."""
    CONVERTED = "converted"
    """The group became one of the other kind, with the members it had: no rebalance in itself."""
    EMPTIED = "emptied"
    """The last member is gone."""
    FORGOTTEN = "forgotten"
    """The group was deleted: no rebalance in itself."""
    FOUND = "found"
    """What was there when the group was sampled first: no rebalance that was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationMember:
    """A member as its generation was saved."""

    member_id: str
    static_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout: int | None = None
    """None for members of consumer groups: the broker's own setting holds."""
    rebalance_timeout: int | None = None
    """``max.poll.interval.ms`` of Java's consumer."""
    rack: str | None = None
    topics: tuple[str, ...] = ()
    owned: Held = field(default_factory=dict)
    """What it said it owned when it joined (owned partitions, or sticky user data); of a consumer
    group: what it had when its target was computed."""
    owned_generation: int | None = None
    """The generation of ``owned``, or the last one it was in; of a consumer group: its epoch."""
    assigned: Held = field(default_factory=dict)
    """What it was given; of a consumer group: its target."""
    library: str | None = None
    """The client library, where its bytes give it away."""
    problem: str | None = None
    """What was wrong with its subscription's or assignment's bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A generation of a group: a row of silver/generations."""

    group: str
    kind: Kind
    life: int
    """0 for the first group of this name in the evidence, 1 after it was deleted, or after one of
    the other kind took the place of the empty group: its numbers begin anew. A conversion with
    members is the same life."""
    generation: int
    """Of a consumer group: the epoch. Of a classic one that was sampled, whose numbers are not
    told: which change it was, from 0."""
    mark: Mark
    at: int
    """The record's timestamp."""
    state_at: int | None = None
    """When the members had joined, as the entry says; None where it does not. Of a consumer group:
    when it came into this epoch."""
    offset: int
    protocol_type: str = ""
    strategy: str | None = None
    leader: str | None = None
    members: tuple[GenerationMember, ...] = ()
    sampled: bool = False
    not_before: int | None = None
    """Sampled: the last time that the group was at rest without it; None: not known."""


class Cause(enum.StrEnum):
    """Why a group rebalanced."""

    JOINED = "joined"
    LEFT = "left"
    SILENT = "silent"
    SLOW_POLL = "slow poll"
    SUBSCRIPTION = "subscription changed"
    PARTITIONS = "partitions added"
    STRATEGY = "strategy changed"
    LEADER = "leader rejoined"
    UNKNOWN = "unknown"


class Evidence(enum.StrEnum):
    """How something is known; never mixed."""

    STATED = "stated"
    """The broker's log says so."""
    INFERRED = "inferred"
    """It follows from the journal."""
    SAMPLED = "sampled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A rebalance as the journal has it: from one settled generation to the next.

    The rounds of a cooperative one are one step.
    """

    before: Generation | None
    """The settled generation it began from, as it was last saved (with the ids of static members
    that came back since); None at the group's first, and after it was empty."""
    rounds: tuple[Generation, ...]
    """The generations it took, at least one; the last is what came of it."""
    unseen: int
    """Generation numbers that were skipped: attempts that the journal does not show."""
    known_before: bool = True
    """False where the evidence begins in the middle of the group's life: ``before`` is not None
    because there was nothing, but because it is not there to be read."""
    from_generation: int | None = None
    """The number it began from: that of ``before``; of the empty generation where the group was
    empty; 0 where the group is new. None: not in the evidence."""
    absent: frozenset[str] = frozenset()
    """Topics that are asked for, and that nobody is given, neither by it nor by the generation that
    followed: they are no more. Where nothing followed, what nobody has may be on its way."""

    @property
    def after(self) -> Generation:
        """What came of it."""
        return self.rounds[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line of a broker's log that is about a group: a row of bronze/serverlog."""

    at: int
    group: str
    what: str
    """``preparing``, ``stabilized``, ``assigned``, ``emptied``, ``left``, ``failed``, ...: see
    :mod:`rota.replay.serverlog`."""
    generation: int | None = None
    member_id: str | None = None
    reason: str | None = None
    """The broker's reason."""
    client_reason: str | None = None
    """What the client gave as its reason."""
    text: str
    """The whole message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a step was taken, and how that is known."""

    cause: Cause
    evidence: Evidence
    likely: Cause | None = None
    """The best guess where the cause is unknown; never counted as known."""
    reason: str = ""
    """In words: the broker's own, or what in the journal speaks for it."""
    started_at: int | None = None
    """When the members were called to join; only where the log states it."""
    joined_at: int | None = None
    """When all had joined (stated: "Stabilized"; inferred: the entry's state timestamp)."""
    earliest_start: int | None = None
    """Where the start is not stated: it lies between here ..."""
    latest_start: int | None = None
    """... and here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a step cost."""

    moved: int
    moved_min: int
    orphaned: int
    stopped: int
    """Partitions that a living member had to give up: under eager all that it had."""
    idle_members: int
    most: int
    """The largest load after it."""
    least: int
    """The smallest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """Who owned a partition from when to when: a row of gold/ownership."""

    group: str
    topic: str
    partition: int
    member_id: str
    client_id: str
    client_host: str
    static_id: str | None
    since: int
    until: int | None
    """None: to the end of the evidence."""
    from_generation: int
    to_generation: int
    """The last generation in which it did."""


class Verdict(enum.StrEnum):
    """Burrow's verdicts on a partition, and on a group."""

    OK = "OK"
    WARN = "WARN"
    STALL = "STALL"
    STOP = "STOP"
    REWIND = "REWIND"
    ERR = "ERR"
    """Of a group only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A rebalance under a policy: a row of gold/whatif."""

    group: str
    life: int
    to_generation: int
    at: int
    policy: str
    actual: bool
    """The policy is the one that was used."""
    happens: bool
    happens_at: int | None
    """When, if it does: later than ``at`` where the session of a static member ends first."""
    moved: int
    moved_min: int
    stopped: int
    idle_members: int
    spread: int
    """The largest load less the smallest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to do about a group: a row of gold/advice."""

    group: str
    verdict: str
    policy: str
    """The best one; the one in use where nothing better was found."""
    policy_used: str
    damage: float
    rebalances: int
    rebalances_after: int
    moved: int | None
    """This and what follows: None where members do not share partitions that could be read."""
    moved_after: int | None
    moved_min: int | None
    stopped: int | None
    stopped_after: int | None
    libraries: tuple[str, ...]
    """Those of its last members; ``unknown`` among them if that of a member could not be told."""
    headline: str
    """One sentence: what happened, what of it was needless, what to change, what that saves."""
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """Who would have owned a partition from when to when: a row of gold/advised."""

    group: str
    topic: str
    partition: int
    member_id: str
    """Of someone who was restarted and would have been static: the first of its ids."""
    client_id: str
    client_host: str
    since: int
    until: int | None
    """None: to the end of the evidence."""
