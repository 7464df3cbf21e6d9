"""Reads a group's generations and partition owners from its journal records.

:class:`HistoryReader` takes the records in journal order and passes them to
:class:`ClassicGroupReader` (one GroupMetadata record is one generation),
:class:`ConsumerGroupReader` (KIP-848; the state is spread over many records, and each target
assignment is a generation) or :class:`ShareStreamsReader` (the same for share and streams groups).
All add to a :class:`HistoryBuilder`. The members of a consumer group reach their target one by one;
the :class:`OwnershipTracker` records their real partitions.

Records are ordered by offset, not by timestamp: clocks can go back. Records of one batch have
consecutive offsets, which distinguishes a conversion between group types from a deletion.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, is_
from typing import TypeAlias

from rota.engine.assignors import uniform
from rota.engine.formats import connect_protocol, consumer_protocol
from rota.engine.formats.hashing import hash_map_order
from rota.engine.history.client_settings import LibrarySigns, detect_library
from rota.engine.history.facts import (
    Generation,
    GenerationChange,
    GenerationMember,
    GroupType,
    JournalRecord,
    PartitionOwnership,
    PartitionsByTopic,
    member_identity,
)
from rota.engine.history.journal_window import (
    JournalWindow,
    find_compaction_edge,
    find_window,
    is_new_group,
    next_entry_in_batch,
)
from rota.engine.model import share_streams_entry as others
from rota.engine.model.consumer_group_entry import (
    STABLE,
    ConsumerGroupEntry,
    ConsumerGroupMetadataEntry,
    ConsumerGroupMetadataTombstone,
    CurrentAssignmentEntry,
    CurrentAssignmentTopic,
    CurrentMemberAssignmentEntry,
    CurrentMemberAssignmentTombstone,
    MemberMetadataEntry,
    MemberMetadataTombstone,
    PartitionMetadataEntry,
    PartitionMetadataTombstone,
    RegularExpressionEntry,
    RegularExpressionTombstone,
    TargetAssignmentMemberEntry,
    TargetAssignmentMemberTombstone,
    TargetAssignmentMetadataEntry,
    TargetAssignmentMetadataTombstone,
    TargetAssignmentTopic,
)
from rota.engine.model.journal_entry import (
    NO_TIMESTAMP,
    GroupMetadataEntry,
    GroupMetadataMember,
    GroupMetadataTombstone,
    JournalEntry,
    OffsetCommitEntry,
    OffsetCommitTombstone,
    UnparsedEntry,
)
from rota.engine.model.member import OwnedPartitions, Subscription
from rota.engine.model.request import CONSUMER_PROTOCOL_TYPE
from rota.engine.model.topic import Partitions
from rota.errors import FormatError

NO_OWNED_PARTITIONS: PartitionsByTopic = {}


@dataclass(slots=True)
class _OwnershipSpan:
    """Mutable: a journal has millions of them, and each one begins and ends."""

    owner: GenerationMember
    topic: str
    partition: int
    since: int
    from_generation: int
    to_generation: int
    until: int | None = None


class OwnershipTracker:
    """Records who owns which partition; a timestamp that goes back counts as the latest."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._now = 0
        self._owners: dict[str, GenerationMember] = {}
        self._owned: dict[str, PartitionsByTopic] = {}
        #: The last generation in which each member owned its partitions.
        self._generation: dict[str, int] = {}
        self._open: dict[tuple[str, int, str], _OwnershipSpan] = {}
        #: Ownership that ended at the current time; it may continue.
        self._ended: dict[tuple[str, int, str], _OwnershipSpan] = {}
        self._finished: list[_OwnershipSpan] = []

    def set_owned(
        self, member: GenerationMember, owned: PartitionsByTopic, at: int, generation: int
    ) -> None:
        """Sets the partitions that a member owns from now on."""
        self._advance_time(at)
        member_id = member.member_id
        previous = self._owned.get(member_id, NO_OWNED_PARTITIONS)
        self._owners[member_id] = member
        if previous is not owned and previous != owned:
            now, before = _to_pairs(owned), _to_pairs(previous)
            for topic, partition in sorted(before - now):
                self._end((topic, partition, member_id))
            for topic, partition in sorted(now - before):
                self._begin((topic, partition, member_id), generation)
        self._owned[member_id] = owned
        self._generation[member_id] = generation

    def keep_only(self, member_ids: Collection[str], at: int) -> None:
        """Ends the ownership of all other members."""
        for member_id in sorted(self._owned.keys() - member_ids):
            self.drop(member_id, at)

    def drop(self, member_id: str, at: int) -> None:
        self._advance_time(at)
        for topic, partition in sorted(_to_pairs(self._owned.pop(member_id, NO_OWNED_PARTITIONS))):
            self._end((topic, partition, member_id))

    def _advance_time(self, at: int) -> None:
        if at > self._now:
            self._now = at
            self._finished += (one for one in self._ended.values() if one.until != one.since)
            self._ended.clear()

    def _begin(self, key: tuple[str, int, str], generation: int) -> None:
        ended = self._ended.pop(key, None)
        if ended is not None:
            # revoked and assigned at the same time: the group was converted
            ended.until = None
            self._open[key] = ended
            return
        topic, partition, member_id = key
        self._open[key] = _OwnershipSpan(
            self._owners[member_id], topic, partition, self._now, generation, generation
        )

    def _end(self, key: tuple[str, int, str]) -> None:
        span = self._ended[key] = self._open.pop(key)
        span.until = self._now
        span.to_generation = self._generation[key[2]]

    def count_ended(self) -> int:
        return len(self._finished)

    def take_ended(self) -> list[PartitionOwnership]:
        """Returns and removes the ownership that has ended, by partition and time."""
        finished, self._finished = self._finished, []
        return self._make_rows(finished)

    def close_all(self) -> list[PartitionOwnership]:
        """Returns the remaining ownership; if it continues, ``until`` is None."""
        ended = (one for one in self._ended.values() if one.until != one.since)
        for (_, _, member_id), span in self._open.items():
            span.to_generation = self._generation[member_id]
        return self._make_rows([*self._finished, *ended, *self._open.values()])

    def _make_rows(self, spans: list[_OwnershipSpan]) -> list[PartitionOwnership]:
        spans.sort(key=attrgetter("topic", "partition", "since", "owner.member_id"))
        return [
            PartitionOwnership(
                group=self._group,
                topic=span.topic,
                partition=span.partition,
                member_id=span.owner.member_id,
                client_id=span.owner.client_id,
                client_host=span.owner.client_host,
                group_instance_id=span.owner.group_instance_id,
                since=span.since,
                until=span.until,
                from_generation=span.from_generation,
                to_generation=span.to_generation,
            )
            for span in spans
        ]


