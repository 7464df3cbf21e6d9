"""The columnar form in which every built-in strategy sees a group.

A strategy that works on it takes arrays and gives an array: for each partition the position of
its owner. Building it costs one pass over the members; nothing here depends on the order in which
members, topics or claims were listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rota.formats.javahash import java_key, java_sorted
from rota.model.membership import NO_GENERATION, Ownership, Subscription
from rota.model.topic import (
    EXAMPLES,
    Cluster,
    IntArray,
    Layout,
    Partitions,
    TopicPartition,
    first_few,
)

LARGEST_TABLE = 2**24
"""Up to so many pairs of subscription and topic are looked up in a table, more by search."""

BoolArray = npt.NDArray[np.bool_]


def stated(subscription: Subscription) -> Ownership:
    """Ownership as the subscription's own fields state it."""
    generation = subscription.generation
    return Ownership(
        partitions=subscription.owned,
        generation=NO_GENERATION if generation is None else generation,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Claims on partitions that exist, one row each: member ``member[i]`` says it owns
    partition number ``partition[i]``.

    ``subscribed[i]`` is false where the member no longer subscribes to that topic: it has no right
    to the partition, yet until it gives it up nobody else may be handed it cooperatively.
    Rows are sorted by (member, partition) and unique. ``generation`` has one entry a member.
    """

    partition: IntArray
    member: IntArray
    subscribed: BoolArray
    generation: IntArray


@dataclass(frozen=True, kw_only=True)
class Racks:
    """Where members and replicas are: rack names as small numbers.

    ``member[m]`` is the rack of a member, -1 unknown. ``sets`` are the distinct sets of racks that
    hold a partition's replicas, ``set_of[p]`` the one of partition p.
    """

    names: tuple[str, ...]
    member: IntArray
    sets: tuple[frozenset[int], ...]
    set_of: IntArray

    @cached_property
    def local(self) -> BoolArray:
        """``local[s, r]``: rack r holds a replica of the partitions with rack set s."""
        table = np.zeros((len(self.sets), len(self.names)), dtype=np.bool_)
        for row, racks in enumerate(self.sets):
            table[row, list(racks)] = True
        return table


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A group and its topics, as columns.

    ``layout`` numbers the partitions of every subscribed topic that has any, topics by name.
    ``members`` are in Java's order of ids. ``classes`` are the distinct sets of subscribed topics
    (positions, ascending) and ``class_of`` says which one each member has. ``equal`` is true where
    all members name the same topics, those without metadata included: the condition under which
    Kafka takes its faster path.
    """

    layout: Layout
    members: tuple[str, ...]
    static_ids: tuple[str | None, ...]
    class_of: IntArray
    classes: tuple[IntArray, ...]
    equal: bool
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

    def may_own(self, member: IntArray, partition: IntArray) -> BoolArray:
        """Row by row: does this member subscribe to the topic of this partition?"""
        classes, topic = self.class_of[member], self.layout.topic_of[partition]
        topics = len(self.layout.topics)
        if 1 < len(self.classes) <= LARGEST_TABLE // max(topics, 1):
            return self.subscribes[classes, topic]
        return _subscribing(self.classes, topics, classes, topic)

    def without_claims(self) -> Problem:
        """The same where nobody says what it owns."""
        none = np.empty(0, dtype=np.int32)
        claims = replace(self.claims, partition=none, member=none, subscribed=none.astype(np.bool_))
        return replace(self, claims=claims, notes=())

    def claimed(self, claims: Claims) -> Problem:
        """The same with other claims, and with all that was found out so far: none of that hangs
        on claims.
        """
        made = object.__new__(Problem)
        made.__dict__.update(self.__dict__, claims=claims)
        return made

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        group: Mapping[str, Subscription],
        ownership: Callable[[Subscription], Ownership] = stated,
    ) -> Problem:
        """The problem that this cluster and this group pose.

        ``ownership`` reads what a member owns out of its subscription: Sticky keeps it in user
        data, CooperativeSticky in fields.
        """
        members = tuple(java_sorted(group))
        subscriptions = [group[member] for member in members]
        listings: dict[tuple[str, ...], int] = {}
        listing_of = [listings.setdefault(s.topics, len(listings)) for s in subscriptions]
        asked = {frozenset(listing) for listing in listings}
        named = frozenset[str]().union(*asked)
        topics = tuple(sorted((t for t in named if cluster.partitions.get(t, 0) > 0), key=java_key))
        layout = Layout(topics, [cluster.partitions[topic] for topic in topics])
        class_of, classes = _classes(listings, listing_of, layout)
        skipped = tuple(sorted(named.difference(topics), key=java_key))
        claims, notes = _claims(members, subscriptions, layout, class_of, classes, ownership)
        return cls(
            layout=layout,
            members=members,
            static_ids=tuple(subscription.static_id for subscription in subscriptions),
            class_of=class_of,
            classes=classes,
            equal=len(asked) <= 1,
            claims=claims,
            racks=_racks(cluster, layout, subscriptions),
            skipped_topics=skipped,
            notes=notes + tuple(f"topic {name!r} has no metadata: skipped" for name in skipped),
        )


def _classes(
    listings: Iterable[tuple[str, ...]], listing_of: list[int], layout: Layout
) -> tuple[IntArray, tuple[IntArray, ...]]:
    """Members with the same set of topics share a class. Classes stand in order of appearance
    among the sorted members, so they do not depend on the input's order.
    """
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


