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
from tests.system.kafka.target_cases import Moment, moments


def ask(lines: list[str]) -> list[str]:
    """Kafka's answers."""
    return oracle.ask("TargetOracle", lines, seconds=1_200)


def owners_in(answer: str, moment: Moment) -> IntArray:
    """Kafka's target as a column of owners."""
    assert not answer.startswith("error"), answer
    problem = moment.problem
    names, layout = list(moment.ids), problem.layout
    owners = np.full(layout.size, UNASSIGNED, dtype=np.int32)
    for member, listed in enumerate(answer.split("|")):
        for claim in listed.split("+") if listed else ():
            topic, number = claim.split(".")
            spot = layout.starts[layout.index[names[int(topic)]]] + int(number)
            assert owners[spot] == UNASSIGNED, "two owners"
            owners[spot] = member
    return owners


def assignor_for(strategy: str, moment: Moment | None = None) -> ColumnarAssignor:
    return (
        ServerRangeAssignor()
        if strategy == "range"
        else UniformAssignor(moment.ids if moment else None)
    )


def compare(strategy: str, *, equal: bool, first_seed: int, count: int) -> None:
    """So many targets, of as many histories as it takes."""
    histories = (
        moments(seed, assignor_for(strategy), equal=equal)
        for seed in range(first_seed, first_seed + count)
    )
    cases = list(islice(chain.from_iterable(histories), count))
    assert len(cases) == count
    answers = ask([f"{strategy}\t{moment.step}" for moment in cases])
    for moment, answer in zip(cases, answers, strict=True):
        kafka = owners_in(answer, moment)
        rota = moment.solved(assignor_for(strategy, moment))
        assert (kafka == rota).all(), (moment.step, kafka.tolist(), rota.tolist())


@pytest.mark.parametrize("equal", [True, False], ids=["equal", "mixed"])
@pytest.mark.parametrize("strategy", ["uniform", "range"])
def test_a_thousand_targets_as_kafka_computes_them(strategy: str, equal: bool) -> None:
    compare(strategy, equal=equal, first_seed=0, count=1000)


def moves(moment: Moment, owners: IntArray) -> int:
    claims = moment.problem.claims
    return int((owners[claims.partition] != claims.member).sum())


def loads(moment: Moment, owners: IntArray) -> list[int]:
    return sorted(np.bincount(owners, minlength=len(moment.members)).tolist())


def steps(history: list[Moment]) -> Iterator[str]:
    return (now.step_after(before) for before, now in pairwise((None, *history)) if now)


def agreement(history: list[Moment], answer: str) -> Counter[str]:
    """How often Rota finds what a coordinator does that has its whole history in its tables."""
    counted: Counter[str] = Counter()
    moment = None
    for again, shown in zip(history, answer.split("\t"), strict=True):
        moment = again if moment is None else again.following(moment)
        kafka, rota = owners_in(shown, moment), moment.solved(UniformAssignor(moment.ids))
        counted["targets"] += 1
        counted["moves"] += moves(moment, kafka) == moves(moment, rota)
        counted["loads"] += loads(moment, kafka) == loads(moment, rota)
        counted["partitions"] += bool((kafka == rota).all())
        moment = moment.after(kafka)
    return counted


@pytest.mark.parametrize("equal", [True, False], ids=["equal", "mixed"])
def test_a_coordinator_with_a_history_may_choose_other_partitions(equal: bool) -> None:
    """Its tables keep an order of insertion that no journal tells; docs/differences.md."""
    histories = [list(moments(seed, UniformAssignor(), equal=equal)) for seed in range(250)]
    answers = ask(["\t".join(("uniform", *steps(history))) for history in histories])
    counted = sum(map(agreement, histories, answers), Counter[str]())
    print(dict(counted))
    assert counted["targets"] == counted["loads"] == counted["moves"] > 1000
    assert counted["partitions"] > 0.96 * counted["targets"]


@pytest.mark.nightly
@pytest.mark.parametrize("equal", [True, False], ids=["equal", "mixed"])
@pytest.mark.parametrize("strategy", ["uniform", "range"])
def test_a_hundred_thousand_targets_as_kafka_computes_them(strategy: str, equal: bool) -> None:
    for batch in range(20):
        compare(strategy, equal=equal, first_seed=10_000 * batch, count=5000)
