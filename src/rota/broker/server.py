"""The shell around the node: sockets, time and a log. One event loop does it all.

It gives the node events and does what the node's commands say; it decides nothing about Kafka.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import OrderedDict
from collections.abc import Iterable
from typing import Protocol, assert_never

from rota.broker.clock import Clock
from rota.broker.connection import Connection
from rota.broker.event import (
    Close,
    Closed,
    Command,
    ConnectionId,
    Done,
    Event,
    Log,
    Opened,
    Received,
    Send,
    Woken,
)
from rota.broker.intake import Intake
from rota.broker.repeat import Repeats
from rota.formats.buffer import Bytes
from rota.model.config import BrokerConfig
from rota.wire.frame import SCRATCH

BACKLOG = 1_024
"""Clients that may wait to be let in."""
FAREWELL = 1.0
"""Seconds that clients have at the end to take what was sent to them."""
MOST_UNSENT = 256 << 20
"""When answers of so many bytes wait to be read, no request is taken up until some were."""
MOST_RECORDS = MOST_UNSENT // 2
"""Nobody is given records while so many wait: all else goes on, whoever reads too slowly."""
STALLED = 5.0
"""Seconds without a byte read, after which a client may be closed for the sake of others."""
ROUNDS = 200
"""So often, what is done from time to time is done while the clock is put forward."""
LONGEST = 86_400.0
"""Seconds: an event loop cannot wait for much longer than a day."""
LOGGER = logging.getLogger("rota.broker")


class Core(Protocol):
    """What the shell needs of a node."""

    def handle(self, event: Event, now: int, room: int) -> list[Command]:
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
        node: Core,
        clock: Clock,
        config: BrokerConfig,
        *,
        context: ssl.SSLContext | None = None,
        logger: logging.Logger = LOGGER,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.scratch = bytearray(SCRATCH)
        self.plain = bytearray(SCRATCH if context is not None else 0)
        self.limit = config.max_request_bytes
        self.intake = Intake(self.loop, self.limit)
        self.unsent = 0
        self.context = context
        self._node = node
        self._clock = clock
        self._config = config
        self._logger = logger
        self._repeats = Repeats(lambda level, text: logger.log(level, "%s", text))
        self._count = 0
        self._connections: OrderedDict[ConnectionId, Connection] = OrderedDict()
        """Those that were quiet the longest come first."""
        self._full = False
        """Clients are being turned away."""
        self._waiting: dict[ConnectionId, Connection] = {}
        """Those whose requests wait until others have read their answers."""
        self._listening: list[asyncio.Server] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._armed = 0
        """The broker's time for which the alarm is set."""
        self._sweep: asyncio.TimerHandle | None = None
        self._relief: asyncio.TimerHandle | None = None
        self._going_on: asyncio.Handle | None = None
        """The node is about to answer some who waited."""

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
        for server in self._listening:
            server.close()
        for connection in list(self._connections.values()):
            connection.close()
        patience = self.loop.time() + FAREWELL
        while self._connections and self.loop.time() < patience:
            await asyncio.sleep(0.005)
        for connection in list(self._connections.values()):
            connection.abort()
        await asyncio.sleep(0)
        for timer in (self._alarm, self._sweep, self._relief, self._going_on):
            if timer is not None:
                timer.cancel()
        self.intake.close()

    def tell(self, event: Event) -> None:
        """Tells the node, and does what it wants done."""
        room = max(MOST_RECORDS - self.unsent, 0)
        self.act(self._node.handle(event, self._clock.now(), room))

    def act(self, commands: Iterable[Command]) -> None:
        """Does what the node wants done; then sees to when it goes on."""
        for command in commands:
            if isinstance(command, Log):
                self._say(command.level, command.text)
            elif (connection := self._connections.get(command.connection)) is not None:
                try:
                    _obey(connection, command)
                except Exception:
                    self._logger.exception("%s: an answer could not be sent", connection.name)
                    connection.abort()
        self._arm()
        self._catch_up()

    def now(self) -> int:
        """The broker's time."""
        return self._clock.now()

    def advance(self, milliseconds: int) -> None:
        """Puts the clock forward; what is due until then happens in order, each at its time.

        What is done from time to time is done some hundred times, however far the clock moves.
        """
        until = self._clock.now() + milliseconds
        slack = milliseconds // ROUNDS
        while (at := self._node.next_alarm(slack)) is not None and at <= until:
            self._clock.move_to(at)
            self.tell(Woken())
        self._clock.move_to(until)
        self.tell(Woken())
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

    def opened(self, connection: Connection, host: str) -> bool:
        """A client has connected; false if there are too many."""
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
        self.tell(Opened(connection.id, host))
        return True

    def received(self, connection: Connection, frame: Bytes) -> None:
        """A whole frame is there."""
        try:
            self.tell(Received(connection.id, frame))
        except Exception:
            self._logger.exception("%s: a request could not be handled", connection.name)
            connection.abort()

    def trusts(self, connection: Connection) -> bool:
        """Has this client logged in, if it must?"""
        return self._node.trusts(connection.id)

    def wait(self, connection: Connection) -> bool:
        """Must its next request wait? If so, it is told when it need not any more."""
        if self.unsent < MOST_UNSENT:
            return False
        self._waiting[connection.id] = connection
        self._look_for_stalled()
        return True

    def sent(self) -> None:
        """There is less to send; those that wait may go on, if it is little enough."""
        if self.unsent < MOST_UNSENT:
            waiting, self._waiting = self._waiting, {}
            for connection in waiting.values():
                connection.go_on_waiting()
            self._catch_up()

    def stirred(self, connection: Connection) -> None:
        """Bytes have moved."""
        if connection.id in self._connections:
            connection.last = self.loop.time()
            self._connections.move_to_end(connection.id)

    def refused(self, connection: Connection, reason: str) -> None:
        """What came in is no request."""
        self._say(
            logging.WARNING,
            f"{connection.name.rpartition(':')[0]}: {reason}; the connection is closed",
        )

    def closed(self, connection: Connection) -> None:
        """The connection is gone."""
        self._waiting.pop(connection.id, None)
        if self._connections.pop(connection.id, None) is not None:
            self.tell(Closed(connection.id))

    def _accept(self) -> Connection:
        self._count += 1
        return Connection(self, ConnectionId(self._count))

    def _say(self, level: int, text: str) -> None:
        if level < logging.WARNING:
            self._logger.log(level, "%s", text)
        else:
            self._repeats.tell(level, text, self.loop.time())

    # Time

    def _arm(self) -> None:
        """Comes back when the next alarm is due. A timer that is early looks again, so one that
        a long poll has set and stopped again is not worth moving.
        """
        at = self._node.next_alarm()
        if at is None or (self._alarm is not None and self._armed <= at):
            return
        wait = self._clock.wait(at)
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._armed = None, at
        if wait is not None:
            self._alarm = self.loop.call_later(min(wait, LONGEST), self._rung)

    def _rung(self) -> None:
        self._alarm = None
        try:
            self.tell(Woken())
        finally:
            self._arm()

    def _clock_moved(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._arm()

    def _sweep_in(self, seconds: float) -> None:
        self._sweep = self.loop.call_later(min(seconds, LONGEST), self._close_idle)

    def _close_idle(self) -> None:
        """Closes who was silent too long: whose machine is gone, it will not say so. So does Kafka,
        though a request may wait for its answer.
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
        if self.unsent < MOST_RECORDS:
            self._going_on = self.loop.call_soon(self._go_on)
        else:
            self._look_for_stalled()

    def _go_on(self) -> None:
        self._going_on = None
        self.tell(Woken())

    def _look_for_stalled(self, seconds: float | None = None) -> None:
        if self._relief is None:
            wait = STALLED if seconds is None else seconds
            self._relief = self.loop.call_later(wait, self._close_stalled)

    def _close_stalled(self) -> None:
        """Closes who does not read, while others wait for the memory that its answer takes."""
        self._relief = None
        now = self.loop.time()
        patience = STALLED
        for connection in [each for each in self._connections.values() if each.unsent]:
            quiet = now - connection.last
            if quiet < STALLED:
                patience = STALLED - quiet
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


def _obey(connection: Connection, command: Send | Done | Close) -> None:
    match command:
        case Send():
            connection.send(command.data)
        case Done():
            connection.go_on()
        case Close():
            connection.close()
        case _:
            assert_never(command)
