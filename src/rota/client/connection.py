"""One connection to a broker: requests out, many under way, answers in their order.

Answers are decoded where they arrive, in the loop's own turn. What a large one holds is a view of
its frame, which the socket was read into. A connection at rest has one timer, for its idle end.
"""

from __future__ import annotations

import asyncio
import importlib
from collections import deque
from collections.abc import Mapping
from typing import Final

from rota.client import stranger
from rota.client.dial import dial
from rota.client.version import api_name, highest, offered
from rota.errors import Code, FormatError, NotKafka, RotaError, TimedOut, Unreachable
from rota.formats.buffer import Bytes
from rota.model.client import Address, ClientConfig
from rota.wire.api import Api
from rota.wire.frame import SCRATCH, Frames
from rota.wire.message import (
    ApiVersionsRequest,
    Head,
    Message,
    read_response,
    spoken,
    write_request,
)
from rota.wire.schema import Versions

LARGEST: Final = 1 << 30
"""Bytes of the largest answer. A fetch has ``fetch.max.bytes``, or one batch if that is more."""
FAREWELL: Final = 1.0
"""Seconds for what must still go out when a connection is closed."""


class _Pending:
    """A request under way."""

    __slots__ = ("api", "correlation", "deadline", "future", "raw", "sent", "version")

    def __init__(
        self, api: Api, version: int, correlation: int, deadline: float, *, raw: bool
    ) -> None:
        self.api = api
        self.version = version
        self.correlation = correlation
        self.deadline = deadline
        self.sent = asyncio.get_running_loop().time()
        self.raw = raw
        """Its answer is given out as it came."""
        self.future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()


