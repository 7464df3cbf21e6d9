"""One connection to a broker: requests out, many under way, answers in their order.

Answers are decoded where they arrive, in the loop's own turn. What a large one holds is a view of
its frame, which the socket was read into. Where large ones follow each other, a thread receives
them (:mod:`rota.client.receiver`). A connection at rest has one timer, for its idle end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, cast

from rota.client import stranger, tls
from rota.client.dial import dial
from rota.client.login import log_in
from rota.client.pending import Pending
from rota.client.receiver import Outcome, Receiver
from rota.client.version import api_name, highest, learn
from rota.errors import FormatError, NotKafka, RotaError, TimedOut, Unreachable
from rota.formats.buffer import Bytes
from rota.model.client import Address, ClientConfig
from rota.wire.api import Api
from rota.wire.frame import LENGTH_SIZE, SCRATCH, Frames
from rota.wire.message import Head, Message, read_response, write_request
from rota.wire.schema import Versions

LARGEST: Final = 1 << 30
"""Bytes of the largest answer. A fetch has ``fetch.max.bytes``, or one batch if that is more."""
AT_ONCE: Final = 64 << 20
"""Bytes of an answer that room is made for as soon as it is announced; larger ones grow."""
LARGE_ANSWER: Final = 1 << 18
"""Bytes of an answer after which a thread receives the next."""
TOO_LARGE: Final = "the largest that a client takes"
FAREWELL: Final = 1.0
"""Seconds for what must still go out when a connection is closed."""
SESSION: Final = (0.85, 0.95)
"""After such a part of the session's time a new login is due, as in Kafka (KIP-368)."""
GRACE: Final = 0.2
"""Seconds that a clock may be looked at too late."""
REPLY: Final = 1.0
"""Seconds for a server that was silent to say something once it hears that no more comes."""
NEVER: Final = float("inf")
_NOTHING = memoryview(b"")


class Means:
    """What the connections of one client share."""

    def __init__(self, config: ClientConfig, *, quiet: bool = False) -> None:
        self.config = config
        self.level = logging.DEBUG if quiet else logging.WARNING
        """At which failures to connect are logged."""
        self.scratch = bytearray(SCRATCH)
        """Where the bytes of all connections arrive for a moment."""
        self.context = None if config.tls is None else tls.context(config.tls)
        """How TLS is spoken, if it is."""


