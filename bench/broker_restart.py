"""A broker starts again on a folder of 10 GiB: after a clean stop, and after ``kill -9``."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer

from bench.broker_start import answered
from bench.contestant import Contestant, rota
from bench.limit import LIMITS
from bench.measure import Taken
from bench.run import Row, Run

GIB, MIB = 1 << 30, 1 << 20
SIZES = (1, 10)
"""GiB of data."""
BEHIND = 100
"""MiB behind the recovery point."""
VALUE = os.urandom(900_000)
PARTITIONS = 4


def fill(broker: Contestant, size: int) -> None:
    """Produces so many bytes, in large records, over a few partitions."""
    settings = {"bootstrap.servers": broker.address, "queue.buffering.max.kbytes": 200_000}
    producer = Producer(settings)
    for number in range(size // len(VALUE)):
        while True:
            try:
                producer.produce("large", VALUE, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(600) == 0


def start(folder: Path) -> float:
    """Seconds from the command to the first Metadata answer; the stop is clean."""
    begun = time.monotonic()
    with rota(folder) as broker:
        answered(broker.port)
        return time.monotonic() - begun


def run(bench: Run) -> Iterator[Row]:
    """A small folder and a large one, so that one sees what counts."""
    for gib in SIZES:
        folder = bench.folder / f"restart-{gib}"
        bench.say(f"   writing {gib} GiB")
        with rota(folder) as broker:
            broker.create("large", PARTITIONS)
            fill(broker, gib * GIB)
        work = f"broker: start on {gib} GiB"
        yield _row(f"{work} after a clean stop", start(folder), "broker-restart")
        with rota(folder) as broker:
            fill(broker, BEHIND * MIB)
            os.kill(broker.pid, signal.SIGKILL)
        kept = f"{work} after kill -9, {BEHIND} MiB behind the recovery point"
        yield _row(kept, start(folder), "broker-recovery")
        shutil.rmtree(folder)


def _row(work: str, seconds: float, limit: str) -> Row:
    return Row(work=work, ours=Taken(seconds=seconds), theirs={}, limit=LIMITS[limit])
