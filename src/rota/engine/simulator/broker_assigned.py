"""Groups whose partitions the broker assigns: consumer groups (KIP-848), share groups (KIP-932).

A scenario's joins, leaves, crashes and deploys become the entries and the log lines that the group
coordinator of Kafka 4.3 writes for them, in its order. When the coordinator of Rota has these
protocols, it will replace this module.

Every change of the members raises the group's epoch, and a heartbeat of any member computes the
target assignment of this epoch. Each member reaches its target with its own heartbeats. In a
consumer group it first revokes partitions, and gets new ones when their owners have released them;
in a share group several members read a partition, and nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any, NamedTuple

from rota.engine.assignors.uniform import UniformAssignor
from rota.engine.formats.journal_modern import RECORD_TYPE_BY_NUMBER
from rota.engine.history.generations import format_topic_id
from rota.engine.model import consumer_group_entry as consumer
from rota.engine.model import share_streams_entry as share
from rota.engine.model.consumer_group_entry import (
    STABLE,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
)
from rota.engine.model.journal_entry import JournalEntry, OffsetCommitEntry
from rota.engine.model.member import Subscription
from rota.engine.model.topic import Cluster, Partitions, TopicPartition, values_by_topic
from rota.engine.simulator import scenario as events
from rota.engine.simulator.process import SECOND, TrafficReader
from rota.engine.simulator.scenario import MemberSpec, Scenario, ScenarioEvent
from rota.engine.simulator.scheduler import ScheduledAction, Scheduler
from rota.engine.simulator.seeded_random import SeededRandom, hash_text, make_uuid, mix_numbers
from rota.engine.simulator.simulation import make_host, make_pod_suffix
from rota.engine.simulator.trace import SimulatedLogLine
from rota.errors import InputError

#: Kafka's defaults, as in group.consumer.heartbeat.interval.ms, group.consumer.session.timeout.ms
#: and group.consumer.assignment.interval.ms.
HEARTBEAT_INTERVAL = 5 * SECOND
SESSION_TIMEOUT = 45 * SECOND
ASSIGNMENT_INTERVAL = SECOND
FIRST_EPOCH = 1  # the epoch of a new group, before its first member
RECONCILIATION_MS = (80, 400)  # a member commits and revokes, or starts to read, within this
REQUEST_MS = (2, 5)
#: The time in which the share coordinator creates the state of a share group's partitions.
INITIALIZATION_MS = (1_500, 3_000)


class _SavedState(NamedTuple):
    """A member as the coordinator saves it; each partition has the epoch that it was given in."""

    epoch: int = 0
    previous_epoch: int = 0
    state: int = STABLE
    assigned: Mapping[TopicPartition, int] = {}
    revoking: Mapping[TopicPartition, int] = {}


_NEW_MEMBER = _SavedState()


@dataclass(slots=True, eq=False)
class _Member:
    """A process and its saved state."""

    member_id: str
    spec: MemberSpec
    reader: TrafficReader
    heartbeat: ScheduledAction
    commit: ScheduledAction
    sent_at: int = 0
    saved: _SavedState = _NEW_MEMBER
    owned: frozenset[TopicPartition] = frozenset()  # the partitions that the process reads


class _RecordNumbers(NamedTuple):
    """The record types of a group's parts."""

    epoch: int
    member: int
    target: int
    member_target: int
    member_state: int


