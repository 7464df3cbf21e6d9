"""What truly happened in a simulated history, told by the world and not by its journal.

The coordinator's notes say when it called the members to join and why, and when a generation was
handed out; members' own notes say who polled too late, and what each was handed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rota.engine.coordinator.notes import (
    GroupEmptied,
    GroupNote,
    GroupStabilized,
    MemberAdded,
    MemberLeft,
    MemberRejoined,
    MembersLeft,
    RebalanceReason,
    RebalanceStarted,
    SessionExpired,
    StaticMemberReplaced,
    SyncTimedOut,
)
from rota.engine.formats import consumer_protocol
from rota.engine.history import server_log
from rota.engine.history.causes import CommitTimes
from rota.engine.history.facts import JournalRecord, LogLine, RebalanceCause
from rota.engine.member.events import ListenerMethod
from rota.engine.model.journal_entry import (
    GroupMetadataEntry,
    GroupMetadataTombstone,
    OffsetCommitEntry,
)
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.scenario import Scenario
from rota.engine.simulator.simulation import ScenarioRunner
from rota.engine.simulator.trace import TraceEventType, TraceRecord, list_log_lines

LATE = "consumer poll timeout has expired."
TAKEN = "need to revoke partitions and re-join"
COOPERATIVE = "cooperative-sticky"


@dataclass(frozen=True, slots=True)
class Owners:
    """Who has what; a static member is known by its static id."""

    given: Mapping[str, frozenset[TopicPartition]] = field(default_factory=dict)
    topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, saved: GroupMetadataEntry) -> Owners:
        keys = {one.member_id: one.group_instance_id or one.member_id for one in saved.members}
        return cls(
            {keys[one.member_id]: _partitions(one.assignment) for one in saved.members},
            {
                keys[one.member_id]: consumer_protocol.decode_subscription(one.subscription).topics
                for one in saved.members
            },
        )

    def moved_from(self, before: Owners) -> int:
        return sum(
            partition not in self.given[key]
            for key, partitions in before.given.items()
            if key in self.given
            for partition in partitions
            if partition.topic in self.topics[key]
        )


@dataclass(slots=True)
class Rebalance:
    """A rebalance that took place."""

    start: int
    from_generation: int
    #: Usually one: a coordinator that is restarted forgets its rebalance, and has another reason
    #: for the one that follows.
    causes: set[RebalanceCause]
    before: Owners
    generations: list[int] = field(default_factory=list)
    emptied: bool = False
    #: Partitions that have another owner though theirs is there and wants them.
    moved: int = 0

    @property
    def shape(self) -> tuple[int, tuple[int, ...]]:
        return self.from_generation, tuple(self.generations)


@dataclass(frozen=True, slots=True)
class ExpectedHistory:
    """A history's evidence, and what truly happened."""

    group: str
    records: list[JournalRecord]
    lines: list[LogLine]
    commits: CommitTimes
    rebalances: list[Rebalance]
    #: What each member was handed in each generation.
    handed: Mapping[tuple[str, int], frozenset[TopicPartition]]


def simulate_history(scenario: Scenario, seed: int) -> ExpectedHistory:
    """Plays a scenario, members as Java's consumers."""
    trace = ScenarioRunner(scenario, solver="kafka", seed=seed).run().trace
    entries = [record for record in trace if record.type is TraceEventType.JOURNAL]
    records = [
        JournalRecord(offset, record.at, record.detail)  # type: ignore[arg-type]
        for offset, record in enumerate(entries)
    ]
    return ExpectedHistory(
        scenario.group,
        records,
        _lines(trace),
        commit_times(records),
        _Reader(dict(scenario.topics)).read(trace),
        _handed(trace),
    )


def commit_times(records: Iterable[JournalRecord]) -> CommitTimes:
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for written in records:
        if isinstance(written.entry, OffsetCommitEntry):
            found[written.entry.topic, written.entry.partition].append(written.at)
    return {key: np.array(sorted(times), dtype=np.int64) for key, times in found.items()}


def _lines(trace: Iterable[TraceRecord]) -> list[LogLine]:
    found = []
    for line in list_log_lines(trace):
        read = server_log.parse_coordinator_message(line.at, line.text)
        assert read is not server_log.SkippedLine.UNKNOWN, line
        if isinstance(read, LogLine):
            found.append(read)
    return found


def _handed(trace: Iterable[TraceRecord]) -> dict[tuple[str, int], frozenset[TopicPartition]]:
    found: dict[tuple[str, int], frozenset[TopicPartition]] = {}
    ids: dict[str, str] = {}
    owned: dict[str, tuple[int, frozenset[TopicPartition]]] = {}
    for record in trace:
        match record.type, record.detail:
            case TraceEventType.IDENTITY, str(member_id):
                ids[record.subject] = member_id
            case TraceEventType.ASSIGNMENT, (int(generation), tuple(partitions)):
                owned[record.subject] = generation, frozenset(partitions)
            case TraceEventType.LISTENER, (ListenerMethod.ASSIGNED.value, _):
                generation, given = owned[record.subject]
                found[ids[record.subject], generation] = given
            case _:
                pass
    return found


