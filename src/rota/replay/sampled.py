"""What became of a group, out of samples of it: generations and owners, as far as they were seen.

A sample shows a group at rest, or that it is rebalancing. Two at rest that differ have a rebalance
between them, or several, of which one is told. So have two that are alike, if it was rebalancing in
between, or if a member has joined again since: it then says something else about itself. A
rebalance that leaves no such trace is not seen.

Numbers of generations are not told to who asks: those here count what was seen. Of consumer groups
the epoch is told, and with it how many changes were not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rota.replay.course import Course, ahead, key
from rota.replay.fact import Generation, GenerationMember, Kind, Mark, Ownership
from rota.replay.ownership import NOTHING
from rota.replay.sample import DEAD, Sample

AT_REST = frozenset({"Stable", "Empty"})
"""States in which a classic group's members and their partitions belong together."""
UNDECIDED = "Assigning"
"""The state of a consumer group whose target is not of its epoch yet."""


class SampleReading:
    """A group's samples being read, in the order of their times."""

    def __init__(self, group: str) -> None:
        self._course = Course(group)
        self._restless: Sample | None = None
        """The first sample since it was last at rest."""
        self._old = False
        """It was there before it was first seen at rest."""
        self._number = 0
        self._place = 0

    def generations(self, samples: Iterable[Sample]) -> Iterator[Generation]:
        """Every change that was seen."""
        for sample in samples:
            self._see(sample)
            yield from self._course.take()

    def rest(self) -> list[Ownership]:
        """Who had what, when all is read; by partition and time."""
        return self._course.ledger.close(self._course.group)

    def _see(self, sample: Sample) -> None:
        if sample.state == DEAD:
            self._forget(sample)
            return
        if self._course.last is not None and self._course.last.kind is not sample.kind:
            # numbers of the two kinds do not go on from each other
            self._begin_anew(sample.at, old=True)
        last = self._course.last
        if not _is_at_rest(sample):
            self._old |= last is None and sample.not_before is None
            self._restless = self._restless or sample
        elif last is None:
            self._find(sample)
        elif sample.kind is Kind.CLASSIC:
            self._classic(sample, last)
        else:
            self._consumer(sample, last)
        if sample.kind is Kind.CONSUMER:
            self._hold(sample, sample.epoch or 0)

    def _begin_anew(self, at: int, *, old: bool = False) -> None:
        self._course.begin_anew(at)
        self._restless, self._old = None, old
        self._number = 0

    def _forget(self, sample: Sample) -> None:
        last = self._course.last
        if last is not None:
            self._add(Mark.FORGOTTEN, sample, last.generation)
        self._begin_anew(sample.at)

    def _find(self, sample: Sample) -> None:
        """The first time that it is seen at rest. Where it was not there the time before, it is
        new; else what led to this is not known.
        """
        mark = Mark.SETTLED if sample.members else Mark.CREATED
        if sample.not_before is None or self._old:
            mark = Mark.FOUND
        self._number = int(mark is Mark.SETTLED)
        self._add(mark, sample, self._number if sample.epoch is None else sample.epoch)

    def _classic(self, sample: Sample, last: Generation) -> None:
        at_rest = self._restless is None
        if not sample.members and not last.members:
            self._restless = None
            return
        if at_rest and last.members == sample.members and last.strategy == sample.strategy:
            return
        if at_rest and _is_replaced(last, sample):
            self._add(Mark.REPLACED, sample, self._number)
            return
        self._number += 1
        self._add(Mark.SETTLED if sample.members else Mark.EMPTIED, sample, self._number)

    def _consumer(self, sample: Sample, last: Generation) -> None:
        epoch = sample.epoch or 0
        gain = ahead(epoch, last.generation)
        if gain < 0:  # deleted, and made again
            self._begin_anew(sample.at)
            self._find(sample)
        elif gain > 0:
            self._add(Mark.SETTLED if sample.members else Mark.EMPTIED, sample, epoch)
        elif _ids(last.members) != _ids(sample.members) and _is_same_cast(last, sample):
            self._add(Mark.REPLACED, sample, epoch)
        self._restless = None

    def _add(self, mark: Mark, sample: Sample, number: int) -> None:
        self._place += 1
        members = sample.members
        if sample.kind is Kind.CONSUMER:  # what they had when their target was made is not told
            members = tuple(replace(each, owned=NOTHING) for each in members)
        since = (self._restless or sample).not_before
        self._restless = None
        self._course.add(
            Generation(
                group=sample.group,
                kind=sample.kind,
                life=self._course.life,
                generation=number,
                mark=mark,
                at=sample.at,
                offset=self._place,
                protocol_type=sample.protocol_type,
                strategy=sample.strategy if members else None,
                members=members,
                sampled=True,
                not_before=None if mark is Mark.FOUND else since,
            )
        )
        if sample.kind is Kind.CLASSIC:
            self._hold(sample, number)

    def _hold(self, sample: Sample, number: int) -> None:
        """What members have: of a consumer group that is not yet what they shall have."""
        ledger = self._course.ledger
        ledger.keep(_ids(sample.members), sample.at)
        for member in sample.members:
            has = member.owned if sample.kind is Kind.CONSUMER else member.assigned
            ledger.hold(member, has, sample.at, number)


def _is_at_rest(sample: Sample) -> bool:
    if sample.kind is Kind.CONSUMER:
        return sample.state != UNDECIDED
    return sample.state in AT_REST


def _ids(members: Iterable[GenerationMember]) -> frozenset[str]:
    return frozenset(each.member_id for each in members)


def _is_same_cast(last: Generation, sample: Sample) -> bool:
    return {key(each) for each in last.members} == {key(each) for each in sample.members}


def _is_replaced(last: Generation, sample: Sample) -> bool:
    """Static members are back under other ids, with what they had, and nothing else differs: that
    may be without a rebalance, so it is not called one.
    """
    old = {key(each): each for each in last.members}
    if last.strategy != sample.strategy or not _is_same_cast(last, sample):
        return False
    for new in sample.members:
        known = old[key(new)]
        kept = (known.topics, known.assigned) == (new.topics, new.assigned)
        renewed = new.static_id is not None and new.member_id != known.member_id
        if new != known and not (renewed and kept):
            return False
    return True