def _to_pairs(by_topic: PartitionsByTopic) -> set[tuple[str, int]]:
    return {(topic, partition) for topic, numbers in by_topic.items() for partition in numbers}


_GENERATION_NUMBERS = 2**32


class HistoryBuilder:
    """Collects a group's generations and partition ownership while its records are read."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._generations: list[Generation] = []
        self.ownership = OwnershipTracker(group)
        self.incarnation = 0
        #: The last generation of this incarnation.
        self.last: Generation | None = None

    def add_generation(self, generation: Generation) -> None:
        self._generations.append(generation)
        self.last = generation

    def take_generations(self) -> list[Generation]:
        """Returns and removes the generations that were added."""
        generations, self._generations = self._generations, []
        return generations

    def start_new_incarnation(self, at: int) -> None:
        """Starts with an empty group of the same name: generations begin again."""
        self.ownership.keep_only((), at)
        if self.last is not None:
            self.incarnation += 1
            self.last = None

    def delete_group(self, record: JournalRecord, kind: GroupType) -> None:
        """Records the deletion of the group, if it has a generation."""
        if self.last is not None:
            self.add_generation(
                Generation(
                    group=self.group,
                    kind=kind,
                    incarnation=self.incarnation,
                    generation=self.last.generation,
                    change=GenerationChange.DELETED,
                    at=record.at,
                    offset=record.offset,
                    protocol_type=self.last.protocol_type,
                )
            )
        self.start_new_incarnation(record.at)


def generation_distance(number: int, other: int) -> int:
    """Returns how far a generation number is ahead of another; 32-bit numbers wrap around."""
    distance = (number - other) % _GENERATION_NUMBERS
    return distance if distance < _GENERATION_NUMBERS // 2 else distance - _GENERATION_NUMBERS


CONNECT_PROTOCOL_TYPE = "connect"
LIBRARY_CACHE_SIZE = 10_000  # number of members whose libraries are cached
STICKY_STRATEGY, COOPERATIVE_STRATEGY = "sticky", "cooperative-sticky"


class ClassicGroupReader:
    def __init__(self, builder: HistoryBuilder) -> None:
        self._builder = builder
        self._strategy = ""
        #: Saved and decoded members of the last generation. An unchanged member is reused.
        self._decoded: dict[str, tuple[GroupMetadataMember, GenerationMember]] = {}
        #: Decoded assignments of the last generation by their bytes.
        self._assigned: dict[bytes, PartitionsByTopic | FormatError] = {}
        self._libraries: dict[LibrarySigns, str | None] = {}

    def read_entry(
        self, record: JournalRecord, entry: GroupMetadataEntry, *, converted: bool
    ) -> None:
        """:param converted: whether the entry replaces a consumer group"""
        builder, last = self._builder, self._builder.last
        if last is not None and not _continues_incarnation(last, entry, converted=converted):
            # the tombstone is missing, but this entry cannot follow that generation
            builder.start_new_incarnation(record.at)
        change = _generation_change(entry, builder.last, converted=converted)
        generation = Generation(
            group=builder.group,
            kind=GroupType.CLASSIC,
            incarnation=builder.incarnation,
            generation=entry.generation,
            change=change,
            at=record.at,
            state_at=None if entry.state_timestamp == NO_TIMESTAMP else entry.state_timestamp,
            offset=record.offset,
            protocol_type=entry.protocol_type,
            strategy=entry.protocol,
            leader=entry.leader,
            members=self.decode_members(entry),
        )
        builder.add_generation(generation)
        builder.ownership.keep_only({member.member_id for member in generation.members}, record.at)
        for member in generation.members:
            builder.ownership.set_owned(member, member.assigned, record.at, entry.generation)

    def decode_members(self, entry: GroupMetadataEntry) -> tuple[GenerationMember, ...]:
        """Returns the members of a generation, sorted by member id."""
        saved = sorted(entry.members, key=lambda member: member.member_id)
        if entry.protocol_type == CONNECT_PROTOCOL_TYPE:
            return tuple(map(_make_connect_worker, saved))
        if entry.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return tuple(_make_member(one) for one in saved)
        strategy = entry.protocol or ""
        known = self._decoded if strategy == self._strategy else {}
        unchanged = [
            pair[1] if (pair := known.get(one.member_id)) and pair[0] == one else None
            for one in saved
        ]
        new = [one for one, old in zip(saved, unchanged, strict=True) if old is None]
        decoded = consumer_protocol.decode_subscriptions(
            [(one.subscription, one.group_instance_id) for one in new]
        )
        decoded_members = (
            self._decode_member(entry.group, strategy, *piece)
            for piece in zip(new, decoded, _decode_owned(strategy, decoded), strict=True)
        )
        members = tuple([next(decoded_members) if old is None else old for old in unchanged])
        # data of members that left is dropped, because a group can exist for years
        self._strategy = strategy
        self._decoded = {pair[0].member_id: pair for pair in zip(saved, members, strict=True)}
        self._assigned = {data: self._assigned[data] for one in saved if (data := one.assignment)}
        if len(self._libraries) > LIBRARY_CACHE_SIZE:
            self._libraries.clear()
        return members

    def _decode_member(
        self,
        group: str,
        strategy: str,
        saved: GroupMetadataMember,
        decoded: Subscription | FormatError,
        owned: OwnedPartitions | None,
    ) -> GenerationMember:
        assigned = self._decode_assignment(saved.assignment)
        problems = [str(one) for one in (decoded, assigned) if isinstance(one, FormatError)]
        if owned is not None and owned.note is not None:
            problems.append(owned.note)
        subscription = None if isinstance(decoded, FormatError) else decoded
        signs = LibrarySigns(
            group=group,
            client_id=saved.client_id,
            group_instance_id=saved.group_instance_id,
            strategy=strategy,
            version=None if subscription is None else int.from_bytes(saved.subscription[:2], "big"),
            user_data=None if subscription is None else subscription.user_data,
        )
        generation = None if owned is None or owned.generation < 0 else owned.generation
        return _make_member(
            saved,
            rack=None if subscription is None else subscription.rack,
            topics=() if subscription is None else subscription.topics,
            owned=NO_OWNED_PARTITIONS if owned is None else group_by_topic(owned.partitions),
            owned_generation=generation,
            assigned=NO_OWNED_PARTITIONS if isinstance(assigned, FormatError) else assigned,
            library=self._find_library(signs),
            problem="; ".join(problems) or None,
        )

    def _find_library(self, signs: LibrarySigns) -> str | None:
        if signs not in self._libraries:
            self._libraries[signs] = detect_library(signs)
        return self._libraries[signs]

    def _decode_assignment(self, data: bytes) -> PartitionsByTopic | FormatError:
        """Decodes an assignment; it has no bytes if the leader assigned nothing."""
        if not data:
            return NO_OWNED_PARTITIONS
        assignment = self._assigned.get(data)
        if assignment is None:
            try:
                assignment = group_by_topic(consumer_protocol.decode_assignment(data).partitions)
            except FormatError as error:
                assignment = error
            self._assigned[data] = assignment
        return assignment


def _continues_incarnation(last: Generation, entry: GroupMetadataEntry, *, converted: bool) -> bool:
    """Whether an entry continues the incarnation: numbers rise, or repeat for a static member."""
    gain = generation_distance(entry.generation, last.generation)
    if gain or converted:
        return gain >= 0 and not is_new_group(entry)
    return set(map(member_identity, last.members)) == set(map(member_identity, entry.members))


def group_by_topic(partitions: Partitions | Iterable[tuple[str, int]]) -> PartitionsByTopic:
    """Groups partitions by topic, sorted, without duplicates."""
    if isinstance(partitions, Partitions):
        if not len(partitions):
            return NO_OWNED_PARTITIONS
        numbers = partitions.numbers
        if len(partitions.names) == 1 and bool((numbers[1:] > numbers[:-1]).all()):
            return {partitions.names[0]: tuple(numbers.tolist())}
        by_topic: Mapping[str, Sequence[int]] = partitions.by_topic()
    else:
        by_topic = _group_pairs(partitions)
    return {topic: tuple(sorted(set(by_topic[topic]))) for topic in sorted(by_topic)}


def _group_pairs(pairs: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in pairs:
        by_topic.setdefault(topic, []).append(partition)
    return by_topic


def _generation_change(
    entry: GroupMetadataEntry, last: Generation | None, *, converted: bool
) -> GenerationChange:
    if is_new_group(entry):
        return GenerationChange.CREATED
    if converted:
        return GenerationChange.CONVERTED
    if last is not None and last.generation == entry.generation:
        return GenerationChange.REPLACED
    return GenerationChange.REBALANCED if entry.members else GenerationChange.EMPTIED


def _decode_owned(
    strategy: str, decoded: Sequence[Subscription | FormatError]
) -> list[OwnedPartitions | None]:
    """Decodes owned partitions: sticky sends them as user data, others in the subscription."""
    owned: list[OwnedPartitions | None] = [
        None if isinstance(one, FormatError) else _owned_in_subscription(strategy, one)
        for one in decoded
    ]
    if strategy == STICKY_STRATEGY:
        with_data = {
            position: one.user_data
            for position, one in enumerate(decoded)
            if isinstance(one, Subscription) and one.user_data
        }
        claims = consumer_protocol.decode_all_sticky_user_data(list(with_data.values()))
        for position, claim in zip(with_data, claims, strict=True):
            owned[position] = claim
    return owned


def _owned_in_subscription(strategy: str, decoded: Subscription) -> OwnedPartitions:
    generation = decoded.generation
    if generation is None and strategy == COOPERATIVE_STRATEGY and decoded.user_data:
        generation, _ = consumer_protocol.decode_cooperative_user_data(decoded.user_data)
    known = -1 if generation is None else generation
    return OwnedPartitions(partitions=decoded.owned, generation=known)


def _make_member(saved: GroupMetadataMember, **fields: object) -> GenerationMember:
    return GenerationMember(
        member_id=saved.member_id,
        group_instance_id=saved.group_instance_id,
        client_id=saved.client_id,
        client_host=saved.client_host,
        session_timeout=saved.session_timeout,
        rebalance_timeout=saved.rebalance_timeout,
        **fields,  # type: ignore[arg-type]
    )


def _make_connect_worker(saved: GroupMetadataMember) -> GenerationMember:
    subscription = assignment = problem = None
    try:  # a redacted member has no bytes
        if saved.subscription:
            subscription = connect_protocol.decode_connect_subscription(saved.subscription)
        if saved.assignment:
            assignment = connect_protocol.decode_connect_assignment(saved.assignment)
    except FormatError as error:
        problem = str(error)
    work = connect_protocol.list_connect_work(subscription, assignment)
    return _make_member(saved, work=work, problem=problem)


STATIC_LEAVE_EPOCH = -2  # the epoch of a static member that left and may come back
NO_SUBSCRIPTION_PROBLEM = "its subscription is not in the evidence"
#: Kafka's names of group states.
EMPTY_STATE, STABLE_STATE, DEAD_STATE = "Empty", "Stable", "Dead"
ASSIGNING_STATE, RECONCILING_STATE = "Assigning", "Reconciling"
ACTIVE_TASK = "active"  # word for a task that processes records; others keep copies
ShareStreamsMember: TypeAlias = others.ShareMemberMetadataEntry | others.StreamsMemberMetadataEntry


class ModernGroupReader:
    """Reads the generations of a group whose broker assigns: each target assignment is one."""

    kind: GroupType
    protocol_type: str
    _members: Mapping[str, object]  # by member
    _targets: Mapping[str, object]
    _current: Mapping[str, CurrentAssignmentEntry]

    def __init__(self, builder: HistoryBuilder, names: Mapping[bytes, str]) -> None:
        """:param names: topic names by topic id"""
        self._builder = builder
        self._names = names
        #: The entries read so far were compacted: they do not show single generations.
        self.is_compacted = False
        self.clear()

    def clear(self) -> None:
        """Starts with an empty group."""
        self._epoch: tuple[JournalRecord, int] | None = None
        self._target: tuple[JournalRecord, int] | None = None
        #: A member had a target since the group was last empty.
        self._had_targets = False

    @property
    def state(self) -> str:
        """Kafka's name of the group's state."""
        if not self._members:
            return DEAD_STATE if self._epoch is None else EMPTY_STATE
        if self.kind is GroupType.SHARE:
            return STABLE_STATE
        target = None if self._target is None else self._target[1]
        if target is None or (self._epoch is not None and self._epoch[1] != target):
            return ASSIGNING_STATE
        current = (self._current.get(member_id) for member_id in self._members)
        if all(one is not None and (one.epoch, one.state) == (target, STABLE) for one in current):
            return STABLE_STATE
        return RECONCILING_STATE

    def settle_compacted(self) -> None:
        """Adds one generation for all compacted entries: together they give the group's state."""
        self.is_compacted = False
        if self._target is not None and self._targets:
            self._save(GenerationChange.REBALANCED, *self._target)
        elif self._epoch is not None and not self._members:
            self._save(GenerationChange.EMPTIED, *self._epoch)

    def _read_epoch(self, record: JournalRecord, epoch: int) -> None:
        self._epoch = record, epoch
        if self._had_targets and not self._members and not self._targets:
            self._had_targets = False
            if not self.is_compacted:
                self._save(GenerationChange.EMPTIED, record, epoch)

    def _save(self, change: GenerationChange, record: JournalRecord, number: int) -> None:
        epoch, last = self._epoch, self._builder.last
        same = change in {GenerationChange.REPLACED, GenerationChange.CONVERTED}
        if last is not None and generation_distance(number, last.generation) < (0 if same else 1):
            # epochs only grow in a group's incarnation
            self._builder.start_new_incarnation(record.at)
        self._builder.add_generation(
            Generation(
                group=self._builder.group,
                kind=self.kind,
                incarnation=self._builder.incarnation,
                generation=number,
                change=change,
                at=record.at,
                state_at=epoch[0].at if epoch is not None and epoch[1] == number else None,
                offset=record.offset,
                protocol_type=self.protocol_type,
                strategy=self._strategy() if self._targets else None,
                members=tuple(self._member(member_id) for member_id in sorted(self._targets)),
            )
        )

    def _group_by_topic_name(
        self, topics: Iterable[TargetAssignmentTopic | CurrentAssignmentTopic]
    ) -> PartitionsByTopic:
        return group_by_topic(
            (self._names.get(topic.topic_id) or format_topic_id(topic.topic_id), partition)
            for topic in topics
            for partition in topic.partitions
        )

    def _strategy(self) -> str | None:
        return None

    def _member(self, member_id: str) -> GenerationMember:
        raise NotImplementedError


