"""Sockets: split and merged frames, order, slow and silent clients, strangers, limits."""

from __future__ import annotations

import gc
import os
import socket
import ssl
import struct
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from rota.broker.connection import ServerConnection, make_server_context
from rota.broker.events import ConnectionClosed, FrameReceived
from rota.broker.server import LogDeduplicator, Server
from rota.broker.timers import Clock
from rota.engine.model.config import BrokerConfig
from rota.errors import InputError
from tests.support.echo_server import (
    EchoServerThread,
    encode_frame,
    is_closed,
    limit_open_files,
    read_exactly,
    read_frame,
    run_echo_server,
)
from tests.support.waiting import wait_until

MIB = 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[EchoServerThread]:
    with run_echo_server() as one:
        yield one


def node_receives_events(server: EchoServerThread, count: int, kind: type) -> bool:
    """Returns whether the node receives this number of events of a kind in time."""

    def count_events() -> int:
        return server.run(lambda _: sum(isinstance(e, kind) for e in server.core.events))

    return bool(
        wait_until(f"{count} of {kind.__name__}", lambda: count_events() >= count, count_events)
    )


# Frames and order


@given(
    bodies=st.lists(st.binary(max_size=200), min_size=1, max_size=8),
    cuts=st.lists(st.integers(1, 300), max_size=20),
)
def test_frames_are_answered_in_order_however_they_are_cut(
    server: EchoServerThread, bodies: list[bytes], cuts: list[int]
) -> None:
    bodies = [b"=" + body for body in bodies]
    data = b"".join(map(encode_frame, bodies))
    with server.connect() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in cuts:
            client.sendall(data[:cut])
            data = data[cut:]
        client.sendall(data)
        assert [read_frame(client) for _ in bodies] == bodies


def test_a_request_waits_for_the_answer_of_the_one_before(server: EchoServerThread) -> None:
    with server.connect() as client, server.connect() as other:
        client.sendall(
            encode_frame(b"hold")
            + encode_frame(b"=second")
            + encode_frame(b"mute")
            + encode_frame(b"=third")
        )
        other.sendall(encode_frame(b"=other"))
        assert read_frame(other) == b"=other"
        other.sendall(encode_frame(b"free"))
        assert [read_frame(client) for _ in range(3)] == [b"freed", b"=second", b"=third"]


@pytest.mark.parametrize("size", [10, 1_000, 300_000])
def test_what_comes_while_a_request_waits_is_answered_after_it(
    server: EchoServerThread, size: int
) -> None:
    with server.connect() as client, server.connect() as other:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(encode_frame(b"hold"))
        for _ in range(3):  # in pieces of their own
            other.sendall(encode_frame(b"="))
            assert read_frame(other) == b"="
            client.sendall(encode_frame(b"=" * size))
        other.sendall(encode_frame(b"free"))
        assert read_frame(client) == b"freed"
        assert [len(read_frame(client)) for _ in range(3)] == [size] * 3


def test_thousands_of_requests_at_once_do_not_keep_others_waiting(server: EchoServerThread) -> None:
    count = 5_000
    with server.connect() as busy, server.connect() as other:
        busy.sendall(encode_frame(b"=") * count)
        other.sendall(encode_frame(b"=quick"))
        assert read_frame(other) == b"=quick"
        assert read_exactly(busy, 5 * count) == encode_frame(b"=") * count


def test_one_who_sends_no_more_gets_all_answers(server: EchoServerThread) -> None:
    with server.connect() as client, server.connect() as other:
        client.sendall(encode_frame(b"hold") + encode_frame(b"=last"))
        client.shutdown(socket.SHUT_WR)
        other.sendall(encode_frame(b"=now") + encode_frame(b"free"))
        assert read_frame(client) == b"freed"
        assert read_frame(client) == b"=last"
        assert is_closed(client)


def test_an_answer_before_the_end_goes_out(server: EchoServerThread) -> None:
    with server.connect() as client:
        client.sendall(encode_frame(b"bye") + encode_frame(b"=never"))
        assert read_frame(client) == b"bye"
        assert is_closed(client)


