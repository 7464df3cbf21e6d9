"""The algorithm of Kafka 4.3's AbstractStickyAssignor: its ConstrainedAssignmentBuilder and
GeneralAssignmentBuilder.

`solve_as_kafka` chooses between them. Both start from what members say they own, use racks where
Kafka does (KIP-881), and depend in places on the order in which Java iterates over hash tables.

**Constrained** (all members subscribe to the same topics): every member gets the floor or the
ceiling of the average, and keeps what it owns up to that; the rest goes in (topic, partition) order
to the members below the floor, in turn, and then to those that may have one more.

**General** (members subscribe to different topics): owned partitions stay. Unassigned ones go to
the least loaded member that may take them, topics with the fewest subscribers first. Then
partitions move, one at a time, from a member to one with at least two fewer, until none can; all of
that is undone unless it made the loads more even. Kafka calls isBalanced before each step: where it
is true the step would move nothing, so it is only called here where `UnsubscribedOwner` describes
it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import chain, islice

import numpy as np

from rota.engine.assignors.interface import Solution
from rota.engine.assignors.problem import NO_RACK, Problem, Racks
from rota.engine.formats.buffer import BoolArray
from rota.engine.formats.hashing import (
    DEFAULT_INITIAL_CAPACITY,
    LOAD_FACTOR,
    hash_map_order,
    java_string_hash,
)
from rota.engine.model.member import UNASSIGNED
from rota.engine.model.topic import IntArray, PartitionNumbering

UINT32_MASK = 0xFFFFFFFF


@lru_cache(maxsize=256)  # what would have been is asked many times of one group
def member_hash_map_order(members: tuple[str, ...]) -> IntArray:
    """Returns members' positions in the order of a Java ``HashMap``; within a bucket by id, since
    the leader's order of insertion is not known.
    """
    order = np.array(hash_map_order(members), dtype=np.int32)
    order.setflags(write=False)
    return order


def topic_partition_hash(topic_hash: int, number: int) -> int:
    """``TopicPartition.hashCode()`` as a table uses it: the upper half folded into the lower."""
    value = (31 * (31 + number) + topic_hash) & UINT32_MASK
    return value ^ value >> 16


class PartitionHashSet:
    """A ``HashSet`` of partitions of one topic, of which only the first element is needed."""

    __slots__ = ("_buckets", "_hash", "_spread")

    def __init__(self, topic_hash: int) -> None:
        self._hash = topic_hash
        self._buckets = DEFAULT_INITIAL_CAPACITY
        self._spread: dict[int, int] = {}  # by number, in order of insertion

    def __len__(self) -> int:
        return len(self._spread)

    def add(self, number: int) -> None:
        """Adds a partition; a table that has grown never shrinks."""
        self._spread[number] = topic_partition_hash(self._hash, number)
        while len(self._spread) > LOAD_FACTOR * self._buckets:
            self._buckets *= 2

    def remove(self, number: int) -> None:
        del self._spread[number]

    def first(self) -> int:
        """The partition at which Java's iterator would start."""
        buckets = self._buckets - 1
        return min(self._spread, key=lambda number: self._spread[number] & buckets)


