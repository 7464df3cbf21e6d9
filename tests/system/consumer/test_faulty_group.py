"""One history of two writers and a group of three, whatever happens to the broker, to the network
and to the members: nothing that was acknowledged is lost or there twice, each record is handed out,
and nothing is committed before that.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rota import TopicPartition
from tests.system.consumer.client_drivers import ASYNC, BLOCKING, ConsumerKind
from tests.system.consumer.group import Group, GroupCase, Member
from tests.system.crash import history as crash
from tests.system.crash.crashed_broker import new_seed
from tests.system.crash.load import Writer, read_all

PARTITIONS = 4
SHORT = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 300, "request.timeout.ms": 5_000}


class FaultyGroup:
    """The group, its writers, and the ways to hurt them. All that is chosen comes of a seed."""

    def __init__(self, group_case: GroupCase, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = group_case.cluster
        self.group = Group(group_case, partitions=PARTITIONS)
        self.log = crash.History()
        (self._topic,) = self.group.topics
        self.writers = [
            Writer(
                number,
                seed,
                self.log,
                servers=group_case.servers,
                partitions=PARTITIONS,
                topic=self._topic,
            )
            for number in range(2)
        ]
        self.members: list[Member] = []

    def begin(self) -> None:
        """All come, and the first records are through."""
        self.members = [self._member(kind) for kind in (ASYNC, BLOCKING, ASYNC)]
        for writer in self.writers:
            writer.start()
        self.group.settle()
        self.wait_for_progress()

    def _member(self, kind: ConsumerKind) -> Member:
        return self.group.join(kind, "cooperative-sticky", own_process=True, settings=SHORT)

    def kill_broker(self) -> None:
        """kill -9, and again."""
        self.cluster.kill()
        time.sleep(self.random.uniform(0, 0.3))
        self.cluster.start()

    def pause_broker(self) -> None:
        """It stands still for a while, and does not know."""
        self.cluster.pause()
        time.sleep(self.random.choice((0.1, 0.5, 1.8)))
        self.cluster.go_on()

    def cut(self) -> None:
        """All connections break, and for a while there are none."""
        self.cluster.front.cut()
        time.sleep(self.random.choice((0, 0.1, 2)))
        self.cluster.front.mend()

    def kill_member(self) -> None:
        """kill -9; another one comes in its place."""
        number = self.random.randrange(len(self.members))
        old = self.members[number]
        self.group.kill(old, unaware=True)
        self.members[number] = self._member(old.kind)

    def pause_member(self) -> None:
        """It stands still for longer than its session, and thinks that it is the owner still."""
        doomed = self.random.choice(self.members).doomed
        assert doomed is not None
        os.kill(doomed.pid, signal.SIGSTOP)
        time.sleep(self.random.choice((0.3, 4)))
        os.kill(doomed.pid, signal.SIGCONT)

    def wait_for_progress(self) -> None:
        """Every writer had an acknowledgement since, and every partition's records came."""
        sent = [writer.acknowledged for writer in self.writers]
        before = len(self.group.history.events)

        def progress() -> bool:
            failures = [each for writer in self.writers for each in writer.failures]
            assert not failures, failures
            written = all(w.acknowledged > n for w, n in zip(self.writers, sent, strict=True))
            return written and len(self.group.read_since(before)) == PARTITIONS

        self.group.until("all go on", progress)

    def check_history(self) -> None:
        """The writers end; the log as it is then is what all are held against."""
        for writer in self.writers:
            writer.end()
        for writer in self.writers:
            writer.join(90)
            assert not writer.is_alive(), f"{writer.name} does not end"
        servers = self.group.group_case.servers
        final = read_all(servers, PARTITIONS, self._topic)
        failures = [each for writer in self.writers for each in writer.failures]
        problems = [*failures, *self.log.problems(final)]
        assert not problems, "\n".join(problems[:20])
        self.group.history.written = {
            TopicPartition(self._topic, number): {o: value.strip() for o, value in entries}
            for number, entries in final.items()
        }
        self.group.finish()
        self.group.settle(all_busy=False)  # all have heard what they had lost
        self.group.check_history()


@contextmanager
def faulty_group(group_case: GroupCase) -> Iterator[FaultyGroup]:
    """A group with random faults; a failure prints the seed."""
    seed = new_seed()
    made = FaultyGroup(group_case, seed)
    try:
        made.begin()
        yield made
        made.check_history()
    except BaseException as error:
        error.add_note(f"ROTA_SEED={seed}")
        raise
    finally:
        for writer in made.writers:
            writer.end()
        made.group.abandon()


def run_faults(group_case: GroupCase, rounds: int) -> None:
    """Each of the ways once in each round, in any order."""
    with faulty_group(group_case) as faulty:
        for _ in range(rounds):
            ways = [
                faulty.kill_broker,
                faulty.pause_broker,
                faulty.cut,
                faulty.kill_member,
                faulty.pause_member,
            ]
            faulty.random.shuffle(ways)
            for way in ways:
                way()
                faulty.wait_for_progress()


def test_one_history_whatever_happens(group_case: GroupCase) -> None:
    run_faults(group_case, 1)


@pytest.mark.nightly
def test_one_history_whatever_happens_for_long(group_case: GroupCase) -> None:
    run_faults(group_case, 40)
