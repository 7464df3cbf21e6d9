"""One client's connection: bytes in, frames to the node; answers out, as fast as the client reads.

At most one request of a connection is with the node. What has come in behind it waits, and the
socket is not read meanwhile: so one connection occupies one request, one answer and what one read
brings. A connection at rest has no buffer, no task and no timer of its own.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from typing import Protocol

from rota.broker.event import ConnectionId
from rota.broker.intake import SPARSE, Intake
from rota.broker.tls import HANDSHAKE, Tls
from rota.errors import FormatError
from rota.formats.buffer import Bytes
from rota.wire.frame import Frames

BEFORE_LOGIN = 512 * 1024
"""No request is larger before its client has logged in (``sasl.server.max.receive.size``)."""
LOGIN = 30.0
"""Seconds a client has to log in, where it must."""
CHUNK = 256 * 1024
"""So much of an answer is given to the socket at a time, so that little of it is copied."""
CALM = 64 * 1024
"""The next chunk follows when only so much of the last is left."""
LINGERING = 5.0
"""Seconds that an answer may take when its client sends no more."""
NOTHING = memoryview(b"")
KEEPS = sys.version_info >= (3, 12)


class Host(Protocol):
    """Who looks after connections."""

    loop: asyncio.AbstractEventLoop
    scratch: bytearray
    """Where the bytes of all connections arrive."""
    plain: bytearray
    """Where they are decrypted."""
    limit: int
    """Bytes of the largest request."""
    context: ssl.SSLContext | None
    intake: Intake
    unsent: int
    """Bytes of answers that are kept for clients to read, of all connections."""

    def opened(self, connection: Connection, host: str) -> bool:
        """A client has connected; false if it may not stay."""

    def received(self, connection: Connection, frame: Bytes) -> None:
        """A whole frame is there."""

    def trusts(self, connection: Connection) -> bool:
        """Has this client logged in, if it must?"""

    def wait(self, connection: Connection) -> bool:
        """Must its next request wait? If so, ``go_on_waiting`` is called later."""

    def sent(self) -> None:
        """``unsent`` is less than before."""

    def stirred(self, connection: Connection) -> None:
        """Bytes have moved."""

    def refused(self, connection: Connection, reason: str) -> None:
        """What came in is no request; the connection is being closed."""

    def closed(self, connection: Connection) -> None:
        """The connection is gone."""


class Connection(asyncio.BufferedProtocol):
    """A client's connection, with TLS or without."""

    __slots__ = (
        "_asked",
        "_blocked",
        "_closing",
        "_deaf",
        "_due",
        "_ended",
        "_frames",
        "_host",
        "_left",
        "_login",
        "_shaking",
        "_tls",
        "_transport",
        "_trusted",
        "_waiting",
        "brought",
        "busy",
        "id",
        "last",
        "name",
        "taken",
        "unsent",
    )
    _transport: asyncio.Transport

    def __init__(self, host: Host, number: ConnectionId) -> None:
        self._host = host
        self.id = number
        self.name = "?"
        """The client's address."""
        self.last = 0.0
        """When bytes moved last; its host keeps it."""
        self.busy = False
        """A request of it is with the node."""
        self._asked = 0
        """Bytes of that request."""
        self.taken = 0
        """Bytes of memory for its requests; its host's intake keeps it."""
        self.brought = 0
        """Bytes that have come in."""
        self._frames = Frames(min(host.limit, BEFORE_LOGIN), host.scratch)
        self._tls = None if host.context is None else Tls(host.context)
        self._shaking: asyncio.TimerHandle | None = None
        self._login: asyncio.TimerHandle | None = None
        self._trusted = False
        """Requests may be as large as is set."""
        self._left = NOTHING
        """What the socket has not been given of the answer."""
        self.unsent = 0
        """Bytes of the answer; it is kept whole until the socket has all of it."""
        self._blocked = False
        """The client does not read its answers."""
        self._deaf = False
        """The socket is not read."""
        self._waiting = False
        """Others must read their answers first."""
        self._due = False
        """The next frame will be looked for in the loop's next round."""
        self._ended = False
        """The client sends no more."""
        self._closing = False

    # What the node wants

    def send(self, data: Bytes) -> None:
        """Sends an answer; the next frame may come."""
        self._left = NOTHING if self._closing else memoryview(data)
        self._pump()
        if self._left:
            self._host.stirred(self)  # it was silent because it waited for this
        self.go_on()

    def go_on(self) -> None:
        """The next frame may come: in the loop's next round, so that all clients get their turn."""
        self.busy = False
        self._asked = 0
        if not self._trusted:
            self._learn_trust()
        self._wish()
        self._listen()

    def read_on(self) -> None:
        """There is room for more of its request."""
        self._wish()

    def give_up(self, reason: str) -> None:
        """Ends the connection: its request does not come on."""
        self._host.refused(self, reason)
        self.abort()

    def go_on_waiting(self) -> None:
        """Others have read their answers."""
        self._waiting = False
        self._wish()

    def close(self) -> None:
        """Ends the connection when all that was sent has gone out."""
        if not self._closing:
            self._closing = True
            self._pump()

    def abort(self) -> None:
        """Ends the connection now."""
        self._closing = True
        self._transport.abort()

    @property
    def descriptor(self) -> int:
        """Of its socket."""
        return int(self._transport.get_extra_info("socket").fileno())

    # What the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(CHUNK, CALM)
        # asyncio does so only for sockets made with the protocol's number; else the second of two
        # small answers waits 40 ms for the client to acknowledge the first
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = transport.get_extra_info("peername")
        self.name = f"{peer[0]}:{peer[1]}" if peer else "?"
        if not self._host.opened(self, peer[0] if peer else ""):
            self.abort()
            return
        self._learn_trust()
        if not self._trusted:
            self._login = self._host.loop.call_later(LOGIN, self._logged_in_too_late)
        if self._tls is not None:
            self._shaking = self._host.loop.call_later(HANDSHAKE, self._shook_too_long)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where bytes may arrive."""
        room = self._frames.room() if self._tls is None else memoryview(self._host.scratch)
        return room[:SPARSE] if self._host.intake.spent else room

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        self._host.stirred(self)
        if self._closing:
            return
        self.brought += nbytes
        if self._tls is None:
            self._frames.advance(nbytes)
        else:
            self._decrypt(self._tls, memoryview(self._host.scratch)[:nbytes])
        if not self._due:
            self._next()
        self._listen()

    def eof_received(self) -> bool:
        """The client sends no more; what it sent before is still answered, if that is soon: most
        clients are gone, and a long poll would keep their connections for as long as they said.
        """
        self._ended = True
        if self.busy:
            self._host.loop.call_later(LINGERING, self._leave)
        return self.busy or self._blocked or self._due or self._waiting

    def _leave(self) -> None:
        if self.busy:
            self.abort()

    def pause_writing(self) -> None:
        """The client does not read."""
        self._blocked = True

    def resume_writing(self) -> None:
        """The client has read. Goes on in a turn of its own: the loop is in the middle of writing,
        and would tell of the connection's end twice if the client is gone by now. Until then it
        counts as blocked: the next answer must not come before the rest of this one.
        """
        self._host.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._transport.is_closing():
            return
        self._blocked = False
        self._host.stirred(self)
        self._pump()
        self._wish()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._closing = True
        self._left = NOTHING
        self._count_unsent()
        for timer in (self._shaking, self._login):
            if timer is not None:
                timer.cancel()
        self._host.intake.weigh(self, 0, unfinished=False)
        self._host.closed(self)

    def _wish(self) -> None:
        """Asks for a turn, if there is something to do in it."""
        if not self._due and (self._frames.held or self._deaf or self._ended):
            self._due = True
            self._host.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._due = False
        self._next()
        self._listen()

    def _listen(self) -> None:
        """Reads the socket, unless what has come in must wait or there is no room for more."""
        if self._closing:
            return
        stuck = self.busy or self._blocked or self._due or self._waiting
        deaf = stuck and self._frames.held > 0
        taken = self._frames.taken + self._asked
        if taken or self.taken:
            unfinished = self._frames.missing > 0 and not stuck
            deaf |= not self._host.intake.weigh(self, taken, unfinished=unfinished)
        if deaf != self._deaf and not self._ended:
            self._deaf = deaf
            if deaf:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _next(self) -> None:
        """Hands the next frame to the node, if there is one and it is its turn."""
        if self.busy or self._blocked or self._waiting or self._closing:
            return
        if self._frames.held and self._host.wait(self):
            self._waiting = True
            return
        try:
            frame = self._frames.next()
        except FormatError as error:
            self._refuse(str(error) if self._trusted else f"{error}; nobody has logged in")
            return
        if frame is not None:
            self.busy = True
            self._asked = len(frame)
            self._host.received(self, frame)
        elif self._ended:
            self.close()

    def _pump(self) -> None:
        """Gives the socket as much of the answer as it takes."""
        while self._left and not self._blocked and not self._transport.is_closing():
            piece, self._left = self._left[:CHUNK], self._left[CHUNK:]
            if self._tls is not None:
                self._transport.write(self._tls.encrypt(piece))
            else:
                # from Python 3.12 on it keeps what the socket does not take, not a copy of it
                self._transport.write(bytes(piece) if KEEPS and self.unsent else piece)
        self._count_unsent()
        if self._left:
            return
        self._left = NOTHING  # an empty view would keep the whole answer alive
        if self._closing:
            if self._tls is not None and (last := self._tls.end()):
                self._transport.write(last)
            self._transport.close()

    def _count_unsent(self) -> None:
        # a view of a part keeps the whole answer alive
        size = memoryview(self._left.obj).nbytes if self._left else 0
        before, self.unsent = self.unsent, size
        if before != self.unsent:
            self._host.unsent += self.unsent - before
            if self.unsent < before:
                self._host.sent()

    def _learn_trust(self) -> None:
        self._trusted = self._host.trusts(self)
        if self._trusted:
            self._frames.limit = self._host.limit
            if self._login is not None:
                self._login.cancel()
                self._login = None

    def _decrypt(self, tls: Tls, data: memoryview) -> None:
        reason = ""
        try:
            tls.put(data)
            while plain := tls.read_into(self._host.plain):
                self._frames.feed(plain)
        except EOFError:
            self.eof_received()
            self._wish()
        except FormatError as error:
            reason = str(error)
        if answer := tls.take():
            self._transport.write(answer)
        if reason:
            self._refuse(reason)
        elif tls.ready and self._shaking is not None:
            self._shaking.cancel()
            self._shaking = None

    def _logged_in_too_late(self) -> None:
        if self.busy:  # the broker's answer is late, not the client
            self._login = self._host.loop.call_later(LOGIN, self._logged_in_too_late)
        else:
            self._refuse(f"nobody has logged in within {LOGIN:g} seconds")

    def _shook_too_long(self) -> None:
        self._refuse(f"no TLS handshake within {HANDSHAKE:g} seconds")

    def _refuse(self, reason: str) -> None:
        if not self._closing:
            self._host.refused(self, reason)
            self.close()
