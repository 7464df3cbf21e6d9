"""The work that Rota and its peers are given, defined once.

A case is topics, the distinct subscriptions to them, and steps: a group at a moment. A step may
come after another one, and then each member owns what the contestant itself gave it there. Peers
read a case from a text file::

    topics 2
    t0 10
    t1 20
    classes 1
    0 1
    step fresh - untimed 1
    m0 0
    step leave fresh timed 1
    m0 0

that is, per topic its name and count, per class its topics' positions, per step its name, the
step it comes after, how it is played, and per member its id and class.
"""

from __future__ import annotations

import enum
import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

#: For subscriptions drawn at random.
SEED = 7


class StepKind(enum.StrEnum):
    """How a step is played."""

    TIMED = "timed"
    UNTIMED = "untimed"
    #: Not solved: each topic is dealt in a circle over its subscribers.
    DEALT = "dealt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A group at a moment: member ids with the class of each."""

    name: str
    members: tuple[tuple[str, int], ...]
    after: str | None = None
    play: StepKind = StepKind.TIMED


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Topics with their counts, classes of topics' positions, and what happens to the group."""

    name: str
    topics: tuple[tuple[str, int], ...]
    classes: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]

    @property
    def size(self) -> int:
        """How many partitions there are in all."""
        return sum(count for _, count in self.topics)

    def write(self, path: Path) -> None:
        """The file that peers read."""
        lines = [f"topics {len(self.topics)}"]
        lines += [f"{topic} {count}" for topic, count in self.topics]
        lines += [f"classes {len(self.classes)}"]
        lines += [" ".join(map(str, topics)) for topics in self.classes]
        for step in self.steps:
            lines += [f"step {step.name} {step.after or '-'} {step.play} {len(step.members)}"]
            lines += [f"{member} {number}" for member, number in step.members]
        path.write_text("\n".join(lines) + "\n")


def read_case(path: Path) -> Case:
    """A case out of its file."""
    lines = iter(path.read_text().splitlines())

    def block(size: int) -> list[list[str]]:
        return [next(lines).split() for _ in range(size)]

    topics = block(int(next(lines).split()[1]))
    classes = block(int(next(lines).split()[1]))
    steps = []
    for line in lines:
        _, name, after, play, size = line.split()
        steps.append(
            Step(
                name=name,
                members=tuple((member, int(number)) for member, number in block(int(size))),
                after=None if after == "-" else after,
                play=StepKind(play),
            )
        )
    return Case(
        name=path.stem,
        topics=tuple((topic, int(count)) for topic, count in topics),
        classes=tuple(tuple(map(int, row)) for row in classes),
        steps=tuple(steps),
    )


Group = tuple[tuple[str, int], ...]


def topics(number: int, partitions: int) -> tuple[tuple[str, int], ...]:
    """Returns topics with the same number of partitions each, sorted by name.

    Names are scattered: names that differ in a running number alone collide in the hashed
    collections in which Java decodes subscriptions, which costs it many times the decoding.
    """
    names = (hashlib.sha256(b"%d" % position).hexdigest()[:12] for position in range(number))
    return tuple((f"topic-{name}", partitions) for name in sorted(names))


def members(classes: Iterable[int]) -> Group:
    """Members in the order of their ids, each with its class."""
    return tuple((f"member-{position:05d}", number) for position, number in enumerate(classes))


def remove_middle_member(group: Group) -> Group:
    """The group after the member in its middle left."""
    middle = len(group) // 2
    return group[:middle] + group[middle + 1 :]


def add_member(group: Group, number: int = 0) -> Group:
    """The group after a member of this class joined."""
    return (*group, ("newcomer", number))


def member_changes(fresh: Group, *, newcomer: int = 0) -> tuple[Step, ...]:
    """A new group, the same after one left, and the same after one joined instead."""
    return (
        Step(name="fresh", members=fresh),
        Step(name="leave", members=remove_middle_member(fresh), after="fresh"),
        Step(name="join", members=add_member(fresh, newcomer), after="fresh"),
    )


