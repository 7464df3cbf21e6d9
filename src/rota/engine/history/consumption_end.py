"""When a member stopped consuming its partitions, and why.

The journal shows that a member is gone or joined a rebalance. The broker's log states when it
stopped consuming; otherwise its commits and its timeouts limit that time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from rota.engine.history.causes import LATEST_TIME
from rota.engine.history.client_settings import NO_POLL_LIMIT_LIBRARIES
from rota.engine.history.facts import (
    DEFAULT_SESSION_TIMEOUT,
    HEARTBEAT_INTERVAL,
    MAX_SESSION_TIMEOUT,
    DowntimeReason,
    EvidenceType,
    Explanation,
    Generation,
    GenerationMember,
    Rebalance,
    RebalanceCause,
)
from rota.engine.history.group_evidence import (
    CLOCK_SLACK,
    GroupLog,
    MemberCommits,
    is_expiry,
    is_removal,
)
from rota.engine.history.heartbeats import (
    HEARTBEAT_SLACK,
    MAX_HEARTBEAT_SHARE,
    Heartbeats,
    joined_time,
    usual_heartbeat_interval,
)
from rota.engine.history.rebalances import EAGER_STRATEGIES

MAX_ASSIGNMENT_DELAY = 500  # most time from an assignment's record to its use (recorded: 406 ms)
MAX_CLOSE_TIME = 250  # most time from a closing client's last read to LeaveGroup (recorded: 66)
CLOSE_COMMIT_SHARE = 0.995  # a last gap below this share breaks the rhythm of auto commits
USUAL_RESTART_TIME = 10_000  # used for a restart if nothing is known of it, or of an earlier one
MAX_RESTART_GAP = 60_000  # members of one deploy return within this time of each other
AUTO_COMMIT_INTERVAL = 5_000
MIN_COMMITS = 3  # the least number of gaps between commits that show a rhythm
MISSED_COMMITS = 3  # a member that missed so many commits crashed, hung, or closed (static)
STEADY_RHYTHM = 1.05  # longer gaps between automatic commits to shorter ones (quartiles)
LATE_POLL_SHARE = 1.25  # most time between late polls, as a multiple of the poll interval
SHORT_GENERATION = 10_000  # a member called again so soon may never get its assignment

TopicAndPartition: TypeAlias = tuple[str, int]


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
        latest = max(earliest, latest)
        return cls(earliest, min(max(estimate, earliest), latest), latest)


class ConsumptionEnd(NamedTuple):
    time: TimeBounds
    reason: DowntimeReason
    member: GenerationMember
    evidence: EvidenceType
    last_poll: TimeBounds | None = None  # the time of its last poll, if it polled too late
    is_closed: bool = False  # the last commit of a static member shows that it was closed
    is_guess: bool = False  # nothing shows whether a static member was closed or crashed
    session_start: int | None = None  # the last sign of life of a member whose session expired

    @property
    def is_leave(self) -> bool:
        """Whether the member was closed, and left neither by a crash nor because of a slow poll."""
        has_left = self.reason is not DowntimeReason.SILENT
        has_closed = self.is_closed and not self.is_guess  # a static member
        return (has_left or has_closed) and self.last_poll is None

    def has_polled_since(self, at: int) -> bool:
        """Whether the member polled after it got a partition."""
        return self.last_poll is None or self.last_poll.latest + HEARTBEAT_SLACK >= at

    def of_empty_group(self, at: int) -> ConsumptionEnd:
        """Returns the end for the time from the moment at which the last member was gone."""
        return ConsumptionEnd(
            TimeBounds.exactly(at),
            DowntimeReason.EMPTY,
            self.member,
            EvidenceType.INFERRED,
        )


@dataclass(frozen=True, slots=True)
class RebalancePhases:
    start: TimeBounds
    joined: int
    assigned: int
    is_stated: bool  # the broker's log has the start
    caller: str | None = None  # its JoinGroup started the rebalance: it revoked before


class ConsumptionEndFinder:
    def __init__(self, log: GroupLog, commits: MemberCommits, heartbeats: Heartbeats) -> None:
        self._log = log
        self._commits = commits
        self._heartbeats = heartbeats
        #: When each member joined its last rebalance, and when it was called to join it.
        self._joined: dict[str, int] = {}
        self._called: dict[str, int] = {}
        #: The last join phase of each member, if the log has it.
        self._phases: dict[str, RebalancePhases] = {}
        #: When the last downtime of each partition began at the earliest, and when it ended.
        self._regained: dict[TopicAndPartition, tuple[int, int]] = {}
        #: How long the last static member was away that returned in its session, and when it did.
        self._restart_time = USUAL_RESTART_TIME
        self._restarted_at = 0
        #: Static members that a rebalance waited for as long as it may, with their assignment
        #: before it, and when they joined the rebalance before it.
        self._awaited: dict[str, tuple[GenerationMember, int]] = {}

    def read_return(self, member: GenerationMember, at: int) -> None:
        self._joined[member.member_id] = at

    def read_round(
        self, before: Generation | None, after: Generation, phases: RebalancePhases
    ) -> None:
        joined = [member.member_id for member in after.members]
        waited = phases.joined - phases.start.estimate if phases.is_stated else 0
        timeouts = (member.rebalance_timeout or 0 for member in after.members)
        self._awaited = {}
        longest = max(timeouts, default=0)
        if before is not None and longest and waited >= longest - CLOCK_SLACK:
            self._awaited = {
                member.member_id: (member, self._joined.get(member.member_id, before.at))
                for member in before.members
                if member.group_instance_id is not None
            }
        self._joined |= dict.fromkeys(joined, after.at)
        self._called |= dict.fromkeys(joined, phases.start.estimate)
        if phases.is_stated and phases.assigned > phases.joined + 1:
            self._phases |= dict.fromkeys(joined, phases)

    def read_regained(self, ended: Mapping[TopicAndPartition, ConsumptionEnd], at: int) -> None:
        for pair, end in ended.items():  # the journal's clock may go back
            self._regained[pair] = (end.time.earliest, max(at, self.regained_at(pair)))

    def regained_at(self, pair: TopicAndPartition) -> int:
        """Returns when the last downtime of a partition ended, 0 if it never had one."""
        return self._regained.get(pair, (0, 0))[1]

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

    def find_first_phases(self, rebalance: Rebalance, after: Generation) -> RebalancePhases:
        """Returns the phases of a rebalance of a group that was empty or unknown before."""
        joined, number = joined_time(after), rebalance.from_generation
        line = None
        if number is not None and not after.sampled:
            line = self._log.find_last_start(number, after.generation, joined)
        start = joined if line is None else min(line.at, joined)
        return RebalancePhases(TimeBounds.exactly(start), joined, after.at, line is not None)

    def find_running_phases(self, last: Generation, until: int) -> RebalancePhases | None:
        """Returns the phases of a rebalance that runs at the end; None if the log has none."""
        line = self._log.find_last_start(last.generation, last.generation + 1, until)
        if line is None or line.at <= last.at or line.at >= until:
            return None
        start = TimeBounds.exactly(line.at)
        return RebalancePhases(start, until, until, is_stated=True, caller=line.member_id)

    def end_in_running_rebalance(
        self, member: GenerationMember, last: Generation, phases: RebalancePhases, until: int
    ) -> ConsumptionEnd | None:
        """Returns how a rebalance that runs at the end ended a consumption; None if it did not."""
        line = self._log.find_departure(member.member_id, last.at, until)
        if line is not None and is_expiry(line):
            since = self._joined.get(member.member_id, last.at)
            expired = TimeBounds.exactly(line.at)
            return self._end_by_silence(member, since, expired, EvidenceType.STATED)
        if line is not None:
            left = TimeBounds.between(line.at - MAX_CLOSE_TIME, line.at, line.at)
            return ConsumptionEnd(left, DowntimeReason.LEFT, member, EvidenceType.STATED)
        if last.strategy not in EAGER_STRATEGIES:
            return None
        return self.end_by_revocation(member, last, phases, len(last.members))

    def end_by_move(
        self, member: GenerationMember, before: Generation, after: Generation, *, has_hole: bool
    ) -> ConsumptionEnd:
        """Returns when a round of a cooperative rebalance took partitions from a member. An unknown
        earlier round may have done so, but not before the member's last commit.
        """
        reason, evidence = DowntimeReason.MOVED, EvidenceType.INFERRED
        earliest = after.at
        if has_hole:
            evidence = EvidenceType.SAMPLED if after.sampled else EvidenceType.BOUNDED
            commit = self._commits.find_last(member, after.at, before.at)
            known = after.not_before if after.sampled else None
            earliest = max(known or before.at, commit or 0)
        time = TimeBounds.between(earliest, after.at, after.at + MAX_ASSIGNMENT_DELAY)
        return ConsumptionEnd(time, reason, member, evidence)

    def end_by_revocation(
        self, member: GenerationMember, before: Generation, phases: RebalancePhases, called: int
    ) -> ConsumptionEnd:
        """Returns when a member revoked its partitions to join an eager rebalance: at its commit,
        if it commits automatically; otherwise the time is estimated.
        """
        joined = phases.joined
        commit = self._commits.find_last(member, joined, before.at)
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
            at = max(joined - waits.mean_revoked_time(joined - start), min(before.at, joined))
            time = TimeBounds.between(earliest - CLOCK_SLACK, at, joined)
        return ConsumptionEnd(time, DowntimeReason.REVOKED, member, evidence)

    def _unconfirmed_since(self, member: GenerationMember, before: Generation) -> int:
        """Returns since when a member may lack partitions, if it never received an assignment."""
        known = (self._regained[pair] for pair in list_partitions(member) if pair in self._regained)
        return min((since for since, at in known if at == before.at), default=before.at)

    def _is_close_commit(self, member: GenerationMember, since: int, until: int) -> bool:
        """Returns whether the last commit came before the next one of its rhythm was due, as on a
        close. Without a rhythm a close is more likely than a crash.
        """
        gaps = self._commits.list_gaps(member, until, since)
        if len(gaps) < 2:
            return True
        return bool(gaps[-1] < gaps[-5:-1].min() * CLOSE_COMMIT_SHARE)

    def _commits_automatically(self, generation: Generation, until: int) -> bool:
        """Returns whether a member commits in a steady rhythm: such clients commit on closing."""
        since = until - MAX_SESSION_TIMEOUT
        for member in generation.members:
            gaps = self._commits.list_gaps(member, until, since)
            if len(gaps) >= MIN_COMMITS:
                short, long = np.quantile(gaps, (0.25, 0.75))
                if long <= short * STEADY_RHYTHM:
                    return True
        return False

    def end_of_departure(
        self,
        member: GenerationMember,
        before: Generation,
        after: Generation,
        phases: RebalancePhases,
        explanation: Explanation,
    ) -> ConsumptionEnd:
        # the return of another static member shows nothing about this one
        since = self._joined.get(member.member_id, before.at)
        line = self._log.find_departure(member.member_id, since, after.at)
        if line is None:
            return self._infer_departure(member, since, after, phases, explanation)
        line = replace(line, at=min(line.at, phases.joined))  # the log's clock may be ahead
        if is_expiry(line):
            return self._end_by_silence(
                member, since, TimeBounds.exactly(line.at), EvidenceType.STATED
            )
        left = TimeBounds(line.at - MAX_CLOSE_TIME, line.at, line.at)
        if line.what == "dropped":  # it did not poll to join within its max.poll.interval.ms
            is_unique = [one.client_id for one in before.members].count(member.client_id) == 1
            is_back = is_unique and self._log.has_joined_again(member, before.at, line.at)
            if is_back or _is_back(member, before, after):  # its process had crashed
                start = phases.start.estimate
                seen = self._commits.find_last(member, start, since) or since
                interval = usual_heartbeat_interval(member)
                time = TimeBounds.between(seen, seen + interval, max(seen, start))
                reason = DowntimeReason.SILENT
                return ConsumptionEnd(
                    time, reason, member, EvidenceType.BOUNDED, session_start=seen
                )
            at, last = TimeBounds.exactly(line.at), self._find_last_poll(member, since, left)
            return ConsumptionEnd(at, DowntimeReason.LEFT, member, EvidenceType.STATED, last)
        commit = self._commits.find_last(member, line.at, since)
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
        interval = _find_poll_limit(member)
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
        no commits since its last poll, although it committed regularly before. ``until``: its last
        heartbeat.
        """
        poll = _find_poll_limit(member)
        if member.group_instance_id is None or poll is None:
            return None
        commit = self._commits.find_last(member, until, since) or since
        gaps = self._commits.list_gaps(member, until, until - MAX_SESSION_TIMEOUT)
        gaps = gaps[gaps < poll]
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
        """Returns when a static member stopped that polled too late and returned within its
        session.

        It was away for its ``max.poll.interval.ms``, and did not make the commit of a close. In a
        shorter session it sent heartbeats after a commit was due that did not come; or it never
        made a commit, and was away only a little longer.
        """
        session, poll = member.session_timeout or DEFAULT_SESSION_TIMEOUT, _find_poll_limit(member)
        if poll is None or not member.assigned:
            return None
        gaps = self._commits.list_gaps(member, back, back - MAX_SESSION_TIMEOUT)
        gaps = gaps[gaps < poll]  # it may have polled too late before
        if len(gaps) < MIN_COMMITS:
            return None
        rhythm = int(np.median(gaps))
        commit = self._commits.find_last(member, back, since)
        # its last poll came before the next commit was due; the first poll may have been the last
        last_poll, late = (since, 0) if commit is None else (commit, rhythm // 2)
        begin = back - session
        if last_poll + poll > back:
            return None
        if session >= poll:
            if commit is not None and gaps[-1] < gaps[-5:-1].min() * CLOSE_COMMIT_SHARE:
                return None
        elif commit is None and back - since <= LATE_POLL_SHARE * poll:
            pass
        elif not last_poll + 2 * rhythm + HEARTBEAT_SLACK <= begin <= last_poll + poll + rhythm:
            return None
        at = max(last_poll + poll, begin)
        return TimeBounds.between(max(last_poll, begin), at + late, back)

    def _end_by_silence(
        self,
        member: GenerationMember,
        since: int,
        expired: TimeBounds,
        evidence: EvidenceType,
    ) -> ConsumptionEnd:
        """Returns the end by an expired session: between the last sign of life and a heartbeat."""
        session = member.session_timeout or DEFAULT_SESSION_TIMEOUT
        interval = self._heartbeats.interval
        commit = self._commits.find_last(member, expired.latest, since)
        seen = max(expired.earliest - session, since, since if commit is None else commit)
        missed = self._find_missed_poll(member, since, expired.latest - session)
        start = max(expired.estimate - session, seen)
        is_static = member.group_instance_id is not None  # others leave when they are closed
        called = self._phases.get(member.member_id)
        since_joined = 0 if called is None else expired.earliest - session - called.joined
        if called is not None and abs(since_joined) <= CLOCK_SLACK:
            # no SyncGroup request came: it ended before all had joined
            began = max(called.start.estimate, self._log.joined_at(member.member_id))
            time = TimeBounds.between(began, (began + called.joined) // 2, called.joined)
            is_closed = is_static
            if member.member_id in self._awaited:
                end = self._end_of_awaited(member, called.joined)
                time, is_closed = end.time, end.is_closed
            return ConsumptionEnd(
                time,
                DowntimeReason.SILENT,
                member,
                evidence,
                is_closed=is_closed,
                session_start=time.estimate,
            )
        end = ConsumptionEnd(
            TimeBounds.exactly(seen),
            DowntimeReason.SILENT,
            member,
            evidence,
            is_closed=is_static,
            session_start=start,
        )
        if missed is not None:
            first = max(seen, missed.earliest)
            last = max(min(seen + interval, missed.latest), first)
            time = TimeBounds.between(first, (first + last) // 2, expired.latest)
            return end._replace(time=time, last_poll=self._find_last_poll(member, since, time))
        is_last_sign = is_static and commit is not None and commit >= seen - CLOCK_SLACK
        if is_last_sign and self._is_close_commit(member, since, expired.latest):
            return end._replace(time=TimeBounds.between(seen, seen, seen + MAX_CLOSE_TIME))
        latest = max(expired.latest - session + int(session * MAX_HEARTBEAT_SHARE), seen)
        # it was gone when the next heartbeat and the next commit were due
        due = self._find_next_commit(member, since, start)
        if self._heartbeats.is_known or due > start + session * MAX_HEARTBEAT_SHARE:
            due = min(due, start + interval)
        due = max(due, start)
        time = TimeBounds.between(seen, (start + due) // 2, min(latest, expired.latest))
        # a member without partitions does not commit: more members are closed than crash
        is_guess = is_static and not member.assigned
        return end._replace(time=time, is_closed=is_guess, is_guess=is_guess)

    def _find_next_commit(self, member: GenerationMember, since: int, last: int) -> int:
        """Returns when a regular commit was due next. ``last``: the member's last sign of life."""
        commit = self._commits.find_last(member, last + self._heartbeats.interval, since)
        gaps = self._commits.list_gaps(member, last + self._heartbeats.interval, since)
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
        commit = self._commits.find_last(member, latest, since)
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
        elif commit is not None and self._commits.is_last_early(member, latest, since):
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

    def end_of_restart(
        self, member: GenerationMember, before: Generation, back: int, host: str
    ) -> ConsumptionEnd:
        """Returns when a static member stopped that came back within its session, from ``host``."""
        session = member.session_timeout or DEFAULT_SESSION_TIMEOUT
        since = self._joined.get(member.member_id, before.at)
        commit = self._commits.find_last(member, back, since)
        earliest = max(back - session, since if commit is None else commit)
        missed = None
        if host == member.client_host:  # otherwise another process returned
            missed = self._find_poll_before_return(member, since, back)
        if missed is not None:
            evidence = EvidenceType.BOUNDED
            last_poll = self._find_last_poll(member, since, missed)
            reason = DowntimeReason.RESTARTED
            return ConsumptionEnd(missed, reason, member, evidence, last_poll, is_closed=True)
        if commit is None and member.member_id in self._awaited:
            return self._end_of_awaited(member, back)
        # without commits, as the members that returned a minute ago, or a usual restart; a client
        # with automatic commits commits when it closes
        usual = min(USUAL_RESTART_TIME, (back - since) // 2)
        if back - self._restarted_at <= MAX_RESTART_GAP:
            usual, self._restarted_at = self._restart_time, back
        estimate = back - min(usual, session // 2)
        is_closed = True
        is_shown = commit is not None and commit >= back - session
        if commit is not None and is_shown:
            estimate = commit
            # members of one deploy are away for the same time
            is_usual = abs(back - commit - self._restart_time) <= HEARTBEAT_SLACK
            is_closed = is_usual or self._is_close_commit(member, since, back)
            if is_closed:
                self._restart_time, self._restarted_at = back - commit, back
        elif commit is None and member.assigned and self._commits_automatically(before, back):
            # it would have committed when it closed
            estimate, is_closed = earliest + min(back - earliest, AUTO_COMMIT_INTERVAL) // 2, False
        time = TimeBounds.between(earliest, estimate, back)
        evidence = EvidenceType.BOUNDED
        return ConsumptionEnd(
            time,
            DowntimeReason.RESTARTED,
            member,
            evidence,
            is_closed=is_closed,
            is_guess=is_closed and not is_shown,
        )

    def find_unended(
        self, member: GenerationMember, before: Generation, until: int
    ) -> ConsumptionEnd | None:
        """Returns when a static member closed that has not returned at the end of the evidence: the
        commit of its close was its last one, although it committed in a steady rhythm.
        """
        session = member.session_timeout or DEFAULT_SESSION_TIMEOUT
        since = self._joined.get(member.member_id, before.at)
        commit = self._commits.find_last(member, until, since)
        gaps = self._commits.list_gaps(member, until, since)
        if member.group_instance_id is None or commit is None or len(gaps) <= MIN_COMMITS:
            return None
        usual = gaps[:-1]
        is_steady = usual.max() <= usual.min() * STEADY_RHYTHM
        silence = until - commit
        if not is_steady or not MISSED_COMMITS * usual.max() < silence <= session:
            return None
        if gaps[-1] >= usual.min() * CLOSE_COMMIT_SHARE:
            return None
        return ConsumptionEnd(
            TimeBounds.between(commit, commit, until),
            DowntimeReason.RESTARTED,
            member,
            EvidenceType.BOUNDED,
            is_closed=True,
        )

    def _end_of_awaited(self, member: GenerationMember, back: int) -> ConsumptionEnd:
        """Returns when a static member stopped that a rebalance waited for in vain: it stays a
        member without having joined, and its session begins when the wait ends.
        """
        old, since = self._awaited[member.member_id]
        commit = self._commits.find_last(old, back, since)
        seen = max(since, self._called.get(member.member_id, since)) if commit is None else commit
        return ConsumptionEnd(
            TimeBounds.between(seen, seen, back),
            DowntimeReason.RESTARTED,
            member,
            EvidenceType.BOUNDED,
            is_closed=self._is_close_commit(old, since, back),
        )

    def find_return(
        self,
        member: GenerationMember,
        before: Generation,
        after: Generation,
        phases: RebalancePhases,
    ) -> int | None:
        """Returns when a static member returned in a rebalance; None if its session had ended."""
        since = self._joined.get(member.member_id, before.at)
        if self._log.find_departure(member.member_id, since, after.at) is not None:
            return None
        back = self._log.find_return(member.member_id, after.at)
        return phases.joined if back is None else min(back, phases.joined)


def _is_back(member: GenerationMember, before: Generation, after: Generation) -> bool:
    """Returns whether a new member has the client id and the host of one that is gone."""
    known = {one.member_id for one in before.members}
    return any(
        (one.client_id, one.client_host) == (member.client_id, member.client_host)
        for one in after.members
        if one.member_id not in known
    )


def _find_poll_limit(member: GenerationMember) -> int | None:
    """Returns ``max.poll.interval.ms``, the rebalance timeout of JoinGroup; None without limit."""
    return None if member.library in NO_POLL_LIMIT_LIBRARIES else member.rebalance_timeout


def list_partitions(member: GenerationMember) -> list[TopicAndPartition]:
    return [(topic, number) for topic, numbers in member.assigned.items() for number in numbers]
