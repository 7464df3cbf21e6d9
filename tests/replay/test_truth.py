"""Histories of simulated groups: what is read out of the journal is what truly happened."""

from __future__ import annotations

import pytest

from rota.model.topic import TopicPartition
from rota.replay.cause import explain
from rota.replay.fact import Cause, Evidence, Generation, Mark
from rota.replay.step import steps
from rota.replay.timeline import read
from tests.replay.history import history
from tests.replay.truth import Truth, played

SHORT = 30
LONG = 600


def check(seed: int) -> None:
    """All that is held to the truth, of one seed."""
    truth = played(history(seed), seed)
    generations = read(truth.group, truth.records, {}).generations
    check_owners(truth, generations)
    found = steps(generations)
    shapes = [(one.from_generation, tuple(g.generation for g in one.rounds)) for one in found]
    happened = [one for one in truth.rebalances if one.generations]
    assert shapes == [one.shape for one in happened], "rebalances"
    for step, real in zip(found, happened, strict=True):
        where = f"{real.shape} of {sorted(real.causes)}"
        assert (step.after.mark is Mark.EMPTIED) == real.emptied, where
        inferred = explain(step, truth.commits)
        assert inferred.evidence is Evidence.INFERRED
        assert inferred.cause in {Cause.UNKNOWN, *real.causes}, f"{where}: {inferred}"
        stated = explain(step, truth.commits, truth.lines)
        assert stated.evidence is Evidence.STATED, where
        assert stated.cause in real.causes, f"{where}: {stated}"
        assert stated.started_at is not None
        if inferred.earliest_start is not None:
            assert inferred.earliest_start <= real.start, f"{where}: {inferred}"
        assert inferred.latest_start is not None
        assert real.start <= inferred.latest_start, f"{where}: {inferred}"


def check_owners(truth: Truth, generations: list[Generation]) -> None:
    given = {
        (member.member_id, one.generation): frozenset(
            TopicPartition(topic, number)
            for topic, numbers in member.assigned.items()
            for number in numbers
        )
        for one in generations
        for member in one.members
    }
    for (member_id, generation), partitions in truth.handed.items():
        assert given[member_id, generation] == partitions, (member_id, generation)


def told(seed: int) -> None:
    try:
        check(seed)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("seed", range(SHORT))
def test_what_is_read_is_what_happened(seed: int) -> None:
    told(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(SHORT, LONG))
def test_what_is_read_is_what_happened_in_many_more(seed: int) -> None:
    told(seed)
