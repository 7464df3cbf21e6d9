"""What is said of an address where no Kafka is, or not the one that was expected."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import re
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

import rota
from rota.client.connection import MAX_RESPONSE_BYTES, BrokerConnection
from rota.engine.model.config import TlsConfig
from rota.errors import Code, NotKafka, Refused, TimedOut, Unreachable
from rota.protocol.codec import read_request_header, write_response
from rota.protocol.messages import (
    Api,
    ApiVersionsResponse,
    FetchRequest,
    MetadataRequest,
    MetadataResponse,
)
from tests.support.client import Talk, client, config, new_deadline, parse_address, run, server
from tests.support.kafka import free_ports


def reply_once(data: bytes, *, stay: bool = False) -> Talk:
    """Returns a server that waits for a request, sends this, and closes or stays."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(data)
        await writer.drain()
        if stay:
            await reader.read()

    return talk


def connect_error(talk: Talk, kind: type[Exception] = NotKafka, patience: float = 10) -> str:
    async def main() -> str:
        async with server(talk) as at:
            with pytest.raises(kind) as caught:
                await BrokerConnection.open(parse_address(at), config(at), new_deadline(patience))
            assert at in str(caught.value)
            return str(caught.value)

    return run(main())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            "an HTTP server .* it says 'HTTP/1.1 400 Bad",
        ),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "an SSH server"),
        (b"220 mail.example ESMTP\r\n", "an FTP or mail server"),
        (b"-ERR unknown command\r\n", "a Redis server"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "the server uses TLS.*set security.protocol to SSL"),
        (b"J\x00\x00\x00\x0a8.0.35", "a MySQL server"),
        (b"<html>", "an HTTP server"),
        (b"<!doctype html>", "an HTTP server"),
        (b"<?xml version='1.0'?>", "XML"),
        (b"\xff\xff\xff\xff", "does not speak Kafka's protocol: it says"),
        (b"\x00\x00\x00\x00", "does not speak Kafka's protocol"),
        (b"\x7f\xff\xff\xff", "does not speak Kafka's protocol"),
        (b"hello, who is there?", "does not speak Kafka's protocol: it says 'hello, who is there"),
    ],
)
def test_another_server_is_known_by_what_it_says(data: bytes, message: str) -> None:
    for stay in (False, True):
        assert re.search(message, connect_error(reply_once(data, stay=stay)))


def test_a_server_that_speaks_first() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-dropbear\r\n")
        await reader.read()

    assert "an SSH server" in connect_error(talk)


def test_a_server_that_closes_at_once() -> None:
    assert "closes the connection before it answers: is it a port for TLS" in connect_error(
        reply_once(b"")
    )


def test_a_server_that_says_nothing() -> None:
    message = connect_error(reply_once(b"", stay=True), patience=0.1)
    assert re.search(r"the server sends nothing within [0-9.]+ s: is it a port for TLS", message)
    assert "SASL_SSL" in message


@contextlib.contextmanager
def http_server(context: ssl.SSLContext | None = None) -> Iterator[str]:
    """One that reads a line before it says anything."""
    listening = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SilentHandler)
    if context is not None:
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listening.server_port}"
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


