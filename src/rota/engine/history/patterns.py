"""Patterns in a group's history: what happened again and again.

Start with :func:`find_patterns`. The order is the order of importance: first what no strategy fixes
(a stuck partition, growing lag, crashes, slow polls, late joins, a member that rejoins again and
again), then an autoscaler and rolling deploys, which another strategy makes cheaper.

A cause that the evidence does not show counts as the likeliest one; the text then says "seems".

**Autoscalers**: ``docs/downtime.md`` says how sure they are, and what else looks the same. If it is
always the same process, the pattern is a rejoining member. If the older members leave and new ones
stay, or if members crash or poll too slowly, it is not an autoscaler. What repeats only once a day
(scaling for the night, a nightly restart) is not a pattern, nor is scaling to another level each
time. Six rises at random moments have a regular rhythm in 0.5 % of all cases.

**Late joins** need the broker's log, which has the start of a rebalance. No evidence names the
members that joined in time. A member is named only if no other can have been late, or if it
committed just when the last member joined: under the eager protocol Java's consumer commits before
it joins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median, stdev
from typing import Generic, TypeVar

from rota.engine.history.causes import CommitTimes, find_last_commit
from rota.engine.history.client_settings import join_names
from rota.engine.history.facts import (
    DEFAULT_SESSION_TIMEOUT,
    HEALTH_PATTERNS,
    HEARTBEAT_INTERVAL,
    MINUTE,
    Explanation,
    Generation,
    GenerationChange,
    GenerationMember,
    GroupHealth,
    GroupHealthStatus,
    GroupType,
    Pattern,
    PatternType,
    Rebalance,
    RebalanceCause,
    member_identity,
)
from rota.engine.history.rebalances import EAGER_STRATEGIES
from rota.engine.history.restarts import (
    MAX_DEPLOY_GAP,
    MAX_ROLLOUT_GAP,
    MIN_REPLACEMENTS,
    MIN_ROLLOUT_GROUP,
)
from rota.engine.model.duration import format_rounded_duration
from rota.engine.model.text import shorten_middle

MAX_REPEAT_GAP = 6 * 60 * MINUTE  # repeated events this near belong together; less than a night
#: Crashes are in a row up to this distance: the broker's longest session timeout, and more than
#: the longest pause before Kubernetes restarts a container that crashes again and again (5 min).
MAX_CRASH_GAP = 30 * MINUTE
MIN_FAILURES = 2  # one crash or slow poll may be an accident
MIN_REJOINS = 3  # two restarts of a process may be a deploy and its correction
MIN_OSCILLATIONS = 4  # up to three rises may be manual tests, or a mistake and its correction
#: Largest coefficient of variation of the gaps of a regular rhythm. Gaps between independent events
#: have 1; five of them are below 0.25 by chance in 0.5 % of all cases.
MAX_RHYTHM_VARIATION = 0.25
MIN_RHYTHM_GAPS = 5  # four gaps are below it in 2 % of all cases
MOST = 3 / 4  # of the evidence has to agree: there are exceptions, as a crash
MIN_LATE_JOIN = 5_000  # a join phase is long above this: a heartbeat interval and a poll
#: ... and above this multiple of the group's usual join phase, as heartbeat intervals differ.
LATE_JOIN_FACTOR = 3
MIN_USUAL_JOINS = 3  # with fewer measured join phases, the session is the limit
MAX_JOIN_DELAY = 1_000  # most time from the commit before a join to the end of the join phase
#: Number of members that a text names, and the longest name.
MAX_NAMES, MAX_NAME_LENGTH = 3, 48

_FAILURES = (RebalanceCause.SESSION_TIMEOUT, RebalanceCause.SLOW_POLL)


def find_patterns(  # noqa: PLR0913 (all but two are options)
    rebalances: Sequence[Rebalance],
    explanations: Sequence[Explanation],
    rollouts: Sequence[str | None] = (),
    *,
    generations: Iterable[Generation] = (),
    commits: CommitTimes | None = None,
    health: GroupHealthStatus | None = None,
    end: int | None = None,
) -> list[Pattern]:
    """Returns the patterns of a group, the most important first; rolling deploys of static members
    come from generations, names of late members from commits.

    :param explanations: one for each rebalance, like ``rollouts``
    :param end: the end of the evidence, for what still lasts
    """
    names = rollouts or [None] * len(rebalances)
    steps = [_Step(*each) for each in zip(rebalances, explanations, names, strict=True)]
    labels = _MemberLabels(steps)
    scaled = _find_autoscaler(steps, labels)
    found = [
        *_find_health_patterns(health, rebalances, end),
        *_find_crashes(steps, labels),
        *_find_slow_polls(steps, labels),
        *_find_late_joins(steps, labels, commits or {}),
        *_find_rejoining(steps, labels, {one.member for one in scaled}),
        *scaled,
        *_find_deploys(steps, generations),
    ]
    found.sort(key=lambda one: _ORDER.index(one.pattern))
    return _put_failures_before_lag(found)


_ORDER = (
    PatternType.STUCK_PARTITION,
    PatternType.GROWING_LAG,
    PatternType.CRASHES,
    PatternType.SLOW_POLLS,
    PatternType.LATE_JOIN,
    PatternType.REJOINING,
    PatternType.AUTOSCALER,
    PatternType.ROLLING_DEPLOY,
)


def _put_failures_before_lag(found: Sequence[Pattern]) -> list[Pattern]:
    """Puts lag that grew mostly while members failed after the failures, without its own repair."""
    failures = [one for one in found if one.pattern in _FAILURE_PATTERNS]
    caused = [
        one
        for one in found
        if one.pattern is PatternType.GROWING_LAG
        and any(
            2 * (min(one.until, each.until) - max(one.since, each.since)) > one.until - one.since
            for each in failures
        )
    ]
    others = [one for one in found if one not in caused]
    last = max((others.index(one) for one in failures), default=-1) + 1
    return [*others[:last], *(replace(one, fix=None) for one in caused), *others[last:]]


_FAILURE_PATTERNS = (PatternType.CRASHES, PatternType.SLOW_POLLS)


class _Step:
    """A rebalance with its explanation and the members that joined and left."""

    def __init__(self, rebalance: Rebalance, explanation: Explanation, rollout: str | None) -> None:
        self.rebalance, self.explanation, self.rollout = rebalance, explanation, rollout
        self.at = rebalance.after.at
        #: Members of the generations before and after.
        self.before = rebalance.before.members if rebalance.before is not None else ()
        self.after = rebalance.after.members
        old, new = ({member_identity(one) for one in group} for group in (self.before, self.after))
        self.joined = [one for one in self.after if member_identity(one) not in old]
        self.left = [one for one in self.before if member_identity(one) not in new]

    @property
    def cause(self) -> RebalanceCause:
        """The cause; if it is unknown, the likeliest one."""
        if self.is_known:
            return self.explanation.cause
        return self.explanation.likely or RebalanceCause.UNKNOWN

    @property
    def is_known(self) -> bool:
        return self.explanation.cause is not RebalanceCause.UNKNOWN

    @property
    def started_at(self) -> int:
        stated, latest = self.explanation.started_at, self.explanation.latest_start
        return stated if stated is not None else latest if latest is not None else self.at

    def failed_members(self) -> list[GenerationMember]:
        """Returns the members that the cause is about: those that left or came back as static."""
        ids = {one.member_id for one in self.after}
        gone = self.left or [one for one in self.before if one.member_id not in ids]
        first_reason = self.explanation.reason.partition("; then: ")[0]
        return [one for one in gone if one.member_id in first_reason] or gone


class _MemberLabels:
    """The names of members over their restarts: static id, client id, or client id and host. A name
    of two members at a time counts for none, unless the session of one expires next.
    """

    def __init__(self, steps: Sequence[_Step]) -> None:
        self._shared: set[Hashable] = set()
        for step in steps:
            is_expired = step.cause is RebalanceCause.SESSION_TIMEOUT
            gone = {one.member_id for one in step.left} if is_expired else set()
            self._count(one for one in step.before if one.member_id not in gone)
        for step in steps[-1:]:
            self._count(step.after)

    def _count(self, members: Iterable[GenerationMember]) -> None:
        dynamic = [one for one in members if one.group_instance_id is None]
        names = Counter(name for one in dynamic for name in (one.client_id, process_of(one)))
        self._shared |= {name for name, number in names.items() if number > 1}

    def label(self, member: GenerationMember) -> str | None:
        """Returns the name; None if nothing tells the member from others."""
        if member.group_instance_id is not None or not member.client_id:
            return member.group_instance_id
        if member.client_id not in self._shared:
            return member.client_id
        if self.is_shared(member):
            return None
        return f"{member.client_id} ({member.client_host.removeprefix('/')})"

    def names(self, members: Iterable[GenerationMember]) -> set[str]:
        return {name for one in members if (name := self.label(one)) is not None}

    def is_shared(self, member: GenerationMember) -> bool:
        return process_of(member) in self._shared


def process_of(member: GenerationMember) -> tuple[str, str] | str:
    """Returns a key that a process keeps if it is restarted in place."""
    return member.group_instance_id or (member.client_id, member.client_host)


_Event = TypeVar("_Event", "_Step", "_Rise", "_Deploy")


@dataclass(frozen=True, slots=True)
class _Repeats(Generic[_Event]):
    """Events that happened again and again, in runs."""

    runs: Sequence[Sequence[_Event]]

    @property
    def events(self) -> list[_Event]:
        return [event for run in self.runs for event in run]

    @property
    def gaps(self) -> list[int]:
        return [later.at - one.at for run in self.runs for one, later in pairwise(run)]

    @property
    def period(self) -> int | None:
        """The usual time from one event to the next; a single gap is not usual."""
        return round(median(self.gaps)) if len(self.gaps) > 1 else None

    @property
    def is_regular(self) -> bool:
        gaps = self.gaps
        if len(gaps) < MIN_RHYTHM_GAPS:
            return False
        return stdev(gaps) <= MAX_RHYTHM_VARIATION * sum(gaps) / len(gaps)

    def describe_period(self) -> str:
        return f"about every {_format_about(self.period or 0)}" if self.is_regular else ""

    def pattern(  # noqa: PLR0913 (all but three are options)
        self,
        kind: PatternType,
        text: str,
        fix: str | None,
        *,
        member: str | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> Pattern:
        """Returns the pattern; it lasts from the first to the last event, if not said otherwise."""
        events = self.events
        return Pattern(
            pattern=kind,
            member=member,
            since=events[0].at if since is None else since,
            until=events[-1].at if until is None else until,
            times=len(events),
            every_ms=self.period,
            text=text,
            fix=fix,
        )


def _find_repeats(events: Iterable[_Event], gap: int, least: int) -> _Repeats[_Event]:
    """Splits events that are further apart than ``gap``; keeps runs of at least ``least``."""
    runs: list[list[_Event]] = []
    for event in sorted(events, key=lambda one: one.at):
        if runs and event.at - runs[-1][-1].at <= gap:
            runs[-1].append(event)
        else:
            runs.append([event])
    return _Repeats([run for run in runs if len(run) >= least])


# stuck partitions and growing lag


def _find_health_patterns(
    status: GroupHealthStatus | None, rebalances: Sequence[Rebalance], end: int | None
) -> Iterator[Pattern]:
    if status is None:
        return
    earliest = next((each.after.at for each in rebalances), end or 0)
    latest = earliest if end is None else end
    # the present health, then the worst if it was another
    healths = dict.fromkeys((status.health, status.worst))
    times = (status.since, None), (status.worst_since, status.worst_until)
    places = (status.topic, status.partition), (status.worst_topic, status.worst_partition)
    found = zip(healths, times, places, strict=False)
    for health, (since, until), (topic, partition) in found:
        if health not in HEALTH_PATTERNS:
            continue
        lasts = health is status.health
        start = earliest if since is None else since
        stop = max(start, latest if until is None else until)
        name = None if topic is None else shorten_middle(topic, MAX_NAME_LENGTH)
        name = name if name is None or partition is None else f"{name}-{partition}"
        text = f"{name or 'a partition'} {'has been' if lasts else 'was'} stuck"
        if health is GroupHealth.FALLING_BEHIND:
            text = f"the lag{f' of {name}' if name else ''} {'has grown' if lasts else 'grew'}"
        text += f" for {_format_about(stop - start)}" if stop > start else ""
        if lasts and status.lag is not None:
            text += f" (the group is {status.lag:,} records behind)"
        yield Pattern(
            pattern=HEALTH_PATTERNS[health],
            topic=topic,
            partition=partition,
            since=start,
            until=stop,
            times=1,
            text=text,
            fix=_HEALTH_FIXES[health],
        )


_HEALTH_FIXES: Mapping[GroupHealth, str] = {
    GroupHealth.STUCK: "Look at the record at the committed offset: the application may fail on it "
    "again and again, or wait for another system.",
    GroupHealth.FALLING_BEHIND: "Add members (at most one per partition), or make the "
    "application process its records faster.",
}


# members that fail


def _find_crashes(steps: Sequence[_Step], labels: _MemberLabels) -> Iterator[Pattern]:
    """A deploy that does not close its consumers is a deploy, not crashes."""
    expired = RebalanceCause.SESSION_TIMEOUT
    failures = (step for step in steps if step.cause is expired and step.rollout is None)
    repeats = _find_repeats(failures, MAX_CRASH_GAP, MIN_FAILURES)
    members = _failed_members(repeats)
    # a static member is silent when it is closed, too
    is_static = any(one.group_instance_id is not None for one in members)
    did = "stopped sending heartbeats" if is_static else "crashed or hung"
    series = len(repeats.runs)
    yield from _failure_patterns(
        PatternType.CRASHES,
        repeats,
        labels,
        (did, "" if series == 1 else f" in {series} series"),
        "Look for crashes, long pauses of the process or network failures at those times."
        + (" A static member that is closed looks the same." if is_static else ""),
    )


def _find_slow_polls(steps: Sequence[_Step], labels: _MemberLabels) -> Iterator[Pattern]:
    failures = (step for step in steps if step.cause is RebalanceCause.SLOW_POLL)
    repeats = _find_repeats(failures, MAX_REPEAT_GAP, MIN_FAILURES)
    yield from _failure_patterns(
        PatternType.SLOW_POLLS,
        repeats,
        labels,
        ("exceeded max.poll.interval.ms", ""),
        "Take fewer records per poll, or allow more time between two polls.",
    )


def _failed_members(repeats: _Repeats[_Step]) -> list[GenerationMember]:
    return [one for step in repeats.events for one in step.failed_members()]


def _failure_patterns(
    kind: PatternType,
    repeats: _Repeats[_Step],
    labels: _MemberLabels,
    words: tuple[str, str],
    fix: str,
) -> Iterator[Pattern]:
    """:param words: what the members did, and in which time"""
    steps = repeats.events
    if not steps:
        return
    names = [labels.label(one) for one in _failed_members(repeats)]
    member = names[0] if len(set(names)) == 1 else None
    is_known = sum(step.is_known for step in steps) >= MOST * len(steps)
    seem = "" if is_known else "seems to have " if member else "seem to have "
    text = f"{_describe_names(names)} {seem}{words[0]} {len(steps)} times{words[1]}"
    text += _in_brackets(repeats.describe_period())
    yield repeats.pattern(kind, text, fix, member=member)


def _describe_names(names: Iterable[str | None]) -> str:
    """Returns the most frequent names; ``members`` if one of them is unknown."""
    counted = Counter(names)
    if None in counted or not counted:
        return "members"
    listed = [shorten_middle(name or "", MAX_NAME_LENGTH) for name, _ in counted.most_common()]
    if len(listed) <= MAX_NAMES:
        return join_names(listed)
    return join_names([*listed[: MAX_NAMES - 1], f"{len(listed) - MAX_NAMES + 1} more"])


# members that join late


def _find_late_joins(
    steps: Sequence[_Step], labels: _MemberLabels, commits: CommitTimes
) -> Iterator[Pattern]:
    joins = [(step, time) for step in steps if (time := _join_time(step)) is not None]
    ordered = sorted(time for _, time in joins)
    # the lower third: late joins may be frequent
    usual = ordered[(len(ordered) - 1) // 3] if len(ordered) >= MIN_USUAL_JOINS else None
    limit = None if usual is None else max(MIN_LATE_JOIN, LATE_JOIN_FACTOR * usual)
    late = [(step, time) for step, time in joins if time > (limit or _longest_join_time(step))]
    if not late:
        return
    members = [_find_late_member(step, time, commits) for step, time in late]
    names = [None if one is None else labels.label(one) for one in members]
    subject = "a member" if None in names else _describe_names(names)
    longest = _format_about(max(time for _, time in late))
    often = f", and the group waited {longest}"
    if len(late) > 1:
        often = f" {len(late)} times, and the group waited up to {longest}"
    yield _find_repeats((step for step, _ in late), MAX_REPEAT_GAP, 1).pattern(
        PatternType.LATE_JOIN,
        f"{subject} joined late{often}",
        "A member joins when it polls: let it take fewer records per poll (Java: "
        "max.poll.records), and close consumers before their process ends. With KIP-848 no "
        "member waits for another.",
        member=names[0] if len(set(names)) == 1 else None,
        since=late[0][0].started_at,
    )


def _longest_join_time(step: _Step) -> int:
    """Returns how long members may take to join, if nothing shows what is usual: the longest
    ``heartbeat.interval.ms`` that Kafka recommends is a third of the session.
    """
    sessions = [one.session_timeout or DEFAULT_SESSION_TIMEOUT for one in step.before]
    longest = min(max(sessions), MINUTE)  # nobody sends heartbeats even less often
    return max(LATE_JOIN_FACTOR * HEARTBEAT_INTERVAL, longest // 3 + MAX_JOIN_DELAY)


def _join_time(step: _Step) -> int | None:
    """How long the called members waited for the last one, without an empty group's delay."""
    first, started = step.rebalance.rounds[0], step.explanation.started_at
    if first.kind is not GroupType.CLASSIC or not step.before or not first.members:
        return None
    joined = first.state_at
    if joined is None and len(step.rebalance.rounds) == 1:
        joined = step.explanation.joined_at
    if started is None or joined is None or step.rebalance.unseen:
        return None
    return max(joined - started, 1)


