"""A group and its topics as arrays: the input of every built-in strategy.

`Problem.from_group` makes one pass over the members. Partitions, members, topics and racks are
numbers from then on, and a strategy returns an array: for each partition the position of its owner.
Nothing here depends on the order in which members, topics or claims were listed.

A *claim* is a member's statement that it owns a partition. If several members claim a partition,
the claim of the highest generation counts if it is the only one of that generation; otherwise no
claim counts. A member without a generation has generation -1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rota.engine.formats.buffer import BoolArray
from rota.engine.formats.hashing import java_sort_key, sort_like_java
from rota.engine.model.member import NO_GENERATION, UNASSIGNED, OwnedPartitions, Subscription
from rota.engine.model.text import MAX_LISTED_NAMES, list_first_names
from rota.engine.model.topic import (
    Cluster,
    IntArray,
    PartitionNumbering,
    Partitions,
    TopicPartition,
)

LARGEST_TABLE = 2**24  # largest table of subscriptions and topics; larger ones are searched instead
NO_RACK = -1  # the rack of a member without one


def stated_ownership(subscription: Subscription) -> OwnedPartitions:
    generation = subscription.generation
    return OwnedPartitions(
        partitions=subscription.owned,
        generation=NO_GENERATION if generation is None else generation,
    )


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims on partitions that exist, one row each, sorted by (member, partition) and unique.
    Member ``member[i]`` says it owns partition number ``partition[i]``. If it no longer subscribes
    to the topic (``subscribed[i]`` is false), it may not keep the partition, yet until it revokes
    it no other member may get it in a cooperative rebalance. ``generation`` is by member.
    """

    partition: IntArray
    member: IntArray
    subscribed: BoolArray
    generation: IntArray

    def subscribed_rows(self) -> tuple[IntArray, IntArray]:
        if self.subscribed.all():
            return self.partition, self.member
        return self.partition[self.subscribed], self.member[self.subscribed]


