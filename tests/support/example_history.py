"""Histories written down by hand, and simulated ones."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import rota
from rota.engine.history.causes import CommitTimes
from rota.engine.history.downtime import GroupDowntime, find_downtime
from rota.engine.history.facts import (
    EvidenceType,
    Explanation,
    Generation,
    GenerationChange,
    GenerationMember,
    GroupType,
    JournalRecord,
    LogLine,
    PartitionOwnership,
    PartitionsByTopic,
    Rebalance,
    RebalanceCause,
)
from rota.engine.history.generations import read_generations
from rota.engine.history.rebalances import find_rebalances
from rota.engine.simulator.simulation import Simulation
from rota.engine.simulator.trace import TraceEventType

#: No downtime was measured: rebalances have the times of their generations.
NOT_MEASURED = GroupDowntime([])
START = 1_790_000_000_000


def member(name: str, assigned: PartitionsByTopic | None = None, **fields: Any) -> GenerationMember:
    """``pod-1#2`` is the second process of client ``pod-1``; ``s!pod`` has the static id ``s``."""
    static, mark, rest = name.partition("!")
    client = (rest if mark else name).partition("#")[0]
    given: dict[str, Any] = {
        "member_id": name,
        "group_instance_id": static if mark else None,
        "client_id": client,
        "client_host": "/10.0.0.1",
        "session_timeout": 45_000,
        "topics": ("t",),
        "assigned": assigned or {},
    }
    return GenerationMember(**{**given, **fields})


def generation(
    number: int, members: Iterable[GenerationMember], strategy: str = "range", **fields: Any
) -> Generation:
    listed = tuple(members)
    given: dict[str, Any] = {
        "group": "g",
        "kind": GroupType.CLASSIC,
        "incarnation": 0,
        "change": GenerationChange.REBALANCED if listed else GenerationChange.EMPTIED,
        "at": START + 1_000 * number,
        "offset": number,
        "protocol_type": "consumer",
        "strategy": strategy if listed else None,
    }
    return Generation(generation=number, members=listed, **{**given, **fields})


def make_rebalance(before: Generation | None, *rounds: Generation) -> Rebalance:
    return Rebalance(before=before, rounds=rounds, unseen=0)


def explain(
    rebalances: Iterable[Rebalance], causes: Mapping[int, RebalanceCause]
) -> list[Explanation]:
    """``causes`` by generation; the others are unknown."""
    return [
        Explanation(
            cause=causes.get(one.after.generation, RebalanceCause.UNKNOWN),
            evidence=EvidenceType.INFERRED,
        )
        for one in rebalances
    ]


def measure_downtime(
    generations: Sequence[Generation],
    causes: Mapping[int, RebalanceCause] | None = None,
    *,
    commits: CommitTimes | None = None,
    until: int | None = None,
    lines: Sequence[LogLine] = (),
    ownership: Iterable[PartitionOwnership] = (),
) -> GroupDowntime:
    """:param causes: by generation; the others are unknown"""
    rebalances = find_rebalances(generations)
    return find_downtime(
        generations,
        rebalances,
        explain(rebalances, causes or {}),
        commits=commits or {},
        until=generations[-1].at if until is None else until,
        lines=lines,
        ownership=ownership,
    )


