"""Random groups for the sticky strategies, as Rota takes them and as the Java oracle reads them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from random import Random

import numpy as np

from rota.engine.assignors.kafka import assignment_builders
from rota.engine.assignors.problem import Problem
from rota.engine.model.member import GroupSubscription, Member
from rota.engine.model.topic import Cluster, Partitions

GENERATION = 7
RACKS = ("a", "b", "c", "d")
Claim = tuple[str, int]


@dataclass(frozen=True)
class Case:
    """One group. A topic without metadata has no count."""

    seed: int
    strategy: str
    counts: dict[str, int | None]
    racks: dict[str, list[tuple[str, ...]]]
    members: tuple[Member, ...]

    @property
    def cluster(self) -> Cluster:
        known = {topic: count for topic, count in self.counts.items() if count is not None}
        return Cluster(known, self.racks)

    @cached_property
    def problem(self) -> Problem:
        return Problem.from_group(self.cluster, GroupSubscription.of(self.members))

    @cached_property
    def real(self) -> Case:
        """The same group without claims beyond a topic's end; itself where there are none."""
        layout = self.problem.layout
        end = dict(zip(layout.topics, layout.counts.tolist(), strict=True))
        kept = [
            [claim for claim in member.owned if claim.partition < end.get(claim.topic, 2**31)]
            for member in self.members
        ]
        if all(len(m.owned) == len(real) for m, real in zip(self.members, kept, strict=True)):
            return self
        members = zip(self.members, kept, strict=True)
        return replace(
            self, members=tuple(replace(m, owned=Partitions.of(real)) for m, real in members)
        )

    @property
    def line(self) -> str:
        """The case as StickyOracle reads it."""
        position = {topic: index for index, topic in enumerate(self.counts)}
        topics = [
            f"{topic},{-1 if count is None else count},"
            + ("/".join(map("+".join, self.racks[topic])) if topic in self.racks else "-")
            for topic, count in self.counts.items()
        ]
        members = [
            f"{member.id},{member.group_instance_id or ''},{member.rack or ''},"
            f"{'' if member.generation is None else member.generation},"
            f"{'+'.join(str(position[topic]) for topic in member.topics)},"
            f"{'+'.join(f'{position[topic]}.{number}' for topic, number in member.owned)}"
            for member in self.members
        ]
        return f"{self.strategy}\t{';'.join(topics)}\t{';'.join(members)}"


def random_case(seed: int, strategy: str, *, equal: bool) -> Case:
    """The group of this seed: somebody owned something, and then things changed."""
    random = Random(f"{strategy} {equal} {seed}")
    counts = _counts(random)
    ids = _ids(random)
    known = {topic: count for topic, count in counts.items() if count is not None}
    before = _subscriptions(random, ids, counts, equal=equal or random.random() < 0.5)
    owned = _owned(random, known, before)
    joined = ids if random.random() < 0.4 else random.sample(ids, max(1, len(ids) - 1))
    after = _subscriptions(random, joined, counts, equal=equal)
    if not equal:  # some members keep what they asked for
        after = {m: before[m] if random.random() < 0.6 else after[m] for m in joined}
    claims = {member: owned.get(member, []) for member in joined}
    _disturb(random, claims, counts)
    generations = _generations(random, joined)
    racked = random.random() < 0.6
    members = [
        Member(
            id=member,
            topics=after[member],
            owned=claims[member],
            generation=generations[member],
            group_instance_id=f"static-{member}" if random.random() < 0.2 else None,
            rack=random.choice((*RACKS, None)) if racked else None,
        )
        for member in joined
    ]
    return Case(seed, strategy, counts, _replica_racks(random, counts), tuple(members))


def _counts(random: Random) -> dict[str, int | None]:
    names = random.sample(["t", "orders", "Clicks", "a.b-c_d", "t1", "t2", "audit", "z"], 6)
    most = random.choice((2, 2, 4, 4, 9, 9, 24, 24, 90))
    return {
        name: None if random.random() < 0.06 else random.randint(0 if index else 1, most)
        for index, name in enumerate(names[: random.randint(1, 6)])
    }