@dataclass(frozen=True, kw_only=True)
class Racks:
    """Where members and replicas are, as numbers of racks: of each member (-1: unknown); ``sets``
    are distinct sets of racks, ``set_of_partition[p]`` the one of partition p.
    """

    names: tuple[str, ...]
    rack_of_member: IntArray
    sets: tuple[frozenset[int], ...]
    set_of_partition: IntArray

    @cached_property
    def set_has_rack(self) -> BoolArray:
        """``set_has_rack[s, r]``: rack r holds a replica of the partitions with rack set s."""
        table = np.zeros((len(self.sets), len(self.names)), dtype=np.bool_)
        for row, racks in enumerate(self.sets):
            table[row, list(racks)] = True
        return table


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A group and its topics, as arrays. ``layout`` numbers the partitions by topic name,
    ``members`` are in Java's order of ids. ``classes`` are the distinct sets of subscribed topics.
    ``subscriptions_identical``, the condition for Kafka's faster algorithm, also counts topics
    without metadata.
    """

    layout: PartitionNumbering
    members: tuple[str, ...]
    group_instance_ids: tuple[str | None, ...]
    class_of: IntArray
    classes: tuple[IntArray, ...]
    subscriptions_identical: bool
    claims: Claims
    racks: Racks | None
    skipped_topics: tuple[str, ...]
    notes: tuple[str, ...]

    @cached_property
    def subscribes(self) -> BoolArray:
        """``subscribes[c, t]``: members of class c subscribe to topic t."""
        table = np.zeros((len(self.classes), len(self.layout.topics)), dtype=np.bool_)
        for row, topics in enumerate(self.classes):
            table[row, topics] = True
        return table

    def is_subscribed(self, member: IntArray, partition: IntArray) -> BoolArray:
        """Returns, row by row, whether the member subscribes to the topic of the partition."""
        classes, topic = self.class_of[member], self.layout.topic_of[partition]
        topics = len(self.layout.topics)
        if len(self.classes) == 1:  # every topic of a layout has a subscriber
            return np.ones(len(classes), dtype=np.bool_)
        if len(self.classes) * topics <= LARGEST_TABLE:
            return self.subscribes[classes, topic]
        position = np.repeat(np.arange(len(self.classes)), [len(each) for each in self.classes])
        pairs = position * topics + np.concatenate(self.classes)
        wanted = classes * np.int64(topics) + topic
        found: BoolArray = pairs[np.searchsorted(pairs, wanted).clip(max=len(pairs) - 1)] == wanted
        return found

    def without_claims(self) -> Problem:
        """Returns the same problem without any claims, and without the notes about them."""
        return self.with_claims(_empty_claims(self.claims.generation), notes=())

    def with_claims(self, claims: Claims, notes: tuple[str, ...] | None = None) -> Problem:
        """Returns the same problem with other claims. No cached property depends on them."""
        made = object.__new__(Problem)
        notes = self.notes if notes is None else notes
        made.__dict__.update(self.__dict__, claims=claims, notes=notes)
        return made

    @classmethod
    def from_group(
        cls,
        cluster: Cluster,
        group: Mapping[str, Subscription],
        ownership: Callable[[Subscription], OwnedPartitions] = stated_ownership,
    ) -> Problem:
        """Builds the problem; ``ownership`` reads what a member owns from its subscription."""
        members = tuple(sort_like_java(group))
        subscriptions = [group[member] for member in members]
        listings: dict[tuple[str, ...], int] = {}
        listing_of = [listings.setdefault(s.topics, len(listings)) for s in subscriptions]
        asked = {frozenset(listing) for listing in listings}
        named = frozenset[str]().union(*asked)
        known = [topic for topic in named if cluster.partitions.get(topic, 0) > 0]
        topics = tuple(sorted(known, key=java_sort_key))
        layout = PartitionNumbering(topics, [cluster.partitions[topic] for topic in topics])
        class_of, classes = _group_members_by_topics(listings, listing_of, layout)
        skipped = tuple(sorted(named.difference(topics), key=java_sort_key))
        generation = [stated_ownership(one).generation for one in subscriptions]
        problem = cls(
            layout=layout,
            members=members,
            group_instance_ids=tuple(one.group_instance_id for one in subscriptions),
            class_of=class_of,
            classes=classes,
            subscriptions_identical=len(asked) <= 1,
            claims=_empty_claims(np.array(generation, dtype=np.int32)),
            racks=_read_racks(cluster, layout, subscriptions),
            skipped_topics=skipped,
            notes=tuple(
                f"topic {name!r} has no partitions: skipped"
                if name in cluster.partitions
                else f"topic {name!r} has no metadata: skipped"
                for name in skipped
            ),
        )
        if ownership is stated_ownership and not any(len(one.owned) for one in subscriptions):
            return problem
        claims, notes = _read_claims(problem, [ownership(each) for each in subscriptions])
        return problem.with_claims(claims, notes + problem.notes)


def _group_members_by_topics(
    listings: Iterable[tuple[str, ...]], listing_of: list[int], layout: PartitionNumbering
) -> tuple[IntArray, tuple[IntArray, ...]]:
    """Returns each member's class, and each class's topics, whatever the order of the input."""
    index: dict[tuple[int, ...], int] = {}
    class_at = [
        index.setdefault(
            tuple(sorted({layout.index[topic] for topic in listing if topic in layout.index})),
            len(index),
        )
        for listing in listings
    ]
    class_of = np.array([class_at[listing] for listing in listing_of], dtype=np.int32)
    return class_of, tuple(np.array(topics, dtype=np.int32) for topics in index)


def _read_claims(problem: Problem, owned: list[OwnedPartitions]) -> tuple[Claims, tuple[str, ...]]:
    """Returns the members' claims, and notes about claims that were dropped."""
    members, layout = problem.members, problem.layout
    generation = np.array([held.generation for held in owned], dtype=np.int32)
    unreadable = {at: [held.note] for at, held in enumerate(owned) if held.note is not None}
    notes = _describe_by_member(members, "user data", unreadable)
    partitions = [held.partitions for held in owned]
    partition, member, dropped = _number_claimed_partitions(partitions, layout)
    notes += _describe_by_member(members, "claims on partitions that do not exist dropped", dropped)
    subscribed = np.ones(len(partition), dtype=np.bool_)
    if len(partition):
        partition, member = _unique_rows(partition, member)
        subscribed = problem.is_subscribed(member, partition)
        topic = layout.topic_of[partition]
        foreign = _group_names_by_member(member[~subscribed], topic[~subscribed], layout.topics)
        what = "claims on topics it no longer subscribes to dropped"
        notes += _describe_by_member(members, what, foreign)
    return Claims(partition, member, subscribed, generation), tuple(notes)


def _empty_claims(generation: IntArray) -> Claims:
    none = np.empty(0, dtype=np.int32)
    flags = np.empty(0, dtype=np.bool_)
    return Claims(none, none, flags, generation)