class Connection(asyncio.BufferedProtocol):
    """A connection to one broker, used from the loop that it was opened in."""

    def __init__(self, address: Address, means: Means, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._means = means
        self._config = means.config
        self.address = address
        self.name = name
        """How errors call it."""
        self.versions: Mapping[int, Versions] = {}
        """What the broker serves, by the API's key."""
        self.gone: asyncio.Future[None] = self._loop.create_future()
        """Done when the socket is closed."""
        self._transport: asyncio.Transport | None = None
        self._problem: str | None = None
        """Why it is closed."""
        self._stage = "connection"
        """What has not come about yet; empty once requests may be sent."""
        self._waiting: deque[Pending] = deque()
        self._count = 0
        self._served = False
        """A request that needs a login, if any does, was answered."""
        self._frames = Frames(stranger.LONGEST_GREETING, means.scratch, TOO_LARGE, AT_ONCE)
        self._room = _NOTHING
        self._descriptor = -1
        """Of the socket, where it may be read without TLS."""
        self._was_large = False
        """The last answer."""
        self._receiver: Receiver | None = None
        self._is_lent = False
        """The socket is the receiver's."""
        self._head: bytes | None = b""
        """What has come first, until it is known to be a broker's."""
        self._provoked = False
        """It was silent for so long that it was told that no more comes."""
        self._last = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._muted = 0.0
        """Until then the broker does not read what is sent (KIP-219)."""
        self._expires = NEVER
        """When the broker wants a new login."""
        self._finishing = False

    # Life

    @classmethod
    async def open(
        cls, address: Address, config: ClientConfig, deadline: float, means: Means | None = None
    ) -> Connection:
        """A connection by itself; see :meth:`establish`."""
        made = cls(address, means or Means(config), str(address))
        patience = config.connect_timeout / 1000
        await made.establish(deadline, patience=patience, silence=patience / 2)
        return made

    async def establish(
        self, deadline: float, *, patience: float, silence: float, hint: str = ""
    ) -> None:
        """Connects, by TLS if that is set, learns the broker's versions and logs in.

        :param deadline: by the loop's clock
        :param patience: seconds for each address of the name to take the connection
        :param silence: seconds after which a server that says nothing is told that no more comes.
            One that waits for the end of a line then says what it is; a Kafka would have answered
        :param hint: what errors say to who cannot reach it
        :raises NotKafka: something else listens there
        :raises Untrusted: TLS does not come about
        :raises Unreachable: it cannot be reached, or not in time
        :raises AuthenticationFailed: the login is refused
        """
        begun = self._loop.time()
        try:
            async with asyncio.timeout_at(deadline):
                await self._connect(patience, hint)
                await self._begin(deadline, silence)
        except TimeoutError:
            await self.abort()
            raise self.late(f"within {self._loop.time() - begun:.3g} s", hint) from None
        except GeneratorExit:
            self.close()  # the event loop does not run any more, so nothing can be awaited
            raise
        except BaseException:
            await self.abort()
            raise

    async def _connect(self, patience: float, hint: str) -> None:
        try:
            opened = await dial(self.address, self._config, patience)
        except Unreachable as error:
            raise Unreachable(self._named(f"{error}{hint}")) from error
        try:
            context = self._means.context
            if context is None:
                await self._loop.create_connection(lambda: self, sock=opened)
                return
            self._stage = "TLS"
            await self._loop.create_connection(
                lambda: self,
                sock=opened,
                ssl=context,
                server_hostname=self.address.host,
                ssl_shutdown_timeout=FAREWELL,
            )
        except OSError as error:
            raise tls.failure(error, self.name) from error
        finally:
            if self._transport is None:
                try:
                    await asyncio.sleep(0)  # the loop closes a socket in its next turn
                finally:
                    opened.close()

    async def _begin(self, deadline: float, silence: float) -> None:
        self._stage = "greeting"
        provocation = self._loop.call_later(silence, self._provoke)
        try:
            self.versions = await learn(self, deadline)
        finally:
            provocation.cancel()
        self._head = None
        if self._provoked:
            raise Unreachable(self._named(f"the broker is slow: no answer within {silence:.3g} s"))
        self._frames.limit = LARGEST
        if self._config.login is not None:
            self._stage = "login"
            begun = self._loop.time()
            lifetime = await log_in(self, self._config.login, deadline)
            self._served = True
            if lifetime > 0:
                # chance so that not all clients log in again at once, not for a secret
                self._expires = begun + lifetime / 1000 * random.uniform(*SESSION)  # noqa: S311
        self._stage = ""
        self._watch(self._rest_until)

    def _provoke(self) -> None:
        if self._head or self._transport is None or not self._waiting:
            return  # it has begun to answer
        self._provoked = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.write(stranger.LINE_END)  # by TLS nobody can end one way alone
        self._waiting[0].deadline = self._loop.time() + REPLY
        self._watch(self._waiting[0].deadline)

    def close(self) -> None:
        """Closes it; what is under way fails."""
        self._fail("this client has closed the connection", now=False)

    def finish(self) -> None:
        """Closes it as soon as nothing is under way."""
        self._finishing = True
        if not self._waiting:
            self.close()

    async def abort(self) -> None:
        """Closes it, and waits for that."""
        self.close()
        if self._transport is not None and not self.gone.done():
            await asyncio.wait([self.gone], timeout=FAREWELL)
            self._transport.abort()
            await asyncio.wait([self.gone], timeout=FAREWELL)

    @property
    def usable(self) -> bool:
        """Requests may be sent."""
        return self._problem is None and not self._stage and not self._finishing

    @property
    def in_flight(self) -> int:
        """How many requests are not answered."""
        return len(self._waiting)

    # Requests

    def version(self, api: Api, most: int | None = None) -> int:
        """The version in which requests of an API are sent.

        :raises Refused: the broker and Rota have none in common
        """
        return highest(self.versions, api, most)

    def send(
        self,
        api: Api,
        request: Message,
        *,
        deadline: float,
        most: int | None = None,
        large: bool = False,
    ) -> asyncio.Future[Message]:
        """Sends a request, at once; the loop need not run. Who waits for the answer may be
        cancelled; the connection stays.

        :param deadline: by the loop's clock. Without an answer until then the connection is closed,
            for all that wait: what comes after it could not come either
        :param most: the highest version to be used
        :param large: the answer may be large: if the last one was, a thread receives this one,
            whether the loop runs or not. Until then nothing else may be sent
        :raises Refused: the broker does not know the API, or not in a version that Rota speaks
        :raises Unreachable: the connection is closed
        """
        version = highest(self.versions, api, most)
        pending = self._request(api, version, request, deadline)
        if large and self._was_large:
            self._leave_to_thread()
        return pending.future

    def ask_raw(
        self, api: Api, version: int, request: Message, deadline: float
    ) -> asyncio.Future[Bytes]:
        """Sends a request in a version that nobody has agreed on; gives the answer's frame."""
        pending = self._request(api, version, request, deadline)
        pending.raw = True
        return pending.future

    def _request(self, api: Api, version: int, request: Message, deadline: float) -> Pending:
        if self._problem is not None or self._transport is None:
            raise Unreachable(self._named(self._problem or "the connection is not open"))
        assert not self._is_lent, "a thread has the socket, which blocks: who writes would wait"
        self._count = (self._count + 1) & 0x7FFFFFFF
        head = Head(api, version, self._count, self._config.client_id, 0)
        data = write_request(head, request)
        pending = Pending(api, version, self._count, deadline, self._loop)
        self._last = pending.sent
        # not for as long as any broker may say: an answer is due some day
        muted = min(self._muted - pending.sent, self._config.request_timeout / 1000)
        pending.deadline += max(0.0, muted)
        self._waiting.append(pending)
        self._transport.write(data)
        self._watch(pending.deadline)
        return pending

    # What the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected, and TLS agreed on."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclasses
        if self._means.context is None and hasattr(os, "readv"):
            self._descriptor = transport.get_extra_info("socket").fileno()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where bytes may arrive."""
        self._room = self._frames.room()
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        self._last = self._loop.time()
        if self._problem is not None:
            return
        if self._head is not None:
            self._head = (self._head + self._room[: min(nbytes, stranger.ENOUGH)])[
                : stranger.ENOUGH
            ]
            if len(self._head) >= 4 and (who := stranger.look(self._head)) is not None:
                self._fail(who, NotKafka)
                return
        self._room = _NOTHING  # a view would keep the whole answer
        self._frames.advance(nbytes)
        self._read_on()
        self._receive_all(iter(self._frames.next, None))

    def _read_on(self) -> None:
        """Takes what is there of a frame that has begun: a turn of the loop for each piece of it
        costs more than the piece. How it ends, and errors, are left to the loop.
        """
        while self._descriptor >= 0 and self._frames.missing:
            try:
                count = os.readv(self._descriptor, [self._frames.room()])
            except OSError:
                return
            if not count:
                return
            self._frames.advance(count)

    def _leave_to_thread(self) -> None:
        """A thread receives the next answer, unless TLS is spoken or something else is under way:
        it has the socket for itself. Where no thread can be had, the loop receives as ever.
        """
        transport = self._transport
        busy = len(self._waiting) > 1 or self._frames.held
        if transport is None or self._descriptor < 0 or busy or transport.get_write_buffer_size():
            return
        if self._receiver is None:
            self._receiver = self._make_receiver()
        if self._receiver is not None:
            self._is_lent = True
            transport.pause_reading()
            self._receiver.expect()

    def _make_receiver(self) -> Receiver | None:
        frames = Frames(LARGEST, bytearray(LENGTH_SIZE), TOO_LARGE, AT_ONCE)
        try:
            own = socket.socket(fileno=os.dup(self._descriptor))
        except OSError:  # too many files
            return None
        try:
            return Receiver(own, frames, self._deliver, str(self.address))
        except RuntimeError:  # too many threads, or the interpreter ends
            own.close()
            return None

    def _deliver(self, outcome: Outcome) -> None:
        """Called in the thread."""
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._delivered, outcome)

    def _delivered(self, outcome: Outcome) -> None:
        """The thread has done its work."""
        self._is_lent = False
        self._last = self._loop.time()
        if self._problem is not None or self._transport is None:
            return
        self._transport.resume_reading()
        if isinstance(outcome, Bytes | FormatError):
            self._receive_all([outcome])
        elif outcome is None:
            self._hang_up()
        elif isinstance(outcome, OSError):
            self._hang_up(f" ({outcome})")
        else:
            self._fail(f"its answer cannot be received: {outcome!r}")

    def eof_received(self) -> bool:
        """The broker sends no more."""
        self._hang_up()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if isinstance(exc, ssl.SSLError):
            # from TLS 1.3 on a broker refuses a client's certificate after the handshake
            self._fail(str(tls.failure(exc, "TLS")), type(tls.failure(exc, "")))
        else:
            self._hang_up("" if exc is None else f" ({exc})")
        if self._receiver is not None:
            self._receiver.close()
        if self._timer is not None:
            self._timer.cancel()
        if not self.gone.done():
            self.gone.set_result(None)

    def _receive_all(self, frames: Iterable[Bytes | FormatError]) -> None:
        try:
            for frame in frames:
                if isinstance(frame, FormatError):
                    raise frame
                self._receive(frame)
        except FormatError as error:
            self._fail(f"what came in is no answer: {error}")
        if self._finishing and not self._waiting:
            self.close()

    def _receive(self, frame: Bytes) -> None:
        if not self._waiting:
            raise FormatError("nothing was asked")
        pending = self._waiting[0]
        correlation = int.from_bytes(frame[:4], "big", signed=True)
        if len(frame) < 4 or correlation != pending.correlation:
            raise FormatError(
                f"an answer to request {correlation} where that to {pending.correlation} was due"
            )
        self._waiting.popleft()
        self._was_large = len(frame) >= LARGE_ANSWER
        if pending.raw:
            if not pending.future.done():
                pending.future.set_result(frame)
            return
        self._served = True
        if pending.future.done():
            return  # who waited was cancelled
        try:
            _, response = read_response(pending.api, pending.version, frame)
        except FormatError as error:
            pending.future.set_exception(FormatError(self._named(str(error))))
            raise
        if throttled := getattr(response, "throttle_time_ms", 0):
            self._muted = self._last + throttled / 1000
        pending.future.set_result(response)

    # Ends

    def _fail(
        self, problem: str, make: Callable[[str], RotaError] = Unreachable, *, now: bool = True
    ) -> None:
        """Ends the connection; all that is under way fails."""
        if self._problem is None:
            self._problem = problem
            for pending in self._waiting:
                if not pending.future.done():
                    asked = "" if self._stage else f"; {api_name(pending.api)} was under way"
                    pending.future.set_exception(make(self._named(problem + asked)))
            self._waiting.clear()
        if self._transport is not None:
            if now:
                self._transport.abort()
            else:
                self._transport.close()

    def _hang_up(self, reason: str = "") -> None:
        """The broker has ended the connection."""
        closed = f"the broker has closed the connection{reason}"
        if self._provoked and not self._head:
            self._tire()
        elif self._head is not None:
            cut = f"the connection is closed before anything is answered{reason}"
            text = f"{cut}: {stranger.OTHER_PORT}"
            self._fail(text, partial(NotKafka, certain=False))
        elif not self._served and self._config.login is None:
            self._fail(
                f"{closed} after the greeting: it may want a login "
                "(security.protocol SASL_PLAINTEXT or SASL_SSL, sasl.mechanism, sasl.jaas.config)"
            )
        else:
            self._fail(closed)

    def _tire(self) -> None:
        """The server says nothing, whatever it hears."""
        when = f"within {self._loop.time() - self._last:.3g} s"
        self._fail(stranger.silent(when), partial(NotKafka, certain=False))

    def late(self, when: str, hint: str = "") -> Unreachable:
        """How far it has come, for who waits no longer.

        :param when: such as ``within 3 s``
        """
        if self._stage == "connection":
            return TimedOut(self._named(f"no connection {when}{hint}"))
        if self._stage == "greeting" and not self._head:
            return NotKafka(self._named(stranger.silent(when)), certain=False)
        return TimedOut(self._named(f"its {self._stage} was not complete {when}"))

    def _named(self, problem: str) -> str:
        return f"{self.name}: {problem}"

    # Time

    @property
    def _rest_until(self) -> float:
        """When the connection ends by itself."""
        idle = self._config.idle_connection
        rests = not self._waiting and idle >= 0
        return min(self._expires, self._last + idle / 1000 if rests else NEVER)

    def _watch(self, at: float) -> None:
        """Looks at the clock then, or before."""
        if at == NEVER or (self._timer is not None and self._timer.when() <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        due = now if self._timer is None else self._timer.when()
        self._timer = None
        if self._waiting and now - due > GRACE:
            # the loop was at rest, or busy: what has come in meanwhile is read first
            self._watch(now + GRACE)
            return
        late = next((each for each in self._waiting if each.deadline <= now), None)
        if late is not None:
            waited = now - late.sent
            if self._provoked:
                self._tire()
            else:
                self._fail(f"no answer to {api_name(late.api)} within {waited:.3g} s", TimedOut)
            return
        if not self._stage and self._rest_until <= now:
            self._expires = NEVER
            self.finish()  # who needs it again opens a new one, and logs in anew
        if self._problem is None:
            ends = NEVER if self._finishing else self._rest_until
            self._watch(min([ends, *(each.deadline for each in self._waiting)]))
