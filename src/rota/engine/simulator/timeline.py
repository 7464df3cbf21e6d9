"""From a trace: what each process was doing when, and what nobody read."""

from __future__ import annotations

import enum
import re
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

#: The topics, or the pattern, that a process subscribes to.
SubscribedTopics: TypeAlias = tuple[tuple[str, ...], str | None]


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
            read.update(split_detail(record.detail)[1])
    # a group that reads nothing, because of a wrong pattern, is not a success
    subscribed = found.topics if found.topics or read else found.counts.keys()
    return tuple(
        partition
        for topic in sorted(subscribed)
        for partition in (TopicPartition(topic, n) for n in range(found.counts[topic]))
        if partition not in read
    )


def split_detail(detail: object) -> tuple[object, tuple[TopicPartition, ...]]:
    assert isinstance(detail, tuple)
    first, partitions = detail
    return first, partitions


class ProcessState(enum.Enum):
    """The state of a process; later values are more important to show."""

    READING = "reading"
    IDLE = "idle"  # a member without partitions
    JOINING = "joining"  # waits for its assignment
    ASLEEP = "asleep"  # frozen, or outside of poll
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
                self.load = len(split_detail(record.detail)[1])
            case TraceEventType.LISTENER:
                call, partitions = split_detail(record.detail)
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
