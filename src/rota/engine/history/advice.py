"""Advises a group: what happened and why, what it cost, what to repair, the best policy.

Groups are ranked by their downtime, in partition-seconds (``downtime.py``). Policies are compared
by the downtime that each would have had in the same history (``whatif.py``), then by the records
that it would have delayed, then by moves.

The best policy is chosen among those that the brokers and the client libraries of the last members
are known to support, and that balance the load as evenly as now. Policies within
:data:`NEAR_BEST_SHARE` of the best count as equally good: of these the smallest change of settings
comes first. The policy in use is compared by the mean of its measured downtime and of the one that
the same replay computes for it. A change is advised only if it saves more than the *uncertainty*:
the largest of :data:`MIN_SAVED_SHARE` of the downtime, half of the difference between these two,
and half of the range of repeated replays of either policy. The evidence of static members can be
read in several ways (``whatif.py``); a change must cost hardly more in any of these readings. A
group with few rebalances is left as it is.

Patterns come first in the headline, and what no strategy prevents comes before what one does. If
the group is stuck or failing, the headline begins with that, and the first step is its repair.

``client_settings.py`` has the settings of each client library.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add

from rota.engine.history.client_settings import (
    CLIENT_LIBRARIES,
    MIN_BROKER_VERSION,
    UNKNOWN_LIBRARY,
    ClientLibrary,
    find_libraries,
    format_duration,
    format_step,
    join_names,
)
from rota.engine.history.downtime import UNCOUNTED_REASONS, DowntimeTotal
from rota.engine.history.facts import (
    COOPERATIVE_STICKY,
    DEFAULT_SESSION_TIMEOUT,
    Action,
    ActionKind,
    ActionStep,
    Advice,
    Generation,
    GroupHealth,
    GroupHealthStatus,
    Pattern,
    PatternType,
    Rebalance,
    RebalanceCause,
    WhatIf,
)
from rota.engine.history.patterns import HEALTH_PATTERNS, format_span
from rota.engine.history.policies import (
    OTHER_SOLVER,
    GroupPolicy,
    MembershipType,
    PolicyProtocol,
    find_used_policies,
    is_readable_consumer_group,
    label_used_policies,
)
from rota.engine.model.duration import format_rounded_duration
from rota.engine.model.request import CONSUMER_PROTOCOL_TYPE

#: ``group.consumer.max.session.timeout.ms``.
MAX_CONSUMER_SESSION_TIMEOUT = 60_000

_RESTART = "Restart the members one after the other with {}"
_SESSION_LIMIT_HINT = (
    "The session must not be above the broker's group.max.session.timeout.ms, 1800000 if not set."
)


def is_migration_possible(
    used: GroupPolicy, wanted: GroupPolicy, libraries: Sequence[ClientLibrary]
) -> bool:
    """Returns whether every client library of the group supports the wanted policy."""
    if wanted.membership is not MembershipType.DYNAMIC and not all(x.static_id for x in libraries):
        return False
    if (wanted.strategy, wanted.protocol) == (used.strategy, used.protocol):
        return True
    if wanted.protocol is PolicyProtocol.CONSUMER:
        return all(one.consumer_protocol for one in libraries)
    return all(wanted.strategy in one.strategies for one in libraries)


def migration_size(used: GroupPolicy, wanted: GroupPolicy) -> int:
    """Returns the size of a change, to choose among equally good policies.

    A longer session timeout is a setting. Another strategy needs one or two restarts, and static
    membership a ``group.instance.id`` for every process. Another protocol may need new brokers and
    clients.
    """
    total = 2 * (wanted.membership is not used.membership)
    total += wanted.session_timeout != used.session_timeout
    if wanted.protocol is not used.protocol:
        return total + (4 if PolicyProtocol.CONSUMER in {wanted.protocol, used.protocol} else 2)
    return total + 2 * (wanted.strategy != used.strategy)


def list_migration_steps(
    used: GroupPolicy,
    wanted: GroupPolicy,
    libraries: Sequence[ClientLibrary],
    session_timeout: int | None = None,
) -> tuple[str, ...]:
    """Returns the steps of a migration.

    :param session_timeout: the present session timeout of all members; None: unknown, or several
    """
    steps: list[str] = []
    if wanted.membership is MembershipType.STATIC:
        steps += _static_steps(used, wanted, libraries, session_timeout)
    elif used.membership is not MembershipType.DYNAMIC:
        is_last = (wanted.strategy, wanted.protocol) == (used.strategy, used.protocol)
        restart = ", and restart the members one after the other" if is_last else ""
        steps.append(
            format_step(
                f"Remove {{}} from every member's settings{restart}.",
                libraries,
                lambda one: one.static_id,
            )
        )
        session = session_timeout or used.session_timeout or DEFAULT_SESSION_TIMEOUT
        away = format_duration(session)
        steps.append(
            "Note: a static member that stops keeps its partitions until its session ends, for "
            f"{away}, also if its process comes back without the ID. Remove it with the admin "
            "client (Java: removeMembersFromConsumerGroup) when its process stops."
        )
        is_classic = wanted.protocol is not PolicyProtocol.CONSUMER  # otherwise the broker sets it
        if is_classic and session > DEFAULT_SESSION_TIMEOUT:
            steps.append(
                format_step(
                    f"Set {{}} at the same time: otherwise the partitions of a member that crashed "
                    f"wait for {away}.",
                    libraries,
                    lambda one: one.session_setting(DEFAULT_SESSION_TIMEOUT),
                )
            )
    if (wanted.strategy, wanted.protocol) == (used.strategy, used.protocol):
        return tuple(steps)
    if wanted.protocol is not PolicyProtocol.CONSUMER:
        steps += _strategy_steps(used, wanted, libraries)
    elif used.protocol is not PolicyProtocol.CONSUMER:
        steps += _consumer_protocol_steps(wanted, libraries)
    else:
        steps.append(
            format_step(
                f"{_RESTART}.", libraries, lambda one: one.assignor_setting(wanted.strategy)
            )
        )
    return tuple(steps)


def _static_steps(
    used: GroupPolicy,
    wanted: GroupPolicy,
    libraries: Sequence[ClientLibrary],
    session_timeout: int | None,
) -> Iterator[str]:
    session = _session_to_set(used, wanted)
    if used.membership is not MembershipType.STATIC:
        yield format_step(
            "Give every process {}, with an ID of its own that stays the same over restarts and "
            "deploys: the name of a StatefulSet's pod or of a host, not that of a Deployment's "
            "pod. Two processes with the same ID fence each other.",
            libraries,
            ClientLibrary.group_instance_id,
        )
    if session is None:
        return
    if wanted.protocol is PolicyProtocol.CONSUMER:
        limit = ""
        if session > MAX_CONSUMER_SESSION_TIMEOUT:
            limit = (
                ", after raising the broker's group.consumer.max.session.timeout.ms, "
                f"{MAX_CONSUMER_SESSION_TIMEOUT} if not set"
            )
        yield (
            f"Set consumer.session.timeout.ms={session} for the group (kafka-configs "
            f"--entity-type groups){limit}."
        )
    elif used.protocol is not PolicyProtocol.CONSUMER:  # otherwise a restart sets it
        text = "Keep {}." if session == session_timeout else f"Set {{}}. {_SESSION_LIMIT_HINT}"
        yield format_step(text, libraries, lambda one: one.session_setting(session))
    yield (
        "Note: a static member keeps its partitions while it restarts; nobody reads them until "
        f"it is back, or for {format_duration(session)} if it does not come back (rota simulate "
        "shows the downtime). To scale down, remove the member with the admin client instead of "
        "waiting."
    )


def _session_to_set(used: GroupPolicy, wanted: GroupPolicy) -> int | None:
    """Returns the session timeout to set; None if it does not change.

    The broker sets the timeout of consumer groups, so a change of the protocol needs a new setting.
    """
    if wanted.membership is not MembershipType.STATIC:
        return None
    old, new = (
        (policy.protocol is PolicyProtocol.CONSUMER, policy.membership, policy.session_timeout)
        for policy in (used, wanted)
    )
    return None if old == new else wanted.session_timeout


def _strategy_steps(
    used: GroupPolicy, wanted: GroupPolicy, libraries: Sequence[ClientLibrary]
) -> Iterator[str]:
    def wanted_setting(library: ClientLibrary) -> str:
        return library.strategy_setting(wanted.strategy)

    cooperative = wanted.protocol is PolicyProtocol.COOPERATIVE
    switch = ": the group becomes cooperative" if cooperative else ""
    if used.protocol is PolicyProtocol.CONSUMER:
        session = _session_to_set(used, wanted)
        limit = "" if session is None else f" {_SESSION_LIMIT_HINT}"
        yield format_step(
            f"{_RESTART}.{limit}",
            libraries,
            lambda one: one.classic_protocol_setting(wanted.strategy, session),
        )
        return
    if used.strategy == wanted.strategy:  # the list also has an eager strategy
        yield format_step(f"{_RESTART}{switch}.", libraries, wanted_setting)
        return
    crosses = wanted.protocol is not used.protocol
    versions = [one.cooperative_since for one in libraries if one.cooperative_since]
    if wanted.strategy == COOPERATIVE_STICKY and versions:
        yield f"Check that every member runs {', or '.join(dict.fromkeys(versions))}."
    refusing = [one.name for one in libraries if not one.allows_mixed_list]
    if crosses and refusing:
        yield (
            f"Stop all members: {join_names(refusing)} cannot have eager and cooperative "
            "strategies in one list, so the group cannot change over while it runs."
        )
        yield format_step("Start them with {}.", libraries, wanted_setting)
        return
    mixed = [one.mixed_default for one in libraries]
    if crosses and used.strategy == "range" and all(mixed):
        yield (
            f"Skip the next step if all members run {join_names(mixed)} and do not set the list: "
            "the default list has both."
        )
    yield format_step(
        f"{_RESTART}: the group continues with {used.strategy} until all members have it.",
        libraries,
        lambda one: one.strategy_setting(wanted.strategy, used.strategy),
    )
    second_restart = f"Restart them one after the other again with {{}}{switch}."
    yield format_step(second_restart, libraries, wanted_setting)


def _consumer_protocol_steps(
    wanted: GroupPolicy, libraries: Sequence[ClientLibrary]
) -> Iterator[str]:
    clients = [one.consumer_protocol.minimum_client for one in libraries if one.consumer_protocol]
    runs = f", and every member {', or '.join(dict.fromkeys(clients))}" if clients else ""
    yield f"Check that the brokers run Kafka {MIN_BROKER_VERSION} or newer{runs}."
    yield format_step(
        f"{_RESTART}. The group changes over while it runs.",
        libraries,
        lambda one: one.consumer_protocol_setting(wanted.strategy),
    )


CHANGE, KEEP, FIX_FIRST, CANNOT_TELL = "change", "keep", "fix first", "cannot tell"
#: Policies count as equally good if their downtime exceeds the least by at most this share.
NEAR_BEST_SHARE = 0.03
#: What is the same under every strategy.
UNPREVENTABLE = {
    PatternType.SLOW_POLLS: "slow polls",
    PatternType.CRASHES: "crashes",
    PatternType.STUCK_PARTITION: "a stuck partition",
    PatternType.GROWING_LAG: "growing lag",
}
#: What another policy makes cheaper; all other patterns are to be repaired.
POLICY_PATTERNS = frozenset({PatternType.AUTOSCALER, PatternType.ROLLING_DEPLOY})
#: How much less even the load may be on average.
EVENNESS_TOLERANCE = 1.1
#: A change has to save this share of the downtime ...
MIN_SAVED_SHARE = 0.1
#: ... and at least this many partition-milliseconds.
MIN_SAVED = 5_000
#: Less downtime, in partition-milliseconds, would be shown as 0.0 s.
SHOWN_DOWNTIME = 50
#: A group with fewer rebalances and restarts gets no advice to change its policy.
MIN_EVENTS = 3
#: Health that must be repaired before a policy is worth a thought.
SICK = frozenset({GroupHealth.STUCK, GroupHealth.FAILING})


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEvaluation:
    """The rebalances of a group under the policies it used and under every alternative."""

    rows: Sequence[WhatIf] = ()
    #: The policies that the group used, in the order of their last use.
    used: tuple[GroupPolicy, ...] = ()
    #: The other policies, by the label in their rows.
    alternatives: Mapping[str, GroupPolicy] = field(default_factory=dict)
    #: The downtime that the replay computes for the used policy; None: not replayed.
    modelled_ms: int | None = None
    #: By how much the downtime of a policy differs between replays.
    spreads: Mapping[str, int] = field(default_factory=dict)
    #: The downtime of a policy under each other reading of the evidence.
    other_readings: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def advised_policy(self, advice: Advice) -> GroupPolicy | None:
        """Returns the policy that the group should change to; None if no change is advised."""
        return self.alternatives[advice.policy] if advice.verdict == CHANGE else None


@dataclass(frozen=True, slots=True)
class PolicyTotal:
    """The cost of a policy over the whole history."""

    policy: str
    #: In partition-milliseconds.
    downtime: int = 0
    #: Records that arrived in that time; 0 if no log end is known.
    delayed: int = 0
    rebalances: int = 0
    moved: int = 0
    moves_needed: int = 0
    revoked: int = 0
    needless: int = 0
    #: Members without partitions, summed over all rebalances.
    idle: int = 0
    #: Largest load minus smallest, summed over all rebalances.
    spread: int = 0

    def is_as_even_as(self, other: PolicyTotal) -> bool:
        """Whether members are loaded as evenly as under another policy, on average.

        A spread of one is even. A strategy may move less by balancing worse. Averages differ a
        little if other rebalances happen.
        """
        own, others = max(self.rebalances, 1), max(other.rebalances, 1) / EVENNESS_TOLERANCE
        return self.idle * others <= other.idle * own and (
            self.spread <= own or self.spread * others <= other.spread * own
        )


def sum_by_policy(whatifs: Iterable[WhatIf]) -> dict[str, PolicyTotal]:
    sums: dict[str, list[int]] = {}
    for row in whatifs:
        totals = sums.setdefault(row.policy, [0] * 9)
        totals[0] += row.downtime_ms
        totals[1] += row.delayed_records or 0
        if row.happens:
            needless = max(row.moved - row.moves_needed, 0)
            moves = (row.moved, row.moves_needed, row.revoked, needless)
            totals[:] = map(add, totals, (0, 0, 1, *moves, row.idle_members, row.spread))
    return {name: PolicyTotal(name, *totals) for name, totals in sums.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceEvidence:
    """What is known about a group besides its generations and rebalances."""

    #: The result of :func:`rota.engine.history.whatif.evaluate_policies`.
    evaluation: PolicyEvaluation
    #: The downtime in the time of the advice.
    total: DowntimeTotal = field(default_factory=DowntimeTotal)
    patterns: Sequence[Pattern] = ()
    health: GroupHealthStatus | None = None
    #: Causes by incarnation and generation.
    causes: Mapping[tuple[int, int], RebalanceCause] = field(default_factory=dict)
    #: The journal shows that the brokers have the consumer protocol (KIP-848).
    has_consumer_protocol: bool = False


def advise_group(
    generations: Sequence[Generation],
    rebalances: Sequence[Rebalance],
    evidence: AdviceEvidence,
) -> Advice:
    if not is_readable_consumer_group(generations):
        return _advise_unreadable(generations, rebalances)
    case = _AdviceCase(generations, rebalances, evidence)
    best = case.best
    verdict = case.verdict(best)
    if verdict != CHANGE:
        best = case.used
    total = evidence.total
    delayed = total.delayed_records
    after = best.delayed if verdict == CHANGE else delayed
    return Advice(
        group=generations[0].group,
        verdict=verdict,
        policy=best.policy,
        policies_used=case.policies_used,
        destination=case.destination,
        rebalances=case.used.rebalances,
        rebalances_after=best.rebalances,
        downtime_ms=total.downtime_ms,
        downtime_at_least_ms=total.downtime_at_least_ms,
        downtime_at_most_ms=total.downtime_at_most_ms,
        downtime_current_ms=case.current_downtime,
        downtime_after_ms=best.downtime if verdict == CHANGE else case.current_downtime,
        uncertainty_ms=case.uncertainty,
        not_polled_ms=total.not_polled_ms,
        downtime_by_reason=total.by_reason,
        delayed_records=delayed,
        delayed_records_after=None if delayed is None else after,
        added_lag_ms=total.added_lag_ms,
        moved=case.used.moved,
        moved_after=best.moved,
        moves_needed=case.used.moves_needed,
        revoked=case.used.revoked,
        revoked_after=best.revoked,
        libraries=case.libraries,
        patterns=tuple(evidence.patterns),
        headline=case.headline(verdict, best),
        steps=case.steps(verdict, best),
        happened=case._describe_history(),
        to_do=case._describe_verdict(verdict, best),
        recommendation=f"Keep {case.used.policy}"[:28] if verdict != CHANGE else best.policy[:28],
        saving_ms=case.current_downtime - best.downtime if verdict == CHANGE else None,
        actions=tuple(
            Action(
                title=step.partition(".")[0],
                kind=ActionKind.REPAIR if verdict != CHANGE else ActionKind.POLICY,
                steps=(ActionStep(text=step),),
            )
            for step in case.steps(verdict, best)
        ),
        setting_libraries=tuple(one.name for one in case._clients),
    )


def _advise_unreadable(
    generations: Sequence[Generation], rebalances: Sequence[Rebalance]
) -> Advice:
    group, number = generations[0].group, len(rebalances)
    strategy = generations[-1].strategy or "none"
    why = "the data of some members could not be decoded"
    if kinds := {one.protocol_type for one in generations} - {"", CONSUMER_PROTOCOL_TYPE}:
        why = f"its members are not consumers ({', '.join(sorted(kinds))})"
    return Advice(
        group=group,
        verdict=CANNOT_TELL,
        policy=strategy,
        policies_used=(strategy,),
        rebalances=number,
        rebalances_after=number,
        libraries=_last_libraries(generations),
        headline=f"{group}: {_format_count(number, 'rebalance')}; downtime not known: {why}.",
        happened=f"{_format_count(number, 'rebalance')}; downtime not known: {why}.",
        to_do=f"Rota cannot compare policies for this group: {why}.",
        recommendation="No advice",
    )


def _last_libraries(generations: Sequence[Generation]) -> tuple[str, ...]:
    """Returns the libraries of the last members, without those of members that they replaced."""
    last = next((one.members for one in reversed(generations) if one.members), ())
    return tuple(sorted({member.library or UNKNOWN_LIBRARY for member in last}))


class _AdviceCase:
    def __init__(
        self,
        generations: Sequence[Generation],
        rebalances: Sequence[Rebalance],
        evidence: AdviceEvidence,
    ) -> None:
        self._generations = generations
        self._rebalances = rebalances
        self._evidence = evidence
        evaluation, causes = evidence.evaluation, evidence.causes
        ends = ((each.after.incarnation, each.after.generation) for each in rebalances)
        self._causes = Counter(causes[end] for end in ends if end in causes)
        self._totals = sum_by_policy(evaluation.rows)
        self._alternatives = evaluation.alternatives
        actual = label_used_policies(evaluation.used)
        self.used = self._totals.pop(actual, PolicyTotal(actual))
        self.policies_used = tuple(one.label for one in evaluation.used) or (actual,)
        listed = find_used_policies(rebalances)
        self._known = all(policy.known for policy in listed)
        self._policy = evaluation.used[-1] if listed else GroupPolicy(strategy="none")
        #: The cost of the last used policy, if it had been used from the beginning.
        self._current_total = self._totals.get(self._policy.label, self.used)
        self.libraries = _last_libraries(generations)
        self._clients = find_libraries(self.libraries)
        used = self._current_total.downtime
        modelled = evaluation.modelled_ms
        error = 0 if modelled is None else abs(modelled - self.used.downtime) // 2
        #: The downtime with which other policies are compared: the measured one may be a lucky or
        #: an unlucky draw, because heartbeats decide how long an eager rebalance takes.
        self._compared = used if modelled is None else (used + modelled) // 2
        #: The best policy that the group's libraries support; it may be the one in use.
        self.best = self._find_best()
        labels = (self._policy.label, self.best.policy)
        spread = max(evaluation.spreads.get(label, 0) for label in labels)
        #: A policy that saves less is not certain to be better.
        self.uncertainty = max(round(MIN_SAVED_SHARE * used), error, spread // 2, MIN_SAVED)

    @property
    def current_downtime(self) -> int:
        """The expected downtime of the policy in use at the end."""
        return self._compared

    @property
    def destination(self) -> str | None:
        """The policy to plan for, if it is not in use and everything supports it."""
        is_used = self._policy.protocol is PolicyProtocol.CONSUMER
        if is_used or not self._evidence.has_consumer_protocol or not self._known:
            return None
        if UNKNOWN_LIBRARY in self.libraries or not all(x.consumer_protocol for x in self._clients):
            return None
        return "group.protocol=consumer"

    @property
    def _is_sick(self) -> bool:
        """Whether the group is stuck or failing."""
        health = self._evidence.health
        return health is not None and health.health in SICK

    @property
    def _session_timeout(self) -> int | None:
        """The session timeout of all last members; None if it is unknown or differs."""
        last = next((one.members for one in reversed(self._generations) if one.members), ())
        timeouts = {member.session_timeout for member in last}
        return timeouts.pop() if len(timeouts) == 1 else None

    def _has_protocol(self, protocol: PolicyProtocol) -> bool:
        """Whether the group can use a protocol: not one that the brokers may not have, and no
        longer the classic one, which Kafka 6.0 removes from the Java consumer.
        """
        is_consumer = protocol is PolicyProtocol.CONSUMER
        if self._policy.protocol is PolicyProtocol.CONSUMER:
            return is_consumer
        return self._evidence.has_consumer_protocol or not is_consumer

    def _list_suitable(self) -> Iterator[PolicyTotal]:
        """Yields the alternatives that the group could use."""
        for label, policy in self._alternatives.items():
            total = self._totals.get(label)
            if (
                total is not None
                and policy.known
                and is_migration_possible(self._policy, policy, self._clients)
                and self._has_protocol(policy.protocol)
                and total.is_as_even_as(self.used)
            ):
                yield total

    def _find_best(self) -> PolicyTotal:
        possible = [replace(self._current_total, downtime=self._compared)]
        possible += filter(self._is_safe_in_every_reading, self._list_suitable())
        near = _keep_nearly_least(possible, lambda total: total.downtime, MIN_SAVED // 2)
        size = min(self._migration_size(total.policy) for total in near)
        near = [total for total in near if self._migration_size(total.policy) == size]
        near = _keep_nearly_least(near, lambda total: total.delayed)
        return min(
            near,
            key=lambda total: (total.moved, total.downtime, total.rebalances, total.policy),
        )

    def _is_safe_in_every_reading(self, total: PolicyTotal) -> bool:
        """Whether a policy has no more downtime than the one in use, however the evidence is read:
        :data:`MIN_SAVED_SHARE` or :data:`MIN_SAVED` more count as equal.
        """
        readings = self._evidence.evaluation.other_readings
        found = readings.get(total.policy)
        if not found:
            return True
        used = readings.get(self.used.policy) or (0,) * len(found)
        limit = max(round(MIN_SAVED_SHARE * self._compared), MIN_SAVED)
        pairs = zip(found, used, strict=True)
        return all(then - max(now, self._compared) <= limit for then, now in pairs)

    def _saved_by(self, total: PolicyTotal) -> int:
        return self._compared - total.downtime

    def _migration_size(self, label: str) -> int:
        wanted = self._alternatives.get(label)
        return 0 if wanted is None else migration_size(self._policy, wanted)

    @property
    def _is_thin(self) -> bool:
        """Whether the history has too few rebalances and restarts for an advice."""
        rows = self._evidence.evaluation.rows
        restarts = sum(row.actual and not row.happens for row in rows)
        happened = len(self._rebalances) if self.used.rebalances else 0
        return happened + restarts < MIN_EVENTS

    @property
    def _has_members(self) -> bool:
        return bool(self._generations[-1].members)

    def verdict(self, best: PolicyTotal) -> str:
        keep = FIX_FIRST if self._is_sick else KEEP
        if not self._known:
            return CANNOT_TELL
        if best.policy in {self.used.policy, self._policy.label} or self._is_thin:
            return keep
        saved = self._saved_by(best)
        # the measured downtime and the replayed one have to show a saving: one of them may be wrong
        least_saved = saved - abs(self._compared - self._current_total.downtime)
        is_certain = least_saved > max(MIN_SAVED_SHARE * best.downtime, MIN_SAVED) / 2
        modelled, used = self._evidence.evaluation.modelled_ms, self._current_total.downtime
        if modelled and best.policy in self._evidence.evaluation.spreads:
            # the replay has as much too little or too much of the downtime of either policy
            is_certain &= used - best.downtime * used / modelled > self.uncertainty
        elif modelled is None:  # after a change of policy, only the sum was measured
            is_certain &= self.used.downtime - best.downtime > self.uncertainty
        return CHANGE if is_certain and saved > self.uncertainty else keep

    def headline(self, verdict: str, best: PolicyTotal) -> str:
        """Returns a few sentences: what happened and why, its cost, what no strategy prevents, the
        change and its saving.
        """
        group = self._generations[0].group
        health = self._evidence.health
        first = ":"
        if health is not None and self._is_sick:
            first = f" is {health.health}: {health.reason};"
        if not self._rebalances:
            return f"{group}{first} no rebalances."
        return f"{group}{first} {self._describe_history()} {self._describe_verdict(verdict, best)}"

    def _describe_history(self) -> str:
        used, total = self.used, self._evidence.total
        span = self._rebalances[-1].after.at - self._rebalances[0].after.at
        health = self._evidence.health
        told = HEALTH_PATTERNS.get(health.health) if health and self._is_sick else None
        text = "".join(
            f"{one.text}; " for one in self._evidence.patterns if one.pattern is not told
        )
        text += _format_count(used.rebalances, "rebalance")
        if used.rebalances > 1:
            text += f" in {format_span(span)}"
        if self._causes and not self._evidence.patterns:
            known = (f"{number} {cause}" for cause, number in self._causes.most_common())
            text += f" ({', '.join(known)})"
        text += f"; {format_rounded_duration(total.downtime_ms)} of downtime"
        counted = {
            reason: time
            for reason, time in total.by_reason.items()
            if reason not in UNCOUNTED_REASONS
        }
        parts = sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))
        parts = [pair for pair in parts if pair[1] >= SHOWN_DOWNTIME or pair is parts[0]]
        if len(parts) > 1:
            shown = (f"{format_rounded_duration(time)} {reason}" for reason, time in parts)
            text += f" ({', '.join(shown)})"
        elif parts:
            text += f" ({parts[0][0]})"
        if total.not_polled_ms:
            text += f", and {format_rounded_duration(total.not_polled_ms)} not polled"
        if total.shut_down_ms >= SHOWN_DOWNTIME:
            time = format_rounded_duration(total.shut_down_ms)
            text += f"; not counted: {time} after all members closed"
        text += f"; {_format_count(used.moved, 'partition')} moved"
        if used.moved:
            needed = used.moved - used.needless
            moves = "move was" if needed == 1 else "moves were"
            if needed == used.moved == 1:
                text += ", which was necessary"
            else:
                text += f", {'all' if needed == used.moved else needed or 'no'} {moves} necessary"
        causes = [one for one in self._evidence.patterns if one.fix]
        causes.sort(key=lambda one: one.pattern not in UNPREVENTABLE)
        fixes = list(dict.fromkeys(one.fix for one in causes if one.fix))
        # a static member that closes looks like one that crashes
        is_static = self._policy.membership is not MembershipType.DYNAMIC
        first = causes[0].pattern if causes else None
        if first in UNPREVENTABLE and not (is_static and first is PatternType.CRASHES):
            fixes.insert(0, f"No strategy prevents {UNPREVENTABLE[first]}.")
        return " ".join((f"{text}.", *fixes))

    def _describe_verdict(self, verdict: str, best: PolicyTotal) -> str:
        if verdict == CANNOT_TELL:
            return f"Rota does not know its strategy, {self._policy.strategy}."
        if verdict != CHANGE:
            return self._describe_keep(verdict)
        used = self._current_total
        counts = (
            (f"{_format_count(best.moved, 'partition')} moved", best.moved, used.moved),
            (_format_count(best.rebalances, "rebalance"), best.rebalances, used.rebalances),
        )
        saved = "".join(f", {text} instead of {now}" for text, then, now in counts if then < now)
        wanted = self._alternatives[best.policy]
        change = _describe_change(self._policy, wanted, self._session_timeout)
        downtime = format_rounded_duration(best.downtime)
        text = (
            f"Use {change}: {downtime} of downtime instead of "
            f"{self._expected} (uncertain by "
            f"{format_rounded_duration(self.uncertainty)}){saved}"
        )
        costs = [f"{text} instead of {now}" for text, then, now in counts if then > now]
        if wanted.membership is MembershipType.STATIC is not self._policy.membership:
            session = format_duration(wanted.session_timeout or 0)
            costs.append(f"the partitions of a member that does not come back wait for {session}")
        return text + (f"; the price: {', '.join(costs)}." if costs else ".")

    @property
    def _expected(self) -> str:
        """The expected downtime of the policy in use, and how it differs from the measured one."""
        expected = format_rounded_duration(self._compared)
        if self._current_total is not self.used:
            return f"{expected} with {self._policy.label} all the time"
        measured = format_rounded_duration(self.used.downtime)
        return measured if measured == expected else f"{expected} expected, {measured} measured"

    def _describe_keep(self, verdict: str) -> str:
        label = self._policy.label
        if verdict == FIX_FIRST:
            return f"Repair this first; then keep {label}."
        if self._is_thin:
            number = _format_count(self.used.rebalances, "rebalance")
            few = "is not enough" if self.used.rebalances == 1 else "are too few"
            return f"Keep {label}: {number} {few} to compare policies."
        uncertain = format_rounded_duration(self.uncertainty)
        better = [one for one in self._list_suitable() if self._saved_by(one) > self.uncertainty]
        doubtful = [one for one in better if not self._is_safe_in_every_reading(one)]
        if better:
            other = min(doubtful or better, key=lambda one: one.downtime)
            saved = format_rounded_duration(self._saved_by(other))
            text = f"Keep {label}: {other.policy} may save {saved} of downtime, or "
            measured, modelled = self.used.downtime, self._evidence.evaluation.modelled_ms
            if doubtful:
                return (
                    f"{text}cost more. The evidence does not show whether members that were away "
                    "had closed or crashed, or how often they send heartbeats."
                )
            replayed = self._current_total.downtime if modelled is None else modelled
            return (
                f"{text}nothing: the replay of {label} has {format_rounded_duration(replayed)} "
                f"of downtime, and {format_rounded_duration(measured)} were measured."
            )
        least = min((one.downtime for one in self._totals.values()), default=self.used.downtime)
        if least < self._current_total.downtime:
            return (
                f"Keep {label}: no other policy that suits the group saves more than this "
                f"estimate may be wrong ({uncertain})."
            )
        return f"Keep {label}: no other policy has less downtime."

    def steps(self, verdict: str, best: PolicyTotal) -> tuple[str, ...]:
        """Returns what to repair, then the steps of the migration."""
        steps = list(dict.fromkeys(one.fix for one in self._evidence.patterns if one.fix))
        health = self._evidence.health
        if health is not None and health.health is GroupHealth.FAILING and not self._has_members:
            steps.insert(0, "Start the members again, or find out who stopped them.")
        if health is not None and self._is_sick and verdict == CHANGE:
            steps.insert(0, f"Repair the group first: it is {health.health}: {health.reason}.")
        steps += self._list_repairs()
        planned = {one.fix for one in self._evidence.patterns if one.pattern in POLICY_PATTERNS}
        if verdict == CHANGE:
            if not planned.issuperset(steps):
                steps.append(
                    "Then run Rota again before you change the policy: its saving may come from "
                    "rebalances that no longer happen."
                )
            if self._policy.solver == OTHER_SOLVER:
                steps.append(
                    f"The assignments of {self._policy.strategy} are neither Rota's nor Java's: "
                    "the saving is an estimate."
                )
            if UNKNOWN_LIBRARY in self.libraries:
                who, end = "the members", "are for Java"
                if len(self.libraries) > 1:
                    who, end = "the other members", "name Java's settings for them"
                steps.append(f"Find out which client library {who} use; the steps below {end}.")
            steps += list_migration_steps(
                self._policy,
                self._alternatives[best.policy],
                self._clients,
                self._session_timeout,
            )
        wanted = self._alternatives[best.policy] if verdict == CHANGE else self._policy
        if self.destination is not None and wanted.protocol is not PolicyProtocol.CONSUMER:
            needed = (
                x.consumer_protocol.minimum_client for x in self._clients if x.consumer_protocol
            )
            steps.append(
                ("Or skip these steps and go to" if verdict == CHANGE else "Plan for")
                + " the broker's protocol (KIP-848, group.protocol=consumer): the brokers "
                f"have it; members need {', or '.join(dict.fromkeys(needed))}. The classic "
                "protocol is deprecated in Kafka 5.0, and Kafka 6.0 removes it from the Java "
                "consumer."
            )
        return tuple(steps)

    def _list_repairs(self) -> Iterator[str]:
        """Yields what to repair besides the patterns."""
        slow_polls, expired = (
            self._causes[one] for one in (RebalanceCause.SLOW_POLL, RebalanceCause.SESSION_TIMEOUT)
        )
        told = {one.pattern for one in self._evidence.patterns}
        if slow_polls and PatternType.SLOW_POLLS not in told:
            limited = [one for one in self._clients if one.slow_poll_hint]
            limited = limited or [CLIENT_LIBRARIES[UNKNOWN_LIBRARY]]
            count = _format_count(slow_polls, "rebalance")
            text = f"Slow polls caused {count}, which no policy prevents: {{}}."
            hint = format_step(text, limited, lambda one: one.slow_poll_hint, several="do this")
            yield hint
        # the pods of a deploy that were away for longer than their session did not crash
        is_deploy = (
            PatternType.ROLLING_DEPLOY in told
            and self._policy.membership is not MembershipType.DYNAMIC
        )
        if expired and PatternType.CRASHES not in told and not is_deploy:
            count = _format_count(expired, "rebalance")
            yield (
                f"Members that stopped sending heartbeats caused {count}, which no policy "
                "prevents: look for crashes, long pauses of the process or network failures at "
                "those times (gold/rebalances lists them)."
            )


def _keep_nearly_least(
    totals: Sequence[PolicyTotal], count: Callable[[PolicyTotal], int], slack: int = 0
) -> list[PolicyTotal]:
    least = min(map(count, totals))
    limit = least + max(NEAR_BEST_SHARE * least, slack)
    return [total for total in totals if count(total) <= limit]


def _describe_change(used: GroupPolicy, wanted: GroupPolicy, session_timeout: int | None) -> str:
    changes = []
    if (wanted.strategy, wanted.protocol) != (used.strategy, used.protocol):
        changes.append(
            f"the broker's protocol (KIP-848) with {wanted.strategy}"
            if wanted.protocol is PolicyProtocol.CONSUMER
            else wanted.strategy
        )
    if wanted.membership is MembershipType.STATIC:
        session = wanted.session_timeout
        timeout = []
        if session is not None and session != session_timeout:
            timeout = [f"a session timeout of {format_duration(session)}"]
        if used.membership is not MembershipType.STATIC:
            changes.append(" with ".join(("static membership", *timeout)))
        elif session != used.session_timeout:
            changes += timeout
    elif used.membership is not MembershipType.DYNAMIC:
        changes.append("dynamic membership")
    return " and ".join(changes)


def _format_count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
