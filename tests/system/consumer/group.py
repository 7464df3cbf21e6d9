"""A group under test: its members, what was written for it, and what became of that."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions

from rota import TopicPartition
from tests.support.clients.case import plain_record, unique_name
from tests.support.clients.driver.confluent import Confluent, wait_for_results
from tests.support.clients.driver_process import ClientError, Driver, DriverAt
from tests.support.waiting import wait_until
from tests.system.consumer.client_drivers import ASYNC, BLOCKING, ClientDrivers, ConsumerKind
from tests.system.consumer.cluster import Cluster
from tests.system.consumer.history import (
    Assigned,
    CommitAttempt,
    DeliveredRecord,
    Event,
    History,
    MemberEnded,
    ObservedOffset,
    Revoked,
)

#: A beat is how soon a member hears of a rebalance.
SESSION = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200}


class Admin(Confluent):
    """Without a word when a broker is gone at the end."""

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "log_level": 0}

    def close(self) -> None:
        """Ends its threads: many clients whose broker is gone keep a small machine busy."""
        self.__dict__.pop("admin", None)


@dataclass(slots=True)
class GroupCase:
    """What a case works with."""

    cluster: Cluster
    drivers: ClientDrivers
    #: Where all go; the plain listener by default.
    servers: str = ""
    security: Mapping[str, str] | None = None
    admin: Admin = field(init=False)

    def __post_init__(self) -> None:
        self.servers = self.servers or self.cluster.plain
        given = None if self.security is None else dict(self.security)
        self.admin = Admin(self.servers, given)

    def __enter__(self) -> GroupCase:
        return self

    def __exit__(self, *_: object) -> None:
        self.admin.close()

    def topic(self, partitions: int, **configs: str) -> str:
        """A topic of its own."""
        made = unique_name(f"t-{self.cluster.name}")
        self.make(made, partitions, **configs)
        return made

    def make(self, topic: str, partitions: int, **configs: str) -> None:
        """Makes a topic of this name."""
        self.admin.create_topic(topic, partitions, configs)
        # a Kafka's broker hears of it a moment later than its controller says yes
        wait_until("it is known", lambda: self.admin.partitions(topic) == partitions)


@dataclass(slots=True)
class Member:
    """One member, as far as it has told."""

    name: str
    kind: ConsumerKind
    link: DriverAt
    #: The process, if it is the member's own.
    doomed: Driver | None = None
    owned: set[TopicPartition] = field(default_factory=set)
    generation: int = -1
    rebalances: int = 0
    handed: int = 0
    #: The errors of its commits.
    refused: list[str] = field(default_factory=list)
    error: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"

    def log_tail(self) -> str:
        """What its process has logged, and where its threads are if it is Rota's."""
        driver = self.link.driver
        if self.kind in (ASYNC, BLOCKING):
            os.kill(driver.pid, signal.SIGUSR1)
            time.sleep(0.5)
        return driver.log_tail()


