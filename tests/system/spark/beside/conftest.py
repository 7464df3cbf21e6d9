"""One broker and one Spark for all of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.clients.driver_process import Driver
from tests.support.kafka import KafkaBroker
from tests.system.spark.beside.environment import worker
from tests.system.spark.beside.shop import SETTINGS, Shop, stock
from tests.system.spark.beside.stage import Beside


@pytest.fixture(scope="package")
def driver() -> Iterator[Driver]:
    """A process with both sources."""
    started = worker()
    yield started
    started.kill()


@pytest.fixture(scope="package")
def shop(tmp_path_factory: pytest.TempPathFactory, driver: Driver) -> Iterator[Shop]:
    """A broker with something of everything; it is filled while Spark starts."""
    folder = tmp_path_factory.mktemp("beside-broker")
    running = KafkaBroker(folder, SETTINGS)
    opened = Shop(running, folder)
    stock(opened)
    yield opened
    running.stop()


@pytest.fixture(scope="package")
def beside(
    shop: Shop, driver: Driver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Beside]:
    """Both sources, to be asked the same."""
    asked = Beside(driver, shop.servers, tmp_path_factory.mktemp("checkpoints"))
    yield asked
    asked.close()


@pytest.fixture(autouse=True)
def format_repeats(request: pytest.FixtureRequest) -> Iterator[None]:
    """Say at the end of the run what a test had to ask again."""
    asked: Beside | None = None
    if "beside" in request.fixturenames:
        asked = request.getfixturevalue("beside")
        asked.repeated.clear()
    yield
    if asked is not None and asked.repeated:
        request.node.user_properties.append(("repeated", "; ".join(asked.repeated)))
