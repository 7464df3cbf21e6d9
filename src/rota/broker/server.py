"""The server around the node: sockets, clock and log, in one event loop.

The server passes events to the node and carries out the commands that the node returns. It knows
nothing of Kafka's protocol. The last part binds the sockets that it listens on.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol, assert_never

from rota.broker import events
from rota.broker.connection import RequestMemoryPool, ServerConnection
from rota.broker.timers import Clock
from rota.engine.formats.buffer import Bytes
from rota.engine.model.config import BrokerConfig
from rota.errors import InputError, Unreachable
from rota.protocol.frames import RECEIVE_BUFFER_BYTES

BACKLOG = 1_024
DRAIN_TIMEOUT = 1.0  # seconds to send the last responses at a shutdown
MAX_UNSENT_BYTES = 256 << 20  # unsent bytes of all connections that stop further requests
#: With this many unsent bytes, no Fetch is resumed; other requests are still handled.
FETCH_UNSENT_LIMIT = MAX_UNSENT_BYTES // 2
STALLED_CLIENT_TIMEOUT = 5.0  # seconds without a read byte before a client may be closed
PERIODIC_RUNS_PER_ADVANCE = 200  # runs of a periodic timer in one :meth:`Server.advance`
SETTLE_ROUNDS = 4  # rounds of the loop until a connection just accepted is refused and closed
MAX_TIMER_SECONDS = 86_400.0  # an event loop cannot wait much longer than a day
LOGGER = logging.getLogger("rota.broker")


class NodeInterface(Protocol):
    """The node as the server uses it; see :class:`~rota.broker.node.BrokerNode`."""

    def handle(
        self, event: events.NodeEvent, now: int, free_response_bytes: int
    ) -> list[events.NodeCommand]: ...

    @property
    def has_resumable_requests(self) -> bool: ...

    def next_timer(self, slack: int = 0) -> int | None: ...

    def is_authenticated(self, connection: events.ConnectionId) -> bool: ...


class Server:
    def __init__(
        self,
        node: NodeInterface,
        clock: Clock,
        config: BrokerConfig,
        *,
        context: ssl.SSLContext | None = None,
        logger: logging.Logger = LOGGER,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.receive_buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self.plaintext_buffer = bytearray(RECEIVE_BUFFER_BYTES if context is not None else 0)
        self.max_request_bytes = config.max_request_bytes
        self.request_memory = RequestMemoryPool(self.loop, self.max_request_bytes)
        self.unsent_bytes = 0
        self.tls_context = context
        self._node = node
        self._clock = clock
        self._config = config
        self._logger = logger
        self._deduplicator = LogDeduplicator(lambda level, text: logger.log(level, "%s", text))
        self._count = 0
        #: The longest idle first.
        self._connections: OrderedDict[events.ConnectionId, ServerConnection] = OrderedDict()
        #: ``max.connections`` is reached, and was logged.
        self._refusing_connections = False
        self._waiting_connections: dict[events.ConnectionId, ServerConnection] = {}
        self._listeners: list[asyncio.Server] = []
        self._stopping = False
        self._wakeup_timer: asyncio.TimerHandle | None = None
        self._wakeup_at = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._stalled_timer: asyncio.TimerHandle | None = None
        self._resume_handle: asyncio.Handle | None = None

    async def start(self, sockets: Iterable[socket.socket]) -> None:
        self.loop.set_exception_handler(self._log_loop_error)
        for each in sockets:
            server = await self.loop.create_server(self._accept, sock=each, backlog=BACKLOG)
            self._listeners.append(server)
        self._schedule_wakeup()

    async def stop(self) -> None:
        """Accepts no more clients, and closes all connections after their responses were sent."""
        self._stopping = True
        for server in self._listeners:
            for each in server.sockets:
                self.loop.remove_reader(each.fileno())
        # asyncio loses the sockets of clients that are being accepted when a server is closed
        await self._settle()
        for server in self._listeners:
            server.close()
        for connection in list(self._connections.values()):
            connection.close()
        deadline = self.loop.time() + DRAIN_TIMEOUT
        while self._connections and self.loop.time() < deadline:
            await asyncio.sleep(0.005)
        for connection in list(self._connections.values()):
            connection.abort()
        await self._settle()
        timers = (self._wakeup_timer, self._idle_timer, self._stalled_timer, self._resume_handle)
        for timer in filter(None, timers):
            timer.cancel()
        self.request_memory.close()

    async def _settle(self) -> None:
        for _ in range(SETTLE_ROUNDS):
            await asyncio.sleep(0)

    def handle_event(self, event: events.NodeEvent) -> None:
        room = max(FETCH_UNSENT_LIMIT - self.unsent_bytes, 0)
        for command in self._node.handle(event, self._clock.now(), room):
            if isinstance(command, events.WriteLogLine):
                self._write_log(command.level, command.text)
            elif (connection := self._connections.get(command.connection)) is not None:
                try:
                    _carry_out_command(connection, command)
                except Exception:
                    self._logger.exception("%s: a response could not be sent", connection.peer)
                    connection.abort()
        self._schedule_wakeup()
        self._schedule_resume()

    def now(self) -> int:
        return self._clock.now()

    def advance(self, milliseconds: int) -> None:
        """Moves the clock; due timers fire in order, periodic ones some hundred times at most."""
        until = self._clock.now() + milliseconds
        slack = milliseconds // PERIODIC_RUNS_PER_ADVANCE
        while (at := self._node.next_timer(slack)) is not None and at <= until:
            self._clock.move_to(at)
            self.handle_event(events.Wakeup())
        self._clock.move_to(until)
        self.handle_event(events.Wakeup())
        self._reschedule_wakeup()

    def freeze(self) -> None:
        self._clock.freeze()
        self._reschedule_wakeup()

    def resume(self) -> None:
        self._clock.resume()
        self._reschedule_wakeup()

    def descriptors(self) -> list[int]:
        return [each.descriptor for each in self._connections.values()]

    def connection_opened(self, connection: ServerConnection, host: str) -> bool:
        """Returns False if there are too many connections, or the broker stops."""
        if self._stopping:
            return False
        if len(self._connections) >= self._config.max_connections:
            if not self._refusing_connections:
                self._refusing_connections = True
                text = "%s is refused, and so are further clients: max.connections is %d"
                self._logger.warning(text, connection.peer, self._config.max_connections)
            return False
        self._refusing_connections = False
        self._connections[connection.id] = connection
        connection.last_activity = self.loop.time()
        if self._idle_timer is None:
            self._schedule_idle_check(self._config.idle_connection / 1_000)
        self.handle_event(events.ConnectionOpened(connection.id, host))
        return True

    def frame_received(self, connection: ServerConnection, frame: Bytes) -> None:
        try:
            self.handle_event(events.FrameReceived(connection.id, frame))
        except Exception:
            self._logger.exception("%s: a request could not be handled", connection.peer)
            connection.abort()

    def is_authenticated(self, connection: ServerConnection) -> bool:
        return self._node.is_authenticated(connection.id)

    def must_wait(self, connection: ServerConnection) -> bool:
        """Whether the next request must wait until :meth:`ServerConnection.stop_waiting`."""
        if self.unsent_bytes < MAX_UNSENT_BYTES:
            return False
        self._waiting_connections[connection.id] = connection
        self._schedule_stalled_check()
        return True

    def unsent_decreased(self) -> None:
        if self.unsent_bytes < MAX_UNSENT_BYTES:
            waiting, self._waiting_connections = self._waiting_connections, {}
            for connection in waiting.values():
                connection.stop_waiting()
            self._schedule_resume()

    def note_activity(self, connection: ServerConnection) -> None:
        if connection.id in self._connections:
            connection.last_activity = self.loop.time()
            self._connections.move_to_end(connection.id)

    def log_refusal(self, connection: ServerConnection, reason: str) -> None:
        host = connection.peer.rpartition(":")[0]
        self._write_log(logging.WARNING, f"{host}: {reason}; the connection is closed")

    def connection_closed(self, connection: ServerConnection) -> None:
        self._waiting_connections.pop(connection.id, None)
        if self._connections.pop(connection.id, None) is not None:
            self.handle_event(events.ConnectionClosed(connection.id))

    def _accept(self) -> ServerConnection:
        self._count += 1
        return ServerConnection(self, events.ConnectionId(self._count))

    def _write_log(self, level: int, text: str) -> None:
        if level < logging.WARNING:
            self._logger.log(level, "%s", text)
        else:
            self._deduplicator.log(level, text, self.loop.time())

    def _schedule_wakeup(self) -> None:
        """Schedules a wakeup for the next timer; an earlier one stays, as it does no harm."""
        at = self._node.next_timer()
        if at is None or (self._wakeup_timer is not None and self._wakeup_at <= at):
            return
        wait = self._clock.seconds_until(at)
        if self._wakeup_timer is not None:
            self._wakeup_timer.cancel()
        self._wakeup_timer, self._wakeup_at = None, at
        if wait is not None:
            self._wakeup_timer = self.loop.call_later(min(wait, MAX_TIMER_SECONDS), self._wake_up)

    def _wake_up(self) -> None:
        self._wakeup_timer = None
        try:
            self.handle_event(events.Wakeup())
        finally:
            self._schedule_wakeup()

    def _reschedule_wakeup(self) -> None:
        if self._wakeup_timer is not None:
            self._wakeup_timer.cancel()
            self._wakeup_timer = None
        self._schedule_wakeup()

    def _schedule_idle_check(self, seconds: float) -> None:
        self._idle_timer = self.loop.call_later(min(seconds, MAX_TIMER_SECONDS), self._close_idle)

    def _close_idle(self) -> None:
        """Closes idle connections, like Kafka even with a request: a machine may be down."""
        self._idle_timer = None
        timeout = self._config.idle_connection / 1_000
        now = self.loop.time()
        for connection in list(self._connections.values()):
            idle = now - connection.last_activity
            if idle < timeout:
                self._schedule_idle_check(timeout - idle)
                return
            self._logger.info("%s: closed, idle for %.0f s", connection.peer, idle)
            connection.abort()
        if self._connections:
            self._schedule_idle_check(timeout)

    def _schedule_resume(self) -> None:
        """Lets the node resume requests in the loop's next round, or once there is room."""
        if self._resume_handle or not self._node.has_resumable_requests:
            return
        if self.unsent_bytes < FETCH_UNSENT_LIMIT:
            self._resume_handle = self.loop.call_soon(self._resume_ready)
        else:
            self._schedule_stalled_check()

    def _resume_ready(self) -> None:
        self._resume_handle = None
        self.handle_event(events.Wakeup())

    def _schedule_stalled_check(self, seconds: float | None = None) -> None:
        if self._stalled_timer is None:
            seconds = STALLED_CLIENT_TIMEOUT if seconds is None else seconds
            self._stalled_timer = self.loop.call_later(seconds, self._close_stalled)

    def _close_stalled(self) -> None:
        """Closes clients that do not read, while others wait for the memory of their responses."""
        self._stalled_timer = None
        now = self.loop.time()
        timeout = STALLED_CLIENT_TIMEOUT
        for connection in [each for each in self._connections.values() if each.unsent_bytes]:
            idle = now - connection.last_activity
            if idle < STALLED_CLIENT_TIMEOUT:
                timeout = STALLED_CLIENT_TIMEOUT - idle
                break
            size = connection.unsent_bytes
            connection.abort_refused(f"a response of {size} bytes was not read in {idle:.0f} s")
        if self._waiting_connections or self._node.has_resumable_requests:
            self._schedule_stalled_check(timeout)

    def _log_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Logs one line for an error of asyncio, such as an accept without a free descriptor."""
        error = context.get("exception")
        if isinstance(error, OSError):
            self._logger.error("%s: %s", context["message"], error.strerror or error)
        else:
            loop.default_exception_handler(context)


def _carry_out_command(
    connection: ServerConnection,
    command: events.WriteResponse | events.NoResponse | events.CloseConnection,
) -> None:
    match command:
        case events.WriteResponse():
            connection.send(command.data)
        case events.NoResponse():
            connection.request_done()
        case events.CloseConnection():
            connection.close()
        case _:
            assert_never(command)


REPEAT_PERIOD = 60.0  # seconds in which a line is logged only once
MAX_REMEMBERED_LINES = 1_000


class LogDeduplicator:
    """Logs a repeated line once a minute, with the number of times that it was left out."""

    def __init__(self, write: Callable[[int, str], None]) -> None:
        self._write = write
        #: When each line was logged last, and the number of times it was left out since.
        self._recent: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def log(self, level: int, text: str, at: float) -> None:
        """Logs a line unless it is repeated; ``at`` is in seconds."""
        since, left_out = self._recent.get(text, (at - REPEAT_PERIOD, 0))
        if at - since < REPEAT_PERIOD:
            self._recent[text] = since, left_out + 1
            return
        self._recent[text] = at, 0
        self._recent.move_to_end(text)
        if len(self._recent) > MAX_REMEMBERED_LINES:
            self._recent.popitem(last=False)
        more = f" ({left_out} times more in the last {at - since:.0f} s)" if left_out else ""
        self._write(level, text + more)


BIND_ATTEMPTS = 10
ALL_INTERFACES = ("0.0.0.0", "::")  # noqa: S104, compared only

_BIND_ERRORS = {
    errno.EADDRINUSE: "another process listens on this port",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "permission denied (ports below 1024 are reserved for the system)",
}


def bind_sockets(host: str, port: int) -> list[socket.socket]:
    """Binds every address of a host to one port (0: any); raises InputError or Unreachable."""
    addresses = resolve_host(host, port)
    tries = BIND_ATTEMPTS if port == 0 else 1
    while True:
        tries -= 1
        try:
            return _bind_all(addresses)
        except OSError as error:
            if not tries:
                reason = _BIND_ERRORS.get(error.errno or 0) or error.strerror
                text = f"cannot listen on {format_address(host, port)}: {reason}"
                raise Unreachable(text) from error


def resolve_host(host: str, port: int = 0) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    """Returns the addresses of a host, IPv4 first."""
    if not 0 <= port <= 65_535:
        raise InputError(f"port {port}: a port is a number from 0 to 65535")
    try:
        infos = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"host {host!r}: {reason}") from error
    addresses = {(family, (str(where[0]), port)) for family, _, _, _, where in infos}
    return sorted(addresses, key=lambda each: (each[0] != socket.AF_INET, each[1]))


def is_loopback(host: str) -> bool:
    return all(
        ipaddress.ip_address(address.partition("%")[0]).is_loopback
        for _, (address, _) in resolve_host(host)
    )


def check_exposure(host: str, *, guarded: bool, allow_anonymous: bool) -> None:
    """Raises InputError if other machines could connect without a login."""
    if not guarded and not allow_anonymous and not is_loopback(host):
        text = f"{host or 'every address'} can be reached from other machines without a login"
        raise InputError(f"{text}: pass users, or allow_anonymous=True")


def advertised_address(host: str, port: int) -> tuple[str, int]:
    """Returns the default of ``advertised.listeners``: a host that clients can look up."""
    return (socket.gethostname() if host in {"", *ALL_INTERFACES} else host), port


def parse_address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not (host and colon and port.isascii() and port.isdecimal() and int(port) <= 65_535):
        raise InputError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """Returns ``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind_all(addresses: list[tuple[socket.AddressFamily, tuple[str, int]]]) -> list[socket.socket]:
    """Binds all addresses to one port; skips a later one that is missing (often ``::1``)."""
    sockets: list[socket.socket] = []
    for family, (address, port) in addresses:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            if os.name == "posix":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((address, sockets[0].getsockname()[1] if sockets else port))
            sock.listen()
        except OSError as error:
            sock.close()
            if not sockets or error.errno == errno.EADDRINUSE:
                for each in sockets:
                    each.close()
                raise
        else:
            sockets.append(sock)
    return sockets