def _describe_by_member(
    members: tuple[str, ...], what: str, found: Mapping[int, Sequence[str]]
) -> list[str]:
    """Returns a note for each of the first members, and one with the number of the others."""
    positions = sorted(found)
    shown = positions[:MAX_LISTED_NAMES]
    notes = [f"member {members[at]!r}: {what}: {list_first_names(found[at])}" for at in shown]
    if len(positions) > MAX_LISTED_NAMES:
        notes.append(f"{len(positions) - MAX_LISTED_NAMES} more members: {what}")
    return notes


def _group_names_by_member(
    member: IntArray, place: IntArray, names: Sequence[str]
) -> dict[int, list[str]]:
    pairs = np.unique(member * np.int64(max(len(names), 1)) + place).tolist()
    found: dict[int, list[str]] = {}
    for at, name in (divmod(pair, len(names)) for pair in pairs):
        found.setdefault(at, []).append(names[name])
    return found


def _number_claimed_partitions(
    owned: list[Partitions], layout: PartitionNumbering
) -> tuple[IntArray, IntArray, dict[int, list[str]]]:
    """Returns numbers and members of claimed partitions, and names of missing ones by member."""
    listings: dict[tuple[str, ...], int] = {}
    places: list[int] = []
    offsets = []
    for held in owned:
        offset = listings.get(held.names) if len(held) else 0
        if offset is None:
            offset = listings[held.names] = len(places)
            places += [layout.index.get(name, -1) for name in held.names]
        offsets.append(offset)
    if not places:
        return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32), {}
    sizes = [len(held) for held in owned]
    member = np.repeat(np.arange(len(owned), dtype=np.int32), sizes)
    named = np.concatenate([held.topic for held in owned]) + np.repeat(offsets, sizes)
    topic = np.array(places, dtype=np.int32)[named]
    numbers = np.concatenate([held.numbers for held in owned])
    # an unknown topic (-1) is compared with the last topic's count, but stays excluded
    exists = topic >= 0
    if len(layout.topics):
        exists &= (numbers >= 0) & (numbers < layout.counts[topic])
    dropped: dict[int, list[str]] = {}
    if not exists.all():
        names = [name for listing in listings for name in listing]
        gone = [column[~exists].tolist() for column in (member, named, numbers)]
        rows = [(at, names[name], number) for at, name, number in zip(*gone, strict=True)]
        for at, name, number in sorted(rows):
            dropped.setdefault(at, []).append(str(TopicPartition(name, number)))
        topic, numbers, member = topic[exists], numbers[exists], member[exists]
    # the largest number fits: a cluster has at most MAX_PARTITIONS
    return layout.starts.astype(np.int32)[topic] + numbers, member, dropped


