"""What differs between two generations of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rota.replay.fact import Generation, GenerationMember, Kind

CONSUMER_PROTOCOL = "consumer"
"""The protocol type whose subscriptions and assignments are about partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """From one generation to another. Static members are known by their static id."""

    came: tuple[GenerationMember, ...]
    went: tuple[GenerationMember, ...]
    renewed: tuple[GenerationMember, ...]
    """Static members that are back under another member id."""
    resubscribed: tuple[GenerationMember, ...]
    """Members that stayed, and ask for other topics than before."""
    found: tuple[str, ...]
    """Topics that nobody asked for or had before."""
    grown: tuple[str, ...]
    """Topics with more partitions than before, among those asked for before and after."""
    shrunk: tuple[str, ...]
    """Topics with fewer."""
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
    known, now = _partitions(before), _partitions(settled)
    asked = _topics(before) & _topics(settled)
    return Change(
        came=tuple(new[key] for key in new if key not in old),
        went=tuple(old[key] for key in old if key not in new),
        renewed=tuple(new[key] for key in stayed if new[key].member_id != old[key].member_id),
        resubscribed=tuple(
            new[key] for key in stayed if set(new[key].topics) != set(old[key].topics)
        ),
        found=tuple(sorted(_topics(settled) - _topics(before))),
        grown=tuple(sorted(asked & _more(_given(settled), known))),
        shrunk=tuple(sorted(asked & _more(_given(before), now))),
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


def _partitions(generation: Generation) -> set[tuple[str, int]]:
    """The partitions that there were: those on their way between members are given to nobody."""
    return _given(generation) | {
        (topic, number)
        for member in generation.members
        for topic, numbers in member.owned.items()
        for number in numbers
    }


def _more(some: set[tuple[str, int]], than: set[tuple[str, int]]) -> set[str]:
    """Topics with partitions that are not in the other set."""
    return {topic for topic, _ in some - than}


def _topics(generation: Generation) -> set[str]:
    """What is asked for, and what is given: a pattern that the broker matches names no topic."""
    return {topic for member in generation.members for topic in (*member.topics, *member.assigned)}


def _is_readable(generation: Generation) -> bool:
    known = generation.kind is Kind.CONSUMER or generation.protocol_type == CONSUMER_PROTOCOL
    return known and all(member.problem is None for member in generation.members)