class _Reader:
    def __init__(self, topics: dict[str, int]) -> None:
        self.found: list[Rebalance] = []
        self._topics = topics
        #: How many partitions of each topic the last generation has.
        self._given: Counter[str] = Counter()
        self._open: Rebalance | None = None
        #: What the open one is, should it turn out to be no further round of the last.
        self._own: Rebalance | None = None
        #: The one before, which may have another round.
        self._last: Rebalance | None = None
        self._number = 0
        self._stable = True
        #: Members whose reason to leave was that they polled too late.
        self._late: set[str] = set()
        #: Members that must give partitions up and join again.
        self._owing: set[str] = set()
        self._owners = Owners()
        self._owned: dict[str, set[TopicPartition]] = {}
        #: The member that each process is.
        self._ids: dict[str, str] = {}
        self._leader: str | None = None

    def read(self, trace: Iterable[TraceRecord]) -> list[Rebalance]:  # noqa: C901 (a case for each)
        for record in trace:
            match record.type:
                case TraceEventType.NOTE:
                    self._noted(record)
                case TraceEventType.TOPICS:
                    assert isinstance(record.detail, tuple)
                    self._topics = dict(record.detail)
                case TraceEventType.IDENTITY:
                    self._ids[record.subject] = str(record.detail)
                case TraceEventType.ASSIGNMENT:
                    assert isinstance(record.detail, tuple)
                    if record.subject in self._ids:
                        self._owned[self._ids[record.subject]] = set(record.detail[1])
                case TraceEventType.JOURNAL if isinstance(record.detail, GroupMetadataEntry):
                    self._saved(record.detail)
                case TraceEventType.JOURNAL if isinstance(record.detail, GroupMetadataTombstone):
                    self._number = 0
                case TraceEventType.COORDINATOR if record.detail in ("stopped", "unloaded"):
                    self._stable = True
                case TraceEventType.GONE | TraceEventType.CRASHED:
                    self._owing.discard(self._ids.get(record.subject, ""))
                case _:
                    pass
        return self.found

    def _saved(self, saved: GroupMetadataEntry) -> None:
        """Who has what it is not given any more, and nobody is given, has to give it up and join
        again, whatever else comes first.
        """
        self._owners = Owners.of(saved)
        given = {member.member_id: _partitions(member.assignment) for member in saved.members}
        everything = frozenset[TopicPartition]().union(*given.values())
        self._leader = saved.leader
        self._given = Counter(partition.topic for partition in everything)
        self._owing = {
            member_id
            for member_id in given
            if saved.protocol == COOPERATIVE and self._owned.get(member_id, set()) - everything
        }

    def _noted(self, record: TraceRecord) -> None:
        note = record.detail
        assert isinstance(note, GroupNote)
        match note.change:
            case MemberLeft(member_id, client_reason) if client_reason == LATE:
                self._late.add(member_id)
            case RebalanceStarted(reason):
                self._called(record.at, reason)
            case GroupStabilized() | GroupEmptied() as change:
                self._ended(note.generation, emptied=isinstance(change, GroupEmptied))
            case _:
                pass

    def _called(self, now: int, reason: RebalanceReason) -> None:
        if self._stable:
            self._begin(now, reason)
        self._stable = False

    def _begin(self, now: int, reason: RebalanceReason) -> None:
        if self._open is not None:  # forgotten by a coordinator that was restarted
            self._open.causes |= self._causes(reason)
            if self._own is not None:
                self._own.causes |= self._causes(reason)
            return
        own = Rebalance(now, self._number, self._causes(reason), self._owners)
        follows = isinstance(reason, MemberRejoined) and reason.client_reason == TAKEN
        if self._last is not None and (follows or self._owing):
            self._open, self._own = self._last, own
        else:
            self._open, self._own = own, None
            self.found.append(own)

    def _ended(self, generation: int, *, emptied: bool) -> None:
        self._stable = True
        self._number = generation
        if self._open is None:  # an empty group was loaded
            return
        if emptied:
            self._owners = Owners()
            if self._own is not None:  # nobody is left whom a round could give something
                self._open = self._own
                self.found.append(self._open)
        self._open.moved = self._owners.moved_from(self._open.before)
        self._open.generations.append(generation)
        self._open.emptied = emptied
        self._last, self._open = self._open, None

    def _causes(self, reason: RebalanceReason) -> set[RebalanceCause]:
        match reason:
            case MemberAdded():
                return {RebalanceCause.JOINED}
            case MemberRejoined():
                return self._of_member(reason.member_id, reason.client_reason or "")
            case MembersLeft(members):
                late = self._late.issuperset(members)
                return {RebalanceCause.SLOW_POLL if late else RebalanceCause.LEFT}
            case SessionExpired() | SyncTimedOut():
                return {RebalanceCause.SESSION_TIMEOUT}
            case StaticMemberReplaced():
                return {RebalanceCause.STRATEGY}
            case _:
                return {RebalanceCause.UNKNOWN}

    def _of_member(self, member: str, why: str) -> set[RebalanceCause]:
        if "subscription" in why:
            return {RebalanceCause.SUBSCRIPTION}
        grown = any(self._topics[topic] > count for topic, count in self._given.items())
        if why == "cached metadata has changed" and grown:
            # a topic that was made at the same moment may be found in the same rebalance
            made = not self._given.keys() >= self._topics.keys()
            return (
                {RebalanceCause.PARTITIONS, RebalanceCause.SUBSCRIPTION}
                if made
                else {RebalanceCause.PARTITIONS}
            )
        # one that missed a generation while it was frozen: there is no word for that
        return {RebalanceCause.LEADER if member == self._leader else RebalanceCause.UNKNOWN}


def _partitions(given: bytes) -> frozenset[TopicPartition]:
    return (
        frozenset(consumer_protocol.decode_assignment(given).partitions) if given else frozenset()
    )
