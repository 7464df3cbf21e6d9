"""One connection: requests and answers, however the bytes come; its end, for all who wait."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
import struct
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rota
from rota.broker.embedded import Broker
from rota.client import retry
from rota.client.cluster import BrokerEndpoint, ClusterClient
from rota.client.connection import BrokerConnection, ConnectionContext
from rota.client.metadata import ClusterMetadata
from rota.engine.formats.buffer import Bytes
from rota.engine.model.config import SaslConfig, TlsConfig
from rota.errors import TimedOut, Unreachable
from rota.protocol.codec import read_request_header, supported_versions, write_response
from rota.protocol.messages import (
    Api,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from tests.support.client import (
    Talk,
    client,
    config,
    count_open_sockets,
    new_deadline,
    parse_address,
    run,
    server,
)
from tests.support.waiting import wait_until


@pytest.fixture
def broker() -> Iterator[Broker]:
    with rota.Broker() as one:
        one.create_topic("orders", 3)
        yield one


@asynccontextmanager
async def open_connection(at: str, **fields: Any) -> AsyncIterator[BrokerConnection]:
    connection = await BrokerConnection.open(
        parse_address(at), config(at, **fields), new_deadline()
    )
    try:
        yield connection
    finally:
        await connection.close_and_wait()


GREETING = ApiVersionsResponse(
    api_keys=[
        ApiVersionsResponse.ApiVersion(
            api_key=api,
            min_version=supported_versions(api).low,
            max_version=supported_versions(api).high,
        )
        for api in (
            *(Api.API_VERSIONS, Api.METADATA, Api.FETCH),
            *(Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE),
        )
    ]
)


class ScriptedBroker:
    """A broker that answers everything, and says it in pieces of its own."""

    def __init__(self, cut: random.Random | None = None, size: int = 0, lifetime: int = 0) -> None:
        self.cut = cut
        #: Bytes of the records in an answer.
        self.size = size
        self.lifetime = lifetime
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            head = read_request_header(await reader.readexactly(size))
            await self.pause(Api(head.api_key))
            answer = self.answer(Api(head.api_key), head.correlation_id)
            data = bytes(
                write_response(Api(head.api_key), head.api_version, head.correlation_id, answer)
            )
            while data:
                count = len(data) if self.cut is None else self.cut.randint(1, len(data))
                writer.write(data[:count])
                await writer.drain()
                if self.cut is not None:
                    await asyncio.sleep(0)
                data = data[count:]

    async def pause(self, api: Api) -> None:
        """Answers at once."""

    def answer(self, api: Api, correlation: int) -> Any:
        match api:
            case Api.API_VERSIONS:
                return GREETING
            case Api.SASL_HANDSHAKE:
                return SaslHandshakeResponse(mechanisms=["PLAIN"])
            case Api.SASL_AUTHENTICATE:
                return SaslAuthenticateResponse(session_lifetime_ms=self.lifetime)
            case Api.METADATA:
                return MetadataResponse(controller_id=correlation)
            case _:
                part = FetchResponse.PartitionData(records=bytes(self.size))
                topic = FetchResponse.FetchableTopicResponse(partitions=[part])
                return FetchResponse(session_id=correlation, responses=[topic])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(0, 5000), max_size=5))
def test_answers_are_the_same_however_their_bytes_are_cut(seed: int, sizes: list[int]) -> None:
    async def main() -> None:
        script = ScriptedBroker(random.Random(seed))
        async with server(script) as at, open_connection(at) as connection:
            for size in sizes:
                script.size = size
                fetch = connection.send(Api.FETCH, FetchRequest(), deadline=new_deadline())
                metadata = connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline())
                fetched, told = await fetch, await metadata
                assert len(fetched.responses[0].partitions[0].records or b"") == size
                assert told.controller_id == fetched.session_id + 1

    run(main())


def test_a_large_answer_is_a_view_of_what_the_socket_was_read_into() -> None:
    async def main() -> None:
        script = ScriptedBroker(size=60 << 20)
        async with server(script) as at, open_connection(at) as connection:
            answer = await connection.send(Api.FETCH, FetchRequest(), deadline=new_deadline(60))
            records = answer.responses[0].partitions[0].records
            assert isinstance(records, memoryview)
            assert records.nbytes == 60 << 20
            small = await connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline())
            assert small.controller_id > 0

    run(main())


class PiecewiseBroker(ScriptedBroker):
    """Says a Fetch's answer in pieces, with pauses in which the client reads all that is there."""

    def __init__(self, body: bytes, pieces: int, end: int | None = None) -> None:
        super().__init__()
        self.body = body
        self.pieces = pieces
        #: How much of it is said before the connection is closed; all of it, and it stays open.
        self.end = end

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            head = read_request_header(await reader.readexactly(size))
            api = Api(head.api_key)
            answer = self.answer(api, head.correlation_id)
            if api is Api.FETCH:
                answer.responses[0].partitions[0].records = self.body
            data = bytes(write_response(api, head.api_version, head.correlation_id, answer))
            if api is not Api.FETCH:
                writer.write(data)
                continue
            if self.end is None:
                later = self.answer(Api.METADATA, head.correlation_id + 1)
                version = supported_versions(Api.METADATA).high
                data += bytes(write_response(Api.METADATA, version, head.correlation_id + 1, later))
            step = len(data) // self.pieces + 1
            data = data[: self.end]
            for at in range(0, len(data), step):
                writer.write(data[at : at + step])
                await writer.drain()
                await asyncio.sleep(0.002)
            if self.end is not None:
                return
            await reader.read()  # what is asked next is answered already


