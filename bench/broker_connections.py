"""Thousands of connections that do nothing: what they cost, and whether anyone notices."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

from bench.broker_process import RunningBroker, start_rota
from bench.broker_start import METADATA, wait_for_answer
from bench.limit import LIMITS
from bench.measure import Measurement
from bench.run import Row, Run

CONNECTIONS = 2_000
#: New clients, while the others idle; the slowest counts.
NEW = 20


def open_idle_connection(broker: RunningBroker, stack: ExitStack) -> None:
    """A connection that has asked once, as every client does, and says nothing more."""
    client = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port)))
    client.sendall(METADATA)
    assert client.recv(1_000)


def measure_answer(broker: RunningBroker) -> float:
    """Seconds from connecting to an answer."""
    start = time.monotonic()
    wait_for_answer(broker.port)
    return time.monotonic() - start


def run(bench: Run) -> Iterator[Row]:
    """Rota alone."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with start_rota(bench.folder / "rota") as broker, ExitStack() as stack:
        wait_for_answer(broker.port)
        before = broker.resident
        bench.print_progress(f"   {CONNECTIONS:,} connections")
        for _ in range(CONNECTIONS):
            open_idle_connection(broker, stack)
        more = broker.resident - before
        slowest = max(measure_answer(broker) for _ in range(NEW))
    yield Row(
        work=f"{CONNECTIONS:,} idle connections: response time of a new client, additional memory",
        ours=Measurement(seconds=slowest, peak=more),
        theirs={},
        limit=LIMITS["broker-connections"],
    )
