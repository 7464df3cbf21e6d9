"""Answers that a thread receives: the same as others, while the loop may stand still."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import random
import socket
import struct
import threading
import time
import weakref
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pytest

import rota
from rota.client.connection import LARGE_RESPONSE, BrokerConnection, ReceiveResult, ReceiverThread
from rota.errors import FormatError, TimedOut, Unreachable
from rota.protocol.frames import LENGTH_SIZE, FrameReader
from rota.protocol.messages import Api, FetchRequest, FetchResponse, MetadataRequest
from tests.local.client.test_client_connection import (
    ScriptedBroker,
    fetch_all_request,
    open_connection,
)
from tests.support.client import client, count_open_sockets, new_deadline, run, server
from tests.support.waiting import wait_until

LIMIT = 100 << 20
ANSWER = LARGE_RESPONSE + 1_000


def receivers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("rota-receive")]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert not receivers()


class FetchScript(ScriptedBroker):
    """Answers Fetches with the bodies that a test gives."""

    def __init__(self, *bodies: bytes) -> None:
        super().__init__()
        self.bodies: Iterator[bytes] = iter(bodies)

    def answer(self, api: Api, correlation: int) -> Any:
        if api is not Api.FETCH:
            return super().answer(api, correlation)
        part = FetchResponse.PartitionData(records=next(self.bodies))
        topic = FetchResponse.FetchableTopicResponse(partitions=[part])
        return FetchResponse(session_id=correlation, responses=[topic])


def send_fetch(connection: BrokerConnection, patience: float = 10) -> asyncio.Future[FetchResponse]:
    request = FetchRequest()
    return connection.send(Api.FETCH, request, deadline=new_deadline(patience), large=True)


def response_records(answer: FetchResponse) -> bytes:
    return bytes(answer.responses[0].partitions[0].records or b"")


def test_a_large_answer_is_followed_by_one_that_a_thread_receives() -> None:
    sizes = [10, ANSWER, ANSWER, 3 * ANSWER, 10, 20, ANSWER, 0]
    bodies = [random.Random(size).randbytes(size) for size in sizes]
    by_thread = [size >= LARGE_RESPONSE for size in [0, *sizes[:-1]]]

    async def main() -> None:
        async with server(FetchScript(*bodies)) as at, open_connection(at) as connection:
            for expected, threaded in zip(bodies, by_thread, strict=True):
                asked = send_fetch(connection)
                transport = connection._transport
                assert transport is not None
                assert transport.is_reading() is not threaded
                assert response_records(await asked) == expected
                assert transport.is_reading()
            assert len(receivers()) == 1
            metadata = connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline())
            assert (await metadata).controller_id > 0

    run(main())


def test_who_does_not_say_that_an_answer_may_be_large_starts_no_thread() -> None:
    async def main() -> None:
        async with (
            server(FetchScript(*[bytes(ANSWER)] * 3)) as at,
            open_connection(at) as connection,
        ):
            for _ in range(3):
                await connection.send(Api.FETCH, FetchRequest(), deadline=new_deadline())
            assert not receivers()

    run(main())


def test_a_thread_is_not_told_while_something_else_is_under_way() -> None:
    async def main() -> None:
        async with (
            server(FetchScript(*[bytes(ANSWER)] * 3)) as at,
            open_connection(at) as connection,
        ):
            await send_fetch(connection)
            metadata = connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline())
            asked = send_fetch(connection)
            assert not receivers()
            assert (await metadata).controller_id > 0
            assert len(response_records(await asked)) == ANSWER

    run(main())


def test_nothing_is_sent_while_a_thread_has_the_socket() -> None:
    async def main() -> None:
        async with (
            server(FetchScript(*[bytes(ANSWER)] * 2)) as at,
            open_connection(at) as connection,
        ):
            await send_fetch(connection)
            asked = send_fetch(connection)
            with pytest.raises(AssertionError, match="a thread uses the socket"):
                connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline())
            assert len(response_records(await asked)) == ANSWER
            metadata = connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline())
            assert (await metadata).controller_id > 0

    run(main())


@pytest.mark.parametrize(
    ("place", "name", "error"),
    [
        (os, "dup", OSError(errno.EMFILE, "too many open files")),
        (threading.Thread, "start", RuntimeError("can't start new thread")),
    ],
)
def test_the_loop_receives_where_no_thread_can_be_had(
    monkeypatch: pytest.MonkeyPatch, place: object, name: str, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    async def main() -> None:
        async with (
            server(FetchScript(*[bytes(ANSWER)] * 4)) as at,
            open_connection(at) as connection,
        ):
            await send_fetch(connection)
            with monkeypatch.context() as patch:
                patch.setattr(place, name, fail)
                asked = send_fetch(connection)
            gc.collect()
            assert len(response_records(await asked)) == ANSWER
            assert not receivers()
            assert len(response_records(await send_fetch(connection))) == ANSWER
            assert receivers()

    run(main())


def test_an_answer_that_there_is_no_memory_for_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: int) -> None:
        raise MemoryError

    async def main() -> None:
        async with (
            server(FetchScript(*[bytes(ANSWER)] * 2)) as at,
            open_connection(at) as connection,
        ):
            await send_fetch(connection)
            monkeypatch.setattr("rota.protocol.frames.allocate_padded", fail)
            with pytest.raises(Unreachable, match=r"cannot be received: MemoryError\(\)"):
                await send_fetch(connection)

    run(main())


def test_a_thread_receives_while_the_loop_does_not_run() -> None:
    with rota.Broker() as broker:
        broker.create_topic("orders")
        for _ in range(20):
            broker.produce("orders", bytes(1_000_000), partition=0)

        async def main() -> None:
            async with client(broker.bootstrap_servers) as one:
                request = fetch_all_request(await one.refresh(["orders"], deadline=new_deadline()))
                connection = await one.connect(1, deadline=new_deadline())
                first = connection.send(Api.FETCH, request, deadline=new_deadline(), large=True)
                expected = response_records(await first)
                asked = connection.send(Api.FETCH, request, deadline=new_deadline(), large=True)
                delivered = received_event(connection)
                assert delivered.wait(10)  # the loop stands still here
                assert response_records(await asked) == expected

        run(main())


def received_event(connection: BrokerConnection) -> threading.Event:
    """Set as soon as the thread has the answer."""
    event = threading.Event()
    loop = connection._loop
    call = loop.call_soon_threadsafe

    def notice(*given: object) -> object:
        event.set()
        return call(*given)  # type: ignore[arg-type]

    loop.call_soon_threadsafe = notice  # type: ignore[method-assign, assignment]
    return event


class TruncatedFetches(FetchScript):
    """Says the second answer to a Fetch up to somewhere, then nothing, or closes."""

    def __init__(self, upto: int, *, silent: bool = False) -> None:
        super().__init__()
        self.bodies = repeat(bytes(ANSWER))
        self.upto = upto
        self.silent = silent

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answered = TruncatingWriter(writer, self.upto)
        try:
            await super().__call__(reader, answered)  # type: ignore[arg-type]
        except EOFError:
            if self.silent:
                await reader.read()


class TruncatingWriter:
    """A writer that stops in the middle of the second large answer."""

    def __init__(self, writer: asyncio.StreamWriter, upto: int) -> None:
        self.writer = writer
        self.upto = upto
        self.large = 0

    def write(self, data: bytes) -> None:
        self.large += len(data) >= LARGE_RESPONSE
        self.writer.write(data[: self.upto] if self.large == 2 else data)

    async def drain(self) -> None:
        await self.writer.drain()
        if self.large == 2:
            raise EOFError


@pytest.mark.parametrize("upto", [0, 2, 4, 5, 100_000, ANSWER])
def test_the_broker_closes_while_a_thread_receives(upto: int) -> None:
    async def main() -> None:
        async with server(TruncatedFetches(upto)) as at, open_connection(at) as connection:
            await send_fetch(connection)
            with pytest.raises(Unreachable, match="the broker has closed the connection"):
                await send_fetch(connection)
            await connection.closed
            assert not connection.is_usable

    run(main())


@pytest.mark.parametrize("upto", [0, 3, 100_000])
def test_an_answer_that_a_thread_waits_for_in_vain_ends_the_connection(upto: int) -> None:
    async def main() -> None:
        async with (
            server(TruncatedFetches(upto, silent=True)) as at,
            open_connection(at) as connection,
        ):
            await send_fetch(connection)
            with pytest.raises(TimedOut, match="no answer to Fetch within"):
                await send_fetch(connection, patience=0.1)
            await connection.closed
            assert not receivers()

    run(main())


@pytest.mark.parametrize("upto", [0, 3, 100_000])
def test_a_connection_is_closed_while_a_thread_receives(upto: int) -> None:
    async def main() -> None:
        async with server(TruncatedFetches(upto, silent=True)) as at:
            for _ in range(20):
                async with open_connection(at) as connection:
                    await send_fetch(connection)
                    asked = send_fetch(connection)
                    await asyncio.sleep(0.001)
                    connection.close()
                    with pytest.raises(Unreachable, match="this client has closed"):
                        await asked
                assert not receivers()

    before = count_open_sockets()
    run(main())
    gc.collect()
    assert count_open_sockets() <= before


def test_what_is_no_answer_ends_the_connection_from_a_thread_too() -> None:
    class Foreign(FetchScript):
        async def __call__(
            self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            await super().__call__(reader, _Foreign(writer, 0))  # type: ignore[arg-type]

    class _Foreign(TruncatingWriter):
        def write(self, data: bytes) -> None:
            self.large += len(data) >= LARGE_RESPONSE
            self.writer.write(b"\x7f\xff\xff\xff" + data if self.large == 2 else data)

        async def drain(self) -> None:
            await self.writer.drain()

    async def main() -> None:
        async with server(Foreign(*[bytes(ANSWER)] * 2)) as at, open_connection(at) as connection:
            await send_fetch(connection)
            with pytest.raises(Unreachable, match="invalid response: a frame of 2147483647 bytes"):
                await send_fetch(connection)

    run(main())


# The thread itself


class ResultRecorder:
    """Records the results that a receiver thread delivers."""

    def __init__(self) -> None:
        self.got: list[ReceiveResult] = []
        self.news = threading.Event()

    def deliver(self, outcome: ReceiveResult) -> None:
        self.got.append(outcome if isinstance(outcome, Exception | None) else bytes(outcome))
        self.news.set()

    def wait(self) -> ReceiveResult:
        assert self.news.wait(10)
        self.news.clear()
        return self.got[-1]


@pytest.fixture
def receiver_sockets() -> Iterator[
    tuple[ReceiverThread, ResultRecorder, socket.socket, socket.socket]
]:
    """A receiver, what it delivers, the socket it shares, and its other end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        post = ResultRecorder()
        frames = FrameReader(LIMIT, bytearray(LENGTH_SIZE), "the limit", 1 << 20)
        receiver = ReceiverThread(ours.dup(), frames, post.deliver, "test")
        yield receiver, post, ours, theirs
        receiver.close()


