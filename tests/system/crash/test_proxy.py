"""The way to the broker itself."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.support.broker_process import free_port
from tests.support.proxy import Proxy

PATIENCE = 10


@contextmanager
def serve_echo() -> Iterator[int]:
    """A server that says what it hears; gives its port."""

    def talk(client: socket.socket) -> None:
        with client, suppress(OSError):
            while data := client.recv(1 << 16):
                client.sendall(data)

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                threading.Thread(target=talk, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=500) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE)


def exchange(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    heard = b""
    while len(heard) < len(text):
        heard += client.recv(len(text)) or b"(the end)"
    return heard


def test_bytes_get_through_until_it_is_cut() -> None:
    with serve_echo() as target, Proxy(free_port(), target) as proxy:
        with connect(proxy.port) as client:
            long = bytes(range(256)) * 400
            assert exchange(client, long) == long
            proxy.cut()
            with suppress(ConnectionError):
                assert client.recv(1) == b""
        with suppress(ConnectionError), connect(proxy.port) as client:
            assert client.recv(1) == b""
        proxy.mend()
        with connect(proxy.port) as client:
            assert exchange(client, b"again") == b"again"


def test_an_end_is_passed_on() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Proxy(free_port(), server.getsockname()[1]) as proxy,
    ):
        for ends_first in (True, False):
            client = connect(proxy.port)
            other, _ = server.accept()
            other.settimeout(PATIENCE)
            first, second = (client, other) if ends_first else (other, client)
            with first, second:
                first.close()
                assert second.recv(1) == b""


def test_nothing_is_left_open_when_it_ends_while_clients_connect() -> None:
    """A socket that is lost is a warning, and so an error, when it is collected."""
    ports: list[int] = []
    done = threading.Event()

    def hammer() -> None:
        while not done.is_set():
            for port in ports[-1:]:
                with suppress(OSError), connect(port) as client:
                    client.send(b"x")

    clients = [threading.Thread(target=hammer) for _ in range(4)]
    with serve_echo() as target:
        for each in clients:
            each.start()
        try:
            for _ in range(30):
                with Proxy(free_port(), target) as proxy:
                    ports.append(proxy.port)
                    done.wait(0.01)
        finally:
            done.set()
            for each in clients:
                each.join(PATIENCE)
    assert not any(each.is_alive() for each in clients)
    assert len(ports) == 30
    gc.collect()


def test_a_port_that_is_taken_is_told_at_once() -> None:
    with serve_echo() as target:
        with pytest.raises(OSError, match="in use"), Proxy(target, target):
            pytest.fail("it runs")
        with connect(target) as client:
            assert exchange(client, b"x") == b"x"  # who has the port is not disturbed
