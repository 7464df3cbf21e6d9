"""From an address to a connected socket: every address of a name is tried."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from rota.client import race
from rota.errors import Unreachable
from rota.model.client import Address, ClientConfig

Target: TypeAlias = tuple[Any, Any, int, str, Any]
"""A line of getaddrinfo."""

_REFUSED = "the connection is refused: nothing listens there, or a firewall says no"


async def dial(address: Address, config: ClientConfig, patience: float) -> socket.socket:
    """A socket that is connected to one of the addresses of a name.

    :param patience: seconds for each of them
    :raises Unreachable: there is no such name, or none of its addresses answers; the reason of each
    """
    targets = await resolve(address)
    ways = [partial(_connect, target, config, patience) for target in targets]
    connected, failed = await race.first(ways, discard=socket.socket.close)
    if connected is None:
        raise Unreachable("; ".join(map(str, failed)))
    return connected


async def resolve(address: Address) -> list[Target]:
    """The addresses of a name, in the system's order (``client.dns.lookup`` use_all_dns_ips).

    :raises Unreachable: there are none
    """
    look = partial(socket.getaddrinfo, address.host, address.port, type=socket.SOCK_STREAM)
    try:
        # a number: nobody is asked, so nothing blocks
        return list(look(flags=socket.AI_NUMERICHOST))
    except (socket.gaierror, UnicodeError):
        pass
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[Target]] = loop.create_future()

    def settle(result: list[Target] | Exception) -> None:
        if found.done():
            return
        if isinstance(result, Exception):
            found.set_exception(result)
        else:
            found.set_result(result)

    def run() -> None:
        result: list[Target] | Exception
        try:
            result = list(look())
        except (OSError, UnicodeError) as error:
            result = error
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
            loop.call_soon_threadsafe(settle, result)

    # not the loop's executor: a name server that is silent would keep the process from ending
    threading.Thread(target=run, name=f"rota-resolve-{address.host}", daemon=True).start()
    try:
        return await found
    except UnicodeError as error:
        raise Unreachable(f"{address.host!r} is no name of a host") from error
    except OSError as error:
        raise Unreachable(
            f"the host {address.host!r} is not known: {error.strerror or error}"
        ) from error


async def _connect(target: Target, config: ClientConfig, patience: float) -> socket.socket:
    family, kind, protocol, _, where = target
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in (
            (socket.SO_RCVBUF, config.receive_buffer),
            (socket.SO_SNDBUF, config.send_buffer),
        ):
            if size != -1:
                made.setsockopt(socket.SOL_SOCKET, option, size)
        async with asyncio.timeout(patience):
            await asyncio.get_running_loop().sock_connect(made, where)
    except BaseException as error:
        made.close()
        if isinstance(error, OSError):  # a TimeoutError too
            raise Unreachable(f"{_reason(error, patience)} ({where[0]})") from error
        raise
    return made


def _reason(error: OSError, patience: float) -> str:
    if isinstance(error, ConnectionRefusedError):
        return _REFUSED
    if isinstance(error, TimeoutError) and error.errno is None:
        return f"no connection within {patience:.3g} s"
    return os.strerror(error.errno) if error.errno else str(error)