class ConsumerGroupReader(ModernGroupReader):
    """Reads the generations of a consumer group (KIP-848)."""

    kind = GroupType.CONSUMER
    protocol_type = CONSUMER_PROTOCOL_TYPE

    def __init__(self, builder: HistoryBuilder, names: Mapping[bytes, str]) -> None:
        super().__init__(builder, names)
        #: Later memberships by member: compaction may remove the one before.
        self.later_memberships: dict[str, MemberMetadataEntry] = {}

    def clear(self) -> None:
        super().clear()
        #: The group was a classic one, and its next target repeats the members' partitions.
        self.converted = False
        self._members: dict[str, MemberMetadataEntry] = {}
        self._targets: dict[str, PartitionsByTopic] = {}
        self._current: dict[str, CurrentMemberAssignmentEntry] = {}
        self._regexes: dict[str, tuple[str, ...]] = {}
        #: Static ids whose member left, with no new epoch since.
        self._vacant: set[str] = set()
        #: Members that returned under a vacant static id and have no target yet.
        self._replacing: set[str] = set()
        #: Decoded members with their input: most do not change in the next generation.
        self._decoded: dict[str, tuple[tuple[object, ...], GenerationMember]] = {}

    def read_entry(self, record: JournalRecord, entry: ConsumerGroupEntry) -> None:  # noqa: C901, PLR0912 (one case each)
        """Reads an entry of the group other than its tombstone."""
        match entry:
            case MemberMetadataEntry():
                if entry.group_instance_id in self._vacant:
                    self._replacing.add(entry.member_id)
                self._members[entry.member_id] = entry
            case MemberMetadataTombstone():
                gone = self._members.pop(entry.member_id, None)
                if gone is not None and gone.group_instance_id is not None:
                    self._vacant.add(gone.group_instance_id)
            case ConsumerGroupMetadataEntry():
                self._vacant.clear()
                self._replacing.clear()
                self._read_epoch(record, entry.epoch)
            case TargetAssignmentMemberEntry():
                self._targets[entry.member_id] = self._group_by_topic_name(entry.topics)
                self._had_targets = True
                if entry.member_id in self._replacing:  # a static member returned
                    self._replacing.discard(entry.member_id)
                    if self._target is not None and not self.is_compacted:
                        self._save(GenerationChange.REPLACED, record, self._target[1])
            case TargetAssignmentMemberTombstone():
                self._targets.pop(entry.member_id, None)
            case TargetAssignmentMetadataEntry():
                self._read_target(record, entry)
            case CurrentMemberAssignmentEntry():
                self._current[entry.member_id] = entry
                self._set_owned(record, entry)
            case CurrentMemberAssignmentTombstone():
                self._current.pop(entry.member_id, None)
                self._builder.ownership.drop(entry.member_id, record.at)
            case RegularExpressionEntry():
                self._regexes[entry.regex] = entry.topics
            case RegularExpressionTombstone():
                self._regexes.pop(entry.regex, None)
            case (
                PartitionMetadataEntry()
                | PartitionMetadataTombstone()
                | TargetAssignmentMetadataTombstone()
                | ConsumerGroupMetadataTombstone()
            ):
                pass  # topic names are known, and tombstones come with the group's end

    def _read_target(self, record: JournalRecord, entry: TargetAssignmentMetadataEntry) -> None:
        self._target = record, entry.epoch
        converted, self.converted = self.converted, False
        if self.is_compacted:
            return
        change = GenerationChange.CONVERTED if converted else GenerationChange.REBALANCED
        self._save(change, record, entry.epoch)
        if converted:  # members that left while the classic group was rebalancing are dropped
            self._builder.ownership.keep_only(self._members.keys(), record.at)

    def _set_owned(self, record: JournalRecord, entry: CurrentMemberAssignmentEntry) -> None:
        epoch = entry.epoch if entry.epoch > 0 or self._target is None else self._target[1]
        member, owned = self._member(entry.member_id), self._owned(entry)
        self._builder.ownership.set_owned(member, owned, record.at, epoch)

    def _strategy(self) -> str:
        """The strategy of most members; among equals the first in a ``HashMap``, as in Kafka."""
        votes = Counter(one.assignor for one in self._members.values() if one.assignor)
        if not votes:
            return uniform.DEFAULT_SERVER_ASSIGNOR
        names = sorted(votes)
        return max((names[place] for place in hash_map_order(names)), key=votes.__getitem__)

    def _member(self, member_id: str) -> GenerationMember:
        saved = self._members.get(member_id) or self.later_memberships.get(member_id)
        target = self._targets.get(member_id, NO_OWNED_PARTITIONS)
        if saved is None:
            return GenerationMember(
                member_id=member_id, assigned=target, problem=NO_SUBSCRIPTION_PROBLEM
            )
        current = self._current.get(member_id)
        matched = self._regexes.get(saved.regex or "", ())
        source = (saved, target, current, matched)
        known = self._decoded.get(member_id)
        if known is not None and all(map(is_, known[0], source)):
            return known[1]
        decoded = self._build_member(saved, target, current, matched)
        self._decoded[member_id] = source, decoded
        return decoded

    def _build_member(
        self,
        saved: MemberMetadataEntry,
        target: PartitionsByTopic,
        current: CurrentMemberAssignmentEntry | None,
        matched: tuple[str, ...],
    ) -> GenerationMember:
        classic = saved.classic if uses_classic_protocol(saved) else None
        return GenerationMember(
            member_id=saved.member_id,
            group_instance_id=saved.group_instance_id,
            client_id=saved.client_id,
            client_host=saved.client_host,
            session_timeout=None if classic is None else classic.session_timeout,
            rebalance_timeout=saved.rebalance_timeout,
            rack=saved.rack,
            topics=tuple(sorted({*saved.topics, *matched})),
            owned=self._owned(current),
            owned_generation=None if current is None or current.epoch < 1 else current.epoch,
            assigned=target,
            library=detect_library(
                LibrarySigns(
                    group=saved.group,
                    client_id=saved.client_id,
                    group_instance_id=saved.group_instance_id,
                )
            ),
        )

    def _owned(self, current: CurrentMemberAssignmentEntry | None) -> PartitionsByTopic:
        """Returns owned partitions: a member owns a partition until it confirms its revocation."""
        if current is None or current.epoch == STATIC_LEAVE_EPOCH:
            return NO_OWNED_PARTITIONS
        return self._group_by_topic_name((*current.assigned, *current.revoking))


