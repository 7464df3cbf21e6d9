"""What the members of a group did, as each of them told it, and whether a group that keeps its
promises can have done so.

All times are of the machine's one monotonic clock, which every process reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias, assert_never

from rota import TopicPartition
from tests.system.crash.history import NEVER, Highest

#: A generation that the member could not tell.
UNKNOWN = -1

#: The values that were acknowledged, by their offsets.
Written: TypeAlias = Mapping[TopicPartition, Mapping[int, str]]


@dataclass(frozen=True, slots=True)
class Assigned:
    """A member was given partitions, beside those that it has."""

    member: str
    at: float
    generation: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Revoked:
    """A member gave up partitions, or heard that they are lost to it."""

    member: str
    at: float
    partitions: tuple[TopicPartition, ...]
    lost: bool = False


@dataclass(frozen=True, slots=True)
class DeliveredRecord:
    """A record reached the member's application."""

    member: str
    at: float
    partition: TopicPartition
    offset: int
    value: str


@dataclass(frozen=True, slots=True)
class PositionMoved:
    """The member's application, or a reset, moved its position."""

    member: str
    at: float
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class CommitAttempt:
    """The application committed; with an error it may have been stored or not."""

    member: str
    began: float
    ended: float
    offsets: Mapping[TopicPartition, int]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class MemberEnded:
    """The member is no more: it was closed, or its process killed."""

    member: str
    at: float
    killed: bool = False
    #: It stood still or was cut off before, and may not have heard yet what it had lost.
    unaware: bool = False


@dataclass(frozen=True, slots=True)
class ObservedOffset:
    """The group's offset, as an admin saw it."""

    began: float
    ended: float
    partition: TopicPartition
    offset: int


Event: TypeAlias = (
    Assigned | Revoked | DeliveredRecord | PositionMoved | CommitAttempt | MemberEnded
)


@dataclass(slots=True)
class Ownership:
    """One member's ownership of a partition, from its assignment to its end."""

    member: str
    partition: TopicPartition
    began: float
    generations: list[int]
    ended: float = NEVER
    lost: bool = False
    handed: list[DeliveredRecord] = field(default_factory=list)
    #: Offsets that were sought.
    jumps: set[int] = field(default_factory=set)


@dataclass(slots=True)
class History:
    """All that happened to one group."""

    #: Of each member in the order they happened; of several in any.
    events: list[Event] = field(default_factory=list)
    written: dict[TopicPartition, dict[int, str]] = field(default_factory=dict)
    observed: list[ObservedOffset] = field(default_factory=list)
    #: Before these offsets, records were removed from the log.
    removed: dict[TopicPartition, int] = field(default_factory=dict)
    #: Where the group began to read, if not at 0.
    begins: dict[TopicPartition, int] = field(default_factory=dict)
    #: The static ids of members: who has one takes the place of the one before.
    seats: dict[str, str] = field(default_factory=dict)
    #: Members whose library hands out what a fetch brought twice now and then.
    repeaters: set[str] = field(default_factory=set)

    def problems(self) -> list[str]:
        """Every promise that was broken; empty if none was."""
        tracker = OwnershipTracker(self.events)
        ownerships = tracker.tenures
        commits = [each for each in self.events if isinstance(each, CommitAttempt)]
        delivered = [each for each in self.events if isinstance(each, DeliveredRecord)]
        return [
            *tracker.strays,
            *lost_records(self.written, delivered, {**self.begins, **self.removed}),
            *changed_records(self.written, delivered),
            *double_owners(ownerships, self.seats),
            *overlapping_owners(ownerships),
            *disordered_records(ownerships, self.removed, self.repeaters),
            *redelivered_records(ownerships, commits),
            *commits_ahead(commits, self.observed, delivered, self.begins),
            *offsets_backwards(commits, self.observed),
        ]