def find_owned_partitions(problem: Problem, walk: IntArray) -> tuple[IntArray, BoolArray]:
    """Returns each partition's owner, and a flag for two claims on it with the same generation. As
    in AbstractStickyAssignor.allSubscriptionsEqual: claims are compared in hash order, a newer one
    takes the partition, an equal one leaves it without an owner, an older one is ignored.
    """
    claims = problem.claims
    holder = np.full(problem.layout.size, UNASSIGNED, dtype=np.int32)
    doubled = np.zeros(problem.layout.size, dtype=np.bool_)
    holder[claims.partition] = claims.member
    times = np.bincount(claims.partition, minlength=problem.layout.size)
    contested = np.flatnonzero(times[claims.partition] > 1)
    if len(contested) == 0:
        return holder, doubled
    rank = np.argsort(walk)
    partition, member = claims.partition[contested], claims.member[contested]
    order = np.lexsort((rank[member], partition))
    partition, member = partition[order], member[order]
    first = np.searchsorted(partition, partition, side="left")
    place = np.arange(len(partition)) - first
    last = np.empty(problem.layout.size, dtype=np.int32)
    by_place = np.argsort(place, kind="stable")
    for rows in np.split(by_place, np.cumsum(np.bincount(place))[:-1]):
        spot, claimant = partition[rows], member[rows]
        if place[rows[0]] == 0:
            last[spot] = holder[spot] = claimant
            continue
        new, old = claims.generation[claimant], claims.generation[last[spot]]
        doubled[spot[new == old]] = True
        holder[spot] = np.where(new > old, claimant, np.where(new < old, holder[spot], UNASSIGNED))
        last[spot] = np.where(new >= old, claimant, last[spot])
    return holder, doubled


def use_rack_aware_assignment(racks: Racks | None) -> bool:
    """Returns whether Kafka uses racks: they are known, and partitions differ in them."""
    if racks is None:
        return False
    everywhere = frozenset[int]().union(*racks.sets)
    near_some = any(rack in everywhere for rack in racks.rack_of_member.tolist())
    return near_some and any(found != everywhere for found in racks.sets)


def release_racks_mismatch(problem: Problem, holder: IntArray) -> BoolArray:
    """Releases partitions whose owner's rack has no replica of them; returns a flag for each."""
    racks = problem.racks
    assert racks is not None
    rack = np.where(holder == UNASSIGNED, NO_RACK, racks.rack_of_member[holder])
    far: BoolArray = (rack != NO_RACK) & ~racks.set_has_rack[racks.set_of_partition, rack]
    holder[far] = UNASSIGNED
    return far


def sort_partitions_by_rack_consumers(racks: Racks, partitions: IntArray) -> IntArray:
    """Sorts by the number of members in their racks; Kafka does once any member has a rack."""
    rack = racks.rack_of_member
    near = racks.set_has_rack @ np.bincount(rack[rack >= 0], minlength=len(racks.names))
    return partitions[np.argsort(near[racks.set_of_partition[partitions]], kind="stable")]


@dataclass(slots=True)
class MemberQuotas:
    """ConstrainedAssignmentBuilder's quotas, and members in order that may get one more."""

    min_quota: int
    expected_over_min_quota: int
    loads: IntArray
    current_over_min_quota: int = 0
    under_min_quota: list[int] = field(default_factory=list)
    exactly_min_quota: list[int] = field(default_factory=list)

    @classmethod
    def assign_owned_partitions(cls, held: IntArray, order: IntArray, size: int) -> MemberQuotas:
        """Returns the quotas after members kept what they may, in hash order."""
        floor, extra = divmod(size, len(held))
        ceiling = floor + (extra > 0)
        quotas = cls(floor, extra, held.copy())
        counts = held.tolist()
        for member in order.tolist():
            if counts[member] < floor:
                quotas.under_min_quota.append(member)
            elif counts[member] >= ceiling and quotas.current_over_min_quota < extra:
                quotas.loads[member] = ceiling
                quotas.current_over_min_quota += 1
            else:
                quotas.loads[member] = floor
                quotas.exactly_min_quota.append(member)
        quotas.under_min_quota.sort()
        quotas.exactly_min_quota.sort()
        quotas.drop_exactly_min_quota_if_full()
        return quotas

    def drop_exactly_min_quota_if_full(self) -> None:
        """No member may get one more once the expected number of members has the maximum."""
        if self.current_over_min_quota == self.expected_over_min_quota:
            self.exactly_min_quota = []

    def assign_round_robin(self, count: int) -> IntArray:
        """Returns the members that get the next partitions, one each in turn."""
        below = np.array(self.under_min_quota, dtype=np.int32)
        missing = self.min_quota - self.loads[below]
        _, turns = np.nonzero(np.arange(missing.max(initial=0))[:, None] < missing)
        filled = below[np.argsort(missing, kind="stable")]
        level = np.array(self.exactly_min_quota, dtype=np.int32)
        return np.concatenate((below[turns], level, filled))[:count]


