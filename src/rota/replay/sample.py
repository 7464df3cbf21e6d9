"""A group as it was found by asking, and what differs from the time before.

Who asks again and again sees states, not changes. Each state that is another than the one before is
kept, with the last time at which it was not so: what happened in between is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rota.model.entry import GroupSaved, SavedMember
from rota.model.offset import OffsetAndMetadata
from rota.model.reply import DescribedGroup
from rota.model.topic import TopicPartition
from rota.replay.classic import Classic
from rota.replay.course import Course
from rota.replay.fact import GenerationMember, Kind

DEAD = "Dead"
"""The state of a group that is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A group as it was found: a row of bronze/samples."""

    group: str
    at: int
    """When the answers were there."""
    not_before: int | None = None
    """When it was last asked before this, and was another, or was not there; None: never."""
    kind: Kind
    state: str
    protocol_type: str = ""
    strategy: str | None = None
    epoch: int | None = None
    """Of a consumer group."""
    members: tuple[GenerationMember, ...] = ()
    """By id. Of a consumer group: ``owned`` is what a member has, ``assigned`` its target."""


class CommitSeen(NamedTuple):
    """A committed offset that is another than the time before."""

    group: str
    partition: TopicPartition
    committed: OffsetAndMetadata | None
    """None: it is there no more."""
    at: int
    not_before: int | None
    """None: it was there the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """All answers of one round of questions."""

    begun: int
    at: int
    """When the last answer was there."""
    groups: Mapping[str, Sample]
    """Those that were described; their times do not count."""
    offsets: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]] = field(default_factory=dict)
    """All that each group has committed, where that could be asked."""
    silent: AbstractSet[str] = frozenset()
    """Groups that are there, or may be, and could not be asked."""
    complete: bool = True
    """Every broker has listed its groups: who is not among them is gone."""


class Seen(NamedTuple):
    """What is another than the time before."""

    samples: list[Sample]
    commits: list[CommitSeen]


class Watch:
    """Remembers the last answer about every group."""

    def __init__(self) -> None:
        self._samples: dict[str, Sample] = {}
        self._asked: dict[str, int] = {}
        """When each group was asked last, and has answered."""
        self._offsets: dict[str, Mapping[TopicPartition, OffsetAndMetadata]] = {}
        self._fetched: dict[str, int] = {}
        """When a group's offsets were asked for last, and were told."""
        self._listed: int | None = None
        """When all brokers had listed their groups last."""
        self._silent: set[str] = set()
        """Groups that have never answered, though they are there."""

    def see(self, look: Look) -> Seen:
        """Compares a round with the ones before it."""
        since = {
            name: self._asked.get(name, None if name in self._silent else self._listed)
            for name in look.groups
        }
        new = look.groups.keys() - self._samples.keys()
        gone = self._gone(look)
        samples = [*self._differing(look, since), *gone]
        first = {name: since[name] for name in new}
        commits = list(self._committed(look, first, [each.group for each in gone]))
        if look.complete:
            self._listed = look.begun
        self._silent = (self._silent | look.silent) - look.groups.keys() - self._asked.keys()
        return Seen(samples, commits)

    def _differing(self, look: Look, since: Mapping[str, int | None]) -> Iterator[Sample]:
        for name, sample in sorted(look.groups.items()):
            known = self._samples.get(name)
            new = replace(sample, at=look.at, not_before=since[name])
            self._asked[name] = look.begun
            if known is None or not _same(known, new):
                self._samples[name] = new
                yield new

    def _gone(self, look: Look) -> list[Sample]:
        """Groups that are not listed any more."""
        if not look.complete:
            return []
        found = []
        for name in sorted(self._samples.keys() - look.groups.keys() - look.silent):
            known = self._samples.pop(name)
            found.append(
                Sample(
                    group=name,
                    at=look.at,
                    not_before=self._asked.pop(name),
                    kind=known.kind,
                    state=DEAD,
                    protocol_type=known.protocol_type,
                )
            )
        return found

    def _committed(
        self, look: Look, first: Mapping[str, int | None], gone: Iterable[str]
    ) -> Iterator[CommitSeen]:
        """With a group that is gone its offsets are."""
        fetched = {**look.offsets, **dict.fromkeys(gone, _NOTHING)}
        for group, now in sorted(fetched.items()):
            before = self._offsets.pop(group, _NOTHING)
            asked = self._fetched.pop(group, first.get(group))
            for place in sorted(now.keys() | before.keys()):
                if now.get(place) != before.get(place):
                    yield CommitSeen(group, place, now.get(place), look.at, asked)
            if group in look.offsets:
                self._offsets[group], self._fetched[group] = now, look.begun


_NOTHING: Mapping[TopicPartition, OffsetAndMetadata] = {}


def _same(known: Sample, new: Sample) -> bool:
    return replace(known, at=new.at, not_before=new.not_before) == new


def classic(found: DescribedGroup) -> Sample:
    """A classic group out of DescribeGroups; its times are to be told.

    What the journal has and this has not is None: timeouts, the leader, the generation.
    """
    saved = GroupSaved(
        group=found.group,
        protocol_type=found.protocol_type,
        generation=0,
        protocol=found.protocol,
        leader=None,
        members=tuple(
            SavedMember(
                member_id=each.member_id,
                static_id=each.static_id,
                client_id=each.client_id,
                client_host=each.client_host,
                rebalance_timeout=0,
                session_timeout=0,
                subscription=each.metadata,
                assignment=each.assignment,
            )
            for each in found.members
        ),
    )
    members = Classic(Course(found.group)).members(saved) if found.members else ()
    return Sample(
        group=found.group,
        at=0,
        kind=Kind.CLASSIC,
        state=found.state,
        protocol_type=found.protocol_type,
        strategy=found.protocol or None,
        members=tuple(
            replace(each, session_timeout=None, rebalance_timeout=None) for each in members
        ),
    )
