"""The values that the history modules exchange: generations, rebalances, causes, costs, advice.

Times are milliseconds since 1970. A class whose fields are the columns of a table in
``rota.pipeline.tables`` is written to that table as it is.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from rota.engine.model.journal_entry import GroupMetadataMember, JournalEntry

#: Partitions by topic, numbers ascending.
PartitionsByTopic: TypeAlias = Mapping[str, tuple[int, ...]]


class JournalRecord(NamedTuple):
    """A committed record of the journal, without control records and aborted transactions."""

    #: Its offset in ``__consumer_offsets``; all records of a group are in one partition.
    offset: int
    #: The record's timestamp.
    at: int
    entry: JournalEntry


class GroupType(enum.StrEnum):
    CLASSIC = "classic"
    #: KIP-848: the broker assigns.
    CONSUMER = "consumer"


class GenerationChange(enum.StrEnum):
    """How a saved generation relates to the one before it."""

    #: A new group's first entry, without members: no rebalance.
    CREATED = "created"
    #: A new generation, or a new target of a consumer group.
    REBALANCED = "rebalanced"
    #: The same generation with a static member's new id: no rebalance.
    REPLACED = "replaced"
    #: The group changed its type and kept its members: no rebalance.
    CONVERTED = "converted"
    #: The last member left.
    EMPTIED = "emptied"
    #: The group was deleted: no rebalance.
    DELETED = "deleted"
    #: The first sample of an existing group: no rebalance.
    FIRST_SAMPLE = "first_sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationMember:
    """A member as its generation was saved."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    #: None in a consumer group: the broker sets it.
    session_timeout: int | None = None
    #: ``max.poll.interval.ms`` of Java's consumer.
    rebalance_timeout: int | None = None
    rack: str | None = None
    topics: tuple[str, ...] = ()
    #: Partitions that it reported when it joined (in the subscription or sticky user data). In a
    #: consumer group: its partitions when the target was computed.
    owned: PartitionsByTopic = field(default_factory=dict)
    #: The generation of ``owned``, or its last one; in a consumer group: its epoch.
    owned_generation: int | None = None
    #: In a consumer group: its target.
    assigned: PartitionsByTopic = field(default_factory=dict)
    #: The client library, if it could be detected.
    library: str | None = None
    #: The error in its subscription's or assignment's bytes.
    problem: str | None = None


def member_identity(member: GenerationMember | GroupMetadataMember) -> str:
    """Returns the key that a member keeps over a restart if it is static.

    A static id never equals a member id.
    """
    static_id = member.group_instance_id
    return member.member_id if static_id is None else f"static {static_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A generation of a group: a row of silver/generations."""

    group: str
    kind: GroupType
    #: 0 for the first group of this name, 1 after it was deleted, or after a group of the other
    #: type replaced the empty group: then generations start again. A conversion with members does
    #: not start a new incarnation.
    incarnation: int
    #: In a consumer group: the epoch. In samples of a classic group: the number of the change.
    generation: int
    change: GenerationChange
    #: The record's timestamp.
    at: int
    #: When all members had joined; None if the entry does not have it. In a consumer group: the
    #: start of the epoch.
    state_at: int | None = None
    offset: int
    protocol_type: str = ""
    strategy: str | None = None
    leader: str | None = None
    members: tuple[GenerationMember, ...] = ()
    sampled: bool = False
    #: In samples: the last time before this change; None: unknown.
    not_before: int | None = None


class RebalanceCause(enum.StrEnum):
    JOINED = "joined"
    LEFT = "left"
    SESSION_TIMEOUT = "silent"
    SLOW_POLL = "slow poll"
    SUBSCRIPTION = "subscription changed"
    PARTITIONS = "partitions added"
    STRATEGY = "strategy changed"
    LEADER = "leader rejoined"
    UNKNOWN = "unknown"


