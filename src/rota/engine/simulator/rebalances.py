"""The rebalances of a simulation and its downtime.

:mod:`rota.engine.history` finds the rebalances, their costs and the downtime as in a real group;
the trace has their starts, ends, reasons and waits. A rebalance begins when the coordinator
asks the members to join. It ends when the group is stable and every running member has its
assignment, or when the next one begins. Interrupted attempts belong to the next rebalance.

A rebalance can wait three times: for every member of the last generation to join, for the leader's
assignment, and for each member to take its assignment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, assert_never

import numpy as np

from rota.engine.coordinator import notes
from rota.engine.coordinator.notes import RebalanceReason
from rota.engine.history.causes import CommitTimes, explain_rebalance
from rota.engine.history.downtime import count_delayed_records, find_downtime
from rota.engine.history.facts import (
    Downtime,
    Generation,
    JournalRecord,
    LogLine,
    Rebalance,
    RebalanceCost,
)
from rota.engine.history.generations import read_generations
from rota.engine.history.lag import EndOffsets
from rota.engine.history.rebalances import compute_cost, find_rebalances, is_round_due
from rota.engine.history.server_log import parse_coordinator_message
from rota.engine.history.snapshot import ProblemCache
from rota.engine.member.events import ListenerMethod, PollTimeoutNote
from rota.engine.model.journal_entry import GroupMetadataEntry, OffsetCommitEntry
from rota.engine.model.request import JoinGroup
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.process import Traffic
from rota.engine.simulator.trace import TraceEventType, TraceRecord, list_log_lines

LONG_WAIT = 10_000  # longer waits for the next heartbeat are reported
NO_COST = RebalanceCost(
    moved=0, moves_needed=0, orphaned=0, revoked=0, idle_members=0, most=0, least=0
)


class RebalanceWait(NamedTuple):
    """A long wait of a rebalance, in milliseconds."""

    members: tuple[str, ...]  # whom it waited for; empty: the leader's assignment
    time: int
    why: str  # how the wait ended


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRebalance:
    """One rebalance of a simulation. Times are in milliseconds."""

    start: int
    end: int
    finished: bool  # False if it was still running when the simulation ended
    cause: RebalanceReason  # why it began; members by the names of their processes
    polled_late: bool  # it left, or its session expired, because its application polled late
    attempts: int  # number of times that the coordinator asked the members to join
    waits: tuple[RebalanceWait, ...]
    step: Rebalance | None = field(repr=False)  # in the journal; None: it left no generation
    cost: RebalanceCost
    loads: Mapping[str, int]  # the number of partitions of each process afterwards

    @property
    def reason(self) -> str:
        """The cause in a few words."""
        if not self.polled_late:
            return notes.describe_reason(self.cause)
        if isinstance(self.cause, notes.MembersLeft):
            return f"member {', '.join(self.cause.members)} polled too late"
        return f"{notes.describe_reason(self.cause)}: it has not polled in time"

    @property
    def generations(self) -> tuple[int, ...]:
        """The generations of its rounds; none if the group became empty."""
        rounds = () if self.step is None else self.step.rounds
        return tuple(one.generation for one in rounds if one.members)

    @property
    def members(self) -> int:
        """Number of members after the rebalance."""
        return len(self.loads)

    @property
    def idle(self) -> tuple[str, ...]:
        """Processes without a partition."""
        return tuple(name for name, load in self.loads.items() if not load)

    @property
    def time(self) -> int:
        """Length of the rebalance, in milliseconds."""
        return self.end - self.start


@dataclass(slots=True)
class _JoinAttempt:
    """The time from one request to join until the next."""

    start: int
    cause: RebalanceReason
    polled_late: bool
    missing: dict[str, None]  # members that have not joined yet
    since: int  # when the current phase (join, sync, or assignment) began
    #: The position of its rebalance; None if it was interrupted before a generation was written.
    position: int | None = None
    end: int | None = None
    waits: list[RebalanceWait] = field(default_factory=list)
    #: Time, processes and description of the last join or removal.
    last_change: tuple[int, tuple[str, ...], str] | None = None

    def remove_missing(self, now: int, names: tuple[str, ...], why: str) -> None:
        for name in names:
            self.missing.pop(name, None)
        self.last_change = (now, names, why)

    def end_join(self, now: int) -> None:
        if self.last_change is not None and self.last_change[0] == now:
            self.end_phase(now, *self.last_change[1:])
        else:  # static members that are down
            self.end_phase(now, tuple(self.missing), "did not come back")

    def end_phase(self, now: int, names: tuple[str, ...], why: str) -> None:
        if now - self.since > LONG_WAIT:
            self.waits.append(RebalanceWait(names, now - self.since, why))
        self.since = now


class _AttemptReader:
    """Finds attempts in a trace. ``positions``: rebalances by the offsets of their generations."""

    def __init__(self, positions: Mapping[int, int]) -> None:
        self.attempts: list[_JoinAttempt] = []
        self.names: dict[str, str] = {}  # the process of each member id
        self._positions = positions
        self._offset = -1
        self._running: set[str] = set()
        self._members: list[str] = []  # the processes of the generation that was written last
        self._stable = True
        #: Processes that have not received their assignment in the stable generation.
        self._awaited: set[str] = set()
        #: Processes that did not poll in time, and have not joined again.
        self._late: set[str] = set()

    def read_record(self, record: TraceRecord) -> None:
        match record.type:
            case TraceEventType.STARTED:
                self._running.add(record.subject)
            case TraceEventType.IDENTITY:
                self.names[str(record.detail)] = record.subject
            case TraceEventType.JOURNAL:
                self._read_entry(record.detail)
            case TraceEventType.NOTE:
                self._read_note(record)
            case TraceEventType.LISTENER:
                self._read_listener_call(record)
            case TraceEventType.SAID if isinstance(record.detail, PollTimeoutNote):
                self._late.add(record.subject)
            case TraceEventType.ASKED if isinstance(record.detail, JoinGroup):
                self._late.discard(record.subject)
                if self.attempts and record.subject in self.attempts[-1].missing:
                    self.attempts[-1].remove_missing(record.at, (record.subject,), "joined late")
            case TraceEventType.CRASHED | TraceEventType.GONE:
                self._running.discard(record.subject)
                self._awaited.discard(record.subject)
                self._end_if_complete(record.at)
            case _:
                pass

    def _read_entry(self, entry: object) -> None:
        self._offset += 1
        if isinstance(entry, GroupMetadataEntry):
            self._members = [
                self.names.get(member.member_id, member.group_instance_id or member.member_id)
                for member in entry.members
            ]
            if self._offset in self._positions:
                self.attempts[-1].position = self._positions[self._offset]

    def _read_note(self, record: TraceRecord) -> None:  # noqa: C901 (a case for each)
        note, now = record.detail, record.at
        assert isinstance(note, notes.GroupNote)
        match note.change:
            case notes.RebalanceStarted(reason):
                missing = dict.fromkeys(sorted(self._members))
                attempt = _JoinAttempt(now, reason, self._is_late(reason), missing, now)
                self.attempts.append(attempt)
                self._stable = False
            case notes.GenerationStarted():
                if self.attempts:
                    self.attempts[-1].end_join(now)
            case notes.GroupStabilized():
                if self.attempts:
                    self.attempts[-1].end_phase(now, (), "came late")
                self._stable = True
                # a static member that is down is in the group, but takes no assignment
                self._awaited = self._running.intersection(self._members)
                self._end_if_complete(now)
            case notes.GroupEmptied():
                self._stable = True
                self._awaited.clear()
                self._end_if_complete(now)
            case notes.MemberLeft(member_id):
                self._remove_members(now, (member_id,), "left")
            case notes.SessionExpired(member_id):
                self._remove_members(now, (member_id,), "was silent")
            case notes.JoinTimedOut(member_ids):
                self._remove_members(now, member_ids, "did not join in time")
            case notes.SyncTimedOut(member_ids):
                self._remove_members(now, member_ids, "did not sync in time")
            case _:
                pass

    def _is_late(self, reason: RebalanceReason) -> bool:
        """Returns whether the member polled too late: it leaves or, if static, expires."""
        match reason:
            case notes.MembersLeft((member_id,)) | notes.SessionExpired(member_id):
                return self.names.get(member_id) in self._late
            case _:
                return False

    def _remove_members(self, now: int, member_ids: tuple[str, ...], why: str) -> None:
        names = tuple(self.names.get(one, one) for one in member_ids)
        if self._late.issuperset(names):
            why = "polled too late"
        if self.attempts:
            self.attempts[-1].remove_missing(now, names, why)

    def _read_listener_call(self, record: TraceRecord) -> None:
        assert isinstance(record.detail, tuple)
        if self._stable and record.detail[0] == ListenerMethod.ASSIGNED.value:
            name = record.subject
            if self.attempts and self._awaited == {name}:
                self.attempts[-1].end_phase(record.at, (name,), "took its assignment late")
            self._awaited.discard(name)
            self._end_if_complete(record.at)

    def _end_if_complete(self, now: int) -> None:
        if self._stable and not self._awaited and self.attempts and self.attempts[-1].end is None:
            self.attempts[-1].end = now


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedHistory:
    """The evidence that a simulated group leaves, as a recorded group does."""

    generations: list[Generation]
    rebalances: list[Rebalance]
    commits: CommitTimes
    lines: list[LogLine]

    def find_downtime(self, traffic: Traffic, end: int) -> tuple[Downtime, ...]:
        """Returns the downtime of each partition with the records that it delayed."""
        explanations = [explain_rebalance(one, self.commits, self.lines) for one in self.rebalances]
        found = find_downtime(
            self.generations,
            self.rebalances,
            explanations,
            commits=self.commits,
            until=end,
            lines=self.lines,
        ).found
        partitions = sorted({TopicPartition(one.topic, one.partition) for one in found})
        numbers = {(one.topic, one.partition): n for n, one in enumerate(partitions)}
        samples = {
            (numbers[one.topic, one.partition], at)
            for one in found
            for at in (one.since, one.until)
        }
        rows = [(n, at, traffic.end_offset(partitions[n], at)) for n, at in sorted(samples)]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        return tuple(count_delayed_records(found, EndOffsets.from_samples(*columns), numbers))


def read_simulated_history(group: str, trace: Sequence[TraceRecord]) -> SimulatedHistory:
    saved: list[JournalRecord] = []
    commits: dict[tuple[str, int], list[int]] = {}
    offset = 0
    for record in trace:
        if record.type is not TraceEventType.JOURNAL:
            continue
        entry = record.detail
        if isinstance(entry, OffsetCommitEntry):
            commits.setdefault((entry.topic, entry.partition), []).append(record.at)
        else:
            saved.append(JournalRecord(offset, record.at, entry))  # type: ignore[arg-type]
        offset += 1
    parsed = (parse_coordinator_message(line.at, line.text) for line in list_log_lines(trace))
    generations = read_generations(group, saved, {})
    return SimulatedHistory(
        generations=generations,
        rebalances=find_rebalances(generations),
        commits={pair: np.array(times, dtype=np.int64) for pair, times in commits.items()},
        lines=[line for line in parsed if isinstance(line, LogLine)],
    )


def find_simulated_rebalances(
    history: SimulatedHistory, trace: Sequence[TraceRecord], end: int
) -> tuple[SimulatedRebalance, ...]:
    """Returns every rebalance of a group, in order; ``end`` is the end of the simulation."""
    steps = history.rebalances
    reader = _AttemptReader(
        {one.offset: position for position, step in enumerate(steps) for one in step.rounds}
    )
    for record in trace:
        reader.read_record(record)
    grouped: list[tuple[list[_JoinAttempt], Rebalance | None]] = [([], step) for step in steps]
    pending: list[_JoinAttempt] = []
    for attempt in reader.attempts:
        pending.append(attempt)
        if attempt.position is not None:
            grouped[attempt.position][0].extend(pending)
            pending = []
    last = steps[-1].after if steps else None
    if pending and last is not None and is_round_due(last):
        grouped[-1][0].extend(pending)
    elif pending:
        grouped.append((pending, None))
    cache = ProblemCache()
    rebalances: list[SimulatedRebalance] = []
    until = end
    for attempts, step in reversed(grouped):
        ended = attempts[-1].end
        if until == end and step is not None and is_round_due(step.after):
            ended = None
        rebalances.append(
            SimulatedRebalance(
                start=attempts[0].start,
                end=until if ended is None else ended,
                finished=ended is not None or until != end,
                cause=_name_processes(attempts[0].cause, reader.names),
                polled_late=attempts[0].polled_late,
                attempts=len(attempts),
                waits=tuple(wait for attempt in attempts for wait in attempt.waits),
                step=step,
                cost=NO_COST if step is None else compute_cost(step, cache),
                loads=_count_loads(last if step is None else step.after, reader.names),
            )
        )
        until = attempts[0].start
    return tuple(reversed(rebalances))


def _name_processes(reason: RebalanceReason, names: Mapping[str, str]) -> RebalanceReason:
    """Returns the reason with the names of processes in place of member ids."""

    def name(member_id: str) -> str:
        return names.get(member_id, member_id)

    match reason:
        case notes.MemberAdded() | notes.MemberRejoined() | notes.SessionExpired():
            return replace(reason, member_id=name(reason.member_id))
        case notes.StaticMemberReplaced():
            old = name(reason.old_member_id)
            return replace(reason, old_member_id=old, member_id=name(reason.member_id))
        case notes.MembersLeft():
            return notes.MembersLeft(tuple(map(name, reason.members)))
        case notes.SyncTimedOut():
            return notes.SyncTimedOut(tuple(map(name, reason.member_ids)))
        case notes.AssignmentNotStored():
            return notes.AssignmentNotStored(name(reason.leader))
        case notes.LoadedAboveMaxSize():
            return reason
        case _:
            assert_never(reason)


def _count_loads(generation: Generation | None, names: Mapping[str, str]) -> dict[str, int]:
    members = () if generation is None else generation.members
    loads = {
        names.get(one.member_id, one.group_instance_id or one.member_id): sum(
            map(len, one.assigned.values())
        )
        for one in members
    }
    return dict(sorted(loads.items()))
