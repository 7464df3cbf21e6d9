"""Groups whose partitions the broker assigns: consumer groups (KIP-848).

A scenario's joins, leaves, crashes and deploys become the entries and the log lines that the group
coordinator of Kafka 4.3 writes for them, in its order. When the coordinator of Rota has the
consumer group protocol, it will replace this module.

Every change of the members raises the group's epoch, and a heartbeat of any member computes the
target assignment of this epoch. Each member reaches its target with its own heartbeats: it first
revokes partitions, and gets new ones when their owners have released them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from rota.engine.assignors.uniform import UniformAssignor
from rota.engine.history.generations import format_topic_id
from rota.engine.model.consumer_group_entry import (
    STABLE,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    ConsumerGroupMetadataEntry,
    CurrentAssignmentTopic,
    CurrentMemberAssignmentEntry,
    CurrentMemberAssignmentTombstone,
    MemberMetadataEntry,
    MemberMetadataTombstone,
    TargetAssignmentMemberEntry,
    TargetAssignmentMemberTombstone,
    TargetAssignmentMetadataEntry,
    TargetAssignmentTopic,
)
from rota.engine.model.journal_entry import JournalEntry, OffsetCommitEntry
from rota.engine.model.member import Subscription
from rota.engine.model.topic import Cluster, Partitions, TopicPartition, values_by_topic
from rota.engine.simulator.process import SECOND, TrafficReader
from rota.engine.simulator.scenario import (
    CrashEvent,
    DeployEvent,
    JoinEvent,
    LeaveEvent,
    MemberSpec,
    Scenario,
    ScenarioEvent,
)
from rota.engine.simulator.scheduler import ScheduledAction, Scheduler
from rota.engine.simulator.seeded_random import SeededRandom, hash_text, make_uuid, mix_numbers
from rota.engine.simulator.simulation import make_host, make_pod_suffix
from rota.engine.simulator.trace import SimulatedLogLine
from rota.errors import InputError

#: Kafka's defaults: group.consumer.heartbeat.interval.ms, group.consumer.session.timeout.ms and
#: group.consumer.assignment.interval.ms.
HEARTBEAT_INTERVAL = 5 * SECOND
SESSION_TIMEOUT = 45 * SECOND
ASSIGNMENT_INTERVAL = SECOND
#: The epoch of a new group, before its first member.
FIRST_EPOCH = 1
#: The time in which a member commits and revokes partitions, or starts to read new ones.
RECONCILIATION_MS = (80, 400)
REQUEST_MS = (2, 5)


class MemberState(NamedTuple):
    """A member as the coordinator saves it; each partition has the epoch that it was given in."""

    epoch: int = 0
    previous_epoch: int = 0
    state: int = STABLE
    assigned: Mapping[TopicPartition, int] = {}
    revoking: Mapping[TopicPartition, int] = {}


NEW_MEMBER = MemberState()


@dataclass(slots=True, eq=False)
class _Member:
    """A process and its saved state. While nothing changes, its heartbeats are not simulated."""

    member_id: str
    spec: MemberSpec
    reader: TrafficReader
    heartbeat: ScheduledAction
    commit: ScheduledAction
    sent_at: int
    saved: MemberState = NEW_MEMBER
    #: The partitions that the process consumes.
    owned: frozenset[TopicPartition] = frozenset()


class ConsumerGroupSimulation:
    """Runs a scenario of a consumer group from time ``start`` on."""

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
        self._target_at = start - ASSIGNMENT_INTERVAL
        self._targets: dict[str, frozenset[TopicPartition]] = {}
        self._committed: dict[TopicPartition, int] = {}
        for spec in scenario.members:
            for number, name in enumerate(spec.names):
                self._specs[name] = spec
                self._later(spec.joins + number * spec.join_interval, self._start, name)
        for event in scenario.events:
            self._schedule_event(event)

    def run(self) -> None:
        while (due := self._scheduler.next_at()) is not None and due <= self._end:
            self._scheduler.run_next()

    @property
    def _now(self) -> int:
        return self._scheduler.now

    def _later(self, delay: int, action: Callable[[str], None], name: str) -> None:
        self._scheduler.add(self._now + delay, action, name)

    def _schedule_event(self, event: ScenarioEvent) -> None:
        match event:
            case JoinEvent():
                self._specs |= event.specs
                for name in event.names:
                    self._later(event.at, self._start, name)
            case LeaveEvent():
                for name in event.names:
                    self._later(event.at, self._leave, name)
            case CrashEvent():
                for name in event.names:
                    self._later(event.at, self._crash, name)
            case DeployEvent(surge=False):
                for number, name in enumerate(event.names):
                    at = event.at + number * (event.downtime + event.interval)
                    self._later(at, self._leave, name)
                    self._later(at + event.downtime, self._start, name)
            case _:
                problem = f"{type(event).__name__} is not simulated in a consumer group"
                raise InputError(f"{self._group}: {problem}")

    def _write(self, *entries: JournalEntry) -> None:
        self.journal += ((self._now, entry) for entry in entries)

    def _log(self, text: str) -> None:
        line = f"[GroupId {self._group}] {text}"
        self.log.append(SimulatedLogLine(self._now, self._group, line))

    # processes

    def _start(self, name: str) -> None:
        spec, scheduler = self._specs[name], self._scheduler
        bits = mix_numbers(self._seed, hash_text(name), self._now)
        member = _Member(
            member_id=_make_member_id(bits),
            spec=spec,
            reader=TrafficReader(self._scenario.traffic, spec.capacity, self._committed.get),
            heartbeat=ScheduledAction(self._handle_heartbeat, name, None, is_periodic=False),
            commit=scheduler.add(self._now + spec.commit_interval, self._commit_again, name),
            sent_at=self._now,
        )
        self._running[name] = self._members[member.member_id] = member
        self._log(
            f"Member {member.member_id} joins the consumer group using the consumer protocol."
        )
        self._write(
            MemberMetadataEntry(
                group=self._group,
                member_id=member.member_id,
                group_instance_id=None,
                rack=None,
                client_id=spec.client_id.format(
                    group=self._group, name=name, start=make_pod_suffix(bits)
                ),
                client_host=make_host(bits),
                topics=tuple(sorted(spec.topics)),
                regex="",
                rebalance_timeout=spec.max_poll,
                assignor=None,
            )
        )
        self._raise_epoch()
        self._handle_heartbeat(name)

    def _stop(self, name: str) -> _Member:
        member = self._running.pop(name)
        self._scheduler.cancel(member.heartbeat)
        self._scheduler.cancel(member.commit)
        return member

    def _leave(self, name: str) -> None:
        member = self._stop(name)
        self._commit(member)
        self._scheduler.add(self._now + self._random.between(*REQUEST_MS), self._close, member)

    def _close(self, member: _Member) -> None:
        self._log(f"Member {member.member_id} left the consumer group.")
        self._remove(member)

    def _crash(self, name: str) -> None:
        member = self._stop(name)
        passed = self._now - member.sent_at
        sent_at = self._now - passed % HEARTBEAT_INTERVAL
        self._scheduler.add(sent_at + SESSION_TIMEOUT, self._expire, member)

    def _expire(self, member: _Member) -> None:
        reason = "the member session expired"
        self._log(f"Member {member.member_id} fenced from the group because {reason}.")
        self._remove(member)

    def _commit_again(self, name: str) -> None:
        member = self._running[name]
        self._commit(member)
        self._scheduler.reschedule(member.commit, self._now + member.spec.commit_interval)

    def _commit(self, member: _Member) -> None:
        member.reader.advance(self._now)
        for partition, position in sorted(member.reader.positions().items()):
            self._committed[partition] = position.offset
            self._write(
                OffsetCommitEntry(
                    group=self._group,
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=position.offset,
                    commit_timestamp=self._now,
                    topic_id=self._topic_ids[partition.topic],
                )
            )

    def _reconcile(self, name: str) -> None:
        """Takes the partitions of the last heartbeat's response; the next heartbeat confirms it."""
        member = self._running.get(name)
        if member is None:
            return
        assigned = frozenset(member.saved.assigned)
        if member.owned - assigned:
            self._commit(member)
        member.reader.advance(self._now)
        member.reader.set_partitions(sorted(assigned), self._now)
        member.owned = assigned
        self._send_heartbeat(member, self._random.between(*REQUEST_MS))

    def _send_heartbeat(self, member: _Member, delay: int) -> None:
        self._scheduler.reschedule(member.heartbeat, self._now + delay)

    # the coordinator

    def _handle_heartbeat(self, name: str) -> None:
        member = self._running[name]
        member.sent_at = self._now
        self._compute_target()
        previous, saved = member.saved, self._next_state(member)
        if saved != previous:
            member.saved = saved
            self._write(
                CurrentMemberAssignmentEntry(
                    group=self._group,
                    member_id=member.member_id,
                    epoch=saved.epoch,
                    previous_epoch=saved.previous_epoch,
                    state=saved.state,
                    assigned=self._current_topics(saved.assigned),
                    revoking=self._current_topics(saved.revoking),
                )
            )
        if member.owned != saved.assigned.keys() or not previous.epoch:
            self._later(self._random.between(*RECONCILIATION_MS), self._reconcile, name)
        elif saved.state != STABLE or saved.epoch != self._epoch:
            self._send_heartbeat(member, HEARTBEAT_INTERVAL)

    def _raise_epoch(self) -> None:
        """Raises the group's epoch; all members that wait will see it in their next heartbeat."""
        self._epoch += 1
        topics = [topic for member in self._members.values() for topic in member.spec.topics]
        digest = mix_numbers(*(hash_text(topic) for topic in sorted(set(topics))))
        metadata_hash = digest - 2**63 if topics else 0  # a number in place of Kafka's hash
        self._log(f"Bumped group epoch to {self._epoch} with metadata hash {metadata_hash}.")
        self._write(
            ConsumerGroupMetadataEntry(
                group=self._group, epoch=self._epoch, metadata_hash=metadata_hash
            )
        )
        for member in self._running.values():
            if not member.heartbeat.pending and member.owned == member.saved.assigned.keys():
                passed = (self._now - member.sent_at) % HEARTBEAT_INTERVAL
                self._send_heartbeat(member, HEARTBEAT_INTERVAL - passed)

    def _remove(self, member: _Member) -> None:
        key = {"group": self._group, "member_id": member.member_id}
        self._write(
            CurrentMemberAssignmentTombstone(**key),
            TargetAssignmentMemberTombstone(**key),
            MemberMetadataTombstone(**key),
        )
        del self._members[member.member_id]
        self._targets.pop(member.member_id, None)
        self._raise_epoch()

    def _compute_target(self) -> None:
        """Computes the target of the group's epoch, unless the last one is too recent."""
        if self._target_epoch == self._epoch or self._now - self._target_at < ASSIGNMENT_INTERVAL:
            return
        self._target_epoch, self._target_at = self._epoch, self._now
        targets = self._assign()
        for member_id in sorted(targets):
            if targets[member_id] != self._targets.get(member_id):
                topics = tuple(
                    TargetAssignmentTopic(topic_id=topic_id, partitions=numbers)
                    for topic_id, numbers, _ in self._by_topic(dict.fromkeys(targets[member_id], 0))
                )
                self._write(
                    TargetAssignmentMemberEntry(
                        group=self._group, member_id=member_id, topics=topics
                    )
                )
        self._targets = targets
        self._write(
            TargetAssignmentMetadataEntry(group=self._group, epoch=self._epoch, timestamp=self._now)
        )
        self._log(
            f"Computed a new target assignment for epoch {self._epoch} with 'uniform' assignor in "
            "0ms."
        )

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

    def _next_state(self, member: _Member) -> MemberState:
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
            return MemberState(old.epoch, old.epoch, UNREVOKED_PARTITIONS, kept, revoking)
        others = [one.saved for one in self._members.values() if one is not member]
        unreleased = target & {
            one for saved in others for one in (*saved.assigned, *saved.revoking)
        }
        given = dict.fromkeys(sorted(target - kept.keys() - unreleased), self._target_epoch)
        state = UNRELEASED_PARTITIONS if unreleased else STABLE
        return MemberState(self._target_epoch, old.epoch, state, kept | given)

    def _current_topics(
        self, partitions: Mapping[TopicPartition, int]
    ) -> tuple[CurrentAssignmentTopic, ...]:
        return tuple(
            CurrentAssignmentTopic(topic_id=topic_id, partitions=numbers, epochs=epochs)
            for topic_id, numbers, epochs in self._by_topic(partitions)
        )

    def _by_topic(
        self, values: Mapping[TopicPartition, int]
    ) -> Iterable[tuple[bytes, tuple[int, ...], tuple[int, ...]]]:
        """Yields topic ids with partition numbers and their values."""
        for topic, pairs in values_by_topic(dict(sorted(values.items()))).items():
            numbers, found = zip(*pairs, strict=True)
            yield self._topic_ids[topic], numbers, found


def make_topic_id(topic: str) -> bytes:
    return _make_id(hash_text(topic))


def _make_id(number: int) -> bytes:
    return bytes.fromhex(make_uuid(number).replace("-", ""))


def _make_member_id(number: int) -> str:
    """Returns a member id as a client makes it: a UUID in base64 that does not begin with "-"."""
    ids = (format_topic_id(_make_id(number + attempt)) for attempt in count())
    return next(one for one in ids if not one.startswith("-"))
