"""The true downtime of a simulated group: when really no process read a partition.

It is computed only from the world's trace, and independent of :mod:`rota.engine.history`.
"""

from __future__ import annotations

import enum
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from rota.engine.coordinator.notes import (
    GroupNote,
    GroupStabilized,
    JoinTimedOut,
    MemberLeft,
    RebalanceStarted,
    SessionExpired,
    StaticMemberReplaced,
    SyncTimedOut,
)
from rota.engine.member.events import ListenerMethod, PollTimeoutNote
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.simulation import Simulation
from rota.engine.simulator.timeline import (
    SLEEP_EVENT_OF,
    SUBSCRIPTION_EVENTS,
    split_detail,
)
from rota.engine.simulator.trace import TraceEventType, TraceRecord

#: Longest time in which the members take their first assignment, in milliseconds.
FIRST_ASSIGNMENT_TIME = 100
#: The records of a process that stops reading although it keeps its partitions, or reads again.
SLEEP_RECORDS = frozenset(
    {
        TraceEventType.PAUSED,
        TraceEventType.RESUMED,
        TraceEventType.STALLED,
        TraceEventType.WOKEN,
    }
)


#: Events that change which partitions a process reads; most records are of other types.
READING_EVENTS = frozenset(
    {
        TraceEventType.ASSIGNMENT,
        TraceEventType.WITHHELD,
        TraceEventType.LISTENER,
        TraceEventType.CRASHED,
        TraceEventType.GONE,
        TraceEventType.PAUSED,
        TraceEventType.RESUMED,
        TraceEventType.STALLED,
        TraceEventType.WOKEN,
    }
)


class GapKind(enum.Enum):
    #: A member had the partition, but its application did not poll.
    NOT_POLLED = "not polled"
    #: Its process was frozen.
    FROZEN = "frozen"
    NOT_OWNED = "not owned"


class PartitionReading(NamedTuple):
    """An interval in which a process read a partition, in milliseconds from the start."""

    partition: TopicPartition
    process: str
    since: int
    until: int


class TrueGap(NamedTuple):
    """A time in which no process read a partition, in milliseconds from the start."""

    partition: TopicPartition
    since: int
    until: int
    #: False if nobody read the partition until the end of the simulation.
    ended: bool
    #: The process that had the partition last; None if none did.
    last_process: str | None
    kind: GapKind

    @property
    def time(self) -> int:
        return self.until - self.since


def true_downtime(
    simulated: Simulation | Sequence[TraceRecord],
    topics: Mapping[str, int],
    end: int,
    *,
    joined: bool = False,
) -> list[TrueGap]:
    """Returns when no process read a partition, after the group's first rebalance.

    A gap in which a member first has the partition without polling, and then loses it, is returned
    as two gaps that touch; ``joined`` returns one, with the kind and the process of the first.

    :param topics: the partition counts at the start
    """
    trace = simulated.trace if isinstance(simulated, Simulation) else simulated
    start = first_rebalance_end(trace)
    if start is None:
        return []
    readings = _by_partition(list_partition_readings(trace, end))
    held = _by_partition(_list_held(trace, end))
    frozen: dict[str, list[int]] = {}
    for record in trace:
        if record.type is TraceEventType.PAUSED:
            frozen.setdefault(record.subject, []).append(record.at)
    gaps: list[TrueGap] = []
    for partition, wanted in sorted(_wanted_times(trace, topics, end).items()):
        mine, kept = readings.get(partition, []), held.get(partition, [])
        for since, until in wanted:
            for gap in _uncovered(mine, max(since, start), until):
                gaps += _split_gap(partition, gap, mine, kept, end, frozen)
    return join_gaps(gaps) if joined else gaps


def join_gaps(gaps: Iterable[TrueGap]) -> list[TrueGap]:
    """Joins gaps of a partition that touch; the first one's kind and process stay."""
    found: list[TrueGap] = []
    for gap in gaps:
        last = found[-1] if found else None
        if last is not None and (last.partition, last.until) == (gap.partition, gap.since):
            found[-1] = last._replace(until=gap.until, ended=gap.ended)
        else:
            found.append(gap)
    return found


def total_time(gaps: Iterable[TrueGap], *, not_polled: bool = True, unended: bool = False) -> int:
    """Returns the length of all gaps, in milliseconds: two partitions for one second are 2,000.

    :param not_polled: also count the time in which a member had the partition and did not poll, or
        was frozen and kept its partitions, which nothing in a journal shows
    :param unended: without such time: also count gaps that last until the end
    """
    listed = list(gaps)
    if not_polled:
        return sum(gap.time for gap in listed)
    lost = {(gap.partition, gap.since) for gap in listed if gap.kind is GapKind.NOT_OWNED}
    return sum(
        gap.time
        for gap in listed
        if (gap.kind is GapKind.NOT_OWNED and (gap.ended or unended))
        or (gap.kind is GapKind.FROZEN and (gap.partition, gap.until) in lost and gap.ended)
    )


