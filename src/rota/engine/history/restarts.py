"""Finds restarts and rolling deploys in the membership changes of a group.

Restarts: a static member is matched by its ``group.instance.id``. A dynamic member returns under a
new member id; it is matched by client id and host, or by client id alone, if no other member has
the same. A deployment often changes both. If unmatched members join one after another while others
leave one after another, as in a rolling deploy, each is matched with the member that left before.

Rolling deploys: a replacement is a pair of members: one leaves, and another joins within
:data:`MAX_ROLLOUT_GAP`, earlier or later. A run of replacements is a rollout if all replaced
members were in the group when the run began. So a member that leaves and joins repeatedly does not
make a rollout, and the next deploy starts a new run. A run needs :data:`MIN_REPLACEMENTS`
replacements and half of the group, or :data:`ENOUGH_REPLACEMENTS`. Fewer suffice if they are the
whole group and each new member has another client id or host; otherwise it may be the same process.
A slow poll does not count. Static members that return within their session cause no rebalance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import NamedTuple, TypeAlias

from rota.engine.history.downtime import EventTimes
from rota.engine.history.facts import (
    DEFAULT_SESSION_TIMEOUT,
    MAX_SESSION_TIMEOUT,
    MINUTE,
    Explanation,
    Generation,
    GenerationChange,
    GenerationMember,
    Rebalance,
    RebalanceCause,
)
from rota.engine.history.rebalances import diff_generations

MAX_DEPLOY_GAP = 5 * MINUTE  # a member matched only by order joins within this time
NAME_BEGIN = 2  # client ids that begin with the same characters belong to one application


class MembershipEvent(NamedTuple):
    generation: Generation
    rebalance: Rebalance | None  # None: a static member returned, or a first sample
    times: EventTimes | None = None


def list_membership_events(
    generations: Sequence[Generation],
    rebalances: Iterable[Rebalance],
    times: Mapping[int, EventTimes] | None = None,
) -> list[MembershipEvent]:
    """Returns every rebalance, every return of a static member, and the first sample; ``times``:
    measured times by the offset of the generation.
    """
    known = times or {}
    ends = {(each.after.incarnation, each.after.offset): each for each in rebalances}
    events = (
        MembershipEvent(one, ends.get((one.incarnation, one.offset)), known.get(one.offset))
        for one in generations
    )
    changes = {GenerationChange.REPLACED, GenerationChange.FIRST_SAMPLE}
    return [one for one in events if one.rebalance is not None or one.generation.change in changes]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRestart:
    old_member_id: str
    new_member_id: str
    gone_at: int
    back_at: int
    is_matched_by_name: bool  # matched by name; otherwise it is part of a rolling deploy

    @property
    def downtime(self) -> int:
        return max(self.back_at - self.gone_at, 0)


class _AbsentMember(NamedTuple):
    member: GenerationMember
    since: int


def find_restarts(history: Sequence[MembershipEvent]) -> list[MemberRestart]:
    """Returns every restart, ordered by the time of return."""
    named = _pair_members(history, _match_by_name, MAX_SESSION_TIMEOUT)
    matched = {one.old_member_id for one in named} | {one.new_member_id for one in named}
    unmatched = _remove_members(history, matched)
    unnamed = _pair_members(unmatched, _match_in_order, MAX_DEPLOY_GAP)
    deployed = [replace(one, is_matched_by_name=False) for one in _keep_rolling_restarts(unnamed)]
    return sorted(named + deployed, key=lambda one: (one.back_at, one.new_member_id))


#: Pairs absent members with new ones, given also the members that stayed.
MatchFunction: TypeAlias = Callable[
    [Sequence[_AbsentMember], Sequence[GenerationMember], Sequence[GenerationMember]],
    list[tuple[_AbsentMember, GenerationMember]],
]


def _pair_members(
    history: Iterable[MembershipEvent],
    match: MatchFunction,
    longest: int,
) -> list[MemberRestart]:
    restarts: list[MemberRestart] = []
    previous: dict[str, GenerationMember] = {}
    absent: list[_AbsentMember] = []
    incarnation = -1
    for event in history:
        at = event.generation.at
        if event.generation.incarnation != incarnation:
            incarnation, previous, absent = event.generation.incarnation, {}, []
        present = {member.member_id: member for member in event.generation.members}
        absent = [one for one in absent if at - one.since <= longest]
        absent += [
            _AbsentMember(member, find_leave_time(member, event))
            for member_id, member in previous.items()
            if member_id not in present
        ]
        back_at = at if event.times is None else min(event.times.start, at)
        joining = [member for member_id, member in present.items() if member_id not in previous]
        staying = [member for member_id, member in present.items() if member_id in previous]
        for absentee, returned in match(absent, joining, staying):
            absent.remove(absentee)
            restarts.append(
                MemberRestart(
                    old_member_id=absentee.member.member_id,
                    new_member_id=returned.member_id,
                    gone_at=absentee.since,
                    back_at=max(back_at, absentee.since),
                    is_matched_by_name=True,
                )
            )
        previous = present
    return restarts


def find_leave_time(member: GenerationMember, event: MembershipEvent) -> int:
    """Returns when an absent member stopped: the measured time, or else the time of the event. A
    static member sends no LeaveGroup request: it stopped one session timeout earlier.
    """
    end = None if event.times is None else event.times.gone.get(member.member_id)
    if end is not None:
        return end.time.estimate
    if event.rebalance is None or member.group_instance_id is None:
        return event.generation.at
    return event.generation.at - (member.session_timeout or DEFAULT_SESSION_TIMEOUT)


def find_session_start(member: GenerationMember, event: MembershipEvent) -> int:
    """Returns when the last session of an absent member began: at its last sign of life."""
    end = None if event.times is None else event.times.gone.get(member.member_id)
    if end is not None and end.session_start is not None:
        return end.session_start
    return find_leave_time(member, event)


def _match_by_name(
    absent: Sequence[_AbsentMember],
    joining: Sequence[GenerationMember],
    staying: Sequence[GenerationMember],
) -> list[tuple[_AbsentMember, GenerationMember]]:
    pairs: list[tuple[_AbsentMember, GenerationMember]] = []
    names: tuple[Callable[[GenerationMember], Hashable], ...] = (
        lambda member: member.group_instance_id,
        lambda member: (member.client_id, member.client_host, member.group_instance_id),
        lambda member: (member.client_id, member.group_instance_id),
    )
    for name in names:
        unmatched = [one for one in absent if all(one is not gone for gone, _ in pairs)]
        new = [one for one in joining if all(one is not returned for _, returned in pairs)]
        gone = Counter(name(one.member) for one in unmatched)
        others = Counter(name(one) for one in (*new, *staying))
        by_name = {name(one.member): one for one in unmatched}
        pairs += [
            (by_name[name(one)], one)
            for one in new
            if name(one) is not None and gone[name(one)] == 1 and others[name(one)] == 1
        ]
    return pairs


def _match_in_order(
    absent: Sequence[_AbsentMember],
    joining: Sequence[GenerationMember],
    staying: Sequence[GenerationMember],
) -> list[tuple[_AbsentMember, GenerationMember]]:
    """Matches members with the same topics, longest absence first. If another member has a client
    id that begins like that of the new one, it replaces only members whose client id does.
    """
    pairs = []
    unmatched = sorted(absent, key=lambda one: one.since)
    begins = Counter(one.client_id[:NAME_BEGIN] for one in (*joining, *staying))
    begins.update(one.member.client_id[:NAME_BEGIN] for one in absent)
    for one in sorted(joining, key=lambda member: member.member_id):
        begin = one.client_id[:NAME_BEGIN]
        same = (
            gone
            for gone in unmatched
            if {*gone.member.topics} == {*one.topics}
            and (begins[begin] == 1 or gone.member.client_id.startswith(begin))
        )
        if one.group_instance_id is None and (match := next(same, None)) is not None:
            unmatched.remove(match)
            pairs.append((match, one))
    return pairs


def _remove_members(history: Iterable[MembershipEvent], ids: set[str]) -> list[MembershipEvent]:
    remaining = []
    for event in history:
        members = tuple(
            one
            for one in event.generation.members
            if one.member_id not in ids and one.group_instance_id is None
        )
        remaining.append(event._replace(generation=replace(event.generation, members=members)))
    return remaining


def _keep_rolling_restarts(pairs: Sequence[MemberRestart]) -> list[MemberRestart]:
    """Keeps runs of two or more restarts; a single pair may be two unrelated members."""
    ordered = sorted(pairs, key=lambda restart: (restart.gone_at, restart.back_at))
    runs: list[list[MemberRestart]] = []
    for restart in ordered:
        if runs and restart.gone_at - runs[-1][-1].back_at <= MAX_DEPLOY_GAP:
            runs[-1].append(restart)
        else:
            runs.append([restart])
    return [restart for run in runs if len(run) > 1 for restart in run]


MAX_ROLLOUT_GAP = 10 * 60_000  # the longest time between two rebalances of a rollout
MIN_REPLACEMENTS = 3
ENOUGH_REPLACEMENTS = 10
MIN_ROLLOUT_GROUP = 2


def find_rollouts(
    rebalances: Sequence[Rebalance], explanations: Sequence[Explanation] | None = None
) -> list[str | None]:
    """Returns each rebalance's rollout, by first and last generation; None if it has none."""
    runs = [_RolloutRun()]
    for number, rebalance in enumerate(rebalances):
        last = runs[-1].last
        is_apart = (
            last is not None and rebalance.after.at - rebalances[last].after.at > MAX_ROLLOUT_GAP
        )
        is_empty = rebalance.before is None or not rebalance.after.members
        if is_apart or is_empty:
            runs.append(_RolloutRun())
        why = explanations[number] if explanations is not None else None
        if is_empty or (why is not None and RebalanceCause.SLOW_POLL in (why.cause, why.likely)):
            continue
        if not runs[-1].add_rebalance(number, rebalance):
            runs.append(_RolloutRun())
            runs[-1].add_rebalance(number, rebalance)
    names: list[str | None] = [None] * len(rebalances)
    for run in runs:
        run.name(rebalances, names)
    return names


