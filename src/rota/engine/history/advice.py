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

One sentence tells what happened, another one what to do (:data:`SENTENCE_LENGTH`). The first begins
with bad health, then come patterns, or the causes of the rebalances, and then the downtime. The
actions (``actions.py``) are in the order in which an operator should take them: first the repair
of what no policy prevents, then the change of the policy. A repair has an upper bound of what it
saves: the downtime of the rebalances that it prevents. Only a change of the policy was replayed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add

from rota.engine.history.actions import (
    FIND_LEAVES,
    POLICY_PATTERNS,
    is_migration_possible,
    list_migration_costs,
    list_migration_steps,
    make_cause_repair,
    make_health_repair,
    make_pattern_repair,
    migration_size,
    shorten_title,
    supports_policy,
)
from rota.engine.history.client_settings import (
    CLIENT_LIBRARIES,
    UNKNOWN_LIBRARY,
    ClientLibrary,
    find_libraries,
    join_names,
    offer_libraries,
)
from rota.engine.history.downtime import DowntimeTotal
from rota.engine.history.facts import (
    CANNOT_TELL,
    CHANGE,
    FIX_FIRST,
    HEALTH_PATTERNS,
    KEEP,
    MIN_SAVED,
    UNCOUNTED_REASONS,
    Action,
    ActionKind,
    ActionStep,
    Advice,
    DowntimeReason,
    Generation,
    GroupHealth,
    GroupHealthStatus,
    Pattern,
    PatternType,
    Rebalance,
    RebalanceCause,
    WhatIf,
    member_identity,
)
from rota.engine.history.health import format_minutes
from rota.engine.history.policies import (
    CONSUMER_LABEL_PREFIX,
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
from rota.engine.model.text import count_noun, shorten_middle

NEAR_BEST_SHARE = 0.03  # policies within this share of the least downtime are equally good
EVENNESS_TOLERANCE = 1.1  # how much less even the load may be on average
MIN_SAVED_SHARE = 0.1  # a change has to save this share of the downtime, and MIN_SAVED
SHOWN_DOWNTIME = 50  # less downtime, in partition-milliseconds, would be shown as 0.0 s
SENTENCE_LENGTH = 210  # a sentence gets no further part if it would be longer than this
NAME_LENGTH = 40  # longest name in a sentence
MOST_DOWNTIME = 0.6  # a reason has most of the downtime from this share on
MIN_EVENTS = 3  # a group with fewer rebalances and restarts gets no advice to change its policy
#: Health that must be repaired before a policy is worth a thought.
SICK = frozenset({GroupHealth.STUCK, GroupHealth.FAILING})
BAD_HEALTH = SICK | {GroupHealth.FALLING_BEHIND}
NO_ADVICE = "No advice"
#: Why a group has no policy to choose, by its protocol type.
_NO_POLICY = {
    "share": "several members of a share group may read the same partition",
    "streams": "the broker assigns the tasks of a streams group",
    "connect": "Connect's workers assign connectors and tasks in their own way",
}
_CAUSES = {
    RebalanceCause.JOINED: "because members joined",
    RebalanceCause.LEFT: "because members left",
    RebalanceCause.SESSION_TIMEOUT: "because sessions timed out",
    RebalanceCause.SLOW_POLL: "because of slow polls",
    RebalanceCause.SUBSCRIPTION: "because the subscription changed",
    RebalanceCause.PARTITIONS: "because partitions were added",
    RebalanceCause.STRATEGY: "because the strategy changed",
    RebalanceCause.LEADER: "because the leader rejoined",
    RebalanceCause.UNKNOWN: "for an unknown reason",
}
_DOWNTIME_REASONS = {
    DowntimeReason.REVOKED: "while partitions were revoked",
    DowntimeReason.MOVED: "while partitions moved",
    DowntimeReason.LEFT: "after members left",
    DowntimeReason.SILENT: "while waiting for session timeouts",
    DowntimeReason.RESTARTED: "while static members restarted",
    DowntimeReason.EMPTY: "without members",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEvaluation:
    """The rebalances of a group under the policies it used and under every alternative."""

    rows: Sequence[WhatIf] = ()
    used: tuple[GroupPolicy, ...] = ()  # policies, in the order of their last use
    #: The other policies, by the label in their rows.
    alternatives: Mapping[str, GroupPolicy] = field(default_factory=dict)
    modelled_ms: int | None = None  # replayed downtime of the used policy; None: not replayed
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
    downtime: int = 0  # in partition-milliseconds
    delayed: int = 0  # records that arrived in that time; 0 if no log end is known
    rebalances: int = 0
    moved: int = 0
    moves_needed: int = 0
    revoked: int = 0
    needless: int = 0
    idle: int = 0  # members without partitions, summed over all rebalances
    spread: int = 0  # largest load minus smallest, summed over all rebalances

    def is_as_even_as(self, other: PolicyTotal) -> bool:
        """Whether members are loaded as evenly as under another policy, on average. A spread of one
        is even. A strategy may move less by balancing worse. Averages differ a little if other
        rebalances happen.
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

    evaluation: PolicyEvaluation  # of :func:`rota.engine.history.whatif.evaluate_policies`
    total: DowntimeTotal = field(default_factory=DowntimeTotal)  # in the time of the advice
    patterns: Sequence[Pattern] = ()
    health: GroupHealthStatus | None = None
    #: Causes by incarnation and generation.
    causes: Mapping[tuple[int, int], RebalanceCause] = field(default_factory=dict)
    has_consumer_protocol: bool = False  # the journal shows that brokers have KIP-848


def advise_group(
    generations: Sequence[Generation],
    rebalances: Sequence[Rebalance],
    evidence: AdviceEvidence,
) -> Advice:
    if not is_readable_consumer_group(generations):
        why = "the data of some members could not be decoded"
        if kinds := {one.protocol_type for one in generations} - {"", CONSUMER_PROTOCOL_TYPE}:
            other = f"its protocol type is {', '.join(sorted(kinds))}, not consumer"
            why = _NO_POLICY.get(generations[-1].protocol_type, other)
        return advise_uncompared(
            generations[0].group, generations, rebalances, why, health=evidence.health
        )
    case = _AdviceCase(generations, rebalances, evidence)
    best = case.best
    verdict = case.verdict(best)
    if verdict != CHANGE:
        best = case.used
    actions = tuple(case.actions(verdict, best))
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
        happened=case.describe_history(),
        to_do=case.describe_actions(verdict, best, actions),
        recommendation=case.recommendation(verdict, best, actions),
        saving_ms=case.saved_by(best) if verdict == CHANGE else None,
        actions=actions,
        setting_libraries=case.setting_libraries(actions),
    )


def advise_uncompared(  # noqa: PLR0913 (all but four are options)
    group: str,
    generations: Sequence[Generation],
    rebalances: Sequence[Rebalance],
    why: str,
    *,
    health: GroupHealthStatus | None = None,
    happened: str | None = None,
    to_do: str | None = None,
) -> Advice:
    """Returns the advice on a group whose downtime is not known and whose policies cannot be
    compared. Bad health comes first in any case.

    :param why: why it cannot be compared
    :param happened: the sentence about what happened; None: the number of rebalances
    :param to_do: the sentence about what to do; None: ``why``
    """
    number = len(rebalances)
    strategy = next((one.strategy for one in reversed(generations) if one.strategy), "none")
    is_bad = health is not None and health.health in BAD_HEALTH
    if happened is None:
        happened = "No rebalances."
        if number:
            happened = f"The group rebalanced {_count_times(number)}."
    if to_do is None:
        to_do = f"No advice on the policy: {why}."
    actions: tuple[Action, ...] = ()
    if health is not None and is_bad:
        actions = (make_health_repair(health, generations[-1] if generations else None),)
        happened = _join_clauses(_describe_health(health), [happened.removesuffix(".")])
        to_do = f"{_first_step(actions[0])}."
    return Advice(
        group=group,
        verdict=FIX_FIRST if health is not None and health.health in SICK else CANNOT_TELL,
        policy=strategy,
        policies_used=(strategy,),
        rebalances=number,
        rebalances_after=number,
        libraries=_last_libraries(generations),
        happened=happened,
        to_do=to_do,
        recommendation=actions[0].title if actions else NO_ADVICE,
        actions=actions,
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
        #: What happened at each rebalance, by its incarnation and generation.
        self._actual_rows = {
            (row.incarnation, row.to_generation): row
            for row in evaluation.rows
            if row.actual and row.happens
        }
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
        possible = self._prefer_classic_protocol(possible)
        near = _keep_nearly_least(possible, lambda total: total.downtime, MIN_SAVED // 2)
        size = min(self._migration_size(total.policy) for total in near)
        near = [total for total in near if self._migration_size(total.policy) == size]
        near = _keep_nearly_least(near, lambda total: total.delayed)
        return min(
            near,
            key=lambda total: (total.moved, total.downtime, total.rebalances, total.policy),
        )

    def _prefer_classic_protocol(self, possible: list[PolicyTotal]) -> list[PolicyTotal]:
        """Drops KIP-848 policies that are not clearly better than all others: they need new brokers
        and clients, and their replay is less certain.
        """
        if self._policy.protocol is PolicyProtocol.CONSUMER:
            return possible
        others = [
            total
            for total in possible
            if total.policy not in self._alternatives
            or self._alternatives[total.policy].protocol is not PolicyProtocol.CONSUMER
        ]
        least = min(total.downtime for total in others)
        limit = least - max(round(MIN_SAVED_SHARE * self._compared), MIN_SAVED)
        return [total for total in possible if total in others or total.downtime < limit]

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

    def saved_by(self, total: PolicyTotal) -> int:
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
        saved = self.saved_by(best)
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

    # what happened

    @property
    def _bad_health(self) -> GroupHealthStatus | None:
        health = self._evidence.health
        return health if health is not None and health.health in BAD_HEALTH else None

    @property
    def _other_patterns(self) -> list[Pattern]:
        """The patterns that do not say the same as bad health."""
        health = self._bad_health
        told = None if health is None else HEALTH_PATTERNS.get(health.health)
        return [one for one in self._evidence.patterns if one.pattern is not told]

    def describe_history(self) -> str:
        """Returns a sentence: bad health, patterns or causes, and the downtime."""
        clauses = []
        if self._bad_health is not None:
            clauses.append(_describe_health(self._bad_health))
        for pattern in self._other_patterns:
            since, until = pattern.since, pattern.until
            until = since if pattern.times == 1 and pattern.pattern in _SHORT_PATTERNS else until
            clauses.append(f"{pattern.text} {format_minutes(since, until)}")
        if not clauses:
            clauses.append(self._describe_rebalances())
        downtime = self._describe_downtime()
        if _sentence_length([clauses[0], downtime]) > SENTENCE_LENGTH:
            downtime = self._describe_downtime(with_reason=False)
        return _join_clauses(clauses[0], clauses[1:], downtime)

    def _describe_rebalances(self) -> str:
        number = self.used.rebalances
        if not number or not self._rebalances:
            return "no rebalances"
        times = [each.after.at for each in self._rebalances]
        when = format_minutes(times[0], times[-1])
        causes = self._causes.most_common()
        if len(causes) == 1:
            known = f", {'' if number == 1 else 'each time '}{_CAUSES[causes[0][0]]}"
        else:
            known = ": " + ", ".join(f"{count:,} {_CAUSES[cause]}" for cause, count in causes)
        return f"the group rebalanced {_count_times(number)} {when}{known if causes else ''}"

    def _describe_downtime(self, *, with_reason: bool = True) -> str:
        total = self._evidence.total
        counted = {
            reason: time
            for reason, time in total.by_reason.items()
            if reason not in UNCOUNTED_REASONS
        }
        text = "no downtime"
        if total.downtime_ms >= SHOWN_DOWNTIME:
            text = f"{format_rounded_duration(total.downtime_ms)} of downtime"
            reason = max(counted, key=lambda one: counted[one], default=None)
            most = 0 if reason is None else counted[reason]
            is_most = with_reason and most >= max(MOST_DOWNTIME * total.downtime_ms, MIN_SAVED)
            if reason is not None and is_most:
                text += f", mostly {self._describe_reason(DowntimeReason(reason))}"
        if total.not_polled_ms:
            text += f", plus {format_rounded_duration(total.not_polled_ms)} without polls"
        if with_reason and total.shut_down_ms >= MIN_SAVED:
            closed = format_rounded_duration(total.shut_down_ms)
            text += f", not counting {closed} of shutdown"
        return text

    def _describe_reason(self, reason: DowntimeReason) -> str:
        revoked = max((row.revoked for row in self._actual_rows.values()), default=0)
        if reason is DowntimeReason.REVOKED and len(self.policies_used) == 1 and revoked > 1:
            strategy = shorten_middle(self._policy.strategy, NAME_LENGTH)
            return f"because {strategy} revoked up to {revoked:,} partitions each time"
        return _DOWNTIME_REASONS[reason]

    # what to do

    def offered_libraries(self, verdict: str, best: PolicyTotal) -> tuple[ClientLibrary, ...]:
        """Returns the client libraries to show settings for, the group's own first."""
        wanted = self._alternatives[best.policy] if verdict == CHANGE else None

        def is_able(library: ClientLibrary) -> bool:
            if wanted is None:
                return library.poll_interval is not None
            return supports_policy(library, self._policy) and supports_policy(library, wanted)

        return offer_libraries(self._clients, is_able)

    def setting_libraries(self, actions: Sequence[Action]) -> tuple[str, ...]:
        """Returns the libraries that a step names, the group's own first."""
        steps = [step for one in actions for step in one.steps]
        named = {name for step in steps for name in (*step.libraries, *step.settings)}
        names = (one.name for one in offer_libraries(self._clients, lambda _: True))
        return tuple(name for name in names if name in named)

    def actions(self, verdict: str, best: PolicyTotal) -> Iterator[Action]:
        """Yields the repairs, then the change of the policy, then what makes it cheaper."""
        libraries = self.offered_libraries(verdict, best)
        repairs = list(self._list_repairs(libraries))
        yield from repairs
        if verdict == CHANGE:
            yield from self._policy_actions(best, libraries, has_repairs=bool(repairs))
        for pattern in self._evidence.patterns:
            if pattern.pattern in POLICY_PATTERNS and pattern.fix:
                bound = self._bound(_PLANNED_CAUSES, pattern)
                yield make_pattern_repair(pattern, libraries, self._last_with_members, bound)
        wanted = self._alternatives[best.policy] if verdict == CHANGE else self._policy
        if self.destination is not None and wanted.protocol is not PolicyProtocol.CONSUMER:
            yield self._protocol_action(verdict)

    @property
    def _last_with_members(self) -> Generation:
        listed = (one for one in reversed(self._generations) if one.members)
        return next(listed, self._generations[-1])

    def _list_repairs(self, libraries: Sequence[ClientLibrary]) -> Iterator[Action]:
        """Yields one repair for each kind of problem that no policy prevents."""
        health, last = self._bad_health, self._last_with_members
        found: dict[str, Action] = {}
        told = {one.pattern: one for one in self._evidence.patterns}
        kind = None if health is None else HEALTH_PATTERNS.get(health.health)
        same = None if kind is None else told.get(kind)
        # lag that grew because members fail has no repair of its own
        if health is not None and (same is None or same.fix):
            one = make_health_repair(health, self._generations[-1])
            found[one.title] = one
        for pattern in self._other_patterns:
            if pattern.fix and pattern.pattern not in POLICY_PATTERNS:
                causes = _PATTERN_CAUSES.get(pattern.pattern)
                bound = None if causes is None else self._bound(causes, pattern)
                one = make_pattern_repair(pattern, libraries, last, bound)
                found.setdefault(one.title, one)
        # the pods of a deploy that were away for longer than their session did not crash
        is_deploy = (
            PatternType.ROLLING_DEPLOY in told
            and self._policy.membership is not MembershipType.DYNAMIC
        )
        for cause, kind in _FAILURES.items():
            is_expected = is_deploy and cause is RebalanceCause.SESSION_TIMEOUT
            if self._causes[cause] and kind not in told and not is_expected:
                one = make_cause_repair(cause, libraries, last, self._bound({cause}))
                found[one.title] = one
        if len(found) > 1 and self._is_sick:
            found.pop(FIND_LEAVES, None)  # another repair says why they leave
        yield from found.values()

    def _bound(self, causes: Collection[RebalanceCause], pattern: Pattern | None = None) -> int:
        """Returns the downtime of the rebalances with these causes, in the time of a pattern, and
        of those by which as many members came back: the most that a repair can save.
        """
        total = missing = 0
        for rebalance in self._rebalances:
            key = rebalance.after.incarnation, rebalance.after.generation
            cause, row = self._evidence.causes.get(key), self._actual_rows.get(key)
            before = () if rebalance.before is None else rebalance.before.members
            old, new = (
                {member_identity(one) for one in group}
                for group in (before, rebalance.after.members)
            )
            is_in = pattern is None or pattern.since <= rebalance.after.at <= pattern.until
            if cause in causes and is_in:
                missing += max(len(old - new), 1)
            elif missing and cause is RebalanceCause.JOINED:
                missing = max(missing - len(new - old), 0)
            else:
                continue
            total += 0 if row is None else row.downtime_ms
        return min(total, self._evidence.total.downtime_ms)

    def _policy_actions(
        self, best: PolicyTotal, libraries: Sequence[ClientLibrary], *, has_repairs: bool
    ) -> Iterator[Action]:
        wanted = self._alternatives[best.policy]
        steps = []
        if has_repairs:
            steps.append(
                "Run Rota again after the repair: the saving may come from rebalances that no "
                "longer happen."
            )
        known = [one for one in self._clients if one is not CLIENT_LIBRARIES[UNKNOWN_LIBRARY]]
        if UNKNOWN_LIBRARY in self.libraries:
            who = "the other members" if known else "the members"
            steps.append(f"Find out which client library {who} use.")
            if any(not one.allows_mixed_list for one in known):
                known = list(libraries)  # the other members are in a group with one that refuses
        change = describe_change(self._policy, wanted, self._session_timeout)
        yield Action(
            title=change,
            kind=ActionKind.POLICY,
            saving_ms=self.saved_by(best),
            steps=(
                *(ActionStep(text=one) for one in steps),
                *list_migration_steps(
                    self._policy, wanted, libraries, self._session_timeout, known
                ),
            ),
        )
        yield Action(
            title="Costs and uncertainty",
            kind=ActionKind.NOTE,
            steps=tuple(ActionStep(text=one) for one in self._list_costs(best, wanted)),
        )

    def _list_costs(self, best: PolicyTotal, wanted: GroupPolicy) -> Iterator[str]:
        used = self._current_total
        for what, then, now in (
            ("partition", best.moved, used.moved),
            ("rebalance", best.rebalances, used.rebalances),
        ):
            moved = " moved" if what == "partition" else ""
            if then > now:
                yield f"{count_noun(then, what)}{moved} instead of {now:,}."
        yield from list_migration_costs(self._policy, wanted)
        yield f"The saving is uncertain by {format_rounded_duration(self.uncertainty)}."
        if self._policy.solver == OTHER_SOLVER:
            yield (
                f"The assignments of {self._policy.strategy} match neither Rota's nor Java's, so "
                "the saving is an estimate."
            )

    def _protocol_action(self, verdict: str) -> Action:
        protocols = [one.consumer_protocol for one in self._clients]
        needed = dict.fromkeys(one.minimum_client for one in protocols if one)
        text = (
            "The brokers have the new protocol (KIP-848, group.protocol=consumer); members need "
            f"{', or '.join(needed)}. The classic protocol is deprecated in Kafka 5.0, and Kafka "
            "6.0 removes it from the Java consumer."
        )
        if verdict == CHANGE:
            text += " You can switch to it directly, without changing the policy first."
        return Action(
            title="Plan for KIP-848",
            kind=ActionKind.PROTOCOL,
            steps=(
                ActionStep(
                    text=text,
                    settings={
                        one.name: setting
                        for one in offer_libraries(self._clients, lambda _: True)
                        if (setting := one.consumer_protocol_setting("uniform"))
                    },
                ),
            ),
        )

    def recommendation(self, verdict: str, best: PolicyTotal, actions: Sequence[Action]) -> str:
        """Returns the first action that is worth it, in at most 28 characters."""
        for one in actions:
            if one.kind is ActionKind.POLICY:
                return shorten_title(self._name_change(best), "Change the policy")
            if one.is_worth_it:
                return one.title
        if verdict == CANNOT_TELL:
            return NO_ADVICE
        return shorten_title(f"Keep {self._policy.strategy}", "Keep the strategy")

    def _name_change(self, best: PolicyTotal) -> str:
        """Returns what changes, in a few words: ``cooperative-sticky, static``."""
        used, wanted = self._policy, self._alternatives[best.policy]
        names = []
        if (wanted.strategy, wanted.protocol) != (used.strategy, used.protocol):
            kip_848 = wanted.protocol is PolicyProtocol.CONSUMER
            names.append(f"{CONSUMER_LABEL_PREFIX if kip_848 else ''}{wanted.strategy}")
        if wanted.membership is not used.membership:
            names.append(wanted.membership if names else f"{wanted.membership} membership")
        return ", ".join(names) or "longer session timeout"

    def describe_actions(self, verdict: str, best: PolicyTotal, actions: Sequence[Action]) -> str:
        """Returns a sentence: what to repair, the change of the policy, and what they save."""
        policy = next((one for one in actions if one.kind is ActionKind.POLICY), None)
        repairs = [one for one in actions if one.kind is ActionKind.REPAIR and one.is_worth_it]
        measured = format_rounded_duration(self._evidence.total.downtime_ms)
        shown = _describe_repairs(repairs, measured) if repairs else ""
        if self._bad_health is not None and repairs and repairs[0].saving_ms is None:
            shown = _first_step(repairs[0])
        if policy is None:
            keep = self._describe_keep(verdict)
            if not repairs:
                return f"{_capitalize(keep)}."
            then = "then " if verdict == FIX_FIRST else ""
            keep = keep if verdict == CANNOT_TELL else f"{then}keep {self._policy.label}"
            return f"{shown}; {keep}."
        saved = f"≈ {format_rounded_duration(self.saved_by(best))}"
        if actions[0] is not policy and repairs:
            change = f"{policy.title[:1].lower()}{policy.title[1:]}"
            change = change.replace("switch ", "switching ", 1).replace("set ", "setting ", 1)
            return f"{shown}; {change} alone saves {saved}."
        expected = format_rounded_duration(self._compared)
        about = "" if expected == measured else "≈ "
        also = "".join(f", and {one.title[:1].lower()}{one.title[1:]}" for one in repairs)
        return f"{policy.title} to save {saved} of {about}{expected} downtime{also}."

    def _describe_keep(self, verdict: str) -> str:
        if verdict == CANNOT_TELL:
            name = shorten_middle(self._policy.strategy, NAME_LENGTH)
            return f"no advice on the policy: Rota does not know the strategy {name}"
        keep = f"keep {self._policy.label}"
        if self._is_thin:
            number = count_noun(self.used.rebalances, "rebalance")
            few = "is not enough" if self.used.rebalances == 1 else "are too few"
            return f"{keep}: {number} {few} to compare policies"
        better = [one for one in self._list_suitable() if self.saved_by(one) > self.uncertainty]
        doubtful = [one for one in better if not self._is_safe_in_every_reading(one)]
        if better:
            other = min(doubtful or better, key=lambda one: one.downtime)
            saved = format_rounded_duration(self.saved_by(other))
            text = f"{keep}: {other.policy} may save ≈ {saved}, or"
            if doubtful:
                return f"{text} cost more: it is unknown whether absent members crashed"
            return f"{text} nothing: the replayed downtime differs too much from the measured one"
        least = min((one.downtime for one in self._totals.values()), default=self.used.downtime)
        if least < self._current_total.downtime:
            text = f"{keep}: no other policy saves more than the uncertainty of the replay"
            return f"{text}, {format_rounded_duration(self.uncertainty)}"
        return f"{keep}: no other policy has less downtime"


_SWITCH_TO = "Switch to "
#: Patterns that happen at a moment, if once.
_SHORT_PATTERNS = frozenset({PatternType.ROLLING_DEPLOY, PatternType.LATE_JOIN})
_FAILURES = {
    RebalanceCause.SLOW_POLL: PatternType.SLOW_POLLS,
    RebalanceCause.SESSION_TIMEOUT: PatternType.CRASHES,
}
_PLANNED_CAUSES = frozenset({RebalanceCause.JOINED, RebalanceCause.LEFT, RebalanceCause.UNKNOWN})
#: Causes of the rebalances that a pattern consists of.
_PATTERN_CAUSES: Mapping[PatternType, frozenset[RebalanceCause]] = {
    **{pattern: frozenset({cause}) for cause, pattern in _FAILURES.items()},
    PatternType.REJOINING: _PLANNED_CAUSES,
}


def _describe_health(health: GroupHealthStatus) -> str:
    reason, topic = health.reason.removesuffix("."), health.topic
    return reason if topic is None else reason.replace(topic, shorten_middle(topic, NAME_LENGTH))


def _describe_repairs(repairs: Sequence[Action], downtime: str) -> str:
    """Returns repairs in words, and what a single one saves at most."""
    first, *others = repairs
    names = join_names([first.title, *(f"{x.title[:1].lower()}{x.title[1:]}" for x in others)])
    if others or first.saving_ms is None:
        return names
    return (
        f"{names} to save up to {format_rounded_duration(first.saving_ms)} of {downtime} downtime"
    )


def _first_step(repair: Action) -> str:
    return repair.steps[0].text.removesuffix(".")


def _join_clauses(first: str, others: Iterable[str], last: str | None = None) -> str:
    """Returns a sentence of the first and the last clause, and of the others that fit in."""
    clauses, rest = [first], [] if last is None else [last]
    for one in others:
        if _sentence_length([*clauses, one, *rest]) <= SENTENCE_LENGTH:
            clauses.append(one)
    return f"{_capitalize('; '.join((*clauses, *rest)))}."


def _sentence_length(clauses: Iterable[str]) -> int:
    return len(_TIME.sub("00:00", "; ".join(clauses))) + 1


_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\dZ")  # a time whose date the report leaves out
#: Names begin with a small letter also at the start of a sentence.
_FIRST_WORDS = frozenset(("a", "all", "an", "keep", "members", "no", "nothing", "perhaps", "the"))


def _capitalize(text: str) -> str:
    is_name = text.partition(" ")[0] not in _FIRST_WORDS
    return text if is_name else f"{text[:1].upper()}{text[1:]}"


def _count_times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def _keep_nearly_least(
    totals: Sequence[PolicyTotal], count: Callable[[PolicyTotal], int], slack: int = 0
) -> list[PolicyTotal]:
    least = min(map(count, totals))
    limit = least + max(NEAR_BEST_SHARE * least, slack)
    return [total for total in totals if count(total) <= limit]


def describe_change(used: GroupPolicy, wanted: GroupPolicy, session_timeout: int | None) -> str:
    """Returns a change as an order: ``Switch to cooperative-sticky``."""
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
            timeout = [f"a session timeout of {format_rounded_duration(session)}"]
        if used.membership is not MembershipType.STATIC:
            changes.append(" with ".join(("static membership", *timeout)))
        elif session != used.session_timeout:
            changes += timeout
    elif used.membership is not MembershipType.DYNAMIC:
        changes.append("dynamic membership")
    text = " and ".join(changes)
    return f"Set {text}" if text.startswith("a ") else f"{_SWITCH_TO}{text}"