class Group:
    """A group and its history."""

    def __init__(self, group_case: GroupCase, *topics: str, partitions: int = 6) -> None:
        self.group_case = group_case
        self.name = unique_name(f"g-{group_case.cluster.name}")
        self.topics = list(topics) or [group_case.topic(partitions)]
        self.partitions = {topic: group_case.admin.partitions(topic) for topic in self.topics}
        self.history = History()
        self.members: dict[str, Member] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count()

    # Members

    def join(
        self,
        kind: ConsumerKind,
        *strategies: str,
        own_process: bool = False,
        settings: Mapping[str, object] | None = None,
        **wanted: Any,
    ) -> Member:
        """Start a member."""
        drivers, group_case = self.group_case.drivers, self.group_case
        doomed = drivers.start_one(kind) if own_process else None
        link = DriverAt(doomed or drivers.driver(kind), group_case.servers, group_case.security)
        member = Member(unique_name("m"), kind, link, doomed)
        drivers.listen(member.name, lambda line: self._hear(member, line))
        self.members[member.name] = member
        if kind.repeats:
            self.history.repeaters.add(member.name)
        if group_member := (settings or {}).get("group.instance.id"):
            self.history.seats[member.name] = str(group_member)
        common = {"group.id": self.name, "auto.offset.reset": "earliest", **SESSION}
        wanted.setdefault("topics", None if "pattern" in wanted else self.topics)
        wanted |= {"settings": {**common, **(settings or {})}, **kind.options}
        try:
            link.ask("join", member=member.name, strategies=list(strategies) or None, **wanted)
        except TimeoutError as error:
            error.add_note(member.log_tail())
            raise
        return member

    def leave(self, member: Member) -> None:
        """Have a member close its consumer."""
        try:
            member.link.ask("leave", member=member.name)
        except (ClientError, TimeoutError) as error:
            raise AssertionError(
                f"{member} does not leave: {error}; {member.log_tail()}"
            ) from error
        self._gone(member)

    def kill(self, member: Member, *, unaware: bool = False) -> None:
        """kill -9 of a member that has a process of its own.

        :param unaware: it may have lost partitions without having heard of it
        """
        assert member.doomed is not None
        member.doomed.kill()
        with self._lock:
            self.history.events.append(MemberEnded(member.name, time.monotonic(), True, unaware))
        member.doomed = None
        self._gone(member)

    def _gone(self, member: Member) -> None:
        del self.members[member.name]
        if member.doomed is not None:
            member.doomed.kill()
        assert member.error is None, f"{member}: {member.error}"

    def _hear(self, member: Member, line: dict[str, Any]) -> None:
        with self._lock:
            _note(self.history, member, line)

    # Records

    def write(self, rounds: int = 5, *topics: str) -> None:
        """Write some records to each partition."""
        for topic in topics or self.topics:
            records = [
                plain_record(next(self._numbers), partition)
                for partition in range(self.partitions[topic])
                for _ in range(rounds)
            ]
            placed = self.group_case.admin.produce(topic, records)
            with self._lock:
                for record, (partition, offset) in zip(records, placed, strict=True):
                    own = self.history.written.setdefault(TopicPartition(topic, partition), {})
                    own[offset] = record["value"]

    def grow(self, topic: str, count: int) -> None:
        """Add partitions to a topic."""
        self.group_case.admin.grow_topic(topic, count)
        wait_until("it has grown", lambda: self.group_case.admin.partitions(topic) == count)
        self.partitions[topic] = count

    def add_topic(self, topic: str) -> None:
        """A topic that is the group's from now on."""
        if topic not in self.topics:
            self.topics.append(topic)
        self.partitions[topic] = self.group_case.admin.partitions(topic)

    def final_offsets(self) -> dict[TopicPartition, int]:
        """Where the group is when it is through."""
        return {place: max(own) + 1 for place, own in self.history.written.items()}

    def revoked_since(self, member: Member, since: int) -> set[TopicPartition]:
        """The partitions that were revoked from a member after the first `since` events."""
        with self._lock:
            return {
                place
                for event in self.history.events[since:]
                if isinstance(event, Revoked) and event.member == member.name
                for place in event.partitions
            }

    def delivered_twice(self) -> list[tuple[TopicPartition, int]]:
        """What was handed out more than once."""
        with self._lock:
            times = Counter(
                (each.partition, each.offset)
                for each in self.history.events
                if isinstance(each, DeliveredRecord)
            )
        return sorted(where for where, count in times.items() if count > 1)

    def current_ownership(self) -> list[Event]:
        """Who owns what, as the beginning of a new history."""
        now = time.monotonic()
        return [
            Assigned(each.name, now, each.generation, tuple(sorted(each.owned)))
            for each in self.members.values()
        ]

    def settle(self, *sizes: int, all_busy: bool = True) -> None:
        """Wait until every partition has one owner, and every member has partitions.

        That can also hold between two rebalances of a cooperative group. So give `sizes`, how many
        partitions its members have after the last one.
        """
        want = sorted(
            TopicPartition(topic, number)
            for topic, count in self.partitions.items()
            for number in range(count)
        )

        def settled() -> bool:
            self._check()
            owned = [set(each.owned) for each in self.members.values()]
            have = sorted(place for own in owned for place in own)
            if sizes and sorted(map(len, owned)) != sorted(sizes):
                return False
            return have == want and (all(owned) or not all_busy)

        shares = f", the members have {sizes}" if sizes else ""
        wait_until(f"every partition of {self.name} has one owner{shares};", settled, self._shown)

    def finish(self) -> None:
        """Wait until all that was written was handed out."""

        def finished() -> bool:
            self._check()
            return not self._missing()

        wait_until(
            f"{self.name} handles all;", finished, lambda: f"{self._missing()[:9]} {self._shown()}"
        )

    def await_commits(self) -> None:
        """Wait until all that was handed out is committed: no commit is in flight."""

        def committed() -> bool:
            with self._lock:
                stored = {
                    (place, offset)
                    for event in self.history.events
                    if isinstance(event, CommitAttempt) and event.error is None
                    for place, offset in event.offsets.items()
                }
            return set(self.final_offsets().items()) <= stored

        self.until(f"{self.name} has committed all;", committed)

    def until(self, what: str, true: Callable[[], object]) -> None:
        """Wait for something, as long as all is well."""

        def look() -> bool:
            self._check()
            return bool(true())

        wait_until(what, look, self._shown)

    def _missing(self) -> list[tuple[TopicPartition, int]]:
        with self._lock:
            seen = {
                (each.partition, each.offset)
                for each in self.history.events
                if isinstance(each, DeliveredRecord)
            }
        return [
            (place, offset)
            for place, values in self.history.written.items()
            for offset in values
            if (place, offset) not in seen and offset >= self.history.removed.get(place, 0)
        ]

    def _check(self) -> None:
        for member in self.members.values():
            assert member.error is None, f"{member}: {member.error}"

    def _shown(self) -> str:
        now = [
            f"{each}: generation {each.generation}, {sorted(each.owned)}"
            for each in self.members.values()
        ]
        return "\n".join([f"at {time.monotonic()}:", *now, "What happened:", *self._event_texts()])

    def read_since(self, since: int) -> set[TopicPartition]:
        """The partitions whose records were handed out after the first `since` events."""
        with self._lock:
            later = self.history.events[since:]
            return {each.partition for each in later if isinstance(each, DeliveredRecord)}

    # The end

    def abandon(self) -> None:
        """End the processes that are left, whatever became of the group."""
        for member in self.members.values():
            if member.doomed is not None:
                member.doomed.kill()
        self.members.clear()

    def read_group_offsets(self) -> dict[TopicPartition, int]:
        """The group's offsets as an admin sees them; they are held against the members' commits."""
        wanted = [ConsumerGroupTopicPartitions(self.name)]
        began = time.monotonic()
        (found,) = wait_for_results(self.group_case.admin.admin.list_consumer_group_offsets(wanted))
        ended = time.monotonic()
        seen = {
            TopicPartition(each.topic, each.partition): each.offset
            for each in found.topic_partitions
        }
        self.history.observed += [ObservedOffset(began, ended, *pair) for pair in seen.items()]
        return seen

    def _event_texts(self) -> list[str]:
        """Who had what, and which commits failed."""
        events = [each for each in self.history.events if not isinstance(each, DeliveredRecord)]
        return [
            str(each)
            for each in sorted(
                events, key=lambda e: e.ended if isinstance(e, CommitAttempt) else e.at
            )
            if not isinstance(each, CommitAttempt) or _is_strange(each.error)
        ]

    def check_history(self) -> None:
        """All leave; then the whole history is held against what a group promises."""
        for member in list(self.members.values()):
            self.leave(member)
        self.read_group_offsets()
        problems = self.history.problems()
        assert not problems, "\n".join([*problems[:20], "What happened:", *self._event_texts()])


