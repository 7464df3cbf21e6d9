"""Downtime: the time in which no member consumed a partition of an existing group.

The unit is the partition-second: two partitions without a consumer for three seconds are six
seconds of downtime. :func:`find_downtime` returns a :class:`Downtime` for each partition and each
time, with its reason, the member that had the partition, and bounds of its length.

When downtime begins:

- *revoked* (eager): when the member revokes its partitions. It does so when a heartbeat tells it
  of the rebalance: after the call to join, before all members have joined. A commit in between
  shows that it still had them.
- *moved*: when a round of a cooperative rebalance takes the partition away. In a consumer group
  (KIP-848): when the member has confirmed the revocation.
- *left*: when the member leaves.
- *silent*: from the last sign of life. The broker removes a member one session timeout after its
  last heartbeat, and the member ended before its next one.
- *restarted*: a static member came back under a new member id. It stopped after its last commit,
  and less than one session timeout before it came back.
- *empty*: from the leave of the last member until a member has the partition again. If this takes
  longer than the largest session timeout, or does not end, somebody has *shut down* the group:
  such time is listed, but not counted in sums.
- *not polled*: from the last poll, ``max.poll.interval.ms`` before the client left because of it.
  The member may have worked on its last records in that time, so sums leave it out, and have it in
  a column of its own.

Downtime ends when a member gets the partition: at the record of its generation, or at the record
of its current assignment in a consumer group. Nothing counts before the first owner of a
partition, after its last subscriber, or while the group is deleted.

How it is known: *stated* if the broker's log has the begin; *inferred* if records of the journal
have both ends; *bounded* if only commits and timeouts limit it; *sampled* between two samples.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np

from rota.engine.history.causes import (
    LATEST_TIME,
    CommitTimes,
    find_last_commit,
    is_last_commit_early,
    recent_commit_gaps,
)
from rota.engine.history.facts import (
    DEFAULT_SESSION_TIMEOUT,
    MAX_SESSION_TIMEOUT,
    Downtime,
    DowntimeReason,
    EvidenceType,
    Explanation,
    Generation,
    GenerationChange,
    GenerationMember,
    GroupType,
    LogLine,
    PartitionOwnership,
    PartitionsByTopic,
    Rebalance,
    RebalanceCause,
    member_identity,
)
from rota.engine.history.lag import EndOffsets
from rota.engine.history.rebalances import EAGER_STRATEGIES, gave_up_everything

#: ``heartbeat.interval.ms``: the journal does not have it, so Kafka's default is assumed.
HEARTBEAT_INTERVAL = 3_000
#: The largest time by which a client's heartbeat is late, if the history does not show it.
HEARTBEAT_DRIFT = 20
#: Heartbeats count as evenly spread if the fastest member has sent this many more than the slowest.
DRIFTED_HEARTBEATS = 3
_SHARES = np.linspace(0, 1, 41)
#: The least evidence for a heartbeat interval, and what an unusual interval loses: logarithms of
#: likelihoods. The third is the share of join phases that wait for a late member.
MIN_FIT, UNUSUAL, LATE_SHARE = 4.0, 2.0, 0.1
#: Intervals are set to multiples of this, or to a third of the session.
HEARTBEAT_STEP = 500
#: The longest interval that is tried, besides a third of the session.
MAX_HEARTBEAT_INTERVAL = 60_000
#: The number of join phases that are compared.
ENOUGH_JOINS = 500
#: The number of heartbeats after which drift can be measured, and the usual delay of a request.
ENOUGH_BEATS, USUAL_LATENESS = 4, 30
#: Time for a request and its response, and for work between two heartbeats.
HEARTBEAT_SLACK = 100
#: A heartbeat interval is at most this share of the session timeout, as Kafka recommends.
MAX_HEARTBEAT_SHARE = 1 / 3
#: Largest time from the record of an assignment until the member uses it (recorded: 406 ms).
MAX_ASSIGNMENT_DELAY = 500
#: Largest time from the moment at which a closing client stops reading to its LeaveGroup request
#: (recorded: 66 ms).
MAX_CLOSE_TIME = 250
#: Largest difference between a client's action and its record or log line (recorded: 10 ms).
CLOCK_SLACK = 10
#: A last gap below this share of the gaps before breaks the rhythm of automatic commits.
CLOSE_COMMIT_SHARE = 0.995
#: Used for a restart if nothing is known of it, or of an earlier one.
USUAL_RESTART_TIME = 10_000
#: Number of a member's partitions whose commits are looked up.
ENOUGH_PARTITIONS = 16
#: A group is a scheduled job if it was empty so often, and its longest absence is at most this
#: multiple of the shortest.
MIN_RUNS, SCHEDULE_TOLERANCE = 4, 1.5
#: ``auto.commit.interval.ms``.
AUTO_COMMIT_INTERVAL = 5_000
#: The least number of times between commits that show a rhythm.
MIN_COMMITS = 3
#: A member that has missed this many regular commits did not leave: it crashed or hung.
MISSED_COMMITS = 3
#: The longer gaps between automatic commits, as a multiple of the shorter ones (quartiles).
STEADY_RHYTHM = 1.05
#: A member that is called to join again so soon may never have received its assignment.
SHORT_GENERATION = 10_000
#: Reasons that sums do not count: the first is in a column of its own, the second is intended.
UNCOUNTED_REASONS = frozenset({DowntimeReason.NOT_POLLED, DowntimeReason.SHUT_DOWN})
#: A log whose clock differs from the journal's by other times than this is not used.
LOG_CLOCK_SCATTER = 1_000
#: Differences of a log's and a journal's times that the search for log lines allows.
LOG_TIME_SLACK = 1_000

TopicAndPartition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DowntimeTotal:
    """Sums of downtime, in partition-milliseconds."""

    downtime_ms: int = 0
    downtime_at_least_ms: int = 0
    downtime_at_most_ms: int = 0
    #: The time in which owners did not poll; not part of the others.
    not_polled_ms: int = 0
    #: None: no log end is known.
    delayed_records: int | None = None
    added_lag_ms: int | None = None
    by_reason: Mapping[str, int] = field(default_factory=dict)


def sum_downtime(found: Iterable[Downtime]) -> DowntimeTotal:
    """Returns the sums over all reasons but *not polled* and *shut down*."""
    reasons: Counter[str] = Counter()
    at_least = at_most = 0
    delayed: list[int] = []
    added: list[int] = []
    for one in found:
        reasons[one.reason] += one.milliseconds
        if one.reason in UNCOUNTED_REASONS:
            continue
        at_least += one.at_least_ms
        at_most += one.at_most_ms
        if one.delayed_records is not None and one.added_lag_ms is not None:
            delayed.append(one.delayed_records)
            added.append(one.added_lag_ms)
    return DowntimeTotal(
        downtime_ms=sum(
            time for reason, time in reasons.items() if reason not in UNCOUNTED_REASONS
        ),
        downtime_at_least_ms=at_least,
        downtime_at_most_ms=at_most,
        not_polled_ms=reasons[DowntimeReason.NOT_POLLED],
        delayed_records=sum(delayed) if delayed else None,
        added_lag_ms=max(added, default=None),
        by_reason={reason: time for reason, time in sorted(reasons.items()) if time},
    )


class TimeBounds(NamedTuple):
    """A time that is not known exactly."""

    earliest: int
    estimate: int
    latest: int

    @classmethod
    def exactly(cls, at: int) -> TimeBounds:
        return cls(at, at, at)

    @classmethod
    def between(cls, earliest: int, estimate: int, latest: int) -> TimeBounds:
        """Returns the bounds with the estimate moved between them."""
        latest = max(earliest, latest)
        return cls(earliest, min(max(estimate, earliest), latest), latest)


class ConsumptionEnd(NamedTuple):
    """The end of a member's consumption of partitions."""

    time: TimeBounds
    reason: DowntimeReason
    member: GenerationMember
    evidence: EvidenceType
    #: The time of its last poll, if it polled too late.
    last_poll: TimeBounds | None = None
    #: It was closed: the last commit of a static member shows it. Of an empty group: all members
    #: that left last were closed, and did not leave because of a slow poll.
    is_closed: bool = False
    #: The last sign of life of a member whose session expired.
    session_start: int | None = None


