"""A broker starts again on a folder of 10 GiB: after a clean stop, and after ``kill -9``."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer

from bench.broker_process import RunningBroker, start_rota
from bench.broker_start import wait_for_answer
from bench.limit import LIMITS
from bench.measure import Measurement
from bench.run import Row, Run

GIB, MIB = 1 << 30, 1 << 20
#: GiB of data.
SIZES = (1, 10)
#: MiB behind the recovery point.
BEHIND = 100
#: Bytes of a batch: filling is quick with large ones; each one that is read again costs time.
LARGE, SMALL = 900_000, 16_000
PARTITIONS = 4


def fill(broker: RunningBroker, size: int, batch: int) -> None:
    """Produces this number of bytes to a few partitions, one record in each batch."""
    settings = {
        "bootstrap.servers": broker.address,
        "queue.buffering.max.kbytes": 200_000,
        "batch.num.messages": 1,
    }
    producer = Producer(settings)
    value = os.urandom(batch)
    for number in range(size // batch):
        while True:
            try:
                producer.produce("large", value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(600) == 0


def measure_start(folder: Path) -> float:
    """Seconds from the command to the first Metadata answer; the stop is clean."""
    begun = time.monotonic()
    with start_rota(folder) as broker:
        wait_for_answer(broker.port)
        return time.monotonic() - begun


def run(bench: Run) -> Iterator[Row]:
    """A small folder and a large one, so that one sees what counts."""
    for gib in SIZES:
        folder = bench.folder / f"restart-{gib}"
        bench.print_progress(f"   writing {gib} GiB")
        with start_rota(folder) as broker:
            broker.create("large", PARTITIONS)
            fill(broker, gib * GIB, LARGE)
        work = f"broker: start on {gib} GiB"
        yield _row(f"{work} after a clean stop", measure_start(folder), "broker-restart")
        with start_rota(folder) as broker:
            fill(broker, BEHIND * MIB, SMALL)
            os.kill(broker.pid, signal.SIGKILL)
        behind = f"{BEHIND} MiB in batches of {SMALL:,} B behind the recovery point"
        yield _row(f"{work} after kill -9, {behind}", measure_start(folder), "broker-recovery")
        shutil.rmtree(folder)


def _row(work: str, seconds: float, limit: str) -> Row:
    return Row(work=work, ours=Measurement(seconds=seconds), theirs={}, limit=LIMITS[limit])