class RackAwareRoundRobin:
    """The first round: partitions go only to members in a rack that holds a replica."""

    def __init__(self, quotas: MemberQuotas, racks: Racks) -> None:
        self._quotas = quotas
        self._rack_of = racks.rack_of_member.tolist()
        self._set_of = racks.set_of_partition
        self._sets = [sorted(found) for found in racks.sets]
        self._loads: list[int] = quotas.loads.tolist()
        self._under_min_quota: list[list[int]] = [[] for _ in racks.names]
        self._exactly_min_quota: list[deque[tuple[int, int]]] = [deque() for _ in racks.names]
        self._next_place = len(quotas.exactly_min_quota)
        self._next_member = 0
        for member in quotas.under_min_quota:
            if self._rack_of[member] != NO_RACK:
                self._under_min_quota[self._rack_of[member]].append(member)
        for position, member in enumerate(quotas.exactly_min_quota):
            if self._rack_of[member] != NO_RACK:
                self._exactly_min_quota[self._rack_of[member]].append((position, member))

    def assign_rack_aware_round_robin(self, free: IntArray, owners: IntArray) -> IntArray:
        """Assigns partitions to members in their racks that have room; returns the others."""
        left: list[int] = []
        sets = self._set_of[free].tolist()
        for partition, found in zip(free.tolist(), sets, strict=True):
            member = self._next_under_min_quota(self._sets[found])
            if member is None:
                member = self._next_exactly_min_quota(self._sets[found])
            if member is None:
                left.append(partition)
            else:
                owners[partition] = member
        self._write_back_quotas()
        return np.array(left, dtype=np.int32)

    def _next_under_min_quota(self, racks: list[int]) -> int | None:
        """The next member below the floor in one of these racks, in circular order."""
        best = None
        after = len(self._rack_of)
        for rack in racks:
            waiting = self._under_min_quota[rack]
            if waiting:
                spot = bisect_left(waiting, self._next_member)
                found = waiting[spot] if spot < len(waiting) else waiting[0] + after
                best = found if best is None else min(best, found)
        if best is None:
            return None
        member = best % after
        self._next_member = member + 1
        self._loads[member] += 1
        if self._loads[member] == self._quotas.min_quota:
            self._reach_min_quota(member)
        return member

    def _reach_min_quota(self, member: int) -> None:
        rack = self._rack_of[member]
        del self._under_min_quota[rack][bisect_left(self._under_min_quota[rack], member)]
        if self._quotas.current_over_min_quota < self._quotas.expected_over_min_quota:
            self._exactly_min_quota[rack].append((self._next_place, member))
            self._next_place += 1

    def _next_exactly_min_quota(self, racks: list[int]) -> int | None:
        """The first member at the floor in one of these racks, while there are ceilings left."""
        if self._quotas.current_over_min_quota == self._quotas.expected_over_min_quota:
            return None
        queues = (self._exactly_min_quota[rack] for rack in racks)
        _, member = min((queue[0] for queue in queues if queue), default=(0, None))
        if member is None:
            return None
        self._exactly_min_quota[self._rack_of[member]].popleft()
        self._loads[member] += 1
        self._quotas.current_over_min_quota += 1
        return member

    def _write_back_quotas(self) -> None:
        quotas = self._quotas
        quotas.loads = np.array(self._loads, dtype=quotas.loads.dtype)
        quotas.under_min_quota = [
            member for member in quotas.under_min_quota if self._loads[member] < quotas.min_quota
        ]
        level = [
            (t, m) for t, m in enumerate(quotas.exactly_min_quota) if self._rack_of[m] == NO_RACK
        ]
        level = sorted(chain(level, *self._exactly_min_quota))
        quotas.exactly_min_quota = [member for _, member in level]
        quotas.drop_exactly_min_quota_if_full()


