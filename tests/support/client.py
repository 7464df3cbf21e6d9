"""Where a client is tried: a loop of its own, in which nothing may be left behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from rota.client.cluster import ClusterClient
from rota.engine.formats import consumer_protocol
from rota.engine.model.config import Address, ClientConfig
from rota.engine.model.member import Subscription
from rota.engine.model.request import JoinGroup, JoinGroupProtocol

T = TypeVar("T")
#: Pauses that a test does not feel.
QUICK: dict[str, Any] = {"retry_backoff": 5, "reconnect_backoff": 5, "reconnect_backoff_max": 20}
#: What the member of JOIN tells its group.
SUBSCRIPTION = consumer_protocol.encode_subscription(Subscription(topics=("t",)))
JOIN = JoinGroup(
    group="g",
    protocols=(JoinGroupProtocol("range", SUBSCRIPTION),),
    session_timeout=30_000,
    rebalance_timeout=60_000,
    client_id="",
    client_host="",
    reason="a test",
)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs it; a task or a transport that is left over is an error."""

    async def alone() -> T:
        problems: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: problems.append(context)
        )
        result = await main
        for _ in range(3):  # a server's own tasks, which accept connections, end in the next turns
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left
        assert not problems, problems
        return result

    return asyncio.run(alone())


def count_open_sockets() -> int:
    """How many this process has open; on Linux also what event loops need to watch them.

    Files do not count: a broker of another test may run in this process, and open some.
    """
    found = 0
    for each in Path("/dev/fd").iterdir():
        with contextlib.suppress(OSError):  # closed since, or no link, as on macOS
            found += each.is_socket() or str(each.readlink()).startswith("anon_inode:")
    return found


def parse_address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host.strip("[]"), int(port))


def config(*servers: str, **fields: Any) -> ClientConfig:
    return ClientConfig(bootstrap_servers=tuple(map(parse_address, servers)), **{**QUICK, **fields})


@asynccontextmanager
async def client(*servers: str, **fields: Any) -> AsyncIterator[ClusterClient]:
    made = ClusterClient(config(*servers, **fields))
    try:
        yield made
    finally:
        await made.close()


def new_deadline(seconds: float = 10) -> float:
    """A deadline."""
    return asyncio.get_running_loop().time() + seconds


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(talk: Talk, **options: Any) -> AsyncIterator[str]:
    """A server that says what a test wants; gives its address."""
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # asyncio's streams report a cancelled one as an error
        finally:
            tasks.discard(task)
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, **options)
    try:
        host, port = listening.sockets[0].getsockname()[:2]
        yield f"{host}:{port}"
    finally:
        loop = asyncio.get_running_loop()
        for each in listening.sockets:
            loop.remove_reader(each.fileno())
        for _ in range(4):  # a server that is closed loses those that it is letting in
            await asyncio.sleep(0)
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listening.wait_closed()
