"""Policies: what an operator could choose for a group, and what was chosen.

A policy has a name that people read and programs may parse: ``range``,
``cooperative-sticky, static 45s``, ``KIP-848 uniform``. Only a policy that was used may be more:
``sticky (exact)`` where Rota's own solver placed, ``range (other)`` where neither Rota's strategy
of that name nor Java's did, ``cooperative-sticky, eager`` while an eager strategy stands beside it
in the members' lists, ``partly static``, or several, as in ``range, then cooperative-sticky``.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rota.assignors.registry import BUILT_IN
from rota.assignors.sticky import StickyFamily
from rota.errors import InputError
from rota.replay.cost import observed_protocol
from rota.replay.fact import Generation, Kind, Step
from rota.replay.restart import LONGEST, MINUTE, SESSION, Restart

SERVER_STRATEGIES = ("uniform", "range")
CONSUMER_PROTOCOL = "consumer"
"""The protocol type of groups of consumers; others (Connect's) assign no partitions."""
SENSIBLE = (45_000, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, LONGEST)
"""Session timeouts that a person would set."""
SHORTEST_OF_BROKER = 45_000
"""``group.consumer.min.session.timeout.ms``: that of KIP-848's groups is the broker's to say."""
COVERED = 0.9
"""The share of restarts for which a session timeout should be long enough."""


KAFKA, EXACT, OTHER = "kafka", "exact", "other"
"""Solvers: Java's, Rota's own, and one that neither is."""


class Protocol(enum.StrEnum):
    """How a rebalance runs."""

    EAGER = "eager"
    COOPERATIVE = "cooperative"
    CONSUMER = "consumer"
    """KIP-848: the broker assigns, and members move one by one."""


class Membership(enum.StrEnum):
    """Whether members have a ``group.instance.id``."""

    DYNAMIC = "dynamic"
    PARTLY = "partly static"
    STATIC = "static"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A strategy, how it is run, and what members are."""

    strategy: str
    protocol: Protocol = Protocol.EAGER
    membership: Membership = Membership.DYNAMIC
    session_timeout: int | None = None
    """In milliseconds; only of static members. None: as the broker has it."""
    solver: str = KAFKA
    """Who places in the sticky family: Java's consumers, or Rota's own solver, ``exact``. Of a
    policy that was used also ``other``: not as Rota would."""

    @property
    def label(self) -> str:
        """Its name."""
        name = self.strategy
        if self.protocol is Protocol.CONSUMER:
            name = f"KIP-848 {name}"
        if self.solver != KAFKA:
            name += f" ({self.solver})"
        if self.strategy == COOPERATIVE_STICKY and self.protocol is Protocol.EAGER:
            name += ", eager"
        if self.membership is not Membership.DYNAMIC:
            name += f", {self.membership}"
            if self.session_timeout is not None:
                name += f" {shown_time(self.session_timeout)}"
        return name

    @property
    def known(self) -> bool:
        """Rota has this strategy."""
        if self.protocol is Protocol.CONSUMER:
            return self.strategy in SERVER_STRATEGIES
        return self.strategy in BUILT_IN

    @property
    def sticky(self) -> bool:
        """It is of the family that has two solvers."""
        found = BUILT_IN.get(self.strategy)
        classic = self.protocol is not Protocol.CONSUMER
        return classic and found is not None and issubclass(found, StickyFamily)


COOPERATIVE_STICKY = "cooperative-sticky"
THEN = ", then "
"""Between the names of policies that were in use one after the other."""

_LABEL = re.compile(
    r"(?P<broker>KIP-848 )?(?P<strategy>.*?)(?: \((?P<solver>exact|other)\))?(?P<eager>, eager)?"
    r"(?:, (?P<membership>static|partly static)(?: (?P<time>\d+(?:ms|s|min)))?)?",
    re.DOTALL,
)
_UNITS = {"min": MINUTE, "ms": 1, "s": 1_000}


def shown_time(milliseconds: int) -> str:
    """``45s``, ``2min``."""
    if milliseconds % 1_000:
        return f"{milliseconds}ms"
    if milliseconds % MINUTE or milliseconds < 2 * MINUTE:
        return f"{milliseconds // 1_000}s"
    return f"{milliseconds // MINUTE}min"


def parse(label: str) -> Policy:
    """The policy of this name.

    :raises InputError: it is none
    """
    found = _LABEL.fullmatch(label)
    if found is None or not found["strategy"]:
        raise InputError(f"{label!r} is not the name of a policy")
    protocol = Protocol.CONSUMER if found["broker"] else Protocol.EAGER
    if protocol is Protocol.EAGER and found["strategy"] == COOPERATIVE_STICKY:
        protocol = Protocol.EAGER if found["eager"] else Protocol.COOPERATIVE
    return Policy(
        strategy=found["strategy"],
        protocol=protocol,
        membership=Membership(found["membership"] or "dynamic"),
        session_timeout=_milliseconds(found["time"]),
        solver=found["solver"] or KAFKA,
    )


def _milliseconds(text: str | None) -> int | None:
    if text is None:
        return None
    unit = next(unit for unit in _UNITS if text.endswith(unit))
    return int(text.removesuffix(unit)) * _UNITS[unit]


def used_label(used: Sequence[Policy]) -> str:
    """The name of what was used: all of them, the one in use last."""
    return THEN.join(policy.label for policy in used) or "none"


def last_used(label: str) -> Policy:
    """What was in use at the end, by the name of what was used."""
    return parse(label.rpartition(THEN)[2])


def used_by(steps: Sequence[Step], solver: str = KAFKA) -> tuple[Policy, ...]:
    """What a group used: each policy once, in the order in which they were used last.

    ``solver`` is the one that places as it was: of the sticky family, or not at all.
    """
    found: dict[Policy, None] = {}
    behaved = _protocols(steps)
    for step, protocol in zip(steps, behaved, strict=True):
        if step.after.members:
            policy = _policy_of(step.after, protocol)
            if policy.sticky or (solver == OTHER and policy.known):
                policy = replace(policy, solver=solver)
            found.pop(policy, None)
            found[policy] = None
    return tuple(found)


def _protocols(steps: Sequence[Step]) -> list[Protocol]:
    """How each step was run. Where nobody had anything to keep, as the next one that tells."""
    observed = [observed_protocol(step) for step in steps]
    found = []
    following: dict[str | None, str] = {}
    for step, seen in zip(reversed(steps), reversed(observed), strict=True):
        if seen is not None:
            following[step.after.strategy] = seen
        found.append(Protocol(seen or following.get(step.after.strategy, "cooperative")))
    return found[::-1]


def _policy_of(generation: Generation, protocol: Protocol) -> Policy:
    static = [member for member in generation.members if member.static_id is not None]
    membership = Membership.DYNAMIC
    if static:
        everyone = len(static) == len(generation.members)
        membership = Membership.STATIC if everyone else Membership.PARTLY
    return Policy(
        strategy=generation.strategy or "none",
        protocol=protocol,
        membership=membership,
        session_timeout=max((m.session_timeout for m in static if m.session_timeout), default=None),
    )


def session_timeouts(steps: Iterable[Step], restarts: Sequence[Restart]) -> tuple[int, ...]:
    """Session timeouts worth asking for static members: the group's own, and one that is long
    enough for most of its restarts. None where nobody ever came back.
    """
    if not restarts:
        return ()
    stated = Counter(
        member.session_timeout
        for step in steps
        for member in step.after.members
        if member.session_timeout
    )
    own = stated.most_common(1)[0][0] if stated else SESSION
    away = sorted(one.away for one in restarts)
    wanted = away[min(int(len(away) * COVERED), len(away) - 1)]
    if wanted <= own:
        return (own,)
    return own, next((time for time in SENSIBLE if time >= wanted and time > own), LONGEST)


def choices(used: Sequence[Policy], sessions: Sequence[int]) -> tuple[Policy, ...]:
    """Every policy worth asking: each strategy, with dynamic members and with static ones.

    A group placed by Rota's own solver would be so under another strategy of the family too.
    """
    solver = EXACT if any(policy.solver == EXACT for policy in used) else KAFKA
    protocols = {COOPERATIVE_STICKY: Protocol.COOPERATIVE}
    strategies = [
        Policy(strategy=name, protocol=protocols.get(name, Protocol.EAGER)) for name in BUILT_IN
    ]
    strategies = [replace(one, solver=solver) if one.sticky else one for one in strategies]
    strategies += [Policy(strategy=name, protocol=Protocol.CONSUMER) for name in SERVER_STRATEGIES]
    static = [_static(policy, session) for session in sessions for policy in strategies]
    own = sessions[0] if sessions else None
    taken = {used_label(used)}
    if len(used) == 1:
        taken.add(replace(used[0], solver=KAFKA).label)
        if used[0].membership is Membership.STATIC:
            taken.add(replace(used[0], session_timeout=used[0].session_timeout or own).label)
    every = dict.fromkeys((*strategies, *static))
    return tuple(policy for policy in every if policy.label not in taken)


def _static(policy: Policy, session: int) -> Policy:
    if policy.protocol is Protocol.CONSUMER:
        session = max(session, SHORTEST_OF_BROKER)
    return replace(policy, membership=Membership.STATIC, session_timeout=session)


def is_of_consumers(generations: Iterable[Generation]) -> bool:
    """Whether partitions are what this group's members share, and all of them can be read."""
    return all(
        (one.kind is Kind.CONSUMER or one.protocol_type in {"", CONSUMER_PROTOCOL})
        and not any(member.problem for member in one.members)
        for one in generations
    )
