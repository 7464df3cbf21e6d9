"""Compares measured downtime, what-if and advice with really simulating each policy.

A group is simulated under its own policy. From the evidence that this run leaves, Rota measures its
downtime, computes the downtime of all other policies, and gives advice. Then the same scenario is
simulated under these policies, :data:`RUNS` times each: heartbeats begin at other moments with each
seed, so the downtime of one policy differs between runs. What-if is right if it is within 10 % of
the interval of the runs.

``python -m tests.support.policy_comparison 0 500`` prints the tables of docs/downtime.md.
"""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, NamedTuple

from rota.engine.history.advice import AdviceEvidence, PolicyTotal, advise_group, sum_by_policy
from rota.engine.history.downtime import DowntimeTotal, sum_downtime
from rota.engine.history.facts import CHANGE
from rota.engine.history.policies import GroupPolicy, MembershipType, PolicyProtocol
from rota.engine.history.whatif import evaluate_policies
from rota.engine.simulator.scenario import read_scenario
from tests.support.downtime_scenarios import (
    downtime_scenario,
    measure_evidence,
    simulate_policy,
    simulated_evidence,
    true_total,
)

#: Simulations of each policy.
RUNS = 3
#: Errors below this many partition-milliseconds do not count.
SMALL = 5_000
TOLERANCE = 0.10
#: The advised policy may be worse than the one in use by this share.
WORSE_TOLERANCE = 0.05


class Choice(NamedTuple):
    """A policy to simulate."""

    strategy: str
    is_static: bool
    session: int

    @property
    def kind(self) -> str:
        protocol = "cooperative" if self.strategy == "cooperative-sticky" else "eager"
        return f"{protocol}, {'static' if self.is_static else 'dynamic'}"


@dataclass(frozen=True, slots=True)
class ScenarioComparison:
    seed: int
    used: Choice
    #: The true downtime of the run that left the evidence, and the measured one.
    truth: int
    measured: DowntimeTotal
    #: For each other policy: what-if, and the true downtime of each run.
    whatif: Mapping[Choice, tuple[int, list[int]]]
    verdict: str
    #: The mean true downtime of the policy in use, the advised one, and the best that suits.
    used_truth: float
    advised_truth: float
    best_truth: float

    @property
    def measured_error(self) -> float:
        return _relative_error(self.measured.downtime_ms, [self.truth])

    @property
    def is_within_bounds(self) -> bool:
        """A member that polls too late may not have taken the partitions that it was assigned. That
        time is in the column "not polled".
        """
        total = self.measured
        most = total.downtime_at_most_ms + total.not_polled_ms
        return total.downtime_at_least_ms - SMALL <= self.truth <= most + SMALL

    @property
    def is_worse(self) -> bool:
        """Whether the advised policy is worse in truth than the one in use."""
        return self.advised_truth > self.used_truth * (1 + WORSE_TOLERANCE) + SMALL

    @property
    def is_best(self) -> bool:
        """Whether the advised policy is the best one in truth, or within 10 % of it."""
        return self.advised_truth <= self.best_truth * (1 + TOLERANCE) + SMALL


def compare_scenario(
    seed: int, *, with_log: bool = True, static_session: str | None = None
) -> ScenarioComparison:
    """:param static_session: the session of all members, which are static then"""
    made = downtime_scenario(seed)
    if static_session is not None:
        settings = {"static": True, "session": static_session, "heartbeat": "3s"}
        made["members"] = [{**one, **settings} for one in made["members"]]
    scenario = read_scenario(made, source=f"seed {seed}")
    simulation = simulate_policy(scenario, seed=0)
    evidence = simulated_evidence(simulation, with_log=with_log)
    member = scenario.members[0]
    used = Choice(made["strategy"], member.static, member.session)
    downtime = measure_evidence(evidence)
    measured = sum_downtime(downtime.found)
    evaluation = evaluate_policies(evidence.generations, evidence.rebalances, downtime)
    given = AdviceEvidence(evaluation=evaluation, total=measured)
    advice = advise_group(evidence.generations, evidence.rebalances, given)
    truths = _Truths(made)
    truths.known[used].append(true_total(simulation, not_polled=False))
    totals = sum_by_policy(evaluation.rows)
    actual = next(totals[row.policy] for row in evaluation.rows if row.actual)
    choices = {
        label: _choice_of(policy, used.session)
        for label, policy in evaluation.alternatives.items()
        if policy.protocol is not PolicyProtocol.CONSUMER
    }
    own_session = {label: one for label, one in choices.items() if one.session == used.session}
    advised = choices[advice.policy] if advice.verdict == CHANGE else used
    return ScenarioComparison(
        seed,
        used,
        truths.known[used][0],
        measured,
        {one: (totals[label].downtime, truths.of(one)) for label, one in own_session.items()},
        advice.verdict,
        mean(truths.of(used)),
        mean(truths.of(advised)),
        min(
            mean(truths.of(one))
            for one in (used, advised, *_list_suitable(own_session, totals, actual))
        ),
    )


