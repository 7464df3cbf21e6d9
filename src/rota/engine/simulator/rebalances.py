"""Finds the rebalances in a trace: when they ran, why, what moved, and how many moves were
necessary.

A rebalance begins when the coordinator calls the members to join. It ends when the group is stable
and every member has received its assignment. The rounds of a cooperative rebalance, and attempts
that were interrupted, are one rebalance.

A rebalance can wait three times: the coordinator waits for every member of the last generation to
join, then for the leader's assignment, and at the end each member has to take its assignment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rota.engine.assignors.exact.solver import FewestMoves
from rota.engine.assignors.problem import Problem, count_moves, find_previous_owners
from rota.engine.coordinator.notes import (
    GenerationStarted,
    GroupEmptied,
    GroupNote,
    GroupStabilized,
    JoinTimedOut,
    MemberLeft,
    MembersLeft,
    RebalanceReason,
    RebalanceStarted,
    SessionExpired,
    SyncTimedOut,
    describe_reason,
    rename_members,
)
from rota.engine.formats import consumer_protocol
from rota.engine.member.events import ListenerMethod, PollTimeoutNote
from rota.engine.model.journal_entry import GroupMetadataEntry, GroupMetadataMember
from rota.engine.model.member import UNASSIGNED, GroupSubscription, Subscription
from rota.engine.model.request import JoinGroup
from rota.engine.model.response import JoinGroupResult
from rota.engine.model.topic import NO_PARTITIONS, Cluster, Partitions
from rota.engine.simulator.trace import TraceEventType, TraceRecord
from rota.errors import FormatError

#: Members hear of a rebalance by their next heartbeats: what takes longer wants a reason.
LONG_WAIT = 10_000


class RebalanceWait(NamedTuple):
    """A rebalance waited, in milliseconds, for members or for the leader's assignment."""

    #: By the names of their processes; none where it was for the leader's assignment.
    members: tuple[str, ...]
    time: int
    #: What became of it.
    why: str


