"""The events that the server gives to the node, and the commands that the node returns.

The server gives the node one frame of a connection at a time: the next one only after the one
before is answered (:class:`WriteResponse`) or needs no response (:class:`NoResponse`). So responses
keep the order of their requests, and a connection occupies at most one request and one response, as
in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType, TypeAlias

from rota.engine.formats.buffer import Bytes

ConnectionId = NewType("ConnectionId", int)  # assigned by the server, never twice


@dataclass(frozen=True, slots=True)
class ConnectionOpened:
    connection: ConnectionId
    host: str


@dataclass(frozen=True, slots=True)
class FrameReceived:
    """A whole frame has come in, without its length."""

    connection: ConnectionId
    frame: Bytes


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The connection is gone; its request needs no response."""

    connection: ConnectionId


@dataclass(frozen=True, slots=True)
class Wakeup:
    """Fire due timers, and resume waiting requests while there is room for responses."""


NodeEvent: TypeAlias = ConnectionOpened | FrameReceived | ConnectionClosed | Wakeup


@dataclass(frozen=True, slots=True)
class WriteResponse:
    """Write these bytes, then read the next frame."""

    connection: ConnectionId
    data: Bytes


@dataclass(frozen=True, slots=True)
class NoResponse:
    """The request gets no response: read the next frame."""

    connection: ConnectionId


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Close the connection, after everything sent before has gone out."""

    connection: ConnectionId
    reason: str


@dataclass(frozen=True, slots=True)
class WriteLogLine:
    level: int  # as in :mod:`logging`
    text: str


NodeCommand: TypeAlias = WriteResponse | NoResponse | CloseConnection | WriteLogLine
