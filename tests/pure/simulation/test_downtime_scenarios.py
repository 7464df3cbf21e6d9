"""The scenarios that tests of downtime use, and the evidence they leave."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.downtime_scenarios import (
    POLICIES,
    SEEDS,
    downtime_scenario,
    number_partitions,
    sample_end_offsets,
    simulate_policy,
    simulated_evidence,
    true_total,
)
from tests.support.examples import first


def check_evidence(seed: int) -> None:
    scenario = downtime_scenario(seed)
    simulation = simulate_policy(scenario, seed=seed)
    evidence = simulated_evidence(simulation)
    numbers = number_partitions(simulation.scenario)
    ends = sample_end_offsets(simulation.scenario, numbers)
    assert len(evidence.rebalances) == len(evidence.explanations) > 0
    assert all(one.started_at is not None for one in evidence.explanations)
    for key, (times, offsets) in evidence.commits.items():
        assert len(times) == len(offsets)
        assert (np.diff(times) >= 0).all()
        _, ceiling, _, known = ends.at_times(np.full(len(times), numbers[key]), times)
        assert known.all()
        assert (offsets <= ceiling).all()
    unlogged = simulated_evidence(simulation, with_log=False)
    assert unlogged.rebalances == evidence.rebalances
    assert unlogged.lines == []
    assert 0 <= true_total(simulation, not_polled=False) <= true_total(simulation)


@pytest.mark.parametrize("seed", first(4, (0, 1, 3, 4, 2, *SEEDS[5:20])))
def test_the_evidence_is_that_of_a_recorded_group(seed: int) -> None:
    check_evidence(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", SEEDS[20:])
def test_the_evidence_of_many_groups_is_that_of_recorded_groups(seed: int) -> None:
    check_evidence(seed)


def test_the_used_policy_has_the_same_downtime_if_it_is_given() -> None:
    scenario = downtime_scenario(10)
    used = (scenario["strategy"], scenario["members"][0]["static"])
    assert used in POLICIES
    strategy, static = used
    given = simulate_policy(scenario, strategy, static=static, seed=10)
    assert true_total(given) == true_total(simulate_policy(scenario, seed=10)) > 0