def _find_late_member(step: _Step, waited: int, commits: CommitTimes) -> GenerationMember | None:
    first = step.rebalance.rounds[0]
    ids = {one.member_id for one in first.members}
    staying = [one for one in step.before if one.member_id in ids]
    is_departure = step.cause is RebalanceCause.LEFT or step.cause in _FAILURES
    caused = step.failed_members() if is_departure else []
    # a member that neither joins nor leaves holds the others back until its session ends
    absent = [one for one in step.left if one not in caused]
    if len(candidates := [*staying, *absent]) == 1:
        return candidates[0]
    if first.strategy not in EAGER_STRATEGIES:
        return None  # the members keep their partitions and go on committing
    started = step.explanation.started_at or 0
    joined = started + waited
    last = {
        one.member_id: find_last_commit(commits, one.assigned, joined, since=started)
        for one in staying
    }
    committed = [one for one in staying if (last[one.member_id] or 0) >= joined - MAX_JOIN_DELAY]
    return committed[0] if len(committed) == 1 else None


# members that come and go


def _find_rejoining(
    steps: Sequence[_Step], labels: _MemberLabels, scaled: set[str | None]
) -> Iterator[Pattern]:
    """Finds members that leave again and again, and come back, for no known reason."""
    leaves: dict[str, list[_Step]] = {}
    joins: dict[str, list[int]] = {}
    for step in steps:
        if step.rollout is None and step.cause not in _FAILURES:
            for name in labels.names(step.left):
                leaves.setdefault(name, []).append(step)
        for name in labels.names(step.joined):
            joins.setdefault(name, []).append(step.at)
    found = []
    for name, left in leaves.items():
        repeats = _find_repeats(left, MAX_REPEAT_GAP, MIN_REJOINS)
        if repeats.runs and name not in scaled:
            first, times = repeats.events[0].at, len(repeats.events)
            came = [at for at in joins.get(name, ()) if first - MAX_REPEAT_GAP <= at < first]
            pattern = repeats.pattern(
                PatternType.REJOINING,
                f"{shorten_middle(name, MAX_NAME_LENGTH)} joined and left {times} times"
                f"{_in_brackets(repeats.describe_period())}",
                "Find out why the process ends: look at its log and its exit codes at those times.",
                member=name,
                since=max(came, default=first),
            )
            found.append(pattern)
    if len(found) <= MAX_NAMES:
        yield from sorted(found, key=lambda one: (-one.times, one.member or ""))
        return
    most = max(one.times for one in found)
    yield replace(
        found[0],
        member=None,
        since=min(one.since for one in found),
        until=max(one.until for one in found),
        times=most,
        every_ms=None,
        text=f"{len(found)} members joined and left up to {most} times each",
    )


