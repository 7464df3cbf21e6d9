"""History replayed under custom strategies: their hooks are called as in a real group."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import rota
from rota.engine.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from rota.engine.history.advice import advise_group
from rota.engine.history.policies import make_custom_policy
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.whatif import evaluate_policies
from tests.pure.history import capture

GROUPS = sorted(group for group, timeline in capture.timelines().items() if timeline.generations)


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
    told = capture.timelines()[group].generations
    steps = find_rebalances(told)
    custom = [f"{__name__}:{one.__name__}" for one in (Sticky, Cooperative)]
    rows = evaluate_policies(told, steps, strategies=custom)
    by_policy: dict[str, list[tuple[object, ...]]] = {}
    for row in rows:
        counted = (row.to_generation, row.happens, row.moved, row.moved_min, row.stopped)
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
    builtin = evaluate_policies(told, steps)
    assert [row for row in rows if not row.policy.startswith("my-")] == builtin
    assert advise_group(told, steps, rows) == advise_group(told, steps, builtin)


def test_the_policy_of_a_custom_strategy() -> None:
    policy = make_custom_policy(f"{__name__}:Cooperative")
    assert (policy.label, policy.protocol, policy.known) == ("my-cooperative", "cooperative", False)
    assert make_custom_policy(f"{__name__}:Sticky").protocol == "eager"
