"""Records into a broker and out of it, beside a real Kafka: the same client, the same minute.

confluent-kafka with its defaults (acks=all), and Kafka's own perf tools; one partition. The brokers
take turns, and the median of their rounds counts.

With its defaults, librdkafka rests for a second whenever it has fetched 100,000 records that nobody
has taken yet (``fetch.queue.backoff.ms``). How often that happens with small records is chance, and
the faster broker's loss. So that is measured without the rest, too.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import TypeAlias

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support import kafka as java_broker

from bench.broker_process import ROTA, RunningBroker, start_both
from bench.limit import LIMITS
from bench.measure import Measurement
from bench.peer import KAFKA
from bench.run import Row, Run

ROUNDS = 3
MB = 1_000_000
#: How many of each size.
RECORDS = {100: 1_000_000, 1_024: 250_000}
TOOLS = "org.apache.kafka.tools"
TIMEOUT = 300.0
#: Seconds for a topic and a size of records.
Measure: TypeAlias = Callable[[RunningBroker, str, int], float]
_names = itertools.count()


def produce(to: RunningBroker, topic: str, size: int) -> float:
    """Seconds until all records are acknowledged."""
    producer = Producer({"bootstrap.servers": to.address})
    value, left = bytes(size), RECORDS[size]
    failed: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    start = time.monotonic()
    while left:
        try:
            producer.produce(topic, value, on_delivery=delivered)
        except BufferError:
            producer.poll(0.1)
            continue
        left -= 1
        if left % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(TIMEOUT) == 0
    assert not failed, failed[0]
    return time.monotonic() - start


def fetch(source: RunningBroker, topic: str, size: int, rest: int = 1_000) -> float:
    """Seconds until all records have come.

    :param rest: milliseconds; the default is librdkafka's
    """
    settings = {"group.id": "bench", "fetch.queue.backoff.ms": rest}
    consumer = Consumer({"bootstrap.servers": source.address, **settings})
    start = time.monotonic()
    consumer.assign([TopicPartition(topic, 0, 0)])
    left = RECORDS[size]
    while left:
        found = consumer.consume(10_000, 10)
        assert found, f"{left} records are missing"
        left -= len(found)
    took = time.monotonic() - start
    consumer.close()
    return took


def tool_produce(to: RunningBroker, topic: str, size: int) -> float:
    """Seconds as kafka-producer-perf-test counts them."""
    printed = _tool(
        *("ProducerPerformance", "--topic", topic, "--num-records", str(RECORDS[size])),
        *("--record-size", str(size), "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={to.address}"),
    )
    (rate,) = re.findall(r"([\d.]+) records/sec", printed[-1])
    return RECORDS[size] / float(rate)


def tool_fetch(source: RunningBroker, topic: str, size: int) -> float:
    """Seconds as kafka-consumer-perf-test counts them: of fetching, without joining."""
    printed = _tool(
        *("ConsumerPerformance", "--topic", topic, "--num-records", str(RECORDS[size])),
        *("--bootstrap-server", source.address, "--timeout", "60000"),
    )
    (heads,) = (line for line in printed if line.startswith("start.time"))
    columns = dict(zip(heads.split(", "), printed[-1].split(", "), strict=True))
    assert int(columns["data.consumed.in.nMsg"]) >= RECORDS[size]
    return float(columns["fetch.time.ms"]) / 1_000


def _tool(name: str, *args: str) -> list[str]:
    """The lines that a tool prints, without most of what it logs."""
    command = java_broker.kafka_command(f"{TOOLS}.{name}", *args, flags=("-Xmx512m",))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line and not line.startswith("[")]


def measure_in_turns(
    brokers: list[RunningBroker],
    size: int,
    into: Measure,
    out: Measure,
) -> tuple[dict[str, float], dict[str, float]]:
    """The median seconds of each broker, in and out."""
    ins, outs = ({each.name: list[float]() for each in brokers} for _ in range(2))
    for _ in range(ROUNDS):
        for broker in brokers:
            topic = f"bench-{size}-{next(_names)}"
            broker.create(topic)
            ins[broker.name].append(into(broker, topic, size))
            outs[broker.name].append(out(broker, topic, size))
    found_in, found_out = (
        {name: median(took) for name, took in each.items()} for each in (ins, outs)
    )
    return found_in, found_out


def run(bench: Run) -> Iterator[Row]:
    """Each client, each size, in and out."""
    with start_both(bench) as brokers:
        clients: dict[str, tuple[Measure, Measure]] = {
            "confluent-kafka": (produce, fetch),
            "confluent-kafka without its pause": (produce, partial(fetch, rest=0)),
        }
        if any(each.name == KAFKA for each in brokers):
            clients["Java's perf tools"] = (tool_produce, tool_fetch)
        for (client, (into, out)), size in itertools.product(clients.items(), RECORDS):
            bench.print_progress(f"   {client}, {size} B")
            for what, took in zip(
                ("produced", "fetched"), measure_in_turns(brokers, size, into, out), strict=True
            ):
                yield _row(f"{client}, {RECORDS[size]:,} x {size:,} B {what}", size, took)


def _row(work: str, size: int, took: dict[str, float]) -> Row:
    amount = size * RECORDS[size] / MB
    rates = ", ".join(f"{name} {amount / seconds:.0f} MB/s" for name, seconds in took.items())
    return Row(
        work=f"{work} ({rates})",
        ours=Measurement(seconds=took.pop(ROTA)),
        theirs={name: Measurement(seconds=seconds) for name, seconds in took.items()},
        limit=LIMITS["broker-data"],
    )