@dataclass(slots=True)
class _Rise:
    """The group grew from ``low`` to ``high`` members, and shrank to ``low`` again."""

    low: int
    high: int
    low_time: int | None  # how long the group had ``low`` members before; None: unknown
    growing: list[_Step]
    shrinking: list[_Step] = field(default_factory=list)

    @property
    def at(self) -> int:
        return self.growing[0].at

    @property
    def joined(self) -> list[GenerationMember]:
        return [one for step in self.growing for one in step.joined]

    @property
    def left(self) -> list[GenerationMember]:
        return [one for step in self.shrinking for one in step.left]

    @property
    def is_planned(self) -> bool:
        return all(step.cause not in _FAILURES for step in self.shrinking)


def _find_rises(steps: Sequence[_Step]) -> Iterator[_Rise]:
    """Yields every rise after which the group came back to its size by leaves, no deploys."""
    rises: list[_Rise] = []  # rises that have not ended, each higher than the one before
    last: _Step | None = None
    for step in steps:
        size, new_size = len(step.before), len(step.after)
        if not step.rebalance.known_before:
            rises, last = [], None
        if step.rollout is not None or new_size == size:
            continue
        if new_size > size:
            top = rises[-1] if rises else None
            is_same = top is not None and not top.shrinking and top.high == size
            if top is not None and is_same and step.at - top.growing[-1].at <= MAX_DEPLOY_GAP:
                top.high = new_size
                top.growing.append(step)
            else:
                low_time = None if last is None else step.at - last.at
                rises.append(_Rise(size, new_size, low_time, [step]))
        while rises and new_size < size:
            rises[-1].shrinking.append(step)
            if rises[-1].low < new_size:
                break
            rise = rises.pop()
            if rise.low == new_size and rise.is_planned:
                yield rise
        last = step


