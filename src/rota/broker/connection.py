"""One client's connection: bytes in, frames to the node; responses out, as fast as the client
reads.

At most one request of a connection is with the node. Later requests wait, and the socket is not
read meanwhile: so a connection occupies one request, one response and what one read brings. An idle
connection has no buffer, task or timer.

:class:`RequestMemoryPool` limits the memory of unfinished requests over all connections. Whole
requests are always served. When unfinished requests have used up the limit, only one of them is
read at a time, so that one always completes; a request that does not progress is closed.

:class:`TlsSession` is TLS without IO. asyncio's own TLS keeps 256 KiB for each connection and does
not say why a handshake failed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rota.broker.events import ConnectionId
from rota.engine.formats.buffer import Bytes
from rota.errors import FormatError, InputError, Unreachable
from rota.protocol.frames import GROWTH_FACTOR, RECEIVE_BUFFER_BYTES, FrameReader

#: No request is larger before its client has logged in (``sasl.server.max.receive.size``).
MAX_REQUEST_BEFORE_LOGIN = 512 * 1024

#: Seconds a client has to log in, where it must.
LOGIN_TIMEOUT = 30.0

#: So much of an answer is given to the socket at a time, so that little of it is copied.
WRITE_CHUNK = 256 * 1024

#: The next chunk follows when only so much of the last is left.
WRITE_LOW_WATER = 64 * 1024

#: Seconds that an answer may take when its client sends no more.
HALF_CLOSED_TIMEOUT = 5.0

EMPTY_VIEW = memoryview(b"")

TRANSPORT_KEEPS_VIEW = sys.version_info >= (3, 12)


class ConnectionOwner(Protocol):
    """What a connection needs of its server."""

    loop: asyncio.AbstractEventLoop
    #: Where the bytes of all connections arrive.
    scratch: bytearray
    #: Where they are decrypted.
    plain: bytearray
    #: Bytes of the largest request.
    limit: int
    context: ssl.SSLContext | None
    intake: RequestMemoryPool
    #: Bytes of answers that are kept for clients to read, of all connections.
    unsent: int

    def opened(self, connection: ServerConnection, host: str) -> bool:
        """A client has connected; false if it may not stay."""

    def received(self, connection: ServerConnection, frame: Bytes) -> None:
        """A whole frame is there."""

    def trusts(self, connection: ServerConnection) -> bool:
        """Has this client logged in, if it must?"""

    def wait(self, connection: ServerConnection) -> bool:
        """Must its next request wait? If so, ``go_on_waiting`` is called later."""

    def sent(self) -> None:
        """``unsent`` is less than before."""

    def stirred(self, connection: ServerConnection) -> None:
        """Bytes have moved."""

    def refused(self, connection: ServerConnection, reason: str) -> None:
        """What came in is no request; the connection is being closed."""

    def closed(self, connection: ServerConnection) -> None:
        """The connection is gone."""


class ServerConnection(asyncio.BufferedProtocol):
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

    def __init__(self, host: ConnectionOwner, number: ConnectionId) -> None:
        self._host = host
        self.id = number
        #: The client's address.
        self.name = "?"
        #: When bytes moved last; its host keeps it.
        self.last = 0.0
        #: A request of it is with the node.
        self.busy = False
        #: Bytes of that request.
        self._asked = 0
        #: Bytes of memory for its requests; its host's intake keeps it.
        self.taken = 0
        #: Bytes that have come in.
        self.brought = 0
        self._frames = FrameReader(min(host.limit, MAX_REQUEST_BEFORE_LOGIN), host.scratch)
        self._tls = None if host.context is None else TlsSession(host.context)
        self._shaking: asyncio.TimerHandle | None = None
        self._login: asyncio.TimerHandle | None = None
        #: Requests may be as large as is set.
        self._trusted = False
        #: What the socket has not been given of the answer.
        self._left = EMPTY_VIEW
        #: Bytes of the answer; it is kept whole until the socket has all of it.
        self.unsent = 0
        #: The client does not read its answers.
        self._blocked = False
        #: The socket is not read.
        self._deaf = False
        #: Others must read their answers first.
        self._waiting = False
        #: The next frame will be looked for in the loop's next round.
        self._due = False
        #: The client sends no more.
        self._ended = False
        self._closing = False

    # What the node wants

    def send(self, data: Bytes) -> None:
        """Sends an answer; the next frame may come."""
        self._left = EMPTY_VIEW if self._closing else memoryview(data)
        self._pump()
        if self._left:
            self._host.stirred(self)  # it was silent because it waited for this
        self.go_on()

    def go_on(self) -> None:
        """The request is done: the next frame is passed on in the loop's next round, so that
        every client gets its turn.
        """
        self.busy = False
        self._asked = 0
        if not self._trusted:
            self._learn_trust()
        self._wish()
        self._listen()

    def read_on(self) -> None:
        """There may be memory for more of the request."""
        self._wish()

    def give_up(self, reason: str) -> None:
        """Closes the connection, because its request does not progress."""
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
        transport.set_write_buffer_limits(WRITE_CHUNK, WRITE_LOW_WATER)
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
            self._login = self._host.loop.call_later(LOGIN_TIMEOUT, self._logged_in_too_late)
        if self._tls is not None:
            self._shaking = self._host.loop.call_later(TLS_HANDSHAKE_TIMEOUT, self._shook_too_long)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where bytes may arrive."""
        room = self._frames.room() if self._tls is None else memoryview(self._host.scratch)
        return room[:SMALL_READ] if self._host.intake.spent else room

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
            self._host.loop.call_later(HALF_CLOSED_TIMEOUT, self._leave)
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
        self._left = EMPTY_VIEW
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
        """Reads the socket, unless received data must wait or there is no memory for more."""
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
        """Passes the next frame to the node, if there is one and nothing holds it back."""
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
            piece, self._left = self._left[:WRITE_CHUNK], self._left[WRITE_CHUNK:]
            if self._tls is not None:
                self._transport.write(self._tls.encrypt(piece))
            else:
                # from Python 3.12 on it keeps what the socket does not take, not a copy of it
                self._transport.write(
                    bytes(piece) if TRANSPORT_KEEPS_VIEW and self.unsent else piece
                )
        self._count_unsent()
        if self._left:
            return
        self._left = EMPTY_VIEW  # an empty view would keep the whole answer alive
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

    def _decrypt(self, tls: TlsSession, data: memoryview) -> None:
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
            self._login = self._host.loop.call_later(LOGIN_TIMEOUT, self._logged_in_too_late)
        else:
            self._refuse(f"nobody has logged in within {LOGIN_TIMEOUT:g} seconds")

    def _shook_too_long(self) -> None:
        self._refuse(f"no TLS handshake within {TLS_HANDSHAKE_TIMEOUT:g} seconds")

    def _refuse(self, reason: str) -> None:
        if not self._closing:
            self._host.refused(self, reason)
            self.close()


