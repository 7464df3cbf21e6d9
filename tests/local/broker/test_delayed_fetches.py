"""Many long polls that one append wakes: they are answered in turn, as memory allows."""

from __future__ import annotations

import socket
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rota
from rota.protocol.messages import Api, ApiVersionsRequest, FetchRequest
from tests.support.raw_client import RawClient

MIB = 1 << 20
LARGE = bytes(400_000)


def send_waiting_fetches(broker: rota.Broker, count: int, min_bytes: int) -> list[RawClient]:
    clients = [RawClient(broker.bootstrap_servers) for _ in range(count)]
    topic = FetchRequest.FetchTopic
    partition = FetchRequest.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=50 * MIB, log_start_offset=-1
    )
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=60_000,
        min_bytes=min_bytes,
        max_bytes=50 * MIB,
        isolation_level=0,
        topics=[topic(topic="t", partitions=[partition])],
    )
    for client in clients:
        client.send(Api.FETCH, 4, request)
        client.send(Api.API_VERSIONS, 0, ApiVersionsRequest())
    return clients


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[rota.Broker]:
    """Twelve megabytes are there, and memory for little more."""
    monkeypatch.setattr("rota.broker.server.FETCH_UNSENT_LIMIT", 8 * MIB)
    with rota.Broker(tmp_path) as one:
        one.create_topic("t")
        for _ in range(30):
            one.produce("t", LARGE)
        yield one


def test_those_who_do_not_read_take_little_memory_and_others_are_served(
    broker: rota.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.broker.server.STALLED_CLIENT_TIMEOUT", 0.1)
    deaf = send_waiting_fetches(broker, 20, min_bytes=12_200_000)
    for each in deaf:  # else the machine takes most of an answer
        each.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    tracemalloc.start()
    broker.produce("t", LARGE)  # 20 answers of 12.4 MB
    with RawClient(broker.bootstrap_servers) as client:
        assert client.ask(Api.API_VERSIONS, 0, ApiVersionsRequest()).error_code == 0
    reader = send_waiting_fetches(broker, 1, min_bytes=1)[0]
    assert len(reader.receive(Api.FETCH, 4).responses[0].partitions[0].records) > 12_400_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for each in (reader, *deaf):
        each.close()
    assert peak < 80 * MIB


def test_those_who_read_get_all_however_little_room_there_is(broker: rota.Broker) -> None:
    clients = send_waiting_fetches(broker, 20, min_bytes=12_200_000)
    broker.produce("t", LARGE)

    def read(client: RawClient) -> tuple[int, int]:
        (partition,) = client.receive(Api.FETCH, 4).responses[0].partitions
        return len(partition.records), client.receive(Api.API_VERSIONS, 0).error_code

    with ThreadPoolExecutor(len(clients)) as pool:
        found = list(pool.map(read, clients))
    for client in clients:
        client.close()
    assert {code for _, code in found} == {0}
    assert min(size for size, _ in found) > 12_400_000