class SilentHandler(http.server.BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Says nothing."""


SHORT = {"connect_timeout": 200, "request_timeout": 60_000}


@pytest.mark.parametrize("speaks_tls", [False, True])
def test_a_server_that_waits_for_the_end_of_a_line(speaks_tls: bool, tmp_path: Path) -> None:
    authority, context, tls = trustme.CA(), None, None
    if speaks_tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        tls = TlsConfig(truststore_certificates=authority.cert_pem.bytes().decode())

    async def main(at: str) -> None:
        async with client(at, tls=tls, **SHORT) as one:
            message = f"{at} of bootstrap.servers: an HTTP server answers there"
            with pytest.raises(NotKafka, match=message) as caught:
                await one.refresh([], deadline=new_deadline(3600))
            assert caught.value.certain

    with http_server(context) as at:
        run(main(at))


def test_who_waits_for_less_than_that_hears_where_it_was_and_how_far_it_came() -> None:
    with http_server() as at:
        settings = {"bootstrap.servers": at, "group.id": "readers"}
        with rota.Consumer(settings) as consumer:
            with pytest.raises(
                Unreachable, match=f"{at}.*the server sends nothing before the timeout"
            ):
                consumer.topics(0.1)
            consumer.subscribe("orders")
            assert not consumer.poll(0)
            with pytest.raises(
                Unreachable, match=f"{at}.*the server sends nothing before the timeout"
            ):
                consumer.topics(0.1)


def test_what_cannot_be_reached_is_said_once_by_each_who_needs_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    at = f"127.0.0.1:{free_ports(1)[0]}"
    settings = {"bootstrap.servers": at, "group.id": "readers", "default.api.timeout.ms": 1000}
    with rota.Consumer({**settings, "request.timeout.ms": 1000}) as consumer:
        consumer.subscribe("orders")
        with pytest.raises(Unreachable, match=f"{at}.*the connection is refused"):
            consumer.poll(10)
    message = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert [each.name for each in caplog.records if at in each.getMessage()].count(
        "rota.client"
    ) == 1
    assert len(set(message)) == len(message)


@pytest.mark.parametrize("closes", [False, True])
def test_a_server_that_says_nothing_whatever_it_hears(closes: bool) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        if not closes:
            await asyncio.Event().wait()

    async def main() -> None:
        async with server(talk) as at:
            with pytest.raises(NotKafka, match=f"{at}: the server sends nothing within") as caught:
                await BrokerConnection.open(
                    parse_address(at), config(at, **SHORT), new_deadline(3600)
                )
            assert not caught.value.certain

    run(main())


def test_a_broker_that_is_slow_is_given_more_time_with_each_try() -> None:
    tries = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tries.append(writer)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        asked = read_request_header(await reader.readexactly(size))
        ended = asyncio.ensure_future(reader.read())
        await asyncio.wait([ended], timeout=0.3)
        offer = api_versions_response(API_VERSIONS=(0, 4))
        writer.write(
            write_response(Api.API_VERSIONS, asked.api_version, asked.correlation_id, offer)
        )
        await ended

    async def main() -> None:
        async with server(talk) as at, client(at, **SHORT) as one:
            connection = await one.connect(deadline=new_deadline())
            assert connection.is_usable
            assert len(tries) > 1

    run(main())


def test_a_server_that_says_little() -> None:
    talk = reply_once(struct.pack(">i", 100) + b"\0\0\0\1", stay=True)
    assert "its greeting was not complete within" in connect_error(talk, TimedOut, 0.1)


def test_a_frame_that_is_none_of_kafkas() -> None:
    assert "the server is not Kafka" in connect_error(
        reply_once(struct.pack(">iihi", 10, 1, 0, 99))
    )


def test_an_answer_to_another_request() -> None:
    talk = reply_once(struct.pack(">iihi", 10, 7, 0, 0))
    assert "a response to request 7 instead of 1" in connect_error(talk, Unreachable)


def test_http_is_told_at_once_however_long_the_deadline_is() -> None:
    async def main() -> None:
        async with server(reply_once(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as at, client(at) as one:
            with pytest.raises(NotKafka, match=f"{at} of bootstrap.servers: an HTTP server"):
                await one.refresh([], deadline=new_deadline(3600))

    run(main())


def test_a_proxy_before_a_dead_broker_is_not_taken_for_a_stranger() -> None:
    async def main() -> None:
        offer = api_versions_response(API_VERSIONS=(0, 2), METADATA=(0, 5))
        talks = [reply_like_broker(offer)]

        async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if talks:
                await talks[0](reader, writer)

        async with server(proxy) as at, client(at) as one:
            connection = await one.connect(deadline=new_deadline())
            talks.clear()
            await connection.close_and_wait()
            with pytest.raises(Unreachable, match="the broker does not answer any more") as caught:
                await one.connect(deadline=new_deadline(0.05))
            assert not isinstance(caught.value, NotKafka)

    run(main())


def test_tls_where_a_plain_server_answers() -> None:
    async def main() -> None:
        async with server(reply_once(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as at:
            with pytest.raises(NotKafka, match="the port does not use TLS: it may be a port for"):
                await BrokerConnection.open(
                    parse_address(at), config(at, tls=TlsConfig()), new_deadline()
                )

    run(main())


def test_a_plain_client_where_tls_is_spoken(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with rota.Broker(tls=context) as broker:

        async def main() -> None:
            at = broker.bootstrap_servers
            with pytest.raises(NotKafka, match="TLS"):
                await BrokerConnection.open(parse_address(at), config(at), new_deadline())

        run(main())


# Addresses


def test_each_address_that_nobody_listens_at_is_named_with_its_reason() -> None:
    one, other = (f"127.0.0.1:{port}" for port in free_ports(2))

    async def main() -> None:
        async with client(one, other, "no-such-host.invalid:9092") as lost:
            with pytest.raises(Unreachable) as caught:
                await lost.refresh([], deadline=new_deadline(1))
            message = str(caught.value)
            assert "no broker can be reached" in message
            for at in (one, other):
                assert f"{at} of bootstrap.servers: the connection is refused" in message
            assert "the host 'no-such-host.invalid' is not known" in message

    run(main())


def test_one_address_that_answers_is_enough() -> None:
    with rota.Broker() as broker:
        dead = [f"127.0.0.1:{port}" for port in free_ports(3)]

        async def main() -> None:
            async with client(*dead, broker.bootstrap_servers) as one:
                assert (await one.refresh([], deadline=new_deadline())).brokers

        run(main())


def test_an_address_that_swallows_everything_does_not_hold_up_the_others() -> None:
    with rota.Broker() as broker:

        async def main() -> None:
            async with (
                server(reply_once(b"", stay=True)) as silent,
                client(*[silent] * 3, broker.bootstrap_servers) as one,
            ):
                assert (await one.refresh([], deadline=new_deadline(5))).brokers

        run(main())


def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    look = socket.getaddrinfo

    def two(host: str, port: int, **options: int) -> list[object]:
        if host != "kafka.example":
            return look(host, port, **options)  # type: ignore[return-value]
        if options.get("flags"):
            raise socket.gaierror
        good = look("127.0.0.1", port, type=socket.SOCK_STREAM)[0]
        return [(*good[:4], ("127.0.0.1", free_ports(1)[0])), good]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    with rota.Broker() as broker:
        at = broker.bootstrap_servers.replace("127.0.0.1", "kafka.example")

        async def main() -> None:
            async with client(at) as one:
                assert (await one.refresh([], deadline=new_deadline())).brokers

        run(main())


def test_an_advertised_address_that_cannot_be_reached_is_said_to_be_one() -> None:
    [port] = free_ports(1)
    with rota.Broker(advertise=f"localhost:{port}") as broker:

        async def main() -> None:
            async with client(broker.listening) as one:
                await one.refresh([], deadline=new_deadline())
                with pytest.raises(Unreachable) as caught:
                    await one.send(Api.METADATA, MetadataRequest(), node=1, deadline=new_deadline())
                message = str(caught.value)
                assert f"broker 1 at localhost:{port}" in message
                assert "advertised.listeners" in message
                coordinator = await one.find_coordinator("readers", new_deadline())
                with pytest.raises(Unreachable, match="advertised.listeners"):
                    await coordinator.endpoint.connect(new_deadline())

        run(main())


def test_an_address_of_bootstrap_servers_is_not_said_to_be_another() -> None:
    with rota.Broker() as broker:

        async def main() -> None:
            async with client(broker.bootstrap_servers) as one:
                await one.refresh([], deadline=new_deadline())
                coordinator = await one.find_coordinator("readers", new_deadline())
                broker.stop()
                with pytest.raises(Unreachable, match=r"broker 1 at .* is refused") as caught:
                    await coordinator.endpoint.connect(new_deadline())
                assert "advertised.listeners" not in str(caught.value)

        run(main())


# Versions and frames


def reply_like_broker(api_versions: ApiVersionsResponse, *answers: bytes) -> Talk:
    """Returns a server that greets like a broker, then answers each request with these bytes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = list(answers)
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            head = read_request_header(await reader.readexactly(size))
            if head.api_key != Api.API_VERSIONS:
                writer.write(left.pop(0) if left else b"")
            elif head.api_version > 2:
                refusal = ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION)
                writer.write(write_response(Api.API_VERSIONS, 0, head.correlation_id, refusal))
            else:
                writer.write(
                    write_response(
                        Api.API_VERSIONS, head.api_version, head.correlation_id, api_versions
                    )
                )

    return talk


