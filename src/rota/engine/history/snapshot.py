"""A group at one time as arrays: its members, their topics, and the partition counts.

A :class:`HistoryIndex` numbers all partitions and members of the group's history. So an assignment
is one array of numbers that stays valid when members leave and can be compared without names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rota.engine.assignors.exact.solver import FewestMoves
from rota.engine.assignors.problem import Claims, Problem
from rota.engine.formats.hashing import java_sort_key
from rota.engine.history.facts import COOPERATIVE_STICKY, Generation, GroupType, PartitionsByTopic
from rota.engine.model.member import UNASSIGNED, Subscription
from rota.engine.model.topic import Cluster, IntArray, PartitionNumbering


def assigned_counts(generation: Generation) -> dict[str, int]:
    """Returns each topic's partition count, from the highest assigned partition."""
    found: dict[str, int] = {}
    for member in generation.members:
        for topic, numbers in member.assigned.items():
            if numbers and numbers[-1] >= found.get(topic, 0):
                found[topic] = numbers[-1] + 1
    return found


def update_counts(
    generation: Generation, known: Mapping[str, int], assigned: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Returns the partition counts after a generation, from those ``known`` before it: the highest
    number assigned; in a cooperative round, which may withhold partitions, the largest count so
    far.
    """
    assigned = assigned_counts(generation) if assigned is None else assigned
    topics = frozenset().union(*{member.topics for member in generation.members})
    counts = drop_topics(known, topics)
    withholds = generation.kind is GroupType.CLASSIC and generation.strategy == COOPERATIVE_STICKY
    for topic in topics:
        count = assigned.get(topic, 0)
        if withholds:
            count = max(count, known.get(topic, 0))
        if count:
            counts[topic] = count
    return counts


def drop_topics(counts: Mapping[str, int], absent: Set[str]) -> dict[str, int]:
    return {topic: count for topic, count in counts.items() if topic not in absent}


def largest_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    most: dict[str, int] = {}
    for one in counts:
        for topic, count in one.items():
            if count > most.get(topic, 0):
                most[topic] = count
    return most


class SnapshotMember(NamedTuple):
    """A member of a snapshot; ``number`` identifies it throughout the history."""

    number: int
    member_id: str
    group_instance_id: str | None
    topics: tuple[str, ...]


MemberTopics: TypeAlias = tuple[str, str | None, tuple[str, ...]]


class ProblemCache:
    """Caches assignment problems, which occur repeatedly."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Problem] = {}

    def problem(self, members: Iterable[MemberTopics], counts: Mapping[str, int]) -> Problem:
        """Returns the problem of these members and counts, without owned partitions."""
        sorted_members = tuple(sorted(members, key=itemgetter(0)))
        key = (sorted_members, tuple(counts.items()))
        found = self._known.get(key)
        if found is None:
            group = {
                name: Subscription(topics=topics, group_instance_id=group_instance_id)
                for name, group_instance_id, topics in sorted_members
            }
            found = self._known[key] = Problem.from_group(Cluster(counts), group)
        return found


class HistoryIndex:
    def __init__(self, counts: Mapping[str, int], problems: ProblemCache | None = None) -> None:
        topics = tuple(sorted(counts, key=java_sort_key))
        self.layout = PartitionNumbering(topics, [counts[topic] for topic in topics])
        self.problems = ProblemCache() if problems is None else problems
        self._numbers: dict[str, int] = {}
        self._member_ids: dict[int, str] = {}
        self._snapshots: dict[tuple[object, ...], GroupSnapshot] = {}

    def number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    @property
    def member_count(self) -> int:
        return len(self._numbers)

    def member_id(self, number: int) -> str:
        return self._member_ids[number]

    def snapshot(
        self, members: Iterable[SnapshotMember], counts: Mapping[str, int]
    ) -> GroupSnapshot:
        """Returns the snapshot of these members; equal arguments return the same object."""
        by_number = {member.number: member for member in members}
        by_id = {member.member_id: member for _, member in sorted(by_number.items())}
        sorted_members = tuple(by_id.values())
        topic_counts = subscribed_counts({member.topics for member in sorted_members}, counts)
        key = (sorted_members, tuple(topic_counts.items()))
        found = self._snapshots.get(key)
        if found is None:
            found = self._snapshots[key] = GroupSnapshot(self, sorted_members, topic_counts)
            self._member_ids |= {member.number: member.member_id for member in sorted_members}
        return found


def subscribed_counts(topics: set[tuple[str, ...]], counts: Mapping[str, int]) -> dict[str, int]:
    """Returns the counts of subscribed topics, sorted by name."""
    subscribed = frozenset[str]().union(*topics)
    return {topic: counts[topic] for topic in sorted(subscribed) if topic in counts}


def make_owner_array(
    layout: PartitionNumbering, assignments: Iterable[tuple[int, PartitionsByTopic]]
) -> IntArray:
    """Returns the owner of each partition of a layout, -1 for none."""
    start_of = dict(zip(layout.topics, layout.starts.tolist(), strict=False))
    numbers: list[int] = []
    runs: list[tuple[int, int, int]] = []
    for owner, topics in assignments:
        for topic, partitions in topics.items():
            if partitions:
                numbers += partitions
                runs.append((start_of[topic], owner, len(partitions)))
    owners = np.full(layout.size, UNASSIGNED, dtype=np.int32)
    if runs:
        starts, owner_numbers, sizes = np.array(runs).T
        owners[np.array(numbers) + np.repeat(starts, sizes)] = np.repeat(owner_numbers, sizes)
    return owners


class GroupSnapshot:
    def __init__(
        self, index: HistoryIndex, members: tuple[SnapshotMember, ...], counts: Mapping[str, int]
    ) -> None:
        self._index = index
        self.members = members
        self.problem = index.problems.problem(
            ((member.member_id, member.group_instance_id, member.topics) for member in members),
            counts,
        )
        #: Placements by strategy and previous owners, which are often the same under two policies.
        self.placements: dict[tuple[str, bytes], SnapshotPlacement] = {}
        self._moves: dict[bytes, int] = {}

    @cached_property
    def member_numbers(self) -> IntArray:
        """The member number at each position; -1 at the end, for unassigned partitions."""
        by_id = {member.member_id: member.number for member in self.members}
        sorted_members = [by_id[member] for member in self.problem.members]
        return np.array([*sorted_members, UNASSIGNED], dtype=np.int32)

    @cached_property
    def position(self) -> IntArray:
        """The position of each member number, -1 if absent; -1 at the end, for no owner."""
        places = np.full(self._index.member_count + 1, UNASSIGNED, dtype=np.int32)
        places[self.member_numbers[:-1]] = np.arange(len(self.members), dtype=np.int32)
        return places

    @cached_property
    def partition_numbers(self) -> npt.NDArray[np.int64]:
        """The index's number of each partition of the problem."""
        layout, index = self.problem.layout, self._index.layout
        if layout.topics == index.topics and layout.size == index.size:
            return np.arange(layout.size)
        starts = index.starts[[index.index[topic] for topic in layout.topics]]
        if not len(starts):
            return np.empty(0, dtype=np.int64)
        within = np.arange(layout.size) - layout.starts[layout.topic_of]
        numbers: npt.NDArray[np.int64] = starts[layout.topic_of] + within
        return numbers

    @cached_property
    def _fewest(self) -> FewestMoves:
        return FewestMoves(self.problem)

    def fewest_moves(self, previous: IntArray) -> int:
        key = previous.tobytes()
        if key not in self._moves:
            self._moves[key], _ = self._fewest.count(previous, lambda: False)
        return self._moves[key]

    def previous_positions(self, owners: IntArray) -> IntArray:
        """Returns owners as positions: -1 if they left or no longer subscribe."""
        found: IntArray = self.position[owners[self.partition_numbers]]
        if len(self.problem.classes) > 1:
            owned = np.flatnonzero(found != UNASSIGNED).astype(np.int32)
            found[owned[~self.problem.is_subscribed(found[owned], owned)]] = UNASSIGNED
        return found

    def count_present(self, owners: IntArray) -> int:
        """Returns how many partitions have an owner that is a member of this snapshot."""
        return int(np.count_nonzero(self.position[owners] != UNASSIGNED))

    def absent_owners(self, owners: IntArray) -> npt.NDArray[np.bool_]:
        absent: npt.NDArray[np.bool_] = (owners != UNASSIGNED) & (
            self.position[owners] == UNASSIGNED
        )
        return absent

    def to_index_owners(self, placed: IntArray) -> IntArray:
        owners = np.full(self._index.layout.size, UNASSIGNED, dtype=np.int32)
        owners[self.partition_numbers] = self.member_numbers[placed]
        return owners


@dataclass(frozen=True, slots=True)
class SnapshotPlacement:
    positions: IntArray
    owners: IntArray  # owners as numbers of the index
    idle: int
    most: int
    least: int

    @classmethod
    def from_positions(cls, snapshot: GroupSnapshot, positions: IntArray) -> SnapshotPlacement:
        assigned = positions[positions != UNASSIGNED]
        loads = np.bincount(assigned, minlength=len(snapshot.members)).tolist()
        return cls(
            positions,
            snapshot.to_index_owners(positions),
            loads.count(0),
            max(loads, default=0),
            min(loads, default=0),
        )


def make_claims(problem: Problem, previous: IntArray) -> Claims:
    """Makes the claims of members on their previous partitions; all have the same generation."""
    rows = np.flatnonzero(previous != UNASSIGNED)
    rows = rows[np.argsort(previous[rows], kind="stable")]
    return Claims(
        partition=rows.astype(np.int32),
        member=previous[rows],
        subscribed=np.ones(len(rows), dtype=np.bool_),
        generation=np.zeros(len(problem.members), dtype=np.int32),
    )