def has_running_process(trace: Iterable[TraceRecord]) -> bool:
    """Returns whether a process runs at the end: otherwise somebody has shut down the group."""
    running: set[str] = set()
    for record in trace:
        if record.type is TraceEventType.STARTED:
            running.add(record.subject)
        elif record.type in {TraceEventType.GONE, TraceEventType.CRASHED}:
            running.discard(record.subject)
    return bool(running)


def first_rebalance_end(trace: Iterable[TraceRecord]) -> int | None:
    """Returns when the members of the group's first generation had their partitions."""
    stabilized: int | None = None
    taken: int | None = None
    for record in trace:
        change = record.detail.change if isinstance(record.detail, GroupNote) else None
        if stabilized is None:
            if isinstance(change, GroupStabilized):
                stabilized = taken = record.at
        elif record.at > stabilized + FIRST_ASSIGNMENT_TIME or isinstance(change, RebalanceStarted):
            break
        elif record.type is TraceEventType.LISTENER:
            assert isinstance(record.detail, tuple)
            if record.detail[0] == ListenerMethod.ASSIGNED.value:
                taken = record.at
    return taken


def _by_partition(
    readings: Iterable[PartitionReading],
) -> dict[TopicPartition, list[PartitionReading]]:
    return {
        partition: list(group) for partition, group in groupby(readings, attrgetter("partition"))
    }


def _uncovered(
    readings: Iterable[PartitionReading], since: int, until: int
) -> Iterable[tuple[int, int]]:
    """Yields the parts of a time without a reading; readings are ordered by their start."""
    for reading in readings:
        if reading.since >= until:
            break
        if reading.since > since:
            yield since, reading.since
        since = max(since, reading.until)
    if since < until:
        yield since, until


def _split_gap(
    partition: TopicPartition,
    gap: tuple[int, int],
    readings: Sequence[PartitionReading],
    held: Sequence[PartitionReading],
    end: int,
    frozen: Mapping[str, Sequence[int]],
) -> Iterable[TrueGap]:
    """Splits a gap into times in which a member had the partition, and times in which none had."""
    since, until = gap
    ended = until < end
    before = readings[: bisect_right(readings, since, key=lambda one: one.since)]
    last = max(before, key=lambda one: one.until).process if before else None
    for one in held:
        first, stop = max(since, one.since), min(until, one.until)
        if first >= stop:
            continue
        if since < first:
            yield TrueGap(partition, since, first, True, last, GapKind.NOT_OWNED)
        last = one.process
        is_frozen = any(first <= at < stop for at in frozen.get(last, ()))
        kind = GapKind.FROZEN if is_frozen else GapKind.NOT_POLLED
        yield TrueGap(partition, first, stop, stop < end, last, kind)
        since = stop
    if since < until:
        yield TrueGap(partition, since, until, ended, last, GapKind.NOT_OWNED)


def _list_held(trace: Sequence[TraceRecord], end: int) -> list[PartitionReading]:
    """Returns each interval in which a member had a partition, whether it polled or not."""
    awake = (record for record in trace if record.type not in SLEEP_RECORDS)
    removals = _removal_times(trace)
    held = []
    for one in list_partition_readings(awake, end):
        times = removals.get(one.process, [])
        position = bisect_right(times, one.since)
        removed = times[position] if position < len(times) else end
        held.append(one._replace(until=min(one.until, removed)))
    return held


def _removal_times(trace: Iterable[TraceRecord]) -> dict[str, list[int]]:
    """Returns when each process stopped to be a member, without knowing it or by its own choice."""
    processes: dict[str, str] = {}
    times: dict[str, list[int]] = {}
    for record in trace:
        removed: tuple[str, ...] = ()
        if record.type is TraceEventType.IDENTITY:
            processes[str(record.detail)] = record.subject
        elif record.type is TraceEventType.SAID and isinstance(record.detail, PollTimeoutNote):
            times.setdefault(record.subject, []).append(record.at)
        elif isinstance(record.detail, GroupNote):
            match record.detail.change:
                case MemberLeft(member_id) | SessionExpired(member_id):
                    removed = (member_id,)
                case JoinTimedOut(member_ids) | SyncTimedOut(member_ids):
                    removed = member_ids
                case StaticMemberReplaced(old_member_id=old):
                    removed = (old,)
                case _:
                    pass
        for member_id in removed:
            if member_id in processes:
                times.setdefault(processes[member_id], []).append(record.at)
    return times