# What requests under way take of the memory, over all connections, and who may bring more.
#
# Whole requests are served however much there is: they leave at once. But where unfinished ones
# have spent what there is for them, they are not read on, but for one at a time, so that there is
# always one that gets done. Who then stands still, or who only dribbles, is closed.

#: Bytes for requests under way, or for one of the largest.
MAX_REQUEST_MEMORY = 512 << 20

#: No more is read at once while all is spent: enough for most requests to come whole.
SMALL_READ = 16 * 1024

#: Seconds in which a request must come on while others wait for the memory that it takes.
STALLED_REQUEST_TIMEOUT = 5.0

#: Seconds in which it must come on in any case; clients give up a request after as long.
SLOW_REQUEST_TIMEOUT = 30.0

#: So many bytes in that time, or all of it: a slow line brings that, however long it takes.
MIN_PROGRESS_BYTES = 64 * 1024


class RequestReader(Protocol):
    """A connection, as far as it is read."""

    id: ConnectionId
    #: Bytes that are counted for it; kept here.
    taken: int
    #: Bytes that have ever come in.
    brought: int

    def read_on(self) -> None:
        """It may be that there is room."""

    def give_up(self, reason: str) -> None:
        """It is closed."""


@dataclass(slots=True)
class PartialRequest:
    """Where somebody's unfinished request was."""

    reader: RequestReader
    since: float
    brought: int


