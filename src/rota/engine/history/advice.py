"""Advises a group: what happened, which moves were unnecessary, the best policy, the steps to it.

Groups are ranked by their *damage*: the number of partitions that remaining members had to revoke,
plus the number of moves that the best balance did not need. Another policy can avoid both, but not
the cost of members that left.

The best policy has the least damage and the fewest rebalances among those that the client libraries
of the last members support and that balance the load as evenly as now. Among equally good policies
the smallest change of settings wins. A change that saves next to nothing is not advised.

``client_settings.py`` has the settings of each client library.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from rota.engine.history.facts import (
    COOPERATIVE_STICKY,
    MINUTE,
    Advice,
    Generation,
    Rebalance,
    RebalanceCause,
    WhatIf,
)
from rota.engine.history.policies import (
    OTHER_SOLVER,
    GroupPolicy,
    MembershipType,
    PolicyProtocol,
    find_used_policies,
    is_readable_consumer_group,
    label_used_policies,
)
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
    used: GroupPolicy, wanted: GroupPolicy, libraries: Sequence[ClientLibrary]
) -> tuple[str, ...]:
    steps: list[str] = []
    if wanted.membership is MembershipType.STATIC:
        steps += _static_steps(used, wanted, libraries)
    elif used.membership is not MembershipType.DYNAMIC:
        steps.append(
            format_step(
                "Remove {} from every member's settings.", libraries, lambda one: one.static_id
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
    used: GroupPolicy, wanted: GroupPolicy, libraries: Sequence[ClientLibrary]
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
        yield format_step(
            f"Set {{}}. {_SESSION_LIMIT_HINT}", libraries, lambda one: one.session_setting(session)
        )
    yield (
        "Note: a static member keeps its partitions while it restarts; nobody reads them until "
        f"it is back, or for {format_duration(session)} if it does not come back (rota simulate "
        "shows how long partitions are stopped). To scale down, remove the member with the admin "
        "client instead of waiting."
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


CHANGE, KEEP, CANNOT_TELL = "change", "keep", "cannot tell"
#: Policies count as equal if their harm exceeds the least by at most this share of the actual harm.
NEAR_BEST_SHARE = 0.01
#: A change has to save this share of the damage ...
MIN_SAVED_SHARE = 0.1
#: ... and at least this number of partitions.
MIN_SAVED_PARTITIONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEvaluation:
    """The rebalances of a group under the policies it used and under every alternative."""

    rows: Sequence[WhatIf] = ()
    #: The policies that the group used, in the order of their last use.
    used: tuple[GroupPolicy, ...] = ()
    #: The other policies, by the label in their rows.
    alternatives: Mapping[str, GroupPolicy] = field(default_factory=dict)

    def advised_policy(self, advice: Advice) -> GroupPolicy | None:
        """Returns the policy that the group should change to; None if no change is advised."""
        return self.alternatives[advice.policy] if advice.verdict == CHANGE else None


@dataclass(frozen=True, slots=True)
class PolicyTotal:
    """The cost of a policy over the whole history."""

    policy: str
    rebalances: int = 0
    moved: int = 0
    moves_needed: int = 0
    stopped: int = 0
    needless: int = 0
    #: Members without partitions, summed over all rebalances.
    idle: int = 0
    #: Largest load minus smallest, summed over all rebalances.
    spread: int = 0

    @property
    def damage(self) -> int:
        """The number by which groups are ranked."""
        return self.stopped + self.needless

    @property
    def harm(self) -> int:
        """The number by which policies are compared: the damage, plus one for each rebalance."""
        return self.damage + self.rebalances

    def is_as_even_as(self, other: PolicyTotal) -> bool:
        """Whether members are loaded as evenly as under another policy, on average.

        A spread of one is even. A strategy may move less by balancing worse.
        """
        own, others = max(self.rebalances, 1), max(other.rebalances, 1)
        return self.idle * others <= other.idle * own and (
            self.spread <= own or self.spread * others <= other.spread * own
        )


def sum_by_policy(whatifs: Iterable[WhatIf]) -> dict[str, PolicyTotal]:
    sums: dict[str, list[int]] = {}
    for row in whatifs:
        totals = sums.setdefault(row.policy, [0] * 7)
        if row.happens:
            needless = max(row.moved - row.moves_needed, 0)
            costs = (
                1,
                row.moved,
                row.moves_needed,
                row.stopped,
                needless,
                row.idle_members,
                row.spread,
            )
            totals[:] = map(add, totals, costs)
    return {name: PolicyTotal(name, *totals) for name, totals in sums.items()}


def advise_group(
    generations: Sequence[Generation],
    rebalances: Sequence[Rebalance],
    evaluation: PolicyEvaluation,
    causes: Mapping[tuple[int, int], RebalanceCause] | None = None,
    rollouts: Mapping[tuple[int, int], str] | None = None,
) -> Advice:
    """Advises one group.

    :param evaluation: the result of :func:`rota.engine.history.whatif.evaluate_policies`
    :param causes: causes by incarnation and generation
    :param rollouts: the rolling deploy that a rebalance is part of, by incarnation and generation
    """
    if not is_readable_consumer_group(generations):
        return _advise_unreadable(generations, rebalances)
    case = _AdviceCase(generations, rebalances, evaluation, causes or {}, rollouts or {})
    best = case.find_best()
    verdict = case.verdict(best)
    if verdict != CHANGE:
        best = case.used
    return Advice(
        group=generations[0].group,
        verdict=verdict,
        policy=best.policy,
        policies_used=case.policies_used,
        damage=float(case.used.damage),
        rebalances=case.used.rebalances,
        rebalances_after=best.rebalances,
        moved=case.used.moved,
        moved_after=best.moved,
        moves_needed=case.used.moves_needed,
        stopped=case.used.stopped,
        stopped_after=best.stopped,
        libraries=case.libraries,
        headline=case.headline(verdict, best),
        steps=case.steps(verdict, best),
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
        damage=0.0,
        rebalances=number,
        rebalances_after=number,
        libraries=_last_libraries(generations),
        headline=f"{group}: {_format_count(number, 'rebalance')}. The moves are not known: {why}.",
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
        evaluation: PolicyEvaluation,
        causes: Mapping[tuple[int, int], RebalanceCause],
        rollouts: Mapping[tuple[int, int], str],
    ) -> None:
        self._generations = generations
        self._rebalances = rebalances
        self._rollouts = rollouts
        ends = ((each.after.incarnation, each.after.generation) for each in rebalances)
        self._causes = Counter(causes[end] for end in ends if end in causes)
        self._slow_polls, self._expired_sessions = (
            self._causes[one] for one in (RebalanceCause.SLOW_POLL, RebalanceCause.SESSION_TIMEOUT)
        )
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

    def find_best(self) -> PolicyTotal:
        """Returns the best policy that the group's libraries support; it may be the one in use."""
        possible = [self.used]
        for label, policy in self._alternatives.items():
            total = self._totals.get(label)
            if (
                total is not None
                and policy.known
                and is_migration_possible(self._policy, policy, self._clients)
                and total.is_as_even_as(self.used)
                and not self._only_delays_detection(policy)
            ):
                possible.append(total)
        least = min(total.harm for total in possible)
        limit = least + max(NEAR_BEST_SHARE * self.used.harm, MIN_SAVED_PARTITIONS)
        return min(
            (total for total in possible if total.harm <= limit),
            key=lambda total: (
                self._migration_size(total.policy),
                total.stopped,
                total.moved,
                total.rebalances,
                total.policy,
            ),
        )

    def _only_delays_detection(self, policy: GroupPolicy) -> bool:
        """Returns whether the policy saves rebalances only because partitions of members that crash
        or hang stay unread for longer. That suits restarts, but not crashes.
        """
        if policy.membership is not MembershipType.STATIC:
            return False
        failures = self._slow_polls + self._expired_sessions
        return failures > len(self._rollouts) and failures * 2 >= self._causes[RebalanceCause.LEFT]

    def _migration_size(self, label: str) -> int:
        wanted = self._alternatives.get(label)
        return 0 if wanted is None else migration_size(self._policy, wanted)

    def verdict(self, best: PolicyTotal) -> str:
        if not self._known:
            return CANNOT_TELL
        if best.policy in {self.used.policy, self._policy.label}:
            return KEEP
        saved = self._current_total.damage - best.damage
        if saved < MIN_SAVED_PARTITIONS or saved < MIN_SAVED_SHARE * self._current_total.damage:
            return KEEP
        return CHANGE

    def headline(self, verdict: str, best: PolicyTotal) -> str:
        """Returns one sentence: what happened, unnecessary moves, the change and its saving."""
        group = self._generations[0].group
        if not self._rebalances:
            return f"{group}: no rebalances."
        return f"{group}: {self._describe_history()}. {self._describe_verdict(verdict, best)}"

    def _describe_history(self) -> str:
        used = self.used
        span = self._rebalances[-1].after.at - self._rebalances[0].after.at
        text = _format_count(used.rebalances, "rebalance")
        if used.rebalances > 1:
            text += f" in {_format_span(span)}"
        if self._rollouts:
            (name, number), *_ = Counter(self._rollouts.values()).most_common(1)
            sizes = (
                len(each.after.members)
                for each in self._rebalances
                if self._rollouts.get((each.after.incarnation, each.after.generation)) == name
            )
            text += f", {number} of them one rolling deploy of {max(sizes)} members"
        elif self._causes:
            known = (f"{number} {cause}" for cause, number in self._causes.most_common())
            text += f" ({', '.join(known)})"
        text += f"; {_format_count(used.stopped, 'partition')} stopped, {used.moved} moved"
        if used.moved:
            needed = used.moved - used.needless
            moves = "move was" if needed == 1 else "moves were"
            text += f"; {'all' if needed == used.moved else needed} {moves} necessary"
        return text

    def _describe_verdict(self, verdict: str, best: PolicyTotal) -> str:
        if verdict == KEEP:
            return f"Keep {self._policy.label}: no other policy is much better."
        if verdict != CHANGE:
            return f"Rota does not know its strategy, {self._policy.strategy}."
        counts = (
            (_format_count(best.rebalances, "rebalance"), best.rebalances, self.used.rebalances),
            (f"{best.stopped} stopped", best.stopped, self.used.stopped),
            (f"{best.moved} moved", best.moved, self.used.moved),
        )
        saved = ", ".join(f"{text} instead of {now}" for text, then, now in counts if then < now)
        return f"Use {_describe_change(self._policy, self._alternatives[best.policy])}: {saved}."

    def steps(self, verdict: str, best: PolicyTotal) -> tuple[str, ...]:
        """Returns the migration steps and other measures."""
        steps: list[str] = []
        if self._slow_polls:
            limited = [one for one in self._clients if one.slow_poll_hint]
            limited = limited or [CLIENT_LIBRARIES[UNKNOWN_LIBRARY]]
            count = _format_count(self._slow_polls, "rebalance")
            text = f"Slow polls caused {count}, which no policy prevents: {{}}."
            hint = format_step(text, limited, lambda one: one.slow_poll_hint, several="do this")
            steps.append(hint)
        if self._expired_sessions:
            count = _format_count(self._expired_sessions, "rebalance")
            steps.append(
                f"Members that stopped sending heartbeats caused {count}, which no policy "
                "prevents: look for crashes, long pauses of the process or network failures at "
                "those times (gold/rebalances lists them)."
            )
        if verdict == CHANGE:
            if UNKNOWN_LIBRARY in self.libraries:
                who, end = "the members", "are for Java"
                if len(self.libraries) > 1:
                    who, end = "the other members", "name Java's settings for them"
                steps.append(f"Find out which client library {who} use; the steps below {end}.")
            steps += list_migration_steps(
                self._policy, self._alternatives[best.policy], self._clients
            )
            if self._policy.solver == OTHER_SOLVER:
                steps.append(
                    f"The assignments of {self._policy.strategy} are neither Rota's nor Java's: "
                    "the saving is an estimate."
                )
        return tuple(steps)


def _describe_change(used: GroupPolicy, wanted: GroupPolicy) -> str:
    changes = []
    if (wanted.strategy, wanted.protocol) != (used.strategy, used.protocol):
        changes.append(
            f"the broker's protocol (KIP-848) with {wanted.strategy}"
            if wanted.protocol is PolicyProtocol.CONSUMER
            else wanted.strategy
        )
    if wanted.membership is MembershipType.STATIC:
        session = wanted.session_timeout
        timeout = [] if session is None else [f"a session timeout of {format_duration(session)}"]
        if used.membership is not MembershipType.STATIC:
            changes.append(" with ".join(("static membership", *timeout)))
        elif session != used.session_timeout:
            changes += timeout
    elif used.membership is not MembershipType.DYNAMIC:
        changes.append("dynamic membership")
    return " and ".join(changes)


def _format_count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _format_span(milliseconds: int) -> str:
    if milliseconds < 2 * MINUTE:
        return f"{max(round(milliseconds / 1_000), 1)} s"
    if milliseconds < 120 * MINUTE:
        return f"{round(milliseconds / MINUTE)} min"
    return f"{round(milliseconds / MINUTE / 60)} h"