def _unique_rows(partition: IntArray, member: IntArray) -> tuple[IntArray, IntArray]:
    """Returns the rows sorted by (member, partition), without duplicates."""
    same_member = member[1:] == member[:-1]
    if not (same_member & (partition[1:] <= partition[:-1])).any():
        return partition, member
    # one 64-bit key sorts ten times faster than two columns
    size = int(partition.max()) + 1
    key = member * np.int64(size) + partition
    key.sort()
    key = key[np.append(True, key[1:] != key[:-1])]
    return (key % size).astype(np.int32), (key // size).astype(np.int32)


def _read_racks(
    cluster: Cluster, layout: PartitionNumbering, subscriptions: list[Subscription]
) -> Racks | None:
    """None unless both a member and a replica have a rack."""
    if not any(subscription.rack for subscription in subscriptions):
        return None
    if not any(topic in cluster.racks for topic in layout.topics):
        return None
    listed: list[frozenset[str]] = []
    for topic, count in zip(layout.topics, layout.counts.tolist(), strict=True):
        racks = cluster.racks.get(topic)
        listed += [frozenset[str]()] * count if racks is None else [frozenset(r) for r in racks]
    names = sort_like_java({s.rack for s in subscriptions if s.rack}.union(*set(listed)))
    number = {name: position for position, name in enumerate(names)}
    sets: dict[frozenset[str], int] = {}
    set_of = np.array([sets.setdefault(racks, len(sets)) for racks in listed], dtype=np.int32)
    return Racks(
        names=tuple(names),
        rack_of_member=np.array(
            [number[s.rack] if s.rack else NO_RACK for s in subscriptions], dtype=np.int32
        ),
        sets=tuple(frozenset(number[rack] for rack in racks) for racks in sets),
        set_of_partition=set_of,
    )


def find_previous_owners(problem: Problem) -> IntArray:
    """Returns the previous owner of each partition if it still subscribes, otherwise -1."""
    partition, member = problem.claims.subscribed_rows()
    owners = np.full(problem.layout.size, UNASSIGNED, dtype=np.int32)
    contested = _find_contested(owners, partition, member)
    if contested is None:
        return owners
    partition, member = partition[contested], member[contested]
    owners[partition] = UNASSIGNED
    highest, alone = _find_latest(problem, partition, member)
    owners[partition[highest & alone]] = member[highest & alone]
    return owners


def _find_contested(owners: IntArray, partition: IntArray, member: IntArray) -> BoolArray | None:
    """Writes the claims into ``owners``; flags claims on contested partitions (None: no claim)."""
    owners[partition] = member
    overwritten = owners[partition] != member
    if not overwritten.any():
        return None
    several = np.zeros(len(owners), dtype=np.bool_)
    several[partition[overwritten]] = True
    return several[partition]


def _find_latest(
    problem: Problem, partition: IntArray, member: IntArray
) -> tuple[BoolArray, BoolArray]:
    """Flags each claim that has its partition's highest generation, and that has it alone."""
    generation = problem.claims.generation[member]
    top = np.full(problem.layout.size, np.iinfo(np.int32).min, dtype=np.int32)
    np.maximum.at(top, partition, generation)
    highest = generation == top[partition]
    holders = np.bincount(partition[highest], minlength=problem.layout.size)
    return highest, holders[partition] == 1


def find_owned_by_another(problem: Problem, owners: IntArray) -> BoolArray:
    """Flags partitions that a cooperative rebalance must not assign: another member owns them."""
    claims = problem.claims
    other = owners[claims.partition] != claims.member
    holders = np.full(problem.layout.size, UNASSIGNED, dtype=np.int32)
    contested = _find_contested(holders, claims.partition, claims.member)
    if contested is not None:
        highest, _ = _find_latest(problem, claims.partition[contested], claims.member[contested])
        other[contested] &= highest
    held = np.zeros(problem.layout.size, dtype=np.bool_)
    held[claims.partition[other]] = True
    return held


def sort_members_static_first(group_instance_ids: Sequence[str | None]) -> IntArray:
    """Returns the order in which Range and RoundRobin assign, as positions of members sorted by id:
    static members by group instance id, so that a restart under a new member id changes nothing,
    then the others. (kafka-python groups the unsorted list and loses members.)
    """
    ids = list(enumerate(group_instance_ids))
    static = sorted((java_sort_key(name), at) for at, name in ids if name is not None)
    dynamic = [at for at, name in ids if name is None]
    return np.array([at for _, at in static] + dynamic, dtype=np.int32)


class ConsumersPerTopic:
    """The member order, and each topic's subscribers in that order. Topics with the same
    subscribers form a kind, which is computed once: large groups have few kinds, often one.
    """

    def __init__(self, problem: Problem) -> None:
        self.member_order = sort_members_static_first(problem.group_instance_ids)
        self._class_by_place = problem.class_of[self.member_order]
        self._class_count = len(problem.classes)
        self._subscribers: dict[int, IntArray] = {}
        if len(problem.classes) <= 1:
            self.kind_of_topic = [0] * len(problem.layout.topics)
            self._classes = [np.zeros(1, dtype=np.int32)]
        else:
            kinds: dict[bytes, int] = {}
            keys = (classes.tobytes() for classes in find_classes_per_topic(problem))
            self.kind_of_topic = [kinds.setdefault(key, len(kinds)) for key in keys]
            self._classes = [np.frombuffer(kind, dtype=np.int32) for kind in kinds]

    def find_subscribers(self, kind: int) -> IntArray:
        """Returns the positions, in member order, of the subscribers to topics of this kind."""
        if kind not in self._subscribers:
            wants = np.zeros(self._class_count, dtype=np.bool_)
            wants[self._classes[kind]] = True
            places = np.flatnonzero(wants[self._class_by_place])
            self._subscribers[kind] = places.astype(np.int32)
        return self._subscribers[kind]


def find_classes_per_topic(problem: Problem) -> list[IntArray]:
    """Returns for each topic the classes of members that subscribe to it, ascending."""
    sizes = [len(topics) for topics in problem.classes]
    position = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    topic = np.concatenate(problem.classes)
    order = np.argsort(topic, kind="stable")
    bounds = np.searchsorted(topic[order], np.arange(1, len(problem.layout.topics)))
    return np.split(position[order], bounds)


def count_moves(previous: IntArray, owners: IntArray) -> int:
    """Counts partitions whose ``previous`` owner (-1: none) loses them but subscribes to them."""
    return int(np.count_nonzero((previous != owners) & (previous != UNASSIGNED)))
