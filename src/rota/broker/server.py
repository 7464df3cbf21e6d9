"""The shell around the node: sockets, time and a log, in one event loop.

The server gives events to the node and carries out the commands that it returns. It decides nothing
about Kafka.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol, assert_never

from rota.broker.connection import RequestMemoryPool, ServerConnection
from rota.broker.events import (
    CloseConnection,
    ConnectionClosed,
    ConnectionId,
    ConnectionOpened,
    FrameReceived,
    NodeCommand,
    NodeEvent,
    NoResponse,
    Wakeup,
    WriteLogLine,
    WriteResponse,
)
from rota.broker.timers import Clock
from rota.engine.formats.buffer import Bytes
from rota.engine.model.config import BrokerConfig
from rota.protocol.frames import RECEIVE_BUFFER_BYTES

#: Clients that may wait to be let in.
BACKLOG = 1_024

#: Seconds that clients have at the end to take what was sent to them.
DRAIN_TIMEOUT = 1.0

#: When answers of so many bytes wait to be read, no request is taken up until some were.
MAX_UNSENT_BYTES = 256 << 20

#: Nobody is given records while so many wait: all else goes on, whoever reads too slowly.
FETCH_UNSENT_LIMIT = MAX_UNSENT_BYTES // 2

#: Seconds without a byte read, after which a client may be closed for the sake of others.
STALLED_CLIENT_TIMEOUT = 5.0

#: So often, what is done from time to time is done while the clock is put forward.
PERIODIC_RUNS_PER_ADVANCE = 200

#: Rounds of the loop until a client that was just let in is turned away and its socket closed.
SETTLE_ROUNDS = 4

#: Seconds: an event loop cannot wait for much longer than a day.
MAX_TIMER_SECONDS = 86_400.0

LOGGER = logging.getLogger("rota.broker")


class NodeInterface(Protocol):
    """What the shell needs of a node."""

    def handle(self, event: NodeEvent, now: int, room: int) -> list[NodeCommand]:
        """What must be done now that this has happened; with so much room for answers."""

    @property
    def has_ready(self) -> bool:
        """There are answers, as soon as there is room for them."""

    def next_timer(self, slack: int = 0) -> int | None:
        """When something must happen by itself; what is done from time to time, so much later."""

    def is_authenticated(self, connection: ConnectionId) -> bool:
        """Has this client logged in, if it must?"""


class Server:
    """Serves a node's clients, within one event loop."""

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
        #: Those that were quiet the longest come first.
        self._connections: OrderedDict[ConnectionId, ServerConnection] = OrderedDict()
        #: Clients are being turned away.
        self._refusing_connections = False
        #: Those whose requests wait until others have read their answers.
        self._waiting_connections: dict[ConnectionId, ServerConnection] = {}
        self._listeners: list[asyncio.Server] = []
        #: Whoever was let in a moment ago is turned away.
        self._stopping = False
        self._wakeup_timer: asyncio.TimerHandle | None = None
        #: The broker's time for which the alarm is set.
        self._wakeup_at = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._stalled_timer: asyncio.TimerHandle | None = None
        #: The node is about to answer some who waited.
        self._resume_handle: asyncio.Handle | None = None

    # From outside, within the loop

    async def start(self, sockets: Iterable[socket.socket]) -> None:
        """Lets clients in at these sockets, which are bound."""
        self.loop.set_exception_handler(self._log_loop_error)
        for each in sockets:
            server = await self.loop.create_server(self._accept, sock=each, backlog=BACKLOG)
            self._listeners.append(server)
        self._schedule_wakeup()

    async def stop(self) -> None:
        """Lets nobody in, and everybody go; what was answered goes out first."""
        self._stopping = True
        for server in self._listeners:
            for each in server.sockets:
                self.loop.remove_reader(each.fileno())
        # asyncio loses the sockets of those who are being let in when their server is closed
        await self._settle()
        for server in self._listeners:
            server.close()
        for connection in list(self._connections.values()):
            connection.close()
        patience = self.loop.time() + DRAIN_TIMEOUT
        while self._connections and self.loop.time() < patience:
            await asyncio.sleep(0.005)
        for connection in list(self._connections.values()):
            connection.abort()
        await self._settle()
        for timer in (
            self._wakeup_timer,
            self._idle_timer,
            self._stalled_timer,
            self._resume_handle,
        ):
            if timer is not None:
                timer.cancel()
        self.request_memory.close()

    async def _settle(self) -> None:
        """Lets the loop do what it has begun."""
        for _ in range(SETTLE_ROUNDS):
            await asyncio.sleep(0)

    def handle_event(self, event: NodeEvent) -> None:
        """Tells the node, and does what it wants done."""
        room = max(FETCH_UNSENT_LIMIT - self.unsent_bytes, 0)
        self.carry_out(self._node.handle(event, self._clock.now(), room))

    def carry_out(self, commands: Iterable[NodeCommand]) -> None:
        """Does what the node wants done; then sees to when it goes on."""
        for command in commands:
            if isinstance(command, WriteLogLine):
                self._write_log(command.level, command.text)
            elif (connection := self._connections.get(command.connection)) is not None:
                try:
                    _carry_out_command(connection, command)
                except Exception:
                    self._logger.exception("%s: an answer could not be sent", connection.peer)
                    connection.abort()
        self._schedule_wakeup()
        self._schedule_resume()

    def now(self) -> int:
        """The broker's time."""
        return self._clock.now()

    def advance(self, milliseconds: int) -> None:
        """Moves the clock forward; timers that are due until then fire in order, each at its time.

        Periodic checks run some hundred times, however far the clock moves.
        """
        until = self._clock.now() + milliseconds
        slack = milliseconds // PERIODIC_RUNS_PER_ADVANCE
        while (at := self._node.next_timer(slack)) is not None and at <= until:
            self._clock.move_to(at)
            self.handle_event(Wakeup())
        self._clock.move_to(until)
        self.handle_event(Wakeup())
        self._reschedule_wakeup()

    def freeze(self) -> None:
        """Stops the broker's time."""
        self._clock.freeze()
        self._reschedule_wakeup()

    def resume(self) -> None:
        """Lets the broker's time go on."""
        self._clock.resume()
        self._reschedule_wakeup()

    def descriptors(self) -> list[int]:
        """Of all sockets of clients."""
        return [each.descriptor for each in self._connections.values()]

    # From connections

    def connection_opened(self, connection: ServerConnection, host: str) -> bool:
        """A client has connected; false if there are too many, or the broker stops."""
        if self._stopping:
            return False
        if len(self._connections) >= self._config.max_connections:
            if not self._refusing_connections:
                self._refusing_connections = True
                most = self._config.max_connections
                self._logger.warning(
                    "%s is turned away, as others will be: max.connections is %d",
                    connection.peer,
                    most,
                )
            return False
        self._refusing_connections = False
        self._connections[connection.id] = connection
        connection.last_activity = self.loop.time()
        if self._idle_timer is None:
            self._schedule_idle_check(self._config.idle_connection / 1_000)
        self.handle_event(ConnectionOpened(connection.id, host))
        return True

    def frame_received(self, connection: ServerConnection, frame: Bytes) -> None:
        """A whole frame is there."""
        try:
            self.handle_event(FrameReceived(connection.id, frame))
        except Exception:
            self._logger.exception("%s: a request could not be handled", connection.peer)
            connection.abort()

    def is_authenticated(self, connection: ServerConnection) -> bool:
        """Has this client logged in, if it must?"""
        return self._node.is_authenticated(connection.id)

    def must_wait(self, connection: ServerConnection) -> bool:
        """True if the connection's next request must wait; the connection is told when it may
        go on.
        """
        if self.unsent_bytes < MAX_UNSENT_BYTES:
            return False
        self._waiting_connections[connection.id] = connection
        self._schedule_stalled_check()
        return True

    def unsent_decreased(self) -> None:
        """There is less to send; those that wait may go on, if it is little enough."""
        if self.unsent_bytes < MAX_UNSENT_BYTES:
            waiting, self._waiting_connections = self._waiting_connections, {}
            for connection in waiting.values():
                connection.stop_waiting()
            self._schedule_resume()

    def note_activity(self, connection: ServerConnection) -> None:
        """Bytes have moved."""
        if connection.id in self._connections:
            connection.last_activity = self.loop.time()
            self._connections.move_to_end(connection.id)

    def log_refusal(self, connection: ServerConnection, reason: str) -> None:
        """What came in is no request."""
        self._write_log(
            logging.WARNING,
            f"{connection.peer.rpartition(':')[0]}: {reason}; the connection is closed",
        )

    def connection_closed(self, connection: ServerConnection) -> None:
        """The connection is gone."""
        self._waiting_connections.pop(connection.id, None)
        if self._connections.pop(connection.id, None) is not None:
            self.handle_event(ConnectionClosed(connection.id))

    def _accept(self) -> ServerConnection:
        self._count += 1
        return ServerConnection(self, ConnectionId(self._count))

    def _write_log(self, level: int, text: str) -> None:
        if level < logging.WARNING:
            self._logger.log(level, "%s", text)
        else:
            self._deduplicator.log(level, text, self.loop.time())

    # Time

    def _schedule_wakeup(self) -> None:
        """Schedules a wakeup for the node's next timer. A wakeup that is too early just looks
        again, so a timer that a long poll set and stopped is not worth rescheduling.
        """
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
            self.handle_event(Wakeup())
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
        """Closes connections that were silent too long: a machine that is gone does not say
        so. Kafka does the same, even if a request waits for its response.
        """
        self._idle_timer = None
        most = self._config.idle_connection / 1_000
        now = self.loop.time()
        for connection in list(self._connections.values()):
            quiet = now - connection.last_activity
            if quiet < most:
                self._schedule_idle_check(most - quiet)
                return
            self._logger.info("%s: closed, silent for %.0f s", connection.peer, quiet)
            connection.abort()
        if self._connections:
            self._schedule_idle_check(most)

    def _schedule_resume(self) -> None:
        """Lets the node answer those who waited: in the loop's next round, so that all others get
        their turn too, or once there is room.
        """
        if self._resume_handle or not self._node.has_ready:
            return
        if self.unsent_bytes < FETCH_UNSENT_LIMIT:
            self._resume_handle = self.loop.call_soon(self._resume_ready)
        else:
            self._schedule_stalled_check()

    def _resume_ready(self) -> None:
        self._resume_handle = None
        self.handle_event(Wakeup())

    def _schedule_stalled_check(self, seconds: float | None = None) -> None:
        if self._stalled_timer is None:
            wait = STALLED_CLIENT_TIMEOUT if seconds is None else seconds
            self._stalled_timer = self.loop.call_later(wait, self._close_stalled)

    def _close_stalled(self) -> None:
        """Closes clients that do not read, while others wait for the memory of their responses."""
        self._stalled_timer = None
        now = self.loop.time()
        patience = STALLED_CLIENT_TIMEOUT
        for connection in [each for each in self._connections.values() if each.unsent_bytes]:
            quiet = now - connection.last_activity
            if quiet < STALLED_CLIENT_TIMEOUT:
                patience = STALLED_CLIENT_TIMEOUT - quiet
                break
            self.log_refusal(
                connection,
                f"an answer of {connection.unsent_bytes} bytes was not read in {quiet:.0f} s",
            )
            connection.abort()
        if self._waiting_connections or self._node.has_ready:
            self._schedule_stalled_check(patience)

    def _log_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """One line for what asyncio could not do, such as accepting without a free descriptor."""
        error = context.get("exception")
        if isinstance(error, OSError):
            self._logger.error("%s: %s", context["message"], error.strerror or error)
        else:
            loop.default_exception_handler(context)


def _carry_out_command(
    connection: ServerConnection, command: WriteResponse | NoResponse | CloseConnection
) -> None:
    match command:
        case WriteResponse():
            connection.send(command.data)
        case NoResponse():
            connection.request_done()
        case CloseConnection():
            connection.close()
        case _:
            assert_never(command)


#: Seconds that a line is not said again.
REPEAT_PERIOD = 60.0

#: So many lines are remembered.
MAX_REMEMBERED_LINES = 1_000


class LogDeduplicator:
    """Logs a line once; when it comes again after a minute, adds how often it was left out."""

    def __init__(self, say: Callable[[int, str], None]) -> None:
        self._write = say
        #: When it was said last, and how often it was not since then.
        self._recent: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def log(self, level: int, text: str, at: float) -> None:
        """Says it, unless it was said a short time ago; ``at`` is in seconds."""
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