def constrained_assign(problem: Problem) -> IntArray:
    """ConstrainedAssignmentBuilder: returns an owner for each partition."""
    if not problem.members:
        return np.empty(0, dtype=np.int32)
    order = member_hash_map_order(problem.members)
    owners, doubled = find_owned_partitions(problem, order)
    near = use_rack_aware_assignment(problem.racks)
    if near:
        release_racks_mismatch(problem, owners)
    owners[doubled] = UNASSIGNED
    members = len(problem.members)
    held = np.bincount(owners[owners >= 0], minlength=members).astype(np.int32)
    quotas = MemberQuotas.assign_owned_partitions(held, order, problem.layout.size)
    _revoke_over_quota(problem, owners, held, quotas.loads)
    free = np.flatnonzero(owners == UNASSIGNED).astype(np.int32)
    if problem.racks is not None:
        free = sort_partitions_by_rack_consumers(problem.racks, free)
        if near:
            first = RackAwareRoundRobin(quotas, problem.racks)
            free = first.assign_rack_aware_round_robin(free, owners)
    owners[free] = quotas.assign_round_robin(len(free))
    return owners


def _revoke_over_quota(problem: Problem, owners: IntArray, held: IntArray, kept: IntArray) -> None:
    """Revokes what each member owns beyond its quota: the last ones in (partition, topic) order."""
    above = held > kept
    if not above.any():
        return
    layout = problem.layout
    rows = np.flatnonzero(above[owners] & (owners != UNASSIGNED))
    member = owners[rows].astype(np.int64)
    number = rows - layout.starts[layout.topic_of[rows]]
    # rows stand in (topic, number) order, so a stable sort leaves ties in topic order
    rows = rows[np.argsort(member * int(layout.counts.max()) + number, kind="stable")]
    held = np.where(above, held, 0)
    first = np.cumsum(held) - held
    rank = np.arange(len(rows)) - first[owners[rows]]
    owners[rows[rank >= kept[owners[rows]]]] = UNASSIGNED


class PartitionMovements:
    """Kafka's PartitionMovements: for each topic and pair of members, the partitions that moved
    from the first owner to the present one, so that an opposite move is undone.
    """

    def __init__(self, layout: PartitionNumbering) -> None:
        self._layout = layout
        self._topic_of = layout.topic_of.tolist()
        self._starts = layout.starts.tolist()
        self._first_owner: dict[int, int] = {}
        self._partitions_by_pair: dict[tuple[int, int, int], PartitionHashSet] = {}

    def get_the_actual_partition_to_be_moved(self, partition: int, owner: int, taker: int) -> int:
        """Returns the partition to move in place of this one: one that moved the opposite way, if
        any. If it has moved itself, Kafka looks from its first owner, not its present one.
        """
        topic = self._topic_of[partition]
        origin = self._first_owner.get(partition, owner)
        opposite = self._partitions_by_pair.get((topic, taker, origin))
        return partition if opposite is None else self._starts[topic] + opposite.first()

    def move_partition(self, partition: int, owner: int, taker: int) -> None:
        topic = self._topic_of[partition]
        number = partition - self._starts[topic]
        origin = self._first_owner.pop(partition, None)
        if origin is not None:
            moved = self._partitions_by_pair[topic, origin, owner]
            moved.remove(number)
            if not moved:
                del self._partitions_by_pair[topic, origin, owner]
            if origin == taker:
                return
        else:
            origin = owner
        self._first_owner[partition] = origin
        pair = (topic, origin, taker)
        if pair not in self._partitions_by_pair:
            topic_hash = java_string_hash(self._layout.topics[topic])
            self._partitions_by_pair[pair] = PartitionHashSet(topic_hash)
        self._partitions_by_pair[pair].add(number)


FEW_HEAPS = 8  # with more heaps than this, the sorted list of all members is searched first


