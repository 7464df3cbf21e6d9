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
    def behind(self) -> bool:
        """There are answers, as soon as there is room for them."""

    def next_alarm(self, slack: int = 0) -> int | None:
        """When something must happen by itself; what is done from time to time, so much later."""

    def trusts(self, connection: ConnectionId) -> bool:
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
        self.scratch = bytearray(RECEIVE_BUFFER_BYTES)
        self.plain = bytearray(RECEIVE_BUFFER_BYTES if context is not None else 0)
        self.limit = config.max_request_bytes
        self.intake = RequestMemoryPool(self.loop, self.limit)
        self.unsent = 0
        self.context = context
        self._node = node
        self._clock = clock
        self._config = config
        self._logger = logger
        self._repeats = LogDeduplicator(lambda level, text: logger.log(level, "%s", text))
        self._count = 0
        #: Those that were quiet the longest come first.
        self._connections: OrderedDict[ConnectionId, ServerConnection] = OrderedDict()
        #: Clients are being turned away.
        self._full = False
        #: Those whose requests wait until others have read their answers.
        self._waiting: dict[ConnectionId, ServerConnection] = {}
        self._listening: list[asyncio.Server] = []
        #: Whoever was let in a moment ago is turned away.
        self._leaving = False
        self._alarm: asyncio.TimerHandle | None = None
        #: The broker's time for which the alarm is set.
        self._armed = 0
        self._sweep: asyncio.TimerHandle | None = None
        self._relief: asyncio.TimerHandle | None = None
        #: The node is about to answer some who waited.
        self._going_on: asyncio.Handle | None = None

    # From outside, within the loop

    async def start(self, sockets: Iterable[socket.socket]) -> None:
        """Lets clients in at these sockets, which are bound."""
        self.loop.set_exception_handler(self._went_wrong)
        for each in sockets:
            server = await self.loop.create_server(self._accept, sock=each, backlog=BACKLOG)
            self._listening.append(server)
        self._arm()

    async def stop(self) -> None:
        """Lets nobody in, and everybody go; what was answered goes out first."""
        self._leaving = True
        for server in self._listening:
            for each in server.sockets:
                self.loop.remove_reader(each.fileno())
        # asyncio loses the sockets of those who are being let in when their server is closed
        await self._settle()
        for server in self._listening:
            server.close()
        for connection in list(self._connections.values()):
            connection.close()
        patience = self.loop.time() + DRAIN_TIMEOUT
        while self._connections and self.loop.time() < patience:
            await asyncio.sleep(0.005)
        for connection in list(self._connections.values()):
            connection.abort()
        await self._settle()
        for timer in (self._alarm, self._sweep, self._relief, self._going_on):
            if timer is not None:
                timer.cancel()
        self.intake.close()

    async def _settle(self) -> None:
        """Lets the loop do what it has begun."""
        for _ in range(SETTLE_ROUNDS):
            await asyncio.sleep(0)

    def tell(self, event: NodeEvent) -> None:
        """Tells the node, and does what it wants done."""
        room = max(FETCH_UNSENT_LIMIT - self.unsent, 0)
        self.act(self._node.handle(event, self._clock.now(), room))

    def act(self, commands: Iterable[NodeCommand]) -> None:
        """Does what the node wants done; then sees to when it goes on."""
        for command in commands:
            if isinstance(command, WriteLogLine):
                self._say(command.level, command.text)
            elif (connection := self._connections.get(command.connection)) is not None:
                try:
                    _carry_out_command(connection, command)
                except Exception:
                    self._logger.exception("%s: an answer could not be sent", connection.name)
                    connection.abort()
        self._arm()
        self._catch_up()

    def now(self) -> int:
        """The broker's time."""
        return self._clock.now()

    def advance(self, milliseconds: int) -> None:
        """Moves the clock forward; timers that are due until then fire in order, each at its time.

        Periodic checks run some hundred times, however far the clock moves.
        """
        until = self._clock.now() + milliseconds
        slack = milliseconds // PERIODIC_RUNS_PER_ADVANCE
        while (at := self._node.next_alarm(slack)) is not None and at <= until:
            self._clock.move_to(at)
            self.tell(Wakeup())
        self._clock.move_to(until)
        self.tell(Wakeup())
        self._clock_moved()

    def freeze(self) -> None:
        """Stops the broker's time."""
        self._clock.freeze()
        self._clock_moved()

    def resume(self) -> None:
        """Lets the broker's time go on."""
        self._clock.resume()
        self._clock_moved()

    def descriptors(self) -> list[int]:
        """Of all sockets of clients."""
        return [each.descriptor for each in self._connections.values()]

    # From connections

    def opened(self, connection: ServerConnection, host: str) -> bool:
        """A client has connected; false if there are too many, or the broker stops."""
        if self._leaving:
            return False
        if len(self._connections) >= self._config.max_connections:
            if not self._full:
                self._full = True
                most = self._config.max_connections
                self._logger.warning(
                    "%s is turned away, as others will be: max.connections is %d",
                    connection.name,
                    most,
                )
            return False
        self._full = False
        self._connections[connection.id] = connection
        connection.last = self.loop.time()
        if self._sweep is None:
            self._sweep_in(self._config.idle_connection / 1_000)
        self.tell(ConnectionOpened(connection.id, host))
        return True

    def received(self, connection: ServerConnection, frame: Bytes) -> None:
        """A whole frame is there."""
        try:
            self.tell(FrameReceived(connection.id, frame))
        except Exception:
            self._logger.exception("%s: a request could not be handled", connection.name)
            connection.abort()

    def trusts(self, connection: ServerConnection) -> bool:
        """Has this client logged in, if it must?"""
        return self._node.trusts(connection.id)

    def wait(self, connection: ServerConnection) -> bool:
        """True if the connection's next request must wait; the connection is told when it may
        go on.
        """
        if self.unsent < MAX_UNSENT_BYTES:
            return False
        self._waiting[connection.id] = connection
        self._look_for_stalled()
        return True

    def sent(self) -> None:
        """There is less to send; those that wait may go on, if it is little enough."""
        if self.unsent < MAX_UNSENT_BYTES:
            waiting, self._waiting = self._waiting, {}
            for connection in waiting.values():
                connection.go_on_waiting()
            self._catch_up()

    def stirred(self, connection: ServerConnection) -> None:
        """Bytes have moved."""
        if connection.id in self._connections:
            connection.last = self.loop.time()
            self._connections.move_to_end(connection.id)

    def refused(self, connection: ServerConnection, reason: str) -> None:
        """What came in is no request."""
        self._say(
            logging.WARNING,
            f"{connection.name.rpartition(':')[0]}: {reason}; the connection is closed",
        )

    def closed(self, connection: ServerConnection) -> None:
        """The connection is gone."""
        self._waiting.pop(connection.id, None)
        if self._connections.pop(connection.id, None) is not None:
            self.tell(ConnectionClosed(connection.id))

    def _accept(self) -> ServerConnection:
        self._count += 1
        return ServerConnection(self, ConnectionId(self._count))

    def _say(self, level: int, text: str) -> None:
        if level < logging.WARNING:
            self._logger.log(level, "%s", text)
        else:
            self._repeats.tell(level, text, self.loop.time())

    # Time

    def _arm(self) -> None:
        """Schedules a wakeup for the node's next timer. A wakeup that is too early just looks
        again, so a timer that a long poll set and stopped is not worth rescheduling.
        """
        at = self._node.next_alarm()
        if at is None or (self._alarm is not None and self._armed <= at):
            return
        wait = self._clock.wait(at)
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._armed = None, at
        if wait is not None:
            self._alarm = self.loop.call_later(min(wait, MAX_TIMER_SECONDS), self._rung)

    def _rung(self) -> None:
        self._alarm = None
        try:
            self.tell(Wakeup())
        finally:
            self._arm()

    def _clock_moved(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._arm()

    def _sweep_in(self, seconds: float) -> None:
        self._sweep = self.loop.call_later(min(seconds, MAX_TIMER_SECONDS), self._close_idle)

    def _close_idle(self) -> None:
        """Closes connections that were silent too long: a machine that is gone does not say
        so. Kafka does the same, even if a request waits for its response.
        """
        self._sweep = None
        most = self._config.idle_connection / 1_000
        now = self.loop.time()
        for connection in list(self._connections.values()):
            quiet = now - connection.last
            if quiet < most:
                self._sweep_in(most - quiet)
                return
            self._logger.info("%s: closed, silent for %.0f s", connection.name, quiet)
            connection.abort()
        if self._connections:
            self._sweep_in(most)

    def _catch_up(self) -> None:
        """Lets the node answer those who waited: in the loop's next round, so that all others get
        their turn too, or once there is room.
        """
        if self._going_on or not self._node.behind:
            return
        if self.unsent < FETCH_UNSENT_LIMIT:
            self._going_on = self.loop.call_soon(self._go_on)
        else:
            self._look_for_stalled()

    def _go_on(self) -> None:
        self._going_on = None
        self.tell(Wakeup())

    def _look_for_stalled(self, seconds: float | None = None) -> None:
        if self._relief is None:
            wait = STALLED_CLIENT_TIMEOUT if seconds is None else seconds
            self._relief = self.loop.call_later(wait, self._close_stalled)

    def _close_stalled(self) -> None:
        """Closes clients that do not read, while others wait for the memory of their responses."""
        self._relief = None
        now = self.loop.time()
        patience = STALLED_CLIENT_TIMEOUT
        for connection in [each for each in self._connections.values() if each.unsent]:
            quiet = now - connection.last
            if quiet < STALLED_CLIENT_TIMEOUT:
                patience = STALLED_CLIENT_TIMEOUT - quiet
                break
            self.refused(
                connection,
                f"an answer of {connection.unsent} bytes was not read in {quiet:.0f} s",
            )
            connection.abort()
        if self._waiting or self._node.behind:
            self._look_for_stalled(patience)

    def _went_wrong(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
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
            connection.go_on()
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
        self._say = say
        #: When it was said last, and how often it was not since then.
        self._said: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def tell(self, level: int, text: str, at: float) -> None:
        """Says it, unless it was said a short time ago; ``at`` is in seconds."""
        since, left_out = self._said.get(text, (at - REPEAT_PERIOD, 0))
        if at - since < REPEAT_PERIOD:
            self._said[text] = since, left_out + 1
            return
        self._said[text] = at, 0
        self._said.move_to_end(text)
        if len(self._said) > MAX_REMEMBERED_LINES:
            self._said.popitem(last=False)
        more = f" ({left_out} times more in the last {at - since:.0f} s)" if left_out else ""
        self._say(level, text + more)
