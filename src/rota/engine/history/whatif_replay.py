"""Replays a group under a policy: its rebalances, its assignments and its downtime.

:class:`HistoryClock` counts the downtime of the rebalances of the history, where the policy has the
same kind of membership. :class:`MembershipReplay` finds the rebalances under another one:

- A dynamic member that closes leaves the group at once. One that crashes is removed when its
  session ends; until then a rebalance waits for it.
- A static member keeps its partitions for one session after its last heartbeat, whether it closed
  or crashed. A rebalance waits for it, too, until it is back or its session ends.
- Members learn of a rebalance from their next heartbeat (``timing.py``). Events during a rebalance
  become part of it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, groupby
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rota.engine.assignors.problem import count_moves
from rota.engine.history.client_settings import DEFAULT_POLL_INTERVAL
from rota.engine.history.downtime import SHUT_DOWN_AFTER
from rota.engine.history.facts import (
    DEFAULT_SESSION_TIMEOUT,
    Generation,
    GenerationChange,
    GenerationMember,
)
from rota.engine.history.heartbeats import HEARTBEAT_SLACK
from rota.engine.history.policies import GroupPolicy, MembershipType, PolicyProtocol
from rota.engine.history.snapshot import (
    GroupSnapshot,
    HistoryIndex,
    SnapshotMember,
    SnapshotPlacement,
)
from rota.engine.history.timing import (
    CONSUMER_HEARTBEAT_INTERVAL,
    CONSUMER_SESSION_TIMEOUT,
    INITIAL_REBALANCE_DELAY,
    MAX_USUAL_JOIN_TIME,
    RESPONSE_TIME,
    GroupTiming,
)
from rota.engine.history.whatif_membership import (
    CountedEvent,
    ProcessEvent,
    ProcessEventType,
    RowTimes,
    WhatIfRebalance,
)
from rota.engine.model.member import UNASSIGNED
from rota.engine.model.topic import IntArray

#: Assigns a snapshot, given the previous owner of each partition (-1: none).
PlacementFunction: TypeAlias = Callable[[GroupSnapshot, IntArray], SnapshotPlacement]
Int64Array: TypeAlias = npt.NDArray[np.int64]
Float64Array: TypeAlias = npt.NDArray[np.float64]

END_OF_TIME = 2**62
CLOSE_TIMEOUT = 30_000  # a consumer that closes gives up its LeaveGroup request after this time
MAX_ROUNDS = 8  # two rounds end a cooperative rebalance, unless the strategy is unstable


class MoveCounts(NamedTuple):
    moved: int
    needed: int
    revoked: int  # revoked by members of both generations: all under the eager protocol


NO_MOVES = MoveCounts(0, 0, 0)


class DowntimeCost(NamedTuple):
    downtime: int = 0  # in partition-milliseconds
    delayed: float = 0

    def __add__(self, other: object) -> DowntimeCost:
        assert isinstance(other, DowntimeCost)
        return DowntimeCost(self.downtime + other.downtime, self.delayed + other.delayed)


NO_DOWNTIME = DowntimeCost()


class DowntimeCounter:
    def __init__(self, rates: Float64Array, shut_down: Sequence[tuple[int, int]] = ()) -> None:
        """:param rates: records per millisecond that arrive in each partition of the layout"""
        self._rates = rates if rates.any() else None
        self._mean_rate = float(rates.mean()) if len(rates) else 0.0
        self._shut_down = shut_down

    def count(self, lost: Int64Array, until: Int64Array | int, emptied_at: int) -> DowntimeCost:
        """Returns the cost of partitions that wait, without the time in which the group was shut
        down.

        :param lost: when each partition lost its consumer; 0: it does not wait
        :param until: until when each of them waits
        :param emptied_at: 0: the group was never empty in that time
        """
        if emptied_at and np.max(until, initial=0) - emptied_at > SHUT_DOWN_AFTER:
            until = emptied_at
        waits = np.where(lost > 0, np.maximum(until - lost, 0), 0)
        if self._shut_down and waits.any():
            last = int(np.max(until))
            first = bisect_right(self._shut_down, int(lost[waits > 0].min()), key=itemgetter(1))
            for begin, end in self._shut_down[first:]:
                if begin >= last:
                    break
                overlap = np.minimum(until, end) - np.maximum(lost, begin)
                waits -= np.where(lost > 0, np.maximum(overlap, 0), 0)
        delayed = 0.0 if self._rates is None else float(waits @ self._rates)
        return DowntimeCost(int(waits.sum()), delayed)

    def count_some(self, partitions: int, time: int) -> DowntimeCost:
        downtime = partitions * time
        return DowntimeCost(downtime, downtime * self._mean_rate)


class PolicyOutcome(NamedTuple):
    """A row: a rebalance, or an event of the history that is none under the policy."""

    incarnation: int
    generation: int
    at: int  # unique among the rows of a generation
    happens_at: int | None  # None: no rebalance
    placed: SnapshotPlacement
    moves: MoveCounts
    cost: DowntimeCost
    is_start: bool = False


def count_round_moves(
    protocol: PolicyProtocol,
    snapshot: GroupSnapshot,
    owners: IntArray,
    placed: SnapshotPlacement,
    withheld: int,
) -> MoveCounts:
    """Counts the moves of a whole rebalance; cooperative rounds revoked ``withheld`` partitions."""
    previous = snapshot.previous_positions(owners)
    moves = count_moves(previous, placed.positions)
    revoked = withheld
    if protocol is not PolicyProtocol.COOPERATIVE:
        revoked = snapshot.count_present(owners)
    if protocol is PolicyProtocol.CONSUMER:  # members revoke only partitions outside their target
        revoked += moves - int(np.count_nonzero(previous != UNASSIGNED))
    return MoveCounts(moves, snapshot.fewest_moves(previous), revoked)


class CooperativeRound(NamedTuple):
    owners: IntArray
    placed: SnapshotPlacement  # the target, with the partitions that wait for the next round
    moving: npt.NDArray[np.bool_]  # partitions that the round takes, by index
    unsubscribed: int  # the number of partitions that are no longer subscribed to


def run_cooperative_round(
    snapshot: GroupSnapshot, owners: IntArray, place: PlacementFunction
) -> CooperativeRound:
    previous = snapshot.previous_positions(owners)
    placed = place(snapshot, previous)
    withheld = (previous != UNASSIGNED) & (previous != placed.positions)
    unsubscribed = snapshot.count_present(owners) - int(np.count_nonzero(previous != UNASSIGNED))
    current = snapshot.to_index_owners(np.where(withheld, np.int32(UNASSIGNED), placed.positions))
    moving = np.zeros(len(owners), dtype=np.bool_)
    moving[snapshot.partition_numbers] = withheld
    return CooperativeRound(current, placed, moving, unsubscribed)


def run_rebalance(
    protocol: PolicyProtocol,
    snapshots: Sequence[GroupSnapshot],
    owners: IntArray,
    place: PlacementFunction,
) -> tuple[SnapshotPlacement, MoveCounts]:
    snapshot = snapshots[-1]
    if protocol is not PolicyProtocol.COOPERATIVE:
        placed = place(snapshot, snapshot.previous_positions(owners))
        return placed, count_round_moves(protocol, snapshot, owners, placed, 0)
    current, revoked = owners, 0
    rounds = [*snapshots[:-1], *[snapshot] * MAX_ROUNDS]
    for number, each in enumerate(rounds, 1):
        current, placed, moving, unsubscribed = run_cooperative_round(each, current, place)
        revoked += int(np.count_nonzero(moving)) + unsubscribed
        if number >= len(snapshots) and not moving.any():
            break
    return placed, count_round_moves(protocol, snapshot, owners, placed, revoked)


class HistoryClock:
    def __init__(  # noqa: PLR0913, PLR0917 (one caller)
        self,
        policy: GroupPolicy,
        index: HistoryIndex,
        timing: GroupTiming,
        interval: int,
        revoked_times: Mapping[tuple[int, int], int],
        counter: DowntimeCounter,
    ) -> None:
        """:param revoked_times: for each rebalance, how long it revoked a partition, if measured"""
        self._counter = counter
        self._protocol = policy.protocol
        self._revoked_times = revoked_times if self._protocol is PolicyProtocol.EAGER else {}
        self._is_dynamic = policy.membership is MembershipType.DYNAMIC
        self._timing = timing
        self._interval = interval
        #: When each partition lost its consumer; 0: it has one, or never had one.
        self._lost = np.zeros(index.layout.size, dtype=np.int64)
        self._assigned_at = 0
        #: When the broker last computed an assignment (KIP-848).
        self._batched_at = 0
        #: When the last member closed; 0: the group has members, or the last ones crashed.
        self._emptied_at = 0
        self._members: set[int] = set()

    def start_incarnation(self) -> None:
        self._lost[:] = 0
        self._assigned_at = self._batched_at = self._emptied_at = 0

    def count_returned(self, rebalance: WhatIfRebalance, owners: IntArray) -> DowntimeCost:
        cost = NO_DOWNTIME
        for one in rebalance.gone:
            lost = np.where(owners == one.number, one.since, 0)
            cost += self._counter.count(lost, rebalance.start, 0)
        return cost

    def count_rebalance(
        self,
        rebalance: WhatIfRebalance,
        snapshot: GroupSnapshot,
        before: IntArray,
        after: IntArray,
        moves: MoveCounts,
    ) -> DowntimeCost:
        start = rebalance.start
        for absence in rebalance.gone:
            held = (before == absence.number) & (self._lost == 0)
            since = absence.since
            if self._protocol is PolicyProtocol.CONSUMER and self._is_dynamic and absence.is_silent:
                start = max(start, since + CONSUMER_SESSION_TIMEOUT)
            self._lost[held] = since
        if not snapshot.members:
            emptied = rebalance.at
            cost = self._counter.count(self._lost, emptied, self._emptied_at)
            self._lost[(before != UNASSIGNED) | (self._lost > 0)] = emptied
            if not any(absence.is_silent for absence in rebalance.gone):
                self._emptied_at = self._emptied_at or emptied
            return cost
        absent = snapshot.absent_owners(before) & (self._lost == 0)
        self._lost[absent] = start
        since_last = start - self._assigned_at
        # new members learn of it from the response to their request
        now = {member.number for member in snapshot.members}
        members = len(now & self._members) or len(now)
        self._members = now
        join_time = self._join_time(rebalance, members, since_last)
        assigned = self._assigned_time(rebalance, start, join_time)
        lost = np.where(after != UNASSIGNED, self._lost, 0)
        # static members that are back have revoked nothing
        returned = 0
        if self._protocol is PolicyProtocol.EAGER:
            present = snapshot.position[before] != UNASSIGNED
            returned = int(np.count_nonzero((self._lost > 0) & present))
        # members that went away after the first round wait for the last one
        until = np.where(lost > assigned, rebalance.at, assigned)
        waited = self._counter.count(lost, until, self._emptied_at)
        self._lost[:] = 0
        self._emptied_at = 0
        revoked = self._revoked_times.get((rebalance.incarnation, rebalance.generation))
        if revoked is None:
            revoked = self._timing.revoked_time(
                self._protocol, members, join_time, since_last, rebalance.sync_time
            )
        self._assigned_at = assigned
        if self._protocol is PolicyProtocol.COOPERATIVE and moves.revoked:
            revoked += rebalance.second_late_time
            self._assigned_at += revoked  # the second round
        return waited + self._counter.count_some(max(moves.revoked - returned, 0), revoked)

    def _assigned_time(self, rebalance: WhatIfRebalance, start: int, join_time: int) -> int:
        if self._protocol is not PolicyProtocol.CONSUMER:
            return start + join_time + rebalance.sync_time
        batched = max(self._batched_at + self._interval, start) if self._batched_at else start
        self._batched_at = batched
        return batched + CONSUMER_HEARTBEAT_INTERVAL // 2

    def _join_time(self, rebalance: WhatIfRebalance, members: int, since_last: int) -> int:
        """Returns the time until all have joined: the real one if the heartbeats were as under this
        policy, otherwise only the wait for late members.
        """
        real = rebalance.since_last
        is_same = real is not None and abs(real - since_last) <= HEARTBEAT_SLACK
        if is_same or rebalance.late_time >= rebalance.join_time:
            return rebalance.join_time
        return self._timing.join_time(members, since_last) + rebalance.late_time


class _Phase(NamedTuple):
    """A join phase: members are called to join."""

    start: int
    row: int
    heard: Int64Array  # when each member learns of it
    late_time: int = 0
    delay_until: int = 0  # the end of the initial delay of a group without members
    #: The owners before the rebalance, and what its earlier rounds revoked and cost (cooperative).
    owners: IntArray | None = None
    revoked: int = 0
    cost: DowntimeCost = NO_DOWNTIME
    round: int = 1


ABSENT, ALIVE, DEAD = 0, 1, 2


class MembershipReplay:
    def __init__(  # noqa: PLR0913, PLR0917 (one caller)
        self,
        policy: GroupPolicy,
        index: HistoryIndex,
        timing: GroupTiming,
        assignment_interval: int,
        history: Sequence[CountedEvent],
        place: PlacementFunction,
        counter: DowntimeCounter,
        until: int | None = None,
        draw: int = 0,
    ) -> None:
        """:param draw: seed of the heartbeats' drift"""
        self._protocol = policy.protocol
        self._is_static = policy.membership is MembershipType.STATIC
        self._session = policy.session_timeout
        if self._session is None and self._protocol is PolicyProtocol.CONSUMER:
            self._session = CONSUMER_SESSION_TIMEOUT
        self._index = index
        self._timing = timing
        self._assignment_interval = assignment_interval
        self._history = history
        self._place = place
        self._counter = counter
        self._draw = draw
        self._until = END_OF_TIME if until is None else until
        self._row_times = RowTimes()
        self._start()

    def _start(self) -> None:
        count = self._index.member_count
        #: By number of the member.
        self._state = np.zeros(count, dtype=np.int8)
        self._joined = np.zeros(count, dtype=np.bool_)
        #: Members that read no more until they leave, once they have partitions.
        self._is_stopped = np.zeros(count, dtype=np.bool_)
        self._base = np.zeros(count, dtype=np.int64)
        self._session_end = np.full(count, END_OF_TIME, dtype=np.int64)
        heartbeats = self._timing.heartbeats
        drift = np.random.default_rng(self._draw).integers(0, heartbeats.drift + 1, count)
        self._interval = heartbeats.interval + drift
        self._members: dict[int, SnapshotMember] = {}
        #: Members that polled too late in the history, but not under the policy: by application,
        #: and by the number under which they returned.
        self._remaining: dict[str, int] = {}
        self._returned: dict[int, int] = {}
        #: The close of members that wait for the response to JoinGroup. They leave after it.
        self._leaving: dict[int, ProcessEvent] = {}
        self._reads_nothing = np.zeros(count, dtype=np.bool_)
        #: The starts of members that stop polling when they get partitions.
        self._stopping: dict[int, ProcessEvent] = {}
        #: By sequence: by how much its events are delayed, and those that wait for a close.
        self._delays: Counter[int] = Counter()
        self._blocked: dict[int, list[ProcessEvent]] = {}
        self._is_shifted = False
        self._released: list[ProcessEvent] = []
        self._now = 0
        self._facts: dict[int, GenerationMember] = {}
        self._stop_rows: dict[int, int] = {}
        #: When each partition lost its consumer; 0: it has one, or never had one.
        self._lost = np.zeros(self._index.layout.size, dtype=np.int64)
        self._owners: IntArray = np.full(self._index.layout.size, UNASSIGNED, dtype=np.int32)
        self._placed = SnapshotPlacement(self._owners, self._owners, 0, 0, 0)
        self._snapshot: GroupSnapshot | None = None
        self._phase: _Phase | None = None
        self._assigned_at = 0
        #: When the last member was gone; 0: the group has members, or the last one crashed.
        self._emptied_at = 0
        #: The last member that stopped has crashed, or polled too late.
        self._has_crashed = False
        self._counted_row = -1

    def run(self, events: Iterable[ProcessEvent]) -> Iterator[PolicyOutcome]:
        """Yields the rows: at least one for every event of the history."""

        def incarnation(row: int) -> int:
            return self._generation(row).incarnation

        by_incarnation = {
            number: list(group)
            for number, group in groupby(events, lambda event: incarnation(event.row))
        }
        for number, rows in groupby(range(len(self._history)), incarnation):
            yield from self._replay_incarnation(list(rows), by_incarnation.get(number, []))

    def _replay_incarnation(
        self, rows: Sequence[int], events: Sequence[ProcessEvent]
    ) -> Iterator[PolicyOutcome]:
        self._start()
        first = rows[0]
        found = [self._begin(first, [one for one in events if one.row == first])]
        is_last = rows[-1] + 1 == len(self._history)  # otherwise the group was deleted
        end = self._until if is_last else self._generation(rows[-1] + 1).at
        found += self._read_events((one for one in events if one.row != first), end)
        if is_last:
            found += self._end()
        shown = {row for row, _ in found}
        found += [self._outcome(row, None) for row in rows if row not in shown]
        returns: dict[int, PolicyOutcome] = {}  # one row for all that return at one time
        for row, outcome in found:
            if outcome.happens_at is None:
                before = returns[row].cost if row in returns else NO_DOWNTIME
                returns[row] = outcome._replace(cost=before + outcome.cost)
        outcomes = [one for _, one in found if one.happens_at is not None] + [*returns.values()]
        yield from sorted(outcomes, key=lambda one: one.at)

    def _read_events(
        self, events: Iterable[ProcessEvent], end: int
    ) -> list[tuple[int, PolicyOutcome]]:
        found: list[tuple[int, PolicyOutcome]] = []
        numbers = count()
        queue = [(one.at, one.row, next(numbers), one) for one in events]
        heapq.heapify(queue)
        while True:
            if not self._is_shifted:
                at = min(queue[0][0], end) if queue else end
                found += self._advance(at)
            if self._is_shifted:
                waiting = [event for *_, event in queue] + self._released
                queue = [
                    (one.at + self._delays[one.sequence], one.row, next(numbers), one)
                    for one in sorted(waiting, key=lambda one: one.row)
                ]
                heapq.heapify(queue)
                self._released, self._is_shifted = [], False
                continue
            if not queue or queue[0][0] > end:
                return found
            *_, event = heapq.heappop(queue)
            if event.sequence in self._blocked:
                self._blocked[event.sequence].append(event)
            else:
                found += self._read(event._replace(at=max(at, self._now)))

    def _end(self) -> list[tuple[int, PolicyOutcome]]:
        """Completes the rebalance that runs at the end, unless it waits for the end of a session.
        Returns its row, and one with the downtime that has not ended, unless the group was shut
        down.
        """
        found: list[tuple[int, PolicyOutcome]] = []
        while self._phase is not None:
            completion = self._completion()
            if completion > self._until + MAX_USUAL_JOIN_TIME:
                break
            found += self._complete(completion)
        if self._emptied_at and self._until - self._emptied_at > SHUT_DOWN_AFTER:
            return found
        rest = self._counter.count(self._lost, self._until, 0)
        if rest.downtime:
            found.append(self._outcome(self._counted_row, None, cost=rest))
        return found

    def _generation(self, row: int) -> Generation:
        return self._history[row].event.generation

    def _outcome(
        self,
        row: int,
        happens_at: int | None,
        moves: MoveCounts = NO_MOVES,
        cost: DowntimeCost = NO_DOWNTIME,
        *,
        is_start: bool = False,
    ) -> tuple[int, PolicyOutcome]:
        generation = self._generation(row)
        return row, PolicyOutcome(
            generation.incarnation,
            generation.generation,
            self._row_times.reserve(generation, generation.at),
            happens_at,
            self._placed,
            moves,
            cost,
            is_start,
        )

    def _begin(self, row: int, started: Iterable[ProcessEvent]) -> tuple[int, PolicyOutcome]:
        generation, self._counted_row = self._generation(row), row
        for event in started:
            self._add(event)
        self._snapshot = self._take_snapshot()
        self._placed, moves = run_rebalance(
            self._protocol, (self._snapshot,), self._owners, self._place
        )
        self._owners, self._assigned_at = self._placed.owners, generation.at
        self._stop_assigned(generation.at)
        is_start = generation.change is GenerationChange.FIRST_SAMPLE
        return self._outcome(row, generation.at, moves, is_start=is_start)

    def _take_snapshot(self) -> GroupSnapshot:
        return self._index.snapshot(self._members.values(), self._history[self._counted_row].counts)

    def _number(self, event: ProcessEvent) -> int:
        assert event.member is not None
        number = member_number(self._index, event, is_static=self._is_static)
        return self._returned.get(number, number)

    def _add(self, event: ProcessEvent) -> None:
        """Adds the process of an event to the group. It has joined."""
        member, number = event.member, self._number(event)
        assert member is not None
        name, instance = member.member_id, None
        if self._is_static:
            name, instance = event.application, member.group_instance_id or event.application
        self._members[number] = SnapshotMember(number, name, instance, member.topics)
        self._facts[number] = member
        self._state[number] = ALIVE
        self._base[number] = event.at
        self._joined[number] = True
        self._session_end[number] = END_OF_TIME
        self._is_stopped[number] = self._reads_nothing[number] = False
        if event.stops_at:
            self._stopping[number] = event

    def _stop_assigned(self, at: int) -> None:
        """Lets the members stop polling that do so with their first partitions."""
        for number, event in list(self._stopping.items()):
            if (self._owners == number).any():
                del self._stopping[number]
                self._is_stopped[number] = True
                self._delays[event.sequence] = at - event.stops_at
                self._is_shifted = True

    def _remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._state[number] = ABSENT
            self._session_end[number] = END_OF_TIME
            self._stopping.pop(number, None)
            del self._members[number]

    def _session_of(self, number: int) -> int:
        return self._session or self._facts[number].session_timeout or DEFAULT_SESSION_TIMEOUT

    def _lose(self, held: npt.NDArray[np.bool_], since: Int64Array | int) -> None:
        self._lost = np.where(held & (self._lost == 0), since, self._lost)

    def _regain(self, at: int) -> DowntimeCost:
        if not self._lost.any():
            self._emptied_at = 0
            return NO_DOWNTIME
        owned = (self._lost > 0) & (self._owners != UNASSIGNED)
        owned &= (self._state[self._owners] == ALIVE) & ~self._reads_nothing[self._owners]
        waited = self._counter.count(np.where(owned, self._lost, 0), at, self._emptied_at)
        self._lost[owned] = 0
        self._emptied_at = 0
        return waited

    def _read(self, event: ProcessEvent) -> list[tuple[int, PolicyOutcome]]:
        if event.type is ProcessEventType.STOPPED_POLLING:
            self._stop_polling(event)
            return []
        self._now = event.at
        self._counted_row = max(event.row, self._counted_row)
        if event.type is ProcessEventType.STARTED:
            return self._read_start(event)
        if event.type is not ProcessEventType.CHANGED:
            return self._read_stop(event)
        if event.member is not None and (number := self._number(event)) in self._members:
            known = self._members[number]
            self._members[number] = known._replace(topics=event.member.topics)
        if self._protocol is not PolicyProtocol.CONSUMER or (
            self._take_snapshot() is not self._snapshot
        ):
            self._call(event)
        return []

    def _stop_polling(self, event: ProcessEvent) -> None:
        number = self._number(event)
        self._is_stopped[number] = self._state[number] == ALIVE
        phase = self._phase
        if phase is None or self._protocol is PolicyProtocol.CONSUMER:
            return
        if self._joined[number] or phase.heard[number] <= event.at:
            self._reads_nothing[number] = (
                event.polled_before_assignment and self._is_stopped[number]
            )
        elif self._stopped_members()[number]:
            phase.heard[number] = END_OF_TIME

    def _stopped_members(self) -> npt.NDArray[np.bool_]:
        """Returns which members do not poll. One without partitions has no work: it polls."""
        if not self._is_stopped.any():
            return self._is_stopped
        has_partitions = np.zeros(len(self._state), dtype=np.bool_)
        has_partitions[self._owners[self._owners != UNASSIGNED]] = True
        return self._is_stopped & has_partitions

    def _read_start(self, event: ProcessEvent) -> list[tuple[int, PolicyOutcome]]:
        remaining = self._remaining.pop(event.application, None)
        if remaining is not None and self._state[remaining] == ALIVE:
            self._returned[self._number(event)] = remaining
            self._is_stopped[remaining] = self._reads_nothing[remaining] = False
            if event.stops_at:
                self._stopping[remaining] = event
            return []
        if self._state[self._number(event)] == ABSENT:
            self._call(event)
            self._add(event)
            return []
        self._add(event)  # a static member is back within its session
        if self._phase is not None and self._protocol is not PolicyProtocol.CONSUMER:
            return []
        self._stop_assigned(event.at)
        return [self._outcome(event.row, None, cost=self._regain(event.at))]

    def _read_stop(self, event: ProcessEvent) -> list[tuple[int, PolicyOutcome]]:
        number, phase = self._number(event), self._phase
        if self._state[number] != ALIVE:
            return []
        is_working = self._stopped_members()[number]
        if number in self._stopping or (self._is_stopped[number] and not is_working):
            self._remaining[event.application] = number
            return []
        self._stop_rows[number] = event.row
        # one that polled too late still runs
        has_closed = event.type is ProcessEventType.CLOSED and not self._is_stopped[number]
        self._has_crashed = not has_closed
        revoked_at = event.at
        has_joined = False
        if phase is not None and self._protocol is not PolicyProtocol.CONSUMER:
            has_joined = bool(self._joined[number]) or phase.heard[number] <= event.at
            if self._protocol is PolicyProtocol.EAGER:
                revoked_at = min(event.at, int(phase.heard[number]))
        self._lose(self._owners == number, revoked_at)
        is_leaving = event.type is ProcessEventType.CLOSED and not self._is_static
        if is_leaving and has_joined:
            self._leaving[number] = event
            if event.sequence:
                self._blocked.setdefault(event.sequence, [])
        elif is_leaving:
            self._call(event)
            self._remove([number])
            return [] if self._members else self._complete(event.at)
        self._state[number] = DEAD
        self._joined[number] = has_joined
        if not has_joined:  # otherwise the session begins when all have joined
            heartbeat = event.session_start
            commits = (self._owners == number).any() and not self._is_stopped[number]
            if not heartbeat and not commits:
                since_base = max(event.at - int(self._base[number]), 0)
                heartbeat = event.at - since_base % int(self._interval[number])
            # the last commit of a process that closes is a sign of life, too
            heartbeat = heartbeat or event.at
            self._session_end[number] = max(heartbeat + self._session_of(number), event.at)
        return []

    def _call(self, event: ProcessEvent) -> None:
        """Calls the members to join, or makes the event part of the running rebalance."""
        phase = self._phase
        if phase is None:
            self._open_phase(event.at, event.row, event.late_time)
            return
        delay_until = phase.delay_until
        is_new = event.type is ProcessEventType.STARTED
        if is_new and delay_until and event.at > delay_until - INITIAL_REBALANCE_DELAY:
            delay_until += INITIAL_REBALANCE_DELAY
        late_time = max(phase.late_time, event.late_time)
        self._phase = phase._replace(late_time=late_time, delay_until=delay_until)

    def _open_phase(self, at: int, row: int, late_time: int = 0) -> None:
        self._joined[:] = False
        heartbeats = np.maximum(at - self._base, 0) // self._interval + 1
        heard = self._base + heartbeats * self._interval
        heard[self._stopped_members()] = END_OF_TIME
        delay = 0 if self._members else at + INITIAL_REBALANCE_DELAY
        self._phase = _Phase(at, row, heard, late_time, delay)

    def _advance(self, until: int) -> list[tuple[int, PolicyOutcome]]:
        found: list[tuple[int, PolicyOutcome]] = []
        while True:
            dead = self._state == DEAD
            expires = int(self._session_end[dead].min()) if dead.any() else END_OF_TIME
            completion = END_OF_TIME if self._phase is None else self._completion()
            # a rebalance of a classic group waits for the sessions itself
            if self._phase is None or (
                self._protocol is PolicyProtocol.CONSUMER and expires < completion
            ):
                if expires >= until:
                    return found
                found += self._expire(expires)
            elif completion > until:
                return found
            else:
                found += self._complete(completion)
                if self._is_shifted:
                    return found

    def _expire(self, at: int) -> list[tuple[int, PolicyOutcome]]:
        numbers = np.flatnonzero((self._state == DEAD) & (self._session_end <= at)).tolist()
        if self._phase is None:
            self._open_phase(at, self._stop_rows[numbers[0]])
        self._remove(numbers)
        return [] if self._members else self._complete(at)

    def _completion(self) -> int:
        phase = self._phase
        assert phase is not None
        if self._protocol is PolicyProtocol.CONSUMER:
            return max(phase.start, self._assigned_at + self._assignment_interval)
        alive = ~self._joined & (self._state == ALIVE)
        heard = phase.heard[alive]
        has_stopped = False
        if self._is_stopped.any():
            heard = heard[heard != END_OF_TIME]
            has_stopped = len(heard) < int(np.count_nonzero(alive))
        join_time = self._timing.heartbeats.join_time + phase.late_time
        end = max(int(heard.max(initial=phase.start)) + join_time, phase.start)
        sessions = self._session_end[~self._joined & (self._state == DEAD)]
        if len(sessions) or has_stopped:
            waits = END_OF_TIME if has_stopped else int(sessions.max())
            end = max(end, min(waits, phase.start + self._rebalance_timeout()))
        return max(end, phase.delay_until, self._now)

    def _rebalance_timeout(self) -> int:
        limits = (self._facts[number].rebalance_timeout for number in self._members)
        return max((one for one in limits if one), default=DEFAULT_POLL_INTERVAL)

    def _complete(self, at: int) -> list[tuple[int, PolicyOutcome]]:
        phase, self._phase = self._phase, None
        assert phase is not None
        is_consumer = self._protocol is PolicyProtocol.CONSUMER
        if not is_consumer:
            missing = (self._state == DEAD) & ~self._joined
            if self._is_static:  # the rebalance timeout does not remove static members
                missing &= self._session_end <= at
            elif self._is_stopped.any():
                stopped = (self._state == ALIVE) & ~self._joined & (phase.heard == END_OF_TIME)
                self._lose(stopped[self._owners] & (self._owners != UNASSIGNED), at)
                missing |= stopped
            self._remove(np.flatnonzero(missing).tolist())
            self._close_waiting(at)
        snapshot = self._snapshot = self._take_snapshot()
        if self._members:  # partitions that nobody subscribes to are not down
            subscribed = np.zeros(len(self._lost), dtype=np.bool_)
            subscribed[snapshot.partition_numbers] = True
            self._lost[~subscribed] = 0
        before = self._owners if phase.owners is None else phase.owners
        if not self._members:
            self._placed = self._place(snapshot, snapshot.previous_positions(before))
            self._owners = self._placed.owners
            if not self._has_crashed:
                self._emptied_at = self._emptied_at or at
            return [self._outcome(phase.row, at)]
        assigned = at if is_consumer else at + self._timing.sync_time
        if self._protocol is PolicyProtocol.COOPERATIVE:
            return self._complete_round(phase, at, assigned, before)
        if self._protocol is PolicyProtocol.EAGER:
            heard = phase.heard[before]
            held = (before != UNASSIGNED) & (self._state[before] == ALIVE) & (heard < END_OF_TIME)
            self._lose(held, heard)
        self._placed, moves = run_rebalance(self._protocol, (snapshot,), before, self._place)
        self._owners = self._placed.owners
        cost = NO_DOWNTIME
        regained = assigned + RESPONSE_TIME
        if is_consumer:
            wait = CONSUMER_HEARTBEAT_INTERVAL // 2
            cost, regained = self._counter.count_some(moves.revoked, wait), assigned + wait
        cost += self._regain(regained)
        self._settle(at, assigned)
        return [self._outcome(phase.row, assigned, moves, cost)]

    def _close_waiting(self, at: int) -> None:
        leaving, self._leaving = self._leaving, {}
        self._remove(number for number, one in leaving.items() if at <= one.at + CLOSE_TIMEOUT)
        for one in leaving.values():
            if one.sequence:
                self._delays[one.sequence] += min(at - one.at, CLOSE_TIMEOUT)
                self._released += self._blocked.pop(one.sequence, [])
                self._is_shifted = True

    def _complete_round(
        self, phase: _Phase, at: int, assigned: int, before: IntArray
    ) -> list[tuple[int, PolicyOutcome]]:
        snapshot = self._snapshot
        assert snapshot is not None
        former = self._owners
        done = run_cooperative_round(snapshot, former, self._place)
        self._owners, self._placed = done.owners, done.placed
        cost = phase.cost + self._regain(assigned + RESPONSE_TIME)
        self._lose(done.moving, assigned)
        revoked = phase.revoked + int(np.count_nonzero(done.moving)) + done.unsubscribed
        self._settle(at, assigned)
        if done.moving.any() and phase.round < MAX_ROUNDS:
            self._joined[:] = False
            heard = assigned + RESPONSE_TIME + self._interval
            heard[former[done.moving]] = assigned
            heard[self._stopped_members()] = END_OF_TIME
            self._phase = _Phase(
                assigned, phase.row, heard, 0, 0, before, revoked, cost, phase.round + 1
            )
            return []
        moves = count_round_moves(self._protocol, snapshot, before, done.placed, revoked)
        return [self._outcome(phase.row, assigned, moves, cost)]

    def _settle(self, at: int, assigned: int) -> None:
        """Begins all heartbeats anew, and the sessions of members that joined and stopped."""
        self._assigned_at = assigned
        self._stop_assigned(assigned + RESPONSE_TIME)
        if self._protocol is PolicyProtocol.CONSUMER:  # heartbeats and sessions go on
            return
        self._base[self._state == ALIVE] = assigned + RESPONSE_TIME
        for number in np.flatnonzero(self._state == DEAD).tolist():
            self._joined[number] = False
            limit = self._rebalance_timeout()  # those that do not send SyncGroup are removed
            self._session_end[number] = at + min(self._session_of(number), limit)


def member_number(index: HistoryIndex, event: ProcessEvent, *, is_static: bool) -> int:
    """Returns the number of the member that a process is: of its application if it is static."""
    assert event.member is not None
    name = f"application {event.application}" if is_static else event.member.member_id
    return index.number(name)
