"""How soon a broker answers on an empty folder, and how much memory it holds while it idles."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.support.missing_tool import Unavailable

from bench.broker_process import ROTA, start_both, start_kafka, start_rota
from bench.limit import LIMITS
from bench.measure import Measurement
from bench.peer import KAFKA
from bench.run import Row, Run

ROUNDS = 5
#: Seconds of idling before memory is read.
IDLE = 10.0
#: A frame: Metadata version 1, about no topics.
METADATA = struct.pack(">ihhih10si", 24, 3, 1, 1, 10, b"rota-bench", 0)
IN_PROCESS = """
import socket, time
start = time.perf_counter()
import rota
{warm}
begun = time.perf_counter()
with rota.Broker() as broker:
    host, port = broker.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall({frame!r})
        assert len(client.recv(4)) == 4
        print(time.perf_counter() - start, time.perf_counter() - begun)
"""


def measure_imports() -> tuple[float, float]:
    """Seconds in a new interpreter: with every import, and of a second broker without them."""
    both = []
    for warm in ("", "with rota.Broker(): pass"):
        code = IN_PROCESS.format(warm=warm, frame=METADATA)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        both.append(float(done.stdout.split()[1 if warm else 0]))
    return both[0], both[1]


def wait_for_answer(port: int) -> None:
    """Returns when a Metadata request is answered."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(METADATA)
        assert client.recv(4)


def run(bench: Run) -> Iterator[Row]:
    """The best of some rounds; Kafka once, for it is slow."""
    measure_imports()  # Python keeps what it compiles, as it does when a package is installed
    firsts, seconds = zip(*(measure_imports() for _ in range(ROUNDS)), strict=True)
    theirs: dict[str, Measurement] = {}
    try:
        start = time.monotonic()
        with start_kafka(bench.folder / "kafka-start") as broker:
            wait_for_answer(broker.port)
            theirs[KAFKA] = Measurement(seconds=time.monotonic() - start)
    except Unavailable as error:
        bench.missing[KAFKA] = str(error)
    work = "broker: start to first Metadata answer, empty folder"
    for what, found in (("in process, imports included", firsts), ("in process, again", seconds)):
        ours = Measurement(seconds=min(found))
        yield Row(work=f"{work}: {what}", ours=ours, theirs=theirs, limit=LIMITS["broker-start"])
    took = []
    for number in range(ROUNDS):
        start = time.monotonic()
        with start_rota(bench.folder / f"start-{number}") as broker:
            wait_for_answer(broker.port)
            took.append(time.monotonic() - start)
    ours = Measurement(seconds=min(took))
    yield Row(work=f"{work}: command", ours=ours, theirs=theirs, limit=LIMITS["broker-command"])
    yield from _idle(bench)


def _idle(bench: Run) -> Iterator[Row]:
    with start_both(bench) as brokers:
        time.sleep(IDLE)
        held = {each.name: each.resident for each in brokers}
    sizes = ", ".join(f"{name} {size >> 20} MiB" for name, size in held.items())
    yield Row(
        work=f"broker: resident memory after {IDLE:g} s of idling ({sizes})",
        ours=Measurement(seconds=0, peak=held[ROTA]),
        theirs={},
        limit=LIMITS["broker-idle"],
    )
