"""Range and RoundRobin against the real classes of kafka-clients, partition by partition."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from rota.engine.assignors.interface import Assignor
from rota.engine.assignors.range import RangeAssignor
from rota.engine.assignors.roundrobin import RoundRobinAssignor
from rota.engine.model.member import GroupSubscription, Member
from rota.engine.model.topic import Cluster
from tests.system.kafka import oracle

NAMES = ("a", "B", "b", "t1", "t10", "t2", "orders", "__consumer_offsets")
# U+1F980 sorts after U+FF5E by code point, and before it by UTF-16 code unit, as Java compares
ID_PREFIXES = ("c", "C", "consumer-1-", "é", "\uff5e", "\U0001f980")
RACKS = ("r1", "r2", "r3", "r4", "")


@dataclass(frozen=True)
class Case:
    cluster: Cluster
    members: tuple[Member, ...]

    def oracle_line(self, strategy: str) -> str:
        topics = [
            f"{name}/{';'.join('+'.join(_racks(r)) for r in self.cluster.racks[name])}"
            for name, count in self.cluster.partitions.items()
            if count
        ]
        members = [
            f"{m.id}/{m.group_instance_id or '~'}/{_rack(m.rack)}/{'+'.join(m.topics)}"
            for m in self.members
        ]
        return "\t".join((strategy, " ".join(topics), " ".join(members)))


def _rack(rack: str | None) -> str:
    if rack is None:
        return "~"
    return rack or "!"


def _racks(racks: Iterable[str]) -> list[str]:
    """A replica without a rack stands beside some of the others: it must change nothing."""
    listed = [_rack(rack) for rack in racks]
    return [*listed, "~"] if len(listed) == 1 else listed


def draw_case(seed: str) -> Case:
    rng = random.Random(seed)
    racks = RACKS[: rng.randint(1, len(RACKS))]
    topics = rng.sample(NAMES, rng.randint(1, len(NAMES)))
    alike = rng.randint(1, 12)  # equal counts make co-partitioned topics
    counts = {t: alike if rng.random() < 0.6 else rng.randint(0, 20) for t in topics}
    spread = rng.choice(("none", "everywhere", "cyclic", "random"))
    where = {t: [_replicas(rng, spread, racks, p) for p in range(counts[t])] for t in topics}
    known = {t: n for t, n in counts.items() if rng.random() < 0.95}
    equal = rng.random() < 0.3
    in_racks = rng.choice((0.0, 0.5, 1.0))
    statics = rng.choice((0.0, 0.5, 1.0))
    ids = {f"{rng.choice(ID_PREFIXES)}{rng.randint(0, 99)}" for _ in range(rng.randint(1, 9))}
    members = [
        Member(
            id=name,
            topics=topics if equal else rng.sample(topics, rng.randint(0, len(topics))),
            group_instance_id=f"{rng.choice(ID_PREFIXES)}{number}"
            if rng.random() < statics
            else None,
            rack=rng.choice(racks) if rng.random() < in_racks else None,
        )
        for number, name in enumerate(sorted(ids))
    ]
    rng.shuffle(members)
    return Case(Cluster(known, {t: where[t] for t in known}), tuple(members))


def _replicas(
    rng: random.Random, spread: str, racks: tuple[str, ...], partition: int
) -> tuple[str, ...]:
    match spread:
        case "none":
            return ()
        case "everywhere":
            return racks
        case "cyclic":
            return (racks[partition % len(racks)],)
        case _:
            return tuple(rng.sample(racks, rng.randint(0, len(racks))))


def rota_answer(assignor: Assignor, case: Case) -> dict[str, list[str]]:
    given = assignor.assign(case.cluster, GroupSubscription.of(case.members))
    return {m: sorted(f"{t}-{p}" for t, p in given[m].partitions) for m in given}


def java_answers(lines: list[str]) -> list[dict[str, list[str]]]:
    return [parse_answer(line) for line in oracle.ask("RangeRoundRobinOracle", lines)]


def parse_answer(line: str) -> dict[str, list[str]]:
    pairs = (part.split("=") for part in line.split(" "))
    return {member: sorted(filter(None, given.split(","))) for member, given in pairs}


@pytest.mark.parametrize("cases", [2_000, pytest.param(10_000, marks=pytest.mark.nightly)], ids=str)
@pytest.mark.parametrize("assignor", [RangeAssignor(), RoundRobinAssignor()], ids=lambda a: a.name)
def test_as_java(assignor: Assignor, cases: int) -> None:
    compare(assignor, [f"{assignor.name}-{number}" for number in range(cases)])


def compare(assignor: Assignor, seeds: list[str]) -> None:
    """Rota's answer to the case of each seed is Java's."""
    cases = [draw_case(seed) for seed in seeds]
    answers = java_answers([case.oracle_line(assignor.name) for case in cases])
    for seed, case, java in zip(seeds, cases, answers, strict=True):
        assert rota_answer(assignor, case) == java, f"seed {seed!r}: {case}"
