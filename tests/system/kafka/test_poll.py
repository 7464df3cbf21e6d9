"""A real Kafka 4.3.1 with Java's consumers, sampled: beside what its journal says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyarrow import parquet

from rota.client.admin import Admin
from rota.client.cluster import ClusterClient
from rota.client.group_description import GroupDescription
from rota.engine.history.facts import Generation, GenerationChange, GroupType, PartitionOwnership
from rota.engine.history.generations import GroupHistory, read_history
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.samples import GroupSample, SampleReader
from rota.pipeline.cluster import LiveCluster, run_with_client
from rota.pipeline.poll import PollResult, PollSettings, poll_log_path, read_samples
from rota.pipeline.tables import COMMITS, SAMPLES
from tests.support.coordinator.connection import Connection, await_coordinator, create_topics
from tests.support.java import launcher
from tests.support.kafka import KafkaBroker
from tests.support.polling import Script, owners_at, poll, read_journal_records
from tests.support.process import RunningCommand
from tests.support.waiting import wait_until

CLASSIC, MODERN = "poll-classic", "poll-modern"
PARTITIONS = 4
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
}
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
OPTIONS = {
    CLASSIC: {
        "partition.assignment.strategy": COOPERATIVE,
        "heartbeat.interval.ms": "100",
    },
    MODERN: {"group.protocol": "consumer"},
}


@dataclass
class JavaConsumers:
    """Java's consumers, told what to do; each order is waited for."""

    servers: str
    process: RunningCommand
    members: dict[str, list[str]] = field(default_factory=lambda: {CLASSIC: [], MODERN: []})
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def join(self, name: str) -> None:
        """One more in each group."""
        for group, members in self.members.items():
            settings = {
                "bootstrap.servers": self.servers,
                "group.id": group,
                "topics": "orders",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": "50",
                **OPTIONS[group],
            }
            pairs = (f"{key}={value}" for key, value in settings.items())
            self._send_command("start", f"{group}-{name}", *pairs)
            members.append(f"{group}-{name}")
        self._settle()

    def leave(self, name: str) -> None:
        for group, members in self.members.items():
            self._send_command("close", f"{group}-{name}")
            members.remove(f"{group}-{name}")
        self._settle()

    def _send_command(self, *words: str) -> None:
        self.process.write(" ".join(words) + "\n")

    def _settle(self) -> None:
        """Until all members have what they shall have; it is not asked in the loop of polls."""
        cluster = LiveCluster(settings={"bootstrap.servers": self.servers})
        wait_until(
            "all members have their partitions",
            lambda: self.thread.submit(run_with_client, cluster, self._is_settled).result(60),
        )

    async def _is_settled(self, client: ClusterClient) -> bool:
        admin = Admin(client, 30)
        seen = [await admin.find_group(group) for group in self.members]
        return all(
            _has_settled(each, names)
            for each, names in zip(seen, self.members.values(), strict=True)
        )


def _has_settled(group: GroupDescription | None, names: Sequence[str]) -> bool:
    if group is None or group.state != ("Stable" if names else "Empty"):
        return False
    members = group.members or ()
    given = sum(len(each.assigned) for each in members)
    return (
        sorted(each.client_id for each in members) == sorted(names)
        and given == (PARTITIONS if names else 0)
        and not any(each.target for each in members)
        # a cooperative member joins once more when it has given something up
        and all(len(each.assigned) for each in members)
    )


@dataclass(frozen=True)
class PolledGroups:
    """The tables that polling wrote, and the broker's journal."""

    polled: PollResult
    times: list[int]
    data: Path

    def sampled_generations(self, group: str) -> tuple[list[Generation], list[PartitionOwnership]]:
        rows = parquet.read_table(poll_log_path(Path(self.polled.folder), SAMPLES))
        samples: list[GroupSample] = list(read_samples(rows.combine_chunks().to_batches()))
        reading = SampleReader(group)
        mine = sorted((one for one in samples if one.group == group), key=lambda one: one.at)
        return list(reading.generations(mine)), reading.take_ownership()

    def journal(self, group: str) -> GroupHistory:
        return read_history(group, list(read_journal_records(self.data, group)), self._names())

    def _names(self) -> dict[bytes, str]:
        rows = parquet.read_table(poll_log_path(Path(self.polled.folder), COMMITS)).to_pylist()
        return {row["topic_id"]: row["topic"] for row in rows}


@pytest.fixture(scope="module")
def polled_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolledGroups]:
    folder = tmp_path_factory.mktemp("polled")
    command = launcher.java_command("GroupFleet", heap="128m")
    broker = KafkaBroker(folder, SETTINGS)
    try:
        servers = f"127.0.0.1:{broker.port}"
        with Connection(broker.port) as admin:
            create_topics(admin, {"orders": PARTITIONS})
            await_coordinator(admin)
        produce(servers)
        with start_consumers(command, servers, folder / "fleet.log") as consumers:
            consumers.join("a")
            script = Script(
                partial(consumers.join, "b"),
                partial(consumers.leave, "a"),
                partial(consumers.leave, "b"),
            )
            polled = poll(servers, PollSettings(every=0.05), folder / "seen", script)
        yield PolledGroups(polled, script.times, folder / "data")
    finally:
        broker.stop()


@contextmanager
def start_consumers(command: list[str], servers: str, log: Path) -> Iterator[JavaConsumers]:
    with RunningCommand(*command, log=log) as process:
        yield JavaConsumers(servers, process)


def produce(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(40):
        producer.produce("orders", str(number), partition=number % PARTITIONS)
    producer.flush(30)


GROUPS = pytest.mark.parametrize("group", [CLASSIC, MODERN])


@GROUPS
def test_owners_at_the_times_of_samples(polled_group: PolledGroups, group: str) -> None:
    _, owned = polled_group.sampled_generations(group)
    expected = polled_group.journal(group).ownership
    for time in polled_group.times:
        assert owners_at(owned, time) == owners_at(expected, time)
    assert len(owners_at(expected, polled_group.times[0])) == PARTITIONS


@GROUPS
def test_rebalances_that_were_seen_are_in_the_journal(
    polled_group: PolledGroups, group: str
) -> None:
    made, _ = polled_group.sampled_generations(group)
    assert made[0].change is GenerationChange.FIRST_SAMPLE
    taken = find_rebalances(made)
    assert [len(step.after.members) for step in taken] == [2, 1, 0]
    expected = polled_group.journal(group).generations
    for one in made:
        same = [
            each
            for each in expected
            if generation_content(each) == generation_content(one)
            and (one.not_before or 0) <= each.at <= one.at
        ]
        assert same
        if one.kind is GroupType.CONSUMER:
            assert one.generation in {each.generation for each in same}


def generation_content(generation: Generation) -> list[tuple[object, ...]]:
    return [
        (
            each.member_id,
            each.client_id,
            each.client_host,
            each.topics,
            {topic: numbers for topic, numbers in each.assigned.items() if numbers},
            each.library,
        )
        for each in generation.members
    ]


@GROUPS
def test_offsets_are_those_that_were_committed(polled_group: PolledGroups, group: str) -> None:
    rows = parquet.read_table(poll_log_path(Path(polled_group.polled.folder), COMMITS)).to_pylist()
    last = {row["partition"]: row["offset"] for row in rows if row["group"] == group}
    assert last == dict.fromkeys(range(PARTITIONS), 10)
