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

PartitionsByTopic: TypeAlias = Mapping[str, tuple[int, ...]]  # numbers ascending, by topic


class JournalRecord(NamedTuple):
    """A committed record of the journal, without control records and aborted transactions."""

    offset: int  # its offset in ``__consumer_offsets``; all records of a group are in one partition
    at: int
    entry: JournalEntry


class GroupType(enum.StrEnum):
    CLASSIC = "classic"
    CONSUMER = "consumer"  # KIP-848: the broker assigns
    SHARE = "share"  # KIP-932: several members read a partition
    STREAMS = "streams"  # KIP-1071: Kafka Streams, with tasks that the broker assigns


class GenerationChange(enum.StrEnum):
    CREATED = "created"  # a new group's first entry, without members: no rebalance
    REBALANCED = "rebalanced"  # a new generation, or a new target of a consumer group
    REPLACED = "replaced"  # the same generation with a static member's new id: no rebalance
    CONVERTED = "converted"  # the group changed its type and kept its members: no rebalance
    EMPTIED = "emptied"
    DELETED = "deleted"  # the group was deleted: no rebalance
    FIRST_SAMPLE = "first_sample"  # the first sample of an existing group: no rebalance


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationMember:
    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout: int | None = None  # None in a consumer group: the broker sets it
    rebalance_timeout: int | None = None  # ``max.poll.interval.ms`` of Java's consumer
    rack: str | None = None
    topics: tuple[str, ...] = ()
    #: Partitions that it reported when it joined; in a consumer group: at the target's computation.
    owned: PartitionsByTopic = field(default_factory=dict)
    owned_generation: int | None = None  # of ``owned``, or its last one; consumer group: its epoch
    assigned: PartitionsByTopic = field(default_factory=dict)  # in a consumer group: its target
    #: In a share, streams or Connect group: the assignment in words. ``assigned`` is empty there:
    #: partitions of a share group have several owners, tasks are not partitions.
    work: tuple[str, ...] = ()
    library: str | None = None  # None: it could not be detected
    problem: str | None = None  # the error in its subscription's or assignment's bytes


