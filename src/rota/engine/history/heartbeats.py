"""The heartbeats of a group's members, as its history shows them.

The journal has no heartbeats. But members learn of a rebalance by them, so the times of join phases
show their interval, and how fast they drift apart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rota.engine.history.facts import (
    DEFAULT_SESSION_TIMEOUT,
    HEARTBEAT_INTERVAL,
    Generation,
    GenerationChange,
    GenerationMember,
    GroupType,
    Rebalance,
)
from rota.engine.history.group_evidence import CLOCK_SLACK, GroupLog, MemberCommits
from rota.engine.history.rebalances import EAGER_STRATEGIES

HEARTBEAT_DRIFT = 20  # largest delay of a client's heartbeat, if the history has none
#: Heartbeats count as evenly spread if the fastest member has sent this many more than the slowest.
DRIFTED_HEARTBEATS = 3
_SHARES = np.linspace(0, 1, 41)
#: Least evidence for a heartbeat interval, and what an unusual one loses (logarithms of
#: likelihoods); share of join phases that wait for a late member.
MIN_FIT, UNUSUAL, LATE_SHARE = 4.0, 2.0, 0.1
HEARTBEAT_STEP = 500  # intervals are set to multiples of this, or to a third of the session
MAX_HEARTBEAT_INTERVAL = 60_000  # longest interval tried, besides a third of the session
MAX_SPREAD = 30  # heartbeats of more members are never spread evenly: so many count as independent
ENOUGH_JOINS = 500
#: The number of heartbeats after which drift can be measured, and the usual delay of a request.
ENOUGH_BEATS, USUAL_LATENESS = 4, 30
HEARTBEAT_SLACK = 100  # time for a request and its response, and for work between two heartbeats
#: The usual time from a member's revocation until it has joined, and the longest for callbacks.
JOIN_TIME, MAX_JOIN_TIME = 8, 1_000
MIN_REVOCATIONS, ENOUGH_REVOCATIONS = 2, 20
MAX_HEARTBEAT_SHARE = 1 / 3  # of the session: the longest heartbeat interval, as Kafka advises


def joined_time(generation: Generation) -> int:
    """Returns when all members had joined, or the last one had left."""
    if generation.change is GenerationChange.EMPTIED or generation.state_at is None:
        return generation.at
    return min(generation.state_at, generation.at)


def usual_heartbeat_interval(member: GenerationMember) -> int:
    return _usual_interval(member.session_timeout or DEFAULT_SESSION_TIMEOUT)


def _usual_interval(session: int) -> int:
    return max(int(min(HEARTBEAT_INTERVAL, session * MAX_HEARTBEAT_SHARE)), 1)


class HeartbeatWaits(NamedTuple):
    """The expected times until members learn of a rebalance, in milliseconds."""

    longest: int
    mean_rest: int  # from when a member learns of it until the last one does, on average
    limit: int  # in a longer join phase, members that revoked wait for later ones
    longest_possible: int  # a longer join phase waits for a late or a dead member

    def mean_revoked_time(self, join_time: int) -> int:
        """Returns the mean time from a member's revocation until all members have joined."""
        return min(self.mean_rest + max(join_time - self.limit, 0), join_time)


