"""The sticky strategy of Kafka 2.3, written as a strategy of your own.

Kafka replaced this algorithm step by step: 2.4 moved it into a base class that the cooperative
strategy shares (KIP-429), and 2.6 gave groups with equal subscriptions a faster path (KAFKA-9987).
Articles on Kafka 2.x describe the version below; functions have the names of those articles.

    rota plan examples/orders.json --strategy examples.sticky_2x:Sticky2x --remove billing-2

The steps, on the leader of the group:

1. `prepopulate_current_assignments`: read from each member's user data what it owned.
2. `sort_partitions`: decide in which order partitions are looked at.
3. `balance`: give every free partition to the least loaded member that subscribes to it, then
   `perform_reassignments`: move single partitions from loaded members to members that have at
   least two fewer, until `is_balanced`. Undo the moves if `balance_score` is not better.

Where Java takes the order of a hash map, this code takes partitions by topic and number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import NamedTuple

import rota
from rota import TopicPartition

NO_GENERATION = -1


class Sticky2x(rota.PartitionAssignor):
    """Keeps loads even, and leaves partitions where they are if that keeps loads even."""

    name = "sticky-2x"

    def __init__(self) -> None:
        self._owned: list[TopicPartition] | None = None
        self._generation = NO_GENERATION

    def on_assignment(self, assignment: rota.Assignment, generation: int) -> None:
        """Remembers the assignment. Every member does so after every rebalance."""
        self._owned = list(assignment.partitions)
        self._generation = generation

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Tells the leader what this member owned. The protocol is eager, so the member has given
        up its partitions when it joins: only the strategy still knows them.
        """
        return None if self._owned is None else encode_user_data(self._owned, self._generation)

    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, rota.Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Runs on the leader only."""
        return _Rebalance(partitions, subscriptions).balance()


# User data, version 1 (KIP-341). All numbers are big-endian.
#
#   int32 number of topics, and for each topic:
#     int16 length of the name, the name in UTF-8
#     int32 number of partitions, int32 for each partition
#   int32 generation; version 0 (before Kafka 2.3) ends before it


def encode_user_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """Returns what a member owned, and in which generation it got it."""
    topics: dict[str, list[int]] = {}
    for topic, number in owned:
        topics.setdefault(topic, []).append(number)
    data = struct.pack(">i", len(topics))
    for topic, numbers in topics.items():
        name = topic.encode()
        data += struct.pack(f">h{len(name)}s", len(name), name)
        data += struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return data + struct.pack(">i", generation)


def decode_user_data(data: bytes | None) -> tuple[list[TopicPartition], int]:
    """Returns the owned partitions and their generation; nothing for bytes of another format."""
    at = 0

    def read(layout: str) -> tuple[int, ...]:
        nonlocal at
        values = struct.unpack_from(f">{layout}", data or b"", at)
        at += struct.calcsize(f">{layout}")
        return values

    owned = []
    try:
        for _ in range(*read("i")):
            name = bytes(read(f"{read('h')[0]}B")).decode()
            owned += [TopicPartition(name, number) for number in read(f"{read('i')[0]}i")]
        generation = NO_GENERATION if at == len(data or b"") else read("i")[0]
    except (struct.error, UnicodeDecodeError):
        return [], NO_GENERATION
    return owned, generation


class _Rebalance:
    """One run of the algorithm, with what it knows about the group."""

    def __init__(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, rota.Subscription]
    ) -> None:
        #: For each partition the members that subscribe to its topic.
        self.candidates = {
            tp: [member for member in subscriptions if tp.topic in subscriptions[member].topics]
            for tp in Sticky2x.all_partitions_sorted(partitions)
        }
        #: For each member the partitions that it may get.
        self.reachable: dict[str, set[TopicPartition]] = {
            member: {tp for tp in self.candidates if tp.topic in subscription.topics}
            for member, subscription in subscriptions.items()
        }
        #: For each member its partitions. It starts with the old ones and ends as the result.
        self.current: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
        self.owner: dict[TopicPartition, str] = {}
        #: The owner before the current one, where two members claim a partition.
        self.previous: dict[TopicPartition, str] = {}
        self.movements = PartitionMovements()
        #: No member owned anything: there is nothing to stick to.
        self.fresh = not self.prepopulate_current_assignments(subscriptions)

    def prepopulate_current_assignments(
        self, subscriptions: Mapping[str, rota.Subscription]
    ) -> bool:
        """Fills `current` from the members' user data. Returns whether there was any claim.

        A member that was away can claim what another owns by now. The claim with the highest
        generation counts, and the one below it is remembered in `previous`.
        """
        claims: dict[TopicPartition, dict[int, str]] = {}
        for member, subscription in subscriptions.items():
            owned, generation = decode_user_data(subscription.user_data)
            for tp in owned:
                claims.setdefault(tp, {}).setdefault(generation, member)
        for tp, by_generation in sorted(claims.items()):
            newest, *older = sorted(by_generation, reverse=True)
            if tp in self.reachable[by_generation[newest]]:  # else: topic or subscription is gone
                self._give(tp, by_generation[newest])
            if older:
                self.previous[tp] = by_generation[older[0]]
        return bool(claims)

    def sort_partitions(self) -> list[TopicPartition]:
        """Returns all partitions in the order in which they are assigned and moved.

        If all members subscribe to the same topics: one after the other from the most loaded
        member, partitions with a previous owner first, and partitions without an owner last.
        Otherwise, and in a new group: partitions with few candidates first.
        """
        if self.fresh or not self.are_subscriptions_identical():
            return sorted(self.candidates, key=lambda tp: (len(self.candidates[tp]), tp))
        left = {member: list(partitions) for member, partitions in self.current.items()}
        found: list[TopicPartition] = []
        while any(left.values()):
            most_loaded = max(left, key=lambda member: (len(left[member]), member))
            returnable = [tp for tp in left[most_loaded] if tp in self.previous]
            tp = (returnable or left[most_loaded])[0]
            left[most_loaded].remove(tp)
            found.append(tp)
        return found + [tp for tp in self.candidates if tp not in self.owner]

    def are_subscriptions_identical(self) -> bool:
        """Whether all members may get the same partitions."""
        reachable = list(self.reachable.values())
        return all(each == reachable[0] for each in reachable)

    def balance(self) -> dict[str, list[TopicPartition]]:
        """Returns the new assignment."""
        order = self.sort_partitions()
        nothing_owned = not self.owner
        for tp in order:
            if tp not in self.owner:
                self._give(tp, self._least_loaded(self.candidates[tp]))

        movable = [tp for tp in order if self.can_be_reassigned(tp)]
        taking_part = [m for m in self.current if self.can_participate_in_reassignment(m)]
        before = {member: list(partitions) for member, partitions in self.current.items()}
        moved = self.perform_reassignments(movable, taking_part)
        if moved and not nothing_owned:
            better = balance_score(self.current, taking_part) < balance_score(before, taking_part)
            return self.current if better else before
        return self.current

    def can_be_reassigned(self, tp: TopicPartition) -> bool:
        """Whether the partition could belong to another member, too."""
        return len(self.candidates[tp]) > 1

    def can_participate_in_reassignment(self, member: str) -> bool:
        """Whether the member could get a partition or give one away."""
        owned = self.current[member]
        return len(owned) < len(self.reachable[member]) or any(map(self.can_be_reassigned, owned))

    def perform_reassignments(self, movable: list[TopicPartition], taking_part: list[str]) -> bool:
        """Moves partitions until the group is balanced or no move helps. Returns whether a
        partition was moved.
        """
        moved = False
        modified = True
        while modified:
            modified = False
            for tp in movable:
                if self.is_balanced(taking_part):
                    break
                fewer = len(self.current[self.owner[tp]]) - 1
                lighter = [m for m in self.candidates[tp] if len(self.current[m]) < fewer]
                if lighter:
                    previous = self.previous.get(tp)
                    target = previous if previous in lighter else self._least_loaded(lighter)
                    self.reassign_partition(tp, target)
                    moved = modified = True
        return moved

    def is_balanced(self, taking_part: list[str]) -> bool:
        """Whether loads differ by one at most, or no member could get a partition of a member that
        has more.
        """
        loads = [len(self.current[member]) for member in taking_part]
        if not loads or max(loads) - min(loads) <= 1:
            return True
        return not any(
            len(self.current[member]) < len(self.current[self.owner[tp]])
            for member in taking_part
            for tp in self.reachable[member]
        )

    def reassign_partition(self, tp: TopicPartition, target: str) -> None:
        """Moves the partition to the target, or another one of its topic whose way back it is."""
        tp = self.movements.actual_partition_to_be_moved(tp, self.owner[tp], target)
        source = self.owner[tp]
        self.movements.move_partition(tp, source, target)
        self.current[source].remove(tp)
        self._give(tp, target)

    def _give(self, tp: TopicPartition, member: str) -> None:
        self.current[member].append(tp)
        self.owner[tp] = member

    def _least_loaded(self, members: Iterable[str]) -> str:
        return min(members, key=lambda member: (len(self.current[member]), member))


def balance_score(assignment: Mapping[str, list[TopicPartition]], members: list[str]) -> int:
    """Returns the sum of the differences between the loads of any two members: 0 is even."""
    loads = [len(assignment[member]) for member in members]
    return sum(abs(one - other) for one, other in combinations(loads, 2))


class ConsumerPair(NamedTuple):
    """The member that gives a partition away, and the member that gets it."""

    source: str
    target: str


class PartitionMovements:
    """The moves of one rebalance so far.

    If t-0 went from A to B, and now t-1 should go from B to A, then t-0 goes back instead: the
    loads are the same, and two moves less are made.
    """

    def __init__(self) -> None:
        self._pairs: dict[TopicPartition, ConsumerPair] = {}

    def move_partition(self, tp: TopicPartition, source: str, target: str) -> None:
        """Records a move. Two moves of one partition become one, or none if it is back."""
        first = self._pairs.pop(tp, ConsumerPair(source, target)).source
        if first != target:
            self._pairs[tp] = ConsumerPair(first, target)

    def actual_partition_to_be_moved(
        self, tp: TopicPartition, source: str, target: str
    ) -> TopicPartition:
        """Returns a partition of the same topic that moved the other way, or the partition."""
        if tp in self._pairs:
            source = self._pairs[tp].source
        back = ConsumerPair(target, source)
        return next(
            (each for each, pair in self._pairs.items() if (each.topic, pair) == (tp.topic, back)),
            tp,
        )
