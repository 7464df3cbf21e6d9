"""The values that the history modules exchange: generations, rebalances, causes, costs, advice.

Times are milliseconds since 1970. A class whose fields are the columns of a table in
``rota.pipeline.tables`` is written to that table as it is.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from rota.engine.model.journal_entry import JournalEntry

#: Partitions by topic, numbers ascending.
PartitionsByTopic: TypeAlias = Mapping[str, tuple[int, ...]]


class JournalRecord(NamedTuple):
    """A committed record of the journal; control records and aborted transactions are left out."""

    #: Its place in its partition of ``__consumer_offsets``: a group's records are all in one.
    offset: int
    #: The record's timestamp.
    at: int
    entry: JournalEntry


class GroupType(enum.StrEnum):
    CLASSIC = "classic"
    #: KIP-848: the broker assigns.
    CONSUMER = "consumer"


class GenerationMark(enum.StrEnum):
    """How a saved generation relates to the one before it."""

    #: A new group's first entry, without members: no rebalance.
    CREATED = "created"
    #: A new generation, or a new target of a consumer group.
    SETTLED = "settled"
    #: The same generation with a static member's new id: no rebalance.
    REPLACED = "replaced"
    #: The group became one of the other kind, with the members it had: no rebalance in itself.
    CONVERTED = "converted"
    #: The last member is gone.
    EMPTIED = "emptied"
    #: The group was deleted: no rebalance in itself.
    FORGOTTEN = "forgotten"
    #: What was there when the group was sampled first: no rebalance that was seen.
    FOUND = "found"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationMember:
    """A member as its generation was saved."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    #: None for members of consumer groups: the broker's own setting holds.
    session_timeout: int | None = None
    #: ``max.poll.interval.ms`` of Java's consumer.
    rebalance_timeout: int | None = None
    rack: str | None = None
    topics: tuple[str, ...] = ()
    #: What it said it owned when it joined (owned partitions, or sticky user data); of a consumer
    #: group: what it had when its target was computed.
    owned: PartitionsByTopic = field(default_factory=dict)
    #: The generation of ``owned``, or the last one it was in; of a consumer group: its epoch.
    owned_generation: int | None = None
    #: What it was given; of a consumer group: its target.
    assigned: PartitionsByTopic = field(default_factory=dict)
    #: The client library, where its bytes give it away.
    library: str | None = None
    #: What was wrong with its subscription's or assignment's bytes.
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A generation of a group: a row of silver/generations."""

    group: str
    kind: GroupType
    #: 0 for the first group of this name in the evidence, 1 after it was deleted, or after one of
    #: the other kind took the place of the empty group: its numbers begin anew. A conversion with
    #: members is the same life.
    life: int
    #: Of a consumer group: the epoch. Of a classic one that was sampled, whose numbers are not
    #: told: which change it was, from 0.
    generation: int
    mark: GenerationMark
    #: The record's timestamp.
    at: int
    #: When the members had joined, as the entry says; None where it does not. Of a consumer group:
    #: when it came into this epoch.
    state_at: int | None = None
    offset: int
    protocol_type: str = ""
    strategy: str | None = None
    leader: str | None = None
    members: tuple[GenerationMember, ...] = ()
    sampled: bool = False
    #: Sampled: the last time that the group was at rest without it; None: not known.
    not_before: int | None = None


class RebalanceCause(enum.StrEnum):
    JOINED = "joined"
    LEFT = "left"
    SILENT = "silent"
    SLOW_POLL = "slow poll"
    SUBSCRIPTION = "subscription changed"
    PARTITIONS = "partitions added"
    STRATEGY = "strategy changed"
    LEADER = "leader rejoined"
    UNKNOWN = "unknown"


class EvidenceType(enum.StrEnum):
    """How a fact is known. The types are never mixed."""

    #: The broker's log says so.
    STATED = "stated"
    #: It follows from the journal.
    INFERRED = "inferred"
    SAMPLED = "sampled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """A rebalance as the journal shows it: from one settled generation to the next.

    The rounds of a cooperative rebalance are one rebalance.
    """

    #: The settled generation it began from, as it was last saved (with the ids of static members
    #: that came back since); None at the group's first, and after it was empty.
    before: Generation | None
    #: The generations it took, at least one; the last is what came of it.
    rounds: tuple[Generation, ...]
    #: Generation numbers that were skipped: attempts that the journal does not show.
    unseen: int
    #: False where the evidence begins in the middle of the group's life: ``before`` is not None
    #: because there was nothing, but because it is not there to be read.
    known_before: bool = True
    #: The number it began from: that of ``before``; of the empty generation where the group was
    #: empty; 0 where the group is new. None: not in the evidence.
    from_generation: int | None = None
    #: Topics that are asked for, and that nobody is given, neither by it nor by the generation that
    #: followed: they are no more. Where nothing followed, what nobody has may be on its way.
    absent: frozenset[str] = frozenset()

    @property
    def after(self) -> Generation:
        """The last generation of the rebalance."""
        return self.rounds[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line of a broker's log that is about a group: a row of bronze/serverlog."""

    at: int
    group: str
    #: ``preparing``, ``stabilized``, ``assigned``, ``emptied``, ``left``, ``failed``, ...: see
    #: :mod:`rota.engine.history.server_log`.
    what: str
    generation: int | None = None
    member_id: str | None = None
    #: The broker's reason.
    reason: str | None = None
    #: What the client gave as its reason.
    client_reason: str | None = None
    #: The whole message.
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The cause of a rebalance, and the evidence for it."""

    cause: RebalanceCause
    evidence: EvidenceType
    #: The best guess where the cause is unknown; never counted as known.
    likely: RebalanceCause | None = None
    #: In words: the broker's own, or what in the journal speaks for it.
    reason: str = ""
    #: When the members were called to join; only where the log states it.
    started_at: int | None = None
    #: When all had joined (stated: "Stabilized"; inferred: the entry's state timestamp).
    joined_at: int | None = None
    #: Where the start is not stated: it lies between here ...
    earliest_start: int | None = None
    #: ... and here.
    latest_start: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceCost:
    moved: int
    moved_min: int
    orphaned: int
    #: Partitions that a living member had to give up: under eager all that it had.
    stopped: int
    idle_members: int
    #: The largest load after it.
    most: int
    #: The smallest.
    least: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOwnership:
    """A member's ownership of a partition over time: a row of gold/ownership."""

    group: str
    topic: str
    partition: int
    member_id: str
    client_id: str
    client_host: str
    group_instance_id: str | None
    since: int
    #: None: to the end of the evidence.
    until: int | None
    from_generation: int
    #: The last generation in which it did.
    to_generation: int


