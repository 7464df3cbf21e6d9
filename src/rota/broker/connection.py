"""One client's connection: bytes in, frames to the node; responses out as fast as the client reads.

At most one request of a connection is in flight at the node. Until it is answered, the socket is
not read: so a connection occupies one request, one response and the bytes of one read. An idle
connection has no buffer, task or timer.

:class:`RequestMemoryPool` limits the memory of unfinished requests over all connections. When it is
used up, only one of them is read at a time, so that one always completes; the connection of a
request that does not progress is closed.

:class:`TlsSession` is TLS without IO. asyncio's own TLS keeps 256 KiB for each connection and does
not say why a handshake failed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rota.broker.events import ConnectionId
from rota.engine.formats.buffer import Bytes
from rota.errors import FormatError, InputError, Unreachable
from rota.protocol.frames import GROWTH_FACTOR, RECEIVE_BUFFER_BYTES, FrameReader

if TYPE_CHECKING:
    from rota.broker.server import Server

#: The largest request before its client has logged in (``sasl.server.max.receive.size``).
MAX_REQUEST_BEFORE_LOGIN = 512 * 1024
LOGIN_TIMEOUT = 30.0  # seconds to log in
WRITE_CHUNK = 256 * 1024  # bytes that the transport gets at a time, so that it copies little
WRITE_LOW_WATER = 64 * 1024
HALF_CLOSED_TIMEOUT = 5.0  # seconds that a response may take after its client has closed its side
EMPTY_VIEW = memoryview(b"")
TRANSPORT_KEEPS_VIEW = sys.version_info >= (3, 12)


@dataclass(slots=True, eq=False, repr=False)
class ServerConnection(asyncio.BufferedProtocol):
    _server: Server
    id: ConnectionId
    peer: str = "?"
    last_activity: float = 0.0  # loop time of the last read or write; set by the server
    request_in_flight: bool = False
    _request_bytes: int = 0
    reserved_bytes: int = 0  # memory for requests; set by the :class:`RequestMemoryPool`
    received_bytes: int = 0
    _transport: asyncio.Transport = field(init=False)
    _frames: FrameReader = field(init=False)
    _tls: TlsSession | None = None
    _handshake_timer: asyncio.TimerHandle | None = None
    _login_timer: asyncio.TimerHandle | None = None
    _authenticated: bool = False
    _unwritten: memoryview = EMPTY_VIEW  # response bytes that the transport did not get yet
    unsent_bytes: int = 0  # the response is kept whole until the transport has all of it
    _write_paused: bool = False
    _read_paused: bool = False
    _must_wait: bool = False  # the next request waits until other clients have read their responses
    _next_frame_scheduled: bool = False
    _eof: bool = False
    _closing: bool = False

    def __post_init__(self) -> None:
        server = self._server
        limit = min(server.max_request_bytes, MAX_REQUEST_BEFORE_LOGIN)
        self._frames = FrameReader(limit, server.receive_buffer)
        if server.tls_context is not None:
            self._tls = TlsSession(server.tls_context)

    # Called by the server

    def send(self, data: Bytes) -> None:
        self._unwritten = EMPTY_VIEW if self._closing else memoryview(data)
        self._write_chunks()
        if self._unwritten:
            self._server.note_activity(self)  # the client was silent because it waited for this
        self.request_done()

    def request_done(self) -> None:
        """Passes the next frame on in the loop's next round, so that all clients are served."""
        self.request_in_flight = False
        self._request_bytes = 0
        if not self._authenticated:
            self._update_authenticated()
        self.schedule_next_frame()
        self._update_reading()

    def abort_refused(self, reason: str) -> None:
        self._server.log_refusal(self, reason)
        self.abort()

    def stop_waiting(self) -> None:
        self._must_wait = False
        self.schedule_next_frame()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._write_chunks()

    def abort(self) -> None:
        self._closing = True
        self._transport.abort()

    @property
    def descriptor(self) -> int:
        return int(self._transport.get_extra_info("socket").fileno())

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(WRITE_CHUNK, WRITE_LOW_WATER)
        # asyncio sets this only for sockets made with the protocol's number; else the second of two
        # small responses waits 40 ms for the client to acknowledge the first
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        if not self._server.connection_opened(self, peer[0] if peer else ""):
            self.abort()
            return
        self._update_authenticated()
        if not self._authenticated:
            self._login_timer = self._server.loop.call_later(LOGIN_TIMEOUT, self._login_timed_out)
        if self._tls is not None:
            self._handshake_timer = self._server.loop.call_later(
                TLS_HANDSHAKE_TIMEOUT, self._handshake_timed_out
            )

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = memoryview(self._server.receive_buffer)
        if self._tls is None:
            buffer = self._frames.get_buffer()
        return buffer[:SMALL_READ] if self._server.request_memory.is_exhausted else buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._server.note_activity(self)
        if self._closing:
            return
        self.received_bytes += nbytes
        if self._tls is None:
            self._frames.buffer_updated(nbytes)
        else:
            self._decrypt(self._tls, memoryview(self._server.receive_buffer)[:nbytes])
        if not self._next_frame_scheduled:
            self._pass_next_frame()
        self._update_reading()

    def eof_received(self) -> bool:
        """Answers the request in flight within a few seconds: most such clients are gone."""
        self._eof = True
        if self.request_in_flight:
            self._server.loop.call_later(HALF_CLOSED_TIMEOUT, self._abort_half_closed)
        return self._is_blocked()

    def _is_blocked(self) -> bool:
        return (
            self.request_in_flight
            or self._write_paused
            or self._next_frame_scheduled
            or self._must_wait
        )

    def _abort_half_closed(self) -> None:
        if self.request_in_flight:
            self.abort()

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        """Continues in the loop's next round: the loop is in the middle of writing, and would
        report the connection's end twice if the client has closed it. Until then writing stays
        paused: the next response must not come before the rest of this one.
        """
        self._server.loop.call_soon(self._resume_write)

    def _resume_write(self) -> None:
        if self._transport.is_closing():
            return
        self._write_paused = False
        self._server.note_activity(self)
        self._write_chunks()
        self.schedule_next_frame()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._unwritten = EMPTY_VIEW
        self._count_unsent()
        for timer in (self._handshake_timer, self._login_timer):
            if timer is not None:
                timer.cancel()
        self._server.request_memory.reserve(self, 0, partial=False)
        self._server.connection_closed(self)

    def schedule_next_frame(self) -> None:
        """Passes the next frame in the loop's next round, if there may be one."""
        if not self._next_frame_scheduled and (
            self._frames.buffered_bytes or self._read_paused or self._eof
        ):
            self._next_frame_scheduled = True
            self._server.loop.call_soon(self._on_next_frame_due)

    def _on_next_frame_due(self) -> None:
        self._next_frame_scheduled = False
        self._pass_next_frame()
        self._update_reading()

    def _update_reading(self) -> None:
        """Reads the socket, unless received data must wait or there is no memory for more."""
        if self._closing:
            return
        blocked = self._is_blocked()
        pause = blocked and self._frames.buffered_bytes > 0
        size = self._frames.allocated_bytes + self._request_bytes
        if size or self.reserved_bytes:
            partial = self._frames.missing_bytes > 0 and not blocked
            pause |= not self._server.request_memory.reserve(self, size, partial=partial)
        if pause != self._read_paused and not self._eof:
            self._read_paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _pass_next_frame(self) -> None:
        if self.request_in_flight or self._write_paused or self._must_wait or self._closing:
            return
        if self._frames.buffered_bytes and self._server.must_wait(self):
            self._must_wait = True
            return
        try:
            frame = self._frames.next_frame()
        except FormatError as error:
            self._refuse(str(error) if self._authenticated else f"{error}; no user has logged in")
            return
        if frame is not None:
            self.request_in_flight = True
            self._request_bytes = len(frame)
            self._server.frame_received(self, frame)
        elif self._eof:
            self.close()

    def _write_chunks(self) -> None:
        while self._unwritten and not self._write_paused and not self._transport.is_closing():
            piece, self._unwritten = self._unwritten[:WRITE_CHUNK], self._unwritten[WRITE_CHUNK:]
            if self._tls is not None:
                self._transport.write(self._tls.encrypt(piece))
            else:
                # from Python 3.12 on it keeps the view, not a copy of the bytes that must wait
                self._transport.write(
                    bytes(piece) if TRANSPORT_KEEPS_VIEW and self.unsent_bytes else piece
                )
        self._count_unsent()
        if self._unwritten:
            return
        self._unwritten = EMPTY_VIEW  # an empty slice would keep the whole response alive
        if self._closing:
            if self._tls is not None and (last := self._tls.close_notify()):
                self._transport.write(last)
            self._transport.close()

    def _count_unsent(self) -> None:
        # a slice keeps the whole response alive
        size = memoryview(self._unwritten.obj).nbytes if self._unwritten else 0
        change = size - self.unsent_bytes
        self.unsent_bytes = size
        self._server.unsent_bytes += change
        if change < 0:
            self._server.unsent_decreased()

    def _update_authenticated(self) -> None:
        self._authenticated = self._server.is_authenticated(self)
        if self._authenticated:
            self._frames.limit = self._server.max_request_bytes
            if self._login_timer is not None:
                self._login_timer.cancel()
                self._login_timer = None

    def _decrypt(self, tls: TlsSession, data: memoryview) -> None:
        reason = ""
        try:
            tls.feed(data)
            while plain := tls.read_into(self._server.plaintext_buffer):
                self._frames.feed(plain)
        except EOFError:
            self.eof_received()
            self.schedule_next_frame()
        except FormatError as error:
            reason = str(error)
        if handshake := tls.read_outgoing():
            self._transport.write(handshake)
        if reason:
            self._refuse(reason)
        elif tls.handshake_done and self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None

    def _login_timed_out(self) -> None:
        if self.request_in_flight:  # the broker is late, not the client
            self._login_timer = self._server.loop.call_later(LOGIN_TIMEOUT, self._login_timed_out)
        else:
            self._refuse(f"no user has logged in within {LOGIN_TIMEOUT:g} seconds")

    def _handshake_timed_out(self) -> None:
        self._refuse(f"no TLS handshake within {TLS_HANDSHAKE_TIMEOUT:g} seconds")

    def _refuse(self, reason: str) -> None:
        if not self._closing:
            self._server.log_refusal(self, reason)
            self.close()


