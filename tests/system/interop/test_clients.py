"""The matrix of real clients, unmodified, against the broker.

The cells that were chosen run side by side, for most of their time is waiting; each test waits
for its own. ``ROTA_INTEROP=kafka`` puts a real Kafka in the broker's place: what fails there too is
wrong in the case.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tests.support.clients.case import Drivers
from tests.support.clients.registry import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, Client
from tests.support.cluster import real_kafka, rota_broker
from tests.support.missing_tool import Unavailable, tools_required
from tests.system.interop.group_case import mixed_libraries
from tests.system.interop.matrix import CELLS, MIXED, MIXED_STRATEGIES, Cell
from tests.system.interop.record import PassedCells

AT_ONCE = 8
WITH_KAFKA = os.environ.get("ROTA_INTEROP") == "kafka"
#: What ``make test`` tries, with the libraries that are installed beside these tests.
QUICK = {
    (case, client.name)
    for case in ("produce and read, none", "group, range")
    for client in (KAFKA_PYTHON, AIOKAFKA, CONFLUENT)
}


def marks(cell: Cell) -> list[pytest.MarkDecorator]:
    return [pytest.mark.quick] if (cell.case, cell.client.name) in QUICK else []


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    broker = real_kafka if WITH_KAFKA else rota_broker
    with broker(tmp_path_factory.mktemp("broker")) as cluster:
        made = Drivers(cluster)
        yield made
        made.close()


@pytest.fixture(scope="module")
def case_futures(
    request: pytest.FixtureRequest, drivers: Drivers
) -> Iterator[dict[str, Future[Any]]]:
    """What each chosen test waits for, by the test's name."""
    pool = ThreadPoolExecutor(AT_ONCE)
    trials: dict[str, Callable[[], Any]] = {
        f"test_one_group_of_many_libraries[{strategy}]": partial(
            join_all_libraries, strategy, drivers
        )
        for strategy in MIXED_STRATEGIES
    }
    trials |= {f"test_a_client[{cell}]": partial(cell.run, drivers) for cell in CELLS}
    chosen = {item.name for item in request.session.items}
    yield {name: pool.submit(trial) for name, trial in trials.items() if name in chosen}
    pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def passed_cells(drivers: Drivers) -> Iterator[PassedCells]:
    made = PassedCells()
    yield made
    if not WITH_KAFKA:
        made.save(drivers)


def join_all_libraries(strategy: str, drivers: Drivers) -> list[Client]:
    """One group of all libraries that are to be had here; returns them."""
    there = []
    for client in MIXED:
        try:
            drivers.driver(client)
        except Unavailable:
            if tools_required():
                raise
        else:
            there.append(client)
    mixed_libraries(strategy, there, drivers)
    return there


@pytest.mark.parametrize(
    "cell", [pytest.param(cell, id=str(cell), marks=marks(cell)) for cell in CELLS]
)
def test_a_client(
    cell: Cell,
    case_futures: dict[str, Future[Any]],
    passed_cells: PassedCells,
    request: pytest.FixtureRequest,
) -> None:
    case_futures[request.node.name].result()
    passed_cells.add_cell(cell)


@pytest.mark.parametrize("strategy", MIXED_STRATEGIES)
def test_one_group_of_many_libraries(
    strategy: str,
    case_futures: dict[str, Future[Any]],
    passed_cells: PassedCells,
    request: pytest.FixtureRequest,
) -> None:
    there = case_futures[request.node.name].result()
    passed_cells.add_mixed_group(strategy, there)
    assert set(there) >= {KAFKA_PYTHON, AIOKAFKA, CONFLUENT}  # the others need Java and Go
