"""One connection to a broker: opens the socket, agrees on API versions, and sends requests.

Many requests may be in flight; a broker answers them in order. Responses are decoded in the event
loop as soon as they arrive. A large response is a view of the buffer that the socket was read into;
after a large response, a thread receives the next one (``ReceiverThread``). An idle connection has
one timer, for ``connections.max.idle.ms``.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import importlib
import logging
import os
import random
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, cast
from weakref import WeakMethod

from rota.client import login, retry
from rota.client.login import log_in
from rota.engine.formats.buffer import Bytes
from rota.engine.model.config import Address, ClientConfig
from rota.errors import Code, FormatError, NotKafka, Refused, RotaError, TimedOut, Unreachable
from rota.protocol import messages
from rota.protocol.codec import RequestHeader, read_response, supported_versions, write_request
from rota.protocol.frames import LENGTH_SIZE, RECEIVE_BUFFER_BYTES, FrameReader
from rota.protocol.messages import Api, Message, Request
from rota.protocol.schemas import ResponseT, Versions, api_name

#: The largest response. A Fetch response has ``fetch.max.bytes``, or one batch if that is more.
MAX_RESPONSE_BYTES: Final = 1 << 30
PREALLOCATED_BYTES: Final = 64 << 20  # allocated at once for a response; larger ones grow
LARGE_RESPONSE: Final = 1 << 18  # after a response of this size a thread receives the next one
LIMIT_TEXT: Final = "the largest that a client takes"
CLOSE_TIMEOUT: Final = 1.0  # seconds to send the last bytes when a connection is closed
#: Share of a session's time after which a new login is due, as in Kafka (KIP-368).
REAUTHENTICATION_WINDOW: Final = (0.85, 0.95)
TIMER_GRACE: Final = 0.2  # seconds that a timer may be late
PROBE_TIMEOUT: Final = 1.0  # seconds for a silent server, after this side has ended
NEVER: Final = float("inf")
_EMPTY_VIEW = memoryview(b"")


class ConnectionContext:
    def __init__(self, config: ClientConfig, *, quiet: bool = False) -> None:
        self.config = config
        self.log_level = logging.DEBUG if quiet else logging.WARNING
        self.receive_buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self.tls_context = None if config.tls is None else login.make_tls_context(config.tls)


class BrokerConnection(asyncio.BufferedProtocol):
    """A connection to one broker, used from the loop that it was opened in."""

    def __init__(self, address: Address, context: ConnectionContext, name: str) -> None:
        """:param name: how error messages call the broker"""
        self._loop = asyncio.get_running_loop()
        self._context = context
        self._config = context.config
        self.address = address
        self.name = name
        self.versions: Mapping[int, Versions] = {}
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._problem: str | None = None
        #: The step that is not done yet; empty once requests may be sent.
        self._stage = "connection"
        self._in_flight: deque[InFlightRequest] = deque()
        self._correlation_id = 0
        #: The broker has answered a request that needs a login, if logins are required.
        self._has_answered = False
        self._frames = FrameReader(
            MAX_FIRST_RESPONSE, context.receive_buffer, LIMIT_TEXT, PREALLOCATED_BYTES
        )
        self._room = _EMPTY_VIEW
        #: File descriptor of the socket, if it may be read directly: without TLS.
        self._descriptor = -1
        self._was_large = False
        self._receiver: ReceiverThread | None = None
        self._is_socket_lent = False
        #: The first bytes of the server, until it is known to be Kafka; then None.
        self._first_bytes: bytes | None = b""
        #: The server was silent, and this client has ended its side to provoke a response.
        self._is_probed = False
        self._last_activity = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        #: Until then the broker does not read requests (KIP-219).
        self._muted_until = 0.0
        #: When the broker demands a new login.
        self._session_expires_at = NEVER
        self._finishing = False

    @classmethod
    async def open(
        cls,
        address: Address,
        config: ClientConfig,
        deadline: float,
        context: ConnectionContext | None = None,
    ) -> BrokerConnection:
        connection = cls(address, context or ConnectionContext(config), str(address))
        connect_timeout = config.connect_timeout / 1000
        await connection.establish(
            deadline, connect_timeout=connect_timeout, probe_after=connect_timeout / 2
        )
        return connection

    async def establish(
        self, deadline: float, *, connect_timeout: float, probe_after: float, hint: str = ""
    ) -> None:
        """Connects, with TLS if that is set, gets the broker's API versions and logs in.

        :param deadline: by the loop's clock
        :param connect_timeout: seconds for each address of the host name
        :param probe_after: seconds after which this client ends its side of a silent connection. A
            server that waits for the end of a line then responds; Kafka would have responded before
        :param hint: added to errors if the broker cannot be reached
        :raises Unreachable: the broker cannot be reached or not in time; NotKafka: another server
            listens there; Untrusted: the TLS handshake fails; AuthenticationFailed: the broker
            refuses the login
        """
        begun = self._loop.time()
        try:
            async with asyncio.timeout_at(deadline):
                await self._connect(connect_timeout, hint)
                await self._handshake(deadline, probe_after)
        except TimeoutError:
            await self.close_and_wait()
            raise self.timeout_error(f"within {self._loop.time() - begun:.3g} s", hint) from None
        except GeneratorExit:
            self.close()  # the event loop does not run any more, so nothing can be awaited
            raise
        except BaseException:
            await self.close_and_wait()
            raise

    async def _connect(self, connect_timeout: float, hint: str) -> None:
        try:
            opened = await open_socket(self.address, self._config, connect_timeout)
        except Unreachable as error:
            raise Unreachable(self._named(f"{error}{hint}")) from error
        tls: dict[str, Any] = {}
        if self._context.tls_context is not None:
            self._stage = "TLS"
            tls = {"ssl": self._context.tls_context, "server_hostname": self.address.host}
            tls["ssl_shutdown_timeout"] = CLOSE_TIMEOUT
        try:
            await self._loop.create_connection(lambda: self, sock=opened, **tls)
        except OSError as error:
            raise login.handshake_error(error, self.name) from error
        finally:
            if self._transport is None:
                try:
                    await asyncio.sleep(0)  # the loop closes its socket in the next iteration
                finally:
                    opened.close()

    async def _handshake(self, deadline: float, probe_after: float) -> None:
        self._stage = "greeting"
        probe = self._loop.call_later(probe_after, self._probe_silent_server)
        try:
            self.versions = await self._fetch_versions(deadline)
        finally:
            probe.cancel()
        self._first_bytes = None
        if self._is_probed:
            raise Unreachable(
                self._named(f"the broker is slow: no answer within {probe_after:.3g} s")
            )
        self._frames.limit = MAX_RESPONSE_BYTES
        if self._config.sasl is not None:
            self._stage = "login"
            begun = self._loop.time()
            lifetime = await log_in(self, self._config.sasl, deadline)
            self._has_answered = True
            if lifetime > 0:
                # random, so that not all clients log in again at once
                share = random.uniform(*REAUTHENTICATION_WINDOW)  # noqa: S311 (no secret)
                self._session_expires_at = begun + lifetime / 1000 * share
        self._stage = ""
        self._set_timer(self._idle_deadline)

    async def _fetch_versions(self, deadline: float) -> dict[int, Versions]:
        """Asks in the newest version of ApiVersions, then in the one that an older broker names."""
        version = supported_versions(Api.API_VERSIONS).high
        own_version = importlib.import_module("rota").__version__
        own_name, make = "rota", messages.ApiVersionsRequest
        request = make(client_software_name=own_name, client_software_version=own_version)
        while True:
            frame = await self.send_raw(Api.API_VERSIONS, version, request, deadline)
            # a broker answers a version that it does not know in version 0 (KIP-511)
            refused = bytes(frame[4:6]) == Code.UNSUPPORTED_VERSION.to_bytes(2, "big")
            cls, answered = messages.ApiVersionsResponse, 0 if refused else version
            try:
                _, response = read_response(cls, answered, frame)
            except FormatError as error:
                raise NotKafka(self._named(f"the server is not Kafka: {error}")) from error
            keys = response.api_keys
            versions = {key.api_key: Versions(key.min_version, key.max_version) for key in keys}
            if refused and version > 0:
                own = versions.get(Api.API_VERSIONS)
                version = 0 if own is None else max(0, min(own.high, version - 1))
            elif response.error_code:
                code = response.error_code
                raise Unreachable(self._named(f"the response to ApiVersions has error {code}"))
            else:
                return versions

    def _probe_silent_server(self) -> None:
        if self._first_bytes or self._transport is None or not self._in_flight:
            return  # the response has begun
        self._is_probed = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.write(LINE_END)  # TLS cannot end one direction alone
        self._in_flight[0].deadline = self._loop.time() + PROBE_TIMEOUT
        self._set_timer(self._in_flight[0].deadline)

    def close(self) -> None:
        self._close_with_error("this client has closed the connection", now=False)

    def close_when_idle(self) -> None:
        self._finishing = True
        if not self._in_flight:
            self.close()

    async def close_and_wait(self) -> None:
        self.close()
        if self._transport is not None and not self.closed.done():
            await asyncio.wait([self.closed], timeout=CLOSE_TIMEOUT)
            self._transport.abort()
            await asyncio.wait([self.closed], timeout=CLOSE_TIMEOUT)

    @property
    def is_usable(self) -> bool:
        return self._problem is None and not self._stage and not self._finishing

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def version(self, api: Api, most: int | None = None) -> int:
        """The highest version, up to ``most``, that the broker and Rota support; raises Refused."""
        ours, theirs = supported_versions(api), self.versions.get(api)
        if theirs is None:
            raise Refused(Code.UNSUPPORTED_VERSION, f"the broker does not serve {api_name(api)}")
        high = min(ours.high, theirs.high) if most is None else min(ours.high, theirs.high, most)
        if high < max(ours.low, theirs.low):
            limit = "" if most is None else f", and this request needs version {most} or lower"
            text = f"{api_name(api)}: the broker serves versions {theirs.low} to {theirs.high}, "
            text += f"Rota speaks {ours.low} to {ours.high}{limit}"
            raise Refused(Code.UNSUPPORTED_VERSION, text)
        return high

    def send(
        self,
        api: Api,
        request: Request[ResponseT],
        *,
        deadline: float,
        most: int | None = None,
        large: bool = False,
    ) -> asyncio.Future[ResponseT]:
        """Sends a request at once, even if the loop does not run. Cancelling the future does not
        close the connection.

        :param deadline: by the loop's clock. Without a response until then the connection is closed
            for all requests in flight: responses come in order
        :param most: the highest version to be used
        :param large: the response may be large: if the last one was, a thread receives this one,
            whether the loop runs or not. Until then no other request may be sent
        :raises Refused: the broker does not serve the API, or not in a version that Rota speaks
        :raises Unreachable: the connection is closed
        """
        pending = self._request(api, self.version(api, most), request, deadline)
        if large and self._was_large:
            self._receive_in_thread()
        return pending.future

    def send_raw(
        self, api: Api, version: int, request: Message, deadline: float
    ) -> asyncio.Future[Bytes]:
        """Sends a request in any version; the result is the frame of the response."""
        pending = self._request(api, version, request, deadline)
        pending.is_raw = True
        return pending.future

    def _request(
        self, api: Api, version: int, request: Message, deadline: float
    ) -> InFlightRequest:
        if self._problem is not None or self._transport is None:
            raise Unreachable(self._named(self._problem or "the connection is not open"))
        assert not self._is_socket_lent, "a thread uses the socket, so a write would block"
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        head = RequestHeader(api, version, self._correlation_id, self._config.client_id, 0)
        data = write_request(head, request)
        now, future = self._loop.time(), self._loop.create_future()
        pending = InFlightRequest(api, version, self._correlation_id, deadline, now, future)
        self._last_activity = pending.sent_at
        # at most request.timeout.ms, whatever pause the broker demands
        muted = min(self._muted_until - pending.sent_at, self._config.request_timeout / 1000)
        pending.deadline += max(0.0, muted)
        self._in_flight.append(pending)
        self._transport.write(data)
        self._set_timer(pending.deadline)
        return pending

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        if self._context.tls_context is None and hasattr(os, "readv"):
            self._descriptor = transport.get_extra_info("socket").fileno()

    def get_buffer(self, sizehint: int) -> memoryview:
        self._room = self._frames.get_buffer()
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self._last_activity = self._loop.time()
        if self._problem is not None:
            return
        if self._first_bytes is not None:
            head = self._first_bytes + self._room[: min(nbytes, PROBE_BYTES)]
            self._first_bytes = head[:PROBE_BYTES]
            if len(head) >= 4 and (problem := identify_server(self._first_bytes)) is not None:
                self._close_with_error(problem, NotKafka)
                return
        self._room = _EMPTY_VIEW  # a view would keep the whole response in memory
        self._frames.buffer_updated(nbytes)
        self._read_available()
        self._handle_frames(iter(self._frames.next_frame, None))

    def _read_available(self) -> None:
        """Reads available bytes of a begun frame: a loop iteration for each piece costs more."""
        while self._descriptor >= 0 and self._frames.missing_bytes:
            try:
                count = os.readv(self._descriptor, [self._frames.get_buffer()])
            except OSError:
                return
            if not count:
                return
            self._frames.buffer_updated(count)

    def _receive_in_thread(self) -> None:
        """Lets a thread receive the next response, which has the socket for itself, unless TLS is
        used or other requests are in flight. If no thread can be started, the loop receives.
        """
        transport = self._transport
        busy = len(self._in_flight) > 1 or self._frames.buffered_bytes
        if transport is None or self._descriptor < 0 or busy or transport.get_write_buffer_size():
            return
        if self._receiver is None:
            self._receiver = self._make_receiver()
        if self._receiver is not None:
            self._is_socket_lent = True
            transport.pause_reading()
            self._receiver.receive_next()

    def _make_receiver(self) -> ReceiverThread | None:
        frames = FrameReader(
            MAX_RESPONSE_BYTES, bytearray(LENGTH_SIZE), LIMIT_TEXT, PREALLOCATED_BYTES
        )
        try:
            own = socket.socket(fileno=os.dup(self._descriptor))
        except OSError:  # too many files
            return None
        try:
            return ReceiverThread(own, frames, self._deliver, str(self.address))
        except RuntimeError:  # too many threads, or the interpreter ends
            own.close()
            return None

    def _deliver(self, outcome: ReceiveResult) -> None:
        """Called in the receiver thread."""
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._handle_result, outcome)

    def _handle_result(self, outcome: ReceiveResult) -> None:
        self._is_socket_lent = False
        self._last_activity = self._loop.time()
        if self._problem is not None or self._transport is None:
            return
        self._transport.resume_reading()
        if isinstance(outcome, Bytes | FormatError):
            self._handle_frames([outcome])
        elif outcome is None:
            self._handle_disconnect()
        elif isinstance(outcome, OSError):
            self._handle_disconnect(f" ({outcome})")
        else:
            self._close_with_error(f"the response cannot be received: {outcome!r}")

    def eof_received(self) -> bool:
        self._handle_disconnect()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError):
            # with TLS 1.3 a broker refuses a client's certificate after the handshake
            error = login.handshake_error(exc, "TLS")
            self._close_with_error(str(error), type(error))
        else:
            self._handle_disconnect("" if exc is None else f" ({exc})")
        if self._receiver is not None:
            self._receiver.close()
        if self._timer is not None:
            self._timer.cancel()
        if not self.closed.done():
            self.closed.set_result(None)

    def _handle_frames(self, frames: Iterable[Bytes | FormatError]) -> None:
        try:
            for frame in frames:
                if isinstance(frame, FormatError):
                    raise frame
                self._handle_frame(frame)
        except FormatError as error:
            self._close_with_error(f"the broker sent an invalid response: {error}")
        if self._finishing and not self._in_flight:
            self.close()

    def _handle_frame(self, frame: Bytes) -> None:
        if not self._in_flight:
            raise FormatError("a response without a request")
        pending = self._in_flight[0]
        correlation = int.from_bytes(frame[:4], "big", signed=True)
        if len(frame) < 4 or correlation != pending.correlation_id:
            expected = pending.correlation_id
            raise FormatError(f"a response to request {correlation} instead of {expected}")
        self._in_flight.popleft()
        self._was_large = len(frame) >= LARGE_RESPONSE
        if pending.is_raw:
            if not pending.future.done():
                pending.future.set_result(frame)
            return
        self._has_answered = True
        if pending.future.done():
            return  # cancelled
        try:
            cls = messages.classes_by_api[pending.api][1]
            _, response = read_response(cls, pending.version, frame)
        except FormatError as error:
            pending.future.set_exception(FormatError(self._named(str(error))))
            raise
        if throttled := getattr(response, "throttle_time_ms", 0):
            self._muted_until = self._last_activity + throttled / 1000
        pending.future.set_result(response)

    def _close_with_error(
        self, problem: str, make: Callable[[str], RotaError] = Unreachable, *, now: bool = True
    ) -> None:
        if self._problem is None:
            self._problem = problem
            for pending in self._in_flight:
                if not pending.future.done():
                    lost = "" if self._stage else f"; {api_name(pending.api)} was in flight"
                    pending.future.set_exception(make(self._named(problem + lost)))
            self._in_flight.clear()
        if self._transport is not None:
            if now:
                self._transport.abort()
            else:
                self._transport.close()

    def _handle_disconnect(self, reason: str = "") -> None:
        closed = f"the broker has closed the connection{reason}"
        if self._is_probed and not self._first_bytes:
            self._fail_silent_server()
        elif self._first_bytes is not None:
            text = f"the server closes the connection before it answers{reason}: {WRONG_PORT_HINT}"
            self._close_with_error(text, partial(NotKafka, certain=False))
        else:
            if not self._has_answered and self._config.sasl is None:
                closed += " after ApiVersions: it may require a login (security.protocol "
                closed += "SASL_PLAINTEXT or SASL_SSL, sasl.mechanism, sasl.jaas.config)"
            self._close_with_error(closed)

    def _fail_silent_server(self) -> None:
        when = f"within {self._loop.time() - self._last_activity:.3g} s"
        self._close_with_error(silence_text(when), partial(NotKafka, certain=False))

    def timeout_error(self, when: str, hint: str = "") -> Unreachable:
        """The error for a connection that was not established in time (``when``: "within 3 s")."""
        if self._stage == "connection":
            return TimedOut(self._named(f"no connection {when}{hint}"))
        if self._stage == "greeting" and not self._first_bytes:
            return NotKafka(self._named(silence_text(when)), certain=False)
        return TimedOut(self._named(f"its {self._stage} was not complete {when}"))

    def _named(self, problem: str) -> str:
        return f"{self.name}: {problem}"

    @property
    def _idle_deadline(self) -> float:
        idle = self._config.idle_connection
        is_idle = not self._in_flight and idle >= 0
        end = self._last_activity + idle / 1000 if is_idle else NEVER
        return min(self._session_expires_at, end)

    def _set_timer(self, at: float) -> None:
        if at == NEVER or (self._timer is not None and self._timer.when() <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._check_deadlines)

    def _check_deadlines(self) -> None:
        now = self._loop.time()
        due = now if self._timer is None else self._timer.when()
        self._timer = None
        if self._in_flight and now - due > TIMER_GRACE:
            # the loop did not run: responses that have arrived meanwhile are read first
            self._set_timer(now + TIMER_GRACE)
            return
        late = next((each for each in self._in_flight if each.deadline <= now), None)
        if late is not None:
            if self._is_probed:
                self._fail_silent_server()
            else:
                text = f"no answer to {api_name(late.api)} within {now - late.sent_at:.3g} s"
                self._close_with_error(text, TimedOut)
            return
        if not self._stage and self._idle_deadline <= now:
            self._session_expires_at = NEVER
            self.close_when_idle()  # the next request opens a new connection, and logs in again
        if self._problem is None:
            ends = NEVER if self._finishing else self._idle_deadline
            self._set_timer(min([ends, *(each.deadline for each in self._in_flight)]))


@dataclass(slots=True, eq=False)
class InFlightRequest:
    api: Api
    version: int
    correlation_id: int
    deadline: float
    sent_at: float
    future: asyncio.Future[Any]
    is_raw: bool = False


AddressInfo: TypeAlias = tuple[Any, Any, int, str, Any]


async def open_socket(
    address: Address, config: ClientConfig, connect_timeout: float
) -> socket.socket:
    """Opens a socket to one of a host's addresses; ``connect_timeout`` is for each address. Raises
    Unreachable with the reason for each if the host is unknown or no address accepts.
    """
    targets = await resolve_address(address)
    attempts = [partial(_connect_socket, target, config, connect_timeout) for target in targets]
    connected, failed = await retry.first_success(attempts, discard=socket.socket.close)
    if connected is None:
        raise Unreachable("; ".join(map(str, failed)))
    return connected


async def resolve_address(address: Address) -> list[AddressInfo]:
    """Returns the addresses of a host, at least one, in the system's order (use_all_dns_ips)."""
    look_up = partial(socket.getaddrinfo, address.host, address.port, type=socket.SOCK_STREAM)
    try:
        return list(look_up(flags=socket.AI_NUMERICHOST))  # does not block
    except (socket.gaierror, UnicodeError):
        pass
    future: concurrent.futures.Future[list[AddressInfo]] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()  # so that a cancelled caller does not cancel it

    def resolve() -> None:
        try:
            future.set_result(list(look_up()))
        except (OSError, UnicodeError) as error:
            future.set_exception(error)

    # not the loop's executor: a silent name server would keep the process from ending
    threading.Thread(target=resolve, name=f"rota-resolve-{address.host}", daemon=True).start()
    try:
        return await asyncio.wrap_future(future)
    except UnicodeError as error:
        raise Unreachable(f"{address.host!r} is not a valid host name") from error
    except OSError as error:
        problem = error.strerror or error
        raise Unreachable(f"the host {address.host!r} is not known: {problem}") from error