class EvidenceType(enum.StrEnum):
    """The source of a fact. The types are never mixed."""

    #: From the broker's log.
    STATED = "stated"
    #: From the journal.
    INFERRED = "inferred"
    SAMPLED = "sampled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """A rebalance in the journal, from one settled generation to the next.

    The rounds of a cooperative rebalance are one rebalance.
    """

    #: The generation before, as last saved (with new ids of static members that returned); None if
    #: the group was new or empty.
    before: Generation | None
    #: The generations of the rebalance, at least one; the last is the result.
    rounds: tuple[Generation, ...]
    #: Number of skipped generations: attempts that the journal does not have.
    unseen: int
    #: False if ``before`` is None because the journal does not have the generation before.
    known_before: bool = True
    #: Number of the generation before, also of an empty group; 0: the group is new; None: unknown.
    from_generation: int | None = None
    #: Subscribed topics that neither this rebalance nor the next generation assigns: they were
    #: deleted. Empty without a next generation.
    absent: frozenset[str] = frozenset()

    @property
    def after(self) -> Generation:
        """The last generation of the rebalance."""
        return self.rounds[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line about a group in a broker's log: a row of bronze/serverlog."""

    at: int
    group: str
    #: ``preparing``, ``stabilized``, ``assigned``, ``emptied``, ``left``, ``failed``, ...: see
    #: :mod:`rota.engine.history.server_log`.
    what: str
    generation: int | None = None
    member_id: str | None = None
    #: The broker's reason.
    reason: str | None = None
    #: The client's reason.
    client_reason: str | None = None
    #: The whole message.
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The cause of a rebalance, and the evidence for it."""

    cause: RebalanceCause
    evidence: EvidenceType
    #: The best guess if the cause is unknown; never counted as known.
    likely: RebalanceCause | None = None
    #: The broker's words, or the evidence in the journal.
    reason: str = ""
    #: When the members were called to join; only from the log.
    started_at: int | None = None
    #: When all members had joined (stated: "Stabilized"; inferred: the entry's state timestamp).
    joined_at: int | None = None
    #: Bounds of the start if the log does not have it.
    earliest_start: int | None = None
    latest_start: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceCost:
    moved: int
    moves_needed: int
    orphaned: int
    #: Partitions that remaining members gave up: all of them under the eager protocol.
    stopped: int
    idle_members: int
    #: Largest and smallest number of partitions of a member after the rebalance.
    most: int
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
    #: The last generation of the ownership.
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
    incarnation: int
    to_generation: int
    at: int
    policy: str
    #: Whether this policy was used.
    actual: bool
    happens: bool
    #: Later than ``at`` if the session of a static member ends first; None if it does not happen.
    happens_at: int | None
    moved: int
    moves_needed: int
    stopped: int
    idle_members: int
    #: Largest load minus smallest.
    spread: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The advice on a group: a row of gold/advice."""

    group: str
    verdict: str
    #: The best policy; the used one if no other is better.
    policy: str
    #: The policies that the group used, in the order of their last use.
    policies_used: tuple[str, ...]
    damage: float
    rebalances: int
    rebalances_after: int
    #: These counts are None if members do not share partitions or cannot be decoded.
    moved: int | None = None
    moved_after: int | None = None
    moves_needed: int | None = None
    stopped: int | None = None
    stopped_after: int | None = None
    #: Libraries of the last members; ``unknown`` if a library could not be detected.
    libraries: tuple[str, ...]
    #: One sentence: what happened, unnecessary moves, the change and its saving.
    headline: str
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedOwnership:
    """Ownership under the advised policy: a row of gold/advised."""

    group: str
    topic: str
    partition: int
    #: The first id of a member that was restarted and would have been static.
    member_id: str
    client_id: str
    client_host: str
    since: int
    #: None: to the end of the evidence.
    until: int | None


MINUTE = 60_000
SERVER_STRATEGIES = ("uniform", "range")
COOPERATIVE_STICKY = "cooperative-sticky"
