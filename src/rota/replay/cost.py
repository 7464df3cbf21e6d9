"""What a rebalance cost: what moved against what had to, what stood still, who has nothing to do.

``moved``
    partitions whose owner is still a member that subscribes to their topic, and that now have
    another, or none yet: what a cooperative round took will be given to someone, also where the
    evidence ends before that; a static member is known by its static id
``moved_min``
    the fewest that any assignment with the best balance must move
``orphaned``
    partitions whose owner is gone
``stopped``
    partitions that a living member had to give up: under the eager protocol all that it had,
    under the others only what it did not keep. Over the rounds of a cooperative rebalance they
    add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rota.assignors.move import moved
from rota.model.membership import UNASSIGNED
from rota.model.topic import IntArray
from rota.replay.fact import Cost, Generation, GenerationMember, Held, Kind, Step
from rota.replay.scene import (
    COOPERATIVE_STICKY,
    Actor,
    Board,
    Placed,
    Poses,
    followed,
    identity,
    largest,
    seen_counts,
    without,
)

EAGER, COOPERATIVE, CONSUMER = "eager", "cooperative", "consumer"

BUILT_IN_EAGER = frozenset({"range", "roundrobin", "sticky"})


def cost(step: Step, poses: Poses | None = None) -> Cost:
    """Counts a step; one that began from nothing, or from what is not known, moved nothing.

    ``poses`` are shared where many steps of a group are counted.
    """
    after = step.after
    board, known = _partitions(step, poses)
    scene = board.scene(
        (
            Actor(board.number(identity(member)), member.member_id, member.static_id, member.topics)
            for member in after.members
        ),
        known,
    )
    before = _owners(board, step.before)
    placed = Placed.of(scene, scene.position[_owners(board, after)[scene.numbers]])
    previous = scene.previous(before)
    return Cost(
        moved=moved(_leaving(after, previous, placed.positions), placed.positions),
        moved_min=scene.fewest(previous),
        orphaned=int(np.count_nonzero(before != UNASSIGNED)) - scene.living(before),
        stopped=sum(_given_up(*pair) for pair in _pairs(step)),
        idle_members=placed.idle,
        most=placed.most,
        least=placed.least,
    )


def _leaving(after: Generation, previous: IntArray, now: IntArray) -> IntArray:
    """Previous owners of what can have moved: under the eager protocol nothing is on its way, so
    what nobody is given is not there to be given.
    """
    if after.kind is Kind.CLASSIC and after.strategy not in BUILT_IN_EAGER:
        return previous
    return np.where(now == UNASSIGNED, np.int32(UNASSIGNED), previous)


def _partitions(step: Step, poses: Poses | None) -> tuple[Board, Mapping[str, int]]:
    """All partitions that anyone had, and how many there are in the end."""
    generations = step.rounds if step.before is None else (step.before, *step.rounds)
    seen = [seen_counts(one) for one in generations]
    known: dict[str, int] = {}
    for one, counts in zip(generations, seen, strict=True):
        known = followed(one, known, counts)
    return Board(largest(seen), poses), without(known, step.absent)


def _owners(board: Board, generation: Generation | None) -> IntArray:
    members = () if generation is None else generation.members
    return board.owners((board.number(identity(member)), member.assigned) for member in members)


def _pairs(step: Step) -> Iterator[tuple[Generation, Generation]]:
    """Each round with what was before it."""
    before = step.before
    for one in step.rounds:
        if before is not None:
            yield before, one
        before = one


def _given_up(before: Generation, after: Generation) -> int:
    """Partitions that members of both had to give up between the two."""
    had = {identity(member): member for member in before.members}
    total = 0
    for member in after.members:
        old = had.get(identity(member))
        if old is None:
            continue
        total += _size(old.assigned)
        if not acts_eagerly(before, after, member):
            total -= _common(old.assigned, member.assigned)
    return total


def _size(held: Held) -> int:
    return sum(map(len, held.values()))


def _common(one: Held, other: Held) -> int:
    return sum(
        len(numbers) if other.get(topic) == numbers else len({*numbers} & {*other.get(topic, ())})
        for topic, numbers in one.items()
    )


def acts_eagerly(before: Generation, after: Generation, new: GenerationMember) -> bool:
    """Whether a member gave everything up before it joined.

    With cooperative-sticky it does so while its list has an eager strategy too: it then says that
    it owns nothing, in a generation in which it did. A static member that is down is kept in the
    group with what it said long ago.
    """
    if after.kind is Kind.CONSUMER:
        return False
    if after.strategy in BUILT_IN_EAGER:
        return True
    if new.owned or after.strategy != COOPERATIVE_STICKY:
        return not new.owned
    told = -1 if new.owned_generation is None else new.owned_generation
    return new.static_id is None or told >= before.generation


def protocol(step: Step) -> str:
    """``eager``, ``cooperative`` or ``consumer``: how members behaved, where that can be seen."""
    return observed_protocol(step) or COOPERATIVE


def observed_protocol(step: Step) -> str | None:
    """The same; None where a strategy may be used both ways and nobody had anything to keep."""
    after = step.after
    if after.kind is Kind.CONSUMER:
        return CONSUMER
    if after.strategy in BUILT_IN_EAGER:
        return EAGER
    behaved = {
        acts_eagerly(before, now, member)
        for before, now in _pairs(step)
        for member in _with_something_to_keep(before, now)
    }
    if not behaved:
        return None if after.strategy == COOPERATIVE_STICKY else EAGER
    return EAGER if behaved == {True} else COOPERATIVE


def _with_something_to_keep(before: Generation, now: Generation) -> Iterator[GenerationMember]:
    had = {identity(member): member.assigned for member in before.members}
    for member in now.members:
        if any(topic in member.topics for topic in had.get(identity(member), ())):
            yield member