def _subscribing(
    classes: tuple[IntArray, ...], topics: int, class_column: IntArray, topic_column: IntArray
) -> BoolArray:
    """Row by row: do members of this class subscribe to this topic?"""
    if len(classes) == 1:  # every topic of a layout has a subscriber
        return np.ones(len(class_column), dtype=np.bool_)
    if len(classes) * topics <= LARGEST_TABLE:
        table = np.zeros((len(classes), topics), dtype=np.bool_)
        for row, listed in enumerate(classes):
            table[row, listed] = True
        return table[class_column, topic_column]
    position = np.repeat(np.arange(len(classes)), [len(listed) for listed in classes])
    pairs = position * topics + np.concatenate(classes)
    wanted = class_column * np.int64(topics) + topic_column
    found: BoolArray = pairs[np.searchsorted(pairs, wanted).clip(max=len(pairs) - 1)] == wanted
    return found


def _claims(  # noqa: PLR0913, PLR0917 (columns of one table)
    members: tuple[str, ...],
    subscriptions: list[Subscription],
    layout: Layout,
    class_of: IntArray,
    classes: tuple[IntArray, ...],
    ownership: Callable[[Subscription], Ownership],
) -> tuple[Claims, tuple[str, ...]]:
    if ownership is stated and not any(len(one.owned) for one in subscriptions):
        return _no_claims(subscriptions), ()
    owned = [ownership(subscription) for subscription in subscriptions]
    generation = np.array([held.generation for held in owned], dtype=np.int32)
    unreadable = {at: [held.note] for at, held in enumerate(owned) if held.note is not None}
    notes = _notes(members, "user data", unreadable)
    partition, member_column, dropped = _numbered([held.partitions for held in owned], layout)
    notes += _notes(members, "claims on partitions that do not exist dropped", dropped)
    subscribed = np.ones(len(partition), dtype=np.bool_)
    if len(partition):
        partition, member_column = _unique_rows(partition, member_column)
        topic = layout.topic_of[partition]
        subscribed = _subscribing(classes, len(layout.topics), class_of[member_column], topic)
        foreign = _by_member(member_column[~subscribed], topic[~subscribed], layout.topics)
        notes += _notes(members, "claims on topics it no longer subscribes to dropped", foreign)
    claims = Claims(
        partition=partition, member=member_column, subscribed=subscribed, generation=generation
    )
    return claims, tuple(notes)


def _no_claims(subscriptions: list[Subscription]) -> Claims:
    none = np.empty(0, dtype=np.int32)
    told = [NO_GENERATION if one.generation is None else one.generation for one in subscriptions]
    return Claims(
        partition=none,
        member=none,
        subscribed=np.empty(0, dtype=np.bool_),
        generation=np.array(told, dtype=np.int32),
    )


def _notes(members: tuple[str, ...], what: str, found: Mapping[int, Sequence[str]]) -> list[str]:
    """What was found with each member: a few members by name, the others counted."""
    positions = sorted(found)
    shown = positions[:EXAMPLES]
    notes = [f"member {members[at]!r}: {what}: {first_few(found[at])}" for at in shown]
    if len(positions) > EXAMPLES:
        notes.append(f"{len(positions) - EXAMPLES} more members: {what}")
    return notes


def _by_member(member: IntArray, place: IntArray, names: Sequence[str]) -> dict[int, list[str]]:
    """The distinct names at these places, by member, in the order of the names."""
    pairs = np.unique(member * np.int64(max(len(names), 1)) + place).tolist()
    found: dict[int, list[str]] = {}
    for at, name in (divmod(pair, len(names)) for pair in pairs):
        found.setdefault(at, []).append(names[name])
    return found


def _numbered(
    owned: list[Partitions], layout: Layout
) -> tuple[IntArray, IntArray, dict[int, list[str]]]:
    """Claimed partitions as numbers, with their members; those that do not exist are left out and
    named, by member.
    """
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
    # an unknown topic (-1) borrows the last topic's count, and is masked out beside it
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
    """Rows sorted by (member, partition), each once: a member that lists a partition twice has
    one claim on it.
    """
    same_member = member[1:] == member[:-1]
    if not (same_member & (partition[1:] <= partition[:-1])).any():
        return partition, member
    # one 64-bit key sorts ten times faster than two columns
    size = int(partition.max()) + 1
    key = member * np.int64(size) + partition
    key.sort()
    key = key[np.append(True, key[1:] != key[:-1])]
    return (key % size).astype(np.int32), (key // size).astype(np.int32)


def _racks(cluster: Cluster, layout: Layout, subscriptions: list[Subscription]) -> Racks | None:
    """None unless both a member and a replica have a rack."""
    if not any(subscription.rack for subscription in subscriptions):
        return None
    if not any(topic in cluster.racks for topic in layout.topics):
        return None
    listed: list[frozenset[str]] = []
    for topic, count in zip(layout.topics, layout.counts.tolist(), strict=True):
        racks = cluster.racks.get(topic)
        listed += [frozenset[str]()] * count if racks is None else [frozenset(r) for r in racks]
    names = java_sorted({s.rack for s in subscriptions if s.rack}.union(*set(listed)))
    number = {name: position for position, name in enumerate(names)}
    sets: dict[frozenset[str], int] = {}
    set_of = np.array([sets.setdefault(racks, len(sets)) for racks in listed], dtype=np.int32)
    return Racks(
        names=tuple(names),
        member=np.array([number[s.rack] if s.rack else -1 for s in subscriptions], dtype=np.int32),
        sets=tuple(frozenset(number[rack] for rack in racks) for racks in sets),
        set_of=set_of,
    )