class Connection(asyncio.BufferedProtocol):
    """A connection to one broker, used from the loop that it was opened in."""

    def __init__(
        self, address: Address, config: ClientConfig, name: str, scratch: bytearray | None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._config = config
        self.address = address
        self.name = name
        """How errors call it."""
        self.versions: Mapping[int, Versions] = {}
        """What the broker serves, by the API's key."""
        self.gone: asyncio.Future[None] = self._loop.create_future()
        """Done when the socket is closed."""
        self._problem: str | None = None
        """Why it is closed."""
        self._waiting: deque[_Pending] = deque()
        self._count = 0
        self._transport: asyncio.Transport | None = None
        self._frames = Frames(
            stranger.LONGEST_GREETING, scratch or bytearray(SCRATCH), "the largest that is taken"
        )
        self._room = memoryview(b"")
        self._head: bytes | None = b""
        """What has come first, until the broker is known to be one."""
        self._idle = config.idle_connection / 1000 if config.idle_connection >= 0 else None
        self._last = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._finishing = False

    # Life

    @classmethod
    async def open(  # noqa: PLR0913, what a connection may be given
        cls,
        address: Address,
        config: ClientConfig,
        deadline: float,
        *,
        name: str | None = None,
        hint: str = "",
        patience: float | None = None,
        scratch: bytearray | None = None,
    ) -> Connection:
        """Connects, by TLS if that is set, learns the broker's versions and logs in.

        :param deadline: by the loop's clock
        :param name: how errors call it; the address by default
        :param hint: what they say to who cannot reach it
        :param patience: seconds for each address of the name to take the connection
        :param scratch: where the bytes of connections arrive for a moment; many may share it
        :raises NotKafka: something else listens there
        :raises Unreachable: it cannot be reached, or not in time
        :raises AuthenticationFailed: the login is refused
        """
        made = cls(address, config, name or str(address), scratch)
        begun = made._loop.time()
        try:
            async with asyncio.timeout_at(deadline):
                await made._connect(patience or config.connect_timeout / 1000, hint)
                await made._greet(deadline)
        except TimeoutError:
            await made.abort()
            raise made._late(made._loop.time() - begun) from None
        except BaseException:
            await made.abort()
            raise
        return made

    async def _connect(self, patience: float, hint: str) -> None:
        try:
            opened = await dial(self.address, self._config, patience)
        except Unreachable as error:
            raise Unreachable(self._named(f"{error}{hint}")) from error
        try:
            await self._loop.create_connection(lambda: self, sock=opened)
        except BaseException:
            opened.close()
            raise

    async def _greet(self, deadline: float) -> None:
        """Learns the versions: in the newest form, then in the one that the broker names."""
        version = spoken(Api.API_VERSIONS).high
        request = ApiVersionsRequest(
            client_software_name="rota",
            client_software_version=importlib.import_module("rota").__version__,
        )
        while True:
            pending = self._request(Api.API_VERSIONS, version, request, deadline, raw=True)
            frame = await pending.future
            refused = frame[4:6] == Code.UNSUPPORTED_VERSION.to_bytes(2, "big")
            try:
                # a version the broker does not know is answered in that of version 0 (KIP-511)
                _, response = read_response(Api.API_VERSIONS, 0 if refused else version, frame)
            except FormatError as error:
                raise NotKafka(self._named(f"this is no answer of a Kafka's: {error}")) from error
            if refused and version > 0:
                own = offered(response).get(Api.API_VERSIONS)
                version = min(own.high, version - 1) if own is not None else 0
                continue
            if response.error_code:
                raise Unreachable(
                    self._named(f"ApiVersions is answered with error {response.error_code}")
                )
            self.versions = offered(response)
            break
        self._head = None
        self._frames.limit = LARGEST

    def close(self) -> None:
        """Closes it; what is under way fails."""
        self._fail("the connection was closed by this client", now=False)

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
        return self._problem is None and not self._finishing and self._head is None

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
        self, api: Api, request: Message, *, deadline: float, most: int | None = None
    ) -> asyncio.Future[Message]:
        """Sends a request. Who waits for the answer may be cancelled; the connection stays.

        :param deadline: by the loop's clock. Without an answer until then the connection is closed,
            for all that wait: what comes after it could not come either
        :param most: the highest version to be used
        :raises Refused: the broker does not know the API, or not in a version that Rota speaks
        :raises Unreachable: the connection is closed
        """
        if self._problem is not None:
            raise Unreachable(self._named(self._problem))
        version = highest(self.versions, api, most)
        return self._request(api, version, request, deadline).future

    def _request(
        self, api: Api, version: int, request: Message, deadline: float, *, raw: bool = False
    ) -> _Pending:
        assert self._transport is not None
        self._count = (self._count + 1) & 0x7FFFFFFF
        head = Head(api, version, self._count, self._config.client_id, 0)
        data = write_request(head, request)
        pending = _Pending(api, version, self._count, deadline, raw=raw)
        self._last = pending.sent
        self._waiting.append(pending)
        self._transport.write(data)
        self._watch(deadline)
        return pending

    # What the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._watch(self._last + self._idle if self._idle is not None else float("inf"))

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
            self._head = (self._head + bytes(self._room[: min(nbytes, stranger.ENOUGH)]))[
                : stranger.ENOUGH
            ]
            if len(self._head) >= 4 and (who := stranger.look(self._head)) is not None:
                self._fail(who, NotKafka)
                return
        self._room = memoryview(b"")  # a view kept would keep the whole answer
        self._frames.advance(nbytes)
        try:
            while (frame := self._frames.next()) is not None:
                self._receive(frame)
        except FormatError as error:
            self._fail(f"what came in is no answer: {error}", FormatError)
        if self._finishing and not self._waiting:
            self.close()

    def eof_received(self) -> bool:
        """The broker sends no more."""
        self._fail(self._hung_up(), NotKafka if self._head is not None else Unreachable)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if exc is None:
            self._fail(self._hung_up())
        else:
            self._fail(f"the connection is lost: {exc}")
        if self._timer is not None:
            self._timer.cancel()
        if not self.gone.done():
            self.gone.set_result(None)

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
        if pending.future.done():
            return  # who waited was cancelled
        if pending.raw:
            pending.future.set_result(frame)
            return
        try:
            _, response = read_response(pending.api, pending.version, frame)
        except FormatError as error:
            pending.future.set_exception(FormatError(self._named(str(error))))
            raise
        pending.future.set_result(response)

    # Ends

    def _fail(self, problem: str, kind: type[RotaError] = Unreachable, *, now: bool = True) -> None:
        """Ends the connection; all that is under way fails."""
        if self._problem is None:
            self._problem = problem
            for pending in self._waiting:
                if not pending.future.done():
                    asked = f"; {api_name(pending.api)} was under way"
                    pending.future.set_exception(
                        kind(self._named(problem + ("" if pending.raw else asked)))
                    )
            self._waiting.clear()
        if self._transport is not None:
            if now:
                self._transport.abort()
            else:
                self._transport.close()

    def _hung_up(self) -> str:
        if self._head is None:
            return "the broker has closed the connection"
        return (
            "the connection is closed before anything is answered: is it a port for TLS "
            "(security.protocol SSL or SASL_SSL), or something else than a Kafka?"
        )

    def _late(self, waited: float) -> Unreachable:
        if self._transport is None:
            return TimedOut(self._named(f"no connection within {waited:.3g} s"))
        if self._head:
            return TimedOut(self._named(f"its greeting was not complete within {waited:.3g} s"))
        if self._head is None:
            return TimedOut(self._named(f"no login within {waited:.3g} s"))
        return NotKafka(
            self._named(
                f"nothing is said within {waited:.3g} s: is it a port for TLS "
                "(security.protocol SSL or SASL_SSL), a stuck broker, or something else?"
            ),
            certain=False,
        )

    def _named(self, problem: str) -> str:
        return f"{self.name}: {problem}"

    def _watch(self, at: float) -> None:
        """Looks at the clock then, or before."""
        if at == float("inf") or (self._timer is not None and self._timer.when() <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        late = next((each for each in self._waiting if each.deadline <= now), None)
        if late is not None:
            waited = now - late.sent
            self._fail(f"no answer to {api_name(late.api)} within {waited:.3g} s", TimedOut)
        elif self._waiting:
            self._watch(min(each.deadline for each in self._waiting))
        elif self._idle is not None and self._last + self._idle <= now:
            self.close()
        elif self._idle is not None:
            self._watch(self._last + self._idle)
