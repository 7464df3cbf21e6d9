"""Group policies (strategy, protocol and membership) that an operator can choose or has used.

A policy's label is shown to people and is a key in tables: ``range``, ``cooperative-sticky, static
45s``, ``KIP-848 uniform``. These labels occur only for policies that were used: ``sticky (exact)``
if Rota's solver computed the assignments, ``range (other)`` if neither Rota's nor Java's strategy
of that name did, ``cooperative-sticky, eager`` while the members also list an eager strategy,
``partly static``, and several policies, as in ``range, then cooperative-sticky``.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rota.engine.assignors.registry import BUILT_IN, common_protocol, resolve_strategy
from rota.engine.assignors.sticky import AbstractStickyAssignor
from rota.engine.history.client_settings import format_duration
from rota.engine.history.facts import (
    COOPERATIVE_STICKY,
    DEFAULT_SESSION_TIMEOUT,
    MAX_SESSION_TIMEOUT,
    MINUTE,
    SERVER_STRATEGIES,
    Generation,
    GroupType,
    Rebalance,
)
from rota.engine.history.rebalances import observed_protocol
from rota.engine.history.restarts import MemberRestart
from rota.engine.model.request import CONSUMER_PROTOCOL_TYPE

SESSION_TIMEOUT_CHOICES = (45_000, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, MAX_SESSION_TIMEOUT)
MIN_CONSUMER_SESSION_TIMEOUT = 45_000  # the default of ``group.consumer.min.session.timeout.ms``
COVERED_RESTART_SHARE = 0.9  # the share of restarts that a session timeout should cover
CONSUMER_LABEL_PREFIX = "KIP-848 "
#: Java's solver, Rota's own, and an unknown one.
KAFKA_SOLVER, EXACT_SOLVER, OTHER_SOLVER = "kafka", "exact", "other"


class PolicyProtocol(enum.StrEnum):
    EAGER = "eager"
    COOPERATIVE = "cooperative"
    CONSUMER = "consumer"  # KIP-848: the broker assigns, and members move one by one


class MembershipType(enum.StrEnum):
    """Whether members have a ``group.instance.id``."""

    DYNAMIC = "dynamic"
    PARTLY = "partly static"
    STATIC = "static"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPolicy:
    strategy: str
    protocol: PolicyProtocol = PolicyProtocol.EAGER
    membership: MembershipType = MembershipType.DYNAMIC
    session_timeout: int | None = None  # of static members; None: the broker's
    solver: str = KAFKA_SOLVER  # of a sticky strategy; ``other``: an unknown one
    assignor: str | None = None  # the ``package.module:Class`` or entry point of a custom strategy

    @property
    def label(self) -> str:
        """The label; the name of a custom strategy is quoted if it could be read as a label."""
        name = self.strategy
        ambiguous = "," in name or "(" in name or name.startswith(CONSUMER_LABEL_PREFIX)
        return (replace(self, strategy=f'"{name}"') if ambiguous else self).format_label()

    def format_label(self, default_solver: str = KAFKA_SOLVER) -> str:
        name = self.strategy
        if self.protocol is PolicyProtocol.CONSUMER:
            name = CONSUMER_LABEL_PREFIX + name
        if self.solver != default_solver:
            name += f" ({self.solver})"
        if self.strategy == COOPERATIVE_STICKY and self.protocol is PolicyProtocol.EAGER:
            name += ", eager"
        if self.membership is not MembershipType.DYNAMIC:
            name += f", {self.membership}"
            if self.session_timeout is not None:
                name += f" {format_duration(self.session_timeout)}"
        return name

    @property
    def known(self) -> bool:
        consumer = self.protocol is PolicyProtocol.CONSUMER
        return self.strategy in (SERVER_STRATEGIES if consumer else BUILT_IN)

    @property
    def sticky(self) -> bool:
        """Whether the strategy is a classic sticky one; only these have two solvers."""
        found = BUILT_IN.get(self.strategy)
        classic = self.protocol is not PolicyProtocol.CONSUMER
        return classic and found is not None and issubclass(found, AbstractStickyAssignor)


def label_used_policies(used: Sequence[GroupPolicy]) -> str:
    """Joins the labels of policies in the order of their last use."""
    return ", then ".join(policy.label for policy in used) or "none"


def find_used_policies(
    rebalances: Sequence[Rebalance], solver: str = KAFKA_SOLVER
) -> tuple[GroupPolicy, ...]:
    """Returns each policy that a group used, in the order of their last use."""
    policies: dict[GroupPolicy, None] = {}
    for rebalance, protocol in zip(rebalances, _find_protocols(rebalances), strict=True):
        if rebalance.after.members:
            policy = _generation_policy(rebalance.after, protocol)
            if policy.sticky or (solver == OTHER_SOLVER and policy.known):
                policy = replace(policy, solver=solver)
            policies.pop(policy, None)
            policies[policy] = None
    return tuple(policies)


def _find_protocols(rebalances: Sequence[Rebalance]) -> list[PolicyProtocol]:
    """Returns the protocol of each rebalance; if unknown, the protocol of the next rebalance."""
    protocols = []
    following: dict[str | None, str] = {}
    for rebalance in reversed(rebalances):
        strategy = rebalance.after.strategy
        observed = observed_protocol(rebalance) or following.get(strategy)
        if observed is not None:
            following[strategy] = observed
        protocols.append(PolicyProtocol(observed or "cooperative"))
    return protocols[::-1]


def _generation_policy(generation: Generation, protocol: PolicyProtocol) -> GroupPolicy:
    static = [member for member in generation.members if member.group_instance_id is not None]
    membership = MembershipType.PARTLY if static else MembershipType.DYNAMIC
    if len(static) == len(generation.members):
        membership = MembershipType.STATIC
    return GroupPolicy(
        strategy=generation.strategy or "none",
        protocol=protocol,
        membership=membership,
        session_timeout=max((m.session_timeout for m in static if m.session_timeout), default=None),
    )


def suggest_session_timeouts(
    rebalances: Iterable[Rebalance], restarts: Sequence[MemberRestart]
) -> tuple[int, ...]:
    """Session timeouts to evaluate: the group's own, and one for most restarts, if any."""
    if not restarts:
        return ()
    members = (member for rebalance in rebalances for member in rebalance.after.members)
    timeouts = Counter(one.session_timeout for one in members if one.session_timeout)
    own = timeouts.most_common(1)[0][0] if timeouts else DEFAULT_SESSION_TIMEOUT
    downtimes = sorted(one.downtime for one in restarts)
    covering = downtimes[min(int(len(downtimes) * COVERED_RESTART_SHARE), len(downtimes) - 1)]
    if covering <= own:
        return (own,)
    longer = (time for time in SESSION_TIMEOUT_CHOICES if time >= covering and time > own)
    return own, next(longer, MAX_SESSION_TIMEOUT)