@dataclass(frozen=True, slots=True)
class RebalancePhases:
    """When the members of a round were called to join, had joined, and got their assignment."""

    start: TimeBounds
    joined: int
    assigned: int
    #: The broker's log has the start.
    is_stated: bool
    #: The member whose JoinGroup request started it: it revoked its partitions before.
    caller: str | None = None


class PassingMember(NamedTuple):
    """A member that joined and left during a rebalance: it never had an assignment."""

    member_id: str
    joined: int
    gone: int
    #: Its session ended; otherwise it left.
    is_crash: bool = False


@dataclass(frozen=True, slots=True)
class EventTimes:
    """When a rebalance, or the return of a static member, happened: input of the what-if."""

    #: When the members were called to join.
    start: int
    joined: int
    assigned: int
    #: The members that are gone, and when they stopped consuming.
    gone: Mapping[str, ConsumptionEnd]
    #: The time from each later call to join until all had joined again (cooperative).
    later_joins: tuple[int, ...] = ()
    #: When new members called to join, from the log.
    joins: Mapping[str, int] = field(default_factory=dict)
    passing: Sequence[PassingMember] = ()


_UUID = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def client_of(member_id: str) -> str:
    """Returns the client id or the static id at the begin of a member id, before a UUID; otherwise
    the whole id.
    """
    return _UUID.sub("", member_id)


def is_client_of(member: GenerationMember, member_id: str) -> bool:
    return client_of(member_id) == (member.group_instance_id or member.client_id)


class GroupLog:
    """The broker's log lines about a group, searchable by time."""

    def __init__(self, lines: Sequence[LogLine]) -> None:
        self._lines = lines
        self._times = [line.at for line in lines]
        self._joins: dict[str, int] = {}
        for line in lines:
            if line.member_id is not None and line.what in {"joining", "joined"}:
                self._joins.setdefault(line.member_id, line.at)
        self._returns = {
            line.member_id: line.at
            for line in lines
            if line.member_id is not None and line.what == "replaced"
        }

    def joined_at(self, member_id: str) -> int:
        """Returns when a member first called to join, 0 if the log does not have it."""
        return self._joins.get(member_id, 0)

    def list_joins(self, members: Iterable[GenerationMember]) -> dict[str, int]:
        """Returns when each of the members first called to join."""
        ids = (member.member_id for member in members)
        return {one: self._joins[one] for one in ids if one in self._joins}

    def has_joined_again(self, member: GenerationMember, begin: int, end: int) -> bool:
        """Returns whether another member with the same client id joined in this time."""
        return any(
            begin <= at <= end and one != member.member_id and is_client_of(member, one)
            for one, at in self._joins.items()
        )

    def has_expiry(self, begin: int, end: int) -> bool:
        """Returns whether a session ended in a join phase, which so long waited for it."""
        return any(
            line.what in {"failed", "dropped"} and begin + CLOCK_SLACK < line.at <= end
            for line in self.between(begin, end)
        )

    def list_passing(self, begin: int, end: int, known: Container[str]) -> list[PassingMember]:
        """Returns members that joined and left during a rebalance, without an assignment.

        :param known: the members with an assignment
        """
        joined: dict[str, int] = {}
        found = []
        for line in self.between(begin, end):
            member_id = line.member_id
            if member_id is None or member_id in known:
                continue
            if line.what in {"joining", "joined"}:
                joined.setdefault(member_id, line.at)
            elif line.what in {"left", "failed"} and member_id in joined:
                is_crash = line.what == "failed"
                found.append(PassingMember(member_id, joined.pop(member_id), line.at, is_crash))
        return found

    def between(self, begin: int, end: int) -> Sequence[LogLine]:
        first = bisect_left(self._times, begin - LOG_TIME_SLACK)
        return self._lines[first : bisect_right(self._times, end + LOG_TIME_SLACK)]

    def find_start(self, before: Generation, after: Generation) -> LogLine | None:
        """Returns the first call to join a round."""
        for line in self.between(before.at, after.at):
            if (
                line.what == "preparing"
                and line.generation is not None
                and before.generation
                <= line.generation
                < max(after.generation, before.generation + 1)
            ):
                return line
        return None

    def find_last_start(self, number: int, below: int, until: int) -> LogLine | None:
        """Returns the last call to join before a time that names a generation in this range."""
        for line in reversed(self.between(until - MAX_SESSION_TIMEOUT, until)):
            is_call = line.what == "preparing" and line.generation is not None
            if is_call and number <= (line.generation or 0) < max(below, number + 1):
                return line
        return None

    def find_return(self, member_id: str, until: int) -> int | None:
        """Returns when a static member returned under another member id within its session."""
        at = self._returns.get(member_id)
        return at if at is not None and at <= until + LOG_TIME_SLACK else None

    def find_departure(self, member_id: str, begin: int, end: int) -> LogLine | None:
        """Returns the line about a member that left, was removed, or did not join in time."""
        found = None
        for line in self.between(begin, end):
            if line.what == "dropped" and member_id in (line.reason or ""):
                return line
            if line.member_id != member_id:
                continue
            if line.what in {"left", "failed", "fenced", "absent"}:
                return line
            if line.what == "preparing" and line.reason and found is None:
                is_removal = "heartbeat expiration" in line.reason or "LeaveGroup" in line.reason
                found = line if is_removal else None
        return found


def usual_heartbeat_interval(member: GenerationMember) -> int:
    session = member.session_timeout or DEFAULT_SESSION_TIMEOUT
    return max(int(min(HEARTBEAT_INTERVAL, session * MAX_HEARTBEAT_SHARE)), 1)


class HeartbeatWaits(NamedTuple):
    """The expected times until members learn of a rebalance, in milliseconds."""

    #: Until the last of the members learns of it.
    longest: int
    #: From the moment at which a member learns of it until the last one does, on average.
    mean_rest: int
    #: In a longer join phase the members that revoked their partitions wait for later ones.
    limit: int
    #: A longer join phase waits for a late or a dead member.
    longest_possible: int

    def mean_revoked_time(self, join_time: int) -> int:
        """Returns the mean time from a member's revocation until all members have joined."""
        return min(self.mean_rest + max(join_time - self.limit, 0), join_time)


class JoinTimes(NamedTuple):
    """When a join phase began, and when all had joined."""

    start: int
    joined: int


