"""Downtime: the time in which no member consumed a partition of an existing group.

The unit is the partition-second: two partitions without a consumer for three seconds are six
seconds of downtime. :func:`find_downtime` returns a :class:`Downtime` for each partition and time,
with its reason, the member that had the partition, and bounds of its length.

When downtime begins:

- *revoked* (eager): when the member revokes its partitions, after a heartbeat told it of the
  rebalance and before all have joined. A commit in between shows that it still had them.
- *moved*: when a round of a cooperative rebalance takes the partition away. In a consumer group
  (KIP-848): when the member has confirmed the revocation.
- *left*: when the member leaves.
- *silent*: from the last sign of life. The broker removes a member one session timeout after its
  last heartbeat, and the member ended before its next one.
- *restarted*: a static member came back under a new member id. It stopped after its last commit,
  and less than one session timeout before it came back.
- *empty*: from the leave of the last member until a member has the partition again. If all members
  had closed and stay away for longer than :data:`SHUT_DOWN_AFTER`, somebody has *shut down* the
  group: such time is listed, but not counted in sums.
- *not polled*: from the last poll, ``max.poll.interval.ms`` before the client left because of it.
  The member may have worked on its last records in that time, so sums have it in a column of its
  own. If it got the partition after its last poll, it never read it: *left*.

Downtime ends when a member gets the partition: at the record of its generation, or of its current
assignment in a consumer group. Nothing counts before the first owner of a partition, after its last
subscriber, or while the group is deleted.

How it is known: *stated* if the broker's log has the begin; *inferred* if records of the journal
have both ends; *bounded* if only commits and timeouts limit it; *sampled* between two samples.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np

from rota.engine.history.causes import (
    LATEST_TIME,
    CommitTimes,
    find_last_commit,
    recent_commit_gaps,
)
from rota.engine.history.consumption_end import (
    MAX_ASSIGNMENT_DELAY,
    MAX_CLOSE_TIME,
    MIN_COMMITS,
    MISSED_COMMITS,
    ConsumptionEnd,
    ConsumptionEndFinder,
    RebalancePhases,
    TimeBounds,
    TopicAndPartition,
    list_partitions,
)
from rota.engine.history.facts import (
    DEFAULT_SESSION_TIMEOUT,
    MINUTE,
    UNCOUNTED_REASONS,
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
    member_identity,
)
from rota.engine.history.group_evidence import (
    GroupLog,
    MemberCommits,
    PassingMember,
    correct_log_clock,
)
from rota.engine.history.heartbeats import Heartbeats, find_heartbeats
from rota.engine.history.lag import EndOffsets
from rota.engine.history.rebalances import EAGER_STRATEGIES, gave_up_everything

Position: TypeAlias = tuple[int, int]  # incarnation and offset of a generation

SHUT_DOWN_AFTER = 30 * MINUTE  # all members closed and stayed away longer: on purpose
#: A group is a scheduled job if all members closed so often, its longest absence is at most this
#: multiple of the shortest, and it was away for at least this share of the time.
MIN_RUNS, SCHEDULE_TOLERANCE, IDLE_SHARE = 4, 1.5, 0.5
#: Between log-end samples further apart, the number of records is unknown.
MAX_SAMPLE_GAP = 60 * MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class DowntimeTotal:
    """Sums of downtime, in partition-milliseconds."""

    downtime_ms: int = 0
    downtime_at_least_ms: int = 0
    downtime_at_most_ms: int = 0
    not_polled_ms: int = 0  # the time in which owners did not poll; not part of the others
    delayed_records: int | None = None  # None: no log end is known
    added_lag_ms: int | None = None
    by_reason: Mapping[str, int] = field(default_factory=dict)

    @property
    def shut_down_ms(self) -> int:
        """The time after all members had closed; not part of the others."""
        return self.by_reason.get(DowntimeReason.SHUT_DOWN, 0)


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


@dataclass(frozen=True, slots=True)
class EventTimes:
    """When a rebalance, or the return of a static member, happened: input of the what-if."""

    start: int  # when the members were called to join
    joined: int
    assigned: int
    gone: Mapping[str, ConsumptionEnd]
    later_joins: tuple[int, ...] = ()  # from each later call until all had joined again
    joins: Mapping[str, int] = field(default_factory=dict)  # when new members called (log)
    passing: Sequence[PassingMember] = ()


@dataclass(frozen=True, slots=True)
class GroupDowntime:
    """The downtime of a group, and the times of its rebalances and restarts by offset."""

    found: list[Downtime]
    events: Mapping[int, EventTimes] = field(default_factory=dict)
    heartbeats: Heartbeats = field(default_factory=Heartbeats)
    until: int | None = None  # the end of the evidence
    #: Records per millisecond that arrive in each partition; empty: no log ends are known.
    arrival_rates: Mapping[TopicAndPartition, float] = field(default_factory=dict)

    def with_log_ends(
        self, ends: EndOffsets, numbers: Mapping[TopicAndPartition, int]
    ) -> GroupDowntime:
        """Returns the downtime with the records that it delayed; ``numbers``: those in ``ends``."""
        by_number = ends.arrival_rates()
        rates = {pair: by_number[n] for pair, n in numbers.items() if n in by_number}
        found = count_delayed_records(self.found, ends, numbers)
        # the same downtime at the same times of the day delays as many records
        counted = [one for one in found if one.reason not in UNCOUNTED_REASONS]
        known = [one for one in counted if one.delayed_records is not None]
        expected = sum(one.milliseconds * rates.get((one.topic, one.partition), 0) for one in known)
        delayed = sum(one.delayed_records or 0 for one in known)
        if expected and delayed:
            rates = {pair: rate * delayed / expected for pair, rate in rates.items()}
        return replace(self, found=found, arrival_rates=rates)


class ClassicDowntimeFinder:
    def __init__(
        self,
        log: GroupLog,
        commits: MemberCommits,
        heartbeats: Heartbeats,
        last_assigned: Mapping[TopicAndPartition, Position],
    ) -> None:
        """:param last_assigned: the last generation that assigned each partition"""
        self._log = log
        self._ends = ConsumptionEndFinder(log, commits, heartbeats)
        self._last_assigned = last_assigned
        #: Partitions that nobody consumes at the moment.
        self._open: dict[TopicAndPartition, ConsumptionEnd] = {}
        self.found: list[Downtime] = []
        #: When the last members were gone, if all of them had closed.
        self.closed_at: set[int] = set()
        #: When static members returned in a rebalance, by their new member id.
        self._returns: dict[str, int] = {}
        #: By the offset of the generation.
        self.events: dict[int, EventTimes] = {}

    def read_return(self, before: Generation, after: Generation) -> None:
        old = {member_identity(member): member for member in before.members}
        ends = {}
        for member in after.members:
            gone = old.get(member_identity(member))
            if gone is not None and gone.member_id != member.member_id:
                end = ends[gone.member_id] = self._ends.end_of_restart(
                    gone, before, after.at, member.client_host
                )
                if after.kind is GroupType.CONSUMER:  # ConsumerDowntimeFinder has its downtime
                    continue
                for pair in list_partitions(gone):
                    self._open.setdefault(pair, end)
                self._close(list_partitions(member), after, to_generation=None)
                self._ends.read_return(member, after.at)
        self.events[after.offset] = EventTimes(after.at, after.at, after.at, ends)

    def read_rebalance(self, rebalance: Rebalance, explanation: Explanation) -> None:
        before = rebalance.before
        gone: dict[str, ConsumptionEnd] = {}
        rounds = []
        for after in rebalance.rounds:
            if before is not None:
                phases = self._ends.find_phases(before, after)
                has_hole = rebalance.unseen > 0 or after.sampled
                gone |= self._read_round(before, after, phases, explanation, has_hole=has_hole)
            else:
                phases = self._ends.find_first_phases(rebalance, after)
            rounds.append(phases)
            self._assign(after, rebalance)
            self._ends.read_round(before, after, phases)
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
        """Opens the downtime of partitions that lose their owner; returns the ends of gone members.
        ``has_hole``: generations in between are unknown.
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
                back = (
                    None if same is None else self._ends.find_return(member, before, after, phases)
                )
                if back is None:
                    end = self._ends.end_of_departure(member, before, after, phases, explanation)
                else:
                    assert same is not None
                    end = self._ends.end_of_restart(member, before, back, same.client_host)
                if same is not None:
                    end = end._replace(reason=DowntimeReason.RESTARTED)
                    self._returns[same.member_id] = phases.joined if back is None else back
                gone[member.member_id] = end
            elif not pairs:
                continue
            elif gave_up_everything(before, after, same):
                end = self._ends.end_by_revocation(member, before, phases, called)
            else:
                kept = set(list_partitions(same))
                pairs = [pair for pair in pairs if pair not in kept]
                end = self._ends.end_by_move(member, before, after, has_hole=has_hole)
            if is_classic:
                for pair in pairs:
                    self._open.setdefault(pair, end)
        return gone

    def _delay_revocations(self, after: Generation) -> None:
        """Corrects cooperative revocations that a member missed: it kept the partitions longer."""
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

    def _assign(self, after: Generation, rebalance: Rebalance) -> None:
        """Ends the downtime of partitions that have an owner again, or no subscriber any more."""
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
        position = after.incarnation, after.offset
        for pair, end in list(self._open.items()):
            gone = pair[0] not in topics and pair[0] not in known
            is_lost = pair[0] not in known or self._last_assigned.get(pair, position) <= position
            if gone or (is_eager and is_lost) or pair[0] in rebalance.absent:
                del self._open[pair]
            elif is_eager:  # the leader left it out for a while
                time = end.time._replace(latest=LATEST_TIME)
                self._open[pair] = end._replace(time=time, evidence=EvidenceType.BOUNDED)

    def _empty(self, after: Generation) -> None:
        waiting, self._open = self._open, {}
        self._add(waiting, TimeBounds.exactly(after.at), after, after.generation)
        evidence = EvidenceType.SAMPLED if after.sampled else EvidenceType.INFERRED
        is_closed = all(end.is_leave for end in waiting.values())
        if is_closed:
            self.closed_at.add(after.at)
        self._open = {
            pair: end.of_empty_group(after.at)._replace(evidence=evidence)
            for pair, end in waiting.items()
        }

    def _close(
        self,
        pairs: Iterable[TopicAndPartition],
        after: Generation,
        *,
        to_generation: int | None,
    ) -> None:
        ended = {pair: self._open.pop(pair) for pair in pairs if pair in self._open}
        gained = TimeBounds(after.at, after.at, after.at + MAX_ASSIGNMENT_DELAY)
        if after.sampled:
            gained = TimeBounds(after.not_before or after.at, after.at, after.at)
        self._add(ended, gained, after, to_generation)
        self._ends.read_regained(ended, after.at)

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
            since = self._ends.regained_at(pair)
            spans_left = [span.after(since) for span in found if span.until >= since]
            if not end.has_polled_since(since):  # it never read the partition
                spans_left = [span._replace(reason=end.reason) for span in spans_left]
            self.found += [span.of_partition(after.group, pair) for span in spans_left]

    def find_unended(self, last: Generation, until: int) -> None:
        """Begins downtime after the last generation: absent static members, a running rebalance."""
        if last.kind is GroupType.CONSUMER:
            return
        phases = self._ends.find_running_phases(last, until)
        for member in last.members:
            end = self._ends.find_unended(member, last, until)
            if end is None and phases is not None:
                end = self._ends.end_in_running_rebalance(member, last, phases, until)
            if end is not None:
                for pair in list_partitions(member):
                    self._open.setdefault(pair, end)

    def end(self, last: Generation | None, until: int) -> None:
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
    """Returns the downtime from one consumption to the next; the time since the last poll first."""
    times = [(end.time, gained, end.reason)]
    if end.last_poll is not None:
        times.insert(0, (end.last_poll, end.time, DowntimeReason.NOT_POLLED))
    spans = []
    for begin, stop, reason in times:
        since, until = begin.estimate, max(stop.estimate, begin.estimate)
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