@dataclass(slots=True)
class _Replacement:
    old: GenerationMember
    new: GenerationMember
    rebalances: tuple[int, int]

    @property
    def is_another_process(self) -> bool:
        """Whether the new member is certainly not the restarted old process."""
        old, new = self.old, self.new
        return old.client_id != new.client_id or old.client_host != new.client_host


@dataclass(slots=True)
class _RolloutRun:
    last: int | None = None
    group_size: int = 0
    replacements: list[_Replacement] = field(default_factory=list)
    joined_ids: set[str] = field(default_factory=set)
    #: Members that left and have no replacement yet, with the number of the rebalance.
    left: list[tuple[int, GenerationMember]] = field(default_factory=list)
    #: Members that joined and have not replaced another one yet.
    joined: list[tuple[int, GenerationMember]] = field(default_factory=list)

    def add_rebalance(self, number: int, rebalance: Rebalance) -> bool:
        """Adds a rebalance; returns False without a change if it cannot belong to this run."""
        assert rebalance.before is not None
        diff = diff_generations(rebalance.before, rebalance.after)
        returned = {member.group_instance_id for member in diff.returned_static}
        former = [one for one in rebalance.before.members if one.group_instance_id in returned]
        leaving, joining = [*diff.left, *former], [*diff.joined, *diff.returned_static]
        if not leaving and not joining:
            return True
        replacing = {one.new.member_id for one in self.replacements}
        if any(member.member_id in replacing for member in leaving):
            return False  # the replacements are being replaced
        if self.last is None:
            self.group_size = len(rebalance.before.members)
        self.last = number
        for member in leaving:
            if member.member_id in self.joined_ids:  # it stayed only for a short time
                self.joined = [one for one in self.joined if one[1].member_id != member.member_id]
            elif self.joined:
                since, new = _pop_most_similar(self.joined, member)
                self.replacements.append(_Replacement(member, new, (since, number)))
            else:
                self.left.append((number, member))
        for member in joining:
            self.joined_ids.add(member.member_id)
            if self.left:
                since, old = _pop_most_similar(self.left, member)
                self.replacements.append(_Replacement(old, member, (since, number)))
            else:
                self.joined.append((number, member))
        return True

    def name(self, rebalances: Sequence[Rebalance], names: list[str | None]) -> None:
        if not self._is_rollout():
            return
        numbers = sorted({number for one in self.replacements for number in one.rebalances})
        first, last = rebalances[numbers[0]], rebalances[numbers[-1]]
        assert first.before is not None
        incarnation = f"incarnation {last.after.incarnation}, " if last.after.incarnation else ""
        name = f"{incarnation}generation {first.before.generation}-{last.after.generation}"
        for number in numbers:
            names[number] = name

    def _is_rollout(self) -> bool:
        count = len(self.replacements)
        if count >= MIN_REPLACEMENTS:
            return count >= ENOUGH_REPLACEMENTS or 2 * count >= self.group_size
        is_whole = MIN_ROLLOUT_GROUP <= self.group_size <= count
        return is_whole and all(one.is_another_process for one in self.replacements)


def _pop_most_similar(
    waiting: list[tuple[int, GenerationMember]], member: GenerationMember
) -> tuple[int, GenerationMember]:
    """Removes and returns the most similar member; among equals the first."""
    likeness = [_name_similarity(one, member) for _, one in waiting]
    return waiting.pop(likeness.index(max(likeness)))


def _name_similarity(one: GenerationMember, other: GenerationMember) -> int:
    """Scores two names: same static id, then same client id, then the common prefix."""
    if one.group_instance_id is not None and one.group_instance_id == other.group_instance_id:
        return 2 << 20
    if one.client_id == other.client_id:
        return 1 << 20
    pairs = zip(one.client_id, other.client_id, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