def compare_scenarios(seeds: Iterable[int]) -> list[ScenarioComparison]:
    """Compares scenarios on all cores."""
    with ProcessPoolExecutor() as pool:
        return list(pool.map(compare_scenario, seeds))


def _choice_of(policy: GroupPolicy, session: int) -> Choice:
    is_static = policy.membership is MembershipType.STATIC
    return Choice(policy.strategy, is_static, policy.session_timeout or session)


def _list_suitable(
    choices: Mapping[str, Choice], totals: Mapping[str, PolicyTotal], actual: PolicyTotal
) -> Iterable[Choice]:
    """Returns the policies that balance the load as evenly as the one in use."""
    return (one for label, one in choices.items() if totals[label].is_as_even_as(actual))


@dataclass
class _Truths:
    """The true downtime of a scenario under each policy."""

    made: Mapping[str, Any]
    known: defaultdict[Choice, list[int]] = field(default_factory=lambda: defaultdict(list))

    def of(self, choice: Choice) -> list[int]:
        found = self.known[choice]
        # members that join later are like the first ones
        members = [{**one, "session": f"{choice.session}ms"} for one in self.made["members"]]
        scenario = read_scenario({**self.made, "members": members}, source=str(choice))
        while len(found) < RUNS:
            simulation = simulate_policy(
                scenario, choice.strategy, choice.is_static, seed=len(found), skip_commits=True
            )
            found.append(true_total(simulation, not_polled=False))
        return found


def _relative_error(value: int, truths: list[int]) -> float:
    """Returns by which share a value is outside of the interval of the truths."""
    least, most = min(truths), max(truths)
    nearest = min(max(value, least), most)
    if abs(value - nearest) < SMALL:
        return 0.0
    return (value - nearest) / max(nearest, 1)


def confusion_table(found: Iterable[ScenarioComparison]) -> str:
    """Returns, for each change of the policy, the share of what-ifs that are right."""
    errors: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for one in found:
        for choice, (value, truths) in one.whatif.items():
            errors[one.used.kind, choice.kind].append(_relative_error(value, truths))
    lines = ["| used | what-if | cases | within 10 % | within 25 % |", "|---|---|---|---|---|"]
    for (used, other), listed in sorted(errors.items()):
        near, far = (share_within(listed, limit) for limit in (TOLERANCE, 0.25))
        lines.append(f"| {used} | {other} | {len(listed)} | {near:.0%} | {far:.0%} |")
    every = [error for listed in errors.values() for error in listed]
    near, far = (share_within(every, limit) for limit in (TOLERANCE, 0.25))
    lines.append(f"| all | all | {len(every)} | {near:.0%} | {far:.0%} |")
    return "\n".join(lines)


def advice_table(found: Iterable[ScenarioComparison]) -> str:
    counts = Counter(
        (one.verdict, "worse" if one.is_worse else "best" if one.is_best else "not the best")
        for one in found
    )
    lines = ["| verdict | in truth | groups |", "|---|---|---|"]
    lines += [f"| {verdict} | {truth} | {n} |" for (verdict, truth), n in sorted(counts.items())]
    return "\n".join(lines)


def whatif_errors(found: Iterable[ScenarioComparison]) -> list[float]:
    return [
        _relative_error(value, truths) for one in found for value, truths in one.whatif.values()
    ]


def share_within(errors: Iterable[float], limit: float) -> float:
    """Returns which share of the errors is at most the limit."""
    listed = [abs(error) <= limit for error in errors]
    return sum(listed) / len(listed) if listed else math.nan


def describe(found: list[ScenarioComparison]) -> str:
    """Returns the tables, and the shares that are right."""
    shares = {
        "measured downtime within 10 %": [abs(one.measured_error) <= TOLERANCE for one in found],
        "truth within the bounds": [one.is_within_bounds for one in found],
        "advice is not worse than the policy in use": [not one.is_worse for one in found],
        "advice is the best or within 10 %": [one.is_best for one in found],
    }
    lines = [f"{name}: {sum(right) / len(right):.1%}" for name, right in shares.items()]
    wrong = [one.seed for one in found if one.is_worse or not one.is_best]
    lines.append(f"{len(found)} scenarios; advice is not the best for seeds {wrong}")
    return "\n".join((confusion_table(found), "", advice_table(found), "", *lines))


if __name__ == "__main__":
    print(describe(compare_scenarios(range(*map(int, sys.argv[1:])))))
