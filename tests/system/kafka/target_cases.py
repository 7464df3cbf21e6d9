"""Random histories of consumer groups (KIP-848), as Rota takes them and as TargetOracle reads
them.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random

from rota.engine.assignors.interface import ColumnarAssignor, assign_checked
from rota.engine.assignors.problem import Problem
from rota.engine.assignors.uniform import TopicIterationOrder
from rota.engine.formats.hashing import sort_like_java
from rota.engine.model.member import GroupSubscription, Member
from rota.engine.model.topic import NO_PARTITIONS, Cluster, IntArray, Partitions

#: More topics than these make a member's table grow.
SMALLEST_TABLE = 12

#: By member and topic.
Owners = dict[str, dict[str, list[int]]]


@dataclass(frozen=True)
class TargetCase:
    """A group when a target is computed; members own the target before it."""

    #: Of the topics that are there; a name that is not has been subscribed to all the same.
    counts: dict[str, int]
    ids: dict[str, bytes]
    members: tuple[Member, ...]

    @cached_property
    def problem(self) -> Problem:
        return Problem.from_group(Cluster(self.counts), GroupSubscription.of(self.members))

    def solve(self, assignor: ColumnarAssignor) -> IntArray:
        """The target that Rota finds, its rules checked."""
        group = GroupSubscription.of(self.members)
        cluster = Cluster(self.counts)
        placement = assign_checked(assignor, cluster, group, self.problem).result.placement
        assert placement is not None
        return placement.owners

    @property
    def oracle_step(self) -> str:
        """As TargetOracle reads it."""
        return self.oracle_step_by("")

    def oracle_step_after(self, before: TargetCase | None) -> str:
        """The same where the one member that is new, if it is one, is still joining."""
        known = {member.id for member in before.members} if before else set()
        new = [member.id for member in self.members if member.id not in known]
        return self.oracle_step_by(new[0] if len(new) == 1 else "")

    def oracle_step_by(self, latest: str) -> str:
        """The same where this member's own heartbeat brings it into the group."""
        position = {topic: at for at, topic in enumerate(self.ids)}
        topics = [
            f"{topic},{urlsafe_b64encode(uuid).decode().rstrip('=')},{self.counts.get(topic, -1)}"
            for topic, uuid in self.ids.items()
        ]
        problem = self.problem
        named = TopicIterationOrder(problem, self.ids).order
        rank = {problem.layout.topics[topic]: at for at, topic in enumerate(named)}

        def shown(member: Member) -> str:
            # as a member has them that was given all at once: see rota.engine.assignors.uniform
            owned = sorted(member.owned, key=lambda one: (-rank.get(one.topic, 0), one.partition))
            claims = "+".join(f"{position[one.topic]}.{one.partition}" for one in owned)
            asked = "+".join(str(position[topic]) for topic in member.topics)
            return (
                f"{member.id},{member.group_instance_id or ''},{member.rack or ''},{asked},{claims}"
            )

        by_id = {member.id: member for member in self.members}
        ids = sort_like_java(by_id)
        listed = ";".join(shown(by_id[name]) for name in ids)
        return f"{';'.join(topics)}|{ids.index(latest) if latest else ''}|{listed}"

    def with_target(self, owners: IntArray) -> TargetCase:
        """The same with this target."""
        layout, names = self.problem.layout, self.problem.members
        given: Owners = {}
        for number, owner in enumerate(owners.tolist()):
            topic, partition = layout.partition_at(number)
            given.setdefault(names[owner], {}).setdefault(topic, []).append(partition)
        members = (replace(m, owned=Partitions.of(given.get(m.id, {}))) for m in self.members)
        return replace(self, members=tuple(members))

    def with_ownership_of(self, before: TargetCase) -> TargetCase:
        """The same where members own what they own ``before``; a static one by its static id."""
        owned = {
            name: m.owned for m in before.members for name in (m.id, m.group_instance_id) if name
        }
        return replace(
            self,
            members=tuple(
                replace(
                    m,
                    owned=owned.get(m.id) or owned.get(m.group_instance_id or "") or NO_PARTITIONS,
                )
                for m in self.members
            ),
        )


