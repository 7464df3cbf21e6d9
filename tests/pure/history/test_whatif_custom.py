"""History replayed under custom strategies: their hooks are called as in a real group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

import rota
from rota.engine.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from rota.engine.history.advice import AdviceEvidence, advise_group
from rota.engine.history.facts import CANNOT_TELL, CHANGE, KEEP, WhatIf
from rota.engine.history.policies import make_custom_policy
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.whatif import evaluate_policies
from tests.support import first_recording
from tests.support.example_history import (
    NOT_MEASURED,
    HistoryBuilder,
    generation,
    member,
)

GROUPS = sorted(
    group for group, timeline in first_recording.read_histories().items() if timeline.generations
)


class Sticky(StickyAssignor):
    """Kafka's sticky strategy with hooks of its own, and without the shortcut of built-in ones."""

    name = "my-sticky"

    def __init__(self) -> None:
        super().__init__(solver="kafka")

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        return super().subscription_user_data(topics)


class Cooperative(CooperativeStickyAssignor):
    name = "my-cooperative"

    def __init__(self) -> None:
        super().__init__(solver="kafka")

    def on_assignment(self, assignment: rota.Assignment, generation: int) -> None:
        super().on_assignment(assignment, generation)


@pytest.mark.parametrize("group", GROUPS)
def test_a_copy_of_kafkas_strategies_is_replayed_as_they_are(group: str) -> None:
    told = first_recording.read_histories()[group].generations
    steps = find_rebalances(told)
    custom = [f"{__name__}:{one.__name__}" for one in (Sticky, Cooperative)]
    evaluation = evaluate_policies(told, steps, NOT_MEASURED, strategies=custom)
    rows = evaluation.rows
    by_policy: dict[str, list[tuple[object, ...]]] = {}
    for row in rows:
        counted = (
            row.to_generation,
            row.happens,
            row.moved,
            row.moves_needed,
            row.revoked,
            row.downtime_ms,
        )
        by_policy.setdefault(row.policy, []).append((*counted, row.idle_members, row.spread))
    compared = 0
    for policy, found in by_policy.items():
        if policy.startswith("my-"):
            name = policy.replace("my-sticky", "sticky").replace("my-coop", "coop")
            name = name.replace("cooperative", "cooperative-sticky")
            if name in by_policy and not any(row.actual for row in rows if row.policy == name):
                assert found == by_policy[name], policy
                compared += 1
    assert compared or not rows
    builtin = evaluate_policies(told, steps, NOT_MEASURED)
    assert [row for row in rows if not row.policy.startswith("my-")] == list(builtin.rows)
    assert advise_group(told, steps, AdviceEvidence(evaluation=evaluation)) == advise_group(
        told, steps, AdviceEvidence(evaluation=builtin)
    )


def test_the_policy_of_a_custom_strategy() -> None:
    policy = make_custom_policy(f"{__name__}:Cooperative")
    assert (policy.label, policy.protocol, policy.known) == ("my-cooperative", "cooperative", False)
    assert make_custom_policy(f"{__name__}:Sticky").protocol == "eager"


class StaticInName(Sticky):
    name = "range, static 45s"


class ExactInName(Sticky):
    name = "sticky (exact)"


def cost_counts(rows: Iterable[WhatIf], policy: str) -> list[tuple[object, ...]]:
    return [
        (row.to_generation, row.happens, row.moved, row.revoked, row.downtime_ms)
        for row in rows
        if row.policy == policy
    ]


@pytest.mark.parametrize("custom", [StaticInName, ExactInName])
def test_a_custom_strategy_may_be_named_like_a_policy(custom: type[Sticky]) -> None:
    """Its rows are its own, and the advice does not take it for the policy of that name."""
    others = "bcdefgh"
    history_builder = HistoryBuilder({"t": 24}).at(0, "a", *others)
    for second in range(100, 1_300, 100):
        history_builder.at(second, *others).at(second + 2, f"a#{second}", *others)
    told, steps = history_builder.generations, history_builder.rebalances
    evaluation = evaluate_policies(
        told, steps, history_builder.downtime, strategies=[f"{__name__}:{custom.__name__}"]
    )
    labels = {
        label for label, policy in evaluation.alternatives.items() if policy.strategy == custom.name
    }
    assert labels == {f'"{custom.name}"', f'"{custom.name}", static 45s'}
    for label in labels:
        found = cost_counts(evaluation.rows, label)
        assert found
        assert found == cost_counts(evaluation.rows, label.replace(f'"{custom.name}"', "sticky"))
    builtin = evaluate_policies(told, steps, history_builder.downtime)
    assert cost_counts(evaluation.rows, "range, static 45s") == cost_counts(
        builtin.rows, "range, static 45s"
    )
    advice = advise_group(told, steps, AdviceEvidence(evaluation=evaluation))
    assert advice == advise_group(told, steps, AdviceEvidence(evaluation=builtin))
    assert advice.verdict == CHANGE
    only = {label: evaluation.alternatives[label] for label in labels}
    rows = [row for row in evaluation.rows if row.actual or row.policy in only]
    kept = advise_group(
        told, steps, AdviceEvidence(evaluation=replace(evaluation, rows=rows, alternatives=only))
    )
    assert (kept.verdict, (kept.policy,)) == (KEEP, kept.policies_used)


@pytest.mark.parametrize("name", ["sticky, static 45s", "sticky (exact)", "a, then range"])
def test_a_group_may_use_a_strategy_that_is_named_like_a_policy(name: str) -> None:
    told = [
        generation(1, [member("a", {"t": (0, 1)})], name),
        generation(2, [member("a", {"t": (0,)}), member("b", {"t": (1,)})], name),
    ]
    steps = find_rebalances(told)
    advice = advise_group(
        told, steps, AdviceEvidence(evaluation=evaluate_policies(told, steps, NOT_MEASURED))
    )
    assert (advice.verdict, advice.policy) == (CANNOT_TELL, f'"{name}"')
    assert advice.to_do == f"No advice on the policy: Rota does not know the strategy {name}."
