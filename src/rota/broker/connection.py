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
    receive_buffer: bytearray
    #: Where they are decrypted.
    plaintext_buffer: bytearray
    #: Bytes of the largest request.
    max_request_bytes: int
    tls_context: ssl.SSLContext | None
    request_memory: RequestMemoryPool
    #: Bytes of answers that are kept for clients to read, of all connections.
    unsent_bytes: int

    def connection_opened(self, connection: ServerConnection, host: str) -> bool:
        """A client has connected; false if it may not stay."""

    def frame_received(self, connection: ServerConnection, frame: Bytes) -> None:
        """A whole frame is there."""

    def is_authenticated(self, connection: ServerConnection) -> bool:
        """Has this client logged in, if it must?"""

    def must_wait(self, connection: ServerConnection) -> bool:
        """Must its next request wait? If so, ``go_on_waiting`` is called later."""

    def unsent_decreased(self) -> None:
        """``unsent`` is less than before."""

    def note_activity(self, connection: ServerConnection) -> None:
        """Bytes have moved."""

    def log_refusal(self, connection: ServerConnection, reason: str) -> None:
        """What came in is no request; the connection is being closed."""

    def connection_closed(self, connection: ServerConnection) -> None:
        """The connection is gone."""


class ServerConnection(asyncio.BufferedProtocol):
    """A client's connection, with TLS or without."""

    __slots__ = (
        "_authenticated",
        "_closing",
        "_eof",
        "_frames",
        "_handshake_timer",
        "_login_timer",
        "_must_wait",
        "_owner",
        "_read_paused",
        "_request_bytes",
        "_tls",
        "_transport",
        "_turn_scheduled",
        "_unwritten",
        "_write_paused",
        "id",
        "last_activity",
        "peer",
        "received_bytes",
        "request_in_flight",
        "reserved_bytes",
        "unsent_bytes",
    )
    _transport: asyncio.Transport

    def __init__(self, host: ConnectionOwner, number: ConnectionId) -> None:
        self._owner = host
        self.id = number
        #: The client's address.
        self.peer = "?"
        #: When bytes moved last; its host keeps it.
        self.last_activity = 0.0
        #: A request of it is with the node.
        self.request_in_flight = False
        #: Bytes of that request.
        self._request_bytes = 0
        #: Bytes of memory for its requests; its host's intake keeps it.
        self.reserved_bytes = 0
        #: Bytes that have come in.
        self.received_bytes = 0
        self._frames = FrameReader(
            min(host.max_request_bytes, MAX_REQUEST_BEFORE_LOGIN), host.receive_buffer
        )
        self._tls = None if host.tls_context is None else TlsSession(host.tls_context)
        self._handshake_timer: asyncio.TimerHandle | None = None
        self._login_timer: asyncio.TimerHandle | None = None
        #: Requests may be as large as is set.
        self._authenticated = False
        #: What the socket has not been given of the answer.
        self._unwritten = EMPTY_VIEW
        #: Bytes of the answer; it is kept whole until the socket has all of it.
        self.unsent_bytes = 0
        #: The client does not read its answers.
        self._write_paused = False
        #: The socket is not read.
        self._read_paused = False
        #: Others must read their answers first.
        self._must_wait = False
        #: The next frame will be looked for in the loop's next round.
        self._turn_scheduled = False
        #: The client sends no more.
        self._eof = False
        self._closing = False

    # What the node wants

    def send(self, data: Bytes) -> None:
        """Sends an answer; the next frame may come."""
        self._unwritten = EMPTY_VIEW if self._closing else memoryview(data)
        self._write_chunks()
        if self._unwritten:
            self._owner.note_activity(self)  # it was silent because it waited for this
        self.request_done()

    def request_done(self) -> None:
        """The request is done: the next frame is passed on in the loop's next round, so that
        every client gets its turn.
        """
        self.request_in_flight = False
        self._request_bytes = 0
        if not self._authenticated:
            self._update_authenticated()
        self._schedule_turn()
        self._update_reading()

    def memory_available(self) -> None:
        """There may be memory for more of the request."""
        self._schedule_turn()

    def abort_slow_request(self, reason: str) -> None:
        """Closes the connection, because its request does not progress."""
        self._owner.log_refusal(self, reason)
        self.abort()

    def stop_waiting(self) -> None:
        """Others have read their answers."""
        self._must_wait = False
        self._schedule_turn()

    def close(self) -> None:
        """Ends the connection when all that was sent has gone out."""
        if not self._closing:
            self._closing = True
            self._write_chunks()

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
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        if not self._owner.connection_opened(self, peer[0] if peer else ""):
            self.abort()
            return
        self._update_authenticated()
        if not self._authenticated:
            self._login_timer = self._owner.loop.call_later(LOGIN_TIMEOUT, self._login_timed_out)
        if self._tls is not None:
            self._handshake_timer = self._owner.loop.call_later(
                TLS_HANDSHAKE_TIMEOUT, self._handshake_timed_out
            )

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where bytes may arrive."""
        room = (
            self._frames.get_buffer()
            if self._tls is None
            else memoryview(self._owner.receive_buffer)
        )
        return room[:SMALL_READ] if self._owner.request_memory.is_exhausted else room

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        self._owner.note_activity(self)
        if self._closing:
            return
        self.received_bytes += nbytes
        if self._tls is None:
            self._frames.buffer_updated(nbytes)
        else:
            self._decrypt(self._tls, memoryview(self._owner.receive_buffer)[:nbytes])
        if not self._turn_scheduled:
            self._pass_next_frame()
        self._update_reading()

    def eof_received(self) -> bool:
        """The client sends no more; what it sent before is still answered, if that is soon: most
        clients are gone, and a long poll would keep their connections for as long as they said.
        """
        self._eof = True
        if self.request_in_flight:
            self._owner.loop.call_later(HALF_CLOSED_TIMEOUT, self._abort_half_closed)
        return (
            self.request_in_flight or self._write_paused or self._turn_scheduled or self._must_wait
        )

    def _abort_half_closed(self) -> None:
        if self.request_in_flight:
            self.abort()

    def pause_writing(self) -> None:
        """The client does not read."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """The client has read. Goes on in a turn of its own: the loop is in the middle of writing,
        and would tell of the connection's end twice if the client is gone by now. Until then it
        counts as blocked: the next answer must not come before the rest of this one.
        """
        self._owner.loop.call_soon(self._resume_write)

    def _resume_write(self) -> None:
        if self._transport.is_closing():
            return
        self._write_paused = False
        self._owner.note_activity(self)
        self._write_chunks()
        self._schedule_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._closing = True
        self._unwritten = EMPTY_VIEW
        self._count_unsent()
        for timer in (self._handshake_timer, self._login_timer):
            if timer is not None:
                timer.cancel()
        self._owner.request_memory.reserve(self, 0, unfinished=False)
        self._owner.connection_closed(self)

    def _schedule_turn(self) -> None:
        """Asks for a turn, if there is something to do in it."""
        if not self._turn_scheduled and (
            self._frames.buffered_bytes or self._read_paused or self._eof
        ):
            self._turn_scheduled = True
            self._owner.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn_scheduled = False
        self._pass_next_frame()
        self._update_reading()

    def _update_reading(self) -> None:
        """Reads the socket, unless received data must wait or there is no memory for more."""
        if self._closing:
            return
        stuck = (
            self.request_in_flight or self._write_paused or self._turn_scheduled or self._must_wait
        )
        deaf = stuck and self._frames.buffered_bytes > 0
        taken = self._frames.allocated_bytes + self._request_bytes
        if taken or self.reserved_bytes:
            unfinished = self._frames.missing_bytes > 0 and not stuck
            deaf |= not self._owner.request_memory.reserve(self, taken, unfinished=unfinished)
        if deaf != self._read_paused and not self._eof:
            self._read_paused = deaf
            if deaf:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _pass_next_frame(self) -> None:
        """Passes the next frame to the node, if there is one and nothing holds it back."""
        if self.request_in_flight or self._write_paused or self._must_wait or self._closing:
            return
        if self._frames.buffered_bytes and self._owner.must_wait(self):
            self._must_wait = True
            return
        try:
            frame = self._frames.next_frame()
        except FormatError as error:
            self._refuse(str(error) if self._authenticated else f"{error}; nobody has logged in")
            return
        if frame is not None:
            self.request_in_flight = True
            self._request_bytes = len(frame)
            self._owner.frame_received(self, frame)
        elif self._eof:
            self.close()

    def _write_chunks(self) -> None:
        """Gives the socket as much of the answer as it takes."""
        while self._unwritten and not self._write_paused and not self._transport.is_closing():
            piece, self._unwritten = self._unwritten[:WRITE_CHUNK], self._unwritten[WRITE_CHUNK:]
            if self._tls is not None:
                self._transport.write(self._tls.encrypt(piece))
            else:
                # from Python 3.12 on it keeps what the socket does not take, not a copy of it
                self._transport.write(
                    bytes(piece) if TRANSPORT_KEEPS_VIEW and self.unsent_bytes else piece
                )
        self._count_unsent()
        if self._unwritten:
            return
        self._unwritten = EMPTY_VIEW  # an empty view would keep the whole answer alive
        if self._closing:
            if self._tls is not None and (last := self._tls.close_notify()):
                self._transport.write(last)
            self._transport.close()

    def _count_unsent(self) -> None:
        # a view of a part keeps the whole answer alive
        size = memoryview(self._unwritten.obj).nbytes if self._unwritten else 0
        before, self.unsent_bytes = self.unsent_bytes, size
        if before != self.unsent_bytes:
            self._owner.unsent_bytes += self.unsent_bytes - before
            if self.unsent_bytes < before:
                self._owner.unsent_decreased()

    def _update_authenticated(self) -> None:
        self._authenticated = self._owner.is_authenticated(self)
        if self._authenticated:
            self._frames.limit = self._owner.max_request_bytes
            if self._login_timer is not None:
                self._login_timer.cancel()
                self._login_timer = None

    def _decrypt(self, tls: TlsSession, data: memoryview) -> None:
        reason = ""
        try:
            tls.feed(data)
            while plain := tls.read_into(self._owner.plaintext_buffer):
                self._frames.feed(plain)
        except EOFError:
            self.eof_received()
            self._schedule_turn()
        except FormatError as error:
            reason = str(error)
        if answer := tls.take_handshake():
            self._transport.write(answer)
        if reason:
            self._refuse(reason)
        elif tls.handshake_done and self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None

    def _login_timed_out(self) -> None:
        if self.request_in_flight:  # the broker's answer is late, not the client
            self._login_timer = self._owner.loop.call_later(LOGIN_TIMEOUT, self._login_timed_out)
        else:
            self._refuse(f"nobody has logged in within {LOGIN_TIMEOUT:g} seconds")

    def _handshake_timed_out(self) -> None:
        self._refuse(f"no TLS handshake within {TLS_HANDSHAKE_TIMEOUT:g} seconds")

    def _refuse(self, reason: str) -> None:
        if not self._closing:
            self._owner.log_refusal(self, reason)
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
    reserved_bytes: int
    #: Bytes that have ever come in.
    received_bytes: int

    def memory_available(self) -> None:
        """It may be that there is room."""

    def abort_slow_request(self, reason: str) -> None:
        """It is closed."""


@dataclass(slots=True)
class PartialRequest:
    """Where somebody's unfinished request was."""

    reader: RequestReader
    since: float
    received_bytes: int


