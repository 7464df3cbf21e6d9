"""Epochs of consumer groups (KIP-848), out of the entries that their state is spread over.

Each target that the broker computed is a generation. What members really have is another matter: it
follows the target member by member, and is what the ledger is told.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping
from operator import is_

from rota.assignors import server
from rota.formats.javahash import hash_map_order
from rota.model.modern import (
    CurrentForgotten,
    CurrentSaved,
    CurrentTopic,
    EpochForgotten,
    EpochSaved,
    MembershipForgotten,
    MembershipSaved,
    ModernEntry,
    RegexForgotten,
    RegexSaved,
    TargetEpochForgotten,
    TargetEpochSaved,
    TargetForgotten,
    TargetSaved,
    TargetTopic,
    TopicsForgotten,
    TopicsSaved,
)
from rota.replay.classic import CONSUMER, held
from rota.replay.course import Course, ahead
from rota.replay.fact import Generation, GenerationMember, Held, Kind, Mark, Written
from rota.replay.library import Signs, library
from rota.replay.ownership import NOTHING

STATIC_LEFT = -2
"""The epoch of a static member that left and may come back."""
NOT_THERE = "its subscription is not in the evidence"


class Modern:
    """Folds the entries of one consumer group."""

    def __init__(self, course: Course, names: Mapping[bytes, str]) -> None:
        self._course = course
        self._names = names
        self.quiet = False
        """The entries are what compaction left: no generations can be told from them yet."""
        self.converted = False
        """The group was a classic one: its next target is what its members had there."""
        self.lost: dict[str, MembershipSaved] = {}
        """Memberships by member that stand further on in the journal, where compaction has left
        what a member had but not, before it, who it was."""
        self._clear()

    def _clear(self) -> None:
        self._members: dict[str, MembershipSaved] = {}
        self._targets: dict[str, Held] = {}
        self._current: dict[str, CurrentSaved] = {}
        self._regexes: dict[str, tuple[str, ...]] = {}
        self._epoch: tuple[Written, int] | None = None
        self._target: tuple[Written, int] | None = None
        self._vacant: set[str] = set()
        """Static ids whose member is gone, with no new epoch since."""
        self._replacing: set[str] = set()
        """Members that came back under a vacant static id, and have no target yet."""
        self._worked = False
        """There was a target for somebody since the group was last empty."""
        self._made: dict[str, tuple[tuple[object, ...], GenerationMember]] = {}
        """Members with what they were made of: most are the same in the next generation."""

    def see(self, written: Written, entry: ModernEntry) -> None:  # noqa: C901, PLR0912 (one case each)
        """An entry of the group, but for its tombstone."""
        match entry:
            case MembershipSaved():
                if entry.static_id in self._vacant:
                    self._replacing.add(entry.member_id)
                self._members[entry.member_id] = entry
            case MembershipForgotten():
                gone = self._members.pop(entry.member_id, None)
                if gone is not None and gone.static_id is not None:
                    self._vacant.add(gone.static_id)
            case EpochSaved():
                self._came(written, entry)
            case TargetSaved():
                self._targets[entry.member_id] = self._held(entry.topics)
                self._worked = True
                if entry.member_id in self._replacing:
                    self._replaced(written, entry.member_id)
            case TargetForgotten():
                self._targets.pop(entry.member_id, None)
            case TargetEpochSaved():
                self._computed(written, entry)
            case CurrentSaved():
                self._current[entry.member_id] = entry
                self._has(written, entry)
            case CurrentForgotten():
                self._current.pop(entry.member_id, None)
                self._course.ledger.drop(entry.member_id, written.at)
            case RegexSaved():
                self._regexes[entry.regex] = entry.topics
            case RegexForgotten():
                self._regexes.pop(entry.regex, None)
            case TopicsSaved() | TopicsForgotten() | TargetEpochForgotten() | EpochForgotten():
                pass  # topics tell names, which are known; the rest comes with the group's end

    def end(self) -> None:
        """The group is gone, or is no consumer group any more."""
        self._clear()
        self.converted = False

    def settle(self) -> None:
        """What compaction left is complete: the group's state is what all of it says."""
        self.quiet = False
        if self._target is not None and self._targets:
            self._save(Mark.SETTLED, *self._target)
        elif self._epoch is not None and not self._members:
            self._save(Mark.EMPTIED, *self._epoch)

    def _came(self, written: Written, entry: EpochSaved) -> None:
        """A new epoch. Without members it is the end of the group's work: no target follows."""
        self._epoch = written, entry.epoch
        self._vacant.clear()
        self._replacing.clear()
        if self._worked and not self._members and not self._targets:
            self._worked = False
            if not self.quiet:
                self._save(Mark.EMPTIED, written, entry.epoch)

    def _computed(self, written: Written, entry: TargetEpochSaved) -> None:
        self._target = written, entry.epoch
        converted, self.converted = self.converted, False
        if self.quiet:
            return
        self._save(Mark.CONVERTED if converted else Mark.SETTLED, written, entry.epoch)
        if converted:  # without those that left while the classic group was rebalancing
            self._course.ledger.keep(self._members.keys(), written.at)

    def _replaced(self, written: Written, member_id: str) -> None:
        """A static member is back under a new id, with the target it had."""
        self._replacing.discard(member_id)
        if self._target is not None and not self.quiet:
            self._save(Mark.REPLACED, written, self._target[1])

    def _has(self, written: Written, entry: CurrentSaved) -> None:
        """What a member must give up it has until it said that it did."""
        has = NOTHING
        if entry.epoch != STATIC_LEFT:
            has = self._held((*entry.assigned, *entry.revoking))
        epoch = entry.epoch if entry.epoch > 0 or self._target is None else self._target[1]
        self._course.ledger.hold(self._member(entry.member_id), has, written.at, epoch)

    def _save(self, mark: Mark, written: Written, number: int) -> None:
        epoch, last = self._epoch, self._course.last
        again = mark in {Mark.REPLACED, Mark.CONVERTED}
        if last is not None and ahead(number, last.generation) < (0 if again else 1):
            self._course.begin_anew(written.at)  # epochs only grow in a group's life
        self._course.add(
            Generation(
                group=self._course.group,
                kind=Kind.CONSUMER,
                life=self._course.life,
                generation=number,
                mark=mark,
                at=written.at,
                state_at=epoch[0].at if epoch is not None and epoch[1] == number else None,
                offset=written.offset,
                protocol_type=CONSUMER,
                strategy=self._strategy() if self._targets else None,
                members=tuple(self._member(member_id) for member_id in sorted(self._targets)),
            )
        )

    def _strategy(self) -> str:
        """The server's strategy that most ask for; of two that as many do, as Kafka, the one that
        a Java ``HashMap`` lists first.
        """
        asked = Counter(one.assignor for one in self._members.values() if one.assignor)
        if not asked:
            return server.DEFAULT
        names = sorted(asked)
        return max((names[place] for place in hash_map_order(names)), key=asked.__getitem__)

    def _member(self, member_id: str) -> GenerationMember:
        saved = self._members.get(member_id) or self.lost.get(member_id)
        target = self._targets.get(member_id, NOTHING)
        if saved is None:
            return GenerationMember(member_id=member_id, assigned=target, problem=NOT_THERE)
        current = self._current.get(member_id)
        matched = self._regexes.get(saved.regex or "", ())
        parts = (saved, target, current, matched)
        known = self._made.get(member_id)
        if known is not None and all(map(is_, known[0], parts)):
            return known[1]
        made = self._built(saved, target, current, matched)
        self._made[member_id] = parts, made
        return made

    def _built(
        self,
        saved: MembershipSaved,
        target: Held,
        current: CurrentSaved | None,
        matched: tuple[str, ...],
    ) -> GenerationMember:
        classic = saved.classic if is_classic(saved) else None
        return GenerationMember(
            member_id=saved.member_id,
            static_id=saved.static_id,
            client_id=saved.client_id,
            client_host=saved.client_host,
            session_timeout=None if classic is None else classic.session_timeout,
            rebalance_timeout=saved.rebalance_timeout,
            rack=saved.rack,
            topics=tuple(sorted({*saved.topics, *matched})),
            owned=self._owned(current),
            owned_generation=None if current is None or current.epoch < 1 else current.epoch,
            assigned=target,
            library=library(
                Signs(group=saved.group, client_id=saved.client_id, static_id=saved.static_id)
            ),
        )

    def _owned(self, current: CurrentSaved | None) -> Held:
        if current is None or current.epoch == STATIC_LEFT:
            return NOTHING
        return self._held((*current.assigned, *current.revoking))

    def _held(self, topics: Iterable[TargetTopic | CurrentTopic]) -> Held:
        return held(
            (self._names.get(topic.topic_id) or id_text(topic.topic_id), partition)
            for topic in topics
            for partition in topic.partitions
        )


def is_classic(saved: MembershipSaved) -> bool:
    """A member of a consumer group that speaks the classic protocol."""
    return saved.classic is not None and bool(saved.classic.protocols)


def id_text(topic_id: bytes) -> str:
    """A topic's id as Kafka's tools print it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