def test_the_node_learns_that_a_client_is_gone() -> None:
    with run_echo_server() as server:
        server.connect().close()
        assert node_receives_events(server, 1, ConnectionClosed)


def test_what_the_node_logs_is_logged() -> None:
    with run_echo_server() as server, server.connect() as client:
        client.sendall(encode_frame(b"say hello") + encode_frame(b"=then"))
        assert read_frame(client) == b"=then"
        assert server.lines == ["hello"]


def test_a_bug_costs_one_connection() -> None:
    with run_echo_server() as server, server.connect() as client, server.connect() as other:
        client.sendall(encode_frame(b"fail"))
        assert is_closed(client)
        other.sendall(encode_frame(b"=served"))
        assert read_frame(other) == b"=served"
        (line,) = server.lines
        assert line.endswith("a request could not be handled")


# Clients that do not read, or do not write


def test_answers_larger_than_any_buffer(server: EchoServerThread) -> None:
    with server.connect() as client:
        client.sendall(encode_frame(b"big %d" % (50 * MIB)) + encode_frame(b"=next"))
        assert len(read_frame(client)) == 50 * MIB
        assert read_frame(client) == b"=next"


def test_one_who_is_gone_in_the_middle_of_an_answer_is_told_of_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio logs it if its own writing meets with an end that was told inside of it."""
    resume = ServerConnection.resume_writing
    resumed: list[ServerConnection] = []

    def gone_by_then(connection: ServerConnection) -> None:
        client.close()
        resumed.append(connection)
        resume(connection)

    monkeypatch.setattr(ServerConnection, "resume_writing", gone_by_then)
    with run_echo_server() as server, server.connect() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(encode_frame(b"big %d" % (40 * MIB)))
        assert node_receives_events(server, 1, FrameReceived)
        client.setblocking(False)  # or it would be closed only once it has something to read
        while not resumed:
            with suppress(OSError):  # nothing there, or closed meanwhile
                client.recv(MIB)
        assert node_receives_events(server, 1, ConnectionClosed)
        assert len(resumed) == 1
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_the_next_answer_comes_behind_the_rest_of_the_one_before() -> None:
    """Also if a turn was asked for before the client has read."""
    with run_echo_server() as server, server.connect() as client:
        client.sendall(encode_frame(b"big %d" % (20 * MIB)) + encode_frame(b"=next"))
        assert node_receives_events(server, 1, FrameReceived)

        def has_read(one: Server) -> None:
            (connection,) = one._connections.values()
            assert connection.unsent_bytes
            one.loop.call_soon(connection._on_next_frame_due)
            connection.resume_writing()

        server.run(has_read)
        assert len(read_frame(client)) == 20 * MIB
        assert read_frame(client) == b"=next"


def test_what_was_sent_is_not_kept(server: EchoServerThread) -> None:
    with server.connect() as client:
        tracemalloc.start()
        client.sendall(encode_frame(b"big %d" % (20 * MIB)))
        read_frame(client)
        client.sendall(encode_frame(b"wake 0"))
        read_frame(client)
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert size < MIB


def test_one_who_does_not_read_is_not_read_either() -> None:
    """However much it sends, little is taken from it, and others are served."""
    with run_echo_server() as server, server.connect() as deaf, server.connect() as other:
        deaf.settimeout(1)
        request, sent = encode_frame(b"=" * 100_000), 0
        tracemalloc.start()
        try:
            for _ in range(1_000):  # 100 MB
                deaf.sendall(request)
                sent += 1
        except TimeoutError:
            pass
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert sent < 500
        assert peak < 8 * MIB
        other.sendall(encode_frame(b"=served"))
        assert read_frame(other) == b"=served"


def test_answers_that_nobody_reads_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests wait until there is room; who does not read at all makes room by going."""
    monkeypatch.setattr("rota.broker.server.MAX_UNSENT_BYTES", 20 * MIB)
    monkeypatch.setattr("rota.broker.server.STALLED_CLIENT_TIMEOUT", 0.1)
    with run_echo_server() as server:
        tracemalloc.start()
        deaf = [server.connect() for _ in range(20)]
        for client in deaf:
            client.sendall(encode_frame(b"big %d" % (15 * MIB)))
        with server.connect() as client:
            client.sendall(encode_frame(b"=served"))
            assert read_frame(client) == b"=served"
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 60 * MIB
        assert any("bytes was not read" in line for line in server.lines)
        for client in deaf:
            client.close()


