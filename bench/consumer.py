"""Rota's consumers beside Python's others, on one broker, in the same minutes.

Two tables: a real Kafka's, and that of Rota's own broker. Every run is a process of its own; the
clients take turns, and the median of their rounds counts. A run in which the machine's host gave
its cores to others is done again. Figures are seconds for a million records: slow clients read
fewer, and in fewer rounds.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median

from confluent_kafka import Producer
from tests.support.missing_tool import Unavailable

from bench.broker_process import RunningBroker, process_environment, start_kafka, start_rota
from bench.limit import LIMITS
from bench.measure import Measurement, run_when_calm
from bench.peer import AIOKAFKA, CONFLUENT, CONFLUENT_ASYNC, KAFKA, KAFKA_PYTHON, ROOT
from bench.run import Row, Run

ROUNDS = 3
#: Of what takes about a second.
FAST_ROUNDS = 5
#: Of what takes less.
QUICK_ROUNDS = 7
MILLION = 1_000_000
#: How many of each size, in all partitions together: enough that starting does not count.
RECORDS = {100: 1_000_000, 1_024: 1_000_000}
#: Clients that need many seconds for them read a fifth.
SLOWER = 5
PARTITIONS = (1, 12)
TIMEOUT = 600.0
RECORD_PEERS = {KAFKA_PYTHON: "kafka-python", AIOKAFKA: "aiokafka", CONFLUENT: "confluent-kafka"}
BATCH_PEERS = {
    KAFKA_PYTHON: "kafka-python-poll",
    AIOKAFKA: "aiokafka-many",
    CONFLUENT: "confluent-kafka",
}
ASYNC_PEERS = {**RECORD_PEERS, CONFLUENT_ASYNC: "confluent-kafka-async"}
#: Whom each reads beside, and its limit beside confluent-kafka's consumer of the same kind.
SINGLE = {
    "Consumer, record by record": ("rota", RECORD_PEERS, "consumer-record-c"),
    "AsyncConsumer, async for": ("rota-async", ASYNC_PEERS, "consumer-record-async"),
    "Consumer.poll": ("rota-poll", RECORD_PEERS, "consumer-record-c"),
}
FAST = (
    *("rota", "rota-async", "rota-poll", "rota-batches", "rota-arrow"),
    *("confluent-kafka", "confluent-kafka-async"),
)
COLUMNS = {"poll_batches": "rota-batches", "poll_batches, to_arrow": "rota-arrow"}


@dataclass(frozen=True, slots=True)
class Topic:
    """What is read."""

    broker: RunningBroker
    name: str
    size: int
    partitions: int

    @property
    def count(self) -> int:
        """How many records there are."""
        return RECORDS[self.size]

    def run(self, work: str, client: str, count: int) -> dict[str, float]:
        """What one process took."""
        command = [sys.executable, "-m", "bench.consuming", work, client, self.broker.address]
        done = subprocess.run(
            [*command, self.name, str(self.partitions), str(count)],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
            cwd=ROOT,
            env=process_environment(),
        )
        assert done.returncode == 0, f"{client}: {done.stderr}"
        found: dict[str, float] = json.loads(done.stdout)
        return found


def create_filled_topic(broker: RunningBroker, size: int, partitions: int) -> Topic:
    """A topic with records of random bytes, as confluent-kafka's producer batches them."""
    topic = Topic(broker, f"bench-{size}-{partitions}", size, partitions)
    broker.create(topic.name, partitions)
    time.sleep(1)  # a leader is elected
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 20})
    values = [os.urandom(size) for _ in range(1_000)]
    for number in range(topic.count):
        value = values[number % len(values)]
        while True:
            try:
                producer.produce(topic.name, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(TIMEOUT) == 0
    return topic


def measure_reading(topic: Topic, clients: Mapping[str, int]) -> dict[str, Measurement]:
    """Seconds for a million records, and the most memory of all rounds.

    :param clients: how many times fewer records each reads
    """
    seconds: dict[str, list[float]] = {client: [] for client in clients}
    peaks = dict.fromkeys(clients, 0)
    for number, (client, fewer) in itertools.product(range(FAST_ROUNDS), clients.items()):
        if fewer == 1 or number < ROUNDS:
            count = topic.count // fewer
            found = run_when_calm(partial(topic.run, "read", client, count))
            records, rest = divmod(int(found["bytes"]), topic.size)
            assert not rest, f"{client} has read something else"
            assert records >= count, f"{client} has read too little"
            seconds[client].append(found["seconds"] / records * MILLION)
            peaks[client] = max(peaks[client], int(found["peak"]))
    return {
        client: Measurement(seconds=median(took), peak=peaks[client])
        for client, took in seconds.items()
    }


def run(bench: Run) -> Iterator[Row]:
    """A real Kafka's table, then that of Rota's broker."""
    for name, made in ((KAFKA, start_kafka), ("Rota", start_rota)):
        with contextlib.ExitStack() as stack:
            try:
                broker = stack.enter_context(made(bench.folder / f"consumer-{name}"))
            except Unavailable as error:
                bench.missing[KAFKA] = str(error)
                bench.print_progress(f"!! {KAFKA} is LEFT OUT: {error}")
                continue
            for size, partitions in itertools.product(RECORDS, PARTITIONS):
                bench.print_progress(f"   {name}'s broker, {size} B, {partitions} partitions")
                yield from _read_rows(create_filled_topic(broker, size, partitions))
            small = Topic(broker, f"bench-{1_024}-{PARTITIONS[-1]}", 1_024, PARTITIONS[-1])
            yield from _group_rows(bench, small)


def _read_rows(topic: Topic) -> Iterator[Row]:
    clients = dict.fromkeys(FAST, 1)
    slow = [*RECORD_PEERS.values(), *BATCH_PEERS.values()]
    clients |= {client: SLOWER for client in slow if client not in clients}
    taken = measure_reading(topic, clients)
    places = "1 partition" if topic.partitions == 1 else f"{topic.partitions} partitions"
    where = f"consumer, {topic.broker.name}'s broker, {topic.size:,} B, {places}"
    for title, (client, peers, limit) in SINGLE.items():
        theirs = {peer: taken[name] for peer, name in peers.items()}
        yield _row(f"{where}: {title}", taken[client], theirs, "consumer-record")
        yield _row(f"{where}: {title}", taken[client], theirs, limit)
    for title, client in COLUMNS.items():
        theirs = {peer: taken[name] for peer, name in BATCH_PEERS.items()}
        yield _row(f"{where}: {title}", taken[client], theirs, "consumer-batch")


def _group_rows(bench: Run, topic: Topic) -> Iterator[Row]:
    clients = {**RECORD_PEERS, "": "rota"}
    where = f"consumer, {topic.broker.name}'s broker"
    bench.print_progress(f"   {topic.broker.name}'s broker, joining and idling")
    took: dict[str, list[float]] = {peer: [] for peer in clients}
    for _, (peer, client) in itertools.product(range(QUICK_ROUNDS), clients.items()):
        took[peer].append(topic.run("first", client, 1)["seconds"])
    found = {peer: Measurement(seconds=median(seconds)) for peer, seconds in took.items()}
    yield _row(f"{where}: from nothing to the first record", found.pop(""), found, "consumer-first")
    shares = {
        peer: Measurement(seconds=topic.run("idle", client, topic.count)["seconds"])
        for peer, client in clients.items()
    }
    title = f"{where}: CPU of a second of idling, {topic.partitions} partitions"
    yield _row(title, shares.pop(""), shares, "consumer-idle")


def _row(work: str, ours: Measurement, theirs: Mapping[str, Measurement], limit: str) -> Row:
    return Row(work=work, ours=ours, theirs=theirs, limit=LIMITS[limit])
