"""Histories of simulated groups: what is read out of the journal is what truly happened."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rota.engine.history.causes import explain_rebalance
from rota.engine.history.facts import (
    EvidenceType,
    Generation,
    GenerationChange,
    LogLine,
    Rebalance,
    RebalanceCause,
)
from rota.engine.history.generations import GroupHistory, read_history
from rota.engine.history.rebalances import compute_cost, find_rebalances
from rota.engine.history.whatif import reproduce_rebalances
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.seeded_random import SeededRandom
from tests.pure.history.history import random_history
from tests.pure.history.test_compaction import compact_records
from tests.support.examples import first
from tests.support.expected_history import ExpectedHistory, commit_times, simulate_history

SHORT = 30
LONG = 600
#: Rounds that end with the group or with the evidence, and logs of which little is left.
HARD = (700_012, 700_028, 700_040, 700_092, 700_277)
#: How often each history is compacted.
CUTS = 4


def check(seed: int) -> None:
    """All checks of one seed against the simulated history."""
    expected = simulate_history(random_history(seed), seed)
    generations = read_history(expected.group, expected.records, {}).generations
    found = find_rebalances(generations)
    check_owners(expected, generations)
    check_rebalances(expected, found)
    chance = SeededRandom(seed, 6)
    for _ in range(CUTS):
        check_compaction(expected, generations, chance)
    assert reproduce_rebalances(found, {}).exact


def check_rebalances(expected: ExpectedHistory, found: list[Rebalance]) -> None:
    shapes = [(one.from_generation, tuple(g.generation for g in one.rounds)) for one in found]
    happened = [one for one in expected.rebalances if one.generations]
    assert shapes == [one.shape for one in happened], "rebalances"
    for step, real in zip(found, happened, strict=True):
        where = f"{real.shape} of {sorted(real.causes)}"
        assert (step.after.change is GenerationChange.EMPTIED) == real.emptied, where
        inferred = explain_rebalance(step, expected.commits)
        assert inferred.evidence is EvidenceType.INFERRED
        assert inferred.cause in {RebalanceCause.UNKNOWN, *real.causes}, f"{where}: {inferred}"
        stated = explain_rebalance(step, expected.commits, expected.lines)
        assert stated.evidence is EvidenceType.STATED, where
        assert stated.cause in real.causes, f"{where}: {stated}"
        assert stated.started_at is not None
        doubtful = explain_rebalance(step, expected.commits, without_reasons(expected.lines))
        assert doubtful.cause in {RebalanceCause.UNKNOWN, *real.causes}, f"{where}: {doubtful}"
        assert compute_cost(step).moved == real.moved, where
        if inferred.earliest_start is not None:
            assert inferred.earliest_start <= real.start, f"{where}: {inferred}"
        assert inferred.latest_start is not None
        assert real.start <= inferred.latest_start, f"{where}: {inferred}"


def without_reasons(lines: list[LogLine]) -> list[LogLine]:
    """The same log of clients that do not say why they leave: there commits have to tell."""
    return [replace(one, client_reason=None) if one.what == "left" else one for one in lines]


def check_compaction(
    expected: ExpectedHistory, generations: list[Generation], chance: SeededRandom
) -> None:
    """A cleaner has been at the log up to some record, groups' entries and commits alike.

    What is left says the same of all that it covers, from the state that it begins with on: the
    same generations, the same rebalances at the same cost. Commits are complete only from
    ``complete_from`` on. Rebalances that began from a generation after that are explained as ever;
    of those before, a cause for which the evidence is gone is unknown, and no other is told.
    """
    until = chance.between(0, len(expected.records))
    left = compact_records(expected.records, until, tombstones=chance.happens(0.5))
    found = read_history(expected.group, left, {})
    assert found.window is not None or not found.generations
    if found.window is None:
        return
    first = check_generations(found, generations)
    commits = commit_times(left)
    offsets = np.array([one.offset for one in left])
    # offsets have no gaps before compaction, so compaction removed the missing ones
    gaps = np.flatnonzero(np.diff(offsets) > 1)
    complete = int(offsets[gaps[-1] + 1] if len(gaps) else offsets[0]) if len(offsets) else 0
    whole = {one.after.offset: one for one in find_rebalances(generations)}
    for step in find_rebalances(found.generations):
        if step.rounds[0].offset == first or not step.known_before:
            continue
        same = whole[step.after.offset]
        assert compute_cost(step) == compute_cost(same)
        for lines in ([], expected.lines, without_reasons(expected.lines)):
            was, now = (
                explain_rebalance(same, expected.commits, lines),
                explain_rebalance(step, commits, lines),
            )
            where = f"cleaned up to {until}, {step.from_generation}: {was}, {now}"
            assert now.evidence is was.evidence, where
            assert now.cause in {was.cause, RebalanceCause.UNKNOWN}, where
            began = 0 if step.before is None else step.before.offset
            assert now == was or began < complete, where


def check_generations(found: GroupHistory, generations: list[Generation]) -> int:
    """The offset of the first that is left: of that one only the state is known."""
    assert found.window is not None
    known = {one.offset: one for one in generations}
    first = min((one.offset for one in found.generations), default=found.window.offset)
    incarnation = known[first].incarnation if found.generations else 0
    assert first <= found.window.offset
    assert [one.offset for one in found.generations] == [one for one in known if one >= first]
    for one in found.generations:
        before = known[one.offset]
        if one.offset > first:  # of the first it cannot be known what it was to the one before
            assert replace(one, incarnation=one.incarnation + incarnation) == before
        else:
            assert (one.generation, one.members) == (before.generation, before.members)
    return first


def check_owners(expected: ExpectedHistory, generations: list[Generation]) -> None:
    given = {
        (member.member_id, one.generation): frozenset(
            TopicPartition(topic, number)
            for topic, numbers in member.assigned.items()
            for number in numbers
        )
        for one in generations
        for member in one.members
    }
    for (member_id, generation), partitions in expected.handed.items():
        assert given[member_id, generation] == partitions, (member_id, generation)


def check_with_seed(seed: int) -> None:
    try:
        check(seed)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("seed", first(10, [*HARD, *range(SHORT)]))
def test_what_is_read_is_what_happened(seed: int) -> None:
    check_with_seed(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(SHORT, LONG))
def test_what_is_read_is_what_happened_in_many_more(seed: int) -> None:
    check_with_seed(seed)
