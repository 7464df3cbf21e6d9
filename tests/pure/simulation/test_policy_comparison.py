"""Measured downtime, what-if and advice beside really simulating the policies."""

from __future__ import annotations

import pytest

from tests.support.downtime_scenarios import SEEDS
from tests.support.policy_comparison import (
    TOLERANCE,
    compare_scenario,
    compare_scenarios,
    describe,
    share_within,
    whatif_errors,
)

#: Scenarios with few members, of several strategies; dynamic and static.
SOME = (39, 45, 70)


@pytest.mark.check
def test_some_groups() -> None:
    found = [compare_scenario(seed) for seed in SOME]
    assert all(one.is_within_bounds for one in found)
    assert not any(one.is_worse for one in found)
    assert all(one.whatif for one in found)
    assert share_within(whatif_errors(found), 0.25) >= 0.5


@pytest.mark.parametrize("seed", [700, 710])
def test_slow_polls_of_static_members_with_a_long_session(seed: int) -> None:
    """They return within their session; only their commits show that they did not poll."""
    found = compare_scenario(seed, static_session="600s")
    assert found.is_within_bounds
    assert found.measured.not_polled_ms == 600_000
    assert abs(found.measured_error) <= TOLERANCE
    assert not found.is_worse


@pytest.mark.check
def test_dynamic_membership_is_not_advised_if_members_may_have_crashed() -> None:
    """With this session a dynamic member that crashes stops the group for five minutes."""
    found = compare_scenario(713, static_session="300s")
    assert found.is_within_bounds
    assert not found.is_worse


@pytest.mark.nightly
def test_many_groups() -> None:
    """The shares are those that docs/downtime.md states, rounded down."""
    found = compare_scenarios(SEEDS)
    print(describe(found))
    assert [one.seed for one in found if not one.is_within_bounds] == []
    assert share_within((one.measured_error for one in found), TOLERANCE) >= 0.97
    assert share_within(whatif_errors(found), TOLERANCE) >= 0.90
    assert [one.seed for one in found if one.is_worse] == []
    assert sum(one.is_best for one in found) >= 0.95 * len(found)