def test_slow_readers_get_all_however_little_room_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rota.broker.server.MAX_UNSENT_BYTES", MIB)
    with run_echo_server() as server:
        clients = [server.connect() for _ in range(8)]
        for client in clients:
            client.sendall(encode_frame(b"big %d" % (9 * MIB)) + encode_frame(b"=more"))
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda each: (read_frame(each), read_frame(each)), clients))
        assert [(len(big), more) for big, more in answers] == [(9 * MIB, b"=more")] * 8
        for client in clients:
            client.close()


def test_a_frame_that_comes_byte_by_byte(server: EchoServerThread) -> None:
    with server.connect() as slow, server.connect() as other:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in encode_frame(b"=slowly"):
            slow.sendall(bytes([byte]))
            other.sendall(encode_frame(b"="))
            assert read_frame(other) == b"="
        assert read_frame(slow) == b"=slowly"


def test_what_is_announced_takes_no_memory_before_it_comes() -> None:
    with run_echo_server() as server:
        tracemalloc.start()
        clients = [server.connect() for _ in range(50)]
        for client in clients:
            client.sendall(struct.pack(">i", 99 * MIB) + b"a beginning")
        clients[0].sendall(bytes(3 * MIB))
        with server.connect() as other:
            other.sendall(encode_frame(b"=served"))
            assert read_frame(other) == b"=served"
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        for client in clients:
            client.close()
        assert peak < 24 * MIB


def reserved_memory(server: EchoServerThread) -> tuple[int, int]:
    """Returns the bytes reserved for requests, and the number of partial requests."""
    return server.run(
        lambda one: (one.request_memory.reserved_bytes, len(one.request_memory._partial_requests))
    )


