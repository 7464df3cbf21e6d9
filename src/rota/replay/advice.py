"""What to do about a group: what happened to it, what of it was needless, what would be better.

The *damage* that ranks groups is the partitions that living members had to give up, plus those
that moved though the best balance did not need it. Both are interruptions that a policy can save;
what is lost because a member is gone no policy can.

The best policy is the one with the least damage and the fewest rebalances of those that the
libraries of the group's last members can have and that load members as evenly as now. Of those that
are as good the smallest change of settings wins, and a change that saves next to nothing is not
advised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rota.replay import migration
from rota.replay.dialect import LIBRARIES, UNKNOWN, known, told
from rota.replay.fact import Advice, Cause, Generation, Step, WhatIf
from rota.replay.policy import (
    CONSUMER_PROTOCOL,
    OTHER,
    Membership,
    Policy,
    Protocol,
    is_of_consumers,
    last_used,
    parse,
    shown_time,
    used_by,
)
from rota.replay.restart import MINUTE

CHANGE, KEEP, CANNOT_TELL = "change", "keep", "cannot tell"
NEAR = 0.01
"""A policy that does more harm than the best by up to this share of what there was is as good."""
WORTH = 0.1
"""A change has to save this share of the damage ..."""
FEW = 10
"""... and at least so many partitions; for less no larger change is advised than need be."""


@dataclass(frozen=True, slots=True)
class Total:
    """What a policy costs over the whole window."""

    policy: str
    rebalances: int = 0
    moved: int = 0
    moved_min: int = 0
    stopped: int = 0
    needless: int = 0
    idle: int = 0
    """Members without anything to do, after all rebalances together."""
    spread: int = 0
    """Largest load less smallest, likewise."""

    @property
    def damage(self) -> int:
        """What ranks."""
        return self.stopped + self.needless

    @property
    def harm(self) -> int:
        """What policies are compared by: each rebalance holds the group up, if only shortly."""
        return self.damage + self.rebalances

    def as_even_as(self, other: Total) -> bool:
        """Whether members are loaded as evenly as under another policy, on average; a spread of
        one is even. A strategy may move less by balancing worse.
        """
        mine, theirs = max(self.rebalances, 1), max(other.rebalances, 1)
        return self.idle * theirs <= other.idle * mine and (
            self.spread <= mine or self.spread * theirs <= other.spread * mine
        )


def totals(whatifs: Iterable[WhatIf]) -> dict[str, Total]:
    """Over all rebalances, by policy."""
    sums: dict[str, list[int]] = {}
    for row in whatifs:
        found = sums.setdefault(row.policy, [0] * 7)
        if row.happens:
            found[0] += 1
            found[1] += row.moved
            found[2] += row.moved_min
            found[3] += row.stopped
            found[4] += max(row.moved - row.moved_min, 0)
            found[5] += row.idle_members
            found[6] += row.spread
    return {name: Total(name, *found) for name, found in sums.items()}


def advise(
    generations: Sequence[Generation],
    steps: Sequence[Step],
    whatifs: Sequence[WhatIf],
    causes: Mapping[tuple[int, int], Cause] | None = None,
    rollouts: Mapping[tuple[int, int], str] | None = None,
) -> Advice:
    """Advice on one group.

    :param generations: everything that is known of it
    :param steps: its rebalances
    :param whatifs: what :func:`rota.replay.whatif.whatif` found
    :param causes: why they were, by life and generation
    :param rollouts: the rolling deploy that a rebalance is part of, by life and generation
    """
    if not is_of_consumers(generations):
        return _untold(generations, steps)
    case = _Case(generations, steps, whatifs, causes or {}, rollouts or {})
    best = case.best()
    verdict = case.verdict(best)
    if verdict != CHANGE:
        best = case.used
    return Advice(
        group=generations[0].group,
        verdict=verdict,
        policy=best.policy,
        policy_used=case.used.policy,
        damage=float(case.used.damage),
        rebalances=case.used.rebalances,
        rebalances_after=best.rebalances,
        moved=case.used.moved,
        moved_after=best.moved,
        moved_min=case.used.moved_min,
        stopped=case.used.stopped,
        stopped_after=best.stopped,
        libraries=case.libraries,
        headline=case.headline(verdict, best),
        steps=case.steps(verdict, best),
    )


def _untold(generations: Sequence[Generation], steps: Sequence[Step]) -> Advice:
    """On a group of which it is not known who had which partitions."""
    group, number = generations[0].group, len(steps)
    strategy = generations[-1].strategy or "none"
    kinds = {one.protocol_type for one in generations} - {"", CONSUMER_PROTOCOL}
    why = "not all of its members' bytes could be read"
    if kinds:
        why = f"its members are not consumers ({', '.join(sorted(kinds))})"
    return Advice(
        group=group,
        verdict=CANNOT_TELL,
        policy=strategy,
        policy_used=strategy,
        damage=0.0,
        rebalances=number,
        rebalances_after=number,
        moved=None,
        moved_after=None,
        moved_min=None,
        stopped=None,
        stopped_after=None,
        libraries=_libraries(generations),
        headline=f"{group}: {_count(number, 'rebalance')}. What moved is not known: {why}.",
        steps=(),
    )


def _libraries(generations: Sequence[Generation]) -> tuple[str, ...]:
    """Those of the last members that there were: what was replaced is asked for nothing."""
    last = next((one.members for one in reversed(generations) if one.members), ())
    return tuple(sorted({member.library or UNKNOWN for member in last}))


class _Case:
    """All that an advice is made of."""

    def __init__(
        self,
        generations: Sequence[Generation],
        steps: Sequence[Step],
        whatifs: Sequence[WhatIf],
        causes: Mapping[tuple[int, int], Cause],
        rollouts: Mapping[tuple[int, int], str],
    ) -> None:
        self._generations = generations
        self._steps = steps
        self._rollouts = rollouts
        actual = next((row.policy for row in whatifs if row.actual), "none")
        ends = ((step.after.life, step.after.generation) for step in steps)
        self._causes = Counter(causes[end] for end in ends if end in causes)
        self._slow, self._silent = (self._causes[one] for one in (Cause.SLOW_POLL, Cause.SILENT))
        self._totals = totals(whatifs)
        self.used = self._totals.pop(actual, Total(actual))
        listed = used_by(steps)
        self._known = all(policy.known for policy in listed)
        self._policy = last_used(actual) if listed else Policy(strategy="none")
        self._now = self._totals.get(self._policy.label, self.used)
        """What the policy in use at the end would have cost from the beginning."""
        self.libraries = _libraries(generations)
        self._able = known(self.libraries)

    def best(self) -> Total:
        """The best policy that this group's libraries can have; the one in use is one of them."""
        possible = {
            name: total
            for name, total in self._totals.items()
            if migration.possible(self._policy, parse(name), self._able)
            and total.as_even_as(self.used)
            and not self._hides(parse(name))
        }
        everything = {**possible, self.used.policy: self.used}
        least = min(total.harm for total in everything.values())
        within = least + max(NEAR * self.used.harm, FEW)
        return min(
            (total for total in everything.values() if total.harm <= within),
            key=lambda total: (
                self._size(total.policy),
                total.stopped,
                total.moved,
                total.rebalances,
                total.policy,
            ),
        )

    def _hides(self, policy: Policy) -> bool:
        """Static membership would save rebalances by leaving partitions of members that crash or
        hang unread for longer: right for restarts, wrong for what has to be mended.
        """
        if policy.membership is not Membership.STATIC:
            return False
        sick = self._slow + self._silent
        return sick > len(self._rollouts) and sick * 2 >= self._causes[Cause.LEFT]

    def _size(self, name: str) -> int:
        return 0 if name == self.used.policy else migration.size(self._policy, parse(name))

    def verdict(self, best: Total) -> str:
        """Whether to change anything."""
        if not self._known:
            return CANNOT_TELL
        if best.policy in {self.used.policy, self._policy.label}:
            return KEEP
        saved = self._now.damage - best.damage
        if saved < FEW or saved < WORTH * self._now.damage:
            return KEEP
        return CHANGE

    def headline(self, verdict: str, best: Total) -> str:
        """What happened, what of it was needless, what to change, what that saves."""
        group = self._generations[0].group
        if not self._steps:
            return f"{group}: no rebalances."
        return f"{group}: {self._happened()}. {self._outcome(verdict, best)}"

    def _happened(self) -> str:
        used = self.used
        span = self._steps[-1].after.at - self._steps[0].after.at
        text = _count(used.rebalances, "rebalance")
        if used.rebalances > 1:
            text += f" in {_span(span)}"
        if self._rollouts:
            (name, number), *_ = Counter(self._rollouts.values()).most_common(1)
            members = self._deployed(name)
            text += f", {number} of them one rolling deploy of {members} members"
        elif self._causes:
            known = (f"{number} {cause}" for cause, number in self._causes.most_common())
            text += f" ({', '.join(known)})"
        text += f"; {_count(used.stopped, 'partition')} stopped, {used.moved} moved"
        if used.moved:
            needless = used.needless
            had = "none had to" if needless == used.moved else f"{used.moved - needless} had to"
            text += f" though {had}" if needless else ", all of which had to"
        return text

    def _deployed(self, name: str) -> int:
        """The largest the group was during a rolling deploy."""
        return max(
            len(step.after.members)
            for step in self._steps
            if self._rollouts.get((step.after.life, step.after.generation)) == name
        )

    def _outcome(self, verdict: str, best: Total) -> str:
        match verdict:
            case "change":
                return f"Use {_advised(self._policy, parse(best.policy))}: {self._saved(best)}."
            case "keep":
                return f"Keep {self._policy.label}: nothing that would be much better was found."
            case _:
                return f"Its strategy, {self._policy.strategy}, is not one that Rota knows."

    def _saved(self, best: Total) -> str:
        """What gets better."""
        pairs = (
            (_count(best.rebalances, "rebalance"), best.rebalances, self.used.rebalances),
            (f"{best.stopped} stopped", best.stopped, self.used.stopped),
            (f"{best.moved} moved", best.moved, self.used.moved),
        )
        return ", ".join(f"{said} instead of {now}" for said, then, now in pairs if then < now)

    def steps(self, verdict: str, best: Total) -> tuple[str, ...]:
        """How to migrate, and what else would help."""
        steps: list[str] = []
        if self._slow:
            late = [one for one in self._able if one.late] or [LIBRARIES[UNKNOWN]]
            text = f"{_count(self._slow, 'rebalance')} came of slow polls, which no policy mends: "
            steps.append(told(text + "{}.", late, lambda one: one.late, several="do this"))
        if self._silent:
            steps.append(
                f"{_count(self._silent, 'rebalance')} came of members that fell silent, which no "
                "policy mends: look for crashes, long pauses of the process or a lost network then "
                "(gold/rebalances names them)."
            )
        if verdict == CHANGE:
            if UNKNOWN in self.libraries:
                steps.append(_untold_libraries(self.libraries))
            steps += migration.migration(self._policy, parse(best.policy), self._able)
            if self._policy.solver == OTHER:
                steps.append(
                    f"What {self._policy.strategy} gave here is neither Rota's nor Java's "
                    "placement: what the change saves is an estimate."
                )
        return tuple(steps)


