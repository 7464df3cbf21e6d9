"""The downtime that ``rota plan`` expects is near the true downtime in the simulator's world, and
near the one that what-if computes from the simulated history.

A single rebalance differs from the expected one, because it depends on when the heartbeats of the
members are due: in a group that was stable for long, by up to a half. So the tests compare sums
over many rebalances and seeds, and allow 15 %: their standard errors are up to 6 %.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, cached_property
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest

from rota.engine.history.facts import Generation, Rebalance
from rota.engine.history.whatif import evaluate_policies
from rota.engine.simulator.scenario import read_scenario
from rota.engine.simulator.simulation import Simulation
from tests.support.command import RotaCommand
from tests.support.downtime_scenarios import (
    ORDERS_BILLING,
    measure_evidence,
    simulate_policy,
    simulated_evidence,
    true_gaps,
)
from tests.support.paths import ROOT

TOLERANCE = 0.15
ORDERS = json.loads((ROOT / "examples" / "orders.json").read_text())
PARTITIONS = ORDERS["partitions"]
ROLLING_DEPLOY = (ROOT / "examples" / "rolling-deploy.toml").read_text()
SECOND = 1_000
MINUTE = 60 * SECOND
#: A member takes its partitions so soon after the journal has the assignment.
RESPONSE_TIME = 200
#: Number of restarts, or of moments with new partitions, in each simulation; the time between them.
CHANGES, BETWEEN = 8, 80 * MINUTE
SEEDS = range(8)
DEPLOY_SEEDS = range(4)


def orders_scenario(strategy: str, what: str) -> dict[str, Any]:
    """Returns the group of examples/orders.json as a scenario."""
    members = [
        {"name": member["id"].removesuffix("-0"), "topics": member["topics"], "count": count}
        for member, count in ((ORDERS["members"][0], 3), (ORDERS["members"][3], 1))
    ]
    events: list[dict[str, object]] = []
    for number in range(CHANGES):
        change: dict[str, object] = {"partitions": {"orders": PARTITIONS["orders"] + number + 1}}
        if what == "restarts":
            change = {
                "restart": f"billing-{number % 3}",
                "down": f"{40 * MINUTE + 1_234 * number}ms",
            }
        events.append({"at": f"{(number + 1) * BETWEEN + 777 * number}ms", **change})
    return {
        "group": "orders",
        "strategy": strategy,
        "topics": PARTITIONS,
        "duration": f"{(CHANGES + 2) * BETWEEN}ms",
        "members": members,
        "events": events,
    }


class SimulatedGroup:
    """A simulated group: its rebalances, with the true downtime that each of them ended."""

    def __init__(self, simulation: Simulation) -> None:
        self.evidence = simulated_evidence(simulation)
        self._starts = sorted(one.start for one in simulation.rebalances)
        # the time in which a new partition waits for its first owner is no downtime
        self.gaps = [gap for gap in true_gaps(simulation) if gap.last_process is not None]

    @property
    def true_total(self) -> int:
        return sum(gap.time for gap in self.gaps)

    def list_rebalances(self) -> Iterator[tuple[Rebalance, int, int]]:
        """Yields each rebalance, its true downtime, and the time since the one before."""
        for before, one in pairwise(self.evidence.rebalances):
            ended, end = before.after.at + RESPONSE_TIME, one.after.at + RESPONSE_TIME
            start = min(start for start in self._starts if start >= before.after.at)
            true = sum(gap.time for gap in self.gaps if ended < gap.until <= end)
            yield one, true, start - before.after.at

    @cached_property
    def whatif(self) -> Counter[str]:
        """The downtime that what-if computes, by policy."""
        evidence = self.evidence
        measured = measure_evidence(evidence)
        total: Counter[str] = Counter()
        for row in evaluate_policies(evidence.generations, evidence.rebalances, measured).rows:
            total[row.policy] += row.downtime_ms
        return total


@cache
def simulate_orders(strategy: str, what: str, *, static: bool) -> Sequence[SimulatedGroup]:
    """Without the commits of quiet hours: they do not change the downtime, and take a minute."""
    scenario = orders_scenario(strategy, what)
    return [
        SimulatedGroup(simulate_policy(scenario, static=static, seed=seed, skip_commits=True))
        for seed in SEEDS
    ]


@cache
def simulate_deploy(strategy: str, *, static: bool) -> Sequence[SimulatedGroup]:
    deploy = read_scenario(ROLLING_DEPLOY)
    return [
        SimulatedGroup(simulate_policy(deploy, strategy, static, seed, skip_commits=True))
        for seed in DEPLOY_SEEDS
    ]


class Planner:
    """Runs ``rota plan`` for the rebalances of simulated groups."""

    def __init__(self, run: RotaCommand, folder: Path) -> None:
        self._run = run
        self._case = folder / "case.json"

    def plan(self, before: Generation, after: Generation, *flags: str) -> dict[str, Any]:
        """Returns the plan of a rebalance, from the partitions that the members had before it."""
        self._case.write_text(json.dumps(make_case(before)))
        command = ["plan", str(self._case), "--json", "--strategy", str(before.strategy), *flags]
        staying = {member.member_id for member in after.members}
        old = {member.member_id for member in before.members}
        for member_id in sorted(old - staying):
            command += ["--remove", member_id]
        for member in after.members:
            if member.member_id not in old:
                command += ["--member", f"{member.member_id}={','.join(member.topics)}"]
        for topic, count in (count_partitions(after) - count_partitions(before)).items():
            command += ["--partitions", f"{topic}={count_partitions(before)[topic] + count}"]
        plan = json.loads(self._run(*command).checked().out)
        assert isinstance(plan, dict)
        return plan

    def expect(self, rebalance: Rebalance, *flags: str) -> int:
        """Returns the expected downtime of a rebalance, in milliseconds."""
        assert rebalance.before is not None
        return int(self.plan(rebalance.before, rebalance.after, *flags)["downtime_ms"])


@pytest.fixture
def planner(rota_command: RotaCommand, tmp_path: Path) -> Planner:
    return Planner(rota_command, tmp_path)


def count_partitions(generation: Generation) -> Counter[str]:
    counts: Counter[str] = Counter()
    for member in generation.members:
        counts.update({topic: len(numbers) for topic, numbers in member.assigned.items()})
    return counts


def make_case(generation: Generation) -> dict[str, object]:
    return {
        "partitions": count_partitions(generation),
        "members": [
            {
                "id": member.member_id,
                "topics": member.topics,
                "owned": {topic: list(numbers) for topic, numbers in member.assigned.items()},
                "generation": generation.generation,
                "group_instance_id": member.group_instance_id,
            }
            for member in generation.members
        ],
    }


def assert_near(found: int, true: int) -> None:
    difference = f"{found / 1000:,.1f}s, but in truth {true / 1000:,.1f}s"
    assert abs(found - true) <= TOLERANCE * true, difference


@pytest.mark.parametrize(
    ("strategy", "static", "other"),
    [
        ("range", False, "cooperative-sticky"),
        ("cooperative-sticky", False, "range"),
        ("range", True, None),
        ("cooperative-sticky", True, None),
    ],
)
def test_members_that_leave_and_join(
    planner: Planner, strategy: str, other: str | None, static: bool
) -> None:
    """Static members come back after the end of their sessions here."""
    groups = simulate_orders(strategy, "restarts", static=static)
    true, expected = Counter[str](), Counter[str]()
    for group in groups:
        for rebalance, downtime, _ in group.list_rebalances():
            assert rebalance.before is not None
            joins = len(rebalance.after.members) > len(rebalance.before.members)
            kind = "join" if joins else "leave"
            true[kind] += downtime
            expected[kind] += planner.expect(rebalance)
            true["number"] += 1
    assert true.pop("number") == 2 * CHANGES * len(SEEDS)
    for kind, downtime in true.items():
        assert_near(expected[kind], downtime)
    assert_near(true.total(), sum(group.true_total for group in groups))
    if other is not None:
        whatif = sum(
            group.whatif[strategy] for group in simulate_orders(other, "restarts", static=False)
        )
        assert_near(whatif, true.total())
        assert_near(expected.total(), whatif)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_new_partitions(planner: Planner, strategy: str) -> None:
    """The leader finds them and revokes its partitions at once; the others at their heartbeats."""
    true = expected = 0
    for group in simulate_orders(strategy, "new partitions", static=False):
        for rebalance, downtime, _ in group.list_rebalances():
            true += downtime
            expected += planner.expect(rebalance)
    assert_near(expected, true)
    assert (true == 0) is (strategy == "cooperative-sticky")


@pytest.mark.parametrize(
    ("strategy", "other"), [("range", "cooperative-sticky"), ("cooperative-sticky", "range")]
)
def test_a_rolling_deploy(planner: Planner, strategy: str, other: str) -> None:
    """Heartbeats are nearly simultaneous here, because the rebalance before was a minute ago."""
    groups = simulate_deploy(strategy, static=False)
    true = sum(group.true_total for group in groups)
    expected = sum(
        planner.expect(rebalance, "--stable", f"{since_last}ms")
        for group in groups
        for rebalance, _, since_last in group.list_rebalances()
    )
    whatif = sum(group.whatif[strategy] for group in simulate_deploy(other, static=False))
    assert_near(expected, true)
    assert_near(whatif, true)


def test_a_rolling_deploy_of_static_members(planner: Planner) -> None:
    """They are away for 10 seconds, as a plan assumes, and no rebalance happens."""
    [group] = simulate_deploy("range", static=True)[:1]
    assert len(group.evidence.rebalances) == 1
    before = group.evidence.rebalances[0].after
    expected = 0
    for one in before.members:
        rest = tuple(member for member in before.members if member is not one)
        plan = planner.plan(before, replace(before, members=rest))
        expected += plan["restart_downtime_ms"]
        assert plan["downtime_ms"] > plan["restart_downtime_ms"]
    [dynamic] = simulate_deploy("range", static=False)[:1]
    assert_near(expected, group.true_total)
    assert_near(dynamic.whatif["range, static 45s"], group.true_total)


def test_plan_ranks_the_policies_of_the_demo_s_deploy(planner: Planner) -> None:
    """``test_consistent_downtime.py`` has the same for ``rota run`` and ``rota simulate``."""
    scenario = read_scenario(ORDERS_BILLING)
    expected, true = {}, {}
    for strategy in ("range", "cooperative-sticky"):
        group = SimulatedGroup(simulate_policy(scenario, strategy, static=False))
        true[strategy] = group.true_total
        expected[strategy] = sum(
            planner.expect(rebalance, "--stable", f"{since_last}ms")
            for rebalance, _, since_last in group.list_rebalances()
        )
    group = SimulatedGroup(simulate_policy(scenario, "range", static=True))
    true["static"] = group.true_total
    before = group.evidence.rebalances[0].after
    plans = (
        planner.plan(
            before, replace(before, members=tuple(one for one in before.members if one is not gone))
        )
        for gone in before.members
    )
    # a plan assumes that a process is away for 10 seconds, not 8
    expected["static"] = sum(plan["restart_downtime_ms"] for plan in plans) * 8 // 10
    for policy, downtime in true.items():
        assert_near(expected[policy], downtime)
    for one, other in permutations(true, 2):
        if true[one] > (1 + TOLERANCE) * true[other]:
            assert expected[one] > expected[other]
    assert max(expected, key=expected.__getitem__) == "static"