class RequestMemoryPool:
    """Counts the memory of requests over all connections, and decides which connections are
    read.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        """:param limit: bytes of the largest request"""
        self.taken = 0
        self.most = max(MAX_REQUEST_MEMORY, limit)
        self._loop = loop
        #: Those in the middle of a request.
        self._marks: dict[ConnectionId, PartialRequest] = {}
        #: Those of them that are not read.
        self._starved: dict[ConnectionId, RequestReader] = {}
        #: The one that is read though all is spent.
        self._favoured: ConnectionId | None = None
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def spent(self) -> bool:
        """There is no room for more."""
        return self.taken > self.most

    def weigh(self, reader: RequestReader, taken: int, *, unfinished: bool) -> bool:
        """Records how much memory a connection's requests take; returns whether the connection may
        be read.

        :param unfinished: it waits for the rest of a request
        """
        self.taken += taken - reader.taken
        reader.taken = taken
        if not unfinished:
            self._forget(reader.id)
            if self._starved:
                self._feed()
            return True
        if reader.id not in self._marks:
            self._marks[reader.id] = PartialRequest(reader, self._loop.time(), reader.brought)
            self._look_later()
        if self.spent:
            if self._favoured is None:
                self._favoured = reader.id
            if self._favoured != reader.id:
                self._starved[reader.id] = reader
                return False
        self._starved.pop(reader.id, None)
        return True

    def close(self) -> None:
        """Sets no timer any more."""
        if self._sweep is not None:
            self._sweep.cancel()

    def _forget(self, who: ConnectionId) -> None:
        if self._marks.pop(who, None) is not None:
            self._starved.pop(who, None)
            if self._favoured == who:
                self._favoured = None

    def _feed(self) -> None:
        """Resumes as many paused connections as there is memory for one read each; at least one."""
        room = self.most - self.taken
        while self._starved and (room > 0 or self._favoured is None):
            who, reader = next(iter(self._starved.items()))
            del self._starved[who]
            mark = self._marks[who]
            mark.since, mark.brought = self._loop.time(), reader.brought
            if room <= 0:
                self._favoured = who
            room -= max(GROWTH_FACTOR * reader.taken, RECEIVE_BUFFER_BYTES)
            reader.read_on()

    def _look_later(self) -> None:
        if self._sweep is None:
            self._sweep = self._loop.call_later(STALLED_REQUEST_TIMEOUT, self._look)

    def _look(self) -> None:
        """Closes who does not come on."""
        self._sweep = None
        now = self._loop.time()
        patience = STALLED_REQUEST_TIMEOUT if self._starved else SLOW_REQUEST_TIMEOUT
        for who, mark in list(self._marks.items()):
            brought = mark.reader.brought
            if who in self._starved or brought - mark.brought >= MIN_PROGRESS_BYTES:
                mark.since, mark.brought = now, brought
            elif now - mark.since >= patience:
                mark.reader.give_up(
                    f"{brought - mark.brought} bytes of a request came in {now - mark.since:.0f} s"
                )
        if self._marks:
            self._look_later()


#: Seconds a client may take for its handshake, as Kafka's clients give a connection.
TLS_HANDSHAKE_TIMEOUT = 10.0

#: Where these begin in PEM.
PEM_CERTIFICATE, PEM_KEY = b"-BEGIN CERTIFICATE-", b" KEY-----"

_TLS_ERRORS = {
    "HTTP_REQUEST": "an HTTP request came in where TLS is spoken",
    "HTTPS_PROXY_REQUEST": "an HTTP request came in where TLS is spoken",
    "WRONG_VERSION_NUMBER": "bytes without TLS came in where TLS is spoken "
    "(is the client's security.protocol SSL or SASL_SSL?)",
    "UNSUPPORTED_PROTOCOL": "the client's version of TLS is too old",
    "NO_SHARED_CIPHER": "the client and the broker have no cipher in common",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not trust the broker's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept the broker's certificate",
}


class TlsSession:
    """One connection's TLS without IO: received bytes go in, bytes to send come out."""

    __slots__ = ("_incoming", "_object", "_outgoing", "ready")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        #: The handshake is done.
        self.ready = False

    def put(self, data: Bytes) -> None:
        """Takes what the client has sent.

        :raises FormatError: it is not TLS, or not as agreed; what :meth:`take` gives still goes out
        """
        self._incoming.write(data)
        if not self.ready:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                return
            except ssl.SSLError as error:
                raise FormatError(_explain_tls_error(error)) from error
            self.ready = True

    def read_into(self, room: bytearray) -> memoryview:
        """Decrypts into a buffer, as much as it holds; empty if more must come in first.

        :raises FormatError: it is damaged
        :raises EOFError: the client has said that it ends here, and all before that was read
        """
        view, count = memoryview(room), 0
        while self.ready and count < len(view):
            try:
                more = int(self._object.read(len(view) - count, view[count:]))
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError as error:
                raise FormatError(_explain_tls_error(error)) from error
            if not more:
                if not count:
                    raise EOFError
                break
            count += more
        return view[:count]

    def encrypt(self, data: Bytes) -> bytes:
        """What must go out, so that the client reads this."""
        left = memoryview(data)
        while left:
            left = left[self._object.write(left) :]
        return self._outgoing.read()

    def end(self) -> bytes:
        """Returns the last bytes to send, so that the client knows that nothing was cut off."""
        if self.ready:
            with suppress(ssl.SSLError):
                self._object.unwrap()
        return self._outgoing.read()

    def take(self) -> bytes:
        """Returns handshake bytes that must be sent."""
        return self._outgoing.read()


