"""From one settled generation to the next: the rebalances of a group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from rota.replay.course import ahead, key
from rota.replay.fact import Generation, Kind, Mark, Step

EAGER = frozenset({"range", "roundrobin", "sticky"})
"""Strategies whose members give everything up before they join."""
FIRST = {Kind.CLASSIC: 1, Kind.CONSUMER: 2}
"""The highest number of a new group's first generation; of consumer groups 1 before Kafka 4.1."""


def steps(generations: Iterable[Generation]) -> list[Step]:
    """The rebalances of one group, from all of its generations in journal order.

    A new group's empty entry, a static member's return, a conversion, a deletion and what a first
    sample finds are none. That
    the last member is gone is one, and so is each target that was computed for a consumer group.
    """
    walk = _Walk()
    for generation in generations:
        walk.see(generation)
    walk.close()
    return walk.found


class _Walk:
    def __init__(self) -> None:
        self.found: list[Step] = []
        self._rounds: list[Generation] = []
        """Of the rebalance that may not be over."""
        self._begin(None, 0)

    def _begin(self, life: int | None, number: int | None, *, known: bool = False) -> None:
        """Nobody is in the group. Not ``known``: nothing of this life was seen yet."""
        self._life = life
        self._before: Generation | None = None
        self._number = number
        self._known = known

    def see(self, generation: Generation) -> None:
        """The next generation."""
        if generation.life != self._life:
            self.close()
            self._begin(generation.life, 0)
        match generation.mark:
            case Mark.CREATED:
                self._begin(generation.life, generation.generation, known=True)
            case Mark.SETTLED:
                if not (self._rounds and is_unfinished(self._rounds[-1], generation)):
                    self.close(generation)
                    self._open(generation)
                self._rounds.append(generation)
                self._stand(generation)
            case Mark.EMPTIED:
                self.close()
                self._open(generation)
                self._rounds.append(generation)
                self._stand(generation)
            case Mark.REPLACED | Mark.FOUND:
                self._stand(generation)
            case Mark.CONVERTED:
                # who left at that moment is in the generation before it: that stays where it is;
                # and without one, who was there is not known
                if not self._known and self._before is None:
                    self._begin(generation.life, None, known=True)
            case Mark.FORGOTTEN:
                self.close()
            case _:
                assert_never(generation.mark)

    def _stand(self, generation: Generation) -> None:
        """What the next rebalance begins from."""
        self._before = generation if generation.members else None
        self._number = generation.generation
        self._known = True

    def _open(self, generation: Generation) -> None:
        if not self._known and not is_first(generation):
            self._number = None
        self._from = self._before, self._number

    def close(self, following: Generation | None = None) -> None:
        """The rebalance is over, and was followed by another."""
        if not self._rounds:
            return
        before, number = self._from
        rounds, self._rounds = tuple(self._rounds), []
        self.found.append(
            Step(
                before=before,
                rounds=rounds,
                unseen=sum(_skipped(number, rounds)),
                known_before=number is not None,
                from_generation=number,
                absent=frozenset() if following is None else _absent(rounds[-1], following),
            )
        )


def _absent(generation: Generation, following: Generation) -> frozenset[str]:
    """Topics that both ask for, and neither gives out; who says it has some knows better."""
    listed = [*generation.members, *following.members]
    there = {topic for member in listed for topic, numbers in member.assigned.items() if numbers}
    there |= {topic for member in following.members for topic in member.owned}
    return (_asked(generation) & _asked(following)) - there


def _skipped(number: int | None, rounds: Iterable[Generation]) -> Iterator[int]:
    for one in rounds:
        if number is not None and not (number == 0 and is_first(one)):
            yield max(ahead(one.generation, number) - 1, 0)
        number = one.generation


def is_first(generation: Generation) -> bool:
    """Whether nothing was before it, where no earlier generation was seen: by its number, and by
    what its members say they had.
    """
    if not 0 <= generation.generation <= FIRST[generation.kind]:
        return False
    if generation.kind is Kind.CONSUMER:
        return not any(member.owned for member in generation.members)
    return all(member.owned_generation is None for member in generation.members)


def is_unfinished(generation: Generation, following: Generation) -> bool:
    """Whether the following generation is another round of the same rebalance (KIP-429).

    Under a cooperative strategy a partition that shall move is first only taken: a member that said
    it had it is still there, nobody has it, and the next generation gives it to somebody. Taken and
    not given later is no round: its topic is gone. Nor is one where all that had to give something
    up were gone before the next: that one began because of them.
    """
    if generation.kind is not Kind.CLASSIC or generation.strategy in EAGER:
        return False
    given = _assigned(generation)
    wanted = _asked(generation)
    still_there = {key(member) for member in following.members}
    taken = {
        (topic, partition)
        for member in generation.members
        if key(member) in still_there
        for topic, numbers in member.owned.items()
        if topic in wanted
        for partition in numbers
    } - given
    return bool(taken) and not taken.isdisjoint(_assigned(following))


def _asked(generation: Generation) -> frozenset[str]:
    return frozenset().union(*{member.topics for member in generation.members})


def _assigned(generation: Generation) -> set[tuple[str, int]]:
    return {
        (topic, partition)
        for member in generation.members
        for topic, numbers in member.assigned.items()
        for partition in numbers
    }
