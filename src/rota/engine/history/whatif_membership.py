"""The rebalances that a group would have had with dynamic or with static members.

The same applications join, leave and fail at the same times. With dynamic members each of these
events is a rebalance. A static member that returns within its session timeout causes none;
otherwise it causes one rebalance when its session expires, and another one when it returns.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from rota.engine.history.facts import Generation, GenerationChange, GenerationMember
from rota.engine.history.restarts import (
    CausesByGeneration,
    MemberRestart,
    MembershipEvent,
    find_leave_time,
)
from rota.engine.history.snapshot import (
    GroupSnapshot,
    HistoryIndex,
    SnapshotMember,
    drop_topics,
    update_counts,
)

END_OF_TIME = 2**62


class WhatIfRebalance(NamedTuple):
    """A rebalance that happened, or would have happened."""

    incarnation: int
    generation: int
    #: The time in the journal; unique among the rows of a generation.
    at: int
    #: The group after the rebalance; None: no rebalance happens.
    snapshot: GroupSnapshot | None
    #: Members, subscriptions or partition counts changed; otherwise a consumer group (KIP-848) does
    #: not rebalance.
    is_needed: bool = True
    #: The state before is unknown or no longer matters.
    starts_new_incarnation: bool = False
    #: The snapshots of earlier rounds of the same cooperative rebalance, without repetitions.
    earlier_snapshots: tuple[GroupSnapshot, ...] = ()
    #: The first known state instead of a rebalance.
    is_start: bool = False
    #: The time at which it happens if a session has to end first.
    session_end: int | None = None

    @property
    def happens_at(self) -> int:
        return self.at if self.session_end is None else self.session_end


class CountedEvent(NamedTuple):
    """A membership event with the partition counts after it."""

    event: MembershipEvent
    counts: Mapping[str, int]
    #: The rounds before the last, with the counts after each.
    earlier: tuple[tuple[Generation, Mapping[str, int]], ...] = ()


def follow_partition_counts(history: Sequence[MembershipEvent]) -> list[CountedEvent]:
    counts: dict[str, int] = {}
    incarnation = -1
    events = []
    for event in history:
        if event.generation.incarnation != incarnation:
            incarnation, counts = event.generation.incarnation, {}
        earlier = []
        for generation in () if event.rebalance is None else event.rebalance.rounds[:-1]:
            counts = update_counts(generation, counts)
            earlier.append((generation, counts))
        counts = update_counts(event.generation, counts)
        if event.rebalance is not None:
            counts = drop_topics(counts, event.rebalance.absent)
        events.append(CountedEvent(event, counts, tuple(earlier)))
    return events


def list_dynamic_rebalances(
    history: Sequence[CountedEvent], index: HistoryIndex
) -> list[WhatIfRebalance]:
    """Lists the rebalances with dynamic members: the return of a static member is two rebalances,
    one when it leaves and one when it returns.

    The journal does not have the time of the leave. Its row is a millisecond before the return,
    because times are unique among the rows of a generation.
    """
    rebalances: list[WhatIfRebalance] = []
    times = _RowTimes()
    present: tuple[GenerationMember, ...] = ()
    counts: Mapping[str, int] = {}
    incarnation = -1
    for (generation, rebalance), now, earlier in history:
        starts_incarnation = generation.incarnation != incarnation
        snapshot = _take_snapshot(index, generation.members, now)
        if generation.change is GenerationChange.FIRST_SAMPLE:
            incarnation = generation.incarnation
            rebalances.append(_starting_point(generation, snapshot))
        elif rebalance is None and not starts_incarnation:
            ids = {member.member_id for member in generation.members}
            stayed = tuple(member for member in present if member.member_id in ids)
            if len(stayed) < len(present):
                at = times.reserve(generation, generation.at - 1, later=False)
                rebalances.append(_rebalance_at(generation, at, _take_snapshot(index, stayed, now)))
            at = times.reserve(generation, generation.at, later=True)
            rebalances.append(_rebalance_at(generation, at, snapshot))
        elif rebalance is not None:
            incarnation = generation.incarnation
            at = times.reserve(generation, generation.at, later=True)
            is_needed = (
                starts_incarnation
                or _topics_by_member(present) != _topics_by_member(generation.members)
                or counts != now
            )
            rounds = [_take_snapshot(index, one.members, known) for one, known in earlier]
            # rounds of an unchanged group are left out: the replay runs as many as it needs
            pairs = pairwise([*rounds, snapshot])
            distinct = tuple(one for one, later in pairs if one is not later)
            rebalances.append(
                _rebalance_at(generation, at, snapshot)._replace(
                    is_needed=is_needed,
                    starts_new_incarnation=starts_incarnation,
                    earlier_snapshots=distinct,
                )
            )
        present, counts = generation.members, now
    return rebalances


def _rebalance_at(generation: Generation, at: int, snapshot: GroupSnapshot) -> WhatIfRebalance:
    return WhatIfRebalance(generation.incarnation, generation.generation, at, snapshot)


def _starting_point(generation: Generation, snapshot: GroupSnapshot) -> WhatIfRebalance:
    rebalance = _rebalance_at(generation, generation.at, snapshot)
    return rebalance._replace(starts_new_incarnation=True, is_start=True)


def _topics_by_member(members: Iterable[GenerationMember]) -> dict[str, frozenset[str]]:
    return {member.member_id: frozenset(member.topics) for member in members}


def _take_snapshot(
    index: HistoryIndex, members: Iterable[GenerationMember], counts: Mapping[str, int]
) -> GroupSnapshot:
    return index.snapshot(
        (
            SnapshotMember(index.number(member.member_id), member.member_id, None, member.topics)
            for member in members
        ),
        counts,
    )


class _RowTimes:
    """Chooses row times that are unique within a generation."""

    def __init__(self) -> None:
        self._used: set[tuple[int, int, int]] = set()

    def reserve(self, generation: Generation, at: int, *, later: bool) -> int:
        """Returns the nearest time that no other row of this generation has."""
        while (generation.incarnation, generation.generation, at) in self._used:
            at += 1 if later else -1
        self._used.add((generation.incarnation, generation.generation, at))
        return at


@dataclass(slots=True)
class _Application:
    """An application with one or more member ids."""

    name: str
    group_instance_id: str
    topics: tuple[str, ...] = ()


@dataclass(slots=True)
class _PendingRebalance:
    """A rebalance in the journal that may not happen under the policy."""

    generation: Generation
    #: Number of members that left and whose session has not expired.
    waiting: int = 0
    rows: int = 0


@dataclass(slots=True)
class _AbsentApplication:
    application: str
    pending: _PendingRebalance


@dataclass
class StaticMembership:
    """Replays a history in which every member has a static id and this session timeout."""

    index: HistoryIndex
    restarts: Sequence[MemberRestart]
    session: int
    causes: CausesByGeneration
    rebalances: list[WhatIfRebalance] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._before = {one.new_member_id: one.old_member_id for one in self.restarts}
        #: By member id.
        self._applications: dict[str, _Application] = {}
        #: Members of the group by name, until their session expires.
        self._present: dict[str, _Application] = {}
        self._sessions: list[tuple[int, int, _AbsentApplication]] = []
        self._absent: dict[str, _AbsentApplication] = {}
        self._order = 0
        self._times = _RowTimes()
        self._snapshot: GroupSnapshot | None = None
        self._counts: Mapping[str, int] = {}
        self._starts_incarnation = True

    def replay(self, history: Sequence[CountedEvent]) -> list[WhatIfRebalance]:
        incarnation = -1
        members: Mapping[str, GenerationMember] = {}
        for counted in history:
            generation = counted.event.generation
            if generation.incarnation != incarnation:
                self._expire(END_OF_TIME)
                self._present, self._absent, self._sessions = {}, {}, []
                self._snapshot, self._counts = None, {}
                self._starts_incarnation = True
                members = {}
            self._expire(generation.at)
            now = {member.member_id: member for member in generation.members}
            self._read_event(counted, members, now)
            members, incarnation = now, generation.incarnation
        self._expire(END_OF_TIME)
        return self.rebalances

    def _read_event(
        self,
        counted: CountedEvent,
        before: Mapping[str, GenerationMember],
        now: Mapping[str, GenerationMember],
    ) -> None:
        generation, rebalance = counted.event
        pending = _PendingRebalance(generation)
        returning = {self._before[one] for one in now if one in self._before}
        for member_id in before.keys() - now.keys() - returning:
            since = find_leave_time(before[member_id], counted.event, self.causes)
            self._leave(self._applications[member_id].name, since + self.session, pending)
        for member_id in sorted(now):
            self._join(now[member_id])
        self._counts = counted.counts
        if generation.change is GenerationChange.FIRST_SAMPLE:
            self._snapshot, self._starts_incarnation = self._current(), False
            self.rebalances.append(_starting_point(generation, self._snapshot))
            return
        if rebalance is None:  # a return with other topics takes effect in the next rebalance
            return
        snapshot = self._current()
        changed = snapshot is not self._snapshot
        idle = before.keys() == now.keys()
        if changed or (idle and not pending.waiting):
            self._add_row(pending, snapshot, needed=changed)
        elif not pending.waiting:
            self._add_row(pending, None)

    def _leave(self, name: str, until: int, pending: _PendingRebalance) -> None:
        if name in self._absent:
            return
        absentee = self._absent[name] = _AbsentApplication(name, pending)
        pending.waiting += 1
        self._order += 1
        heapq.heappush(self._sessions, (until, self._order, absentee))

    def _join(self, member: GenerationMember) -> None:
        name, applications = member.member_id, self._applications
        application = applications.get(name) or applications.get(self._before.get(name, ""))
        if application is None:
            application = _Application(name, member.group_instance_id or name)
        applications[name] = application
        application.topics = member.topics
        self._present[application.name] = application
        absentee = self._absent.pop(application.name, None)
        if absentee is not None:
            absentee.pending.waiting -= 1
            self._drop_if_unneeded(absentee.pending)

    def _drop_if_unneeded(self, pending: _PendingRebalance) -> None:
        """Adds a row without a rebalance if all of its members returned in time."""
        if not pending.waiting and not pending.rows:
            self._add_row(pending, None)

    def _expire(self, now: int) -> None:
        while self._sessions and self._sessions[0][0] < now:
            until, _, absentee = heapq.heappop(self._sessions)
            expired = [absentee]
            while self._sessions and self._sessions[0][0] == until:
                expired.append(heapq.heappop(self._sessions)[2])
            expired = [one for one in expired if self._absent.get(one.application) is one]
            for one in expired:
                del self._absent[one.application], self._present[one.application]
                one.pending.waiting -= 1
            if expired:
                self._add_row(expired[0].pending, self._current(), at=until)
            for one in expired[1:]:  # several rebalances in the journal are one here
                self._drop_if_unneeded(one.pending)

    def _current(self) -> GroupSnapshot:
        return self.index.snapshot(
            (
                SnapshotMember(
                    self.index.number(f"application {application.name}"),
                    application.name,
                    application.group_instance_id,
                    application.topics,
                )
                for application in self._present.values()
            ),
            self._counts,
        )

    def _add_row(
        self,
        pending: _PendingRebalance,
        snapshot: GroupSnapshot | None,
        *,
        at: int | None = None,
        needed: bool = True,
    ) -> None:
        """Adds a row. The first row of a rebalance has the time of the journal.

        :param at: the end of the session that the rebalance waited for
        """
        generation, session_end = pending.generation, at
        if at is None or not pending.rows:
            at = generation.at
        at = self._times.reserve(generation, at, later=True)
        pending.rows += 1
        self.rebalances.append(
            WhatIfRebalance(
                generation.incarnation,
                generation.generation,
                at,
                snapshot,
                needed,
                self._starts_incarnation,
                session_end=session_end,
            )
        )
        if snapshot is not None:
            self._snapshot = snapshot
            self._starts_incarnation = False