def api_versions_response(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=Api[name], min_version=low, max_version=high)
            for name, (low, high) in ranges.items()
        ]
    )


def test_an_older_broker_is_asked_in_its_own_version() -> None:
    async def main() -> None:
        offer = api_versions_response(
            API_VERSIONS=(0, 2), METADATA=(0, 5), FETCH=(0, 3), PRODUCE=(90, 99)
        )
        async with server(reply_like_broker(offer)) as at:
            connection = await BrokerConnection.open(parse_address(at), config(at), new_deadline())
            assert connection.version(Api.METADATA) == 5
            assert connection.version(Api.METADATA, most=2) == 2
            for api, message in (
                (Api.FETCH, "Fetch: the broker serves versions 0 to 3, Rota speaks 4 to"),
                (Api.PRODUCE, "Produce: the broker serves versions 90 to 99, Rota speaks"),
                (Api.JOIN_GROUP, "the broker does not serve JoinGroup"),
            ):
                with pytest.raises(Refused, match=message) as caught:
                    connection.send(api, FetchRequest(), deadline=new_deadline())
                assert caught.value.code is Code.UNSUPPORTED_VERSION
            await connection.close_and_wait()

    run(main())


def encode_metadata(correlation: int, **fields: Any) -> bytes:
    return bytes(write_response(Api.METADATA, 5, correlation, MetadataResponse(**fields)))


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (b"HTTP/1.1 500\r\n\r\n", Unreachable, "invalid response: a frame of 1213486160"),
        (
            struct.pack(">i", MAX_RESPONSE_BYTES + 1),
            Unreachable,
            "the limit is 1073741824 .the largest that a",
        ),
        (struct.pack(">i", -5), Unreachable, "a frame of -5 bytes is announced"),
        (encode_metadata(99), Unreachable, "a response to request 99 instead of 3"),
        (
            struct.pack(">ii", 5, 3) + b"\0",
            Unreachable,
            "v5: throttle_time_ms to brokers is cut",
        ),
    ],
)
def test_what_is_no_answer_ends_the_connection(
    answer: bytes, kind: type[Exception], message: str
) -> None:
    async def main() -> None:
        offer = api_versions_response(API_VERSIONS=(0, 2), METADATA=(0, 5))
        async with server(reply_like_broker(offer, answer)) as at:
            connection = await BrokerConnection.open(parse_address(at), config(at), new_deadline())
            asked = connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline())
            behind = connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline())
            with pytest.raises(Exception, match=message) as caught:
                await asked
            assert at in str(caught.value)
            with pytest.raises(
                kind, match=f"{at}: the broker sent an invalid response.*was in flight"
            ):
                await behind
            assert not connection.is_usable
            await connection.close_and_wait()

    run(main())


def test_what_comes_without_a_question_ends_the_connection() -> None:
    async def main() -> None:
        offer = api_versions_response(API_VERSIONS=(0, 2), METADATA=(0, 5))
        async with server(reply_like_broker(offer, encode_metadata(3) + encode_metadata(4))) as at:
            connection = await BrokerConnection.open(parse_address(at), config(at), new_deadline())
            await connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline())
            await connection.closed
            with pytest.raises(Unreachable, match="a response without a request"):
                connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline())

    run(main())