def draw_cases(seed: int, assignor: ColumnarAssignor, *, equal: bool) -> Iterator[TargetCase]:
    """The history of this seed: a new group, and then changes, each from Rota's own target."""
    random = Random(f"{assignor.name} {equal} {seed}")
    history = _History(random, equal=equal)
    case = history.first()
    for _ in range(random.randint(2, 8)):
        yield case
        settled = case.with_target(case.solve(assignor))
        case = history.changed(settled)


class _History:
    """Draws what happens to one group."""

    def __init__(self, random: Random, *, equal: bool) -> None:
        self._random = random
        self._equal = equal
        self._form = random.choice(("C{}", "consumer-{}", "é{}\U0001f600", "{}-{}", "{1:022x}"))
        self._names = 0
        self._static = random.choice((0.0, 0.0, 0.3, 1.0))
        few = random.choice((1, 2, 3, 4, 6, 9, 16))
        self._largest = random.choice((1, 4, 12, 40, 100))
        topics = random.sample(("t", "u", "v", "orders", "clicks", "audit", "été"), min(few, 7))
        topics += [f"topic-{random.getrandbits(30)}" for _ in range(few - len(topics))]
        self._ids = {topic: random.randbytes(16) for topic in topics}
        self._choices = [self._some(topics) for _ in range(random.choice((2, 3, 5, 12)))]

    def first(self) -> TargetCase:
        size = self._random.choice((1, 1, 2, 3, 4, 5, 8, 11, 14, 20, 27, 50))
        counts = {topic: self._count() for topic in self._ids if self._random.random() < 0.97}
        every = self._some(list(self._ids))
        members = [self._member(every) for _ in range(size)]
        return TargetCase(counts, self._ids, tuple(members))

    def changed(self, case: TargetCase) -> TargetCase:
        """One to three things happen."""
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            change = self._random.choices(
                (self._join, self._leave, self._restart, self._grow, self._subscribe),
                weights=(5, 5, 1, 1, 1 if self._equal else 3),
            )[0]
            case = change(case)
        return case

    def _join(self, case: TargetCase) -> TargetCase:
        several = self._random.choice((1, 1, 1, 2, 9))
        every = case.members[0].topics
        joined = [self._member(every) for _ in range(several)]
        return replace(case, members=(*case.members, *joined))

    def _leave(self, case: TargetCase) -> TargetCase:
        left = min(self._random.choice((1, 1, 1, 2, 7)), len(case.members) - 1)
        stay = self._random.sample(case.members, len(case.members) - left)
        return replace(case, members=tuple(stay))

    def _restart(self, case: TargetCase) -> TargetCase:
        """Static members come back under other ids, and have the targets of the old ones."""
        members = (replace(m, id=self._id()) if m.group_instance_id else m for m in case.members)
        return replace(case, members=tuple(members))

    def _grow(self, case: TargetCase) -> TargetCase:
        topic = self._random.choice(list(self._ids))
        grown = case.counts.get(topic, 0) + self._random.choice((1, 3, self._largest))
        return replace(case, counts={**case.counts, topic: grown})

    def _subscribe(self, case: TargetCase) -> TargetCase:
        if self._equal:
            every = self._some(list(self._ids))
            so_far = case.members[0].topics
            if len(so_far) > SMALLEST_TABLE:  # a table stays as large as it was: not known
                every = tuple(sort_like_java({*every, *so_far}))
            return replace(case, members=tuple(replace(m, topics=every) for m in case.members))
        changing = self._random.choice(case.members)
        again = replace(changing, topics=self._random.choice(self._choices))
        return replace(case, members=tuple(again if m is changing else m for m in case.members))

    def _some(self, topics: list[str]) -> tuple[str, ...]:
        some = self._random.random() > 0.03
        return tuple(
            sort_like_java(self._random.sample(topics, self._random.randint(some, len(topics))))
        )

    def _count(self) -> int:
        return self._random.randint(1, self._largest)

    def _id(self) -> str:
        self._names += 1
        return self._form.format(self._names, self._random.getrandbits(80))

    def _member(self, every: tuple[str, ...]) -> Member:
        name = self._id()
        return Member(
            id=name,
            topics=every if self._equal else self._random.choice(self._choices),
            group_instance_id=f"s{name}" if self._random.random() < self._static else None,
            rack=self._random.choice((None, "r0", "r1")),
        )