def test_unfinished_requests_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not read on, but for one at a time; who stands still makes room by going."""
    monkeypatch.setattr("rota.broker.connection.MAX_REQUEST_MEMORY", 20 * MIB)
    monkeypatch.setattr("rota.broker.connection.STALLED_REQUEST_TIMEOUT", 0.2)
    monkeypatch.setattr("rota.broker.connection.SLOW_REQUEST_TIMEOUT", 0.6)
    beginning, request = encode_frame(bytes(9 * MIB))[: 8 * MIB], encode_frame(b"=" * 5 * MIB)
    with run_echo_server(BrokerConfig(max_request_bytes=10 * MIB)) as server:
        tracemalloc.start()
        with ThreadPoolExecutor(30) as pool:
            stalled = [server.connect() for _ in range(16)]
            for client in stalled:
                pool.submit(client.sendall, beginning)
            with server.connect() as small:
                small.sendall(encode_frame(b"=served all along"))
                assert read_frame(small) == b"=served all along"
            honest = [server.connect() for _ in range(4)]
            for client in honest:
                pool.submit(client.sendall, request)
            assert [len(read_frame(client)) for client in honest] == [5 * MIB] * 4
            assert node_receives_events(server, 17, ConnectionClosed)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 100 * MIB  # with the answers; 144 in requests alone without a limit
        assert any("bytes of a request came in" in line for line in server.lines)
        assert reserved_memory(server) == (0, 0)
        for client in (*stalled, *honest):
            client.close()


def test_all_requests_get_done_however_little_room_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rota.broker.connection.MAX_REQUEST_MEMORY", MIB)
    with run_echo_server(BrokerConfig(max_request_bytes=4 * MIB)) as server:
        bodies = [b"=" * size for size in (3 * MIB, 100, 4 * MIB, 300_000, 2 * MIB, 1)] * 3

        def ask(body: bytes) -> int:
            with server.connect() as client:
                client.sendall(encode_frame(body) + encode_frame(body[:1_000]))
                return len(read_frame(client)) + len(read_frame(client))

        with ThreadPoolExecutor(len(bodies)) as pool:
            answers = list(pool.map(ask, bodies))
        assert answers == [len(body) + len(body[:1_000]) for body in bodies]
        assert node_receives_events(server, len(bodies), ConnectionClosed)
        assert reserved_memory(server) == (0, 0)
        assert server.lines == []


def test_a_request_that_dribbles_is_given_up_and_a_slow_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rota.broker.connection.STALLED_REQUEST_TIMEOUT", 1.0)
    monkeypatch.setattr("rota.broker.connection.SLOW_REQUEST_TIMEOUT", 1.5)
    monkeypatch.setattr("rota.broker.connection.MIN_PROGRESS_BYTES", 1_000)
    with run_echo_server() as server, server.connect() as dribbling, server.connect() as slow:
        whole = encode_frame(b"=" * 40_000)
        for client in (dribbling, slow):
            client.sendall(whole[:1_000])
        for at in range(1_000, len(whole), 1_000):  # 4 s, more than twice what a pause may last
            slow.sendall(whole[at : at + 1_000])
            with suppress(OSError):
                dribbling.sendall(whole[at : at + 10])
            time.sleep(0.1)
        assert len(read_frame(slow)) == 40_000
        assert is_closed(dribbling)
        (line,) = server.lines
        assert "bytes of a request came in" in line


def test_a_request_behind_one_that_waits_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the broker that does not read on."""
    monkeypatch.setattr("rota.broker.connection.STALLED_REQUEST_TIMEOUT", 0.05)
    monkeypatch.setattr("rota.broker.connection.SLOW_REQUEST_TIMEOUT", 0.1)
    with run_echo_server() as server, server.connect() as waiting, server.connect() as other:
        rest = encode_frame(b"=" * 10_000)
        waiting.sendall(encode_frame(b"hold") + rest[:50])
        assert node_receives_events(server, 1, FrameReceived)
        time.sleep(0.5)
        other.sendall(encode_frame(b"free"))
        assert read_frame(other) == b"freed"
        waiting.sendall(rest[50:])
        assert read_frame(waiting) == b"freed"
        assert len(read_frame(waiting)) == 10_000


def test_a_login_may_not_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.broker.connection.LOGIN_TIMEOUT", 0.3)
    with run_echo_server() as server:
        server.core.login_needed = True
        with server.connect() as stranger, server.connect() as client:
            client.sendall(encode_frame(b"login"))
            assert read_frame(client) == b"welcome"
            stranger.sendall(encode_frame(b"=who are you"))
            assert read_frame(stranger) == b"=who are you"
            assert is_closed(stranger)
            client.sendall(encode_frame(b"=still in"))
            assert read_frame(client) == b"=still in"
        (line,) = server.lines
        assert "no user has logged in within 0.3 seconds" in line


# Strangers


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100), "TLS"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP"),
        (b"POST /topics HTTP/1.1\r\n\r\n", "HTTP"),
        (struct.pack(">i", 100 * MIB + 1), "104857601"),
        (struct.pack(">i", 2**31 - 1), "2147483647"),
        (struct.pack(">i", -1), "-1"),
        (b"\xff" * 4_096, "-1"),
    ],
    ids=["tls", "http-get", "http-post", "over the limit", "2 GiB", "negative", "garbage"],
)
def test_strangers_are_shown_out_with_one_line(sent: bytes, message: str) -> None:
    with run_echo_server() as server:
        with server.connect() as stranger:
            stranger.sendall(sent)
            assert is_closed(stranger)
        with server.connect() as client:
            client.sendall(encode_frame(b"=served"))
            assert read_frame(client) == b"=served"
        (line,) = server.lines
        assert line.startswith("127.0.0.1:")
        assert message in line
        assert line.endswith("the connection is closed")


