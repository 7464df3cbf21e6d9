"""``rota run``, ``rota simulate`` and the truth agree on the downtime of the examples.

The journal and the log of a simulated group go through the functions of the pipeline. What they
measure, expect of other policies and advise is compared with ``rota simulate --compare``, which
really runs each policy, and with the simulated world's own trace. ``rota plan`` is compared in
``test_expected_downtime.py``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from rota.engine.history.facts import CHANGE
from rota.engine.simulator.scenario import read_scenario
from rota.engine.simulator.simulation import Simulation
from rota.pipeline.rebalances import GroupOptions
from tests.support.command import RotaCommand
from tests.support.downtime_scenarios import (
    ORDERS_BILLING,
    POLICIES,
    simulate_policy,
    simulated_evidence,
    true_total,
)
from tests.support.group_rows import Row, compute_rows, list_parts
from tests.support.paths import ROOT

SCENARIOS = {path.stem: path.read_text() for path in sorted((ROOT / "examples").glob("*.toml"))}
SCENARIOS["orders-billing"] = ORDERS_BILLING
IN_USE = "as in the scenario"
#: The groups that get advice to change their policy.
CHANGED = {"orders-billing", "rolling-deploy", "static-restart", "switch-strategy"}
#: ``rota simulate`` skips commits, so it measures a little differently.
LARGEST_ERROR = 200
#: The order of two policies counts if one has this share more downtime, and so much more.
LEAST_SHARE, LEAST_DIFFERENCE = 0.1, 10_000
#: The computed downtime of the advised policy is wrong by at most this share, or by 14 seconds: a
#: rebalance of few members depends on when their heartbeats are due.
LARGEST_SHARE, LARGEST_DIFFERENCE = 0.1, 14_000


@dataclass(frozen=True, slots=True)
class RunResult:
    """What ``rota run`` finds in a simulated group."""

    advice: Row
    #: The downtime under each policy: measured if the group used it, computed for the others.
    downtime: Mapping[str, int]


@cache
def simulate_in_use(name: str) -> Simulation:
    return simulate_policy(read_scenario(SCENARIOS[name]))


@cache
def run_pipeline(name: str) -> RunResult:
    evidence = simulated_evidence(simulate_in_use(name))
    parts = list_parts(evidence.generations, evidence.lines, evidence.commit_times)
    tables = compute_rows(parts, GroupOptions(until=evidence.end))
    total: Counter[str] = Counter()
    for row in tables["whatif"]:
        total[row["policy"]] += row["downtime_ms"]
    (advice,) = tables["advice"]
    return RunResult(advice, total)


def list_policies(name: str) -> dict[str, tuple[str, bool]]:
    """Returns strategy and static membership of each policy, by its label in the tables."""
    session = read_scenario(SCENARIOS[name]).members[0].session // 1000
    return {
        f"{strategy}, static {session}s" if static else strategy: (strategy, static)
        for strategy, static in POLICIES
    }


@pytest.fixture
def simulate(rota_command: RotaCommand, tmp_path: Path) -> Callable[[str], dict[str, int]]:
    """Returns the downtime of each policy, from ``rota simulate --compare``."""

    def simulate_all(name: str) -> dict[str, int]:
        path = tmp_path / f"{name}.toml"
        path.write_text(SCENARIOS[name])
        done = rota_command("simulate", path, "--compare", "--json").checked()
        found = {
            (each["strategy"], each["static"]): each["downtime_ms"]
            for each in json.loads(done.out)["compare"]
        }
        labels = {policy: label for label, policy in list_policies(name).items()}
        return {labels.get(policy, IN_USE): downtime for policy, downtime in found.items()}

    return simulate_all


@pytest.mark.parametrize("name", SCENARIOS)
def test_run_and_simulate_agree(simulate: Callable[[str], dict[str, int]], name: str) -> None:
    simulated, found = simulate(name), run_pipeline(name)
    advice = found.advice
    assert advice["downtime_ms"] == pytest.approx(simulated[IN_USE], abs=LARGEST_ERROR)
    known = found.downtime.keys() & simulated.keys()
    assert len(known) >= len(POLICIES) / 2
    for one, other in permutations(sorted(known), 2):
        # a difference below the uncertainty may have the other sign
        least = max(LEAST_DIFFERENCE, advice["uncertainty_ms"])
        margin = max(LEAST_SHARE * simulated[other], least)
        if simulated[one] > simulated[other] + margin:
            assert found.downtime[one] > found.downtime[other], (one, other)
    # no policy is better than the advised one by more than the uncertainty
    chosen = simulated[advice["policy"] if advice["verdict"] == CHANGE else IN_USE]
    assert chosen <= min(simulated.values()) + advice["uncertainty_ms"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_advised_policy_is_truly_better(name: str) -> None:
    advice, scenario = run_pipeline(name).advice, read_scenario(SCENARIOS[name])
    assert (advice["verdict"] == CHANGE) is (name in CHANGED)
    if name in CHANGED:
        strategy, static = list_policies(name)[advice["policy"]]
        before = true_total(simulate_in_use(name), not_polled=False)
        after = true_total(simulate_policy(scenario, strategy, static), not_polled=False)
        assert after < before
        assert advice["downtime_after_ms"] == pytest.approx(
            after, rel=LARGEST_SHARE, abs=LARGEST_DIFFERENCE
        )


def test_a_rolling_deploy_is_no_reason_for_static_membership() -> None:
    """In these scenarios a process is away for longer than a rebalance takes."""
    for name in ("orders-billing", "rolling-deploy"):
        found = run_pipeline(name)
        assert "static" not in found.advice["policy"]
        assert "static membership" not in found.advice["to_do"]
        assert found.downtime["range, static 45s"] > found.downtime["range"]