def _find_autoscaler(steps: Sequence[_Step], labels: _MemberLabels) -> list[Pattern]:
    """Returns the oscillation that happened most often, if it may be an autoscaler's."""
    by_levels: dict[tuple[int, int], list[_Rise]] = {}
    for rise in _find_rises(steps):
        by_levels.setdefault((rise.low, rise.high), []).append(rise)
    found = [
        pattern
        for rises in by_levels.values()
        if (repeats := _find_repeats(rises, MAX_REPEAT_GAP, MIN_OSCILLATIONS)).runs
        if (pattern := _autoscaler_pattern(repeats, labels)) is not None
    ]
    return sorted(found, key=lambda one: -one.times)[:1]


def _autoscaler_pattern(repeats: _Repeats[_Rise], labels: _MemberLabels) -> Pattern | None:
    rises = repeats.events
    later = (rise for run in repeats.runs for rise in run[1:])
    low_times = [rise.low_time for rise in later if rise.low_time is not None]
    is_replaced_soon = median(low_times or [0]) < MAX_DEPLOY_GAP
    if not _leave_last_joined(rises, same_rise=is_replaced_soon):
        return None  # the older members leave: they are replaced
    joined = [one for rise in rises for one in rise.joined]
    processes = Counter(map(process_of, joined))
    is_named = not any(labels.is_shared(one) for one in joined)
    if is_named and 2 * processes.most_common(1)[0][1] > len(rises):
        return None  # the same process again and again
    name, number = Counter(labels.label(one) for one in joined).most_common(1)[0]
    member = name if 2 * number > len(rises) else None
    leaves = [step for rise in rises for step in rise.shrinking]
    known = sum(step.explanation.cause is RebalanceCause.LEFT for step in leaves)
    few = len(repeats.gaps) < MIN_RHYTHM_GAPS
    doubts = (
        (not is_named, "client ids and hosts do not distinguish the members"),
        (member is not None, f"{member} each time, on another host"),
        (is_named and len(processes) < MOST * len(joined), "some processes come back"),
        (known < MOST * len(leaves), "the reasons for leaving are unknown"),
        (not repeats.is_regular, "too few times to be regular" if few else "at irregular times"),
    )
    doubt = next((text for applies, text in doubts if applies), None)
    low, high = rises[0].low, rises[0].high
    who = "an autoscaler" if low else "an autoscaler or a scheduled job"
    what = "a member" if high - low == 1 else f"{high - low} members"
    text = f"{who} seems to have added and removed {what}"
    if is_replaced_soon:
        text = f"{who}, or a process that ends and is replaced, added and removed {what}"
    elif doubt is not None:
        text = f"perhaps {who} added and removed {what}"
    notes = ", ".join(filter(None, (f"{low} to {high} members", repeats.describe_period())))
    text += f" {len(rises)} times{_in_brackets('; '.join(filter(None, (notes, doubt))))}"
    fix = (
        "Let the autoscaler wait longer before it removes a member (Kubernetes: "
        "behavior.scaleDown.stabilizationWindowSeconds), so that it scales less often."
    )
    return repeats.pattern(
        PatternType.AUTOSCALER,
        text,
        fix if low else None,  # a scheduled job needs no repair
        member=member,
        until=rises[-1].shrinking[-1].at,
    )