async def _connect_socket(
    target: AddressInfo, config: ClientConfig, connect_timeout: float
) -> socket.socket:
    family, socket_type, protocol, _, where = target
    made = socket.socket(family, socket_type, protocol)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if config.receive_buffer != -1:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.receive_buffer)
        if config.send_buffer != -1:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.send_buffer)
        async with asyncio.timeout(connect_timeout):
            await asyncio.get_running_loop().sock_connect(made, where)
    except BaseException as error:
        made.close()
        if isinstance(error, OSError):  # includes TimeoutError
            raise Unreachable(
                f"{_connect_error_text(error, connect_timeout)} ({where[0]})"
            ) from error
        raise
    return made


def _connect_error_text(error: OSError, connect_timeout: float) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "the connection is refused: nothing listens there, or a firewall says no"
    if isinstance(error, TimeoutError) and error.errno is None:
        return f"no connection within {connect_timeout:.3g} s"
    return os.strerror(error.errno) if error.errno else str(error)


PROBE_BYTES = 64  # first bytes that are enough to recognise any of these servers
_TLS_ALERT, _TLS_HELLO = b"\x15\x03", b"\x16\x03"

_KNOWN_SERVERS = (
    (b"HTTP/", "an HTTP server"),
    (b"<!DOCTYPE HTML", "an HTTP server"),  # HTTP 0.9, the response to a single line
    (b"<HTML", "an HTTP server"),
    (b"SSH-", "an SSH server"),
    (b"-ERR", "a Redis server"),
    (b"-DENIED", "a Redis server"),
    (b"* OK", "an IMAP server"),
    (b"+OK", "a POP3 server"),
    (b"220", "an FTP or mail server"),
    (b"421", "an FTP or mail server"),
    (b"554", "a mail server"),
    (b"AMQP", "an AMQP server such as RabbitMQ"),
    (b"RFB ", "a VNC server"),
    (b"<", "a server that speaks XML"),
)