class WaitTracker:
    """Follows the phases of a rebalance and records long waits."""

    def __init__(self) -> None:
        self.waits: list[RebalanceWait] = []
        self._since: int | None = None
        self._missing: dict[str, None] = {}
        self._last: tuple[int, tuple[str, ...], str] | None = None

    def start_join(self, now: int, members: Iterable[str]) -> None:
        """The members are called to join."""
        self._since = now
        self._missing = dict.fromkeys(sorted(members))
        self._last = None

    def member_joined(self, now: int, name: str) -> None:
        """A member joins."""
        if name in self._missing:
            del self._missing[name]
            self._last = (now, (name,), "joined late")

    def members_removed(self, now: int, names: tuple[str, ...], why: str) -> None:
        """Members were taken out of the group."""
        for name in names:
            self._missing.pop(name, None)
        self._last = (now, names, why)

    def end_join(self, now: int) -> None:
        """The join phase is over."""
        if self._last is not None and self._last[0] == now:
            self._told(now, *self._last[1:])
        elif self._missing:  # static members that are down
            self._told(now, tuple(self._missing), "did not come back")
        self._since = now

    def end_sync(self, now: int) -> None:
        """The generation is stable."""
        self._told(now, (), "came late")
        self._since = now

    def end_assignment(self, now: int, name: str) -> None:
        """The last of all members has taken its part."""
        self._told(now, (name,), "took its part late")
        self._since = None

    def _told(self, now: int, names: tuple[str, ...], why: str) -> None:
        if self._since is not None and now - self._since > LONG_WAIT:
            self.waits.append(RebalanceWait(names, now - self._since, why))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRebalance:
    """One rebalance. Times are in milliseconds."""

    start: int
    end: int
    #: False where it was under way when the world ended.
    finished: bool
    #: Why it began; members by the names of their processes.
    cause: RebalanceReason
    #: The member left, or fell silent, because its application did not poll in time.
    polled_late: bool
    #: Those that became stable; none where the group became empty.
    generations: tuple[int, ...]
    #: How often the members were called to join.
    attempts: int
    members: int
    moved: int
    moved_min: int
    orphaned: int
    #: How many partitions each member ended with.
    loads: Mapping[str, int]
    #: Whom it waited for, where that took long.
    waits: tuple[RebalanceWait, ...]

    @property
    def reason(self) -> str:
        """Why it began, in a few words."""
        if not self.polled_late:
            return describe_reason(self.cause)
        if isinstance(self.cause, MembersLeft):
            return f"member {', '.join(self.cause.members)} polled too late"
        return f"{describe_reason(self.cause)}: it has not polled in time"

    @property
    def idle(self) -> tuple[str, ...]:
        """Members that ended with nothing to do."""
        return tuple(sorted(name for name, load in self.loads.items() if not load))

    @property
    def rounds(self) -> int:
        """How many generations it took."""
        return len(self.generations)

    @property
    def time(self) -> int:
        """How long it took."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class _StableGeneration:
    """A generation as the journal has it: by static id, or member id where there is none."""

    topics: Mapping[str, tuple[str, ...]]
    owned: Mapping[str, Partitions]
    names: Mapping[str, str]

    @classmethod
    def from_entry(cls, saved: GroupMetadataEntry, names: Mapping[str, str]) -> _StableGeneration:
        members = saved.members
        keys = [member.group_instance_id or member.member_id for member in members]
        told = consumer_protocol.decode_subscriptions(
            [(member.subscription, None) for member in members]
        )
        return cls(
            {
                key: () if isinstance(one, FormatError) else one.topics
                for key, one in zip(keys, told, strict=True)
            },
            {key: _decode_assignment(member) for key, member in zip(keys, members, strict=True)},
            {key: names.get(m.member_id, key) for key, m in zip(keys, members, strict=True)},
        )


def _decode_assignment(member: GroupMetadataMember) -> Partitions:
    return (
        consumer_protocol.decode_assignment(member.assignment).partitions
        if member.assignment
        else NO_PARTITIONS
    )


NO_GENERATION = _StableGeneration({}, {}, {})


class _OpenRebalance:
    """A rebalance under way."""

    def __init__(
        self, start: int, cause: RebalanceReason, before: _StableGeneration, *, polled_late: bool
    ) -> None:
        self.start = start
        self.cause = cause
        self.polled_late = polled_late
        self.before = before
        self.attempts = 0
        self.generations: list[int] = []
        self.watch = WaitTracker()


class _TraceReader:
    def __init__(self, topics: Mapping[str, int]) -> None:
        self.found: list[SimulatedRebalance] = []
        self._counts = dict(topics)
        #: The process of each member id.
        self._names: dict[str, str] = {}
        self._running: set[str] = set()
        self._saved = NO_GENERATION
        self._open: _OpenRebalance | None = None
        self._stable = True
        #: Processes that have not been handed their part of the stable generation.
        self._awaited: set[str] = set()
        #: Processes that gave partitions up in a cooperative round, and have to join again.
        self._owing: set[str] = set()
        #: Processes that did not poll in time, and have not joined again.
        self._late: set[str] = set()

    def read_record(self, record: TraceRecord) -> None:  # noqa: C901, PLR0912 (a case for each)
        """Something happened."""
        match record.type:
            case TraceEventType.STARTED:
                self._running.add(record.subject)
            case TraceEventType.IDENTITY:
                self._names[str(record.detail)] = record.subject
            case TraceEventType.TOPICS:
                assert isinstance(record.detail, tuple)
                self._counts = dict(record.detail)
            case TraceEventType.JOURNAL if isinstance(record.detail, GroupMetadataEntry):
                self._saved = _StableGeneration.from_entry(record.detail, self._names)
            case TraceEventType.NOTE:
                self._noted(record)
            case TraceEventType.LISTENER:
                self._listened(record)
            case TraceEventType.SAID if isinstance(record.detail, PollTimeoutNote):
                self._late.add(record.subject)
            case TraceEventType.ASKED if isinstance(record.detail, JoinGroup):
                self._late.discard(record.subject)
                if self._open is not None:
                    self._open.watch.member_joined(record.at, record.subject)
            case TraceEventType.ANSWERED if (
                isinstance(record.detail, JoinGroupResult) and not record.detail.code
            ):
                # what it joined for was no news: nothing follows
                if self._stable:
                    self._owing.discard(record.subject)
            case TraceEventType.CRASHED | TraceEventType.GONE:
                self._running.discard(record.subject)
                self._awaited.discard(record.subject)
                self._owing.discard(record.subject)
            case _:
                return
        self._close_if_over(record.at)

    def _noted(self, record: TraceRecord) -> None:  # noqa: C901 (a case for each)
        note, now = record.detail, record.at
        assert isinstance(note, GroupNote)
        match note.change:
            case RebalanceStarted(reason):
                self._called(now, reason)
            case GenerationStarted():
                if self._open is not None:
                    self._open.watch.end_join(now)
            case GroupStabilized():
                if self._open is not None:
                    self._open.generations.append(note.generation)
                    self._open.watch.end_sync(now)
                self._stable = True
                # a static member that is down is in the group, but not there to take its part
                self._awaited = self._running.intersection(self._saved.names.values())
                self._owing.clear()
            case GroupEmptied():
                self._stable = True
                self._saved = NO_GENERATION
                self._awaited.clear()
                self._owing.clear()
            case MemberLeft(member_id):
                self._went(now, (member_id,), "left")
            case SessionExpired(member_id):
                self._went(now, (member_id,), "was silent")
            case JoinTimedOut(member_ids):
                self._went(now, member_ids, "did not join in time")
            case SyncTimedOut(member_ids):
                self._went(now, member_ids, "did not sync in time")
            case _:
                pass

    def _called(self, now: int, reason: RebalanceReason) -> None:
        """The members are called to join."""
        if self._open is None:
            self._open = _OpenRebalance(now, reason, self._saved, polled_late=self._is_late(reason))
        self._open.attempts += 1
        self._open.watch.start_join(now, self._saved.names.values())
        self._stable = False
        self._owing.clear()

    def _is_late(self, reason: RebalanceReason) -> bool:
        """Whether the member polled too late. Such a member leaves like one that closes or, if
        it is static, falls silent like one that crashed: the coordinator cannot tell the
        difference.
        """
        match reason:
            case MembersLeft((member_id,)) | SessionExpired(member_id):
                return self._names.get(member_id) in self._late
            case _:
                return False

    def _went(self, now: int, member_ids: tuple[str, ...], why: str) -> None:
        """Members were taken out of the group."""
        names = tuple(self._names.get(one, one) for one in member_ids)
        if self._late.issuperset(names):
            why = "polled too late"
        if self._open is not None:
            self._open.watch.members_removed(now, names, why)

    def _listened(self, record: TraceRecord) -> None:
        assert isinstance(record.detail, tuple)
        call, _ = record.detail
        if not self._stable:
            return
        if call == ListenerMethod.ASSIGNED.value:
            if self._open is not None and self._awaited == {record.subject}:
                self._open.watch.end_assignment(record.at, record.subject)
            self._awaited.discard(record.subject)
        elif record.subject in self._awaited:
            self._owing.add(record.subject)

    def _close_if_over(self, now: int) -> None:
        if self._stable and self._open is not None and not self._awaited and not self._owing:
            self.close_rebalance(now, finished=True)

    def close_rebalance(self, now: int, *, finished: bool) -> None:
        """The rebalance is over, or the world is."""
        under_way, self._open = self._open, None
        if under_way is None:
            return
        after = self._saved
        moves, fewest = _count_moves(under_way.before, after, Cluster(self._counts))
        self.found.append(
            SimulatedRebalance(
                start=under_way.start,
                end=now,
                finished=finished,
                cause=rename_members(under_way.cause, self._names),
                polled_late=under_way.polled_late,
                generations=tuple(under_way.generations),
                attempts=under_way.attempts,
                members=len(after.owned),
                moved=moves,
                moved_min=fewest,
                orphaned=sum(
                    len(owned)
                    for key, owned in under_way.before.owned.items()
                    if key not in after.owned
                ),
                loads=dict(
                    sorted((after.names[key], len(owned)) for key, owned in after.owned.items())
                ),
                waits=tuple(under_way.watch.waits),
            )
        )


def _count_moves(
    before: _StableGeneration, after: _StableGeneration, cluster: Cluster
) -> tuple[int, int]:
    """Returns the number of partitions that got another owner although the old one still
    wants them, and the smallest number that any assignment with the best balance moves.
    """
    group = GroupSubscription(
        {
            key: Subscription(
                topics=topics, owned=before.owned.get(key, NO_PARTITIONS), generation=0
            )
            for key, topics in after.topics.items()
        }
    )
    problem = Problem.from_group(cluster, group)
    previous = find_previous_owners(problem)
    owners = np.full(problem.layout.size, UNASSIGNED, dtype=np.int32)
    for position, key in enumerate(problem.members):
        owners[problem.layout.numbers_of(after.owned[key])] = position
    fewest, _ = FewestMoves(problem).count(previous, lambda: False)
    return count_moves(previous, owners), fewest


def find_trace_rebalances(
    trace: Iterable[TraceRecord], topics: Mapping[str, int], end: int
) -> tuple[SimulatedRebalance, ...]:
    """Every rebalance, in order; ``topics`` are the partition counts at the start."""
    reader = _TraceReader(topics)
    for record in trace:
        reader.read_record(record)
    reader.close_rebalance(end, finished=False)
    return tuple(reader.found)
