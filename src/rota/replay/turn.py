"""A group's history as it would have gone with dynamic or with static members.

The same applications come, go and fail at the same times. With dynamic members every one of these
is a rebalance. A static member that is back within its session timeout causes none; one that is
not costs a rebalance when the session ends, and another when it comes after all.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from rota.replay.fact import Generation, GenerationMember, Mark
from rota.replay.restart import Causes, Event, Restart, gone_at
from rota.replay.scene import Actor, Board, Scene, followed, without

FOREVER = 2**62


class Turn(NamedTuple):
    """A rebalance that there was, or would have been."""

    life: int
    generation: int
    at: int
    """When the journal has it; rows of one generation are told apart by it."""
    scene: Scene | None
    """The group after it; None: nothing happens."""
    needed: bool = True
    """Someone came, went or asked for something else, or partitions were added: a group whose
    broker assigns does not rebalance for less."""
    afresh: bool = False
    """Nothing of what was before is known or counts any more."""
    on_the_way: tuple[Scene, ...] = ()
    """The group in earlier rounds of the same rebalance, where that was another: a cooperative one
    may meet with others between its rounds."""
    is_start: bool = False
    """No rebalance: where the evidence finds the group, for what follows to begin from."""
    session_end: int | None = None
    """When it comes about, where a session has to end first."""

    @property
    def happens_at(self) -> int:
        """When it comes about, if it does."""
        return self.at if self.session_end is None else self.session_end


class Place(NamedTuple):
    """A moment of a history: an event with the partition counts after it."""

    event: Event
    counts: Mapping[str, int]
    earlier: tuple[tuple[Generation, Mapping[str, int]], ...] = ()
    """The rounds before the last, with the counts after each."""


def places(history: Sequence[Event]) -> list[Place]:
    """Partition counts are followed from event to event."""
    known: dict[str, int] = {}
    life = -1
    found = []
    for event in history:
        if event.generation.life != life:
            life, known = event.generation.life, {}
        earlier = []
        for one in () if event.step is None else event.step.rounds[:-1]:
            known = followed(one, known)
            earlier.append((one, known))
        known = followed(event.generation, known)
        if event.step is not None:
            known = without(known, event.step.absent)
        found.append(Place(event, known, tuple(earlier)))
    return found


def dynamic(history: Sequence[Place], board: Board) -> list[Turn]:
    """Every member is known by its member id alone: the return of a static member is two
    rebalances, one when it goes and one when it is back.

    When it went is not in the journal. That row stands a millisecond before the return, since rows
    of one generation are told apart by their times.
    """
    turns: list[Turn] = []
    times = _Times()
    here: tuple[GenerationMember, ...] = ()
    counts: Mapping[str, int] = {}
    life = -1
    for (generation, step), now, earlier in history:
        afresh = generation.life != life
        if generation.mark is Mark.FOUND:
            life = generation.life
            turns.append(_start(generation, _cast(board, generation.members, now)))
        elif step is None and not afresh:
            ids = {member.member_id for member in generation.members}
            stayed = tuple(member for member in here if member.member_id in ids)
            if len(stayed) < len(here):
                at = times.free(generation, generation.at - 1, later=False)
                turns.append(_turn(generation, at, _cast(board, stayed, now)))
            at = times.free(generation, generation.at, later=True)
            turns.append(_turn(generation, at, _cast(board, generation.members, now)))
        elif step is not None:
            life = generation.life
            at = times.free(generation, generation.at, later=True)
            scene = _cast(board, generation.members, now)
            needed = afresh or _asking(here) != _asking(generation.members) or counts != now
            met = _met((_cast(board, one.members, known) for one, known in earlier), scene)
            turns.append(Turn(life, generation.generation, at, scene, needed, afresh, met))
        here, counts = generation.members, now
    return turns


def _turn(generation: Generation, at: int, scene: Scene) -> Turn:
    return Turn(generation.life, generation.generation, at, scene)


def _start(generation: Generation, scene: Scene) -> Turn:
    turn = _turn(generation, generation.at, scene)
    return turn._replace(afresh=True, is_start=True)


def _met(scenes: Iterable[Scene], last: Scene) -> tuple[Scene, ...]:
    """Those that differ from what follows them: a round in the same scene comes by itself."""
    listed = [*scenes, last]
    return tuple(one for one, following in pairwise(listed) if one is not following)


def _asking(members: Iterable[GenerationMember]) -> dict[str, frozenset[str]]:
    return {member.member_id: frozenset(member.topics) for member in members}


def _cast(board: Board, members: Iterable[GenerationMember], counts: Mapping[str, int]) -> Scene:
    return board.scene(
        (
            Actor(board.number(member.member_id), member.member_id, None, member.topics)
            for member in members
        ),
        counts,
    )


class _Times:
    """Times of rows that are taken."""

    def __init__(self) -> None:
        self._taken: set[tuple[int, int, int]] = set()

    def free(self, generation: Generation, at: int, *, later: bool) -> int:
        """The nearest time that no other row of this generation has."""
        while (generation.life, generation.generation, at) in self._taken:
            at += 1 if later else -1
        self._taken.add((generation.life, generation.generation, at))
        return at


@dataclass(slots=True)
class _Person:
    """Who is behind one or more member ids."""

    name: str
    static_id: str
    topics: tuple[str, ...] = ()


@dataclass(slots=True)
class _Pending:
    """A rebalance of the journal that has not been one yet."""

    generation: Generation
    waiting: int = 0
    """Members of it whose session is not over."""
    turns: int = 0


def static(
    history: Sequence[Place],
    board: Board,
    known: Sequence[Restart],
    session: int,
    causes: Causes,
) -> list[Turn]:
    """Every member has a static id, and this session timeout."""
    return _Static(board, known, session, causes).turns_of(history)


@dataclass(slots=True)
class _Leaver:
    person: str
    pending: _Pending


@dataclass
class _Static:
    board: Board
    known: Sequence[Restart]
    session: int
    causes: Causes
    turns: list[Turn] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._before = {one.back: one.gone for one in self.known}
        self._people: dict[str, _Person] = {}
        """By member id."""
        self._here: dict[str, _Person] = {}
        """Whom the coordinator counts, by name: also those whose session is not over yet."""
        self._sessions: list[tuple[int, int, _Leaver]] = []
        self._away: dict[str, _Leaver] = {}
        self._order = 0
        self._times = _Times()
        self._scene: Scene | None = None
        self._counts: Mapping[str, int] = {}
        self._afresh = True

    def turns_of(self, history: Sequence[Place]) -> list[Turn]:
        """Plays the history."""
        life = -1
        members: Mapping[str, GenerationMember] = {}
        for place in history:
            generation = place.event.generation
            if generation.life != life:
                self._expire(FOREVER)
                self._forget()
                members = {}
            self._expire(generation.at)
            now = {member.member_id: member for member in generation.members}
            self._happen(place, members, now)
            members, life = now, generation.life
        self._expire(FOREVER)
        return self.turns

    def _forget(self) -> None:
        self._here, self._away, self._sessions = {}, {}, []
        self._scene, self._counts = None, {}
        self._afresh = True

    def _happen(
        self,
        place: Place,
        before: Mapping[str, GenerationMember],
        now: Mapping[str, GenerationMember],
    ) -> None:
        generation, step = place.event
        pending = _Pending(generation)
        returning = {self._before[one] for one in now if one in self._before}
        for member_id in before.keys() - now.keys() - returning:
            since = gone_at(before[member_id], place.event, self.causes)
            self._leave(self._people[member_id].name, since + self.session, pending)
        for member_id in sorted(now):
            self._arrive(now[member_id])
        self._counts = place.counts
        if generation.mark is Mark.FOUND:
            self._scene, self._afresh = self._current(), False
            self.turns.append(_start(generation, self._scene))
            return
        if step is None:  # back with other topics it is a rebalance, but the next one
            return
        scene = self._current()
        changed = scene is not self._scene
        idle = before.keys() == now.keys()
        if changed or (idle and not pending.waiting):
            self._turn(pending, scene, needed=changed)
        elif not pending.waiting:
            self._turn(pending, None)

    def _leave(self, name: str, until: int, pending: _Pending) -> None:
        if name in self._away:
            return
        leaver = self._away[name] = _Leaver(name, pending)
        pending.waiting += 1
        self._order += 1
        heapq.heappush(self._sessions, (until, self._order, leaver))

    def _arrive(self, member: GenerationMember) -> None:
        person = self._people.get(member.member_id)
        if person is None:
            person = self._people.get(self._before.get(member.member_id, ""))
        if person is None:
            person = _Person(member.member_id, member.static_id or member.member_id)
        self._people[member.member_id] = person
        person.topics = member.topics
        self._here[person.name] = person
        leaver = self._away.pop(person.name, None)
        if leaver is not None:
            self._return(leaver.pending)

    def _return(self, pending: _Pending) -> None:
        """Someone is back in time. If that was all the rebalance was about, there was none."""
        pending.waiting -= 1
        if not pending.waiting and not pending.turns:
            self._turn(pending, None)

    def _expire(self, now: int) -> None:
        """Ends the sessions that are over."""
        while self._sessions and self._sessions[0][0] < now:
            until, _, leaver = heapq.heappop(self._sessions)
            gone = [leaver]
            while self._sessions and self._sessions[0][0] == until:
                gone.append(heapq.heappop(self._sessions)[2])
            gone = [one for one in gone if self._away.get(one.person) is one]
            for one in gone:
                del self._away[one.person], self._here[one.person]
                one.pending.waiting -= 1
            if gone:
                self._turn(gone[0].pending, self._current(), at=until)
            for one in gone[1:]:  # they went at one moment, though the journal has them apart
                if not one.pending.waiting and not one.pending.turns:
                    self._turn(one.pending, None)

    def _current(self) -> Scene:
        return self.board.scene(
            (
                Actor(
                    self.board.number(f"person {person.name}"),
                    person.name,
                    person.static_id,
                    person.topics,
                )
                for person in self._here.values()
            ),
            self._counts,
        )

    def _turn(
        self,
        pending: _Pending,
        scene: Scene | None,
        *,
        at: int | None = None,
        needed: bool = True,
    ) -> None:
        """A row. The first of a rebalance of the journal has its time, further ones their own.

        :param at: the end of the session that it waited for
        """
        generation, session_end = pending.generation, at
        if at is None or not pending.turns:
            at = generation.at
        at = self._times.free(generation, at, later=True)
        pending.turns += 1
        self.turns.append(
            Turn(
                generation.life,
                generation.generation,
                at,
                scene,
                needed,
                self._afresh,
                session_end=session_end,
            )
        )
        if scene is not None:
            self._scene = scene
            self._afresh = False


def happening(turns: Iterable[Turn]) -> Iterator[Turn]:
    """Those that are rebalances."""
    return (turn for turn in turns if turn.scene is not None)