def test_no_more_connections_than_allowed() -> None:
    with run_echo_server(BrokerConfig(max_connections=2)) as server:
        with server.connect() as one, server.connect() as two:
            for client in (one, two):
                client.sendall(encode_frame(b"=in"))
                assert read_frame(client) == b"=in"
            for _ in range(3):
                with server.connect() as third:
                    assert is_closed(third)
        assert [line.partition(" is ")[2] for line in server.lines] == [
            "refused, and so are further clients: max.connections is 2"
        ]
        assert node_receives_events(server, 2, ConnectionClosed)
        with server.connect() as client:
            client.sendall(encode_frame(b"=room"))
            assert read_frame(client) == b"=room"


def test_requests_are_small_before_a_login() -> None:
    with run_echo_server() as server:
        server.core.login_needed = True
        with server.connect() as stranger:
            stranger.sendall(struct.pack(">i", 512 * 1024 + 1))
            assert is_closed(stranger)
        with server.connect() as client:
            client.sendall(encode_frame(b"login") + encode_frame(b"=" * MIB))
            assert read_frame(client) == b"welcome"
            assert len(read_frame(client)) == MIB


# Silence


def test_a_silent_connection_is_closed_though_a_request_waits() -> None:
    with run_echo_server(BrokerConfig(idle_connection=300)) as server:
        with server.connect() as silent, server.connect() as waiting:
            waiting.sendall(encode_frame(b"hold"))
            assert is_closed(silent)
            assert is_closed(waiting)
        assert any("idle for" in line for line in server.lines)


def test_a_client_that_has_gone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.broker.connection.HALF_CLOSED_TIMEOUT", 0.05)
    with run_echo_server() as server:
        for _ in range(5):
            with server.connect() as client:
                client.sendall(encode_frame(b"hold"))
                assert node_receives_events(server, 1, FrameReceived)
        assert node_receives_events(server, 5, ConnectionClosed)


# The log


def test_what_one_client_does_again_and_again_is_said_once() -> None:
    with run_echo_server() as server:
        for _ in range(5):
            with server.connect() as client:
                client.sendall(struct.pack(">i", -1))
                assert is_closed(client)
        (line,) = server.lines
        assert line.startswith("127.0.0.1: ")


def test_how_often_it_was_is_said_a_minute_later() -> None:
    message: list[str] = []
    repeats = LogDeduplicator(lambda _, text: message.append(text))
    for at in (0, 1, 2, 59, 61):
        repeats.log(30, "wrong", float(at))
    repeats.log(30, "other", 62.0)
    assert message == ["wrong", "wrong (3 times more in the last 61 s)", "other"]
    for number in range(10_000):
        repeats.log(30, f"{number}", 70.0)
    assert len(message) == 10_003


def test_one_who_never_reads_its_answer_is_closed_too() -> None:
    with run_echo_server(BrokerConfig(idle_connection=300)) as server, server.connect() as deaf:
        deaf.sendall(encode_frame(b"big %d" % (40 * MIB)))
        assert node_receives_events(server, 1, ConnectionClosed)


def measure_idle_connections(server: EchoServerThread, count: int) -> tuple[int, float]:
    """Returns the bytes that idle connections occupy, and how long a new client then waits."""
    gc.collect()
    tracemalloc.start()
    clients = [server.connect() for _ in range(count)]
    started = time.perf_counter()
    with server.connect() as client:
        client.sendall(encode_frame(b"=served"))
        assert read_frame(client) == b"=served"
    waited = time.perf_counter() - started
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for each in clients:
        each.close()
    return size, waited


def test_two_thousand_idle_connections_are_cheap() -> None:
    limit_open_files(5_000)
    with run_echo_server() as server:
        size, _ = measure_idle_connections(server, 2_000)
    assert size < 40 * MIB  # the clients' own sockets included


