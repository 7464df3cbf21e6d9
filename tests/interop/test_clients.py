"""The matrix of real clients, unmodified, against the broker.

The cells that were chosen run side by side, for most of their time is waiting; each test waits
for its own. ``ROTA_INTEROP=kafka`` puts a real Kafka in the broker's place: what fails there too is
wrong in the case.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.interop.cluster import real_kafka, rota_broker
from tests.interop.group_case import mixed
from tests.interop.matrix import CELLS, MIXED, MIXED_STRATEGIES, Cell
from tests.interop.record import Record
from tests.interop.scene import Stage
from tests.java.launcher import Unavailable

AT_ONCE = 8


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    broker = real_kafka if os.environ.get("ROTA_INTEROP") == "kafka" else rota_broker
    with broker(tmp_path_factory.mktemp("broker")) as cluster:
        made = Stage(cluster)
        yield made
        made.close()


@pytest.fixture(scope="module")
def turns(request: pytest.FixtureRequest, stage: Stage) -> Iterator[dict[Cell, Future[None]]]:
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    wanted = [item.name for item in items if item.originalname == "test_a_client"]
    chosen = [cell for cell in CELLS if f"test_a_client[{cell}]" in wanted]
    pool = ThreadPoolExecutor(AT_ONCE)
    yield {cell: pool.submit(cell.run, stage) for cell in chosen}
    pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def record(stage: Stage) -> Iterator[Record]:
    made = Record()
    yield made
    made.save(stage)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_client(cell: Cell, turns: dict[Cell, Future[None]], record: Record) -> None:
    try:
        turns[cell].result()
    except Unavailable as reason:
        pytest.skip(f"{cell.client.name}: {reason}")
    record.passed(cell)


@pytest.mark.parametrize("strategy", MIXED_STRATEGIES)
def test_one_group_of_many_libraries(strategy: str, stage: Stage, record: Record) -> None:
    there = []
    for client in MIXED:
        try:
            stage.driver(client)
        except Unavailable as reason:
            print(f"without {client.name}: {reason}")
        else:
            there.append(client)
    mixed(strategy, there, stage)
    record.mixed(strategy, there)