class JoinPhase(NamedTuple):
    """A join phase of the history, from the log; times are in milliseconds."""

    #: The time since the last rebalance ended.
    since_last: int
    time: int
    #: The number of members that learned of it by a heartbeat.
    members: int


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """The heartbeats of a group's members.

    They begin anew when a rebalance ends. Then each member's interval is longer by a constant of
    its own, so they drift apart.
    """

    interval: int = HEARTBEAT_INTERVAL
    #: The history shows the interval, and so when heartbeats are due.
    is_known: bool = False
    #: The largest time by which one is late.
    drift: int = HEARTBEAT_DRIFT

    @classmethod
    def from_joins(cls, joins: Sequence[JoinPhase], session: int) -> Heartbeats:
        """Finds the interval that explains the join phases of a history: they end at its multiples,
        and none of them is longer.
        """
        usual = max(int(min(HEARTBEAT_INTERVAL, session * MAX_HEARTBEAT_SHARE)), 1)
        usable = [one for one in joins if one.time < session and one.members][-ENOUGH_JOINS:]
        if not usable:
            return cls(usual)
        since_last, join_time, members = np.array(usable, dtype=np.float64).T
        most = min(session // 2, MAX_HEARTBEAT_INTERVAL)
        whole = range(HEARTBEAT_STEP, most + 1, HEARTBEAT_STEP)
        tried = np.array(sorted({*whole, max(session // 3, 1), usual}), dtype=np.float64)[:, None]
        number = np.round((since_last + join_time) / tried)
        late = since_last + join_time - number * tried
        slack = number * HEARTBEAT_DRIFT + HEARTBEAT_SLACK
        # the likelihood of each join time: the heartbeats are still near to each other, or spread
        fits = (late >= -CLOCK_SLACK) & (late <= slack) & (number > 0)
        near = np.where(fits & (join_time <= tried + slack), 1 / slack, 0)
        share = np.minimum(join_time / tried, 1)
        spread = np.where(
            join_time <= tried + HEARTBEAT_SLACK, members / tried * share ** (members - 1), 0
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
            # join phases that last longer than the usual interval
            longer = tried[best, 0] > usual and join_time.max() > usual + HEARTBEAT_SLACK
            is_better = longer and score[best] > score[tried[:, 0] == usual][0] + MIN_FIT
            return cls(int(tried[best, 0]) if is_better else usual)
        interval = int(tried[best, 0])
        return cls(interval, is_known=True, drift=_find_drift(interval, usable))

    @lru_cache(maxsize=4096)  # noqa: B019 (the value is small, and frozen)
    def expect_waits(self, members: int, since_last: int) -> HeartbeatWaits:
        """Returns how long members wait for the heartbeat that tells them of a rebalance.

        :param since_last: the time since the last rebalance ended
        """
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
        return HeartbeatWaits(round(longest), round(mean_rest), limit, limit)


def _find_drift(interval: int, joins: Iterable[JoinPhase]) -> int:
    """Returns the largest time by which a heartbeat is late."""
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


@dataclass(frozen=True, slots=True)
class GroupDowntime:
    """The downtime of a group, and the times of its rebalances and restarts by offset."""

    found: list[Downtime]
    events: Mapping[int, EventTimes] = field(default_factory=dict)
    heartbeats: Heartbeats = field(default_factory=Heartbeats)
    #: The end of the evidence.
    until: int | None = None
    #: Records per millisecond that arrive in each partition; empty: no log ends are known.
    arrival_rates: Mapping[TopicAndPartition, float] = field(default_factory=dict)

    def with_log_ends(
        self, ends: EndOffsets, numbers: Mapping[TopicAndPartition, int]
    ) -> GroupDowntime:
        """Returns the downtime with the records that it delayed.

        :param numbers: the number of each partition in ``ends``
        """
        by_number = ends.arrival_rates()
        rates = {pair: by_number[n] for pair, n in numbers.items() if n in by_number}
        found = count_delayed_records(self.found, ends, numbers)
        # the same downtime at the same times of the day delays as many records
        known = [one for one in found if one.delayed_records is not None]
        expected = sum(one.milliseconds * rates.get((one.topic, one.partition), 0) for one in known)
        delayed = sum(one.delayed_records or 0 for one in known)
        if expected and delayed:
            rates = {pair: rate * delayed / expected for pair, rate in rates.items()}
        return replace(self, found=found, arrival_rates=rates)


class ClassicDowntimeFinder:
    """Finds the downtime of a classic group."""

    def __init__(self, log: GroupLog, commits: CommitTimes, heartbeats: Heartbeats) -> None:
        self._log = log
        self._commits = commits
        self._heartbeats = heartbeats
        #: Partitions that nobody consumes at the moment.
        self._open: dict[TopicAndPartition, ConsumptionEnd] = {}
        self.found: list[Downtime] = []
        #: When the last downtime of each partition began at the earliest, and when it ended.
        self._closed: dict[TopicAndPartition, tuple[int, int]] = {}
        #: When each member joined its last rebalance, and when it was called to join it.
        self._joined: dict[str, int] = {}
        self._called: dict[str, int] = {}
        #: The last join phase of each member, if the log has it.
        self._phases: dict[str, JoinTimes] = {}
        #: When all members had closed.
        self._closed_at: list[int] = []
        #: For how long the last static member was away that returned within its session.
        self._restart_time = USUAL_RESTART_TIME
        #: When static members returned in a rebalance, by their new member id.
        self._returns: dict[str, int] = {}
        #: By the offset of the generation.
        self.events: dict[int, EventTimes] = {}

    def read_return(self, before: Generation, after: Generation) -> None:
        """Reads the return of a static member within its session."""
        old = {member_identity(member): member for member in before.members}
        ends = {}
        for member in after.members:
            gone = old.get(member_identity(member))
            if gone is not None and gone.member_id != member.member_id:
                end = ends[gone.member_id] = self._end_of_restart(gone, before, after.at)
                for pair in list_partitions(gone):
                    self._open.setdefault(pair, end)
                self._close(list_partitions(member), after, to_generation=None)
                self._joined[member.member_id] = after.at
        self.events[after.offset] = EventTimes(after.at, after.at, after.at, ends)

    def read_rebalance(self, rebalance: Rebalance, explanation: Explanation) -> None:
        before = rebalance.before
        gone: dict[str, ConsumptionEnd] = {}
        rounds = []
        for after in rebalance.rounds:
            if before is not None:
                phases = self.find_phases(before, after)
                has_hole = rebalance.unseen > 0 or after.sampled
                gone |= self._read_round(before, after, phases, explanation, has_hole=has_hole)
            else:
                phases = self._find_first_phases(rebalance, after)
            rounds.append(phases)
            self._assign(after, rebalance)
            started = phases.start.estimate
            self._called |= {member.member_id: started for member in after.members}
            if phases.is_stated and phases.assigned > phases.joined + 1:
                phase = JoinTimes(started, phases.joined)
                self._phases |= {member.member_id: phase for member in after.members}
            before = after
        first, self._returns, returns = rounds[0], {}, self._returns
        self.events[rebalance.after.offset] = EventTimes(
            first.start.estimate,
            first.joined,
            first.assigned,
            gone,
            tuple(one.joined - one.start.estimate for one in rounds[1:] if one.is_stated),
            returns | self._log.list_joins(rebalance.after.members),
            self._list_passing(rebalance),
        )

    def _list_passing(self, rebalance: Rebalance) -> list[PassingMember]:
        if rebalance.before is None:
            return []
        known = {one.member_id for one in rebalance.before.members}
        known |= {one.member_id for each in rebalance.rounds for one in each.members}
        found = self._log.list_passing(rebalance.before.at, rebalance.after.at, known)
        return [one for one in found if rebalance.before.at < one.gone <= rebalance.after.at]

    def _read_round(
        self,
        before: Generation,
        after: Generation,
        phases: RebalancePhases,
        explanation: Explanation,
        *,
        has_hole: bool,
    ) -> dict[str, ConsumptionEnd]:
        """Opens the downtime of partitions that lose their owner; returns the ends of members that
        are gone.

        :param has_hole: generations in between are unknown
        """
        gone = {}
        staying = {member_identity(member): member for member in after.members}
        called = len(staying.keys() & set(map(member_identity, before.members)))
        # ownership has the times of a consumer group
        is_classic = GroupType.CONSUMER not in (before.kind, after.kind)
        self._delay_revocations(after)
        for member in before.members:
            pairs = list_partitions(member)
            same = staying.get(member_identity(member))
            if same is None or same.member_id != member.member_id:
                back = None if same is None else self._find_return(member, before, after, phases)
                if back is None:
                    end = self.end_of_departure(member, before, after, phases, explanation)
                else:
                    end = self._end_of_restart(member, before, back)
                if same is not None:
                    end = end._replace(reason=DowntimeReason.RESTARTED)
                    self._returns[same.member_id] = phases.joined if back is None else back
                gone[member.member_id] = end
            elif not pairs:
                continue
            elif gave_up_everything(before, after, same):
                end = self._end_by_revocation(member, before, phases, called)
            else:
                kept = set(list_partitions(same))
                pairs = [pair for pair in pairs if pair not in kept]
                end = self._end_by_move(member, before, after, has_hole=has_hole)
            if is_classic:
                for pair in pairs:
                    self._open.setdefault(pair, end)
        return gone

    def _find_return(
        self,
        member: GenerationMember,
        before: Generation,
        after: Generation,
        phases: RebalancePhases,
    ) -> int | None:
        """Returns when a static member returned during a rebalance; None if its session had ended
        before.
        """
        since = self._joined.get(member.member_id, before.at)
        if self._log.find_departure(member.member_id, since, after.at) is not None:
            return None
        back = self._log.find_return(member.member_id, after.at)
        return phases.joined if back is None else min(back, phases.joined)

    def _end_by_move(
        self, member: GenerationMember, before: Generation, after: Generation, *, has_hole: bool
    ) -> ConsumptionEnd:
        """Returns when a round of a cooperative rebalance took partitions from a member. An unknown
        earlier round may have done so, but not before the member's last commit.
        """
        reason, evidence = DowntimeReason.MOVED, EvidenceType.INFERRED
        earliest = after.at
        if has_hole:
            evidence = EvidenceType.SAMPLED if after.sampled else EvidenceType.BOUNDED
            pairs = sample_partitions(member)
            commit = find_last_commit(self._commits, pairs, after.at, since=before.at)
            known = after.not_before if after.sampled else None
            earliest = max(known or before.at, commit or 0)
        time = TimeBounds.between(earliest, after.at, after.at + MAX_ASSIGNMENT_DELAY)
        return ConsumptionEnd(time, reason, member, evidence)

    def _delay_revocations(self, after: Generation) -> None:
        """Corrects revocations of a cooperative round that a member has missed: it still owned the
        partitions when it joined the next round.
        """
        for member in after.members:
            for topic, numbers in member.owned.items():
                for number in numbers:
                    end = self._open.get((topic, number))
                    if (
                        end is not None
                        and end.reason is DowntimeReason.MOVED
                        and end.member.member_id == member.member_id
                    ):
                        at = TimeBounds(after.at, after.at, after.at + MAX_ASSIGNMENT_DELAY)
                        self._open[topic, number] = end._replace(time=at)

    def _find_first_phases(self, rebalance: Rebalance, after: Generation) -> RebalancePhases:
        """Returns the phases of a rebalance of a group that was empty or unknown before."""
        joined, number = joined_time(after), rebalance.from_generation
        line = None
        if number is not None and not after.sampled:
            line = self._log.find_last_start(number, after.generation, joined)
        start = joined if line is None else min(line.at, joined)
        return RebalancePhases(TimeBounds.exactly(start), joined, after.at, line is not None)

    def find_phases(self, before: Generation, after: Generation) -> RebalancePhases:
        """Returns the phases of a round, stated by the log or estimated."""
        joined = joined_time(after)
        line = self._log.find_start(before, after)
        if line is not None and not after.sampled:
            start = TimeBounds.exactly(min(line.at, joined))
            caller = None if is_removal(line) else line.member_id
            return RebalancePhases(start, joined, after.at, is_stated=True, caller=caller)
        earliest = before.at
        if after.sampled and after.not_before is not None:
            earliest = after.not_before
        ids = {member.member_id for member in before.members}
        staying = sum(member.member_id in ids for member in after.members)
        interval = min(map(usual_heartbeat_interval, after.members), default=HEARTBEAT_INTERVAL)
        estimate = joined - interval * staying // (staying + 1)
        start = TimeBounds.between(min(earliest, joined), estimate, joined)
        return RebalancePhases(start, joined, after.at, is_stated=False)

    def _end_by_revocation(
        self, member: GenerationMember, before: Generation, phases: RebalancePhases, called: int
    ) -> ConsumptionEnd:
        """Returns when a member revoked its partitions to join an eager rebalance.

        A client with automatic commits commits at that moment. For others it is estimated.
        """
        joined = phases.joined
        commit = find_last_commit(self._commits, sample_partitions(member), joined, since=before.at)
        seen = before.at if commit is None else commit
        evidence = EvidenceType.STATED if phases.is_stated else EvidenceType.BOUNDED
        evidence = EvidenceType.SAMPLED if before.sampled else evidence
        start = phases.start.estimate if phases.is_stated else joined - HEARTBEAT_INTERVAL
        if phases.is_stated and member.member_id == phases.caller:
            # it revoked its partitions and then sent JoinGroup
            time = TimeBounds.between(min(seen, start), start, start)
        elif commit is not None and commit >= start:
            time = TimeBounds.between(commit - CLOCK_SLACK, commit, joined)
        else:
            earliest = max(seen, start) if phases.is_stated else seen
            if commit is None and joined - before.at < SHORT_GENERATION:
                earliest = min(earliest, self._unconfirmed_since(member, before))
            since_last = phases.start.estimate - joined_time(before)
            waits = self._heartbeats.expect_waits(called, since_last)
            at = joined - waits.mean_revoked_time(joined - start)
            time = TimeBounds.between(earliest - CLOCK_SLACK, at, joined)
        return ConsumptionEnd(time, DowntimeReason.REVOKED, member, evidence)

    def _unconfirmed_since(self, member: GenerationMember, before: Generation) -> int:
        """Returns since when a member may have been without its partitions, if it never received
        the assignment of a generation.
        """
        known = (self._closed[pair] for pair in list_partitions(member) if pair in self._closed)
        return min((since for since, at in known if at == before.at), default=before.at)

    def _is_close_commit(self, member: GenerationMember, since: int, until: int) -> bool:
        """Returns whether the last commit seems to be that of a closing client: it came before the
        next one of its rhythm was due. Without a rhythm a close is more likely than a crash.
        """
        gaps = recent_commit_gaps(self._commits, sample_partitions(member), until, since)
        if len(gaps) < 2:
            return True
        return bool(gaps[-1] < gaps[-5:-1].min() * CLOSE_COMMIT_SHARE)

    def _commits_automatically(self, generation: Generation, until: int) -> bool:
        """Returns whether a member commits in a steady rhythm: such clients commit on closing."""
        since = until - MAX_SESSION_TIMEOUT
        for member in generation.members:
            gaps = recent_commit_gaps(self._commits, sample_partitions(member), until, since)
            if len(gaps) >= MIN_COMMITS:
                short, long = np.quantile(gaps, (0.25, 0.75))
                if long <= short * STEADY_RHYTHM:
                    return True
        return False

    def _is_early(self, member: GenerationMember, since: int, until: int) -> bool:
        return is_last_commit_early(self._commits, sample_partitions(member), until, since)

    def end_of_departure(
        self,
        member: GenerationMember,
        before: Generation,
        after: Generation,
        phases: RebalancePhases,
        explanation: Explanation,
    ) -> ConsumptionEnd:
        """Returns when a member that is gone stopped consuming."""
        # the return of another static member shows nothing about this one
        since = self._joined.get(member.member_id, before.at)
        line = self._log.find_departure(member.member_id, since, after.at)
        if line is None:
            return self._infer_departure(member, since, after, phases, explanation)
        line = replace(line, at=min(line.at, phases.joined))  # the log's clock may be ahead
        if line.what == "failed" or "heartbeat expiration" in (line.reason or ""):
            return self._end_by_silence(
                member, since, TimeBounds.exactly(line.at), EvidenceType.STATED
            )
        left = TimeBounds(line.at - MAX_CLOSE_TIME, line.at, line.at)
        if line.what == "dropped":  # it did not poll to join within its max.poll.interval.ms
            is_unique = [one.client_id for one in before.members].count(member.client_id) == 1
            is_back = is_unique and self._log.has_joined_again(member, before.at, line.at)
            if is_back or _is_back(member, before, after):  # its process had crashed
                pairs, start = sample_partitions(member), phases.start.estimate
                seen = find_last_commit(self._commits, pairs, start, since=since) or since
                interval = usual_heartbeat_interval(member)
                time = TimeBounds.between(seen, seen + interval, max(seen, start))
                reason = DowntimeReason.SILENT
                return ConsumptionEnd(
                    time, reason, member, EvidenceType.BOUNDED, session_start=seen
                )
            at, last = TimeBounds.exactly(line.at), self._find_last_poll(member, since, left)
            return ConsumptionEnd(at, DowntimeReason.LEFT, member, EvidenceType.STATED, last)
        commit = find_last_commit(self._commits, sample_partitions(member), line.at, since=since)
        if member.group_instance_id is not None:  # an admin client may have removed it
            seen = since if commit is None else commit
            left = TimeBounds.between(seen, line.at, line.at)
        cause = explanation.cause
        is_late = "poll timeout" in (line.client_reason or "") or (
            cause is RebalanceCause.SLOW_POLL and not line.client_reason
        )
        last_poll = self._find_last_poll(member, since, left) if is_late else None
        if last_poll is not None:
            left = TimeBounds.exactly(line.at)
        return ConsumptionEnd(left, DowntimeReason.LEFT, member, EvidenceType.STATED, last_poll)

    def _find_last_poll(
        self, member: GenerationMember, since: int, left: TimeBounds
    ) -> TimeBounds | None:
        interval = member.rebalance_timeout
        if interval is None:
            return None
        last = left.estimate - interval
        # the client checks the time since its last poll with its heartbeats
        slack = usual_heartbeat_interval(member)
        since = min(since, self._called.get(member.member_id, since))  # it polled to join
        return TimeBounds.between(max(since, last - slack), max(last, since), max(last, since))

    def _find_missed_poll(
        self, member: GenerationMember, since: int, until: int
    ) -> TimeBounds | None:
        """Returns when a static member stopped its heartbeats because it polled too late: it made
        no commits since its last poll, although it committed regularly before.

        :param until: the time of its last heartbeat
        """
        poll = member.rebalance_timeout
        if member.group_instance_id is None or poll is None:
            return None
        pairs = sample_partitions(member)
        commit = find_last_commit(self._commits, pairs, until, since=since) or since
        gaps = recent_commit_gaps(self._commits, pairs, until, until - MAX_SESSION_TIMEOUT)
        rhythm = int(np.median(gaps)) if len(gaps) else poll
        latest = until + self._heartbeats.interval + HEARTBEAT_SLACK
        if rhythm >= poll or not poll <= latest - commit <= poll + 2 * rhythm + 2 * (
            latest - until
        ):
            return None
        # its last poll was between its last commit and the one that was due next
        at = commit + poll
        return TimeBounds.between(at, at + rhythm // 2, at + rhythm)

    def _find_poll_before_return(
        self, member: GenerationMember, since: int, back: int
    ) -> TimeBounds | None:
        """Returns when a static member stopped that returned within its session, if it polled too
        late: its session began after a commit was due that did not come.
        """
        session, poll = member.session_timeout or DEFAULT_SESSION_TIMEOUT, member.rebalance_timeout
        pairs = sample_partitions(member)
        commit = find_last_commit(self._commits, pairs, back, since=since)
        gaps = recent_commit_gaps(self._commits, pairs, back, back - MAX_SESSION_TIMEOUT)
        if poll is None or commit is None or len(gaps) < MIN_COMMITS:
            return None
        rhythm = int(np.median(gaps))
        begin = back - session
        if commit + 2 * rhythm + HEARTBEAT_SLACK > begin or commit + poll + rhythm < begin:
            return None
        at = max(commit + poll, begin)
        return TimeBounds.between(max(commit, begin), at + rhythm // 2, back)

    def _end_by_silence(
        self,
        member: GenerationMember,
        since: int,
        expired: TimeBounds,
        evidence: EvidenceType,
    ) -> ConsumptionEnd:
        """Returns the end of a member whose session expired: after its last heartbeat or commit,
        before the next heartbeat.
        """
        session = member.session_timeout or DEFAULT_SESSION_TIMEOUT
        interval = self._heartbeats.interval
        commit = find_last_commit(
            self._commits, sample_partitions(member), expired.latest, since=since
        )
        seen = max(expired.earliest - session, since, since if commit is None else commit)
        missed = self._find_missed_poll(member, since, expired.latest - session)
        start = max(expired.estimate - session, seen)
        called = self._phases.get(member.member_id)
        if called is not None and expired.earliest - session == called.joined:
            # no SyncGroup request came: it ended before all had joined
            began = max(called.start, self._log.joined_at(member.member_id))
            time = TimeBounds.between(began, (began + called.joined) // 2, called.joined)
            return ConsumptionEnd(
                time,
                DowntimeReason.SILENT,
                member,
                evidence,
                session_start=time.estimate,
            )
        end = ConsumptionEnd(
            TimeBounds.exactly(seen),
            DowntimeReason.SILENT,
            member,
            evidence,
            is_closed=True,
            session_start=start,
        )
        if missed is not None:
            first = max(seen, missed.earliest)
            last = max(min(seen + interval, missed.latest), first)
            time = TimeBounds.between(first, (first + last) // 2, expired.latest)
            return end._replace(time=time, last_poll=self._find_last_poll(member, since, time))
        if commit == seen and self._is_close_commit(member, since, expired.latest):
            return end._replace(time=TimeBounds.between(seen, seen, seen + MAX_CLOSE_TIME))
        latest = max(expired.latest - session + int(session * MAX_HEARTBEAT_SHARE), seen)
        # it was gone when the next heartbeat and the next commit were due
        due = self._find_next_commit(member, since, start)
        if self._heartbeats.is_known or due > start + session * MAX_HEARTBEAT_SHARE:
            due = min(due, start + interval)
        due = max(due, start)
        time = TimeBounds.between(seen, (start + due) // 2, min(latest, expired.latest))
        # a member without partitions does not commit: more members are closed than crash
        is_closed = member.group_instance_id is not None and not member.assigned
        return end._replace(time=time, is_closed=is_closed)

    def _find_next_commit(self, member: GenerationMember, since: int, last: int) -> int:
        """Returns when a member's next commit was due, if it committed regularly.

        :param last: its last sign of life
        """
        pairs = sample_partitions(member)
        commit = find_last_commit(self._commits, pairs, last + self._heartbeats.interval, since)
        gaps = recent_commit_gaps(self._commits, pairs, last + self._heartbeats.interval, since)
        if commit is None or len(gaps) < MIN_COMMITS or gaps.max() > 2 * gaps.min():
            return LATEST_TIME
        return commit + int(gaps.max()) + HEARTBEAT_SLACK

    def _infer_departure(
        self,
        member: GenerationMember,
        since: int,
        after: Generation,
        phases: RebalancePhases,
        explanation: Explanation,
    ) -> ConsumptionEnd:
        cause = explanation.cause
        is_certain = cause in {RebalanceCause.LEFT, RebalanceCause.SESSION_TIMEOUT}
        likely = cause if is_certain else explanation.likely
        is_static = member.group_instance_id is not None
        latest = phases.joined
        started = phases.start.estimate
        if not after.members:  # the last leave ends the generation at once
            started = latest = after.at
        commit = find_last_commit(self._commits, sample_partitions(member), latest, since=since)
        earliest = max(since if commit is None else commit, since)
        if after.sampled and after.not_before is not None:
            earliest = max(earliest, after.not_before)
        is_closed = is_static and commit is not None
        is_closed = is_closed and self._is_close_commit(member, since, latest)
        silent = likely is RebalanceCause.SESSION_TIMEOUT or (
            is_static and cause is not RebalanceCause.LEFT
        )
        session_start = None
        if silent and not is_closed:
            session = member.session_timeout or DEFAULT_SESSION_TIMEOUT
            session_start = max(started - session, earliest)
            estimate = started - session + usual_heartbeat_interval(member) // 2
        elif commit is not None and self._is_early(member, since, latest):
            estimate = commit
        else:
            estimate = started
        time = TimeBounds.between(earliest, estimate, latest)
        reason = DowntimeReason.SILENT if silent else DowntimeReason.LEFT
        evidence = EvidenceType.SAMPLED if after.sampled else EvidenceType.BOUNDED
        return ConsumptionEnd(
            time,
            reason,
            member,
            evidence,
            is_closed=is_closed and silent,
            session_start=session_start,
        )

    def _end_of_restart(
        self, member: GenerationMember, before: Generation, back: int
    ) -> ConsumptionEnd:
        """Returns when a static member stopped that came back within its session."""
        session = member.session_timeout or DEFAULT_SESSION_TIMEOUT
        since = self._joined.get(member.member_id, before.at)
        commit = find_last_commit(self._commits, sample_partitions(member), back, since=since)
        earliest = max(back - session, since if commit is None else commit)
        missed = self._find_poll_before_return(member, since, back)
        if missed is not None:
            evidence = EvidenceType.BOUNDED
            last_poll = self._find_last_poll(member, since, missed)
            reason = DowntimeReason.RESTARTED
            return ConsumptionEnd(missed, reason, member, evidence, last_poll, is_closed=True)
        # without commits, a usual restart; a client with automatic commits commits when it closes
        estimate = back - min(self._restart_time, session // 2)
        is_closed = True
        if commit is not None and commit >= back - session:
            estimate = commit
            is_closed = self._is_close_commit(member, since, back)
            if is_closed:
                self._restart_time = back - commit
        elif commit is None and member.assigned and self._commits_automatically(before, back):
            # it would have committed when it closed
            estimate, is_closed = earliest + min(back - earliest, AUTO_COMMIT_INTERVAL) // 2, False
        time = TimeBounds.between(earliest, estimate, back)
        evidence = EvidenceType.BOUNDED
        return ConsumptionEnd(time, DowntimeReason.RESTARTED, member, evidence, is_closed=is_closed)

    def _assign(self, after: Generation, rebalance: Rebalance) -> None:
        """Ends the downtime of partitions that have an owner again, or no subscriber any more."""
        self._joined |= {member.member_id: after.at for member in after.members}
        if after.kind is GroupType.CONSUMER:
            self._open.clear()
            return
        if not after.members:
            self._empty(after)
            return
        topics = {topic for member in after.members for topic in member.topics}
        assigned = [pair for member in after.members for pair in list_partitions(member)]
        known = {topic for topic, _ in assigned}
        self._close(assigned, after, to_generation=rebalance.after.generation)
        is_eager = after.strategy in EAGER_STRATEGIES
        for pair in list(self._open):
            gone = pair[0] not in topics and pair[0] not in known
            if gone or is_eager or pair[0] in rebalance.absent:
                del self._open[pair]

    def _empty(self, after: Generation) -> None:
        """Begins the time in which the group has no members."""
        waiting, self._open = self._open, {}
        self._add(waiting, TimeBounds.exactly(after.at), after, after.generation)
        evidence = EvidenceType.SAMPLED if after.sampled else EvidenceType.INFERRED
        at = TimeBounds.exactly(after.at)
        is_closed = all(
            end.reason is not DowntimeReason.SILENT and end.last_poll is None
            for end in waiting.values()
        )
        if is_closed:
            self._closed_at.append(after.at)
        for pair, end in waiting.items():
            self._open[pair] = ConsumptionEnd(
                at, DowntimeReason.EMPTY, end.member, evidence, is_closed=is_closed
            )

    def _close(
        self,
        pairs: Iterable[TopicAndPartition],
        after: Generation,
        *,
        to_generation: int | None,
    ) -> None:
        """Ends the downtime of partitions."""
        ended = {pair: self._open.pop(pair) for pair in pairs if pair in self._open}
        gained = TimeBounds(after.at, after.at, after.at + MAX_ASSIGNMENT_DELAY)
        if after.sampled:
            gained = TimeBounds(after.not_before or after.at, after.at, after.at)
        self._add(ended, gained, after, to_generation)
        self._closed |= {pair: (end.time.earliest, after.at) for pair, end in ended.items()}

    def _add(
        self,
        ends: Mapping[TopicAndPartition, ConsumptionEnd],
        gained: TimeBounds,
        after: Generation,
        to_generation: int | None,
        *,
        ended: bool = True,
    ) -> None:
        spans: dict[int, list[DowntimeSpan]] = {}
        for pair, end in ends.items():
            found = spans.get(id(end))
            if found is None:
                found = list_spans(end, gained, after.incarnation, to_generation, ended=ended)
                spans[id(end)] = found
            since = self._closed[pair][1] if pair in self._closed else 0
            self.found += [
                span.after(since).of_partition(after.group, pair)
                for span in found
                if span.until >= since
            ]

    def exclude_schedule(self) -> list[Downtime]:
        """Returns the downtime that was found. A group that is empty again and again for about the
        same time is a scheduled job: it was shut down in that time.
        """
        times = {one.since: one.until for one in self.found if one.reason is DowntimeReason.EMPTY}
        lengths = [times[at] - at for at in self._closed_at if at in times]
        if len(lengths) < MIN_RUNS or max(lengths) > SCHEDULE_TOLERANCE * min(lengths):
            return self.found
        absences = set(self._closed_at)
        return [
            replace(one, reason=DowntimeReason.SHUT_DOWN)
            if one.reason is DowntimeReason.EMPTY and one.since in absences
            else one
            for one in self.found
        ]

    def end(self, last: Generation | None, until: int) -> None:
        """Adds the downtime that has not ended, of a group that was deleted or at the end."""
        waiting, self._open = self._open, {}
        if waiting:
            assert last is not None
            self._add(waiting, TimeBounds.exactly(until), last, None, ended=False)


class DowntimeSpan(NamedTuple):
    """A downtime that several partitions of one member have."""

    since: int
    until: int
    reason: DowntimeReason
    member_id: str
    evidence: EvidenceType
    at_least: int
    at_most: int
    incarnation: int
    to_generation: int | None
    ended: bool

    def after(self, since: int) -> DowntimeSpan:
        """Returns the part after a time: until then the partition had another owner."""
        if self.since >= since:
            return self
        length = self.until - since
        return self._replace(since=since, at_least=min(self.at_least, length))

    def of_partition(self, group: str, pair: TopicAndPartition) -> Downtime:
        return Downtime(
            group=group,
            topic=pair[0],
            partition=pair[1],
            since=self.since,
            until=self.until,
            ended=self.ended,
            reason=self.reason,
            member_id=self.member_id,
            evidence=self.evidence,
            at_least_ms=self.at_least,
            at_most_ms=self.at_most,
            incarnation=self.incarnation,
            to_generation=self.to_generation,
        )


def list_spans(
    end: ConsumptionEnd,
    gained: TimeBounds,
    incarnation: int,
    to_generation: int | None,
    *,
    ended: bool = True,
) -> list[DowntimeSpan]:
    """Returns the downtime between the end of a consumption and the next one. The time since the
    last poll comes first.
    """
    times = [(end.time, gained, end.reason)]
    if end.last_poll is not None:
        times.insert(0, (end.last_poll, end.time, DowntimeReason.NOT_POLLED))
    spans = []
    for begin, stop, reason in times:
        since, until = begin.estimate, max(stop.estimate, begin.estimate)
        is_long = not ended or until - since > MAX_SESSION_TIMEOUT
        if reason is DowntimeReason.EMPTY and end.is_closed and is_long:
            reason = DowntimeReason.SHUT_DOWN  # noqa: PLW2901
        at_most = max(stop.latest - begin.earliest, until - since)
        at_least = min(max(stop.earliest - begin.latest, 0), until - since)
        if at_most:
            spans.append(
                DowntimeSpan(
                    since,
                    until,
                    reason,
                    end.member.member_id,
                    end.evidence,
                    at_least,
                    at_most,
                    incarnation,
                    to_generation,
                    ended,
                )
            )
    return spans


def sample_partitions(member: GenerationMember) -> PartitionsByTopic:
    """Returns some of a member's partitions: a member commits all of them at the same time."""
    size = sum(map(len, member.assigned.values()))
    if size <= ENOUGH_PARTITIONS:
        return member.assigned
    step = -(-size // ENOUGH_PARTITIONS)
    return {topic: numbers[::step] for topic, numbers in member.assigned.items()}


def list_partitions(member: GenerationMember) -> list[TopicAndPartition]:
    return [(topic, number) for topic, numbers in member.assigned.items() for number in numbers]


def is_removal(line: LogLine) -> bool:
    """Returns whether a call to join names a member that left, was removed, or is new."""
    reason = line.reason or ""
    return not reason.lower().startswith(("updating metadata", "leader "))


def joined_time(generation: Generation) -> int:
    """Returns when all members had joined, or the last one had left."""
    if generation.change is GenerationChange.EMPTIED or generation.state_at is None:
        return generation.at
    return min(generation.state_at, generation.at)


class ConsumerDowntimeFinder:
    """Finds the downtime of a consumer group (KIP-848): the time between the owners of a partition.

    The journal has each member's current assignment, so both ends are records.
    """

    def __init__(
        self,
        generations: Sequence[Generation],
        rebalances: Sequence[tuple[Rebalance, Explanation]],
        log: GroupLog,
        commits: CommitTimes,
    ) -> None:
        self._generations = generations
        self._times = [one.at for one in generations]
        epochs = (one.after for one, _ in rebalances if one.after.kind is GroupType.CONSUMER)
        #: The time and the number of each epoch.
        self._epochs = sorted((one.at, one.generation) for one in epochs)
        self._log = log
        self._commits = commits

    def find(self, ownership: Iterable[PartitionOwnership], until: int) -> Iterator[Downtime]:
        """:param until: the end of the evidence"""
        by_partition: defaultdict[TopicAndPartition, list[PartitionOwnership]] = defaultdict(list)
        for owned in ownership:
            by_partition[owned.topic, owned.partition].append(owned)
        for pair, spans in sorted(by_partition.items()):
            spans.sort(key=attrgetter("since"))
            last = spans[0]
            for following in spans[1:]:
                if last.until is not None and following.since > last.until:
                    yield from self._between(pair, last, following)
                if last.until is not None and (
                    following.until is None or following.until > last.until
                ):
                    last = following
            if last.until is not None:
                yield from self._unended(pair, last, until)

    def _unended(
        self, pair: TopicAndPartition, old: PartitionOwnership, until: int
    ) -> Iterator[Downtime]:
        """Returns the downtime of a partition that has no owner at the end."""
        assert old.until is not None
        first = bisect_left(self._times, old.until)
        during = self._generations[max(first - 1, 0) :]
        if not self._is_downtime(pair, during):
            return
        after = during[-1]
        if after.kind is not GroupType.CONSUMER or after.incarnation != during[0].incarnation:
            return
        end = self._end_of(old, None, during)
        emptied = [one.at for one in during if one.change is GenerationChange.EMPTIED]
        if emptied:
            at = TimeBounds.exactly(max(emptied[-1], old.until))
            yield from _list_downtime(pair, end, at, after, None)
            is_closed = end.reason is not DowntimeReason.SILENT and end.last_poll is None
            end = ConsumptionEnd(
                at,
                DowntimeReason.EMPTY,
                end.member,
                EvidenceType.INFERRED,
                is_closed=is_closed,
            )
        yield from _list_downtime(pair, end, TimeBounds.exactly(until), after, None, ended=False)

    def _is_downtime(self, pair: TopicAndPartition, during: Sequence[Generation]) -> bool:
        """Returns whether the group was a consumer group, existed and subscribed to the topic."""
        return any(one.kind is GroupType.CONSUMER for one in during) and not any(
            one.change is GenerationChange.DELETED
            or (one.members and pair[0] not in subscribed_topics(one))
            for one in during
        )

    def _between(
        self, pair: TopicAndPartition, old: PartitionOwnership, new: PartitionOwnership
    ) -> Iterator[Downtime]:
        assert old.until is not None
        first, last = bisect_left(self._times, old.until), bisect_right(self._times, new.since)
        during = self._generations[max(first - 1, 0) : last]
        if not self._is_downtime(pair, during):
            return
        after = during[-1]
        end = self._end_of(old, new, during)
        gained = TimeBounds(new.since, new.since, new.since + MAX_ASSIGNMENT_DELAY)
        number = self._rebalance_until(new)
        emptied = [
            one
            for one in during
            if one.change is GenerationChange.EMPTIED and old.until <= one.at <= new.since
        ]
        if emptied:
            at = TimeBounds.exactly(emptied[0].at)
            if emptied[0].kind is GroupType.CONSUMER:  # ClassicDowntimeFinder has it otherwise
                yield from _list_downtime(pair, end, at, after, number)
            is_closed = end.reason is not DowntimeReason.SILENT and end.last_poll is None
            end = ConsumptionEnd(
                at,
                DowntimeReason.EMPTY,
                end.member,
                EvidenceType.INFERRED,
                is_closed=is_closed,
            )
        yield from _list_downtime(pair, end, gained, after, number)

    def _rebalance_until(self, new: PartitionOwnership) -> int | None:
        """Returns the last epoch that the new owner may have reached."""
        last = bisect_right(self._epochs, new.since, key=itemgetter(0)) - 1
        return None if last < 0 else self._epochs[last][1]

    def _end_of(
        self, old: PartitionOwnership, new: PartitionOwnership | None, during: Sequence[Generation]
    ) -> ConsumptionEnd:
        assert old.until is not None
        known = (one for gen in during for one in gen.members if one.member_id == old.member_id)
        member = next(known, None) or GenerationMember(
            member_id=old.member_id, group_instance_id=old.group_instance_id
        )
        pair = {old.topic: (old.partition,)}
        commit = find_last_commit(self._commits, pair, old.until, since=old.since)
        seen = old.since if commit is None else commit
        remains = any(one.member_id == old.member_id for one in during[-1].members)
        if remains and (new is None or old.member_id != new.member_id):
            began = max((one.state_at or one.at for one in during[:1]), default=old.until)
            time = TimeBounds.between(max(min(began, old.until), seen), old.until, old.until)
            return ConsumptionEnd(time, DowntimeReason.MOVED, member, EvidenceType.INFERRED)
        is_static = old.group_instance_id is not None
        if is_static and new is not None and old.group_instance_id == new.group_instance_id:
            time = TimeBounds.between(max(seen, old.until - MAX_CLOSE_TIME), old.until, old.until)
            reason = DowntimeReason.RESTARTED
            return ConsumptionEnd(time, reason, member, EvidenceType.INFERRED)
        line = self._log.find_departure(old.member_id, old.since, old.until)
        session = member.session_timeout or DEFAULT_SESSION_TIMEOUT
        if line is not None and line.what == "left":
            time = TimeBounds.between(max(seen, old.until - MAX_CLOSE_TIME), old.until, old.until)
            return ConsumptionEnd(time, DowntimeReason.LEFT, member, EvidenceType.STATED)
        if line is not None:
            time = TimeBounds.between(seen, max(seen, old.until - session), old.until)
            return ConsumptionEnd(time, DowntimeReason.SILENT, member, EvidenceType.BOUNDED)
        if self._stopped_committing(pair, old):
            time = TimeBounds.between(seen, max(seen, old.until - session), old.until)
            return ConsumptionEnd(time, DowntimeReason.SILENT, member, EvidenceType.BOUNDED)
        time = TimeBounds.between(seen, old.until, old.until)
        return ConsumptionEnd(time, DowntimeReason.LEFT, member, EvidenceType.BOUNDED)

    def _stopped_committing(self, pair: PartitionsByTopic, old: PartitionOwnership) -> bool:
        """Returns whether an owner had missed several of its regular commits when it lost the
        partition: one that leaves commits until then.
        """
        assert old.until is not None
        commit = find_last_commit(self._commits, pair, old.until, since=old.since)
        gaps = recent_commit_gaps(self._commits, pair, old.until, old.since)
        if commit is None or len(gaps) < MIN_COMMITS:
            return False
        return bool(old.until - commit > MISSED_COMMITS * gaps.max())


def _list_downtime(  # noqa: PLR0913 (one caller class)
    pair: TopicAndPartition,
    end: ConsumptionEnd,
    gained: TimeBounds,
    after: Generation,
    to_generation: int | None,
    *,
    ended: bool = True,
) -> list[Downtime]:
    spans = list_spans(end, gained, after.incarnation, to_generation, ended=ended)
    return [span.of_partition(after.group, pair) for span in spans]


def _is_back(member: GenerationMember, before: Generation, after: Generation) -> bool:
    """Returns whether a new member has the client id and the host of one that is gone."""
    known = {one.member_id for one in before.members}
    return any(
        (one.client_id, one.client_host) == (member.client_id, member.client_host)
        for one in after.members
        if one.member_id not in known
    )


def subscribed_topics(generation: Generation) -> set[str]:
    return {topic for one in generation.members for topic in (*one.topics, *one.assigned)}


def shortest_session(generations: Iterable[Generation]) -> int:
    sessions = (one.session_timeout for each in generations for one in each.members)
    return min((one for one in sessions if one), default=DEFAULT_SESSION_TIMEOUT)


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
    generations: Sequence[Generation], lines: Sequence[LogLine], commits: CommitTimes
) -> Iterator[JoinPhase]:
    """Yields the last heartbeats of members whose sessions ended, as join phases without a wait. A
    heartbeat comes a whole number of intervals after the member's last rebalance.
    """
    times = [one.at for one in generations]
    first_at: dict[str, int] = {}
    for generation in generations:
        for member in generation.members:
            first_at.setdefault(member.member_id, generation.at)
    for line in lines:
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
        commit = find_last_commit(commits, sample_partitions(failed), heartbeat + CLOCK_SLACK)
        if since < heartbeat - CLOCK_SLACK and (commit is None or commit < heartbeat - CLOCK_SLACK):
            yield JoinPhase(heartbeat - since, 0, 1)


def correct_log_clock(
    lines: Sequence[LogLine], generations: Sequence[Generation]
) -> Sequence[LogLine]:
    """Returns the lines with times of the journal's clock. The line that a group has stabilized has
    the same time as the state in its entry. Lines whose clock is not constant are left out.
    """
    stable = [one for one in lines if one.what == "stabilized" and one.generation is not None]
    times: dict[int, list[int]] = {}
    for generation in generations:
        if generation.state_at is not None and generation.change is GenerationChange.REBALANCED:
            times.setdefault(generation.generation, []).append(generation.state_at)
    # the numbers of another incarnation begin again
    offsets = np.array(
        [
            min((one.at - at for at in times[one.generation]), key=abs)
            for one in stable
            if one.generation in times
        ],
        dtype=np.int64,
    )
    if not len(offsets):
        return lines
    offset = int(np.median(offsets))
    if np.median(np.abs(offsets - offset)) > LOG_CLOCK_SCATTER:
        return ()
    if abs(offset) <= CLOCK_SLACK:
        return lines
    return [replace(one, at=one.at - offset) for one in lines]


def find_downtime(  # noqa: PLR0913 (evidence of six kinds)
    generations: Sequence[Generation],
    rebalances: Sequence[Rebalance],
    explanations: Sequence[Explanation],
    *,
    commits: CommitTimes,
    until: int,
    lines: Sequence[LogLine] = (),
    ownership: Iterable[PartitionOwnership] = (),
) -> GroupDowntime:
    """Returns the downtime of a group, by partition and time.

    :param explanations: one for each rebalance
    :param commits: of the group
    :param until: the end of the evidence
    :param lines: the log lines about the group, by time
    :param ownership: only needed of consumer groups
    """
    lines = correct_log_clock(lines, generations)
    log = GroupLog(lines)
    joins = [*_list_joins(rebalances, log), *_list_expiries(generations, lines, commits)]
    heartbeats = Heartbeats.from_joins(joins, shortest_session(generations))
    explained = {
        (one.after.incarnation, one.after.offset): (one, why)
        for one, why in zip(rebalances, explanations, strict=True)
    }
    finder = ClassicDowntimeFinder(log, commits, heartbeats)
    last: Generation | None = None
    for generation in generations:
        if last is not None and generation.change is GenerationChange.DELETED:
            finder.end(last, generation.at)
        pair = explained.get((generation.incarnation, generation.offset))
        if pair is not None:
            finder.read_rebalance(*pair)
        elif generation.change is GenerationChange.REPLACED and last is not None:
            finder.read_return(last, generation)
        last = generation
    finder.end(last, until)
    found = finder.exclude_schedule()
    if any(one.kind is GroupType.CONSUMER for one in generations):
        others = ConsumerDowntimeFinder(generations, list(explained.values()), log, commits)
        found += others.find(ownership, until)
    found.sort(key=attrgetter("topic", "partition", "since"))
    return GroupDowntime(found, finder.events, heartbeats, until)


def count_delayed_records(
    found: Sequence[Downtime], ends: EndOffsets, numbers: Mapping[TopicAndPartition, int]
) -> list[Downtime]:
    """Returns the downtime with the records that arrived during it, and the longest time that one
    of them waited because of it, where the log ends are known.

    :param numbers: the number of each partition in ``ends``
    """
    rows = [row for row, one in enumerate(found) if (one.topic, one.partition) in numbers]
    partition = np.array(
        [numbers[found[row].topic, found[row].partition] for row in rows], dtype=np.int64
    )
    begin, end = (
        ends.at_times(
            partition, np.array([getattr(found[row], name) for row in rows], dtype=np.int64)
        )
        for name in ("since", "until")
    )
    known = begin.known & end.known & (end.sample >= 0)
    # what arrived after the last sample is unknown
    since = np.array([found[row].since for row in rows], dtype=np.int64)
    known[known] &= ends.last_at()[begin.sample[known]] > since[known]
    known[known] &= ends.run[begin.sample[known]] == ends.run[end.sample[known]]
    arrived = np.maximum(end.end - begin.end, 0)
    first_at = ends.passed_at(np.where(known, begin.sample, -1), begin.end)
    result = list(found)
    for place, row in enumerate(rows):
        if not known[place]:
            continue
        one, count = found[row], int(arrived[place])
        first = first_at[place]
        waited = one.milliseconds if np.isnan(first) else one.until - int(first)
        added = min(max(waited, 0), one.milliseconds) if count else 0
        result[row] = replace(one, delayed_records=count, added_lag_ms=added)
    return result
