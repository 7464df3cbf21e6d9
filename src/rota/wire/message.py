"""The only door to the library that reads and writes API messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from rota.formats.buffer import Bytes
from rota.wire.api import Api

Message: TypeAlias = Any
"""A request or response: fields by their names in Kafka's schemas, in snake case."""


@dataclass(frozen=True, slots=True)
class Head:
    """The header of a request."""

    api: int
    version: int
    correlation: int
    client_id: str | None
    size: int
    """Bytes up to the body."""


def read_head(frame: Bytes) -> Head:
    """The header of a request, whatever its API and version.

    :raises FormatError: it is cut
    """
    raise NotImplementedError


def read_request(api: Api, version: int, frame: Bytes, start: int) -> Message:
    """A request's body, from a position of its frame on.

    :raises FormatError: it does not follow its schema, or something is left behind it
    """
    raise NotImplementedError


def write_response(api: Api, version: int, correlation: int, response: Message) -> bytes:
    """A whole frame, length and header included."""
    raise NotImplementedError
