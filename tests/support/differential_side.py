"""One of the two brokers: asked by a script, and what it answered.

Requests and answers are read and written by kafka-python's schemas, so neither side's own code
takes part. An answer is kept as plain dicts and lists, masked: what must differ between two brokers
(ids, ports, times) becomes the name of what it stands for.
"""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl

from tests.support.waiting import wait_until

Message: TypeAlias = Any
#: Dicts, lists, numbers and texts.
Plain: TypeAlias = Any

MODULES = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)
WAIT = 10
CLOSED, SILENT = "the connection was closed", "no answer"


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step of the script, and what came of it."""

    label: str
    outcome: Plain

    def __str__(self) -> str:
        return f"{self.label}: {self.outcome}"


def request_class(name: str) -> Message:
    """kafka-python's class of a request."""
    return next(getattr(each, name) for each in MODULES if hasattr(each, name))


def fill_request(name: str, version: int, **fields: Plain) -> Message:
    """A request out of plain dicts and lists."""
    made = request_class(f"{name}Request")
    return made(version=version, **_structs(made, version, fields))


def _structs(made: Message, version: int, fields: dict[str, Plain]) -> dict[str, Plain]:
    known = made._struct.fields
    return {key: _value(known[key], version, value) for key, value in fields.items()}


def _value(field: Message, version: int, value: Plain) -> Plain:
    if isinstance(value, dict):
        made = field.data_class
        return made(version=version, **_structs(made, version, value))
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [_value(field, version, each) for each in value]
    return value


class BrokerConnection:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation = 0

    def send(self, message: Message) -> None:
        """Sends a request."""
        self._correlation += 1
        message.with_header(correlation_id=self._correlation, client_id="script")
        self.send_frame(message.encode(header=True, framed=False))

    def send_frame(self, frame: bytes) -> None:
        """Sends any bytes behind their length."""
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> bytes | None:
        """A frame; None if the connection was closed, empty if nothing came."""
        try:
            head = self._exactly(4)
            return None if head is None else self._exactly(*struct.unpack(">i", head))
        except ConnectionError:
            return None
        except TimeoutError:
            return b""

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                return None
            data += more
        return data

    def close(self) -> None:
        """Ends it."""
        self._socket.close()


def decode_frame(asked: Message, frame: bytes, version: int | None = None) -> Message:
    """An answer's fields."""
    version = asked.API_VERSION if version is None else version
    made = request_class(f"{asked.name.removesuffix('Request')}Response")
    data = io.BytesIO(frame)
    made.parse_header(data, version=version)
    answer = made.decode(data, version=version)
    left = data.read()
    assert not left, f"{made.name} v{version}: {len(left)} bytes are left"
    return answer


class Side:
    """A broker, and what it answered so far."""

    def __init__(self, name: str, port: int, mask: Callable[[Side, str, Message], Plain]) -> None:
        self.name = name
        self.port = port
        self.answers: list[StepResult] = []
        #: What masked values stand for.
        self.names: dict[object, str] = {}
        self._mask = mask
        self._wire: BrokerConnection | None = None
        self._section = ""

    def named(self, kind: str, value: object) -> str:
        """A name for a value that the broker made up, the same each time."""
        known = sum(name.startswith(kind) for name in self.names.values())
        return self.names.setdefault((kind, value), f"{kind} {known + 1}")

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """A part of the script, with a connection of its own."""
        self._section = name
        try:
            yield
        finally:
            self._drop()

    def ask(self, name: str, version: int, case: str = "", **fields: Plain) -> Message:
        """Asks, records the answer, and returns it; None if the connection was closed."""
        label = f"{self._section} | {name} v{version}" + (f" | {case}" if case else "")
        return self._ask(label, fill_request(name, version, **fields))

    def quiet(self, name: str, version: int, **fields: Plain) -> Message:
        """Asks without recording: to learn what the script needs, or to wait."""
        return self._ask(None, fill_request(name, version, **fields))

    def _ask(self, label: str | None, asked: Message) -> Message:
        wire = self._connected()
        try:
            wire.send(asked)
            if not asked.expect_response():
                self._record(label, SILENT)
                return None
            frame = wire.receive()
        except ConnectionError:  # it was closed after what was asked before
            frame = None
        if not frame:
            self._drop()
            self._record(label, CLOSED if frame is None else SILENT)
            return None
        answer = decode_frame(asked, frame)
        if label is not None:
            self._record(label, self._mask(self, label, answer))
        return answer

    def raw(self, case: str, frame: bytes, read: Callable[[bytes], Plain]) -> None:
        """Sends any frame, and records what ``read`` makes of the answer."""
        wire = self._connected()
        wire.send_frame(frame)
        answer = wire.receive()
        if answer is None:
            self._drop()
        self._record(f"{self._section} | {case}", CLOSED if answer is None else read(answer))

    def ask_for_bytes(self, name: str, version: int, case: str, **fields: Plain) -> None:
        """Asks, and records the answer byte by byte."""
        asked = fill_request(name, version, **fields)
        asked.with_header(correlation_id=7, client_id="script")
        frame = asked.encode(header=True, framed=False)
        self.raw(f"{name} v{version} | {case}", frame, lambda answer: answer.hex())

    def plain(self, answer: Message) -> Plain:
        """An answer that came another way, masked."""
        return self._mask(self, "", answer)

    def note(self, case: str, found: Plain) -> None:
        """Records something that the script has seen by other means."""
        self._record(f"{self._section} | {case}", found)

    def eventually(self, check: Callable[[], bool], what: str) -> None:
        """Waits until something is so."""
        wait_until(f"{self.name}: {what}", check, seconds=WAIT)

    def other(self) -> BrokerConnection:
        """A connection more, for what waits; the script closes it."""
        return BrokerConnection(self.port)

    def _connected(self) -> BrokerConnection:
        if self._wire is None:
            self._wire = BrokerConnection(self.port)
        return self._wire

    def _drop(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _record(self, label: str | None, outcome: Plain) -> None:
        if label is not None:
            self.answers.append(StepResult(label, outcome))