class RequestMemoryPool:
    """Counts the memory of requests over all connections, and decides which connections are
    read.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        """:param limit: bytes of the largest request"""
        self.reserved_bytes = 0
        self.max_bytes = max(MAX_REQUEST_MEMORY, limit)
        self._loop = loop
        #: Those in the middle of a request.
        self._partial_requests: dict[ConnectionId, PartialRequest] = {}
        #: Those of them that are not read.
        self._paused: dict[ConnectionId, RequestReader] = {}
        #: The one that is read though all is spent.
        self._preferred: ConnectionId | None = None
        self._check_timer: asyncio.TimerHandle | None = None

    @property
    def is_exhausted(self) -> bool:
        """There is no room for more."""
        return self.reserved_bytes > self.max_bytes

    def reserve(self, reader: RequestReader, taken: int, *, unfinished: bool) -> bool:
        """Records how much memory a connection's requests take; returns whether the connection may
        be read.

        :param unfinished: it waits for the rest of a request
        """
        self.reserved_bytes += taken - reader.reserved_bytes
        reader.reserved_bytes = taken
        if not unfinished:
            self._forget(reader.id)
            if self._paused:
                self._resume_paused()
            return True
        if reader.id not in self._partial_requests:
            self._partial_requests[reader.id] = PartialRequest(
                reader, self._loop.time(), reader.received_bytes
            )
            self._schedule_check()
        if self.is_exhausted:
            if self._preferred is None:
                self._preferred = reader.id
            if self._preferred != reader.id:
                self._paused[reader.id] = reader
                return False
        self._paused.pop(reader.id, None)
        return True

    def close(self) -> None:
        """Sets no timer any more."""
        if self._check_timer is not None:
            self._check_timer.cancel()

    def _forget(self, who: ConnectionId) -> None:
        if self._partial_requests.pop(who, None) is not None:
            self._paused.pop(who, None)
            if self._preferred == who:
                self._preferred = None

    def _resume_paused(self) -> None:
        """Resumes as many paused connections as there is memory for one read each; at least one."""
        room = self.max_bytes - self.reserved_bytes
        while self._paused and (room > 0 or self._preferred is None):
            who, reader = next(iter(self._paused.items()))
            del self._paused[who]
            mark = self._partial_requests[who]
            mark.since, mark.received_bytes = self._loop.time(), reader.received_bytes
            if room <= 0:
                self._preferred = who
            room -= max(GROWTH_FACTOR * reader.reserved_bytes, RECEIVE_BUFFER_BYTES)
            reader.memory_available()

    def _schedule_check(self) -> None:
        if self._check_timer is None:
            self._check_timer = self._loop.call_later(
                STALLED_REQUEST_TIMEOUT, self._close_slow_requests
            )

    def _close_slow_requests(self) -> None:
        """Closes who does not come on."""
        self._check_timer = None
        now = self._loop.time()
        patience = STALLED_REQUEST_TIMEOUT if self._paused else SLOW_REQUEST_TIMEOUT
        for who, mark in list(self._partial_requests.items()):
            brought = mark.reader.received_bytes
            if who in self._paused or brought - mark.received_bytes >= MIN_PROGRESS_BYTES:
                mark.since, mark.received_bytes = now, brought
            elif now - mark.since >= patience:
                mark.reader.abort_slow_request(
                    f"{brought - mark.received_bytes} bytes of a request came in "
                    f"{now - mark.since:.0f} s"
                )
        if self._partial_requests:
            self._schedule_check()


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

    __slots__ = ("_incoming", "_object", "_outgoing", "handshake_done")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        #: The handshake is done.
        self.handshake_done = False

    def feed(self, data: Bytes) -> None:
        """Takes what the client has sent.

        :raises FormatError: it is not TLS, or not as agreed; what :meth:`take` gives still goes out
        """
        self._incoming.write(data)
        if not self.handshake_done:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                return
            except ssl.SSLError as error:
                raise FormatError(_explain_tls_error(error)) from error
            self.handshake_done = True

    def read_into(self, room: bytearray) -> memoryview:
        """Decrypts into a buffer, as much as it holds; empty if more must come in first.

        :raises FormatError: it is damaged
        :raises EOFError: the client has said that it ends here, and all before that was read
        """
        view, count = memoryview(room), 0
        while self.handshake_done and count < len(view):
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

    def close_notify(self) -> bytes:
        """Returns the last bytes to send, so that the client knows that nothing was cut off."""
        if self.handshake_done:
            with suppress(ssl.SSLError):
                self._object.unwrap()
        return self._outgoing.read()

    def take_handshake(self) -> bytes:
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
