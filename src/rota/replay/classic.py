"""Generations of classic groups: one GroupMetadata record is one generation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rota.errors import FormatError
from rota.formats import assignment, subscription, userdata
from rota.model.entry import NO_TIMESTAMP, GroupSaved, SavedMember
from rota.model.membership import Ownership, Subscription
from rota.model.topic import Partitions
from rota.replay.course import Course, ahead, key
from rota.replay.fact import Generation, GenerationMember, Held, Kind, Mark, Written
from rota.replay.library import Signs, library
from rota.replay.ownership import NOTHING

CONSUMER = "consumer"
"""The protocol type whose bytes are subscriptions and assignments."""
LIBRARIES = 10_000
"""So many members' libraries are remembered."""
STICKY, COOPERATIVE = "sticky", "cooperative-sticky"


class Classic:
    """Reads the generations of one classic group."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._strategy = ""
        self._known: dict[str, tuple[SavedMember, GenerationMember]] = {}
        """The consumers of the generation before, as they were saved and read: who is the same in
        the next is the same object."""
        self._read: dict[bytes, Held | FormatError] = {}
        """Its assignments by their bytes."""
        self._libraries: dict[Signs, str | None] = {}

    def see(self, written: Written, entry: GroupSaved, *, converted: bool) -> None:
        """A generation was saved; ``converted``: in place of a consumer group."""
        course = self._course
        if course.last is not None and not _goes_on(course.last, entry, converted=converted):
            # no tombstone between them, but it is not what a group becomes of that generation
            course.begin_anew(written.at)
        mark = _mark(entry, course.last, converted=converted)
        generation = Generation(
            group=course.group,
            kind=Kind.CLASSIC,
            life=course.life,
            generation=entry.generation,
            mark=mark,
            at=written.at,
            state_at=None if entry.state_timestamp == NO_TIMESTAMP else entry.state_timestamp,
            offset=written.offset,
            protocol_type=entry.protocol_type,
            strategy=entry.protocol,
            leader=entry.leader,
            members=self.members(entry),
        )
        course.add(generation)
        course.ledger.keep({member.member_id for member in generation.members}, written.at)
        for member in generation.members:
            course.ledger.hold(member, member.assigned, written.at, entry.generation)

    def members(self, entry: GroupSaved) -> tuple[GenerationMember, ...]:
        """Who is in a generation, by id, with what their bytes say."""
        saved = sorted(entry.members, key=lambda member: member.member_id)
        if entry.protocol_type != CONSUMER:
            return tuple(_member(one) for one in saved)
        strategy = entry.protocol or ""
        found = [self._same(strategy, one) for one in saved]
        new = [one for one, known in zip(saved, found, strict=True) if known is None]
        told = subscription.decode_all([(one.subscription, one.static_id) for one in new])
        made = (
            self._consumer(entry.group, strategy, *piece)
            for piece in zip(new, told, _owned(strategy, told), strict=True)
        )
        members = tuple([next(made) if known is None else known for known in found])
        # of those who are gone nothing is kept: a group may live long
        self._strategy = strategy
        self._known = {pair[0].member_id: pair for pair in zip(saved, members, strict=True)}
        self._read = {data: self._read[data] for one in saved if (data := one.assignment)}
        if len(self._libraries) > LIBRARIES:
            self._libraries.clear()
        return members

    def _same(self, strategy: str, saved: SavedMember) -> GenerationMember | None:
        """A member that is as it was in the generation before."""
        known = self._known.get(saved.member_id) if strategy == self._strategy else None
        return known[1] if known is not None and known[0] == saved else None

    def _consumer(
        self,
        group: str,
        strategy: str,
        saved: SavedMember,
        told: Subscription | FormatError,
        owned: Ownership | None,
    ) -> GenerationMember:
        assigned = self._assigned(saved.assignment)
        wrong = [str(one) for one in (told, assigned) if isinstance(one, FormatError)]
        if owned is not None and owned.note is not None:
            wrong.append(owned.note)
        known = None if isinstance(told, FormatError) else told
        generation = None if owned is None or owned.generation < 0 else owned.generation
        return _member(
            saved,
            rack=None if known is None else known.rack,
            topics=() if known is None else known.topics,
            owned=NOTHING if owned is None else held(owned.partitions),
            owned_generation=generation,
            assigned=NOTHING if isinstance(assigned, FormatError) else assigned,
            library=self._library(Signs.of(group, strategy, saved, known)),
            problem="; ".join(wrong) or None,
        )

    def _library(self, signs: Signs) -> str | None:
        if signs not in self._libraries:
            self._libraries[signs] = library(signs)
        return self._libraries[signs]

    def _assigned(self, data: bytes) -> Held | FormatError:
        """A member that the leader left out has no bytes, which is nothing and not wrong."""
        if not data:
            return NOTHING
        found = self._read.get(data)
        if found is None:
            try:
                found = held(assignment.decode(data).partitions)
            except FormatError as error:
                found = error
            self._read[data] = found
        return found


def is_new(entry: GroupSaved) -> bool:
    """A group that was just made: Kafka 4 saves it before anybody has joined."""
    return not entry.generation and not entry.members and entry.protocol is None


def _goes_on(last: Generation, entry: GroupSaved, *, converted: bool) -> bool:
    """Numbers do not fall in a group's life, and one comes again only for static members' sake."""
    gain = ahead(entry.generation, last.generation)
    if gain or converted:
        return gain >= 0 and not is_new(entry)
    return {key(member) for member in last.members} == {
        member.static_id or member.member_id for member in entry.members
    }


def held(partitions: Partitions | Iterable[tuple[str, int]]) -> Held:
    """Partitions by topic, in order, each once."""
    if isinstance(partitions, Partitions):
        if not len(partitions):
            return NOTHING
        numbers = partitions.numbers
        if len(partitions.names) == 1 and bool((numbers[1:] > numbers[:-1]).all()):
            return {partitions.names[0]: tuple(numbers.tolist())}
        found: Mapping[str, Sequence[int]] = partitions.by_topic()
    else:
        found = _grouped(partitions)
    return {topic: tuple(sorted(set(found[topic]))) for topic in sorted(found)}


def _grouped(pairs: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in pairs:
        found.setdefault(topic, []).append(partition)
    return found


def _mark(entry: GroupSaved, last: Generation | None, *, converted: bool) -> Mark:
    if is_new(entry):
        return Mark.CREATED
    if converted:
        return Mark.CONVERTED
    if last is not None and last.generation == entry.generation:
        return Mark.REPLACED
    return Mark.SETTLED if entry.members else Mark.EMPTIED


def _owned(strategy: str, told: Sequence[Subscription | FormatError]) -> list[Ownership | None]:
    """What each member said it owned: under sticky in its user data, else in its subscription."""
    found: list[Ownership | None] = [
        None if isinstance(one, FormatError) else _claim(strategy, one) for one in told
    ]
    if strategy != STICKY:
        return found
    with_data = {
        position: one.user_data
        for position, one in enumerate(told)
        if isinstance(one, Subscription) and one.user_data
    }
    read = userdata.decode_sticky_all(list(with_data.values()))
    for position, claim in zip(with_data, read, strict=True):
        found[position] = claim
    return found


def _claim(strategy: str, told: Subscription) -> Ownership:
    generation = told.generation
    if generation is None and strategy == COOPERATIVE and told.user_data:
        generation, _ = userdata.decode_cooperative(told.user_data)
    return Ownership(partitions=told.owned, generation=-1 if generation is None else generation)


def _member(saved: SavedMember, **known: object) -> GenerationMember:
    return GenerationMember(
        member_id=saved.member_id,
        static_id=saved.static_id,
        client_id=saved.client_id,
        client_host=saved.client_host,
        session_timeout=saved.session_timeout,
        rebalance_timeout=saved.rebalance_timeout,
        **known,  # type: ignore[arg-type]
    )