class ConsumerGroupSimulation:
    """Runs a scenario of a consumer group from time ``start`` on."""

    kind = "consumer"
    assignor = "uniform"
    numbers = _RecordNumbers(epoch=3, member=5, target=6, member_target=7, member_state=8)

    def __init__(self, scenario: Scenario, *, seed: int, start: int) -> None:
        self.journal: list[tuple[int, JournalEntry]] = []
        self.log: list[SimulatedLogLine] = []
        self._scenario = scenario
        self._group = scenario.group
        self._seed = seed
        self._end = start + scenario.duration
        self._random = SeededRandom(seed, hash_text(scenario.group))
        self._scheduler = Scheduler()
        self._scheduler.now = start
        self._topic_ids = {topic: make_topic_id(topic) for topic in scenario.topics}
        self._specs: dict[str, MemberSpec] = {}
        #: The running processes by name, and the group's members by member id.
        self._running: dict[str, _Member] = {}
        self._members: dict[str, _Member] = {}
        self._epoch = self._target_epoch = FIRST_EPOCH
        #: A number in place of Kafka's hash of the subscribed topics.
        self._metadata_hash = 0
        self._target_at = start - ASSIGNMENT_INTERVAL
        self._targets: dict[str, frozenset[TopicPartition]] = {}
        self._committed: dict[TopicPartition, int] = {}
        for spec in scenario.members:
            self._specs |= dict.fromkeys(spec.names, spec)
            for number, name in enumerate(spec.names):
                self._later(spec.joins + number * spec.join_interval, self._start, name)
        for event in scenario.events:
            self._schedule_event(event)

    def run(self) -> None:
        while (due := self._scheduler.next_at()) is not None and due <= self._end:
            self._scheduler.run_next()

    def _schedule_event(self, event: ScenarioEvent) -> None:
        match event:
            case events.JoinEvent():
                self._specs |= event.specs
                for name in event.names:
                    self._later(event.at, self._start, name)
            case events.LeaveEvent() | events.CrashEvent():
                leaves = isinstance(event, events.LeaveEvent)
                for name in event.names:
                    self._later(event.at, self._leave if leaves else self._crash, name)
            case events.DeployEvent(surge=False):
                for number, name in enumerate(event.names):
                    at = event.at + number * (event.downtime + event.interval)
                    self._later(at, self._leave, name)
                    self._later(at + event.downtime, self._start, name)
            case _:
                problem = f"{type(event).__name__} is not simulated in a {self.kind} group"
                raise InputError(f"{self._group}: {problem}")

    def _later(
        self, delay: int, action: Callable[[Any], None], argument: object
    ) -> ScheduledAction:
        return self._scheduler.add(self._scheduler.now + delay, action, argument)

    def _reschedule(self, action: ScheduledAction, delay: int) -> None:
        self._scheduler.reschedule(action, self._scheduler.now + delay)

    def _write(self, entry_type: Callable[..., JournalEntry], **fields: object) -> None:
        self.journal.append((self._scheduler.now, entry_type(group=self._group, **fields)))

    def _save(self, number: int, **fields: object) -> None:
        """Writes an entry of this record type."""
        self._write(RECORD_TYPE_BY_NUMBER[number].saved, **fields)

    def _log(self, text: str) -> None:
        line = f"[GroupId {self._group}] {text}."
        self.log.append(SimulatedLogLine(self._scheduler.now, self._group, line))

    # processes

    def _start(self, name: str) -> None:
        spec = self._specs[name]
        bits = mix_numbers(self._seed, hash_text(name), self._scheduler.now)
        member = _Member(
            member_id=_make_member_id(bits),
            spec=spec,
            reader=TrafficReader(self._scenario.traffic, spec.capacity, self._committed.get),
            heartbeat=ScheduledAction(self._handle_heartbeat, name, None, is_periodic=False),
            commit=self._later(spec.commit_interval, self._commit_again, name),
        )
        self._running[name] = self._members[member.member_id] = member
        self._log(
            f"Member {member.member_id} joins the {self.kind} group using the {self.kind} protocol"
        )
        self._save(
            self.numbers.member,
            member_id=member.member_id,
            rack=None,
            client_id=spec.client_id.format(
                group=self._group, name=name, start=make_pod_suffix(bits)
            ),
            client_host=make_host(bits),
            topics=tuple(sorted(spec.topics)),
            **self._member_settings(member),
        )
        self._raise_epoch()
        self._handle_heartbeat(name)

    def _leave(self, name: str) -> None:
        if name in self._running:  # a deploy also starts the members that have crashed
            self._commit(self._running[name])
            delay = self._random.between(*REQUEST_MS)
            self._end_process(name, f"left the {self.kind} group", delay)

    def _crash(self, name: str) -> None:
        passed = self._scheduler.now - self._running[name].sent_at
        reason = "fenced from the group because the member session expired"
        self._end_process(name, reason, SESSION_TIMEOUT - passed)

    def _end_process(self, name: str, reason: str, removed_after: int) -> None:
        member = self._running.pop(name)
        self._scheduler.cancel(member.heartbeat)
        self._scheduler.cancel(member.commit)
        self._later(removed_after, self._remove, (member, reason))

    def _commit_again(self, name: str) -> None:
        member = self._running[name]
        self._commit(member)
        self._reschedule(member.commit, member.spec.commit_interval)

    def _commit(self, member: _Member) -> None:
        now = self._scheduler.now
        member.reader.advance(now)
        for partition, position in sorted(member.reader.positions().items()):
            self._committed[partition] = position.offset
            self._write(
                OffsetCommitEntry,
                topic=partition.topic,
                partition=partition.partition,
                offset=position.offset,
                commit_timestamp=now,
                topic_id=self._topic_ids[partition.topic],
            )

    def _reconcile(self, name: str) -> None:
        """Takes the partitions of the last heartbeat's response; the next heartbeat confirms it."""
        member = self._running.get(name)
        if member is not None:
            assigned = frozenset(member.saved.assigned)
            if member.owned - assigned:
                self._commit(member)
            member.reader.advance(self._scheduler.now)
            member.reader.set_partitions(sorted(assigned), self._scheduler.now)
            member.owned = assigned
            self._reschedule(member.heartbeat, self._random.between(*REQUEST_MS))

    # the coordinator

    def _handle_heartbeat(self, name: str) -> None:
        member = self._running[name]
        member.sent_at = now = self._scheduler.now
        if self._target_epoch != self._epoch and now - self._target_at >= ASSIGNMENT_INTERVAL:
            self._compute_target()
        previous, saved = member.saved, self._next_state(member)
        if saved != previous:
            member.saved = saved
            self._save_state(member)
        if member.owned != saved.assigned.keys() or not previous.epoch:
            self._later(self._random.between(*RECONCILIATION_MS), self._reconcile, name)
        self._reschedule(member.heartbeat, HEARTBEAT_INTERVAL)

    def _raise_epoch(self) -> None:
        self._epoch += 1
        topics = {topic for member in self._members.values() for topic in member.spec.topics}
        digest = mix_numbers(*(hash_text(topic) for topic in sorted(topics)))
        previous, self._metadata_hash = self._metadata_hash, digest - 2**63 if topics else 0
        self._log_epoch(previous)
        fields = {"epoch": self._epoch, "metadata_hash": self._metadata_hash}
        self._save(self.numbers.epoch, **fields)

    def _log_epoch(self, previous_hash: int) -> None:
        self._log(f"Bumped group epoch to {self._epoch} with metadata hash {self._metadata_hash}")

    def _remove(self, removed: tuple[_Member, str]) -> None:
        member, reason = removed
        self._log(f"Member {member.member_id} {reason}")
        numbers = self.numbers
        for number in (numbers.member_state, numbers.member_target, numbers.member):
            self._write(RECORD_TYPE_BY_NUMBER[number].forgotten, member_id=member.member_id)
        del self._members[member.member_id]
        self._raise_epoch()
        self._targets.pop(member.member_id, None)

    def _compute_target(self) -> None:
        self._target_epoch, self._target_at = self._epoch, self._scheduler.now
        targets = self._assign()
        for member, target in sorted(targets.items()):
            if target != self._targets.get(member):
                topics = self._target_topics(target)
                self._save(self.numbers.member_target, member_id=member, topics=topics)
        self._targets = targets
        self._save(self.numbers.target, epoch=self._epoch, timestamp=self._target_at)
        target_of = f"Computed a new target assignment for epoch {self._epoch}"
        self._log(f"{target_of} with '{self.assignor}' assignor in 0ms")

    def _target_topics(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[consumer.TargetAssignmentTopic, ...]:
        return tuple(
            consumer.TargetAssignmentTopic(topic_id=self._topic_ids[topic], partitions=numbers)
            for topic, numbers in Partitions.of(sorted(partitions)).by_topic().items()
        )

    def _member_settings(self, member: _Member) -> dict[str, object]:
        """Returns the fields of a member that only a consumer group has."""
        own = {"group_instance_id": None, "regex": "", "assignor": None}
        return {**own, "rebalance_timeout": member.spec.max_poll}

    def _save_state(self, member: _Member) -> None:
        saved = member.saved
        self._save(
            self.numbers.member_state,
            member_id=member.member_id,
            epoch=saved.epoch,
            previous_epoch=saved.previous_epoch,
            state=saved.state,
            assigned=self._current_topics(saved.assigned),
            revoking=self._current_topics(saved.revoking),
        )

    def _current_topics(
        self, partitions: Mapping[TopicPartition, int]
    ) -> tuple[consumer.CurrentAssignmentTopic, ...]:
        return tuple(
            consumer.CurrentAssignmentTopic(
                topic_id=self._topic_ids[topic],
                partitions=tuple(number for number, _ in pairs),
                epochs=tuple(epoch for _, epoch in pairs),
            )
            for topic, pairs in values_by_topic(dict(sorted(partitions.items()))).items()
        )

    def _next_state(self, member: _Member) -> _SavedState:
        """Returns the state after a heartbeat, as Kafka's CurrentAssignmentBuilder computes it."""
        old = member.saved
        if old.state == STABLE and old.epoch == self._target_epoch:
            return old
        if old.state == UNREVOKED_PARTITIONS and member.owned & old.revoking.keys():
            return old
        target = self._targets.get(member.member_id, frozenset())
        kept = {one: epoch for one, epoch in old.assigned.items() if one in target}
        revoking = {one: epoch for one, epoch in old.assigned.items() if one not in target}
        if member.owned & revoking.keys():
            return _SavedState(old.epoch, old.epoch, UNREVOKED_PARTITIONS, kept, revoking)
        others = [one.saved for one in self._members.values() if one is not member]
        held = {one for saved in others for one in (*saved.assigned, *saved.revoking)}
        given = dict.fromkeys(sorted(target - kept.keys() - held), self._target_epoch)
        state = UNRELEASED_PARTITIONS if target & held else STABLE
        return _SavedState(self._target_epoch, old.epoch, state, kept | given)

    def _assign(self) -> dict[str, frozenset[TopicPartition]]:
        group = {
            member_id: Subscription(
                topics=member.spec.topics,
                owned=Partitions.of(sorted(self._targets.get(member_id, ()))),
            )
            for member_id, member in self._members.items()
        }
        cluster = Cluster(self._scenario.topics)
        assigned = UniformAssignor(self._topic_ids).assign(cluster, group)
        return {member_id: frozenset(assigned[member_id].partitions) for member_id in group}


class ShareGroupSimulation(ConsumerGroupSimulation):
    """The same for a share group; all its members subscribe to the same topics."""

    kind = "share"
    assignor = "org.apache.kafka.coordinator.group.assignor.SimpleAssignor@468a5d8a"
    numbers = _RecordNumbers(epoch=11, member=10, target=12, member_target=13, member_state=14)
    _initialized: Sequence[TopicPartition] = ()  # those with a share state; others stay free
    _has_new_partitions = False  # partitions were initialized after the last heartbeat

    def _start(self, name: str) -> None:
        super()._start(name)
        if self._epoch == FIRST_EPOCH + 1:  # of the first member
            states = tuple(
                share.ShareStateTopic(
                    topic_id=self._topic_ids[topic],
                    topic=topic,
                    partitions=tuple(range(self._scenario.topics[topic])),
                )
                for topic in self._specs[name].topics
            )
            self._save_initialization(initializing=states)
            self._later(self._random.between(*INITIALIZATION_MS), self._initialize, states)

    def _initialize(self, topics: tuple[share.ShareStateTopic, ...]) -> None:
        self._save_initialization(initialized=topics)
        self._has_new_partitions = True
        self._initialized = [
            TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions
        ]

    def _save_initialization(self, **topics: tuple[share.ShareStateTopic, ...]) -> None:
        none = {"initializing": (), "initialized": (), "deleting": ()}
        self._write(share.ShareStatePartitionMetadataEntry, **none | topics)

    def _commit(self, member: _Member) -> None:
        """Writes nothing: the share coordinator saves what was read, in another topic."""

    def _handle_heartbeat(self, name: str) -> None:
        if self._has_new_partitions:
            self._has_new_partitions = False
            self._raise_epoch()
        super()._handle_heartbeat(name)

    def _log_epoch(self, previous_hash: int) -> None:
        if self._metadata_hash != previous_hash:
            self._log(f"Computed new metadata hash: {self._metadata_hash}")
        if self._targets.keys() <= self._members.keys():  # otherwise a member was removed
            super()._log_epoch(previous_hash)

    def _member_settings(self, member: _Member) -> dict[str, object]:
        topics = ", ".join(sorted(member.spec.topics))
        self._log(f"Member {member.member_id} updated its subscribed topics to: [{topics}]")
        return {}

    def _save_state(self, member: _Member) -> None:
        epoch, previous_epoch, state, partitions, _ = member.saved
        self._save(
            self.numbers.member_state,
            member_id=member.member_id,
            epoch=epoch,
            previous_epoch=previous_epoch,
            state=state,
            assigned=self._target_topics(partitions),
        )
        names = ", ".join(
            f"{format_topic_id(self._topic_ids[topic])}-{number}" for topic, number in partitions
        )
        self._log(
            f"Member {member.member_id} new assignment state: epoch={epoch}, "
            f"previousEpoch={previous_epoch}, state=STABLE, assignedPartitions=[{names}]"
        )

    def _next_state(self, member: _Member) -> _SavedState:
        if member.saved.epoch == self._target_epoch:
            return member.saved
        target = sorted(self._targets.get(member.member_id, ()))
        given = dict.fromkeys(target, self._target_epoch)
        return _SavedState(self._target_epoch, member.saved.epoch, STABLE, given)

    def _assign(self) -> dict[str, frozenset[TopicPartition]]:
        previous = {member: self._targets.get(member, frozenset()) for member in self._members}
        return assign_simple(previous, self._initialized)


def assign_simple(
    previous: Mapping[str, frozenset[TopicPartition]], partitions: Sequence[TopicPartition]
) -> dict[str, frozenset[TopicPartition]]:
    """Assigns as Kafka's SimpleAssignor, for members with the same topics: each partition to the
    same number of members, and to all members equally many, or one less. Members and partitions
    are taken in order; Kafka's order is that of hash tables.
    """
    members = sorted(previous)
    readers = -(-len(members) // len(partitions)) if partitions else 0
    places = readers * len(partitions)
    ends = [-(-places * number // len(members)) for number in range(len(members) + 1)]
    room = dict(zip(members, (end - begin for begin, end in pairwise(ends)), strict=True))
    missing = dict.fromkeys(partitions, readers)
    assigned: dict[str, set[TopicPartition]] = {member: set() for member in members}
    for kept in (True, False):
        for member in members:
            for partition in sorted(partitions, key=missing.__getitem__, reverse=True):
                may_add = (
                    partition in previous[member] if kept else partition not in assigned[member]
                )
                if may_add and room[member] and missing[partition]:
                    assigned[member].add(partition)
                    room[member] -= 1
                    missing[partition] -= 1
    return {member: frozenset(assigned[member]) for member in members}


def make_topic_id(topic: str) -> bytes:
    return _make_id(hash_text(topic))


def _make_id(number: int) -> bytes:
    return bytes.fromhex(make_uuid(number).replace("-", ""))


def _make_member_id(number: int) -> str:
    """Returns a member id as a client makes it: a UUID in base64 that does not begin with "-"."""
    ids = (format_topic_id(_make_id(number + attempt)) for attempt in count())
    return next(one for one in ids if not one.startswith("-"))
