"""What reaches the node, and what it wants done.

The server gives the node one frame of a connection at a time: the next one only when the one
before is answered (:class:`Send`) or needs no answer (:class:`Done`). So answers keep the order of
their requests, and what a connection can occupy is one request and one answer, as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType, TypeAlias

from rota.formats.buffer import Bytes

ConnectionId = NewType("ConnectionId", int)
"""Given by the server, never twice."""


# Events


@dataclass(frozen=True, slots=True)
class Opened:
    """A client has connected."""

    connection: ConnectionId
    host: str


@dataclass(frozen=True, slots=True)
class Received:
    """A whole frame has come in, without its length."""

    connection: ConnectionId
    frame: Bytes


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is gone; what it waited for need not be answered."""

    connection: ConnectionId


@dataclass(frozen=True, slots=True)
class Woken:
    """It is as late as the node's next alarm, or later."""


Event: TypeAlias = Opened | Received | Closed | Woken


# Commands


@dataclass(frozen=True, slots=True)
class Send:
    """Write these bytes, then read the next frame."""

    connection: ConnectionId
    data: Bytes


@dataclass(frozen=True, slots=True)
class Done:
    """The request gets no answer: read the next frame."""

    connection: ConnectionId


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection, after what was sent before has gone out."""

    connection: ConnectionId
    reason: str


@dataclass(frozen=True, slots=True)
class Log:
    """For the broker's log."""

    level: int
    """As in :mod:`logging`: 20 is worth telling, 30 a warning, 40 an error."""
    text: str


Command: TypeAlias = Send | Done | Close | Log
