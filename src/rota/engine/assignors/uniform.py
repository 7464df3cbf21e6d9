"""The broker's own assignors (KIP-848), uniform and range, as the group coordinator of Kafka 4.3
computes them.

With the consumer protocol no member assigns: the coordinator computes a target assignment and
members move towards it. So these are not for ``partition.assignment.strategy``; they serve to plan
and to replay. A member's ``owned`` is its previous target, and a static member that returns under a
new member id has the target of its old one.

Uniform has two builders, as in Kafka: homogeneous (all members subscribe to the same topics) and
heterogeneous. Both start from the target that the group had, and ignore racks.

Some results depend on the iteration order of Java's hash tables, and so on the group's history,
which is not known here. We assume the simplest one: members by id, names and partition numbers
ascending, and tables of the size that their present content needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import pairwise
from struct import unpack
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from rota.engine.assignors.interface import ColumnarAssignor, Solution
from rota.engine.assignors.problem import Problem
from rota.engine.assignors.range import RangeAssignor
from rota.engine.formats.hashing import (
    DEFAULT_INITIAL_CAPACITY,
    TREEIFY_THRESHOLD,
    hash_set_order,
    hash_table_order,
    java_string_hash,
    sort_like_java,
)
from rota.engine.model.member import UNASSIGNED
from rota.engine.model.topic import IntArray
from rota.errors import UnknownStrategy

FIBONACCI = 0x9E3779B97F4A7C15
UINT64_MASK = 0xFFFFFFFFFFFFFFFF
TIMELINE_LOAD_FACTOR = 0.75
UPPER_HALF = 2**16

TopicIds = Mapping[str, bytes]  # the 16 bytes of each topic's id


@lru_cache(maxsize=256)  # what would have been is asked many times of one group
def member_iteration_order(members: tuple[str, ...]) -> tuple[int, ...]:
    """The positions of members as an assignor iterates: a HashMap of a TimelineHashMap."""
    hashes = [java_string_hash(member) for member in members]
    copied = _timeline_hash_map_order(hashes)
    return tuple(copied[at] for at in hash_table_order([hashes[position] for position in copied]))


def _timeline_hash_map_order(hashes: Sequence[int]) -> list[int]:
    """Returns the iteration order of Kafka's TimelineHashMap: last in, first out in each slot."""
    slots = 2
    while len(hashes) * TIMELINE_LOAD_FACTOR > slots:
        slots *= 2
    shift = 65 - slots.bit_length()
    slot = [(value * FIBONACCI & UINT64_MASK) >> shift for value in hashes]
    return sorted(range(len(hashes) - 1, -1, -1), key=slot.__getitem__)


