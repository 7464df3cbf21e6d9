"""Group policies by the labels that people read."""

from __future__ import annotations

import itertools

from rota.engine.assignors.registry import BUILT_IN
from rota.engine.history.facts import SERVER_STRATEGIES
from rota.engine.history.policies import (
    EXACT_SOLVER,
    KAFKA_SOLVER,
    GroupPolicy,
    MembershipType,
    PolicyProtocol,
)

SESSION_TIMEOUTS = (None, 12_000, 45_000, 60_000, 120_000, 300_000, 600_000)


def _policies() -> dict[str, GroupPolicy]:
    strategies = [
        *itertools.product(BUILT_IN, [PolicyProtocol.EAGER]),
        ("cooperative-sticky", PolicyProtocol.COOPERATIVE),
        *itertools.product(SERVER_STRATEGIES, [PolicyProtocol.CONSUMER]),
    ]
    solvers = (KAFKA_SOLVER, EXACT_SOLVER)
    memberships = [
        (MembershipType.DYNAMIC, None),
        *itertools.product([MembershipType.STATIC], SESSION_TIMEOUTS),
    ]
    found = [
        GroupPolicy(
            strategy=strategy,
            protocol=protocol,
            membership=membership,
            session_timeout=session_timeout,
            solver=solver,
        )
        for (strategy, protocol), solver, (membership, session_timeout) in itertools.product(
            strategies, solvers, memberships
        )
    ]
    return {policy.label: policy for policy in found}


_POLICIES = _policies()


def policy_of(label: str) -> GroupPolicy:
    """Returns the policy of a built-in strategy with this label."""
    return _POLICIES[label]