class ShareStreamsReader(ModernGroupReader):
    """Reads the generations of a share group or of a streams group. Its members own no partitions:
    several members read a partition, or tasks are assigned.
    """

    def __init__(
        self, builder: HistoryBuilder, kind: GroupType, names: Mapping[bytes, str]
    ) -> None:
        super().__init__(builder, names)
        self.kind, self.protocol_type = kind, str(kind)
        self.later_memberships: dict[str, ShareStreamsMember] = {}

    def clear(self) -> None:
        super().clear()
        self._members: dict[str, ShareStreamsMember] = {}
        self._targets: dict[str, tuple[str, ...]] = {}
        self._current: dict[str, CurrentAssignmentEntry] = {}
        #: The topics that a streams group reads.
        self._sources: tuple[str, ...] = ()

    def read_entry(
        self, record: JournalRecord, entry: others.ShareRecord | others.StreamsRecord
    ) -> None:
        """Reads an entry of the group other than its tombstone."""
        match entry:
            case others.ShareMemberMetadataEntry() | others.StreamsMemberMetadataEntry():
                self._members[entry.member_id] = entry
            case MemberMetadataTombstone():
                self._members.pop(entry.member_id, None)
            case ConsumerGroupMetadataEntry():
                self._read_epoch(record, entry.epoch)
            case (
                others.ShareTargetAssignmentMemberEntry()
                | others.StreamsTargetAssignmentMemberEntry()
            ):
                self._targets[entry.member_id] = self._work(entry)
                self._had_targets = True
            case TargetAssignmentMemberTombstone():
                self._targets.pop(entry.member_id, None)
            case TargetAssignmentMetadataEntry():
                self._target = record, entry.epoch
                if not self.is_compacted:
                    self._save(GenerationChange.REBALANCED, record, entry.epoch)
            case CurrentAssignmentEntry():
                self._current[entry.member_id] = entry
            case others.StreamsTopologyEntry():
                self._sources = _source_topics(entry)
            case _:
                pass  # topic names are known, and other tombstones change nothing

    def _work(
        self,
        target: others.ShareTargetAssignmentMemberEntry | others.StreamsTargetAssignmentMemberEntry,
    ) -> tuple[str, ...]:
        """Returns what a member is assigned, in words."""
        if isinstance(target, others.ShareTargetAssignmentMemberEntry):
            partitions = self._group_by_topic_name(target.topics)
            return tuple(f"{topic}-{one}" for topic in partitions for one in partitions[topic])
        kinds = {ACTIVE_TASK: target.active, "standby": target.standby, "warm-up": target.warmup}
        return tuple(
            f"task {tasks.subtopology}_{partition} {kind}"
            for kind, listed in kinds.items()
            for tasks in sorted(listed, key=attrgetter("subtopology"))
            for partition in sorted(tasks.partitions)
        )

    def _member(self, member_id: str) -> GenerationMember:
        saved = self._members.get(member_id) or self.later_memberships.get(member_id)
        work = self._targets[member_id]
        if saved is None:
            return GenerationMember(member_id=member_id, work=work, problem=NO_SUBSCRIPTION_PROBLEM)
        member = GenerationMember(
            member_id=member_id,
            client_id=saved.client_id,
            client_host=saved.client_host,
            rack=saved.rack,
            work=work,
        )
        if isinstance(saved, others.ShareMemberMetadataEntry):
            return replace(member, topics=tuple(sorted(saved.topics)))
        return replace(
            member,
            group_instance_id=saved.group_instance_id,
            rebalance_timeout=saved.rebalance_timeout,
            topics=self._sources,
        )