@pytest.mark.parametrize("pieces", [1, 2, 7, 40])
@pytest.mark.parametrize("size", [300_000, 5 << 20])
def test_a_large_answer_that_comes_in_pieces_is_read_whole_and_not_further(
    size: int, pieces: int
) -> None:
    body = random.Random(size).randbytes(size)

    async def main() -> None:
        async with server(PiecewiseBroker(body, pieces)) as at, open_connection(at) as connection:
            fetch = connection.send(Api.FETCH, FetchRequest(), deadline=new_deadline())
            metadata = connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline())
            answer, told = await fetch, await metadata
            assert answer.responses[0].partitions[0].records == body
            assert told.controller_id == answer.session_id + 1
            assert connection.is_usable

    run(main())


class UnwatchedTransport(asyncio.Transport):
    """A socket that no loop watches: a test calls when bytes can be read."""

    def __init__(self, one: socket.socket) -> None:
        super().__init__({"socket": one})

    def write(self, data: Bytes) -> None:
        """To nobody."""

    def abort(self) -> None:
        """Nothing is left to do."""


@contextlib.contextmanager
def connection_over_socketpair() -> Iterator[tuple[BrokerConnection, socket.socket, socket.socket]]:
    """A connection that has greeted its broker, its socket, and the broker's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        connection = BrokerConnection(parse_address("a:1"), ConnectionContext(config("a:1")), "a")
        connection.connection_made(UnwatchedTransport(ours))
        connection._first_bytes, connection._frames.limit = None, 1 << 20
        yield connection, ours, theirs


def test_an_answer_that_is_there_is_read_in_one_turn_and_nothing_of_the_next() -> None:
    async def main() -> None:
        with connection_over_socketpair() as (connection, ours, theirs):
            asked = [
                connection.send_raw(Api.FETCH, 4, FetchRequest(), new_deadline()) for _ in range(3)
            ]
            frames = [struct.pack(">i", number) + bytes(50_000) for number in (1, 2, 3)]
            for frame in frames[:2]:
                theirs.sendall(struct.pack(">i", len(frame)) + frame)
            theirs.sendall(struct.pack(">i", len(frames[2])) + frames[2][:500])

            def turn(most: int) -> None:
                room = connection.get_buffer(-1)[:most]
                connection.buffer_updated(ours.recv_into(room))

            turn(100)  # the loop's read brought so little; the rest was there
            assert await asked[0] == frames[0]
            assert not asked[1].done()
            turn(100)
            assert await asked[1] == frames[1]
            turn(100)  # of the third not all is there
            assert not asked[2].done()
            theirs.sendall(frames[2][500:])
            turn(100)
            assert await asked[2] == frames[2]
            connection.connection_lost(None)

    run(main())


def test_the_end_in_the_middle_of_an_answer_is_left_to_the_loop() -> None:
    async def main() -> None:
        with connection_over_socketpair() as (connection, ours, theirs):
            asked = connection.send_raw(Api.FETCH, 4, FetchRequest(), new_deadline())
            theirs.sendall(struct.pack(">ii", 50_000, 1) + bytes(1_000))
            theirs.close()
            room = connection.get_buffer(-1)[:100]
            connection.buffer_updated(ours.recv_into(room))
            assert not asked.done()
            assert connection._frames.missing_bytes == 50_000 - 1_004
            connection.eof_received()
            with pytest.raises(Unreachable, match="the broker has closed the connection"):
                await asked
            connection.connection_lost(None)

    run(main())


@pytest.mark.parametrize("end", [5, 1000, 300_000, (5 << 20) - 1])
@pytest.mark.parametrize("pieces", [1, 20])
def test_what_is_under_way_fails_when_the_broker_closes_in_the_middle_of_a_large_answer(
    end: int, pieces: int
) -> None:
    async def main() -> None:
        script = PiecewiseBroker(bytes(5 << 20), pieces, end)
        async with server(script) as at, open_connection(at) as connection:
            fetch = connection.send(Api.FETCH, FetchRequest(), deadline=new_deadline())
            metadata = connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline())
            for asked in (fetch, metadata):
                with pytest.raises(Unreachable, match="the broker has closed the connection"):
                    await asked
            await connection.closed
            assert not connection.is_usable
            assert connection.in_flight == 0

    run(main())


def test_records_come_from_a_broker(broker: Broker) -> None:
    broker.produce("orders", *(f"record {number}" for number in range(1000)), partition=0)

    async def main() -> None:
        async with client(broker.bootstrap_servers) as one:
            request = fetch_all_request(await one.refresh(["orders"], deadline=new_deadline()))
            answer = await one.send(Api.FETCH, request, node=1, deadline=new_deadline())
            assert b"record 999" in bytes(answer.responses[0].partitions[0].records or b"")

    run(main())


def test_many_requests_are_under_way_at_once(broker: Broker) -> None:
    async def main() -> None:
        async with open_connection(broker.bootstrap_servers) as connection:
            asked = [
                connection.send(Api.METADATA, MetadataRequest(topics=None), deadline=new_deadline())
                for _ in range(200)
            ]
            assert connection.in_flight == 200
            asked[3].cancel()
            answers = await asyncio.gather(*asked, return_exceptions=True)
            assert isinstance(answers.pop(3), asyncio.CancelledError)
            assert all(each == answers[0] for each in answers)
            assert connection.in_flight == 0

    run(main())


def test_all_who_wait_are_told_of_the_end_at_once(broker: Broker) -> None:
    broker.delay("Metadata", 3600, times=None)

    async def main() -> None:
        async with open_connection(broker.bootstrap_servers) as connection:
            first = connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline(0.05))
            second = connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline(60))
            with pytest.raises(TimedOut, match=r"no answer to Metadata within [0-9.]+ s"):
                await first
            with pytest.raises(
                TimedOut, match="no answer to Metadata within.*Metadata was in flight"
            ):
                await second
            await connection.closed
        async with open_connection(broker.bootstrap_servers) as connection:
            asked = connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline())
            await asyncio.sleep(0.01)
            broker.disconnect()
            with pytest.raises(Unreachable, match="the broker has closed the connection"):
                await asked
            with pytest.raises(Unreachable, match="the broker has closed the connection"):
                connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline())

    run(main())


def test_a_connection_that_is_not_used_is_closed_and_opened_again() -> None:
    async def main() -> None:
        script = ScriptedBroker()
        async with server(script) as at, client(at, idle_connection=20) as one:
            connection = await one.connect(deadline=new_deadline())
            await one.send(Api.METADATA, MetadataRequest(), deadline=new_deadline())
            await connection.closed
            await one.send(Api.METADATA, MetadataRequest(), deadline=new_deadline())
            assert script.connections == 2

    run(main())


def test_a_connection_is_not_idle_while_it_waits_for_an_answer(broker: Broker) -> None:
    broker.delay("Metadata", 0.1)

    async def main() -> None:
        async with open_connection(broker.bootstrap_servers, idle_connection=10) as connection:
            metadata = await connection.send(
                Api.METADATA, MetadataRequest(), deadline=new_deadline(1)
            )
            assert metadata.brokers
            await connection.closed
            assert not connection.is_usable

    run(main())


def test_a_session_that_ends_is_followed_by_a_new_one() -> None:
    async def main() -> None:
        script = ScriptedBroker(lifetime=40)
        login = SaslConfig(mechanism="PLAIN", username="a", password="b")
        async with server(script) as at, client(at, sasl=login) as one:
            connection = await one.connect(deadline=new_deadline())
            await connection.closed
            assert (await one.connect(deadline=new_deadline())) is not connection
            assert script.connections == 2

    run(main())


def test_what_is_under_way_is_answered_before_an_old_connection_is_closed(broker: Broker) -> None:
    broker.delay("Metadata", 0.05)

    async def main() -> None:
        async with open_connection(broker.bootstrap_servers) as connection:
            asked = connection.send(
                Api.METADATA, MetadataRequest(topics=None), deadline=new_deadline()
            )
            connection.close_when_idle()
            assert not connection.is_usable
            assert [each.name for each in (await asked).topics] == ["orders"]
            await connection.closed

    run(main())


def test_a_request_that_cannot_be_written_leaves_the_connection_as_it_is(broker: Broker) -> None:
    async def main() -> None:
        async with open_connection(broker.bootstrap_servers) as connection:
            wrong = MetadataRequest(topics=3)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="MetadataRequest v"):
                connection.send(Api.METADATA, wrong, deadline=new_deadline())
            assert connection.in_flight == 0
            await connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline())

    run(main())


def fetch_all_request(known: ClusterMetadata) -> FetchRequest:
    """Asks for all there is in orders-0."""
    partition = FetchRequest.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=64 << 20
    )
    topic = FetchRequest.FetchTopic(
        topic="orders", topic_id=known.topics["orders"].id, partitions=[partition]
    )
    return FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=64 << 20, topics=[topic])


def test_who_does_not_run_the_loop_for_long_finds_what_came_meanwhile(broker: Broker) -> None:
    for _ in range(8):
        broker.produce("orders", bytes(1_000_000), partition=0)

    async def main() -> None:
        async with client(broker.bootstrap_servers) as one:
            request = fetch_all_request(await one.refresh(["orders"], deadline=new_deadline()))
            connection = await one.connect(1, deadline=new_deadline())
            asked = connection.send(Api.FETCH, request, deadline=new_deadline(0.1))
            time.sleep(0.5)
            answer = await asked
            assert len(answer.responses[0].partitions[0].records or b"") > 8_000_000

    run(main())


def test_a_request_is_sent_while_the_loop_does_not_run(broker: Broker) -> None:
    loop = asyncio.new_event_loop()

    async def opened() -> BrokerConnection:
        at = broker.bootstrap_servers
        return await BrokerConnection.open(parse_address(at), config(at), new_deadline())

    try:
        connection = loop.run_until_complete(opened())
        request = MetadataRequest(topics=None)
        asked = connection.send(Api.METADATA, request, deadline=loop.time() + 10)
        answer = loop.run_until_complete(asked)
        assert [each.name for each in answer.topics] == ["orders"]
        loop.run_until_complete(connection.close_and_wait())
    finally:
        loop.close()


def test_a_broker_that_throttles_has_more_time_for_the_next_answer() -> None:
    class Throttling(ScriptedBroker):
        async def pause(self, api: Api) -> None:
            if api is Api.METADATA:
                await asyncio.sleep(0.1)

        def answer(self, api: Api, correlation: int) -> Any:
            answer = super().answer(api, correlation)
            answer.throttle_time_ms = 10_000
            return answer

    async def main() -> None:
        async with server(Throttling()) as at, open_connection(at) as connection:
            await connection.send(Api.FETCH, FetchRequest(), deadline=new_deadline())
            answer = await connection.send(
                Api.METADATA, MetadataRequest(), deadline=new_deadline(0.01)
            )
            assert answer.throttle_time_ms == 10_000

    run(main())


def test_no_throttle_puts_an_answer_off_for_ever() -> None:
    class Throttling(ScriptedBroker):
        async def pause(self, api: Api) -> None:
            if api is Api.METADATA:
                await asyncio.Event().wait()

        def answer(self, api: Api, correlation: int) -> Any:
            answer = super().answer(api, correlation)
            answer.throttle_time_ms = 2**31 - 1
            return answer

    async def main() -> None:
        async with (
            server(Throttling()) as at,
            open_connection(at, request_timeout=50) as connection,
        ):
            await connection.send(Api.FETCH, FetchRequest(), deadline=new_deadline())
            with pytest.raises(TimedOut, match="no answer to Metadata within"):
                await connection.send(Api.METADATA, MetadataRequest(), deadline=new_deadline(0.05))

    run(main())


# One opening for all


def test_all_who_need_a_connection_share_one() -> None:
    async def main() -> None:
        script = ScriptedBroker()
        async with server(script) as at, client(at) as one:
            found = await asyncio.gather(*(one.connect(deadline=new_deadline()) for _ in range(50)))
            assert len(set(map(id, found))) == 1
            assert script.connections == 1

    run(main())


def test_a_coordinator_has_a_connection_of_its_own(broker: Broker) -> None:
    async def main() -> None:
        async with client(broker.bootstrap_servers) as one:
            await one.refresh([], deadline=new_deadline())
            common = await one.connect(1, deadline=new_deadline())
            coordinator = await one.find_coordinator("readers", new_deadline())
            assert await coordinator.endpoint.connect(new_deadline()) is not common
            assert await one.connect(deadline=new_deadline()) is common

    run(main())


def test_who_gives_up_does_not_keep_the_others_from_the_connection() -> None:
    async def main() -> None:
        asked, go = asyncio.Event(), asyncio.Event()

        class Slow(ScriptedBroker):
            async def pause(self, api: Api) -> None:
                asked.set()
                await go.wait()

        script = Slow()
        async with server(script) as at, client(at) as one:
            patient = asyncio.ensure_future(one.connect(deadline=new_deadline()))
            await asked.wait()  # else the hasty one may give up before there is a connection
            hasty = asyncio.ensure_future(one.connect(deadline=new_deadline(0.01)))
            cancelled = asyncio.ensure_future(one.connect(deadline=new_deadline()))
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(
                TimedOut, match=f"{at}.*the server sends nothing before the timeout"
            ):
                await hasty
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            go.set()
            assert (await patient).is_usable
            assert script.connections == 1

    run(main())


# The end of a client


def silent_server() -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    return talk


def test_a_client_is_closed_while_it_connects() -> None:
    async def main() -> None:
        async with server(silent_server()) as at:
            one = ClusterClient(config(at))
            waiting = [
                asyncio.ensure_future(one.connect(deadline=new_deadline())),
                asyncio.ensure_future(one.refresh([], deadline=new_deadline())),
            ]
            await asyncio.sleep(0.01)
            await one.close()
            for each in waiting:
                with pytest.raises(Unreachable, match="this client is closed"):
                    await each
            with pytest.raises(Unreachable, match="this client is closed"):
                await one.connect(deadline=new_deadline())
            one.request_refresh()
            await one.close()

    run(main())


@pytest.mark.parametrize("security", [None, TlsConfig()])
@pytest.mark.parametrize("how", ["cancelled", "late"])
def test_an_opening_that_is_given_up_leaves_nothing(security: TlsConfig | None, how: str) -> None:
    async def main() -> None:
        async with server(silent_server()) as at:
            settings = config(at, tls=security)
            means = ConnectionContext(settings)
            if how == "late":
                with pytest.raises(Unreachable):
                    await BrokerConnection.open(
                        parse_address(at), settings, new_deadline(0.05), context=means
                    )
                return
            opening = asyncio.ensure_future(
                BrokerConnection.open(parse_address(at), settings, new_deadline(), context=means)
            )
            await asyncio.sleep(0.05)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(main())
        gc.collect()


def test_nothing_is_left_open(broker: Broker) -> None:
    async def main() -> None:
        async with client(broker.bootstrap_servers) as one:
            await one.refresh(["orders"], deadline=new_deadline())
            coordinator = await one.find_coordinator("readers", new_deadline())
            await coordinator.endpoint.connect(new_deadline())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(main())
        broker.group("readers")  # the broker has seen the end of the connections too
        gc.collect()
        before = count_open_sockets()
        for _ in range(5):
            run(main())
        gc.collect()
        # the broker, in this process, closes its own ends
        assert wait_until(
            "all sockets are closed", lambda: count_open_sockets() <= before, count_open_sockets
        )


def test_nothing_is_left_open_by_a_close_that_is_cancelled(broker: Broker) -> None:
    """Whenever that happens: while it connects, is asked or is closed."""

    async def use(made: ClusterClient) -> None:
        try:
            await made.refresh(["orders"], deadline=new_deadline())
            made.request_refresh()
        finally:
            await made.close()

    async def main() -> None:
        for turns in range(60):
            made = ClusterClient(config(broker.bootstrap_servers))
            task = asyncio.ensure_future(use(made))
            for _ in range(turns):
                await asyncio.sleep(0)
            for _ in range(2):  # the second one while it closes
                task.cancel()
                await asyncio.sleep(0)
            await asyncio.wait([task])
        while asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.sleep(0)

    before = count_open_sockets()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(main())
        gc.collect()
    # the broker, in this process, closes its own ends
    assert wait_until(
        "all sockets are closed", lambda: count_open_sockets() <= before, count_open_sockets
    )


def test_a_peer_that_is_closed_opens_nothing() -> None:
    async def main() -> None:
        async with server(ScriptedBroker()) as at:
            one = ClusterClient(config(at))
            await one.refresh([], deadline=new_deadline())
            [peer] = one._endpoints.values()
            assert isinstance(peer, BrokerEndpoint)
            await one.close()
            with pytest.raises(Unreachable, match="this client is closed"):
                await peer.connect(new_deadline())

    run(main())


# Races


def test_the_first_to_succeed_wins_and_the_others_end() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def way(name: str, seconds: float, *, fails: bool = False) -> str:
            try:
                await asyncio.sleep(seconds)
            finally:
                ended.append(name)
            if fails:
                raise Unreachable(name)
            return name

        won, failed = await retry.first_success(
            [
                lambda: way("slow", 3600),
                lambda: way("failing", 0, fails=True),
                lambda: way("good", 0),
                lambda: way("unneeded", 0),
            ]
        )
        assert won == "good"
        assert [str(each) for each in failed] == ["failing"]
        assert sorted(ended) == ["failing", "good", "slow"]

        lost, failed = await retry.first_success([lambda: way("a", 0, fails=True)] * 3)
        assert lost is None
        assert len(failed) == 3
        assert await retry.first_success([]) == (None, [])

    run(main())


def test_what_is_won_twice_is_not_lost() -> None:
    async def main() -> None:
        go = asyncio.Event()
        discarded: list[int] = []

        async def way(number: int) -> int:
            if number == 1:
                go.set()
            else:
                await go.wait()
            return number

        won, _ = await retry.first_success(
            [lambda: way(0), lambda: way(1)], discard=discarded.append
        )
        assert won is not None
        assert sorted([won, *discarded]) == [0, 1]

    run(main())


def test_what_was_won_is_not_lost_when_the_race_is_cancelled() -> None:
    async def main() -> None:
        ending, go = asyncio.Event(), asyncio.Event()
        discarded: list[int] = []

        async def stubborn(number: int) -> int:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                ending.set()
                with contextlib.suppress(asyncio.CancelledError):
                    await go.wait()
            return number

        async def quick() -> int:
            return 2

        ways: list[Callable[[], Awaitable[int]]] = [
            partial(stubborn, 0),
            partial(stubborn, 1),
            quick,
        ]
        racing = asyncio.ensure_future(retry.first_success(ways, discard=discarded.append))
        await ending.wait()
        racing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await racing
        go.set()
        while len(discarded) < 3:
            await asyncio.sleep(0)
        assert sorted(discarded) == [0, 1, 2]

    run(main())


@pytest.mark.parametrize("cancelled", [False, True], ids=["one fails", "all are cancelled"])
def test_awaitables_that_run_together_have_all_ended_when_one_fails(cancelled: bool) -> None:
    """Each is cancelled once, and has the time that it needs to end."""
    ended = []

    async def slow(name: str, turns: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(turns):
                await asyncio.sleep(0)
            ended.append(name)

    async def fails(name: str) -> None:
        await asyncio.sleep(0)
        raise Unreachable(name)

    async def main() -> None:
        together = [slow("b", 1), slow("c", 5)]
        if not cancelled:
            together[1:1] = [fails("first"), fails("second")]
        running = asyncio.ensure_future(retry.run_all(together))
        if cancelled:
            await asyncio.sleep(0.01)
            running.cancel()
        expected = (asyncio.CancelledError, None) if cancelled else (Unreachable, "first")
        with pytest.raises(expected[0], match=expected[1]):
            await running
        assert ended == ["b", "c"]

    run(main())


def test_a_shared_task_goes_on_when_one_stops_waiting() -> None:
    """Its error is for those who wait, and is not logged besides."""
    go = asyncio.Event()

    async def shared() -> None:
        await go.wait()
        raise Unreachable("a")

    async def main() -> None:
        task = asyncio.ensure_future(shared())
        waiting = [asyncio.ensure_future(retry.wait_for_shared(task)) for _ in range(2)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        assert not task.done()
        go.set()
        with pytest.raises(Unreachable, match="a"):
            await waiting[1]

    run(main())  # which allows no error in the loop


def test_awaitables_that_run_together_give_results_in_order() -> None:
    async def result(turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return turns

    assert run(retry.run_all([result(3), result(1), result(2)])) == [3, 1, 2]
    nothing: list[Coroutine[Any, Any, int]] = []
    assert run(retry.run_all(nothing)) == []


def test_an_error_of_another_kind_ends_a_race() -> None:
    async def main() -> None:
        async def way() -> int:
            raise ValueError("odd")

        with pytest.raises(ValueError, match="odd"):
            await retry.first_success([way, way])

    run(main())


def test_a_connection_that_is_collected_while_it_opens_waits_for_nothing() -> None:
    """As when a program forgets its consumer: the loop does not run any more."""
    accepted = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(1)
        accepted.set()
        await reader.read()

    async def main() -> None:
        async with server(say_nothing) as at:
            made = BrokerConnection(parse_address(at), ConnectionContext(config(at)), at)
            opening = made.establish(new_deadline(), connect_timeout=10, probe_after=10)
            task = asyncio.create_task(opening)
            await asyncio.wait_for(accepted.wait(), 60)
            opening.close()
            assert not made.is_usable
            with pytest.raises(RuntimeError, match="reuse"):
                await task

    run(main())
