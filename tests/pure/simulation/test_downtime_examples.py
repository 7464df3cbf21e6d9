"""The downtime of the examples, measured in what the simulated group leaves, equals the truth."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rota
from rota.engine.history.facts import UNCOUNTED_REASONS, Downtime
from tests.support.downtime_scenarios import (
    ORDERS_BILLING,
    POLICIES,
    SEEDS,
    downtime_scenario,
    true_gaps,
    true_total,
)
from tests.support.examples import first
from tests.support.paths import ROOT
from tests.support.simulated_downtime import GapKind

EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
#: Members learn of an assignment, and commit, a few milliseconds after the broker; for each piece.
SLACK = 30
#: Largest difference of the sum from the truth.
LARGEST_ERROR = 0.05


class PartitionDowntime(NamedTuple):
    at_least: int
    at_most: int
    pieces: int


def measured_downtime(found: tuple[Downtime, ...]) -> dict[tuple[str, int], PartitionDowntime]:
    sums: dict[tuple[str, int], PartitionDowntime] = {}
    for one in found:
        if one.reason not in UNCOUNTED_REASONS:
            before = sums.get((one.topic, one.partition), PartitionDowntime(0, 0, 0))
            sums[one.topic, one.partition] = PartitionDowntime(
                before.at_least + one.at_least_ms,
                before.at_most + one.at_most_ms,
                before.pieces + 1,
            )
    return sums


def check_downtime(text: str, strategy: str | None, *, static: bool | None) -> rota.Simulation:
    simulation = rota.simulate(text, strategy, static=static)
    truth: Counter[tuple[str, int]] = Counter()
    for gap in true_gaps(simulation):
        if gap.kind is GapKind.NOT_OWNED:
            truth[gap.partition.topic, gap.partition.partition] += gap.time
    measured = measured_downtime(simulation.downtime)
    assert measured.keys() == truth.keys()
    for partition, time in truth.items():
        at_least, at_most, pieces = measured[partition]
        assert at_least - SLACK * pieces <= time <= at_most + SLACK * pieces, partition
    total = true_total(simulation, not_polled=False)
    assert simulation.total.downtime_ms == pytest.approx(total, rel=LARGEST_ERROR)
    return simulation


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_as_it_is(example: Path) -> None:
    check_downtime(example.read_text(), None, static=None)


@pytest.mark.parametrize(("strategy", "static"), POLICIES)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_under_each_policy(example: Path, strategy: str, static: bool) -> None:
    check_downtime(example.read_text(), strategy, static=static)


def test_the_best_policy_of_the_demo_is_the_truly_best() -> None:
    """Static membership costs more here: a pod is away for longer than a rebalance takes."""
    found = {
        (strategy, static): check_downtime(ORDERS_BILLING, strategy, static=static)
        for strategy, static in POLICIES
    }
    measured = {policy: one.total.downtime_ms for policy, one in found.items()}
    truth = {policy: true_total(one, not_polled=False) for policy, one in found.items()}
    best = "cooperative-sticky", False
    assert min(measured, key=measured.__getitem__) == min(truth, key=truth.__getitem__) == best
    assert measured["range", True] > measured["range", False] > measured[best]
    assert found["range", True].total.by_reason == {"restarted": measured["range", True]}


def compare_skipped_commits(scenario: str | dict[str, Any], seed: int = 0) -> None:
    skipped = rota.simulate(scenario, seed=seed)
    full = rota.simulate(scenario, seed=seed, skip_commits=False)
    assert len(full.journal) >= len(skipped.journal)
    assert full.total.downtime_ms == pytest.approx(skipped.total.downtime_ms, abs=200)
    assert [(one.reason, one.member_id) for one in full.downtime] == [
        (one.reason, one.member_id) for one in skipped.downtime
    ]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_skipped_commits_do_not_change_the_downtime_of_an_example(example: Path) -> None:
    compare_skipped_commits(example.read_text())


@pytest.mark.parametrize("seed", first(2, SEEDS[:4]))
def test_skipped_commits_do_not_change_the_downtime(seed: int) -> None:
    compare_skipped_commits(downtime_scenario(seed), seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", SEEDS[4:])
def test_skipped_commits_do_not_change_the_downtime_of_many_groups(seed: int) -> None:
    compare_skipped_commits(downtime_scenario(seed), seed)