class JoinPhase(NamedTuple):
    """A join phase of the history, from the log; times are in milliseconds."""

    since_last: int
    time: int
    members: int


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """A member's heartbeats begin anew when a rebalance ends. Then each member's interval is longer
    by a constant of its own, so they drift apart.
    """

    interval: int = HEARTBEAT_INTERVAL
    is_known: bool = False  # the history shows the interval, and so when heartbeats are due
    drift: int = HEARTBEAT_DRIFT  # the largest time by which one is late
    session: int = DEFAULT_SESSION_TIMEOUT
    #: The time from a member's revocation until it has joined or left: its callbacks run in it.
    join_time: int = JOIN_TIME

    @property
    def longest_usual_interval(self) -> int:
        return max(int(self.session * MAX_HEARTBEAT_SHARE), 1)

    @classmethod
    def from_joins(cls, joins: Sequence[JoinPhase], session: int) -> Heartbeats:
        """Finds the interval whose multiples end the join phases; none of them is longer."""
        usual = _usual_interval(session)
        usable = [one for one in joins if one.time < session and one.members][-ENOUGH_JOINS:]
        if not usable:
            return cls(usual, session=session)
        since_last, join_time, members = np.array(usable, dtype=np.float64).T
        most = min(session // 2, MAX_HEARTBEAT_INTERVAL)
        whole = range(HEARTBEAT_STEP, most + 1, HEARTBEAT_STEP)
        tried = np.array(sorted({*whole, max(session // 3, 1), usual}), dtype=np.float64)[:, None]
        # a clock that goes back gives negative times
        number = np.maximum(np.round((since_last + join_time) / tried), 0)
        late = since_last + join_time - number * tried
        slack = number * HEARTBEAT_DRIFT + HEARTBEAT_SLACK
        # the likelihood of each join time: the heartbeats are still near to each other, or spread
        fits = (late >= -CLOCK_SLACK) & (late <= slack) & (number > 0)
        near = np.where(fits & (join_time <= tried + slack), 1 / slack, 0)
        share = np.minimum(join_time / tried, 1)
        spread_out = np.minimum(members, MAX_SPREAD)
        spread = np.where(
            join_time <= tried + HEARTBEAT_SLACK, spread_out / tried * share ** (spread_out - 1), 0
        )
        likelihood = np.where(slack < tried / 2, near, spread)
        score = np.log(likelihood * (1 - LATE_SHARE) + LATE_SHARE / session).sum(axis=1)
        distance = [
            np.abs(np.log(tried[:, 0] / common)) for common in (usual, max(session // 3, 1))
        ]
        score -= UNUSUAL * np.minimum(distance[0], distance[1] + 0.5)
        best = int(np.argmax(score))
        scale = np.where(join_time > 0, max(join_time.max(), HEARTBEAT_STEP), usual)
        if score[best] + np.log(scale).sum() < MIN_FIT:
            # join phases that last longer than the usual interval, or never as long
            longer = tried[best, 0] > usual and join_time.max() > usual + HEARTBEAT_SLACK
            shorter = tried[best, 0] < usual
            gain = score[best] - score[tried[:, 0] == usual][0]
            is_better = (longer and gain > MIN_FIT) or (shorter and gain > 2 * MIN_FIT)
            return cls(int(tried[best, 0]) if is_better else usual, session=session)
        interval = int(tried[best, 0])
        drift = _find_drift(interval, usable)
        return cls(interval, is_known=True, drift=drift, session=session)

    def with_second_join(self, time: int) -> Heartbeats:
        """Returns the heartbeats with the interval that explains the time of a second cooperative
        round, one interval and a little more; the same heartbeats if no interval does.
        """
        for interval in (time // HEARTBEAT_STEP * HEARTBEAT_STEP, self.longest_usual_interval):
            if interval - CLOCK_SLACK <= time <= interval + HEARTBEAT_SLACK:
                return replace(self, interval=interval, is_known=True)
        return self

    @lru_cache(maxsize=4096)  # noqa: B019 (the value is small, and frozen)
    def expect_waits(self, members: int, since_last: int) -> HeartbeatWaits:
        """Returns how long members wait for the heartbeat that tells them of a rebalance."""
        drift = since_last // self.interval * self.drift
        if drift >= DRIFTED_HEARTBEATS * self.interval:  # spread over the whole interval
            last = self.interval * members // (max(members, 1) + 1)
            rest = max(last - self.interval // 2, 0)
            limit = last if self.is_known else self.interval
            slack = HEARTBEAT_SLACK
            return HeartbeatWaits(last, rest, limit + slack, self.interval + slack)
        intervals = self.interval + self.drift * _SHARES
        waits = np.sort(intervals - max(since_last, 0) % intervals)
        shares = np.arange(len(waits) + 1) / len(waits)
        longest = float(np.diff(shares ** max(members, 1)) @ waits)
        mean_rest = max(longest - float(waits.mean()), 0)
        limit = round(longest) if self.is_known else self.interval
        limit += HEARTBEAT_SLACK
        possible = max(limit, round(float(waits[-1])) + HEARTBEAT_SLACK)
        return HeartbeatWaits(round(longest), round(mean_rest), limit, possible)


def _find_drift(interval: int, joins: Iterable[JoinPhase]) -> int:
    late = []
    for since_last, join_time, _ in joins:
        number, phase = divmod(since_last, interval)
        spread = number * HEARTBEAT_DRIFT + USUAL_LATENESS
        # otherwise some members may have sent this heartbeat already
        if number >= ENOUGH_BEATS and spread < min(phase, interval / 2):
            late.append((phase + join_time - interval - USUAL_LATENESS) / (number + 1))
    if not late:
        return HEARTBEAT_DRIFT
    # the last of two or more members has at least two thirds of the largest drift
    return min(max(round(1.5 * float(np.median(late))), 0), HEARTBEAT_DRIFT)


def _list_joins(rebalances: Iterable[Rebalance], log: GroupLog) -> Iterator[JoinPhase]:
    """Yields the join phases that the log has."""
    for rebalance in rebalances:
        before = rebalance.before
        for after in rebalance.rounds:
            if before is not None and after.kind is GroupType.CLASSIC and after.members:
                line = log.find_start(before, after)
                if line is not None and not log.has_expiry(line.at, joined_time(after)):
                    ids = {member.member_id for member in before.members}
                    called = sum(member.member_id in ids for member in after.members)
                    since_last = line.at - joined_time(before)
                    yield JoinPhase(since_last, max(joined_time(after) - line.at, 0), called)
            before = after


def _list_expiries(
    generations: Sequence[Generation], log: GroupLog, commits: MemberCommits
) -> Iterator[JoinPhase]:
    """Yields the last heartbeats before expiries as join phases without a wait: they come a whole
    number of intervals after the member's last rebalance.
    """
    times = [one.at for one in generations]
    first_at: dict[str, int] = {}
    for generation in generations:
        for member in generation.members:
            first_at.setdefault(member.member_id, generation.at)
    for line in log.lines:
        before = bisect_left(times, line.at) - 1
        if line.what != "failed" or before < 0:
            continue
        last = generations[before]
        failed = next((one for one in last.members if one.member_id == line.member_id), None)
        if failed is None or last.kind is not GroupType.CLASSIC:
            continue
        heartbeat = line.at - (failed.session_timeout or DEFAULT_SESSION_TIMEOUT)
        rebalanced = (
            one.at
            for one in reversed(generations[: before + 1])
            if one.change is not GenerationChange.REPLACED
        )
        since = max(next(rebalanced, heartbeat), first_at[failed.member_id])
        commit = commits.find_last(failed, heartbeat + CLOCK_SLACK)
        if since < heartbeat - CLOCK_SLACK and (commit is None or commit < heartbeat - CLOCK_SLACK):
            yield JoinPhase(heartbeat - since, 0, 1)


def _list_join_times(
    generations: Sequence[Generation],
    rebalances: Sequence[Rebalance],
    log: GroupLog,
    commits: MemberCommits,
) -> Iterator[int]:
    """Yields the times from a commit on revocation until all have joined or it has left."""
    for rebalance in rebalances[-ENOUGH_REVOCATIONS:]:
        before, after = rebalance.before, rebalance.rounds[0]
        if before is None or after.strategy not in EAGER_STRATEGIES:
            continue
        line, joined = log.find_start(before, after), joined_time(after)
        ids = {member.member_id for member in after.members}
        called = [member for member in before.members if member.member_id in ids]
        if line is not None and not log.has_expiry(line.at, joined):
            found = [commits.find_last(member, joined, line.at) for member in called]
            if any(found):
                yield joined - max(one for one in found if one is not None)
    members = {member.member_id: member for each in generations for member in each.members}
    left = [line for line in log.lines if line.what == "left" and line.member_id in members]
    for line in left[-ENOUGH_REVOCATIONS:]:
        commit = commits.find_last(members[line.member_id or ""], line.at, line.at - MAX_JOIN_TIME)
        if commit is not None:
            yield line.at - commit


def find_heartbeats(
    generations: Sequence[Generation],
    rebalances: Sequence[Rebalance],
    log: GroupLog,
    commits: MemberCommits,
) -> Heartbeats:
    """Returns the heartbeats of a group's members, from the join phases that the log has."""
    joins = [*_list_joins(rebalances, log), *_list_expiries(generations, log, commits)]
    sessions = (one.session_timeout for each in generations for one in each.members)
    session = min((one for one in sessions if one), default=DEFAULT_SESSION_TIMEOUT)
    heartbeats = Heartbeats.from_joins(joins, session)
    times = sorted(_list_join_times(generations, rebalances, log, commits))
    if len(times) < MIN_REVOCATIONS:
        return heartbeats
    join_time = min(max(times[len(times) // 2], JOIN_TIME), MAX_JOIN_TIME)
    return replace(heartbeats, join_time=join_time)