MAX_REQUEST_MEMORY = 512 << 20  # bytes of requests in reception, or one of the largest size
SMALL_READ = 16 * 1024  # bytes of a read while the memory is exhausted: enough for most requests
STALLED_REQUEST_TIMEOUT = 5.0  # seconds to make progress while others wait for the memory
SLOW_REQUEST_TIMEOUT = 30.0  # seconds to make progress in any case; clients wait as long
MIN_PROGRESS_BYTES = 64 * 1024  # the least progress in that time; even a slow network brings it


@dataclass(slots=True)
class PartialRequest:
    connection: ServerConnection
    since: float
    received_bytes: int


class RequestMemoryPool:
    """Counts the memory of requests over all connections, and decides which ones are read."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_request_bytes: int) -> None:
        self.reserved_bytes = 0
        self.max_bytes = max(MAX_REQUEST_MEMORY, max_request_bytes)
        self._loop = loop
        self._partial_requests: dict[ConnectionId, PartialRequest] = {}
        self._paused: dict[ConnectionId, ServerConnection] = {}
        self._preferred: ConnectionId | None = None
        self._check_timer: asyncio.TimerHandle | None = None

    @property
    def is_exhausted(self) -> bool:
        return self.reserved_bytes > self.max_bytes

    def reserve(self, connection: ServerConnection, size: int, *, partial: bool) -> bool:
        """Records the memory of a connection's requests; returns whether it may be read."""
        self.reserved_bytes += size - connection.reserved_bytes
        connection.reserved_bytes = size
        if not partial:
            if self._partial_requests.pop(connection.id, None) is not None:
                self._paused.pop(connection.id, None)
                if self._preferred == connection.id:
                    self._preferred = None
            if self._paused:
                self._resume_paused()
            return True
        if connection.id not in self._partial_requests:
            request = PartialRequest(connection, self._loop.time(), connection.received_bytes)
            self._partial_requests[connection.id] = request
            self._schedule_check()
        if self.is_exhausted:
            if self._preferred is None:
                self._preferred = connection.id
            if self._preferred != connection.id:
                self._paused[connection.id] = connection
                return False
        self._paused.pop(connection.id, None)
        return True

    def close(self) -> None:
        if self._check_timer is not None:
            self._check_timer.cancel()

    def _resume_paused(self) -> None:
        """Resumes as many paused connections as there is memory for one read each; at least one."""
        free = self.max_bytes - self.reserved_bytes
        while self._paused and (free > 0 or self._preferred is None):
            number, connection = next(iter(self._paused.items()))
            del self._paused[number]
            request = self._partial_requests[number]
            request.since, request.received_bytes = self._loop.time(), connection.received_bytes
            if free <= 0:
                self._preferred = number
            free -= max(GROWTH_FACTOR * connection.reserved_bytes, RECEIVE_BUFFER_BYTES)
            connection.schedule_next_frame()

    def _schedule_check(self) -> None:
        if self._check_timer is None:
            self._check_timer = self._loop.call_later(
                STALLED_REQUEST_TIMEOUT, self._close_slow_requests
            )

    def _close_slow_requests(self) -> None:
        self._check_timer = None
        now = self._loop.time()
        timeout = STALLED_REQUEST_TIMEOUT if self._paused else SLOW_REQUEST_TIMEOUT
        for number, request in list(self._partial_requests.items()):
            received = request.connection.received_bytes
            progress = received - request.received_bytes
            if number in self._paused or progress >= MIN_PROGRESS_BYTES:
                request.since, request.received_bytes = now, received
            elif now - request.since >= timeout:
                seconds = f"{now - request.since:.0f} s"
                request.connection.abort_refused(
                    f"only {progress} bytes of a request came in {seconds}"
                )
        if self._partial_requests:
            self._schedule_check()