def _is_strange(error: str | None) -> bool:
    return error is not None and "RebalanceInProgress" not in error


def _note(history: History, member: Member, line: dict[str, Any]) -> None:
    name, at = member.name, line["at"]
    partitions = tuple(TopicPartition(*place) for place in line.get("partitions", ()))
    match line["kind"]:
        case "assigned":
            member.owned |= set(partitions)
            member.generation = line["generation"]
            member.rebalances += 1
            history.events.append(Assigned(name, at, line["generation"], partitions))
        case "revoked":
            member.owned -= set(partitions)
            history.events.append(Revoked(name, at, partitions, line["lost"]))
        case "handed":
            member.handed += len(line["records"])
            history.events += [
                DeliveredRecord(name, at, TopicPartition(topic, partition), offset, value)
                for topic, partition, offset, value in line["records"]
            ]
        case "committed":
            offsets = {TopicPartition(topic, n): offset for topic, n, offset in line["offsets"]}
            if line["error"]:
                member.refused.append(line["error"])
            history.events.append(CommitAttempt(name, line["began"], at, offsets, line["error"]))
        case "ended":
            member.owned.clear()
            history.events.append(MemberEnded(name, at))
        case "failed":
            member.error = line["error"]
        case other:
            raise AssertionError(f"news of an unknown kind: {other}")