class ConsumerDowntimeFinder:
    """Finds the downtime of a consumer group (KIP-848): the time between the owners of a partition.
    Both ends are records, as the journal has each member's current assignment.
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
        self._emptied = [
            number
            for number, one in enumerate(generations)
            if one.change is GenerationChange.EMPTIED
        ]
        epochs = (one.after for one, _ in rebalances if one.after.kind is GroupType.CONSUMER)
        self._epochs = sorted((one.at, one.generation) for one in epochs)
        self._log = log
        self._commits = commits
        self._unwanted = _list_unwanted(generations, [one for one, _ in rebalances])
        #: When the last members were gone, and whether all of them had closed.
        self._closed: dict[int, bool] = {}

    @property
    def closed_at(self) -> set[int]:
        return {at for at, is_closed in self._closed.items() if is_closed}

    def find(self, ownership: Iterable[PartitionOwnership], until: int) -> list[Downtime]:
        """:param until: the end of the evidence"""
        by_partition: defaultdict[TopicAndPartition, list[PartitionOwnership]] = defaultdict(list)
        for owned in ownership:
            by_partition[owned.topic, owned.partition].append(owned)
        found: list[Downtime] = []
        for pair, spans in sorted(by_partition.items()):
            spans.sort(key=attrgetter("since"))
            last = spans[0]
            for following in spans[1:]:
                if last.until is not None and following.since > last.until:
                    found += self._between(pair, last, following, until)
                if last.until is not None and (
                    following.until is None or following.until > last.until
                ):
                    last = following
            if last.until is not None:
                found += self._between(pair, last, None, until)
        return found

    def _between(
        self,
        pair: TopicAndPartition,
        old: PartitionOwnership,
        new: PartitionOwnership | None,
        until: int,
    ) -> Iterator[Downtime]:
        """Yields the downtime of a partition after an owner, until the next owner or the end."""
        assert old.until is not None
        first = max(bisect_left(self._times, old.until) - 1, 0)
        last = len(self._times) if new is None else bisect_right(self._times, new.since)
        during = self._generations[first:last]
        after = during[-1]
        unwanted = self._unwanted.get(pair[0], ())
        if bisect_left(unwanted, first) < bisect_left(unwanted, last):
            return
        if new is None:
            if after.kind is not GroupType.CONSUMER or after.incarnation != during[0].incarnation:
                return
            gained, number = TimeBounds.exactly(until), None
        else:
            if all(one.kind is not GroupType.CONSUMER for one in during):
                return
            gained = TimeBounds(new.since, new.since, new.since + MAX_ASSIGNMENT_DELAY)
            number = self._rebalance_until(new)
        end = self._end_of(old, new, during)
        emptied = self._find_emptied(old.until, first, last)
        if emptied is not None:
            at = emptied.at
            if emptied.kind is GroupType.CONSUMER:  # ClassicDowntimeFinder has it otherwise
                until_empty = TimeBounds.exactly(at)
                yield from _list_downtime(pair, end, until_empty, emptied, emptied.generation)
                self._closed[at] = self._closed.get(at, True) and end.is_leave
            end = end.of_empty_group(at)
        is_ended = new is not None
        yield from _list_downtime(pair, end, gained, after, number, ended=is_ended)

    def _find_emptied(self, since: int, first: int, last: int) -> Generation | None:
        """Returns the first of these generations in which the last members were gone."""
        numbers = self._emptied[
            bisect_left(self._emptied, first) : bisect_left(self._emptied, last)
        ]
        listed = (self._generations[number] for number in numbers)
        return next((one for one in listed if one.at >= since), None)

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
        """Returns whether an owner that lost a partition had missed several regular commits."""
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


def _list_unwanted(
    generations: Sequence[Generation], rebalances: Iterable[Rebalance]
) -> dict[str, list[int]]:
    """Returns, by topic, the generations without the topic, a subscriber or the group."""
    wanted = [
        {topic for x in one.members for topic in (*x.topics, *x.assigned)} for one in generations
    ]
    absent = {(one.after.incarnation, one.after.offset): one.absent for one in rebalances}
    topics = set().union(*wanted)
    found: dict[str, list[int]] = {topic: [] for topic in topics}
    for number, one in enumerate(generations):
        gone = set(absent.get((one.incarnation, one.offset), ()))
        if one.change is GenerationChange.DELETED:
            gone = topics
        elif one.members:
            gone |= topics - wanted[number]
        for topic in gone & topics:
            found[topic].append(number)
    return found


def _has_committed(commits: CommitTimes, absences: Sequence[tuple[int, int]], first: int) -> bool:
    """Returns whether most runs between absences have commits; else the group fails repeatedly."""
    if not commits:
        return True
    times = np.sort(np.concatenate(list(commits.values())))
    runs = zip([first, *(end for _, end in absences)], (at for at, _ in absences), strict=False)
    busy = [bisect_left(times, begin) < bisect_right(times, end) for begin, end in runs]
    return 2 * sum(busy) > len(busy)


def _mark_shut_down(
    found: Sequence[Downtime],
    closed_at: Collection[int],
    commits: CommitTimes,
    first: int,
    until: int,
) -> list[Downtime]:
    """Returns the downtime, with the reason of the times in which somebody had shut down the group:
    all members closed, and stayed away for a long time, or came back in a regular rhythm.

    :param closed_at: when the last members were gone, if all of them had closed
    :param first: the begin of the evidence; ``until`` is its end
    """
    ends: defaultdict[int, int] = defaultdict(lambda: LATEST_TIME)
    back: set[int] = set()
    for one in found:
        if one.reason is DowntimeReason.EMPTY and one.since in closed_at:
            # members are back when they have one of the partitions again
            ends[one.since] = min(ends[one.since], one.until)
            if one.ended:
                back.add(one.since)
    lengths = [ends[at] - at for at in back]
    is_scheduled = (
        len(lengths) >= MIN_RUNS
        and max(lengths) <= SCHEDULE_TOLERANCE * min(lengths)
        and sum(lengths) >= IDLE_SHARE * (until - first)
        and _has_committed(commits, sorted(ends.items()), first)
    )
    shut_down = {at for at, end in ends.items() if is_scheduled or end - at > SHUT_DOWN_AFTER}
    return [
        replace(one, reason=DowntimeReason.SHUT_DOWN)
        if (one.reason is DowntimeReason.EMPTY and one.since in shut_down)
        # the sessions of static members that had closed
        or (one.reason is DowntimeReason.SILENT and one.until in shut_down)
        else one
        for one in found
    ]


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
    :param lines: the log lines about the group, by time
    :param ownership: only needed of consumer groups
    """
    lines = correct_log_clock(lines, generations)
    log, member_commits = GroupLog(lines), MemberCommits(commits)
    heartbeats = find_heartbeats(generations, rebalances, log, member_commits)
    explained = {
        (one.after.incarnation, one.after.offset): (one, why)
        for one, why in zip(rebalances, explanations, strict=True)
    }
    last_assigned = {
        pair: (generation.incarnation, generation.offset)
        for generation in generations
        for member in generation.members
        for pair in list_partitions(member)
    }
    finder = ClassicDowntimeFinder(log, member_commits, heartbeats, last_assigned)
    last: Generation | None = None
    for generation in generations:
        if last is not None and generation.change is GenerationChange.DELETED:
            finder.end(last, generation.at)
        elif last is not None and generation.incarnation != last.incarnation:
            finder.end(last, last.at)  # its deletion is not in the evidence
        pair = explained.get((generation.incarnation, generation.offset))
        if pair is not None:
            finder.read_rebalance(*pair)
        elif generation.change is GenerationChange.REPLACED and last is not None:
            finder.read_return(last, generation)
        last = generation
    if last is not None:
        finder.find_unended(last, until)
    finder.end(last, until)
    found, closed_at = finder.found, finder.closed_at
    if any(one.kind is GroupType.CONSUMER for one in generations):
        others = ConsumerDowntimeFinder(generations, list(explained.values()), log, commits)
        found += others.find(ownership, until)
        closed_at |= others.closed_at
    if closed_at:
        found = _mark_shut_down(found, closed_at, commits, generations[0].at, until)
    found.sort(key=attrgetter("topic", "partition", "since"))
    return GroupDowntime(found, finder.events, heartbeats, until)