def _leave_last_joined(rises: Sequence[_Rise], *, same_rise: bool) -> bool:
    """Whether at least half of the members that leave joined in these rises (or in one of them)."""
    joined = {one.member_id for rise in rises for one in rise.joined}
    left = stayed_short = 0
    for rise in rises:
        own = {one.member_id for one in rise.joined} if same_rise else joined
        left += len(rise.left)
        stayed_short += sum(one.member_id in own for one in rise.left)
    return 2 * stayed_short >= left


# rolling deploys


@dataclass(slots=True)
class _Deploy:
    at: int
    until: int
    members: set[str]  # the static ids, or member ids, of the replaced members
    is_without_rebalance: bool

    def is_same(self, following: _Deploy) -> bool:
        """Returns whether one deploy has static members that were back in time, and others."""
        return (
            self.is_without_rebalance is not following.is_without_rebalance
            and following.at <= self.until + MAX_ROLLOUT_GAP
            and not following.members & self.members
        )


def _find_deploys(steps: Sequence[_Step], generations: Iterable[Generation]) -> Iterator[Pattern]:
    found = [*_list_rollouts(steps), *_find_static_deploys(generations)]
    deploys: list[_Deploy] = []
    for one in sorted(found, key=lambda deploy: deploy.at):
        if deploys and deploys[-1].is_same(one):
            deploys[-1].until = max(deploys[-1].until, one.until)
            deploys[-1].members |= one.members
        else:
            deploys.append(one)
    if not deploys:
        return
    sizes = [len(one.members) for one in deploys]
    size, up_to = max(sizes), "" if min(sizes) == max(sizes) else "up to "
    span = _format_about(deploys[0].until - deploys[0].at)
    text = f"a rolling deploy replaced {size} members in {span}"
    if len(deploys) > 1:
        text = f"{len(deploys)} rolling deploys replaced {up_to}{size} members each"
    repeats = _Repeats([deploys])
    yield repeats.pattern(PatternType.ROLLING_DEPLOY, text, None, until=deploys[-1].until)


