"""The broker's strategies against Kafka's own coordinator classes, partition by partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice, pairwise

import numpy as np
import pytest

from rota.engine.assignors.interface import ColumnarAssignor
from rota.engine.assignors.uniform import ServerRangeAssignor, UniformAssignor
from rota.engine.model.member import UNASSIGNED
from rota.engine.model.topic import IntArray
from tests.system.kafka import oracle
from tests.system.kafka.target_cases import TargetCase, draw_cases


def ask(lines: list[str]) -> list[str]:
    """Kafka's answers."""
    return oracle.ask("TargetOracle", lines, seconds=1_200)


def parse_owners(answer: str, case: TargetCase) -> IntArray:
    """Kafka's target as a column of owners."""
    assert not answer.startswith("error"), answer
    problem = case.problem
    names, layout = list(case.ids), problem.layout
    owners = np.full(layout.size, UNASSIGNED, dtype=np.int32)
    for member, listed in enumerate(answer.split("|")):
        for claim in listed.split("+") if listed else ():
            topic, number = claim.split(".")
            spot = layout.starts[layout.index[names[int(topic)]]] + int(number)
            assert owners[spot] == UNASSIGNED, "two owners"
            owners[spot] = member
    return owners


def assignor_for(strategy: str, case: TargetCase | None = None) -> ColumnarAssignor:
    return (
        ServerRangeAssignor()
        if strategy == "range"
        else UniformAssignor(case.ids if case else None)
    )


def compare(strategy: str, *, equal: bool, first_seed: int, count: int) -> None:
    """So many targets, of as many histories as it takes."""
    histories = (
        draw_cases(seed, assignor_for(strategy), equal=equal)
        for seed in range(first_seed, first_seed + count)
    )
    cases = list(islice(chain.from_iterable(histories), count))
    assert len(cases) == count
    answers = ask([f"{strategy}\t{moment.oracle_step}" for moment in cases])
    for case, answer in zip(cases, answers, strict=True):
        kafka = parse_owners(answer, case)
        rota = case.solve(assignor_for(strategy, case))
        assert (kafka == rota).all(), (case.oracle_step, kafka.tolist(), rota.tolist())


@pytest.mark.parametrize("equal", [True, False], ids=["equal", "mixed"])
@pytest.mark.parametrize("strategy", ["uniform", "range"])
def test_a_thousand_targets_as_kafka_computes_them(strategy: str, equal: bool) -> None:
    compare(strategy, equal=equal, first_seed=0, count=1000)


def count_moves(case: TargetCase, owners: IntArray) -> int:
    claims = case.problem.claims
    return int((owners[claims.partition] != claims.member).sum())


def member_loads(case: TargetCase, owners: IntArray) -> list[int]:
    return sorted(np.bincount(owners, minlength=len(case.members)).tolist())


def oracle_steps(history: list[TargetCase]) -> Iterator[str]:
    return (now.oracle_step_after(before) for before, now in pairwise((None, *history)) if now)


def count_agreements(history: list[TargetCase], answer: str) -> Counter[str]:
    """How often Rota finds what a coordinator does that has its whole history in its tables."""
    counted: Counter[str] = Counter()
    case = None
    for again, shown in zip(history, answer.split("\t"), strict=True):
        case = again if case is None else again.with_ownership_of(case)
        kafka, rota = parse_owners(shown, case), case.solve(UniformAssignor(case.ids))
        counted["targets"] += 1
        counted["moves"] += count_moves(case, kafka) == count_moves(case, rota)
        counted["loads"] += member_loads(case, kafka) == member_loads(case, rota)
        counted["partitions"] += bool((kafka == rota).all())
        case = case.with_target(kafka)
    return counted


@pytest.mark.parametrize("equal", [True, False], ids=["equal", "mixed"])
def test_a_coordinator_with_a_history_may_choose_other_partitions(equal: bool) -> None:
    """Its tables keep an order of insertion that no journal tells; docs/differences.md."""
    histories = [list(draw_cases(seed, UniformAssignor(), equal=equal)) for seed in range(250)]
    answers = ask(["\t".join(("uniform", *oracle_steps(history))) for history in histories])
    counted = sum(map(count_agreements, histories, answers), Counter[str]())
    print(dict(counted))
    assert counted["targets"] == counted["loads"] == counted["moves"] > 1000
    assert counted["partitions"] > 0.96 * counted["targets"]


@pytest.mark.nightly
@pytest.mark.parametrize("equal", [True, False], ids=["equal", "mixed"])
@pytest.mark.parametrize("strategy", ["uniform", "range"])
def test_a_hundred_thousand_targets_as_kafka_computes_them(strategy: str, equal: bool) -> None:
    for batch in range(20):
        compare(strategy, equal=equal, first_seed=10_000 * batch, count=5000)