def partition_iteration_order(numbers: list[int]) -> list[int]:
    """A member's partitions of one topic, given ascending, in the order of its set of them."""
    count, last = len(numbers), numbers[-1]
    mask = max(1 << (count * 4 // 3).bit_length(), DEFAULT_INITIAL_CAPACITY) - 1
    if last <= mask:  # each partition has its own bucket
        return numbers
    # with fewer buckets each holds fewer; up to the upper half a number is its own place
    if last < UPPER_HALF and len({number & mask for number in numbers}) > count - TREEIFY_THRESHOLD:
        return sorted(numbers, key=mask.__and__)
    return [numbers[at] for at in hash_set_order(numbers)]


class TopicIterationOrder:
    """Orders topics as Java's tables of topic ids do, or by name if the ids are not known."""

    def __init__(self, problem: Problem, ids: TopicIds) -> None:
        self._names = problem.layout.topics
        self._unknown = problem.skipped_topics
        self._ids = [ids[name] for name in self._names] if ids else []
        self._hashes = [_uuid_hash(uuid) for uuid in self._ids]
        #: Positions of the topics in the order in which free partitions are collected.
        self.order = self._subscribed_topic_order()
        self._rank = {topic: at for at, topic in enumerate(self.order)}

    def _subscribed_topic_order(self) -> list[int]:
        if len(self._hashes) <= 1:
            return list(range(len(self._names)))
        named = sort_like_java([*self._names, *self._unknown])
        position = {name: at for at, name in enumerate(self._names)}
        by_name = [named[at] for at in hash_set_order([java_string_hash(name) for name in named])]
        known = [position[name] for name in by_name if name in position]
        hashes = [self._hashes[at] for at in known]
        return [known[at] for at in hash_set_order(hashes, announced=len(named))]

    def sort_owned_topics(self, topics: Collection[int]) -> Iterable[int]:
        """These topics in the order of a member's own table of what it has."""
        if len(topics) <= 1:
            return topics
        if not self._hashes:
            return sorted(topics)
        if len(topics) <= TREEIFY_THRESHOLD:  # never more than the smallest table
            return sorted(topics, key=self._place_in_smallest.__getitem__)
        # a topic that is new to a member goes to the head of its bucket
        latest = sorted(topics, key=self._rank.__getitem__, reverse=True)
        return [latest[at] for at in hash_table_order([self._hashes[topic] for topic in latest])]

    @cached_property
    def _place_in_smallest(self) -> list[tuple[int, int]]:
        return [
            ((value ^ value >> 16) & (DEFAULT_INITIAL_CAPACITY - 1), -self._rank[topic])
            for topic, value in enumerate(self._hashes)
        ]

    def sort_key(self, topic: int) -> tuple[int, int]:
        """Sorts as topic ids do in Java: as two signed numbers."""
        if not self._ids:
            return (topic, 0)
        high, low = unpack(">qq", self._ids[topic])
        return (high, low)


def _uuid_hash(uuid: bytes) -> int:
    high, low = unpack(">QQ", uuid)
    folded = high ^ low
    return int(folded >> 32 ^ folded & 0xFFFFFFFF)


def find_target_owners(problem: Problem, rank: npt.NDArray[np.intp]) -> IntArray:
    """Returns the current target owner of each partition. If claims overlap (never a
    coordinator's), the latest generation counts, then the first in iteration order (``rank``).
    """
    partition, member = problem.claims.subscribed_rows()
    owners = np.full(problem.layout.size, UNASSIGNED, dtype=np.int32)
    owners[partition] = member
    if len(partition) and (owners[partition] != member).any():
        # the last one written stays
        rows = np.lexsort((-rank[member], problem.claims.generation[member]))
        owners[partition[rows]] = member[rows]
    return owners


def build_homogeneous(problem: Problem, ids: TopicIds) -> IntArray:
    """UniformHomogeneousAssignmentBuilder: returns an owner for each partition. Members keep what
    they have up to the floor or ceiling of the average; the rest goes, several at a time, to
    members with room, in iteration order.
    """
    walk = member_iteration_order(problem.members)
    order = np.array(walk, dtype=np.int32)
    owners = find_target_owners(problem, np.argsort(order))
    counts = np.bincount(owners[owners >= 0], minlength=len(walk)).tolist()
    keeps, room = compute_quotas([counts[member] for member in walk], len(owners))
    topics = TopicIterationOrder(problem, ids)
    free = _find_unassigned_partitions(problem, topics, owners)
    over = [(member, keep) for member, keep in zip(walk, keeps, strict=True) if keep is not None]
    if over:
        free = np.concatenate([free, _revoke_over_quota(problem, topics, owners, over)])
    owners[free] = np.repeat(order, room)
    return owners


def compute_quotas(counts: list[int], size: int) -> tuple[list[int | None], list[int]]:
    """Returns how many partitions each member keeps (None: all), and how many it is given."""
    quota, extra = divmod(size, len(counts))
    keeps: list[int | None] = []
    room: list[int] = []
    behind = len(counts)  # this member and those after it
    for count in counts:
        raised = extra > 0
        missing = quota + raised - count
        keeps.append(quota + raised if missing < 0 else None)
        if missing > 0 and raised and behind > extra:
            missing -= 1
            raised = False
        room.append(max(missing, 0))
        extra -= raised
        behind -= 1
    return keeps, room


def _find_unassigned_partitions(
    problem: Problem, topics: TopicIterationOrder, owners: IntArray
) -> IntArray:
    free = np.flatnonzero(owners == UNASSIGNED)
    if len(free) and len(topics.order) > 1:
        rank = np.argsort(topics.order)
        free = free[np.argsort(rank[problem.layout.topic_of[free]], kind="stable")]
    return free.astype(np.int32)


def _revoke_over_quota(
    problem: Problem, topics: TopicIterationOrder, owners: IntArray, over: list[tuple[int, int]]
) -> IntArray:
    """Returns what members have beyond their quota: the last partitions in iteration order."""
    by_owner = np.argsort(owners, kind="stable")
    members = np.array([member for member, _ in over], dtype=np.int32)
    starts = np.searchsorted(owners, members, side="left", sorter=by_owner).tolist()
    ends = np.searchsorted(owners, members, side="right", sorter=by_owner).tolist()
    order = by_owner.tolist()
    topic_of = problem.layout.topic_of[by_owner].tolist()
    first = problem.layout.starts.tolist()
    given_up: list[int] = []
    for (_, quota), start, end in zip(over, starts, ends, strict=True):
        keep = quota
        by_topic: dict[int, list[int]] = {}
        for partition, topic in zip(order[start:end], topic_of[start:end], strict=True):
            by_topic.setdefault(topic, []).append(partition - first[topic])
        for topic in topics.sort_owned_topics(by_topic):
            numbers = by_topic[topic]
            if len(numbers) > keep:
                last = partition_iteration_order(numbers)[keep:]
                given_up += [first[topic] + number for number in last]
            keep = max(keep - len(numbers), 0)
    return np.array(given_up, dtype=np.int32)


BALANCED_DIFFERENCE = 1  # loads that differ by at most this number are balanced


class MemberAssignmentBalancer:
    """Kafka's MemberAssignmentBalancer: a topic's subscribers sorted by load, while loads change.
    The least loaded form a growing range at the front that receives partitions in turn; the most
    loaded form one that gives them up, the last first. Members without a partition to give up are
    moved behind it. ``loads`` belongs to the caller.
    """

    def __init__(self, members: list[int], loads: list[int]) -> None:
        self._loads = loads
        self._sorted_members = sorted(members, key=loads.__getitem__)
        #: The load to which the least loaded range is filled.
        self._least_loaded_range_partition_count = loads[self._sorted_members[0]] - 1
        self._next_least_loaded_member = self._least_loaded_range_end = 0
        #: The load from which the most loaded range gives partitions up.
        self._most_loaded_range_partition_count = loads[self._sorted_members[-1]] + 1
        self._most_loaded_range_start = self._most_loaded_range_end = len(members)
        self._next_most_loaded_member = len(members) - 1

    def is_balanced(self) -> bool:
        """Returns whether the two ranges differ by at most one partition."""
        return (
            self._most_loaded_range_partition_count - self._least_loaded_range_partition_count
            <= BALANCED_DIFFERENCE
        )

    def next_least_loaded_member(self) -> int:
        if self._next_least_loaded_member >= self._least_loaded_range_end:
            self._least_loaded_range_partition_count += 1
            end, count = self._least_loaded_range_end, self._least_loaded_range_partition_count
            while self._load_at(end) == count:
                end += 1
            self._least_loaded_range_end = end
            self._next_least_loaded_member = 0
        self._next_least_loaded_member += 1
        return self._sorted_members[self._next_least_loaded_member - 1]

    def next_most_loaded_member(self) -> int | None:
        """Returns the next member to give up a partition, or None if none is left."""
        start = self._most_loaded_range_start
        if self._next_most_loaded_member < start:
            if self._most_loaded_range_end <= start > 0:
                most_loaded = self._sorted_members[start - 1]
                self._most_loaded_range_partition_count = self._loads[most_loaded]
            else:
                self._most_loaded_range_partition_count -= 1
            while self._load_at(start - 1) == self._most_loaded_range_partition_count:
                start -= 1
            self._most_loaded_range_start = start
            self._next_most_loaded_member = self._most_loaded_range_end - 1
        if self._next_most_loaded_member < 0:
            return None
        self._next_most_loaded_member -= 1
        return self._sorted_members[self._next_most_loaded_member + 1]

    def _load_at(self, place: int) -> int | None:
        if 0 <= place < len(self._sorted_members):
            return self._loads[self._sorted_members[place]]
        return None

    def exclude_most_loaded_member(self) -> None:
        """Excludes the member returned last: it has no partition to give up."""
        self._most_loaded_range_end -= 1
        at, line = self._next_most_loaded_member + 1, self._sorted_members
        line[at], line[self._most_loaded_range_end] = line[self._most_loaded_range_end], line[at]


MAX_ITERATION_COUNT = 16


def build_heterogeneous(problem: Problem, ids: TopicIds) -> IntArray:
    """UniformHeterogeneousAssignmentBuilder: returns an owner for each partition. Unassigned
    partitions go to the least loaded subscribers; then, topic by topic, partitions move from the
    most to the least loaded, until an iteration moves nothing or MAX_ITERATION_COUNT is reached.
    """
    walk = np.array(member_iteration_order(problem.members), dtype=np.int32)
    owners = UniformHeterogeneousAssignmentBuilder(problem, ids, walk).build()
    return walk[np.array(owners, dtype=np.int32)]


class UniformHeterogeneousAssignmentBuilder:
    """Builds one assignment. A member is its place in the iteration order; it decides ties."""

    def __init__(self, problem: Problem, ids: TopicIds, walk: IntArray) -> None:
        rank = np.argsort(walk)
        held = find_target_owners(problem, rank)
        held = np.where(held == UNASSIGNED, held, rank[held])
        self._owners: list[int] = held.tolist()
        self._loads: list[int] = np.bincount(held[held >= 0], minlength=len(walk)).tolist()
        starts = problem.layout.starts.tolist()
        self._partitions_of_topic = [range(*bounds) for bounds in pairwise(starts)]
        self._topic_subscribers = _find_topic_subscribers(problem, walk)
        self._topics = self._sort_topics(TopicIterationOrder(problem, ids))

    def _sort_topics(self, table: TopicIterationOrder) -> list[int]:
        def key(topic: int) -> tuple[float, int, tuple[int, int]]:
            subscribers = len(self._topic_subscribers[topic])
            return (
                -len(self._partitions_of_topic[topic]) / subscribers,
                subscribers,
                table.sort_key(topic),
            )

        return sorted(range(len(self._partitions_of_topic)), key=key)

    def build(self) -> list[int]:
        for topic in self._topics:
            self._assign_remaining_partitions(topic)
        self._balance([topic for topic in self._topics if len(self._topic_subscribers[topic]) > 1])
        return self._owners

    def _assign_remaining_partitions(self, topic: int) -> None:
        partitions = self._partitions_of_topic[topic]
        free = [partition for partition in partitions if self._owners[partition] == UNASSIGNED]
        if not free:
            return
        balancer = MemberAssignmentBalancer(self._topic_subscribers[topic], self._loads)
        for partition in free:
            member = balancer.next_least_loaded_member()
            self._owners[partition] = member
            self._loads[member] += 1

    def _balance(self, topics: list[int]) -> None:
        last = None  # the last topic of which a partition moved; at first the first one of all
        for _ in range(MAX_ITERATION_COUNT):
            for topic in topics:
                if topic == last:
                    return
                if self._balance_topic(topic) or last is None:
                    last = topic

    def _balance_topic(self, topic: int) -> bool:
        """Moves partitions to the least loaded subscribers; returns whether any moved."""
        subscribers, loads = self._topic_subscribers[topic], self._loads
        among = [loads[member] for member in subscribers]
        if max(among) - min(among) <= BALANCED_DIFFERENCE:
            return False
        held: dict[int, list[int]] = {}
        for partition in self._partitions_of_topic[topic]:
            held.setdefault(self._owners[partition], []).append(partition)
        balancer = MemberAssignmentBalancer(subscribers, loads)
        moved = False
        while not balancer.is_balanced():
            giver = balancer.next_most_loaded_member()
            while giver is not None and not held.get(giver):
                balancer.exclude_most_loaded_member()
                giver = balancer.next_most_loaded_member()
            if giver is None:
                break
            taker = balancer.next_least_loaded_member()
            if balancer.is_balanced():
                break
            self._owners[held[giver].pop()] = taker
            loads[giver] -= 1
            loads[taker] += 1
            moved = True
        return moved


def _find_topic_subscribers(problem: Problem, walk: IntArray) -> list[list[int]]:
    """For each topic the places of its subscribers in the walk; shared by topics that agree."""
    classes = problem.class_of[walk]
    kinds: dict[bytes, list[int]] = {}
    found = []
    for column in problem.subscribes.T:
        kind = column.tobytes()
        if kind not in kinds:
            kinds[kind] = np.flatnonzero(column[classes]).tolist()
        found.append(kinds[kind])
    return found


TOPIC_IDS_UNKNOWN = (
    "topic ids are not known: topics are taken by name, where Kafka takes them by id"
)


class UniformAssignor(ColumnarAssignor):
    """UniformAssignor. A member's ``owned`` is its previous target. Without ``topic_ids`` (16 bytes
    each) loads are Kafka's, but with several topics other partitions may move.
    """

    name: ClassVar[str] = "uniform"

    def __init__(self, topic_ids: TopicIds | None = None) -> None:
        self._ids = topic_ids or {}

    def solve(self, problem: Problem) -> Solution:
        if not problem.layout.size:
            return Solution(owners=np.empty(0, dtype=np.int32))
        known = all(topic in self._ids for topic in problem.layout.topics)
        ids = self._ids if known else {}
        place = build_homogeneous if problem.subscriptions_identical else build_heterogeneous
        matters = not known and len(problem.layout.topics) > 1
        return Solution(owners=place(problem, ids), notes=(TOPIC_IDS_UNKNOWN,) if matters else ())


SERVER_JAVA_PACKAGE = "org.apache.kafka.coordinator.group.assignor."
DEFAULT_SERVER_ASSIGNOR = "uniform"  # first of ``group.consumer.assignors``: the default


class ServerRangeAssignor(ColumnarAssignor):
    """The client's RangeAssignor without racks. It is not sticky."""

    name: ClassVar[str] = "range"

    def solve(self, problem: Problem) -> Solution:
        return RangeAssignor().solve(replace(problem, racks=None) if problem.racks else problem)


SERVER_ASSIGNORS = (UniformAssignor.name, ServerRangeAssignor.name)


def resolve_server_assignor(name: str, *, topic_ids: TopicIds | None = None) -> ColumnarAssignor:
    """Returns the broker's assignor with this name or Java class name.

    :raises UnknownStrategy: the broker has no such assignor
    """
    match name.removeprefix(SERVER_JAVA_PACKAGE):
        case "uniform" | "UniformAssignor":
            return UniformAssignor(topic_ids)
        case "range" | "RangeAssignor":
            return ServerRangeAssignor()
        case _:
            known = ", ".join(SERVER_ASSIGNORS)
            raise UnknownStrategy(f"unknown strategy {name!r} of the broker: known are {known}")
