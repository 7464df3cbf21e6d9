"""Timelines from a trace: who really read which partition when, and what each process was doing.

A member reads its partitions unless its rebalance listener is being called to revoke them, or the
process is crashed, frozen, outside of poll for a stall, or busy for longer than its poll interval
allows.
"""

from __future__ import annotations

import enum
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from rota.engine.member.events import ListenerMethod
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.trace import TraceEventType, TraceRecord

#: Events after which a process reads again, each with the event that stopped it.
SLEEP_EVENT_OF = {
    TraceEventType.RESUMED: TraceEventType.PAUSED,
    TraceEventType.WOKEN: TraceEventType.STALLED,
}

#: Events that change which partitions should be read.
SUBSCRIPTION_EVENTS = frozenset(
    {TraceEventType.STARTED, TraceEventType.SUBSCRIBED, TraceEventType.TOPICS}
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

#: The topics, or the pattern, that a process subscribes to.
SubscribedTopics: TypeAlias = tuple[tuple[str, ...], str | None]


class PartitionReading(NamedTuple):
    """An interval in which a process read a partition, in milliseconds from the start."""

    partition: TopicPartition
    process: str
    since: int
    until: int


class _Subscriptions:
    """The partition counts and the last subscription of each process, running or ended."""

    def __init__(self, trace: Iterable[TraceRecord], topics: Mapping[str, int]) -> None:
        self.counts = dict(topics)
        #: Topics that a process subscribes to at the end, and all that one ever subscribed to.
        self.topics: set[str] = set()
        self.ever: set[str] = set()
        subscriptions: dict[str, SubscribedTopics] = {}
        for record in trace:
            if record.type not in SUBSCRIPTION_EVENTS:
                continue
            assert isinstance(record.detail, tuple)
            if record.type is TraceEventType.TOPICS:
                self.counts = dict(record.detail)
            elif subscriptions.get(record.subject) == record.detail:
                continue
            else:
                subscriptions[record.subject] = record.detail
            used = set(subscriptions.values())
            self.topics = {
                topic for topic in self.counts if any(_matches_topic(topic, one) for one in used)
            }
            self.ever |= self.topics


def _matches_topic(topic: str, subscription: SubscribedTopics) -> bool:
    topics, pattern = subscription
    return topic in topics if pattern is None else re.fullmatch(pattern, topic) is not None


def list_unsubscribed_topics(
    trace: Iterable[TraceRecord], topics: Mapping[str, int]
) -> tuple[str, ...]:
    """Returns the topics that no process ever subscribed to."""
    found = _Subscriptions(trace, topics)
    return tuple(sorted(found.counts.keys() - found.ever))


def list_unread_partitions(
    trace: Sequence[TraceRecord], topics: Mapping[str, int]
) -> tuple[TopicPartition, ...]:
    """Returns the partitions that a process subscribes to and that nobody ever read."""
    found = _Subscriptions(trace, topics)
    read: set[TopicPartition] = set()
    for record in trace:
        if record.type is TraceEventType.ASSIGNMENT:
            read.update(_split_detail(record.detail)[1])
    # a group that reads nothing, because of a wrong pattern, is not a success
    subscribed = found.topics if found.topics or read else found.counts.keys()
    return tuple(
        partition
        for topic in sorted(subscribed)
        for partition in (TopicPartition(topic, n) for n in range(found.counts[topic]))
        if partition not in read
    )


class _ReadPartitions:
    """The partitions that each process reads."""

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
                _, partitions = _split_detail(record.detail)
                self._owned[name] = frozenset(partitions)
            case TraceEventType.WITHHELD:
                assert isinstance(record.detail, tuple)
                self._owned[name] = self._owned[name].difference(record.detail)
            case TraceEventType.LISTENER:
                call, partitions = _split_detail(record.detail)
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


def _split_detail(detail: object) -> tuple[object, tuple[TopicPartition, ...]]:
    assert isinstance(detail, tuple)
    first, partitions = detail
    return first, partitions


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


class ProcessState(enum.Enum):
    """The state of a process; later values are more important to show."""

    READING = "reading"
    #: The process is a member without partitions.
    IDLE = "idle"
    #: The process waits for its assignment.
    JOINING = "joining"
    #: The process is frozen, or stays outside of poll.
    ASLEEP = "asleep"
    GONE = "gone"


class ProcessStateChange(NamedTuple):
    at: int
    state: ProcessState
    load: int


class _ProcessTimeline:
    def __init__(self) -> None:
        self.changes: list[ProcessStateChange] = []
        self.running = False
        self.settled = False
        self.load = 0
        self.asleep: set[TraceEventType] = set()

    def current_state(self) -> ProcessState:
        if not self.running:
            return ProcessState.GONE
        if self.asleep:
            return ProcessState.ASLEEP
        if self.load:
            return ProcessState.READING
        return ProcessState.IDLE if self.settled else ProcessState.JOINING

    def read_record(self, record: TraceRecord) -> None:
        if not self._changed_by(record):
            return
        change = ProcessStateChange(record.at, self.current_state(), self.load)
        if self.changes and self.changes[-1][1:] == change[1:]:
            return
        if self.changes and self.changes[-1].at == record.at:
            self.changes.pop()
        self.changes.append(change)

    def _changed_by(self, record: TraceRecord) -> bool:
        match record.type:
            case TraceEventType.STARTED:
                self.running, self.settled, self.load = True, False, 0
            case TraceEventType.CRASHED | TraceEventType.GONE:
                self.running = False
                self.asleep.clear()
            case TraceEventType.PAUSED | TraceEventType.STALLED:
                self.asleep.add(record.type)
            case TraceEventType.RESUMED | TraceEventType.WOKEN:
                self.asleep.discard(SLEEP_EVENT_OF[record.type])
            case TraceEventType.ASSIGNMENT:
                assert isinstance(record.detail, tuple)
                self.load = len(record.detail[1])
            case TraceEventType.LISTENER:
                call, partitions = _split_detail(record.detail)
                if call == ListenerMethod.ASSIGNED.value:
                    self.settled = True
                elif len(partitions) >= self.load:  # everything is given up
                    self.settled = False
            case _:
                return False
        return True


def build_process_timelines(
    trace: Iterable[TraceRecord],
) -> dict[str, tuple[ProcessStateChange, ...]]:
    """Returns the state changes of each process, in the order of their first start."""
    timelines: dict[str, _ProcessTimeline] = {}
    for record in trace:
        if record.type is TraceEventType.STARTED:
            timelines.setdefault(record.subject, _ProcessTimeline())
        timeline = timelines.get(record.subject)
        if timeline is not None:
            timeline.read_record(record)
    return {name: tuple(timeline.changes) for name, timeline in timelines.items()}