def make_custom_policy(strategy: str) -> GroupPolicy:
    """Returns the policy of a custom strategy, by ``package.module:Class`` or entry point."""
    assignor = resolve_strategy(strategy)
    protocol = PolicyProtocol[common_protocol([assignor]).name]
    return GroupPolicy(strategy=assignor.name, protocol=protocol, assignor=strategy)


def list_alternatives(
    used: Sequence[GroupPolicy], sessions: Sequence[int], custom: Iterable[GroupPolicy] = ()
) -> tuple[GroupPolicy, ...]:
    """Returns every policy to evaluate: each strategy, with dynamic and with static members."""
    solver = EXACT_SOLVER if any(policy.solver == EXACT_SOLVER for policy in used) else KAFKA_SOLVER
    protocols = {COOPERATIVE_STICKY: PolicyProtocol.COOPERATIVE}
    strategies = [
        GroupPolicy(strategy=name, protocol=protocols.get(name, PolicyProtocol.EAGER))
        for name in BUILT_IN
    ]
    strategies = [replace(one, solver=solver) if one.sticky else one for one in strategies]
    consumer = PolicyProtocol.CONSUMER
    strategies += [GroupPolicy(strategy=name, protocol=consumer) for name in SERVER_STRATEGIES]
    strategies += [policy for policy in custom if policy.strategy not in BUILT_IN]
    static = [_make_static(policy, session) for session in sessions for policy in strategies]
    own = sessions[0] if sessions else None
    labels = {label_used_policies(used)}
    if len(used) == 1:
        labels.add(replace(used[0], solver=KAFKA_SOLVER).label)
        if used[0].membership is MembershipType.STATIC:
            labels.add(replace(used[0], session_timeout=used[0].session_timeout or own).label)
    candidates = dict.fromkeys((*strategies, *static))
    return tuple(policy for policy in candidates if policy.label not in labels)


def _make_static(policy: GroupPolicy, session: int) -> GroupPolicy:
    if policy.protocol is PolicyProtocol.CONSUMER:
        session = max(session, MIN_CONSUMER_SESSION_TIMEOUT)
    return replace(policy, membership=MembershipType.STATIC, session_timeout=session)


def is_readable_consumer_group(generations: Iterable[Generation]) -> bool:
    """Returns whether the members share partitions and all their data could be decoded."""
    return all(
        (one.kind is GroupType.CONSUMER or one.protocol_type in {"", CONSUMER_PROTOCOL_TYPE})
        and not any(member.problem for member in one.members)
        for one in generations
    )