class LagVerdict(enum.StrEnum):
    """Burrow's verdicts on a partition, and on a group."""

    OK = "OK"
    WARN = "WARN"
    STALL = "STALL"
    STOP = "STOP"
    REWIND = "REWIND"
    #: Of a group only.
    ERR = "ERR"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A rebalance under a policy: a row of gold/whatif."""

    group: str
    life: int
    to_generation: int
    at: int
    policy: str
    #: The policy is the one that was used.
    actual: bool
    happens: bool
    #: When, if it does: later than ``at`` where the session of a static member ends first.
    happens_at: int | None
    moved: int
    moved_min: int
    stopped: int
    idle_members: int
    #: The largest load less the smallest.
    spread: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The advice on a group: a row of gold/advice."""

    group: str
    verdict: str
    #: The best one; the one in use where nothing better was found.
    policy: str
    policy_used: str
    damage: float
    rebalances: int
    rebalances_after: int
    #: This and what follows: None where members do not share partitions that could be read.
    moved: int | None
    moved_after: int | None
    moved_min: int | None
    stopped: int | None
    stopped_after: int | None
    #: Those of its last members; ``unknown`` among them if that of a member could not be told.
    libraries: tuple[str, ...]
    #: One sentence: what happened, what of it was needless, what to change, what that saves.
    headline: str
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedOwnership:
    """Ownership under the advised policy: a row of gold/advised."""

    group: str
    topic: str
    partition: int
    #: Of someone who was restarted and would have been static: the first of its ids.
    member_id: str
    client_id: str
    client_host: str
    since: int
    #: None: to the end of the evidence.
    until: int | None


MINUTE = 60_000
SERVER_STRATEGIES = ("uniform", "range")
COOPERATIVE_STICKY = "cooperative-sticky"