def make_server_context(certificate: str | Path, key: str | Path | None) -> ssl.SSLContext:
    """For a broker with this certificate (PEM, with those that sign it); the key may be in it.

    :raises Unreachable: a file cannot be read
    :raises InputError: it has no certificate or key, or they do not belong together
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in (certificate, key):
        if path is not None:
            try:
                Path(path).open("rb").close()
            except OSError as error:
                raise Unreachable(f"{path}: {error.strerror}") from error
    try:
        # a key behind a password would be asked for on the terminal, by whoever runs the tests
        context.load_cert_chain(certificate, key, password=_refuse_password)
    except _KeyLocked as error:
        raise InputError(f"{key or certificate}: the key is locked with a password") from error
    except ssl.SSLError as error:
        which = f"{certificate} and {key}" if key is not None else f"{certificate}"
        reason = "the key does not belong to the certificate"
        if error.reason != "KEY_VALUES_MISMATCH":
            reason = _explain_missing_pem(certificate, key)
        raise InputError(f"{which}: {reason}") from error
    return context


def _explain_missing_pem(certificate: str | Path, key: str | Path | None) -> str:
    """What is not where it was expected."""
    if PEM_CERTIFICATE not in Path(certificate).read_bytes():
        return "the first file has no certificate in PEM" if key else "it has no certificate in PEM"
    if PEM_KEY not in Path(key or certificate).read_bytes():
        return "the second file has no key in PEM" if key else "its key is missing: give its file"
    return "a certificate and its key in PEM were expected"


class _KeyLocked(Exception):
    pass


def _refuse_password() -> str:
    raise _KeyLocked


def _explain_tls_error(error: ssl.SSLError) -> str:
    known = _TLS_ERRORS.get(error.reason or "")
    return known or f"TLS failed: {(error.reason or str(error)).replace('_', ' ').lower()}"