def _untold_libraries(libraries: Sequence[str]) -> str:
    """That settings may have other names than those that are given."""
    some, theirs = (" of some members", " for them") if len(libraries) > 1 else ("", "")
    return f"The client library{some} could not be told: settings are named as in Java{theirs}."


def _advised(used: Policy, wanted: Policy) -> str:
    """What to change, in words."""
    parts = []
    if (wanted.strategy, wanted.protocol) != (used.strategy, used.protocol):
        parts.append(
            f"the broker's protocol (KIP-848) with {wanted.strategy}"
            if wanted.protocol is Protocol.CONSUMER
            else wanted.strategy
        )
    if wanted.membership is Membership.STATIC:
        session = wanted.session_timeout
        timeout = "" if session is None else f"a session timeout of {shown_time(session)}"
        if used.membership is not Membership.STATIC:
            parts.append(" with ".join(filter(None, ("static membership", timeout))))
        elif timeout and session != used.session_timeout:
            parts.append(timeout)
    elif used.membership is not Membership.DYNAMIC:
        parts.append("dynamic membership")
    return " and ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _span(milliseconds: int) -> str:
    if milliseconds < 2 * MINUTE:
        return f"{max(round(milliseconds / 1_000), 1)} s"
    if milliseconds < 120 * MINUTE:
        return f"{round(milliseconds / MINUTE)} min"
    return f"{round(milliseconds / MINUTE / 60)} h"