ReceiverSockets = tuple[ReceiverThread, ResultRecorder, socket.socket, socket.socket]


def add_length_prefix(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def test_one_frame_is_received_for_each_order_and_not_a_byte_more(
    receiver_sockets: ReceiverSockets,
) -> None:
    receiver, post, ours, theirs = receiver_sockets
    theirs.sendall(
        add_length_prefix(b"first") + add_length_prefix(b"second") + add_length_prefix(b"")
    )
    receiver.receive_next()
    assert post.wait() == b"first"
    assert ours.recv(100, socket.MSG_PEEK) == add_length_prefix(b"second") + add_length_prefix(b"")
    for expected in (b"second", b""):
        receiver.receive_next()
        assert post.wait() == expected
    with pytest.raises(BlockingIOError):  # it does not block for the loop
        ours.recv(1)
    assert post.got == [b"first", b"second", b""]


@pytest.mark.parametrize("size", [70_000, 3 << 20])
def test_a_frame_is_received_however_its_bytes_come(
    receiver_sockets: ReceiverSockets, size: int
) -> None:
    """Larger than what room is made for at once, too."""
    receiver, post, _, theirs = receiver_sockets
    data = random.Random(size).randbytes(size)
    receiver.receive_next()
    whole = add_length_prefix(data)
    for begin, end in ((0, 1), (1, 3), (3, 10), (10, 50_000), (50_000, len(whole))):
        theirs.sendall(whole[begin:end])
        time.sleep(0.01)
    assert post.wait() == data


def test_the_end_is_told_and_what_is_no_frame(receiver_sockets: ReceiverSockets) -> None:
    receiver, post, _, theirs = receiver_sockets
    theirs.sendall(struct.pack(">i", LIMIT + 1))
    receiver.receive_next()
    found = post.wait()
    assert isinstance(found, FormatError)
    assert "the limit is 104857600 (the limit)" in str(found)
    theirs.close()
    receiver.receive_next()
    assert isinstance(post.wait(), FormatError)  # what came first is still there


def test_the_end_of_the_connection_is_no_answer(receiver_sockets: ReceiverSockets) -> None:
    receiver, post, _, theirs = receiver_sockets
    receiver.receive_next()
    theirs.sendall(b"\0\0")
    theirs.close()
    assert post.wait() is None


def test_a_thread_does_not_keep_alive_who_is_forgotten() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        post = ResultRecorder()
        frames = FrameReader(LIMIT, bytearray(LENGTH_SIZE))
        receiver = ReceiverThread(ours.dup(), frames, post.deliver, "test")
        receiver.receive_next()
        theirs.sendall(b"\0\0\1\0 and no more")
        forgotten = weakref.ref(post)
        del post, receiver
        gc.collect()
        wait_until("its thread has ended", lambda: not receivers())
        assert forgotten() is None
        assert theirs.recv(1) == b""  # the connection is ended, too


def test_a_fork_does_not_end_its_parents_connection(receiver_sockets: ReceiverSockets) -> None:
    receiver, post, _, theirs = receiver_sockets
    receiver._process += 1  # as in a child, whose copy is collected
    receiver.__del__()
    receiver.receive_next()
    theirs.sendall(add_length_prefix(b"still there"))
    assert post.wait() == b"still there"