def test_threads_of_clients_at_once(server: EchoServerThread) -> None:
    def talk(name: int) -> None:
        with server.connect() as client:
            for number in range(50):
                text = b"=%d %d" % (name, number)
                client.sendall(encode_frame(text))
                assert read_frame(client) == text
        done.append(name)

    done: list[int] = []
    threads = [threading.Thread(target=talk, args=(name,)) for name in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(done) == list(range(20))


# Time


def test_an_alarm_wakes_the_node(server: EchoServerThread) -> None:
    with server.connect() as client:
        before = server.clock.now()  # the machine's own may be set back meanwhile
        client.sendall(encode_frame(b"wake 30"))
        assert int(read_frame(client)) >= before + 30


def test_time_that_is_advanced_rings_alarms_in_order_each_at_its_own_time() -> None:
    clock = Clock()
    clock.freeze()
    with run_echo_server(clock=clock) as server:
        clients = [server.connect() for _ in range(3)]
        start = clock.now()
        for after, client in zip((3_000, 1_000, 2_000), clients, strict=True):
            client.sendall(encode_frame(b"wake %d" % after))
        assert node_receives_events(server, 3, FrameReceived)
        server.run(lambda one: one.advance(2_500))
        assert int(read_frame(clients[1])) == start + 1_000
        assert int(read_frame(clients[2])) == start + 2_000
        assert clock.now() == start + 2_500
        server.run(lambda one: one.advance(500))
        assert int(read_frame(clients[0])) == start + 3_000
        for client in clients:
            client.close()


def test_time_goes_on_from_where_it_was_frozen() -> None:
    with run_echo_server() as server, server.connect() as client:
        server.run(lambda one: one.freeze())
        at = server.clock.now()
        client.sendall(encode_frame(b"wake 20"))
        assert node_receives_events(server, 1, FrameReceived)
        assert server.clock.now() == at
        server.run(lambda one: one.resume())
        assert at + 20 <= int(read_frame(client))


# TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls_server(
    authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EchoServerThread]:
    folder = tmp_path_factory.mktemp("tls")
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    for number, blob in enumerate(certificate.cert_chain_pems):
        blob.write_to_path(folder / "cert.pem", append=number > 0)
    with run_echo_server(
        context=make_server_context(folder / "cert.pem", folder / "key.pem")
    ) as one:
        yield one


def connect_tls(authority: trustme.CA, server: EchoServerThread) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context.wrap_socket(server.connect(), server_hostname="localhost")


def test_tls(authority: trustme.CA, tls_server: EchoServerThread) -> None:
    with connect_tls(authority, tls_server) as client:
        client.sendall(
            encode_frame(b"=secret")
            + encode_frame(b"=" * (3 * MIB))
            + encode_frame(b"big 20000000")
        )
        assert read_frame(client) == b"=secret"
        assert read_frame(client) == b"=" * (3 * MIB)
        assert len(read_frame(client)) == 20_000_000


def test_requests_over_tls_get_done_however_little_room_there_is(
    authority: trustme.CA, tls_server: EchoServerThread
) -> None:
    most = tls_server.run(lambda one: one.request_memory.max_bytes)
    tls_server.run(lambda one: setattr(one.request_memory, "max_bytes", 100_000))

    def ask(size: int) -> int:
        with connect_tls(authority, tls_server) as client:
            client.sendall(encode_frame(b"=" * size))
            return len(read_frame(client))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, [MIB] * 8)) == [MIB] * 8
    tls_server.run(lambda one: setattr(one.request_memory, "max_bytes", most))