class LeastLoadedMembers:
    """Loads of members, and the least loaded subscriber of each topic; ties by member order.
    Members with the same topics and rack share a heap of entries ``load * members + member``;
    outdated ones are dropped at the top. All entries are also in one sorted list, for topics with
    many heaps.
    """

    def __init__(self, problem: Problem, loads: list[int], *, near: bool) -> None:
        self.loads = loads
        self._members = len(loads)
        self._entries = [load * self._members + member for member, load in enumerate(loads)]
        self._sorted = sorted(self._entries)
        self._rack_of = [NO_RACK] * self._members
        if near and problem.racks is not None:
            self._rack_of = problem.racks.rack_of_member.tolist()
        self._class_of = problem.class_of.tolist()
        self._subscribes = [row.tobytes() for row in problem.subscribes]
        groups = list(zip(self._class_of, self._rack_of, strict=True))
        heaps: dict[tuple[int, int], list[int]] = {group: [] for group in groups}
        for group, entry in zip(groups, self._entries, strict=True):
            heaps[group].append(entry)
        self._heap_of = [heaps[group] for group in groups]
        self._topics: list[list[tuple[int, list[int]]]] = [[] for _ in problem.layout.topics]
        for (wanting, rack), heap in heaps.items():
            heapify(heap)
            for topic in problem.classes[wanting].tolist():
                self._topics[topic].append((rack, heap))
        self._cached: dict[int, int] = {}  # by topic, until a load changes

    def find_least_loaded(self, topic: int, racks: frozenset[int] | None = None) -> int | None:
        """Returns the topic's least loaded subscriber, of ``racks`` or without a rack if given."""
        if racks is not None:
            return self._search(topic, racks)
        member = self._cached.get(topic)
        if member is None:
            member = self._search(topic, None)
            if member is not None:
                self._cached[topic] = member
        return member

    def _search(self, topic: int, racks: frozenset[int] | None) -> int | None:
        found = self._topics[topic]
        if len(found) > FEW_HEAPS:
            for entry in islice(self._sorted, len(found)):
                member = entry % self._members
                rack = self._rack_of[member]
                if self._subscribes[self._class_of[member]][topic] and (
                    racks is None or rack == NO_RACK or rack in racks
                ):
                    return member
        tops = [
            self._current_top(heap)
            for rack, heap in found
            if racks is None or rack == NO_RACK or rack in racks
        ]
        return min(tops) % self._members if tops else None

    def change_load(self, member: int, by: int) -> None:
        self._cached.clear()
        del self._sorted[bisect_left(self._sorted, self._entries[member])]
        self.loads[member] += by
        self._entries[member] += by * self._members
        insort(self._sorted, self._entries[member])
        heappush(self._heap_of[member], self._entries[member])

    def _current_top(self, heap: list[int]) -> int:
        while heap[0] != self._entries[heap[0] % self._members]:
            heappop(heap)
        return heap[0]


KAFKA_NEVER_ENDS = (
    "Kafka's own algorithm would never end here; finished without its undoing of moves"
)

BUDGET_EXPIRED = "time budget used up: loads may be less even than Kafka's own"


class UnsubscribedOwner(Exception):
    """Kafka would raise, or leave a partition with a member that does not subscribe to it: it does
    not check an owner of an older generation (prevAssignment) before it returns partitions.
    """


def general_assign(problem: Problem, expired: Callable[[], bool]) -> Solution:
    """GeneralAssignmentBuilder: returns an owner for each partition. If the steps end with a member
    that does not subscribe, they are repeated without such previous owners.
    """
    order = member_hash_map_order(problem.members)
    previous = _update_prev_assignment(problem, order)
    stray = (previous != UNASSIGNED) & ~_owners_subscribe(problem, previous)
    notes: dict[str, None] = {}
    try:
        owners = GeneralAssignmentBuilder(problem, order, previous, stray, expired, notes).build()
    except UnsubscribedOwner:
        previous[stray] = UNASSIGNED
        notes = {}
        stray[:] = False
        owners = GeneralAssignmentBuilder(problem, order, previous, stray, expired, notes).build()
        notes.pop(KAFKA_NEVER_ENDS, None)  # Kafka raises before its endless loop
    return Solution(owners=owners, notes=tuple(notes))


