"""Rolling deploys: members that are replaced one after another.

A replacement is a member that goes and one that comes for it, before it or after it, within
:data:`PAUSE`. A run of them is a rollout if each takes the place of a member that was there when
the run began: a member that comes and goes again and again is none, and the next deploy, which
replaces the replacements, is another.

A run counts from :data:`FEW` replacements on, if they are half of the group or :data:`MANY`. Fewer
will do where they are the whole group and each is visibly another process, by its client id or its
host; else it could as well be the same one that came back. A member that polled too late was not
deployed.

Static members that come back within their session are a rollout without rebalances: there is
nothing to mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rota.replay.change import change
from rota.replay.fact import Cause, Explanation, GenerationMember, Step

PAUSE = 10 * 60_000
"""The longest time from one step of a rollout to the next."""
FEW = 3
MANY = 10
PAIR = 2
"""The smallest group of which a rollout can be told."""


def rollouts(
    steps: Sequence[Step], explanations: Sequence[Explanation] | None = None
) -> list[str | None]:
    """The rollout that each step of a group belongs to, by the generations that it spans.

    ``explanations`` are those of the steps, where there are any.
    """
    names: list[str | None] = [None] * len(steps)
    run = _Run()
    for number, step in enumerate(steps):
        if _breaks(run, steps, number):
            run.name(steps, names)
            run = _Run()
        if step.before is None or not step.after.members:
            continue
        why = explanations[number] if explanations is not None else None
        if why is not None and Cause.SLOW_POLL in (why.cause, why.likely):
            continue
        if not run.take(number, step):
            run.name(steps, names)
            run = _Run()
            run.take(number, step)
    run.name(steps, names)
    return names


def _breaks(run: _Run, steps: Sequence[Step], number: int) -> bool:
    """Nothing from before this step on belongs to what follows."""
    step = steps[number]
    if step.before is None or not step.after.members:
        return True
    return run.last is not None and step.after.at - steps[run.last].after.at > PAUSE


@dataclass(slots=True)
class _Replacement:
    old: GenerationMember
    new: GenerationMember
    steps: tuple[int, int]

    @property
    def is_visible(self) -> bool:
        """It is surely another process."""
        old, new = self.old, self.new
        return old.client_id != new.client_id or old.client_host != new.client_host


@dataclass(slots=True)
class _Run:
    """Replacements that may be a rollout."""

    last: int | None = None
    """The last step in which somebody came or went."""
    size: int = 0
    """The members when it began."""
    found: list[_Replacement] = field(default_factory=list)
    came: set[str] = field(default_factory=set)
    """The ids of all that came in it."""
    gone: list[tuple[int, GenerationMember]] = field(default_factory=list)
    """Those that nobody has come for yet."""
    extra: list[tuple[int, GenerationMember]] = field(default_factory=list)
    """Those that came, and nobody has gone for them yet."""

    def take(self, number: int, step: Step) -> bool:
        """Add a step; False, and nothing is changed, if it cannot belong to this run."""
        assert step.before is not None
        differs = change(step.before, step.after)
        new = {member.static_id: member for member in differs.renewed}
        olds = [one for one in step.before.members if one.static_id in new and one.static_id]
        went, came = [*differs.went, *olds], [*differs.came, *differs.renewed]
        if not went and not came:
            return True
        replacing = {one.new.member_id for one in self.found}
        if any(member.member_id in replacing for member in went):
            return False  # the replacements are replaced
        if self.last is None:
            self.size = len(step.before.members)
        self.last = number
        for member in went:
            self._go(number, member)
        for member in came:
            self._come(number, member)
        return True

    def _go(self, number: int, member: GenerationMember) -> None:
        if member.member_id in self.came:  # it was here for a short time only
            self.extra = [one for one in self.extra if one[1].member_id != member.member_id]
        elif self.extra:
            since, new = self.extra.pop(_closest(self.extra, member))
            self.found.append(_Replacement(member, new, (since, number)))
        else:
            self.gone.append((number, member))

    def _come(self, number: int, member: GenerationMember) -> None:
        self.came.add(member.member_id)
        if self.gone:
            since, old = self.gone.pop(_closest(self.gone, member))
            self.found.append(_Replacement(old, member, (since, number)))
        else:
            self.extra.append((number, member))

    def name(self, steps: Sequence[Step], names: list[str | None]) -> None:
        """Name its steps, if it is a rollout."""
        if not self._counts():
            return
        belong = sorted({number for one in self.found for number in one.steps})
        first, last = steps[belong[0]], steps[belong[-1]]
        assert first.before is not None
        life = f"life {last.after.life}, " if last.after.life else ""
        name = f"{life}generation {first.before.generation}-{last.after.generation}"
        for number in belong:
            names[number] = name

    def _counts(self) -> bool:
        if len(self.found) >= FEW:
            return len(self.found) >= MANY or 2 * len(self.found) >= self.size
        is_whole = PAIR <= self.size <= len(self.found)
        return is_whole and all(one.is_visible for one in self.found)


def _closest(waiting: Sequence[tuple[int, GenerationMember]], member: GenerationMember) -> int:
    """Whom a member most likely stands in for, by its name; of equals the first."""
    likeness = [_likeness(one, member) for _, one in waiting]
    return likeness.index(max(likeness))


def _likeness(one: GenerationMember, other: GenerationMember) -> int:
    """How far their names go together; most for the same static id, then the same client id."""
    if one.static_id is not None and one.static_id == other.static_id:
        return 2 << 20
    if one.client_id == other.client_id:
        return 1 << 20
    common = 0
    for mine, theirs in zip(one.client_id, other.client_id, strict=False):
        if mine != theirs:
            break
        common += 1
    return common
