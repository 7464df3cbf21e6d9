"""Timelines from a trace: when partitions were not read, and what each process was doing.

A partition is stopped while no member reads it. A member reads its partitions unless its rebalance
listener is being called to revoke them, or the process is crashed, frozen, outside of poll for a
stall, or busy for longer than its poll interval allows.

A partition that was never read is stopped too, from the moment at which it exists and a member
subscribes to it; but the time of the group's first rebalance does not count. If that rebalance
never ends, the time counts from the start of the first subscriber.
"""

from __future__ import annotations

import enum
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
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

#: The topics, or the pattern, that a process subscribes to.
SubscribedTopics: TypeAlias = tuple[tuple[str, ...], str | None]


class PartitionStop(NamedTuple):
    """A time in which a partition was not read, in milliseconds from the start."""

    partition: TopicPartition
    since: int
    until: int
    #: False if the simulation ended first.
    ended: bool
    #: The process that read it before; empty if none did.
    owner: str = ""

    @property
    def time(self) -> int:
        """Length of the stop, in milliseconds."""
        return self.until - self.since


class StopReport(NamedTuple):
    #: In the order in which they ended.
    stops: tuple[PartitionStop, ...]
    #: Partitions that a member subscribed to and nobody ever read.
    unread: tuple[TopicPartition, ...]
    #: Topics that no member subscribed to.
    unsubscribed: tuple[str, ...]


class _SubscribedPartitions:
    """The partitions that a process subscribes to, running or ended."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.partitions: frozenset[TopicPartition] = frozenset()
        self._counts = dict(topics)
        self._subscriptions: dict[str, SubscribedTopics] = {}
        #: The number of processes with each subscription.
        self._subscribers: Counter[SubscribedTopics] = Counter()
        self._topics: dict[str, int] = {}
        self._ever_subscribed: set[str] = set()

    def read_record(self, record: TraceRecord) -> bool:
        """Returns whether the partitions changed."""
        assert isinstance(record.detail, tuple)
        if record.type is TraceEventType.TOPICS:
            self._counts = dict(record.detail)
        elif not self._subscribe(record.subject, record.detail):
            return False
        wanted = {
            topic: count
            for topic, count in self._counts.items()
            if any(_matches_topic(topic, one) for one in self._subscribers)
        }
        self._ever_subscribed.update(wanted)
        if wanted == self._topics:
            return False
        self._topics = wanted
        self.partitions = _list_partitions(wanted)
        return True

    def _subscribe(self, name: str, subscription: SubscribedTopics) -> bool:
        """Records a subscription; returns whether the group's set of subscriptions changed."""
        before = self._subscriptions.get(name)
        self._subscriptions[name] = subscription
        if before == subscription:
            return False
        self._subscribers[subscription] += 1
        if before is not None:
            self._subscribers[before] -= 1
            if not self._subscribers[before]:
                del self._subscribers[before]
                return True
        return self._subscribers[subscription] == 1

    def never_subscribed(self) -> tuple[str, ...]:
        """Returns the topics that no process ever subscribed to."""
        return tuple(sorted(self._counts.keys() - self._ever_subscribed))

    def all_partitions(self) -> frozenset[TopicPartition]:
        return _list_partitions(self._counts)


def _matches_topic(topic: str, subscription: SubscribedTopics) -> bool:
    topics, pattern = subscription
    return topic in topics if pattern is None else re.fullmatch(pattern, topic) is not None


def _list_partitions(counts: Mapping[str, int]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)
    )


class _StopFinder:
    def __init__(self, topics: Mapping[str, int], opened: int | None) -> None:
        self.stops: list[PartitionStop] = []
        self._subscribed = _SubscribedPartitions(topics)
        #: The end of the group's first rebalance; None once it has passed.
        self._opened = opened
        self._first_start: int | None = None
        self._owned: dict[str, frozenset[TopicPartition]] = defaultdict(frozenset)
        self._asleep: dict[str, set[TraceEventType]] = defaultdict(set)
        self._reading: dict[str, frozenset[TopicPartition]] = {}
        self._readers: Counter[TopicPartition] = Counter()
        self._since: dict[TopicPartition, int] = {}
        #: The last process that read each partition.
        self._last: dict[TopicPartition, str] = {}

    def read_record(self, record: TraceRecord) -> None:
        if self._opened is not None and record.at > self._opened:
            self._start_counting()
        if record.type in SUBSCRIPTION_EVENTS:
            if self._first_start is None and record.type is TraceEventType.STARTED:
                self._first_start = record.at
            if self._subscribed.read_record(record):
                self._update_subscribed(record.at)
        elif self._changed_by(record):
            name = record.subject
            reads = frozenset() if self._asleep[name] else self._owned[name]
            self._read(name, reads, record.at)

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

    def _start_counting(self) -> None:
        """Counts stops from the end of the first rebalance on."""
        opened, self._opened = self._opened, None
        if opened is not None:
            self._update_subscribed(opened)

    def _update_subscribed(self, now: int) -> None:
        wanted = self._subscribed.partitions
        for partition in sorted(self._since.keys() - wanted):
            self._stop(partition, now)
        if self._opened is None:
            for partition in wanted:
                if not self._readers[partition]:
                    self._since.setdefault(partition, now)

    def _stop(self, partition: TopicPartition, now: int, *, ended: bool = True) -> None:
        since = self._since.pop(partition, now)
        if since < now:
            owner = self._last.get(partition, "")
            self.stops.append(PartitionStop(partition, since, now, ended, owner))

    def _read(self, name: str, reads: frozenset[TopicPartition], now: int) -> None:
        before = self._reading.get(name, frozenset())
        self._reading[name] = reads
        for partition in sorted(before - reads):
            self._readers[partition] -= 1
            if not self._readers[partition] and partition in self._subscribed.partitions:
                self._since[partition] = now
        for partition in sorted(reads - before):
            self._readers[partition] += 1
            self._stop(partition, now)
            self._last[partition] = name

    def end(self, now: int) -> StopReport:
        self._start_counting()
        if not self._last and not self._subscribed.partitions and self._first_start is not None:
            # a group that reads nothing, because of a wrong pattern, is not a success
            self._since = dict.fromkeys(self._subscribed.all_partitions(), self._first_start)
        unread = tuple(sorted(self._since.keys() - self._last.keys()))
        for partition in sorted(self._since):
            self._stop(partition, now, ended=False)
        return StopReport(tuple(self.stops), unread, self._subscribed.never_subscribed())


def _split_detail(detail: object) -> tuple[object, tuple[TopicPartition, ...]]:
    assert isinstance(detail, tuple)
    first, partitions = detail
    return first, partitions


def find_stops(
    trace: Iterable[TraceRecord], topics: Mapping[str, int], opened: int | None, end: int
) -> StopReport:
    """Finds every time in which a partition was not read.

    :param topics: the partition counts at the start
    :param opened: the end of the group's first rebalance; None if it did not end
    """
    finder = _StopFinder(topics, opened)
    for record in trace:
        finder.read_record(record)
    return finder.end(end)


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
