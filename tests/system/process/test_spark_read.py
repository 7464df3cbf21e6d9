"""What a task reads: the records of its ranges, each once, and how it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import rota
from tests.support.process import wait_for_child
from tests.support.spark_topic import (
    T0,
    close_client_pool,
    read_offsets,
)


@pytest.fixture(autouse=True)
def close_kept_readers() -> Iterator[None]:
    yield
    close_client_pool()


@pytest.fixture
def broker() -> Iterator[rota.Broker]:
    with rota.Broker() as running:
        running.create_topic("t", 3)
        yield running


def fill(broker: rota.Broker, partition: int, count: int, *, size: int = 5, each: int = 1) -> None:
    for _ in range(count // each):
        broker.produce("t", *["x" * size] * each, partition=partition)


def test_a_fork_has_links_of_its_own(broker: rota.Broker) -> None:
    fill(broker, 0, 4)
    servers = broker.bootstrap_servers
    assert len(read_offsets(servers, (T0, 0, 4))) == 4
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if len(read_offsets(servers, (T0, 0, 4))) == 4 else 2
        finally:
            os._exit(status)
    assert wait_for_child(child) == 0
    assert len(read_offsets(servers, (T0, 0, 4))) == 4
