"""Samples of a group from DescribeGroups and OffsetFetch, and the generations and owners in them.

:class:`SampleTracker` compares each poll with the one before and keeps the changes, with the last
time before each change. :class:`SampleReader` makes generations from the kept samples.

A sample shows a stable or a rebalancing group. Between two different stable samples there was at
least one rebalance, and one is reported. The same holds for two equal samples if the group was
rebalancing in between, or if a member joined again with other data. Other rebalances are missed.

DescribeGroups does not return generation numbers, so the numbers here count the observed changes.
Of consumer groups the epoch is known, which also shows the number of missed changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rota.engine.history.facts import (
    Generation,
    GenerationChange,
    GenerationMember,
    GroupType,
    PartitionOwnership,
    member_identity,
)
from rota.engine.history.generations import (
    ASSIGNING_STATE,
    DEAD_STATE,
    EMPTY_STATE,
    NO_OWNED_PARTITIONS,
    STABLE_STATE,
    ClassicGroupReader,
    HistoryBuilder,
    generation_distance,
)
from rota.engine.model.journal_entry import GroupMetadataEntry, GroupMetadataMember
from rota.engine.model.response import DescribedGroup
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSample:
    group: str
    at: int
    not_before: int | None = None  # when the group was last polled before this change; None: never
    kind: GroupType
    state: str
    protocol_type: str = ""
    strategy: str | None = None
    epoch: int | None = None  # of a consumer group
    members: tuple[GenerationMember, ...] = ()  # by id; ``assigned``: its target (KIP-848)


class SampledCommit(NamedTuple):
    group: str
    partition: TopicPartition
    committed: OffsetAndMetadata | None  # None: the offset was deleted
    at: int
    not_before: int | None  # None: this is the first poll of the group


@dataclass(slots=True, kw_only=True)
class GroupPoll:
    started_at: int
    at: int = 0  # when the last response had arrived
    groups: dict[str, GroupSample] = field(default_factory=dict)  # without their times
    #: All committed offsets of the groups that could be polled.
    offsets: dict[str, Mapping[TopicPartition, OffsetAndMetadata]] = field(default_factory=dict)
    unanswered: set[str] = field(default_factory=set)  # exist, or may, but were not polled
    complete: bool = True  # every broker has listed its groups: other groups were deleted


class SampleChanges(NamedTuple):
    samples: list[GroupSample]
    commits: list[SampledCommit]


class SampleTracker:
    def __init__(self) -> None:
        self._samples: dict[str, GroupSample] = {}
        self._polled: dict[str, int] = {}
        self._offsets: dict[str, Mapping[TopicPartition, OffsetAndMetadata]] = {}
        self._offsets_polled: dict[str, int] = {}
        #: Last poll in which all brokers listed their groups.
        self._listed: int | None = None
        self._failed: set[str] = set()

    def compare(self, poll: GroupPoll) -> SampleChanges:
        since = {
            name: self._polled.get(name, None if name in self._failed else self._listed)
            for name in poll.groups
        }
        new = poll.groups.keys() - self._samples.keys()
        deleted = self._deleted(poll)
        samples = [*self._differing(poll, since), *deleted]
        first = {name: since[name] for name in new}
        commits = list(self._committed(poll, first, [each.group for each in deleted]))
        if poll.complete:
            self._listed = poll.started_at
        self._failed = (self._failed | poll.unanswered) - poll.groups.keys() - self._polled.keys()
        return SampleChanges(samples, commits)

    def _differing(self, poll: GroupPoll, since: Mapping[str, int | None]) -> Iterator[GroupSample]:
        for name, sample in sorted(poll.groups.items()):
            known = self._samples.get(name)
            new = replace(sample, at=poll.at, not_before=since[name])
            self._polled[name] = poll.started_at
            if known is None or replace(known, at=new.at, not_before=new.not_before) != new:
                self._samples[name] = new
                yield new

    def _deleted(self, poll: GroupPoll) -> list[GroupSample]:
        if not poll.complete:
            return []
        samples = []
        for name in sorted(self._samples.keys() - poll.groups.keys() - poll.unanswered):
            known = self._samples.pop(name)
            samples.append(
                GroupSample(
                    group=name,
                    at=poll.at,
                    not_before=self._polled.pop(name),
                    kind=known.kind,
                    state=DEAD_STATE,
                    protocol_type=known.protocol_type,
                )
            )
        return samples

    def _committed(
        self, poll: GroupPoll, first: Mapping[str, int | None], deleted: Iterable[str]
    ) -> Iterator[SampledCommit]:
        """Returns changed offsets; the offsets of a deleted group count as deleted."""
        fetched = {**poll.offsets, **dict.fromkeys(deleted, _NO_OFFSETS)}
        for group, now in sorted(fetched.items()):
            before = self._offsets.pop(group, _NO_OFFSETS)
            not_before = self._offsets_polled.pop(group, first.get(group))
            for partition in sorted(now.keys() | before.keys()):
                if now.get(partition) != before.get(partition):
                    yield SampledCommit(group, partition, now.get(partition), poll.at, not_before)
            if group in poll.offsets:
                self._offsets[group], self._offsets_polled[group] = now, poll.started_at


_NO_OFFSETS: Mapping[TopicPartition, OffsetAndMetadata] = {}


def sample_classic_group(described: DescribedGroup) -> GroupSample:
    """Makes a sample from a DescribeGroups response; the caller sets the times."""
    saved = GroupMetadataEntry(
        group=described.group,
        protocol_type=described.protocol_type,
        generation=0,
        protocol=described.protocol,
        leader=None,
        members=tuple(
            GroupMetadataMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                rebalance_timeout=0,
                session_timeout=0,
                subscription=each.metadata,
                assignment=each.assignment,
            )
            for each in described.members
        ),
    )
    members = ClassicGroupReader(HistoryBuilder(described.group)).decode_members(saved)
    return GroupSample(
        group=described.group,
        at=0,
        kind=GroupType.CLASSIC,
        state=described.state,
        protocol_type=described.protocol_type,
        strategy=described.protocol or None,
        members=tuple(
            replace(each, session_timeout=None, rebalance_timeout=None) for each in members
        ),
    )


#: States of a classic group in which all members have their assignment.
STABLE_STATES = frozenset({STABLE_STATE, EMPTY_STATE})


class SampleReader:
    def __init__(self, group: str) -> None:
        self._builder = HistoryBuilder(group)
        self.first: GroupSample | None = None
        self.last: GroupSample | None = None
        #: The first sample since the group was last stable.
        self._rebalancing: GroupSample | None = None
        #: The group existed before its first stable sample.
        self._existed_before = False
        self._number = 0
        self._offset = 0

    def generations(self, samples: Iterable[GroupSample]) -> Iterator[Generation]:
        for sample in samples:
            self.first = self.first or sample
            self.last = sample
            self._read_sample(sample)
            yield from self._builder.take_generations()

    def take_ownership(self) -> list[PartitionOwnership]:
        return self._builder.ownership.close_all()

    def _read_sample(self, sample: GroupSample) -> None:
        if sample.state == DEAD_STATE:
            if self._builder.last is not None:
                self._add(GenerationChange.DELETED, sample, self._builder.last.generation)
            self._start_new_incarnation(sample.at)
            return
        if self._builder.last is not None and self._builder.last.kind is not sample.kind:
            # the two group types have separate numbers
            self._start_new_incarnation(sample.at, old=True)
        last = self._builder.last
        if not _is_stable(sample):
            self._existed_before |= last is None and sample.not_before is None
            self._rebalancing = self._rebalancing or sample
        elif last is None:
            self._add_first(sample)
        elif sample.kind is GroupType.CLASSIC:
            self._read_classic(sample, last)
        else:
            self._read_consumer(sample, last)
        if sample.kind is GroupType.CONSUMER:
            self._set_owned(sample, sample.epoch or 0)

    def _start_new_incarnation(self, at: int, *, old: bool = False) -> None:
        self._builder.start_new_incarnation(at)
        self._rebalancing, self._existed_before = None, old
        self._number = 0

    def _add_first(self, sample: GroupSample) -> None:
        """Adds the first stable sample. The group is new if the poll before did not have it."""
        change = GenerationChange.REBALANCED if sample.members else GenerationChange.CREATED
        if sample.not_before is None or self._existed_before:
            change = GenerationChange.FIRST_SAMPLE
        self._number = int(change is GenerationChange.REBALANCED)
        self._add(change, sample, self._number if sample.epoch is None else sample.epoch)

    def _read_classic(self, sample: GroupSample, last: Generation) -> None:
        is_stable = self._rebalancing is None
        if not sample.members and not last.members:
            self._rebalancing = None
            return
        if is_stable and last.members == sample.members and last.strategy == sample.strategy:
            return
        if is_stable and _is_static_replacement(last, sample):
            self._add(GenerationChange.REPLACED, sample, self._number)
            return
        self._number += 1
        self._add(_change_kind(sample), sample, self._number)

    def _read_consumer(self, sample: GroupSample, last: Generation) -> None:
        epoch = sample.epoch or 0
        gain = generation_distance(epoch, last.generation)
        if gain < 0:  # the group was deleted and created again
            self._start_new_incarnation(sample.at)
            self._add_first(sample)
        elif gain > 0:
            self._add(_change_kind(sample), sample, epoch)
        elif _member_ids(last.members) != _member_ids(sample.members) and _has_same_members(
            last, sample
        ):
            self._add(GenerationChange.REPLACED, sample, epoch)
        self._rebalancing = None

    def _add(self, change: GenerationChange, sample: GroupSample, number: int) -> None:
        self._offset += 1
        members = sample.members
        if sample.kind is GroupType.CONSUMER:  # partitions owned before the target are unknown
            members = tuple(replace(each, owned=NO_OWNED_PARTITIONS) for each in members)
        since = (self._rebalancing or sample).not_before
        self._rebalancing = None
        self._builder.add_generation(
            Generation(
                group=sample.group,
                kind=sample.kind,
                incarnation=self._builder.incarnation,
                generation=number,
                change=change,
                at=sample.at,
                offset=self._offset,
                protocol_type=sample.protocol_type,
                strategy=sample.strategy if members else None,
                members=members,
                sampled=True,
                not_before=None if change is GenerationChange.FIRST_SAMPLE else since,
            )
        )
        if sample.kind is GroupType.CLASSIC:
            self._set_owned(sample, number)

    def _set_owned(self, sample: GroupSample, number: int) -> None:
        """Sets owned partitions; a consumer group's member may not own its whole target yet."""
        tracker = self._builder.ownership
        tracker.keep_only(_member_ids(sample.members), sample.at)
        for member in sample.members:
            owned = member.owned if sample.kind is GroupType.CONSUMER else member.assigned
            tracker.set_owned(member, owned, sample.at, number)


def _change_kind(sample: GroupSample) -> GenerationChange:
    return GenerationChange.REBALANCED if sample.members else GenerationChange.EMPTIED


def _is_stable(sample: GroupSample) -> bool:
    if sample.kind is GroupType.CONSUMER:
        return sample.state != ASSIGNING_STATE
    return sample.state in STABLE_STATES


def _member_ids(members: Iterable[GenerationMember]) -> frozenset[str]:
    return frozenset(each.member_id for each in members)


def _has_same_members(last: Generation, sample: GroupSample) -> bool:
    return set(map(member_identity, last.members)) == set(map(member_identity, sample.members))


def _is_static_replacement(last: Generation, sample: GroupSample) -> bool:
    """Returns whether only member ids of static members changed, which needs no rebalance."""
    old = {member_identity(each): each for each in last.members}
    if last.strategy != sample.strategy or not _has_same_members(last, sample):
        return False
    for new in sample.members:
        known = old[member_identity(new)]
        kept = (known.topics, known.assigned) == (new.topics, new.assigned)
        renewed = new.group_instance_id is not None and new.member_id != known.member_id
        if new != known and not (renewed and kept):
            return False
    return True
