"""``format("rota")`` beside Spark's own Kafka source: one broker, one session, in turns.

Spark's own at its defaults, and at its best tuning: fetches of 4 MiB and 10,000 records a poll.
Everything runs on the PySpark that Spark's own source exists for. Seconds of wall time, and of CPU
of all processes but the broker's.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Producer
from tests.support.missing_tool import Unavailable
from tests.system.spark.comparison.environment import fetch_connector_jars as own_jars
from tests.system.spark.comparison.environment import install_python as own_python

from bench.broker_process import RunningBroker, process_environment, start_kafka, start_rota
from bench.limit import LIMITS
from bench.measure import Measurement
from bench.peer import ROOT, SPARK, SPARK_TUNED
from bench.run import Row, Run
from rota.engine.model.topic import TopicPartition
from rota.spark import option
from rota.spark.plan import OffsetLookup

ROUNDS = 3
PARTITIONS = 12
#: Rows of a trigger.
TRIGGER = 300_000
#: Partitions to look up.
MANY = 10_000
TIMEOUT = 900.0
TUNED = {
    "kafka.max.partition.fetch.bytes": str(4 << 20),
    "kafka.fetch.max.bytes": str(4 << 20),
    "kafka.max.poll.records": "10000",
}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "Rota": {"format": "rota", "options": {}},
    SPARK: {"format": "kafka", "options": {}},
    SPARK_TUNED: {"format": "kafka", "options": TUNED},
}


@dataclass(frozen=True, slots=True)
class Topic:
    """What is read."""

    name: str
    size: int
    rows: int
    codec: str = "none"

    def __str__(self) -> str:
        packed = "" if self.codec == "none" else f", {self.codec}"
        return f"{self.rows:,} x {self.size:,} B{packed}"


TOPICS = (
    Topic("small", 100, 3_000_000),
    Topic("large", 1_024, 500_000),
    Topic("large-lz4", 1_024, 500_000, "lz4"),
    Topic("large-zstd", 1_024, 500_000, "zstd"),
)


def run(bench: Run) -> Iterator[Row]:
    """Batch, streams, and looking up offsets."""
    try:
        python, jars = own_python(), own_jars()
        stack = contextlib.ExitStack()
        broker = stack.enter_context(start_kafka(bench.folder / "spark"))
    except Unavailable as error:
        bench.missing[SPARK] = bench.missing[SPARK_TUNED] = str(error)
        bench.print_progress(f"!! {SPARK} is LEFT OUT: {error}")
        return
    with stack:
        session = _Session(python, jars, broker)
        for topic in TOPICS:
            bench.print_progress(f"   filling a topic with {topic}")
            fill_topic(broker, topic)
            taken = session.run_variants("batch", topic)
            kind = "small" if topic.size < 1_000 else "large"
            yield from _rows(f"source, batch, {topic}", f"source-{kind}", taken)
        taken = session.run_variants("stream", TOPICS[0], maxOffsetsPerTrigger=str(TRIGGER))
        yield from _rows(f"source, availableNow, {TOPICS[0]}", "source-stream", taken)
    with start_rota(bench.folder / "lookup") as many:
        yield _lookup_row(many)


@dataclass(frozen=True, slots=True)
class _Session:
    """How a Spark session is started that has both sources."""

    python: Path
    jars: list[Path]
    broker: RunningBroker

    def run_variants(self, work: str, topic: Topic, **options: str) -> dict[str, Any]:
        """What every variant took, in turns."""
        asked = {
            "work": work,
            "warm": 1,
            "rounds": ROUNDS,
            "rows": topic.rows,
            "spark": {
                "spark.jars": ",".join(map(str, self.jars)),
                "spark.driver.memory": "2g",
                "spark.ui.showConsoleProgress": "false",
                "spark.python.unix.domain.socket.enabled": "true",
            },
            "options": {
                "kafka.bootstrap.servers": self.broker.address,
                "subscribe": topic.name,
                "startingOffsets": "earliest",
                **options,
            },
            "variants": VARIANTS,
        }
        done = subprocess.run(
            [str(self.python), "-m", "bench.spark_work", json.dumps(asked)],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
            cwd=ROOT,
            env=process_environment()
            | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        )
        assert done.returncode == 0, done.stderr[-3_000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        for taken in found["taken"].values():
            assert all(each["rows"] == topic.rows for each in taken), "it has read something else"
        return found


def _rows(work: str, limit: str, found: Mapping[str, Any]) -> Iterator[Row]:
    """A row for wall time, and one for CPU."""
    for what, name in (("wall", limit), ("cpu", "source-cpu")):
        taken = {
            variant: Measurement(seconds=median(each[what] for each in rounds))
            for variant, rounds in found["taken"].items()
        }
        own = Measurement(seconds=taken.pop("Rota").seconds, peak=found["peak"])
        yield Row(work=f"{work}, {what}", ours=own, theirs=taken, limit=LIMITS[name])
        if what == "wall":
            tuned = LIMITS[f"{limit}-tuned"]
            yield Row(work=f"{work}, {what}", ours=own, theirs=taken, limit=tuned)


def fill_topic(broker: RunningBroker, topic: Topic) -> None:
    """Records as confluent-kafka's producer batches them; they can be compressed to half."""
    broker.create(topic.name, PARTITIONS)
    time.sleep(1)  # leaders are elected
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "linger.ms": 20,
            "compression.type": topic.codec,
        }
    )
    values = [os.urandom(topic.size // 2).hex().encode() for _ in range(1_000)]
    for number in range(topic.rows):
        while True:
            try:
                value = values[number % len(values)]
                producer.produce(topic.name, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(TIMEOUT) == 0


def _lookup_row(broker: RunningBroker) -> Row:
    """Where 10,000 partitions begin and end, in the driver, with nothing known before."""
    broker.create("many", MANY)
    given = {"kafka.bootstrap.servers": broker.address, "subscribe": "many"}
    options = option.parse_options(given)

    def look() -> int:
        with OffsetLookup(options) as lookup:
            every: list[TopicPartition] = lookup.partitions()
            return len(lookup.earliest_offsets(every)) + len(lookup.latest_offsets(every))

    return Row(
        work=f"source, {MANY:,} partitions looked up, wall",
        ours=Measurement(seconds=_wall(look, 2 * MANY)),
        theirs={},
        limit=LIMITS["source-lookup"],
    )


def _wall(work: Callable[[], int], expected: int) -> float:
    took = []
    for _ in range(ROUNDS):
        begun = time.monotonic()
        assert work() == expected
        took.append(time.monotonic() - begun)
    return median(took)