def _source_topics(topology: others.StreamsTopologyEntry) -> tuple[str, ...]:
    """Returns the topics that a topology reads; none if a pattern names some of them."""
    if any(one.source_regexes for one in topology.subtopologies):
        return ()
    topics = {topic for one in topology.subtopologies for topic in one.source_topics}
    topics |= {each.topic for one in topology.subtopologies for each in one.repartition_sources}
    return tuple(sorted(topics))


def uses_classic_protocol(saved: MemberMetadataEntry) -> bool:
    """Returns whether a member of a consumer group uses the classic protocol."""
    return saved.classic is not None and bool(saved.classic.protocols)


def format_topic_id(topic_id: bytes) -> str:
    """Formats a topic id as Kafka's tools do."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHistory:
    generations: list[Generation]
    ownership: list[PartitionOwnership]  # consumer group: real partitions, not targets
    window: JournalWindow | None  # complete part of the journal; None: never had members


def read_history(
    group: str, records: Iterable[JournalRecord], topic_names: Mapping[bytes, str]
) -> GroupHistory:
    """Reads a group's history from its records in journal order, with names by topic id."""
    reader = HistoryReader(group, topic_names)
    made = list(reader.generations(records))
    return GroupHistory(generations=made, ownership=reader.take_remaining(), window=reader.window)


