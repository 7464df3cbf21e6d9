"""What differs between two generations of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rota.replay.fact import Generation, GenerationMember, Held, Kind
from rota.replay.step import EAGER

CONSUMER_PROTOCOL = "consumer"
"""The protocol type whose subscriptions and assignments are about partitions."""
FORGETFUL = frozenset(("range", "roundrobin"))
"""Strategies that do not ask members what they had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """From one generation to another. Static members are known by their static id."""

    came: tuple[GenerationMember, ...]
    went: tuple[GenerationMember, ...]
    renewed: tuple[GenerationMember, ...]
    """Static members that are back under another member id."""
    resubscribed: tuple[GenerationMember, ...]
    """Members that stayed, and ask for other topics than before, or than they were given for: a
    static one may have come back with others."""
    found: tuple[str, ...]
    """Topics that nobody asked for or had before."""
    grown: tuple[str, ...]
    """Topics of which partitions are given out that were not before, among those asked for before
    and after."""
    shrunk: tuple[str, ...]
    """Topics of which there are fewer."""
    regained: bool
    """Somebody had claimed what is given out now and was not before: it may have been there."""
    astray: tuple[GenerationMember, ...]
    """Members that stayed, and did not say that they were in the generation before, or had what
    they were given there: they had a reason of their own to join. Not all members tell."""
    due: bool
    """Partitions had been taken and given to nobody: another round was to follow by itself."""
    strategy: bool
    """Another strategy is in use."""
    readable: bool
    """Every subscription and assignment could be read, so that what is not here did not differ."""

    @property
    def same_members(self) -> bool:
        """Nobody came or went."""
        return not (self.came or self.went or self.renewed)

    @property
    def same_work(self) -> bool:
        """What is asked for, and what there is to give, is as before."""
        return not (self.resubscribed or self.grown or self.shrunk)


def change(before: Generation, joined: Generation, settled: Generation | None = None) -> Change:
    """What differs between a generation and the next.

    ``settled`` is the last of a cooperative rebalance: only there has everything an owner again.
    """
    settled = settled or joined
    old, new = _by_key(before), _by_key(joined)
    stayed = [key for key in old if key in new]
    given, now = _given(before), _given(settled)
    asked = _topics(before) & _topics(settled)
    return Change(
        came=tuple(new[key] for key in new if key not in old),
        went=tuple(old[key] for key in old if key not in new),
        renewed=tuple(new[key] for key in stayed if new[key].member_id != old[key].member_id),
        resubscribed=tuple(
            new[key]
            for key in stayed
            if set(new[key].topics) != set(old[key].topics) or _is_misfit(old[key], before)
        ),
        found=tuple(sorted(_topics(settled) - _topics(before))),
        grown=tuple(sorted(asked & {topic for topic, _ in now - given})),
        shrunk=tuple(sorted(asked & {topic for topic, _ in given - now - _claimed(settled)})),
        regained=not _claimed(before).isdisjoint(now - given),
        astray=tuple(new[key] for key in stayed if _is_astray(old[key], new[key], before, joined)),
        due=_is_due(before),
        strategy=before.strategy != joined.strategy and before.kind is joined.kind,
        readable=all(_is_readable(one) for one in (before, joined, settled)),
    )


def _by_key(generation: Generation) -> Mapping[str | tuple[str], GenerationMember]:
    """Members by what they are known by: a tuple around static ids, which may look like any id."""
    return {
        member.member_id if member.static_id is None else (member.static_id,): member
        for member in generation.members
    }


def _given(generation: Generation) -> set[tuple[str, int]]:
    """The partitions that were given out."""
    return {
        (topic, number)
        for member in generation.members
        for topic, numbers in member.assigned.items()
        for number in numbers
    }


def _claimed(generation: Generation) -> set[tuple[str, int]]:
    """The partitions that members said they had: those on their way are given to nobody."""
    return {
        (topic, number)
        for member in generation.members
        for topic, numbers in member.owned.items()
        for number in numbers
    }


def _is_due(generation: Generation) -> bool:
    if generation.kind is not Kind.CLASSIC or generation.strategy in EAGER:
        return False
    asked = {topic for member in generation.members for topic in member.topics}
    return any(topic in asked for topic, _ in _claimed(generation) - _given(generation))


def _is_astray(
    old: GenerationMember, new: GenerationMember, before: Generation, joined: Generation
) -> bool:
    """It was not in the generation before, or has something else than it was given there, and not
    because it gave it up to join. A static member is kept though it is late, and joins then.
    """
    if joined.kind is not Kind.CLASSIC or new.owned_generation == before.generation:
        return False
    if new.owned_generation is not None:
        return True
    if joined.strategy in FORGETFUL or before.strategy != joined.strategy:
        return False  # what one strategy gave, another does not remember
    return _held(old.assigned) != _held(new.owned)


def _is_misfit(member: GenerationMember, generation: Generation) -> bool:
    """It was given what it does not ask for."""
    if generation.kind is not Kind.CLASSIC or member.problem is not None:
        return False
    return not set(_held(member.assigned)).issubset(member.topics)


def _held(partitions: Held) -> Held:
    return {topic: numbers for topic, numbers in partitions.items() if numbers}


def _topics(generation: Generation) -> set[str]:
    """What is asked for, and what is given: a pattern that the broker matches names no topic."""
    return {topic for member in generation.members for topic in (*member.topics, *member.assigned)}


def _is_readable(generation: Generation) -> bool:
    known = generation.kind is Kind.CONSUMER or generation.protocol_type == CONSUMER_PROTOCOL
    return known and all(member.problem is None for member in generation.members)
