"""Random groups, by seed."""

from __future__ import annotations

import random

from rota.engine.assignors.problem import Problem
from rota.engine.model.member import Subscription
from rota.engine.model.topic import Cluster, Partitions


def random_group(
    seed: int, *, members: int = 8, topics: int = 6, partitions: int = 6, racks: bool = False
) -> tuple[Cluster, dict[str, Subscription]]:
    """A group with mixed subscriptions and claims that are partly stale or in conflict: members
    that left topics, topics that shrank or are gone, several owners of one partition.
    """
    dice = random.Random(seed)
    names = [f"t{number}" for number in range(dice.randint(1, topics))]
    counts = {name: dice.randint(0, partitions) for name in names if dice.random() < 0.95}
    rack_names = [f"r{number}" for number in range(dice.randint(1, 4))]
    where = {
        name: [dice.sample(rack_names, dice.randint(0, min(3, len(rack_names)))) for _ in range(n)]
        for name, n in counts.items()
        if racks and dice.random() < 0.9
    }
    equal = dice.random() < 0.15
    width = dice.choice([1, 2, len(names), len(names)])
    claimed = dice.choice([0.0, 0.5, 0.9, 1.0])
    every = [(name, number) for name in names for number in range(counts.get(name, 0))]
    ids = [f"m{number}" for number in range(dice.randint(1, members))]
    owned: dict[str, list[tuple[str, int]]] = {member: [] for member in ids}
    lean = dice.choice([ids, ids[: (len(ids) + 1) // 2]])
    for partition in every:
        if dice.random() < claimed:
            owned[dice.choice(lean)].append(partition)
    for _ in range(dice.choice([0, 0, 3])):
        owned[dice.choice(ids)].append((dice.choice([*names, "gone"]), dice.randint(0, 9)))
    group = {}
    for member in ids:
        chosen = names if equal else dice.sample(names, dice.randint(0, min(width, len(names))))
        if dice.random() < 0.05:
            chosen = [*chosen, "unknown"]
        group[member] = Subscription(
            topics=tuple(chosen),
            owned=Partitions.of(owned[member]),
            generation=dice.choice([None, 1, 2, 2, 2]),
            rack=dice.choice([*rack_names, None]) if racks else None,
        )
    return Cluster(counts, where), group


def random_problem(
    seed: int, *, members: int = 8, topics: int = 6, partitions: int = 6, racks: bool = False
) -> Problem:
    """The problem of a random group."""
    group = random_group(seed, members=members, topics=topics, partitions=partitions, racks=racks)
    return Problem.from_group(*group)