def test_the_end_of_tls_is_met(authority: trustme.CA, tls_server: EchoServerThread) -> None:
    with connect_tls(authority, tls_server) as client:
        client.sendall(encode_frame(b"bye"))
        assert read_frame(client) == b"bye"
        assert is_closed(client)
    before = tls_server.run(
        lambda _: sum(isinstance(e, ConnectionClosed) for e in tls_server.core.events)
    )
    with connect_tls(authority, tls_server) as client:
        client.sendall(encode_frame(b"=x"))
        assert read_frame(client) == b"=x"
        client.unwrap().close()
    assert node_receives_events(tls_server, before + 1, ConnectionClosed)


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (encode_frame(b"\x00\x12\x00\x04\x00\x00\x00\x01"), "without TLS"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP"),
        (bytes(range(256)) * 64, "TLS"),
    ],
    ids=["kafka", "http", "garbage"],
)
def test_bytes_without_tls_on_a_port_with_it(
    authority: trustme.CA, tls_server: EchoServerThread, sent: bytes, message: str
) -> None:
    with tls_server.connect() as stranger:
        stranger.sendall(sent)
        while not is_closed(stranger):
            pass  # an alert comes first
    assert any(message in line for line in tls_server.lines)
    with connect_tls(authority, tls_server) as client:
        client.sendall(encode_frame(b"=served"))
        assert read_frame(client) == b"=served"


def test_a_handshake_may_not_take_long(
    tls_server: EchoServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.broker.connection.TLS_HANDSHAKE_TIMEOUT", 0.2)
    before = len(tls_server.lines)
    with tls_server.connect() as silent, tls_server.connect() as slow:
        slow.sendall(bytes.fromhex("160301"))  # it begins, and goes no further
        assert is_closed(silent)
        assert is_closed(slow)
    assert [line.partition(": ")[2] for line in tls_server.lines[before:]] == [
        "no TLS handshake within 0.2 seconds; the connection is closed"
    ]


def test_a_client_that_does_not_trust_the_certificate(tls_server: EchoServerThread) -> None:
    before = len(tls_server.lines)
    context = ssl.create_default_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        context.wrap_socket(tls_server.connect(), server_hostname="localhost")
    wait_until("the broker says it", lambda: len(tls_server.lines) > before)
    assert "does not trust" in tls_server.lines[-1]


def test_idle_tls_connections_are_cheap_too(
    authority: trustme.CA, tls_server: EchoServerThread
) -> None:
    clients = [connect_tls(authority, tls_server) for _ in range(3)]
    gc.collect()
    tracemalloc.start()
    clients += [connect_tls(authority, tls_server) for _ in range(50)]
    for client in clients:
        client.sendall(encode_frame(b"="))
        assert read_frame(client) == b"="
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for client in clients:
        client.close()
    assert size < 50 * 40_000  # what OpenSSL keeps is not seen here


def test_certificates_that_cannot_be_used(authority: trustme.CA, tmp_path: Path) -> None:
    one, two = authority.issue_cert("a.example"), authority.issue_cert("b.example")
    (tmp_path / "no.pem").write_text("no certificate")
    one.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    two.private_key_pem.write_to_path(tmp_path / "other.pem")
    with pytest.raises(Exception, match=r"missing\.pem: No such file"):
        make_server_context(tmp_path / "missing.pem", None)
    with pytest.raises(InputError, match=r"no\.pem: it has no certificate in PEM"):
        make_server_context(tmp_path / "no.pem", None)
    with pytest.raises(InputError, match=r"cert\.pem: the key is missing: pass its file"):
        make_server_context(tmp_path / "cert.pem", None)
    with pytest.raises(InputError, match="the first file has no certificate"):
        make_server_context(tmp_path / "other.pem", tmp_path / "cert.pem")
    with pytest.raises(InputError, match="the second file has no key"):
        make_server_context(tmp_path / "cert.pem", tmp_path / "no.pem")
    with pytest.raises(Exception, match="does not belong"):
        make_server_context(tmp_path / "cert.pem", tmp_path / "other.pem")


def test_answers_are_not_held_back_until_earlier_ones_are_acknowledged(
    server: EchoServerThread,
) -> None:
    with server.connect() as client:
        client.sendall(encode_frame(b"=here"))
        assert read_frame(client) == b"=here"
        (descriptor,) = server.run(lambda one: one.descriptors())
        with socket.socket(fileno=os.dup(descriptor)) as theirs:
            assert theirs.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
