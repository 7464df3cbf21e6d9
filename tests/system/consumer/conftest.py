"""Both brokers, and the drivers of the clients: each started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.consumer.client_drivers import ClientDrivers
from tests.system.consumer.cluster import Cluster, kafka_cluster, rota_cluster
from tests.system.consumer.group import GroupCase


@pytest.fixture(scope="package", params=["rota", "kafka"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """The broker: Rota's own, then a real Kafka."""
    made = rota_cluster if request.param == "rota" else kafka_cluster
    with made(tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(scope="package")
def drivers() -> Iterator[ClientDrivers]:
    """The clients."""
    made = ClientDrivers()
    yield made
    made.close()


@pytest.fixture
def group_case(cluster: Cluster, drivers: ClientDrivers) -> Iterator[GroupCase]:
    """A case whose broker may be hurt; it is well again at the end."""
    with GroupCase(cluster, drivers, cluster.cut_off) as made:
        yield made
    cluster.heal()