LINE_END = b"\r\n\r\n"  # many servers wait for this before they respond

WRONG_PORT_HINT = (
    "is it a port for TLS (security.protocol SSL or SASL_SSL), or another server than Kafka?"
)

MAX_FIRST_RESPONSE = 1 << 20  # Kafka's is shorter; four bytes of text, as a length, are more


def identify_server(head: bytes) -> str | None:
    """Names the server that sends these first four bytes or more; None if it may be Kafka."""
    if head.startswith((_TLS_ALERT, _TLS_HELLO)):
        return (
            "the server uses TLS, and this client does not: "
            "set security.protocol to SSL, or to SASL_SSL if a login is needed"
        )
    line = head[:PROBE_BYTES].partition(b"\n")[0].rstrip(b"\r")
    shown = repr(line)[1:] if line.isascii() else repr(line)
    for start, name in _KNOWN_SERVERS:
        if head[: len(start)].upper() == start.upper():
            return f"{name} answers there: it says {shown}"
    if head[4:5] == b"\x0a" and head[3:4] == b"\0":
        return f"a MySQL server answers there: it says {shown}"
    if not 4 <= int.from_bytes(head[:4], "big", signed=True) <= MAX_FIRST_RESPONSE:
        return f"what answers there does not speak Kafka's protocol: it says {shown}"
    return None