def read_generations(
    group: str, records: Iterable[JournalRecord], topic_names: Mapping[bytes, str]
) -> list[Generation]:
    return list(HistoryReader(group, topic_names).generations(records))


def _named_topics(entry: JournalEntry) -> Iterator[tuple[bytes, str]]:
    match entry:
        case PartitionMetadataEntry():
            yield from ((one.topic_id, one.topic) for one in entry.topics)
        case others.ShareStatePartitionMetadataEntry():
            yield from ((one.topic_id, one.topic) for one in entry.deleting)
            known = (*entry.initializing, *entry.initialized)
            yield from ((one.topic_id, one.topic) for one in known)
        case _:
            pass


class HistoryReader:
    """Reads a group's journal step by step, as it may not fit into memory: only records of a
    consumer group are kept, because later records may name a member or a topic.
    """

    def __init__(self, group: str, topic_names: Mapping[bytes, str]) -> None:
        #: The window of the journal, after all records were read.
        self.window: JournalWindow | None = None
        self._builder = HistoryBuilder(group)
        self._names = dict(topic_names)
        self._classic = ClassicGroupReader(self._builder)
        self._consumer_group = ConsumerGroupReader(self._builder, self._names)
        self._share_group = ShareStreamsReader(self._builder, GroupType.SHARE, self._names)
        self._streams_group = ShareStreamsReader(self._builder, GroupType.STREAMS, self._names)
        #: The group's first and last record, without commits.
        self.first: JournalRecord | None = None
        self.last: JournalRecord | None = None
        #: The group's records that were not processed yet, without commits.
        self._records: list[JournalRecord] = []
        #: Whether the next entry replaces a consumer group.
        self._converted = False

    def generations(self, records: Iterable[JournalRecord]) -> Iterator[Generation]:
        is_classic = True
        for record in records:
            match record.entry:
                case OffsetCommitEntry(topic=topic, topic_id=topic_id):
                    if topic_id is not None:
                        self._names.setdefault(topic_id, topic)
                    continue
                case OffsetCommitTombstone() | UnparsedEntry():
                    continue
                case GroupMetadataEntry() | GroupMetadataTombstone():
                    pass
                case entry:
                    is_classic = False
                    self._names.update(_named_topics(entry))
            self.first = self.first or record
            self.last = record
            self._records.append(record)
            if is_classic:
                yield from self._read_early()
        yield from self._finish()

    @property
    def kind_and_state(self) -> tuple[GroupType, str]:
        """The group's type, and Kafka's name of its state, after all records were read."""
        match None if self.last is None else self.last.entry:
            case GroupMetadataEntry(members=members):
                return GroupType.CLASSIC, STABLE_STATE if members else EMPTY_STATE
            case None | GroupMetadataTombstone():
                return GroupType.CLASSIC, DEAD_STATE
            case others.ShareRecord() | others.StreamsRecord() as entry:
                reader = self._reader_of(entry)
                return reader.kind, reader.state
            case _:
                return GroupType.CONSUMER, self._consumer_group.state

    def count_ended(self) -> int:
        return self._builder.ownership.count_ended()

    def take_ended(self) -> list[PartitionOwnership]:
        """Returns and removes the ownership that has ended, by partition and time."""
        return self._builder.ownership.take_ended()

    def take_remaining(self) -> list[PartitionOwnership]:
        """Returns the remaining ownership, after all records were read."""
        return self._builder.ownership.close_all()

    def _read_early(self) -> Iterator[Generation]:
        """Reads all records but the last, which may depend on the next one. All are classic."""
        last = self._records[-1]
        if self.window is None:
            if not isinstance(last.entry, GroupMetadataEntry):
                return  # a tombstone without an entry before it
            is_new = len(self._records) == 1 and is_new_group(last.entry)
            self.window = JournalWindow(offset=last.offset, at=last.at, is_whole=is_new)
        for position in range(len(self._records) - 1):
            self._read_record(position, self._records[position])
        self._records = [last]
        yield from self._builder.take_generations()

    def _finish(self) -> Iterator[Generation]:
        certain = 0
        if self.window is None:
            certain, _ = find_compaction_edge(self._records)
            self.window = find_window(self._records)
        modern = (self._consumer_group, self._share_group, self._streams_group)
        for reader in modern:
            reader.is_compacted = certain > 0
        for record in reversed(self._records):
            match record.entry:
                case MemberMetadataEntry() as entry:
                    self._consumer_group.later_memberships[entry.member_id] = entry
                case (
                    others.ShareMemberMetadataEntry() | others.StreamsMemberMetadataEntry() as entry
                ):
                    self._reader_of(entry).later_memberships[entry.member_id] = entry
                case _:
                    pass
        for position, record in enumerate(self._records):
            if position == certain:
                self._settle_compacted(modern)
            self._read_record(position, record)
            yield from self._builder.take_generations()
        self._settle_compacted(modern)
        yield from self._builder.take_generations()

    def _settle_compacted(self, readers: Iterable[ModernGroupReader]) -> None:
        for reader in readers:
            if reader.is_compacted:
                reader.settle_compacted()

    def _reader_of(self, entry: others.ShareRecord | others.StreamsRecord) -> ShareStreamsReader:
        is_share = isinstance(entry, others.ShareRecord)
        return self._share_group if is_share else self._streams_group

    def _read_record(self, position: int, record: JournalRecord) -> None:
        match record.entry:
            case (
                others.ShareGroupMetadataTombstone()
                | others.StreamsGroupMetadataTombstone() as entry
            ):
                reader = self._reader_of(entry)
                reader.clear()
                self._builder.delete_group(record, reader.kind)
            case others.ShareRecord() | others.StreamsRecord() as entry:
                self._reader_of(entry).read_entry(record, entry)
            case GroupMetadataEntry() as entry:
                self._classic.read_entry(record, entry, converted=self._converted)
                self._converted = False
            case GroupMetadataTombstone():
                self._end_classic_group(position, record)
            case ConsumerGroupMetadataTombstone():
                self._end_consumer_group(position, record)
            case OffsetCommitEntry() | OffsetCommitTombstone() | UnparsedEntry():
                pass
            case entry:
                self._consumer_group.read_entry(record, entry)

    def _end_classic_group(self, position: int, record: JournalRecord) -> None:
        following = next_entry_in_batch(self._records, position)
        if not isinstance(following, MemberMetadataEntry):
            self._builder.delete_group(record, GroupType.CLASSIC)
        elif uses_classic_protocol(following):
            self._consumer_group.converted = True
        else:  # a new consumer group replaces the empty group, and its epochs start again
            self._builder.start_new_incarnation(record.at)

    def _end_consumer_group(self, position: int, record: JournalRecord) -> None:
        following = next_entry_in_batch(self._records, position)
        self._consumer_group.clear()
        if not isinstance(following, GroupMetadataEntry):
            self._builder.delete_group(record, GroupType.CONSUMER)
        elif is_new_group(following):
            self._builder.start_new_incarnation(record.at)
        else:
            self._converted = True