def equal() -> Case:
    """A million partitions, equal subscriptions."""
    return Case(
        name="equal",
        topics=topics(500, 2_000),
        classes=(tuple(range(500)),),
        steps=member_changes(members([0] * 2_000)),
    )


def one_differs() -> Case:
    """The same and one member with one topic, which ends every shortcut for equal members."""
    group = (*members([0] * 2_000), ("other", 1))
    return Case(
        name="one-differs",
        topics=topics(500, 2_000),
        classes=(tuple(range(500)), (250,)),
        steps=member_changes(group),
    )


def newcomer() -> Case:
    """An even group that one with another subscription joins."""
    group = members([0] * 800)
    return Case(
        name="newcomer",
        topics=topics(200, 200),
        classes=(tuple(range(200)), tuple(range(0, 200, 2))),
        steps=(
            Step(name="before", members=group, play=StepKind.UNTIMED),
            Step(name="join", members=add_member(group, 1), after="before"),
        ),
    )


def draw_subscriptions(
    number: int, groups: int, least: int, most: int, *, seed: int = SEED
) -> tuple[tuple[int, ...], ...]:
    """For each member its topics: between least and most of them, no two members alike."""
    chance = random.Random(seed)
    found: dict[tuple[int, ...], None] = {}
    while len(found) < groups:
        size = chance.randint(least, most)
        found.setdefault(tuple(sorted(chance.sample(range(number), size))))
    return tuple(found)


def scattered() -> Case:
    """Few topics each; every member can have the same load, if one looks for it."""
    classes = draw_subscriptions(1_000, 1_000, 1, 20)
    return Case(
        name="scattered",
        topics=topics(1_000, 10),
        classes=classes,
        steps=(Step(name="fresh", members=members(range(len(classes)))),),
    )


def one_topic_each() -> Case:
    """Seven services in one group; one member left.

    Dealt at first, because kafka-python takes a minute for that step; the member that leaves is one
    of twelve, so that 240 partitions do not divide evenly among those that stay.
    """
    group = members([position % 7 for position in range(83)])
    return Case(
        name="one-topic-each",
        topics=topics(7, 240),
        classes=tuple((topic,) for topic in range(7)),
        steps=(
            Step(name="before", members=group, play=StepKind.DEALT),
            Step(name="leave", members=group[:-1], after="before"),
        ),
    )


def _all_different(name: str, counts: tuple[int, int], classes: Sequence[tuple[int, ...]]) -> Case:
    group = members(range(len(classes)))
    return Case(
        name=name,
        topics=topics(*counts),
        classes=tuple(classes),
        steps=(
            Step(name="fresh", members=group),
            Step(name="leave", members=remove_middle_member(group), after="fresh"),
        ),
    )


def different() -> Case:
    """Every member subscribes to another set, of any size."""
    return _all_different("different", (200, 200), draw_subscriptions(200, 500, 1, 200))


def different_large() -> Case:
    """Thousands of topics and members, every set another."""
    return _all_different("different-large", (5_000, 20), draw_subscriptions(5_000, 5_000, 5, 50))


def dealt_equal() -> Case:
    """A million partitions for the strategies that keep nothing."""
    fresh = Step(name="fresh", members=members([0] * 2_000))
    return Case(
        name="dealt-equal",
        topics=topics(500, 2_000),
        classes=(tuple(range(500)),),
        steps=(fresh,),
    )


def dealt_many() -> Case:
    """More members than a topic has partitions."""
    fresh = Step(name="fresh", members=members([0] * 10_000))
    return Case(
        name="dealt-many",
        topics=topics(1_000, 500),
        classes=(tuple(range(1_000)),),
        steps=(fresh,),
    )


def small() -> Case:
    """The group that most people have."""
    return Case(
        name="small",
        topics=topics(3, 12),
        classes=((0, 1, 2),),
        steps=member_changes(members([0] * 3)),
    )