def silence_text(when: str) -> str:
    return f"the server sends nothing {when}: {WRONG_PORT_HINT} Or is the broker stuck?"


# A thread receives large responses while the loop's thread handles those before them: one response
# for each command, to its last byte and not further. It requests all missing bytes in one call,
# because each return to Python would have to wait until the other thread releases the interpreter,
# mostly 5 ms (``sys.getswitchinterval()``). That needs a blocking socket, which nobody else may use
# while the thread waits for a response.

#: A response; or an ``OSError`` (the connection is broken), a ``FormatError`` (not a frame), a lack
#: of memory, or None (the broker has ended the stream).
ReceiveResult: TypeAlias = Bytes | Exception | None
DeliverResult: TypeAlias = Callable[[ReceiveResult], object]
JOIN_TIMEOUT = 1.0  # seconds for the thread to end, which mostly takes no time


class ReceiverThread:
    """Receives responses of one connection in a thread, which ends with this object."""

    def __init__(
        self, own: socket.socket, frames: FrameReader, deliver: DeliverResult, name: str
    ) -> None:
        """:param own: a duplicate of the connection's socket, which the thread closes
        :param frames: a reader that buffers no more than the length of a frame
        :param deliver: a method, called in the thread; the thread does not keep its object alive
        """
        self._socket = own
        self._process = os.getpid()
        self._commands: SimpleQueue[bool] = SimpleQueue()
        arguments = own, frames, self._commands, WeakMethod(deliver)
        name = f"rota-receive-{name}"
        run = partial(_run_receiver, *arguments)
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def receive_next(self) -> None:
        self._commands.put(True)

    def close(self) -> None:
        self._end()
        self._thread.join(JOIN_TIMEOUT)

    def __del__(self) -> None:
        if os.getpid() == self._process:  # the parent of a fork has the same connection
            self._end()

    def _end(self) -> None:
        self._commands.put(False)
        with contextlib.suppress(OSError):  # closed already
            self._socket.shutdown(socket.SHUT_RDWR)  # ends the wait for a response


def _run_receiver(
    own: socket.socket,
    frames: FrameReader,
    commands: SimpleQueue[bool],
    deliver: WeakMethod[DeliverResult],
) -> None:
    with own:
        while commands.get():
            outcome = _receive_frame(own, frames)
            method = deliver()
            if method is None:
                return
            method(outcome)
            del outcome, method  # frees the response before the next wait


def _receive_frame(own: socket.socket, frames: FrameReader) -> ReceiveResult:
    try:
        own.setblocking(True)
        try:
            while (frame := frames.next_frame()) is None:
                room = frames.get_buffer()
                count = own.recv_into(room, len(room), socket.MSG_WAITALL)
                if not count:
                    return None
                frames.buffer_updated(count)
        finally:
            own.setblocking(False)
    except Exception as error:  # noqa: BLE001 (the connection reports it)
        return error
    return frame
