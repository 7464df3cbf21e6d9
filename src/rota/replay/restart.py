"""Who went and came back: restarts, found in the changes of a group's membership.

A static member is known by its static id. A dynamic one comes back as a stranger; it is taken for
the one that went if the client id and the host say so, or the client id alone, and no other
member could be meant. Deployments often change both. Where strangers come one after the other for
members that go one after the other, as in a rolling deploy, each is taken for the one that went
before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from rota.replay.fact import Cause, Generation, GenerationMember, Mark, Step

MINUTE = 60_000
LONGEST = 30 * MINUTE
"""``group.max.session.timeout.ms``: no session may be longer."""
DEPLOY = 5 * MINUTE
"""A stranger that comes later than this is no restart."""
SESSION = 45_000
"""The session timeout where none is known: Kafka's default, of both protocols."""

Causes: TypeAlias = Mapping[tuple[int, int], Cause]
"""By life and the generation that a rebalance ended in."""


class Event(NamedTuple):
    """A change of a group, in the order of the journal."""

    generation: Generation
    """What the group was after it."""
    step: Step | None
    """None: not a rebalance, a static member came back, or the group was sampled first."""

    @property
    def key(self) -> tuple[int, int]:
        """Life and generation."""
        return self.generation.life, self.generation.generation


def events(generations: Sequence[Generation], steps: Iterable[Step]) -> list[Event]:
    """Every rebalance, every return of a static member between them, and where it began."""
    ends = {(step.after.life, step.after.offset): step for step in steps}
    found = []
    for generation in generations:
        step = ends.get((generation.life, generation.offset))
        if step is not None or generation.mark in {Mark.REPLACED, Mark.FOUND}:
            found.append(Event(generation, step))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A member that went and came back."""

    gone: str
    """Its member id before."""
    back: str
    """And after."""
    gone_at: int
    """When its process ended, as far as can be told."""
    back_at: int
    named: bool
    """It is known by name; else it is one of a rolling deploy."""

    @property
    def away(self) -> int:
        """For how long, in milliseconds."""
        return max(self.back_at - self.gone_at, 0)


class _Absent(NamedTuple):
    member: GenerationMember
    since: int


def restarts(history: Sequence[Event], causes: Causes) -> list[Restart]:
    """Every restart, in the order of coming back."""
    named = _paired(history, causes, _by_name, LONGEST)
    taken = {one.gone for one in named} | {one.back for one in named}
    strangers = _paired(_without(history, taken), causes, _in_turn, DEPLOY)
    deployed = [replace(one, named=False) for one in _rolling(strangers)]
    return sorted(named + deployed, key=lambda one: (one.back_at, one.back))


Matching: TypeAlias = Callable[
    [Sequence[_Absent], Sequence[GenerationMember], Sequence[GenerationMember]],
    list[tuple[_Absent, GenerationMember]],
]
"""Pairs those who are absent with those who come, beside those who stay."""


def _paired(
    history: Iterable[Event], causes: Causes, match: Matching, longest: int
) -> list[Restart]:
    found: list[Restart] = []
    before: dict[str, GenerationMember] = {}
    absent: list[_Absent] = []
    life = -1
    for event in history:
        at = event.generation.at
        if event.generation.life != life:
            life, before, absent = event.generation.life, {}, []
        now = {member.member_id: member for member in event.generation.members}
        absent = [one for one in absent if at - one.since <= longest]
        absent += [
            _Absent(member, gone_at(member, event, causes))
            for member_id, member in before.items()
            if member_id not in now
        ]
        coming = [member for member_id, member in now.items() if member_id not in before]
        staying = [member for member_id, member in now.items() if member_id in before]
        for gone, back in match(absent, coming, staying):
            absent.remove(gone)
            found.append(
                Restart(
                    gone=gone.member.member_id,
                    back=back.member_id,
                    gone_at=gone.since,
                    back_at=at,
                    named=True,
                )
            )
        before = now
    return found


def gone_at(member: GenerationMember, event: Event, causes: Causes) -> int:
    """When a member that an event misses had gone: one that was not heard of any more (as a static
    one, which does not say that it goes) a session timeout earlier.
    """
    if event.step is None:
        return event.generation.at
    cause = causes.get(event.key)
    silent = cause is Cause.SILENT or (member.static_id is not None and cause is not Cause.LEFT)
    session = member.session_timeout or SESSION
    return event.generation.at - (session if silent else 0)


def _by_name(
    absent: Sequence[_Absent],
    coming: Sequence[GenerationMember],
    staying: Sequence[GenerationMember],
) -> list[tuple[_Absent, GenerationMember]]:
    pairs: list[tuple[_Absent, GenerationMember]] = []
    names: tuple[Callable[[GenerationMember], Hashable], ...] = (
        lambda member: member.static_id,
        lambda member: (member.client_id, member.client_host, member.static_id),
        lambda member: (member.client_id, member.static_id),
    )
    for name in names:
        left = [one for one in absent if all(one is not gone for gone, _ in pairs)]
        new = [one for one in coming if all(one is not back for _, back in pairs)]
        gone = Counter(name(one.member) for one in left)
        others = Counter(name(one) for one in (*new, *staying))
        by_name = {name(one.member): one for one in left}
        pairs += [
            (by_name[name(one)], one)
            for one in new
            if name(one) is not None and gone[name(one)] == 1 and others[name(one)] == 1
        ]
    return pairs


def _in_turn(
    absent: Sequence[_Absent],
    coming: Sequence[GenerationMember],
    staying: Sequence[GenerationMember],  # noqa: ARG001 (strangers are compared with nobody)
) -> list[tuple[_Absent, GenerationMember]]:
    """The longest absent first, of those that asked for the same topics."""
    pairs = []
    left = sorted(absent, key=lambda one: one.since)
    for one in sorted(coming, key=lambda member: member.member_id):
        same = (gone for gone in left if {*gone.member.topics} == {*one.topics})
        if one.static_id is None and (found := next(same, None)) is not None:
            left.remove(found)
            pairs.append((found, one))
    return pairs


def _without(history: Iterable[Event], known: set[str]) -> list[Event]:
    """The same history without members that are known by name."""
    return [
        event._replace(
            generation=replace(
                event.generation,
                members=tuple(
                    one
                    for one in event.generation.members
                    if one.member_id not in known and one.static_id is None
                ),
            )
        )
        for event in history
    ]


def _rolling(pairs: Sequence[Restart]) -> list[Restart]:
    """Those that follow each other: one alone may be a member that went and another that came."""
    ordered = sorted(pairs, key=lambda one: (one.gone_at, one.back_at))
    runs: list[list[Restart]] = []
    for one in ordered:
        if runs and one.gone_at - runs[-1][-1].back_at <= DEPLOY:
            runs[-1].append(one)
        else:
            runs.append([one])
    return [one for run in runs if len(run) > 1 for one in run]