def _wanted_times(
    trace: Iterable[TraceRecord], topics: Mapping[str, int], end: int
) -> dict[TopicPartition, list[tuple[int, int]]]:
    """Returns when each partition existed and a process, running or ended, subscribed to it."""
    counts = dict(topics)
    subscriptions: dict[str, tuple[tuple[str, ...], str | None]] = {}
    since: dict[TopicPartition, int] = {}
    times: dict[TopicPartition, list[tuple[int, int]]] = {}
    for record in trace:
        if record.type not in SUBSCRIPTION_EVENTS:
            continue
        match record.type, record.detail:
            case TraceEventType.TOPICS, tuple(changed):
                counts = dict(changed)
            case (
                TraceEventType.STARTED | TraceEventType.SUBSCRIBED,
                (tuple() as names, (str() | None) as pattern),
            ):
                if subscriptions.get(record.subject) == (names, pattern):
                    continue
                subscriptions[record.subject] = names, pattern
            case _:
                continue
        wanted = _subscribed_partitions(counts, set(subscriptions.values()))
        for partition in since.keys() - wanted:
            times.setdefault(partition, []).append((since.pop(partition), record.at))
        for partition in wanted:
            since.setdefault(partition, record.at)
    for partition, started in since.items():
        times.setdefault(partition, []).append((started, end))
    return times


def _subscribed_partitions(
    counts: Mapping[str, int], subscriptions: Iterable[tuple[tuple[str, ...], str | None]]
) -> set[TopicPartition]:
    return {
        TopicPartition(topic, number)
        for topics, pattern in subscriptions
        for topic, count in counts.items()
        if (topic in topics if pattern is None else re.fullmatch(pattern, topic))
        for number in range(count)
    }


class _ReadPartitions:
    """The partitions that each process reads: those of its assignment, unless its listener is being
    called to revoke them, or the process is crashed, frozen, outside of poll for a stall, or busy
    for longer than its poll interval allows.
    """

    def __init__(self) -> None:
        self._owned: dict[str, frozenset[TopicPartition]] = defaultdict(frozenset)
        self._asleep: dict[str, set[TraceEventType]] = defaultdict(set)

    def read_record(self, record: TraceRecord) -> frozenset[TopicPartition] | None:
        """Returns what the record's process reads now; None if the record does not change it."""
        if record.type not in READING_EVENTS or not self._changed_by(record):
            return None
        name = record.subject
        return frozenset() if self._asleep[name] else self._owned[name]

    def _changed_by(self, record: TraceRecord) -> bool:
        """Returns whether a process may now read other partitions."""
        name = record.subject
        match record.type:
            case TraceEventType.ASSIGNMENT:
                _, partitions = split_detail(record.detail)
                self._owned[name] = frozenset(partitions)
            case TraceEventType.WITHHELD:
                assert isinstance(record.detail, tuple)
                self._owned[name] = self._owned[name].difference(record.detail)
            case TraceEventType.LISTENER:
                call, partitions = split_detail(record.detail)
                if call == ListenerMethod.ASSIGNED.value:
                    return False
                self._owned[name] = self._owned[name].difference(partitions)
            case TraceEventType.CRASHED | TraceEventType.GONE:
                self._owned.pop(name, None)
                self._asleep.pop(name, None)
            case TraceEventType.PAUSED | TraceEventType.STALLED:
                self._asleep[name].add(record.type)
            case TraceEventType.RESUMED | TraceEventType.WOKEN:
                self._asleep[name].discard(SLEEP_EVENT_OF[record.type])
            case _:
                return False
        return True


def list_partition_readings(trace: Iterable[TraceRecord], end: int) -> list[PartitionReading]:
    """Returns each interval in which a process read a partition, up to the ``end``, in order."""
    readings: list[PartitionReading] = []
    reads = _ReadPartitions()
    #: For each process its partitions, each with the time since when it reads it.
    since_of: dict[str, dict[TopicPartition, int]] = defaultdict(dict)

    def stop_reading(name: str, partitions: Iterable[TopicPartition], now: int) -> None:
        for partition in partitions:
            since = since_of[name].pop(partition)
            if since < now:
                readings.append(PartitionReading(partition, name, since, now))

    for record in trace:
        now_read = reads.read_record(record)
        if now_read is None:
            continue
        before = since_of[record.subject]
        stop_reading(record.subject, before.keys() - now_read, record.at)
        before.update(dict.fromkeys(now_read - before.keys(), record.at))
    for name, partitions in since_of.items():
        stop_reading(name, tuple(partitions), end)
    return sorted(readings, key=lambda one: (one.partition, one.since, one.until, one.process))