TLS_HANDSHAKE_TIMEOUT = 10.0  # seconds for a client's handshake, as Kafka's clients wait
PEM_CERTIFICATE, PEM_KEY = b"-BEGIN CERTIFICATE-", b" KEY-----"

_TLS_ERRORS = {
    "HTTP_REQUEST": "an HTTP request came in, but TLS was expected",
    "HTTPS_PROXY_REQUEST": "an HTTP request came in, but TLS was expected",
    "WRONG_VERSION_NUMBER": "bytes without TLS came in, but TLS was expected "
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
        self.handshake_done = False

    def feed(self, data: Bytes) -> None:
        """Takes received bytes; raises FormatError if they are not valid TLS."""
        self._incoming.write(data)
        if not self.handshake_done:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                return
            except ssl.SSLError as error:
                raise FormatError(_explain_tls_error(error)) from error
            self.handshake_done = True

    def read_into(self, buffer: bytearray) -> memoryview:
        """Decrypts what fits; raises FormatError, or EOFError at the end of the session."""
        view, count = memoryview(buffer), 0
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
        remaining = memoryview(data)
        while remaining:
            remaining = remaining[self._object.write(remaining) :]
        return self._outgoing.read()

    def close_notify(self) -> bytes:
        """Returns the last bytes to send; they tell the client that no bytes were cut off."""
        if self.handshake_done:
            with suppress(ssl.SSLError):
                self._object.unwrap()
        return self._outgoing.read()

    def read_outgoing(self) -> bytes:
        return self._outgoing.read()


def make_server_context(certificate: str | Path, key: str | Path | None) -> ssl.SSLContext:
    """Makes a TLS context from PEM files; raises Unreachable or InputError for wrong files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in (certificate, key):
        if path is not None:
            try:
                Path(path).open("rb").close()
            except OSError as error:
                raise Unreachable(f"{path}: {error.strerror}") from error
    try:
        # without a function, OpenSSL asks for a key's password on the terminal
        context.load_cert_chain(certificate, key, password=_refuse_password)
    except _KeyLocked as error:
        raise InputError(f"{key or certificate}: the key is locked with a password") from error
    except ssl.SSLError as error:
        files = f"{certificate} and {key}" if key is not None else f"{certificate}"
        reason = "the key does not belong to the certificate"
        if error.reason != "KEY_VALUES_MISMATCH":
            reason = _explain_missing_pem(certificate, key)
        raise InputError(f"{files}: {reason}") from error
    return context


def _explain_missing_pem(certificate: str | Path, key: str | Path | None) -> str:
    if PEM_CERTIFICATE not in Path(certificate).read_bytes():
        return "the first file has no certificate in PEM" if key else "it has no certificate in PEM"
    if PEM_KEY not in Path(key or certificate).read_bytes():
        return "the second file has no key in PEM" if key else "the key is missing: pass its file"
    return "a certificate and its key in PEM were expected"


class _KeyLocked(Exception):
    pass


def _refuse_password() -> str:
    raise _KeyLocked


def _explain_tls_error(error: ssl.SSLError) -> str:
    known = _TLS_ERRORS.get(error.reason or "")
    return known or f"TLS failed: {(error.reason or str(error)).replace('_', ' ').lower()}"