def _owners_subscribe(problem: Problem, members: IntArray) -> BoolArray:
    """For each partition: does this member subscribe to its topic?"""
    return problem.is_subscribed(members, np.arange(problem.layout.size, dtype=np.int32))


def _update_prev_assignment(problem: Problem, order: IntArray) -> IntArray:
    """Returns Kafka's prevAssignment: the latest claimants before the latest generation."""
    claims = problem.claims
    generation = claims.generation[claims.member]
    behind = generation < claims.generation.max(initial=-1)
    partition, member = claims.partition[behind], claims.member[behind]
    rank = np.argsort(order)
    # later writes win: the highest generation, and among equals the first in table order
    rows = np.lexsort((-rank[member], generation[behind]))
    earlier = np.full(problem.layout.size, UNASSIGNED, dtype=np.int32)
    earlier[partition[rows]] = member[rows]
    return earlier


class GeneralAssignmentBuilder:
    def __init__(  # noqa: PLR0913, PLR0917 (what the run starts from)
        self,
        problem: Problem,
        order: IntArray,
        previous: IntArray,
        stray: BoolArray,
        expired: Callable[[], bool],
        notes: dict[str, None],
    ) -> None:
        self._problem = problem
        self._prev_assignment = previous.tolist()
        self._stray = stray.tolist()
        self._expired = expired
        self._notes = notes  # each once, in order
        self._rack_aware = use_rack_aware_assignment(problem.racks)
        held, _ = find_owned_partitions(problem, order)
        lost = (held != UNASSIGNED) & ~_owners_subscribe(problem, held)
        held[lost] = UNASSIGNED
        far = release_racks_mismatch(problem, held) if self._rack_aware else lost
        self._revocation_required = bool(lost.any() or far.any())
        loads = np.bincount(held[held >= 0], minlength=len(problem.members))
        self._owners: list[int] = held.tolist()
        self._topic_of: list[int] = problem.layout.topic_of.tolist()
        self._least_loaded = LeastLoadedMembers(problem, loads.tolist(), near=self._rack_aware)
        self._movements = PartitionMovements(problem.layout)
        self._undoes_opposite_moves = True
        members = np.bincount(problem.class_of, minlength=len(problem.classes))
        self._subscribers = members @ problem.subscribes
        shared = self._subscribers >= 2
        self._topic_participates: list[bool] = shared.tolist()
        wants_shared: BoolArray = np.any(problem.subscribes & shared, axis=1)
        self._member_participates = wants_shared[problem.class_of]

    def build(self) -> IntArray:
        """Keeps owned partitions, assigns the unassigned ones, then balances."""
        fresh = not any(self._least_loaded.loads)
        # topics with the fewest subscribers first; layout order is by name, and the sort stable
        everything = np.argsort(self._subscribers[self._problem.layout.topic_of], kind="stable")
        free = [p for p in everything.tolist() if self._owners[p] == UNASSIGNED]
        self._assign_unassigned_partitions(free)
        before, uneven = self._owners.copy(), self._get_balance_score()
        if not self._revocation_required:
            self._perform_reassignments(free)
        changed = self._perform_reassignments(everything.tolist())
        if changed and not fresh and self._get_balance_score() >= uneven:
            self._owners = before
        owners = np.array(self._owners, dtype=np.int32)
        if not _owners_subscribe(self._problem, owners).all():
            raise UnsubscribedOwner
        return owners

    def _can_participate_in_reassignment(self, partition: int) -> bool:
        return self._topic_participates[self._topic_of[partition]]

    def _assign_unassigned_partitions(self, free: list[int]) -> None:
        """Assigns each to its least loaded subscriber, within its racks first if they are used."""
        racks = self._problem.racks
        if self._rack_aware and racks is not None:
            for partition in free:
                self._assign_partition(partition, racks.sets[racks.set_of_partition[partition]])
        for partition in free:
            if self._owners[partition] == UNASSIGNED:
                self._assign_partition(partition)

    def _assign_partition(self, partition: int, racks: frozenset[int] | None = None) -> None:
        taker = self._least_loaded.find_least_loaded(self._topic_of[partition], racks)
        if taker is not None:
            self._owners[partition] = taker
            self._least_loaded.change_load(taker, +1)

    def _get_balance_score(self) -> int:
        """Kafka's balance score: the sum of all differences between two loads, in 32 bits."""
        loads = np.sort(np.array(self._least_loaded.loads)[self._member_participates])
        weights = 2 * np.arange(len(loads)) - len(loads) + 1
        return int((weights * loads).sum().astype(np.int32))

    def _perform_reassignments(self, partitions: list[int]) -> bool:
        """Moves partitions until none moves any more; returns whether any did. Kafka's passes can
        run in a circle without an end: once the state after passes 0, 1, 2, 4, 8 ... repeats, moves
        are no longer undone, so that each makes loads more even.
        """
        partitions = [p for p in partitions if self._can_participate_in_reassignment(p)]
        landmark, passes = self._owners.copy(), 0
        while self._reassign_once(partitions):
            passes += 1
            if self._expired():
                self._notes[BUDGET_EXPIRED] = None
                break
            if self._owners == landmark:
                self._notes[KAFKA_NEVER_ENDS] = None
                self._undoes_opposite_moves = False
            if passes & (passes - 1) == 0:
                landmark = self._owners.copy()
        return passes > 0

    def _reassign_once(self, partitions: list[int]) -> bool:
        """Tries to move each partition once; returns whether any moved."""
        loads = self._least_loaded.loads
        moved = False
        for partition in partitions:
            load = loads[self._owners[partition]]
            earlier = self._prev_assignment[partition]
            if self._stray[partition] and self._is_balanced_before_stray_move(earlier, load):
                return moved
            if earlier != UNASSIGNED and load > loads[earlier] + 1:
                self._reassign_partition(partition, earlier)
                moved = True
                continue
            taker = self._least_loaded.find_least_loaded(self._topic_of[partition])
            if taker is not None and load > loads[taker] + 1:
                self._reassign_partition(partition, taker)
                moved = True
        return moved

    def _reassign_partition(self, partition: int, taker: int) -> None:
        chosen = partition
        if self._undoes_opposite_moves:
            owner = self._owners[partition]
            chosen = self._movements.get_the_actual_partition_to_be_moved(partition, owner, taker)
        giver = self._owners[chosen]
        self._movements.move_partition(chosen, giver, taker)
        self._owners[chosen] = taker
        self._least_loaded.change_load(giver, -1)
        self._least_loaded.change_load(taker, +1)

    def _is_balanced_before_stray_move(self, earlier: int, load: int) -> bool:
        """Whether everything is balanced before a move to a member that does not subscribe."""
        idle = not self._member_participates[earlier]
        if not idle and load <= self._least_loaded.loads[earlier] + 1:
            return False
        if self._is_balanced():
            return True
        if idle:
            raise UnsubscribedOwner  # Kafka has removed this member, and its lookup fails
        return False

    def _is_balanced(self) -> bool:
        layout, subscribes = self._problem.layout, self._problem.subscribes
        loads = np.array(self._least_loaded.loads)
        highest = np.zeros(len(layout.topics), dtype=np.int64)
        np.maximum.at(highest, layout.topic_of, loads[self._owners])
        room = (subscribes @ layout.counts)[self._problem.class_of]
        reachable = np.where(subscribes, highest, 0).max(axis=1)[self._problem.class_of]
        return not (self._member_participates & (loads != room) & (reachable > loads + 1)).any()


def solve_as_kafka(problem: Problem, expired: Callable[[], bool]) -> Solution:
    """Returns what Kafka 4.3 gives, or where that breaks a rule, a valid result by its steps."""
    if problem.subscriptions_identical:
        return Solution(owners=constrained_assign(problem))
    return general_assign(problem, expired)