def member_identity(member: GenerationMember | GroupMetadataMember) -> str:
    """Returns the key that a static member keeps over a restart; it never equals a member id."""
    static_id = member.group_instance_id
    return member.member_id if static_id is None else f"static {static_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A generation of a group: a row of silver/generations."""

    group: str
    kind: GroupType
    #: 0 at first; raised when the group is deleted, or an empty one gets the other type: then
    #: generations start again. A conversion with members does not raise it.
    incarnation: int
    generation: int  # consumer group: the epoch; sampled classic group: number of the change
    change: GenerationChange
    at: int
    #: When all members had joined, if the entry has it; in a consumer group: the epoch's start.
    state_at: int | None = None
    offset: int
    protocol_type: str = ""
    strategy: str | None = None
    leader: str | None = None
    members: tuple[GenerationMember, ...] = ()
    sampled: bool = False
    not_before: int | None = None  # in samples: the last time before this change; None: unknown


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

    STATED = "stated"  # from the broker's log
    INFERRED = "inferred"  # from the journal
    SAMPLED = "sampled"
    BOUNDED = "bounded"  # only commits show it: the true value lies between two bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """A rebalance in the journal, of all rounds, from one settled generation to the next."""

    before: Generation | None  # as last saved; None if the group was new or empty
    rounds: tuple[Generation, ...]  # its generations, at least one; the last is the result
    unseen: int  # number of skipped generations: attempts that the journal does not have
    known_before: bool = True  # False: the journal does not have the generation before
    #: Number of the generation before, also of an empty group; 0: the group is new; None: unknown.
    from_generation: int | None = None
    #: Subscribed topics that neither this nor the next generation assigns: they were deleted.
    absent: frozenset[str] = frozenset()

    @property
    def after(self) -> Generation:
        return self.rounds[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line about a group in a broker's log: a row of bronze/serverlog."""

    at: int
    group: str
    what: str  # ``preparing``, ``stabilized``, ...: see :mod:`rota.engine.history.server_log`
    generation: int | None = None
    member_id: str | None = None
    reason: str | None = None
    client_reason: str | None = None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    cause: RebalanceCause
    evidence: EvidenceType
    likely: RebalanceCause | None = None  # best guess if it is unknown; never counted
    reason: str = ""  # the broker's words, or the evidence in the journal
    started_at: int | None = None  # when the members were called to join; only from the log
    #: When all members had joined (stated: "Stabilized"; inferred: the entry's state timestamp).
    joined_at: int | None = None
    earliest_start: int | None = None  # bounds of the start if the log does not have it
    latest_start: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceCost:
    moved: int
    moves_needed: int
    orphaned: int
    revoked: int  # partitions that remaining members gave up: all of them under the eager protocol
    idle_members: int
    most: int  # largest and smallest number of partitions of a member after the rebalance
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
    until: int | None  # None: to the end of the evidence
    from_generation: int
    to_generation: int


class DowntimeReason(enum.StrEnum):
    """Why no member consumed a partition."""

    REVOKED = "revoked"  # the owner stayed but revoked it for an eager rebalance
    MOVED = "moved"  # it waited between cooperative rounds, or between KIP-848 heartbeats
    LEFT = "left"
    SILENT = "silent"  # the owner crashed or was cut off: from its last sign of life
    RESTARTED = "restarted"  # a static owner was away and returned within its session
    EMPTY = "empty"  # the group had no members for a while, as between two deploys
    #: All members of the group had closed, and came back after a long time, on a schedule or never.
    SHUT_DOWN = "shut down"
    NOT_POLLED = "not polled"  # no polls; the owner may have worked on its last records


#: Reasons that sums do not count: the first is in a column of its own, the second is intended.
UNCOUNTED_REASONS = frozenset({DowntimeReason.NOT_POLLED, DowntimeReason.SHUT_DOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Downtime:
    """A time in which no member consumed a partition: a row of gold/downtime."""

    group: str
    topic: str
    partition: int
    since: int
    until: int  # the end of the evidence if the partition still had no consumer then
    ended: bool
    reason: DowntimeReason
    member_id: str | None  # the last owner; None if it is unknown
    evidence: EvidenceType
    at_least_ms: int  # bounds of its length; equal if both ends are known exactly
    at_most_ms: int
    incarnation: int
    to_generation: int | None  # last generation of the rebalance that ended it; None: none
    delayed_records: int | None = None  # that arrived during it; None: log ends unknown
    added_lag_ms: int | None = None  # longest wait of one of them, in milliseconds

    @property
    def milliseconds(self) -> int:
        """Its length."""
        return self.until - self.since


class GroupHealth(enum.StrEnum):
    """The health of a group; later values are worse, except UNKNOWN."""

    OK = "OK"
    FALLING_BEHIND = "falling behind"
    STUCK = "stuck"  # the committed offset of an owned partition stays, though records arrive
    FAILING = "failing"  # nobody consumes, or the group cannot stay stable
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHealthStatus:
    """A group's health at the end of the evidence, and its worst: a row of gold/health."""

    group: str
    health: GroupHealth
    since: int | None  # start of that health; None: since before the evidence, or unknown
    topic: str | None  # the partition that decides; None: the whole group
    partition: int | None
    offset: int | None = None  # the committed offset of a stuck partition
    lag: int | None  # records that the group has not consumed; None: unknown
    reason: str  # the facts that show it, in words
    worst: GroupHealth
    worst_since: int | None
    worst_until: int | None
    worst_topic: str | None
    worst_partition: int | None
    worst_reason: str


class PatternType(enum.StrEnum):
    AUTOSCALER = "autoscaler"  # the number of members goes up and down between the same two numbers
    REJOINING = "rejoining member"  # one process joins and leaves again and again
    SLOW_POLLS = "slow polls"
    LATE_JOIN = "late join"  # a member that joins late makes the others wait
    CRASHES = "crashes"
    ROLLING_DEPLOY = "rolling deploy"
    STUCK_PARTITION = "stuck partition"  # the committed offset stays while records arrive
    GROWING_LAG = "growing lag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A pattern in a group's history: an element of ``patterns`` in gold/advice."""

    pattern: PatternType
    member: str | None = None  # static id or client id of the member; None: no single member
    topic: str | None = None
    partition: int | None = None
    since: int
    until: int
    times: int
    every_ms: int | None = None  # the usual time from one to the next, in milliseconds
    text: str  # what happened, in words without the time
    fix: str | None = None


class LagVerdict(enum.StrEnum):
    """Burrow's verdicts on a partition, and on a group."""

    OK = "OK"
    WARN = "WARN"
    STALL = "STALL"
    STOP = "STOP"
    REWIND = "REWIND"
    ERR = "ERR"  # of a group only


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A rebalance under a policy: a row of gold/whatif."""

    group: str
    incarnation: int
    to_generation: int
    at: int
    policy: str
    actual: bool
    happens: bool
    happens_at: int | None  # later than ``at`` if a static session ends first; else None
    downtime_ms: int  # in partition-milliseconds: measured for the used policy, or computed
    delayed_records: int | None = None  # that arrived then; None: no log end is known
    moved: int
    moves_needed: int
    revoked: int
    idle_members: int
    spread: int  # largest load minus smallest


#: The patterns that say the same as a health.
HEALTH_PATTERNS: Mapping[GroupHealth, PatternType] = {
    GroupHealth.STUCK: PatternType.STUCK_PARTITION,
    GroupHealth.FALLING_BEHIND: PatternType.GROWING_LAG,
}
#: Verdicts on a policy.
CHANGE, KEEP, FIX_FIRST, CANNOT_TELL = "change", "keep", "fix first", "cannot tell"


MIN_SAVED = 5_000  # a smaller saving, in partition-milliseconds, is not advised


class ActionKind(enum.StrEnum):
    REPAIR = "repair"
    POLICY = "policy"
    PROTOCOL = "protocol"  # the broker's protocol (KIP-848), to plan for
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionStep:
    text: str
    libraries: tuple[str, ...] = ()  # names of the client libraries that need this step; empty: all
    setting: str | None = None  # text to copy, the same for all libraries
    #: The settings to copy by the name of the library, one on each line.
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What an operator should do: an element of ``actions`` in gold/advice."""

    title: str
    kind: ActionKind
    #: Downtime saved, in partition-milliseconds; None: unknown. Savings of actions may overlap.
    saving_ms: int | None = None
    saving_is_bound: bool = False  # an upper bound: the downtime of what it prevents
    steps: tuple[ActionStep, ...] = ()

    @property
    def is_worth_it(self) -> bool:
        """Whether it is a change of the policy, or a repair that may save something."""
        saves = self.saving_ms is None or self.saving_ms >= MIN_SAVED
        is_repair = self.kind is ActionKind.REPAIR
        return self.kind is ActionKind.POLICY or (is_repair and saves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The advice on a group: a row of gold/advice."""

    group: str
    verdict: str
    policy: str  # the best policy; the used one if no other is better
    policies_used: tuple[str, ...]  # policies, in the order of their last use
    destination: str | None = None  # plan for it, if brokers and clients have KIP-848
    rebalances: int
    rebalances_after: int
    downtime_ms: int | None = None  # in partition-milliseconds; None: not measurable
    downtime_at_least_ms: int | None = None
    downtime_at_most_ms: int | None = None
    #: The expected downtime of the policy in use at the end, if it had been used all the time.
    downtime_current_ms: int | None = None
    downtime_after_ms: int | None = None
    uncertainty_ms: int | None = None  # a smaller saving is not advised
    not_polled_ms: int | None = None
    downtime_by_reason: Mapping[str, int] = field(default_factory=dict)
    delayed_records: int | None = None  # None if the log ends are unknown
    delayed_records_after: int | None = None  # an estimate: as many per downtime
    added_lag_ms: int | None = None
    moved: int | None = None  # these are None if partitions are not shared, or not decoded
    moved_after: int | None = None
    moves_needed: int | None = None
    revoked: int | None = None
    revoked_after: int | None = None
    libraries: tuple[str, ...]  # of the last members; ``unknown``: not detected
    patterns: tuple[Pattern, ...] = ()
    happened: str  # one sentence: what happened in the group, why, and what it cost
    to_do: str  # one sentence: what to do, and what it saves
    recommendation: str  # the first action in at most 28 characters
    saving_ms: int | None = None  # of the change of the policy; None: no change advised
    actions: tuple[Action, ...] = ()
    #: Names of the client libraries that the settings of the actions are for; the group's first.
    setting_libraries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedOwnership:
    """Ownership under the advised policy: a row of gold/advised."""

    group: str
    topic: str
    partition: int
    member_id: str  # the first id of a member that was restarted and would have been static
    client_id: str
    client_host: str
    since: int
    until: int | None  # None: to the end of the evidence


MINUTE = 60_000
MAX_SESSION_TIMEOUT = 30 * MINUTE  # the default of ``group.max.session.timeout.ms``
DEFAULT_SESSION_TIMEOUT = 45_000  # Kafka's default, used if the session is unknown
HEARTBEAT_INTERVAL = 3_000  # the default of ``heartbeat.interval.ms`` of all clients
SERVER_STRATEGIES = ("uniform", "range")
COOPERATIVE_STICKY = "cooperative-sticky"