def _replica_racks(
    random: Random, counts: dict[str, int | None]
) -> dict[str, list[tuple[str, ...]]]:
    kind = random.random()
    if kind < 0.4:
        return {}
    named = RACKS[: random.randint(1, 4)]
    found = {}
    for topic, count in counts.items():
        if count is None or random.random() < 0.1:
            continue
        if kind < 0.5:  # all replicas everywhere: racks are of no use
            found[topic] = [named] * count
        else:
            found[topic] = [
                tuple(random.sample(named, random.randint(random.random() > 0.1, len(named))))
                for _ in range(count)
            ]
    return found


def _ids(random: Random) -> list[str]:
    count = random.choice((1, 2, 3, 4, 5, 6, 8, 11, 13, 17, 26))
    form = random.choice(("C{}", "consumer-{}", "é{}\U0001f600", "{}-{}"))
    return [form.format(number, random.getrandbits(40)) for number in range(count)]


def _subscriptions(
    random: Random, members: list[str], counts: dict[str, int | None], *, equal: bool
) -> dict[str, tuple[str, ...]]:
    topics = list(counts)
    if equal:
        every = random.sample(topics, random.randint(1, len(topics)))
        return {member: tuple(random.sample(every, len(every))) for member in members}
    choices = [
        tuple(random.sample(topics, random.randint(random.random() > 0.05, len(topics))))
        for _ in range(random.choice((2, 3, len(members) + 1)))
    ]
    weights = [random.choice((1, 1, 4)) for _ in choices]
    return {member: random.choices(choices, weights)[0] for member in members}


def _owned(
    random: Random, known: dict[str, int], subscriptions: dict[str, tuple[str, ...]]
) -> dict[str, list[Claim]]:
    """What each member owned: nothing, what an earlier assignment gave, or anything."""
    kind = random.random()
    if kind < 0.1:
        return {}
    if kind < 0.6:
        live = random.sample(list(subscriptions), random.randint(1, len(subscriptions)))
        members = [Member(id=member, topics=subscriptions[member]) for member in live]
        smaller = {
            t: random.randint(0, n) if random.random() < 0.2 else n for t, n in known.items()
        }
        problem = Problem.from_group(Cluster(smaller), GroupSubscription.of(members))
        owners = assignment_builders.solve_as_kafka(problem, lambda: False).owners
        owned: dict[str, list[Claim]] = {member: [] for member in live}
        for number in np.flatnonzero(owners >= 0).tolist():
            owned[problem.members[owners[number]]].append(problem.layout.partition_at(number))
        return owned
    share = random.choice((0.3, 0.8, 1.0))
    ids = list(subscriptions)
    favoured = random.sample(ids, random.randint(1, len(ids)))
    owned = {member: [] for member in ids}
    for topic, count in known.items():
        for number in range(count):
            if random.random() < share:
                owned[random.choice(favoured)].append((topic, number))
    return owned


def _disturb(random: Random, claims: dict[str, list[Claim]], counts: dict[str, int | None]) -> None:
    """Conflicting claims, claims beyond a topic's end, and topics that lose their metadata."""
    members = list(claims)
    if random.random() < 0.35:
        everything = sorted({claim for owned in claims.values() for claim in owned})
        for claim in random.sample(everything, min(len(everything), random.randint(1, 6))):
            for member in random.sample(members, min(len(members), random.randint(1, 3))):
                if claim not in claims[member]:
                    claims[member].append(claim)
    if random.random() < 0.03:
        topic = random.choice(list(counts))
        claims[random.choice(members)].append((topic, (counts[topic] or 0) + random.randint(0, 3)))
    if random.random() < 0.05:
        counts[random.choice(list(counts))] = None
    for owned in claims.values():
        random.shuffle(owned)


def _generations(random: Random, members: list[str]) -> dict[str, int | None]:
    stale = random.choice((0.0, 0.0, 0.2, 0.6))
    older = (GENERATION - 1, GENERATION - 2, None)
    return {m: random.choice(older) if random.random() < stale else GENERATION for m in members}