class OwnershipTracker:
    """Follows who owns what."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.tenures: list[Ownership] = []
        #: What members did with partitions that were not theirs.
        self.strays: list[str] = []
        self._owned: dict[str, dict[TopicPartition, Ownership]] = defaultdict(dict)
        for event in events:
            self._follow(event)

    def _follow(self, event: Event) -> None:
        own = self._owned[event.member]
        match event:
            case Assigned():
                self._assign(event, own)
            case Revoked():
                self._revoke(event, own)
            case DeliveredRecord(member, _, place, offset):
                if place in own:
                    own[place].handed.append(event)
                else:
                    problem = f"{member} handed out {place} at {offset}, not being its owner"
                    self.strays.append(problem)
            case PositionMoved(_, _, place, offset):
                if place in own:
                    own[place].jumps.add(offset)
            case MemberEnded(_, at, _, unaware):
                for ownership in own.values():
                    ownership.ended, ownership.lost = at, unaware
                own.clear()
            case CommitAttempt():
                pass
            case _:
                assert_never(event)

    def _revoke(self, event: Revoked, own: dict[TopicPartition, Ownership]) -> None:
        for place in event.partitions:
            if (ownership := own.pop(place, None)) is None:
                self.strays.append(f"{event.member} gave up {place}, which it had not")
            else:
                ownership.ended, ownership.lost = event.at, event.lost

    def _assign(self, event: Assigned, own: dict[TopicPartition, Ownership]) -> None:
        for ownership in own.values():  # kept, into the new generation
            ownership.generations.append(event.generation)
        for place in event.partitions:
            if place in own:
                problem = f"{event.member} was given {place} again, without giving it up"
                self.strays.append(problem)
                continue
            own[place] = Ownership(event.member, place, event.at, [event.generation])
            self.tenures.append(own[place])


def lost_records(
    written: Written, delivered: Sequence[DeliveredRecord], begins: Mapping[TopicPartition, int]
) -> Iterator[str]:
    """Every record reached some application."""
    seen = {(each.partition, each.offset) for each in delivered}
    for place, values in written.items():
        for offset, value in values.items():
            if offset >= begins.get(place, 0) and (place, offset) not in seen:
                yield f"{value} at {place} {offset} was never handed out"


def changed_records(written: Written, delivered: Sequence[DeliveredRecord]) -> Iterator[str]:
    """What was handed out is what was written there."""
    for each in delivered:
        known = written.get(each.partition, {}).get(each.offset, each.value)
        if known != each.value:
            yield f"{each.partition} {each.offset}: {each.value} instead of {known}"


def double_owners(ownerships: Sequence[Ownership], seats: Mapping[str, str]) -> Iterator[str]:
    """A partition has one owner in each generation; a static member may have been replaced."""
    owners: dict[tuple[TopicPartition, int], set[str]] = defaultdict(set)
    for ownership in ownerships:
        for generation in ownership.generations:
            if generation != UNKNOWN:
                owner = seats.get(ownership.member, ownership.member)
                owners[ownership.partition, generation].add(owner)
    for (place, generation), names in owners.items():
        if len(names) > 1:
            both = " and ".join(sorted(names))
            yield f"{place} belonged to {both} in generation {generation}"


def overlapping_owners(ownerships: Sequence[Ownership]) -> Iterator[str]:
    """A partition has one owner at a time, but for one who has not heard yet that it is lost."""
    by_partition: dict[TopicPartition, list[Ownership]] = defaultdict(list)
    for ownership in sorted(ownerships, key=lambda each: each.began):
        by_partition[ownership.partition].append(ownership)
    for place, own in by_partition.items():
        for number, first in enumerate(own):
            for second in own[number + 1 :]:
                if second.began < first.ended and not (first.lost and _later(second, first)):
                    yield f"{place} was {second.member}'s while it was {first.member}'s"


def _later(second: Ownership, first: Ownership) -> bool:
    known = UNKNOWN not in (*second.generations, *first.generations)
    return not known or second.generations[0] > first.generations[-1]


def disordered_records(
    ownerships: Sequence[Ownership], removed: Mapping[TopicPartition, int], repeaters: Set[str]
) -> Iterator[str]:
    """In one member's hands, a partition's records come in order, none left out and none twice."""
    for ownership in ownerships:
        allowed = {*ownership.jumps, removed.get(ownership.partition, 0)}
        for before, after in pairwise(ownership.handed):
            again = after.offset <= before.offset and ownership.member in repeaters
            if after.offset != before.offset + 1 and after.offset not in allowed and not again:
                yield (
                    f"{ownership.member} handed out {ownership.partition} {after.offset} "
                    f"after {before.offset}"
                )


def redelivered_records(
    ownerships: Sequence[Ownership], commits: Sequence[CommitAttempt]
) -> Iterator[str]:
    """What was committed before a tenure began is not handed out in it."""
    known = _answered(commits)
    for ownership in ownerships:
        if ownership.jumps or ownership.partition not in known:
            continue
        committed = known[ownership.partition].before(ownership.began)
        for record in ownership.handed:
            if record.offset < committed:
                yield (
                    f"{ownership.member} handed out {ownership.partition} {record.offset}, "
                    f"though {committed} was committed before"
                )


def commits_ahead(
    commits: Sequence[CommitAttempt],
    observed: Sequence[ObservedOffset],
    delivered: Sequence[DeliveredRecord],
    begins: Mapping[TopicPartition, int],
) -> Iterator[str]:
    """Nothing is committed before an application had it."""
    seen: dict[TopicPartition, list[tuple[float, int]]] = defaultdict(list)
    for record in delivered:
        seen[record.partition].append((record.at, record.offset + 1))
    ends = {place: Highest(own) for place, own in seen.items()}
    tried = [(each.member, *pair, each.began) for each in commits for pair in each.offsets.items()]
    found = [("the group", each.partition, each.offset, each.ended) for each in observed]
    for who, place, offset, at in [*tried, *found]:
        highest = ends[place].before(at) if place in ends else -1
        if offset > max(highest, begins.get(place, 0)):
            yield f"{who} committed {place} {offset}, when {max(highest, 0)} was handed out"


def offsets_backwards(
    commits: Sequence[CommitAttempt], observed: Sequence[ObservedOffset]
) -> Iterator[str]:
    """The group's offset is not older than the last commit that was answered before.

    Unless it is one of a commit without a good answer, which may have arrived at any time.
    """
    open_ones = {pair for each in commits if each.error for pair in each.offsets.items()}
    known = _answered(commits)
    for each in observed:
        last = known[each.partition].before(each.began) if each.partition in known else -1
        if each.offset < last and (each.partition, each.offset) not in open_ones:
            yield f"{each.partition}: the group was at {each.offset}, after {last} was committed"


def _answered(commits: Sequence[CommitAttempt]) -> dict[TopicPartition, Highest]:
    stored: dict[TopicPartition, list[tuple[float, int]]] = defaultdict(list)
    for each in commits:
        if each.error is None:
            for place, offset in each.offsets.items():
                stored[place].append((each.ended, offset))
    return {place: Highest(own) for place, own in stored.items()}