def _list_rollouts(steps: Sequence[_Step]) -> Iterator[_Deploy]:
    by_name: dict[str, list[_Step]] = {}
    for step in steps:
        if step.rollout is not None:
            by_name.setdefault(step.rollout, []).append(step)
    for named in by_name.values():
        kept = {one.member_id for one in named[-1].after}
        replaced = {
            one.group_instance_id or one.member_id
            for one in named[0].before
            if one.member_id not in kept
        }
        if len(replaced) >= MIN_REPLACEMENTS or _has_new_processes(steps, named):
            yield _Deploy(named[0].started_at, named[-1].at, replaced, is_without_rebalance=False)


def _has_new_processes(steps: Sequence[_Step], named: Sequence[_Step]) -> bool:
    """Returns whether all processes of a deploy are new: two may also have left and come back."""
    known = {process_of(one) for step in steps if step.at < named[0].at for one in step.after} | {
        process_of(one) for one in named[0].before
    }
    return not any(process_of(one) in known for step in named for one in step.joined)


def _find_static_deploys(generations: Iterable[Generation]) -> Iterator[_Deploy]:
    """Finds runs (as in ``restarts``) of static members that return without a rebalance."""
    runs: list[tuple[_Deploy, int]] = []  # each run, and the number of members when it began
    for before, one in pairwise(generations):
        returned = _returned_static(before, one)
        run = runs[-1][0] if runs else None
        is_next = run is not None and one.at - run.until <= MAX_ROLLOUT_GAP
        if run is not None and is_next and not returned & run.members:
            if returned:
                run.until, run.members = one.at, run.members | returned
        elif returned:
            deploy = _Deploy(one.at, one.at, returned, is_without_rebalance=True)
            runs.append((deploy, len(one.members)))
    for deploy, size in runs:
        count = len(deploy.members)
        if (
            count >= (MIN_ROLLOUT_GROUP if count >= size else MIN_REPLACEMENTS)
            and 2 * count >= size
        ):
            yield deploy


def _returned_static(before: Generation, generation: Generation) -> set[str]:
    if generation.change is not GenerationChange.REPLACED:
        return set()
    old = {one.group_instance_id: one.member_id for one in before.members}
    return {
        name
        for one in generation.members
        if (name := one.group_instance_id) is not None
        and old.get(name) not in {None, one.member_id}
    }


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _format_about(milliseconds: int) -> str:
    if milliseconds < 2 * MINUTE:
        return f"{max(round(milliseconds / 1_000), 1)} s"
    return format_rounded_duration(round(milliseconds / MINUTE) * MINUTE)