@dataclass
class HistoryBuilder:
    """A group under range, told second by second."""

    partitions: Mapping[str, int] = field(default_factory=lambda: {"t": 12})
    generations: list[Generation] = field(default_factory=list)
    fields: Mapping[str, Any] = field(default_factory=dict)
    #: By generation.
    causes: Mapping[int, RebalanceCause] = field(default_factory=dict)

    def at(self, second: int, *names: str) -> HistoryBuilder:
        """These are in the group now."""
        number = len(self.generations) + 1
        self.generations.append(
            generation(number, self._members(names), at=START + 1_000 * second, offset=number)
        )
        return self

    def replaced(self, second: int, *names: str) -> HistoryBuilder:
        """A static member is back: the same generation with another id."""
        last = self.generations[-1]
        held = {one.group_instance_id: one.assigned for one in last.members}
        members = [member(name, held[name.partition("!")[0]], **self.fields) for name in names]
        number = last.generation
        self.generations.append(
            generation(
                number,
                members,
                at=START + 1_000 * second,
                offset=len(self.generations) + 1,
                change=GenerationChange.REPLACED,
            )
        )
        return self

    def _members(self, names: Sequence[str]) -> list[GenerationMember]:
        plain = [member(name, **self.fields) for name in names]
        plan = rota.assign(
            "range",
            partitions=self.partitions,
            members=[
                rota.Member(
                    id=one.member_id, topics=one.topics, group_instance_id=one.group_instance_id
                )
                for one in plain
            ],
        )
        return [member(name, plan[name], **self.fields) for name in names]

    @property
    def rebalances(self) -> list[Rebalance]:
        return find_rebalances(self.generations)

    @property
    def downtime(self) -> GroupDowntime:
        return measure_downtime(self.generations, self.causes)


def journal_generations(simulation: Simulation) -> list[Generation]:
    """The generations of a simulated group, out of its journal."""
    entries = [record for record in simulation.trace if record.type is TraceEventType.JOURNAL]
    return read_generations(
        simulation.scenario.group,
        [JournalRecord(at, record.at, record.detail) for at, record in enumerate(entries)],  # type: ignore[arg-type]
        {},
    )


def random_scenario(seed: int) -> dict[str, object]:
    """A group to which much happens: crashes, restarts, deploys, topics and partitions."""
    dice = random.Random(seed)
    topics = {f"t{number}": dice.randint(1, 12) for number in range(dice.randint(1, 4))}
    names = list(topics)
    mixed = dice.random() < 0.4
    kinds: list[dict[str, object]] = [
        {
            "name": name,
            "count": dice.randint(2, most),
            "topics": dice.sample(names, dice.randint(1, len(names))) if chosen else names,
            "static": dice.random() < 0.3,
        }
        for name, most, chosen in (("a", 5, False), ("b", 3, mixed))
    ]
    who = [f"{kind['name']}-{number}" for kind in kinds for number in range(2)]
    events: list[dict[str, object]] = []
    now = 60
    for _ in range(dice.randint(2, 7)):
        now += dice.randint(20, 120)
        events += _happening(dice, now, dice.choice(who), topics, mixed=mixed)
        now += 150
    return {
        "group": "g",
        "duration": f"{now + 300}s",
        "topics": {name: topics[name] - _added(events, name) for name in names},
        "members": kinds,
        "events": events,
        "metadata_max_age": "30s",
    }


def _happening(
    dice: random.Random, now: int, who: str, topics: dict[str, int], *, mixed: bool
) -> list[dict[str, object]]:
    at = f"{now}s"
    name = dice.choice(list(topics))
    happenings: list[list[dict[str, object]]] = [
        [{"at": at, "crash": who}, {"at": f"{now + 100}s", "join": who}],
        [{"at": at, "leave": who}, {"at": f"{now + 30}s", "join": who}],
        [{"at": at, "restart": who, "down": f"{dice.choice([3, 20, 60])}s"}],
        [{"at": at, "deploy": who[0], "down": "5s", "between": "20s"}],
        [{"at": at, "partitions": {name: topics[name] + 2}}],
    ]
    if mixed:
        chosen = dice.sample(list(topics), dice.randint(1, len(topics)))
        happenings.append([{"at": at, "subscribe": who, "topics": chosen}])
    happened = dice.choice(happenings)
    if "partitions" in happened[0]:
        topics[name] += 2
    return happened


def _added(events: Iterable[Mapping[str, object]], name: str) -> int:
    grown = (event.get("partitions") for event in events)
    return 2 * sum(name in topics for topics in grown if isinstance(topics, dict))