def count_delayed_records(
    found: Sequence[Downtime], ends: EndOffsets, numbers: Mapping[TopicAndPartition, int]
) -> list[Downtime]:
    """Returns the downtime with the records that arrived during it, and the longest time that one
    of them waited because of it, where the log ends are known. ``numbers``: partitions in ``ends``.
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
    until = np.array([found[row].until for row in rows], dtype=np.int64)
    near = np.ones(np.count_nonzero(known), dtype=np.bool_)
    for at, sample in ((since[known], begin.sample[known]), (until[known], end.sample[known])):
        following = np.minimum(sample + 1, len(ends.at) - 1)
        is_between = (ends.at[sample] < at) & (ends.run[following] == ends.run[sample])
        gap = np.where(is_between, ends.at[following] - ends.at[sample], 0)
        near &= gap <= np.maximum(MAX_SAMPLE_GAP, (until - since)[known])
    known[known] = near
    arrived = np.maximum(end.end - begin.end, 0)
    first_at = ends.passed_at(np.where(known, begin.sample, -1), begin.end)
    result = list(found)
    consumed_at = _next_consumption(found)
    for place, row in enumerate(rows):
        if not known[place]:
            continue
        one, count = found[row], int(arrived[place])
        first = first_at[place]
        waited = consumed_at[row] - (one.since if np.isnan(first) else max(int(first), one.since))
        added = max(waited, 0) if count else 0
        result[row] = replace(one, delayed_records=count, added_lag_ms=added)
    return result


def _next_consumption(found: Sequence[Downtime]) -> list[int]:
    """Returns when a partition has a consumer again, for each piece: downtime of another reason may
    follow at once. Time that sums do not count is not part of it.
    """
    ends = [one.until for one in found]
    following: dict[tuple[str, int, int], int] = {}
    for row in reversed(range(len(found))):
        one = found[row]
        ends[row] = following.get((one.topic, one.partition, one.until), one.until)
        if one.reason not in UNCOUNTED_REASONS:
            following[one.topic, one.partition, one.since] = ends[row]
    return ends
